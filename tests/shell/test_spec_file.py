"""Every design of the package from a TOML file, and mistakes by file and key."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import mechdesign as md
from mechdesign.problem.spine import Design
from mechdesign.shell.spec_file import design_from_toml, designs

PRIOR = """
[prior]
law = "uniform"
loc = -1
scale = 2
"""
PURE = "privacy = {epsilon = 1.0}\n"
BOTH = 'privacy = {kind = "ApproximateDP", epsilon = 1.0, delta = 1e-6}\n'
SPECS = {
    "OPTM": "bins = [-3.0, -0.5, 0.5, 3.0]\n" + PURE + PRIOR,
    "OPTMSearch": PURE
    + "bins = {delta = [1.9, 2.0], inner = [0.5]}\nlevels = {level = [0.66, 0.67], width = [0.01]}\n"
    + PRIOR,
    "OptimalQuantizer": 'bins = {kind = "BinSearch", m = 4, max_abs = 3.0, starts = 1}\n' + PURE + PRIOR,
    "MetricQuantizer": "bins = [-3.0, -0.5, 0.5, 3.0]\n"
    + 'privacy = {kind = "MetricDP", epsilon = 2.0}\n'
    + PRIOR
    + "[solve]\ngap = 0.05\n",
    "MVU": "m = 4\ninput_range = [-1.0, 1.0]\n" + PURE + "" + PRIOR,
    "RQM": "m = 4\ngrid = {delta = [1.0, 2.0], q = [0.2, 0.4]}\n" + PURE + PRIOR + "[solve]\nzoom = 0\n",
    "ERM": "m = 4\n" + PURE + PRIOR + "[solve]\nzoom = 0\nstarts = 1\n",
    "BiasedSelection": "m = 4\ngrid = {delta = [0.5, 1.0], q = [0.3, 0.6], beta = [0.1, 0.5]}\n"
    + PURE
    + PRIOR,
    "Calibration": 'noise = "gaussian"\ndimension = 20\nsensitivity = {linf = 1, l0 = 3}\n' + BOTH,
    "OptimalNoise": 'privacy = {kind = "ApproximateDP", epsilon = 1.0, delta = 0.2}\n[solve]\ngap = 0.05\n',
    "NoiseAllocation": 'noise = "laplace"\nsensitivities = [1.0, 8.0]\n' + PURE,
    "KNorm": "dimension = 20\nsensitivity = {linf = 1, l1 = 5}\nnorm = inf\n" + PURE,
    "CorrelatedGaussian": "changes = [[1.0, 0.0], [1.0, 1.0]]\n" + BOTH,
    "MatrixMechanism": 'workload = {kind = "kron", parts = [{kind = "prefix_sums", size = 4}, {kind = "identity", size = 2}]}\n'
    + BOTH,
    "BufferedToeplitz": "size = 30\nbuffers = 2\n" + BOTH,
    "CountsGaussian": "counts = 20\nl0 = 3\n" + BOTH,
    "VectorQuantizer": 'dimension = 50\nbits = 4\ninputs = "box"\n' + PURE,
    "LocalWorkload": 'workload = {kind = "prefix_sums", size = 4}\n' + PURE,
    "BoundedCount": 'n = 6\nloss = "squared"\n' + PURE,
    "PrivateChoice": 'candidates = ["tea", "coffee"]\nlargest = 3\n' + PURE,
    "PrivateQuantile": "q = 0.5\ncandidates = [1.0, 2.0, 4.0]\n" + PURE,
    "Plan": PURE
    + 'targets = {visits = 19.0, age = 1.0, spent = 99.0, totals = 99.0}\n[tasks.totals]\nkind = "prefix_sums"\nsize = 4\n[tasks.visits]\nkind = "Histogram"\nbins = 4\ncontribution = {linf = 2, l0 = 3}\n'
    + '[tasks.age]\nkind = "Mean"\nlower = 0\nupper = 100\nn = 1000\n[tasks.spent]\nkind = "Sum"\nclip = [1.0, 2.0]\nn = 20\n'
    + 'values = {law = "uniform"}\n',
    "UserHistogram": 'space = {kind = "grid", rows = 2, columns = 3}\nitems = 4\nusers = 10\nprivacy = {kind = "EMDPrivacy", alpha = 1.0}\n',
    "MetricChannel": 'space = {kind = "grid", rows = 3, columns = 3}\nalpha = 0.7\n',
}


def written(folder: Path, text: str) -> Path:
    (folder / "spec.toml").write_text(text)
    return folder / "spec.toml"


def test_every_design_is_here() -> None:
    """A new design must be added to the list above, and then be read from TOML."""
    wings = md, md.noise, md.quantizers, md.channels, md.vectors, md.user_level, md.learning, md.accounting
    public = {
        name
        for wing in wings
        for name in dir(wing)
        if isinstance(value := getattr(wing, name), type)
        and issubclass(value, Design)
        and dataclasses.is_dataclass(value)
    }
    public |= {"CountsGaussian", "MatrixMechanism"}  # functions that return one
    assert public - {"Problem"} == set(SPECS) == set(designs())  # a problem is declared in Python


@pytest.mark.parametrize("name", SPECS)
def test_every_design_is_read_and_solved(name: str, tmp_path: Path) -> None:
    design, options = design_from_toml(written(tmp_path, f'design = "{name}"\n' + SPECS[name]))
    assert isinstance(design, Design)
    if name == "OPTMSearch":
        options["bar"] = False
    result = design.solve(**options)
    assert np.isfinite(result.value) and result.checks()["holds"].all()


def test_other_outputs_spaces_and_laws(tmp_path: Path) -> None:
    text = (
        'design = "OptimalQuantizer"\nbins = {kind = "Alphabet", max_abs = 3.0, step = 0.5}\n' + PURE + PRIOR
    )
    assert design_from_toml(written(tmp_path, text))[0].bins == md.Alphabet(3.0, 0.5)
    for space, size in (
        ('{kind = "line", positions = [0.0, 1.0, 3.0]}', 3),
        ('{kind = "clustered", clusters = 2, size = 3, within = 0.2}', 6),
        ('{kind = "geodesic", latitude = [0.0, 1.0], longitude = [5.0, 6.0]}', 2),
        ('{kind = "matrix", distances = [[0.0, 1.0], [1.0, 0.0]]}', 2),
        ('{kind = "tree", parents = [-1, 0, 0], lengths = [0.0, 1.0, 2.0]}', 3),
        ("[[0.0, 1.0], [1.0, 0.0]]", 2),
    ):
        text = f'design = "MetricChannel"\nspace = {space}\nalpha = 1.0\n'
        assert design_from_toml(written(tmp_path, text))[0].space.size == size
    text = 'design = "Calibration"\nnoise = {law = "laplace"}\nsensitivity = 1.0\n' + PURE
    assert design_from_toml(written(tmp_path, text))[0].noise.dist.name == "laplace"
    text = 'design = "RQM"\nm = 4\n' + PURE + "prior = {samples = [-1.0, 0.0, 1.0]}\ninput_range = [-1, 1]\n"
    assert design_from_toml(written(tmp_path, text))[0].prior.support == (-1.0, 1.0)


def test_bounds_of_single_coordinates_and_others(tmp_path: Path) -> None:
    for text in (
        'design = "NoiseAllocation"\nnoise = "gaussian"\nsensitivities = {each = [1.0, 2.0], l0 = 1}\n',
        'design = "CorrelatedGaussian"\nchanges = {each = [1.0, 2.0], l0 = 1}\n',
    ):
        design, _ = design_from_toml(written(tmp_path, text + BOTH))
        assert design.solve().value == pytest.approx(5 / design.budget, rel=1e-8)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("design = \"OPTM\"\nbins = 1 2\n", "line 2"),
        ('design = "OPT"\n', "design = 'OPT'"),
        ('design = "MetricChannel"\nalpha = 1\n[space]\nkind = "ring"\n', "space.kind = 'ring'"),
        ('design = "OptimalNoise"\nprivacy = {epsilon = 1.0}\nloss = "cubic"\n', "loss = 'cubic'"),
        ('design = "OptimalNoise"\n\nprivcy = 1\n', "privcy: OptimalNoise has no such argument"),
        ('design = "OptimalNoise"\nsensitivity = 1\n', "design: OptimalNoise needs privacy"),
        ('design = "RQM"\nm = 4\nprivacy = {epsilon = 1.0}\n[prior]\nlaw = "norm"\n', "prior = "),
        ('design = "RQM"\nm = 4\nprivacy = {epsilon = 1.0}\n[prior]\nlaw = "uniform"\nseed = 1\n', "uniform takes loc, scale"),
        ('design = "RQM"\nm = 4\nprivacy = {epsilon = 1.0}\n[prior]\nlaw = "beta"\na = 1\n', "prior.b is missing: beta"),
        ('design = "NoiseAllocation"\nnoise = "laplace"\nprivacy = {epsilon = 1.0}\nsensitivities = {eahc = [1.0]}\n', "sensitivities: "),
    ],
    ids=range(10),
)  # fmt: skip
def test_mistakes_name_file_and_key(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(md.DesignError) as raised:
        design_from_toml(path)
    assert message in str(raised.value) and str(path) in str(raised.value)

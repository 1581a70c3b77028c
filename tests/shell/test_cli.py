"""The command line, run as a user runs it."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from commands import ended

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.problem.spine import Design
from mechdesign.shell import cli
from mechdesign.shell.spec_file import design_from_toml, designs
from mechdesign.shell.studykit import Report, Study, check_study, run_study

SPEC = """
design = "OPTM"
bins = [-3.0, -0.5, 0.5, 3.0]
loss = "absolute"
[privacy]
kind = "PureDP"
epsilon = 1.0
[prior]
law = "uniform"
loc = -1
scale = 2
[solve]
solver = "highs"
"""


def test_lists(capsys, monkeypatch) -> None:
    assert "quantizer-tables" in ended(["study", "list"], capsys, monkeypatch)[1]
    assert "clarabel" in ended(["solvers"], capsys, monkeypatch)[1]
    code, _, error = ended(["study", "run", "nonesuch"], capsys, monkeypatch)
    assert code == 1 and "study = 'nonesuch': must be one of" in error


def test_study_check_finds_a_changed_number(tmp_path: Path) -> None:
    """The comparison that CI makes, on a small study of its own."""

    def body(report: Report) -> None:
        report.text("words")
        frame = pd.DataFrame(
            {
                "name": ["a", "b"],
                "value": [1.5, 2.5],
                "remark": ["half a column of words", ""],
                "seconds": np.random.default_rng().random(2),
            }
        )
        report.table("t", frame, timings=("seconds",), rtol=1e-6)
        report.record(seed=report.rng("x").integers(10))

    study = Study("tiny", "Tiny", "", body)
    kept, fresh = run_study(study, tmp_path / "kept"), run_study(study, tmp_path / "fresh")
    assert check_study(fresh, kept) == []
    varying = {"manifest.json", "report.html"}  # neither is committed
    committed = [path for path in kept.iterdir() if path.name not in varying]
    assert {path.name for path in committed} == {"README.md", "contents.json", "t.csv"}
    assert all(path.read_bytes() == (fresh / path.name).read_bytes() for path in committed)
    table = (kept / "t.csv").read_text()
    (kept / "t.csv").write_text(table.replace("2.5", "2.501", 1))
    assert "column 'value', row 1: 2.5, kept 2.501" in check_study(fresh, kept)[0]
    (kept / "t.csv").write_text(table.replace("a,", "c,", 1))
    assert "column 'name'" in check_study(fresh, kept)[0]
    manifest = json.loads((kept / "manifest.json").read_text())
    assert manifest["study"] == "tiny" and "highspy" in manifest["versions"]
    assert len(manifest["timings"]["t/seconds"]) == 2
    with pytest.raises(md.DesignError, match=r"kept = .* holds no results"):
        check_study(fresh, tmp_path)


def test_a_conclusion_is_printed_with_its_table_only(tmp_path: Path) -> None:
    def body(report: Report) -> None:
        report.text("An opening.")
        for name in ("here", "there"):
            if report.data(name):
                report.table(name, pd.DataFrame({"x": [1]}))
            report.text(f"The table {name} shows it.", of=[name])
        report.text("Both show it.", of=["here", "there"])

    study = Study("concluding", "Concluding", "", body)
    for kept in ((), ("here",), ("here", "there")):
        for name in kept:
            (tmp_path / name).touch()
        text = (run_study(study, tmp_path / "out", data_dir=tmp_path) / "README.md").read_text()
        assert "An opening." in text and ("Both show it." in text) == (len(kept) == 2)
        for name in ("here", "there"):
            assert (f"The table {name} shows it." in text) == (name in kept)
    with pytest.raises(md.DesignError, match="of = "):  # nothing is absent: a table that no study writes
        run_study(
            Study("wrong", "", "", lambda report: report.text("It is so.", of=["no table"])), tmp_path / "out"
        )


def test_a_check_without_results_says_so_before_it_runs_anything(tmp_path: Path, monkeypatch, capsys) -> None:
    def body(report: Report) -> None:
        raise AssertionError("it ran")

    monkeypatch.setattr(cli, "get_study", lambda name: Study(name, name, "", body))
    code, _, error = ended(
        ["study", "check", "tiny", "--kept", str(tmp_path / "nothing")], capsys, monkeypatch
    )
    assert code == 1 and "holds no results to compare with" in " ".join(error.split())


def test_the_quick_variant_of_a_study(tmp_path: Path, monkeypatch, capsys) -> None:
    """It lies beside the whole, either leaves the other alone, and a check regenerates the quick one."""

    def body(report: Report) -> None:
        report.table("t", pd.DataFrame({"rows": range(2 if report.quick else 20)}))
        if (path := report.data("real.csv")) is not None:
            report.table("real", pd.read_csv(path))

    study = Study("sized", "Sized", "", body, quick=True)
    here = tmp_path / "data"
    here.mkdir()
    (here / "real.csv").write_text("x\n1\n")
    kept = tmp_path / "kept"
    quick = run_study(study, kept, data_dir=here, quick=True)
    whole = run_study(study, kept, data_dir=here)
    again = run_study(study, kept, data_dir=here, quick=True)
    assert quick == again == whole / "quick" and quick.exists()
    assert (len(pd.read_csv(quick / "t.csv")), len(pd.read_csv(whole / "t.csv"))) == (2, 20)
    with pytest.raises(md.DesignError, match="no quick variant"):
        run_study(Study("sized", "Sized", "", body), kept, quick=True)

    monkeypatch.setattr(cli, "_chosen", lambda names: [study])
    cli.study_check(["all"], kept=kept, data_dir=here)
    assert capsys.readouterr().out.startswith("sized/quick: as committed")
    cli.study_check(["all"], kept=kept, data_dir=here, full=True)
    assert capsys.readouterr().out.startswith("sized: as committed")
    cli.study_check(["all"], kept=kept)
    assert "sized/quick: not checked: what needs real.csv" in capsys.readouterr().out
    (quick / "t.csv").write_text("rows\n0\n7\n")
    with pytest.raises(typer.Exit):
        cli.study_check(["all"], kept=kept)


WRONG = """
nonsense
solve
solve missing.toml
solve .
solve binary.toml
solve spec.toml --out nowhere/result.json
solve spec.toml --nonsense
audit missing.json
audit spec.toml
audit law.json
audit result.json --rows -1
audit result.json --csv .
study run nonsense
study run location --out spec.toml
study check nonsense
compare
compare --epsilon 1
compare spec.toml
compare --epsilon 1 -s 1 -m nonsense
compare --epsilon 1 --bits 2 --input-range 1 0
compare --epsilon 1 --bits 2 -s 1
compare --epsilon 1 --bits 2 --integer
compare --epsilon 1 -s 1 --input-range 0 1
report law.json
report result.json --out .
verify binary.toml
verify law.json
verify result.json --seconds nan
audit table.csv
calibrate laplace
calibrate nonsense --epsilon 1 --sensitivity 1
calibrate laplace --epsilon -1 --sensitivity 1
calibrate laplace --epsilon x --sensitivity 1
calibrate laplace --epsilon 1 --rho 1 --sensitivity 1
calibrate gaussian --epsilon 1 --sensitivity 1
calibrate laplace --epsilon 1 --l0 3 -k 20
calibrate laplace --epsilon 1 -s nan
"""


def test_wrong_command_lines(tmp_path: Path, capsys, monkeypatch) -> None:
    """Each ends in one sentence, or in the usage of its command."""
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC)
    Path("binary.toml").write_bytes(b"\xff\xfe\x00")
    Path("law.json").write_text(dumps(md.PureDP(1.0)))
    md.NoiseAllocation(noise="laplace", sensitivities=[1.0], privacy=md.PureDP(1.0)).solve().save(
        "result.json"
    )
    for words in map(str.split, WRONG.strip().splitlines()):
        code, _, error = ended(words, capsys, monkeypatch)
        assert code in (1, 2) and not ("audit" in words and "--rho" in error), words
        assert code == 2 or (error.startswith("error: ") and error.count("\n") == 1), (words, error)


# -- Every design of the package from a TOML file, and mistakes by file and key


PRIOR = """
[prior]
law = "uniform"
loc = -1
scale = 2
"""
PURE = "privacy = {epsilon = 1.0}\n"
BOTH = 'privacy = {kind = "ApproximateDP", epsilon = 1.0, delta = 1e-6}\n'
EVERY = {
    "OPTM": "bins = [-3.0, -0.5, 0.5, 3.0]\n" + PURE + PRIOR,
    "OPTMSearch": PURE
    + "bins = {delta = [1.9, 2.0], inner = [0.5]}\nboxes = {level = [0.66, 0.67], width = [0.01]}\n"
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
    assert public - {"Problem"} == set(EVERY) == set(designs())  # a problem is declared in Python


@pytest.mark.parametrize("name", EVERY)
def test_every_design_is_read_and_solved(name: str, tmp_path: Path) -> None:
    design, options = design_from_toml(written(tmp_path, f'design = "{name}"\n' + EVERY[name]))
    assert isinstance(design, Design)
    if name == "OPTMSearch":
        options["bar"] = False
    result = design.solve(**options)
    assert np.isfinite(result.value) and result.checks()["holds"].all()


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
        ('design = "NoiseAllocation"\nnoise = "laplace"\nprivacy = {epsilon = 1.0}\nsensitivities = {eahc = [1.0]}\n', "eahc: Sensitivity has no such argument"),
        ('design = "OptimalNoise"\nprivacy = {epsilon = 1.0, rho = 1.0}\n', "'rho' is unknown; it takes epsilon"),
        ('design = "RQM"\nm = 4\nprivacy = {epsilon = 1.0}\nprior = {a = 0.5, b = 0.5}\n', "prior = {'a': 0.5, 'b': 0.5}: must be"),
    ],
    ids=range(12),
)  # fmt: skip
def test_mistakes_name_file_and_key(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(md.DesignError) as raised:
        design_from_toml(path)
    assert message in str(raised.value) and str(path) in str(raised.value)

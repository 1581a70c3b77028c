"""Wrong answers and dead ends: faults 16 to 25 of the audits."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import json
import re
import runpy
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import cheap
import numpy as np
import pytest
from commands import ended
from scipy import stats

import mechdesign as md
from faults.altered import BINS, P
from mechdesign.errors import DesignError, ResultFormatError, SolverError
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.files import KINDS

APPROXIMATE = md.ApproximateDP(1.0, 1e-6)
REFUSED_NOTHING = pytest.fail.Exception
ROOT = Path(__file__).parents[2]


# 16 to 19: designs ----------------------------------------------------------------------------------------------------


def searched(**levels: list[float]) -> md.OPTMSearch:
    return md.OPTMSearch(P, cheap.UNIFORM, bins=md.Grid(delta=[2.0], inner=[0.5]), levels=md.Grid(**levels))


def test_the_order_of_widths_does_not_matter() -> None:
    found = searched(level=[0.66], width=[0.01, 0.05]).solve()
    assert found.value == pytest.approx(searched(level=[0.66], width=[0.05]).solve().value, rel=1e-9)


def test_a_misspelt_axis_is_refused() -> None:
    with pytest.raises(DesignError, match="wdth"):
        searched(level=[0.66], wdth=[0.05, 0.01])


@pytest.mark.parametrize("centre", [3.7, 10.0, -120.0])
def test_a_biased_quantizer_moves_with_its_range(centre: float) -> None:
    """Centred at 0 the same design has the value 1.640103."""

    def value(at: float) -> float:
        bins = [at - 7.0, at - 0.3, at + 0.1, at + 7.0]
        return md.OptimalQuantizer(bins, P, stats.uniform(at - 1, 2), max_bias=0.1).solve().value

    assert value(centre) == pytest.approx(value(0.0), rel=1e-6)


LIMITED = """
    import resource
    import numpy as np
    from scipy import stats
    import mechdesign as md

    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    design = md.MetricQuantizer(
        np.linspace(-4, 4, 16), md.ApproximateDP(1.0, 1e-3), stats.uniform(-1, 2), inputs=np.linspace(-1, 1, 129)
    )
    try:
        design.solve(time_limit=5)
    except md.MechdesignError:
        pass
"""


def test_a_metric_quantizer_stays_within_six_gigabytes() -> None:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(LIMITED)], capture_output=True, text=True)
    assert (done.returncode, done.stderr[-60:]) == (0, "")


@pytest.fixture(scope="module")
def own() -> md.Quantizer:
    """An interpolated table of somebody's own, in floats."""
    found = md.OptimalQuantizer(BINS, P, cheap.UNIFORM).solve().mechanism
    return md.Quantizer(found.bins, found.knots, found.starts, found.ends)


def test_an_own_table_is_made_exact_and_released(own: md.Quantizer) -> None:
    exact = own.certified()
    assert exact.release(0.3) in own.bins
    assert exact.privacy_loss() == pytest.approx(1.0, abs=1e-6)


def test_an_own_table_is_exported(own: md.Quantizer) -> None:
    assert "QUANTIZER_OUTPUTS 4" in md.vectors.c_header(md.vectors.IntegerTable.of(own))


def test_an_own_table_is_saved(own: md.Quantizer, tmp_path: Path) -> None:
    own.save(tmp_path / "own.json")
    assert np.allclose(md.load(tmp_path / "own.json").probabilities(0.3), own.probabilities(0.3), atol=1e-9)


def test_a_quantizer_of_every_coordinate_is_exported() -> None:
    coordinate = md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1)).certified()
    quantizer = md.CoordinateQuantizer(coordinate, dimension=10)
    assert "QUANTIZER_OUTPUTS 4" in md.vectors.c_header(md.vectors.IntegerTable.of(quantizer))


# 20, 21: exceptions that are not the package's, questions that mean two things ------------------------------------------


def test_the_accuracy_of_a_vector_result_is_given_or_refused() -> None:
    with contextlib.suppress(DesignError):
        assert md.accuracy(cheap.solved("vectors")).standard_deviation > 0


@pytest.mark.parametrize("column", ["epsilon", "value"])
def test_a_renamed_column_of_a_frontier_is_no_internal_error(
    column: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frontier = md.frontier(md.OptimalQuantizer(BINS, P, cheap.UNIFORM), "epsilon", [1.0])
    payload = json.loads(dumps(frontier))["payload"]
    next(c for c in payload["fields"]["table"]["$table"] if c[0] == column)[0] = "renamed"
    path = tmp_path / "frontier.json"
    path.write_text(cheap.sealed(payload))
    code, _, said = ended(["verify", str(path)], capsys, monkeypatch)
    assert code == 1 and "internal error" not in said


@pytest.mark.parametrize("noise", ["gaussian", "osgt", "discrete_gaussian", "flipped_huber"])
def test_calibration_does_not_depend_on_numpys_error_settings(noise: str) -> None:
    with np.errstate(all="raise"):
        strict = md.calibrate(noise, privacy=APPROXIMATE, sensitivity=1.0)
    assert strict.value == md.calibrate(noise, privacy=APPROXIMATE, sensitivity=1.0).value


def test_delta_interval_takes_a_sampling_rate() -> None:
    term = md.accounting.NoiseTerm(stats.norm(scale=20.0), 1.0)
    sampled = md.accounting.delta_interval(term, 0.01, sampling_rate=0.1)
    assert sampled.upper < md.accounting.delta_interval(term, 0.01).upper


def test_calibrate_refuses_more_changes_than_coordinates() -> None:
    with pytest.raises(DesignError, match="l0"):
        md.calibrate("gaussian", privacy=APPROXIMATE, sensitivity=md.Sensitivity(linf=1, l0=30), dimension=20)


def test_a_query_refuses_more_changes_than_coordinates() -> None:
    with pytest.raises(DesignError, match="l0"):
        md.NumericQuery(dimension=20, sensitivity=md.Sensitivity(linf=1, l0=30))


def test_a_sensitivity_refuses_more_changes_than_its_coordinates() -> None:
    with pytest.raises(DesignError, match="l0"):
        md.Sensitivity(each=[1.0] * 20, l0=30)


def test_a_sensitivity_means_the_same_neighbours_however_it_is_stated() -> None:
    stated, derived = md.Sensitivity(linf=1, l0=3), md.Sensitivity.of_contribution(linf=1, l0=3)
    assert stated.neighbours == derived.neighbours


def test_the_best_answer_to_a_whole_question_is_whole() -> None:
    question = md.NumericQuery(integer=True)
    names = ["discrete_laplace", "discrete_gaussian", "truncated_laplace"]
    compared = md.compare(question, md.ApproximateDP(1.0, 0.1), mechanisms=names, progress=False)
    released = compared.results[compared.names[0]].mechanism.release(171)
    assert float(released).is_integer()


# 22, 23: limits and methods --------------------------------------------------------------------------------------------


def test_noise_of_two_dimensions_does_not_use_up_its_limit() -> None:
    """Eight families were tried, for 2.8 s here and 17 s at (2, 1e-9). Processor time: what else runs does not count."""
    before = time.process_time()
    md.OptimalNoise(md.ApproximateDP(1.0, 1e-6), dimension=2).solve(time_limit=10)
    assert time.process_time() - before < 2


def linex(x: np.ndarray) -> np.ndarray:
    return np.expm1(x / 2) - x / 2


def test_a_steep_loss_is_improved_while_there_is_time() -> None:
    width = 1.5 / np.tanh(0.015 / 2)
    loss = md.Loss(absolute=0, squared=0, function=linex)
    design = md.OptimalQuantizer(np.linspace(-width, width, 8), md.PureDP(0.015), cheap.UNIFORM, loss)
    result = design.solve(time_limit=8)
    assert result.gap is not None and result.gap < 1


def channel(space: md.MetricSpace) -> md.MetricChannel:
    return md.MetricChannel(space, alpha=0.7)


def test_a_large_channel_is_refused_by_its_size() -> None:
    """With 1,000 points of a grid and a limit of 8 s it was back after 80, without an answer: 152 million rows, of the simplex method."""
    design = channel(md.MetricSpace.grid(13, 25))
    with pytest.raises(DesignError, match=r"space = '325 items, \d+ rows.*at most 5000000; .*spanner="):
        design.solve("highs", time_limit=8)
    with pytest.raises(DesignError, match=r"1001 items.*at most 1000"):
        channel(md.MetricSpace.line(np.arange(1001.0))).solve()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "limit"),
    [
        (md.MetricSpace.grid(20, 20), 3.0),
        (md.MetricSpace.from_matrix(1 - np.eye(300)), 1.0),
        (md.MetricSpace.line(np.arange(1000.0)), 2.0),
    ],
    ids=["many rows", "many symmetries", "many variables"],
)
def test_a_large_channel_keeps_its_limit(space: md.MetricSpace, limit: float) -> None:
    """All are within the sizes that are taken; the search for symmetries alone took 14 s.

    A busy machine lengthens the clock's time, threads the processor's: what is longer than it should be is longer by both.
    """
    design, started = channel(space), (time.monotonic(), time.process_time())
    found = None
    try:
        found = design.solve(time_limit=limit)
    except SolverError as error:
        assert "time limit" in str(error)
    assert min(time.monotonic() - started[0], time.process_time() - started[1]) < limit + 1
    assert found is None or found.mechanism.alpha <= 0.7


def test_a_quantizer_that_is_too_large_is_refused_by_its_size() -> None:
    """With 4,096 outputs and a limit of 100 s it was not back after 200."""
    with pytest.raises(DesignError, match=r"4096 outputs.*at most 1025"):
        md.OptimalQuantizer(np.linspace(-3, 3, 4096), P, cheap.UNIFORM)
    with pytest.raises(DesignError, match="1025"):
        md.Alphabet(3.0, 6 / 1025)
    assert md.Alphabet(3.0, 6 / 1024).size == 1025


def test_every_vector_mechanism_takes_the_same_for_its_squared_error() -> None:
    classes = (md.SphereQuantizer, md.RandomDirections, md.SampledSigns, md.SampledCoordinates, md.PrivUnit)
    assert len({tuple(inspect.signature(c.squared_error).parameters) for c in classes}) == 1


def test_aggregate_names_the_message_that_is_damaged() -> None:
    mechanism = md.SphereQuantizer(100, 6, md.PureDP(4.0))
    messages = [mechanism.encode(np.zeros(100), seed=7, first=i) for i in range(20)]
    messages[17] = messages[17][:-1]
    with pytest.raises(ResultFormatError) as refused:
        mechanism.aggregate(messages, seed=7)
    assert re.search(r"\b17\b", str(refused.value))


# 24, 25: pages and committed results ---------------------------------------------------------------------------------------


def test_the_command_line_reference_has_two_hyphens(tmp_path: Path) -> None:
    sphinx = pytest.importorskip("sphinx.cmd.build")
    pytest.importorskip("myst_parser")
    settings = runpy.run_path(str(ROOT / "docs/conf.py"))
    page = runpy.run_path(str(ROOT / "docs/_ext/generated.py"))["command_page"]()
    (tmp_path / "index.md").write_text(page)
    kept = {k: v for k, v in settings.items() if k.startswith(("smartquotes", "myst_"))}
    lines = ['extensions = ["myst_parser"]', *(f"{key} = {value!r}" for key, value in kept.items())]
    (tmp_path / "conf.py").write_text("\n".join(lines))
    assert sphinx.main(["-q", "-Q", str(tmp_path), str(tmp_path / "built")]) == 0
    built = (tmp_path / "built/index.html").read_text()
    assert "epsilon" in built and "–epsilon" not in built


def test_the_contents_of_a_comparison_have_no_empty_entries(tmp_path: Path) -> None:
    compared = md.compare(md.NumericQuery(), APPROXIMATE, mechanisms=["gaussian", "laplace"], progress=False)
    compared.report(tmp_path / "page.html")
    contents = re.findall(r'<a href="#[^"]*">([^<]*)</a>', (tmp_path / "page.html").read_text())
    assert len(contents) > 5
    assert not [entry for entry in contents if entry.strip().endswith(":") or not entry.strip()]


def test_the_front_page_installs_from_what_is_there() -> None:
    assert "``pip install mechdesign``" not in (ROOT / "docs/index.rst").read_text()


def test_the_row_of_private_gradients_names_the_guide_to_vectors() -> None:
    text = (ROOT / "docs/index.rst").read_text()
    row = text.split("Send private gradients", 1)[1].split("   * -", 1)[0]
    assert "guides/vectors" in row


def test_a_page_says_how_to_get_pytorch_for_processors() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.rst"), *(ROOT / "docs").glob("*/*.rst")]
    assert any("whl/cpu" in page.read_text() for page in pages)


def test_committed_results_hold_no_count_of_a_search() -> None:
    header = (ROOT / "results/quantizer-tables/searched.csv").read_text().splitlines()[0]
    assert "searched" not in header.split(",")


@pytest.mark.parametrize("name", ["optm-search", "bin-search", "biased-selection"])
def test_a_renamed_column_of_a_saved_table_is_no_foreign_error(name: str, tmp_path: Path) -> None:
    """`alternatives` ended in KeyError."""
    honest = json.loads(dumps(cheap.solved(name)))["payload"]
    refused = set()
    for k in range(len(honest["fields"]["table"]["$table"])):
        payload = copy.deepcopy(honest)
        payload["fields"]["table"]["$table"][k][0] = "renamed"
        result = loads(cheap.sealed(payload), kinds=KINDS)
        page = functools.partial(result.report, tmp_path / f"{k}.html")
        for show in (result.alternatives, result.to_frame, result.tried, result.plot, result.summary, page):
            try:
                show()
            except md.ResultFormatError:
                refused.add(show)
    assert refused or name == "biased-selection"  # of whose table nothing reads a column by its name

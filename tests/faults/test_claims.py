"""Claims that are not so: faults 8 to 15 of the audits."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cheap
import numpy as np
import pytest
from campaign import files
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.accounting import losses
from mechdesign.accounting.interval import delta_interval
from mechdesign.accounting.losses import NoiseTerm
from mechdesign.accounting.profile import privacy_profile
from mechdesign.evidence.serialize import dumps
from mechdesign.typing import Status
from mechdesign.verifier import reading, verify

P = cheap.PURE
APPROXIMATE = md.ApproximateDP(1.0, 1e-6)


@pytest.mark.parametrize(
    ("design", "part", "member", "value"),
    [
        (lambda: md.noise.KNorm(3, P), "mechanism", "widths", {"$tuple": [1.0, 1.0, 1.0]}),
        (lambda: md.OptimalNoise(P, 2, integer=True), "design", "l0", 1),
        (lambda: md.OptimalNoise(P), "design", "l0", 1),
    ],
    ids=["widths of 1", "one whole number", "one number"],
)
def test_the_same_said_at_length_is_accepted_by_both(
    design: Callable[[], Any], part: str, member: str, value: Any, tmp_path: Path
) -> None:
    payload = json.loads(dumps(design().solve()))["payload"]
    payload["fields"][part]["fields"][member] = value
    assert files.package_accepts(payload)
    assert files.alone_accepts(payload)


@pytest.mark.parametrize("noise", ["gaussian", stats.hypsecant()], ids=["gaussian", "hypsecant"])
def test_the_page_of_a_family_does_not_say_that_nothing_does_better(noise: Any, tmp_path: Path) -> None:
    """Least is the Gaussian of variance 17.848 only among Gaussians: Laplace noise has 2.0."""
    md.calibrate(noise, privacy=APPROXIMATE, sensitivity=1.0).report(tmp_path / "page.html")
    assert "nothing does better" not in (tmp_path / "page.html").read_text()


def test_compare_does_not_deny_the_lower_bound_of_its_best() -> None:
    compared = md.compare(md.NumericQuery(), APPROXIMATE, mechanisms=["gaussian", "laplace"], progress=False)
    assert compared.results["laplace"].lower_bound is not None
    assert "no lower bound is known" not in str(compared)


@pytest.mark.parametrize(
    ("m", "most", "epsilon", "loss", "value"),
    [(4, 3.0, 2.0, "absolute", 0.690711), (5, 2.0, 2.0, "squared", 0.812009)],
)
def test_searched_outputs_are_the_best_of_both_symmetries(
    m: int, most: float, epsilon: float, loss: str, value: float
) -> None:
    """The values are those of certified mechanisms with outputs that do not mirror each other."""
    design = md.OptimalQuantizer(md.BinSearch(m, most), md.PureDP(epsilon), cheap.UNIFORM, loss)
    assert design.solve().value <= value + 1e-6


def test_mvu_finds_an_alphabet_of_less_variance() -> None:
    law = md.MVU(m=8, privacy=md.PureDP(4.0), input_range=(-1, 1), input_bits=3).solve().mechanism
    inputs = np.linspace(-1, 1, 8)
    errors = (law.bins - inputs[:, None]) ** 2
    assert (law.probabilities(inputs) * errors).sum(axis=1).mean() <= 0.11323


def many_cells(count: int, bits: int = 0) -> dict[str, Any]:
    """Optimal noise of so many weights, of so many bits, half of them within the sensitivity."""
    payload = files.payload("optimal-noise")
    law = payload["fields"]["mechanism"]["fields"]
    law |= {
        "weights": {"$tuple": [(1 << bits) + k % 7 * (bits > 0) for k in range(count)]},
        "spans": {"$tuple": []},
    }
    law |= {"cells_per_shift": count // 2, "width": 2 / count, "start": -1.0}
    return payload


@pytest.mark.parametrize(("count", "bits"), [(4000, 0), (1182, 12_000)])
def test_small_files_that_ask_for_much_work_are_too_large_to_check(count: int, bits: int) -> None:
    payload = many_cells(count, bits)
    assert not files.package_accepts(payload)
    with pytest.raises(reading.TooLarge, match="too large to check"):
        verify.verify(cheap.sealed(payload))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dimension", "rounds"])
def test_compositions_of_a_billion_losses_are_not_believed(name: str) -> None:
    payload = files.payload("calibration")
    for part in ("design", "mechanism"):
        payload["fields"][part]["fields"][name] = 10**9
    assert not files.alone_accepts(payload)


# -- Wrong answers and dead ends: faults 16 to 25 of the audits ----------------------------------------------


def searched(**levels: list[float]) -> md.OPTMSearch:
    return md.OPTMSearch(P, cheap.UNIFORM, bins=md.Grid(delta=[2.0], inner=[0.5]), boxes=md.Grid(**levels))


def test_a_misspelt_axis_is_refused() -> None:
    with pytest.raises(md.DesignError, match="wdth"):
        searched(level=[0.66], wdth=[0.05, 0.01])


@pytest.mark.parametrize("centre", [3.7, 10.0, -120.0])
def test_a_biased_quantizer_moves_with_its_range(centre: float) -> None:
    """Centred at 0 the same design has the value 1.640103."""

    def value(at: float) -> float:
        bins = [at - 7.0, at - 0.3, at + 0.1, at + 7.0]
        return md.OptimalQuantizer(bins, P, stats.uniform(at - 1, 2), max_bias=0.1).solve().value

    assert value(centre) == pytest.approx(value(0.0), rel=1e-6)


def test_a_quantizer_of_every_coordinate_is_exported() -> None:
    coordinate = md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1)).certified()
    quantizer = md.CoordinateQuantizer(coordinate, dimension=10)
    assert "QUANTIZER_OUTPUTS 4" in md.vectors.c_header(md.vectors.IntegerTable.of(quantizer))


def channel(space: md.MetricSpace) -> md.MetricChannel:
    return md.MetricChannel(space, alpha=0.7)


def test_a_large_channel_is_answered_in_time_or_refused_by_its_size() -> None:
    """With 1,000 points of a grid and a limit of 8 s it was back after 80, without an answer: 152 million rows, of the simplex method."""
    design = channel(md.MetricSpace.grid(13, 25))
    assert design.solve("highs", time_limit=0.01).status is Status.LIMIT
    with pytest.raises(md.DesignError, match=r"1001 items.*at most 1000"):
        channel(md.MetricSpace.line(np.arange(1001.0))).solve()


def test_a_quantizer_that_is_too_large_is_refused_by_its_size() -> None:
    """With 4,096 outputs and a limit of 100 s it was not back after 200."""
    with pytest.raises(md.DesignError, match=r"4096 outputs.*at most 1025"):
        md.OptimalQuantizer(np.linspace(-3, 3, 4096), P, cheap.UNIFORM)
    with pytest.raises(md.DesignError, match="1025"):
        md.Alphabet(3.0, 6 / 1025)
    assert md.Alphabet(3.0, 6 / 1024).size == 1025


# -- Sizes that deployments have, and limits that say what they are ------------------------------------------

ONE = md.PureDP(1.0)


@pytest.mark.parametrize("n", [2**26 + 1, 600_000_000, 10**12])
def test_means_of_any_number_of_people(n: int) -> None:
    """Their centred sums are exact doubles, of everybody at an end of the range too."""
    result = md.Plan({"age": md.Mean(0, 100, n=n)}, ONE).solve()
    assert all(holds for _, _, holds in verify.verify(dumps(result)).rows)
    found = result.mechanism.release({"age": [100.0 * n, float(n)]})["age"]
    assert found == pytest.approx(100.0, abs=1e-3)


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 300.0])
def test_published_reports_need_no_table(epsilon: float) -> None:
    """k-ary response and subset selection of 5,000 categories, at any ε, proved and verified alone."""
    asked = md.LocalWorkload(md.Workload.identity(5000), md.PureDP(epsilon))
    best, simple = asked.solve(), asked.answered_by("k-ary response")
    assert best.gap < 1e-9 and best.value <= simple.value * (1 + 1e-12)
    for result in (best, simple):
        assert result.certificate.verify() and all(holds for _, _, holds in verify.verify(dumps(result)).rows)


def test_reports_on_many_categories_are_ranked() -> None:
    """Without a matrix that has a row and a column a category; what needs one says so."""
    workload = md.Workload.prefix_sums(5000)
    rows = md.compare(md.CategoryReport(workload), ONE, mechanisms=["k-ary response", "subset selection"])
    assert len(rows.table) == 2
    for needed in (workload.gram, lambda: workload.root):
        with pytest.raises(md.DesignError, match="4096 counts where covariances are held in full"):
            needed()
    with pytest.raises(md.DesignError, match="at most 1000000"):
        md.Workload.marginals((1001, 1000), order=2)


def test_a_search_says_that_its_limits_are_its_own() -> None:
    with pytest.raises(md.DesignError, match=r"0.001 and 20 for a search"):
        md.LocalWorkload(np.tri(4), md.PureDP(30.0)).solve()
    table = str(md.compare(md.CategoryReport(np.tri(4)), md.PureDP(30.0)))
    assert "k-ary response" in table and "not Hadamard response: epsilon" in table


def summed_delta(rate: float, shift: int, epsilon: float) -> float:
    """δ(ε) of discrete Laplace noise, term by term."""
    k = np.arange(-shift, 1)
    mass = np.tanh(rate / 2) * np.exp(-rate * np.abs(k))
    mass[-1] = mass[0] = 1 / (1 + np.exp(-rate))
    mass[0] *= np.exp(-rate * shift)
    return float(mass @ np.maximum(-np.expm1(epsilon - rate * (shift + 2 * k)), 0.0))


@given(st.integers(1, 3000), st.floats(1e-4, 20), st.floats(0, 1.1))
@settings(max_examples=60, deadline=None)
def test_discrete_laplace_noise_by_a_closed_sum(shift: int, loss: float, part: float) -> None:
    law, epsilon = stats.dlaplace(loss / shift), part * loss
    summed = summed_delta(loss / shift, shift, epsilon)
    assert privacy_profile(law, shift, epsilon) == pytest.approx(summed, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("count", [1, 5])
def test_losses_as_a_function_enclose_listed_ones(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    term = NoiseTerm(stats.dlaplace(1e-4), 10**4, count)
    listed = delta_interval(term, 0.8 * count, closed_form=False)
    monkeypatch.setattr(losses, "_LISTED", 10)
    found = delta_interval(term, 0.8 * count, closed_form=False)
    assert found.lower <= listed.upper and listed.lower <= found.upper and found.width < 0.01


@pytest.mark.parametrize("sensitivity", [10**7 + 1, 2**40, 2**53])
@pytest.mark.parametrize("privacy", [ONE, md.PureDP(1e-3), md.ApproximateDP(0.1, 1e-6)], ids=str)
def test_discrete_laplace_noise_of_any_sensitivity(
    sensitivity: int, privacy: md.PureDP | md.ApproximateDP
) -> None:
    """In units of the sensitivity it is Laplace noise; enclosed, verified alone, printed without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = md.calibrate("discrete_laplace", privacy=privacy, sensitivity=sensitivity)
        continuous = md.calibrate("laplace", privacy=privacy, sensitivity=sensitivity)
        assert result.value == pytest.approx(continuous.value, rel=1e-5) and str(result)
        assert md.accuracy(result).standard_deviation ** 2 == pytest.approx(result.value, rel=1e-5)
        asked = md.NumericQuery(sensitivity=sensitivity, integer=True)
        table = md.compare(asked, privacy, mechanisms=["discrete_laplace"]).table
    assert table["error"][0] == pytest.approx(result.value, rel=1e-5)
    assert result.certificate.verify() and all(holds for _, _, holds in verify.verify(dumps(result)).rows)


def test_many_rounds_of_large_discrete_noise() -> None:
    options = {"privacy": md.ApproximateDP(1.0, 1e-6), "sensitivity": 10**8, "rounds": 10}
    result = md.calibrate("discrete_laplace", **options)
    assert result.value == pytest.approx(md.calibrate("laplace", **options).value, rel=1e-3)
    assert all(holds for _, _, holds in verify.verify(dumps(result)).rows)


@pytest.mark.parametrize("epsilon", [1e-15, 1e-6, 1.0])
def test_wide_discrete_noise_is_drawn(epsilon: float) -> None:
    """At 400 of its numbers: all of them would fill petabytes."""
    result = md.calibrate("discrete_laplace", privacy=md.PureDP(epsilon), sensitivity=1)
    assert len(result.plot().axes[0].lines[0].get_xdata()) <= 1000


@pytest.mark.parametrize("loss", ["squared", "absolute", lambda t: np.abs(t) ** 1.5], ids=["2", "1", "1.5"])
def test_a_note_says_what_a_program_bounds(loss: Any) -> None:
    """What is called a bound of the value is above it; of a callable it is the absolute loss's, which is another number."""
    result = md.OPTM([-3, -0.5, 0.5, 3], ONE, stats.uniform(-1, 2), loss=loss).solve()
    (note,) = (note for note in result.notes if "Lemma 1" in note)
    if callable(loss):
        assert "bound of the absolute loss, while the value is" in note
    else:
        assert "bound of the value" in note and float(note.split()[-1]) >= result.value

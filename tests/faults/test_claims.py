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


def many_cells(count: int, bits: int = 0) -> dict[str, Any]:
    """Optimal noise of so many weights, of so many bits, half of them within the sensitivity."""
    payload = files.payload("optimal-noise")
    law = payload["fields"]["mechanism"]["fields"]
    law["weights"] = {"$tuple": [(1 << bits) + k % 7 * (bits > 0) for k in range(count)]}
    law |= {"cells_per_shift": count // 2, "width": 2 / count, "start": -1.0}
    return payload


@pytest.mark.parametrize(("count", "bits"), [(4000, 0), (1182, 12_000)])
def test_small_files_that_ask_for_much_work_are_too_large_to_check(count: int, bits: int) -> None:
    payload = many_cells(count, bits)
    assert not files.package_accepts(payload)
    with pytest.raises(reading.TooLarge, match="too large to check"):
        verify.verify(cheap.sealed(payload))


# -- Wrong answers and dead ends: faults 16 to 25 of the audits ----------------------------------------------


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


@pytest.mark.parametrize("loss", ["squared", "absolute", lambda t: np.abs(t) ** 1.5], ids=["2", "1", "1.5"])
def test_a_note_says_what_a_program_bounds(loss: Any) -> None:
    """What is called a bound of the value is above it; of a callable it is the absolute loss's, which is another number."""
    result = md.OPTM([-3, -0.5, 0.5, 3], ONE, stats.uniform(-1, 2), loss=loss).solve()
    (note,) = (note for note in result.notes if "Lemma 1" in note)
    if callable(loss):
        assert "bound of the absolute loss, while the value is" in note
    else:
        assert "bound of the value" in note and float(note.split()[-1]) >= result.value

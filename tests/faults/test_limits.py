"""Sizes that deployments have, and limits that say what they are."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.accounting import losses
from mechdesign.accounting.interval import delta_interval
from mechdesign.accounting.losses import NoiseTerm
from mechdesign.accounting.profile import privacy_profile
from mechdesign.channels import exact
from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import dumps
from mechdesign.verifier.verify import verify

ONE = md.PureDP(1.0)


@pytest.mark.parametrize("n", [2**26 + 1, 600_000_000, 10**12])
def test_means_of_any_number_of_people(n: int) -> None:
    """Their centred sums are exact doubles, of everybody at an end of the range too."""
    result = md.Plan({"age": md.Mean(0, 100, n=n)}, ONE).solve()
    assert all(holds for _, _, holds in verify(dumps(result)).rows)
    found = result.mechanism.release({"age": [100.0 * n, float(n)]})["age"]
    assert found == pytest.approx(100.0, abs=1e-3)


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 300.0])
def test_published_reports_need_no_table(epsilon: float) -> None:
    """k-ary response and subset selection of 5,000 categories, at any ε, proved and verified alone."""
    asked = md.LocalWorkload(md.Workload.identity(5000), md.PureDP(epsilon))
    best, simple = asked.solve(), asked.answered_by("k-ary response")
    assert best.gap < 1e-9 and best.value <= simple.value * (1 + 1e-12)
    for result in (best, simple):
        assert result.certificate.verify() and all(holds for _, _, holds in verify(dumps(result)).rows)


def test_reports_on_many_categories_are_ranked() -> None:
    """Without a matrix that has a row and a column a category; what needs one says so."""
    workload = md.Workload.prefix_sums(5000)
    rows = md.compare(md.CategoryReport(workload), ONE, mechanisms=["k-ary response", "subset selection"])
    assert len(rows.table) == 2
    for needed in (workload.gram, lambda: workload.root):
        with pytest.raises(DesignError, match="4096 counts where covariances are held in full"):
            needed()
    with pytest.raises(DesignError, match="at most 1000000"):
        md.Workload.marginals((1001, 1000), order=2)


def test_a_search_says_that_its_limits_are_its_own() -> None:
    with pytest.raises(DesignError, match=r"0.001 and 20 for a search"):
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
    assert result.certificate.verify() and all(holds for _, _, holds in verify(dumps(result)).rows)


def test_many_rounds_of_large_discrete_noise() -> None:
    options = {"privacy": md.ApproximateDP(1.0, 1e-6), "sensitivity": 10**8, "rounds": 10}
    result = md.calibrate("discrete_laplace", **options)
    assert result.value == pytest.approx(md.calibrate("laplace", **options).value, rel=1e-3)
    assert all(holds for _, _, holds in verify(dumps(result)).rows)


def test_closed_forms_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that stops a solve among them leaves the others to be made, and those alone; pairs that rounding cannot break are not compared in integers."""
    calls: list[str] = []
    whole, closed = exact.Growth._lower, md.BoundedCount.closed_forms

    def counted(self: Any) -> Any:
        calls.append("closed forms")
        yield from closed(self)

    def compared(self: Any, distance: float) -> int:
        calls.append("pair")
        return whole(self, distance)

    monkeypatch.setattr(md.BoundedCount, "closed_forms", counted)
    monkeypatch.setattr(exact.Growth, "_lower", compared)
    asked = md.BoundedCount(60, md.ApproximateDP(1.0, 1e-6), "squared")
    result = asked.solve(time_limit=1e-9)
    assert calls.count("closed forms") == 1 and calls.count("pair") <= 60
    assert result.value <= min(law.value for law in closed(asked) if hasattr(law, "mechanism"))


def test_a_law_is_frozen_once_for_all_coordinates(monkeypatch: pytest.MonkeyPatch) -> None:
    noise, made, frozen = md.noise.MixedNoise, [], type(stats.laplace).freeze
    monkeypatch.setattr(
        type(stats.laplace), "freeze", lambda self, *a, **k: made.append(1) or frozen(self, *a, **k)
    )
    law = noise(np.linspace(1, 2, 500), np.ones(500, dtype=bool), np.ones(500))
    assert len(law.terms()) > 400 and len(made) <= 2


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

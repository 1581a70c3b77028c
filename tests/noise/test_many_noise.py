"""The best noise for many coordinates: its accounting against brute force, its value against the named families."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.files import KINDS
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.cell_product import many_interval
from mechdesign.solvers import deadline as deadline_module

halves = st.lists(st.integers(0, 40), min_size=2, max_size=5).filter(lambda h: h[-1] > 0 and sum(h) > h[-1])


def mirrored(half: list[int], cells: int) -> CellNoise:
    weights = (*half[:0:-1], *half)
    return CellNoise(tuple(weights), 1.0, -len(weights) / 2, cells)


def worst_by_listing(law: CellNoise, count: int, epsilon: float) -> tuple[float, float]:
    """δ of the worst whole shifts, every vector of them listed; and of the largest shift of all coordinates."""
    n = law.cells_per_shift
    p = np.pad(np.array([float(w / law.total) for w in law.weights]), n)
    found = {}
    for shifts in itertools.product(range(-n, n + 1), repeat=count):
        here, there = np.ones(1), np.ones(1)
        for k in shifts:
            here, there = np.outer(here, p).ravel(), np.outer(there, np.roll(p, -k)).ravel()
        found[shifts] = float(np.maximum(here - math.exp(epsilon) * there, 0.0).sum())
    return max(found.values()), found[(n,) * count]


@settings(max_examples=40)
@given(halves, st.integers(1, 2), st.floats(0.0, 3.0))
def test_the_interval_holds_the_worst_of_all_shifts(half: list[int], cells: int, epsilon: float) -> None:
    law = mirrored(half, cells)
    worst, together = worst_by_listing(law, 2, epsilon)
    found = many_interval(law, 2, epsilon)
    assert found.upper >= worst - 1e-15
    assert found.lower <= together + 1e-12


@given(st.lists(st.integers(1, 9), min_size=2, max_size=5), st.integers(1, 2), st.floats(0.1, 2.0))
def test_the_interval_is_narrow_where_the_largest_shift_is_worst(
    steps: list[int], cells: int, epsilon: float
) -> None:
    drops = np.cumsum(sorted(steps))
    law = mirrored([int(2 ** (drops[-1] - d)) for d in [0, *drops]], cells)
    worst, together = worst_by_listing(law, 2, epsilon)
    assert worst == pytest.approx(together, rel=1e-12)
    upper = many_interval(law, 2, epsilon).upper
    assert worst * (1 - 1e-12) <= upper <= worst * (1 + 1e-3) + 1e-9


@given(st.floats(0.0, 1.0), st.floats(0.05, 2.0))
def test_shifts_between_cells_are_no_worse(share: float, epsilon: float) -> None:
    law = mirrored([7, 9, 2, 1], 2)
    half = np.array([float(w / law.total) for w in law.weights])
    # each cell in a thousand pieces: a real shift is a whole number of them
    fine = np.repeat(half / 1000, 1000)
    k = round(share * 2000)
    here, there = np.pad(fine, (0, k)), np.pad(fine, (k, 0))
    one = float(np.maximum(here - math.exp(epsilon) * there, 0.0).sum())
    assert one <= many_interval(law, 1, epsilon).upper * (1 + 1e-9) + 1e-15


@pytest.fixture(scope="module")
def found() -> md.Result:
    return md.OptimalNoise(md.ApproximateDP(6.0, 1e-2), 2.0, loss="squared", dimension=12).solve()


@pytest.fixture(scope="module")
def pure() -> md.Result:
    return md.OptimalNoise(md.PureDP(6.0), 2.0, loss="squared", dimension=12).solve()


@pytest.mark.slow
def test_it_is_the_best_named_family(found: md.Result) -> None:
    table = found.tried().set_index("law")["value"]
    assert {"gaussian", "laplace", "gennorm", "staircase"} == set(table.index)
    gennorm = md.calibrate("gennorm", privacy=found.design.privacy, sensitivity=2.0, dimension=12)
    assert found.value == table.min() <= gennorm.mechanism.variance
    assert 0 < found.lower_bound < found.value
    assert found.status == "gap not reached"


@pytest.mark.parametrize("name", ["found", "pure"])
def test_its_certificate_holds_and_a_doctored_one_does_not(name: str, request: pytest.FixtureRequest) -> None:
    result = request.getfixturevalue(name)
    assert result.certificate.verify()
    assert result.checks()["holds"].all()
    assert result.audit()["slack"].min() >= 0
    privacy = md.ApproximateDP(6.0, 0.99e-2) if name == "found" else md.PureDP(5.99)
    for change in ({"sensitivity": 2.001}, {"dimension": 13}, {"l0": 11}, {"privacy": privacy}):
        forged = replace(result, design=replace(result.design, **change))
        assert not forged.checks()["holds"].all() or "l0" in change, change
    assert not replace(result, value=result.value * 0.999).checks()["holds"].all()
    assert not replace(result, lower_bound=result.lower_bound * 1.001).checks()["holds"].all()


@pytest.mark.parametrize("name", ["found", "pure"])
def test_it_is_saved_and_read_back(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    result = request.getfixturevalue(name)
    result.save(tmp_path / "noise.json")
    back = md.load(tmp_path / "noise.json")
    assert (back.value, back.lower_bound) == (result.value, result.lower_bound)
    assert back.mechanism.variance == result.mechanism.variance
    assert loads(dumps(result.mechanism), source="", kinds=KINDS).dimension == 12
    assert "12 numbers" in result.account().question


def test_it_is_released_on_a_lattice_and_sampled_with_its_variance(pure: md.Result) -> None:
    noise = pure.mechanism
    out, half = noise.release(np.zeros((2000, 12))), noise.law.step / 2
    assert out.shape == (2000, 12)
    assert np.all(out / half == np.round(out / half))
    assert out.var() == pytest.approx(pure.value, rel=0.15)
    assert noise.sample(np.zeros((2000, 12)), rng=1).var() == pytest.approx(pure.value, rel=0.15)
    errors = pure.errors()
    assert errors.standard_deviation == pytest.approx(math.sqrt(pure.value), rel=1e-6)
    with pytest.raises(md.DesignError, match="12 coordinates"):
        noise.release(np.zeros(3))


def test_pure_privacy_is_a_share_for_each() -> None:
    result = md.OptimalNoise(md.PureDP(3.0), loss="squared", dimension=3).solve(gap=0.02)
    staircase = md.noise.staircase_law(1.0, loss="squared").var()
    assert result.status == "best of its class"
    assert result.lower_bound <= staircase <= result.value * 1.0001
    assert result.value <= staircase * 1.02
    assert result.certificate.verify()
    assert result.mechanism.law.exact_delta(Fraction(1)) == 0
    same = md.OptimalNoise(md.ApproximateDP(3.0, 0.0), loss="squared", dimension=3).solve(gap=0.02)
    assert (same.value, same.status) == (result.value, "best of its class")


class Clock:
    """Every look at it takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


@pytest.mark.parametrize("limit", [2.0, 12.0, 40.0])
def test_whatever_the_limit_the_answer_is_the_best_so_far_or_an_error(
    limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that jumps at every look: steps are cut short wherever they ask."""
    monkeypatch.setattr(deadline_module, "time", Clock())
    design = md.OptimalNoise(md.ApproximateDP(4.0, 1e-2), loss="squared", dimension=3)
    try:
        result = design.solve(time_limit=limit)
    except md.SolverError as problem:
        assert "time" in str(problem) and limit < 40
        return
    assert result.status == "limit" and result.certificate.verify()
    assert 0 <= (result.lower_bound or 0.0) <= result.value
    if len(tried := result.tried()):  # a single law leaves no table
        assert result.value == tried["value"].min()


def test_few_of_many_are_as_private_as_the_few() -> None:
    law = CellNoise((1, 2, 4, 8, 4, 2, 1), 1.0, -3.5, cells_per_shift=1)
    few = md.noise.CellProduct(law, 20, 2)
    p = np.array([1, 2, 4, 8, 4, 2, 1, 0]) / 22
    pairs, moved = np.outer(p, p), np.outer(np.roll(p, 1), np.roll(p, 1))
    held = few.delta_interval(0.8)
    assert held.lower <= float(np.maximum(pairs - math.exp(0.8) * moved, 0).sum()) <= held.upper
    assert few.rvs(3, random_state=0).shape == (3, 20) and "of at most 2 at once" in few.summary()
    with pytest.raises(md.DesignError, match="l0"):
        md.noise.CellProduct(law, 20, 21)


def test_a_sensitivity_is_held_as_a_box_of_the_coordinates_that_move() -> None:
    privacy = md.ApproximateDP(1.0, 1e-3)
    made = md.OptimalNoise(privacy, md.Sensitivity(linf=2, l0=3), dimension=20)
    assert made == md.OptimalNoise(privacy, 2.0, dimension=20, l0=3)
    assert md.OptimalNoise(privacy, md.Sensitivity(linf=2), dimension=4).l0 is None
    assert md.OptimalNoise(privacy, md.Sensitivity(each=[2, 0, 2]), dimension=3).moved == 2
    for wrong in (md.Sensitivity(l1=1), md.Sensitivity(each=[1, 2, 2]), md.Sensitivity(linf=1, l2=1.2)):
        with pytest.raises(md.DesignError, match="sensitivity"):
            md.OptimalNoise(privacy, wrong, dimension=3)
    with pytest.raises(md.DesignError, match="l0"):
        md.OptimalNoise(privacy, dimension=3, l0=4)
    with pytest.raises(md.DesignError, match="l0"):
        md.OptimalNoise(privacy, md.Sensitivity(linf=2), dimension=3, l0=2)


def test_one_of_many_gets_the_optimum_of_one() -> None:
    privacy = md.ApproximateDP(1.0, 1e-2)
    one = md.OptimalNoise(privacy, loss="squared").solve(gap=0.02)
    many = md.OptimalNoise(privacy, loss="squared", dimension=9, l0=1).solve(gap=0.02)
    assert (many.value, many.lower_bound, many.status) == (one.value, one.lower_bound, "best of its class")
    assert many.checks()["holds"].all() and many.mechanism.dimension == 9
    for change in ({"l0": None}, {"l0": 2}, {"dimension": 8}):
        assert not replace(many, design=replace(many.design, **change)).checks()["holds"].all()


def test_laws_that_were_calibrated_before_are_checked_and_kept() -> None:
    privacy = md.ApproximateDP(8.0, 1e-3)
    staircase = md.calibrate("staircase", privacy=privacy, sensitivity=1.0)
    loose = md.calibrate("staircase", privacy=md.ApproximateDP(8.1, 1e-3), sensitivity=1.0)
    design = md.OptimalNoise(privacy, loss="squared")
    found = design.solve(gap=0.5, starts={"staircase": staircase.mechanism.law})
    assert found.value <= staircase.mechanism.variance and found.checks()["holds"].all()
    plain = design.solve(gap=0.5, starts={"staircase": loose.mechanism.law})
    assert plain.value > loose.mechanism.variance
    with pytest.raises(md.DesignError, match="starts"):
        design.solve(starts=[staircase])


@pytest.mark.parametrize("dimension", [0, -1, 1.5, "3", True, math.nan])
def test_a_dimension_is_a_whole_number(dimension: object) -> None:
    with pytest.raises(md.DesignError, match="dimension"):
        md.OptimalNoise(md.ApproximateDP(1.0, 1e-3), dimension=dimension)


def test_a_law_that_is_not_symmetric_is_refused() -> None:
    with pytest.raises(md.DesignError, match="symmetric"):
        md.noise.CellProduct(CellNoise((1, 2), 1.0, -1.0, 1), 2)

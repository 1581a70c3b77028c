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
from mechdesign.noise.optimal.many.certificate import enclosed_spent
from mechdesign.noise.optimal.many.composed import Composed
from mechdesign.noise.optimal.many.divergence import Divergence
from mechdesign.noise.optimal.many.loss import composed_upper, dominating_loss, log_concave, many_interval
from mechdesign.noise.optimal.many.newton import Concave, Descent
from mechdesign.noise.optimal.many.question import ManyQuestion
from mechdesign.noise.optimal.many.search import composed_share
from mechdesign.problem.losses import Loss
from mechdesign.solvers import deadline as deadline_module
from mechdesign.solvers.deadline import Deadline

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
    assert log_concave(law)
    worst, together = worst_by_listing(law, 2, epsilon)
    assert worst == pytest.approx(together, rel=1e-12)
    upper = composed_upper(dominating_loss(law), 2, epsilon)
    assert worst * (1 - 1e-12) <= upper <= worst * (1 + 1e-3) + 1e-12


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


def test_the_guide_agrees_with_the_certificate_and_its_gradient_with_differences() -> None:
    problem, x = Composed(5, 1.0, 240), np.arange(241) / 12
    phi = -((x / 2.5) ** 1.4)
    phi -= math.log(float(problem.copies @ np.exp(phi)))
    log_delta, gradient, hessian = problem.derivatives(phi, 12)
    law = mirrored([int(m * 2**80) for m in np.exp(phi)], 12)
    assert composed_upper(dominating_loss(law), 5, 1.0) == pytest.approx(math.exp(log_delta), rel=2e-3)
    direction = np.cos(x)
    step = 1e-2
    ahead, behind = (problem.log_delta(phi + s * direction, 12) for s in (step, -step))
    assert (ahead - behind) / (2 * step) == pytest.approx(float(gradient @ direction), rel=1e-3)
    curvature = (ahead + behind - 2 * log_delta) / step**2
    assert curvature == pytest.approx(float(direction @ hessian @ direction), rel=0.05, abs=0.01)


def test_the_barrier_has_the_derivatives_it_says() -> None:
    phi = -(np.arange(12) ** 1.5) / 3
    barrier = Concave.around(phi)
    gradient, hessian = barrier.derivatives(phi)
    direction = np.random.default_rng(0).normal(size=12) * 1e-4
    ahead, behind = barrier.value(phi + direction), barrier.value(phi - direction)
    assert (ahead - behind) / 2 == pytest.approx(float(gradient @ direction), rel=1e-4)
    assert ahead + behind - 2 * barrier.value(phi) == pytest.approx(
        float(direction @ hessian @ direction), rel=1e-3
    )
    assert barrier.value(-phi) == math.inf


@pytest.fixture(scope="module")
def found() -> md.noise.ManyNoiseResult:
    return md.OptimalNoise(md.ApproximateDP(6.0, 1e-2), 2.0, loss="squared", dimension=12).solve(cells=12)


@pytest.mark.slow
def test_it_is_cheaper_than_every_named_family(found: md.noise.ManyNoiseResult) -> None:
    table = found.tried().set_index("law")["value"]
    assert {"gaussian", "laplace", "gennorm", "flipped_huber", "osgt", "logistic"} <= set(table.index)
    assert found.value == table.min()
    assert found.kind == "free"
    gennorm = md.calibrate("gennorm", privacy=found.design.privacy, sensitivity=2.0, dimension=12)
    assert found.value < gennorm.variance
    assert 0 < found.lower_bound < found.value
    assert found.status == "feasible"


def test_its_certificate_holds_and_a_doctored_one_does_not(found: md.noise.ManyNoiseResult) -> None:
    assert found.certificate.verify()
    assert found.checks()["holds"].all()
    assert found.audit()["slack"].min() >= 0
    for key, value in (
        ("value", found.value * 0.999),
        ("lower_bound", found.lower_bound * 1.001),
        ("sensitivity", 2.001),
        ("dimension", 13),
        ("privacy", md.ApproximateDP(6.0, 0.99e-2)),
    ):
        assert not replace(found.certificate, **{key: value}).verify(), key


def test_it_is_saved_and_read_back(found: md.noise.ManyNoiseResult, tmp_path: Path) -> None:
    found.save(tmp_path / "noise.json")
    back = md.load(tmp_path / "noise.json")
    assert (back.value, back.lower_bound, back.law) == (found.value, found.lower_bound, found.law)
    assert loads(dumps(found.noise), source="", kinds=KINDS) == found.noise
    assert "free" in found.summary() or "cells" in found.summary()
    assert "12 numbers" in found.account().question


def test_it_is_released_on_a_lattice_and_sampled_with_its_variance(found: md.noise.ManyNoiseResult) -> None:
    out = found.release(np.zeros((2000, 12)))
    assert out.shape == (2000, 12)
    assert np.all(out / (found.law.step / 2) == np.round(out / (found.law.step / 2)))
    assert out.var() == pytest.approx(found.value, rel=0.1)
    assert found.noise.sample(np.zeros((2000, 12)), rng=1).var() == pytest.approx(found.value, rel=0.1)
    with pytest.raises(md.DesignError, match="12 coordinates"):
        found.release(np.zeros(3))


def test_pure_privacy_is_a_share_for_each() -> None:
    result = md.OptimalNoise(md.PureDP(3.0), loss="squared", dimension=3).solve(gap=0.02)
    staircase = md.noise.staircase_law(1.0, loss="squared").var()
    assert result.status == "optimal"
    assert result.lower_bound <= staircase <= result.value * 1.0001
    assert result.value <= staircase * 1.02
    assert result.certificate.verify()
    assert result.noise.law.exact_delta(Fraction(1)) == 0
    same = md.OptimalNoise(md.ApproximateDP(3.0, 0.0), loss="squared", dimension=3).solve(gap=0.02)
    assert (same.value, same.status) == (result.value, "optimal")


def test_few_coordinates_compose_the_optimum_of_one() -> None:
    privacy = md.ApproximateDP(6.0, 0.05)
    question = ManyQuestion(Loss.of("squared"), 1.0, privacy, 2)

    def narrow(epsilon: Fraction, delta: float, deadline: Deadline) -> md.Result:
        assert Fraction(delta) * 2 <= Fraction(privacy.delta)
        return md.OptimalNoise(md.ApproximateDP(float(epsilon), delta), loss="squared").solve(gap=0.01)

    found = composed_share(question, narrow, Deadline(None))
    assert found is not None
    staircase = md.calibrate("staircase", privacy=privacy, sensitivity=1.0, dimension=2)
    assert found.value < 0.97 * staircase.mechanism.variance
    assert enclosed_spent(found.noise, privacy).how == "proved"
    assert enclosed_spent(found.noise, privacy).upper <= privacy.delta


@pytest.mark.filterwarnings("error")
def test_a_descent_stays_within_doubles() -> None:
    """Where δ drowns in the rounding of its transforms, a step divided by it: "invalid value encountered in matmul"."""
    problem, x = Composed(5, 6.0, 120), np.arange(121) / 4
    phi = -6.0 * x - 1e-3 * x**2
    descent = Descent(problem, 4, x**2 + 0.01, math.log(1e-12), Deadline(None))
    for start in (phi, 30 * phi, 1e-3 * phi, np.where(x > 20, -np.inf, phi), np.full(121, np.nan)):
        begun = descent.restored(start)
        assert begun is None or abs(problem.log_delta(begun, 4) - descent.level) < 1e-2
        done = None if begun is None else descent.run(begun, Concave.around(begun), most=4)
        assert done is None or np.isfinite(done).all()


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
        result = design.solve(time_limit=limit, cells=2)
    except md.SolverError as problem:
        assert "time" in str(problem) and limit < 40
        return
    assert result.status == "limit" and result.certificate.verify()
    assert 0 <= (result.lower_bound or 0.0) <= result.value == result.tried()["value"].min()


def test_few_of_many_are_as_private_as_the_few() -> None:
    law = CellNoise((1, 2, 4, 8, 4, 2, 1), 1.0, -3.5, cells_per_shift=1)
    few = md.noise.CellProduct(law, 20, 2)
    p = np.array([1, 2, 4, 8, 4, 2, 1, 0]) / 22
    pairs, moved = np.outer(p, p), np.outer(np.roll(p, 1), np.roll(p, 1))
    held = few.delta_interval(0.8)
    assert held.lower <= float(np.maximum(pairs - math.exp(0.8) * moved, 0).sum()) <= held.upper
    assert few.rvs(3, random_state=0).shape == (3, 20) and "of at most 2 at once" in few.summary()
    with pytest.raises(md.DesignError, match="changed"):
        md.noise.CellProduct(law, 20, 21)


def test_a_sensitivity_is_held_as_a_box_of_the_coordinates_that_move() -> None:
    privacy = md.ApproximateDP(1.0, 1e-3)
    made = md.OptimalNoise(privacy, md.Sensitivity(linf=2, changed=3), dimension=20)
    assert made == md.OptimalNoise(privacy, 2.0, dimension=20, changed=3)
    assert md.OptimalNoise(privacy, md.Sensitivity(linf=2), dimension=4).changed is None
    assert md.OptimalNoise(privacy, md.Sensitivity(each=[2, 0, 2]), dimension=3).moved == 2
    for wrong in (md.Sensitivity(l1=1), md.Sensitivity(each=[1, 2, 2]), md.Sensitivity(linf=1, l2=1.2)):
        with pytest.raises(md.DesignError, match="sensitivity"):
            md.OptimalNoise(privacy, wrong, dimension=3)
    with pytest.raises(md.DesignError, match="changed"):
        md.OptimalNoise(privacy, dimension=3, changed=4)
    with pytest.raises(md.DesignError, match="changed"):
        md.OptimalNoise(privacy, md.Sensitivity(linf=2), dimension=3, changed=2)


def test_one_of_many_gets_the_optimum_of_one() -> None:
    privacy = md.ApproximateDP(1.0, 1e-2)
    one = md.OptimalNoise(privacy, loss="squared").solve(gap=0.02)
    many = md.OptimalNoise(privacy, loss="squared", dimension=9, changed=1).solve(gap=0.02)
    assert (many.value, many.lower_bound, many.status) == (one.value, one.lower_bound, "optimal")
    assert many.checks()["holds"].all() and many.noise.dimension == 9
    for change in ({"changed": None}, {"changed": 2}, {"dimension": 8}):
        assert not replace(many.certificate, **change).verify()
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


def test_a_limit_that_leaves_no_time_is_an_error() -> None:
    design = md.OptimalNoise(md.ApproximateDP(1.0, 1e-3), dimension=3)
    with pytest.raises(md.SolverError, match="time limit"):
        design.solve(time_limit=1e-9)


def test_a_law_that_is_not_symmetric_is_refused() -> None:
    with pytest.raises(md.DesignError, match="symmetric"):
        md.noise.CellProduct(CellNoise((1, 2), 1.0, -1.0, 1), 2)


@pytest.mark.parametrize("order", [1.0, 4.0])
def test_a_divergence_has_the_derivatives_it_says(order: float) -> None:
    problem = Divergence(order, 40, 5, 0.4)
    phi = -((np.arange(41) / 8) ** 2)
    phi -= math.log(float(problem.copies @ np.exp(phi)))
    value, gradient, hessian = problem.derivatives(phi, 5)
    direction, step = np.cos(np.arange(41) / 5), 1e-4
    ahead, behind = (problem.derivatives(phi + s * direction, 5) for s in (step, -step))
    assert (ahead[0] - behind[0]) / (2 * step) == pytest.approx(float(gradient @ direction), rel=1e-5)
    change = (ahead[1] - behind[1]) / (2 * step)
    np.testing.assert_allclose(change, hessian @ direction, atol=1e-5 * np.abs(change).max())
    # a Gaussian's divergence is order/2 times the squared distance over the variance, here 5/8 and 1/2
    assert value == pytest.approx(math.log(order * (5 / 8) ** 2), abs=0.02)


def test_the_cactus_law_beats_gaussian_noise() -> None:
    design = md.noise.LeastDivergence(md.ApproximateDP(8.0, 1e-3), dimension=20)
    result = design.solve()
    gaussian = md.calibrate("gaussian", privacy=design.privacy, sensitivity=1.0, dimension=20)
    assert 0.97 * gaussian.mechanism.variance < result.value < gaussian.mechanism.variance
    assert result.certificate.verify()
    assert result.noise.law.decay > 0
    assert loads(dumps(result), source="", kinds=KINDS).value == result.value
    for change in ({"order": 0.5}, {"dimension": 1}, {"privacy": md.PureDP(1.0)}, {"loss": abs}):
        with pytest.raises(md.DesignError):
            replace(design, **change)

"""The optimal noise: private by exact arithmetic and by brute force, bounded by an independent dual, published numbers."""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from mechdesign import solvers
from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.exact import exp_lower
from mechdesign.files import load
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.design import OptimalNoise
from mechdesign.noise.optimal.lattice_dual import average_costs, lower_costs
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import ApproximateDP, MetricDP, PureDP
from mechdesign.verifier import verify

NIGHTLY = bool(os.environ.get("MECHDESIGN_NIGHTLY"))


def truncated_laplace(epsilon: float, delta: float) -> float:
    """ℓ₁ cost of truncated Laplace noise at Δ = 1 (Geng et al. 2020)."""
    r = math.expm1(epsilon) / (2 * delta)
    return (1 - math.log1p(r) / r) / epsilon


def hockey_stick(law, epsilon: float, shift: float) -> float:
    """∫[f(t) - e^ε f(t + d)]₊ dt over the common refinement of both sets of breakpoints."""
    low, high = law.support()
    edges = low + law.width * np.arange(len(law.weights) + 1)
    if law.spike:
        edges = np.concatenate([edges, [-law.spike_width / 2, law.spike_width / 2]])
    cuts = np.unique(np.concatenate([edges, edges - shift, [high]]))
    middle = (cuts[1:] + cuts[:-1]) / 2
    gain = np.maximum(law.pdf(middle) - math.exp(epsilon) * law.pdf(middle + shift), 0)
    return float((gain * np.diff(cuts)).sum())


@pytest.mark.parametrize(
    "epsilon, delta, expected", [(1, 0.2, 0.55906), (2, 0.1, 0.36390), (0.5, 0.1, 1.08455)]
)
def test_reference_upper_bounds_at_sixteen_cells(epsilon, delta, expected) -> None:
    result = OptimalNoise(privacy=ApproximateDP(epsilon, delta)).solve(cells=16, grid="edge")
    assert result.value == pytest.approx(expected, abs=6e-6)
    assert result.mechanism.cells_per_shift == 16 and result.gap < 0.005 and result.certificate.verify()


@pytest.mark.slow
@pytest.mark.parametrize(
    "epsilon, delta, published",
    [
        (0.5, 0.05, 2.58),
        (0.5, 0.1, 2.71),
        (0.5, 0.2, 3.35),
        (1, 0.05, 4.84),
        (1, 0.1, 5.10),
        (1, 0.2, 5.82),
        (2, 0.05, 8.39),
        (2, 0.1, 8.70),
        (2, 0.2, 9.60),
        (5, 0.05, 12.50),
        (5, 0.1, 12.78),
        (5, 0.2, 13.37),
    ],
)
def test_published_suboptimality_of_truncated_laplace(epsilon, delta, published) -> None:
    result = OptimalNoise(privacy=ApproximateDP(epsilon, delta)).solve(gap=0.01)
    cost = truncated_laplace(epsilon, delta)
    low, high = (100 * (cost - o) / max(o, 1.0) for o in (result.value, result.lower_bound))
    assert low - 1 <= published <= high + 1
    assert high - low < 1.2


@pytest.mark.slow
@settings(max_examples=60 if NIGHTLY else 12)
@given(
    st.floats(0.01, 2.5),
    st.one_of(st.just(0.0), st.floats(1e-3, 0.9)),
    st.sampled_from(["absolute", "squared", {"absolute": 1.0, "squared": 0.3}]),
    st.floats(0.1, 10),
)
def test_law_and_bound_are_proved(epsilon, delta, loss, sensitivity) -> None:
    privacy = ApproximateDP(epsilon, delta)
    result = OptimalNoise(privacy=privacy, sensitivity=sensitivity, loss=loss).solve(gap=0.02)
    assert result.gap <= 0.02 and result.status == "optimal"
    assert result.lower_bound <= result.value
    assert result.certificate.verify()
    law = result.mechanism
    assert law.exact_delta(epsilon) <= Fraction(delta)
    assert law.expected_loss(loss) == pytest.approx(result.value, rel=1e-9)
    assert law.privacy_profile(epsilon) <= delta + 1e-12
    audit = result.audit()
    assert (audit["slack"] >= 0).all()
    # Real shifts between and beyond the lattice's, by brute force.
    if not law.decay:
        rng = np.random.default_rng(0)
        for d in [*rng.uniform(-sensitivity, sensitivity, 25), sensitivity, -sensitivity, 1e-9]:
            assert hockey_stick(law, epsilon, d) <= delta + 1e-9


@pytest.mark.parametrize("epsilon, delta", [(1.0, 0.2), (0.3, 0.05), (2.0, 0.5)])
def test_cuts_solve_the_whole_program(epsilon, delta) -> None:
    """Every row listed, in CVXPY, by another code path and (for one) another solver."""
    design = OptimalNoise(privacy=ApproximateDP(epsilon, delta))
    reach = 1.5 + math.log1p(math.expm1(epsilon) / (2 * delta)) / epsilon
    model = design.model(cells=4, reach=reach)
    full = solvers.solve(model, "clarabel" if epsilon == 1.0 else None).value
    cut = design.solve(cells=4)
    # The spike can only help.
    assert cut.value <= full * (1 + 1e-6)
    if not cut.mechanism.spike:
        assert cut.value == pytest.approx(full, rel=1e-6)
    assert cut.lower_bound <= full * (1 + 1e-9)


def _lattice_lp(epsilon: float, delta: float, n: int, side: int) -> float:
    """The lattice problem on a wide support with scipy: its optimum is at least any proved lower bound."""
    length, growth = 2 * side + 1, math.exp(epsilon)
    shifts = [s for k in range(1, n + 1) for s in (k, -k)]
    rows, limits = [], []
    count = length + len(shifts) * length
    for index, s in enumerate(shifts):
        base = length + index * length
        total = np.zeros(count)
        total[base : base + length] = 1
        for i in range(length):
            row = np.zeros(count)
            row[i], row[base + i] = 1, -1
            if 0 <= i + s < length:
                row[i + s] -= growth
            rows.append(row)
            limits.append(0.0)
        rows.append(total)
        limits.append(delta)
    cost = np.concatenate([np.abs(np.arange(length) - side) / n, np.zeros(count - length)])
    norm = np.zeros((1, count))
    norm[0, :length] = 1
    return optimize.linprog(cost, np.array(rows), np.array(limits), norm, [1.0], method="highs").fun


def test_lower_bound_is_the_lattice_optimum() -> None:
    result = OptimalNoise(privacy=ApproximateDP(1.0, 0.2)).solve(cells=3)
    expected = _lattice_lp(1.0, 0.2, 3, 9)
    assert result.lower_bound <= expected + 1e-9
    assert result.lower_bound == pytest.approx(expected, rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_zero_delta_gives_the_staircase_back(epsilon) -> None:
    result = OptimalNoise(privacy=PureDP(epsilon)).solve(cells=12)
    staircase = math.exp(epsilon / 2) / math.expm1(epsilon)
    assert result.lower_bound <= staircase <= result.value
    assert result.gap <= 0.02 and result.certificate.verify()
    law = result.mechanism
    assert law.exact_delta(epsilon) == 0
    # Its shape: from period to period the density falls by e^ε, within one it takes the staircase's two values.
    n, half = law.cells_per_shift, len(law.weights) // 2
    right = np.array([float(w / law.total) for w in law.weights[half:]])
    assert right[1 + n : 1 + 2 * n] / right[1 : 1 + n] == pytest.approx(math.exp(-epsilon), rel=1e-6)
    levels = right[:n] / right[0]
    assert np.sum((levels < 1 - 1e-6) & (levels > math.exp(-epsilon) * (1 + 1e-6))) <= 1


def test_squared_staircase() -> None:
    """Geng and Viswanath's ℓ₂ optimum, minimised over γ here by quadrature-free sums."""
    epsilon = 1.0
    b = math.exp(-epsilon)

    def cost(gamma: float) -> float:
        a = (1 - b) / (2 * (gamma + b * (1 - gamma)))
        k = np.arange(200)
        inner = ((k + gamma) ** 3 - k**3) / 3
        outer = ((k + 1) ** 3 - (k + gamma) ** 3) / 3
        return 2 * a * float((b**k * (inner + b * outer)).sum())

    best = optimize.minimize_scalar(cost, bounds=(0.01, 0.99), method="bounded").fun
    result = OptimalNoise(privacy=PureDP(epsilon), loss="squared").solve(gap=0.01)
    assert result.lower_bound <= best <= result.value * (1 + 1e-9)


@pytest.mark.parametrize("delta", [1e-6, 1e-10])
def test_tiny_delta_stays_between_the_bounds(delta) -> None:
    result = OptimalNoise(privacy=ApproximateDP(1.0, delta)).solve()
    pure = math.exp(0.5) / math.expm1(1.0)
    assert result.gap <= 0.01 and result.certificate.verify()
    assert result.lower_bound <= pure
    assert result.value >= pure * (1 - 1e-3)


def test_the_best_noise_need_not_be_unimodal() -> None:
    law = OptimalNoise(privacy=ApproximateDP(1.0, 0.2)).solve(cells=16, grid="edge").mechanism
    right = np.array(law.weights[len(law.weights) // 2 :], dtype=float)
    assert np.any(np.diff(right) > 1e-3 * right.max())


def quartic(t):
    return np.asarray(t) ** 4


def pinball(t):
    return np.maximum(2.0 * np.asarray(t), -np.asarray(t))


def shifted(t):
    return np.abs(np.asarray(t) - 0.7)


@pytest.mark.parametrize("loss", [quartic, pinball, shifted])
@pytest.mark.parametrize("privacy", [ApproximateDP(1.0, 0.1), PureDP(1.0)])
def test_any_convex_loss(loss, privacy) -> None:
    result = OptimalNoise(privacy=privacy, loss=loss).solve(gap=0.02)
    assert result.gap <= 0.02 and result.certificate.verify()
    assert result.mechanism.expected_loss(loss) == pytest.approx(result.value, rel=1e-3)
    assert result.mechanism.expected_loss(loss) <= result.value * (1 + 1e-6)
    assert any("callable" in note for note in result.notes)
    if loss is pinball:
        assert result.mechanism.mean() < -0.05  # errors to the right cost twice


def test_callables_agree_with_the_exact_losses() -> None:
    for name, function in (("absolute", np.abs), ("squared", np.square)):
        a = OptimalNoise(privacy=ApproximateDP(1.0, 0.1), loss=name).solve(cells=6)
        b = OptimalNoise(privacy=ApproximateDP(1.0, 0.1), loss=function).solve(cells=6)
        assert b.value == pytest.approx(a.value, rel=1e-3) and b.value >= a.value * (1 - 1e-9)
        assert b.lower_bound == pytest.approx(a.lower_bound, rel=1e-2)
        assert b.lower_bound <= a.value


@given(st.integers(-20, 20), st.floats(0.05, 3))
def test_lattice_costs_lie_below_and_cell_averages_above(j, width) -> None:
    w = Fraction(width)
    t = np.linspace(0, 1, 101)
    for loss in (Loss.of("absolute"), Loss.of({"squared": 0.7, "absolute": 0.2}), Loss.of(quartic)):
        a, b = lower_costs(loss, j, j + 1, w).floats()
        x = (j + t) * width
        assert np.all(a * (1 - t) + b * t <= loss(x) * (1 + 1e-9) + 1e-9)
        average = average_costs(loss, np.array([2 * j + 1]), w / 2).floats()[0]
        fine = loss((j + (np.arange(4000) + 0.5) / 4000) * width).mean()
        assert average >= fine * (1 - 1e-6) and average <= fine * (1 + 1e-3) + 1e-3 * width**4


def doctored(result):
    """Results in which one thing was changed."""
    law, design = result.mechanism, result.design
    yield replace(result, value=0.999 * result.value)
    yield replace(result, lower_bound=1.0001 * result.lower_bound)
    yield replace(result, lower_bound=result.value)
    for change in (
        {"privacy": ApproximateDP(0.9, 0.2)},
        {"loss": "squared"},
        {"sensitivity": 1.1},
        {"dimension": 2},
    ):
        yield replace(result, design=replace(design, **change))
    yield replace(result, mechanism=replace(law, width=0.9 * law.width))
    yield replace(result, mechanism=replace(law, spike=10**18, spike_width=1e-3))
    proof = result.proofs[1]
    yield replace(
        result, proofs=(result.proofs[0], replace(proof, psi=0 * proof.psi, totals=0 * proof.totals))
    )
    yield replace(result, proofs=result.proofs[1:])
    yield replace(result, proofs=())


def test_no_doctored_result_passes() -> None:
    """A lower bound raised inside the certificate of an optimal noise, its value and its design passed the audit."""
    result = OptimalNoise(privacy=ApproximateDP(1.0, 0.2)).solve(cells=4)
    assert result.checks()["holds"].all() and len(result.proofs) == 2
    for forged in doctored(result):
        assert not forged.checks()["holds"].all()


@pytest.mark.parametrize("privacy", [PureDP(20.0), ApproximateDP(20.0, 0.1), ApproximateDP(40.0, 1e-9)])
@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_no_lower_bound_below_zero(privacy, loss) -> None:
    """ε = 20, squared: the lower bound was -5e-6; at ε = 40 HiGHS refuses e^ε as a coefficient."""
    result = OptimalNoise(privacy=privacy, loss=loss).solve(gap=0.5, max_cells=4)
    assert 0 <= result.lower_bound <= result.value and result.certificate.verify()
    assert result.mechanism.exact_delta(privacy.epsilon) <= Fraction(getattr(privacy, "delta", 0.0))


@pytest.mark.parametrize("privacy", [PureDP(1.0), ApproximateDP(1.0, 0.1), ApproximateDP(0.05, 1e-6)])
@pytest.mark.parametrize("limit", [1e-6, 0.05])
def test_a_time_limit_returns_the_best_so_far(privacy, limit) -> None:
    started = time.process_time()
    result = OptimalNoise(privacy=privacy).solve(gap=1e-6, time_limit=limit)
    late = result.status == "limit" or (isinstance(privacy, PureDP) and result.status == "optimal")
    assert late and result.certificate.verify()
    assert 0 <= (result.lower_bound or 0.0) <= result.value < math.inf
    assert time.process_time() - started < limit + 1.0  # of work: other work of the machine does not count


def test_without_certification_nothing_is_called_optimal() -> None:
    result = OptimalNoise(privacy=ApproximateDP(1.0, 0.2)).solve(cells=2, certify=False)
    assert result.status == "not certified" and result.certificate is None


def test_a_lattice_too_large_is_refused() -> None:
    with pytest.raises(SolverError, match="lattice of"):
        OptimalNoise(privacy=PureDP(1e-9), loss=np.abs).solve()


def test_round_trip_and_tables(tmp_path) -> None:
    result = OptimalNoise(privacy=ApproximateDP(1.0, 0.3), sensitivity=2.0).solve()
    result.save(tmp_path / "r.json")
    again = load(tmp_path / "r.json")
    assert again.mechanism == result.mechanism and again.certificate.verify() and again.value == result.value
    frame = result.to_frame()
    mass = ((frame["right"] - frame["left"]) * frame["density"]).sum() + float(
        result.mechanism.spike / result.mechanism.total
    )
    assert mass == pytest.approx(1)
    assert "exact delta" in result.summary()


def test_scaling_with_the_sensitivity() -> None:
    a = OptimalNoise(privacy=ApproximateDP(1.0, 0.1)).solve(cells=8)
    b = OptimalNoise(privacy=ApproximateDP(1.0, 0.1), sensitivity=1000.0).solve(cells=8)
    assert b.value == pytest.approx(1000 * a.value, rel=1e-6)
    assert b.lower_bound == pytest.approx(1000 * a.lower_bound, rel=1e-6)


@pytest.mark.parametrize("sensitivity", [1e-12, 1e12, 1e60])
def test_the_sensitivity_is_only_a_unit(sensitivity, tmp_path) -> None:
    """Squared losses of 1e24 overflowed the integers of the multipliers: the bound was nonsense."""
    a = OptimalNoise(privacy=ApproximateDP(1.0, 0.1), loss="squared").solve(cells=5)
    b = OptimalNoise(privacy=ApproximateDP(1.0, 0.1), sensitivity=sensitivity, loss="squared").solve(cells=5)
    assert b.value == pytest.approx(sensitivity**2 * a.value, rel=1e-6)
    assert b.lower_bound == pytest.approx(sensitivity**2 * a.lower_bound, rel=1e-6)
    assert b.certificate.verify()
    b.save(tmp_path / "r.json")
    assert verify.main([str(tmp_path / "r.json")]) == 0


@pytest.mark.slow
def test_giving_up_is_said() -> None:
    result = OptimalNoise(privacy=ApproximateDP(5.0, 0.1)).solve(gap=0.001, max_cells=8)
    assert result.status == "gap not reached" and "max_cells" in str(result)
    assert result.lower_bound <= result.value and result.certificate.verify()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"privacy": MetricDP(1.0)}, "PureDP or an ApproximateDP"),
        ({"sensitivity": 0.0}, "sensitivity"),
        ({"sensitivity": math.nan}, "sensitivity"),
        ({"loss": "cubic"}, "loss"),
        ({"privacy": PureDP(1000.0)}, "epsilon"),
    ],
)
def test_bad_input_is_named(arguments, message) -> None:
    with pytest.raises(DesignError, match=message):
        OptimalNoise(**{"privacy": ApproximateDP(1.0, 0.1), **arguments})


@pytest.mark.parametrize(
    "options, message",
    [
        ({"gap": 0.0}, "gap"),
        ({"cells": 0}, "cells"),
        ({"grid": "hexagonal"}, "grid"),
        ({"solver": "clarabel"}, "solver"),
    ],
)
def test_bad_options_are_named(options, message) -> None:
    with pytest.raises(DesignError, match=message):
        OptimalNoise(privacy=ApproximateDP(1.0, 0.1)).solve(**options)


@pytest.mark.parametrize(
    "loss, message",
    [
        (lambda t: -np.square(t), "convex|grow"),
        (lambda t: np.sqrt(np.abs(t)), "convex"),
        (lambda t: np.zeros_like(t), "grow"),
        (lambda t: np.full_like(t, np.nan), "finite"),
    ],
)
def test_losses_that_are_not_convex_or_do_not_grow(loss, message) -> None:
    with pytest.raises(DesignError, match=message):
        OptimalNoise(privacy=ApproximateDP(1.0, 0.1), loss=loss).solve()


def test_exponential_loss_is_too_fast_for_pure_noise() -> None:
    with pytest.raises(DesignError, match="too fast"):
        OptimalNoise(privacy=PureDP(1.0), loss=lambda t: np.cosh(3 * t)).solve(cells=2)


def test_growth_bound_is_on_the_safe_side() -> None:
    assert exp_lower(1.0) < Fraction(math.e) + Fraction(1, 2**50)


@pytest.mark.parametrize(
    "epsilon, delta, loss",
    [(8.0, 0.0, "absolute"), (6.0, 0.1, "squared"), (9.0, 1e-3, "absolute"), (20.0, 0.0, "absolute")],
)
def test_large_epsilon(epsilon, delta, loss) -> None:
    """Private by brute force at the shifts where cells or spans meet, bounded by the closed form."""
    result = OptimalNoise(privacy=ApproximateDP(epsilon, delta), sensitivity=0.3, loss=loss).solve(gap=0.05)
    law = result.mechanism
    assert result.gap <= 0.05 and result.certificate.verify()
    assert law.exact_delta(epsilon) <= Fraction(delta)
    assert law.expected_loss(loss) == pytest.approx(result.value, rel=1e-9)
    if delta == 0:
        staircase = 0.3 * math.exp(epsilon / 2) / math.expm1(epsilon)
        assert result.lower_bound <= staircase <= result.value * (1 + 1e-12) <= staircase * (1 + 1e-6)
        return
    edges = law.width * np.concatenate([[0], law.ends]) + law.start
    rng, growth = np.random.default_rng(0), math.exp(epsilon)
    for shift in [
        *rng.choice(np.abs(np.subtract.outer(edges, edges)).ravel(), 40),
        0.3,
        *rng.uniform(0, 0.3, 10),
    ]:
        if shift > 0.3:
            continue
        cuts = np.unique(np.concatenate([edges, edges - shift]))
        cuts = cuts[(cuts >= edges[0]) & (cuts <= edges[-1])]
        middle = (cuts[1:] + cuts[:-1]) / 2
        spike = (
            (np.abs(middle) < law.spike_width / 2)
            * float(law.spike / law.total)
            / max(law.spike_width, 1e-300)
        )
        here = law.pdf(middle) - spike
        moved = middle + shift
        there = law.pdf(moved) - (np.abs(moved) < law.spike_width / 2) * (spike.max() if spike.size else 0)
        gain = float((np.maximum(here - growth * there, 0) * np.diff(cuts)).sum()) + float(
            law.spike / law.total
        )
        assert gain <= delta * (1 + 1e-6) + 1e-9


def test_spans_are_cells_joined() -> None:
    """The same law with and without spans: every number alike."""
    spans = (4, 2, 1, 1, 2, 4)
    weights = tuple(a * v for a, v in zip((1, 7, 50, 50, 7, 1), spans))
    for decay in (Fraction(0), Fraction(1, 9)):
        joined = CellNoise(
            weights=weights, width=0.25, start=-1.75, cells_per_shift=4, spans=spans, decay=decay
        )
        apart = [w // v for w, v in zip(weights, spans) for _ in range(v)]
        plain = CellNoise(weights=tuple(apart), width=0.25, start=-1.75, cells_per_shift=4, decay=decay)
        for epsilon in (0.0, 0.7, 2.0, 5.0):
            assert joined.exact_delta(epsilon) == plain.exact_delta(epsilon)
            assert joined.hockey_stick(epsilon)[4] == plain.hockey_stick(epsilon)[4]
        t = np.linspace(-4, 4, 301)
        for name in ("pdf", "cdf", "sf"):
            assert np.allclose(getattr(joined, name)(t), getattr(plain, name)(t), atol=1e-14)
        assert joined.var() == pytest.approx(plain.var())
        drawn = joined.release(np.zeros(20_000))
        assert abs(np.mean(np.abs(drawn)) - plain.expected_loss("absolute")) < 0.02


@pytest.mark.parametrize("delta", [0.6, 0.8, 0.95])
def test_no_epsilon_at_all(delta) -> None:
    """At ε = 0 the optimum for |t| is 1 - δ: every interval of length Δ holds at most δ, and a spike reaches that."""
    result = OptimalNoise(ApproximateDP(1e-9, delta)).solve()
    assert result.lower_bound <= 1 - delta <= result.value * (1 + 1e-9)
    assert result.value == pytest.approx(1 - delta, rel=1e-2) and result.gap < 0.01


@pytest.mark.parametrize("epsilon", [5e-324, 1e-300, 1e-100, 1e-19])
@pytest.mark.parametrize("privacy", [PureDP, lambda epsilon: ApproximateDP(epsilon, 0.5)])
def test_a_budget_too_small_for_the_arithmetic_is_refused_by_its_name(epsilon, privacy) -> None:
    with pytest.raises(DesignError, match=f"epsilon = {epsilon!r}: must be between 1e-18 and 200"):
        OptimalNoise(privacy(epsilon), 1, "squared")
    assert OptimalNoise(privacy(1e-18), 1, "squared").solve(time_limit=1).certificate.verify()


@pytest.mark.parametrize("privacy", [ApproximateDP(1.0, 1e-6), PureDP(1.0)], ids=str)
@pytest.mark.parametrize("dimension", [1, 3])
def test_a_unit_in_which_doubles_do_not_hold_the_loss_is_refused(privacy, dimension) -> None:
    """An OverflowError, a value of infinity, or 5e-324 with a lower bound of 0; the last unit that is taken has an answer."""
    for loss, far in (
        ("squared", 1.1e100),
        ("absolute", 1e101),
        ({"absolute": 1.0, "squared": 1e300}, 1.0),
        (abs, 1e101),
    ):
        for bad in (far, 1e155, 1e300, 1e-200, 1e-150, 5e-324):
            with pytest.raises(DesignError, match=r"sensitivity = .*choose another unit"):
                OptimalNoise(privacy, bad, loss=loss, dimension=dimension if loss is not abs else 1)
    for loss, edge in (
        ("squared", 0.99e100),
        ("squared", 1.01e-100),
        ("absolute", 1e100),
        ("absolute", 1e-100),
    ):
        one = OptimalNoise(privacy, edge, loss=loss).solve(gap=0.1)
        unit = OptimalNoise(privacy, 1.0, loss=loss).solve(gap=0.1)
        assert one.certificate.verify()
        assert one.value == pytest.approx(unit.value * edge ** (2 if loss == "squared" else 1), rel=0.1)


@pytest.mark.parametrize(
    "epsilon, delta", [(1e-9, 1e-6), (1e-3, 1e-9), (200.0, 0.5), (50.0, 1e-30), (1.0, 1e-30)]
)
@pytest.mark.parametrize("loss", ["absolute", "squared"])
def test_every_magnitude_has_an_answer_and_an_honest_gap(epsilon, delta, loss) -> None:
    result = OptimalNoise(ApproximateDP(epsilon, delta), loss=loss).solve(time_limit=5)
    assert 0 <= (result.lower_bound or 0.0) <= result.value < math.inf and result.certificate.verify()

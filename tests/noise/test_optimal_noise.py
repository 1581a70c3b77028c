"""The optimal noise: private by exact arithmetic and by brute force, bounded by an independent dual, published numbers."""

from __future__ import annotations

import math
import os
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.serialize import dumps
from mechdesign.noise.optimal import OptimalNoise
from mechdesign.problem.privacy import ApproximateDP, PureDP
from mechdesign.verifier.verify import verify

NIGHTLY = bool(os.environ.get("MECHDESIGN_NIGHTLY"))


def truncated_laplace(epsilon: float, delta: float) -> float:
    """ℓ₁ cost of truncated Laplace noise at Δ = 1 (Geng et al. 2020)."""
    r = math.expm1(epsilon) / (2 * delta)
    return (1 - math.log1p(r) / r) / epsilon


def hockey_stick(law, epsilon: float, shift: float) -> float:
    """∫[f(t) - e^ε f(t + d)]₊ dt over the common refinement of both sets of breakpoints."""
    edges = law.start + law.width * np.append(0, law.ends)
    if law.spike:
        edges = np.concatenate([edges, [-law.spike_width / 2, law.spike_width / 2]])
    cuts = np.unique(np.concatenate([edges, edges - shift]))
    middle = (cuts[1:] + cuts[:-1]) / 2
    gain = np.maximum(law.pdf(middle) - math.exp(epsilon) * law.pdf(middle + shift), 0)
    return float((gain * np.diff(cuts)).sum())


def test_reference_upper_bounds_at_sixteen_cells() -> None:
    for epsilon, delta, expected in ((1, 0.2, 0.55906), (2, 0.1, 0.36390), (0.5, 0.1, 1.08455)):
        result = OptimalNoise(privacy=ApproximateDP(epsilon, delta)).solve(cells=16)
        law = result.mechanism
        assert result.lower_bound < expected and result.value == pytest.approx(expected, abs=2e-4)
        assert OptimalNoise(privacy=ApproximateDP(epsilon, delta)).solve(gap=1e-4).value <= expected + 6e-6
        assert law.cells_per_shift == 16 and result.gap < 0.005 and result.certificate.verify()
        if epsilon == 1:  # the best noise need not be unimodal
            right = np.array(law.weights[len(law.weights) // 2 :], dtype=float)
            assert np.any(np.diff(right) > 1e-3 * right.max())


@pytest.mark.slow
@pytest.mark.parametrize(
    "epsilon, published",
    [(0.5, (2.58, 2.71, 3.35)), (1, (4.84, 5.10, 5.82)), (2, (8.39, 8.70, 9.60)), (5, (12.50, 12.78, 13.37))],
)
def test_published_suboptimality_of_truncated_laplace(epsilon, published) -> None:
    for delta, percent in zip((0.05, 0.1, 0.2), published):
        result = OptimalNoise(privacy=ApproximateDP(epsilon, delta)).solve(gap=0.01)
        cost = truncated_laplace(epsilon, delta)
        low, high = (100 * (cost - o) / max(o, 1.0) for o in (result.value, result.lower_bound))
        assert low - 1 <= percent <= high + 1 and high - low < 1.2


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
    # real shifts between and beyond the lattice's, by brute force
    if not law.decay:
        for d in [
            *np.random.default_rng(0).uniform(-sensitivity, sensitivity, 25),
            sensitivity,
            -sensitivity,
            1e-9,
        ]:
            assert hockey_stick(law, epsilon, d) <= delta + 1e-9


@pytest.mark.parametrize("epsilon, delta", [(1.0, 0.2), (0.3, 0.05), (2.0, 0.5)])
def test_cuts_solve_the_whole_program(epsilon, delta) -> None:
    """Every row listed, in CVXPY, by another code path and (for one) another solver."""
    design = OptimalNoise(privacy=ApproximateDP(epsilon, delta))
    model = design.problem().to_cvxpy()
    model.solve(solver=cp.CLARABEL if epsilon == 1.0 else cp.HIGHS)
    cut = design.solve(cells=16)
    # mass on 0 alone, which the problem has not, can only help
    assert cut.value <= model.value * (1 + 1e-6)
    assert cut.lower_bound <= model.value * (1 + 1e-9)
    assert design.solve("clarabel", cells=6).value == pytest.approx(design.solve(cells=6).value, rel=1e-6)


@pytest.mark.parametrize("epsilon, delta", [(1.0, 0.2), (2.0, 0.5), (0.5, 0.75)])
def test_mass_on_zero_alone_is_a_variable_of_the_program(epsilon: float, delta: float) -> None:
    """The program of cells and of mass on 0 that every shift charges in full, written out."""
    n, side = 4, 24
    p, a = cp.Variable(2 * side + 1, nonneg=True), cp.Variable(nonneg=True)
    wide = cp.hstack([np.zeros(n), p, np.zeros(n)])
    rows = [
        cp.sum(cp.pos(p - math.exp(epsilon) * wide[n + s : n + s + 2 * side + 1])) + a <= delta
        for s in range(-n, n + 1)
        if s
    ]
    costs = np.abs(np.arange(-side, side + 1)) / n
    costs[side] = 0.25 / n
    cost = costs @ p + a * 0.25 / n / 64
    best = cp.Problem(cp.Minimize(cost), [*rows, cp.sum(p) + a == 1]).solve(solver=cp.HIGHS)
    found = OptimalNoise(ApproximateDP(epsilon, delta)).solve(cells=n, gap=1e-9)
    assert found.value == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize(
    "epsilon, delta, loss, value",
    [(2.0, 0.5, "absolute", 0.200632), (2.0, 0.75, "squared", 0.0568998), (0.5, 0.75, "absolute", 0.208567)],
)
def test_a_large_delta_has_an_optimum_within_the_gap(epsilon, delta, loss, value) -> None:
    result = OptimalNoise(ApproximateDP(epsilon, delta), loss=loss).solve()
    assert result.gap <= 0.01 and result.value <= value * (1 + 1e-4) and result.certificate.verify()


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
    assert result.gap <= 0.02 and result.certificate.verify() and result.mechanism.exact_delta(epsilon) == 0


def test_squared_staircase() -> None:
    """Geng and Viswanath's ℓ₂ optimum, minimised over γ here by quadrature-free sums."""
    b, k = math.exp(-1.0), np.arange(200)

    def cost(gamma: float) -> float:
        a = (1 - b) / (2 * (gamma + b * (1 - gamma)))
        inner, outer = ((k + gamma) ** 3 - k**3) / 3, ((k + 1) ** 3 - (k + gamma) ** 3) / 3
        return 2 * a * float((b**k * (inner + b * outer)).sum())

    best = optimize.minimize_scalar(cost, bounds=(0.01, 0.99), method="bounded").fun
    result = OptimalNoise(privacy=PureDP(1.0), loss="squared").solve(gap=0.01)
    assert result.lower_bound <= best <= result.value * (1 + 1e-9)


@pytest.mark.parametrize("delta", [1e-6, 1e-10])
def test_tiny_delta_stays_between_the_bounds(delta) -> None:
    result = OptimalNoise(privacy=ApproximateDP(1.0, delta)).solve()
    pure = math.exp(0.5) / math.expm1(1.0)
    assert result.gap <= 0.01 and result.certificate.verify()
    assert result.lower_bound <= pure
    assert result.value >= pure * (1 - 1e-3)


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


def test_a_lattice_too_large_is_refused() -> None:
    with pytest.raises(SolverError, match="lattice of"):
        OptimalNoise(privacy=PureDP(1e-9), loss=np.abs).solve()


@pytest.mark.parametrize("sensitivity", [1e-12, 1e12, 1e60])
def test_the_sensitivity_is_only_a_unit(sensitivity) -> None:
    a, b = (OptimalNoise(ApproximateDP(1.0, 0.1), s, "squared").solve(cells=5) for s in (1.0, sensitivity))
    assert b.value == pytest.approx(sensitivity**2 * a.value, rel=1e-6)
    assert b.lower_bound == pytest.approx(sensitivity**2 * a.lower_bound, rel=1e-6)
    assert b.certificate.verify() and all(holds for *_, holds in verify(dumps(b)).rows)


@pytest.mark.parametrize(
    "epsilon, delta, loss",
    [(8.0, 0.0, "absolute"), (6.0, 0.1, "squared"), (9.0, 1e-3, "absolute"), (40.0, 1e-9, "squared")],
)
def test_large_epsilon(epsilon, delta, loss) -> None:
    """Private by brute force at the shifts where spans meet and at others, bounded by the closed form."""
    result = OptimalNoise(ApproximateDP(epsilon, delta), sensitivity=0.3, loss=loss).solve(gap=0.05)
    law = result.mechanism
    assert result.gap <= 0.05 and result.certificate.verify()
    assert law.exact_delta(epsilon) <= Fraction(delta)
    assert law.expected_loss(loss) == pytest.approx(result.value, rel=1e-9)
    if delta == 0:
        staircase = 0.3 * math.exp(epsilon / 2) / math.expm1(epsilon)
        assert result.lower_bound <= staircase <= result.value * (1 + 1e-12) <= staircase * (1 + 1e-6)
        return
    edges = law.width * np.concatenate([[0], law.ends]) + law.start
    between, rng = np.abs(np.subtract.outer(edges, edges)).ravel(), np.random.default_rng(0)
    for shift in [*rng.choice(between[between <= 0.3], 20), 0.3, *rng.uniform(0, 0.3, 10)]:
        assert hockey_stick(law, epsilon, shift) <= delta * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("delta", [0.6, 0.8, 0.95])
def test_no_epsilon_at_all(delta) -> None:
    """At ε = 0 the optimum for |t| is 1 - δ: every interval of length Δ holds at most δ, and a spike reaches that."""
    result = OptimalNoise(ApproximateDP(1e-9, delta)).solve()
    assert result.lower_bound <= 1 - delta <= result.value * (1 + 1e-9)
    assert result.value == pytest.approx(1 - delta, rel=1e-2) and result.gap < 0.01


@pytest.mark.parametrize("privacy", [ApproximateDP(1.0, 1e-6), PureDP(1.0)], ids=str)
def test_a_unit_in_which_doubles_do_not_hold_the_loss_is_refused(privacy) -> None:
    for loss, far in (
        ("squared", 1.1e100),
        ("absolute", 1e101),
        ({"absolute": 1.0, "squared": 1e300}, 1.0),
        (abs, 1e101),
    ):
        for bad in (far, 1e300, 1e-200, 5e-324):
            with pytest.raises(DesignError, match=r"sensitivity = .*choose another unit"):
                OptimalNoise(privacy, bad, loss=loss)
    for loss, edge, power in (("squared", 0.99e100, 2), ("squared", 1.01e-100, 2), ("absolute", 1e100, 1)):
        one, unit = (OptimalNoise(privacy, s, loss=loss).solve(gap=0.1) for s in (edge, 1.0))
        assert one.certificate.verify() and one.value == pytest.approx(unit.value * edge**power, rel=0.1)


@pytest.mark.parametrize(
    "privacy, loss",
    [
        (ApproximateDP(1e-9, 1e-6), "absolute"),
        (ApproximateDP(200.0, 0.5), "squared"),
        (ApproximateDP(1.0, 1e-30), "squared"),
        (PureDP(1e-18), "squared"),
        (PureDP(20.0), "squared"),
    ],
    ids=str,
)
def test_every_magnitude_has_an_answer_and_an_honest_gap(privacy, loss) -> None:
    result = OptimalNoise(privacy, loss=loss).solve(gap=0.5, max_cells=4)
    assert 0 <= (result.lower_bound or 0.0) <= result.value < math.inf and result.certificate.verify()

"""The optimal noise: private by exact arithmetic and by brute force, bounded by an independent dual, published numbers."""

import math
import os
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.noise import CellNoise, IntegerNoise, OptimalNoise, laws
from mechdesign.noise.noise_bounds import StaircaseMultipliers
from mechdesign.noise.optimal import staircase
from mechdesign.problem.spine import Bound, Clock
from mechdesign.typing import Status
from mechdesign.verifier.verify import verify
from tests.campaign.noise_oracles import whole_noise
from tests.programs import least_noise

NIGHTLY = bool(os.environ.get("MECHDESIGN_NIGHTLY"))


def truncated_laplace(epsilon: float, delta: float) -> float:
    """ℓ₁ cost of truncated Laplace noise at Δ = 1 (Geng et al. 2020)."""
    r = math.expm1(epsilon) / (2 * delta)
    return (1 - math.log1p(r) / r) / epsilon


def hockey_stick(law, epsilon: float, shift: float) -> float:
    """∫[f(t) - e^ε f(t + d)]₊ dt over the common refinement of both sets of breakpoints."""
    edges = law.start + law.width * np.arange(law.count + 1)
    if law.spike:
        edges = np.concatenate([edges, [-law.spike_width / 2, law.spike_width / 2]])
    cuts = np.unique(np.concatenate([edges, edges - shift]))
    middle = (cuts[1:] + cuts[:-1]) / 2
    gain = np.maximum(law.pdf(middle) - math.exp(epsilon) * law.pdf(middle + shift), 0)
    return float((gain * np.diff(cuts)).sum())


@pytest.mark.parametrize(
    ("epsilon", "delta", "expected"),
    [
        (1, 0.2, 0.55906),
        pytest.param(2, 0.1, 0.36390, marks=pytest.mark.slow),
        pytest.param(0.5, 0.1, 1.08455, marks=pytest.mark.slow),
    ],
)
def test_reference_upper_bounds_at_sixteen_cells(epsilon: float, delta: float, expected: float) -> None:
    result = OptimalNoise(privacy=md.ApproximateDP(epsilon, delta)).solve(cells=16)
    law = result.mechanism
    assert result.lower_bound < expected and result.value == pytest.approx(expected, abs=2e-4)
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
        result = OptimalNoise(privacy=md.ApproximateDP(epsilon, delta)).solve(gap=0.01)
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
    result = OptimalNoise(md.ApproximateDP(epsilon, delta), sensitivity, loss).solve(gap=0.02)
    law = result.mechanism
    assert result.gap <= 0.02 and result.lower_bound <= result.value and result.certificate.verify()
    assert law.privacy_profile(epsilon) <= delta and (result.audit()["slack"] >= 0).all()
    if isinstance(law, CellNoise):  # else a staircase, tested below
        assert law.expected_loss(loss) == pytest.approx(result.value, rel=1e-9)
        # real shifts between and beyond the lattice's, by brute force
        for d in [*np.random.default_rng(0).uniform(-1, 1, 25), 1.0, -1.0, 1e-9]:
            assert law.decay or hockey_stick(law, epsilon, d * sensitivity) <= delta + 1e-9


@pytest.mark.parametrize("epsilon, delta", [(1.0, 0.2), (0.3, 0.05), (2.0, 0.5)])
def test_cuts_solve_the_whole_program(epsilon, delta) -> None:
    """Every row listed, in CVXPY, by another code path and (for one) another solver."""
    design = OptimalNoise(privacy=md.ApproximateDP(epsilon, delta))
    model = design.problem().to_cvxpy()
    model.solve(solver=cp.CLARABEL if epsilon == 1.0 else cp.HIGHS)
    cut = design.solve(cells=design.problem().unknown.change)
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
    found = OptimalNoise(md.ApproximateDP(epsilon, delta)).solve(cells=n, gap=1e-9)
    assert found.value == pytest.approx(best, rel=1e-6)


def test_squared_staircase() -> None:
    result = OptimalNoise(privacy=md.PureDP(1.0), loss="squared").solve()
    assert result.value == pytest.approx(laws.staircase_law(1.0, loss="squared").var()) and result.gap < 1e-9


def quartic(t):
    return np.asarray(t) ** 4


def pinball(t):
    return np.maximum(2.0 * np.asarray(t), -np.asarray(t))


def shifted(t):
    return np.abs(np.asarray(t) - 0.7)


@pytest.mark.parametrize("loss", [quartic, pinball, shifted])
@pytest.mark.parametrize("privacy", [md.ApproximateDP(1.0, 0.1), md.PureDP(1.0)])
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
        a = OptimalNoise(privacy=md.ApproximateDP(1.0, 0.1), loss=name).solve(cells=6)
        b = OptimalNoise(privacy=md.ApproximateDP(1.0, 0.1), loss=function).solve(cells=6)
        assert b.value == pytest.approx(a.value, rel=1e-3) and b.value >= a.value * (1 - 1e-9)
        assert b.lower_bound == pytest.approx(a.lower_bound, rel=1e-2)
        assert b.lower_bound <= a.value


@pytest.mark.parametrize("sensitivity", [1e-12, 1e12, 1e60])
def test_the_sensitivity_is_only_a_unit(sensitivity) -> None:
    a, b = (OptimalNoise(md.ApproximateDP(1.0, 0.1), s, "squared").solve(cells=5) for s in (1.0, sensitivity))
    assert b.value == pytest.approx(sensitivity**2 * a.value, rel=1e-6)
    assert b.lower_bound == pytest.approx(sensitivity**2 * a.lower_bound, rel=1e-6)
    assert b.certificate.verify() and all(holds for *_, holds in verify(dumps(b)).rows)


def lost(gamma: Fraction, b: Fraction, shift: Fraction, growth: Fraction) -> Fraction:
    """∫[f(t) − e^ε f(t + s)]₊ dt of a staircase with steps of 1, from −6 to 6, level by level."""

    def level(t: Fraction) -> Fraction:
        return b ** (math.floor(abs(t)) + (abs(t) % 1 >= gamma)) * (1 - b) / (gamma + b * (1 - gamma)) / 2

    edges = {sign * (k + part) for k in range(6) for part in (0, gamma) for sign in (-1, 1)}
    cuts = sorted(edges | {edge - shift for edge in edges})
    pieces = ((y - x, (x + y) / 2) for x, y in pairwise(cuts))
    return sum(width * max(level(t) - growth * level(t + shift), 0) for width, t in pieces)


@pytest.mark.parametrize(
    "epsilon, delta, loss",
    [(8.0, 0.0, "absolute"), (6.0, 0.1, "squared"), (9.0, 1e-3, "absolute"), (40.0, 1e-9, "squared"), (20.0, 0.3, "squared")],
)  # fmt: skip
def test_large_epsilon(epsilon, delta, loss) -> None:
    """The staircase, with a point mass at 0 where δ counts: private at every shift level by level, bounded by the closed form."""
    result = OptimalNoise(md.ApproximateDP(epsilon, delta), sensitivity=0.3, loss=loss).solve(gap=0.05)
    noise, share = result.mechanism, delta if delta > 0.05 / 20 else 0.0
    gamma, b, s = Fraction(noise.parameters["gamma"]), Fraction(math.exp(-epsilon)), Fraction(share)
    pure = laws.staircase(epsilon, float(gamma), scale=0.3)
    known = 0.3 * math.exp(epsilon / 2) / math.expm1(epsilon) if loss == "absolute" else pure.var()
    assert result.gap <= 0.05 and result.value == pytest.approx((1 - share) * known, rel=1e-12)
    for less in (0.0, 1.0, 2.5):
        growth, stated = Fraction(math.exp(epsilon - less)), noise.privacy_profile(epsilon - less)
        found = [s + (1 - s) * lost(gamma, b, Fraction(k, 8), growth) for k in range(1, 9)]
        assert max(found) == found[-1] == pytest.approx(stated, rel=1e-9, abs=1e-12)
    assert noise.privacy_profile(epsilon) <= delta
    forged = [replace(result, value=result.value * (1 - 1e-9))]
    if share:
        more = md.AdditiveNoise(
            laws.answering_staircase(epsilon, float(gamma), share * 1.001, scale=0.3), 0.3
        )
        forged.append(replace(result, mechanism=more, value=more.variance))
        zeros = np.mean(noise.release(np.full(4000, 7.0)) == 7.0)
        assert "the answer is released without noise" in str(result)
        drawn, below = noise.law.rvs(20_000, random_state=1), (1 - share) / 2 - 0.01
        assert stats.kstest(drawn[drawn != 0], pure.cdf).pvalue > 1e-4
        assert np.mean(drawn == 0) == pytest.approx(share, abs=0.02)
        found = noise.law.cdf(noise.law.ppf([0.1, below, 0.5, 0.9]))
        assert found == pytest.approx([0.1, below, (1 + share) / 2, 0.9])
        assert noise.law.pdf(0.1) == pytest.approx((1 - share) * pure.pdf(0.1))
        assert zeros == pytest.approx(share, abs=5 * math.sqrt(share / 4000))
    for each in (result, *forged):
        held = all(holds for *_, holds in verify(dumps(each)).rows)
        assert held == each.certificate.verify() == (each is result)


@pytest.mark.parametrize("delta", [0.6, 0.8, 0.95])
def test_no_epsilon_at_all(delta) -> None:
    """At ε = 0 the optimum for |t| is 1 - δ: every interval of length Δ holds at most δ, and a spike reaches that."""
    result = OptimalNoise(md.ApproximateDP(1e-9, delta)).solve()
    assert result.lower_bound <= 1 - delta <= result.value * (1 + 1e-9)
    assert result.value == pytest.approx(1 - delta, rel=1e-2) and result.gap < 0.01


@pytest.mark.parametrize(
    "privacy, loss",
    [
        (md.ApproximateDP(1e-9, 1e-6), "absolute"),
        (md.ApproximateDP(200.0, 0.5), "squared"),
        (md.ApproximateDP(1.0, 1e-30), "squared"),
        (md.PureDP(1e-18), "squared"),
        (md.PureDP(20.0), "squared"),
    ],
    ids=str,
)
def test_every_magnitude_has_an_answer_and_an_honest_gap(privacy, loss) -> None:
    result = OptimalNoise(privacy, loss=loss).solve(gap=0.5, max_cells=4)
    assert 0 <= (result.lower_bound or 0.0) <= result.value < math.inf and result.certificate.verify()


# -- CellNoise as a law: distribution functions, exact sampling, exact privacy sums --------------------------

PLAIN = CellNoise(weights=(1, 4, 7, 2), width=0.5, start=-1.0, cells_per_shift=2)
SPIKED = CellNoise(weights=(2, 3, 2), width=1.0, start=-1.5, cells_per_shift=1, spike=3, spike_width=0.25)
TAILED = CellNoise(weights=(1, 2, 3, 3, 2, 1), width=0.5, start=-1.5, cells_per_shift=2, decay=Fraction(1, 3))
LAWS = [PLAIN, SPIKED, TAILED]


@pytest.mark.parametrize("law", LAWS)
def test_both_samplers_follow_the_law(law) -> None:
    fast = law.rvs(20_000, random_state=5)
    assert stats.kstest(fast, law.cdf).pvalue > 1e-4
    exact = law.release(np.zeros(4000))
    assert stats.kstest(exact, law.cdf).pvalue > 1e-4
    assert np.ndim(law.rvs(random_state=1)) == 0 and law.rvs((2, 3), random_state=1).shape == (2, 3)


@given(st.floats(-1e6, 1e6), st.floats(0, 1))
def test_rounding_never_moves_answers_further_apart_than_the_cells_reach(x, share) -> None:
    for law in LAWS:
        reach = law.cells_per_shift * law.width
        steps = []
        for answer in (Fraction(x), Fraction(x) + Fraction(reach) * Fraction(share)):
            steps.append(math.floor(answer / Fraction(law.step) + Fraction(1, 2)))
        assert 0 <= steps[1] - steps[0] <= law.cells_per_shift * (math.ceil(law.width / law.step) | 1)


def test_the_lattice_law_is_private_for_every_shift_in_steps() -> None:
    """Masses on a coarse lattice, every shift summed: none exceeds the sums over cells."""
    s, epsilon = 5, 0.4
    for law in (PLAIN, SPIKED):
        p = np.repeat(np.array(law.weights, dtype=float) / s, s)
        p[len(p) // 2] += law.spike
        p /= float(law.total)
        for d in range(1, law.cells_per_shift * s + 1):
            for here, there in ((p[:-d], p[d:]), (p[d:], p[:-d])):
                lost = p.sum() - here.sum()
                loss = np.maximum(here - math.exp(epsilon) * there, 0).sum() + lost
                assert loss <= float(law.exact_delta(epsilon)) + 1e-12


@settings(max_examples=60)
@given(st.lists(st.integers(0, 50), min_size=3, max_size=9), st.integers(1, 3), st.floats(0, 3))
def test_exact_sums_against_their_definition(weights, n, epsilon) -> None:
    if not any(weights):
        weights[0] = 1
    law = CellNoise(weights=tuple(weights), width=0.25, start=0.0, cells_per_shift=n)
    p = np.array(weights) / sum(weights)
    for k, value in law.hockey_stick(epsilon).items():
        moved = np.array([p[i + k] if 0 <= i + k < len(p) else 0.0 for i in range(len(p))])
        direct = np.maximum(p - math.exp(epsilon) * moved, 0).sum()
        assert float(value) == pytest.approx(direct, abs=1e-13)
    assert float(law.exact_delta(epsilon)) == pytest.approx(law.privacy_profile(epsilon), abs=1e-12)


# -- The staircase's dual in closed form: it meets the published optimum, lies below every law, and is checked twice


def best_bound(design: md.OptimalNoise) -> Bound:
    """The highest of the bounds that are tried."""
    found = [b for b in staircase(design, Clock(gap=1e-12)) if isinstance(b, Bound)]
    return max(found, key=lambda b: b.value, default=Bound(0.0))


losses = st.sampled_from(
    ["absolute", "squared", {"absolute": 1.0, "squared": 3.0}, {"absolute": 1e-6, "squared": 2e3}]
)


@settings(max_examples=25)
@given(st.floats(1e-4, 40.0), st.floats(1e-3, 1e3))
def test_the_bound_of_pure_noise_is_the_published_optimum(epsilon: float, sensitivity: float) -> None:
    """Geng and Viswanath: Δ e^{ε/2}/(e^ε - 1), step 1/(1 + e^{ε/2})."""
    design = md.OptimalNoise(md.PureDP(epsilon), sensitivity)
    bound, (_, step) = best_bound(design), StaircaseMultipliers.of(design, 0).highest
    best = sensitivity * math.exp(epsilon / 2) / math.expm1(epsilon)
    assert bound.proof.periods == 0 and bound.value == pytest.approx(float(bound.proof.level), rel=1e-15)
    assert best * (1 - 1e-11) <= bound.value <= best * (1 + 1e-12)
    assert float(step) == pytest.approx(1 / (1 + math.exp(epsilon / 2)), rel=1e-6)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.floats(0.2, 8.0), st.floats(-9.0, -0.5), losses, st.integers(1, 30), st.floats(0.5, 1.5))
def test_no_private_law_is_cheaper(
    epsilon: float, log_delta: float, loss: object, periods: int, share: float
) -> None:
    """Whatever level and periods: truncated Laplace noise, calibrated for the same (ε, δ), costs at least the bound."""
    delta, held = 10**log_delta, md.Loss.of(loss)
    r = math.expm1(epsilon) / (2 * delta)
    top = math.log1p(r) / epsilon
    mass = 2 * -math.expm1(-epsilon * top) / epsilon
    cost = 2 * integrate.quad(lambda t: float(held(t)) * math.exp(-epsilon * t) / mass, 0, top)[0]
    design = md.OptimalNoise(md.ApproximateDP(epsilon, delta), loss=loss)
    assert best_bound(design).value <= cost * (1 + 1e-9)
    multipliers = StaircaseMultipliers.of(design, periods)
    assert multipliers.bound(multipliers.highest[0] * Fraction(share)) <= cost * (1 + 1e-9)


@pytest.mark.parametrize(
    "epsilon, delta, loss", [(1.0, 0.2, "absolute"), (2.0, 0.05, "squared"), (0.5, 0.01, "absolute")]
)
def test_the_charge_of_delta_counts(epsilon: float, delta: float, loss: str) -> None:
    """Below a law that an LP found at a δ that pays, though the level itself lies above it."""
    design = md.OptimalNoise(md.ApproximateDP(epsilon, delta), loss=loss)
    pure = md.OptimalNoise(md.PureDP(epsilon), loss=loss)
    assert best_bound(design).value <= design.solve(cells=6).value < best_bound(pure).value


# -- Optimal noise on the whole numbers: the sheet's values, an independent program, every discrete family, exact release


def privacy(epsilon: float, delta: float) -> md.PureDP | md.ApproximateDP:
    return md.ApproximateDP(epsilon, delta) if delta else md.PureDP(epsilon)


@pytest.mark.parametrize(
    "epsilon, delta, change, variance",
    [
        (1, 0.01, 1, 1.5163), (1, 0.1, 1, 0.7976), (0.5, 0.05, 1, 2.955), (2, 0.01, 1, 0.3300), (1, 0.05, 3, 9.895),
        (1, 1e-6, 1, 1.8411),
    ],
)  # fmt: skip
def test_reference_table(epsilon, delta, change, variance) -> None:
    result = OptimalNoise(privacy(epsilon, delta), change, "squared", integer=True).solve(time_limit=2.0)
    assert result.value == pytest.approx(variance, rel=1e-4) and result.gap <= 1e-6
    assert result.status is Status.OPTIMAL and result.certificate.verify()
    assert result.mechanism.var() == pytest.approx(result.value, rel=1e-9)
    account = verify(dumps(result))
    assert all(holds for *_, holds in account.rows)
    assert str(result.mechanism_class) == "every additive whole-number noise"


@pytest.mark.parametrize(
    "epsilon, delta, change, loss",
    [
        (2, 1e-3, 3, {"absolute": 1, "squared": 0.3}),
        (1.5, 0.01, 1, lambda t: np.maximum(3 * t, -t)),
        (1, 0.02, 2, lambda t: np.abs(t) ** 1.5),
    ],
)
def test_an_independent_program_finds_the_same(epsilon, delta, change, loss) -> None:
    result = OptimalNoise(privacy(epsilon, delta), change, loss, integer=True).solve(gap=1e-6)
    places = np.arange(-15 * change, 15 * change + 1.0)
    found = least_noise(md.Loss.of(loss)(places), [(epsilon, delta)], range(1, change + 1))
    assert result.value == pytest.approx(found, rel=2e-6) and result.lower_bound <= found * (1 + 1e-7)


@pytest.mark.parametrize("epsilon, change", [(1.0, 3), (0.3, 5), (4.0, 4), (22.0, 3), (30.0, 1), (200.0, 3)])
def test_pure_noise_is_the_discrete_staircase(epsilon, change) -> None:
    """Geng and Viswanath (2016): the best first fall of the staircase on the whole numbers."""
    j = np.arange(200 * change)
    costs = []
    for r in range(1, change + 1):
        p = np.exp(-epsilon * (j // change + (j % change >= r)))
        costs.append(2 * float(p @ j**2) / (2 * p.sum() - 1))
    result = OptimalNoise(md.PureDP(epsilon), change, "squared", integer=True).solve(gap=1e-6)
    assert (
        result.value == pytest.approx(min(costs), rel=1e-8 if epsilon < 20 else 1e-6) and result.gap <= 1e-5
    )
    assert result.certificate.verify() and all(holds for *_, holds in verify(dumps(result)).rows)


QUESTIONS = st.tuples(
    st.floats(0.1, 4.0), st.one_of(st.just(0.0), st.floats(-9, -0.5).map(lambda x: 10**x)), st.integers(1, 6)
)


@settings(max_examples=8)
@given(QUESTIONS)
def test_no_known_noise_is_better_and_none_is_below_the_bound(question) -> None:
    """Privacy at every shift and the cost by the masses alone; discrete Laplace noise, and a linear program of noise that ends."""
    epsilon, delta, change = question
    design = OptimalNoise(privacy(epsilon, delta), change, "squared", integer=True)
    result = design.solve(gap=1e-6)
    assert [*whole_noise(design, result)] == [] and result.gap <= 2e-5
    assert result.mechanism.exact_delta(epsilon) <= Fraction(delta)


def test_release_is_exact_whatever_the_size() -> None:
    law = IntegerNoise((1, 2, 4, 2, 1), -2, 1)
    for x in (0, -(10**40), 2**63 - 1, 2**200):
        y = law.release(x)
        assert type(y) is int and abs(y - x) <= 2
    drawn = law.release(np.full(100_000, 2**60)) - 2**60
    assert drawn.dtype == np.int64
    seen = np.bincount(drawn + 2, minlength=5) / drawn.size
    assert seen == pytest.approx(np.array([1, 2, 4, 2, 1]) / 10, abs=0.01)
    assert law.release(np.array([2**64 - 1], dtype=np.uint64))[0] >= 2**62 - 2
    assert law.release(np.array([1.0, 5.0])).dtype == float
    large = law.release([2**64 - 1, 2**62 + 9, 1])  # NumPy reads doubles
    assert [abs(y - x) <= 2 for y, x in zip(large, (2**64 - 1, 2**62 + 9, 1))] == [True] * 3
    assert law.release([1, 2]).dtype == np.int64


def test_noise_that_is_not_whole_may_cost_less_than_the_bound() -> None:
    """±½ with equal probability keeps (1, ½) at changes by 1 and costs ¼; no whole-number noise does."""
    result = OptimalNoise(md.ApproximateDP(1, 0.5), loss="squared", integer=True).solve()
    assert result.lower_bound == pytest.approx(1 / (1 + math.e), rel=1e-9) and result.lower_bound > 0.25

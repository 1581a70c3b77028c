"""Non-identical noise: closed forms against the convex model, exact safety, published decibels, bad input."""

from __future__ import annotations

import itertools
import math
import os
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
from campaign.noise_oracles import mixed_delta
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

import mechdesign as md
from mechdesign.accounting.gaussian import gaussian_mu
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.noise import separable
from mechdesign.noise.scales_solving import mix_of, worst_mix
from mechdesign.noise.separable import AllChanges, gini, layer_profile, majorizes
from mechdesign.problem.law_moments import absolute_moment
from mechdesign.verifier.verify import verify

PRIVACY = md.ApproximateDP(0.5, 1e-6)
NIGHTLY = bool(os.environ.get("MECHDESIGN_NIGHTLY"))
I20 = np.arange(1, 21)
PROFILES = {
    "linear": I20 / 1.0,
    "quadratic": I20**2.0,
    "exponential": np.exp(I20),
    "one-hot": (I20 == 20) * 1.0,
}

orders = st.one_of(st.sampled_from([1, 2, 3, 4]), st.floats(1, 4))
noises = st.sampled_from(["gaussian", "laplace"])


def consumed(result) -> Fraction:
    """What the proof says that the worst change consumes of the budget, in fractions."""
    (proof,) = result.proofs
    return Fraction(separable.consumed(result.design.requirement, result.mechanism.scales, proof.price(0)))


@pytest.mark.parametrize(
    "noise, expected",
    [("gaussian", (1.145, 2.442, 9.658, 13.010)), ("laplace", (0.546, 1.390, 7.609, 13.010))],
)
def test_published_decibels(noise: str, expected: tuple[float, ...]) -> None:
    privacy = PRIVACY if noise == "gaussian" else md.PureDP(0.5)
    for profile, db in zip(PROFILES.values(), expected):
        design = md.NoiseAllocation(noise=noise, sensitivities=profile, privacy=privacy)
        frame = design.compare(design.solve())
        assert frame["dB"].iloc[2] == pytest.approx(db, abs=0.0006)


def test_saturation_of_the_exponential_profile() -> None:
    lam = np.exp(np.arange(1, 60) - 60.0)
    gaussian = md.NoiseAllocation(noise="gaussian", sensitivities=lam / np.linalg.norm(lam), privacy=PRIVACY)
    laplace = md.NoiseAllocation(noise="laplace", sensitivities=lam / lam.sum(), privacy=md.PureDP(0.5))
    assert 10 * math.log10(gaussian.solve().value) == pytest.approx(21.477, abs=0.0006)
    # The paper prints 14.243 dB and, in the same sentence, "5.4 dB above" the one-hot 10 log10(2/ε²) = 9.031 dB.
    # Only the second is right: the series sums to 14.432 dB, of which 14.243 swaps digits.
    limit = 2 * (1 - math.exp(-1)) ** 2 / (1 - math.exp(-2 / 3)) ** 3 / 0.25
    assert laplace.solve().value == pytest.approx(limit, rel=1e-9)
    assert 10 * math.log10(limit) == pytest.approx(14.432, abs=0.0006)
    assert 10 * math.log10(limit) - 10 * math.log10(2 / 0.25) == pytest.approx(5.4, abs=0.05)


def test_laplace_loses_to_gaussian_from_nine_equal_coordinates_on() -> None:
    def wins(k: int, profile: np.ndarray) -> bool:
        lam = profile / np.linalg.norm(profile)
        a = md.NoiseAllocation(noise="laplace", sensitivities=lam, privacy=md.PureDP(0.5)).solve().value
        return a < md.NoiseAllocation(noise="gaussian", sensitivities=lam, privacy=PRIVACY).solve().value

    assert [wins(k, np.ones(k)) for k in (7, 8, 9, 10)] == [True, True, False, False]
    assert all(wins(k, np.exp(np.arange(k) - k)) for k in (2, 9, 20, 100))


def _water_filling(lam, w, p, m, budget, low, high):
    """Independent oracle: stationarity with clipping, the multiplier by a root finder."""

    def scales(log_y):
        return np.clip((np.exp(log_y) * m * lam**m / (p * w)) ** (1 / (p + m)), low, high)

    def excess(log_y):
        return np.log(((lam / scales(log_y)) ** m).sum() / budget)

    log_y = optimize.brentq(excess, -80, 80, xtol=1e-14) if excess(-80) > 0 else -80.0
    return scales(log_y)


@settings(max_examples=200 if NIGHTLY else 25)
@given(noises, orders, st.integers(0, 2**32))
def test_limits_against_water_filling(noise, p, seed) -> None:
    rng = np.random.default_rng(seed)
    k, m = int(rng.integers(2, 40)), 2 if noise == "gaussian" else 1
    lam, w = 10 ** rng.uniform(-4, 0, k), 10 ** rng.uniform(-2, 2, k)
    asked = {"privacy": PRIVACY, "loss": p, "weights": w}
    free = md.NoiseAllocation(noise=noise, sensitivities=lam, **asked).solve().mechanism.scales
    low = free * 10 ** rng.uniform(-1, 0.3, k)
    high = np.maximum(low, free * 10 ** rng.uniform(0.0, 1, k))
    design = md.NoiseAllocation(noise=noise, sensitivities=lam, lower=low, upper=high, **asked)
    result = design.solve()
    oracle = (
        absolute_moment(noise, p) * (w * _water_filling(lam, w, p, m, design.budget, low, high) ** p).sum()
    )
    assert result.value == pytest.approx(oracle, rel=1e-8)
    assert result.lower_bound <= oracle * (1 + 1e-12) and result.gap <= 2e-8
    assert np.all(result.mechanism.scales >= low) and np.all(result.mechanism.scales <= high)
    assert consumed(result) <= Fraction(design.budget)
    assert (result.audit()["slack"] >= 0).all()


def test_budgets_under_other_privacy() -> None:
    # One coordinate: exact, checked by integrating the hockey stick of the law itself.
    one = md.NoiseAllocation(
        noise="laplace", sensitivities=[0.0, 2.0], privacy=md.ApproximateDP(0.7, 0.1)
    ).solve()
    law = stats.laplace(scale=one.mechanism.scales[1])
    delta = integrate.quad(
        lambda t: max(law.pdf(t) - math.exp(0.7) * law.pdf(t + 2), 0), -60, 60, points=[-2, -1, 0], limit=500
    )[0]
    assert delta == pytest.approx(0.1, abs=1e-7)
    assert "exact" in " ".join(one.notes)
    several = md.NoiseAllocation("laplace", [1.0, 2.0], md.ApproximateDP(0.7, 0.1))
    assert (0.7 - math.log(0.9)) * (1 - 1e-14) <= several.budget <= 0.7 - math.log(0.9)
    assert md.NoiseAllocation("laplace", [1.0], md.ApproximateDP(0.7, 0.0)).budget == 0.7
    lam = np.random.default_rng(0).lognormal(size=100_000)
    many = md.NoiseAllocation("laplace", lam, md.PureDP(2.0)).solve()
    assert many.value == pytest.approx(2 * (lam ** (2 / 3)).sum() ** 3 / 2.0**2, rel=1e-9)
    normal = md.NoiseAllocation("gaussian", [3.0, 4.0], md.ZeroConcentratedDP(0.125)).solve().mechanism
    assert (np.array([3.0, 4.0]) ** 2 / (2 * normal.scales**2)).sum() == pytest.approx(0.125, rel=1e-12)


def test_compare_rows_follow_table_one() -> None:
    lam = np.array([1.0, 4.0, 9.0])
    result = md.NoiseAllocation(noise="gaussian", sensitivities=lam, privacy=PRIVACY).solve()
    mu = gaussian_mu(PRIVACY.epsilon, PRIVACY.delta)
    frame = result.design.compare(result).set_index("mechanism")
    assert frame.loc["i.i.d.", "scales"] == pytest.approx(np.full(3, math.sqrt(98.0) / mu))
    assert frame.loc["scale-perturb-rescale", "scales"] == pytest.approx(math.sqrt(3) * lam / mu)
    assert frame.loc["this allocation", "scales"] == pytest.approx(np.sqrt(14 * lam) / mu)
    assert frame.loc["this allocation", "MSE"] == pytest.approx(196 / mu**2)
    assert result.design.compare(result, overall=9.0)["MSE"].iloc[0] == pytest.approx(3 * 81 / mu**2)
    assert result.design.shares(result) == pytest.approx(lam / 14)
    with pytest.raises(md.DesignError, match="overall"):
        result.design.compare(result, overall=100.0)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_infeasible_limits_name_the_coordinate_and_the_least_budget(noise) -> None:
    def design(privacy: md.ApproximateDP) -> md.NoiseAllocation:
        return md.NoiseAllocation(noise, [1.0, 2.0, 0.0], privacy, upper=[9.0, 0.5, 1.0])

    with pytest.raises(md.InfeasibleError, match="coordinate 1") as caught:
        design(PRIVACY).solve()
    m, error = 2 if noise == "gaussian" else 1, caught.value
    assert error.least == pytest.approx((1 / 9) ** m + 4**m)
    above = design(md.ApproximateDP(error.smallest_epsilon * (1 + 1e-9), PRIVACY.delta))
    assert consumed(above.solve()) <= Fraction(above.budget)
    with pytest.raises(md.InfeasibleError):
        design(md.ApproximateDP(error.smallest_epsilon * (1 - 1e-6), PRIVACY.delta)).solve()


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("seed", range(4))
def test_the_declared_problem_is_the_one_that_is_solved(noise, seed) -> None:
    """P3 and P4 in the scales themselves, by CVXPY alone and by a named solver."""
    rng = np.random.default_rng(seed)
    k, privacy = int(rng.integers(1, 8)), PRIVACY if noise == "gaussian" else md.PureDP(0.5)
    lam = rng.uniform(0, 3, k) * (rng.random(k) < 0.8)
    lam[0] = 1.0
    more: dict[str, object] = {"loss": float(rng.choice([1, 1.5, 2, 4]))}
    if seed % 2:
        more |= {"weights": rng.uniform(0.5, 2, k), "lower": rng.uniform(0, 9, k), "upper": [1e4] * k}
    design = md.NoiseAllocation(noise, lam, privacy, **more)
    problem, result = design.problem(), design.solve()
    scale = problem.unknown
    assert scale.name() == ("sigma" if noise == "gaussian" else "beta")
    program = problem.to_cvxpy()
    program.solve(solver="CLARABEL")
    assert program.value == pytest.approx(result.value, rel=1e-6)
    assert scale.value[lam > 0] == pytest.approx(result.mechanism.scales[lam > 0], rel=1e-3)
    for other in (problem.solve(), design.solve("clarabel"), problem.subject_to().solve()):
        assert other.value == pytest.approx(result.value, rel=1e-8) and other.gap <= 1e-9
        assert other.certificate.verify()


@pytest.mark.parametrize("upper", [1.0, [2.0, 4.0, 4.0]])
def test_a_limit_exactly_on_the_budget_is_met(upper) -> None:
    """The budget consumed is summed in fractions where the sum in doubles is too close to tell."""
    lam = [1.0] if upper == 1.0 else [1.0, 1.0, 1.0]
    design = md.NoiseAllocation("laplace", lam, md.PureDP(1.0), upper=upper)
    result = design.solve()
    assert result.mechanism.scales.tolist() == np.broadcast_to(upper, len(lam)).tolist()
    assert consumed(result) == 1 and result.certificate.verify()
    with pytest.raises(md.InfeasibleError):
        md.NoiseAllocation("laplace", lam, md.PureDP(1.0), upper=np.array(upper) * (1 - 1e-15)).solve()


# -- Allocation under several bounds at once: against every corner, against programs declared otherwise, and at extremes

S = md.Sensitivity
PURE, NEAR = md.PureDP(0.8), md.ApproximateDP(1.0, 1e-6)
EACH = [1.0, 2.0, 3.0, 4.0, 0.1, 0.0, 0.5, 2.0]
BUDGETS = {"laplace": PURE, "gaussian": NEAR}
POWER = {"laplace": 1, "gaussian": 2}


def consumes(result, v: np.ndarray) -> np.ndarray:
    scales = np.where(result.mechanism.scales > 0, result.mechanism.scales, 1.0)
    return ((np.abs(v) / scales) ** result.design.requirement.exponent).sum(axis=-1)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize(("l0", "loss"), [(1, 1), (2, 2), (3, 3.5), (6, 2)])
def test_few_of_many_against_sums_of_the_largest(noise, l0, loss):
    """The same convex program with CVXPY's own top-c sum; and every corner spends at most the budget, one of them all of it."""
    weights = np.linspace(1.0, 2.5, len(EACH))
    design = md.NoiseAllocation(noise, S(each=EACH, l0=l0), BUDGETS[noise], loss=loss, weights=weights)
    result = design.solve()
    assert result.status == "best of its class" and result.certificate.verify()
    assert result.design.shares(result).sum() <= 1
    moved, m = np.flatnonzero(EACH), POWER[noise]
    corners = [
        np.isin(np.arange(len(EACH)), some) * np.array(EACH) for some in itertools.combinations(moved, l0)
    ]
    most = consumes(result, np.array(corners)).max()
    assert most <= design.budget * (1 + 1e-13) and most == pytest.approx(design.budget, rel=1e-12)
    u = cp.Variable(len(moved))  # log scales over those found: well conditioned
    losses = weights[moved] * result.mechanism.scales[moved] ** loss
    ratio = (np.array(EACH)[moved] / result.mechanism.scales[moved]) ** m / design.budget
    shares = cp.multiply(ratio, cp.exp(-m * u))
    program = cp.Problem(
        cp.Minimize(losses / losses.sum() @ cp.exp(loss * u)), [cp.sum_largest(shares, l0) <= 1]
    )
    program.solve(solver="CLARABEL", **dict.fromkeys(("tol_gap_rel", "tol_feas"), 1e-10))
    assert result.value == pytest.approx(result.value * program.value, rel=1e-7)


def test_one_of_several_numbers_is_one_number():
    """Where one coordinate changes, the (ε, δ) condition of one Laplace coordinate is exact: each gets its own least noise."""
    result = md.NoiseAllocation("laplace", S(each=[1.0, 4.0], l0=1), NEAR).solve()
    alone = [md.NoiseAllocation("laplace", [a], NEAR).solve().mechanism.scales[0] for a in (1.0, 4.0)]
    assert result.mechanism.scales == pytest.approx(alone, rel=1e-12)
    assert any("exact" in note for note in result.notes)


# -- Laplace noise on several coordinates under δ > 0: private by a sum, whatever the limits, and compared with Gaussian noise

A = md.ApproximateDP(1.0, 1e-6)


def allocated(noise, lam, privacy=A, **options):
    return md.NoiseAllocation(noise, lam, privacy, **options).solve()


def draw(seed: int):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 8))
    epsilon, delta = float(rng.choice([0.1, 0.3, 1, 2, 4])), float(rng.choice([1e-9, 1e-6, 1e-5, 1e-3]))
    more = {"weights": rng.uniform(0.1, 10, count)} if rng.random() < 0.3 else {}
    lam = rng.lognormal(0, rng.choice([0.3, 1, 2]), count)
    return lam, md.ApproximateDP(epsilon, delta), {"loss": float(rng.choice([1, 2, 3])), **more}


@pytest.mark.parametrize("seed", [11, *(pytest.param(s, marks=pytest.mark.slow) for s in range(12, 24))])
def test_draws(seed):
    """δ of the exact composition, by an oracle, keeps the budget; a mix of types costs no more than either."""
    lam, privacy, more = draw(seed)
    alone, mixed = (allocated(noise, lam, privacy, **more) for noise in ("laplace", "mixed"))
    ratios = lam / alone.mechanism.scales
    assert ratios.sum() == pytest.approx(privacy.epsilon - math.log1p(-privacy.delta), rel=1e-12)
    assert mixed_delta(ratios.tolist(), Fraction(0), privacy.epsilon) <= privacy.delta
    assert mixed.value <= min(alone.value, allocated("gaussian", lam, privacy, **more).value) * (1 + 1e-10)
    assert all(result.certificate.verify() for result in (alone, mixed))


@pytest.mark.parametrize(("lam", "word"), [(np.ones(20), "less"), ([1.0, 3.0], "more")])
def test_a_note_says_whether_gaussian_noise_needs_less(lam, word):
    result, gaussian, single = (
        allocated(n, v) for n, v in (("laplace", lam), ("gaussian", lam), ("laplace", [1.0, 0.0]))
    )
    assert (gaussian.value < result.value) == (word == "less")
    said = f"needs {word}: a loss of {gaussian.value:.6g} against {result.value:.6g}"
    assert said in " ".join(result.notes) and "Corollary 6" in str(result.mechanism_class)
    assert "Corollary 6" not in str(single.mechanism_class) + " ".join(
        single.notes
    )  # of one number the condition is exact


# -- A type for each coordinate: never worse than either type, private by composition, as independent quadrature has it


def test_a_mix_beats_both_types():
    """One large coordinate among twenty, three among seventeen: Laplace noise on them, Gaussian on the others."""
    lam, privacy = np.r_[1.0, 0.1 * np.ones(20)], md.ApproximateDP(3.0, 1e-6)
    mixed = allocated("mixed", lam, privacy)
    assert mixed.mechanism.kinds == ("laplace",) + ("gaussian",) * 20
    assert mixed.value <= 0.88 * min(
        allocated(noise, lam, privacy).value for noise in ("gaussian", "laplace")
    )
    assert mixed.value == pytest.approx(mixed.mechanism.mse) and mixed.mechanism.composed(privacy)[0] <= 1e-6
    assert mixed.checks()["holds"].all() and (mixed.audit()["slack"] >= 0).all()
    assert mixed.alternatives()["relative"].min() == 1.0 and mixed.lower_bound is None
    few = np.repeat([44.4, 1.0], [3, 14]), md.ApproximateDP(0.12, 1.8e-9)
    assert allocated("mixed", *few, loss=1).value <= 0.973 * allocated("laplace", *few, loss=1).value


# -- Several bounds at once for allocations and covariances --------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "norm"),
    [
        ({"linf": 1.0, "l0": 3}, np.sqrt(3)),
        ({"l2": 2.0}, 2.0),
        ({"l1": 2.0}, 2.0),
        ({"linf": 1.0, "l1": 2.5}, 1.5),
        ({"linf": 1.0}, np.sqrt(5)),
    ],
)
def test_one_scale_for_what_is_alike(bounds, norm):
    """The least common scale is the largest ℓ₂ norm over μ: no scales of other size do better, by symmetry."""
    result = md.NoiseAllocation.of_sensitivity("gaussian", S(**bounds), 5, A).solve()
    sigma = norm / np.sqrt(result.design.budget)
    assert result.mechanism.scales == pytest.approx(sigma, rel=1e-9) and result.certificate.verify()
    assert result.value == pytest.approx(5 * sigma**2, rel=1e-9)
    calibrated = md.Calibration("gaussian", A, S(**bounds), 5).solve()
    assert result.value / 5 == pytest.approx(calibrated.value, rel=1e-6)


# -- Disparity measures against their definitions, and what majorization says about the loss -----------------

loads_of = st.lists(st.floats(0.0, 100.0), min_size=1, max_size=30).filter(lambda v: max(v) > 1e-3)


@given(loads_of, st.integers(0, 2**32))
def test_a_robin_hood_transfer_is_majorized(lam, seed) -> None:
    rng = np.random.default_rng(seed)
    x = np.array(lam)
    i, j = rng.integers(0, len(x), 2)
    y, share = x.copy(), rng.uniform(0, 0.5)
    y[i], y[j] = x[i] + share * (x[j] - x[i]), x[j] + share * (x[i] - x[j])
    assert majorizes(x, y)
    assert gini(y) <= gini(x) + 1e-9


# -- What the worst change spends, and mixes of changes, against all vertices listed and against programs over them

NAMES = [("l1",), ("l2",), ("l0", "l1"), ("l0", "l2"), ("l1", "l2"), ("l0", "l1", "l2")]
BOUNDS = st.tuples(
    st.lists(st.floats(-1.5, 1.5), min_size=2, max_size=6),
    st.sampled_from([1, 2]),
    st.sampled_from(NAMES),
    st.floats(0.3, 0.95),
    st.integers(0, 2**31),
)
REQUIRED = {"laplace": md.PureDP(0.8), "gaussian": md.ApproximateDP(1.0, 1e-6)}


def drawn_set(drawn) -> tuple[AllChanges, np.random.Generator]:
    logs, exponent, names, part, seed = drawn
    sizes = np.exp(np.array(logs))
    top = np.sort(sizes)[::-1][: max(1, len(sizes) // 2 + 1)]
    bounds = {"l0": len(top), "l1": part * top.sum(), "l2": part * np.sqrt((top**2).sum())}
    given_ = {name: bounds[name] for name in names}
    most = min(given_.get("l1", math.inf), given_.get("l2", math.inf))
    return AllChanges(np.minimum(sizes, most), exponent, **given_), np.random.default_rng(seed)


def corners(asked: AllChanges) -> np.ndarray:
    """All changes that are whole in some coordinates and take what is left in at most one or two more."""
    a, found = asked.sizes, []
    l1, l2 = asked.l1 or math.inf, asked.l2 or math.inf
    for signs in itertools.product((0.0, 1.0), repeat=len(a)):
        v = np.array(signs) * a
        number, one, two = np.count_nonzero(v), v.sum(), (v * v).sum()
        if number > (asked.l0 or len(a)) or one > l1 * (1 + 1e-12) or two > l2**2 * (1 + 1e-12):
            continue
        found.append(v)
        rest = np.flatnonzero(v == 0)
        for order in itertools.permutations(rest, min(2, len(rest), (asked.l0 or len(a)) - int(number))):
            w = v.copy()
            for i in order:
                w[i] = max(min(a[i], l1 - w.sum(), math.sqrt(max(l2**2 - (w * w).sum(), 0.0))), 0.0)
                found.append(w.copy())
            left, squares = l1 - v.sum(), l2**2 - (v * v).sum()
            if len(order) == 2 and 2 * squares > left**2 and math.isfinite(squares):  # both norms are met
                w = v.copy()
                w[list(order)] = (left + np.array([1, -1]) * math.sqrt(2 * squares - left**2)) / 2
                if w.min() >= 0 and np.all(w <= a):
                    found.append(w)
    return np.array(found)


@settings(max_examples=40, deadline=None)
@given(BOUNDS, st.floats(0.5, 3.0))
def test_what_prices_prove_of_changes_they_prove_of_mixes(drawn, order):
    """Of the worst mix, and of random ones; a mix that is larger is none."""
    asked, rng = drawn_set(drawn)
    if not asked.bound_rows():
        return
    found = worst_mix(asked, order, None)
    assert asked.reached(found.mix, found.shares) and not asked.reached(found.mix * 1.001, found.shares)
    assert asked.reached(*mix_of(asked, *np.ones((2, np.count_nonzero(asked.sizes)))))
    m, stated = asked.exponent, [asked.l0 is not None, asked.l1 is not None, asked.l2 is not None]
    for _ in range(20):
        scales = asked.sizes * rng.uniform(0.5, 2.0, len(asked.sizes))
        prices = tuple(rng.exponential(0.5, 3) * stated)
        part = rng.uniform(0, 1, len(scales)) ** (1 / m)
        for mix in (found.mix, found.mix * part):
            assert asked.reached(mix, found.shares)
            assert ((mix / scales) ** m).sum() <= float(asked.consumed(scales, prices)) * (1 + 1e-12)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(BOUNDS, st.floats(0.5, 3.0))
def test_values_lie_between_bounds_of_all_corners(drawn, order):
    """The value is not below the least noise for all corners listed, found by another program."""
    asked, _ = drawn_set(drawn)
    noise = "gaussian" if asked.exponent == 2 else "laplace"
    bounds = md.Sensitivity(each=asked.sizes, l0=asked.l0, l1=asked.l1, l2=asked.l2)
    design = md.NoiseAllocation(noise, bounds, REQUIRED[noise], loss=order)
    result = design.solve()
    assert result.checks()["holds"].all() and result.certificate.verify()
    if design.bounds is None or (noise == "laplace" and asked.l2 is not None):
        return
    parts = (np.unique(corners(asked), axis=0) / result.mechanism.scales) ** asked.exponent / design.budget
    assert parts.sum(axis=1).max() <= 1 + 1e-12
    u, losses = cp.Variable(len(result.mechanism.scales)), result.mechanism.scales**order
    program = cp.Problem(
        cp.Minimize(losses / losses.sum() @ cp.exp(order * u)), [parts @ cp.exp(-asked.exponent * u) <= 1]
    )
    program.solve(solver="CLARABEL")
    assert program.value <= 1 + 1e-6 and result.gap <= 1e-6
    assert program.value >= 1 - 1e-5 or not asked.exact


# -- One family with parameters of its own on each coordinate: private by independent quadrature, checked twice, no dearer than one law for all


LAM = np.array([1.0, 0.0, 0.25])
ASKED = {
    "flipped_huber": md.ApproximateDP(1.0, 1e-3),
    "gennorm": md.ApproximateDP(1.0, 1e-3),
    "logistic": md.TradeOff([(0, 0.3), (1, 1e-3)]),
    "staircase": md.PureDP(1.0),
}


@pytest.fixture(
    scope="module", params=[n if n == "staircase" else pytest.param(n, marks=pytest.mark.slow) for n in ASKED]
)
def solved(request):
    return md.NoiseAllocation(request.param, LAM, ASKED[request.param], weights=[1.0, 1.0, 2.0]).solve()


def quadrature(law, change, epsilon):
    """δ(ε) of a product of densities for one change, by sums over a grid."""
    masses = []
    for k, size, moved in zip(law.which, law.sensitivities, change):
        if size:
            noise = law.units[k].law
            far = min(float(noise.support()[1]), 45 * noise.std()) + 1
            ends = np.linspace(-far, far, 3001)
            masses.append([np.diff(noise.cdf(ends + shift)) for shift in (0.0, moved / size)])
    (p, q), *rest = masses
    for other_p, other_q in rest:
        p, q = np.outer(p, other_p).ravel(), np.outer(q, other_q).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def test_it_is_private_and_hardly_more(solved):
    """The worst change is all of the sensitivities; of 5% more the requirement fails."""
    points = getattr(solved.design.privacy, "points", None) or [
        (solved.design.privacy.epsilon, getattr(solved.design.privacy, "delta", 0.0))
    ]

    def excess(change):
        return max(quadrature(solved.mechanism, change, e) - d for e, d in points)

    assert excess(LAM) <= 1e-6 and excess(1.05 * LAM) > 0
    assert excess(LAM * [1, 0, 0.5]) <= 1e-6 and excess(-LAM) <= 1e-6


def test_both_checks_prove_it_and_it_costs_no_more_than_one_law_for_all(solved):
    assert solved.certificate.verify() and all(holds for *_, holds in verify(dumps(solved)).rows)
    one = md.calibrate(solved.design.noise, privacy=solved.design.privacy, sensitivity=1.0, dimension=2)
    assert solved.value <= one.value * (LAM**2 @ [1, 1, 2]) * (1 + 1e-3)
    assert solved.value == pytest.approx(solved.mechanism.variance @ [1, 1, 2])
    assert loads(dumps(solved)).mechanism.kinds == (solved.design.noise, "none", solved.design.noise)


def test_a_release_is_of_the_same_law(solved):
    answers = np.array([3.0, 1.5, -2.0])
    drawn = solved.mechanism.release(np.tile(answers, (20_000, 1))) - answers
    assert (drawn[:, 1] == 0).all() and solved.mechanism.lattice_cost < 1e-5
    expected = solved.mechanism.variance[[0, 2]]
    assert drawn[:, [0, 2]].var(axis=0) == pytest.approx(expected, rel=0.1)
    assert np.abs(drawn[:, [0, 2]].mean(axis=0)) == pytest.approx(
        0, abs=5 * math.sqrt(expected.max() / 20_000)
    )


def test_the_frame_states_the_parameters_of_the_paper():
    """α_i and γ_i of flipped Huber noise are in the unit of their coordinate."""
    design = md.NoiseAllocation("flipped_huber", [1.0, 3.0], md.ApproximateDP(1.0, 1e-3))
    table = design.frame(design.solve(certify=False, time_limit=1e-3))
    assert table["alpha"].to_numpy() == pytest.approx((table["b"] * table["gamma"]).to_numpy())
    assert table["gamma"].to_numpy() == pytest.approx(table["scale"].to_numpy())


@pytest.mark.slow
def test_generalised_normal_noise_beats_both_types_and_their_mix():
    lam, privacy = np.arange(1, 9) / 8, md.ApproximateDP(3.0, 1e-6)
    found = md.NoiseAllocation("gennorm", lam, privacy).solve().value
    assert found <= 0.985 * md.NoiseAllocation("mixed", lam, privacy).solve().value


def test_one_coordinate_is_what_calibrate_answers():
    """In closed form, where a grid says twenty times the δ."""
    privacy = md.ApproximateDP(52.8, 1.3e-7)
    found = md.NoiseAllocation("osgt", [0.0, 2.0], privacy, loss=1).solve(time_limit=1e-3)
    one = md.noise.Calibration("osgt", privacy, 1.0, loss="absolute").solve(time_limit=1e-3)
    assert found.value == pytest.approx(2 * one.value) and found.certificate.verify()


@pytest.mark.parametrize("norm", [1.0, 1.5, 2.0, 4.0, np.inf])
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_layers_cover_every_change_within_the_clip(norm, noise) -> None:
    """Flat changes, changes of one coordinate, and random ones."""
    clips, sizes = [1.0, 2.0], [20, 3]
    profile, groups = layer_profile(clips, sizes, norm=norm, noise=noise)
    privacy = md.ApproximateDP(1.0, 1e-6) if noise == "gaussian" else md.PureDP(1.0)
    result = md.NoiseAllocation(noise=noise, sensitivities=profile, privacy=privacy, groups=groups).solve()
    m = 2 if noise == "gaussian" else 1
    rng = np.random.default_rng(0)
    worst = 0.0
    for clip, size, group in zip(clips, sizes, groups):
        changes = np.vstack([np.eye(size), np.ones((1, size)), rng.exponential(size=(50, size)) ** 3])
        changes *= clip / np.linalg.norm(changes, norm, axis=1, keepdims=True)
        spent = ((np.abs(changes) / result.mechanism.scales[group]) ** m).sum(axis=1)
        assert spent.max() <= ((profile[group] / result.mechanism.scales[group]) ** m).sum() * (1 + 1e-12)
        worst += spent.max()
    assert worst <= result.design.budget * (1 + 1e-12)

"""Non-identical noise: closed forms against the convex model, exact safety, published decibels, bad input."""

from __future__ import annotations

import math
import os
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

import mechdesign as md
from mechdesign.accounting.gaussian import gaussian_mu
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.model.scales import absolute_moment
from mechdesign.noise.allocation import NoiseAllocation
from mechdesign.noise.allocation_proofs import spent
from mechdesign.problem.privacy import ApproximateDP, PureDP, ZeroConcentratedDP
from mechdesign.problem.sensitivity import Sensitivity

PRIVACY = ApproximateDP(0.5, 1e-6)
NIGHTLY = bool(os.environ.get("MECHDESIGN_NIGHTLY"))
I20 = np.arange(1, 21)
PROFILES = {
    "linear": I20 / 1.0,
    "quadratic": I20**2.0,
    "exponential": np.exp(I20),
    "one-hot": (I20 == 20) * 1.0,
}

profiles = st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=60)
orders = st.one_of(st.sampled_from([1, 2, 3, 4]), st.floats(1, 4))
noises = st.sampled_from(["gaussian", "laplace"])
budgets = st.builds(ApproximateDP, st.floats(0.01, 10), st.floats(1e-12, 0.1))


def consumed(result) -> Fraction:
    """What the proof says that the worst change consumes of the budget, in fractions."""
    (proof,) = result.proofs
    return Fraction(spent(result.design.requirement, result.mechanism.scales, proof.price(0)))


@pytest.mark.parametrize(
    "noise, expected",
    [("gaussian", (1.145, 2.442, 9.658, 13.010)), ("laplace", (0.546, 1.390, 7.609, 13.010))],
)
def test_published_decibels(noise: str, expected: tuple[float, ...]) -> None:
    privacy = PRIVACY if noise == "gaussian" else PureDP(0.5)
    for profile, db in zip(PROFILES.values(), expected):
        design = NoiseAllocation(noise=noise, sensitivities=profile, privacy=privacy)
        frame = design.compare(design.solve())
        assert frame["dB"].iloc[2] == pytest.approx(db, abs=0.0006)


def test_saturation_of_the_exponential_profile() -> None:
    lam = np.exp(np.arange(1, 60) - 60.0)
    gaussian = NoiseAllocation(noise="gaussian", sensitivities=lam / np.linalg.norm(lam), privacy=PRIVACY)
    laplace = NoiseAllocation(noise="laplace", sensitivities=lam / lam.sum(), privacy=PureDP(0.5))
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
        a = NoiseAllocation(noise="laplace", sensitivities=lam, privacy=PureDP(0.5)).solve().value
        return a < NoiseAllocation(noise="gaussian", sensitivities=lam, privacy=PRIVACY).solve().value

    assert [wins(k, np.ones(k)) for k in (7, 8, 9, 10)] == [True, True, False, False]
    assert all(wins(k, np.exp(np.arange(k) - k)) for k in (2, 9, 20, 100))


def test_two_dimensional_laplace_errors() -> None:
    for epsilon, expected in (
        (0.5, 3.4283),
        (1, 1.7141),
        (1.5, 1.1428),
        (2, 0.8571),
        (2.5, 0.6857),
        (3, 0.5714),
    ):
        result = NoiseAllocation("laplace", [0.85, 0.15], PureDP(epsilon), loss=1).solve()
        assert result.value == pytest.approx(expected, abs=6e-5)
        assert result.design.compare(result)["loss"].iloc[0] == pytest.approx(2 / epsilon, rel=1e-12)


@pytest.mark.slow
@settings(max_examples=500 if NIGHTLY else 40)
@given(noises, profiles, orders, budgets)
def test_closed_form_agrees_with_clarabel(noise, lam, p, privacy) -> None:
    design = NoiseAllocation(noise=noise, sensitivities=lam, privacy=privacy, loss=p)
    formula, model = design.solve("closed-form"), design.solve("clarabel")
    assert abs(formula.value - model.value) <= 1e-8 * formula.value
    assert formula.lower_bound <= formula.value and formula.gap <= 1e-12
    # The model's own bound comes from another route and must not pass the optimum.
    assert model.lower_bound <= formula.value * (1 + 1e-12) and model.gap <= 1e-8


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
    free = NoiseAllocation(noise=noise, sensitivities=lam, **asked).solve().mechanism.scales
    low = free * 10 ** rng.uniform(-1, 0.3, k)
    high = np.maximum(low, free * 10 ** rng.uniform(0.0, 1, k))
    design = NoiseAllocation(noise=noise, sensitivities=lam, lower=low, upper=high, **asked)
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
    one = NoiseAllocation(noise="laplace", sensitivities=[0.0, 2.0], privacy=ApproximateDP(0.7, 0.1)).solve()
    law = stats.laplace(scale=one.mechanism.scales[1])
    delta = integrate.quad(
        lambda t: max(law.pdf(t) - math.exp(0.7) * law.pdf(t + 2), 0), -60, 60, points=[-2, -1, 0], limit=500
    )[0]
    assert delta == pytest.approx(0.1, abs=1e-7)
    assert "exact" in " ".join(one.notes)
    several = NoiseAllocation("laplace", [1.0, 2.0], ApproximateDP(0.7, 0.1))
    assert (0.7 - math.log(0.9)) * (1 - 1e-14) <= several.budget <= 0.7 - math.log(0.9)
    assert NoiseAllocation("laplace", [1.0], ApproximateDP(0.7, 0.0)).budget == 0.7
    lam = np.random.default_rng(0).lognormal(size=100_000)
    many = NoiseAllocation("laplace", lam, PureDP(2.0)).solve()
    assert many.value == pytest.approx(2 * (lam ** (2 / 3)).sum() ** 3 / 2.0**2, rel=1e-9)
    normal = NoiseAllocation("gaussian", [3.0, 4.0], ZeroConcentratedDP(0.125)).solve().mechanism
    assert (np.array([3.0, 4.0]) ** 2 / (2 * normal.scales**2)).sum() == pytest.approx(0.125, rel=1e-12)


def test_compare_rows_follow_table_one() -> None:
    lam = np.array([1.0, 4.0, 9.0])
    result = NoiseAllocation(noise="gaussian", sensitivities=lam, privacy=PRIVACY).solve()
    mu = gaussian_mu(PRIVACY.epsilon, PRIVACY.delta)
    frame = result.design.compare(result).set_index("mechanism")
    assert frame.loc["i.i.d.", "scales"] == pytest.approx(np.full(3, math.sqrt(98.0) / mu))
    assert frame.loc["scale-perturb-rescale", "scales"] == pytest.approx(math.sqrt(3) * lam / mu)
    assert frame.loc["this allocation", "scales"] == pytest.approx(np.sqrt(14 * lam) / mu)
    assert frame.loc["this allocation", "MSE"] == pytest.approx(196 / mu**2)
    assert result.design.compare(result, overall=9.0)["MSE"].iloc[0] == pytest.approx(3 * 81 / mu**2)
    assert result.design.spent(result) == pytest.approx(lam / 14)
    with pytest.raises(DesignError, match="overall"):
        result.design.compare(result, overall=100.0)


@given(noises, st.floats(0.5, 5))
@settings(max_examples=30)
def test_absolute_moments_against_quadrature(noise, p) -> None:
    law = stats.norm if noise == "gaussian" else stats.laplace
    half = sum(integrate.quad(lambda t: t**p * law.pdf(t), *ends)[0] for ends in ((0, 10), (10, 80)))
    assert absolute_moment(noise, p) == pytest.approx(2 * half, rel=1e-7)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_infeasible_limits_name_the_coordinate_and_the_least_budget(noise) -> None:
    def design(privacy: ApproximateDP) -> NoiseAllocation:
        return NoiseAllocation(noise, [1.0, 2.0, 0.0], privacy, upper=[9.0, 0.5, 1.0])

    with pytest.raises(InfeasibleError, match="coordinate 1") as caught:
        design(PRIVACY).solve()
    m, error = 2 if noise == "gaussian" else 1, caught.value
    assert error.least == pytest.approx((1 / 9) ** m + 4**m)
    above = design(ApproximateDP(error.smallest_epsilon * (1 + 1e-9), PRIVACY.delta))
    assert consumed(above.solve()) <= Fraction(above.budget)
    with pytest.raises(InfeasibleError):
        design(ApproximateDP(error.smallest_epsilon * (1 - 1e-6), PRIVACY.delta)).solve()


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "mixed"])
@pytest.mark.parametrize("bounds", [None, Sensitivity(each=[60.99, 1.0])])
def test_a_loss_that_overflows_is_refused_by_name(noise, bounds) -> None:
    with pytest.raises(DesignError, match=r"loss = 40.*overflow"):
        NoiseAllocation(noise, [60.99, 1.0], ApproximateDP(1.7e-6, 1e-12), loss=40, bounds=bounds).solve()


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("seed", range(4))
def test_the_declared_problem_is_the_one_that_is_solved(noise, seed) -> None:
    """P3 and P4 in the scales themselves, by CVXPY alone and by a named solver."""
    rng = np.random.default_rng(seed)
    k, privacy = int(rng.integers(1, 8)), PRIVACY if noise == "gaussian" else PureDP(0.5)
    lam = rng.uniform(0, 3, k) * (rng.random(k) < 0.8)
    lam[0] = 1.0
    more: dict[str, object] = {"loss": float(rng.choice([1, 1.5, 2, 4]))}
    if seed % 2:
        more |= {"weights": rng.uniform(0.5, 2, k), "lower": rng.uniform(0, 9, k), "upper": [1e4] * k}
    design = NoiseAllocation(noise, lam, privacy, **more)
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
    design = NoiseAllocation("laplace", lam, PureDP(1.0), upper=upper)
    result = design.solve()
    assert result.mechanism.scales.tolist() == np.broadcast_to(upper, len(lam)).tolist()
    assert consumed(result) == 1 and result.certificate.verify()
    with pytest.raises(InfeasibleError):
        NoiseAllocation("laplace", lam, PureDP(1.0), upper=np.array(upper) * (1 - 1e-15)).solve()


@pytest.mark.slow
@given(
    st.floats(-300, 2.8).map(lambda e: 10.0**e),
    st.floats(-15.9, -1).map(lambda e: 1 - 10.0**e) | st.just(1e-6),
)
def test_gaussian_noise_passes_its_own_checks_where_the_requirement_is_extreme(epsilon, delta) -> None:
    privacy = ApproximateDP(epsilon, delta)
    assert NoiseAllocation("gaussian", [1.0, 2.0], privacy).solve().certificate.verify()
    assert md.MatrixMechanism(md.Workload.identity(2), privacy).solve().certificate.verify()
    single = NoiseAllocation("gaussian", [1.0], privacy).solve()
    other = md.MatrixMechanism(md.Workload.identity(1), privacy).solve()
    assert other.value == pytest.approx(single.value, rel=1e-10)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_an_infinite_upper_limit_is_none(noise) -> None:
    privacy = PureDP(1) if noise == "laplace" else PRIVACY
    plain = NoiseAllocation(noise, [1.0, 2.0], privacy).solve()
    for upper in (np.inf, [np.inf, 1e4]):
        result = NoiseAllocation(noise, [1.0, 2.0], privacy, upper=upper).solve()
        assert result.certificate.verify() and result.checks()["holds"].all()
        assert result.value == pytest.approx(plain.value, rel=1e-9)

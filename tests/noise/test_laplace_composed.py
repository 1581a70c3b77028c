"""Laplace noise under exact composition: δ by quadrature, the least loss by a grid of two ratios, draws of unequal sensitivities."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from campaign.noise_oracles import mixed_delta
from scipy import integrate, optimize

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.noise.allocation.composed import LaplaceProblem
from mechdesign.typing import Status
from mechdesign.verifier.verify import verify

A = md.ApproximateDP(1.0, 1e-6)


def laplace(lam, privacy=A, **options):
    return md.NoiseAllocation("laplace", lam, privacy, **options).solve()


def one(level: float, ratio: float) -> float:
    """δ of one coordinate at any level of the privacy loss."""
    if level >= ratio:
        return 0.0
    return -math.expm1(level) if level <= -ratio else -math.expm1((level - ratio) / 2)


def two(epsilon: float, a: float, b: float) -> float:
    """δ of two Laplace coordinates: E over the loss of the first of what the second leaves."""
    ends = 0.5 * one(epsilon - a, b) + 0.5 * math.exp(-a) * one(epsilon + a, b)
    cuts = [t for t in ((a + b - epsilon) / 2, (a - b - epsilon) / 2) if 0 < t < a]
    inner = integrate.quad(
        lambda t: 0.5 * math.exp(-t) * one(epsilon - (a - 2 * t), b), 0, a, points=cuts or None, epsabs=1e-17
    )[0]
    return ends + inner


@pytest.mark.parametrize(
    ("count", "privacy", "most"),
    [(10, md.ApproximateDP(1.0, 1e-3), 1_158.0), pytest.param(20, A, 12_082.0, marks=pytest.mark.slow)],
)
def test_equal_sensitivities(count, privacy, most):
    """A coordinate costs 115.8 and 604.06; Corollary 6 takes 199.6 and 800."""
    result = laplace(np.ones(count), privacy)
    assert result.lower_bound <= result.value <= most and result.gap < 1e-5
    assert np.ptp(result.mechanism.scales) == 0 and result.checks()["holds"].all()
    identical = md.calibrate("laplace", privacy=privacy, sensitivity=1.0, dimension=count).value * count
    assert result.lower_bound <= identical and result.value <= identical * (1 + 1e-4)
    delta = mixed_delta([1 / result.mechanism.scales[0]] * count, Fraction(0), privacy.epsilon)
    assert (
        0.3 * privacy.delta <= delta <= privacy.delta
    )  # a sum from below, coarse where a loss is no point of its grid
    assert all(holds for *_, holds in verify(dumps(result)).rows)


@pytest.mark.parametrize(
    "privacy", [md.ApproximateDP(1.0, 1e-3), md.ApproximateDP(0.3, 1e-2), md.ApproximateDP(2.0, 0.05)]
)
@pytest.mark.parametrize("lam", [[1.0, 1.0], [1.0, 3.0]])
def test_two_coordinates_against_quadrature(lam, privacy):
    """The least loss over all pairs of ratios whose δ, by quadrature, is the budget."""
    result = laplace(lam, privacy)
    ratios = np.array(lam) / result.mechanism.scales
    delta = two(privacy.epsilon, *ratios)
    assert privacy.delta * (1 - 1e-3) <= delta <= privacy.delta * (1 + 1e-12)
    most = privacy.epsilon - 2 * math.log1p(-privacy.delta)

    def loss(first: float) -> float:
        second = optimize.brentq(lambda b: two(privacy.epsilon, first, b) - privacy.delta, 1e-9, most)
        return 2 * ((lam[0] / first) ** 2 + (lam[1] / second) ** 2)

    bounds = (0.05 * most, 0.95 * most)
    best = optimize.minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-7}).fun
    assert result.lower_bound <= best * (1 + 1e-9) and result.value <= best * (1 + 2e-4)
    assert result.value >= best * (1 - 1e-9)


def draw(seed: int):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 8))
    privacy = md.ApproximateDP(
        float(rng.choice([0.1, 0.3, 1, 2, 4])), float(rng.choice([1e-9, 1e-6, 1e-5, 1e-3]))
    )
    more = {"weights": rng.uniform(0.1, 10, count)} if rng.random() < 0.3 else {}
    return (
        rng.lognormal(0, rng.choice([0.3, 1, 2]), count),
        privacy,
        {"loss": float(rng.choice([1, 2, 3])), **more},
    )


def faults(seed: int) -> list[str]:
    """What does not hold of a draw: of Laplace noise alone, by the sufficient condition of Corollary 6, and with mixed types."""
    lam, privacy, more = draw(seed)
    alone = laplace(lam, privacy, **more)
    mixed = md.NoiseAllocation("mixed", lam, privacy, **more).solve()
    sufficient = laplace(lam, privacy, **more, accounting="corollary6")
    delta = mixed_delta((lam / alone.mechanism.scales).tolist(), Fraction(0), privacy.epsilon)
    moment = math.gamma(more["loss"] + 1)
    cost = moment * (more.get("weights", 1.0) * alone.mechanism.scales ** more["loss"]).sum()
    holds = {
        "less than by Corollary 6": alone.value < sufficient.value,
        "mixed types no worse": mixed.value <= alone.value,
        "the same where all are Laplace": mixed.value == alone.value or not mixed.mechanism.laplace.all(),
        "lower bound": alone.lower_bound <= alone.value,
        "proofs": alone.certificate.verify() and mixed.certificate.verify(),
        "budget": delta <= privacy.delta * (1 + 1e-9),
        "cost": alone.value == pytest.approx(cost, rel=1e-12),
    }
    return [f"{seed}: {what}" for what, held in holds.items() if not held]


@pytest.mark.parametrize("seed", [11, *(pytest.param(s, marks=pytest.mark.slow) for s in range(12, 60))])
def test_draws_of_unequal_sensitivities(seed):
    assert faults(seed) == []


def test_the_lower_bound_is_of_all_laplace_noise():
    """No law that keeps (ε, δ) costs less: those of Corollary 6, of one scale, and of random ratios scaled to the budget."""
    rng = np.random.default_rng(5)
    privacy = md.ApproximateDP(0.5, 1e-2)
    for _ in range(20):
        lam = rng.lognormal(0, 1, 2)
        problem = LaplaceProblem(lam**2, np.ones(2, dtype=int), 2.0, privacy)
        shape = rng.uniform(0.05, 1, 2)
        factor = optimize.brentq(
            lambda t, shape=shape: two(0.5, *(t * shape)) - 1e-2, 1e-3, 0.53 / shape.max()
        )
        assert problem.lower_bound() <= float((lam**2 / (factor * shape) ** 2).sum()) * (1 + 1e-9)


def test_groups_and_coordinates_without_change():
    lam = [1.0, 2.0, 2.0, 1.0, 0.0, 2.0]
    result = laplace(lam, groups=[[0, 3], [1, 2, 4], [5]], weights=[1, 2, 3, 4, 5, 6.0])
    scales = result.mechanism.scales
    assert scales[0] == scales[3] and scales[1] == scales[2] == scales[4] and result.certificate.verify()
    assert (
        result.lower_bound
        <= result.value
        < laplace(
            lam, groups=[[0, 3], [1, 2, 4], [5]], weights=[1, 2, 3, 4, 5, 6.0], accounting="corollary6"
        ).value
    )
    assert laplace([1.0, 0.0, 2.0]).mechanism.kinds == ("laplace", "none", "laplace")


def test_corollary_6_says_what_it_is():
    result = laplace(np.ones(20), accounting="corollary6")
    assert result.value == pytest.approx(15_999.968, rel=1e-6) and result.status is not Status.OPTIMAL
    assert "Corollary 6" in str(result.among) and "sufficient" in result.notes[0]
    # where δ is 0, or one coordinate changes, it is no other condition
    for lam, privacy in (([1.0, 2.0], md.PureDP(1.0)), ([1.0, 0.0], A)):
        assert laplace(lam, privacy, accounting="corollary6").value == laplace(lam, privacy).value


BOX = md.Sensitivity(each=[1.0, 2.0, 3.0], l0=2)


@pytest.mark.parametrize(
    "change", [{"lower": 1.0}, {"upper": 1e9}, {"sensitivities": BOX}, {"groups": [[0, 1], [2]]}]
)
def test_what_has_no_allocation_under_exact_composition(change):
    asked = {"noise": "laplace", "sensitivities": [1.0, 2.0, 3.0], "privacy": A, **change}
    with pytest.raises(md.DesignError, match="corollary6"):
        md.NoiseAllocation(**asked)
    assert md.NoiseAllocation(**asked, accounting="corollary6").solve().certificate.verify()


def test_clipped_layers_need_a_sum():
    """A change of one coordinate by the whole clip consumes as much of a sum as a flat one, and more of an exact composition."""
    profile, _ = md.noise.layer_profile([1.0, 2.0], [4, 1], norm=1, noise="laplace")
    with pytest.raises(md.DesignError, match="corollary6"):
        md.NoiseAllocation("laplace", profile, A)
    assert md.NoiseAllocation("laplace", profile, A, accounting="corollary6").solve().value > 0

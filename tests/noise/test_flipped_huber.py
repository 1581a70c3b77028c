"""Flipped Huber noise beside what it joins: an oracle by integrals of the density, and the study's table against it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, optimize, stats

import mechdesign as md

RESULTS = Path(__file__).parents[2] / "results" / "flipped-huber"


def least_variance(epsilon: float, delta: float, alphas: tuple[float, float]) -> float:
    """The least variance over α, γ at the root of δ: sums over a grid of the density as the paper prints it, Δ = 1."""

    def law(alpha: float, gamma: float) -> tuple[float, float]:
        t = np.linspace(-12 * gamma - 2 * alpha, 12 * gamma + 2 * alpha, 40_001)

        def weight(x: np.ndarray) -> np.ndarray:
            rho = np.where(np.abs(x) <= alpha, alpha * np.abs(x), (x * x + alpha * alpha) / 2)
            return np.exp(-rho / gamma**2)

        here = weight(t)
        whole = integrate.trapezoid(here, t)
        over = np.maximum(here - math.exp(epsilon) * weight(t + 1), 0)
        return integrate.trapezoid(over, t) / whole, integrate.trapezoid(here * t * t, t) / whole

    def variance(alpha: float) -> float:
        gamma = optimize.brentq(
            lambda g: law(alpha, g)[0] / delta - 1, 0.2 * alpha, 5 * alpha, xtol=1e-7 * alpha
        )
        return law(alpha, gamma)[1]

    return float(
        optimize.minimize_scalar(variance, bounds=alphas, method="bounded", options={"xatol": 1e-3}).fun
    )


def truncated_variance(epsilon: float, delta: float) -> float:
    """Of Laplace noise of scale 1/ε on [−A, A], A = log(1 + (e^ε − 1)/2δ)/ε, by quadrature."""
    reach = math.log1p(math.expm1(epsilon) / (2 * delta)) / epsilon
    second, whole = (
        integrate.quad(lambda t, p=p: t**p * math.exp(-epsilon * t), 0, reach)[0] for p in (2, 0)
    )
    return second / whole


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "delta", "alphas", "documented"),
    [
        (0.03, 1e-3, (20, 80), 1344.5),
        (0.3, 0.01, (2, 9), 14.03),
        (1.0, 0.03, (0.6, 3), 1.431),
    ],
)
def test_published_table_of_one_number_is_what_integrals_find(
    epsilon: float, delta: float, alphas: tuple[float, float], documented: float
) -> None:
    table = pd.read_csv(RESULTS / "one_number.csv").set_index(["epsilon", "delta"])
    row = table.loc[(epsilon, delta)]
    oracle = least_variance(epsilon, delta, alphas)
    assert row["flipped Huber"] == pytest.approx(oracle, rel=2e-4)
    assert oracle == pytest.approx(documented, rel=5e-4)
    assert row["truncated Laplace"] == pytest.approx(truncated_variance(epsilon, delta), rel=1e-6)
    assert row["optimum, from"] <= row["optimum, to"] <= row["truncated Laplace"] <= row["flipped Huber"]


@pytest.mark.parametrize(
    ("epsilon", "delta", "k"), [(10.0, 0.1, 1), (46.0, 4.5e-4, 1), (20.0, 0.2, 3), (0.05, 0.1, 2)]
)
def test_flipped_huber_noise_is_never_worse_than_its_limits(epsilon: float, delta: float, k: int) -> None:
    ours, *limits = (
        md.calibrate(family, privacy=md.ApproximateDP(epsilon, delta), sensitivity=1.0, dimension=k).value
        for family in ("flipped_huber", "laplace", "gaussian")
    )
    assert ours <= min(limits) * (1 + 1e-6)


@pytest.mark.parametrize("alpha", [0.0, 1.0, 6.0])
def test_guarantees_of_theorems_8_and_9_are_above_the_delta_of_the_composition(alpha: float) -> None:
    law = md.noise.flipped_huber(alpha=alpha, gamma=9.0)
    assert law.pdf(9.0 + alpha) == pytest.approx(law.pdf(0) * math.exp(-((9 + alpha) ** 2 + alpha**2) / 162))
    bound = md.noise.flipped_huber_sufficient(law, 1.0, dimension=5)
    exact = md.accounting.delta_interval(md.accounting.NoiseTerm(law, 1.0, 5), 1.0, width=0.01)
    assert exact.lower <= bound
    if not alpha:  # there the theorem is exact: Φ(μ/2 − 1/μ) − e Φ(−μ/2 − 1/μ)
        mu = math.sqrt(5) / 9
        true = stats.norm.cdf(mu / 2 - 1 / mu) - math.e * stats.norm.cdf(-mu / 2 - 1 / mu)
        assert true <= bound * (1 + 1e-9) <= true * (1 + 1e-8)
    zcdp, orders = md.noise.flipped_huber_zcdp(law, dimension=5), (1.5, 4.0, 30.0)
    t = np.linspace(-200, 200, 200_001)
    for order in orders:  # Rényi divergence of one number, by a sum
        log = order * law.logpdf(t) + (1 - order) * law.logpdf(t - 1)
        divergence = math.log(np.exp(log).sum() * (t[1] - t[0])) / (order - 1)
        assert 5 * divergence <= (zcdp.xi + zcdp.rho * order) * (1 + 1e-7)  # of the sum


def test_guarantees_are_refused_to_other_laws() -> None:
    for law in (stats.norm(), md.noise.flipped_huber(1.0, loc=1.0), "flipped_huber"):
        with pytest.raises(md.DesignError, match="law"):
            md.noise.flipped_huber_sufficient(law, 1.0)

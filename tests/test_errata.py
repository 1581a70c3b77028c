"""Rows of the table of errata against oracles that share no code with the study."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mechdesign_studies.quantizers.errata import at_eight_digits, optm
from scipy import optimize

import mechdesign as md

TABLE = Path(__file__).parents[1] / "results" / "errata"


def numbers_of(place: str) -> list[float]:
    """The numbers found for the row whose place begins so."""
    rows = pd.read_csv(TABLE / "errata.csv")["place"]
    (row,) = np.flatnonzero(rows.str.startswith(place)) + 1
    values = pd.read_csv(TABLE / "values.csv")
    return values[values["row"] == row]["found"].tolist()


@pytest.mark.parametrize(("total", "which"), [(30_000, 0), (30_000_000, 1)])
def test_largest_item_alpha_of_theorem_4_4_is_the_fixed_point_of_its_condition(
    total: int, which: int
) -> None:
    def room(alpha: float) -> float:
        """log(N/(16 log(2/δ₁))) − α₀, with δ₁ = δ (e^g − 1)/(e^{30 g} − 1) and g the closed form for a move by 1."""

        def step(delta: float) -> float:
            gamma = 8 * math.sqrt(math.exp(alpha) * math.log(4 / delta) / total) + 8 * math.exp(alpha) / total
            return math.log1p(math.tanh(alpha / 2) * gamma)

        delta = 1e-8
        for _ in range(200):
            g = step(delta)
            delta = 1e-8 * math.expm1(g) / math.expm1(30 * g)
        return math.log(total / (16 * math.log(2 / delta))) - alpha

    assert numbers_of("Remarks on Theorem 4.4: against")[which] == pytest.approx(
        optimize.brentq(room, 0.1, 12), abs=1e-3
    )


def weights(t: np.ndarray, alpha: float, gamma: float) -> np.ndarray:
    """The flipped Huber density but for its factor."""
    rho = np.where(abs(t) <= alpha, alpha * abs(t), (t * t + alpha * alpha) / 2)
    return np.exp(-rho / gamma**2)


def lost(t: np.ndarray, alpha: float, gamma: float, epsilon: float) -> float:
    """δ(ε) of one number that changes by 1, by a sum over the points t."""
    here, there = weights(t, alpha, gamma), weights(t + 1, alpha, gamma)
    return float(np.maximum(here - math.exp(epsilon) * there, 0).sum() / here.sum())


def test_no_flipped_huber_law_of_some_shapes_has_less_variance_than_the_gaussian_at_small_epsilon() -> None:
    pairs = numbers_of("Section IV-A")
    for (epsilon, delta), (_, gaussian) in zip(((0.1, 0.2), (0.5, 0.3)), (pairs[:2], pairs[2:]), strict=True):
        sigma = math.sqrt(gaussian)
        t = np.linspace(-14 * sigma, 14 * sigma, 100_001)
        for alpha in (0.02, 0.1, 0.5, 1.0, 2.0):
            gamma = optimize.brentq(lambda g: lost(t, alpha, g, epsilon) - delta, 0.5 * sigma, 3 * sigma)  # noqa: B023
            here = weights(t, alpha, gamma)
            assert (here * t * t).sum() / here.sum() > gaussian * (1 - 1e-5)


def test_eight_digits_of_a_table_lose_the_privacy_that_the_package_reads_off_the_quantizer() -> None:
    chosen = np.round(optm(1.0).selection.left, 8)
    rounded = md.Quantizer.from_selection([-3, -0.5, 0.5, 3], chosen, chosen, (-1, 1))
    assert at_eight_digits(1.0) == pytest.approx(rounded.privacy_loss(), abs=1e-13)
    assert numbers_of("Table 1, OPTM, ε = 1, 1.5: the programs") == pytest.approx(
        [1.0000000035, 1.5000000234], abs=1e-9
    )

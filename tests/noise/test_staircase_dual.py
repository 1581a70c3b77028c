"""The staircase's dual in closed form: it meets the published optimum, lies below every law, and is checked twice."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.noise.staircase_dual import StaircaseMultipliers, staircase
from mechdesign.problem.losses import Loss
from mechdesign.problem.spine import Bound, Clock
from mechdesign.verifier.verify import verify


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


@settings(max_examples=25)
@given(st.floats(0.05, 20.0), losses)
def test_pure_noise_is_solved_outright(epsilon: float, loss: object) -> None:
    result = md.OptimalNoise(md.PureDP(epsilon), loss=loss).solve(gap=1e-6)
    assert result.status == "optimal" and result.solver_report.solver == "closed form"
    assert result.certificate.verify() and result.mechanism.exact_delta(epsilon) == 0


@pytest.mark.slow
@settings(max_examples=25)
@given(st.floats(0.2, 8.0), st.floats(-9.0, -0.5), losses, st.integers(1, 30), st.floats(0.5, 1.5))
def test_no_private_law_is_cheaper(
    epsilon: float, log_delta: float, loss: object, periods: int, share: float
) -> None:
    """Whatever level and periods: truncated Laplace noise, calibrated for the same (ε, δ), costs at least the bound."""
    delta, held = 10**log_delta, Loss.of(loss)
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


@pytest.mark.parametrize("periods, delta", [(0, 0.0), (7, 0.0), (7, 1e-4)])
@pytest.mark.parametrize("loss", ["absolute", "squared"])
def test_its_functions_leave_nothing_open(periods: int, delta: float, loss: str) -> None:
    """ℓ + Out - g In ≥ λ on a fine grid, with G summed term by term, and all that is sent received."""
    epsilon = 0.9
    multipliers = StaircaseMultipliers.of(
        md.OptimalNoise(md.ApproximateDP(epsilon, delta), loss=loss), periods
    )
    level = float(multipliers.highest[0]) * (1 - 1e-9)
    assert multipliers.bound(Fraction(level)) > 0
    assert multipliers.bound(Fraction(level * (1 + 1e-6))) == 0
    cost = np.abs if loss == "absolute" else np.square

    def g(t: np.ndarray) -> np.ndarray:
        total = np.zeros_like(t)
        for k in range(periods or 80):
            total += np.where(
                (periods == 0) | (t + k < periods), math.exp(-epsilon * (k + 1)) * (cost(t + k) - level), 0
            )
        return total

    t = (np.arange(9 * 1000) + 0.5) / 1000
    inside, out = np.where(t < 1, 0.0, g(t)), g(t + 1)
    first = g(t[:1000])
    sent, received = -math.exp(epsilon) * np.minimum(first, 0), np.maximum(first, 0)
    assert 0.999 * received.sum() < sent.sum() <= received.sum() * (1 + 1e-3)
    inside[:1000] += received
    out[:1000] += sent
    assert inside.min() >= 0
    assert (cost(t) + out - math.exp(epsilon) * inside >= level * (1 - 1e-9)).all()


@pytest.mark.parametrize("epsilon, loss", [(3.0, "absolute"), (5.0, "squared"), (8.0, "absolute")])
def test_half_to_either_side_is_all_sent_and_charges_what_is_stated(epsilon: float, loss: str) -> None:
    """The plan on a fine grid, with one period: nothing is received twice, and the shifts' suprema sum to the charge."""
    delta, count = 0.1, 1500
    multipliers = StaircaseMultipliers.of(md.OptimalNoise(md.ApproximateDP(epsilon, delta), loss=loss), 1)
    level = multipliers.highest[0]
    stated = float(level - multipliers.bound(level)) / delta
    t = (np.arange(count) + 0.5) / count
    g = math.exp(-epsilon) * ((t if loss == "absolute" else t**2) - float(level))
    k = int((g < 0).sum())
    open_, received = -math.exp(epsilon) * g[:k], np.sum(g[k:])
    flow = np.zeros((2 * k, count))  # from -γ, …, γ to the right
    flow[:, k : count - k] = np.outer(np.append(open_[::-1], open_), g[k : count - k]) / received / 2
    flow[k:, count - k :] = np.outer(open_, g[count - k :]) / received
    assert (flow.sum(axis=0)[k:] <= g[k:] * (1 + 0.02)).all()
    both = flow + flow[::-1]
    assert both[k:].sum(axis=1) == pytest.approx(open_, rel=1e-9)
    places = np.arange(count) - (np.arange(2 * k) - k)[:, None]
    assert places[flow > 0].min() >= 0 and places[flow > 0].max() <= count
    charge = 2 * sum(flow[places == d].max() for d in range(1, count + 1) if (places == d).any())
    assert charge <= stated * (1 + 0.02)


@pytest.mark.parametrize("epsilon, delta", [(20.0, 0.1), (20.0, 0.75), (30.0, 0.75), (30.0, 0.01)])
def test_a_large_epsilon_is_answered_in_closed_form_at_any_delta(epsilon: float, delta: float) -> None:
    result = md.OptimalNoise(md.ApproximateDP(epsilon, delta)).solve()
    assert result.gap <= 0.01 and result.solver_report.solver == "closed form"
    assert result.certificate.verify() and all(holds for *_, holds in verify(dumps(result)).rows)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-9, 30.0, 100.0])
def test_pure_noise_at_the_ends_of_the_range(epsilon: float) -> None:
    result = md.OptimalNoise(md.PureDP(epsilon), 2.0).solve()
    best = 2 * math.exp(-epsilon / 2) / -math.expm1(-epsilon)
    assert result.lower_bound <= best * (1 + 1e-12) and result.lower_bound == pytest.approx(best, rel=1e-9)
    assert result.value >= best * (1 - 1e-12) and result.certificate.verify()
    assert result.mechanism.exact_delta(epsilon) == 0

"""What an attacker gains: the bound against the best test of two laws, drawn or known, and against published values."""

import math

import cheap
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.accounting.profile import gaussian_tradeoff
from mechdesign.problem.privacy import points_of

ALPHAS = [1e-4, 0.01, 0.1, 0.5, 0.9]
points = st.lists(st.tuples(st.floats(0, 8), st.floats(0, 1)), min_size=1, max_size=6)
masses = st.lists(st.floats(0, 1), min_size=2, max_size=6).filter(lambda p: sum(p) > 0.1)


def best_test(p: np.ndarray, q: np.ndarray, alpha: float) -> float:
    """What the most powerful test of size alpha under q finds under p (Neyman and Pearson)."""
    order = np.argsort(-p / np.maximum(q, 1e-300), kind="stable")
    false, found = np.append(0, np.cumsum(q[order])), np.append(0, np.cumsum(p[order]))
    free = float(p[q == 0].sum())
    return max(float(np.interp(alpha, false, found)), free)


def profile_of(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return max(float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((p, q), (q, p)))


@given(points, st.floats(1e-6, 0.4999))
def test_a_curve_is_concave_rises_and_is_no_less_than_a_guess(pairs: list, alpha: float) -> None:
    curve = md.TradeOff(pairs)
    found = [curve.attack(a).found for a in (alpha / 2, alpha, 2 * alpha)]
    assert alpha / 2 <= found[0] <= found[1] <= found[2] <= 1
    assert found[1] >= (2 * found[0] + found[2]) / 3 - 1e-12
    assert found[1] - alpha <= curve.advantage + 1e-12
    posterior = curve.attack(alpha, prior=0.3).posterior
    assert posterior is not None and posterior >= 0.3 - 1e-12


@pytest.mark.slow
@given(masses, masses, st.floats(1e-4, 0.999))
def test_no_test_of_two_laws_beats_the_bound(first: list, second: list, alpha: float) -> None:
    size = min(len(first), len(second))
    p, q = (np.array(v[:size]) for v in (first, second))
    if p.sum() < 0.1 or q.sum() < 0.1:
        p, q = p + 1, q + 1
    p, q = p / p.sum(), q / q.sum()
    curve = md.TradeOff.of_profile(lambda e: profile_of(p, q, e), [alpha])
    bound = curve.attack(alpha).found
    assert max(best_test(p, q, alpha), best_test(q, p, alpha)) <= bound + 1e-9
    assert curve.advantage == pytest.approx(abs(p - q).sum() / 2, abs=1e-9)


def test_published_values() -> None:
    """Laplace noise at ε = 1 and Gaussian noise at μ = 1."""
    laplace = md.calibrate("laplace", privacy=md.PureDP(1.0), sensitivity=1.0)
    assert laplace.attack(0.01).found == pytest.approx(0.02718, abs=5e-6)
    assert laplace.tradeoff().advantage == pytest.approx(0.39347, abs=5e-6)
    assert laplace.attack(0.01, prior=0.5).posterior == pytest.approx(math.e / (1 + math.e), rel=1e-6)
    normal = md.calibrate("gaussian", privacy=md.ZeroConcentratedDP(0.5), sensitivity=1.0)
    assert normal.attack(0.01).found == pytest.approx(0.09236, abs=5e-6)
    assert normal.tradeoff().advantage == pytest.approx(0.38292, abs=5e-6)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_gaussian_noise_is_as_easy_as_its_best_test(alpha: float, mu: float) -> None:
    exact = stats.norm.cdf(stats.norm.ppf(alpha) + mu)
    bound = gaussian_tradeoff(mu * mu, [alpha]).attack(alpha).found
    assert exact <= bound * (1 + 1e-12) and bound <= exact * (1 + 1e-6)
    assert gaussian_tradeoff(mu * mu).attack(alpha).found >= bound


@pytest.mark.parametrize("alpha", ALPHAS)
def test_discrete_noise_is_as_easy_as_its_best_test(alpha: float) -> None:
    result = md.calibrate("discrete_gaussian", privacy=md.ApproximateDP(1.0, 1e-3), sensitivity=1.0)
    k = np.arange(-200, 201)
    p, q = result.mechanism.law.pmf(k), result.mechanism.law.pmf(k - 1)
    exact = best_test(p, q, alpha)
    bound = result.attack(alpha).found
    assert exact <= bound * (1 + 1e-12) and bound <= exact * (1 + 1e-5)


@pytest.mark.parametrize("name", list(cheap.DESIGNS))
def test_every_result_has_a_bound(name: str) -> None:
    result = cheap.solved(name)
    curve, attack = result.tradeoff(0.01), result.attack(0.01, prior=0.1)
    assert 0.01 <= attack.found < 1 and 0 < curve.advantage < 1
    assert attack.found <= curve.attack(0.01).found * (1 + 1e-12)
    privacy = result.design.privacy
    if isinstance(privacy, md.PureDP | md.ApproximateDP):  # no worse than what is asked
        asked = points_of(privacy)
        assert attack.found <= asked.attack(0.01).found * (1 + 1e-6)
        assert curve.advantage <= asked.advantage * (1 + 1e-6)
    assert "one in 100 innocents" in str(attack) and "% of the accusations" in str(attack)

"""One-dimensional profiles: rounded up, their inverse, in closed form, by quadrature, and against Google's accountant; those of 60 digits are in `test_accounting_tails`."""

import math

import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as library
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from mechdesign.accounting.gaussian import gaussian_mu, gaussian_profile
from mechdesign.accounting.interval import delta_interval
from mechdesign.accounting.losses import NoiseTerm
from mechdesign.accounting.pld import to_pld
from mechdesign.accounting.profile import privacy_profile
from mechdesign.errors import DesignError
from mechdesign.noise.families import discrete_gaussian
from mechdesign.noise.laws import flipped_huber, osgt, truncated_laplace

SCALES = st.floats(-1, 1).map(lambda x: 10.0**x)


@st.composite
def laws(draw):
    scale = draw(SCALES)
    kind = draw(
        st.sampled_from(["flipped_huber", "osgt", "norm", "laplace", "logistic", "gennorm", "truncated"])
    )
    if kind == "flipped_huber":
        return flipped_huber(draw(st.floats(0, 6)), scale=scale)
    if kind == "osgt":
        return osgt(draw(st.floats(0, 5)), scale=scale)
    if kind == "gennorm":
        return stats.gennorm(draw(st.floats(1, 4)), scale=scale)
    if kind == "truncated":
        return truncated_laplace(draw(st.floats(0.5, 20)), scale=scale)
    return {"norm": stats.norm, "laplace": stats.laplace, "logistic": stats.logistic}[kind](scale=scale)


@settings(max_examples=100)
@given(laws(), st.floats(0, 4), st.floats(0.05, 4))
def test_profiles_are_rounded_up(law, epsilon, sensitivity):
    value = privacy_profile(law, sensitivity, epsilon)
    found = delta_interval(NoiseTerm(law, sensitivity, 1), epsilon)
    assert found.lower <= value <= found.upper * (1 + 1e-15) + 5e-324


def test_discrete_profiles_against_the_library():
    for scale, shift in ((3.0, 1), (3.0, 4)):
        exact = library.from_discrete_laplace_mechanism(
            1 / scale, shift, value_discretization_interval=1 / scale
        )
        value = privacy_profile(stats.dlaplace(1 / scale), shift, 0.2)
        assert value == pytest.approx(exact.get_delta_for_epsilon(0.2), rel=1e-9)
        k = np.arange(-400, 400)
        law = discrete_gaussian(scale)
        direct = np.maximum(law.pmf(k) - math.exp(0.2) * law.pmf(k + shift), 0).sum()
        assert privacy_profile(law, shift, 0.2) == pytest.approx(direct, rel=1e-12)


def test_the_library_accepts_our_laws():
    law = flipped_huber(1.0, scale=26.0)
    above, below = (to_pld(law, 1.0, dimension=20, step=1e-4, pessimistic=p) for p in (True, False))
    mixed = above.compose(library.from_laplace_mechanism(50.0, value_discretization_interval=1e-4))
    deltas = [found.get_delta_for_epsilon(0.5) for found in (below, above, mixed)]
    assert deltas == sorted(set(deltas))
    with pytest.raises(DesignError, match=r"dimension = .*use a larger step, or delta_interval"):
        to_pld(law, 1.0, dimension=2**63)


# -- The Gaussian profile and its root, against 50-digit arithmetic


def exact_profile(epsilon, mu):
    epsilon, mu = mp.mpf(epsilon), mp.mpf(mu)

    def survival(x):
        return mp.erfc(x / mp.sqrt(2)) / 2

    return survival(epsilon / mu - mu / 2) - mp.exp(epsilon) * survival(epsilon / mu + mu / 2)


def exact_root(epsilon, delta, guess):
    """Newton's method on log φ in log μ, at 90 digits."""
    u = mp.log(mp.mpf(guess))
    for _ in range(6):
        mu = mp.exp(u)
        value = exact_profile(epsilon, mu)
        u -= (mp.log(value) - mp.log(mp.mpf(delta))) / (mu * mp.npdf(mp.mpf(epsilon) / mu - mu / 2) / value)
    return mp.exp(u)


EPSILONS = st.floats(np.log(1e-6), np.log(500)).map(np.exp)
DELTAS = st.floats(np.log(1e-300), np.log(0.5)).map(np.exp) | st.floats(1e-8, 0.5)


@settings(max_examples=40)
@example(1e-6, 1e-300)
@example(500.0, 1e-300)
@example(500.0, 0.5)
@given(EPSILONS, DELTAS)
def test_root_is_within_1e_12_and_never_above(epsilon, delta):
    with mp.workdps(60):
        mu = gaussian_mu(epsilon, delta)
        relative = (mp.mpf(mu) - exact_root(epsilon, delta, mu)) / mu
        assert -1e-12 <= relative < 0


@pytest.mark.slow
@given(st.floats(-4, 2), st.floats(-3, 2))
def test_profile_against_50_digits(log_epsilon, log_mu):
    mu = 10.0**log_mu
    epsilon = min(10.0**log_epsilon, 36 * mu)  # beyond, δ < 1e-290, and doubles end
    with mp.workdps(450):
        exact = exact_profile(epsilon, mu)
        assert abs(gaussian_profile(epsilon, mu) / exact - 1) <= 1e-13 * max(1, abs(mp.log(exact)))

"""The Gaussian profile and its root against 50-digit arithmetic."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mechdesign.accounting.gaussian import gaussian_mu, gaussian_profile, gaussian_room
from mechdesign.errors import DesignError


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
@given(
    st.floats(-300, 2.8).map(lambda e: 10.0**e),
    st.floats(-15.9, -0.31).map(lambda e: 1 - 10.0**e) | st.floats(-30, -0.31).map(lambda e: 10.0**e),
)
def test_the_root_is_right_where_delta_is_nearly_one_and_epsilon_nearly_nil(epsilon, delta):
    with mp.workdps(400):
        mu = gaussian_mu(epsilon, delta)
        room = mp.mpf(delta) - exact_profile(epsilon, mu)
        below = room / (
            mu * mp.npdf(mp.mpf(epsilon) / mu - mp.mpf(mu) / 2)
        )  # relative distance, to first order
        assert 0 < below <= 1e-12
        assert gaussian_room(epsilon, delta, mu) > 0
        assert gaussian_room(epsilon, delta, mu * (1 + 2e-13)) < 0


@pytest.mark.slow
@given(st.floats(-4, 2), st.floats(-3, 2))
def test_profile_against_50_digits(log_epsilon, log_mu):
    mu = 10.0**log_mu
    epsilon = min(10.0**log_epsilon, 36 * mu)  # beyond, δ < 1e-290, and doubles end
    with mp.workdps(450):
        exact = exact_profile(epsilon, mu)
        assert abs(gaussian_profile(epsilon, mu) / exact - 1) <= 1e-13 * max(1, abs(mp.log(exact)))


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: gaussian_mu(-1, 0.1), "epsilon"),
        (lambda: gaussian_mu(np.nan, 0.1), "epsilon"),
        (lambda: gaussian_mu(1.0, 0.0), "Laplace"),  # the laws that can
        (lambda: gaussian_mu(1, 1), "delta"),
        (lambda: gaussian_profile(1.0, 0.0), "mu"),
    ],
)
def test_bad_input_is_named(call, word):
    with pytest.raises(DesignError, match=word):
        call()

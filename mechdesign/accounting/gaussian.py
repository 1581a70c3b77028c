r"""The Gaussian privacy profile :math:`\varphi_\varepsilon(\mu)` and its root :math:`\mu_0`.

Let :math:`\mu^2` be the largest :math:`\sum_i v_i^2/\sigma_i^2` of a change v of the answer. Gaussian noise of scales :math:`\sigma_i` is (ε, δ)-DP if and
only if

.. math:: \varphi_\varepsilon(\mu) = Q(a) - e^{\varepsilon} Q(b) \le \delta,
          \qquad a = \varepsilon/\mu - \mu/2,\quad b = \varepsilon/\mu + \mu/2,

with Q the standard normal survival function (Balle and Wang 2018, Theorem 8). Lemma 3 of Muthukrishnan and Kalyani takes the profile λ for v: that is
sufficient, and necessary where all coordinates may change by :math:`\lambda_i` at once. As written φ overflows for large ε and cancels for small μ.
Since :math:`e^{\varepsilon}\phi(b) = \phi(a)`,

.. math:: \varphi_\varepsilon(\mu) = \phi(a)\,[M(a) - M(b)] = \phi(a) \int_a^b (1 - xM(x))\,dx,
          \qquad M = Q/\phi,

where every factor is positive and of moderate size; the integral is used when a and b are close.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TypeAlias, get_args

import numpy as np
from scipy import special

from mechdesign.doubles import SMALLEST
from mechdesign.errors import DesignError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.exact import round_down
from mechdesign.problem.checks import levels
from mechdesign.problem.privacy import (
    ApproximateDP,
    GaussianDP,
    MembershipAdvantage,
    PureDP,
    ZeroConcentratedDP,
    points_of,
)
from mechdesign.typing import Array, Numbers, Values, instance

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_LARGEST, _LEAST = 1e300, 1e-150


def _mills(x: Array) -> Array:
    """Q(x)/φ(x), for x > -37."""
    return np.asarray(math.sqrt(math.pi / 2) * special.erfcx(x / math.sqrt(2)))


def _log_positive(epsilon: Array, mu: Array) -> Array:
    """log φ_ε(μ) for ε ≥ 0 and 0 < μ < ∞ (arrays of one shape)."""
    a = epsilon / mu - mu / 2
    b = epsilon / mu + mu / 2
    out = np.empty_like(a)
    left = a < -8  # Q(a) is 1 to rounding; M(a) would soon overflow
    if left.any():
        # φ_ε = 1 - Q(-a) - φ(a) M(b)
        rest = special.ndtr(a[left]) + np.exp(-(a[left] ** 2) / 2 - _LOG_SQRT_2PI) * _mills(b[left])
        out[left] = np.log1p(-rest)
    # there the difference of Mills ratios is integrated (16 nodes: below rounding on [0, 1])
    close = ~left & (mu <= 1.0)
    if close.any():
        x = a[close, None] + mu[close, None] * (1 + _NODES) / 2
        # 1 - xM(x) cancels for large x; its asymptotic series takes over there.
        inverse = 1 / np.maximum(x, 25.0) ** 2
        series = inverse * (
            1 - inverse * (3 - inverse * (15 - inverse * (105 - inverse * (945 - inverse * 10395))))
        )
        h = np.where(x > 25, series, 1 - x * _mills(np.minimum(x, 25.0)))
        out[close] = -(a[close] ** 2) / 2 - _LOG_SQRT_2PI + np.log(mu[close] / 2 * (h @ _WEIGHTS))
    far = ~left & ~close
    if far.any():
        out[far] = -(a[far] ** 2) / 2 - _LOG_SQRT_2PI + np.log(_mills(a[far]) - _mills(b[far]))
    return out


def _flat(name: str, a: Array, b: Array) -> tuple[tuple[int, ...], Array, Array]:
    """Broadcast two arguments; return their shape and both of them flat."""
    try:
        both = np.broadcast_arrays(a, b)
    except ValueError:
        raise DesignError.of(name, b, f"must fit the shape {a.shape} of epsilon") from None
    return both[0].shape, both[0].ravel(), both[1].ravel()


def gaussian_profile(epsilon: Numbers, mu: Numbers) -> Values:
    r"""Return :math:`\varphi_\varepsilon(\mu) = Q(\varepsilon/\mu - \mu/2) - e^\varepsilon Q(\varepsilon/\mu + \mu/2)`.

    The δ(ε) of the Gaussian mechanism, exact in any number of dimensions, in log space throughout.

    Parameters
    ----------
    epsilon : float or ndarray
        ε ≥ 0, in nats.
    mu : float or ndarray
        μ = ‖(λ_i/σ_i)‖₂ > 0; broadcast against `epsilon`.

    Returns
    -------
    float or ndarray
        δ in [0, 1]; zero only by underflow.

    Raises
    ------
    DesignError
        ε negative or NaN, μ not positive and finite.

    Notes
    -----
    Balle and Wang (2018), *Improving the Gaussian mechanism*, Theorem 8.

    Examples
    --------
    >>> round(gaussian_profile(1.0, 1.0), 6)
    0.126937
    """
    e, m = levels("epsilon", epsilon), levels("mu", mu, above_zero=True)
    if not np.all(np.isfinite(m)):
        raise DesignError.of("mu", mu, "must be positive and finite")
    shape, e, m = _flat("mu", e, m)
    out, finite = np.zeros(e.shape), np.isfinite(e)
    out[finite] = np.exp(_log_positive(e[finite], m[finite]))
    return out.reshape(shape) if shape else float(out[0])


def _log_rest(epsilon: Array, mu: Array) -> Array:
    """log(1 − φ_ε(μ)), in which nothing cancels: Q(−a) + φ(a) M(b)."""
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    with np.errstate(over="ignore"):  # a large: the profile is 0, and log_ndtr(a) = 0
        beyond = -(a**2) / 2 - _LOG_SQRT_2PI + np.log(_mills(b))
    return np.asarray(np.logaddexp(special.log_ndtr(a), beyond))


def gaussian_room(epsilon: float, delta: float, mu: float) -> float:
    r"""Return :math:`\delta - \varphi_\varepsilon(\mu)`, to its own relative precision near δ = 1 as well.

    Examples
    --------
    >>> gaussian_room(1.0, 1e-6, gaussian_mu(1.0, 1e-6)) > 0
    True
    """
    if delta <= 0.5:
        return float(delta - gaussian_profile(epsilon, mu))
    return float(np.exp(_log_rest(np.array([epsilon]), np.array([mu])))[0] - (1 - delta))


def _bracket(epsilon: Array, delta: Array) -> tuple[Array, Array]:
    """Return bounds of μ₀, computed without cancellation.

    Below: Q(a) ≥ φ_ε gives R(δ), and φ_0 = 2Φ(μ/2) − 1 ≥ φ_ε its own root. Above: R(δ + e^ε Q(√2ε)); and since b ≥ |a| where
    a ≤ 0, 1 − φ_ε ≤ 2Q(|a|), whose root is used if δ is near 1.
    """

    def r(z: Array) -> Array:
        root = np.sqrt(z * z + 2 * epsilon)
        return np.where(z > 0, 2 * epsilon / (root + np.abs(z)), root - z)

    def quantile(level: Array) -> Array:
        return np.asarray(np.where(level > 0.5, special.ndtri(1 - level), -special.ndtri(level)))

    central = np.where(
        delta > 0.5,
        -special.ndtri((1 - delta) / 2),
        math.sqrt(2) * special.erfinv(np.minimum(delta, 0.5)),
    )
    low = np.maximum(r(quantile(delta)), 2 * central) * (1 - 1e-12)
    level = delta + np.exp(-_LOG_SQRT_2PI) * _mills(np.sqrt(2 * epsilon))  # e^ε φ(√2ε) = φ(0)
    one = np.where(level < 0.9, r(quantile(np.minimum(level, 0.9)) - 4e-15), np.inf)
    return low, np.minimum(one, r(-central)) * (1 + 1e-12)


def gaussian_mu(epsilon: Numbers, delta: Numbers) -> Values:
    r"""Return the largest μ with :math:`\varphi_\varepsilon(\mu) \le \delta`, from the safe side.

    This is problem P2: the privacy resource :math:`\mu_0` that Gaussian noise may consume. It is found by
    Newton steps on :math:`\log\varphi` inside the proved bracket
    :math:`R(\delta) \le \mu_0 \le R(\delta + e^\varepsilon Q(\sqrt{2\varepsilon}))`, which Algorithm 1 of the paper bisects, and the value returned lies
    below the root by a margin larger than the evaluation error.

    Parameters
    ----------
    epsilon : float or ndarray
        ε ≥ 0.
    delta : float or ndarray
        δ in (0, 1); broadcast against `epsilon`.

    Returns
    -------
    float or ndarray
        μ₀, relative error at most 1e-12, never above the true root.

    Raises
    ------
    DesignError
        ε negative or not finite, δ outside (0, 1); at δ = 0 Gaussian noise is never private.

    Examples
    --------
    >>> 1 / gaussian_mu(0.3, 1e-6) ** 2   # the variance at sensitivity 1
    168.80...
    """
    e, d = levels("epsilon", epsilon), levels("delta", delta)
    if not np.all(e <= _LARGEST):
        raise DesignError.of("epsilon", epsilon, f"must be at most {_LARGEST:g}: that is no privacy")
    if np.any(d == 0):
        raise DesignError.of(
            "delta",
            delta,
            "Gaussian noise needs delta > 0; Laplace, staircase and logistic noise can do delta = 0",
        )
    if not np.all(d < 1):
        raise DesignError.of("delta", delta, "must be in (0, 1)")
    shape, e, d = _flat("delta", e, d)
    # Near δ = 1 the root of 1 − φ is found: doubles hold 1 − δ exactly there, but not φ.
    near, sign = d > 0.5, np.where(d > 0.5, -1.0, 1.0)
    target = np.where(near, np.log1p(-np.minimum(d, 1 - 2.0**-53)), np.log(d))
    low, high = _bracket(e, d)
    mu = low.copy()
    for _ in range(80):
        value = np.empty_like(mu)
        value[near], value[~near] = _log_rest(e[near], mu[near]), _log_positive(e[~near], mu[~near])
        below = sign * value <= sign * target
        low = np.where(below, mu, low)
        high = np.where(below, high, mu)
        # d log φ / d log μ = μ φ(a)/φ_ε(μ), and that of log(1 − φ) is −μ φ(a)/(1 − φ_ε(μ))
        a = e / mu - mu / 2
        slope = sign * np.exp(np.log(mu) - a * a / 2 - _LOG_SQRT_2PI - value)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = mu * np.exp(np.clip((target - value) / slope, -2, 2))
        inside = (step > low) & (step < high)
        new = np.where(inside, step, np.sqrt(low) * np.sqrt(high))
        moved = np.abs(new - mu)
        mu = new
        if np.all((moved <= 4e-15 * mu) | (high - low <= 4e-15 * low)):
            break
    # `mu` is the root to a few ulps (Newton), `low` is certified below but may have stayed behind.
    mu = mu * (1 - 4e-14)  # down from the root: above the evaluation error, far below the 1e-12 promised
    return mu.reshape(shape) if shape else float(mu[0])


def gaussian_square(epsilon: float, delta: float) -> float:
    r"""Return :math:`\mu_0^2`, the budget of Gaussian noise, rounded down.

    Raises
    ------
    DesignError
        As `gaussian_mu`, and if the square is too small for doubles.

    Examples
    --------
    >>> round(1 / gaussian_square(0.3, 1e-6), 2)
    168.8
    """
    square = float(gaussian_mu(epsilon, delta) ** 2 * (1 - 1e-15))
    if square < SMALLEST:
        allowed = "leave Gaussian noise a smaller budget than doubles hold; ask for a larger delta"
        raise DesignError.of("epsilon, delta", (epsilon, delta), allowed)
    return square


GaussianPrivacy: TypeAlias = ApproximateDP | ZeroConcentratedDP | GaussianDP | MembershipAdvantage | TradeOff
"""Requirements that Gaussian noise can meet, if no δ is 0."""


def gaussian_privacy(name: str, value: object) -> GaussianPrivacy:
    """Return a requirement that Gaussian noise can meet, or raise the DesignError that says how to state one."""
    given: GaussianPrivacy = instance(name, value, PureDP, *get_args(GaussianPrivacy))
    if isinstance(given, ZeroConcentratedDP | GaussianDP) or all(
        0 < d < 1 for _, d in points_of(given).points
    ):
        return given
    remedy = "Gaussian noise needs delta > 0: state ApproximateDP with one; Laplace noise is private without, NoiseAllocation('laplace')"
    raise DesignError.of(name, given, remedy)


def gaussian_budget(privacy: object) -> float:
    r"""Return the largest :math:`\mu^2` that `privacy` allows, rounded down.

    Examples
    --------
    >>> gaussian_budget(ZeroConcentratedDP(0.5)), gaussian_budget(GaussianDP(0.5))
    (1.0, 0.25)
    >>> round(gaussian_budget(MembershipAdvantage(0.38292)), 3)
    1.0
    """
    given = gaussian_privacy("privacy", privacy)
    if isinstance(given, ZeroConcentratedDP):
        found = 2 * given.rho
    elif isinstance(given, GaussianDP):
        found = round_down(Fraction(given.mu) ** 2)
    else:
        return min(gaussian_square(e, d) for e, d in points_of(given).points)
    if found < _LEAST:
        raise DesignError.of("privacy", privacy, f"must allow a μ² of at least {_LEAST:g}: doubles square it")
    return found


def budget_worth(privacy: GaussianPrivacy, budget: float) -> float:
    """Return the slack of `privacy` beyond a budget of μ²: in 2ρ, in μ², or in the δ with the least slack."""
    if isinstance(privacy, ZeroConcentratedDP):
        return 2 * privacy.rho - budget
    if isinstance(privacy, GaussianDP):
        return float(Fraction(privacy.mu) ** 2 - Fraction(budget))
    return min(gaussian_room(e, d, math.sqrt(budget)) for e, d in points_of(privacy).points)

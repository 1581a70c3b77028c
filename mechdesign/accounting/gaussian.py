r"""The Gaussian privacy profile :math:`\varphi_\varepsilon(\mu)` and its root :math:`\mu_0`.

Let :math:`\mu^2` be the largest :math:`\sum_i v_i^2/\sigma_i^2` of a change v of the answer. Gaussian noise of scales :math:`\sigma_i` is (ε, δ)-DP if and
only if

.. math:: \varphi_\varepsilon(\mu) = Q(a) - e^{\varepsilon} Q(b) \le \delta,
          \qquad a = \varepsilon/\mu - \mu/2,\quad b = \varepsilon/\mu + \mu/2,

with Q the standard normal survival function (Balle and Wang 2018, Theorem 8). Lemma 3 of Muthukrishnan and Kalyani takes the profile λ for v: that is
sufficient, and necessary where all coordinates may change by :math:`\lambda_i` at once. As written φ overflows for large ε and cancels for small μ
in doubles. It is computed in balls (Johansson 2017, *Arb*), whose exponents have no end, with digits that are doubled until cancellation leaves enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias, get_args

import numpy as np
from flint import arb, ctx
from scipy import special

from mechdesign.checks import instance, levels, refuse, refusing
from mechdesign.doubles import SMALLEST
from mechdesign.errors import DesignError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.exact import least_kept, round_down
from mechdesign.problem.privacy import (
    ApproximateDP,
    GaussianDP,
    MembershipAdvantage,
    PureDP,
    ZeroConcentratedDP,
    points_of,
)
from mechdesign.typing import Array, Numbers, Values

_LARGEST, _LEAST = 1e300, 1e-150
Coordinates = tuple[int, float, float, int]
"""(n, Δ, s, h): n coordinates that change by Δ, with normal noise of variance s²/h."""


def normal_tail(x: arb) -> arb:
    """Return P(Z > x) of a normal Z."""
    return (x / arb(2).sqrt()).erfc() / 2


def _terms(epsilon: float, mu: arb) -> tuple[arb, arb]:
    """Return the two terms of φ; the second is e^ε Q(b) = φ(a) Q(b)/φ(b), and left out if the first is 0 to doubles."""
    e = arb(epsilon)
    a, b = e / mu - mu / 2, e / mu + mu / 2
    first = normal_tail(a)
    if first < arb("1e-400"):
        return first, arb(0)
    if b < 1e5:
        return first, e.exp() * normal_tail(b)
    # the error of an alternating asymptotic series is less than the next term
    x = b**-2
    mills = (1 - x * (1 - x * (3 - x * (15 - x * arb(0, 105))))) / b
    return first, (-a * a / 2).exp() / (2 * arb.pi()).sqrt() * mills


def enclosed(terms: Callable[[], tuple[arb, arb, arb] | None]) -> tuple[float, float] | None:
    """Round first − second ± errors outwards, with as many digits as cancellation takes; None if there are no terms."""
    digits = 50
    while True:
        with ctx.workdps(digits):
            if (made := terms()) is None:
                return None
            first, second, room = made
            found = first - second
            sure = found.rad() <= abs(found.mid()) * arb(10) ** -20 or first.abs_upper() < arb("1e-310")
            lower, upper = found.lower(), (found + room).upper()
            if sure or digits > 1500:
                break
        digits *= 2
    if not (lower.is_finite() and upper.is_finite()):
        return 0.0, 1.0
    low, high = float(lower), float(upper)
    low = math.nextafter(low, 0.0) if low > 0 else 0.0
    nothing = first == 0 and second == 0 and room == 0
    return low, 0.0 if nothing else min(math.nextafter(max(high, 0.0), 1.0), 1.0)


def enclosed_gaussian(epsilon: float, coordinates: list[Coordinates]) -> tuple[float, float]:
    """Enclose δ(ε) of Gaussian noise.

    Examples
    --------
    >>> lower, upper = enclosed_gaussian(1.0, [(1, 1.0, 1.0, 1)])
    >>> round(lower, 6), (upper - lower) / upper < 1e-15
    (0.126937, True)
    """

    def terms() -> tuple[arb, arb, arb]:
        square = sum((n * h * (arb(d) / arb(s)) ** 2 for n, d, s, h in coordinates), arb(0))
        return *_terms(epsilon, square.sqrt()), arb(0)

    return instance("terms", enclosed(terms), tuple)


def _settled(value: Callable[[], arb], near: Callable[[arb], arb]) -> float:
    """Return a value to a relative or absolute error of `near`, with as many digits as that takes."""
    digits = 30
    while True:
        with ctx.workdps(digits):
            found = value()
            if found.rad() <= near(found) or digits > 1500:
                return float(found.mid())
        digits *= 2


def _flat(name: str, a: Array, b: Array) -> tuple[tuple[int, ...], Array, Array]:
    """Broadcast two arguments; return their shape and both of them flat."""
    with refusing(name, b, f"must fit the shape {a.shape} of epsilon", ValueError):
        both = np.broadcast_arrays(a, b)
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
    refuse(not np.all(np.isfinite(m)), "mu", mu, "must be positive and finite")
    shape, e, m = _flat("mu", e, m)
    pairs = zip(e.tolist(), m.tolist())
    ends = [enclosed_gaussian(at, [(1, mu, 1.0, 1)]) if at < math.inf else (0.0, 0.0) for at, mu in pairs]
    out = np.array([low / 2 + high / 2 for low, high in ends])
    return out.reshape(shape) if shape else float(out[0])


def gaussian_room(epsilon: float, delta: float, mu: float) -> float:
    r"""Return :math:`\delta - \varphi_\varepsilon(\mu)`, to its own relative precision near δ = 1 as well.

    Examples
    --------
    >>> gaussian_room(1.0, 1e-6, gaussian_mu(1.0, 1e-6)) > 0
    True
    """

    def room() -> arb:
        first, second = _terms(epsilon, arb(mu))
        return arb(delta) - first + second

    return _settled(room, lambda found: abs(found.mid()) * arb("1e-17"))


def _root(epsilon: float, delta: float) -> float:
    """Return μ₀, to rounding: the root of log φ/δ, or near δ = 1 of that of the complements, in log μ."""

    none = arb("1e-400")

    def over(log_mu: float) -> float:
        def ratio() -> arb:
            first, second = _terms(epsilon, arb(log_mu).exp())
            found = first - second
            above, below = (1 - arb(delta), 1 - found) if delta > 0.5 else (found, arb(delta))
            return (above.max(none) / below.max(none)).log()

        return _settled(ratio, lambda found: arb("1e-17"))

    # Q(a) ≥ φ_ε and 2Φ(μ/2) − 1 = φ_0 ≥ φ_ε: both roots are below
    z = -float(special.ndtri(delta))
    root = math.sqrt(z * z + 2 * epsilon)
    low = max(2 * epsilon / (root + z) if z > 0 else root - z, math.sqrt(8) * float(special.erfinv(delta)))
    return math.exp(-least_kept(lambda u: over(-u), -math.log(low), step=0.1, xtol=1e-16))


def gaussian_mu(epsilon: Numbers, delta: Numbers) -> Values:
    r"""Return the largest μ with :math:`\varphi_\varepsilon(\mu) \le \delta`, from the safe side.

    This is problem P2: the privacy resource :math:`\mu_0` that Gaussian noise may consume. Algorithm 1 of the paper bisects; here it is
    the root of :math:`\log\varphi/\delta`, and the value returned lies below it by a margin larger than the evaluation error.

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
    refuse(not np.all(e <= _LARGEST), "epsilon", epsilon, f"must be at most {_LARGEST:g}: that is no privacy")
    allowed = "Gaussian noise needs delta > 0; Laplace, staircase and logistic noise can do delta = 0"
    refuse(np.any(d == 0), "delta", delta, allowed)
    refuse(not np.all(d < 1), "delta", delta, "must be in (0, 1)")
    shape, e, d = _flat("delta", e, d)
    found = [_root(*pair) for pair in zip(e.tolist(), d.tolist())]
    # down by more than the error of evaluation, and far less than the 1e-12 promised
    mu = np.nextafter(np.array(found) * (1 - 4e-14), 0.0)
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
    allowed = "leave Gaussian noise a smaller budget than doubles hold; ask for a larger delta"
    refuse(square < SMALLEST, "epsilon, delta", (epsilon, delta), allowed)
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
    refuse(found < _LEAST, "privacy", privacy, f"must allow a μ² of at least {_LEAST:g}: doubles square it")
    return found


def budget_worth(privacy: GaussianPrivacy, budget: float) -> float:
    """Return the slack of `privacy` beyond a budget of μ²: in 2ρ, in μ², or in the δ with the least slack."""
    if isinstance(privacy, ZeroConcentratedDP):
        return 2 * privacy.rho - budget
    if isinstance(privacy, GaussianDP):
        return float(Fraction(privacy.mu) ** 2 - Fraction(budget))
    return min(gaussian_room(e, d, math.sqrt(budget)) for e, d in points_of(privacy).points)

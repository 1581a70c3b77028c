r"""The least error of unbiased private answers to vectors of a box: a lower bound, within a seventh of what is reached in many dimensions.

Let X be uniform on the corners :math:`\{\pm1\}^d`, M unbiased and ε-private, E = e^ε, and g(m) the mean of X given the answer m. Then
:math:`d = E\langle M, X\rangle = E\langle M, g(M)\rangle \le \sqrt{E\|M\|^2\, E\|g(M)\|^2}`, so that the mean error at the corners,
:math:`E\|M\|^2 - d`, is at least :math:`d^2/s^2 - d` where :math:`\|g\| \le s`. Given an answer the corners have a density w
in [b, Eb] about their own law, of mean 1. For a unit vector u and Z = ⟨u, X⟩

.. math:: E[wZ] - s = E[w (Z - s)] \le b\, E(Z - s) + (E - 1)\, b\, E(Z - s)_+ = b\, \big((E - 1)\, E(Z - s)_+ - s\big),

and :math:`\|g\| = \max_u E[wZ] \le s` for every s with :math:`(E - 1)\, E(Z - s)_+ \le s`. As Z is symmetric with variance 1,
:math:`E(Z - s)_+ = \tfrac12 E(|Z| - s)_+` is at most (1 − s)/2 for s ≤ ½, and always at most
:math:`\tfrac12 E|G|^p\, (p - 1)^{p - 1} / (p^p s^{p - 1})` for G normal and p ≥ 2 (Haagerup 1982; plain for p = 2); and as one sign after the other may be replaced by a normal variable,
its first three moments the same and its :math:`E(\cdot - t)_+^3` larger for all t (Eaton 1970), :math:`E(Z - s)_+ \le \tfrac4{27}\, E(G - t)_+^3/(s - t)^2` for t < s.
Any coordinate alone is one of [−1, 1]: no g_i exceeds tanh(ε/2).

For ε ≤ log 3 the first gives s = tanh(ε/2): one coordinate, one bit and shared randomness (`SampledCoordinates`) are optimal but for the term −d.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, special

__all__ = ["box_error"]

_ROUNDING = 1e-14  # of the cancellation in E(G − t)₊³, relative to its largest term


def cubic_excess(t: float) -> float:
    """E(G − t)₊³ of a standard normal variable, rounded up.

    Examples
    --------
    >>> round(cubic_excess(0.0) ** 2 * math.pi, 9)
    2.0
    """
    density, above = math.exp(-t * t / 2) / math.sqrt(2 * math.pi), float(special.ndtr(-t))
    return max((t * t + 2) * density - (t**3 + 3 * t) * above, 0.0) + _ROUNDING * (t * t + 2) * density


def corner_reach(epsilon: float) -> float:
    """s: an ε-private answer moves the mean of a uniform corner of {±1}^d by no more, whatever d.

    Examples
    --------
    >>> corner_reach(1.0) == math.tanh(0.5), round(corner_reach(4.0) ** 2, 3)
    (True, 2.705)
    """
    if epsilon <= math.log(3):
        return math.tanh(epsilon / 2)
    gain = math.expm1(epsilon)

    def least(t: float) -> float:
        wanted, low = 4 / 27 * gain * cubic_excess(t), max(t, 0.0)
        high = low + 1
        while high * (high - t) ** 2 < wanted:
            high += high - low
        return float(optimize.brentq(lambda s: s * (s - t) ** 2 - wanted, low, high, xtol=1e-13, rtol=1e-13))

    ends = (-2.0, math.sqrt(2 * epsilon) + 1)
    found = optimize.minimize_scalar(least, bounds=ends, method="bounded", options={"xatol": 1e-9})
    p = np.linspace(2.0, 4.0, 101)
    moments = p / 2 * math.log(2) + special.gammaln((p + 1) / 2) - math.log(math.pi) / 2
    by_moments = np.exp((math.log(gain / 2) + moments + (p - 1) * np.log(p - 1) - p * np.log(p)) / p).min()
    return float(min(found.fun, by_moments) * (1 + 1e-12))


def box_error(dimension: int, epsilon: float) -> float:
    """A lower bound of the worst squared error of unbiased ε-private answers to vectors of [−1, 1]^d.

    Examples
    --------
    >>> round(box_error(1000, 1.0) / 1000**2, 3)        # one coordinate in one bit: 4.683
    4.682
    """
    each = min(corner_reach(epsilon) ** 2 / dimension, math.tanh(epsilon / 2) ** 2)
    return dimension * (1 / each - 1)

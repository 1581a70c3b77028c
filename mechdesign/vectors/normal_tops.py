r"""Expected sums of the largest of M independent normals, and of their squares: what the k closest vertices are worth.

With S the survival function of the normal law and φ its density, the sum of the k largest has the mean
:math:`\int x \varphi M\, P[\mathrm{Bin}(M-1, S(x)) < k]\,dx`; by parts, with V beta-distributed with parameters (M − k, k) and
:math:`Z = \Phi^{-1}(V)`,

.. math:: T_k = M\, E\,\varphi(Z), \qquad Q_k = E \sum_{i \le k} g_{(i)}^2 = k + M\, E\, Z \varphi(Z) .

The integrands are smooth and decay on both sides, so that the trapezoidal rule converges faster than any power of its step.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from mechdesign.typing import Array

__all__ = ["chi_mean", "top_squares", "top_sum"]

_NODES = np.linspace(-12.0, 12.0, 2401)
_STEP = float(_NODES[1] - _NODES[0])
_LOG_DENSITY = -0.5 * _NODES**2 - 0.5 * math.log(2 * math.pi)
_LOG_BELOW, _LOG_ABOVE = special.log_ndtr(_NODES), special.log_ndtr(-_NODES)


def _weighted(m: int, k: int) -> Array:
    """φ(x) times the density of Z at the nodes, times the step."""
    beta = special.betaln(m - k, k)
    logs = 2 * _LOG_DENSITY + (m - k - 1) * _LOG_BELOW + (k - 1) * _LOG_ABOVE - beta
    return np.asarray(np.exp(logs) * _STEP)


def top_sum(m: int, k: int) -> float:
    """Return the mean of the sum of the `k` largest of `m` independent standard normals, 1 ≤ k < m.

    Examples
    --------
    >>> round(top_sum(2, 1), 12) == round(math.pi**-0.5, 12)
    True
    """
    return float(m * _weighted(m, k).sum())


def top_squares(m: int, k: int) -> float:
    """Return the mean of the sum of the squares of the `k` largest of `m` independent standard normals.

    Examples
    --------
    >>> round(top_squares(2, 1), 12)
    1.0
    """
    return float(k + m * (_weighted(m, k) * _NODES).sum())


def chi_mean(d: int) -> float:
    r"""Return the mean length of a standard normal vector, :math:`\sqrt2\,\Gamma((d+1)/2)/\Gamma(d/2)`.

    Examples
    --------
    >>> round(chi_mean(1) ** 2 * math.pi, 12)
    2.0
    """
    if d < 300:
        return math.sqrt(2) * math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2))
    # The difference of the logarithms would lose digits; the asymptotic series has them all here.
    x = 1 / d
    return math.sqrt(d) * (1 - x / 4 + x**2 / 32 + 5 * x**3 / 128 - 21 * x**4 / 2048)

r"""How unequal a sensitivity profile is: ν, Gini coefficient, majorization, and the profile of clipped layers.

The more dispersed the profile, the more non-identical noise saves (a Schur-convexity argument: Muthukrishnan and
Kalyani, *Differential privacy with higher utility by exploiting coordinate-wise disparity*, Theorem 9).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from mechdesign.errors import DesignError
from mechdesign.typing import Array

__all__ = ["check_profile", "disparity", "gini", "layer_profile", "majorizes"]


def check_profile(profile: Any, name: str = "sensitivities") -> Array:
    """Return the profile as a vector, or say what is wrong with it."""
    try:
        values = np.asarray(profile, dtype=float)
    except (TypeError, ValueError):
        raise DesignError.of(name, profile, "must be a vector of numbers") from None
    if values.ndim != 1 or values.size == 0:
        raise DesignError.of(name, profile, "must be a vector with at least one coordinate")
    # One pass each: minima and maxima carry NaN and infinities along.
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high < np.inf):
        bad = int(np.flatnonzero(~((values >= 0) & (values < np.inf)))[0])
        raise DesignError.of(
            name, profile, f"must be non-negative and finite; coordinate {bad} is {values[bad]}"
        )
    if high == 0:
        raise DesignError.of(
            name, profile, "is zero everywhere: the query needs no noise at all, release it as it is"
        )
    return values


def disparity(profile: Any) -> float:
    r"""Return :math:`\nu = \|\lambda\|_1 / (K \Delta_\infty)`, in [1/K, 1]: 1 for equal sensitivities.

    Examples
    --------
    >>> disparity([1, 1, 2])
    0.6666666666666666
    """
    values = check_profile(profile)
    return float(values.sum() / (len(values) * values.max()))


def gini(profile: Any) -> float:
    r"""Return the Gini coefficient :math:`\sum_{ij} |\lambda_i - \lambda_j| / (2K\|\lambda\|_1)`, in O(K log K).

    Examples
    --------
    >>> gini([0, 0, 0, 1])
    0.75
    """
    values = np.sort(check_profile(profile))
    k = len(values)
    ranks = 2 * np.arange(1, k + 1) - k - 1
    return float((ranks * values).sum() / (k * values.sum()))


def majorizes(profile: Any, other: Any, *, rtol: float = 1e-12) -> bool:
    r"""Whether `profile` majorizes `other`: equal sums, and every sum of its k largest values is at least as large.

    Partial sums are exact (rational); `rtol` only says how nearly equal the two totals must be, and how far
    below a partial sum may fall.

    Examples
    --------
    >>> majorizes([3, 1, 0], [2, 1, 1]), majorizes([2, 1, 1], [3, 1, 0])
    (True, False)
    """
    a, b = check_profile(profile, "profile"), check_profile(other, "other")
    if a.shape != b.shape:
        raise DesignError.of("other", other, f"must have {len(a)} coordinates, as the profile has")
    total_a, total_b = (sum(map(Fraction, x.tolist()), Fraction(0)) for x in (a, b))
    slack = Fraction(rtol) * max(total_a, total_b)
    if abs(total_a - total_b) > slack:
        return False
    ahead = Fraction(0)
    for x, y in zip(sorted(a.tolist(), reverse=True), sorted(b.tolist(), reverse=True)):
        ahead += Fraction(x) - Fraction(y)
        if ahead < -slack:
            return False
    return True


def layer_profile(
    clips: Any, sizes: Any, *, norm: float = 2.0
) -> tuple[Array, tuple[npt.NDArray[np.int64], ...]]:
    r"""Return the profile and the groups of a query made of clipped layers.

    A layer with :math:`K_m` coordinates clipped to :math:`C_m` in ℓ_p has
    :math:`\lambda = C_m / K_m^{1/p}` in each.

    Parameters
    ----------
    clips : array_like, shape (M,)
    sizes : array_like of int, shape (M,)
    norm : float
        p ≥ 1.

    Returns
    -------
    profile : ndarray, shape (ΣK_m,)
    groups : tuple of ndarray of int
        The coordinates of each layer, for `NoiseAllocation(groups=...)`.

    Examples
    --------
    >>> profile, groups = layer_profile([1.0, 2.0], [4, 1])
    >>> profile
    array([0.5, 0.5, 0.5, 0.5, 2. ])
    """
    c, k = check_profile(clips, "clips"), np.asarray(sizes)
    if k.shape != c.shape or not np.all(k == k.astype(int)) or k.min() < 1:
        raise DesignError.of("sizes", sizes, "must give a positive number of coordinates per clip")
    if not norm >= 1:
        raise DesignError.of("norm", norm, "must be at least 1")
    k = k.astype(np.int64)
    profile = np.repeat(c / k.astype(float) ** (1 / norm), k)
    return profile, tuple(np.split(np.arange(k.sum()), np.cumsum(k)[:-1]))

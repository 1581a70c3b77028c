r"""Profiles λ: how much each number may change. Their checks and measures, and the profiles of clipped layers and of several bounds.

The more dispersed a profile, the less loss: Laplace noise costs less where λ majorizes another (Theorem 10 of
Muthukrishnan and Kalyani, *Differential privacy with higher utility by exploiting coordinate-wise disparity*), Gaussian
noise where the squares of λ do (Theorem 9).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from itertools import accumulate

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.noise.separable import CLOSED, changes_of
from mechdesign.problem.checks import array, doubles, instance, number, one_of, rounded_up
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.typing import Array, Indices, Numbers


def check_profile(profile: Numbers, name: str = "sensitivities") -> Array:
    """Return the profile as a vector, or raise DesignError."""
    values = doubles(name, profile, "must be a vector of numbers")
    if values.ndim != 1 or values.size == 0:
        raise DesignError.of(name, profile, "must be a vector with at least one coordinate")
    values = rounded_up(values, profile)
    # minima and maxima propagate NaN and infinities
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


def disparity(profile: Numbers) -> float:
    r"""Return :math:`\nu = \|\lambda\|_1 / (K \Delta_\infty)`, in [1/K, 1]: 1 for equal sensitivities.

    Examples
    --------
    >>> round(disparity([1, 1, 2]), 6)
    0.666667
    """
    values = check_profile(profile)
    return float(values.sum() / (len(values) * values.max()))


def gini(profile: Numbers) -> float:
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


def majorizes(profile: Numbers, other: Numbers) -> bool:
    r"""Return whether `profile` majorizes `other`: equal sums, and each sum of its k largest values is at least as large.

    Then Laplace noise costs less for `profile`; Gaussian noise does where these are the squares of λ.

    Partial sums are exact (rational); the totals may differ, and a partial sum fall short, by 1e-12 of the total.

    Examples
    --------
    >>> majorizes([3, 1, 0], [2, 1, 1]), majorizes([2, 1, 1], [3, 1, 0])
    (True, False)
    """
    a, b = (
        [Fraction(x) for x in sorted(check_profile(values, name).tolist(), reverse=True)]
        for values, name in ((profile, "profile"), (other, "other"))
    )
    if len(a) != len(b):
        raise DesignError.of("other", other, f"must have {len(a)} coordinates, as the profile has")
    ahead = list(accumulate(x - y for x, y in zip(a, b)))
    slack = Fraction(1, 10**12) * max(sum(a), sum(b))
    return abs(ahead[-1]) <= slack and min(ahead) >= -slack


class LayerProfile(np.ndarray):
    """The profile of clipped layers, valid for one common scale in each of its groups, which an allocation keeps."""

    groups: tuple[Indices, ...] | None = None

    def __array_finalize__(self, source: Array | None) -> None:
        whole = source is not None and self.shape == source.shape
        self.groups = getattr(source, "groups", None) if whole else None


def layer_profile(
    clips: Numbers, sizes: Numbers, *, norm: float = 2.0, noise: str = "gaussian"
) -> tuple[Array, tuple[Indices, ...]]:
    r"""Return the profile and the groups of a query made of clipped layers.

    A layer with :math:`K_m` coordinates clipped to :math:`C_m` in ℓ_p consumes the largest
    :math:`\sum |d_i|^s` over :math:`\lVert d \rVert_p \le C_m`, s = 2 for Gaussian and 1 for Laplace noise. With a
    common scale that is as much as :math:`\lambda = C_m / K_m^{1/\max(p, s)}` in each coordinate. (The exponent 1/p
    that the paper prints in Section VI-C overlooks, for p < s, a change of one coordinate alone.)

    Parameters
    ----------
    clips : array_like, shape (M,)
    sizes : array_like of int, shape (M,)
    norm : float
        p ≥ 1.
    noise : {"gaussian", "laplace"}
        The type of noise. For Laplace noise the profile is valid under pure privacy only: with δ > 0 a flat change is not
        the worst one.

    Returns
    -------
    profile : ndarray, shape (ΣK_m,)
    groups : tuple of ndarray of int
        The coordinates of each layer. A layer must have one common scale: `NoiseAllocation` uses these groups unless told otherwise,
        and refuses groups that split a layer.

    Examples
    --------
    >>> profile, groups = layer_profile([1.0, 2.0], [4, 1])
    >>> profile
    LayerProfile([0.5, 0.5, 0.5, 0.5, 2. ])
    """
    c, counts = check_profile(clips, "clips"), array("sizes", sizes)
    if (
        counts.shape != c.shape
        or np.any(counts != np.round(counts))
        or counts.min() < 1
        or counts.sum() > 1e9
    ):
        raise DesignError.of("sizes", sizes, "must give a positive number of coordinates per clip")
    spend = {"gaussian": 2.0, "laplace": 1.0}[one_of("noise", noise, ("gaussian", "laplace"))]
    if isinstance(norm, np.ndarray) or (norm != math.inf and number("norm", norm) < 1):
        raise DesignError.of("norm", norm, "must be at least 1")
    k = counts.astype(np.int64)
    profile = np.repeat(c / counts ** (1 / max(norm, spend)), k).view(LayerProfile)
    profile.groups = tuple(np.split(np.arange(k.sum()), np.cumsum(k)[:-1]))
    return profile, profile.groups


def profile_of(sensitivity: Sensitivity, noise: str, dimension: int | None = None) -> Array:
    """Return the profile for changes that keep several bounds.

    Bounds on single coordinates are the profile, whatever else is stated (`NoiseAllocation.bounds` holds the rest). Without them all coordinates share one
    scale, by symmetry, and the profile consumes as much as the worst change: it is the largest ℓ₂ norm (Gaussian) or ℓ₁ norm (Laplace, pure
    privacy and what follows from it), spread evenly.

    Examples
    --------
    >>> from mechdesign.problem.sensitivity import Sensitivity
    >>> profile_of(Sensitivity(each=[1, 2, 5], linf=3), "gaussian")
    array([1., 2., 3.])
    >>> profile_of(Sensitivity(l2=2.0), "gaussian", 4).round(12).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    s = sensitivity
    plain = (s.l0, s.l1, s.l2) == (None, None, None)
    if not plain and noise not in CLOSED:
        raise DesignError.of("noise", noise, "takes bounds of single coordinates alone: each=, or linf=")
    if s.each is not None:
        if dimension is not None:
            s.check(dimension)
        return s.widths(len(s.each))
    if dimension is None:
        raise DesignError.of(
            "sensitivities",
            str(s),
            "does not state how many coordinates there are: use NoiseAllocation.of_sensitivity, or each=",
        )
    if plain:
        return np.full(dimension, s.linf)
    gaussian = noise == "gaussian"
    total = (
        s.largest_l2(dimension) / math.sqrt(dimension) if gaussian else s.largest_l1(dimension) / dimension
    )
    profile = np.full(dimension, total * (1 + 1e-15)).view(LayerProfile)
    profile.groups = (np.arange(dimension),)
    return profile


def check_bounds(bounds: Sensitivity, profile: Array, noise: str) -> bool:
    """Return whether several bounds restrict more than their profile; refuse another profile than theirs."""
    each = instance("bounds", bounds, Sensitivity).each
    if each is None or len(each) != len(profile):
        raise DesignError.of("bounds", str(bounds), f"must have each= for {len(profile)} coordinates")
    if not np.array_equal(profile_of(bounds, noise), profile):
        raise DesignError.of("sensitivities", profile, "must be what the bounds say of each")
    return bool(changes_of(bounds, 2 if noise == "gaussian" else 1).rows())


def check_groups(
    groups: Iterable[Numbers] | None, size: int, lower: Array | None = None, upper: Array | None = None
) -> tuple[Indices, ...] | None:
    """Return a partition of `size` coordinates as vectors of indices, or raise DesignError.

    Limits on the scales must leave the members of a group a common one.
    """
    if groups is None:
        return None
    try:
        given = [np.asarray(g).ravel() for g in groups]
        if any(g.size and g.dtype.kind not in "iu" for g in given):
            raise TypeError
        found = tuple(g.astype(np.int64) for g in given)
        counts = np.bincount(np.concatenate(found), minlength=size)
    except (TypeError, ValueError, OverflowError):
        raise DesignError.of("groups", groups, "must be lists of coordinate indices") from None
    if not all(map(len, found)):
        raise DesignError.of("groups", groups, "must not hold an empty group")
    if len(counts) > size:
        raise DesignError.of("groups", len(counts) - 1, f"is not a coordinate; there are {size}")
    if np.any(counts != 1):
        i = int(np.flatnonzero(counts != 1)[0])
        fault = "is in no group" if counts[i] == 0 else f"is in {counts[i]} groups"
        raise DesignError.of("groups", groups, f"must partition the coordinates; coordinate {i} {fault}")
    if lower is not None and upper is not None:
        for g in found:
            if lower[g].max() > upper[g].min():
                raise DesignError.of("groups", g.tolist(), "its members' limits exclude one another")
    return found

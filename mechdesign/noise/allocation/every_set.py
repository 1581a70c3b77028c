r"""What the worst change of a few coordinates spends at most, set of coordinates by set.

Gaussian noise spends a convex function of v, so that an extreme change is worst: whole in a set of coordinates and 0 in the rest, but
for two at most, j and k, that share what is left of both norms. There :math:`g_j v_j^2 + g_k v_k^2` is largest with one of the
two as large as it can be, or where both norms are met.

Laplace noise spends a linear function, so that each set of c coordinates that may change has prices of the norms that prove
what its worst change spends. They are looked for among multiples of the prices that are given.
"""

from __future__ import annotations

import math

import numpy as np

from mechdesign.noise.allocation.several import Changes, Prices
from mechdesign.typing import Array

__all__ = ["MOST_SETS", "most_of_sets"]

MOST_SETS = 12
"""Coordinates up to which all sets are looked at."""
_UP = 1e-13
"""Above the relative rounding of a few dozen products and roots, and for what is left of a norm also of the norm."""
_ONE, _TWO = (np.concatenate([[0.0], np.geomspace(0.05, 2.0, n)]) for n in (24, 96))
"""Multiples of the prices of L₁ and L₂²."""


def most_of_sets(asked: Changes, scales: Array, prices: Prices) -> float:
    """An upper bound of what any change spends, infinite for many coordinates.

    Examples
    --------
    >>> round(most_of_sets(Changes(np.ones(6), 2, l1=2.5, l2=1.5), np.ones(6), (0, 0, 0)), 9)
    2.25
    """
    moved = np.flatnonzero(asked.sizes)
    if len(moved) > MOST_SETS:
        return math.inf
    top = float(asked.sizes.max())
    a, s = asked.sizes[moved] / top, scales[moved]
    with np.errstate(over="ignore"):
        full = (asked.sizes[moved] / s) ** asked.spend
    if not np.isfinite(full).all():
        return math.inf
    count = min(asked.changed or len(a), len(a))
    sets = (np.arange(2 ** len(a))[:, None] >> np.arange(len(a))) & 1 == 1
    l1, l2 = (math.inf if bound is None else bound / top for bound in (asked.l1, asked.l2))
    if asked.spend == 2:
        return _extreme(a, full, sets[sets.sum(axis=1) <= count], count, l1, l2)
    return _linear(a, full, sets[sets.sum(axis=1) == count], l1, l2, prices[1] * top, prices[2] * top * top)


def _extreme(a: Array, full: Array, sets: Array, count: int, l1: float, l2: float) -> float:
    """Sets (M, K) that change as a whole, with the most that one or two others add, (M, K, K)."""
    room = _UP * (len(a) + sum(bound for bound in (l1, l2 * l2) if bound < math.inf))
    one, two = l1 + room - sets @ a, l2 * l2 + room - sets @ (a * a)
    fine = (one >= 0) & (two >= 0)
    sets, one, two = sets[fine], one[fine][:, None, None], two[fine][:, None, None]
    number, gain = sets.sum(axis=1)[:, None, None], np.where(sets, 0.0, full / (a * a))
    j, k = gain[:, :, None] * (number < count), gain[:, None, :] * (number + 1 < count)
    aj, ak = a[None, :, None], a[None, None, :]
    v = np.minimum(np.minimum(aj, one), np.sqrt(two))
    w = np.minimum(np.maximum(one - v, 0.0), np.sqrt(np.maximum(two - v * v, 0.0)))
    added = j * v * v + k * np.minimum(w, ak) ** 2
    if l1 < math.inf and l2 < math.inf:
        square = 2 * two - one * one
        far, near = (np.sqrt(np.maximum(square + sign * 9 * room * (1 + l1), 0.0)) for sign in (1, -1))
        met = (far > 0) & ((one + near) / 2 <= aj) & ((one - far) / 2 <= ak) & (one >= near)
        v, w = np.minimum((one + far) / 2, aj), np.minimum((one - near) / 2, ak)
        added = np.maximum(added, np.where(met, j * v * v + k * w * w, 0.0))
    both = np.arange(len(a))
    added[:, both, both] = 0.0
    return float((sets @ full + added.max(axis=(1, 2))).max()) * (1 + 100 * _UP)


def _linear(a: Array, full: Array, sets: Array, l1: float, l2: float, two: float, three: float) -> float:
    """Sets (M, K) that may change, with multiples of the prices."""
    rate = full / a
    ones = _ONE * (two or rate.max() / 2) if l1 < math.inf else np.zeros(1)
    twos = _TWO * (three or rate.max() / 2) if l2 < math.inf else np.zeros(1)
    one, square = (m.ravel()[:, None] for m in np.meshgrid(ones, twos))
    left = np.maximum(rate - one, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        gains = np.where(left < 2 * square * a, left * left / (4 * square), a * left - square * a * a)
    paid = one[:, 0] * (l1 if l1 < math.inf else 0.0) + square[:, 0] * (l2 * l2 if l2 < math.inf else 0.0)
    return float((sets.astype(float) @ gains.T + paid).min(axis=1).max()) * (1 + 100 * _UP)

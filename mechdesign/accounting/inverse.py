"""The generalised inverse of a privacy loss that has none in closed form: many roots at once, each in its bracket."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mechdesign.typing import Array

__all__ = ["inverse_of"]

_MESH = 256  # points of the mesh that brackets many roots
_OFF = 1e-14
"""How far a loss of a grid may be off, which the grid adds: below it the loss is rounding far out, and bisected in vain."""
_STEPS = 160
"""Of an interpolation and two halvings each, at most: 53 halvings end any bracket."""


def inverse_of(loss: Callable[[Any], Any], scale: float, edge: float = math.inf) -> Callable[[Any], Any]:
    """Return the generalised inverse of an odd, non-decreasing loss, infinite beyond `edge`.

    Examples
    --------
    >>> inverse = inverse_of(lambda t: t + t**3, 1.0)
    >>> inverse(np.array([-10.0, 2.0])).round(12).tolist()
    [-2.0, 1.0]
    """
    last = edge * (1 - 8 * np.finfo(float).eps)
    jump = float(loss(last)) if 0 < edge < math.inf else math.inf

    def inverse(v: Any) -> Any:
        v = np.asarray(v, dtype=float)
        w = np.abs(v).ravel()
        beyond = w >= jump
        if beyond.all():
            return np.where(v >= 0, edge, -edge)
        most = last if jump < math.inf else math.inf
        high = np.full_like(w, min(scale, most))
        for _ in range(600):
            short = (loss(high) <= w) & (high < min(most, 1e300)) & ~beyond
            if not short.any():
                break
            high = np.where(short, np.minimum(2 * high, most), high)
        never = (loss(high) <= w) | beyond
        w, low = np.where(never, 0.0, w), np.zeros_like(high)
        if w.size > _MESH:  # many roots: a mesh that all share leaves little of each bracket
            end = float(high[~never].max(initial=scale))
            mesh = np.append(np.linspace(0.0, end, _MESH), np.geomspace(end * 1e-9, end, _MESH))
            mesh.sort()
            reached = np.maximum.accumulate(loss(mesh))
            cell = np.searchsorted(reached, w, side="right")
            low, high = mesh[cell - 1], mesh[np.minimum(cell, mesh.size - 1)]
        root = _roots(loss, w, low, high, _OFF * min(1.0, float(w.max())) if w.size > 1 else 0.0)
        out = np.where(never, np.where(beyond, edge, np.inf), root).reshape(v.shape)
        return np.where(v >= 0, out, -out)

    return inverse


def _roots(loss: Callable[[Any], Any], w: Array, low: Array, high: Array, off: float) -> Array:
    """Where the loss is w, to within `off` or the resolution of doubles: false position (Illinois), halved where it is slow."""
    root, left = low.copy(), np.arange(w.size)
    with np.errstate(all="ignore"):  # beyond a support's end the loss is infinite
        below, above = loss(low) - w, loss(high) - w
        side = np.zeros(w.size)
        for step in range(_STEPS):
            x = high - above * ((high - low) / (above - below))
            between = (low < x) & (x < high)
            x = np.where(between, x, low / 2 + high / 2)
            if step % 3 == 2 and step > 6:
                x = low / 2 + high / 2
            f = loss(x) - w
            root[left] = x
            open_ = (np.abs(f) > off) & (high - low > 4e-16 * high)
            if not open_.any():
                break
            over = f > 0
            # the end that stays twice counts half: false position would creep up to one side
            above = np.where(over, f, np.where(side < 0, above / 2, above))
            below = np.where(over, np.where(side > 0, below / 2, below), f)
            low, high = np.where(over, low, x), np.where(over, x, high)
            side = np.where(over, 1.0, -1.0)
            if not open_.all():
                left, w, low, high = left[open_], w[open_], low[open_], high[open_]
                below, above, side = below[open_], above[open_], side[open_]
    return root

r"""The tail of a law of constant density on pieces whose outermost cells repeat for ever, in closed form.

Let a period of length L hold cells of mass M in all, and its k-th repetition, k ≥ 1, the same cells shifted by kL,
times :math:`r^k`. For t in the period with :math:`G(t)` of its mass beyond t, and any order of the sum,

.. math:: P[T > t + kL] = r^k \Big(G(t) + \frac{Mr}{1 - r}\Big), \qquad
          \sum_{k \ge 1} r^k (t + kL)^2 = \frac{r}{1-r} t^2 + \frac{2Lr}{(1-r)^2} t + \frac{L^2 r(1+r)}{(1-r)^3} .

However small the budget, and so however slow the fall, nothing is cut off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from mechdesign.typing import Array


def fall(decay: Fraction) -> float:
    """Return −log r, accurate for a ratio r near 0 and near 1."""
    return -math.log(decay) if 2 * decay < 1 else -math.log1p(-float(1 - decay))


@dataclass(frozen=True, eq=False)
class RepeatedTail:
    """The right tail of a law of constant density on pieces; the left one is that of the mirrored law.

    Parameters
    ----------
    body, ends : ndarray, shape (n,) and (n + 1,)
        Masses of the pieces without the repetitions, and their edges.
    masses, edges : ndarray, shape (m,) and (m + 1,)
        Of the cells that repeat, which end where the body does.
    decay : Fraction
        r in [0, 1); 0 where nothing repeats.

    Examples
    --------
    >>> half = np.array([0.25, 0.25])
    >>> tail = RepeatedTail(half, np.array([0.0, 1.0, 2.0]), half[1:], np.array([1.0, 2.0]), Fraction(1, 2))
    >>> tail.beyond(np.array([1.0, 2.0, 3.0])).tolist()
    [0.5, 0.25, 0.125]
    """

    body: Array
    ends: Array
    masses: Array
    edges: Array
    decay: Fraction

    @cached_property
    def _above(self) -> Array:
        """Mass of the body beyond its edges."""
        return np.append(np.cumsum(self.body[::-1])[::-1], 0.0)

    @cached_property
    def _above_in_period(self) -> Array:
        """Mass of a period beyond its edges."""
        return np.append(np.cumsum(self.masses[::-1])[::-1], 0.0)

    @cached_property
    def rest(self) -> float:
        """Mass of all repetitions."""
        return float(self.masses.sum()) * float(self.decay / (1 - self.decay))

    @cached_property
    def _rate(self) -> float:
        return fall(self.decay) if self.decay else math.inf

    def _falls(self, turns: Array) -> Array:
        """Return r to the power of the number of repetitions."""
        return np.exp(-self._rate * turns) if self.decay else np.where(turns > 0, 0.0, 1.0)

    def folded(self, t: Array) -> tuple[Array, Array]:
        """Return t moved back into the body, and the factor of the repetition's mass."""
        length = self.edges[-1] - self.edges[0]
        turns = np.where(t < self.ends[-1], 0.0, np.floor((t - self.ends[-1]) / length) + 1)
        return t - turns * length, self._falls(turns)

    def beyond(self, t: Array) -> Array:
        """Return P[T > t], for t from the body's first edge on."""
        back, lighter = self.folded(t)
        inside = np.interp(t, self.ends, self._above) + self.rest
        return np.where(
            t < self.ends[-1],
            inside,
            lighter * (np.interp(back, self.edges, self._above_in_period) + self.rest),
        )

    def reached(self, p: Array, side: Literal["left", "right"] = "left") -> Array:
        """Return the least t, or with "right" the largest, at which P[T > t] is p."""
        if not self.rest:
            return _point_beyond(p, self._above, self.ends, side)
        beyond = (p < self.rest) & (p > 0)
        turns = np.where(beyond, np.floor(np.log(self.rest / np.where(beyond, p, 1.0)) / self._rate) + 1, 0.0)
        length = self.edges[-1] - self.edges[0]
        outside = (
            _point_beyond(p / self._falls(turns) - self.rest, self._above_in_period, self.edges, side)
            + turns * length
        )
        found = np.where(beyond, outside, _point_beyond(p - self.rest, self._above, self.ends, side))
        return np.where(p <= 0, math.inf, found)


def _point_beyond(p: Array, above: Array, edges: Array, side: Literal["left", "right"]) -> Array:
    """Return the point beyond which the mass is p, in a piece that has mass."""
    piece = np.clip(np.searchsorted(-above, -p, side=side) - 1, 0, len(edges) - 2)
    mass = above[piece] - above[piece + 1]
    share = np.divide(above[piece] - p, mass, out=np.zeros_like(mass), where=mass > 0)
    return np.asarray(edges[piece] + np.clip(share, 0.0, 1.0) * (edges[piece + 1] - edges[piece]))

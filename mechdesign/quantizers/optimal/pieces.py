r"""The fill piece by piece over the input range, with a bias budget if there is one.

With :math:`|\sum_i B_i p(x, i) - x| \le b` allowed, the inner dual becomes
:math:`\lambda + \mu x - b|\mu| + \sum_k a_k h(c_k)` and the block's position

.. math:: s(x) = \mathrm{clamp}\bigl(s_0(x),\; m^{-1}(x - b),\; m^{-1}(x + b)\bigr),

:math:`s_0(x)` being the best position with no constraint on the mean (μ = 0): where the two ends of the block
cost the same. Between consecutive breakpoints the row is affine in x (clamped) or constant (free), so the
mechanism is still piecewise affine, now with jumps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mechdesign.quantizers.mechanism.error_curve import mean
from mechdesign.quantizers.mechanism.table import PiecewiseTable, cell_edges
from mechdesign.quantizers.optimal.expected_loss import FloorProblem
from mechdesign.quantizers.optimal.floors import BlockFill
from mechdesign.typing import Array, Indices

__all__ = ["Pieces", "pieces"]


@dataclass(frozen=True, eq=False)
class Pieces:
    """Intervals of inputs on which the fill's structure is fixed.

    Attributes
    ----------
    fill : BlockFill
    edges : ndarray (S + 1,)
        From lower to upper.
    left, right : ndarray (S,)
        Outputs i ≤ j that the dual's chord goes through; i = j stands for μ = 0.
    shift : ndarray (S,)
        Mean minus input where the mean is tied to the input.
    position : ndarray (S,)
        Indices of the fill's knot where the row is constant (free), −1 where it is tied.
    segment : ndarray (S,)
        The fill's segment of a tied row.
    """

    fill: BlockFill
    edges: Array
    left: Indices
    right: Indices
    shift: Array
    position: Indices
    segment: Indices

    @cached_property
    def rows(self) -> tuple[Array, Array]:
        """Rows at the start and at the end of every piece, each (S, m)."""
        out = []
        fill = self.fill
        last = len(fill.left) - 1
        for x in (self.edges[:-1], self.edges[1:]):
            free = self.position >= 0
            segment = np.where(free, np.minimum(self.position, last), self.segment)
            mean = np.where(free, fill.means[self.position], x + self.shift)
            low, high = fill.means[segment], fill.means[segment + 1]
            rows = fill.rows(np.clip(mean, low, high), segment)
            # Where caps are 1e9 times the floors, clipping to them may have moved the sum.
            total = rows.sum(axis=1, keepdims=True)
            out.append(np.where(np.abs(total - 1.0) > 1e-12, rows / total, rows))
        return out[0], out[1]

    @cached_property
    def table(self) -> PiecewiseTable:
        """The rows as a mechanism's table."""
        return PiecewiseTable(self.fill.bins, self.edges, *self.rows)

    def at(self, x: Array) -> Indices:
        """The piece each input is in."""
        return np.clip(np.searchsorted(self.edges, x, side="right") - 1, 0, len(self.left) - 1)

    def outputs(self, x: Array) -> tuple[Indices, Indices]:
        """The outputs i ≤ j of the dual's chord at inputs x."""
        at = self.at(x)
        return self.left[at], self.right[at]

    def rows_at(self, x: Array, piece: Indices) -> Array:
        """Rows at inputs x that lie in the given pieces; shape (len(x), m)."""
        start, end = self.rows
        t = ((x - self.edges[piece]) / np.diff(self.edges)[piece])[:, None]
        return (1 - t) * start[piece] + t * end[piece]

    def cells(self, *cuts: Array) -> tuple[Array, Indices]:
        """Edges of the pieces, cut at the outputs and at `cuts`, and the piece that each cell is in.

        Where the row is constant the dual is the cost of one output, and another one's may pass it: halfway between
        the two, for losses that mirror. There the cells are cut too, so that reduced costs keep their sign.
        """
        bins, free = self.fill.bins, np.flatnonzero(self.position >= 0)
        turns = (bins[self.left[free]][:, None] + bins) / 2
        within = (turns > self.edges[free][:, None]) & (turns < self.edges[free + 1][:, None])
        cells = cell_edges(bins, np.unique(np.concatenate([self.edges, turns[within], *cuts])))
        return cells, self.at((cells[:-1] + cells[1:]) / 2)

    def duals(self, problem: FloorProblem, x: Array, piece: Indices) -> tuple[Array, Array, Array]:
        """λ + μx − b|μ|, the reduced h(c_k), and μ, at inputs x that lie in the given pieces."""
        lam, mu = problem.slopes(x, self.left[piece], self.right[piece])
        return lam + mu * x - problem.bias * np.abs(mu), problem.reduced(x, lam, mu), mu

    def expected_loss(self, problem: FloorProblem) -> float:
        """Expected loss of the rows themselves (of the duals, only a bound is known)."""
        return mean(self.table, problem.prior, problem.loss)


def pieces(problem: FloorProblem, floors: Array) -> Pieces:
    """Return the pieces of the best mechanism with these floors."""
    fill = problem.fill(floors)
    lower, upper, bias = problem.lower, problem.upper, problem.bias
    # While the block stays inside one cell the mean stands still, but for rounding.
    proper = np.flatnonzero((fill.means[1:] > fill.means[:-1]) & (fill.left < fill.right))
    if proper.size == 0:
        proper = np.arange(len(fill.left))
    if bias == 0.0:
        inner = fill.means[proper[1:]]
        inner = inner[(inner > lower) & (inner < upper)]
        edges = np.concatenate([[lower], np.unique(inner), [upper]])
        segment = _segment(fill, proper, (edges[:-1] + edges[1:]) / 2)
        nothing = np.zeros(len(segment))
        return Pieces(
            fill,
            edges,
            fill.left[segment],
            fill.right[segment],
            nothing,
            np.full(len(segment), -1),
            segment,
        )
    turn = _indifference(problem, fill)
    cuts = np.concatenate([turn, fill.means - bias, fill.means + bias])
    cuts = np.unique(cuts[(cuts > lower) & (cuts < upper)])
    edges = np.concatenate([[lower], cuts, [upper]])
    middle = (edges[:-1] + edges[1:]) / 2
    q = np.searchsorted(turn, middle, side="right")  # knot of the fill where s_0 sits
    free_mean = fill.means[q]
    # Within rounding of the budget a row counts as free: its own dual is the one that is tight.
    near = bias + 1e-14 * (abs(lower) + abs(upper) + float(np.abs(fill.bins).max()))
    up, down = free_mean > middle + near, free_mean < middle - near
    shift = np.where(up, bias, np.where(down, -bias, 0.0))
    segment = _segment(fill, proper, middle + shift)
    tied = up | down
    # At a knot one end of the block is at a cell boundary; the other end's output is the one that pays λ.
    K = len(fill.left)
    before, after = np.clip(q - 1, 0, K - 1), np.clip(q, 0, K - 1)
    moved_left = fill.left[after] > fill.left[before]
    pivot = np.where(moved_left, fill.right[after], fill.left[after])
    pivot = np.where(q == 0, fill.right[0], np.where(q == K, fill.left[K - 1], pivot))
    return Pieces(
        fill,
        edges,
        np.where(tied, fill.left[segment], pivot),
        np.where(tied, fill.right[segment], pivot),
        shift,
        np.where(tied, -1, q),
        segment,
    )


def _segment(fill: BlockFill, proper: Indices, mean: Array) -> Indices:
    """The segment of positive width in which each mean lies."""
    at = np.searchsorted(fill.means[proper + 1], mean, side="left")
    return proper[np.minimum(at, len(proper) - 1)]


def _indifference(problem: FloorProblem, fill: BlockFill) -> Array:
    """Inputs at which the two ends of the block cost the same, one per segment, non-decreasing."""
    low, high = problem.bins[fill.left], problem.bins[fill.right]
    if problem.loss.polynomial:
        turn = (low + high) / 2
    else:
        # ℓ(B_i − x) − ℓ(B_j − x) increases in x for convex ℓ: bisect between the two outputs and beyond.
        span = problem.bins[-1] - problem.bins[0]
        a, b = low - span, high + span
        for _ in range(80):
            middle = (a + b) / 2
            right = problem.loss(low - middle) > problem.loss(high - middle)
            a, b = np.where(right, a, middle), np.where(right, middle, b)
        turn = (a + b) / 2
    # A block inside one cell gives the same row wherever it is: no turn of its own.
    turn = np.where(fill.left == fill.right, -np.inf, turn)
    return np.maximum.accumulate(turn)

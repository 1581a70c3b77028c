r"""From what a method leaves behind to multipliers that prove its bound: the fill's chords, as `DualPieces`.

A method says at which floors the fill's chords are taken, on which inputs and with which weights (`Chords`), and which
lines it takes at point masses or worst inputs (`Lines`). The frame of the methods is undone here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mechdesign.quantizers.common.dual_pieces import DualPieces
from mechdesign.quantizers.optimal.expected_loss import FloorProblem
from mechdesign.quantizers.optimal.pieces import Pieces, pieces
from mechdesign.typing import Array

__all__ = ["Chords", "Lines", "Proof", "dual_pieces", "fill_proof"]


@dataclass(frozen=True, eq=False)
class Chords:
    """The fill's chords on the inputs from `start` to `stop`, with weight `share`; `table` is the fill's."""

    table: Pieces
    start: float
    stop: float
    share: float = 1.0


@dataclass(frozen=True, eq=False)
class Lines:
    """Lines λ + μB at single inputs, with weights that are shares of the prior's point masses there."""

    x: Array
    share: Array
    lam: Array
    mu: Array


@dataclass(frozen=True, eq=False)
class Proof:
    """What a lower bound was found from."""

    chords: tuple[Chords, ...]
    lines: tuple[Lines, ...]
    multipliers: Array
    cap_price: float = 0.0


def fill_proof(
    problem: FloorProblem, floors: Array, multipliers: Array, duals: tuple[Array, Array] | None = None
) -> Proof:
    """The fill's own chords everywhere; at point masses the given λ and μ, or those chords too."""
    table, x = pieces(problem, floors), problem.atoms[0]
    if duals is None:
        at = table.at(x)
        duals = problem.slopes(x, table.left[at], table.right[at])
    return Proof(
        (Chords(table, problem.lower, problem.upper),), (Lines(x, np.ones(len(x)), *duals),), multipliers
    )


def dual_pieces(problem: FloorProblem, proof: Proof, frame: tuple[float, float]) -> DualPieces:
    """Return the multipliers in the design's own units."""
    m, (centre, unit) = len(problem.bins), frame
    chords = proof.chords if problem.has_density else ()
    parts = [_chords(problem, c, proof.cap_price) for c in chords]
    parts += [_lines(problem, p, proof.cap_price) for p in proof.lines]
    table = np.concatenate([np.zeros((0, 7)), *parts])
    # Weights that were divided by their sum may add up to a hair more than one.
    table[table[:, 2] % 0.5 != 0, 2] *= 1 - 1e-13
    table[:, :2] *= unit
    table[:, 5:] /= unit
    upper, lower = np.maximum(proof.multipliers[2:], 0.0).reshape(2, m) / unit
    return DualPieces(table, np.stack([upper, lower]), centre, proof.cap_price / unit**2)


def _straight(problem: FloorProblem, x: Array, lam: Array, mu: Array, price: float) -> tuple[Array, Array]:
    """L and M, which are affine where no output is passed."""
    w2 = problem.loss.squared + price
    # A hair lower, so that rounding leaves no cost below zero at the line's own outputs: ρ would multiply it.
    hair = 4e-16 * (problem.scale + price * problem.span**2)
    return lam - w2 * x * x - hair, mu + 2 * w2 * x


def _chords(problem: FloorProblem, chords: Chords, price: float) -> Array:
    table = chords.table
    cells, at = table.cells(np.array([chords.start, chords.stop]))
    inside = (cells[:-1] >= chords.start) & (cells[1:] <= chords.stop)
    u, v, at = cells[:-1][inside], cells[1:][inside], at[inside]
    i, j = table.left[at], table.right[at]
    middle, loss = (u + v) / 2, problem.loss
    # One-sided limits: the sign of B − x is the one inside the cell.
    low, high = problem.bins[i], problem.bins[j]
    sign_low, sign_high = np.where(low < middle, -1.0, 1.0), np.where(high < middle, -1.0, 1.0)
    ends = []
    for x in (u, v):
        cost_low = loss.absolute * sign_low * (low - x) + (loss.squared + price) * (low - x) ** 2
        cost_high = loss.absolute * sign_high * (high - x) + (loss.squared + price) * (high - x) ** 2
        mu = np.where(i == j, 0.0, (cost_high - cost_low) / np.where(i == j, 1.0, high - low))
        ends.append(_straight(problem, x, cost_low - mu * low, mu, price))
    (L0, M0), (L1, M1) = ends
    return np.stack([u, v, np.full(len(u), chords.share), L0, L1, M0, M1], axis=1)


def _lines(problem: FloorProblem, lines: Lines, price: float) -> Array:
    x, share, mu = lines.x, lines.share, lines.mu
    L, M = _straight(problem, x, lines.lam, mu, price)
    return np.stack([x, x, share, L, L, M, M], axis=1)

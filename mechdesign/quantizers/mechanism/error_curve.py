"""The error of a quantizer as a function of the input: its exact mean under a prior, and its largest value.

Between neighbouring knots and bins E ℓ(M(x) − x) is a quadratic for absolute and squared losses, and smooth for any
smooth loss. These intervals are the cells.
"""

from __future__ import annotations

import numpy as np

from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.mechanism.table import PiecewiseTable
from mechdesign.typing import Array

__all__ = ["at", "largest", "mean", "peaks"]


def at(table: PiecewiseTable, x: Array, loss: Loss) -> Array:
    """E ℓ(M(x) − x), element-wise."""
    return np.sum(table.probabilities(x) * loss(table.bins - x[..., None]), axis=-1)


def _quadratics(table: PiecewiseTable, loss: Loss) -> tuple[Array, Array]:
    """Edges and coefficients (K', 3): on each cell E ℓ = a + b h + c h², h = x − left edge."""
    bins = table.bins
    edges, p, slope = table.cells()
    left = edges[:-1]
    d = bins[None, :] - left[:, None]
    sign = np.where(bins[None, :] >= edges[1:, None], 1.0, -1.0)
    total = np.zeros((len(left), 3))
    if loss.absolute:
        # |B − x| = s (d − h) on the cell
        parts = [np.sum(p * sign * d, 1), np.sum(sign * (slope * d - p), 1), -np.sum(sign * slope, 1)]
        total += loss.absolute * np.stack(parts, axis=1)
    if loss.squared:
        # (d − h)²; the cubic term has the factor Σ slope = 0
        parts = [
            np.sum(p * d * d, 1),
            np.sum(slope * d * d - 2 * p * d, 1),
            np.sum(p, 1) - 2 * np.sum(slope * d, 1),
        ]
        total += loss.squared * np.stack(parts, axis=1)
    return edges, total


def mean(table: PiecewiseTable, prior: Prior, loss: Loss) -> float:
    """E ℓ(M(X) − X): partial moments of order 0–2 on every cell; adaptive quadrature for callables."""
    if not loss.polynomial:
        edges = table.cells()[0]

        def integrand(x: Array) -> Array:
            return at(table, np.clip(x, *table.input_range), loss)[:, None]

        return float(prior.integrals(integrand, edges).sum())
    edges, coefficients = _quadratics(table, loss)
    a, b, c = coefficients.T
    lower, upper = table.input_range
    centre = (lower + upper) / 2
    if abs(centre) > 2 * (upper - lower):
        # Far from zero, moments about zero would lose their digits.
        prior, edges = prior.standardised(centre, 1.0), edges - centre
    m0, m1, m2 = prior.moments(edges).T
    left = edges[:-1]
    return float(np.sum(a * m0 + b * (m1 - left * m0) + c * (m2 - 2 * left * m1 + left * left * m0)))


def peaks(table: PiecewiseTable, loss: Loss) -> tuple[Array, Array]:
    """Return, for each cell, the input at which E ℓ(M(x) − x) is largest, and its value there.

    A quadratic's peak is exact; for callables 33 points a cell are tried and the best of them refined.
    """
    if loss.polynomial:
        edges, coefficients = _quadratics(table, loss)
        a, b, c = coefficients.T
        width = np.diff(edges)
        peak = np.clip(np.divide(-b, 2 * c, out=np.zeros_like(b), where=c < 0), 0, width)
        h = np.stack([np.zeros_like(width), width, peak])
        values = a + b * h + c * h * h
    else:
        edges, p, slope = table.cells()
        width = np.diff(edges)

        def value(h: Array) -> Array:
            rows = p + slope * h[..., None]
            return np.asarray(np.sum(rows * loss(table.bins - (edges[:-1] + h)[..., None]), axis=-1))

        share = (1 - np.cos(np.linspace(0, np.pi, 33))) / 2
        best = np.argmax(value(share[:, None] * width), axis=0)
        low, high = (share[np.clip(best + step, 0, 32)] * width for step in (-1, 1))
        for _ in range(60):
            third = (high - low) / 3
            right = value(low + third) < value(high - third)
            low, high = np.where(right, low + third, low), np.where(right, high, high - third)
        h = np.stack([share[best] * width, low, high])
        values = value(h)
    first = np.argmax(values, axis=0)[None]
    where = edges[:-1] + np.take_along_axis(h, first, 0)[0]
    return np.minimum(where, edges[1:]), np.take_along_axis(values, first, 0)[0]


def largest(table: PiecewiseTable, loss: Loss) -> tuple[float, float]:
    """Return sup over inputs of E ℓ(M(x) − x), and where."""
    where, values = peaks(table, loss)
    best = int(np.argmax(values))
    return float(values[best]), float(where[best])

"""The error of a quantizer as a function of the input: its exact mean under a prior, and its largest value.

Between neighbouring knots and bins E ℓ(M(x) − x) is a quadratic for absolute and squared losses, and smooth for any
smooth loss. These intervals are the cells.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mechdesign.evidence.accuracy import Accuracy, quantile
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.mechanism.table import PiecewiseTable
from mechdesign.typing import Array

__all__ = ["accuracy", "at", "largest", "mean", "peaks"]


# Equal stretches of the input range on which errors are listed for their 95% half-width.
_STRETCHES = 2000


def accuracy(mechanism: Any, prior: Any) -> Accuracy:
    """Errors of a mechanism averaged over a prior: the half-width from rows at the middle of equal stretches."""
    law = Prior.of(prior, mechanism.input_range)
    low, high = mechanism.input_range
    edges = np.linspace(low, high, _STRETCHES + 1)
    middle = (edges[:-1] + edges[1:]) / 2
    weights = law.moments(edges)[:, :1] * mechanism.probabilities(middle)
    return Accuracy(
        math.sqrt(mechanism.expected_loss(law, "squared")),
        mechanism.expected_loss(law, "absolute"),
        quantile(np.abs(mechanism.bins - middle[:, None]), weights) + (edges[1] - edges[0]) / 2,
    )


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
    """Return sup over inputs of E ℓ(M(x) − x), and where; of a callable loss, an upper bound within 1e-9 of it.

    On a cell probabilities are affine and a convex ℓ is below its chord, so that the quadratic of the two is above the
    curve; cells on which it is above the best value seen are halved.
    """
    if loss.polynomial:
        where, values = peaks(table, loss)
        worst = int(np.argmax(values))
        return float(values[worst]), float(where[worst])
    edges, start, slope = table.cells()
    u, v = edges[:-1], edges[1:]
    end = start + slope * (v - u)[:, None]
    best, ceiling = float("-inf"), float("-inf")
    at_best = float(u[0])
    for _ in range(60):
        left, right = loss(table.bins - u[:, None]), loss(table.bins - v[:, None])
        low, high = np.sum(start * left, axis=1), np.sum(end * right, axis=1)
        both = np.sum(start * right + end * left, axis=1)
        for x, values in ((u, low), (v, high)):
            if values.max() > best:
                best, at_best = float(values.max()), float(x[np.argmax(values)])
        # low (1 − t)² + both t (1 − t) + high t²
        curve = low + high - both
        t = np.clip(np.divide(low - both / 2, curve, out=np.zeros_like(low), where=curve < 0), 0.0, 1.0)
        above = np.maximum(low * (1 - t) ** 2 + both * t * (1 - t) + high * t * t, np.maximum(low, high))
        open_ = above > best + 1e-9 * abs(best)
        ceiling = max(ceiling, float(above[~open_].max(initial=best)))
        if not open_.any() or np.count_nonzero(open_) > 1 << 14:
            break
        u, v, start, end, above = u[open_], v[open_], start[open_], end[open_], above[open_]
        middle, row = (u + v) / 2, (start + end) / 2
        u, v = np.concatenate([u, middle]), np.concatenate([middle, v])
        start, end = np.concatenate([start, row]), np.concatenate([row, end])
    return max(ceiling, float(above.max())), at_best

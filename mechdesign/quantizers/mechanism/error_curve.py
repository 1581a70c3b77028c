"""The error of a quantizer as a function of the input: its exact mean under a prior, and its largest value.

Between neighbouring knots and bins E ℓ(M(x) − x) is a quadratic for absolute and squared losses, and smooth for any
smooth loss. These intervals are the cells.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize

from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.mechanism.table import PiecewiseTable
from mechdesign.typing import Array

__all__ = ["at", "largest", "mean"]


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


def largest(table: PiecewiseTable, loss: Loss) -> tuple[float, float]:
    """Return sup over inputs of E ℓ(M(x) − x), and where: at a quadratic's peak, or by a search of every cell."""
    if loss.polynomial:
        edges, coefficients = _quadratics(table, loss)
        a, b, c = coefficients.T
        width = np.diff(edges)
        peak = np.clip(np.divide(-b, 2 * c, out=np.zeros_like(b), where=c < 0), 0, width)
        h = np.stack([np.zeros_like(width), peak, width])
        values = a + b * h + c * h * h
        where = np.unravel_index(int(np.argmax(values)), values.shape)
        return float(values[where]), float(min(edges[where[1]] + h[where], edges[-1]))
    edges, p, slope = table.cells()
    best = (-math.inf, 0.0)
    for k in range(len(edges) - 1):

        def negative(h: float, k: int = k) -> float:
            return -float((p[k] + slope[k] * h) @ loss(table.bins - edges[k] - h))

        width = edges[k + 1] - edges[k]
        found = optimize.minimize_scalar(negative, bounds=(0, width), options={"xatol": 1e-12})
        for candidate in (0.0, float(found.x), float(width)):
            best = max(best, (-negative(candidate), float(edges[k] + candidate)))
    return best

"""The error of a quantizer as a function of the input: its exact mean under a prior, and its largest value.

Between neighbouring knots and bins E ℓ(M(x) − x) is a quadratic for absolute and squared losses, and smooth for any
smooth loss. These intervals are the cells.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import optimize

from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.typing import Array

if TYPE_CHECKING:
    from mechdesign.quantizers.mechanism.quantizer import Quantizer

__all__ = ["largest", "mean"]


def _cells(quantizer: Quantizer) -> tuple[Array, Array, Array]:
    """Edges of the cells, p at the start of each and its slope."""
    lower, upper = quantizer.input_range
    bins, knots = quantizer.bins, quantizer.knots
    edges = np.union1d(knots, bins[(bins > lower) & (bins < upper)])
    segment = np.searchsorted(knots, edges[:-1], side="right") - 1
    slope = (quantizer.ends[segment] - quantizer.starts[segment]) / np.diff(knots)[segment][:, None]
    start = quantizer.starts[segment] + slope * (edges[:-1] - knots[segment])[:, None]
    return edges, start, slope


def _quadratics(quantizer: Quantizer, loss: Loss) -> tuple[Array, Array]:
    """Edges and coefficients (K', 3): on each cell E ℓ = a + b h + c h², h = x − left edge."""
    bins = quantizer.bins
    edges, p, slope = _cells(quantizer)
    left = edges[:-1]
    d = bins[None, :] - left[:, None]
    sign = np.where(bins[None, :] >= edges[1:, None], 1.0, -1.0)
    sign = np.where(bins[None, :] <= left[:, None], -1.0, sign)
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


def mean(quantizer: Quantizer, prior: Prior, loss: Loss) -> float:
    """E ℓ(M(X) − X): partial moments of order 0–2 on every cell; adaptive quadrature for callables."""
    if not loss.polynomial:
        edges = _cells(quantizer)[0]

        def integrand(x: Array) -> Array:
            return quantizer.loss_at(np.clip(x, *quantizer.input_range), loss)[:, None]

        return float(prior.integrals(integrand, edges).sum())
    edges, coefficients = _quadratics(quantizer, loss)
    a, b, c = coefficients.T
    m0, m1, m2 = prior.moments(edges).T
    left = edges[:-1]
    return float(np.sum(a * m0 + b * (m1 - left * m0) + c * (m2 - 2 * left * m1 + left * left * m0)))


def largest(quantizer: Quantizer, loss: Loss) -> tuple[float, float]:
    """Return sup over inputs of E ℓ(M(x) − x), and where: at a quadratic's peak, or by a search of every cell."""
    if loss.polynomial:
        edges, coefficients = _quadratics(quantizer, loss)
        a, b, c = coefficients.T
        width = np.diff(edges)
        peak = np.clip(np.divide(-b, 2 * c, out=np.zeros_like(b), where=c < 0), 0, width)
        h = np.stack([np.zeros_like(width), peak, width])
        values = a + b * h + c * h * h
        where = np.unravel_index(int(np.argmax(values)), values.shape)
        return float(values[where]), float(min(edges[where[1]] + h[where], edges[-1]))
    edges, p, slope = _cells(quantizer)
    best = (-math.inf, 0.0)
    for k in range(len(edges) - 1):

        def negative(h: float, k: int = k) -> float:
            return -float((p[k] + slope[k] * h) @ loss(quantizer.bins - edges[k] - h))

        width = edges[k + 1] - edges[k]
        inside = optimize.minimize_scalar(
            negative, bounds=(0, width), method="bounded", options={"xatol": 1e-12}
        )
        for candidate in (0.0, float(inside.x), float(width)):
            best = max(best, (-negative(candidate), float(edges[k] + candidate)))
    return best

"""What is asked of the noise of K coordinates, in numbers, and what a law of any kind costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mechdesign.evidence.rounding import round_up
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.optimal.costs import law_cost
from mechdesign.noise.optimal.many.mechanism import CellProduct
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import ApproximateDP

__all__ = ["ManyQuestion", "cost_of"]


@dataclass(frozen=True)
class ManyQuestion:
    """The problem.

    Parameters
    ----------
    loss : Loss
        Of one coordinate.
    sensitivity : float
        Δ, of every coordinate.
    privacy : ApproximateDP
        δ > 0.
    dimension : int
        K ≥ 2.
    cells : int, optional
        Cells per sensitivity of the free law; as many as its reach suggests when not given.
    """

    loss: Loss
    sensitivity: float
    privacy: ApproximateDP
    dimension: int
    cells: int | None = None

    @cached_property
    def judged(self) -> str:
        """The loss by which a family's shape is chosen."""
        return "absolute" if self.loss.absolute and not self.loss.squared else "squared"


def cost_of(noise: AdditiveNoise | CellProduct, loss: Loss) -> float:
    """Expected loss of one coordinate: rounded up where it is exact, else in doubles."""
    if isinstance(noise, CellProduct):
        return round_up(law_cost(noise.law, loss))
    value = 0.0
    if loss.absolute:
        value += loss.absolute * noise.absolute_error
    if loss.squared:
        value += loss.squared * noise.variance
    if loss.function is not None:
        value += _integrated(noise.law, Loss(function=loss.function))
    return value


def _integrated(law: Any, loss: Loss) -> float:
    """E ℓ(T) by Gauss–Legendre on pieces of a quarter of the spread; infinite where the loss outgrows doubles."""
    spread = float(law.std())
    top = min(float(law.support()[1]), float(law.isf(1e-15)) + 4 * spread)
    edges = np.append(np.arange(0.0, top, spread / 4), top)
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = np.diff(edges)[:, None] / 2
    t = edges[:-1, None] + half * (1 + nodes)
    with np.errstate(all="ignore"):
        value = float(np.sum((loss(t) + loss(-t)) * law.pdf(t) * weights * half))
    return value if math.isfinite(value) else math.inf

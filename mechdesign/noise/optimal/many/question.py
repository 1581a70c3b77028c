"""What is asked of the noise of K coordinates, in numbers, and what a law of any kind costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.rounding import round_up
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.costs import law_cost
from mechdesign.noise.optimal.many.mechanism import CellProduct
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import ApproximateDP, PureDP
from mechdesign.problem.sensitivity import Sensitivity

__all__ = ["ManyQuestion", "alike", "cost_of"]


@dataclass(frozen=True)
class ManyQuestion:
    """The problem.

    Parameters
    ----------
    loss : Loss
        Of one coordinate.
    sensitivity : float
        Δ, of every coordinate.
    privacy : PureDP or ApproximateDP
    dimension : int
        How many coordinates move at once, at most.
    cells : int, optional
        Cells per sensitivity of the free law; as many as its reach suggests when not given.
    numbers : int, optional
        K, where it is more than that.
    """

    loss: Loss
    sensitivity: float
    privacy: PureDP | ApproximateDP
    dimension: int
    cells: int | None = None
    numbers: int | None = None

    def product(self, law: CellNoise) -> CellProduct:
        """The law on every coordinate."""
        if self.numbers is None:
            return CellProduct(law, self.dimension)
        return CellProduct(law, self.numbers, self.dimension)

    def named(self, law: Any) -> AdditiveNoise:
        """A law of `scipy.stats` on every coordinate."""
        if self.numbers is None:
            return AdditiveNoise(law, self.sensitivity, self.dimension)
        return AdditiveNoise(law, Sensitivity(linf=self.sensitivity, changed=self.dimension), self.numbers)

    @property
    def delta(self) -> float:
        """δ of the requirement."""
        return float(getattr(self.privacy, "delta", 0.0))

    @cached_property
    def judged(self) -> str:
        """The loss by which a family's shape is chosen."""
        return "absolute" if self.loss.absolute and not self.loss.squared else "squared"


def alike(sensitivity: Sensitivity, dimension: int) -> tuple[float, int]:
    """Return (a, c) where the changes are all those of at most c coordinates by at most a each; refuse other sets.

    Independent noise of one law is as private on that set as on c coordinates that all move by up to a. Which coordinates
    move does not matter, nor whether all rise or fall together, since the law is symmetric.

    Examples
    --------
    >>> alike(Sensitivity(linf=1, changed=3), 20), alike(Sensitivity(each=[2, 2, 0]), 3)
    ((1.0, 3), (2.0, 2))
    """
    bounds = sensitivity.bounds(dimension)
    if len(bounds) > 1 or not sensitivity.allows(bounds):
        raise DesignError.of(
            "sensitivity",
            str(sensitivity),
            "the best noise is known where at most c coordinates change by at most a each: "
            "Sensitivity(linf=a, changed=c), a and c so large that they cover these changes",
        )
    return bounds[0]


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

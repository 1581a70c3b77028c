"""K independent coordinates of one cell law: sampled and released exactly, private as a whole."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mechdesign.accounting.interval import DeltaInterval
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import round_up, safe_root
from mechdesign.evidence.results import Accuracy
from mechdesign.evidence.serialize import dumps, serializable
from mechdesign.evidence.whole_files import write_whole
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.composition import many_interval
from mechdesign.noise.pictures import draw_laws
from mechdesign.noise.vector_noise import shape_of
from mechdesign.problem.checks import answers, array, instance, non_negative, probability, settle, whole
from mechdesign.typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CellProduct"]


@serializable("cell-product")
@dataclass(frozen=True)
class CellProduct:
    r"""Independent noise of one cell law on every coordinate of a query.

    Every coordinate may move by up to n cells of the law (``law.cells_per_shift``), all K at once, or c of them.

    Parameters
    ----------
    law : CellNoise
        Symmetric about 0.
    dimension : int
        K ≥ 1.
    changed : int, optional
        c ≤ K: how many coordinates may move at once, at most; all when not given.

    Raises
    ------
    DesignError
        A law that is not symmetric, a dimension that is no whole number.

    Examples
    --------
    >>> noise = CellProduct(CellNoise((1, 2, 4, 8, 4, 2, 1), 1.0, -3.5, cells_per_shift=1), 3)
    >>> round(noise.variance, 4), round(noise.delta_interval(1.0).upper, 3)
    (1.9924, 0.3)
    """

    law: CellNoise
    dimension: int
    changed: int | None = None

    def __post_init__(self) -> None:
        instance("law", self.law, CellNoise)
        settle(self, dimension=whole("dimension", self.dimension, 1, 10**9))
        if self.changed is not None:
            settle(self, changed=whole("changed", self.changed, 1, self.dimension))
        if not self.law.symmetric:
            raise DesignError.of("law", "its start or weights", "must be symmetric about 0")

    @property
    def moved(self) -> int:
        """How many coordinates may move at once."""
        return self.changed or self.dimension

    @property
    def variance(self) -> float:
        """Variance of one coordinate."""
        return self.law.var()

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of one coordinate."""
        return self.law.std()

    @property
    def mse(self) -> float:
        """Mean squared error of the whole answer, K times the variance."""
        return self.dimension * self.variance

    @property
    def absolute_error(self) -> float:
        """E|T| of one coordinate."""
        return self.law.expected_loss("absolute")

    def errors(self) -> Accuracy:
        """How far off the answer to one coordinate is."""
        return self.law.errors()

    def plot(self, **options: Any) -> Figure:
        """Draw the law of one coordinate and its tail."""
        return draw_laws({"this noise": self.law}, **options)

    def rvs(self, size: Any = None, *, random_state: Any = None) -> Any:
        """Draw noise for simulation: shape (K,), or (size, K)."""
        return self.law.rvs((*shape_of(size), self.dimension), random_state=random_state)

    def sample(self, x: Any, *, rng: Any = None) -> Any:
        """Return answers with noise added in floating point: for simulation; `release` is for deployment."""
        held = self._answers(x)
        return held + self.law.rvs(held.shape, random_state=rng)

    def release(self, x: Any) -> Any:
        """Return answers with noise, drawn exactly from the operating system's randomness: for deployment.

        What is composed for real shifts holds for the lattice that leaves the machine, coordinate by coordinate
        (`CellNoise.release`).

        Parameters
        ----------
        x : array, shape (..., K)
        """
        return self.law.release(self._answers(x))

    def _answers(self, x: Any) -> Array:
        held = answers("x", x)
        if held.shape[-1:] != (self.dimension,):
            raise DesignError.of("x", x, f"must have {self.dimension} coordinates")
        return held

    def delta_interval(self, epsilon: float) -> DeltaInterval:
        """Enclose δ(ε) over every change of the query by at most n cells in each coordinate that may move."""
        return many_interval(self.law, self.moved, min(non_negative("epsilon", epsilon), 1e6))

    def privacy_profile(self, epsilon: Any) -> Any:
        """δ(ε), from above.

        Parameters
        ----------
        epsilon : float or ndarray
            ε ≥ 0.
        """
        values = array("epsilon", epsilon, ndim=None)
        found = np.array([self.delta_interval(float(e)).upper for e in values.ravel()])
        return found.reshape(values.shape)[()]

    def epsilon(self, delta: float) -> float:
        """The least ε certified at `delta`, rounded up; ``inf`` if there is none."""
        delta = probability("delta", delta)

        def over(epsilon: float) -> float:
            upper = self.delta_interval(epsilon).upper
            return math.log(upper / delta) if upper > delta > 0 else upper - delta

        if over(0.0) <= 0:
            return 0.0
        high = 1.0
        while over(high) > 0:
            high *= 2
            if high > 1e6:
                return math.inf
        return safe_root(over, 0.0, high, xtol=1e-9, rtol=1e-9)

    @property
    def reach(self) -> float:
        """The largest change of one coordinate that the noise is made for, rounded up: n cells."""
        return round_up(self.law.cells_per_shift * self.law.width)

    def summary(self) -> str:
        """The law and what it costs."""
        some = "" if self.moved == self.dimension else f"of at most {self.changed} at once "
        return (
            f"cell noise on {self.dimension} coordinates, for changes {some}up to {self.reach:.6g} each, "
            f"variance {self.variance:.6g} per coordinate"
        )

    def __str__(self) -> str:
        return self.summary()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the mechanism as a result file; ``md.load(path)`` reads it back."""
        write_whole(path, dumps(self))

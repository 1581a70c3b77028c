r"""Vectors, coordinate by coordinate, with what that costs in privacy.

A quantizer with loss ε on one coordinate, applied independently to d coordinates, loses

- **split**: at most :math:`d\,\varepsilon` between any two vectors (basic composition), so a budget ε for the vector is split as
  ε/d to each coordinate;
- **metric, distance**: if :math:`p(x, i) \le e^{\varepsilon |x - x'|} p(x', i)`, at most :math:`\varepsilon \|x - x'\|_1`;
- **metric, squared distance**: if :math:`p(x, i) \le e^{\varepsilon |x - x'|^2} p(x', i)` on an input grid of spacing h, at most
  :math:`\varepsilon \|x - x'\|_2^2` between grid vectors (Chaudhuri et al. 2022, Lemma 6). Inputs off the grid are dithered to
  neighbouring points, each moving by less than h, so between any two vectors at most
  :math:`\varepsilon (\|x - x'\|_2 + 2 h \sqrt d)^2` (Minkowski's inequality).

For the ball :math:`\|x\|_2 \le B` the distance is up to 2B: the bound is :math:`4 \varepsilon B^2` on the grid. (With B the *diameter* it
reads εB², as in the literature.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import answers, non_negative, one_of, positive, settle, whole
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.mechanism.sampling import is_tensor
from mechdesign.typing import Array

__all__ = ["CoordinateQuantizer"]


@serializable("vector-quantizer")
@dataclass(frozen=True, eq=False)
class CoordinateQuantizer:
    """One quantizer applied to every coordinate of d-dimensional vectors.

    Parameters
    ----------
    coordinate : Quantizer
    dimension : int
    scale : float
        Coordinates are divided by it before and multiplied after: a gradient clipped at C takes scale = C.

    Examples
    --------
    >>> import numpy as np
    >>> mechanism = CoordinateQuantizer(Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1)), dimension=10)
    >>> round(mechanism.privacy_loss(), 3)
    9.988
    >>> mechanism.sample(np.zeros((5, 10)), rng=0).shape
    (5, 10)
    """

    coordinate: Quantizer
    dimension: int
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.coordinate, Quantizer):
            raise DesignError.of("coordinate", self.coordinate, "must be a Quantizer")
        settle(self, dimension=whole("dimension", self.dimension, 1), scale=positive("scale", self.scale))

    def privacy_loss(self) -> float:
        """Loss between any two vectors, by the split: d times the coordinate's, rounded up."""
        return math.nextafter(self.dimension * self.coordinate.privacy_loss(), math.inf)

    def metric_privacy_loss(
        self, diameter: float, *, epsilon: float, metric: str = "squared", spacing: float = 0.0
    ) -> float:
        """Loss between vectors at most `diameter` apart, for a coordinate that is (ε, metric)-private.

        Parameters
        ----------
        diameter : float
            Largest distance (ℓ₁ for "absolute", ℓ₂ for "squared"), in units of the scaled coordinates.
        epsilon : float
            The coordinate's loss per unit of its metric.
        metric : {"absolute", "squared"}
        spacing : float
            Grid spacing h where inputs are dithered to a grid; 0 for inputs on the grid.
        """
        squared = one_of("metric", metric, ("absolute", "squared")) == "squared"
        steps = math.sqrt(self.dimension) if squared else self.dimension
        distance = non_negative("diameter", diameter) + 2 * non_negative("spacing", spacing) * steps
        return non_negative("epsilon", epsilon) * (distance * distance if squared else distance)

    def _scaled(self, x: Any) -> Any:
        x = x if is_tensor(x) else answers("x", x)
        if x.shape[-1:] != (self.dimension,):
            raise DesignError(f"x has shape {tuple(x.shape)}: the last axis must be {self.dimension}")
        return x / self.scale

    def sample(self, x: Any, *, rng: Any = None, clip: bool = False) -> Any:
        """Draw for vectors of shape (..., d), arrays or tensors, for simulation; see `Quantizer.sample`."""
        return self.coordinate.sample(self._scaled(x), rng=rng, clip=clip) * self.scale

    def release(self, x: Any, *, clip: bool = False) -> Array:
        """Draw from the exact law of every coordinate; see `Quantizer.release`."""
        return self.coordinate.release(self._scaled(x), clip=clip) * self.scale

    def expected_squared_error(self, prior: Any) -> float:
        """E‖M(X) − X‖₂² for i.i.d. coordinates with the given prior (on the scaled coordinates)."""
        return self.dimension * self.scale**2 * self.coordinate.expected_loss(prior, "squared")

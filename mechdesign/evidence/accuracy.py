"""How far off an answer is, in its own units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mechdesign.evidence.serialize import serializable
from mechdesign.typing import Array


@serializable("accuracy")
@dataclass(frozen=True)
class Accuracy:
    """How far off an answer is, in its own units; of several coordinates, of one of them on average.

    Attributes
    ----------
    standard_deviation : float
        Root of the mean squared error.
    absolute_error : float
        Mean absolute error (mean distance, in a metric space).
    half_width : float
        19 answers in 20 are off by at most this.

    Examples
    --------
    >>> import mechdesign as md
    >>> print(md.accuracy("laplace", md.NumericQuery(), md.PureDP(1.0)))
    standard deviation 1.41421, mean absolute error 1, 95% within ±2.99574
    """

    standard_deviation: float
    absolute_error: float
    half_width: float

    def __str__(self) -> str:
        return (
            f"standard deviation {self.standard_deviation:.6g}, mean absolute error {self.absolute_error:.6g}, "
            f"95% within ±{self.half_width:.6g}"
        )


def quantile(errors: Array, weights: Array) -> float:
    """Return the least of `errors` that 95% of the weight does not exceed."""
    order = np.argsort(errors, axis=None)
    below = np.cumsum(weights.ravel()[order])
    return float(errors.ravel()[order][min(int(np.searchsorted(below, 0.95 * below[-1])), errors.size - 1)])

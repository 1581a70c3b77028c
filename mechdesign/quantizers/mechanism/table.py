r"""Output probabilities that are affine in the input between knots: the table that everything is computed from.

.. math:: p(x, i) = (1 - t)\, s_{k,i} + t\, e_{k,i}, \qquad x \in [x_k, x_{k+1}),\; t = \frac{x - x_k}{x_{k+1} - x_k}

Bins and knots together cut the input range into cells, on each of which every probability is affine and every error
:math:`B_i - x` keeps its sign: expected losses are sums over cells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mechdesign.errors import DesignError
from mechdesign.problem.checks import check_preserved, increasing, one_of, settle
from mechdesign.problem.checks import doubles as as_doubles
from mechdesign.typing import Array

__all__ = ["PiecewiseTable", "cell_edges", "doubles", "inside", "loss_from_floats"]

_LEAST, _MOST = 1e-290, 1e290  # half the range of inputs


def inside(x: Any, input_range: tuple[float, float], *, clip: bool = False) -> Array:
    """Return inputs as an array, or raise DesignError where one is outside the range (unless `clip`) or NaN."""
    lower, upper = input_range
    one_of("clip", clip, (True, False))
    values = doubles(x)
    if clip and not np.isnan(values).any():
        return np.clip(values, lower, upper)
    # NaN makes either comparison false
    if values.size and not (values.min() >= lower and values.max() <= upper):
        first = values[~((values >= lower) & (values <= upper))].ravel()[0]
        remedy = "" if np.isnan(first) else "; or pass clip=True"
        raise DesignError(f"x = {first:g}: inputs must be in [{lower:g}, {upper:g}]{remedy}")
    return values


def doubles(x: Any) -> Array:
    """Return inputs as an array of doubles, or raise DesignError where they are no numbers or would be rounded."""
    values = as_doubles("x", x)
    check_preserved("x", x, values)
    return values


def cell_edges(bins: Array, knots: Array) -> Array:
    """Return the sorted union of the knots and of the bins between the first and the last of them.

    Examples
    --------
    >>> cell_edges(np.array([-3.0, -0.5, 0.5, 3.0]), np.array([-1.0, 0.5, 1.0]))
    array([-1. , -0.5,  0.5,  1. ])
    """
    return np.union1d(knots, bins[(bins > knots[0]) & (bins < knots[-1])])


def loss_from_floats(low: Array, high: Array) -> float:
    """Return the privacy loss of outputs with these least and largest probabilities, rounding errors added."""
    reachable = high > 0
    if np.any(low[reachable] == 0):
        return math.inf
    slack = 2 * (len(low) + 8) * np.finfo(float).eps
    return float(np.log(high[reachable] / low[reachable]).max() + slack)


@dataclass(frozen=True, eq=False)
class PiecewiseTable:
    """Output probabilities at both ends of every segment.

    Parameters
    ----------
    bins : array_like, shape (m,)
        Output values, increasing.
    knots : array_like, shape (K + 1,)
        Increasing; the first and last are the input range.
    starts, ends : array_like, shape (K, m)
        Output probabilities at the start of each segment (limit from the right) and at its end (limit from
        the left). At a knot the value is that from the right, at the last knot from the left.
    """

    bins: Array
    knots: Array
    starts: Array
    ends: Array

    def __post_init__(self) -> None:
        settle(self, bins=increasing("bins", self.bins), knots=increasing("knots", self.knots))
        if not _LEAST <= self.knots[-1] / 2 - self.knots[0] / 2 <= _MOST:
            span = f"knots: inputs in [{self.knots[0]:g}, {self.knots[-1]:g}] span too little or too much"
            raise DesignError(f"{span} for doubles: measure in other units")
        settle(self, starts=self._rows("starts"), ends=self._rows("ends"))

    def _rows(self, name: str) -> Array:
        shape = (len(self.knots) - 1, len(self.bins))
        try:
            table = np.array(getattr(self, name), dtype=float)
        except (TypeError, ValueError, OverflowError):
            raise DesignError.of(name, getattr(self, name), "must be an array of probabilities") from None
        if table.shape != shape:
            raise DesignError(
                f"{name} has shape {table.shape}: must be {shape}, one row a segment, one column a bin"
            )
        if not (table >= -1e-12).all() or not (np.abs(table.sum(axis=1) - 1) <= 1e-9).all():
            raise DesignError(f"{name}: every row must be non-negative and sum to 1")
        table = np.maximum(table, 0.0)
        table.setflags(write=False)
        return table

    @property
    def input_range(self) -> tuple[float, float]:
        """Where inputs may be."""
        return float(self.knots[0]), float(self.knots[-1])

    @property
    def rows(self) -> Array:
        """Starts and ends one after the other, segment by segment; shape (2 K, m)."""
        return np.stack([self.starts, self.ends], axis=1).reshape(-1, len(self.bins))

    def segment(self, x: Array) -> npt.NDArray[np.intp]:
        """Index of the segment of each input."""
        x = inside(x, self.input_range, clip=True)
        return np.clip(np.searchsorted(self.knots, x, side="right") - 1, 0, len(self.knots) - 2)

    def probabilities(self, x: Any, *, clip: bool = False) -> Array:
        """Output probabilities p(x, ·); inputs of any shape, the outputs in one more axis of length m.

        Raises
        ------
        DesignError
            An input outside the range (unless `clip`), or NaN.

        Examples
        --------
        >>> PiecewiseTable([-1, 1], [-1, 1], [[1, 0]], [[0, 1]]).probabilities([-1.0, 0.2])
        array([[1. , 0. ],
               [0.4, 0.6]])
        """
        x = inside(x, self.input_range, clip=clip)
        k = self.segment(x)
        t = ((x - self.knots[k]) / (self.knots[k + 1] - self.knots[k]))[..., None]
        return (1 - t) * self.starts[k] + t * self.ends[k]

    def cells(self) -> tuple[Array, Array, Array]:
        """Edges of the cells (n + 1,), the probabilities at the start of each and their slopes, both (n, m)."""
        edges = cell_edges(self.bins, self.knots)
        k = self.segment(edges[:-1])
        slope = (self.ends[k] - self.starts[k]) / np.diff(self.knots)[k][:, None]
        return edges, self.starts[k] + slope * (edges[:-1] - self.knots[k])[:, None], slope

    def extremes(self) -> tuple[Array, Array]:
        """Smallest and largest probability of each output over the input range, each (m,)."""
        rows = self.rows
        return rows.min(axis=0), rows.max(axis=0)

"""Declared grids: named axes and their Cartesian product."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pandas as pd

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.typing import Numbers, no_numbers


@serializable("grid")
class Grid:
    """The Cartesian product of named axes, in the order given, the last axis fastest.

    Parameters
    ----------
    **axes : sequence of numbers
        The values of each axis.

    Examples
    --------
    >>> grid = Grid(delta=[1.0, 2.0], inner=[0.1, 0.2, 0.3])
    >>> len(grid)
    6
    >>> next(iter(grid))
    {'delta': 1.0, 'inner': 0.1}
    """

    def __init__(self, **axes: Numbers) -> None:
        if not axes:
            raise DesignError("a Grid needs at least one axis")
        self.axes: dict[str, tuple[float, ...]] = {}
        for name, values in axes.items():
            allowed = "an axis is a non-empty sequence of finite numbers"
            if no_numbers(values):
                raise DesignError.of(name, values, allowed)
            try:
                array = np.atleast_1d(np.asarray(values, dtype=float))
            except (TypeError, ValueError, OverflowError):
                raise DesignError.of(name, values, allowed) from None
            if array.ndim != 1 or array.size == 0 or not np.all(np.isfinite(array)):
                raise DesignError.of(name, values, allowed)
            self.axes[name] = tuple(float(v) for v in array)

    def __len__(self) -> int:
        return math.prod(len(v) for v in self.axes.values())

    def __iter__(self) -> Iterator[dict[str, float]]:
        for values in itertools.product(*self.axes.values()):
            yield dict(zip(self.axes, values))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grid) and self.axes == other.axes

    def __hash__(self) -> int:
        return hash(tuple(self.axes.items()))

    def __repr__(self) -> str:
        inner = ", ".join(f"{k}: {len(v)} from {v[0]:g} to {v[-1]:g}" for k, v in self.axes.items())
        return f"Grid({len(self)} points; {inner})"

    def columns(self) -> dict[str, npt.NDArray[np.float64]]:
        """The coordinates of all points, an array an axis, in the order of iteration."""
        mesh = np.meshgrid(*self.axes.values(), indexing="ij")
        return {name: values.ravel() for name, values in zip(self.axes, mesh)}

    def frame(self) -> pd.DataFrame:
        """All points as a table."""
        return pd.DataFrame(self.columns())

    def to_fields(self) -> dict[str, object]:
        return {"axes": {k: list(v) for k, v in self.axes.items()}}

    @classmethod
    def from_fields(cls, fields: object) -> Grid:
        axes = fields.get("axes") if isinstance(fields, dict) else None
        if not isinstance(axes, dict) or not all(isinstance(name, str) for name in axes):
            raise DesignError.of("fields", fields, 'must be a dict with the dict "axes"')
        return cls(**axes)

"""Pictures that several studies draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = "os^Dvphd"


def nested(axis: Axes, x: pd.Series, curves: pd.DataFrame) -> None:
    """Draw curves over logarithmic axes; of those that coincide the hollow markers lie in one another, so that all are seen."""
    for i, (name, marker) in enumerate(zip(curves, MARKERS, strict=False)):
        size = 4 + 2.2 * (curves.shape[1] - 1 - i)
        axis.loglog(x, curves[name], marker=marker, ms=size, mfc="none", mew=1.3, lw=1.0, label=name)
    axis.set_xticks(x, [f"{value:g}" for value in x])
    axis.set_xticks([], minor=True)


def edges(values: pd.Index) -> np.ndarray:
    """Edges of cells around rising values on a logarithmic axis."""
    middles = np.sqrt(values.to_numpy()[1:] * values.to_numpy()[:-1])
    return np.concatenate(([values[0] ** 2 / middles[0]], middles, [values[-1] ** 2 / middles[-1]]))

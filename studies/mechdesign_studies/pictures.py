"""Pictures that several studies draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mechdesign.plotting import COLOURS

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


def with_bars(axis: Axes, x: np.ndarray, curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """Draw means over x with standard deviations, no bar over another's: each curve's are shifted, and of many points every few have one.

    A bar that would reach 0 goes upwards alone: it would cross all others on a logarithmic axis. The legend stands outside.
    """
    count = len(curves)
    few = len(x) <= 4 * count
    for i, (name, (mean, deviation)) in enumerate(curves.items()):
        at = x + (i - (count - 1) / 2) * 0.16 * (x[1] - x[0]) if few else x
        axis.plot(at, mean, color=COLOURS[i], lw=1, marker=MARKERS[i] if few else "", ms=3, label=name)
        barred = slice(None) if few else slice(i, None, count)
        mean, up = mean[barred], deviation[barred]
        down = np.where(mean > up, up, 0.0)
        axis.errorbar(
            at[barred], mean, (down, up), fmt="none", ecolor=COLOURS[i], elinewidth=0.8, capsize=1.5
        )
    axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))

"""Private coordinate descent against the same loop in plain NumPy, without clipping, noise, checks or accounting.

Bar: fitting the estimator, 50 passes over California housing (20,640 × 8), in at most 3 × the plain loop. Calibration with
its certificate and the exact noise are part of the fit. Without the data (`MECHDESIGN_DATA`), data of that shape are drawn.

    python -m studies.benchmarks.bench_learning
"""

from __future__ import annotations

import os
import statistics
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import mechdesign as md
from studies.benchmarks.turns import Ratio


def data() -> tuple[np.ndarray, np.ndarray, str]:
    """Features and target, and where they come from."""
    path = Path(os.environ.get("MECHDESIGN_DATA", ".")) / "california_housing.csv.gz"
    if path.exists():
        frame = pd.read_csv(path).dropna()
        x, y = (
            frame.drop(columns="median_house_value").to_numpy(float),
            frame["median_house_value"].to_numpy(float),
        )
        x = x - x.mean(axis=0)
        return 10 * x / x.std(axis=0).max(), (y - y.mean()) / y.std(), "California housing"
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20640, 8)) * np.linspace(0.1, 10, 8)
    return x, x @ rng.standard_normal(8) / 10, "drawn data of California's shape"


def plain(x: np.ndarray, y: np.ndarray, passes: int, penalty: float) -> np.ndarray:
    """Proximal coordinate descent, on columns that lie together in memory."""
    x = np.asfortranarray(x)
    smooth, theta, residual = (x * x).mean(axis=0), np.zeros(x.shape[1]), -y
    for _ in range(passes):
        for i in range(x.shape[1]):
            column = x[:, i]
            moved = theta[i] - (residual * column).mean() / smooth[i]
            moved = np.sign(moved) * max(abs(moved) - penalty / smooth[i], 0.0)
            residual = residual + (moved - theta[i]) * column
            theta[i] = moved
    return theta


def main() -> list[Ratio]:
    """Print the ratio of processor times, interleaved in one run."""
    warnings.simplefilter("ignore")
    x, y, source = data()
    model = md.learning.PrivateCoordinateDescentRegressor(
        privacy=md.ApproximateDP(1.0, len(x) ** -2.0),
        penalty="l1",
        alpha=1e-4,
        passes=50,
        learning_rate=0.4,
        clip=1.0,
    )
    times: dict[str, list[float]] = {"plain": [], "private": []}
    for _ in range(9):
        for name, run in (("plain", lambda: plain(x, y, 50, 1e-4)), ("private", lambda: model.fit(x, y))):
            started = time.process_time()
            run()
            times[name].append(time.process_time() - started)
    one, other = (statistics.median(times[name]) for name in ("plain", "private"))
    print(
        f"{source}, 50 passes: plain NumPy {1e3 * one:.1f} ms, private fit {1e3 * other:.1f} ms, ratio {other / one:.2f} (bar: 3)"
    )
    return [Ratio("private fit / plain NumPy", other / one, 3)]


if __name__ == "__main__":
    main()

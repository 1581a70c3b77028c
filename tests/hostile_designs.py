"""Random optimal quantizers that are hard on floats: spiked and narrow priors, outputs at the edge, ε from 0.001 to 160."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

import mechdesign as md


def hostile_design(seed: int) -> md.OptimalQuantizer:
    """The `seed`-th design; polynomial losses, so that certificates prove everything."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 9))
    epsilon = float(10 ** rng.uniform(-3, 2.2)) if rng.random() < 0.4 else float(rng.uniform(0.2, 5))
    centre, spread = rng.uniform(-0.8, 0.8), 10 ** rng.uniform(-4, 0.5)
    spikes = np.zeros(50)
    spikes[rng.integers(0, 50, 3)] = rng.uniform(0.1, 1, 3)
    prior = [
        lambda: stats.uniform(-1, 2),
        lambda: md.truncated(stats.norm(centre, spread), -1, 1),
        lambda: md.clipped(stats.norm(centre, spread), -1, 1),
        lambda: stats.rv_histogram((spikes, np.linspace(-1, 1, 51)))(),
        lambda: np.clip(rng.normal(centre, spread, int(rng.choice([1, 3, 20]))), -1, 1),
        lambda: md.truncated(stats.laplace(centre, spread), -1, 1),
        lambda: stats.triang(rng.uniform(0, 1), -1, 2),
    ][seed % 7]()
    ratio = math.exp(min(epsilon, 30.0))
    R = (ratio + 1) / (ratio - 1) * (1 + 10 ** rng.uniform(-8, 0.5))
    right = R * (1 if rng.random() < 0.5 else 1 + rng.random())
    bins = np.sort(np.concatenate([[-R, right], rng.uniform(-R, R, m - 2)]))
    changes: dict[str, Any] = [
        {},
        {"objective": "worst"},
        {"max_bias": float(10 ** rng.uniform(-3, 0.5))},
        {"max_mse": float(R * R * rng.uniform(0.3, 1.2))},
    ][int(rng.choice(4, p=[0.5, 0.15, 0.25, 0.1]))]
    loss = ["absolute", "squared", {"absolute": 1, "squared": 0.3}][int(rng.integers(3))]
    return md.OptimalQuantizer(bins, md.PureDP(epsilon), prior, loss, input_range=(-1, 1), **changes)

"""300 random designs of optimal quantizers: 2–12 outputs, ε from 0.1 to 6, four kinds of priors, both losses."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

import mechdesign as md
from mechdesign.quantizers.optimal.design import OptimalQuantizer
from mechdesign.quantizers.optimal.floors import smallest_epsilon


def random_design(seed: int) -> OptimalQuantizer:
    """The `seed`-th design; the prior's kind is ``seed % 4``."""
    rng = np.random.default_rng(seed)
    while True:
        m = int(rng.integers(2, 13))
        epsilon = float(np.exp(rng.uniform(math.log(0.1), math.log(6))))
        mirrored = bool(rng.integers(2))
        R = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1) * rng.uniform(1.02, 3)
        if mirrored:
            half = np.sort(rng.uniform(0, R, m // 2))
            half[-1:] = R
            bins = np.concatenate([-half[::-1], [0.0] if m % 2 else [], half])
        else:
            ends = [-R * rng.uniform(1, 1.5), R * rng.uniform(1, 1.5)]
            bins = np.sort(np.concatenate([ends, rng.uniform(-R, R, m - 2)]))
        if np.diff(bins).min() > 1e-3 * R and smallest_epsilon(bins, -1, 1) < epsilon * (1 - 1e-9):
            break
    spread = rng.uniform(0.1, 1)
    centre = 0.0 if mirrored else rng.uniform(-0.8, 0.8)
    prior = [
        lambda: stats.uniform(-1, 2),
        lambda: md.truncated(stats.norm(centre, spread), -1, 1),
        lambda: md.clipped(stats.norm(centre, spread), -1, 1),
        lambda: np.clip(rng.normal(centre, spread, int(rng.choice([20, 200, 1000]))), -1, 1),
    ][seed % 4]()
    loss = ["absolute", "squared"][int(rng.integers(2))]
    return OptimalQuantizer(
        bins=bins, privacy=md.PureDP(epsilon), prior=prior, loss=loss, input_range=(-1, 1)
    )

"""Random bins, selections and priors."""

import numpy as np
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md


@st.composite
def selections(draw, most: int = 7):
    """(bins, left, right, input range): random, asymmetric, all probabilities positive."""
    seed = draw(st.integers(0, 2**32 - 1))
    m = draw(st.integers(2, most))
    rng = np.random.default_rng(seed)
    lower, upper = -rng.uniform(0.2, 2), rng.uniform(0.2, 2)
    bins = np.concatenate(
        [
            [lower - rng.uniform(0, 2)],
            np.sort(rng.uniform(lower - 0.5, upper + 0.5, m - 2)),
            [upper + rng.uniform(0, 2)],
        ]
    )
    bins = np.unique(np.clip(bins, bins[0], bins[-1]))
    m = len(bins)

    def family():
        table = np.tril(rng.uniform(0.05, 1, (m - 1, m - 1)))
        return table / table.sum(axis=1, keepdims=True)

    return bins, family(), family(), (lower, upper)


@st.composite
def priors(draw, lower: float, upper: float):
    """A prior of one of the four kinds on the given range."""
    kind = draw(st.sampled_from(["uniform", "clipped", "truncated", "beta", "samples"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    centre, width = (lower + upper) / 2, upper - lower
    if kind == "uniform":
        return stats.uniform(lower, width)
    if kind == "beta":
        return stats.beta(*rng.uniform(1, 4, 2), loc=lower, scale=width)
    if kind == "samples":
        return rng.uniform(lower, upper, 20)
    law = stats.norm(centre + rng.normal() * width / 4, width * rng.uniform(0.1, 1))
    return md.clipped(law, lower, upper) if kind == "clipped" else md.truncated(law, lower, upper)

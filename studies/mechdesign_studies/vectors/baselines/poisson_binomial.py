r"""The Poisson binomial mechanism (Chen, Özgür, Kairouz 2022): binomial counts whose probabilities carry the vector.

Coordinates of the rotated vector, at most c in size, become :math:`Z \sim \mathrm{Bin}(m, \tfrac12 + \theta z/c)`; a secure aggregation
reveals their sums, and :math:`\frac{c}{nm\theta}\big(\sum Z - \tfrac{nm}{2}\big)` is unbiased, its variance at most :math:`c^2/(4nm\theta^2)`. Every trial of another client
is a mixture of the two extreme ones, and Rényi divergence is jointly quasi-convex: the divergence of a coordinate is at most the largest,
over how many of the others' trials are at either extreme, of that between a client's two extremes. It is computed from the laws themselves for
few of these numbers (all, half, none; between them it hardly moves), and d coordinates add up. c clips a coordinate once in a hundred vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special, stats

from mechdesign.checks import integer
from mechdesign.problem.privacy import ApproximateDP
from mechdesign.typing import Array
from mechdesign.vectors.sphere import FastRotation

from .common import ORDERS, Baseline, calibrated

__all__ = ["PoissonBinomial"]

_CLIPPED = 0.01
_UNSEEN = 1e-30  # a part of the law that is left out of divergences, where others' trials hide a client


def _near_pmf(trials: int, p: float) -> Array:
    """The binomial law within fifteen standard deviations and thirty of its mean; sums of positive numbers keep all digits."""
    far = 15 * math.sqrt(trials * p * (1 - p)) + 30
    low, high = max(math.floor(trials * p - far), 0), min(math.ceil(trials * p + far), trials)
    return np.asarray(stats.binom.pmf(np.arange(low, high + 1), trials, p))


@dataclass(frozen=True)
class PoissonBinomial(Baseline):
    """Binomial counts under a secure aggregation.

    Parameters
    ----------
    dimension : int
    privacy : ApproximateDP
    trials : int
        m, of a coordinate, 1 to 1024.
    clients : int
        With m at most 2¹⁸ trials in all.
    radius : float

    Examples
    --------
    >>> baseline = PoissonBinomial(128, ApproximateDP(4.0, 1e-6), trials=16)
    >>> round(baseline.error)
    12202
    """

    dimension: int
    privacy: ApproximateDP
    trials: int = 16
    clients: int = 1
    radius: float = 1.0

    def __post_init__(self) -> None:
        self._settle(ApproximateDP)
        integer("trials", self.trials, 1, 1024)
        integer("clients", self.clients, 1, (1 << 18) // self.trials)
        _ = self.theta

    @cached_property
    def clip(self) -> float:
        """c for R = 1."""
        return math.sqrt(1 - special.betaincinv((self.dimension - 1) / 2, 0.5, _CLIPPED / self.dimension))

    def _divergences(self, noise: float) -> Array:
        """At θ = 1/(2 (1 + noise))."""
        theta, m, others = 0.5 / (1 + noise), self.trials, (self.clients - 1) * self.trials
        own = np.arange(m + 1)
        high, low = stats.binom.pmf(own, m, 0.5 + theta), stats.binom.pmf(own, m, 0.5 - theta)
        worst = np.zeros(len(ORDERS))
        for up in {0, others // 2, others}:
            rest = np.convolve(_near_pmf(up, 0.5 + theta), _near_pmf(others - up, 0.5 - theta))
            laws = np.convolve(rest, high), np.convolve(rest, low)
            for p, q in (laws, laws[::-1]):
                seen = p > (_UNSEEN if others else 0.0)
                with np.errstate(divide="ignore"):
                    logs = np.log(p[seen]), np.log(q[seen])  # impossible under q: an infinite divergence
                terms = ORDERS[:, None] * logs[0] - (ORDERS[:, None] - 1) * logs[1]
                worst = np.maximum(worst, special.logsumexp(terms, axis=1) / (ORDERS - 1))
        return np.asarray(self.dimension * worst)

    @cached_property
    def theta(self) -> float:
        """θ, as large as the budget allows, below ½."""
        return 0.5 / (1 + calibrated(self._divergences, self.privacy, 1e-3, 1e7))

    @cached_property
    def error(self) -> float:
        variance = self.clip**2 / (4 * self.clients * self.trials * self.theta**2)
        return self.radius**2 * self.dimension * variance

    @property
    def message_bits(self) -> int:
        return self.dimension * self.trials.bit_length()

    def _mean(self, x: Array, rng: np.random.Generator) -> Array:
        n, d = x.shape
        rotation, seed = FastRotation(d, d), int(rng.integers(0, 1 << 62))
        z = np.clip(rotation.turned(x, [(seed, 0)] * n) / self.clip, -1, 1)
        counts = rng.binomial(self.trials, 0.5 + self.theta * z).sum(axis=0)
        mean = self.clip / (n * self.trials * self.theta) * (counts - n * self.trials / 2)
        return np.asarray(rotation.turned_back(mean[None, :], [(seed, 0)])[0])

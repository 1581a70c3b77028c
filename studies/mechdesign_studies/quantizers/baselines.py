r"""The continuous ε-LDP mechanisms that quantizers are compared with, for simulation only: piecewise and hybrid.

Source: Wang, Xiao, Yang, Zhao, Hui, Shin, Shin, Yu, *Collecting and Analyzing Multidimensional Data with Local
Differential Privacy*, ICDE 2019. Inputs in [−1, 1], outputs in [−C, C], unbiased. (The two-point mechanism of
Duchi et al. is a quantizer: :func:`mechdesign.quantizers.duchi`.)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import integrate

import mechdesign as md
from mechdesign.checks import DOWN, generator, positive, settle
from mechdesign.errors import DesignError
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.table import inside
from mechdesign.typing import Array

__all__ = ["HybridMechanism", "PiecewiseMechanism"]

# Below this ε the hybrid mechanism is Duchi's alone (Wang et al. 2019, Theorem 3).
HYBRID_THRESHOLD = 0.61
# Beyond this e^ε overflows.
LARGEST = 700.0
RANGE = (-1.0, 1.0)


@dataclass(frozen=True)
class _Continuous(ABC):
    epsilon: float

    def __post_init__(self) -> None:
        settle(self, epsilon=positive("epsilon", self.epsilon, side=DOWN))
        if self.epsilon > LARGEST:
            raise DesignError.of("epsilon", self.epsilon, f"must be at most {LARGEST:g}")

    def privacy_loss(self) -> float:
        """ε."""
        return self.epsilon

    @abstractmethod
    def loss_at(self, x: Any, loss: Any = "absolute") -> Array:
        """E ℓ(M(x) − x), element-wise, for inputs in [−1, 1]."""

    @abstractmethod
    def sample(self, x: Any, *, rng: Any = None) -> Array:
        """Draw one output for every input in [−1, 1], for simulation."""

    def expected_loss(self, prior: Any, loss: Any = "absolute") -> float:
        """E ℓ(M(X) − X) under a prior on [−1, 1]."""
        law, chosen = Prior.of(prior, RANGE), Loss.of(loss)
        return float(law.integrals(lambda x: self.loss_at(x, chosen)[:, None], np.linspace(-1, 1, 3)).sum())


@dataclass(frozen=True)
class PiecewiseMechanism(_Continuous):
    r"""Density :math:`p_{high}` on [l(x), l(x) + C − 1], :math:`p_{high} e^{-\varepsilon}` elsewhere on [−C, C].

    :math:`C = (e^{\varepsilon/2} + 1)/(e^{\varepsilon/2} - 1)`, :math:`l(x) = \tfrac{C+1}{2} x - \tfrac{C-1}{2}`,
    :math:`p_{high} = (e^\varepsilon - e^{\varepsilon/2})/(2 e^{\varepsilon/2} + 2)`.

    Parameters
    ----------
    epsilon : float

    Examples
    --------
    >>> from scipy import stats
    >>> round(PiecewiseMechanism(1.0).expected_loss(stats.uniform(-1, 2), "squared"), 4)
    4.1959
    """

    @property
    def reach(self) -> float:
        """Largest output C."""
        return 1 / math.tanh(self.epsilon / 4)

    @property
    def high(self) -> float:
        """Density on the inner interval."""
        root = math.exp(self.epsilon / 2)
        return (root * root - root) / (2 * root + 2)

    def _left(self, x: Array) -> Array:
        return (self.reach + 1) / 2 * x - (self.reach - 1) / 2

    def loss_at(self, x: Any, loss: Any = "absolute") -> Array:
        """E ℓ(M(x) − x), element-wise, from antiderivatives of |t| and t² (quadrature for other losses)."""
        x, chosen = inside(x, RANGE), Loss.of(loss)
        left = self._left(x)
        low = self.high * math.exp(-self.epsilon)
        outer = _integral(chosen, -self.reach - x, self.reach - x)
        inner = _integral(chosen, left - x, left + self.reach - 1 - x)
        return low * outer + (self.high - low) * inner

    def sample(self, x: Any, *, rng: Any = None) -> Array:
        draws, x = generator(rng), inside(x, RANGE)
        left, width = self._left(x), self.reach - 1
        within = draws.random(x.shape) < self.high * width
        near = left + width * draws.random(x.shape)
        # Uniform on [−C, C] without the inner interval, which is skipped.
        far = -self.reach + (self.reach + 1) * draws.random(x.shape)
        return np.where(within, near, np.where(far < left, far, far + width))


def _integral(loss: Loss, a: Array, b: Array) -> Array:
    """∫_a^b ℓ(t) dt, element-wise."""

    def antiderivative(t: Array) -> Array:
        return loss.absolute * t * np.abs(t) / 2 + loss.squared * t**3 / 3

    total = antiderivative(b) - antiderivative(a)
    if loss.function is not None:
        extra = [
            integrate.quad(loss.function, u, v, points=[0.0] if u < 0 < v else None)[0]
            for u, v in zip(a.ravel(), b.ravel())
        ]
        total = total + np.reshape(extra, a.shape)
    return total


@dataclass(frozen=True)
class HybridMechanism(_Continuous):
    """Piecewise with probability α = 1 − e^{−ε/2}, else Duchi's; Duchi's alone for ε ≤ 0.61. A public coin chooses.

    Parameters
    ----------
    epsilon : float

    Examples
    --------
    >>> from scipy import stats
    >>> round(HybridMechanism(1.0).expected_loss(stats.uniform(-1, 2), "squared"), 3)
    4.289
    """

    @property
    def share(self) -> float:
        """Probability of the piecewise mechanism."""
        return 0.0 if self.epsilon <= HYBRID_THRESHOLD else 1 - math.exp(-self.epsilon / 2)

    @cached_property
    def _parts(self) -> tuple[PiecewiseMechanism, md.Quantizer]:
        return PiecewiseMechanism(self.epsilon), md.quantizers.duchi(self.epsilon)

    def loss_at(self, x: Any, loss: Any = "absolute") -> Array:
        piecewise, two_point = self._parts
        return self.share * piecewise.loss_at(x, loss) + (1 - self.share) * two_point.loss_at(x, loss)

    def sample(self, x: Any, *, rng: Any = None) -> Array:
        draws, x = generator(rng), inside(x, RANGE)
        coin = draws.random(x.shape) < self.share
        piecewise, two_point = self._parts
        return np.where(coin, piecewise.sample(x, rng=draws), two_point.sample(x, rng=draws))

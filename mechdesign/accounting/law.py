r"""What a noise law may offer to accounting: its privacy loss in closed form, at unit scale.

Accounting works for every frozen symmetric log-concave law of SciPy; what it would find by differencing and root
finding a law can say exactly. The generator of such a law is a `NoiseLaw`. Its scale and the sensitivity enter only
through their ratio :math:`r = \Delta/\text{scale}`, so it speaks of unit scale and distance r.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

import numpy as np

from mechdesign.typing import Array

__all__ = ["AtomicLoss", "NoiseLaw", "PreciseLoss", "TailForm", "UnitLoss"]


@dataclass(frozen=True)
class UnitLoss:
    r"""The centred privacy loss of a symmetric law of unit scale at distance r: odd and non-decreasing.

    Attributes
    ----------
    loss, inverse : callable
        :math:`\tilde\zeta(t) = \log g(t - r/2) - \log g(t + r/2)` and
        :math:`\tilde\zeta^{-1}(\nu) = \sup\{t : \tilde\zeta(t) \le \nu\}`, vectorised.
    atoms : tuple of float
        Positive loss values that carry positive probability (with their negatives).
    edge : float
        The loss is +∞ beyond this t (bounded noise).
    kinks : tuple of float, optional
        t > 0 where the loss or the density at t ∓ r/2 is not smooth; r/2 when not given.
    reach : float
        How far out the loss can be evaluated; ``inf`` where the noise is bounded.
    """

    loss: Callable[[Any], Any]
    inverse: Callable[[Any], Any]
    atoms: tuple[float, ...] = ()
    edge: float = math.inf
    kinks: tuple[float, ...] | None = None
    reach: float = 1e7


@dataclass(frozen=True)
class AtomicLoss:
    """A privacy loss with finitely many values (staircase and discrete laws).

    Attributes
    ----------
    values, mass : ndarray
        Loss values and their probabilities.
    infinity : float
        Probability of an infinite loss.
    """

    values: Array
    mass: Array
    infinity: float = 0.0

    @property
    def atoms(self) -> tuple[float, ...]:
        """Positive values, when they are few enough to align a grid with."""
        return (float(self.values.max()),) if self.values.size <= 3 else ()

    def delta(self, epsilon: Any) -> Any:
        """δ(ε) by summation."""
        gap = np.maximum(self.values - np.asarray(epsilon, dtype=float)[..., None], 0.0)
        return self.infinity + -np.expm1(-gap) @ self.mass


@dataclass(frozen=True)
class TailForm:
    """A symmetric law of unit scale in high precision, on u ≥ 0.

    Attributes
    ----------
    log_density : callable
        Up to a constant.
    upper : callable
        P(T > u).
    end : number, optional
        End of the support, where it is bounded.
    slope : number, optional
        Limit of the log density's slope, where it is finite: no loss exceeds that times the distance.
    """

    log_density: Callable[[Any], Any]
    upper: Callable[[Any], Any]
    end: Any = None
    slope: Any = None


@dataclass(frozen=True)
class PreciseLoss:
    """A privacy loss with countably many values, in high precision.

    Attributes
    ----------
    delta : callable
        (ratio, ε) → δ(ε), or None where that is not known or would take too long.
    largest : callable
        Fraction ratio → the largest loss, a Fraction or ``inf``; None where `delta` is not known.
    """

    delta: Callable[[Any, Any], Any]
    largest: Callable[[Fraction], Fraction | float | None] = lambda ratio: math.inf


@runtime_checkable
class NoiseLaw(Protocol):
    """The generator of a law (a `scipy.stats` distribution, symmetric about zero) that knows its privacy loss."""

    def privacy_loss(self, ratio: float, *shapes: float) -> UnitLoss | AtomicLoss:
        """The loss at unit scale between two queries `ratio` apart.

        Raises
        ------
        DesignError
            The law has no finite answer at this distance (a staircase beyond its step).
        """

    def precise(self, context: Any, *shapes: Any) -> TailForm | PreciseLoss:
        """The law with the functions of an mpmath `context`, its shapes being numbers of it."""

    def mean_absolute(self, *shapes: float) -> float:
        """E|T| at unit scale."""

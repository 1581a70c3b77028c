r"""PrivUnit: a random direction from a cap about the input, the best of all unbiased answers to a vector.

On the sphere in D dimensions the answer has the density E ≤ e^ε on the cap :math:`\{u : \langle u, y\rangle \ge t\}` against 1 outside. With
:math:`q = P[u_1 \ge t]` and :math:`A = E[u_1; u_1 \ge t]` for a uniform u,

.. math:: s = \frac{(E - 1) A}{E q + 1 - q}, \qquad \text{answer } u/s, \qquad \text{error } s^{-2} - 1,

least where t = s. (Bhowmick, Duchi, Freudiger, Kapoor, Rogers 2018; best among unbiased mechanisms: Asi, Feldman, Talwar 2022.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from scipy import optimize, special

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import generator
from mechdesign.problem.privacy import PureDP
from mechdesign.typing import Array
from mechdesign.vectors.ball import VectorMechanism

__all__ = ["PrivUnit", "cap_error"]


def cap_mass(d: int, w: float, more: float = 0.0, more_below: float = 0.0) -> float:
    """P[u₁ ≥ 1 − 2w] for a uniform point of the unit sphere in d dimensions: (1 − u₁)/2 is beta-distributed."""
    return float(special.betainc((d - 1) / 2 + more, (d - 1) / 2 + more_below, w))


def cap_mean(d: int, w: float) -> float:
    """E[u₁; u₁ ≥ 1 − 2w]."""
    if w <= 0:
        return 0.0
    squared = math.log1p(-((1 - 2 * w) ** 2)) if w > 0.25 else math.log(4 * w) + math.log1p(-w)
    return math.exp(-special.betaln((d - 1) / 2, 0.5) - math.log(d - 1) + (d - 1) / 2 * squared)


def _shrinkage(d: int, gain: float, w: float) -> tuple[float, float]:
    """s and 1 − s at E − 1 = `gain`, neither from the other, as both may be tiny."""
    total = gain * cap_mass(d, w) + 1
    return gain * cap_mean(d, w) / total, (gain * cap_mass(d, w, 1.0) + 1) / total


def cap_depth(d: int, gain: float) -> float:
    """(1 − t)/2 for the best t in d ≥ 2 dimensions, where t = s."""

    def off(log_w: float) -> float:
        w = math.exp(log_w)
        return 2 * w - _shrinkage(d, gain, w)[1]

    return math.exp(float(optimize.brentq(off, -690.0, math.log(0.5), xtol=1e-15, rtol=1e-15)))


def cap_error(dimension: int, epsilon: float) -> float:
    """Least worst-case squared error of unbiased ε-private answers to unit vectors.

    Examples
    --------
    >>> round(cap_error(500, 4.0), 3)
    216.943
    """
    gain = math.expm1(epsilon)
    s, short = _shrinkage(dimension, gain, cap_depth(dimension, gain))
    return short * (1 + s) / s**2


@serializable("priv-unit")
@dataclass(frozen=True)
class PrivUnit(VectorMechanism):
    """The cap: the least error that any unbiased private answer can have, whatever its bits.

    Its points are drawn in floating-point numbers: for simulation, and as the yardstick of the others.

    Parameters
    ----------
    dimension : int
    privacy : PureDP
    inputs : {"ball", "sphere"}
    radius : float

    Examples
    --------
    >>> cap = PrivUnit(500, PureDP(4.0), inputs="sphere")
    >>> round(cap.error, 3)
    216.943
    >>> x = np.eye(500)[:1].repeat(4, axis=0)
    >>> cap.sample(x, rng=0).shape
    (4, 500)
    """

    dimension: int
    privacy: PureDP
    inputs: str = "ball"
    radius: float = 1.0

    @cached_property
    def _gain(self) -> float:
        return float(self.power - 1)

    @cached_property
    def _depth(self) -> float:
        return cap_depth(self.working, self._gain)

    @property
    def threshold(self) -> float:
        """t, the height of the cap."""
        return 1 - 2 * self._depth

    @cached_property
    def mass(self) -> float:
        """q, the share of the sphere that the cap is."""
        return cap_mass(self.working, self._depth)

    @property
    def factor(self) -> float:
        return 1 / _shrinkage(self.working, self._gain, self._depth)[0]

    @property
    def excess(self) -> float:
        s, short = _shrinkage(self.working, self._gain, self._depth)
        return short * (1 + s) / s**2

    @property
    def spread(self) -> float:
        d, gain = self.working, self._gain
        inside = cap_mass(d, self._depth, 1.0, 1.0)
        return (d - 1) / d * (gain * inside + 1) / (gain * self.mass + 1)

    @property
    def second_moment(self) -> float:
        return 1 - self.spread

    def sample(self, x: Any, *, rng: Any = None, clip: bool = False) -> Array:
        """Draw an answer for every vector, for simulation: in floating-point numbers, which is not private.

        Parameters
        ----------
        x : array_like, shape (..., d)
        rng : seed or numpy Generator
        clip : bool
            Shorten vectors that are longer than `radius`.

        Returns
        -------
        ndarray of the shape of `x`
        """
        source, y = generator(rng), self.lifted(x, clip=clip)
        n, d = y.shape
        inside = source.random(n) * (self._gain * self.mass + 1) < float(self.power) * self.mass
        above = np.where(inside, self.mass * source.random(n), self.mass + (1 - self.mass) * source.random(n))
        half = np.minimum(above, 1 - above)
        height = np.sqrt(np.maximum(1 - special.betaincinv((d - 1) / 2, 0.5, 2 * half), 0.0))
        height = np.where(above <= 0.5, height, -height)[:, None]
        aside = source.standard_normal((n, d))
        aside -= (aside * y).sum(axis=1, keepdims=True) * y
        aside /= np.sqrt((aside**2).sum(axis=1, keepdims=True))
        return self._answered(height * y + np.sqrt(1 - height**2) * aside, np.shape(x))

    def release(self, x: Any, *, clip: bool = False) -> NoReturn:
        """Refuse: points of a cap drawn in floating-point numbers reveal their input."""
        raise DesignError(
            "PrivUnit draws points of a cap in floating-point numbers, which is not private: "
            "release with md.SphereQuantizer, whose codes are drawn in integers"
        )

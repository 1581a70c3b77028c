r"""Vectors in a ball, one budget each: base of mechanisms on the sphere.

Inputs x with :math:`\|x\|_2 \le R` are divided by R and, unless they are known to lie *on* the sphere, lifted to
:math:`y = (x, \sqrt{1 - \|x\|^2})` on the sphere in D = d + 1 dimensions. A mechanism answers with :math:`rY`, Y a unit vector whose
law is symmetric about y, :math:`r\,E\langle Y, y\rangle = 1`; the last coordinate of the answer is dropped. With
:math:`m_2 = E\langle Y, y\rangle^2` the expected squared error is

.. math:: R^2 \Big(r^2 \big[1 - m_2 (1 - \|x\|^2) - (1 - m_2) \|x\|^2 / d\big] - \|x\|^2\Big),

affine in :math:`\|x\|^2`: the worst input is 0 or has length R. On the sphere without a lift it is :math:`R^2 (r^2 - 1)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from functools import cached_property

import numpy as np

from mechdesign.checks import NARROWEST, Checked, answers, integer, one_of, refuse, refusing
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.page import Saved
from mechdesign.problem.privacy import PureDP
from mechdesign.typing import Array, Numbers

LARGEST_EPSILON = 500.0
_LEAST_GAIN = Fraction(1, 10**30)  # least E − 1, so that squares of answers do not overflow
_LARGEST_DIMENSION = 1 << 24
_FAR = 1e300  # clipping bound of coordinates over R
_NEAR = 1e-9  # relative tolerance of lengths: norms are rounded


def power_of_e(epsilon: float) -> Fraction:
    """Return the rational lower bound E > 1 of e^ε from which probabilities are made, or raise DesignError.

    Examples
    --------
    >>> float(power_of_e(1.0))
    2.718281828459045
    """
    bound = exp_lower(epsilon) if epsilon <= LARGEST_EPSILON else None
    if bound is None or bound - 1 < _LEAST_GAIN:
        allowed = f"must be between 1e-30 and {LARGEST_EPSILON:g} for a vector mechanism"
        raise DesignError.of("epsilon", epsilon, allowed)
    return bound


def checked_dimension(name: str, value: object) -> int:
    """Return d ≥ 2, or raise DesignError."""
    wanted = "must be an integer; a quantizer of every coordinate is md.CoordinateQuantizer"
    refuse(not isinstance(value, int) and hasattr(value, "probabilities"), name, value, wanted)
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value == 1:
        raise DesignError.of(name, 1, "must be at least 2; a single number is md.OptimalQuantizer's")
    return integer(name, value, 2, _LARGEST_DIMENSION)


def checked_vectors(x: Numbers, dimension: int) -> Array:
    """Return vectors of shape (..., d) as doubles, or raise DesignError: NaN, texts, complex numbers, another length."""
    with refusing("x", type(x).__name__, "must be a dense tensor of floating-point numbers"):
        device = str(getattr(x, "device", "cpu"))
        if hasattr(x, "detach") and device == "cpu":
            kept = x.detach()
            x = (kept if kept.dtype.itemsize > 2 else kept.double()).numpy()
    refuse(device != "cpu", "x", f"tensor on {device}", "must be on the processor: pass x.cpu()")
    found = answers("x", x)
    DataError.when(found.ndim == 0 or found.shape[-1] != dimension, f"x: the last axis must be {dimension}")
    return found


def scaled_vectors(x: Numbers, dimension: int, radius: float, inputs: str, *, clip: bool) -> Array:
    """Return vectors of a ball or a box over R, shape (n, d); too long ones are clipped or refused."""
    one_of("clip", clip, (True, False))
    found = _over(x, dimension, radius)
    size = _lengths(found) if inputs == "ball" else np.abs(found).max(axis=1, keepdims=True, initial=0.0)
    if (size > 1 + _NEAR).any() and not clip:
        what = "lengths" if inputs == "ball" else "sizes of coordinates"
        raise DataError(f"x: {what} must be at most {radius:g}; or pass clip=True")
    if inputs == "ball":
        found = found / np.maximum(size, 1.0)
    return np.clip(found, -1.0, 1.0)


def _over(x: Numbers, dimension: int, radius: float) -> Array:
    """Return vectors over R, shape (n, d), finite; coordinates so small that their products would take longer become 0."""
    found = checked_vectors(x, dimension).reshape(-1, dimension)
    far = _FAR * radius
    return np.where(np.abs(found) < NARROWEST * radius, 0.0, np.clip(found, -far, far)) / radius


def _lengths(x: Array) -> Array:
    """Return the Euclidean lengths of rows, shape (n, 1), without overflow of squares."""
    scale = np.maximum(np.abs(x).max(axis=1, keepdims=True, initial=0.0), 1e-300)
    return np.asarray(np.sqrt(halved_sum((x / scale) ** 2)) * scale)


def halved_sum(x: Array) -> Array:
    """Return sums of rows, shape (n, 1), in a reproducible order: the second half is added to the first until one entry is left.

    Examples
    --------
    >>> halved_sum(np.array([[1.0, 2.0, 4.0, 8.0, 16.0]])).tolist()
    [[31.0]]
    """
    if not x.shape[1]:
        return np.zeros((len(x), 1))
    while (size := x.shape[1]) > 1:
        half = (size + 1) // 2
        x = np.hstack([x[:, : size - half] + x[:, half:], x[:, size - half : half]])
    return x


class PureMechanism(Checked, Saved):
    """Base of mechanisms whose probabilities are made of one rational E ≤ e^ε, so that they are private."""

    privacy: PureDP

    def _post_check(self) -> None:
        _ = self.power

    @cached_property
    def power(self) -> Fraction:
        """E, the rational lower bound of e^ε from which every probability is made."""
        return power_of_e(self.privacy.epsilon)

    def privacy_loss(self) -> float:
        """Return ε between any two inputs: probabilities differ by at most the factor E ≤ e^ε, exactly."""
        return self.privacy.epsilon


class VectorMechanism(PureMechanism, ABC):
    """Base of mechanisms that answer a vector in a ball under one budget.

    Attributes
    ----------
    dimension : int
        d, at least 2.
    privacy : PureDP
        Requirement for the whole vector, between any two inputs (local model).
    inputs : {"ball", "sphere"}
        Lengths at most `radius`, or exactly `radius`.
    radius : float
        R, the length at which vectors are clipped.
    """

    dimension: int
    inputs: str
    radius: float

    @property
    def working(self) -> int:
        """D, the dimension of the sphere: d + 1 if vectors are lifted."""
        return self.dimension + (self.inputs == "ball")

    @property
    @abstractmethod
    def factor(self) -> float:
        """r, the length of an answer for R = 1."""

    @property
    def excess(self) -> float:
        """r² − 1, the error on the sphere for R = 1."""
        return self.factor**2 - 1

    @property
    @abstractmethod
    def spread(self) -> float:
        """1 − m₂."""

    def squared_error(self, x: Numbers) -> Array:
        """Return the expected squared error E‖M(x) − x‖² at vectors x, shape (..., d), which depends on their lengths only.

        Raises
        ------
        DataError
            A length above R, or for inputs on the sphere other than R.
        """
        squares = (self.lifted(x)[:, : self.dimension] ** 2).sum(axis=1)
        found = [self._unit_error(min(square, 1.0)) for square in squares.tolist()]
        return self.radius**2 * np.array(found).reshape(np.shape(x)[:-1])

    def _unit_error(self, square: float) -> float:
        if self.inputs == "sphere":
            return self.excess
        across = self.factor**2 * self.spread * (1 - square * (1 + 1 / self.dimension))
        return square * self.excess + across

    @property
    def error(self) -> float:
        """Expected squared error of the worst input."""
        worst = self._unit_error(1.0) if self.inputs == "sphere" else max(map(self._unit_error, (0.0, 1.0)))
        return self.radius**2 * worst

    def lifted(self, x: Numbers, *, clip: bool = False) -> Array:
        """Return inputs as unit vectors, shape (n, D), or raise DataError for lengths that are not allowed.

        Parameters
        ----------
        x : array_like, shape (..., d)
        clip : bool
            Shorten vectors that are longer than R (on the sphere make all of length R; a zero vector gets the first
            coordinate R).
        """
        one_of("clip", clip, (True, False))
        found = _over(x, self.dimension, self.radius)
        norms = _lengths(found)
        sphere = self.inputs == "sphere"
        bad = (norms > 1 + _NEAR) | (sphere & (norms < 1 - _NEAR))
        wanted = f"{'exactly' if sphere else 'at most'} {self.radius:g}"
        DataError.when(bad.any() and not clip, f"x: lengths must be {wanted}; or pass clip=True")
        if sphere:
            found[:, :1] += norms == 0
            return found / np.where(norms == 0, 1.0, norms)
        unit = found / np.maximum(norms, 1.0)
        rest = np.maximum(1 - halved_sum(unit**2), 0.0)
        return np.hstack([unit, np.sqrt(rest)])

    def _answered(self, units: Array, shape: tuple[int, ...]) -> Array:
        """Return answers from unit vectors (n, D): stretched by r R, without the lifted coordinate."""
        return (self.factor * self.radius * units[:, : self.dimension]).reshape(shape)

r"""PrivUnit: a random direction from a cap about the input, the best of all unbiased answers to a vector.

On the sphere in D dimensions the answer has the density E ≤ e^ε on the cap :math:`\{u : \langle u, y\rangle \ge t\}` against 1 outside. With
:math:`q = P[u_1 \ge t]` and :math:`A = E[u_1; u_1 \ge t]` for a uniform u,

.. math:: s = \frac{(E - 1) A}{E q + 1 - q}, \qquad \text{answer } u/s, \qquad \text{error } s^{-2} - 1,

least where t = s. (Bhowmick, Duchi, Freudiger, Kapoor, Rogers 2018; best among unbiased mechanisms: Asi, Feldman, Talwar 2022.)

**Vectors of a box.** The least error of unbiased private answers to vectors of a box: a lower bound, within a seventh of what is reached in many dimensions.

Let X be uniform on the corners :math:`\{\pm1\}^d`, M unbiased and ε-private, E = e^ε, and g(m) the mean of X given the answer m. Then
:math:`d = E\langle M, X\rangle = E\langle M, g(M)\rangle \le \sqrt{E\|M\|^2\, E\|g(M)\|^2}`, so that the mean error at the corners,
:math:`E\|M\|^2 - d`, is at least :math:`d^2/s^2 - d` where :math:`\|g\| \le s`. Given an answer the corners have a density w
in [b, Eb] about their own law, of mean 1. For a unit vector u and Z = ⟨u, X⟩

.. math:: E[wZ] - s = E[w (Z - s)] \le b\, E(Z - s) + (E - 1)\, b\, E(Z - s)_+ = b\, \big((E - 1)\, E(Z - s)_+ - s\big),

and :math:`\|g\| = \max_u E[wZ] \le s` for every s with :math:`(E - 1)\, E(Z - s)_+ \le s`. As Z is symmetric with variance 1,
:math:`E(Z - s)_+ = \tfrac12 E(|Z| - s)_+` is at most (1 − s)/2 for s ≤ ½, and always at most
:math:`\tfrac12 E|G|^p\, (p - 1)^{p - 1} / (p^p s^{p - 1})` for G normal and p ≥ 2 (Haagerup 1982; plain for p = 2); and as one sign after the other may be replaced by a normal variable,
its first three moments the same and its :math:`E(\cdot - t)_+^3` larger for all t (Eaton 1970), :math:`E(Z - s)_+ \le \tfrac4{27}\, E(G - t)_+^3/(s - t)^2` for t < s.
Any coordinate alone is one of [−1, 1]: no g_i exceeds tanh(ε/2).

The third moments close up to a third of the gap that powers alone leave (results/ablations, vectors). For ε ≤ log 3 the first gives s = tanh(ε/2): one coordinate, one bit and shared randomness (`SampledCoordinates`) are optimal but for the term −d.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

import numpy as np
from scipy import optimize, special

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import field, generator, one_of
from mechdesign.problem.privacy import PureDP
from mechdesign.typing import Array, Numbers, Randomness
from mechdesign.vectors.ball import VectorMechanism, checked_dimension, checked_radius


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

    dimension: int = field(check=checked_dimension)
    privacy: PureDP = field(PureDP)
    inputs: str = field(check=one_of, allowed=("ball", "sphere"), default="ball")
    radius: float = field(check=checked_radius, default=1.0)

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

    def sample(self, x: Numbers, *, rng: Randomness = None, clip: bool = False) -> Array:
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

    def release(self, x: Numbers, *, clip: bool = False) -> NoReturn:
        """Refuse: points of a cap drawn in floating-point numbers reveal their input."""
        raise DesignError(
            "PrivUnit draws points of a cap in floating-point numbers, which is not private: "
            "release with md.SphereQuantizer, whose codes are drawn in integers"
        )


_ROUNDING = 1e-14  # of the cancellation in E(G − t)₊³, relative to its largest term


def cubic_excess(t: float) -> float:
    """E(G − t)₊³ of a standard normal variable, rounded up.

    Examples
    --------
    >>> round(cubic_excess(0.0) ** 2 * math.pi, 9)
    2.0
    """
    density, above = math.exp(-t * t / 2) / math.sqrt(2 * math.pi), float(special.ndtr(-t))
    return max((t * t + 2) * density - (t**3 + 3 * t) * above, 0.0) + _ROUNDING * (t * t + 2) * density


def corner_reach(epsilon: float) -> float:
    """s: an ε-private answer moves the mean of a uniform corner of {±1}^d by no more, whatever d.

    Examples
    --------
    >>> corner_reach(1.0) == math.tanh(0.5), round(corner_reach(4.0) ** 2, 3)
    (True, 2.705)
    """
    if epsilon <= math.log(3):
        return math.tanh(epsilon / 2)
    gain = math.expm1(epsilon)

    def least(t: float) -> float:
        wanted, low = 4 / 27 * gain * cubic_excess(t), max(t, 0.0)
        high = low + 1
        while high * (high - t) ** 2 < wanted:
            high += high - low
        return float(optimize.brentq(lambda s: s * (s - t) ** 2 - wanted, low, high, xtol=1e-13, rtol=1e-13))

    ends = (-2.0, math.sqrt(2 * epsilon) + 1)
    found = optimize.minimize_scalar(least, bounds=ends, method="bounded", options={"xatol": 1e-9})
    p = np.linspace(2.0, 4.0, 101)
    moments = p / 2 * math.log(2) + special.gammaln((p + 1) / 2) - math.log(math.pi) / 2
    by_moments = np.exp((math.log(gain / 2) + moments + (p - 1) * np.log(p - 1) - p * np.log(p)) / p).min()
    return float(min(found.fun, by_moments) * (1 + 1e-12))


def box_error(dimension: int, epsilon: float) -> float:
    """A lower bound of the worst squared error of unbiased ε-private answers to vectors of [−1, 1]^d.

    Examples
    --------
    >>> round(box_error(1000, 1.0) / 1000**2, 3)        # one coordinate in one bit: 4.683
    4.682
    """
    each = min(corner_reach(epsilon) ** 2 / dimension, math.tanh(epsilon / 2) ** 2)
    return dimension * (1 / each - 1)

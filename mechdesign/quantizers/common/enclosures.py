r"""Partial moments of a prior between proved bounds, apart from the floats that a design was solved with.

On a cell [u, v] with :math:`t = (x - u)/(v - u)` a certificate needs :math:`\int t^k\,dF`, k = 0, 1, 2, of the density, and the
point masses. Uniform laws, histograms and samples have rational ones, which are exact. Normal and beta laws (also clipped
and truncated) are computed with 100 digits by mpmath and widened by far more than that leaves open. For other laws
the floats of `Prior.continuous_moments` are taken as they are, and `proved` says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import stats

from mechdesign.problem.law_moments import law_parameters
from mechdesign.problem.priors import ClippedPrior, EmpiricalPrior, Prior, TruncatedPrior

__all__ = ["BITS", "Enclosure", "Moments"]

BITS = 160
Enclosure = tuple[int, int]
"""Lower and upper bound, in units of 2⁻¹⁶⁰."""

_DIGITS = 100
_WIDENED = 1 << (BITS - 100)
Primitive = Callable[[Fraction], tuple[Any, Any, Any]]


@dataclass(frozen=True)
class Moments:
    """A prior, as a certificate integrates against it.

    Examples
    --------
    >>> half = Moments(Prior.of(stats.uniform(-1, 2))).density([Fraction(0), Fraction(1)])[0]
    >>> [float(Fraction(low, 1 << BITS)) for low, _ in half]
    [0.5, 0.25, 0.16666666666666666]
    """

    prior: Prior

    @property
    def _law(self) -> Any:
        return getattr(self.prior, "law", None)

    @property
    def proved(self) -> bool:
        """Whether the bounds are proved, and not floats with an estimate of their error."""
        return isinstance(self.prior, EmpiricalPrior) or type(self._law.dist) in _PRIMITIVES

    @property
    def atoms(self) -> list[tuple[Fraction, Enclosure]]:
        """Point masses."""
        if isinstance(self.prior, EmpiricalPrior):
            points, counts = np.unique(self.prior.samples, return_counts=True)
            size = int(counts.sum())
            pairs = zip(points.tolist(), counts.tolist())
            return [(Fraction(x), _fixed(Fraction(n, size))) for x, n in pairs]
        if not isinstance(self.prior, ClippedPrior):
            return []
        ends = [(self.prior.lower, 0), (self.prior.upper, 1)]
        return [(Fraction(x), self._tail(Fraction(x), side)) for x, side in ends]

    def _tail(self, x: Fraction, side: int) -> Enclosure:
        """Mass of the law left (0) or right (1) of x."""
        if not self.proved:
            value = float(self._law.sf(float(x)) if side else self._law.cdf(float(x)))
            return _fixed(Fraction(value))
        low, high = (Fraction(v) if math.isfinite(v) else v for v in map(float, self._law.support()))
        ends = [low, min(max(x, low), high)] if side == 0 else [max(min(x, high), low), high]
        return _fixed(self._cell_masses(ends)[0])

    def density(self, edges: Sequence[Fraction]) -> list[tuple[Enclosure, Enclosure, Enclosure]]:
        """∫ t^k dF of the density over each cell, k = 0, 1, 2."""
        if isinstance(self.prior, EmpiricalPrior):
            return [((0, 0),) * 3] * (len(edges) - 1)
        low, high = (Fraction(v) for v in self.prior.support)
        share = Fraction(1)
        if isinstance(self.prior, TruncatedPrior):
            share = self._cell_masses([low, high])[0] if self.proved else share
        out = []
        inner = [min(max(x, low), high) for x in edges]
        raw = self._raw(inner)
        for u, v, a, b, cell in zip(edges, edges[1:], inner, inner[1:], raw):
            # Moments about a, the cell's start inside the support; t = (x − u)/(v − u).
            shift, width = a - u, v - u
            m0, m1, m2 = (m / share for m in cell)
            n1 = (m1 + shift * m0) / width
            n2 = (m2 + 2 * shift * m1 + shift * shift * m0) / (width * width)
            found = [_fixed(n) for n in (m0, n1, n2)]
            # 0 ≤ ∫ t² ≤ ∫ t ≤ ∫ 1, and nothing outside the support.
            limit = found[0][1] if b > a else 0
            out.append(tuple((max(lo, 0), min(hi, limit)) for lo, hi in found))
        return out  # type: ignore[return-value]

    def _cell_masses(self, edges: Sequence[Any]) -> list[Fraction]:
        return [m0 for m0, *_ in self._raw(edges)]

    def _raw(self, edges: Sequence[Any]) -> list[tuple[Fraction, Fraction, Fraction]]:
        """Moments of order 0, 1, 2 about each cell's start, of the law as it is."""
        if not self.proved:
            # About the middle of the range: far from zero, moments about zero have no digits left.
            centre = float(edges[0] + edges[-1]) / 2
            floats = np.array([float(x - Fraction(centre)) for x in edges])
            m0, m1, m2 = self.prior.standardised(centre, 1.0).continuous_moments(floats).T
            about = np.stack([m0, m1 - floats[:-1] * m0, m2 - 2 * floats[:-1] * m1 + floats[:-1] ** 2 * m0])
            return [(Fraction(a), Fraction(b), Fraction(c)) for a, b, c in about.T.tolist()]
        return _PRIMITIVES[type(self._law.dist)](self._law, edges)


def _fixed(value: Fraction) -> Enclosure:
    return math.floor(value * (1 << BITS)) - _WIDENED, math.ceil(value * (1 << BITS)) + _WIDENED


def _uniform(law: Any, edges: Sequence[Any]) -> list[tuple[Fraction, Fraction, Fraction]]:
    low, high = (Fraction(float(v)) for v in law.support())
    out = []
    inner = [min(max(x, low), high) for x in edges]
    for a, b in zip(inner, inner[1:]):
        w = b - a
        out.append((w / (high - low), w * w / 2 / (high - low), w**3 / 3 / (high - low)))
    return out


def _histogram(law: Any, edges: Sequence[Any]) -> list[tuple[Fraction, Fraction, Fraction]]:
    """Constant density between the histogram's edges; masses are those of its distribution function."""
    _, loc, scale = law_parameters(law)
    ends = [Fraction(loc) + Fraction(scale) * Fraction(float(x)) for x in law.dist._hbins]
    masses = [Fraction(float(p)) * (b - a) for p, a, b in zip(law.dist._hpdf[1:-1], ends, ends[1:])]
    total = sum(masses, Fraction(0))
    out = []
    for a, b in zip(edges, edges[1:]):
        m = [Fraction(0)] * 3
        for mass, u, v in zip(masses, ends, ends[1:]):
            s, t = max(a, u), min(b, v)
            if mass and s < t:
                height = mass / total / (v - u)
                m = [n + height * ((t - a) ** k - (s - a) ** k) / k for k, n in enumerate(m, 1)]
        out.append((m[0], m[1], m[2]))
    return out


def _with_mpmath(primitive: Callable[..., Any]) -> Callable[..., list[tuple[Fraction, Fraction, Fraction]]]:
    """Moments from a function that gives, for each cell, those about zero of the standard law."""

    def moments(law: Any, edges: Sequence[Any]) -> list[tuple[Fraction, Fraction, Fraction]]:
        import mpmath

        shapes, loc, scale = law_parameters(law)
        out = []
        with mpmath.workdps(_DIGITS):

            def real(x: Any) -> Any:
                return mpmath.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else mpmath.mpf(x)

            z = [(real(x) - real(loc)) / real(scale) for x in edges]
            cells = primitive(mpmath, z, *map(real, shapes))
            # Far tails have exponents of millions of digits: next to the largest cell they are nothing.
            least = max((m0 for m0, *_ in cells), default=mpmath.mpf(0)) / mpmath.mpf(2) ** 400
            for (m0, m1, m2), a in zip(cells, z):
                if m0 < least:
                    out.append((Fraction(0), Fraction(0), Fraction(0)))
                    continue
                if not mpmath.isfinite(a):
                    a = mpmath.mpf(0)  # only the mass of a tail is asked for
                about = (m0, (m1 - a * m0) * scale, (m2 - 2 * a * m1 + a * a * m0) * scale**2)
                zero, one, two = (Fraction(*map(int, mpmath.libmp.to_rational(m._mpf_))) for m in about)
                out.append((zero, one, two))
        return out

    return moments


def _normal(mp: Any, z: list[Any]) -> list[tuple[Any, Any, Any]]:
    root = mp.sqrt(2)
    density = [mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi) for x in z]
    weighted = [x * d if mp.isfinite(x) else mp.mpf(0) for x, d in zip(z, density)]
    tail = [mp.erfc(abs(x) / root) / 2 for x in z]
    out = []
    for k in range(len(z) - 1):
        if z[k] >= 0:
            mass = tail[k] - tail[k + 1]
        elif z[k + 1] <= 0:
            mass = tail[k + 1] - tail[k]
        else:
            mass = 1 - tail[k] - tail[k + 1]
        out.append((mass, density[k] - density[k + 1], mass + weighted[k] - weighted[k + 1]))
    return out


def _truncated_normal(mp: Any, z: list[Any], a: Any, b: Any) -> list[tuple[Any, Any, Any]]:
    total = _normal(mp, [a, b])[0][0]
    inner = [min(max(x, a), b) for x in z]
    return [tuple(m / total for m in cell) for cell in _normal(mp, inner)]  # type: ignore[misc]


def _beta(mp: Any, z: list[Any], a: Any, b: Any) -> list[tuple[Any, Any, Any]]:
    inner = [min(max(x, mp.mpf(0)), mp.mpf(1)) for x in z]
    first = [mp.betainc(a, b, 0, x, regularized=True) for x in inner]
    second, third = [], []
    for x, f in zip(inner, first):  # I_x(a + 1, b) = I_x(a, b) − x^a (1 − x)^b / (a B(a, b))
        edge = x**a * (1 - x) ** b / (a * mp.beta(a, b)) if 0 < x < 1 else mp.mpf(0)
        second.append(f - edge)
        third.append(f - edge - edge * x * (a + b) / (a + 1))
    one, two = a / (a + b), a * (a + 1) / ((a + b) * (a + b + 1))
    return [
        (first[k + 1] - first[k], one * (second[k + 1] - second[k]), two * (third[k + 1] - third[k]))
        for k in range(len(z) - 1)
    ]


_PRIMITIVES: dict[type, Callable[[Any, Sequence[Any]], list[tuple[Fraction, Fraction, Fraction]]]] = {
    type(stats.uniform): _uniform,
    stats.rv_histogram: _histogram,
    type(stats.norm): _with_mpmath(_normal),
    type(stats.truncnorm): _with_mpmath(_truncated_normal),
    type(stats.beta): _with_mpmath(_beta),
}

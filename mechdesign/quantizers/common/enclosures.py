r"""Partial moments of a prior between proved bounds, apart from the floats that a design was solved with.

On a cell [u, v] with :math:`t = (x - u)/(v - u)` a certificate needs :math:`\int t^k\,dF`, k = 0, 1, 2, of the density, and the
point masses. Uniform laws, histograms and samples have rational ones, which are exact. Normal and beta laws (also clipped
and truncated) are computed with 60 digits by mpmath and widened by far more than that leaves open. For other laws
the floats of `Prior.continuous_moments` are taken as they are, and `proved` says so.

What is not rational is also stored with a certificate (`PriorMoments`), so that a reader who cannot compute it sees what was
used, and can check everything that follows from it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import stats

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import histogram_parts, serializable
from mechdesign.problem.checks import settle
from mechdesign.problem.law_moments import frozen_parts
from mechdesign.problem.priors import ClippedPrior, EmpiricalPrior, Prior, TruncatedPrior

__all__ = ["BITS", "Cell", "Enclosure", "Moments", "PriorMoments"]

BITS = 160
Enclosure = tuple[int, int]
"""Lower and upper bound, in units of 2⁻¹⁶⁰."""
Cell = tuple[Enclosure, Enclosure, Enclosure]
"""∫ t^k dF over one cell, k = 0, 1, 2."""
Pair = tuple[Fraction, Fraction]

_DIGITS = 60
_SERIES = 220  # bits of a power series
_STEEPEST = 1e6  # of the shapes of a beta law: its series have thousands of terms
_WIDENED = 1 << (BITS - 100)


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
        return isinstance(self.prior, EmpiricalPrior) or _primitive(self._law) is not None

    @property
    def rational(self) -> bool:
        """Whether they are exact, so that anyone can compute them."""
        return isinstance(self.prior, EmpiricalPrior) or type(self._law.dist) in _RATIONAL

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
        ends = [(Fraction(x), side) for side, x in enumerate((self.prior.lower, self.prior.upper))]
        tails = [self._tail(x, side) for x, side in ends]
        return [(x, (max(low, 0), high)) for (x, _), (low, high) in zip(ends, tails)]

    def _tail(self, x: Fraction, side: int) -> Enclosure:
        """Mass of the law left (0) or right (1) of x."""
        if not self.proved:
            value = float(self._law.sf(float(x)) if side else self._law.cdf(float(x)))
            return _fixed(Fraction(value))
        low, high = (Fraction(v) if math.isfinite(v) else v for v in map(float, self._law.support()))
        ends = [low, min(max(x, low), high)] if side == 0 else [max(min(x, high), low), high]
        return _fixed(self._cell_masses(ends)[0])

    def over(self, spans: Iterable[Pair], origin: Fraction) -> dict[Pair, Cell]:
        """∫ t^k dF of the density from origin + u to origin + v for every span (u, v), from cells between all ends."""
        spans = sorted(spans)
        ends = sorted({y for pair in spans for y in pair})
        cells = self.density([origin + y for y in ends]) if spans else []
        found: dict[Pair, Cell] = {}
        for u, v in spans:
            first, last = bisect_left(ends, u), bisect_left(ends, v)
            if last == first + 1:
                found[u, v] = cells[first]
                continue
            bounds = [[Fraction(0)] * 3 for _ in (0, 1)]
            whole = v - u
            for k in range(first, last):
                s, w = (ends[k] - u) / whole, (ends[k + 1] - ends[k]) / whole
                for total, side in zip(bounds, (0, 1)):
                    n0, n1, n2 = (Fraction(n[side]) for n in cells[k])
                    total[0] += n0
                    total[1] += s * n0 + w * n1
                    total[2] += s * s * n0 + 2 * s * w * n1 + w * w * n2
            m0, m1, m2 = ((math.floor(a), math.ceil(b)) for a, b in zip(*bounds))
            found[u, v] = m0, m1, m2
        return found

    def density(self, edges: Sequence[Fraction]) -> list[Cell]:
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
            # 0 ≤ ∫ t² ≤ ∫ t ≤ ∫ 1, and nothing outside the support; what is only estimated may lie outside by rounding.
            limit = max(found[0][1], 0) if b > a else 0
            out.append(tuple((min(max(lo, 0), limit), min(max(hi, 0), limit)) for lo, hi in found))
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
        primitive = _primitive(self._law)
        assert primitive is not None
        return primitive(self._law, edges, 0 if isinstance(self.prior, TruncatedPrior) else BITS + 400)


@serializable("prior-moments")
@dataclass(frozen=True)
class PriorMoments:
    """Moments of a prior that is not rational, as a certificate used them: in place of `Moments`.

    Parameters
    ----------
    cells : tuple of int
        Lower and upper bound of ∫ dF, ∫ t dF and ∫ t² dF in units of 2⁻¹⁶⁰, six numbers for each cell between the law's
        knots and outputs.
    spans : tuple of int
        The same for each stretch of inputs that the multipliers of the lower bound speak of, in order.
    masses : tuple of int
        Lower and upper bound of each point mass.
    """

    cells: tuple[int, ...]
    spans: tuple[int, ...] = ()
    masses: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, size in (("cells", 6), ("spans", 6), ("masses", 2)):
            held = getattr(self, name)
            good = isinstance(held, tuple) and all(type(n) is int and 0 <= n < 2 << BITS for n in held)
            if not good or len(held) % size or any(a > b for a, b in zip(held[::2], held[1::2])):
                raise DesignError.of(name, "…", f"must be bounds from below and above, {size} numbers each")
            settle(self, **{name: held})

    @classmethod
    def of(
        cls, moments: Moments, edges: Sequence[Fraction], spans: Iterable[Pair], origin: Fraction
    ) -> PriorMoments:
        """State the moments over the cells between `edges` and over `spans`, and the point masses."""

        def flat(cells: Iterable[Cell]) -> tuple[int, ...]:
            return tuple(n for cell in cells for bounds in cell for n in bounds)

        masses = tuple(n for _, bounds in moments.atoms for n in bounds)
        return cls(
            flat(moments.density(edges) if edges else ()), flat(moments.over(spans, origin).values()), masses
        )

    def apart(self, other: PriorMoments) -> float:
        """Largest difference of two bounds, as a mass; infinite where they speak of different cells."""
        worst = 0
        for mine, its in zip(*((held.cells, held.spans, held.masses) for held in (self, other))):
            if len(mine) != len(its):
                return math.inf
            worst = max([worst, *(abs(a - b) for a, b in zip(mine, its))])
        return worst / (1 << BITS)

    def on(self, moments: Moments) -> StatedMoments:
        """Put in the place of the prior's own."""
        return StatedMoments(self, [x for x, _ in moments.atoms] if self.masses else [])


@dataclass(frozen=True)
class StatedMoments:
    """`PriorMoments` with the interface of `Moments`."""

    stated: PriorMoments
    points: list[Fraction]

    @property
    def atoms(self) -> list[tuple[Fraction, Enclosure]]:
        """Point masses."""
        held = self.stated.masses
        return list(zip(self.points, zip(held[::2], held[1::2])))

    def over(self, spans: Iterable[Pair], _origin: Fraction) -> dict[Pair, Cell]:
        """As `Moments.over`."""
        return dict(zip(sorted(spans), _cells(self.stated.spans)))

    def density(self, _edges: Sequence[Fraction]) -> list[Cell]:
        """As `Moments.density`."""
        return _cells(self.stated.cells)


def _cells(flat: tuple[int, ...]) -> list[Cell]:
    return [
        ((row[0], row[1]), (row[2], row[3]), (row[4], row[5])) for row in zip(*(flat[k::6] for k in range(6)))
    ]


def _fixed(value: Fraction) -> Enclosure:
    return math.floor(value * (1 << BITS)) - _WIDENED, math.ceil(value * (1 << BITS)) + _WIDENED


def _uniform(law: Any, edges: Sequence[Any], _bits: int) -> list[tuple[Fraction, Fraction, Fraction]]:
    low, high = (Fraction(float(v)) for v in law.support())
    out = []
    inner = [min(max(x, low), high) for x in edges]
    for a, b in zip(inner, inner[1:]):
        w = b - a
        out.append((w / (high - low), w * w / 2 / (high - low), w**3 / 3 / (high - low)))
    return out


def _histogram(law: Any, edges: Sequence[Any], _bits: int) -> list[tuple[Fraction, Fraction, Fraction]]:
    """Constant density between the histogram's edges, with masses in the ratio of its counts."""
    _, _, loc, scale = frozen_parts(law)
    contents, cuts, density = histogram_parts(law)
    ends = [Fraction(loc) + Fraction(scale) * Fraction(x) for x in cuts]
    masses = [Fraction(n) * (b - a if density else 1) for n, a, b in zip(contents, ends, ends[1:])]
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
    """Moments from a function that gives, for each cell, those about zero of the standard law.

    Masses below 2^-bits are nothing; without bits, where all may be divided by a small one, below 2^-400 of the largest.
    """

    def moments(law: Any, edges: Sequence[Any], bits: int) -> list[tuple[Fraction, Fraction, Fraction]]:
        import mpmath

        _, shapes, loc, scale = frozen_parts(law)
        out = []
        with mpmath.workdps(_DIGITS):

            def real(x: Any) -> Any:
                return mpmath.mpf(x.numerator) / x.denominator if isinstance(x, Fraction) else mpmath.mpf(x)

            z = [(real(x) - real(loc)) / real(scale) for x in edges]
            cells = primitive(mpmath, z, *map(real, shapes))
            # Far tails have exponents of millions of digits: next to the largest cell they are nothing.
            least = max((m0 for m0, *_ in cells), default=mpmath.mpf(0)) / mpmath.mpf(2) ** 400
            least = max(least, mpmath.mpf(2) ** -bits) if bits else least
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


def _incomplete_beta(mp: Any, a: Any, b: Any, x: Any, complete: Any) -> Any:
    r"""I_x(a, b) = x^a (1 − x)^b / (a B(a, b)) · Σ_n (a + b)_n / (a + 1)_n x^n: positive terms, summed in fixed point.

    From the end that needs fewer terms; `complete` is B(a, b).
    """
    if x <= 0 or x >= 1:
        return mp.mpf(int(x >= 1))

    def terms(p: Any, q: Any, z: Any) -> Any:  # they grow up to some n, then fall by z
        return max(0, ((p + q) * z - p - 1) / (1 - z)) - _SERIES / mp.log(z)

    mirrored = terms(b, a, 1 - x) < terms(a, b, x)
    p, q, z = (b, a, 1 - x) if mirrored else (a, b, x)
    ratios = [Fraction(*map(int, mp.libmp.to_rational(v._mpf_))) for v in (p + q, p + 1)]
    unit = math.lcm(*(r.denominator for r in ratios))
    top, bottom = (int(r * unit) for r in ratios)
    power, term = int(z * mp.mpf(2) ** _SERIES), 1 << _SERIES
    total = 0
    while term:
        total += term
        term = term * top * power // (bottom << _SERIES)
        top, bottom = top + unit, bottom + unit
    below = z**p * (1 - z) ** q / (p * complete) * total / mp.mpf(2) ** _SERIES
    return 1 - below if mirrored else below


def _beta(mp: Any, z: list[Any], a: Any, b: Any) -> list[tuple[Any, Any, Any]]:
    inner, complete = [min(max(x, mp.mpf(0)), mp.mpf(1)) for x in z], mp.beta(a, b)
    first = [_incomplete_beta(mp, a, b, x, complete) for x in inner]
    second, third = [], []
    for x, f in zip(inner, first):  # I_x(a + 1, b) = I_x(a, b) − x^a (1 − x)^b / (a B(a, b))
        edge = x**a * (1 - x) ** b / (a * complete) if 0 < x < 1 else mp.mpf(0)
        second.append(f - edge)
        third.append(f - edge - edge * x * (a + b) / (a + 1))
    one, two = a / (a + b), a * (a + 1) / ((a + b) * (a + b + 1))
    return [
        (first[k + 1] - first[k], one * (second[k + 1] - second[k]), two * (third[k + 1] - third[k]))
        for k in range(len(z) - 1)
    ]


_Primitive = Callable[[Any, Sequence[Any], int], list[tuple[Fraction, Fraction, Fraction]]]
_RATIONAL: dict[type, _Primitive] = {type(stats.uniform): _uniform, stats.rv_histogram: _histogram}
_PRIMITIVES: dict[type, _Primitive] = {
    **_RATIONAL,
    type(stats.norm): _with_mpmath(_normal),
    type(stats.truncnorm): _with_mpmath(_truncated_normal),
    type(stats.beta): _with_mpmath(_beta),
}


def _primitive(law: Any) -> _Primitive | None:
    """Moments of this law between proved bounds, None where there are none."""
    found = _PRIMITIVES.get(type(law.dist))
    if found is not None and type(law.dist) is type(stats.beta) and max(frozen_parts(law)[1]) > _STEEPEST:
        return None
    return found

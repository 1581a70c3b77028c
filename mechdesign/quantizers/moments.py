r"""Masses and moments of a prior between rational bounds, on intervals of inputs and against hat functions.

On a cell [u, v] with :math:`t = (x - u)/(v - u)` a certificate needs :math:`\int t^k\,dF`, k = 0, 1, 2, of the density, and the
point masses. For uniform laws, histograms and samples these are rational, and exact. For normal and beta laws (also clipped
and truncated) they are enclosed in ball arithmetic (python-flint), rounded outwards. For other laws the floats of
`Prior.continuous_moments` are used, and `proved` is False. All bounds are widened by 2⁻¹⁰⁰, so that a verifier that computes
them in another way, with as few as 35 digits, finds the same.

Moments that are not rational are also stored with a certificate (`PriorMoments`), so that a reader who cannot compute them
can check all conclusions from them.

**Hat functions.** The loss of a mechanism that interpolates rows at knots is affine in the rows, with coefficients from below.

.. math:: \int \sum_i p(x, i)\, \ell(B_i - x)\, dF(x) = c_0 + \sum_{k,i} c_{ki} P_{ki}, \qquad c_{ki} = \int h_k(x)\, \ell(B_i - x)\, dF(x) - \dots,

:math:`h_k` the hat function of knot k. On each cell between knots and outputs hat functions times a loss :math:`w_1 |t| + w_2 t^2` are polynomials, so
that the enclosed masses and moments of the prior there suffice; of the square, :math:`B^2 - 2Bx` belongs to
the rows, and :math:`x^2`, the same for all outputs, to :math:`c_0`. Rounding errors are subtracted: as probabilities are non-negative, the coefficients give a lower
bound of every mechanism's cost. Other convex losses are integrated by quadrature.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from operator import mul
from typing import Any

import numpy as np
from flint import arb, ctx, fmpq
from scipy import stats

from mechdesign.checks import frozen_parts, settle
from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import histogram_parts, serializable
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import ClippedPrior, EmpiricalPrior, Prior, TruncatedPrior
from mechdesign.solvers.deadline import pause
from mechdesign.typing import Array, FrozenLaw, Indices

BITS = 160
Enclosure = tuple[int, int]
"""Lower and upper bounds, in units of 2⁻¹⁶⁰."""
Cell = tuple[Enclosure, Enclosure, Enclosure]
"""∫ t^k dF over one cell, k = 0, 1, 2."""
Number = Fraction | fmpq
"""A rational. Sums use python-flint, which is several times as fast as the standard library and refuses floats."""
Pair = tuple[Number, Number]

Ball = fmpq | arb
"""A number, exact or between bounds."""
Raw = tuple[Ball, Ball, Ball]
"""Moments of order 0, 1 and 2 about the start of a cell."""

_Primitive = Callable[[FrozenLaw, Sequence[Any]], list[Raw]]

_PRECISION = 512  # bits of balls: moments about cells 2⁻¹⁰⁰ as wide as the law's scale keep 200 of them
_STEEPEST = 1e3  # largest shape of a beta law: a value of one with shapes of 3,000 takes .2 s
_WIDENED = 1 << (BITS - 100)


@dataclass(frozen=True)
class Moments:
    """Masses and moments of a prior for a certificate.

    Examples
    --------
    >>> half = Moments(Prior.of(stats.uniform(-1, 2))).density([Fraction(0), Fraction(1)])[0]
    >>> [float(Fraction(low, 1 << BITS)) for low, _ in half]
    [0.5, 0.25, 0.16666666666666666]
    """

    prior: Prior
    stated: PriorMoments | None = None

    @property
    def _law(self) -> FrozenLaw:
        return getattr(self.prior, "law", None)

    @property
    def proved(self) -> bool:
        """Whether the bounds are proved, rather than floats with an estimated error."""
        return isinstance(self.prior, EmpiricalPrior) or _primitive(self._law) is not None

    @property
    def rational(self) -> bool:
        """Whether the moments are exact, so that anyone can compute them."""
        return isinstance(self.prior, EmpiricalPrior) or type(self._law.dist) in _RATIONAL

    @property
    def atoms(self) -> list[tuple[Fraction, Enclosure]]:
        """Point masses."""
        if self.stated is not None:
            held = self.stated.masses
            places = [x for x, _ in Moments(self.prior).atoms] if held else []
            return list(zip(places, zip(held[::2], held[1::2])))
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
        """Return the mass of the law left (0) or right (1) of x."""
        if not self.proved:
            value = float(self._law.sf(float(x)) if side else self._law.cdf(float(x)))
            return _fixed(Fraction(value))
        low, high = map(float, self._law.support())
        place = min(max(float(x), low), high)
        with ctx.workprec(_PRECISION):
            return _fixed(self._raw([rational(v) for v in ((low, place), (place, high))[side]])[0][0])

    def over(self, spans: Iterable[Pair], origin: Number) -> dict[Pair, Cell]:
        """Return ∫ t^k dF of the density from origin + u to origin + v for every span (u, v)."""
        if self.stated is not None:
            return dict(zip(sorted(spans), _cells(self.stated.spans)))
        exact = {span: (rational(span[0]), rational(span[1])) for span in sorted(spans)}
        start, ends = rational(origin), sorted({y for pair in exact.values() for y in pair})
        cells = dict(zip(pairwise(ends), self.density([start + y for y in ends]))) if ends else {}
        # quadratures of all cells at once are several times as fast; where spans overlap, each by itself
        return {
            span: cells.get((u, v)) or self.density([start + u, start + v])[0]
            for span, (u, v) in exact.items()
        }

    def density(self, edges: Sequence[Number]) -> list[Cell]:
        """Return ∫ t^k dF of the density over each cell, k = 0, 1, 2."""
        if self.stated is not None:
            return _cells(self.stated.cells)
        if isinstance(self.prior, EmpiricalPrior):
            return [((0, 0),) * 3] * (len(edges) - 1)
        low, high = map(rational, self.prior.support)
        outer = [rational(x) for x in edges]
        inner = [min(max(x, low), high) for x in outer]
        out = []
        with ctx.workprec(_PRECISION):
            truncated = isinstance(self.prior, TruncatedPrior) and self.proved
            share = self._raw([low, high])[0][0] if truncated else fmpq(1)
            for u, v, a, b, cell in zip(outer, outer[1:], inner, inner[1:], self._raw(inner)):
                pause("lower bound")
                # Moments about a, the cell's start inside the support; t = (x − u)/(v − u).
                shift, width = a - u, v - u
                m0, m1, m2 = (m / share for m in cell)
                n1 = (m1 + shift * m0) / width
                n2 = (m2 + 2 * shift * m1 + shift * shift * m0) / (width * width)
                found = [_fixed(n) for n in (m0, n1, n2)]
                # 0 ≤ ∫ t² ≤ ∫ t ≤ ∫ 1, and 0 outside the support; estimated moments may violate this by rounding.
                limit = max(found[0][1], 0) if b > a else 0
                zero, one, two = ((min(max(lo, 0), limit), min(max(hi, 0), limit)) for lo, hi in found)
                out.append((zero, one, two))
        return out

    def all_parts(self, edges: Sequence[fmpq]) -> tuple[list[Cell], list[tuple[Fraction, Enclosure]]]:
        """Return `density` and `atoms`; of samples, which may be a million, the sums over each cell, and no atoms."""
        if not isinstance(self.prior, EmpiricalPrior):
            return self.density(edges), self.atoms
        points, counts = np.unique(self.prior.samples, return_counts=True)
        size, listed, out = self.prior.samples.size, points.tolist(), list[Cell]()
        cuts = [0, *(bisect_left(listed, Fraction(int(x.p), int(x.q))) for x in edges[1:-1]), len(listed)]
        for (u, v), (first, last) in zip(pairwise(edges), pairwise(cuts)):
            n, mean, square = _power_sums(points[first:last], counts[first:last])
            width = (v - u) * size
            about = (
                n / size,
                (mean - u * n) / width,
                (square - 2 * u * mean + u * u * n) / (width * (v - u)),
            )
            zero, one, two = (_fixed(Fraction(int(m.p), int(m.q))) for m in about)
            out.append((zero, one, two))
        return out, []

    def _raw(self, edges: Sequence[Any]) -> list[Raw]:
        """Return moments of order 0, 1, 2 about each cell's start under the unclipped law; for infinite cells masses only."""
        primitive = _primitive(self._law)
        if primitive is not None:
            return primitive(self._law, edges)
        # About the middle of the range: far from zero, moments about zero lose all digits.
        centre = float(edges[0] + edges[-1]) / 2
        floats = np.array([float(x - rational(centre)) for x in edges])
        m0, m1, m2 = self.prior.standardised(centre, 1.0).continuous_moments(floats).T
        about = np.stack([m0, m1 - floats[:-1] * m0, m2 - 2 * floats[:-1] * m1 + floats[:-1] ** 2 * m0])
        return [(rational(a), rational(b), rational(c)) for a, b, c in about.T.tolist()]


@serializable("prior-moments")
class PriorMoments:
    """Moments of a prior that is not rational, stored as a certificate used them.

    Parameters
    ----------
    cells : tuple of int
        Lower and upper bound of ∫ dF, ∫ t dF and ∫ t² dF in units of 2⁻¹⁶⁰, six numbers for each cell between the law's
        knots and outputs.
    spans : tuple of int
        The same for each interval of inputs in the multipliers of the lower bound, in order.
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
        """Return the largest difference of two bounds, as a mass; infinite if the cells differ."""
        worst = 0
        for mine, its in zip(*((held.cells, held.spans, held.masses) for held in (self, other))):
            if len(mine) != len(its):
                return math.inf
            worst = max([worst, *(abs(a - b) for a, b in zip(mine, its))])
        return worst / (1 << BITS)


def _cells(flat: tuple[int, ...]) -> list[Cell]:
    return [
        ((row[0], row[1]), (row[2], row[3]), (row[4], row[5])) for row in zip(*(flat[k::6] for k in range(6)))
    ]


def rational(x: Number | float) -> Any:
    """Return the exact value of a finite number; infinities unchanged."""
    if isinstance(x, fmpq) or (isinstance(x, float) and math.isinf(x)):
        return x
    return fmpq(*x.as_integer_ratio())


def _power_sums(points: Array, counts: Indices) -> tuple[fmpq, fmpq, fmpq]:
    """Return Σn, Σnx and Σnx² exactly, in integers for each exponent of the doubles x."""
    mantissas, exponents = np.frexp(points)
    whole, mean, square = np.ldexp(mantissas, 53).astype(np.int64), fmpq(0), fmpq(0)
    for exponent in np.unique(exponents).tolist():
        at = exponents == exponent
        held, unit = whole[at].tolist(), rational(Fraction(2) ** (exponent - 53))
        weighted = list(map(mul, held, counts[at].tolist()))
        mean += unit * sum(weighted)
        square += unit * unit * sum(map(mul, held, weighted))
    return fmpq(int(counts.sum())), mean, square


def _fixed(value: Ball | Fraction) -> Enclosure:
    scaled = value * (1 << BITS)
    low: Any = scaled.lower().floor().unique_fmpz() if isinstance(scaled, arb) else math.floor(scaled)
    high: Any = scaled.upper().ceil().unique_fmpz() if isinstance(scaled, arb) else math.ceil(scaled)
    return int(low) - _WIDENED, int(high) + _WIDENED


def _stepwise(law: FrozenLaw, edges: Sequence[Any]) -> list[Raw]:
    """Return moments under a density that is constant between the edges of a histogram, with masses proportional to its counts; uniform laws have one step."""
    if type(law.dist) is type(stats.uniform):
        ends, masses = [rational(float(v)) for v in law.support()], [fmpq(1)]
    else:
        _, _, loc, scale = frozen_parts(law)
        contents, cuts, density = histogram_parts(law)
        ends = [rational(loc) + rational(scale) * rational(x) for x in cuts]
        masses = [rational(n) * (b - a if density else 1) for n, a, b in zip(contents, ends, ends[1:])]
    total = sum(masses, fmpq(0))
    out: list[Raw] = []
    for a, b in zip(edges, edges[1:]):
        m = [fmpq(0)] * 3
        for mass, u, v in zip(masses, ends, ends[1:]):
            s, t = max(a, u), min(b, v)
            if mass and s < t:
                height = mass / total / (v - u)
                m = [n + height * ((t - a) ** k - (s - a) ** k) / k for k, n in enumerate(m, 1)]
        out.append((m[0], m[1], m[2]))
    return out


def _in_balls(primitive: Callable[..., list[Raw]]) -> _Primitive:
    """Return moments about cell starts, from a function that gives those of the standard law about zero."""

    def moments(law: object, edges: Sequence[object]) -> list[Raw]:
        _, shapes, loc, scale = frozen_parts(law)
        loc, scale = rational(loc), rational(scale)
        z = [(x - loc) / scale if isinstance(x, fmpq) else x for x in edges]
        out: list[Raw] = []
        for (m0, m1, m2), x in zip(primitive(z, *map(rational, shapes)), z):
            a = x if isinstance(x, fmpq) else fmpq(0)
            out.append((m0, (m1 - a * m0) * scale, (m2 - 2 * a * m1 + a * a * m0) * scale**2))
        return out

    return moments


def _normal(z: list[Any]) -> list[Raw]:
    finite = [isinstance(x, fmpq) for x in z]
    density = [(-arb(x * x) / 2).exp() / (2 * arb.pi()).sqrt() if f else arb(0) for x, f in zip(z, finite)]
    weighted = [x * d if f else arb(0) for x, d, f in zip(z, density, finite)]
    tail = [(arb(abs(x)) / arb(2).sqrt()).erfc() / 2 if f else arb(0) for x, f in zip(z, finite)]
    out: list[Raw] = []
    for k, (x, following) in enumerate(pairwise(z)):
        left, right = tail[k], tail[k + 1]
        mass = left - right if x >= 0 else right - left if following <= 0 else 1 - left - right
        out.append((mass, density[k] - density[k + 1], mass + weighted[k] - weighted[k + 1]))
    return out


def _truncated_normal(z: list[Any], a: fmpq, b: fmpq) -> list[Raw]:
    total = _normal([a, b])[0][0]
    cells = _normal([min(max(x, a), b) for x in z])
    return [(m0 / total, m1 / total, m2 / total) for m0, m1, m2 in cells]


def _beta(z: list[Any], a: fmpq, b: fmpq) -> list[Raw]:
    inner = [min(max(x, fmpq(0)), fmpq(1)) for x in z]
    complete = (arb(a).lgamma() + arb(b).lgamma() - arb(a + b).lgamma()).exp()
    first = [arb(x).beta_lower(arb(a), arb(b), regularized=True) for x in inner]
    second, third = [], []
    for x, f in zip(inner, first):  # I_x(a + 1, b) = I_x(a, b) − x^a (1 − x)^b / (a B(a, b))
        edge = arb(x) ** arb(a) * arb(1 - x) ** arb(b) / (a * complete) if 0 < x < 1 else arb(0)
        second.append(f - edge)
        third.append(f - edge - edge * x * (a + b) / (a + 1))
    one, two = a / (a + b), a * (a + 1) / ((a + b) * (a + b + 1))
    moments = zip(pairwise(first), pairwise(second), pairwise(third))
    return [(v - u, one * (y - x), two * (t - s)) for (u, v), (x, y), (s, t) in moments]


_RATIONAL = {type(stats.uniform): _stepwise, stats.rv_histogram: _stepwise}
_PRIMITIVES: dict[type, _Primitive] = {
    **_RATIONAL,
    type(stats.norm): _in_balls(_normal),
    type(stats.truncnorm): _in_balls(_truncated_normal),
    type(stats.beta): _in_balls(_beta),
}


def _primitive(law: FrozenLaw) -> _Primitive | None:
    """Return the function for moments of this law between proved bounds, None if there is none."""
    steep = type(law.dist) is type(stats.beta) and max(frozen_parts(law)[1]) > _STEEPEST
    return None if steep else _PRIMITIVES.get(type(law.dist))


_LOST = 32 * 2.0**-53
"""Rounding error of one coefficient, relative to the size of its terms; each sum adds one unit."""


@dataclass(frozen=True)
class PointMasses:
    """A law on finitely many inputs, with the interface of `Moments`.

    Parameters
    ----------
    places : array
    weights : tuple of Fraction
    """

    places: Array
    weights: tuple[Fraction, ...]

    @property
    def atoms(self) -> list[tuple[Fraction, Enclosure]]:
        """Each place with bounds of its mass."""
        scaled = [weight * (1 << BITS) for weight in self.weights]
        bounds = [(weight.__floor__(), weight.__ceil__()) for weight in scaled]
        return [(Fraction(x), mass) for x, mass in zip(self.places.tolist(), bounds, strict=True)]

    def density(self, edges: Any) -> list[Cell]:
        """Return zeros: the law has point masses only."""
        return [((0, 0),) * 3] * (len(edges) - 1)


def interpolated_costs(
    bins: Array, knots: Array, loss: Loss, prior: Prior, masses: PointMasses | None = None
) -> tuple[Array, float]:
    """Return lower bounds (c, c0) of the loss's coefficients in the interpolated rows, c of shape (knots, outputs).

    Parameters
    ----------
    bins, knots : array
    loss : Loss
    prior : Prior
    masses : PointMasses, optional
        Law of the inputs instead of the prior.
    """
    cells = np.union1d(knots, bins[(bins > knots[0]) & (bins < knots[-1])])
    if loss.function is None:
        return _from_below(bins, knots, loss, cells, Moments(prior) if masses is None else masses)
    if masses is not None:
        weights, x = np.array([float(w) for w in masses.weights]), masses.places
        return hats(knots, x).T @ (weights[:, None] * loss(bins - x[:, None])), 0.0

    first, last = end_costs(bins, cells, prior, loss)
    return hats(knots, cells[:-1]).T @ first + hats(knots, cells[1:]).T @ last, 0.0


def integrated(value: Callable[[float], Array], edges: Array, moments: Array) -> Array:
    """Integrate over each cell functions that are quadratics there.

    Parameters
    ----------
    value : callable
        Values at a share of every cell that is left of the input, shape (K,) or (K, n).
    edges : array, shape (K + 1,)
    moments : array, shape (K, 3)
        Partial moments of a law on the cells, of order 0–2.

    Examples
    --------
    >>> edges = np.array([0.0, 1.0, 3.0])
    >>> uniform = np.diff([edges, edges**2 / 2, edges**3 / 3]).T
    >>> integrated(lambda share: (edges[:-1] + share * np.diff(edges)) ** 2, edges, uniform).round(6)
    array([0.333333, 8.666667])
    >>> integrated(lambda share: np.array([9.0]), np.array([3.0, 3.0]), np.array([[0.5, 1.5, 4.5]]))  # no width, half of the mass
    array([4.5])
    """
    return np.asarray(sum(_weighted(value, edges, moments)))


def _weighted(value: Callable[[float], Array], edges: Array, moments: Array) -> Iterator[Array]:
    """Yield values at the starts, the middles and the ends of cells, weighted such that they sum to integrals."""
    (m0, m1, m2), left, width = moments.T, edges[:-1], np.diff(edges)
    # 0 ≤ E t² ≤ E t ≤ E 1, also where a cell is so narrow that rounding says otherwise, or leaves it no width
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        t1 = np.clip(np.nan_to_num((m1 - left * m0) / width), 0.0, m0)
        t2 = np.clip(np.nan_to_num((m2 - 2 * left * m1 + left * left * m0) / width**2), 0.0, t1)
    for share, weight in ((0.0, m0 - 3 * t1 + 2 * t2), (0.5, 4 * (t1 - t2)), (1.0, 2 * t2 - t1)):
        yield (value(share).T * weight).T


def end_costs(bins: Array, edges: Array, prior: Prior, loss: Loss) -> tuple[Array, Array]:
    """Return (c, d), each (K, m), with E ℓ(M(X) − X) = Σ c · starts + d · ends for rows that are affine on each of K cells, which have no bin inside."""
    left, width = edges[:-1], np.diff(edges)
    if loss.polynomial:
        start, middle, end = _weighted(
            lambda share: loss(bins - (left + share * width)[:, None]), edges, prior.moments(edges)
        )
        return start + middle / 2, middle / 2 + end

    def integrand(x: Array) -> Array:
        at = _segments(edges, x)
        costs, share = loss(bins - x[:, None]), ((x - left[at]) / width[at])[:, None]
        return np.concatenate([(1 - share) * costs, share * costs], axis=1)

    both = prior.integrals(integrand, edges)
    return both[:, : len(bins)], both[:, len(bins) :]


def _segments(knots: Array, x: Array) -> Indices:
    """Return the segment between knots that contains each input."""
    return np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)


def hats(knots: Array, x: Array) -> Array:
    """Return the weights of the knots in the interpolated rows at x, shape (len(x), len(knots))."""
    at, rows, out = _segments(knots, x), np.arange(len(x)), np.zeros((len(x), len(knots)))
    t = (x - knots[at]) / (knots[at + 1] - knots[at])
    out[rows, at], out[rows, at + 1] = 1 - t, t
    return out


def _bounds(cells: list[Cell]) -> tuple[Array, Array]:
    """Return masses and moments in doubles rounded down and up, each of shape (cells, 3, 1)."""
    held = np.array([[[float(n) for n in pair] for pair in cell] for cell in cells]).reshape(-1, 3, 2)
    held = np.nextafter(np.maximum(np.ldexp(held, -BITS), 0.0), [-np.inf, np.inf])
    return np.maximum(held[..., :1], 0.0), held[..., 1:]


def _from_below(
    bins: Array, knots: Array, loss: Loss, cells: Array, moments: Moments | PointMasses
) -> tuple[Array, float]:
    """Return lower bounds of the coefficients of a polynomial loss; a point mass is a cell of width 0."""
    points = moments.atoms
    places = np.array([float(x) for x, _ in points])
    start, stop = np.append(cells[:-1], places), np.append(cells[1:], places)
    low, high = _bounds([*moments.density(cells.tolist()), *((mass, (0, 0), (0, 0)) for _, mass in points)])
    k, centre = _segments(knots, (start + stop) / 2), knots[0] / 2 + knots[-1] / 2
    b, u, width = bins - centre, (start - centre)[:, None], (stop - start)[:, None]
    sign = np.where(bins >= stop[:, None], 1.0, -1.0)  # of output minus input on the cell
    first, second = loss.absolute, loss.squared
    # t from 0 to 1 on a cell: its loss is value + rise t, and hat functions are level + slope t
    value, value_size = first * sign * (b - u) + second * (b * b - 2 * b * u), first * (abs(b) + abs(u))
    value_size = value_size + second * (b * b + 2 * abs(b * u))
    rise, rise_size = -width * (first * sign + 2 * second * b), width * (first + 2 * second * abs(b))
    length, costs = (knots[k + 1] - knots[k])[:, None], np.zeros((len(knots), len(bins)))
    share = _LOST + len(k) * 2.0**-53
    for side, level in ((0, knots[k + 1] - start), (1, start - knots[k])):
        level, slope = level[:, None] / length, (2 * side - 1) * width / length
        parts = np.stack([level * value, level * rise + slope * value, slope * rise], axis=1)
        size = np.stack(
            [level * value_size, level * rise_size + abs(slope) * value_size, abs(slope) * rise_size], axis=1
        )
        found = (parts * np.where(parts > 0, low, high) - share * size * high).sum(axis=1)
        np.add.at(costs, k + side, found)
    squares = second * np.concatenate([u * u, 2 * u * width, width * width], axis=1)[..., None]
    constant = (squares * np.where(squares > 0, low, high) - share * abs(squares) * high).sum()
    return costs, float(constant)

r"""Block fill: the exact optimum for given floors, whatever the convex loss.

A mechanism with outputs :math:`B_1 < \dots < B_m` is ε-LDP iff there are *floors* :math:`a \ge 0` with
:math:`a_i \le p(x, i) \le \rho a_i`, :math:`\rho = e^\varepsilon`. Write
:math:`p(x, i) = a_i + (\rho - 1) a_i\, y_i(x)` with :math:`y_i \in [0, 1]`. Lay the weights
:math:`w_i = (\rho - 1) a_i` side by side on a line, cell i being :math:`[S_{i}, S_{i+1})`. For every convex
loss and every x, an optimal :math:`p(x, \cdot)` fills one *contiguous block* :math:`[s, s + W]` of that line,
:math:`W = 1 - \sum_i a_i`: a convex function minus its chord is negative only between the chord's ends. The
position s is what makes the mean equal x,

.. math:: m(s) = \sum_i a_i B_i + \int_s^{s+W} B(t)\,dt = x,

and m is increasing and piecewise linear, with kinks where an end of the block meets a cell boundary. So the
best mechanism with floors a is piecewise affine in x with at most 2m knots, all in closed form, and it does
not depend on the loss or on the prior. (Ours: it is the closed form behind the lower bound of the exact LP.)

The means that floors a can reach, all x in [lo, hi], are linear constraints on a:

.. math:: B_j + \sum_k a_k \bigl(\rho (B_k - B_j)^+ - (B_j - B_k)^+\bigr) \ge hi \quad (j = 1..m),

the mirror image for lo, and :math:`1/\rho \le \sum_k a_k \le 1` (`range_constraints`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from mechdesign.errors import InfeasibleError

__all__ = [
    "BlockFill",
    "ExactFill",
    "block_fill",
    "exact_block_fill",
    "interior_floors",
    "range_constraints",
    "smallest_epsilon",
]

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class BlockFill:
    """The block positions at which the fill changes structure, over the whole reachable range of means.

    Attributes
    ----------
    bins, floors : ndarray (m,)
    rho : float
    starts : ndarray (K + 1,)
        Block starts s at the knots, increasing.
    means : ndarray (K + 1,)
        The mean m(s) there: the knots in x, non-decreasing.
    left, right : ndarray (K,)
        Fractional bins i ≤ j at the two ends of the block on each segment (0-based).
    """

    bins: Array
    floors: Array
    rho: float
    starts: Array
    means: Array
    left: Index
    right: Index

    def rows(self, x: Array, segment: Index) -> Array:
        """Probabilities at inputs `x`, each inside the given segment; shape (len(x), m).

        The two fractional entries are solved from Σp = 1 and ΣBp = x, so rows are unbiased to rounding.
        """
        bins, a = self.bins, self.floors
        i, j = self.left[segment], self.right[segment]
        k = np.arange(len(bins))
        inside = (k > i[:, None]) & (k < j[:, None])
        p = np.where(inside, self.rho * a, a)
        here = np.arange(len(x))
        p[here, i] = 0.0
        p[here, j] = 0.0
        mass = 1.0 - p.sum(axis=1)
        mean = x - p @ bins
        same = i == j
        width = np.where(same, 1.0, bins[j] - bins[i])
        upper = (mean - mass * bins[i]) / width
        p[here, i] = mass - upper
        p[here, j] = np.where(same, mass, upper)
        # Rounding may leave a fractional entry a few ulps outside its box.
        p[here, i] = np.clip(p[here, i], a[i], np.maximum(self.rho * a[i], a[i]))
        p[here, j] = np.clip(p[here, j], a[j], np.maximum(self.rho * a[j], a[j]))
        return p


def block_fill(bins: Array, floors: Array, rho: float) -> BlockFill:
    r"""Fill for all reachable means at once.

    Parameters
    ----------
    bins : ndarray (m,), strictly increasing
    floors : ndarray (m,), non-negative, with :math:`1/\rho \le \sum a \le 1`
    rho : float
        :math:`e^\varepsilon`.

    Examples
    --------
    >>> fill = block_fill(np.array([-2.0, 0.0, 2.0]), np.array([0.2, 0.2, 0.2]), 3.0)
    >>> fill.means.round(3)
    array([-0.8,  0. ,  0.8])
    """
    a = np.asarray(floors, dtype=float)
    w = (rho - 1.0) * a
    m = len(a)
    S = np.concatenate([[0.0], np.cumsum(w)])
    W = 1.0 - a.sum()
    last = max(S[m] - W, 0.0)
    inner = S[1:m]
    # A left event moves the block's start into the next cell, a right event its end.
    events = np.concatenate([inner, inner - W])
    order = np.argsort(events, kind="stable")
    events = events[order]
    is_left = order < m - 1
    i = np.concatenate([[0], np.cumsum(is_left)])
    j = np.concatenate([[0], np.cumsum(~is_left)])
    first = int(np.searchsorted(events, 0.0, side="right"))
    stop = max(int(np.searchsorted(events, last, side="left")), first)
    s = np.concatenate([[0.0], events[first:stop], [last]])
    i, j = i[first : stop + 1], np.maximum(j[first : stop + 1], i[first : stop + 1])
    # Φ(t) = ∫_0^t B, evaluated with the cell known rather than searched for.
    phi = np.concatenate([[0.0], np.cumsum(w * bins)])
    i_at, j_at = np.append(i, i[-1]), np.append(j, j[-1])
    means = a @ bins + (phi[j_at] + (s + W - S[j_at]) * bins[j_at]) - (phi[i_at] + (s - S[i_at]) * bins[i_at])
    return BlockFill(bins, a, rho, s, np.maximum.accumulate(means), i, j)


def range_constraints(bins: Array, rho: float, lower: float, upper: float) -> tuple[Array, Array]:
    """Return (C, b): floors a ≥ 0 can reach every mean in [lower, upper] iff C a ≥ b.

    The first two rows are 1/ρ ≤ Σa ≤ 1, then m rows for `upper`, then m rows for `lower`.
    """
    m = len(bins)
    gap = bins[None, :] - bins[:, None]  # [j, k] = B_k − B_j
    high = rho * np.maximum(gap, 0.0) - np.maximum(-gap, 0.0)
    low = rho * np.maximum(-gap, 0.0) - np.maximum(gap, 0.0)
    C = np.concatenate([-np.ones((1, m)), np.full((1, m), rho), high, low])
    b = np.concatenate([[-1.0, 1.0], upper - bins, bins - lower])
    return C, b


def smallest_epsilon(bins: Array, lower: float, upper: float) -> float:
    r"""Smallest ε at which some ε-LDP mechanism with these outputs is unbiased on [lower, upper].

    Splitting every output between the two extreme ones, keeping means, is post-processing; so two
    outputs decide: :math:`\varepsilon = \log\max\{(B_m - lo)/(B_m - hi), (hi - B_1)/(lo - B_1)\}`.
    Infinite when an extreme output only just reaches an end of the range.

    Examples
    --------
    >>> import math
    >>> A = (math.e + 1) / (math.e - 1)
    >>> round(smallest_epsilon(np.array([-A, A]), -1.0, 1.0), 12)
    1.0
    """
    first, last = float(bins[0]), float(bins[-1])
    if first > lower or last < upper:
        return math.inf
    if first == lower or last == upper:
        return math.inf
    return math.log(max((last - lower) / (last - upper), (upper - first) / (lower - first)))


def interior_floors(bins: Array, rho: float, lower: float, upper: float) -> Array:
    """Return floors that keep all constraints of `range_constraints` strict, as far from them as cheaply found.

    Extremal two-output floors reach the widest range; mixing in uniform floors makes every entry positive.
    """
    m = len(bins)
    first, last = bins[0], bins[-1]
    # Of two outputs: P(B_1 | lo) = u, P(B_1 | hi) = v; floors between v and u/ρ keep every mean reachable.
    u, v = (last - lower) / (last - first), (last - upper) / (last - first)
    ends = np.array([math.sqrt(max(u * v / rho, 0.0)), math.sqrt((1 - u) * (1 - v) / rho)])
    ends = np.clip(ends, [u / rho, (1 - v) / rho], [v, 1 - u])
    two = np.zeros(m)
    two[0], two[-1] = ends
    C, b = range_constraints(bins, rho, lower, upper)
    best, best_slack = two, -math.inf
    flat = np.full(m, ends.sum() / m)
    for share in (0.9, 0.5, 0.2, 0.05, 0.01, 1e-3, 1e-4, 1e-6):
        a = (1 - share) * two + share * flat
        slack = float((C @ a - b).min()) if m > 2 else math.inf
        slack = min(slack, float(a.min()))
        if slack > best_slack:
            best, best_slack = a, slack
    return best


@dataclass(frozen=True, eq=False)
class ExactFill:
    """A block fill in rationals: what certificates are made of.

    Attributes
    ----------
    bins, floors : tuple of Fraction
    rho : Fraction
    knots : tuple of Fraction
        x_0 = lower < … < x_K = upper; p is affine between neighbours.
    left, right : tuple of tuple of Fraction
        (K, m): limits of p at the start and at the end of each segment. p is continuous, so
        ``right[k] == left[k + 1]``.
    """

    bins: tuple[Fraction, ...]
    floors: tuple[Fraction, ...]
    rho: Fraction
    knots: tuple[Fraction, ...]
    left: tuple[tuple[Fraction, ...], ...]
    right: tuple[tuple[Fraction, ...], ...]


def exact_block_fill(
    bins: list[Fraction],
    floors: list[Fraction],
    rho: Fraction,
    lower: Fraction,
    upper: Fraction,
) -> ExactFill:
    r"""Block fill in exact arithmetic: rows with a_i ≤ p_i ≤ ρ a_i, Σp = 1, ΣBp = x, nothing rounded.

    Parameters
    ----------
    bins, floors : sequences of Fraction
        Doubles are rationals: pass ``Fraction(b)``.
    rho : Fraction
        A proved rational lower bound of :math:`e^\varepsilon`.
    lower, upper : Fraction
        The input range.

    Raises
    ------
    InfeasibleError
        The floors do not reach every mean of the range exactly (mix in `interior_floors` first).

    Examples
    --------
    >>> F = Fraction
    >>> fill = exact_block_fill([F(-2), F(0), F(2)], [F(1, 5)] * 3, F(3), F(-1, 2), F(1, 2))
    >>> [str(p) for p in fill.left[0]]
    ['11/20', '1/4', '1/5']
    """
    m = len(bins)
    a = [Fraction(v) for v in floors]
    B = [Fraction(v) for v in bins]
    w = [(rho - 1) * v for v in a]
    total = sum(a, Fraction(0))
    W = 1 - total
    S = [Fraction(0)]
    phi = [Fraction(0)]
    for weight, b in zip(w, B):
        S.append(S[-1] + weight)
        phi.append(phi[-1] + weight * b)
    base = sum((v * b for v, b in zip(a, B)), Fraction(0))
    if W < 0 or S[m] < W:
        raise InfeasibleError("the floors cannot be completed to probabilities: need 1/rho <= sum(a) <= 1")

    last = S[m] - W
    events = [(S[k], 0) for k in range(1, m)] + [(S[k] - W, 1) for k in range(1, m)]
    events.sort()
    i = j = 0
    starts: list[Fraction] = [Fraction(0)]
    cells: list[tuple[int, int]] = []
    for position, kind in events:
        if position >= last:
            break
        if position > 0:
            starts.append(position)
            cells.append((i, j))
        i, j = (i + 1, j) if kind == 0 else (i, j + 1)
    starts.append(last)
    cells.append((i, j))

    caps = [v + weight for v, weight in zip(a, w)]

    def row(s: Fraction, i: int, j: int) -> tuple[Fraction, ...]:
        # Slices share their Fractions: 2m rows of m entries stay small.
        if i == j:
            return tuple(a[:i] + [a[i] + W] + a[i + 1 :])
        return tuple(a[:i] + [a[i] + S[i + 1] - s] + caps[i + 1 : j] + [a[j] + s + W - S[j]] + a[j + 1 :])

    def mean(s: Fraction, i: int, j: int) -> Fraction:
        return base + phi[j] + (s + W - S[j]) * B[j] - phi[i] - (s - S[i]) * B[i]

    knots: list[Fraction] = []
    left: list[tuple[Fraction, ...]] = []
    right: list[tuple[Fraction, ...]] = []
    reach: list[Fraction] = []
    for s0, s1, (i, j) in zip(starts[:-1], starts[1:], cells):
        x0, x1 = mean(s0, i, j), mean(s1, i, j)
        reach += [x0, x1]
        if x1 <= lower or x0 >= upper or x1 == x0:
            continue
        slope = (s1 - s0) / (x1 - x0)
        c0, c1 = max(x0, lower), min(x1, upper)
        left.append(row(s0 + (c0 - x0) * slope, i, j))
        right.append(row(s0 + (c1 - x0) * slope, i, j))
        knots += [c0] if not knots else []
        knots.append(c1)
    if not knots or knots[0] != lower or knots[-1] != upper:
        raise InfeasibleError(
            f"the floors reach the means [{float(min(reach)):.17g}, {float(max(reach)):.17g}], "
            f"not all of [{float(lower):.17g}, {float(upper):.17g}]"
        )
    return ExactFill(tuple(B), tuple(a), rho, tuple(knots), tuple(left), tuple(right))

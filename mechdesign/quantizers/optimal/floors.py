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

from mechdesign.errors import InfeasibleError
from mechdesign.evidence.exact import exp_lower
from mechdesign.quantizers.mechanism.exact_law import BlockFillLaw
from mechdesign.typing import Array, Indices

__all__ = [
    "LARGEST_EPSILON",
    "BlockFill",
    "block_fill",
    "exact_block_fill",
    "interior_floors",
    "range_constraints",
    "rational_ratio",
    "smallest_epsilon",
    "solved_epsilon",
]

LARGEST_EPSILON = 23.0
"""Beyond it e^ε has no digits left in which floors could differ: designs are solved there, or next to the least feasible ε."""


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
    left: Indices
    right: Indices

    def rows(self, x: Array, segment: Indices) -> Array:
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
    >>> np.unique(fill.means.round(3)) + 0.0
    array([-0.8,  0. ,  0.8])
    """
    a = np.asarray(floors, dtype=float)
    w = (rho - 1.0) * a
    m = len(a)
    S = np.concatenate([[0.0], np.cumsum(w)])
    W = 1.0 - a.sum()
    last = max(S[m] - W, 0.0)
    inner = S[1:m]
    # A right event moves the block's end into the next cell, a left event its start; the end goes first on ties.
    events = np.concatenate([inner - W, inner])
    order = np.argsort(events, kind="stable")
    events = events[order]
    is_left = order >= m - 1
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
    Infinite when an extreme output only just reaches an end of the range; 0 when one mean serves for all inputs
    (a bias budget can make ``lower`` at least ``upper``).

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
    if lower >= upper:
        return 0.0
    if first == lower or last == upper:
        return math.inf
    return math.log(max((last - lower) / (last - upper), (upper - first) / (lower - first)))


def solved_epsilon(epsilon: float, least: float, resolved: float = LARGEST_EPSILON) -> float:
    """Return the ε at which a design is solved for budget ε, the least feasible one being `least`: what doubles resolve."""
    return min(epsilon, max(resolved, least + 2.0))


def interior_floors(bins: Array, rho: float, lower: float, upper: float) -> Array:
    """Return floors that keep all constraints of `range_constraints` strict, as far from them as cheaply found.

    Extremal two-output floors reach the widest range; mixing in uniform floors makes every entry positive.
    """
    m = len(bins)
    first, last = bins[0], bins[-1]
    if lower > upper:
        lower = upper = min(max((lower + upper) / 2, first), last)
    # Of two outputs: P(B_1 | lo) = u, P(B_1 | hi) = v; floors between v and u/ρ keep every mean reachable.
    u, v = (last - lower) / (last - first), (last - upper) / (last - first)
    ends = np.array([math.sqrt(max(u * v / rho, 0.0)), math.sqrt((1 - u) * (1 - v) / rho)])
    ends = np.clip(ends, [u / rho, (1 - v) / rho], [v, 1 - u])
    two = np.zeros(m)
    two[0], two[-1] = ends
    if m == 2:
        return two
    C, b = range_constraints(bins, rho, lower, upper)
    best, best_slack = two, -math.inf
    flat = np.full(m, ends.sum() / m)
    outer, inner = C @ two - b, C @ flat - b
    for share in (0.9, 0.5, 0.2, 0.05, 0.01, 1e-3, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12):
        a = (1 - share) * two + share * flat
        slack = min(float(((1 - share) * outer + share * inner).min()), float(a.min()))
        if slack > best_slack:
            best, best_slack = a, slack
    # Next to the edge of what is feasible nothing can be mixed in.
    return best if best_slack > 0 else two


def rational_ratio(epsilon: float) -> Fraction:
    """Return a proved lower bound of e^ε with 64 fractional bits: what exact laws are made for."""
    unit = 1 << 64
    return Fraction(int(exp_lower(float(epsilon)) * unit), unit)


def exact_block_fill(
    bins: Array, floors: Array, epsilon: float, lower: float | Fraction, upper: float | Fraction
) -> BlockFillLaw:
    r"""Block fill in exact arithmetic of floors close to the given ones: what certificates are made of.

    Floors are rounded to multiples of 2⁻⁶⁴ and ρ to a rational of 64 fractional bits below :math:`e^\varepsilon`.
    Where rounding has put the floors outside the polytope of `range_constraints`, as little of
    `interior_floors` as will do is mixed in.

    Parameters
    ----------
    bins, floors : ndarray (m,)
    epsilon : float
    lower, upper : float or Fraction
        The input range, taken exactly.

    Raises
    ------
    InfeasibleError
        At this ε and with these outputs no rational mechanism was found (ε is the smallest feasible one to
        within rounding).

    Examples
    --------
    >>> law = exact_block_fill(np.array([-2.0, 0.0, 2.0]), np.full(3, 0.2), 1.1, -0.5, 0.5)
    >>> [str(x) for x in law.knots]
    ['-1/2', '0', '1/2']
    """
    unit = 1 << 64
    rho = rational_ratio(epsilon)
    exact_bins = tuple(Fraction(float(b)) for b in bins)
    ends = Fraction(lower), Fraction(upper)
    target = np.maximum(np.asarray(floors, dtype=float), 0.0)
    inside: Array | None = None
    failure: InfeasibleError | None = None
    for share in (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-6, 1e-4, 1.0):
        if share and inside is None:
            inside = interior_floors(np.asarray(bins, dtype=float), float(rho), float(lower), float(upper))
        mixed = target if inside is None else (1 - share) * target + share * inside
        try:
            return BlockFillLaw(
                exact_bins, tuple(Fraction(round(v * unit), unit) for v in mixed.tolist()), rho, *ends
            )
        except InfeasibleError as error:
            failure = error
    assert failure is not None
    raise InfeasibleError(
        f"no exactly unbiased rational mechanism at epsilon = {epsilon!r} with these outputs: {failure.reason}",
        smallest_epsilon=smallest_epsilon(np.asarray(bins, dtype=float), float(lower), float(upper)),
    )

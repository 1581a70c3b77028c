r"""Block fill: the exact optimum for given floors and any convex loss.

A mechanism with outputs :math:`B_1 < \dots < B_m` is ε-LDP iff there are *floors* :math:`a \ge 0` with
:math:`a_i \le p(x, i) \le \rho a_i`, :math:`\rho = e^\varepsilon`. Write
:math:`p(x, i) = a_i + (\rho - 1) a_i\, y_i(x)` with :math:`y_i \in [0, 1]`. Lay the weights
:math:`w_i = (\rho - 1) a_i` side by side on a line, cell i being :math:`[S_{i}, S_{i+1})`. For every convex
loss and every x, an optimal :math:`p(x, \cdot)` fills one *contiguous block* :math:`[s, s + W]` of that line,
:math:`W = 1 - \sum_i a_i`: a convex function minus its chord is negative only between the chord's ends. The
position s makes the mean equal x,

.. math:: m(s) = \sum_i a_i B_i + \int_s^{s+W} B(t)\,dt = x,

m increases, with kinks where an end of the block meets a cell's boundary, so the best mechanism with floors a is
piecewise affine in x with at most 2m knots.

The means that floors a can reach, all x in [lo, hi], are linear constraints on a:

.. math:: B_j + \sum_k a_k \bigl(\rho (B_k - B_j)^+ - (B_j - B_k)^+\bigr) \ge hi \quad (j = 1..m),

the mirror image for lo, and :math:`1/\rho \le \sum_k a_k \le 1` (`range_constraints`).

**The loss as a function of the floors.** For one input x the dual of the block fill is the chord :math:`\lambda + \mu B` of
:math:`B \mapsto \ell(B - x)` through the two fractional outputs i < j. With the reduced costs
:math:`c_k(x) = \ell(B_k - x) - \lambda - \mu B_k` and :math:`h(c) = \min(c, \rho c)`,

.. math:: V(x; a) = \lambda + \mu x + \sum_k a_k h(c_k(x)),

and for *any* λ, μ the right side is a lower bound on the loss at x of every mechanism with floors a. Integrating
against the prior,

- :math:`F(a) = \int V\,dF` is convex with gradient :math:`G_k = \int h(c_k(x))\,dF`;
- if the prior has a density f, F is C¹ and its Hessian is a sum of rank-one terms, one per knot x_s:
  :math:`f(x_s)\,(\mu^+_s - \mu^-_s)\, d_s d_s^\top`, with :math:`d_s = \partial x_s/\partial a`;
- over **all** mechanisms with these outputs,
  :math:`\text{loss} \ge \int (\lambda + \mu x)\,dF + \min_{a \in A} \sum_k a_k G_k`,
  for duals from any floors, A the polytope of `range_constraints`.

For losses :math:`w_1|t| + w_2 t^2` only partial moments of order 0–2 enter, summed by prefix sums in O(m);
other convex losses are integrated by adaptive quadrature to 1e-12.

**With a bias budget** :math:`|\sum_i B_i p(x, i) - x| \le b` the inner dual becomes
:math:`\lambda + \mu x - b|\mu| + \sum_k a_k h(c_k)` and the block's position

.. math:: s(x) = \mathrm{clamp}\bigl(s_0(x),\; m^{-1}(x - b),\; m^{-1}(x + b)\bigr),

with :math:`s_0(x)` the best position without a constraint on the mean (μ = 0), at which the two ends of the block
cost the same. The mechanism is still piecewise affine, now with jumps.

**Every method returns** a `FloorSolution`: floors, and slopes that prove a lower bound, `chords` on intervals of inputs and `lines` at single ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.dual_pieces import DualPieces
from mechdesign.quantizers.moments import integrated
from mechdesign.quantizers.table import PiecewiseTable, cell_edges, mirrored_bins
from mechdesign.typing import Array, Indices


@dataclass(frozen=True, eq=False)
class BlockFill:
    """The block positions at which the fill changes structure, over the whole reachable range of means.

    Attributes
    ----------
    bins, floors : ndarray (m,)
    rho : float
    starts, means : ndarray (K + 1,)
        Block starts s, increasing, and the means m(s) there: the knots in x.
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
        """Return the probabilities at inputs `x`, each inside the given segment; shape (len(x), m).

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
    r"""Return the block fill for all reachable means at once.

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


def interior_floors(bins: Array, rho: float, lower: float, upper: float) -> Array:
    """Return floors strictly inside all `range_constraints`, with the largest slack of a few candidates.

    Extreme two-output floors reach the widest range; mixing in uniform floors makes every entry positive.
    """
    m = len(bins)
    first, last = bins[0], bins[-1]
    if lower > upper:
        lower = upper = min(max((lower + upper) / 2, first), last)
    # With two outputs P(B_1 | lo) = u, P(B_1 | hi) = v; floors between v and u/ρ keep every mean reachable.
    u, v = (last - lower) / (last - first), (last - upper) / (last - first)
    ends = np.array([math.sqrt(max(u * v / rho, 0.0)), math.sqrt((1 - u) * (1 - v) / rho)])
    ends = np.clip(ends, [u / rho, (1 - v) / rho], [v, 1 - u])
    two = np.zeros(m)
    two[0], two[-1] = ends
    if m == 2:
        return two
    C, b = range_constraints(bins, rho, lower, upper)
    flat = np.full(m, ends.sum() / m)
    shares = np.array([[0.9, 0.5, 0.2, 0.05, 0.01, 1e-3, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12]]).T
    floors = (1 - shares) * two + shares * flat
    rows = (1 - shares) * (C @ two - b) + shares * (C @ flat - b)
    slack = np.minimum(rows.min(axis=1), floors.min(axis=1))
    # Near the edge of feasibility nothing can be mixed in.
    return floors[slack.argmax()] if slack.max() > 0 else two


@dataclass(frozen=True, eq=False)
class Continuum:
    """Contribution of the prior's density to F at given floors.

    Attributes
    ----------
    constant : float
        ∫ (λ + μx) dF.
    gradient : ndarray (m,)
        ∫ h(c_k) dF; the value is ``constant + floors @ gradient``.
    directions, weights : ndarray (K, m) and (K,)
        The Hessian is ``directions.T @ diag(weights) @ directions``.
    """

    constant: float
    gradient: Array
    directions: Array
    weights: Array


@dataclass(frozen=True, eq=False)
class FloorProblem:
    """Minimise F(a) over the floors: the input of the methods.

    Parameters
    ----------
    bins : ndarray (m,)
    rho : float
    lower, upper : float
        The input range.
    prior : Prior
    loss : Loss
    bias : float
        Largest bias: means up to ``bias`` inside the range's ends must be reached.
    objective : {"mean", "worst"}
        Expected loss, or the largest over all inputs.
    max_mse : float, optional
        Cap on the expected squared error.
    """

    bins: Array
    rho: float
    lower: float
    upper: float
    prior: Prior
    loss: Loss
    bias: float = 0.0
    objective: str = "mean"
    max_mse: float | None = None

    @classmethod
    def of(
        cls, outputs: Array, epsilon: float, prior: Prior, loss: Loss, input_range: tuple[float, float],
        units: tuple[float, float], bias: float = 0.0, objective: str = "mean", max_mse: float | None = None,
    ) -> FloorProblem:  # fmt: skip
        """State the problem of mechanisms with these outputs, measured from a centre in a unit."""
        centre, unit = units
        lower, upper = ((v - centre) / unit for v in input_range)
        bins, cap = mirrored_bins((outputs - centre) / unit), None if max_mse is None else max_mse / unit**2
        law, costs = prior.standardised(centre, unit), loss.in_units(unit)
        return cls(bins, math.exp(epsilon), lower, upper, law, costs, bias / unit, objective, cap)

    @cached_property
    def scale(self) -> float:
        """Largest possible loss."""
        return float(self.largest.max())

    @cached_property
    def largest(self) -> Array:
        """Largest loss of every output: a convex function is largest at an extreme error."""
        ends = np.array([[self.upper], [self.lower]])
        return np.asarray(np.abs(self.loss(self.bins - ends)).max(axis=0))

    @property
    def accuracy(self) -> float:
        """Error of an integral relative to the size of its terms: rounding, or quadrature."""
        exact = self.prior.closed_form and self.loss.polynomial
        return 64 * np.finfo(float).eps if exact else 1e-10

    @property
    def reach(self) -> tuple[float, float]:
        """The means that the mechanism must reach: one at most the first, and one at least the second."""
        return self.lower + self.bias, self.upper - self.bias

    @cached_property
    def constraints(self) -> tuple[Array, Array]:
        """The polytope A: C a ≥ b (and a ≥ 0)."""
        return range_constraints(self.bins, self.rho, *self.reach)

    @cached_property
    def centre(self) -> Array:
        """Floors in the interior of the polytope."""
        return interior_floors(self.bins, self.rho, *self.reach)

    @cached_property
    def atoms(self) -> tuple[Array, Array]:
        """Point masses and their weights, without negligible ones: omitting a cost only lowers a bound."""
        points, weights = self.prior.atoms
        keep = weights > 1e-13
        return points[keep], weights[keep]

    @cached_property
    def has_density(self) -> bool:
        """Whether the prior has a continuous part."""
        return float(self.prior.continuous_moments(np.array([self.lower, self.upper]))[0, 0]) > 0

    def inside(self, floors: Array) -> Array:
        """Move floors outside the polytope by a solver's tolerance back into it, towards its interior."""
        C, b = self.constraints
        miss = C @ floors - b
        if miss.min() >= 0:
            return floors
        room = C @ self.centre - b
        bad = miss < 0
        if room[bad].min() <= 0:
            return floors
        share = min(1.0, 1.01 * float((-miss[bad] / (room[bad] - miss[bad])).max()))
        return (1 - share) * floors + share * self.centre

    def slopes(self, x: Array, i: Indices, j: Indices) -> tuple[Array, Array]:
        """Return the duals (λ, μ) at inputs x: the chord of ℓ(B − x) through the outputs i ≤ j."""
        low, high = self.bins[i], self.bins[j]
        cost_low, cost_high = self.loss(low - x), self.loss(high - x)
        mu = np.where(i == j, 0.0, (cost_high - cost_low) / np.where(i == j, 1.0, high - low))
        return cost_low - mu * low, mu

    def reduced(self, x: Array, lam: Array, mu: Array) -> Array:
        """Return h(c_k) at inputs x under the duals; shape (len(x), m)."""
        c = self.loss(self.bins - x[:, None]) - lam[:, None] - mu[:, None] * self.bins
        return np.minimum(c, self.rho * c)

    def continuum(self, floors: Array) -> Continuum:
        """Return constant, gradient and Hessian factors of the density's part of F."""
        if not self.has_density:
            return Continuum(0.0, np.zeros(m := len(self.bins)), np.zeros((0, m)), np.zeros(0))
        table = pieces(self, floors)
        constants, gradients = table.planes(self, np.array([self.lower, self.upper]))
        return Continuum(float(constants[0]), gradients[0], *self._hessian(table.fill))

    def _hessian(self, fill: BlockFill) -> tuple[Array, Array]:
        bins, m = self.bins, len(self.bins)
        # Knots strictly inside the input range, and the outputs (i, j) of the segments between them.
        first = int(np.clip(np.searchsorted(fill.means, self.lower, side="right"), 1, len(fill.left)))
        stop = int(np.searchsorted(fill.means, self.upper, side="left"))
        stop = max(min(stop, len(fill.left)), first)
        knots, i, j = fill.means[first:stop], fill.left[first - 1 : stop], fill.right[first - 1 : stop]
        _, mu_before = self.slopes(knots, i[:-1], j[:-1])
        _, mu_after = self.slopes(knots, i[1:], j[1:])
        # On a segment inside one cell x is constant; the whole jump is assigned to its second end.
        stuck = np.flatnonzero(i == j)
        for s in stuck:
            if s > 0:
                mu_after[s - 1] = mu_before[s - 1]
            if 0 < s < len(knots):
                mu_before[s] = mu_after[s - 1]
        weights = self.prior.pdf(knots) * np.maximum(mu_after - mu_before, 0.0)
        moved_left = i[1:] > i[:-1]
        pivot = np.where(moved_left, j[:-1], i[:-1])
        k = np.arange(m)
        inside = (k > i[:-1, None]) & (k <= (j[:-1] - moved_left)[:, None])
        directions = (bins - bins[pivot][:, None]) * np.where(inside, self.rho, 1.0)
        return directions, weights


@dataclass(frozen=True, eq=False)
class Pieces:
    """Intervals of inputs on which the fill's structure is fixed.

    Attributes
    ----------
    fill : BlockFill
    edges : ndarray (S + 1,)
        From lower to upper.
    left, right : ndarray (S,)
        Outputs i ≤ j on the dual's chord; i = j means μ = 0.
    shift : ndarray (S,)
        Mean minus input on tied pieces, on which the mean follows the input.
    position : ndarray (S,)
        Index of the fill's knot on free pieces, on which the row is constant; −1 on tied ones.
    segment : ndarray (S,)
        The fill's segment of a tied row.
    """

    fill: BlockFill
    edges: Array
    left: Indices
    right: Indices
    shift: Array
    position: Indices
    segment: Indices

    @cached_property
    def rows(self) -> tuple[Array, Array]:
        """Rows at the start and at the end of every piece, each (S, m)."""
        out = []
        fill = self.fill
        last = len(fill.left) - 1
        for x in (self.edges[:-1], self.edges[1:]):
            free = self.position >= 0
            segment = np.where(free, np.minimum(self.position, last), self.segment)
            mean = np.where(free, fill.means[self.position], x + self.shift)
            low, high = fill.means[segment], fill.means[segment + 1]
            rows = fill.rows(np.clip(mean, low, high), segment)
            # If caps are 1e9 times the floors, clipping to them may change the sum.
            total = rows.sum(axis=1, keepdims=True)
            out.append(np.where(np.abs(total - 1.0) > 1e-12, rows / total, rows))
        return out[0], out[1]

    @cached_property
    def table(self) -> PiecewiseTable:
        """Return the rows as a mechanism's table."""
        return PiecewiseTable(self.fill.bins, self.edges, *self.rows)

    def at(self, x: Array) -> Indices:
        """Return the piece of each input."""
        return np.clip(np.searchsorted(self.edges, x, side="right") - 1, 0, len(self.left) - 1)

    def outputs(self, x: Array) -> tuple[Indices, Indices]:
        """Return the outputs i ≤ j of the dual's chord at inputs x."""
        at = self.at(x)
        return self.left[at], self.right[at]

    def rows_at(self, x: Array, piece: Indices) -> Array:
        """Return the rows at inputs x in the given pieces; shape (len(x), m)."""
        start, end = self.rows
        t = ((x - self.edges[piece]) / np.diff(self.edges)[piece])[:, None]
        return (1 - t) * start[piece] + t * end[piece]

    def cells(self, *cuts: Array) -> tuple[Array, Indices]:
        """Return the edges of the pieces, cut at the outputs and at `cuts`, and the piece of each cell.

        On free pieces the dual is the cost of one output, and another output's cost may cross it: halfway between
        the two, for symmetric losses. The cells are cut there too, so that reduced costs keep their sign.
        """
        bins, free = self.fill.bins, np.flatnonzero(self.position >= 0)
        turns = (bins[self.left[free]][:, None] + bins) / 2
        within = (turns > self.edges[free][:, None]) & (turns < self.edges[free + 1][:, None])
        cells = cell_edges(bins, np.unique(np.concatenate([self.edges, turns[within], *cuts])))
        return cells, self.at((cells[:-1] + cells[1:]) / 2)

    def duals(self, problem: FloorProblem, x: Array, piece: Indices) -> tuple[Array, Array]:
        """Return λ + μx − b|μ| and the reduced h(c_k), at inputs x in the given pieces."""
        lam, mu = problem.slopes(x, self.left[piece], self.right[piece])
        return lam + mu * x - problem.bias * np.abs(mu), problem.reduced(x, lam, mu)

    def planes(self, problem: FloorProblem, edges: Array) -> tuple[Array, Array]:
        """Integrate the duals against the density over each group of inputs between `edges`: constants and gradients.

        A group's integral is a sum over cells, on which the sign of every reduced cost is constant.
        """
        cells, at = self.cells(edges)

        def duals(x: Array, piece: Indices) -> Array:
            head, reduced = self.duals(problem, x, piece)
            return np.concatenate([head[:, None], reduced], axis=1)

        if problem.loss.polynomial:
            width, moments = np.diff(cells), problem.prior.continuous_moments(cells)
            both = integrated(lambda share: duals(cells[:-1] + share * width, at), cells, moments)
        else:
            both = problem.prior.continuous_integrals(lambda x: duals(x, self.at(x)), cells)
        groups = np.searchsorted(cells, edges[:-1])
        found = np.add.reduceat(both, groups, axis=0)
        return found[:, 0], found[:, 1:]


def pieces(problem: FloorProblem, floors: Array) -> Pieces:
    """Return the pieces of the best mechanism with these floors."""
    fill = block_fill(problem.bins, floors, problem.rho)
    lower, upper, bias = problem.lower, problem.upper, problem.bias
    # While the block stays inside one cell the mean is constant, up to rounding.
    proper = np.flatnonzero((fill.means[1:] > fill.means[:-1]) & (fill.left < fill.right))
    if proper.size == 0:
        proper = np.arange(len(fill.left))
    if bias == 0.0:
        inner = fill.means[proper[1:]]
        inner = inner[(inner > lower) & (inner < upper)]
        edges = np.concatenate([[lower], np.unique(inner), [upper]])
        segment = _segment(fill, proper, (edges[:-1] + edges[1:]) / 2)
        left, right, tied = fill.left[segment], fill.right[segment], np.full(len(segment), -1)
        return Pieces(fill, edges, left, right, np.zeros(len(segment)), tied, segment)
    turn = _indifference(problem, fill)
    cuts = np.concatenate([turn, fill.means - bias, fill.means + bias])
    cuts = np.unique(cuts[(cuts > lower) & (cuts < upper)])
    edges = np.concatenate([[lower], cuts, [upper]])
    middle = (edges[:-1] + edges[1:]) / 2
    q = np.searchsorted(turn, middle, side="right")  # knot of the fill where s_0 sits
    free_mean = fill.means[q]
    # Within rounding of the budget a row counts as free: its own dual is the one that is tight.
    near = bias + 1e-14 * (abs(lower) + abs(upper) + float(np.abs(fill.bins).max()))
    up, down = free_mean > middle + near, free_mean < middle - near
    shift = np.where(up, bias, np.where(down, -bias, 0.0))
    segment = _segment(fill, proper, middle + shift)
    tied = up | down
    # At a knot one end of the block is at a cell boundary; the other end's output determines λ.
    K = len(fill.left)
    before, after = np.clip(q - 1, 0, K - 1), np.clip(q, 0, K - 1)
    moved_left = fill.left[after] > fill.left[before]
    pivot = np.where(moved_left, fill.right[after], fill.left[after])
    pivot = np.where(q == 0, fill.right[0], np.where(q == K, fill.left[K - 1], pivot))
    left, right = (np.where(tied, side[segment], pivot) for side in (fill.left, fill.right))
    return Pieces(fill, edges, left, right, shift, np.where(tied, -1, q), segment)


def _segment(fill: BlockFill, proper: Indices, mean: Array) -> Indices:
    """Return the segment of positive width that contains each mean."""
    at = np.searchsorted(fill.means[proper + 1], mean, side="left")
    return proper[np.minimum(at, len(proper) - 1)]


def _indifference(problem: FloorProblem, fill: BlockFill) -> Array:
    """Return the inputs at which the two ends of the block cost the same, one per segment, non-decreasing."""
    low, high = problem.bins[fill.left], problem.bins[fill.right]
    if problem.loss.polynomial:
        turn = (low + high) / 2
    else:
        # ℓ(B_i − x) − ℓ(B_j − x) increases in x for convex ℓ: bisect between the two outputs and beyond.
        span = problem.bins[-1] - problem.bins[0]
        a, b = low - span, high + span
        for _ in range(80):
            middle = (a + b) / 2
            right = problem.loss(low - middle) > problem.loss(high - middle)
            a, b = np.where(right, a, middle), np.where(right, middle, b)
        turn = (a + b) / 2
    # A block inside one cell gives the same row at any place: it has no such input.
    turn = np.where(fill.left == fill.right, -np.inf, turn)
    return np.maximum.accumulate(turn)


# -- what every method hands back ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FloorSolution:
    """Floors with their value and a proved lower bound.

    Attributes
    ----------
    floors : ndarray (m,)
    value : float
        The loss of the block fill of `floors`.
    lower_bound : float
        Lower bound for all ε-LDP mechanisms with these outputs within the bias budget.
    iterations : int
        Newton steps, or rounds of a cutting-plane method.
    multipliers : ndarray
        Of the rows of `range_constraints`.
    methods : tuple of str
        The methods tried, in order.
    proof : DualPieces, optional
        Multipliers of the lower bound; None for callable losses, whose bound cannot be checked independently.
    margin : float
        Amount by which rounding lowers the bound.
    """

    floors: Array
    value: float
    lower_bound: float
    iterations: int
    multipliers: Array
    methods: tuple[str, ...] = ()
    proof: DualPieces | None = None
    margin: float = 0.0

    @property
    def gap(self) -> float:
        """Relative distance between value and bound."""
        return (self.value - self.lower_bound) / max(abs(self.value), 1e-300)

    def merged(self, other: FloorSolution | None) -> FloorSolution:
        """Return the better floors and the better bound of the two, with efforts added."""
        if other is None:
            return self
        best = other if other.value < self.value else self
        return replace(
            other if other.lower_bound > self.lower_bound else self,
            floors=best.floors,
            value=best.value,
            iterations=self.iterations + other.iterations,
            methods=self.methods + other.methods,
        )


def patience(value: float, bound: float, margin: float) -> int:
    """Return how many steps without progress to allow: one if value and bound are hardly farther apart than rounding."""
    return 1 if value - bound <= 1.05 * margin else 25


def lower_bound(
    problem: FloorProblem, constant: float, gradient: Array, multipliers: Array
) -> tuple[float, float]:
    r"""Bound ∫(λ + μx) dF + min_{a ∈ A} G·a from below, rounding included; return the bound and the margin for rounding.

    For any ν ≥ 0 on the rows of C that fix the range of means, the minimum is at least
    :math:`\nu \cdot b + \min_k (G - C^\top \nu)_k \cdot \{1/\rho \text{ or } 1\}`, the last factor being the
    extreme of Σa that is worse. The margin covers the errors of the integrals that made G. Those of a callable loss, by
    quadrature, are proportional to each output's own largest loss, so that an unused output far out does not lower the
    bound, however steep the loss.
    """
    C, b = problem.constraints
    nu = np.maximum(multipliers, 0.0)
    nu[:2] = 0.0

    def least(rest: Array) -> float:
        found = float(rest.min())
        return found / problem.rho if found >= 0 else found

    rest, fixed = gradient - nu @ C, constant + float(nu @ b)
    bound, common = fixed + least(rest), float(nu @ np.abs(b))
    if problem.loss.polynomial:
        size = problem.scale + common + float(np.abs(gradient).max()) + float((nu @ np.abs(C)).max())
        margin = float(problem.accuracy * size)
        return float(bound) - margin, margin
    own = 2 * problem.largest + np.abs(gradient) + nu @ np.abs(C)
    lowered = fixed + least(rest - problem.accuracy * own)
    lowered -= problem.accuracy * (float(problem.largest.min()) + abs(constant) + common)
    return float(lowered), float(bound - lowered)


def fill_proof(
    problem: FloorProblem, floors: Array, multipliers: Array, duals: tuple[Array, Array] | None = None
) -> DualPieces | None:
    """Return a proof by the fill's own chords; at point masses by the given λ and μ, or by the chords too."""
    table, x, edges = pieces(problem, floors), problem.atoms[0], np.array([problem.lower, problem.upper])
    if duals is None:
        duals = problem.slopes(x, *table.outputs(x))
    parts = (chords(problem, table, edges, np.ones(1)), lines(problem, x, np.ones(len(x)), *duals))
    return multipliers_of(problem, parts, multipliers)


def multipliers_of(problem: FloorProblem, parts: Iterable[Array], multipliers: Array) -> DualPieces | None:
    """Return `chords` and `lines` with the multipliers of `range_constraints` as checkable `DualPieces`; None for callable losses."""
    if not problem.loss.polynomial:
        return None
    table = np.concatenate([np.zeros((0, 7)), *parts])
    # Weights normalised in doubles may sum to slightly more than one: those of an input, or of all where the law is the worst.
    rounded = table[:, 2] % 0.5 != 0
    beside = rounded.any() if problem.objective == "worst" else np.isin(table[:, 0], table[rounded, 0])
    table[rounded | beside, 2] *= 1 - 1e-13
    return DualPieces(table, np.maximum(multipliers[2:], 0.0).reshape(2, -1))


def _straight(problem: FloorProblem, x: Array, lam: Array, mu: Array) -> tuple[Array, Array]:
    """Return L and M, which are affine in x between outputs."""
    w2 = problem.loss.squared
    # Lowered by a slack, so that rounding makes no cost negative at the line's own outputs: ρ would multiply it.
    return lam - w2 * x * x - 4e-16 * problem.scale, mu + 2 * w2 * x


def chords(problem: FloorProblem, table: Pieces, edges: Array, share: Array) -> Array:
    """Return the fill's chords on the inputs between `edges`, with a share of the prior's density on each interval."""
    cells, at = table.cells(edges)
    share = share[np.searchsorted(edges, cells[:-1], side="right") - 1]
    kept = (share > 0) & problem.has_density
    u, v, at, share = cells[:-1][kept], cells[1:][kept], at[kept], share[kept]
    i, j = table.left[at], table.right[at]
    (L0, M0), (L1, M1) = (_straight(problem, x, *problem.slopes(x, i, j)) for x in (u, v))
    return np.stack([u, v, share, L0, L1, M0, M1], axis=1)


def lines(problem: FloorProblem, x: Array, share: Array, lam: Array, mu: Array) -> Array:
    """Return the lines λ + μB at single inputs, with shares of the prior's point masses there."""
    L, M = _straight(problem, x, lam, mu)
    return np.stack([x, x, share, L, L, M, M], axis=1)

r"""Successive linearisation of OPTM, for more than four bins, for which a grid over bounds is exponential.

**Blocks.** The selection family has one block of unknowns for each interval between neighbouring bins. For x in :math:`[B_j, B_{j+1})` the mechanism uses :math:`u = q^L_j` and :math:`v = q^R_{m-j}` and no other row, so a
selection mechanism is a free choice of the pair (u, v) on every interval (with one family, mirrored intervals share
theirs). On an interval

.. math::

    p(x, l) = u_l \sum_r v_r \frac{B_r - x}{B_r - B_l}, \qquad p(x, r) = v_r \sum_l u_l \frac{x - B_l}{B_r - B_l},
    \qquad E\,\ell = \sum_{l,r} u_l K_{lr} v_r

are bilinear, and p(·, l) falls while p(·, r) rises: their largest and smallest values are the *limits* at the two ends.
With floors a the mechanism is ε-LDP iff every largest limit is at most :math:`e^{\varepsilon} a_i` and every
smallest at least :math:`a_i`: O(m²) rows, and the floors alone link the blocks.

At a single input the family is not restrictive: every unbiased law on the bins is that of a selection mechanism at any x
between two bins. With :math:`d_i = |B_i - x|` the equations for (u, v) read

.. math:: (d_l u_l) \frac{1}{d_l + d_r} (d_r v_r) \quad\text{has row sums } d_l p_l \text{ and column sums } d_r p_r,

scaling a positive matrix to given marginals, whose solution exists and is unique (Sinkhorn 1967); unbiasedness
makes the marginals' totals equal. The family only requires (u, v) to be constant on an interval, so
that with many bins its best member approaches the best of all unbiased mechanisms.

**Descent.** Linearise loss and limits at the current point, solve the linear program for a step within a trust region, and
take it if the exact penalty :math:`E\ell + \text{price} \cdot \text{excess}` falls: sequential linear programming (Fletcher and
Sainz de la Maza 1989), which ends at a local optimum of the exact problem. Products need no bounds, so no relaxation
costs loss, and intermediate points may exceed the budget, so that the search can begin at the optimum over
*all* unbiased mechanisms: its law at the middle of every interval is that of a selection mechanism. At the end the point is
moved inside the budget, and its exact loss decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import sparse

from mechdesign.errors import InfeasibleError, SolverError
from mechdesign.evidence.results import audited
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.mechanism import Quantizer, SelectionFamilies
from mechdesign.quantizers.moments import end_costs
from mechdesign.quantizers.table import RESOLVED, cell_edges
from mechdesign.solvers import Deadline, LinearProgram, Solution
from mechdesign.typing import Array

Index = npt.NDArray[np.intp]

_LEAST_UNIT = 1e-6  # least unit of an output's rows, for outputs of small probability
# Stop when a step promises less, relative to the loss; ten times that for many unknowns. If a product of two unknowns
# vanishes, a step halves it: the remaining gain is twice the last step's promise.
_TOLERANCE = 5e-6
# Relative steps, and reductions of the budget, until the point is inside the original one.
_APPROACH = [(1e-2, 0.0), (1e-3, 0.0), (1e-4, 0.0)] + [
    (1e-5, 10.0**-k) for k in (11, 10, 10, 9, 9, 8, 8, 7, 6)
]


def selection_at(x: float, bins: Array, law: Array) -> tuple[Array, Array]:
    """Return selection probabilities (u of the bins left of x, v of those right of it) whose output law at x is `law`.

    Parameters
    ----------
    x : float
        Strictly between two bins.
    bins, law : arrays, shape (m,)
        An unbiased law: Σ law = 1, Σ bins · law = x.

    Examples
    --------
    >>> bins, law = np.array([-2.0, -1.0, 1.0, 2.0]), np.array([0.2, 0.3, 0.3, 0.2])
    >>> u, v = selection_at(0.0, bins, law)
    >>> p_left = u * ((1 / np.add.outer([2.0, 1.0], [1.0, 2.0])) @ (v * [1.0, 2.0]))
    >>> p_left.round(6)
    array([0.2, 0.3])
    """
    left = bins < x
    near, far = x - bins[left], bins[~left] - x
    rows, columns = near * law[left], far * law[~left]
    rows, columns, kernel = rows / rows.sum(), columns / columns.sum(), 1.0 / np.add.outer(near, far)
    a = np.ones(len(rows))
    for _ in range(200):  # Sinkhorn's a and b: diag(a) kernel diag(b) has these row and column sums
        b = columns / (kernel.T @ a)
        a = rows / (kernel @ b)
        if np.abs(b * (kernel.T @ a) - columns).sum() < 1e-11:
            break
    u, v = a / near, b / far
    return u / u.sum(), v / v.sum()


@dataclass(frozen=True)
class Block:
    """One interval: j (1-based left neighbour), its ends, the usable bins on both sides and their unknowns."""

    j: int
    start: float
    end: float
    left: Index
    right: Index
    u: Index
    v: Index
    kernel: Array


class SelectionBlocks:
    """The unknowns of a selection mechanism with its limits and its loss, both bilinear.

    Parameters
    ----------
    bins : array, shape (m,)
    input_range : (float, float)
    prior : Prior
    loss : Loss
    mirrored : bool
        One family for both sides (bins and range are symmetric about zero).
    shared_floor : bool
        One floor for all outputs: compare every largest probability with every smallest.
    usable : int array
        Bins that may be drawn; the others only divide the inputs.

    Attributes
    ----------
    size, floors : int
        Numbers of unknowns and of distinct floors.
    outer, output, largest : arrays, an entry per limit
        Index of a limit's outer factor among the unknowns, its floor, and whether it is a largest or a smallest value.
    inner : sparse array
        The inner factors are ``inner @ q``.
    labels : list of str
        Description of each limit: its output (1-based), and its input with the side.
    """

    def __init__(
        self,
        bins: Array,
        input_range: tuple[float, float],
        prior: Prior,
        loss: Loss,
        *,
        mirrored: bool,
        shared_floor: bool,
        usable: Index,
    ) -> None:
        self.bins, self.input_range, self.mirrored = bins, input_range, mirrored
        self.usable, self.size, self.knots = usable, 0, cell_edges(bins, np.array(input_range))
        self.blocks = self._blocks(self._kernels(prior, loss))
        outer, output, largest, labels, inner = zip(*self._limits())
        self.outer, self.largest = np.concatenate(outer), np.concatenate(largest)
        self.labels = [label for part in labels for label in part]
        self.inner = sparse.vstack(inner, format="coo")
        which = np.concatenate(output)
        if mirrored:
            which = np.minimum(which, len(bins) - 1 - which)
        self.output = np.zeros_like(which) if shared_floor else np.unique(which, return_inverse=True)[1]
        self.floors = int(self.output.max()) + 1

    def _limits(self) -> Iterator[tuple[Index, Index, Array, list[str], sparse.csr_array]]:
        """Yield for each end of each interval and each side's outputs: outer factors, outputs, kind, labels, inner factors."""
        for block in self.blocks:
            low, high = self.bins[block.left], self.bins[block.right]
            for mark, x in (("+", block.start), ("-", block.end)):
                share = (high[None, :] - x) / (high[None, :] - low[:, None])
                sides = [(share, block.u, block.v, block.left, mark == "+")]
                if not self._central(block):
                    sides.append(((1 - share).T, block.v, block.u, block.right, mark == "-"))
                for table, rows, columns, which, is_largest in sides:
                    labels = [f"p({x:g}{mark}, {i + 1})" for i in which.tolist()]
                    places = np.tile(columns, len(table)), np.arange(0, table.size + 1, len(columns))
                    inner = sparse.csr_array((table.ravel(), *places), shape=(len(table), self.size))
                    yield rows, which, np.full(len(table), is_largest), labels, inner

    def _central(self, block: Block) -> bool:
        return self.mirrored and block.start == -block.end

    def _blocks(self, kernels: Callable[[int, Index, Index], Array]) -> list[Block]:
        bins, m, last = self.bins, len(self.bins), len(self.knots) - 2
        blocks = []
        for k in range(last + 1):
            start, end = float(self.knots[k]), float(self.knots[k + 1])
            if self.mirrored and start + end > 0:
                break
            j = min(int(np.searchsorted(bins, start, side="right")), m - 1)
            left, right = self.usable[self.usable < j], self.usable[self.usable >= j]
            u = self.size + np.arange(len(left))
            self.size += len(left)
            kernel = kernels(k, left, right)
            if self.mirrored and start == -end:  # its own mirror image
                v = u[::-1]
            else:
                v = self.size + np.arange(len(right))
                self.size += len(right)
                if self.mirrored:  # the mirrored interval has the same unknowns, sides exchanged
                    kernel = kernel + kernels(last - k, m - 1 - right[::-1], m - 1 - left[::-1])[::-1, ::-1].T
            blocks.append(Block(j, start, end, left, right, u, v, kernel))
        return blocks

    def _kernels(self, prior: Prior, loss: Loss) -> Callable[[int, Index, Index], Array]:
        """Return a function of interval k and bins that gives E ℓ for every pair, the matrix between u and v."""
        bins, knots, costs = self.bins, self.knots, end_costs(self.bins, self.knots, prior, loss)

        def kernel(k: int, left: Index, right: Index) -> Array:
            low, high = bins[left][:, None], bins[right]
            shares = [(high - x) / (high - low) for x in knots[k : k + 2]]
            each = zip(shares, costs)
            return np.asarray(sum(p * c[k, left][:, None] + (1 - p) * c[k, right] for p, c in each))

        return kernel

    # -- bilinear quantities --------------------------------------------------------------------------

    def limits(self, q: Array) -> Array:
        """Return the largest and smallest probabilities of the outputs on every interval."""
        return np.asarray(q[self.outer] * (self.inner @ q))

    def slopes(self, q: Array, weights: Array) -> sparse.csr_array:
        """Return the derivatives of `limits`, each times a weight."""
        every, inner = np.arange(len(self.outer)), self.inner
        limit = np.append(every, inner.row)
        terms = np.append(inner @ q, q[self.outer][inner.row] * inner.data)
        places = limit, np.append(self.outer, inner.col)
        return sparse.csr_array((weights[limit] * terms, places), shape=inner.shape)

    def loss(self, q: Array) -> float:
        """Return the exact expected loss."""
        return float(sum(q[b.u] @ b.kernel @ q[b.v] for b in self.blocks))

    def gradient(self, q: Array) -> Array:
        """Return the derivative of `loss`."""
        slope = np.zeros(self.size)
        for b in self.blocks:
            slope[b.u] += b.kernel @ q[b.v]
            slope[b.v] += q[b.u] @ b.kernel
        return slope

    def extremes(self, q: Array) -> tuple[Array, Array]:
        """Return the smallest and largest probability of every output (or of any, with a shared floor)."""
        p = self.limits(q)
        low, high = np.full(self.floors, np.inf), np.zeros(self.floors)
        np.minimum.at(low, self.output[~self.largest], p[~self.largest])
        np.maximum.at(high, self.output[self.largest], p[self.largest])
        return low, high

    def units(self, q: Array, least: float) -> Array:
        """Return the largest probability of every output, at least `least`."""
        return np.clip(self.extremes(q)[1], least, 1.0)

    def excess(self, q: Array, epsilon: float) -> float:
        """Return the sum over outputs of the largest probability's excess over e^ε times the smallest."""
        low, high = self.extremes(q)
        return float(np.maximum(high - np.exp(epsilon) * low, 0.0).sum())

    def normalised(self, q: Array) -> Array:
        """Divide every family's row by its sum."""
        total = self.rows @ q
        return np.asarray(q / (self.rows.T @ total))

    # -- there and back -------------------------------------------------------------------------------

    def selection(self, q: Array) -> SelectionFamilies:
        """Return the selection mechanism of the unknowns; intervals without inputs get the outermost bins."""
        m = len(self.bins)
        left, right = np.zeros((m - 1, m - 1)), np.zeros((m - 1, m - 1))
        left[:, 0] = right[:, 0] = 1.0
        for b in self.blocks:
            u, v = np.maximum(q[b.u], 0.0), np.maximum(q[b.v], 0.0)
            for family, n, index, values in ((left, b.j, b.left, u), (right, m - b.j, m - 1 - b.right, v)):
                family[n - 1] = 0.0
                family[n - 1, index] = values / values.sum()
                if self.mirrored:
                    (right if family is left else left)[n - 1] = family[n - 1]
        return SelectionFamilies(self.bins, left, right)

    def imitate(self, rows: Callable[[Array], Array]) -> Array:
        """Return unknowns whose output law at the middle of every interval is ``rows(x)`` (shape (n, usable bins))."""
        middles = np.array([(b.start + b.end) / 2 for b in self.blocks])
        q = np.zeros(self.size)
        bins = self.bins[self.usable]
        for b, x, law in zip(self.blocks, middles.tolist(), rows(middles)):
            u, v = selection_at(x, bins, law)
            if self._central(b):
                u = v = (u + v[::-1]) / 2
                v = v[::-1]
            q[b.u], q[b.v] = u, v
        return q

    def mechanism(self, q: Array) -> Quantizer:
        """Return the quantizer of the unknowns in floats; its privacy loss is rounded up."""
        return Quantizer.of_selection(self.selection(q), self.input_range)

    # -- the linearised program -----------------------------------------------------------------------

    @cached_property
    def rows(self) -> sparse.csr_array:
        """Matrix that sums the unknowns of each row of the families."""
        parts = [part for b in self.blocks for part in ((b.u,) if self._central(b) else (b.u, b.v))]
        places = np.repeat(np.arange(len(parts)), [*map(len, parts)]), np.concatenate(parts)
        # in SciPy's coordinate format one row times a vector is a scalar
        return sparse.csr_array((np.ones(len(places[0])), places), shape=(len(parts), self.size))

    def linearise(
        self, program: LinearProgram, q: Array, epsilon: float, steps: tuple[Array, Array], price: float,
        least_unit: float = 1.0,
    ) -> None:  # fmt: skip
        r"""State the program linearised at a point q, with steps d in [lower, upper]; it starts from the last basis.

        .. math::

            \min\; & \nabla E\ell(q) \cdot d + \text{price} \cdot \textstyle\sum_i s_i \\
            \text{normalisation:}\; & \textstyle\sum_{l} d_l = 0 \text{ for every row of the families} \\
            \text{limits:}\; & p(q) + p'(q)\, d \ge a_i \text{ at the smallest limits} \\
            & p(q) + p'(q)\, d \le e^{\varepsilon} a_i + s_i \text{ at the largest}

        Rows are in units of each output's largest probability, at least `least_unit`, so that a solver's tolerance is
        relative to it.
        """
        unit, basis = self.units(q, least_unit), program.clear()
        program.add_columns("step", self.gradient(q), lower=steps[0], upper=steps[1])
        program.add_columns("floor", np.zeros(self.floors))
        program.add_columns("over", price * unit)
        program.add_rows("normalisation", {"step": self.rows}, lower=0.0, upper=0.0)
        sign = np.where(self.largest, 1.0, -1.0)
        scale, every, above = sign / unit[self.output], np.arange(len(sign)), np.flatnonzero(self.largest)
        shape, growth = (len(sign), self.floors), np.where(self.largest, -math.exp(epsilon), 1.0)
        floors = sparse.coo_array((growth, (every, self.output)), shape=shape)
        over = sparse.coo_array((-np.ones(len(above)), (above, self.output[above])), shape=shape)
        blocks = {"step": self.slopes(q, scale), "floor": floors, "over": over}
        program.add_rows("limits", blocks, upper=-scale * self.limits(q))
        if basis.valid:
            program.highs.setBasis(basis)


@dataclass(frozen=True)
class LinearisedPoint:
    """A selection mechanism within the budget, and the solution of the last linearised program."""

    blocks: SelectionBlocks
    q: Array
    solution: Solution
    mechanism: Quantizer

    def audit(self, epsilon: float) -> pd.DataFrame:
        """Tabulate floors and ceilings of every limit, with the multipliers of the last program."""
        blocks, q = self.blocks, self.q
        p, low = blocks.limits(q), blocks.extremes(q)[0][blocks.output]
        unit = blocks.units(q, _LEAST_UNIT)[blocks.output]  # units of the last program's rows
        ratio, dual = math.exp(min(epsilon, 700.0)), self.solution.dual["limits"]
        return audited(
            (
                f"model: {family}",
                np.array(blocks.labels)[rows],
                lhs[rows],
                rhs[rows],
                dual[rows] / unit[rows],
            )
            for family, rows, lhs, rhs in (
                ("floor", ~blocks.largest, low, p),
                ("ceiling", blocks.largest, p, ratio * low),
            )
        )


class Descent:
    """Successive linearisation of one question.

    Parameters
    ----------
    blocks : SelectionBlocks
    epsilon : float
        Budget, capped at `RESOLVED`: beyond that, floors are below a linear program's tolerance.
    deadline : Deadline

    Linear programs suffice by ``results/ablations``: adding sequential quadratic programming, for few unknowns, ended within
    2e-4 of their loss in 13 of 15 designs, .5% above it in one and at more than twice it in another.
    """

    def __init__(self, blocks: SelectionBlocks, epsilon: float, deadline: Deadline) -> None:
        self.blocks, self.epsilon, self.deadline = blocks, epsilon, deadline
        self.program = LinearProgram("linearised program", deadline=deadline)

    def best(self, q: Array, deadline: Deadline) -> LinearisedPoint | None:
        """Descend by linearised programs from q until the deadline, then move inside the budget; return None if that fails."""
        blocks, epsilon = self.blocks, min(self.epsilon, RESOLVED)
        price, radius = 50.0 * blocks.loss(q), 0.1
        tolerance = _TOLERANCE if blocks.size <= 150 else 10 * _TOLERANCE
        for _ in range(80):  # linear programs, at most
            value, excess = blocks.loss(q), blocks.excess(q, epsilon)
            steps = -np.minimum(q, radius), np.minimum(1.0 - q, radius)
            solution = None if deadline.passed else self._solved(q, epsilon, steps, price)
            if solution is None:
                break
            over = float(solution.primal["over"].sum())
            if over < 1e-12:
                # The penalty is exact just above the multipliers; a higher price slows steps along the curved boundary.
                # At a large ε multipliers may be e^(−ε/2) or less, so that dropping an output with its excess would lower the merit.
                dual = np.abs(solution.dual["limits"][blocks.largest])
                worth = np.bincount(blocks.output[blocks.largest], dual)
                price = max(1.2 * float(worth.max()), 1e-2 * value)
            elif over > 0.5 * excess and price < 1e8 * value:
                price *= 4.0  # excess costs less than it saves
                continue
            promised = price * excess - solution.value
            if promised <= tolerance * value or radius < 1e-7:
                if price * excess <= tolerance * value or price > 1e8 * value:
                    break
                price *= 10.0  # the penalty was not exact: a unit of excess must cost more than it saves
                radius = max(radius, 1e-3)
                continue
            step = solution.primal["step"]
            trial = np.where(q + step > 1e-14, q + step, 0.0)
            gained = value - blocks.loss(trial) + price * (excess - blocks.excess(trial, epsilon))
            if gained > 0.1 * promised:
                radius = min(1.0, radius * (2.0 if gained > 0.7 * promised else 1.0))
                q = trial
            else:
                radius = 0.35 * min(radius, float(np.abs(step).max()))
        return self.inside(q, self.epsilon)

    def _solved(self, *point: Any) -> Solution | None:
        """Solve the program at a point from the last basis; return None if the deadline came first, or if the solver fails."""
        if self.deadline.passed:
            return None
        self.blocks.linearise(self.program, *point)
        try:
            return self.program.answer()
        except (InfeasibleError, SolverError) as error:  # no step at all solves the program
            self.deadline.failed(error, "the descent ended at the point before")
            return None

    def inside(self, q: Array, epsilon: float) -> LinearisedPoint | None:
        """Move a point that slightly exceeds the budget inside it, by solving for a slightly smaller one.

        A step that changes every unknown by a share r leaves a relative error of about r²: the error shrinks faster than
        the reduction of the budget. Unused outputs are dropped, so that none is possible for some inputs only.
        """
        blocks = self.blocks
        price = 1e3 * blocks.loss(q)
        # probabilities below which an output is dropped; a larger one if a smaller one fails
        for noise in (1e-9, 1e-6, 1e-4):
            moved = _without_noise(blocks, q, noise)
            for radius, margin in _APPROACH:
                steps = -radius * moved, np.minimum(1.0 - moved, radius * moved)
                tight = min(epsilon, RESOLVED) - margin * max(1.0, epsilon)
                solution = self._solved(moved, tight, steps, price, _LEAST_UNIT)
                if solution is None:
                    break
                moved = _without_noise(blocks, np.maximum(moved + solution.primal["step"], 0.0), noise)
                mechanism = blocks.mechanism(moved)
                if mechanism.privacy_loss() <= epsilon:
                    return LinearisedPoint(blocks, moved, solution, mechanism)
        return None


def _without_noise(blocks: SelectionBlocks, q: Array, noise: float) -> Array:
    """Drop entries that are positive by rounding only, and outputs whose probability is below `noise`."""
    q = np.where(q > 1e-13, q, 0.0)
    if blocks.floors > 1 or len(blocks.usable) == 1:
        unused = blocks.extremes(q)[1] < noise
        q[blocks.outer[unused[blocks.output]]] = 0.0
    return blocks.normalised(q)

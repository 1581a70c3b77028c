r"""Methods for the floors of the optimal quantizer, each with a proved gap: interior point and cutting planes; and the choice of a method.

**Interior point**, a few dozen Newton steps. The problem is :math:`\min F(a) + \sum_n \omega_n \ell_n \cdot p_n`, F from `floors`: the density's part is
smooth with a known Hessian; each point mass x_n keeps its row p_n as variables, because there the loss has kinks.
All constraints have the form

.. math:: a \ge 0, \quad C a \ge b, \quad p_n \ge a, \quad \rho a \ge p_n, \qquad \sum p_n = 1, \quad B \cdot p_n = x_n,

and the primal–dual equations with all complementary products equal to t are followed to t → 0 (Mehrotra's predictor
and corrector, with an Armijo test on the barrier function, since F is not quadratic). A step costs one dense
factorisation, of m rows and m + 2 more for each end at which a clipped prior has a point mass.

It serves priors with a density, for which cutting planes take up to 7.2 times as long (256 outputs: line *Newton* of
results/ablations). For samples cutting planes are used, which take .3 to .8 of its time.

It is kept beside the library's solvers because it is faster from about 100 outputs on: as a sequence of
quadratic programs over Clarabel the same designs took 15 ms instead of 66 with 4 outputs, 196 instead of 103 with 128,
715 instead of 147 with 256 and 14.6 s instead of 2.7 s with 1,025.

The result does not depend on the convergence of this iteration: every step's floors give a mechanism by exact block
fill (the value), and every step's duals give a bound that holds for all mechanisms; the best
of each is kept.

**Cutting planes**, for every convex loss, expected or worst. The loss of the best mechanism with floors a is a sum of convex functions, :math:`F = \sum_g F_g`, and the fill's
duals at any floors give planes below each of them,

.. math:: F_g(a) \ge \int_g (\lambda + \mu x - b|\mu|)\,dF + \sum_k a_k \int_g h(c_k)\,dF,

so the linear program

.. math:: \min \sum_g \theta_g \quad\text{subject to}\quad
          \theta_g \ge \text{constant} + \text{gradient} \cdot a \;\text{(planes found so far)}, \quad a \in A

is a lower bound that rises, and every a it visits gives a mechanism (Benders 1962; Kelley 1960, one epigraph variable
per group of inputs). New planes are taken at the program's solution. HiGHS keeps its basis between rounds. They serve samples as prior, for which the loss is piecewise
linear (Newton's method took up to 73 times as long: line *cutting planes* of results/ablations), bias budgets, the worst case, and problems on which the Newton iteration stalls.

In the worst case, :math:`\min_{a \in A} \max_{x \in [lo, hi]} V(x; a)`, V(·; a) of the block fill is a quadratic on each piece (polynomial losses), so all its local maxima
are found exactly. Each one gives a plane :math:`z \ge \lambda + \mu x - b|\mu| + \sum_k a_k h(c_k)` below the maximum: an exchange of worst inputs as in Remez's algorithm, with
the floors as the only variables. The multipliers ω ≥ 0, Σω = 1 of the planes are a prior on finitely many inputs, and the planes averaged
with them bound the *expected* loss of every mechanism under that prior from below, hence the worst case too: the same
bound as in `floors`, exact for the continuum. A handful of rounds suffices, whatever the number of outputs.

**Methods** are tried in order until the gap is proved, and their results merged (`uncapped`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.quantizers.dual_pieces import DualPieces
from mechdesign.quantizers.floors import (
    Continuum,
    FloorProblem,
    FloorSolution,
    Pieces,
    chords,
    fill_proof,
    lines,
    lower_bound,
    multipliers_of,
    patience,
    pieces,
)
from mechdesign.quantizers.table import loss_peaks, smallest_epsilon
from mechdesign.solvers import LinearProgram
from mechdesign.solvers.deadline import Deadline, one_thread
from mechdesign.typing import Array, Indices, Status

Solver = Callable[[Array], Array]


class _Constraints:
    """A v ≥ b and E v = e over v = (a, p_1, …, p_N), a the floors."""

    def __init__(self, problem: FloorProblem) -> None:
        self.bins, self.rho = problem.bins, problem.rho
        self.C, reach = problem.constraints
        self.points, weights = problem.atoms
        self.n, self.shape = len(self.bins), (len(self.points), len(self.bins))
        costs = weights[:, None] * problem.loss(self.bins - self.points[:, None])
        self.cost = np.concatenate([np.zeros(self.n), costs.ravel()])
        self.b = np.concatenate([np.zeros(self.n), reach, np.zeros(2 * costs.size)])

    def times(self, v: Array) -> Array:
        """Return A v."""
        a, rows = v[: self.n], v[self.n :].reshape(self.shape)
        above, below = (rows - a).ravel(), (self.rho * a - rows).ravel()
        return np.concatenate([a, self.C @ a, above, below])

    def _parts(self, w: Array) -> tuple[Array, Array, Array, Array]:
        """Split a vector over the rows into the parts of a ≥ 0, C a ≥ b, p ≥ a and ρa ≥ p."""
        first, second = self.n, self.n + len(self.C)
        u, v = w[second:].reshape(2, *self.shape)
        return w[:first], w[first:second], u, v

    def transposed(self, w: Array) -> Array:
        """Return Aᵀ w."""
        floors, reach, u, v = self._parts(w)
        inner = (self.rho * v - u).sum(axis=0)
        return np.concatenate([floors + reach @ self.C + inner, (u - v).ravel()])

    def missing(self, v: Array) -> Array:
        """Return E v − e, the errors of the rows' sums and means."""
        rows = v[self.n :].reshape(self.shape)
        return np.concatenate([rows.sum(axis=1) - 1.0, rows @ self.bins - self.points])

    def moments(self, y: Array) -> Array:
        """Return Eᵀ y."""
        lam, mu = y.reshape(2, -1, 1)
        return np.concatenate([np.zeros(self.n), (lam + mu * self.bins).ravel()])

    def system(self, H: Array, w: Array) -> Solver | None:
        """Return a solver of (H + Aᵀ diag(w) A) dv − Eᵀ dy = r, E dv = q for right sides (r, q); None if the factorisation fails."""
        n, (count, m) = self.n, self.shape
        floors, reach, u, v = self._parts(w)
        entries, equations = n + np.arange(count * m), n + count * m + np.arange(2 * count)
        whole = np.zeros((n + count * (m + 2),) * 2)
        whole[:n, :n] = H + (self.C.T * reach) @ self.C
        whole[range(n), range(n)] += floors + (u + self.rho**2 * v).sum(axis=0)
        whole[entries, entries] = (u + v).ravel()
        # Above the diagonal: the rows' coupling with the floors, their sums and means.
        whole[np.tile(np.arange(n), count), entries] = -(u + self.rho * v).ravel()
        whole[entries, equations[:count].repeat(m)] = 1.0
        whole[entries, equations[count:].repeat(m)] = np.tile(self.bins, count)
        whole[n:, :n] = whole[:n, n:].T
        whole[equations] = whole[:, equations].T
        sides = np.ones(len(whole))
        sides[: len(self.cost)] = 1.0 / np.sqrt(np.diagonal(whole)[: len(self.cost)])
        sides[equations] = 1.0 / np.linalg.norm(whole[equations] * sides, axis=1)
        if not np.all(np.isfinite(sides)):
            return None
        whole *= sides * sides[:, None]
        factor, pivots, singular = linalg.lapack.dgetrf(whole)
        if singular:
            return None

        def solve(right: Array) -> Array:
            right = sides * right
            x: Array = linalg.lapack.dgetrs(factor, pivots, right)[0]
            x = sides * (x + linalg.lapack.dgetrs(factor, pivots, right - whole @ x)[0])
            x[equations] *= -1.0
            return x

        return solve


class _Step(NamedTuple):
    """Steps of the variables v, the slacks s, their multipliers z and the equations' y."""

    v: Array
    s: Array
    z: Array
    y: Array


class _Path:
    """State of the iteration: variables v, slacks s > 0 of the rows, their multipliers z, and y of the equations."""

    def __init__(self, problem: FloorProblem, start: Array) -> None:
        self.problem, self.rows = problem, _Constraints(problem)
        self.scale = problem.scale
        count, m = self.rows.shape
        # The point between a and ρa at which the row sums to one; the first steps correct the means.
        share = (1.0 - start.sum()) / ((problem.rho - 1.0) * start.sum())
        row = start * (1 + min(max(share, 1e-3), 1 - 1e-3) * (problem.rho - 1.0))
        self.v: Array = np.concatenate([start, np.tile(row, count)])
        self.s = self.rows.times(self.v) - self.rows.b
        # A start eight times larger or smaller costs one to three more steps, over designs of 3 to 1,024 outputs.
        self.z: Array = 0.16 * self.scale / math.sqrt(problem.rho) / m / self.s
        self.y = np.zeros(2 * count)
        self.n = m
        self._last: tuple[Array, Continuum] | None = None

    @property
    def floors(self) -> Array:
        return self.v[: self.n]

    @property
    def multipliers(self) -> Array:
        """Multipliers of the rows of `range_constraints`."""
        return self.z[self.n : self.n + len(self.rows.C)]

    @property
    def atom_duals(self) -> tuple[Array, Array]:
        """λ and μ at the point masses."""
        lam, mu = self.y.reshape(2, -1) / self.problem.atoms[1]
        return lam, mu

    def _density(self, v: Array) -> Continuum:
        """Return the density's part at some variables, cached: the step taken is the one tried last."""
        at = v[: self.n]
        if self._last is None or not np.array_equal(self._last[0], at):
            self._last = at.copy(), self.problem.continuum(at)
        return self._last[1]

    def assess(self) -> tuple[float, float, float, Continuum]:
        """Return the value of the current floors' fill, the bound from the current duals with its margin, and the density's part."""
        problem, a, part = self.problem, self.floors, self._density(self.v)
        gradient, constant = part.gradient, part.constant
        value = constant + float(a @ gradient)
        if problem.atoms[0].size:
            parts = _at_point_masses(problem, a, *self.atom_duals)
            value, constant, gradient = value + parts[0], constant + parts[1], gradient + parts[2]
        return value, *lower_bound(problem, constant, gradient, self.multipliers), part

    def step(self, part: Continuum) -> bool:
        """Take one step along the path; return False if the equations can no longer be solved."""
        rows, s, z, n = self.rows, self.s, self.z, self.n
        slope = rows.cost.copy()
        slope[:n] += part.gradient
        residual = slope - rows.transposed(z) - rows.moments(self.y)
        miss = rows.missing(self.v)
        D = part.directions
        t = float(z @ s) / len(s)
        if not (math.isfinite(t) and t > 0):
            return False
        inverse = rows.system((D.T * part.weights) @ D, z / s)
        if inverse is None:
            return False

        def solve(goal: float, first: _Step | None = None) -> _Step:
            """Return the Newton step to products = goal, with Mehrotra's correction from the affine step `first`."""
            short = goal - z * s - (first.z * first.s if first else 0.0)
            d = inverse(np.concatenate([rows.transposed(short / s) - residual, -miss]))
            dv, dy = d[: len(self.v)], d[len(self.v) :]
            ds = rows.times(dv)
            return _Step(dv, ds, (short - z * ds) / s, dy)

        strayed = float(np.abs(residual[:n]) @ self.v[:n]) / len(s)
        if strayed > 10 * t:
            # The last step left the region of its quadratic model: recentre before going on.
            goal = min(max(t, 0.1 * strayed), 3.0 * t)
            step = solve(goal)
            self._advance(step, self._armijo(step, part, slope, goal, 25))
            return True
        affine = solve(0.0)
        reach = self._longest(affine)
        after = float((z + reach * affine.z) @ (s + reach * affine.s)) / len(s)
        goal = min(max((after / t) ** 3, 1e-3), 1.0) * t
        step = solve(goal, affine)
        reach = self._armijo(step, part, slope, goal, 1)
        if reach == 0.0:
            # With the correction the step does not descend; without it it does.
            step = solve(goal)
            reach = self._armijo(step, part, slope, goal, 25)
        self._advance(step, reach)
        return True

    def _longest(self, step: _Step) -> float:
        pairs = ((self.s, step.s), (self.z, step.z))
        return min([1.0, *(1.0 / max(float((-d / x).max()), 1e-300) for x, d in pairs)])

    def _armijo(self, step: _Step, part: Continuum, slope: Array, goal: float, tries: int) -> float:
        """Return a step length at which F − goal·Σ log meets Armijo's condition; 0 if `tries` halvings find none."""
        reach = min(1.0, 0.995 * self._longest(step))  # the boundary itself is never reached
        problem, rows = self.problem, self.rows
        if float(np.abs(rows.missing(self.v)).max(initial=0.0)) > 1e-9 * np.ptp(problem.bins):
            return reach
        relative = step.s / self.s
        promised = float(slope @ step.v) - goal * float(relative.sum())
        linear = float(rows.cost @ step.v)
        here = part.constant + float(self.floors @ part.gradient)
        for _ in range(tries):
            there = self._density(ahead := self.v + reach * step.v)
            trial = ahead[: self.n]
            gain = there.constant + float(trial @ there.gradient) - here + reach * linear
            gain -= goal * float(np.log1p(reach * relative).sum())
            if gain <= 1e-4 * reach * min(promised, 0.0) + 1e-14 * self.scale:
                return reach
            reach *= 0.5
        return 0.0 if tries == 1 else reach

    def _advance(self, step: _Step, reach: float) -> None:
        self.v = self.v + reach * step.v
        self.z = self.z + reach * step.z
        self.y = self.y + reach * step.y
        # Recompute, so that errors do not accumulate, but stay above a fraction of the step's own slacks.
        self.s = np.maximum(self.rows.times(self.v) - self.rows.b, (self.s + reach * step.s) * 1e-3)


def _at_point_masses(
    problem: FloorProblem, floors: Array, lam: Array, mu: Array
) -> tuple[float, float, Array]:
    """Return the contribution of point masses to the loss of the floors' fill and, with slopes there, to a bound's constant and gradient."""
    points, weights = problem.atoms
    table = pieces(problem, floors)
    rows = table.rows_at(points, table.at(points))
    value = float(weights @ np.sum(rows * problem.loss(problem.bins - points[:, None]), axis=1))
    return value, float(weights @ (lam + mu * points)), weights @ problem.reduced(points, lam, mu)


def newton(
    problem: FloorProblem, *, gap: float = 1e-6, deadline: Deadline | None = None, steps: int = 120
) -> FloorSolution:
    """Follow the central path until the proved relative gap is at most `gap`.

    Parameters
    ----------
    problem : FloorProblem
    gap : float
        Relative gap to stop at.
    deadline : Deadline, optional
        Time limit; a step expected to exceed it is not taken.
    steps : int
        Most steps.

    Returns
    -------
    FloorSolution
        The best found, even if the iteration stalls: the caller judges its `gap`.

    Examples
    --------
    >>> from scipy import stats
    >>> from mechdesign.problem.losses import Loss
    >>> from mechdesign.problem.priors import Prior
    >>> problem = FloorProblem(np.array([-3, -0.5, 0.5, 3]), np.exp(1.0), -1.0, 1.0,
    ...                        Prior.of(stats.uniform(-1, 2)), Loss.of("absolute"))
    >>> solution = newton(problem)
    >>> round(solution.value, 4), solution.gap < 1e-6
    (1.7005, True)
    """
    deadline = deadline or Deadline(None)
    start = problem.centre
    C, b = problem.constraints
    none = np.zeros(len(b))
    if (C @ start - b).min() <= 0 or start.min() <= 0:
        return FloorSolution(start, math.inf, -math.inf, 0, none, methods=("newton",))
    path = _Path(problem, start)
    value, bound, floors, nu = math.inf, -math.inf, path.floors, none
    proved = path.floors, path.atom_duals
    count = stalled = 0
    longest = margin = 0.0
    # The last steps divide by what has become zero; results are checked.
    with one_thread(), np.errstate(all="ignore"):
        for count in range(1, steps + 1):  # noqa: B007
            began = time.monotonic()
            new_value, new_bound, new_margin, part = path.assess()
            if not (math.isfinite(new_value) and math.isfinite(new_bound)):
                break
            before = value - bound
            if new_value < value:
                value, floors = new_value, path.floors
            if new_bound > bound:
                bound, margin, nu = new_bound, new_margin, path.multipliers
                proved = path.floors, path.atom_duals
            if value - bound <= gap * abs(value) or deadline.left <= longest:
                break
            stalled = 0 if value - bound < 0.999 * before else stalled + 1
            if stalled > patience(value, bound, margin) or not path.step(part):
                break
            longest = max(longest, time.monotonic() - began)
    proof = fill_proof(problem, proved[0], nu, proved[1])
    return FloorSolution(floors, value, bound, count, nu, methods=("newton",), proof=proof, margin=margin)


# -- cutting planes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Planes:
    """Planes below the groups' losses, found at some floors.

    Attributes
    ----------
    value : float
        The loss of the best mechanism with these floors.
    group : ndarray (N,)
    constants, gradients : ndarray (N,) and (N, m)
    table : Pieces
        The fill.
    inputs : ndarray
        The ends of the groups; for the worst case, the input of each plane.
    owner : ndarray, optional
        The group of each of the prior's point masses; None for the worst case.
    """

    value: float
    group: Indices
    constants: Array
    gradients: Array
    table: Pieces
    inputs: Array
    owner: Indices | None = None


def expected_planes(problem: FloorProblem, table: Pieces, edges: Array) -> Planes:
    """Return the planes of the groups between `edges`; point masses belong to the group they lie in."""
    groups, m = len(edges) - 1, len(problem.bins)
    constants, gradients = np.zeros(groups), np.zeros((groups, m))
    if problem.has_density:
        constants, gradients = table.planes(problem, edges)
    points, weights = problem.atoms
    owner = np.clip(np.searchsorted(edges, points, side="right") - 1, 0, groups - 1)
    chunk = max(1, 1_000_000 // m)
    for first in range(0, len(points), chunk):
        part = slice(first, first + chunk)
        x, w, at = points[part], weights[part], owner[part]
        head, reduced = table.duals(problem, x, table.at(x))
        np.add.at(constants, at, w * head)
        # Points are sorted, so groups are runs.
        runs = np.flatnonzero(np.diff(at, prepend=-1))
        gradients[at[runs]] += np.add.reduceat(w[:, None] * reduced, runs, axis=0)
    # The planes touch the loss at their own floors.
    value = float(constants.sum() + (gradients @ table.fill.floors).sum())
    return Planes(value, np.arange(groups), constants, gradients, table, edges, owner)


class Bundle:
    """The planes found so far, the linear program over them, and the best floors.

    Parameters
    ----------
    problem : FloorProblem
    groups : int
        Number of epigraph variables θ.
    unit : float
        Unit of the loss in the program.
    deadline : Deadline
    """

    def __init__(self, problem: FloorProblem, groups: int, unit: float, deadline: Deadline) -> None:
        self.problem, self.unit = problem, unit
        (C, self.reach), n = problem.constraints, len(problem.bins)
        self.program = LinearProgram("cutting-plane program", deadline=deadline)
        self.floors = self.program.add_columns("floors", np.zeros(n), upper=1.0)
        # Only a callable loss can be negative.
        self.bounded = problem.loss.polynomial
        self.heights = self.program.add_columns(
            "heights", np.ones(groups), lower=0.0 if self.bounded else -1e6
        )
        self.program.add_rows("reach", {"floors": C}, lower=self.reach)
        self.group = np.zeros(0, dtype=int)
        self.constants, self.gradients = np.zeros(0), np.zeros((0, n))
        self.found: list[Planes] = []
        self.best, self.value, self.lower_bound, self.margin = np.zeros(n), math.inf, -math.inf, 0.0
        self.multipliers, self.weights = np.zeros(len(self.reach)), np.zeros(0)

    def add(self, floors: Array, found: Planes) -> None:
        """Add the planes found at `floors`."""
        if found.value < self.value:
            self.best, self.value = floors, found.value
        above = np.zeros((len(found.group), len(self.heights)))
        above[np.arange(len(found.group)), found.group] = 1.0
        blocks = {"floors": -found.gradients / self.unit, "heights": above}
        self.program.add_rows("planes", blocks, lower=found.constants / self.unit)
        self.group = np.append(self.group, found.group)
        self.constants = np.append(self.constants, found.constants)
        self.gradients = np.concatenate([self.gradients, found.gradients])
        self.found.append(found)

    @property
    def proof(self) -> DualPieces | None:
        """Return the planes that the bound averages: chords on their groups' inputs, lines at point masses or worst inputs."""
        return multipliers_of(self.problem, self._averaged(), self.multipliers)

    def _averaged(self) -> Iterator[Array]:
        ends = np.cumsum([len(planes.group) for planes in self.found])
        for planes, share in zip(self.found, np.split(self.weights, ends)):
            if not share.any():
                continue
            table, x = planes.table, planes.inputs
            if planes.owner is not None:
                yield chords(self.problem, table, x, share)
                x, share = self.problem.atoms[0], share[planes.owner]
            yield lines(self.problem, x, share, *self.problem.slopes(x, *table.outputs(x)))

    def solve(self) -> Array | None:
        """Solve the program, raise the lower bound, and return the floors; None if the deadline came first."""
        if self.program.solve() is not Status.OPTIMAL:
            return None
        fixed = self.program.row_dual[: len(self.reach)] * self.unit
        weights = np.maximum(self.program.row_dual[len(self.reach) :], 0.0)
        sums = np.bincount(self.group, weights, len(self.heights))
        if self.bounded or np.all(sums > 0):
            weights = weights / np.where(sums > 0, sums, 1.0)[self.group]
            nu = np.maximum(fixed, 0.0)
            constant, gradient = float(weights @ self.constants), weights @ self.gradients
            bound, margin = lower_bound(self.problem, constant, gradient, nu)
            # Weights are rounded down, so that they sum to at most one.
            lost = 2e-13 * self.problem.scale
            if bound - lost > self.lower_bound:
                self.lower_bound, self.margin = bound - lost, margin + lost
                self.multipliers, self.weights = nu, weights
        return self.problem.inside(np.maximum(self.program.x[self.floors], 0.0))


def worst_planes(problem: FloorProblem, table: Pieces) -> Planes:
    """Return a plane for each local maximum."""
    where, height = loss_peaks(table.table, problem.loss)
    x = np.unique(where)
    constants, gradients = table.duals(problem, x, table.at(x))
    return Planes(float(height.max()), np.zeros(len(x), dtype=int), constants, gradients, table, x)


def cutting_planes(
    problem: FloorProblem,
    *,
    gap: float = 1e-6,
    start: Array | None = None,
    deadline: Deadline | None = None,
    steps: int = 400,
) -> FloorSolution:
    """Minimise the expected or the worst-case loss over the floors by cutting planes, the first of them at `start`.

    Parameters
    ----------
    problem : FloorProblem
        For the worst case its prior is not used.
    gap : float
        Relative gap at which to stop.
    start : ndarray (m,), optional
    deadline : Deadline, optional
    steps : int
        Most programs.

    Examples
    --------
    Two outputs leave no choice; the worst input of Duchi et al.'s mechanism is the centre:

    >>> from scipy import stats
    >>> from mechdesign.problem.losses import Loss
    >>> from mechdesign.problem.priors import Prior
    >>> A = (np.e + 1) / (np.e - 1)
    >>> problem = FloorProblem(np.array([-A, A]), np.e * (1 + 1e-12), -1.0, 1.0,
    ...                        Prior.of(stats.uniform(-1, 2)), Loss.of("absolute"), objective="worst")
    >>> round(cutting_planes(problem).value - A, 9)
    0.0
    """
    worst, parts = problem.objective == "worst", int(np.clip(4 * len(problem.bins), 16, 64))
    edges = np.linspace(problem.lower, problem.upper, parts + 1)

    def oracle(floors: Array) -> Planes:
        table = pieces(problem, floors)
        return worst_planes(problem, table) if worst else expected_planes(problem, table, edges)

    floors = problem.centre if start is None else problem.inside(start)
    found = oracle(floors)
    # In units of a tiny loss, costs times ρ would exceed HiGHS's limit of 1e15.
    unit = max(abs(found.value), 1e-5 * problem.scale)
    bundle = Bundle(problem, 1 if worst else parts, unit, deadline or Deadline(None))
    narrowest, stalled = math.inf, 0
    for _ in range(steps):
        bundle.add(floors, found)
        answer = bundle.solve()
        distance = bundle.value - bundle.lower_bound
        stalled = 0 if distance < 0.9 * narrowest else stalled + 1
        narrowest = min(narrowest, distance)
        # HiGHS solves to 1e-10: below that, cuts accumulate without progress.
        enough = stalled > patience(bundle.value, bundle.lower_bound, bundle.margin)
        if answer is None or distance <= gap * abs(bundle.value) or enough:
            break
        floors, found = answer, oracle(answer)
    return FloorSolution(
        bundle.best,
        bundle.value,
        bundle.lower_bound,
        len(bundle.found),
        bundle.multipliers,
        ("exchange" if worst else "cutting-planes",),
        bundle.proof,
        bundle.margin,
    )


# -- which method finds the floors ----------------------------------------------------------------------------------

Method = Callable[..., FloorSolution]
METHODS: dict[str, Method] = {"newton": newton, "cutting-planes": cutting_planes, "exchange": cutting_planes}
LEAST_GAP = 1e-13
"""Least gap asked of a method: below it the margins for rounding dominate."""


def check_feasible(problem: FloorProblem, epsilon: float, unit: tuple[float, float] = (0.0, 1.0)) -> None:
    """Raise InfeasibleError, with the smallest feasible ε, unless the outermost outputs allow unbiasedness."""
    needed = smallest_epsilon(problem.bins, *problem.reach)
    # Equality up to rounding passes: Duchi et al.'s outputs lie exactly there, and are checked exactly later.
    if needed > epsilon * (1 + 1e-15) + 1e-15:
        # in full if nine digits do not distinguish it from the budget
        least = f"{needed:.9g}" if f"{needed:.9g}" != f"{epsilon:.9g}" else repr(needed)
        first, last, lower, upper = (
            unit[0] + unit[1] * v for v in (problem.bins[0], problem.bins[-1], problem.lower, problem.upper)
        )
        raise InfeasibleError(
            f"outputs in [{first:g}, {last:g}] cannot be unbiased on [{lower:g}, {upper:g}] at epsilon = {epsilon:g}: "
            f"the smallest feasible epsilon is {least}; widen the outputs or raise epsilon",
            smallest_epsilon=needed,
        )


def uncapped(
    problem: FloorProblem,
    gap: float,
    method: str | None = None,
    start: Array | None = None,
    deadline: Deadline | None = None,
    **options: int,
) -> FloorSolution:
    """Find floors of least loss.

    Parameters
    ----------
    problem : FloorProblem
    gap : float
        Relative gap between value and lower bound at which to stop.
    method : {"newton", "cutting-planes", "exchange"}, optional
        The only method to try; by default those that fit, in order.
    start : ndarray (m,), optional
        Floors from which cutting planes start.
    deadline : Deadline, optional
    **options
        `steps`, the most steps of each method, for an expected loss.

    Returns
    -------
    FloorSolution
        The best found and the best bound; the caller judges its `gap`.

    Raises
    ------
    DesignError
        A method that does not fit the objective.
    """
    deadline, gap = deadline or Deadline(None), max(gap, LEAST_GAP)
    if method is not None and (method == "exchange") != (problem.objective == "worst"):
        raise DesignError.of("solver", method, '"exchange" is for objective="worst", and only it is')
    if method == "newton" and not problem.has_density:
        raise DesignError.of("solver", method, 'needs a prior with a density; "cutting-planes" takes samples')
    found: FloorSolution | None = None
    failure: Any = None
    for attempt in _methods(problem, method, start is not None):
        begin = start if found is None or not np.isfinite(found.value) else found.floors
        try:
            guess = {} if attempt is newton else {"start": begin}
            found = attempt(problem, gap=gap, deadline=deadline, **guess, **options).merged(found)
        except (SolverError, InfeasibleError) as error:
            failure = error
            if isinstance(error, InfeasibleError):  # the outermost outputs decide, and were checked before
                words = f"{attempt.__name__} calls feasible floors infeasible ({error.reason})"
                failure = SolverError(words, solver=attempt.__name__, status="defect")
            continue
        if found.gap <= gap or patience(found.value, found.lower_bound, found.margin) == 1 or deadline.passed:
            break
    if found is None:
        raise failure
    if failure is not None:
        deadline.failed(failure, f"{' + '.join(dict.fromkeys(found.methods))} found the floors instead")
    return found


def _methods(problem: FloorProblem, method: str | None, guessed: bool) -> list[Method]:
    """Return the methods to try, in order; only cutting planes can use a guess."""
    if method is not None:
        return [METHODS[method]]
    # With point masses only the loss is piecewise linear, which planes fit and Newton's quadratics do not.
    if problem.objective == "worst" or problem.bias > 0 or not problem.has_density:
        return [cutting_planes]
    return [cutting_planes, newton] if guessed else [newton, cutting_planes]

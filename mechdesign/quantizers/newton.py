r"""The least loss over the floors, by an interior point or `planes`, and the lower bound for all mechanisms that it proves.

**Interior point**, a few dozen Newton steps. The problem is :math:`\min F(a) + \sum_n \omega_n \ell_n \cdot p_n`, F from `floors`: the density's part is
smooth with a known Hessian; each point mass x_n keeps its row p_n as variables, because there the loss has kinks.
All constraints have the form

.. math:: a \ge 0, \quad C a \ge b, \quad p_n \ge a, \quad \rho a \ge p_n, \qquad \sum p_n = 1, \quad B \cdot p_n = x_n,

and the primal–dual equations with all complementary products equal to t are followed to t → 0 (Mehrotra's predictor
and corrector, with an Armijo test on the barrier function, since F is not quadratic). A step costs one dense
factorisation, of m rows and m + 2 more for each end at which a clipped prior has a point mass.

It serves priors with a density; for samples cutting planes take .3 to .8 of its time (results/ablations). The result does not depend on
convergence: every step's floors give a mechanism by exact block fill, its duals a bound for all mechanisms; the best of each is kept.

**A cap** on the mean squared error F₂ is enforced by a multiplier ν ≥ 0 (`best_floors`): block fill is optimal for every convex loss at once,
also for :math:`\ell + \nu (\cdot)^2`, whose lower bound minus ν·cap bounds the capped problem; ν is where the two dual lines next to the
optimum meet. Floors on either side of the cap are mixed until F₂ equals it: F₂ is convex, so the mixture keeps the cap.

**The lower bound** (`loss_bounds`) of any design of quantizers is that of the best mechanism with its outputs, or with a grid of outputs whose
lines are then lowered until the bound covers all outputs between them (`dual_pieces`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import linalg

from mechdesign.errors import DesignError, InfeasibleError, MechdesignError, SolverError
from mechdesign.evidence.exact import safe_root
from mechdesign.problem.losses import Loss
from mechdesign.problem.spine import Bound
from mechdesign.quantizers.dual_pieces import DualPieces, OutputSpace
from mechdesign.quantizers.floors import (
    Continuum,
    FloorProblem,
    FloorSolution,
    fill_proof,
    lower_bound,
    patience,
    pieces,
)
from mechdesign.quantizers.planes import cutting_planes
from mechdesign.quantizers.proofs import DualBound, QuantizerDesign, proved_bound
from mechdesign.quantizers.table import (
    check_outputs,
    check_range,
    mean_loss,
    smallest_epsilon,
    solved_epsilon,
    units_of,
)
from mechdesign.solvers.deadline import Deadline, limited, one_thread
from mechdesign.typing import Array, Numbers

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
        """Return a function that solves (H + Aᵀ diag(w) A) dv − Eᵀ dy = r, E dv = q for right sides (r, q); None if the factorisation fails."""
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
        """Return the density's part at these variables, cached: the step that is taken was evaluated last."""
        at = v[: self.n]
        if self._last is None or not np.array_equal(self._last[0], at):
            self._last = at.copy(), self.problem.continuum(at)
        return self._last[1]

    def assess(self) -> tuple[float, float, float, Continuum]:
        """Return the value of the current floors' fill, the bound from the current duals with its margin, and the density's part."""
        problem, a, part = self.problem, self.floors, self._density(self.v)
        gradient, constant = part.gradient, part.constant
        value = constant + float(a @ gradient)
        x, weights = problem.atoms
        if x.size:
            table, (lam, mu) = pieces(problem, a), self.atom_duals
            head, reduced = table.duals(problem, x, table.at(x))  # they touch the loss at these floors
            value += float(weights @ (head + reduced @ a))
            constant += float(weights @ (lam + mu * x))
            gradient = gradient + weights @ problem.reduced(x, lam, mu)
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


# -- which method finds the floors ----------------------------------------------------------------------------------

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
        The only method to try; by default Newton's where it applies, then cutting planes if the gap is not reached.
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
        raise DesignError.of("solver", method, '"exchange" is for objective="worst", which needs it')
    if method == "newton" and not problem.has_density:
        raise DesignError.of("solver", method, 'needs a prior with a density; "cutting-planes" takes samples')
    # With point masses only the loss is piecewise linear, which planes fit and Newton's quadratics do not.
    linear = problem.objective == "worst" or problem.bias > 0 or not problem.has_density

    def planes(begin: Array | None) -> FloorSolution:
        try:
            return cutting_planes(problem, gap=gap, start=begin, deadline=deadline, **options)
        except InfeasibleError as error:  # the outermost outputs decide, and were checked before
            words = f"cutting planes call feasible floors infeasible ({error.reason})"
            raise SolverError(words, solver="cutting-planes", status="defect") from None

    if method != "newton" and (method is not None or linear or start is not None):
        return planes(start)
    found = newton(problem, gap=gap, deadline=deadline, **options)
    enough = found.gap <= gap or patience(found.value, found.lower_bound, found.margin) == 1
    if method is not None or enough or deadline.passed:
        return found
    if not math.isfinite(found.value):
        return planes(None).merged(found)
    try:
        return planes(found.floors).merged(found)
    except SolverError as error:
        deadline.failed(error, "newton found the floors instead")
        return found


def expected(problem: FloorProblem, floors: Array) -> float:
    """Return F(a), with the bias budget of the problem."""
    return mean_loss(pieces(problem, floors).table, problem.prior, problem.loss)


class _Point(NamedTuple):
    """Floors with their loss and their squared loss."""

    floors: Array
    loss: float
    square: float


def best_floors(
    problem: FloorProblem,
    gap: float,
    method: str | None = None,
    start: Array | None = None,
    deadline: Deadline | None = None,
) -> FloorSolution:
    """Find floors of least loss, under the problem's cap on the squared error if it has one.

    Parameters
    ----------
    problem, gap, method, start, deadline
        As in `uncapped`.

    Raises
    ------
    InfeasibleError
        The cap is below the least possible mean squared error, which the error's `least` states.
    """
    if problem.max_mse is None:
        return uncapped(problem, gap, method, start, deadline)
    cap, deadline = problem.max_mse, deadline or Deadline(None)
    goal = cap * (1 - LEAST_GAP)  # the exact law's squared error is that of the floors only up to rounding
    problem = replace(problem, max_mse=None)
    square = replace(problem, loss=Loss(squared=1.0))

    def point(floors: Array) -> _Point:
        return _Point(floors, expected(problem, floors), expected(square, floors))

    def tight(below: Array, above: Array) -> _Point:
        """Return the point between the two at which the cap is tight."""
        share = safe_root(
            lambda t: expected(square, (1 - t) * below + t * above) - goal, 0.0, 1.0, xtol=1e-14
        )
        return point((1 - share) * below + share * above)

    free = uncapped(problem, 0.1 * gap, method, start, deadline)
    if (above := point(free.floors)).square <= goal:
        return free
    least = uncapped(square, 0.1 * gap, method, start, deadline)
    if least.lower_bound <= cap < least.value:  # too close to call at this gap
        least = uncapped(square, 1e-12, method, least.floors, deadline)
    if least.value > cap:
        if least.lower_bound <= cap:
            raise SolverError("no floors within the cap were found in time", solver="cap", status="limit")
        raise InfeasibleError(
            f"max_mse = {cap:.9g} is below the least possible mean squared error {least.value:.9g} "
            "(at this epsilon, with these outputs and this range)",
            least=least.value,
        )
    goal = min(cap, max(goal, least.value))
    best = below = point(least.floors)
    bound, proof, price = free.lower_bound, free, 0.0
    for _ in range(60):
        if best.loss - bound <= gap * abs(best.loss) or deadline.passed:
            break
        # Where the two dual lines F + ν (F₂ − cap) meet.
        nu = max((below.loss - above.loss) / max(above.square - below.square, 1e-300), 0.0)
        penalised = replace(problem, loss=replace(problem.loss, squared=problem.loss.squared + nu))
        solution = uncapped(penalised, 0.1 * gap, method, best.floors, deadline)
        if solution.lower_bound - nu * cap > bound:
            bound, proof, price = solution.lower_bound - nu * cap, solution, nu
        here = point(solution.floors)
        moved = abs(here.square - (above if here.square > goal else below).square)
        above, below = (here, below) if here.square > goal else (above, here)
        best = min(best, below, tight(below.floors, above.floors), key=lambda p: p.loss)
        if moved <= 1e-13 * abs(cap):
            break
    priced = None if proof.proof is None else replace(proof.proof, cap_price=price)
    return replace(proof, floors=best.floors, value=best.loss, lower_bound=bound, proof=priced)


# -- the lower bound for all mechanisms ----------------------------------------------------------------------

_FEWEST, _MOST = 32, 192  # cells of the input range on a grid of outputs
_SHARE = (
    0.05  # width of a cell relative to how far outputs reach beyond the range, about twice the expected error
)
_ATOMS = 64  # most point masses that are outputs of the grid
_POINTS = 10_000  # most point masses: more take seconds to verify
_ENTRIES = 300_000  # most cells times point masses
_STEPS = 30  # most steps on one grid: enough for Newton's method; cutting planes for a thousand samples may need 45, 11 s


def any_outputs(design: QuantizerDesign, bins: Numbers, deadline: Deadline) -> DualPieces | None:
    """Return multipliers of a lower bound for all mechanisms that a design of quantizers may choose; None if none are found.

    Parameters
    ----------
    design : Design
        Design with privacy (`PureDP`), prior, loss, input range, perhaps a largest bias, and the `output_space` that it searches.
    bins : array
        The mechanism's outputs, to which the bound is limited if nothing is searched.
    deadline : Deadline

    Raises
    ------
    InfeasibleError
        No mechanism exists with these outputs.
    """
    if not design.loss.polynomial or len(design.prior.atoms[0]) > _POINTS:
        return None
    space = design.output_space
    if space is None:
        outputs = bins
    else:
        outputs = _grid(design, space) if space.between else space.points
    found = _solved(design, outputs, deadline)
    if found is None:
        return None
    if space is None:
        return replace(found, outputs=None)
    if not space.between:
        return found
    proof = DualBound.of(design, replace(found, between=True))
    return proof.duals.lowered(proof.asked(design, ()))


def loss_bounds(design: QuantizerDesign, bins: Numbers, deadline: Deadline) -> Iterator[Bound]:
    """Yield the lower bound for all mechanisms that a `QuantizerDesign` may choose, if one above 0 is proved; `bins` as in `any_outputs`."""
    try:
        with limited(deadline.late):
            duals = any_outputs(design, bins, deadline.part(0.5))
            found = None if duals is None else proved_bound(design, duals, bins)
    except InfeasibleError:  # no mechanism exists, so there is nothing to bound
        return
    except MechdesignError as error:
        deadline.failed(error, "no lower bound is stated of mechanisms with any such outputs")
        return
    if found is not None and found.value > 0:
        yield found


def _solved(design: QuantizerDesign, bins: Numbers, deadline: Deadline) -> DualPieces | None:
    """Return multipliers with these outputs."""
    outputs = check_outputs(bins)
    bias = design.largest_bias(outputs.tolist())
    lower, upper = check_range(design.input_range, outputs)
    epsilon = solved_epsilon(design.privacy.epsilon, smallest_epsilon(outputs, lower + bias, upper - bias))
    units = units_of((lower, upper))
    problem = FloorProblem.of(outputs, epsilon, design.prior, design.loss, (lower, upper), units, bias)
    check_feasible(problem, design.privacy.epsilon, units)
    solution = uncapped(problem, 1e-4, deadline=deadline, steps=_STEPS)
    if solution.proof is None or not math.isfinite(solution.lower_bound):
        return None
    proof = solution.proof
    if len(problem.atoms[0]) > _ATOMS:  # one line for each, instead of one per cut
        proof = fill_proof(problem, solution.floors, solution.multipliers) or proof
    return replace(proof.in_units(*units), outputs=outputs)


def _grid(design: QuantizerDesign, space: OutputSpace) -> Array:
    """Return a grid of outputs: even on the input range; for a squared loss even for some way beyond it, then with growing cells."""
    low, high = design.input_range
    (first, last), half, atoms = space.points, (high - low) / 2, design.prior.atoms[0]
    # how far beyond the range outputs of the least squared error are
    beyond = half * (1 / math.tanh(design.privacy.epsilon / 4) - 1)
    cells = min(
        max(_FEWEST, 2 * half / max(_SHARE * beyond, 2 * half / _MOST)), _ENTRIES // max(1, len(atoms))
    )
    cell = 2 * half / cells
    inner = np.linspace(low, high, 1 + math.ceil(cells))
    if len(atoms) <= _ATOMS:
        inner = np.union1d(inner, atoms[(atoms > low) & (atoms < high)])
        inner = inner[np.diff(inner, prepend=-math.inf) > 1e-9 * half]
    if design.loss.squared:
        farthest = max(low - first, last - high)
        used = beyond + 16 * cell
        even = max(cell, used / _FEWEST)
        steps, place = [], 0.0
        while place < farthest:
            place += max(even, 0.1 * (place - used))  # cells grow from there on
            steps.append(place)
        inner = np.concatenate([low - np.array(steps)[::-1], inner, high + np.array(steps)])
    found = np.concatenate([[first], inner[(inner > first) & (inner < last)], [last]])
    return found.compress(np.concatenate([[True], np.diff(found[:-1]) > 1e-9 * half, [True]]))

r"""Floors of the optimal quantizer by cutting planes, with a proved gap, for every convex loss, expected or worst; and the choice of a method.

The loss of the best mechanism with floors a is a sum of convex functions, :math:`F = \sum_g F_g`, and the fill's
duals at any floors give planes below each of them,

.. math:: F_g(a) \ge \int_g (\lambda + \mu x - b|\mu|)\,dF + \sum_k a_k \int_g h(c_k)\,dF,

so the linear program

.. math:: \min \sum_g \theta_g \quad\text{subject to}\quad
          \theta_g \ge \text{constant} + \text{gradient} \cdot a \;\text{(planes found so far)}, \quad a \in A

is a lower bound that rises, and every a it visits gives a mechanism (Benders 1962; Kelley 1960, one epigraph variable
per group of inputs). The worst case is one group, with a plane for each of the worst inputs (`worst_case`). New planes
are taken at the program's solution. HiGHS keeps its basis between rounds.

Designs that need it: samples as the prior, of which the loss is piecewise linear (Newton's method took up to 73 times as long:
line *cutting planes* of results/ablations), bias budgets, the worst case, and what the Newton iteration could not finish.

**Worst case**: cuts at the worst inputs, with a least favourable prior as the proof.

.. math:: \min_{a \in A} \max_{x \in [lo, hi]} V(x; a)

V(·; a) of the block fill is a quadratic on each piece (polynomial losses), so all its local maxima are found exactly.
Each one gives a plane below the maximum, :math:`z \ge \lambda + \mu x - b|\mu| + \sum_k a_k h(c_k)`, for a linear program
over (a, z) that HiGHS keeps warm: an exchange of worst inputs as in Remez's algorithm, with the floors as the only
variables (`minimise`). The multipliers ω ≥ 0, Σω = 1 of the planes are a prior on finitely many inputs, and the planes averaged
with them bound the *expected* loss of every mechanism under that prior from below, hence the worst case too: the same
bound as in `expected_loss`, exact for the continuum. A handful of rounds suffices, whatever the number of outputs.

**Methods** are tried in order until the gap is proved, and their results merged. **A cap** on the mean squared error is met by a multiplier.

.. math:: \min_{a \in A} F(a) \quad \text{subject to} \quad F_2(a) \le \text{cap},

F₂ the expected squared loss. The block fill of given floors is optimal for *every* convex loss at once, so both
functions belong to the same mechanism. For a multiplier ν ≥ 0 the loss :math:`\ell + \nu (\cdot)^2` is convex
again, and its lower bound minus ν·cap is a lower bound for the capped problem; ν is found by intersecting the two
dual lines next to the optimum. Floors on either side of the cap are mixed until F₂ equals it: F₂ is convex, so
the mixture keeps the cap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.exact import safe_root
from mechdesign.problem.losses import Loss
from mechdesign.quantizers.dual_pieces import DualPieces
from mechdesign.quantizers.floors import (
    FloorProblem,
    FloorSolution,
    Pieces,
    chords,
    lines,
    lower_bound,
    multipliers_of,
    patience,
    pieces,
    smallest_epsilon,
)
from mechdesign.quantizers.newton import newton
from mechdesign.quantizers.table import loss_peaks
from mechdesign.solvers import LinearProgram
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Indices, Status


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
        The ends of the groups; of the worst case, the input of each plane.
    owner : ndarray, optional
        The group that each of the prior's point masses is in; None for the worst case.
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
        Epigraph variables θ.
    unit : float
        Loss that counts as 1 in the program.
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
        """Take in the planes found at `floors`."""
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
        """The planes that the bound averages: chords on their groups' inputs, lines at point masses or worst inputs."""
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
        """Return the program's floors, and raise the lower bound; None where the deadline came first."""
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
            # Weights are rounded down to add up to no more than one.
            lost = 2e-13 * self.problem.scale
            if bound - lost > self.lower_bound:
                self.lower_bound, self.margin = bound - lost, margin + lost
                self.multipliers, self.weights = nu, weights
        return self.problem.inside(np.maximum(self.program.x[self.floors], 0.0))


def minimise(
    problem: FloorProblem,
    oracle: Callable[[Array], Planes],
    groups: int,
    name: str,
    gap: float,
    start: Array | None,
    deadline: Deadline | None,
    steps: int = 400,
) -> FloorSolution:
    """Minimise the loss that `oracle` gives planes of, for expected and worst-case losses alike."""
    floors = problem.centre if start is None else problem.inside(start)
    found = oracle(floors)
    # In units of a loss next to nothing, costs times ρ would be beyond the 1e15 that HiGHS takes.
    bundle = Bundle(problem, groups, max(abs(found.value), 1e-5 * problem.scale), deadline or Deadline(None))
    narrowest, stalled = math.inf, 0
    for _ in range(steps):
        bundle.add(floors, found)
        answer = bundle.solve()
        distance = bundle.value - bundle.lower_bound
        stalled = 0 if distance < 0.9 * narrowest else stalled + 1
        narrowest = min(narrowest, distance)
        # HiGHS solves to 1e-10: below that, cuts pile up without any progress.
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
        (name,),
        bundle.proof,
        bundle.margin,
    )


def cutting_planes(
    problem: FloorProblem,
    *,
    gap: float = 1e-6,
    start: Array | None = None,
    deadline: Deadline | None = None,
    **options: int,
) -> FloorSolution:
    """Minimise the expected loss over the floors by cutting planes.

    Arguments and answer as of `mechdesign.quantizers.planes.uncapped`; `start` is cut at first.
    """
    edges = np.linspace(problem.lower, problem.upper, int(np.clip(4 * len(problem.bins), 16, 64)) + 1)

    def oracle(floors: Array) -> Planes:
        return expected_planes(problem, pieces(problem, floors), edges)

    return minimise(problem, oracle, len(edges) - 1, "cutting-planes", gap, start, deadline, **options)


def worst_planes(problem: FloorProblem, floors: Array) -> Planes:
    """Return a plane for each local maximum."""
    table = pieces(problem, floors)
    where, height = loss_peaks(table.table, problem.loss)
    x = np.unique(where)
    constants, gradients = table.duals(problem, x, table.at(x))
    return Planes(float(height.max()), np.zeros(len(x), dtype=int), constants, gradients, table, x)


def worst_case(
    problem: FloorProblem, *, gap: float = 1e-6, start: Array | None = None, deadline: Deadline | None = None
) -> FloorSolution:
    """Minimise the worst-case loss over all inputs.

    Parameters
    ----------
    problem : FloorProblem
        Its prior plays no part.
    gap : float
        Relative gap to stop at.
    start : ndarray (m,), optional
        Floors to cut at first.
    deadline : Deadline, optional

    Returns
    -------
    FloorSolution
        ``iterations`` counts programs.

    Examples
    --------
    Two outputs leave no choice; the worst input of Duchi et al.'s mechanism is the centre:

    >>> from scipy import stats
    >>> from mechdesign.problem.losses import Loss
    >>> from mechdesign.problem.priors import Prior
    >>> A = (np.e + 1) / (np.e - 1)
    >>> problem = FloorProblem(np.array([-A, A]), np.e * (1 + 1e-12), -1.0, 1.0,
    ...                        Prior.of(stats.uniform(-1, 2)), Loss.of("absolute"))
    >>> round(worst_case(problem).value - A, 9)
    0.0
    """
    return minimise(
        problem, lambda floors: worst_planes(problem, floors), 1, "exchange", gap, start, deadline
    )


Method = Callable[..., FloorSolution]
METHODS: dict[str, Method] = {"newton": newton, "cutting-planes": cutting_planes, "exchange": worst_case}
LEAST_GAP = 1e-13
"""Below it the margins for rounding decide, not the method."""


def check_feasible(problem: FloorProblem, epsilon: float, unit: tuple[float, float] = (0.0, 1.0)) -> None:
    """Raise InfeasibleError, with the smallest feasible ε, unless the outermost outputs allow unbiasedness."""
    needed = smallest_epsilon(problem.bins, *problem.reach)
    # Equality up to rounding is let through: Duchi et al.'s outputs sit exactly there, and are checked exactly later.
    if needed > epsilon * (1 + 1e-15) + 1e-15:
        first, last, lower, upper = (
            unit[0] + unit[1] * v for v in (problem.bins[0], problem.bins[-1], problem.lower, problem.upper)
        )
        raise InfeasibleError(
            f"outputs in [{first:g}, {last:g}] cannot be unbiased on [{lower:g}, {upper:g}] at epsilon = {epsilon:g}: "
            f"the smallest feasible epsilon is {_distinct(needed, epsilon)}; widen the outputs or raise epsilon",
            smallest_epsilon=needed,
        )


def _distinct(number: float, other: float) -> str:
    """The number in as few digits as tell it from the other."""
    short = f"{number:.9g}"
    return repr(number) if short == f"{other:.9g}" else short


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
        Relative gap between value and lower bound to stop at.
    method : {"newton", "cutting-planes", "exchange"}, optional
        The only one to try; by default those that fit, in order.
    start : ndarray (m,), optional
        Floors that cutting planes begin with.
    deadline : Deadline, optional
    **options
        `steps` that each method takes at most, for an expected loss.

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
    failure: SolverError | None = None
    for attempt in _methods(problem, method, start is not None):
        begin = start if found is None or not np.isfinite(found.value) else found.floors
        try:
            guess = {} if attempt is newton else {"start": begin}
            found = attempt(problem, gap=gap, deadline=deadline, **guess, **options).merged(found)
        except SolverError as error:
            failure = error
            continue
        except InfeasibleError as error:  # the outermost outputs decide, and were asked
            words = f"{attempt.__name__} calls feasible floors infeasible ({error.reason})"
            failure = SolverError(words, solver=attempt.__name__, status="defect")
            continue
        if found.gap <= gap or patience(found.value, found.lower_bound, found.margin) == 1 or deadline.passed:
            break
    if found is None:
        raise failure or SolverError("no method was tried", solver=str(method), status="none")
    if failure is not None:
        deadline.failed(failure, f"{' + '.join(dict.fromkeys(found.methods))} found the floors instead")
    return found


def _methods(problem: FloorProblem, method: str | None, guessed: bool) -> list[Method]:
    """What to try, in order; only cutting planes can use a guess."""
    if method is not None:
        return [METHODS[method]]
    if problem.objective == "worst":
        return [worst_case]
    # Point masses alone make the loss piecewise linear, which planes fit and Newton's quadratics do not.
    if problem.bias > 0 or not problem.has_density:
        return [cutting_planes]
    return [cutting_planes, newton] if guessed else [newton, cutting_planes]


def expected(problem: FloorProblem, floors: Array) -> float:
    """F(a), with the bias budget of the problem."""
    return pieces(problem, floors).expected_loss(problem)


@dataclass(frozen=True, eq=False)
class _Point:
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
        The cap is below the least possible mean squared error, which `least` of the error holds.
    """
    if problem.max_mse is None:
        return uncapped(problem, gap, method, start, deadline)
    cap, deadline = problem.max_mse, deadline or Deadline(None)
    # The exact law's squared error is the floors' to rounding, and must be within the cap.
    goal = cap * (1 - LEAST_GAP)
    problem = replace(problem, max_mse=None)
    square = replace(problem, loss=Loss(squared=1.0))

    def point(floors: Array) -> _Point:
        return _Point(floors, expected(problem, floors), expected(square, floors))

    free = uncapped(problem, 0.1 * gap, method, start, deadline)
    above = point(free.floors)
    if above.square <= goal:
        return free
    least = uncapped(square, 0.1 * gap, method, start, deadline)
    if least.lower_bound <= cap < least.value:
        # Too close to call at this gap.
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
            bound, proof = solution.lower_bound - nu * cap, solution
            price = nu
        here = point(solution.floors)
        moved = abs(here.square - (above if here.square > goal else below).square)
        above, below = (here, below) if here.square > goal else (above, here)
        best = min(best, below, _mixture(square, goal, below, above, point), key=lambda p: p.loss)
        if moved <= 1e-13 * abs(cap):
            break
    priced = None if proof.proof is None else replace(proof.proof, cap_price=price)
    return replace(proof, floors=best.floors, value=best.loss, lower_bound=bound, proof=priced)


def _mixture(
    square: FloorProblem, cap: float, below: _Point, above: _Point, point: Callable[[Array], _Point]
) -> _Point:
    """On the segment between the two, the point that uses the cap fully."""

    def excess(share: float) -> float:
        return expected(square, (1 - share) * below.floors + share * above.floors) - cap

    share = safe_root(excess, 0.0, 1.0, xtol=1e-14)
    return point((1 - share) * below.floors + share * above.floors)

r"""The provably optimal quantizer: least loss of all ε-LDP unbiased mechanisms with given outputs.

.. math::
   \min_p \int \sum_i p(x, i)\, \ell(B_i - x)\, dF(x) \quad\text{s.t.}\quad
   p(x, i) \le e^\varepsilon p(x', i), \qquad \sum_i p(x, i) = 1, \qquad \sum_i B_i p(x, i) = x
   \qquad \forall x, x' \in [lo, hi], \forall i.

Infinitely many variables, yet solved on the continuum: for given floors :math:`a_i = \min_x p(x, i)` the rest is
a closed form (`floors`), the floors are found by an interior-point or a cutting-plane method (`floor_newton`,
`floor_cuts`), and every answer comes with a lower bound over all mechanisms and an exact rational law.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP
from mechdesign.quantizers.mechanism.selection import check_bins, check_range, mirrored_bins, symmetric_bins
from mechdesign.quantizers.optimal.cutting_planes import cutting_planes
from mechdesign.quantizers.optimal.expected_loss import FloorProblem
from mechdesign.quantizers.optimal.floors import interior_floors, smallest_epsilon
from mechdesign.quantizers.optimal.mse_cap import capped
from mechdesign.quantizers.optimal.newton import FloorSolution, newton
from mechdesign.quantizers.optimal.outputs import Alphabet, BinSearch, search_bins, solve_alphabet
from mechdesign.quantizers.optimal.result import OptimalQuantizerResult, deploy
from mechdesign.quantizers.optimal.worst_case import worst_case
from mechdesign.typing import Array

if TYPE_CHECKING:
    from mechdesign.solvers.base import Model

__all__ = ["OptimalQuantizer"]

METHODS = ("newton", "cutting-planes", "exchange")
# Below this the bound's rounding margin decides, not the method.
LEAST_GAP = 1e-13


def _number(name: str, value: Any, least: float, allowed: str, *, strict: bool = False) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise DesignError.of(name, value, allowed) from None
    if not math.isfinite(number) or number < least or (strict and number == least):
        raise DesignError.of(name, value, allowed)
    return number


@serializable("optimal-quantizer")
@dataclass(frozen=True)
class OptimalQuantizer:
    r"""The best ε-LDP unbiased quantizer there is, with a proof.

    Parameters
    ----------
    bins : array_like of shape (m,), BinSearch or Alphabet
        Output values covering the input range; or how to find them.
    privacy : PureDP
        The local-DP budget. (Metric and approximate privacy: `MetricQuantizer`.)
    prior : frozen scipy.stats law, md.clipped, md.truncated, or samples
        Law of the input.
    loss : "absolute", "squared", dict of the two, or convex callable
        Cost of the error :math:`B_i - x`.
    objective : {"mean", "worst"}
        Expected loss under the prior, or the largest over all inputs.
    max_mse : float, optional
        Cap on the expected squared error under the prior (mean objective).
    max_bias : float
        Allowed :math:`|E M(x) - x|`, the same for every x; 0 is unbiased.
    input_range : (float, float), optional
        Defaults to the prior's support.

    Raises
    ------
    DesignError
        Bad bins, prior, loss (not convex), objective or budget, each named.

    Examples
    --------
    >>> from scipy import stats
    >>> design = OptimalQuantizer(bins=[-3.0, -0.5, 0.5, 3.0], privacy=PureDP(1.0), prior=stats.uniform(-1, 2))
    >>> result = design.solve(gap=1e-6)
    >>> round(result.value, 5), result.gap <= 1e-6, result.certify().verify()
    (1.70054, True, True)
    """

    bins: Any
    privacy: PureDP
    prior: Any
    loss: Any = "absolute"
    objective: str = "mean"
    max_mse: float | None = None
    max_bias: float = 0.0
    input_range: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.privacy, PureDP):
            raise DesignError.of(
                "privacy",
                self.privacy,
                "must be md.PureDP(epsilon); md.MetricQuantizer takes metric and approximate privacy",
            )
        if self.objective not in ("mean", "worst"):
            raise DesignError.of("objective", self.objective, 'must be "mean" or "worst"')
        object.__setattr__(
            self, "max_bias", _number("max_bias", self.max_bias, 0.0, "must be finite and at least 0")
        )
        if self.max_mse is not None:
            cap = _number("max_mse", self.max_mse, 0.0, "must be positive and finite", strict=True)
            object.__setattr__(self, "max_mse", cap)
            if self.objective == "worst":
                raise DesignError.of("max_mse", self.max_mse, 'goes with objective="mean" only')
        prior = Prior.of(self.prior)
        given = prior.support if self.input_range is None else self.input_range
        if isinstance(self.bins, (BinSearch, Alphabet)):
            ends = np.array([-self.bins.max_abs, self.bins.max_abs])
        else:
            ends = mirrored_bins(check_bins(self.bins))
            object.__setattr__(self, "bins", tuple(ends.tolist()))
        lower, upper = check_range(given, ends)
        object.__setattr__(self, "prior", Prior.of(prior, (lower, upper)))
        object.__setattr__(self, "input_range", (lower, upper))
        object.__setattr__(self, "loss", Loss.of(self.loss))
        self.loss.check_convex(ends, lower, upper)

    @cached_property
    def symmetric(self) -> bool:
        """Whether everything mirrors about zero, so that half the floors suffice."""
        lower, upper = self.input_range
        if lower != -upper or isinstance(self.bins, (BinSearch, Alphabet)):
            return False
        bins = np.array(self.bins)
        if not symmetric_bins(bins) or not (self.objective == "worst" or self._mirrored_prior()):
            return False
        if self.loss.polynomial:
            return True
        errors = np.linspace(0.0, float(bins[-1] - lower), 257)
        return bool(np.allclose(self.loss(errors), self.loss(-errors), rtol=1e-13, atol=0))

    def _mirrored_prior(self) -> bool:
        # The density tells at once where the law is not symmetric; only its moments prove that it is.
        x = np.sqrt(np.linspace(0.01, 0.99, 17)) * self.input_range[1]
        with np.errstate(all="ignore"):
            here, there = self.prior.pdf(x), self.prior.pdf(-x)
        return bool(np.allclose(here, there, rtol=1e-9, atol=1e-12)) and self.prior.symmetric()

    def problem(self) -> FloorProblem:
        """The design in terms of floors: what the method works on."""
        bins = np.array(self.bins, dtype=float)
        lower, upper = self.input_range
        rho = math.exp(self.privacy.epsilon)
        return FloorProblem(bins, rho, lower, upper, self.prior, self.loss, self.symmetric, self.max_bias)

    def model(self, knots: Any = 33) -> Model:
        """Declare the linear program on a grid of knots in CVXPY: the reference, for small sizes.

        Parameters
        ----------
        knots : int or array_like
            Number of equally spaced knots (bins inside the range are added), or the knots.
        """
        from mechdesign.quantizers.optimal.model import knot_model

        if isinstance(self.bins, (BinSearch, Alphabet)):
            raise DesignError("bins: model() needs the output values; solve() searches them")
        lower, upper = self.input_range
        bins = np.array(self.bins)
        if np.ndim(knots) == 0:
            inside = bins[(bins > lower) & (bins < upper)]
            points = np.unique(np.concatenate([np.linspace(lower, upper, max(2, int(knots))), inside]))
        else:
            points = np.asarray(knots, dtype=float)
        return knot_model(
            bins,
            self.privacy.epsilon,
            self.prior,
            self.loss,
            points,
            objective=self.objective,
            max_mse=self.max_mse,
            max_bias=self.max_bias,
        )

    def _check_feasible(self, problem: FloorProblem) -> None:
        needed = smallest_epsilon(problem.bins, *problem.reach)
        epsilon = self.privacy.epsilon
        # Equality up to rounding is let through: Duchi et al.'s outputs sit exactly there.
        if needed > epsilon * (1 + 4e-16):
            lower, upper = self.input_range
            raise InfeasibleError(
                f"outputs in [{problem.bins[0]:g}, {problem.bins[-1]:g}] cannot be unbiased on "
                f"[{lower:g}, {upper:g}] at epsilon = {epsilon:g}: the smallest feasible epsilon is "
                f"{needed:.9g}; widen the outputs or raise epsilon",
                smallest_epsilon=needed,
            )

    def floors(self, gap: float, method: str | None = None, start: Array | None = None) -> FloorSolution:
        """Find the floors; `solve` turns them into a deployable mechanism."""
        problem = self.problem()
        self._check_feasible(problem)

        def mean(part: FloorProblem, wanted: float) -> FloorSolution:
            return _minimise(part, wanted, method, start)

        if self.objective == "worst":
            return worst_case(problem, gap=gap)
        if self.max_mse is not None:
            return capped(problem, self.max_mse, mean, gap=gap)
        return mean(problem, gap)

    def solve(self, gap: float = 1e-6, solver: str | None = None, **options: Any) -> OptimalQuantizerResult:
        """Find the optimum to a proved relative gap.

        Parameters
        ----------
        gap : float
            Relative gap between value and lower bound to stop at. What cannot be reached in double precision is
            answered with what was proved.
        solver : str, optional
            ``"newton"``, ``"cutting-planes"`` (both bound the continuum), ``"exchange"`` (worst case), or a backend
            of `mechdesign.solvers`, which solves `model` on a grid of knots and hands its floors to the cutting
            planes. None chooses.
        **options
            ``knots`` for `model`, and the backend's own options.

        Raises
        ------
        InfeasibleError
            The outputs cannot be unbiased at this ε (with the smallest feasible one), or `max_mse` is below the
            least possible.
        """
        wanted = _number("gap", gap, 0.0, "must be a positive number", strict=True)
        if isinstance(self.bins, Alphabet):
            return solve_alphabet(self, wanted, solver)
        if isinstance(self.bins, BinSearch):
            return search_bins(self, wanted, solver)
        started = time.perf_counter()
        goal = max(0.5 * wanted, LEAST_GAP)
        fallbacks: tuple[str, ...] = ()
        name = solver
        if solver is None or solver in METHODS:
            if options:
                raise DesignError.of("options", sorted(options), f"the methods {METHODS} take no options")
            if (solver == "exchange") != (self.objective == "worst") and solver is not None:
                raise DesignError.of("solver", solver, '"exchange" is for objective="worst", and only it is')
            solution = self.floors(goal, solver)
            name = _method_name(self, solution) if solver is None else solver
        else:
            from mechdesign import solvers

            self._check_feasible(self.problem())
            answer = solvers.solve(self.model(options.pop("knots", 33)), solver, **options)
            name, fallbacks = f"{answer.solver} + bound", answer.fallbacks
            solution = self.floors(goal, None, np.asarray(answer.primal["a"]))
        return deploy(
            self,
            solution,
            wanted,
            SolveReport(
                solver=str(name),
                seconds=time.perf_counter() - started,
                iterations=solution.iterations,
                variables=len(self.bins),
                constraints=len(self.problem().constraints[1]),
                requested=solver,
                fallbacks=fallbacks,
            ),
        )

    def at(self, **changes: Any) -> OptimalQuantizer:
        """Return the design with some fields changed."""
        return replace(self, **changes)


def _method_name(design: OptimalQuantizer, solution: FloorSolution) -> str:
    if design.objective == "worst":
        return "exchange"
    return "cutting-planes" if solution.cuts else "closed-form" if not solution.iterations else "newton"


def _minimise(
    problem: FloorProblem, gap: float, method: str | None = None, start: Array | None = None
) -> FloorSolution:
    """Least expected loss by the fitting method, with cutting planes to finish what Newton could not."""
    m = len(problem.bins)
    nothing = np.zeros(len(problem.constraints[1]))
    if m == 2 and problem.bias == 0:
        # Two outputs and a given mean leave no choice.
        floors = interior_floors(problem.bins, problem.rho, *problem.reach)
        value = problem.value(floors)
        margin = 64 * np.finfo(float).eps * max(1.0, abs(value))
        return FloorSolution(floors, value, value - margin, 0, nothing, np.zeros(len(problem.atoms[0])))
    atoms = len(problem.atoms[0])
    # Many point masses make F piecewise linear: planes fit it better than Newton's quadratics, and need less memory.
    many = atoms > 30
    if problem.bias > 0 or method == "cutting-planes":
        return cutting_planes(problem, gap=gap, start=start)
    if method == "newton":
        return newton(problem, gap=gap)
    best = cutting_planes(problem, gap=gap, start=start) if many else newton(problem, gap=gap)
    if best.gap <= gap or (m > 512 and not many) or (many and atoms * m > 1_000_000):
        return best
    begin = best.floors if math.isfinite(best.value) else start
    more = newton(problem, gap=gap) if many else cutting_planes(problem, gap=gap, start=begin)
    return replace(
        more if more.lower_bound > best.lower_bound else best,
        floors=more.floors if more.value < best.value else best.floors,
        value=min(more.value, best.value),
        lower_bound=max(more.lower_bound, best.lower_bound),
        iterations=best.iterations + more.iterations,
        cuts=max(more.cuts, best.cuts),
    )

r"""OPTM: the optimal randomized quantization mechanism of the selection family.

Source: *Privacy-Aware Randomized Quantization via Linear Programming*, Theorems 3–6 and Algorithm 2. The linear
program is in `mechdesign.quantizers.optm.model`; this module says what is wanted, has the bounds that linearise the program
searched (`bound_search`) or, beyond four bins, the bilinear problem followed down (`successive`), and certifies
what comes out.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from mechdesign import solvers
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import whole
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP
from mechdesign.quantizers.common.certificate import QuantizerCertificate
from mechdesign.quantizers.common.result import QuantizerResult, exceeds
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.mechanism.selection import check_bins, check_range, mirrored_bins, symmetric_bins
from mechdesign.quantizers.optm.blocks import SelectionBlocks
from mechdesign.quantizers.optm.boxes import BoundPoint, grid_bounds, search_theorem6, solve_bounds
from mechdesign.quantizers.optm.model import OPTMProgram
from mechdesign.quantizers.optm.successive import LinearisedPoint, improve, spread
from mechdesign.runs.grid import Grid
from mechdesign.typing import Array

__all__ = ["OPTM"]

CONSTRAINTS = ("theorem5", "theorem6", "across-outputs")


@serializable("optm")
@dataclass(frozen=True)
class OPTM:
    r"""The best selection mechanism that the OPTM linear programs find for fixed bins.

    Parameters
    ----------
    bins : array_like, shape (m,)
        Output values, covering the input range.
    privacy : PureDP
        The local-DP budget.
    prior : frozen scipy.stats law, md.clipped, md.truncated, or samples
        Law of the input.
    loss : "absolute", "squared", dict of weights, or convex callable
        With bounds, the program minimises Lemma 1's linear upper bound of it (of the absolute loss for callables);
        "successive" minimises the exact loss. The value reported is always the exact loss.
    input_range : (float, float), optional
        Defaults to the prior's support.
    constraints : {"theorem5", "theorem6", "across-outputs"}
        Theorem 5 (per output, all pairs), the compact Theorem 6, or what the paper's authors solve for
        asymmetric bins: every maximum against every minimum across outputs.
    families : {"auto", "symmetric", "separate"}
        One mirrored family (symmetric bins) or two (Theorem 4). "auto" follows the bins.
    bounds : Grid or (lower, upper) or "successive" or None
        How products are linearised: a `Grid` with the axis ``level`` (and ``width``, one value; for separate
        families also ``level_right``), a pair of triangular arrays, or "successive": no bounds, but loss and
        privacy linearised again and again at the current mechanism, down to a local optimum of the exact problem. None
        takes the paper's grid up to four bins and "successive" beyond.

    Raises
    ------
    DesignError
        Bad bins, prior, loss or constraint set, each named.

    Examples
    --------
    >>> from scipy import stats
    >>> design = OPTM(bins=[-3, -0.5, 0.5, 3], privacy=PureDP(1.0), prior=stats.uniform(-1, 2))
    >>> result = design.solve()
    >>> round(result.value, 4), result.mechanism.privacy_loss() <= 1.0
    (1.8785, True)
    """

    bins: Any
    privacy: PureDP
    prior: Any
    loss: Any = "absolute"
    input_range: Any = None
    constraints: str = "theorem5"
    families: str = "auto"
    bounds: Any = None

    def __post_init__(self) -> None:
        bins = mirrored_bins(check_bins(self.bins))
        object.__setattr__(self, "bins", tuple(bins.tolist()))
        if not isinstance(self.privacy, PureDP):
            raise DesignError.of("privacy", self.privacy, "OPTM gives pure local DP: use md.PureDP(epsilon)")
        if self.constraints not in CONSTRAINTS:
            raise DesignError.of("constraints", self.constraints, f"must be one of {CONSTRAINTS}")
        if self.families not in ("auto", "symmetric", "separate"):
            raise DesignError.of("families", self.families, 'must be "auto", "symmetric" or "separate"')
        prior = Prior.of(
            self.prior, None if self.input_range is None else check_range(self.input_range, bins)
        )
        given = prior.support if self.input_range is None else self.input_range
        object.__setattr__(self, "prior", prior)
        object.__setattr__(self, "input_range", check_range(given, bins))
        object.__setattr__(self, "loss", Loss.of(self.loss))
        self.loss.check_convex(bins, *self.input_range)
        symmetric = symmetric_bins(bins) and self.input_range[0] == -self.input_range[1]
        if not symmetric and (self.families == "symmetric" or self.constraints == "theorem6"):
            which = "Theorem 6" if self.constraints == "theorem6" else 'families="symmetric"'
            raise DesignError.of(
                "bins",
                self.bins,
                f'{which} needs bins and range that mirror about 0; use families="separate" with theorem5',
            )
        if self.constraints == "theorem6" and not any(
            self.input_range[0] <= b <= self.input_range[1] for b in bins
        ):
            raise DesignError.of("bins", self.bins, "Theorem 6 needs a bin inside the input range")
        if self.families == "auto":
            object.__setattr__(self, "families", "symmetric" if symmetric else "separate")
        if self.bounds is not None and not isinstance(self.bounds, Grid) and self.bounds != "successive":
            object.__setattr__(self, "bounds", self._check_pair(self.bounds))

    def _check_pair(self, given: Any) -> tuple[Array, Array]:
        m = len(self.bins)
        try:
            low, high = (np.array(b, dtype=float) for b in given)
        except (TypeError, ValueError):
            raise DesignError.of(
                "bounds", given, 'must be a md.Grid, "successive", or a pair of arrays (lower, upper)'
            ) from None
        if low.shape != (m - 1, m - 1) or high.shape != (m - 1, m - 1):
            raise DesignError(
                f"bounds have shapes {low.shape}, {high.shape}: both must be ({m - 1}, {m - 1}), triangular"
            )
        bad = np.argwhere(np.tril(~((low >= 0) & (low <= high))))
        if len(bad):
            n, i = bad[0]
            raise DesignError(
                f"bounds: o_{n + 1}({i + 1}) = {low[n, i]:g} > u_{n + 1}({i + 1}) = {high[n, i]:g}; need 0 <= o <= u"
                if low[n, i] > high[n, i]
                else f"bounds: o_{n + 1}({i + 1}) = {low[n, i]:g}; need 0 <= o <= u"
            )
        return low, high

    # -- model ----------------------------------------------------------------------------------------

    @cached_property
    def program(self) -> OPTMProgram:
        """The linear program's numbers and structure."""
        return OPTMProgram(
            np.array(self.bins),
            self.input_range,
            self.prior,
            self.loss,
            self.constraints,
            self.families == "separate",
        )

    def model(self, low: Any = None, high: Any = None) -> solvers.Model:
        """Return the CVXPY model for bounds given as triangular arrays (default: 0 and 1)."""
        width = self.program.width
        flat_low = np.zeros(width) if low is None else self.program.flatten(np.asarray(low), np.asarray(low))
        flat_high = (
            np.ones(width) if high is None else self.program.flatten(np.asarray(high), np.asarray(high))
        )
        return self.program.model(self.privacy.epsilon, flat_low, flat_high)

    # -- solve ----------------------------------------------------------------------------------------

    def solve(
        self,
        solver: str | None = None,
        *,
        certify: bool = True,
        start: Quantizer | None = None,
        outputs: int = 64,
        **options: Any,
    ) -> QuantizerResult:
        """Search the bounds, certify the best mechanism, and return it with its evidence.

        Parameters
        ----------
        solver : str, optional
            "highs" (default; warm-started), or any registered backend.
        certify : bool
            Return a rational mechanism proved inside the budget (default), or the solver's floats.
        start : Quantizer, optional
            A selection mechanism with these bins within the budget: "successive" ends no higher.
        outputs : int
            "successive" draws from at most that many of the bins, chosen evenly; the others only divide the
            inputs. Costs little accuracy, and keeps programs with hundreds of bins small.

        Raises
        ------
        InfeasibleError
            No bounds tried admit a mechanism; says why, with the smallest feasible ε where it takes under a second.
        """
        started = time.perf_counter()
        outputs = whole("outputs", outputs, 4)
        point: BoundPoint | LinearisedPoint | None
        lower_bound = None
        if self._successive:
            point, count, lower_bound = self._follow(solver, start, outputs, options)
        else:
            point, count = self._best_point(self.privacy.epsilon, solver, options)
        if point is None:
            raise self._infeasible(solver, options)
        mechanism = Quantizer.of_selection(point.selection(), self.input_range)
        value = mechanism.expected_loss(self.prior, self.loss)
        certificate, rise = None, 0.0
        if certify:
            mechanism, certificate = self._certified(point, solver, options)
            certified_value = mechanism.expected_loss(self.prior, self.loss)
            rise, value = (certified_value - value) / value, certified_value
        seconds = time.perf_counter() - started
        if isinstance(point, LinearisedPoint):
            notes = [
                f"a local optimum, after {count} linearised programs, {seconds:.3g} s in all",
                "the lower bound is that of all unbiased mechanisms with these outputs",
            ]
            lower_bound = None if lower_bound is None else min(lower_bound, value)
        else:
            notes = [f"the linear program's own objective: {point.objective:.9g}"]
            if count > 1:
                notes.append(f"best of {count} linear programs, {seconds:.3g} s in all")
            if self.loss.function is not None:
                notes.append(
                    "the program minimised the absolute loss's bound; the value is the callable's exact mean"
                )
        return QuantizerResult(
            design=self,
            mechanism=mechanism,
            value=value,
            lower_bound=lower_bound,
            solver_report=SolveReport.of(point.solution),
            notes=tuple(notes),
            certificate=certificate,
            model_audit=point.audit(mechanism.selection or point.selection(), self.privacy.epsilon),
            rise=rise,
        )

    @property
    def _successive(self) -> bool:
        if self.constraints == "theorem6" or isinstance(self.bounds, (tuple, Grid)):
            return False
        return self.bounds == "successive" or len(self.bins) > 4

    def _follow(
        self, solver: str | None, start: Quantizer | None, outputs: int, options: Any
    ) -> tuple[LinearisedPoint | None, int, float | None]:
        """Successive linearisation: the point, the programs solved, a bound of all mechanisms with these bins."""
        bins = np.array(self.bins)
        usable = spread(len(bins), outputs)
        if start is not None and start.selection is not None and len(start.bins) == len(bins):
            left, right = start.selection.left.sum(axis=0), start.selection.right.sum(axis=0)[::-1]
            usable = np.union1d(usable, np.flatnonzero(np.append(left, 0.0) + np.append(0.0, right)))
        blocks = SelectionBlocks(
            bins, self.input_range, self.prior, self.loss,
            mirrored=self.families == "symmetric", shared_floor=self.constraints == "across-outputs", usable=usable,
        )  # fmt: skip
        return improve(blocks, self.prior, self.loss, self.privacy.epsilon, start, solver, options)

    def _best_point(self, epsilon: float, solver: str | None, options: Any) -> tuple[BoundPoint | None, int]:
        """The best of the bounds asked for, and the number of linear programs solved."""
        program = self.program
        if self.constraints == "theorem6":
            return search_theorem6(program, epsilon, solver, options)
        if len(program.bounded) == 0:
            box = np.zeros((1, program.width)), np.ones((1, program.width))
            return solve_bounds(program, epsilon, *box, solver, options), 1
        if isinstance(self.bounds, tuple):
            low, high = (program.flatten(b, b)[None] for b in self.bounds)
            return solve_bounds(program, epsilon, low, high, solver, options), 1
        grid = grid_bounds(program, self.bounds if isinstance(self.bounds, Grid) else None)
        if grid is None:
            raise DesignError.of(
                "bounds", self.bounds, "a grid needs the axis level, and at most two free bounds"
            )
        return solve_bounds(program, epsilon, *grid, solver, options), len(grid[0])

    def _certified(
        self, point: BoundPoint | LinearisedPoint, solver: str | None, options: Any
    ) -> tuple[Quantizer, QuantizerCertificate]:
        """Make the mechanism rational; where rounding or the solver's tolerance broke the budget, tighten and re-solve.

        The overshoot of a float solver is of the order of its tolerance, so that a budget smaller by one and a half times the
        overshoot suffices.
        """
        budget = self.privacy.epsilon
        rho = exp_lower(budget)
        epsilon = budget
        for _ in range(12):
            selection = point.selection()
            law = selection.exact(self.input_range)
            ratio = law.ratio()
            if not exceeds(ratio, rho):
                exact = replace(Quantizer.of_law(law), selection=selection)
                return exact, QuantizerCertificate(law, budget)
            over = (
                math.inf
                if ratio is None
                else math.log(ratio / rho)
                if ratio / rho > 1.1
                else math.log1p(float(ratio / rho - 1))
            )
            epsilon -= max(1.5 * over, 4e-16 * max(1.0, budget))
            tighter = point.tighter(epsilon, solver, options)
            if tighter is None:
                break
            point = tighter
        raise InfeasibleError(
            f"no exactly private mechanism within {budget!r} was found next to the solver's: ask for a slightly larger epsilon"
        )

    def _infeasible(self, solver: str | None, options: Any) -> InfeasibleError:
        """Say why, and find the smallest feasible ε by bisection within a second."""
        budget, deadline = self.privacy.epsilon, time.perf_counter() + 0.9
        count = len(self.bins)
        if self._successive:
            return InfeasibleError(
                f"no selection mechanism with these {count} bins was found within epsilon = {budget:g}: raise it a little"
            )
        # Theorem 5 per output is feasible at ε only if some selection mechanism is; doubling finds an upper end.
        high = budget
        found = False
        while time.perf_counter() < deadline and high < 64:
            high *= 2
            if self._best_point(high, solver, options)[0] is not None:
                found = True
                break
        low = high / 2
        while found and high - low > 1e-6 * high and time.perf_counter() < deadline:
            middle = (low + high) / 2
            if self._best_point(middle, solver, options)[0] is None:
                low = middle
            else:
                high = middle
        name = {
            "theorem5": "Theorem 5",
            "theorem6": "Theorem 6",
            "across-outputs": "the across-outputs program",
        }[self.constraints]
        reason = f"{name} is infeasible at epsilon = {budget:g} for these bins (m = {count})"
        if self.constraints == "theorem6" and count == 4:
            reason += "; Theorem 6 needs epsilon > log 3 at m = 4"
        if found:
            reason += f"; the smallest feasible epsilon found is {high:.6g}"
        return InfeasibleError(reason, smallest_epsilon=high if found else None)

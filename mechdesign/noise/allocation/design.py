r"""Non-identical Gaussian and Laplace noise: problems P1–P4.

A query :math:`f(D) \in \mathbb R^K` whose coordinate i changes by at most :math:`\lambda_i` between neighbours gets
independent noise of scale :math:`\sigma_i` (Gaussian) or :math:`\beta_i` (Laplace). P1, minimising the error under
(ε, δ)-DP, is not convex for Gaussian noise, but splits:

- **P2**: the largest μ with :math:`\varphi_\varepsilon(\mu) \le \delta`, one root :math:`\mu_0` (`gaussian_mu`);
- **P3**: :math:`\min \sum_i w_i E|T_i|^p` subject to :math:`\sum_i \lambda_i^2/\sigma_i^2 \le \mu_0^2`, convex;
- **P4**: the same for Laplace noise subject to :math:`\sum_i \lambda_i/\beta_i \le \varepsilon`.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mechdesign import solvers
from mechdesign.accounting.gaussian import gaussian_mu, gaussian_profile
from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.allocation.disparity import check_profile
from mechdesign.noise.allocation.model import AllocationModel, allocation_model
from mechdesign.noise.allocation.result import AllocationResult
from mechdesign.noise.allocation.separable import Separable, power, weighted_moment
from mechdesign.noise.vector_noise import IndependentNoise, absolute_moment
from mechdesign.problem.privacy import ApproximateDP, PureDP, ZeroConcentratedDP
from mechdesign.solvers import Model, Solution, Status
from mechdesign.typing import Array

__all__ = ["AllocationResult", "NoiseAllocation"]


_DOWN = 1 - 8 * 2.0**-53
"""Rounds a budget down past the few roundings it took to compute it."""


@serializable("noise-allocation")
@dataclass(frozen=True, eq=False)
class NoiseAllocation:
    r"""Scales of independent, non-identical noise for a vector query.

    Parameters
    ----------
    noise : {"gaussian", "laplace"}
    sensitivities : array_like, shape (K,)
        The profile λ, in units of the query. A coordinate with λ_i = 0 needs no noise and gets none.
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP
        Laplace noise with δ > 0 uses the exact one-dimensional condition
        :math:`\Delta/\beta = \varepsilon - 2\log(1-\delta)` when one coordinate matters, and the sufficient
        :math:`\sum\lambda_i/\beta_i = \varepsilon - \log(1-\delta)` (Corollary 6) otherwise.
    loss : float
        p > 0 of the loss :math:`\sum_i w_i E|T_i|^p`.
    weights : array_like, shape (K,), optional
        w_i > 0, ones by default.
    lower, upper : float or array_like, shape (K,), optional
        Limits on the scales σ_i or β_i.
    groups : sequence of integer sequences, optional
        A partition of the coordinates; those of a group share one scale.

    Raises
    ------
    DesignError
        Bad profile, weights, limits or groups; δ = 0 with Gaussian noise.

    Notes
    -----
    Muthukrishnan and Kalyani, *Differential privacy with higher utility by exploiting coordinate-wise disparity*,
    Theorems 4 and 5, Corollary 6. Weights, limits and groups are [new].

    Examples
    --------
    >>> design = NoiseAllocation(noise="laplace", sensitivities=[1.0, 8.0], privacy=PureDP(1.0))
    >>> result = design.solve()
    >>> result.scales.round(6), round(result.value, 6)
    (array([ 5., 10.]), 250.0)
    >>> result.compare()[["mechanism", "MSE"]].round(6).values.tolist()
    [['i.i.d.', 324.0], ['scale-perturb-rescale', 520.0], ['optimal', 250.0]]
    """

    noise: str
    sensitivities: Any
    privacy: PureDP | ApproximateDP | ZeroConcentratedDP
    loss: float = 2
    weights: Any = None
    lower: Any = None
    upper: Any = None
    groups: Any = None

    def __post_init__(self) -> None:
        if self.noise not in ("gaussian", "laplace"):
            raise DesignError.of("noise", self.noise, 'must be "gaussian" or "laplace"')
        lam = check_profile(self.sensitivities)
        object.__setattr__(self, "sensitivities", lam)
        p = self.loss
        if isinstance(p, bool) or not isinstance(p, (int, float, np.number)) or not (0 < p < math.inf):
            raise DesignError.of("loss", p, "must be the order p > 0 of E‖T‖_p^p")
        if self.weights is not None:
            w = self._vector("weights", self.weights)
            if not (w.min() > 0 and w.max() < math.inf):
                raise DesignError.of("weights", self.weights, "must be positive and finite")
            object.__setattr__(self, "weights", w)
        for name in ("lower", "upper"):
            if getattr(self, name) is not None:
                limit = self._vector(name, getattr(self, name))
                if np.isnan(limit).any() or limit.min() < 0 or (name == "lower" and limit.max() == math.inf):
                    raise DesignError.of(name, getattr(self, name), "must be non-negative scales, no NaN")
                object.__setattr__(self, name, limit)
        if self.upper is not None and self.lower is not None and np.any(self.lower > self.upper):
            i = int(np.argmax(self.lower > self.upper))
            raise DesignError.of(
                "lower", self.lower[i], f"is above the upper limit {self.upper[i]} of coordinate {i}"
            )
        object.__setattr__(self, "groups", self._check_groups())
        _ = self.budget

    def _vector(self, name: str, value: Any) -> Array:
        try:
            array = np.broadcast_to(np.asarray(value, dtype=float), self.sensitivities.shape)
        except (TypeError, ValueError):
            raise DesignError.of(
                name, value, f"must be a number or a vector of shape ({len(self.sensitivities)},)"
            ) from None
        return np.array(array)

    def _check_groups(self) -> tuple[npt.NDArray[np.int64], ...] | None:
        if self.groups is None:
            return None
        size = len(self.sensitivities)
        try:
            groups = tuple(np.asarray(g, dtype=np.int64).ravel() for g in self.groups)
            counts = np.bincount(np.concatenate(groups), minlength=size)
        except (TypeError, ValueError):
            raise DesignError.of("groups", self.groups, "must be lists of coordinate indices") from None
        if len(counts) > size:
            raise DesignError.of("groups", len(counts) - 1, f"is not a coordinate; there are {size}")
        if np.any(counts != 1):
            i = int(np.flatnonzero(counts != 1)[0])
            fault = "is in no group" if counts[i] == 0 else f"is in {counts[i]} groups"
            raise DesignError.of(
                "groups", self.groups, f"must partition the coordinates; coordinate {i} {fault}"
            )
        return groups

    # What the privacy requirement is worth ----------------------------------------------------------------

    @property
    def _spend(self) -> int:
        return 2 if self.noise == "gaussian" else 1

    @cached_property
    def budget(self) -> float:
        r""":math:`\mu_0^2` (Gaussian) or the total ε (Laplace), rounded down."""
        privacy = self.privacy
        if self.noise == "gaussian":
            if isinstance(privacy, ZeroConcentratedDP):
                return 2 * privacy.rho * _DOWN
            if not isinstance(privacy, ApproximateDP) or privacy.delta == 0:
                raise DesignError.of(
                    "privacy",
                    privacy,
                    'Gaussian noise is never private at delta = 0; Laplace noise is (noise="laplace"), and so are '
                    "staircase, discrete Laplace and logistic noise, and OptimalNoise in one dimension",
                )
            return gaussian_mu(privacy.epsilon, privacy.delta) ** 2 * _DOWN
        if isinstance(privacy, PureDP):
            return privacy.epsilon
        if isinstance(privacy, ApproximateDP):
            if privacy.delta == 0:
                return privacy.epsilon
            times = 2 if self._one_dimensional else 1
            return (privacy.epsilon - times * math.log1p(-privacy.delta)) * _DOWN
        raise DesignError.of("privacy", privacy, "Laplace noise takes PureDP or ApproximateDP")

    @property
    def _one_dimensional(self) -> bool:
        return int(np.count_nonzero(self.sensitivities)) == 1

    def cost(self, law: IndependentNoise) -> float:
        r"""Return :math:`\sum_i w_i E|T_i|^p`."""
        total = weighted_moment(law.scales, float(self.loss), self.weights)
        return absolute_moment(law.noise, self.loss) * total

    # The separable problem ---------------------------------------------------------------------------------

    @cached_property
    def _members(self) -> npt.NDArray[np.int64] | None:
        """Group of each coordinate; None when every coordinate is its own."""
        if self.groups is None:
            return None
        member = np.empty(len(self.sensitivities), dtype=np.int64)
        for g, coordinates in enumerate(self.groups):
            member[coordinates] = g
        return member

    def _separable(self) -> tuple[Separable, npt.NDArray[np.bool_] | None]:
        """The problem over the groups that need noise, and which ones those are (None: all)."""
        m, member = self._spend, self._members
        lam, weight, lower, upper = self.sensitivities, self.weights, self.lower, self.upper
        if member is not None:
            count = len(self.groups)
            top = float(lam.max())
            lam = top * np.bincount(member, weights=power(lam / top, m), minlength=count) ** (1 / m)
            # Rounded up, so that the budget of the groups covers that of their members.
            lam = lam * (1 + 1e-14)
            weight = np.bincount(member, weights=weight, minlength=count).astype(float)
            if lower is not None:
                lower = np.array([lower[g].max() for g in self.groups])
            if upper is not None:
                upper = np.array([upper[g].min() for g in self.groups])
            if lower is not None and upper is not None and np.any(lower > upper):
                g = int(np.argmax(lower > upper))
                raise DesignError.of(
                    "groups", self.groups[g].tolist(), "its members' limits exclude one another"
                )
        needs = None if lam.min() > 0 else lam > 0
        if needs is not None:
            lam = lam[needs]
            weight, lower, upper = (None if v is None else v[needs] for v in (weight, lower, upper))
        return Separable(lam, weight, float(self.loss), m, self.budget, lower, upper), needs

    def _check_feasible(self, problem: Separable, needs: npt.NDArray[np.bool_] | None) -> None:
        least, group = problem.least_budget()
        if problem.upper is None or least <= self.budget:
            return
        worst = group if needs is None else int(np.flatnonzero(needs)[group])
        where = f"coordinate {worst}" if self.groups is None else f"group {worst}"
        epsilon = self._smallest_epsilon(least)
        what = "μ² " if self.noise == "gaussian" else "a total ε "
        hint = "" if epsilon is None else f"; with these limits the smallest epsilon is {epsilon:.6g}"
        raise InfeasibleError(
            f"the upper limits force a budget of {what}of at least {least:.6g}, and {self.budget:.6g} is allowed; "
            f"{where} takes most of it (upper = {problem.upper[group]:.6g})"
            f"{hint}",
            smallest_epsilon=epsilon,
            least=least,
        )

    def _smallest_epsilon(self, least: float) -> float | None:
        privacy = self.privacy
        if self.noise == "laplace":
            delta = privacy.delta if isinstance(privacy, ApproximateDP) else 0.0
            return least + (2 if self._one_dimensional else 1) * math.log1p(-delta)
        if not isinstance(privacy, ApproximateDP):
            return None
        low, high, mu = privacy.epsilon, 2 * privacy.epsilon + least, math.sqrt(least)
        while gaussian_profile(high, mu) > privacy.delta:
            low, high = high, 2 * high
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if gaussian_profile(middle, mu) > privacy.delta else (low, middle)
        return high

    def _allocation_model(self) -> AllocationModel:
        problem, needs = self._separable()
        self._check_feasible(problem, needs)
        return allocation_model(problem)

    def model(self) -> Model:
        """Return the convex model: variable "log_scales", constraints "privacy" and "bounds".

        See `mechdesign.noise.allocation.model` for the change of variables.
        """
        return self._allocation_model().model

    # Solving -----------------------------------------------------------------------------------------------

    def solve(self, solver: str | None = None, **options: Any) -> AllocationResult:
        """Return the optimal scales.

        Parameters
        ----------
        solver : {None, "closed-form", "clarabel", "scs", ...}
            The closed form wherever there is one (no limits), Clarabel otherwise, when not named.
        **options
            The solver's own.

        Raises
        ------
        InfeasibleError
            The upper limits need a larger budget; names the coordinate that takes most of it, the least
            budget and the smallest ε.
        DesignError
            "closed-form" with limits.
        """
        started = time.perf_counter()
        problem, needs = self._separable()
        limited = problem.lower is not None or problem.upper is not None
        solution: Solution | None = None
        if limited or solver not in (None, "closed-form"):
            if solver == "closed-form":
                raise DesignError.of("solver", solver, 'limits have no closed form; use "clarabel" or "scs"')
            self._check_feasible(problem, needs)
            bound = problem.lower_bound()
            solution, scales = self._solve_model(problem, bound, solver, options)
        else:
            scales, optimum = problem.unlimited()
            scales = problem.made_safe(scales)
            bound = optimum * (1 - (8 * problem.order + 64) * 2.0**-53)  # the formula, rounded down
        if solution is None:
            report = SolveReport(
                solver="closed-form",
                seconds=time.perf_counter() - started,
                variables=len(scales),
                constraints=1,
                requested=solver,
            )
        else:
            report = SolveReport.of(solution)
        law = IndependentNoise(noise=self.noise, scales=self._spread(scales, needs))
        moment = absolute_moment(self.noise, self.loss)
        constant = 0.0
        if needs is not None:  # noise that limits force on coordinates which need none
            constant = self.cost(law) - moment * problem.loss(scales)
        value = self.cost(law)
        return AllocationResult(
            design=self,
            mechanism=law,
            value=value,
            lower_bound=min(moment * bound + constant, value),
            solver_report=report,
            notes=self._notes(),
        )

    def _solve_model(
        self, problem: Separable, bound: float, solver: str | None, options: dict[str, Any]
    ) -> tuple[Solution, Array]:
        """Solve the convex model; hand over to the next solver only if the proved gap is not closed."""
        built = allocation_model(problem)
        name = solver or "clarabel"
        if name == "clarabel":
            # Values then agree with the closed form to below 1e-9; asked for more, Clarabel stalls now and then.
            options = {**dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-8), **options}
        for fallback in (False, True):
            try:
                solution = solvers.solve(built.model, name, fallback=fallback, **options)
            except SolverError:
                if fallback:
                    raise
                continue
            scales = built.scales(np.ravel(solution.primal["log_scales"]))
            # The solver meets the budget to its tolerance; give back what it left, then make it safe.
            spent = problem.spent(problem.clip(scales))
            scales = problem.made_safe(scales * (spent / problem.budget) ** (1 / problem.spend))
            if solution.status is Status.OPTIMAL:
                break
            if problem.loss(scales) <= bound * (1 + 1e-8):  # it gave up, but its answer is proved good
                solution = solution.tagged(status=Status.OPTIMAL, fallbacks=())
                break
        return solution, scales

    def _spread(self, scales: Array, needs: npt.NDArray[np.bool_] | None) -> Array:
        """Scales of the groups as scales of the coordinates; what needs no noise gets its lower limit."""
        if needs is not None:
            full = np.zeros(len(needs))
            if self.lower is not None:
                full = (
                    self.lower.copy()
                    if self.groups is None
                    else np.array([self.lower[g].max() for g in self.groups])
                )
            full[needs] = scales
            scales = full
        return scales if self._members is None else scales[self._members]

    def _notes(self) -> tuple[str, ...]:
        notes = []
        quiet = np.flatnonzero(self.sensitivities == 0) if self.sensitivities.min() == 0 else ()
        if len(quiet):
            shown = ", ".join(map(str, quiet[:8])) + (", …" if len(quiet) > 8 else "")
            notes.append(f"coordinates with sensitivity 0 need no noise: {shown}")
        if self.noise == "laplace" and isinstance(self.privacy, ApproximateDP) and self.privacy.delta > 0:
            notes.append(
                "one coordinate matters: the (ε, δ) condition is exact"
                if self._one_dimensional
                else "(ε, δ) through the sufficient condition of Corollary 6; exact accounting may allow less noise"
            )
        return tuple(notes)

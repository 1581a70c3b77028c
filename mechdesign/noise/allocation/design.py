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
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.allocation.certificate import AllocationCertificate
from mechdesign.noise.allocation.disparity import check_bounds, check_groups, check_profile, profile_of
from mechdesign.noise.allocation.mixed import (
    FLOOR,
    MixedAllocationResult,
    MixedCertificate,
    MixedProblem,
    mixed_cost,
    mixed_scales,
    refuse_limits,
    within_budget,
)
from mechdesign.noise.allocation.question import AllocationQuestion
from mechdesign.noise.allocation.result import AllocationResult
from mechdesign.noise.allocation.separable import Allocated, allocation_model, overflowing, solve_model
from mechdesign.noise.allocation.several_model import allocate_several, several_model
from mechdesign.noise.vector_noise import IndependentNoise
from mechdesign.problem.checks import doubles, instance, number, one_of, settle, whole
from mechdesign.problem.design import OldDesign, refuse_unknown, wanted_gap
from mechdesign.problem.privacy import ApproximateDP
from mechdesign.problem.sensitivity import Protection, Sensitivity
from mechdesign.solvers import Deadline, Model
from mechdesign.typing import Array, Status

__all__ = ["NoiseAllocation"]


_SEARCHED = 0.6
"""Share of the time that goes to the search over types; the rest proves what it found."""
_LEAST = 1e-140
"""Sensitivities below it have squares that doubles do not hold."""


@serializable("noise-allocation")
@dataclass(frozen=True, eq=False)
class NoiseAllocation(AllocationQuestion, OldDesign):
    r"""Scales of independent, non-identical noise for a vector query.

    Parameters
    ----------
    noise : {"gaussian", "laplace", "mixed"}
        "mixed" chooses a type for each coordinate, under one exactly composed (ε, δ): a search, never worse than either type (to 10⁻¹¹),
        without limits and groups.
    sensitivities : array_like, shape (K,), or Sensitivity
        The profile λ, in units of the query. A coordinate with λ_i = 0 needs no noise and gets none. A Sensitivity with
        ``each`` may bound the number that change and the norms too (Gaussian and Laplace noise, without limits and groups):
        see Notes.
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
    bounds : Sensitivity, optional
        All the bounds, where `sensitivities` was given as several; taken from there.

    Raises
    ------
    DesignError
        Bad profile, weights, limits or groups; δ = 0 with Gaussian noise.

    Notes
    -----
    Muthukrishnan and Kalyani, *Differential privacy with higher utility by exploiting coordinate-wise disparity*,
    Theorems 4 and 5, Corollary 6. Weights, limits and groups are [new], and so are several bounds: the budget is kept on the
    worst change within all of them. With at most c coordinates that change it is exact, the sum of the c largest
    :math:`(\lambda_i/s_i)^m`, and so it is under one ℓ_m norm, or under ℓ₁ and ℓ₂ for Laplace noise. Other bounds together are
    met by a safe upper bound (`mechdesign.noise.allocation.several`); a note says so, and the lower bound is of what is true.

    Examples
    --------
    >>> from mechdesign.problem.privacy import PureDP
    >>> design = NoiseAllocation(noise="laplace", sensitivities=[1.0, 8.0], privacy=PureDP(1.0))
    >>> result = design.solve()
    >>> result.scales.round(6), round(result.value, 6)
    (array([ 5., 10.]), 250.0)
    >>> result.compare()[["mechanism", "MSE"]].round(6).values.tolist()
    [['i.i.d.', 324.0], ['scale-perturb-rescale', 520.0], ['optimal', 250.0]]

    One person changes one of the two numbers only:

    >>> one = Sensitivity(each=[1.0, 8.0], changed=1)
    >>> round(NoiseAllocation("laplace", one, PureDP(1.0)).solve().value, 6)
    130.0
    """

    def __post_init__(self) -> None:
        one_of("noise", self.noise, ("gaussian", "laplace", "mixed"))
        if isinstance(self.sensitivities, Sensitivity):
            stated = self.sensitivities
            settle(self, sensitivities=profile_of(stated, self.noise))
            if stated.each is not None and (stated.changed, stated.l1, stated.l2) != (None, None, None):
                settle(self, bounds=stated)
        layers = getattr(self.sensitivities, "groups", None)
        settle(self, sensitivities=check_profile(self.sensitivities))
        least, most = (
            self.sensitivities.min(where=self.sensitivities > 0, initial=1.0),
            self.sensitivities.max(),
        )
        if not (least >= _LEAST and most <= 1 / _LEAST):
            allowed = f"must be 0 or between {_LEAST:g} and {1 / _LEAST:g}: choose another unit"
            raise DesignError.of("sensitivities", float(least if least < _LEAST else most), allowed)
        order = number(
            "loss", self.loss, allowed := "must be the order p of E‖T‖_p^p, above 0 and at most 100"
        )
        if not 0 < order <= 100:
            raise DesignError.of("loss", self.loss, allowed)
        if not isinstance(self.loss, int):  # fractions and decimals are numbers too, but none of NumPy's
            settle(self, loss=order)
        for name in ("weights", "lower", "upper"):
            settle(self, **{name: self._vector(name)})
        if self.weights is not None and not (self.weights.min() > 0 and self.weights.max() < math.inf):
            raise DesignError.of("weights", self.weights, "must be positive and finite")
        if self.upper is not None and self.upper.min() == math.inf:
            settle(self, upper=None)  # no limit at all
        if self.upper is not None and not self.upper.min() >= _LEAST:
            allowed = f"must be at least {_LEAST:g}: choose another unit, or leave the limit out"
            raise DesignError.of("upper", float(self.upper.min()), allowed)
        if self.lower is not None and not self.lower.max() < math.inf:
            raise DesignError.of("lower", self.lower, "must be finite")
        if self.lower is not None and not math.isfinite(self._forced()):
            raise DesignError.of(
                "lower", float(self.lower.max()), f"makes a loss of order {self.loss:g} overflow"
            )
        if self.upper is not None and self.lower is not None and np.any(self.lower > self.upper):
            i = int(np.argmax(self.lower > self.upper))
            raise DesignError.of(
                "lower", self.lower[i], f"is above the upper limit {self.upper[i]} of coordinate {i}"
            )
        if layers is not None and self.groups is None:
            settle(self, groups=layers)
        settle(self, groups=check_groups(self.groups, len(self.sensitivities), self.lower, self.upper))
        for layer in layers or ():
            # Its profile is that of a common scale: unequal ones would spend more than it says.
            if not any(np.isin(layer, group).all() for group in self.groups):
                allowed = (
                    "must keep each clipped layer together: its profile is right for one common scale only"
                )
                raise DesignError.of("groups", layer.tolist(), allowed)
        if self.noise == "mixed":
            refuse_limits(self)
        self._check_bounds()
        _ = self.budget

    @classmethod
    def of_sensitivity(
        cls, noise: str, sensitivity: Sensitivity, dimension: int, privacy: Any, **options: Any
    ) -> NoiseAllocation:
        """The allocation for K numbers whose changes keep several bounds; without ``each`` all get one scale.

        Examples
        --------
        >>> from mechdesign.problem.privacy import ApproximateDP
        >>> few = Sensitivity(linf=1, changed=3)
        >>> design = NoiseAllocation.of_sensitivity("gaussian", few, 20, ApproximateDP(1.0, 1e-6))
        >>> round(design.solve().value, 2)
        1070.87
        """
        profile = profile_of(
            instance("sensitivity", sensitivity, Sensitivity), noise, whole("dimension", dimension, 1)
        )
        return cls(noise, profile, privacy, **options)

    def _check_bounds(self) -> None:
        """Where several bounds say no more than their profile, there are none."""
        if self.bounds is None or not check_bounds(self.bounds, self.sensitivities, self.noise):
            settle(self, bounds=None)
            return
        for name in ("lower", "upper", "groups"):
            if (given := getattr(self, name)) is not None:
                allowed = f"needs bounds of single coordinates alone, each= or linf=, not {self.bounds}"
                raise DesignError.of(name, given, allowed)

    def _vector(self, name: str) -> Array | None:
        """A number or a vector per coordinate, non-negative; infinite where that says "no limit"."""
        value = getattr(self, name)
        if value is None:
            return None
        try:
            found = np.array(np.broadcast_to(doubles(name, value), self.sensitivities.shape))
        except ValueError:
            found = np.array([math.nan])
        if not found.min() >= 0:
            size = len(self.sensitivities)
            what = "positive" if name == "weights" else "non-negative"
            raise DesignError.of(name, value, f"must be a {what} number or a vector of shape ({size},)")
        return found

    def _forced(self) -> float:
        """The loss that the lower limits alone cost."""
        with np.errstate(over="ignore"):
            return self.cost_of(np.asarray(self.lower))

    asks: ClassVar[str] = "numbers"

    def protection(self) -> Protection:
        changes = self.bounds or Sensitivity(each=self.sensitivities)
        return Protection(len(self.sensitivities), changes)

    def model(self, **options: Any) -> Model:
        """Return the convex model: variable "log_scales", constraints "privacy" and "bounds".

        See `mechdesign.noise.allocation.separable.allocation_model` for the change of variables.
        """
        refuse_unknown(options, "the model has none")
        if self.noise == "mixed":
            raise DesignError.of("noise", self.noise, "is searched for: there is no program")
        if self.bounds is not None:
            return several_model(self)
        self.check_feasible()
        return allocation_model(self.problem).model

    def solve(  # type: ignore[override]
        self,
        solver: str | None = None,
        *,
        gap: float | None = None,
        certify: bool = True,
        time_limit: float | None = None,
        **options: Any,
    ) -> AllocationResult | MixedAllocationResult:
        """Return the optimal scales, to a relative gap of 1e-6 unless asked for another.

        Parameters
        ----------
        solver : {None, "closed-form", "clarabel", "scs", ...}
            When not named: the closed form, with limits by one root (the multiplier at which the limited scales spend
            the budget). "closed-form" is refused with limits; the others solve `model`.
        time_limit : float, optional
            Seconds, for a named solver and for the search of "mixed"; past them the best scales known are returned with their
            proved gap, or the best types tried.

        Raises
        ------
        InfeasibleError
            The upper limits need a larger budget; names the coordinate that takes most of it, the least
            budget and the smallest ε.
        DesignError
            "closed-form" with limits; a loss that overflows.
        """
        one_of("certify", certify, (True, False))
        wanted, deadline = wanted_gap(gap, 1e-6), Deadline(time_limit)
        if self.noise == "mixed":
            return self._mixed(solver, deadline, options, certify=certify)
        instance("solver", solver, str, NoneType)
        if self.bounds is not None:
            several, report = allocate_several(self, solver, deadline, options)
            value = self.cost_of(several.scales)
            among = several.among or (None, None)
            proof = several.lower_bound, several.multiplier, several.mix, several.prices, several.held, *among
            return self._result(several.scales, value, proof, report, wanted, certify)
        self.check_feasible()
        if solver in (None, "closed-form"):
            found, report = self._by_formula(solver)
            refuse_unknown(options, "a formula has none")
        else:
            found, report = solve_model(self.problem, solver, deadline, options)
        scales = self.spread(found.scales)
        value = self.cost_of(scales) if found.loss is None else self.loss_of_groups(found.loss)
        bound = self.loss_of_groups(found.lower_bound)
        return self._result(scales, value, (bound, found.multiplier), report, wanted, certify)

    def _result(  # type: ignore[override]
        self, scales: Array, value: float, proof: Any, report: SolveReport, gap: float, certify: bool
    ) -> AllocationResult:
        """The result; `proof` is the lower bound, the multiplier, and under several bounds what else the certificate holds."""
        if not math.isfinite(value):
            raise overflowing(float(self.loss))
        bound, multiplier, *others = proof
        lower_bound = min(bound, value)
        evidence = AllocationCertificate(self, scales, value, lower_bound, multiplier, *others)
        return AllocationResult(
            design=self,
            mechanism=IndependentNoise(self.noise, scales, self.sensitivities, self.bounds),
            value=value,
            lower_bound=lower_bound,
            solver_report=replace(report, status=_status(report, value, bound, gap, certify)),
            notes=self._notes(),
            certificate=evidence if certify else None,
            duals=pd.DataFrame({"family": ["privacy"], "index": [0], "dual": [multiplier]}),
        )

    def of_one_type(self, noise: str) -> NoiseAllocation:
        """The same question for Gaussian, or for Laplace, noise alone."""
        return replace(self, noise=noise)

    def _mixed(
        self, solver: str | None, deadline: Deadline, options: dict[str, Any], *, certify: bool
    ) -> MixedAllocationResult:
        """The cheapest of the mixes tried and of both pure types."""
        if solver is not None:
            raise DesignError.of(
                "solver", solver, "must be None: types are searched for, there is no program"
            )
        refuse_unknown(options, "there are none")
        privacy = instance("privacy", self.privacy, ApproximateDP)
        started, moved = time.perf_counter(), self.sensitivities > 0
        pure = {noise: self.of_one_type(noise).solve(certify=False) for noise in ("gaussian", "laplace")}
        weights = None if self.weights is None else self.weights[moved]
        mu = math.sqrt(pure["gaussian"].design.budget)
        problem = MixedProblem(self.sensitivities[moved], weights, float(self.loss), privacy, mu)
        candidates = [
            (pure["gaussian"].value, pure["gaussian"].scales[moved], np.zeros(int(moved.sum()), dtype=bool))
        ]
        ratio = self.sensitivities[moved] / pure["laplace"].scales[moved]
        ratio = np.maximum(ratio, FLOOR * ratio.max())
        candidates.append(
            (pure["laplace"].value, self.sensitivities[moved] / ratio, np.ones(int(moved.sum()), dtype=bool))
        )
        tried = [*mixed_scales(problem, deadline.part(_SEARCHED)), *candidates]
        best = None
        for value, scales, laplace in sorted(tried, key=lambda candidate: candidate[0]):
            if best is not None and (deadline.passed or value * 0.96 ** float(self.loss) > best.value):
                break
            full, kinds = np.zeros(len(moved)), np.zeros(len(moved), dtype=bool)
            full[moved], kinds[moved] = scales, laplace
            law = within_budget(full, kinds, self.sensitivities, privacy, deadline)
            if law is not None:
                held = MixedCertificate(self, law, mixed_cost(self, law))
                best = held if best is None or held.value < best.value else best
        if best is None:
            raise SolverError("no mix was proved to keep the budget", solver="search", status="none")
        seconds = time.perf_counter() - started
        status = Status.LIMIT if deadline.passed else Status.FEASIBLE
        return MixedAllocationResult(
            design=self,
            mechanism=best.law,
            value=best.value,
            solver_report=SolveReport("search", status if certify else Status.UNCERTIFIED, seconds=seconds),
            notes=self._notes(),
            certificate=best if certify else None,
        )

    def _by_formula(self, solver: str | None) -> tuple[Allocated, SolveReport]:
        limited = self.lower is not None or self.upper is not None
        if limited and solver == "closed-form":
            raise DesignError.of("solver", solver, 'limits have no closed form; use "clarabel" or "scs"')
        started, problem = time.perf_counter(), self.problem
        found = problem.optimum()
        name, size = "water-filling" if limited else "closed-form", len(found.scales)
        seconds = time.perf_counter() - started
        return found, SolveReport(name, seconds=seconds, variables=size, constraints=1, requested=solver)

    def _notes(self) -> tuple[str, ...]:
        notes = []
        quiet = np.flatnonzero(self.sensitivities == 0) if self.sensitivities.min() == 0 else ()
        if len(quiet):
            shown = ", ".join(map(str, quiet[:8])) + (", …" if len(quiet) > 8 else "")
            notes.append(f"coordinates with sensitivity 0 need no noise: {shown}")
        if self.noise == "laplace" and getattr(self.privacy, "delta", 0.0) > 0:
            notes.append(
                "one coordinate matters: the (ε, δ) condition is exact"
                if self.one_dimensional
                else "(ε, δ) through the sufficient condition of Corollary 6; exact accounting may allow less noise"
            )
        if self.changes is not None:
            kept = "exactly" if self.changes.exact else "by a safe upper bound of the worst change"
            notes.append(f"the budget is kept {kept} for: {self.bounds}")
        return tuple(notes)


def _status(report: SolveReport, value: float, lower_bound: float, gap: float, certify: bool) -> Status:
    if report.status is Status.LIMIT or not certify:
        return Status.LIMIT if certify else Status.UNCERTIFIED
    return Status.OPTIMAL if value - lower_bound <= gap * value else Status.GAP

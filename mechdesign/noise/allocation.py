r"""Non-identical Gaussian and Laplace noise: problems P1–P4.

A query :math:`f(D) \in \mathbb R^K` whose coordinate i changes by at most :math:`\lambda_i` between neighbours gets
independent noise of scale :math:`\sigma_i` (Gaussian) or :math:`\beta_i` (Laplace). P1, minimising the error under (ε,
δ)-DP, is not convex for Gaussian noise, but splits:

- **P2**: the largest μ with :math:`\varphi_\varepsilon(\mu) \le \delta`, one root :math:`\mu_0` (`gaussian_mu` in
  `mechdesign.accounting.gaussian`);
- **P3**: :math:`\min \sum_i w_i E|T_i|^p` subject to :math:`\sum_i \lambda_i^2/\sigma_i^2 \le \mu_0^2`, convex;
- **P4**: the same for Laplace noise subject to :math:`\sum_i \lambda_i/\beta_i \le \varepsilon`.

The paper states them for p = 2 and w = 1, the sum of the variances, and solves them for any p. The right side,
:math:`\mu_0^2` or ε, is the *budget*.

**Searched laws**: a mix of both types, or shape and scale of one family for each coordinate, under exact composition.
These are searches, without a program or a lower bound of it (`coordinate_noise`).

**Where the rest is.** `separable` has P3 and P4 in closed form (`Separable.unlimited`: Theorems 4 and 5) and the worst
change within several bounds, `lagrangian` their lower bound, `scales_problem` the proof (`AllocationProof`) and the
audit, `vector_noise` the release and what its lattice costs (`PerCoordinate`). Problems with further rows are stated
with `mechdesign.model.scales` and solved by a program in `scales_solving`. `release` draws one coordinate exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from types import NoneType
from typing import Any, TypeAlias, get_args

import cvxpy as cp
import numpy as np
import pandas as pd

from mechdesign.accounting.gaussian import GaussianPrivacy
from mechdesign.checks import NARROWEST, doubles, instance, integer, one_of, refuse, settle
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence import proofs
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.results import Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.model.problem import named
from mechdesign.model.scales import Scales, ScalesPrivacy, order_of
from mechdesign.noise import scales_problem as problems
from mechdesign.noise.coordinate_noise import COORDINATE_FAMILIES, Allocating, CoordinateNoise, Mixing
from mechdesign.noise.families import FAMILIES
from mechdesign.noise.lagrangian import Multipliers
from mechdesign.noise.scales_solving import allocate_several
from mechdesign.noise.separable import (
    CLOSED,
    EXACT,
    ROUNDING,
    AllChanges,
    Separable,
    against,
    changes_within,
    check_bounds,
    check_groups,
    check_profile,
    overflowing,
    power,
    profile_of,
)
from mechdesign.noise.vector_noise import IndependentNoise, MixedNoise
from mechdesign.problem.law_moments import FINITE, absolute_moment
from mechdesign.problem.privacy import GAUSSIAN_ALONE, Consumption, GaussianDP, Pointwise, PureDP, pairs_of
from mechdesign.problem.sensitivity import Sensitivity, neighbours_of
from mechdesign.problem.spine import Bound, Clock, Law, ModelledDesign
from mechdesign.typing import Array, Indices, Numbers

Privacy: TypeAlias = PureDP | GaussianPrivacy
_MOST = float(np.finfo(float).max)
_VECTORS = {
    "weights": ("positive and finite", 5e-324, _MOST),
    "lower": ("non-negative and finite", 0.0, _MOST),
    "upper": ("non-negative", 0.0, math.inf),
}
"""What vectors of one number a coordinate must be, with their limits."""


@serializable("noise-allocation", eq=False)
class NoiseAllocation(problems.AllocationPage):
    r"""Scales of independent, non-identical noise for a vector query.

    Parameters
    ----------
    noise : {"gaussian", "laplace", "mixed", "flipped_huber", "gennorm", "osgt", "logistic", "staircase", "truncated_laplace"}
        "mixed" chooses a type for each coordinate, under one exactly composed (ε, δ): a search, never worse than either type (to 10⁻¹¹),
        without limits and groups. A family by name gets shape and scale for each coordinate, by a search too (`mechdesign.noise.coordinate_noise`), for
        absolute or squared loss; staircases and logistic noise under pure privacy as well.
    sensitivities : array_like, shape (K,), or Sensitivity
        The profile λ, in units of the query, for add-remove neighbours. A coordinate with λ_i = 0 needs no noise, and
        gets none unless its group has noise. A Sensitivity with ``each`` may bound the number that change and the norms too (Gaussian and Laplace noise, without limits and groups):
        see Notes.
    privacy : PureDP, ApproximateDP, ZeroConcentratedDP, GaussianDP, MembershipAdvantage or TradeOff
        ZeroConcentratedDP and GaussianDP are for Gaussian noise only; a TradeOff asks for all its points at once.
        Laplace noise with δ > 0 has the closed form :math:`\Delta/\beta = \varepsilon - 2\log(1-\delta)` where one coordinate
        changes; on several coordinates it keeps the sufficient :math:`\sum\lambda_i/\beta_i = \varepsilon - \log(1-\delta)` of
        Corollary 6, and a note says what Gaussian noise needs.
    loss : float, "absolute" or "squared"
        p > 0 of the loss :math:`\sum_i w_i E|T_i|^p`; "absolute" is 1 and "squared" is 2.
    weights : array_like, shape (K,), optional
        w_i > 0, ones by default.
    lower, upper : float or array_like, shape (K,), optional
        Limits on the scales σ_i or β_i.
    groups : sequence of integer sequences, optional
        A partition of the coordinates; those of a group share one scale.
    bounds : Sensitivity, optional
        All bounds of a `Sensitivity` given as `sensitivities`; set from there.
    neighbours : {"add-remove", "replace"}
        For which neighbours the changes hold; a `Sensitivity` states it itself.

    Raises
    ------
    DesignError
        The profile, weights, limits or groups are not valid; δ = 0 with Gaussian noise.

    Notes
    -----
    Muthukrishnan and Kalyani, *Differential privacy with higher utility by exploiting coordinate-wise disparity*,
    Theorems 4 and 5, Corollary 6. Weights, limits and groups are [new], and so are several bounds: the worst change within
    all of them keeps the budget. That change is known exactly where at most c coordinates change (the sum of the c largest
    :math:`(\lambda_i/s_i)^m`), under one ℓ_m norm, and under ℓ₁ and ℓ₂ for Laplace noise. Other combinations get a
    safe upper bound by prices of the bounds (`mechdesign.noise.separable`): a note says so, and the lower bound is then for noise that such prices prove private. `audit` is in `mechdesign.noise.scales_problem`.

    Examples
    --------
    >>> from mechdesign.problem.privacy import PureDP
    >>> design = NoiseAllocation(noise="laplace", sensitivities=[1.0, 8.0], privacy=PureDP(1.0))
    >>> result = design.solve()
    >>> result.mechanism.scales.round(6), round(result.value, 6)
    (array([ 5., 10.]), 250.0)
    >>> design.compare(result)[["mechanism", "MSE"]].round(6).values.tolist()
    [['i.i.d.', 324.0], ['scale-perturb-rescale', 520.0], ['this allocation', 250.0]]

    One person changes one of the two numbers only:

    >>> one = Sensitivity(each=[1.0, 8.0], l0=1)
    >>> round(NoiseAllocation("laplace", one, PureDP(1.0)).solve().value, 6)
    130.0
    """

    noise: str
    sensitivities: Any
    privacy: Privacy
    loss: float = 2
    weights: Any = None
    lower: Any = None
    upper: Any = None
    groups: Any = None
    bounds: Sensitivity | None = None
    neighbours: str = "add-remove"

    default_gap = 1e-6
    algorithms = ("closed-form", "water-filling")

    def __post_init__(self) -> None:
        one_of("noise", self.noise, (*CLOSED, "mixed", *COORDINATE_FAMILIES))
        stated = self.sensitivities if self.bounds is None else self.bounds
        settle(self, neighbours=neighbours_of(stated, self.neighbours), loss=order_of(self.loss))
        if isinstance(stated := self.sensitivities, Sensitivity):
            settle(self, sensitivities=profile_of(stated, self.noise))
            if (stated.l0, stated.l1, stated.l2) != (None, None, None):
                settle(self, bounds=stated)
        layers = getattr(self.sensitivities, "groups", None)
        settle(self, sensitivities=check_profile(self.sensitivities))
        lam = self.sensitivities
        least, most = float(lam.min(where=lam > 0, initial=1.0)), float(lam.max())
        if not (least >= NARROWEST and most <= 1 / NARROWEST):
            allowed = f"must be 0 or between {NARROWEST:g} and {1 / NARROWEST:g}: choose another unit"
            raise DesignError.of("sensitivities", least if least < NARROWEST else most, allowed)
        if self.noise in COORDINATE_FAMILIES and self.loss not in (1, 2):
            raise DesignError.of("loss", self.loss, f'must be "absolute" or "squared" for {self.noise} noise')
        for name in _VECTORS:
            settle(self, **{name: self._vector(name)})
        if self.upper is not None and self.upper.min() == math.inf:
            settle(self, upper=None)  # no limit at all
        if self.upper is not None and not self.upper.min() >= NARROWEST:
            allowed = f"must be at least {NARROWEST:g}: choose another unit, or leave the limit out"
            raise DesignError.of("upper", float(self.upper.min()), allowed)
        with np.errstate(over="ignore"):
            if self.lower is not None and not math.isfinite(self.cost_of(self.lower)):
                allowed = f"makes a loss of order {self.loss:g} overflow"
                raise DesignError.of("lower", float(self.lower.max()), allowed)
        if self.upper is not None and self.lower is not None and np.any(self.lower > self.upper):
            i = int(np.argmax(self.lower > self.upper))
            allowed = f"is above the upper limit {self.upper[i]} of coordinate {i}"
            raise DesignError.of("lower", self.lower[i], allowed)
        if layers is not None and self.groups is None:
            settle(self, groups=layers)
        settle(self, groups=check_groups(self.groups, len(self.sensitivities), self.lower, self.upper))
        for layer in layers or ():
            # its profile assumes one common scale: unequal scales would consume more
            if not any(np.isin(layer, group).all() for group in self.groups):
                allowed = "must keep each clipped layer together: its profile is for one common scale"
                raise DesignError.of("groups", layer.tolist(), allowed)
        self._check_bounds()
        _ = self.budget

    @classmethod
    def of_sensitivity(
        cls, noise: str, sensitivity: Sensitivity, dimension: int, privacy: Privacy, **options: Any
    ) -> NoiseAllocation:
        """Return the allocation for K numbers whose changes keep several bounds; without ``each`` all get one scale.

        Examples
        --------
        >>> from mechdesign.problem.privacy import ApproximateDP
        >>> few = Sensitivity(linf=1, l0=3)
        >>> design = NoiseAllocation.of_sensitivity("gaussian", few, 20, ApproximateDP(1.0, 1e-6))
        >>> round(design.solve().value, 2)
        1070.87
        """
        profile = profile_of(
            instance("sensitivity", sensitivity, Sensitivity), noise, integer("dimension", dimension, 1)
        )
        if sensitivity.each is not None:
            return cls(noise, sensitivity, privacy, **options)
        return cls(noise, profile, privacy, neighbours=sensitivity.neighbours, **options)

    def _check_bounds(self) -> None:
        """Refuse limits with several bounds or a search over types; drop bounds that add nothing to their profile."""
        if self.bounds is None or not check_bounds(self.bounds, self.sensitivities, self.noise):
            settle(self, bounds=None)
        allowed = f"needs bounds of single coordinates alone, each= or linf=, not {self.bounds}"
        if self.searched:
            allowed = 'is not for searched laws: use noise="gaussian" or "laplace"'
        for name in self.limits if self.bounds is not None or self.searched else ():
            raise DesignError.of(name, getattr(self, name), allowed)

    def _vector(self, name: str) -> Array | None:
        """Return a field as a vector with a number for each coordinate: positive weights, limits of at least 0; an upper limit may be infinite."""
        value, size, (what, least, most) = getattr(self, name), len(self.sensitivities), _VECTORS[name]
        if value is None:
            return None
        given = doubles(name, value)
        if not (given.shape in ((), (size,)) and given.min() >= least and given.max() <= most):
            raise DesignError.of(name, value, f"must be {what}, one number or a vector of shape ({size},)")
        return np.array(np.broadcast_to(given, size))

    # -- P3 and P4, declared and in closed form -------------------------------------------------------

    def problem(self) -> problems.ScalesProblem:
        r"""Return P3 or P4, declared: scales s of all coordinates, those of a group equal, within the limits.

        .. math:: \min_s \sum_i w_i E|T_i|^p \quad\text{s.t.}\quad \sum_i (\lambda_i/s_i)^m \le B .

        A problem with rows of one's own is convex in s for p ≥ 1; below, rows must be convex in log s.
        """
        allowed = "is searched for: there is no program of exact composition"
        refuse(self.searched, "noise", self.noise, allowed)
        s = Scales(
            self.sensitivities if self.bounds is None else self.bounds, self.noise, neighbours=self.neighbours
        )
        rows: list[Any] = [named("privacy", s.private(self.privacy))]
        if self.lower is not None:
            rows.append(named("lower", s >= self.lower))
        if self.upper is not None:
            limited = np.flatnonzero(np.isfinite(self.upper))
            rows.append(named("upper", s[limited] <= self.upper[limited]))
        pairs = [pair for group in self.groups or () for pair in zip(group[:-1], group[1:])]
        if pairs:
            first, second = np.array(pairs).T
            rows.append(named("groups", s[first] == s[second]))
        return problems.ScalesProblem(
            cp.Minimize(s.expected(self.loss, self.weights)), tuple(rows), design=self
        )

    def accelerated(self, clock: Clock, algorithm: str | None = None) -> Iterator[Law | Bound]:
        """Find the scales of least loss and the multiplier that proves their lower bound; search laws where `searched`.

        Without limits the scales have a closed form. With limits one root is found, the multiplier at which the limited scales consume the
        budget. Under several bounds the worst mix of changes is found by water-filling.

        Raises
        ------
        InfeasibleError
            The upper limits need a larger budget; the message names the coordinate that consumes most, the least budget and the smallest ε.
        DesignError
            "closed-form" is asked for with limits or several bounds; the loss overflows.
        """
        if self.searched:
            yield from self._searched(clock)
            return
        unit, report = absolute_moment(self.noise, self.loss), self._way(algorithm)
        if self.changes is not None:
            scales, optimum, found = allocate_several(
                self.changes, float(self.loss), self.weights, self.budget
            )
            value = self.cost_of(scales)
        else:
            self.check_feasible()
            optimum = self.separable.optimum()
            scales, found = self._spread(optimum.scales), Multipliers(np.array([optimum.multiplier]))
            value = self.cost_of(scales) if optimum.loss is None else self._loss_of_groups(optimum.loss)
        value *= 1 + (8 * float(self.loss) + 64) * 2.0**-53  # as far as a sum in doubles may be off
        lost = self.budget * (self.requirement.apart + self._widened)
        bound = self._loss_of_groups(optimum.lower_bound - optimum.multiplier * lost)
        if not 1e-290 < value < math.inf:
            raise overflowing(float(self.loss))
        proof = problems.AllocationProof(**{**vars(found), "multipliers": found.multipliers * unit})
        noise = IndependentNoise(self.noise, scales, self.sensitivities, self.bounds)
        duals = pd.DataFrame({"family": ["privacy"], "index": [0], "dual": proof.multipliers})
        yield Bound(bound)
        yield Law(noise, value, (proof,), report, self.said(value), duals)
        if self.changes is not None:  # water-filling stops short where prices lie far apart
            yield from self.problem().improve(clock)

    def _own_way(self, solver: str | None) -> bool:
        if self.searched and instance("solver", solver, str, NoneType) is not None:
            remedy = "must be None: under exact composition there is no program"
            raise DesignError.of("solver", solver, remedy)
        return super()._own_way(solver)

    def _way(self, algorithm: str | None) -> SolveReport:
        """Return the report of the method that finds the scales; refuse "closed-form" where there is none."""
        limited = self.lower is not None or self.upper is not None
        rows = 0 if self.changes is None else len(self.changes.bound_rows())
        if algorithm == "closed-form" and (limited or rows > 1):
            what = "limits have" if limited else "several bounds together have"
            raise DesignError.of("solver", algorithm, f'{what} no closed form; use "clarabel" or "scs"')
        name = "water-filling" if limited or rows else "closed-form"
        size = len(self.sensitivities) if rows else len(self.separable.sensitivity)
        return SolveReport(name, variables=size, constraints=max(rows, 1), requested=algorithm)

    # -- searched laws: a type or a law for each coordinate, composed exactly -----------------------------------

    def _searched(self, clock: Clock) -> Iterator[Law]:
        """Yield one type or one law of the family for all coordinates, then one for each, the most promising choice first."""
        privacy, lam = instance("privacy", self.privacy, *get_args(Pointwise)), np.asarray(self.sensitivities)
        asked = lam, np.ones(len(lam)) if self.weights is None else self.weights, float(self.loss), privacy
        search: Allocating
        if self.noise == "mixed":
            made = {kind: replace(self, noise=kind).solve(certify=False) for kind in CLOSED}
            cheapest = sorted(made, key=lambda kind: made[kind].value)
            search = Mixing(*asked, alone={kind: made[kind].mechanism.scales for kind in cheapest})
        else:
            search = Allocating(*asked, FAMILIES[self.noise])
        for law in search.laws(clock):
            value = self._cost_of_laws(law) * (1 + 1e-12)
            refuse(not 0 < value < math.inf, "noise", self.noise, FINITE)
            yield Law(law, value, (proofs.LawProof(),), SolveReport("search"), self.said(value))

    def law_claims(self, stated: proofs.Certificate, given: None) -> Iterator[proofs.Claim]:
        """Check that noise with a law for each coordinate is private by the exact composition over all coordinates, each with its largest change.

        δ of the composition is a bound from above (`composed` of the law): a closed form or basic composition, else in outward-rounded floats.
        Laws are Laplace or Gaussian in a mix, else of one family.
        """
        law = stated.law
        if not isinstance(law, MixedNoise | CoordinateNoise):
            raise DesignError.of("law", type(law).__name__, "must be MixedNoise or CoordinateNoise")
        own = "mixed" if isinstance(law, MixedNoise) else law.noise
        if self.noise != own or not np.array_equal(law.sensitivities, self.sensitivities):
            yield proofs.Claim(
                "the law is noise of the type, for these sensitivities", proofs.PROVED, -math.inf, False
            )
            return
        privacy = instance("privacy", self.privacy, *get_args(Pointwise))
        used, basic = law.composed(privacy)
        kept = ", ".join(f"δ at ε = {e:g} is at most {d:g}" for e, d in pairs_of(privacy))
        claim, how = f"{kept} when all coordinates change by all they may", proofs.RECOMPUTED
        yield proofs.Claim.of(claim, proofs.PROVED if basic else how, self.budget - used)
        room = stated.value * (1 + ROUNDING) - self._cost_of_laws(law)
        yield proofs.Claim.of(f"the loss is at most {stated.value:.9g}", proofs.RECOMPUTED, room)

    def _cost_of_laws(self, law: MixedNoise | CoordinateNoise) -> float:
        with np.errstate(over="ignore"):  # overflow to infinity
            moments = law.absolute_moment(float(self.loss))
        return float((moments if self.weights is None else moments * self.weights).sum())

    def privacy_checked(self, law: object, given: None) -> str:
        return proofs.RECOMPUTED

    # -- what a result says -----------------------------------------------------------------------------------

    def said(self, value: float) -> tuple[str, ...]:
        """Return the notes of a result of this value."""
        notes = []
        quiet = np.flatnonzero(self.sensitivities == 0) if self.sensitivities.min() == 0 else ()
        if len(quiet):
            shown = ", ".join(map(str, quiet[:8])) + (", …" if len(quiet) > 8 else "")
            notes.append(f"coordinates with sensitivity 0 need no noise: {shown}")
        notes += super().said(value)
        if self.requirement.sufficient:
            notes += self._gaussian_instead(value)
        elif self.noise == "laplace" and self.requirement.failing:
            notes.append("one coordinate matters: the (ε, δ) condition is exact")
        return tuple(notes)

    def _gaussian_instead(self, value: float) -> Iterator[str]:
        """Yield a note that compares this loss of Laplace noise with that of Gaussian noise, if only single coordinates are bounded."""
        if self.bounds is not None or self.limits:
            return
        try:
            budget = replace(self.requirement, noise="gaussian").budget
        except DesignError:  # a point without δ
            return
        least = replace(self.separable, exponent=2, budget=budget).least_loss()
        gaussian = absolute_moment("gaussian", self.loss) * least
        less = "less" if gaussian < value else "more"
        yield f'Gaussian noise (noise="gaussian") needs {less}: a loss of {gaussian:.6g} against {value:.6g}'

    # -- what is asked, in numbers --------------------------------------------------------------------

    @cached_property
    def requirement(self) -> ScalesPrivacy:
        """The requirement on scales of one type of noise; where laws are searched it states the question only."""
        noise = self.noise if self.noise in (*CLOSED, "mixed") else "mixed"
        return ScalesPrivacy("privacy", self.privacy, noise, np.asarray(self.sensitivities), self.bounds)

    @property
    def asked(self) -> tuple[ScalesPrivacy, ...]:
        """The requirement alone."""
        return (self.requirement,)

    def consumption(self, result: Result) -> Consumption:
        return ModelledDesign.consumption(self, result) if self.searched else super().consumption(result)

    @property
    def mechanism_class(self) -> proofs.MechanismClass:
        """Independent noise of the type asked for within this budget, with a scale for each coordinate or group."""
        shared = "" if self.groups is None else " of one scale for each group"
        if self.noise == "mixed":
            return proofs.family(f"independent Laplace and Gaussian noise{shared}")
        if self.searched:
            return proofs.family(f"independent {self.noise.replace('_', ' ')} noise")
        return problems.scales_class(self.noise, self.asked, shared)

    @cached_property
    def changes(self) -> AllChanges | None:
        """The changes under several bounds; None if there are only those of single coordinates."""
        return changes_within(self.requirement)

    @cached_property
    def budget(self) -> float:
        r"""The budget, rounded down: :math:`\mu_0^2` (Gaussian) or the total ε (Laplace). Where laws are searched: δ, ε under pure privacy, or 1 for several points."""
        if not self.searched:
            return self.requirement.budget
        privacy, points = self.privacy, self.requirement.points
        instance("privacy", privacy, PureDP, *get_args(GaussianPrivacy))
        refuse(isinstance(privacy, GaussianDP), "privacy", privacy, GAUSSIAN_ALONE)
        if isinstance(privacy, PureDP) and self.noise != "mixed" and FAMILIES[self.noise].closed_form:
            return privacy.epsilon
        allowed = (
            f'{self.noise} noise takes delta > 0, ApproximateDP, MembershipAdvantage or TradeOff; at delta = 0 take noise="laplace" or "staircase", under '
            'ZeroConcentratedDP noise="gaussian"'
        )
        refuse(not (points and all(delta for _, delta in points)), "privacy", privacy, allowed)
        return 1.0 if isinstance(privacy, TradeOff) else points[0][1]

    def cost_of(self, scales: Numbers) -> float:
        r"""Return :math:`\sum_i w_i E|T_i|^p`."""
        held = doubles("scales", scales)
        allowed = f"must have one per coordinate, {self.sensitivities.shape}"
        refuse(held.shape != self.sensitivities.shape, "scales", held.shape, allowed)
        return problems.cost(self.noise, float(self.loss), self.weights, held)

    def _loss_of_groups(self, moments: float) -> float:
        """Return the whole loss where Σ W s^p over the groups that need noise is `moments`: lower limits on the other groups cost too."""
        forced = 0.0 if self.needs is None else self.cost_of(self._spread(np.zeros(len(self.needs))))
        return absolute_moment(self.noise, self.loss) * moments + forced

    # The separable problem over the groups that need noise -------------------------------------------------

    @cached_property
    def _members(self) -> Indices | None:
        """Group of each coordinate; None when every coordinate is its own."""
        if self.groups is None:
            return None
        member = np.empty(len(self.sensitivities), dtype=np.int64)
        for g, coordinates in enumerate(self.groups):
            member[coordinates] = g
        return member

    @cached_property
    def _grouped(self) -> tuple[Array, Array | None, Array | None, Array | None]:
        """Sensitivity, weight and limits of each group."""
        lam, member = self.sensitivities, self._members
        if member is None:
            return lam, self.weights, self.lower, self.upper
        count, top, m = len(self.groups), float(lam.max()), self.requirement.exponent
        total: Array = np.bincount(member, weights=power(lam / top, m), minlength=count).astype(float)
        joint = top * power(total, 1 / m)
        weight: Array = np.bincount(member, weights=self.weights, minlength=count).astype(float)
        lower = None if self.lower is None else np.array([self.lower[g].max() for g in self.groups])
        upper = None if self.upper is None else np.array([self.upper[g].min() for g in self.groups])
        # Rounded up, so that the budget of the groups covers that of their members.
        return joint * (1 + self._widened / 2), weight, lower, upper

    @property
    def _widened(self) -> float:
        """Largest relative share of the budget lost by rounding the sensitivities of groups up."""
        return 0.0 if self.groups is None else 2e-14

    @cached_property
    def needs(self) -> Indices | None:
        """The groups that need noise; None when all do."""
        lam = self._grouped[0]
        return None if lam.min() > 0 else np.flatnonzero(lam)

    @cached_property
    def separable(self) -> Separable:
        """The problem over the groups that need noise."""
        lam, *others = self._grouped
        if self.needs is not None:
            lam, others = lam[self.needs], [None if v is None else v[self.needs] for v in others]
        weight, lower, upper = others
        order, exponent = float(self.loss), self.requirement.exponent
        return Separable(lam, weight, order, exponent, self.budget, lower, upper)

    def _spread(self, scales: Array) -> Array:
        """Return scales of the groups as scales of the coordinates; those that need no noise get their lower limit."""
        if self.needs is not None:
            lam, _, lower, _ = self._grouped
            full = np.zeros(len(lam)) if lower is None else lower.copy()
            full[self.needs] = scales
            scales = full
        return scales if self._members is None else scales[self._members]

    def check_feasible(self) -> None:
        """Raise InfeasibleError if the upper limits need a larger budget."""
        problem = self.separable
        if problem.upper is None or problem.keeps(problem.upper):
            return
        parts = power(problem.sensitivity / problem.upper, problem.exponent)
        least, worst = float(parts.sum()), int(np.argmax(parts))
        group = worst if self.needs is None else int(self.needs[worst])
        epsilon = self.requirement.smallest_epsilon(least)
        digits = 6 if f"{least:.6g}" != f"{self.budget:.6g}" else 17
        raise InfeasibleError(
            f"the upper limits force a budget of {'μ²' if self.noise == 'gaussian' else 'a total ε'} of at least "
            f"{least:.{digits}g}, and {self.budget:.{digits}g} is allowed; {'coordinate' if self.groups is None else 'group'} "
            f"{group} takes most of it (upper = {problem.upper[worst]:.6g})"
            + (
                "" if epsilon is None else f"; with these limits the smallest epsilon is {epsilon:.{digits}g}"
            ),
            smallest_epsilon=epsilon,
            least=least,
        )

    def kept(self, scales: Array) -> Iterator[proofs.Claim]:
        for name, limit, sign in (("lower", self.lower, 1), ("upper", self.upper, -1)):
            if limit is not None:
                room = float(np.min(np.where(np.isfinite(limit), sign * (scales - limit), np.inf)))
                yield proofs.Claim.of(f"scales keep their {name} limits", proofs.PROVED, room)
        if self.groups is not None:
            widest = max(float(np.ptp(scales[g])) for g in self.groups)
            yield proofs.Claim("groups share a scale", proofs.PROVED, -widest, widest == 0)

    @property
    def exact(self) -> bool:
        return len(self.sensitivities) <= EXACT

    def dual(self, found: Multipliers) -> tuple[float, float]:
        """Return the lower bound of the closed forms in doubles, and a bound on its error."""
        unit = absolute_moment(self.noise, self.loss)
        problem = self.separable
        if self.changes is not None:
            (mix,) = found.profiles(self.asked)
            problem = against(mix, self.weights, problem.order, problem.exponent, problem.budget)
        dual, error = problem.dual(float(found.multipliers[0]) / unit)
        return self._loss_of_groups(dual), unit * error

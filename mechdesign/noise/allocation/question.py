"""What a noise allocation asks, in numbers: profile, requirement, loss, limits and groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, get_args

import numpy as np

from mechdesign.accounting.gaussian import GaussianPrivacy
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.classes import MechanismClass, family
from mechdesign.evidence.proofs import PROVED, Claim
from mechdesign.evidence.results import Result
from mechdesign.model.scales import ScalesPrivacy, absolute_moment
from mechdesign.noise.allocation.lagrangian import Multipliers
from mechdesign.noise.allocation.proofs import ScalesDesign, changes_within, cost, scales_class
from mechdesign.noise.allocation.separable import EXACT, Separable, power
from mechdesign.noise.allocation.several import Changes
from mechdesign.problem.checks import doubles, instance
from mechdesign.problem.privacy import GAUSSIAN_ALONE, Consumption, GaussianDP, PureDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.problem.spine import ModelledDesign
from mechdesign.typing import Array, Indices, Numbers

Privacy: TypeAlias = PureDP | GaussianPrivacy


@dataclass(frozen=True, eq=False)
class AllocationQuestion(ScalesDesign):
    """The fields of a `NoiseAllocation`, see there, and what follows from them."""

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

    @cached_property
    def requirement(self) -> ScalesPrivacy:
        """What is asked of scales of one type of noise."""
        return ScalesPrivacy("privacy", self.privacy, self.noise, np.asarray(self.sensitivities), self.bounds)

    @property
    def asked(self) -> tuple[ScalesPrivacy, ...]:
        """The requirement, on its own."""
        return (self.requirement,)

    def consumption(self, result: Result) -> Consumption:
        return (
            ModelledDesign.consumption(self, result) if self.noise == "mixed" else super().consumption(result)
        )

    @property
    def among(self) -> MechanismClass:
        """Independent noise of the type asked for, a scale for each coordinate or group, that keeps this budget."""
        shared = "" if self.groups is None else " of one scale for each group"
        if self.noise == "mixed":
            return family(f"independent Laplace and Gaussian noise{shared}")
        return scales_class(self.noise, self.asked, shared)

    @cached_property
    def changes(self) -> Changes | None:
        """The changes that keep several bounds, None where those of single coordinates are all there is."""
        return changes_within(self.requirement)

    def _against(self, mix: Array) -> Separable:
        """The problem where a mix of changes is the profile, over the coordinates that change in it."""
        moved = mix > 0
        weight = None if self.weights is None else self.weights[moved]
        return Separable(mix[moved], weight, float(self.loss), self.spend, self.budget)

    @property
    def spend(self) -> int:
        """m: what a coordinate takes of the budget is (λ/s)^m."""
        return 2 if self.noise == "gaussian" else 1

    @cached_property
    def budget(self) -> float:
        r""":math:`\mu_0^2` (Gaussian) or the total ε (Laplace), rounded down; of a mix δ, of several points 1."""
        if self.noise != "mixed":
            return self.requirement.budget
        privacy, points = self.privacy, self.requirement.points
        instance("privacy", privacy, PureDP, *get_args(GaussianPrivacy))
        if isinstance(privacy, GaussianDP):
            raise DesignError.of("privacy", privacy, GAUSSIAN_ALONE)
        if not (points and all(delta for _, delta in points)):
            raise DesignError.of(
                "privacy",
                privacy,
                'a mix takes delta > 0, ApproximateDP, MembershipAdvantage or TradeOff; at delta = 0 all noise is Laplace (noise="laplace"), under '
                'ZeroConcentratedDP take noise="gaussian"',
            )
        return 1.0 if isinstance(privacy, TradeOff) else points[0][1]

    def cost_of(self, scales: Numbers) -> float:
        r"""Return :math:`\sum_i w_i E|T_i|^p`."""
        held = doubles("scales", scales)
        if held.shape != self.sensitivities.shape:
            raise DesignError.of(
                "scales", held.shape, f"must have one per coordinate, {self.sensitivities.shape}"
            )
        return cost(self.noise, float(self.loss), self.weights, held)

    def _loss_of_groups(self, moments: float) -> float:
        """Return the whole loss where Σ W s^p of the groups that need noise is `moments`, limits on the others included."""
        forced = 0.0 if self.needs is None else self.cost_of(self.spread(np.zeros(len(self.needs))))
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
        count, top, m = len(self.groups), float(lam.max()), self.spend
        total: Array = np.bincount(member, weights=power(lam / top, m), minlength=count).astype(float)
        joint = top * power(total, 1 / m)
        weight: Array = np.bincount(member, weights=self.weights, minlength=count).astype(float)
        lower = None if self.lower is None else np.array([self.lower[g].max() for g in self.groups])
        upper = None if self.upper is None else np.array([self.upper[g].min() for g in self.groups])
        # Rounded up, so that the budget of the groups covers that of their members.
        return joint * (1 + self._widened / 2), weight, lower, upper

    @property
    def _widened(self) -> float:
        """What rounding the sensitivities of groups up takes of the budget at most, relative."""
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
        return Separable(lam, weight, float(self.loss), self.spend, self.budget, lower, upper)

    def spread(self, scales: Array) -> Array:
        """Scales of the groups as scales of the coordinates; what needs no noise gets its lower limit."""
        if self.needs is not None:
            lam, _, lower, _ = self._grouped
            full = np.zeros(len(lam)) if lower is None else lower.copy()
            full[self.needs] = scales
            scales = full
        return scales if self._members is None else scales[self._members]

    def check_feasible(self) -> None:
        """Raise InfeasibleError where the upper limits need a larger budget."""
        problem = self.separable
        if problem.upper is None or problem.keeps(problem.upper):
            return
        parts = power(problem.sensitivity / problem.upper, self.spend)
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

    def kept(self, scales: Array) -> Iterator[Claim]:
        for name, limit, sign in (("lower", self.lower, 1), ("upper", self.upper, -1)):
            if limit is not None:
                room = float(np.min(np.where(np.isfinite(limit), sign * (scales - limit), np.inf)))
                yield Claim(f"scales keep their {name} limits", PROVED, room, room >= 0)
        if self.groups is not None:
            widest = max(float(np.ptp(scales[g])) for g in self.groups)
            yield Claim("groups share a scale", PROVED, -widest, widest == 0)

    @property
    def exact(self) -> bool:
        return len(self.sensitivities) <= EXACT

    def dual(self, found: Multipliers) -> tuple[float, float]:
        """Return the lower bound in doubles, and a bound of its error: of the closed forms."""
        unit = absolute_moment(self.noise, self.loss)
        problem = self.separable if self.changes is None else self._against(found.profiles[0])
        dual, error = problem.dual(float(found.budgets[0]) / unit)
        return self._loss_of_groups(dual), unit * error

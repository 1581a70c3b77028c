"""What a noise allocation asks, in numbers: profile, requirement, loss, limits and groups."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from mechdesign.accounting.gaussian import gaussian_profile, gaussian_square
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.rounding import safe_root
from mechdesign.noise.allocation.separable import Separable, power, weighted_moment
from mechdesign.noise.allocation.several import Changes, changes_of
from mechdesign.noise.vector_noise import absolute_moment
from mechdesign.problem.checks import array, instance, number
from mechdesign.problem.privacy import ApproximateDP, PureDP, ZeroConcentratedDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.typing import Array, Indices

__all__ = ["AllocationQuestion"]

_DOWN = 1 - 8 * 2.0**-53
"""Rounds a budget down past the few roundings it took to compute it."""


@dataclass(frozen=True, eq=False)
class AllocationQuestion:
    """The fields of a `NoiseAllocation`, see there, and what follows from them."""

    noise: str
    sensitivities: Any
    privacy: PureDP | ApproximateDP | ZeroConcentratedDP
    loss: float = 2
    weights: Any = None
    lower: Any = None
    upper: Any = None
    groups: Any = None
    bounds: Sensitivity | None = None

    @cached_property
    def changes(self) -> Changes | None:
        """The changes that keep several bounds, None where those of single coordinates are all there is."""
        return None if self.bounds is None else changes_of(self.bounds, self.spend)

    def against(self, mix: Array) -> AllocationQuestion:
        """The question for a profile: a mix of changes, as the worst of them."""
        return AllocationQuestion(
            **{**{f.name: getattr(self, f.name) for f in fields(self)}, "sensitivities": mix}
        )

    @property
    def spend(self) -> int:
        """m: what a coordinate takes of the budget is (λ/s)^m."""
        return 2 if self.noise == "gaussian" else 1

    @property
    def one_dimensional(self) -> bool:
        """Whether one coordinate alone changes."""
        if self.changes is not None and self.changes.changed == 1:
            return True
        return int(np.count_nonzero(self.sensitivities)) == 1

    @cached_property
    def budget(self) -> float:
        r""":math:`\mu_0^2` (Gaussian), the total ε (Laplace), rounded down, or δ (a mix)."""
        privacy = self.privacy
        instance("privacy", privacy, PureDP, ApproximateDP, ZeroConcentratedDP)
        if self.noise == "mixed":
            if not isinstance(privacy, ApproximateDP) or privacy.delta == 0:
                raise DesignError.of(
                    "privacy",
                    privacy,
                    'a mix takes ApproximateDP with delta > 0; at delta = 0 all noise is Laplace (noise="laplace"), under '
                    'ZeroConcentratedDP take noise="gaussian"',
                )
            return float(privacy.delta)
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
            return gaussian_square(privacy.epsilon, privacy.delta)
        if not isinstance(privacy, PureDP | ApproximateDP):
            raise DesignError.of("privacy", privacy, "Laplace noise takes PureDP or ApproximateDP")
        extra = self._for_delta
        return (privacy.epsilon + extra) * _DOWN if extra else privacy.epsilon

    @property
    def _for_delta(self) -> float:
        """What δ adds to the total ε of Laplace noise."""
        return -(2 if self.one_dimensional else 1) * math.log1p(-getattr(self.privacy, "delta", 0.0))

    def cost_of(self, scales: Array) -> float:
        r"""Return :math:`\sum_i w_i E|T_i|^p`."""
        floats = isinstance(scales, np.ndarray) and scales.dtype == float
        held = scales if floats else array("scales", scales)
        if held.shape != self.sensitivities.shape:
            raise DesignError.of(
                "scales", held.shape, f"must have one per coordinate, {self.sensitivities.shape}"
            )
        return absolute_moment(self.noise, self.loss) * weighted_moment(held, float(self.loss), self.weights)

    def loss_of_groups(self, moments: float) -> float:
        """Return the whole loss where Σ W s^p of the groups that need noise is `moments`, limits on the others included."""
        moments = moments if isinstance(moments, float) else number("moments", moments)
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
        return joint * (1 + 1e-14), weight, lower, upper

    @cached_property
    def needs(self) -> Indices | None:
        """The groups that need noise; None when all do."""
        lam = self._grouped[0]
        return None if lam.min() > 0 else np.flatnonzero(lam)

    @cached_property
    def problem(self) -> Separable:
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
        problem = self.problem
        if problem.upper is None or problem.spent(problem.upper) <= self.budget:
            return
        parts = power(problem.sensitivity / problem.upper, self.spend)
        least, worst = float(parts.sum()), int(np.argmax(parts))
        group = worst if self.needs is None else int(self.needs[worst])
        epsilon = self._smallest_epsilon(least)
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

    def _smallest_epsilon(self, least: float) -> float | None:
        privacy = self.privacy
        if self.noise == "laplace":
            return least - self._for_delta
        if not isinstance(privacy, ApproximateDP):
            return None
        high, mu = 2 * privacy.epsilon + least, math.sqrt(least * (1 + 1e-14))
        while gaussian_profile(high, mu) > privacy.delta:
            high *= 2
        return safe_root(lambda e: gaussian_profile(e, mu) - privacy.delta, privacy.epsilon, high)

"""What a noise allocation asks, in numbers: profile, requirement, loss, limits and groups; and the proof of its answer."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias, get_args

import numpy as np

from mechdesign.accounting.gaussian import (
    GaussianPrivacy,
    budget_worth,
    gaussian_budget,
    gaussian_privacy,
    gaussian_profile,
)
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.classes import MechanismClass, family
from mechdesign.evidence.exact import safe_root
from mechdesign.evidence.proofs import PROVED, RECOMPUTED, Certificate, Claim, Proof
from mechdesign.evidence.results import Result
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.allocation.separable import EXACT, SUM_ERROR, Separable, power, weighted_moment
from mechdesign.noise.allocation.several import ROUNDING, Among, Changes, changes_of, mixed, most_spent
from mechdesign.noise.vector_noise import IndependentNoise, absolute_moment
from mechdesign.problem.checks import doubles, instance, non_negative
from mechdesign.problem.privacy import (
    GAUSSIAN_ALONE,
    ApproximateDP,
    Consumption,
    GaussianDP,
    Pointwise,
    PureDP,
    ZeroConcentratedDP,
    pairs_of,
)
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.problem.spine import ModelledDesign
from mechdesign.typing import Array, Indices, Numbers

Privacy: TypeAlias = PureDP | GaussianPrivacy


@dataclass(frozen=True, eq=False)
class AllocationQuestion(ModelledDesign):
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
    def sufficient(self) -> bool:
        """Whether the budget is sufficient only, as that of Laplace noise on several coordinates with δ > 0 (Corollary 6)."""
        return self.noise == "laplace" and self.failing and not self.one_dimensional

    @property
    def _points(self) -> tuple[tuple[float, float], ...]:
        """(ε, δ) of all that is asked at once; none under zero-concentrated and Gaussian privacy."""
        return pairs_of(self.privacy) if isinstance(self.privacy, Pointwise) else ()

    @property
    def failing(self) -> bool:
        """Whether some δ is above 0."""
        return any(delta for _, delta in self._points)

    def consumption(self, result: Result) -> Consumption:
        stated = super().consumption(result)
        if self.noise == "mixed":
            return stated
        normal = self.noise == "gaussian"
        return stated & (Consumption.gaussian(self.budget) if normal else Consumption.pure((self.budget, 1)))

    @property
    def among(self) -> MechanismClass:
        """Independent noise of the type asked for, a scale for each coordinate or group, that keeps this budget."""
        name = {"gaussian": "Gaussian", "laplace": "Laplace", "mixed": "Laplace and Gaussian"}[self.noise]
        within = " whose scales meet Corollary 6" if self.sufficient else ""
        shared = "" if self.groups is None else " of one scale for each group"
        return family(f"independent {name} noise{shared}{within}")

    @cached_property
    def changes(self) -> Changes | None:
        """The changes that keep several bounds, None where those of single coordinates are all there is."""
        return None if self.bounds is None else changes_of(self.bounds, self.spend)

    @property
    def joint(self) -> Changes:
        """The same changes, where there are several bounds."""
        assert self.changes is not None
        return self.changes

    def _against(self, mix: Array) -> Separable:
        """The problem where a mix of changes is the profile, over the coordinates that change in it."""
        moved = mix > 0
        weight = None if self.weights is None else self.weights[moved]
        return Separable(mix[moved], weight, float(self.loss), self.spend, self.budget)

    @property
    def spend(self) -> int:
        """m: what a coordinate takes of the budget is (λ/s)^m."""
        return 2 if self.noise == "gaussian" else 1

    @property
    def one_dimensional(self) -> bool:
        """Whether one coordinate alone changes."""
        if self.changes is not None and self.changes.l0 == 1:
            return True
        return int(np.count_nonzero(self.sensitivities)) == 1

    @cached_property
    def budget(self) -> float:
        r""":math:`\mu_0^2` (Gaussian) or the total ε (Laplace), rounded down; of a mix δ, of several points 1."""
        privacy = self.privacy
        instance("privacy", privacy, PureDP, *get_args(GaussianPrivacy))
        points = self._points
        if self.noise != "gaussian" and isinstance(privacy, GaussianDP):
            raise DesignError.of("privacy", privacy, GAUSSIAN_ALONE)
        if self.noise == "mixed" and not (points and all(delta for _, delta in points)):
            raise DesignError.of(
                "privacy",
                privacy,
                'a mix takes delta > 0, ApproximateDP, MembershipAdvantage or TradeOff; at delta = 0 all noise is Laplace (noise="laplace"), under '
                'ZeroConcentratedDP take noise="gaussian"',
            )
        if self.noise == "mixed":
            return 1.0 if isinstance(privacy, TradeOff) else points[0][1]
        if self.noise == "gaussian":
            exact = isinstance(privacy, ZeroConcentratedDP | GaussianDP)
            return gaussian_budget(privacy) * (1 - SUM_ERROR if exact else 1)
        if not points:
            raise DesignError.of(
                "privacy", privacy, "Laplace noise takes epsilon and delta: PureDP, ApproximateDP or TradeOff"
            )
        return min((e + self._worth(d)) * (1 - SUM_ERROR) if d else e for e, d in points)

    def _worth(self, delta: float) -> float:
        """What δ adds to the total ε of Laplace noise."""
        return -(2 if self.one_dimensional else 1) * math.log1p(-delta)

    def cost_of(self, scales: Numbers) -> float:
        r"""Return :math:`\sum_i w_i E|T_i|^p`."""
        held = doubles("scales", scales)
        if held.shape != self.sensitivities.shape:
            raise DesignError.of(
                "scales", held.shape, f"must have one per coordinate, {self.sensitivities.shape}"
            )
        return absolute_moment(self.noise, self.loss) * weighted_moment(held, float(self.loss), self.weights)

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
        return joint * (1 + 1e-14), weight, lower, upper

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
        if self.noise == "laplace" and len(self._points) == 1:
            return max(least - self._worth(self._points[0][1]), 0.0)
        if not isinstance(privacy, ApproximateDP):
            return None
        high, mu = 2 * privacy.epsilon + least, math.sqrt(least * (1 + 1e-14))
        while gaussian_profile(high, mu) > privacy.delta:
            high *= 2
        return safe_root(lambda e: gaussian_profile(e, mu) - privacy.delta, privacy.epsilon, high)


@serializable("allocation-proof")
@dataclass(frozen=True, eq=False)
class AllocationProof(Proof):
    r"""Scales that keep the budget on the worst change keep the requirement, and one multiplier bounds their loss from below.

    Independent noise of scales s consumes :math:`\max_v \sum_i (|v_i|/s_i)^m`, and what a budget is worth is said in
    Muthukrishnan and Kalyani, Theorems 4 and 5, Corollary 6. By weak duality
    :math:`\sum_i \min_s (w_i E|sT|^p + y(\lambda_i/s)^m) - yB` is a lower bound for every y ≥ 0 and for every profile λ that is a
    mix of changes. What is consumed is summed in rational numbers up to 2,000 coordinates and rounded up beyond; loss and lower
    bound are sums in floats.

    Parameters
    ----------
    multiplier : float
        y.
    prices : tuple of float, optional
        Under several bounds: of a changed coordinate, of L₁ and of L₂²; they prove what the worst change consumes.
    held : {None, "l1", "l2"}
        The norm that is filled, see `most_spent`.
    mix : ndarray, shape (K,), optional
        Under several bounds: the profile of the mix of changes that proves the lower bound.
    changes, weights : ndarray, optional
        What the mix is made of: changes (N, K) and their weights (N,), or sizes (K,) and shares (K,), see
        `mechdesign.noise.allocation.several`. Not given where the mix is its own proof.
    """

    multiplier: float
    prices: tuple[float, ...] | None = None
    held: str | None = None
    mix: Array | None = None
    changes: Array | None = None
    weights: Array | None = None

    speaks_of = ("privacy", "value", "lower bound")
    bound_how = RECOMPUTED

    def __post_init__(self) -> None:
        non_negative("multiplier", self.multiplier)

    def spent(self, asked: AllocationQuestion, scales: Array) -> Fraction | float:
        """What no change consumes more than."""
        lam = asked.sensitivities
        if np.any((scales <= 0) & (lam > 0)):
            return math.inf
        if asked.changes is not None:
            one, two, three = self.prices or (0.0, 0.0, 0.0)
            return most_spent(asked.changes, scales, (one, two, three), self.held)
        if len(lam) <= EXACT:
            pairs = zip(lam.tolist(), scales.tolist())
            return sum(((Fraction(v) / Fraction(s)) ** asked.spend for v, s in pairs if v), Fraction(0))
        ratio = np.divide(lam, scales, out=np.zeros(len(lam)), where=lam > 0)
        return float((ratio**asked.spend).sum()) * (1 + 1e-14)

    def slack(self, asked: AllocationQuestion, scales: Array) -> float:
        """What is left of the budget; its sign is exact."""
        spent = self.spent(asked, scales)
        return float(Fraction(asked.budget) - Fraction(spent)) if spent < math.inf else -math.inf

    def check(self, stated: Certificate) -> Iterator[Claim]:
        asked = instance("question", stated.question, AllocationQuestion)
        law = instance("law", stated.law, IndependentNoise)
        # `release` takes from the law's own sensitivities how much wider it must be for its lattice
        alike = law.noise == asked.noise and law.bounds == asked.bounds
        if not (
            alike and law.sensitivities is not None and np.array_equal(law.sensitivities, asked.sensitivities)
        ):
            yield Claim(
                "the law is noise of the type, for the changes, of the question", PROVED, -math.inf, False
            )
            return
        scales = law.scales
        slack = self.slack(asked, scales)
        yield Claim("the scales keep the privacy budget", PROVED, slack, slack >= 0)
        if asked.noise == "gaussian" and not isinstance(asked.privacy, ZeroConcentratedDP | GaussianDP):
            room = budget_worth(gaussian_privacy("privacy", asked.privacy), asked.budget)
            yield Claim("the budget is worth (ε, δ)", RECOMPUTED, room, room >= 0)
        for name, limit, sign in (("lower", asked.lower, 1), ("upper", asked.upper, -1)):
            if limit is not None:
                room = float(np.min(np.where(np.isfinite(limit), sign * (scales - limit), np.inf)))
                yield Claim(f"scales keep their {name} limits", PROVED, room, room >= 0)
        if asked.groups is not None:
            widest = max(float(np.ptp(scales[g])) for g in asked.groups)
            yield Claim("groups share a scale", PROVED, -widest, widest == 0)
        room = stated.value * (1 + ROUNDING) - asked.cost_of(scales)
        yield Claim(f"the loss is at most {stated.value:.9g}", RECOMPUTED, room, room >= 0)
        if stated.lower_bound is None:
            return
        problem = asked.separable
        if asked.changes is not None:
            reached = self.mix is not None and self._is_mix(asked.changes, self.mix)
            yield Claim("the worst mix is one of changes", RECOMPUTED, 0.0, reached)
            if self.mix is None or not reached:
                return
            problem = asked._against(self.mix)
        dual, error = problem.dual(max(self.multiplier, 0.0))
        # half of the error is more than the doubles have lost: of a huge multiplier nothing else may be left
        bound = asked._loss_of_groups(dual - error / 2)
        room = bound + ROUNDING * abs(bound) - stated.lower_bound
        claim = f"no {asked.among.noun} costs less than {stated.lower_bound:.9g}"
        yield Claim(claim, RECOMPUTED, room, room >= 0)

    def _is_mix(self, asked: Changes, mix: Array) -> bool:
        """Whether some mix of changes is at least this one in each coordinate."""
        if self.changes is None or self.weights is None:
            return asked.reached(mix)
        found = mixed(asked, Among(self.changes, self.weights))
        if found is None or mix.shape != found.shape or not (np.isfinite(mix).all() and mix.any()):
            return False
        return bool(np.all((mix >= 0) & (mix <= found * (1 + ROUNDING))))

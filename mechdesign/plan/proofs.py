"""What is proved of a plan: that all tasks and rounds keep the budget, what they err, and that no plan of the menu costs less."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from mechdesign.accounting.interval import DeltaInterval
from mechdesign.errors import instance
from mechdesign.evidence.proofs import ABOUT_FILE, PROVED, RECOMPUTED, Certificate, Claim, Proof
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.calibration_evaluation import budget_of
from mechdesign.plan.mechanism import PlannedRelease, Privacy, worst_error
from mechdesign.plan.search import Choice, Search

_ROUND = 1e-12


@runtime_checkable
class PlanQuestion(Protocol):
    """What proofs ask of a `Plan`."""

    targets: dict[str, float] | None
    _search: Search

    def granted(self, value: float) -> Privacy:
        """What a plan of this value keeps."""

    def choices(self, law: PlannedRelease) -> list[Choice] | None:
        """The items and scales of a law; None where it is no plan of these tasks."""

    def cost(self, law: PlannedRelease) -> float:
        """Weighted squared error of all answers of a round."""

    def least(self, prices: Sequence[float]) -> float:
        """What no plan costs less than: by the targets, or by prices of the budget."""

    def costs_at_least(self, least: float) -> bool:
        """Whether no plan is seen to cost less, under (ε, δ)."""


def spent_claims(design: Any, stated: Certificate, spent: DeltaInterval) -> Iterator[Claim]:
    """Recompute what all parts consume together in all rounds, and that the interval `spent` encloses it.

    Largest losses add up, and ρ (Bun and Steinke 2016); δ is that of the composition of all losses, each of the worst change
    of its part: dominating pairs compose (Zhu, Dong and Wang 2022). Of groups of disjoint people the largest counts: one person is in one of them.
    """
    law, value = instance("law", stated.law, PlannedRelease), stated.value
    fits = design.choices(law) is not None
    yield Claim("the noise is of the menu, for the tasks asked", PROVED, math.nan, fits, ABOUT_FILE)
    if not fits:
        return
    privacy = design.granted(value)
    fresh = law.consumed(privacy)
    room = budget_of(privacy) - fresh.upper
    yield Claim(f"{privacy} is kept by all tasks and rounds", fresh.how, room, room >= 0)
    agrees = spent.vouched(fresh, budget_of(privacy))
    yield Claim("the enclosure stored is that of the plan", RECOMPUTED, math.nan, agrees, ABOUT_FILE)
    if design.targets is None:
        room = value * (1 + _ROUND) - design.cost(law)
        yield Claim(f"the error is at most {value:.9g}", RECOMPUTED, room, room >= 0)
        return
    room = design._search.budget - value
    yield Claim(f"the least budget is at most {value:.9g}", PROVED, room, room >= 0)
    for name, parts in law.parts.items():
        target = design.targets[name]
        room = target**2 * (1 + _ROUND) - worst_error(parts)
        yield Claim(f"the error of {name} is at most {target:.9g}", RECOMPUTED, room, room >= 0)


@serializable("plan-bound")
@dataclass(frozen=True, eq=False)
class PlanBound(Proof):
    r"""No plan of the menu costs less.

    Parameters
    ----------
    prices : tuple of float
        λ ≥ 0 of the budget, one a group: whatever they are, :math:`\sum \min_s (w e(s) + \lambda D(s)) - \lambda B` is a lower bound by weak duality,
        D the largest loss, or ρ of normal noise. Without any: with targets, what each part consumes at least; else, under (ε, δ),
        boxes of scales in which some plan costs no less or does not keep the budget cover all plans, or not: `mechdesign.plan.bound`.
    """

    prices: tuple[float, ...]
    speaks_of = ("lower bound",)
    bound_how = RECOMPUTED
    not_linear = "prices of the budget, by closed forms"

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design: Any = instance("question", stated.question, PlanQuestion)
        bound, search, proved = stated.lower_bound, design._search, -math.inf
        count = 0 if search.privacy is not None or design.targets else len(search.chains)
        if len(self.prices) == count and all(price >= 0 for price in self.prices):
            if self.prices or design.targets:
                proved = design.least(self.prices)
                proved += _ROUND * abs(proved)
            elif bound is not None and design.costs_at_least(bound):
                proved = bound
        yield self.least(stated, proved)

"""What a plan releases: an answer for every task at once, each part with noise of its own, private all together."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from operator import add
from typing import Any, get_args

from scipy import stats

from mechdesign.accounting.interval import DeltaInterval
from mechdesign.errors import DesignError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.exact import round_up
from mechdesign.evidence.proofs import PROVED, RECOMPUTED
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.calibration.evaluation import consumed
from mechdesign.plan.search import together
from mechdesign.plan.tasks import Part, task_of
from mechdesign.problem.checks import instance, one_of
from mechdesign.problem.privacy import (
    ApproximateDP,
    Consumption,
    GaussianDP,
    MembershipAdvantage,
    PureDP,
    ZeroConcentratedDP,
)
from mechdesign.problem.sensitivity import NEIGHBOURS
from mechdesign.problem.words import guarantee, stated

BY_MU = GaussianDP | MembershipAdvantage | TradeOff
"""Requirements that a plan meets by its μ."""
Privacy = PureDP | ApproximateDP | ZeroConcentratedDP | GaussianDP | MembershipAdvantage | TradeOff


def chains_of(names: Sequence[str], disjoint: Sequence[Sequence[str]]) -> list[list[str]]:
    """The tasks that one person can be in: those of everybody, and one group's."""
    apart = {name for group in disjoint for name in group}
    common = [name for name in names if name not in apart]
    return [[*common, *group] for group in disjoint] or [common]


@serializable("planned-release")
@dataclass(frozen=True, eq=False)
class PlannedRelease:
    """Noise for all tasks of a plan.

    Parameters
    ----------
    tasks : dict of str to a task
        Each with the one clip that was chosen.
    noises : tuple of AdditiveNoise
        One a part, in the order of tasks and parts.
    neighbours : {"add-remove", "replace"}
    disjoint : tuple of tuples of str
        Groups of tasks over disjoint people.
    """

    tasks: dict[str, Any]
    noises: tuple[AdditiveNoise, ...]
    neighbours: str = "add-remove"
    disjoint: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        one_of("neighbours", self.neighbours, NEIGHBOURS)
        for noise in instance("noises", self.noises, tuple):
            instance("noises", noise, AdditiveNoise)
        versions = [
            s
            for name, task in instance("tasks", self.tasks, dict).items()
            for s in task_of(name, task).slots(self.neighbours)
        ]
        asked = [(v[0].sensitivity, v[0].dimension) for v in versions if len(v) == 1]
        if len(asked) != len(versions) or asked != [(n.sensitivity, n.dimension) for n in self.noises]:
            raise DesignError.of(
                "noises", len(self.noises), "must be noise for what changes in the tasks, one a part"
            )

    @cached_property
    def parts(self) -> dict[str, list[tuple[Part, AdditiveNoise]]]:
        """The parts of each task with their noise."""
        left = iter(self.noises)

        def own(part: Part, noise: AdditiveNoise) -> tuple[Part, AdditiveNoise]:
            return replace(part, whole=part.whole and isinstance(noise.law.dist, stats.rv_discrete)), noise

        return {
            name: [own(version[0], next(left)) for version in task_of(name, task).slots(self.neighbours)]
            for name, task in self.tasks.items()
        }

    @property
    def _groups(self) -> list[list[AdditiveNoise]]:
        """The noise of the tasks that one person can be in."""
        chains = chains_of([*self.tasks], self.disjoint)
        return [[noise for name in chain for _, noise in self.parts[name]] for chain in chains]

    @property
    def rounds(self) -> int:
        """How often it may be released."""
        return self.noises[0].rounds

    def release(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer for every task, for deployment: one of `rounds`.

        The noise is drawn exactly, from the operating system's randomness (`AdditiveNoise.release`); whole numbers stay whole.

        Parameters
        ----------
        answers : dict of str to numbers
            Of every task: a number, an array of counts; of a mean under add-remove neighbours the sum and the count.

        Raises
        ------
        DesignError
            A task without an answer, or an answer to none. Nothing is released.
        DataError
            A number that is not finite, or not whole. The guarantee does not cover that refusal.
        """
        if set(instance("answers", answers, Mapping)) != set(self.tasks):
            raise DesignError.of(
                "answers", sorted(map(str, answers)), f"must be for the tasks {list(self.tasks)}"
            )
        held = {
            name: task_of(name, task).read(name, answers[name], [part for part, _ in self.parts[name]])
            for name, task in self.tasks.items()
        }
        out = {}
        for name, task in self.tasks.items():
            parts = self.parts[name]
            noisy = [
                noise.release(x.reshape(-1)).reshape(x.shape) for (_, noise), x in zip(parts, held[name])
            ]
            out[name] = task_of(name, task).told(noisy, [part for part, _ in parts])
        return out

    def consumed(self, privacy: Privacy) -> DeltaInterval:
        """Bound what all tasks and rounds consume: δ at ε (composed it is from above alone); the largest privacy loss; ρ; μ, and what follows from it.

        Of groups, the most.
        """
        instance("privacy", privacy, *get_args(Privacy))
        found = [_consumed(noises, privacy) for noises in self._groups]
        how = PROVED if all(one.how == PROVED for one in found) else RECOMPUTED
        return DeltaInterval(max(one.lower for one in found), max(one.upper for one in found), how)

    def consumption(self) -> Consumption:
        """What all tasks and rounds consume of a ledger: of groups, the most."""
        groups = [_added(noises) for noises in self._groups]
        return Consumption(*(max(getattr(one, key) for one in groups) for key in ("epsilon", "rho", "mu")))

    def __str__(self) -> str:
        found = self.consumption()
        asked = guarantee(ZeroConcentratedDP(found.rho))
        if math.isfinite(found.epsilon):
            asked = f"{guarantee(PureDP(found.epsilon))}, δ = 0"
        lines = [f"{name}: {n.summary()}" for name, parts in self.parts.items() for _, n in parts]
        return "\n  ".join([stated(asked, f"{self.neighbours} neighbours", None, self.rounds), *lines])


def _added(noises: list[AdditiveNoise]) -> Consumption:
    return functools.reduce(add, (noise.consumption() for noise in noises))


def _consumed(noises: list[AdditiveNoise], privacy: Privacy) -> DeltaInterval:
    if isinstance(privacy, BY_MU):
        mu = _added(noises).mu
        if mu == math.inf:
            return DeltaInterval(0.0, math.inf)
        return consumed(AdditiveNoise(stats.norm(), mu), privacy)
    largest_loss = PureDP(privacy.epsilon) if getattr(privacy, "delta", 0.0) else privacy  # type: ignore[union-attr]
    each = [consumed(noise, largest_loss) for noise in noises]
    how = PROVED if all(one.how == PROVED for one in each) else RECOMPUTED
    ends = [one.upper for one in each]
    upper = math.inf if math.inf in ends else round_up(sum(map(Fraction, ends)))
    if not isinstance(privacy, ApproximateDP) or not privacy.delta:
        return DeltaInterval(math.fsum(one.lower for one in each) * (1 - 1e-15), upper, how)
    if upper <= privacy.epsilon:
        return DeltaInterval(0.0, 0.0, how)
    return together([term for noise in noises for term in noise.noise_terms()], privacy, 1e-4)

"""The plan: named tasks under one budget, with the noise of least error, or the least budget that meets targets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, fields, replace
from dataclasses import field as dataclass_field
from fractions import Fraction
from functools import cached_property
from typing import Any, get_args

import numpy as np

from mechdesign.accounting.gaussian import gaussian_budget, gaussian_privacy, gaussian_square
from mechdesign.accounting.interval import DeltaInterval
from mechdesign.checks import UP, field, inside, instance, integer, number, one_of, refuse, settle
from mechdesign.choice.rule import Choosing
from mechdesign.errors import DesignError, InfeasibleError, unlike
from mechdesign.evidence import proofs
from mechdesign.evidence.digits import at_most
from mechdesign.evidence.exact import excess, least_kept, round_down
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.calibration_search import budget_of
from mechdesign.plan.bound import Cover
from mechdesign.plan.ledger import Budget, kept_for_later, kept_for_now
from mechdesign.plan.mechanism import (
    BY_MU,
    PlannedRelease,
    PlanPage,
    Privacy,
    chains_of,
    currency_of,
    law_key,
    priced,
    stated_part,
    worst_error,
)
from mechdesign.plan.search import (
    FAMILIES,
    VARIANCES,
    Choice,
    Item,
    Search,
    items_of,
    root,
    split,
    tally,
)
from mechdesign.plan.tasks import LinearQueries, Part, Task, deviation_of, task_of
from mechdesign.problem.privacy import ApproximateDP, PureDP, guarantee
from mechdesign.problem.sensitivity import neighbours_field
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.problem.workload import Workload
from mechdesign.solvers.deadline import Deadline

_RATIOS = 2.0, 1.5, 1.2, 1.1, 1.05, 1.02, 1.01
"""Ratios of the value to lower bounds that are tried, down to the target gap."""
_COVERED = 20_000
"""Most evaluations of δ for a lower bound: some seconds."""
_HALF = 0.5
"""δ from which no lower bound is sought."""
_LEAST = 1e-6
"""Least share of ε: for targets that δ alone allows."""
_ROUND = 1e-12
"""Relative rounding error of errors in doubles."""
_PURE = 1 + 1e-4
"""Factor within which a pure plan is preferred to a cheaper one, as its proof is exact."""

_VERIFIED = 3e-5
"""Relative increase of scales whose losses are composed: the stand-alone verifier has a coarser grid, and must prove the same δ."""


@serializable("plan", eq=False)
class Plan(PlanPage):
    r"""Several tasks over the same people, released together under one budget.

    Parameters
    ----------
    tasks : dict of str to a task
        `Histogram`, `Count`, `Mean`, `Sum`, `NumericQuery` or `Workload`, by name; also `PrivateChoice` and `PrivateQuantile`, which state their budget
        of a round themselves: it is subtracted exactly, in ε or ρ, before the rest is shared, and the plan's value is that of the others.
    privacy : PureDP, ApproximateDP, ZeroConcentratedDP, GaussianDP, MembershipAdvantage or TradeOff
        Requirement for all tasks in all rounds together.
    weights : dict of str to float, optional
        Weight of a task's total squared error in the `value`, 1 if not named. Without weights, each task's error is relative to its error if
        all tasks get an equal share of the budget: units do not matter, and the value is at most the number of tasks.
    targets : dict of str to float, optional
        The largest standard deviation of an answer (root mean squared error, where a clip has a bias), for every task. The plan then takes the least budget:
        `value` is the least ε at this δ, or the least ρ, at most that of `privacy`.
    rounds : int
        How often all tasks are answered.
    neighbours : {"add-remove", "replace"}
    disjoint : sequence of sequences of str, optional
        Groups of tasks such that nobody is in the data of two of them: each may consume the whole rest of the tasks outside all groups. For add-remove neighbours.
    families : sequence of {"laplace", "gaussian", "staircase"}
        The menu; whole numbers take the discrete laws of the first two. Under ρ it is normal noise alone, and also under μ, advantages and trade-offs, where whole
        numbers get continuous noise, too: discrete normal noise is not Gaussian private.
    chosen : dict of str to PrivateChoice or PrivateQuantile
        The choices and quantiles among the tasks, which are moved here.
    reserve : float
        Share of `privacy` reserved for later questions about the same people: the plan then has the rest of ε, of ρ or of μ². For (ε, δ) it is a
        plan in the ρ that implies it (as `Ledger` counts), with normal noise.
    budget : PureDP, ApproximateDP, ZeroConcentratedDP or GaussianDP, optional
        The budget before a `reserve` was subtracted; `privacy` is then the rest.
    relative : dict of str to (float, float), optional
        Relative targets: ``{"visits": (.05, 1400)}`` asks for a standard deviation of 5% of 1,400.

    Notes
    -----
    The value is the weighted squared error of one round. Without weights the geometric mean of errors relative to an even split's is at most 1, as their sum is at
    most the number of tasks. The lower bound is for all plans of the menu. Under pure ε, ρ or μ the gap closes; under (ε, δ) branch and bound on the scales
    (`mechdesign.plan.bound`) gives the bound, for plans that treat equal tasks equally (those with equal losses at equal error, up to its unit): to ``gap=``, by default a factor of 1.1, or as
    close as some seconds allow. Bounds below half the value are not stated.

    Whole numbers get whole noise unless the task has ``whole=False``; the table shows the deviation of continuous noise for the same share.

    Examples
    --------
    >>> import mechdesign as md
    >>> tasks = {"visits": md.Histogram(50), "spent": md.Sum(5.0)}
    >>> result = md.Plan(tasks, md.PureDP(1.0), weights={"visits": 1 / 50}).solve()
    >>> result.to_frame()[["task", "mechanism", "share"]].round(4).values.tolist()
    [['visits', 'discrete Laplace', 0.2...], ['spent', 'staircase', 0.7...]]
    >>> sorted(result.mechanism.release({"visits": range(50), "spent": 81.5}))
    ['spent', 'visits']
    """

    tasks: dict[str, Any]
    privacy: Privacy = field(*get_args(Privacy))
    weights: dict[str, float] | None = None
    targets: dict[str, float] | None = None
    rounds: int = field(check=integer, least=1, most=10**6, default=1)
    neighbours: str = neighbours_field()
    disjoint: tuple[tuple[str, ...], ...] = ()
    families: tuple[str, ...] = field(check=one_of, allowed=FAMILIES, many=True, default=FAMILIES)
    chosen: dict[str, Any] = dataclass_field(default_factory=dict)
    budget: Budget | None = None
    reserve: InitVar[float] = 0.0
    relative: InitVar[dict[str, tuple[float, float]] | None] = None

    central = True
    answer_size = None

    def __post_init__(self, reserve: float, relative: dict[str, tuple[float, float]] | None) -> None:
        super().__post_init__()
        if relative is not None:
            wanted = {name: deviation_of(name, pair) for name, pair in _named("relative", relative).items()}
            settle(self, targets=wanted | ({} if self.targets is None else _named("targets", self.targets)))
        if getattr(self.privacy, "xi", 0.0):
            raise DesignError.of("xi", self.privacy.xi, "must be 0 for a plan")  # type: ignore[union-attr]
        if reserve := number("reserve", reserve, side=UP):
            settle(self, privacy=kept_for_now(self.privacy, reserve), budget=self.privacy)
        _ = self.kept
        every = {**_named("tasks", self.tasks), **instance("chosen", self.chosen, dict)}
        chosen = {name: task for name, task in every.items() if isinstance(task, Choosing)}
        if len(every) < len(self.tasks) + len(self.chosen) or not {*self.chosen} <= {*chosen}:
            remedy = "must be choices and quantiles of names of their own"
            raise DesignError.of("chosen", [*self.chosen], remedy)
        if len(chosen) == len(every):
            raise DesignError.of("tasks", [*chosen], "must have one with noise: choices alone need no plan")
        settle(self, tasks={k: task for k, task in every.items() if k not in chosen}, chosen=chosen)
        if self.weights is not None and self.targets is not None:
            raise DesignError.of("targets", self.targets, "must be None where weights are given")
        for name in ("weights", "targets"):
            if (given := getattr(self, name)) is not None:
                found = {
                    key: inside(f"{name}[{key!r}]", v, 1e-300, 1e300, ": choose another unit")
                    for key, v in _named(name, given).items()
                }
                if said := unlike(found, self.tasks, needed=name == "targets"):
                    raise DesignError(f"{name}: must be for the plan's tasks: {said}")
                settle(self, **{name: found})
        families = self.families
        refuse(not families, "families", families, "must name some noise")
        settle(self, disjoint=self._checked_groups())
        if self._normal:
            gaussian_privacy("privacy", self.privacy)
        allowed = "ask for the least epsilon or rho: state one of these"
        refuse(self.targets is not None and isinstance(self.privacy, BY_MU), "targets", self.targets, allowed)
        self._check_chosen()
        taken = "'gaussian'" if self._normal else "'laplace' or 'staircase'"
        refuse(not self._families, "families", families, f"none is of use under {self.privacy}: add {taken}")
        norms = sorted({2 if family == "gaussian" else 1 for family in self._families})
        settled = dict(self.tasks)
        for name, task in settled.items():
            if isinstance(task, Workload):
                with _naming(name):
                    settled[name] = LinearQueries.best(task, self.neighbours, norms)
        settle(self, tasks=settled)
        for name, versions in self._versions:
            allowed = f"have no noise for {name!r} under {self.privacy}: add another one"
            refuse(not any(map(self._items, versions)), "families", families, allowed)
            if not all(1e-70 < part.sensitivity.largest_l2(part.dimension) < 1e70 for part in versions):
                allowed = "must change by 1e-70 to 1e70, between which doubles hold fourth powers: choose other units"
                raise DesignError.of(f"tasks[{name!r}]", str(self.tasks[name]), allowed)

    def _checked_groups(self) -> tuple[tuple[str, ...], ...]:
        given = instance("disjoint", self.disjoint, tuple, list)
        groups = tuple(tuple(instance("disjoint", group, tuple, list)) for group in given)
        listed = [instance("disjoint", name, str) for group in groups for name in group]
        if len(set(listed)) < len(listed) or not set(listed) <= set(self.tasks) or not all(groups):
            raise DesignError.of("disjoint", groups, "must be groups of names of tasks, each name once")
        allowed = 'needs neighbours="add-remove": a person who is replaced may move from one group to another'
        refuse(groups and self.neighbours == "replace", "disjoint", groups, allowed)
        return groups

    def _check_chosen(self) -> None:
        for name, design in self.chosen.items():
            with _naming(name):
                allowed = f"must be of the plan's, {self.neighbours!r}"
                refuse(design.relation != self.neighbours, "neighbours", design.neighbours, allowed)
                allowed = "must be None in a plan, which makes choices by rules"
                largest = getattr(design, "largest", None)
                refuse(largest is not None, "largest", largest, allowed)
        allowed = "ask for the least budget, of which choices state theirs: give weights"
        refuse(self.chosen and self.targets is not None, "targets", self.targets, allowed)
        _ = self._left

    def priced(self, profiles: Mapping[str, tuple[float, Any]]) -> Plan:
        """Set the budgets of choices for the least weighted error of all tasks together, including the choices' regret at public scores.

        Parameters
        ----------
        profiles : dict of str to (float, scores)
            For each choice the weight of a unit of expected regret relative to the `value`, and scores at which it is expected: public ones, or last
            year's published ones; for a quantile numbers. These replace the budgets that the choices state; other choices keep theirs.

        Returns
        -------
        Plan
            With budgets to three digits, and the present weights.

        Examples
        --------
        >>> import mechdesign as md
        >>> tasks = {"visits": md.Histogram(24), "drink": md.PrivateChoice(["tea", "coffee", "water"], md.PureDP(0.1))}
        >>> plan = Plan(tasks, PureDP(1.0)).priced({"drink": (0.5, [40, 30, 2])})
        >>> plan.chosen["drink"].privacy
        PureDP(epsilon=0.2...)
        """
        found: Plan = priced(self, self._weights, profiles)
        return found

    @property
    def kept(self) -> list[str]:
        """A line on the reserved budget, if there is one."""
        return [] if self.budget is None else [kept_for_later(self.budget, self.privacy)]

    @cached_property
    def _left(self) -> Privacy:
        """Budget of the noise, the rest after the choices."""
        if not (part := stated_part(self.chosen, self.privacy, self.rounds)):
            return self.privacy
        if (left := round_down(Fraction(getattr(self.privacy, currency_of(self.privacy))) - part)) <= 0:
            raise DesignError.of(
                "privacy",
                self.privacy,
                f"is not more than the {float(part):g} that the choices state: it must leave something for noise",
            )
        return replace(self.privacy, **{currency_of(self.privacy): left})  # type: ignore[arg-type]

    @property
    def left_for_noise(self) -> float:
        """Share of the budget, in ε or ρ, left after the choices."""
        if not self.chosen:
            return 1.0
        left, asked = (getattr(one, currency_of(one)) for one in (self._left, self.privacy))
        return float(left / asked)

    @property
    def mechanism_class(self) -> proofs.MechanismClass:
        """Plans of the menu; other noise, or correlated noise, may cost less."""
        families = ["gaussian"] if self._normal else self.families
        alike = ", like tasks alike" if self._search.privacy is not None and self.targets is None else ""
        return proofs.menu(f"plan of independent {' or '.join(families)} noise{alike}")

    @property
    def default_gap(self) -> float:  # type: ignore[override]
        """A factor of 1.1 if losses are composed, else the level of rounding."""
        return 1e-6 if self._budget[1] is None or self.targets is not None else 1 - 1 / 1.1

    @property
    def _families(self) -> tuple[str, ...]:
        """Families that can meet the requirement."""
        if self._normal:
            return tuple(name for name in self.families if name == "gaussian")
        return tuple(name for name in self.families if self._order < math.inf or name != "gaussian")

    @property
    def _normal(self) -> bool:
        """Whether the menu has normal noise only."""
        return not isinstance(self.privacy, PureDP | ApproximateDP)

    @property
    def _order(self) -> float:
        """Order of the priced divergences: ∞ for pure privacy, else 1."""
        return 1.0 if self._normal or getattr(self.privacy, "delta", False) else math.inf

    @cached_property
    def _versions(self) -> list[tuple[str, tuple[Part, ...]]]:
        """Slots of all tasks, in order: the task, and the parts to choose from."""
        found = []
        for name, task in self.tasks.items():
            with _naming(name):
                found += [(name, versions) for versions in task_of(name, task).slots(self.neighbours)]
        return found

    def to_fields(self) -> dict[str, object]:
        """Return the fields of a file, with weights in numbers."""
        held = {f.name: getattr(self, f.name) for f in fields(self)}
        return held if self.targets is not None else {**held, "weights": self._weights}

    @cached_property
    def _weights(self) -> dict[str, float]:
        """Weights of all tasks: the given ones, or the inverses of an even split's errors."""
        if self.weights is not None:
            return {name: self.weights.get(name, 1.0) for name in self.tasks}
        if self.targets is not None:
            return dict.fromkeys(self.tasks, 1.0)
        return self._relative

    @cached_property
    def _relative(self) -> dict[str, float]:
        """Weights that make the error of an even split 1 for every task."""
        return {name: 1 / error for name, error in self._even_split.squared_errors().items()}

    @property
    def _scale_free(self) -> bool:
        """Whether errors are relative to an even split's."""
        if self.weights is None or self.targets is not None:
            return self.targets is None
        return all(math.isclose(w, self._weights[name], rel_tol=1e-6) for name, w in self._relative.items())

    def _items(self, part: Part) -> list[Item]:
        """Return items of noise for a part, at weight 1."""
        if isinstance(self.privacy, BY_MU):
            part = replace(part, whole=False)
        found = [Item(part, family, 1.0, self.rounds) for family in self._families]
        return [item for item in found if item.name in VARIANCES]

    @cached_property
    def _slots(self) -> list[list[Item]]:
        """Return items of noise for every part, at weight 1; equal parts share one list."""
        known: dict[tuple[Part, ...], list[Item]] = {}
        for _, versions in self._versions:
            if versions not in known:
                known[versions] = [item for part in versions for item in self._items(part)]
        return [known[versions] for _, versions in self._versions]

    @cached_property
    def _search(self) -> Search:
        known: dict[tuple[int, float], list[Item]] = {}
        slots = []
        for (name, _), items in zip(self._versions, self._slots):
            weight = self._weights[name]
            if (id(items), weight) not in known:
                known[id(items), weight] = [replace(item, weight=weight) for item in items]
            slots.append(known[id(items), weight])
        at = {name: [k for k, (own, _) in enumerate(self._versions) if own == name] for name in self.tasks}
        chains = [
            [k for name in chain for k in at[name]] for chain in chains_of([*self.tasks], self.disjoint)
        ]
        budget, composed = self._budget
        return Search(slots, chains, budget, composed)

    @cached_property
    def _budget(self) -> tuple[float, ApproximateDP | None]:
        """Budget of the additive currency, and None; or ε, and the requirement, if losses are composed."""
        privacy: Any = self._left
        if self._normal:
            return gaussian_budget(privacy) / 2, None
        if not getattr(privacy, "delta", 0.0):
            return budget_of(privacy), None
        normal = all(i.normal and not i.part.whole for items in self._slots for i in items)
        if normal and self.targets is None:
            return gaussian_square(privacy.epsilon, privacy.delta) / 2, None
        return privacy.epsilon, privacy

    def granted(self, value: float) -> Privacy:
        """Return the requirement that a plan of this value meets: the given one, or with targets the least one."""
        if self.targets is None:
            return self.privacy
        return replace(self.privacy, **{currency_of(self.privacy): value})  # type: ignore[arg-type]

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        """Yield plans by prices of the budget, with composition if needed, at the least common factor that provably meets the budget, and bounds."""
        search = self._search
        if self.targets is not None:
            yield from self._least_budget()
            return
        grouped = len(search.chains) > 1
        if grouped if search.privacy is None else self.weights is None:
            yield from self.closed_forms()
        if search.privacy is None:
            chosen, _ = search.separable(self._order, clock if grouped else None)
            if self._reached:
                yield Bound(self._least, proofs.ClosedBound())
            yield self._law(chosen, self._left, clock)
            return
        found = sorted(search.composable(clock.part(0.5)), key=search.cost)  # the rest is for proofs
        pure = [c for c in found if search.pure(c) and search.cost(c) <= _PURE * search.cost(found[0])]
        best, seen = math.inf, set()
        for chosen in pure[:1] or found:
            if search.cost(chosen) > 1.002 * best:
                break
            if items_of(chosen) not in seen:
                seen.add(items_of(chosen))
                law = self._law(chosen, PureDP(search.budget) if pure else self._left, clock)
                best = min(best, law.value)
                yield law
        yield from self._bounds(best, clock)

    def closed_forms(self) -> Iterator[Law | Bound]:
        """Yield the even split, without targets: what the weights have nothing to do with."""
        if self.targets is None:
            even = self._with_choices(self._even_split)
            yield Law(even, self.cost(even), report=SolveReport("even split"))

    def _bounds(self, value: float, clock: Clock) -> Iterator[Bound]:
        """Yield the bound of all parts alone, then bounds closer and closer to the value, up to the gap; none below half of it."""
        if self._left.delta >= _HALF:  # type: ignore[union-attr]
            return
        cover, least = Cover(self._search, value, _COVERED, clock), 1 / (1 - clock.gap)
        if value <= _RATIOS[0] * cover.alone:
            yield Bound(min(cover.alone, value), proofs.ClosedBound())
        for ratio in [*(r for r in _RATIOS if r > least), least]:
            if value > ratio * cover.alone:
                if not cover.proves(value / ratio * (1 + 1e-6)):
                    return
                yield Bound(value / ratio * (1 + 1e-9), proofs.ClosedBound())

    def _mechanism(self, chosen: Sequence[Choice], factor: float = 0.0) -> PlannedRelease:
        made = {
            (id(item), scale): item.noise(max(scale * math.exp(factor), item.least))
            for item, scale, _ in tally(chosen)
        }
        noises = tuple(made[id(item), scale] for item, scale in chosen)
        tasks = dict(self.tasks)
        for (name, _), (item, _) in zip(self._versions, chosen):
            if isinstance(tasks[name], Task):
                tasks[name] = tasks[name].settled(item.part.version)
        return PlannedRelease(tasks, noises, self.neighbours, self.disjoint)

    def _law(self, chosen: Sequence[Choice], privacy: Privacy, clock: Clock) -> Law:
        mechanism = self._with_choices(self._kept(chosen, privacy, clock))
        return Law(mechanism, self.cost(mechanism), report=SolveReport("search"))

    def _with_choices(self, noise: PlannedRelease) -> PlannedRelease:
        """Return the noise together with the rules of the choices."""
        rules = tuple(next(iter(design.closed_forms())).mechanism for design in self.chosen.values())
        return replace(noise, chosen=self.chosen, rules=rules) if rules else noise

    def _kept(
        self, chosen: Sequence[Choice], privacy: Privacy, deadline: Deadline | None = None
    ) -> PlannedRelease:
        """Return the release with the least common factor on the scales of `chosen` that meets the budget."""

        def over(factor: float) -> float:
            return excess(self._mechanism(chosen, factor).consumed(privacy).upper, budget_of(privacy))

        step, wider = (1e-3, _VERIFIED) if privacy is self._budget[1] else (1e-8, 0.0)
        return self._mechanism(chosen, root(over, 0.0, step, 1e-4 * step, deadline) + wider)

    def certified(self, law: Law, clock: Clock) -> Law:
        spent = law.mechanism.consumed(self.granted(law.value))
        return replace(law, proofs=(proofs.LawProof(spent),))

    def _least_budget(self) -> Iterator[Law | Bound]:
        """Yield the plan of least budget for the targets: items at their targets' scales, the cheapest by some order of divergence."""
        search, asked = self._search, budget_of(self.privacy)
        composes = search.privacy is not None

        def least_of(chosen: Sequence[Choice], near: float, step: float, xtol: float) -> float:
            """Return the least budget that suffices for these choices; infinity if it is far above the one asked."""
            law = self._mechanism(chosen, -_VERIFIED if composes else 0.0)
            used = law.consumed(self.privacy).upper
            if not composes:
                return used

            def over(log_epsilon: float) -> float:
                privacy = self.granted(math.exp(log_epsilon))
                return excess(law.consumed(privacy).upper, budget_of(privacy))

            low, high = (math.log(share * search.budget) for share in (_LEAST, 100))
            start = min(max(math.log(near), low), high)
            least = math.exp(least_kept(over, start, step=step, growth=3.0, least=low, most=high, xtol=xtol))
            return min(least, search.budget) if used <= asked else least

        orders = [1e6, *(1 + np.geomspace(0.5, 500, 7)).tolist()] if composes else [self._order]
        found = [self._aimed(order)[0] for order in orders]
        different = {tuple((id(i), round(math.log(s), 4)) for i, s in one): one for one in found}
        rough = [(least_of(one, search.budget, 0.1, 1e-4), one) for one in different.values()]
        least, best = min(rough, key=lambda pair: pair[0])
        mechanism = self._mechanism(best)
        if composes and least < math.inf:
            least = least_of(best, least, 1e-3, 1e-9)
            least = min(least, mechanism.consumed(PureDP(least)).upper)
        if least > search.budget:
            known = least < math.inf
            need = f"{at_most(least, 9)}" if known else f"more than {100 * search.budget:g}"
            reason = f"the targets need a budget of {need}, more than {search.budget:.9g}, of {guarantee(self.privacy)}"
            raise InfeasibleError(reason, smallest_epsilon=least if known else None)
        if not composes and self._reached:
            yield Bound(self._least, proofs.ClosedBound())
        yield Law(mechanism, least, report=SolveReport("search"))

    @cached_property
    def _targeted(self) -> tuple[list[Choice], list[float]]:
        return self._aimed(self._order)

    def _aimed(self, order: float) -> tuple[list[Choice], list[float]]:
        """Return the choices that meet the targets at the least consumption of this order, and for each slot a lower bound of what it consumes."""
        chosen: list[Choice] = []
        least: list[float] = []
        for name in self.tasks:
            slots = [items for (own, _), items in zip(self._versions, self._search.slots) if own == name]
            square = (self.targets or {})[name] ** 2
            shares, price, paid = [square], 0.0, 0.0
            if len(slots) > 1 and sum(min(i.cost(i.least) for i in items) for items in slots) < square:
                shares, price, paid = split(slots, square, order)
            allowed = [
                [(i, i.scale_of((v - i.part.bias) / i.part.largest)) for i in items if v > i.part.bias]
                for items, v in zip(slots, shares)
            ]
            found = [[(i, s) for i, s in choices if s is not None] for choices in allowed]
            said = f"the target of {name!r} is below the bias of every clip, or the least noise of doubles"
            InfeasibleError.when(len(found) < len(slots) or not all(found), said)
            best = [min(choices, key=lambda one: one[0].consumed(one[1], order)) for choices in found]
            chosen += best
            together = best[0][0].consumed(best[0][1], order) if len(slots) == 1 else (paid - square) / price
            least += [together, *[0.0] * (len(slots) - 1)]
        return chosen, least

    # -- what proofs ask ---------------------------------------------------------------------------------

    law_takes = DeltaInterval
    bound_how = proofs.RECOMPUTED

    def law_claims(self, stated: proofs.Certificate, given: DeltaInterval) -> Iterator[proofs.Claim]:
        """Recompute the joint consumption of all parts in all rounds, check that the interval `given` encloses it, and recompute the errors.

        Largest losses and ρ add up (Bun and Steinke 2016); δ is that of the composition of all losses, each for the worst change
        of its part: dominating pairs compose (Zhu, Dong and Wang 2022). Of groups of disjoint people the largest counts, as one person is in one of them.
        """
        law, value = instance("law", stated.law, PlannedRelease), stated.value
        fits = self.choices(law) is not None
        yield proofs.agreement("the noise is of the menu, for the tasks asked", proofs.PROVED, fits)
        if not fits:
            return
        privacy = self.granted(value)
        fresh, budget = law.consumed(privacy), budget_of(privacy)
        room = budget - fresh.upper
        yield proofs.Claim.of(f"{privacy} is kept by all tasks and rounds", fresh.how, room)
        agrees, claim = given.vouched(fresh, budget), "the enclosure stored is that of the plan"
        yield proofs.Claim(claim, proofs.RECOMPUTED, given.upper - fresh.upper, agrees, proofs.ABOUT_FILE)
        if self.targets is None:
            room = value * (1 + _ROUND) - self.cost(law)
            yield proofs.Claim.of(f"the error is at most {value:.9g}", proofs.RECOMPUTED, room)
            return
        room = self._search.budget - value
        yield proofs.Claim.of(f"the least budget is at most {value:.9g}", proofs.PROVED, room)
        for name, parts in law.parts.items():
            target = self.targets[name]
            room = target**2 * (1 + _ROUND) - worst_error(parts)
            yield proofs.Claim.of(f"the error of {name} is at most {target:.9g}", proofs.RECOMPUTED, room)

    def least_cost(self, stated: proofs.Certificate, given: None) -> float:
        """Return a lower bound of the cost of all plans of the menu.

        Under (ε, δ) it is the stated bound, if all plans are covered by boxes of scales in which every plan costs at least that or exceeds
        the budget (`mechdesign.plan.bound`).
        """
        bound = stated.lower_bound
        if self._search.privacy is None:
            return self._least
        if self.targets is not None or bound is None:
            return -math.inf
        near = self._left.delta < _HALF  # type: ignore[union-attr]
        covered = bound <= 0 or (near and Cover(self._search, bound, _COVERED).proves(bound))
        return bound if covered else -math.inf

    @cached_property
    def _least(self) -> float:
        r"""Lower bound for budgets that add up: with targets, the least consumption of the parts.

        Otherwise it is, by weak duality, :math:`\sum \min_s (w e(s) + \lambda D(s)) - \lambda B`, with D the largest loss, or ρ of normal noise, at the prices λ at which
        each group exhausts its budget.
        """
        if not self._reached:
            return 0.0
        if self.targets is None:
            return self._search.bound(self._search.separable(self._order)[1], self._order) * (1 - 1e-10)
        least = self._targeted[1]
        return max(math.fsum(least[k] for k in chain) for chain in self._search.chains) * (1 - 1e-9)

    @property
    def _reached(self) -> bool:
        """Whether changes of whole numbers attain the bounds for which their noise is priced; otherwise other noise may cost less than the bound."""
        parts = (part for _, versions in self._versions for part in versions if part.whole)
        norms = self._normal  # normal noise is priced for changes that need not be whole
        allowed = (p.sensitivity if norms else p.sensitivity.whole(p.dimension) for p in parts)
        return all(changes.reached_by_whole for changes in allowed)

    def cost(self, law: PlannedRelease) -> float:
        """Return the weighted squared error of all answers of a round."""
        return math.fsum(self._weights[name] * error for name, error in law.squared_errors().items())

    def choices(self, law: PlannedRelease) -> list[Choice] | None:
        """Return the items and scales of a law; None if it is no plan of these tasks."""
        known: dict[Any, Choice | None] = {}
        for items, noise in zip(self._search.slots, law.noises):
            if (key := (id(items), law_key(noise))) not in known:
                scales = (
                    (i, i.scale_in(noise.law)) for i in items if i.part.sensitivity == noise.sensitivity
                )
                known[key] = next(((i, s) for i, s in scales if s is not None), None)
        found = [known[id(items), law_key(noise)] for items, noise in zip(self._search.slots, law.noises)]
        if len(law.noises) != len(self._versions) or None in found:
            return None
        own = replace(self._mechanism(found), noises=law.noises, chosen=self.chosen, rules=law.rules)  # type: ignore[arg-type]
        often = all((n.rounds, n.sampling_rate) == (self.rounds, 1.0) for n in law.noises)
        return found if often and proofs.same(own, law) else None  # type: ignore[return-value]

    # -- what a result asks ------------------------------------------------------------------------------

    @cached_property
    def _even_split(self) -> PlannedRelease:
        """Release with an equal share for every task, of pure ε or of the ρ of normal noise, whichever has the smaller geometric mean of errors."""
        owners, privacy = [name for name, _ in self._versions], self._left
        tasks = max(map(len, chains_of([*self.tasks], self.disjoint)))
        epsilon = rho = 0.0
        if self._normal:
            rho = gaussian_budget(privacy) / 2
        else:
            epsilon, delta = budget_of(PureDP(privacy.epsilon)), getattr(privacy, "delta", 0.0)  # type: ignore[union-attr]
            rho = gaussian_square(epsilon, delta) / 2 if delta else 0.0
        found = []
        for normal, budget in ((False, epsilon), (True, rho)):
            own = [
                [(i, i.scale_at(budget / tasks / owners.count(name))) for i in items if i.normal == normal]
                for name, items in zip(owners, self._slots)
            ]
            if budget and all(own):
                found.append([min(choices, key=lambda one: one[0].cost(one[1])) for choices in own])

        def mean(chosen: Sequence[Choice]) -> float:
            errors = (
                math.fsum(i.cost(s) for own, (i, s) in zip(owners, chosen) if own == name)
                for name in self.tasks
            )
            return math.fsum(map(math.log, errors))

        return self._kept(min(found, key=mean), privacy)


def _named(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise DesignError.of(name, value, "must be a dictionary by names: no name is given twice")
    refuse(not value, name, value, "must have one name at least")
    if not all(isinstance(key, str) and key for key in value):
        raise DesignError.of(name, value, "must have names that are strings, and not empty")
    return dict(value)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Put the name of a task before the message of an error raised inside."""
    try:
        yield
    except DesignError as error:
        raise DesignError(f"tasks[{name!r}]: {error}") from None

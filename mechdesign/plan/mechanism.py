"""Release of a plan: an answer for every task at once, each part with noise of its own, jointly private; and its prints and pictures, with equal tasks grouped."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field as dataclass_field
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from operator import add
from textwrap import shorten
from typing import Any, get_args

import numpy as np
import pandas as pd
from scipy import interpolate, special, stats

from mechdesign.accounting.interval import DeltaInterval, upper_delta
from mechdesign.accounting.profile import gaussian_tradeoff
from mechdesign.checks import Checked, field, frozen_parts, instance, positive, refuse
from mechdesign.choice.rule import Choosing, Scored
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.digits import folded
from mechdesign.evidence.exact import round_down, round_up
from mechdesign.evidence.proofs import PROVED, RECOMPUTED
from mechdesign.evidence.results import Result, audit_row
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.additive import AdditiveNoise, law_name
from mechdesign.noise.calibration_search import budget_of, consumed
from mechdesign.noise.families import opendp_measurement
from mechdesign.plan.search import Item, tally, total
from mechdesign.plan.tasks import Count, Histogram, LinearQueries, Part, Sum, Task, task_of
from mechdesign.plotting import draw_bars
from mechdesign.problem.law_moments import is_gaussian
from mechdesign.problem.privacy import (
    ApproximateDP,
    Consumption,
    Description,
    GaussianDP,
    MembershipAdvantage,
    PureDP,
    ZeroConcentratedDP,
    guarantee,
    points_of,
    stated,
)
from mechdesign.problem.sensitivity import neighbours_field
from mechdesign.problem.spine import Design
from mechdesign.solvers.deadline import progress_bar
from mechdesign.typing import Array, Figure, FrozenLaw

BY_MU = GaussianDP | MembershipAdvantage | TradeOff
"""Requirements that a plan meets by its μ."""
_POINTS = 2**19
"""Most points of a grid for one loss."""
Privacy = PureDP | ApproximateDP | ZeroConcentratedDP | GaussianDP | MembershipAdvantage | TradeOff


def chains_of(names: Sequence[str], disjoint: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the sets of tasks that one person can be in: those outside all groups, and one group's."""
    apart = {name for group in disjoint for name in group}
    common = [name for name in names if name not in apart]
    return [[*common, *group] for group in disjoint] or [common]


@serializable("planned-release", eq=False)
class PlannedRelease(Checked):
    """Noise for all tasks of a plan.

    Parameters
    ----------
    tasks : dict of str to a task
        Tasks, each with the chosen clip.
    noises : tuple of AdditiveNoise
        One per part, in the order of tasks and parts.
    neighbours : {"add-remove", "replace"}
    disjoint : tuple of tuples of str
        Groups of tasks over disjoint people.
    chosen : dict of str to PrivateChoice or PrivateQuantile
        Choices released with them, each at the budget that it states.
    rules : tuple of ChoiceRule or QuantileRule
        One per choice.
    """

    tasks: dict[str, Any] = field(dict)
    noises: tuple[AdditiveNoise, ...] = field(AdditiveNoise, many=True)
    neighbours: str = neighbours_field()
    disjoint: tuple[tuple[str, ...], ...] = ()
    chosen: dict[str, Any] = dataclass_field(default_factory=dict)
    rules: tuple[Scored, ...] = field(Scored, many=True, default=())

    def _post_check(self) -> None:
        count = len(instance("chosen", self.chosen, dict))
        refuse(len(self.rules) != count, "rules", len(self.rules), "must be one per choice")
        for (name, design), law in zip(self.chosen.items(), self.rules):
            instance(f"chosen[{name!r}]", design, Choosing).check_rule(law)
        versions = [s for n, task in self.tasks.items() for s in task_of(n, task).slots(self.neighbours)]
        asked = [(v[0].sensitivity, v[0].dimension) for v in versions if len(v) == 1]
        if len(asked) != len(versions) or asked != [(n.sensitivity, n.dimension) for n in self.noises]:
            allowed = "must be noise for what changes in the tasks, one per part"
            raise DesignError.of("noises", len(self.noises), allowed)

    @cached_property
    def parts(self) -> dict[str, list[tuple[Part, AdditiveNoise]]]:
        """Parts of each task with their noise."""
        left = iter(self.noises)

        def own(part: Part, noise: AdditiveNoise) -> tuple[Part, AdditiveNoise]:
            return replace(part, whole=part.whole and isinstance(noise.law.dist, stats.rv_discrete)), noise

        return {
            name: [own(version[0], next(left)) for version in task_of(name, task).slots(self.neighbours)]
            for name, task in self.tasks.items()
        }

    def squared_errors(self) -> dict[str, float]:
        """Return for every task the squared error of all answers of a round together."""
        return {
            name: math.fsum(part.worth * part.dimension * noise.variance + part.bias for part, noise in parts)
            for name, parts in self.parts.items()
        }

    @property
    def _groups(self) -> list[list[AdditiveNoise]]:
        """Noise of each set of tasks that one person can be in."""
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
        answers : dict of str to numbers, or DataFrame
            True answer of every task: a number, an array of counts; for a workload the counts that it queries; for a mean under add-remove neighbours the sum and the count.
            A frame has one column per task, with its numbers at the top and empty cells below.

        Raises
        ------
        DataError
            A task without an answer, or an answer to none; a number that is not finite, or not whole. Nothing is released then. The
            guarantee does not cover that refusal.
        """
        given = _by_task(answers, [*self.tasks, *self.chosen])
        for name, rule in zip(self.chosen, self.rules):
            rule.scores(given[name])
        held = {
            name: task_of(name, task).read(name, given[name], [part for part, _ in self.parts[name]])
            for name, task in self.tasks.items()
        }
        out = {}
        for name, task in self.tasks.items():
            parts = self.parts[name]
            noisy = [
                noise.release(x.reshape(-1)).reshape(x.shape) for (_, noise), x in zip(parts, held[name])
            ]
            out[name] = task_of(name, task).told(noisy, [part for part, _ in parts])
        return out | {name: rule.release(given[name]) for name, rule in zip(self.chosen, self.rules)}

    def consumed(self, privacy: Privacy) -> DeltaInterval:
        """Bound the consumption of all tasks and rounds: δ at ε (composed, an upper bound only), the largest privacy loss, ρ, or μ and its consequences.

        Of disjoint groups the largest counts.
        """
        instance("privacy", privacy, *get_args(Privacy))
        part, composed = stated_part(self.chosen, privacy, self.rounds), getattr(privacy, "delta", 0.0) > 0
        if part and composed:
            if (left := round_down(Fraction(privacy.epsilon) - part)) <= 0:  # type: ignore[union-attr]
                return DeltaInterval(0.0, 1.0)
            privacy, part = replace(privacy, epsilon=left), Fraction(0)  # type: ignore[arg-type]
        found = [_consumed(noises, privacy) for noises in self._groups]
        how = PROVED if all(one.how == PROVED for one in found) else RECOMPUTED
        lower, upper = max(one.lower for one in found), max(one.upper for one in found)
        return DeltaInterval(
            lower + round_down(part), upper if math.isinf(upper) else round_up(Fraction(upper) + part), how
        )

    def consumption(self) -> Consumption:
        """Return the budget that all tasks and rounds consume, the largest over disjoint groups."""
        stated = [
            Consumption.of(design.privacy) for design in self.chosen.values() for _ in range(self.rounds)
        ]
        groups = [functools.reduce(add, stated, _added(noises)) for noises in self._groups]
        return Consumption(*(max(getattr(one, key) for one in groups) for key in ("epsilon", "rho", "mu")))

    def engines(self) -> dict[str, Any]:
        """Return every scale in JSON's types, so that other engines can draw the noise.

        A part has its law with parameters, the changes by one person, and under ``sql`` a query if an engine has noise of that
        law with a settable scale: ``noisy_sum_gaussian`` of Presto and Velox, for normal noise on a sum or counts. The query
        adds a row of 0, as these functions return NULL for no rows, which would reveal that. A workload's
        ``strategy`` holds the rows of the sums that get noise. Such engines draw in floating point, and do not count rounds: call `Ledger.charge`.
        """
        parts = [
            {"task": name, "part": part.name, "numbers": part.dimension, "whole": part.whole}
            | {"law": law_name(noise.law), **noise.parameters}
            | {"standard_deviation": noise.standard_deviation, "changes": str(noise.sensitivity)}
            | ({} if part.clip is None else {"clip": part.clip})
            | _strategy(self.tasks[name])
            | _presto(name, self.tasks[name], part, noise.law)
            for name, found in self.parts.items()
            for part, noise in found
        ]
        stated = {"neighbours": self.neighbours, "rounds": self.rounds, "disjoint": self.disjoint}
        chosen = {name: {"rule": law.rule, "rate": law.rate} for name, law in zip(self.chosen, self.rules)}
        return {"format": "mechdesign-scales", **stated, "parts": parts} | (
            {"choices": chosen} if chosen else {}
        )

    def to_opendp(self) -> dict[str, list[Any]]:
        """Return OpenDP's measurements of each task, one per part (`mechdesign.noise.opendp_measurement`); OpenDP has no staircase: leave that out of ``families``.

        Raises
        ------
        DesignError
            A plan with choices, whose rules are no measurements of OpenDP.
        """
        allowed = "must not be in a plan that is handed to OpenDP, which has not these rules: make choices by a result of their own"
        refuse(self.chosen, "chosen", [*self.chosen], allowed)
        return {
            name: [opendp_measurement(noise.law) for _, noise in found] for name, found in self.parts.items()
        }

    def stated_choices(self, listed: Callable[[Sequence[str]], str] | None = None) -> list[str]:
        """Return a line for each kind of choice: its names, its rule, and the budget that it states."""
        kinds: dict[str, list[str]] = {}
        for (name, design), law in zip(self.chosen.items(), self.rules):
            said = f"{law.rule} among {design.size} candidates, {guarantee(design.privacy)} as stated"
            kinds.setdefault(said, []).append(name)
        return [f"{(listed or _listed)(names)}: {said}" for said, names in kinds.items()]

    def __str__(self) -> str:
        found = self.consumption()
        asked = guarantee(ZeroConcentratedDP(found.rho))
        if math.isfinite(found.epsilon):
            asked = f"{guarantee(PureDP(found.epsilon))}, δ = 0"
        lines = [f"{name}: {n.summary()}" for name, parts in self.parts.items() for _, n in parts]
        lines += self.stated_choices()
        head = stated(asked, f"{self.neighbours} neighbours", None, self.rounds)
        return folded("\n  ".join([head, *lines]))


def currency_of(privacy: Privacy) -> str:
    """Return the currency, "epsilon" or "rho", in which a budget is shared with choices or minimised for targets."""
    return "rho" if isinstance(privacy, ZeroConcentratedDP) else "epsilon"


def stated_part(chosen: Mapping[str, Choosing], privacy: Privacy, rounds: int) -> Fraction:
    """Return the exact consumption of choices in all rounds, in ε or ρ."""
    parts = [Consumption.of(design.privacy) for design in chosen.values()]
    allowed = "must be a budget in epsilon or rho where choices are made: none is known in mu"
    refuse(parts and isinstance(privacy, BY_MU), "privacy", privacy, allowed)
    if math.inf in (found := [getattr(part, currency_of(privacy)) for part in parts]):
        allowed = "must be a PureDP, or a ZeroConcentratedDP in a plan whose budget is one"
        raise DesignError.of(
            "privacy of a choice", [*chosen.values()][found.index(math.inf)].privacy, allowed
        )
    return rounds * sum(map(Fraction, found), Fraction(0))


def _by_task(answers: Any, tasks: list[str]) -> dict[str, Any]:
    """Return the answer for each task, or raise DataError."""
    frame = isinstance(answers, pd.DataFrame)
    allowed = f"answers: must be a mapping, or a frame with one column a task, for the tasks {tasks}"
    DataError.when(not (frame and answers.columns.is_unique) and not isinstance(answers, Mapping), allowed)
    given = {name: answers[name] for name in answers}
    missing, unknown = [name for name in tasks if name not in given], len(set(given) - {*tasks})
    left = f"without an answer are {missing}, and {unknown} answers are to no task"
    DataError.when(missing or unknown, f"answers: must be for the plan's tasks: {left}")
    return {name: _from_the_top(column) for name, column in given.items()} if frame else given


def _from_the_top(column: pd.Series[Any]) -> Any:
    """Return the numbers of a column above its empty cells; a single number as itself."""
    filled = column.iloc[: column.notna().to_numpy().nonzero()[0].max(initial=-1) + 1]
    return filled.iloc[0] if len(filled) == 1 else filled


def _added(noises: list[AdditiveNoise]) -> Consumption:
    return functools.reduce(add, (noise.consumption() for noise in noises))


def _strategy(task: Task) -> dict[str, Any]:
    """Return the strategy of a workload, whose rows are the sums that get noise."""
    rows = task.strategies[0] if isinstance(task, LinearQueries) else None
    return {} if rows is None else {"strategy": rows.tolist()}


def _presto(name: str, task: Task, part: Part, law: FrozenLaw) -> dict[str, Any]:
    """Return a query for normal noise on a sum or on counts."""
    if not is_gaussian(law) or part.name or not isinstance(task, Sum | Count | Histogram):
        return {}
    most = part.clip if isinstance(task, Sum) else 1.0
    held = '"' + name.replace('"', '""') + '"'
    noisy = f"noisy_sum_gaussian(x, DOUBLE '{frozen_parts(law)[3]!r}', DOUBLE '0', DOUBLE '{most!r}')"
    if isinstance(task, Histogram):
        rows = f"SELECT {held} AS bin, DOUBLE '1' AS x FROM data WHERE {held} IN (SELECT bin FROM bins)"
        query = f"SELECT bin, {noisy} FROM ({rows} UNION ALL SELECT bin, DOUBLE '0' FROM bins) GROUP BY bin"
    else:
        value = held if isinstance(task, Sum) else "DOUBLE '1'"
        query = f"SELECT {noisy} FROM (SELECT {value} AS x FROM data UNION ALL SELECT DOUBLE '0')"
    return {"sql": {"presto": query}}


def _consumed(noises: list[AdditiveNoise], privacy: Privacy) -> DeltaInterval:
    if all(is_gaussian(noise.law) for noise in noises):
        return consumed(AdditiveNoise(stats.norm(), _added(noises).mu), privacy)
    if isinstance(privacy, BY_MU):
        return DeltaInterval(0.0, math.inf)
    first = {law_key(noise): noise for noise in reversed(noises)}
    alike = [(first[key], copies) for key, copies in Counter(map(law_key, noises)).items()]
    if not getattr(privacy, "delta", 0.0):
        return _summed(alike, privacy)
    epsilon = privacy.epsilon  # type: ignore[union-attr]
    unbounded = any(is_gaussian(n.law) or n.law.dist.name == "discrete_gaussian" for n, _ in alike)
    if not unbounded and (summed := _summed(alike, PureDP(epsilon))).upper <= epsilon:
        return DeltaInterval(0.0, 0.0, summed.how)
    terms = [replace(t, count=t.count * copies) for noise, copies in alike for t in noise.noise_terms()]
    return DeltaInterval(0.0, upper_delta(terms, epsilon, width=1e-4, points=_POINTS))


def _summed(alike: list[tuple[AdditiveNoise, int]], privacy: Privacy) -> DeltaInterval:
    """Return the sum of largest losses, or of ρ."""
    each = [(consumed(noise, privacy), copies) for noise, copies in alike]
    how = PROVED if all(one.how == PROVED for one, _ in each) else RECOMPUTED
    unbounded = any(one.upper == math.inf for one, _ in each)
    upper = math.inf if unbounded else round_up(sum(copies * Fraction(one.upper) for one, copies in each))
    lower = math.fsum(copies * one.lower for one, copies in each)
    return DeltaInterval(lower * (1 - 1e-15), upper, how)


def law_key(noise: AdditiveNoise) -> tuple[Any, ...]:
    """Return a key that parts with equal noise share."""
    law = noise.law
    parameters = law.dist.name, law.args, tuple(sorted(law.kwds.items()))
    return *parameters, noise.sensitivity, noise.dimension, noise.rounds, noise.sampling_rate


def worst_error(parts: Sequence[tuple[Part, AdditiveNoise]]) -> float:
    """Return the squared error of a task's worst answer."""
    return math.fsum(part.largest * noise.variance + part.bias for part, noise in parts)


_SHARES = special.expit(np.linspace(-7, 7, 29))
"""Shares of a budget at which V and R are computed."""
_TRIED = special.expit(np.linspace(-7, 7, 2801))
"""Shares of the rest that a choice may consume."""


def priced(plan: Any, weights: dict[str, float], profiles: Mapping[str, tuple[float, Any]]) -> Any:
    r"""Return the plan with budgets of choices by their weights and scores, and the weights of the others: see `Plan.priced`.

    Choices of budgets :math:`b_c` leave :math:`B - \sum_c b_c` of the budget for noise, of value V. The budgets minimise

    .. math:: V\bigl(B - \textstyle\sum_c b_c\bigr) + \sum_c w_c R_c(b_c),

    with :math:`R_c` the expected regret at the given scores. V and R fall smoothly, and are interpolated between some budgets. For many candidates R
    is concave at first, so each budget in turn is searched over all of its range, until none changes.
    """
    asked = {name: _asked(plan, name, pair) for name, pair in instance("profiles", profiles, Mapping).items()}
    currency, others = currency_of(plan.privacy), {k: c for k, c in plan.chosen.items() if k not in asked}
    total = (
        float(getattr(plan.privacy, currency) - stated_part(others, plan.privacy, plan.rounds)) / plan.rounds
    )
    refuse(not total > 0, "privacy", plan.privacy, "must be more than the other choices state")
    if not asked:
        return plan

    def value(budget: float) -> float:
        left = replace(plan.privacy, **{currency: budget * plan.rounds})
        alone = replace(plan, privacy=left, weights=weights, chosen={}, budget=None)
        return float(alone.solve(certify=False, gap=0.99, progress=False).value)

    with progress_bar("budgets of choices", len(_SHARES) * (1 + len(asked))) as step:
        noise = _between(value, total, step)
        regrets = {name: _between(regret, total, step) for name, regret in asked.items()}
    budgets = dict.fromkeys(asked, total / (1 + len(asked)))
    for _ in range(20):
        before = dict(budgets)
        for name, regret in regrets.items():
            room = total - math.fsum(b for other, b in budgets.items() if other != name)
            budgets[name] = room * float(
                _TRIED[np.argmin(noise(room * (1 - _TRIED)) + regret(room * _TRIED))]
            )
        if budgets == before:
            break
    chosen = {name: _at(plan.chosen[name], float(f"{b:.3g}")) for name, b in budgets.items()}
    return replace(plan, chosen={**plan.chosen, **chosen}, weights=weights)


def _asked(plan: Any, name: str, pair: Any) -> Callable[[float], float]:
    """Return a choice's weighted expected regret as a function of its budget."""
    where = f"profiles[{name!r}]"
    design = plan.chosen.get(name)
    if design is None or design.choose > 1:
        raise DesignError.of("profiles", name, "must be for choices of one among the plan's tasks")
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DesignError.of(where, type(pair).__name__, "must be a weight and public scores")
    weight = positive(where, pair[0])

    def regret(budget: float) -> float:
        law: Any = next(iter(_at(design, budget).closed_forms()))
        return weight * float(law.mechanism.errors(pair[1]).absolute_error)

    try:
        regret(1.0)
    except DataError as error:  # the scores are public
        raise DesignError(f"{where}: {error}") from None
    return regret


def _at(design: Any, budget: float) -> Choosing:
    """Return the choice with this budget."""
    kind = ZeroConcentratedDP if isinstance(design.privacy, ZeroConcentratedDP) else PureDP
    found: Choosing = replace(design, privacy=kind(budget))
    return found


def _between(
    of: Callable[[float], float], total: float, step: Callable[..., None]
) -> Callable[[Array], Array]:
    """Return a positive falling function of the budget, interpolated by its logarithm between shares of it."""
    found = []
    for share in _SHARES:
        found.append(math.log(max(of(float(share) * total), 1e-300)))
        step()
    held = interpolate.PchipInterpolator(np.log(_SHARES * total), found)
    return lambda budgets: np.asarray(np.exp(held(np.log(budgets))))


_NAMED, _BARS, _LABEL = 3, 60, 22
"""Most names of equal tasks that are all listed; most bars of a picture, and characters of their labels' names."""


class PlanPage(Design):
    """Prints of a plan's result: table, lines, page and picture."""

    def frame(self: Any, result: Result) -> pd.DataFrame:
        """Tabulate for each part noise, share of the budget, error of its worst number, 95% half-width alone and of all numbers jointly, and the task's error."""
        chosen = self.choices(result.mechanism) or []
        search = self._search
        even = self._even_split.noises if self.targets is None else ()
        order = self._order
        if search.privacy is not None:
            order = math.inf if search.pure(chosen) else 1 + search.tilt(chosen)
        largest = max((total([chosen[k] for k in chain], order) for chain in search.chains), default=math.nan)
        left = self.left_for_noise
        answers = self.rounds * sum(item.part.answers or item.part.dimension for item, _ in chosen)
        joint = 0.025 / max(answers, 1)

        def figures(item: Item, scale: float) -> dict[str, Any]:
            noise, unit = item.noise(scale), item.part.unit
            # sums of noise that is not normal are within so many deviations, by Chebyshev's inequality
            sums = item.part.answers is not None and not item.normal
            reach = [
                noise.standard_deviation / math.sqrt(2 * p) if sums else float(noise.law.isf(p))
                for p in (0.025, joint)
            ]
            found: dict[str, Any] = {
                "mechanism": law_name(noise.law),
                "scale": scale,
                "share": left * item.consumed(scale, order) / largest,
                "standard_deviation": unit * noise.standard_deviation,
                "task_deviation": math.nan,
                "half_width": unit * reach[0],
                "joint_half_width": unit * reach[1],
            }
            if item.part.clip is not None:
                found |= {"clip": item.part.clip, "bias": math.sqrt(item.part.bias)}
            if item.part.whole:
                found["not_whole"] = unit * item.continuous(scale)
            return found

        each = {(id(item), scale): figures(item, scale) for item, scale, _ in tally(chosen)}
        rows = []
        for k, ((name, _), (item, scale)) in enumerate(zip(self._versions, chosen)):
            row = {"task": f"{name}: {item.part.name}" if item.part.name else name, **each[id(item), scale]}
            row["task_deviation"] = math.sqrt(worst_error(result.mechanism.parts[name]))
            if even:
                row["even_split"] = item.part.unit * even[k].standard_deviation
            rows.append(row)
        return pd.DataFrame(rows)

    def _kinds(self: Any, result: Result) -> pd.DataFrame:
        """Return the table of a result with equal parts of equal tasks in one row, with all their names and the name of the part."""
        table, held = self.frame(result), result.mechanism.parts.items()
        parts = [(name, part) for name, found in held for part, _ in found][: len(table)]
        table["task"] = [name for name, _ in parts]
        table["part"] = [f": {part.name}" if part.name else "" for _, part in parts]
        table["change"] = [_released(part) for _, part in parts]
        same = table.columns.drop("task").tolist()
        found = table.groupby(same, sort=False, dropna=False)["task"].agg(list).rename("names").reset_index()
        found.insert(0, "task", [_listed(names) + part for names, part in zip(found["names"], found["part"])])
        return found

    def lines(self: Any, result: Result) -> list[str]:
        """Return a line for each kind of noise, and for the mean that two parts make."""
        rows = ["value: squared errors over those of an even split, summed"] if self._scale_free else []
        rows += self.kept + result.mechanism.stated_choices()
        rows += [
            f"{row.task}: {row.mechanism}, standard deviation {row.standard_deviation:.6g}, 95% within ±{row.half_width:.6g} "
            f"(all answers: ±{row.joint_half_width:.6g}), {row.share:.1%} of the budget{' each' * (len(row.names) > 1)}"
            for row in self._kinds(result).itertuples()
        ]
        means: dict[tuple[str, float], list[str]] = {}
        for name, parts in result.mechanism.parts.items():
            if len(parts) > 1:
                over = " over the ".join(part.name for part, _ in parts)
                means.setdefault((over, math.sqrt(worst_error(parts))), []).append(name)
        return rows + [
            f"{_listed(names)}, the {over}: standard deviation {error:.6g}, to first order in 1/n, of the worst mean"
            for (over, error), names in means.items()
        ]

    def describe(self: Any, result: Result) -> Description:
        """Describe tasks, changes, joint guarantee and consumption."""
        table, tasks = self._kinds(result), [*self.tasks, *self.chosen]
        moved = "\n".join(f"- {', '.join(row.names)}{row.part}: {row.change}" for row in table.itertuples())
        apart = f"; nobody is in two of the groups {self.disjoint}" if self.disjoint else ""
        loss = "weighted squared error of all answers of one round"
        if self._scale_free:
            loss = (
                f"squared error of every task over that of an even split, summed over {len(self.tasks)} tasks"
            )
        if self.targets is not None:
            loss = "budget that meets the targets"
        made = "".join(f"\n- {line}" for line in result.mechanism.stated_choices(", ".join))
        return Description(
            title=f"Release plan of {len(tasks)} tasks",
            what=f"Answers to {_listed(tasks)} are released together{f', {self.rounds} times' if self.rounds > 1 else ''}, under one budget.",
            unit=f"The unit of privacy is one person ({self.neighbours} neighbours), who moves all tasks at once{apart}. Each task "
            f"releases these numbers, which one person changes within these bounds:\n\n{moved}{made}",
            loss=loss,
            more=tuple(f"{line.capitalize()}." for line in self.kept),
            picture="The share of the budget that every part of a task takes; of like tasks the share of each.",
        )

    def plot(self: Any, result: Result, **options: float) -> Figure:
        """Draw each part's share of the budget, with equal tasks grouped; of many kinds those with the largest shares."""
        table = self._kinds(result)
        table = table.loc[table["share"].nlargest(_BARS).index.sort_values()]
        names = [
            shorten(found[0], _LABEL, placeholder=" …")
            + part
            + f" and {len(found) - 1} more" * (len(found) > 1)
            for found, part in zip(table["names"], table["part"])
        ]
        return draw_bars(names, table["share"], options, xlabel="share of the budget", xlim=(0, None))

    def audit(self: Any, result: Result) -> pd.DataFrame:
        privacy = self.granted(result.value)
        used = result.mechanism.consumed(privacy).upper
        return audit_row(guarantee(privacy), used, budget_of(privacy))

    def errors(self: Any, result: Result, question: object = None) -> Any:
        raise DesignError.of("result", "Plan", "has an error for every task: see to_frame()")

    def tradeoff(self: Any, result: Result, at: Iterable[float] = ()) -> TradeOff:
        """Return the trade-off of the plan's own noise, in closed form if all of it is normal, else by its composed δ at some ε; under pure ε and ρ, that of the requirement."""
        law, asked = result.mechanism, self.granted(result.value)
        if (mu := law.consumption().mu) < math.inf:
            return gaussian_tradeoff(mu**2, at)
        if not isinstance(asked, ApproximateDP) or not asked.delta:
            return points_of(asked, at)
        ladder = [asked.epsilon * k / 8 for k in range(1, 13)]
        found = [(e, min(law.consumed(replace(asked, epsilon=e)).upper, 1.0)) for e in (1e-6, *ladder)]
        return TradeOff(((asked.epsilon, asked.delta), *found))

    def rivals(self: Any, result: Result) -> Iterable[tuple[str, float]]:
        return [("even split", self.cost(self._even_split))] if self.targets is None else []


def _listed(names: Sequence[str]) -> str:
    """List the names of equal tasks, or a few of many."""
    found = list(names)
    if len(found) <= _NAMED:
        return ", ".join(found)
    return f"{found[0]}, {found[1]}, … {found[-1]} ({len(found)} tasks)"


def _released(part: Any) -> str:
    """Describe the numbers that a part releases, and the changes by one person."""
    numbers = f"{part.dimension} {'whole ' if part.whole else ''}number{'s' if part.dimension > 1 else ''}"
    sums = "" if part.answers is None else f", of which {part.answers} answers are sums"
    return f"{numbers}{sums}; {part.sensitivity}"

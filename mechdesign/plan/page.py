"""Print, tabulate and draw plans: like tasks once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.accounting.profile import gaussian_tradeoff
from mechdesign.errors import DesignError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.digits import at_most, shown
from mechdesign.evidence.results import AUDIT_COLUMNS, Result
from mechdesign.noise.additive import law_name
from mechdesign.noise.calibration_search import budget_of
from mechdesign.plan.mechanism import worst_error
from mechdesign.plan.search import Item, spent, tally
from mechdesign.plotting import COLOURS, figure, plain, sized
from mechdesign.problem.privacy import ApproximateDP, points_of
from mechdesign.problem.spine import Design
from mechdesign.problem.words import Description, guarantee

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEADINGS = {
    "standard_deviation": "standard deviation",
    "task_deviation": "standard deviation of the task's answer",
    "half_width": "95% half-width",
    "joint_half_width": "95% half-width, all jointly",
    "even_split": "standard deviation, even split",
    "not_whole": "standard deviation, not whole",
}
_NAMED, _BARS, _LABEL = 8, 60, 32
"""Names of like tasks that are all listed; bars of a picture, and characters of their labels."""


class PlanPage(Design):
    """What the result of a plan says: its table, lines, page, picture, and what it consumes."""

    def frame(self: Any, result: Result) -> pd.DataFrame:
        """A row per part: noise, share of the budget, error of its worst number, 95% half-width alone and of all numbers jointly, and the task's error."""
        chosen = self.choices(result.mechanism) or []
        search = self._search
        even = self._even_split.noises if self.targets is None else ()
        order = self._order
        if search.privacy is not None:
            order = math.inf if search.pure(chosen) else 1 + search.tilt(chosen)
        largest = max((spent([chosen[k] for k in chain], order) for chain in search.chains), default=math.nan)
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
        """The table of a result with like parts of like tasks in one row."""
        table = self.frame(result)
        parts = [part for found in result.mechanism.parts.values() for part, _ in found]
        table["change"] = [_asked(part) for part in parts[: len(table)]]
        same = table.columns.drop("task").tolist()
        return (
            table.groupby(same, sort=False, dropna=False)["task"].agg(_listed).reset_index()[["task", *same]]
        )

    def lines(self: Any, result: Result) -> list[str]:
        """Return a line for each kind of noise, and for the mean that two parts make."""
        rows = ["value: squared errors over those of an even split, summed"] if self._scale_free else []
        rows += self.kept + result.mechanism.stated_choices()
        rows += [
            f"{row.task}: {row.mechanism}, standard deviation {row.standard_deviation:.6g}, 95% within ±{row.half_width:.6g} "
            f"(all answers: ±{row.joint_half_width:.6g}), {row.share:.1%} of the budget{' each' * ('…' in str(row.task))}"
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
        """Describe tasks, changes, joint statement and what is consumed."""
        privacy, table, tasks = self.granted(result.value), self._kinds(result), [*self.tasks, *self.chosen]
        parts = [part for found in result.mechanism.parts.values() for part, _ in found]
        moved = "\n".join(f"- {row.task}: {row.change}" for row in table.itertuples())
        answers = self.rounds * sum(part.answers or part.dimension for part in parts)
        widths = ", ".join(f"{row.task} ±{shown(row.joint_half_width)}" for row in table.itertuples())
        apart = f"; nobody is in two of the groups {self.disjoint}" if self.disjoint else ""
        loss = "weighted squared error of all answers of one round"
        if self._scale_free:
            loss = (
                f"squared error of every task over that of an even split, summed over {len(self.tasks)} tasks"
            )
        if self.targets is not None:
            loss = "budget that meets the targets"
        made = "".join(f"\n- {line}" for line in result.mechanism.stated_choices())
        return Description(
            title=f"Release plan of {len(tasks)} tasks",
            what=f"Answers to {_listed(tasks)} are released together{f', {self.rounds} times' if self.rounds > 1 else ''}, under one budget.",
            unit=f"The unit of privacy is one person ({self.neighbours} neighbours), who moves all tasks at once{apart}. Each task "
            f"releases these numbers, which one person changes within these bounds:\n\n{moved}{made}",
            loss=loss,
            more=(
                f"With probability 95% at least, all {answers} answers of all rounds are off by at most, jointly: {widths}. One answer alone is "
                "within its 95% half-width 19 times out of 20.",
                *(f"{line.capitalize()}." for line in self.kept),
            ),
            consumed=f"consumes at most {at_most(result.mechanism.consumed(privacy).upper)} of {shown(budget_of(privacy))}",
            picture="Every part of a task: its noise, and the share of the budget that it takes; of like tasks the share of each.",
            rivals="The same tasks with an equal share of the budget for each.",
            table=table.drop(columns="change").rename(columns=_HEADINGS),
        )

    def plot(self: Any, result: Result, **options: float) -> Figure:
        """Draw each part's share of the budget, like tasks once; of many kinds those of the largest shares."""
        table = self._kinds(result)
        table = table.loc[table["share"].nlargest(_BARS).index.sort_values()]
        fig, axis = figure(**sized(options, 5.0, 1.2 + 0.35 * len(table)))
        names = [plain(shorten(name, _LABEL, placeholder=" …")) for name in table["task"]]
        axis.barh(np.arange(len(table)), table["share"], tick_label=names, color=COLOURS[0])
        axis.invert_yaxis()
        axis.set(xlabel="share of the budget", xlim=(0, None))
        return fig

    def audit(self: Any, result: Result) -> pd.DataFrame:
        privacy = self.granted(result.value)
        used, budget = result.mechanism.consumed(privacy).upper, budget_of(privacy)
        row = (
            "privacy",
            guarantee(privacy),
            used,
            budget,
            budget - used,
            math.nan,
            budget - used <= 1e-2 * budget,
        )
        return pd.DataFrame([row], columns=AUDIT_COLUMNS)

    def errors(self: Any, result: Result, question: object = None) -> Any:
        raise DesignError.of("result", "Plan", "has an error for every task: see to_frame()")

    def tradeoff(self: Any, result: Result, at: Iterable[float] = ()) -> TradeOff:
        """Of the plan's own noise: in closed form where all of it is normal, else its composed δ at some ε; under pure ε and ρ, of what was asked."""
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
    """Names of like tasks, or a few of many."""
    found = list(names)
    if len(found) <= _NAMED:
        return ", ".join(found)
    return f"{found[0]}, {found[1]}, … {found[-1]} ({len(found)} tasks)"


def _asked(part: Any) -> str:
    """What a part of a task releases, and how one person changes it."""
    numbers = f"{part.dimension} {'whole ' if part.whole else ''}number{'s' if part.dimension > 1 else ''}"
    sums = "" if part.answers is None else f", of which {part.answers} answers are sums"
    return f"{numbers}{sums}; {part.sensitivity}"

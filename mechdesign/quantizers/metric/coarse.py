r"""A grid of many inputs from a few of them, where time is limited.

**The law.** Rows at some of the inputs, interpolated, are right on average at all of them. They are private where

- pure or approximate privacy holds at the few: mixtures of rows compare as the rows do, in pairs of them;
- neighbours x, x' of the few are within :math:`1 + |x - x'| \min_j (e^{\varepsilon d_j} - 1) / h_j`, over the steps
  :math:`h_j` of the grid between them: an affine function is steepest, relative to itself, where it is smallest.

**The bound.** The multipliers of a program over the few, for a unit of mass, are interpolated too, and settled so that they prove
a bound for all inputs and all outputs (`closed`). Of pure privacy it is the same program. Where neighbours are compared it is
that of a relaxation: for the worst case the few inputs alone, for the mean the averages of rows around them, which are as far
apart as paired inputs of two such averages are (their ∞-Wasserstein distance, in units of privacy).

Outputs that are not used, nor wanted by the multipliers, are left out, so that a program's size follows the few inputs alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mechdesign.quantizers.metric.closed import Multipliers, hat_masses
from mechdesign.quantizers.metric.notion import STEEP, PairwisePrivacy
from mechdesign.quantizers.metric.program import hats, row_model
from mechdesign.solvers import Model, Solution
from mechdesign.typing import Array, Indices

__all__ = ["Interpolated", "lifted", "relaxed_model", "thinned", "wanted_outputs"]

_USED = 1e-9  # probability from which an output is used
_MORE = 24  # outputs that come at most for what the multipliers want
_SHARE = 1e-9  # of a mean mass, from which a knot has any; and of levels of a distribution function


@dataclass(frozen=True)
class Interpolated(PairwisePrivacy):
    """The notion between a few inputs that makes interpolated rows private between all of `fine`; or what follows from that."""

    fine: tuple[float, ...] = ()
    implied: bool = False

    def ratios(self, knots: Array, shrink: float = 0.0) -> tuple[Indices, Indices, Array]:
        k, l, power = self.powers(knots, shrink)
        if not self.neighbours:
            return k, l, np.exp(np.minimum(power, STEEP))
        fine, start = np.array(self.fine), np.searchsorted(self.fine, knots)[:-1]
        step = self.powers(fine, shrink)[2][: len(fine) - 1]
        if self.implied:
            ratio = np.exp(np.minimum(np.add.reduceat(step, start), STEEP))
        else:
            slope = np.expm1(np.minimum(step, STEEP)) / np.diff(fine)
            ratio = np.minimum(1 + np.minimum.reduceat(slope, start) * np.diff(knots), np.exp(STEEP))
        return k, l, np.tile(ratio, 2)


def thinned(count: int, knots: Array, *, ends: bool) -> Indices:
    """Numbers of `count` of the inputs, equally spaced; with the neighbours of the ends, whose multipliers stand apart.

    Examples
    --------
    >>> thinned(3, np.arange(9.0), ends=True)
    array([0, 1, 4, 7, 8])
    """
    n = len(knots)
    at = np.abs(np.subtract.outer(np.linspace(knots[0], knots[-1], count), knots)).argmin(axis=1)
    return np.unique(np.concatenate([at, [0, n - 1], [1, n - 2] if ends else []]).astype(int))


def relaxed_model(
    bins: Array, knots: Array, at: Indices, notion: PairwisePrivacy, question: tuple[Any, Any, str]
) -> Model:
    """The program over the inputs `at` whose multipliers are to be lifted, where neighbours are compared."""
    few = Interpolated(notion.privacy, False, tuple(knots.tolist()), True)
    model = row_model(bins, knots[at], few, *question)
    if question[2] == "mean":
        step = notion.powers(knots)[2][: len(knots) - 1]
        depth = np.concatenate([[0.0], np.cumsum(step)])
        around = hats(knots[at], knots).T * hat_masses(knots, question[0])
        apart = [
            _apart(depth, a, b, depth[at[k + 1]] - depth[at[k]])
            for k, (a, b) in enumerate(zip(around, around[1:]))
        ]
        ratio = np.exp(np.minimum(np.tile(apart, 2), STEEP))
        model.parameters["ratio"].value = ratio[:, None]
    return model


def _apart(points: Array, first: Array, second: Array, default: float) -> float:
    """The ∞-Wasserstein distance of two laws on the points, about; the default where one has no mass."""
    if not (first.sum() > 0 and second.sum() > 0):
        return float(default)
    both = [np.cumsum(weights) / weights.sum() for weights in (first, second)]
    levels = np.unique(np.concatenate([[0.0], *both]))
    middle = ((levels[1:] + levels[:-1]) / 2)[np.diff(levels) > _SHARE]
    x, y = (points[np.minimum(np.searchsorted(law, middle), len(points) - 1)] for law in both)
    return float(np.abs(x - y).max(initial=0.0))


def lifted(
    bins: Array,
    knots: Array,
    at: Indices,
    notion: PairwisePrivacy,
    question: tuple[Any, Any, str],
    answer: Solution,
) -> Multipliers:
    """Multipliers of all inputs and outputs, not yet settled, from the duals of a program over the inputs `at`."""
    n, k = len(knots), len(at)
    prior, _, objective = question
    duals, worst = np.asarray(answer.row_dual), objective == "worst"
    parts = np.concatenate([duals[: 2 * k], duals[len(duals) - k * worst :]]).reshape(-1, k)
    out = np.zeros((len(parts), n))
    if worst:
        out[:, at] = parts
    else:
        few = hat_masses(knots[at], prior)
        heavy = few > _SHARE * few.sum() / k
        out[:, at[~heavy]] = parts[:, ~heavy]
        mass = hat_masses(knots, prior)
        for row, part in zip(out, parts):
            row += mass * np.interp(knots, knots[at[heavy]], part[heavy] / few[heavy])
    return Multipliers(bins, knots, notion, question, np.zeros(0), out.ravel())


def wanted_outputs(outputs: Indices, rows: Array, multipliers: Multipliers) -> Indices:
    """Numbers of the outputs of the next program: those in use, those beside them, and those that the multipliers want."""
    used = outputs[rows.max(axis=0) > _USED]
    slack = multipliers.slacks
    most = np.argsort(slack)[:_MORE]
    found = np.concatenate([used - 1, used, used + 1, most[slack[most] < -_USED], [0, len(slack) - 1]])
    return np.unique(np.clip(found, 0, len(slack) - 1))

r"""What is known without a large program: feasible or not, a first mechanism, a first bound.

- *Feasible.* Splitting every output between the two outermost ones, keeping means, is post-processing. So the
  mechanism with those two outputs decides, and its probabilities are exact fractions, affine in the input.
- *A first bound.* Without privacy the program falls apart into one for each input, and whatever duals it has prove a bound.
- *Approximate privacy.* What is ε-private is (ε, δ)-private; and multipliers :math:`\mu_{kl,i}` of
  :math:`P_{k,i} \le e^\varepsilon P_{l,i}` become multipliers of the (ε, δ) program with :math:`\nu_{kl} = \max_i \mu_{kl,i}`
  for :math:`\sum_i S_{kl,i} \le \delta`: the pure bound, less :math:`\delta \sum_{kl} \nu_{kl}`. The pure program with
  floors :math:`a_i \le P_{k,i} \le e^\varepsilon a_i` has n of them for each output, not n², and
  :math:`\mu_{kl,i} = \beta_{k,i} \alpha_{l,i} / \sum_l \alpha_{l,i}`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple, TypeVar

import numpy as np

from mechdesign.errors import InfeasibleError, SolverError
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import MetricDP, PureDP
from mechdesign.quantizers.mechanism.exact_law import RationalTable
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.metric.notion import PairwisePrivacy
from mechdesign.solvers import CompiledLP, Model, Solution
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Indices

__all__ = [
    "Found",
    "few_outputs",
    "outermost_law",
    "outermost_private",
    "pairwise_multipliers",
    "worse_places",
]

T = TypeVar("T")

_FEW = 8
_POINTS = 17  # of a segment where its worst input is sought


@dataclass(frozen=True)
class Found:
    """An exact law and what it loses, and the multipliers of a bound where there is one (of a worst case over `places` too)."""

    law: RationalTable
    value: float
    answer: Solution
    bound: float | None = None
    multipliers: Array | None = None
    notes: tuple[str, ...] = ()
    places: Array | None = None

    @property
    def knots(self) -> Array:
        """The inputs of its rows."""
        return np.array([float(x) for x in self.law.knots])

    @property
    def gap(self) -> float:
        """Value less bound, relative; infinite without a bound."""
        if self.bound is None:
            return np.inf
        return max(0.0, self.value - self.bound) / max(abs(self.value), 1e-300)

    def bounded(self, bound: float | None, multipliers: Array | None, places: Array | None = None) -> Found:
        """With another bound where that is higher."""
        if bound is None or (self.bound is not None and bound <= self.bound):
            return self
        return replace(self, bound=bound, multipliers=multipliers, places=places)

    def joined(self, other: Found, *, same: bool) -> Found:
        """The better of two: value and bound each where both speak of the `same` inputs, else the smaller gap."""
        if not same:
            return min((self, other), key=lambda found: (found.gap, found.value))
        best, rest = (other, self) if other.value <= self.value else (self, other)
        return best.bounded(rest.bound, rest.multipliers, rest.places)


class Stage(NamedTuple):
    """One program on the way."""

    knots: Array
    outputs: Indices
    notion: PairwisePrivacy
    whole: bool  # whether it is the program that was asked for
    inputs: Array | None = None  # a grid between whose inputs the rows at the knots are interpolated

    @property
    def rows(self) -> int:
        """How many rows of privacy it has."""
        pairs = (
            2 * len(self.knots)
            if isinstance(self.notion.privacy, PureDP)
            else len(self.notion.pairs(len(self.knots))[0])
        )
        return pairs * len(self.outputs)


def outermost_law(bins: Any, knots: Any) -> RationalTable:
    """Return the unbiased law that only uses the first and the last output, exactly.

    Examples
    --------
    >>> law = outermost_law([-2.0, 0.0, 2.0], [-1.0, 1.0])
    >>> [[str(p) for p in law.row(0, end)] for end in (0, 1)]
    [['3/4', '0', '1/4'], ['1/4', '0', '3/4']]
    """
    b, x = ([Fraction(float(v)) for v in values] for values in (bins, knots))
    high = [(v - b[0]) / (b[-1] - b[0]) for v in x]
    inner = [Fraction(0)] * (len(b) - 2)
    return RationalTable.continuous(b, x, [[1 - p, *inner, p] for p in high])


def outermost_private(notion: PairwisePrivacy, bins: Any, knots: Array) -> bool:
    """Whether that law is private, in exact arithmetic: if not, no unbiased mechanism with these outputs is."""
    if notion.continuum or not isinstance(notion.privacy, MetricDP):
        knots = knots[[0, -1]]  # affine rows differ most at the ends
    law = outermost_law((bins[0], bins[-1]), knots)
    rows = [law.row(0, 0), *(law.row(k, 1) for k in range(len(knots) - 1))]
    if notion.continuum:  # steepest, relative to itself, where it is smallest: a segment's length cancels
        slope = abs(rows[1][0] - rows[0][0]) / (law.knots[1] - law.knots[0])
        return slope <= Fraction(notion.privacy.epsilon) * min(map(min, rows))
    return notion.exact_slack(list(law.knots), rows) >= 0


def few_outputs(bins: Array, knots: Array) -> Indices:
    """Numbers of a few outputs: the outermost, and some among those around the inputs.

    Examples
    --------
    >>> few_outputs(np.linspace(-8, 8, 65), np.array([-1.0, 1.0]))
    array([ 0, 28, 29, 31, 32, 34, 36, 64])
    """
    first, last = np.searchsorted(bins, [knots[0], knots[-1]])
    around = np.linspace(max(first, 0), min(last, len(bins) - 1), _FEW - 2)
    return np.unique(np.concatenate([[0], around.astype(int), [len(bins) - 1]]))


def pairwise_multipliers(pure: Model, model: Model, k: Indices, l: Indices) -> Array | None:
    """Multipliers of the (ε, δ) `model` for the pairs (k, l), from those that the solved `pure` one holds."""
    floors, ceilings = (np.maximum(c.dual_value, 0.0) for c in pure.constraints["privacy"])
    total = floors.sum(axis=0)
    pairs = ceilings[k] * floors[l] / np.where(total > 0, total, 1.0)
    moved = {"privacy": pairs, "slack": pairs.max(axis=1)}
    for name, constraint in model.constraints.items():
        value = moved[name] if name in moved else pure.constraints[name].dual_value
        constraint.dual_variables[0].save_value(np.reshape(value, constraint.shape))
    return CompiledLP(model).row_duals()


def worse_places(mechanism: Quantizer, loss: Loss, least: float) -> Array:
    """Inputs between the knots that lose more than `least`: the worst of each segment, about, and the worst of all."""
    knots, rows = mechanism.knots, np.vstack([mechanism.starts, mechanism.ends[-1:]])
    share = np.linspace(0, 1, _POINTS)[1:-1, None]
    x = knots[:-1] * (1 - share) + knots[1:] * share
    mixed = (1 - share)[:, :, None] * rows[:-1] + share[:, :, None] * rows[1:]
    lost = (mixed * loss(mechanism.bins - x[:, :, None])).sum(axis=2)
    at, every = lost.argmax(axis=0), np.arange(len(knots) - 1)
    inside = (mechanism.bins > knots[0]) & (mechanism.bins < knots[-1])
    found = x[at, every][lost[at, every] > least * (1 + 1e-9)]
    return np.unique([*found.tolist(), *mechanism.bins[inside].tolist(), mechanism.worst_case_loss(loss)[1]])


def first_answer(ask: Callable[[Any], T], backends: Sequence[str | None], deadline: Deadline) -> T:
    """What the first of the backends answers that does; the last one's error if none does by the deadline."""
    for backend in backends:
        try:
            return ask(backend)
        except (InfeasibleError, SolverError):
            if backend is backends[-1] or deadline.passed:
                raise
    raise AssertionError

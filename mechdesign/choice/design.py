r"""Choose the best of k candidates privately, by a rule for any scores, or by the optimal table for small counts.

Scores have a spread (`mechdesign.choice.budget`): 1 where one vote is added or removed, or where one person's approvals are (all counts move by at
most 1, in one direction); 2 where a vote is replaced.

**The optimum.** For counts 0, …, N of each candidate the unknowns are the probabilities P[x, r] of choosing r at counts x,

.. math:: \min_P \operatorname{mean}_x \text{ or } \max_x \sum_r (\max_m x_m - x_r) P[x, r]
          \quad\text{s.t. privacy between neighbouring counts,}

a `Table`. Counts above N are counted as N, which keeps neighbours neighbours. Candidates may be exchanged, so that one variable stands for each orbit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.sparse import csgraph

from mechdesign.channels.exact import private_weights
from mechdesign.choice.budget import Asked, Choosing
from mechdesign.choice.rule import PERMUTE, ChoiceRule, chances, names_of, scores_of
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.accuracy import Accuracy, quantile
from mechdesign.evidence.classes import MechanismClass, every
from mechdesign.evidence.digits import shown
from mechdesign.evidence.proofs import same
from mechdesign.evidence.results import Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.model.problem import Minimize
from mechdesign.model.table import MOST_INPUTS, Table, TableMechanism
from mechdesign.model.table_problem import TableDesign, TableProblem
from mechdesign.plotting import COLOURS, figure, sized
from mechdesign.problem.checks import UP, field, integer, magnitude, one_of
from mechdesign.problem.mechanism import Deployment, Simulation
from mechdesign.problem.privacy import ApproximateDP, PureDP, ZeroConcentratedDP
from mechdesign.problem.sensitivity import NEIGHBOURS
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.problem.words import Description
from mechdesign.typing import Array, Indices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPREADS = {"one vote": 1.0, "approvals": 1.0, "replaced vote": 2.0}
"""By how much the scores of two candidates move against each other between neighbours."""


@serializable("private-choice")
@dataclass(frozen=True, eq=False)
class PrivateChoice(Choosing, TableDesign):
    r"""Choose the candidate of (nearly) the largest score.

    Without `largest`, the better of permute-and-flip and the exponential mechanism, whatever the scores are. With it, the optimal table for counts.

    Parameters
    ----------
    candidates : int or sequence of str
        k, or names.
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP
    neighbours : {"one vote", "approvals", "replaced vote", "add-remove", "replace"}
        What one person does to the scores: adds one to one of the counts; adds one to any set of them; moves one vote to another
        candidate. With `spread` it says only whether a person is added or replaced.
    spread : float, optional
        s: between neighbours scores move by vectors v with max v − min v ≤ s; twice the sensitivity, where nothing is known.
    largest : int, optional
        N: counts above it are counted as N. The result is the optimal table for counts, and releases take counts.
    objective : {"worst", "mean"}
        What is least with `largest`: expected regret at the worst counts, or averaged over all :math:`(N + 1)^k`. A rule's value is its largest
        expected regret over all scores.
    choose : int
        How many are chosen, the best first, of at most 1,000. Each is taken away before the next is chosen, at an equal part of the budget: ε/k, (ε/k, δ/k) or
        ρ/k. The answer is a list, the value the largest expected regret of all choices together.

    Raises
    ------
    DesignError
        Counts together with a spread, more than 2,000 vectors of counts.

    Notes
    -----
    Regret is the largest score less that of the choice. McKenna and Sheldon, *Permute-and-flip*, NeurIPS 2020. A rule has no lower bound:
    of scores with a spread alone there is no finite program.

    Examples
    --------
    >>> vote = PrivateChoice(["tea", "coffee", "water"], PureDP(1.0)).solve()
    >>> vote.mechanism.rule, round(vote.value, 6), vote.certificate.verify()
    ('permute-and-flip', 0.325728, True)
    >>> vote.release({"tea": 31, "coffee": 90, "water": 12})
    'coffee'
    >>> PrivateChoice(4, PureDP(4.0), choose=2).solve().release([90, 0, 40, 0])
    [0, 2]
    >>> best = PrivateChoice(2, PureDP(1.0), largest=4, objective="mean").solve()
    >>> best.gap < 1e-6, best.mechanism.release([4, 0]) in (0, 1)
    (True, True)
    """

    default_gap = 1e-6
    asks = "choice"
    algorithms = ("symmetric",)

    candidates: int | tuple[str, ...] = field(check=names_of)
    privacy: Asked = field(PureDP, ApproximateDP, ZeroConcentratedDP)
    neighbours: str = field(check=one_of, allowed=(*SPREADS, *NEIGHBOURS), default="one vote")
    spread: float | None = field(check=magnitude, side=UP, default=None)
    largest: int | None = field(check=integer, least=1, most=MOST_INPUTS, default=None)
    objective: str = field(check=one_of, allowed=("worst", "mean"), default="worst")
    choose: int = field(check=integer, least=1, most=1000, default=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.choose > (1 if self.largest is not None else self.size):
            remedy = f"must be at most {self.size}, the number of candidates, and 1 with largest="
            raise DesignError.of("choose", self.choose, remedy)
        if self.spread is None and self.neighbours in NEIGHBOURS:
            remedy = f"must be one of {', '.join(SPREADS)}, which say what a person does to counts, or come with spread="
            raise DesignError.of("neighbours", self.neighbours, remedy)
        if self.largest is None:
            return
        if self.spread is not None:
            raise DesignError.of(
                "largest", self.largest, "is of counts: of scores with a spread there is no optimal table"
            )
        if (self.largest + 1) ** min(self.size, 20) > MOST_INPUTS or self.size < 2:
            allowed = f"to the power k = {self.size} must be at most {MOST_INPUTS} vectors of counts, of two candidates or more"
            raise DesignError.of("largest + 1", self.largest + 1, allowed)

    @property
    def size(self) -> int:
        """k."""
        return self.candidates if isinstance(self.candidates, int) else len(self.candidates)

    @property
    def moved(self) -> float:
        """s, the spread."""
        return SPREADS[self.neighbours] if self.spread is None else self.spread

    @property
    def relation(self) -> str:
        """Which data sets are neighbours, as a ledger says it."""
        return "replace" if self.neighbours.startswith("replace") else "add-remove"

    @property
    def among(self) -> MechanismClass:
        """The two rules; with `largest` every choice from such counts."""
        return super().among if self.largest is None else every(f"choice by counts of 0 to {self.largest}")

    # -- the optimal table ---------------------------------------------------------------------------------------

    @cached_property
    def counts(self) -> Indices:
        """All vectors of counts 0, …, N, shape (vectors, k)."""
        if self.largest is None:
            raise DesignError.of(
                "largest", None, "must be given: a solver finds the optimal table of counts from 0 to it"
            )
        return np.array(list(itertools.product(range(self.largest + 1), repeat=self.size)))

    def _places(self, counts: Indices) -> Indices:
        """Row of the table of each vector of counts."""
        assert self.largest is not None
        return np.asarray(counts @ (self.largest + 1) ** np.arange(self.size - 1, -1, -1))

    @cached_property
    def pairs(self) -> Indices:
        """Rows of neighbouring counts, shape (pairs, 2), each pair once."""
        single, top = np.eye(self.size, dtype=int), int(self.counts.max())
        moves = list(single)
        if self.neighbours == "approvals":
            moves = [np.array(v) for v in itertools.product((0, 1), repeat=self.size) if any(v)]
        elif self.neighbours == "replaced vote":
            moves = [a - b for a, b in itertools.combinations(single, 2)]
        found = []
        for move in moves:
            after = self.counts + move
            inside = ((after >= 0) & (after <= top)).all(axis=1)
            found.append(np.column_stack([self._places(self.counts[inside]), self._places(after[inside])]))
        if self.neighbours == "replaced vote":  # a vote from or to a candidate that has more than N stays N
            for r in range(self.size):
                full = (np.delete(self.counts, r, axis=1) == top).any(axis=1) & (self.counts[:, r] < top)
                rows = self.counts[full]
                found.append(np.column_stack([self._places(rows), self._places(rows + single[r])]))
        return np.concatenate(found)

    def problem(self) -> TableProblem:
        """Return the model of the optimal table: probabilities of each candidate at each vector of counts."""
        inputs = [tuple(row) for row in self.counts.tolist()]
        outputs = list(range(self.size)) if isinstance(self.candidates, int) else list(self.candidates)
        P = Table(inputs, outputs, of="data", neighbours=self.relation)
        cost = (P.worst if self.objective == "worst" else P.expected)(self._regrets)
        asked = replace(P.private(self.privacy), between=self.pairs)
        return TableProblem(Minimize(cost), (asked,), design=self)

    def deployed(self, weights: tuple[tuple[int, ...], ...]) -> ChoiceTable:
        """Return the choice by counts of these integer weights."""
        return ChoiceTable(self.declared.inputs, self.declared.outputs, weights)

    def rule(self, name: str, rate: float) -> ChoiceRule:
        """Return the mechanism of a rule at a rate."""
        return ChoiceRule(name, rate, self.candidates, self.choose)

    def closed_forms(self) -> Iterator[Law | Bound]:
        """Yield the better rule; for an optimal table the best constant choice, and permute-and-flip as a table."""
        if self.largest is None:
            yield from super().closed_forms()
            return
        yield from TableProblem.closed_forms(self.problem())
        assert not isinstance(self.privacy, ZeroConcentratedDP)  # of which there is no table
        gaps, epsilon = self._regrets, self.privacy.epsilon
        table = chances(PERMUTE, gaps, np.ones(self.size), epsilon / self.moved)
        edges = sparse.csr_array((np.ones(len(self.pairs)), self.pairs.T), shape=(len(gaps), len(gaps)))
        apart = csgraph.shortest_path(edges, directed=False, unweighted=True)
        weights = private_weights(table, apart, epsilon, gaps / len(gaps))
        yield self.law(weights, SolveReport("closed form"))

    def accelerated(self, clock: Clock, algorithm: str | None = None) -> Iterator[Law | Bound]:
        """Solve the declared problem with one variable for each orbit under exchanges of candidates."""
        if self.largest is None:
            return
        turn, swap = np.roll(np.arange(self.size), 1), np.r_[1, 0, 2 : self.size]
        symmetry = [(self._places(self.counts[:, np.argsort(order)]), order) for order in (turn, swap)]
        yield from self.problem().improve(clock, symmetry=symmetry)

    # -- what a result says --------------------------------------------------------------------------------------

    def audit(self, result: Result) -> pd.DataFrame:
        """Tabulate the privacy of a rule, or every row of the table's problem."""
        return (Choosing if self.largest is None else TableDesign).audit(self, result)

    @property
    def _regrets(self) -> Array:
        return np.asarray(self.counts.max(axis=1, keepdims=True) - self.counts, dtype=float)

    def asked_by(self, question: Any) -> bool:
        return bool(question.asks == self.asks and same(question.design(self.privacy), self))

    def regrets(self, law: ChoiceRule | ChoiceTable) -> tuple[Array, Array]:
        """Return the regrets of the candidates, shape (..., k), with their probabilities: of counts up to `largest` at the worst ones, or at all of them."""
        if isinstance(law, ChoiceTable):
            off, joint = self._regrets, law.probabilities / len(law.inputs)
        else:
            rows, copies = np.unique(np.sort(self.counts, axis=1), axis=0, return_counts=True)
            off = (rows[:, -1:] - rows).astype(float)
            joint = chances(law.rule, off, np.ones(self.size), law.rate) * (copies / copies.sum())[:, None]
        if self.objective == "mean":
            return off, joint
        at = int(((joint * off).sum(axis=1) / joint.sum(axis=1)).argmax())
        return off[at], joint[at] / joint[at].sum()

    def errors(self, result: Result, question: object = None) -> Accuracy:
        """Return the regret of a choice: of a rule at the worst scores, at counts up to `largest` at the worst ones or over all of them."""
        asked = self if question is None else question.design(self.privacy)  # type: ignore[attr-defined]
        if asked.largest is None:
            return super().errors(result)
        off, joint = asked.regrets(result.mechanism)
        squared, absolute = (float((joint * off**p).sum()) for p in (2, 1))
        return Accuracy(math.sqrt(squared), absolute, quantile(off, joint))

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Both rules at the same privacy."""
        if self.largest is None:
            yield from super().rivals(result)
            return
        for rule, rate in self.rates().items():
            off, joint = self.regrets(self.rule(rule, rate))
            yield rule, float((joint * off).sum())

    def describe(self, result: Result) -> Description:
        many, verb = ("One", "is") if self.choose == 1 else (f"{self.choose}, one after the other,", "are")
        law, by = result.mechanism, "a table of probabilities for each vector of counts, the best there is"
        loss = f"expected regret (the largest count less that of the choice), {'at the worst counts' if self.objective == 'worst' else 'over all counts alike'}"
        if isinstance(law, ChoiceRule):
            by = f"{law.rule} at the rate {shown(law.rate)}"
            loss = "largest expected regret (the largest score less that of the choice) of any scores"
        moves = (
            f"two scores move against each other by at most {shown(self.moved)}"
            if self.spread is not None
            else f"one person changes the counts ({self.neighbours})"
        )
        return Description(
            title=f"A choice among {self.size} candidates",
            what=f"{many} of {self.size} candidates {verb} chosen by scores of all people's data; between neighbours {moves}. The choice is made by {by}.",
            loss=loss,
            picture="The probability of choosing the best, by how far all others are behind it.",
            rivals="Permute-and-flip and the exponential mechanism at the same privacy.",
        )

    def frame(self, result: Result) -> pd.DataFrame:
        """Tabulate how often a rule chooses the best, by how far all others are behind; the probabilities of a table."""
        if self.largest is None:
            return super().frame(result)
        names = range(self.size) if isinstance(self.candidates, int) else self.candidates
        found = pd.DataFrame(self.counts, columns=[f"count {name}" for name in names])
        return found.assign(
            **{f"P[{name}]": result.mechanism.probabilities[:, r] for r, name in enumerate(names)}
        )

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw how often the best is chosen, by how far all others are behind."""
        if self.largest is None:
            return super().plot(result, **options)
        fig, axis = figure(**sized(options, 5.0, 3.0))
        ahead = self.counts[:, 0] - self.counts[:, 1:].max(axis=1)
        gaps = np.arange(self.largest + 1)
        best = [result.mechanism.probabilities[ahead == gap, 0].mean() for gap in gaps]
        axis.plot(gaps, best, "o-", color=COLOURS[0])
        axis.set(xlabel="by how much the best is ahead", ylabel="probability of choosing it", ylim=(0, 1.02))
        return fig


@serializable("choice-table")
@dataclass(frozen=True, eq=False)
class ChoiceTable(TableMechanism):
    """A choice by counts of 0 to N, each above N counted as N.

    Parameters
    ----------
    inputs : tuple of tuples of numbers
        All vectors of counts, the last candidate's changing fastest.
    outputs : tuple of numbers or names
        The candidates.
    weights : tuple of rows of int
    """

    def drawn(self, x: Any, source: Simulation | Deployment) -> Any:
        """Draw a candidate by counts, in their order or by name."""
        named = isinstance(self.outputs[0], str)
        counts = scores_of(x, self.outputs if named else len(self.outputs))
        if (counts < 0).any() or (counts != np.floor(counts)).any():
            raise DataError("counts: must be whole numbers of at least 0")
        top = self.inputs[-1][0]
        row = int(np.minimum(counts, top) @ (top + 1) ** np.arange(len(counts) - 1, -1, -1.0))
        chosen = self.outputs[int(source.choose(self, np.array([row]))[0])]
        return chosen if named else int(chosen)

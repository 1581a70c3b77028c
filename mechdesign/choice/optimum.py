r"""Choose the best of k candidates privately: by a rule for any scores, or by the optimal table for small counts.

Scores have a spread (`mechdesign.choice.rule`): 1 if one vote, or one person's approvals, are added or removed (all counts move by at
most 1, in one direction); 2 if a vote is replaced.

**The optimum.** Let counts x be sorted, :math:`N \ge x_1 \ge \dots \ge x_k \ge 0`. The unknowns are the probabilities P[x, r] of choosing the r-th,

.. math:: \min_P \operatorname{mean}_x \text{ or } \max_x \sum_r (x_1 - x_r) P[x, r]
          \quad\text{s.t. } P[x, r] = P[x, m] \text{ where } x_r = x_m, \text{ privacy between neighbours,}

a `Table`; the mean weights x by its number of distinct orders. This covers choices from counts in any order: averaging a private
choice over all permutations of the candidates keeps it private and does not increase its regret. Only sorted neighbours of x are needed: an added vote goes to the first of equal counts, a removed one comes from the last. If
a vote moves from one candidate to the next, which has one less, the two change places: such x, out of order, are inputs of their own, with the probabilities of the sorted ones. Counts above N are clipped to N, under which neighbours remain neighbours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
from flint import fmpq
from scipy import special

from mechdesign import checks
from mechdesign.checks import UP, field, refuse
from mechdesign.choice.rule import PERMUTE, Asked, ChoiceRule, Choosing, chances, names_of, scores_of
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.digits import shown
from mechdesign.evidence.exact import rational
from mechdesign.evidence.proofs import MechanismClass, every, same
from mechdesign.evidence.results import Accuracy, Result, SolveReport, accuracy_of
from mechdesign.evidence.serialize import serializable
from mechdesign.model.exactly import Exact, Face
from mechdesign.model.problem import Minimize, named
from mechdesign.model.table import MOST_INPUTS, Table, TableMechanism
from mechdesign.model.table_problem import TableDesign, TableProblem, TableProof
from mechdesign.problem.mechanism import Deployment, Simulation
from mechdesign.problem.privacy import ApproximateDP, Description, PureDP, ZeroConcentratedDP
from mechdesign.problem.sensitivity import NEIGHBOURS
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.typing import Array, Indices

SPREADS = {"one vote": 1.0, "approvals": 1.0, "replaced vote": 2.0}
"""Largest change of the difference of two candidates' scores between neighbours."""
_MOST = 10  # candidates of a table: one person has 2^k - 1 possible approvals


@serializable("private-choice", eq=False)
class PrivateChoice(Choosing, TableDesign):
    r"""Choose the candidate of (nearly) the largest score.

    Without `largest` the result is the better of permute-and-flip and the exponential mechanism, for any scores; with it, the optimal table for counts.

    Parameters
    ----------
    candidates : int or sequence of str
        k, or names.
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP
    neighbours : {"one vote", "approvals", "replaced vote", "add-remove", "replace"}
        Effect of one person on the scores: adds one to one of the counts; adds one to any set of them; moves one vote to another
        candidate. With `spread` it states only whether a person is added or replaced.
    spread : float, optional
        s: between neighbours scores change by vectors v with max v − min v ≤ s; twice the sensitivity if nothing more is known.
    largest : int, optional
        N: counts above it are clipped to N. The result is the optimal table for counts, and `release` takes counts.
    objective : {"worst", "mean"}
        Objective of the table: expected regret at the worst counts, or averaged over all :math:`(N + 1)^k`. A rule's value is its largest
        expected regret over all scores.
    choose : int
        Number of candidates to choose, the best first, at most 1,000. Each is removed before the next choice and consumes an equal part of the budget: ε/k, (ε/k, δ/k) or
        ρ/k. The answer is a list, and the value the sum of each choice's largest expected regret.

    Raises
    ------
    DesignError
        Counts together with a spread, more than 2,000 sorted vectors of counts, counts of more than 10 candidates.

    Notes
    -----
    Regret is the largest score minus that of the choice. McKenna and Sheldon, *Permute-and-flip*, NeurIPS 2020. A rule has no lower bound:
    scores with a spread alone give no finite program. Beyond ε = 700, where least regrets are no doubles, the gap of a table stays open.

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

    candidates: int | tuple[str, ...] = field(check=names_of)
    privacy: Asked = field(PureDP, ApproximateDP, ZeroConcentratedDP)
    neighbours: str = field(check=checks.one_of, allowed=(*SPREADS, *NEIGHBOURS), default="one vote")
    spread: float | None = field(check=checks.magnitude, side=UP, default=None)
    largest: int | None = field(check=checks.integer, least=1, most=MOST_INPUTS, default=None)
    objective: str = field(check=checks.one_of, allowed=("worst", "mean"), default="worst")
    choose: int = field(check=checks.integer, least=1, most=1000, default=1)

    def _post_check(self) -> None:
        remedy = f"must be at most {self.size}, the number of candidates, and 1 with largest="
        refuse(self.choose > (1 if self.largest is not None else self.size), "choose", self.choose, remedy)
        if self.spread is None and self.neighbours in NEIGHBOURS:
            remedy = f"must be one of {', '.join(SPREADS)}, which say what a person does to counts, or come with spread="
            raise DesignError.of("neighbours", self.neighbours, remedy)
        if self.largest is None:
            return
        allowed = "is of counts: of scores with a spread there is no optimal table"
        refuse(self.spread is not None, "largest", self.largest, allowed)
        if not 2 <= self.size <= _MOST or math.comb(self.largest + self.size, self.size) > MOST_INPUTS:
            allowed = f"must leave at most {MOST_INPUTS} sorted vectors of counts, of 2 to {_MOST} candidates"
            raise DesignError.of("largest", self.largest, allowed)

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
        """The neighbouring relation in a ledger's terms."""
        return "replace" if self.neighbours.startswith("replace") else "add-remove"

    @property
    def mechanism_class(self) -> MechanismClass:
        """The two rules; with `largest`, every choice by counts up to it."""
        return every(f"choice by counts of 0 to {self.largest}") if self.largest else super().mechanism_class

    # -- the optimal table ---------------------------------------------------------------------------------------

    @cached_property
    def counts(self) -> Indices:
        """Vectors of counts 0, …, N, shape (vectors, k): the sorted ones, largest first, then unsorted ones that replaced votes lead to."""
        if self.largest is None:
            allowed = "must be given: a solver finds the optimal table of counts from 0 to it"
            raise DesignError.of("largest", None, allowed)
        each = itertools.combinations_with_replacement(range(self.largest, -1, -1), self.size)
        found = [np.array(list(each))]
        for r in range(self.size - 1 if self.neighbours == "replaced vote" else 0):
            swapped = found[0][found[0][:, r] == found[0][:, r + 1] + 1]
            swapped[:, [r, r + 1]] = swapped[:, [r + 1, r]]
            found.append(swapped)
        return np.concatenate(found)

    @cached_property
    def _rows(self) -> dict[tuple[int, ...], int]:
        """Row of the table of each vector of counts."""
        return {tuple(x): i for i, x in enumerate(self.counts.tolist())}

    @cached_property
    def alike(self) -> Indices:
        """Index of the cell whose probability each cell shares, shape (vectors, k): in the sorted counts, the first of equal ones."""
        rows = [self._rows[tuple(x)] for x in (-np.sort(-self.counts, axis=1)).tolist()]
        ranks = (self.counts[:, None, :] > self.counts[:, :, None]).sum(axis=2)
        return np.asarray(np.array(rows)[:, None] * self.size + ranks)

    @cached_property
    def orders(self) -> Array:
        """Number of distinct orders of each vector of counts; 0 for unsorted vectors."""
        found = np.full(len(self.counts), float(math.factorial(self.size)))
        for level in range(int(self.counts.max()) + 1):
            found /= special.factorial((self.counts == level).sum(axis=1), exact=True)
        found[(np.diff(self.counts, axis=1) > 0).any(axis=1)] = 0
        return found

    @cached_property
    def pairs(self) -> Indices:
        """Rows of neighbouring counts, shape (pairs, 2), each pair once."""
        single, found = np.eye(self.size, dtype=int), list[tuple[int, int]]()
        moves = list(single)
        if self.neighbours == "approvals":
            moves = [np.array(v) for v in itertools.product((0, 1), repeat=self.size) if any(v)]
        elif self.neighbours == "replaced vote":  # a vote from or to a candidate that has more than N stays N
            moves += [a - b for a, b in itertools.permutations(single, 2)]
        for move in moves:
            kept = np.ones(len(self.counts), dtype=bool)
            if self.neighbours == "replaced vote" and move.sum():
                kept = ((self.counts == self.largest) & (move == 0)).any(axis=1)
            after = map(tuple, (self.counts + move).tolist())
            found += [(i, self._rows[y]) for i, y in enumerate(after) if kept[i] and y in self._rows]
        return np.unique(np.sort(found, axis=1), axis=0)

    def problem(self) -> TableProblem:
        """Return the model of the optimal table: probabilities of the r-th largest at each sorted vector of counts.

        With further constraints the solution is a plain table: it takes sorted counts, and answers with a rank among them.
        """
        P = Table(
            [tuple(row) for row in self.counts.tolist()],
            range(self.size),
            of="data",
            neighbours=self.relation,
        )
        cost = P.worst(self._regrets) if self.objective == "worst" else P.expected(self._regrets, self.orders)
        cells, leaders = cp.vec(P, order="C"), self.alike.ravel()
        others = np.flatnonzero(leaders != np.arange(len(leaders)))
        equal = named("equal counts", cells[others] == cells[leaders[others]])
        asked = replace(P.private(self.privacy), between=self.pairs)
        return TableProblem(Minimize(cost), (asked, equal), design=self)

    def exact(self, law: Any, witness: Iterable[Fraction] = ()) -> Exact:
        """Return the cells of a table in rationals, after checks that it is for these counts and candidates and equal for equal counts."""
        names, inputs = self._names, self.declared.inputs
        if not isinstance(law, ChoiceTable) or (law.inputs, law.outputs) != (inputs, tuple(names)):
            raise DesignError("law: is no table for the design's counts and candidates")
        found = [fmpq(w, total) for row, total in zip(law.weights, map(sum, law.weights)) for w in row]
        if any(x != found[leader] for x, leader in zip(found, self.alike.ravel().tolist())):
            raise DesignError("law: does not treat candidates of equal counts alike")
        return [*found, *map(rational, witness)]

    @property
    def _names(self) -> Sequence[Any]:
        return range(self.size) if isinstance(self.candidates, int) else self.candidates

    def deployed(self, weights: tuple[tuple[int, ...], ...]) -> ChoiceTable:
        """Return the choice by counts of these integer weights."""
        return ChoiceTable(self.declared.inputs, tuple(self._names), weights)

    def rule(self, name: str, rate: float) -> ChoiceRule:
        """Return the mechanism of a rule at a rate."""
        return ChoiceRule(name, rate, self.candidates, self.choose)

    def closed_forms(self) -> Iterator[Law | Bound]:
        """Yield the better rule; with `largest`, tables in closed form.

        These are the uniform choice, and permute-and-flip at a rate that is private after rounding.
        """
        if self.largest is None:
            yield from super().closed_forms()
            return
        if isinstance(self.privacy, ZeroConcentratedDP):
            remedy = "is of tables, of which no finite number of rows states ρ: ask for ε, or leave it out"
            raise DesignError.of("largest", self.largest, remedy)
        epsilon, alone = self.privacy.epsilon, np.ones(self.size)
        less = min(1e-13 * (1 + epsilon), epsilon / 2)  # of ε, against the rounding of large ones
        tables = [np.full(self.alike.shape, 1 / self.size)]
        for rate in (epsilon / self.moved, (epsilon - less) / self.moved):
            tables.append(chances(PERMUTE, self._regrets, alone, rate).ravel()[self.alike])
        for table in tables:
            held = np.maximum(table, 1e-307)
            unit = 1 << 60 - math.frexp(held.min())[1]  # 60 bits for the smallest probability
            weights = tuple(tuple(int(Fraction(p) * unit) for p in row) for row in held.tolist())
            law = self.law(weights, SolveReport("closed form"))
            columns = self.exact(
                law.mechanism, next(p.witness for p in law.proofs if isinstance(p, TableProof))
            )
            if not Face(self.declared, frozenset()).broken(columns):
                yield law

    def _own_way(self, solver: str | None) -> bool:
        return self.largest is None and solver is None

    def accelerated(self, clock: Clock, algorithm: str | None = None) -> Iterator[Law | Bound]:
        """Yield nothing: a rule is a closed form."""
        yield from ()

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
        """Return the regrets of the candidates, shape (..., k), and their probabilities, at the worst counts up to `largest` or at all of them."""
        off = self._regrets
        table = (
            law.probabilities
            if isinstance(law, ChoiceTable)
            else chances(law.rule, off, np.ones(self.size), law.rate)
        )
        if self.objective == "mean":
            return off, table * (self.orders / self.orders.sum())[:, None]
        at = int((table * off).sum(axis=1).argmax())
        return off[at], table[at]

    def errors(self, result: Result, question: object = None) -> Accuracy:
        """Return the regret of a choice: at the worst scores, or with `largest` at the worst counts or over all of them."""
        asked = self if question is None else question.design(self.privacy)  # type: ignore[attr-defined]
        if asked.largest is None:
            return super().errors(result)
        return accuracy_of(*asked.regrets(result.mechanism))

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Yield both rules at the same privacy, with their regrets."""
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
        )

    def frame(self, result: Result) -> pd.DataFrame:
        """Tabulate a rule's probability of the best candidate, by its lead over all others; a table's probabilities, by rank."""
        if self.largest is None:
            return super().frame(result)
        found = pd.DataFrame(self.counts, columns=[f"count {r + 1}" for r in range(self.size)])
        return found.assign(**{f"P[{r + 1}]": result.mechanism.probabilities[:, r] for r in range(self.size)})

    def _lead(self, result: Result) -> tuple[Any, ...]:
        if self.largest is None:
            return super()._lead(result)
        ahead, gaps = self.counts[:, 0] - self.counts[:, 1], np.arange(self.largest + 1)
        return gaps, [result.mechanism.probabilities[ahead == gap, 0].mean() for gap in gaps]


@serializable("choice-table", eq=False)
class ChoiceTable(TableMechanism):
    """A choice by counts, which are clipped to N.

    Parameters
    ----------
    inputs : tuple of tuples of numbers
        Vectors of counts, largest first.
    outputs : tuple of numbers or names
        The candidates.
    weights : tuple of rows of int
        Weights of the candidates in the order of their counts; equal counts have equal weights.
    """

    def drawn(self, x: Any, source: Simulation | Deployment) -> Any:
        """Draw a candidate by counts, in their order or by name."""
        named = isinstance(self.outputs[0], str)
        counts = scores_of(x, self.outputs if named else len(self.outputs))
        if (counts < 0).any() or (counts != np.floor(counts)).any():
            raise DataError("counts: must be whole numbers of at least 0")
        order = np.argsort(-counts, kind="stable")
        row = self._places([np.minimum(counts, self.inputs[0][0])[order]])
        chosen = self.outputs[order[source.choose(self, row)[0]]]
        return chosen if named else int(chosen)

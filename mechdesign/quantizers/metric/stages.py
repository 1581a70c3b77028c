"""The order in which a metric quantizer is solved: coarse programs first where time is limited, so that something is known.

On the continuum the knots are doubled until the gap is small. On a grid there is one program; with a time limit it comes
after one that asks for pure privacy instead of approximate, or that uses a few of the outputs. Whatever ends first is exact,
and private; if nothing ends, the law with the two outermost outputs is (`known`). The programs are feasible and bounded: a
solver that says otherwise, as large ratios make them, has failed, and the next one is asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from mechdesign import solvers
from mechdesign.errors import InfeasibleError, SolverError
from mechdesign.problem.privacy import MetricDP, PureDP
from mechdesign.quantizers.common.rational_rows import rational_table, tightened
from mechdesign.quantizers.mechanism.exact_law import RationalTable
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.metric.certificate import MetricCertificate
from mechdesign.quantizers.metric.closed import Multipliers
from mechdesign.quantizers.metric.coarse import (
    Interpolated,
    lifted,
    relaxed_model,
    thinned,
    wanted_outputs,
)
from mechdesign.quantizers.metric.known import (
    Found,
    Stage,
    few_outputs,
    first_answer,
    outermost_law,
    outermost_private,
    pairwise_multipliers,
    worse_places,
)
from mechdesign.quantizers.metric.notion import CAP, Capped, PairwisePrivacy
from mechdesign.quantizers.metric.program import bounding_program, hats, row_model, set_budget
from mechdesign.solvers import CompiledLP, Model, Solution, Status, proved_bound
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Indices

__all__ = ["Stages"]

_COUNTS = (65, 129, 257, 513, 1025)
_COARSE = (5, 17, 33)  # before those, where time is limited
_WIDE = 1000  # knots times outputs up to which the first of those is as good as a coarser one
_SMALL = 2000  # rows of a program that nothing need come before
_OTHERS = ("highs-ipm", "clarabel")  # asked where the first solver fails
_NEAR = 1e-6  # relative to ε: the edge of what is feasible
_MANY = 4000  # rows from which the interior point (and its crossover) is ahead of the simplex method
_STEPS = 1000  # of the simplex method before that: at large ε few rows of approximate privacy bind
_SHRINK = (
    1e-9  # how much smaller ε is in the program, for what the repair of its rows moves; neighbours need more
)
_LEAST = (
    1e-13  # of the probabilities of an output in use: far below the tolerance, far above the rounding of rows
)
_TRIED = 100_000  # rows of a program that is tried whatever others took: a solver keeps the time
_FEW = 2500  # inputs times outputs of a grid up to which its own program is as fast
_FIRST, _SPREAD, _GROWTH = (
    17,
    3,
    4.0,
)  # inputs of the first program of few, their multiple in the next, and that of its seconds
_TURNS = 12  # in which inputs between those of a grid are added to its worst case
_EXACT = 4e-6  # seconds for an input and output to make a law of few inputs exact, measured
_ROUNDS = 4  # of outputs that come and go, with the same inputs
_EDGE = "the budget is within rounding of the least that is feasible: only the outermost two outputs are used"
_FAILED = "no solver answered the program: only the outermost two outputs are used"
_PARTLY = "no solver answered the whole program: this is the best of coarser ones"


class Stages:
    """The solves of one design.

    Parameters
    ----------
    design : MetricQuantizer
    solver : str or None
    deadline : Deadline
    options : dict
        The backend's own.
    """

    def __init__(self, design: Any, solver: str | None, deadline: Deadline, options: dict[str, Any]) -> None:
        self.design, self.notion, self.deadline = design, design.notion, deadline
        self.bins = np.array(design.bins)
        self._solver, self._options = solver, options
        self._places = np.zeros(0)  # inputs between those of a grid that its worst case is over too
        self._pace = 0.0  # seconds for an input and output, of the last program of few inputs
        self.question = design.prior, design.loss, design.objective

    def best(self, count: int | None, wanted: float, *, stop: bool) -> tuple[Found, bool]:
        """The best by the deadline, and whether the last stage, or the gap, was reached before.

        Parameters
        ----------
        count : int or None
            Knots on the continuum; doubled until the gap is as wanted where None.
        wanted : float
        stop : bool
            Whether a stage that is not the whole program will do if its gap is as wanted.
        """
        best, complete, failed = None, True, False
        for found in self._few_inputs(each=stop):
            best = found if best is None else best.joined(found, same=True)
            if stop and best.gap <= wanted:
                return best, True
        for stage in self._plan(count):
            if self.deadline.passed or (best is not None and not self._worth(stage)):
                complete = False
                break
            try:
                found = self._floored(self._at(stage))
            except (InfeasibleError, SolverError):  # for doubles: the outermost two outputs are feasible
                complete, failed = not self.deadline.passed, failed or stage.whole
                continue
            if stage.whole:
                found = self._between(stage, self._capped(stage, found))
            best = found if best is None else best.joined(found, same=not self.notion.continuum)
            complete, failed = stage.whole, failed and not stage.whole
            if (stage.whole and best.bound is None) or (best.gap <= wanted and (stage.whole or stop)):
                complete = True
                break
        if best is None:
            best = self._floored(self._outermost(failed=complete))
        elif failed and complete:
            best = replace(best, notes=(*best.notes, _PARTLY))
        if not (best.bound or self.notion.continuum):
            best = best.bounded(*self._bound(None, best.knots, None, self._more()))
        return best, complete

    def _few_inputs(self, *, each: bool) -> Iterator[Found]:
        """Answers from more and more of a grid's inputs (`coarse`), while the next is likely to end in time: `each`, or the last."""
        knots, notion, deadline = self.design.knots(), self.notion, self.deadline
        if not (deadline.finite and Multipliers.apply(notion)) or len(knots) * len(self.bins) <= _FEW:
            return
        pure = notion.privacy if isinstance(notion.privacy, MetricDP) else PureDP(notion.privacy.epsilon)
        if not outermost_private(PairwisePrivacy(pure), self.bins, knots):
            return
        outputs, held = few_outputs(self.bins, knots), Interpolated(pure, False, tuple(knots.tolist()))
        count, rounds = _FIRST, _ROUNDS
        reserve = _EXACT * len(knots) * len(self.bins)
        waiting: tuple[Multipliers, Stage, Solution] | None = None
        with suppress(InfeasibleError, SolverError):
            while count < len(knots):
                at = thinned(count, knots, ends=True)
                for _ in range(rounds):
                    started = deadline.elapsed
                    stage = Stage(knots[at], outputs, held, False, knots)
                    multipliers, answer = self._programs(at, stage)
                    outputs = wanted_outputs(outputs, np.asarray(answer.primal["P"]), multipliers)
                    if np.isin(outputs, stage.outputs).all():
                        break
                waiting, solved = (multipliers, stage, answer), deadline.elapsed - started
                self._pace = solved / (len(at) * len(stage.outputs))
                count, rounds = _SPREAD * count - _SPREAD + 1, 1
                # what proves a bound and makes a law exact takes as long whatever the number of inputs
                if not each and deadline.left > _GROWTH * solved + 1.25 * reserve:
                    continue
                yield self._exactly(*waiting)
                waiting, reserve = None, deadline.elapsed - started - solved
                if deadline.left < _GROWTH * solved + reserve:
                    return
        if waiting is not None:
            with suppress(InfeasibleError, SolverError):
                yield self._exactly(*waiting)

    def _programs(self, at: Indices, stage: Stage) -> tuple[Multipliers, Solution]:
        """Multipliers of all inputs and outputs, and the answer that a law is made of, from a stage of few."""
        knots, question, notion = self.design.knots(), self.question, stage.notion
        bins, budget = self.bins[stage.outputs], notion.privacy.epsilon * (1 - self._shrink(stage))
        model = row_model(bins, stage.knots, notion, *question)
        set_budget(model, notion, stage.knots, budget)
        answer = proof = self._answer(model, None)
        if notion.neighbours:
            at = thinned(len(at) - 2, knots, ends=question[2] == "worst")
            proof = self._answer(relaxed_model(bins, knots, at, self.notion, question), None)
        return lifted(self.bins, knots, at, self.notion, question, proof), answer

    def _exactly(self, multipliers: Multipliers, stage: Stage, answer: Solution) -> Found:
        proved = multipliers.settled()
        law = self._table(stage, answer, stage.notion.privacy.epsilon * (1 - self._shrink(stage)))
        if self._excess(law):
            found = self._at(stage)
        else:
            found = Found(law, self._value(law), answer)
        return self._floored(found.bounded(proved.bound, proved.values))

    def _worth(self, stage: Stage) -> bool:
        """Whether a large program may end in time, by what smaller ones took."""
        cells = len(stage.knots) * len(stage.outputs)
        return stage.rows <= _TRIED or self._pace * cells * _GROWTH < self.deadline.left

    def _capped(self, stage: Stage, found: Found) -> Found:
        """The better of it and of what smaller ratios give, where large ones may have misled the solver."""
        notion = stage.notion
        if notion.continuum or notion.delta or found.gap <= _NEAR or self.deadline.passed:
            return found
        if notion.powers(stage.knots)[2].max() <= CAP:
            return found
        try:
            less = self._at(stage._replace(notion=Capped(notion.privacy)))
        except (InfeasibleError, SolverError):
            return found
        return found.joined(self._floored(less), same=True)

    def _between(self, stage: Stage, found: Found) -> Found:
        """The worst case with the inputs between those of a grid that lose more, found in turn."""
        if self.notion.continuum or self.design.objective != "worst":
            return found
        last = found
        for _ in range(_TURNS):
            places = worse_places(Quantizer.of_law(last.law), self.design.loss, found.bound or 0.0)
            places = np.setdiff1d(places, np.concatenate([self._places, stage.knots]))
            if found.gap <= _NEAR or self.deadline.passed or not places.size:
                break
            self._places = np.sort(np.concatenate([self._places, places]))
            try:
                last = self._capped(stage, self._floored(self._at(stage)))
            except (InfeasibleError, SolverError):
                break
            found = found.joined(last, same=True)
        return found

    def _floored(self, found: Found) -> Found:
        """With the bound 0 where no better one is known: absolute and squared errors are not negative."""
        return found.bounded(0.0, None) if self.design.loss.polynomial else found

    def _plan(self, count: int | None) -> Iterator[Stage]:
        design, every = self.design, np.arange(len(self.bins))
        if self.notion.continuum:
            counts = _COUNTS if count is None else (count,)
            if self.deadline.finite and counts[0] * len(every) > _WIDE:
                yield from (
                    Stage(design.knots(c), every, self.notion, False) for c in _COARSE if c < counts[0]
                )
            yield from (Stage(design.knots(c), every, self.notion, True) for c in counts)
            return
        knots = design.knots()
        pairs = (
            2 * len(knots) if isinstance(design.privacy, PureDP) else len(self.notion.pairs(len(knots))[0])
        )
        if self.deadline.finite and pairs * len(every) > _SMALL:
            if self.notion.delta:
                yield Stage(knots, every, PairwisePrivacy(PureDP(design.privacy.epsilon)), False)
            few = few_outputs(self.bins, knots)
            if 2 * len(few) < len(every):
                yield Stage(knots, few, self.notion, False)
        yield Stage(knots, every, self.notion, True)

    def _at(self, stage: Stage) -> Found:
        """The answer to one stage, exact and private."""
        knots, outputs, notion, _, grid = stage
        places = self._places if grid is None else None
        model = row_model(self.bins[outputs], knots, notion, *self.question, places=places)
        answers: list[Solution] = []

        def solved(epsilon: float, backend: str | None) -> RationalTable:
            set_budget(model, notion, knots, epsilon)
            answers.append(self._answer(model, backend))
            return self._table(stage, answers[-1], epsilon)

        def law_of(backend: str | None) -> RationalTable:
            return tightened(
                lambda epsilon: solved(epsilon, backend),
                self._excess,
                notion.privacy.epsilon,
                shrink=self._shrink(stage),
                attempts=6,
            )

        law = first_answer(law_of, (None,) if self._edge else (None, *_OTHERS), self.deadline)
        found = Found(law, self._value(law), answers[-1])
        if len(outputs) < len(self.bins) or grid is not None:
            return found
        if isinstance(notion, Capped):
            notion = self.notion
        if notion != self.notion:
            return found.bounded(*self._approximate_bound(model, knots, answers[-1]))
        return found.bounded(*self._bound(notion, knots, answers[-1], self.deadline), self._places)

    def _shrink(self, stage: Stage) -> float:
        return 100 * _SHRINK if self.notion.continuum or stage.inputs is not None else _SHRINK

    def _table(self, stage: Stage, answer: Solution, epsilon: float) -> RationalTable:
        """The exactly unbiased law next to an answer at a budget ε."""
        knots, outputs, notion, _, grid = stage
        rows = np.zeros((len(knots), len(self.bins)))
        rows[:, outputs] = np.maximum(np.asarray(answer.primal["P"]), 0.0)
        if not np.isfinite(rows).all():
            raise SolverError("an answer is not finite", solver=answer.solver, status="not finite")
        if not notion.delta:
            rows[:, rows.max(axis=0) < _LEAST] = 0.0
            rows = np.where(rows.max(axis=0) > 0, np.maximum(rows, _LEAST), 0.0)
            rows = notion.raised(knots, rows, 0.01 * (1 - epsilon / notion.privacy.epsilon))
        if grid is not None:
            return rational_table(self.bins, grid, hats(knots, grid) @ rows)
        return rational_table(self.bins, knots, rows)

    def _excess(self, law: RationalTable) -> float:
        stated = MetricCertificate(law, self.design.privacy.epsilon, notion=self.notion)
        return 0.0 if stated.verify() else math.inf

    @cached_property
    def _edge(self) -> bool:
        """Whether the programs have no feasible point at an ε that is hardly smaller, and maybe none for doubles."""
        less = replace(self.notion.privacy, epsilon=self.notion.privacy.epsilon * (1 - _NEAR))
        return not outermost_private(replace(self.notion, privacy=less), self.bins, self.design.knots(2))

    def _answer(self, model: Model, backend: str | None) -> Solution:
        if backend is not None:
            return solvers.solve(model, backend, deadline=self.deadline, fallback=False)
        if self._solver is not None or self._options or model.size[1] <= _MANY:
            return solvers.solve(model, self._solver, deadline=self.deadline, **self._options)
        if self.notion.delta:
            simplex: Any = solvers.get("highs")
            limits = {"time_limit": self.deadline.limit(), "simplex_iteration_limit": _STEPS}
            answer = simplex.solve(model, **limits)
            if answer.status is Status.OPTIMAL:
                return answer
        return solvers.solve(model, "highs-ipm", deadline=self.deadline)

    def _value(self, law: RationalTable) -> float:
        mechanism, (prior, loss, objective) = Quantizer.of_law(law), self.question
        return (
            mechanism.expected_loss(prior, loss)
            if objective == "mean"
            else mechanism.worst_case_loss(loss)[0]
        )

    # -- bounds ---------------------------------------------------------------------------------------

    def _bound(
        self, notion: PairwisePrivacy | None, knots: Array, answer: Solution | None, deadline: Deadline
    ) -> tuple[float | None, Array | None]:
        """A lower bound for every mechanism, interpolated or not, and its multipliers; None where there is none by then.

        Without an answer to the same program on a grid, the program is solved; without a notion, the one without privacy.
        """
        continuum = notion is not None and notion.continuum
        _, loss, objective = self.question
        if continuum and objective == "mean" and not loss.polynomial:
            return None, None
        program = bounding_program(self.bins, knots, notion, *self.question, self._places)
        try:
            # The program of an answer with lowered ratios is another one. Any duals prove a bound; an interior point's are
            # the quickest on the continuum.
            if continuum or answer is None or self.notion.steep(knots):
                backends = ("clarabel", "highs-ipm") if continuum else ("highs", *_OTHERS)
                answer = first_answer(
                    lambda name: solvers.solve(program, name, deadline=deadline), backends, deadline
                )
            row_dual = answer.row_dual if answer.row_dual is not None else CompiledLP(program).row_duals()
            return self._proved(program, answer, row_dual)
        except (InfeasibleError, SolverError):
            return None, None

    @staticmethod
    def _proved(
        program: Model, answer: Solution, row_dual: Array | None
    ) -> tuple[float | None, Array | None]:
        bound = proved_bound(program, answer.tagged(row_dual=row_dual))
        return (bound, row_dual) if math.isfinite(bound) else (None, None)

    def _approximate_bound(
        self, pure: Model, knots: Array, answer: Solution
    ) -> tuple[float | None, Array | None]:
        """The bound for approximate privacy from the duals of the pure program."""
        if self.notion.steep(knots):
            return None, None
        program = bounding_program(self.bins, knots, self.notion, *self.question)
        row_dual = pairwise_multipliers(pure, program, *self.notion.pairs(len(knots)))
        return self._proved(program, answer, row_dual)

    def _more(self) -> Deadline:
        """For what is wanted whatever the limit was."""
        return Deadline(0.5 + self.deadline.seconds / 2) if self.deadline.finite else self.deadline

    def _outermost(self, *, failed: bool) -> Found:
        """The law with the two outermost outputs, and a bound; at the edge of what is feasible it is nearly all there is."""
        knots = self.design.knots(5 if failed else 3)
        law = outermost_law(self.bins, knots)
        answer = Solution(Status.OPTIMAL, math.nan, {}, {}, "closed-form", 0.0)
        notes = (_EDGE if self._edge else _FAILED,) if failed else ()
        found = Found(law, self._value(law), answer, notes=notes)
        if not (failed or self.notion.continuum):
            return found
        return found.bounded(*self._bound(self.notion, knots, None, self._more()))

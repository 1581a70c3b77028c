r"""The best additive noise, proved: value, lower bound, and a law to sample.

One coordinate first; for several, `many` composes one law exactly.

.. math:: \min_F E_F\,\ell(T) \quad\text{s.t.}\quad P[T \in S] \le e^{\varepsilon} P[T + d \in S] + \delta
          \quad \text{for all } S,\; |d| \le \Delta .

Cells of width β = Δ/n turn it into a linear program from both sides. *Above*: a density constant on cells is private
for every real shift when it is for the n shifts by whole cells (`mechdesign.noise.cell_noise`). *Below*: any
noise, rounded at random to a neighbouring lattice point, is private for those shifts and costs no less than the
lattice costs (`costs`). Both errors are of order β², so few cells are enough. The law is repaired and checked in exact arithmetic
(`repair`), the bound is weak duality in exact arithmetic (`lower_bound`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import NoneType
from typing import Any

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.rounding import round_down, round_up
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.optimal.attempt import Attempt, Proof
from mechdesign.noise.optimal.certificate import NoiseCertificate
from mechdesign.noise.optimal.costs import average_costs
from mechdesign.noise.optimal.lattice import MOST_CELLS
from mechdesign.noise.optimal.many.question import alike
from mechdesign.noise.optimal.many.result import ManyNoiseResult
from mechdesign.noise.optimal.many.solve import never_dearer, solve_many
from mechdesign.noise.optimal.program import Line, lattice_model
from mechdesign.noise.optimal.question import Question
from mechdesign.noise.optimal.refine import refine
from mechdesign.noise.optimal.result import OptimalNoiseResult
from mechdesign.problem.checks import UP, instance, number, one_of, positive, settle, whole
from mechdesign.problem.design import OldDesign, refuse_unknown, wanted_gap
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import ApproximateDP, PureDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.solvers import Model
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Status

__all__ = ["OptimalNoise"]

_MOST = 10**6  # cells; programs are far smaller
_LEAST = 1e-200  # of the loss at the sensitivity, and 1/_LEAST the most: doubles hold what laws and proofs make of it
_LEAST_GAP = 1e-8  # HiGHS leaves rows open by 2e-9


@serializable("optimal-noise")
@dataclass(frozen=True)
class OptimalNoise(OldDesign):
    r"""The optimal additive noise for a real query, or the best independent noise of one law for several.

    Parameters
    ----------
    privacy : PureDP or ApproximateDP
    sensitivity : float or Sensitivity
        Δ > 0, in units of the query. Of several numbers what any of them changes by; or
        ``Sensitivity(linf=1, changed=3)``, which is held as Δ and `changed`. Other sets of changes are refused.
    loss : {"absolute", "squared"}, dict, or convex callable
        What an error t costs; must grow on both sides. A callable is vectorised over arrays, and its
        values are taken as exact. Of one coordinate.
    dimension : int
        K: independent noise of one law on every coordinate, all of which may move by Δ at once. For K > 1 the result is a
        `ManyNoiseResult`: never dearer than a named family, δ composed over all changes up to Δ, the lower bound loose
        (under pure privacy as close as for one coordinate).
    changed : int, optional
        c: at most so many of the K coordinates move at once; all when not given. The law is then that of c coordinates.

    Raises
    ------
    DesignError
        Another kind of privacy, a sensitivity that is not positive, a loss that is not convex.

    Notes
    -----
    Geng and Viswanath (2016) for δ = 0, where the answer is the staircase; Selvi, Liu and Wiesemann, *Differential
    privacy via distributionally robust optimization* (2025) for δ > 0. The lattice bounds are [new].

    Examples
    --------
    >>> result = OptimalNoise(privacy=ApproximateDP(1.0, 0.2)).solve(gap=0.01)
    >>> result.gap <= 0.01, round(result.value, 2), result.certificate.verify()
    (True, 0.56, True)

    Two counts, ε = 5 for both together, by squared error; a staircase in all but its ends:

    >>> two = OptimalNoise(ApproximateDP(5.0, 1e-3), loss="squared", dimension=2).solve(cells=4)
    >>> two.value < 0.2459, two.certificate.verify()
    (True, True)
    """

    privacy: PureDP | ApproximateDP
    sensitivity: Any = 1.0
    loss: Any = "absolute"
    dimension: int = 1
    changed: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.privacy, (PureDP, ApproximateDP)):
            raise DesignError.of("privacy", self.privacy, "must be PureDP or ApproximateDP")
        settle(self, dimension=whole("dimension", self.dimension, 1, 10**6))
        if isinstance(self.sensitivity, Sensitivity):
            if self.changed is not None:
                raise DesignError.of("changed", self.changed, "is for a number: the Sensitivity says it")
            size, count = alike(self.sensitivity, self.dimension)
            settle(self, sensitivity=size, changed=count)
        settle(self, sensitivity=positive("sensitivity", self.sensitivity, side=UP))
        if self.changed is not None:
            count = whole("changed", self.changed, 1, self.dimension)
            settle(self, changed=None if count == self.dimension else count)
        if 0 < self.epsilon < 1e-18:
            what = "raise it, or ask a family for its scale: md.calibrate"
            raise DesignError.of(
                "epsilon",
                self.epsilon,
                f"must be at least 1e-18, below which e^-ε is 1 to all digits kept: {what}",
            )
        if self.epsilon > 200:
            raise DesignError.of("epsilon", self.epsilon, "must be at most 200: beyond, e^-ε is not a mass")
        self._check_unit()

    def _check_unit(self) -> None:
        """Refuse a sensitivity in whose unit doubles do not hold the loss."""
        loss, size = Loss.of(self.loss), Fraction(self.sensitivity)
        at_size = Fraction(loss.absolute) * size + Fraction(loss.squared) * size**2
        if loss.function is not None:  # taken to grow no faster than the square
            at_size = size**2
        if not (_LEAST <= at_size <= 1 / _LEAST and 1e-100 <= size <= 1e100):
            allowed = "must be between 1e-100 and 1e100, where the loss is between 1e-200 and 1e200: choose another unit"
            raise DesignError.of("sensitivity", self.sensitivity, allowed)

    @property
    def _loss(self) -> Loss:
        return Loss.of(self.loss)

    @property
    def moved(self) -> int:
        """How many coordinates move at once, at most."""
        return self.changed or self.dimension

    @property
    def epsilon(self) -> float:
        """ε of the requirement."""
        return self.privacy.epsilon

    @property
    def delta(self) -> float:
        """δ of the requirement, 0 for pure privacy."""
        return self.privacy.delta if isinstance(self.privacy, ApproximateDP) else 0.0

    def model(self, *, cells: int = 4, reach: float = 3.0, **options: Any) -> Model:
        """Return the whole upper linear program, every row listed, without the symmetry of an even loss.

        Parameters
        ----------
        cells : int
            Per sensitivity, centred on multiples of their width.
        reach : float
            Sensitivities on each side; there is no mass beyond, and no spike.
        """
        refuse_unknown(options, "cells and reach")
        if self.dimension > 1:
            raise DesignError.of("dimension", self.dimension, "must be 1: a search over laws has no program")
        n = whole("cells", cells, 1, _MOST)
        reach = positive("reach", reach)
        if reach * n > _MOST:
            raise DesignError.of("reach", reach, f"must be at most {_MOST} cells")
        side = math.ceil(reach * n)
        if 2 * side + 1 < n:
            raise DesignError.of("reach", reach, "must be at least half a sensitivity")
        width = Fraction(self.sensitivity) / n
        count = 2 * side + 1
        line = Line(np.arange(count), np.ones(count), np.ones(count), n, mirrored=False)
        costs = average_costs(self._loss, 2 * np.arange(-side, side + 1), width / 2).floats()
        return lattice_model(
            line,
            np.append(costs, costs.max()),
            epsilon=self.epsilon,
            delta=self.delta,
            shifts=range(1, n + 1),
        )

    def solve(
        self,
        solver: str | None = None,
        *,
        gap: float | None = None,
        certify: bool = True,
        time_limit: float | None = None,
        cells: int | None = None,
        grid: str = "centred",
        max_cells: int = 256,
        starts: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> OptimalNoiseResult | ManyNoiseResult:
        """Return a law, its cost, and a proved lower bound.

        Parameters
        ----------
        solver : {None, "highs"}
            The cuts are generated on HiGHS.
        gap : float, optional
            Refine until (value - lower bound)/value is at most this, at least 1e-8; 0.01 when not given.
        certify : bool
            Whether the multipliers are kept as evidence. The law is exact either way.
        time_limit : float, optional
            Seconds after which the best law and bound so far are returned.
        cells : int, optional
            Use exactly this many cells per sensitivity instead, whatever the gap. For several coordinates: those of the
            free law, which its reach decides when not given.
        grid : {"centred", "edge"}
            Cells of the law centred on multiples of the width, with a narrow spike at 0 where that pays; or
            with a cell edge at 0 and no spike.
        max_cells : int
            Stop refining here; a note in the result says so.
        starts : mapping of str to frozen law, optional
            Families by name that were calibrated to this requirement already: those that are private, which is checked,
            are taken as they are, and none is calibrated again. The result is then never dearer than they are, for one
            coordinate too: a `ManyNoiseResult` where one of them is cheapest.

        Raises
        ------
        DesignError
            Bad options.
        SolverError
            HiGHS failed.
        """
        refuse_unknown(options, "cells, grid, max_cells and starts")
        instance("starts", starts, Mapping, NoneType)
        one_of("certify", certify, (True, False))
        if instance("solver", solver, str, NoneType) not in (None, "highs"):
            raise DesignError.of("solver", solver, 'cuts are generated on "highs"; model() is for the others')
        deadline = Deadline(time_limit)
        if gap is not None and 0 < number("gap", gap) < _LEAST_GAP:
            raise DesignError.of(
                "gap", gap, f"must be at least {_LEAST_GAP:g}: the programs are solved in doubles"
            )
        if self.dimension > 1:
            wanted_gap(gap, 0.01)
            cells = None if cells is None else whole("cells", cells, 1, 1000)
            return solve_many(
                self, self._one, gap=gap, certify=certify, cells=cells, deadline=deadline, starts=starts
            )
        question = self._question(gap, cells, one_of("grid", grid, ("centred", "edge")))
        max_cells = whole("max_cells", max_cells, 1)
        best = refine(question, max_cells=max_cells, deadline=deadline)
        status = self._status(best, wanted_gap(gap, 0.01 if cells is None else 0.999), deadline)
        certificate = self._certificate(best) if certify else None
        report = best.report(status if certify else Status.UNCERTIFIED, deadline)
        found = OptimalNoiseResult(
            design=self,
            mechanism=best.law,
            value=round_up(best.value),
            lower_bound=round_down(best.bound) if certify else None,
            solver_report=report,
            notes=tuple(self._notes(best, status, question, max_cells)),
            certificate=certificate,
            duals=best.duals(),
        )
        if not starts:
            return found
        return never_dearer(self, found, starts, gap=gap, certify=certify, deadline=deadline)

    def _one(self, privacy: Any, loss: Any, gap: float | None, time_limit: float | None) -> Any:
        """The optimum of one coordinate under another requirement."""
        one = OptimalNoise(privacy, self.sensitivity, loss)
        return one.solve(gap=gap, time_limit=time_limit)

    def _question(self, gap: float | None, cells: int | None, grid: str) -> Question:
        return Question(
            self._loss,
            self.sensitivity,
            self.epsilon,
            self.delta,
            gap=wanted_gap(gap, 0.01) if cells is None else 0.0,
            cells=None if cells is None else whole("cells", cells, 1, _MOST),
            grid=grid,
        )

    def _status(self, best: Attempt, gap: float, deadline: Deadline) -> Status:
        if round_up(best.value) - round_down(best.bound) <= gap * round_up(best.value):
            return Status.OPTIMAL
        return Status.LIMIT if deadline.passed else Status.GAP

    def _certificate(self, best: Attempt) -> NoiseCertificate:
        return NoiseCertificate(
            privacy=self.privacy,
            sensitivity=self.sensitivity,
            loss=self.loss,
            law=best.law,
            value=best.value,
            lower_bound=best.bound,
            grouped=best.proof.grouped,
            **_multipliers(best.proof),
        )

    def _notes(self, best: Attempt, status: Status, question: Question, max_cells: int) -> list[str]:
        notes, law = [], best.law
        if status is Status.GAP:
            notes.append("the gap asked for was not reached; " + _remedy(best, question, max_cells))
        if status is Status.LIMIT:
            notes.append("the time limit came before the gap asked for")
        if self._loss.function is not None:
            notes.append(
                "the loss is a callable: its floating-point values are taken as exact, its convexity sampled"
            )
        if law.spike:
            notes.append(
                f"a spike of mass {float(law.spike / law.total):.3g} and width {law.spike_width:.3g} sits at 0: "
                "δ is large enough that almost exact answers pay"
            )
        return notes


def _remedy(best: Attempt, question: Question, max_cells: int) -> str:
    """What brings law and bound closer, where the search ended by itself."""
    if question.cells is not None:
        return "raise cells, or leave them out"
    if best.proof.grouped > 1:
        return (
            f"no option brings it closer: the bound is of changes of {best.proof.grouped} sensitivities at once, fewer at "
            "a time would take more periods than a proof may have"
        )
    if 2 * question.first_window() * max_cells <= MOST_CELLS:
        return "raise max_cells"
    return "no option brings it closer: a finer lattice has more cells than a program may have"


def _multipliers(proof: Proof) -> dict[str, Any]:
    """The evidence of a bound, as a certificate holds it."""
    if (spread := proof.spread) is not None:
        return {
            "cells": spread.cells,
            "shifts": np.zeros(0, dtype=np.int64),
            "psi": spread.psi,
            "totals": np.zeros(0),
            "mirrored": True,
            "knots": spread.knots,
            "kernels": spread.kernels,
        }
    periods, level = proof.climb or (0, Fraction(0))
    listed = proof.multipliers
    length = len(listed[0].psi) if listed else 0 if level else 2 * proof.cells + 3
    return {
        "cells": proof.cells,
        "shifts": np.array([m.shift for m in listed], dtype=np.int64),
        "psi": np.array([m.psi for m in listed]).reshape(len(listed), length),
        "totals": np.array([m.total for m in listed]),
        "mirrored": proof.mirrored,
        "level": level,
        "periods": periods,
    }

r"""The best additive noise, proved: value, lower bound, and a law to sample.

.. math:: \min_F E_F\,\ell(T) \quad\text{s.t.}\quad P[T \in S] \le e^{\varepsilon} P[T + d \in S] + \delta
          \quad \text{for all } S,\; |d| \le \Delta .

For one number and a loss a\|t\| + bt² the staircase comes first, real or whole, with its dual (`staircase`). Where that is not close, cells of
width β = Δ/n turn the problem into a linear program from both sides (`lattice`). *Above*: a density constant on cells is private
for every real shift when it is for the n shifts by whole cells (`mechdesign.noise.cell_noise`). *Below*: any
noise, rounded at random to a neighbouring lattice point, is private for those shifts and costs no less than the
lattice costs (`lattice_bound`). Both errors are of order β². The law is repaired and checked in exact arithmetic, and the bound is
rows and multipliers. Whole numbers with noise on the whole numbers are such a program themselves, with no error of cells. For several numbers see `several`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from types import NoneType
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError, MechdesignError, SolverError
from mechdesign.evidence.digits import at_most, shown
from mechdesign.evidence.proofs import Certificate, Claim
from mechdesign.evidence.results import AUDIT_COLUMNS, Result
from mechdesign.evidence.serialize import serializable
from mechdesign.model.lattice import MOST_POINTS, LatticeNoise
from mechdesign.model.problem import Minimize
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.calibration import Calibration
from mechdesign.noise.calibration_search import budget_of, consumed
from mechdesign.noise.cell_noise import CellNoise, IntegerNoise
from mechdesign.noise.cell_product import CellProduct, NoiseQuestion, cell_claims
from mechdesign.noise.lattice import (
    MOST_CELLS,
    SMALLEST_DELTA,
    SMALLEST_WHOLE,
    LatticeBound,
    LatticeProblem,
    reach,
    refined,
)
from mechdesign.noise.laws import draw_laws
from mechdesign.noise.several import (
    CLOSED,
    DISCRETE,
    calibrated,
    named_claims,
    named_cost,
    ranked,
    several,
    started,
)
from mechdesign.noise.staircase_dual import staircase
from mechdesign.problem.checks import instance, integer
from mechdesign.problem.spine import Bound, Clock, Law, ModelledDesign
from mechdesign.problem.words import Description, loss_words
from mechdesign.typing import FrozenLaw, Status

if TYPE_CHECKING:
    from matplotlib.figure import Figure


CELLS = 16
"""A sensitivity, in `OptimalNoise.problem`: of 8 the cost is up to 1.4% off at (3, .01)."""
_SLOW = 4000
"""Whole numbers whose program takes minutes: the staircase, of milliseconds, comes before it."""


@serializable("optimal-noise")
@dataclass(frozen=True)
class OptimalNoise(NoiseQuestion, ModelledDesign):
    r"""The optimal additive noise for a real query, or the best independent noise of one law for several.

    Parameters
    ----------
    privacy : PureDP, ApproximateDP, MembershipAdvantage or TradeOff
        Of a TradeOff all points at once: the programs have a block of rows for each.
    sensitivity : float or Sensitivity
        Δ > 0, in units of the query, for add-remove neighbours. Of several numbers what any of them changes by; or
        ``Sensitivity(linf=1, l0=3)``, which is held as Δ and `l0`. Other sets of changes are refused.
    loss : {"absolute", "squared"}, dict, or convex callable
        What an error t costs; must grow on both sides. A callable is vectorised over arrays, and its
        values are taken as exact. Of one coordinate.
    dimension : int
        K: independent noise of one law on every coordinate, all of which may move by Δ at once. For K > 1 the law is the
        best of Gaussian, Laplace, staircase and generalised normal noise (under pure privacy that of one coordinate at
        ε/K), and the lower bound, which is loose, is of independent noise of one law; for K = 1 it is of every additive noise for a real-valued query.
    l0 : int, optional
        c: at most so many of the K coordinates move at once; all when not given. The law is then that of c coordinates.
    integer : bool
        Whole answers and whole noise: only changes by whole numbers, up to Δ, are protected. The bound is of every additive noise on the whole
        numbers, and of every other mechanism with whole answers in the worst case over all true values; of noise that is not whole where the loss
        is linear between neighbouring whole numbers (`mechdesign.noise.lattice`). For c > 1 numbers that move at once and δ > 0 the law
        is the best of the discrete families and of the optimum of one number at (ε/c, δ/c).
    neighbours : {"add-remove", "replace"}
        For which neighbours the changes hold; a `Sensitivity` states it itself.

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
    >>> from mechdesign.problem.privacy import ApproximateDP, PureDP
    >>> result = OptimalNoise(ApproximateDP(1, .2)).solve(gap=.01)
    >>> result.gap <= 0.01, round(result.value, 2), result.certificate.verify()
    (True, 0.56, True)

    Two counts, ε = 5 for both together, by squared error:

    >>> two = OptimalNoise(PureDP(5.0), loss="squared", dimension=2).solve()
    >>> round(two.value, 3), two.certificate.verify()
    (0.246, True)

    A count, in whole numbers:

    >>> count = OptimalNoise(ApproximateDP(1, .1), loss="squared", integer=True).solve()
    >>> round(count.value, 4), count.gap < 1e-9, type(count.mechanism.release(1000))
    (0.7976, True, <class 'int'>)
    """

    default_gap = 0.01

    def closed_forms(self) -> Iterator[Law]:
        """Yield Gaussian and Laplace noise where δ > 0 is allowed for one number; pure noise has its staircase."""
        if self.dimension == 1 and any(delta for _, delta in self.points):
            for name in CLOSED:
                if (name in DISCRETE) == self.integer and (self.given_loss.polynomial or not self.integer):
                    yield from (law for _, law in calibrated(self, self.privacy, name, 1e-3))

    def improve(  # type: ignore[override]
        self,
        clock: Clock,
        *,
        solver: str | None = None,
        cells: int | None = None,
        max_cells: int = 64,
        starts: Mapping[str, FrozenLaw] | None = None,
    ) -> Iterator[Law | Bound]:
        """Yield the staircase and its bound, then laws and bounds of ever finer lattices.

        Parameters
        ----------
        clock : Clock
        solver : str, optional
            A registered backend for linear programs.
        cells : int, optional
            Use a lattice of exactly this many cells per sensitivity instead. For one number that is not whole.
        max_cells : int
            Stop refining here.
        starts : mapping of str to frozen law, optional
            Families by name that were calibrated to this requirement already. They are compared with the optimum of one
            number, and tried instead of all others for several.
        """
        instance("starts", starts, Mapping, NoneType)
        cells = None if cells is None else integer("cells", cells, 1, MOST_CELLS)
        integer("max_cells", max_cells, 1)
        if self.dimension > 1:
            yield from several(self, clock, starts)
            return
        known = self.given_loss.polynomial and cells is None and self.alone
        if self.integer:
            if cells is not None:
                raise DesignError.of("cells", cells, "is for numbers that are not whole")
            stairs = list(staircase(self, clock)) if known else []
            slow = 2 * reach(self) * self.change > _SLOW
            yield from (found for found in stairs if slow or isinstance(found, Bound))
            if not (known and self.delta < SMALLEST_WHOLE):
                yield from refined(self, clock, solver, cells=self.change, max_cells=self.change, known=known)
            yield from stairs
            return
        yield from ranked(started(self, starts or {}))
        if known:
            yield from staircase(self, clock)
        if not (known and self.delta < SMALLEST_DELTA):
            yield from refined(self, clock, solver, cells=cells, max_cells=max_cells, known=known)

    def certified(self, law: Law, clock: Clock) -> Law:
        """Check a named law, which the accounting of another grid may refuse; laws on cells are private as they were made."""
        stated = Certificate(self, law.mechanism, law.value, None, law.proofs)
        if isinstance(law.mechanism, AdditiveNoise) and not stated.verify():
            raise SolverError("the law failed its own check", solver="family search", status="check")
        return law

    def law_claims(self, stated: Certificate) -> Iterator[Claim]:
        return (named_claims if isinstance(stated.law, AdditiveNoise) else cell_claims)(self, stated)

    def problem(self) -> LatticeProblem:
        """Return the program of the masses, declared: 16 cells a sensitivity, or the whole numbers, as far as truncated Laplace noise goes."""
        if self.dimension > 1:
            raise DesignError.of("dimension", self.dimension, "must be 1: a search over laws has no program")
        window = reach(self)
        n = self.change if self.integer else max(1, min(CELLS, math.floor(MOST_POINTS / 2 / window)))
        step = 1.0 if self.integer else self.sensitivity / n
        p = LatticeNoise(
            step,
            math.ceil(window * n) * step,
            sensitivity=self.sensitivity,
            integer=self.integer,
            tails=min((e for e, d in self.points if not d), default=None),
            neighbours=self.neighbours,
        )
        goal = Minimize(p.expected(self.given_loss))
        return LatticeProblem(goal, (p.private(self.privacy),), design=self)

    # -- what a result says ------------------------------------------------------------------------------

    def audit(self, result: Result) -> pd.DataFrame:
        """δ of each point at every shift of a law on cells, at ε/c each of c coordinates that move; else what all coordinates consume."""
        law, moved = _cells(result), self.moved
        rows: list[tuple[object, ...]] = []
        if law is None:
            lhs, limit = consumed(result.mechanism, self.privacy).upper, budget_of(self.privacy)
            rows.append(("privacy", 0, lhs, limit, limit - lhs, math.nan, limit - lhs <= 1e-2 * limit))
            return pd.DataFrame(rows, columns=AUDIT_COLUMNS)
        bound = next((p for p in result.proofs if isinstance(p, LatticeBound)), None)
        prices = {} if bound is None else bound.prices(self)
        for at, (epsilon, delta) in enumerate(self.points):
            several = len(self.points) > 1
            family = f"privacy at ε = {shown(epsilon)}" if several else "privacy"
            for shift, value in law.hockey_stick(Fraction(epsilon) / moved).items():
                slack, dual = Fraction(delta) - moved * value, prices.get((at, shift), math.nan)
                active = slack <= Fraction(1, 10**9)
                rows.append((family, shift, float(moved * value), delta, float(slack), dual, active))
        rows.append(("normalisation", 0, 1.0, 1.0, 0.0, math.nan, True))
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def frame(self, result: Result) -> pd.DataFrame:
        """The density, a row per cell; of several numbers one row: which law, and what it costs."""
        law = result.mechanism
        if isinstance(law, IntegerNoise):
            masses = [float(w / law.total) for w in law.weights]
            return pd.DataFrame({"noise": law.first + np.arange(len(masses)), "probability": masses})
        if isinstance(law, CellNoise):
            edges = law.start + law.width * np.append(0.0, law.ends)
            heights = np.array([float(w / law.total) for w in law.weights]) / np.diff(edges)
            return pd.DataFrame({"left": edges[:-1], "right": edges[1:], "density": heights})
        row = {"law": _kind(result), "dimension": self.dimension, "value": result.value}
        return pd.DataFrame([row | {"variance": float(law.variance), "lower_bound": result.lower_bound}])

    def describe(self, result: Result) -> Description:
        whole, law = "whole " if self.integer else "", _cells(result)
        numbers = f"one {whole}number" if self.dimension == 1 else f"{self.dimension} {whole}numbers"
        what, exact = f"the {_kind(result).replace('_', ' ')} law", ""
        if law is not None:
            count = len(law.weights)
            what = f"a density that is constant on {count} cells"
            if self.integer:
                what = f"on the whole numbers, {count} of them listed"
            spent = ", ".join(at_most(v, 4) for v, (_, d) in zip(self._spent(law), self.points) if d)
            exact = f"exact δ at most {spent}" if spent else "pure, exactly"
        return Description(
            title=f"{'Optimal' if self.dimension == 1 else 'Independent'} noise for {numbers}",
            what=f"{self.protection()} Independent noise of one law is added to each number.",
            loss=f"expected {loss_words(self.loss)}{'' if self.dimension == 1 else ' of one number'}",
            more=(f"The law found is {what}.",),
            consumed=exact,
            picture="Above: the density of the noise on one number. Below: how often it is larger than t.",
            rivals="The same requirement met by other laws, each at its least scale. For several numbers their costs are stated by the "
            "search, not checked.",
        )

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Other laws at their least scales."""
        if self.dimension > 1:
            for name, cost in result.trials().itertuples(index=False):
                if name != _kind(result):
                    yield str(name).replace("_", " "), float(cost)
        elif self.given_loss.polynomial:
            for name, law in self._usual().items():
                yield f"{name} noise", named_cost(law, self.given_loss)

    def lines(self, result: Result) -> list[str]:
        """The law and what its privacy is exactly."""
        law = _cells(result)
        if law is None:
            return [result.mechanism.summary(), f"law: {_kind(result)}"]
        if isinstance(law, IntegerNoise):
            tails = ", geometric tails" if law.decay else ""
            return [
                f"law: whole numbers from {law.first} to {-law.first}{tails}; released as whole numbers",
                self._exact(law),
            ]
        return [
            f"law: {len(law.weights)} cells of width {law.width:.6g}, {law.cells_per_shift} per sensitivity"
            + (f", spike of mass {float(law.spike / law.total):.3g}" if law.spike else "")
            + (", geometric tails" if law.decay else ""),
            f"release: on the lattice of step {law.step:.6g}, at most {law.step / law.width:.1g} of a cell from the law",
            self._exact(law),
        ]

    def remarks(self, result: Result) -> list[str]:
        if result.status is Status.GAP and self.dimension == 1:
            return ["the gap asked for was not reached: raise cells or max_cells"]
        return ["the time limit came before the search ended"] if result.status is Status.LIMIT else []

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the law and its tail; of one number with the usual laws at the same privacy."""
        laws = {"this noise": _cells(result) or result.mechanism.law}
        if self.dimension == 1:
            laws |= {name: noise.law for name, noise in self._usual().items()}
        return draw_laws(laws, **options)

    def _spent(self, law: CellNoise | IntegerNoise) -> list[float]:
        """δ of all coordinates together, at every point."""
        return [float(self.moved * law.exact_delta(Fraction(e) / self.moved)) for e, _ in self.points]

    def _exact(self, law: CellNoise | IntegerNoise) -> str:
        pairs = zip(self._spent(law), self.points)
        return "exact delta: " + ", ".join(f"{spent:.9g} (asked: {d:.9g})" for spent, (_, d) in pairs)

    def _usual(self) -> dict[str, AdditiveNoise]:
        """Laplace and Gaussian noise at the same privacy, discrete for whole numbers, where they can meet it."""
        found, judged = {}, "squared" if self.given_loss.squared else "absolute"
        for name in DISCRETE if self.integer else ("laplace", "gaussian"):
            with suppress(MechdesignError):
                design = Calibration(name, self.privacy, self.sensitivity, loss=judged)
                found[name] = design.solve().mechanism
        return found


def _cells(result: Result) -> CellNoise | IntegerNoise | None:
    """The law on cells or on the whole numbers, if it is one."""
    noise = result.mechanism.law if isinstance(result.mechanism, CellProduct) else result.mechanism
    return noise if isinstance(noise, (CellNoise, IntegerNoise)) else None


def _kind(result: Result) -> str:
    """Which law it is: "one coordinate" for the optimum of one, or the name of a family."""
    held = result.trials()
    if not held.empty:
        return str(held["law"].iloc[0])
    return "one coordinate" if _cells(result) else str(result.mechanism.law.dist.name)

r"""The best additive noise, proved: value, lower bound, and a law to sample.

.. math:: \min_F E_F\,\ell(T) \quad\text{s.t.}\quad P[T \in S] \le e^{\varepsilon} P[T + d \in S] + \delta
          \quad \text{for all } S,\; |d| \le \Delta .

**One number.** For a loss a\|t\| + bt² the staircase comes first, real or whole, with its dual (`staircase`). Where
value and bound are not close, cells of width β = Δ/n give linear programs for both sides (`lattice`). *Above*: a
density that is constant on cells is private for every real shift if it is for the n shifts by whole cells
(`mechdesign.noise.cell_noise`). *Below*: any noise, rounded at random to a neighbouring lattice point, is private for
those shifts and costs no less than the lattice costs (`free_lattice`). Both errors are of order β². The law is repaired
and checked in exact arithmetic, and rows with multipliers prove the bound. Noise on the whole numbers is such a program
itself, without an error of cells.

**Several numbers** get independent noise of one law: the best named family, or the optimum of one coordinate at its
share. Under pure privacy c coordinates are ε-DP together if and only if each is ε/c-DP, so that the optimum of one
coordinate at ε/c is best. With δ > 0 Gaussian, Laplace, staircase and generalised normal noise are compared at their
least scales, the quick ones first.

Left out are free densities and composed optima of one coordinate: they cost .2% less in the median of the map of
`many-coordinates`, and at most 1.35%. So are flipped Huber, OSGT, logistic and truncated Laplace noise: they took 16 s
of 17 s at K = 2 and (2, 1e-9), and gained at most .35% in the map's 80 settings of several numbers and in 54 more (K in
{2, 5, 20}, ε from .1 to 8, δ up to 1e-5). Without generalised normal noise the value rises by up to 14.5%.

Lower bounds for several numbers follow from bounds for one (`mechdesign.noise.noise_bounds`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from types import NoneType

import numpy as np
import pandas as pd

from mechdesign.checks import instance, integer, refuse
from mechdesign.errors import DesignError, MechdesignError, SolverError
from mechdesign.evidence import proofs
from mechdesign.evidence.digits import shown
from mechdesign.evidence.exact import round_down, round_up
from mechdesign.evidence.results import AUDIT_COLUMNS, Result, SolveReport, audit_row
from mechdesign.evidence.serialize import serializable
from mechdesign.evidence.vipr import LinearBound
from mechdesign.model.lattice import LatticeNoise
from mechdesign.model.problem import Minimize
from mechdesign.noise import laws, noise_bounds
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.calibration import Calibration, release_words
from mechdesign.noise.calibration_search import budget_of, consumed, evaluated
from mechdesign.noise.cell_noise import CellNoise, IntegerNoise
from mechdesign.noise.lattice import (
    MOST_CELLS,
    LatticeProblem,
    NoiseQuestion,
    cell_claims,
    cell_law,
    free_lattice,
    law_notes,
    reach,
    refined,
)
from mechdesign.noise.laws import draw_laws, truncated_laplace
from mechdesign.noise.vector_noise import CellProduct
from mechdesign.problem.law_moments import symmetric_mean
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import ApproximateDP, Description, Pointwise, PureDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.problem.spine import Bound, Clock, Law, ModelledDesign
from mechdesign.typing import Figure, FrozenLaw, Indices, Status

_NAMED = ("gaussian", "laplace", "staircase", "gennorm")
"""Families compared for several numbers, the fastest first."""
DISCRETE = ("discrete_laplace", "discrete_gaussian")
"""Families for whole numbers."""
_FINEST = 100
"""Most cells a sensitivity of the declared program, whose rows grow by their square."""
CLOSED = ("gaussian", "laplace", *DISCRETE)
"""Families with a closed form: evaluated even when time is up, Laplace noise for several numbers then as pure noise."""


def staircase(question: NoiseQuestion, clock: Clock) -> Iterator[Law | Bound]:
    """Yield the staircase and the lower bound of its dual, for a loss a|t| + bt².

    Where δ is not small compared with the gap, and on whole numbers always, the law has mass δ at 0.
    """
    q = question
    pure = noise_bounds.StaircaseMultipliers.of(replace(q, privacy=PureDP(q.epsilon)), 0)
    _, step = pure.highest
    if q.integer:
        law = noise_bounds.whole_staircase(q.epsilon, q.change, round(step), q.delta)
        yield cell_law(q, law, SolveReport("closed form"))
    elif 20 * q.delta > clock.gap:
        share = math.nextafter(q.delta, 0.0)  # the accounting rounds up
        found = laws.answering_staircase(q.epsilon, step, share, scale=q.sensitivity)
        note = f"with probability {shown(share)} the answer is released without noise: δ is large enough that this pays"
        yield replace(_named(q, found, "closed form"), notes=(note,))
    else:
        yield _named(q, laws.staircase(q.epsilon, step, scale=q.sensitivity), "closed form")
    multipliers = [pure]
    if q.delta > 0:
        reach = max(3.0, -math.log(q.delta * min(q.epsilon, 1.0)) / q.epsilon)
        shares = (1.0, 0.85, 1.2, 0.7, 1.5)  # of the reach of truncated Laplace noise
        counts = [
            1,
            2,
            *(math.ceil(s * reach) + 1 for s in shares if s * reach < noise_bounds.MOST_PERIODS - 1),
        ]
        multipliers = [noise_bounds.StaircaseMultipliers.of(q, periods) for periods in counts]
    bound, level, periods = max((m.bound(m.highest[0]), m.highest[0], m.periods) for m in multipliers)
    if bound > 0:
        yield Bound(round_down(bound), noise_bounds.StaircaseDual(level, periods))


def named_claims(question: NoiseQuestion, stated: proofs.Certificate) -> Iterator[proofs.Claim]:
    """Claim that a named law on every coordinate is private, composed on a grid that no search uses, and costs what its closed form says.

    `mechdesign.noise.Calibration.law_claims` says what the accounting proves and what it recomputes in doubles.
    """
    noise = instance("law", stated.law, AdditiveNoise)
    remedy = ""
    if noise.dimension != question.dimension or not noise.once:
        remedy = f"must be for {question.dimension} numbers, once, of everybody"
    elif noise.continuous == question.integer:
        remedy = "must be on the whole numbers where they are asked for, and only there"
    if remedy:  # accounting makes the text of noise
        raise DesignError.of("law", str(noise), remedy)
    held = Sensitivity.of(noise.sensitivity)
    size, count = held.bounds(noise.dimension)[0]
    room = min(size - question.sensitivity, float(count - question.moved))
    covers = room >= 0 and held.allows(((question.sensitivity, question.moved),))
    yield proofs.Claim("it holds for every change up to the sensitivity", proofs.PROVED, room, covers)
    spent = consumed(noise, question.privacy)
    found = evaluated(noise, question.privacy, stated=spent, fresh=spent)
    yield from (claim for claim in found if claim.about == proofs.ABOUT_MECHANISM)
    # closed forms hold to the last digits of doubles, quadratures do not
    near = 1e-12 if question.given_loss.polynomial else 1e-9
    room = near - abs(named_cost(noise, question.given_loss) / stated.value - 1)
    yield proofs.Claim.of(f"the expected loss is {stated.value:.9g}", proofs.RECOMPUTED, room)


def named_cost(noise: AdditiveNoise, loss: Loss) -> float:
    """Return the expected loss of one coordinate, in doubles; infinite where the loss outgrows them, or the law has too many steps to integrate over."""
    value = loss.absolute * noise.absolute_error if loss.absolute else 0.0
    if loss.squared:
        value += loss.squared * noise.variance
    if loss.function is not None:
        only = Loss(function=loss.function)
        try:
            value += symmetric_mean(noise.law, lambda t: (only(t) + only(-t)) / 2)
        except DesignError:
            return math.inf
    return value if math.isfinite(value) else math.inf


def several(
    question: NoiseQuestion, clock: Clock, starts: Mapping[str, FrozenLaw] | None
) -> Iterator[Law | Bound]:
    """Yield the laws compared, the cheapest first, and lower bounds.

    Parameters
    ----------
    question : NoiseQuestion
        OptimalNoise for more than one number.
    clock : Clock
    starts : mapping of str to frozen law, optional
        Laws that were calibrated before; no other family is then evaluated.
    """
    if question.moved == 1 or (question.alone and question.delta == 0):
        yield from _shared(question, clock, starts or {})
        return
    found = started(question, starts or {})
    try:
        if starts is None:
            found += _calibrated(question, clock)
        found += _split(question, clock)
    except KeyboardInterrupt:  # with the families so far
        yield from ranked(found)
        raise
    yield from ranked(found)
    if clock.certify:
        yield from noise_bounds.lower_bounds(question, clock)


def _shared(question: NoiseQuestion, clock: Clock, starts: Mapping[str, FrozenLaw]) -> Iterator[Law | Bound]:
    """Yield the optimum of one coordinate at its share of ε, which is all of it if one coordinate changes, and the bound."""
    below = above = question.privacy
    if question.moved > 1:
        share = Fraction(question.epsilon) / question.moved
        below, above = PureDP(round_down(share)), PureDP(round_up(share))
    best = noise_bounds.one_number(question, below, 1).solve(gap=clock.gap, time_limit=clock.limit())
    yield from ranked(started(question, starts) + _product(question, best))
    if above != below:
        best = noise_bounds.one_number(question, above, 1).solve(
            gap=clock.gap, time_limit=clock.limit(least=0.1)
        )
    if (bound := noise_bounds.shared_bound(best, above, 1)) is not None:
        yield bound


def _split(question: NoiseQuestion, clock: Clock) -> list[tuple[str, Law]]:
    """Return the optimum of one whole number at its share of ε and δ, which basic composition allows; of several pairs at that of the least ε."""
    epsilon, delta = (round_down(Fraction(min(v)) / question.moved) for v in zip(*question.points))
    if not epsilon or not question.integer:
        return []
    share = ApproximateDP(epsilon, delta) if question.alone else PureDP(epsilon)
    try:
        best = noise_bounds.one_number(question, share, 1).solve(time_limit=clock.limit(most=1.0, least=0.1))
    except DesignError:  # the share of ε is too small for a program
        return []
    except MechdesignError as error:
        clock.failed(error, "the optimum of one coordinate was not tried")
        return []
    return _product(question, best)


def _product(question: NoiseQuestion, best: Result) -> list[tuple[str, Law]]:
    """Return the optimum of one coordinate on all of them, if it is symmetric."""
    if isinstance(best.mechanism, AdditiveNoise):
        law = _named(question, best.mechanism.law, best.solver_report.solver)
        return [("one coordinate", replace(law, notes=best.notes))]
    if not best.mechanism.symmetric:
        return []
    l0 = None if question.moved == question.dimension else question.moved
    noise = CellProduct(best.mechanism, question.dimension, l0)
    notes = law_notes(question, best.mechanism)
    return [("one coordinate", Law(noise, best.value, (proofs.LawProof(),), best.solver_report, notes))]


def ranked(found: list[tuple[str, Law]]) -> Iterator[Law]:
    """Yield laws, cheapest first, each with the table of those that cost no less, if there are any."""
    found = sorted((item for item in found if math.isfinite(item[1].value)), key=lambda item: item[1].value)
    table = pd.DataFrame([(name, law.value) for name, law in found], columns=["law", "value"])
    for i, (_, law) in enumerate(found):
        yield replace(law, table=table[i:].reset_index(drop=True) if len(found) > i + 1 else None)


def _named(question: NoiseQuestion, law: FrozenLaw, how: str = "family search") -> Law:
    """Return noise of a `scipy.stats` law on every coordinate, with its cost."""
    some = Sensitivity(linf=question.sensitivity, l0=question.moved)
    change = question.sensitivity if question.moved == question.dimension else some
    noise = AdditiveNoise(law, change, question.dimension)
    value = named_cost(noise, question.given_loss)
    return Law(noise, value, (proofs.LawProof(),), SolveReport(how))


def started(question: NoiseQuestion, starts: Mapping[str, FrozenLaw]) -> list[tuple[str, Law]]:
    """Return families that were calibrated before as laws of every coordinate, by name."""
    return [(name, _named(question, law)) for name, law in starts.items()]


def _calibrated(question: NoiseQuestion, clock: Clock) -> Iterator[tuple[str, Law]]:
    """Yield the families at their least scales: those in `CLOSED`, and the others while there is time."""
    late = False
    if question.integer and not question.given_loss.polynomial:
        return  # integrals of a callable are for densities
    # compositions are not interrupted
    needed = 0.2 * (1 + math.log10(question.moved))
    for name in DISCRETE if question.integer else _NAMED:
        late = late or clock.left <= needed
        if not late:
            yield from calibrated(question, question.privacy, name, clock.limit())
        elif name in CLOSED and (question.alone or "gaussian" in name):
            pure = PureDP(question.epsilon) if "laplace" in name else question.privacy
            yield from calibrated(question, pure, name, clock.limit())
    if late:
        clock.failures.append("the time limit came before the search ended: some families were not tried")


def calibrated(
    question: NoiseQuestion, privacy: Pointwise, name: str, seconds: float | None
) -> Iterator[tuple[str, Law]]:
    """Yield the family at its least scale; nothing if it cannot meet the requirement, or not in time."""
    judged = "absolute" if question.given_loss.absolute and not question.given_loss.squared else "squared"
    with suppress(MechdesignError):
        design = Calibration(name, privacy, question.sensitivity, question.moved, loss=judged)
        yield name, _named(question, design.solve(certify=False, time_limit=seconds).mechanism.law)


# -- the design ---------------------------------------------------------------------------------------------------


@serializable("optimal-noise")
class OptimalNoise(NoiseQuestion, ModelledDesign):
    r"""The optimal additive noise for a real query, or the best independent noise of one law for several.

    Parameters
    ----------
    privacy : PureDP, ApproximateDP, MembershipAdvantage or TradeOff
        A TradeOff asks for all its points at once: the programs have a block of rows for each.
    sensitivity : float or Sensitivity
        Δ > 0, in units of the query, for add-remove neighbours: the most that any number changes. Or
        ``Sensitivity(linf=1, l0=3)``, which is stored as Δ and `l0`. Other sets of changes are refused.
    loss : {"absolute", "squared"}, dict, or convex callable
        The cost of an error t of one coordinate; it must grow on both sides. A callable is vectorised over arrays, and its
        values are taken as exact.
    dimension : int
        K: independent noise of one law on every coordinate, all of which may move by Δ at once. For K > 1 the law is the
        best of Gaussian, Laplace, staircase and generalised normal noise (under pure privacy that of one coordinate at
        ε/K), and the lower bound, which is loose, is of independent noise of one law; for K = 1 it is of every additive noise for a real-valued query.
    l0 : int, optional
        c: the most of the K coordinates that move at once; all when not given. The law is then that for c coordinates.
    integer : bool
        Whole answers and whole noise: only changes by whole numbers, up to Δ, are protected. The bound holds for every additive noise on the whole
        numbers, and for every other mechanism with whole answers in the worst case over all true values; for noise that is not whole where the loss
        is linear between neighbouring whole numbers (`mechdesign.noise.lattice`). For c > 1 numbers that move at once and δ > 0 the law
        is the best of the discrete families and of the optimum of one number at (ε/c, δ/c).
    neighbours : {"add-remove", "replace"}
        For which neighbours the changes hold; a `Sensitivity` states it itself.

    Raises
    ------
    DesignError
        The privacy is of another kind, the sensitivity is not positive, or the loss is not convex.

    Notes
    -----
    Geng and Viswanath (2016) for δ = 0, where the answer is the staircase; Selvi, Liu and Wiesemann, *Differential
    privacy via distributionally robust optimization* (2025) for δ > 0. The lattice bounds are [new].
    Where δ is not small beside the gap the staircase has a point mass δ at 0 (`answering_staircase`): with that probability the answer is released
    without noise.

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
        """Yield Gaussian and Laplace noise for one number where δ > 0; pure noise has its staircase."""
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
            Use lattices of exactly this many cells a sensitivity instead, for one number that is not whole.
        max_cells : int
            Stop refining here.
        starts : mapping of str to frozen law, optional
            Laws by family that were calibrated to this requirement before. For one number they are compared with the optimum;
            for several numbers they replace the search over families.
        """
        instance("starts", starts, Mapping, NoneType)
        cells = None if cells is None else integer("cells", cells, 1, MOST_CELLS)
        integer("max_cells", max_cells, 1)
        if self.dimension > 1:
            yield from several(self, clock, starts)
            return
        refuse(self.integer and cells is not None, "cells", cells, "is for numbers that are not whole")
        known = held = self.given_loss.polynomial and cells is None and self.alone
        yield from ranked(started(self, starts or {}))
        least = min(epsilon for epsilon, _ in self.points)
        if cells is None and self.given_loss.polynomial and len(self.points) > 1 and least > 0:
            # doubles may not resolve the program of all pairs, which pure noise at the least ε keeps
            pure = staircase(replace(self, privacy=PureDP(least)), clock)
            yield from (found for found in pure if isinstance(found, Law))
            held = True
        uniform = self.points[0][0] == 0 < self.points[0][1] and len(self.points) == 1
        if uniform and self.integer:
            # uniform noise on Δ/η whole numbers, of total variation η
            side = math.ceil((self.change / Fraction(self.points[0][1]) - 1) / 2)
            if side <= MOST_CELLS:
                law = IntegerNoise((1,) * (2 * side + 1), -side, self.change)
                yield cell_law(self, law, SolveReport("closed form"))
        elif uniform:
            # nearly uniform noise on ±Δ/2η, of total variation η
            width = self.sensitivity / (2 * self.points[0][1]) * (1 + 2e-6)
            yield _named(self, truncated_laplace(1e-6, scale=width / 1e-6))
        stairs: Iterable[Law | Bound] = staircase(self, clock) if known else ()
        # the program of whole numbers finds the optimum itself, but takes minutes for 4,000 of them: then the staircase comes first
        later = self.integer and 2 * reach(self) * self.change <= 4000
        stairs = list(stairs) if later else stairs
        yield from (found for found in stairs if not later or isinstance(found, Bound))
        # Below 1e-7 no lattice is as good as the staircase. Of whole numbers it is within 3.4e-6 of the optimum at 1e-9 for ε of .1 to 8,
        # within 1.4e-3 at 1e-6.
        if not (known and self.delta < (1e-8 if self.integer else 1e-7)):
            if self.integer:
                cells = max_cells = self.change
            yield from refined(
                self,
                clock,
                solver,
                cells=cells,
                max_cells=max_cells,
                known=held,
            )
        yield from stairs if later else ()

    def certified(self, law: Law, clock: Clock) -> Law:
        """Check a named law, which the accounting on another grid may refuse; laws on cells were made private."""
        stated = proofs.Certificate(self, law.mechanism, law.value, None, law.proofs)
        if isinstance(law.mechanism, AdditiveNoise) and not stated.verify():
            raise SolverError("the law failed its own check", solver="family search", status="check")
        return law

    def law_claims(self, stated: proofs.Certificate, given: None) -> Iterator[proofs.Claim]:
        return (named_claims if isinstance(stated.law, AdditiveNoise) else cell_claims)(self, stated)

    def problem(self) -> LatticeProblem:
        """Return the declared program over the masses, as wide as truncated Laplace noise: on whole numbers, or on at most 16 cells a sensitivity, 100 where the staircase falls earlier."""
        refuse(self.dimension > 1, "dimension", self.dimension, "must be 1: a search of laws has no program")
        window = reach(self)
        # with 8 cells a sensitivity the cost is up to 1.4% higher at (3, .01); programs of more than 500 points take long
        n = self.change if self.integer else max(1, min(16, math.floor(250 / window)))
        if not self.integer and self.alone and self.given_loss.polynomial:
            pure = replace(self, privacy=PureDP(self.epsilon))
            fall = float(noise_bounds.StaircaseMultipliers.of(pure, 0).highest[1])
            few = round(0.5 / fall)
            counts = range(min(n // 2 + 1, few), n + 1) if few <= n or few > _FINEST else [few]
            # the staircase falls where a cell ends, in the middle between two points
            n = min(counts, key=lambda n: abs(fall - (math.floor(fall * n) + 0.5) / n))
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
        """Return δ of each pair at every shift of a law on cells, composed over the c coordinates that move; else the budget all coordinates consume."""
        law, moved = _cells(result), self.moved
        rows: list[tuple[object, ...]] = []
        if law is None:
            return audit_row(
                "budget of all coordinates",
                consumed(result.mechanism, self.privacy).upper,
                budget_of(self.privacy),
            )
        prices = self._prices(result)
        for at, (epsilon, delta) in enumerate(self.points):
            several = len(self.points) > 1
            family = f"privacy at ε = {shown(epsilon)}" if several else "privacy"
            for shift, value in law.hockey_stick(Fraction(epsilon) / moved).items():
                slack, dual = Fraction(delta) - moved * value, prices.get((at, shift), math.nan)
                active = slack <= Fraction(1, 10**9)
                rows.append((family, shift, float(moved * value), delta, float(slack), dual, active))
        rows.append(("normalisation", 0, 1.0, 1.0, 0.0, math.nan, True))
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def linear_bound(
        self, rows: Indices, multipliers: tuple[Fraction, ...], given: tuple[int, int]
    ) -> LinearBound:
        """Return rows of `free_lattice`, of so many cells a sensitivity and points to either side of 0, for `RowsBound`."""
        self.check_scalar()
        return free_lattice(self, *given).linear_bound(rows, multipliers)

    def _prices(self, result: Result) -> dict[tuple[int, int], float]:
        """Return the multiplier of each pair's δ, by the number of the pair and the shift."""
        bound = next((p for p in result.proofs if isinstance(p, proofs.RowsBound)), None)
        if bound is None:
            return {}
        held = dict(zip(bound.rows.tolist(), map(float, bound.multipliers)))
        return {
            (at, s): held[part.sums + k]
            for at, part in enumerate(free_lattice(self, *bound.given).parts)
            for k, s in enumerate(part.pairs[:, 1].tolist())
            if part.delta and part.sums + k in held
        }

    def frame(self, result: Result) -> pd.DataFrame:
        """Return the density, a row for each cell; for other laws one row with the law and its cost."""
        law = result.mechanism
        if isinstance(law, IntegerNoise):
            masses = [float(w / law.total) for w in law.weights]
            return pd.DataFrame({"noise": law.first + np.arange(len(masses)), "probability": masses})
        if isinstance(law, CellNoise):
            edges = law.start + law.width * np.arange(law.count + 1)
            heights = np.array([float(w / law.total) for w in law.weights]) / np.diff(edges)
            return pd.DataFrame({"left": edges[:-1], "right": edges[1:], "density": heights})
        row = {"law": _kind(result), "dimension": self.dimension, "value": result.value}
        return pd.DataFrame([row | {"variance": float(law.variance), "lower_bound": result.lower_bound}])

    def describe(self, result: Result) -> Description:
        whole = "whole " if self.integer else ""
        numbers = f"one {whole}number" if self.dimension == 1 else f"{self.dimension} {whole}numbers"
        return Description(
            title=f"{'Optimal' if self.dimension == 1 else 'Independent'} noise for {numbers}",
            what=f"{self.protection()} Independent noise of one law is added to each number.",
            loss=f"expected {Loss.of(self.loss).words}{'' if self.dimension == 1 else ' of one number'}",
            picture="Above: the density of the noise on one number. Below: how often it is larger than t.",
            rivals="The same requirement met by other laws, each at its least scale. For several numbers their costs are stated by the "
            "search, not checked.",
        )

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Yield other laws at their least scales."""
        if self.dimension > 1:
            for name, cost in result.trials().itertuples(index=False):
                if name != _kind(result):
                    yield str(name).replace("_", " "), float(cost)
        elif self.given_loss.polynomial:
            for name, law in self._usual().items():
                yield f"{name} noise", named_cost(law, self.given_loss)

    def lines(self, result: Result) -> list[str]:
        """Describe the law and its exact privacy."""
        law = _cells(result)
        if law is None:
            return [result.mechanism.summary(), f"law: {_kind(result)}", release_words(result.mechanism)]
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
        return []

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the law and its tail; for one number with the usual laws at the same privacy."""
        laws = {"this noise": _cells(result) or result.mechanism.law}
        if self.dimension == 1:
            laws |= {name: noise.law for name, noise in self._usual().items()}
        return draw_laws(laws, **options)

    def _deltas(self, law: CellNoise | IntegerNoise) -> list[float]:
        """Return δ of all coordinates together, for every pair."""
        return [float(self.moved * law.exact_delta(Fraction(e) / self.moved)) for e, _ in self.points]

    def _exact(self, law: CellNoise | IntegerNoise) -> str:
        pairs = zip(self._deltas(law), self.points)
        return "exact delta: " + ", ".join(f"{spent:.9g} (asked: {d:.9g})" for spent, (_, d) in pairs)

    def _usual(self) -> dict[str, AdditiveNoise]:
        """Return Laplace and Gaussian noise at the same privacy, discrete for whole numbers, if they can meet it."""
        names = DISCRETE if self.integer else ("laplace", "gaussian")
        found = (each for name in names for each in calibrated(self, self.privacy, name, None))
        return {name: law.mechanism for name, law in found}


def _cells(result: Result) -> CellNoise | IntegerNoise | None:
    """Return the law on cells or on the whole numbers, if it is one."""
    noise = result.mechanism.law if isinstance(result.mechanism, CellProduct) else result.mechanism
    return noise if isinstance(noise, (CellNoise, IntegerNoise)) else None


def _kind(result: Result) -> str:
    """Return the name of the law: "one coordinate" for the optimum of one, or a family."""
    held = result.trials()
    if not held.empty:
        return str(held["law"].iloc[0])
    return "one coordinate" if _cells(result) else str(result.mechanism.law.dist.name)

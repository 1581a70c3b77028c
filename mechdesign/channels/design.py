r"""The optimal item mechanism: the α-d-private channel of least expected loss, certified.

.. math::

    \min_C \; \sum_{x,y} π_x\, ℓ(x, y)\, C[x, y] \quad\text{s.t.}\quad
    C[x, y] \le e^{α d(x, x')}\, C[x', y], \quad \sum_y C[x, y] = 1, \quad C \ge 0 .

In full the linear program has n²(n − 1) privacy rows; it is declared on a table (`MetricChannel.problem`). Three observations make it small:

* the row of (x, x') follows from those along a path from x to x' of length d(x, x'), as losses add up: rows along a sparse spanner come first, and
  further violated rows are generated (`mechdesign.model.program`). With a *spanner* of stretch κ and the budget α/κ no other row is needed (Bordenabe,
  Chatzikokolakis and Palamidessi);
* by convexity some optimum is invariant under the symmetries that distances, prior and losses share, so one
  variable per orbit is enough: 1,275 instead of 10,000 on a 10 × 10 grid (`mechdesign.model.symmetry`);
* columns are coupled only by the row sums: for hundreds of items an interior-point method factorises them one by one (`ReportProgram`).

The solver's table is replaced by integer weights that are private exactly for all pairs (`exact`); the multipliers prove
the lower bound.

**Interior-point method**, with a block for each report. The columns :math:`v_y = C[\cdot, y]` of a private channel are coupled only by the row sums, :math:`\sum_y v_y = 1`. With
:math:`s = e^{αd(x, x')/2}\, v_y(x') - e^{-αd(x, x')/2}\, v_y(x) \ge 0` for the constraints (x, x', y) in the program, written :math:`s = G_y v_y`, and
their multipliers λ, Newton's step is :math:`dv_y = M_y^{-1}(r_y + du)` with the symmetric :math:`M_y = G_y^T \mathrm{diag}(λ/s)\, G_y` of the size of the
items, and du from :math:`\sum_y M_y^{-1}`: one Cholesky factor of a small matrix per report, whatever the number of constraints.
The constant channel is strictly private, so that every iterate is feasible, and every λ ≥ 0 proves a lower bound: at any time limit there
is an answer. (Predictor and corrector of Mehrotra, *On the implementation of a primal-dual interior point method*, SIAM J. Optim. 2, 1992.)
The first constraints are those of a greedy spanner, then those that the solution violates. For 60 random places in the plane it reaches a gap of
1e-5 in 2 s, while the simplex method ends after 16 s; for 100 in 11 s, while that has a gap of .36 after 60 s.

Source: Bordenabe, Chatzikokolakis, Palamidessi, "Optimal geo-indistinguishable mechanisms for location
privacy", CCS 2014.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy import optimize, sparse
from scipy.linalg import blas, lapack

from mechdesign.channels.channel import (
    STEEP,
    Channel,
    check_prior,
    exponential,
    exponential_rate,
    loss_matrix,
    private_weights,
)
from mechdesign.checks import DOWN, array, field, instance, number, one_of, positive, refuse, settle
from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.digits import at_most, shown
from mechdesign.evidence.proofs import every, same
from mechdesign.evidence.results import Accuracy, Result, SolveReport, accuracy_of
from mechdesign.evidence.serialize import serializable
from mechdesign.model.exactly import Exact, proved_bounds
from mechdesign.model.problem import Minimize
from mechdesign.model.program import Program
from mechdesign.model.symmetry import Symmetry
from mechdesign.model.table import Table, weights_words
from mechdesign.model.table_problem import TableDesign, TableProblem, TableProof
from mechdesign.plotting import NAMED, draw_map, draw_matrix
from mechdesign.problem.privacy import FARTHEST, Description, MetricDP, PureDP, never_sent, points_of
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.solvers.deadline import Deadline, one_thread
from mechdesign.spaces.space import MetricSpace, graph_stretch, greedy_spanner
from mechdesign.typing import Array, Figure, Indices, Numbers, Weights

_LOSSES = {
    "metric": "distance to the truth",
    "squared": "squared distance to the truth",
    "error": "probability of a wrong report",
}
_MOST_ITEMS = 1000  # most items: a step that is cubic in their number takes a second
_SIMPLEX = (
    1_000  # variables up to which a program without symmetry takes HiGHS's simplex method half a second
)
_VERTICES = 5_000  # variables up to which that method ends within half a minute: it closes gaps of 1e-5
_ROWS = 5_000_000  # variables times reports from which the simplex method has too many rows to check
_SEED = 1.2  # stretch of the spanner that gives the interior-point method's first rows
_FIRST = 1e-2  # tolerance of the first rounds, and of parts of the program
_ENTRIES = 30_000_000  # most entries of the interior-point method's blocks: 240 MB, rounds of half a minute
_CALIBRATED = 200  # items up to which a page calibrates the exponential mechanism


def _space(name: str, value: MetricSpace | Numbers) -> MetricSpace:
    return value if isinstance(value, MetricSpace) else MetricSpace.from_matrix(value)


def _stretch(name: str, value: object) -> float:
    found = number(name, value)
    refuse(found < 1, name, value, "must be a stretch >= 1 (1.1, say), or None for the optimum")
    return found


@serializable("metric-channel", eq=False)
class MetricChannel(TableDesign):
    r"""The α-d-private channel of least expected loss on a finite metric space.

    Parameters
    ----------
    space : MetricSpace or distance matrix, shape (n, n)
        The items; `solve` takes at most 1,000. Up to about 200 places in the plane the gap closes to 1e-5 in minutes; beyond 310 the bound
        uses the likeliest items only.
    alpha : float
        Privacy α > 0 per unit of the space's distance.
    prior : array, shape (n,), or dict or pandas Series by name, optional
        Probabilities of the items; uniform by default.
    loss : {"metric", "squared", "error"} or array, shape (n, k)
        ℓ(x, y) of reporting y for x; a matrix may have any number k of reports.
    spanner : float, optional
        Constrain only a spanner of this stretch κ ≥ 1, with budget α divided by its actual stretch. The
        channel is still α-private for all pairs; its loss is at most the optimum at α/κ.

    Raises
    ------
    DesignError
        Asymmetric distances, a prior of the wrong length or sum, α ≤ 0 or NaN, a stretch below 1; by `solve`, a space that is too large.

    Examples
    --------
    >>> result = MetricChannel(MetricSpace.grid(3, 3), alpha=0.7).solve()
    >>> round(result.value, 6)
    1.018832
    >>> result.certificate.verify(), result.gap < 1e-9
    (True, True)
    >>> result.mechanism.alpha
    0.7
    """

    default_gap = 1e-6

    asks: ClassVar[str] = "places"
    algorithms = ("symmetric", "interior point")

    space: MetricSpace = field(check=_space)
    alpha: float = field(check=positive, side=DOWN)
    prior: Numbers | Mapping[str, float] | None = None
    loss: str | Numbers = "metric"
    spanner: float | None = field(check=_stretch, default=None)
    mechanism_class = every("channel between the points")

    def _post_check(self) -> None:
        allowed = "times the diameter must be at most 1e300: it is no privacy"
        refuse(self.alpha > 1e300 / max(1.0, self.space.diameter), "alpha", self.alpha, allowed)
        if self.prior is not None:
            settle(self, prior=self.weights)
        settle(self, loss=self.loss if isinstance(self.loss, str) else self.losses)
        _ = self.losses

    @property
    def privacy(self) -> MetricDP:
        """The requirement: α times the space's own distance."""
        return MetricDP(self.alpha)

    def tradeoff(self, result: Result, at: Iterable[float] = ()) -> TradeOff:
        """Return the trade-off between any two items, including the farthest."""
        return points_of(PureDP(result.mechanism.epsilon))

    @cached_property
    def losses(self) -> Array:
        """ℓ as a matrix, shape (n, k)."""
        size = self.space.size
        reports = size if isinstance(self.loss, str) else array("loss", self.loss, ndim=2).shape[1]
        return loss_matrix(self.loss, self.space, (size, reports))

    @cached_property
    def weights(self) -> Array:
        """The prior as an array, shape (n,)."""
        return check_prior("prior", self.prior, self.space.size, self.space.names)

    @cached_property
    def cost(self) -> Array:
        """Prior times loss, shape (n, k)."""
        return self.weights[:, None] * self.losses

    def problem(self) -> TableProblem:
        """Return the model: probabilities of reports, α-d-private for all pairs of items."""
        n, k = self.losses.shape
        refuse(n > _MOST_ITEMS, "space", f"{n} items", f"must be at most {_MOST_ITEMS}; merge points")
        items = self.space.names or range(n)
        P = Table(items, items if isinstance(self.loss, str) else range(k))
        cost = P.expected(self.losses, self.weights)
        cost.set_label(
            f"expected {self._loss_words}, over {'a uniform prior' if self.prior is None else weights_words(self.weights)}"
        )
        space = self.space
        if space.points is not None and not space.mapped:  # positions 2, 0, 1, say, are not the items 2, 0, 1
            space = replace(space, kind="matrix", matrix=space.distances, points=None)
        return TableProblem(Minimize(cost), (P.private(MetricDP(self.alpha, space)),), design=self)

    def deployed(self, weights: Weights) -> Channel:
        """Return the channel of these weights."""
        return Channel.from_weights(weights, self.space)

    def exact(self, law: Channel, witness: Iterable[Fraction] = ()) -> Exact:
        """Return the cells of a channel on the design's items and reports, in rationals."""
        if instance("law", law, Channel).weights is None or law.matrix.shape != self.losses.shape:
            raise DesignError("law: must be a channel of integer weights on the design's items and reports")
        refuse(not same(law.space, self.space), "law", law.space, "is on another space than the design's")
        return super().exact(law, witness)

    def proof(self, witness: tuple[Fraction, ...]) -> TableProof:
        """Return the proof of a law, with the distances as exact doubles."""
        return TableProof(witness, self.space.distances)

    def closed_forms(self) -> Iterator[Law | Bound]:
        """Yield the best constant report, and the exponential mechanism if the reports are the items."""
        constant = np.zeros_like(self.cost)
        constant[:, self.cost.sum(axis=0).argmin()] = 1.0
        tables = [constant]
        if constant.shape[0] == constant.shape[1]:
            tables.append(exponential(self.space, exponential_rate(self.space.distances, self.alpha)))
        for table in tables:
            channel = Channel(table, self.space)
            value = channel.expected_loss(self.losses, self.weights)
            law = Law(channel, value, report=SolveReport("closed form"))
            # where weights are too coarse for e^(-α d), its proof may cost more than a gap
            steep = self.alpha * self.space.diameter > STEEP and self.space.size <= _CALIBRATED
            yield self.repaired(table, report=law.report) if steep else law

    def certified(self, law: Law, clock: Clock) -> Law:
        """Make a closed form exactly private; other laws already are."""
        if law.mechanism.weights is not None:
            return law
        return self.repaired(law.mechanism.matrix, report=law.report)

    def accelerated(
        self, clock: Clock, algorithm: str | None = None, symmetry: bool = True
    ) -> Iterator[Law | Bound]:
        """Solve with one variable per orbit by HiGHS's simplex method, or report by report by an interior-point method, and repair the solution.

        Large programs with few symmetries, and those with more than five million rows, are solved by the interior-point method;
        the simplex method then finds the last digits if it takes no longer than half a minute. For up to 100 items this takes a third of the time in 1 of
        8 designs, and as long in the others (results/ablations, metric-channel); it makes hundreds of items possible. Symmetry is 18 × as fast (median;
        at most 50 ×) in the designs that have one.
        With a spanner the lower bound is for *all* α-private channels, so that the gap bounds the cost of the spanner: the
        spanner's edges with the whole budget are a relaxation, whose repaired channel is private too and, if α is large, the
        cheaper one.
        """
        one_of("symmetry", symmetry, (True, False))
        n, k = self.cost.shape
        orbits = Symmetry.of(self.declared, "find" if symmetry else None, clock)
        variables = int(orbits.cells.max()) + 1
        large = variables > _SIMPLEX and (4 * variables > n * k or variables * k > _ROWS)
        if algorithm == "interior point" or (algorithm is None and large):
            yield from self._by_reports(clock)
            if algorithm is not None or variables > _VERTICES:
                return
        try:
            yield from self._by_orbits(orbits, clock)
        except InfeasibleError as error:
            words = f"a channel that says nothing is private, and HiGHS finds none ({error.reason})"
            raise SolverError(words, solver="highs", status="defect") from None

    def _by_orbits(self, orbits: Symmetry, clock: Clock) -> Iterator[Law | Bound]:
        declared, notes = self.declared, tuple[str, ...]()
        if self.spanner is None:
            program = Program(declared, clock, symmetry=orbits)
        else:
            distances = self.space.distances
            edges = greedy_spanner(distances, self.spanner, orbits.pairs, deadline=clock)
            stretch = graph_stretch(distances, edges)
            notes = (
                f"spanner: {len(edges)} edges, actual stretch {stretch:.6g}; the lower bound is of all α-private channels",
            )
            options: dict[str, Any] = {"edges": edges, "grow": False}
            program = Program(declared, clock, symmetry=orbits, margin=1 - 1 / stretch, **options)
            program.solve()
            yield self._law(program, notes)
            program.state(0.0)
        program.solve()
        if clock.certify:
            yield from proved_bounds(declared, *program.multipliers())
        yield self._law(program, notes)

    def _by_reports(self, clock: Clock) -> Iterator[Law | Bound]:
        """Solve with a tenth of the reports, then with all. Where n²k exceeds `_ENTRIES`, bound on the likeliest items only, then solve with as many reports as fit."""
        n, k = self.cost.shape
        everyone, everything = np.arange(n), np.arange(k)
        yield from self._rounds(everyone, covering(self.cost, k // 10 + 1), _FIRST, clock)
        if n * n * k <= _ENTRIES:
            yield from self._rounds(everyone, everything, clock.gap / 4, clock)
            return
        order = np.argsort(-np.abs(self.cost).sum(axis=1), kind="stable")
        likeliest = np.sort(order[: math.isqrt(_ENTRIES // k)])
        yield from self._rounds(likeliest, everything, _FIRST, clock)
        yield from self._rounds(everyone, covering(self.cost, _ENTRIES // n**2), _FIRST, clock)

    def _rounds(
        self, items: Indices, reports: Indices, tolerance: float, clock: Clock
    ) -> Iterator[Law | Bound]:
        """Solve for some items and reports with a growing set of constraints; yield laws if all items are included, and bounds if all reports are."""
        n, k = self.cost.shape
        distances = self.space.distances[np.ix_(items, items)]
        edges = greedy_spanner(distances, self.spanner or _SEED, deadline=clock)
        program = ReportProgram(self.cost[np.ix_(items, reports)].T, distances, self.alpha)
        rows, asked, spanned = program.along(edges), _FIRST, self.spanner is not None
        budgets = [self.alpha / graph_stretch(distances, edges)] * spanned
        while True:
            alpha = budgets.pop() if budgets else self.alpha
            found = replace(program, alpha=alpha).solve(rows, asked, clock)
            if len(items) == n:
                matrix = np.zeros((n, k))
                matrix[:, reports] = np.maximum(found.columns, 0.0).T
                report = SolveReport(
                    "interior point",
                    variables=found.columns.size,
                    constraints=len(rows),
                    iterations=found.steps,
                )
                yield self.repaired(matrix / matrix.sum(axis=1, keepdims=True), report=report)
            if len(reports) == k and alpha == self.alpha:
                triples, multipliers = program.proving(rows, found.multipliers)
                (x, other), y = items[triples[:, :2].T], triples[:, 2]
                (part,) = self.declared.parts
                numbers = part.first + part.places[x, other] * k + y
                order = np.argsort(numbers)
                yield from proved_bounds(self.declared, numbers[order], multipliers[order])
            more = rows[:0] if spanned else np.setdiff1d(program.broken(found.columns, asked / 10), rows)
            done = not (len(more) or budgets) and (asked <= tolerance or spanned)
            if found.ended or clock.passed or (done and alpha == self.alpha):
                return
            rows, asked = np.union1d(rows, more), max(tolerance, asked / 10)

    def _law(self, program: Program, notes: tuple[str, ...]) -> Law:
        table, report = program.columns().reshape(self.cost.shape), SolveReport.of(program.solution)
        matrix = np.maximum(table, 0.0)
        return self.repaired(matrix / matrix.sum(axis=1, keepdims=True), report=report, notes=notes)

    def repaired(
        self,
        matrix: Array,
        *,
        report: SolveReport | None = None,
        notes: tuple[str, ...] = (),
        deadline: Deadline | None = None,
    ) -> Law:
        """Make a nearly private table exactly private, and compute its value; raise SolverError after the deadline."""
        matrix = array("matrix", matrix, ndim=2)
        wanted = f"must be of shape {self.losses.shape}: a row an item, a column a report"
        refuse(matrix.shape != self.losses.shape, "matrix", matrix.shape, wanted)
        weights = private_weights(matrix, self.space.distances, self.alpha, self.cost, deadline)
        return self.law(weights, report or SolveReport("closed form"), notes)

    # -- what a result says ----------------------------------------------------------------------------------------

    def frame(self, result: Result) -> pd.DataFrame:
        """Tabulate for each item prior, probability of an unchanged report (square channels) and expected loss."""
        matrix = result.mechanism.matrix
        items = list(self.space.names) or np.arange(len(matrix))
        frame = pd.DataFrame({"item": items, "prior": self.weights})
        if matrix.shape[0] == matrix.shape[1]:
            frame["unchanged"] = np.diag(matrix)
        frame["expected_loss"] = (matrix * self.losses).sum(axis=1)
        if max(matrix.shape) <= 9:
            names = result.mechanism.places or [*map(str, range(matrix.shape[1]))]
            frame = frame.join(pd.DataFrame(matrix, columns=[f"P[{name}]" for name in names]))
        return frame

    def granted(self, value: float) -> str:
        return f"α = {shown(self.alpha)} per {self.space.unit or 'unit of distance'}"

    def lines(self, result: Result) -> list[str]:
        """Return the exact loss, and the names of the likeliest items."""
        most, names = self._likeliest(5), self.space.names
        more = f" and {len(names) - len(most)} more" if len(names) > len(most) else ""
        loss = f"exact loss: at most {at_most(result.mechanism.alpha)} per {self.space.unit or 'unit of distance'}"
        return [loss, *([f"places: {', '.join(names[x] for x in most)}{more}"] if names else [])]

    def remarks(self, result: Result) -> list[str]:
        most = result.mechanism.matrix.max(axis=0)
        return never_sent(result.mechanism.places or list(map(str, range(len(most)))), most, "reports")

    def _likeliest(self, count: int) -> list[int]:
        """Return at most `count` items of largest prior probability, likeliest first."""
        return [int(x) for x in np.argsort(-self.weights, kind="stable")[:count]]

    def errors(self, result: Result, question: object = None) -> Accuracy:
        """Return the distances between item and report as errors, averaged over the prior."""
        distances, matrix = self.space.distances, result.mechanism.matrix
        if matrix.shape != distances.shape:
            raise DesignError.of("mechanism", "reports that are no items", "have no distance to the truth")
        return accuracy_of(distances, self.weights[:, None] * matrix)

    def asked_by(self, question: Any) -> bool:
        return getattr(question, "asks", "") == self.asks and same(question.loss, self.loss)

    def describe(self, result: Result) -> Description:
        space, unit, channel = self.space, self.space.unit, result.mechanism
        prior = (
            "all items are equally likely"
            if self.prior is None
            else f"items follow {weights_words(self.weights)}"
        )
        picture = "The probability of every report (across) for every item (down)."
        if self._mapped:
            picture = "A map: places as dots by their probability, reports as rings by how often they are sent, and lines from the likeliest place to its reports."
        return Description(
            title=f"Private channel for {space.size} items",
            what=f"One of {space.size} items is reported as one of {channel.outputs}. Distances between the items say how alike they are"
            f"{f' (in {unit})' if unit else ''}; the largest is {shown(space.diameter)}. Metric privacy at {self.granted(result.value)}: no report "
            "is more than e^(α d) times likelier for one item than for another at distance d. Privacy holds whatever the prior; for the "
            f"loss, {prior}.",
            loss=f"expected {self._loss_words}",
            picture=picture,
            attacked=FARTHEST,
        )

    @property
    def _loss_words(self) -> str:
        """Return the loss with its unit."""
        if not isinstance(self.loss, str):
            return "loss"
        unit = self.space.unit
        power = {"metric": f" ({unit})", "squared": f" ({unit}²)"}.get(self.loss, "") if unit else ""
        return f"{_LOSSES[self.loss]}{power}"

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Yield the exponential mechanism at the same α, alone and remapped."""
        square = self.losses.shape == (self.space.size, self.space.size)
        if square and self.space.size <= _CALIBRATED:
            channel = Channel.exponential(self.space, self.alpha)
            for name in ("exponential mechanism", "the same, remapped"):
                yield name, channel.expected_loss(self.losses, self.weights)
                channel = channel.remapped(self.losses, self.weights)

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw a map of places and reports, or the matrix as shades if there is no map."""
        if self._mapped:
            named = self._likeliest(NAMED) if self.space.names else []
            return draw_map(self.space, self.weights, result.mechanism.matrix, named, **options)
        return draw_matrix(result.mechanism.matrix, "report", "item", result.mechanism.places, **options)

    @property
    def _mapped(self) -> bool:
        """Whether places have two coordinates, and reports are places."""
        return self.space.mapped and isinstance(self.loss, str)


# -- interior-point method ---------------------------------------------------------------------------------


_STEEPEST = (
    50.0  # αd above which e^{αd} is lowered to e^50 in the model: it binds probabilities of 10⁻²² only
)
_STEPS = 150  # most Newton steps; 20 to 60 are usual
_LEAST = 1e-13  # least complementarity, in units of the costs, that doubles distinguish from 0
_RIDGE = 1e-11  # ridge relative to the blocks' diagonals; with 1e-13 the Cholesky factor fails at gaps of 1e-5 if a report is nearly unused

_VERTEX = {"primal_feasibility_tolerance": 1e-10}


@dataclass(frozen=True, eq=False)
class Iterate:
    """A channel that is feasible for the program's constraints, and multipliers.

    Attributes
    ----------
    columns : array, shape (k, n)
        A row for each report.
    multipliers : array, shape (constraints,)
        λ > 0 of ``v[x] <= e^{αd} v[x']``.
    steps : int
    ended : bool
        Whether it stopped before reaching the tolerance.
    """

    columns: Array
    multipliers: Array
    steps: int
    ended: bool


@dataclass(frozen=True, eq=False)
class ReportProgram:
    """The program of the optimal channel; constraint (x, x', y) has the index (y n + x) n + x'.

    Parameters
    ----------
    cost : array, shape (k, n)
        Prior times loss, a row for each report.
    distances : array, shape (n, n)
    alpha : float
    """

    cost: Array
    distances: Array
    alpha: float

    @cached_property
    def _half(self) -> Array:
        return np.exp(np.minimum(self.alpha * self.distances, _STEEPEST) / 2)

    @cached_property
    def unit(self) -> float:
        """Scale of the costs."""
        return float(np.abs(self.cost).sum() / len(self.cost)) or 1.0

    def along(self, edges: Indices) -> Indices:
        """Return the constraints of pairs of items, shape (m, 2), in either direction and for every report."""
        k, n = self.cost.shape
        both = np.concatenate([edges[:, 0] * n + edges[:, 1], edges[:, 1] * n + edges[:, 0]])
        return np.asarray(np.add.outer(np.arange(k) * n * n, np.sort(both)).ravel())

    def broken(self, columns: Array, tolerance: float) -> Indices:
        """Return the constraints, scaled to ``e^{-αd} v[x] <= v[x']``, that are violated by more than tolerance/k."""
        k, n = self.cost.shape
        decay, found = 1 / self._half**2, []
        for y, column in enumerate(columns):
            over = decay * column[:, None] - column > tolerance / k
            over.flat[:: n + 1] = False
            found.append(y * n * n + np.flatnonzero(over))
        return np.concatenate(found)

    def reduced(self, rows: Indices, multipliers: Array) -> Array:
        """Return the reduced costs, shape (k, n): their minima over the reports sum to a lower bound."""
        (k, n), half = self.cost.shape, self._half.ravel()[rows % self.distances.size]
        high, low = rows // n, rows // (n * n) * n + rows % n
        terms = np.bincount(low, multipliers * half, k * n) - np.bincount(high, multipliers / half, k * n)
        return np.asarray(self.cost - terms.reshape(k, n))

    def proving(self, rows: Indices, multipliers: Array) -> tuple[Indices, Array]:
        """Return sparse (x, x', y) and λ of ``v[x] - e^{αd} v[x'] <= 0`` that prove the bound, without constraints whose rate was lowered.

        A report may have any multipliers that leave its reduced costs above the prices: a vertex of these has at most as many positive ones as there are items.
        """
        (k, n), half = self.cost.shape, self._half.ravel()[rows % self.distances.size]
        x, other = rows // n % n, rows % n
        held = np.where(self.alpha * self.distances[x, other] > _STEEPEST, 0.0, multipliers)
        free = (self.cost - self.reduced(rows, held).min(axis=0)) / self.unit
        edges = np.searchsorted(rows, np.arange(k + 1) * n * n)
        for y in range(k):
            mine = slice(edges[y], edges[y + 1])
            size, column = held[mine] / self.unit, np.arange(edges[y + 1] - edges[y])
            entries = np.concatenate([size * half[mine], -size / half[mine]])
            places = np.concatenate([other[mine], x[mine]]), np.tile(column, 2)
            charges = sparse.csr_array((entries, places), shape=(n, len(column)))
            found = optimize.linprog(0.0 * size, charges, free[y], method="highs-ds", options=_VERTEX)
            held[mine] *= 1.0 if found.x is None else found.x
        kept = held > 0
        return np.column_stack([x, other, rows // (n * n)])[kept], (held / half)[kept]

    def solve(self, rows: Indices, tolerance: float, deadline: Deadline) -> Iterate:
        """Solve with these constraints to a relative tolerance, or until the deadline."""
        (k, n), half = self.cost.shape, self._half.ravel()[rows % self.distances.size]
        high, low = rows // n, rows // (n * n) * n + rows % n
        cost, blocks = self.cost / self.unit, np.empty((k, n, n))

        def slack(v: Array) -> Array:
            return np.asarray(v.ravel()[low] * half - v.ravel()[high] / half)

        def gathered(held: Array) -> Array:
            sums = np.bincount(low, held * half, k * n) - np.bincount(high, held / half, k * n)
            return np.asarray(sums.reshape(k, n))

        def direction(
            wanted: Array, state: tuple[Array, ...], residual: Array, missing: Array, whole: Array
        ) -> tuple[Array, ...]:
            own = _times(blocks, gathered(wanted / state[0]) - residual)
            priced = lapack.dpotrs(whole, missing - own.sum(axis=0), lower=1)[0]
            moved = own + _times(blocks, np.broadcast_to(priced, (k, n)))
            wider = slack(moved)
            return moved, priced, wider, (wanted - state[1] * wider) / state[0]

        def longest(values: Array, change: Array) -> float:
            return 1 / max(1.0, float((-change / values).max()))

        columns, prices = np.full((k, n), 1 / k), np.zeros(n)
        slacks = slack(columns)
        held, steps, ended = 1 / (len(rows) * slacks), 0, True
        while steps < _STEPS:
            residual, missing = cost - prices - gathered(held), 1 - columns.sum(axis=0)
            mean = float((slacks * held).mean())
            off = max(
                mean * len(rows) / max(abs(float((cost * columns).sum())), 1e-300),
                float(np.abs(residual).sum(axis=1).max()),
            )
            if off < tolerance:
                ended = False
                break
            if deadline.passed or mean * len(rows) < _LEAST:
                break
            weights = held / slacks
            blocks[:] = 0.0
            blocks.ravel()[rows] = -weights
            diagonal = np.bincount(low, weights * half**2, k * n) + np.bincount(
                high, weights / half**2, k * n
            )
            with one_thread():
                if not _inverted(blocks, np.asarray(diagonal.reshape(k, n) * (1 + _RIDGE))):
                    break
                whole, failed = lapack.dpotrf(blocks.sum(axis=0).T, lower=1)
                if failed:
                    break

                given = (slacks, held), residual, missing, whole
                _, _, wider, more = direction(-slacks * held, *given)
                ahead = (slacks + longest(slacks, wider) * wider) * (held + longest(held, more) * more)
                centre = mean * (float(ahead.mean()) / mean) ** 3
                moved, priced, wider, more = direction(centre - slacks * held - wider * more, *given)
            primal, dual = (0.995 * longest(*pair) for pair in ((slacks, wider), (held, more)))
            columns, slacks = columns + primal * moved, slacks + primal * wider
            held, prices, steps = held + dual * more, prices + dual * priced, steps + 1
        return Iterate(columns, held * self.unit, steps, ended)


def _inverted(blocks: Array, diagonal: Array) -> bool:
    """Replace each block B by the upper half of the inverse of B + Bᵀ with this diagonal; return whether all are positive definite."""
    for block, values in zip(blocks, diagonal):
        block += block.T
        block.flat[:: len(block) + 1] = values
        factor, failed = lapack.dpotrf(block.T, lower=1, overwrite_a=1)
        if failed:
            return False
        block[:] = lapack.dpotri(factor, lower=1, overwrite_c=1)[0].T
    return True


def _times(blocks: Array, rows: Array) -> Array:
    return np.stack([blas.dsymv(1.0, block.T, row, lower=1) for block, row in zip(blocks, rows)])


def covering(cost: Array, count: int) -> Indices:
    """Return greedy medoids: reports, in order of choice, that lower the sum of the items' least costs most; cost of shape (n, k).

    Examples
    --------
    >>> covering(np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0))), 3).tolist()
    [4, 1, 7]
    """
    chosen = [int(cost.sum(axis=0).argmin())]
    least = cost[:, chosen[0]]
    while len(chosen) < count:
        gains = np.maximum(least[:, None] - cost, 0.0).sum(axis=0)
        gains[chosen] = -1.0
        chosen.append(int(gains.argmax()))
        least = np.minimum(least, cost[:, chosen[-1]])
    return np.array(chosen)

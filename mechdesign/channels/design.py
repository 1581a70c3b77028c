r"""The optimal item mechanism: the α-d-private channel of least expected loss, certified.

.. math::

    \min_C \; \sum_{x,y} π_x\, ℓ(x, y)\, C[x, y] \quad\text{s.t.}\quad
    C[x, y] \le e^{α d(x, x')}\, C[x', y], \quad \sum_y C[x, y] = 1, \quad C \ge 0 .

Written in full the linear program has n²(n − 1) privacy rows. Three observations make it small:

* rows are needed for *essential pairs* only, or for the edges of a spanner (`program`);
* by convexity some optimum is invariant under the symmetries that distances, prior and losses share, so one
  variable per orbit is enough: 1,275 instead of 10,000 on a 10 × 10 grid;
* of very many rows only those that bind are generated (`program`).

The solver's table is replaced by integer weights that are private exactly for all pairs (`exact`); the multipliers prove
the lower bound.

Source: Bordenabe, Chatzikokolakis, Palamidessi, "Optimal geo-indistinguishable mechanisms for location
privacy", CCS 2014.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from flint import arb, ctx, fmpq

from mechdesign.channels.channel import Channel, check_prior, exponential, exponential_rate, loss_matrix
from mechdesign.channels.exact import (
    Growth,
    Weights,
    common_integers,
    first_broken,
    least_slack,
    private_weights,
)
from mechdesign.channels.interior import ReportProgram, covering
from mechdesign.channels.pictures import draw_map
from mechdesign.channels.program import (
    MOST_ROWS,
    SEED,
    Answer,
    ChannelProgram,
    automorphisms,
    graph_stretch,
    greedy_spanner,
    pair_orbits,
    privacy_rows,
    spread_multipliers,
)
from mechdesign.errors import DesignError
from mechdesign.evidence.accuracy import Accuracy, quantile
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.classes import MechanismClass, every
from mechdesign.evidence.digits import at_most, shown
from mechdesign.evidence.exact import round_down, round_up
from mechdesign.evidence.page import Account
from mechdesign.evidence.proofs import PROVED, Certificate, Claim, Proof, same
from mechdesign.evidence.results import AUDIT_COLUMNS, Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.evidence.vipr import LinearBound, rational
from mechdesign.plotting import NAMED, draw_matrix
from mechdesign.problem.checks import DOWN, array, indices, instance, number, one_of, positive, settle
from mechdesign.problem.fields import Checked, field
from mechdesign.problem.privacy import MetricDP, PureDP, points_of
from mechdesign.problem.spine import Bound, Clock, Law, ModelledDesign, relative_table
from mechdesign.problem.words import never_sent
from mechdesign.solvers import Deadline, Model
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Indices, Numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOSSES = {
    "metric": "distance to the truth",
    "squared": "squared distance to the truth",
    "error": "probability of a wrong report",
}
_FIXED = 256  # bits of the fixed point in which the dual bound is accumulated, below 1 or the largest loss
_EQUAL = 1e-6  # largest violation of an equality, relative to the reports' values: what rounding leaves
_MOST_ITEMS = 1000  # up to which a step that is cubic in their number takes a second
_SIMPLEX = (
    1_000  # variables up to which a program without symmetry takes HiGHS's simplex method half a second
)
_VERTICES = 5_000  # variables up to which that ends within half a minute: it closes gaps of 1e-5
_FIRST = 1e-2  # tolerance of the first rounds, and of parts of the program
_ENTRIES = 30_000_000  # of the interior point's blocks: 240 MB, rounds of half a minute
_CALIBRATED = 200  # items up to which a page calibrates the exponential mechanism


def _space(name: str, value: MetricSpace | Numbers) -> MetricSpace:
    return value if isinstance(value, MetricSpace) else MetricSpace.from_matrix(value)


def _stretch(name: str, value: object) -> float:
    found = number(name, value)
    if found < 1:
        raise DesignError.of(name, value, "must be a stretch >= 1 (1.1, say), or None for the optimum")
    return found


@serializable("metric-channel")
@dataclass(frozen=True, eq=False)
class MetricChannel(ModelledDesign):
    r"""The α-d-private channel of least expected loss on a finite metric space.

    Parameters
    ----------
    space : MetricSpace or distance matrix, shape (n, n)
        The items; `solve` takes at most 1,000. Up to about 200 places in the plane the gap closes to 1e-5 in minutes; beyond 310 the bound is
        that of the likeliest items alone.
    alpha : float
        Privacy α > 0 per unit of the space's distance.
    prior : array, shape (n,), optional
        Probabilities of the items; uniform by default.
    loss : {"metric", "squared", "error"} or array, shape (n, k)
        ℓ(x, y) of reporting y for x; a matrix may have any number k of reports.
    spanner : float, optional
        Constrain only a spanner of this stretch κ ≥ 1, with budget α divided by its actual stretch. The
        channel is α-private for all pairs all the same; its loss is at most the optimum at α/κ.
    unbiased : pair of arrays, shapes (n, j) and (k, j), optional
        A query g of the items and the values h that reports stand for: requires
        :math:`\sum_y C[x, y]\, h(y) = g(x)`. The values must reach beyond the query's range.
    decoder : array, shape (k, n), optional
        Requires :math:`C\,Q = I` for this decoder Q, so that the channel is invertible and frequencies
        decoded by Q are unbiased.

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

    space: MetricSpace = field(check=_space)
    alpha: float = field(check=positive, side=DOWN)
    prior: Numbers | None = None
    loss: str | Numbers = "metric"
    spanner: float | None = field(check=_stretch, default=None)
    unbiased: tuple[Numbers, Numbers] | None = None
    decoder: Numbers | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha > 1e300 / max(1.0, self.space.diameter):
            allowed = "times the diameter must be at most 1e300: it is no privacy"
            raise DesignError.of("alpha", self.alpha, allowed)
        if self.prior is not None:
            settle(self, prior=self.weights)
        settle(self, loss=self.loss if isinstance(self.loss, str) else self.losses)
        if self.unbiased is not None and self.decoder is not None:
            raise DesignError.of("decoder", "given", "cannot be combined with unbiased; choose one")
        _ = self.losses, self.equalities

    @property
    def privacy(self) -> MetricDP:
        """The requirement: α times the space's own distance."""
        return MetricDP(self.alpha)

    def tradeoff(self, result: Result, at: Iterable[float] = ()) -> TradeOff:
        """Between any two items, the farthest too."""
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
        return check_prior(self.prior, self.space.size)

    @cached_property
    def cost(self) -> Array:
        """Prior times loss, shape (n, k)."""
        return self.weights[:, None] * self.losses

    @cached_property
    def equalities(self) -> tuple[Array, Array] | None:
        """(g, h) of the required equalities, shapes (n, j) and (k, j); None without any."""
        n, k = self.losses.shape
        if self.decoder is not None:
            decoder = array("decoder", self.decoder, ndim=None)
            if decoder.shape != (k, n):
                raise DesignError.of("decoder", decoder.shape, f"must have shape (reports, items), {(k, n)}")
            return np.eye(n), decoder
        if self.unbiased is None:
            return None
        try:
            parts = [np.atleast_1d(array("unbiased", part, ndim=None)) for part in self.unbiased]
            query, values = (part.reshape(len(part), -1) for part in parts)
        except (TypeError, ValueError):
            raise DesignError.of("unbiased", self.unbiased, "must be (query values, report values)") from None
        if len(query) != n or len(values) != k or query.shape[1] != values.shape[1]:
            shapes = query.shape, values.shape
            raise DesignError.of("unbiased", shapes, f"must have {n} and {k} rows and as many columns")
        return query, values

    def program(self, *, symmetry: bool = True, deadline: Deadline | None = None) -> ChannelProgram:
        """The program that is solved, with the symmetries of space, prior and loss or without.

        Symmetry brings 18 × of time (median; at most 50 ×) in the designs that have one (results/ablations, metric-channel).
        """
        one_of("symmetry", symmetry, (True, False))
        rows = privacy_rows(self.space, *self._orbits(symmetry, deadline), self.spanner, deadline=deadline)
        return ChannelProgram(self.cost, self.equalities, rows, self.alpha / rows.stretch)

    def _orbits(self, symmetry: bool, deadline: Deadline | None) -> tuple[Indices, Indices]:
        """Variable of every (item, report), and orbit of every pair of items."""
        n, k = self.cost.shape
        if n > _MOST_ITEMS:
            raise DesignError.of("space", f"{n} items", f"must be at most {_MOST_ITEMS}; merge points")
        usable = symmetry and n == k and self.equalities is None
        generators = automorphisms(self.space.distances, self.cost, deadline=deadline) if usable else []
        return pair_orbits(n, k, generators), pair_orbits(n, n, generators)

    def model(self, *, symmetry: bool = True) -> Model:
        """The linear program, with one variable per orbit of (item, report)."""
        return self.program(symmetry=symmetry).declared().model()

    def closed_forms(self) -> Iterator[Law]:
        """Yield the best constant report, and the exponential mechanism where the reports are the items."""
        if self.equalities is not None:
            return
        constant = np.zeros_like(self.cost)
        constant[:, self.cost.sum(axis=0).argmin()] = 1.0
        tables = [constant]
        if constant.shape[0] == constant.shape[1]:
            tables.append(exponential(self.space, exponential_rate(self.space.distances, self.alpha)))
        for table in tables:
            channel = Channel(table, self.space)
            value = channel.expected_loss(self.losses, self.weights)
            yield Law(channel, value, report=SolveReport("closed form"))

    def certified(self, law: Law, clock: Clock) -> Law:
        """Make a closed form exactly private; the others are."""
        if law.mechanism.weights is not None:
            return law
        return self.repaired(law.mechanism.matrix, report=law.report)

    def improve(  # type: ignore[override]
        self, clock: Clock, solver: str | None = None, symmetry: bool = True
    ) -> Iterator[Law | Bound]:
        """Solve the program by HiGHS's simplex method, or by another registered LP solver, and repair its answer.

        Large programs with few symmetries, and those of more than five million rows, are solved by the interior-point method of `interior`, whose
        last digits the simplex method finds where it takes no longer than half a minute. Of up to 100 items that takes a third of the time in 1 of
        8 designs, and as long in the others (results/ablations, metric-channel); hundreds it makes possible.
        With a spanner the lower bound is for *all* α-private channels, so that the gap is what the spanner can have cost: the
        spanner's edges with the whole budget are a relaxation, whose repaired channel is private too and, where α is large, the
        cheaper one.
        """
        one_of("symmetry", symmetry, (True, False))
        n, k = self.cost.shape
        if solver is None and self.equalities is None and n > 1:
            variables = int(self._orbits(symmetry, clock)[0].max()) + 1
            if variables > _SIMPLEX and (4 * variables > n * k or variables * k > MOST_ROWS):
                yield from self._by_reports(clock)
                if variables > _VERTICES:
                    return
        program = self.program(symmetry=symmetry, deadline=clock)
        rows, answer = program.rows, program.solve(solver, clock)
        spanned = rows.stretch > 1
        note = f"spanner: {rows.edges} edges, actual stretch {rows.stretch:.6g}; the lower bound is of all α-private channels"
        notes = (note,) if spanned else ()
        if spanned or not clock.certify:
            yield self._law(answer, clock, notes)
        if spanned:
            answer = replace(program, alpha=self.alpha).solve(solver, clock)
        if clock.certify:
            law = self._law(answer, clock, notes)
            if law.proofs:
                dual = ChannelDual(*spread_multipliers(rows, answer.multipliers), answer.free)
                yield Bound(round_down(dual.bound(self)), dual)
            if not spanned or self.equalities is None:  # a large repair costs the equalities
                yield law

    def _by_reports(self, clock: Clock) -> Iterator[Law | Bound]:
        """Laws of few reports, of twice as many up to a quarter, then laws and bounds of all; where those are too many, bounds of the likeliest items and laws of what they are sent."""
        n, k = self.cost.shape
        everyone, everything = np.arange(n), np.arange(k)
        edges = greedy_spanner(self.space, self.spanner or SEED, deadline=clock)
        few = math.isqrt(k - 1) + 1
        count = few
        while count < k and (count == few or 4 * count <= k):
            yield from self._rounds(everyone, covering(self.cost, count), edges, _FIRST, clock)
            count *= 2
        if n * n * k <= _ENTRIES:
            yield from self._rounds(everyone, everything, edges, clock.gap / 4, clock)
            return
        likeliest = np.sort(
            np.argsort(-np.abs(self.cost).sum(axis=1), kind="stable")[: math.isqrt(_ENTRIES // k)]
        )
        near = self.space.distances[np.ix_(likeliest, likeliest)]
        part = MetricSpace(kind="matrix", matrix=near, shape=(len(likeliest),))
        inner = greedy_spanner(part, self.spanner or SEED, deadline=clock)
        sent = yield from self._rounds(likeliest, everything, inner, _FIRST, clock)
        most = np.argsort(-sent, kind="stable")[: _ENTRIES // n**2]
        yield from self._rounds(everyone, np.union1d(most, covering(self.cost, few)), edges, _FIRST, clock)

    def _rounds(
        self, items: Indices, reports: Indices, edges: Indices, tolerance: float, clock: Clock
    ) -> Generator[Law | Bound, None, Array]:
        """Solve for some items and reports, with more and more constraints; a law where the items are all, a bound where the reports are."""
        (n, k), distances = self.cost.shape, self.space.distances[np.ix_(items, items)]
        spanned = self.spanner is not None
        program = ReportProgram(self.cost[np.ix_(items, reports)].T, distances, self.alpha)
        rows, asked = program.along(edges), max(tolerance, _FIRST)
        budgets = [self.alpha / graph_stretch(distances, edges)] * spanned
        while True:
            alpha = budgets.pop() if budgets else self.alpha
            solved = replace(program, alpha=alpha)
            found = solved.solve(rows, asked, clock)
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
                triples, multipliers = program.proving(rows, found.multipliers, asked / 10)
                triples[:, :2], triples[:, 2] = items[triples[:, :2]], reports[triples[:, 2]]
                dual = ChannelDual(triples, multipliers)
                yield Bound(round_down(dual.bound(self)), dual)
            more = rows[:0] if spanned else np.setdiff1d(program.broken(found.columns, asked / 10), rows)
            done = not (len(more) or budgets) and (asked <= tolerance or spanned)
            if found.ended or clock.passed or (done and alpha == self.alpha):
                return np.asarray(
                    np.bincount(reports, (self.weights[items] * found.columns).sum(axis=1), k), dtype=float
                )
            rows, asked = np.union1d(rows, more), max(tolerance, asked / 10)

    def _law(self, answer: Answer, clock: Clock, notes: tuple[str, ...]) -> Law:
        if clock.certify:
            return self.repaired(answer.matrix, report=answer.report, notes=notes)
        channel = Channel(answer.matrix, self.space)
        return Law(channel, channel.expected_loss(self.losses, self.weights), report=answer.report)

    def repaired(
        self,
        matrix: Array,
        *,
        report: SolveReport | None = None,
        notes: tuple[str, ...] = (),
        deadline: Deadline | None = None,
    ) -> Law:
        """Make a nearly private table private exactly, and state its value; SolverError once a deadline has passed."""
        matrix = array("matrix", matrix, ndim=2)
        if matrix.shape != self.losses.shape:
            wanted = f"must be of shape {self.losses.shape}: a row an item, a column a report"
            raise DesignError.of("matrix", matrix.shape, wanted)
        weights = private_weights(matrix, self.space.distances, self.alpha, self.cost, deadline)
        proofs: tuple[ChannelProof, ...] = (ChannelProof(self.space.distances),)
        if (bias := round_up(self._exact_bias(weights))) > self.bias_allowed:
            proofs, notes = (), (*notes, f"not certified: the equalities hold to within {bias:.2g} only")
        value = round_up(self._exact_loss(weights))
        report = report or SolveReport("closed form")
        return Law(Channel.from_weights(weights, self.space), value, proofs, report, notes)

    def _exact_loss(self, weights: Weights) -> Fraction:
        """Expected loss of the channel with these weights, exactly; the prior is taken relative to its exact sum."""
        (counts, _), (losses, scale) = common_integers(self.weights), common_integers(self.losses)
        found = counts @ (losses * np.array(weights, dtype=object)).sum(axis=1)
        return Fraction(found, counts.sum() * scale * sum(weights[0]))

    def _exact_bias(self, weights: Weights) -> Fraction:
        """Largest violation of the equalities, exactly; 0 where there are none."""
        if self.equalities is None:
            return Fraction(0)
        (goals, unit), (values, scale) = map(common_integers, self.equalities)
        total = scale * sum(weights[0])
        off = (np.array(weights, dtype=object) @ values) * unit - goals * total
        return Fraction(abs(off).max(initial=0), total * unit)

    @property
    def bias_allowed(self) -> float:
        """How large a violation of the equalities may be."""
        return 0.0 if self.equalities is None else _EQUAL * float(np.abs(self.equalities[1]).max(initial=0.0))

    # -- what a result says ----------------------------------------------------------------------------------------

    def frame(self, result: Result) -> pd.DataFrame:
        """Per item: prior, probability of an unchanged report (square channels), expected loss."""
        matrix = result.mechanism.matrix
        items = list(self.space.names) or np.arange(len(matrix))
        frame = pd.DataFrame({"item": items, "prior": self.weights})
        if matrix.shape[0] == matrix.shape[1]:
            frame["unchanged"] = np.diag(matrix)
        frame["expected_loss"] = (matrix * self.losses).sum(axis=1)
        return frame

    def audit(self, result: Result) -> pd.DataFrame:
        """Privacy of every ordered pair (largest log-ratio against α·d), row sums, and the equalities.

        A pair's dual is the sum of its multipliers over the reports that are in use.
        """
        matrix = result.mechanism.matrix
        x, other = np.nonzero(~np.eye(len(matrix), dtype=bool))
        with np.errstate(divide="ignore", invalid="ignore"):
            lhs = np.log(np.nan_to_num(matrix[x] / matrix[other], nan=0.0, posinf=np.inf).max(axis=1))
        rhs = self.alpha * self.space.distances[x, other]
        slack = rhs - lhs
        if result.mechanism.weights is not None:
            for n in np.flatnonzero(slack <= 1e-9 * (1 + rhs)).tolist():
                slack[n] = self._exact_slack(result.mechanism, int(x[n]), int(other[n]))
        duals = np.zeros((len(matrix), len(matrix)))
        for proof in result.proofs:
            if isinstance(proof, ChannelDual):
                used = (matrix.max(axis=0) > 0)[proof.triples[:, 2]]
                np.add.at(duals, tuple(proof.triples[used, :2].T), proof.multipliers[used])
        names = self.space.labels
        pairs = [f"{names[a]}, {names[b]}" for a, b in zip(x.tolist(), other.tolist())]
        parts = [_family("privacy", pairs, lhs, rhs, slack, duals[x, other])]
        # integers over their own total sum to 1
        sums = matrix.sum(axis=1) if result.mechanism.weights is None else np.ones(len(matrix))
        equal = {"normalisation": (sums, np.ones(len(matrix)))}
        if self.equalities is not None:
            query, values = self.equalities
            equal["unbiased"] = (matrix @ values).ravel(), query.ravel()
        for family, (got, wanted) in equal.items():
            index = names if len(got) == len(names) else list(map(str, range(len(got))))
            parts.append(_family(family, index, got, wanted, -np.abs(got - wanted), math.nan))
        return pd.concat(parts, ignore_index=True)[AUDIT_COLUMNS]

    def _exact_slack(self, channel: Channel, x: int, other: int) -> float:
        """αd less the largest log-ratio of two rows of integers, in balls and rounded down."""
        weights = channel.weights or ()
        totals = [sum(weights[k]) for k in (x, other)]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.nan_to_num(channel.matrix[x] / channel.matrix[other], nan=0.0, posinf=np.inf)
        largest = np.flatnonzero(ratios >= ratios.max() * (1 - 1e-9)).tolist()
        if not all(weights[other][y] for y in largest):
            return -math.inf
        most = max(Fraction(weights[x][y] * totals[1], weights[other][y] * totals[0]) for y in largest)
        allowed = Fraction(self.alpha) * Fraction(float(self.space.distances[x, other]))
        with ctx.workprec(256):
            left = arb(fmpq(allowed.numerator, allowed.denominator))
            left -= arb(fmpq(most.numerator, most.denominator)).log()
            found = math.nextafter(float(left.lower()), -math.inf)
            return max(found, 0.0) if left.lower() >= 0 else found

    def stated(self, result: Result) -> str:
        return (
            super()
            .stated(result)
            .replace("per unit of distance", f"per {self.space.unit or 'unit of distance'}")
        )

    def lines(self, result: Result) -> list[str]:
        """Names of the likeliest items; the largest bias, where reports are to be unbiased."""
        most, names = self._likeliest(5), self.space.names
        more = f" and {len(names) - len(most)} more" if len(names) > len(most) else ""
        said = [f"places: {', '.join(names[x] for x in most)}{more}"] if names else []
        if self.equalities is None or result.mechanism.weights is None:
            return said
        return [*said, f"largest bias: {round_up(self._exact_bias(result.mechanism.weights)):.2g}"]

    def remarks(self, result: Result) -> list[str]:
        most = result.mechanism.matrix.max(axis=0)
        return never_sent(result.mechanism.places or list(map(str, range(len(most)))), most, "reports")

    def _likeliest(self, count: int) -> list[int]:
        """The items of largest prior probability, at most so many, likeliest first."""
        return [int(x) for x in np.argsort(-self.weights, kind="stable")[:count]]

    def errors(self, result: Result, question: object = None) -> Accuracy:
        """Distances between item and report, over the prior."""
        distances, matrix = self.space.distances, result.mechanism.matrix
        if matrix.shape != distances.shape:
            raise DesignError.of("mechanism", "reports that are no items", "have no distance to the truth")
        weights = self.weights[:, None] * matrix
        squared, absolute = float((weights * distances**2).sum()), float((weights * distances).sum())
        return Accuracy(math.sqrt(squared), absolute, quantile(distances, weights))

    @property
    def among(self) -> MechanismClass:
        """Every channel between the points, unbiased where that is asked for."""
        free = self.unbiased is None and self.decoder is None
        return every("channel between the points" if free else "unbiased channel between the points")

    def asked_by(self, question: Any) -> bool:
        free = self.unbiased is None and self.decoder is None
        return free and getattr(question, "asks", "") == self.asks and same(question.loss, self.loss)

    def account(self, result: Result) -> Account:
        space, unit, channel = self.space, self.space.unit, result.mechanism
        value = f"expected {_LOSSES.get(self.loss, 'loss') if isinstance(self.loss, str) else 'loss'}"
        power = (
            {"metric": unit, "squared": f"{unit}²"}.get(self.loss, "")
            if unit and isinstance(self.loss, str)
            else ""
        )
        each = unit or "unit of distance"
        prior = "all items are equally likely" if self.prior is None else "items follow the given prior"
        question = [
            f"One of {space.size} items is to be reported as one of {channel.outputs}. Distances between the items say how "
            f"alike they are{f' (in {unit})' if unit else ''}; the largest is {shown(space.diameter)}.",
            f"Metric privacy at α = {shown(self.alpha)} per {each}: no report is more than e^(α d) times likelier for "
            "one item than for another at distance d. Near items are hard to distinguish, far ones may be distinguished.",
            "The unit of privacy is one report of one person: each item is randomized by itself before it leaves the device. "
            "Each further report of a person consumes the budget once more.",
            f"The channel has the least {value}, where {prior}. Privacy holds whatever the prior.",
        ]
        return Account(
            f"Private channel for {space.size} items at α = {shown(self.alpha)}{f' per {unit}' if unit else ''}",
            f"Least {value}.",
            "\n\n".join(question),
            f"{value} ({power})" if power else value,
            (f"α = {shown(self.alpha)}", f"exact loss at most {at_most(channel.alpha)} per {each}"),
            "A map: places as dots by their probability, reports as rings by how often they are sent, and lines from the likeliest place to its reports."
            if self._mapped
            else "The probability of every report (across) for every item (down).",
            "The exponential mechanism at its largest parameter that is α-private, and the same with each report replaced by "
            "the best guess after it.",
        )

    def alternatives(self, result: Result) -> pd.DataFrame:
        """What the exponential mechanism costs at the same α, alone and remapped."""
        rows = [("this channel", result.value)]
        square = self.losses.shape == (self.space.size, self.space.size)
        if square and self.space.size <= _CALIBRATED and self.equalities is None:
            channel = Channel.exponential(self.space, self.alpha)
            for name in ("exponential mechanism", "the same, remapped"):
                rows.append((name, channel.expected_loss(self.losses, self.weights)))
                channel = channel.remapped(self.losses, self.weights)
        if result.lower_bound is not None:
            rows.append((f"lower bound of {result.among}", result.lower_bound))
        return relative_table(rows if len(rows) > 1 else [])

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw a map of places and reports, or the matrix as shades where there is none."""
        if self._mapped:
            named = self._likeliest(NAMED) if self.space.names else []
            return draw_map(self.space, self.weights, result.mechanism.matrix, named, **options)
        return draw_matrix(result.mechanism.matrix, "report", "item", result.mechanism.places, **options)

    @property
    def _mapped(self) -> bool:
        """Whether places have two coordinates, and reports are places."""
        points = self.space.points
        return points is not None and points.shape[1:] == (2,) and isinstance(self.loss, str)


def _family(
    family: str, index: list[str], lhs: Array, rhs: Array, slack: Array, dual: Array | float
) -> pd.DataFrame:
    columns = {"index": index, "lhs": lhs, "rhs": rhs, "slack": slack, "dual": dual}
    return pd.DataFrame({**columns, "family": family, "active": slack <= 1e-9})


@serializable("channel-proof")
@dataclass(frozen=True, eq=False)
class ChannelProof(Checked, Proof):
    r"""A channel of integer weights is α-d-private if all rows have one total and, for all x ≠ x' and y,
    :math:`w[x][y] \le ρ(x,x')\, w[x'][y]` with a rational :math:`ρ \le e^{αd(x,x')}`. Its expected loss, and the largest
    violation of the equalities, are fractions.

    Parameters
    ----------
    distances : array, shape (n, n)
        Those of the space, to their last digit: a verifier computes them from coordinates up to rounding only.
    """

    distances: Array = field(check=array, ndim=2)

    speaks_of = ("privacy", "bias", "value")

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design, weights = _fitting(stated)
        if not np.array_equal(self.distances, design.space.distances):
            raise DesignError("distances: are not those of the design's space")
        found = first_broken(weights, self.distances, design.alpha)
        named = "" if found is None else "; broken for items {}, {} at report {}".format(*found)
        slack = least_slack(weights, self.distances, design.alpha)
        slack = slack if found else max(slack, 0.0)  # doubles err where a constraint is tight
        yield Claim(f"α-d-privacy of all pairs at α = {design.alpha!r}{named}", PROVED, slack, found is None)
        value = design._exact_loss(weights)
        margin = float(Fraction(stated.value) - value)
        stays = stated.value == round_up(value)
        yield Claim(f"expected loss at most {stated.value!r}", PROVED, margin, stays)
        if design.equalities is not None:
            bias = design._exact_bias(weights)
            room = design.bias_allowed - float(bias)
            yield Claim(f"equalities within {round_up(bias)!r}", PROVED, room, room >= 0)


@serializable("channel-dual")
@dataclass(frozen=True, eq=False)
class ChannelDual(Checked, Proof):
    r"""For multipliers :math:`λ \ge 0` of the privacy constraints, any private channel C has

    .. math:: \sum_{x,y} π_x ℓ(x,y) C[x,y] \ge \sum_x \min_y ( π_x ℓ(x,y)
       + \sum_{x'} λ_{x,x',y} - \sum_{x'} e^{αd(x,x')} λ_{x',x,y} ),

    because the terms added to the left are not positive and rows of C are averages. Equalities
    :math:`\sum_y C[x,y] h_j(y) = g_j(x)` add terms with multipliers of either sign.

    Parameters
    ----------
    triples : array of int, shape (t, 3)
        (x, x', y) of the privacy constraints with a multiplier.
    multipliers : array, shape (t,)
        λ.
    free : array, shape (n, j), optional
        Multipliers of the equalities.
    """

    triples: Indices
    multipliers: Array = field(check=array, empty=True)
    free: Array | None = field(check=array, ndim=2, default=None)

    speaks_of = ("lower bound",)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = np.asarray(self.triples)
        largest = int(given.max()) + 1 if given.size and given.dtype.kind in "iuf" else 1
        triples = indices("triples", given, largest) if given.size else np.zeros((0, 3), dtype=np.int64)
        if triples.shape != (shape := (len(self.multipliers), 3)):
            raise DesignError.of("triples", triples.shape, f"must have shape {shape}")
        settle(self, triples=triples)

    def bound(self, design: MetricChannel) -> Fraction:
        """The lower bound that the multipliers prove, or DesignError where they are not admissible or of another design."""
        (n, k), distances, free = design.losses.shape, design.space.distances.tolist(), self.free
        if (self.multipliers < 0).any() or (self.triples >= (n, n, k)).any():
            raise DesignError("multipliers: must be non-negative, of pairs of items and of reports")
        if (free is None) != (design.equalities is None):
            raise DesignError("free: must be the multipliers of the design's equalities")
        (counts, _), (losses, scale) = common_integers(design.weights), common_integers(design.losses)
        unit = 1 << (_FIXED + max(0, -math.frexp(float(np.abs(design.losses).max()))[1]))
        reduced = counts[:, None] * losses * unit // (counts.sum() * scale)
        rates = Growth(design.alpha)
        for (x, other, y), multiplier in zip(self.triples.tolist(), self.multipliers.tolist()):
            numerator, denominator = multiplier.as_integer_ratio()
            held = (numerator * unit) // denominator  # the multiplier that is used; any will do
            reduced[x, y] += held
            reduced[other, y] -= -((-rates.upper(distances[x][other]) * held) >> rates.shift)
        offset = 0
        if free is not None and design.equalities is not None:
            if free.shape != (shape := design.equalities[0].shape):
                raise DesignError.of("free", free.shape, f"must have shape {shape}")
            (nus, own), (goals, there), (values, here) = map(common_integers, (free, *design.equalities))
            offset = (nus * goals).sum() * unit // (own * there)
            reduced += -(nus @ values.T) * unit // (own * here)
        return Fraction(offset + reduced.min(axis=1).sum(), unit)

    def linear_bound(self, stated: Certificate) -> LinearBound:
        design, _ = _fitting(stated)
        n, k = design.losses.shape
        program, rates = (
            LinearBound(
                _LEMMA, n * (k + 1) + len(self.triples) + (0 if self.free is None else self.free.size)
            ),
            Growth(design.alpha),
        )
        prior, losses, apart = (
            design.weights.tolist(),
            design.losses.tolist(),
            design.space.distances.tolist(),
        )
        total = sum(map(rational, prior))
        entry = [
            [
                program.variable(f"C_{x}_{y}", rational(prior[x]) * rational(losses[x][y]) / total)
                for y in range(k)
            ]
            for x in range(n)
        ]
        for (x, other, y), multiplier in zip(self.triples.tolist(), self.multipliers.tolist()):
            ratio = fmpq(rates.upper(apart[x][other]), 1 << rates.shift)
            program.row(
                "privacy", [(entry[x][y], 1), (entry[other][y], -ratio)], "L", 0, -rational(multiplier)
            )
        if self.free is not None and design.equalities is not None:
            goals, values = (part.tolist() for part in design.equalities)
            for x, j in np.ndindex(self.free.shape):
                terms = [(entry[x][y], rational(values[y][j])) for y in range(k)]
                program.row("equality", terms, "E", goals[x][j], float(self.free[x, j]))
        for row in entry:
            program.sums_to(1, row)
        return program

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design, _ = _fitting(stated)
        if stated.lower_bound is None:
            return
        margin = self.bound(design) - Fraction(stated.lower_bound)
        claim = f"no {design.among.noun} costs less than {stated.lower_bound!r}"
        yield Claim(claim, PROVED, float(margin), margin >= 0)


_LEMMA = (
    "C_x_y is the probability that a channel reports y for item x. Variables are not negative, rows sum to 1, and the objective is the "
    "expected loss under the prior. A channel that is private at alpha times the distance d(x, x') satisfies C_x_y <= "
    "e^(alpha d(x, x')) C_x'_y, hence the rows 'privacy', where a rational number above the exponential stands for it; 'equality' "
    "rows are those that the design asks for. So every channel that the design allows is a point of this program at its own loss, and "
    "no such channel has a smaller expected loss than the bound derived below."
)


def _fitting(stated: Certificate) -> tuple[MetricChannel, Weights]:
    """The question and the weights of the law, which are of its size and on its space."""
    design, law = instance("question", stated.question, MetricChannel), instance("law", stated.law, Channel)
    if law.weights is None or law.space is None or law.matrix.shape != design.losses.shape:
        raise DesignError("law: must be a channel of integer weights on the design's items and reports")
    if not same(law.space, design.space):
        raise DesignError("law: is a channel on another space than the design's")
    return design, law.weights

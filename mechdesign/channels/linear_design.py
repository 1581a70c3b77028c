r"""The best local report for linear questions on the counts of categories: over all tables, with all decoders.

A person in one of k categories sends one report; the answers are estimates of W·counts. For the mean over the categories (`LocalWorkload`)

.. math:: \min_{d \ge 0}\ \operatorname{tr}\bigl(W M(d)^{-1} W^\top\bigr), \quad M(d) = \sum_u d_u u u^\top, \quad \sum_u d_u u = 1,

over the rays :math:`u \in \{1, e^\varepsilon\}^k` scaled to mean 1: every private table is a sum of these, and splitting a report costs nothing.
A program over some of the rays, solved by Newton's method (`best_weights`), prices the others; its multipliers prove the bound
(`mechdesign.channels.linear_proofs`).

The mean variance :math:`f(d) = \operatorname{tr}(G M^{-1})`, with G the Gram matrix of W minus the means of its rows, is that of an A-optimal design of experiments. In the worst
case M has the weights :math:`d_y / \pi \cdot u_y`, and :math:`f - \sum_x \pi_x G_{xx}` is maximised over priors π, in which it is concave.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import pandas as pd
from scipy import linalg
from scipy.special import expit

from mechdesign.channels.linear_proofs import (
    LISTED,
    ReportBound,
    centred,
    cost_above,
    exact_gram,
    fitting,
    histogram_bound,
    law_claims,
    mean_square,
    rays,
    relaxation,
)
from mechdesign.channels.linear_report import (
    LinearReport,
    SubsetReport,
    centred_diagonal,
    histogram,
    margins,
)
from mechdesign.channels.responses import TOP, level
from mechdesign.checks import field, integer, one_of, refuse
from mechdesign.errors import DesignError
from mechdesign.evidence.digits import shown
from mechdesign.evidence.exact import exp_lower, round_down, round_up
from mechdesign.evidence.proofs import Certificate, Claim, ClosedBound, LawProof, every
from mechdesign.evidence.results import Accuracy, Result, SolveReport, audit_row
from mechdesign.evidence.serialize import serializable
from mechdesign.plotting import draw_matrix
from mechdesign.problem.privacy import Description, PureDP
from mechdesign.problem.spine import Bound, Clock, Design, Law
from mechdesign.problem.workload import Workload, workload_of
from mechdesign.solvers.deadline import one_thread
from mechdesign.solvers.registry import solve
from mechdesign.typing import Array, Figure, Status, Weights

PUBLISHED = (
    "Hadamard response",
    "subset selection",
    "k-ary response",
    "symmetric unary encoding",
    "optimised unary encoding",
)
_MOST = 64
"""Most categories: the relaxation for 64 takes a minute."""
_BITS = 80  # bits of the weights of a law
_JOIN = 60  # most rays that join in a round
_ROUNDS = 200  # most rounds
_STALLED = 12  # rounds without a better law or bound after which the search ends
_STARTS = 20  # local searches for rays per category
_LITTLE = 1e-8


@serializable("local-workload", eq=False)
class LocalWorkload(Design):
    r"""The best ε-locally private report of one category, for linear questions on everybody's counts.

    Parameters
    ----------
    workload : Workload or array_like, shape (m, k)
        W: ``Workload.identity(k)`` for histograms, of any number of categories; ``prefix_sums``, ``ranges``, ``marginals``, ``kron``, or
        a matrix, of 64 categories at most.
    privacy : PureDP
    data : {"average", "worst"}
        Objective: the variance of one report summed over the answers, averaged over the categories, or for the worst of
        them (up to 16 categories). The value of the average is :math:`\operatorname{tr}(W M^{-1} W^\top)`, which exceeds every mechanism's variance by
        the constant :math:`\lVert W\rVert^2 / k`; that of the worst case is the variance.
    outputs : int, optional
        Most different reports, at least k: 2^b of them take b bits. The lower bound is for any number.

    Raises
    ------
    DesignError
        A row of zeros, a workload of the total alone; when solved, too many categories.

    Notes
    -----
    McKenna, Maity, Mazumdar and Miklau (2020), *A workload-adaptive mechanism for linear queries under local differential privacy*, search the
    same tables by gradient descent, without a bound. The program, its optimum and the bound are [new]. For histograms subset selection is
    optimal, a `SubsetReport`, by a theorem (`histogram_bound`). For other questions on up to 16 categories all
    :math:`2^k` rays are priced and the gap closes (of the worst case up to ε = 6), unless two categories count alike in every answer: join
    these. Beyond, the bound is that of a relaxation: ask for a `gap` of .01.

    Examples
    --------
    >>> import mechdesign as md
    >>> result = md.LocalWorkload(md.Workload.prefix_sums(4), md.PureDP(1.0)).solve()
    >>> round(result.value, 6), round(result.mechanism.variance, 6), result.gap < 1e-6, result.certificate.verify()
    (8.493008, 5.993008, True, True)
    >>> reports = result.mechanism.release([0, 3, 3, 1] * 100)
    >>> result.mechanism.decode(reports).answers.shape
    (4,)
    """

    default_gap = 1e-6
    asks = "categories"

    workload: Workload = field(check=workload_of)
    privacy: PureDP = field(PureDP)
    data: str = field(check=one_of, allowed=("average", "worst"), default="average")
    outputs: int | None = field(check=integer, least=lambda self: self.workload.size, default=None)
    mechanism_class = every("unbiased local report")

    def _post_check(self) -> None:
        size = self.workload.size
        refuse(size < 2, "workload", f"{size} categories", "must be of 2 at least")
        listed = [part.matrix for block in self.workload.blocks for part in block if part.kind == "matrix"]
        allowed = "has a row of zeros: leave out what is 0 whatever the counts"
        refuse(not all(m.any(axis=1).all() for m in listed), "workload", str(self.workload), allowed)
        entries, trace = centred_diagonal(*margins(self.workload))
        allowed = "asks for the number of people alone, which is known: ask what differs by category"
        refuse(not trace, "workload", str(self.workload), allowed)
        largest = math.sqrt(max(entries))
        if not 1e-6 <= largest <= 1e6:
            remedy = "must be between 1e-6 and 1e6: choose another unit for the answers"
            raise DesignError.of("workload", f"{largest:.3g} for one person's largest effect", remedy)

    @property
    def worst(self) -> bool:
        """Whether the objective is the variance of the worst category."""
        return self.data == "worst"

    @cached_property
    def gram(self) -> Array:
        """G, the Gram matrix of W(I − 11ᵀ/k), in doubles."""
        return np.asarray(centred(exact_gram(self.workload)).astype(float))

    @cached_property
    def constant(self) -> float:
        """Difference of the value and the variance."""
        return 0.0 if self.worst else float(mean_square(self.workload))

    def relaxation(self) -> cp.Problem:
        """Return the semidefinite program over moments of rays, whose value bounds the average from below for any number of categories."""
        return relaxation(self.gram, math.exp(self.privacy.epsilon))[0]

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        """Yield laws on some of the rays, to which those of the highest price are added, and the bound from the prices."""
        size, most = self.workload.size, LISTED if self.worst else _MOST
        if alike := self.outputs is None and histogram(self.workload):
            yield Bound(round_down(histogram_bound(self)), ClosedBound())
        elif size > most:
            remedy = (
                f'must be 2 to {most} where data="{self.data}", unless all counts are asked for (Workload.identity) with any number of reports: join '
                "categories, ask for the parts of a product one by one, or take the best published report of md.compare(md.CategoryReport(workload), privacy)"
            )
            raise DesignError.of("workload", f"{size} categories", remedy)
        else:
            self._check_searched("a search; the published reports of md.compare have no such limits")
        if alike or (
            self.outputs is None and size > LISTED
        ):  # with all rays listed the search itself finds the optimum
            laws = map(self.published, PUBLISHED[1:2] if alike else PUBLISHED[:2])
            costed = [(round_up(cost_above(self, law)), law) for law in laws]
            for value, law in sorted(costed, key=lambda pair: pair[0]):
                yield Law(law, value, (LawProof(),), SolveReport("closed form"))
        if not alike:
            with one_thread():
                yield from self._listed(clock) if size <= LISTED else self._climbed(clock)

    def _check_searched(self, what: str) -> None:
        """Refuse ε at which doubles do not resolve the moments of a table."""
        if not 1e-3 <= self.privacy.epsilon <= 20:
            raise DesignError.of("epsilon", self.privacy.epsilon, f"must be between 0.001 and 20 for {what}")

    def _rays(self, sets: Array) -> Array:
        points = 1 + math.expm1(self.privacy.epsilon) * sets
        return np.asarray(points / points.mean(axis=1, keepdims=True))

    def _first(self) -> tuple[Array, Array, Array]:
        """Return the rays that favour one category each, their weights, and the uniform prior."""
        size = self.workload.size
        return np.eye(size), np.full(size, 1 / size), np.full(size, 1 / size)

    def _joined(self, sets: Array, point: Point, new: Array, least: float = 1e-7) -> tuple[Array, Array]:
        """Return the rays of positive weight and the new ones, each with a starting weight."""
        kept = point.weights > least * point.weights.max()
        known = {row.tobytes() for row in sets[kept]}
        new = new[[row.tobytes() not in known for row in new]]
        light = np.full(len(new), 1e-3 / max(len(new), 1))
        return np.concatenate([sets[kept], new]), np.concatenate([point.weights[kept], light])

    def _listed(self, clock: Clock) -> Iterator[Law | Bound]:
        """Yield laws and bounds with all rays priced."""
        everything = rays(self.workload.size)
        sets, start, prior = self._first()
        best, cost, stalled = -math.inf, math.inf, 0
        proof: ReportBound | None = None
        for rounds in range(_ROUNDS + 1):
            point = best_weights(self.gram, self._rays(sets), start, prior, worst=self.worst)
            prior = point.prior
            bounds = [self._of_rays(*each) for each in (point.last if stalled else point.last[-1:])]
            over = bounds[-1][1]
            bound, _, priced = max(bounds, key=lambda found: found[0])
            stalled = 0 if bound > best + 1e-9 * abs(best) or point.cost < cost * (1 - 1e-9) else stalled + 1
            best, proof = max((best, proof), (bound, priced), key=lambda found: found[0])
            cost = min(cost, point.cost)
            value = self._value(point)
            new = np.flatnonzero(over > 1e-10 * point.prices.sum())
            closed = value - (best + self._value_constant) <= 0.9 * clock.gap * value
            ended = closed or not new.size or stalled == _STALLED or rounds == _ROUNDS
            if proof is not None and (ended or clock.passed):
                yield Bound(round_down(proof.bound(self)), proof)
            yield self._law(sets, point, rounds)
            if ended:
                return
            joining = everything[new[np.argsort(-over[new])[:_JOIN]]]
            # several rays may help together even if none does alone: when stalled, keep all
            sets, start = self._joined(sets, point, joining, 0.0 if stalled else 1e-7)

    def _of_rays(self, prices: Array, prior: Array, inverse: Array) -> tuple[float, Array, ReportBound]:
        """Return the bound of an iterate, the excess of every ray over the prices, and the proof."""
        priced, over = ReportBound.of_rays(self, inverse, prices, prior)
        least = float((self.gram * inverse.T).sum()) ** 2 / priced.prices.sum() - float(
            prior @ np.diag(self.gram)
        )
        return least, over, priced

    def _climbed(self, clock: Clock) -> Iterator[Law | Bound]:
        """Yield laws on rays found by local search, and the bound of the relaxation."""
        size, growth = self.workload.size, math.exp(self.privacy.epsilon)
        sets, start, prior = self._first()
        yield self._law(sets, best_weights(self.gram, self._rays(sets), start, prior, worst=False), 0)
        problem, scale = relaxation(self.gram, growth)
        solved = solve(
            problem, "scs", deadline=clock, fallback=False, eps_abs=1e-5, eps_rel=1e-5, max_iters=20_000
        )
        proof = ReportBound.of_relaxation(solved.dual, scale, self.gram, growth)
        bound = proof.bound(self)
        yield Bound(round_down(bound), proof)
        point = Point(start, proof.prices, prior, proof.inverse, math.inf, 0.0)
        rng, before, shown_cost = np.random.default_rng(0), math.inf, math.inf
        for rounds in range(1, _ROUNDS + 1):
            over = point.inverse.T @ self.gram @ point.inverse - np.add.outer(point.prices, point.prices) / (
                2 * size
            )
            starts = rng.integers(0, 2, (_STARTS * size, size)).astype(float)
            found = climbed(over, growth, np.concatenate([starts, sets]))
            points = self._rays(found)
            new = found[np.argsort(-((points @ over) * points).sum(axis=1))[: 4 * size]]
            sets, start = self._joined(sets, point, new)
            point = best_weights(self.gram, self._rays(sets), start, prior, worst=False)
            value = self._value(point)
            ended = before - point.cost < 1e-4 * point.cost or value - bound <= 0.99 * clock.gap * value
            ended = ended or rounds == _ROUNDS
            if ended or clock.passed or point.cost < 0.9 * shown_cost:
                yield self._law(sets, point, rounds)
                shown_cost = point.cost
            if ended:
                return
            before = point.cost

    def _value(self, point: Point) -> float:
        return point.cost + self._value_constant

    def _law(self, sets: Array, point: Point, rounds: int) -> Law:
        """Return the exactly private law of these weights, with at most `outputs` reports."""
        kept = point.weights > 1e-9 * point.weights.max()
        sets, point = sets[kept], point._replace(weights=point.weights[kept])
        if self.outputs is not None:
            sets, point = self._fewer(sets, point, self.outputs)
        rank = np.linalg.matrix_rank(self._rays(sets).T * np.sqrt(point.weights), tol=1e-5)
        if singular := rank < self.workload.size:
            one, weights, _ = self._first()  # a little of every category's own ray makes M regular
            if self.outputs is not None and len(sets) + len(one) > self.outputs:
                sets, point = self._fewer(sets, point, max(self.outputs - len(one), 1))
            sets, which = np.unique(np.concatenate([sets, one]), axis=0, return_inverse=True)
            mixed = np.concatenate([point.weights * (1 - _LITTLE), weights * _LITTLE])
            point = point._replace(weights=np.asarray(np.bincount(which.ravel(), mixed), dtype=float))
        rows = table_of(sets, point.weights, self.privacy.epsilon)
        law = LinearReport(self.workload, rows, point.prior if self.worst else None)
        report = SolveReport(
            "interior point", variables=len(sets), constraints=self.workload.size, iterations=rounds
        )
        value = (
            float(cost_above(self, law)) if singular else self._value(point)
        )  # that of a point without the rest
        return Law(law, value, report=report)

    def _fewer(self, sets: Array, point: Point, most: int) -> tuple[Array, Point]:
        """Drop the lightest half of the surplus rays and solve again until `most` are left; as a last resort use those of one category each."""
        one, weights, prior = self._first()
        while len(sets) > most:
            order = np.argsort(-point.weights)[: max(most, (len(sets) + most) // 2)]
            try:
                fresh = best_weights(
                    self.gram, self._rays(sets[order]), point.weights[order], point.prior, worst=self.worst
                )
            except np.linalg.LinAlgError:
                fresh = point._replace(residual=1.0)
            if fresh.residual > 1e-9:
                return one, best_weights(self.gram, self._rays(one), weights, prior, worst=self.worst)
            sets, point = sets[order], fresh
        return sets, point

    def certified(self, law: Law, clock: Clock) -> Law:
        """Return the law with its exact value and proof."""
        if law.proofs:
            return law
        return replace(law, value=round_up(cost_above(self, law.mechanism)), proofs=(LawProof(),))

    def law_claims(self, stated: Certificate, given: None) -> Iterator[Claim]:
        return law_claims(stated)

    def least_cost(self, stated: Certificate, given: None) -> Fraction:
        return histogram_bound(fitting(stated)[0])

    def answered_by(self, name: str) -> Result:
        """Return the published report of this name as a certified result."""
        law = self.published(name)
        value = round_up(cost_above(self, law))
        report = SolveReport("closed form", Status.FEASIBLE)
        return Result(self, law, value, None, report, proofs=(LawProof(),))

    # -- what a result says ------------------------------------------------------------------------------------

    def published(self, name: str) -> LinearReport | SubsetReport:
        """Return the published report of a name in `PUBLISHED` for this workload, exactly private, at its best size and with the decoder of least mean variance."""
        size, epsilon, name = self.workload.size, self.privacy.epsilon, one_of("name", name, PUBLISHED)
        if name == "Hadamard response":
            remedy = f"must be at most {_MOST} for Hadamard response, which is a table"
            refuse(size > _MOST, "workload", f"{size} categories", remedy)
            self._check_searched("Hadamard response, which is a table")
            sizes = (2**j for j in range(1, size.bit_length() + 1))
            return min((hadamard(self.workload, epsilon, b) for b in sizes), key=self._roughly)
        if name in ("subset selection", "k-ary response"):
            return SubsetReport.selection(self.workload, epsilon, 1 if name[0] == "k" else None)
        both = float(expit(epsilon / 2))
        kept, turned = (both, float(expit(-epsilon / 2))) if name[0] == "s" else (0.5, float(expit(-epsilon)))
        return SubsetReport.unary(self.workload, epsilon, kept, turned)

    def _roughly(self, law: LinearReport) -> float:
        """Return tr(G M⁻¹), in doubles."""
        table = law.channel.matrix
        return float((self.gram * np.linalg.inv((table / table.mean(axis=0)) @ table.T)).sum())

    def costs(self) -> dict[str, float]:
        """Return the costs of published reports at the same privacy, each at its best size."""
        found = {}
        for name in PUBLISHED:
            try:
                law = self.published(name)
            except DesignError:  # it does not exist for so many categories, or at this ε
                continue
            sizes = {
                "subset selection": f", {law.sizes[0]} of {law.size}" if isinstance(law, SubsetReport) else ""
            }
            found[name + sizes.get(name, "")] = float(cost_above(self, law))
        return found

    @property
    def _value_constant(self) -> float:
        """Difference of the value and `Point.cost`."""
        return 0.0 if self.worst else self.constant - float(np.trace(self.gram)) / self.workload.size

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Yield published reports, with the decoders of least mean variance."""
        return sorted(self.costs().items(), key=lambda row: row[1])

    def audit(self, result: Result) -> pd.DataFrame:
        """Tabulate the exact privacy of the tightest report, and the bias of the decoder, in doubles, over the largest coefficient."""
        law, off = result.mechanism, 0.0
        if isinstance(law, LinearReport):
            asked = self.workload.dense()
            bias = np.abs(law.decoder @ law.channel.matrix.T - asked).max() / np.abs(asked).max()
            off = round(float(bias), 12)  # the rest is rounding
        privacy = audit_row("largest quotient", law.epsilon, self.privacy.epsilon)
        return pd.concat([privacy, audit_row("largest error", off, 0.0, "unbiased")], ignore_index=True)

    def asked_by(self, question: Any) -> bool:
        """Whether the question is about categories: a result answers it if it is for the same workload and data."""
        return bool(question.asks == self.asks)

    def errors(self, result: Result, question: Any = None) -> Accuracy:
        """Return the mean errors per answer, from one report or from those of the question's people."""
        if question is not None and not self.asked_by(question):
            raise DesignError.of("question", type(question).__name__, "must be a CategoryReport")
        people = 1 if question is None else question.people
        return result.mechanism.errors(people, worst=self.worst)  # type: ignore[no-any-return]

    def lines(self, result: Result) -> list[str]:
        """Return a line with variance and size of a report."""
        law = result.mechanism
        bits = f"{math.ceil(math.log2(law.outputs))} bits"
        report = f"one of {law.outputs} outputs, {bits}"
        if isinstance(law, SubsetReport):
            number = str(law.sizes[0]) if len(law.sizes) == 1 else f"{law.sizes[0]} to {law.sizes[-1]}"
            report = f"a set of {number} of the {law.size} categories, {bits}, or {law.size} as they are"
        which = "of the worst category" if self.worst else "on average over the categories"
        variance = result.value - self.constant
        return [
            f"variance: {shown(variance)} for one report {which}, summed over {self.workload.count} answers; times n for n people",
            f"report: {report}",
        ]

    def describe(self, result: Result) -> Description:
        constant = "on average over the categories, plus the constant ‖W‖²/k"
        return Description(
            title=f"A local report for {self.workload}",
            what=f"A person has one of {self.workload.size} categories and sends one report. Asked of everybody's counts: {self.workload}. "
            "The answers are unbiased for every data set.",
            loss=f"variance of one report, summed over the answers, {'of the worst category' if self.worst else constant}",
            picture="The probability of every report, or that the reported set holds a category (across), for every category (down).",
        )

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the table as shades; for sets, the probability that a set holds a category."""
        law = result.mechanism
        table = law.chances if isinstance(law, SubsetReport) else law.channel.matrix
        return draw_matrix(table, "report", "category", **options)


def table_of(sets: Array, weights: Array, epsilon: float) -> Weights:
    """Return exactly private integer weights of rays, one per column, with equal row sums.

    A column that is private itself makes up for rounding in the row sums; it is added to the column of the largest weight.
    """
    bits = _BITS + math.ceil(1.5 * epsilon)
    growth, means = exp_lower(epsilon), 1 + math.expm1(epsilon) * sets.mean(axis=1)
    columns = []
    for favoured, share in zip(sets.astype(bool).tolist(), (weights / means).tolist()):
        low = int(Fraction(share) * 2**bits)
        if low:
            high = low * growth.numerator // growth.denominator
            columns.append([high if f else low for f in favoured])
    sums = [sum(row) for row in zip(*columns)]
    most, least = max(sums), min(sums)
    spare = (
        -((least - most) * growth.denominator // (growth.numerator - growth.denominator))
        if most > least
        else 0
    )
    target = max(columns, key=sum)
    target[:] = [w + most + spare - s for w, s in zip(target, sums)]
    return tuple(zip(*columns))


def hadamard(workload: Workload, epsilon: float, block: int) -> LinearReport:
    """Return Hadamard response (Acharya, Sun and Zhang 2019) with blocks of `block` reports: each category favours half of one block."""
    signs, size = linalg.hadamard(block), workload.size
    table = np.full((size, -(-size // (block - 1)) * block), level(Fraction(epsilon)), dtype=object)
    for x in range(size):
        at = x // (block - 1) * block
        table[x, at : at + block][signs[1 + x % (block - 1)] > 0] = TOP
    return LinearReport(workload, tuple(map(tuple, table.tolist())))


# -- weights of rays ------------------------------------------------------------------------------------------


class Point(NamedTuple):
    """Weights of rays, and prices for the lower bound.

    Attributes
    ----------
    weights : array, shape (n,)
        d.
    prices : array, shape (k,)
        ν, the multipliers of Σ d u = 1.
    prior : array, shape (k,)
        π; uniform for the average.
    inverse : array, shape (k, k)
        M⁻¹.
    cost : float
        f(d), in the worst case minus the mean of G_xx over π.
    residual : float
        Distance of Σ d u from 1.
    last : tuple of (prices, prior, inverse)
        The last iterates: if M is nearly singular, the very last does not give the best bound.
    """

    weights: Array
    prices: Array
    prior: Array
    inverse: Array
    cost: float
    residual: float
    last: tuple[tuple[Array, Array, Array], ...] = ()


def best_weights(gram: Array, rays: Array, start: Array, prior: Array, *, worst: bool) -> Point:
    """Minimise over the weights, and in the worst case maximise over the prior, by a primal-dual interior-point method.

    Parameters
    ----------
    gram : array, shape (k, k)
        G.
    rays : array, shape (n, k)
    start : array, shape (n,)
        Positive starting weights.
    prior : array, shape (k,)
        Positive π, the start in the worst case.
    worst : bool
    """
    n, k = rays.shape
    scale, floor = 1.0, 1e-14 * np.eye(k)  # directions without rays stay out of the inverse

    def moments(d: Array, pi: Array) -> tuple[Array, Array, Array, Array]:
        at = rays @ pi
        inverse = np.linalg.inv((rays.T * (d / at)) @ rays + floor)
        half = rays @ (inverse @ gram @ inverse)
        return at, np.asarray(inverse), half, np.asarray((half * rays).sum(axis=1))

    def residuals(z: list[Array], found: tuple[Array, ...], barrier: float) -> list[Array]:
        d, nu, left, pi, level, spare = z
        at, _, _, size = found
        parts = [rays @ nu - size / at - left, (rays.T @ d - 1) * scale, left * d - barrier]
        if worst:
            slope = rays.T @ (size * d / at**2) - np.diag(gram)
            parts += [level - slope - spare, (np.atleast_1d(pi.sum()) - 1) * scale, spare * pi - barrier]
        return parts

    found = moments(start, prior)
    scale = float((gram * found[1]).sum())
    steep = float((found[3] / found[0]).max())
    z = [start, np.full(k, steep), np.full(n, 0.01 * steep), prior, np.zeros(1), np.full(k, scale / k)]
    last: list[tuple[Array, Array, Array]] = []
    for _ in range(100):
        d, _, left, pi, _, spare = z
        at, inverse, half, size = found
        cost = float((gram * inverse).sum() - (pi @ np.diag(gram) if worst else 0.0))
        gap = d @ left + (spare @ pi if worst else 0.0)
        barrier = 0.1 * gap / (n + k * worst)
        parts = residuals(z, found, barrier)
        off = float(np.abs(parts[1]).max()) / scale
        last = [*last[-7:], (z[1], pi, inverse)]
        if gap < 1e-11 * scale and np.abs(parts[0]).max() < 1e-10 * steep and off < 1e-13:
            break
        curve = 2 * (rays @ inverse @ rays.T) * (half @ rays.T)
        total = n + k + (k + 1) * worst
        matrix, right = np.zeros((total, total)), np.zeros(total)
        matrix[:n, :n] = curve / np.outer(at, at)
        matrix[range(n), range(n)] += left / d
        matrix[:n, n : n + k], matrix[n : n + k, :n] = rays, rays.T
        right[:n], right[n : n + k] = -parts[0] - parts[2] / d, -parts[1] / scale
        if worst:
            p = slice(n + k, n + 2 * k)
            turn = -(d / at**2)[:, None] * rays
            cross = (curve @ turn) / at[:, None] + (size / at**2)[:, None] * rays
            matrix[:n, p], matrix[p, :n] = cross, -cross.T
            matrix[p, p] = (
                (rays.T * (2 * size * d / at**3)) @ rays - turn.T @ curve @ turn + np.diag(spare / pi)
            )
            matrix[p, -1] = matrix[-1, p] = 1.0
            right[p], right[-1:] = -parts[3] - parts[5] / pi, -parts[4] / scale
        try:
            step = np.linalg.solve(matrix, right)
        except np.linalg.LinAlgError:
            break
        moves = [step[:n], step[n : n + k], -(parts[2] + left * step[:n]) / d, 0 * pi, np.zeros(1), 0 * spare]
        if worst:
            moves[3:] = [
                step[n + k : n + 2 * k],
                step[-1:],
                -(parts[5] + spare * step[n + k : n + 2 * k]) / pi,
            ]
        signed = [(v, m) for i, (v, m) in enumerate(zip(z, moves)) if i in (0, 2, 3, 5)]
        length = min(1.0, *(0.99 * float(np.min(-v[m < 0] / m[m < 0], initial=np.inf)) for v, m in signed))
        before = sum(float(part @ part) for part in parts)
        for _ in range(25):
            tried = [v + length * m for v, m in zip(z, moves)]
            seen = moments(tried[0], tried[3])
            after = sum(float(part @ part) for part in residuals(tried, seen, barrier))
            if after <= (1 - 0.01 * length) * before:
                break
            length /= 2
        else:
            break
        z, found = tried, seen
    return Point(z[0], *last[-1], cost, off, tuple(last))


def climbed(matrix: Array, growth: float, starts: Array) -> Array:
    """Return sets whose rays have a large uᵀ(matrix)u: from each start, flip the category that gains most until none gains.

    Parameters
    ----------
    matrix : array, shape (k, k)
    growth : float
        ρ, the ray's value on its set; elsewhere it is 1.
    starts : array of 0 and 1, shape (n, k)
    """
    held, diagonal = starts.copy(), np.diag(matrix)
    for _ in range(4 * len(matrix)):
        points = 1 + (growth - 1) * held
        turn = (growth - 1) * (1 - 2 * held)
        gains = turn * (2 * points @ matrix + turn * diagonal)
        best = gains.argmax(axis=1)
        rows = np.flatnonzero(gains[np.arange(len(held)), best] > 1e-12 * np.abs(matrix).max())
        if not rows.size:
            break
        held[rows, best[rows]] = 1 - held[rows, best[rows]]
    sizes = held.sum(axis=1)
    return np.unique(held[(sizes > 0) & (sizes < len(matrix))], axis=0)

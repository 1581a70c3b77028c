r"""A count that is known to lie in 0, …, n, answered in 0, …, n: the best mechanism, whose noise may depend on the true value.

The unknowns are the probabilities C[x, y] of answering y where x is true. With neighbouring values x, x' at most s apart,

.. math:: \min_C \max_x \sum_y \ell(y - x)\,C[x, y] \quad\text{s.t.}\quad
          \sum_y \left[C[x, y] - e^{\varepsilon} C[x', y]\right]_+ \le \delta ,

or the mean over a prior of the true values in place of the worst: a linear program in numbers, no lattice and no cut-off. Under pure privacy, s = 1 and a
loss that grows with \|t\| its optimum is the truncated geometric mechanism after a remap of its answers, for every prior (Ghosh, Roughgarden and
Sundararajan 2012) and for the worst case (Gupte and Sundararajan 2010): an oracle for the tests. Where loss and prior are symmetric, C[x, y] = C[n − x, n − y]
halves the program.

The answer becomes integer weights: by the closure of `mechdesign.channels.exact` for δ = 0, where x and x' are ⌈\|x − x'\|/s⌉ steps apart, and else by a
mixture with the truncated geometric mechanism, which is ε-DP, as large as is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse

from mechdesign.channels.channel import Channel, check_prior
from mechdesign.channels.exact import Weights, common_integers, private_weights
from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.accuracy import Accuracy, quantile
from mechdesign.evidence.classes import MechanismClass, every
from mechdesign.evidence.digits import shown
from mechdesign.evidence.exact import exp_lower, exp_upper, round_down, round_up
from mechdesign.evidence.page import Account
from mechdesign.evidence.proofs import PROVED, RECOMPUTED, Certificate, Claim, Proof
from mechdesign.evidence.results import AUDIT_COLUMNS, Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.plotting import draw_matrix
from mechdesign.problem.checks import array, indices, instance, integer, settle
from mechdesign.problem.fields import Checked, field
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import ApproximateDP, PureDP
from mechdesign.problem.sensitivity import neighbours_field
from mechdesign.problem.spine import Bound, Clock, Law, ModelledDesign, relative_table
from mechdesign.problem.words import NEIGHBOURS, guarantee, loss_words, privacy_words
from mechdesign.solvers import LinearProgram, Model
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Indices, Numbers, Status

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROWS = 500_000
"""Privacy constraints, at most: a program of many minutes."""
_FIXED = 256  # bits of the fixed point of the dual bound
_BITS = 110  # of the weights of a law
_SMALLEST = 1e-9  # δ that the program is solved with, at least
_SCALED = 1e-2  # what δ is there, at least: the solver's tolerances are absolute


@serializable("bounded-count")
@dataclass(frozen=True, eq=False)
class BoundedCount(ModelledDesign):
    r"""The best (ε, δ)-DP answer in 0, …, n to a count in 0, …, n.

    Parameters
    ----------
    n : int
        The largest count: of a survey, how many were asked.
    privacy : PureDP or ApproximateDP
    loss : {"absolute", "squared"}, dict, or callable
        What an answer that is off by t costs.
    sensitivity : int
        s ≥ 1: the most that the count differs by between neighbours.
    prior : array, shape (n + 1,), optional
        Probabilities of the true values, over which the loss is averaged; without them it is the worst over all.
    neighbours : {"add-remove", "replace"}
        For which neighbours the sensitivity holds.

    Raises
    ------
    DesignError
        A prior of another length, a sensitivity beyond n, so many values and changes that the program is too large.

    Notes
    -----
    Ghosh, Roughgarden and Sundararajan, *Universally utility-maximizing privacy mechanisms*, SIAM J. Comput. 41 (2012), for δ = 0.

    Examples
    --------
    >>> result = BoundedCount(10, ApproximateDP(1, .01), loss="squared").solve()
    >>> round(result.value, 4), result.gap < 1e-6, result.certificate.verify()
    (1.337, True, True)
    >>> int(result.mechanism.release(7)) in range(11)
    True
    """

    default_gap = 1e-6
    central = True

    n: int = field(check=integer, least=1, most=500)
    privacy: PureDP | ApproximateDP = field(PureDP, ApproximateDP)
    loss: object = "absolute"
    sensitivity: int = field(check=integer, least=1, default=1)
    prior: Numbers | None = None
    neighbours: str = neighbours_field()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sensitivity > self.n:
            raise DesignError.of("sensitivity", self.sensitivity, f"must be at most n = {self.n}")
        if self.sensitivity * (self.n + 1) ** 2 > _ROWS:
            allowed = f"times (sensitivity) {self.sensitivity} must be at most {_ROWS}: OptimalNoise(integer=True) is for larger counts"
            raise DesignError.of("(n + 1)²", (self.n + 1) ** 2, allowed)
        if not 1e-6 <= self.privacy.epsilon <= 100:
            raise DesignError.of("epsilon", self.privacy.epsilon, "must be between 1e-6 and 100")
        if self.prior is not None:
            settle(self, prior=check_prior(self.prior, self.n + 1))
        _ = self.costs

    @property
    def delta(self) -> float:
        """δ of the requirement, 0 for pure privacy."""
        return self.privacy.delta if isinstance(self.privacy, ApproximateDP) else 0.0

    @cached_property
    def given_loss(self) -> Loss:
        """The loss of an answer."""
        return Loss.of(self.loss)

    @cached_property
    def costs(self) -> tuple[Fraction, ...]:
        """The loss of being off by -n, …, n, exactly; a callable's values are taken as exact."""
        loss, off = self.given_loss, range(-self.n, self.n + 1)
        given = np.zeros(len(off))
        if loss.function is not None:
            given = Loss(function=loss.function)(np.array(off, dtype=float))
            if not (np.isfinite(given).all() and given.min() >= 0):
                raise DesignError.of(
                    "loss", loss.name, f"must be finite and at least 0 from {-self.n} to {self.n}"
                )
        parts = zip(off, given.tolist())
        return tuple(
            Fraction(loss.absolute) * abs(t) + Fraction(loss.squared) * t * t + Fraction(g) for t, g in parts
        )

    @cached_property
    def losses(self) -> Array:
        """The loss of answering y (across) where x is true (down), in doubles."""
        places = np.arange(self.n + 1)
        table: Array = np.array([float(c) for c in self.costs])[self.n + places[None] - places[:, None]]
        return table

    @property
    def among(self) -> MechanismClass:
        """Every mechanism that answers in 0, …, n."""
        return every(f"mechanism with answers 0 to {self.n}")

    @cached_property
    def _mirrored(self) -> bool:
        """Whether the question is its own mirror image, so that a mechanism may be."""
        prior = np.zeros(1) if self.prior is None else np.asarray(self.prior)
        return self.costs == self.costs[::-1] and bool((prior == prior[::-1]).all())

    def worth(self, weights: Weights) -> Fraction:
        """What a law of integer weights costs, exactly."""
        n, total = self.n, sum(weights[0])
        rows = [
            sum((c * w for c, w in zip(self.costs[n - x :], row) if w), Fraction(0))
            for x, row in enumerate(weights)
        ]
        if self.prior is None:
            return max(rows) / total
        counts = common_integers(np.asarray(self.prior))[0].tolist()
        return Fraction(sum((c * r for c, r in zip(counts, rows)), Fraction(0)) / (sum(counts) * total))

    def excess(self, weights: Weights) -> Fraction:
        """The least δ of a law of integer weights at ε, from above: the largest sum over neighbouring values."""
        growth, total = exp_lower(self.privacy.epsilon), sum(weights[0])
        up, down, worst = growth.numerator, growth.denominator, 0
        for x, row in enumerate(weights):
            for other in weights[max(0, x - self.sensitivity) : x + self.sensitivity + 1]:
                worst = max(worst, sum(d for a, b in zip(row, other) if (d := a * down - b * up) > 0))
        return Fraction(worst, down * total)

    # -- the program -------------------------------------------------------------------------------------------

    @cached_property
    def _geometric(self) -> Array:
        """The truncated geometric mechanism, which is ε-DP but for rounding."""
        a, places = math.exp(-self.privacy.epsilon / self.sensitivity), np.arange(self.n + 1)
        matrix = a ** np.abs(places[:, None] - places) * (1 - a) / (1 + a)
        matrix[:, [0, -1]] /= 1 - a
        return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))

    def program(self, deadline: Deadline | None = None) -> tuple[LinearProgram, Indices, Indices]:
        """The program in numbers, its column for each C[x, y], and the pairs of neighbours with constraints.

        Masses are large where δ is small, as the solver's tolerances are absolute.
        """
        count, delta = self.n + 1, self.delta if self.delta >= _SMALLEST else 0.0
        place = np.arange(count * count).reshape(count, count)
        owner, listed = place, np.arange(count)
        if self._mirrored:
            _, kept = np.unique(np.minimum(place, place[::-1, ::-1]), return_inverse=True)
            owner, listed = kept.reshape(count, count), listed[: (count + 1) // 2]
        size, scale = int(owner.max()) + 1, self._scale
        cost, worst = np.zeros(size), self.prior is None
        if not worst:
            np.add.at(cost, owner.ravel(), (np.asarray(self.prior)[:, None] * self.losses / scale).ravel())
        program = LinearProgram(
            "program of bounded counts",
            deadline=deadline,
            primal_feasibility_tolerance=1e-9,
            dual_feasibility_tolerance=1e-9,
        )
        program.add_columns("table", cost)

        def rows(places: Indices, values: Array) -> Any:
            at = np.repeat(np.arange(len(places)), places.shape[1])
            return sparse.csr_array((values.ravel(), (at, places.ravel())), shape=(len(places), size))

        ones = np.ones((len(listed), count))
        program.add_rows("sums", {"table": rows(owner[listed], ones)}, lower=self._mass, upper=self._mass)
        if worst:
            program.add_columns("worst", [1.0])
            blocks = {"table": rows(owner[listed], self.losses[listed] / scale), "worst": -ones[:, :1]}
            program.add_rows("worst", blocks, upper=0.0)
        pairs = np.array([(x, x + k) for k in range(1, self.sensitivity + 1) for x in range(count - k)])
        pairs = pairs if self._mirrored else np.concatenate([pairs, pairs[:, ::-1]])
        # a solver's numbers end before e^ε does; a smaller factor is only more private, and any multipliers are valid
        growth = math.exp(min(self.privacy.epsilon, 21.0))
        both = np.stack([owner[pairs[:, 0]].ravel(), owner[pairs[:, 1]].ravel()], axis=1)
        blocks = {"table": rows(both, np.broadcast_to([1.0, -growth], both.shape))}
        if delta:
            program.add_columns("excess", np.zeros(len(both)))
            blocks["excess"] = -sparse.eye_array(len(both))
        program.add_rows("private", blocks, upper=0.0)
        if delta:
            sums = sparse.kron(sparse.eye_array(len(pairs)), np.ones((1, count)))
            program.add_rows("delta", {"excess": sums}, upper=delta * self._mass)
        return program, owner, pairs

    @property
    def _mass(self) -> float:
        return max(1.0, _SCALED / self.delta) if self.delta >= _SMALLEST else 1e3

    @cached_property
    def _scale(self) -> float:
        """Unit of the program's losses."""
        return float((self._geometric * np.abs(self.losses)).sum(axis=1).max()) or 1.0

    def model(self) -> Model:
        """The linear program, with one variable for C[x, y] and its mirror image where the question is symmetric."""
        return self.program()[0].model()

    def closed_forms(self) -> Iterator[Law]:
        """Yield the best constant answer and the truncated geometric mechanism."""
        constant = np.zeros_like(self.losses)
        costs = self.losses.max(axis=0) if self.prior is None else np.asarray(self.prior) @ self.losses
        constant[:, costs.argmin()] = 1.0
        yield self._law(_whole(constant), SolveReport("closed form"))
        yield self._law(self._pure(self._geometric), SolveReport("closed form"))

    def improve(self, clock: Clock, solver: str | None = None) -> Iterator[Law | Bound]:  # type: ignore[override]
        """Yield the closed forms, then the optimum by HiGHS and the bound of its multipliers."""
        if solver not in (None, "highs"):
            raise DesignError.of("solver", solver, 'must be "highs"; model() is for the others')
        prior = np.ones(self.n + 1) if self.prior is None else np.asarray(self.prior)
        yield self._bound(np.zeros((0, 3), dtype=np.int64), np.zeros(0), prior)
        yield from self.closed_forms()
        try:
            program, owner, pairs = self.program(clock)
            solved = program.solve() is Status.OPTIMAL
        except (InfeasibleError, SolverError) as error:  # numbers beyond doubles, of a large ε
            clock.failed(error, "the closed forms are used, and the least loss as the bound")
            return
        if not solved:
            raise SolverError("the program has no answer in time", solver="highs", status="limit")
        yield self._dual(program, pairs)
        table = _rows(program.primal("table")[owner])
        over = float(self.excess(_whole(table)) - Fraction(self.delta))
        if self.delta >= _SMALLEST and over > 0:
            # a basis with numbers near 1 and near δ misses δ: asking for that much less costs less than a mixture
            program.change_rows("delta", upper=max(0.0, self.delta - 2 * over) * self._mass)
            if program.solve() is Status.OPTIMAL:
                table = _rows(program.primal("table")[owner])
        rows, columns = program.shape
        report = SolveReport("highs", variables=columns, constraints=rows, iterations=program.iterations)
        yield self._law(self._repaired(table), report)

    def _law(self, weights: Weights, report: SolveReport) -> Law:
        return Law(Channel.from_weights(weights), round_up(self.worth(weights)), (BoundedProof(),), report)

    def _bound(self, triples: Indices, held: Array, weights: Array) -> Bound:
        """What multipliers prove, at a prior where the question has none."""
        proof = BoundedDual(triples, held, weights if self.prior is None else None)
        return Bound(round_down(proof.bound(self)), proof)

    def _dual(self, program: LinearProgram, pairs: Indices) -> Bound:
        """What the multipliers prove, those of the mirror images included."""
        count = self.n + 1
        prices = np.maximum(-program.row_dual[program.rows["private"]], 0.0).reshape(-1, count) * self._scale
        k, y = np.nonzero(prices > 1e-13 * self._scale)
        triples, held, weights = np.column_stack([pairs[k], y]), prices[k, y], np.zeros(count)
        if self.prior is None:
            found = np.maximum(-program.row_dual[program.rows["worst"]], 0.0)
            weights[: len(found)] = found
        if self._mirrored:
            triples, held = np.concatenate([triples, self.n - triples]), np.tile(held / 2, 2)
            weights = weights + weights[::-1]
        return self._bound(triples, held, weights)

    def _pure(self, matrix: Array) -> Weights:
        """Integer weights close to the matrix that are ε-DP exactly."""
        places = np.arange(self.n + 1)
        apart = np.ceil(np.abs(places[:, None] - places) / self.sensitivity)
        return private_weights(matrix, apart, self.privacy.epsilon, self.losses / (self.n + 1))

    def _repaired(self, matrix: Array) -> Weights:
        """Integer weights close to the matrix that are private exactly."""
        share = 0.0
        if self.delta < _SMALLEST:
            return self._pure(matrix)
        while share < 1:
            weights = _whole((1 - share) * matrix + share * self._geometric)
            found, delta = self.excess(weights), Fraction(self.delta)
            if found <= delta:
                return weights
            share = max(2 * share, 1.001 * float((found - delta) / found) + 1e-15)
        return self._pure(self._geometric)

    # -- what a result says ------------------------------------------------------------------------------------

    def audit(self, result: Result) -> pd.DataFrame:
        """δ of neighbouring values a step apart and of those furthest apart, upwards and downwards."""
        rows, matrix, growth = [], result.mechanism.matrix, math.exp(self.privacy.epsilon)
        for k in {1, self.sensitivity}:
            low, high = matrix[:-k], matrix[k:]
            for way, a, b in (("up", low, high), ("down", high, low)):
                lhs = float(np.maximum(a - growth * b, 0.0).sum(axis=1).max())
                slack = self.delta - lhs
                rows.append((f"privacy {way}", k, lhs, self.delta, slack, math.nan, slack <= 1e-9))
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def errors(self, result: Result, question: object = None) -> Accuracy:
        """How far off an answer is: over the prior, or at the true value where that is worst."""
        matrix, places = result.mechanism.matrix, np.arange(self.n + 1)
        off = np.abs(places[:, None] - places).astype(float)
        rows = [matrix] if self.prior is None else [np.asarray(self.prior)[:, None] * matrix]
        parts = list(zip(off, rows[0])) if self.prior is None else [(off, rows[0])]
        squared, absolute, half = (
            max(f(t, w) for t, w in parts)
            for f in (lambda t, w: float((t * t * w).sum()), lambda t, w: float((t * w).sum()), quantile)
        )
        return Accuracy(math.sqrt(squared), absolute, half)

    def account(self, result: Result) -> Account:
        """The question in words, and what the value is."""
        over = (
            "at the true value where that is largest"
            if self.prior is None
            else "over the given prior of true values"
        )
        value = f"expected {loss_words(self.loss)}, {over}"
        question = [
            f"A count lies between 0 and {self.n}. Between neighbouring data sets it changes by at most {self.sensitivity}. It is answered "
            f"by a whole number between 0 and {self.n}, drawn from a row of a table that depends on the true count.",
            privacy_words(self.privacy, NEIGHBOURS),
            f"Wanted is the table of least {value}. The lower bound is of {self.among}.",
        ]
        return Account(
            f"A count from 0 to {self.n} at {guarantee(self.privacy)}",
            f"Least {value}.",
            "\n\n".join(question),
            value,
            (
                guarantee(self.privacy),
                f"exact δ at most {shown(round_up(self.excess(result.mechanism.weights)))}",
            ),
            "The probability of every answer (across) for every true value (down).",
            "The truncated geometric mechanism at the same ε.",
        )

    def alternatives(self, result: Result) -> pd.DataFrame:
        """What the truncated geometric mechanism costs."""
        losses = (self._geometric * self.losses).sum(axis=1)
        other = float(losses.max() if self.prior is None else np.asarray(self.prior) @ losses)
        rows = [("this mechanism", result.value), ("truncated geometric mechanism", other)]
        if result.lower_bound is not None:
            rows.append((f"lower bound of {result.among}", result.lower_bound))
        return relative_table(rows)

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the table as shades."""
        return draw_matrix(result.mechanism.matrix, "answer", "true value", **options)


def _rows(table: Array) -> Array:
    """Probabilities, from a solver's numbers."""
    held = np.maximum(table, 0.0)
    return np.asarray(held / held.sum(axis=1, keepdims=True))


def _whole(matrix: Array) -> Weights:
    """Rows of integers of one total, next to these: what is missing is added to the largest of each."""
    rows = []
    for row in matrix.tolist():
        weights = [(n << _BITS) // d for n, d in map(float.as_integer_ratio, row)]
        weights[max(range(len(row)), key=row.__getitem__)] += (1 << _BITS) - sum(weights)
        rows.append(tuple(weights))
    return tuple(rows)


def _fitting(stated: Certificate) -> tuple[BoundedCount, Weights]:
    """The question, and the weights of a law of its size."""
    design, law = instance("question", stated.question, BoundedCount), instance("law", stated.law, Channel)
    if law.weights is None or law.space is not None or law.matrix.shape != (design.n + 1, design.n + 1):
        raise DesignError("law: must be a table of integer weights, a row and a column for each value")
    return design, law.weights


@serializable("bounded-proof")
@dataclass(frozen=True, eq=False)
class BoundedProof(Proof):
    r"""A table of integer weights, rows of one total, is (ε, δ)-DP if :math:`\sum_y [C[x, y] - \rho C[x', y]]_+ \le \delta` for all values
    at most s apart, with a rational :math:`\rho \le e^\varepsilon`. Its worst or mean loss is a fraction.
    """

    speaks_of = ("privacy", "value")

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design, weights = _fitting(stated)
        spare = Fraction(design.delta) - design.excess(weights)
        claim = f"privacy of all neighbouring values: delta at most {design.delta:g} at epsilon = {design.privacy.epsilon:g}"
        yield Claim(claim, PROVED, float(spare), spare >= 0)
        room = Fraction(stated.value) - design.worth(weights)
        how = PROVED if design.given_loss.polynomial else RECOMPUTED
        yield Claim(f"expected loss at most {stated.value!r}", how, float(room), room >= 0)


@serializable("bounded-dual")
@dataclass(frozen=True, eq=False)
class BoundedDual(Checked, Proof):
    r"""For a prior w of the true values and multipliers :math:`0 \le \psi_{x,x'}(y) \le \mu_{x,x'}` of neighbours, every private C has

    .. math:: \max_x \sum_y \ell(y - x)\,C[x, y] \;\ge\; \sum_{x,y} w_x \ell(y - x)\,C[x, y] \;\ge\;
       \sum_x \min_y \left(w_x \ell(y - x) + \sum_{x'} \psi_{x,x'}(y) - e^\varepsilon \psi_{x',x}(y)\right) - \delta \sum \mu_{x,x'} ,

    and no C costs less than the least loss.

    Parameters
    ----------
    triples : array of int, shape (t, 3)
        (x, x', y) with a multiplier.
    multipliers : array, shape (t,)
        ψ; the caps μ are the largest of each pair.
    weights : array, shape (n + 1,), optional
        w, in proportion, where the loss is the worst: a least favourable prior. Else the question's prior counts.
    """

    triples: Indices
    multipliers: Array = field(check=array, empty=True)
    weights: Array | None = field(check=array, default=None)

    speaks_of = ("lower bound",)
    not_linear = "a program whose prior is part of the answer"

    def __post_init__(self) -> None:
        super().__post_init__()
        given = np.asarray(self.triples)
        if given.shape != (shape := (len(self.multipliers), 3)):
            raise DesignError.of("triples", given.shape, f"must have shape {shape}")
        settle(
            self, triples=indices("triples", given, 501) if given.size else np.zeros((0, 3), dtype=np.int64)
        )

    def way(self, stated: Certificate) -> str:
        return PROVED if stated.question.given_loss.polynomial else RECOMPUTED

    def bound(self, design: BoundedCount) -> Fraction:
        """The lower bound that the multipliers prove, or DesignError where they are of another design."""
        count, weights = design.n + 1, self.weights if design.prior is None else design.prior
        apart = np.abs(self.triples[:, 0] - self.triples[:, 1])
        fits = (self.triples < count).all() and ((apart > 0) & (apart <= design.sensitivity)).all()
        if not fits or (self.multipliers < 0).any():
            raise DesignError("multipliers: must be non-negative, of neighbouring values")
        given = None if weights is None else np.asarray(weights)
        if given is None or given.shape != (count,) or (given < 0).any() or not given.any():
            raise DesignError("weights: must be a prior of the true values")
        if (design.prior is None) != (self.weights is not None):
            raise DesignError("weights: are of the worst case, and of no question with a prior")
        (counts, _), unit = common_integers(given), 1 << _FIXED
        common = math.lcm(*(c.denominator for c in design.costs))
        costs = np.array([int(c * common) for c in design.costs], dtype=object)
        places = np.arange(count)
        reduced = counts[:, None] * costs[design.n + places[None] - places[:, None]] * unit
        reduced //= counts.sum() * common
        growth, caps = exp_upper(design.privacy.epsilon), dict[tuple[int, int], int]()
        for (x, other, y), multiplier in zip(self.triples.tolist(), self.multipliers.tolist()):
            numerator, denominator = multiplier.as_integer_ratio()
            held = numerator * unit // denominator
            reduced[x, y] += held
            reduced[other, y] -= -(-growth.numerator * held // growth.denominator)
            caps[x, other] = max(caps.get((x, other), 0), held)
        if len({(x, o, y) for x, o, y in self.triples.tolist()}) < len(self.triples):
            raise DesignError("triples: must differ")
        found = Fraction(reduced.min(axis=1).sum() - Fraction(design.delta) * sum(caps.values())) / unit
        return max(found, min(design.costs))

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design, _ = _fitting(stated)
        if stated.lower_bound is None:
            raise DesignError.of("lower_bound", None, "must be a number where a proof speaks of it")
        margin = self.bound(design) - Fraction(stated.lower_bound)
        claim = f"no {design.among.noun} costs less than {stated.lower_bound!r}"
        yield Claim(claim, self.way(stated), float(margin), margin >= 0)

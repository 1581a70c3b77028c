r"""The best mechanism for a count known to lie in 0, …, n, with answers in 0, …, n; its noise may depend on the true value.

The unknowns are the probabilities C[x, y] of answering y if x is true. With neighbouring values x, x' at most s apart,

.. math:: \min_C \max_x \sum_y \ell(y - x)\,C[x, y] \quad\text{s.t.}\quad
          \sum_y \left[C[x, y] - e^{\varepsilon} C[x', y]\right]_+ \le \delta ,

or the mean over a prior of the true values instead of the worst: a linear program without lattice or truncation. Under pure privacy, s = 1 and a
loss that grows with \|t\| its optimum is the truncated geometric mechanism after a remap of its answers, for every prior (Ghosh, Roughgarden and
Sundararajan 2012) and for the worst case (Gupte and Sundararajan 2010): an oracle for the tests. If loss and prior are symmetric, C[x, y] = C[n − x, n − y]
halves the program.

The question is declared on a table of counts (`BoundedCount.problem`), and solved, repaired and proved like every such table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from fractions import Fraction
from functools import cached_property

import numpy as np

from mechdesign.channels.channel import Channel, check_prior, private_weights
from mechdesign.checks import field, instance, integer, refuse
from mechdesign.errors import DesignError
from mechdesign.evidence.proofs import MechanismClass, every
from mechdesign.evidence.results import Accuracy, Result, SolveReport, accuracy_of
from mechdesign.evidence.serialize import serializable
from mechdesign.model.exactly import Exact
from mechdesign.model.problem import Minimize
from mechdesign.model.table import Table
from mechdesign.model.table_problem import TableDesign, TableProblem
from mechdesign.plotting import draw_matrix
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import ApproximateDP, Description, PureDP
from mechdesign.problem.sensitivity import neighbours_field
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.typing import Array, Figure, Numbers, Weights

_ROWS = 500_000
"""Most privacy constraints: a program of many minutes."""


@serializable("bounded-count", eq=False)
class BoundedCount(TableDesign):
    r"""The best (ε, δ)-DP answer in 0, …, n to a count in 0, …, n.

    Parameters
    ----------
    n : int
        The largest count: in a survey, the number of people asked.
    privacy : PureDP or ApproximateDP
    loss : {"absolute", "squared"}, dict, or callable
        Cost of an answer with error t.
    sensitivity : int
        s ≥ 1: the largest change of the count between neighbours.
    prior : array, shape (n + 1,), optional
        Probabilities of the true values, over which the loss is averaged; without them the loss is the worst over all values.
    neighbours : {"add-remove", "replace"}
        Neighbours for which the sensitivity holds.

    Raises
    ------
    DesignError
        A prior of another length, a sensitivity beyond n, or so many values and changes that the program is too large.

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
    algorithms = ("symmetric",)

    n: int = field(check=integer, least=1, most=500)
    privacy: PureDP | ApproximateDP = field(PureDP, ApproximateDP)
    loss: object = "absolute"
    sensitivity: int = field(check=integer, least=1, most=lambda self: self.n, default=1)
    prior: Numbers | None = field(check=check_prior, size=lambda self: self.n + 1, default=None)
    neighbours: str = neighbours_field()

    def _post_check(self) -> None:
        allowed = f"times (sensitivity) {self.sensitivity} must be at most {_ROWS}: OptimalNoise(integer=True) is for larger counts"
        refuse(self.sensitivity * (self.n + 1) ** 2 > _ROWS, "(n + 1)²", (self.n + 1) ** 2, allowed)
        if not 1e-6 <= self.privacy.epsilon <= 100:
            raise DesignError.of("epsilon", self.privacy.epsilon, "must be between 1e-6 and 100")
        _ = self.losses

    @property
    def delta(self) -> float:
        """δ of the requirement, 0 for pure privacy."""
        return self.privacy.delta if isinstance(self.privacy, ApproximateDP) else 0.0

    @cached_property
    def given_loss(self) -> Loss:
        """The loss of an error."""
        return Loss.of(self.loss)

    @cached_property
    def losses(self) -> Array:
        """Loss of answering y (column) if x (row) is true."""
        places = np.arange(self.n + 1)
        off = (places[None] - places[:, None]).astype(float)
        found = self.given_loss(off)
        allowed = f"must be finite and at least 0 from {-self.n} to {self.n}"
        refuse(not (np.isfinite(found).all() and found.min() >= 0), "loss", self.given_loss.name, allowed)
        return np.asarray(found)

    @property
    def mechanism_class(self) -> MechanismClass:
        """Every mechanism that answers in 0, …, n."""
        return every(f"mechanism with answers 0 to {self.n}")

    def problem(self) -> TableProblem:
        """Return the model: probabilities of answers between 0 and n, private between counts at most s apart."""
        counts, s = range(self.n + 1), self.sensitivity
        P = Table(counts, counts, of="data", neighbours=self.neighbours)
        near = [(x, y) for x in counts for y in counts[x + 1 : x + s + 1]] if s > 1 else "adjacent"
        loss = self.loss if isinstance(self.loss, str) else self.losses
        cost = P.worst(loss) if self.prior is None else P.expected(loss, self.prior)
        return TableProblem(Minimize(cost), (P.private(self.privacy, between=near),), design=self)

    def deployed(self, weights: Weights) -> Channel:
        """Return the channel of these weights."""
        return Channel.from_weights(weights)

    def exact(self, law: Channel, witness: Iterable[Fraction] = ()) -> Exact:
        """Return the cells of a table of answers, in rationals."""
        square = instance("law", law, Channel).matrix.shape == (self.n + 1, self.n + 1)
        if law.weights is None or law.space is not None or not square:
            raise DesignError("law: must be a table of integer weights, a row and a column for each value")
        return super().exact(law, witness)

    @cached_property
    def _geometric(self) -> Array:
        """Return the truncated geometric mechanism at slightly less than ε, so that rounding violates no row: at ε all are tight."""
        epsilon = self.privacy.epsilon - min(1e-11, 1e-6 * self.privacy.epsilon)
        a, places = math.exp(-epsilon / self.sensitivity), np.arange(self.n + 1)
        matrix = a ** np.abs(places[:, None] - places) * (1 - a) / (1 + a)
        matrix[:, [0, -1]] /= 1 - a
        return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))

    def closed_forms(self) -> Iterator[Law | Bound]:
        """Yield the truncated geometric mechanism, and the best constant answer."""
        places = np.arange(self.n + 1)
        apart = np.ceil(np.abs(places[:, None] - places) / self.sensitivity)
        weights = private_weights(self._geometric, apart, self.privacy.epsilon, self.losses)
        yield self.law(weights, SolveReport("closed form"))
        yield from self.model.closed_forms()

    def accelerated(self, clock: Clock, algorithm: str | None = None) -> Iterator[Law | Bound]:
        """Solve the declared problem; if the question is symmetric, with one variable for each cell and its mirror image."""
        yield from self.model.improve(clock, symmetry="find")

    # -- what a result says ------------------------------------------------------------------------------------

    def errors(self, result: Result, question: object = None) -> Accuracy:
        """Return the errors of an answer, over the prior or at the worst true value."""
        matrix, places = result.mechanism.matrix, np.arange(self.n + 1)
        off = np.abs(places[:, None] - places).astype(float)
        if self.prior is not None:
            return accuracy_of(off, np.asarray(self.prior)[:, None] * matrix)
        each = [astuple(accuracy_of(t, w)) for t, w in zip(off, matrix)]
        return Accuracy(*map(max, zip(*each)))

    def describe(self, result: Result) -> Description:
        return Description(
            title=f"A count from 0 to {self.n}",
            what=f"A count lies between 0 and {self.n}. Between neighbouring data sets it changes by at most {self.sensitivity}. It is answered "
            f"by a whole number between 0 and {self.n}, drawn from a row of a table that depends on the true count.",
            loss=f"expected {Loss.of(self.loss).words} {'at the worst true value' if self.prior is None else 'over the given prior of true values'}",
            picture="The probability of every answer (across) for every true value (down).",
        )

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        losses = (self._geometric * self.losses).sum(axis=1)
        other = losses.max() if self.prior is None else np.asarray(self.prior) @ losses
        yield "truncated geometric mechanism", float(other)

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the table as shades."""
        return draw_matrix(result.mechanism.matrix, "answer", "true value", **options)

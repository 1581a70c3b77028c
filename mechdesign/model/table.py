r"""The unknown table of probabilities, its requirements, and the mechanism that it becomes: laws in integers, drawn for simulation or deployment.

A `Table` *is* a CVXPY variable of shape (inputs, outputs): :math:`P[x, y]` is the probability of output y at input x. It offers the
requirements and errors of the field as CVXPY expressions and constraints; any other affine constraint is written by hand.

>>> import mechdesign as md
>>> P = md.Table(inputs=[0, 1], outputs=[0, 1])
>>> problem = md.Problem(md.Minimize(P.expected("error")), [P.private(md.PureDP(1.0))])
>>> round(problem.solve().value, 6)
0.268941
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

import cvxpy as cp
import numpy as np
from scipy import sparse

from mechdesign.checks import (
    NARROWEST,
    Checked,
    array,
    by_label,
    check_preserved,
    field,
    finite,
    integer,
    integer_weights,
    no_numbers,
    one_of,
    read,
    refuse,
    refusing,
    rounded_weights,
)
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.digits import shown
from mechdesign.evidence.results import Accuracy, accuracy_of
from mechdesign.evidence.serialize import serializable
from mechdesign.model.problem import Requirement, Unknown, named
from mechdesign.problem.mechanism import Deployment, Drawn, Rows, Simulation
from mechdesign.problem.privacy import (
    ApproximateDP,
    GaussianDP,
    MembershipAdvantage,
    MetricDP,
    PureDP,
    ZeroConcentratedDP,
    guarantee,
    pairs_of,
)
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Indices, Numbers, Weights

Labels = tuple[Any, ...]
"""Numbers, points (tuples of numbers) or names, all of one kind."""
Loss: TypeAlias = str | Callable[[Any, Any], Any] | Numbers

MOST_CELLS, MOST_INPUTS = 1_000_000, 2_000
"""Largest sizes of a table."""
_POINTS = "PureDP, ApproximateDP, MetricDP, MembershipAdvantage or TradeOff([(epsilon, delta), ...])"


def labels_of(name: str, value: Any) -> Labels:
    """Return labels as distinct numbers, points or names, or raise DesignError."""
    many = isinstance(value, range) and len(value[: MOST_CELLS + 1]) > MOST_CELLS
    refuse(many, name, value, f"must be at most {MOST_CELLS} labels")
    given = (
        list(value)
        if isinstance(value, (list, tuple, range)) or (hasattr(value, "tolist") and np.ndim(value))
        else []
    )
    if given and all(isinstance(label, str) for label in given):
        found: Labels = tuple(str(label) for label in given)
    else:
        allowed = "must be numbers, points of equal length, or names: one of each input or output"
        refuse(not given or no_numbers(given), name, value, allowed)
        numbers = array(name, given, ndim=None)
        refuse(numbers.ndim > 2, name, value, allowed)
        if all(isinstance(label, (int, np.integer)) and not isinstance(label, bool) for label in given):
            numbers = np.array(given)  # released as whole numbers
        found = tuple(numbers.tolist()) if numbers.ndim == 1 else tuple(map(tuple, numbers.tolist()))
    refuse(len(set(found)) < len(found), name, found, "must all differ; merge those that are equal")
    return found


_LISTED = 8  # most probabilities of a prior that a sentence lists


def weights_words(weights: Array) -> str:
    """Describe a prior by its probabilities, or without them if there are many inputs.

    Examples
    --------
    >>> weights_words(np.array([1.0, 3.0])), weights_words(np.ones(50))
    ('the prior (0.25, 0.75)', 'the prior given')
    """
    shares = ", ".join(f"{w:g}" for w in weights / weights.sum())
    return f"the prior ({shares})" if len(weights) <= _LISTED else "the prior given"


def shown_label(label: object) -> str:
    """Return the print of a label."""
    if isinstance(label, tuple):
        return f"({', '.join(map(shown_label, label))})"
    return label if isinstance(label, str) else f"{label:.6g}"


def points_of_labels(name: str, labels: Labels, remedy: str = "give losses and targets as arrays") -> Array:
    """Return numbers and points as an array of shape (count, coordinates); DesignError for names."""
    refuse(isinstance(labels[0], str), name, labels[0], f"is a name: {remedy}")
    return np.array(labels, dtype=float).reshape(len(labels), -1)


def _lengths(off: Array) -> Array:
    """Return Euclidean lengths along the last axis; numbers are scaled to near 1, so that squares do not overflow."""
    unit = np.frexp(np.abs(off).max())[1]
    return np.asarray(np.ldexp(np.sqrt((np.ldexp(off, -unit) ** 2).sum(axis=-1)), unit))


@serializable("table-privacy", eq=False)
class Private(Requirement):
    """A requirement on pairs of rows of a table, made by `Table.private`.

    Parameters
    ----------
    label : str
    privacy : PureDP, ApproximateDP, MetricDP, MembershipAdvantage or TradeOff
    between : "all", "adjacent" or array of int, shape (k, 2)
        Pairs of inputs, by their positions; each protects both.
    distances : array, shape (inputs, inputs), optional
        Factors of ε, under `MetricDP`.
    """

    between: str | Indices
    distances: Array | None = None

    def check(self, count: int) -> None:
        """Raise DesignError unless it fits `count` inputs."""
        given = self.between
        if not isinstance(given, str) and not (
            given.size and ((given >= 0) & (given < count)).all() and (given[:, 0] != given[:, 1]).all()
        ):
            raise DesignError("between: must be pairs of the table's inputs")
        if self.distances is not None and self.distances.shape != (count, count):
            raise DesignError("distances: must be of the table's inputs")

    def pairs(self, count: int) -> Indices:
        """Return the ordered pairs of inputs, shape (k, 2)."""
        if isinstance(self.between, str):
            i, j = np.nonzero(~np.eye(count, dtype=bool))
            kept = np.abs(i - j) == 1 if self.between == "adjacent" else slice(None)
            return np.column_stack([i, j])[kept]
        both = np.concatenate([self.between, self.between[:, ::-1]])
        return np.unique(both, axis=0)

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """All required (ε, δ); under `MetricDP`, ε is α per unit of distance."""
        if isinstance(self.privacy, MetricDP):
            return ((self.privacy.epsilon, 0.0),)
        return pairs_of(self.privacy)

    @property
    def space(self) -> MetricSpace | None:
        """The metric space of the inputs, if one was given."""
        metric = self.privacy.metric if isinstance(self.privacy, MetricDP) else None
        return metric if isinstance(metric, MetricSpace) else None

    def scaled(self, factor: float) -> Private:
        """Return this requirement with ε multiplied by a factor."""
        if isinstance(self.privacy, MetricDP):
            return replace(self, privacy=replace(self.privacy, epsilon=self.privacy.epsilon * factor))
        return replace(self, privacy=TradeOff(tuple((e * factor, d) for e, d in self.points)))

    def __str__(self) -> str:
        pairs = {"all": "all pairs of inputs", "adjacent": "adjacent inputs"}
        who = (
            pairs[self.between] if isinstance(self.between, str) else f"{len(self.between)} listed pairs only"
        )
        asked = guarantee(self.privacy)
        if self.space is not None:
            asked = f"α = {shown(self.privacy.epsilon)} per {self.space.unit or 'unit of distance'}"
        elif self.distances is not None:
            asked = f"ε = {self.privacy.epsilon:g} · distance"
        return f"{asked}, {who}"


class Errors:
    """Errors of a table of probabilities, as CVXPY expressions: of the unknown itself, or of its decoding."""

    inputs: Labels
    outputs: Labels

    after = ""
    """What the words of an error end with."""

    @property
    def _table(self) -> Any:
        return self

    def losses(self, loss: Loss = "absolute") -> Array:
        """Return the matrix of losses, shape (inputs, outputs).

        Parameters
        ----------
        loss : {"absolute", "squared", "error"}, function of (input, output), or array
            ``"absolute"`` is the distance of output and input, ``"squared"`` its square, ``"error"`` 1 if they differ.
        """
        shape, loss = (len(self.inputs), len(self.outputs)), by_label("loss", loss, self.inputs, self.outputs)
        if isinstance(loss, str):
            one_of("loss", loss, ("absolute", "squared", "error"))
            if loss == "error":
                return np.array([[float(x != y) for y in self.outputs] for x in self.inputs])
            x, y = points_of_labels("inputs", self.inputs), points_of_labels("outputs", self.outputs)
            refuse(x.shape[1] != y.shape[1], "loss", loss, "needs inputs and outputs of as many coordinates")
            with np.errstate(over="ignore", under="ignore"):
                off = x[:, None] - y
                squared = np.asarray((off * off).sum(axis=2))
                plain = np.abs(off[..., 0]) if x.shape[1] == 1 else _lengths(off)
            found, least = (squared, NARROWEST**2) if loss == "squared" else (plain, 0.0)
            remedy = "asks for numbers that doubles do not hold: choose other units"
            refuse(off.any() and not least < found.max() < np.inf, "loss", loss, remedy)
            return found
        try:
            given = [[loss(x, y) for y in self.outputs] for x in self.inputs] if callable(loss) else loss
            held: Any = np.ma.asarray(given)
        except (TypeError, ValueError, ArithmeticError, LookupError) as reason:
            allowed = f"must be a number of each input and output, or a function of the two: {reason}"
            raise DesignError.of("loss", getattr(loss, "__name__", "given"), allowed) from reason
        found = array("loss", held.astype(float) if held.dtype == bool else given, ndim=None)
        remedy = f"must have a row an input and a column an output: {shape}"
        refuse(found.shape != shape, "loss", found.shape, remedy)
        return found

    def expected(self, loss: Loss = "absolute", prior: Numbers | None = None) -> cp.Expression:
        """Return the expected loss over a prior of the inputs, uniform by default."""
        count = len(self.inputs)
        weights = (
            np.full(count, 1.0) if prior is None else array("prior", by_label("prior", prior, self.inputs))
        )
        allowed = f"must be a weight of each of the {count} inputs, not all zero"
        refuse(weights.shape != (count,) or (weights < 0).any() or not weights.any(), "prior", prior, allowed)
        over = "a uniform prior" if prior is None else weights_words(weights)
        total = math.fsum(weights.tolist())
        costs = self.losses(loss) * weights[:, None] / total
        found: cp.Expression = cp.sum(cp.multiply(costs, self._table))
        found.set_label(f"expected {_loss_words(loss)}, over {over}{self.after}")
        return found

    def worst(self, loss: Loss = "absolute") -> cp.Expression:
        """Return the largest expected loss over the inputs."""
        found: cp.Expression = cp.max(cp.sum(cp.multiply(self.losses(loss), self._table), axis=1))
        found.set_label(f"expected {_loss_words(loss)}, at the worst input{self.after}")
        return found

    def bias(self, target: Numbers | None = None) -> cp.Expression:
        """Return the expected output less `target` for each input; the target is the inputs themselves by default."""
        outputs = points_of_labels("outputs", self.outputs)
        goal = (
            points_of_labels("inputs", self.inputs)
            if target is None
            else array("target", by_label("target", target, self.inputs), ndim=None)
        )
        goal = goal.reshape(len(goal), -1) if goal.ndim else goal
        if goal.shape != (len(self.inputs), outputs.shape[1]):
            shape = (len(self.inputs), outputs.shape[1])
            raise DesignError.of("target", goal.shape, f"must have a value of each input, shape {shape}")
        column = slice(None) if outputs.shape[1] > 1 else 0
        found: cp.Expression = self._table @ outputs[:, column] - goal[:, column]
        return found

    def unbiased(self, target: Numbers | None = None) -> cp.Constraint:
        """Require that the bias is 0 at every input."""
        found: cp.Constraint = named("unbiased", self.bias(target) == 0)
        return found


class Table(Errors, Unknown):
    """Conditional probabilities of outputs given inputs, both finite: the unknown of a problem, and a CVXPY variable.

    Parameters
    ----------
    inputs, outputs : sequences of numbers, points or names
        All different; in the order of rows and columns.
    of : {"person", "data"}
        Whether each person holds one input and sends one output (a local report), or an input is a statistic of a data set, whose
        releases a ledger counts.
    neighbours : {"add-remove", "replace"}
        For ``of="data"``: the relation of data sets that the protected pairs of inputs come from.

    Examples
    --------
    >>> P = Table(inputs=[-1, 0, 1], outputs=[-2, 2])
    >>> P.shape, (P[:, 1] <= 0.9).is_dcp()
    ((3, 2), True)
    """

    problem_class = "mechdesign.model.table_problem:TableProblem"

    def __init__(
        self, inputs: Any, outputs: Any, *, of: str = "person", neighbours: str = "add-remove"
    ) -> None:
        self.inputs, self.outputs = labels_of("inputs", inputs), labels_of("outputs", outputs)
        allowed = "must be two at least: of one there is nothing to protect"
        refuse(len(self.inputs) < 2, "inputs", self.inputs, allowed)
        self.of = one_of("of", of, ("person", "data"))
        self.neighbours = one_of("neighbours", neighbours, ("add-remove", "replace"))
        cells = len(self.inputs) * len(self.outputs)
        if cells > MOST_CELLS or len(self.inputs) > MOST_INPUTS:
            largest = f"is too large a table: at most {MOST_CELLS}, of {MOST_INPUTS} inputs, are taken; merge labels"
            raise DesignError.of("cells", cells, largest)
        super().__init__((len(self.inputs), len(self.outputs)), nonneg=True, name="P")

    def stated(self) -> dict[str, Any]:
        """Return the fields of a problem in numbers that describe it."""
        return {name: getattr(self, name) for name in ("inputs", "outputs", "of", "neighbours")}

    def private(self, privacy: Any, *, between: str | Sequence[tuple[Any, Any]] = "all") -> Private:
        """Require privacy for pairs of inputs.

        Parameters
        ----------
        privacy : PureDP, ApproximateDP, MetricDP, MembershipAdvantage or TradeOff
            `MetricDP` takes a `MetricSpace` of the inputs as its metric too: its names or points are theirs, in any order. A space of neither,
            and one whose points the inputs number from 0 on, is taken in their order.
        between : "all", "adjacent" or pairs of inputs
            ``"adjacent"``: numbers next to each other, in a monotone list of inputs. Each pair protects both of its inputs.

        Raises
        ------
        DesignError
            A requirement that needs infinitely many rows, or pairs that are not of inputs.
        """
        if isinstance(privacy, (ZeroConcentratedDP, GaussianDP)):
            remedy = "is no finite number of linear rows: state points of its curve, TradeOff([(epsilon, delta), ...])"
            raise DesignError.of("privacy", privacy, remedy)
        if not isinstance(privacy, (PureDP, ApproximateDP, MetricDP, MembershipAdvantage, TradeOff)):
            raise DesignError.of("privacy", privacy, f"must be {_POINTS}")
        if isinstance(privacy, TradeOff):
            pairs_of(privacy)  # refuses an empty one
        distances = None
        if isinstance(privacy, MetricDP):
            if isinstance(privacy.metric, MetricSpace):
                privacy = replace(privacy, metric=privacy.metric.ordered(self.inputs))
            distances = self.distances(privacy)
        return Private("private", privacy, self._between(between), distances, unknown=self)

    def decoded(self, decoder: Numbers, outputs: Any = None) -> Decoded:
        """Return the table after post-processing, P @ decoder, with the same errors.

        Parameters
        ----------
        decoder : array, shape (outputs, decoded outputs)
            Rows are probabilities.
        outputs : optional
            Labels of the decoded outputs; those of the table by default.
        """
        labels = self.outputs if outputs is None else labels_of("outputs", outputs)
        held = array("decoder", by_label("decoder", decoder, self.outputs, labels), ndim=2)
        if held.shape != (len(self.outputs), len(labels)):
            raise DesignError.of("decoder", held.shape, f"must have shape {(len(self.outputs), len(labels))}")
        if (held < 0).any() or (np.abs(held.sum(axis=1) - 1) > 1e-9).any():
            raise DesignError("decoder: rows must be probabilities that sum to 1")
        return Decoded(self.inputs, labels, self @ held)

    def distances(self, privacy: MetricDP) -> Array:
        """Return the distances of the inputs by the requirement's metric, shape (inputs, inputs)."""
        count = len(self.inputs)
        if isinstance(privacy.metric, MetricSpace):
            found = privacy.metric.ordered(self.inputs).distances
        else:
            points = points_of_labels("inputs", self.inputs)
            if points.shape[1] > 1 and privacy.metric == "absolute":
                found = _lengths(points[:, None] - points)
            else:
                x = points[:, 0] if points.shape[1] == 1 else points
                found = array("metric", privacy.distance(x[:, None], x[None]), ndim=None)
        if found.shape != (count, count) or (found < 0).any() or not np.array_equal(found, found.T):
            allowed = f"must give symmetric distances of the {count} inputs, at least 0"
            raise DesignError.of("metric", found.shape, allowed)
        return found

    @property
    def _ordered(self) -> bool:
        """Return whether the inputs are numbers in monotone order, so that those next to each other are adjacent."""
        if not all(isinstance(x, (int, float)) for x in self.inputs):
            return False
        steps = np.diff(np.array(self.inputs, dtype=float))
        return bool((steps > 0).all() or (steps < 0).all())

    def _between(self, between: Any) -> str | Indices:
        if isinstance(between, str):
            if one_of("between", between, ("all", "adjacent")) == "adjacent" and not self._ordered:
                remedy = "needs inputs that are numbers in rising or falling order: list the pairs, or sort the inputs"
                raise DesignError.of("between", between, remedy)
            return between
        places = {label: k for k, label in enumerate(self.inputs)}
        remedy = 'must be "all", "adjacent" or pairs of different inputs, such as [(0, 1)]'
        with refusing("between", between, remedy, KeyError, TypeError):
            pairs = [tuple(places[labels_of("between", [label])[0]] for label in pair) for pair in between]
            if not pairs or any(len(pair) != 2 or pair[0] == pair[1] for pair in pairs):
                raise KeyError
        return np.array(pairs, dtype=np.int64)


class Decoded(Errors):
    """A table after post-processing: an expression with a table's errors."""

    after = ", after decoding"

    def __init__(self, inputs: Labels, outputs: Labels, expression: Any) -> None:
        self.inputs, self.outputs, self.expression = inputs, outputs, expression

    @property
    def _table(self) -> Any:
        return self.expression


def named_losses(words: str, inputs: Labels, outputs: Labels, cost: Array) -> Any:
    """Return the expected losses, linear in the cells of a table, whose largest these words of `Errors` name; None for other words.

    The weights of a prior, which the words print to six digits, are those of `cost`; they sum to 1.
    """
    if (found := _NAMED.fullmatch(words)) is None:
        return None
    loss, count = {"share of wrong outputs": "error"}.get(found[1], found[1].split()[0]), len(inputs)
    losses = Decoded(inputs, outputs, None).losses(loss)
    if found[2] is None:
        return sparse.block_diag([*losses[:, None]], format="csr")
    weights, farthest = np.full(count, 1 / count), losses.argmax(axis=1)
    if found[2] != "a uniform prior" and losses.any(axis=1).all():
        each = cost[: losses.size].reshape(losses.shape)[np.arange(count), farthest]
        weights = each / losses[np.arange(count), farthest]
        printed = np.array(found[3].split(", "), dtype=float) if found[3] else weights
        if printed.shape != weights.shape or not np.allclose(weights, printed, rtol=1e-5, atol=0):
            return np.zeros((0, losses.size))
        weights = np.maximum(weights, 0) / np.maximum(weights, 0).sum()
    return (losses * weights[:, None]).reshape(1, -1)


_SHARE = r"\d+(?:\.\d+)?(?:e-\d+)?"
_NAMED = re.compile(
    r"expected (absolute error|squared error|share of wrong outputs), "
    rf"(?:at the worst input|over (a uniform prior|the prior given|the prior \(({_SHARE}(?:, {_SHARE})*)\)))"
)


def _loss_words(loss: Loss) -> str:
    if isinstance(loss, str):
        return {"error": "share of wrong outputs"}.get(loss, f"{loss} error")
    return f"loss {getattr(loss, '__name__', 'given')}" if callable(loss) else "loss"


@serializable("table-mechanism", eq=False)
class TableMechanism(Checked, Rows, Drawn):
    """A finite table of probabilities in integers: the mechanism to deploy.

    Parameters
    ----------
    inputs, outputs : tuples of numbers, points or names
    weights : tuple of rows of int
        Output y has probability ``weights[x][y] / sum(weights[x])`` at input x, exactly.

    Examples
    --------
    >>> mechanism = TableMechanism((0.0, 1.0), ("no", "yes"), ((3, 1), (1, 3)))
    >>> mechanism.probabilities.tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    >>> set(mechanism.release([0, 1, 1])) <= {"no", "yes"}
    True
    """

    inputs: Labels = field(check=labels_of)
    outputs: Labels = field(check=labels_of)
    weights: Weights = field(check=integer_weights)

    def _post_check(self) -> None:
        shaped = (len(self.weights), len(self.weights[0])) == (len(self.inputs), len(self.outputs))
        DesignError.when(not shaped, "weights: must have a row of each input and a column of each output")

    @cached_property
    def probabilities(self) -> Array:
        """The table in doubles, each rounded once; shape (inputs, outputs)."""
        return rounded_weights(self.weights)

    @property
    def laws(self) -> int:
        return len(self.weights)

    def integers(self, row: int) -> tuple[int, ...]:
        return self.weights[integer("row", row, 0, self.laws - 1)]

    @cached_property
    def _rising(self) -> tuple[Array, Indices] | None:
        """Inputs that are doubles in rising order, and the place of each; None for names, points and larger whole numbers."""
        if not isinstance(self.inputs[0], (str, tuple)):
            values = np.array(self.inputs, dtype=float)
            if values.tolist() == list(self.inputs):
                return np.sort(values), np.argsort(values)
        return None

    def _places(self, x: Any) -> Indices:
        size = len(self.inputs[0]) if isinstance(self.inputs[0], tuple) else 0
        with DataError.where("x: must be inputs of the table", KeyError, TypeError, ValueError):
            if self._rising is not None:
                values, order = self._rising  # arrays: the time of a dictionary tells 0 from other numbers
                numbers = finite("x", given := read("x", x))
                check_preserved("x", given, numbers)
                at = np.searchsorted(values[:-1], numbers)
                DataError.when((values[at] != numbers).any(), "x: must be inputs of the table")
                return order[at]
            places = {label: k for k, label in enumerate(self.inputs)}
            named = isinstance(self.inputs[0], str) and not np.ma.is_masked(x)
            held = np.asarray(x, dtype=object) if named else read("x", x)
            flat = map(tuple, held.reshape(-1, size).tolist()) if size else held.ravel().tolist()
            found = [places[label] for label in flat]  # exact matches only
            return np.array(found, dtype=np.int64).reshape(held.shape[: held.ndim - bool(size)])

    def drawn(self, x: Any, source: Simulation | Deployment) -> Any:
        """Draw an output for every input with the randomness of `source`."""
        held = self._places(x)
        labels = np.array(self.outputs)[source.choose(self, held.ravel()).reshape(held.shape)]
        return labels if np.ndim(labels) else labels.item()

    def errors(self, space: MetricSpace | None = None) -> Accuracy:
        """Return the errors of outputs over a uniform prior of inputs; outputs that are places of a space, by its distances."""
        if space is not None and self.inputs == self.outputs:
            off = space.distances
        else:
            remedy = "names have no distance from each other; the error is the value of the result"
            sides = ("inputs", self.inputs), ("outputs", self.outputs)
            x, y = (points_of_labels(name, labels, remedy) for name, labels in sides)
            if space is not None or x.shape[1] != y.shape[1]:
                raise DesignError("outputs: must be places among the inputs, which alone have distances")
            off = _lengths(x[:, None] - y)
        return accuracy_of(off, self.probabilities / len(self.inputs))

r"""Audit of somebody else's printed table of output probabilities: violated constraints, and its distance from the optimum.

The table is :math:`P_{ij} = \Pr[M(x_i) = y_j]`. Its entries, exact as printed, are checked against

.. math:: P_{ij} \le e^{\varepsilon} P_{kj} \quad\text{or}\quad \sum_j [P_{ij} - e^{\varepsilon} P_{kj}]_+ \le \delta
          \qquad \text{for all inputs } i, k,

and its expected loss :math:`\sum_i w_i \sum_j P_{ij}\,\ell(y_j - x_i)` against the least of every mechanism between the same
inputs and outputs that meets the required privacy: once unbiased, once with the table's own bias at every input. Both are declared as a
problem on a `Table`, and their lower bounds proved from rows and multipliers; the table's means are fractions but rows have doubles, so their
rounding error times its multiplier is subtracted.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import cvxpy as cp
import numpy as np
import pandas as pd

from mechdesign.checks import array, instance, integer, non_negative, number, one_of, refuse, refusing
from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.digits import at_least, at_most, folded, shown
from mechdesign.evidence.exact import exp_lower, log_upper, round_down, round_up
from mechdesign.evidence.files import number_of, whole_text
from mechdesign.evidence.proofs import RowsBound
from mechdesign.model.problem import named
from mechdesign.model.table import Table
from mechdesign.model.table_problem import TableProblem
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import ApproximateDP, PureDP, guarantee
from mechdesign.problem.spine import Bound, Clock
from mechdesign.typing import Array, Numbers

_T = TypeVar("_T")
_ENTRIES = 40_000
_ROWS = 200_000  # most rows of the program under (ε, δ): ordered pairs of inputs, times outputs
_COARSEST = Fraction(1, 10**9)  # least rounding of tables of doubles: a solver's tolerance
_EPSILON = 200
_SHOWN = 20  # most faults of a table that a message lists
_MISSING = {"", "None", "nan", "NaN", "sNaN", "NaT", "<NA>"}  # texts of libraries for missing entries


@dataclass(frozen=True, eq=False)
class TableAudit:
    """Result of `audit_table`.

    Attributes
    ----------
    inputs, outputs : arrays
    privacy : PureDP or ApproximateDP
        The claimed privacy.
    epsilon, delta : float
        The least ε of pure privacy that the table satisfies, rounded up (infinite if an output has probability 0 at some inputs
        only); the least δ at the claimed ε, rounded up.
    constraints : pandas.DataFrame
        One row per constraint: family ("privacy", "row sums"), index, left and right side, slack, and whether it can hold within
        the printed digits; least slack first.
    biases : pandas.DataFrame
        For every input: bias and expected loss.
    value : float
        Expected loss under the weights, rounded up.
    lower_bound, lower_bound_same_bias : float or None
        Proved lower bound on the loss of mechanisms between these inputs and outputs with the claimed privacy that are unbiased, or have the
        table's bias at every input. None if there is no such mechanism, or the program is too large (`notes`).
    best : TableProblem
        The problem of the unbiased table of least expected loss: ``best.solve()`` gives a mechanism to replace the table.
    """

    inputs: Array
    outputs: Array
    privacy: PureDP | ApproximateDP
    loss: Loss
    rounding: float
    epsilon: float
    delta: float
    constraints: pd.DataFrame
    biases: pd.DataFrame
    value: float
    lower_bound: float | None
    lower_bound_same_bias: float | None
    best: TableProblem
    notes: tuple[str, ...] = field(default=())

    @property
    def holds(self) -> bool:
        """Whether the table, exactly as printed, satisfies the claimed privacy."""
        return bool((self._rows("privacy")["slack"] >= 0).all())

    @property
    def distance(self) -> float | None:
        """Relative excess of the table's loss over the lower bound with its own bias; it may be negative if the table exceeds its budget."""
        bound = self.lower_bound_same_bias
        return None if not bound else self.value / bound - 1

    def to_csv(self, path: str | Path) -> None:
        """Write the constraints."""
        self.constraints.to_csv(path, index=False)

    def __str__(self) -> str:
        private = self._rows("privacy")
        over = private[private["slack"] < 0]
        kept = "kept" if over.empty else f"NOT kept: {len(over)} of {len(private)} constraints broken"
        lines = [
            f"table of {len(self.inputs)} inputs and {len(self.outputs)} outputs",
            f"  claimed {guarantee(self.privacy)}: {kept}",
            f"  exact: ε = {at_most(self.epsilon)} with δ = 0; δ = {at_most(self.delta)} at ε = {shown(self.privacy.epsilon)}",
        ]
        for row in over.head(3).itertuples(index=False):
            room = "; digits printed leave room for it to hold" if row.rounding else ""
            lines.append(f"  {row.index}: {row.lhs:.6g} > {row.rhs:.6g}, by {-row.slack:.3g}{room}")
        worst = self.biases.loc[self.biases["bias"].abs().idxmax()]
        lines.append(f"  largest bias: {worst['bias']:.6g} at x = {worst['input']:g}")
        lines.append(f"  expected loss ({self.loss.name}): {at_most(self.value)}")
        for bound, words in (
            (self.lower_bound, "if unbiased"),
            (self.lower_bound_same_bias, "with the table's bias"),
        ):
            if bound is not None:
                more = f", {self.value / bound - 1:+.2%} from there to the table" if bound > 0 else ""
                lines.append(
                    f"  proved least of every mechanism between these inputs and outputs, {words}: {at_least(bound)}{more}"
                )
        return folded("\n".join([*lines, *(f"  note: {note}" for note in self.notes)]))

    def _rows(self, family: str) -> pd.DataFrame:
        return self.constraints[self.constraints["family"].eq(family)]


def audit_table(
    table: object,
    inputs: Numbers | None = None,
    outputs: Numbers | None = None,
    privacy: PureDP | ApproximateDP | None = None,
    *,
    weights: Numbers | None = None,
    loss: object = "squared",
    rounding: float | None = None,
    time_limit: float | None = None,
    skip: int = 0,
    percent: bool = False,
    index: str | None = None,
) -> TableAudit:
    """Audit a table of output probabilities against the claimed privacy, and against the optimum.

    Parameters
    ----------
    table : array_like, shape (n, m); pandas.DataFrame; or path of a CSV file
        The probability of output j at input i. A data frame has the inputs as index and the outputs as columns; a file has
        the outputs in its first line and an input at the head of every other.
    inputs, outputs : array_like
        Distinct numbers; only if `table` is an array.
    privacy : PureDP or ApproximateDP
        The claimed privacy.
    weights : array_like, shape (n,), optional
        Weights of the inputs in the expected loss; equal by default.
    loss : "squared", "absolute", dict of the two, or callable
    rounding : float, optional
        Half a unit of the last printed digit; by default that of the entry with the most decimals, and at least 1e-9.
    time_limit : float, optional
        Seconds for each of the two programs.
    skip : int
        Lines of a file before the one that holds the outputs.
    percent : bool
        Whether entries are in percent, as 12.5 or 12.5%.
    index : str, optional
        Heading of a file's column of inputs; columns before it are left out. By default the first column.

    Returns
    -------
    TableAudit

    Raises
    ------
    DesignError
        Entries that are missing, negative or no number, rows that do not sum to 1 within the printed digits: the error lists them by row
        and column.

    Examples
    --------
    >>> found = audit_table([[0.7311, 0.2689], [0.2689, 0.7311]], [-1, 1], [-2.2, 2.2], PureDP(1))
    >>> found.holds, round(found.epsilon, 5), bool(found.constraints.rounding[0])
    (False, 1.00021, True)
    """
    if privacy is None:
        raise DesignError.of("privacy", None, "must be what the table claims: PureDP(1.0), say")
    instance("privacy", privacy, PureDP, ApproximateDP)
    remedy = f"must be at most {_EPSILON}: beyond, nothing is protected"
    refuse(not privacy.epsilon <= _EPSILON, "epsilon", privacy.epsilon, remedy)
    measure = Loss.of(loss)
    exact, x, y, unit = _exact(table, inputs, outputs, rounding, skip, percent, index)
    w = np.full(len(x), 1 / len(x)) if weights is None else _weights(weights, len(x))
    constraints, epsilon, delta = _privacy(exact, x, y, privacy, unit)
    sums = [sum(row) for row in exact]
    rows = [
        ("row sums", f"x = {place:g}", float(total), 1.0, -float(abs(total - 1)), True)
        for place, total in zip(x, sums, strict=True)
    ]
    table_of = pd.DataFrame(
        [*constraints, *rows], columns=["family", "index", "lhs", "rhs", "slack", "rounding"]
    )
    cost = measure(y[None, :] - x[:, None])
    errors = [_mean(row, costs) for row, costs in zip(exact, cost.tolist(), strict=True)]
    ideal = [Fraction(v) for v in x.tolist()]
    bias = [_mean(row, y.tolist()) - v for row, v in zip(exact, ideal, strict=True)]
    least = np.nextafter(w[:, None] * cost, -np.inf)
    unknown = Table(x, y)
    target = cp.sum(cp.multiply(least, unknown))
    target.set_label(f"expected loss ({measure.name})")
    problems, found = list[TableProblem](), list[tuple[float | None, tuple[str, ...]]]()
    for words, wanted in (
        ("unbiased", ideal),
        ("with the table's bias", [v + b for v, b in zip(ideal, bias)]),
    ):
        means = named("means", unknown.unbiased([float(mean) for mean in wanted]))
        problems.append(TableProblem(cp.Minimize(target), (unknown.private(privacy), means)))
        found.append(_least(problems[-1], wanted, time_limit, words))
    return TableAudit(
        inputs=x,
        outputs=y,
        privacy=privacy,
        loss=measure,
        rounding=float(unit),
        epsilon=epsilon,
        delta=delta,
        constraints=table_of.sort_values("slack", kind="stable", ignore_index=True),
        biases=pd.DataFrame(
            {"input": x, "bias": [float(b) for b in bias], "loss": [float(e) for e in errors]}
        ),
        value=round_up(_mean(errors, w.tolist())),
        lower_bound=found[0][0],
        lower_bound_same_bias=found[1][0],
        best=problems[0],
        notes=(*found[0][1], *found[1][1]),
    )


# -- reading ------------------------------------------------------------------------------------------


def _exact(
    table: object,
    inputs: Numbers | None,
    outputs: Numbers | None,
    rounding: float | None,
    skip: int,
    percent: bool,
    index: str | None,
) -> tuple[list[list[Fraction]], Array, Array, Fraction]:
    """Return a table's entries, its inputs and outputs, and half a unit of the last digit; raise all faults at once."""
    one_of("percent", percent, (True, False))
    faults: list[str] = []
    if isinstance(table, str | Path):
        table = _lines(Path(table), integer("skip", skip, 0), index, faults)
    cells, x, y = _read(table, inputs, outputs, percent, faults)
    digits = (-int(v.as_tuple().exponent) for row in cells for v in row if isinstance(v, Decimal))
    decimals = max([0, *digits])  # of an entry as printed
    unit = max(Fraction(1, 2 * 10**decimals), _COARSEST)
    if rounding is not None:
        unit = Fraction(non_negative("rounding", rounding))
    whole = [row for row in cells if None not in row]
    exact = [[Fraction(cell) for cell in row] for row in whole]
    faults += _off(exact, [place for place, row in zip(x, cells) if None not in row], unit)
    _raise(faults)
    return exact, x, y, unit


def _kept(faults: list[str], read: Callable[..., _T], *arguments: Any) -> _T | None:
    """Call `read` and return its answer; if it raises DesignError, add the message to `faults` and return None."""
    try:
        return read(*arguments)
    except DesignError as error:
        faults.append(str(error))
        return None


def _raise(faults: list[str]) -> None:
    """Raise all faults in one error, or the first `_SHOWN` of many."""
    if faults:
        more = len(faults) - _SHOWN
        several = f"table: {len(faults)} faults: " if len(faults) > 1 else ""
        raise DesignError(several + "; ".join(faults[:_SHOWN]) + (f"; and {more} more" if more > 0 else ""))


def _read(
    table: object, inputs: Numbers | None, outputs: Numbers | None, percent: bool, faults: list[str]
) -> tuple[list[list[Any]], Array, Array]:
    """Return entries as numbers or decimals, None for refused ones, with inputs and outputs."""
    if isinstance(table, pd.DataFrame):
        words = "are the index and the columns of the table already: leave them out"
        DesignError.when(inputs is not None or outputs is not None, f"inputs, outputs: {words}")
        named = [("input", v) for v in table.index], [("output", v) for v in table.columns]
        places, ends = ([_kept(faults, _number, *pair) for pair in pairs] for pairs in named)
        if None in [*places, *ends]:
            _raise(faults)
        inputs, outputs = np.array(places, dtype=float), np.array(ends, dtype=float)
        table = table.to_numpy(dtype=object)
    entries: Any = np.ma.array(table, dtype=object).filled(math.nan)
    if entries.ndim != 2 or not entries.size:
        raise DesignError.of("table", np.shape(entries), "must have two axes: inputs, and outputs")
    cells: list[list[Any]] = entries.tolist()
    if inputs is None or outputs is None:
        words = "give the numbers that the rows and the columns of the table stand for"
        raise DesignError(f"inputs, outputs: {words}")
    x, y = (_distinct(name, v) for name, v in (("inputs", inputs), ("outputs", outputs)))
    if len(cells) != len(x) or any(len(row) != len(y) for row in cells):
        wide = sorted({len(row) for row in cells})
        raise DesignError(
            f"table: has {len(cells)} rows of {wide} entries; {len(x)} inputs and {len(y)} outputs are given"
        )
    allowed = f"table: {len(x)} inputs times {len(y)} outputs; two inputs at least and {_ENTRIES} entries at most are taken"
    DesignError.when(len(x) * len(y) > _ENTRIES or len(x) < 2, allowed)
    found = [
        [_kept(faults, _cell, cell, x[i], y[j], percent) for j, cell in enumerate(row)]
        for i, row in enumerate(cells)
    ]
    return found, x, y


def _lines(path: Path, skip: int, index: str | None, faults: list[str]) -> pd.DataFrame:
    """Return the table of a file; lines whose length differs from the first are faults."""
    try:
        read = csv.reader(io.StringIO(whole_text(path), newline=""))
        lines = enumerate(islice(read, skip, None), skip + 1)
        rows = {k: [cell.strip() for cell in row] for k, row in lines if any(map(str.strip, row))}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DesignError(f"table: {path} cannot be read as CSV ({error})") from None
    allowed = f"table: {path} has {len(rows)} lines; the first holds the outputs, every other an input and its probabilities"
    DesignError.when(len(rows) < 3, allowed)
    head = rows.pop(min(rows))
    allowed = f"table: {path} is separated by semicolons: separate by commas, and turn decimal commas into points (tr ',;' '.,')"
    DesignError.when(all(";" in "".join(row) for row in rows.values()), allowed)
    allowed = f"must be a heading of the first line that is read, {head!r:.200}"
    refuse(index is not None and index not in head, "index", index, allowed)
    first = 0 if index is None else head.index(index)
    wide = len(head) - first - 1
    faults += [
        f"table: line {k} of {path} has {len(row) - first - 1} probabilities; the first line names {wide} outputs"
        for k, row in rows.items()
        if len(row) != len(head)
    ]
    held = [row[first:] for row in rows.values() if len(row) == len(head)]
    if len(held) < 2:
        _raise(faults)
    return pd.DataFrame([row[1:] for row in held], index=[row[0] for row in held], columns=head[first + 1 :])


def _number(name: str, value: object) -> float:
    allowed = "must be a number: the first line holds the outputs, every other begins with its input"
    with refusing(name, value, allowed, ValueError):
        return number(name, number_of(value) if isinstance(value, str) else value)


def _distinct(name: str, values: Numbers) -> Array:
    found = array(name, values)
    wanted = "must be between 1e-100 and 1e100 in size, the largest of them: choose another unit"
    refuse(found.any() and not 1e-100 <= np.abs(found).max() <= 1e100, name, values, wanted)
    for k in range(1, len(found)):
        refuse(found[k] in found[:k], name, float(found[k]), "stands there twice")
    return found


def _cell(value: Any, x: float, y: float, percent: bool) -> Decimal | Fraction:
    """Return an entry exactly as written; a double by its shortest decimal."""
    where = f"table: the probability of output {y:g} at input {x:g}"
    if isinstance(value, Fraction):
        found: Decimal | Fraction = value
    else:
        alone = value.item() if hasattr(value, "item") and not np.ndim(value) else value
        text = str(alone) if isinstance(alone, str | Decimal) else repr(alone)
        DesignError.when(value is np.ma.masked or text in _MISSING, f"{where} is missing")
        text = text.removesuffix("%").rstrip() if percent else text
        if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", text):
            raise DesignError(f"{where} is {text[:40]!r}, which is no number")
        found = Decimal(text)
    if percent:
        found = found.scaleb(-2) if isinstance(found, Decimal) else found / 100
    DesignError.when(not 0 <= found <= 1, f"{where} is {float(found):g}; it must be in [0, 1]")
    return found


def _weights(values: Numbers, size: int) -> Array:
    found = array("weights", values)
    if len(found) != size or (found < 0).any() or not found.sum() > 0:
        raise DesignError.of("weights", values, f"must be {size} numbers of at least 0, not all of them 0")
    return np.asarray(found / found.sum())


def _off(rows: list[list[Fraction]], places: list[float], unit: Fraction) -> Iterator[str]:
    """Yield faults of rows that do not sum to 1 within the printed digits."""
    for place, row in zip(places, rows, strict=True):
        if abs(sum(row, Fraction(0)) - 1) > unit * len(row):
            remedy = "give rounding=, half a unit of the last digit printed, if that explains it"
            yield f"table: the probabilities at input {place:g} sum to {float(sum(row)):.9g}, not to 1; {remedy}"


# -- privacy ------------------------------------------------------------------------------------------


def _privacy(
    table: list[list[Fraction]], x: Array, y: Array, privacy: PureDP | ApproximateDP, unit: Fraction
) -> tuple[list[tuple[Any, ...]], float, float]:
    """Return the constraints with their slack, the least pure ε, and the least δ at the given ε, in integers over one denominator."""
    whole = math.lcm(unit.denominator, *(p.denominator for row in table for p in row))
    law = np.array([[int(p * whole) for p in row] for row in table], dtype=object)
    half, scale = int(unit * whole), 1 << 128  # fractional bits of e^ε, rounded down
    factor = math.floor(exp_lower(privacy.epsilon) * scale)
    lowest, highest = law.argmin(axis=0), law.max(axis=0)
    least = law[lowest, range(len(y))]
    ratios = [Fraction(int(most), int(few)) for most, few in zip(highest, least, strict=True) if few]
    epsilon = (
        math.inf if ((least == 0) & (highest > 0)).any() else log_upper(max(ratios, default=Fraction(1)))
    )
    rows: list[tuple[Any, ...]] = []
    if isinstance(privacy, PureDP):
        for i, j in np.ndindex(law.shape):
            k = int(lowest[j])
            if i != k:
                right = Fraction(factor * int(least[j]), scale * whole)
                fits = bool(scale * (law[i, j] - half) <= factor * (least[j] + half))
                index = f"output {y[j]:g}: x = {x[i]:g} against x = {x[k]:g}"
                left = Fraction(int(law[i, j]), whole)
                rows.append(("privacy", index, float(left), float(right), float(right - left), fits))
    worst, allowed = Fraction(0), Fraction(getattr(privacy, "delta", 0.0))
    for i, one in enumerate(law):
        over = np.maximum(scale * one - factor * law, 0)  # against every other input
        totals = [Fraction(int(total), scale * whole) for total in over.sum(axis=1)]
        worst = max(worst, *totals)
        if isinstance(privacy, ApproximateDP):
            fewest = np.maximum(scale * (one - half) - factor * (law + half), 0).sum(axis=1)
            for k, total in enumerate(totals):
                if i != k:
                    index = f"x = {x[i]:g} against x = {x[k]:g}, most at output {y[over[k].argmax()]:g}"
                    fits = bool(Fraction(int(fewest[k]), scale * whole) <= allowed)
                    rows.append(
                        ("privacy", index, float(total), float(allowed), float(allowed - total), fits)
                    )
    return rows, epsilon, round_up(worst)


# -- the best -----------------------------------------------------------------------------------------


def _mean(probabilities: Iterable[Fraction], values: Iterable[float]) -> Fraction:
    """Return the exact mean of values."""
    terms = (p * Fraction(v) for p, v in zip(probabilities, values, strict=True))
    return sum(terms, Fraction(0))


def _least(
    problem: TableProblem, means: list[Fraction], time_limit: float | None, words: str
) -> tuple[float | None, tuple[str, ...]]:
    """Return a lower bound for tables that have these means up to rounding, or None with a note that says why."""
    declared = problem.declared
    if isinstance(problem.privacy, ApproximateDP) and declared.n * (declared.n - 1) * declared.m > _ROWS:
        size = f"{declared.n} inputs and {declared.m} outputs have more than {_ROWS} constraints"
        return None, (f"no lower bound of mechanisms {words}: {size} under (ε, δ)",)
    bounds = (one for one in problem.improve(Clock(time_limit)) if isinstance(one, Bound))
    try:  # the first bound is the least loss of each input, the second that of the rows
        found = max(islice(bounds, 2), key=lambda one: one.value)
    except InfeasibleError as error:
        return None, (f"no mechanism {words} has {guarantee(problem.privacy)}: {error}",)
    except SolverError as error:
        return None, (f"no lower bound of mechanisms {words}: {error}",)
    assert isinstance(found.proof, RowsBound)
    off = [abs(mean + Fraction(k)) for mean, k in zip(means, declared.offsets.tolist(), strict=True)]
    own = zip(found.proof.rows.tolist(), found.proof.multipliers)
    lost = sum((abs(price) * off[row] for row, price in own if row < len(off)), Fraction(0))
    bound = round_down(Fraction(found.value) - lost)
    return (max(bound, 0.0) if (declared.cost >= 0).all() else bound), ()

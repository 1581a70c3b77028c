"""Audit problems on tables, and draw their solutions."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.evidence.results import audit_rows
from mechdesign.model.declared import Declared, Part
from mechdesign.model.exactly import Face
from mechdesign.model.table import shown_label
from mechdesign.plotting import draw_matrix
from mechdesign.typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LISTED = 1_000_000
"""Rows of a requirement up to which an audit lists all; of more, that of least slack of each pair."""


def audit_table(declared: Declared, v: list[Any], multipliers: dict[int, Fraction]) -> pd.DataFrame:
    """Every row of every family: family, index, lhs, rhs, slack, dual, active. Slacks near 0 are exact differences, rounded once."""
    x, face, frames = np.array([float(value) for value in v]), Face(declared, frozenset()), []
    table = x[: declared.cells].reshape(declared.n, declared.m)
    many = any(len(part.pairs) * part.m > MOST_LISTED for part in declared.parts if not part.delta)
    close = () if many else face.close(v, listed=True)
    near = {number: float(face.slack(number, v)) for number in close if number >= 0}
    for part in declared.parts:
        if not part.delta and len(part.pairs) * part.m > MOST_LISTED:
            frames.append(_tightest(declared, part, table, face, v, multipliers))
            continue
        index, lhs, rhs = part.sides(declared, table)
        first = part.sums if part.delta else part.first
        dual = _duals(part, multipliers, first, len(lhs))
        slack = rhs - lhs
        for number, left in near.items():
            if first <= number < first + len(slack):
                slack[number - first] = left
        frames.append(audit_rows(part.label, index, lhs, rhs, slack, dual=dual))
    activity = declared.matrix @ x
    for family, label in enumerate(declared.labels):
        rows = np.flatnonzero(declared.family == family)
        dual = np.array([float(multipliers.get(i, 0)) for i in rows.tolist()])
        exact = [-float(declared.rows[i].at(v)) for i in rows.tolist()]
        slack = np.where(declared.equal[rows] > 0, -np.abs(exact), exact) + 0.0
        sides = activity[rows], -declared.offsets[rows]
        frames.append(audit_rows(label, list(range(len(rows))), *sides, slack, dual=dual))
    sums = np.ones(declared.n)
    frames.append(audit_rows("sums", list(map(shown_label, declared.inputs)), sums, sums, 0 * sums))
    return pd.concat(frames, ignore_index=True)


def _tightest(
    declared: Declared, part: Part, table: Array, face: Face, v: list[Any], multipliers: dict[int, Fraction]
) -> pd.DataFrame:
    """Of every pair the row of least slack, which is exact, and the sum of the multipliers of all its rows."""
    found = []
    for numbers, over, _ in part.scan(table):
        rows = over.reshape(-1, part.m).argmax(axis=1)
        found.append(numbers.reshape(-1, part.m)[np.arange(len(rows)), rows])
    rows = np.concatenate(found)
    (a, b), y = part.pairs.T, (rows - part.first) % part.m
    lhs, rhs, dual = table[a, y], np.exp(part.losses) * table[b, y], np.zeros(len(rows))
    for number, value in multipliers.items():
        if part.first <= number < part.sums:
            dual[(number - part.first) // part.m] += float(value)
    inputs, outputs = (list(map(shown_label, labels)) for labels in (declared.inputs, declared.outputs))
    index = [f"{inputs[i]}, {inputs[j]}: {outputs[k]}" for i, j, k in zip(a.tolist(), b.tolist(), y.tolist())]
    slack = np.array([float(face.slack(number, v)) for number in rows.tolist()])
    return audit_rows(part.label, index, lhs, rhs, slack, dual=dual)


def _duals(part: Part, multipliers: dict[int, Fraction], first: int, count: int) -> Array:
    """Multipliers of listed rows; those of floors are shared out among the pairs they stand for."""
    dual = np.zeros(count)
    for number, value in multipliers.items():
        if first <= number < first + count:
            dual[number - first] = float(value)
    if part.floors:
        n, m = part.n, part.m
        above, below = (
            np.array([float(multipliers.get(start + j, 0)) for j in range(n * m)]).reshape(n, m)
            for start in (part.upper, part.lower)
        )
        a, b = part.pairs.T
        total = below.sum(axis=0)
        dual += (above[a] * below[b] / np.where(total > 0, total, 1.0)).ravel()
    return dual


def draw(declared: Declared, probabilities: Array, **options: float) -> Figure:
    """Draw the table as shades."""
    columns, rows = ([shown_label(x) for x in names] for names in (declared.outputs, declared.inputs))
    return draw_matrix(probabilities, "output", "input", columns, rows, **options)

"""The linear programs of a selection problem in numbers: the theorem's rows, and a person's own, of one box or of many."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse

from mechdesign.evidence.results import audit_rows
from mechdesign.model.declared import Declared
from mechdesign.model.search import Block, Programs
from mechdesign.quantizers.selection import SelectionFamilies
from mechdesign.quantizers.selection_program import Boxes, Cells, Question, SelectionPrivacy
from mechdesign.solvers import Solution
from mechdesign.typing import Array, Indices

RESOLVED = 16.0
"""ε up to which every probability that privacy asks for is above a linear program's tolerance."""
_DENSE = 300  # unknowns up to which their unit vectors are an array


class Found(NamedTuple):
    """The best point of a search: its box, the solver's answer, and what the unknown is there, further columns behind it."""

    box: tuple[Array, Array]
    solution: Solution
    columns: Array


class SelectionRows(Declared):
    """A person's own rows in numbers, as of a table of which the q_n(i) with i > n are 0."""

    @cached_property
    def zeros(self) -> frozenset[int]:
        """Cells that are 0 in every feasible selection."""
        open_ = np.tile(np.tri(self.m), (self.n // self.m, 1)) > 0
        return self.forced(np.flatnonzero(~open_).tolist())

    def cell(self, j: int) -> str:
        """The name of an unknown, as in the paper."""
        n, i = divmod(j, self.m)
        side = "" if self.n == self.m else " left" if n < self.m else " right"
        return f"q_{n % self.m + 1}({i + 1}){side}"


@dataclass(frozen=True, eq=False)
class BoxPrograms:
    """A selection problem at its parameters' present values.

    Parameters
    ----------
    asked : SelectionPrivacy
    question : Question
        Lemma 1's coefficients.
    own : SelectionRows, optional
        None where nothing is added to the theorem.
    """

    asked: SelectionPrivacy
    question: Question
    own: SelectionRows | None = None

    def at(self, boxes: Boxes, epsilon: float | None = None) -> Programs:
        """Return the programs of boxes; ε is that of the privacy unless given."""
        unknown: Any = self.asked.unknown
        at = np.flatnonzero(unknown.open)
        families, used = self.asked.families(unit_vectors(unknown.open), *boxes, epsilon)
        bounded = np.flatnonzero(used[unknown.open])
        low, high = (side[unknown.open][bounded].T for side in boxes)
        each, ones = np.arange(len(bounded)), np.ones(len(bounded))
        rows, all_ = at // unknown.shape[1], np.arange(len(at))
        blocks = [
            Block("normalisation", rows, all_, np.ones(len(at)), np.ones(len(used)), True),
            Block("lower bounds", each, bounded, -ones, -low),
            Block("upper bounds", each, bounded, ones, high),
        ]
        for name in dict.fromkeys(family.name for family in families):
            blocks.append(_block(name, [f.left - f.right for f in families if f.name == name]))
        own, further = ([], 0) if self.own is None else _own_blocks(self.own, at)
        lower = np.append(np.zeros(len(at)), np.full(further, -np.inf))
        cost = np.append(self.question.cost[unknown.open], np.zeros(further))
        return Programs(cost, self.question.constant, lower, np.full(len(cost), np.inf), [*blocks, *own])

    def whole(self, x: Array) -> Array:
        """Values of the program's columns as the unknown's, row by row, and further columns behind; a last axis is that of columns."""
        open_ = self.asked.unknown.open.ravel()
        n = int(open_.sum())
        found = np.zeros((*x.shape[:-1], open_.size + x.shape[-1] - n))
        found[..., np.flatnonzero(open_)] = x[..., :n]
        found[..., open_.size :] = x[..., n:]
        return found

    def judged(self, values: Array, x: Array) -> Array:
        """What points of a search are compared by: their exact loss; for losses that are functions, and by Theorem 6, the objective."""
        unknown, (prior, loss, *_) = self.asked.unknown, self.question
        if self.asked.theorem == "theorem6" or not loss.polynomial:
            return values
        found, good = np.full(len(values), np.nan), ~np.isnan(values)
        q = self.whole(x[good])[:, : unknown.size].reshape(-1, *unknown.shape)
        found[good] = unknown.expected(q, prior, loss)
        return found

    def audit(self, found: Found, selection: SelectionFamilies) -> pd.DataFrame:
        """The rows at a mechanism, both sides as stated, with the solver's multipliers."""
        unknown, (low, high) = self.asked.unknown, found.box
        q = np.concatenate([selection.left, selection.right])[: len(unknown.open)]
        families, used = self.asked.families(unit_vectors(unknown.open), low[..., None], high[..., None])
        values, at = q[unknown.open], tuple(np.nonzero(used))
        cells = [f"q[{n + 1}, {i + 1}]" for n, i in zip(*at)]
        rows: list[tuple[str, list[str], Array, Array]] = [
            ("model: lower bounds", cells, low[at], q[at]),
            ("model: upper bounds", cells, q[at], high[at]),
            *(
                (f"model: {f.name}", f.labels, np.ravel(f.left @ values), np.ravel(f.right @ values))
                for f in families
            ),
        ]
        if self.own is not None:
            activity = self.own.matrix @ np.append(np.ravel(q), found.columns[unknown.size :])
            for family, label in enumerate(self.own.labels):
                mine = np.flatnonzero(self.own.family == family)
                mine = mine[np.argsort(-self.own.equal[mine], kind="stable")]
                rows.append((label, [], activity[mine], -self.own.offsets[mine]))
        duals = {
            name.removeprefix("own: ") if name.startswith("own: ") else f"model: {name}": list(dual)
            for name, dual in found.solution.dual.items()
        }
        return audited(
            (
                name,
                labels or [str(k) for k in range(len(left))],
                left,
                right,
                [duals[name].pop(0) for _ in range(len(left))] if name in duals else math.nan,
            )
            for name, labels, left, right in rows
        )


def _own_blocks(own: SelectionRows, at: Indices) -> tuple[list[Block], int]:
    """The person's rows over the unknowns at these places, and the number of further columns behind them."""
    blocks, columns = [], np.append(at, np.arange(own.cells, own.width))
    for family, label in enumerate(own.labels):
        for equal in (True, False):
            rows = np.flatnonzero((own.family == family) & (own.equal == equal))
            if len(rows):
                matrix = own.matrix[rows][:, columns]
                blocks.append(Block.of(f"own: {label}", matrix, -own.offsets[rows], equal=equal))
    return blocks, own.width - own.cells


def audited(families: Iterable[tuple[str, Any, Array, Array, Any]]) -> pd.DataFrame:
    """Rows of a program as an audit lists them, from each family's name, labels, both sides, and multipliers.

    Both sides are sums of doubles: what lies within their rounding is no slack, on either side.
    """
    parts = []
    for family, labels, lhs, rhs, dual in families:
        slack = rhs - lhs
        slack = np.where(np.abs(slack) <= 8 * np.finfo(float).eps * (np.abs(lhs) + np.abs(rhs)), 0.0, slack)
        parts.append(audit_rows(family, labels, lhs, rhs, slack, dual=dual))
    return pd.concat(parts, ignore_index=True)


def unit_vectors(open_: Array) -> Any:
    """The unknowns as vectors of their own values, in the shape of the unknown: an array, or of many `Cells`."""
    count = int(open_.sum())
    numbers = (np.cumsum(open_.ravel()) - 1).reshape(open_.shape).astype(np.int64)
    return Cells(numbers, count) if count > _DENSE else np.eye(count)[numbers] * open_[..., None]


def _block(name: str, parts: list[Any]) -> Block:
    """Rows at most 0 as numbers, of one box or of many."""
    if sparse.issparse(parts[0]):
        return Block.of(name, sparse.vstack(parts), 0.0)
    boxes = max((len(part) for part in parts if part.ndim > 2), default=0)
    if boxes:
        parts = [np.broadcast_to(part, (boxes, *part.shape[-2:])) for part in parts]
    matrix = np.concatenate(parts, axis=-2)
    rows, columns = np.nonzero(matrix.any(axis=0) if boxes else matrix)
    return Block(name, rows, columns, matrix[..., rows, columns], np.zeros(matrix.shape[-2]))

r"""The subspace in which neighbouring answers differ, found exactly.

The sensitivity vectors are exactly what their floats are. Their span is described by r of the K coordinates and a
rational matrix E with :math:`v = E v_P` for every vector of the span: noise is needed in the coordinates P alone, and
what of the query lies outside, :math:`f - E f_P`, is the same for all neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from scipy import linalg

from mechdesign.typing import Array

__all__ = ["Lift", "Span", "span_of", "spans_all"]

_PRIME = 2**61 - 1
Lift = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True, eq=False)
class Span:
    """A subspace of R^K of dimension r, as the graph of a map over r of its coordinates.

    Parameters
    ----------
    size : int
        K.
    coordinates : tuple of int
        P, ascending.
    lift : tuple of tuple of Fraction, optional
        E, shape (K, r); None where r = K.
    """

    size: int
    coordinates: tuple[int, ...]
    lift: Lift | None = None

    @property
    def rank(self) -> int:
        """r."""
        return len(self.coordinates)

    @cached_property
    def matrix(self) -> Array:
        """E in floats."""
        if self.lift is None:
            return np.eye(self.size)
        return np.array([[float(x) for x in row] for row in self.lift])

    def inside(self, vector: Array) -> bool:
        """Whether a vector lies in it exactly."""
        return self.lift is None or not any(self.outside(vector))

    def outside(self, vector: Array) -> list[Fraction]:
        r"""Return :math:`v - E v_P` in exact numbers."""
        exact = [Fraction(x) for x in np.asarray(vector, dtype=float).tolist()]
        if self.lift is None:
            return [Fraction(0)] * self.size
        chosen = [exact[p] for p in self.coordinates]
        return [
            x - sum((e * c for e, c in zip(row, chosen) if e and c), Fraction(0))
            for x, row in zip(exact, self.lift)
        ]


def span_of(vectors: Array) -> Span:
    """Return the span of the rows of `vectors`: no direction is dropped unless it is exactly zero.

    Where doubles prove that as many vectors are independent as there are coordinates, that is all. Elsewhere the rank modulo
    a prime is a lower bound of the rank, and the lift, checked on every vector, an upper one.

    Examples
    --------
    >>> span = span_of(np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]))
    >>> span.rank, span.inside(np.array([5.0, -2.0, -3.0])), span.inside(np.ones(3))
    (2, True, False)
    """
    size = vectors.shape[1]
    if spans_all(vectors):
        return Span(size, tuple(range(size)))
    pivots = _pivots(_residues(vectors))
    if len(pivots) == size:
        return Span(size, tuple(range(size)))
    # the columns a pivoted factorisation prefers make a gentle lift, if they are independent
    order = linalg.qr(
        vectors / np.maximum(np.abs(vectors).max(axis=1, keepdims=True), 1e-300), mode="r", pivoting=True
    )
    chosen = sorted(int(p) for p in order[1][: len(pivots)])
    if len(_pivots(_residues(vectors[:, chosen]))) < len(chosen):
        chosen = sorted(pivots)
    return Span(size, tuple(chosen), _lift(vectors, chosen))


def spans_all(vectors: Array) -> bool:
    """Whether doubles prove that the rows span the whole space; False where they do not tell.

    With X near the inverse of the scaled rows B, ‖I − XB‖ < 1 makes B regular; what is computed of it is off by at most
    (K + 2)u |X||B|, entry by entry, and underflow.

    Examples
    --------
    >>> spans_all(np.tril(np.ones((50, 50)))), spans_all(np.array([[1.0, 1.0], [2.0, 2.0]]))
    (True, False)
    """
    count, size = vectors.shape
    if count < size:
        return False
    with np.errstate(over="ignore"):
        scaled = vectors / np.exp2(np.frexp(np.abs(vectors).max(axis=1, keepdims=True))[1])
    scaled[~np.isfinite(scaled)] = 0.0
    if count > size:
        scaled = scaled[linalg.qr(scaled.T, mode="r", pivoting=True)[1][:size]]
    try:
        inverse = np.linalg.inv(scaled)
    except np.linalg.LinAlgError:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.abs(np.eye(size) - inverse @ scaled)
        off += (size + 3) * 2.0**-52 * (np.abs(inverse) @ np.abs(scaled))
        off += 1e-290 * (1 + np.abs(inverse).max())
        return bool(off.sum(axis=1).max() < 0.5)


def _residues(vectors: Array) -> list[list[int]]:
    """Entries modulo the prime (a power of two is invertible, so each float has a residue)."""
    out = []
    for row in vectors.tolist():
        pairs = [x.as_integer_ratio() for x in row]
        out.append([n * pow(d, -1, _PRIME) % _PRIME for n, d in pairs])
    return out


def _pivots(rows: list[list[int]]) -> list[int]:
    """Pivot columns of an elimination modulo the prime."""
    rows, pivots = [row[:] for row in rows], []
    for column in range(len(rows[0])):
        pivot = next((row for row in rows if row[column]), None)
        if pivot is None:
            continue
        rows.remove(pivot)
        inverse = pow(pivot[column], -1, _PRIME)
        rows = [_cleared(row, pivot, column, row[column] * inverse % _PRIME) for row in rows]
        pivots.append(column)
        if not rows:
            break
    return pivots


def _cleared(row: list[int], pivot: list[int], column: int, factor: int) -> list[int]:
    return [(a - factor * b) % _PRIME for a, b in zip(row, pivot)] if factor else row


def _lift(vectors: Array, chosen: list[int]) -> Lift:
    """E by Gauss–Jordan elimination in rationals: rows of the reduced form are E's columns."""
    others = [c for c in range(vectors.shape[1]) if c not in chosen]
    rows = [[Fraction(row[c]) for c in chosen + others] for row in vectors.tolist()]
    basis: list[list[Fraction]] = []
    for column in range(len(chosen)):
        pivot = max(rows, key=lambda row: abs(row[column]))
        rows.remove(pivot)
        pivot = [x / pivot[column] for x in pivot]
        rows = [_minus(row, pivot, row[column]) for row in rows]
        basis = [_minus(row, pivot, row[column]) for row in basis] + [pivot]
    if any(any(row) for row in rows):
        raise ArithmeticError("the rank modulo a prime was not the rank")
    lift = [[Fraction(0)] * len(chosen) for _ in range(vectors.shape[1])]
    for k, row in enumerate(basis):
        for c, x in zip(chosen + others, row):
            lift[c][k] = x
    return tuple(map(tuple, lift))


def _minus(row: list[Fraction], pivot: list[Fraction], factor: Fraction) -> list[Fraction]:
    return [a - factor * b if b else a for a, b in zip(row, pivot)] if factor else row

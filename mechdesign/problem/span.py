r"""The subspace in which neighbouring answers differ, found exactly.

The sensitivity vectors are exactly what their floats are. Their span is described by r of the K coordinates and a
rational matrix E with :math:`v = E v_P` for every vector of the span: noise is needed in the coordinates P alone, and
what of the query lies outside, :math:`f - E f_P`, is the same for all neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import flint
import numpy as np
from scipy import linalg

from mechdesign.typing import Array

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

    Where doubles prove that as many vectors are independent as there are coordinates, that is all. Elsewhere the reduced row
    echelon form over the rationals has rank, coordinates and lift.

    Examples
    --------
    >>> span = span_of(np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]))
    >>> span.rank, span.inside(np.array([5.0, -2.0, -3.0])), span.inside(np.ones(3))
    (2, True, False)
    """
    size = vectors.shape[1]
    if spans_all(vectors):
        return Span(size, tuple(range(size)))
    # the columns a pivoted factorisation prefers make a gentle lift
    scaled = vectors / np.maximum(np.abs(vectors).max(axis=1, keepdims=True), 1e-300)
    order = linalg.qr(scaled, mode="r", pivoting=True)[1]
    exact = [[flint.fmpq(*x.as_integer_ratio()) for x in row] for row in vectors[:, order].tolist()]
    reduced, rank = flint.fmpq_mat(exact).rref()
    if rank == size:
        return Span(size, tuple(range(size)))
    rows = [[Fraction(int(x.p), int(x.q)) for x in row] for row in reduced.tolist()[:rank]]
    # a row of the reduced form is the column of E that belongs to the row's pivot
    columns = {int(order[next(k for k, x in enumerate(row) if x)]): row for row in rows}
    chosen = sorted(columns)
    lift = tuple(tuple(columns[p][place] for p in chosen) for place in np.argsort(order).tolist())
    return Span(size, tuple(chosen), lift)


def spans_all(vectors: Array) -> bool:
    """Whether doubles prove that the rows span the whole space; False where they do not tell.

    With X near the inverse of the scaled rows B, ‖I − XB‖ < 1 makes B regular; what is computed of it is off by at most
    (K + 2)u |X||B|, entry by entry, and underflow. Of 200 random vectors it takes .15 s where the rationals take 1.1 s.

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

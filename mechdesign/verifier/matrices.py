"""Small matrices: exact products of doubles as integers, and in doubles inverses and singular values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import Any

from mechdesign.verifier.reading import Refused

Matrix = Sequence[Sequence[Any]]


def whole(matrix: Matrix) -> tuple[list[list[int]], int]:
    """The matrix as integers over a power of two, exactly: these, and that power's exponent."""
    ratios = [[float(x).as_integer_ratio() for x in row] for row in matrix]
    bits = max((d.bit_length() - 1 for row in ratios for _, d in row), default=0)
    return [[n << (bits - d.bit_length() + 1) for n, d in row] for row in ratios], bits


def times(one: Matrix, other: Matrix) -> list[list[Any]]:
    columns = list(zip(*other))
    return [[sum(map(mul, row, column)) for column in columns] for row in one]


def transposed(matrix: Matrix) -> list[list[Any]]:
    return [list(column) for column in zip(*matrix)]


def inverse(matrix: Matrix) -> list[list[float]]:
    """In doubles, by elimination with row exchanges; rows and columns are scaled first."""
    size = len(matrix)
    if any(len(row) != size for row in matrix):
        raise Refused("a matrix that is not square")
    scale = [max(map(abs, row)) or 1.0 for row in matrix]
    rows = [
        [x / s for x in row] + [float(i == j) for j in range(size)]
        for i, (row, s) in enumerate(zip(matrix, scale))
    ]
    for k in range(size):
        pivot = max(range(k, size), key=lambda i: abs(rows[i][k]))
        rows[k], rows[pivot] = rows[pivot], rows[k]
        if rows[k][k] == 0:
            raise Refused("a matrix that has no inverse")
        head = [x / rows[k][k] for x in rows[k]]
        rows[k] = head
        for i in range(size):
            if i != k and (factor := rows[i][k]):
                rows[i] = [x - factor * y for x, y in zip(rows[i], head)]
    return [[x / s for x, s in zip(row[size:], scale)] for row in rows]


def cholesky(matrix: Matrix) -> list[list[float]]:
    """L with L Lᵀ = the matrix; refused unless it is positive definite."""
    found: list[list[float]] = []
    for i, row in enumerate(matrix):
        found.append([0.0] * len(matrix))
        for j in range(i + 1):
            left = row[j] - math.fsum(map(mul, found[i][:j], found[j][:j]))
            if i == j and left <= 0:
                raise Refused("a matrix that is not positive definite")
            found[i][j] = math.sqrt(left) if i == j else left / found[j][j]
    return found


def singular_values(matrix: Matrix) -> list[float]:
    """By rotations of two columns at a time until all are orthogonal (Hestenes 1958): small ones are as accurate as large ones."""
    columns = transposed(matrix)
    for _ in range(40):
        turned = False
        for i in range(len(columns)):
            for j in range(i + 1, len(columns)):
                one, other = columns[i], columns[j]
                a, b, c = (math.fsum(map(mul, u, v)) for u, v in ((one, one), (other, other), (one, other)))
                if abs(c) <= 1e-15 * math.sqrt(a * b):
                    continue
                turned = True
                zeta = (b - a) / (2 * c)
                tangent = math.copysign(1.0, zeta) / (abs(zeta) + math.hypot(1.0, zeta))
                cosine = 1 / math.hypot(1.0, tangent)
                sine = cosine * tangent
                columns[i] = [cosine * u - sine * v for u, v in zip(one, other)]
                columns[j] = [sine * u + cosine * v for u, v in zip(one, other)]
        if not turned:
            break
    return [math.hypot(*column) for column in columns]

"""Small matrices: exact products of doubles as integers, inverses and singular values in doubles, and distances.

The distances between all points of a finite metric space, in doubles, are stated as a matrix, or follow from the kind of space: of clusters one
within and one across, along the edges of a tree, great circles of the mean earth between degrees of latitude and longitude, else straight lines
between coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from operator import mul
from typing import Any

from mechdesign.verifier.reading import Account, Json, Refused

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


EARTH = 6371.0088
"""Its mean radius in kilometres, of which great circles are."""


def distances(space: Json, account: Account) -> list[list[float]]:
    """The distances between all points, in doubles."""
    size, kind = math.prod(space["shape"]), space["kind"]
    account.takes(6 * size**2)
    if space["matrix"] is not None:
        found = space["matrix"]
    elif kind == "clustered":
        near, far = map(float, cluster_distances(space))
        each = space["shape"][1]
        found = [[near if x // each == y // each else far for y in range(size)] for x in range(size)]
    elif kind == "tree":
        found = along(space)
    elif kind == "geodesic":
        found = [[great_circle(p, q) for q in space["points"]] for p in space["points"]]
    else:
        found = [[math.dist(p, q) for q in space["points"]] for p in space["points"]]
    apart = (d for x, row in enumerate(found) for y, d in enumerate(row) if x != y)
    whole = len(found) == size and all(len(row) == size for row in found)
    if not whole or not all(0 < d < math.inf for d in apart):
        raise Refused("points of a space that are not apart, or of another number")
    return [[0.0 if x == y else d for y, d in enumerate(row)] for x, row in enumerate(found)]


def along(space: Json) -> list[list[float]]:
    """Lengths of paths in a tree: to where two nodes' ways to the root meet."""
    ways = []
    for leaf in space["leaves"]:
        way, length, node = {}, Fraction(0), leaf
        while node >= 0 and node not in way:
            way[node] = length
            length, node = length + Fraction(space["lengths"][node]), space["parents"][node]
        ways.append(way)
    return [[float(min(way[n] + other[n] for n in way if n in other)) for other in ways] for way in ways]


def great_circle(one: list[float], other: list[float]) -> float:
    (a, b), (c, d) = (map(math.radians, place) for place in (one, other))
    chord = math.sin((a - c) / 2) ** 2 + math.cos(a) * math.cos(c) * math.sin((b - d) / 2) ** 2
    return 2 * EARTH * math.asin(math.sqrt(min(chord, 1.0)))


def cluster_distances(space: Json) -> tuple[Fraction, Fraction]:
    """The distances within a cluster and across."""
    if space["kind"] != "clustered" or len(space["shape"]) != 2 or min(space["shape"]) < 1:
        raise Refused("a space that is not clustered")
    return Fraction(space["within"]), Fraction(space["across"])

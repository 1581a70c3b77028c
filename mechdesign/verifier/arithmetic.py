"""Bounds of exponentials, logarithms and roots, small matrices, and sums and least values in doubles.

Products of matrices of doubles are exact, as integers; inverses and singular values are in doubles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction
from operator import mul
from typing import Any, TypeVar

from mechdesign.verifier.reading import Json, NotCovered, TooLarge, refuse

Number = TypeVar("Number", float, Decimal)
OPERATIONS = 2_000_000
"""Of those that are counted, what a slow processor does in a second."""


_LEFT = ContextVar("operations that are left of those allowed", default=math.inf)


@contextmanager
def allowed(operations: float) -> Iterator[None]:
    """Allow so many operations inside; outside they have no limit."""
    token = _LEFT.set(operations)
    try:
        yield
    finally:
        _LEFT.reset(token)


def charge(operations: float, bits: int = 0) -> None:
    """Count operations on numbers of so many bits before they are done, in additions of 1,000 bits; refuse what is too large at once."""
    left = _LEFT.get() - operations * (1 + bits / 1000)
    _LEFT.set(left)
    if left < 0:
        seconds = math.ceil(min(-left / OPERATIONS, 1e9))
        raise TooLarge(f"too large to check: at least {seconds} s more work than is allowed; see --seconds")


def charge_gcd(operations: float, bits: int) -> None:
    """Count operations on fractions, whose common divisors take the square of their bits."""
    charge(operations * (4 + 6 * (bits / 1000) ** 2))


def exp_bounds(x: Json, bits: int = 320) -> tuple[Fraction, Fraction]:
    """Rationals below and above e^x, right to so many bits: decimals exponentiate to the last digit, and what the last digit of x is worth is room."""
    x = Fraction(x)
    if abs(x) > 2**14:
        raise NotCovered("an exponent beyond 16384")
    if not x:
        return Fraction(1), Fraction(1)
    with localcontext(prec=12 + bits // 3) as digits:
        found = decimal(x).exp()
        room = found * (decimal(abs(x)) + 2).scaleb(1 - digits.prec)
        return Fraction(found - room), Fraction(found + room)


def decimal(number: Fraction | float) -> Decimal:
    """A rational in the digits of the context."""
    number = Fraction(number)
    return Decimal(number.numerator) / number.denominator


def root_above(square: Fraction) -> Fraction:
    """The square root if it is rational, else a rational that is larger by less than 2⁻¹²⁷ of it."""
    over = square.numerator * square.denominator
    bits = max(0, 128 - over.bit_length() // 2)
    root = math.isqrt(over << (2 * bits))
    return Fraction(root + (root * root < over << (2 * bits)), square.denominator << bits)


def between(low: Number, high: Number, holds: Callable[[Number], bool]) -> tuple[Number, Number]:
    """Two neighbouring numbers, the first one of which is on the side of `low`, where it holds, and the other on that of `high`."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def peak(low: int, high: int, f: Callable[[int], float]) -> int:
    """The first place of the largest value of a function that rises to one peak, then falls."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if f(middle) >= f(middle + 1) else (middle + 1, high)
    return low


def series(a: Decimal, z: Decimal) -> Decimal:
    """Σ z^n / (a (a + 1) … (a + n)) = γ(a, z) e^z / z^a: positive terms, as many as the digits of the context tell."""
    term = total = 1 / a
    n, tiny = a, Decimal(10) ** (3 - getcontext().prec)
    while term > tiny * total or n < z:
        n += 1
        term = term * z / n
        total += term
    return total


def hypergeometric(top: Decimal, bottom: Decimal, x: Decimal) -> Decimal:
    """Σ_n x^n Π_{i < n} (top + i)/(bottom + i), x < 1."""
    found = term = Decimal(1)
    i, rises, tiny = 0, True, (1 - x) * Decimal(10) ** (3 - getcontext().prec)
    while rises or term > tiny * found:
        ratio = x * (top + i) / (bottom + i)
        rises, term, i = ratio > 1, term * ratio, i + 1
        found += term
    return found


Matrix = Sequence[Sequence[Any]]


def whole(matrix: Matrix) -> tuple[list[list[int]], int]:
    """The matrix as integers over a power of two, exactly: these, and that power's exponent."""
    ratios = [[float(x).as_integer_ratio() for x in row] for row in matrix]
    bits = max((d.bit_length() - 1 for row in ratios for _, d in row), default=0)
    return [[n << (bits - d.bit_length() + 1) for n, d in row] for row in ratios], bits


def times(one: Matrix, other: Matrix) -> list[list[Any]]:
    """The product of two matrices; refused where their shapes do not fit."""
    refuse({*map(len, one)} != {len(other)}, "a matrix of another shape")
    columns = transposed(other)
    charge(len(one) * len(other) * len(columns), digits(one) + digits(other))
    return [[sum(map(mul, row, column)) for column in columns] for row in one]


def digits(matrix: Matrix) -> int:
    """How many bits entries have: of whole numbers at most, of fractions as long as they take."""
    entries = [x for row in matrix for x in row]
    return max(
        (x.bit_length() if isinstance(x, int) else 2000 * isinstance(x, Fraction) for x in entries), default=0
    )


def transposed(matrix: Matrix) -> list[list[Any]]:
    return [list(column) for column in zip(*matrix, strict=True)]


def inverse(matrix: Matrix) -> list[list[float]]:
    """In doubles, by elimination with row exchanges; rows and columns are scaled first."""
    size = len(matrix)
    refuse(any(len(row) != size for row in matrix), "a matrix that is not square")
    charge(2 * size**3)
    scale = [max(map(abs, row)) or 1.0 for row in matrix]
    rows = [
        [x / s for x in row] + [float(i == j) for j in range(size)]
        for i, (row, s) in enumerate(zip(matrix, scale))
    ]
    for k in range(size):
        pivot = max(range(k, size), key=lambda i: abs(rows[i][k]))
        rows[k], rows[pivot] = rows[pivot], rows[k]
        refuse(rows[k][k] == 0, "a matrix that has no inverse")
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
            refuse(i == j and left <= 0, "a matrix that is not positive definite")
            found[i][j] = math.sqrt(left) if i == j else left / found[j][j]
    return found


def singular_values(matrix: Matrix) -> list[float]:
    """By rotations of two columns at a time until all are orthogonal (Hestenes 1958): small ones are as accurate as large ones."""
    columns = transposed(matrix)
    charge(10 * len(matrix) * len(columns) ** 2)
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


def dominance(factor: Matrix, exact: Matrix) -> Fraction:
    """How far V' − XᵀX, scaled by powers of two, is diagonally dominant: where this is not negative, XᵀX ⪯ V'."""
    x, bits = whole(factor)
    square = times(transposed(x), x)
    scale = [Fraction(2) ** (-(math.frexp(float(row[i]) or 1.0)[1] // 2)) for i, row in enumerate(exact)]
    found = list[Fraction]()
    for i, row in enumerate(exact):
        left = [(a - Fraction(b, 4**bits)) * scale[j] for j, (a, b) in enumerate(zip(row, square[i]))]
        found.append((left[i] - sum(abs(a) for j, a in enumerate(left) if j != i)) * scale[i])
    return min(found)


def semidefinite(matrix: list[list[Fraction]]) -> Fraction:
    """How far a symmetric matrix is above L Lᵀ for an L of doubles: where this is not negative, it is semidefinite."""
    near = [[float(x) for x in row] for row in matrix]
    room = 1e-12 * max(abs(x) for row in near for x in row)
    lowered = [[x - room * (i == j) for j, x in enumerate(row)] for i, row in enumerate(near)]
    return dominance(transposed(cholesky(lowered)), matrix)


GAUSS = [(0.0, 128 / 225)] + [
    (side * math.sqrt(5 - s * 2 * math.sqrt(10 / 7)) / 3, (322 + s * 13 * math.sqrt(70)) / 900)
    for side in (1, -1)
    for s in (1, -1)
]
"""Points of [−1, 1] and weights that integrate polynomials of degree nine."""


def integral(f: Callable[[float], float], low: float, high: float, panels: int) -> float:
    """By five nodes on each of so many panels."""
    half = (high - low) / panels / 2
    nodes = ((low + (2 * k + 1 + node) * half, weight) for k in range(panels) for node, weight in GAUSS)
    return half * math.fsum(weight * f(x) for x, weight in nodes)


def least(f: Callable[[float], float], low: float, high: float) -> float:
    """The least value of a function with one valley."""
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if f(left) <= f(right) else (left, high)
    return f((low + high) / 2)

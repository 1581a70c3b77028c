"""The matrix mechanism: a strategy R is released with noise, R x + z, and answers A x are made of it.

A change d of the counts consumes ‖R d‖², at most μ²; of d within |d_j| ≤ a, at most c of them not 0, this convex function is largest at a
corner, d_j = ±a or 0. With G = RᵀR it is a² Σ_{i, j} ± G_ij over the counts that change. Who takes part several times changes counts that
are at least b apart, or in the same place of every epoch of b. If A = B R the answers B (R x + z) are unbiased with
covariance B Bᵀ.

Let R be lower triangular and Toeplitz with c_0 ≥ c_1 ≥ … ≥ 0. Then G_ij = Σ c_m c_{m + j − i} over m < n − j, i ≤ j, rises neither with j nor
with j − i, and is at least 0: of counts at least b apart the first, 0, b, 2b, …, with one sign, consume most.

Let R be lower triangular of b bands, R_ij = 0 unless 0 ≤ i − j < b. Columns b apart have no row in common: G_ij = 0, and counts S at least b apart
consume a² Σ G_jj over S, whatever their signs. The most that k of them consume is found by dynamic programming in integers: f_k(j), by those from j
on, is the larger of f_k(j + 1) and G_jj + f_(k−1)(j + b).
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from math import comb
from operator import mul
from typing import NamedTuple

from mechdesign.verifier.arithmetic import inverse, times, transposed, whole
from mechdesign.verifier.covariance import (
    ROOM,
    bound,
    budget_is_kept,
    counts,
    listed,
    most_of,
    multipliers_of,
)
from mechdesign.verifier.reading import Account, Json, Refused

SMALL = 24
"""Counts up to which a lower bound is recomputed."""
MOST_WORK = 5_000_000
"""Products in the answers' variances: more of them are not recomputed."""


def correlated(result: Json, account: Account) -> None:
    """Gaussian noise of the least covariance: for numbers that change by listed vectors, for counts that are alike, or for linear queries on counts."""
    design, law = result["design"], result["mechanism"]
    numbers = design["workload"] is None
    if law[""] != ("correlated-gaussian-noise" if numbers else "strategy-noise"):
        raise Refused("another mechanism than the design's")
    if not numbers:
        strategy(result, account)
    elif isinstance(design["changes"], dict):
        counts(result, account)
    else:
        listed(result, account)


def strategy(result: Json, account: Account) -> None:
    design, law = result["design"], result["mechanism"]
    rows, count = law["strategy"], math.prod(part["size"] for part in design["workload"]["blocks"][0])
    account.agrees("the answers are those of the design", repr(law["workload"]) == repr(design["workload"]))
    if not rows or any(len(row) != count for row in rows) or design["weights"] is not None:
        raise Refused("a strategy on other counts than the workload's")
    budget_is_kept(design["privacy"], law["budget"], account)
    account.takes(len(rows) * count, 100)
    r, bits = whole(rows)
    changes, alone = design["changes"], False
    if isinstance(changes, dict):
        asked = changed(changes, count)
        alone = asked.most == 1
        spent = Fraction(largest_of(r, asked, account), 4**bits) * Fraction(changes["most"]) ** 2
    else:
        if any(len(v) != count for v in changes):
            raise Refused("changes of other counts than the workload's")
        account.takes(len(changes) * len(rows) * count, 200)
        spent = most_of(rows, changes)
    account.bounds("no change consumes more than the budget", spent, law["budget"])
    errors(result, account)
    if result["lower_bound"] is None:
        return
    asked_of = answers(design["workload"], SMALL**2) if count <= SMALL else None
    if asked_of is None or (isinstance(changes, dict) and not alone):
        multipliers_of(result)
        account.claimed(f"no covariance costs less than {result['lower_bound']:.12g}")
        return
    if alone:
        changes = [[float(changes["most"]) * (i == j) for j in range(count)] for i in range(count)]
    bound(result, changes, asked_of, account)


def largest_of(r: list[list[int]], asked: Changed, account: Account) -> int:
    """The largest ‖R d‖² over corners d, by what is known of R where it is known."""
    count = len(r[0])
    if falling(r) and not asked.exactly:
        return sum(sum(row[: asked.most * asked.apart : asked.apart]) ** 2 for row in r)
    if banded(r, asked.apart) and not asked.exactly:
        account.takes(asked.most * count, 100)
        return most_apart([sum(map(mul, column, column)) for column in transposed(r)], asked)
    account.takes(len(r) * count * count, 100)
    columns = transposed(r)
    gram = [[sum(map(mul, one, other)) for other in columns] for one in columns]
    return largest_change(gram, asked, account)


class Changed(NamedTuple):
    """Counts that change: so many, so far apart, a multiple of `every`, and whether never fewer."""

    most: int
    signed: bool
    apart: int = 1
    every: int = 1
    exactly: bool = False


def changed(changes: Json, size: int) -> Changed:
    """What one person changes of so many counts."""
    if changes["size"] != size:
        raise Refused("changes of other counts than the workload's")
    if changes[""] == "count-changes":
        asked = Changed(changes["l0"], changes["signed"])
    else:
        often = changes["participation"]
        if (often["apart"] is None) == (often["every"] is None):
            raise Refused("changes that are none")
        every = often["every"] or 1
        asked = Changed(often["times"], changes["signed"], often["apart"] or every, every, not often["fewer"])
    if not 1 <= asked.most <= -(-size // asked.apart):
        raise Refused("more counts that change than there are")
    return asked


def falling(r: list[list[int]]) -> bool:
    """Whether a matrix is lower triangular and Toeplitz, of coefficients that do not rise and are at least 0."""
    column = [row[0] for row in r]
    steady = all(row == [*column[t::-1], *[0] * (len(r) - t - 1)] for t, row in enumerate(r))
    return steady and column == sorted(column, reverse=True) and column[-1] >= 0


def banded(r: list[list[int]], bands: int) -> bool:
    """Whether a matrix is lower triangular, of so many bands."""
    return len(r) == len(r[0]) and not any(
        any(row[: max(i - bands + 1, 0)]) or any(row[i + 1 :]) for i, row in enumerate(r)
    )


def most_apart(squares: list[int], asked: Changed) -> int:
    """The largest sum of so many squares so far apart: of k of those from j on, with the j-th or without it."""
    best = [0] * (len(squares) + asked.apart)
    for _ in range(asked.most):
        rest, best = best, [0] * len(best)
        for j in reversed(range(len(squares))):
            best[j] = max(best[j + 1], squares[j] + rest[j + asked.apart])
    return best[0]


def largest_change(gram: list[list[int]], asked: Changed, account: Account) -> int:
    """The largest ‖R d‖² over corners d of the counts that change."""
    size, (most, signed, apart, every, exactly) = len(gram), asked
    corners = ((size * comb(ways(size, k, apart, every), k - 1), k) for k in range(1, most + 1))
    account.takes(sum(count * k * (2 ** (k - 1) if signed else 1) for count, k in corners), 100)
    best = 0

    def extend(chosen: list[tuple[int, int]], total: int) -> None:
        nonlocal best
        if not exactly or len(chosen) == most:
            best = max(best, total)
        if len(chosen) == most:
            return
        for j in range(chosen[-1][0] + apart, size, every) if chosen else range(size):
            row = gram[j]
            cross = 2 * sum(sign * row[i] for i, sign in chosen)
            for sign in (1, -1) if signed and chosen else (1,):
                extend([*chosen, (j, sign)], total + row[j] + sign * cross)

    extend([], 0)
    return best


def ways(size: int, k: int, apart: int, every: int) -> int:
    """Places of k − 1 steps after a first one, at most."""
    return (size - 1) // every - (k - 1) * (apart // every - 1)


def queries(part: Json) -> list[list[float]]:
    """The matrix of linear queries along one attribute."""
    n = part["size"]
    if part["kind"] == "identity":
        return [[float(i == j) for j in range(n)] for i in range(n)]
    if part["kind"] == "total":
        return [[1.0] * n]
    if part["kind"] == "prefix":
        return [[float(j <= i) for j in range(n)] for i in range(n)]
    if part["kind"] == "ranges":
        spans = ((i, i + length) for length in range(1, n + 1) for i in range(n - length + 1))
        return [[float(i <= j < end) for j in range(n)] for i, end in spans]
    return [[float(x) for x in row] for row in part["matrix"]]


def rows_of(part: Json) -> int:
    n = part["size"]
    return int(
        {"total": 1, "ranges": n * (n + 1) // 2, "matrix": len(part["matrix"] or ())}.get(part["kind"], n)
    )


def answers(workload: Json, most: int) -> list[list[float]] | None:
    """A in full; None where it has more than so many entries."""
    entries = 0
    for block in workload["blocks"]:
        entries += math.prod(rows_of(part) * part["size"] for part in block)
    if entries > most:
        return None
    found = []
    for block in workload["blocks"]:
        parts = [queries(part) for part in block]
        for chosen in product(*parts):
            row = [1.0]
            for factor in chosen:
                row = [x * y for x in row for y in factor]
            found.append(row)
    return found


def unbiased(law: Json, account: Account) -> list[list[float]] | None:
    """That answers made of the strategy's are unbiased; the matrix they are made by, None where it is too large.

    B = A R⁺ in doubles leaves A − B R, which is computed in integers: B + (A − B R) R⁺ is off by the square of what B is off by.
    """
    rows, count = law["strategy"], math.prod(part["size"] for part in law["workload"]["blocks"][0])
    if not rows or any(len(row) != count for row in rows):
        raise Refused("a strategy on other counts than the workload's")
    rank = len(rows)
    asked = answers(law["workload"], MOST_WORK // rank)
    if asked is None or rank**3 > MOST_WORK:
        account.claimed("the answers are unbiased")
        return None
    account.takes(2 * len(asked) * len(rows[0]) * rank + 4 * rank**3, 200)
    square = rank == len(rows[0])
    back = inverse(rows) if square else times(transposed(rows), inverse(times(rows, transposed(rows))))
    factor = times(asked, back)
    (one, one_bits), (two, two_bits) = whole(factor), whole(rows)
    unit = 1 << (one_bits + two_bits)
    left = [
        [float(Fraction(x) - Fraction(y, unit)) for x, y in zip(row, other)]
        for row, other in zip(asked, times(one, two))
    ]
    top, off = (max(abs(x) for row in matrix for x in row) for matrix in (asked, left))
    account.recomputed("the answers are unbiased, to rounding", off <= 1e-7 * top)
    return [[x + y for x, y in zip(row, other)] for row, other in zip(factor, times(left, back))]


def errors(result: Json, account: Account) -> None:
    """That the answers are unbiased, and what they cost; in doubles."""
    stated = result["value"]
    claim = f"the {result['design']['loss']} error is at most {stated:.12g}"
    factor = unbiased(result["mechanism"], account)
    if factor is None:
        account.claimed(claim)
        return
    variances = [math.fsum(x * x for x in row) for row in factor]
    cost = max(variances) if result["design"]["loss"] == "largest" else math.fsum(variances)
    account.recomputed(claim, cost <= stated * (1 + ROOM))
    if result["lower_bound"] is not None:
        account.agrees("the lower bound is not above the error", result["lower_bound"] <= cost * (1 + ROOM))

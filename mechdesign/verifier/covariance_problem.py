"""A problem on one covariance S of Gaussian noise: privacy, the rows of the problem, its value, and the bound by rows and multipliers.

The noise is R⁻¹ z, z standard normal, of covariance S = (RᵀR)⁻¹: a change v consumes ‖R v‖², at most μ². Own rows are tr(G S) + Σ a t + k ≤ 0 or = 0 over the
entries of S, row by row, and further columns t, which stand for convex piecewise linear functions. With R B = I + D and H = BᵀGB the trace tr(G S) is tr H but
for √r ‖H‖ ((1 − ‖D‖)⁻² − 1), in the norm that sums squares.

**The bound.** For multipliers ν (at least 0 of inequalities) whose charges of each further column equal its cost, V' = V + Σ ν G, any X with XᵀX ⪯ V', any
roots r and any Q: every S within the rows costs at least (tr X Nᵀ Q)²/(‖Q‖² μ² Σ r²) + Σ ν k, N of the rows r v. For tr(XSXᵀ) μ² Σ r² ≥ tr(XSXᵀ) tr(NS⁻¹Nᵀ) ≥
(tr XNᵀQ)²/‖Q‖² by Cauchy and Schwarz. XᵀX ⪯ V' where the difference is diagonally dominant, once rows and columns are scaled. In integers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from operator import mul

from mechdesign.verifier.allocation import smallest_beyond
from mechdesign.verifier.arithmetic import inverse, root_above, times, transposed, whole
from mechdesign.verifier.covariance import budget_is_kept, inverse_gram, most_of, shown_is
from mechdesign.verifier.reading import Account, Json, Refused, proofs_of
from mechdesign.verifier.table import MISSED, Own, own_rows

Exact = list[list[Fraction]]


def covariance_problem(result: Json, account: Account) -> None:
    design, law, proofs = result["design"], result["mechanism"], proofs_of(result)
    if law[""] != "correlated-gaussian-noise" or not {*proofs} <= {"covariance-proof", "covariance-bound"}:
        raise Refused("another mechanism than correlated noise, or evidence of something else")
    changes, r = design["changes"], law["whitening"]
    n = len(changes[0])
    plain = law["lift"] is None and law["coordinates"] in (None, list(range(n)))
    square = len(r) == n and all(len(row) == n for row in (*r, *changes))
    account.agrees("all numbers get noise, and the whitening is of these", plain and square)
    if not plain or not square or not design["privacy"]:
        return
    account.takes(
        len(changes) * n * n + 8 * n**3 + len(design["cost"]) + 4 * len(design["coefficients"]), 200
    )
    for one in design["privacy"]:
        budget_is_kept(one["privacy"], law["budget"], account)
    account.bounds("no change consumes more than the budget", most_of(r, changes), law["budget"])
    rows, witness = own_rows(design, n * n), proofs["covariance-proof"]["witness"]
    costs = [Fraction(c) for c in design["cost"]]
    if len(witness) != len(costs) - n * n:
        raise Refused("further columns without values")
    spread = Spread(r)
    found = inverse_gram(r)
    if found is not None:
        shown_is(
            law["covariance"], [[Fraction(i == j) for j in range(n)] for i in range(n)], found[0], account
        )
    for label in design["labels"]:
        held = all(holds(row, spread, witness) for row in rows if row.label == label)
        account.proved(f"rows called {label!r} hold", held)
    value = spread.ends(list(enumerate(costs)), witness)[1] + Fraction(design["constant"])
    account.bounds(f"the value is at most {result['value']!r}", value, result["value"])
    if result["lower_bound"] is not None:
        least = bound(design, proofs["covariance-bound"], rows, costs, account)
        claim = f"no covariance within these constraints costs less than {result['lower_bound']!r}"
        account.bounds(claim, result["lower_bound"], least)


class Spread:
    """(RᵀR)⁻¹ = B K Bᵀ, enclosed."""

    def __init__(self, rows: Json) -> None:
        self.size = len(rows)
        self.back, bits = whole(inverse(rows))
        self.unit = Fraction(1, 2**bits)
        r, more = whole(rows)
        one = 1 << (bits + more)
        off = [
            Fraction(x - one * (i == j), one)
            for i, row in enumerate(times(r, self.back))
            for j, x in enumerate(row)
        ]
        norm = root_above(sum((x * x for x in off), Fraction(0)))
        if norm >= Fraction(1, 2):
            raise Refused("a whitening that doubles cannot invert")
        self.spread = 1 / (1 - norm) ** 2 - 1

    def ends(self, terms: list[tuple[int, Fraction]], witness: Json) -> tuple[Fraction, Fraction]:
        """Of a combination of entries of the covariance and further columns."""
        n, rest = self.size, Fraction(0)
        weights = [[Fraction(0)] * n for _ in range(n)]
        for j, a in terms:
            if j < n * n:
                weights[j // n][j % n] = a
            else:
                rest += a * Fraction(witness[j - n * n])
        h = times(times(transposed(self.back), weights), self.back)
        trace = sum((h[i][i] for i in range(n)), Fraction(0)) * self.unit**2
        size = root_above(sum((x * x for row in h for x in row), Fraction(0))) * self.unit**2
        room = root_above(Fraction(n)) * size * self.spread
        return trace - room + rest, trace + room + rest


def holds(row: Own, spread: Spread, witness: Json) -> bool:
    low, high = (end + row.offset for end in spread.ends(row.terms, witness))
    if not row.equal:
        return high <= 0
    n = spread.size
    size = [abs(Fraction(a) * Fraction(witness[j - n * n])) for j, a in row.terms if j >= n * n]
    b = [math.hypot(*(float(x) for x in line)) * float(spread.unit) for line in spread.back]
    size += [abs(a) * Fraction(b[j // n] * b[j % n]) for j, a in row.terms if j < n * n]
    return max(abs(low), abs(high)) <= MISSED * (sum(size, abs(row.offset)))


def bound(design: Json, proof: Json, rows: list[Own], costs: list[Fraction], account: Account) -> Fraction:
    """What the multipliers prove."""
    changes, factor, contraction = design["changes"], proof["factor"], proof["contraction"]
    n, k, m = len(changes[0]), len(changes), len(factor)
    multipliers = [Fraction(nu) for nu in proof["multipliers"]]
    fits = len(proof["roots"]) == len(contraction) == k and all(len(row) == m for row in contraction)
    if not fits or len(multipliers) != len(rows) or any(len(row) != n for row in factor):
        raise Refused("multipliers of other rows or changes than the problem's")
    account.takes(2 * k * m * (n + m) + 4 * m * n * n, 400)
    total, constant = list(costs), Fraction(design["constant"])
    for nu, row in zip(multipliers, rows):
        if nu < 0 and not row.equal:
            raise Refused("a multiplier of an inequality that is negative")
        constant += nu * row.offset
        for j, a in row.terms:
            total[j] += nu * a
    if any(total[n * n :]):
        raise Refused("multipliers that do not pay for a further column")
    shifted = [[(total[i * n + j] + total[j * n + i]) / 2 for j in range(n)] for i in range(n)]
    account.proved("the weights are above a sum of squares", is_below(factor, shifted))
    (x, one), (q, two), (v, three), (r, four) = (
        whole(factor),
        whole(contraction),
        whole(changes),
        whole([proof["roots"]]),
    )
    held = [[root * c for c in row] for root, row in zip(r[0], v)]
    trace = Fraction(
        sum(map(mul, (a for row in times(held, transposed(x)) for a in row), (a for row in q for a in row))),
        1,
    )
    trace /= 2 ** (one + two + three + four)
    gram = times(transposed(q), q)
    norm = Fraction(max(sum(map(abs, row)) for row in gram), 4**two)
    spent = Fraction(sum(map(mul, r[0], r[0])), 4**four)
    if trace <= 0 or not spent:
        return constant
    most = min(smallest_beyond(asked["privacy"]) for asked in design["privacy"])
    return constant + Fraction(trace * trace) / (norm * most * spent)


def is_below(factor: Json, exact: Exact) -> bool:
    """Whether XᵀX ⪯ V': their difference is diagonally dominant once scaled by powers of two."""
    x, bits = whole(factor)
    square = times(transposed(x), x)
    scale = [Fraction(2) ** (-(math.frexp(float(row[i]) or 1.0)[1] // 2)) for i, row in enumerate(exact)]
    for i, row in enumerate(exact):
        left = [(a - Fraction(b, 4**bits)) * scale[j] for j, (a, b) in enumerate(zip(row, square[i]))]
        if left[i] < sum(abs(a) for j, a in enumerate(left) if j != i):
            return False
    return True

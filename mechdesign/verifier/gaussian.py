"""Correlated Gaussian noise: what every change consumes, in integers; the loss; and what no covariance costs less than; of declared problems and strategies, too.

The noise is E R⁻¹ z, z standard normal: R f_P + z is released, f_P being some coordinates of the answer, and the rest is made of it. What
lies outside, f − E f_P, is the same for all neighbours if v = E v_P for every change v. A change consumes ‖R v_P‖², at most μ²; this
is convex, so that the corners of a set of changes are enough. (ε, δ) and ρ = μ²/2 are those of one normal coordinate moved by μ.

**Lower bound.** For weights y ≥ 0 of the changes d and M = Σ y d dᵀ every covariance that covers them has
tr(WΣ) ≥ (tr √(W^½ M W^½))² / (μ² Σ y): by Σ y dᵀΣ⁻¹d ≤ μ² Σ y and tr(WΣ) tr(MΣ⁻¹) ≥ (tr √(W^½ M W^½))². In doubles.

**Counts** of which at most c change, by at most a, all in one direction or not (`signed`): R = p I + q J, so that a change of k counts consumes
a² (p² k + (2pq + n q²) k²), or without the second term where it is negative and signs are free. Weights y of the sizes k prove
a² (√((n − 1) Σ y (k − k²/n)) + √(Σ y k²/n))² / (μ² Σ y), and n a² Σ y k / (μ² Σ y) where signs are free.

**A declared problem** on one covariance S. The noise is R⁻¹ z, z standard normal, of covariance S = (RᵀR)⁻¹: a change v consumes ‖R v‖², at most μ². Own rows are tr(G S) + Σ a t + k ≤ 0 or = 0 over the
entries of S, row by row, and further columns t, which stand for convex piecewise linear functions. With R B = I + D and H = BᵀGB the trace tr(G S) is tr H but
for √r ‖H‖ ((1 − ‖D‖)⁻² − 1), in the norm that sums squares.

**The bound.** For multipliers ν (at least 0 of inequalities) whose charges of each further column equal its cost, V' = V + Σ ν G, any X with XᵀX ⪯ V', any
roots r and any Q: every S within the rows costs at least (tr X Nᵀ Q)²/(‖Q‖² μ² Σ r²) + Σ ν k, N of the rows r v. For tr(XSXᵀ) μ² Σ r² ≥ tr(XSXᵀ) tr(NS⁻¹Nᵀ) ≥
(tr XNᵀQ)²/‖Q‖² by Cauchy and Schwarz. XᵀX ⪯ V' where the difference is diagonally dominant, once rows and columns are scaled. In integers.

**The matrix mechanism.** A strategy R is released with noise, R x + z, and answers A x are made of it.

A change d of the counts consumes ‖R d‖², at most μ²; of d within |d_j| ≤ a, at most c of them not 0, this convex function is largest at a
corner, d_j = ±a or 0. With G = RᵀR it is a² Σ_{i, j} ± G_ij over the counts that change. Who takes part several times changes counts that
are at least b apart, or in the same place of every epoch of b. If A = B R the answers B (R x + z) are unbiased with
covariance B Bᵀ.

Let R be lower triangular and Toeplitz with c_0 ≥ c_1 ≥ … ≥ 0. Then G_ij = Σ c_m c_{m + j − i} over m < n − j, i ≤ j, rises neither with j nor
with j − i, and is at least 0: of counts at least b apart the first, 0, b, 2b, …, with one sign, consume most.

Let R be lower triangular of b bands, R_ij = 0 unless 0 ≤ i − j < b. Columns b apart have no row in common: G_ij = 0, and counts S at least b apart
consume a² Σ G_jj over S, whatever their signs. The most that k of them consume is found by dynamic programming in integers: f_k(j), by those from j
on, is the larger of f_k(j + 1) and G_jj + f_(k−1)(j + b).

**Running totals from a few buffers**: the shift of a release, its loss, and what no Toeplitz strategy costs less than.

The strategy has the coefficients 1, Σ ω_i p_i^(k−1). With ω > 0 and Σ ω_i/p_i ≤ 1 they are positive and fall: of counts at least b apart 0, b, 2b, … consume most, with one
sign. In a release rounding adds less than r = 1 + Σ ω_i/(1 − p_i) steps to what each output shifts by: floors differ by less than 1, and what enters
a state decays by p. So outputs shift by m ‖C u‖ + r √n steps, m = ⌈a/h⌉.

**Loss.** b of 1/((1 − z) c(z)) comes from the recursion g = −Σ ω s, s ← p s + g, in fixed point. Its matrix is, up to a diagonal one of √ω, diag(p) − √ω√ωᵀ, which lies between −1
and 1 as Σ ω ≤ 1: what rounding adds to s grows by at most a unit a step in that norm, so that b_t is off by (t + 1)² units.

**Lower bound.** As Σ c_i b_(t−i) = 1, (Σ y)² ≤ ‖c‖² Σ w b² ‖H W^(−½)‖² for every y ≥ 0 and H = (y_(i+j)), and ‖H W^(−½)‖² ≤ max (HHx)_i/(w_i x_i) for
every x > 0 (Collatz and Wielandt). For the largest error, w = 1, the best y has Hh = h, h the coefficients of (1 − z)^(−½), and Σ y = Σ h². H x is one product of long integers.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from math import comb
from operator import mul
from typing import NamedTuple

from mechdesign.verifier import arithmetic
from mechdesign.verifier.allocation import largest_square, smallest_beyond
from mechdesign.verifier.arithmetic import charge, root_above, times, transposed, whole
from mechdesign.verifier.composition import PLACES, ROUND
from mechdesign.verifier.local_report import answers
from mechdesign.verifier.reading import Account, Json, Refused, asked, counts_of, flat, proofs_of, refuse
from mechdesign.verifier.table import Own, keeps_rows, reduced_costs

ROOM = 1e-11
CLOSE = 1e-6


def budget_is_kept(privacy: Json, budget: float, account: Account) -> None:
    """Check that the budget μ², from which the release takes its lattice, is within the privacy asked for."""
    most = largest_square(privacy)
    account.at_most(f"a change that consumes {budget!r} keeps {asked(privacy)}", Fraction(budget), most)


def listed(result: Json, account: Account) -> None:
    """Check noise for numbers that change by listed vectors."""
    design, law = result["design"], result["mechanism"]
    vectors, rows, lift = design["changes"], law["whitening"], law["lift"]
    size = len(vectors[0])
    held = coordinates_of(law, size, account)
    if not all(holds for *_, holds in account.rows):
        return
    budget_is_kept(design["privacy"], law["budget"], account)
    reduced = [[v[p] for p in held] for v in vectors]
    spans = [[Fraction(i == j) for j in held] for i in range(size)] if lift is None else lift
    inside = lift is None or times(exactly(reduced), transposed(lift)) == exactly(vectors)
    account.proved("nothing but what gets noise differs between neighbours", inside)
    account.agrees("what gets no noise is stated to be no change", design["span"] or len(held) == size)
    account.bounds("no change consumes more than the budget", most_of(rows, reduced), law["budget"])
    asked = spans  # exact: what is lifted of large entries may cancel
    if design["loss"] == "total":
        asked = transposed(arithmetic.cholesky(gram(spans, design["weights"])))
    factor, off = factor_of(asked, rows)
    claim = f"the loss is at most {result['value']:.12g}"
    if off < CLOSE:
        account.at_most(claim, loss_of(factor, design), result["value"] * (1 + ROOM), "recomputed")
    else:
        account.claimed(claim)
    if result["lower_bound"] is not None:
        saddle_bound(result, reduced, asked, account)


def most_of(rows: Json, vectors: Json) -> Fraction:
    """The largest ‖R v‖²."""
    (r, unit), (changes, other) = whole(rows), whole(vectors)
    images = times(changes, transposed(r))
    return Fraction(max(sum(x * x for x in image) for image in images), 4 ** (unit + other))


def coordinates_of(law: Json, size: int, account: Account) -> list[int]:
    """Return the coordinates that get noise; check that the whitening is of these."""
    held: list[int] = list(range(size)) if law["coordinates"] is None else law["coordinates"]
    rank, rows = len(held), law["whitening"]
    placed = all(a < b for a, b in zip(held, held[1:])) and held and held[0] >= 0 and held[-1] < size
    every = law["lift"] is not None or rank == size
    account.agrees("the coordinates are some of the answer's", placed and every)
    account.agrees("the whitening is of these coordinates", [len(row) for row in rows] == [rank] * rank)
    return held


def exactly(matrix: Json) -> list[list[Fraction]]:
    return [[Fraction(x) for x in row] for row in matrix]


def gram(spans: Json, weights: Json) -> list[list[float]]:
    """Return EᵀWE, the weights of errors of the coordinates that get noise."""
    lift = [[float(x) for x in row] for row in spans]
    refuse(weights is not None and weights != transposed(weights), "weights that are no symmetric matrix")
    return times(transposed(lift), lift if weights is None else times(weights, lift))


def factor_of(answers: Json, rows: Json) -> tuple[list[list[float]], float]:
    """Return B with A = B R, and the largest entry of what B R left of A before the last step, of A's largest.

    B = A R⁺ in doubles leaves A − B R, which is computed in integers: B + (A − B R) R⁺ is off by the square of what B is off by.
    """
    turned = transposed(rows)
    if len(rows) == len(turned):
        back = arithmetic.inverse(rows)
    else:
        back = times(turned, arithmetic.inverse(times(rows, turned)))
    factor = times(answers, back)
    (one, one_bits), (two, two_bits) = whole(factor), whole(rows)
    unit = 1 << (one_bits + two_bits)
    left = [
        [float(Fraction(x) - Fraction(y, unit)) for x, y in zip(row, other)]
        for row, other in zip(answers, times(one, two))
    ]
    off, top = (max(abs(x) for x in flat(matrix)) for matrix in (left, answers))
    return [[x + y for x, y in zip(row, other)] for row, other in zip(factor, times(left, back))], off / top


def loss_of(factor: Json, design: Json) -> float:
    """The largest or the total variance of answers B z."""
    variances = [math.fsum(x * x for x in row) for row in factor]
    return max(variances) if design["loss"] == "largest" else math.fsum(variances)


def multipliers_of(result: Json) -> list[Json]:
    """Return weights of changes and loads of answers, a pair for each attribute of the counts or one for all."""
    held: list[Json] = proofs_of(result)["closed-bound"]["given"]
    workload = result["design"]["workload"]
    sizes = {1} if workload is None else {1, len(workload["blocks"][0])}
    largest = result["design"]["loss"] == "largest"
    if len(held) not in sizes or any(
        len(pair) != 2 or not pair[0] or (pair[1] is None) == largest for pair in held
    ):
        raise Refused("multipliers that are not weights and loads of every attribute")
    return held


def saddle_bound(result: Json, changes: Json, answers: Json, account: Account) -> None:
    """Check the bound (tr S)²/μ², S the singular values of √q A Vᵀ √w, weights w and loads q of sum 1; of the total error q = 1."""
    stated, claim = result["lower_bound"], f"no covariance costs less than {result['lower_bound']:.12g}"
    held = multipliers_of(result)
    if len(held) != 1:
        account.claimed(claim)
        return
    weights, loads = ([max(float(y), 0.0) for y in part or ()] for part in held[0])
    if result["design"]["loss"] == "largest":
        total, pairs = math.fsum(loads), zip(loads, answers, strict=True)
        answers = [[math.sqrt(q / total) * x for x in row] for q, row in pairs if q]
    top = max(weights)
    kept = [[math.sqrt(y / top) * x for x in v] for y, v in zip(weights, changes, strict=True) if y]
    moved = times(kept, transposed(answers))
    moved = moved if len(moved[0]) <= len(moved) else transposed(moved)
    trace = math.fsum(arithmetic.singular_values(moved))
    most = float(largest_square(result["design"]["privacy"])) * (1 + 1e-15)
    found = trace * trace * top / (most * math.fsum(weights))
    account.at_most(claim, stated, found * (1 + ROOM), "recomputed")


def counts(result: Json, account: Account) -> None:
    """Check noise for counts of which a few change, all by the same bound."""
    design, law, stated = result["design"], result["mechanism"], result["value"]
    changes = design["changes"]
    n, c, a, signed = changes["size"], changes["l0"], Fraction(changes["most"]), changes["signed"]
    refuse(design["weights"] is not None, "counts that are not alike")
    rows = sorted(law["whitening"], reverse=True)  # in any order they whiten alike
    refuse(not 1 <= c <= n <= 10_000 or len(rows) != n, "noise of other counts than the design's")
    if rows[0][0] < rows[0][-1]:
        rows.reverse()
    off = Fraction(rows[0][-1]) if n > 1 else Fraction(0)
    p, q = Fraction(rows[0][0]) - off, off
    same = all(
        x == (rows[0][0] if i == j else rows[0][-1]) for i, row in enumerate(rows) for j, x in enumerate(row)
    )
    account.agrees("the whitening is p I + q J", same and all(len(row) == n for row in rows))
    plain = law["lift"] is None and law["coordinates"] in (None, list(range(n)))
    account.agrees("all counts get noise", plain and p != 0 and p + n * q != 0)
    if not all(holds for *_, holds in account.rows):
        return
    budget_is_kept(design["privacy"], law["budget"], account)
    cross = 2 * p * q + n * q * q
    if signed:
        cross = max(cross, Fraction(0))
    most = max((p * p * k + cross * k * k) * a * a for k in range(1, c + 1))
    account.bounds("no change consumes more than the budget", most, law["budget"])
    along, across = 1 / (p + n * q) ** 2, 1 / p**2
    cost = ((n - 1) * across + along) / (n if design["loss"] == "largest" else 1)
    account.bounds(
        f"the loss is at most {stated!r}", cost, Fraction(stated), Fraction(stated) * Fraction(ROOM)
    )
    if result["lower_bound"] is None:
        return
    held = multipliers_of(result)
    weights = [max(float(y), 0.0) for y in held[0][0]]
    weights = [y / max(weights) for y in weights]
    sizes = [(y, k, k * k / n) for k, y in zip(range(1, c + 1), weights, strict=True)]
    unit = float(a) ** 2 / (float(largest_square(design["privacy"])) * (1 + 1e-15) * math.fsum(weights))
    found = n * math.fsum(y * k for y, k, _ in sizes) * unit
    if not signed:
        apart = math.fsum(y * (k - square) for y, k, square in sizes)
        whole = math.fsum(y * square for y, _, square in sizes)
        found = (math.sqrt((n - 1) * max(apart, 0.0)) + math.sqrt(whole)) ** 2 * unit
    found /= n if design["loss"] == "largest" else 1
    claim = f"no covariance costs less than {result['lower_bound']:.12g}"
    account.at_most(claim, result["lower_bound"], found * (1 + ROOM), "recomputed")


def covariance_problem(result: Json, account: Account) -> None:
    design, law, proofs = result["design"], result["mechanism"], proofs_of(result)
    changes, r = design["changes"], law["whitening"]
    n = len(changes[0])
    plain = law["lift"] is None and law["coordinates"] in (None, list(range(n)))
    square = len(r) == n and all(len(row) == n for row in (*r, *changes))
    if not plain or not square or not design["privacy"]:
        raise Refused("noise of other numbers than the problem's, or a problem without privacy")
    for one in design["privacy"]:
        budget_is_kept(one["privacy"], law["budget"], account)
    account.bounds("no change consumes more than the budget", most_of(r, changes), law["budget"])
    variances = [{k * (n + 1): Fraction(1)} for k in range(n)]
    named = {
        "largest variance": variances,
        "sum of the variances": [{k: w for one in variances for k, w in one.items()}],
    }.get(design["objective"])

    def bound(rows: list[Own]) -> Fraction:
        return problem_bound(design, proofs["covariance-bound"], rows, account)

    entries, sizes, off = covariance(r)
    witness, noun = proofs["law-proof"]["given"], "covariance within these constraints"
    near = [*sizes, *map(abs, witness)], [*(off * size for size in sizes), *[Fraction(0)] * len(witness)]
    keeps_rows(design, result, [*entries, *witness], n * n, 600, bound, noun, account, named, near)


def covariance(r: Json) -> tuple[list[Fraction], list[Fraction], Fraction]:
    """The entries of (RᵀR)⁻¹ but for a share of sizes, these, and that share.

    B is the inverse in doubles, after a step of Newton's method: the covariance is B K Bᵀ, K near 1.
    """
    (inverse, bits), (rows, more) = whole(arithmetic.inverse(r)), whole(r)
    one, product = 1 << (bits + more), times(rows, inverse)
    off = (x - one * (i == j) for i, row in enumerate(product) for j, x in enumerate(row))
    square = Fraction(sum(x * x for x in off), one * one)
    refuse(square >= Fraction(1, 4), "a whitening that doubles cannot invert")
    # with R B = I + D it is I − D² of 2B − B R B
    back = [[2 * one * x - y for x, y in zip(*pair)] for pair in zip(inverse, times(inverse, product))]
    unit = one << bits
    lengths = [root_above(Fraction(sum(x * x for x in row), unit**2)) for row in back]
    entries = [Fraction(x, unit**2) for x in flat(times(back, transposed(back)))]
    return entries, [a * b for a in lengths for b in lengths], 1 / (1 - square) ** 2 - 1


def problem_bound(design: Json, proof: Json, rows: list[Own], account: Account) -> Fraction:
    """Return the lower bound that the multipliers prove, without the constant of the objective."""
    changes, factor, contraction = design["changes"], proof["factor"], proof["contraction"]
    n, k, m = len(changes[0]), len(changes), len(factor)
    fits = len(proof["roots"]) == len(contraction) == k and all(len(row) == m for row in contraction)
    if not fits or any(len(row) != n for row in factor):
        raise Refused("multipliers of other changes than the problem's")
    own = zip(rows, map(Fraction, proof["multipliers"]), strict=True)
    costs = enumerate(map(Fraction, design["cost"]))
    reduced, constant = reduced_costs(costs, [(row.terms, -row.offset, row.equal, nu) for row, nu in own])
    total = list(reduced.values())
    refuse(any(total[n * n :]), "multipliers that do not pay for a further column")
    shifted = [[(total[i * n + j] + total[j * n + i]) / 2 for j in range(n)] for i in range(n)]
    account.at_most("the weights are above a sum of squares", 0, arithmetic.dominance(factor, shifted))
    (x, one), (q, two), (v, three) = map(whole, (factor, contraction, changes))
    (r,), four = whole([proof["roots"]])
    held = [[root * c for c in row] for root, row in zip(r, v)]
    trace = Fraction(
        sum(map(mul, flat(times(held, transposed(x))), flat(q))), 2 ** (one + two + three + four)
    )
    gram = times(transposed(q), q)
    norm = Fraction(max(sum(map(abs, row)) for row in gram), 4**two)
    spent = Fraction(sum(map(mul, r, r)), 4**four)
    if trace <= 0 or not spent:
        return constant
    most = min(smallest_beyond(asked["privacy"]) for asked in design["privacy"])
    return constant + Fraction(trace * trace) / (norm * most * spent)


SMALL = 24
"""Counts up to which a lower bound is recomputed."""
MOST_WORK = 5_000_000
"""Products in the answers' variances: more of them are not recomputed."""


def correlated(result: Json, account: Account) -> None:
    """Check Gaussian noise of the least covariance: for numbers that change by listed vectors, for counts that are alike, or for linear queries on counts."""
    design = result["design"]
    if design["workload"] is not None:
        strategy(result, account)
    elif isinstance(design["changes"], dict):
        counts(result, account)
    else:
        listed(result, account)


def strategy(result: Json, account: Account) -> None:
    design, law = result["design"], result["mechanism"]
    rows, count = law["strategy"], counts_of(design["workload"])
    account.agrees("the answers are those of the design", repr(law["workload"]) == repr(design["workload"]))
    if not rows or any(len(row) != count for row in rows) or design["weights"] is not None or design["span"]:
        raise Refused("a strategy on other counts than the workload")
    budget_is_kept(design["privacy"], law["budget"], account)
    changes, vectors = design["changes"], design["changes"]
    if isinstance(changes, dict):
        asked = changed(changes, count)
        (r, bits), most = whole(rows), changes["most"]
        spent = Fraction(largest_of(r, asked), 4**bits) * Fraction(most) ** 2
        alone = asked.most == 1
        vectors = [[float(most) * (i == j) for j in range(count)] for i in range(count)] if alone else None
    else:
        spent = most_of(rows, changes)
    account.bounds("no change consumes more than the budget", spent, law["budget"])
    errors(result, account)
    if result["lower_bound"] is None:
        return
    asked_of = answers(design["workload"], SMALL**2) if count <= SMALL else None
    if asked_of is None or vectors is None:
        multipliers_of(result)
        account.claimed(f"no covariance costs less than {result['lower_bound']:.12g}")
        return
    saddle_bound(result, vectors, asked_of, account)


def largest_of(r: list[list[int]], asked: Changed) -> int:
    """Return the largest ‖R d‖² over corners d: in closed form if R is falling or banded, else by listing."""
    count = len(r[0])
    if falling(r) and not asked.exactly:
        return sum(sum(row[: asked.most * asked.apart : asked.apart]) ** 2 for row in r)
    if asked.most == 1 or (banded(r, asked.apart) and not asked.exactly):
        charge(asked.most * count, 100)
        return most_apart([sum(map(mul, column, column)) for column in transposed(r)], asked)
    return largest_change(times(transposed(r), r), asked)


class Changed(NamedTuple):
    """Counts that change: so many, so far apart, a multiple of `every`, and whether never fewer."""

    most: int
    signed: bool
    apart: int = 1
    every: int = 1
    exactly: bool = False


def changed(changes: Json, size: int) -> Changed:
    """Return how one person changes so many counts."""
    refuse(changes["size"] != size, "changes of other counts than the workload's")
    if changes[""] == "count-changes":
        asked = Changed(changes["l0"], changes["signed"])
    else:
        often = changes["participation"]
        every = often["every"] or 1
        asked = Changed(often["times"], changes["signed"], often["apart"] or every, every, not often["fewer"])
    refuse(not 1 <= asked.most <= -(-size // asked.apart), "more counts that change than there are")
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


def largest_change(gram: list[list[int]], asked: Changed) -> int:
    """The largest ‖R d‖² over corners d of the counts that change."""
    size, (most, signed, apart, every, exactly) = len(gram), asked
    corners = ((size * comb(ways(size, k, apart, every), k - 1), k) for k in range(1, most + 1))
    charge(sum(count * k * (2 ** (k - 1) if signed else 1) for count, k in corners), 100)
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


def unbiased(law: Json, account: Account) -> list[list[float]] | None:
    """Check that the answers are unbiased, and return the matrix that makes them of the strategy's; None if it is too large."""
    rows, count = law["strategy"], counts_of(law["workload"])
    refuse(not rows or any(len(row) != count for row in rows), "a strategy on other counts than the workload")
    rank = len(rows)
    asked = answers(law["workload"], MOST_WORK // rank)
    if asked is None or rank**3 > MOST_WORK:
        account.claimed("the answers are unbiased")
        return None
    factor, off = factor_of(asked, rows)
    account.at_most("the answers are unbiased, to rounding", off, 1e-7, "recomputed")
    return factor


def errors(result: Json, account: Account) -> None:
    """Check in doubles that the answers are unbiased, and their loss."""
    stated = result["value"]
    claim = f"the {result['design']['loss']} error is at most {stated:.12g}"
    factor = unbiased(result["mechanism"], account)
    if factor is None:
        account.claimed(claim)
        return
    cost = loss_of(factor, result["design"])
    account.at_most(claim, cost, stated * (1 + ROOM), "recomputed")
    if result["lower_bound"] is not None:
        left = cost * (1 + ROOM) - result["lower_bound"]
        account.agrees("the lower bound is not above the error", left >= 0, left)


POLE_BITS = 62
SHAPE = (0.0, -0.18898, -0.35979, -0.18856, -0.12155, -0.06748, -0.02846)
"""Chebyshev coefficients of log((2t + 1) y_t) over t/n: any would prove a bound."""
MOST_BUFFERS = 8
STEPS, NUMBER = 10, 48
MOST_STEPS = 10_000
"""Of streams whose total's lower bound is proved here."""


def stream(result: Json, account: Account) -> None:
    """Running totals of counts of which some change, at least b apart."""
    design, law = result["design"], result["mechanism"]
    fits(law, account)
    steps, often = design["size"], design["participation"]
    asked = law["size"] == steps and len(law["poles"]) <= design["buffers"] <= MOST_BUFFERS
    account.agrees("steps and buffers are those of the design", asked)
    apart = often["apart"] or often["every"] or 0
    refuse(not (apart >= 1 and 1 <= often["times"] <= -(-steps // apart)), "steps nobody can take part in")
    if not all(holds for *_, holds in account.rows):
        return
    budget_is_kept(design["privacy"], law["budget"], account)
    charge(often["times"] * len(law["poles"]) ** 2, 256)
    moved = shift(law, Fraction(design["most"]), often["times"], apart)
    spent = (moved * Fraction(law["step"]) / Fraction(law["deviation"])) ** 2
    account.bounds("no change consumes more than the budget, rounding counted", spent, law["budget"])
    largest, stated = design["loss"] == "largest", result["value"]
    charge(steps * len(law["poles"]))
    cost = toeplitz_loss(law, largest) * Fraction(law["deviation"]) ** 2
    account.bounds(f"the {design['loss']} error is at most {stated:.12g}", cost, stated)
    if result["lower_bound"] is None:
        return
    claim = f"no Toeplitz strategy costs less than {result['lower_bound']:.12g}"
    refuse(often["times"] > 1, "a lower bound of counts of which several change")
    if not largest and steps > MOST_STEPS:
        account.claimed(claim)
        return
    charge(steps if largest else 200 * steps)
    least = least_largest(steps) if largest else least_total(steps)
    most = smallest_beyond(design["privacy"])
    account.bounds(claim, result["lower_bound"], least * Fraction(design["most"]) ** 2 / most)


def fits(law: Json, account: Account) -> None:
    """That coefficients are positive and fall, and the lattice is one."""
    poles, weights = law["poles"], law["weights"]
    positive = len(poles) == len(weights) and all(0 < p < 1 << POLE_BITS for p in poles) and min(weights) > 0
    falls = positive and sum(map(Fraction, weights, poles)) <= 1
    falls = falls and len(poles) <= MOST_BUFFERS and poles == sorted({*poles}, reverse=True)
    account.proved("the strategy's coefficients are positive and fall", falls)
    fine = math.frexp(law["step"])[0] == 0.5 and 2.0**40 <= law["deviation"] / law["step"] <= 2.0**52
    account.agrees("the step is a power of two", fine)
    account.agrees("there is noise", 0 < law["deviation"] < math.inf and 0 < law["budget"] < math.inf)


def shift(law: Json, most: Fraction, times: int, apart: int) -> Fraction:
    """How many steps releases of neighbours are apart, from above: all terms are positive, and digits are left for what powers near 1 cancel."""
    with localcontext(prec=2 * PLACES):
        p, w = ([Decimal(x) / 2**POLE_BITS for x in law[name]] for name in ("poles", "weights"))
        d, n, one = range(len(p)), law["size"], Decimal(1)
        fall = [x**apart for x in p]
        late = [x * y ** (apart - 1) for x, y in zip(w, p)]
        state, seen, total = [one for _ in d], [[Decimal(0) for _ in d] for _ in d], one
        for _ in range(times - 1):
            total += (1 + sum(map(mul, late, state))) ** 2
            seen = [[seen[i][j] + state[i] * state[j] for j in d] for i in d]
            state = [1 + x * y for x, y in zip(fall, state)]
        rest = n - (times - 1) * apart - 1
        for i, j in product(d, d):
            both = p[i] * p[j]
            each = seen[i][j] * (1 - both ** (apart - 1)) + state[i] * state[j] * (1 - both**rest)
            total += w[i] * w[j] * each / (1 - both)
        total *= ROUND
    rounding = 1 + sum(Fraction(x, 2**POLE_BITS - y) for x, y in zip(law["weights"], law["poles"]))
    moved = math.ceil(most / Fraction(law["step"]))
    return moved * root_above(Fraction(total)) + rounding * root_above(Fraction(n))


def toeplitz_loss(law: Json, largest: bool) -> Fraction:
    """The sum of b_t², or of (n − t) b_t², from above."""
    poles, weights, n = law["poles"], law["weights"], law["size"]
    one = 1 << 128
    state, total, found = [one] * len(poles), one, 0
    for t in range(n):
        found += (abs(total) + (t + 1) ** 2) ** 2 * (1 if largest else n - t)
        new = -(sum(map(mul, weights, state)) >> POLE_BITS)
        state = [(p * s >> POLE_BITS) + new for p, s in zip(poles, state)]
        total += new
    return Fraction(found, one * one)


def least_largest(n: int) -> Fraction:
    """(Σ h_t²)², from below."""
    term = one = 1 << 128
    total = 0
    for t in range(1, n + 1):
        total += term
        term = term * (2 * t - 1) ** 2 // (2 * t) ** 2
    return Fraction(total, one) ** 2


def least_total(n: int) -> Fraction:
    """(Σ y)² / max (HHx)_i / ((n − i) x_i)."""
    root = [1.0]
    for t in range(1, n + 1):
        root.append(root[-1] * (1 - 0.5 / t))
    angles = [math.acos((2 * t + 1) / n - 1) for t in range(n)]
    shape = [math.fsum(c * math.cos(k * angle) for k, c in enumerate(SHAPE)) for angle in angles]
    y = scaled([math.exp(x) / (2 * t + 1) * 2.0**60 for t, x in enumerate(shape)])
    x = scaled([root[t] * root[n - t] * 2.0**60 for t in range(n)])
    for _ in range(STEPS):
        image = hankel(y, scaled(hankel(y, x)))
        x = scaled([(v << 64) // (n - i) for i, v in enumerate(image)])
    image = hankel(y, hankel(y, x))
    return Fraction(sum(y)) ** 2 / max(Fraction(v, (n - i) * old) for i, (v, old) in enumerate(zip(image, x)))


def scaled(values: list[float] | list[int]) -> list[int]:
    """Positive integers of `NUMBER` bits in proportion to values, nearly."""
    whole = [int(v) for v in values]
    bits = max(0, max(whole).bit_length() - NUMBER)
    return [max(v >> bits, 1) for v in whole]


def hankel(y: list[int], x: list[int]) -> list[int]:
    """Σ_j y_(i+j) x_j for every i, by one product of integers whose digits are y, backwards, and x."""
    n = len(y)
    width = (max(y).bit_length() + max(x).bit_length() + n.bit_length() + 7) // 8
    one, other = (
        int.from_bytes(b"".join(v.to_bytes(width, "little") for v in part), "little") for part in (y[::-1], x)
    )
    digits = (one * other).to_bytes(2 * n * width, "little")
    return [int.from_bytes(digits[k * width : (k + 1) * width], "little") for k in range(n - 1, -1, -1)]

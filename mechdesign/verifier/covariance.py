"""Correlated Gaussian noise: what every change consumes, in integers; the loss; and what no covariance costs less than.

The noise is E R⁻¹ z, z standard normal: R f_P + z is released, f_P being some coordinates of the answer, and the rest is made of it. What
lies outside, f − E f_P, is the same for all neighbours if v = E v_P for every change v. A change consumes ‖R v_P‖², at most μ²; this
is convex, so that the corners of a set of changes are enough. (ε, δ) and ρ = μ²/2 are those of one normal coordinate moved by μ.

**Lower bound.** For weights y ≥ 0 of the changes d and M = Σ y d dᵀ every covariance that covers them has
tr(WΣ) ≥ (tr √(W^½ M W^½))² / (μ² Σ y): by Σ y dᵀΣ⁻¹d ≤ μ² Σ y and tr(WΣ) tr(MΣ⁻¹) ≥ (tr √(W^½ M W^½))². In doubles.

**Counts** of which at most c change, by at most a, all in one direction or not (`signed`): R = p I + q J, so that a change of k counts consumes
a² (p² k + (2pq + n q²) k²), or without the second term where it is negative and signs are free. Weights y of the sizes k prove
a² (√((n − 1) Σ y (k − k²/n)) + √(Σ y k²/n))² / (μ² Σ y), and n a² Σ y k / (μ² Σ y) where signs are free.
"""

from __future__ import annotations

import math
from fractions import Fraction
from operator import mul

from mechdesign.verifier.allocation import largest_square
from mechdesign.verifier.arithmetic import cholesky, inverse, singular_values, times, transposed, whole
from mechdesign.verifier.reading import NEAR, Account, Json, Refused, asked, proofs_of

ROOM = 1e-11
CLOSE = 1e-6


def budget_is_kept(privacy: Json, budget: float, account: Account) -> None:
    """That the budget μ², from which the release takes its lattice, is no more than what is asked for."""
    most = largest_square(privacy)
    account.proved(f"a change that consumes {budget!r} keeps {asked(privacy)}", 0 < Fraction(budget) <= most)


def listed(result: Json, account: Account) -> None:
    """Numbers that change by listed vectors."""
    design, law = result["design"], result["mechanism"]
    vectors, rows, lift = design["changes"], law["whitening"], law["lift"]
    size = len(vectors[0])
    held = coordinates_of(law, size, account)
    account.takes(len(vectors) * len(held) ** 2, 200)
    if not all(holds for *_, holds in account.rows):
        return
    budget_is_kept(design["privacy"], law["budget"], account)
    spans = spans_of(lift, size, len(held))
    reduced = [[v[p] for p in held] for v in vectors]
    inside = lift is None or all(
        all(Fraction(x) == sum(e * Fraction(c) for e, c in zip(row, part) if c) for x, row in zip(v, lift))
        for v, part in zip(vectors, reduced)
    )
    account.proved("nothing but what gets noise differs between neighbours", inside)
    account.bounds("no change consumes more than the budget", most_of(rows, reduced), law["budget"])
    gram, largest = lifted(spans, design["weights"], size), design["loss"] == "largest"
    value(result, rows, spans, gram, account)
    if result["lower_bound"] is not None:
        answers = [[float(x) for x in row] for row in spans] if largest else transposed(cholesky(gram))
        bound(result, reduced, answers, account)


def most_of(rows: Json, vectors: Json) -> Fraction:
    """The largest ‖R v‖²."""
    r, unit = whole(rows)
    images, other = whole(vectors)
    return Fraction(max(sum(sum(map(mul, row, v)) ** 2 for row in r) for v in images), 4 ** (unit + other))


def coordinates_of(law: Json, size: int, account: Account) -> list[int]:
    """The coordinates that get noise; that the whitening is of these."""
    held: list[int] = list(range(size)) if law["coordinates"] is None else law["coordinates"]
    rank, rows = len(held), law["whitening"]
    account.takes(8 * rank**3 + size * size * rank, 200)
    placed = all(a < b for a, b in zip(held, held[1:])) and held and held[0] >= 0 and held[-1] < size
    every = law["lift"] is not None or rank == size
    account.agrees("the coordinates are some of the answer's", placed and every)
    account.agrees("the whitening is of these coordinates", [len(row) for row in rows] == [rank] * rank)
    return held


def spans_of(lift: Json, size: int, rank: int) -> Json:
    """E, which makes the answer's noise of that of the coordinates."""
    spans = lift if lift is not None else [[Fraction(i == j) for j in range(size)] for i in range(size)]
    if len(spans) != size or any(len(row) != rank for row in spans):
        raise Refused("a lift of another shape")
    return spans


def lifted(spans: Json, weights: Json, size: int) -> list[list[float]]:
    """EᵀWE: what an error of the coordinates that get noise costs."""
    lift = [[float(x) for x in row] for row in spans]
    if weights is None:
        return times(transposed(lift), lift)
    if len(weights) != size or any(len(row) != size for row in weights) or weights != transposed(weights):
        raise Refused("weights that are no symmetric matrix")
    return times(transposed(lift), times(weights, lift))


def value(result: Json, rows: Json, spans: Json, gram: Json, account: Account) -> None:
    """That the covariance shown is (RᵀR)⁻¹, lifted, and what it costs."""
    stated = result["value"]
    found = inverse_gram(rows)
    if found is None:
        account.claimed(f"the loss is at most {stated!r}")
        return
    better, off = found
    true = shown_is(result["mechanism"]["covariance"], spans, better, account)
    cost = math.fsum(map(mul, (x for row in gram for x in row), (x for row in better for x in row)))
    if result["design"]["loss"] == "largest":
        cost = max(row[i] for i, row in enumerate(true))
    account.recomputed(f"the loss is at most {stated:.12g}", cost * (1 - off * off) <= stated * (1 + ROOM))


def inverse_gram(rows: Json) -> tuple[list[list[float]], float] | None:
    """(RᵀR)⁻¹ in doubles, by one step of Newton's in integers, and its relative error before that step; None where it is too large."""
    back = inverse(rows)
    found = times(back, transposed(back))
    # R Σ Rᵀ = I + D: Σ is (RᵀR)⁻¹ to a relative ‖D‖, and 2Σ − ΣRᵀRΣ to its square
    a, a_bits = whole(rows)
    s, s_bits = whole(found)
    product = times(times(a, s), transposed(a))
    one = 1 << (2 * a_bits + s_bits)
    off = math.sqrt(
        sum(
            (float(Fraction(x - one * (i == j), one))) ** 2
            for i, row in enumerate(product)
            for j, x in enumerate(row)
        )
    )
    if not off < CLOSE:
        return None
    g = times(transposed(a), a)
    sgs = times(times(s, g), s)
    better = [
        [float(Fraction(2 * x * one - y, one << s_bits)) for x, y in zip(row, other)]
        for row, other in zip(s, sgs)
    ]
    return better, off


def shown_is(shown: Json, spans: Json, better: Json, account: Account) -> list[list[float]]:
    """That a covariance shown is the lifted one, which is returned."""
    if len(shown) != len(spans) or any(len(row) != len(spans) for row in shown):
        raise Refused("a covariance of other numbers than the answer's")
    lift = [[float(x) for x in row] for row in spans]
    true = times(times(lift, better), transposed(lift))
    near = all(
        abs(x - y) <= NEAR * math.sqrt(true[i][i] * true[j][j])
        for i, (row, other) in enumerate(zip(true, shown))
        for j, (x, y) in enumerate(zip(row, other))
    )
    account.recomputed("the covariance shown is the law's", near)
    return true


def shown_is_the_law(law: Json, account: Account) -> None:
    """Of noise alone: that whitening, coordinates and lift fit together, and make the covariance shown."""
    size = len(law["covariance"])
    held = coordinates_of(law, size, account)
    account.agrees("the budget is one", 0 < law["budget"] < math.inf)
    if not all(holds for *_, holds in account.rows):
        return
    spans = spans_of(law["lift"], size, len(held))
    found = inverse_gram(law["whitening"])
    if found is None:
        account.claimed("the covariance shown is the law's")
    else:
        shown_is(law["covariance"], spans, found[0], account)


def multipliers_of(result: Json) -> list[Json]:
    """Weights of the changes, and loads of the answers, of each program."""
    proofs = proofs_of(result)
    if not {*proofs} <= {"covariance-proof", "saddle-bound"} or "covariance-proof" not in proofs:
        raise Refused("evidence that is not one proof of a covariance")
    return list(proofs["saddle-bound"]["multipliers"]) if "saddle-bound" in proofs else []


def bound(result: Json, changes: Json, answers: Json, account: Account) -> None:
    """(tr S)²/μ², S the singular values of √q A Vᵀ √w, weights w and loads q of sum 1; of the total error q = 1."""
    stated, claim = result["lower_bound"], f"no covariance costs less than {result['lower_bound']:.12g}"
    held = multipliers_of(result)
    if len(held) != 1:
        account.claimed(claim)
        return
    weights, loads = ([max(float(y), 0.0) for y in part or ()] for part in held[0])
    if len(weights) != len(changes) or not any(weights):
        raise Refused("weights of other changes than the design's")
    if result["design"]["loss"] == "largest":
        if len(loads) != len(answers) or not any(loads):
            raise Refused("loads of other answers than the design's")
        total = math.fsum(loads)
        answers = [[math.sqrt(q / total) * x for x in row] for q, row in zip(loads, answers) if q]
    top = max(weights)
    kept = [[math.sqrt(y / top) * x for x in v] for y, v in zip(weights, changes) if y > 0]
    moved = times(kept, transposed(answers))
    moved = moved if len(moved[0]) <= len(moved) else transposed(moved)
    account.takes(10 * len(moved) * len(moved[0]) ** 2)
    trace = math.fsum(singular_values(moved))
    most = float(largest_square(result["design"]["privacy"])) * (1 + 1e-15)
    account.recomputed(claim, stated <= trace * trace * top / (most * math.fsum(weights)) * (1 + ROOM))


def counts(result: Json, account: Account) -> None:
    """Counts of which a few change, all alike."""
    design, law, stated = result["design"], result["mechanism"], result["value"]
    changes = design["changes"]
    n, c, a, signed = changes["size"], changes["l0"], Fraction(changes["most"]), changes["signed"]
    if changes[""] != "count-changes" or design["weights"] is not None:
        raise Refused("counts that are not alike")
    rows = law["whitening"]
    if not 1 <= c <= n <= 10_000 or len(rows) != n:
        raise Refused("noise of other counts than the design's")
    account.takes(n * n)
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
    apart = float((along - across) / n)
    alone = apart + float(across)
    shown = law["covariance"]
    near = all(
        abs(x - (alone if i == j else apart)) <= NEAR * alone
        for i, row in enumerate(shown)
        for j, x in enumerate(row)
    )
    account.agrees("the covariance shown is the law's", near and [len(row) for row in shown] == [n] * n)
    if result["lower_bound"] is None:
        return
    held = multipliers_of(result)
    weights = [max(float(y), 0.0) for y in held[0][0]] if len(held) == 1 else []
    if len(weights) != c or not any(weights):
        raise Refused("weights of other sizes than the design's")
    weights = [y / max(weights) for y in weights]
    sizes = [(y, k, k * k / n) for k, y in enumerate(weights, 1)]
    unit = float(a) ** 2 / (float(largest_square(design["privacy"])) * (1 + 1e-15) * math.fsum(weights))
    found = n * math.fsum(y * k for y, k, _ in sizes) * unit
    if not signed:
        parts = (
            math.fsum(y * (k - square) for y, k, square in sizes),
            math.fsum(y * square for y, _, square in sizes),
        )
        found = (math.sqrt((n - 1) * max(parts[0], 0.0)) + math.sqrt(parts[1])) ** 2 * unit
    found /= n if design["loss"] == "largest" else 1
    claim = f"no covariance costs less than {result['lower_bound']:.12g}"
    account.recomputed(claim, result["lower_bound"] <= found * (1 + ROOM))

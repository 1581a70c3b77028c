"""Local reports for linear questions: a person of category x sends y with probability Q(y|x), and answers W·counts are made of all reports.

Adding a constant to a row of W moves its answer by a known number: all variances are those of G, the Gram matrix of W(I − 11ᵀ/k).

*Privacy*: in every column of Q no weight is more than e^ε times another.

*Value*: with weights π of the categories, u_y = Q(y|·)/π·Q(y|·) and M = Σ_y Q(y|·) u_yᵀ invertible, v_y = W M⁻¹ u_y is unbiased: Σ_y Q(y|x) v_y = W e_x. A report of
category x has variance Σ_y Q(y|x) |v_y|² − |W e_x|². For any Y with R = I − MY, ‖R‖ < 1, M is invertible and ‖M⁻¹ − Y‖ ≤ ‖Y‖ ‖R‖/(1 − ‖R‖): by Minkowski's
inequality the root of Σ_y Q(y|x)|v_y|² is at most that of Y's decoder and |W| ‖M⁻¹ − Y‖ max |u_y|. The value of the worst case is the largest variance, that of the average
the mean of Σ_y Q(y|x)|v_y|².

*Bound*: a private Q is a sum of rays u ∈ {1, ρ}^k, not constant, ρ ≥ e^ε. If (νᵀu)(πᵀu) ≥ uᵀΛu, Λ = YᵀGY, for all of them, then for unbiased v
tr(GY)² = (Σ_y v_y·(W Y q_y))² ≤ Σ_y (π·q_y)|v_y|² · Σ_y q_yᵀΛq_y/π·q_y ≤ Σ_y (π·q_y)|v_y|² · νᵀ1: the mean variance over π is at least tr(GY)²/νᵀ1 − Σ_x π_x G_xx.
Up to 16 categories all rays are tried, each from the last by one change. For more, π is uniform, u = 1 + bw, b = min(1, ρ − 1), entries of w are 0 or t = max(1, ρ − 1), and the difference
of the two sides is zᵀTz, z = (1, w), and terms that are at least 0: σ_i w_i(t − w_i) = 0, and products of numbers w_i and t − w_j, i ≠ j, with weights N ≥ 0. If T + δI is positive
semidefinite the difference is at least −δ(1 + t²j) where j entries are t, and 1ᵀu = k + (ρ − 1)j: prices that sum to δ max (1 + t²j)k²/(k + (ρ − 1)j)² more pay for it.
T + δI less LLᵀ for an L of doubles is diagonally dominant, which proves it semidefinite.

*Sets of categories*: a size s is drawn with weight w_s, whatever the category, and then a set S of s categories, with weight A where it holds the person's own and B elsewhere. With
D = sA + (k − s)B and t = k(A − B)/D, u = 1 + t(1_S − s/k) and M = aI + b11ᵀ, k(k − 1)a = Σ w_s t² s(k − s): unbiased, as S holds the own category with the probability sA/D and any
other with one less by ts(k − s)/(k(k − 1)). The variances follow from the probabilities of one and two categories in S, the same for all: they are linear in G_xx.

*Histograms*: let G = c(I − 11ᵀ/k). As M1 = k1, the harmonic and the arithmetic mean of the other eigenvalues of M give tr(GM⁻¹) ≥ c(k − 1)²/(tr M − k), and M is a mean of uuᵀ over rays,
for which |u|² − k = k(ρ − 1)²s(k − s)/(sρ + k − s)² at most its maximum over s. The worst variance is at least the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import product
from operator import mul

from mechdesign.verifier import arithmetic
from mechdesign.verifier.arithmetic import charge, charge_gcd, exp_bounds
from mechdesign.verifier.quantizer import left_of_ratio
from mechdesign.verifier.reading import Account, Json, Refused, counts_of, flat, proofs_of, refuse

LISTED = 16
BITS = 256
UNIT = 1 << 256
Whole = list[list[int]]


def local_report(result: Json, account: Account) -> None:
    design, law, proofs = result["design"], result["mechanism"], proofs_of(result)
    worst, epsilon = design["data"] == "worst", design["privacy"]["epsilon"]
    account.agrees("the answers are those of the design", repr(law["workload"]) == repr(design["workload"]))
    outputs, left, cost = subsets(result) if law[""] == "subset-report" else tables(result, account)
    spare = (design["outputs"] or outputs) - outputs
    account.agrees("no more outputs than asked for", spare >= 0, spare)
    words = f"every report at most e^{epsilon!r} times likelier for one category than for another"
    account.at_most(words, 0, left)
    account.proved("unbiased for every data set", True)
    account.bounds(f"value at most {result['value']!r}", cost, result["value"])
    if result["lower_bound"] is None:
        return
    claim = f"no unbiased local report costs less than {result['lower_bound']!r}"
    (diagonal, sums), below = gram(law["workload"], full=False)
    constant = Fraction(0) if worst else Fraction(sum(diagonal), below * len(diagonal))
    if "closed-bound" in proofs:
        bound = below_histograms(law["workload"], diagonal, sums, below, epsilon)
    else:
        found, scale = centred(*gram(law["workload"]))
        bound = below_all(proofs["linear-bound"], found, scale, epsilon, worst, account)
    account.bounds(claim, result["lower_bound"], bound + constant)


def tables(result: Json, account: Account) -> tuple[int, Fraction, Fraction]:
    """Return the number of outputs of a table of weights, its slack of e^ε, and its loss."""
    design, law = result["design"], result["mechanism"]
    worst, epsilon = design["data"] == "worst", design["privacy"]["epsilon"]
    refuse(law["prior"] is not None and not worst, "a decoder for other data than the design's")
    rows = table(law, account)
    full, below = gram(law["workload"])
    found, scale = centred(full, below)
    seen = squares(rows, law["prior"], found, scale)
    size, constant = len(rows), Fraction(sum(full[x][x] for x in range(len(rows))), below * len(rows))
    lost = [Fraction(found[x][x], scale) for x in range(size)]
    cost = (
        max(map(Fraction.__sub__, seen, lost)) if worst else Fraction(sum(seen) - sum(lost)) / size + constant
    )
    return len(rows[0]), left_of_ratio(rows, Fraction(epsilon)), cost


def subsets(result: Json) -> tuple[int, Fraction, Fraction]:
    """Return the number of sets of categories (0 if no limit is asked), their slack of e^ε, and their loss."""
    design, law = result["design"], result["mechanism"]
    (high, low), number = levels(law), 0
    size = counts_of(law["workload"])
    if design["outputs"] is not None:
        charge(size * len(law["sizes"]), size)
        number = sum(math.comb(size, s) for s in law["sizes"])
    left = exp_bounds(design["privacy"]["epsilon"])[0] - Fraction(high, low)
    (diagonal, sums), below = gram(law["workload"], full=False)
    entries = [
        Fraction(size * (size * g - 2 * r) + sum(sums), below * size**2) for g, r in zip(diagonal, sums)
    ]
    trace = sum(entries, Fraction(0))
    scale, (low_end, high_end) = moments_of_sets(law, size, [min(entries), max(entries)], trace)
    cost = max(low_end - min(entries), high_end - max(entries))
    if design["data"] != "worst":
        cost = trace / scale - trace / size + Fraction(sum(diagonal), below * size)
    return number, left, cost


def levels(law: Json) -> tuple[int, int]:
    """The two weights of a set."""
    if len(law["levels"]) != 2 or not law["levels"][0] > law["levels"][1] > 0:
        raise Refused("levels that are not two, the first larger")
    return law["levels"][0], law["levels"][1]


def moments_of_sets(
    law: Json, size: int, entries: list[Fraction], trace: Fraction
) -> tuple[Fraction, list[Fraction]]:
    """A lower bound of a, and upper bounds of Σ_y Q(y|x)|v_y|² of categories with these entries of G."""
    sizes, shares, (high, low) = law["sizes"], law["shares"], levels(law)
    good = sizes and len(shares) == len(sizes) and min(shares) > 0 and 0 < sizes[0] < size >= sizes[-1]
    if not good or any(a >= b for a, b in zip(sizes, sizes[1:])):
        raise Refused("sizes of sets that are none, or shares of other sizes")
    charge_gcd(20 * len(sizes), 4 * sum(map(int.bit_length, (high, max(shares), size))))
    scale, found, people = 0, [0] * len(entries), sum(shares)
    for s, share in zip(sizes, shares):
        total = s * high + (size - s) * low
        square = Fraction(share, people) * Fraction(size * (high - low), total) ** 2
        scale += int(square * s * (size - s) / (size * (size - 1)) * UNIT)
        # that the own category, another, the own and another, two others are in the set
        held = Fraction(s * high, total)
        other, pair = (s - held) / (size - 1), held * (s - 1) / (size - 1)
        two = (other * (s - 1) - pair) / (size - 2) if size > 2 else Fraction(0)
        for i, g in enumerate(entries):
            form = (held - other - 2 * pair + 2 * two) * g + (other - two) * trace
            found[i] += math.ceil(square * form * UNIT)
    refuse(scale <= 0, "sets by which counts cannot be told")
    return Fraction(scale, UNIT), [Fraction(each * UNIT, scale**2) for each in found]


def gram(workload: Json, *, full: bool = True) -> tuple[Whole, int]:
    """WᵀW as integers over a common denominator; not in `full`, its diagonal and its row sums alone."""
    size = counts_of(workload)
    total, common = [[0] * size for _ in range(size if full else 2)], 1
    for block in workload["blocks"]:
        charge((size if full else 4) * size * len(block), 200)
        found, below = [[1]] if full else [[1], [1]], 1
        for part in block:
            entry, sums, unit = part_gram(part, full)
            places, below = range(part["size"]), below * unit
            own = [[entry(i, j) for j in places] for i in places if full] or [
                [entry(i, i) for i in places],
                sums,
            ]
            pairs = product(found, own) if full else zip(found, own)
            found = [[a * b for a in row for b in other] for row, other in pairs]
        shared = math.lcm(common, below)
        up, more = shared // common, shared // below
        total = [[a * up + b * more for a, b in zip(*pair)] for pair in zip(total, found)]
        common = shared
    return total, common


def part_gram(part: Json, full: bool) -> tuple[Callable[[int, int], int], list[int], int]:
    """The entries of WᵀW along one attribute, the sums of its rows, and the denominator of both."""
    n, kind = part["size"], part["kind"]
    if kind == "matrix":
        charge((n if full else 4) * len(part["matrix"]) * n, 200)
        refuse(not part["matrix"] or any(len(row) != n for row in part["matrix"]), "queries on other counts")
        rows, bits = arithmetic.whole(part["matrix"])
        columns, totals = arithmetic.transposed(rows), [sum(row) for row in rows]
        sums = [sum(map(mul, column, totals)) for column in columns]
        return lambda i, j: sum(map(mul, columns[i], columns[j])), sums, 4**bits
    entry, total = KINDS[kind]
    return partial(entry, n), [total(n, i) for i in range(n)], 1


KINDS: dict[str, tuple[Callable[[int, int, int], int], Callable[[int, int], int]]] = {
    "identity": (lambda n, i, j: int(i == j), lambda n, i: 1),
    "total": (lambda n, i, j: 1, lambda n, i: n),
    "prefix": (lambda n, i, j: n - max(i, j), lambda n, i: (n - i) * (n + i + 1) // 2),
    "ranges": (
        lambda n, i, j: (min(i, j) + 1) * (n - max(i, j)),
        lambda n, i: (i + 1) * (n - i) * (n + 1) // 2,
    ),
}
"""The entries of WᵀW for n counts, and the sums of its rows."""


def below_histograms(
    workload: Json, diagonal: list[int], sums: list[int], below: int, epsilon: float
) -> Fraction:
    """The bound of the mean variance where all categories are alike."""
    kinds = [{part["kind"] for part in block if part["size"] > 1} for block in workload["blocks"]]
    if {"identity"} not in kinds or any(each not in ({"identity"}, {"total"}) for each in kinds):
        raise Refused("a histogram's bound for another question")
    size, growth = len(diagonal), exp_bounds(epsilon)[1]
    step = Fraction(-(-growth.numerator * 2**64 // growth.denominator), 2**64) - 1
    charge_gcd(size, 400)
    most = size * step**2 * max(Fraction(s * (size - s)) / (s * step + size) ** 2 for s in range(1, size))
    trace = Fraction(size * sum(diagonal) - sum(sums), below * size)
    return trace * (size - 1) / most - trace / size


def table(law: Json, account: Account) -> Whole:
    """The weights: rows of one total, a row for each category."""
    rows, size = law["weights"], counts_of(law["workload"])
    if len(rows) != size or len({len(row) for row in rows}) != 1 or size < 2:
        raise Refused("a table of another size than the workload")
    prior = law["prior"]
    refuse(prior is not None and (len(prior) != size or min(prior) <= 0), "a prior that is none")
    totals = [*map(sum, rows)]
    off = 1 - Fraction(max(totals), min(totals) or 1)
    account.agrees("rows sum to 1", not off and min(map(min, rows)) >= 0, off)
    refuse(min(map(sum, zip(*rows))) <= 0, "a report that nobody sends")
    return list(rows)


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


def centred(found: Whole, common: int) -> tuple[Whole, int]:
    """The Gram matrix of W(I − 11ᵀ/k)."""
    size, sums = len(found), [sum(row) for row in found]
    every = sum(sums)
    rows = [[size * (size * g - a - b) + every for g, b in zip(row, sums)] for row, a in zip(found, sums)]
    return rows, common * size**2


def squares(rows: Whole, prior: Json, found: Whole, scale: int) -> list[Fraction]:
    """Upper bounds of Σ_y Q(y|x)|v_y|² for every category, v of W(I − 11ᵀ/k); refused where M is not shown to be invertible."""
    size, total, unit = len(rows), sum(rows[0]), 1 << BITS
    chances = [1] * size if prior is None else arithmetic.whole([prior])[0][0]
    tops = [sum(map(mul, chances, column)) for column in zip(*rows)]
    # fixed point: entries of u are low by less than one unit, of M by less than two, as rows of Q sum to 1
    columns = [[w * sum(chances) * unit // top for w in column] for column, top in zip(zip(*rows), tops)]
    moments = [[x // total for x in row] for row in arithmetic.times(rows, columns)]
    held = [
        [int(x * 2**60) << (BITS - 60) for x in row]
        for row in arithmetic.inverse([[m / unit for m in row] for row in moments])
    ]
    for _ in range(6):  # doubles have one digit at least of the inverse where categories are nearly alike
        rest = residual(moments, held, unit)
        held = [[a + b // unit for a, b in zip(*pair)] for pair in zip(held, arithmetic.times(held, rest))]
    norm = Fraction(sum(map(abs, flat(held))), unit)
    left = sum(map(abs, flat(residual(moments, held, unit)))) + size * size
    off = Fraction(left, unit) + Fraction(2 * size, unit) * norm
    refuse(off >= 1, "a table by which counts cannot be told")
    longest = Fraction(max(map(sum, columns)) + size, unit)
    weight = Fraction(sum(found[x][x] for x in range(size)), scale) + 1  # at least |W|
    error = weight * (norm * off / (1 - off) * longest + norm * Fraction(size, unit))
    form = arithmetic.times(arithmetic.times(arithmetic.transposed(held), found), held)
    each = [sum(a * sum(map(mul, line, column)) for a, line in zip(column, form)) for column in columns]
    means = [Fraction(sum(map(mul, row, each)), total * scale * unit**4) for row in rows]
    return [mean + 2 * error * (mean + 1) + error**2 for mean in means]


def residual(moments: Whole, held: Whole, unit: int) -> Whole:
    """I − MY in fixed point, rounded down."""
    rows = arithmetic.times(moments, held)
    return [[(unit if i == j else 0) - x // unit for j, x in enumerate(row)] for i, row in enumerate(rows)]


def below_all(
    proof: Json, found: Whole, scale: int, epsilon: float, worst: bool, account: Account
) -> Fraction:
    """The bound of the mean variance over the prior."""
    size = len(found)
    if len(proof["prices"]) != size or {*map(len, proof["inverse"])} != {size}:
        raise Refused("multipliers of another number of categories")
    (prices,), price_bits = arithmetic.whole([proof["prices"]])
    near, bits = arithmetic.whole(proof["inverse"])
    prior = arithmetic.whole([proof["prior"]])[0][0] if worst else [1] * size
    if worst != (proof["prior"] is not None) or len(prior) != size or min(prior) < 0 or not any(prior):
        raise Refused("a prior that is none, or of other data than the design's")
    form, unit = arithmetic.times(arithmetic.times(arithmetic.transposed(near), found), near), 4**bits * scale
    cost, growth = Fraction(sum(prices), 2**price_bits), exp_bounds(epsilon)[1]
    if proof["products"] is not None:
        refuse(worst, "a matrix inequality for the worst case")
        cost += paid(proof, [[Fraction(x, unit) for x in row] for row in form], growth, account)
    else:
        two = 2 * sum(prior) << price_bits
        pairs = [[(a * q + b * p) * unit for b, q in zip(prices, prior)] for a, p in zip(prices, prior)]
        rows = [[x - two * y for x, y in zip(*pair)] for pair in zip(pairs, form)]
        account.at_most("the prices of all rays are enough", 0, least_ray(rows, growth))
    refuse(cost <= 0, "prices that are not positive")
    trace = Fraction(sum(sum(map(mul, row, column)) for row, column in zip(found, zip(*near))), scale << bits)
    return trace**2 / cost - Fraction(sum(p * found[x][x] for x, p in enumerate(prior)), sum(prior) * scale)


def least_ray(rows: Whole, growth: Fraction) -> Fraction:
    """The least uᵀ(rows)u of all u of 1 and ρ that are not constant, as a share of Σ |rows|: in the order of Gray, one entry changes at a time."""
    size = len(rows)
    refuse(size > LISTED, "rays of so many categories are not listed")
    charge(2**size * (size + 4), 300)
    low = 1 << 64
    step = -(-growth.numerator * low // growth.denominator) - low
    slopes = [low * sum(row) for row in rows]
    form, favoured, found = low * sum(slopes), set[int](), list[int]()
    for number in range(1, 2**size):
        i = (number & -number).bit_length() - 1
        move = -step if i in favoured else step
        form += 2 * move * slopes[i] + move * move * rows[i][i]
        slopes = [slope + move * x for slope, x in zip(slopes, rows[i])]
        favoured ^= {i}
        if len(favoured) < size:
            found.append(form)
    return Fraction(min(found), low * low * sum(map(abs, flat(rows))) or 1)


def paid(proof: Json, form: list[list[Fraction]], growth: Fraction, account: Account) -> Fraction:
    """Return what the slack of the matrix inequality costs; claim the inequality."""
    size, slack = len(form), Fraction(proof["slack"])
    step = Fraction(-(-growth.numerator * 2**64 // growth.denominator), 2**64) - 1
    width, top = min(step, Fraction(1)), max(step, Fraction(1))
    parts = [[[Fraction(x) for x in row] for row in part] for part in proof["products"]]
    if len(parts) != 3 or any(len(part) != size or any(len(row) != size for row in part) for part in parts):
        raise Refused("products of another number of categories")
    if any(x < 0 for x in flat(parts)) or any(part[i][i] for part in parts for i in range(size)) or slack < 0:
        raise Refused("products that are negative, or of one category with itself")
    prices, square = [[Fraction(x) for x in proof[name] or ()] for name in ("prices", "squares")]
    refuse(len(square) != size, "squares of another number of categories")
    charge_gcd(20 * size * size, 200)
    matrix = [[slack * (i == j) for j in range(size + 1)] for i in range(size + 1)]

    def add(i: int, j: int, amount: Fraction) -> None:
        """Add amount · z_i z_j."""
        matrix[i][j] += amount / 2
        matrix[j][i] += amount / 2

    for i, j in product(range(size), repeat=2):
        # of u_i u_j = 1 + b (w_i + w_j) + b² w_i w_j
        amount = prices[i] / size - form[i][j]
        add(0, 0, amount)
        add(0, i + 1, width * amount)
        add(0, j + 1, width * amount)
        add(i + 1, j + 1, width**2 * amount)
        both, neither, one = (part[i][j] for part in parts)
        add(i + 1, j + 1, one - both - neither)
        add(0, i + 1, top * (neither - one))
        add(0, j + 1, top * neither)
        add(0, 0, -(top**2) * neither)
    for i, sigma in enumerate(square, 1):
        add(i, i, sigma)
        add(0, i, -top * sigma)
    account.at_most("the matrix inequality for all rays holds", 0, arithmetic.semidefinite(matrix))
    return slack * max((1 + top**2 * j) * size**2 / (size + step * j) ** 2 for j in range(1, size))

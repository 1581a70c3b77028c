"""Finite tables of probabilities, and channels: privacy, the rows of the problem, its value, and lower bounds by rows and multipliers.

**Rows with multipliers.**

Over points x ≥ 0 (some columns of either sign) that meet rows a·x ≤ b and a·x = b, and groups of columns that sum to 1, and for multipliers λ ≥ 0
of the inequalities and ν of the equalities, with reduced costs r = c + Σ λ a + Σ ν a,

    c·x ≥ − Σ λ b − Σ ν b + Σ over groups of the least r in it,

if r ≥ 0 of every column in no group, and r = 0 of those of either sign: each row is added with a sum that is at most 0 on every such x, and a
group's columns are weights of an average. No multiplier needs to be a solver's.

**Tables.**

Pr[output y | input x] is P[x, y], integers over the total of their row. The problem is stated in numbers: own rows Σ a v + k ≤ 0 or = 0 over the
cells, row by row, and further columns, which stand for convex piecewise linear functions (any values that meet the rows bound them from
above); and privacy of pairs (x, x') of inputs at points (ε, δ), where a distance may multiply ε.

*The law.* P is private where P[x, y] ≤ ρ P[x', y], or Σ_y max(P[x, y] − ρ P[x', y], 0) ≤ δ, with a rational ρ ≤ e^ε.

*The bound.* Every private table meets, with ρ ≥ e^ε: P[x, y] − ρ P[x', y] ≤ 0; under δ, with S_y the excess, P[x, y] − ρ P[x', y] − S_y ≤ 0 and
Σ S_y ≤ δ; and where one ε holds for all pairs, with a_y the least of column y, P[x, y] − ρ a_y ≤ 0 and a_y − P[x, y] ≤ 0. Rows of P sum to 1.
Cells that rows force to zero are no columns: where the least that a row Σ a P + k ≤ 0 can be, each input putting its mass on its least
coefficient, is 0, all other cells of these inputs are 0; and a cell is 0 where that of a neighbour under pure privacy is.

*Distances* between the points of a finite metric space, in doubles, are stated as a matrix, or follow from the kind of space: of clusters one
within and one across, great circles of the mean earth between degrees of latitude and longitude, else straight lines
between coordinates.

*A count* in 0, …, n, answered there. A private table C has, for any prior w of the true values and any ψ ≥ 0 of neighbours x, x′ and answers y, a worst (with the question's
prior as w: a mean) loss of at least Σ_x min_y (w_x ℓ(y − x) + Σ ψ_xx′(y) − e^ε ψ_x′x(y)) − δ Σ_xx′ max_y ψ_xx′(y): rows of C are averages, and
Σ_y ψ_xx′(y) (C[x, y] − e^ε C[x′, y]) is at most δ max_y ψ_xx′(y).

*Counts of votes*, in any order: a choice by sorted counts serves all, candidates of equal counts being chosen alike.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator
from fractions import Fraction
from functools import partial
from itertools import accumulate, combinations_with_replacement, pairwise, permutations, product
from typing import Any, NamedTuple, TypeAlias

from mechdesign.verifier import reading
from mechdesign.verifier.arithmetic import charge, charge_gcd, exp_bounds
from mechdesign.verifier.reading import Account, Json, NotCovered, Refused, refuse

Column = Hashable
Row = tuple[Iterable[tuple[Any, Fraction]], Fraction, bool, Fraction]
"""Coefficients, right side, whether it is an equality, multiplier."""


def increasing(proof: Json) -> None:
    """Refuse multipliers unless the numbers of their rows increase."""
    numbers = proof["rows"]
    if len(numbers) != len(proof["multipliers"]) or any(b <= a for a, b in pairwise([-1, *numbers])):
        raise Refused("numbers of rows that do not increase, or without their multipliers")


Section: TypeAlias = tuple[int, Callable[[int], tuple[Iterable[tuple[Column, Fraction]], Fraction]]]
"""How many inequalities follow each other, and the coefficients and the right side of one by its place."""


def picked(
    proof: Json, first: int, points: list[Any], sections: Callable[[int, Any], list[Section]]
) -> Iterator[Row]:
    """The rows that have multipliers, by the numbers of a problem whose sections of each point stand behind so many rows of its own."""
    increasing(proof)
    parts = [part for p, point in enumerate(points) for part in sections(p, point)]
    starts = list(accumulate((count for count, _ in parts), initial=first))
    for number, multiplier in zip(proof["rows"], proof["multipliers"], strict=True):
        if number >= first:
            k = bisect_right(starts, number) - 1
            refuse(k == len(parts), "a row that the problem has not")
            terms, right = parts[k][1](number - starts[k])
            yield list(terms), right, False, multiplier


def reduced_costs(costs: Any, rows: Iterable[Row]) -> tuple[dict[Column, Fraction], Fraction]:
    """Return costs and rows with their multipliers, added up, and the right sides."""
    reduced, bound = dict[Column, Fraction](costs), Fraction(0)
    for terms, right, equal, multiplier in rows:
        refuse(multiplier < 0 and not equal, "a multiplier of an inequality that is negative")
        bound -= multiplier * right
        for column, factor in terms:
            reduced[column] = reduced.get(column, Fraction(0)) + multiplier * factor
    return reduced, bound


def lower_bound(
    costs: Any, rows: Iterable[Row], groups: Iterable[Any], signed: set[int], none: Iterable[int] = ()
) -> Fraction:
    """Return the bound that the multipliers prove, of columns of which some are `none`; refuse them if they prove none."""
    reduced, bound = reduced_costs(costs, rows)
    for column in none:
        reduced.pop(column, None)
    for group in groups:
        left_in = (reduced.pop(column, Fraction(0)) for column in group if column not in none)
        bound += min(left_in, default=Fraction(0))
    if any(left < 0 or (left and column in signed) for column, left in reduced.items()):
        raise Refused("multipliers that leave a reduced cost of the wrong sign")
    return bound


EARTH = 6371.0088
"""Its mean radius in kilometres, of which great circles are."""


def distances(space: Json) -> list[list[float]]:
    """The distances between all points, in doubles."""
    points, kind = space["points"], space["kind"]
    size = len(space["matrix"] or points or ()) or math.prod(space["shape"])
    charge(6 * size**2)
    if space["matrix"] is not None:
        found = space["matrix"]
    elif kind == "clustered":
        _, each = space["shape"]
        near, far = space["within"], space["across"]
        found = [[near if x // each == y // each else far for y in range(size)] for x in range(size)]
    else:
        apart_by = great_circle if kind == "geodesic" else math.dist
        found = [[apart_by(p, q) for q in points] for p in points]
    apart = (d for x, row in enumerate(found) for y, d in enumerate(row) if x != y)
    whole = len(found) == size and all(len(row) == size for row in found)
    if not whole or not all(0 < d < math.inf for d in apart):
        raise Refused("points of a space that are not apart, or of another number")
    return [[0.0 if x == y else d for y, d in enumerate(row)] for x, row in enumerate(found)]


def great_circle(one: list[float], other: list[float]) -> float:
    (a, b), (c, d) = (map(math.radians, place) for place in (one, other))
    chord = math.sin((a - c) / 2) ** 2 + math.cos(a) * math.cos(c) * math.sin((b - d) / 2) ** 2
    return 2 * EARTH * math.asin(math.sqrt(min(chord, 1.0)))


MISSED = Fraction(1, 10**12)
"""Of its size, what an equality that depends on others may be missed by; "at most" is exact."""


class Own(NamedTuple):
    """A row of the user's own."""

    label: str
    equal: bool
    terms: list[tuple[int, Fraction]]
    offset: Fraction


class Point(NamedTuple):
    """Privacy of pairs of inputs at one (ε, δ): the claim, and both ends of e^ε for each pair."""

    claim: str
    pairs: list[tuple[int, int]]
    delta: Fraction
    rates: list[tuple[Fraction, Fraction]]
    alike: bool


def table(result: Json, account: Account) -> None:
    design, law = result["design"], result["mechanism"]
    refuse(law[""] != "table-mechanism", "another mechanism than a table")
    same = all(repr(law[name]) == repr(design[name]) for name in ("inputs", "outputs"))
    account.agrees("inputs and outputs are those of the problem", same)
    refuse(not same, "a table that is not of its problem")
    declared(design, result, account, "table within these constraints")


def declared(design: Json, result: Json, account: Account, noun: str) -> None:
    """Check the law, the value and the bound of a problem in numbers; `noun` names the mechanisms that the bound covers."""
    proofs, weights = reading.proofs_of(result), result["mechanism"]["weights"]
    n, m, totals = len(design["inputs"]), len(design["outputs"]), [sum(row) for row in weights]
    whole = len(weights) == n and all(len(row) == m and min(row) >= 0 < sum(row) for row in weights)
    account.agrees("weights are rows of probabilities, of each input one of each output", whole)
    refuse(not whole, "a table that is not of its problem")
    points = list(private_points(design, n, account))
    bits = max(total.bit_length() for total in totals)
    for point in points:
        charge(2 * m * len(point.pairs), bits)
        left = min(
            left_between(weights[a], totals[a], weights[b], totals[b], low, point.delta)
            for (a, b), (low, _) in zip(point.pairs, point.rates)
        )
        account.at_most(point.claim, 0, left)
    cells = [Fraction(w, total) for row, total in zip(weights, totals) for w in row]

    def proved(rows: list[Own]) -> Fraction:
        return bound(design, proofs["rows-bound"], rows, points)

    witness = proofs["table-proof"]["witness"]
    keeps_rows(design, result, [*cells, *witness], n * m, bits, proved, noun, account, named_losses(design))


SHARE = r"\d+(?:\.\d+)?(?:e-\d+)?"
NAMED = re.compile(
    r"expected (absolute error|squared error|share of wrong outputs), "
    rf"(?:at the worst input|over (a uniform prior|the prior given|the prior \(({SHARE}(?:, {SHARE})*)\)))"
)
"""Words of the objective that name its coefficients."""


def named_losses(design: Json) -> list[dict[int, Fraction]] | None:
    """The linear functions of the cells whose largest the words of an objective name; None if they are its author's.

    The weights of a prior, which the words print to six digits, are read off the costs.
    """
    if "objective" not in design or (found := NAMED.fullmatch(design["objective"])) is None:
        return None
    inputs, outputs = ([on_line(z) for z in design[side]] for side in ("inputs", "outputs"))
    n, m, losses = len(inputs), len(outputs), list[list[Fraction]]()
    for x in inputs:
        row = [Fraction(x != y) for y in outputs]
        if not found[1].startswith("share"):
            off = [[Fraction(a) - Fraction(b) for a, b in zip(x, y, strict=True)] for y in outputs]
            row = [sum((a * a for a in each), Fraction(0)) for each in off]
            if found[1].startswith("absolute"):
                row = [abs(z[0]) if len(z) == 1 else Fraction(math.sqrt(s)) for z, s in zip(off, row)]
        losses.append(row)
    weights = [Fraction(1, n)] * n
    if found[2] is None:
        return [{x * m + y: c for y, c in enumerate(row) if c} for x, row in enumerate(losses)]
    if found[2] != "a uniform prior" and all(map(any, losses)):
        places = [(x * m + row.index(max(row)), max(row)) for x, row in enumerate(losses)]
        weights = [max(Fraction(design["cost"][j]) / most, Fraction(0)) for j, most in places]
        total, printed = sum(weights), [Fraction(w) for w in found[3].split(", ")] if found[3] else weights
        if len(printed) != n or not total or any(abs(w - p) > p / 10**5 for w, p in zip(weights, printed)):
            return []
        weights = [w / total for w in weights]
    cells = ((x * m + y, w * c) for x, (w, row) in enumerate(zip(weights, losses)) for y, c in enumerate(row))
    return [{j: c for j, c in cells if c}]


def on_line(label: Json) -> Json:
    """A label as coordinates, a name as it is."""
    return label if isinstance(label, str | list) else [label]


def objective_is(
    design: Json, rows: list[Own], named: list[dict[int, Fraction]] | None, cells: int, account: Account
) -> None:
    """Whether the objective is the largest of the linear functions that its words name, to 1e-12; other words are claimed."""
    if "objective" not in design:
        return
    words, costs = design["objective"], {j: Fraction(c) for j, c in enumerate(design["cost"]) if c}
    if named is None:
        account.given(f"the objective is {words!r}, as its author named it")
        return
    own = [row for row in rows if row.label == "objective"]
    held, fits = [costs], True
    if own and costs and min(costs) >= cells:  # a further column is at least each of them
        fits = costs == {cells: 1} and not any(row.equal or row.offset for row in own)
        fits = fits and not any(j == cells for row in rows if row.label != "objective" for j, _ in row.terms)
        held = [{j: a for j, a in row.terms if a} for row in own]
        fits = fits and all(row.pop(cells, None) == -1 for row in held)
    fits = fits and len(held) == len(named) and not design["constant"]
    fits = fits and all(
        a.keys() == b.keys() and all(abs(a[j] - b[j]) <= abs(b[j]) / 10**12 for j in b)
        for a, b in zip(held, named)
    )
    account.agrees(f"the objective's coefficients are those of {words!r}", fits)


def keeps_rows(
    design: Json,
    result: Json,
    v: list[Fraction],
    cells: int,
    bits: int,
    proved: Callable[[list[Own]], Fraction],
    noun: str,
    account: Account,
    named: list[dict[int, Fraction]] | None,
    near: Near | None = None,
) -> None:
    """Check the user's own rows at v, cells and further columns, the value, the words of the objective, and the lower bound."""
    rows = own_rows(design, cells)
    objective_is(design, rows, named, cells, account)
    costs = [Fraction(c) for c in design["cost"]]
    refuse(len(v) != len(costs), "further columns without values")
    charge_gcd(sum(len(row.terms) for row in rows) + len(v), bits)
    curved = tangents_of(design)
    rows_hold(rows, design["labels"], v, account, curved, near)
    value = sum((c * x for c, x in zip(costs, v) if c), Fraction(design["constant"]))
    value += off_by(enumerate(costs), near)
    claim = f"the value is at most {result['value']!r}"
    account.bounds(claim, value, result["value"], sure="objective" not in curved)
    if result["lower_bound"] is None:
        return
    found = proved(rows) + Fraction(design["constant"])
    claim = f"no {noun} costs less than {result['lower_bound']!r}"
    account.bounds(claim, result["lower_bound"], found, sure=not curved)


def left_between(
    row: list[int], total: int, other: list[int], its: int, low: Fraction, delta: Fraction
) -> Fraction:
    """Return the slack of the privacy of one row against another: of δ, or of an entry if δ = 0."""
    up, down = low.numerator * total, low.denominator * its
    over = [p * down - up * q for p, q in zip(row, other)]
    most = sum(o for o in over if o > 0) if delta else max(over)
    return delta - Fraction(most, low.denominator * total * its)


Near: TypeAlias = tuple[list[Fraction], list[Fraction]]
"""Of entries that are known nearly: their sizes, and how far off they may be; without it sizes are 1, and entries exact."""


def left_of(row: Own, v: list[Fraction], near: Near | None = None) -> Fraction:
    """Return the slack of a row; negative if it is broken."""
    found = sum((a * v[j] for j, a in row.terms), row.offset)
    size = sum((abs(a) * (near[0][j] if near else 1) for j, a in row.terms), abs(row.offset))
    return (MISSED * size - abs(found) if row.equal else -found) - off_by(row.terms, near)


def off_by(terms: Iterable[tuple[int, Fraction]], near: Near | None) -> Fraction:
    """How far off a combination of entries may be."""
    return sum((abs(a) * near[1][j] for j, a in terms), Fraction(0)) if near else Fraction(0)


def tangents_of(design: Json) -> list[str]:
    """Return the families whose rows are tangents of convex functions."""
    curved: list[str] = design["curved"]
    refuse(not set(curved) <= set(design["labels"]), "tangents of families that are none")
    return curved


def rows_hold(
    rows: list[Own],
    labels: Iterable[str],
    v: list[Fraction],
    account: Account,
    curved: Iterable[str] = (),
    near: Near | None = None,
) -> None:
    """Claim, family by family, that the rows hold at v."""
    for label in labels:
        left = min((left_of(row, v, near) for row in rows if row.label == label), default=Fraction(0))
        who = f"tangents of {label!r}" if label in curved else f"rows called {label!r}"
        account.at_most(f"{who} hold", 0, left)
        if label in curved:
            account.claimed(f"they are tangents of a convex function {label!r}, which the law keeps too")


def own_rows(design: Json, cells: int) -> list[Own]:
    """Return the user's rows, in the order of their numbers."""
    asked = design["privacy"] if isinstance(design["privacy"], list) else []
    families = [*design["labels"], *(one["label"] for one in asked)]
    refuse(len(set(families)) < len(families), "two families of one name")
    count = len(design["family"])
    terms: list[list[tuple[int, Fraction]]] = [[] for _ in range(count)]
    for (i, j), a in zip(design["places"], design["coefficients"], strict=True):
        refuse(not (0 <= i < count and 0 <= j < len(design["cost"])), "a coefficient in no row or column")
        terms[i].append((j, Fraction(a)))
    if len(design["cost"]) < cells or any(j <= i for row in terms for (i, _), (j, _) in pairwise(row)):
        raise Refused("rows that are not of the table, out of order, or with two coefficients in a column")
    known, signs = range(len(design["labels"])), (0, 1)
    if any(f not in known for f in design["family"]) or any(e not in signs for e in design["equal"]):
        raise Refused("a row of no family, or neither an equality nor an inequality")
    parts = zip(design["family"], design["equal"], terms, design["offsets"], strict=True)
    return [Own(design["labels"][f], bool(e), held, Fraction(k)) for f, e, held, k in parts]


def private_points(design: Json, n: int, account: Account) -> Iterator[Point]:
    """Yield each point (ε, δ) of each requirement."""
    refuse(not design["privacy"], "a problem without privacy")
    charge(n * n * (1 + len(design["privacy"])))
    for one in design["privacy"]:
        privacy, between, far = one["privacy"], one["between"], one["distances"]
        every = sorted((a, b) for a in range(n) for b in range(n) if a != b)
        if isinstance(between, str):
            refuse(between not in ("all", "adjacent"), "pairs of inputs that are none")
            pairs = [p for p in every if between == "all" or abs(p[0] - p[1]) == 1]
        else:
            listed = {tuple(pair) for pair in between}
            pairs = [(a, b) for a, b in every if (a, b) in listed or (b, a) in listed]
            refuse(not pairs or not listed <= set(every), "pairs of inputs that are none")
        if (far is not None) != (privacy[""] == "metric-dp"):
            raise Refused("distances where none are asked for, or none where they are")
        if far is not None:
            distances_agree(privacy["metric"], far, design["inputs"], account)
        held = reading.points_of(privacy) if far is None else [(privacy["epsilon"], 0.0)]
        for epsilon, delta in held:
            if delta >= 1:
                continue
            apart = [1.0 if far is None else far[a][b] for a, b in pairs]
            charge(400 * len(set(apart)), 400)
            losses = {d: Fraction(epsilon) * Fraction(d) for d in set(apart)}
            ends = {d: exp_bounds(x, 160 + 2 * min(int(x), 120)) for d, x in losses.items()}
            alike = between == "all" and not delta and len(ends) == 1 and n > 2
            who = {"all": "all pairs of inputs", "adjacent": "adjacent inputs"}.get(
                str(between), f"{len(pairs)} listed pairs"
            )
            times = "" if far is None else " times the distance"
            claim = f"{one['label']}: epsilon = {epsilon!r}{times}, delta = {delta!r} between {who}"
            yield Point(claim, pairs, Fraction(delta), [ends[d] for d in apart], alike)


def distances_agree(metric: Json, far: Json, inputs: Json, account: Account) -> None:
    """Check that the distances are those of the metric; those of a function are claimed."""
    if isinstance(metric, dict):
        given, points = distances(metric), metric["points"]
        known, listed = (metric["names"] or None, inputs) if isinstance(inputs[0], str) else (points, [])
        if known is points is not None:
            known, listed = ([on_line(x) for x in side] for side in (points, inputs))
        numbered = inputs == list(range(len(inputs))) and sorted(known or []) != sorted(listed)
        in_order = known is None or known == listed or numbered
        account.agrees("the points of the space are the inputs, in their order", in_order)
    elif metric in ("absolute", "squared") and not isinstance(inputs[0], str):
        places, power = [on_line(x) for x in inputs], 2 if metric == "squared" else 1
        given = [[math.dist(p, q) ** power for q in places] for p in places]
    else:
        account.claimed("the distances are those of the function asked for")
        return
    off = max(abs(a - b) for r, s in zip(given, far, strict=True) for a, b in zip(r, s, strict=True))
    left = 1e-12 * max(map(max, given)) - off
    account.agrees("the distances are those of the inputs", left >= 0, left)


def zeros(rows: list[Own], points: list[Point], n: int, m: int) -> set[int]:
    """Return the cells that the rows force to zero."""
    known: set[int] = set()
    sides = [(row, sign) for row in rows for sign in ((1, -1) if row.equal else (1,))]
    sides = [(row, sign) for row, sign in sides if all(j < n * m for j, _ in row.terms)]
    before = -1
    while before < len(known):
        before = len(known)
        for row, sign in sides:
            terms = {j: sign * a for j, a in row.terms}
            least = {}
            for x in {j // m for j in terms}:
                free = [terms.get(j, Fraction(0)) for j in range(x * m, x * m + m) if j not in known]
                least[x] = min(free, default=Fraction(1))
            if sign * row.offset + sum(least.values()) == 0:
                known |= {x * m + y for x in least for y in range(m) if terms.get(x * m + y, 0) > least[x]}
        for point in points:
            if known and not point.delta:
                for a, b in point.pairs:
                    known |= {a * m + y for y in range(m) if b * m + y in known}
    return known


def bound(design: Json, proof: Json, rows: list[Own], points: list[Point]) -> Fraction:
    """Return the bound that the multipliers prove, without the constant of the objective."""
    n, m = len(design["inputs"]), len(design["outputs"])
    charge(len(rows) * n * m / 4 + 4 * len(proof["rows"]), 600)
    groups = [list(range(x * m, x * m + m)) for x in range(n)]
    private = picked(proof, len(rows), points, partial(private_rows, n, m))
    return bound_within(design, proof, rows, private, groups, zeros(rows, points, n, m))


def bound_within(
    design: Json, proof: Json, own: list[Own], others: Iterable[Row], groups: list[list[int]], none: set[int]
) -> Fraction:
    """Return the bound by own rows and others, of columns of which some are `none`."""
    multipliers = zip(proof["rows"], proof["multipliers"], strict=True)
    mine = [(own[i].terms, -own[i].offset, own[i].equal, nu) for i, nu in multipliers if i < len(own)]
    costs = {j: Fraction(c) for j, c in enumerate(design["cost"])}
    return lower_bound(costs, [*mine, *others], groups, set(range(sum(map(len, groups)), len(costs))), none)


def private_rows(n: int, m: int, p: int, point: Point) -> list[Section]:
    """The rows of the p-th point: of every pair and output, then, under δ, of the excess of every pair, or of the least of every column."""
    one = Fraction(1)

    def compared(number: int) -> tuple[Any, Fraction]:
        k, y = divmod(number, m)
        (a, b), (_, high) = point.pairs[k], point.rates[k]
        slack = [(("excess", p, k, y), -one)] if point.delta else []
        return [(a * m + y, one), (b * m + y, -high), *slack], Fraction(0)

    def excess(k: int) -> tuple[Any, Fraction]:
        return [(("excess", p, k, y), one) for y in range(m)], point.delta

    def floors(number: int) -> tuple[Any, Fraction]:
        side, j = divmod(number, n * m)
        floor = ("floor", p, j % m), one if side else -point.rates[0][1]
        return [(j, one - 2 * side), floor], Fraction(0)

    count = len(point.pairs)
    return [(count * m, compared), (count * bool(point.delta), excess), (2 * n * m * point.alike, floors)]


def channel(result: Json, account: Account) -> None:
    """Check a channel as a table that is private at alpha times the distance."""
    design, law, space = result["design"], result["mechanism"], result["design"]["space"]
    far = reading.proofs_of(result)["table-proof"]["distances"]
    refuse(law[""] != "channel" or far is None, "no channel, or no distances")
    items = range(len(far))
    account.agrees("the channel is on the design's space", repr(law["space"]) == repr(space))
    sides = not space["shape"] or math.prod(space["shape"]) == len(far)
    account.agrees("the sides of the space are of its points", sides)
    account.agrees("distances are not negative", min(map(min, far)) >= 0 and {*map(len, far)} == {len(far)})
    table_fits(law, account)
    losses: Json = {"metric": far, "squared": [[d * d for d in row] for row in far]}
    losses["error"] = [[float(x != y) for y in items] for x in items]
    losses = losses[design["loss"]] if isinstance(design["loss"], str) else design["loss"]
    prior = design["prior"] or [1 / len(far)] * len(far)
    account.agrees("the prior is one", len(prior) == len(far) == len(losses) and min(prior) >= 0)
    metric = {"": "metric-dp", "epsilon": design["alpha"], "metric": space}
    question = stated(items, range(len(losses[0])), averaged(losses, prior), metric, "all", far)
    declared(question, result, account, "channel between the points")


def averaged(losses: Json, prior: Json) -> tuple[list[float], Json]:
    """The costs of all cells, and rows: of the mean loss over a prior, or of the largest one, of which a further column is at least every input's."""
    if prior is not None:
        total = math.fsum(prior)
        return [c * p / total for p, row in zip(prior, losses, strict=True) for c in row], []
    width, last = len(losses[0]), len(losses) * len(losses[0])
    rows = [
        [*((x * width + y, c) for y, c in enumerate(row) if c), (last, -1.0)] for x, row in enumerate(losses)
    ]
    return [0.0] * last + [1.0], rows


def bounded(result: Json, account: Account) -> None:
    """Check a count as a table of answers, for the worst or the mean loss, that is private between counts at most s apart."""
    design, law = result["design"], result["mechanism"]
    n, near, loss, prior = (design[name] for name in ("n", "sensitivity", "loss", "prior"))
    if loss not in ("absolute", "squared"):
        raise NotCovered("another loss than the absolute or the squared error")
    if law[""] != "channel" or not 1 <= near <= n <= 500 or law["space"] is not None:
        raise Refused("no table, or a change that is no part of the count")
    places = range(n + 1)
    table_fits(law, account)
    losses = [[float(abs(y - x) ** (1 if loss == "absolute" else 2)) for y in places] for x in places]
    pairs = "adjacent" if near == 1 else [[x, y] for x in places for y in places if 0 < y - x <= near]
    if prior is not None and (len(prior) != n + 1 or min(prior) < 0 or not max(prior)):
        raise Refused("no prior of the true values")
    question = stated(places, places, averaged(losses, prior), design["privacy"], pairs)
    declared(question, result, account, f"mechanism with answers 0 to {n}")


def stated(inputs: Json, outputs: Json, loss: Json, privacy: Json, between: Json, far: Json = None) -> Json:
    """Return a problem in numbers, of costs and rows; its rows, if any, are those of the largest loss."""
    costs, rows = loss
    return {
        "privacy": [{"label": "private", "privacy": privacy, "between": between, "distances": far}],
        "inputs": list(inputs), "outputs": list(outputs), "cost": costs, "constant": 0.0, "labels": ["objective"][: len(rows)],
        "family": [0] * len(rows), "equal": [0] * len(rows), "offsets": [0.0] * len(rows), "curved": [],
        "places": [[i, j] for i, row in enumerate(rows) for j, _ in row],
        "coefficients": [a for row in rows for _, a in row],
    }  # fmt: skip


def table_fits(law: Json, account: Account) -> list[int]:
    """Check that weights are a table, and the one shown in doubles; return the total of every row."""
    totals = [sum(row) for row in law["weights"]]
    account.agrees("rows are probabilities", all(min(row) >= 0 < sum(row) for row in law["weights"]))
    tables = zip(law["weights"], totals, law["matrix"], strict=True)
    left = reading.lowest(
        1e-12 * (w / total) - abs(w / total - p)
        for row, total, given in tables
        for w, p in zip(row, given, strict=True)
    )
    account.agrees("the matrix shown is the channel", left >= 0, left)
    return totals


SPREADS = {"one vote": 1, "approvals": 1, "replaced vote": 2}
MOST = 2000
"""Sorted vectors of counts."""


def choice(result: Json, account: Account) -> None:
    """Check a choice as a table on sorted counts of votes, or of counts in every order that one person's move makes."""
    design, law = result["design"], result["mechanism"]
    names, votes, top = design["candidates"], design["neighbours"], design["largest"]
    size = names if isinstance(names, int) else len(names)
    by_counts = votes in SPREADS and (design["spread"], design["choose"], law[""]) == (
        None,
        1,
        "choice-table",
    )
    if not by_counts or not 2 <= size <= 10 or math.comb(top + size, size) > MOST:
        raise Refused("no table of counts, or one that is too large")
    counts = ordered(votes, size, top)
    places = {x: i for i, x in enumerate(counts)}
    first = [
        places[tuple(sorted(x, reverse=True))] * size + sum(other > part for other in x)
        for x in counts
        for part in x
    ]
    regret = [[float(max(x) - part) for part in x] for x in counts]
    equal = [[(j, -1.0), (i, 1.0)] for i, j in enumerate(first) if i != j]
    prior = None if design["objective"] == "worst" else list(map(orders, counts))
    costs, rows = averaged(regret, prior)
    known = [list(map(float, x)) for x in counts], list(range(size)) if isinstance(names, int) else names
    same = repr((law["inputs"], law["outputs"])) == repr(known)
    account.agrees("inputs are all sorted counts, and outputs the candidates", same)
    cells = [Fraction(w, sum(row)) for row in law["weights"] for w in row]
    account.agrees(
        "candidates of equal counts are chosen alike", all(cells[i] == cells[j] for i, j in enumerate(first))
    )
    pairs = [[i, j] for i, j in moves(votes, counts, places, top)]
    question = stated(counts, range(size), (costs, [*equal, *rows]), design["privacy"], pairs)
    question["labels"] = ["equal counts", *["objective"] * bool(rows)]
    question["family"] = [0] * len(equal) + [1] * len(rows)
    question["equal"] = [1] * len(equal) + [0] * len(rows)
    declared(question, result, account, f"choice by counts of 0 to {top}")


def ordered(votes: str, size: int, top: int) -> list[tuple[int, ...]]:
    """All counts up to their order, largest first; of replaced votes then those in which a count and the next one, which is one less, change places."""
    found = list(combinations_with_replacement(range(top, -1, -1), size))
    swapped = (
        (*x[:r], x[r + 1], x[r], *x[r + 2 :]) for r in range(size - 1) for x in found if x[r] == x[r + 1] + 1
    )
    return [*found, *(swapped if votes == "replaced vote" else ())]


def orders(x: tuple[int, ...]) -> int:
    """In how many orders counts may be: 0 of those that are not sorted."""
    found = math.factorial(len(x)) // math.prod(math.factorial(x.count(part)) for part in set(x))
    return found if all(a >= b for a, b in pairwise(x)) else 0


def moves(
    votes: str, counts: list[tuple[int, ...]], places: dict[tuple[int, ...], int], top: int
) -> list[tuple[int, int]]:
    """Pairs of these counts, those above `top` counted as it, between which one person moves.

    Of the other pairs each is one of these with candidates exchanged: what is added goes to the first of equal counts, what is taken comes from the last.
    """
    size = len(counts[0])
    single = [tuple(int(r == s) for s in range(size)) for r in range(size)]
    steps = {
        "one vote": single,
        "approvals": [v for v in product((0, 1), repeat=size) if any(v)],
        "replaced vote": [tuple(a - b for a, b in zip(u, v)) for u, v in permutations(single, 2)],
    }[votes]
    after = ((x, tuple(a + b for a, b in zip(x, step))) for step in steps for x in counts)
    found = [(places[x], places[y]) for x, y in after if y in places]
    if votes == "replaced vote":  # from or to a candidate that stays at `top`
        for x, move in product(counts, single):
            y = tuple(a + b for a, b in zip(x, move))
            if y in places and any(a == top and not m for a, m in zip(x, move)):
                found.append((places[x], places[y]))
    return found

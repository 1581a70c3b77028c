"""Quantizers: that the law is one, unbiased, private, and the one that the file shows; what it costs, and the rows of the person's own.

**Laws** have rows that are affine in the input between knots.

Three kinds of law stand in files. A *rational table* states the rows at the start and at the end of every segment between two
knots. A *selection law* draws an output on each side of the input and rounds between the two without bias. A *block fill* adds to
floors a what a block of length 1 − Σa covers of the weights (ρ − 1)a laid side by side, its place being such that the row's mean is
the input.

Theorem: for each of them every probability p(x, i) is an affine function of the input x between neighbouring knots. So what is
linear in a row, its sum, its mean and every p(x, i) ≤ c p(x', i), holds for all inputs once it holds at both ends of every segment.

**Loss**, expected or worst, from above.

Theorem: for the loss w₁|t| + w₂t² the expected loss at an input x,

    E ℓ(B − x) = w₁ (E B − x − 2 E[B; left] + 2x P[left]) + w₂ (E B² − 2x E B + x²),

*left* being the outputs up to x, is a quadratic in x between neighbouring knots and outputs, as the row is affine there. So the
prior's moments of order 0, 1, 2 on these cells give its mean (`mechdesign.verifier.quantizer_bound`), and ends and peaks of the
quadratics its largest value.

**Privacy and bias.**

A quantizer answers an input x of a range [lower, upper] with one of the outputs B_1 < … < B_m, the i-th with probability p(x, i).
So, checked at both ends of every segment: rows sum to 1, no probability is negative, and |Σ_i B_i p(x, i) − x| is at most the bias allowed.

*Pure.* max p ≤ e^ε min p for every output, over all rows.

*Metric, on the continuum, d = |x − x'|.* An affine function is steepest, relative to itself, where it is smallest. So
p(x, i) ≤ e^{ε|x − x'|} p(x', i) holds for all inputs if and only if |Δp| ≤ ε Δx min(p) on every segment, which is max(p) ≤ (1 + ε Δx) min(p),
and the rows are continuous.

*Metric, between the inputs of a grid,* d = |x − x'| or |x − x'|². For x < y < z, d(x, z) ≥ d(x, y) + d(y, z), so that ratios of
neighbouring inputs multiply to ratios within those of far ones: neighbours are all that is compared. (Inputs between them are first
rounded to a neighbour at random.)

*Approximate, between the inputs of a grid.* Σ_i [p(x, i) − e^ε p(x', i)]₊ ≤ δ for all pairs. It is no more than δ for any pair if
no output's largest probability is above e^ε times its smallest.

**Rows of the person's own**, on the integer weights of a selection.

A selection law draws a bin on each side of the input with the weights of its row: q_n(i) is weight i of row n over their sum. The design states rows
Σ a v + k <= 0 or = 0 over the q_n(i), i <= n, as a table with a row for each n of each family (the right one's behind the left one's, where
they differ), row by row, and over further columns, which stand for convex piecewise linear functions: any values that meet the rows bound them from above.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import accumulate, pairwise, permutations
from operator import mul
from typing import NamedTuple

from mechdesign.verifier import quantizer_bound, reading
from mechdesign.verifier.arithmetic import charge, charge_gcd, exp_bounds
from mechdesign.verifier.reading import LOST, NEAR, Account, Json, Refused, flat, proofs_of, refuse
from mechdesign.verifier.table import increasing, left_between, own_rows, rows_hold, tangents_of


class Segments(NamedTuple):
    """Knots, and a row at the start and one at the end of each segment between them: integers over a common denominator."""

    knots: list[Fraction]
    rows: list[list[int]]
    common: int

    @property
    def continuous(self) -> bool:
        """Whether each segment begins with the row that the one before ends with."""
        return self.rows[1:-1:2] == self.rows[2::2]

    @property
    def at_knots(self) -> list[list[int]]:
        """The rows at the knots of a continuous law."""
        return [self.rows[0], *self.rows[1::2]]


def segments_of(law: Json) -> Segments:
    """The segments of a law of any of the three kinds."""
    refuse(law is None or law[""] not in LAWS, "no exact law")
    found = LAWS[law[""]](law)
    if len(found.knots) < 2 or len(found.rows) != 2 * len(found.knots) - 2:
        raise Refused("segments that are not those between the knots")
    return found


def rational_table(law: Json) -> Segments:
    rows = [law[name][k] for k in range(len(law["starts"])) for name in ("starts", "ends")]
    refuse(len(law["starts"]) != len(law["ends"]), "a table with more starts than ends, or fewer")
    return over_common(law["knots"], rows)


def over_common(knots: list[Fraction], rows: list[list[Fraction]]) -> Segments:
    common = 1
    for denominator in {p.denominator for row in rows for p in row}:
        charge_gcd(1, denominator.bit_length())
        charge(1, common.bit_length())
        common = math.lcm(common, denominator)
    charge(sum(map(len, rows)), common.bit_length())
    return Segments(knots, [[int(p * common) for p in row] for row in rows], common)


def selection_law(law: Json) -> Segments:
    """For x in [B_j, B_{j+1}) a left output l ≤ j and a right one r > j by their weights; then l with probability
    (B_r − x)/(B_r − B_l), else r."""
    bins, lower, upper = law["bins"], law["lower"], law["upper"]
    m = len(bins)
    sides = law["left"], law["right"]
    if any([len(weights) for weights in side] != [*range(1, m)] for side in sides):
        raise Refused("selection weights of other lengths than 1, 2, …")
    if any(min(weights) < 0 or sum(weights) <= 0 for side in sides for weights in side):
        raise Refused("selection weights must not be negative")
    knots = [lower, *[b for b in bins if lower < b < upper], upper]
    bits = m * max((b.numerator * b.denominator).bit_length() for b in bins)  # of a sum of 1/(r − l)
    charge_gcd(len(knots) * m * (8 + m / 8), min(bits, 60 * m))
    rows = []
    for start, end in pairwise(knots):
        j = min(sum(b <= start for b in bins), m - 1)
        left, right = law["left"][j - 1], law["right"][m - j - 1][::-1]
        total_left, total_right = sum(left), sum(right)
        # Of a left output l: Σ_r w_r (r − x)/(r − l) = Σ_r w_r + (l − x) Σ_r w_r/(r − l); of a right one its mirror image.
        shares = [sum(Fraction(w) / (r - l) for w, r in zip(right, bins[j:]) if w) for l in bins[:j]]
        shares += [-sum(Fraction(w) / (r - l) for w, l in zip(left, bins[:j]) if w) for r in bins[j:]]
        others = [total_right] * j + [total_left] * (m - j)
        for x in (start, end):
            parts = zip([*left, *right], bins, shares, others, strict=True)
            rows.append(
                [w * (other + (b - x) * share) / (total_left * total_right) for w, b, share, other in parts]
            )
    return over_common(knots, rows)


def block_fill_law(law: Json) -> Segments:
    """Knots are where an end of the block passes the border of a weight, and the ends of the inputs."""
    bins, floors, rho, lower, upper = (law[key] for key in ("bins", "floors", "rho", "lower", "upper"))
    unit = math.lcm(*(a.denominator for a in floors)) * rho.denominator
    charge(8 * len(bins) ** 2, unit.bit_length())
    base, caps = [int(a * unit) for a in floors], [int(a * rho * unit) for a in floors]
    edges = list(accumulate((c - a for a, c in zip(base, caps)), initial=0))
    block, least = unit - sum(base), sum(map(mul, base, bins))
    if len(floors) != len(bins) or not 0 <= block <= edges[-1] or min(floors) < 0:
        raise Refused("floors that no block fills")
    areas = (((end - start) * b) for start, end, b in zip(edges, edges[1:], bins))
    moments = list(accumulate(areas, initial=Fraction(0)))

    def moment_up_to(place: Fraction) -> Fraction:
        k = min(bisect_right(edges, place), len(bins)) - 1
        return Fraction(moments[k] + (place - edges[k]) * bins[k])

    last = edges[-1] - block
    inside = {edge - shift for edge in edges for shift in (0, block)}
    places = [0, *sorted(place for place in inside if 0 < place < last), last]
    means = [(least + moment_up_to(place + block) - moment_up_to(place)) / unit for place in places]
    knots: list[tuple[Fraction, Fraction]] = []  # each with the place of the block there
    nearest = (upper - lower) / 2**40  # closer knots are one
    for (s, t), (mean, following) in zip(pairwise(places), pairwise(means)):
        if mean >= following or following <= lower or mean >= upper:
            continue
        for x in (max(mean, lower), min(following, upper)):
            if x == upper and len(knots) > 1 and x - knots[-1][0] < nearest:
                knots.pop()
            if not knots or x - knots[-1][0] >= nearest:
                knots.append((x, s + (t - s) * (x - mean) / (following - mean)))
    refuse([knots[0][0], knots[-1][0]] != [lower, upper], "floors whose means are not all of the inputs")
    scale, rows = math.lcm(*(place.denominator for _, place in knots)), []
    charge(4 * len(knots) * len(bins), unit.bit_length() + scale.bit_length())
    for start in (int(place * scale) for _, place in knots):
        stop = start + block * scale
        covered = (max(min(stop, v * scale) - max(start, u * scale), 0) for u, v in pairwise(edges))
        rows.append([a * scale + c for a, c in zip(base, covered)])
    return Segments([x for x, _ in knots], [row for pair in pairwise(rows) for row in pair], unit * scale)


LAWS: dict[str, Callable[[Json], Segments]] = {
    "block-fill-law": block_fill_law,
    "selection-law": selection_law,
    "rational-table": rational_table,
}


class Cell(NamedTuple):
    """Ends of a cell, and the expected loss there as a + bt + ct², t from 0 to 1."""

    span: quantizer_bound.Span
    a: Fraction
    b: Fraction
    c: Fraction

    def at(self, t: Fraction) -> Fraction:
        return self.a + self.b * t + self.c * t * t

    @property
    def largest(self) -> Fraction:
        """At an end, or at the peak between them."""
        inside = self.c < 0 < self.b < -2 * self.c
        return max(self.a, self.a + self.b + self.c, self.a - self.b**2 / (4 * self.c) if inside else self.a)


def loss_cells(law: Segments, bins: list[Fraction], loss: Json) -> Iterator[Cell]:
    """The cells between knots and outputs."""
    first, second = Fraction(loss["absolute"]), Fraction(loss["squared"])
    unit = math.lcm(*(b.denominator for b in bins))
    places = [int(b * unit) for b in bins]
    denominators = law.common, law.common * unit, law.common * unit, law.common * unit**2
    for (start, end), *ends in zip(pairwise(law.knots), law.rows[::2], law.rows[1::2]):
        sums = []
        for row in ends:
            moments = list(map(mul, places, row))
            square = sum(map(mul, places, moments)) if second else 0
            sums.append((list(accumulate(row, initial=0)), list(accumulate(moments, initial=0)), square))
        inside = bins[bisect_right(bins, start) : bisect_left(bins, end)]
        charge_gcd(10 * (1 + len(inside)), law.common.bit_length())
        for u, v in pairwise([start, *inside, end]):
            left = bisect_right(bins, u)  # so many outputs are on the left
            counted = [(mass[left], moment[left], moment[-1], square) for mass, moment, square in sums]
            at_start, at_end = ([Fraction(n, d) for n, d in zip(part, denominators)] for part in counted)
            found = []
            for x in (u, (u + v) / 2, v):
                share = (x - start) / (end - start)
                mass, moment, mean, square = (p + (q - p) * share for p, q in zip(at_start, at_end))
                absolute = mean - x - 2 * moment + 2 * x * mass
                found.append(first * absolute + second * (square - 2 * x * mean + x * x))
            low, middle, high = found
            yield Cell((u, v), low, 4 * middle - 3 * low - high, 2 * (low + high) - 4 * middle)


def expected(cells: list[Cell], moments: quantizer_bound.Moments) -> Fraction:
    """The expected loss, from above."""
    total = Fraction(0)
    for cell, bounds in zip(cells, moments.over([cell.span for cell in cells], "cells"), strict=True):
        total += sum(part * bound[part > 0] for part, bound in zip(cell[1:], bounds))
    starts = [cell.span[0] for cell in cells]
    for x, mass in moments.atoms:
        cell = cells[max(bisect_right(starts, x) - 1, 0)]
        u, v = cell.span
        loss = cell.at((x - u) / (v - u))
        total += loss * mass[loss > 0]
    return total


def stated_moments(cells: Json, spans: Json) -> Json:
    """Join the masses and moments that the proof of the value states on cells, and that of the bound on spans."""
    held = cells or spans  # point masses stand in both
    if cells and spans and (cells["masses"] != spans["masses"] or cells["spans"] or spans["cells"]):
        raise Refused("two proofs that state other point masses, or moments that neither needs")
    return held and {**held, "cells": (cells or held)["cells"], "spans": (spans or held)["spans"]}


def prior_fits(prior: quantizer_bound.Rational, law: Segments) -> bool:
    """Whether a rational prior has no negative mass, a total of 1, and nothing outside the inputs but for rounding."""
    low, high = law.knots[0], law.knots[-1]
    near = (high - low) * Fraction(NEAR) / 1000
    pieces = [*prior[0], *((x, x, mass) for x, mass in prior[1])]
    # a uniform law of negative scale is a piece whose stop is before its start
    inside = all(mass == 0 or (low - near <= a <= b <= high + near and mass > 0) for a, b, mass in pieces)
    return inside and sum(mass for *_, mass in pieces) == 1


def costs(result: Json, account: Account, law: Segments, ratio: Fraction) -> None:
    """Add the claims of value, cap and lower bound; `ratio` is at least e^ε."""
    design, bins = result["design"], result["mechanism"]["law"]["bins"]
    value, bound, loss, prior = result["value"], result["lower_bound"], design["loss"], design["prior"]
    cap, worst = design.get("max_mse"), design.get("objective") == "worst"
    proofs = proofs_of(result)
    of_bound = proofs.get("quantizer-dual-bound", {})
    duals = of_bound.get("duals")
    stated = stated_moments(proofs["quantizer-proof"]["moments"], of_bound.get("moments"))
    biased = "within the bias allowed" if design.get("max_bias") else "unbiased"
    least = f"no mechanism with {outputs_of(duals)}, {biased}, costs less than {bound!r}"
    unknown = loss["function"] is not None  # what a function says is not in the file
    if unknown:
        account.claimed(f"the value is {value:.12g}", math.isfinite(value))
    if (rows := proofs.get("rows-bound")) is not None:
        increasing(rows)
    # masses and moments in doubles prove no bound
    claimed = unknown or (rows is not None and rows["given"]["cells"] is not None)
    if bound is not None and claimed:
        account.claimed(least, bound <= value, value - bound)
    elif bound is not None and "closed-bound" in proofs:
        account.bounds(f"{least}: errors are not negative", bound, Fraction(0))
    if unknown and cap is None:
        return
    if (known := quantizer_bound.rational_prior(prior)) is not None:
        account.agrees("the prior is a law on the inputs", prior_fits(known, law))
    if stated is not None and (known is not None or (worst and cap is None)):
        raise Refused("moments are stated where none are needed")
    moments = None if worst and cap is None else quantizer_bound.Moments(prior, stated, account)

    def mean(what: str, loss: Json, most: float) -> None:
        assert moments is not None
        found = expected(list(loss_cells(law, bins, loss)), moments)
        account.bounds(f"{what} at most {most!r}{moments.given}", found, most, moments.floats * most)

    if cap is not None:
        mean("mean squared error", {"absolute": 0, "squared": 1}, cap)
    if unknown:
        return
    if worst:
        largest = max(cell.largest for cell in loss_cells(law, bins, loss))
        account.bounds(f"worst loss at most {value!r}", largest, value)
        moments = None
    else:
        mean("mean loss", loss, value)
    if bound is None or claimed or "closed-bound" in proofs:
        return
    if rows is not None:
        found = quantizer_bound.rows_bound(design, rows, moments)
    else:
        found = bound_of_duals(design, duals, bins, law, ratio, moments)
    given, room = ("", Fraction(0)) if moments is None else (moments.given, moments.room(bound, ratio))
    account.bounds(least + given, bound, found, room)


def bound_of_duals(
    design: Json, duals: Json, bins: Json, law: Segments, ratio: Fraction, moments: Json
) -> Fraction:
    """Return the bound that multipliers prove; refuse outputs and prices that are not of the question."""
    grid, own, cap = design.get("bins"), list(map(Fraction, duals["outputs"] or bins)), design.get("max_mse")
    listed = isinstance(grid, dict) and "step" in grid and not duals["between"]
    if listed and not (len(own) > steps_of(grid) and on_grid(grid, own)):
        raise Refused("a lower bound for other outputs than the question has")
    refuse(duals["cap_price"] and (cap is None or moments is None), "a price of a cap that is not there")
    inputs = law.knots[0], law.knots[-1]
    found = quantizer_bound.dual_bound(design, duals, bins, inputs, ratio, moments)
    return found - Fraction(duals["cap_price"]) * Fraction(cap or 0)


def steps_of(grid: Json) -> int:
    """Steps from one end of an alphabet to the other."""
    return int(math.ceil(2 * grid["max_abs"] / grid["step"] - NEAR))


def on_grid(grid: Json, outputs: list[Fraction]) -> bool:
    """Whether outputs are among those of an alphabet."""
    reach, count = Fraction(grid["max_abs"]), steps_of(grid)
    places = [(b + reach) * count / (2 * reach) for b in outputs]
    return all(abs(place - round(place)) <= NEAR * count and 0 <= round(place) <= count for place in places)


def outputs_of(duals: Json) -> str:
    """The outputs that a lower bound speaks of."""
    if not duals or not (own := duals["outputs"]):
        return "these outputs"
    kind = "any outputs" if duals["between"] else f"outputs among {len(own)}"
    return f"{kind} from {own[0]:.6g} to {own[-1]:.6g}"


LARGEST = 700
"""ε from which a smaller one is checked in its place: a ratio of e^700 is as good as none."""
LAST_DIGITS = 1e-15
"""Of a number up to 1, as far as two correct roundings are apart."""


def quantizer(result: Json, account: Account) -> None:
    """Check the law of a quantizer, then its cost and lower bound."""
    design, mechanism = result["design"], result["mechanism"]
    if len(proofs_of(result)["quantizer-proof"]["witness"]) != design.get("columns", 0):
        raise Refused("further columns without their values")
    law = segments_of(mechanism["law"])
    bins = mechanism["law"]["bins"]
    is_law(law, bins, account)
    account.agrees("outputs are as the design asks", outputs_fit(design, bins))
    account.agrees("inputs are the design's", inputs_fit(design, law, mechanism))
    allowed = design.get("max_bias", 0.0)
    account.bounds(f"bias at most {allowed!r}", largest_bias(law, bins), allowed)
    quantizer_privacy(design, law, account)
    shown = table_fits(law, bins, mechanism) and selection_fits(mechanism)
    account.agrees("the table shown is the law", shown)
    ratio = exp_bounds(Fraction(design["privacy"]["epsilon"]))[1]
    costs(result, account, law, ratio)


def is_law(law: Segments, bins: list[Fraction], account: Account) -> None:
    """Claim that rows are probabilities of outputs in order."""
    increase = all(a < b for values in (bins, law.knots) for a, b in pairwise(values))
    account.agrees("outputs and knots increase", increase)
    off = max(abs(Fraction(sum(row), law.common) - 1) for row in law.rows)
    account.agrees("rows sum to 1", not off and all(len(row) == len(bins) for row in law.rows), -off)
    least = Fraction(min(map(min, law.rows)), law.common)
    account.agrees("no probability is negative", least >= 0, least)


def outputs_fit(design: Json, bins: list[Fraction]) -> bool:
    """Whether the outputs are those of the design; of a search, as many as it asks for and within its reach."""
    wanted, centre = design.get("bins"), Fraction(0)
    fits = bool("m" not in design or design["m"] == len(bins))
    if isinstance(wanted, list):  # at the edge of what is feasible doubles are a few units off
        near = all(abs(Fraction(a) - b) <= abs(b) / 2**48 for a, b in zip(wanted, bins))
        return fits and len(wanted) == len(bins) and near
    if design.get("max_abs"):  # of the distance to the middle of all inputs
        wanted, centre = design, Fraction(sum(map(Fraction, design["input_range"]))) / 2
    if wanted is not None and "max_abs" in wanted:  # the outputs were searched, or are a grid
        farthest = max(abs(b - centre) for b in bins)
        fits = fits and len(bins) == wanted.get("m", len(bins)) and farthest <= wanted["max_abs"] * (1 + LOST)
    return fits and (wanted is None or "step" not in wanted or on_grid(wanted, bins))


def inputs_fit(design: Json, law: Segments, mechanism: Json) -> bool:
    """Whether the law has the inputs that are asked for: all of a grid, else both ends of the range."""
    ends = design.get("input_range") or (mechanism["knots"][0], mechanism["knots"][-1])
    whole = [law.knots[0], law.knots[-1]] == list(map(Fraction, ends))
    grid = design.get("inputs")
    return whole and (grid is None or law.knots == list(map(Fraction, grid)))


def largest_bias(law: Segments, bins: list[Fraction]) -> Fraction:
    """max |Σ B p(x) − x| at the ends of all segments."""
    unit = math.lcm(*(b.denominator for b in bins))
    places = [int(b * unit) for b in bins]
    inputs = [x for ends in pairwise(law.knots) for x in ends]
    means = (Fraction(sum(map(mul, places, row)), law.common * unit) for row in law.rows)
    return max(abs(mean - x) for mean, x in zip(means, inputs, strict=True))


def quantizer_privacy(design: Json, law: Segments, account: Account) -> None:
    """Add the claim of privacy to the account."""
    privacy = design["privacy"]
    kind, epsilon = privacy[""], Fraction(privacy["epsilon"])
    bits = law.common.bit_length() + 320
    if kind == "pure-dp":
        account.bounds(f"privacy loss at most {float(epsilon)!r}", 0, left_of_ratio(law.rows, epsilon))
        return
    elif kind == "metric-dp" and privacy["metric"] not in ("absolute", "squared"):
        raise reading.NotCovered(f"the metric {privacy['metric']!s:.40}, a function of the user's")
    elif kind == "metric-dp":
        power, unit = {"absolute": (1, "|x - x'|"), "squared": (2, "|x - x'|²")}[privacy["metric"]]
        which = "all inputs" if design["inputs"] is None else "the inputs of the grid"
        claim = f"privacy loss at most {float(epsilon)!r} {unit} between {which}"
        far, pairs = [epsilon * (y - x) ** power for x, y in pairwise(law.knots)], pairwise(law.at_knots)
        if design["inputs"] is None:
            rates = [1 + d for d in far]
        else:
            charge(4000 * len(far))  # an exponential for each pair of neighbours
            rates = [exp_bounds(min(d, LARGEST))[0] for d in far]
        ends = ((rate, pq) for rate, pair in zip(rates, pairs) for pq in permutations(pair))
        left = min(left_between(p, 1, q, 1, rate, Fraction(0)) for rate, (p, q) in ends)
        left = Fraction(-1) if power == 2 and design["inputs"] is None else left
    else:
        delta, ratio = Fraction(privacy["delta"]), exp_bounds(min(epsilon, LARGEST))[0]
        claim = f"privacy ({float(epsilon)!r}, {float(delta)!r}) between the inputs of the grid"
        used = [c for c in zip(*law.at_knots) if max(c) * ratio.denominator > ratio.numerator * min(c)]
        charge(len(law.knots) ** 2 * len(used), bits)
        most, every = delta * law.common, permutations(map(list, zip(*used)), 2)
        left = min((left_between(p, 1, q, 1, ratio, most) for p, q in every), default=most)
    account.at_most(claim, 0, left / law.common if law.continuous else Fraction(-1))


def left_of_ratio(rows: list[list[int]], epsilon: Fraction) -> Fraction:
    """The least of e^ε min p − max p over the outputs, relative to 1 + e^ε times what a row sums to."""
    ratio = exp_bounds(min(epsilon, LARGEST))[0]
    up, down = ratio.numerator, ratio.denominator
    return Fraction(min(up * min(c) - down * max(c) for c in zip(*rows)), (up + down) * max(1, sum(rows[0])))


def shown_near(exact: Json, shown: Json) -> bool:
    """Whether numbers up to 1 are shown to their last digits."""
    return all(abs(p - q) <= LAST_DIGITS for p, q in zip(flat(exact), flat(shown), strict=True))


def table_fits(law: Segments, bins: list[Fraction], mechanism: Json) -> bool:
    """Whether the table in doubles shows the law: outputs exactly, knots and probabilities to their last digits."""
    farthest = max(map(abs, bins))
    table = [[n / law.common for n in row] for row in law.rows]
    found = [table[::2], table[1::2], [float(x / farthest) for x in law.knots]]
    shown = [mechanism["starts"], mechanism["ends"], [k / farthest for k in mechanism["knots"]]]
    return shown_near(found, shown) and bool(list(map(float, bins)) == mechanism["bins"])


def selection_fits(mechanism: Json) -> bool:
    """Whether the probabilities of a selection are the weights of its law, rounded; other laws have none."""
    shown, law = mechanism["selection"], mechanism["law"]
    if shown is None:
        return True
    if law[""] != "selection-law" or shown["bins"] != mechanism["bins"]:
        return False
    sides = [pair for side in ("left", "right") for pair in zip(shown[side], law[side], strict=True)]
    totals = [sum(each) for _, each in sides]
    exact = [
        [*(w / total for w in each), *[0.0] * (len(row) - len(each))]
        for (row, each), total in zip(sides, totals)
    ]
    return shown_near(exact, [row for row, _ in sides])


def selection_problem(result: Json, account: Account) -> None:
    design = result["design"]
    sides = zip(design["o"], design["u"], strict=True)
    if not all(0 <= low <= high for pair in sides for low, high in zip(*pair, strict=True)):
        raise Refused("bounds that are none")
    quantizer(result, account)
    law = result["mechanism"]["law"]
    left, right = law["left"], law["right"]
    symmetric = design["families"] == "symmetric"
    mirrored = all(
        [a * sum(q) for a in p] == [b * sum(p) for b in q] for p, q in zip(left, right, strict=True)
    )
    account.agrees("one family serves both ends", mirrored or not symmetric)
    wide = len(left)
    each = left if symmetric else left + right
    v = [Fraction(w, sum(row)) for row in each for w in row + [0] * (wide - len(row))]
    v += proofs_of(result)["quantizer-proof"]["witness"]
    held = own_rows({**design, "cost": v}, len(v) - design["columns"])
    rows_hold(held, design["labels"], v, account, tangents_of(design))

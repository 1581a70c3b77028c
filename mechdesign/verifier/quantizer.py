"""Quantizers: that the law is one, unbiased, private, and the one that the file shows; cost and bound are checked next.

A quantizer answers an input x of a range [lower, upper] with one of the outputs B_1 < … < B_m, the i-th with probability p(x, i).
Its rows are affine between knots (`mechdesign.verifier.quantizer_laws`). So, checked at both ends of every segment: rows sum to 1,
no probability is negative, and |Σ_i B_i p(x, i) − x| is at most the bias allowed. Loss and lower bound: `mechdesign.verifier.quantizer_cost`.

*Pure.* max p ≤ e^ε min p for every output, over all rows.

*Metric, on the continuum, d = |x − x'|.* An affine function is steepest, relative to itself, where it is smallest. So
p(x, i) ≤ e^{ε|x − x'|} p(x', i) holds for all inputs if and only if |Δp| ≤ ε Δx min(p) at both ends of every segment, and the rows
are continuous.

*Metric, between the inputs of a grid,* d = |x − x'| or |x − x'|². For x < y < z, d(x, z) ≥ d(x, y) + d(y, z), so that ratios of
neighbouring inputs multiply to ratios within those of far ones: neighbours are all that is compared. (Inputs between them are first
rounded to a neighbour at random.)

*Approximate, between the inputs of a grid.* Σ_i [p(x, i) − e^ε p(x', i)]₊ ≤ δ for all pairs. It is no more than δ for any pair if
no output's largest probability is above e^ε times its smallest.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from operator import mul

from mechdesign.verifier.quantizer_cost import costs, on_grid
from mechdesign.verifier.quantizer_laws import Segments, segments_of
from mechdesign.verifier.reading import NEAR, Account, Json, NotCovered, Refused, exp_bounds, flat

LARGEST = 700
"""ε from which a smaller one is checked in its place: a ratio of e^700 is as good as none."""
LAST_DIGITS = 1e-15
"""Of a number up to 1, as far as two correct roundings are apart."""


def quantizer(result: Json, account: Account) -> None:
    """Check the law of a quantizer, then its cost and lower bound."""
    design, mechanism = result["design"], result["mechanism"]
    if mechanism[""] != "quantizer":
        raise Refused("a mechanism that is no quantizer")
    law = segments_of(mechanism["law"], account)
    bins = mechanism["law"]["bins"]
    account.agrees("outputs and knots increase", increase(law, bins))
    account.agrees("outputs are as the design asks", outputs_fit(design, bins))
    account.agrees("inputs are the design's", inputs_fit(design, law, mechanism))
    account.agrees("rows sum to 1", whole(law, bins))
    account.agrees("no probability is negative", min(map(min, law.rows)) >= 0)
    allowed = design.get("max_bias", 0.0)
    account.bounds(f"bias at most {allowed!r}", largest_bias(law, bins), allowed)
    quantizer_privacy(design, law, account)
    shown = table_fits(law, bins, mechanism) and selection_fits(mechanism)
    account.agrees("the table shown is the law", shown)
    ratio = exp_bounds(Fraction(design["privacy"]["epsilon"]))[1]
    costs(result, account, law, ratio)


def increase(law: Segments, bins: list[Fraction]) -> bool:
    """Whether outputs and knots do."""
    return all(a < b for values in (bins, law.knots) for a, b in pairwise(values))


def whole(law: Segments, bins: list[Fraction]) -> bool:
    """Whether rows sum to 1, one probability for each output."""
    return all(sum(row) == law.common and len(row) == len(bins) for row in law.rows)


def outputs_fit(design: Json, bins: list[Fraction]) -> bool:
    """Whether the outputs are those of the design, or as many and no larger than those that it searches."""
    wanted, farthest = design.get("bins"), max(map(abs, bins))
    fits = bool("m" not in design or design["m"] == len(bins))
    if isinstance(wanted, list):  # at the edge of what is feasible doubles are a few units off
        near = all(abs(Fraction(a) - b) <= abs(b) / 2**48 for a, b in zip(wanted, bins))
        return fits and len(wanted) == len(bins) and near
    if wanted is not None and "max_abs" in wanted:  # the outputs were searched, or are a grid
        limit = wanted["max_abs"] * (1 + NEAR / 1000)
        fits = fits and len(bins) == wanted.get("m", len(bins)) and farthest <= limit
    return fits and (wanted is None or "step" not in wanted or on_grid(wanted, bins))


def inputs_fit(design: Json, law: Segments, mechanism: Json) -> bool:
    """Whether the law is on the inputs that are asked for: of a grid all of them, else both ends of the range."""
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
    entries, bits = sum(map(len, law.rows)), law.common.bit_length() + 320
    account.takes(2 * entries, bits)
    if kind == "pure-dp":
        account.bounds(f"privacy loss at most {float(epsilon)!r}", 0, left_of_ratio(law.rows, epsilon))
        return
    elif kind == "metric-dp" and privacy["metric"] not in ("absolute", "squared"):
        raise NotCovered(f"the metric {privacy['metric']!s:.40}, a function of the user's")
    elif kind == "metric-dp" and design["inputs"] is None:
        claim = f"privacy loss at most {float(epsilon)!r} |x - x'| between all inputs"
        holds = law.continuous and nowhere_steeper(law, epsilon) and privacy["metric"] == "absolute"
    elif kind == "metric-dp":
        power, unit = {"absolute": (1, "|x - x'|"), "squared": (2, "|x - x'|²")}[privacy["metric"]]
        account.takes(4000 * len(law.knots))  # an exponential for each pair of neighbours
        claim = f"privacy loss at most {float(epsilon)!r} {unit} between the inputs of the grid"
        holds = law.continuous and neighbours_within(law, epsilon, power)
    elif kind == "approximate-dp":
        delta = Fraction(privacy["delta"])
        claim = f"privacy ({float(epsilon)!r}, {float(delta)!r}) between the inputs of the grid"
        holds = law.continuous and largest_excess(law, epsilon, account) <= delta * law.common
    else:
        raise NotCovered(f"quantizers with {kind}")
    account.proved(claim, holds)


def left_of_ratio(rows: list[list[int]], epsilon: Fraction) -> Fraction:
    """The least of e^ε min p − max p over the outputs, relative to 1 + e^ε times what a row sums to."""
    ratio = exp_bounds(min(epsilon, LARGEST))[0]
    up, down = ratio.numerator, ratio.denominator
    return Fraction(min(up * min(c) - down * max(c) for c in zip(*rows)), (up + down) * max(1, sum(rows[0])))


def nowhere_steeper(law: Segments, epsilon: Fraction) -> bool:
    for (x, y), start, end in zip(pairwise(law.knots), law.rows[::2], law.rows[1::2]):
        ratio = epsilon * (y - x)
        up, down = ratio.numerator, ratio.denominator
        if any(abs(p - q) * down > up * min(p, q) for p, q in zip(start, end)):
            return False
    return True


def neighbours_within(law: Segments, epsilon: Fraction, power: int) -> bool:
    for (x, y), start, end in zip(pairwise(law.knots), law.rows[::2], law.rows[1::2]):
        ratio = exp_bounds(min(epsilon * (y - x) ** power, LARGEST))[0]
        up, down = ratio.numerator, ratio.denominator
        if any(max(p, q) * down > up * min(p, q) for p, q in zip(start, end)):
            return False
    return True


def largest_excess(law: Segments, epsilon: Fraction, account: Account) -> Fraction:
    """The largest Σ_i [p(x, i) − e^ε p(x', i)]₊ of two rows, times the common denominator."""
    ratio = exp_bounds(min(epsilon, LARGEST))[0]
    up, down = ratio.numerator, ratio.denominator
    used = [column for column in zip(*law.at_knots) if max(column) * down > up * min(column)]
    if not used:
        return Fraction(0)
    account.takes(len(law.knots) ** 2 * len(used), law.common.bit_length() + 320)
    rows = list(zip(*used))
    lowered = [[q * up for q in row] for row in rows]
    raised = [[p * down for p in row] for row in rows]
    most = max(sum(p - q for p, q in zip(row, other) if p > q) for row in raised for other in lowered)
    return Fraction(most, down)


def table_fits(law: Segments, bins: list[Fraction], mechanism: Json) -> bool:
    """Whether what is shown in doubles is the law: outputs exactly, knots and probabilities to their last digits."""
    farthest = max(map(abs, bins))
    table = [[n / law.common for n in row] for row in law.rows]
    found = flat([table[::2], table[1::2], [float(x / farthest) for x in law.knots]])
    shown = flat([mechanism["starts"], mechanism["ends"], [k / farthest for k in mechanism["knots"]]])
    near = all(abs(p - q) <= LAST_DIGITS for p, q in zip(found, shown, strict=True))
    return near and bool(list(map(float, bins)) == mechanism["bins"])


def selection_fits(mechanism: Json) -> bool:
    """Whether the probabilities of a selection are the weights of the law, rounded; other laws show none."""
    shown, law = mechanism["selection"], mechanism["law"]
    if shown is None:
        return True
    if law[""] != "selection-law" or shown["bins"] != mechanism["bins"]:
        return False
    for side in ("left", "right"):
        for row, weights in zip(shown[side], law[side], strict=True):
            total = sum(weights)
            exact = [*(w / total for w in weights), *[0.0] * (len(row) - len(weights))]
            if not all(abs(p - q) <= LAST_DIGITS for p, q in zip(row, exact, strict=True)):
                return False
    return True

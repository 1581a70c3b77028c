"""Privacy of quantizers: one ratio for all inputs, or ratios that depend on how far apart two inputs are.

Rows are affine between knots (`mechdesign.verifier.quantizer_laws`).

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

from fractions import Fraction
from itertools import pairwise

from mechdesign.verifier.quantizer_laws import Segments
from mechdesign.verifier.reading import Account, Json, NotCovered, exp_bounds

LARGEST = 700
"""ε from which a smaller one is checked in its place: a ratio of e^700 is as good as none."""


def quantizer_privacy(design: Json, law: Segments, account: Account) -> None:
    """Add the claim of privacy to the account."""
    privacy = design["privacy"]
    kind, epsilon = privacy[""], Fraction(privacy["epsilon"])
    entries, bits = sum(map(len, law.rows)), law.common.bit_length() + 320
    account.takes(2 * entries, bits)
    if kind == "pure-dp":
        claim, holds = f"privacy loss at most {float(epsilon)!r}", within_one_ratio(law.rows, epsilon)
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


def within_one_ratio(rows: list[list[int]], epsilon: Fraction) -> bool:
    ratio = exp_bounds(min(epsilon, LARGEST))[0]
    up, down = ratio.numerator, ratio.denominator
    return all(max(column) * down <= up * min(column) for column in zip(*rows))


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

"""Quantizers: the law as rows that are affine between knots, its bias and its privacy; cost and bound are checked next.

Every law becomes knots and two rows for each segment between them, at its start and at its stop: integers over a common
denominator. In between a row is affine, so that what holds at both ends of every segment holds for every input.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate, pairwise
from operator import mul
from typing import TypeAlias

from mechdesign.verifier.quantizer_cost import costs
from mechdesign.verifier.reading import NEAR, Account, Json, NotCovered, Refused, exp_bounds, flat

Segments: TypeAlias = tuple[list[Fraction], list[list[int]], int]
"""Knots, rows, and the common denominator of the rows."""


def table_segments(law: Json) -> Segments:
    rows = [law[name][k] for k in range(len(law["starts"])) for name in ("starts", "ends")]
    common = math.lcm(*{p.denominator for row in rows for p in row})
    return law["knots"], [[int(p * common) for p in row] for row in rows], common


def selection_segments(law: Json) -> Segments:
    """A left output l and a right one r by their weights; then l with probability (r − x)/(r − l), else r."""
    bins, low, high, rows = law["bins"], law["lower"], law["upper"], []
    if any(min(weights) < 0 or sum(weights) <= 0 for weights in [*law["left"], *law["right"]]):
        raise Refused("selection weights must not be negative")
    knots = [low, *[v for v in bins if low < v < high], high]
    for a, b in pairwise(knots):
        j = min(sum(v <= a for v in bins), len(bins) - 1)
        left, right = law["left"][j - 1], law["right"][len(bins) - j - 1][::-1]
        L, R = sum(left), sum(right)
        # Σ_r w_r (r − x)/(r − l) = R + (l − x) Σ_r w_r/(r − l), and its mirror image.
        far = [sum(Fraction(w) / (r - l) for w, r in zip(right, bins[j:]) if w) for l in bins[:j]]
        far += [-sum(Fraction(w) / (r - l) for w, l in zip(left, bins[:j]) if w) for r in bins[j:]]
        parts = list(zip([*left, *right], bins, far, [R] * j + [L] * len(right)))
        rows += [[w * (side + (v - x) * h) / (L * R) for w, v, h, side in parts] for x in (a, b)]
    return table_segments({"knots": knots, "starts": rows[::2], "ends": rows[1::2]})


def block_segments(law: Json) -> Segments:
    """Floors a, and a block of length 1 − Σa laid over the weights (ρ − 1)a where the row's mean is x."""
    bins, floors, rho, lower, upper = (law[key] for key in ("bins", "floors", "rho", "lower", "upper"))
    unit = math.lcm(*(a.denominator for a in floors)) * rho.denominator
    base, caps = [int(a * unit) for a in floors], [int(a * rho * unit) for a in floors]
    edges = list(accumulate((c - a for a, c in zip(base, caps)), initial=0))
    block, least = unit - sum(base), sum(map(mul, base, bins))
    if not 0 <= block <= edges[-1] or min(floors) < 0:
        raise Refused("floors that no block fills")
    moments = list(accumulate(((t - s) * b for s, t, b in zip(edges, edges[1:], bins)), initial=Fraction(0)))

    def upto(s: Fraction) -> Fraction:
        k = min(bisect_right(edges, s), len(bins)) - 1
        return Fraction(moments[k] + (s - edges[k]) * bins[k])

    inside = {e - d for e in edges for d in (0, block)}
    places = [0, *sorted(s for s in inside if 0 < s < edges[-1] - block), edges[-1] - block]
    means = [(least + upto(s + block) - upto(s)) / unit for s in places]
    knots: list[tuple[Fraction, Fraction]] = []
    nearest = (upper - lower) / 2**40  # closer knots are one
    for (s, t), (m, n) in zip(pairwise(places), pairwise(means)):
        for x in (max(m, lower), min(n, upper)) if m < n and n > lower and m < upper else ():
            if x == upper and len(knots) > 1 and x - knots[-1][0] < nearest:
                knots.pop()
            if not knots or x - knots[-1][0] >= nearest:
                knots.append((x, s + (t - s) * (x - m) / (n - m)))
    d, rows = math.lcm(*(s.denominator for _, s in knots)), []
    for s in (int(s * d) for _, s in knots):
        covered = (max(min(s + block * d, v * d) - max(s, u * d), 0) for u, v in pairwise(edges))
        rows.append([a * d + c for a, c in zip(base, covered)])
    return [x for x, _ in knots], [row for pair in pairwise(rows) for row in pair], unit * d


LAWS = {"block-fill-law": block_segments, "selection-law": selection_segments}
LAWS["rational-table"] = table_segments
METRICS = {("metric-dp", "absolute"): 1, ("metric-dp", "squared"): 2}


def quantizer(result: Json, account: Account) -> None:
    """Check the law of a quantizer, then its cost and lower bound."""
    design, mechanism = result["design"], result["mechanism"]
    law, privacy = mechanism["law"], design["privacy"]
    if privacy[""] != "pure-dp" and (privacy[""], privacy.get("metric")) not in METRICS:
        raise NotCovered(f"quantizers with {privacy['']}")
    if law is None or law[""] not in LAWS:
        raise Refused("no exact law")
    bins, (knots, rows, common) = law["bins"], LAWS[law[""]](law)
    account.agrees("outputs and knots increase", all(a < b for v in (bins, knots) for a, b in pairwise(v)))
    wanted, far = design.get("bins"), max(map(abs, bins))
    fits = "m" not in design or design["m"] == len(bins)
    if isinstance(wanted, list):
        fits = fits and len(wanted) == len(
            bins
        )  # at the edge of what is feasible doubles are a few units off
        fits = fits and all(abs(Fraction(a) - b) <= abs(b) / 2**48 for a, b in zip(wanted, bins))
    elif wanted is not None and "max_abs" in wanted:  # the outputs were searched, or are a grid
        fits = len(bins) <= wanted.get("m", len(bins)) and far <= wanted["max_abs"] * (1 + NEAR / 1000)
    account.agrees("outputs are as the design asks", fits)
    ends = design.get("input_range") or (mechanism["knots"][0], mechanism["knots"][-1])
    held = knots if design.get("inputs") else [knots[0], knots[-1]]
    account.agrees("inputs are the design's", held == list(map(Fraction, design.get("inputs") or ends)))
    account.agrees("rows sum to 1", all(sum(p) == common and len(p) == len(bins) for p in rows))
    account.agrees("no probability is negative", min(map(min, rows)) >= 0)
    allowed = design.get("max_bias", 0.0)
    unit, at = math.lcm(*(b.denominator for b in bins)), [x for pair in pairwise(knots) for x in pair]
    places = [int(b * unit) for b in bins]
    bias = max(abs(Fraction(sum(map(mul, places, p)), common * unit) - x) for x, p in zip(at, rows))
    account.proved(f"bias at most {allowed!r}", bias <= Fraction(allowed))
    epsilon = Fraction(privacy["epsilon"])
    least = exp_bounds(min(epsilon, 700))[0]
    if privacy[""] == "pure-dp":
        holds = all(max(column) <= least * min(column) for column in zip(*rows))
    elif design["inputs"] is None:  # an affine p is steepest, relative to itself, where it is smallest
        steps = [(epsilon * (b - a), P, Q) for (a, b), P, Q in zip(pairwise(knots), rows[::2], rows[1::2])]
        holds = all(abs(p - q) <= power * min(p, q) for power, P, Q in steps for p, q in zip(P, Q))
        holds = holds and rows[1:-1:2] == rows[2::2] and privacy["metric"] == "absolute"
    else:
        power, points = METRICS[privacy[""], privacy["metric"]], list(zip(knots, [rows[0], *rows[1::2]]))
        pairs = [(exp_bounds(epsilon * abs(x - y) ** power)[0], P, Q) for x, P in points for y, Q in points]
        private = all(p <= most * q for most, P, Q in pairs for p, q in zip(P, Q))
        holds = private and rows[1:-1:2] == rows[2::2]
    account.proved(f"privacy loss at most {float(epsilon)!r}{' d(x, y)' * (privacy[''] != 'pure-dp')}", holds)
    table = [[n / common for n in row] for row in rows]
    found = flat([table[::2], table[1::2], [float(x / far) for x in knots]])
    shown = [mechanism["starts"], mechanism["ends"], [k / far for k in mechanism["knots"]]]
    near = all(abs(p - q) <= NEAR for p, q in zip(found, flat(shown), strict=True))
    account.agrees("the table shown is the law", near and list(map(float, bins)) == mechanism["bins"])
    costs(result, account, (knots, rows, common), exp_bounds(epsilon)[1])

#!/usr/bin/env python3
"""Check a result file of mechdesign with Python's standard library alone.

    python verify.py result.json

Every claim is printed as *proved* (exact or outward-rounded arithmetic), *recomputed* (doubles) or *claimed* (not checked
here). Exit code 0: all that is checked holds; 1: something does not, or the file is damaged; 2: this kind is not covered.
Covered are quantizers (pure local privacy, and metric privacy with the absolute or the squared metric), metric-private
channels, optimal lattice noise and noise allocations. Nothing is shared with the package: it is a second opinion. Fields
of files: docs/format.md; why the bounds hold: quantizers/common/dual_pieces.py and noise/optimal/lattice_dual.py.
"""

# mypy: ignore-errors
import hashlib
import json
import math
import sys
from bisect import bisect_left, bisect_right
from collections import Counter
from fractions import Fraction
from itertools import accumulate, pairwise
from operator import add, mul

NEAR = 1e-9
# Laws whose stated moments are proved bounds; those of others are floats.
ENCLOSED = ("norm", "truncnorm", "beta")
UNIT = 1 << 160  # masses and moments are stored in units of 1/UNIT


class NotCovered(Exception):
    """No check of this kind of result is written here."""


class Refused(Exception):
    """The file is not what mechdesign writes."""


class Account:
    """Claims, each with how it was checked and whether it holds."""

    def __init__(self):
        self.rows, self.agreeing = [], 0

    def agrees(self, claim, holds):
        """Not a claim about the mechanism: that it is a law, and that the file does not contradict itself."""
        self.agreeing += 1
        self.proved(claim, holds)

    def summary(self):
        counts = Counter(how for _, how, _ in self.rows) - Counter(proved=self.agreeing)
        said = ", ".join(f"{counts[how]} {how}" for how in ("proved", "recomputed", "claimed"))
        of = f"{counts.total()} claims ({said}) and {self.agreeing} checks that the file agrees with itself"
        return f"{sum(not holds for *_, holds in self.rows) or 'none'} fail of {of}"

    def proved(self, claim, holds):
        self.rows.append((claim, "proved", bool(holds)))

    def claimed(self, claim, holds=True):
        self.rows.append((claim, "claimed", bool(holds)))

    def recomputed(self, claim, shown, found):
        close = abs(shown - found) <= NEAR * max(abs(found), 1e-12)
        self.rows.append((f"{claim} {shown:.12g}", "recomputed", close))

    def bounds(self, claim, low, high, room=0):
        """Whether low ≤ high, exactly; within the `room` that floats may have lost, it is only recomputed."""
        low, high = Fraction(low), Fraction(high)
        self.rows.append((claim, "recomputed" if high < low <= high + room else "proved", low <= high + room))

    def same(self, stated, **shown):
        """The certificate speaks of this design and this mechanism, and of the numbers shown."""
        for key, value in shown.items():
            equal = stated[key] == value
            if key in ("value", "lower_bound") and stated[key] is not None and value is not None:
                size = max(abs(value), abs(shown["value"]))
                equal = abs(stated[key] - value) <= NEAR / 1000 * size < math.inf
            self.agrees(f"the {key.replace('_', ' ')} of the certificate is the result's", equal)


# Reading -----------------------------------------------------------------------------------------------------------


def read(text):
    """The payload of a file as plain values: objects are dictionaries with their kind under ""."""
    document = json.loads(text, object_pairs_hook=once)
    compact = {"sort_keys": True, "separators": (",", ":"), "allow_nan": False, "ensure_ascii": False}
    canonical = json.dumps(document["payload"], **compact)
    if document["format"] != "mechdesign-result" or document["version"] != 2 or len(text) > 2**26:
        raise Refused("not a mechdesign-result file of version 2")
    if hashlib.sha256(canonical.encode()).hexdigest() != document["sha256"]:
        raise Refused("the checksum does not match")
    return plain(document["payload"])


def once(pairs):
    if len({key for key, _ in pairs}) < len(pairs):
        raise Refused("a key stands twice in one object")
    return dict(pairs)


def plain(node):
    if isinstance(node, list):
        return [child if type(child) is float else plain(child) for child in node]
    if not isinstance(node, dict):
        return node
    if "$kind" in node:
        return {"": node["$kind"], **{key: plain(child) for key, child in node["fields"].items()}}
    numbers = flat(node["$array"]) if node.get("dtype") not in (None, "bool") else node.get("args", [])[:2]
    keys = {json.dumps(key) for key, _ in node.get("$items", [])}
    if bool in map(type, numbers) or len(keys) < len(node.get("$items", [])):
        raise Refused("true or false among numbers, or a key that stands twice")
    if "$law" in node:
        return {**dict(plain(node["kwds"])), "": "law", "name": node["$law"], "args": plain(node["args"])}
    meant = {"$fraction": Fraction, "$float": float}
    return next((meant.get(tag, plain)(node[tag]) for tag in node if tag.startswith("$")), None)


def exp_bounds(x, bits=320):
    """Rationals below and above e^x: a Taylor interval of x / 2^k, squared k times with outward rounding."""
    x = Fraction(x)
    if abs(x) > 2**14:
        raise NotCovered("an exponent beyond 16384")
    if x < 0:
        return tuple(1 / power for power in reversed(exp_bounds(-x, bits)))
    k = max(0, math.ceil(math.log2(x + 1)) + 2)
    small, bits = x / 2**k, bits + 2 * k
    unit, total, term = 1 << bits, Fraction(0), Fraction(1)
    for n in range(1, 60):
        total += term
        term = Fraction(math.floor(term * small / n * unit * 2**20), unit * 2**20)
    low, high = math.floor(total * unit), math.floor((total + 2 * term) * unit) + 64
    for _ in range(k):
        low, high = (low * low) >> bits, ((high * high) >> bits) + 1
    return Fraction(low, unit), Fraction(high, unit)


# Quantizers: the law ------------------------------------------------------------------------------------------------
# Every law becomes knots and two rows for each segment between them, at its start and at its stop: integers over a common
# denominator. In between a row is affine.


def table_segments(law):
    rows = [law[name][k] for k in range(len(law["starts"])) for name in ("starts", "ends")]
    common = math.lcm(*{p.denominator for row in rows for p in row})
    return law["knots"], [[int(p * common) for p in row] for row in rows], common


def selection_segments(law):
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


def block_segments(law):
    """Floors a, and a block of length 1 − Σa laid over the weights (ρ − 1)a where the row's mean is x."""
    bins, floors, rho, lower, upper = (law[key] for key in ("bins", "floors", "rho", "lower", "upper"))
    unit = math.lcm(*(a.denominator for a in floors)) * rho.denominator
    base, caps = [int(a * unit) for a in floors], [int(a * rho * unit) for a in floors]
    edges = list(accumulate((c - a for a, c in zip(base, caps)), initial=0))
    block, least = unit - sum(base), sum(map(mul, base, bins))
    if not 0 <= block <= edges[-1] or min(floors) < 0:
        raise Refused("floors that no block fills")
    moments = list(accumulate(((t - s) * b for s, t, b in zip(edges, edges[1:], bins)), initial=Fraction(0)))

    def upto(s):
        k = min(bisect_right(edges, s), len(bins)) - 1
        return moments[k] + (s - edges[k]) * bins[k]

    inside = {e - d for e in edges for d in (0, block)}
    places = [0, *sorted(s for s in inside if 0 < s < edges[-1] - block), edges[-1] - block]
    means = [(least + upto(s + block) - upto(s)) / unit for s in places]
    knots, nearest = [], (upper - lower) / 2**40  # closer knots are one
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


def proved(result):
    """What a quantizer's proofs say, with the design's question and the numbers of the result, which stand once in a file."""
    design, proofs = result["design"], {proof[""]: proof for proof in result["proofs"]}
    value, dual = (proofs.get(f"quantizer-{name}") or {} for name in ("value-proof", "dual-bound"))
    cells, spans = value.get("moments"), dual.get("moments")
    held = cells or spans  # point masses stand in both
    moments = held and {**held, "cells": (cells or held)["cells"], "spans": (spans or held)["spans"]}
    asked = {"objective": "mean", "max_mse": None, "max_bias": 0.0}
    asked = {key: design.get(key, usual) for key, usual in asked.items()}
    asked |= {"law": result["mechanism"]["law"], "epsilon": design["privacy"]["epsilon"]}
    asked |= {key: result[key] for key in ("value", "lower_bound")}
    return {
        **asked,
        "prior": design["prior"],
        "loss": design["loss"],
        "duals": dual.get("duals"),
        "moments": moments,
    }


def quantizer(result, account):
    if result[""] == "result":
        result["certificate"] = proved(result)
    design, mechanism, stated = result["design"], result["mechanism"], result["certificate"]
    law, privacy = mechanism["law"], design["privacy"]
    if privacy[""] != "pure-dp" and (privacy[""], privacy.get("metric")) not in METRICS:
        raise NotCovered(f"quantizers with {privacy['']}")
    if law is None or law[""] not in LAWS:
        raise Refused("no exact law")
    asked = {"objective": "mean", "max_mse": None, "max_bias": 0.0}
    asked = {key: design.get(key, usual) for key, usual in asked.items()}
    asked |= {"law": law, "epsilon": privacy["epsilon"], **{k: result[k] for k in ("value", "lower_bound")}}
    account.same(stated, **asked, prior=design["prior"], loss=design["loss"])
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
    unit, at = math.lcm(*(b.denominator for b in bins)), [x for pair in pairwise(knots) for x in pair]
    places = [int(b * unit) for b in bins]
    bias = max(abs(Fraction(sum(map(mul, places, p)), common * unit) - x) for x, p in zip(at, rows))
    account.proved(f"bias at most {stated['max_bias']!r}", bias <= Fraction(stated["max_bias"]))
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
    told = [mechanism["starts"], mechanism["ends"], [k / far for k in mechanism["knots"]]]
    near = all(abs(p - q) <= NEAR for p, q in zip(found, flat(told), strict=True))
    account.agrees("the table shown is the law", near and list(map(float, bins)) == mechanism["bins"])
    costs(result, account, (knots, rows, common), exp_bounds(epsilon)[1])


# Quantizers: value and lower bound ----------------------------------------------------------------------------------


def known(prior):
    """A density constant on pieces (start, stop, mass) and point masses (x, mass); None where they are not rational."""
    if prior[""] == "prior-samples":
        counts = Counter(map(Fraction, prior["samples"]))
        return [], [(x, Fraction(n, counts.total())) for x, n in sorted(counts.items())]
    law, cut = prior["law"], prior[""] != "prior-law"
    if law["name"] == "uniform":
        given = {"loc": 0, "scale": 1, **law, **dict(zip(("loc", "scale"), law["args"]))}
        pieces = [(Fraction(given["loc"]), Fraction(float(given["loc"]) + given["scale"]), 1)]
    elif law["name"] == "histogram":
        contents, edges, density = law["args"]
        edges = [Fraction(law["loc"]) + Fraction(law["scale"]) * Fraction(x) for x in edges]
        masses = [Fraction(n) * (b - a if density else 1) for n, (a, b) in zip(contents, pairwise(edges))]
        pieces = [(a, b, m / sum(masses)) for m, (a, b) in zip(masses, pairwise(edges))]
    else:
        return None
    low, high = (Fraction(prior[end]) for end in ("lower", "upper")) if cut else (pieces[0][0], pieces[-1][1])
    held = [(max(a, low), min(b, high), m / (b - a)) for a, b, m in pieces]
    held = [(a, b, h * max(b - a, 0)) for a, b, h in held]
    left = sum(m * max(min(b, low) - a, 0) / (b - a) for a, b, m in pieces)
    inside = sum(m for *_, m in held)
    if prior[""] == "prior-truncated":
        return [(a, b, m / inside) for a, b, m in held], []
    return held, [(low, left), (high, 1 - left - inside)] if cut else []


class Moments:
    """∫ t^k dF over stretches of inputs, k = 0, 1, 2 and t from 0 to 1, and point masses, as pairs of bounds."""

    def __init__(self, prior, stated, account):
        self.exact, self.stated = known(prior), stated
        if self.exact is not None:
            self.atoms = [(x, (m, m)) for x, m in self.exact[1]]
            return
        if stated is None:
            raise Refused("the masses and moments of this prior are missing")
        account.claimed(f"the masses and moments stated are those of the prior ({prior['law']['name']})")
        ends, masses = (prior.get("lower"), prior.get("upper")), self.pairs(stated["masses"])
        self.atoms = [(Fraction(x), m) for x, m in zip(ends, masses)]

    @staticmethod
    def pairs(flat):
        return [(Fraction(a, UNIT), Fraction(b, UNIT)) for a, b in zip(flat[::2], flat[1::2])]

    def over(self, spans, name):
        if self.exact is not None:
            return [self.integral(u, v) for u, v in spans]
        bounds = self.pairs(self.stated[name])
        if len(bounds) != 3 * len(spans):
            raise Refused(f"moments stated of other {name}")
        return list(zip(bounds[::3], bounds[1::3], bounds[2::3]))

    def integral(self, u, v):
        total = [Fraction(0)] * 3
        for a, b, mass in self.exact[0]:
            if mass and max(a, u) < min(b, v):
                s, t = (max(a, u) - u) / (v - u), (min(b, v) - u) / (v - u)
                height = mass * (v - u) / (b - a)
                total = [n + height * (t**k - s**k) / k for k, n in enumerate(total, 1)]
        return [(n, n) for n in total]


def quadratics(segments, bins, loss):
    """Cells (u, v) between knots and outputs, and the expected loss there as a + bt + ct², t from 0 to 1."""
    first, second = Fraction(loss["absolute"]), Fraction(loss["squared"])
    unit = math.lcm(*(b.denominator for b in bins))
    places, (knots, rows, common) = [int(b * unit) for b in bins], segments
    units = common, common * unit, common * unit, common * unit**2
    for (a, b), *ends in zip(pairwise(knots), rows[::2], rows[1::2]):
        sums = []
        for weights in ends:
            moments = list(map(mul, places, weights))
            square = sum(map(mul, places, moments)) if second else 0
            sums.append((list(accumulate(weights, initial=0)), list(accumulate(moments, initial=0)), square))
        for u, v in pairwise([a, *(x for x in bins if a < x < b), b]):
            k = bisect_right(bins, u)  # the first k outputs are on the left
            parts = [(mass[k], moment[k], moment[-1], square) for mass, moment, square in sums]
            parts = [[Fraction(n, d) for n, d in zip(part, units)] for part in parts]
            # All four are affine in x; E|B − x| = E B − x − 2 E[B; left] + 2x P[left].
            at_u, at_v = ([p + (q - p) * (x - a) / (b - a) for p, q in zip(*parts)] for x in (u, v))
            w, (L, B, M, S), (dL, dB, dM, dS) = v - u, at_u, [q - p for p, q in zip(at_u, at_v)]
            yield (
                (u, v),
                first * (M - u - 2 * B + 2 * u * L) + second * (S - 2 * u * M + u * u),
                first * (dM - w - 2 * dB + 2 * (u * dL + w * L))
                + second * (dS - 2 * (u * dM + w * M - u * w)),
                2 * first * w * dL + second * (w * w - 2 * w * dM),
            )


def expected(cells, moments):
    """The expected loss, from above."""
    spans, total = [cell for cell, *_ in cells], Fraction(0)
    for (_, *parts), bounds in zip(cells, moments.over(spans, "cells")):
        total += sum(c * m[c > 0] for c, m in zip(parts, bounds))
    for x, mass in moments.atoms:
        (u, v), a, b, c = cells[min(max(bisect_right(spans, x, key=lambda s: s[0]) - 1, 0), len(cells) - 1)]
        t = (x - u) / (v - u)
        loss = a + b * t + c * t * t
        total += loss * mass[loss > 0]
    return total


def costs(result, account, segments, rho):
    stated, bins = result["certificate"], result["mechanism"]["law"]["bins"]
    value, bound, loss, cap = (stated[key] for key in ("value", "lower_bound", "loss", "max_mse"))
    worst, own = stated["objective"] == "worst", (stated["duals"] or {}).get("outputs")
    kind = "any" if own and stated["duals"]["between"] else "the searched"
    among = f" with {kind} outputs from {own[0]:.6g} to {own[-1]:.6g}" if own else ""
    least = f"no mechanism{among} does better than {bound!r}"
    unknown = value is None or loss["function"] is not None  # what a function says is not in the file
    if unknown:
        account.claimed(f"the value is {result['value']:.12g}", math.isfinite(result["value"]))
    if bound is not None and (unknown or stated["duals"] is None):
        account.claimed(least, bound <= result["value"])
    needed = cap is not None or not (unknown or worst)
    moments = Moments(stated["prior"], stated["moments"], account) if needed else None
    exact = moments is None or moments.exact is not None
    given = "" if exact else ", given the masses and moments stated"
    floats = 0 if exact or stated["prior"]["law"]["name"] in ENCLOSED else NEAR
    if cap is not None:
        square = expected(list(quadratics(segments, bins, {"absolute": 0, "squared": 1})), moments)
        account.bounds(f"mean squared error at most {cap!r}{given}", square, cap, floats * cap)
    if unknown:
        return
    cells = list(quadratics(segments, bins, loss))
    if worst:
        top = max(max(a, a + b + c, a - b * b / (4 * c) if c < 0 < b < -2 * c else a) for _, a, b, c in cells)
        account.bounds(f"worst loss at most {value!r}", top, value)
    else:
        account.bounds(f"mean loss at most {value!r}{given}", expected(cells, moments), value, floats * value)
    if bound is not None and stated["duals"] is not None:
        if stated["duals"]["cap_price"] and cap is None:
            raise Refused("a price of a cap that is not there")
        bias, moments = Fraction(stated["max_bias"]), None if worst else moments
        ends = segments[0][0] + bias, segments[0][-1] - bias
        found = dual_bound(stated["duals"], bins, ends, bias, rho, loss, moments)
        found -= Fraction(stated["duals"]["cap_price"]) * Fraction(cap or 0)
        loose = floats * (1 + min(float(rho), 1e300) / 1000) * abs(bound)
        account.bounds(least + given * (moments is not None), bound, found, Fraction(loose))


def dual_bound(duals, bins, ends, bias, rho, loss, moments):
    """Lines under the loss on pieces of the inputs, averaged: a constant plus G · a for the floors a, minimised over a."""
    origin, price, nu = Fraction(duals["origin"]), Fraction(duals["cap_price"]), duals["multipliers"]
    own, between = [Fraction(b) for b in duals.get("outputs") or bins], duals.get("between", False)
    held = all(own[0] <= b <= own[-1] if between else b in own for b in bins)
    if not held or own != sorted({*own}):
        raise Refused("a lower bound for other outputs")
    bins, table = own, [list(map(Fraction, piece)) for piece in duals["pieces"]]
    good = all(share >= 0 and u <= (u if moments is None else v) and u <= v for u, v, share, *_ in table)
    low, high = ends[0] - bias - origin, ends[1] + bias - origin
    good = good and (moments is not None or all(low <= u <= high for u, *_ in table))
    if not good or [len(v) for v in nu] != [len(bins)] * 2 or min(map(min, nu)) < 0 or price < 0:
        raise Refused("multipliers that are none")
    spans = sorted({(u, v) for u, v, *_ in table if u < v})
    known = moments.over([(origin + u, origin + v) for u, v in spans], "spans") if spans else []
    cells, used, changes = dict(zip(spans, known)), Counter(), Counter()
    first, second = Fraction(loss["absolute"]), Fraction(loss["squared"]) + price
    places = [b - origin for b in bins]
    unit, rho = math.lcm(*(b.denominator for b in places)), Fraction(math.ceil(rho * 2**64), 2**64)
    places, gradient, total = [int(b * unit) for b in places], [0] * len(bins), Fraction(0)
    # In between the reduced cost is convex: it lies below the chord by at most w₂ (step/2)², and by what the turn below takes.
    steps = [0, *(b - a for a, b in pairwise(places)), 0]
    dented = [(b, second * max(h) ** 2 / (4 * unit**2) * between) for b, h in zip(places, pairwise(steps))]
    for u, v, share, L, L1, M, M1 in table:
        if u < v:
            masses = cells[u, v]
            changes[u], changes[v] = changes[u] + share, changes[v] - share
        else:  # a point mass: u is its rounded distance from the origin; or, for the worst case, a weight
            atoms = [(origin + u, (1, 1))] if moments is None else moments.atoms or [(origin + u, (0, 0))]
            x, mass = min(atoms, key=lambda atom: abs(atom[0] - origin - u))
            u = v = x - origin
            masses, key = [mass, (0, 0), (0, 0)], None if moments is None else u
            used[key] += share
        (n0, n1), (t0, t1), _ = masses = [(low * share, high * share) for low, high in masses]
        # ∫ (λ + μy − b|μ|) dF with λ = L + w₂y², μ = M − 2w₂y; |μ| lies below its chord.
        dL, dM, w = L1 - L, M1 - M, v - u
        steep, steeper = abs(M - 2 * second * u), abs(M1 - 2 * second * v)
        parts = (
            L + M * u - second * u * u - bias * steep,
            dL + dM * u + M * w - 2 * second * u * w - bias * (steeper - steep),
            dM * w - second * w * w,
        )
        total += sum(c * m[c <= 0] for c, m in zip(parts, masses))
        # min(c, ρc) of the reduced cost c is concave in y: above its chord, weighted ∫ (1 − t) dF and ∫ t dF.
        turn = bisect_right(places, (u + v) / 2 * unit)
        if between:  # |b − x| ≥ ±(b − x): the sign turns between two outputs on the same side of the piece
            left, right = bisect_right(places, u * unit) - 1, bisect_left(places, v * unit)
            before = right == len(places) or (left >= 0 and (u + v) * unit < places[left] + places[right])
            turn = max(left, 0) if before else right + 1
        for y, level, tilt, low, high in ((u, L, M, n0 - t1, n1 - t0), (v, L1, M1, t0, t1)):
            up, down = math.floor(max(low, 0) * UNIT), math.ceil(high * rho * UNIT)
            for sign, part in ((-first, slice(0, turn)), (first, slice(turn, None))) if down > 0 else ():
                line = (sign - tilt) / unit, -sign * y - level, second / unit**2
                scale = math.lcm(*(c.denominator for c in line))
                slope, rest, curve = (int(c * scale) for c in line)
                reduced = ((slope + curve * b) * b + rest - math.ceil(d * scale) for b, d in dented[part])
                grown = (c * (up if c > 0 else down) // scale for c in reduced)
                gradient[part] = map(add, gradient[part], grown)
    covered = accumulate(change for _, change in sorted(changes.items()))
    if max([0, *covered, *used.values()]) > 1:
        raise Refused("a part of the prior is counted twice")
    # G · a ≥ ν · right sides + min_k (G − Cᵀν)_k {1/ρ or 1}, for floors that reach all means of the range.
    least = [Fraction(g, UNIT) for g in gradient]
    for end, sign, prices in ((ends[1], 1, nu[0]), (ends[0], -1, nu[1])):
        prices = list(map(Fraction, prices))
        total += sum(p * sign * (end - b) for p, b in zip(prices, bins))
        masses, sums = list(accumulate(prices)), list(accumulate(map(mul, prices, bins)))
        for k, b in enumerate(bins):
            left, right = b * masses[k] - sums[k], sums[-1] - sums[k] - b * (masses[-1] - masses[k])
            least[k] -= rho * left - right if sign > 0 else rho * right - left
    return total + min(least) * (1 / rho if min(least) > 0 else 1)


# Channels ----------------------------------------------------------------------------------------------------------


def channel(result, account):
    design, law = result["design"], result["mechanism"]
    proofs = {proof[""]: proof for proof in result["proofs"]}
    distances, dual = proofs["channel-proof"]["distances"], proofs.get("channel-dual")
    weights, alpha, bound = law["weights"], Fraction(design["alpha"]), result["lower_bound"]
    items, total = range(len(weights)), sum(weights[0])
    tables = zip(weights, law["matrix"], strict=True)
    shown = all(abs(w / total - p) <= 1e-12 for r, s in tables for w, p in zip(r, s, strict=True))
    account.agrees("the matrix shown is the channel", shown)
    account.agrees("rows sum to 1", all(sum(r) == total and min(r) >= 0 for r in weights))
    account.agrees("the channel is on the design's space", repr(law["space"]) == repr(design["space"]))
    given, points = design["space"]["matrix"], design["space"]["points"]
    if given is None and design["space"]["kind"] in ("grid", "euclidean", "line") and points is not None:
        given = [[math.dist(p, q) for q in points] for p in points]
    if given is None:
        account.claimed("the distances are those of the space")
    else:
        far = max(abs(a - b) for r, s in zip(given, distances) for a, b in zip(r, s, strict=True))
        near = far <= 1e-12 * max(map(max, given)) and len(given) == len(distances) == len(weights)
        account.agrees("the distances are those of the space", near)
    bounds = {d: exp_bounds(alpha * Fraction(d)) for r in distances for d in r}
    rates = {d: (low.numerator, low.denominator) for d, (low, _) in bounds.items()}
    pairs = [(*rates[distances[x][z]], weights[x], weights[z]) for x in items for z in items if x != z]
    private = all(p * down <= up * q for up, down, row, other in pairs for p, q in zip(row, other))
    account.proved(f"privacy of all pairs at alpha = {float(alpha)!r}", private)
    prior = list(map(Fraction, design["prior"] or [1 for _ in items]))
    account.agrees("the prior is one", len(prior) == len(weights) and min(prior) >= 0)
    losses = {"metric": distances, "squared": [[d * d for d in r] for r in distances]}
    losses["error"] = [[float(x != y) for y in items] for x in items]
    losses = losses[design["loss"]] if isinstance(design["loss"], str) else design["loss"]
    costs = [[p / sum(prior) * Fraction(c) for c in r] for p, r in zip(prior, losses, strict=True)]
    value = sum(sum(map(mul, w, r)) for w, r in zip(weights, costs)) / total
    near = Fraction(NEAR) / 1000
    account.proved(
        f"the value is {result['value']!r}", value <= Fraction(result["value"]) <= value * (1 + near)
    )
    goal = query = None
    if design["unbiased"] is not None or design["decoder"] is not None:
        asked = design["unbiased"] or ([[float(x == y) for y in items] for x in items], design["decoder"])
        goal, query = ([list(map(Fraction, flat([r]))) for r in part] for part in asked)
        means = ([sum(map(mul, r, column)) / total for column in zip(*query)] for r in weights)
        off = max(abs(a - b) for mean, g in zip(means, goal) for a, b in zip(mean, g, strict=True))
        account.proved("the equalities hold", off <= Fraction(1e-6) * max(map(abs, flat(query))))
    if bound is None:
        return
    if dual is None:
        account.claimed(f"no private channel below {bound!r}")
        return
    for (x, z, y), m in zip(dual["triples"], map(Fraction, dual["multipliers"]), strict=True):
        costs[x][y] += max(m, 0)  # multipliers are not negative
        costs[z][y] -= bounds[distances[x][z]][1] * max(m, 0)
    offset = 0
    if query is not None:
        free = [list(map(Fraction, r)) for r in dual["free"]]
        offset = sum(sum(map(mul, f, g)) for f, g in zip(free, goal, strict=True))
        costs = [[c - sum(map(mul, f, h)) for h, c in zip(query, r)] for f, r in zip(free, costs)]
    account.proved(f"no private channel below {bound!r}", Fraction(bound) <= offset + sum(map(min, costs)))


def flat(nested):
    return [x for part in nested for x in flat(part)] if isinstance(nested, list) else [nested]


# Lattice noise -----------------------------------------------------------------------------------------------------


def lattice_noise(result, account):
    design, law = result["design"], result["mechanism"]
    proofs = {proof[""]: proof for proof in result["proofs"]}
    privacy, loss = design["privacy"], design["loss"]
    if law[""] == "cell-noise" and (design["dimension"], design["changed"]) != (1, None):
        raise Refused("noise of one number for several")
    if loss not in ("absolute", "squared") or law[""] != "cell-noise":
        raise NotCovered("losses other than absolute and squared, and noise for several numbers")
    bounds = [proofs[kind] for kind in ("lattice-dual", "staircase-dual") if kind in proofs]
    of_law = len(proofs) == len(result["proofs"]) == 2 and "cell-law-proof" in proofs
    if len(bounds) != 1 or not of_law:
        raise NotCovered("evidence other than one proof of the law and one of the lower bound")
    stated = bounds[0]
    delta, (low, high) = Fraction(privacy.get("delta", 0)), exp_bounds(Fraction(privacy["epsilon"]))
    n, cells, r, spike = law["cells_per_shift"], law["weights"], law["decay"], law["spike"]
    width, start, sensitivity = (Fraction(v) for v in (law["width"], law["start"], design["sensitivity"]))
    spans, wide = law.get("spans") or [1] * len(cells), bool(law.get("spans"))
    ends = list(accumulate(spans))
    if n > (2**29 if wide else len(cells) + 100) or stated.get("cells", 1) > 10**5:
        raise Refused("more shifts than the law has use for")
    if min(cells) < 0 or spike < 0 or not 0 <= r < 1 or (r and ends[-1] < 2 * n) or len(spans) != len(cells):
        raise Refused("weights that are none")
    torn = any(v < 1 or v & (v - 1) for v in spans) or (r and {n, ends[-1] - n} - {*ends})
    if torn or (wide and len(spans) > 2000):
        raise Refused("spans that are not powers of two, or do not fit the tails")
    first, last = (bisect_right(ends, n), len(ends) - bisect_right(ends, ends[-1] - n)) if r else (n, n)
    # The first and the last n cells are repeated further out, times r, r², …: so are the sums over them.
    zero, one, two = r / (1 - r), r / (1 - r) ** 2, r * (1 + r) / (1 - r) ** 3
    total = sum(cells) + spike + (sum(cells[:first]) + sum(cells[-last:])) * zero
    account.proved("shifts up to the sensitivity", n * width >= sensitivity)
    scale, up, down = r.denominator**2, low.numerator, low.denominator
    once, twice = int(scale * r), int(scale * r * r)
    left = [w * f for f in (twice, once) for w in cells[:n]] if r else [0] * 2 * n
    right = [w * f for f in (once, twice) for w in cells[-n:]] if r else [0] * 2 * n
    line = [*left, *(w * scale for w in cells), *right]

    def excess(k):
        moved = [0] * max(0, -k) + line[max(0, k) :] + [0] * max(0, k)
        over = [max(a * down - b * up, 0) for a, b in zip(line, moved)][n : len(line) - n]
        return (sum(over) + (sum(over[:n]) + sum(over[-n:])) * zero) / (down * scale) + spike

    shifts = (k for k in range(-n, n + 1) if k)
    found = spans_excess(law, ends, spans, low) + spike if wide else max(map(excess, shifts))
    account.proved(f"delta at most {float(delta)!r}", found <= delta * total)

    def cost(a, b):  # of a uniform law on [a, b]
        return (b * abs(b) - a * abs(a)) / 2 / (b - a) if loss == "absolute" else (a * a + a * b + b * b) / 3

    def repeated(a, b):  # of the repetitions of a cell
        c, step = abs(a + b) / 2, n * width
        square = cost(a, b) * zero + 2 * c * step * one + step**2 * two
        return c * zero + step * one if loss == "absolute" else square

    sides = [(start + (e - v) * width, start + e * width) for e, v in zip(ends, spans)]
    spent = sum(w * cost(*side) for w, side in zip(cells, sides))
    if r:
        if sides[first - 1][1] > 0 or sides[-last][0] < 0:
            raise Refused("tails that reach across zero")
        tails = (*zip(cells[:first], sides), *zip(cells[-last:], sides[-last:]))
        spent += sum(w * repeated(*side) for w, side in tails)
    if spike:
        spent += spike * cost(-Fraction(law["spike_width"]) / 2, Fraction(law["spike_width"]) / 2)
    account.proved(f"the value is at most {result['value']!r}", spent <= Fraction(result["value"]) * total)
    proof = staircase_bound if stated[""] == "staircase-dual" else lattice_bound
    bound = max(proof(stated, loss, delta, high, sensitivity), 0)
    claim = f"the lower bound {result['lower_bound']!r} follows from the multipliers"
    account.proved(claim, Fraction(result["lower_bound"]) <= bound)


def spans_excess(law, ends, spans, growth):
    """The largest ∫[f(t) − e^ε f(t + d)]₊ over real shifts |d| ≤ n, without the spike, in the weights' unit.

    Each pair of spans adds a constant times its overlap, whose slope in d changes where ends meet.
    """
    n, r, count = law["cells_per_shift"], law["decay"], ends[-1]
    heights = [(e - v, e, Fraction(w, v)) for w, v, e in zip(law["weights"], spans, ends)]
    line, here = [(-n, 0, 0), *heights, (count, count + n, 0)], [(*run, 1) for run in heights]
    if r:
        left, right = [run for run in heights if run[1] <= n], [run for run in heights if run[0] >= count - n]
        runs = {-2: left, -1: left, 1: right, 2: right}
        moved = {k: [(a + k * n, b + k * n, h * r ** abs(k)) for a, b, h in v] for k, v in runs.items()}
        line = [*moved[-2], *moved[-1], *heights, *moved[1], *moved[2]]
        here += [(*run, 1 / (1 - r)) for run in [*moved[-1], *moved[1]]]
    merged = line[:1]
    for a, b, h in line[1:]:  # neighbours of one height are one
        merged[-1:] = [(merged[-1][0], b, h)] if merged[-1][2] == h else [merged[-1], (a, b, h)]
    bends = Counter({-n: 0, n: 0})
    for a, b, h, times in here:
        for c, e, other in merged:
            over = (h - growth * other) * times
            if over > 0 and c - b < n and e - a > -n:
                for place, sign in ((c - b, 1), (c - a, -1), (e - b, -1), (e - a, 1)):
                    bends[place] += sign * over
    most = value = slope = 0
    for place, after in pairwise(sorted(bends)):
        slope += bends[place]
        value += slope * (after - place)
        most = max(most, value) if abs(after) <= n else most
    return most


def staircase_bound(stated, loss, delta, growth, sensitivity):
    """Weak duality with G(t) = (ℓ(t) − λ + G(t + 1))/e^ε, 0 from `periods` on (0 of them: for ever), at the shift 1.

    What is missing on [0, 1) below the root γ of G is sent to what G leaves above it: noise/optimal/staircase.py says why.
    """
    periods, b = stated["periods"], int(loss == "squared")
    a, unit = 1 - b, sensitivity ** (1 + b)  # the loss is |t| or t² in this unit
    level, bits = stated["level"] / unit, 400 + 4 * math.floor(math.log2(growth))
    if not 0 <= periods <= 50_000 or level <= 0 or (not periods and delta) or 0 < periods ** (1 + b) < level:
        raise Refused("a level without periods, or with too many")
    r, highest, lowest = Fraction(math.floor(2**bits / growth), 2**bits), 0, 0
    z, c = r / (1 - r), [Fraction(0)] * 3
    if not periods:
        c = [((a + 2 * b * z) * z + b * z - level) * z, (a + 2 * b * z) * z, b * z]
    for j in reversed(range(periods)):  # coefficients of G(j + u), rounded down
        now = a * j + b * j * j - level + c[0], a + 2 * b * j + c[1], b + c[2]
        c = [Fraction(math.floor(r * v * 2**bits), 2**bits) for v in now]
        highest, lowest = (max(highest, sum(c)), min(lowest, c[0])) if j else (highest, lowest)
    low, high = Fraction(0), Fraction(1)
    while high - low > low / 2**200 and c[0] < 0:
        middle = (low + high) / 2
        low, high = (middle, high) if c[0] + c[1] * middle + c[2] * middle**2 < 0 else (low, middle)
    left, right, whole = (sum(v * x ** (k + 1) / (k + 1) for k, v in enumerate(c)) for x in (low, high, 1))
    sent = (high - low) * -(c[0] + c[1] * low + c[2] * low**2) - left
    if (c[0] < 0 and (right >= whole or sent > r * (whole - right))) or min(lowest, sum(c)) < 0:
        return Fraction(0)
    charge = -c[0] / r * (1 + high * sum(c) / (whole - right)) if c[0] < 0 else 0
    return (level - 2 * delta * (highest + charge)) * unit


def lattice_bound(stated, loss, delta, growth, sensitivity):
    """Weak duality: min_j (c_j + Σ_s ψ_s(j) − e^ε ψ_s(j − s)) − δ Σ_s μ_s, averaged with the mirror image if asked."""
    n, psi, spent = stated["cells"], stated["psi"], 0
    half = (len(psi[0]) - 1) // 2 if psi else 0
    step, reach = sensitivity / n, half + n + 1
    plus, minus = ([0] * (2 * reach + 1) for _ in range(2))
    # Any multipliers prove a bound; these are the file's, rounded down as the claim was.
    largest = max([1.0, *map(sum, psi), *stated["totals"]])
    bits = 55 - math.ceil(math.log2(largest) + math.log2(max(1, len(psi))))
    scale = Fraction(2) ** bits
    for s, given, cap in zip(stated["shifts"], psi, stated["totals"]):
        whole = [max(math.floor(math.ldexp(p, bits)), 0) for p in given]
        spent += max([math.ceil(math.ldexp(cap, bits)), *whole])
        if abs(s) > n or len(whole) != 2 * half + 1:
            raise Refused("shifts beyond the sensitivity")
        for i, p in enumerate(whole, start=n + 1):
            plus[i] += p
            minus[i + s] += p
    if stated["mirrored"]:
        plus, minus = ([(a + b) / Fraction(2) for a, b in zip(v, v[::-1])] for v in (plus, minus))

    def cost(j):
        return abs(j) * step if loss == "absolute" else (j * step) ** 2 - step**2 / 4

    gains = (a - growth * b if a or b else 0 for a, b in zip(plus, minus))
    least = min(cost(j) + g / scale for j, g in enumerate(gains, start=-reach))
    return least - delta * spent / scale


# Allocations -------------------------------------------------------------------------------------------------------


def gaussian_delta(epsilon, mu):
    tail = [math.erfc(-z / math.sqrt(2)) / 2 for z in (mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu)]
    return tail[0] - math.exp(epsilon) * tail[1]


def allocation(result, account):
    design, stated, law = result["design"], result["certificate"], result["mechanism"]
    noise, lam, privacy, p = (design[key] for key in ("noise", "sensitivities", "privacy", "loss"))
    if type(p) not in (int, float) or noise not in ("laplace", "gaussian") or design.get("bounds"):
        raise NotCovered("allocations of other noise or losses, or under several bounds")
    scales, power = stated["scales"], 1 if noise == "laplace" else 2
    shown = {key: result[key] for key in ("value", "lower_bound")}
    account.same(stated, question=design, scales=law["scales"], **shown)
    account.agrees("the noise is the design's", (noise, len(lam)) == (law["noise"], len(scales)))
    account.proved("every sensitive coordinate has noise", not any(s <= 0 < l for s, l in zip(scales, lam)))
    spent = sum((Fraction(l) / Fraction(s)) ** power for l, s in zip(lam, scales) if l and s)
    if (privacy[""], noise) in (("pure-dp", "laplace"), ("zcdp", "gaussian")):
        budget = Fraction(privacy["epsilon"]) if power == 1 else 2 * Fraction(privacy["rho"])
        account.proved(f"within {privacy['']} {float(budget) / power!r}", spent <= budget)
    elif (privacy[""], noise) == ("approximate-dp", "gaussian"):
        delta = privacy["delta"]
        low, high = 0.0, 1e4  # limits may leave some of delta: the budget is what spends all of it
        while low < (mu := (low + high) / 2) < high:
            low, high = (mu, high) if gaussian_delta(privacy["epsilon"], mu) <= delta else (low, mu)
        budget = low * low
        found = gaussian_delta(privacy["epsilon"], math.sqrt(spent))
        account.rows.append((f"within delta = {delta!r}", "recomputed", found <= delta * (1 + NEAR)))
    else:
        raise NotCovered(f"{noise} noise under {privacy['']}")
    limits = design["lower"] or 0.0, math.inf if design["upper"] is None else design["upper"]
    lower, upper = (v if isinstance(v, list) else [v] * len(scales) for v in limits)
    account.proved("limits are kept", all(a <= s <= b for a, s, b in zip(lower, scales, upper)))
    moment = math.gamma(p + 1) if power == 1 else 2 ** (p / 2) * math.gamma((p + 1) / 2) / math.sqrt(math.pi)
    weights = design["weights"] or 1.0
    costs = [w * moment for w in (weights if isinstance(weights, list) else [weights] * len(lam))]
    account.recomputed("the value is", result["value"], math.fsum(c * s**p for c, s in zip(costs, scales)))
    if design["groups"] is not None:
        account.agrees("groups part the coordinates", sorted(flat(design["groups"])) == list(range(len(lam))))
        account.claimed(f"no scales do better than {result['lower_bound']:.12g}")
        return
    # min over each scale s of c s^p + y (λ/s)^power, less y times the budget: every y ≥ 0 gives a bound.
    y, total = abs(stated["multiplier"]) * moment, 0.0
    for c, l, a, b in zip(costs, lam, lower, upper):
        s = min(max((power * y * l**power / (p * c)) ** (1 / (p + power)), a), b) if l and c else a
        total += c * s**p + (y * (l / s) ** power if l else 0.0)
    account.recomputed("no scales do better than", result["lower_bound"], total - y * float(budget))


# ------------------------------------------------------------------------------------------------------------------

CHECKS = {"metric-quantizer": quantizer, "optimal-quantizer": quantizer}
SEARCHES = "optm", "optm-search", "rqm", "erm", "mvu"  # of one family: what they find is never optimal
CHECKS |= dict.fromkeys(SEARCHES, quantizer)
CHECKS |= {"metric-channel": channel, "optimal-noise": lattice_noise, "allocation-result": allocation}


def verify(text):
    """The account of a file; raises NotCovered, or Refused for what cannot be a result."""
    try:
        result, account = read(text), Account()
        kind, evidence = result[""], result.get("certificate")
        if kind == "result":
            kind, evidence = result["design"][""], result["proofs"]
        if kind not in CHECKS:
            raise NotCovered(f"results of kind {kind}")
        account.agrees("a certificate is there", bool(evidence))
        if evidence:
            CHECKS[kind](result, account)
        bound, wanted = result["lower_bound"], result["design"].get("bins")
        found, words = bound is None or math.isfinite(bound), "no optimum is claimed"
        if (status := result["solver_report"]["status"]) == "optimal":  # never of outputs that a search found
            found = found and bound is not None and not (isinstance(wanted, dict) and "starts" in wanted)
            found = found and kind not in SEARCHES
            words = "with a lower bound"
        account.agrees(f"status {status!r}: {words}", found)
    except (NotCovered, Refused):
        raise
    except Exception as error:
        raise Refused(f"malformed: {type(error).__name__}: {error}"[:300]) from None
    return account


def main(words):
    if len(words) != 1:
        print("usage: python verify.py result.json", file=sys.stderr)
        return 1
    try:
        with open(words[0], encoding="utf-8") as file:
            account = verify(file.read(2**26 + 1))
    except NotCovered as error:
        print(f"not covered: {error}")
        return 2
    except (OSError, ValueError, Refused) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for claim, how, holds in account.rows:
        print(f"{'ok ' if holds else 'NO '} {how:10} {claim}")
    print(account.summary())
    return 0 if all(holds for *_, holds in account.rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

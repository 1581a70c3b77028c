"""Quantizers: moments of the prior, and lower bounds by them.

**Moments.**

Theorem: where an expected loss is a quadratic a + bt + ct² on the stretch [u, v], t = (x − u)/(v − u), its mean over the stretch is
a ∫dF + b ∫t dF + c ∫t² dF. So three numbers of the prior for each stretch are all that an expectation takes.

Uniform laws, histograms (clipped to a range or truncated, too) and samples have rational moments, computed here. Of every other law
the file states enclosures in units of 2⁻¹⁶⁰; what follows from them is proved. That they are the law's is proved of normal and beta laws,
of others it is claimed.

With y = (x − loc)/scale, ∫ y^k dF from the law's start is a function G_k that is known to 160 digits. Normal laws: Φ, −φ and Φ − yφ, where

    Φ(y) = ½ + φ(y) Σ_n y^(2n + 1)/(1 · 3 ⋯ (2n + 1)).

Beta laws: I_y(a, b), a/(a + b) I_y(a + 1, b) and a (a + 1)/((a + b)(a + b + 1)) I_y(a + 2, b), where

    a B I_y(a, b) = y^a (1 − y)^b Σ_n (a + b)_n/(a + 1)_n y^n,    I_y(a, b) = 1 − I_(1 − y)(b, a),    I_y(a + 1, b) = I_y(a, b) − y^a (1 − y)^b/(a B).

All terms are positive. Triple of t = (x − u)/(v − u) on a stretch [u, v] follow by differences, which lose as many digits as the stretch is
small, squared: that is counted.

**Lines under the loss**, on pieces of the inputs: docs/theory says why the bound holds for every mechanism with these outputs.

**Listed inputs**, where a quantizer is a table, whose bound is by rows and multipliers.

Between the inputs x_1 < … < x_n probabilities are interpolated: p(x, i) = Σ_k h_k(x) P[k, i], h_k the hat function of x_k. So the expected loss is
affine in the table, with the coefficients ∫ h_k(x) ℓ(B_i − x) dF; of the square, B² − 2Bx is charged to them, and x², the same for all outputs, is a
constant. Masses and moments of the prior are taken such that the cost falls. The largest loss is no less than the mean over any law on finitely many
inputs. A mechanism on a continuum is one on some inputs of it, too, where it loses as much at each of these.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import accumulate, pairwise
from operator import add, itemgetter, mul
from typing import NamedTuple, TypeAlias

from mechdesign.verifier.arithmetic import charge, charge_gcd, decimal, exp_bounds, hypergeometric, series
from mechdesign.verifier.composition import HALF, ONE, PI, ZERO
from mechdesign.verifier.reading import NEAR, Account, Json, Refused, refuse
from mechdesign.verifier.table import Own, Point, bound

Triple: TypeAlias = tuple[Decimal, Decimal, Decimal]
Bounds: TypeAlias = tuple[Fraction, Fraction]
DIGITS, SLACK = 180, Decimal("1e-155")
LAST = 28
"""Standard deviations beyond which there is less than 10⁻¹⁷⁰."""
STEEPEST = 500
"""Of the shapes of a beta law, whose series have thousands of terms beyond."""
WORK = 3000


def normal(y: Decimal) -> Triple:
    if abs(y) >= LAST:
        mass = Decimal(int(y > 0))
        return mass, ZERO, mass
    density = (-y * y / 2).exp() / (2 * PI).sqrt()
    mass = HALF + density * y * series(HALF, y * y / 2) / 2
    return mass, -density, mass - y * density


def incomplete(a: Decimal, b: Decimal, y: Decimal) -> Decimal:
    """a B I_y(a, b) for y ≤ ½."""
    return (a * y.ln()).exp() * (b * (1 - y).ln()).exp() * hypergeometric(a + b, a + 1, y)


def beta(a: Decimal, b: Decimal) -> Callable[[Decimal], Triple]:
    complete = incomplete(a, b, HALF) / a + incomplete(b, a, HALF) / b

    def moments(y: Decimal) -> Triple:
        one, two = a / (a + b), a * (a + 1) / ((a + b) * (a + b + 1))
        if y <= 0 or y >= 1:
            return (ONE, one, two) if y >= 1 else (ZERO,) * 3
        near = incomplete(a, b, y) / a if y <= HALF else complete - incomplete(b, a, 1 - y) / b
        mass = near / complete
        edge = (a * y.ln()).exp() * (b * (1 - y).ln()).exp() / (a * complete)
        return mass, one * (mass - edge), two * (mass - edge - edge * y * (a + b) / (a + 1))

    return moments


SHAPES = {"norm": 0, "truncnorm": 2, "beta": 2}


class Known(NamedTuple):
    """A law whose moments are known, and the prior made of it: the stretch where the prior has its density, and the share of the law there."""

    moments: Callable[[Decimal], Triple]
    loc: Fraction
    scale: Fraction
    low: Fraction
    high: Fraction
    share: Decimal

    @classmethod
    def of(cls, prior: Json) -> Known | None:
        """None where no moments are known here."""
        law = prior["law"]
        check_scale(law.get("scale", 1))
        if law["name"] not in SHAPES or set(law) - {"", "name", "args", "loc", "scale"}:
            return None
        shapes, loc, scale = parameters(law, SHAPES[law["name"]])
        if law["name"] == "beta" and not all(1e-3 <= shape <= STEEPEST for shape in shapes):
            return None
        ends = {"norm": (-LAST, LAST), "beta": (0, 1)}.get(law["name"], tuple(shapes))
        if not ends[0] < ends[1]:
            return None
        moments = beta(*map(decimal, shapes)) if law["name"] == "beta" else normal
        within = [min(max(decimal(end), Decimal(-LAST)), Decimal(LAST)) for end in ends]
        loc, scale = Fraction(loc), Fraction(scale)
        # ends as doubles have them, and as they are
        low, high = (
            sorted((Fraction(float(end) * float(scale) + float(loc)), loc + scale * Fraction(w)))
            for end, w in zip(ends, within)
        )
        start, stop = (low[-1], high[0]) if law["name"] != "norm" else (low[0], high[-1])
        if prior[""] != "prior-law":
            start, stop = max(start, Fraction(prior["lower"])), min(stop, Fraction(prior["upper"]))
        known = cls(moments, loc, scale, start, stop, ONE)
        if law["name"] == "truncnorm":
            known = known._replace(share=moments(within[1])[0] - moments(within[0])[0])
        if prior[""] == "prior-truncated":
            known = known._replace(share=known.at(stop)[0] - known.at(start)[0])
        return known if known.share > Decimal("1e-50") and start < stop else None

    def place(self, x: Fraction) -> Decimal:
        return decimal((min(max(x, self.low), self.high) - self.loc) / self.scale)

    def at(self, x: Fraction) -> Triple:
        return self.moments(self.place(x))

    def hold(self, u: Fraction, v: Fraction, stated: list[Bounds]) -> bool:
        """Whether the bounds stated hold ∫ t^k dF of the stretch, k = 0, 1, 2."""
        start, stop = max(u, self.low), min(v, self.high)
        if start >= stop:
            return all(low <= 0 <= high for low, high in stated)
        a, scale = self.place(start), decimal(self.scale / (v - u))
        m0, m1, m2 = (after - before for before, after in zip(self.at(start), self.at(stop)))
        shift = decimal((start - u) / (v - u))
        first, second = scale * (m1 - a * m0), scale**2 * (m2 - 2 * a * m1 + a * a * m0)
        found = m0, first + shift * m0, second + 2 * shift * first + shift**2 * m0
        room = SLACK * (1 + scale) ** 2 * (1 + a * a) / self.share
        return all(holds(bounds, n / self.share, room) for bounds, n in zip(stated, found))

    def tails(self, prior: Json, stated: list[Bounds]) -> bool:
        """Whether the bounds stated hold what a clipped prior has at either end."""
        left, right = (self.at(Fraction(prior[end]))[0] for end in ("lower", "upper"))
        start, stop = (ZERO, ONE)
        if prior["law"]["name"] == "truncnorm":
            start, stop = (self.moments(decimal(end))[0] for end in prior["law"]["args"][:2])
        found = (left - start) / self.share, (stop - right) / self.share
        return all(holds(bounds, mass, SLACK / self.share) for bounds, mass in zip(stated, found))


def holds(bounds: Bounds, found: Decimal, room: Decimal) -> bool:
    low, high = bounds
    return low <= Fraction(max(found - room, ZERO)) and Fraction(found + room) <= high


UNIT = 1 << 160
"""Masses and moments are stated in units of 1/UNIT."""

Span: TypeAlias = tuple[Fraction, Fraction]
Piece: TypeAlias = tuple[Fraction, Fraction, Fraction]
"""Start, stop and mass of a piece of constant density."""


def check_scale(scale: Json) -> None:
    """Refuse a scale that is not positive."""
    refuse(not scale > 0, "a law whose scale is not positive")


def parameters(law: Json, shapes: int) -> tuple[list[Json], Json, Json]:
    """The shapes of a law, its place and its scale, which stand behind them or by name."""
    args, named = law["args"], set(law) - {"", "name", "args"}
    given = dict(zip(("loc", "scale"), args[shapes:]))
    if len(args) > shapes + 2 or not named <= {"loc", "scale"} - set(given):
        raise Refused("a law of other parameters than it has")
    given = {"loc": 0, "scale": 1, **law, **given}
    check_scale(given["scale"])
    return args[:shapes], given["loc"], given["scale"]


Rational: TypeAlias = tuple[list[Piece], list[tuple[Fraction, Fraction]]]
"""Pieces of constant density, and point masses."""


def rational_prior(prior: Json) -> Rational | None:
    """The prior as pieces and point masses; None where they are not rational."""
    if prior[""] == "prior-samples":
        counts = Counter(map(Fraction, prior["samples"]))
        return [], [(x, Fraction(n, counts.total())) for x, n in sorted(counts.items())]
    pieces = rational_law(prior["law"])
    if pieces is None or prior[""] == "prior-law":
        return None if pieces is None else (pieces, [])
    low, high = Fraction(prior["lower"]), Fraction(prior["upper"])
    inside: list[Piece] = [
        (max(a, low), min(b, high), mass * overlap(a, b, low, high) / (b - a)) for a, b, mass in pieces
    ]
    held = sum((mass for *_, mass in inside), Fraction(0))
    if prior[""] == "prior-truncated":
        return [(a, b, mass / held) for a, b, mass in inside], []
    below = sum((mass * overlap(a, b, a, low) / (b - a) for a, b, mass in pieces), Fraction(0))
    return inside, [(low, below), (high, 1 - below - held)]


def overlap(a: Fraction, b: Fraction, low: Fraction, high: Fraction) -> Fraction:
    """How much of [a, b] is in [low, high]."""
    return max(min(b, high) - max(a, low), Fraction(0))


def rational_law(law: Json) -> list[Piece] | None:
    """Uniform laws and histograms, as pieces."""
    if law["name"] == "uniform":
        _, loc, scale = parameters(law, 0)
        return [(Fraction(loc), Fraction(float(loc) + scale), Fraction(1))]
    if law["name"] != "histogram":
        return None
    check_scale(law["scale"])
    contents, edges, density = law["args"]
    edges = [Fraction(law["loc"]) + Fraction(law["scale"]) * Fraction(x) for x in edges]
    stretches = list(pairwise(edges))
    masses = [Fraction(n) * (b - a if density else 1) for n, (a, b) in zip(contents, stretches, strict=True)]
    total = sum(masses)
    return [(a, b, mass / total) for mass, (a, b) in zip(masses, stretches)]


class Moments:
    """∫ t^k dF over stretches of inputs, k = 0, 1, 2 and t from 0 to 1, and point masses, as pairs of bounds."""

    def __init__(self, prior: Json, stated: Json, account: Account) -> None:
        self.exact, self.stated, self.account = rational_prior(prior), stated, account
        self.given, self.floats = "", 0.0
        if self.exact is not None:
            pieces, points = self.exact
            self.stops = [b for _, b, _ in pieces]
            self.atoms = [(x, (mass, mass)) for x, mass in points]
            return
        self.given = ", given the masses and moments stated"
        # of other laws, what is stated are no bounds
        self.floats = 0.0 if prior["law"]["name"] in SHAPES else NEAR
        with localcontext(prec=DIGITS):
            self.known = Known.of(prior)
        self.claim = len(account.rows)
        account.given(f"the masses and moments stated are those of the prior ({prior['law']['name']})")
        ends, masses = ("lower", "upper") * (prior[""] == "prior-clipped"), pairs(stated["masses"])
        self.atoms = [(Fraction(prior[end]), mass) for end, mass in zip(ends, masses, strict=True)]
        if self.known is not None:
            with localcontext(prec=DIGITS):
                self.found(not masses or self.known.tails(prior, masses))

    def room(self, bound: float, ratio: Fraction) -> Fraction:
        """What floats may have lost of a lower bound."""
        return Fraction(self.floats * (1 + float(min(ratio, Fraction(10**300))) / 1000) * abs(bound))

    def found(self, holds: bool) -> None:
        """Whether the bounds looked at hold what they are bounds of."""
        claim, how, so_far = self.account.rows[self.claim]
        self.account.agreeing += how == "claimed"
        self.account.rows[self.claim] = (claim, "proved", so_far and holds)

    def over(self, spans: list[Span], name: str) -> list[list[Bounds]]:
        """Bounds of the three moments on each stretch: computed, or those that are stated under this name."""
        if self.exact is not None:
            return [self.integral(u, v) for u, v in spans]
        bounds = pairs(self.stated[name])
        refuse(len(bounds) != 3 * len(spans), f"moments stated of other {name}")
        stated = [bounds[k : k + 3] for k in range(0, len(bounds), 3)]
        if self.known is not None:
            charge(2 * WORK * len(spans))
            with localcontext(prec=DIGITS):
                self.found(all(self.known.hold(u, v, held) for (u, v), held in zip(spans, stated)))
        return stated

    def integral(self, u: Fraction, v: Fraction) -> list[Bounds]:
        assert self.exact is not None
        pieces, total = self.exact[0], [Fraction(0)] * 3
        first = bisect_right(self.stops, u)
        last = bisect_left(self.stops, v) + 1
        charge_gcd(30 * (1 + min(last, len(pieces)) - first), u.denominator.bit_length())
        for a, b, mass in pieces[first:last]:
            if mass and max(a, u) < min(b, v):
                s, t = (max(a, u) - u) / (v - u), (min(b, v) - u) / (v - u)
                height = mass * (v - u) / (b - a)
                total = [n + height * (t**k - s**k) / k for k, n in enumerate(total, 1)]
        return [(n, n) for n in total]


def pairs(numbers: list[int]) -> list[Bounds]:
    """Lower and upper bounds that follow each other."""
    bounds = [
        (Fraction(a, UNIT), Fraction(b, UNIT)) for a, b in zip(numbers[::2], numbers[1::2], strict=True)
    ]
    refuse(any(low > high for low, high in bounds), "a lower bound of a mass or moment above the upper one")
    return bounds


def nearest(moments: Moments, x: Fraction) -> Json:
    """The point mass nearest to an input, with its bounds."""
    k = bisect_left(moments.atoms, x, key=itemgetter(0))
    atoms = moments.atoms[max(k - 1, 0) : k + 1] or [(x, (Fraction(0), Fraction(0)))]
    return min(atoms, key=lambda atom: abs(atom[0] - x))


def below(parts: Json, bounds: Json) -> Json:
    """Σ c·m from below, each m between its bounds."""
    return sum(c * m[c <= 0] for c, m in zip(parts, bounds))


def chord(mass: Json, later: Json) -> Json:
    """Bounds of ∫ (1 − t) dF and of ∫ t dF."""
    return (mass[0] - later[1], mass[1] - later[0]), later


def dual_bound(
    design: Json,
    duals: Json,
    bins: Json,
    inputs: Span,
    rho: Fraction,
    moments: Moments | None,
) -> Fraction:
    """Lines under the loss on pieces of the inputs, averaged: a constant plus G · a for the floors a, minimised over a."""
    origin, price = Fraction(duals["origin"]), Fraction(duals["cap_price"])
    loss, bias = design["loss"], Fraction(design.get("max_bias", 0.0))
    bins, table = pieces_of(duals, bins, inputs, moments)
    between, cells = duals.get("between", False), masses_of(table, origin, moments)
    first, second = Fraction(loss["absolute"]), Fraction(loss["squared"]) + price
    unit, rho = math.lcm(*((b - origin).denominator for b in bins)), Fraction(math.ceil(rho * 2**64), 2**64)
    places = [int((b - origin) * unit) for b in bins]
    gradient, total = [0] * len(bins), Fraction(0)
    # In between the reduced cost is convex: it lies below the chord by at most w₂ (step/2)², and by what the turn below takes.
    steps: list[int] = [0, *(b - a for a, b in pairwise(places)), 0]
    dented = [(b, second * max(h) ** 2 / (4 * unit**2) * between) for b, h in zip(places, pairwise(steps))]
    for u, v, share, L, L1, M, M1 in table:
        if u < v:
            masses = cells[u, v]
        else:  # a point mass: u is its rounded distance from the origin; or, for the worst case, a weight
            x, mass = (origin + u, (1, 1)) if moments is None else nearest(moments, origin + u)
            u = v = x - origin
            masses = [mass, (0, 0), (0, 0)]
        masses = [(low * share, high * share) for low, high in masses]
        # ∫ (λ + μy − b|μ|) dF with λ = L + w₂y², μ = M − 2w₂y; |μ| lies below its chord.
        dL, dM, w = L1 - L, M1 - M, v - u
        steep, steeper = abs(M - 2 * second * u), abs(M1 - 2 * second * v)
        parts = (
            L + M * u - second * u * u - bias * steep,
            dL + dM * u + M * w - 2 * second * u * w - bias * (steeper - steep),
            dM * w - second * w * w,
        )
        total += below(parts, masses)
        # min(c, ρc) of the reduced cost c is concave in y: above its chord, weighted ∫ (1 − t) dF and ∫ t dF.
        turn = bisect_right(places, (u + v) / 2 * unit)
        if between:  # |b − x| ≥ ±(b − x): the sign turns between two outputs on the same side of the piece
            left, right = bisect_right(places, u * unit) - 1, bisect_left(places, v * unit)
            before = right == len(places) or (left >= 0 and (u + v) * unit < places[left] + places[right])
            turn = max(left, 0) if before else right + 1
        for y, level, tilt, (low, high) in zip((u, v), (L, L1), (M, M1), chord(*masses[:2])):
            up, down = math.floor(max(low, 0) * UNIT), math.ceil(high * rho * UNIT)
            for sign, part in ((-first, slice(0, turn)), (first, slice(turn, None))) if down > 0 else ():
                line = (sign - tilt) / unit, -sign * y - level, second / unit**2
                scale = math.lcm(*(c.denominator for c in line))
                slope, rest, curve = (int(c * scale) for c in line)
                reduced = ((slope + curve * b) * b + rest - math.ceil(d * scale) for b, d in dented[part])
                grown = (c * (up if c > 0 else down) // scale for c in reduced)
                gradient[part] = map(add, gradient[part], grown)
    # What is paid at the ends of the range: their probabilities are between a and ρa, sum to 1 and reach the end in the mean.
    least = [Fraction(g, UNIT) for g in gradient]
    ends = inputs[1] - bias, inputs[0] + bias
    for end, side, given in zip(ends, (1, -1), duals["multipliers"]):
        prices = list(map(Fraction, given))
        mass, level = side * sum(prices, Fraction(0)), side * sum(map(mul, prices, bins), Fraction(0))
        total += mass * end - level
        lines = (mass * b - level for b in bins)
        least = [g - max(line, rho * line) for g, line in zip(least, lines)]
    return total + min(least) * (1 / rho if min(least) > 0 else 1)


Priced = list[Fraction]
"""Ends u ≤ v from the origin, the share of the prior between them, and λ and μ at both."""


def pieces_of(
    duals: Json, bins: list[Fraction], reach: Json, moments: Moments | None
) -> tuple[list[Fraction], list[Priced]]:
    """The outputs that multipliers speak of, and their pieces of the inputs; refuse prices that are negative."""
    origin, nu = Fraction(duals["origin"]), duals["multipliers"]
    own, table = [Fraction(b) for b in duals.get("outputs") or bins], duals["pieces"]
    held = all(own[0] <= b <= own[-1] if duals.get("between") else b in own for b in bins)
    refuse(not held or own != sorted({*own}), "a lower bound for other outputs")
    pieces = [list(map(Fraction, piece)) for piece in table]
    charge(8 * len(pieces) * len(own))
    good = all(share >= 0 and u <= v for u, v, share, *_ in pieces)
    if moments is None:
        good = good and all(reach[0] <= origin + u <= reach[1] for u, *_ in pieces)
        refuse(any(u < v for u, v, *_ in pieces), "multipliers of stretches where no prior is")
    if not good or [*map(len, nu)] != [len(own)] * 2 or min(map(min, nu)) < 0 or duals["cap_price"] < 0:
        raise Refused("multipliers that are none")
    return own, pieces


def masses_of(table: list[Priced], origin: Fraction, moments: Moments | None) -> dict[Json, Json]:
    """Bounds of mass and moments of every stretch; refuse a part of the prior that is counted twice."""
    used: dict[Json, Json] = Counter()
    changes: dict[Json, Json] = Counter()
    for u, v, share, *_ in table:
        if u < v:
            changes[u], changes[v] = changes[u] + share, changes[v] - share
        else:
            used[None if moments is None else nearest(moments, origin + u)[0]] += share
    covered = accumulate(change for _, change in sorted(changes.items()))
    refuse(max([0, *covered, *used.values()]) > 1, "a part of the prior is counted twice")
    spans = sorted({(u, v) for u, v, *_ in table if u < v})
    known = moments.over([(origin + u, origin + v) for u, v in spans], "spans") if moments else []
    return dict(zip(spans, known))


Weighted = tuple[Fraction, Fraction, list[Bounds]]
"""A stretch of inputs, or one input twice, with bounds of its mass and moments."""


def rows_bound(design: Json, proof: Json, moments: Moments | None) -> Fraction:
    """Return the bound that the multipliers prove; `moments` are those of the prior, None for the worst case."""
    ends, bins = list(map(Fraction, design["input_range"])), list(map(Fraction, design["bins"]))
    given = proof["given"]
    if (design["inputs"] is None) != (given["inputs"] is not None) or (design["inputs"] is None and moments):
        raise Refused("a bound by listed inputs, which the question has not")
    x = list(map(Fraction, design["inputs"] or given["inputs"]))
    if len(x) < 2 or [x[0], x[-1]] != ends or any(b <= a for a, b in pairwise(x)):
        raise Refused("inputs that are not of the range")
    places, weights = list(map(Fraction, given["places"] or [])), given["weights"]
    law: list[Weighted] = [(place, place, [(weight, weight)]) for place, weight in zip(places, weights)]
    known = places if design["inputs"] is not None else [place for place in places if place in x]
    inside = len(known) == len(places) and all(x[0] <= place <= x[-1] for place in places)
    if len(places) != len(weights) or not inside or min(weights, default=0) < 0 or sum(weights) > 1:
        raise Refused("weights of inputs that are none")
    if moments is not None:
        refuse(law, "weights of inputs where the prior has them")
        spans = [*pairwise(sorted({*x, *(b for b in bins if x[0] < b < x[-1])}))]
        law = [(u, v, masses) for (u, v), masses in zip(spans, moments.over(spans, "cells"), strict=True)]
        law += [(place, place, [mass]) for place, mass in moments.atoms]
    charge(80 * len(law) * len(bins), 400)
    costs, constant = charges(bins, x, law, design["loss"])
    table = {"inputs": x, "outputs": bins, "cost": [c for row in costs for c in row]}
    means = [
        Own("unbiased", True, [(k * len(bins) + i, b) for i, b in enumerate(bins)], -place)
        for k, place in enumerate(x)
    ]
    return bound(table, proof, means, [compared(design["privacy"], x)]) + constant


def compared(privacy: Json, x: list[Fraction]) -> Point:
    """Pairs of inputs with their ratios: of a metric neighbours, which imply the others."""
    n, metric = len(x), privacy.get("metric")
    pairs = [(a, b) for a in range(n) for b in range(n) if (abs(a - b) == 1 if metric else a != b)]
    power = {"absolute": 1, "squared": 2}.get(metric, 0)
    apart = [abs(x[a] - x[b]) ** power for a, b in pairs]
    charge(400 * len(set(apart)), 400)
    ends = {d: exp_bounds(Fraction(privacy["epsilon"]) * d, 160) for d in set(apart)}
    delta = Fraction(privacy.get("delta", 0.0))
    alike = metric is None and not delta and n > 2
    return Point("privacy", pairs, delta, [ends[d] for d in apart], alike)


def charges(
    bins: list[Fraction], x: list[Fraction], law: Iterable[Weighted], loss: Json
) -> tuple[list[list[Fraction]], Fraction]:
    """Return the cost of each probability, rounded down, and the constant."""
    first, second = Fraction(loss["absolute"]), Fraction(loss["squared"])
    costs, constant = [[Fraction(0)] * len(bins) for _ in x], Fraction(0)
    for u, v, masses in law:
        k, width = min(bisect_right(x, u) - 1, len(x) - 2), v - u
        length = x[k + 1] - x[k]
        constant += second * below((u * u, 2 * u * width, width * width), masses)
        for i, b in enumerate(bins):
            sign = first if b >= v else -first
            value, rise = sign * (b - u) + second * (b * b - 2 * b * u), -width * (sign + 2 * second * b)
            for side, level in ((0, x[k + 1] - u), (1, u - x[k])):
                level, slope = level / length, (2 * side - 1) * width / length
                costs[k + side][i] += below(
                    (level * value, level * rise + slope * value, slope * rise), masses
                )
    return costs, constant

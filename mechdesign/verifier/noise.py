"""Noise on a lattice: privacy and cost of a law that is constant on cells, and lower bounds that hold for any additive noise.

Bounds are of noise for one number, by weak duality; they say something of several, too.

*Several numbers.* Of c that change each is ε/c-private if all of them are ε-private (their largest losses add up), and the mean of m of them,
the others left alone, keeps the (ε, δ) of all of them. That mean T̄ is noise for one number, of the same sensitivity: E|T̄| ≤ E|T|, and
E T² = m E T̄² of symmetric laws, which suffice, as a change of all signs keeps privacy and cost. So a bound for one number, of m t² under the
squared loss, is one for each of several. `times` is that m.

*Independent copies* that are private together say of one of them:
Let n copies be (ε, δ)-private together when all of them move, p and q the probabilities of an event under one of them and under the moved one,
and S_j(p) = P[Bin(n, p) ≥ j]. "The event happens for at least j of n" is an event of all copies, and so is its complement with the two
exchanged: for every j

    S_j(p) ≤ e^ε S_j(q) + δ,    1 − S_j(q) ≤ e^ε (1 − S_j(p)) + δ.

A q that breaks one of them is too small, and so is every smaller one. Tests may toss coins, so that the least q is at least p times the least
q' over p' of any p' ≤ p. One copy is (ε₁, δ₁)-private if p − e^ε₁ q ≤ δ₁ for all p: p walks from 0 to 1, in steps over which the
ratio met so far is enough. Steps are chosen in doubles; that a q is too small is shown in decimals.

*Lattices.* Entries are masses of points 0, ±h, …, ±Rh. Tails repeat the outermost n points, times r each time: an outermost entry then is the mass of a point and of
all its repetitions, of which the point itself has 1 − r. Mirrored entries are masses of a point and its mirror image together. At a shift by s points
every point j of mass a p gives a row  a p − ρ b q − S_j ≤ 0, b q the mass of j + s, with ρ ≥ e^ε; Σ S_j ≤ δ. Points are those within the reach; with tails
and δ > 0 the first repetition too, whose excesses over 1 − r are those of all. A row whose partner is beyond a free reach, where all other mass is, in
one more entry, is none.

*Every noise.* T, rounded at random and without bias to a neighbouring point, is private at whole shifts and costs no more than these costs say: |j|h, or
j²h² − h²/4; of noise on the whole numbers the loss itself. Entries of the free lattice are its masses.

*Whole numbers* change by whole numbers only: their noise is the middle of a cell of width 1, private at whole shifts where the cells are, and
its lower bound is that of the lattice of whole numbers with the loss itself as cost.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache, partial
from operator import mul
from typing import NamedTuple

from mechdesign.verifier.arithmetic import between, charge, exp_bounds, peak
from mechdesign.verifier.calibration import additive
from mechdesign.verifier.composition import WHOLE
from mechdesign.verifier.reading import Account, Json, NotCovered, Refused, points_of, proofs_of, refuse
from mechdesign.verifier.table import Own, Section, bound_within, keeps_rows, lower_bound, picked, zeros

MOST = 128
STEPS = 400
ROOM = Decimal("1." + "1".zfill(30))


Points = list[tuple[Fraction, Fraction]]
"""e^ε, from above, and δ of all that is asked, by increasing ε."""


def staircase_bound(
    stated: Json, loss: str, points: Points, sensitivity: Fraction, times: int, counts: bool
) -> Fraction:
    """Of one point ε > 0, weak duality with G(t) = (ℓ(t) − λ + G(t + 1))/e^ε, 0 from `periods` on (0 of them: for ever), at the shift 1.

    What is missing on [0, 1) below the root γ of G is sent to what G leaves above it: mechdesign.noise.noise_bounds says why.
    """
    growth, delta = points[0]
    if len(points) > 1 or growth - 1 < Fraction(1, 2**100):
        raise Refused("a bound of one epsilon, where more are asked or none is above 0")
    periods, b = stated["periods"], int(loss == "squared")
    a, unit = 1 - b, times * sensitivity ** (1 + b)  # the loss is |t| or t² in this unit
    level, bits = stated["level"] / unit, 400 + 4 * math.floor(math.log2(growth))
    if not 0 <= periods <= 50_000 or level <= 0 or (not periods and delta) or 0 < periods ** (1 + b) < level:
        raise Refused("a level without periods, or with too many")
    r = Fraction(math.floor(2**bits / growth), 2**bits)
    highest = lowest = Fraction(0)
    z, c = r / (1 - r), [Fraction(0)] * 3
    if not periods:
        c = [((a + 2 * b * z) * z + b * z - level) * z, (a + 2 * b * z) * z, b * z]
    for j in reversed(range(periods)):  # coefficients of G(j + u), rounded down
        now = a * j + b * j * j - level + c[0], a + 2 * b * j + c[1], b + c[2]
        c = [Fraction(math.floor(r * v * 2**bits), 2**bits) for v in now]
        highest, lowest = (max(highest, c[0] + c[1] + c[2]), min(lowest, c[0])) if j else (highest, lowest)
    if counts:
        sent = open_points(c, r, level, int(sensitivity))
        if sent is None or min(lowest, sum(c)) < 0:
            return Fraction(0)
        return Fraction((level - 2 * delta * (max(highest, sum(c)) + sent)) * unit)
    low, high = Fraction(0), Fraction(1)
    while high - low > low / 2**200 and c[0] < 0:
        middle = (low + high) / 2
        low, high = (middle, high) if c[0] + c[1] * middle + c[2] * middle**2 < 0 else (low, middle)
    left, right, whole = (sum(v * x ** (k + 1) / (k + 1) for k, v in enumerate(c)) for x in (low, high, 1))
    sent = (high - low) * -(c[0] + c[1] * low + c[2] * low**2) - left
    if (c[0] < 0 and (right >= whole or sent > r * (whole - right))) or min(lowest, c[0] + c[1] + c[2]) < 0:
        return Fraction(0)
    share = Fraction(0)
    if c[0] < 0:
        at = 1 - high
        near, share = c[0] + c[1] * at + c[2] * at**2, 1 + high * sum(c) / (whole - right)
        if high <= at:  # half of it to either side, but for the last
            share = min(share, (1 + high * (4 * sum(c) - near) / (whole - right)) / 2)
    charge = -c[0] / r * share
    return Fraction((level - 2 * delta * (highest + charge)) * unit)


def open_points(c: list[Fraction], r: Fraction, level: Fraction, n: int) -> Fraction | None:
    """Return the charge of the points of [0, 1) that send what they lack to those with G > 0; None if these cannot take it.

    The point 0 sends G(1) to both sides at the shift by n, and half of the rest to each.
    """
    points = [c[0] + Fraction(k, n) * (c[1] + Fraction(k, n) * c[2]) for k in range(1, n)]
    sent = [max(level - 2 * sum(c), Fraction(0)) / 2, *(-g / r for g in points if g < 0)]
    received = [g for g in points if g > 0]
    total, room = sum(sent), sum(received)
    if total > room:
        return None
    return max(sent) * (1 + (n - len(received) - 1) * received[-1] / room) if total else Fraction(0)


class Lattice(NamedTuple):
    """Points to either side, points a sensitivity, decay of the tails; whether mirrored, whether free."""

    side: int
    change: int
    decay: Fraction
    mirrored: bool = False
    free: bool = False

    def place(self, at: int, repeated: bool = False) -> tuple[int, Fraction] | None:
        """The entry of a point, and its mass for each unit of that; over 1 − r next to a repeated point."""
        r, far = self.decay, abs(at)
        out = max(0, -((self.side - far) // self.change))
        if out and not r:
            return None
        inside = far - out * self.change
        mass = r**out * (1 if repeated or inside <= self.side - self.change or not r else 1 - r)
        entry = inside if self.mirrored else (inside if at >= 0 else -inside) + self.side
        return entry, Fraction(mass) / (2 if self.mirrored and inside else 1)

    def sections(self, p: int, point: tuple[Fraction, Fraction]) -> list[Section]:
        """The rows of the p-th (ε, δ): of every shift and place, then, under δ, of the excess at every shift."""
        n, (growth, delta) = self.change, point
        shifts = range(1, n + 1) if self.mirrored else [s for s in range(-n, n + 1) if s]
        reach = self.side + (n if self.decay and delta else 0)
        width = 2 * reach + 1

        def compared(number: int) -> tuple[Json, Fraction]:
            k, y = divmod(number, width)
            at, terms = y - reach, dict[Json, Fraction]()
            repeated = abs(at) > self.side
            here, there = self.place(at, repeated), self.place(at + shifts[k], repeated)
            refuse(here is None or (there is None and self.free), "a row that the problem has not")
            for found, factor in ((here, Fraction(1)), (there, -growth)):
                if found is not None:
                    terms[found[0]] = terms.get(found[0], Fraction(0)) + factor * found[1]
            if delta:
                terms["over", p, k, y] = Fraction(-1)
            return terms.items(), Fraction(0)

        def excess(k: int) -> tuple[Json, Fraction]:
            return [(("over", p, k, y), Fraction(1)) for y in range(width)], delta

        return [(len(shifts) * width, compared), (len(shifts) * bool(delta), excess)]


def noise_bound(
    stated: Json, loss: str, points: Points, sensitivity: Fraction, times: int, counts: bool
) -> Fraction:
    """Return the bound of every noise for one number, of `times` the loss; with `counts`, of noise on the whole numbers."""
    n, side = stated["given"]
    if not (1 <= n <= side <= 10**5) or (counts and n != sensitivity):
        raise Refused("a lattice that is none, or of another change")
    h = sensitivity / n
    offset = 0 if counts else h**2 / 4

    def cost(j: int) -> Fraction:
        return times * Fraction(j * h if loss == "absolute" else (j * h) ** 2 - offset)

    lattice = Lattice(side, n, Fraction(0), mirrored=True, free=True)
    costs: dict[Json, Fraction] = {j: cost(j) for j in range(side + 2)}
    # no multipliers at all prove the least cost
    return max(lower_bound(costs, picked(stated, 0, points, lattice.sections), [list(costs)], set()), cost(0))


@cache
def choices(n: int) -> list[int]:
    return [math.comb(n, i) for i in range(n + 1)]


def tail(n: int, j: int, p: Json) -> Json:
    """P[Bin(n, p) ≥ j], in the arithmetic of p."""
    ways = choices(n)
    return sum(ways[i] * p**i * (1 - p) ** (n - i) for i in range(j, n + 1))


def inverse(n: int, j: int, mass: float) -> float:
    """Return about the p at which the tail has this mass."""
    return math.exp(between(math.log(1e-30), 0.0, lambda log: tail(n, j, math.exp(log)) < mass)[0])


class Copies:
    """n copies that are (ε, δ)-private together."""

    def __init__(self, n: int, epsilon: float, delta: float) -> None:
        self.n, self.epsilon, self.delta = n, epsilon, delta
        self.work = 120 * n * n.bit_length()

    def guess(self, p: float, direct: bool, j: int) -> float:
        """The least q that the j-th requirement leaves."""
        growth = math.exp(self.epsilon)
        if direct:
            mass = (tail(self.n, j, p) - self.delta) / growth
        else:  # 1 − S_j(p) is the tail of the others
            mass = 1 - self.delta - growth * tail(self.n, self.n + 1 - j, 1 - p)
        return inverse(self.n, j, mass) if mass > 0 else 0.0

    def least(self, p: float) -> float:
        """A q that is no larger than the least one."""
        charge(self.work)
        found = []
        for direct in (True, False):
            j = peak(1, self.n, partial(self.guess, p, direct))
            found.append((self.guess(p, direct, j), j, direct))
        q, j, direct = max(found)
        q *= 1 - 1e-8
        return q if q > 0 and self.breaks(p, q, j, direct) else 0.0

    def breaks(self, p: float, q: float, j: int, direct: bool) -> bool:
        before, after, delta = Decimal(p), Decimal(q), Decimal(self.delta)
        growth = Decimal(self.epsilon).exp() * ROOM
        if direct:
            return bool(growth * tail(self.n, j, after) * ROOM <= tail(self.n, j, before) - delta)
        others = self.n + 1 - j
        return bool(
            growth * tail(self.n, others, 1 - before) * ROOM + delta <= tail(self.n, others, 1 - after)
        )

    def imply(self, epsilon: float, delta: float) -> bool:
        """Whether one of them is (ε₁, δ₁)-private, as far as so many steps show."""
        growth, ratio, at = exp_bounds(epsilon)[0], Fraction(0), 0.0
        with localcontext(prec=60):
            for _ in range(STEPS):
                lost = 1 - growth * ratio  # for each unit of p
                if lost <= Fraction(delta):
                    return True
                after = float(Fraction(delta) / lost) * (1 - 1e-15)
                if after >= 1 or after - at < 1e-3 * delta:
                    return after >= 1
                at = after
                ratio = max(ratio, Fraction(self.least(at)) / Fraction(at))
        return False


def lattice_noise(result: Json, account: Account) -> None:
    design, law = result["design"], result["mechanism"]
    privacy, loss = design["privacy"], design["loss"]
    if loss not in ("absolute", "squared"):
        raise NotCovered("a callable loss")
    if not all(1e-18 <= e <= 200 or (e == 0 and d >= 1e-18) for e, d in points_of(privacy)):
        raise Refused("a budget for which no such noise is made")
    whole = design["integer"]
    moved, several = design["l0"] or design["dimension"], law[""] not in ("cell-noise", "integer-noise")
    refuse(not 1 <= moved <= design["dimension"], "more numbers that change than there are")
    if several:
        alike = (law["dimension"], law.get("l0") or law["dimension"]) == (design["dimension"], moved)
        if law[""] == "additive-noise":
            named_noise(result, moved, account)
            return
        account.agrees("the noise is for the design's numbers, of which as many change", alike)
        law = law["law"]
    elif design["dimension"] != 1 or moved != 1:
        raise Refused("noise of one number for several")
    refuse(whole != (law[""] == "integer-noise"), "noise for the other kind of numbers")
    law = on_cells(law) if whole else law
    total = total_of(law)
    n, cells, r, spike = law["cells_per_shift"], law["weights"], law["decay"], law["spike"]
    width, start, sensitivity = (Fraction(v) for v in (law["width"], law["start"], changes(design)))
    account.at_most("shifts up to the sensitivity", sensitivity, n * width)
    for e, d in points_of(privacy):
        # c coordinates that are (ε/c, δ/c)-private each are (ε, δ)-private together
        low = exp_bounds(Fraction(e) / moved)[0]
        claim = f"delta at most {d!r} at epsilon = {e!r}"
        account.at_most(claim, largest_excess(law, low) * Fraction(moved) / total, Fraction(d))
    sides = [(start + j * width, start + (j + 1) * width) for j in range(len(cells))]
    refuse(r and (sides[n - 1][1] > 0 or sides[-n][0] < 0), "tails that reach across zero")
    decays = [r if min(j, len(cells) - 1 - j) < n else 0 for j in range(len(cells))]
    costs = (cost(*side, loss, whole, decay, n * width) for side, decay in zip(sides, decays))
    spent: Json = sum(map(mul, cells, costs))
    if spike:
        half = Fraction(law["spike_width"]) / 2
        spent += spike * cost(-half, half, loss, whole)
    account.bounds(f"the value is at most {result['value']!r}", Fraction(spent) / total, result["value"])
    bound_holds(result, moved, account)


def cost(a: Fraction, b: Fraction, loss: str, whole: bool, r: Json = 0, step: Json = 0) -> Fraction:
    """The cost of a uniform law on [a, b], or of its middle, and of its repetitions of mass r, r², …, each a step further out."""
    c, absolute = abs(a + b) / 2, loss == "absolute"
    if whole:
        found = c if absolute else c * c
    else:
        found = (b * abs(b) - a * abs(a)) / 2 / (b - a) if absolute else (a * a + a * b + b * b) / 3
    one, two = step * r / (1 - r) ** 2, step**2 * r * (1 + r) / (1 - r) ** 3
    return Fraction(found / (1 - r) + (one if absolute else 2 * c * one + two))


def on_cells(law: Json) -> Json:
    """Return noise on the whole numbers as the middles of cells of width 1, which have the same sums at whole shifts."""
    n, first, size = law["change"], law["first"], len(law["weights"])
    if abs(first) > 2**29 or (law["decay"] and not first + n - 1 <= 0 <= first + size - n):
        raise Refused("whole numbers that are too large, or tails on one side of 0")
    held = {"weights": law["weights"], "decay": law["decay"], "cells_per_shift": n}
    return held | {"width": 1, "start": first - Fraction(1, 2), "spike": 0, "spike_width": 0}


def changes(design: Json) -> Fraction:
    """The sensitivity; whole numbers change by no more than its whole part."""
    return Fraction(math.floor(design["sensitivity"]) if design["integer"] else design["sensitivity"])


def total_of(law: Json) -> Fraction:
    """Return the weight of all cells, repetitions included; refuse weights and tails that are no law."""
    n, cells, r, spike = law["cells_per_shift"], law["weights"], law["decay"], law["spike"]
    refuse(n < 1 or n > len(cells) + 100, "more shifts than the law has use for")
    if min(cells) < 0 or spike < 0 or not 0 <= r < 1 or (r and (spike or len(cells) < 2 * n)):
        raise Refused("weights that are none")
    # The first and the last n cells are repeated further out, times r, r², …: so are the sums over them.
    total = sum(cells) + spike + (sum(cells[:n]) + sum(cells[-n:])) * (r / (1 - r))
    refuse(total <= 0, "weights that are none")
    return Fraction(total)


def largest_excess(law: Json, low: Fraction) -> Fraction:
    """Return the largest Σ [p − e^ε q]₊ of a shift, in the unit of the weights; `low` is at most e^ε."""
    n, cells, r, spike = law["cells_per_shift"], law["weights"], law["decay"], law["spike"]
    scale, up, down = r.denominator**2, low.numerator, low.denominator
    bits = low.numerator.bit_length() + scale.bit_length() + max(cells).bit_length()
    once, twice = int(scale * r), int(scale * r * r)
    left = [w * f for f in (twice, once) for w in cells[:n]] if r else [0] * 2 * n
    right = [w * f for f in (once, twice) for w in cells[-n:]] if r else [0] * 2 * n
    line = [*left, *(w * scale for w in cells), *right]
    charge(2 * n * len(line), bits)
    zero = r / (1 - r)

    def excess(k: int) -> Fraction:
        moved = [0] * max(0, -k) + line[max(0, k) :] + [0] * max(0, k)
        over = [max(a * down - b * up, 0) for a, b in zip(line, moved)][n : len(line) - n]
        return Fraction((sum(over) + (sum(over[:n]) + sum(over[-n:])) * zero) / (down * scale) + spike)

    return max(excess(k) for k in range(-n, n + 1) if k)


def named_noise(result: Json, moved: int, account: Account) -> None:
    """Check noise of a named family on every coordinate: its changes, what it consumes, its loss, and the bound."""
    design, noise = result["design"], result["mechanism"]
    refuse(design["integer"] != (noise["law"]["name"] in WHOLE), "noise for the other kind of numbers")
    held, sensitivity, count = noise["sensitivity"], design["sensitivity"], noise["dimension"]
    if isinstance(held, dict):  # a change of c coordinates by the sensitivity is among those that it is for
        reach = held["linf"] is not None and held["linf"] >= sensitivity and held["each"] is None
        several = (held["l0"] or count) >= moved and held["l1"] is None and held["l2"] is None
        covered = reach and several
    else:
        covered = held >= sensitivity
    account.agrees("the noise is for every change of the design", covered and count == design["dimension"])
    account.agrees("it is added once, for everybody", noise["rounds"] == 1 == noise["sampling_rate"])
    additive(noise, design["privacy"], design["loss"], result["value"], account)
    bound_holds(result, moved, account)


def bound_holds(result: Json, moved: int, account: Account) -> None:
    """Check the bound of noise for one number, or of one coordinate of several, from one number's; claimed if it takes too many binomial laws."""
    design, stated, proofs = result["design"], result["lower_bound"], proofs_of(result)
    if stated is None:
        return
    asked, loss = design["privacy"], design["loss"]
    if design["dimension"] == 1:
        (alone,) = (proofs[kind] for kind in ONE_NUMBER if kind in proofs)
        noise = "whole-number noise" if design["integer"] else "noise for a real-valued query"
        claim = f"no additive {noise} costs less than {stated!r}"
        account.bounds(claim, stated, bound_of_one(alone, design, asked))
        return
    claim, proof = f"no independent noise of one law costs less than {stated!r}", proofs["subset-bound"]
    kept, mean, dual = proof["privacy"], proof["mean"], proof["dual"]
    if kept != asked and not implied(kept, asked, mean, moved):
        account.claimed(claim)
        return
    if not 1 <= mean <= moved or (design["integer"] and mean > 1):
        raise Refused("a mean of more numbers than change, or of whole numbers, which is none")
    times = mean if loss == "squared" else 1
    account.bounds(claim, stated, bound_of_one(dual, design, kept, times))


def implied(kept: Json, asked: Json, mean: int, moved: int) -> bool:
    """Whether the mean of so many numbers keeps this privacy if all of them keep what is asked; each is one point (ε, δ)."""
    (epsilon, delta), *others = points_of(kept)
    (whole, together), *more = points_of(asked)
    if others or more:
        return False
    if not delta and not together:
        return mean == 1 and Fraction(epsilon) * moved >= Fraction(whole)
    copies = Copies(min(moved // mean, MOST), whole, together)
    return bool(together and copies.n and copies.imply(epsilon, delta))


def bound_of_one(stated: Json, design: Json, privacy: Json, times: int = 1) -> Fraction:
    """Return the bound, for `times` the loss, of noise for one number that keeps this privacy."""
    loss, size, whole = design["loss"], changes(design), design["integer"]
    every = points_of(privacy)
    binding = [point for point in every if point[1] < 1] or every
    points = [(exp_bounds(Fraction(e))[1], Fraction(d)) for e, d in binding]
    lines = len(stated.get("rows", ())) + sum(stated.get("given", ()))
    charge(100 * stated.get("periods", 0) + 20 * lines, 400)
    return max(ONE_NUMBER[stated[""]](stated, loss, points, size, times, whole), Fraction(0))


ONE_NUMBER = {"rows-bound": noise_bound, "staircase-dual": staircase_bound}


def decays(r: Fraction, epsilon: Fraction) -> bool:
    """Whether r is e^−ε, rounded up to 64 bits."""
    low, high = exp_bounds(epsilon)
    whole = 2**64 % r.denominator == 0
    return whole and r * high >= 1 and (r - Fraction(1, 2**64)) * low <= 1 + Fraction(1, 10**12)


def lattice_problem(result: Json, account: Account) -> None:
    """Check a problem on the masses of noise, and its law."""
    design, proofs = result["design"], proofs_of(result)
    n, side = design["change"], (len(design["outputs"]) - 1) // 2
    refuse(not 1 <= n <= 2 * side or len(design["outputs"]) != 2 * side + 1, "a lattice that is none")
    total, weights, points = private_on_lattice(result, side, account)
    r = Fraction(design["decay"])
    lattice = Lattice(side, n, r)
    places = [lattice.place(j) for j in range(-side, side + 1)]
    masses = [place[1] for place in places if place is not None]
    cells = [w / (total * mass) for w, mass in zip(weights, masses, strict=True)]

    def bound(own: list[Own]) -> Fraction:
        proof, group = proofs["rows-bound"], list(range(len(cells)))
        rows = picked(proof, len(own), points, lattice.sections)
        return bound_within(design, proof, own, rows, [group], zeros(own, [], 1, len(cells)))

    bits, noun = max(weights).bit_length() + r.denominator.bit_length(), "noise on this lattice"
    noun += " within these constraints"
    v, named = [*cells, *proofs["table-proof"]["witness"]], named_error(design, side)
    keeps_rows(design, result, v, len(cells), bits, bound, noun, account, named)


def named_error(design: Json, side: int) -> list[dict[int, Fraction]] | None:
    """What an entry costs in the words of an objective: at a point or over its cell, with all repetitions; None for its author's words."""
    words, n, r = design["objective"], design["change"], Fraction(design["decay"])
    if words not in ("expected absolute error", "expected squared error"):
        return None
    h, half, found = Fraction(design["step"]), Fraction(1, 2), dict[int, Fraction]()
    for j in range(-side, side + 1):
        decay = r if abs(j) > side - n else Fraction(0)
        each = cost((j - half) * h, (j + half) * h, words.split()[1], design["integer"], decay, n * h)
        found[j + side] = (1 - decay) * each
    return [{j: c for j, c in found.items() if c}]


def private_on_lattice(result: Json, side: int, account: Account) -> tuple[Fraction, list[int], Points]:
    """Check that the law is on the problem's lattice and private at every shift; return its weight, its weights from end to end and (e^ε, δ)."""
    design, law = result["design"], result["mechanism"]
    whole, n = design["integer"], design["change"]
    if law[""] != ("integer-noise" if whole else "cell-noise") or design["inputs"] != ["noise"]:
        raise Refused("noise of another kind, or of several inputs")
    law, step = (on_cells(law) if whole else law), Fraction(design["step"])
    total, weights, r = total_of(law), law["weights"], Fraction(design["decay"])
    pad, odd = divmod(2 * side + 1 - len(weights), 2)
    centred = 2 * Fraction(law["start"]) == -len(weights) * Fraction(law["width"])
    alike = (law["cells_per_shift"], law["decay"], law["width"]) == (n, r, step) and not (odd or pad < 0)
    account.agrees("the noise is on the problem's lattice", alike and centred and not (r and pad))
    wrong = not alike or law["spike"] or (r and (pad or n > side))
    refuse(wrong or (whole and not step == 1 <= design["sensitivity"]), "noise on another lattice")
    if (design["tails"] is None) == (r > 0) or (r and not decays(r, Fraction(design["tails"]))):
        raise Refused("a decay that is not that of the tails")
    sensitivity = Fraction(design["sensitivity"])
    spare = (n + 1 if whole else n * step) - sensitivity
    # no more steps than reach it: the rows, and the bound with them, would be of larger shifts
    held = 0 < spare <= 1 if whole else 0 <= spare < step
    account.proved("shifts up to the sensitivity, and no further", held, spare)
    places = [float(j * step) for j in range(-side, side + 1)]
    refuse(design["outputs"] != places, "outputs that are not the points of the lattice")
    if not design["privacy"] or design["of"] != "data":
        raise Refused("noise without privacy, or for the report of one person")
    points = []
    for one in design["privacy"]:
        for epsilon, delta in points_of(one["privacy"]):
            if delta >= 1:
                continue
            low, high = exp_bounds(Fraction(epsilon))
            if (
                delta and not whole
            ):  # else shifts by part of a step need less than was asked, and bounds are too high
                even = n * step <= sensitivity * (1 + Fraction(1, 10**9))
                account.agrees("a whole number of steps is the sensitivity", even)
            points.append((high, Fraction(delta)))
            claim = f"{one['label']}: epsilon = {epsilon!r}, delta = {delta!r} at every shift"
            excess = Fraction(largest_excess(law, low)) / total
            account.at_most(claim, excess, Fraction(delta))
    return total, [0] * pad + weights + [0] * pad, points

"""Optimal noise for one number, or alike for several: privacy and cost of a law that is constant on cells, or of a family's.

Whole numbers change by whole numbers only: their noise is the middle of a cell of width 1, private at whole shifts where the cells are, and
its lower bound is that of the lattice of whole numbers with the loss itself as cost.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from decimal import localcontext
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

from mechdesign.verifier.calibration import additive
from mechdesign.verifier.composition import PLACES
from mechdesign.verifier.discrete_laws import WHOLE
from mechdesign.verifier.lattice_bound import MOST, Copies, noise_bound, staircase_bound
from mechdesign.verifier.reading import (
    Account,
    Json,
    NotCovered,
    Refused,
    exp_bounds,
    points_of,
    proofs_of,
)


def lattice_noise(result: Json, account: Account) -> None:
    design, law = result["design"], result["mechanism"]
    proofs = proofs_of(result)
    privacy, loss = design["privacy"], design["loss"]
    if loss not in ("absolute", "squared"):
        raise NotCovered("a callable loss")
    whole = design["integer"]
    moved, several = design["l0"] or design["dimension"], law[""] not in ("cell-noise", "integer-noise")
    if several:
        alike = (law["dimension"], law.get("l0") or law["dimension"]) == (design["dimension"], moved)
        if law[""] == "additive-noise":
            named_noise(result, moved, account)
            return
        account.agrees("the noise is for the design's numbers, of which as many change", alike)
        law = law["law"]
    elif design["dimension"] != 1 or moved != 1:
        raise Refused("noise of one number for several")
    bounds = [proofs[kind] for kind in ("lattice-bound", "staircase-dual") if kind in proofs]
    of_law = len(proofs) == len(result["proofs"]) <= 2 and "cell-law-proof" in proofs
    if not of_law or (len(bounds) != 1 and not several):
        raise NotCovered("evidence other than one proof of the law and one of the lower bound")
    stated = bounds[0] if bounds else {}
    if whole != (law[""] == "integer-noise"):
        raise Refused("noise for numbers of the other kind, whole or not")
    law = on_cells(law) if whole else law
    held = cells_of(law, stated.get("cells", 1))
    n, cells, r, spike = law["cells_per_shift"], law["weights"], law["decay"], law["spike"]
    width, start, sensitivity = (Fraction(v) for v in (law["width"], law["start"], changes(design)))
    account.proved("shifts up to the sensitivity", n * width >= sensitivity)
    for e, d in points_of(privacy):
        # c coordinates that are (ε/c, δ/c)-private each are (ε, δ)-private together
        low = exp_bounds(Fraction(e) / moved)[0]
        claim = f"delta at most {d!r} at epsilon = {e!r}"
        account.proved(claim, largest_excess(law, held, low, account) <= Fraction(d) / moved * held.total)
    # The first and the last n cells are repeated further out, times r, r², …: so are the sums over them.
    zero, one, two = r / (1 - r), r / (1 - r) ** 2, r * (1 + r) / (1 - r) ** 3

    def cost(a: Fraction, b: Fraction) -> Fraction:  # of a uniform law on [a, b], or of its middle
        if whole:
            return abs(a + b) / 2 if loss == "absolute" else (a + b) ** 2 / 4
        return (b * abs(b) - a * abs(a)) / 2 / (b - a) if loss == "absolute" else (a * a + a * b + b * b) / 3

    def repeated(a: Fraction, b: Fraction) -> Fraction:  # of the repetitions of a cell
        c, step = abs(a + b) / 2, n * width
        square = cost(a, b) * zero + 2 * c * step * one + step**2 * two
        return Fraction(c * zero + step * one if loss == "absolute" else square)

    sides = [(start + (e - v) * width, start + e * width) for e, v in zip(held.ends, held.spans)]
    spent: Json = sum(w * cost(*side) for w, side in zip(cells, sides))
    if r:
        if sides[held.first - 1][1] > 0 or sides[-held.last][0] < 0:
            raise Refused("tails that reach across zero")
        tails = (*zip(cells[: held.first], sides), *zip(cells[-held.last :], sides[-held.last :]))
        spent += sum(w * repeated(*side) for w, side in tails)
    if spike:
        spent += spike * cost(-Fraction(law["spike_width"]) / 2, Fraction(law["spike_width"]) / 2)
    account.bounds(f"the value is at most {result['value']!r}", Fraction(spent) / held.total, result["value"])
    if several:
        bound_of_several(result, proofs, moved, account)
    else:
        bound_of_alone(result, stated, account)


def on_cells(law: Json) -> Json:
    """Noise on the whole numbers as the middles of cells of width 1: at whole shifts its sums are theirs."""
    held = {"weights": law["weights"], "decay": law["decay"], "cells_per_shift": law["change"]}
    return held | {
        "width": 1,
        "start": law["first"] - Fraction(1, 2),
        "spike": 0,
        "spike_width": 0,
        "spans": [],
    }


def changes(design: Json) -> Fraction:
    """The sensitivity; whole numbers change by no more than its whole part."""
    return Fraction(math.floor(design["sensitivity"]) if design["integer"] else design["sensitivity"])


class Cells(NamedTuple):
    """Cells in spans, the ends of these, how many spans repeat on either side, and the weight of all, repetitions included."""

    spans: list[int]
    ends: list[int]
    first: int
    last: int
    total: Fraction


def cells_of(law: Json, cells_of_bound: int = 1) -> Cells:
    """The cells of a law, refused unless weights, tails and spans are some."""
    n, cells, r, spike = law["cells_per_shift"], law["weights"], law["decay"], law["spike"]
    spans, wide = law["spans"] or [1] * len(cells), bool(law["spans"])
    ends = list(accumulate(spans))
    if n < 1 or n > (2**29 if wide else len(cells) + 100) or cells_of_bound > 10**5:
        raise Refused("more shifts than the law has use for")
    if min(cells) < 0 or spike < 0 or not 0 <= r < 1 or (r and ends[-1] < 2 * n) or len(spans) != len(cells):
        raise Refused("weights that are none")
    torn = any(v < 1 or v & (v - 1) for v in spans) or (r and {n, ends[-1] - n} - {*ends})
    if torn or (wide and len(spans) > 2000):
        raise Refused("spans that are not powers of two, or do not fit the tails")
    first, last = (bisect_right(ends, n), len(ends) - bisect_right(ends, ends[-1] - n)) if r else (n, n)
    # The first and the last n cells are repeated further out, times r, r², …: so are the sums over them.
    total = sum(cells) + spike + (sum(cells[:first]) + sum(cells[-last:])) * (r / (1 - r))
    if total <= 0:
        raise Refused("weights that are none")
    return Cells(spans, ends, first, last, Fraction(total))


def largest_excess(law: Json, held: Cells, low: Fraction, account: Account) -> Fraction:
    """The largest Σ [p − e^ε q]₊ of a shift, in the weights' unit; e^ε from below."""
    n, cells, r, spike = law["cells_per_shift"], law["weights"], law["decay"], law["spike"]
    scale, up, down = r.denominator**2, low.numerator, low.denominator
    bits = low.numerator.bit_length() + scale.bit_length() + max(cells).bit_length()
    if law["spans"]:
        outer = held.first + held.last if r else 0
        account.takes(16 * (len(cells) + 2 * outer) * (len(cells) + 4 * outer), bits)
        return spans_excess(law, held.ends, held.spans, low) + int(spike)
    once, twice = int(scale * r), int(scale * r * r)
    left = [w * f for f in (twice, once) for w in cells[:n]] if r else [0] * 2 * n
    right = [w * f for f in (once, twice) for w in cells[-n:]] if r else [0] * 2 * n
    line = [*left, *(w * scale for w in cells), *right]
    account.takes(2 * n * len(line), bits)
    zero = r / (1 - r)

    def excess(k: int) -> Fraction:
        moved = [0] * max(0, -k) + line[max(0, k) :] + [0] * max(0, k)
        over = [max(a * down - b * up, 0) for a, b in zip(line, moved)][n : len(line) - n]
        return Fraction((sum(over) + (sum(over[:n]) + sum(over[-n:])) * zero) / (down * scale) + spike)

    return max(excess(k) for k in range(-n, n + 1) if k)


def largest_quotient(law: Json, held: Cells, account: Account) -> Fraction | None:
    """The largest quotient of the densities of two cells that a shift brings over each other; None where it has no end.

    Of cells that repeat outwards times r, those next to the law's own stand for the others.
    """
    n, r = law["cells_per_shift"], law["decay"]
    if law["spike"] or not r:  # the spike, or the last cell, meets what has no mass
        return None
    runs = [(e - v, e, Fraction(w, v)) for w, v, e in zip(law["weights"], held.spans, held.ends)]
    left = [(a - n, b - n, h * r) for a, b, h in runs[: held.first]]
    right = [(a + n, b + n, h * r) for a, b, h in runs[-held.last :]]
    line = [*left, *runs, *right]
    account.takes(4 * len(line) ** 2, 200 + r.numerator.bit_length() + max(law["weights"]).bit_length())
    if min(h for *_, h in line) == 0:
        return None
    pairs = ((h, other) for a, b, h in line for c, e, other in line if c - b < n and a - e < n)
    return Fraction(max(h / other for h, other in pairs))


def named_noise(result: Json, moved: int, account: Account) -> None:
    """Noise of a named family on every coordinate: that it is for the changes of the design, and what it consumes."""
    design, noise = result["design"], result["mechanism"]
    if [proof[""] for proof in result["proofs"]].count("named-law-proof") != 1:
        raise Refused("noise of a family without one proof of it")
    if design["integer"] != (noise["law"]["name"] in WHOLE):
        raise Refused("noise for numbers of the other kind, whole or not")
    held, sensitivity, count = noise["sensitivity"], design["sensitivity"], noise["dimension"]
    if isinstance(held, dict):  # a change of c coordinates by the sensitivity is among those that it is for
        reach = held["linf"] is not None and held["linf"] >= sensitivity and held["each"] is None
        several = (held["l0"] or count) >= moved and held["l1"] is None and held["l2"] is None
        covered = reach and several
    else:
        covered = held >= sensitivity
    account.agrees("the noise is for every change of the design", covered and count == design["dimension"])
    account.agrees("it is added once, for everybody", noise["rounds"] == 1 == noise["sampling_rate"])
    with localcontext() as context:
        context.prec = PLACES
        additive(noise, design["privacy"], design["loss"], result["value"], account)
    proofs = proofs_of(result)
    bounds = [proofs[kind] for kind in ONE_NUMBER if kind in proofs]
    if count > 1:
        bound_of_several(result, proofs, moved, account)
    elif len(bounds) == 1 and design["dimension"] == 1:
        bound_of_alone(result, bounds[0], account)
    elif result["lower_bound"] is not None:
        raise Refused("a lower bound of one number without one proof of it")


def bound_of_alone(result: Json, stated: Json, account: Account) -> None:
    """The bound of every additive noise for one number."""
    design, least = result["design"], result["lower_bound"]
    if least is None or stated.get("cells", 1) > 10**5:
        raise Refused("a proof of no lower bound, or of more cells than it has use for")
    account.takes(work(stated), 400)
    bound = bound_of_one(stated, design, design["privacy"])
    noise = "whole-number noise" if design["integer"] else "noise for a real-valued query"
    account.bounds(f"no additive {noise} costs less than {least!r}", least, bound)


def work(stated: Json) -> int:
    """Steps of the check of a bound."""
    return (
        100 * int(stated.get("periods", 0))
        + 20 * len(stated.get("rows", ()))
        + 20 * int(stated.get("side", 0))
    )


def bound_of_several(result: Json, proofs: Json, moved: int, account: Account) -> None:
    """The bound of one coordinate of several, from one number's; claimed where what the mean keeps follows from binomial laws."""
    stated, asked, loss = result["lower_bound"], result["design"]["privacy"], result["design"]["loss"]
    if stated is None:
        return
    claim, proof = f"no independent noise of one law costs less than {stated!r}", proofs.get("subset-bound")
    if proof is None:
        account.claimed(claim)
        return
    kept, mean, dual = proof["privacy"], proof["mean"], proof["dual"]
    if kept != asked and not implied(kept, asked, mean, moved, account):
        account.claimed(claim)
        return
    if not 1 <= mean <= moved or dual.get("cells", 1) > 10**5 or dual[""] not in ONE_NUMBER:
        raise Refused("a mean of more numbers than change, or a bound of another kind")
    account.takes(work(dual), 400)
    if result["design"]["integer"] and mean > 1:
        raise Refused("a mean of whole numbers, which is none")
    times = mean if loss == "squared" else 1
    bound = bound_of_one(dual, result["design"], kept, times)
    account.bounds(claim, stated, bound)


def implied(kept: Json, asked: Json, mean: int, moved: int, account: Account) -> bool:
    """Whether the mean of so many numbers keeps this where all of them keep what is asked, of one point each."""
    (epsilon, delta), *others = points_of(kept)
    (whole, together), *more = points_of(asked)
    if others or more:
        return False
    if not delta and not together:
        return mean == 1 and Fraction(epsilon) * moved >= Fraction(whole)
    copies = Copies(min(moved // mean, MOST), whole, together, account)
    return bool(together and copies.n and copies.imply(epsilon, delta))


def bound_of_one(stated: Json, design: Json, privacy: Json, times: int = 1) -> Fraction:
    """The bound of noise for one number that keeps this, of `times` the loss."""
    loss, size, whole = design["loss"], changes(design), design["integer"]
    every = sorted(points_of(privacy))
    binding = [point for point in every if point[1] < 1] or every
    points = [(exp_bounds(Fraction(e))[1], Fraction(d)) for e, d in binding]
    if stated[""] not in ONE_NUMBER:
        raise Refused("a bound of another kind")
    return max(ONE_NUMBER[stated[""]](stated, loss, points, size, times, whole), Fraction(0))


ONE_NUMBER = {"staircase-dual": staircase_bound, "lattice-bound": noise_bound}


def spans_excess(law: Json, ends: list[int], spans: list[int], growth: Fraction) -> Fraction:
    """The largest ∫[f(t) − e^ε f(t + d)]₊ over real shifts |d| ≤ n, without the spike, in the weights' unit.

    Each pair of spans adds a constant times its overlap, whose slope in d changes where ends meet.
    """
    n, r, count = law["cells_per_shift"], law["decay"], ends[-1]
    heights = [(e - v, e, Fraction(w, v)) for w, v, e in zip(law["weights"], spans, ends)]
    line: list[Json]
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
    bends: Counter[Json] = Counter({-n: 0, n: 0})
    for a, b, h, times in here:
        for c, e, other in merged:
            over = (h - growth * other) * times
            if over > 0 and c - b < n and e - a > -n:
                for place, sign in ((c - b, 1), (c - a, -1), (e - b, -1), (e - a, 1)):
                    bends[place] += sign * over
    most: Json = 0
    value: Json = 0
    slope: Json = 0
    for place, after in pairwise(sorted(bends)):
        slope += bends[place]
        value += slope * (after - place)
        most = max(most, value) if abs(after) <= n else most
    return Fraction(most)

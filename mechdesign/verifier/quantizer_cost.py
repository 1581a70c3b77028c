"""Quantizers: the masses and moments of the prior, and the expected or worst loss of a law, from above."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate, pairwise
from operator import mul
from typing import TypeAlias

from mechdesign.verifier.quantizer_bound import dual_bound
from mechdesign.verifier.reading import NEAR, Account, Json, Refused

ENCLOSED = ("norm", "truncnorm", "beta")
"""Laws whose stated moments are proved bounds; those of others are floats."""
UNIT = 1 << 160  # masses and moments are stored in units of 1/UNIT

Span: TypeAlias = tuple[Fraction, Fraction]
Bounds: TypeAlias = tuple[Fraction, Fraction]
Cell: TypeAlias = tuple[Span, Fraction, Fraction, Fraction]


def known(prior: Json) -> Json:
    """A density constant on pieces (start, stop, mass) and point masses (x, mass); None where they are not rational."""
    if prior[""] == "prior-samples":
        counts = Counter(map(Fraction, prior["samples"]))
        return [], [(x, Fraction(n, counts.total())) for x, n in sorted(counts.items())]
    pieces: list[Json]
    law, cut = prior["law"], prior[""] != "prior-law"
    if law["name"] == "uniform":
        given = {"loc": 0, "scale": 1, **law, **dict(zip(("loc", "scale"), law["args"]))}
        pieces = [(Fraction(given["loc"]), Fraction(float(given["loc"]) + given["scale"]), 1)]
    elif law["name"] == "histogram":
        contents, edges, density = law["args"]
        edges = [Fraction(law["loc"]) + Fraction(law["scale"]) * Fraction(x) for x in edges]
        masses: list[Json] = [
            Fraction(n) * (b - a if density else 1) for n, (a, b) in zip(contents, pairwise(edges))
        ]
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

    def __init__(self, prior: Json, stated: Json, account: Account) -> None:
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
    def pairs(flat: list[int]) -> list[Bounds]:
        return [(Fraction(a, UNIT), Fraction(b, UNIT)) for a, b in zip(flat[::2], flat[1::2])]

    def over(self, spans: list[Span], name: str) -> list[list[Bounds]]:
        if self.exact is not None:
            return [self.integral(u, v) for u, v in spans]
        bounds = self.pairs(self.stated[name])
        if len(bounds) != 3 * len(spans):
            raise Refused(f"moments stated of other {name}")
        return [bounds[k : k + 3] for k in range(0, len(bounds), 3)]

    def integral(self, u: Fraction, v: Fraction) -> list[Bounds]:
        total = [Fraction(0)] * 3
        for a, b, mass in self.exact[0]:
            if mass and max(a, u) < min(b, v):
                s, t = (max(a, u) - u) / (v - u), (min(b, v) - u) / (v - u)
                height = mass * (v - u) / (b - a)
                total = [n + height * (t**k - s**k) / k for k, n in enumerate(total, 1)]
        return [(n, n) for n in total]


def quadratics(segments: Json, bins: list[Fraction], loss: Json) -> Iterator[Cell]:
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
            counted = [(mass[k], moment[k], moment[-1], square) for mass, moment, square in sums]
            parts = [[Fraction(n, d) for n, d in zip(part, units)] for part in counted]
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


def expected(cells: list[Cell], moments: Moments) -> Fraction:
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


def stated_moments(cells: Json, spans: Json) -> Json:
    """Masses and moments that the proof of the value states on cells and the one of the bound on spans."""
    held = cells or spans  # point masses stand in both
    return held and {**held, "cells": (cells or held)["cells"], "spans": (spans or held)["spans"]}


def costs(result: Json, account: Account, segments: Json, rho: Fraction) -> None:
    design, bins, proofs = (
        result["design"],
        result["mechanism"]["law"]["bins"],
        {p[""]: p for p in result["proofs"]},
    )
    value, bound, loss, prior = result["value"], result["lower_bound"], design["loss"], design["prior"]
    cap, worst = design.get("max_mse"), design.get("objective") == "worst"
    upper, lower = (proofs.get(f"quantizer-{name}") or {} for name in ("value-proof", "dual-bound"))
    duals, stated = lower.get("duals"), stated_moments(upper.get("moments"), lower.get("moments"))
    own = (duals or {}).get("outputs")
    kind = "any" if own and (duals or {})["between"] else "the searched"
    among = f" with {kind} outputs from {own[0]:.6g} to {own[-1]:.6g}" if own else ""
    least = f"no mechanism{among} does better than {bound!r}"
    unknown = value is None or loss["function"] is not None  # what a function says is not in the file
    if unknown:
        account.claimed(f"the value is {result['value']:.12g}", math.isfinite(result["value"]))
    if bound is not None and (unknown or duals is None):
        account.claimed(least, bound <= result["value"])
    needed = cap is not None or not (unknown or worst)
    moments: Json = Moments(prior, stated, account) if needed else None
    exact = moments is None or moments.exact is not None
    if moments is not None and exact:
        low, high = segments[0][0], segments[0][-1]
        mass = [*moments.exact[0], *((x, x, m) for x, m in moments.exact[1])]
        near = (high - low) * Fraction(NEAR) / 1000
        inside = all(m == 0 or (low - near <= a and b <= high + near and m > 0) for a, b, m in mass)
        account.agrees("the prior is a law on the inputs", inside and sum(m for *_, m in mass) == 1)
    given = "" if exact else ", given the masses and moments stated"
    floats = 0 if exact or prior["law"]["name"] in ENCLOSED else NEAR
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
    if bound is not None and duals is not None:
        if duals["cap_price"] and (cap is None or worst):
            raise Refused("a price of a cap that is not there")
        bias, moments = Fraction(design.get("max_bias", 0.0)), None if worst else moments
        ends = segments[0][0] + bias, segments[0][-1] - bias
        found = dual_bound(duals, bins, ends, bias, rho, loss, moments)
        found -= Fraction(duals["cap_price"]) * Fraction(cap or 0)
        loose = floats * (1 + min(float(rho), 1e300) / 1000) * abs(bound)
        account.bounds(least + given * (moments is not None), bound, found, Fraction(loose))

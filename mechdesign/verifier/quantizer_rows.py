"""Quantizers on listed inputs: the lower bound by rows and multipliers of the table that they are there.

Between the inputs x_1 < … < x_n probabilities are interpolated: p(x, i) = Σ_k h_k(x) P[k, i], h_k the hat function of x_k. So the expected loss is
affine in the table, with the coefficients ∫ h_k(x) ℓ(B_i − x) dF; of the square, B² − 2Bx is charged to them, and x², the same for all outputs, is a
constant. Masses and moments of the prior are taken such that the cost falls. The largest loss is no less than the mean over any law on finitely many
inputs. A mechanism on a continuum is one on some inputs of it, too, where it loses as much at each of these.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise

from mechdesign.verifier.prior_moments import Bounds, Moments
from mechdesign.verifier.quantizer_bound import below
from mechdesign.verifier.reading import Account, Json, Refused, exp_bounds
from mechdesign.verifier.table import Own, Point, bound

Weighted = tuple[Fraction, Fraction, list[Bounds]]
"""A stretch of inputs, or one input twice, with bounds of its mass and moments."""


def rows_bound(design: Json, proof: Json, moments: Moments | None, account: Account) -> Fraction:
    """What the multipliers prove; `moments` of the prior, None for the worst case."""
    ends, bins = list(map(Fraction, design["input_range"])), list(map(Fraction, design["bins"]))
    if (design["inputs"] is None) != (proof["inputs"] is not None) or (design["inputs"] is None and moments):
        raise Refused("a bound by listed inputs, which the question has not")
    x = list(map(Fraction, design["inputs"] or proof["inputs"]))
    if len(x) < 2 or [x[0], x[-1]] != ends or any(b <= a for a, b in pairwise(x)):
        raise Refused("inputs that are not of the range")
    places, weights = list(map(Fraction, proof["places"] or [])), proof["weights"]
    law: list[Weighted] = [(place, place, [(weight, weight)]) for place, weight in zip(places, weights)]
    known = places if design["inputs"] is not None else [place for place in places if place in x]
    inside = len(known) == len(places) and all(x[0] <= place <= x[-1] for place in places)
    if len(places) != len(weights) or not inside or min(weights, default=0) < 0 or sum(weights) > 1:
        raise Refused("weights of inputs that are none")
    if moments is not None:
        if law:
            raise Refused("weights of inputs where the prior has them")
        spans = [*pairwise(sorted({*x, *(b for b in bins if x[0] < b < x[-1])}))]
        law = [(u, v, masses) for (u, v), masses in zip(spans, moments.over(spans, "cells"), strict=True)]
        law += [(place, place, [mass]) for place, mass in moments.atoms]
    account.takes(80 * len(law) * len(bins), 400)
    costs, constant = charges(bins, x, law, design["loss"])
    table = {"inputs": x, "outputs": bins, "cost": [c for row in costs for c in row]}
    means = [
        Own("unbiased", True, [(k * len(bins) + i, b) for i, b in enumerate(bins)], -place)
        for k, place in enumerate(x)
    ]
    return bound(table, proof, means, [compared(design["privacy"], x, account)], account) + constant


def compared(privacy: Json, x: list[Fraction], account: Account) -> Point:
    """Pairs of inputs with their ratios: of a metric neighbours, which imply the others."""
    n, metric = len(x), privacy.get("metric")
    pairs = [(a, b) for a in range(n) for b in range(n) if (abs(a - b) == 1 if metric else a != b)]
    power = {"absolute": 1, "squared": 2}.get(metric, 0)
    apart = [abs(x[a] - x[b]) ** power for a, b in pairs]
    account.takes(400 * len(set(apart)), 400)
    ends = {d: exp_bounds(Fraction(privacy["epsilon"]) * d, 160) for d in set(apart)}
    delta = Fraction(privacy.get("delta", 0.0))
    alike = metric is None and not delta and n > 2
    return Point("privacy", pairs, delta, [ends[d] for d in apart], alike, n)


def charges(
    bins: list[Fraction], x: list[Fraction], law: Iterable[Weighted], loss: Json
) -> tuple[list[list[Fraction]], Fraction]:
    """What each probability costs, from below, and the constant."""
    first, second = Fraction(loss["absolute"]), Fraction(loss["squared"])
    if min(first, second) < 0:
        raise Refused("a loss that falls with the error")
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

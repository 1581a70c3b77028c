"""Quantizers: the expected or the worst loss of a law, from above, and the claims of value, cap and lower bound.

Theorem: for the loss w₁|t| + w₂t² the expected loss at an input x,

    E ℓ(B − x) = w₁ (E B − x − 2 E[B; left] + 2x P[left]) + w₂ (E B² − 2x E B + x²),

*left* being the outputs up to x, is a quadratic in x between neighbouring knots and outputs, as the row is affine there. So the
prior's moments of order 0, 1, 2 on these cells give its mean (`mechdesign.verifier.prior_moments`), and ends and peaks of the
quadratics its largest value.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate, pairwise
from operator import mul
from typing import NamedTuple

from mechdesign.verifier.prior_moments import Moments, Rational, Span, rational_prior
from mechdesign.verifier.quantizer_bound import dual_bound
from mechdesign.verifier.quantizer_laws import Segments
from mechdesign.verifier.quantizer_rows import rows_bound
from mechdesign.verifier.reading import NEAR, Account, Json, Refused, proofs_of


class Cell(NamedTuple):
    """Ends of a cell, and the expected loss there as a + bt + ct², t from 0 to 1."""

    span: Span
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


def loss_cells(law: Segments, bins: list[Fraction], loss: Json, account: Account) -> Iterator[Cell]:
    """The cells between knots and outputs."""
    first, second = Fraction(loss["absolute"]), Fraction(loss["squared"])
    if min(first, second) < 0:
        raise Refused("a loss that falls with the error")
    unit = math.lcm(*(b.denominator for b in bins))
    places = [int(b * unit) for b in bins]
    account.takes(4 * sum(map(len, law.rows)), law.common.bit_length() + 2 * unit.bit_length())
    denominators = law.common, law.common * unit, law.common * unit, law.common * unit**2
    for (start, end), *ends in zip(pairwise(law.knots), law.rows[::2], law.rows[1::2]):
        sums = []
        for row in ends:
            moments = list(map(mul, places, row))
            square = sum(map(mul, places, moments)) if second else 0
            sums.append((list(accumulate(row, initial=0)), list(accumulate(moments, initial=0)), square))
        inside = bins[bisect_right(bins, start) : bisect_left(bins, end)]
        account.divides(10 * (1 + len(inside)), law.common.bit_length())
        for u, v in pairwise([start, *inside, end]):
            left = bisect_right(bins, u)  # so many outputs are on the left
            counted = [(mass[left], moment[left], moment[-1], square) for mass, moment, square in sums]
            parts = [[Fraction(n, d) for n, d in zip(part, denominators)] for part in counted]
            at_u, at_v = ([p + (q - p) * (x - start) / (end - start) for p, q in zip(*parts)] for x in (u, v))
            width, (mass, moment, mean, square) = v - u, at_u
            d_mass, d_moment, d_mean, d_square = (q - p for p, q in zip(at_u, at_v))
            yield Cell(
                (u, v),
                first * (mean - u - 2 * moment + 2 * u * mass) + second * (square - 2 * u * mean + u * u),
                first * (d_mean - width - 2 * d_moment + 2 * (u * d_mass + width * mass))
                + second * (d_square - 2 * (u * d_mean + width * mean - u * width)),
                2 * first * width * d_mass + second * (width * width - 2 * width * d_mean),
            )


def expected(cells: list[Cell], moments: Moments) -> Fraction:
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
    """Masses and moments that the proof of the value states on cells and the one of the bound on spans."""
    held = cells or spans  # point masses stand in both
    if cells and spans and (cells["masses"] != spans["masses"] or cells["spans"] or spans["cells"]):
        raise Refused("two proofs that state other point masses, or moments that neither needs")
    return held and {**held, "cells": (cells or held)["cells"], "spans": (spans or held)["spans"]}


def prior_fits(prior: Rational, law: Segments) -> bool:
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
    of_value, of_bound = proofs.get("quantizer-value-proof", {}), proofs.get("quantizer-dual-bound", {})
    duals = of_bound.get("duals")
    stated = stated_moments(of_value.get("moments"), of_bound.get("moments"))
    biased = "within the bias allowed" if design.get("max_bias") else "unbiased"
    least = f"no mechanism with {outputs_of(duals)}, {biased}, costs less than {bound!r}"
    unknown = loss["function"] is not None  # what a function says is not in the file
    if unknown:
        account.claimed(f"the value is {value:.12g}", math.isfinite(value))
    by_rows = bound is not None and "metric-rows" in proofs and not unknown
    if bound is not None and duals is None and not (unknown or by_rows) and "metric-bound" not in proofs:
        raise Refused("a lower bound without multipliers")
    if bound is not None and (unknown or duals is None) and not by_rows:
        account.claimed(least, bound <= value)
    if unknown and cap is None:
        return
    if (known := rational_prior(prior)) is not None:
        account.agrees("the prior is a law on the inputs", prior_fits(known, law))
    if worst and cap is None:
        if stated is not None:
            raise Refused("moments are stated where nothing is integrated")
        moments = None
    else:
        moments = Moments(prior, stated, account)
    if cap is not None and moments is not None:
        cells = list(loss_cells(law, bins, {"absolute": 0, "squared": 1}, account))
        claim = f"mean squared error at most {cap!r}{moments.given}"
        account.bounds(claim, expected(cells, moments), cap, moments.floats * cap)
    if unknown:
        return
    cells = list(loss_cells(law, bins, loss, account))
    averaged = None if worst else moments
    if averaged is None:
        account.bounds(f"worst loss at most {value!r}", max(cell.largest for cell in cells), value)
    else:
        claim = f"mean loss at most {value!r}{averaged.given}"
        account.bounds(claim, expected(cells, averaged), value, averaged.floats * value)
    given, room = (
        ("", 0) if averaged is None or bound is None else (averaged.given, averaged.room(bound, ratio))
    )
    if by_rows:
        account.bounds(
            least + given, bound, rows_bound(design, proofs["metric-rows"], averaged, account), room
        )
    elif bound is not None and duals is not None:
        grid, own = design.get("bins"), [Fraction(b) for b in duals["outputs"] or bins]
        listed = isinstance(grid, dict) and "step" in grid and not duals["between"]
        if listed and not (len(own) > steps_of(grid) and on_grid(grid, own)):
            raise Refused("a lower bound for other outputs than the question has")
        if duals["cap_price"] and (cap is None or worst):
            raise Refused("a price of a cap that is not there")
        bias = Fraction(design.get("max_bias", 0.0))
        ends = law.knots[0] + bias, law.knots[-1] - bias
        found = dual_bound(duals, bins, ends, bias, ratio, loss, averaged, account)
        found -= Fraction(duals["cap_price"]) * Fraction(cap or 0)
        account.bounds(least + given, bound, found, room)


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

"""Optimal noise for one number: lower bounds that hold for any additive noise, by weak duality.

*Several numbers.* Of c that change each is ε/c-private if all of them are ε-private (their largest losses add up), and the mean of m of them,
the others left alone, keeps the (ε, δ) of all of them. That mean T̄ is noise for one number, of the same sensitivity: E|T̄| ≤ E|T|, and
E T² = m E T̄² of symmetric laws, which suffice, as a change of all signs keeps privacy and cost. So a bound for one number, of m t² under the
squared loss, is one for each of several. `times` is that m.
"""

from __future__ import annotations

import math
from fractions import Fraction

from mechdesign.verifier.reading import Json, Refused


def staircase_bound(
    stated: Json, loss: str, delta: Fraction, growth: Fraction, sensitivity: Fraction, times: int = 1
) -> Fraction:
    """Weak duality with G(t) = (ℓ(t) − λ + G(t + 1))/e^ε, 0 from `periods` on (0 of them: for ever), at the shift 1.

    What is missing on [0, 1) below the root γ of G is sent to what G leaves above it: noise/optimal/staircase.py says why.
    """
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
    low, high = Fraction(0), Fraction(1)
    while high - low > low / 2**200 and c[0] < 0:
        middle = (low + high) / 2
        low, high = (middle, high) if c[0] + c[1] * middle + c[2] * middle**2 < 0 else (low, middle)
    left, right, whole = (sum(v * x ** (k + 1) / (k + 1) for k, v in enumerate(c)) for x in (low, high, 1))
    sent = (high - low) * -(c[0] + c[1] * low + c[2] * low**2) - left
    if (c[0] < 0 and (right >= whole or sent > r * (whole - right))) or min(lowest, c[0] + c[1] + c[2]) < 0:
        return Fraction(0)
    charge = -c[0] / r * (1 + high * sum(c) / (whole - right)) if c[0] < 0 else 0
    return Fraction((level - 2 * delta * (highest + charge)) * unit)


def lattice_bound(
    stated: Json,
    loss: str,
    delta: Fraction,
    growth: Fraction,
    sensitivity: Fraction,
    times: int = 1,
    counts: bool = False,
) -> Fraction:
    """Weak duality: min_j (c_j + Σ_s ψ_s(j) − e^ε ψ_s(j − s)) − δ Σ_s μ_s, averaged with the mirror image if asked.

    c is a lower bound of the loss of noise rounded at random to the lattice; of noise of `counts`, on the whole numbers, the loss itself.
    """
    n, psi, spent = stated["cells"], stated["psi"], 0
    half = (len(psi[0]) - 1) // 2 if psi else 0
    step, reach = sensitivity / n, half + n + 1
    offset = 0 if counts else step**2 / 4
    plus: list[Json] = [0] * (2 * reach + 1)
    minus = list(plus)
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

    def cost(j: int) -> Fraction:
        return times * Fraction(abs(j) * step if loss == "absolute" else (j * step) ** 2 - offset)

    gains = (a - growth * b if a or b else 0 for a, b in zip(plus, minus))
    least = min(cost(j) + g / scale for j, g in enumerate(gains, start=-reach))
    return Fraction(least - delta * spent / scale)

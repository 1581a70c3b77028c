"""Running totals from a few buffers: the shift of a release, its loss, and what no Toeplitz strategy costs less than; all in integers.

The strategy has the coefficients 1, Σ ω_i p_i^(k−1). With ω > 0 and Σ ω_i/p_i ≤ 1 they are positive and fall: of counts at least b apart 0, b, 2b, … consume most, with one
sign. In a release rounding adds less than r = 1 + Σ ω_i/(1 − p_i) steps to what each output shifts by: floors differ by less than 1, and what enters
a state decays by p. So outputs shift by m ‖C u‖ + r √n steps, m = ⌈a/h⌉.

**Loss.** b of 1/((1 − z) c(z)) comes from the recursion g = −Σ ω s, s ← p s + g, in fixed point. Its matrix is, up to a diagonal one of √ω, diag(p) − √ω√ωᵀ, which lies between −1
and 1 as Σ ω ≤ 1: what rounding adds to s grows by at most a unit a step in that norm, so that b_t is off by (t + 1)² units.

**Lower bound.** As Σ c_i b_(t−i) = 1, (Σ y)² ≤ ‖c‖² Σ w b² ‖H W^(−½)‖² for every y ≥ 0 and H = (y_(i+j)), and ‖H W^(−½)‖² ≤ max (HHx)_i/(w_i x_i) for
every x > 0 (Collatz and Wielandt). For the largest error, w = 1, the best y has Hh = h, h the coefficients of (1 − z)^(−½), and Σ y = Σ h². H x is one product of long integers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from operator import mul

from mechdesign.verifier.allocation import smallest_beyond
from mechdesign.verifier.arithmetic import root_above
from mechdesign.verifier.gaussian import budget_is_kept
from mechdesign.verifier.reading import Account, Json, Refused

POLE_BITS, BITS = 62, 256
UNIT = 1 << BITS
SHAPE = (0.0, -0.18898, -0.35979, -0.18856, -0.12155, -0.06748, -0.02846)
"""Chebyshev coefficients of log((2t + 1) y_t) over t/n: any would prove a bound."""
MOST_BUFFERS = 8
STEPS, NUMBER = 10, 48
MOST_STEPS = 10_000
"""Of streams whose total's lower bound is proved here."""


def stream(result: Json, account: Account) -> None:
    """Running totals of counts of which some change, at least b apart."""
    design, law = result["design"], result["mechanism"]
    if law[""] != "buffered-noise":
        raise Refused("another mechanism than the design's")
    fits(law, account)
    steps, often = design["size"], design["participation"]
    asked = law["size"] == steps and len(law["poles"]) <= design["buffers"] <= MOST_BUFFERS
    account.agrees("steps and buffers are those of the design", asked)
    apart = often["apart"] or often["every"] or 0
    if not (apart >= 1 and 1 <= often["times"] <= -(-steps // apart)):
        raise Refused("steps that nobody can take part in")
    if not all(holds for *_, holds in account.rows):
        return
    budget_is_kept(design["privacy"], law["budget"], account)
    account.takes(often["times"] * len(law["poles"]) ** 2, BITS)
    moved = shift(law, Fraction(design["most"]), often["times"], apart)
    spent = (moved * Fraction(law["step"]) / Fraction(law["deviation"])) ** 2
    account.bounds("no change consumes more than the budget, rounding counted", spent, law["budget"])
    largest, stated = design["loss"] == "largest", result["value"]
    account.takes(steps * len(law["poles"]))
    cost = loss(law, largest) * Fraction(law["deviation"]) ** 2
    account.bounds(f"the {design['loss']} error is at most {stated:.12g}", cost, stated)
    if result["lower_bound"] is None:
        return
    claim = f"no Toeplitz strategy costs less than {result['lower_bound']:.12g}"
    if often["times"] > 1:
        raise Refused("a lower bound of counts of which several change")
    if not largest and steps > MOST_STEPS:
        account.claimed(claim)
        return
    account.takes(steps if largest else 200 * steps)
    least = least_largest(steps) if largest else least_total(steps)
    most = smallest_beyond(design["privacy"])
    account.bounds(claim, result["lower_bound"], least * Fraction(design["most"]) ** 2 / most)


def fits(law: Json, account: Account) -> None:
    """That coefficients are positive and fall, and the lattice is one."""
    poles, weights = law["poles"], law["weights"]
    positive = len(poles) == len(weights) and all(0 < p < 1 << POLE_BITS for p in poles) and min(weights) > 0
    falls = positive and sum(map(Fraction, weights, poles)) <= 1
    falls = falls and len(poles) <= MOST_BUFFERS and poles == sorted({*poles}, reverse=True)
    account.proved("the strategy's coefficients are positive and fall", falls)
    fine = math.frexp(law["step"])[0] == 0.5 and 2.0**40 <= law["deviation"] / law["step"] <= 2.0**52
    account.agrees("the step is a power of two", fine)
    account.agrees("there is noise", 0 < law["deviation"] < math.inf and 0 < law["budget"] < math.inf)


def up(x: int) -> int:
    """A product in units, from above."""
    return -(-x >> BITS)


def power(base: int, n: int) -> tuple[int, int]:
    """A power of a number in units, from below and above."""
    low = high = UNIT
    below = above = base
    while n:
        if n & 1:
            low, high = low * below >> BITS, up(high * above)
        below, above, n = below * below >> BITS, up(above * above), n >> 1
    return low, high


def summed(one: int, other: int, n: int) -> int:
    """The sum of n powers of a product, from above."""
    below = one * other >> BITS
    return -((power(below, n)[0] - UNIT) * UNIT // (UNIT - up(one * other)))


def shift(law: Json, most: Fraction, times: int, apart: int) -> Fraction:
    """How many steps releases of neighbours are apart, from above."""
    p, w = ([x << (BITS - POLE_BITS) for x in law[name]] for name in ("poles", "weights"))
    d, n = range(len(p)), law["size"]
    fall = [power(x, apart)[1] for x in p]
    late = [up(x * power(y, apart - 1)[1]) for x, y in zip(w, p)]
    state, seen, total = [UNIT] * len(p), [[0] * len(p) for _ in d], UNIT
    for _ in range(times - 1):
        total += up((UNIT + up(sum(map(mul, late, state)))) ** 2)
        seen = [[seen[i][j] + up(state[i] * state[j]) for j in d] for i in d]
        state = [UNIT + up(x * y) for x, y in zip(fall, state)]
    for i in d:
        for j in d:
            rest = n - (times - 1) * apart - 1
            both = up(seen[i][j] * summed(p[i], p[j], apart - 1))
            both += up(up(state[i] * state[j]) * summed(p[i], p[j], rest))
            total += up(up(w[i] * w[j]) * both)
    rounding = 1 + sum(Fraction(x, UNIT - y) for x, y in zip(w, p))
    moved = math.ceil(most / Fraction(law["step"]))
    return moved * root_above(Fraction(total, UNIT)) + rounding * root_above(Fraction(n))


def loss(law: Json, largest: bool) -> Fraction:
    """The sum of b_t², or of (n − t) b_t², from above."""
    poles, weights, n = law["poles"], law["weights"], law["size"]
    one = 1 << 128
    state, total, found = [one] * len(poles), one, 0
    for t in range(n):
        found += (abs(total) + (t + 1) ** 2) ** 2 * (1 if largest else n - t)
        new = -(sum(map(mul, weights, state)) >> POLE_BITS)
        state = [(p * s >> POLE_BITS) + new for p, s in zip(poles, state)]
        total += new
    return Fraction(found, one * one)


def least_largest(n: int) -> Fraction:
    """(Σ h_t²)², from below."""
    term = one = 1 << 128
    total = 0
    for t in range(1, n + 1):
        total += term
        term = term * (2 * t - 1) ** 2 // (2 * t) ** 2
    return Fraction(total, one) ** 2


def least_total(n: int) -> Fraction:
    """(Σ y)² / max (HHx)_i / ((n − i) x_i)."""
    root = [1.0]
    for t in range(1, n + 1):
        root.append(root[-1] * (1 - 0.5 / t))
    angles = [math.acos((2 * t + 1) / n - 1) for t in range(n)]
    shape = [math.fsum(c * math.cos(k * angle) for k, c in enumerate(SHAPE)) for angle in angles]
    y = scaled([math.exp(x) / (2 * t + 1) * 2.0**60 for t, x in enumerate(shape)])
    x = scaled([root[t] * root[n - t] * 2.0**60 for t in range(n)])
    for _ in range(STEPS):
        image = hankel(y, scaled(hankel(y, x)))
        x = scaled([(v << 64) // (n - i) for i, v in enumerate(image)])
    image = hankel(y, hankel(y, x))
    return Fraction(sum(y)) ** 2 / max(Fraction(v, (n - i) * old) for i, (v, old) in enumerate(zip(image, x)))


def scaled(values: list[float] | list[int]) -> list[int]:
    """Positive integers of `NUMBER` bits in proportion to values, nearly."""
    whole = [int(v) for v in values]
    bits = max(0, max(whole).bit_length() - NUMBER)
    return [max(v >> bits, 1) for v in whole]


def hankel(y: list[int], x: list[int]) -> list[int]:
    """Σ_j y_(i+j) x_j for every i, by one product of integers whose digits are y, backwards, and x."""
    n = len(y)
    width = (max(y).bit_length() + max(x).bit_length() + n.bit_length() + 7) // 8
    one, other = (
        int.from_bytes(b"".join(v.to_bytes(width, "little") for v in part), "little") for part in (y[::-1], x)
    )
    digits = (one * other).to_bytes(2 * n * width, "little")
    return [int.from_bytes(digits[k * width : (k + 1) * width], "little") for k in range(n - 1, -1, -1)]

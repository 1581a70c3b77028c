"""Vectors in a few bits under one budget: privacy, bias, bits, worst error, and the least error of any unbiased answer.

*Codes of which some are near.* Of M = 2^b codes k are near the input, whichever they are; one of them is sent with probability
E/t each, another with 1/t, t = kE + M − k, E ≤ e^ε rational. Two inputs' probabilities of a code differ by the factor E at most.

- Rotated simplex: codes are the vertices of a regular simplex in D dimensions, turned by a uniform rotation that both ends know; the
  k of largest inner product with the input are near. With T_k the mean sum of the k largest of M normals, the answer r v_J with
  r = t/((E − 1)c), c = (M/(M − 1))^½ T_k/E‖G_D‖, is unbiased, and its error is r² − 1 on the sphere. Vectors of a ball are first
  lifted to the sphere in D = d + 1 dimensions; the worst input then is 0 or of full length. The best k is taken.
- Sampled signs: b of d coordinates are each rounded to a sign at random; of the 2^b texts of signs those that differ in at most j
  places are near. A sign agrees with its answer a = (E − 1) Σ_{i≤j} C(b, i)(b − 2i)/(b t) on average; the error is d²/(b a²) at 0.

*The cap* (PrivUnit, Bhowmick, Duchi, Freudiger, Kapoor and Rogers 2018): points of the sphere whose inner product with the input is at least
t have E times the density of the others, whichever the input is.

*Sampled coordinates.* k of d coordinates are each sent through an unbiased quantizer of [−1, 1] that loses ε/k at most; the error
is Σ_j ((d/k) E M(x_j)² − x_j²), of which d times the largest term bounds the worst; in a ball also p + d max(h(t) − p t²), p ≥ 0.

Privacy is proved in rational numbers; errors and the least one (`mechdesign.verifier.vector_errors`) are recomputed in doubles.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from operator import mul

from mechdesign.verifier.quantizer import (
    increase,
    largest_bias,
    selection_fits,
    table_fits,
    whole,
    within_one_ratio,
)
from mechdesign.verifier.quantizer_laws import segments_of
from mechdesign.verifier.reading import Account, Json, NotCovered, Refused, exp_bounds
from mechdesign.verifier.vector_errors import box_error, cap_error, largest_normals, least, normal_length

ROOM = 1e-10
"""Relative, for the roundings of sums in doubles."""


def vectors(result: Json, account: Account) -> None:
    """Check a design for vectors, its mechanism, its error and its lower bound."""
    design, law, value, bound = (result[key] for key in ("design", "mechanism", "value", "lower_bound"))
    if [proof[""] for proof in result["proofs"]] != ["vector-proof"]:
        raise Refused("evidence other than one proof about vectors")
    dimension, epsilon, asked = design["dimension"], design["privacy"]["epsilon"], design["inputs"]
    if not 2 <= dimension <= 1 << 24 or not 1e-30 < epsilon <= 500:
        raise Refused("dimensions or a budget for which no vector mechanism is made")
    if design["bits"] is not None and not 1 <= design["bits"] <= 16:
        raise Refused("bits of which no vector mechanism is made")
    bits, error = mechanism(law, account)
    account.proved(
        "the budget of the mechanism is within the one stated", law["privacy"]["epsilon"] <= epsilon
    )
    account.proved("every input that is stated is one of the mechanism's", covers(design, law))
    turned = law.get("rotation", design["rotation"]) == design["rotation"]
    account.agrees("vectors are turned as stated", turned)
    if law[""] == "sampled-coordinates":
        account.agrees("the mechanism's limit of bits is the design's", law["bits"] == design["bits"])
    account.proved(
        "a vector takes no more bits than stated", design["bits"] is None or bits <= design["bits"]
    )
    claim, holds = f"the worst error is at most {value:.9g}", error <= value * (1 + ROOM)
    account.rows.append((claim, "claimed" if law.get("rotation") == "fast" else "recomputed", holds))
    if bound is not None:
        most = cap_error(dimension, epsilon)
        if asked == "box":
            most = max(most, box_error(dimension, epsilon))
        claim = f"no unbiased mechanism does better than {bound:.9g}"
        account.recomputed(claim, bound <= design["radius"] ** 2 * most)


def mechanism(law: Json, account: Account) -> tuple[int, float]:
    """The claims of privacy and bias; the bits of a vector, and the worst error."""
    if law[""] not in MECHANISMS:
        raise NotCovered(f"vectors by {law['']}")
    if not 2 <= law["dimension"] <= 1 << 24 or not 1e-100 <= law["radius"] <= 1e100:
        raise Refused("dimensions or lengths for which no vector mechanism is made")
    bits, error = MECHANISMS[law[""]](law, account)
    return bits, float(error * law["radius"] ** 2)


def covers(design: Json, law: Json) -> bool:
    """Whether inputs of the kind stated are inputs of the mechanism."""
    asked, taken = design["inputs"], law.get("inputs", "box")
    if law["dimension"] != design["dimension"]:
        return False
    if taken == "sphere":
        return asked == "sphere" and bool(law["radius"] == design["radius"])
    corner = math.sqrt(design["dimension"]) if asked == "box" and taken != "box" else 1.0
    return bool(law["radius"] >= design["radius"] * corner)


def near_codes(law: Json, near: int, account: Account) -> tuple[Fraction, Fraction]:
    """The probabilities of a near code and of another one, whose quotient is E."""
    power = exp_bounds(Fraction(law["privacy"]["epsilon"]))[0]
    total = near * power + (1 << law["bits"]) - near
    more, less = power / total, 1 / total
    whole = near * more + ((1 << law["bits"]) - near) * less == 1
    account.agrees("the probabilities of the codes sum to 1", whole and power > 1)
    account.proved(f"privacy loss at most {law['privacy']['epsilon']!r}", more <= power * less)
    return more, less


def rotated_simplex(law: Json, account: Account) -> tuple[int, float]:
    bits, dimension, ball = law["bits"], law["dimension"], law["inputs"] == "ball"
    working, m = int(dimension + ball), 1 << bits
    if not 1 <= bits <= 16 or m > working + 1 or law["inputs"] not in ("ball", "sphere"):
        raise Refused("more vertices than a simplex of these dimensions has")
    power = exp_bounds(Fraction(law["privacy"]["epsilon"]))[0]
    gain = float(power - 1)

    def worth(k: int) -> float:
        return float(largest_normals(m, k)[0] / (k * gain + m))

    low, high = 1, m - 1
    while low < high:  # it rises to one peak
        middle = (low + high) // 2
        low, high = (low, middle) if worth(middle) >= worth(middle + 1) else (middle + 1, high)
    more, less = near_codes(law, low, account)
    total, squares = largest_normals(m, low)
    closeness = math.sqrt(m / (m - 1)) * total / normal_length(working)
    factor = 1 / (float(more - less) * closeness)
    how = "recomputed" if law["rotation"] == "exact" else "claimed"
    account.rows.append(("unbiased over the rotation", how, factor > 0))
    on_sphere = factor**2 - 1
    if not ball:
        return bits, on_sphere
    near = m / (m - 1) * (squares - low / m) / working
    spread = 1 - float(less) * m / working - float(more - less) * near
    return bits, max(factor**2 * spread, on_sphere - factor**2 * spread / dimension)


def sampled_signs(law: Json, account: Account) -> tuple[int, float]:
    bits, dimension = law["bits"], law["dimension"]
    if not 1 <= bits <= min(16, dimension):
        raise Refused("more signs than coordinates, or than 16")
    power = exp_bounds(Fraction(law["privacy"]["epsilon"]))[0]

    def texts(flips: int) -> int:
        return sum(math.comb(bits, i) for i in range(flips + 1))

    def agreement(flips: int) -> Fraction:
        agreeing = sum(math.comb(bits, i) * (bits - 2 * i) for i in range(flips + 1))
        total = texts(flips) * (power - 1) + 2**bits
        return Fraction((power - 1) * agreeing / (bits * total))

    best = max(range((bits + 1) // 2), key=agreement)
    near_codes(law, texts(best), account)
    account.proved("unbiased over the coordinates that are sent", agreement(best) > 0)
    return bits, float(Fraction(dimension) ** 2 / (bits * agreement(best) ** 2))


def sampled_coordinates(law: Json, account: Account) -> tuple[int, float]:
    count, dimension, one = law["count"], law["dimension"], law["coordinate"]
    if count is None or one is None or not 1 <= count <= dimension or law["inputs"] not in ("box", "ball"):
        raise Refused("no number of coordinates, no quantizer of them, or inputs of another kind")
    segments, bins = segments_of(one["law"], account), one["law"]["bins"]
    on_range = segments.knots[0] == -1 and segments.knots[-1] == 1
    account.agrees(
        "a coordinate's law is one, on [-1, 1]",
        whole(segments, bins) and increase(segments, bins) and on_range and min(map(min, segments.rows)) >= 0,
    )
    account.agrees("the table shown is the law", table_fits(segments, bins, one) and selection_fits(one))
    budget = Fraction(law["privacy"]["epsilon"]) / count
    account.proved(
        f"privacy loss at most {law['privacy']['epsilon']!r}/{count} a coordinate",
        within_one_ratio(segments.rows, budget),
    )
    account.proved("every coordinate's answer is unbiased", largest_bias(segments, bins) == 0)
    bits = count * max((len(bins) - 1).bit_length(), 1)
    account.agrees(
        "a vector takes no more bits than the mechanism says", law["bits"] is None or bits <= law["bits"]
    )
    squares = [float(b * b) * dimension / count for b in bins]
    means = [math.fsum(map(mul, squares, row)) / segments.common for row in segments.rows]
    lines = list(zip(pairwise(map(float, segments.knots)), means[::2], means[1::2]))

    def largest(price: float) -> float:
        """max over t of (d/k) E M(t)² − (1 + price) t²."""
        found = []
        for (a, b), start, end in lines:
            slope = (end - start) / (b - a)
            t = min(max(slope / (2 * (1 + price)), a), b)
            found.append(start + slope * (t - a) - (1 + price) * t * t)
        return max(found)

    account.takes(200 * len(lines))
    worst = dimension * largest(0.0)
    if law["inputs"] == "ball":
        worst = min(worst, least(lambda price: price + dimension * largest(price), 0.0, 4 * max(squares)))
    return bits, worst


def cap(law: Json, account: Account) -> tuple[int, float]:
    """Real numbers that this law has no draws of: `release` refuses."""
    working = law["dimension"] + (law["inputs"] == "ball")
    if law["inputs"] not in ("ball", "sphere"):
        raise Refused("vectors that are of no ball and no sphere")
    power = exp_bounds(Fraction(law["privacy"]["epsilon"]))[0]
    account.proved(
        f"privacy loss at most {law['privacy']['epsilon']!r}, of points in real numbers", power > 1
    )
    account.claimed("points of the cap are drawn: in doubles, for simulation only")
    return 64 * working, math.inf


MECHANISMS = {
    "sphere-quantizer": rotated_simplex,
    "sampled-signs": sampled_signs,
    "sampled-coordinates": sampled_coordinates,
    "priv-unit": cap,
}

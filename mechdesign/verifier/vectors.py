"""Vectors in a few bits under one budget: privacy, bias, bits, worst error, and the least error of any unbiased answer.

*Codes of which some are near.* Of M = 2^b codes k are near the input, whichever they are; one of them is sent with probability
E/t each, another with 1/t, t = kE + M − k, E ≤ e^ε rational. Two inputs' probabilities of a code differ by the factor E at most.

- Rotated simplex: codes are the vertices of a regular simplex in D dimensions, turned by a uniform rotation that both ends know; the
  k of largest inner product with the input are near. With T_k the mean sum of the k largest of M normals, the answer r v_J with
  r = t/((E − 1)c), c = (M/(M − 1))^½ T_k/E‖G_D‖, is unbiased, and its error is r² − 1 on the sphere. Vectors of a ball are first
  lifted to the sphere in D = d + 1 dimensions; the worst input then is 0 or of full length. The best k is taken. In a rotation of another
  law the error is at most r² + 1, as the near vertices of a simplex have together no negative inner product with the input.
- Random directions: codes are M independent uniform directions in D dimensions that both ends know, or at D = 2 the corners of a
  regular polygon in a uniform rotation; as above with c the mean sum of the k largest inner products. Of j messages, each of a budget of ε/j
  and with directions of its own, the mean is the answer, and the error a j-th.
- Sampled signs: b of d coordinates are each rounded to a sign at random; of the 2^b texts of signs those that differ in at most j
  places are near. A sign agrees with its answer a = (E − 1) Σ_{i≤j} C(b, i)(b − 2i)/(b t) on average; the error is d²/(b a²) at 0.

*Sampled coordinates.* k of d coordinates are each sent through an unbiased quantizer of [−1, 1] that loses ε/k at most; the error
is Σ_j ((d/k) E M(x_j)² − x_j²), of which d times the largest term bounds the worst; in a ball also p + d max(h(t) − p t²), p ≥ 0.

*Largest normals.* With S the survival function of the normal law, φ its density, V beta-distributed with parameters (M − k, k) and
Z = Φ⁻¹(V), the k largest of M independent normals have the mean sum M E φ(Z), and squares of mean sum k + M E Z φ(Z) (by parts).
Both are ratios of smooth integrals that decay on both sides: sums over a fine grid give them.

*Largest inner products.* Let U be the inner product of a uniform direction with a unit vector, S(t) = P[U ≥ t], A(t) = E[U; U ≥ t], and P
beta-distributed with parameters (k, M − k). The k largest of M have the mean sums M E A of U, M E(S − A) of 1 − U and
(1 − 1/D) M E(S − t A) of 1 − U², all at t = S⁻¹(P) (by parts). With t = tanh x, P has a density ∝ sech^{D−1}(x) S^{k−1} (1 − S)^{M−k−1} of x, and
A ∝ sech^{D−1}(x). The trapezoidal rule of step h errs on such an integral by at most 2 e^{−2πa/h} (cos a)^{−(D−1)M}/(1 − e^{−2πa/h}) of it for every
a < π/2: by Poisson's formula, and as |cosh(x + ia)| ≥ cosh x cos a (D − 1 times M factors, with those under the integrals S and 1 − S = S(−x)).
At h = .7/((D − 1)M + 100)^½ this is less than 10⁻¹⁷. S and S − A are added up from cell to cell, S(0) = ½. Of a regular polygon the k nearest
corners are at offsets that together are uniform on an arc: the sums are those of (M/π) sin(πk/M).

*The cap* (Asi, Feldman, Talwar 2022). Let U be a coordinate of a uniform point of the unit sphere in D dimensions, and s the root of
(e^ε − 1) E(U − s)₊ = s. No unbiased ε-private answer to unit vectors has a smaller squared error than 1/s² − 1. With s = cos θ it is
tan² θ, and E(U − s)₊ is C ∫₀^θ (cos t − cos θ) sin^{D−2} t dt, C = Γ(D/2)/(√π Γ((D−1)/2)).

*The corners of a box.* Let an ε-private answer move the mean of a uniform corner of {±1}^d by at most s in length, and any one
coordinate by at most tanh(ε/2). No unbiased one has a smaller error at all corners than d²/s² − d. For ε ≤ log 3, s = tanh(ε/2);
beyond, every t gives an s by s(s − t)² = (4/27)(e^ε − 1) E(G − t)₊³, G normal, and every p ≥ 2 one by
s^p = ((e^ε − 1)/2) E|G|^p (p − 1)^{p−1} / p^p; the least is taken.

Privacy is proved in rational numbers; errors and the least one are recomputed in doubles.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from itertools import pairwise
from operator import mul
from typing import TypeAlias

from mechdesign.verifier import quantizer
from mechdesign.verifier.arithmetic import GAUSS, between, exp_bounds, integral, least, peak
from mechdesign.verifier.reading import Account, Json, NotCovered, Refused, refuse

ROOM = 1e-11
"""Relative, for the roundings of sums in doubles."""
MANY = 10_000
"""Coordinates from which, where no rotation is asked for, a fast one may be taken."""


def vectors(result: Json, account: Account) -> None:
    """Check a design for vectors, its mechanism, its error and its lower bound."""
    design, law, value, bound = (result[key] for key in ("design", "mechanism", "value", "lower_bound"))
    dimension, epsilon, asked = design["dimension"], design["privacy"]["epsilon"], design["inputs"]
    if law[""] not in MECHANISMS:
        raise NotCovered(f"vectors by {law['']}")
    bits, error = MECHANISMS[law[""]](law, account)
    error = float(error * law["radius"] ** 2)
    account.at_most(
        "the budget of the mechanism is within the one stated", law["privacy"]["epsilon"], epsilon
    )
    account.proved("every input that is stated is one of the mechanism's", covers(design, law))
    turned = law.get("rotation") in (None, design["rotation"] or "exact") or (
        design["rotation"] is None and dimension >= MANY
    )
    account.agrees("vectors are turned as stated", turned)
    if law[""] == "sampled-coordinates":
        account.agrees("the mechanism's limit of bits is the design's", law["bits"] == design["bits"])
    account.at_most("a vector takes no more bits than stated", bits, design["bits"] or math.inf)
    account.at_most(f"the worst error is at most {value:.9g}", error, value * (1 + ROOM), "recomputed")
    if bound is not None:
        most = cap_error(dimension, epsilon)
        if asked == "box":
            most = max(most, box_error(dimension, epsilon))
        claim = f"no unbiased mechanism does better than {bound:.9g}"
        # doubles lose less
        account.at_most(claim, bound, design["radius"] ** 2 * most * (1 - 1e-10), "recomputed")


def covers(design: Json, law: Json) -> bool:
    """Whether inputs of the kind stated are inputs of the mechanism."""
    asked, taken = design["inputs"], law.get("inputs", "box")
    if law["dimension"] != design["dimension"]:
        return False
    if taken == "sphere":
        return asked == "sphere" and bool(law["radius"] == design["radius"])
    corner = math.sqrt(design["dimension"]) if asked == "box" and taken != "box" else 1.0
    return bool(law["radius"] >= design["radius"] * corner)


def power_of(law: Json) -> Fraction:
    """E, a lower bound of e^ε, or of e^{ε/j} for each of j messages."""
    return exp_bounds(Fraction(law["privacy"]["epsilon"]) / law.get("messages", 1))[0]


def near_codes(law: Json, near: int, account: Account) -> tuple[Fraction, Fraction]:
    """The probabilities of a near code and of another one, whose quotient is E."""
    power = power_of(law)
    total = near * power + (1 << law["bits"]) - near
    more, less = power / total, 1 / total
    off = abs(near * more + ((1 << law["bits"]) - near) * less - 1)
    account.agrees("the probabilities of the codes sum to 1", off == 0 and power > 1, -off)
    share = f", of {law['messages']} messages together" if law.get("messages", 1) > 1 else ""
    account.at_most(f"privacy loss at most {law['privacy']['epsilon']!r}{share}", more / less, power)
    return more, less


def of_codes(law: Json, account: Account) -> tuple[int, float]:
    """Vertices of a simplex or random directions: as many are near as have the largest sum of inner products over kE + M − k, which rises to one peak."""
    dimension, ball, messages = law["dimension"], law["inputs"] == "ball", law.get("messages", 1)
    working, m, power = int(dimension + ball), 1 << law["bits"], power_of(law)
    turned = law[""] == "sphere-quantizer"
    sums, known = (simplex, "rotation") if turned else (directions, "directions")
    refuse(turned and m > working + 1, "more vertices than a simplex of these dimensions has")
    refuse(messages * m * working > 1 << 27 and not turned, "more directions than an encoder draws")
    near = peak(1, m - 1, lambda k: sums(working, m, k)[0] / (k * float(power - 1) + m))
    more, less = near_codes(law, near, account)
    total, short, aside = sums(working, m, near)
    over = (short + float(m / (power - 1))) / total  # r − 1
    exact = law.get("rotation", "exact") == "exact"
    account.add(f"unbiased over the {known}", "recomputed" if exact else "claimed", over > -1)
    error = over * (2 + over)
    if not exact:
        return law["bits"], error + 2
    if ball:
        across = (1 + over) ** 2 * (float(less) * m * (1 - 1 / working) + float(more - less) * aside)
        error = max(across, error - across / dimension)
    return law["bits"] * messages, error / messages


def sampled_signs(law: Json, account: Account) -> tuple[int, float]:
    bits, dimension = law["bits"], law["dimension"]
    refuse(bits > dimension, "more signs than coordinates")
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
    if count is None or one is None or not 1 <= count <= dimension:
        raise Refused("no number of coordinates, or no quantizer of them")
    segments, bins = quantizer.segments_of(one["law"]), one["law"]["bins"]
    on_range = segments.knots[0] == -1 and segments.knots[-1] == 1
    part = Account()
    quantizer.is_law(segments, bins, part)
    law_like = all(holds for *_, holds in part.rows)
    account.agrees("a coordinate's law is one, on [-1, 1]", law_like and on_range)
    account.agrees(
        "the table shown is the law",
        quantizer.table_fits(segments, bins, one) and quantizer.selection_fits(one),
    )
    budget = Fraction(law["privacy"]["epsilon"]) / count
    claim = f"privacy loss at most {law['privacy']['epsilon']!r}/{count} a coordinate"
    account.bounds(claim, 0, quantizer.left_of_ratio(segments.rows, budget))
    account.at_most("every coordinate's answer is unbiased", quantizer.largest_bias(segments, bins), 0)
    bits = count * max((len(bins) - 1).bit_length(), 1)
    spare = (bits if law["bits"] is None else law["bits"]) - bits
    account.agrees("a vector takes no more bits than the mechanism says", spare >= 0, spare)
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

    worst = dimension * largest(0.0)
    if law["inputs"] == "ball":
        worst = min(worst, least(lambda price: price + dimension * largest(price), 0.0, 4 * max(squares)))
    return bits, worst


MECHANISMS = {
    "sphere-quantizer": of_codes,
    "random-directions": of_codes,
    "sampled-signs": sampled_signs,
    "sampled-coordinates": sampled_coordinates,
}


STEP = 0.0025
NODES = [STEP * n for n in range(-4800, 4801)]
"""Half of the narrowest width that the integrands have at the most vertices, 2¹⁶."""
PANELS = 400


Rows: TypeAlias = list[tuple[float, ...]]
"""At the nodes: the logarithms of a density, of what lies above and of what lies below, and what is averaged."""


def sums_of_largest(rows: Rows, m: int, k: int) -> list[float]:
    """Means, times m, over the law of the k-th largest of m: of what the rows hold behind their logarithms."""
    logs = [density + (k - 1) * above + (m - k - 1) * below for density, above, below, *_ in rows]
    top = max(logs)
    # what is smaller counts for nothing
    held = [(math.exp(log - top), row[3:]) for log, row in zip(logs, rows) if log > top - 60]
    weights, parts = zip(*held)
    return [m * math.fsum(map(mul, weights, part)) / math.fsum(weights) for part in zip(*parts)]


@cache
def normals() -> Rows:
    """Of normals, φ and Z φ."""

    def below(x: float) -> float:
        tail = math.erfc(abs(x) / math.sqrt(2)) / 2
        return math.log(tail) if x < 0 else math.log1p(-tail)

    logs = [(x, -x * x / 2 - math.log(2 * math.pi) / 2) for x in NODES]
    return [(log, below(-x), below(x), math.exp(log), x * math.exp(log)) for x, log in logs]


@cache
def simplex(d: int, m: int, k: int) -> tuple[float, float, float]:
    """The mean sums of U, of 1 − U and of 1 − U² over the k nearest vertices of a simplex, of inner products U."""
    total, squares = sums_of_largest(normals(), m, k)
    closeness = math.sqrt(m / (m - 1)) * total / normal_length(d)
    return closeness, k - closeness, k - m / (m - 1) * (k + squares - k / m) / d


@cache
def heights(d: int, m: int) -> Rows:
    """Of directions: log sech^{D−1}, log S, log(1 − S), and A, S − A, S − t A."""
    reach = math.acosh(math.exp(55 / (d - 1)))
    count = math.ceil(reach / 0.7 * math.sqrt((d - 1) * m + 100))
    h = reach / count

    def log_density(x: float) -> float:
        return -(d - 1) * math.log1p(2 * math.sinh(x / 2) ** 2)

    tail = math.exp(log_density(reach)) / ((d - 1) * math.tanh(reach))  # of less than e^{-55}
    cut, found = tail * (1 - math.tanh(reach)), []
    for n in range(count, -1, -1):
        found.append((n * h, log_density(n * h), tail, cut))
        for place, weight in GAUSS:
            x = (n - 0.5 + place / 2) * h
            mass = weight * h / 2 * math.exp(log_density(x))
            tail, cut = tail + mass, cut + mass * 2 / (1 + math.exp(2 * x))
    whole = 2 * found[-1][2]
    rows: Rows = []
    for x, log, tail, cut in found:
        above, mean, across = tail / whole, math.exp(log) / (whole * (d - 1)), cut / whole
        logs, low = (math.log(above), math.log1p(-above)), 2 / (1 + math.exp(2 * x))  # 1 − t
        rows.append((log, *logs, mean, across, across + low * mean))
        if x:
            rows.append((log, *logs[::-1], mean, 1 - above - mean, 1 - above + (1 - low) * mean))
    return rows


@cache
def directions(d: int, m: int, k: int) -> tuple[float, float, float]:
    """These sums over the k largest of m inner products with random directions; over the k nearest corners where d = 2."""
    if d == 2:
        angle = math.pi * k / m
        terms = [(-1) ** (n + 1) * angle ** (2 * n) / math.factorial(2 * n + 1) for n in range(1, 24)]
        short = k * math.fsum(terms)
        return k - short, short, k / 2 * math.fsum(4**n * term for n, term in enumerate(terms, 1))
    total, short, across = sums_of_largest(heights(d, m), m, k)
    return total, short, (d - 1) / d * across


def normal_length(d: int) -> float:
    """The mean length of a standard normal vector, √2 Γ((d + 1)/2)/Γ(d/2)."""
    if d < 300:
        return math.sqrt(2) * math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2))
    x = 1 / d  # the difference would lose digits: the asymptotic series has them all
    return math.sqrt(d) * (1 - x / 4 + x**2 / 32 + 5 * x**3 / 128 - 21 * x**4 / 2048)


def excess_over(theta: float, dimension: int) -> float:
    """E(U − cos θ)₊, on the stretch next to θ that holds all but e^{-45} of the integral."""
    power = dimension - 2
    width = theta if not power else min(theta, 14 / math.sqrt(power), 45 * abs(math.tan(theta)) / power)

    def integrand(t: float) -> float:
        if t <= 0:
            return 0.0 if power else 2 * math.sin(theta / 2) ** 2
        log_sine = math.log1p(-(math.cos(t) ** 2)) / 2 if t > 0.8 else math.log(math.sin(t))
        return 2 * math.sin((theta + t) / 2) * math.sin((theta - t) / 2) * math.exp(power * log_sine)

    constant = normal_length(dimension - 1) / math.sqrt(2 * math.pi)
    return constant * integral(integrand, theta - width, theta, PANELS)


def cap_error(dimension: int, epsilon: float) -> float:
    """The least squared error of unbiased ε-private answers to unit vectors."""
    gain = math.expm1(epsilon)

    def too_small(log: float) -> bool:
        """Of the logarithm of the error's root, tan θ."""
        tangent = math.exp(log)
        return gain * excess_over(math.atan(tangent), dimension) <= 1 / math.hypot(1, tangent)

    return math.exp(2 * between(-700.0, 700.0, too_small)[0])


def cubic_excess(t: float) -> float:
    """E(G − t)₊³, rounded up."""
    density = math.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    above = math.erfc(t / math.sqrt(2)) / 2
    room = 1e-14 * (t * t + 2) * density
    return max((t * t + 2) * density - (t**3 + 3 * t) * above, 0.0) + room


def corner_reach(epsilon: float) -> float:
    """By how much an ε-private answer may move the mean of a uniform corner, from above."""
    if epsilon <= math.log(3):
        return math.tanh(epsilon / 2)
    gain = math.expm1(epsilon)

    def by_cubes(t: float) -> float:
        wanted, low = 4 / 27 * gain * cubic_excess(t), max(t, 0.0)
        high = low + 1
        while high * (high - t) ** 2 < wanted:
            high += high - low
        return between(low, high, lambda s: s * (s - t) ** 2 < wanted)[1]

    def by_moments(p: float) -> float:
        moment = p / 2 * math.log(2) + math.lgamma((p + 1) / 2) - math.log(math.pi) / 2
        return math.exp((math.log(gain / 2) + moment + (p - 1) * math.log(p - 1) - p * math.log(p)) / p)

    powers = [2 + n / 50 for n in range(101)]
    return min(least(by_cubes, -2.0, math.sqrt(2 * epsilon) + 1), *map(by_moments, powers))


def box_error(dimension: int, epsilon: float) -> float:
    """A lower bound of the worst squared error of unbiased ε-private answers to vectors of [−1, 1]^d."""
    each = min(corner_reach(epsilon) ** 2 / dimension, math.tanh(epsilon / 2) ** 2)
    return dimension * (1 / each - 1)

"""Closed forms of vectors: what the nearest vertices of a random simplex are worth, and the least error of unbiased answers.

*Largest normals.* With S the survival function of the normal law, φ its density, V beta-distributed with parameters (M − k, k) and
Z = Φ⁻¹(V), the k largest of M independent normals have the mean sum M E φ(Z), and squares of mean sum k + M E Z φ(Z) (by parts).
Both are ratios of smooth integrals that decay on both sides: sums over a fine grid give them.

*The cap* (Asi, Feldman, Talwar 2022). Let U be a coordinate of a uniform point of the unit sphere in D dimensions, and s the root of
(e^ε − 1) E(U − s)₊ = s. No unbiased ε-private answer to unit vectors has a smaller squared error than 1/s² − 1. With s = cos θ it is
tan² θ, and E(U − s)₊ is C ∫₀^θ (cos t − cos θ) sin^{D−2} t dt, C = Γ(D/2)/(√π Γ((D−1)/2)).

*The corners of a box.* Let an ε-private answer move the mean of a uniform corner of {±1}^d by at most s in length, and any one
coordinate by at most tanh(ε/2). No unbiased one has a smaller error at all corners than d²/s² − d. For ε ≤ log 3, s = tanh(ε/2);
beyond, every t gives an s by s(s − t)² = (4/27)(e^ε − 1) E(G − t)₊³, G normal, and every p ≥ 2 one by
s^p = ((e^ε − 1)/2) E|G|^p (p − 1)^{p−1} / p^p; the least is taken.

Everything here is in doubles: what follows is *recomputed*.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

STEP = 0.0025
NODES = [STEP * n for n in range(-4800, 4801)]
"""Half of the narrowest width that the integrands have at the most vertices, 2¹⁶."""
PANELS = 2000


@cache
def logarithms() -> list[tuple[float, float, float]]:
    """log φ, log Φ and log(1 − Φ) at the nodes."""

    def below(x: float) -> float:
        tail = math.erfc(abs(x) / math.sqrt(2)) / 2
        return math.log(tail) if x < 0 else math.log1p(-tail)

    return [(-x * x / 2 - math.log(2 * math.pi) / 2, below(x), below(-x)) for x in NODES]


@cache
def largest_normals(count: int, largest: int) -> tuple[float, float]:
    """The mean sum of the largest of `count` independent normals, and of their squares."""
    m, k = count, largest
    logs = [density + (m - k - 1) * below + (k - 1) * above for density, below, above in logarithms()]
    top = max(logs)
    held = [n for n, log in enumerate(logs) if log > top - 60]  # less counts for nothing
    weights = [math.exp(logs[n] - top) for n in held]
    densities = [weight * math.exp(logarithms()[n][0]) for n, weight in zip(held, weights)]
    total = math.fsum(weights)
    squares = math.fsum(NODES[n] * density for n, density in zip(held, densities))
    return m * math.fsum(densities) / total, k + m * squares / total


def normal_length(d: int) -> float:
    """The mean length of a standard normal vector, √2 Γ((d + 1)/2)/Γ(d/2)."""
    if d < 300:
        return math.sqrt(2) * math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2))
    x = 1 / d  # the difference would lose digits: the asymptotic series has them all
    return math.sqrt(d) * (1 - x / 4 + x**2 / 32 + 5 * x**3 / 128 - 21 * x**4 / 2048)


def excess_over(theta: float, dimension: int) -> float:
    """E(U − cos θ)₊, by Simpson's rule on the stretch next to θ that holds all but e^{-45} of the integral."""
    power = dimension - 2
    width = theta if not power else min(theta, 14 / math.sqrt(power), 45 * abs(math.tan(theta)) / power)
    h = width / (2 * PANELS)

    def integrand(t: float) -> float:
        if t <= 0:
            return 0.0 if power else 2 * math.sin(theta / 2) ** 2
        log_sine = math.log1p(-(math.cos(t) ** 2)) / 2 if t > 0.8 else math.log(math.sin(t))
        return 2 * math.sin((theta + t) / 2) * math.sin((theta - t) / 2) * math.exp(power * log_sine)

    values = [integrand(theta - n * h) for n in range(2 * PANELS + 1)]
    total = values[0] + values[-1] + 4 * math.fsum(values[1::2]) + 2 * math.fsum(values[2:-1:2])
    constant = normal_length(dimension - 1) / math.sqrt(2 * math.pi)
    return constant * total * h / 3


def cap_error(dimension: int, epsilon: float) -> float:
    """The least squared error of unbiased ε-private answers to unit vectors."""
    gain, low, high = math.expm1(epsilon), -700.0, math.log(math.pi / 2)
    while (middle := (low + high) / 2) not in (low, high):
        theta = math.exp(middle)
        low, high = (
            (low, middle) if gain * excess_over(theta, dimension) > math.cos(theta) else (middle, high)
        )
    return math.tan(math.exp(low)) ** 2


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
        while (middle := (low + high) / 2) not in (low, high):
            low, high = (low, middle) if middle * (middle - t) ** 2 >= wanted else (middle, high)
        return high

    def by_moments(p: float) -> float:
        moment = p / 2 * math.log(2) + math.lgamma((p + 1) / 2) - math.log(math.pi) / 2
        return math.exp((math.log(gain / 2) + moment + (p - 1) * math.log(p - 1) - p * math.log(p)) / p)

    powers = [2 + n / 50 for n in range(101)]
    return min(least(by_cubes, -2.0, math.sqrt(2 * epsilon) + 1), *map(by_moments, powers))


def least(f: Callable[[float], float], low: float, high: float) -> float:
    """The least value of a function with one valley."""
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if f(left) <= f(right) else (left, high)
    return f((low + high) / 2)


def box_error(dimension: int, epsilon: float) -> float:
    """A lower bound of the worst squared error of unbiased ε-private answers to vectors of [−1, 1]^d."""
    each = min(corner_reach(epsilon) ** 2 / dimension, math.tanh(epsilon / 2) ** 2)
    return dimension * (1 / each - 1)

"""What an error costs: E|T|^p for p = 1, 2, of each family at unit scale."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from mechdesign.verifier.discrete_laws import gaussian_weights
from mechdesign.verifier.noise_laws import ONE, PI, ZERO, gamma, mills


def truncated_cost(p: int, c: Decimal) -> Decimal:
    last = (-c).exp()
    return (p - last * (c + 1 if p == 1 else c * c + 2 * c + 2)) / (1 - last)


def offset_cost(p: int, b: Decimal) -> Decimal:
    """E(T + b) = 1/M(b) and E T(T + b) = 1, by parts."""
    mean = 1 / mills(b) - b
    return mean if p == 1 else 1 - b * mean


def huber_cost(p: int, b: Decimal) -> Decimal:
    if b == 0:
        return offset_cost(p, b)
    last, tail = (-b * b).exp(), mills(b)
    z = b * b
    centre = (1 - last * (1 + z)) / b**2 if p == 1 else (2 - last * (z * z + 2 * z + 2)) / b**3
    beyond = last * (1 if p == 1 else b + tail)
    return (centre + beyond) / (last * tail + (1 - last) / b)


def staircase_cost(p: int, epsilon: Decimal, gamma: Decimal) -> Decimal:
    """Σ over steps k of b^k (∫ over [k, k + γ] + b ∫ over [k + γ, k + 1]) of t^p, by Σ b^k k^j."""
    b = (-epsilon).exp()
    powers = (1 / (1 - b), b / (1 - b) ** 2, b * (1 + b) / (1 - b) ** 3)
    level = (1 - b) / (gamma + b * (1 - gamma))
    g = gamma
    if p == 1:  # ∫ = ((k + y)² − (k + x)²)/2 = k (y − x) + (y² − x²)/2
        steps = (g + b * (1 - g)) * powers[1] + (g * g + b * (1 - g * g)) / 2 * powers[0]
    else:
        steps = (g + b * (1 - g)) * powers[2] + (g * g + b * (1 - g * g)) * powers[1]
        steps += (g**3 + b * (1 - g**3)) / 3 * powers[0]
    return level * steps


def gaussian_sum_cost(p: int, sigma: Decimal) -> Decimal:
    half = gaussian_weights(sigma)
    total: Decimal = sum((k**p * w for k, w in enumerate(half)), ZERO)
    return 2 * total / (2 * sum(half) - half[0])


def discrete_laplace_cost(p: int, a: Decimal) -> Decimal:
    fall = (-a).exp()
    return 2 * fall / (1 - fall * fall) if p == 1 else 2 * fall / (1 - fall) ** 2


COSTS: dict[str, Callable[..., Decimal]] = {
    "norm": lambda p: ONE if p == 2 else (2 / PI).sqrt(),
    "laplace": lambda p: Decimal(p),
    "truncated_laplace": truncated_cost,
    "logistic": lambda p: 2 * Decimal(2).ln() if p == 1 else PI * PI / 3,
    "osgt": offset_cost,
    "flipped_huber": huber_cost,
    "gennorm": lambda p, power: gamma((p + 1) / power) / gamma(1 / power),
    "staircase": staircase_cost,
    "dlaplace": discrete_laplace_cost,
    "discrete_gaussian": gaussian_sum_cost,
}

"""Laws on the integers, and the staircase: outcomes of one privacy loss each, or neighbouring ones together.

Moved by r, a symmetric log-concave law on the integers loses log P(k) − log P(k + r) at k, which rises with k: so δ = max over k of
P(K ≥ k) − e^ε P(K ≥ k + r), and the integers from one to another have their losses between those of these two.

What an error costs, E|T|^p for p = 1, 2 at unit scale, follows for every family from sums or by parts.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from mechdesign.verifier.composition import SLACK, Cell
from mechdesign.verifier.noise_laws import ONE, PI, ZERO, gamma, mills
from mechdesign.verifier.reading import Refused, TooLarge

LARGEST_SIGMA = 50_000


class Whole(NamedTuple):
    """P(K ≥ k); the loss at k; the integers between which it changes; whether it is the same for all that are larger."""

    above: Callable[[int], Decimal]
    loss: Callable[[int], Decimal]
    first: int
    last: int
    bounded: bool

    def cells(self, shift: int, most: int) -> tuple[list[Cell], Decimal]:
        """Cells of the loss, about so many (at most twice), and the mass whose loss is taken as infinite."""
        first, last, _ = self.first, self.last, ZERO
        below = atom(ONE - self.above(first), self.loss(first - 1))  # no loss is larger there
        starts = [*range(first, last + 1, max(1, (last + 1 - first) // most)), last + 1]
        looks = [(self.above(k), self.above(k + shift), k) for k in starts]
        found = [
            Cell(p - later, q - after, self.loss(k), self.loss(end - 1))
            for (p, q, k), (later, after, end) in pairwise(looks)
        ]
        beyond = looks[-1][0]
        if self.bounded:
            return [below, *found, atom(beyond, self.loss(last + 1))], ZERO
        return [below, *found], beyond

    def delta(self, shift: int, epsilon: Decimal) -> Decimal:
        low, high = self.first - 1, self.last + 1
        while low < (middle := (low + high) // 2):
            low, high = (low, middle) if self.loss(middle) > epsilon else (middle, high)
        near = range(low - 1, high + 2)
        return max(ZERO, *(self.above(k) - epsilon.exp() * self.above(k + shift) for k in near)) + SLACK


def atom(p: Decimal, loss: Decimal) -> Cell:
    return Cell(p, p * (-loss).exp(), loss, loss)


def discrete_laplace(a: Decimal, shift: Decimal) -> Whole:
    """P(k) ∝ e^(-a|k|): the loss is a(|k + r| − |k|)."""
    r, fall = whole(shift), (-a).exp()

    def above(k: int) -> Decimal:
        far = fall ** max(k, 1 - k) / (1 + fall)
        return far if k > 0 else ONE - far

    return Whole(above, lambda k: a * (abs(k + r) - abs(k)), 1 - r, -1, True)


def discrete_gaussian(sigma: Decimal, shift: Decimal) -> Whole:
    """P(k) ∝ e^(-k²/2σ²), as far as it is 1e-60: the loss is r(r + 2k)/2σ²."""
    r, half = whole(shift), gaussian_weights(sigma)
    total, tails = gaussian_tails(sigma)
    unit = r / (2 * sigma * sigma)

    def above(k: int) -> Decimal:
        at = k if k > 0 else 1 - k
        far = tails[at] / total if at < len(tails) else ZERO
        return far if k > 0 else ONE - far

    return Whole(above, lambda k: unit * (r + 2 * k), 1 - len(half), len(half) - 1, False)


@lru_cache(maxsize=2)
def gaussian_weights(sigma: Decimal) -> list[Decimal]:
    """e^(-k²/2σ²) of k = 0, 1, … as far as it is 1e-60."""
    if sigma > LARGEST_SIGMA:
        raise TooLarge("too large to check: discrete Gaussian noise of sigma above 50000")
    weight, fall = ONE, (-1 / (2 * sigma * sigma)).exp()
    twice = fall * fall
    found = []
    while weight > Decimal("1e-60"):
        found.append(weight)
        weight *= fall
        fall *= twice
    return found


@lru_cache(maxsize=2)
def gaussian_tails(sigma: Decimal) -> tuple[Decimal, list[Decimal]]:
    """The sum of all weights, and of those from each k on, of which the last stands for more than what is left beyond."""
    half = gaussian_weights(sigma)
    ends = list(accumulate(reversed([*half, half[-1] * len(half)])))[::-1]
    return 2 * ends[0] - half[0], ends


def staircase_atoms(shapes: tuple[Decimal, ...], shift: Decimal) -> list[Cell]:
    """Steps of length 1, which fall by e^-ε at k + γ: a shift of at most a step changes the density by that factor or not."""
    if shift > 1:
        raise Refused("a change of more than one step of the staircase")
    epsilon, gamma = shapes
    b = (-epsilon).exp()
    level = (1 - b) / (2 * (gamma + b * (1 - gamma)))
    high = level * (min(gamma, shift) + shift * b / (1 - b) + max(ZERO, min(gamma, shift - gamma)))
    return [atom(high, epsilon), atom(1 - high - high * b, ZERO), atom(high * b, -epsilon)]


def whole(shift: Decimal) -> int:
    if shift != shift.to_integral_value() or shift < 1:
        raise Refused("noise on whole numbers for a change that is none")
    return int(shift)


WHOLE: dict[str, Callable[..., Whole]] = {
    "dlaplace": discrete_laplace,
    "discrete_gaussian": discrete_gaussian,
}


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

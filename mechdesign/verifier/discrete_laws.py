"""Laws on the integers, and the staircase: outcomes of one privacy loss each, or neighbouring ones together.

Moved by r, a symmetric log-concave law on the integers loses log P(k) − log P(k + r) at k, which rises with k: so δ = max over k of
P(K ≥ k) − e^ε P(K ≥ k + r), and the integers from one to another have their losses between those of these two.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from mechdesign.verifier.composition import SLACK, Cell
from mechdesign.verifier.noise_laws import ONE, ZERO
from mechdesign.verifier.reading import Refused

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
        raise Refused("discrete Gaussian noise of sigma above 50000")
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

"""Laws of additive noise, at unit scale: tails, cells of the privacy loss, and what an error costs.

A continuous law is symmetric and log-concave, at unit scale. Moved by r it has the loss L(s) = g(|s + r/2|) − g(|s − r/2|) at s from
the middle, g = −log of the density: odd, and increasing in s. So the cell between two points has its losses between theirs, and its
mirror image has p and q exchanged. Values carry 55 digits, of which sums of values of at most 1 lose fewer than 15
(`mechdesign.verifier.composition.SLACK`).

Of laws on the integers, and of the staircase, outcomes have one privacy loss each, or neighbouring ones are taken together. Moved by r, a symmetric log-concave law on the integers loses log P(k) − log P(k + r) at k, which rises with k: so δ = max over k of
P(K ≥ k) − e^ε P(K ≥ k + r), and the integers from one to another have their losses between those of these two.

What an error costs, E|T|^p for p = 1, 2 at unit scale, follows for every family from sums or by parts.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from decimal import Decimal
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from mechdesign.verifier.arithmetic import between
from mechdesign.verifier.composition import SLACK, Cell
from mechdesign.verifier.reading import Refused

PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211"
    "70679821480865132823066470938446095505822317253594081284811174502841027019385211055596446229489"
)
ZERO, HALF, ONE = Decimal(0), Decimal("0.5"), Decimal(1)
TINY = Decimal("1e-52")
ROUND = Decimal("1." + "1".zfill(45))
"""Above the rounding of a few decimals; as a sum, in 28 digits, it would be 1."""
INFINITE = Decimal("Infinity")


class Law(NamedTuple):
    """−log of the density but for a constant, and P(T > t), both of t ≥ 0; the end of the support; where the density bends.

    Both at two points take as much work as so many operations (`Account.takes`).
    """

    exponent: Callable[[Decimal], Decimal]
    upper: Callable[[Decimal], Decimal]
    end: Decimal = INFINITE
    bends: tuple[Decimal, ...] = (ZERO,)
    work: int = 400

    def above(self, t: Decimal) -> Decimal:
        """P(T > t) of any t."""
        return self.upper(t) if t >= 0 else ONE - self.upper(-t)

    def loss(self, s: Decimal, shift: Decimal) -> Decimal:
        """The privacy loss at s ≥ 0 from the middle between the two centres."""
        near, far = abs(s - shift / 2), s + shift / 2
        return self.exponent(far) - self.exponent(near) if far <= self.end else INFINITE

    def around(self, loss: Decimal, shift: Decimal) -> tuple[Decimal, Decimal]:
        """Two points, as near as decimals are, between which the loss passes this value, if it does."""
        low, high = ZERO, shift
        while self.loss(high, shift) <= loss and self.above(high) > SLACK:
            high *= 2
        return between(low, high, lambda s: self.loss(s, shift) <= loss)


def mills(x: Decimal) -> Decimal:
    """P(Z > x)/φ(x) of a normal Z, x ≥ 0: a series near 0, far out the continued fraction x + 1/(x + 2/(x + …)).

    The fraction lies between neighbouring convergents, which are within 1e-52 after so many steps.
    """
    if x <= 4:
        z = x * x / 2
        return (2 * PI).sqrt() / 2 * z.exp() - x / 2 * series(HALF, z)
    found = x
    for k in range(25 + int(4400 / (x * x)), 0, -1):
        found = x + k / found
    return ONE / found


def series(a: Decimal, z: Decimal) -> Decimal:
    """Σ z^n / (a (a + 1) … (a + n)) = γ(a, z) e^z / z^a: positive terms."""
    term = total = ONE / a
    n = a
    while term > TINY * total or n < z:
        n += 1
        term = term * z / n
        total += term
    return total


def gamma(a: Decimal) -> Decimal:
    """Γ(a) of a ≤ 40, but for what of its integral lies beyond 400."""
    z = Decimal(400)
    return (a * z.ln() - z).exp() * series(a, z)


def laplace() -> Law:
    return Law(lambda t: t, lambda t: HALF * (-t).exp(), work=120)


def truncated_laplace(end: Decimal) -> Law:
    last = (-end).exp()
    return Law(lambda t: t, lambda t: max(HALF * ((-t).exp() - last) / (1 - last), ZERO), end, work=120)


def logistic() -> Law:
    return Law(lambda t: t + 2 * (1 + (-t).exp()).ln(), lambda t: 1 / (1 + t.exp()))


def normal() -> Law:
    return offset_gaussian(ZERO)


def offset_gaussian(b: Decimal) -> Law:
    """OSGT: density ∝ e^(-t²/2 - b t), whose tail is e^(-t²/2 - b t) M(t + b)/(2 M(b))."""
    half = HALF / mills(b)
    return Law(lambda t: t * (t / 2 + b), lambda t: half * (-t * (t / 2 + b)).exp() * mills(t + b))


def flipped_huber(b: Decimal) -> Law:
    """Density ∝ e^(-b t) up to b, e^(-(t² + b²)/2) beyond."""
    if b == 0:
        return normal()

    def mass(t: Decimal) -> Decimal:
        far = max(t, b)
        tail = (-(far * far + b * b) / 2).exp() * mills(far)
        return tail if t >= b else tail + ((-b * t).exp() - (-b * b).exp()) / b

    whole = 2 * mass(ZERO)
    return Law(lambda t: b * t if t <= b else (t * t + b * b) / 2, lambda t: mass(t) / whole, bends=(ZERO, b))


def generalised_normal(power: Decimal) -> Law:
    """Density ∝ e^(-t^β), whose tail is an incomplete Γ function of t^β."""

    @cache
    def exponent(t: Decimal) -> Decimal:
        return (power * t.ln()).exp() if t else ZERO

    a = 1 / power
    half = HALF / gamma(a)

    def upper(t: Decimal) -> Decimal:
        z = exponent(t)
        return max(HALF - half * t * (-z).exp() * series(a, z), ZERO) if z < 300 else ZERO

    return Law(exponent, upper, work=700)


CONTINUOUS: dict[str, Callable[..., Law]] = {
    "norm": normal,
    "laplace": laplace,
    "truncated_laplace": truncated_laplace,
    "logistic": logistic,
    "osgt": offset_gaussian,
    "flipped_huber": flipped_huber,
    "gennorm": generalised_normal,
}


class Look(NamedTuple):
    """A point s from the middle: what lies beyond it under the two laws, and the loss there."""

    s: Decimal
    p: Decimal
    q: Decimal
    loss: Decimal


def continuous_cells(
    law: Law, shift: Decimal, tail: Decimal, bend: Decimal, count: int
) -> tuple[list[Cell], Decimal]:
    """Cells of the loss at a shift, and the mass of at most `tail`, or beyond the support, whose loss is taken as infinite.

    No cell reaches across the loss `bend`, the share of this coordinate where all losses together are ε. So δ moves with a cell of
    loss L as e^{θL}, θ such that losses tilted by it have this mean. Halved are the cells that weigh most, by their tilted mass and
    the square of their range of losses: first with θ = 0, then, of an eighth of `count`, with the θ that they tell.
    """
    half = last = shift / 2
    while law.above(last - half) > tail:
        last *= Decimal("1.25")
    last = min(last, law.end - half)

    def look(s: Decimal) -> Look:
        return Look(s, law.above(s - half), law.above(s + half), law.loss(s, shift))

    if last <= 0:  # the laws share no point
        return [Cell(ZERO, ONE, ZERO, ZERO)], ONE
    bends = {s for t in law.bends for s in (abs(t - half), t + half)}
    points = [look(s) for s in sorted({ZERO, last, *bends, *law.around(bend, shift)}) if s <= last]
    pairs, theta = list(pairwise(points)), 0.0
    for most in (count // 8, count):
        pairs = halved(pairs, look, theta, most)
        theta = tilt([Cell(a.p - b.p, a.q - b.q, a.loss, b.loss) for a, b in pairs], bend)
    cells = []
    for a, b in pairs:
        p, q = a.p - b.p, a.q - b.q
        cells += [Cell(p, q, a.loss, b.loss), Cell(q, p, -b.loss, -a.loss)]
    beyond = points[-1]
    # Far on the other side no loss is larger than at its end: less Q, and the more P there, is never more private.
    return [*cells, Cell(beyond.q, ZERO, -beyond.loss, -beyond.loss)], beyond.p


def halved(
    pairs: list[tuple[Look, Look]], look: Callable[[Decimal], Look], theta: float, count: int
) -> list[tuple[Look, Look]]:
    """Neighbouring points, until there are `count` pairs: one more between those that weigh most."""
    top = float(pairs[-1][1].loss)

    def weight(a: Look, b: Look) -> float:
        tilted = float(max(a.p - b.p, ZERO)) * math.exp(max(theta * (float(b.loss) - top), -700.0))
        return -(float(b.loss - a.loss) ** 2) * tilted

    heap = [(weight(a, b), i, a, b) for i, (a, b) in enumerate(pairs)]
    heapq.heapify(heap)
    for i in range(len(heap), count):
        _, _, a, b = heap[0]
        middle = look((a.s + b.s) / 2)
        heapq.heapreplace(heap, (weight(a, middle), 2 * i, a, middle))
        heapq.heappush(heap, (weight(middle, b), 2 * i + 1, middle, b))
    return sorted(((a, b) for _, _, a, b in heap), key=lambda pair: pair[0].s)


def tilt(cells: list[Cell], mean: Decimal) -> float:
    """θ ≥ 0 at which losses tilted by e^{θL} have this mean, about."""
    losses = [
        (sign * float(a + b) / 2, float(mass)) for p, q, a, b in cells for sign, mass in ((1, p), (-1, q))
    ]
    top, sought = max(loss for loss, _ in losses), float(mean)

    def above(theta: float) -> bool:
        tilted = ((loss, mass * math.exp(max(theta * (loss - top), -700.0))) for loss, mass in losses)
        return sum((loss - sought) * mass for loss, mass in tilted) >= 0

    low, high = 0.0, 1.0
    while not above(high) and high < 2**30:
        low, high = high, 2 * high
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if above(middle) else (middle, high)
    return low


LISTED = 5000
"""σ up to which weights of discrete Gaussian noise are listed."""
MIDPOINT = [
    Decimal(a) / b for a, b in ((-1, 24), (7, 5760), (-31, 967680), (127, 154828800), (-73, 3503554560))
]
"""B₂(½)/2!, B₄(½)/4!, …"""


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
    """P(k) ∝ e^(-k²/2σ²): losses beyond 17 σ, of mass 1e-60, are infinite; the loss is r(r + 2k)/2σ²."""
    r = whole(shift)
    unit = r / (2 * sigma * sigma)
    wide = sigma > LISTED
    total, tails = (ONE, list[Decimal]()) if wide else gaussian_tails(sigma)
    last = int(17 * sigma) if wide else min(int(17 * sigma), len(tails) - 2)

    def upper(k: int) -> Decimal:
        if wide:
            return wide_tail(sigma, k)
        return tails[k] / total if k < len(tails) else ZERO

    def above(k: int) -> Decimal:
        return upper(k) if k > 0 else ONE - upper(1 - k)

    return Whole(above, lambda k: unit * (r + 2 * k), -last, last, False)


def wide_tail(sigma: Decimal, k: int) -> Decimal:
    """P(K ≥ k), k ≥ 1, by the formula of Euler and Maclaurin at midpoints: with x = (k − ½)/σ it is Q(x) + Σ_m B₂ₘ(½)/(2m)! He₂ₘ₋₁(x) φ(x)/σ²ᵐ.

    What five terms leave is at most 2ζ(10)/(2πσ)¹⁰ ∫ |He₁₀| φ < 3000/(2πσ)¹⁰ (Cramér), and the weights sum to σ √(2π) but for e^(−2π²σ²) of it.
    """
    x = (k - HALF) / sigma
    factor, one, odd = mills(x), ONE, x
    for m, share in enumerate(MIDPOINT, 1):
        factor += share * odd / sigma ** (2 * m)
        one = x * odd - (2 * m - 1) * one
        odd = x * one - 2 * m * odd
    return factor * (-x * x / 2).exp() / (2 * PI).sqrt()


@lru_cache(maxsize=2)
def gaussian_weights(sigma: Decimal) -> list[Decimal]:
    """e^(-k²/2σ²) of k = 0, 1, … as far as it is 1e-400: δ at ε takes them times e^ε."""
    weight, fall = ONE, (-1 / (2 * sigma * sigma)).exp()
    twice = fall * fall
    found = []
    while weight > Decimal("1e-400"):
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


def staircase_atoms(shapes: tuple[Decimal, ...], shift: Decimal) -> tuple[list[Cell], Decimal]:
    """Steps of length 1, which fall by e^-ε at k + γ: a shift of at most a step changes the density by that factor or not.

    A third shape is a point mass at 0, which no shift moves onto itself: the mass whose loss is infinite.
    """
    if shift > 1:
        raise Refused("a change of more than one step of the staircase")
    epsilon, gamma, answered = (*shapes, ZERO)[:3]
    b, rest = (-epsilon).exp(), 1 - answered
    level = rest * (1 - b) / (2 * (gamma + b * (1 - gamma)))
    high = level * (min(gamma, shift) + shift * b / (1 - b) + max(ZERO, min(gamma, shift - gamma)))
    return [atom(high, epsilon), atom(rest - high - high * b, ZERO), atom(high * b, -epsilon)], answered


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
    if sigma > LISTED:
        return sigma * sigma if p == 2 else (2 / PI).sqrt() * (sigma - 1 / (12 * sigma))
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
    "answering_staircase": lambda p, epsilon, gamma, answered: (
        (1 - answered) * staircase_cost(p, epsilon, gamma)
    ),
    "dlaplace": discrete_laplace_cost,
    "discrete_gaussian": gaussian_sum_cost,
}

"""Privacy losses of additive noise, and δ of their composition, bounded from above on a grid.

**Theorem** (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022, *Connect the Dots*). Let a cell of outcomes have mass p under one
data set and q under its neighbour, with losses log dP/dQ in [a, b]. Two atoms at a and b with the same p and q in all,

    p_b = (p − e^a q) / (1 − e^(a − b)),    p_a = p − p_b,

have a hockey-stick curve that is nowhere lower. A pair of laws whose curve is nowhere lower may take the place of another one in any
composition, more P and less Q never lower it, and δ(ε) = Σ P(l) (1 − e^(ε − l)) over losses l > ε, plus the mass whose loss is infinite.

So losses are put on multiples of a step, each split between its two neighbours; the error falls with the square of the step. Laws are
composed by multiplying two big numbers with one slot a grid point (`decimal` multiplies in n log n), masses rounded up. Before two
compositions of more than so many `points` are composed their step is doubled, by the same split; tails are cut into the mass of
infinite loss.

**Laws**, at unit scale: tails, cells of the privacy loss, and what an error costs.

A continuous law is symmetric and log-concave, at unit scale. Moved by r it has the loss L(s) = g(|s + r/2|) − g(|s − r/2|) at s from
the middle, g = −log of the density: odd, and increasing in s. So the cell between two points has its losses between theirs, and its
mirror image has p and q exchanged. Values carry 55 digits, of which sums of values of at most 1 lose fewer than 15
(`SLACK`).

Of laws on the integers, and of the staircase, outcomes have one privacy loss each, or neighbouring ones are taken together. Moved by r, a symmetric log-concave law on the integers loses log P(k) − log P(k + r) at k, which rises with k: so δ = max over k of
P(K ≥ k) − e^ε P(K ≥ k + r), and the integers from one to another have their losses between those of these two.

What an error costs, E|T|^p for p = 1, 2 at unit scale, follows for every family from sums or by parts.
"""

from __future__ import annotations

import decimal
import heapq
import math
from bisect import bisect_left
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from mechdesign.verifier.arithmetic import between, charge, exp_bounds, series
from mechdesign.verifier.reading import Json, Refused, TooLarge, refuse

PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211"
    "70679821480865132823066470938446095505822317253594081284811174502841027019385211055596446229489"
)
ZERO, HALF, ONE = Decimal(0), Decimal("0.5"), Decimal(1)
ROUND = Decimal("1." + "1".zfill(45))
"""Above the rounding of a few decimals; as a sum, in 28 digits, it would be 1."""
INFINITE = Decimal("Infinity")
SLACK = Decimal("1e-40")
"""Above the rounding of sums of values of at most 1 in decimals of `PLACES` digits."""
PLACES = 55
EXPONENTIAL = 20
"""Operations that one takes in decimals of `PLACES` digits, as `Account.charge` counts; a logarithm takes twice as many."""
HUGE = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[])


POINTS, DECISIVE = (2**10, *(2**n for n in range(12, 19))), 2**15
"""Of the grid; the one that is tried where none seems to be fine enough."""


def refined(consumed: Callable[[int], Decimal], aim: Decimal) -> Decimal:
    """δ from above, on the first grids that should show the aim, as errors fall with the square of the points.

    What is above the aim is returned, as a claim that does not hold, only where it stays so if errors fall with the points alone.
    """
    last, found = POINTS[0], consumed(POINTS[0])
    slow = error = found
    while found > aim:
        finer = [n for n in POINTS if n > last]
        if not finer or (last >= DECISIVE and found - slow > aim):
            break
        near = (n for n in finer if found - error + error * Decimal(last / n) ** 2 <= aim)
        points = next(near, max(DECISIVE, finer[0]))
        before, found = found, min(found, consumed(points))
        slow = (before - found) / (points // last - 1)
        error, last = slow / (points // last + 1), points
    if found > aim >= found - slow:
        raise TooLarge("too large to check: no grid tells whether delta is above what is stated")
    return found


def left_after(privacy: Json, loss: Fraction) -> Fraction:
    """What losses of at most x leave of a requirement in ρ, ε or (ε, δ); negative where they may break it.

    They are (ε, δ)-DP if e^x − e^ε ≤ δ (1 + e^x), and x tanh(x/2)-zCDP (Kairouz, Oh and Viswanath 2015; `mechdesign.problem.privacy` has the proof).
    """
    if privacy[""] == "zcdp":
        rho, high = Fraction(privacy["rho"]), exp_bounds(loss)[1]
        return max(rho + Fraction(privacy["xi"]) - loss, rho - loss * (high - 1) / (high + 1))
    epsilon, delta = Fraction(privacy["epsilon"]), Fraction(privacy.get("delta", 0))
    if loss <= epsilon or not delta:
        return epsilon - loss
    return exp_bounds(epsilon)[0] + delta - exp_bounds(loss)[1] * (1 - delta)


class Cell(NamedTuple):
    """Outcomes of mass p and q under neighbours, with losses between low and high."""

    p: Decimal
    q: Decimal
    low: Decimal
    high: Decimal


class Losses(NamedTuple):
    """Masses, in units of 10^-digits, of the losses (first + i)·step, and that of the infinite loss."""

    step: Decimal
    first: int
    masses: list[int]
    infinite: int


def short(unit: Decimal) -> Decimal:
    """The unit in 25 digits: halved and doubled thirty times it is still exact."""
    return Decimal(f"{unit:.24e}")


class Grid:
    """Compositions in which `tail` may be cut off each time.

    Parameters
    ----------
    tail : Decimal
        Mass that is moved to an infinite loss by every operation.
    points : int
        The most multiples of the step, on average, of two losses that are composed.
    """

    def __init__(self, tail: Decimal, points: int) -> None:
        self.tail, self.points = tail, points
        self.digits = 9 - tail.adjusted()
        self.unit = 10**self.digits

    def up(self, mass: Decimal) -> int:
        """A mass in the grid's unit, rounded up."""
        return math.ceil((mass + SLACK) * self.unit) if mass > -SLACK else 0

    def losses(self, cells: list[Cell], unit: Decimal, infinite: Decimal, *, exact: bool = False) -> Losses:
        """The loss of these outcomes, and of the mass of infinite loss, on a step that is the unit times a power of 2.

        Where the losses are `exact` multiples of the unit, no finer step is taken.
        """
        step = short(unit)
        reach = max(abs(loss) for cell in cells if cell.p > self.tail for loss in (cell.low, cell.high))
        while not exact and step > 2 * reach / self.points:
            step /= 2
        while step < reach / self.points:
            step *= 2

        @cache  # most cells are shorter than a step
        def growth(steps: int) -> Decimal:
            charge(EXPONENTIAL)
            return (steps * step).exp()

        charge(EXPONENTIAL * len(cells) / 4)
        at: dict[int, int] = {}
        for p, q, low, high in cells:
            i = math.floor(low / step + SLACK)
            j = max(math.ceil(high / step - SLACK), i + 1)
            whole = self.up(p)
            above = self.up(min((p - growth(i) * (q - SLACK)) / (1 - growth(i - j)), p))
            for place, mass in ((j, above), (i, max(whole - above, 0) + 1)):
                at[place] = at.get(place, 0) + mass
        first, last = min(at), max(at)
        charge(last - first)
        masses = [at.get(i, 0) for i in range(first, last + 1)]
        return self.trimmed(Losses(step, first, masses, self.up(infinite)))

    def trimmed(self, found: Losses) -> Losses:
        """Cut tails: losses above become infinite, losses below rise to the least that is kept."""
        step, first, masses, infinite = found
        least, cut, end = int(self.tail * self.unit), 0, len(masses)
        while end > 1 and cut + masses[end - 1] <= least:
            end -= 1
            cut += masses[end]
        start, raised = 0, 0
        while start < end - 1 and raised + masses[start] <= least:
            raised += masses[start]
            start += 1
        kept = masses[start:end]
        kept[0] += raised
        return Losses(step, first + start, kept, infinite + cut)

    def coarser(self, found: Losses) -> Losses:
        """The same on twice the step: losses between its multiples are split."""
        step, first, masses, infinite = found
        share = math.ceil(self.unit / (1 + (-step).exp())) + 1  # of the upper neighbour
        least = first // 2
        halved = [0] * ((first + len(masses)) // 2 - least + 1)
        for i, mass in enumerate(masses, first):
            if i % 2:
                above = -(-mass * share // self.unit)
                halved[(i + 1) // 2 - least] += above
                halved[(i - 1) // 2 - least] += max(mass - above, 0) + 1
            else:
                halved[i // 2 - least] += mass
        return self.trimmed(Losses(2 * step, least, halved, infinite))

    def product(self, one: Losses, other: Losses) -> Losses:
        """The loss of both."""
        while one.step < other.step:
            one = self.coarser(one)
        while other.step < one.step:
            other = self.coarser(other)
        if one.step != other.step:
            raise ArithmeticError("losses on steps that are no powers of 2 apart")
        while len(one.masses) + len(other.masses) > 2 * self.points:
            one, other = self.coarser(one), self.coarser(other)
        slot = 2 * self.digits + len(str(self.points)) + 4  # masses of slightly more than 1 in all
        kinds = (one,) if one == other else (one, other)  # squares take a third less
        factors = [Decimal("".join(f"{mass:0{slot}d}" for mass in v.masses)) for v in kinds]
        count = len(one.masses) + len(other.masses) - 1
        charge(slot * count / (16 - 4 * len(kinds)))
        digits = format(HUGE.multiply(factors[0], factors[-1]), "f").zfill(slot * count)
        masses = [-(-int(digits[i : i + slot]) // self.unit) for i in range(0, slot * count, slot)]
        # masses may be slightly more than 1 in all
        infinite = one.infinite * (sum(other.masses) + other.infinite) + other.infinite * sum(one.masses)
        return self.trimmed(Losses(one.step, one.first + other.first, masses, infinite // self.unit + 1))

    def all(self, parts: list[Losses]) -> Losses:
        """The loss of all of these: the two of the least range first, so that most are split on fine grids alone."""
        heap = [(len(part.masses) * part.step, i, part) for i, part in enumerate(parts)]
        heapq.heapify(heap)
        for i in range(len(parts), 2 * len(parts) - 1):
            both = self.product(heapq.heappop(heap)[2], heapq.heappop(heap)[2])
            heapq.heappush(heap, (len(both.masses) * both.step, i, both))
        return heap[0][2]

    def power(self, base: Losses, times: int) -> Losses:
        """The loss of `times` independent ones."""
        found: Losses | None = None
        while True:
            if times % 2:
                found = base if found is None else self.product(found, base)
            times //= 2
            if not times:
                assert found is not None
                return found
            base = self.product(base, base)

    def delta(self, found: Losses, epsilon: Decimal) -> Decimal:
        """δ at ε, from above; up to 10⁹ losses may have been rounded by `SLACK` steps each."""
        charge(EXPONENTIAL * len(found.masses))
        epsilon -= 10**9 * SLACK * found.step
        total: Decimal = Decimal(found.infinite)
        for i, mass in enumerate(found.masses, found.first):
            if mass and (loss := i * found.step) > epsilon:
                total += mass * (1 - (epsilon - loss).exp())
        return Decimal(total / self.unit * (1 + SLACK))


class Law(NamedTuple):
    """−log of the density but for a constant, and P(T > t), both of t ≥ 0; the end of the support; where the density bends.

    Both at two points take as much work as so many operations (`Account.charge`).
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


def gamma(a: Decimal) -> Decimal:
    """Γ(a) of a ≤ 40, but for what of its integral lies beyond 400."""
    z = Decimal(400)
    return (a * z.ln() - z).exp() * series(a, z)


def truncated_laplace(end: Decimal) -> Law:
    last = (-end).exp()
    return Law(lambda t: t, lambda t: max(HALF * ((-t).exp() - last) / (1 - last), ZERO), end, work=120)


def normal() -> Law:
    return offset_gaussian(ZERO)


def offset_gaussian(b: Decimal) -> Law:
    """OSGT: density ∝ e^(-t²/2 - b t), whose tail is e^(-t²/2 - b t) M(t + b)/(2 M(b))."""
    half = HALF / mills(b)
    return Law(lambda t: t * (t / 2 + b), lambda t: half * (-t * (t / 2 + b)).exp() * mills(t + b))


def flipped_huber(b: Decimal) -> Law:
    """Density ∝ e^(-b t) up to b > 0, e^(-(t² + b²)/2) beyond."""

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
    "laplace": lambda: Law(lambda t: t, lambda t: HALF * (-t).exp(), work=120),
    "truncated_laplace": truncated_laplace,
    "logistic": lambda: Law(lambda t: t + 2 * (1 + (-t).exp()).ln(), lambda t: 1 / (1 + t.exp())),
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
    law: Law, shift: Decimal, tail: Decimal, bend: Decimal, count: int, rate: Decimal = ONE
) -> tuple[list[Cell], Decimal]:
    """Cells of the loss at a shift, and the mass of at most `tail`, or beyond the support, whose loss is taken as infinite.

    No cell reaches across the loss `bend`, the share of this coordinate where all losses together are ε. Halved are the cells that weigh
    most, by the square of their range of losses and the root of their mass, both as a sample at this rate has them: what counts are tails.
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

    def weighed(a: Look, b: Look) -> tuple[float, Decimal, Look, Look]:
        wide = seen(float(b.loss), share) - seen(float(a.loss), share)
        mass = share * float(max(a.p - b.p, ZERO)) + (1 - share) * float(max(a.q - b.q, ZERO))
        return -(wide**2) * math.sqrt(mass), a.s, a, b

    share = float(rate)
    heap = [weighed(a, b) for a, b in pairwise(points)]
    heapq.heapify(heap)
    for _ in range(len(heap), count):
        *_, a, b = heap[0]
        middle = look((a.s + b.s) / 2)
        heapq.heapreplace(heap, weighed(a, middle))
        heapq.heappush(heap, weighed(middle, b))
    cells = []
    for *_, a, b in sorted(heap, key=lambda cell: cell[1]):
        p, q = a.p - b.p, a.q - b.q
        cells += [Cell(p, q, a.loss, b.loss), Cell(q, p, -b.loss, -a.loss)]
    beyond = points[-1]
    # Far on the other side no loss is larger than at its end: less Q, and the more P there, is never more private.
    return [*cells, Cell(beyond.q, ZERO, -beyond.loss, -beyond.loss)], beyond.p


def seen(loss: float, rate: float) -> float:
    """About what a loss becomes where a sample at this rate is seen."""
    return loss if rate == 1 else math.log1p(rate * math.expm1(min(loss, 700.0)))


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

    def cells(self, shift: int, most: int, bend: Decimal) -> tuple[list[Cell], Decimal]:
        """Cells of the loss, about so many (at most twice), none across the loss `bend`, and the mass whose loss is taken as infinite."""
        first, last, _ = self.first, self.last, ZERO
        below = atom(ONE - self.above(first), self.loss(first - 1))  # no loss is larger there
        each = range(first, last + 1)
        turn = first + bisect_left(each, True, key=lambda k: self.loss(k) > bend)
        starts = sorted({*each[:: max(1, len(each) // most)], turn, last + 1})
        looks = [(self.above(k), self.above(k + shift), k) for k in starts]
        found = [
            Cell(p - later, q - after, self.loss(k), self.loss(end - 1))
            for (p, q, k), (later, after, end) in pairwise(looks)
        ]
        beyond = looks[-1][0]
        if self.bounded:
            return [below, *found, atom(beyond, self.loss(last + 1))], ZERO
        return [below, *found], beyond


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
    refuse(shift > 1, "a change of more than one step of the staircase")
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

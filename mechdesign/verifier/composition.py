"""δ of a composition of privacy losses, bounded from above on a grid.

**Theorem** (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022, *Connect the Dots*). Let a cell of outcomes have mass p under one
data set and q under its neighbour, with losses log dP/dQ in [a, b]. Two atoms at a and b with the same p and q in all,

    p_b = (p − e^a q) / (1 − e^(a − b)),    p_a = p − p_b,

have a hockey-stick curve that is nowhere lower. A pair of laws whose curve is nowhere lower may take the place of another one in any
composition, more P and less Q never lower it, and δ(ε) = Σ P(l) (1 − e^(ε − l)) over losses l > ε, plus the mass whose loss is infinite.

So losses are put on multiples of a step, each split between its two neighbours; the error falls with the square of the step. Laws are
composed by multiplying two big numbers with one slot a grid point (`decimal` multiplies in n log n), masses rounded up. Before two
compositions of more than so many `points` are composed their step is doubled, by the same split; tails are cut into the mass of
infinite loss.

Laplace noise moved by r scales loses l, −r ≤ l ≤ r: −r and r with the masses ½e^(−r) and ½, in between with the density ¼ e^((l − r)/2).
On a grid of step h the split is the same for all cells but for the factor e^(l/2): of the cell from a to a + h, the mass

    ½ e^((a − r)/2) ((e^(h/2) − 1) − (1 − e^(−h/2))) / (1 − e^(−h))

moves to its upper end. Losses are counted from the largest one, which is a grid point then, as where Σ r is just above ε δ is its mass.
"""

from __future__ import annotations

import decimal
import heapq
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from typing import NamedTuple

from mechdesign.verifier.arithmetic import exp_bounds
from mechdesign.verifier.reading import Account, Json

SLACK = Decimal("1e-40")
"""Above the rounding of sums of values of at most 1 in decimals of `PLACES` digits."""
PLACES = 55
EXPONENTIAL = 20
"""Operations that one takes in decimals of `PLACES` digits, as `Account.takes` counts; a logarithm takes twice as many."""
HUGE = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[])


POINTS, DECISIVE = (2**10, *(2**n for n in range(12, 19))), 2**15
"""Of the grid; the one that is tried where none seems to be fine enough."""


def refined(consumed: Callable[[int], Decimal], aim: Decimal, account: Account) -> Decimal:
    """δ from above, on two coarse grids and on the first ones that should show the aim.

    The error falls with the square of the points, and work grows with them: both are known after two grids, so that what is too large
    is not begun.
    """
    found, error, last, cost = Decimal(1), Decimal(0), 0, 0.0
    for points in POINTS:
        if error:
            here, finest = (found - error + error * Decimal(last / n) ** 2 for n in (points, POINTS[-1]))
            if here > aim and (points != DECISIVE or finest <= aim):
                continue
        if last and (lacking := cost * points / last - account.left) > 0:
            raise account.too_large(lacking)
        left, before = account.left, found
        found = min(found, consumed(points))
        error = (before - found) / ((points // last) ** 2 - 1) if last else error
        cost, last = left - account.left, points
        if found <= aim:
            break
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
    account : Account
        Counts the work.
    """

    def __init__(self, tail: Decimal, points: int, account: Account) -> None:
        self.tail, self.points, self.account = tail, points, account
        self.digits = 9 - tail.adjusted()
        self.unit = 10**self.digits

    def up(self, mass: Decimal) -> int:
        """A mass in the grid's unit, rounded up."""
        return ceil((mass + SLACK) * self.unit) if mass > -SLACK else 0

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
        self.account.takes(2 * EXPONENTIAL * len(cells))
        at: dict[int, int] = {}
        for p, q, low, high in cells:
            i, j = floor(low / step + SLACK), ceil(high / step - SLACK)
            a, b = i * step, max(j, i + 1) * step
            whole = self.up(p)
            above = self.up(min((p - a.exp() * (q - SLACK)) / (1 - (a - b).exp()), p))
            for place, mass in ((max(j, i + 1), above), (i, max(whole - above, 0) + 1)):
                at[place] = at.get(place, 0) + mass
        first, last = min(at), max(at)
        self.account.takes(last - first)
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
        share = ceil(self.unit / (1 + (-step).exp())) + 1  # of the upper neighbour
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
        factors = [Decimal("".join(f"{mass:0{slot}d}" for mass in v.masses)) for v in (one, other)]
        count = len(one.masses) + len(other.masses) - 1
        self.account.takes(slot * count / 8)
        digits = format(HUGE.multiply(*factors), "f").zfill(slot * count)
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
        self.account.takes(EXPONENTIAL * len(found.masses))
        epsilon -= 10**9 * SLACK * found.step
        total: Decimal = Decimal(found.infinite)
        for i, mass in enumerate(found.masses, found.first):
            if mass and (loss := i * found.step) > epsilon:
                total += mass * (1 - (epsilon - loss).exp())
        return Decimal(total / self.unit * (1 + SLACK))


def laplace_losses(grid: Grid, ratio: Decimal, unit: Decimal) -> Losses:
    """The loss of one Laplace coordinate less its largest value r, on a step that is the unit times a power of 2."""
    step = short(unit)
    while step > 2 * ratio / grid.points:
        step /= 2
    while step <= ratio / grid.points:
        step *= 2
    whole = floor(2 * ratio / step)  # cells between −r and r; of another one there is a rest
    grid.account.takes(20 * whole)
    shrink, half = (-step).exp(), (step / 2).exp()
    moved = Decimal("0.5") * ((half - 1) - (1 - 1 / half)) / (1 - shrink)
    kept = Decimal("0.5") * (half - 1) - moved
    masses = [0] * (whole + 2)  # of −(whole + 1), …, 0 steps
    masses[-1] = grid.up(Decimal("0.5"))
    growth = 1 / half
    for j in range(1, whole + 1):
        masses[-j] += grid.up(moved * growth)
        masses[-j - 1] += grid.up(kept * growth)
        growth /= half
    rest, least = 2 * ratio - whole * step, (-ratio).exp()
    rim = (
        Decimal("0.5") * least * ((rest / 2).exp() - 1)
    )  # of the losses from −r on, as far as the first cell
    low = ratio - (whole + 1) * step
    for p, q in ((rim, Decimal("0.5") * (1 - (-rest / 2).exp())), (Decimal("0.5") * least, Decimal("0.5"))):
        above = min(max((p - low.exp() * (q - SLACK)) / (1 - shrink), Decimal(0)), p)
        masses[1] += grid.up(above)
        masses[0] += grid.up(p - above)
    return grid.trimmed(Losses(step, -whole - 1, masses, 0))

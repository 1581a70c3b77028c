"""δ of noise on several coordinates in several rounds, each of which sees all records or a Poisson sample of them.

Normal noise is one coordinate of shift (Σ v_i²)^½, and one coordinate alone has δ = P(L > ε) − e^ε Q(L > ε), in closed form. Other
losses are composed (`mechdesign.verifier.composition`).

**Sampling.** A round that sees a sample at rate q has the losses of q P + (1 − q) Q against Q and of P against (1 − q) P + q Q, the
second by symmetry: both curves rise with that of (P, Q). With δ' that of (P, Q) and x = e^ε ≥ 1 they are

    q δ'(ε'),  e^ε' = (x − 1 + q)/q,    and    (1 − x (1 − q)) δ'(ε''),  e^ε'' = q x/(1 − x (1 − q))  where that is positive.

The first one is never lower, so that it is δ of one round: 1 − x (1 − q) ≤ q, and ε'' ≥ ε' because of
q² x − (x − 1 + q)(1 − x (1 − q)) = (x − 1)² (1 − q) ≥ 0. Of several rounds both directions are composed.
"""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

from mechdesign.verifier.changes import Shifts
from mechdesign.verifier.composition import (
    EXPONENTIAL,
    SLACK,
    Cell,
    Grid,
    Losses,
    laplace_losses,
    refined,
    short,
)
from mechdesign.verifier.discrete_laws import WHOLE, staircase_atoms
from mechdesign.verifier.noise_laws import CONTINUOUS, ONE, ROUND, ZERO, continuous_cells
from mechdesign.verifier.reading import Account, TooLarge

WIDTH = 16
"""Points of the grid for each cell of a coordinate's losses, or of those of a round that is sampled."""
MOST_LOSSES = 10**9


class Asked(NamedTuple):
    """A law at unit scale, and what is asked of it."""

    name: str
    shapes: tuple[Decimal, ...]
    rounds: int
    rate: Decimal
    epsilon: Decimal
    delta: Decimal
    account: Account

    def least(self, cases: list[Shifts], aim: Decimal) -> Decimal:
        """δ at ε, from above, in one of the cases, each as bad as every change: in the least of the coarsest grid on finer ones."""

        def consumed(points: int) -> Decimal:
            nonlocal cases
            found = sorted((self.consumed(shifts, points), shifts) for shifts in cases)
            cases = [shifts for _, shifts in found][:1]
            return found[0][0]

        if all(map(self.closed, cases)):
            return consumed(0)
        return refined(consumed, self.delta, aim, self.account)

    def closed(self, shifts: Shifts) -> bool:
        """Whether δ is in closed form, whatever the grid: of one loss, or of normal noise, and at most one sample."""
        alone = self.name == "norm" or self.rounds * sum(count for _, count in shifts) == 1
        return alone and (self.rate == 1 or self.rounds == 1)

    def consumed(self, shifts: Shifts, points: int) -> Decimal:
        """δ at ε of all rounds and coordinates, from above."""
        if self.rate < 1 and self.rounds == 1:
            unsampled = self._replace(
                rate=ONE, epsilon=self.before(self.epsilon), delta=self.delta / self.rate
            )
            return self.rate * unsampled.consumed(shifts, points)
        times = self.rounds if self.rate == 1 else 1
        if self.name == "norm":
            square = sum((count * v * v for v, count in shifts), ZERO) * times
            shifts, times = [(square.sqrt() * ROUND, 1)], 1
        count = sum(count for _, count in shifts) * times
        if count > MOST_LOSSES or self.rounds > MOST_LOSSES:
            raise TooLarge(f"too large to check: more than {MOST_LOSSES} losses are composed")
        if self.closed(shifts):
            return self.alone(shifts[0][0])
        tail = self.delta * Decimal("1e-9") / (count * self.rounds)
        grid = Grid(tail, points, self.account)
        if self.rate == 1:
            whole, origin = self.composed(grid, shifts, times, self.epsilon)
            return grid.delta(whole, self.epsilon - origin)
        bend = self.before(self.epsilon / self.rounds)
        if count == 1:
            return self.sampled(grid, *self.outcomes(shifts[0][0], tail, bend, points))
        whole, origin = self.composed(grid, shifts, 1, bend)
        while len(whole.masses) > points // 4:
            whole = grid.coarser(whole)
        masses = (
            (Decimal(m) / grid.unit, i * whole.step + origin) for i, m in enumerate(whole.masses, whole.first)
        )
        cells = [Cell(p, p * (-loss).exp(), loss, loss) for p, loss in masses]
        return self.sampled(grid, cells, Decimal(whole.infinite) / grid.unit)

    def before(self, epsilon: Decimal) -> Decimal:
        """The loss that becomes ε where a sample is seen."""
        return (1 + (epsilon.exp() - 1) / self.rate).ln()

    def composed(self, grid: Grid, shifts: Shifts, times: int, epsilon: Decimal) -> tuple[Losses, Decimal]:
        """The loss of so many rounds without sampling, less an origin, the second; δ bends at ε, each coordinate's at its share of it."""
        whole = sum((shift * alike for shift, alike in shifts), ZERO) * times
        share, per_step = (
            epsilon / whole,
            (epsilon or whole) / whole,
        )  # at ε = 0 alike losses may cancel: 0 is a grid point
        origin, several = ZERO, []
        for shift, alike in shifts:
            # a cell that ends a last digit beyond a grid point would be spread over two steps
            bend, unit = short(share * shift), short(per_step * shifts[-1][0])
            losses, start = self.losses(grid, shift, bend, unit, epsilon)
            several.append(grid.power(losses, alike))
            origin += start * alike * times
        return grid.power(grid.all(several), times), origin

    def losses(
        self, grid: Grid, shift: Decimal, bend: Decimal, unit: Decimal, epsilon: Decimal
    ) -> tuple[Losses, Decimal]:
        """The loss of one coordinate less an origin, the second, such that few or alike losses are points of the grid."""
        if self.name == "laplace":
            return laplace_losses(grid, shift, epsilon or unit), shift
        origin, exact = ZERO, self.name in WHOLE or self.name == "staircase"
        if self.name == "dlaplace":
            origin, unit = self.shapes[0] * shift, 2 * self.shapes[0]
        elif self.name == "discrete_gaussian":
            origin, unit = (shift / self.shapes[0]) ** 2 / 2, 1 / self.shapes[0] ** 2
        elif self.name == "staircase":
            unit = self.shapes[0]
        cells, infinite = self.outcomes(shift, grid.tail, bend, grid.points)
        growth = origin.exp()
        moved = [Cell(p, q * growth, low - origin, high - origin) for p, q, low, high in cells]
        return grid.losses(moved, unit, infinite, exact=exact), origin

    def outcomes(
        self, shift: Decimal, tail: Decimal, bend: Decimal, points: int
    ) -> tuple[list[Cell], Decimal]:
        """Cells of the loss of one coordinate for a grid of so many points, and the mass whose loss is infinite."""
        if self.name == "staircase":
            return staircase_atoms(self.shapes, shift), ZERO
        if self.name in WHOLE:
            cells, infinite = WHOLE[self.name](*self.shapes, shift).cells(int(shift), points // 2)
            self.account.takes(EXPONENTIAL * len(cells))
            return cells, infinite
        law = CONTINUOUS[self.name](*self.shapes)
        self.account.takes(law.work * points / WIDTH)
        return continuous_cells(law, shift, tail, bend, points // WIDTH)

    def alone(self, shift: Decimal) -> Decimal:
        """δ of one coordinate: P − e^ε Q of the outcomes whose loss is larger than ε."""
        growth = self.epsilon.exp()
        if self.name == "staircase":
            cells = staircase_atoms(self.shapes, shift)
            return sum((max(cell.p - growth * cell.q, ZERO) for cell in cells), SLACK)
        if self.name in WHOLE:
            return WHOLE[self.name](*self.shapes, shift).delta(int(shift), self.epsilon)
        law = CONTINUOUS[self.name](*self.shapes)
        low, high = law.around(self.epsilon, shift)
        return law.above(low - shift / 2) - growth * law.above(high + shift / 2) + SLACK

    def sampled(self, grid: Grid, cells: list[Cell], infinite: Decimal) -> Decimal:
        """δ of all rounds, each of which sees a sample: the larger one of both directions."""
        self.account.takes(10 * EXPONENTIAL * len(cells))
        rate, rest = self.rate, 1 - self.rate
        missing = max(ONE - sum((cell.q for cell in cells), ZERO), ZERO)  # of Q alone
        removed = [
            Cell(rate * p + rest * q, q, (rate * low.exp() + rest).ln(), (rate * high.exp() + rest).ln())
            for p, q, low, high in cells
        ]
        removed.append(Cell(rest * missing, missing, rest.ln(), rest.ln()))
        added = [
            Cell(
                p,
                rest * p + rate * q,
                -(rest + rate * (-low).exp()).ln(),
                -(rest + rate * (-high).exp()).ln(),
            )
            for p, q, low, high in cells
        ]
        added.append(Cell(infinite, rest * infinite, -rest.ln(), -rest.ln()))
        found = ZERO
        for outcomes, beyond in ((removed, rate * infinite), (added, ZERO)):
            one = grid.losses(outcomes, (self.epsilon or ONE) / self.rounds, beyond)
            found = max(found, grid.delta(grid.power(one, self.rounds), self.epsilon))
        return found

"""δ of independent Laplace and normal coordinates, each with a ratio r of change and scale of its own.

Laplace noise moved by r scales loses l, −r ≤ l ≤ r: −r and r with the masses ½e^(−r) and ½, in between with the density ¼ e^((l − r)/2).
On a grid of step h the split of `mechdesign.verifier.composition` is the same for all cells but for the factor e^(l/2): of the cell
from a to a + h, the mass

    ½ e^((a − r)/2) ((e^(h/2) − 1) − (1 − e^(−h/2))) / (1 − e^(−h))

moves to its upper end. Losses are counted from the largest one, which is a grid point then,
as where Σ r is just above ε δ is its mass. Where Σ r is above ε by e, and no r is below e/2,
the loss is Σ r − 2 Σ max(x, 0) wherever it is above ε: δ is in closed form (`barely_above`). Normal coordinates are one, of ratio (Σ r²)^½. What is τ-private without δ leaves ε − τ to the others.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from math import floor

from mechdesign.verifier.composition import SLACK, Grid, Losses, refined, short
from mechdesign.verifier.noise_laws import HALF, ONE, ROUND, ZERO, continuous_cells, normal
from mechdesign.verifier.reading import Account, TooLarge

STEPS = 512
"""A Laplace ratio has as many, at least."""
WIDTH = 16
"""Points of the grid for each cell of normal noise."""
SMALL = Decimal(2) ** -16
"""Of the largest Laplace ratio: smaller ones are composed by their sum."""
MOST_RATIOS = 64
MOST_COUNTED = 5000


def normal_delta(epsilon: Decimal, ratio: Decimal) -> Decimal:
    law = normal()
    near, far = epsilon / ratio - ratio / 2, epsilon / ratio + ratio / 2
    return law.above(near) - epsilon.exp() * law.above(far) + SLACK


def laplace_losses(grid: Grid, ratio: Decimal, unit: Decimal) -> Losses:
    """The loss of one Laplace coordinate less its largest value r, on a step that is the unit times a power of 2."""
    step = short(unit)
    while step > ratio / STEPS:
        step /= 2
    while 2 * step <= ratio / STEPS:
        step *= 2
    whole = floor(2 * ratio / step)  # cells between −r and r; of another one there is a rest
    grid.account.takes(20 * whole)
    shrink, half = (-step).exp(), (step / 2).exp()
    moved = HALF * ((half - 1) - (1 - 1 / half)) / (1 - shrink)
    kept = HALF * (half - 1) - moved
    masses = [0] * (whole + 2)  # of −(whole + 1), …, 0 steps
    masses[-1] = grid.up(HALF)
    growth = 1 / half
    for j in range(1, whole + 1):
        masses[-j] += grid.up(moved * growth)
        masses[-j - 1] += grid.up(kept * growth)
        growth /= half
    rest, least = 2 * ratio - whole * step, (-ratio).exp()
    rim = HALF * least * ((rest / 2).exp() - 1)  # of the losses from −r on, as far as the first cell
    low = ratio - (whole + 1) * step
    for p, q in ((rim, HALF * (1 - (-rest / 2).exp())), (HALF * least, HALF)):
        above = min(max((p - low.exp() * (q - SLACK)) / (1 - shrink), ZERO), p)
        masses[1] += grid.up(above)
        masses[0] += grid.up(p - above)
    return grid.trimmed(Losses(step, -whole - 1, masses, 0))


def barely_above(excess: Decimal, count: int) -> Decimal:
    """δ = Σ_n 2^(−K) (K over n) E max(1 − e^(2X − e), 0), X a gamma variable of shape n: n of the K coordinates x are positive.

    With h = e/2 the expectation is P(X < h) − e^(−2h) J, J = ∫ e^t t^(n − 1)/(n − 1)! dt from 0 to h; both from n − 1.
    """
    half = excess / 2
    chance, below, integral, power = Decimal(2) ** -count, ONE, ZERO, ONE  # power: h^(n − 1)/(n − 1)!
    found = chance * (1 - (-excess).exp())
    for n in range(1, count + 1):
        chance *= Decimal(count - n + 1) / n
        below -= power / half.exp()
        integral = power * half.exp() - integral - (1 if n == 1 else 0)
        found += chance * max(below - integral / excess.exp(), ZERO)
        power *= half / n
    return found + count * SLACK


def composed_delta(
    epsilon: Decimal, delta: Decimal, laplace: Counter[Decimal], normal_square: Decimal, account: Account
) -> Decimal:
    """δ at ε, from above; of a budget of about `delta`. Laplace ratios are counted."""
    largest = max(laplace, default=ZERO)
    alone = Counter({r: count for r, count in laplace.items() if r >= SMALL * largest and r > 0})
    epsilon -= sum((r * count for r, count in laplace.items() if r < SMALL * largest), ZERO) * ROUND
    if epsilon < 0:
        return ONE
    if not alone:
        return normal_delta(epsilon, normal_square.sqrt() * ROUND) if normal_square else ZERO
    if alone.total() == 1 and not normal_square:
        return max(1 - ((epsilon - largest) / 2).exp(), ZERO) + SLACK
    if len(alone) > MOST_RATIOS or alone.total() > 10**9:
        raise TooLarge(
            f"too large to check: a composition of more than {MOST_RATIOS} different Laplace ratios"
        )
    top = sum((r * count for r, count in alone.items()), ZERO)  # the largest Laplace loss
    if not normal_square and top <= epsilon:
        return ZERO
    if not normal_square and top - epsilon <= 2 * min(alone) and alone.total() <= MOST_COUNTED:
        return barely_above(top - epsilon, alone.total())
    unit, ratio = epsilon or ONE, normal_square.sqrt() * ROUND

    def consumed(points: int) -> Decimal:
        grid = Grid(delta * Decimal("1e-9") / (alone.total() + 1), points, account)
        parts = [grid.power(laplace_losses(grid, r, unit), count) for r, count in alone.items()]
        if normal_square:
            account.takes(normal().work * points / WIDTH)
            cells, infinite = continuous_cells(
                normal(), ratio, grid.tail, epsilon * ratio / (top + ratio), points // WIDTH
            )
            parts.append(grid.losses(cells, unit, infinite))
        return grid.delta(grid.all(parts), epsilon - top)

    return refined(consumed, delta, delta, account)

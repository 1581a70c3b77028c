r"""The allocation under several bounds: the worst mix of changes by the prices of the bounds.

**Water-filling.** Least loss is a saddle point, and the worst mix maximises the concave :math:`\sum_i W_i^{1-q} (a_i^m x_i)^q`, q = p/(p + m), over
the rows of the bounds. At prices :math:`\lambda` of the rows every share has its own maximum, so that prices, at most three of them, are
all that is searched for: the dual is convex and smooth in them. For Laplace noise under L₂ a change of share x takes
:math:`x^2/z` of that row and z of those that change, :math:`x \le z \le 1`: it may be rarer, and larger.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import cvxpy as cp
import numpy as np
from scipy import optimize

from mechdesign.errors import DesignError
from mechdesign.noise.allocation.separable import Allocated, Separable
from mechdesign.noise.allocation.several import LESS, TINY, Changes, Prices, Row
from mechdesign.noise.allocation.solving import answered, priced
from mechdesign.solvers import Deadline
from mechdesign.typing import Array


class Worst(NamedTuple):
    """The worst mix under the rows: its profile, how often each number changes in it where that is not its share, and prices at a budget of 1."""

    mix: Array
    shares: Array | None
    prices: Prices


def worst_mix(changes: Changes, order: float, weight: Array | None) -> Worst:
    """Fill the shares up to the level that the prices of the rows set; the prices by the dual, in their logarithms.

    Where Clarabel solves the program instead, 3 of 40 designs of the deployed grid have no answer, and 11 take at least 3 times as
    long (results/ablations).

    Examples
    --------
    >>> found = worst_mix(Changes(np.array([2.0, 1.0, 1.0]), 1, l1=2.0), 2.0, None)
    >>> found.mix.round(6)
    array([0.666667, 0.666667, 0.666667])
    """
    keep, rows, m = changes.sizes > 0, changes.rows(), changes.spend
    q, top = order / (order + m), float(changes.sizes.max())
    worth = (changes.sizes[keep] / top) ** (m * q)
    worth *= 1.0 if weight is None else (weight[keep] / weight.max()) ** (1 - q)
    entries = np.array([row.entries[keep] / row.most for row in rows])

    def used(x: Array, z: Array) -> Array:
        taken = {"l0": z, "l1": x, "l2": x if rows[-1].exponent == 1 else x * x / np.maximum(z, TINY)}
        return np.array([e @ taken[row.name] for row, e in zip(rows, entries)])

    def dual(logs: Array) -> tuple[float, Array]:
        prices = np.exp(logs)
        x, z = _shares(q * worth, prices, entries, rows, q)
        left = 1 - used(x, z)
        total = float(worth @ x**q + prices @ left)
        return math.log(total), prices * left / total

    with np.errstate(all="ignore"):
        start = np.full(len(rows), math.log(float(worth.sum()) / len(rows)))
        logs = optimize.minimize(dual, start, jac=True, method="BFGS", options={"gtol": 1e-11}).x
        prices = np.exp(logs)
        x, z = _shares(q * worth, prices, entries, rows, q)
        powers = [1 if changes.rarer else row.exponent for row in rows]
        over = max(1.0, *(float(u) ** (1 / power) for u, power in zip(used(x, z), powers)))
    mix, shares = np.zeros(len(keep)), None
    # a little less, so that the rows are kept exactly
    mix[keep] = changes.sizes[keep] * (x / over) ** (1 / m) * (1 - LESS)
    if changes.rarer:
        shares = np.zeros(len(keep))
        shares[keep] = np.minimum(z / over, 1.0) * (1 - LESS / 4)
    paid = prices / (q * float(worth @ x**q))
    named = {row.name: float(price) / row.most for price, row in zip(paid, rows)}
    return Worst(mix, shares, changes.in_units(named))


def _shares(worth: Array, prices: Array, entries: Array, rows: list[Row], q: float) -> tuple[Array, Array]:
    """The x in [0, 1] that maximise worth x^q / q less what x and the share z of its changes pay; z."""
    if rows[-1].exponent == 1:
        x = np.minimum((worth / (prices @ entries)) ** (1 / (1 - q)), 1.0)
        return x, x
    cost = {"l0": np.zeros(len(worth)), "l1": np.zeros(len(worth))}
    cost |= {row.name: price * e for row, price, e in zip(rows, prices, entries)}
    each, slope, steep = cost["l0"], cost["l1"], np.maximum(cost["l2"], TINY)
    part = np.minimum(np.sqrt(each / steep), 1.0)  # of a change that is rare
    rare = (worth / (slope + np.where(part < 1, 2 * part * steep, each + steep))) ** (1 / (1 - q))
    # beyond, it always happens: Newton's method for worth x^(q-1) = slope + 2 steep x, from below
    x = np.minimum((worth / (2 * slope)) ** (1 / (1 - q)), (worth / (4 * steep)) ** (1 / (2 - q)))
    x = np.minimum(x, 1.0)
    for _ in range(8):
        gain = worth * x ** (q - 1)
        x = x + (gain - slope - 2 * steep * x) / ((1 - q) * gain / x + 2 * steep)
    x = np.where(rare <= part, rare, np.clip(x, part, 1.0))
    return x, np.where(part > 0, np.minimum(x / part, 1.0), 1.0)


class SeveralAllocated(NamedTuple):
    """Scales within the budget, the prices that prove it, the worst mix, and the best scales against it."""

    scales: Array
    prices: Prices
    worst: Worst
    against: Allocated


def allocate_several(
    changes: Changes, order: float, weights: Array | None, budget: float
) -> SeveralAllocated:
    """Least scales under several bounds by water-filling, scaled by the least factor at which prices prove the budget kept."""
    worst, m = worst_mix(changes, order, weights), changes.spend
    moved = worst.mix > 0
    weight = None if weights is None else weights[moved]
    against = Separable(worst.mix[moved], weight, order, m, budget).optimum()
    scales = np.zeros(len(moved))
    scales[moved] = against.scales / (1 - LESS)
    # Where the mix underflows, so does the loss: enough noise that the change of that coordinate costs next to nothing.
    lost = (changes.sizes > 0) & (worst.mix < TINY)
    scales = np.where(lost, changes.sizes * (1e12 / budget ** (1 / m)), scales)
    one, two, three = worst.prices
    prices = changes.prices(scales) or (one * budget, two * budget, three * budget)
    margin, spent = 4e-16, changes.rounded(scales, prices)
    while spent > budget:
        factor = (spent / budget) ** (1 / m) * (1 + margin)
        if not 0 < factor < math.inf:
            ends = float(changes.sizes.min()), float(changes.sizes.max())
            allowed = (
                "lie too far apart for doubles: scale them, or leave out the coordinates that hardly change"
            )
            raise DesignError.of("sensitivities", ends, allowed)
        scales, margin = scales * factor, 2 * margin
        prices = prices[0] / factor**m, prices[1] / factor**m, prices[2] / factor**m
        spent = changes.rounded(scales, prices)
    return SeveralAllocated(scales, prices, worst, against)


def largest_spent(changes: Changes, scales: Array, deadline: Deadline | None = None) -> tuple[float, Prices]:
    """An upper bound of what a change consumes at these scales, exact under one row, and the prices that prove it."""
    prices = changes.prices(scales)
    if prices is None:
        gain = (changes.sizes[changes.sizes > 0] / scales[changes.sizes > 0]) ** changes.spend
        size, rows = float(gain.max()), changes.rows()
        kept, total, limits = priced(changes)
        program = cp.Problem(cp.Minimize(total), [gain / size <= kept, *limits])
        solver = "clarabel" if rows[-1].exponent == 2 else None
        found = np.ravel(answered(program, solver, Deadline.of(deadline), {}).primal["prices "])
        named = {row.name: max(float(t), 0.0) * size / row.most for t, row in zip(found, rows)}
        prices = changes.in_units(named)
    return float(changes.spent(scales, prices)), prices

r"""Privacy losses on a grid, from above (chords) and from below (tangents), for composition.

**Grid.** With :math:`x = dP/dQ`, the curve :math:`h(x) = \int (dP - x\,dQ)_+` of a pair (P, Q) is convex, and a pair whose curve is nowhere
lower may replace it in any composition. The curve of masses on points :math:`x_k` is linear between them.

*From above* (connect the dots, Doroshenko et al. 2022): the curve is exact at the points, hence the linear interpolation consists of
    its chords. A cell is replaced by its two ends, with the same P and the same Q.
*From below*: let :math:`t_k` lie within each cell. A function that is at each :math:`x_k` at most the tangents at :math:`t_{k-1}` and
    :math:`t_k`, and linear between, is at most a tangent on every cell. So :math:`h(x_k)` is lowered by the larger of two differences of the
    curve to its tangents: from the outcomes before it, beginning at :math:`t_{k-1}`, and from those after it, up to :math:`t_k`.

Both are of second order in the step, and both are computed from masses of cells, which are relatively accurate in the tails, where
small δ arise, instead of second differences of δ(ε).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mechdesign.accounting.losses import AtomicLoss, CentredLoss, Loss
from mechdesign.checks import refuse
from mechdesign.doubles import LARGEST_POWER, ROUNDED
from mechdesign.typing import Array

MOST = 20_000_000
"""Points of a grid."""
_LEAST = 1e-305
"""Absolute error of a mass among subnormal doubles."""


@dataclass(frozen=True)
class GridLoss:
    """Mass of the privacy loss on the points ``offset + step * (start + k)``.

    Attributes
    ----------
    step : float
    start : int
    mass : ndarray
        Probability under P of each point (sums to 1 − infinity − what was dropped).
    infinity : float
        Probability of an infinite loss.
    offset : float
        Shift of all points: the possible rounding of losses, in the safe direction for `pessimistic`.
    pessimistic : bool
        Whether δ computed from the grid is an upper bound (else a lower one).
    """

    step: float
    start: int
    mass: Array
    infinity: float
    offset: float
    pessimistic: bool

    @cached_property
    def points(self) -> Array:
        """The loss values, without their offset."""
        return self.step * (self.start + np.arange(self.mass.size, dtype=float))

    @cached_property
    def log_mass(self) -> Array:
        """Logarithms of the mass, which every tilt starts from."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.mass), dtype=float)


@dataclass(frozen=True)
class Cells:
    """Outcomes between neighbouring points of a grid, as the integrals that chords and tangents need.

    Attributes
    ----------
    mass : ndarray
        P of each cell.
    lift : ndarray
        P − x Q, x at its lower end; not finite if the ratio overflows.
    below : ndarray
        The same for the outcomes up to the tangent point.
    above : ndarray
        x Q − P, x at the upper end, for the outcomes after it.
    mass_error, error : ndarray
        Error bounds of the masses, and of each of the other three.
    """

    mass: Array
    lift: Array
    below: Array
    above: Array
    mass_error: Array
    error: Array

    def on_grid(self, step: float, first: float, *, pessimistic: bool, also: Array | float = 0.0) -> Array:
        """Return the masses on the ends of the cells, the first at the loss `first` steps, with the masses `also` added."""
        near = np.isfinite(self.lift) & np.isfinite(self.error) & np.isfinite(self.above)
        sign = 1 if pessimistic else -1
        mass = np.maximum(self.mass + sign * self.mass_error, 0.0)
        lift = np.full(mass.size, math.inf if pessimistic else 0.0)
        lift[near] = self.lift[near] + sign * self.error[near]
        high = np.clip(lift / -math.expm1(-step), 0.0, mass)
        if pessimistic:
            return np.asarray(np.append(mass - high, 0.0) + np.append(0.0, high) + also)
        coarse, at = 0, first + np.arange(mass.size, dtype=float)
        while True:
            # the first cells, if tangents leave the curve no mass, keep their outcomes at their lower ends
            near[:coarse] = False
            whole = np.append(np.where(near, 0.0, mass), 0.0)
            low, high = (np.where(near, ends, 0.0) for ends in (mass - high, high))
            found = self._lowered(low, high, step, at, also)
            coarse = 4 * coarse + 4
            if found.any() or coarse > mass.size:
                return whole + found

    def _lowered(self, low: Array, high: Array, step: float, at: Array, also: Array | float) -> Array:
        """Lower the chords' masses, of the lower and upper ends of cells, to the tangents; `at`: the cell's lower end, in steps."""
        out = np.append(low, 0.0) + also
        if step > LARGEST_POWER:
            return np.zeros(out.size) + also
        up, down = math.expm1(step), -math.expm1(-step)
        out[1:] += high
        below, above = (
            np.where(low + high > 0, np.maximum(v, 0.0) + self.error, 0.0) for v in (self.below, self.above)
        )
        # A tangent lies neither below 0 nor below 1 − x: if the one at a cell's middle would, the one at its end is used.
        behind = down * np.append(np.cumsum(out[:1:-1])[::-1], 0.0)
        before = up * np.append(0.0, np.cumsum(out)[:-2])
        last, first = above > behind, below > before
        last[-1], first[0] = True, True
        last, first = last & (at > -1e-9), first & (at < 1e-9 - 1)
        below = np.where(last, down * high, np.where(first, 0.0, below))
        above = np.where(last, 0.0, np.where(first, up * low, above))
        drop = np.zeros(out.size)
        drop[1:-1] = np.maximum(above[:-1], below[1:])
        drop[0] = below[0]  # Q may be more than 1
        if above[-1] > 0:  # the last cell spans 0: the grid is too coarse
            return np.zeros(out.size) + also
        slope = np.diff(drop)
        out[0] += drop[0]
        out[:-1] -= slope / up
        out[1:] += slope / down
        return _convex(out, step)


def _convex(found: Array, step: float) -> Array:
    """Lower a piecewise linear curve until no mass is negative; return no mass if a hull would end below the largest loss."""
    where = [int(k) for k in np.flatnonzero(found < 0)]
    if not where:
        return found
    mass, size = found.tolist(), found.size  # lists: a million single numbers are read and written
    before, behind = list(range(-1, size - 1)), list(range(1, size + 1))
    while where:
        k = where.pop()
        lack = mass[k]
        if lack >= 0:
            continue
        a, b = before[k], behind[k]
        if b == size:
            return np.zeros(size)
        # below the least loss, a lack of mass weighs more at the next one
        share = math.expm1((a - k) * step) / math.expm1((a - b) * step) if a >= 0 else 1.0
        mass[k], mass[b], before[b] = 0.0, mass[b] + share * lack, a
        if a >= 0:
            mass[a], behind[a] = mass[a] + (1 - share) * lack, b
        where += [j for j in (a, b) if mass[j] < 0]
    return np.array(mass)


def cells_of(
    loss: CentredLoss, x: Array, ratios: Array, off: Array | float = 0.0, *, without: Iterable[float] = ()
) -> tuple[Cells, Array, Array, Array]:
    """Return the cells between every other of the points x, with tangents at the points between; `ratios` at their ends have relative errors `off`.

    Parameters
    ----------
    without : iterable of float
        Atoms of the loss that are left out of the cells.

    Returns
    -------
    cells : Cells
    fall, q, q_error : ndarray
        x Q − P of each cell, x at its upper end; Q, and the error of Q.
    """
    ends = np.array([np.clip(outcomes(loss, atom), x[0], x[-1]) for atom in without]).reshape(-1, 2)
    cuts = np.sort(np.concatenate([x, ends.ravel()]))
    kept = np.ones(cuts.size - 1)
    for left, right in ends:
        kept[np.searchsorted(cuts, left) : np.searchsorted(cuts, right)] = 0.0
    half = np.minimum(np.searchsorted(x, cuts[:-1], side="right"), x.size - 1) - 1
    p, q, p_error, q_error = (
        np.asarray(np.bincount(half, kept * v, x.size - 1), dtype=float).reshape(-1, 2)
        for v in loss.masses(cuts)
    )
    low, high = ratios[:-1], ratios[1:]
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        rises, falls = p - low[:, None] * q, high[:, None] * q - p
        error = (p_error + high[:, None] * (q_error + _LEAST + off * q)).sum(axis=1)
        cells = Cells(p.sum(axis=1), rises.sum(axis=1), rises[:, 0], falls[:, 1], p_error.sum(axis=1), error)
        return cells, falls.sum(axis=1), q.sum(axis=1), q_error.sum(axis=1)


def far_end(loss: CentredLoss, tail: float, most: float = math.inf) -> tuple[float, float]:
    """Return the point beyond which losses exceed `most` or have probability `tail` under P, and its loss; infinity if the loss ends in an atom."""
    if loss.atoms and loss.edge == math.inf == float(loss.inverse(loss.atoms[0])) and loss.atoms[0] <= most:
        return math.inf, loss.atoms[0]
    x = min(float(loss.isf(tail)) + loss.sensitivity / 2, loss.edge)
    if float(loss.loss(x)) > most:
        x = float(loss.inverse(most))
    return x, float(loss.loss(x))


def outcomes(loss: CentredLoss, atom: float) -> tuple[float, float]:
    """Return the ends of the interval of outcomes that have this loss."""
    return -float(loss.inverse(-atom)), float(loss.inverse(atom))


def on_points(losses: Array, step: float) -> Array:
    """Return which losses are points of a grid, up to rounding."""
    return np.asarray(np.abs(losses / step - np.round(losses / step)) < 1e-9)


def discretise(
    loss: Loss,
    step: float,
    *,
    pessimistic: bool,
    upper_tail: float,
    lower_tail: float,
    most: float = math.inf,
    least: float = -math.inf,
) -> GridLoss:
    """Discretise the privacy loss of one coordinate.

    Parameters
    ----------
    loss : CentredLoss or AtomicLoss
    step : float
        Distance of grid points; choose a divisor of the atoms, if any.
    pessimistic : bool
    upper_tail, lower_tail : float
        Probabilities beyond which large and small losses are merged: upwards into infinity and the lowest
        point when pessimistic, else downwards, or dropped.
    most : float
        Losses above it, or below its negative, are merged likewise. The others sum to less than ``ε - most`` with probability e^(ε − most) at most.
    least : float
        Outcomes with losses up to this add nothing to δ, whatever the others are, and may be left out.

    Returns
    -------
    GridLoss
    """
    if isinstance(loss, AtomicLoss):
        near = loss.values > least
        loss = loss if near.all() else AtomicLoss(loss.values[near], loss.mass[near], loss.infinity)
        return discretise_atoms(loss, step, pessimistic=pessimistic, most=most)
    if loss.edge <= 0:
        return GridLoss(step, 0, np.zeros(1), 1.0, 0.0, pessimistic)
    half = loss.sensitivity / 2
    x_high, largest = far_end(loss, upper_tail, most)
    x_low, smallest = -x_high, -largest
    if math.isfinite(x_high):
        x_low = max(-float(loss.isf(lower_tail)) + half, -loss.edge)
        if float(loss.loss(x_low)) < -most or x_low >= x_high:
            x_low = -x_high
        smallest = float(loss.loss(x_low))
    raised = step * math.floor(min(least, largest) / step - 1) if least > smallest else -math.inf
    if left_out := raised > smallest:
        smallest = raised
        x_low = float(loss.inverse(smallest))
    first, last = math.floor(smallest / step - 1e-9), math.ceil(largest / step - 1e-9)
    last = max(last, first + 1)
    allowed = f"needs {last - first} grid points for this law; use a larger step"
    refuse(last - first > MOST, "step", step, allowed)
    levels = step / 2 * np.arange(2 * first, 2 * last + 1)
    x = np.clip(loss.inverse(levels), x_low, x_high)
    x[0], x[-1] = x_low, x_high
    inside = (x > x_low) & (x < x_high)
    slop = float(np.max(np.abs(loss.loss(x[inside]) - levels[inside]), initial=0.0))
    slop += 1e-15 * max(1.0, -math.log(max(upper_tail, 1e-308)))
    atoms = np.array([*loss.atoms, *(-atom for atom in loss.atoms)])
    atoms = atoms[on_points(atoms, step)]
    with np.errstate(over="ignore"):
        cells, *_ = cells_of(loss, x, np.exp(levels[::2]), without=atoms)
    also = np.zeros(last - first + 1)
    for atom in atoms[(atoms >= smallest) & (atoms <= largest)]:
        k = round(atom / step)
        p, _, error, _ = loss.masses(np.clip(outcomes(loss, atom), x_low, x_high))
        also[k - first] += max(float(p[0] + error[0] if pessimistic else p[0] - error[0]), 0.0)
        slop = max(slop, abs(atom - k * step) + 1e-15 * abs(atom))
    below, beyond = loss.outside(x_low, x_high)
    if pessimistic:
        also[0] += 0.0 if left_out else below * (1 + 1e-12)
        infinite = beyond * (1 + 1e-12 + loss.end_error)
    else:
        infinite = beyond * max(1 - 1e-12 - loss.end_error, 0.0)
        if x_high < loss.edge:  # their losses are at least the last point but one
            also[-2], infinite = also[-2] + infinite, 0.0
    mass = cells.on_grid(step, first, pessimistic=pessimistic, also=also)
    grid = GridLoss(step, first, mass, infinite, slop if pessimistic else -slop, pessimistic)
    return grid if pessimistic or left_out else known(grid, also)


def known(grid: GridLoss, also: Array | float = 0.0) -> GridLoss:
    """Return a grid from below; if it holds less than half of the mass, its cells are too coarse, and all outcomes but `also` are merged into one."""
    if float(grid.mass.sum()) + grid.infinity >= 0.5:
        return grid
    told = min(float(np.sum(also)) + grid.infinity, 1 - 1e-15)
    low = math.floor((math.log1p(-told) - grid.offset) / grid.step - 1e-9) - grid.start
    if abs(low) > MOST:
        return grid
    mass = np.zeros(max(grid.mass.size, low + 1) - min(low, 0))
    mass[-min(low, 0) :][: grid.mass.size] += also
    mass[max(low, 0)] += (1 - told) * (1 - ROUNDED)
    return replace(grid, start=grid.start + min(low, 0), mass=mass)


def discretise_atoms(loss: AtomicLoss, step: float, *, pessimistic: bool, most: float = math.inf) -> GridLoss:
    """Put atoms on a grid, from above (two neighbours each) or from below; losses beyond `most` as `discretise` does."""
    if (loss.values > most).any():
        loss = loss.up_to(most, pessimistic=pessimistic)
    if not loss.values.size:
        return GridLoss(step, 0, np.zeros(1), loss.infinity, 0.0, pessimistic)
    where = loss.values / step
    nearest = np.round(where)
    on_grid = on_points(loss.values, step)
    low = np.where(on_grid, nearest, np.floor(where))
    start, points = low.min(), float(np.ptp(low))
    refuse(points > MOST, "step", step, f"needs {points:.3g} grid points for these losses; use a larger step")
    start, index = int(start), (low - start).astype(np.int64)
    # distance of an atom on the grid from its point: about rounding, if the grid was aligned with it
    off = (loss.values - step * nearest)[on_grid] * (1 if pessimistic else -1)
    slop = float(np.max(off + 1e-15 * np.abs(loss.values[on_grid]), initial=0.0))
    far = np.where(on_grid, 0.0, np.clip(loss.values - low * step, 0.0, step))
    lift, lower = loss.mass * -np.expm1(-far), far < step / 2
    with np.errstate(over="ignore"):
        fall = loss.mass * np.expm1(np.where(lower | (loss.mass == 0), 0.0, step - far))  # 0 · ∞ is NaN
    sums = (loss.mass, lift, lift * lower, fall)
    mass, lift, below, above = (np.asarray(np.bincount(index, v, index.max() + 1), dtype=float) for v in sums)
    cells = Cells(mass, lift, below, above, ROUNDED * mass, ROUNDED * (lift + above))
    infinite = loss.infinity if pessimistic else loss.infinity * (1 - ROUNDED)
    mass = cells.on_grid(step, start, pessimistic=pessimistic)
    grid = GridLoss(step, start, mass, infinite, slop if pessimistic else -slop, pessimistic)
    return grid if pessimistic else known(grid)

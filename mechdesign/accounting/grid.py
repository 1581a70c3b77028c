r"""Privacy losses on a grid, from above (chords) and from below (tangents).

With :math:`x = dP/dQ`, the curve :math:`h(x) = \int (dP - x\,dQ)_+` of a pair (P, Q) is convex, and a pair whose curve is nowhere
lower may take its place in any composition. That of masses on points :math:`x_k` is linear between them.

*From above* (connect the dots, Doroshenko et al. 2022): the curve is exact at the points, hence what is linear between them lies on
    its chords. A cell is replaced by its two ends, with the same P and the same Q.
*From below*: let :math:`t_k` lie within each cell. A function that is at each :math:`x_k` at most the tangents at :math:`t_{k-1}` and
    :math:`t_k`, and linear between, is at most a tangent on every cell. So :math:`h(x_k)` is lowered by the larger one of what the
    outcomes before, from :math:`t_{k-1}` on, and those behind, up to :math:`t_k`, rise above their tangents.

Both are of second order in the step, and both are made from masses of cells, which keep their relative accuracy in the tails, where
small δ live, instead of second differences of δ(ε).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mechdesign.accounting.losses import AtomicLoss, CentredLoss, Loss
from mechdesign.errors import DesignError
from mechdesign.typing import Array

MOST = 20_000_000
"""Points of a grid."""
_LEAST = 1e-305
"""What a mass is off by where doubles have fewer digits."""
_WIDEST = 700.0
"""A step whose exponential doubles hold."""
_OFF = 1e-14
"""Relative error of sums of masses."""


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
        Of all points: where rounding may have moved losses, in the direction that matters for `pessimistic`.
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
    """Outcomes between neighbouring points of a grid, by what chords and tangents ask of them.

    Attributes
    ----------
    mass : ndarray
        P of each cell.
    lift : ndarray
        P − x Q, x of its lower end; not finite where the ratio is beyond the doubles.
    below : ndarray
        The same, of the outcomes up to the tangent point.
    above : ndarray
        x Q − P, x of the upper end, of the outcomes behind it.
    mass_error, error : ndarray
        Of the masses, and of each of the other three.
    """

    mass: Array
    lift: Array
    below: Array
    above: Array
    mass_error: Array
    error: Array

    def on_grid(self, step: float, first: float, *, pessimistic: bool) -> Array:
        """The masses on the points around the cells, one more than these, from the loss `first` steps on."""
        near = np.isfinite(self.lift) & np.isfinite(self.error) & np.isfinite(self.above)
        sign = 1 if pessimistic else -1
        mass = np.maximum(self.mass + sign * self.mass_error, 0.0)
        lift = np.full(mass.size, math.inf if pessimistic else 0.0)
        lift[near] = self.lift[near] + sign * self.error[near]
        high = np.clip(lift / -math.expm1(-step), 0.0, mass)
        out = np.zeros(mass.size + 1)
        if pessimistic:
            out[1:] = high
            out[:-1] += mass - high
            return out
        out[:-1] = np.where(near, 0.0, mass)
        low, high = (np.where(near, ends, 0.0) for ends in (mass - high, high))
        return out + self._lowered(low, high, step, first + np.arange(mass.size, dtype=float))

    def _lowered(self, low: Array, high: Array, step: float, at: Array) -> Array:
        """The chords' masses, of the lower and upper ends of cells, brought down to the tangents; `at`: the cell's lower end, in steps."""
        out = np.append(low, 0.0)
        if step > _WIDEST:
            return np.zeros(out.size)
        up, down = math.expm1(step), -math.expm1(-step)
        out[1:] += high
        below, above = (
            np.where(low + high > 0, np.maximum(v, 0.0) + self.error, 0.0) for v in (self.below, self.above)
        )
        # A tangent lies neither below 0 nor below 1 − x: where that of the middle of a cell would, its end's is taken.
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
        if above[-1] > 0:  # the last cell spans 0, on so coarse a grid that nothing is known
            return np.zeros(out.size)
        slope = np.diff(drop)
        out[0] += drop[0]
        out[:-1] -= slope / up
        out[1:] += slope / down
        return _convex(out, step)


def _convex(mass: Array, step: float) -> Array:
    """Lower a piecewise linear curve to one on which no mass is negative; none is left where a hull would end below the largest loss."""
    where = [int(k) for k in np.flatnonzero(mass < 0)]
    before, behind = (np.arange(mass.size) + move for move in ((-1, 1) if where else (0, 0)))
    while where:
        k = where.pop()
        lack = mass[k]
        if lack >= 0:
            continue
        a, b = before[k], behind[k]
        if b == mass.size:
            return np.zeros(mass.size)
        # below the least loss, a lack of mass weighs more at the next one
        share = math.expm1((a - k) * step) / math.expm1((a - b) * step) if a >= 0 else 1.0
        mass[k], mass[b], before[b] = 0.0, mass[b] + share * lack, a
        if a >= 0:
            mass[a], behind[a] = mass[a] + (1 - share) * lack, b
        where += [j for j in (a, b) if mass[j] < 0]
    return mass


def cells_of(
    loss: CentredLoss, x: Array, ratios: Array, off: Array | float = 0.0, *, without: Iterable[float] = ()
) -> tuple[Cells, Array, Array, Array]:
    """Cells between every other of the points x, tangents touching at those between; `ratios` at their ends are off by `off`, relative.

    Parameters
    ----------
    without : iterable of float
        Atoms of the loss that are left out of the cells.

    Returns
    -------
    cells : Cells
    fall, q, q_error : ndarray
        x Q − P of each cell, x of its upper end; Q, and the error of Q.
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


def far_end(loss: CentredLoss, tail: float) -> tuple[float, float]:
    """Where larger losses have but this probability under P, and the loss there: of a loss that ends in an atom, at infinity."""
    if loss.atoms and loss.edge == math.inf == float(loss.inverse(loss.atoms[0])):
        return math.inf, loss.atoms[0]
    x = min(float(loss.isf(tail)) + loss.sensitivity / 2, loss.edge)
    return x, float(loss.loss(x))


def outcomes(loss: CentredLoss, atom: float) -> tuple[float, float]:
    """Between which points the outcomes lie that have this loss."""
    return -float(loss.inverse(-atom)), float(loss.inverse(atom))


def on_points(losses: Array, step: float) -> Array:
    """Which of the losses are points of a grid, but for roundings."""
    return np.asarray(np.abs(losses / step - np.round(losses / step)) < 1e-9)


def discretise(
    loss: Loss, step: float, *, pessimistic: bool, upper_tail: float, lower_tail: float
) -> GridLoss:
    """Discretise the privacy loss of one coordinate.

    Parameters
    ----------
    loss : CentredLoss or AtomicLoss
    step : float
        Distance of grid points; pick a divisor of the atoms, if any.
    pessimistic : bool
    upper_tail, lower_tail : float
        Probabilities beyond which large and small losses are merged: upwards into infinity and the lowest
        point when pessimistic, else dropped.

    Returns
    -------
    GridLoss
    """
    if isinstance(loss, AtomicLoss):
        return discretise_atoms(loss, step, pessimistic=pessimistic)
    if loss.edge <= 0:
        return GridLoss(step, 0, np.zeros(1), 1.0, 0.0, pessimistic)
    half = loss.sensitivity / 2
    x_high, largest = far_end(loss, upper_tail)
    x_low, smallest = -x_high, -largest
    if math.isfinite(x_high):
        x_low = max(-float(loss.isf(lower_tail)) + half, -loss.edge)
        smallest = float(loss.loss(x_low))
    first, last = math.floor(smallest / step - 1e-9), math.ceil(largest / step - 1e-9)
    last = max(last, first + 1)
    if last - first > MOST:
        raise DesignError.of(
            "step", step, f"needs {last - first} grid points for this law; use a larger step"
        )
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
    mass = cells.on_grid(step, first, pessimistic=pessimistic)
    for atom in atoms[(atoms >= smallest) & (atoms <= largest)]:
        k = round(atom / step)
        p, _, error, _ = loss.masses(np.clip(outcomes(loss, atom), x_low, x_high))
        mass[k - first] += max(float(p[0] + error[0] if pessimistic else p[0] - error[0]), 0.0)
        slop = max(slop, abs(atom - k * step) + 1e-15 * abs(atom))
    below, beyond = loss.outside(x_low, x_high)
    if pessimistic:
        mass[0] += below * (1 + 1e-12)
        return GridLoss(step, first, mass, beyond * (1 + 1e-12 + loss.end_error), slop, True)
    infinite = beyond * max(1 - 1e-12 - loss.end_error, 0.0) if x_high == loss.edge else 0.0
    return GridLoss(step, first, mass, infinite, -slop, False)


def discretise_atoms(loss: AtomicLoss, step: float, *, pessimistic: bool) -> GridLoss:
    """Put atoms on a grid, from above (two neighbours each) or from below."""
    if not loss.values.size:
        return GridLoss(step, 0, np.zeros(1), 0.0, 0.0, pessimistic)
    where = loss.values / step
    nearest = np.round(where)
    on_grid = on_points(loss.values, step)
    low = np.where(on_grid, nearest, np.floor(where))
    start = int(low.min())
    index = (low - start).astype(np.int64)
    # how far from its point an atom on the grid is: hardly more than rounding, where the grid was aligned with it
    off = (loss.values - step * nearest)[on_grid] * (1 if pessimistic else -1)
    slop = float(np.max(off + 1e-15 * np.abs(loss.values[on_grid]), initial=0.0))
    far = np.where(on_grid, 0.0, np.clip(loss.values - low * step, 0.0, step))
    lift, lower = loss.mass * -np.expm1(-far), far < step / 2
    with np.errstate(over="ignore"):
        fall = loss.mass * np.expm1(np.where(lower | (loss.mass == 0), 0.0, step - far))  # 0 · ∞ is no number
    sums = (loss.mass, lift, lift * lower, fall)
    mass, lift, below, above = (np.asarray(np.bincount(index, v, index.max() + 1), dtype=float) for v in sums)
    cells = Cells(mass, lift, below, above, _OFF * mass, _OFF * (lift + above))
    infinite = loss.infinity if pessimistic else loss.infinity * (1 - _OFF)
    return GridLoss(
        step,
        start,
        cells.on_grid(step, start, pessimistic=pessimistic),
        infinite,
        slop if pessimistic else -slop,
        pessimistic,
    )

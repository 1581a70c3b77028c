r"""Privacy losses on a grid, from above and from below.

A pair (P, Q) of output laws is cut into cells of the privacy loss. With p and q the masses of one cell:

*from above* (connect the dots, Doroshenko et al. 2022): the cell is replaced by two points, its ends on the
    grid, with the same p and the same q. A hockey-stick divergence is a convex function of dQ/dP, so the
    replacement dominates (P, Q).
*from below*: the cell is replaced by one point, of loss log(p/q). That is post-processing, so (P, Q)
    dominates the replacement. The cells are centred so that log(p/q) falls on the grid up to a residual
    of higher order, and the largest residual is carried along as `slop`.

Both are of second order in the step. Working with masses instead of second differences of δ(ε) keeps the
relative accuracy in the tails, which is where small δ live.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mechdesign.accounting.law import AtomicLoss
from mechdesign.accounting.loss import Loss
from mechdesign.errors import DesignError

__all__ = ["GridLoss", "contract", "discretise", "discretise_atoms", "spread"]


@dataclass(frozen=True)
class GridLoss:
    """Mass of the privacy loss on the points ``step * (start + k)``.

    Attributes
    ----------
    step : float
    start : int
    mass : ndarray
        Probability under P of each point (sums to 1 − infinity − what was dropped).
    infinity : float
        Probability of an infinite loss.
    slop : float
        True losses are within this of the grid, in the direction that matters for `pessimistic`.
    pessimistic : bool
        Whether δ computed from the grid is an upper bound (else a lower one).
    """

    step: float
    start: int
    mass: np.ndarray
    infinity: float
    slop: float
    pessimistic: bool

    @property
    def points(self) -> np.ndarray:
        """The loss values."""
        return self.step * (self.start + np.arange(self.mass.size))


def discretise(
    loss: Loss,
    step: float,
    *,
    pessimistic: bool,
    upper_tail: float,
    lower_tail: float,
    theta: float = 0.0,
    exact: bool = False,
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
    theta : float
        Tilt at which the grid will be used: decides which cells of a lower bound deserve accuracy.
    exact : bool
        Keep the slop of a lower bound at rounding level, whatever it costs elsewhere: right when δ hangs on
        atoms that barely pass ε.

    Returns
    -------
    GridLoss
    """
    if isinstance(loss, AtomicLoss):
        return discretise_atoms(loss, step, pessimistic=pessimistic, theta=theta)
    half = loss.sensitivity / 2
    x_high = min(float(loss.isf(upper_tail)) + half, loss.edge)
    x_low = max(-float(loss.isf(lower_tail)) + half, -loss.edge)
    if not x_low < x_high:
        return GridLoss(step, 0, np.zeros(1), 1.0, 0.0, pessimistic)
    largest, smallest = float(loss.loss(x_high)), float(loss.loss(x_low))
    first, last = math.floor(smallest / step - 1e-9), math.ceil(largest / step - 1e-9)
    last = max(last, first + 1)
    if last - first > 20_000_000:
        raise DesignError.of(
            "step", step, f"needs {last - first} grid points for this law; use a larger step"
        )
    evaluation = 1e-15 * max(1.0, -math.log(max(upper_tail, 1e-308)))
    # P(loss infinite) and P(beyond x_high), both under the query whose loss is looked at
    beyond = float(loss.sf(x_high - half))
    if pessimistic:
        grid = step * np.arange(first, last + 1)
        x = np.clip(loss.inverse(grid), x_low, x_high)
        x[0], x[-1] = x_low, x_high
        inside = (x > x_low) & (x < x_high)
        slop = float(np.max(np.abs(loss.loss(x[inside]) - grid[inside]), initial=0.0)) + evaluation
        low, mass = spread(*loss.masses(x), grid)
        mass[0] += float(loss.sf(-(x_low - half))) * (1 + 1e-12)
        return GridLoss(step, first + low, mass, beyond * (1 + 1e-12 + loss.end_error), slop, True)
    centres = step * np.arange(first, last + 1)
    bounds = step * (np.arange(first, last + 2) - 0.5)

    def cells(bounds: np.ndarray) -> tuple[np.ndarray, ...]:
        x = np.clip(loss.inverse(bounds), x_low, x_high)
        x[0], x[-1] = x_low, x_high
        return loss.masses(x)

    p, q, p_error, q_error = cells(bounds)
    # Shift the bounds by the mean residual of their two cells: what is left is of fourth order.
    with np.errstate(divide="ignore", invalid="ignore"):
        residual = np.nan_to_num(np.log(p / q) - centres, nan=0.0, posinf=0.0, neginf=0.0)
    residual[np.abs(residual) > step / 8] = 0.0
    shift = np.zeros_like(bounds)
    shift[1:-1] = -(residual[:-1] + residual[1:]) / 2
    x = np.clip(loss.inverse(bounds + shift), x_low, x_high)
    x[0], x[-1] = x_low, x_high
    # An atom is a cell of its own: merged with its neighbours it would leave the grid.
    for atom in (*loss.atoms, *(-a for a in loss.atoms)):
        left, right = np.clip([-float(loss.inverse(-atom)), float(loss.inverse(atom))], x_low, x_high)
        if left < right:
            i, j = np.searchsorted(x, [left, right])
            x = np.concatenate([x[:i], [left, right], x[j:]])
    p, q, p_error, q_error = loss.masses(x)
    infinite = beyond if x_high == loss.edge else 0.0
    inner = (first - 1, last + 1)
    grid_loss = contract(
        np.maximum(p - p_error, 0), q + q_error, step, theta=theta, exact=exact, window=inner
    )
    return GridLoss(
        step,
        grid_loss.start,
        grid_loss.mass,
        infinite * max(1 - 1e-12 - loss.end_error, 0.0),
        grid_loss.slop + evaluation,
        False,
    )


def discretise_atoms(
    loss: AtomicLoss, step: float, *, pessimistic: bool, theta: float = 0.0, smear: bool = False
) -> GridLoss:
    """Put atoms on a grid, from above (two neighbours each) or from below.

    With `smear`, sorted atoms that are dense on the grid are shared out between cells as if each filled the
    gap to its neighbours (randomised post-processing, so still from below): without it the number of atoms
    per cell would jump, and the error be of first order.
    """
    where = loss.values / step
    nearest = np.round(where)
    if pessimistic:
        on_grid = np.abs(where - nearest) < 1e-9
        low = np.where(on_grid, nearest, np.floor(where))
        share = np.clip(np.expm1(np.minimum(low * step - loss.values, 0)) / math.expm1(-step), 0, 1)
        share = np.where(on_grid, 0.0, share)
        start = int(low.min())
        index = (low - start).astype(np.int64)
        mass = np.bincount(index, weights=loss.mass * (1 - share), minlength=index.max() + 2)
        mass += np.bincount(index + 1, weights=loss.mass * share, minlength=index.max() + 2)
        # how far above its point an atom on the grid is: hardly more than rounding, where the grid was aligned with it
        above = (loss.values - step * nearest)[on_grid] + 1e-15 * np.abs(loss.values[on_grid])
        slop = float(np.max(above, initial=0.0))
        return GridLoss(step, start, mass * (1 + 1e-14), loss.infinity, slop, True)
    share = np.ones_like(where)
    if smear and where.size > 2:
        middle = (where[1:] + where[:-1]) / 2
        low = np.concatenate([[where[0]], middle])
        high = np.concatenate([middle, [where[-1]]])
        cell = np.floor(low + 0.5)
        split = np.floor(high + 0.5) == cell + 1
        share = np.where(split, (cell + 0.5 - low) / np.where(split, high - low, 1.0), 1.0)
        nearest = np.where(split, cell, nearest)
    start = int(nearest.min())
    index = (nearest - start).astype(np.int64)
    q_mass = loss.mass * np.exp(-loss.values)
    size = index.max() + 2
    p, q = (
        np.bincount(index, weights=m * share, minlength=size)
        + np.bincount(index + 1, weights=m * (1 - share), minlength=size)
        for m in (loss.mass, q_mass)
    )
    out = contract(p * (1 - 1e-14), q, step, theta=theta)
    return GridLoss(step, out.start, out.mass, loss.infinity * (1 - 1e-14), out.slop, False)


def spread(
    p: np.ndarray, q: np.ndarray, p_error: np.ndarray, q_error: np.ndarray, grid: np.ndarray
) -> tuple[int, np.ndarray]:
    """Connect the dots: split the masses of the cells (grid[i], grid[i+1]] between their two ends.

    Rounding goes upwards: the mass p, and within it the share of the upper end.
    """
    step = grid[1] - grid[0]
    # w_hi + w_lo = p,  w_hi e^{-hi} + w_lo e^{-lo} = q
    p = p + p_error
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = np.exp(np.minimum(grid[:-1], 700.0))
        high = (p - ratio * np.maximum(q - q_error, 0)) / -math.expm1(-step)
        high = high + 4e-16 * p / step
    high = np.clip(np.nan_to_num(high, nan=0.0), 0, p)
    mass = np.zeros(grid.size)
    mass[1:] += high
    mass[:-1] += p - high
    return 0, mass


def contract(
    p: np.ndarray,
    q: np.ndarray,
    step: float,
    *,
    theta: float = 0.0,
    exact: bool = False,
    window: tuple[int, int] | None = None,
) -> GridLoss:
    """Merge each cell into one point of the grid, or the point below where that costs less.

    Cell i has masses p[i], q[i] and therefore loss log(p/q), nearest to some point of the grid. A residual −e
    below that point is paid either by moving the cell one point down, or by all coordinates as slop; the
    cheaper mix is taken (the cost of the moves, weighted by the masses tilted by e^{θL}, against e).

    What rounding puts outside the `window` of points, where a cell holds no more mass than its error, is moved down to its
    upper end, or dropped below its lower one: both are from below.
    """
    alive = (p > 0) & (q > 0)
    p, q = p[alive], q[alive]
    if p.size == 0:
        return GridLoss(step, 0, np.zeros(1), 0.0, 0.0, False)
    value = np.log(p) - np.log(q)
    k = np.round(value / step)
    if window is not None:
        known = k >= window[0]
        p, q, value, k = p[known], q[known], value[known], np.minimum(k[known], window[1])
        if p.size == 0:
            return GridLoss(step, 0, np.zeros(1), 0.0, 0.0, False)
    residual = np.minimum(value - step * k, 0.0)
    # Moving every cell whose residual is below -slop costs about step * (their mass).
    order = np.argsort(residual)
    with np.errstate(under="ignore"):
        exponent = np.log(p) + theta * step * k
        weights = np.exp(exponent - exponent.max())
    moved = np.concatenate([[0.0], np.cumsum(weights[order])])[:-1] / weights.sum()
    best = int(np.argmin(step * moved - residual[order]))
    slop = float(-residual[order][best])
    if exact:
        small = -residual[-residual < 1e-12]
        slop = float(small.max()) if small.size else 0.0
    down = np.ceil(np.maximum(-residual - slop, 0) / step - 1e-9)
    down = np.where(-residual > slop, np.maximum(down, 1), 0)
    target = (k - down).astype(np.int64)
    start = int(target.min())
    mass = np.bincount(target - start, weights=p)
    return GridLoss(step, start, mass, 0.0, slop, False)

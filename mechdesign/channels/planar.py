r"""Planar Laplace noise on a grid: the baseline of location privacy.

Noise of density :math:`\frac{α^2}{2π} e^{-α\|z\|}` added to a point of the plane is α-private for the Euclidean
distance; snapping the sum to the nearest grid point is post-processing. The probability of each report is the
integral of the density over the report's cell, which for cells at the border reaches to infinity.
"""

from __future__ import annotations

import math

import numpy as np

from mechdesign.channels.channel import Channel
from mechdesign.errors import DesignError
from mechdesign.problem.checks import DOWN, positive
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array

__all__ = ["planar_laplace"]


_REACH = 40.0  # e^{-40}: what lies further than 40/α beyond the border is nothing in doubles
_NODES = 24


def _cells(alpha: float, count: int) -> Array:
    """Probability of the cell at offset (i, j) in grid steps, i and j below `count`; `alpha` per step."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    nodes, weights = nodes / 2, weights / 2
    out = np.empty((count, count))
    for i in range(count):
        across = (i + nodes)[:, None, None]
        along = (np.arange(count)[:, None] + nodes)[None]
        density = np.exp(-alpha * np.hypot(across, along))
        out[i] = np.einsum("a,ajb,b->j", weights, density, weights) * alpha**2 / (2 * math.pi)
    # The density has a cusp at the origin; in polar coordinates its own cell is smooth.
    angle = math.pi / 8 * (1 + 2 * nodes)
    reach = alpha / (2 * np.cos(angle))
    out[0, 0] = float((weights * (-np.expm1(-reach) - reach * np.exp(-reach))).sum())
    return out


def _snapped(count: int, reach: int) -> Array:
    """Row i·count + a counts, for every |offset| below `reach`, how often i + offset snaps to a."""
    out = np.zeros((count, count, reach))
    offsets = np.arange(1 - reach, reach)
    for i in range(count):
        np.add.at(out[i], (np.clip(i + offsets, 0, count - 1), np.abs(offsets)), 1.0)
    return out.reshape(count * count, reach)


def planar_laplace(space: MetricSpace, alpha: float) -> Channel:
    r"""Planar Laplace noise snapped to the nearest point of a grid, as a channel.

    Parameters
    ----------
    space : MetricSpace
        A Euclidean `MetricSpace.grid`.
    alpha : float
        α > 0 per unit of the space's distance.

    Returns
    -------
    Channel
        Use `Channel.remapped` to replace each report by the best guess under a prior.

    Raises
    ------
    DesignError
        Not a Euclidean grid.

    Source: Andrés, Bordenabe, Chatzikokolakis, Palamidessi 2013.

    Examples
    --------
    >>> channel = planar_laplace(MetricSpace.grid(3, 3), 0.7)
    >>> channel.alpha <= 0.7, bool(abs(channel.matrix.sum(axis=1) - 1).max() < 1e-12)
    (True, True)
    """
    alpha = positive("alpha", alpha, side=DOWN)
    if (
        not isinstance(space, MetricSpace)
        or space.kind != "grid"
        or space.points is None
        or space.matrix is not None
    ):
        raise DesignError.of("space", space, "must be a Euclidean MetricSpace.grid(rows, columns)")
    rows, columns = space.shape
    step = float(space.points[1, 1] - space.points[0, 1]) if columns > 1 else 1.0
    if rows > 1:
        step = float(space.points[columns, 0] - space.points[0, 0])
    rate = alpha * step
    beyond = min(max(2, math.ceil(_REACH / rate)), 2_000)
    table = _cells(rate, max(rows, columns) + beyond)
    # Offsets beyond the border snap to it: clipping every offset of the unbounded grid says where mass goes.
    spread = (_snapped(rows, len(table)) @ table @ _snapped(columns, len(table)).T).reshape(
        rows, rows, columns, columns
    )
    flat = spread.transpose(0, 2, 1, 3).reshape(rows * columns, rows * columns)
    return Channel(flat / flat.sum(axis=1, keepdims=True), space)

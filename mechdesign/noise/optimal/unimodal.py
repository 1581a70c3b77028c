r"""The best law whose density falls on both sides of 0, constant on the cells of a ladder: a small linear program.

For an even density f that falls with |t|, :math:`\int [f(t) - e^\varepsilon f(t + d)]_+ dt` grows with d > 0: where t < -d/2 the
integrand is 0, and elsewhere f(t + d) falls as d grows. The shift by the whole sensitivity alone decides, at cells of any
width. Nothing is lost where ε is large; the bound of `mechdesign.noise.optimal.spread` says how much is elsewhere.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import sparse

from mechdesign.noise.optimal.steps import Ladder
from mechdesign.problem.losses import Loss
from mechdesign.solvers import GrowingProgram
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Status

__all__ = ["cell_costs", "falling_masses"]


def cell_costs(edges: Array, loss: Loss) -> Array:
    """Average loss over each cell, in units of the sensitivity."""
    means = [np.diff(edges**p) / (p * np.diff(edges)) for p in (2, 3)]
    out: Array = loss.absolute * means[0] + loss.squared * means[1]
    return out


def _orders(edges: Array, epsilon: float, step: float) -> Array:
    """Masses of the staircase on each cell of the half line: the unknowns' orders of magnitude."""
    middle = (edges[1:] + edges[:-1]) / 2
    masses = np.diff(edges) * np.exp(-epsilon * np.ceil(middle - step))
    out: Array = np.maximum(masses / masses.sum(), 1e-14)
    return out


def falling_masses(
    ladder: Ladder,
    periods: int,
    loss: Loss,
    *,
    epsilon: float,
    delta: float,
    spike: float,
    deadline: Deadline,
) -> tuple[Array, float] | None:
    """Return the masses of the half line's cells (both sides counted) and of the spike, or None without an answer."""
    edges = ladder.edges(periods)
    n, count = ladder.cells, len(edges) - 1
    place, width = edges / n, np.diff(edges) / n
    order = _orders(place, epsilon, ladder.step)
    density = order / (2 * width)  # per unit of the unknown
    average = cell_costs(place, loss)
    cost = average * order
    # Stretches of t on which both f(t) and f(t + Δ) are constant, from -Δ/2 on.
    whole = np.concatenate([-edges[:0:-1], edges])
    cuts = np.union1d(np.concatenate([whole, whole - n]), [-n // 2])
    cuts = cuts[(cuts >= -n // 2) & (cuts <= edges[-1])]
    twice = cuts[1:] + cuts[:-1]  # twice the middles
    here = np.searchsorted(2 * edges, np.abs(twice), side="right") - 1
    there = np.searchsorted(2 * edges, twice + 2 * n, side="right") - 1
    pairs, owner = np.unique(here * (count + 1) + there, return_inverse=True)
    length = np.bincount(owner, np.diff(cuts) / n)
    here, there = pairs // (count + 1), pairs % (count + 1)
    inside = there < count
    row = np.arange(len(pairs))
    unit = float(average[0])
    part = length * density[here]  # orders of the positive parts
    program = GrowingProgram(
        None,
        what="program of a falling density",
        deadline=deadline,
        primal_feasibility_tolerance=1e-10,
        dual_feasibility_tolerance=1e-10,
    )
    extra = loss.absolute * spike / 4 + loss.squared * spike**2 / 12
    program.add_columns(np.concatenate([cost, [extra], np.zeros(len(pairs))]) / unit)
    size = count + 1 + len(pairs)
    program.add_rows(np.append(order, 1.0)[None], np.arange(count + 1), lower=1.0, upper=1.0)
    entries = np.concatenate(
        [
            np.ones(len(pairs)),
            -math.exp(epsilon) * density[there[inside]] / density[here[inside]],
            -np.ones(len(pairs)),
        ]
    )
    at = (np.concatenate([row, row[inside], row]), np.concatenate([here, there[inside], count + 1 + row]))
    program.add_rows(sparse.csr_array((entries, at), shape=(len(pairs), size)), upper=0.0)
    program.add_rows(np.append(1.0, part)[None], np.arange(count, size), upper=delta)
    step = np.arange(count - 1)
    falls = np.concatenate([-np.ones(count - 1), density[1:] / density[:-1]])
    where = (np.concatenate([step, step]), np.concatenate([step, step + 1]))
    program.add_rows(sparse.csr_array((falls, where), shape=(count - 1, size)), upper=0.0)
    if program.solve() is not Status.OPTIMAL:
        return None
    return np.maximum(program.x[:count], 0.0) * order, float(max(program.x[count], 0.0))

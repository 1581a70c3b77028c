r"""A program over the means of a mechanism's probabilities on cells of a continuum of inputs, which bounds every mechanism."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
from scipy import stats

from mechdesign.model.unknown import named
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import LawPrior, Prior
from mechdesign.typing import Array

STEEP = 23.0  # εd from which e^{-εd} is lost in a solver's tolerance


def about_zero(bins: Array, knots: Array, prior: Prior) -> tuple[Array, Array, Prior]:
    """Outputs, inputs and prior moved to inputs around zero, where moments and means keep their digits."""
    centre = float(knots[0] / 2 + knots[-1] / 2)
    if centre == 0:
        return bins, knots, prior
    return bins - centre, knots - centre, prior.standardised(centre, 1.0)


def _cells(prior: Prior, lower: float, upper: float, count: int) -> list[tuple[float, float, Array]]:
    """Cells (start, stop, moments): atoms alone where there are few, the density between cut points."""
    points, weights = prior.atoms
    edges = np.linspace(lower, upper, count + 1)
    out: list[tuple[float, float, Array]] = []
    if len(points) <= 4 * count:
        edges = np.unique(np.concatenate([edges, points]))
        moments = prior.continuous_moments(edges)
        for k, (a, b) in enumerate(zip(edges[:-1], edges[1:])):
            out.append((float(a), float(b), moments[k]))
        out += [(float(x), float(x), w * np.array([1.0, x, x * x])) for x, w in zip(points, weights)]
    else:
        moments = prior.moments(edges)
        out = [(float(a), float(b), row) for a, b, row in zip(edges[:-1], edges[1:], moments)]
    # Half-open cells: an atom at a cell's start comes before the cell.
    return sorted((c for c in out if c[2][0] > 1e-12), key=lambda c: (c[0] + c[1], c[1]))


def _quantile_grid(prior: Prior, start: float, stop: float) -> tuple[Array, Array]:
    """Points and conditional distribution function of the density on a cell."""
    x = np.linspace(start, stop, 513)
    mass = np.concatenate([[0.0], np.cumsum(prior.continuous_moments(x)[:, 0])])
    with np.errstate(invalid="ignore"):  # an empty cell between atoms: the caller takes the hull
        return x, mass / mass[-1]


def _distance(prior: Prior, first: tuple[float, float, Array], second: tuple[float, float, Array]) -> float:
    """Upper bound of the ∞-Wasserstein distance of two neighbouring cells' conditional laws."""
    hull = second[1] - first[0]
    if isinstance(prior, LawPrior) and type(prior.law.dist) is type(stats.uniform):
        start, stop = prior.support
        if first[0] >= start and second[1] <= stop and first[0] < first[1] and second[0] < second[1]:
            # Both conditional laws are uniform: quantiles differ most at an end.
            return max(second[0] - first[0], second[1] - first[1]) * (1 + 1e-14)
    (x, u), (y, v) = (
        (np.array([c[0], c[1]]), np.array([0.0, 1.0])) if c[0] == c[1] else _quantile_grid(prior, c[0], c[1])
        for c in (first, second)
    )
    if not (np.all(np.isfinite(u)) and np.all(np.isfinite(v))):
        return hull
    levels = np.unique(np.concatenate([u, v]))
    # On [l, l'] the first law's quantile is at least its value at l, the second's at most its value at l'.
    low = x[np.clip(np.searchsorted(u, levels[:-1] + 1e-12, side="right") - 1, 0, len(x) - 1)]
    high = y[np.clip(np.searchsorted(v, levels[1:] - 1e-12, side="left"), 0, len(y) - 1)]
    return float(min(hull, (high - low).max() + 1e-12))


def cell_model(
    bins: Array, epsilon: float, prior: Prior, loss: Loss, input_range: tuple[float, float], cells: int
) -> cp.Problem:
    r"""Declare a program over the means of p on cells, which no mechanism that is private at :math:`d = |x - x'|` beats.

    Cut the input range into cells. For any mechanism let :math:`q_{ki}` be the mean of :math:`p_i` over cell k under the
    prior, and :math:`d_{ki}` that of :math:`(x - \bar x_k)\, p_i`. These 2Km numbers satisfy linear constraints, whatever the mechanism:

    - :math:`\sum_i q_{ki} = 1`, :math:`\sum_i B_i q_{ki} = \bar x_k`, :math:`\sum_i d_{ki} = 0`,
      :math:`\sum_i B_i (\bar x_k q_{ki} + d_{ki})` = the mean of :math:`x^2`;
    - :math:`q_{k+1,i} \le e^{\varepsilon w_k} q_{ki}` and back, :math:`w_k` the ∞-Wasserstein distance of
      the two cells' conditional laws (couple their quantiles: paired inputs are at most w apart);
    - :math:`|d_{ki}| \le \tau_k h_k q_{ki}`, :math:`\tau = (\sqrt r - 1)/(\sqrt r + 1)`,
      :math:`r = e^{\varepsilon h}`: inside a cell p varies by a factor r at most;
    - the loss is at least :math:`t_{ki} \ge |(B_i - \bar x_k) q_{ki} - d_{ki}|` (Jensen), with equality where B is outside
      the cell, and the squared loss is exactly :math:`\sum B_i^2 q_{ki}` less the mean of :math:`x^2`.

    The least value of that linear program is a bound, and is itself taken from the program's duals with outward
    rounding (`mechdesign.solvers.proved_bound`), never from the solver's objective.
    """
    table = _cells(prior, *input_range, cells)
    moments = np.array([c[2] for c in table])
    mass, centre, second = moments[:, 0], moments[:, 1] / moments[:, 0], moments[:, 2] / moments[:, 0]
    width = np.array([c[1] - c[0] for c in table])
    tau = (np.tanh(epsilon * width / 4) * width)[:, None] * np.ones(len(bins))
    apart = np.array([_distance(prior, a, b) for a, b in zip(table, table[1:])])
    # Where the ratio is beyond what doubles hold, the row says that a probability is at most 1.
    steep = (epsilon * apart > STEEP)[:, None] * np.ones(len(bins))
    ratio = np.exp(np.minimum(epsilon * apart, STEEP))[:, None] * (1 + 1e-14) * (1 - steep)
    reach = float(np.abs(bins).max() + max(map(abs, input_range)))
    shape = len(table), len(bins)
    q = cp.Variable(shape, name="q", bounds=[0, 1])
    d = cp.Variable(shape, name="d", bounds=[-tau, tau])
    t = cp.Variable(shape, name="t", bounds=[0, 2 * reach])
    error = cp.multiply(bins[None, :] - centre[:, None], q) - d
    rows = [
        named("normalisation", cp.sum(q, axis=1) == 1),
        named("unbiased", q @ bins == centre),
        named("deviation", cp.sum(d, axis=1) == 0),
        named("second moment", cp.multiply(centre, q @ bins) + d @ bins == second),
        named("within a cell", d <= cp.multiply(tau, q)),
        named("within a cell", -d <= cp.multiply(tau, q)),
        named("absolute error", error <= t),
        named("absolute error", -error <= t),
    ]
    if len(table) > 1:
        rows.append(named("privacy", q[1:] <= cp.multiply(ratio, q[:-1]) + steep))
        rows.append(named("privacy", q[:-1] <= cp.multiply(ratio, q[1:]) + steep))
    absolute, squared = loss.absolute * mass, loss.squared * mass
    least = absolute @ cp.sum(t, axis=1) + squared @ (q @ bins**2 - second)
    return cp.Problem(cp.Minimize(least), rows)

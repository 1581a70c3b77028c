r"""The linear program of the multipliers that `mechdesign.noise.optimal.spline` proves a bound from.

Pure privacy at large ε is held by a flow: what lies within the first step γ of a staircase is compared with all that lies
within a sensitivity of it, at shifts of every size; each further period with the next one, at a shift of just that
size. The unknowns are ψ at the knots of a ladder, for triangles of shifts of a ladder and for the whole shift; a row asks at a
point t that :math:`\ell(t) + F(t) + F(-t)` be at least the level that is raised, the exact pieces say where a point is
missing. δ costs the largest ψ of every kernel, inside the program.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy import sparse

from mechdesign.errors import SolverError
from mechdesign.noise.optimal.spline import Spread, spread_pieces
from mechdesign.noise.optimal.steps import Ladder
from mechdesign.problem.losses import Loss
from mechdesign.solvers import GrowingProgram
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Status

__all__ = ["SpreadProgram"]

_ROUNDS = 12
_SMALL = 1e-5
"""A δ below is left out of the program, and charged afterwards."""
_SPARE = 1e-4  # of the loss, beyond a flat neighbourhood of 0
_NODES = (-1 / math.sqrt(3), 1 / math.sqrt(3))


def _hat(at: Array, x: Array) -> Array:
    """The hat over three knots (rows of `at`, given as columns) at x; where all knots are one, nothing."""
    left, peak, right = at
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.minimum((x - left) / (peak - left), (right - x) / (right - peak))
    return np.where(right > left, np.clip(value, 0.0, None), 0.0)


def _smoothed(hat: Array, kernel: Array, x: Array) -> Array:
    """Convolution of a hat with a kernel at x: by Gauss's two points, exact between all knots."""
    single = kernel[2] <= kernel[0]
    low, high = np.maximum(hat[0], x - kernel[2]), np.minimum(hat[2], x - kernel[0])
    points = np.sort(np.concatenate([hat, x - kernel[::-1]]), axis=0)
    points = np.clip(points, low, np.maximum(low, high))
    total = np.zeros(len(x))
    for start, stop in zip(points[:-1], points[1:]):
        half, middle = (stop - start) / 2, (stop + start) / 2
        for node in _NODES:
            u = middle + node * half
            total += half * _hat(hat, u) * _hat(kernel, x - u)
    return np.where(single, _hat(hat, x - kernel[0]), total)


def _divided(pieces: Array) -> Array:
    """Bernstein coefficients on the eighths of each piece."""
    for _ in range(3):
        a, b, c, d = pieces.T
        ab, bc, cd = (a + b) / 2, (b + c) / 2, (c + d) / 2
        left, right = (ab + bc) / 2, (bc + cd) / 2
        middle = (left + right) / 2
        halves = [np.stack([a, ab, left, middle], axis=1), np.stack([middle, right, cd, d], axis=1)]
        pieces = np.stack(halves, axis=1).reshape(-1, 4)
    return pieces


class SpreadProgram:
    """The program on one ladder.

    Parameters
    ----------
    ladder : Ladder
    periods : int
        Sensitivities on each side that carry multipliers.
    loss : Loss
        Even, in units of the sensitivity.
    epsilon, delta : float
    wide : bool
        Whether every knot goes with every kernel, or those beyond the first step with the whole shift alone.
    scale : float
        Order of the optimum.
    deadline : Deadline
    held : bool
        Whether the bound is to be what is sent from 0, where nothing is received then: see `mechdesign.noise.optimal.spiked`.
    """

    def __init__(
        self,
        ladder: Ladder,
        periods: int,
        loss: Loss,
        *,
        epsilon: float,
        delta: float,
        wide: bool,
        scale: float,
        deadline: Deadline,
        held: bool = False,
    ) -> None:
        self.loss, self.epsilon, self.delta, self.scale = loss, epsilon, delta, scale
        self.growth, self.deadline = math.exp(epsilon), deadline
        n = self.cells = ladder.cells
        half = ladder.edges(periods)
        step = ladder.step * n
        past = half[np.searchsorted(half, 2 * step)] if 2 * step < half[-1] else half[-1]
        # One knot further on each side, a gap of the same power of two beyond the last.
        half = np.append(half, 2 * half[-1] - half[-2])
        inner = half[half <= (past if not wide else n)]
        self.knots = np.concatenate([-inner[:0:-1], half])
        shifts = ladder.period((0.0, ladder.step, 1.0 - ladder.step, 1.0))
        triples = [shifts[i : i + 3] for i in range(len(shifts) - 2)]
        self.kernels = np.array([*triples, [n, n, n]], dtype=np.int64)
        knot, kernel = (
            k.ravel()
            for k in np.meshgrid(np.arange(len(self.knots) - 2), np.arange(len(self.kernels)), indexing="ij")
        )
        place, single = self.knots[1:-1][knot], kernel == len(self.kernels) - 1
        near = np.abs(place) <= past
        keep = (near & ~single) | (single & (place > 0)) | wide
        keep &= place + self.kernels[kernel, 1] <= half[-2]
        self.held = held
        self.near = int(half[1]) if held and loss.squared else 0  # there the loss counts as 0
        if held:
            starts, stops = self.knots[:-2][knot], self.knots[2:][knot]
            low, high = starts + self.kernels[kernel, 0], stops + self.kernels[kernel, 2]
            keep &= (low >= self.near) | (high <= -self.near)
        self.knot, self.kernel = knot[keep], kernel[keep]
        fine = np.unique(np.concatenate([half[:-1] + k * np.diff(half) // 4 for k in range(4)]))
        fine = np.union1d(fine[fine <= half[-2]], half[-2] + half[: len(half) // periods])
        self._program(fine / n)

    def _program(self, points: Array) -> None:
        delta, count = self.delta, len(self.knot)
        self.program = GrowingProgram(None, what="program of the multipliers", deadline=self.deadline)
        capped = len(self.kernels) if delta > _SMALL else 0
        charge = 2 * delta * np.ones(capped)
        self.program.add_columns(np.concatenate([np.zeros(count), charge, [-1.0]]))
        self.width = count + capped + 1
        if capped:
            rows, one = np.arange(count), np.ones(count)
            entries = (np.append(one, -one), (np.tile(rows, 2), np.concatenate([rows, count + self.kernel])))
            self.program.add_rows(sparse.csr_array(entries, shape=(count, self.width)), upper=0.0)
        self._add(points)

    def _masses(self) -> Array:
        masses: Array = np.maximum(np.ptp(self.kernels, axis=1) / (2 * self.cells), 0.0)
        masses[-1] = 1.0
        return masses

    def _add(self, points: Array) -> None:
        """Add a row per point: the unknowns are ψ times the kernel's mass, in units of the scale."""
        n = self.cells
        hats = np.stack([self.knots[:-2], self.knots[1:-1], self.knots[2:]]) / n
        kernels = self.kernels.T / n
        low = hats[0][self.knot] + kernels[0][self.kernel]
        high = hats[2][self.knot] + kernels[2][self.kernel]
        masses = self._masses()
        rows, columns, values = [], [], []
        for sign in (1.0, -1.0):
            for row, t in enumerate(sign * points):
                (at,) = np.nonzero((low <= t) & (t <= high))
                where = np.full(len(at), t)
                moved = _smoothed(hats[:, self.knot[at]], kernels[:, self.kernel[at]], where)
                moved *= -self.growth / masses[self.kernel[at]]
                kept = _hat(hats, np.full(hats.shape[1], t))[self.knot]
                (held,) = np.nonzero(kept)
                rows += [np.full(len(at), row), np.full(len(held), row)]
                columns += [at, held]
                values += [moved, kept[held]]
        shape = (len(points), self.width)
        table = sparse.csr_array(
            (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=shape
        )
        table.sum_duplicates()
        costs = self.loss(points)
        if self.held:
            costs = np.where(points * n > self.near, costs * (1 - _SPARE), 0.0)
        level = sparse.csr_array(
            (-np.ones(len(points)), (np.arange(len(points)), np.full(len(points), self.width - 1))),
            shape=shape,
        )
        weight = sparse.diags_array(1 / np.maximum(costs / self.scale, 1.0))
        self.program.add_rows(
            sparse.csr_array(weight @ (table + level)), lower=-(weight @ costs) / self.scale
        )

    def solve(self, enough: float = math.inf) -> Spread | None:
        """Raise the level, adding points where the exact pieces fall below it; return the best multipliers.

        A bound that is `enough` ends it.
        """
        best: tuple[float, Spread] | None = None
        for _ in range(_ROUNDS):
            try:
                if self.program.solve() is not Status.OPTIMAL:
                    break
            except SolverError:  # whatever multipliers there are prove a bound
                break
            x = self.program.x
            psi = np.zeros((len(self.kernels), len(self.knots) - 2))
            psi[self.kernel, self.knot] = np.maximum(x[: len(self.knot)], 0.0) * self.scale
            psi /= self._masses()[:, None]
            psi[:-1] /= self.cells  # where kernels are counted in cells
            if self.held:  # with as much as is charged
                psi[:, np.abs(self.knots[1:-1]) <= self.near] = psi.max(axis=1, keepdims=True)
            spread = Spread(self.cells, self.knots, self.kernels, psi)
            found, points = self._judged(spread)
            if best is None or found[0] > best[0]:
                best = found
            if not len(points) or best[0] >= enough or self.deadline.passed:
                break
            self._add(points)
        return None if best is None else best[1]

    def _judged(self, spread: Spread) -> tuple[tuple[float, Spread], Array]:
        """The bound of the multipliers, scaled as is best, and the points that it lacks."""
        places, costs, rest = [], [], []
        for x, h, cost, moved, unit in spread_pieces(spread, self.loss, 1.0, self.epsilon):
            places.append((x, x + h / 3, x + 2 * h / 3, x + h))
            costs.append([v / unit for v in cost])
            rest.append([v / unit for v in moved])
        at, c, f = (_divided(np.array(v, dtype=float)) for v in (places, costs, rest))
        charge = float(
            self.delta * sum(m * t for m, t in zip(spread.doubled_masses, spread.psi.max(axis=1).tolist()))
        )
        factors = 1.0 - np.concatenate([[0.0], np.geomspace(1e-6, 0.9, 60)])
        bounds = [(c + f * k).min() - k * charge for k in factors.tolist()]
        k = float(factors[int(np.argmax(bounds))])
        wanted = -self.program.value * self.scale + charge
        low = (c + f).min(axis=1)
        valley = (low <= np.append(np.inf, low[:-1])) & (low <= np.append(low[1:], np.inf))
        (dips,) = np.nonzero(valley & (low < wanted - 1e-5 * self.scale))
        points = at[dips, np.argmin((c + f)[dips], axis=1)] / self.cells if dips.size else np.zeros(0)
        return (max(bounds), replace(spread, psi=spread.psi * k)), points

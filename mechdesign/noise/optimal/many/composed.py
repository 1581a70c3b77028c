r"""δ(ε) of K coordinates as a smooth function of the log masses of a symmetric lattice law: a guide, never the proof.

With φ the logarithms of the masses and :math:`L_j = \varphi_j - \varphi_{j+k}` the loss of a shift by k cells,

.. math:: \delta = 1 - (1 - p_\infty)^K + \sum_j p_j\,G_1(L_j),
          \qquad G_m(x) = E\left[(1 - e^{\varepsilon - x - S})_+\right],

S being the sum of the losses of K − m coordinates and :math:`p_\infty` the mass with no partner. One factor enters δ
linearly, so its gradient is K times that of one coordinate with :math:`G_1` held, and its Hessian adds, for every two
cells, the derivatives of :math:`p_i p_j G_2(L_i + L_j)`. :math:`G + G'` and :math:`G'` are correlations of the law of S
with two kernels, :math:`G' + G''` is its density: three Fourier transforms each, under the tilt that puts the mean at
ε, so that δ = 1e-12 is as accurate as δ = 0.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import fft

from mechdesign.typing import Array, Indices

__all__ = ["Composed"]

_POINTS = 2**13
_SEEN = 1e-14  # tilted mass below which a cell adds nothing to the Hessian


@dataclass(frozen=True)
class _Tilted:
    """One coordinate's finite loss under the tilt θ: losses, tilted masses, the cumulants, the grid of its transform."""

    loss: Array
    weights: Array
    theta: float
    log_mgf: float
    step: float
    transform: Array
    kernels: tuple[Array, Array]

    def tables(self, count: int) -> tuple[Array, Array, Array]:
        """Correlations of `count` summed losses with the kernels of G and G', and their density, on the grid."""
        power = self.transform**count
        of_g, of_slope = (fft.irfft(power * kernel, _POINTS) for kernel in self.kernels)
        return of_g, of_slope, fft.irfft(power, _POINTS) / self.step

    def at(self, level: Array) -> tuple[Indices, Indices, Array]:
        """Grid indices below and above, and the share of the upper."""
        place = level / self.step
        low = np.floor(place)
        index = low.astype(np.int64) % _POINTS
        return index, (index + 1) % _POINTS, place - low


def _read(table: Array, at: tuple[Indices, Indices, Array]) -> Array:
    return table[at[0]] * (1 - at[2]) + table[at[1]] * at[2]


@dataclass(frozen=True)
class Composed:
    """The problem on one lattice.

    Parameters
    ----------
    count : int
        K ≥ 2.
    epsilon : float
    side : int
        Cells on each side of the one at 0; φ has side + 1 entries, from 0 outwards.
    """

    count: int
    epsilon: float
    side: int

    @property
    def fold(self) -> Indices:
        """The entry of φ that each cell of the whole line has."""
        return np.abs(np.arange(-self.side, self.side + 1))

    @property
    def copies(self) -> Array:
        """How many cells share each entry."""
        return np.where(np.arange(self.side + 1) > 0, 2.0, 1.0)

    def log_delta(self, phi: Array, shift: int) -> float:
        """log δ at ε where every coordinate moves by `shift` cells."""
        if not np.isfinite(phi).all() or np.ptp(phi) > 1e5:  # all mass on a few cells: every change is seen
            return 0.0
        tilted, finite, whole = self._parts(phi, shift)
        return self._log(tilted, finite, whole)[0]

    def _parts(self, phi: Array, shift: int) -> tuple[_Tilted, float, float]:
        line = phi[self.fold]
        mass = np.exp(line)
        loss = line[:-shift] - line[shift:]
        return self._tilt(loss, line[:-shift]), float(mass[:-shift].sum()), float(mass.sum())

    def _tilt(self, loss: Array, log_mass: Array) -> _Tilted:
        """Solve for the θ that puts the mean of the sum at ε, and transform the tilted law."""
        k, epsilon = self.count, self.epsilon
        largest = float(loss.max())
        cap = 40 / max(largest, 0.05)
        low, high, theta = 0.0, cap, min(1.0, cap)
        for _ in range(100):
            log_weights = log_mass + theta * loss
            top = float(log_weights.max())
            weights = np.exp(log_weights - top)
            total = float(weights.sum())
            mean = float(weights @ loss) / total
            variance = max(float(weights @ (loss - mean) ** 2) / total, 1e-12)
            miss = k * mean - epsilon
            if abs(miss) < 1e-6 * math.sqrt(k * variance) or high - low < 1e-9:
                break
            low, high = (low, theta) if miss > 0 else (theta, high)
            new = theta - miss / (k * variance)
            theta = new if low < new < high else (low + high) / 2
        weights /= total
        spread = math.sqrt(k * variance)
        live = loss[weights > 1e-18 * weights.max()]
        reach = max(float(live.max()) - mean, mean - float(live.min()))
        decay = 12 * min(1 / max(theta, 0.3), 3.0)
        window = 18 * spread + 2.5 * reach + decay + 3 * abs(epsilon - k * mean)
        step = window / _POINTS
        place = loss / step
        floor = np.floor(place)
        share, index = place - floor, floor.astype(np.int64)
        grid = np.bincount(index % _POINTS, weights * (1 - share), minlength=_POINTS)
        grid += np.bincount((index + 1) % _POINTS, weights * share, minlength=_POINTS)
        u = step * np.arange(_POINTS)
        u = np.where(u > window / 2, 0.0, u)
        falling = np.where(u > 0, np.exp(-theta * u), 0.0)
        slope = falling * np.exp(-u)
        slope[0] = 0.5
        kernels = (np.conj(fft.rfft(falling * -np.expm1(-u))), np.conj(fft.rfft(slope)))
        return _Tilted(loss, weights, theta, top + math.log(total), step, fft.rfft(grid), kernels)

    def _log(self, tilted: _Tilted, finite: float, whole: float) -> tuple[float, float, tuple[Array, ...]]:
        """log δ, the factor that undoes the tilt, and every cell's tilted mass times G, G' and the density."""
        k = self.count
        base = 0.0
        if k * float(tilted.loss.max()) > self.epsilon:
            base = math.exp(min(k * tilted.log_mgf - tilted.theta * self.epsilon, 600.0))
        at = tilted.at(self.epsilon - tilted.loss)
        cells = tuple(tilted.weights * _read(table, at) for table in tilted.tables(k - 1))
        delta = base * float(cells[0].sum()) + whole**k - finite**k
        return (math.log(delta) if delta > 0 else -math.inf), base, cells

    def derivatives(self, phi: Array, shift: int) -> tuple[float, Array, Array]:
        """log δ, its gradient and its Hessian in φ (masses need not sum to one: δ is homogeneous of degree K)."""
        k, size = self.count, 2 * self.side + 1
        tilted, finite, whole = self._parts(phi, shift)
        log_delta, base, (of_g, of_slope, density) = self._log(tilted, finite, whole)
        mass = np.exp(phi[self.fold])
        inner = np.where(np.arange(size) < size - shift, mass, 0.0)
        singly = k * (whole ** (k - 1) * mass - finite ** (k - 1) * inner)
        gradient = singly.copy()
        gradient[:-shift] += k * base * (of_g + of_slope)
        gradient[shift:] -= k * base * of_slope
        hessian = k * (k - 1) * whole ** (k - 2) * np.outer(mass, mass)
        hessian -= k * (k - 1) * finite ** (k - 2) * np.outer(inner, inner)
        i = np.arange(size - shift)
        np.add.at(hessian, (np.arange(size),) * 2, singly)
        hessian[i, i] += k * base * (of_g + of_slope + density)
        hessian[i, i + shift] -= k * base * density
        hessian[i + shift, i] -= k * base * density
        hessian[i + shift, i + shift] += k * base * (density - of_slope)
        if base > 0:
            self._add_pairs(hessian, tilted, shift, base * k * (k - 1))
        first, second = self._folded(gradient), self._folded(self._folded(hessian).T)
        delta = math.exp(log_delta)
        return log_delta, first / delta, second / delta - np.outer(first, first) / delta**2

    def _add_pairs(self, hessian: Array, tilted: _Tilted, shift: int, factor: float) -> None:
        """Add the derivatives of δ in the masses of two coordinates."""
        live = np.flatnonzero(tilted.weights > _SEEN)
        loss, weights = tilted.loss[live], tilted.weights[live]
        at = tilted.at(self.epsilon - np.add.outer(loss, loss))
        scale = np.outer(weights, weights * factor)
        of_g, of_slope, density = (_read(table, at) * scale for table in tilted.tables(self.count - 2))
        here, there = slice(live[0], live[-1] + 1), slice(live[0] + shift, live[-1] + 1 + shift)
        if live[-1] - live[0] + 1 == live.size:
            rows, moved = (here, here), (there, there)
            hessian[here, there] -= density
            hessian[there, here] -= density
        else:
            rows, moved = np.ix_(live, live), np.ix_(live + shift, live + shift)  # type: ignore[assignment]
            hessian[np.ix_(live, live + shift)] -= density
            hessian[np.ix_(live + shift, live)] -= density
        hessian[rows] += of_g + of_slope + density
        hessian[moved] += density - of_slope

    def _folded(self, line: Array) -> Array:
        """Sum the two cells that share an entry of φ, along the first axis."""
        half: Array = line[self.side :].copy()
        half[1:] += line[: self.side][::-1]
        return half

r"""Rényi divergence between a lattice law and its shift, as a function of its log masses: what published densities minimise.

.. math:: D_1 = \sum_j p_j \log\frac{p_j}{p_{j+n}}, \qquad D_a = \frac{1}{a-1}\log\sum_j p_j^a\,p_{j+n}^{1-a},

over the whole line: beyond the lattice the outermost n cells repeat, each time times r. There the sums are geometric and
linear in the outermost masses: :math:`\log(1/r)\,P` and :math:`P\,(r^{1-a} + r^a)/(1-r)`, P the mass of one end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mechdesign.typing import Array, Indices

__all__ = ["Divergence"]


@dataclass(frozen=True)
class Divergence:
    """log D of one lattice law; of the form that `newton.Descent` takes.

    Parameters
    ----------
    order : float
        a ≥ 1.
    side, cells : int
        Cells on each side of the one at 0; n, those of the shift.
    decay : float
        r in (0, 1).
    """

    order: float
    side: int
    cells: int
    decay: float

    @property
    def fold(self) -> Indices:
        """The entry of φ that each cell of the lattice has."""
        return np.abs(np.arange(-self.side, self.side + 1))

    @property
    def copies(self) -> Array:
        """How many cells share each entry, repetitions counted by what they weigh."""
        copies = np.where(np.arange(self.side + 1) > 0, 2.0, 1.0)
        copies[-self.cells :] /= 1 - self.decay
        return copies

    def log_delta(self, phi: Array, shift: int) -> float:
        """log D at the shift of n cells."""
        inner, tail = self._summands(phi, shift)
        return self._log(float(inner.sum() + tail.sum()), phi)

    def _summands(self, phi: Array, n: int) -> tuple[Array, Array]:
        """What the cells with a partner add to the sum, and what the outermost period and its repetitions do."""
        a, r, line = self.order, self.decay, phi[self.fold]
        mass, here, there = np.exp(line), line[:-n], line[n:]
        if a == 1:
            inner, end = mass[:-n] * (here - there), math.log(1 / r)
        else:
            inner = np.exp(np.minimum(a * here - (a - 1) * there, 600.0))
            end = (r ** (1 - a) + r**a) / (1 - r)
        tail = np.zeros(mass.size)
        tail[-n:] = end * mass[-n:]
        return inner, tail

    def _log(self, total: float, phi: Array) -> float:
        """log D of the sum: D = log S/(a − 1), of one unit of mass, where a > 1."""
        if self.order > 1:
            total = math.log(total / float(self.copies @ np.exp(phi))) / (self.order - 1)
        return math.log(total) if total > 0 else -math.inf

    def derivatives(self, phi: Array, shift: int) -> tuple[float, Array, Array]:
        """log D, its gradient and its Hessian."""
        a, n, size = self.order, shift, 2 * self.side + 1
        inner, tail = self._summands(phi, n)
        total = float(inner.sum() + tail.sum())
        log_value = self._log(total, phi)
        if a == 1:
            mass = np.exp(phi[self.fold][:-n])
            first = (inner + mass, -mass)
            second = (inner + 2 * mass, -mass, np.zeros(size - n))
        else:
            first = (a * inner, (1 - a) * inner)
            second = (a * a * inner, a * (1 - a) * inner, (a - 1) ** 2 * inner)
        gradient = tail.copy()
        gradient[:-n] += first[0]
        gradient[n:] += first[1]
        hessian = np.diag(tail)
        i = np.arange(size - n)
        hessian[i, i] += second[0]
        hessian[i, i + n] += second[1]
        hessian[i + n, i] += second[1]
        hessian[i + n, i + n] += second[2]
        g, h = self._folded(gradient) / total, self._folded(self._folded(hessian).T) / total
        if a > 1:
            share = self.copies * np.exp(phi)
            share /= share.sum()
            h = h - np.outer(g, g) - np.diag(share) + np.outer(share, share)
            g = g - share
            scale = math.exp(log_value) * (a - 1)  # log S
            g, h = g / scale, h / scale
        return log_value, g, h - np.outer(g, g)

    def _folded(self, line: Array) -> Array:
        half: Array = line[self.side :].copy()
        half[1:] += line[: self.side][::-1]
        return half

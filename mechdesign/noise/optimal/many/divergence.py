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
        return self.derivatives(phi, shift)[0]

    def derivatives(self, phi: Array, shift: int) -> tuple[float, Array, Array]:
        """log D, its gradient and its Hessian."""
        a, r, n, size = self.order, self.decay, shift, 2 * self.side + 1
        line = phi[self.fold]
        mass = np.exp(line)
        here, there = line[:-n], line[n:]
        if a == 1:
            inner = mass[:-n] * (here - there)
            first = (inner + mass[:-n], -mass[:-n])
            second = (inner + 2 * mass[:-n], -mass[:-n], np.zeros(size - n))
            end = math.log(1 / r)
        else:
            inner = np.exp(np.minimum(a * here - (a - 1) * there, 600.0))
            first = (a * inner, (1 - a) * inner)
            second = (a * a * inner, a * (1 - a) * inner, (a - 1) ** 2 * inner)
            end = (r ** (1 - a) + r**a) / (1 - r)
        tail = np.zeros(size)
        tail[-n:] = end * mass[-n:]
        total = float(inner.sum() + tail.sum())
        gradient = tail.copy()
        gradient[:-n] += first[0]
        gradient[n:] += first[1]
        hessian = np.diag(tail)
        i = np.arange(size - n)
        hessian[i, i] += second[0]
        hessian[i, i + n] += second[1]
        hessian[i + n, i] += second[1]
        hessian[i + n, i + n] += second[2]
        g, h = self._folded(gradient), self._folded(self._folded(hessian).T)
        if a > 1:  # D = log S/(a − 1), of one unit of mass
            whole = float(self.copies @ np.exp(phi))
            log_sum = math.log(total / whole)
            share = self.copies * np.exp(phi) / whole
            h = h / total - np.outer(g, g) / total**2 - np.diag(share) + np.outer(share, share)
            g, total = g / total - share, log_sum
        if not total > 0:
            return -math.inf, g, h
        return math.log(total / (a - 1 if a > 1 else 1.0)), g / total, h / total - np.outer(g, g) / total**2

    def _folded(self, line: Array) -> Array:
        half: Array = line[self.side :].copy()
        half[1:] += line[: self.side][::-1]
        return half

r"""Infeasible without a run: what proved one point of a sweep infeasible often proves its neighbours so.

A point's rows read :math:`A x \le b` (the first ones with equality), its variables :math:`l \le x \le u`. Multipliers y,
non-negative on the inequalities, prove that there is no such x where

.. math:: \min_{l \le x \le u} (A^\top y) \cdot x > y \cdot b

(Farkas 1902). The multipliers come from a solver, but the inequality is evaluated here, for each point's own A and b: a
point is left out only where it holds by far more than rounding, and a solver's tolerance, can amount to.
"""

from __future__ import annotations

from copy import copy

import numpy as np
import numpy.typing as npt

from mechdesign.solvers.compiled import CompiledLP
from mechdesign.typing import Array

__all__ = ["FarkasRays"]

_MARGIN = 1e-7  # in units of the largest number of a row, for multipliers that sum to 1; solvers err by 1e-10
_KEPT = (
    6  # of the last ones; a grid's feasible points lie together, so that there is one for each side and shape
)

Mask = npt.NDArray[np.bool_]


class FarkasRays:
    """Multipliers that proved points of one compiled program infeasible, tried on others.

    Parameters
    ----------
    compiled : CompiledLP
    reach : array, shape (width,)
        Above which no variable can be by the rows themselves, at any point; ∞ where that is not known.
    """

    def __init__(self, compiled: CompiledLP, reach: Array) -> None:
        self._compiled = compiled
        # Entries are in the order of their columns.
        column, self._starts = np.unique(compiled.columns, return_index=True)
        self._lower, self._upper = compiled.lower[column], np.minimum(compiled.upper, reach)[column]
        self._kept = np.zeros((0, compiled.height))

    def copy(self) -> FarkasRays:
        """The same multipliers, to which others may be added."""
        return copy(self)

    def excluded(self, matrix: Array, rhs: Array) -> Mask:
        """Which points (coefficients (N, nnz), right-hand sides (N, height)) the multipliers kept prove infeasible."""
        return self._proved(self._kept, matrix, rhs)

    def learn(self, ray: Array, matrix: Array, rhs: Array) -> Mask:
        """Keep the multipliers of a solver's dual ray, and return which of the points they prove infeasible."""
        multipliers = -ray[None]
        equalities = self._compiled.equalities
        multipliers[:, equalities:] = np.maximum(multipliers[:, equalities:], 0.0)
        total = np.abs(multipliers).sum()
        if not 0.0 < total < np.inf:
            return np.zeros(len(matrix), dtype=bool)
        multipliers /= total
        self._kept = np.vstack([self._kept, multipliers])[-_KEPT:]
        return self._proved(multipliers, matrix, rhs)

    def _proved(self, multipliers: Array, matrix: Array, rhs: Array) -> Mask:
        """Whether one of the multipliers (R, height), each summing to 1 in absolute value, proves a point infeasible."""
        if not multipliers.size or not matrix.size:
            return np.zeros(len(matrix), dtype=bool)
        slope = np.add.reduceat(multipliers[:, None, self._compiled.rows] * matrix, self._starts, axis=2)
        # An infinite bound makes −∞ or, where the slope is 0, no number: neither proves anything.
        with np.errstate(invalid="ignore"):
            least = np.minimum(slope * self._lower, slope * self._upper).sum(axis=2)
        largest = np.maximum(np.abs(matrix).max(axis=1), np.maximum(np.abs(rhs).max(axis=1), 1.0))
        return np.asarray((least - multipliers @ rhs.T > _MARGIN * largest).any(axis=0))

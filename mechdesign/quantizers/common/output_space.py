"""Where the outputs of a search may be: what its lower bound has to speak of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mechdesign.evidence.digits import shown
from mechdesign.quantizers.common.dual_pieces import DualPieces
from mechdesign.typing import Array

__all__ = ["OutputSpace", "bound_words"]

_FEW = 129
"""Outputs that are bounded as they are; where a search chooses among more, anywhere from the first to the last."""
_HAIR = 1e-9
"""By how much of itself a range is widened, so that roundings of its outermost outputs are inside."""


@dataclass(frozen=True)
class OutputSpace:
    """All outputs that a search may choose from.

    Parameters
    ----------
    points : tuple of float
        The outputs; or, `between`, the first and the last of a range.
    between : bool
        Whether any output of the range may be chosen.

    Examples
    --------
    >>> OutputSpace.among([(-2.0, 0.0, 2.0), (-2.0, -1.0, 2.0)])
    OutputSpace(points=(-2.0, -1.0, 0.0, 2.0), between=False)
    """

    points: tuple[float, ...]
    between: bool

    @classmethod
    def among(cls, alphabets: Iterable[Iterable[float]]) -> OutputSpace:
        """The outputs of some alphabets."""
        points = sorted({b for bins in alphabets for b in bins})
        return cls(tuple(points), False) if len(points) <= _FEW else cls((points[0], points[-1]), True)

    @classmethod
    def around(cls, input_range: tuple[float, float], reach: float) -> OutputSpace:
        """Any output not more than `reach` half widths from the centre of the range, and a hair for rounding."""
        low, high = input_range
        centre, far = low / 2 + high / 2, (1 + _HAIR) * reach * (high / 2 - low / 2)
        return cls((centre - far, centre + far), True)

    def bounded_by(self, duals: DualPieces) -> bool:
        """Whether the multipliers' bound is one for everything here."""
        return duals.outputs is not None and (duals.between or not self.between) and duals.cover(self.points)

    def with_ends(self, inner: Array) -> Array:
        """The outputs, or those of a grid inside the range with the range's ends."""
        if not self.between:
            return np.array(self.points)
        low, high = self.points
        return np.concatenate([[low], inner[(inner > low) & (inner < high)], [high]])


def bound_words(duals: Any) -> str:
    """Which mechanisms a lower bound speaks of."""
    if not isinstance(duals, DualPieces) or duals.outputs is None:
        return "with these outputs"
    low, high = (shown(b) for b in (duals.outputs[0], duals.outputs[-1]))
    return (
        f"with any outputs from {low} to {high}"
        if duals.between
        else f"with outputs among {len(duals.outputs)} from {low} to {high}"
    )

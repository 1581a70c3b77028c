"""What an optimal-noise design returns: the law, the bound, and the exact evidence for both."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError
from mechdesign.evidence.account import Account
from mechdesign.evidence.old_results import OldResult
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.account import (
    draw_optimal_noise,
    optimal_noise_account,
    optimal_noise_alternatives,
)
from mechdesign.problem.checks import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["OptimalNoiseResult"]


@serializable("optimal-noise-result")
@dataclass(frozen=True, eq=False)
class OptimalNoiseResult(OldResult):
    """A noise law with its exact privacy and the proof of how good it can be.

    `mechanism` (also `law`) is a `CellNoise`; `value` rounds up, `lower_bound` rounds down.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if (dimension := getattr(self.design, "dimension", 1)) != 1:
            raise DesignError.of(
                "dimension", dimension, "must be 1: several coordinates have a result of their own"
            )

    @property
    def law(self) -> CellNoise:
        """The law to sample."""
        return self.mechanism

    def suboptimality(self, cost: float) -> tuple[float, float]:
        """Return an interval for 100 (cost - O)/max(O, 1), O the optimum at sensitivity 1.

        O is known to lie between `lower_bound` and `value`; the measure is that of Selvi, Liu and
        Wiesemann (2025).
        """
        cost = number("cost", cost)
        low, high = self.lower_bound or 0.0, self.value
        return 100 * (cost - high) / max(high, 1.0), 100 * (cost - low) / max(low, 1.0)

    def account(self) -> Account:
        return optimal_noise_account(self)

    def alternatives(self) -> pd.DataFrame:
        return optimal_noise_alternatives(self)

    def plot(self, **options: Any) -> Figure:
        """Draw the law and its tail, with the usual laws at the same privacy."""
        return draw_optimal_noise(self, **options)

    def _audit(self) -> pd.DataFrame:
        law, design = self.law, self.design
        duals = {} if self.duals is None else dict(zip(self.duals["index"], self.duals["dual"]))
        rows = []
        for s, value in law.hockey_stick(design.epsilon).items():
            slack = Fraction(design.delta) - value
            dual = float(duals.get(s, np.nan))
            rows.append(
                ("privacy", s, float(value), design.delta, float(slack), dual, slack <= Fraction(1, 10**9))
            )
        rows.append(("normalisation", 0, 1.0, 1.0, 0.0, np.nan, True))
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def _evidence(self) -> list[str]:
        law = self.law
        return [
            f"law: {len(law.weights)} cells of width {law.width:.6g}, {law.cells_per_shift} per sensitivity"
            + (f", spike of mass {float(law.spike / law.total):.3g}" if law.spike else "")
            + (", geometric tails" if law.decay else ""),
            f"release: on the lattice of step {law.step:.6g}, at most {law.step / law.width:.1g} of a cell from the law",
            f"exact delta: {float(law.exact_delta(self.design.epsilon)):.9g} (asked: {self.design.delta:.9g})",
        ]

    def to_frame(self) -> pd.DataFrame:
        """The law's density, a row per cell."""
        law = self.law
        right = law.start + law.width * np.array(law.ends, dtype=float)
        left = np.append(law.start, right[:-1])
        return pd.DataFrame(
            {
                "left": left,
                "right": right,
                "density": [float(w / law.total) / h for w, h in zip(law.weights, (right - left).tolist())],
            }
        )

"""What an optimal-noise design returns: the law, the bound, and the exact evidence for both."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pandas as pd

from mechdesign.evidence.results import AUDIT_COLUMNS, Result
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.costs import lower_costs
from mechdesign.noise.optimal.lower_bound import weak_duality
from mechdesign.noise.optimal.program import Multiplier
from mechdesign.problem.losses import Loss
from mechdesign.typing import Array

__all__ = ["NoiseCertificate", "OptimalNoiseResult"]


@serializable("noise-certificate")
@dataclass(frozen=True, eq=False)
class NoiseCertificate:
    """Exact evidence of an optimal-noise result.

    Parameters
    ----------
    delta : Fraction
        Largest hockey-stick sum of the law over all shifts; at most the δ asked for.
    value : Fraction
        Cost of the law (exact for absolute and squared losses, an upper bound for a callable).
    lower_bound : Fraction
        What the multipliers prove.
    cells : int
        Cells per sensitivity of the bound's lattice.
    shifts : ndarray of int
        Signed shifts that carry multipliers.
    psi : ndarray, shape (shifts, cells of the line)
        The multipliers.
    totals : ndarray
        Their caps.
    mirrored : bool
        Whether each stands for its mirror image too.
    """

    delta: Fraction
    value: Fraction
    lower_bound: Fraction
    cells: int
    shifts: npt.NDArray[np.int64]
    psi: Array
    totals: Array
    mirrored: bool

    def multipliers(self) -> list[Multiplier]:
        """The multipliers as objects."""
        return [Multiplier(int(s), row, float(t)) for s, row, t in zip(self.shifts, self.psi, self.totals)]


@serializable("optimal-noise-result")
@dataclass(frozen=True, eq=False)
class OptimalNoiseResult(Result):
    """A noise law with its exact privacy and the proof of how good it can be.

    `mechanism` (also `law`) is a `CellNoise`; `value` rounds up, `lower_bound` rounds down.
    """

    @property
    def law(self) -> CellNoise:
        """The law to sample."""
        return self.mechanism

    def suboptimality(self, cost: float) -> tuple[float, float]:
        """Return an interval for 100 (cost - O)/max(O, 1), O the optimum at sensitivity 1.

        O is known to lie between `lower_bound` and `value`; the measure is that of Selvi, Liu and
        Wiesemann (2025).
        """
        low, high = self.lower_bound or 0.0, self.value
        return 100 * (cost - high) / max(high, 1.0), 100 * (cost - low) / max(low, 1.0)

    def check(self) -> bool:
        """Recompute both exact claims, privacy of the law and the lower bound, from the stored numbers."""
        c: NoiseCertificate = self.certificate
        design = self.design
        n, length = c.cells, c.psi.shape[1]
        reach = (length - 1) // 2 + n + 1
        costs = lower_costs(Loss.of(design.loss), -reach, reach, Fraction(design.sensitivity) / n)
        bound = weak_duality(
            costs,
            c.multipliers(),
            shift=n,
            epsilon=design.epsilon,
            delta=design.delta,
            mirrored=c.mirrored,
        )
        private = self.law.exact_delta(design.epsilon) <= Fraction(design.delta)
        wide = Fraction(self.law.width) * self.law.cells_per_shift >= Fraction(design.sensitivity)
        return private and wide and bound == c.lower_bound

    def _audit(self) -> pd.DataFrame:
        law, design = self.law, self.design
        duals = {int(s): float(t) for s, t in zip(self.certificate.shifts, self.certificate.totals)}
        same = self.certificate.cells == law.cells_per_shift
        rows = []
        for s, value in law.hockey_stick(design.epsilon).items():
            slack = Fraction(design.delta) - value
            dual = duals.get(s, 0.0) if same else float("nan")
            rows.append(
                ("privacy", s, float(value), design.delta, float(slack), dual, slack <= Fraction(1, 10**9))
            )
        rows.append(("normalisation", 0, 1.0, 1.0, 0.0, float("nan"), True))
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def _evidence(self) -> list[str]:
        law = self.law
        return [
            f"law: {len(law.weights)} cells of width {law.width:.6g}, {law.cells_per_shift} per sensitivity"
            + (f", spike of mass {float(law.spike / law.total):.3g}" if law.spike else "")
            + (", geometric tails" if law.decay else ""),
            f"exact delta: {float(self.certificate.delta):.9g} (asked: {self.design.delta:.9g})",
        ]

    def to_frame(self) -> pd.DataFrame:
        """The law's density, a row per cell."""
        law = self.law
        left = law.start + law.width * np.arange(len(law.weights))
        return pd.DataFrame(
            {
                "left": left,
                "right": left + law.width,
                "density": [float(w / law.total) / law.width for w in law.weights],
            }
        )

"""The exact evidence of an optimal-noise result: a private law, its cost, and multipliers that bound every noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError
from mechdesign.evidence.certificate import PROVED, RECOMPUTED, OldCertificate, check_table
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.cell_noise import MOST_CELLS, CellNoise
from mechdesign.noise.optimal.climb import MOST_PERIODS, Climb
from mechdesign.noise.optimal.costs import law_cost, lower_costs
from mechdesign.noise.optimal.grouped import MOST_GROUPED, grouped_delta
from mechdesign.noise.optimal.lower_bound import Multiplier, weak_duality
from mechdesign.noise.optimal.spline import Spread, spread_bound
from mechdesign.problem.checks import array, instance, whole
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import ApproximateDP, PureDP
from mechdesign.typing import Array, Indices

__all__ = ["NoiseCertificate"]


@serializable("noise-certificate")
@dataclass(frozen=True, eq=False)
class NoiseCertificate(OldCertificate):
    """Exact evidence of an optimal-noise result.

    Parameters
    ----------
    privacy : PureDP or ApproximateDP
    sensitivity : float
    loss : as in `OptimalNoise`
    law : CellNoise
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
    knots, kernels : ndarray of int
        Where there are any, ψ is that of a `Spread`: a row per kernel, a column per inner knot.
    level : Fraction
        Where it is not 0, there are no multipliers but those of `mechdesign.noise.optimal.climb` at this level.
    periods : int
        As many of them; 0 for infinitely many.
    grouped : int
        The bound is one for changes of so many sensitivities at once (`mechdesign.noise.optimal.grouped`).
    """

    privacy: PureDP | ApproximateDP
    sensitivity: float
    loss: Any
    law: CellNoise
    value: Fraction
    lower_bound: Fraction
    cells: int
    shifts: Indices
    psi: Array
    totals: Array
    mirrored: bool
    knots: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    kernels: Indices = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int64))
    level: Fraction = Fraction(0)
    periods: int = 0
    grouped: int = 1

    def __post_init__(self) -> None:
        instance("privacy", self.privacy, PureDP, ApproximateDP)
        spread = len(instance("knots", self.knots, np.ndarray)) > 0
        instance("level", self.level, Fraction)
        whole("periods", self.periods, 0, MOST_PERIODS)
        size = whole("grouped", self.grouped, 1, MOST_GROUPED)
        if size & (size - 1) or size * self.privacy.epsilon > 200 or (spread and size > 1):
            raise DesignError.of("grouped", size, "must be a power of two, 1 with knots, and at most 200/ε")
        whole("cells", self.cells, 1, MOST_CELLS if spread or self.level else 10**5)
        for name in ("psi", "totals"):  # sums of these must be doubles too
            if np.abs(array(name, getattr(self, name), ndim=None, empty=True)).max(initial=0.0) > 1e250:
                raise DesignError.of(name, getattr(self, name), "must be at most 1e250")
        if (self.totals < 0).any():
            raise DesignError.of("totals", self.totals, "must not be negative: they are caps")
        if spread:
            Spread(self.cells, self.knots, self.kernels, self.psi)

    @property
    def delta(self) -> Fraction:
        """δ of the requirement."""
        return Fraction(getattr(self.privacy, "delta", 0.0))

    @property
    def statement(self) -> Mapping[str, Any]:
        """The problem in exact numbers, and what is claimed of it."""
        return {
            "epsilon": Fraction(self.privacy.epsilon),
            "delta": self.delta,
            "sensitivity": Fraction(self.sensitivity),
            "loss": self.loss,
            "value": self.value,
            "lower_bound": self.lower_bound,
        }

    def proved_bound(self) -> Fraction:
        """The lower bound that follows from the multipliers."""
        loss, delta = Loss.of(self.loss), float(self.delta)
        size, epsilon = self.grouped, self.privacy.epsilon
        if len(self.knots):
            spread = Spread(self.cells, self.knots, self.kernels, self.psi)
            return spread_bound(spread, loss, sensitivity=self.sensitivity, epsilon=epsilon, delta=delta)
        sensitivity, delta = size * self.sensitivity, grouped_delta(epsilon, delta, size)
        epsilon *= size
        if self.level and loss.polynomial:
            climb = Climb.of(loss, sensitivity, epsilon=epsilon, delta=delta, periods=self.periods)
            return climb.bound(self.level)
        multipliers = [
            Multiplier(int(s), row, float(t)) for s, row, t in zip(self.shifts, self.psi, self.totals)
        ]
        n, length = self.cells, self.psi.shape[1]
        reach = (length - 1) // 2 + n + 1
        costs = lower_costs(loss, -reach, reach, Fraction(sensitivity) / n)
        return weak_duality(costs, multipliers, shift=n, epsilon=epsilon, delta=delta, mirrored=self.mirrored)

    @property
    def bound_how(self) -> str:
        return PROVED if Loss.of(self.loss).function is None else RECOMPUTED

    def checks(self) -> pd.DataFrame:
        """Privacy, reach, value and lower bound, recomputed from statement, law and multipliers."""
        loss = Loss.of(self.loss)
        exact = self.bound_how
        law = self.law
        spare = self.delta - law.exact_delta(self.privacy.epsilon)
        reach = Fraction(law.width) * law.cells_per_shift - Fraction(self.sensitivity)
        dearer = self.value - law_cost(law, loss)
        bound = self.proved_bound() if loss.function else max(self.proved_bound(), Fraction(0))
        below = bound - self.lower_bound
        return check_table(
            [
                (f"delta at epsilon = {self.privacy.epsilon:g}", PROVED, float(spare), spare >= 0),
                ("shifts up to the sensitivity", PROVED, float(reach), reach >= 0),
                ("value", exact, float(dearer), dearer >= 0),
                ("lower bound", exact, float(below), below >= 0),
            ]
        )

"""The biased extension as a design: how much error a bias budget saves at the same privacy.

Members of the RQM family, rounded by the exponential mechanism (`BiasedQuantizer`), are searched over q, Δ and β for the
least expected loss within an exact privacy budget and a bias budget.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.results import Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.privacy import PureDP
from mechdesign.quantizers.families import settle_family
from mechdesign.quantizers.mechanism.biased import BiasedQuantizer
from mechdesign.quantizers.mechanism.selection import Selection, rqm_family
from mechdesign.runs.grid import Grid

__all__ = ["BiasedResult", "BiasedSelection"]


@serializable("biased-result")
@dataclass(frozen=True, eq=False)
class BiasedResult(Result):
    """Result of a `BiasedSelection`; `table` holds the bias–privacy–error trade-off met on the way."""

    table: pd.DataFrame | None = None

    @property
    def epsilon(self) -> float:
        """Exact privacy loss, rounded up."""
        return self.mechanism.privacy_loss()

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame() if self.table is None else self.table

    def _evidence(self) -> list[str]:
        return [f"exact loss: {self.epsilon!r}, largest bias: {self.mechanism.max_bias():.6g}"]


@serializable("biased-selection")
@dataclass(frozen=True)
class BiasedSelection:
    """The least-loss biased selection mechanism within a privacy and a bias budget.

    Parameters
    ----------
    m : int
        Number of outputs, uniform on [lower − Δ, upper + Δ].
    privacy : PureDP
    prior, loss, input_range
        As in `OPTM`.
    max_bias : float
        Largest allowed |E M(x) − x|; infinity for none.
    grid : Grid, optional
        Axes ``delta``, ``q``, ``beta``; Δ in units of half the range, β per unit of half the range.

    Examples
    --------
    >>> from scipy import stats
    >>> grid = Grid(delta=[0.5, 1.0], q=[0.3, 0.6], beta=[0.1, 0.5])
    >>> result = BiasedSelection(4, PureDP(1.0), stats.uniform(-1, 2), max_bias=math.inf, grid=grid).solve()
    >>> result.epsilon <= 1.0
    True
    """

    m: int
    privacy: PureDP
    prior: Any
    loss: Any = "absolute"
    max_bias: float = math.inf
    input_range: Any = None
    grid: Grid | None = None

    def __post_init__(self) -> None:
        betas = np.concatenate([[0.0], np.geomspace(0.02, 5, 16)])
        settle_family(self, Grid(delta=np.linspace(0.0, 3.0, 13), q=np.linspace(0.1, 0.9, 9), beta=betas))
        if not self.max_bias >= 0:
            raise DesignError.of("max_bias", self.max_bias, "must be non-negative")

    def mechanism(self, delta: float, q: float, beta: float) -> BiasedQuantizer:
        """The member with these parameters."""
        lower, upper = self.input_range
        half = (upper - lower) / 2
        bins = np.linspace(lower - delta * half, upper + delta * half, self.m)
        family = rqm_family(self.m, q)
        return BiasedQuantizer(Selection(bins, family, family), beta / half, self.input_range)

    def solve(self) -> BiasedResult:
        """Search the grid.

        Raises
        ------
        InfeasibleError
            No point meets both budgets; states the smallest loss and bias met.
        """
        started = time.perf_counter()
        assert self.grid is not None
        rows = []
        for point in self.grid:
            candidate = self.mechanism(**point)
            loss = candidate.privacy_loss()
            if loss <= self.privacy.epsilon:
                rows.append({**point, "epsilon": loss, "bias": candidate.max_bias(201)})
        met = [r for r in rows if r["bias"] <= self.max_bias]
        if not met:
            least = min((r["bias"] for r in rows), default=math.inf)
            raise InfeasibleError(
                f"no biased selection mechanism on the grid is within epsilon = {self.privacy.epsilon:g} and "
                f"max_bias = {self.max_bias:g}; the least bias within the privacy budget is {least:.6g}",
                least=least,
            )
        for row in met:
            candidate = self.mechanism(row["delta"], row["q"], row["beta"])
            row["value"] = candidate.expected_loss(self.prior, self.loss)
        table = pd.DataFrame(met).sort_values("value", ignore_index=True)
        first = table.iloc[0]
        best = self.mechanism(float(first["delta"]), float(first["q"]), float(first["beta"]))
        report = SolveReport(
            "grid search", "optimal", time.perf_counter() - started, iterations=len(self.grid)
        )
        return BiasedResult(self, best, float(first["value"]), None, report, table=table)

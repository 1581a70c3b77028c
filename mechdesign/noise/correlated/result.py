"""What a correlated Gaussian design returns: the covariance, and how the vectors share the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.evidence.account import Account
from mechdesign.evidence.old_results import OldResult
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.correlated.account import correlated_account, correlated_alternatives, draw_covariance
from mechdesign.typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CorrelatedGaussianResult"]


@serializable("correlated-gaussian-result")
@dataclass(frozen=True, eq=False)
class CorrelatedGaussianResult(OldResult):
    """A covariance with its cost and a proved lower bound."""

    @property
    def covariance(self) -> Array:
        """Σ, shape (K, K)."""
        return self.mechanism.covariance

    @property
    def spent(self) -> Array:
        r"""Share of the budget each vector takes, :math:`d_k^\top\Sigma^{-1}d_k/\mu_0^2`; at most 1."""
        return self.mechanism.mahalanobis(self.design.vectors) ** 2 / self.design.budget

    def to_frame(self) -> pd.DataFrame:
        """A row per vector of the sensitivity set."""
        return pd.DataFrame({"vector": np.arange(len(self.design.vectors)), "spent": self.spent})

    def account(self) -> Account:
        return correlated_account(self)

    def alternatives(self) -> pd.DataFrame:
        return correlated_alternatives(self)

    def plot(self, **options: Any) -> Figure:
        """Draw the correlations as shades."""
        return draw_covariance(self, **options)

    def _audit(self) -> pd.DataFrame:
        budget, used = self.design.budget, self.spent * self.design.budget
        dual = np.full(len(used), np.nan) if self.duals is None else self.duals["dual"].to_numpy()
        rows = [
            ("privacy", k, float(v), budget, float(budget - v), float(y), bool(budget - v <= 1e-7 * budget))
            for k, (v, y) in enumerate(zip(used, dual))
        ]
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def _evidence(self) -> list[str]:
        used = self.spent
        return [
            f"{len(used)} sensitivity vectors in {self.design.vectors.shape[1]} dimensions, "
            f"{int((used > 1 - 1e-6).sum())} active, largest share of the budget {used.max():.15g}",
            f"released on multiples of {self.mechanism.step:.6g} after whitening, wider by "
            f"{self.mechanism.lattice_cost:.2g}",
        ]

"""What a matrix mechanism returns: the strategy, its answers' errors, and the published factorizations beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.evidence.account import Account
from mechdesign.evidence.digits import at_most, shown
from mechdesign.evidence.old_results import OldResult
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.matrix.published import published, svd_bound
from mechdesign.noise.pictures import relative_table
from mechdesign.plotting import COLOURS, figure, sized
from mechdesign.problem.words import NEIGHBOURS, guarantee, privacy_words, unit_words
from mechdesign.typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MatrixResult"]


@serializable("matrix-result")
@dataclass(frozen=True, eq=False)
class MatrixResult(OldResult):
    """A strategy with the error of its answers and a proved lower bound."""

    @property
    def covariance(self) -> Array:
        """Covariance of the answers, shape (m, m)."""
        return self.mechanism.covariance

    @property
    def variances(self) -> Array:
        """Variance of each answer, shape (m,)."""
        return self.mechanism.variances()

    @property
    def spent(self) -> float:
        """Share of the budget that the worst change takes; at most 1."""
        return float(self.design.changes.spent(self.mechanism.strategy)[0]) / float(self.design.budget)

    def compare(self) -> pd.DataFrame:
        """The same queries at the same privacy, answered as published.

        Returns
        -------
        DataFrame
            Columns mechanism, error (the design's own loss), relative to this result's; last the proved lower bounds.
        """
        design = self.design
        largest, unit = design.largest, 1 / design.budget
        known = published(design.workload, design.changes, largest=largest)
        rows = [("this mechanism", self.value)]
        rows += sorted(((name, error * unit) for name, error in known.items()), key=lambda row: row[1])
        if design.changed == 1 and not largest:
            rows.append(
                ("lower bound of the singular values", svd_bound(design.workload, design.changes) * unit)
            )
        if self.lower_bound is not None:
            rows.append(("proved least of all covariances", self.lower_bound))
        return relative_table(rows)

    def to_frame(self) -> pd.DataFrame:
        """A row per answer."""
        variances = self.variances
        return pd.DataFrame(
            {
                "query": np.arange(len(variances)),
                "variance": variances,
                "standard_deviation": np.sqrt(variances),
            }
        )

    def alternatives(self) -> pd.DataFrame:
        return self.compare()

    def account(self) -> Account:
        d = self.design
        value = (
            "sum of the variances of the answers" if d.loss == "total" else "largest variance of an answer"
        )
        what = "rise or fall" if d.signed else "change, all up or all down,"
        question = [
            f"{d.workload}. Between neighbouring data sets at most {d.changed} of the counts {what} by at most {shown(d.most)}. "
            "Noise is added to other sums of the counts, chosen for the purpose, and the answers are made from these.",
            privacy_words(d.privacy, NEIGHBOURS),
            unit_words("stated how many counts change", "The guarantee is for all answers together."),
            f"Wanted is the strategy of least {value}; the lower bound is over all of them.",
        ]
        return Account(
            f"Matrix mechanism at {guarantee(d.privacy)}",
            f"For {d.workload}: least {value}.",
            "\n\n".join(question),
            value,
            (guarantee(d.privacy), f"{at_most(self.spent)} of the budget spent at most"),
            "The standard deviation of each answer.",
            "The same queries at the same privacy, from what is published.",
        )

    def plot(self, **options: Any) -> Figure:
        """Draw the standard deviation of each answer."""
        fig, axis = figure(**sized(options, 5.0, 3.2))
        axis.plot(np.sqrt(self.variances), color=COLOURS[0])
        axis.set(xlabel="query", ylabel="standard deviation", ylim=(0, None))
        return fig

    def _audit(self) -> pd.DataFrame:
        budget = self.design.budget
        used = float(self.design.changes.spent(self.mechanism.strategy)[0])
        rows = [("privacy", 0, used, budget, budget - used, float("nan"), budget - used <= 1e-7 * budget)]
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def _evidence(self) -> list[str]:
        d = self.design
        return [
            f"{d.workload}; {d.changes.count} changes up to sign, the worst spends {at_most(self.spent, 15)} of the budget",
            f"released on multiples of {self.mechanism.step:.6g} of the strategy's answers, wider by "
            f"{self.mechanism.lattice_cost:.2g}"
            + ("; answers can be streamed" if self.mechanism.streams else ""),
        ]

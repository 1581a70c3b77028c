"""Results of metric and approximate privacy: the loss that is spent, the audit, the status."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError
from mechdesign.evidence.old_results import OldResult
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import non_negative, number, one_of, positive, whole
from mechdesign.problem.privacy import MetricDP
from mechdesign.quantizers.common.account import QuantizerPage
from mechdesign.quantizers.metric.certificate import MetricCertificate
from mechdesign.typing import Array, Status

if TYPE_CHECKING:
    pass

__all__ = ["MetricQuantizerResult"]


@serializable("metric-quantizer-result")
@dataclass(frozen=True, eq=False)
class MetricQuantizerResult(QuantizerPage, OldResult):
    """Result of `MetricQuantizer`."""

    @property
    def _rows(self) -> Array:
        return np.vstack([self.mechanism.starts, self.mechanism.ends[-1:]])

    @property
    def epsilon(self) -> float:
        """Smallest ε at which the float tables satisfy the notion, rounded up (at the design's δ)."""
        if self.design.continuum:
            return float(self.mechanism.metric_loss())
        if self.design.notion.delta:
            return float(self.design.privacy.epsilon)  # checked with slack when the result was made
        return self.design.notion.needed(self.mechanism.knots, self._rows)

    def vector_epsilon(self, diameter: float, dimension: int | None = None) -> float:
        """Pure-DP level of the mechanism applied to every coordinate of a vector.

        With the squared metric :math:`\\varepsilon D^2` for vectors at most D apart in Euclidean norm (a ball of
        radius B has D = 2B); with the absolute metric :math:`\\varepsilon \\sqrt{d} D` in d dimensions.
        """
        privacy, size = self.design.privacy, positive("diameter", diameter)
        if not isinstance(privacy, MetricDP) or callable(privacy.metric):
            raise DesignError.of(
                "privacy", privacy, 'must be MetricDP with the metric "squared" or "absolute"'
            )
        if privacy.metric == "squared":
            return self.epsilon * size**2
        return self.epsilon * math.sqrt(whole("dimension", dimension, 1)) * size

    def certify(self) -> MetricCertificate:
        """Return the exact rational certificate.

        Raises
        ------
        DesignError
            The design was solved with ``certify=False``.
        """
        if not isinstance(self.certificate, MetricCertificate):
            raise DesignError("this result has no exact law: solve with certify=True")
        return self.certificate

    def ended(self, gap: float, *, limited: bool, seconds: float) -> MetricQuantizerResult:
        """Return the result with the status that fits the gap asked for."""
        gap, seconds = number("gap", gap), non_negative("seconds", seconds)
        one_of("limited", limited, (True, False))
        notes = self.notes
        if limited:
            status = Status.LIMIT
        elif self.certificate is None:
            status = Status.UNCERTIFIED
        elif self.gap is None:
            status = Status.FEASIBLE
        else:
            status = Status.OPTIMAL if self.gap <= gap else Status.GAP
        if status is Status.GAP:
            proved = f"{self.gap:.2g} is what {len(self.mechanism.knots)} knots proved"
            notes = (*notes, f"gap {gap:g} was asked for; {proved}")
        return replace(
            self, notes=notes, solver_report=replace(self.solver_report, status=status, seconds=seconds)
        )

    _among = "all mechanisms with these outputs that are right on average"

    def _audit(self) -> pd.DataFrame:
        x, rows, notion = self.mechanism.knots, self._rows, self.design.notion
        k, l = notion.pairs(len(x))
        out = [
            ("privacy", f"x={x[a]:g}, x'={x[b]:g}", 0.0, s, s, math.nan, abs(s) < 1e-9)
            for a, b, s in zip(k, l, notion.slack(x, rows))
        ]
        totals, means = rows.sum(axis=1).tolist(), (rows @ self.mechanism.bins).tolist()
        for v, total, mean in zip(x.tolist(), totals, means):
            out.append(("normalisation", f"x={v:g}", total, 1.0, -abs(total - 1), math.nan, True))
            out.append(("unbiased", f"x={v:g}", mean, v, -abs(mean - v), math.nan, True))
        return pd.DataFrame(out, columns=AUDIT_COLUMNS)

    def to_frame(self) -> pd.DataFrame:
        m = self.mechanism
        columns = {f"{b:g}": np.append(m.starts[:, i], m.ends[-1, i]) for i, b in enumerate(m.bins)}
        return pd.DataFrame({"x": m.knots, **columns})

    def _evidence(self) -> list[str]:
        where = "on the continuum" if self.design.continuum else f"on {len(self.mechanism.knots)} inputs"
        budget = self.design.privacy.epsilon
        return [f"privacy {where}: {self.epsilon!r} <= budget {budget!r}, knots: {len(self.mechanism.knots)}"]

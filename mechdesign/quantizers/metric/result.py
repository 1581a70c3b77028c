"""Results of metric and approximate privacy: exact repair of the program's rows, audit, certificate."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.results import AUDIT_COLUMNS, Result
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.privacy import ApproximateDP, MetricDP
from mechdesign.quantizers.mechanism.exact_law import RationalTable
from mechdesign.typing import Array

if TYPE_CHECKING:
    from mechdesign.quantizers.metric.design import MetricQuantizer

__all__ = ["MetricCertificate", "MetricQuantizerResult", "privacy_slack", "repair"]

# Rounding of a product and a sum of m terms, with room to spare.
_ROUNDING = 1e-13


def privacy_slack(design: MetricQuantizer, knots: Array, rows: Array) -> Array:
    """Slack of every pair (k, l): least of ratio·P_l − P_k over outputs, or δ − Σ(P_k − e^ε P_l)⁺."""
    k, l, ratio = design.ratios(knots)
    out = np.empty(len(k))
    delta = design.privacy.delta if isinstance(design.privacy, ApproximateDP) else None
    for start in range(0, len(k), 4096):
        part = slice(start, start + 4096)
        excess = rows[k[part]] - ratio[part, None] * rows[l[part]]
        if delta is None or delta == 0:
            out[part] = (-excess).min(axis=1)
        else:
            out[part] = delta - np.maximum(excess, 0.0).sum(axis=1)
    return out


def repair(design: MetricQuantizer, knots: Array, rows: Array) -> Array | None:
    """Make a solver's rows exactly normalised, unbiased and private in floats; None if its errors are too large.

    Rows are raised to their smallest majorant that respects the ratios, then the sum and the mean are restored
    on two large entries of each row; the program was solved for a slightly smaller ε to leave room for that.
    """
    bins = np.array(design.bins)
    P = np.maximum(np.asarray(rows, dtype=float), 0.0)
    approximate = isinstance(design.privacy, ApproximateDP) and design.privacy.delta > 0
    if not approximate:
        k, l, ratio = design.ratios(knots, 1e-9)
        # P_l ≥ P_k / ratio for all pairs; neighbours need two sweeps, all pairs of a metric one.
        if isinstance(design.privacy, MetricDP) and design.privacy.metric == "absolute":
            step = ratio[: len(knots) - 1]
            for r in range(1, len(knots)):
                P[r] = np.maximum(P[r], P[r - 1] / step[r - 1])
            for r in range(len(knots) - 2, -1, -1):
                P[r] = np.maximum(P[r], P[r + 1] / step[r])
        else:
            raised = P.copy()
            np.maximum.at(raised, l, P[k] / ratio[:, None])
            P = raised
    for _ in range(3):
        n = np.arange(len(knots))
        excess, off = P.sum(axis=1) - 1.0, P @ bins - knots
        # Two entries that matter: the largest, and the largest of those far enough from it.
        first = np.argmax(P, axis=1)
        away = np.where(np.arange(len(bins)) == first[:, None], -1.0, P)
        second = np.argmax(away, axis=1)
        change = (off - excess * bins[first]) / (bins[second] - bins[first])
        P[n, second] -= change
        P[n, first] -= excess - change
    if P.min() < 0 or np.abs(P.sum(axis=1) - 1).max() > 1e-14 or np.abs(P @ bins - knots).max() > 1e-13:
        return None
    slack = privacy_slack(design, knots, P)
    if approximate:
        return P if slack.min() >= _ROUNDING else None
    k, l, ratio = design.ratios(knots)
    return P if np.all(P[k] * (1 + _ROUNDING) <= ratio[:, None] * P[l]) else None


@serializable("metric-certificate")
@dataclass(frozen=True)
class MetricCertificate:
    """Exact proof that a rational quantizer is unbiased and satisfies its privacy notion.

    Parameters
    ----------
    law : RationalTable
    design : MetricQuantizer
        Its privacy notion and input grid; on the continuum the ratio 1 + εh of neighbours is checked.
    """

    law: RationalTable
    design: Any

    def checks(self) -> pd.DataFrame:
        """Normalisation, sign, mean and privacy with their worst exact slack (as a double)."""
        law = self.law
        rows = [law.row(0, 0), *(law.row(k, 1) for k in range(len(law.knots) - 1))]
        total = max(abs(sum(row, Fraction(0)) - 1) for row in rows)
        least = min(min(row) for row in rows)
        bias = max(
            abs(sum((b * p for b, p in zip(law.bins, row)), Fraction(0)) - x)
            for row, x in zip(rows, law.knots)
        )
        privacy = self._privacy(rows)
        found = [
            ("normalisation", float(-total), total == 0),
            ("non-negativity", float(least), least >= 0),
            ("unbiased", float(-bias), bias == 0),
            ("privacy", float(privacy), privacy >= 0),
        ]
        return pd.DataFrame(found, columns=["check", "slack", "holds"])

    def _privacy(self, rows: list[list[Fraction]]) -> Fraction:
        design, x = self.design, self.law.knots
        epsilon = Fraction(design.privacy.epsilon)
        delta = Fraction(getattr(design.privacy, "delta", 0.0))
        k, l, _ = design.ratios(np.array([float(v) for v in x]))
        worst: Fraction | None = None
        cache: dict[Fraction, Fraction] = {}
        for a, b in zip(k.tolist(), l.tolist()):
            if design.continuum:
                ratio = 1 + epsilon * abs(x[a] - x[b])
            else:
                if not isinstance(design.privacy, MetricDP):
                    power = epsilon
                elif design.privacy.metric == "absolute":
                    power = epsilon * abs(x[a] - x[b])
                elif design.privacy.metric == "squared":
                    power = epsilon * (x[a] - x[b]) ** 2
                else:
                    power = epsilon * Fraction(float(design.privacy.distance(float(x[a]), float(x[b]))))
                if power not in cache:
                    cache[power] = exp_lower(power)
                ratio = cache[power]
            if delta > 0:
                slack = delta - sum(
                    (max(p - ratio * q, Fraction(0)) for p, q in zip(rows[a], rows[b])), Fraction(0)
                )
            else:
                slack = min(ratio * q - p for p, q in zip(rows[a], rows[b]))
            worst = slack if worst is None else min(worst, slack)
        assert worst is not None
        return worst

    def verify(self) -> bool:
        """Whether every check holds in exact arithmetic."""
        return bool(self.checks()["holds"].all())


@serializable("metric-quantizer-result")
@dataclass(frozen=True, eq=False)
class MetricQuantizerResult(Result):
    """Result of `MetricQuantizer`."""

    @property
    def epsilon(self) -> float:
        """Smallest ε at which the float tables satisfy the notion, rounded up (at the design's δ)."""
        m = self.mechanism
        design = self.design
        if design.continuum:
            return float(m.metric_loss())
        if isinstance(design.privacy, ApproximateDP) and design.privacy.delta > 0:
            return float(design.privacy.epsilon)  # checked with slack when the result was made
        rows = np.vstack([m.starts, m.ends[-1:]])
        k, l, ratio = design.ratios(m.knots)
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.log(np.where(rows[k] > 0, rows[k] / rows[l], 1.0)).max(axis=1)
            unit = np.log(ratio) / design.privacy.epsilon
            return float(np.max(np.where(needed > 0, needed / unit, 0.0)) * (1 + 1e-13))

    def vector_epsilon(self, diameter: float, dimension: int | None = None) -> float:
        """Pure-DP level of the mechanism applied to every coordinate of a vector.

        With the squared metric :math:`\\varepsilon D^2` for vectors at most D apart in Euclidean norm (a ball of
        radius B has D = 2B); with the absolute metric :math:`\\varepsilon \\sqrt{d} D` in d dimensions.
        """
        if not isinstance(self.design.privacy, MetricDP) or callable(self.design.privacy.metric):
            raise ValueError('vector_epsilon needs MetricDP with the metric "squared" or "absolute"')
        if self.design.privacy.metric == "squared":
            return self.epsilon * diameter**2
        if dimension is None:
            raise ValueError("the absolute metric needs the dimension of the vectors")
        return self.epsilon * math.sqrt(dimension) * diameter

    def certify(self) -> MetricCertificate:
        """Return the exact rational certificate of (a rational mechanism within 2⁻⁶⁰ of) the mechanism."""
        bins = [Fraction(float(b)) for b in self.mechanism.bins]
        knots = [Fraction(float(x)) for x in self.mechanism.knots]
        rows = []
        for row, x in zip(np.vstack([self.mechanism.starts, self.mechanism.ends[-1:]]), knots):
            p = [Fraction(float(v)) for v in row]
            order = np.argsort(-row)
            i, j = int(order[0]), int(order[1])
            mass = 1 - sum((v for n, v in enumerate(p) if n not in (i, j)), Fraction(0))
            mean = x - sum((b * v for n, (b, v) in enumerate(zip(bins, p)) if n not in (i, j)), Fraction(0))
            p[j] = (mean - mass * bins[i]) / (bins[j] - bins[i])
            p[i] = mass - p[j]
            rows.append(p)
        return MetricCertificate(RationalTable.continuous(bins, knots, rows), self.design)

    def noted(self, note: str) -> MetricQuantizerResult:
        """Return the result with one more note."""
        return replace(self, notes=(*self.notes, note))

    def _audit(self) -> pd.DataFrame:
        m, design = self.mechanism, self.design
        rows = np.vstack([m.starts, m.ends[-1:]])
        k, l, _ = design.ratios(m.knots)
        slack = privacy_slack(design, m.knots, rows)
        out = [
            ("privacy", f"x={m.knots[a]:g}, x'={m.knots[b]:g}", 0.0, s, s, math.nan, abs(s) < 1e-9)
            for a, b, s in zip(k, l, slack)
        ]
        for x, row in zip(m.knots, rows):
            total, mean = float(row.sum()), float(row @ m.bins)
            out.append(("normalisation", f"x={x:g}", total, 1.0, -abs(total - 1), math.nan, True))
            out.append(("unbiased", f"x={x:g}", mean, float(x), -abs(mean - x), math.nan, True))
        return pd.DataFrame(out, columns=AUDIT_COLUMNS)

    def to_frame(self) -> pd.DataFrame:
        m = self.mechanism
        columns = {f"{b:g}": np.append(m.starts[:, i], m.ends[-1, i]) for i, b in enumerate(m.bins)}
        return pd.DataFrame({"x": m.knots, **columns})

    def _evidence(self) -> list[str]:
        where = "on the continuum" if self.design.continuum else f"on {len(self.mechanism.knots)} inputs"
        budget = self.design.privacy.epsilon
        return [f"privacy {where}: {self.epsilon!r} <= budget {budget!r}, knots: {len(self.mechanism.knots)}"]

r"""Slack tables: every constraint of the definition, recomputed from the mechanism alone.

For a quantizer, at both ends of every segment x and for every output i

- privacy: :math:`p(x, i) \le e^{\varepsilon} \min_{x'} p(x', i)`,
- normalisation: :math:`\sum_i p(x, i) = 1`; unbiasedness: :math:`\sum_i B_i p(x, i) = x`,
- non-negativity: :math:`p(x, i) \ge 0`.

Where the mechanism has an exact law, slacks are computed in fractions and rounded down.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pandas as pd

from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.evidence.rounding import round_down
from mechdesign.quantizers.mechanism.quantizer import Quantizer

__all__ = ["is_exact", "quantizer_slack"]

_ACTIVE = 1e-9


def is_exact(mechanism: Quantizer) -> bool:
    """Whether `quantizer_slack` works in fractions: there is an exact law, and not so large that it takes seconds."""
    return mechanism.law is not None and mechanism.starts.size <= 4096


def quantizer_slack(mechanism: Quantizer, epsilon: float, *, max_bias: float = 0.0) -> pd.DataFrame:
    """Return the audit table of a quantizer: family, index, lhs, rhs, slack, dual, active."""
    law = mechanism.law if is_exact(mechanism) else None
    number: Any = float if law is None else Fraction
    rho: Any = math.exp(epsilon) if law is None else exp_lower(epsilon)
    bins: Any = mechanism.bins.tolist() if law is None else law.bins
    limits: list[tuple[str, Any, list[Any]]] = []
    for n, probabilities in enumerate(mechanism.rows.tolist()):
        k, end = divmod(n, 2)
        x = float(mechanism.knots[k + end])
        label = f"x={x:g}{'-' if end else '+'}"
        limits.append(
            (label, x, probabilities) if law is None else (label, law.knots[k + end], law.row(k, end))
        )
    floor = [min(column) for column in zip(*(row for *_, row in limits))]
    out: list[tuple[str, str, float, float, float, float, bool]] = []

    def add(family: str, index: str, lhs: Any, rhs: Any, slack: Any, active: bool) -> None:
        out.append((family, index, float(lhs), float(rhs), round_down(slack), math.nan, active))

    for where, x, probabilities in limits:
        total, mean = sum(probabilities), sum(b * p for b, p in zip(bins, probabilities))
        slack = number(max_bias) - abs(mean - x)
        add("normalisation", where, total, 1.0, -abs(total - 1), True)
        add("unbiased", where, mean, x, slack, max_bias == 0 or slack <= _ACTIVE)
        for i, p in enumerate(probabilities):
            slack = rho * floor[i] - p
            add("privacy", f"{where} i={i + 1}", p, rho * floor[i], slack, slack <= _ACTIVE)
            add("non-negativity", f"{where} i={i + 1}", p, 0.0, p, p <= _ACTIVE)
    return pd.DataFrame(out, columns=AUDIT_COLUMNS)

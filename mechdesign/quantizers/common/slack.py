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
from mechdesign.quantizers.mechanism.exact_law import ExactLaw
from mechdesign.quantizers.mechanism.quantizer import Quantizer

__all__ = ["is_exact", "quantizer_slack"]

_ACTIVE = 1e-9


def _down(value: Fraction | float) -> float:
    """A double not above `value`."""
    near = float(value)
    return math.nextafter(near, -math.inf) if Fraction(near) > value else near


def is_exact(mechanism: Quantizer) -> bool:
    """Whether `quantizer_slack` works in fractions: there is an exact law, and not so large that it takes seconds."""
    cells = (len(mechanism.knots) - 1) * len(mechanism.bins)
    return isinstance(mechanism.law, ExactLaw) and cells <= 4096


def quantizer_slack(mechanism: Quantizer, epsilon: float, *, max_bias: float = 0.0) -> pd.DataFrame:
    """Return the audit table of a quantizer: family, index, lhs, rhs, slack, dual, active."""
    law = mechanism.law
    exact = is_exact(mechanism)
    count = len(mechanism.knots) - 1
    number: Any = Fraction if exact else float
    rho: Any = exp_lower(epsilon) if exact else math.exp(epsilon)
    bins: list[Any] = (
        [number(float(b)) for b in mechanism.bins] if not exact or law is None else list(law.bins)
    )
    knots = [float(x) for x in mechanism.knots]
    rows: list[tuple[str, Any, list[Any]]] = []
    probabilities: list[Any]
    x: Any
    for k in range(count):
        for end in (0, 1):
            side = "+" if end == 0 else "-"
            if exact and law is not None:
                probabilities, x = law.row(k, end), law.knots[k + end]
            else:
                probabilities = [float(p) for p in (mechanism.ends if end else mechanism.starts)[k]]
                x = knots[k + end]
            rows.append((f"x={knots[k + end]:g}{side}", x, probabilities))
    floor = [min(r[2][i] for r in rows) for i in range(len(bins))]
    out: list[tuple[str, str, float, float, float, float, bool]] = []

    def add(family: str, index: str, lhs: Any, rhs: Any, slack: Any, active: bool) -> None:
        out.append((family, index, float(lhs), float(rhs), _down(slack), math.nan, active))

    for where, x, probabilities in rows:
        total, mean = sum(probabilities), sum(b * p for b, p in zip(bins, probabilities))
        add("normalisation", where, total, 1.0, -abs(total - 1), True)
        add(
            "unbiased",
            where,
            mean,
            x,
            number(max_bias) - abs(mean - x),
            max_bias == 0 or abs(mean - x) >= max_bias - _ACTIVE,
        )
        for i, p in enumerate(probabilities):
            slack = rho * floor[i] - p
            add("privacy", f"{where} i={i + 1}", p, rho * floor[i], slack, slack <= _ACTIVE)
            add("non-negativity", f"{where} i={i + 1}", p, 0.0, p, p <= _ACTIVE)
    return pd.DataFrame(out, columns=AUDIT_COLUMNS)

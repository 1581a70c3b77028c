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

import numpy as np
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
    law, rows = mechanism.law, mechanism.rows
    places = np.arange(1, len(rows) + 1) // 2  # the knot at which each row is a limit
    x, bins = mechanism.knots[places], mechanism.bins
    rho: Any = math.exp(min(epsilon, 700.0))
    allowed: Any = max_bias
    labels = [f"x={v:g}{'+-'[n % 2]}" for n, v in enumerate(x)]
    exact = is_exact(mechanism)
    if law is not None and exact:
        rows = np.array([law.row(*divmod(n, 2)) for n in range(len(rows))])
        x, bins = np.array(law.knots)[places], np.array(law.bins)
        rho, allowed = exp_lower(min(epsilon, 700.0)), Fraction(max_bias)
    total, mean, top = rows.sum(axis=1), rows @ bins, rho * rows.min(axis=0) + 0 * rows
    bias = allowed - abs(mean - x)
    each = [f"{label} i={i}" for label in labels for i in range(1, len(bins) + 1)]
    families = [
        ("normalisation", labels, total, 1 + 0 * total, -abs(total - 1), True),
        ("unbiased", labels, mean, x, bias, (max_bias == 0) | (bias <= _ACTIVE)),
        ("privacy", each, rows, top, top - rows, None),
        ("non-negativity", each, rows, 0 * rows, rows, None),
    ]
    parts = []
    for family, index, lhs, rhs, slack, active in families:
        part = pd.DataFrame({"family": family, "index": index})
        part["lhs"], part["rhs"] = lhs.ravel().astype(float), rhs.ravel().astype(float)
        part["slack"], part["dual"] = (
            [round_down(v) for v in slack.ravel()] if exact else slack.ravel(),
            math.nan,
        )
        part["active"] = part["slack"] <= _ACTIVE if active is None else active
        parts.append(part[AUDIT_COLUMNS])
    return pd.concat(parts, ignore_index=True)

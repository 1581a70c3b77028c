r"""Theorem 6 of the OPTM paper: the compact sufficient condition, with three bounds whatever m is.

It orders the selection probabilities so that the largest probability of any output is one of
:math:`z(-c, s-1), q_s(s)` and the smallest of any output one of :math:`w(B_t, 1), w(c, 1)`, with
:math:`B_s, B_t` the first and last bin inside [−c, c], and compares those. It asks the maximum over *all*
outputs against the minimum over *all* outputs, so it is conservative: at m = 4 it is infeasible below ε = log 3,
and at every ε where its order contradicts itself (bins ±a, ±b with a > 3b).
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from mechdesign.quantizers.optm.products import Form, View

__all__ = ["theorem6_pairs", "theorem6_rows"]


def _inside(view: View) -> tuple[int, int]:
    inside = np.flatnonzero((view.bins >= view.lower) & (view.bins <= view.upper)) + 1
    return int(inside[0]), int(inside[-1])


def theorem6_pairs(view: View) -> list[tuple[Form, Form]]:
    """The four comparisons {z(−c, s−1), q_s(s)} ≤ e^ε {w(B_t, 1), w(c, 1)}."""
    s, t = _inside(view)
    highs = [view.alone(view.outer, s)] + ([view.probability(s - 1, view.lower)] if s > 1 else [])
    ends = sorted({float(view.bins[t - 1]), view.upper} - {float(view.bins[0])})
    lows = [view.probability(1, x, from_left=True) for x in ends]
    return [(high, low) for high in highs for low in lows]


def theorem6_rows(view: View) -> sparse.csr_array:
    """The order constraints as rows of a matrix M with M q ≥ 0."""
    bins, m, index = view.bins, len(view.bins), view.outer.index
    s, t = _inside(view)
    entries: list[tuple[int, float, int, float]] = []  # (plus position, plus, minus position, minus)
    for j in range(1, m):
        for i in range(1, j + 1):
            if j + 1 < m:
                entries.append((index(j, i), 1.0, index(j + 1, i), 1.0))
            if i < j:
                entries.append((index(j, i + 1), 1.0, index(j, i), 1.0))
    for i in range(s, min(t, m - 2) + 1):
        entries.append((index(i, i), 1.0, index(i + 1, i + 1), 1.0))
    for k in range(s, t + 1):
        for r in range(k + 2, m + 1):
            near, far = 1.0 / (bins[r - 1] - bins[k]), 1.0 / (bins[r - 1] - bins[k - 1])
            for n in (m - k + 1, m - k):
                i = m + 1 - r
                if n <= m - 1 and i <= n - 1:
                    entries.append((index(n, i), near, index(n - 1, i), far))
    plus, a, minus, b = (np.array(v) for v in zip(*entries))
    rows = np.arange(len(entries))
    places = np.concatenate([rows, rows]), np.concatenate([plus, minus])
    return sparse.csr_array((np.concatenate([a, -b]), places), shape=(len(entries), view.outer.size))

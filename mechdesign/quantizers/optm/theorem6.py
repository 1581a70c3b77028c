r"""Theorem 6 of the OPTM paper: the compact sufficient condition, with three bounds whatever m is.

It orders the selection probabilities so that the largest probability of any output is one of
:math:`z(-c, s-1), q_s(s)` and the smallest of any output one of :math:`w(B_t, 1), w(c, 1)`, with
:math:`B_s, B_t` the first and last bin inside [−c, c], and compares those. It asks the maximum over *all*
outputs against the minimum over *all* outputs, so it is conservative: at m = 4 it is infeasible below ε = log 3.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from mechdesign.quantizers.optm.products import EXACT, Family, Form, Pairs, _form
from mechdesign.typing import Array

__all__ = ["theorem6_pairs", "theorem6_rows"]


def _inside(bins: Array, lower: float, upper: float) -> tuple[int, int]:
    inside = np.flatnonzero((bins >= lower) & (bins <= upper)) + 1
    return int(inside[0]), int(inside[-1])


def theorem6_pairs(bins: Array, lower: float, upper: float, family: Family, width: int) -> Pairs:
    """The four comparisons {z(−c, s−1), q_s(s)} ≤ e^ε {w(B_t, 1), w(c, 1)}."""
    m = len(bins)
    s, t = _inside(bins, lower, upper)
    pairs = Pairs()

    def add(i: int, x: float, j: int) -> int:
        return pairs.add(_form(bins, family, family, width, i, x, j, drop_outer=False, tag=""))

    top = np.zeros(width)
    top[family.index(s, s)] = 1.0
    highs = [pairs.add(Form(top, EXACT, f"q_{s}({s})"))]
    if s > 1:
        highs.append(add(s - 1, lower, s - 1))
    lows = [add(1, bins[t - 1], t - 1)] if t > 1 else []
    if t < m:
        lows.append(add(1, upper, t))
    pairs.cross(highs, lows)
    return pairs


def theorem6_rows(bins: Array, lower: float, upper: float, family: Family, width: int) -> sparse.csr_array:
    """The order constraints as rows of a matrix M with M q ≥ 0."""
    m = len(bins)
    s, t = _inside(bins, lower, upper)
    entries: list[tuple[int, float, int, float]] = []  # (plus position, plus, minus position, minus)
    for j in range(1, m):
        for i in range(1, j + 1):
            if j + 1 < m:
                entries.append((family.index(j, i), 1.0, family.index(j + 1, i), 1.0))
            if i < j:
                entries.append((family.index(j, i + 1), 1.0, family.index(j, i), 1.0))
    for i in range(s, min(t, m - 2) + 1):
        entries.append((family.index(i, i), 1.0, family.index(i + 1, i + 1), 1.0))
    for k in range(s, t + 1):
        for r in range(k + 2, m + 1):
            near, far = 1.0 / (bins[r - 1] - bins[k]), 1.0 / (bins[r - 1] - bins[k - 1])
            for n in (m - k + 1, m - k):
                i = m + 1 - r
                if n <= m - 1 and i <= n - 1:
                    entries.append((family.index(n, i), near, family.index(n - 1, i), far))
    plus, a, minus, b = (np.array(v) for v in zip(*entries))
    rows = np.arange(len(entries))
    data, index = np.concatenate([a, -b]), (np.concatenate([rows, rows]), np.concatenate([plus, minus]))
    return sparse.csr_array((data, index), shape=(len(entries), width))

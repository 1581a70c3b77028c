r"""The selection family: draw one bin on each side of the input, round between them without bias.

For x in :math:`[B_j, B_{j+1})`

.. math::

    p(x, l) &= q^{L}_j(l) \sum_{r > j} q^{R}_{m-j}(m+1-r) \frac{B_r - x}{B_r - B_l}, & l &\le j, \\
    p(x, r) &= q^{R}_{m-j}(m+1-r) \sum_{l \le j} q^{L}_j(l) \frac{x - B_l}{B_r - B_l}, & r &> j.

Source: *Privacy-Aware Randomized Quantization via Linear Programming*, §3. RQM and ERM are two members:
:func:`rqm_family`, :func:`erm_family`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import array, increasing, interval, positive, probability, settle
from mechdesign.quantizers.mechanism.exact_law import SelectionLaw
from mechdesign.quantizers.mechanism.table import cell_edges
from mechdesign.typing import Array

__all__ = [
    "Selection",
    "check_bins",
    "check_range",
    "erm_family",
    "mirrored_bins",
    "rqm_family",
    "symmetric_bins",
]

_WEIGHT_BITS = 72


def check_bins(bins: Any) -> Array:
    """Return bins as a read-only float array, or raise DesignError naming what is wrong with them."""
    return increasing("bins", bins)


def check_range(input_range: Any, bins: Array) -> tuple[float, float]:
    """Return the input range as two floats, checked to be covered by the bins."""
    lower, upper = interval("input_range", input_range)
    if bins[0] > lower or bins[-1] < upper:
        raise DesignError(
            f"bins = [{bins[0]:g}, …, {bins[-1]:g}]: must cover the input range [{lower:g}, {upper:g}], "
            "or no mechanism can be unbiased"
        )
    return lower, upper


def symmetric_bins(bins: Array) -> bool:
    """Whether the bins mirror exactly about zero."""
    return bool(np.all(bins == -bins[::-1]))


def mirrored_bins(bins: Array) -> Array:
    """Return bins that mirror exactly about zero where they did up to rounding (as from ``linspace``)."""
    mirrored = (bins - bins[::-1]) / 2
    if np.all(np.abs(mirrored - bins) <= 8 * np.finfo(float).eps * np.abs(bins).max()):
        mirrored.setflags(write=False)
        return mirrored
    return bins


def rqm_family(m: int, q: float) -> Array:
    """Selection probabilities of RQM (Youn et al. 2023); shape (m − 1, m − 1), row n has n + 1 entries.

    q_j(1) = (1−q)^(j−1), q_j(i) = q (1−q)^(j−i) for 1 < i ≤ j.
    """
    if probability("q", q, below_one=True) == 0:
        raise DesignError.of("q", q, "must be in (0, 1)")
    j, i = np.indices((m - 1, m - 1))
    table = np.where(i == 0, (1 - q) ** j, q * (1 - q) ** np.maximum(j - i, 0))
    return np.where(i <= j, table, 0.0)


def erm_family(bins: Array, gamma: float) -> Array:
    """Selection probabilities of ERM: q_j(i) ∝ exp(γ (B_i − B_j) / (2 (B_j − B_1))), q_1(1) = 1."""
    gamma, m = positive("gamma", gamma), len(bins)
    table = np.zeros((m - 1, m - 1))
    table[0, 0] = 1.0
    for j in range(1, m - 1):
        weights = np.exp(gamma * (bins[: j + 1] - bins[j]) / (2 * (bins[j] - bins[0])))
        table[j, : j + 1] = weights / weights.sum()
    return table


@serializable("selection")
@dataclass(frozen=True, eq=False)
class Selection:
    """Bins with a left and a right family of selection probabilities.

    Parameters
    ----------
    bins : array, shape (m,)
    left, right : arrays, shape (m − 1, m − 1), lower triangular
        Row n − 1 holds q_n(1), …, q_n(n); the right family counts bins from the right end.
    """

    bins: Array
    left: Array
    right: Array

    def __post_init__(self) -> None:
        bins = check_bins(self.bins)
        families = {side: _family(side, getattr(self, side), len(bins)) for side in ("left", "right")}
        settle(self, bins=bins, **families)

    def segments(self, input_range: tuple[float, float]) -> tuple[Array, Array, Array]:
        """Knots (K + 1,) and the one-sided limits of p at the segments' ends, each (K, m)."""
        bins, m = self.bins, len(self.bins)
        knots = cell_edges(bins, np.array(input_range))
        j = np.minimum(np.searchsorted(bins, knots[:-1], side="right"), m - 1)
        ql, qr = np.zeros((2, len(j), m))
        ql[:, :-1] = self.left[j - 1]
        qr[:, 1:] = self.right[m - j - 1, ::-1]
        gaps = bins[None, :] - bins[:, None]
        inverse = np.divide(1.0, gaps, out=np.zeros_like(gaps), where=gaps > 0)

        def table(x: Array) -> Array:
            # Both factors of every term are non-negative: the bins with ql are left of x, those with qr right of it.
            to_right, to_left = qr * (bins - x[:, None]), ql * (x[:, None] - bins)
            return ql * (to_right @ inverse.T) + qr * (to_left @ inverse)

        return knots, table(knots[:-1]), table(knots[1:])

    def to_frame(self) -> pd.DataFrame:
        """Tidy table: side, interval j, bin i (1-based, as in the paper), probability."""
        m, parts = len(self.bins), []
        for side, family in (("left", self.left), ("right", self.right)):
            n, i = np.tril_indices(m - 1)
            where, index = (n + 1, i + 1) if side == "left" else (m - 1 - n, m - i)
            columns = {"interval": where, "bin": index, "value": self.bins[index - 1]}
            frame = pd.DataFrame({"side": side, **columns, "probability": family[n, i]})
            parts.append(frame.sort_values("interval", kind="stable"))
        return pd.concat(parts, ignore_index=True)

    def exact(self, input_range: tuple[float, float]) -> SelectionLaw:
        """Round every probability to an integer weight (2^-72 of a row's total) and return the exact law."""

        def weights(family: Array) -> tuple[tuple[int, ...], ...]:
            unit = 1 << _WEIGHT_BITS
            return tuple(
                tuple(round(Fraction(float(q)) * unit) for q in family[n, : n + 1])
                for n in range(len(family))
            )

        bins = tuple(Fraction(float(b)) for b in self.bins)
        lower, upper = (Fraction(float(v)) for v in input_range)
        return SelectionLaw(bins, weights(self.left), weights(self.right), lower, upper)


def _family(name: str, given: Any, m: int) -> Array:
    table = array(name, given, ndim=2)
    if table.shape != (m - 1, m - 1):
        raise DesignError(
            f"{name} has shape {table.shape}: must be ({m - 1}, {m - 1}), row n with n + 1 entries"
        )
    if np.any(np.triu(table, 1)) or np.any(table < 0):
        raise DesignError(f"{name}: must be lower triangular and non-negative")
    sums = table.sum(axis=1)
    if np.any(np.abs(sums - 1) > 1e-6):
        k = int(np.argmax(np.abs(sums - 1)))
        raise DesignError(f"{name}[{k}] sums to {sums[k]:.9g}: every row must sum to 1")
    # Rows that sum to one but for rounding stay as they are: what was divided once is not divided again.
    table /= np.where(np.abs(sums - 1) <= 4e-16 * m, 1.0, sums)[:, None]
    table.setflags(write=False)
    return table

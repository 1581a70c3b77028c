r"""The selection family: draw one bin on each side of the input, round between them without bias.

For x in :math:`[B_j, B_{j+1})`

.. math::

    p(x, l) &= q^{L}_j(l) \sum_{r > j} q^{R}_{m-j}(m+1-r) \frac{B_r - x}{B_r - B_l}, & l &\le j, \\
    p(x, r) &= q^{R}_{m-j}(m+1-r) \sum_{l \le j} q^{L}_j(l) \frac{x - B_l}{B_r - B_l}, & r &> j.

Source: *Privacy-Aware Randomized Quantization via Linear Programming*, §3. RQM and ERM are two members:
:func:`rqm_family`, :func:`erm_family`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import array, increasing, interval, positive, probability, settle
from mechdesign.quantizers.mechanism.exact_law import SelectionLaw
from mechdesign.quantizers.mechanism.table import LARGEST, cell_edges
from mechdesign.typing import Array, Indices, Numbers

_WEIGHT_BITS = 72

_UNITS = f"must be within ±{LARGEST:g}; measure in larger units"


def check_bins(bins: Numbers) -> Array:
    """Return bins as a read-only float array, or raise DesignError naming what is wrong with them."""
    found = increasing("bins", bins)
    if max(-found[0], found[-1]) > LARGEST:
        raise DesignError.of("bins", found[[0, -1]].tolist(), _UNITS)
    return found


def check_range(input_range: object, bins: Array | None = None) -> tuple[float, float]:
    """Return the input range as two floats, checked to be covered by the bins."""
    lower, upper = interval("input_range", input_range)
    if max(-lower, upper) > LARGEST:
        raise DesignError.of("input_range", (lower, upper), _UNITS)
    if bins is not None and (bins[0] > lower or bins[-1] < upper):
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


def spread(m: int, count: int) -> Indices:
    """Choose `count` of m bins evenly, the outermost among them, symmetrically.

    >>> spread(8, 4)
    array([0, 3, 4, 7])
    """
    if count >= m:
        return np.arange(m)
    half = np.round(np.linspace(0, m // 2 - 1, max(1, count // 2))).astype(np.intp)
    middle = [m // 2] if m % 2 and count % 2 else []
    return np.unique(np.concatenate([half, np.array(middle, dtype=np.intp), m - 1 - half]))


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
    return erm_families(bins)(gamma)


def erm_families(bins: Array) -> Callable[[float], Array]:
    """Return `erm_family` as a function of γ, for many of them with the same bins."""
    steps = np.where(np.tri(len(bins) - 1, dtype=bool), bins[:-1] - bins[:-1, None], -np.inf)
    reach = 2 * np.maximum(bins[:-1] - bins[0], bins[1] - bins[0])[:, None]

    def family(gamma: float) -> Array:
        weights = np.exp(positive("gamma", gamma) * steps / reach)
        return np.asarray(weights / weights.sum(axis=1)[:, None])

    return family


class SelectionPlaces:
    """What all selection mechanisms with the same bins and input range share: where a bin's neighbours are.

    Parameters
    ----------
    bins : array, shape (m,)
    input_range : (float, float)

    Attributes
    ----------
    knots : array, shape (K + 1,)
        The range's ends and the bins between them.
    """

    def __init__(self, bins: Array, input_range: tuple[float, float]) -> None:
        self.bins, self.knots = bins, cell_edges(bins, np.array(input_range))
        starts, ends = self.knots[:-1, None], self.knots[1:, None]
        self._below = np.minimum(np.searchsorted(bins, self.knots[:-1], side="right"), len(bins) - 1)
        gaps = bins[None, :] - bins[:, None]
        self._inverse = np.divide(1.0, gaps, out=np.zeros_like(gaps), where=gaps > 0)
        self._ends = [(bins - x, x - bins) for x in (starts, ends)]

    def tables(self, left: Array, right: Array) -> tuple[Array, Array]:
        """One-sided limits of p at the segments' ends, each (K, m), for two families of selection probabilities."""
        j, m = self._below, len(self.bins)
        ql, qr = np.zeros((2, len(j), m))
        ql[:, :-1] = left[j - 1]
        qr[:, 1:] = right[m - j - 1, ::-1]
        # Both factors of every term are non-negative: the bins with ql are left of x, those with qr right of it.
        first, last = (
            ql * ((qr * to_right) @ self._inverse.T) + qr * ((ql * to_left) @ self._inverse)
            for to_right, to_left in self._ends
        )
        return first, last


@serializable("selection")
@dataclass(frozen=True, eq=False)
class SelectionFamilies:
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
        places = SelectionPlaces(self.bins, input_range)
        return places.knots, *places.tables(self.left, self.right)

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

    def rounds(self, law: object) -> bool:
        """Whether the probabilities are the weights of a selection law, to their last digits."""
        if not isinstance(law, SelectionLaw) or law.bins != tuple(map(Fraction, self.bins.tolist())):
            return False
        exact, shown = (np.stack([held.left, held.right]) for held in (self.of_law(law), self))
        return exact.shape == shown.shape and bool((np.abs(shown - exact) <= 1e-15).all())

    @classmethod
    def of_law(cls, law: SelectionLaw) -> SelectionFamilies:
        """Return the probabilities of a law's weights."""
        left, right = (
            np.array([[*(w / sum(row) for w in row), *[0.0] * (len(side) - len(row))] for row in side])
            for side in (law.left, law.right)
        )
        return cls(np.array([float(b) for b in law.bins]), left, right)


def _family(name: str, given: Numbers, m: int) -> Array:
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
    table = summing_to_one(table)
    table.setflags(write=False)
    return table


def summing_to_one(table: Array) -> Array:
    """Divide rows by their sums; those that are one but for rounding stay, so that nothing is divided twice."""
    sums = table.sum(axis=1)
    return table / np.where(np.abs(sums - 1) <= 4e-16 * (len(table) + 1), 1.0, sums)[:, None]

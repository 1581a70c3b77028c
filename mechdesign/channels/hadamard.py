r"""Hadamard response: local privacy for every pair alike, one report of log K bits, transforms in O(K log K)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from mechdesign.channels.channel import Response
from mechdesign.channels.channel_loss import shortest
from mechdesign.channels.draws import Deployment, Simulation
from mechdesign.channels.responses import TOP, level
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import DOWN, positive, settle, whole
from mechdesign.spaces.geometry import check_size
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Indices

__all__ = ["HadamardResponse", "walsh_hadamard"]


def walsh_hadamard(vector: ArrayLike) -> Array:
    """Multiply by Sylvester's Hadamard matrix along the last axis, in O(K log K).

    Examples
    --------
    >>> walsh_hadamard([1.0, 0.0, 0.0, 0.0])
    array([1., 1., 1., 1.])
    """
    array = np.array(vector, dtype=float)
    length, half = array.shape[-1], 1
    while half < length:
        pairs = array.reshape(*array.shape[:-1], length // (2 * half), 2, half)
        array = np.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], axis=-2)
        array = array.reshape(*array.shape[:-3], length)
        half *= 2
    return array


def _parity(values: Indices) -> Indices:
    """Parity of the number of ones in binary."""
    out = values.copy()
    for shift in (32, 16, 8, 4, 2, 1):
        out ^= out >> shift
    return out & 1


@serializable("hadamard-response")
@dataclass(frozen=True, eq=False)
class HadamardResponse(Response):
    r"""Hadamard response: item x reports a y with :math:`H[x+1, y] = +1` preferred by the factor e^ε.

    H is Sylvester's matrix of order K, the least power of two above |X| (row 0, constant, carries no
    information). Each other row has K/2 entries of either sign, so

    .. math:: P = \tfrac1K (1 + c^{-1} H), \qquad c = \frac{e^ε + 1}{e^ε - 1}, \qquad
        Q = c\,H^\top (I - J/n) + J/n .

    :math:`P Q = I` because rows of H are orthogonal; the part with J (any right inverse may be shifted so)
    makes the estimate's total exactly 1, which the earth mover's distance needs.

    Parameters
    ----------
    items : int
        Number of items |X|.
    epsilon : float
        Pure local-DP budget ε > 0.

    Source: Acharya, Sun, Zhang 2018.

    Examples
    --------
    >>> channel = HadamardResponse(5, 1.0)
    >>> channel.outputs
    8
    >>> import numpy as np
    >>> np.allclose(channel.unbias(channel.apply(np.eye(5))), np.eye(5))
    True
    """

    items: int
    epsilon: float

    def __post_init__(self) -> None:
        settle(
            self,
            items=whole("items", self.items, 2, 1 << 40),
            epsilon=positive("epsilon", self.epsilon, side=DOWN),
        )

    @property
    def size(self) -> int:
        return self.items

    @property
    def space(self) -> None:  # type: ignore[override]
        """It protects every pair alike and knows no metric."""
        return None

    @property
    def outputs(self) -> int:
        return 1 << self.size.bit_length()

    @cached_property
    def levels(self) -> tuple[int, int]:
        """Integer weights of the preferred reports and of the others."""
        return TOP, level(Fraction(self.epsilon))

    @cached_property
    def contrast(self) -> float:
        """1/c = (e^ε − 1)/(e^ε + 1), of the levels."""
        high, low = self.levels
        return (high - low) / (high + low)

    def metric_loss(self, space: MetricSpace | None = None) -> float:
        # Any two items prefer different reports, so that every pair has the same largest quotient.
        return math.nextafter(self.epsilon / shortest(self.measured(space))[0], math.inf)

    @property
    def dense(self) -> Array:
        return np.asarray((1.0 + self.contrast * self._signs()) / self.outputs)

    def _signs(self) -> Array:
        check_size(self.size, self.outputs, what="channel")
        rows = np.arange(1, self.size + 1)[:, None]
        return np.asarray(1.0 - 2.0 * _parity(rows & np.arange(self.outputs)[None, :]), dtype=float)

    @property
    def inverse(self) -> Array:
        signs = self._signs().T
        return np.asarray((signs - signs.mean(axis=1, keepdims=True)) / self.contrast + 1.0 / self.size)

    def apply(self, histogram: ArrayLike) -> Array:
        held = self.vectors("histogram", histogram, self.size)
        padded = np.zeros((*held.shape[:-1], self.outputs))
        padded[..., 1 : self.size + 1] = held
        mass = held.sum(axis=-1, keepdims=True)
        return np.asarray((mass + self.contrast * walsh_hadamard(padded)) / self.outputs)

    def unbias(self, reports: ArrayLike) -> Array:
        held = self.vectors("reports", reports, self.outputs)
        raw = walsh_hadamard(held)[..., 1 : self.size + 1] / self.contrast
        mass = held.sum(axis=-1, keepdims=True)
        return np.asarray(raw + (mass - raw.sum(axis=-1, keepdims=True)) / self.size)

    def _row_means(self) -> Array:
        """Mean of every column of H over the items' rows, shape (outputs,)."""
        marks = np.zeros(self.outputs)
        marks[1 : self.size + 1] = 1.0 / self.size
        return walsh_hadamard(marks)

    def unbias_squares(self, reports: ArrayLike) -> Array:
        held = self.vectors("reports", reports, self.outputs)
        means, c, n = self._row_means(), 1 / self.contrast, self.size
        # (c(h - m) + 1/n)² with h² = 1, sorted by powers of h.
        constant = (c * c * (1 + means**2) - 2 * c * means / n + 1 / n**2) * held
        linear = (2 * c / n - 2 * c * c * means) * held
        return np.asarray(constant.sum(axis=-1, keepdims=True) + walsh_hadamard(linear)[..., 1 : n + 1])

    def second_moments(self, space: MetricSpace) -> tuple[float, float]:
        space = self.measured(space)
        groups = space.shape[0] if space.kind == "clustered" else 1
        means, c, n = self._row_means(), 1 / self.contrast, self.size
        points = c * c * n * (1 - means**2) + 1 / n
        sums = np.zeros(self.outputs)
        for start in range(0, n, n // groups):
            marks = np.zeros(self.outputs)
            marks[start + 1 : start + 1 + n // groups] = 1.0
            sums += (c * (walsh_hadamard(marks) - means * (n // groups)) + 1 / groups) ** 2
        return self._largest_mean(points), self._largest_mean(sums)

    def _largest_mean(self, values: Array) -> float:
        """Largest mean of a function of the report, over items."""
        means = (values.sum() + self.contrast * walsh_hadamard(values)[1 : self.size + 1]) / self.outputs
        return float(means.max())

    def integers(self, row: int) -> Sequence[int]:
        """Weights of a preferred report and of another, the same for all rows."""
        return self.levels

    def _report(self, items: Indices, source: Simulation | Deployment) -> Indices:
        wanted = source.choose(self, np.zeros_like(items))
        return self._place(items, source.below(self.outputs // 2, items.size), wanted)

    def _place(self, items: Indices, index: Indices, wanted: Indices) -> Indices:
        """The report number `index` among those of parity `wanted` with the item's row."""
        row = items + 1
        lowest = row & -row  # flipping this bit of a report flips its parity with the row
        below = index & (lowest - 1)
        report = ((index ^ below) << 1) | below
        return report | np.where(_parity(row & report) == wanted, 0, lowest)

r"""Linear bounds of output probabilities in the selection family (the paper's z and w).

For the left-hand outputs (i ≤ j) of a selection mechanism

.. math:: p(x, i) = q_j(i) \, \Sigma_j(x, i), \qquad
          \Sigma_j(x, i) = \sum_{r > j} q_{m-j}(m+1-r) \frac{B_r - x}{B_r - B_i}

is a product of two unknowns. Replacing the *outer* factor :math:`q_j(i)` by its bound gives linear forms

.. math:: z = u_j(i)\, \Sigma_j(x, i) \ge p(x, i), \qquad w = o_j(i)\, \Sigma_j(x, i) \le p(x, i).

Where one factor is the constant :math:`q_1(1) = 1` (j = 1, or j = m − 1) the form is exact and carries no bound.
A `Form` is the coefficient vector with the index of the bound that multiplies it; constraints pair upper forms
with lower forms (Theorem 5 of the paper), and :func:`coefficient_rows` multiplies the pairs out for one or many
values of the bounds at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mechdesign.typing import Array

__all__ = ["Family", "Form", "Pairs", "coefficient_rows", "theorem5_pairs"]

EXACT = -1  # "multiplied by the constant 1"


@dataclass(frozen=True)
class Family:
    """Where the unknowns q_n(i), 1 ≤ i ≤ n ≤ m − 1, of one family stand in the vector of all unknowns."""

    m: int
    offset: int = 0

    @property
    def size(self) -> int:
        """Number of unknowns, q_1(1) included."""
        return self.m * (self.m - 1) // 2

    def index(self, n: int, i: int) -> int:
        """Position of q_n(i) (1-based, as in the paper)."""
        return self.offset + n * (n - 1) // 2 + i - 1

    def row(self, n: int) -> slice:
        """Positions of q_n(1), …, q_n(n)."""
        return slice(self.index(n, 1), self.index(n, n) + 1)


@dataclass(frozen=True)
class Form:
    """A linear form, times the bound number `bound` (or exact): an upper or a lower bound of p(x, i)."""

    coefficients: Array
    bound: int
    label: str


@dataclass
class Pairs:
    """Privacy constraints as pairs: upper form ≤ e^ε · lower form.

    Attributes
    ----------
    forms : list of Form
    upper, lower : list of int
        Indices into `forms`, a constraint each.
    """

    forms: list[Form] = field(default_factory=list)
    upper: list[int] = field(default_factory=list)
    lower: list[int] = field(default_factory=list)

    def add(self, form: Form) -> int:
        self.forms.append(form)
        return len(self.forms) - 1

    def cross(self, upper: list[int], lower: list[int]) -> None:
        """Compare every upper form with every lower form."""
        for a in upper:
            self.upper += [a] * len(lower)
            self.lower += lower

    def labels(self) -> list[str]:
        """What each constraint compares."""
        return [
            f"{self.forms[a].label} <= e^eps {self.forms[b].label}" for a, b in zip(self.upper, self.lower)
        ]


Corner = Callable[[int, float, int], Form]


def _form(
    bins: Array,
    outer: Family,
    inner: Family,
    width: int,
    i: int,
    x: float,
    j: int,
    *,
    drop_outer: bool,
    tag: str,
) -> Form:
    """The form of p(x, i) for i ≤ j on the interval j; `drop_outer` replaces the outer factor by 1."""
    m = len(bins)
    b = bins[i - 1]
    coefficients = np.zeros(width)
    label = f"p({x:g},{i}){tag}"
    if j == m - 1:  # the right index is m for sure: p = q_j(i) (B_m − x)/(B_m − B_i), exact
        coefficients[outer.index(j, i)] = (bins[-1] - x) / (bins[-1] - b)
        return Form(coefficients, EXACT, label)
    r = np.arange(j + 1, m + 1)
    coefficients[inner.offset + (m - j) * (m - j - 1) // 2 + m - r] = (bins[r - 1] - x) / (bins[r - 1] - b)
    bound = EXACT if j == 1 or drop_outer else outer.index(j, i)
    return Form(coefficients, bound, label)


def theorem5_pairs(
    bins: Array,
    lower: float,
    upper: float,
    outer: Family,
    inner: Family,
    width: int,
    *,
    mirrored: bool = False,
    pairs: Pairs | None = None,
    across_outputs: bool = False,
) -> Pairs:
    """Collect the constraints of Theorem 5 for what happens to the right of each output.

    For outputs inside the range the largest probability is next to the bin itself, q_i(i) or its mirror image;
    the smallest, going right, is a limit from the left at a bin or p(upper, i). For outputs below the range both
    are among −c, the bins inside and c, and all pairs are compared.

    Parameters
    ----------
    outer, inner : Family
        The family of the side of the output, and of the other side (the same for symmetric bins).
    mirrored : bool
        Labels only: the caller has mirrored the bins.
    across_outputs : bool
        Compare every maximum with every minimum of *any* output, with outer factors of maxima replaced by
        1: what the paper's authors solve for asymmetric bins; stricter than privacy.
    """
    m = len(bins)
    pairs = Pairs() if pairs is None else pairs
    tag = "'" if mirrored else ""
    all_upper: list[int] = []
    all_lower: list[int] = []

    def interval(x: float, *, from_left: bool = False) -> int:
        before = int(np.sum(bins < x) if from_left else np.sum(bins <= x))
        return min(max(before, 1), m - 1)

    def unit(family: Family, n: int, i: int) -> int:
        coefficients = np.zeros(width)
        coefficients[family.index(n, i)] = 1.0
        return pairs.add(Form(coefficients, EXACT, f"q_{n}({i}){tag if family is outer else ''}"))

    def form(i: int, x: float, j: int, *, drop_outer: bool = False) -> int:
        return pairs.add(_form(bins, outer, inner, width, i, x, j, drop_outer=drop_outer, tag=tag))

    inside = [k for k in range(1, m + 1) if lower <= bins[k - 1] <= upper]
    for i in range(1, m + 1):
        b = bins[i - 1]
        if b > upper:
            break
        if b >= lower:
            points = [(bins[k - 1], k - 1) for k in inside if k > i]
            if b < upper:
                points.append((upper, interval(upper, from_left=True)))
            lows = [form(i, x, j) for x, j in points]
            highs = [unit(outer, i, i)] if i < m else []
            if i > 1:
                highs.append(unit(inner, m + 1 - i, m + 1 - i))
        else:
            lows = [form(i, bins[k - 1], k - 1) for k in inside if k > i and bins[k - 1] > lower]
            lows.append(form(i, upper, interval(upper, from_left=True)))
            highs = [form(i, lower, interval(lower), drop_outer=across_outputs)]
            highs += [
                form(i, bins[k - 1], k, drop_outer=across_outputs)
                for k in inside
                if k > i and bins[k - 1] < upper
            ]
        if across_outputs:
            all_upper += highs
            all_lower += lows
        else:
            pairs.cross(highs, lows)
    if across_outputs:
        pairs.cross(all_upper, all_lower)
    return pairs


def coefficient_rows(pairs: Pairs, epsilon: float, low: Array, high: Array) -> Array:
    """Rows of "upper − e^ε lower" for bounds of shape (…, width); returns (…, constraints, width)."""
    matrix = np.array([f.coefficients for f in pairs.forms])
    bound = np.array([f.bound for f in pairs.forms])

    def scaled(chosen: list[int], bounds: Array) -> Array:
        index = bound[chosen]
        factor = np.where(index == EXACT, 1.0, bounds[..., np.maximum(index, 0)])
        return factor[..., None] * matrix[chosen]

    return scaled(pairs.upper, high) - np.exp(epsilon) * scaled(pairs.lower, low)

r"""Bounds of output probabilities that are linear in the unknowns (the paper's z and w).

For the left-hand outputs (i ≤ j) of a selection mechanism

.. math:: p(x, i) = \sum_{r > j} q_j(i) \, q_{m-j}(m+1-r) \frac{B_r - x}{B_r - B_i}

is a sum of products of two unknowns, the *outer* factor :math:`q_j(i)` and the *inner* ones. Replacing the outer
factor by its bound gives linear forms

.. math:: z = u_j(i) \sum_r q_{m-j}(m+1-r) \frac{B_r - x}{B_r - B_i} \ge p(x, i) \ge w = o_j(i) \sum_r \dots

Bounding the inner factors instead leaves the outer one the variable.
Where one factor is the constant :math:`q_1(1) = 1` (j = 1, or j = m − 1) the form is exact. A `Form` is a sum of terms
weight · bound · unknown; a `PrivacyRows` holds pairs "upper form ≤ e^ε lower form" flat over their terms, so that the
coefficients for one or many values of the bounds are one product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mechdesign.typing import Array, Indices

__all__ = ["Family", "Form", "PrivacyRows", "View", "theorem5_pairs"]

CONSTANT = -1  # the bound that is 1
_LARGEST = 1e13  # coefficient: solvers refuse a program with larger ones, or call it infeasible


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
    """Σ_t weight_t · bound_t · unknown_t; bounds and unknowns by their positions among all unknowns."""

    label: str
    weights: Array
    bounds: Indices
    unknowns: Indices


@dataclass(frozen=True)
class View:
    """The outputs as they look from one end: `outer` is the family of that side, `inner` that of the other."""

    bins: Array
    lower: float
    upper: float
    outer: Family
    inner: Family
    sign: int = 1

    def mirrored(self) -> View:
        """The same seen from the other end."""
        return View(-self.bins[::-1], -self.upper, -self.lower, self.inner, self.outer, -self.sign)

    @property
    def inside(self) -> list[float]:
        """Bins within the input range."""
        return [b for b in self.bins.tolist() if self.lower <= b <= self.upper]

    def alone(self, family: Family, n: int) -> Form:
        """q_n(n): what an output gets at its own bin."""
        side = "left" if (family is self.outer) == (self.sign > 0) else "right"
        at = np.array([family.index(n, n)])
        return Form(f"q_{n}({n}) {side}", np.ones(1), np.array([CONSTANT]), at)

    def probability(self, i: int, x: float, *, from_left: bool = False, replaced: str = "outer") -> Form:
        """The form of p(x, i), i left of x.

        `replaced` says which factor its bound stands for, "outer" or "inner"; "by 1" puts the constant for the outer one.
        """
        m, b = len(self.bins), self.bins
        j = min(max(int(np.searchsorted(b, x, side="left" if from_left else "right")), 1), m - 1)
        r = np.arange(j + 1, m + 1)
        weights = (b[j:] - x) / (b[j:] - b[i - 1])
        outer = np.full(len(r), self.outer.index(j, i))
        inner = self.inner.index(m - j, 1) + m - r
        constant = np.full(len(r), CONSTANT)
        if j == m - 1:
            bounds, unknowns = constant, outer
        elif j == 1 or replaced == "by 1":
            bounds, unknowns = constant, inner
        else:
            bounds, unknowns = (outer, inner) if replaced == "outer" else (inner, outer)
        output = i if self.sign > 0 else m + 1 - i
        return Form(f"p({self.sign * x:g}, {output})", weights, bounds, unknowns)


def _largest_and_smallest(view: View, across: bool) -> Iterator[tuple[list[Form], list[Form]]]:
    """For every output inside or below the range: its largest probabilities, and its smallest going right.

    Inside, the largest is next to the bin itself, q_i(i) or its mirror image; the smallest is a limit from the left at a
    bin, or p(upper, i). Below the range both are among the lower end, the bins inside and the upper end.
    """
    m, small, large = len(view.bins), *(("inner", "by 1") if across else ("outer", "outer"))
    for i, b in enumerate(view.bins.tolist(), start=1):
        after = [x for x in sorted({*view.inside, view.upper}) if x > max(b, view.lower)]
        lows = [view.probability(i, x, from_left=True, replaced=small) for x in after]
        if view.lower <= b <= view.upper:
            highs = [view.alone(view.outer, i)] if i < m else []
            highs += [view.alone(view.inner, m + 1 - i)] if i > 1 else []
            yield highs, lows
        elif b < view.lower:
            at = [x for x in sorted({view.lower, *view.inside}) if x < view.upper]
            yield [view.probability(i, x, replaced=large) for x in at], lows


def theorem5_pairs(views: Sequence[View], *, across_outputs: bool = False) -> list[tuple[Form, Form]]:
    """Theorem 5: every largest probability of an output against every smallest one going away from it.

    Parameters
    ----------
    views : sequence of View
        From the left, and from the right where there are two families.
    across_outputs : bool
        What the paper's authors solve for asymmetric bins: every largest against every smallest of *any* output on
        either side, with 1 for the outer factors of the largest and bounds for the *inner* factors of the smallest.
        Stricter than privacy.
    """
    groups = [group for view in views for group in _largest_and_smallest(view, across_outputs)]
    if across_outputs:
        groups = [([h for highs, _ in groups for h in highs], [w for _, lows in groups for w in lows])]
    return [(high, low) for highs, lows in groups for high in highs for low in lows]


class PrivacyRows:
    """Privacy constraints "upper form ≤ e^ε lower form", a row each, flat over their terms.

    Attributes
    ----------
    labels : list of str
        What each row compares.
    row, bound, unknown : arrays, an entry per term
    weight : array
    smallest : bool array
        Whether the term stands on the right-hand side.
    """

    def __init__(self, pairs: Sequence[tuple[Form, Form]]) -> None:
        self.labels = [f"{high.label} <= e^eps {low.label}" for high, low in pairs]
        forms = [form for pair in pairs for form in pair]
        sizes = [len(form.weights) for form in forms]
        self._starts = np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(int)
        self.row = np.repeat(np.arange(len(forms)) // 2, sizes)
        self.smallest = np.repeat(np.arange(len(forms)) % 2 == 1, sizes)
        nothing = np.zeros(0)
        self.weight = np.concatenate([nothing, *(f.weights for f in forms)])
        self.bound = np.concatenate([nothing, *(f.bounds for f in forms)]).astype(int)
        self.unknown = np.concatenate([nothing, *(f.unknowns for f in forms)]).astype(int)

    def factors(self, low: Array, high: Array) -> Array:
        """What multiplies the unknowns of the terms of both sides, for bounds (…, width)."""
        one = np.ones((*low.shape[:-1], 1))
        lows, highs = (np.concatenate([b, one], axis=-1)[..., self.bound] for b in (low, high))
        return self.weight * np.where(self.smallest, lows, highs)

    def coefficients(self, epsilon: float, low: Array, high: Array) -> Array:
        """Coefficients of "upper − ρ lower", a term each.

        ρ is e^ε, or in each row the largest number below it that leaves all coefficients small enough for a solver: what
        is private with a smaller ρ is private at ε.
        """
        factors = self.factors(low, high)
        ratio: Any = math.exp(min(epsilon, 700.0))
        if ratio > _LARGEST and len(self.row):
            most = np.maximum.reduceat(factors, self._starts, axis=-1)[..., 1::2]
            # No output is that rare where no coefficient vanishes; where all do, any ρ is as good.
            ratio = np.minimum(ratio, _LARGEST / np.maximum(most, 1e-290))[..., self.row]
        return factors * np.where(self.smallest, -ratio, 1.0)

    def sides(self, q: Array, low: Array, high: Array) -> tuple[Any, Any]:
        """Upper and lower forms of every row at `q`."""
        value = self.factors(low, high) * q[self.unknown]
        count = len(self.labels)
        upper = np.bincount(self.row[~self.smallest], value[~self.smallest], count)
        return upper, np.bincount(self.row[self.smallest], value[self.smallest], count)

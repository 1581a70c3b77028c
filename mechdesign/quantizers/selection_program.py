r"""OPTM as a program: the unknown selection probabilities, the boxes of bounds that linearise it, and its rows.

Source: *Privacy-Aware Randomized Quantization via Linear Programming*. With bins :math:`B_1 < \dots < B_m` and an input x in
:math:`[B_j, B_{j+1})`, a bin l ≤ j is drawn from the left family with probability :math:`q_j(l)`, a bin r > j from the right one, counted from
its end, with :math:`q_{m-j}(m+1-r)`, and x is rounded between the two without bias. Hence for the outputs left of x

.. math:: p(x, i) = q_j(i) \sum_{r > j} q_{m-j}(m+1-r) \frac{B_r - x}{B_r - B_i},

a product of an *outer* unknown and a sum of *inner* ones; outputs to the right are the mirror image. Privacy compares such products,
and is linear in the unknowns once one factor is replaced by its bound in a box :math:`o \le q \le u`:

.. math:: w = o_j(i) \sum_r \dots \le p(x, i) \le z = u_j(i) \sum_r \dots

The rows are stated once (`SelectionPrivacy.families`). Applied to CVXPY's variable and parameters they are constraints; applied to `Cells` and the numbers of
many boxes, they are the coefficients that a sweep changes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import numpy.typing as npt
from scipy import sparse

from mechdesign.checks import instance, integer, number, one_of, refuse
from mechdesign.errors import DesignError
from mechdesign.model.declared import Declared
from mechdesign.model.grid import Grid
from mechdesign.model.problem import Requirement, Unknown, named
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP, guarantee
from mechdesign.quantizers.table import check_bins, check_range, mirrored_bins, symmetric_bins
from mechdesign.typing import Array, Indices, Numbers

Flags = npt.NDArray[np.bool_]
Pieces = list[tuple[int, Array]]
"""The j of every interval [B_j, B_{j+1}) that meets the range, and the prior's moments there."""
Boxes = tuple[Array, Array]
"""Lower and upper bounds of all unknowns, shape (*shape of the unknown, boxes)."""


THEOREMS = ("theorem5", "theorem6", "across-outputs")
_DENSE = 300  # unknowns up to which their unit vectors are an array
_LARGEST = 29.9  # ε whose ratio is the largest coefficient that solvers accept


# -- the unknown, and Lemma 1 ----------------------------------------------------------------------------------


class Selection(Unknown):
    r"""Selection probabilities of bins: the unknown of OPTM, and a CVXPY variable.

    ``Q[n - 1, i - 1]`` is :math:`q_n(i)`, the probability of bin i among the n on one side of the input; entries with i > n are 0. Bins
    symmetric about zero have one family for both ends, others two (Theorem 4): the rows of the right one follow those of the left one.

    Parameters
    ----------
    bins : array_like, shape (m,)
        Output values, covering the input range.
    input_range : (float, float)
    families : {"auto", "symmetric", "separate"}
        "auto" follows the bins.

    Examples
    --------
    >>> import mechdesign as md
    >>> from scipy import stats
    >>> Q = Selection([-3, -0.5, 0.5, 3], (-1, 1))
    >>> o, u = Q.box(low=[0.67, 0.32], high=[0.68, 0.33], row=2)
    >>> problem = md.Problem(
    ...     md.Minimize(Q.lemma1(stats.uniform(-1, 2))),
    ...     [Q.private(md.PureDP(1.0), theorem="theorem5", box=(o, u))],
    ... )
    >>> round(problem.solve().value, 4)
    1.8785
    """

    problem_class = "mechdesign.quantizers.selection_problem:SelectionProblem"

    def __init__(self, bins: Numbers, input_range: object, *, families: str = "auto") -> None:
        self.bins, self.input_range, self.symmetric = checked_selection(bins, input_range, families)
        triangle = np.tile(np.tri(len(self.bins) - 1), (1 if self.symmetric else 2, 1))
        super().__init__(triangle.shape, bounds=[0 * triangle, triangle], name="Q")
        self.open = triangle > 0

    def stated(self) -> dict[str, Any]:
        """Return the fields that describe the unknown in a problem's numbers, those of a table of distributions."""
        rows, columns = (tuple(range(size)) for size in self.shape)
        return {"inputs": rows, "outputs": columns, "of": "person", "neighbours": "add-remove"}

    def box(
        self, low: Any = None, high: Any = None, *, row: int | None = None
    ) -> tuple[cp.Parameter, cp.Parameter]:
        """Return CVXPY parameters o and u in the shape of the unknown. Their values are 0 and 1 except those given, which may be for one `row` alone."""
        sides = []
        for name, given, default in (("o", low, 0.0), ("u", high, 1.0)):
            value = np.where(self.open, default, 0.0)
            if row is not None and given is not None:
                value[row - 1, :row] = given
            elif given is not None:
                value = np.where(self.open, np.asarray(given, dtype=float), 0.0)
            sides.append(cp.Parameter(self.shape, name=name))
            sides[-1].save_value(value)
        return sides[0], sides[1]

    def box_at(self, level: Any, width: float = 0.01) -> tuple[Any, Any]:
        """Return o and u for four symmetric bins, affine in one number: q_2(1) in [level, level + width], q_2(2) in the complement.

        Examples
        --------
        >>> level = cp.Parameter(name="level", value=0.67)
        >>> o, u = Selection([-3, -0.5, 0.5, 3], (-1, 1)).box_at(level)
        >>> o.value[1].round(2).tolist(), u.value[1].round(2).tolist()
        ([0.67, 0.32, 0.0], [0.68, 0.33, 0.0])
        """
        remedy = "must be four that mirror about 0, which have one free bound"
        refuse(len(self.bins) != 4 or not self.symmetric, "bins", self.bins.tolist(), remedy)
        o, u = (np.where(self.open, end, 0.0) for end in (0.0, 1.0))
        o[1, :2], u[1, :2] = (0.0, 1.0 - width), (width, 1.0)
        slope = np.zeros(self.shape)
        slope[1, :2] = 1.0, -1.0
        moved = level * slope
        return moved + o, moved + u

    def private(self, privacy: PureDP, *, theorem: str = "theorem5", box: Any = None) -> SelectionPrivacy:
        """Require privacy by a theorem of the paper.

        Parameters
        ----------
        privacy : PureDP
        theorem : {"theorem5", "theorem6", "across-outputs"}
            Theorem 5 (each output by itself, at all pairs of inputs), the compact Theorem 6, or the authors' constraints for asymmetric bins (Table 2): every
            maximum against every minimum of any output, which is stricter.
        box : (o, u), Grid, or None
            CVXPY parameters in the shape of the unknown, expressions affine in parameters, or arrays: bounds that replace one factor of
            each product. Boxes of a `Grid` (axes ``level``, ``width`` and for two families ``level_right``), or for None of the paper's grid,
            are searched as long as the parameters have their initial values.
        """
        instance("privacy", privacy, PureDP)
        check_theorem(theorem, self.bins, self.input_range, self.symmetric)
        grid = box is None or isinstance(box, Grid)
        if isinstance(box, Grid):
            check_boxes("box", box)
        sides = self.box() if grid else box
        o, u = (s if isinstance(s, cp.Expression) else cp.Constant(np.asarray(s, float)) for s in sides)
        for name, side in (("o", o), ("u", u)):
            if side.shape != self.shape:
                raise DesignError.of(name, side.shape, f"must have the shape of the unknown, {self.shape}")
        initial_box: Any = (o.value, u.value)
        boxes = None if not grid else "paper" if box is None else box
        return SelectionPrivacy("privacy", privacy, theorem, o, u, boxes, initial_box, unknown=self)

    # -- outputs and losses -------------------------------------------------------------------------------

    def probability(self, output: int, x: float | None = None) -> cp.Expression:
        r"""Return an upper bound of an output's probability, convex in q, over all inputs or at one.

        For inputs in :math:`[B_j, B_{j+1})` and an output i left of them, with the largest share of all r instead of their mean,

        .. math:: p(x, i) \le q_j(i) \frac{B_m - x}{B_m - B_i},

        which is largest at the least x; an output to the right is the mirror image. Over all inputs it is exact for outputs inside the
        range, whose probability is largest at the bin itself (Lemma 2), and if one of the two factors is 1. A cap on it caps the probability, for outer outputs conservatively.

        Parameters
        ----------
        output : int
            Position of the output, from 0, as in `Table`.
        x : float, optional

        Examples
        --------
        >>> Q = Selection([-3, -0.5, 0.5, 3], (-1, 1))
        >>> (Q.probability(1) <= 0.2).is_dcp(), (Q.probability(1) >= 0.2).is_dcp()
        (True, False)
        """
        m, (lower, upper) = len(self.bins), self.input_range
        place = integer("output", output, 0, m - 1) + 1
        largest = np.tile(np.eye(1, m - 1), (m - 1, 1))  # the share of r = m
        ends = np.unique(np.clip(self.bins, lower, upper)) if x is None else np.full(2, number("x", x))
        if not lower <= ends[0] <= ends[-1] <= upper:
            raise DesignError.of("x", x, f"must be an input, between {lower:g} and {upper:g}")
        none = np.zeros(self.shape, dtype=int)
        halves: Any = [(part[: m - 1], part[-(m - 1) :]) for part in (self, none, none, none.copy())]
        left, found = Side(self.bins, lower, upper, *halves), list[Any]()
        for side, places, i, before in (
            (left, ends[:-1], place, False),
            (left.mirrored(), -ends[1:], m + 1 - place, x is not None),
        ):
            at = [y for y in places.tolist() if i <= side.interval(y, before)]
            found += [side.linearised(i, y, inner=largest, before=before)[1] for y in at]
        return cp.max(cp.hstack(found))

    def lemma1(self, prior: Any, loss: Any = "absolute") -> Any:
        r"""Return Lemma 1's linear upper bound of the expected loss.

        .. math:: \sum_j w_j \tfrac12 (\zeta^{L}_j + \zeta^{R}_{m-j} + B_{j+1} - B_j), \qquad
                  \zeta_n = \sum_i q_n(i) (B_n - B_i), \quad w_j = \Pr[B_j \le X < B_{j+1}],

        Theorem 4, and for a uniform prior and one family Theorem 3, which print it without the factor 1/2 and Theorem 3 without the constant: neither moves
        the minimum. It is similar for squared losses, with one factor of each product relaxed. For a callable loss it is the bound of the absolute loss.
        """
        held, form = Prior.ranged(prior, self.input_range)[0], Loss.of(loss)
        pieces = list(zip(self.met, held.moments(np.unique(np.clip(self.bins, *self.input_range)))))
        question = Question(held, form, *self._lemma1(pieces, form), pieces)
        found: Any = cp.sum(cp.multiply(question.cost, self)) + question.constant
        found.set_label(f"Lemma 1's bound of the expected {question.loss.words}")
        found.question = question
        return found

    def _lemma1(self, pieces: Pieces, loss: Loss) -> tuple[Array, float]:
        b, m, cost, constant = self.bins, len(self.bins), np.zeros(self.shape), 0.0
        left, right = cost[: m - 1], cost[-(m - 1) :]
        absolute = loss.absolute if loss.function is None else 1.0
        for j, (mass, first, second) in pieces:
            low, high = b[j - 1], b[j]
            spread, reach = low - b[:j], b[j:][::-1] - high
            left[j - 1, :j] += absolute * mass * spread / 2
            right[m - j - 1, : m - j] += absolute * mass * reach / 2
            constant += absolute * mass * (high - low) / 2
            # Var = (x−a)(b−x) + (x−a) E e + (b−x) E d + E d E e, the last product relaxed by E d ≤ b − B_1 …
            up, down = first - low * mass, high * mass - first
            left[j - 1, :j] += loss.squared * (down + mass * reach[0] / 2) * spread
            right[m - j - 1, : m - j] += loss.squared * (up + mass * spread[0] / 2) * reach
            constant += loss.squared * (-second + (low + high) * first - low * high * mass)
        return cost, constant

    def expected(self, q: Array, question: Question) -> Array:
        """Return the exact expected loss, bilinear in the two families, for many values of the unknown along the first axis; polynomial losses only."""
        m, total = len(self.bins), np.zeros(len(q))
        for j, moments in question.pieces:
            # rounding x between l and r costs 2 (x − l)(r − x)/(r − l) in absolute error and (x − l)(r − x) in squared
            (mass, first, second), low, high = moments, self.bins[:j, None], self.bins[j:][::-1]
            product = (low + high) * first - low * high * mass - second
            costs = (2 * question.loss.absolute / (high - low) + question.loss.squared) * product
            total += np.sum((q[:, j - 1, :j] @ costs) * q[:, -j, : m - j], axis=1)
        return total

    @property
    def met(self) -> list[int]:
        """Return the j of all intervals [B_j, B_{j+1}) that meet the range."""
        # Intervals are half-open, but the range is closed: its last piece keeps the mass at the upper end.
        edges = np.clip(self.bins, *self.input_range)
        found: list[int] = np.searchsorted(edges, np.unique(edges)[1:]).tolist()
        return found


def checked_selection(
    bins: Numbers, input_range: object, families: str
) -> tuple[Array, tuple[float, float], bool]:
    """Return bins, range, and whether one family serves both ends, or raise DesignError."""
    held = mirrored_bins(check_bins("bins", bins))
    given = check_range(input_range, held)
    mirrors = symmetric_bins(held) and given[0] == -given[1]
    if one_of("families", families, ("auto", "symmetric", "separate")) == "symmetric" and not mirrors:
        remedy = 'families="symmetric" needs bins and range that mirror about 0; use families="separate" with theorem5'
        raise DesignError.of("bins", bins, remedy)
    return held, given, mirrors and families != "separate"


def check_theorem(theorem: str, bins: Array, input_range: tuple[float, float], symmetric: bool) -> None:
    """Raise DesignError for an unknown theorem, and for bins that Theorem 6 does not cover."""
    inside = (bins >= input_range[0]) & (bins <= input_range[1])
    if one_of("theorem", theorem, THEOREMS) == "theorem6" and not symmetric:
        remedy = 'Theorem 6 needs bins and range that mirror about 0; use families="separate" with theorem5'
        raise DesignError.of("bins", bins.tolist(), remedy)
    if theorem == "theorem6" and not inside.any():
        raise DesignError.of("bins", bins.tolist(), "Theorem 6 needs a bin inside the input range")


# -- privacy: Theorems 4 to 6 ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """The outputs seen from one end of the range: each pair holds first that end's family, the outer one, then the other end's.

    ``q[0][n - 1, i - 1]`` is :math:`q_n(i)`; o and u are its bounds, and `used` marks by 1 and 2 where o and u replace it.
    """

    bins: Array
    lower: float
    upper: float
    q: tuple[Any, Any]
    o: tuple[Any, Any]
    u: tuple[Any, Any]
    used: tuple[Any, Any]
    sign: int = 1

    def mirrored(self) -> Side:
        """Return the outputs seen from the other end."""
        q, o, u, used = (pair[::-1] for pair in (self.q, self.o, self.u, self.used))
        return Side(-self.bins[::-1], -self.upper, -self.lower, q, o, u, used, -self.sign)

    @property
    def inside(self) -> list[float]:
        """The bins within the input range."""
        return [b for b in self.bins.tolist() if self.lower <= b <= self.upper]

    def alone(self, n: int, family: int = 0) -> tuple[str, Any]:
        """Return q_n(n) of the outer family (0) or the inner one (1): an output's probability at its own bin."""
        side = "left" if (family == 0) == (self.sign > 0) else "right"
        return f"q_{n}({n}) {side}", self.q[family][n - 1, n - 1]

    def interval(self, x: float, before: bool) -> int:
        """Return the j of an input's interval [B_j, B_{j+1}), or with `before` that of the limit from the left."""
        j = int(np.searchsorted(self.bins, x, side="left" if before else "right"))
        return min(max(j, 1), len(self.bins) - 1)

    def linearised(
        self, i: int, x: float, *, outer: Any = None, inner: Any = None, before: bool = False
    ) -> tuple[str, Any]:
        """Return p(x, i), i left of x, with the outer factor or the inner ones replaced by given bounds, marked in `used`; by default the outer one by 1.

        It is exact if the factor is q_1(1) = 1. `before` takes the limit from the left.
        """
        b, m, j = self.bins, len(self.bins), self.interval(x, before)
        ends = b[: j - 1 : -1]  # B_r for r = m, m - 1, ..., j + 1
        shares = (ends - x) / (ends - b[i - 1])
        factor, factors = (j - 1, i - 1), np.s_[m - j - 1, : m - j]
        label = f"p({self.sign * x:g}, {i if self.sign > 0 else m + 1 - i})"
        if j == m - 1:
            return label, float(shares[0]) * self.q[0][factor]
        if j == 1 or (outer is None and inner is None):
            return label, shares @ self.q[1][factors]
        if inner is not None:
            self.used[1][factors] |= 1
            return label, _times(shares @ inner[factors], self.q[0][factor])
        self.used[0][factor] |= 2 if outer is self.u[0] else 1
        return label, _times(outer[factor], shares @ self.q[1][factors])


Comparison = tuple[list[tuple[str, Any]], list[tuple[str, Any]]]
"""Largest and smallest probabilities; each of the former is compared with each of the latter."""


def theorem5(side: Side, *, across: bool = False) -> Iterator[Comparison]:
    """Yield Theorem 5's comparisons, for the outputs inside and below the range; `Side.mirrored` has those above it.

    The largest probabilities of output i are q_i(i) and q_{m+1-i}(m+1-i) if it is inside the range, else z(x, i) at the lower end and at the bins inside.
    The smallest to its right are w(x, i) at the bins inside, as limits from the left, and at the upper end. All are compared with all: the print
    has one bin k on both sides of z <= e^ε w, which does not imply privacy, and j for i in q_{m+1-i}(m+1-i).

    `across` replaces the outer factor of the largest by 1, and the inner ones of the smallest by o (`across_outputs`).
    """
    m, lower, upper = len(side.bins), side.lower, side.upper
    large = {} if across else {"outer": side.u[0]}
    small = {"inner": side.o[1]} if across else {"outer": side.o[0]}
    for i, b in enumerate(side.bins.tolist(), start=1):
        beyond = [x for x in sorted({*side.inside, upper}) if x > max(b, lower)]
        w = [side.linearised(i, x, before=True, **small) for x in beyond]
        if lower <= b <= upper:
            left, right = [side.alone(i)] if i < m else [], [side.alone(m + 1 - i, 1)] if i > 1 else []
            yield left + right, w
        elif b < lower:
            yield [side.linearised(i, x, **large) for x in sorted({lower, *side.inside}) if x < upper], w


def across_outputs(sides: Sequence[Side]) -> Iterator[Comparison]:
    """Yield the authors' comparisons for asymmetric bins: every largest probability against every smallest of *any* output, which is stricter than privacy."""
    groups = [group for side in sides for group in theorem5(side, across=True)]
    yield [z for large, _ in groups for z in large], [w for _, small in groups for w in small]


def theorem6(side: Side) -> Iterator[Comparison]:
    """Yield Theorem 6's comparison: {z(−c, s − 1), q_s(s)} with {w(B_t, 1), w(c, 1)}, B_s and B_t the first and last bin inside [−c, c].

    Its order makes these the largest and smallest of all outputs. It is conservative: at m = 4 infeasible below ε = log 3, and at every
    ε where the order contradicts itself (bins ±a, ±b with a > 3b).
    """
    s, t = _inside(side)
    z = [side.alone(s)] + ([side.linearised(s - 1, side.lower, outer=side.u[0])] if s > 1 else [])
    ends = sorted({float(side.bins[t - 1]), side.upper} - {float(side.bins[0])})
    yield z, [side.linearised(1, x, before=True, outer=side.o[0]) for x in ends]


def theorem6_order(side: Side) -> Iterator[tuple[Any, Any]]:
    """Yield the order that Theorem 6 requires: pairs of vectors, the first at most the second."""
    q, b, m = side.q[0], side.bins, len(side.bins)
    s, t = _inside(side)
    n, i = np.tril_indices(m - 2)
    yield q[n + 1, i], q[n, i]  # q_{n+1}(i) <= q_n(i)
    n, i = np.tril_indices(m - 1, -1)
    yield q[n, i], q[n, i + 1]  # q_n(i) <= q_n(i + 1)
    n = np.arange(s, min(t, m - 2) + 1)
    if len(n):
        yield q[n, n], q[n - 1, n - 1]
    pairs = [(k, r) for k in range(s, t + 1) for r in range(k + 2, m + 1)]
    k, r = np.array(pairs, dtype=int).reshape(-1, 2).T
    near, far = 1 / (b[r - 1] - b[k]), 1 / (b[r - 1] - b[k - 1])
    for n in (m - k + 1, m - k):
        held = (n <= m - 1) & (m + 1 - r <= n - 1)
        if held.any():
            at, i = n[held] - 1, (m - r)[held]
            nearer, farther = (sparse.diags_array(share[held]) for share in (near, far))
            yield farther @ q[at - 1, i], nearer @ q[at, i]


def _inside(side: Side) -> tuple[int, int]:
    inside = np.flatnonzero((side.bins >= side.lower) & (side.bins <= side.upper)) + 1
    return int(inside[0]), int(inside[-1])


def dominance(side: Side) -> tuple[Any, Any]:
    """Return Lemma 2's sides, q_j(i) <= q_i(i) for j > i; for i = 1 it is trivial, as q_1(1) = 1."""
    j, i = (v + 1 for v in np.tril_indices(len(side.bins) - 2, -1))
    return side.q[0][j, i], side.q[0][i, i]


# -- one statement, read with variables or with numbers -------------------------------------------------------------


class Cells:
    """The unknowns as unit vectors: an index that selects CVXPY variables selects rows of the identity here."""

    def __init__(self, numbers: Indices, count: int) -> None:
        self._numbers, self._units = numbers, sparse.eye_array(count, format="csr")

    def __getitem__(self, key: Any) -> Any:
        chosen = self._numbers[key]
        if isinstance(key, slice):
            return Cells(chosen, self._units.shape[0])
        rows = self._units[np.atleast_1d(chosen)]
        return rows if np.ndim(chosen) else rows.toarray()[0]


def unit_vectors(open_: Array) -> Any:
    """Return the unknowns as unit vectors, in the shape of the unknown: an array, or `Cells` if there are many."""
    count = int(open_.sum())
    numbers = (np.cumsum(open_.ravel()) - 1).reshape(open_.shape).astype(np.int64)
    return Cells(numbers, count) if count > _DENSE else np.eye(count)[numbers] * open_[..., None]


def _times(bound: Any, form: Any) -> Any:
    """Return a bound times a linear form; for many boxes with each of their bounds, along the first axis."""
    return bound * form if isinstance(form, cp.Expression) else np.multiply.outer(bound, form)


def _stacked(forms: Iterable[tuple[str, Any]], places: Indices) -> Any:
    """Stack the forms with these indices, which may repeat, into one vector of expressions, or into numbers of shape (boxes or 1, forms, unknowns)."""
    held = [form for _, form in forms]
    if isinstance(held[0], cp.Expression):
        return cp.hstack(held)[places]
    boxes = max((len(form) for form in held if form.ndim > 1), default=1)
    stacked = np.empty((boxes, len(held), held[0].shape[-1]))
    for k, form in enumerate(held):
        stacked[:, k] = form
    return stacked[:, places]


class Family(NamedTuple):
    """Rows ``left <= right`` with their labels."""

    name: str
    labels: list[str]
    left: Any
    right: Any


MEANING = {
    "normalisation": "Σ_i q_n(i) = 1",
    "dominance": "q_j(i) <= q_i(i), j > i (Lemma 2)",
    "lower bounds": "o <= q, where o stands for a factor",
    "upper bounds": "q <= u, where u stands for a factor",
    "privacy": "z <= e^ε w",
    "order": "what makes z and w the largest and smallest of all outputs",
}
"""The rows of each family in symbols."""


def _compared(groups: Iterable[Comparison], ratio: float) -> Iterator[Family]:
    """Yield rows: each largest probability is at most e^ε times each smallest one of its group."""
    for z, w in groups:
        if not (z and w):
            continue
        a, b = np.divmod(np.arange(len(z) * len(w)), len(w))
        labels = [f"{z[k][0]} <= e^eps {w[n][0]}" for k, n in zip(a, b)]
        yield Family("privacy", labels, _stacked(z, a), ratio * _stacked(w, b))


@dataclass(frozen=True, eq=False)
class SelectionPrivacy(Requirement):
    """Privacy of a selection by one of the paper's theorems: `Selection.private` makes it.

    Parameters
    ----------
    label : str
    privacy : PureDP
    theorem : {"theorem5", "theorem6", "across-outputs"}
    o, u : cvxpy.Expression
        The box o, u in the shape of the unknown: parameters, or affine in them.
    boxes : Grid, "paper", or None
        Boxes that are searched as long as the parameters hold `initial_box`; None uses the parameters' box only.
    initial_box : (o, u), optional
        Values of the parameters when the requirement was made.
    """

    theorem: str
    o: Any
    u: Any
    boxes: Any = None
    initial_box: tuple[Array, Array] | None = None

    points = ()  # rows of tables: none, those of the theorem are `families`

    def check(self, inputs: int) -> None:
        """Accept: `Selection.private` has checked the unknown's shape."""

    def parameters(self) -> list[cp.Parameter]:
        """Return the parameters of the box."""
        return [*self.o.parameters(), *self.u.parameters()]

    def families(self, q: Any, o: Any, u: Any, epsilon: float | None = None) -> tuple[list[Family], Any]:
        """Return the rows, and a mask of the entries that have a bound in them: o (1), u (2) or both (3).

        Parameters
        ----------
        q, o, u : CVXPY expressions, or `Cells` and arrays whose last axis is that of boxes
        epsilon : float, optional
            By default the requirement's.
        """
        unknown: Selection = self.unknown
        m, used = len(unknown.bins), np.zeros(unknown.shape, dtype=int)
        halves: Any = [(part[: m - 1], part[-(m - 1) :]) for part in (q, o, u, used)]
        left = Side(unknown.bins, *unknown.input_range, *halves)
        sides = [left] if unknown.symmetric else [left, left.mirrored()]
        ratio = math.exp(min(self.privacy.epsilon if epsilon is None else epsilon, _LARGEST))
        found = [Family("dominance", [], *dominance(side)) for side in sides if m > 3]
        if self.theorem == "theorem6":
            found += _compared(theorem6(left), ratio)
            found += [Family("order", [], *pair) for pair in theorem6_order(left)]
        elif self.theorem == "across-outputs":
            found += _compared(across_outputs(sides), ratio)
        else:
            found += _compared((group for side in sides for group in theorem5(side)), ratio)
        return found, used

    @property
    def bounded(self) -> Indices:
        """Mask of the entries that have a bound in the rows: o (1), u (2) or both (3)."""
        open_ = self.unknown.open
        found: Indices = self.families(unit_vectors(open_), *whole(open_))[1]
        return found

    def constraints(self) -> list[cp.Constraint]:
        """Return the rows in CVXPY, with each family's name."""
        q, o, u = self.unknown, self.o, self.u
        found, used = self.families(q, o, u)
        at = tuple(np.nonzero(used))
        rows = [named("normalisation", cp.sum(q, axis=1) == 1)]
        if used.any():
            rows += [named("lower bounds", o[at] <= q[at]), named("upper bounds", q[at] <= u[at])]
        for name in dict.fromkeys(family.name for family in found):
            sides = [(one.left, one.right) for one in found if one.name == name]
            left, right = (cp.hstack(side) for side in zip(*sides))
            rows.append(named(name, left <= right))
        return rows

    def __str__(self) -> str:
        return f"{guarantee(self.privacy)}, by {self.theorem.replace('theorem', 'Theorem ')}"


@dataclass(frozen=True, eq=False)
class SelectionRows(Declared):
    """A user's own rows in numbers, as for a table whose entries q_n(i) with i > n are 0."""

    dropped: frozenset[int] = frozenset()
    """Further cells that stay 0."""

    @cached_property
    def zeros(self) -> frozenset[int]:
        """Cells that are 0 in every feasible selection, and those dropped."""
        open_ = np.tile(np.tri(self.m), (self.n // self.m, 1)) > 0
        return self.forced(np.flatnonzero(~open_).tolist()) | self.dropped

    def cell(self, j: int) -> str:
        """Return the name of an unknown, as in the paper."""
        n, i = divmod(j, self.m)
        side = "" if self.n == self.m else " left" if n < self.m else " right"
        return f"q_{n % self.m + 1}({i + 1}){side}"


class Question(NamedTuple):
    """Prior and loss of Lemma 1's bound, its coefficients, and the pieces of the range."""

    prior: Prior
    loss: Loss
    cost: Array
    constant: float
    pieces: Pieces


# -- grids of boxes ---------------------------------------------------------------------------------------------


LEVELS = np.arange(1, 100) / 100
"""The o of the published boxes at m = 4, whose u is o + 0.01."""


def authors_boxes() -> Grid:
    """Return the published grid of boxes at m = 4."""
    return Grid(level=LEVELS, width=[0.01])


def check_boxes(name: str, grid: object) -> None:
    """Raise DesignError unless `grid` is a grid of boxes: an axis of another name would have no effect."""
    if not isinstance(grid, Grid) or not {"level"} <= set(grid.axes) <= {"level", "level_right", "width"}:
        remedy = "must be a Grid with the axis level, and level_right and width where wanted"
        raise DesignError.of(name, grid, remedy)


def whole(open_: Flags) -> Boxes:
    """Return the single box [0, 1]."""
    return np.zeros((*open_.shape, 1)), open_[..., None].astype(float)


def grid_boxes(open_: Flags, used: Flags, grid: Grid | None) -> Boxes:
    """Return the boxes of a grid over the one or two rows that have bounds.

    A row q_n of two unknowns has one degree of freedom: q_n(1) in [o, u], q_n(2) in [1 − u, 1 − o].

    Parameters
    ----------
    open_, used : bool arrays in the shape of the unknown
        Entries that are unknowns, and those with a bound in some row.
    grid : Grid, optional
        By default the paper's.

    Raises
    ------
    DesignError
        More rows have bounds, or longer ones, or the grid has other axes.
    """
    rows = np.flatnonzero(used.any(axis=1))
    if not len(rows):
        return whole(open_)
    if grid is None:
        steps = np.arange(1, 20) / 20
        axes: dict[str, Any] = {"level": LEVELS} if len(rows) < 2 else {"level": steps, "level_right": steps}
    else:
        check_boxes("box", grid)
        axes = dict(grid.axes)
    if len(rows) > 2 or (open_[rows].sum(axis=1) != 2).any():
        raise DesignError.of("box", grid, "a grid needs at most two free bounds")
    points = dict(zip(axes, (side.ravel() for side in np.meshgrid(*axes.values(), indexing="ij"))))
    level, width = points["level"], points.get("width", 0.01)
    levels = [level, points.get("level_right", level)]
    o, u = (np.repeat(side, len(level), axis=2) for side in whole(open_))
    for row, level in zip(rows, levels):
        o[row, :2] = level, np.maximum(1.0 - level - width, 0.0)
        u[row, :2] = np.minimum(level + width, 1.0), 1.0 - level
    return o, u


def theorem6_boxes(
    open_: Flags, lowers: Flags, uppers: Flags, around: tuple[Array, Array] | None = None
) -> Boxes:
    """Return a grid over Theorem 6's bounds, or a finer one around a box; large o raise e^ε w, small u lower z.

    Parameters
    ----------
    open_, lowers, uppers : bool arrays in the shape of the unknown
        Entries that are unknowns, that have a lower bound in some row, and that have an upper one.
    around : (o, u), optional
    """
    sides = [(high, *at) for high, part in ((0, lowers & ~uppers), (1, uppers)) for at in np.argwhere(part)]
    sides.sort(key=lambda side: side[1:])
    axes: list[Any] = []
    for high, n, i in sides:
        if around is not None:
            axes.append(np.clip(around[high][n, i] * np.array([0.7, 0.85, 1.0, 1.2, 1.45]), 0, 1))
        else:
            axes.append([0.05, 0.1, 0.2, 0.4, 0.7, 1.0] if high else np.geomspace(1e-3, 0.3, 7))
    values = np.array(list(itertools.product(*axes)))
    boxes = tuple(np.repeat(side, len(values), axis=2) for side in whole(open_))
    for (high, n, i), column in zip(sides, values.T):
        boxes[high][n, i] = column
    return boxes[0], boxes[1]

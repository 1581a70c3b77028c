r"""The linear program of OPTM, declared once for every variant.

Unknowns :math:`q_n(i)`, 1 ≤ i ≤ n ≤ m − 1 (two families when the bins are not symmetric):

.. math::

    \min\; & \sum_j w_j \tfrac12 (\zeta^{L}_j + \zeta^{R}_{m-j} + B_{j+1} - B_j)  && \text{(Lemma 1, Theorems 3, 4)} \\
    \text{normalisation:}\; & \sum_i q_n(i) = 1 \\
    \text{dominance:}\; & q_i(i) \ge q_j(i), \quad j \ge i                        && \text{(Lemma 2)} \\
    \text{bounds:}\; & o_j(i) \le q_j(i) \le u_j(i) \\
    \text{privacy:}\; & z \le e^{\varepsilon} w                                   && \text{(Theorem 5 or 6)}

with :math:`w_j = \Pr[B_j \le X < B_{j+1}]` and :math:`\zeta_n = \sum_i q_n(i)(B_n - B_i)`.

**Bounds that are linear in the unknowns** (the paper's z and w). For the left-hand outputs (i ≤ j) of a selection mechanism

.. math:: p(x, i) = \sum_{r > j} q_j(i) \, q_{m-j}(m+1-r) \frac{B_r - x}{B_r - B_i}

is a sum of products of two unknowns, the *outer* factor :math:`q_j(i)` and the *inner* ones. Replacing the outer
factor by its bound gives linear forms

.. math:: z = u_j(i) \sum_r q_{m-j}(m+1-r) \frac{B_r - x}{B_r - B_i} \ge p(x, i) \ge w = o_j(i) \sum_r \dots

Bounding the inner factors instead leaves the outer one the variable.
Where one factor is the constant :math:`q_1(1) = 1` (j = 1, or j = m − 1) the form is exact. A `Form` is a sum of terms
weight · bound · unknown; a `PrivacyRows` holds pairs "upper form ≤ e^ε lower form" flat over their terms, so that the
coefficients for one or many values of the bounds are one product.

**Theorem 6** is a compact sufficient condition, with three bounds whatever m is. It orders the selection probabilities so that the largest probability of any output is one of
:math:`z(-c, s-1), q_s(s)` and the smallest of any output one of :math:`w(B_t, 1), w(c, 1)`, with
:math:`B_s, B_t` the first and last bin inside [−c, c], and compares those. It asks the maximum over *all*
outputs against the minimum over *all* outputs, so it is conservative: at m = 4 it is infeasible below ε = log 3,
and at every ε where its order contradicts itself (bins ±a, ±b with a > 3b).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import cvxpy as cp
import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import sparse

from mechdesign.errors import InfeasibleError
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.solvers import LinearProgram, Model
from mechdesign.typing import Array, Indices, Status

CONSTANT = -1  # the bound that is 1
RESOLVED = 16.0
"""ε up to which every probability that privacy asks for is above a linear program's tolerance."""
_LARGEST = 29.9  # ε whose ratio is the largest coefficient that solvers accept


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

    def forms(self, low: Array, high: Array, width: int) -> tuple[sparse.csr_array, sparse.csr_array]:
        """The upper forms z and the lower forms w, as matrices on all unknowns."""
        values, shape = self.factors(low, high), (len(self.labels), width)
        z, w = (
            sparse.csr_array((values[side], (self.row[side], self.unknown[side])), shape)
            for side in (~self.smallest, self.smallest)
        )
        return z, w

    def coefficients(self, epsilon: float, low: Array, high: Array) -> Array:
        """Coefficients of "upper − ρ lower", a term each; ρ is e^ε, or the largest that solvers accept: a smaller ε's."""
        ratio = math.exp(min(epsilon, _LARGEST))
        return self.factors(low, high) * np.where(self.smallest, -ratio, 1.0)

    def sides(self, q: Array, low: Array, high: Array) -> tuple[Any, Any]:
        """Upper and lower forms of every row at `q`."""
        value = self.factors(low, high) * q[self.unknown]
        count = len(self.labels)
        upper = np.bincount(self.row[~self.smallest], value[~self.smallest], count)
        return upper, np.bincount(self.row[self.smallest], value[self.smallest], count)


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


def audited(
    families: Iterable[tuple[str, Sequence[str] | npt.NDArray[np.str_], Array, Array, Array | float]],
) -> pd.DataFrame:
    """Rows of a program as an audit lists them, from each family's name, labels, both sides, and multipliers.

    Both sides are sums of doubles: what lies within their rounding is no slack, on either side.
    """
    parts = []
    for family, labels, lhs, rhs, dual in families:
        slack = rhs - lhs
        slack = np.where(np.abs(slack) <= 8 * np.finfo(float).eps * (np.abs(lhs) + np.abs(rhs)), 0.0, slack)
        columns = {"family": f"model: {family}", "index": labels, "lhs": lhs, "rhs": rhs}
        parts.append(pd.DataFrame({**columns, "slack": slack, "dual": dual, "active": slack <= 1e-9}))
    return pd.concat(parts, ignore_index=True)[AUDIT_COLUMNS]


def summed(groups: Indices) -> sparse.csr_array:
    """The matrix that sums entries by their groups, which are 0, 1, … and none empty."""
    return sparse.csr_array((np.ones(len(groups)), (groups, np.arange(len(groups)))))


def pair_costs(loss: Loss, moments: Array, left: Array, right: Array) -> Array:
    """E ℓ on an interval for every pair of bins left and right of it, from the prior's moments of order 0, 1, 2 there.

    Rounding x between l and r costs 2 (x − l)(r − x)/(r − l) in absolute error and (x − l)(r − x) in squared.
    """
    mass, first, second = moments
    low, high = left[:, None], right[None, :]
    product = (low + high) * first - low * high * mass - second
    return np.asarray((2 * loss.absolute / (high - low) + loss.squared) * product)


class OPTMProgram:
    """The linear program of OPTM for given bins; bounds and ε vary.

    Parameters
    ----------
    bins : array, shape (m,)
    input_range : (float, float)
    prior : Prior
    loss : Loss
    constraints : {"theorem5", "theorem6", "across-outputs"}
    separate : bool
        Two families (asymmetric bins) instead of one mirrored family.

    Attributes
    ----------
    width : int
        Number of unknowns.
    """

    def __init__(
        self,
        bins: Array,
        input_range: tuple[float, float],
        prior: Prior,
        loss: Loss,
        *,
        constraints: str,
        separate: bool,
    ) -> None:
        self.bins, self.input_range, self.prior, self.loss = bins, input_range, prior, loss
        self.constraints, self.separate, self.m = constraints, separate, len(bins)
        left = Family(self.m)
        self.families = (left, Family(self.m, left.size) if separate else left)
        self.width = left.size * (2 if separate else 1)
        self.view = View(bins, *input_range, *self.families)

    @cached_property
    def rows(self) -> PrivacyRows:
        """The privacy constraints."""
        if self.constraints == "theorem6":
            return PrivacyRows(theorem6_pairs(self.view))
        views = [self.view, self.view.mirrored()] if self.separate else [self.view]
        across = self.constraints == "across-outputs"
        return PrivacyRows(theorem5_pairs(views, across_outputs=across))

    @cached_property
    def bounded(self) -> Indices:
        """The unknowns that carry a bound, in increasing order."""
        return np.unique(self.rows.bound[self.rows.bound >= 0])

    def signature(self) -> bytes:
        """Equal for programs that are changes of one another."""
        parts = (self.rows.row, self.rows.unknown, self.bounded, np.array([self.m, self.width]))
        return b"|".join(np.asarray(p, dtype=np.int64).tobytes() for p in parts)

    # -- the objective --------------------------------------------------------------------------------

    def _intervals(self) -> Iterator[tuple[int, Array]]:
        """Every interval [B_j, B_{j+1}) that meets the range: j, and the prior's moments there."""
        # Intervals are half-open, but the range is closed: its last piece keeps the mass at the upper end.
        edges = np.clip(self.bins, *self.input_range)
        kept = np.unique(edges)
        yield from zip(np.searchsorted(edges, kept[1:]).tolist(), self.prior.moments(kept))

    @cached_property
    def objective(self) -> tuple[Array, float]:
        """Coefficients and constant of the upper bound of the expected loss (Lemma 1)."""
        bins, m = self.bins, self.m
        left, right = self.families
        cost, constant = np.zeros(self.width), 0.0
        absolute = self.loss.absolute if self.loss.function is None else 1.0
        squared = self.loss.squared
        for j, (mass, first, second) in self._intervals():
            a, b = bins[j - 1], bins[j]
            spread, reach = a - bins[:j], bins[j:][::-1] - b
            cost[left.row(j)] += absolute * mass * spread / 2
            cost[right.row(m - j)] += absolute * mass * reach / 2
            constant += absolute * mass * (b - a) / 2
            # Var = (x−a)(b−x) + (x−a) E e + (b−x) E d + E d E e, the last product relaxed by E d ≤ b − B_1 …
            up, down = first - a * mass, b * mass - first
            cost[left.row(j)] += squared * (down + mass * reach[0] / 2) * spread
            cost[right.row(m - j)] += squared * (up + mass * spread[0] / 2) * reach
            constant += squared * (-second + (a + b) * first - a * b * mass)
        return cost, constant

    @cached_property
    def _bilinear(self) -> list[tuple[slice, slice, Array]]:
        """For each interval meeting the range: rows of the two families and E ℓ of every pair of bins on it."""
        (left, right), bins = self.families, self.bins
        return [
            (left.row(j), right.row(self.m - j), pair_costs(self.loss, moments, bins[:j], bins[j:][::-1]))
            for j, moments in self._intervals()
        ]

    def exact_loss(self, q: Array) -> Array:
        """Exact expected loss of solutions (N, width) for polynomial losses: bilinear in the two families."""
        total = np.zeros(len(q))
        for left, right, kernel in self._bilinear:
            total += np.sum((q[:, left] @ kernel) * q[:, right], axis=1)
        return total

    def judged(self, objective: Array, q: Array) -> Array:
        """What points of a search are compared by: their exact loss, or the objective for callable losses."""
        return self.exact_loss(q) if self.loss.polynomial else objective

    # -- the model ------------------------------------------------------------------------------------

    def _rows_of_unknowns(self) -> tuple[Indices, Indices]:
        """n − 1 and i − 1 of every unknown q_n(i)."""
        n, i = np.tril_indices(self.m - 1)
        return np.resize(n, self.width), np.resize(i, self.width)

    def normalisation(self) -> sparse.csr_array:
        """Rows that sum each q_n."""
        at = np.arange(self.width)
        rows = self._rows_of_unknowns()[0] + (self.m - 1) * (at // self.families[0].size)
        return sparse.csr_array((np.ones(self.width), (rows, at)))

    def dominance(self) -> tuple[Indices, Indices]:
        """Positions (of q_i(i), of q_j(i)), j > i ≥ 1; row n = 1 is the constant 1 and needs none."""
        n, i = self._rows_of_unknowns()
        smaller = np.flatnonzero((n > i) & (i > 0))
        return smaller - (n * (n + 1) - i * (i + 1))[smaller] // 2, smaller

    def model(self, epsilon: float, low: Array, high: Array) -> Model:
        """Declare the linear program for bounds `low`, `high` of shape (width,), in the paper's rows q_n and forms z, w."""
        m, rho, (cost, constant) = self.m, math.exp(min(epsilon, _LARGEST)), self.objective
        sides = (" left", " right") if self.separate else ("",)
        families = [[cp.Variable(n, name=f"q_{n}{side}", nonneg=True) for n in range(1, m)] for side in sides]
        rows = [row for family in families for row in family]
        q, z, w = cp.hstack(rows), *self.rows.forms(low, high, self.width)
        mask, cuts = np.isin(np.arange(self.width), self.bounded), np.cumsum([row.size for row in rows])[:-1]
        bounded, lows, highs = (np.split(v, cuts) for v in (mask, low, high))
        constraints: dict[str, Any] = {
            "normalisation": [cp.sum(row) == 1 for row in rows],
            "dominance": [
                f[i - 1][i - 1] >= cp.hstack([f[j - 1][i - 1] for j in range(i + 1, m)])
                for f in families
                for i in range(2, m - 1)
            ],
            "lower bounds": [row[b] >= o[b] for row, b, o in zip(rows, bounded, lows) if b.any()],
            "upper bounds": [row[b] <= u[b] for row, b, u in zip(rows, bounded, highs) if b.any()],
            "privacy": [z @ q <= rho * (w @ q)] if self.rows.labels else [],
        }
        if self.constraints == "theorem6":
            constraints["order"] = [theorem6_rows(self.view) @ q >= 0]
        problem = cp.Problem(cp.Minimize(cost @ q + constant), [*chain(*constraints.values())])
        return Model(problem, {row.name(): row for row in rows}, constraints)

    @cached_property
    def privacy_entries(self) -> tuple[Indices, sparse.csr_array]:
        """Row · width + unknown of every coefficient of the privacy rows, and the sums of terms that it is."""
        places, entry = np.unique(self.rows.row * self.width + self.rows.unknown, return_inverse=True)
        return places, summed(entry)

    def in_numbers(self, epsilon: float, low: Array, high: Array, **options: Any) -> LinearProgram:
        """Return the program of `model`, for one box; others are changes of "privacy" and the bounds."""
        program, size = LinearProgram("OPTM program", **options), self.width
        cost, program.constant = self.objective
        program.add_columns("q", cost)
        program.add_rows("normalisation", {"q": self.normalisation()}, lower=1.0, upper=1.0)
        one, (bigger, smaller) = sparse.eye_array(size, format="csr"), self.dominance()
        program.add_rows("dominance", {"q": one[smaller] - one[bigger]}, upper=0.0)
        program.add_rows("lower bounds", {"q": -one[self.bounded]}, upper=-low[self.bounded])
        program.add_rows("upper bounds", {"q": one[self.bounded]}, upper=high[self.bounded])
        places, sums = self.privacy_entries
        values = sums @ self.rows.coefficients(epsilon, low, high)
        shape = len(self.rows.labels), size
        program.add_rows("privacy", {"q": sparse.coo_array((values, divmod(places, size)), shape)}, upper=0.0)
        if self.constraints == "theorem6":
            program.add_rows("order", {"q": -theorem6_rows(self.view)}, upper=0.0)
        return program

    def orderable(self) -> bool:
        """Whether some q meets Theorem 6's order, which no ε is part of."""
        program = LinearProgram("order of Theorem 6")
        program.add_columns("q", np.zeros(self.width))
        program.add_rows("normalisation", {"q": self.normalisation()}, lower=1.0, upper=1.0)
        program.add_rows("order", {"q": theorem6_rows(self.view)}, lower=0.0)
        try:
            return program.solve() is Status.OPTIMAL
        except InfeasibleError:
            return False

    # -- there and back -------------------------------------------------------------------------------

    def unpack(self, q: Array) -> tuple[Array, Array]:
        """Left and right families as triangular (m − 1, m − 1) arrays, cleaned of solver noise."""
        tables = np.zeros((2, self.m - 1, self.m - 1))
        n, i = np.tril_indices(self.m - 1)
        tables[:, n, i] = np.maximum(q, 0.0).reshape(-1, len(n))
        left, right = tables / tables.sum(axis=2, keepdims=True)
        return left, right

    def flatten(self, left: Array, right: Array) -> Array:
        """Inverse of `unpack`."""
        return np.concatenate([table[np.tril_indices(self.m - 1)] for table in (left, right)])[: self.width]

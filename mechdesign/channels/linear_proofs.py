r"""Lower bounds of the cost of local reports for linear questions, and the exact cost of a table: theorems and exact checks.

G is the Gram matrix of :math:`W(I - 11^\top/k)`. Adding constants to the rows of W changes no variance, so that all variances
are those of G.

*Table.* With :math:`u_y = q_y / \pi\cdot q_y` and :math:`M = \sum_y q_y u_y^\top`, which is not singular, the decoder is unbiased, and a report of
category x has variance :math:`\sum_y Q(y|x)\, u_y^\top M^{-1} G M^{-1} u_y - G_{xx}`. Intervals enclose
:math:`M^{-1} u_y`, and with it the variances.

*Bound.* Every table with :math:`Q(y|x) \le \rho\, Q(y|x')` is a sum of rays :math:`u \in \{1, \rho\}^k`. For any matrix Y, prices ν and prior π, if
:math:`(\nu^\top u)(\pi^\top u) \ge u^\top Y^\top G Y u` for all of these, then no unbiased report has a smaller variance on average over π than
:math:`\operatorname{tr}(G Y)^2 / \nu^\top 1 - \sum_x \pi_x G_{xx}`. The condition is checked for every ray, or for many categories
implied by one matrix inequality, whose multipliers are those of the program over the moments of rays without the rays (`relaxation`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache, reduce
from typing import Any

import cvxpy as cp
import numpy as np
from flint import arb_mat, ctx, fmpq, fmpq_mat
from scipy import linalg

from mechdesign.channels.linear_report import (
    PRECISION,
    LinearReport,
    SubsetReport,
    centred_diagonal,
    contrast,
    decoded,
    histogram,
    margins,
    prior_of,
)
from mechdesign.checks import Checked, array, field, instance, non_negative, refuse
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_lower, exp_upper, fraction, rational
from mechdesign.evidence.proofs import PROVED, Certificate, Claim, Proof, same
from mechdesign.evidence.serialize import serializable
from mechdesign.model.problem import named
from mechdesign.problem.workload import Queries, Workload
from mechdesign.typing import Array

LISTED = 16
"""Most categories for which all 2^k rays are listed."""
_GROWTH = 64  # bits of the fraction for e^ε


@cache
def rays(size: int) -> Array:
    """Return the categories that each ray favours, one row each: all sets but the empty and the full one."""
    numbers = np.arange(1, 2**size - 1)[:, None]
    return np.asarray((numbers >> np.arange(size)) & 1, dtype=float)


exact = np.vectorize(rational, otypes=[object])
"""Return an array of doubles as one of rationals."""


def product(*matrices: Any) -> Any:
    """Return the product of matrices of rationals."""
    return np.array(
        reduce(operator.mul, (fmpq_mat(each.tolist()) for each in matrices)).tolist(), dtype=object
    )


def exact_gram(workload: Workload) -> Any:
    """Return WᵀW in rationals."""
    workload.check_square()

    def gram(part: Queries) -> Any:
        rows = None if part.matrix is None else exact(part.matrix)
        return exact(part.gram()) if rows is None else product(rows.T, rows)

    return sum(reduce(np.kron, map(gram, block)) for block in workload.blocks)


def centred(gram: Any) -> Any:
    """Return the Gram matrix of W(I − 11ᵀ/k)."""
    means = gram.sum(axis=0) / len(gram)
    return gram - means[:, None] - means + means.sum() / len(gram)


def mean_square(workload: Workload) -> Fraction:
    """Return ‖W‖²/k, by which the value of the average exceeds the variance."""
    diagonal, _, common = margins(workload)
    return Fraction(int(diagonal.sum()), common * workload.size)


def variances_above(law: LinearReport) -> list[Fraction]:
    """Return upper bounds of the variance of one report for each category; raise DesignError if the reports do not determine the counts."""
    gram, columns = centred(exact_gram(law.workload)), decoded(law.weights, law.prior)
    with ctx.workprec(PRECISION):
        pairs = zip((arb_mat(gram.tolist()) * columns).transpose().tolist(), columns.transpose().tolist())
        squares = arb_mat([[sum(map(operator.mul, *pair))] for pair in pairs])
        seen = (arb_mat(law.weights) * squares).entries()
        people = sum(law.weights[0])
        return [fraction((s / people - g).upper().fmpq()) for s, g in zip(seen, np.diag(gram))]


def cost_above(design: Any, law: LinearReport | SubsetReport) -> Fraction:
    """Return an upper bound of the law's cost: the worst variance, or the mean variance plus ‖W‖²/k."""
    if isinstance(law, SubsetReport):
        return law.cost(worst=design.data == "worst")
    found = variances_above(law)
    if design.data == "worst":
        return max(found)
    return sum(found, Fraction(0)) / law.size + mean_square(law.workload)


def growth_above(epsilon: float) -> tuple[int, int]:
    """Return a fraction above e^ε whose denominator is a power of two."""
    high = exp_upper(epsilon)
    return -((-high.numerator << _GROWTH) // high.denominator), 1 << _GROWTH


def law_claims(stated: Certificate) -> Iterator[Claim]:
    r"""Check that a table of integer weights is ε-locally private: in every column no weight exceeds :math:`\rho \le e^\varepsilon` times another.

    If M is regular the decoder is unbiased for every data set, and its variance is a fraction. For sets of categories
    (`SubsetReport`) both have closed forms.
    """
    design, law = fitting(stated)
    growth = exp_lower(design.privacy.epsilon)
    spare = min(growth - Fraction(max(column), max(min(column), 1)) for column in law.columns)
    possible = all(min(column) > 0 for column in law.columns)
    claim = f"every report at most e^{design.privacy.epsilon!r} times likelier for one category than for another: private"
    yield Claim(claim, PROVED, float(min(Fraction(spare), Fraction(10**300))), spare >= 0 and possible)
    room = Fraction(stated.value) - cost_above(design, law)
    yield Claim("unbiased for every data set", PROVED, math.nan, True)
    yield Claim.of(f"value at most {stated.value!r}", PROVED, room)


def histogram_bound(design: Any) -> Fraction:
    r"""Bound the mean variance of unbiased reports for a histogram from below, by that of subset selection at the best size.

    Let the centred Gram matrix be :math:`c(I - 11^\top/k)`, of trace T. As :math:`M 1 = k 1`, the inequality of the arithmetic and the harmonic mean for the
    other eigenvalues of M gives :math:`\operatorname{tr}(G M^{-1}) \ge c (k - 1)^2 / (\operatorname{tr} M - k)`. M is a mean of :math:`u u^\top` of rays u, and
    :math:`|u|^2 - k = k (\rho - 1)^2 s (k - s)/(s \rho + k - s)^2` for a ray that favours s categories: its maximum over s bounds tr M.
    """
    if not histogram(design.workload):
        raise DesignError.of("workload", str(design.workload), "must be a histogram: Workload.identity(k)")
    k, (high, low) = design.workload.size, growth_above(design.privacy.epsilon)
    most = max(contrast(k, s, high, low) for s in range(1, k)) * k
    trace = centred_diagonal(*margins(design.workload))[1]
    found: Fraction = trace * (k - 1) / most - trace / k
    return found if design.data == "worst" else found + mean_square(design.workload)


def fitting(stated: Certificate) -> tuple[Any, LinearReport | SubsetReport]:
    """Return question and law after checking that they have the same workload."""
    design: Any = stated.question
    law: Any = instance("law", stated.law, LinearReport, SubsetReport)
    if getattr(design, "data", None) not in ("average", "worst") or not same(law.workload, design.workload):
        raise DesignError("law: must be of the design's workload")
    if design.data == "average" and law.prior is not None:
        raise DesignError("law: must have no prior where the average over all categories is asked for")
    if design.outputs is not None and law.outputs > design.outputs:
        raise DesignError.of("law", law.outputs, f"must have at most {design.outputs} outputs")
    return design, law


@serializable("linear-bound", eq=False)
class ReportBound(Checked, Proof):
    r"""No unbiased report has a variance below :math:`\operatorname{tr}(GY)^2/\nu^\top 1 - \sum_x \pi_x G_{xx}` if
    :math:`(\nu^\top u)(\pi^\top u) \ge u^\top \Lambda u`, :math:`\Lambda = Y^\top G Y`, for all rays u.

    With `products` and π uniform the inequality is implied for all :math:`u = 1 + b w`, :math:`b = \min(1, \rho - 1)`, with entries of w 0 or
    :math:`t = \max(1, \rho - 1)` and not constant: for :math:`N_1, N_2, N_3 \ge 0` without diagonals, :math:`z = (1, w)`, :math:`r = t - w`, let

    .. math:: z^\top T z = (\nu^\top u)(1^\top u)/k - u^\top \Lambda u + \sum_i \sigma_i w_i (w_i - t) - w^\top N_1 w - r^\top N_2 r - w^\top N_3 r .

    If :math:`T + \delta I \succeq 0` the inequality fails by at most :math:`\delta(1 + t^2 j)` if j entries are t, and :math:`1^\top u = k + (\rho - 1) j`: raising
    νᵀ1 by :math:`\delta \max_j (1 + t^2 j) k^2 / (k + (\rho - 1) j)^2` restores it.

    Parameters
    ----------
    inverse : array, shape (k, k)
        Y.
    prices : array, shape (k,)
        ν.
    prior : array, shape (k,), optional
        Weights proportional to π, for the worst case.
    squares : array, shape (k,), optional
        σ of the matrix inequality.
    products : array, shape (3, k, k), optional
        The three N.
    slack : float
        δ.
    """

    inverse: Array = field(check=array, ndim=2)
    prices: Array = field(check=array)
    prior: Array | None = field(check=array, default=None)
    squares: Array | None = field(check=array, default=None)
    products: Array | None = field(check=array, ndim=3, default=None)
    slack: float = field(check=non_negative, default=0.0)

    speaks_of = ("lower bound",)

    @classmethod
    def of_rays(cls, design: Any, inverse: Array, prices: Array, prior: Array) -> tuple[ReportBound, Array]:
        """Return the proof with prices raised until they cover every ray, and each ray's excess over the given prices."""
        numbers, gram = exact(inverse), centred(exact_gram(design.workload))
        quadratic = product(numbers.T, gram, numbers).astype(float)
        points = 1 + math.expm1(design.privacy.epsilon) * rays(len(prices))
        at = points @ prior
        over = ((points @ quadratic) * points).sum(axis=1) / at**2 - (points @ prices) / at
        raised = (
            prices
            + (float(over.max()) + 1e-12 * float(np.abs(quadratic).sum() + np.abs(prices).sum())) * prior
        )
        return cls(inverse, raised, prior if design.data == "worst" else None), over

    @classmethod
    def of_relaxation(
        cls, solved: Mapping[str, Array], scale: float, gram: Array, growth: float
    ) -> ReportBound:
        """Return the proof from the duals of the solved relaxation, by name, with the slack that makes them valid."""
        k, basis, unit, top = len(gram), contrasts(len(gram)), min(1.0, growth - 1), max(1.0, growth - 1)
        upper = np.triu_indices(len(gram), 1)
        # the cone of `spread` has multipliers (I, -T S⁻¹; ·, ·) for its blocks T and S; S itself may be nearly singular
        root = scaled_root(gram)[0]
        inner = -np.linalg.pinv(root) @ solved["spread"][: len(root), len(root) :]
        inverse = basis @ inner @ basis.T / unit**2
        prices = solved["sums"] * np.sign(solved["sums"].sum()) / scale
        products = np.zeros((3, k, k))
        for at, name in enumerate(("both", "neither")):
            products[at][upper] = np.maximum(solved[name], 0.0) / 2 / scale
            products[at] += products[at].T
        products[2][upper] = np.maximum(solved["one"], 0.0) / scale
        products[2].T[upper] = np.maximum(solved["other"], 0.0) / scale
        quadratic, none = inverse.T @ gram @ inverse, np.zeros(k)
        linear = inequality(prices, none, products, quadratic, unit, top)[0, 1:]
        squares = 2 / top * (linear - solved["moments"][0, 1:] / scale)
        left = inequality(prices, squares, products, quadratic, unit, top)
        least = float(np.linalg.eigvalsh(left)[0])
        slack = max(0.0, -least) + 1e-9 * float(np.abs(left).max())
        return cls(inverse, prices, None, squares, products, slack)

    def bound(self, design: Any) -> Fraction:
        """Return the lower bound that this proves, or raise DesignError if it proves none for this design."""
        size, worst = design.workload.size, design.data == "worst"
        whole = exact_gram(design.workload)
        gram = centred(whole)
        if self.inverse.shape != (size, size) or self.prices.shape != (size,):
            raise DesignError.of("inverse", self.inverse.shape, f"must have shape ({size}, {size})")
        if worst == (self.prior is None) or (worst and self.products is not None):
            raise DesignError("prior: must be given where the worst case is asked for, of listed rays")
        counts, people = prior_of(self.prior, size)
        if counts.shape != (size,) or counts.min() < 0 or people <= 0:
            raise DesignError("prior: must be at least 0, and not all 0")
        prior, inverse, prices = counts * fmpq(1, people), exact(self.inverse), exact(self.prices)
        quadratic, cost = product(inverse.T, gram, inverse), prices.sum()
        if self.products is None:
            products = np.multiply.outer(prices, prior)
            self._check_rays(products + products.T - 2 * quadratic, design.privacy.epsilon)
        else:
            cost += self._paid(quadratic, design.privacy.epsilon)
        DesignError.when(cost <= 0, "prices: must have a positive sum")
        found = (gram * inverse.T).sum() ** 2 / cost - prior @ np.diag(gram)
        return fraction(found if worst else found + np.trace(whole) / size)

    def _check_rays(self, matrix: Any, epsilon: float) -> None:
        """Raise DesignError unless the form is at least 0 at all rays; integers decide where doubles cannot."""
        size = len(matrix)
        allowed = f"must be of at most {LISTED} categories where rays are listed"
        refuse(size > LISTED, "inverse", size, allowed)
        high, low = growth_above(epsilon)
        near = (matrix / (np.abs(matrix).sum() or fmpq(1))).astype(float)
        all_rays = rays(size)
        points = 1 + (high / low - 1) * all_rays
        points /= points.max(axis=1, keepdims=True)
        forms = ((points @ near) * points).sum(axis=1)
        numerators = fmpq_mat(matrix.tolist()).numer_denom()[0].tolist()
        numbers = np.array([[int(n) for n in row] for row in numerators], dtype=object)
        for favoured in all_rays[forms < 1e-11].astype(int):  # rounding is below 1e-13 at a norm of 1
            ray = low + favoured.astype(object) * (high - low)
            DesignError.when(ray @ numbers @ ray < 0, "prices: are too low for a ray")

    def _paid(self, quadratic: Any, epsilon: float) -> fmpq:
        """Return the amount by which the slack of the matrix inequality raises the prices."""
        size = len(self.prices)
        if self.products is None or self.squares is None or self.squares.shape != (size,):
            raise DesignError("squares: must be given with the products, one for each category")
        if self.products.shape != (3, size, size) or (self.products < 0).any():
            raise DesignError("products: must be three matrices of numbers at least 0")
        DesignError.when(any(np.diag(each).any() for each in self.products), "products: must have diagonal 0")
        high, low = growth_above(epsilon)
        step, slack = fmpq(high - low, low), rational(self.slack)
        width, top = min(step, fmpq(1)), max(step, fmpq(1))
        given = exact(self.prices), exact(self.squares), exact(self.products)
        matrix = inequality(*given, quadratic, width, top)
        matrix[range(size + 1), range(size + 1)] += slack
        refuse(not semidefinite(matrix), "slack", self.slack, "is too small: the matrix inequality fails")
        most: fmpq = max((1 + top**2 * j) * size**2 / (size + step * j) ** 2 for j in range(1, size))
        return slack * most

    def check(self, stated: Certificate) -> Iterator[Claim]:
        yield self.least(stated, self.bound(fitting(stated)[0]))


def inequality(prices: Any, squares: Any, products: Any, quadratic: Any, unit: Any, top: Any) -> Any:
    """Return T of `ReportBound`, in the arithmetic of its arguments."""
    size = len(prices)
    both, neither, one = products
    found = np.zeros((size + 1, size + 1), dtype=prices.dtype)
    found[1:, 1:] = (
        unit**2 * ((prices[:, None] + prices) / (2 * size) - quadratic) - both - neither + (one + one.T) / 2
    )
    found[range(1, size + 1), range(1, size + 1)] += squares
    linear = unit * (prices + prices.sum() / size) - 2 * unit * quadratic.sum(axis=1)
    found[0, 1:] = found[1:, 0] = (linear + top * (2 * neither.sum(axis=1) - one.sum(axis=1) - squares)) / 2
    found[0, 0] = prices.sum() - quadratic.sum() - top**2 * neither.sum()
    return found


def semidefinite(matrix: Any) -> bool:
    """Whether a matrix of fractions is provably semidefinite: minus L Lᵀ, for an L of doubles, it is diagonally dominant."""
    near = matrix.astype(float)
    size = len(near)
    near[range(size), range(size)] -= 1e-12 * np.abs(near).max()
    try:
        factor = exact(np.linalg.cholesky(near))
    except np.linalg.LinAlgError:
        return False
    rest = matrix - product(factor, factor.T)
    diagonal = np.diag(rest)
    return bool((2 * diagonal >= np.abs(rest).sum(axis=1)).all() and (diagonal >= 0).all())


def relaxation(gram: Array, growth: float) -> tuple[cp.Problem, float]:
    r"""Return the program over moments of rays, without the rays, and the scale of its objective.

    Let :math:`u = 1 + b w` with :math:`b = \min(1, \rho - 1)`, so that w is 0 or :math:`t = \max(1, \rho - 1)`, and let P, p and c be the sums of
    :math:`c_u w w^\top`, :math:`c_u w` and :math:`c_u` over weights c of rays. Then :math:`P_{ii} = t p_i`; products of :math:`w_i` and :math:`t - w_i` are
    non-negative; :math:`\sum_u c_u u u^\top 1 = k 1`. The least :math:`\operatorname{tr}(G M^{-1})` of such moments is a lower bound.
    """
    k, basis = len(gram), contrasts(len(gram))
    unit, top = min(1.0, growth - 1), max(1.0, growth - 1)
    root, scale = scaled_root(gram)
    pairs, count = cp.Variable((k, k), symmetric=True, name="pairs"), cp.Variable((1, 1), name="count")
    spread = cp.Variable((len(root), len(root)), symmetric=True, name="spread")
    single = cp.reshape(cp.diag(pairs) / top, (k, 1), order="C")
    rows, upper, every = single @ np.ones((1, k)), np.triu_indices(k, 1), count[0, 0]
    sums = every + unit * (single[:, 0] + cp.sum(single) / k) + unit**2 * cp.sum(pairs, axis=1) / k
    constraints = [
        named("sums", sums == 1),
        named("moments", cp.bmat([[count, single.T], [single, pairs]]) >> 0),
        named("spread", cp.bmat([[spread, root], [root.T, basis.T @ pairs @ basis]]) >> 0),
        named("both", pairs[upper] >= 0),
        named("neither", (top**2 * every - top * (rows + rows.T) + pairs)[upper] >= 0),
        named("one", (top * rows - pairs)[upper] >= 0),
        named("other", (top * rows.T - pairs)[upper] >= 0),
    ]
    return cp.Problem(cp.Minimize(cp.trace(spread)), constraints), scale * unit**2


def scaled_root(gram: Array) -> tuple[Array, float]:
    """Return T with independent rows and TᵀT = G times a factor, in the coordinates of `contrasts`, and the factor, which brings values near k."""
    basis = contrasts(len(gram))
    values, vectors = np.linalg.eigh(basis.T @ gram @ basis)
    kept = values > 1e-12 * values[-1]
    scale = float((len(gram) / np.sqrt(values[kept]).sum()) ** 2)
    return np.asarray((vectors[:, kept] * np.sqrt(values[kept] * scale)).T), scale


def contrasts(size: int) -> Array:
    """Return an orthonormal basis of the vectors that sum to 0, in columns."""
    return np.asarray(linalg.helmert(size).T)

r"""Rounded outward: what a whitening costs, and what no covariance costs less than.

**Cost.** Let :math:`R B = I + D`. Then :math:`(R^\top R)^{-1} = B K B^\top` with :math:`\lVert K - I \rVert \le (1 - \lVert D \rVert)^{-2} - 1`, and
:math:`\operatorname{tr}(G (R^\top R)^{-1})` is :math:`\operatorname{tr} H`, :math:`H = B^\top G B`, but for :math:`\sqrt r \lVert H \rVert` times that.

**Bound.** Let S keep the budget, :math:`v^\top S^{-1} v \le \mu^2` for each change v, and let N have the rows :math:`r_k v_k`. For every X and every Q of norm
at most 1

.. math:: \operatorname{tr}(X S X^\top) \, \mu^2 \sum r_k^2 \ge \lVert S^{1/2} X^\top \rVert^2 \, \lVert S^{-1/2} N^\top \rVert^2 \ge (\operatorname{tr}(X N^\top Q))^2

(Cauchy and Schwarz). A person's rows :math:`\operatorname{tr}(G_i S) + k_i \le 0` with multipliers :math:`\nu \ge 0` shift the weights of the loss alone: with
:math:`V' = V + \sum \nu_i G_i \succeq X^\top X` every such S costs at least :math:`(\operatorname{tr} X N^\top Q)^2/(\lVert Q \rVert^2 \mu^2 \sum r^2) + \sum \nu_i k_i`. With
:math:`Q` the polar factor of :math:`N X^\top` this is :math:`(\operatorname{tr} \sqrt{V'^{1/2} M V'^{1/2}})^2/(\mu^2 \sum y)`, M = Σ y v vᵀ, y = r².

Products in doubles of n terms are off by at most n + 2 roundings of the product of the sizes; sums are exact (`math.fsum`).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from mechdesign.noise.correlated.noise import inverse_rows
from mechdesign.typing import Array

_ULP = 2.0**-52
"""Twice a rounding: room for the roundings of the error bounds themselves."""
_TINY = 1e-290
"""More than what underflows in a product."""


def product(one: Array, other: Array) -> tuple[Array, Array]:
    """A product in doubles, and how far off each entry is at most."""
    with np.errstate(over="ignore", invalid="ignore"):
        error = (one.shape[-1] + 2) * _ULP * (np.abs(one) @ np.abs(other)) + _TINY
        return one @ other, error


def cost_between(rows: Array, weights: Array) -> tuple[float, float]:
    """Ends of tr(G (RᵀR)⁻¹); infinite where R is too ill-conditioned for doubles."""
    back = inverse_rows(rows)
    near, error = product(rows, back)
    off = float(np.linalg.norm(np.abs(near - np.eye(len(rows))) + error)) * (1 + 1e-9)
    if not off < 1e-3:
        return -math.inf, math.inf
    half, first = product(weights, back)
    found, second = product(back.T, half)
    off_found = second + np.abs(back.T) @ first * (1 + 1e-9)
    trace = math.fsum(np.diag(found).tolist())
    size = float(np.linalg.norm(np.abs(found) + off_found)) * math.sqrt(len(rows))
    room = (
        size * ((1 - off) ** -2 - 1) * (1 + 1e-9)
        + float(np.trace(off_found)) * (1 + 1e-9)
        + abs(trace) * _ULP
    )
    return trace - room, trace + room


def polar(rows: Array, factor: Array) -> Array:
    """Q for N and X."""
    outer, _, inner = np.linalg.svd(rows @ factor.T, full_matrices=False)
    return np.asarray(outer @ inner)


def dual_below(changes: Array, roots: Array, factor: Array, contraction: Array, most: Fraction) -> Fraction:
    """(tr X Nᵀ Q)²/(‖Q‖² μ² Σ r²), rounded down; 0 where nothing is proved."""
    held = roots[:, None] * changes
    core, error = product(held, factor.T)
    error = error + _ULP * (np.abs(held) @ np.abs(factor.T))  # of the rows of N
    with np.errstate(over="ignore", invalid="ignore"):
        trace = math.fsum((core * contraction).ravel().tolist())
        lost = math.fsum((error * np.abs(contraction) + _ULP * np.abs(core * contraction)).ravel().tolist())
    least = trace - lost * (1 + 1e-9)
    if not (least > 0 and math.isfinite(trace)):
        return Fraction(0)
    gram, off = product(contraction.T, contraction)
    norm = Fraction(float((np.abs(gram) + off).sum(axis=1).max() * (1 + 1e-12)))
    spent = sum((Fraction(r) ** 2 for r in roots.tolist()), Fraction(0))
    return Fraction(least) ** 2 / (norm * most * spent)


def factor_below(weights: Array, slack: float = 1e-13) -> Array | None:
    """X with XᵀX below a positive definite matrix, by Cholesky of it less a little of its diagonal; None where it is not.

    Coordinates of no weight at all are left out: X has a row less for each.
    """
    kept = np.flatnonzero(np.diag(weights) != 0)
    inner = weights[np.ix_(kept, kept)]
    if not len(kept) or not (np.diag(inner) > 0).all():
        return None
    scale = np.sqrt(np.diag(inner))
    unit = inner / np.outer(scale, scale)
    try:
        found = np.linalg.cholesky(unit - slack * len(kept) * np.eye(len(kept)))
    except np.linalg.LinAlgError:
        return None
    factor = np.zeros((len(kept), len(weights)))
    factor[:, kept] = found.T * scale
    return factor


def is_below(factor: Array, exact: list[list[Fraction]]) -> bool:
    """Whether XᵀX is below a matrix of fractions: their difference is diagonally dominant, once scaled."""
    columns = [[Fraction(x) for x in column] for column in factor.T.tolist()]
    size = len(exact)
    scale = [Fraction(2) ** (-(math.frexp(float(exact[i][i]) or 1.0)[1] // 2)) for i in range(size)]
    left = [
        [
            (exact[i][j] - sum(x * y for x, y in zip(columns[i], columns[j]) if x and y))
            * scale[i]
            * scale[j]
            for j in range(i + 1)
        ]
        for i in range(size)
    ]
    for i in range(size):
        others = sum(abs(left[max(i, j)][min(i, j)]) for j in range(size) if j != i)
        if left[i][i] < others:
            return False
    return True

r"""Partial moments of order 0–2 of continuous laws, in closed form where there is one.

Uniform, normal, truncated normal and beta laws have closed forms. For every other law the moments are
integrals of its distribution function (which is bounded and continuous, even where the density is not):

.. math::

    \int_a^b x\,dF = \big[x F(x)\big]_a^b - \int_a^b F(x)\,dx, \qquad
    \int_a^b x^2\,dF = \big[x^2 F(x)\big]_a^b - \int_a^b 2x\,F(x)\,dx,

done by adaptive quadrature to an absolute error of 1e-12.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from mechdesign.typing import Array

__all__ = ["law_integrals", "law_moments"]


def law_moments(law: Any, edges: Array) -> Array:
    """Return ∫ x^k dF, k = 0, 1, 2, over the cells between `edges`; shape (len(edges) − 1, 3)."""
    edges = np.clip(np.asarray(edges, dtype=float), *law.support())
    closed = _CLOSED.get(law.dist.name)
    shapes, loc, scale = law.dist._parse_args(*law.args, **law.kwds)
    if closed is None:
        return _by_quadrature(law, edges)
    return closed(edges, float(loc), float(scale), *map(float, shapes))


def _uniform(edges: Array, loc: float, scale: float) -> Array:
    a, b = edges[:-1], edges[1:]
    width = (b - a) / scale
    return np.stack([width, width * (a + b) / 2, width * (a * a + a * b + b * b) / 3], axis=1)


def _normal(edges: Array, loc: float, scale: float) -> Array:
    z = (edges - loc) / scale
    density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    weighted = np.where(np.isfinite(z), z, 0.0) * density
    # Differences of the smaller tail keep their relative accuracy.
    mass = np.where(
        z[:-1] > 0, special.ndtr(-z[:-1]) - special.ndtr(-z[1:]), special.ndtr(z[1:]) - special.ndtr(z[:-1])
    )
    first = density[:-1] - density[1:]
    second = mass + weighted[:-1] - weighted[1:]
    return np.stack(
        [mass, loc * mass + scale * first, loc**2 * mass + 2 * loc * scale * first + scale**2 * second],
        axis=1,
    )


def _truncated_normal(edges: Array, loc: float, scale: float, a: float, b: float) -> Array:
    ends = loc + scale * np.array([a, b])
    return _normal(edges, loc, scale) / _normal(ends, loc, scale)[0, 0]


def _beta(edges: Array, loc: float, scale: float, a: float, b: float) -> Array:
    y = np.clip((edges - loc) / scale, 0.0, 1.0)
    n0 = np.diff(special.betainc(a, b, y))
    n1 = np.diff(special.betainc(a + 1, b, y)) * a / (a + b)
    n2 = np.diff(special.betainc(a + 2, b, y)) * a * (a + 1) / ((a + b) * (a + b + 1))
    return np.stack([n0, loc * n0 + scale * n1, loc**2 * n0 + 2 * loc * scale * n1 + scale**2 * n2], axis=1)


_CLOSED: dict[str, Callable[..., Array]] = {
    "uniform": _uniform,
    "norm": _normal,
    "truncnorm": _truncated_normal,
    "beta": _beta,
}


def _by_quadrature(law: Any, edges: Array) -> Array:
    values = law.cdf(edges)

    def below(x: Array) -> Array:
        f = law.cdf(x)
        return np.stack([f, 2 * x * f], axis=1)

    area = law_integrals(np.ones_like, below, edges)
    powers = edges[:, None] ** np.arange(3)
    table = np.diff(powers * values[:, None], axis=0)
    table[:, 1:] -= area
    return table


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(21)


def law_integrals(
    pdf: Callable[[Array], Array],
    function: Callable[[Array], Array],
    edges: Array,
    *,
    tolerance: float = 1e-12,
) -> Array:
    """Return ∫ function·pdf over each cell, `function` mapping (n,) to (n, d); shape (K, d).

    Gauss–Legendre on each cell, cells halved until halving changes a cell's integral by less than
    `tolerance` (at most 40 times), all cells at once.
    """
    edges = np.asarray(edges, dtype=float)

    def rule(a: Array, b: Array) -> Array:
        centre, half = (a + b) / 2, (b - a) / 2
        x = centre[:, None] + half[:, None] * _NODES
        values = np.asarray(function(x.ravel()), dtype=float) * np.asarray(pdf(x.ravel()))[:, None]
        return np.einsum("knd,n,k->kd", values.reshape(*x.shape, -1), _WEIGHTS, half)

    a, b = edges[:-1].copy(), edges[1:].copy()
    owner = np.arange(len(a))
    coarse = rule(a, b)
    total = np.zeros_like(coarse)
    for _ in range(40):
        middle = (a + b) / 2
        left, right = rule(a, middle), rule(middle, b)
        rough = np.abs(left + right - coarse).max(axis=1, initial=0.0) > tolerance
        np.add.at(total, owner[~rough], (left + right)[~rough])
        if not rough.any():
            return total
        a = np.concatenate([a[rough], middle[rough]])
        b = np.concatenate([middle[rough], b[rough]])
        coarse = np.concatenate([left[rough], right[rough]])
        owner = np.concatenate([owner[rough], owner[rough]])
    np.add.at(total, owner, coarse)
    return total

r"""The vertices :math:`v_0, \dots, v_n` of a regular simplex of unit vectors in n dimensions, without their matrix.

.. math:: v_i = \sqrt{1 + \tfrac1n}\, e_i - \frac{\sqrt{n+1} - 1}{n\sqrt n}\, \mathbf 1 \quad (i < n), \qquad v_n = -\tfrac1{\sqrt n} \mathbf 1 .
"""

from __future__ import annotations

import math

import numpy as np

from mechdesign.typing import Array, Indices

__all__ = ["vertex_products", "vertices", "weighted_sum"]


def _constants(n: int) -> tuple[float, float]:
    return math.sqrt(1 + 1 / n), (math.sqrt(n + 1) - 1) / (n * math.sqrt(n))


def vertex_products(z: Array) -> Array:
    """Inner products of vectors (count, n) with all vertices; shape (count, n + 1).

    Examples
    --------
    >>> vertex_products(vertices(np.arange(3), 2)).round(12).tolist()
    [[1.0, -0.5, -0.5], [-0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]]
    """
    n = z.shape[1]
    along, back = _constants(n)
    total = z.sum(axis=1, keepdims=True)
    return np.hstack([along * z - back * total, -total / math.sqrt(n)])


def vertices(index: Indices, n: int) -> Array:
    """The vertices of these numbers, shape (count, n)."""
    along, back = _constants(n)
    out = np.full((len(index), n), -back)
    last = index == n
    out[last] = -1 / math.sqrt(n)
    rows = np.flatnonzero(~last)
    out[rows, index[rows]] += along
    return out


def weighted_sum(counts: Array, n: int) -> Array:
    """The sum of the vertices, each that many times; shape (n,).

    Examples
    --------
    >>> bool(np.allclose(weighted_sum(np.array([1.0, 0.0, 2.0]), 2), vertices(np.array([0, 2, 2]), 2).sum(axis=0)))
    True
    """
    along, back = _constants(n)
    return np.asarray(along * counts[:n] - back * counts[:n].sum() - counts[n] / math.sqrt(n))

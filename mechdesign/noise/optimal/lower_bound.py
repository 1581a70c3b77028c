r"""Weak duality for additive noise, in exact arithmetic: no solver needs to be believed.

For lattice masses p with :math:`\sum_j [p_j - e^\varepsilon p_{j+s}]_+ \le \delta` at every shift s up to n, and any
numbers :math:`0 \le \psi_s(j) \le \mu_s`,

.. math:: \sum_j \hat c_j p_j \;\ge\; \min_j \Big(\hat c_j + \sum_s \psi_s(j) - e^\varepsilon \psi_s(j - s)\Big)
          - \delta \sum_s \mu_s .

With the lattice costs of `mechdesign.noise.optimal.costs.lower_costs` the right side bounds the cost of **every** (ε, δ)-DP noise from below.
The weights come from the solver, rounded to multiples of a power of two; whatever they are, the bound is true.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mechdesign.evidence.exact import exp_upper
from mechdesign.noise.optimal.costs import ExactCosts
from mechdesign.typing import Array

__all__ = ["Multiplier", "weak_duality"]


@dataclass(frozen=True, eq=False)
class Multiplier:
    """Dual weights of one signed shift: ``psi[i]`` for each cell (0 ≤ psi ≤ total), and their cap `total`."""

    shift: int
    psi: Array
    total: float


def weak_duality(
    costs: ExactCosts,
    multipliers: Sequence[Multiplier],
    *,
    shift: int,
    epsilon: float,
    delta: float,
    mirrored: bool,
) -> Fraction:
    """Return the lower bound that the multipliers prove.

    Parameters
    ----------
    costs : ExactCosts
        Lattice costs on the line of the multipliers and `shift` + 1 more points on both sides; costs further
        out must be at least those at the ends.
    multipliers : list of Multiplier
        Weights per cell of the line, for signed shifts.
    shift : int
        n.
    epsilon, delta : float
    mirrored : bool
        Whether every multiplier stands for itself and its mirror image, half each.

    Returns
    -------
    Fraction
        Not below the least of the costs, which no multipliers at all prove.
    """
    count = len(costs.numerators)
    length = count - 2 * (shift + 1)
    pad = shift + 1
    largest = max([m.psi.sum() for m in multipliers] + [m.total for m in multipliers] + [1.0])
    # sums stay below 2⁶³: where costs are huge, the unit is more than 1
    bits = 55 - math.ceil(math.log2(largest) + math.log2(max(1, len(multipliers))))
    scale = 2.0**bits
    plus = np.zeros(count, dtype=np.int64)
    minus = np.zeros(count, dtype=np.int64)
    budget = 0
    for m in multipliers:
        psi = np.maximum(np.floor(m.psi * scale), 0.0).astype(np.int64)
        plus[pad : pad + length] += psi
        minus[pad + m.shift : pad + m.shift + length] += psi
        budget += max(math.ceil(m.total * scale), int(psi.max(initial=0)))
    if mirrored:  # the average of a dual point and its mirror image
        plus, minus, scale = plus + plus[::-1], minus + minus[::-1], 2 * scale
        budget *= 2
    growth, unit = exp_upper(epsilon), 1 / Fraction(scale)
    up, down = growth.numerator, growth.denominator
    whole, part = unit.denominator * down, unit.numerator * costs.denominator
    level = min(
        c * whole + (a * down - b * up) * part
        for c, a, b in zip(costs.numerators, plus.tolist(), minus.tolist())
    )
    found = Fraction(level, whole * costs.denominator) - Fraction(delta) * budget * unit
    return max(found, Fraction(min(costs.numerators), costs.denominator))

r"""Cost of geometric tails: :math:`\sum_{k \ge 1} r^k \ell(\text{cell} \pm k\,n\beta)` for each cell of the last period."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.noise.optimal.costs import average_costs
from mechdesign.problem.losses import Loss

__all__ = ["tail_costs"]


def tail_costs(
    loss: Loss, edges: list[Fraction], n: int, decay: Fraction
) -> tuple[list[Fraction], list[Fraction]]:
    """Return, per unit of weight of each of the n leftmost and rightmost cells, the cost of its repetitions.

    Exact for the absolute and squared parts. A callable is summed until its terms are negligible, the rest
    bounded by the geometric series of its last ratio.

    Raises
    ------
    DesignError
        The loss grows faster than the tails decay: no ε-DP noise of this form has a finite cost.
    """
    period = (edges[-1] - edges[0]) / (len(edges) - 1) * n
    r = decay
    zero, one, two = r / (1 - r), r / (1 - r) ** 2, r * (1 + r) / (1 - r) ** 3
    sides = []
    for sign, bounds in ((-1, edges[: n + 1]), (1, edges[-n - 1 :])):
        out = []
        for a, b in zip(bounds[:-1], bounds[1:]):
            middle, square = (a + b) / 2, (a * a + a * b + b * b) / 3
            absolute = abs(middle) * zero + period * one
            squared = square * zero + 2 * abs(middle) * period * one + period**2 * two
            out.append(Fraction(loss.absolute) * absolute + Fraction(loss.squared) * squared)
        if loss.function is not None:
            extra = _callable_tail(loss, bounds, sign * period, r)
            out = [c + e for c, e in zip(out, extra)]
        sides.append(out)
    return sides[0], sides[1]


def _callable_tail(loss: Loss, bounds: list[Fraction], step: Fraction, decay: Fraction) -> list[Fraction]:
    only = Loss(function=loss.function)
    total = np.zeros(len(bounds) - 1)
    r, power, previous = float(decay), 1.0, None
    for k in range(1, 200_000):
        power *= r
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                costs = average_costs(only, [e + k * step for e in bounds])
        except DesignError:  # beyond what doubles hold
            break
        term = power * np.array([float(c) for c in costs])
        total += term
        if previous is not None:
            ratio = float(np.max(term / np.maximum(previous, 1e-300)))
            if ratio < 1 and np.all(term * ratio / (1 - ratio) <= 1e-13 * total):
                return [Fraction(float(t)) for t in total * (1 + 1e-12)]
        previous = term
    raise DesignError.of(
        "loss", loss.name, "grows too fast: no noise with exponential tails has a finite cost"
    )

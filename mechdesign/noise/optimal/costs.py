r"""What a convex loss costs on a lattice: from above for mechanisms, from below for bounds.

From above, a density that is constant on a cell pays the average of the loss over the cell.

From below, round any noise T at random to one of its two neighbours on the lattice βℤ, with the probabilities that
keep the mean. Rounding commutes with shifts by lattice vectors, so it is post-processing, and the lattice noise
inherits (ε, δ)-DP for them. If the piecewise linear function through lattice costs :math:`\hat c_j` lies below the
loss, then :math:`E\,\hat c(R(T)) \le E\,\ell(T)`: the lattice problem bounds every noise. For \|t\| the lattice
through 0 gives :math:`\hat c_j = |x_j|` exactly, for t² it gives :math:`x_j^2 - \beta^2/4`; both are off by O(β²),
where the minimum of the loss over a cell is off by O(β).

**Tails.** Geometric tails repeat the outermost n cells for ever; they cost
:math:`\sum_{k \ge 1} r^k \ell(\text{cell} \pm k\,n\beta)` for each cell of the last period.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.problem.losses import Loss

__all__ = ["average_costs", "check_loss", "law_cost", "lower_costs", "tail_costs"]

_PANELS = 32
"""Panels per cell of the trapezoid rule (from above) and sub-chords (from below) for a callable loss."""
_SLACK = 1e-13
"""Relative step outward for the rounding in a callable loss's own values and in their sums."""


def _fractions(values: np.ndarray) -> list[Fraction]:
    return [Fraction(float(v)) for v in values]


def check_loss(loss: Loss, points: np.ndarray) -> None:
    """Raise DesignError where a callable loss is not finite, not convex or does not grow on `points`."""
    values = np.asarray(loss(points), dtype=float)
    if values.shape != points.shape or not np.all(np.isfinite(values)):
        raise DesignError.of("loss", loss.name, "must return one finite number per error")
    gaps = np.diff(points)
    slopes = np.diff(values) / gaps
    scale = np.abs(slopes).max() + 1e-300
    bad = np.flatnonzero(np.diff(slopes) < -1e-9 * scale)
    if bad.size:
        raise DesignError.of("loss", loss.name, f"is not convex near the error {points[bad[0] + 1]:g}")
    if not slopes[0] < 0 < slopes[-1]:
        raise DesignError.of(
            "loss",
            loss.name,
            f"must grow on both sides; it does not between {points[0]:g} and {points[-1]:g}",
        )


def average_costs(loss: Loss, edges: list[Fraction]) -> list[Fraction]:
    """Return upper bounds of the average loss over the cells between consecutive `edges`.

    Exact for the absolute and squared parts; the trapezoid rule, an upper bound for a convex function, for
    the rest.
    """
    out = []
    for a, b in zip(edges[:-1], edges[1:]):
        absolute = abs(a + b) / 2 if a * b >= 0 else (a * a + b * b) / (2 * (b - a))
        squared = (a * a + a * b + b * b) / 3
        out.append(Fraction(loss.absolute) * absolute + Fraction(loss.squared) * squared)
    if loss.function is not None:
        knots = np.array([float(e) for e in edges])
        share = np.arange(_PANELS + 1) / _PANELS
        nodes = knots[:-1, None] + np.diff(knots)[:, None] * share
        nodes[np.abs(nodes) < 1e-14 * np.abs(knots).max()] = 0.0  # the kink belongs on a node
        values = np.asarray(loss.function(nodes), dtype=float)
        mean = (values[:, 1:] + values[:, :-1]).mean(axis=1) / 2
        mean += _SLACK * np.abs(values).max(axis=1)
        if not np.all(np.isfinite(mean)):
            raise DesignError.of(
                "loss", loss.name, f"must be finite; it is not on [{knots[0]:g}, {knots[-1]:g}]"
            )
        out = [c + extra for c, extra in zip(out, _fractions(mean))]
    return out


def lower_costs(loss: Loss, first: int, last: int, width: Fraction) -> list[Fraction]:
    """Return lattice costs at ``j * width``, j = first..last, whose piecewise linear function is below the loss.

    For a callable, the chord over a cell is lowered by a bound of its height over the loss: between two
    samples a convex function lies above the extensions of the neighbouring chords.
    """
    loss_squared = Fraction(loss.squared)
    out = [
        Fraction(loss.absolute) * abs(j) * width + loss_squared * ((j * width) ** 2 - width**2 / 4)
        for j in range(first, last + 1)
    ]
    if loss.function is not None:
        m = _PANELS
        # One more cell on each side, so that every cell has neighbouring chords.
        nodes = float(width) * (np.arange((first - 2) * m, (last + 2) * m + 1) / m)
        v = np.asarray(loss.function(nodes), dtype=float)
        corners = v[::m]
        share = np.arange(m + 1) / m
        chord = corners[:-1, None] * (1 - share) + corners[1:, None] * share  # (cells, m + 1)
        cells = len(corners) - 1
        index = np.arange(cells)[:, None] * m + np.arange(m)  # left node of each panel
        index = index[1:-1]
        start, end = chord[1:-1, :-1], chord[1:-1, 1:]
        from_left = np.maximum(start - v[index], end - (2 * v[index] - v[index - 1]))
        from_right = np.maximum(end - v[index + 1], start - (2 * v[index + 1] - v[index + 2]))
        height = np.maximum(np.minimum(from_left, from_right).max(axis=1), 0.0)  # cells first-1 .. last
        lowered = corners[2:-2] - np.maximum(height[:-1], height[1:])
        lowered -= (
            _SLACK * np.abs(v).reshape(-1)[: (cells) * m].reshape(cells, m).max(axis=1)[2 : 2 + len(out)]
        )
        out = [c + extra for c, extra in zip(out, _fractions(lowered))]
    return out


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


def law_cost(law: CellNoise, loss: Loss) -> Fraction:
    """Return E ℓ(T) of a law: exact for the absolute and squared parts, an upper bound for a callable."""
    width, n = Fraction(law.width), law.cells_per_shift
    edges = [Fraction(law.start) + i * width for i in range(len(law.weights) + 1)]
    total = sum((c * w for c, w in zip(average_costs(loss, edges), law.weights)), Fraction(0))
    if law.decay:
        for costs, weights in zip(tail_costs(loss, edges, n, law.decay), (law.weights[:n], law.weights[-n:])):
            total += sum((c * w for c, w in zip(costs, weights)), Fraction(0))
    if law.spike:
        half = Fraction(law.spike_width) / 2
        total += average_costs(loss, [-half, half])[0] * law.spike
    return total / law.total

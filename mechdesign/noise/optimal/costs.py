r"""What a convex loss costs on a lattice: from above for mechanisms, from below for bounds.

From above, a density that is constant on a cell pays the average of the loss over the cell.

From below, round any noise T at random to one of its two neighbours on the lattice βℤ, with the probabilities that
keep the mean. Rounding commutes with shifts by lattice vectors, so it is post-processing, and the lattice noise
inherits (ε, δ)-DP for them. If the piecewise linear function through lattice costs :math:`\hat c_j` lies below the
loss, then :math:`E\,\hat c(R(T)) \le E\,\ell(T)`: the lattice problem bounds every noise. For \|t\| the lattice
through 0 gives :math:`\hat c_j = |x_j|` exactly, for t² it gives :math:`x_j^2 - \beta^2/4`; both are off by O(β²),
where the minimum of the loss over a cell is off by O(β).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.problem.losses import Loss

__all__ = ["average_costs", "check_loss", "lower_costs"]

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

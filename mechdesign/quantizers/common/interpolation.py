r"""What rows at knots cost: the loss of the mechanism that interpolates them is affine in the rows, with coefficients from below.

.. math:: \int \sum_i p(x, i)\, \ell(B_i - x)\, dF(x) = c_0 + \sum_{k,i} c_{ki} P_{ki}, \qquad c_{ki} = \int h_k(x)\, \ell(B_i - x)\, dF(x) - \dots,

:math:`h_k` the hat function of knot k. On each cell between knots and outputs hat functions times a loss :math:`w_1 |t| + w_2 t^2` are polynomials, so
that the masses and moments of the prior there, which are enclosed (`enclosures`), are all there is; of the square :math:`B^2 - 2Bx` is charged to
rows, and :math:`x^2`, the same for all outputs, to :math:`c_0`. What doubles may lose is taken off: as probabilities are not negative, no mechanism costs
less than these coefficients say. Other convex losses are integrated by quadrature.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.common.enclosures import BITS, Cell, Enclosure, Moments
from mechdesign.typing import Array, Indices

_LOST = 32 * 2.0**-53
"""Of the size of its terms, what the roundings of one coefficient lose; each sum adds one unit."""


@dataclass(frozen=True)
class PointMasses:
    """A law on finitely many inputs, with the interface of `Moments`.

    Parameters
    ----------
    places : array
    weights : tuple of Fraction
    """

    places: Array
    weights: tuple[Fraction, ...]

    @property
    def atoms(self) -> list[tuple[Fraction, Enclosure]]:
        """Each place with bounds of its mass."""
        scaled = [weight * (1 << BITS) for weight in self.weights]
        bounds = [(weight.__floor__(), weight.__ceil__()) for weight in scaled]
        return [(Fraction(x), mass) for x, mass in zip(self.places.tolist(), bounds, strict=True)]

    def density(self, edges: Any) -> list[Cell]:
        """None: it has point masses alone."""
        return [((0, 0),) * 3] * (len(edges) - 1)


def interpolated_costs(
    bins: Array, knots: Array, loss: Loss, prior: Prior, masses: PointMasses | None = None
) -> tuple[Array, float]:
    """Return (c, c0), c of shape (knots, outputs).

    Parameters
    ----------
    bins, knots : array
    loss : Loss
    prior : Prior
    masses : PointMasses, optional
        The law of the inputs in place of the prior.
    """
    cells = np.union1d(knots, bins[(bins > knots[0]) & (bins < knots[-1])])
    if loss.function is None:
        return _from_below(bins, knots, loss, cells, Moments(prior) if masses is None else masses)
    if masses is not None:
        weights, x = np.array([float(w) for w in masses.weights]), masses.places
        return hats(knots, x).T @ (weights[:, None] * loss(bins - x[:, None])), 0.0

    def integrand(x: Array) -> Array:
        at = _segments(knots, x)
        t = ((x - knots[at]) / (knots[at + 1] - knots[at]))[:, None]
        value = loss(bins - x[:, None])
        return np.concatenate([(1 - t) * value, t * value], axis=1)

    costs, at = np.zeros((len(knots), len(bins))), _segments(knots, (cells[:-1] + cells[1:]) / 2)
    both = prior.integrals(integrand, cells)
    np.add.at(costs, at, both[:, : len(bins)])
    np.add.at(costs, at + 1, both[:, len(bins) :])
    return costs, 0.0


def _segments(knots: Array, x: Array) -> Indices:
    """The segment between knots that each input is on."""
    return np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)


def hats(knots: Array, x: Array) -> Array:
    """Weights of the knots in the interpolated rows at x, shape (len(x), len(knots))."""
    at, rows, out = _segments(knots, x), np.arange(len(x)), np.zeros((len(x), len(knots)))
    t = (x - knots[at]) / (knots[at + 1] - knots[at])
    out[rows, at], out[rows, at + 1] = 1 - t, t
    return out


def _bounds(cells: list[Cell]) -> tuple[Array, Array]:
    """Masses and moments in doubles from below and above, each of shape (cells, 3, 1)."""
    held = np.array([[[float(n) for n in pair] for pair in cell] for cell in cells]).reshape(-1, 3, 2)
    held = np.nextafter(np.maximum(np.ldexp(held, -BITS), 0.0), [-np.inf, np.inf])
    return np.maximum(held[..., :1], 0.0), held[..., 1:]


def _from_below(
    bins: Array, knots: Array, loss: Loss, cells: Array, moments: Moments | PointMasses
) -> tuple[Array, float]:
    """Coefficients of a polynomial loss; a point mass is a cell of width 0."""
    points = moments.atoms
    places = np.array([float(x) for x, _ in points])
    start, stop = np.append(cells[:-1], places), np.append(cells[1:], places)
    low, high = _bounds([*moments.density(cells.tolist()), *((mass, (0, 0), (0, 0)) for _, mass in points)])
    k, centre = _segments(knots, (start + stop) / 2), knots[0] / 2 + knots[-1] / 2
    b, u, width = bins - centre, (start - centre)[:, None], (stop - start)[:, None]
    sign = np.where(bins >= stop[:, None], 1.0, -1.0)  # of output less input on the cell
    first, second = loss.absolute, loss.squared
    # t from 0 to 1 on a cell: its loss is value + rise t, and hat functions are level + slope t
    value, value_size = first * sign * (b - u) + second * (b * b - 2 * b * u), first * (abs(b) + abs(u))
    value_size = value_size + second * (b * b + 2 * abs(b * u))
    rise, rise_size = -width * (first * sign + 2 * second * b), width * (first + 2 * second * abs(b))
    length, costs = (knots[k + 1] - knots[k])[:, None], np.zeros((len(knots), len(bins)))
    share = _LOST + len(k) * 2.0**-53
    for side, level in ((0, knots[k + 1] - start), (1, start - knots[k])):
        level, slope = level[:, None] / length, (2 * side - 1) * width / length
        parts = np.stack([level * value, level * rise + slope * value, slope * rise], axis=1)
        size = np.stack(
            [level * value_size, level * rise_size + abs(slope) * value_size, abs(slope) * rise_size], axis=1
        )
        found = (parts * np.where(parts > 0, low, high) - share * size * high).sum(axis=1)
        np.add.at(costs, k + side, found)
    squares = second * np.concatenate([u * u, 2 * u * width, width * width], axis=1)[..., None]
    constant = (squares * np.where(squares > 0, low, high) - share * abs(squares) * high).sum()
    return costs, float(constant)

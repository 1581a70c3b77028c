r"""Selection mechanisms that share their bins, for searches that try thousands: privacy loss and expected loss, nothing else.

With fixed bins the knots, the prior's moments between them and the costs of every probability are fixed too: the expected loss is
linear in the tables, :math:`\sum_{k,i} s_{k,i} S_{k,i} + e_{k,i} E_{k,i}`, and a member costs two products.
"""

from __future__ import annotations

import numpy as np

from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.mechanism.selection import (
    Selection,
    SelectionPlaces,
    check_bins,
    check_range,
    summing_to_one,
)
from mechdesign.quantizers.mechanism.table import loss_from_floats
from mechdesign.typing import Array

__all__ = ["SelectionLine"]


class SelectionLine:
    """Evaluates selection mechanisms with the same bins.

    Parameters
    ----------
    bins : array, shape (m,)
    input_range : (float, float)
    prior : Prior
    loss : Loss

    Examples
    --------
    >>> from scipy import stats
    >>> from mechdesign.quantizers.mechanism.selection import rqm_family
    >>> line = SelectionLine([-2.7, -0.9, 0.9, 2.7], (-1, 1), Prior.of(stats.uniform(-1, 2)), Loss.of("absolute"))
    >>> family = rqm_family(4, 0.22)
    >>> [round(v, 5) for v in line.losses(family, family)]
    [0.99877, 1.99734]
    """

    def __init__(self, bins: Array, input_range: tuple[float, float], prior: Prior, loss: Loss) -> None:
        self.bins = check_bins(bins)
        self.input_range = check_range(input_range, self.bins)
        self._places = SelectionPlaces(self.bins, self.input_range)
        self._prior, self._loss = prior, loss
        self._costs: tuple[Array, Array] | None = None

    def losses(self, left: Array, right: Array, *, budget: float = np.inf) -> tuple[float, float]:
        """Privacy loss and expected loss of the mechanism of two families; the second is ∞ where the first is over budget."""
        same = right is left
        left = summing_to_one(left)
        right = left if same else summing_to_one(right)
        starts, ends = self._places.tables(left, right)
        low, high = np.minimum(starts, ends).min(axis=0), np.maximum(starts, ends).max(axis=0)
        privacy = loss_from_floats(low, high)
        if not privacy <= budget:
            return privacy, np.inf
        if not self._loss.polynomial:
            return privacy, self.mechanism(left, right).expected_loss(self._prior, self._loss)
        if self._costs is None:
            self._costs = self._linear()
        return privacy, float(np.sum(starts * self._costs[0]) + np.sum(ends * self._costs[1]))

    def mechanism(self, left: Array, right: Array) -> Quantizer:
        """The mechanism itself."""
        return Quantizer.of_selection(Selection(self.bins, left, right), self.input_range)

    def _linear(self) -> tuple[Array, Array]:
        """What a unit of probability costs at the start of each segment, and at its end."""
        lower, upper = self.input_range
        centre = lower / 2 + upper / 2
        knots, bins, prior = self._places.knots, self.bins, self._prior
        if abs(centre) > 2 * (upper - lower):  # about zero, where moments keep their digits
            knots, bins, prior = knots - centre, bins - centre, prior.standardised(centre, 1.0)
        m0, m1, m2 = prior.moments(knots).T
        left, width = knots[:-1], np.diff(knots)[:, None]
        # Moments of h, the distance from the left knot.
        h1, h2 = (m1 - left * m0)[:, None], (m2 - 2 * left * m1 + left * left * m0)[:, None]
        d, h0 = bins - left[:, None], m0[:, None]
        sign = np.where(bins >= knots[1:, None], 1.0, -1.0)
        first, second = self._loss.absolute * sign, self._loss.squared
        level = first * (d * h0 - h1) + second * (d * d * h0 - 2 * d * h1 + h2)
        slope = first * (d * h1 - h2) + second * (d * d * h1 - 2 * d * h2)
        return level - slope / width, slope / width

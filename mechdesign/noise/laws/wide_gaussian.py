r"""The discrete Gaussian where it is wide: tails and privacy loss without a table of its probabilities.

:math:`P(k) \propto e^{-k^2/2\sigma^2}` needs 77 σ numbers to be listed as far as doubles see it. From σ = 10⁴ on

- its normalisation is :math:`\sigma\sqrt{2\pi}`, and its moments are the normal's, to every digit (Poisson summation: what
  is left out is :math:`e^{-2\pi^2\sigma^2}`);
- its tail is the integral and two terms of Euler and Maclaurin: with :math:`z = (k + \frac12)/\sigma`,

  .. math:: P(K > k) = \bar\Phi(z) - \frac{\varphi(z)}{\sigma^2}\Big(\frac{z}{24} + \frac{7(3z - z^3)}{5760\,\sigma^2}\Big);

- its privacy loss, :math:`v_k = \Delta(\Delta + 2k)/2\sigma^2`, is told of cells of r neighbours. A cell that starts at e, with
  losses from a to a + X and probability P, is put on its two ends from above, the share s on the higher one, and on one value
  from below. With the chord of :math:`e^{-v}` both are safe when s is no less than the mean place of the cell, plus X/8, and the
  value no more than that place less X²/8. Within a cell the probabilities fall by ratios between :math:`e^{-(e + 1/2)/\sigma^2}`
  and :math:`e^{-(e + r - 1/2)/\sigma^2}`, and the mean place of a geometric law on r points with rate c is
  :math:`\frac12 - c\frac{r + 1}{12}(1 - \theta)`, 0 ≤ θ ≤ (cr)²/10.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from mechdesign.accounting.law import AtomicLoss
from mechdesign.accounting.loss import cell_masses
from mechdesign.typing import Array

__all__ = ["WIDE", "mean_absolute", "quantile", "upper_tail", "wide_loss"]

WIDE = 1e4
"""From this σ on."""
_CELLS = 2**17
_REACH = 38.5
"""As far out, in σ, as doubles see a tail."""


def _tail(sigma: float, x: Array) -> Array:
    """P(K > x) at x = k + 1/2 ≥ 0."""
    z = x / sigma
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    correction = z / 24 + 7 * (3 * z - z**3) / (5760 * sigma**2)
    return np.maximum(special.ndtr(-z) - density / sigma**2 * correction, 0.0)


def upper_tail(sigma: float, k: Array) -> Array:
    """P(K > k), relatively accurate above 0.

    Examples
    --------
    >>> float(upper_tail(1e5, np.array(-1.0)) + upper_tail(1e5, np.array(0.0)))
    1.0
    """
    x = np.floor(k) + 0.5
    far = _tail(sigma, np.abs(x))
    return np.where(x > 0, far, 1 - far)


def quantile(sigma: float, s: Array) -> Array:
    """The least k with P(K > k) ≤ s."""
    k = np.clip(
        np.ceil(-sigma * special.ndtri(s) - 0.5), -_REACH * sigma, _REACH * sigma
    )  # right but for one that is nearly at a step
    k = np.ceil(k)
    k = np.where(upper_tail(sigma, k) > s, k + 1, k)
    return np.where(upper_tail(sigma, k - 1) <= s, k - 1, k)


def mean_absolute(sigma: float) -> float:
    """E|K|."""
    return 2 * (sigma - 1 / (12 * sigma) - 1 / (240 * sigma**3)) / math.sqrt(2 * math.pi)


def wide_loss(sigma: float, shift: int) -> AtomicLoss:
    """The privacy loss at distance `shift`, from below, and from above as its `AtomicLoss.above`.

    Examples
    --------
    >>> loss = wide_loss(1e5, 1)
    >>> low, high = loss.delta(1e-5, below=True), loss.delta(1e-5)
    >>> bool(low < high < low * (1 + 1e-6))
    True
    """
    r = math.ceil(2 * _REACH * sigma / _CELLS)
    half = math.ceil(_REACH * sigma / r)
    start = r * np.arange(-half, half, dtype=float)
    mass, error = cell_masses(lambda x: _tail(sigma, x), np.append(start, start[-1] + r) - 0.5)
    lowest = shift * (shift + 2 * start) / (2 * sigma**2)
    span = shift * (r - 1) / sigma**2  # of the losses in a cell
    rounding = 4e-16 * (np.abs(lowest) + span)

    def place(rate: Array) -> tuple[Array, Array]:
        return (r + 1) / 12 * rate, (r * rate) ** 2 / 10

    first, last = (start + 0.5) / sigma**2, (start + r - 0.5) / sigma**2
    middle, short = place(first)
    highest_mean = 0.5 - middle * np.where(first > 0, 1 - short, 1.0)
    middle, short = place(last)
    lowest_mean = 0.5 - middle * np.where(last > 0, 1.0, 1 - short)
    share = np.clip(highest_mean + span / 8 * (1 + span), 0.0, 1.0)
    most = mass + error
    above = AtomicLoss(
        np.concatenate([lowest + rounding, lowest + span + rounding]),
        np.concatenate([most * (1 - share), most * share]) * (1 + 1e-15),
    )
    value = lowest + span * np.clip(lowest_mean, 0.0, 1.0) - span**2 / 8 - rounding
    return AtomicLoss(value, np.maximum(mass - error, 0.0), 0.0, above)

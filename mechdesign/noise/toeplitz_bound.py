r"""A lower bound on the error of every Toeplitz strategy for counts of which one changes, in integers for any n. [new]

Let c be a Toeplitz strategy's coefficients, b those of :math:`1/((1 - z)\,c(z))`, and w = 1 for the largest error
(:math:`\sum w b^2`, at the last step), w_t = n − t for the total. As :math:`\sum_{i + j = t} c_i b_j = 1`, for every
:math:`y \ge 0` and the Hankel matrix :math:`H = (y_{i + j})`, 0 from i + j = n on,

.. math:: \sum_t y_t = c^\top H b \le |c|\, |W^{1/2} b|\, \lVert H W^{-1/2} \rVert, \qquad
          |c|^2 \sum_t w_t b_t^2 \ge \frac{(\sum_t y_t)^2}{\lVert H W^{-1/2} \rVert^2},

and :math:`\lVert H W^{-1/2} \rVert^2 \le \max_i (H H x)_i / (w_i x_i)` for every x > 0 (Collatz and Wielandt). [new]

*Largest error.* With h the coefficients of :math:`1/\sqrt{1 - z}` and Y(z) = h_{n-1} + h_{n-2} z + … over h(z) up to
z^(n−1), reversed, Hh = h; and y > 0, as the coefficients of :math:`\sqrt{1 - z}` after the first are negative and at
least −1 in sum, and h falls. So no Toeplitz strategy costs less than :math:`(\sum h_t^2)^2`, which c = b = h attains.

*Total error.* The best y is nearly :math:`g(t/n)/(2t + 1)`, one g for all n, as :math:`h_t h_{n - t}` is nearly x; x
becomes better by power iteration. Within .02% of the best strategy found at 1,000 and 4,096 steps, .2% at a million.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from flint import fmpz_poly
from numpy.polynomial import chebyshev
from scipy import fft

from mechdesign.errors import DesignError
from mechdesign.evidence.exact import round_down
from mechdesign.typing import Array

_SHAPE = (0.0, -0.18898, -0.35979, -0.18856, -0.12155, -0.06748, -0.02846)
"""Chebyshev coefficients of log g, fitted at 2,048 steps: any others prove a bound, these a good one."""
MOST_BOUNDED = 2_000_000
"""Longest stream whose total error gets a lower bound: the integers take a kilobyte a step."""


@lru_cache(maxsize=64)
def least_toeplitz(n: int, *, largest: bool) -> float:
    """Return a lower bound, rounded down, on the error of every Toeplitz strategy at μ = 1 and a change of 1.

    Examples
    --------
    >>> round(least_toeplitz(1000, largest=True), 6)
    10.660245
    >>> 9296 < least_toeplitz(1000, largest=False) < 9297
    True
    """
    if not largest and n > MOST_BOUNDED:
        raise DesignError.of(
            "size", n, f"must be at most {MOST_BOUNDED} steps for a lower bound of the total"
        )
    return round_down(_least_largest(n) if largest else _least_total(n))


def _least_largest(n: int) -> Fraction:
    unit, term, total = 1 << 128, 1 << 128, 0
    for t in range(1, n + 1):
        total += term
        term = term * (2 * t - 1) ** 2 // (2 * t) ** 2
    return Fraction(total, unit) ** 2


def _least_total(n: int) -> Fraction:
    t, weights = np.arange(n), np.arange(n, 0, -1.0)
    y = np.exp(chebyshev.chebval((2 * t + 1) / n - 1, _SHAPE)) / (2 * t + 1)
    root = np.concatenate([[1.0], np.cumprod(1 - 0.5 / np.arange(1, n + 1))])
    x, hankel = root[:n] * root[n - t], _hankel(y)
    for _ in range(10):  # any x is valid; later ones are hardly better
        x = np.maximum(hankel(hankel(x)) / weights, 1e-9 * x)
        x /= x[0]
    held, weighed = (_integers(values) for values in (y, x))
    image = _exact_hankel(held, _exact_hankel(held, weighed))
    ratios = np.array([moved / old for moved, old in zip(image, weighed)]) / weights
    near = np.flatnonzero(ratios >= ratios.max() * (1 - 1e-12)).tolist()
    return Fraction(sum(held)) ** 2 / max(Fraction(image[i], (n - i) * weighed[i]) for i in near)


def _integers(values: Array) -> list[int]:
    """Return positive integers nearly in proportion to the values; any such vector is valid."""
    whole = np.ldexp(values / values.max(), 48).astype(np.int64)
    return [max(1, int(v)) for v in whole.tolist()]


def _hankel(y: Array) -> Callable[[Array], Array]:
    """Return the map from x to H x in doubles: the sums of y_(i + j) x_j."""
    n = len(y)
    size = fft.next_fast_len(2 * n, real=True)
    transformed = fft.rfft(y[::-1], size)
    return lambda x: np.asarray(fft.irfft(transformed * fft.rfft(x, size), size)[:n][::-1])


def _exact_hankel(y: list[int], x: list[int]) -> list[int]:
    """Return H x, in integers."""
    product = fmpz_poly(y[::-1]) * fmpz_poly(x)
    return [int(product[k]) for k in range(len(y) - 1, -1, -1)]

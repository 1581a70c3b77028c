r"""Toeplitz strategies of a few buffers: their errors in closed form, and the least of them.

.. math:: c(z) = \prod_i \frac{1 - e^{-y_i} z}{1 - e^{-x_i} z} = 1 + \sum_i \frac{\omega_i z}{1 - e^{-x_i} z}, \qquad x_1 < y_1 < x_2 < \dots

Interlaced so, all :math:`\omega_i > 0` and c falls: of steps at least b apart 0, b, 2b, … consume most. Answers are made by :math:`b(z) = 1/((1 - z)\,c(z))
= \sum_i \beta_i/(1 - e^{-y_i} z)`, :math:`y_0 = 0`, and all sums of both are geometric. The buffers are those of Dvijotham, McMahan, Pillutla,
Steinke and Thakurta (2024), *Efficient and near-optimal noise generation for streaming differential privacy*.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize

from mechdesign.solvers import Deadline
from mechdesign.typing import Array

Terms = npt.NDArray[Any]
"""Real, or complex for derivatives by an imaginary step; leading axes are of several strategies."""
_SLOWEST = 0.01
"""n times the least x: slower buffers do the same in n steps, and hold more rounding."""
_STARTS = ((3.0, 3.0), (10.0, 1.5))
"""Least x times n and greatest x. Two of four that were tried: in 14 questions either ends up to .8% above the other, the two others never below both by 1e-8."""
_NEAR = 0.03
"""n times s below which a sum is expanded in s."""


def geometric(s: Terms, n: int) -> Terms:
    """Sum of e^(−st) over t < n."""
    held = np.where(s == 0, 1.0, s)
    return np.where(s == 0, n, np.expm1(-n * held) / np.expm1(-held))


def triangular(s: Terms, n: int) -> Terms:
    """Sum of (n − t) e^(−st) over t < n."""
    near = np.abs(n * s) < _NEAR
    held = np.where(near, 1.0, s)
    far = (n - np.exp(-held) * geometric(held, n)) / -np.expm1(-held)
    q = float(n)
    # sums of (n − t) t^p / p! for p = 0, …, 5
    moments = (
        q * (q + 1) / 2,
        q * (q**2 - 1) / 6,
        q**2 * (q**2 - 1) / 24,
        q * (q**2 - 1) * (3 * q**2 - 2) / 360,
        q**2 * (q**2 - 1) * (2 * q**2 - 3) / 1440,
        q**7 / 5040,
    )
    series = sum(moment * (-s) ** p for p, moment in enumerate(moments))
    return np.where(near, series, far)


def _differences(a: Terms, b: Terms) -> Terms:
    """The matrix of e^(−a_i) − e^(−b_j)."""
    a, b = a[..., :, None], b[..., None, :]
    return np.asarray(np.exp(-b) * np.expm1(b - a))


def residues(zeros: Terms, poles: Terms) -> Terms:
    """Residues at the poles of a product over both, given by their logarithms."""
    apart = _differences(poles, poles)
    apart[..., range(poles.shape[-1]), range(poles.shape[-1])] = 1.0
    return np.asarray(_differences(poles, zeros).prod(axis=-1) / apart.prod(axis=-1))


def decoder(x: Terms, y: Terms) -> tuple[Terms, Terms]:
    """β, and the logarithms 0, y."""
    whole = np.concatenate([np.zeros_like(y[..., :1]), y], axis=-1)
    return residues(x, whole), whole


def _quadratic(weights: Terms, matrix: Terms) -> Terms:
    return np.asarray(np.einsum("...i,...ij,...j->...", weights, matrix, weights))


def consumed(x: Terms, weights: Terms, n: int, times: int = 1, apart: int = 1) -> Terms:
    """The squared length of the sum of columns 0, b, 2b, …: what one person consumes, at noise of deviation 1."""
    pairs = x[..., :, None] + x[..., None, :]
    # states after each but the last time, and after that
    states = np.cumsum(np.exp(-apart * x[..., None, :] * np.arange(times)[:, None]), axis=-2)
    early, last = states[..., :-1, :], states[..., -1, :]
    first = 1 + np.einsum("...i,...ki->...k", weights * np.exp(-(apart - 1) * x), early)
    between = np.einsum("...ki,...kj->...ij", early, early) * geometric(pairs, apart - 1)
    after = last[..., :, None] * last[..., None, :] * geometric(pairs, n - (times - 1) * apart - 1)
    return np.asarray(1 + (first**2).sum(axis=-1) + _quadratic(weights, between + after))


def error(x: Terms, y: Terms, n: int, *, largest: bool) -> Terms:
    """The largest variance of an answer, or their sum, at noise of deviation 1."""
    beta, rates = decoder(x, y)
    sums = geometric if largest else triangular
    return _quadratic(beta, sums(rates[..., :, None] + rates[..., None, :], n))


def best(
    buffers: int, n: int, *, largest: bool, times: int, apart: int, deadline: Deadline
) -> tuple[Array, Array]:
    """Logarithms x and y of the strategy of least error, by descent from several spacings."""

    def roots(free: Terms) -> tuple[Terms, Terms]:
        rates = _SLOWEST / n + np.exp(free[..., :1] + _gaps(free))
        return rates[..., 0::2], rates[..., 1::2]

    def cost(free: Terms) -> Terms:
        x, y = roots(free)
        both = consumed(x, residues(y, x), n, times, apart) * error(x, y, n, largest=largest)
        return np.asarray(np.log(both))

    def descended(free: Array) -> tuple[float, Array]:
        moved = cost(free + 1e-20j * np.eye(2 * buffers))
        sound = bool(np.isfinite(moved).all())
        return (float(moved[0].real), moved.imag * 1e20) if sound else (1e3, np.zeros(2 * buffers))

    def until(_: Array) -> None:
        if deadline.passed:
            raise StopIteration

    found = []
    for low, high in _STARTS:
        gap = np.log(max(high * n / low, 4.0)) / (2 * buffers)
        start = np.append(np.log(low / n), np.full(2 * buffers - 1, np.log(gap)))
        with np.errstate(all="ignore"):
            found.append(
                optimize.minimize(
                    descended,
                    start,
                    jac=True,
                    method="BFGS",
                    callback=until,
                    options={"gtol": 3e-7, "maxiter": 400},
                )
            )
    x, y = roots(min(found, key=lambda each: float(each.fun)).x)
    return np.asarray(x, dtype=float), np.asarray(y, dtype=float)


def _gaps(free: Terms) -> Terms:
    """Running sums of the gaps, of which the logarithms are given."""
    return np.concatenate([np.zeros_like(free[..., :1]), np.cumsum(np.exp(free[..., 1:]), axis=-1)], axis=-1)

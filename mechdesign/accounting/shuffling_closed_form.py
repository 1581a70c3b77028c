"""The closed form of amplification by shuffling under metric privacy, with its proof and its condition."""

from __future__ import annotations

import math

import numpy as np

from mechdesign.accounting.clones import geometric

__all__ = ["closed_form_delta", "closed_form_gamma", "closed_form_step"]


def _log_inverse(count: float, delta: float) -> float:
    """The logarithm of count/δ, where that itself overflows too."""
    quotient = count / delta
    return math.log(quotient) if math.isfinite(quotient) else math.log(count) - math.log(delta)


def closed_form_gamma(item_epsilon: float, total: int, delta: float) -> float:
    r""":math:`\gamma = 8\sqrt{e^{\varepsilon_0}\log(4/\delta)/N} + 8e^{\varepsilon_0}/N`."""
    spread = math.exp(item_epsilon) / total
    return 8 * math.sqrt(spread * _log_inverse(4, delta)) + 8 * spread


def closed_form_step(item_epsilon: float, t: float, total: int, delta: float) -> float | None:
    r"""Theorem 4.3 for one position moved by t (of diameter 1); None where its condition fails.

    :math:`g(t) = \log(1 + \frac{a-1}{a+1}\gamma)` for :math:`\varepsilon_0 \le \log(N/(16\log(2/\delta)))`.

    *Proof.* With Z = (X + Y)/2 and p = a/(1+a), q = 1 − p the pair is (p−q)X + 2qZ against (p−q)Y + 2qZ. By
    advanced joint convexity (Balle, Barthe and Gaboardi 2018) its divergence at 1 + (p−q)γ is at most (p−q) times a
    mean of :math:`D_{1+\gamma}(X\|Z) \le \frac12 D_{1+\gamma}(X\|Y)` and :math:`D_{1+\gamma}(X\|Y)`, so
    :math:`h(1+\gamma) \le \delta` is enough. Let :math:`M = Ne^{-\varepsilon_0} \ge 16L`, L = log(2/δ). By Chernoff
    :math:`C \ge \frac12(N-1)e^{-\varepsilon_0}`, hence C + 1 ≥ M/2, but for a probability
    :math:`e^{-(N-1)e^{-\varepsilon_0}/8} \le \delta/2`. For such c, :math:`h_c \le P[A + 1 > (c+1)u/(1+u)]`, which
    by Hoeffding is at most δ/2 if :math:`\frac{\gamma}{2+\gamma} \ge \frac{1+\sqrt{2cL}}{c+1}`; the right side is at
    most r = 2/M + 2√(L/M). The left side grows with γ, and γ ≥ 4r gives 2r/(1+2r) ≥ r when r ≤ ½. The rest, M
    within a few units of 16L, is where log(4/δ) in place of L is needed; it holds for δ ≤ 0.1 (checked on a grid in
    the tests), larger δ are Feldman et al.'s Lemma A.1. ∎

    It is concave in t with slope :math:`\alpha_0\gamma/2` at 0 (paper, Appendix B.3).
    """
    if item_epsilon > math.log(total / (16 * _log_inverse(2, delta))):
        return None
    gamma = closed_form_gamma(item_epsilon, total, delta)
    return math.log1p(math.tanh(item_epsilon * t / 2) * gamma) * (1 + 1e-14)


def closed_form_delta(item_epsilon: float, t: float, k: int, total: int, delta: float) -> float | None:
    """The per-step δ′ with δ′ Σ_{j<k} e^{jg} ≤ δ; None where the condition fails for it."""

    if delta / k == 0:
        return None  # no double is that small a step

    def spent(log_step: float) -> float:
        step = math.exp(log_step)
        g = closed_form_step(item_epsilon, t, total, step)
        return math.inf if g is None else step * geometric(g, k)

    high = math.log(delta / k)
    if k == 1:
        return delta if math.isfinite(spent(high)) else None
    # The condition on ε₀ limits δ′ from below. What is spent need not be monotone in δ′ (a smaller δ′ has a larger
    # g): take the largest of a grid that fits, then refine; the value returned was evaluated.
    low = max(math.log(2) - total * math.exp(-item_epsilon) / 16 + 1e-9, -690.0)
    if low > high:
        return None
    fits = [x for x in np.linspace(high, low, 65) if spent(x) <= delta]
    if not fits:
        return None
    low, high = float(fits[0]), min(high, float(fits[0]) + (high - low) / 64)
    while high - low > 1e-12 * abs(high):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if spent(middle) <= delta else (low, middle)
    return math.exp(low)

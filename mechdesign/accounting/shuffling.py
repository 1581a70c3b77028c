r"""Amplification by shuffling under metric privacy: how little a shuffled multiset tells of one moved item.

**The question.** N items go, one by one, through a channel R with item-level α₀-d-DP, and the outputs are
released without their order. Two inputs :math:`x, x'` differ in k positions, moved by
:math:`\tau = \sum_i d(x_i, x'_i)` in all. How far apart, in hockey-stick divergence, are the two releases?

**One position moved by t** (Feldman, McMillan and Talwar 2021, with the distance carried along). Write
:math:`a = e^{\alpha_0 t}`, :math:`P = R(x_1), Q = R(x'_1)`. As :math:`P \le aQ` and :math:`Q \le aP`,
:math:`U = (aP - Q)/(a - 1)` and :math:`V = (aQ - P)/(a - 1)` are probability laws with

.. math:: P = \tfrac{a}{1+a} U + \tfrac{1}{1+a} V, \qquad Q = \tfrac{1}{1+a} U + \tfrac{a}{1+a} V,
          \qquad P + Q = U + V .

Every other item has :math:`R(x_i) \ge e^{-\varepsilon_0} \max(P, Q) \ge e^{-\varepsilon_0}(U + V)/2`, where
:math:`\varepsilon_0 = \alpha_0 \cdot` diameter: with probability :math:`e^{-\varepsilon_0}` it is a *clone*, U or
V with a fair coin. So the release is one post-processing, the same for both inputs, of the numbers of U's and
V's: with :math:`C \sim \mathrm{Bin}(N-1, e^{-\varepsilon_0})`, :math:`A \sim \mathrm{Bin}(C, 1/2)` and
:math:`X = (A + 1, C - A)`, :math:`Y = (A, C - A + 1)`, of

.. math:: \tfrac{a}{1+a} X + \tfrac{1}{1+a} Y \quad\text{against}\quad \tfrac{1}{1+a} X + \tfrac{a}{1+a} Y .

For :math:`u \ge 1` put :math:`h(u) = \sum [X - uY]_+` and :math:`v = (ua + 1)/(u + a)`, that is
:math:`\tanh(\tfrac12\log v) = \tanh(\tfrac12\log u)\tanh(\tfrac12\alpha_0 t)`. Collecting X and Y,

.. math:: \delta(\log v) = \frac{a - 1}{a + u}\, h(u) \qquad\text{exactly.}                           \tag{1}

Given C = c the counts' ratio is :math:`X/Y = b/(c + 1 - b)`, so :math:`h_c(u) = P[A = b^* - 1] - (u - 1) P[A \ge
b^*]` with :math:`b^* = \lfloor u(c+1)/(1+u) \rfloor + 1`: binomial tails only. One more clone is a fair coin added
to the counts, so :math:`h_c` falls with c: blocks of c are summed at their lowest c, and the tails of C likewise.

**k positions.** Change them one at a time. For a fixed u the step that moves :math:`t_i` costs
:math:`\varepsilon_i = f_u(t_i)`, :math:`f_u(t) = 2\,\mathrm{artanh}(\tanh(\tfrac12\log u)\tanh(\tfrac12\alpha_0 t))`,
which is concave, so :math:`\sum \varepsilon_i \le E = k f_u(\tau/k)`; and :math:`\delta_i = w(t_i) h(u)` with
:math:`w(t) = (a-1)/(a+u)`. By :math:`D_{\varepsilon+\varepsilon'}(P\|R) \le D_\varepsilon(P\|Q) + e^{\varepsilon}
D_{\varepsilon'}(Q\|R)` the whole change has :math:`(E, \sum_j e^{\varepsilon_1 + \dots + \varepsilon_{j-1}}\delta_j)`.
The order is ours: with the :math:`\varepsilon_i` ascending, the sum of the first j is at most :math:`jE/k`, hence

.. math:: \delta \le h(u) \min\Bigl\{ w_{\max} \sum_{j<k} e^{jE/k},\; e^{E}\, \lambda\tau \Bigr\},      \tag{2}

with :math:`w_{\max} = w(\min(\tau, D))` and :math:`\lambda \ge w(t)/t`. Every u gives a valid pair; the smallest u
that fits δ gives the least ε, and u = ∞ is plain composition, ε = α₀τ with δ = 0.

**Closed form** (Theorem 4.3 of the user-level paper): :math:`u = 1 + \gamma`; see `closed_form_step`.

Everything rounds up: relative margins cover the rounding of the binomial functions, truncated mass goes into δ,
and what is returned was evaluated at the returned point.

References: J. Imola, A. Roy Chowdhury, K. Chaudhuri, "Metric differential privacy at the user-level via the earth
mover's distance", 2024, Theorems 4.3 and 4.4; V. Feldman, A. McMillan, K. Talwar, "Hiding among the clones", 2021.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from mechdesign.accounting.arguments import ACCOUNTING, beyond_condition, excess, item_level, shuffled
from mechdesign.accounting.clones import (
    Clones,
    Failure,
    geometric,
    lower_level,
    smallest_level,
    step_epsilon,
)
from mechdesign.accounting.shuffling_closed_form import closed_form_delta, closed_form_gamma, closed_form_step
from mechdesign.errors import DesignError
from mechdesign.evidence.rounding import safe_root
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import non_negative, number, positive, whole
from mechdesign.solvers.deadline import Deadline

__all__ = [
    "ACCOUNTING",
    "Amplification",
    "amplification",
    "calibrate_item_alpha",
    "clone_divergence",
    "shuffled_alpha",
]

MOST = 10**15  # items: their binomial tails are still SciPy's
_LEAST = 1e-300  # of what one item has: a search below it ends in numbers of few digits, or in 0
CELLS_OF_T = tuple(0.8**i for i in range(16))  # EMD in diameters: where `shuffled_alpha` takes a new level


@serializable("amplification")
@dataclass(frozen=True)
class Amplification:
    """What shuffling leaves of a change: the release is (`epsilon`, `delta`)-indistinguishable.

    Attributes
    ----------
    epsilon, delta : float
        For the whole change, all positions together.
    accounting : {"numerical", "closed-form", "composition"}
        Which bound gave the numbers; ``"composition"`` is ε = α₀τ, δ = 0, where shuffling does not help.
    divergence : float
        log u, the level at which the clone divergence was taken; infinite for composition.
    """

    epsilon: float
    delta: float
    accounting: str
    divergence: float = math.inf

    def __float__(self) -> float:
        return self.epsilon


def clone_divergence(u: float, *, total: int, item_epsilon: float) -> float:
    r"""Upper bound on the hockey-stick divergence :math:`h(u) = D_u(X \| Y)` of the clone reduction.

    Parameters
    ----------
    u : float
        Level, at least 1 (it is :math:`e^{\varepsilon}`).
    total : int
        Number N of shuffled items.
    item_epsilon : float
        ε₀: largest privacy loss of the channel between any two items.

    Examples
    --------
    >>> print(f"{clone_divergence(1.5, total=1000, item_epsilon=1.0):.3e}")
    1.896e-06
    """
    if not (level := number("u", u)) >= 1:
        raise DesignError.of("u", u, "must be at least 1")
    return Clones.build(whole("total", total, 1), non_negative("item_epsilon", item_epsilon)).divergence(
        level
    )


def amplification(
    item_alpha: float,
    *,
    moved: float,
    positions: int = 1,
    total: int,
    delta: float,
    accounting: str = "numerical",
    diameter: float = 1.0,
    item_epsilon: float | None = None,
) -> Amplification:
    r"""Privacy loss of a shuffled release when `positions` of its `total` items move by `moved` in all.

    Parameters
    ----------
    item_alpha : float
        α₀ of the channel, per unit of distance: :math:`R(y|x) \le e^{\alpha_0 d(x,x')} R(y|x')`.
    moved : float
        τ = Σ d(x_i, x'_i), in the unit of distance; at most positions × diameter.
    positions, total : int
        k items of N differ.
    delta : float
        δ > 0 of the answer as a whole.
    accounting : {"numerical", "closed-form", "composition"}
        Equation (2) of the module, Theorem 4.3 of the paper, or α₀τ.
    diameter : float
        Largest distance of the space; 1 for a normalised one.
    item_epsilon : float, optional
        Largest loss of the channel between any two items, when it is known to be below α₀ · diameter (numerical
        accounting only).

    Returns
    -------
    Amplification

    Raises
    ------
    DesignError
        δ = 0 (no shuffling bound has it), or α₀ above the closed form's condition, with what to do instead.

    Examples
    --------
    >>> result = amplification(1.0, moved=0.1, total=1000, delta=1e-6)
    >>> closed = amplification(1.0, moved=0.1, total=1000, delta=1e-6, accounting="closed-form")
    >>> print(f"{result.epsilon:.4f} {closed.epsilon:.4f}")
    0.0166 0.0791
    """
    alpha = item_level(item_alpha)
    diameter = positive("diameter", diameter)
    tau = positive("moved", moved)
    k, n = whole("positions", positions, 1), whole("total", total, 1, MOST)
    accounting, delta, loss = shuffled(accounting, delta, alpha * diameter, item_epsilon)
    if k > n:
        raise DesignError.of("positions", k, f"must not exceed total = {n}")
    if tau > k * diameter * (1 + 1e-12):
        raise DesignError.of("moved", moved, f"must not exceed positions × diameter = {k * diameter}")
    plain = Amplification(alpha * tau * (1 + 1e-14), 0.0, "composition")
    if accounting == "composition":
        return plain
    closed = _closed_amplification(alpha * diameter, tau / diameter, k, n, delta)
    if accounting == "closed-form":
        if closed is None:
            raise beyond_condition(alpha, diameter, n, delta)
        return closed
    clones = Clones.build(n, loss)
    failure = Failure(alpha * diameter, tau / diameter / k, k, clones)
    s = smallest_level(failure, delta)
    candidates = [plain]
    if closed is not None:
        candidates.append(closed)
    if s is not None:
        epsilon = k * step_epsilon(s, alpha * tau / k) * (1 + 1e-12)
        candidates.append(Amplification(epsilon, min(delta, failure(s) * (1 + 1e-12)), "numerical", s))
    return min(reversed(candidates), key=float)


def shuffled_alpha(
    item_alpha: float,
    *,
    items: int,
    total: int,
    delta: float,
    accounting: str = "numerical",
    diameter: float = 1.0,
    item_epsilon: float | None = None,
    radius: float | None = None,
) -> float:
    r"""α of the (α, δ)-EMD-DP that shuffling gives a user with `items` of the `total` shuffled items.

    Two datasets of m items at earth mover's distance t are paired so that k ≤ m positions move by τ = mt in all
    (Birkhoff and von Neumann); equation (2) with k = m gives :math:`\varepsilon(t) = m f_u(t)`, and its δ grows with
    t. So a level u that fits δ at t₂ serves every t in [t₁, t₂], where, f being concave,
    :math:`\varepsilon(t)/t \le m f_u(t_1)/t_1`, or :math:`m f_u'(0) = m\alpha_0\tanh(\tfrac12\log u)` if t₁ = 0. α is the
    largest of these over cells that cover (0, diameter], each with its own level. The closed form has
    :math:`\alpha = m \alpha_0 \gamma/2` (Theorem 4.4; γ/2 is g'(0)/α₀ there), and composition :math:`m\alpha_0`.

    Parameters
    ----------
    item_alpha, delta, accounting, diameter, item_epsilon
        As in `amplification`.
    items : int
        m, what one user holds.
    total : int
        N: m in the local model, users × m in the central model.

    radius : float, optional
        Protect only pairs with EMD ≤ radius, with ε = α · radius: the discrete definition, whose δ is not paid for
        farther pairs.

    Examples
    --------
    >>> kw = dict(items=10, total=10_000, delta=1e-6)
    >>> print(*(f"{shuffled_alpha(1.0, accounting=a, **kw):.3f}" for a in ACCOUNTING))
    0.651 2.869 10.000
    """
    alpha, diameter = positive("item_alpha", item_alpha), positive("diameter", diameter)
    m, n = whole("items", items, 1), whole("total", total, 1, MOST)
    unit = alpha * diameter
    accounting, delta, loss = shuffled(accounting, delta, unit, item_epsilon)
    if m > n:
        raise DesignError.of("items", m, f"must not exceed total = {n}")
    composed = m * alpha * (1 + 1e-14)
    if accounting == "composition":
        return composed
    if radius is not None:
        r = min(positive("radius", radius), diameter)
        options: dict[str, Any] = {
            "accounting": accounting,
            "diameter": diameter,
            "item_epsilon": item_epsilon,
        }
        reached = amplification(alpha, moved=m * r, positions=m, total=n, delta=delta, **options)
        return reached.epsilon / float(radius) * (1 + 1e-15)
    step = closed_form_delta(unit, 1.0, m, n, delta)
    closed = math.inf if step is None else m * alpha * closed_form_gamma(unit, n, step) / 2 * (1 + 1e-12)
    if accounting == "closed-form":
        if step is None:
            raise beyond_condition(alpha, diameter, n, delta)
        return closed
    clones = Clones.build(n, loss)
    return min(_numerical_alpha(unit, m, clones, delta, composed * diameter) / diameter, closed, composed)


def _numerical_alpha(unit: float, m: int, clones: Clones, delta: float, enough: float) -> float:
    """α of `shuffled_alpha` for diameter 1; gives up (infinite) once it is past `enough`."""
    found = smallest_level(Failure(unit, 1.0, m, clones), delta)
    if found is None:
        return math.inf
    level, worst = found, 0.0
    edges = [*CELLS_OF_T, 0.0]
    for far, near in zip(edges, edges[1:]):
        # A level that fits farther pairs fits these; look for a lower one only where it would matter.
        if _cell(level, unit, near, m) > worst:
            level = lower_level(Failure(unit, far, m, clones), delta, level)
            worst = max(worst, _cell(level, unit, near, m))
        if worst > enough:
            return math.inf
    return worst


def _cell(s: float, unit: float, near: float, m: int) -> float:
    """m f_u(t)/t at the near end of a cell, its largest value there; m f_u'(0) at 0."""
    slope = step_epsilon(s, unit * near) / near if near else unit * math.tanh(s / 2)
    return m * slope * (1 + 1e-12)


def calibrate_item_alpha(
    alpha: float,
    *,
    items: int,
    total: int,
    delta: float,
    accounting: str = "numerical",
    diameter: float = 1.0,
    radius: float | None = None,
    time_limit: float | None = None,
) -> float:
    """The largest α₀ found whose shuffled release stays within (`alpha`, `delta`)-EMD-DP.

    A root of `shuffled_alpha` from below, rounded down to five digits so that it does not hang on the last bits of
    a root: a smaller α₀ is only more private. After `time_limit` seconds it is the largest that was seen to stay within.

    Examples
    --------
    >>> kw = dict(items=30, total=30_000, delta=1e-6)
    >>> print(*(f"{calibrate_item_alpha(20.0, accounting=a, **kw):.3f}" for a in ACCOUNTING))
    3.657 1.997 0.667
    """
    target = positive("alpha", alpha)
    if radius is not None:
        radius = positive("radius", radius)
        if radius > 1e6 * positive("diameter", diameter):
            raise DesignError.of("radius", radius, "must be at most a million diameters")
    m, n = whole("items", items, 1), whole("total", total, 1, MOST)
    accounting, delta, _ = shuffled(accounting, delta, 0.0, None)
    options: dict[str, Any] = {
        "items": m,
        "total": n,
        "delta": delta,
        "diameter": diameter,
        "radius": radius,
    }
    deadline, fitting = Deadline(time_limit), [0.0]

    @cache
    def reached(item_alpha: float) -> float:
        """α of this α₀; infinite where the closed form does not apply."""
        if deadline.passed and fitting[-1] > 0:
            raise _LateError
        try:
            found = shuffled_alpha(item_alpha, accounting=accounting, **options)
        except DesignError:
            return math.inf
        if found <= target:
            fitting.append(max(item_alpha, fitting[-1]))
        return found

    low = target / m * (1 - 1e-13)  # composition alone allows it
    if low < _LEAST:
        raise DesignError.of(
            "alpha", target, f"must be at least {_LEAST:g} per item: choose another unit of distance"
        )
    if accounting == "composition":
        return low
    if reached(low) > target:  # only the closed form can refuse here: its condition fails
        start = low
        while reached(low) > target:
            low /= 2
            if low < 1e-9 * start:
                raise beyond_condition(target / m, diameter, n, delta)
    try:
        return _largest(reached, low, target)
    except _LateError:
        return fitting[-1]


class _LateError(Exception):
    """Ends a search for the largest α₀; never leaves this module."""


def _largest(reached: Callable[[float], float], low: float, target: float) -> float:
    """The largest α₀ found from `low` on, which stays within."""
    high = 2 * low
    while reached(high) <= target:
        low, high = high, 2 * high
    if math.isfinite(reached(high)):  # it grows with α₀: a root, then a step to its safe side
        root = safe_root(lambda a: excess(reached(a), target), low, high, xtol=1e-6 * high, rtol=1e-6)
        unit = 10.0 ** (math.floor(math.log10(root)) - 4)
        return max(low, math.floor(root / unit) * unit)
    while high - low > 1e-6 * low:
        middle = (low + high) / 2
        low, high = (middle, high) if reached(middle) <= target else (low, middle)
    return low


def _closed_amplification(unit: float, tau: float, k: int, total: int, delta: float) -> Amplification | None:
    step = closed_form_delta(unit, tau / k, k, total, delta)
    if step is None:
        return None
    g = closed_form_step(unit, tau / k, total, step)
    assert g is not None
    level = math.log1p(closed_form_gamma(unit, total, step))
    return Amplification(k * g, min(delta, step * geometric(g, k)), "closed-form", level)

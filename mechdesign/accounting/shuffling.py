r"""Amplification by shuffling under metric privacy: bounds on the privacy loss of moved items in a shuffled multiset.

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
and a returned bound was evaluated at the returned point.

References: J. Imola, A. Roy Chowdhury, K. Chaudhuri, "Metric differential privacy at the user-level via the earth
mover's distance", 2024, Theorems 4.3 and 4.4; V. Feldman, A. McMillan, K. Talwar, "Hiding among the clones", 2021.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from scipy import stats

from mechdesign.checks import inside, integer, magnitude, non_negative, one_of, positive, refuse
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import excess, least_kept, safe_root
from mechdesign.evidence.serialize import serializable
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array

ACCOUNTING = ("numerical", "closed-form", "composition")


def shuffled(
    accounting: str, delta: float, unit: float, item_epsilon: float | None
) -> tuple[str, float, float]:
    """Return accounting, δ and ε₀ for the clones: α₀ · diameter, or the channel's own smaller loss."""
    name = one_of("accounting", accounting, ACCOUNTING)
    if name != "composition":
        remedy = ' (a shuffling bound; for delta = 0 use accounting="composition")'
        delta = inside("delta", delta, 1e-100, 1, remedy)
    own = unit if item_epsilon is None else min(unit, non_negative("item_epsilon", item_epsilon))
    return name, delta, own


def beyond_condition(alpha: float, diameter: float, total: int, delta: float) -> DesignError:
    """Return the error for an α₀ above the closed form's condition."""
    room = total / (16 * math.log(2 / delta))
    limit = math.log(room) / diameter if room > 1 else 0.0
    return DesignError.of(
        "item_alpha",
        alpha,
        f"the closed form needs item_alpha <= log(N / (16 log(2/δ'))) / diameter, at most {limit:.4g} here; "
        'use accounting="numerical", which has no such condition',
    )


ROUNDING = 1e-10  # relative error allowed for SciPy's binomial functions (they reach about 1e-13)
NEGLIGIBLE = 1e-150  # tail of C counted as no clone at all; group privacy may multiply it by e^{kε}
CELLS = 1024  # blocks of the clone count C; more would not change six digits
_RARE, _ABOVE = 1e-30, 1e-12  # probability of fewer, and of more clones than are summed one by one


@dataclass(frozen=True)
class Clones:
    """Binned law of the clone count: `counts` (lowest of each block) and `weights` (summing to at least 1)."""

    counts: Array
    weights: Array

    @classmethod
    def build(cls, total: int, item_epsilon: float) -> Clones:
        """Return the law of the clone count among `total` items whose channel loses at most `item_epsilon`."""
        others, share = total - 1, math.exp(-item_epsilon)
        if others == 0 or share == 0.0:
            return cls(np.zeros(1), np.ones(1))
        law = stats.binom(others, min(share, 1.0))
        # Where the tails become negligible; SciPy's isf goes through 1 − q, which is 1 for such q.
        tails = (lambda c: law.cdf(c) > NEGLIGIBLE, lambda c: law.sf(c) <= NEGLIGIBLE)
        low, high = (bisect.bisect_left(range(others), True, key=tail) for tail in tails)
        edges = np.unique(np.linspace(low, high + 1, min(CELLS, high + 1 - low) + 1).astype(np.int64))
        starts, ends = edges[:-1], edges[1:] - 1
        lower, upper = law.cdf(ends), law.sf(starts - 1)
        # A difference of tails, on the side where they are small, plus a bound of their rounding.
        near_top = lower > upper
        mass = np.where(near_top, upper - law.sf(ends), lower - law.cdf(starts - 1))
        mass = np.maximum(mass, 0.0) + ROUNDING * np.minimum(lower, upper)
        below, above = float(law.cdf(low - 1)), float(law.sf(high))
        counts = np.concatenate([[0], starts, [high + 1]]).astype(float)
        weights = np.concatenate([[below], mass, [above]]) * (1 + ROUNDING)
        weights[0] += max(0.0, 1.0 - float(weights.sum()))  # whatever is missing counts as no clone at all
        return cls(counts, weights)

    @cached_property
    def _inner(self) -> tuple[int, Array, Array, float]:
        """Return the blocks of most probability: the first, their counts and weights, and the weight of those below.

        More clones hide more, so the blocks above are merged into the last of them.
        """
        below = np.cumsum(self.weights)
        first = int(np.searchsorted(below, _RARE))
        above = np.cumsum(self.weights[::-1])[::-1]
        last = max(int(np.searchsorted(-above, -_ABOVE)) - 1, first)
        weights = self.weights[first : last + 1].copy()
        weights[-1] = above[last] * (1 + ROUNDING)
        return first, self.counts[first : last + 1], weights, float(below[first - 1]) if first else 0.0

    def divergence(self, u: float) -> float:
        """Return an upper bound on h(u) = Σ [X − uY]₊, in [0, 1]."""
        first, counts, weights, below = self._inner
        value = float(weights @ self._values(counts, u))
        if below > 1e-10 * value:  # then rare counts of few clones matter
            value, below = value + float(self.weights[:first] @ self._values(self.counts[:first], u)), 0.0
        return min(1.0, value + below + 1e-290)

    @staticmethod
    def _values(c: Array, u: float) -> Array:
        """Return the divergence for each count of clones."""
        # ⌊u(c+1)/(1+u)⌋ + 1, written so that a huge u cannot round it past c + 1, where X/Y is infinite.
        threshold = c + 2 - np.ceil((c + 1) / (1 + u))
        edge = stats.binom.pmf(threshold - 1, c, 0.5)
        tail = (u - 1) * stats.binom.sf(threshold - 1, c, 0.5)
        value: Array = np.clip(edge - tail + ROUNDING * (edge + tail), 0.0, 1.0)
        return value


def step_epsilon(s: float, y: float) -> float:
    """Return f_u(t) for u = e^s, y = α₀t: the ε of one step."""
    # log1p form of log((ua + 1)/(u + a)): no cancellation for small s or y.
    return (
        math.log1p(math.expm1(s) * math.expm1(y) / (math.exp(s) + math.exp(y)))
        if s < 300 and y < 300
        else min(s, y)
    )


def step_weight(s: float, y: float) -> float:
    """Return w(t) = (a − 1)/(a + u), which increases in y."""
    return 1 - math.exp(-y) if y > 300 else math.expm1(y) / (math.exp(y) + math.exp(s))


def weight_slope(s: float, y: float) -> float:
    """Return an upper bound on w/y over (0, y]: w is convex while e^y ≤ u, and its slope never exceeds (1 + u)/(4u)."""
    return step_weight(s, y) / y if 1e-300 < y <= s else (1 + math.exp(-s)) / 4


def geometric(epsilon: float, k: int) -> float:
    """Return Σ_{j<k} e^{jε}."""
    if k * epsilon > 700:
        return math.inf
    return float(k) if epsilon <= 0 else math.expm1(k * epsilon) / math.expm1(epsilon)


@dataclass(frozen=True)
class Failure:
    """δ of equation (2) as a function of s = log u, for k positions moved by kt in all; diameter 1, α₀ = `unit`."""

    unit: float
    t: float
    k: int
    clones: Clones

    def __call__(self, s: float) -> float:
        return self.divergence(s) * self.factor(s)

    def divergence(self, s: float) -> float:
        """Return h(e^s), which decreases in s."""
        return self.clones.divergence(math.exp(s))

    def factor(self, s: float) -> float:
        """Return the factor of h(e^s) in equation (2)."""
        epsilon, most = step_epsilon(s, self.unit * self.t), self.unit * min(self.k * self.t, 1.0)
        by_order = step_weight(s, most) * geometric(epsilon, self.k)
        by_mass = math.exp(min(self.k * epsilon, 700.0)) * weight_slope(s, most) * self.unit * self.k * self.t
        return min(by_order, by_mass)


def smallest_level(failure: Failure, delta: float) -> float | None:
    """Return the least level s in [1e-7, 50] found with failure(s) ≤ δ (evaluated there); None if there is none."""
    levels = [float(s) for s in np.geomspace(1e-7, 50.0, 32)]
    # a divergence too large for every level's factor belongs to a level too low, as do all before it
    most = max(delta / max(failure.factor(s), 1e-300) for s in levels)
    start = bisect.bisect_left(levels, True, key=lambda s: failure.divergence(s) <= most)
    found = least_kept(
        lambda x: excess(failure(math.exp(x)), delta),
        math.log(levels[min(start, len(levels) - 1)]),
        step=0.65,
        growth=1.0,
        least=math.log(levels[0]),
        most=math.log(levels[-1]),
        xtol=1e-12,
        rtol=1e-12,
    )
    return None if math.isinf(found) else math.exp(found)


def lower_level(failure: Failure, delta: float, level: float) -> float:
    """Return a level at most `level` that also satisfies failure ≤ δ: to 10⁻⁴ of the least one if the failure is monotone."""
    seen: dict[float, float] = {level: -1.0}

    def over(s: float) -> float:
        if s not in seen:
            seen[s] = excess(failure(s), delta)
        return seen[s]

    low, high, step = 0.98 * level, level, 0.96
    while low > 1e-7 and over(low) <= 0:
        low, high, step = step * low, low, step**2
    if over(low) <= 0:
        return low
    seen[high] = min(seen[high], excess(failure(high), delta))
    return safe_root(over, low, high, xtol=5e-5 * high, rtol=1e-4)


def closed_form_gamma(item_epsilon: float, total: int, delta: float) -> float:
    r""":math:`\gamma = 8\sqrt{e^{\varepsilon_0}\log(4/\delta)/N} + 8e^{\varepsilon_0}/N`."""
    spread = math.exp(item_epsilon) / total
    return 8 * math.sqrt(spread * math.log(4 / delta)) + 8 * spread


def closed_form_step(item_epsilon: float, t: float, total: int, delta: float) -> float | None:
    r"""Return ε of Theorem 4.3 for one position moved by t (of diameter 1); None if its condition fails.

    :math:`g(t) = \log(1 + \frac{a-1}{a+1}\gamma)` for :math:`\varepsilon_0 \le \log(N/(16\log(2/\delta)))`.

    *Proof.* With Z = (X + Y)/2 and p = a/(1+a), q = 1 − p the pair is (p−q)X + 2qZ against (p−q)Y + 2qZ. By
    advanced joint convexity (Balle, Barthe and Gaboardi 2018) its divergence at 1 + (p−q)γ is at most (p−q) times a
    mean of :math:`D_{1+\gamma}(X\|Z) \le \frac12 D_{1+\gamma}(X\|Y)` and :math:`D_{1+\gamma}(X\|Y)`, so
    :math:`h(1+\gamma) \le \delta` is enough. Let :math:`M = Ne^{-\varepsilon_0} \ge 16L`, L = log(2/δ). By Chernoff
    :math:`C \ge \frac12(N-1)e^{-\varepsilon_0}`, hence C + 1 ≥ M/2, but for a probability
    :math:`e^{-(N-1)e^{-\varepsilon_0}/8} \le \delta/2`. For such c, :math:`h_c \le P[A + 1 > (c+1)u/(1+u)]`, which
    by Hoeffding is at most δ/2 if :math:`\frac{\gamma}{2+\gamma} \ge \frac{1+\sqrt{2cL}}{c+1}`; the right side is at
    most r = 2/M + 2√(L/M). The left side is 2R/(1+2R) with R = 2/M + κ 2√(L/M), κ² = 1 + (log 2)/L, as log(4/δ)
    = L + log 2; it is at least r if 2R(1 − r) ≥ r. With s = 2√(L/M) ≤ ½ and 2/M = s²/2L that is
    h(s) = 2(s/2L + κ)(1 − s − s²/2L) − s/2L − 1 ≥ 0. h falls, h′ ≤ 1/2L − 2κ, and h(½) ≥ 0 is
    κ(1 − y/4) ≥ 1 + y²/16, y = 1/L; squared, log 2 − ½ − (½ log 2 + 1/16) y + y² (log 2)/16 − y³/256 ≥ 0, true for
    y ≤ 1/log 20, that is δ ≤ .1. Larger δ are Feldman et al.'s Lemma A.1. ∎

    It is concave in t with slope :math:`\alpha_0\gamma/2` at 0 (paper, Appendix B.3).
    """
    if item_epsilon > math.log(total / (16 * math.log(2 / delta))):
        return None
    gamma = closed_form_gamma(item_epsilon, total, delta)
    return math.log1p(math.tanh(item_epsilon * t / 2) * gamma) * (1 + 1e-14)


def closed_form_delta(item_epsilon: float, t: float, k: int, total: int, delta: float) -> float | None:
    """Return the per-step δ′ with δ′ Σ_{j<k} e^{jg} ≤ δ; None if the condition fails for it."""

    def spent(log_step: float) -> float:
        step = math.exp(log_step)
        g = closed_form_step(item_epsilon, t, total, step)
        return math.inf if g is None else step * geometric(g, k)

    high = math.log(delta / k)
    if k == 1:
        return delta if math.isfinite(spent(high)) else None
    # The condition on ε₀ limits δ′ from below. The total need not be monotone in δ′ (a smaller δ′ has a larger
    # g): take the largest of a grid that fits, then refine; the returned value was evaluated.
    low = max(math.log(2) - total * math.exp(-item_epsilon) / 16 + 1e-9, -690.0)
    if low > high:
        return None
    fits = [x for x in np.linspace(high, low, 65).tolist() if spent(x) <= delta]
    if not fits:
        return None
    above = min(high, fits[0] + (high - low) / 64)
    return math.exp(safe_root(lambda x: excess(spent(x), delta), fits[0], above, rtol=1e-12))


MOST = 10**15  # items: their binomial tails are still SciPy's
CELLS_OF_T = tuple(0.8**i for i in range(16))  # EMD in diameters: where `shuffled_alpha` takes a new level


@serializable("amplification")
class Amplification:
    """Privacy loss of a change after shuffling: the releases are (`epsilon`, `delta`)-indistinguishable.

    The stand-alone verifier does not cover it.

    Attributes
    ----------
    epsilon, delta : float
        For the whole change, all positions together.
    accounting : {"numerical", "closed-form", "composition"}
        Bound used; ``"composition"`` is ε = α₀τ, δ = 0, if shuffling does not help.
    divergence : float
        log u, the level at which the clone divergence was taken; infinite for composition.
    """

    epsilon: float
    delta: float
    accounting: str
    divergence: float = math.inf

    def __float__(self) -> float:
        return self.epsilon


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
        Largest loss of the channel between any two items, if known to be below α₀ · diameter (numerical
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
    alpha = magnitude("item_alpha", item_alpha)
    diameter = positive("diameter", diameter)
    tau = positive("moved", moved)
    k, n = integer("positions", positions, 1), integer("total", total, 1, MOST)
    accounting, delta, loss = shuffled(accounting, delta, alpha * diameter, item_epsilon)
    refuse(k > n, "positions", k, f"must not exceed total = {n}")
    if tau > k * diameter * (1 + 1e-12):
        raise DesignError.of("moved", moved, f"must not exceed positions × diameter = {k * diameter}")
    plain = Amplification(alpha * tau * (1 + 1e-14), 0.0, "composition")
    if accounting == "composition":
        return plain
    if accounting == "closed-form":
        closed = _closed_amplification(alpha * diameter, tau / diameter, k, n, delta)
        if closed is None:
            raise beyond_condition(alpha, diameter, n, delta)
        return closed
    clones = Clones.build(n, loss)
    failure = Failure(alpha * diameter, tau / diameter / k, k, clones)
    s = smallest_level(failure, delta)
    if s is None:
        return plain
    epsilon = k * step_epsilon(s, alpha * tau / k) * (1 + 1e-12)
    numerical = Amplification(epsilon, min(delta, failure(s) * (1 + 1e-12)), "numerical", s)
    return min(numerical, plain, key=float)


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
        m, the number of a user's items.
    total : int
        N: m in the local model, users × m in the central model.

    radius : float, optional
        Protect only pairs with EMD ≤ radius, with ε = α · radius: the discrete definition, whose δ does not cover
        farther pairs.

    Examples
    --------
    >>> kw = dict(items=10, total=10_000, delta=1e-6)
    >>> print(*(f"{shuffled_alpha(1.0, accounting=a, **kw):.3f}" for a in ACCOUNTING))
    0.651 2.869 10.000
    """
    alpha, diameter = positive("item_alpha", item_alpha), positive("diameter", diameter)
    m, n = integer("items", items, 1), integer("total", total, 1, MOST)
    unit = alpha * diameter
    accounting, delta, loss = shuffled(accounting, delta, unit, item_epsilon)
    refuse(m > n, "items", m, f"must not exceed total = {n}")
    composed = m * alpha * (1 + 1e-14)
    if accounting == "composition":
        return composed
    if radius is not None:
        r = min(positive("radius", radius), diameter)
        asked: dict[str, Any] = {
            "total": n,
            "delta": delta,
            "accounting": accounting,
            "item_epsilon": item_epsilon,
        }
        reached = amplification(alpha, moved=m * r, positions=m, diameter=diameter, **asked)
        return reached.epsilon / float(radius) * (1 + 1e-15)
    if accounting == "closed-form":
        step = closed_form_delta(unit, 1.0, m, n, delta)
        if step is None:
            raise beyond_condition(alpha, diameter, n, delta)
        return m * alpha * closed_form_gamma(unit, n, step) / 2 * (1 + 1e-12)
    clones = Clones.build(n, loss)
    return min(_numerical_alpha(unit, m, clones, delta, composed * diameter) / diameter, composed)


def _numerical_alpha(unit: float, m: int, clones: Clones, delta: float, enough: float) -> float:
    """Return α of `shuffled_alpha` for diameter 1, or infinity once it exceeds `enough`."""
    found = smallest_level(Failure(unit, 1.0, m, clones), delta)
    if found is None:
        return math.inf
    level, worst = found, 0.0
    edges = [*CELLS_OF_T, 0.0]
    for far, near in zip(edges, edges[1:]):
        # A level that fits farther pairs fits these; look for a lower one only if it can matter.
        if _cell(level, unit, near, m) > worst:
            level = lower_level(Failure(unit, far, m, clones), delta, level)
            worst = max(worst, _cell(level, unit, near, m))
        if worst > enough:
            return math.inf
    return worst


def _cell(s: float, unit: float, near: float, m: int) -> float:
    """Return m f_u(t)/t at the near end of a cell, its largest value there; m f_u'(0) at 0."""
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
    """Return the largest α₀ found whose shuffled release is (`alpha`, `delta`)-EMD-DP.

    A root of `shuffled_alpha` from below, rounded down to five digits so that it does not depend on the last bits of
    a root: a smaller α₀ is only more private. After `time_limit` seconds it is the largest valid α₀ so far.

    Examples
    --------
    >>> kw = dict(items=30, total=30_000, delta=1e-6)
    >>> print(*(f"{calibrate_item_alpha(20.0, accounting=a, **kw):.3f}" for a in ACCOUNTING))
    3.657 1.997 0.667
    """
    target = magnitude("alpha", alpha)
    radius = None if radius is None else magnitude("radius", radius)
    m, n = integer("items", items, 1), integer("total", total, 1, MOST)
    accounting, delta, _ = shuffled(accounting, delta, 0.0, None)
    deadline = Deadline(time_limit)

    asked: dict[str, Any] = {"items": m, "total": n, "delta": delta, "accounting": accounting}

    @cache
    def over(log_step: float) -> float:
        """Return the excess of α over its target, where α₀ is below that of composition by this factor; infinite if the closed form fails."""
        try:
            item_alpha = low * math.exp(-log_step)
            return excess(shuffled_alpha(item_alpha, diameter=diameter, radius=radius, **asked), target)
        except DesignError:
            return math.inf

    low = target / m * (1 - 1e-13)  # composition alone allows it
    if accounting == "composition":
        return low
    # only the closed form can refuse here: its condition fails
    found = least_kept(over, 0.0, step=math.log(2), growth=1.5, most=21.0, xtol=1e-9, deadline=deadline)
    if math.isinf(found):
        raise beyond_condition(target / m, diameter, n, delta)
    item_alpha = low * math.exp(-found)
    # if the condition of the closed form fails just above, the result is no root to round
    if deadline.passed or (accounting == "closed-form" and math.isinf(over(found - 1e-5))):
        return item_alpha
    unit = 10.0 ** (math.floor(math.log10(item_alpha)) - 4)
    return max(low if found <= 0 else 0.0, math.floor(item_alpha / unit) * unit)


def _closed_amplification(unit: float, tau: float, k: int, total: int, delta: float) -> Amplification | None:
    step = closed_form_delta(unit, tau / k, k, total, delta)
    if step is None:
        return None
    g = closed_form_step(unit, tau / k, total, step)
    assert g is not None
    level = math.log1p(closed_form_gamma(unit, total, step))
    return Amplification(k * g, min(delta, step * geometric(g, k)), "closed-form", level)

r"""P3 and P4 of independent noise in closed form (Theorems 4 and 5), the budget of the worst change, and profiles λ of sensitivities.

**Scales.** P3 and P4 of Muthukrishnan and Kalyani, *Differential privacy with higher utility by exploiting
coordinate-wise disparity*, are, over scales :math:`s_g > 0` (one per group of coordinates that share a scale),

.. math:: \min \sum_g W_g s_g^p \quad\text{s.t.}\quad \sum_g (\Lambda_g / s_g)^m \le B,

with m = 2, :math:`\Lambda_g^2 = \sum \lambda_i^2`, :math:`B = \mu_0^2` for Gaussian noise (P3) and m = 1,
:math:`\Lambda_g = \sum \lambda_i`, B = ε for Laplace noise (P4); :math:`W_g` sums the weights of the loss. Stationarity
gives :math:`s_g^{p+m} \propto \Lambda_g^m / W_g`.

**Several bounds.** A change v has :math:`|v_i| \le a_i`, at most c coordinates that are not 0,
:math:`\lVert v\rVert_1 \le L_1`, :math:`\lVert v\rVert_2 \le L_2`. With :math:`u_i = s_i^{-m}` it consumes
:math:`\sum_i |v_i|^m u_i`, m = 2 for Gaussian and 1 for Laplace noise. For :math:`x_i = (|v_i|/a_i)^m` always
:math:`x_i \le |v_i|/a_i \le 1\{v_i \ne 0\}`, hence

.. math:: \sum x_i \le c, \quad \sum a_i x_i \le L_1, \quad \sum a_i^2 x_i^{2/m} \le L_2^2,

and any prices :math:`\theta \ge 0` of these three rows prove an upper bound on the budget of any change
(`AllChanges.consumed`; the first row is priced as :math:`1\{v_i \ne 0\}`, however small the change). It is exact where x
ranges over the hull of the true changes: one row alone (but L₁ for Gaussian noise), or L₁ and L₂ for Laplace noise.
Else it is safe. Least loss under it is a saddle point: the worst mix of changes, x, maximises the concave
:math:`\sum_i W_i^{1-q} (a_i^m x_i)^q`, q = p/(p + m), and the best scales are those of the profile
:math:`a_i x_i^{1/m}`.

**The lower bound.** Sizes and shares z of changes, :math:`x \le z \le 1`, that keep the rows, with
:math:`\sum a_i^2 x_i^2/z_i \le L_2^2` for Laplace noise, form a *mix*. The bound that prices prove for every change
also holds for :math:`\sum_i (a_i^m x_i)/s_i^m`, term by term. So noise that prices prove private costs at least as much
as the best noise against the mix, whose profile is :math:`a_i x_i^{1/m}`.

**Profiles.** The more dispersed a profile, the less loss: Laplace noise costs less where λ majorizes another (Theorem 10), Gaussian
noise where the squares of λ do (Theorem 9).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from flint import arb, ctx

from mechdesign.checks import array, doubles, instance, number, one_of, refuse, refusing, rounded_up
from mechdesign.doubles import TINY
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import fraction, rational, safe_root
from mechdesign.model.scales import SUM_ERROR, ScalesPrivacy
from mechdesign.problem.sensitivity import Sensitivity, exponent_of
from mechdesign.typing import Array, Indices, Numbers

CLOSED = "gaussian", "laplace"
"""Noise whose scales are a closed form or a convex program."""

EXACT = 2000
"""Largest number of coordinates whose sums are rational; beyond, they are rounded up."""


def overflowing(order: float) -> DesignError:
    """Return the error of a loss beyond the accuracy of doubles."""
    remedy = "makes the least loss overflow or underflow: use another order, budget or unit"
    return DesignError.of("loss", order, remedy)


# -- P3 and P4 in closed form, and with limits ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Allocated:
    """Scales of the groups within the budget, and the multiplier that proves a lower bound of Σ W s^p."""

    scales: Array
    lower_bound: float
    multiplier: float
    loss: float | None = None
    """Σ W s^p from the formula, up to rounding; None if it has to be summed."""


@dataclass(frozen=True, eq=False)
class Separable:
    """P3 or P4 in numbers, over groups of coordinates with one scale; everything is positive, and arrays have one shape (G,).

    Parameters
    ----------
    sensitivity : ndarray
        Λ_g.
    weight : ndarray or None
        W_g; None stands for ones.
    order : float
        p > 0.
    exponent : int
        m, 2 (Gaussian) or 1 (Laplace).
    budget : float
        B.
    lower, upper : ndarray or None
        Limits on the scales.
    """

    sensitivity: Array
    weight: Array | None
    order: float
    exponent: int
    budget: float
    lower: Array | None = None
    upper: Array | None = None

    def unlimited(self) -> tuple[Array, float]:
        r"""Return the optimal scales when no limit binds, and their loss, in a few passes over the groups.

        With :math:`s_g^0 = (\Lambda_g^m / W_g)^{1/(p+m)}` both sums, of the loss and of the budget, are the same
        number; the common factor then follows from the budget. For p = 2 and W = 1 these are
        :math:`\sigma_i^2 = \lambda_i \lVert\lambda\rVert_1/\mu_0^2` and :math:`\beta_i = \lambda_i^{1/3} \sum_j \lambda_j^{2/3}/\varepsilon`, Theorems 4 and 5 of the paper.
        """
        p, m = self.order, self.exponent
        scales = power(self.sensitivity, m / (p + m))
        if self.weight is not None:
            scales /= power(self.weight, 1 / (p + m))
        total = self.consumed(scales)
        # 2e-14 more keeps the budget, summed and rounded up, at once
        scales *= (total / self.budget) ** (1 / m) * (1 + 2e-14)
        if not scales.max() < math.inf:
            ends = float(self.sensitivity.min()), float(self.sensitivity.max())
            raise DesignError.of("sensitivities", ends, "lie too far apart for doubles")
        return scales, self._least(total)

    def least_loss(self) -> float:
        """Return the loss of the optimal scales when no limit binds, to 12 digits, in one pass that does not form them."""
        share = self.exponent / (self.order + self.exponent)

        def terms(k: slice, work: Array) -> Array:  # by logarithms: a general power takes longer
            np.log(self.sensitivity[k], out=work)
            work *= self.order * share
            work += 0.0 if self.weight is None else share * np.log(self.weight[k])
            return np.asarray(np.exp(work, out=work))

        return self._least(blocked_sum(len(self.sensitivity), terms))

    def _least(self, total: float) -> float:
        """Return the least loss where both sums at :math:`s^0` are `total`."""
        with np.errstate(over="ignore"):
            loss = float(total * np.float64((total / self.budget) ** (1 / self.exponent)) ** self.order)
        if not math.isfinite(loss):
            raise overflowing(self.order)
        return loss

    def consumed(self, scales: Array) -> float:
        """Return Σ (Λ_g / s_g)^m, which is off by a share of `SUM_ERROR` at most."""

        def terms(k: slice, work: Array) -> Array:
            np.divide(self.sensitivity[k], scales[k], out=work)
            return power(work, self.exponent, out=work) if self.exponent != 1 else work

        return blocked_sum(len(scales), terms)

    def keeps(self, scales: Array) -> bool:
        """Return whether the scales keep the budget: by the sum rounded up or, if that does not decide, by the rational sum."""
        consumed = self.consumed(scales)
        if consumed * (1 + SUM_ERROR) <= self.budget:
            return True
        if not consumed * (1 - SUM_ERROR) <= self.budget or len(scales) > EXACT:
            return False
        return exact_consumption(self.sensitivity, scales, self.exponent) <= Fraction(self.budget)

    def clip(self, scales: Array) -> Array:
        """Return scales clipped to the limits."""
        if self.lower is not None:
            scales = np.maximum(scales, self.lower)
        if self.upper is not None:
            scales = np.minimum(scales, self.upper)
        return scales

    def made_safe(self, scales: Array) -> Array:
        """Return the scales times the least common factor (within the limits) that provably meets the budget."""
        scales = self.clip(scales)
        if self.keeps(scales):
            return scales

        def wider(u: float) -> Array:
            with np.errstate(over="ignore"):
                return self.clip(scales * math.exp(u))

        def excess(u: float) -> float:
            return self.consumed(wider(u)) * (1 + SUM_ERROR) - self.budget

        if excess(700.0) > 0 and self.keeps(wider(700.0)):
            return wider(700.0)  # the limits take all of the budget
        return wider(safe_root(excess, 0.0, 700.0, xtol=1e-16))

    def optimum(self) -> Allocated:
        """Return the optimal scales: a formula without limits, one root with them."""
        if self.lower is None and self.upper is None:
            scales, total = self.unlimited()
            # the formula, rounded down; for large orders as far as `dual` would
            coarse = SUM_ERROR * (2 + self.order) * (1 + 2 * self.order / self.exponent)
            bound = total * (1 - (8 * self.order + 64) * 2.0**-53 - max(0.0, coarse - 5e-13))
            safe = self.made_safe(scales)
            loss = None if safe is not scales else total * (1 + 2e-14) ** self.order
            return Allocated(safe, bound, self.order * total / (self.exponent * self.budget), loss)
        y = self.multiplier()
        value, error = self.dual(y)
        return Allocated(self.made_safe(self.minimisers(y)), value - error, y)

    # Duality: for every y ≥ 0 the value is at least Σ min_s (W s^p + y (Λ/s)^m) - yB, the minima within the limits.

    def minimisers(self, y: float) -> Array:
        """Return the minima at multiplier y, in closed form."""
        p, m = self.order, self.exponent
        base = power(self.sensitivity, m / (p + m)) * (y * m / p) ** (1 / (p + m))
        return self.clip(base if self.weight is None else base / power(self.weight, 1 / (p + m)))

    def multiplier(self) -> float:
        """Return the y whose minimisers consume the budget, or slightly less; 0 if the lower limits alone do."""
        # without limits the loss times p is y times B times m, by stationarity
        free = self.order * self.least_loss() / (self.exponent * self.budget)

        def excess(log_y: float) -> float:
            return math.log(max(self.consumed(self.minimisers(free * math.exp(log_y))), 1e-300) / self.budget)

        if excess(-300.0) <= 0:
            return 0.0
        return free * math.exp(safe_root(excess, -300.0, 300.0) if excess(300.0) < 0 else 300.0)

    def dual(self, y: float) -> tuple[float, float]:
        """Return Σ min_s (W s^p + y (Λ/s)^m) - yB in doubles, and a bound on its error: less it, a lower bound for every y, tight at `multiplier`."""
        best = self.minimisers(max(y, 1e-300))
        terms = weighted_moment(best, self.order, self.weight) + y * self.consumed(best)
        return terms - y * self.budget, SUM_ERROR * (2 + self.order) * (terms + y * self.budget)


def against(mix: Array, weights: Array | None, order: float, exponent: int, budget: float) -> Separable:
    """Return the problem whose profile is a mix of changes, over the coordinates that change in it."""
    moved = mix > 0
    return Separable(mix[moved], None if weights is None else weights[moved], order, exponent, budget)


# -- changes within several bounds ------------------------------------------------------------------------------


ROUNDING = 1e-12
"""Relative tolerance for the roundings of a loss, a dual bound and a mix, where they are sums in doubles."""
LESS = 1e-12
"""Relative decrease of mixes that keeps them within the rows exactly."""
Prices = tuple[float, float, float]
"""Prices of a changed coordinate, of L₁ and of L₂²."""


class Row(NamedTuple):
    """Σ R x^e ≤ r, of degree e."""

    name: str
    entries: Array
    most: float
    degree: int


@dataclass(frozen=True, eq=False)
class AllChanges:
    """All changes within bounds, for noise that consumes :math:`(|v_i|/s_i)^m`; bounds that follow from the others are None.

    Parameters
    ----------
    sizes : ndarray, shape (K,)
        a_i, 0 where nothing changes.
    exponent : int
        m.
    """

    sizes: Array
    exponent: int
    l0: int | None = None
    l1: float | None = None
    l2: float | None = None

    @property
    def exact(self) -> bool:
        """Whether the budget of the worst change is computed exactly, not only bounded."""
        alone = sum(bound is not None for bound in (self.l0, self.l1, self.l2)) == 1
        return (alone or self.l0 is None) and (self.exponent == 1 or self.l1 is None)

    @property
    def rarer(self) -> bool:
        """Whether a mix states how often each coordinate changes apart from how much: for Laplace noise where few coordinates change under L₂."""
        return self.l0 is not None and self.l2 is not None and self.exponent == 1

    def bound_rows(self) -> list[Row]:
        """Return the bounds as rows over x, with sizes in units of the largest."""
        top = float(self.sizes.max())
        a, m = self.sizes / top, self.exponent
        stated = (
            ("l0", np.ones(len(a)), self.l0, 1.0, 1),
            ("l1", a, self.l1, top, 1),
            ("l2", a * a, None if self.l2 is None else self.l2 / top, 1.0, 3 - m),
        )
        return [
            Row(name, entries, (bound / unit) ** (2 if name == "l2" else 1), degree)
            for name, entries, bound, unit, degree in stated
            if bound is not None
        ]

    def reached(self, mix: Array, shares: Array | None = None) -> bool:
        """Return whether sizes with shares z (x, or 1, when not given) keep the rows: in balls of more digits than the decrease by `LESS` needs."""
        given = (mix,) if shares is None or not self.rarer else (mix, shares)
        if any(held.shape != self.sizes.shape or not np.isfinite(held).all() for held in given):
            return False
        if not (mix.min() >= 0 and mix.any() and (mix <= self.sizes).all()):
            return False
        with ctx.workprec(128):
            a, v, *stated = ([*map(arb, held[mix > 0].tolist())] for held in (self.sizes, *given))
            x = [(d / c) ** self.exponent for c, d in zip(a, v)]
            z = x if self.l0 is not None else [arb(1)] * len(x)
            for z in stated:
                if not all(low <= share <= 1 for low, share in zip(x, z)):
                    return False
            squares = [d * d / (share if self.exponent == 1 else 1) for d, share in zip(v, z)]
            sums = (self.l0, z, 1), (self.l1, [c * low for c, low in zip(a, x)], 1), (self.l2, squares, 2)
            return all(
                bound is None or sum(terms, arb(0)) <= arb(bound) ** power for bound, terms, power in sums
            )

    # Budget consumed ------------------------------------------------------------------------------------------

    def prices(self, scales: Array) -> Prices | None:
        """Return the best prices at these scales if there is one bound and it is linear in the shares; else None."""
        (row, *others), keep = self.bound_rows(), self.sizes > 0
        if others or row.degree == 2:
            return None
        rate = (self.sizes[keep] / scales[keep]) ** self.exponent / np.maximum(row.entries[keep], TINY)
        order = np.argsort(-rate)
        at = int(np.searchsorted(np.cumsum(row.entries[keep][order]), row.most * (1 - 1e-15)))
        price = float(rate[order[at]]) if at < len(order) else 0.0
        return self.in_units({row.name: price})

    def in_units(self, prices: dict[str, float]) -> Prices:
        """Return prices of `bound_rows` as prices of the bounds themselves."""
        top = float(self.sizes.max())
        return prices.get("l0", 0.0), prices.get("l1", 0.0) / top, prices.get("l2", 0.0) / top / top

    def priced(self, scales: Array, prices: Prices) -> bool:
        """Return whether scales are positive and prices valid: finite, at least 0, and 0 for absent bounds."""
        keep, bounds = self.sizes > 0, (self.l0, self.l1, self.l2)
        if not all(0 <= price < math.inf for price in prices) or not np.all(scales[keep] > 0):
            return False
        return not any(price > 0 and bound is None for price, bound in zip(prices, bounds, strict=True))

    def consumed(self, scales: Array, prices: Prices) -> float:
        """Return an upper bound on the budget of any change, by weak duality in doubles, rounded up."""
        if not self.priced(scales, prices):
            return math.inf
        keep = self.sizes > 0
        with np.errstate(over="ignore"):
            terms = self._paid(self.sizes[keep], scales[keep], *prices)
        return math.fsum(terms) * (1 + SUM_ERROR)

    def _paid(self, a: Array, s: Array, one: float, two: float, three: float) -> list[float]:
        """Return the largest budget of a change of each coordinate less its price, at least 0, and what the bounds cost.

        Gains are rounded up and prices down: they may nearly cancel.
        """
        up, down = 1 + SUM_ERROR, 1 - SUM_ERROR
        if self.exponent == 2:
            gains = (a / s) ** 2 * up - (one + two * a + three * a * a) * down
        else:
            rate = np.maximum(up / s - two * down, 0)
            v = np.minimum(a, rate / (2 * three)) if three else a
            gains = (v * rate * up - three * v * v * down) * up - one * down
        bounds = (float(bound or 0) for bound in (self.l0, self.l1, self.l2))
        return [*np.maximum(gains, 0), *(p * b**k for p, b, k in zip((one, two, three), bounds, (1, 1, 2)))]


@lru_cache(maxsize=8)
def changes_of(bounds: Sensitivity, exponent: int) -> AllChanges:
    """Return the changes within these bounds; bounds that follow from those of single coordinates are dropped.

    Examples
    --------
    >>> changes = changes_of(Sensitivity(each=[3, 2, 1], l0=2, l1=5), 1)
    >>> changes.l0, changes.l1, changes.exact
    (2, None, True)
    """
    sizes = bounds.widths(len(bounds.each or ()))
    count = int(np.count_nonzero(sizes))
    l0 = None if bounds.l0 is None or bounds.l0 >= count else bounds.l0
    top = [Fraction(v) for v in np.sort(sizes)[::-1][: l0 or count].tolist()]
    l1 = None if bounds.l1 is None or sum(top) <= Fraction(bounds.l1) else bounds.l1
    l2 = None if bounds.l2 is None or sum(v * v for v in top) <= Fraction(bounds.l2) ** 2 else bounds.l2
    return AllChanges(sizes, exponent, l0, l1, l2)


def exact_consumption(sizes: Array, scales: Array, exponent: int) -> Fraction:
    """Return Σ (v/s)^m in rationals; a term is 0 without change, or at an infinite scale."""
    pairs = zip(sizes.tolist(), scales.tolist(), strict=True)
    terms = ((rational(v) / rational(s)) ** exponent for v, s in pairs if v and s < math.inf)
    return fraction(sum(terms, rational(0)))


def changes_within(asked: ScalesPrivacy) -> AllChanges | None:
    """Return the changes under several bounds; None if only single coordinates are bounded."""
    if asked.bounds is None:
        return None
    found = changes_of(asked.bounds, asked.exponent)
    return found if found.bound_rows() else None


def consumed(asked: ScalesPrivacy, scales: Array, prices: Prices | None = None) -> Fraction | float:
    """Return an upper bound on the budget of any change: of single bounds a sum of fractions up to 2,000 numbers, else rounded up."""
    lam, changes = asked.sensitivities, changes_within(asked)
    if np.any((scales <= 0) & (lam > 0)):
        return math.inf
    if changes is not None:
        return changes.consumed(scales, prices or (0.0, 0.0, 0.0))
    if len(lam) <= EXACT:
        return exact_consumption(lam, scales, asked.exponent)
    ratio = np.divide(lam, scales, out=np.zeros(len(lam)), where=lam > 0)
    return float((ratio**asked.exponent).sum()) * (1 + 1e-14)


def slack(asked: ScalesPrivacy, scales: Array, prices: Prices | None = None) -> float:
    """Return the remaining budget; its sign is exact."""
    most = consumed(asked, scales, prices)
    return float(Fraction(asked.budget) - Fraction(most)) if most < math.inf else -math.inf


# -- profiles ---------------------------------------------------------------------------------------------------------


def check_profile(profile: Numbers, name: str = "sensitivities") -> Array:
    """Return the profile as a vector, or raise DesignError."""
    values = doubles(name, profile, "must be a vector of numbers")
    refuse(values.ndim != 1 or values.size == 0, name, profile, "must be a vector of at least one coordinate")
    values = rounded_up(values, profile)
    # minima and maxima propagate NaN and infinities
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high < np.inf):
        bad = int(np.flatnonzero(~((values >= 0) & (values < np.inf)))[0])
        said = f"must be non-negative and finite; coordinate {bad} is {values[bad]}"
        raise DesignError.of(name, profile, said)
    said = "is zero everywhere: the query needs no noise at all, release it as it is"
    refuse(high == 0, name, profile, said)
    return values


def disparity(profile: Numbers) -> float:
    r"""Return :math:`\nu = \|\lambda\|_1 / (K \Delta_\infty)`, in [1/K, 1]: 1 for equal sensitivities.

    Examples
    --------
    >>> round(disparity([1, 1, 2]), 6)
    0.666667
    """
    values = check_profile(profile)
    return float(values.sum() / (len(values) * values.max()))


def gini(profile: Numbers) -> float:
    r"""Return the Gini coefficient :math:`\sum_{ij} |\lambda_i - \lambda_j| / (2K\|\lambda\|_1)`, in O(K log K).

    Examples
    --------
    >>> gini([0, 0, 0, 1])
    0.75
    """
    values = np.sort(check_profile(profile))
    k = len(values)
    ranks = 2 * np.arange(1, k + 1) - k - 1
    return float((ranks * values).sum() / (k * values.sum()))


def majorizes(profile: Numbers, other: Numbers) -> bool:
    r"""Return whether `profile` majorizes `other`: equal sums, and each sum of its k largest values is at least as large.

    Then Laplace noise costs less for `profile`; Gaussian noise does where these are the squares of λ.

    Partial sums are exact (rational); the totals may differ, and a partial sum fall short, by 1e-12 of the total.

    Examples
    --------
    >>> majorizes([3, 1, 0], [2, 1, 1]), majorizes([2, 1, 1], [3, 1, 0])
    (True, False)
    """
    a, b = (
        [Fraction(x) for x in sorted(check_profile(values, name).tolist(), reverse=True)]
        for values, name in ((profile, "profile"), (other, "other"))
    )
    refuse(len(a) != len(b), "other", other, f"must have {len(a)} coordinates, as the profile has")
    ahead = list(accumulate(x - y for x, y in zip(a, b)))
    slack = Fraction(1, 10**12) * max(sum(a), sum(b))
    return abs(ahead[-1]) <= slack and min(ahead) >= -slack


class LayerProfile(np.ndarray):
    """The profile of clipped layers, valid for one common scale in each of its groups, which an allocation keeps."""

    groups: tuple[Indices, ...] | None = None

    def __array_finalize__(self, source: Array | None) -> None:
        whole = source is not None and self.shape == source.shape
        self.groups = getattr(source, "groups", None) if whole else None


def layer_profile(
    clips: Numbers, sizes: Numbers, *, norm: float = 2.0, noise: str = "gaussian"
) -> tuple[Array, tuple[Indices, ...]]:
    r"""Return the profile and the groups of a query made of clipped layers.

    A layer with :math:`K_m` coordinates clipped to :math:`C_m` in ℓ_p consumes the largest
    :math:`\sum |d_i|^s` over :math:`\lVert d \rVert_p \le C_m`, s = 2 for Gaussian and 1 for Laplace noise. With a
    common scale that is as much as :math:`\lambda = C_m / K_m^{1/\max(p, s)}` in each coordinate. (The exponent 1/p
    that the paper prints in Section VI-C overlooks, for p < s, a change of one coordinate alone.)

    Parameters
    ----------
    clips : array_like, shape (M,)
    sizes : array_like of int, shape (M,)
    norm : float
        p ≥ 1.
    noise : {"gaussian", "laplace"}
        The type of noise. For Laplace noise the profile is valid under pure privacy only: with δ > 0 a flat change is not
        the worst one.

    Returns
    -------
    profile : ndarray, shape (ΣK_m,)
    groups : tuple of ndarray of int
        The coordinates of each layer. A layer must have one common scale: `NoiseAllocation` uses these groups unless told otherwise,
        and refuses groups that split a layer.

    Examples
    --------
    >>> profile, groups = layer_profile([1.0, 2.0], [4, 1])
    >>> profile
    LayerProfile([0.5, 0.5, 0.5, 0.5, 2. ])
    """
    c, counts = check_profile(clips, "clips"), array("sizes", sizes)
    whole = counts.shape == c.shape and not np.any(counts != np.round(counts))
    if not whole or counts.min() < 1 or counts.sum() > 1e9:
        raise DesignError.of("sizes", sizes, "must give a positive number of coordinates per clip")
    exponent = exponent_of(one_of("noise", noise, CLOSED))
    if isinstance(norm, np.ndarray) or (norm != math.inf and number("norm", norm) < 1):
        raise DesignError.of("norm", norm, "must be at least 1")
    k = counts.astype(np.int64)
    profile = np.repeat(c / counts ** (1 / max(norm, exponent)), k).view(LayerProfile)
    profile.groups = tuple(np.split(np.arange(k.sum()), np.cumsum(k)[:-1]))
    return profile, profile.groups


def profile_of(sensitivity: Sensitivity, noise: str, dimension: int | None = None) -> Array:
    """Return the profile for changes that keep several bounds.

    Bounds on single coordinates are the profile, whatever else is stated (`NoiseAllocation.bounds` holds the rest). Without them all coordinates share one
    scale, by symmetry, and the profile consumes as much as the worst change: it is the largest ℓ₂ norm (Gaussian) or ℓ₁ norm (Laplace, pure
    privacy and what follows from it), spread evenly.

    Examples
    --------
    >>> from mechdesign.problem.sensitivity import Sensitivity
    >>> profile_of(Sensitivity(each=[1, 2, 5], linf=3), "gaussian")
    array([1., 2., 3.])
    >>> profile_of(Sensitivity(l2=2.0), "gaussian", 4).round(12).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    s = sensitivity
    plain = (s.l0, s.l1, s.l2) == (None, None, None)
    if not plain and noise not in CLOSED:
        raise DesignError.of("noise", noise, "takes bounds of single coordinates only: each= or linf=")
    if s.each is not None:
        if dimension is not None:
            s.check(dimension)
        return s.widths(len(s.each))
    if dimension is None:
        remedy = "does not state how many coordinates there are: use NoiseAllocation.of_sensitivity, or each="
        raise DesignError.of("sensitivities", str(s), remedy)
    if plain:
        return np.full(dimension, s.linf)
    total = s.largest_l1(dimension) / dimension
    if noise == "gaussian":
        total = s.largest_l2(dimension) / math.sqrt(dimension)
    profile = np.full(dimension, total * (1 + 1e-15)).view(LayerProfile)
    profile.groups = (np.arange(dimension),)
    return profile


def check_bounds(bounds: Sensitivity, profile: Array, noise: str) -> bool:
    """Return whether several bounds restrict more than their profile; refuse another profile than theirs."""
    each = instance("bounds", bounds, Sensitivity).each
    if each is None or len(each) != len(profile):
        raise DesignError.of("bounds", str(bounds), f"must have each= for {len(profile)} coordinates")
    if not np.array_equal(profile_of(bounds, noise), profile):
        raise DesignError.of("sensitivities", profile, "must equal each= of the bounds")
    return bool(changes_of(bounds, exponent_of(noise)).bound_rows())


def check_groups(
    groups: Iterable[Numbers] | None, size: int, lower: Array | None = None, upper: Array | None = None
) -> tuple[Indices, ...] | None:
    """Return a partition of `size` coordinates as vectors of indices, or raise DesignError.

    Limits on the scales must leave the members of a group a common one.
    """
    if groups is None:
        return None
    with refusing("groups", groups, "must be lists of coordinate indices"):
        given = [np.asarray(g).ravel() for g in groups]
        if any(g.size and g.dtype.kind not in "iu" for g in given):
            raise TypeError
        found = tuple(g.astype(np.int64) for g in given)
        counts = np.bincount(np.concatenate(found), minlength=size)
    refuse(not all(map(len, found)), "groups", groups, "must not hold an empty group")
    refuse(len(counts) > size, "groups", len(counts) - 1, f"is not a coordinate; there are {size}")
    if np.any(counts != 1):
        i = int(np.flatnonzero(counts != 1)[0])
        fault = "is in no group" if counts[i] == 0 else f"is in {counts[i]} groups"
        raise DesignError.of("groups", groups, f"must partition the coordinates; coordinate {i} {fault}")
    if lower is not None and upper is not None:
        for g in found:
            if lower[g].max() > upper[g].min():
                raise DesignError.of("groups", g.tolist(), "its members' limits exclude one another")
    return found


# -- sums over millions of coordinates --------------------------------------------------------------------------


_STEPS: dict[float, tuple[np.ufunc, ...]] = {
    0.25: (np.sqrt, np.sqrt),
    1 / 3: (np.cbrt,),
    0.5: (np.sqrt,),
    2 / 3: (np.cbrt, np.square),
    1: (np.positive,),
    2: (np.square,),
    4: (np.square, np.square),
}
"""Powers made of vector instructions, which a general power is not."""


def power(x: Array, exponent: float, out: Array | None = None) -> Array:
    """Return ``x ** exponent``, into `out` if given (which may be `x`).

    For a million coordinates a general power, and fresh memory, cost more than all other arithmetic.
    """
    out = np.empty_like(x) if out is None else out
    if exponent not in _STEPS:
        return np.asarray(np.power(x, exponent, out=out))
    for step in _STEPS[exponent]:
        x = step(x, out=out)
    return x


_BLOCK = 1 << 15
"""Coordinates per block: two blocks fit the second-level cache, and fresh pages cost more than arithmetic."""


def blocked_sum(size: int, terms: Callable[[slice, Array], Array]) -> float:
    """Return Σ terms over 0..size-1, block by block: ``terms(block, work)`` may overwrite and return `work`."""
    if size <= _BLOCK:
        return float(terms(slice(0, size), np.empty(size)).sum())
    work = np.empty(_BLOCK)
    starts = range(0, size, _BLOCK)
    return math.fsum(
        float(terms(slice(k, min(k + _BLOCK, size)), work[: min(_BLOCK, size - k)]).sum()) for k in starts
    )


def weighted_moment(scales: Array, order: float, weight: Array | None) -> float:
    """Return Σ w_i s_i^p."""

    def terms(k: slice, work: Array) -> Array:
        power(scales[k], order, out=work)
        return work if weight is None else np.multiply(work, weight[k], out=work)

    return blocked_sum(len(scales), terms)

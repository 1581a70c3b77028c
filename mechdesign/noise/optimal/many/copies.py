r"""What the privacy of n independent copies says about one of them: the lower bound for several coordinates.

Let c coordinates be (ε, δ)-DP together, T̄ the mean of m of them and n = ⌊c/m⌋. When all of them move by d, every mean does, and
the n means are independent. For an event A let p and q be its probabilities under T̄ and T̄ + d, and
:math:`S_j(p) = P[\mathrm{Bin}(n, p) \ge j]`. "A in at least j of n" is an event about the c answers, and so is its complement
with the two roles exchanged: for every j

.. math:: S_j(p) \le e^\varepsilon S_j(q) + \delta, \qquad 1 - S_j(q) \le e^\varepsilon (1 - S_j(p)) + \delta .

Each makes q at least some :math:`q_j(p)`, increasing in p. All of this holds of tests that toss coins of their own, which may
thin out A: with (p, q) there is (sp, sq) for every s ≤ 1, so that :math:`q \ge p \max_j q_j(p')/p'` for all p′ ≤ p. So T̄ alone is
:math:`(\varepsilon_1, \delta_1)`-DP with :math:`\delta_1 = \sup_p\, p - e^{\varepsilon_1} \max_j q_j(p)`, or less, at every
:math:`\varepsilon_1`. **[new]**
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from scipy import special

from mechdesign.evidence.exact import exp_lower, exp_upper
from mechdesign.evidence.rounding import round_down
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Indices

__all__ = ["LARGEST", "Copies"]

_MOST = 128  # copies; the rest are left out
_STEPS = 6000
_PLANNED = 4000  # steps of a proof: a second, at most
_OVER = 1.003  # how much too large δ₁ may be: steps are in proportion to what is over
_PARTS = (1.0, 0.3, 0.05)
"""Of each step, one after the other: the shorter the steps the more ratios are met."""
LARGEST = 0.97  # of δ₁ that are tried
_SHRUNK = (1e-12, 1e-9, 1e-6, 1e-3)  # how far below its floating-point guess a probability is proved


@dataclass(frozen=True)
class Copies:
    """Independent copies that are (ε, δ)-DP together when all of them move.

    Parameters
    ----------
    count : int
        n ≥ 1.
    epsilon, delta : float

    Examples
    --------
    Where ten copies are (1, 1e-6)-DP together, one is (0.1, 0.008)-DP:

    >>> ten = Copies(10, 1.0, 1e-6)
    >>> ten.imply(0.1, 0.008), ten.imply(0.1, 0.007)
    (True, False)
    """

    count: int
    epsilon: float
    delta: float

    @classmethod
    def of(cls, moved: int, mean: int, epsilon: float, delta: float) -> Copies:
        """The means of `mean` coordinates each, out of `moved`."""
        return cls(min(moved // mean, _MOST), epsilon, delta)

    def least(self, p: Array) -> Array:
        """Return max_j q_j(p) in doubles."""
        return self._guess(np.asarray(p, dtype=float))[0]

    def imply(self, epsilon: float, delta: float) -> bool:
        """Whether one copy is proved to be (ε₁, δ₁)-DP: by a walk from 0 to 1 on whose steps p − e^{ε₁} q ≤ δ₁."""
        if (epsilon, delta) == (self.epsilon, self.delta):
            return True  # the requirement on one of them, the others left alone
        return any(self._walked(epsilon, delta, part) for part in _PARTS)

    def _walked(self, epsilon: float, delta: float, part: float) -> bool:
        walk = _Walk(self, epsilon)
        for _ in range(_STEPS):
            if not walk.forth(delta, part=part):
                return False
            if walk.at >= 1:
                return True
        return False

    def share(self, epsilon: float, deadline: Deadline) -> float | None:
        """Return a δ₁ that one copy is proved to keep at ε₁, a little too large; None in lack of steps or time.

        Where the walk stops, δ₁ is raised; the steps before hold for the raised one, whose own go further.
        """
        delta, walk = _OVER * float(self.excess(np.array([epsilon]))[0]), _Walk(self, epsilon)
        for _ in range(_STEPS):
            if not 0 < delta < LARGEST or deadline.passed:
                break
            if not walk.forth(delta, least=(_OVER - 1) * delta):
                delta *= _OVER
            elif walk.at >= 1:
                if self.imply(epsilon, delta):
                    return delta * 1.001  # spare for another machine's roundings
                delta *= _OVER  # the ratios that were met before it was raised are not met by a walk with it
        return None

    def excess(self, epsilons: Array) -> Array:
        """Return sup_p p − e^{ε₁} max_j q_j(p) for every ε₁, in doubles and over finitely many p: a guide.

        0 where the walk that proves it would take too many steps.
        """
        small = np.geomspace(1e-12, 1e-2, 100)
        p = np.concatenate(
            [small, np.geomspace(0.01, 0.2, 100)[1:], np.linspace(0.2, 0.99, 150)[1:], 1 - small[-2::-1]]
        )
        ratio = np.maximum.accumulate(self.least(p) / p)
        found = p * (1 - np.exp(epsilons)[:, None] * ratio)
        most = np.maximum(found.max(axis=1), 1e-300)
        # a step from p ends where the ratio alone would leave δ₁, or at δ₁ from 0
        ends = _OVER * most[:, None] * p[:-1] / np.maximum(found[:, :-1], 1e-300)
        ends = np.maximum(ends, _OVER * most[:, None])
        steps = (np.diff(p) / (ends - p[:-1]) * (p[1:] > most[:, None])).sum(axis=1)
        return np.where(steps < _PLANNED, most, 0.0)

    @cached_property
    def _thresholds(self) -> Array:
        n = self.count
        if n <= 32:
            return np.arange(1.0, n + 1)
        few = np.arange(1.0, 7.0)
        return np.unique(np.concatenate([few, np.rint(np.linspace(1, n, 25)), n + 1 - few]))

    def _guess(self, p: Array) -> tuple[Array, Indices]:
        """max_j q_j(p), and its j: negative where it is the complement's."""
        j = self._thresholds
        rest = self.count - j + 1
        at = p[..., None]
        with np.errstate(all="ignore"):
            over = np.exp(-self.epsilon) * (special.betainc(j, rest, at) - self.delta)
            under = np.exp(self.epsilon) * special.betaincc(j, rest, at) + self.delta
            direct = np.where(over > 0, special.betaincinv(j, rest, np.clip(over, 0, 1)), 0.0)
            other = np.where(under < 1, special.betainccinv(j, rest, np.clip(under, 0, 1)), 0.0)
        both = np.nan_to_num(np.concatenate([direct, other], axis=-1), nan=0.0)
        best = both.argmax(axis=-1)
        found = np.take_along_axis(both, best[..., None], axis=-1)[..., 0]
        return found, np.concatenate([j, -j]).astype(np.int64)[best]

    def _proved(self, p: float) -> float:
        """A probability that is proved to be at most max_j q_j(p)."""
        found, j = self._guess(np.array(p))
        for part in _SHRUNK if found > 0 else ():
            q = float(found) * (1 - part)
            if self._below(abs(int(j)), bool(j > 0), p, q):
                return q
        return 0.0

    @cached_property
    def _bits(self) -> int:
        small = 0 if self.delta <= 0 else -math.log2(self.delta)
        return 96 + self.count + math.ceil(1.5 * self.epsilon + min(small, 256))  # binomials are up to 2ⁿ

    @cached_property
    def _growth(self) -> Fraction:
        return exp_upper(self.epsilon)

    def _below(self, j: int, direct: bool, p: float, q: float) -> bool:
        """Whether any smaller probability than q breaks the j-th requirement, by whole numbers."""
        at_p, at_q = self._tail(j, p, up=False), self._tail(j, q, up=True)
        if direct:
            return self._growth * at_q <= at_p - Fraction(self.delta)
        return self._growth * (1 - at_p) + Fraction(self.delta) <= 1 - at_q

    def _tail(self, j: int, p: float, *, up: bool) -> Fraction:
        """P[Bin(n, p) ≥ j], rounded up or down."""
        n, bits = self.count, self._bits
        one, sign = 1 << bits, -1 if up else 1
        exact = Fraction(p) * one  # sign and floor make a ceiling; the tail grows with p
        x = sign * math.floor(sign * exact)
        powers = [[one], [one]]
        for held, factor in zip(powers, (x, one - x), strict=True):
            for _ in range(n):
                held.append(sign * ((sign * held[-1] * factor) >> bits))
        total = sum(math.comb(n, i) * powers[0][i] * powers[1][n - i] for i in range(j, n + 1))
        return Fraction(total, one << bits)


class _Walk:
    """From p = 0 on: how far p − e^{ε₁} q is proved to be at most δ₁, for q at least the best ratio met times p."""

    def __init__(self, copies: Copies, epsilon: float) -> None:
        self._copies, self._growth = copies, exp_lower(epsilon)
        self._ratio, self._met = Fraction(0), 0.0
        self.at = 0.0

    def forth(self, delta: float, *, least: float = 0.0, part: float = 1.0) -> bool:
        """Take a step of more than `least`, or a part of it; return whether there is one."""
        if self.at > self._met:
            self._met = self.at
            self._ratio = max(self._ratio, Fraction(self._copies._proved(self.at)) / Fraction(self.at))
        lost = 1 - self._growth * self._ratio  # per unit of p
        after = 1.0 if lost <= delta else round_down(Fraction(delta) / lost)
        if after - self.at <= least and after < 1:
            return False
        between = self.at + part * (after - self.at) if self.at else after
        self.at = between if self.at < between < after else after
        return True

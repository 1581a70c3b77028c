r"""Bounds on attackers: the largest share of the guilty that a test finds if it accuses a given share of the innocent.

With γ = e^ε, an (ε, δ)-private answer allows a test that accuses a share α of the innocent to find at most
:math:`\min(\gamma\alpha + \delta,\; (\gamma - 1 + \delta + \alpha)/\gamma)` of the guilty (Wasserman and Zhou 2010; Dong, Roth and Su 2022).
Every point (ε, δ) of a mechanism's profile gives such a bound, and all of them hold at once; together, all ε give the best
test. The advantage, the share found less the share accused, is largest where both shares sum to 1: at most
:math:`(\gamma - 1 + 2\delta)/(\gamma + 1)`, which is δ(0) at ε = 0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real

import numpy as np
from scipy import optimize

from mechdesign.checks import DOWN, listed, number, refuse, refusing, settle
from mechdesign.errors import DesignError
from mechdesign.evidence.digits import at_most, shown
from mechdesign.evidence.serialize import serializable
from mechdesign.plotting import draw_curves
from mechdesign.typing import Figure

_NOTHING = 1e-12
"""The curve ends where δ is this near its least value: no attacker notices the difference."""
_POINTS = 24
_FAR = 500.0
_ROUNDING = 1e-14


def share(name: str, value: object) -> float:
    """Return `value` as a float, or raise DesignError unless it lies in (0, 1)."""
    with suppress(OverflowError):  # a whole number beyond doubles
        if isinstance(value, Real) and not isinstance(value, bool) and 0 < float(value) < 1:
            return float(value)
    raise DesignError.of(name, value, "must be a share in (0, 1)")


@dataclass(frozen=True)
class Attack:
    """A bound on every attacker who accuses this share of the innocent, whatever else they know.

    Attributes
    ----------
    alpha : float
        Share of the innocent who are accused: the false-positive rate.
    found : float
        Largest share of the guilty who are found: an upper bound of the power.
    prior : float or None
        Probability of guilt before the answer is seen.
    """

    alpha: float
    found: float
    prior: float | None = None

    @property
    def posterior(self) -> float | None:
        """Largest probability that an accusation is right: p·found/(p·found + (1 − p)α)."""
        if self.prior is None:
            return None
        right = self.prior * self.found
        return right / (right + (1 - self.prior) * self.alpha) * (1 + _ROUNDING)

    def __str__(self) -> str:
        found = at_most(100 * self.found, 3)
        said = f"somebody who accuses one in {shown(1 / self.alpha, 3)} innocents finds at most {found}% of the guilty"
        if self.posterior is None:
            return said
        right = at_most(100 * min(self.posterior, 1.0), 3)
        return f"{said}; where one in {shown(1 / self.prior, 3)} is guilty, at most {right}% of the accusations are right"  # type: ignore[operator]


@serializable("trade-off")
class TradeOff:
    r"""(ε, δ)-differential privacy at several points at once: a requirement, or a bound on attackers of a mechanism.

    Parameters
    ----------
    points : sequence of (ε, δ)
        ε ≥ 0 in nats, δ in [0, 1].

    Examples
    --------
    >>> both = TradeOff([(0, 0.4), (1, 1e-6)])
    >>> print(both.attack(0.01))
    somebody who accuses one in 100 innocents finds at most 2.72% of the guilty
    >>> round(both.advantage, 6), round(both.attack(0.01, prior=0.5).posterior, 4)
    (0.4, 0.7311)
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        allowed = "must be pairs (epsilon, delta) of numbers, epsilon >= 0 and delta in [0, 1]"
        with refusing("points", self.points, allowed):
            pairs = [(e, d) for e, d in self.points]
        read = functools.partial(number, "points", allowed=allowed, side=DOWN)
        held = sorted({(read(e), read(d)) for e, d in pairs})
        refuse(not held or any(e < 0 or not 0 <= d <= 1 for e, d in held), "points", self.points, allowed)
        settle(self, points=tuple(held))

    @classmethod
    def of_profile(cls, profile: Callable[[float], float], at: Iterable[float] = ()) -> TradeOff:
        """Return points of an upper profile δ(ε): a grid up to its least value, and the best points at these shares of the innocent.

        The bounds are unimodal in ε, as δ is convex in e^ε.
        """
        known: dict[float, float] = {}
        shares = [share("at", alpha) for alpha in listed("at", at, "must be shares of the innocent")]

        def delta(epsilon: float) -> float:
            if epsilon not in known:
                allowed = "must be a function of epsilon to numbers"
                with refusing("profile", profile, allowed, TypeError, ValueError):
                    known[epsilon] = min(float(profile(epsilon)), 1.0)
            return known[epsilon]

        least = delta(_FAR) + _NOTHING
        low, high = 0.0, 1.0
        while delta(high) > least:
            low, high = high, 2 * high
        while high - low > 1e-3 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if delta(middle) > least else (low, middle)
        grid = np.linspace(0.0, high, _POINTS).tolist()
        for epsilon in grid:
            delta(epsilon)
        for alpha in shares:
            best = min(sorted(known), key=lambda e: _bound(e, known[e], alpha))
            step = grid[1]
            optimize.minimize_scalar(
                lambda e, alpha=alpha: _bound(e, delta(float(e)), alpha),
                bounds=(max(best - step, 0.0), best + step),
                method="bounded",
                options={"xatol": 1e-5 * step},
            )
        return cls(tuple(known.items()))

    def attack(self, alpha: float, *, prior: float | None = None) -> Attack:
        """Bound every attacker who accuses this share of the innocent.

        Parameters
        ----------
        alpha : float
            In (0, 1).
        prior : float, optional
            Probability of guilt before the answer is seen, in (0, 1).
        """
        alpha = share("alpha", alpha)
        prior = None if prior is None else share("prior", prior)
        return Attack(alpha, float(min(_bound(e, d, alpha) for e, d in self.points)), prior)

    @property
    def advantage(self) -> float:
        """Largest difference between the shares of the guilty found and of the innocent accused."""
        return min((math.expm1(min(e, _FAR)) + 2 * d) / (math.exp(min(e, _FAR)) + 1) for e, d in self.points)

    def plot(self, **options: float) -> Figure:
        """Draw the bound on the share found against the share accused, and the line of guesses without the answer."""
        alpha = np.concatenate([np.geomspace(1e-4, 0.01, 60)[:-1], np.linspace(0.01, 0.999, 200)])
        found = [self.attack(a).found for a in alpha.tolist()]
        curves = {"at most": (alpha, found), "without the answer": (alpha, alpha)}
        labels = {"xlabel": "innocents accused", "ylabel": "guilty found"}
        return draw_curves(curves, options, **labels, xlim=(0, 1), ylim=(0, 1.02))


def _bound(epsilon: float, delta: float, alpha: float) -> float:
    growth = math.exp(min(epsilon, 700.0))
    least = min(growth * alpha + delta, (math.expm1(min(epsilon, 700.0)) + delta + alpha) / growth)
    return min(least * (1 + _ROUNDING), 1.0)

r"""K-norm noise for a vector under pure privacy: the ball, of three, that suits the changes best.

With density :math:`\propto e^{-\lVert z\rVert/s}` a change v loses :math:`\lVert v\rVert/s` at most, so that s is the largest norm
of a change over ε. Which norm is best depends on the changes: the cube for boxes (a sixth of the variance of Laplace noise
in many dimensions), the cross-polytope, which is Laplace noise, for few changed coordinates (Hardt and Talwar 2010).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from scipy import integrate, special, stats

from mechdesign.errors import DesignError
from mechdesign.evidence.certificate import PROVED, RECOMPUTED, Certificate, check_table
from mechdesign.evidence.results import AUDIT_COLUMNS, Result, SolveReport
from mechdesign.evidence.rounding import round_up
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.knorm import KNormNoise, norm_order
from mechdesign.problem.checks import UP, instance, one_of, positive, settle, whole
from mechdesign.problem.design import Design, refuse_unknown, wanted_gap
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.solvers import Deadline
from mechdesign.typing import Status

__all__ = ["KNorm", "KNormCertificate", "KNormResult"]

_NORMS = (1.0, 2.0, math.inf)


@serializable("knorm")
@dataclass(frozen=True)
class KNorm(Design):
    r"""The best of three K-norm mechanisms for a vector under pure privacy.

    Parameters
    ----------
    dimension : int
        k.
    privacy : PureDP
    sensitivity : float or Sensitivity
        A number for every coordinate at once, or several bounds.
    norm : {None, 1, 2, inf}
        The norm of the noise; the one of least loss when not given.
    loss : {"squared", "absolute"}
        Of one coordinate.
    rounds : int
        How often it is answered, all under one ε.

    Examples
    --------
    >>> box = KNorm(20, PureDP(1.0)).solve()
    >>> box.mechanism.norm, round(box.value, 6)                       # Laplace noise: 2 · 20² = 800
    (inf, 154.0)
    >>> KNorm(20, PureDP(1.0), Sensitivity(linf=1, changed=3)).solve().mechanism.norm
    1.0
    >>> box.mechanism.release([0.0] * 20).shape, box.mechanism.lattice.cost < 1e-5
    ((20,), True)
    """

    dimension: int
    privacy: PureDP
    sensitivity: float | Sensitivity = 1.0
    norm: float | None = None
    loss: str = "squared"
    rounds: int = 1

    def __post_init__(self) -> None:
        settle(
            self,
            dimension=whole("dimension", self.dimension, 1, 10**6),
            rounds=whole("rounds", self.rounds, 1, 10**9),
        )
        if not isinstance(self.privacy, PureDP):
            raise DesignError.of(
                "privacy", self.privacy, "K-norm noise is for PureDP; with delta, calibrate a law"
            )
        if isinstance(self.sensitivity, Sensitivity):
            self.sensitivity.check(self.dimension)
        else:
            settle(self, sensitivity=positive("sensitivity", self.sensitivity, side=UP))
        if self.norm is not None:
            settle(self, norm=norm_order(self.norm))
        one_of("loss", self.loss, ("squared", "absolute"))

    def largest(self, norm: float) -> float:
        """The largest norm of a change, rounded up."""
        one_of("norm", norm, (1, 1.0, 2, 2.0, np.inf))
        s = Sensitivity.of(self.sensitivity)
        if norm == 1:
            return s.largest_l1(self.dimension)
        return s.largest_l2(self.dimension) if norm == 2 else s.largest_linf(self.dimension)

    def noise(self, norm: float) -> KNormNoise:
        """The law of one norm at its least scale."""
        largest = self.largest(norm)
        exact = Fraction(largest) * self.rounds / Fraction(self.privacy.epsilon)
        if not Fraction(1, 10**150) < exact < 10**150:
            raise DesignError.of(
                "sensitivity",
                self.sensitivity,
                "over epsilon must be between 1e-150 and 1e150: doubles square it",
            )
        return KNormNoise(self.dimension, round_up(exact), norm, largest)

    def cost(self, noise: KNormNoise) -> float:
        """The loss of one coordinate."""
        instance("noise", noise, KNormNoise)
        return noise.variance() if self.loss == "squared" else noise.absolute_error()

    def model(self, **options: Any) -> NoReturn:
        """Refuse: three numbers are compared."""
        raise DesignError.of("model", type(self).__name__, "compares closed forms: there is no program")

    def solve(
        self,
        solver: str | None = None,
        *,
        gap: float | None = None,
        certify: bool = True,
        time_limit: float | None = None,
        **options: Any,
    ) -> KNormResult:
        """Return the norm of least loss, with the evidence.

        Parameters
        ----------
        solver : None
        gap, certify, time_limit
                As everywhere; the lower bound is over these norms alone.
        """
        if solver is not None:
            raise DesignError.of("solver", solver, "must be None: closed forms are compared")
        refuse_unknown(options, "there are none")
        one_of("certify", certify, (True, False))
        wanted_gap(gap, 1e-9)
        Deadline(time_limit)
        noise = min((self.noise(n) for n in (_NORMS if self.norm is None else (self.norm,))), key=self.cost)
        value = self.cost(noise)
        return KNormResult(
            design=self,
            mechanism=noise,
            value=value,
            lower_bound=value,
            solver_report=SolveReport("closed form", Status.OPTIMAL if certify else Status.UNCERTIFIED),
            notes=(*_notes(noise), f"norm of the noise: {noise.norm:g}"),
            certificate=KNormCertificate(self, noise, value, value) if certify else None,
        )


def _notes(noise: KNormNoise) -> tuple[str, ...]:
    """Whether it can be deployed."""
    if noise.deployable:
        return ()
    return ("for simulation: norm 2 has no exact release; norm=inf and norm=1 have",)


@serializable("knorm-certificate")
@dataclass(frozen=True, eq=False)
class KNormCertificate(Certificate):
    """Evidence that K-norm noise keeps ε, in rational numbers, and what it costs.

    Parameters
    ----------
    design : KNorm
    law : KNormNoise
    value, lower_bound : float
    """

    design: KNorm
    law: KNormNoise
    value: float
    lower_bound: float

    @property
    def bound_how(self) -> str:
        return RECOMPUTED

    @property
    def statement(self) -> Mapping[str, Any]:
        """The question, and the two numbers claimed."""
        names = ("dimension", "privacy", "sensitivity", "norm", "loss", "rounds")
        return {
            **{n: getattr(self.design, n) for n in names},
            "value": self.value,
            "lower_bound": self.lower_bound,
        }

    def checks(self) -> pd.DataFrame:
        """The largest loss, and the cost."""
        d = self.design
        spent = Fraction(d.largest(self.law.norm)) * d.rounds / Fraction(self.law.scale)
        left = Fraction(d.privacy.epsilon) - spent
        fits = self.law.dimension == d.dimension and d.norm in (None, self.law.norm)
        fits = fits and self.law.largest == d.largest(self.law.norm)
        room = self.value * (1 + 1e-12) - d.cost(self.law)
        least = min(d.cost(d.noise(order)) for order in (_NORMS if d.norm is None else (d.norm,)))
        return check_table(
            [
                (
                    f"no change loses more than {d.privacy.epsilon:g}",
                    PROVED,
                    float(left),
                    bool(fits and left >= 0),
                ),
                (f"the loss is at most {self.value:.9g}", RECOMPUTED, room, room >= 0),
                (
                    f"no norm of 1, 2 and inf that is allowed does better than {self.lower_bound:.9g}",
                    RECOMPUTED,
                    least - self.lower_bound,
                    least * (1 + 1e-12) >= self.lower_bound,
                ),
            ]
        )


@serializable("knorm-result")
@dataclass(frozen=True, eq=False)
class KNormResult(Result):
    """K-norm noise with its cost."""

    @property
    def absolute_error(self) -> float:
        """Mean absolute error of one coordinate."""
        return float(self.mechanism.absolute_error())

    @cached_property
    def law(self) -> Any:
        """The law of one coordinate."""
        return _Marginal(self.mechanism)

    def alternatives(self) -> pd.DataFrame:
        rows = [("this noise", self.value)]
        rows += [(f"ℓ{order:g} noise", self.design.cost(self.design.noise(order))) for order in _NORMS]
        return pd.DataFrame(
            [(n, e, e / self.value) for n, e in rows], columns=["mechanism", "error", "relative"]
        )

    def _audit(self) -> pd.DataFrame:
        d = self.design
        spent, epsilon = d.largest(self.mechanism.norm) * d.rounds / self.mechanism.scale, d.privacy.epsilon
        rows = [("privacy", 0, spent, epsilon, epsilon - spent, float("nan"), True)]
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)


class _Marginal:
    """Tails of one coordinate: z = r u with u uniform in the ball, r Gamma(k + 1)."""

    def __init__(self, noise: KNormNoise) -> None:
        self._noise = instance("noise", noise, KNormNoise)

    def std(self) -> float:
        return math.sqrt(self._noise.variance())

    def sf(self, t: Any) -> Any:
        """P[z_i > t] for t ≥ 0."""
        k, x = self._noise.dimension, np.asarray(t, dtype=float) / self._noise.scale
        if self._noise.norm == 1 or k == 1:
            return np.exp(-x) / 2
        if self._noise.norm == math.inf:
            return (stats.gamma.sf(x, k + 1) - x / k * stats.gamma.sf(x, k)) / 2
        return np.vectorize(lambda v: self._tail(float(v)))(x)

    def _tail(self, x: float) -> float:
        k = self._noise.dimension
        law, around = stats.gamma(k), [max(x, k - 12 * math.sqrt(k)), x + k + 12 * math.sqrt(k) + 60]

        def at(r: float) -> float:
            return float(law.pdf(r) * special.betainc((k - 1) / 2, 0.5, max(1 - (x / r) ** 2, 0.0)))

        return integrate.quad(at, *around, limit=200)[0] / 2

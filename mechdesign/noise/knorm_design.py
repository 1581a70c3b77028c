r"""K-norm noise for a vector under pure privacy: the ball, of three, that suits the changes best.

With density :math:`\propto e^{-\lVert z\rVert/s}` a change v loses :math:`\lVert v\rVert/s` at most, so that s is the largest norm
of a change over ε. Which norm is best depends on the changes: the cube for boxes (a sixth of the variance of Laplace noise
in many dimensions), the cross-polytope, which is Laplace noise, for few changed coordinates (Hardt and Talwar 2010).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError
from mechdesign.evidence.certificate import PROVED, RECOMPUTED
from mechdesign.evidence.proofs import Certificate, Claim, Proof
from mechdesign.evidence.results import AUDIT_COLUMNS, Result
from mechdesign.evidence.rounding import round_up
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.knorm import KNormNoise, norm_order
from mechdesign.problem.checks import instance, one_of, whole
from mechdesign.problem.fields import field
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.protection import Protection
from mechdesign.problem.sensitivity import Sensitivity, sensitivity
from mechdesign.problem.spine import Bound, Clock, Design, Law

__all__ = ["KNorm", "KNormProof"]

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

    asks: ClassVar[str] = "numbers"

    dimension: int = field(check=whole, least=1, most=10**6)
    privacy: PureDP = field(PureDP)
    sensitivity: float | Sensitivity = field(check=sensitivity, default=1.0)
    norm: float | None = field(check=norm_order, default=None)
    loss: str = field(check=one_of, allowed=("squared", "absolute"), default="squared")
    rounds: int = field(check=whole, least=1, most=10**9, default=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        Sensitivity.of(self.sensitivity).check(self.dimension)

    def protection(self) -> Protection:
        return Protection(self.dimension, Sensitivity.of(self.sensitivity), self.rounds)

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

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        """Compare the norms that are allowed: three closed forms, of which the least is also the bound."""
        noise = min(map(self.noise, self.norms), key=self.cost)
        value = self.cost(noise)
        notes = (
            ()
            if noise.deployable
            else ("for simulation: norm 2 has no exact release; norm=inf and norm=1 have",)
        )
        proof = KNormProof()
        yield Law(noise, value, (proof,), notes=(*notes, f"norm of the noise: {noise.norm:g}"))
        yield Bound(value)

    @property
    def norms(self) -> tuple[float, ...]:
        """The norms that are allowed."""
        return _NORMS if self.norm is None else (self.norm,)

    def alternatives(self, result: Result) -> pd.DataFrame:
        rows = [("this noise", result.value)]
        rows += [(f"ℓ{order:g} noise", self.cost(self.noise(order))) for order in _NORMS]
        return pd.DataFrame(
            [(n, e, e / result.value) for n, e in rows], columns=["mechanism", "error", "relative"]
        )

    def audit(self, result: Result) -> pd.DataFrame:
        epsilon = self.privacy.epsilon
        loss = self.largest(result.mechanism.norm) * self.rounds / result.mechanism.scale
        return pd.DataFrame(
            [("privacy", 0, loss, epsilon, epsilon - loss, math.nan, True)], columns=AUDIT_COLUMNS
        )


@serializable("knorm-proof")
@dataclass(frozen=True, eq=False)
class KNormProof(Proof):
    r"""K-norm noise of scale s is :math:`\lVert v\rVert / s`-private for a change v (Hardt and Talwar 2010, §4).

    Privacy is checked in rational numbers; the costs of the norms are closed forms in floats.
    """

    speaks_of = ("privacy", "value", "lower bound")
    bound_how = RECOMPUTED

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design, law = instance("question", stated.question, KNorm), instance("law", stated.law, KNormNoise)
        loss = Fraction(design.largest(law.norm)) * design.rounds / Fraction(law.scale)
        left = Fraction(design.privacy.epsilon) - loss
        fits = law.dimension == design.dimension and law.norm in design.norms
        fits = fits and law.largest == design.largest(law.norm)
        yield Claim(
            f"privacy loss at most {design.privacy.epsilon:g}", PROVED, float(left), fits and left >= 0
        )
        room = stated.value * (1 + 1e-12) - design.cost(law)
        yield Claim(f"{design.loss} error at most {stated.value:.9g}", RECOMPUTED, room, room >= 0)
        if stated.lower_bound is None:
            return
        least = min(design.cost(design.noise(order)) for order in design.norms)
        claim = f"lower bound {stated.lower_bound:.9g} of K-norm noise with norm 1, 2 or inf"
        room = least * (1 + 1e-12) - stated.lower_bound
        yield Claim(claim, RECOMPUTED, room, room >= 0)

"""Proofs of a covariance: that no change consumes more than the budget, what it costs, and what none costs less than."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

import numpy as np

from mechdesign.errors import DesignError, instance
from mechdesign.evidence.proofs import PROVED, RECOMPUTED, Certificate, Claim, Proof
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.correlated.noise import (
    CorrelatedGaussianNoise,
    LinearNoise,
    covariance_of,
    inverse_rows,
)
from mechdesign.noise.correlated.solving import Multipliers
from mechdesign.noise.correlated.strategy import StrategyNoise
from mechdesign.problem.workload import Span
from mechdesign.typing import Array

ROUNDING = 1e-11
"""Relative tolerance for the roundings of a cost and of a dual bound."""


@runtime_checkable
class Spread(Protocol):
    """A question for a covariance."""

    budget: float
    worth: float

    def holds(self, law: object) -> bool:
        """Whether a law answers the question, from a budget that is the question's."""

    def spent_by(self, rows: Array, coordinates: tuple[int, ...] | None = None) -> tuple[float, bool]:
        """What a change consumes under a matrix of these coordinates at most, and whether that is rational."""

    def reached(self, law: LinearNoise) -> bool:
        """Whether noise reaches every direction in which neighbours differ."""

    def loss_claims(self, law: Any, value: float, witness: tuple[Fraction, ...]) -> Iterator[Claim]:
        """That the loss is at most a value, and what else is asked of a law."""


@serializable("covariance-proof")
@dataclass(frozen=True, eq=False)
class CovarianceProof(Proof):
    r"""No change consumes more than the budget, :math:`\lVert R v \rVert^2 \le \mu^2`, and the loss is what is stated.

    What is consumed is checked in rational numbers up to 64 dimensions and rounded up beyond; unbiased answers, and the loss of a design, are sums in
    floats. Objective and rows of a declared problem are rounded outward.

    Parameters
    ----------
    witness : tuple of Fraction
        Further variables of a declared problem.
    """

    witness: tuple[Fraction, ...] = ()

    speaks_of = ("privacy", "bias", "value")

    def check(self, stated: Certificate) -> Iterator[Claim]:
        asked: Spread = instance("question", stated.question, Spread)
        law: Any = instance("law", stated.law, CorrelatedGaussianNoise, StrategyNoise)
        if not asked.holds(law):
            yield Claim("the law answers this question, and is held exactly", PROVED, -math.inf, False)
            return
        if isinstance(law, StrategyNoise):
            coordinates = None
            root = law.workload.root
            off = float(np.abs(root - (root @ law.inverse) @ law.strategy).max() / np.abs(root).max())
            yield Claim("the answers are unbiased, to rounding", RECOMPUTED, 1e-7 - off, off <= 1e-7)
        else:
            coordinates, inside = law.span.coordinates, asked.reached(law)
            claim = "noise reaches every direction of the set"
            yield Claim(claim, PROVED, 0.0 if inside else -math.inf, inside)
            yield _shown(law)
        spent, exact = asked.spent_by(law.rows, coordinates)
        claim = f"the budget covers every change ({'rational' if exact else 'rounded up'})"
        yield Claim(claim, PROVED, asked.budget - spent, spent <= asked.budget)
        yield Claim("the budget is worth the requirement", RECOMPUTED, asked.worth, asked.worth >= 0)
        yield from asked.loss_claims(law, stated.value, self.witness)


@runtime_checkable
class Weighed(Protocol):
    """A question whose saddle point weights of changes and loads of answers bound."""

    def proved_bound(self, multipliers: Multipliers) -> float:
        """The least loss of every covariance, as multipliers prove it."""


@serializable("saddle-bound")
@dataclass(frozen=True, eq=False)
class SaddleBound(Proof):
    r"""Weights w on the changes, and loads q on the answers, prove what the least covariance costs: :math:`(\operatorname{tr} S)^2/\mu^2`.

    S are the singular values of :math:`\sqrt q A V^\top \sqrt w`: weak duality of the matrix-fractional program (Li et al. 2015 for one changed count and the
    total error; docs/theory for loads and several changes). By symmetry weights on the numbers of counts that change. In floats.

    Parameters
    ----------
    multipliers : tuple of (ndarray, ndarray or None)
        w and q of each factor of the workload.
    """

    multipliers: Multipliers

    speaks_of = ("lower bound",)
    bound_how = RECOMPUTED

    def check(self, stated: Certificate) -> Iterator[Claim]:
        asked: Weighed = instance("question", stated.question, Weighed)
        if stated.lower_bound is None:
            raise DesignError.of("lower_bound", None, "must be a number where a proof speaks of it")
        least = asked.proved_bound(self.multipliers)
        claim = f"no {self.among(stated).noun} costs less than {stated.lower_bound:.9g}"
        yield Claim(
            claim, RECOMPUTED, least - stated.lower_bound, least * (1 + ROUNDING) >= stated.lower_bound
        )


def loss_root(span: Span, weights: Array | None) -> Array:
    """Return L with LᵀL = EᵀWE: in coordinates L x the loss is the plain trace."""
    if span.lift is None and weights is None:
        return np.eye(span.rank)
    lifted = span.matrix
    gram = lifted.T @ (lifted if weights is None else weights @ lifted)
    scale = np.sqrt(np.diag(gram))
    root: Array = np.linalg.cholesky(gram / np.outer(scale, scale)).T * scale
    return root


def trace_loss(whitening: Array, root: Array | None) -> float:
    """Return tr(WΣ) = ‖L R⁻¹‖²_F, without L tr Σ."""
    held = whitening if root is None else np.asarray(np.linalg.solve(root.T, whitening.T).T, dtype=float)
    return float((inverse_rows(held) ** 2).sum())


def _shown(law: CorrelatedGaussianNoise) -> Claim:
    """That the covariance shown is that of the whitening."""
    true = covariance_of(law.rows, law.span)
    deviations, off = np.sqrt(np.diag(true)), np.abs(law.covariance - true)
    near = bool((off <= 1e-9 * np.outer(deviations, deviations)).all())
    return Claim("the covariance shown is the law's", RECOMPUTED, -float(off.max()), near)

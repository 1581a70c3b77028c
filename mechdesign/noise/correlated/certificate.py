"""Evidence for a covariance: the span and the budget in exact numbers, the cost, and the dual bound from its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.accounting.gaussian import gaussian_room
from mechdesign.evidence.certificate import PROVED, RECOMPUTED, OldCertificate, check_table
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.correlated.fixed_point import balance
from mechdesign.noise.correlated.noise import CorrelatedGaussianNoise, inverse_rows
from mechdesign.noise.correlated.span import Span
from mechdesign.noise.correlated.whitened import largest_spent
from mechdesign.problem.privacy import ApproximateDP, ZeroConcentratedDP
from mechdesign.typing import Array

__all__ = ["CorrelatedGaussianCertificate", "loss_root", "trace_loss"]

_ROUNDING = 1e-11
"""Relative room for the roundings of a cost and of a dual bound."""


def loss_root(span: Span, weights: Array | None) -> Array:
    """Return L with LᵀL = EᵀWE: in coordinates L x the loss is the plain trace."""
    if span.lift is None and weights is None:
        return np.eye(span.rank)
    lifted = span.matrix
    gram = lifted.T @ (lifted if weights is None else weights @ lifted)
    scale = np.sqrt(np.diag(gram))
    root: Array = np.linalg.cholesky(gram / np.outer(scale, scale)).T * scale
    return root


def trace_loss(noise: CorrelatedGaussianNoise, root: Array) -> float:
    """Return tr(WΣ) = ‖L R⁻¹‖²_F."""
    whitening = np.eye(noise.span.rank) if noise.whitening is None else noise.whitening
    return float((inverse_rows(np.asarray(np.linalg.solve(root.T, whitening.T).T, dtype=float)) ** 2).sum())


@serializable("correlated-gaussian-certificate")
@dataclass(frozen=True, eq=False)
class CorrelatedGaussianCertificate(OldCertificate):
    """Exact evidence of a covariance.

    Parameters
    ----------
    vectors : ndarray, shape (m, K)
    privacy : ApproximateDP or ZeroConcentratedDP
    weights : ndarray, shape (K, K), optional
        W of the loss.
    budget : float
        μ².
    noise : CorrelatedGaussianNoise
    value, lower_bound : float
        What is claimed of tr(WΣ).
    multipliers : ndarray, shape (m,)
        Weights on the vectors; weak duality proves the lower bound from them.
    """

    vectors: Array
    privacy: ApproximateDP | ZeroConcentratedDP
    weights: Array | None
    budget: float
    noise: CorrelatedGaussianNoise
    value: float
    lower_bound: float
    multipliers: Array

    @property
    def bound_how(self) -> str:
        return RECOMPUTED

    @property
    def statement(self) -> Mapping[str, Any]:
        """The question, and the two numbers claimed."""
        return {
            "vectors": self.vectors,
            "privacy": self.privacy,
            "weights": self.weights,
            "value": self.value,
            "lower_bound": self.lower_bound,
        }

    def checks(self) -> pd.DataFrame:
        """Span, privacy, what the budget is worth, cost, lower bound."""
        span, whitening = self.noise.span, self.noise.whitening
        # `release` takes from the noise's own budget how much wider it must be for its lattice
        if whitening is None or span.size != self.vectors.shape[1] or self.noise.budget != self.budget:
            return check_table([("the law is held exactly", PROVED, -np.inf, False)])
        inside = all(span.inside(row) for row in self.vectors)
        reduced = self.vectors[:, span.coordinates]
        spent, exact = largest_spent(whitening, reduced)
        if isinstance(self.privacy, ZeroConcentratedDP):
            worth = 2 * self.privacy.rho - self.budget
        else:
            worth = gaussian_room(self.privacy.epsilon, self.privacy.delta, self.budget**0.5)
        root = loss_root(span, self.weights)
        room = self.value * (1 + _ROUNDING) - trace_loss(self.noise, root)
        found = balance(reduced @ root.T, self.multipliers)
        proved = 0.0 if found is None else found.lower_bound / self.budget
        factor, shown = span.matrix @ inverse_rows(whitening), self.noise.covariance
        true = factor @ factor.T
        deviations = np.sqrt(np.diag(true))
        near = bool((np.abs(shown - true) <= 1e-9 * np.outer(deviations, deviations)).all())
        return check_table(
            [
                ("noise reaches every direction of the set", PROVED, 0.0 if inside else -np.inf, inside),
                (
                    f"the budget covers every vector ({'rational' if exact else 'rounded up'})",
                    PROVED,
                    self.budget - spent,
                    spent <= self.budget,
                ),
                ("the budget is worth the requirement", RECOMPUTED, worth, worth >= 0),
                (
                    "the covariance shown is the law's",
                    RECOMPUTED,
                    -float(np.abs(shown - true).max()),
                    near,
                ),
                (f"the loss is at most {self.value:.9g}", RECOMPUTED, room, room >= 0),
                (
                    f"no covariance does better than {self.lower_bound:.9g}",
                    RECOMPUTED,
                    proved - self.lower_bound,
                    proved * (1 + _ROUNDING) >= self.lower_bound,
                ),
            ]
        )

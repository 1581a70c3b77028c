"""Evidence for a strategy: what it spends in exact numbers, what the answers cost, and the dual bound from its weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.accounting.gaussian import gaussian_room
from mechdesign.evidence.certificate import PROVED, RECOMPUTED, OldCertificate, check_table
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.matrix.question import MatrixQuestion
from mechdesign.noise.matrix.solving import Multipliers, proved_bound
from mechdesign.noise.matrix.strategy import StrategyNoise
from mechdesign.problem.privacy import ZeroConcentratedDP

__all__ = ["MatrixCertificate"]

_ROUNDING = 1e-11
"""Relative room for the roundings of a cost and of a dual bound."""
_UNBIASED = 1e-7


@serializable("matrix-certificate")
@dataclass(frozen=True, eq=False)
class MatrixCertificate(OldCertificate):
    """Exact evidence of a strategy.

    Parameters
    ----------
    question : MatrixQuestion
    noise : StrategyNoise
        The law.
    value, lower_bound : float
        What is claimed of the error.
    multipliers : tuple of (ndarray, ndarray or None)
        Weights on the changes, and loads on the answers, of each factor.
    """

    question: MatrixQuestion
    noise: StrategyNoise
    value: float
    lower_bound: float
    multipliers: Multipliers

    @property
    def bound_how(self) -> str:
        return RECOMPUTED

    @property
    def statement(self) -> Mapping[str, Any]:
        """The question, and the two numbers claimed."""
        asked = {f.name: getattr(self.question, f.name) for f in fields(MatrixQuestion)}
        return {**asked, "value": self.value, "lower_bound": self.lower_bound}

    def claiming(self) -> MatrixCertificate:
        """The same with the value that holds, and the lower bound no higher."""
        value = self._cost() * (1 + 1e-13)
        return replace(self, value=value, lower_bound=min(self.lower_bound * (1 - 1e-12), value))

    def _cost(self) -> float:
        law = self.noise
        asked = self.question.workload
        if self.question.largest:
            return float(law.variances().max())
        if asked.count <= 4 * asked.size:
            return float(law.variances().sum())
        return float(((asked.root @ law.inverse) ** 2).sum())

    def _bound(self) -> float:
        q = self.question
        wanted = self.lower_bound / q.unit
        found = proved_bound(q.workload, q.changes, self.multipliers, largest=q.largest, wanted=wanted)
        return found * q.unit

    def checks(self) -> pd.DataFrame:
        """Privacy in exact numbers, what the budget is worth, unbiased answers, cost, lower bound."""
        q = self.question
        alike = q.workload.same(self.noise.workload) and self.noise.budget == q.budget
        if self.noise.strategy.shape[1] != q.workload.size or not alike:
            return check_table([("the law answers this workload", PROVED, -math.inf, False)])
        spent, exact = q.changes.spent(self.noise.strategy)
        if isinstance(q.privacy, ZeroConcentratedDP):
            worth = 2 * q.privacy.rho - q.budget
        else:
            worth = gaussian_room(q.privacy.epsilon, q.privacy.delta, math.sqrt(q.budget))
        root = q.workload.root
        left = root - (root @ self.noise.inverse) @ self.noise.strategy
        off = float(np.abs(left).max() / np.abs(root).max())
        room = self.value * (1 + _ROUNDING) - self._cost()
        bound = self._bound()
        return check_table(
            [
                (
                    f"the budget covers every change ({'rational' if exact else 'rounded up'})",
                    PROVED,
                    q.budget - spent,
                    spent <= q.budget,
                ),
                ("the budget is worth the requirement", RECOMPUTED, worth, worth >= 0),
                ("the answers are unbiased, to rounding", RECOMPUTED, _UNBIASED - off, off <= _UNBIASED),
                (f"the error is at most {self.value:.9g}", RECOMPUTED, room, room >= 0),
                (
                    f"no covariance does better than {self.lower_bound:.9g}",
                    RECOMPUTED,
                    bound - self.lower_bound,
                    bound * (1 + _ROUNDING) >= self.lower_bound,
                ),
            ]
        )

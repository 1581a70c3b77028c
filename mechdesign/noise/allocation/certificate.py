"""Evidence for a noise allocation: the budget in rational arithmetic, the loss, and the dual bound from one multiplier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.accounting.gaussian import gaussian_room
from mechdesign.evidence.certificate import PROVED, RECOMPUTED, Check, OldCertificate, check_table
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.allocation.mixes import Among, mixed
from mechdesign.noise.allocation.question import AllocationQuestion
from mechdesign.noise.allocation.worst import most_spent
from mechdesign.problem.privacy import ApproximateDP
from mechdesign.typing import Array

__all__ = ["AllocationCertificate"]

_EXACT = 2000
"""Coordinates up to which sums are rational; beyond, they are rounded up."""
_ROUNDING = 1e-12
"""Relative room for the roundings of a loss and of a dual bound."""


@serializable("allocation-certificate")
@dataclass(frozen=True, eq=False)
class AllocationCertificate(OldCertificate):
    """Exact evidence of an allocation.

    Parameters
    ----------
    question : AllocationQuestion
        What was asked.
    scales : ndarray, shape (K,)
    value, lower_bound : float
        What is claimed of the loss.
    multiplier : float
        y of the budget; weak duality proves the lower bound from it.
    mix : ndarray, shape (K,), optional
        Under several bounds: the profile of the mix of changes that proves the lower bound.
    prices : tuple of float, optional
        Under several bounds: of a changed coordinate, of L₁ and of L₂²; they prove what the worst change spends.
    held : {None, "l1", "l2", "sets"}
        The norm that is filled besides, or that all sets of coordinates are looked at, see `mechdesign.noise.allocation.worst`.
    changes, weights : ndarray, optional
        What the mix is made of: changes (N, K) and their weights (N,), or sizes (K,) and shares (K,), see
        `mechdesign.noise.allocation.mixes`. Not given where the mix is its own proof.
    """

    question: AllocationQuestion
    scales: Array
    value: float
    lower_bound: float
    multiplier: float
    mix: Array | None = None
    prices: tuple[float, ...] | None = None
    held: str | None = None
    changes: Array | None = None
    weights: Array | None = None

    @property
    def bound_how(self) -> str:
        return RECOMPUTED

    @property
    def statement(self) -> Mapping[str, Any]:
        """The question, and the two numbers claimed."""
        asked = {f.name: getattr(self.question, f.name) for f in fields(self.question)}
        return {**asked, "value": self.value, "lower_bound": self.lower_bound}

    def exact_spent(self) -> Fraction:
        r"""Return :math:`\sum \lambda_i^2/\sigma_i^2` or :math:`\sum \lambda_i/\beta_i` in rational arithmetic.

        Under several bounds it is what the prices prove that no change exceeds.
        """
        if self.question.changes is not None:
            return Fraction(self._largest())
        pairs = zip(self.question.sensitivities.tolist(), self.scales.tolist())
        return sum(
            ((Fraction(lam) / Fraction(scale)) ** self.question.spend for lam, scale in pairs if lam),
            Fraction(0),
        )

    def slack(self) -> float:
        """What is left of the budget: exact while that is quick, then rounded down."""
        lam, budget = self.question.sensitivities, self.question.budget
        noiseless = (self.scales <= 0) & (lam > 0)
        if noiseless.any():
            return -np.inf
        if self.question.changes is not None:
            return (
                float(Fraction(budget) - Fraction(spent)) if (spent := self._largest()) < np.inf else -np.inf
            )
        if len(lam) <= _EXACT:
            return float(Fraction(budget) - self.exact_spent())
        ratio = np.divide(lam, self.scales, out=np.zeros(len(lam)), where=lam > 0)
        return budget - float((ratio**self.question.spend).sum()) * (1 + 1e-14)

    def _largest(self) -> Fraction | float:
        """What no change spends more than."""
        changes = self.question.changes
        assert changes is not None
        one, two, three = self.prices or (0.0, 0.0, 0.0)
        return most_spent(changes, self.scales, (one, two, three), self.held)

    def _is_mix(self, mix: Array) -> bool:
        """Whether some mix of changes is at least this one in each coordinate."""
        asked = self.question.changes
        assert asked is not None
        if self.changes is None or self.weights is None:
            return asked.reached(mix)
        found = mixed(asked, Among(self.changes, self.weights))
        if found is None or mix.shape != found.shape or not (np.isfinite(mix).all() and mix.any()):
            return False
        return bool(np.all((mix >= 0) & (mix <= found * (1 + _ROUNDING))))

    def checks(self) -> pd.DataFrame:
        """Privacy, what the budget is worth, limits and groups, loss, lower bound."""
        q, slack = self.question, self.slack()
        rows: list[Check] = [("the scales keep the budget", PROVED, slack, slack >= 0)]
        if q.noise == "gaussian" and isinstance(q.privacy, ApproximateDP):
            margin = gaussian_room(q.privacy.epsilon, q.privacy.delta, q.budget**0.5)
            rows.append(("the budget is worth (ε, δ)", RECOMPUTED, margin, margin >= 0))
        for name, limit, sign in (("lower", q.lower, 1), ("upper", q.upper, -1)):
            if limit is not None:
                margin = float(np.min(np.where(np.isfinite(limit), sign * (self.scales - limit), np.inf)))
                rows.append((f"scales keep their {name} limits", PROVED, margin, margin >= 0))
        if q.groups is not None:
            widest = max(float(np.ptp(self.scales[g])) for g in q.groups)
            rows.append(("groups share a scale", PROVED, -widest, widest == 0))
        room = self.value * (1 + _ROUNDING) - q.cost_of(self.scales)
        rows.append((f"the loss is at most {self.value:.9g}", RECOMPUTED, room, room >= 0))
        against = q
        if q.changes is not None:
            mix = np.zeros(0) if self.mix is None else self.mix
            reached = self._is_mix(mix)
            rows.append(("the worst mix is one of changes", RECOMPUTED, 0.0, reached))
            if not reached:
                return check_table(rows)
            against = q.against(mix)
        dual, error = against.problem.dual(self.multiplier)
        bound = against.loss_of_groups(dual + error)  # the formula's bound is tighter than the dual's doubles
        room = bound + _ROUNDING * abs(bound) - self.lower_bound
        rows.append((f"no scales do better than {self.lower_bound:.9g}", RECOMPUTED, room, room >= 0))
        return check_table(rows)

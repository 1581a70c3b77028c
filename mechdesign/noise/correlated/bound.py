"""The lower bound of a covariance with a person's own rows: a theorem with its numbers, checked rounded outward."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mechdesign.errors import DesignError, instance
from mechdesign.evidence.proofs import PROVED, Certificate, Claim, Proof
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.correlated.declared import DeclaredCovariance
from mechdesign.noise.correlated.rigorous import dual_below, is_below
from mechdesign.problem.checks import array
from mechdesign.typing import Array


@serializable("covariance-bound")
@dataclass(frozen=True, eq=False)
class CovarianceBound(Proof):
    r"""No covariance within the rows costs less than :math:`(\operatorname{tr} X N^\top Q)^2/(\lVert Q \rVert^2 \mu^2 \sum r^2) + \sum \nu k` (`rigorous`).

    Multipliers :math:`\nu` of a person's rows :math:`\operatorname{tr}(G S) + k \le 0` shift the weights of the loss, V' = V + Σ ν G, and X has
    :math:`X^\top X \preceq V'`. Rounded outward.

    Parameters
    ----------
    multipliers : tuple of Fraction, one an own row
        ν: at least 0 of an inequality, of either sign of an equality.
    roots : ndarray, shape (k,)
        r, of the weights of the changes.
    factor : ndarray, shape (m, n)
        X.
    contraction : ndarray, shape (k, m)
        Q.
    """

    multipliers: tuple[Fraction, ...]
    roots: Array
    factor: Array
    contraction: Array

    speaks_of = ("lower bound",)

    def __post_init__(self) -> None:
        for name, ndim in (("roots", 1), ("factor", 2), ("contraction", 2)):
            array(name, getattr(self, name), ndim=ndim, empty=True)
        if self.contraction.shape != (len(self.roots), len(self.factor)):
            raise DesignError(
                "factor: must be a matrix, with a column of the contraction for each of its rows"
            )

    def bound(self, declared: DeclaredCovariance, *, costs: bool = True) -> Fraction | float:
        """What is proved; minus infinity where these are no multipliers of the problem."""
        fits = (len(self.roots), self.factor.shape[1]) == declared.changes.shape
        if not fits or not declared.admissible(self.multipliers):
            return -math.inf
        shifted, charges, constant = declared.shifted(self.multipliers, costs=costs)
        if any(charges) or not is_below(self.factor, shifted):
            return -math.inf
        return constant + dual_below(
            declared.changes, self.roots, self.factor, self.contraction, declared.most
        )

    def prices(self, declared: DeclaredCovariance) -> Array:
        """By how much the bound falls for each unit of the budget, shared out among the changes."""
        least = float(dual_below(declared.changes, self.roots, self.factor, self.contraction, declared.most))
        shares = self.roots**2 / (self.roots**2).sum()
        return np.asarray(shares * least / declared.budget)

    def check(self, stated: Certificate) -> Iterator[Claim]:
        declared = instance("question", getattr(stated.question, "declared", None), DeclaredCovariance)
        if stated.lower_bound is None:
            raise DesignError.of("lower_bound", None, "must be a number where a proof speaks of it")
        margin = float(self.bound(declared) - Fraction(stated.lower_bound))
        yield Claim(
            f"no {self.among(stated).noun} costs less than {stated.lower_bound!r}",
            PROVED,
            margin,
            margin >= 0,
        )

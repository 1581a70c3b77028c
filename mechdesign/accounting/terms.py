r"""What is accounted for: laws with their sensitivities and how many coordinates use them.

The worst case of a K-dimensional additive mechanism with |d_i| ≤ Δ_i is d = (Δ_1, …, Δ_K): in one dimension
(T, T + Δ) dominates every (T, T + d), |d| ≤ Δ, and dominance survives products. A `NoiseTerm` is one factor,
repeated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mechdesign.accounting.grid import GridLoss, contract, discretise
from mechdesign.accounting.loss import CentredLoss, centred_loss
from mechdesign.errors import DesignError
from mechdesign.problem.checks import whole

__all__ = ["AtomicLoss", "NoiseTerm", "as_terms", "loss_of"]


@dataclass(frozen=True)
class NoiseTerm:
    """Independent noise from one law on `count` coordinates.

    Parameters
    ----------
    law : frozen scipy.stats distribution
    sensitivity : float
        Δ > 0 of each of these coordinates.
    count : int
        How many coordinates (or rounds) use it.

    Examples
    --------
    >>> from scipy import stats
    >>> NoiseTerm(stats.laplace(scale=2.0), 1.0, 20).count
    20
    """

    law: Any
    sensitivity: float
    count: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", whole("count", self.count, 1))
        try:
            value = float(self.sensitivity)
        except (TypeError, ValueError):
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            raise DesignError.of("sensitivity", self.sensitivity, "must be a positive, finite number")
        object.__setattr__(self, "sensitivity", value)


@dataclass(frozen=True)
class AtomicLoss:
    """A privacy loss with finitely many values (staircase and discrete laws).

    Attributes
    ----------
    values, mass : ndarray
        Loss values and their probabilities.
    infinity : float
        Probability of an infinite loss.
    """

    values: np.ndarray
    mass: np.ndarray
    infinity: float = 0.0

    @property
    def atoms(self) -> tuple[float, ...]:
        """Positive values, when they are few enough to align a grid with."""
        return (float(self.values.max()),) if self.values.size <= 3 else ()

    def delta(self, epsilon: np.ndarray) -> np.ndarray:
        """δ(ε) by summation."""
        gap = np.maximum(self.values - np.asarray(epsilon, dtype=float)[..., None], 0.0)
        return self.infinity + -np.expm1(-gap) @ self.mass

    def discretise(
        self, step: float, *, pessimistic: bool, theta: float = 0.0, smear: bool = False
    ) -> GridLoss:
        """Put the atoms on a grid, from above (two neighbours each) or from below.

        With `smear`, sorted atoms that are dense on the grid are shared out between cells as if each filled the
        gap to its neighbours (randomised post-processing, so still from below): without it the number of atoms
        per cell would jump, and the error be of first order.
        """
        where = self.values / step
        nearest = np.round(where)
        if pessimistic:
            low = np.where(np.abs(where - nearest) < 1e-9, nearest, np.floor(where))
            share = np.clip(np.expm1(low * step - self.values) / math.expm1(-step), 0, 1)
            share = np.where(np.abs(where - nearest) < 1e-9, 0.0, share)
            start = int(low.min())
            index = (low - start).astype(np.int64)
            mass = np.bincount(index, weights=self.mass * (1 - share), minlength=index.max() + 2)
            mass += np.bincount(index + 1, weights=self.mass * share, minlength=index.max() + 2)
            slop = 1e-9 * step if np.any(share == 0) else 0.0
            return GridLoss(step, start, mass * (1 + 1e-14), self.infinity, slop, True)
        share = np.ones_like(where)
        if smear and where.size > 2:
            middle = (where[1:] + where[:-1]) / 2
            low = np.concatenate([[where[0]], middle])
            high = np.concatenate([middle, [where[-1]]])
            cell = np.floor(low + 0.5)
            split = np.floor(high + 0.5) == cell + 1
            share = np.where(split, (cell + 0.5 - low) / np.where(split, high - low, 1.0), 1.0)
            nearest = np.where(split, cell, nearest)
        start = int(nearest.min())
        index = (nearest - start).astype(np.int64)
        q_mass = self.mass * np.exp(-self.values)
        size = index.max() + 2
        p, q = (
            np.bincount(index, weights=m * share, minlength=size)
            + np.bincount(index + 1, weights=m * (1 - share), minlength=size)
            for m in (self.mass, q_mass)
        )
        out = contract(p * (1 - 1e-14), q, step, theta=theta)
        return GridLoss(step, out.start, out.mass, self.infinity * (1 - 1e-14), out.slop, False)


Loss = CentredLoss | AtomicLoss


def loss_of(law: Any, sensitivity: float) -> Loss:
    """Return the privacy loss of `law` at `sensitivity`: atomic when the law says so, else centred."""
    dist = getattr(law, "dist", None)
    if dist is not None and hasattr(dist, "_loss_atoms"):
        shapes, loc, scale = dist._parse_args(*law.args, **law.kwds)[0], 0.0, 1.0
        if hasattr(dist, "_logpdf"):
            shapes, loc, scale = dist._parse_args(*law.args, **law.kwds)
        if loc != 0:
            raise DesignError.of("law", dist.name, "must be centred: loc = 0")
        values, mass = dist._loss_atoms(float(sensitivity), float(scale), *shapes)
        return AtomicLoss(np.asarray(values), np.asarray(mass))
    if dist is not None and dist.name == "dlaplace":
        return _discrete_laplace(float(dist._parse_args(*law.args, **law.kwds)[0][0]), sensitivity)
    return centred_loss(law, sensitivity)


def _discrete_laplace(rate: float, sensitivity: float) -> AtomicLoss:
    """Loss rate·(|k + Δ| − |k|): −rΔ, then steps of 2r, up to rΔ."""
    if not (sensitivity >= 1 and sensitivity == int(sensitivity)):
        raise DesignError.of("sensitivity", sensitivity, "must be a positive whole number for discrete noise")
    shift = int(sensitivity)
    k = np.arange(-shift + 1, 0)
    peak = math.tanh(rate / 2)
    tail = 1 / (1 + math.exp(-rate))  # P(K >= 0)
    inner = peak * np.exp(rate * k)
    values = np.concatenate([[-rate * shift], rate * (shift + 2 * k), [rate * shift]])
    return AtomicLoss(values, np.concatenate([[tail * math.exp(-rate * shift)], inner, [tail]]))


def grid_of(
    loss: Loss,
    step: float,
    *,
    pessimistic: bool,
    upper_tail: float,
    lower_tail: float,
    theta: float = 0.0,
    exact: bool = False,
) -> GridLoss:
    """Discretise either kind of loss."""
    if isinstance(loss, AtomicLoss):
        return loss.discretise(step, pessimistic=pessimistic, theta=theta)
    return discretise(
        loss,
        step,
        pessimistic=pessimistic,
        upper_tail=upper_tail,
        lower_tail=lower_tail,
        theta=theta,
        exact=exact,
    )


def as_terms(terms: Any) -> tuple[NoiseTerm, ...]:
    """Accept one term, something with ``noise_terms()``, or an iterable of either."""
    if isinstance(terms, NoiseTerm):
        return (terms,)
    if hasattr(terms, "noise_terms"):
        return tuple(terms.noise_terms())
    if isinstance(terms, Iterable):
        out = tuple(term for item in terms for term in as_terms(item))
        if out:
            return out
    raise DesignError.of("terms", terms, "must be NoiseTerm values or additive mechanisms, at least one")

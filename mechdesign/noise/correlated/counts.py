r"""The best Gaussian noise for counts of which one person changes a few: solved by symmetry, whatever their number.

One person more or less raises at most c of n counts, each by at most a. The set is :math:`\{a 1_S : |S| \le c\}` and its
hull, which no permutation changes, so neither does the best covariance: :math:`\Sigma = x(I - J/n) + z J/n`. With
:math:`|S| = k` a change consumes :math:`a^2 (A_k/x + B_k/z)`, :math:`A_k = k - k^2/n`, :math:`B_k = k^2/n`, and

.. math:: \min_{x, z} (n-1) x + z \quad\text{s.t.}\quad a^2 (A_k/x + B_k/z) \le \mu^2, \; k = 1..c,

two variables, convex in 1/x and 1/z. Weights :math:`y_k \ge 0` prove that no covariance of any shape costs less than
:math:`a^2 (\sqrt{(n-1)\sum y_k A_k} + \sqrt{\sum y_k B_k})^2 / (\mu^2 \sum y_k)`. With changes of either sign the set has
the symmetry of a cube too, and no Gaussian covariance does better than independent noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import pandas as pd
from scipy import optimize

from mechdesign.accounting.gaussian import GaussianPrivacy, gaussian_privacy
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import round_up
from mechdesign.evidence.proofs import PROVED, RECOMPUTED, Certificate, Claim, Proof
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.correlated.changes import size_of_change
from mechdesign.noise.correlated.design import CovarianceDesign, cost_claims, shown_covariance
from mechdesign.noise.correlated.noise import (
    CorrelatedGaussianNoise,
    within_budget,
)
from mechdesign.problem.checks import instance, integer, one_of
from mechdesign.problem.fields import field
from mechdesign.problem.sensitivity import Protection, Sensitivity, neighbours_field
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.typing import Array


@serializable("counts-gaussian")
@dataclass(frozen=True)
class CountsGaussian(CovarianceDesign):
    r"""The best Gaussian covariance for n counts of which one person changes at most c: the lower bound is of every covariance.

    Parameters
    ----------
    counts : int
        n, up to 700.
    l0 : int
        c ≤ n.
    privacy : ApproximateDP, ZeroConcentratedDP, GaussianDP, MembershipAdvantage or TradeOff
    most : float
        a: the most that one count changes.
    signed : bool
        Whether counts may rise and fall for one person at once (as when a person is replaced; state c for the difference
        then). False: one person more or less, counts only rise or only fall.
    neighbours : {"add-remove", "replace"}
        For which neighbours the changes hold.

    Examples
    --------
    >>> import mechdesign as md
    >>> result = CountsGaussian(20, 3, md.ApproximateDP(1.0, 1e-6), signed=False).solve()
    >>> round(result.value, 2), result.gap < 1e-9, result.certificate.verify()
    (1039.44, True, True)
    """

    counts: int = field(check=integer, least=1, most=700)
    l0: int = field(check=integer, least=1)
    privacy: GaussianPrivacy = field(check=gaussian_privacy)
    most: float = field(check=size_of_change, default=1.0)
    signed: bool = field(check=one_of, allowed=(True, False), default=True)
    neighbours: str = neighbours_field()

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("l0", self.l0, 1, self.counts)
        _ = self.budget

    @classmethod
    def of_sensitivity(
        cls, sensitivity: Sensitivity, dimension: int, privacy: GaussianPrivacy
    ) -> CountsGaussian:
        """The design for at most ``l0`` numbers that change by at most ``linf`` each; other bounds are refused.

        Examples
        --------
        >>> import mechdesign as md
        >>> counts = Sensitivity(linf=1, l0=3, signed=False)
        >>> round(CountsGaussian.of_sensitivity(counts, 20, md.ApproximateDP(1.0, 1e-6)).solve().value, 2)
        1039.44
        """
        s, size = instance("sensitivity", sensitivity, Sensitivity), integer("dimension", dimension, 1)
        if s.linf is None or s.each is not None or s.l1 is not None or s.l2 is not None:
            raise DesignError.of(
                "sensitivity", str(s), "must be linf=, and l0= where fewer numbers change: all alike"
            )
        return cls(size, min(s.l0 or size, size), privacy, s.linf, s.signed, s.neighbours)

    @cached_property
    def vectors(self) -> Array:  # type: ignore[override]
        """A change of each size: all others are permutations of these, or have other signs."""
        return self.most * np.tri(self.l0, self.counts)

    def protection(self) -> Protection:
        changes = Sensitivity(linf=self.most, l0=self.l0, neighbours=self.neighbours)
        return Protection(self.counts, changes, signed=self.signed)

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        """Find the two numbers by a search in one, and the weights on the sizes that prove them best."""
        n, c = self.counts, self.l0
        x, z = (float(c),) * 2 if self.signed else _balanced(n, c)
        multipliers = _multipliers(self, x, z)
        noise = self._noise(x, z)
        value, bound = _cost(noise) * (1 + 1e-13), _bound(self, multipliers) * (1 - 1e-13)
        independent = self.signed and value - bound <= 1e-9 * value
        notes = ("no Gaussian covariance does better than independent noise",) if independent else ()
        duals = pd.DataFrame({"family": "privacy", "index": np.arange(c), "dual": multipliers})
        yield Bound(bound)
        yield Law(noise, value, (CountsProof(multipliers),), SolveReport("symmetry"), notes, duals)

    def words(self) -> tuple[str, str]:
        how = "some up and others down" if self.signed else "all up or all down"
        return (
            f"A query returns {self.counts} counts about a data set. Between neighbouring data sets at most {self.l0} of "
            f"them change by at most {self.most:g} each, {how}. Gaussian noise is added, its coordinates correlated.",
            "sum of the variances",
        )

    def _noise(self, x: float, z: float) -> CorrelatedGaussianNoise:
        """The law whitened by p I + q J, scaled until the budget is kept in exact numbers."""
        n, p = self.counts, 1 / math.sqrt(x)
        q = (1 / math.sqrt(z) - p) / n
        rows = within_budget(p * np.eye(n) + q, self.budget, lambda rows: _largest_spent(self, rows))
        p, q = map(float, _two(rows))
        along, across = 1 / (p + n * q), 1 / p
        covariance = np.full((n, n), (along**2 - across**2) / n)
        np.fill_diagonal(covariance, across**2 + (along**2 - across**2) / n)
        return CorrelatedGaussianNoise(covariance, rows, tuple(range(n)), None, self.budget)


def _parts(n: int, c: int) -> tuple[Array, Array]:
    k = np.arange(1.0, c + 1)
    return k - k * k / n, k * k / n


def _balanced(n: int, c: int) -> tuple[float, float]:
    """(x, z) of least cost at a = μ = 1: over u = 1/x, with 1/z the most that all sizes allow."""
    across, along = _parts(n, c)
    if n == 1:
        return 1.0, 1.0

    def room(u: float) -> float:
        return float(((1 - across * u) / along).min())

    def cost(u: float) -> float:
        return (n - 1) / u + 1 / room(u) if room(u) > 0 else math.inf

    top = 1 / float(across.max())
    found = optimize.minimize_scalar(
        cost, bounds=(1e-9 * top, top * (1 - 1e-12)), method="bounded", options={"xatol": 1e-14 * top}
    )
    best = float(found.x)
    # where one size alone binds, its optimum is a formula, better than any search
    for a, b in zip(across, along):
        u = math.sqrt(n - 1) / (math.sqrt(a) * (math.sqrt((n - 1) * a) + math.sqrt(b))) if a > 0 else best
        if u < top and cost(u) < cost(best):
            best = u
    return 1 / best, 1 / room(best)


def _multipliers(design: CountsGaussian, x: float, z: float) -> Array:
    """Weights on the sizes that make (x, z) stationary, as nearly as weights of at least 0 can."""
    n, c = design.counts, design.l0
    if design.signed or n == 1:
        return np.append(np.zeros(c - 1), 1.0)
    across, along = _parts(n, c)
    tight = across / x + along / z > 1 - 1e-6
    # (n−1) x² = Σ y A,  z² = Σ y B, scaled to one
    rows = np.stack([across / ((n - 1) * x * x), along / (z * z)]) * tight
    found = optimize.nnls(rows, np.ones(2))[0]
    return np.asarray(found / found.sum())


def _two(whitening: Array) -> tuple[Fraction, Fraction]:
    """p and q of R = p I + q J."""
    off = Fraction(float(whitening[0, -1])) if len(whitening) > 1 else Fraction(0)
    return Fraction(float(whitening[0, 0])) - off, off


def _largest_spent(design: CountsGaussian, whitening: Array) -> float:
    """Largest ‖R v‖² in rational numbers, rounded up; R = p I + q J has two different entries."""
    a, n, (p, off) = Fraction(design.most), design.counts, _two(whitening)
    if design.signed:
        # ‖R v‖² = p² Σ v² + (2pq + n q²)(Σ v)², with |v_i| ≤ a: the extremes of Σ v are 0 and ±k a
        cross = max(2 * p * off + n * off * off, Fraction(0))
        return round_up(max(p * p * k * a * a + cross * (k * a) ** 2 for k in range(1, design.l0 + 1)))
    cross = 2 * p * off + n * off * off
    return round_up(max((p * p * k + cross * k * k) * a * a for k in range(1, design.l0 + 1)))


def _cost(noise: CorrelatedGaussianNoise) -> float:
    """tr Σ of R = p I + q J."""
    n, (p, q) = len(noise.covariance), _two(np.asarray(noise.whitening))
    return float((n - 1) / p**2 + 1 / (p + n * q) ** 2)


def _bound(design: CountsGaussian, multipliers: Array) -> float:
    """What weights on the sizes prove of every covariance."""
    y, k = np.maximum(multipliers, 0.0), np.arange(1.0, design.l0 + 1)
    if y.shape != k.shape or not y.any():
        return 0.0
    y = y / y.max()  # of numbers next to the least double products have no digits
    unit = design.most**2 / (design.budget * float(y.sum()))
    if design.signed:
        return design.counts * float(y @ k) * unit
    across, along = _parts(design.counts, design.l0)
    return (math.sqrt((design.counts - 1) * float(y @ across)) + math.sqrt(float(y @ along))) ** 2 * unit


@serializable("counts-proof")
@dataclass(frozen=True, eq=False)
class CountsProof(Proof):
    r"""A covariance of this symmetry keeps the budget for every set of counts, and weights y on the sizes prove what the least costs.

    The set of changes is its own image under permutations (with signs, under those of a cube), and so is the best covariance, by
    convexity. The budget is checked in rational numbers for each size of a change; cost and lower bound,
    :math:`a^2 (\sqrt{(n-1)\sum y_k A_k} + \sqrt{\sum y_k B_k})^2 / (\mu^2 \sum y_k)`, in floats.

    Parameters
    ----------
    multipliers : ndarray, shape (c,)
        y.
    """

    multipliers: Array

    speaks_of = ("privacy", "value", "lower bound")
    bound_how = RECOMPUTED

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design = instance("question", stated.question, CountsGaussian)
        law = instance("law", stated.law, CorrelatedGaussianNoise)
        n, whitening, budget = design.counts, law.whitening, design.budget
        # `release` takes from the law's own budget how much wider it must be for its lattice
        held = law.span.coordinates == tuple(range(n)) and law.lift is None and law.budget == budget
        if whitening is None or not held or whitening.shape != (n, n):
            yield Claim("the law is held exactly", PROVED, -math.inf, False)
            return
        wanted = np.full((n, n), whitening[0, -1])
        np.fill_diagonal(wanted, whitening[0, 0])
        alike, left = bool((whitening == wanted).all()), budget - _largest_spent(design, whitening)
        yield Claim("the budget covers every set of counts (rational)", PROVED, left, alike and left >= 0)
        yield shown_covariance(law)
        yield from cost_claims(stated, _cost(law), lambda: _bound(design, self.multipliers))

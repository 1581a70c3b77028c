r"""The best Gaussian noise for counts of which one person changes a few: solved by symmetry, whatever their number.

One person more or less raises at most c of n counts, each by at most a. The set is :math:`\{a 1_S : |S| \le c\}` and its
hull, which no permutation changes, so neither does the best covariance: :math:`\Sigma = x(I - J/n) + z J/n`. With
:math:`|S| = k` a change spends :math:`a^2 (A_k/x + B_k/z)`, :math:`A_k = k - k^2/n`, :math:`B_k = k^2/n`, and

.. math:: \min_{x, z} (n-1) x + z \quad\text{s.t.}\quad a^2 (A_k/x + B_k/z) \le \mu^2, \; k = 1..c,

two variables, convex in 1/x and 1/z. Weights :math:`y_k \ge 0` prove that no covariance of any shape costs less than
:math:`a^2 (\sqrt{(n-1)\sum y_k A_k} + \sqrt{\sum y_k B_k})^2 / (\mu^2 \sum y_k)`. With changes of either sign the set has
the symmetry of a cube too, and independent noise is the optimum.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from scipy import optimize

from mechdesign.accounting.gaussian import gaussian_room
from mechdesign.errors import DesignError
from mechdesign.evidence.certificate import PROVED, RECOMPUTED, OldCertificate, check_table
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.rounding import round_up
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.correlated.budget import gaussian_budget
from mechdesign.noise.correlated.noise import CorrelatedGaussianNoise
from mechdesign.noise.correlated.result import CorrelatedGaussianResult
from mechdesign.problem.checks import UP, instance, one_of, positive, settle, whole
from mechdesign.problem.design import OldDesign, refuse_unknown, wanted_gap
from mechdesign.problem.privacy import ApproximateDP, ZeroConcentratedDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.solvers import Deadline
from mechdesign.typing import Array, Status

__all__ = ["CountsCertificate", "CountsGaussian"]

_ROUNDING = 1e-11
_LEAST = 1e-100
"""Changes below it have variances whose last digits doubles may not hold."""


@serializable("counts-gaussian")
@dataclass(frozen=True)
class CountsGaussian(OldDesign):
    r"""The best Gaussian covariance for n counts of which one person changes at most c.

    Parameters
    ----------
    counts : int
        n, up to 700.
    changed : int
        c ≤ n.
    privacy : ApproximateDP or ZeroConcentratedDP
    most : float
        a: the most that one count changes.
    signed : bool
        Whether counts may rise and fall for one person at once (as when a person is replaced; state c for the difference
        then). False: one person more or less, counts only rise or only fall.

    Examples
    --------
    >>> result = CountsGaussian(20, 3, ApproximateDP(1.0, 1e-6), signed=False).solve()
    >>> round(result.value, 2), result.gap < 1e-9, result.certificate.verify()
    (1039.44, True, True)
    """

    counts: int
    changed: int
    privacy: ApproximateDP | ZeroConcentratedDP
    most: float = 1.0
    signed: bool = True

    def __post_init__(self) -> None:
        settle(self, counts=whole("counts", self.counts, 1, 700), most=positive("most", self.most, side=UP))
        if not _LEAST <= self.most <= 1 / _LEAST:
            allowed = f"must be between {_LEAST:g} and {1 / _LEAST:g}: choose another unit"
            raise DesignError.of("most", self.most, allowed)
        settle(self, changed=whole("changed", self.changed, 1, self.counts))
        one_of("signed", self.signed, (True, False))
        _ = self.budget

    @classmethod
    def of_sensitivity(
        cls, sensitivity: Sensitivity, dimension: int, privacy: ApproximateDP | ZeroConcentratedDP
    ) -> CountsGaussian:
        """The design for at most ``changed`` numbers that change by at most ``linf`` each; other bounds are refused.

        Examples
        --------
        >>> counts = Sensitivity(linf=1, changed=3, signed=False)
        >>> round(CountsGaussian.of_sensitivity(counts, 20, ApproximateDP(1.0, 1e-6)).solve().value, 2)
        1039.44
        """
        s, size = instance("sensitivity", sensitivity, Sensitivity), whole("dimension", dimension, 1)
        if s.linf is None or s.each is not None or s.l1 is not None or s.l2 is not None:
            raise DesignError.of(
                "sensitivity", str(s), "must be linf=, and changed= where fewer numbers change: all alike"
            )
        return cls(size, min(s.changed or size, size), privacy, s.linf, s.signed)

    @cached_property
    def budget(self) -> float:
        r""":math:`\mu^2`, rounded down."""
        return gaussian_budget(self.privacy)

    @property
    def weights(self) -> None:
        """The loss is the sum of the variances."""
        return None

    @property
    def vectors(self) -> Array:
        """A change of each size: all others are permutations of these, or have other signs."""
        return self.most * np.tri(self.changed, self.counts)

    def model(self, **options: Any) -> NoReturn:
        """Refuse: two numbers are left, found by a search in one."""
        raise DesignError.of("model", type(self).__name__, "symmetry leaves two numbers: there is no program")

    def solve(
        self,
        solver: str | None = None,
        *,
        gap: float | None = None,
        certify: bool = True,
        time_limit: float | None = None,
        **options: Any,
    ) -> CorrelatedGaussianResult:
        """Return the covariance, a lower bound for all covariances, and the evidence.

        Parameters
        ----------
        solver : None
            There is no program to give to a solver.
        gap : float, optional
            1e-9 by default.
        certify : bool
        time_limit : float, optional
            Two numbers are found in milliseconds; for 700 counts the covariance takes a tenth of a second to hold.
        """
        if solver is not None:
            raise DesignError.of(
                "solver", solver, "must be None: symmetry leaves two numbers, there is no program"
            )
        refuse_unknown(options, "there are none")
        one_of("certify", certify, (True, False))
        wanted, started = wanted_gap(gap, 1e-9), time.perf_counter()
        Deadline(time_limit)
        x, z = (float(self.changed),) * 2 if self.signed else _balanced(self.counts, self.changed)
        multipliers = _multipliers(self, x, z)
        noise = self._noise(x, z)
        evidence = CountsCertificate(self, noise, 0.0, 0.0, multipliers).claiming()
        value, bound = evidence.value, evidence.lower_bound
        status = Status.OPTIMAL if value - bound <= wanted * value else Status.GAP
        report = SolveReport(
            "symmetry", status if certify else Status.UNCERTIFIED, seconds=time.perf_counter() - started
        )
        return CorrelatedGaussianResult(
            design=self,
            mechanism=noise,
            value=value,
            lower_bound=bound,
            solver_report=report,
            notes=("independent noise is the optimum",)
            if self.signed and value - bound <= 1e-9 * value
            else (),
            certificate=evidence if certify else None,
            duals=pd.DataFrame({"family": "privacy", "index": np.arange(self.changed), "dual": multipliers}),
        )

    def _noise(self, x: float, z: float) -> CorrelatedGaussianNoise:
        """The law whitened by p I + q J, scaled until the budget is kept in exact numbers."""
        n, scale, margin = self.counts, math.sqrt(self.budget) / self.most, 1e-15
        while True:
            p = scale / math.sqrt(x)
            q = (scale / math.sqrt(z) - p) / n
            whitening = np.full((n, n), q)
            np.fill_diagonal(whitening, p + q)
            spent = _largest_spent(self, whitening)
            if spent <= self.budget:
                break
            scale *= math.sqrt(self.budget / spent) * (1 - margin)
            margin *= 2
        along = 1 / (float(whitening[0, 0]) + (n - 1) * q if n > 1 else float(whitening[0, 0]))
        across = 1 / (float(whitening[0, 0]) - q) if n > 1 else along
        covariance = np.full((n, n), (along**2 - across**2) / n)
        np.fill_diagonal(covariance, across**2 + (along**2 - across**2) / n)
        return CorrelatedGaussianNoise(covariance, whitening, tuple(range(n)), None, self.budget)


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
    n, c = design.counts, design.changed
    if design.signed or n == 1:
        return np.append(np.zeros(c - 1), 1.0)
    across, along = _parts(n, c)
    tight = across / x + along / z > 1 - 1e-6
    # (n−1) x² = Σ y A,  z² = Σ y B, scaled to one
    rows = np.stack([across / ((n - 1) * x * x), along / (z * z)]) * tight
    found = optimize.nnls(rows, np.ones(2))[0]
    return found / found.sum()


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
        return round_up(max(p * p * k * a * a + cross * (k * a) ** 2 for k in range(1, design.changed + 1)))
    cross = 2 * p * off + n * off * off
    return round_up(max((p * p * k + cross * k * k) * a * a for k in range(1, design.changed + 1)))


@serializable("counts-certificate")
@dataclass(frozen=True, eq=False)
class CountsCertificate(OldCertificate):
    """Evidence that a covariance of this symmetry keeps the budget for every set of counts, and costs the least.

    Parameters
    ----------
    design : CountsGaussian
    noise : CorrelatedGaussianNoise
    value, lower_bound : float
    multipliers : ndarray, shape (c,)
        Weights on the sizes of changes.
    """

    design: CountsGaussian
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
        d = self.design
        asked = {name: getattr(d, name) for name in ("counts", "changed", "privacy", "most", "signed")}
        return {**asked, "value": self.value, "lower_bound": self.lower_bound}

    def claiming(self) -> CountsCertificate:
        """The same with the value and the lower bound that hold."""
        value, bound = self._cost() * (1 + 1e-13), self._bound() * (1 - 1e-13)
        return CountsCertificate(self.design, self.noise, value, min(bound, value), self.multipliers)

    def _cost(self) -> float:
        """tr Σ of R = p I + q J."""
        n, (p, q) = self.design.counts, _two(np.asarray(self.noise.whitening))
        return float((n - 1) / p**2 + 1 / (p + n * q) ** 2)

    def _bound(self) -> float:
        d, y = self.design, np.maximum(self.multipliers, 0.0)
        k = np.arange(1.0, d.changed + 1)
        if y.shape != k.shape or not y.any():
            return 0.0
        if d.signed:
            return d.counts * float(y @ k) * d.most**2 / (d.budget * float(y.sum()))
        across, along = _parts(d.counts, d.changed)
        root = math.sqrt((d.counts - 1) * float(y @ across)) + math.sqrt(float(y @ along))
        return root**2 * d.most**2 / (d.budget * float(y.sum()))

    def checks(self) -> pd.DataFrame:
        """Symmetry and privacy in rational numbers, what the budget is worth, cost, lower bound."""
        d, whitening = self.design, self.noise.whitening
        n = d.counts
        # `release` takes from the noise's own budget how much wider it must be for its lattice
        budget = self.noise.budget
        held = self.noise.span.coordinates == tuple(range(n)) and self.noise.lift is None
        if whitening is None or budget is None or not held or whitening.shape != (n, n):
            return check_table([("the law is held exactly", PROVED, -math.inf, False)])
        wanted = np.full((n, n), whitening[0, -1])
        np.fill_diagonal(wanted, whitening[0, 0])
        alike = bool((whitening == wanted).all())
        spent = _largest_spent(d, whitening)
        worth = (
            2 * d.privacy.rho - budget
            if isinstance(d.privacy, ZeroConcentratedDP)
            else gaussian_room(d.privacy.epsilon, d.privacy.delta, budget**0.5)
        )
        product = whitening @ self.noise.covariance @ whitening
        error = float(np.abs(product - np.eye(n)).max())
        room = self.value * (1 + _ROUNDING) - self._cost()
        bound = self._bound()
        return check_table(
            [
                (
                    "the budget covers every set of counts (rational)",
                    PROVED,
                    budget - spent,
                    alike and spent <= budget,
                ),
                ("the budget is worth the requirement", RECOMPUTED, worth, worth >= 0),
                ("the covariance shown is the law's", RECOMPUTED, 1e-9 - error, error <= 1e-9),
                (f"the loss is at most {self.value:.9g}", RECOMPUTED, room, room >= 0),
                (
                    f"no covariance does better than {self.lower_bound:.9g}",
                    RECOMPUTED,
                    bound - self.lower_bound,
                    bound * (1 + _ROUNDING) >= self.lower_bound,
                ),
            ]
        )

r"""Calibration: the least noise of a family that meets a privacy requirement.

minimise    the variance (or E|T|) of the law, over its shape and scale
subject to  δ(ε) ≤ δ in K dimensions, each coordinate of sensitivity Δ

For a fixed shape δ falls as the scale grows, so the constraint is an equation for log scale; along it the cost is
a smooth function of the shape, minimised by Brent's method from the best of a few closed-form starts. The
search uses one coarse upper bound of δ per step; what is returned has been held to a finer one, and is
certified on a different grid.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.calibration.certificate import CalibrationCertificate
from mechdesign.noise.calibration.requirement import Query, Requirement
from mechdesign.noise.calibration.result import CalibrationResult
from mechdesign.noise.calibration.search import cost_of, least_noise
from mechdesign.noise.laws.families import FAMILIES, Family, family_of
from mechdesign.problem.checks import UP, one_of, settle, share, whole
from mechdesign.problem.design import OldDesign, refuse_unknown, wanted_gap
from mechdesign.problem.privacy import ApproximateDP, PureDP, ZeroConcentratedDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Status

__all__ = ["Calibration", "calibrate"]

_LARGEST = 1e100


@serializable("calibration")
@dataclass(frozen=True)
class Calibration(OldDesign):
    r"""The least noise of one family that meets `privacy`.

    Parameters
    ----------
    noise : str or frozen scipy.stats distribution
        ``"gaussian"``, ``"laplace"``, ``"logistic"``, ``"flipped_huber"``, ``"osgt"``, ``"gennorm"``,
        ``"truncated_laplace"``, ``"staircase"``, ``"discrete_laplace"``, ``"discrete_gaussian"``; or any symmetric
        log-concave law, of which the scale is chosen.
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP
    sensitivity : float or Sensitivity
        Δ > 0, the most any coordinate changes between neighbours, where all K may change at once; or several bounds
        together, ``Sensitivity(linf=1, changed=3)``.
    dimension : int
        K: the same law, independent, on every coordinate.
    loss : {"squared", "absolute"}
        What is minimised per coordinate: the variance or E|T|.
    accounting : {"exact", "sufficient", "zcdp"}
        ``"sufficient"`` (Theorem 8, with Δ, Δ₁ and Δ₂) and ``"zcdp"`` are closed forms for flipped Huber noise, more
        careful than needed.
    rounds : int
        How often the query is answered; `privacy` is for all answers together.
    sampling_rate : float
        q: each round sees a Poisson sample of the records. With the Gaussian, ε, δ, q and the number of steps this is
        the noise multiplier of private stochastic gradients (`CalibrationResult.noise_multiplier`).

    Raises
    ------
    DesignError
        Bad input; δ = 0 for a family that cannot do it (the message names those that can); a δ too small to
        certify; a law without finite variance.

    Notes
    -----
    One dimension: δ(ε) is the exact profile. Gaussian: μ₀ in any dimension (`gaussian_mu`). Other families in
    several dimensions: `delta_interval`.

    Examples
    --------
    >>> result = Calibration("gaussian", ApproximateDP(0.3, 1e-6), sensitivity=1.0).solve()
    >>> round(result.variance, 2), result.status
    (168.8, <Status.FEASIBLE: 'feasible'>)

    Twenty counts of which one person changes three by one:

    >>> three = Sensitivity(linf=1, changed=3)
    >>> round(Calibration("gaussian", ApproximateDP(1, 1e-6), three, dimension=20).solve().variance * 20, 2)
    1070.87
    """

    noise: Any
    privacy: PureDP | ApproximateDP | ZeroConcentratedDP
    sensitivity: float | Sensitivity
    dimension: int = 1
    loss: str = "squared"
    accounting: str = "exact"
    rounds: int = 1
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.privacy, PureDP | ApproximateDP | ZeroConcentratedDP):
            raise DesignError.of(
                "privacy", self.privacy, "must be PureDP, ApproximateDP or ZeroConcentratedDP"
            )
        name = "rho" if isinstance(self.privacy, ZeroConcentratedDP) else "epsilon"
        if (level := getattr(self.privacy, name)) > _LARGEST:
            raise DesignError.of(
                name, level, f"must be at most {_LARGEST:g}: doubles cube it, and it is no privacy"
            )
        family = self.family
        settle(
            self,
            dimension=whole("dimension", self.dimension, 1, 10**9),
            rounds=whole("rounds", self.rounds, 1, 10**9),
            sampling_rate=share("sampling_rate", self.sampling_rate, side=UP),
        )
        if isinstance(self.sensitivity, Sensitivity):
            self.sensitivity.check(self.dimension)
        else:
            settle(self, sensitivity=Sensitivity.of(self.sensitivity).largest_linf(1))
            if family.discrete and self.sensitivity != int(self.sensitivity):
                raise DesignError.of(
                    "sensitivity", self.sensitivity, "must be a whole number for discrete noise"
                )
        one_of("loss", self.loss, ("squared", "absolute"))
        exact = one_of("accounting", self.accounting, ("exact", "sufficient", "zcdp")) == "exact"
        if not exact and family.name not in ("flipped_huber", "gaussian"):
            raise DesignError.of(
                "accounting", self.accounting, 'only flipped Huber noise has it; use accounting="exact"'
            )
        if not exact and not self.query.plain:
            raise DesignError.of("accounting", self.accounting, 'is for one round; use accounting="exact"')
        self._check_sampling()
        if getattr(self.privacy, "delta", 0.0) == 0 and not hasattr(self.privacy, "rho") and not family.pure:
            able = sorted(f.name for f in FAMILIES.values() if f.pure)
            raise DesignError.of(
                "delta", 0.0, f"{family.name} noise needs delta > 0; these can do delta = 0: {able}"
            )

    def _check_sampling(self) -> None:
        if self.sampling_rate < 1e-12:
            raise DesignError.of(
                "sampling_rate", self.sampling_rate, "must be in [1e-12, 1]; 1 samples everybody"
            )
        if self.sampling_rate == 1:
            return
        if isinstance(self.privacy, ZeroConcentratedDP):
            raise DesignError.of(
                "sampling_rate", self.sampling_rate, "is not accounted for under zCDP; ask for ApproximateDP"
            )
        if getattr(self.sensitivity, "neighbours", "add-remove") != "add-remove":
            raise DesignError.of(
                "sampling_rate",
                self.sampling_rate,
                'Poisson sampling is accounted for one record more or less: bounds for neighbours="add-remove"',
            )
        seen = -math.expm1(self.rounds * math.log1p(-self.sampling_rate))
        if seen <= getattr(self.privacy, "delta", 0.0):
            raise DesignError.of(
                "sampling_rate",
                self.sampling_rate,
                f"leaves a person out of every round but with probability {seen:.3g} <= delta: this delta asks for no "
                "noise; lower it",
            )

    @cached_property
    def query(self) -> Query:
        """Sensitivity, dimension, rounds and sampling."""
        return Query(self.sensitivity, self.dimension, self.rounds, self.sampling_rate)

    @property
    def family(self) -> Family:
        """The family whose shape and scale are chosen."""
        return family_of(self.noise)

    def model(self, **options: Any) -> NoReturn:
        """Refuse: a search over closed forms has no program."""
        raise DesignError.of("model", type(self).__name__, "a search over closed forms has no program")

    @np.errstate(under="ignore")  # far out in a tail nothing is left, whatever NumPy was asked to raise
    def solve(
        self,
        solver: str | None = None,
        *,
        gap: float | None = None,
        certify: bool = True,
        time_limit: float | None = None,
        **options: Any,
    ) -> CalibrationResult:
        """Search the family, and certify what was found apart from the search.

        Parameters
        ----------
        solver : None
            There is no program to give to a solver.
        gap : float, optional
            Without effect: the search stops by itself.
        time_limit : float, optional
            Seconds; past them the best shape tried is returned, at the least scale that was seen to be private, with what
            every law of the family costs at least.

        Raises
        ------
        DesignError
            A solver is named, or an option.
        SolverError
            No scale of the law meets the requirement.
        """
        if solver is not None:
            raise DesignError.of("solver", solver, "must be None: a search over closed forms has no program")
        refuse_unknown(options, "a calibration has none")
        one_of("certify", certify, (True, False))
        wanted_gap(gap, 0.1)
        started, deadline = time.perf_counter(), Deadline(time_limit)
        requirement = Requirement.of(self.privacy, self.query, self.accounting, deadline)
        law, cut = least_noise(self.family, requirement, self.loss, deadline)
        noise, value = AdditiveNoise(law, self.sensitivity, self.dimension), cost_of(law, self.loss)
        status = (
            Status.LIMIT if cut or deadline.passed else Status.FEASIBLE if certify else Status.UNCERTIFIED
        )
        certificate = (
            CalibrationCertificate.of(
                noise,
                self.privacy,
                self.accounting,
                self.loss,
                value,
                rounds=self.rounds,
                sampling_rate=self.sampling_rate,
                scales=self.family.starts is None and not self.family.discrete,
                deadline=deadline,
            )
            if certify
            else None
        )
        report = SolveReport("family search", status, seconds=time.perf_counter() - started)
        bound = (certificate.lower_bound or None) if certificate else None
        return CalibrationResult(self, noise, value, bound, solver_report=report, certificate=certificate)


def calibrate(
    noise: Any,
    *,
    privacy: PureDP | ApproximateDP | ZeroConcentratedDP,
    sensitivity: float | Sensitivity,
    dimension: int = 1,
    loss: str = "squared",
    accounting: str = "exact",
    rounds: int = 1,
    sampling_rate: float = 1.0,
    time_limit: float | None = None,
) -> CalibrationResult:
    """Return the least noise of one family that meets `privacy`: `Calibration`, solved.

    Its parameters, and those of its `solve`: `time_limit`, in seconds, past which the best shape tried is returned (status
    ``"limit"``).

    Examples
    --------
    >>> noise = calibrate("laplace", privacy=PureDP(1.0), sensitivity=1.0)
    >>> round(noise.variance, 6), round(noise.epsilon(0.0), 6)
    (2.0, 1.0)
    """
    return Calibration(noise, privacy, sensitivity, dimension, loss, accounting, rounds, sampling_rate).solve(
        time_limit=time_limit
    )

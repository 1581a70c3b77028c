"""Evidence for a calibrated law: what it spends of its privacy budget, and what it costs, evaluated once more."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.accounting.interval import DeltaInterval, upper_delta
from mechdesign.accounting.profile import integrated_profile
from mechdesign.accounting.terms import is_gaussian
from mechdesign.errors import SolverError
from mechdesign.evidence.certificate import PROVED, RECOMPUTED, Check, OldCertificate, check_table
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.calibration.lower import least_cost, spends_more, too_small
from mechdesign.noise.calibration.renyi import worst_rho
from mechdesign.noise.worst_case import amplified
from mechdesign.problem.checks import instance, non_negative, one_of, positive, probability, share, whole
from mechdesign.problem.privacy import ApproximateDP, PureDP, ZeroConcentratedDP
from mechdesign.solvers.deadline import Deadline

__all__ = ["CalibrationCertificate"]

_BLOCK = 4096
"""Steps of a staircase that are summed one by one."""
_STRIDE = 1e-4
"""The integers that are looked at where a law is wide, as a share of its standard deviation."""


@serializable("calibration-certificate")
@dataclass(frozen=True)
class CalibrationCertificate(OldCertificate):
    """What a law spends, enclosed apart from the search that found it.

    Parameters
    ----------
    noise : AdditiveNoise
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP
    accounting : str
        Where not ``"exact"``, a closed form is the proof and the enclosure only must not contradict it.
    loss : str
    value : float
        The cost that is claimed.
    spent : DeltaInterval
        Encloses δ at ε; the largest privacy loss under pure privacy; ρ under zCDP.
    rounds : int
    sampling_rate : float
        Of the Poisson sample that each round sees.
    lower_bound : float
        What every law of the family costs at least (`mechdesign.noise.calibration.lower`); 0: nothing is known.
    share : float
        A share of the law's scale at which it spends more than the budget, where scale is all that was free; 0: none.
    """

    noise: AdditiveNoise
    privacy: PureDP | ApproximateDP | ZeroConcentratedDP
    accounting: str
    loss: str
    value: float
    spent: DeltaInterval
    rounds: int = 1
    sampling_rate: float = 1.0
    lower_bound: float = 0.0
    share: float = 0.0

    def __post_init__(self) -> None:
        one_of("accounting", self.accounting, ("exact", "sufficient", "zcdp"))
        one_of("loss", self.loss, ("squared", "absolute"))
        instance("noise", self.noise, AdditiveNoise)
        instance("privacy", self.privacy, PureDP, ApproximateDP, ZeroConcentratedDP)
        instance("spent", self.spent, DeltaInterval)
        positive("value", self.value)
        whole("rounds", self.rounds, 1)
        share("sampling_rate", self.sampling_rate)
        probability("share", self.share)
        non_negative("lower_bound", self.lower_bound)

    @classmethod
    def of(
        cls,
        noise: AdditiveNoise,
        privacy: PureDP | ApproximateDP | ZeroConcentratedDP,
        accounting: str,
        loss: str,
        value: float,
        *,
        rounds: int = 1,
        sampling_rate: float = 1.0,
        scales: bool = False,
        deadline: Deadline | None = None,
    ) -> CalibrationCertificate:
        """Evaluate a law; past the deadline what it spends is enclosed from above alone.

        With `scales` the bound from below is over all scales of this law, else over all symmetric laws.

        Raises
        ------
        DesignError
            Bad input.
        SolverError
            It is over the budget, or two evaluations contradict each other.
        """
        blank = cls(noise, privacy, accounting, loss, value, DeltaInterval(0.0, 0.0), rounds, sampling_rate)
        found = replace(blank, spent=_spent(blank, Deadline.of(deadline)))
        if not found.evaluated["holds"].all():
            low, high = found.lower, found.upper
            message = (
                f"calibration check failed: [{low:.6g}, {high:.6g}] is spent, {found.budget:.6g} allowed"
            )
            raise SolverError(message, solver="calibrate", status="check")
        if scales:
            found = replace(found, share=too_small(noise, privacy, deadline=deadline, **found.in_rounds))
        found = replace(found, lower_bound=min(found.proved_bound() * (1 - 1e-9), value))
        composed = found.noise.worst_cases.single is None or rounds > 1 or sampling_rate < 1
        if deadline is not None and deadline.passed and composed and isinstance(privacy, ApproximateDP):
            # an upper end found in less time may lie below the one that is computed anew; the budget does not
            return replace(found, spent=DeltaInterval(0.0, found.budget))
        return found

    @property
    def lower(self) -> float:
        """Lower end of what is spent."""
        return self.spent.lower

    @property
    def upper(self) -> float:
        """Upper end of what is spent."""
        return self.spent.upper

    @property
    def width(self) -> float:
        """Relative width of the enclosure."""
        return self.spent.width

    @property
    def budget(self) -> float:
        """What may be spent."""
        if isinstance(self.privacy, ZeroConcentratedDP):
            return self.privacy.rho
        return float(getattr(self.privacy, "delta", 0.0) or self.privacy.epsilon)

    @property
    def in_rounds(self) -> dict[str, Any]:
        """Rounds and sampling, by the names that accounting has for them."""
        return {"rounds": self.rounds, "sampling_rate": self.sampling_rate}

    @property
    def bound_how(self) -> str:
        return RECOMPUTED

    def proved_bound(self) -> float:
        """The lower bound that follows: in closed form, or from a scale that is too small, seen anew."""
        least = least_cost(self.noise, self.privacy, self.loss, **self.in_rounds)
        if self.share and spends_more(self.noise, self.privacy, self.share, **self.in_rounds):
            squared = self.loss == "squared"
            with np.errstate(all="ignore"):  # a law of a changed file may be of any scale
                cost = self.noise.variance if squared else self.noise.absolute_error
            least = max(least, cost * self.share ** (2 if squared else 1))
        return least

    @property
    def statement(self) -> Mapping[str, Any]:
        """The requirement, the query and the law."""
        return {
            "privacy": self.privacy,
            "sensitivity": self.noise.sensitivity,
            "dimension": self.noise.dimension,
            "law": self.noise.law,
            "loss": self.loss,
            "value": self.value,
            **({"lower_bound": self.lower_bound} if self.lower_bound else {}),
            "rounds": self.rounds,
            "sampling_rate": self.sampling_rate,
        }

    def checks(self) -> pd.DataFrame:
        """Privacy, a second opinion where there is one, the cost, and what it is at least."""
        rows = self._rows(_spent(self, Deadline()))
        if self.lower_bound:
            what = "every scale of this law" if self.share else "every symmetric law"
            margin = min(self.proved_bound(), self.value) - self.lower_bound
            claim = f"{what} that is private loses at least {self.lower_bound:.9g}"
            rows.append((claim, RECOMPUTED, margin, margin >= 0))
        return check_table(rows)

    @property
    def evaluated(self) -> pd.DataFrame:
        """The checks with the enclosure that is stored."""
        return check_table(self._rows(self.spent))

    @np.errstate(under="ignore")
    def _rows(self, spent: DeltaInterval) -> list[Check]:
        margin = self.budget - spent.upper
        agree = self.spent.vouched(spent, self.budget)
        rows: list[Check] = [
            (f"{self.privacy} is kept", spent.how, margin, margin >= 0),
            ("the enclosure stored is that of the law", RECOMPUTED, self.upper - spent.upper, agree),
        ]
        shift = self.noise.worst_cases.single if self.rounds == 1 and self.sampling_rate == 1 else None
        normal = self.noise.dimension > 1 and is_gaussian(self.noise.law)
        if (
            isinstance(self.privacy, ApproximateDP)
            and self.privacy.delta
            and shift is not None
            and not normal
        ):
            second = integrated_profile(self.noise.law, shift, self.privacy.epsilon)
            # near an atom's loss δ is only defined to the rounding of ε, and of log densities far out to that of theirs
            error = abs(second - spent.upper) if self.accounting == "exact" else 0.0
            room = 1e-5 * spent.upper + 3e-13 - error
            rows.append(("quadrature of the density agrees", RECOMPUTED, room, room >= 0))
        error = abs(_integrated_cost(self.noise.law, self.loss) / self.value - 1)
        own = self.noise.variance if self.loss == "squared" else self.noise.absolute_error
        holds = error <= 1e-6 and self.value >= own * (1 - 1e-12)  # a formula, and the integral beside it
        rows.append((f"the {self.loss} loss is {self.value:.9g}", RECOMPUTED, 1e-6 - error, holds))
        return rows


@np.errstate(under="ignore")
def _spent(c: CalibrationCertificate, deadline: Deadline) -> DeltaInterval:
    """Enclose what a law spends: by closed forms, or on a grid that no search uses."""
    noise, privacy, cases = c.noise, c.privacy, c.noise.worst_cases
    if isinstance(privacy, ZeroConcentratedDP):
        rho = c.rounds * worst_rho(noise.law, noise.sensitivity, noise.dimension, privacy.xi / c.rounds)
        return DeltaInterval(rho * (1 - 3e-9), rho)
    delta = getattr(privacy, "delta", 0.0)
    if delta == 0:
        loss = amplified(cases.largest_loss(), rounds=c.rounds, sampling_rate=c.sampling_rate)
        closed = c.sampling_rate == 1 and cases.loss_is_closed
        return DeltaInterval(loss * (1 - 1e-14), loss, PROVED if closed else RECOMPUTED)
    if c.sampling_rate < 1:
        sampled: dict[str, Any] = {"rounds": c.rounds, "sampling_rate": c.sampling_rate, "deadline": deadline}
        found = cases.delta_interval(privacy.epsilon, width=1.7e-2, **sampled)
        if found.upper > delta:
            tight = cases.delta_interval(privacy.epsilon, width=1.3e-3, **sampled)
            found = _narrower(found, tight)
        # where the time is over, the interval is that of its first grid, and a search's is finer
        for width in (4.3e-3, 5e-3):
            if found.upper > delta:
                upper = min(
                    upper_delta(terms, privacy.epsilon, width=width, **sampled)
                    for terms in cases.alternatives
                )
                found = _narrower(found, DeltaInterval(0.0, upper))
        return found
    if (cases.single is not None and c.rounds == 1) or is_gaussian(noise.law):
        found = cases.delta_interval(privacy.epsilon, rounds=c.rounds)
    elif late := _late(c, deadline, delta):
        found = late
    else:
        found = cases.delta_interval(
            privacy.epsilon,
            rounds=c.rounds,
            width=7.3e-3,
            closed_form=False,
            points=2**16,
            deadline=deadline,
        )
        terms = [tuple(replace(t, count=t.count * c.rounds) for t in terms) for terms in cases.alternatives]
        upper = min(found.upper, *(upper_delta(t, privacy.epsilon) for t in terms))
        if upper > delta:
            tight = cases.delta_interval(
                privacy.epsilon, rounds=c.rounds, width=3e-3, points=2**17, deadline=deadline
            )
            upper = min(upper, tight.upper)
        found = DeltaInterval(min(found.lower, upper), upper, found.how)
    if c.accounting != "exact" and found.lower <= delta:  # a sufficient condition is its own proof
        return DeltaInterval(found.lower, min(found.upper, delta), found.how)
    return found


def _late(c: CalibrationCertificate, deadline: Deadline, delta: float) -> DeltaInterval | None:
    """Past the deadline one bound from above that keeps the budget is enough."""
    if deadline.passed:
        epsilon = getattr(c.privacy, "epsilon", 0.0)
        for terms in c.noise.worst_cases.alternatives:
            for seen in (
                deadline,
                None,
            ):  # the coarse grid first: atoms may lie on it, and beside a finer one
                upper = upper_delta(terms, epsilon, rounds=c.rounds, deadline=seen)
                if upper <= delta:
                    return DeltaInterval(0.0, upper)
    return None


def _narrower(a: DeltaInterval, b: DeltaInterval) -> DeltaInterval:
    return DeltaInterval(max(a.lower, b.lower), min(a.upper, b.upper), b.how)


def _integrated_cost(law: Any, loss: str) -> float:
    """Var T = ∫ 4t P(T > t) dt or E|T| = ∫ 2 P(T > t) dt over t > 0, or sums over the integers."""
    power = 2 if loss == "squared" else 1
    if not hasattr(law.dist, "_logpdf"):
        # Where the law is wide every h-th integer says the same, up to (h/std)²/12 from its corner at 0.
        h = (
            max(int(float(law.std()) * _STRIDE), 1)
            if law.dist.name in ("dlaplace", "discrete_gaussian")
            else 1
        )
        k = h * np.arange(1, math.ceil(60 * float(law.std()) / h) + 3)
        return 2 * h * float(np.sum(k.astype(float) ** power * law.pmf(k)))
    top, starts = min(float(law.support()[1]), 80 * float(law.std())), np.zeros(1)
    edges, order = np.append(np.arange(0, top, float(law.std()) / 4), top), 16
    if law.dist.name == "staircase":
        (_, gamma), _, step = law.dist._parse_args(*law.args, **law.kwds)
        # Where ε is large the law is narrower than its first step, and costs beyond it; where ε is tiny it has a great many
        # steps, and is without memory from one block of them to the next.
        shells = 3 + math.ceil(top / step)
        block = min(shells, _BLOCK)
        starts = step * block * np.arange(math.ceil(shells / block))
        edges = np.add.outer(step * np.arange(block + 1), [0.0, gamma * step]).ravel()[:-1]
        order = 2  # exact: between the edges P(T > t) is a line
    edges = np.unique(edges)
    nodes, weights = np.polynomial.legendre.leggauss(order)
    width = np.diff(edges)[:, None]
    t = edges[:-1, None] + width * (1 + nodes) / 2
    mass = law.sf(t) * weights * width / 2
    reached = law.sf(starts) / law.sf(0.0)  # each block's share of the first one's masses
    within = [float(np.sum(t**j * mass)) for j in range(power)]
    whole = within[0] if power == 1 else starts * within[0] + within[1]
    return 2 * power * float(np.sum(reached * whole))

"""Evidence for the noise of K coordinates: δ composed once more, the exact cost, and the one-dimensional lower bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pandas as pd

from mechdesign.accounting.interval import DeltaInterval
from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.certificate import (
    CLAIMED,
    FORM,
    PROVED,
    RECOMPUTED,
    Check,
    OldCertificate,
    check_table,
)
from mechdesign.evidence.rounding import round_up
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.calibration.evaluation import consumed, evaluated
from mechdesign.noise.optimal.certificate import NoiseCertificate
from mechdesign.noise.optimal.costs import law_cost
from mechdesign.noise.optimal.many.copies import Copies
from mechdesign.noise.optimal.many.mechanism import CellProduct
from mechdesign.noise.optimal.many.question import cost_of
from mechdesign.problem.checks import instance, number, positive, whole
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import ApproximateDP, PureDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.solvers.deadline import Deadline

__all__ = ["ManyNoiseCertificate", "averaged", "calibrated", "checked", "enclosed_spent"]


def averaged(loss: Any, mean: int) -> Loss:
    r"""The loss whose optimum for one coordinate bounds that of several from below.

    The mean of m answers that change is one answer of the same sensitivity, with noise :math:`\bar T` that must be private on its own:
    :math:`E\,|\bar T| \le E\,|T|`, :math:`E\,g(\bar T) \le E\,g(T)` by Jensen, and :math:`E\,\bar T^2 = E\,T^2/m` for
    symmetric laws, which suffice, since a change of signs keeps the box of changes and a mixture of private laws is
    private. So m times the squared part may be charged; beside a function, which need not be even, only once.

    Examples
    --------
    >>> averaged({"absolute": 1, "squared": 2}, 10).name
    '1*absolute + 20*squared'
    """
    given = Loss.of(loss)
    return Loss(given.absolute, given.squared * (mean if given.polynomial else 1), given.function)


def delta_spent(spent: DeltaInterval, privacy: Any) -> DeltaInterval:
    """What a named law consumes of δ: nothing under pure privacy, where the largest loss is enclosed."""
    return spent if getattr(privacy, "delta", 0.0) else DeltaInterval(0.0, 0.0, spent.how)


def enclosed_spent(noise: CellProduct | AdditiveNoise, privacy: PureDP | ApproximateDP) -> DeltaInterval:
    """Enclose δ(ε): by exact sums where each of the c coordinates that move keeps its share (ε/c, δ/c), else in doubles."""
    if isinstance(noise, AdditiveNoise):
        return delta_spent(calibrated(noise, privacy), privacy)
    share = noise.moved * noise.law.exact_delta(Fraction(privacy.epsilon) / noise.moved)
    if share <= Fraction(getattr(privacy, "delta", 0.0)):
        upper = getattr(privacy, "delta", 0.0)
        lower = noise.delta_interval(privacy.epsilon).lower if upper else 0.0
        return DeltaInterval(min(lower, upper), upper, PROVED)
    if isinstance(privacy, PureDP):  # each would have to keep ε/c: what it misses by, composed plainly
        return DeltaInterval(0.0, min(round_up(share), 1.0), PROVED)
    return noise.delta_interval(privacy.epsilon)


@serializable("many-noise-certificate")
@dataclass(frozen=True)
class ManyNoiseCertificate(OldCertificate):
    """What the noise of K coordinates spends and costs, enclosed apart from the search that found it.

    Parameters
    ----------
    privacy : PureDP or ApproximateDP
    sensitivity : float
    dimension : int
    loss : as in `OptimalNoise`
    mechanism : CellProduct or AdditiveNoise
    value : float
        Expected loss of one coordinate that is claimed.
    lower_bound : float
        What no independent noise of one law goes below.
    spent : DeltaInterval
        Encloses δ at ε.
    bound : NoiseCertificate, optional
        The optimum of one coordinate under the averaged loss, at the privacy of the mean (under pure privacy the same loss, at ε/c).
    changed : int, optional
        c: how many coordinates change at once, at most; all K when not given.
    mean : int, optional
        m: the bound is on the mean of m of the c; all when not given. Where m is less, its privacy is what that of ⌊c/m⌋
        such means together implies (`mechdesign.noise.optimal.many.copies`).
    """

    privacy: PureDP | ApproximateDP
    sensitivity: float
    dimension: int
    loss: Any
    mechanism: CellProduct | AdditiveNoise
    value: float
    lower_bound: float
    spent: DeltaInterval
    bound: NoiseCertificate | None = None
    changed: int | None = None
    mean: int | None = None

    def __post_init__(self) -> None:
        instance("privacy", self.privacy, PureDP, ApproximateDP)
        instance("mechanism", self.mechanism, CellProduct, AdditiveNoise)
        instance("spent", self.spent, DeltaInterval)
        whole("dimension", self.dimension, 1)
        if self.changed is not None:
            whole("changed", self.changed, 1, self.dimension)
        if self.mean is not None:
            whole("mean", self.mean, 1, self.moved)
        positive("value", self.value)
        number("lower_bound", self.lower_bound)
        if self.bound is not None:
            instance("bound", self.bound, NoiseCertificate)

    @property
    def delta(self) -> float:
        """δ of the requirement."""
        return float(getattr(self.privacy, "delta", 0.0))

    @property
    def moved(self) -> int:
        """How many coordinates change at once, at most."""
        return self.changed or self.dimension

    @property
    def statement(self) -> Mapping[str, Any]:
        """The problem in exact numbers, and what is claimed of it; without a bound's certificate no lower bound is."""
        claimed = {} if self.bound is None else {"lower_bound": self.lower_bound}
        return {
            "epsilon": Fraction(self.privacy.epsilon),
            "delta": Fraction(self.delta),
            "sensitivity": Fraction(self.sensitivity),
            "dimension": self.dimension,
            "changed": self.changed,
            "loss": self.loss,
            "value": self.value,
            **claimed,
        }

    @property
    def bound_how(self) -> str:
        return RECOMPUTED if self.bound is None else self.bound.bound_how

    def checks(self) -> pd.DataFrame:
        """Privacy over all changes up to the sensitivity, the cost, and the lower bound."""
        return self._checked()

    def _checked(self, spent: DeltaInterval | None = None) -> pd.DataFrame:
        """The checks; with what was found a moment ago, nothing is composed again."""
        same = self.mechanism.dimension == self.dimension
        rows: list[Check] = [("the noise has K coordinates", PROVED, 0.0 if same else -1.0, same)]
        if isinstance(self.mechanism, CellProduct):
            rows += self._cells(self.mechanism, spent or enclosed_spent(self.mechanism, self.privacy))
        else:
            rows += self._named(self.mechanism, spent or calibrated(self.mechanism, self.privacy))
        if self.bound is not None or self.lower_bound > 0:
            rows.append(self._bounded())
        return check_table(rows)

    def _cells(self, noise: CellProduct, spent: Any) -> list[Check]:
        margin = self.delta - spent.upper
        reach = Fraction(noise.law.width) * noise.law.cells_per_shift - Fraction(self.sensitivity)
        together = noise.moved - self.moved
        dearer = Fraction(self.value) - law_cost(noise.law, Loss.of(self.loss))
        exact = PROVED if Loss.of(self.loss).function is None else RECOMPUTED
        return [
            (f"{self.privacy} is kept by {noise.moved} coordinates", spent.how, margin, margin >= 0),
            ("as many coordinates change", PROVED, float(together), together >= 0),
            self._stated(spent),
            ("shifts up to the sensitivity", PROVED, float(reach), reach >= 0),
            ("value", exact, float(dearer), dearer >= 0),
        ]

    def _named(self, noise: AdditiveNoise, spent: Any) -> list[Check]:
        held = Sensitivity.of(noise.sensitivity)
        size, count = held.bounds(noise.dimension)[0]
        reach, together = size - self.sensitivity, count - self.moved
        covers = reach >= 0 and together >= 0 and held.allows(((self.sensitivity, self.moved),))
        rows: list[Check] = [("changes up to the sensitivity", PROVED, min(reach, float(together)), covers)]
        # but for the check of the evidence made here, which is not what is stored
        claims = evaluated(noise, self.privacy, "squared", noise.variance, stated=spent, fresh=spent)
        rows += [claim[:4] for claim in claims if claim.claim not in FORM]
        rows.append(self._stated(delta_spent(spent, self.privacy)))
        error = abs(cost_of(noise, Loss.of(self.loss)) / self.value - 1)
        rows.append(("value", RECOMPUTED, 1e-9 - error, error <= 1e-9))
        return rows

    def _stated(self, spent: DeltaInterval) -> Check:
        """Whether the enclosure stored claims no more than the one computed anew."""
        holds = self.spent.vouched(spent, self.delta)
        return ("the enclosure stored is that of the law", RECOMPUTED, self.spent.upper - spent.upper, holds)

    def _bounded(self) -> Check:
        claim = "lower bound"
        if self.bound is None:
            return (claim, PROVED, -self.lower_bound, self.lower_bound <= 0)
        held, k = self.bound, self.moved
        mean = self.mean or k
        pure = self.delta == 0
        asked = Loss.of(self.loss) if pure else averaged(self.loss, mean)
        fits = Loss.of(held.loss) == asked and held.sensitivity == self.sensitivity
        if pure:  # c coordinates are ε-DP if and only if each is ε/c-DP
            fits = (
                fits
                and held.delta == 0
                and Fraction(held.privacy.epsilon) * k >= Fraction(self.privacy.epsilon)
            )
        else:
            copies = Copies.of(k, mean, self.privacy.epsilon, self.delta)
            fits = fits and copies.imply(held.privacy.epsilon, float(held.delta))
        margin = float(held.lower_bound - Fraction(self.lower_bound))
        return (claim, self.bound_how if fits else CLAIMED, margin, fits and margin >= 0 and held.verify())


def calibrated(noise: AdditiveNoise, privacy: Any, deadline: Deadline | None = None) -> DeltaInterval:
    """Hold a named law to the requirement: what it consumes, or an error where that is too much."""
    spent = consumed(noise, privacy, deadline)
    claims = evaluated(noise, privacy, "squared", noise.variance, stated=spent, fresh=spent)
    if failed := [claim.claim for claim in claims if not claim.holds]:
        raise SolverError(
            f"calibration check failed: {'; '.join(failed)}", solver="calibrate", status="check"
        )
    return spent


def checked(certificate: ManyNoiseCertificate, spent: DeltaInterval) -> ManyNoiseCertificate:
    """Return the certificate, or raise where a claim fails; `spent` is its own, found a moment ago."""
    table = certificate._checked(spent)
    if not table["holds"].all():
        bad = table.loc[~table["holds"], "claim"].tolist()
        raise DesignError.of("mechanism", str(certificate.mechanism), f"fails its own check: {bad}")
    return certificate

"""What a calibration returns: the law, what it costs, and its exact privacy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.accounting.interval import DeltaInterval
from mechdesign.accounting.losses import frozen_parts
from mechdesign.accounting.terms import NoiseTerm
from mechdesign.errors import DesignError
from mechdesign.evidence.account import Account
from mechdesign.evidence.certificate import PROVED, Check
from mechdesign.evidence.digits import at_least, at_most, shown
from mechdesign.evidence.old_results import OldResult
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.calibration.account import (
    calibration_account,
    calibration_alternatives,
    draw_calibration,
    release_words,
)
from mechdesign.noise.calibration.certificate import CalibrationCertificate
from mechdesign.problem.privacy import ApproximateDP, PureDP, ZeroConcentratedDP

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CalibrationResult"]


@serializable("calibration-result")
@dataclass(frozen=True, eq=False)
class CalibrationResult(OldResult):
    """A calibrated law with its privacy; `mechanism` is the `AdditiveNoise` to deploy."""

    certificate: CalibrationCertificate | None = None

    def beside(self) -> Iterator[Check]:
        yield "the law is of the family that was asked for", PROVED, math.nan, self._of_family()

    def _of_family(self) -> bool:
        """A bound over all scales is one for a family without a shape."""
        family, (dist, shapes, _, _) = self.design.family, frozen_parts(self.law)
        scales = bool(self.certificate and self.certificate.share)
        if family.discrete or family.starts is not None:
            return not scales and dist.name == family.member.dist.name
        _, known, _, _ = frozen_parts(family.member)
        return bool(dist.name == family.member.dist.name and shapes == known)

    @property
    def noise(self) -> AdditiveNoise:
        """The mechanism."""
        return self.mechanism

    @property
    def law(self) -> Any:
        """The frozen `scipy.stats` law of one coordinate."""
        return self.noise.law

    @property
    def parameters(self) -> dict[str, float]:
        """Shape and scale parameters by name."""
        return self.noise.parameters

    @property
    def variance(self) -> float:
        """Variance of one coordinate."""
        return self.noise.variance

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of one coordinate."""
        return self.noise.standard_deviation

    @property
    def absolute_error(self) -> float:
        """E|T| of one coordinate."""
        return self.noise.absolute_error

    @property
    def mse(self) -> float:
        """Mean squared error of the whole answer, K times the variance."""
        return self.noise.mse

    def delta(self, epsilon: Any) -> Any:
        """δ(ε), from above; from the ε of the calibration on, its δ holds too (δ falls with ε).

        Parameters
        ----------
        epsilon : float or ndarray
            ε ≥ 0.
        """
        if self._repeated:
            values = np.asarray(epsilon, dtype=float)
            each = [self.delta_interval(float(e)).upper for e in values.ravel()]
            found = np.array(each).reshape(values.shape)[()]
        else:
            found = self.noise.privacy_profile(epsilon)
        if (proved := self._proved) is None:
            return found
        return np.where(np.asarray(epsilon, dtype=float) >= proved[0], np.minimum(found, proved[1]), found)[
            ()
        ]

    @property
    def _proved(self) -> tuple[float, float] | None:
        """The (ε, δ) of the certificate."""
        privacy = self.design.privacy
        if self.certificate is None or not isinstance(privacy, PureDP | ApproximateDP):
            return None
        return privacy.epsilon, getattr(privacy, "delta", 0.0)  # what is kept; a file could state less

    def delta_interval(self, epsilon: float, **options: Any) -> DeltaInterval:
        """Interval for δ(ε) of all rounds, and whether it is proved; options as in `mechdesign.accounting.delta_interval`."""
        return self.noise.delta_interval(epsilon, **{**self._repeated, **options})

    def epsilon(self, delta: float, **options: Any) -> float:
        """The least ε certified at `delta` for all rounds, rounded up; ``inf`` if there is none."""
        found = self.noise.epsilon(delta, **{**self._repeated, **options})
        proved = self._proved
        return found if proved is None or delta < proved[1] else min(found, proved[0])

    @property
    def _repeated(self) -> dict[str, Any]:
        """Rounds and sampling, where there are any."""
        given = {"rounds": self.design.rounds, "sampling_rate": self.design.sampling_rate}
        return given if given != {"rounds": 1, "sampling_rate": 1.0} else {}

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation over the ℓ₂ sensitivity, as libraries for private training state noise."""
        query = self.design.query
        return self.standard_deviation / query.several.largest_l2(query.dimension)

    def noise_terms(self) -> tuple[NoiseTerm, ...]:
        """What accounting composes, of all rounds.

        Raises
        ------
        DesignError
            The rounds are sampled: terms know no sampling, `delta_interval` and `epsilon` do.
        """
        self._refuse_sampled("noise_terms")
        return self.design.query.in_rounds(self.noise.noise_terms())

    def pld(self) -> Any:
        """dp-accounting's `PrivacyLossDistribution` of all rounds; not of sampled ones, whose `epsilon` is here."""
        self._refuse_sampled("pld")
        found = self.noise.pld()
        return found if self.design.rounds == 1 else found.self_compose(self.design.rounds)

    def _refuse_sampled(self, name: str) -> None:
        if self.design.sampling_rate < 1:
            raise DesignError.of(
                name,
                f"sampling rate {self.design.sampling_rate:g}",
                "knows no sampling: use epsilon or delta_interval",
            )

    def release(self, x: Any) -> Any:
        """Return answers with noise, exactly, for deployment: `AdditiveNoise.release`."""
        return self.noise.release(x)

    def to_frame(self) -> pd.DataFrame:
        """One row: the law and what it costs."""
        row = {"noise": self.law.dist.name, "dimension": self.noise.dimension, **self.parameters}
        return pd.DataFrame([{**row, "variance": self.variance, "absolute error": self.absolute_error}])

    def account(self) -> Account:
        return calibration_account(self)

    def alternatives(self) -> pd.DataFrame:
        return calibration_alternatives(self)

    def plot(self, **options: Any) -> Figure:
        """Draw the law and its tail, with the usual laws at the same privacy."""
        return draw_calibration(self, **options)

    def _audit(self) -> pd.DataFrame:
        if self.certificate is None:
            return super()._audit()
        spent, budget = self.certificate.upper, self.certificate.budget
        slack = budget - spent
        unit = "ρ" if isinstance(self.design.privacy, ZeroConcentratedDP) else "ε"
        if getattr(self.design.privacy, "delta", 0.0):
            unit = f"δ at ε = {self.design.privacy.epsilon:g}"
        row = ("privacy", unit, spent, budget, slack, float("nan"), slack <= 1e-2 * budget)
        return pd.DataFrame([row], columns=AUDIT_COLUMNS)

    def _evidence(self) -> list[str]:
        rounds, rate = self.design.rounds, self.design.sampling_rate
        often = "" if rounds == 1 else f" in {rounds} rounds"
        often += "" if rate == 1 else f", each on a Poisson sample at rate {rate:g}"
        lines = [
            self.noise.summary(),
            f"meets {self.design.privacy}{often} by {self.design.accounting} accounting",
        ]
        if not self.noise.worst_cases.exact and not isinstance(self.design.privacy, PureDP):
            lines.append(
                "the worst change is bounded from above: no exact one is proved for these bounds and this law"
            )
        lines.append(release_words(self.noise))
        if self.certificate is not None:
            low, high = self.certificate.lower, self.certificate.upper
            lines.append(
                f"enclosed apart from the search: [{at_least(low)}, {at_most(high)}] of {shown(self.certificate.budget)}"
            )
        return lines

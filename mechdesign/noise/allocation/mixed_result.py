"""Evidence and result of an allocation whose coordinates have types of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError
from mechdesign.evidence.account import Account
from mechdesign.evidence.certificate import PROVED, RECOMPUTED, OldCertificate, check_table
from mechdesign.evidence.digits import at_most
from mechdesign.evidence.old_results import OldResult
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.allocation.mixed import composed
from mechdesign.noise.allocation.question import AllocationQuestion
from mechdesign.noise.mixed_noise import MixedNoise
from mechdesign.noise.pictures import relative_table
from mechdesign.plotting import COLOURS, figure, sized
from mechdesign.problem.checks import instance
from mechdesign.problem.privacy import ApproximateDP
from mechdesign.problem.words import NEIGHBOURS, guarantee, privacy_words, unit_words
from mechdesign.typing import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MixedAllocationResult", "MixedCertificate", "mixed_cost", "refuse_limits"]

_ROUNDING = 1e-12


def mixed_cost(question: AllocationQuestion, law: MixedNoise) -> float:
    r"""Return :math:`\sum_i w_i E|T_i|^p`."""
    moments = law.absolute_moment(float(question.loss))
    return float((moments if question.weights is None else moments * question.weights).sum())


@serializable("mixed-certificate")
@dataclass(frozen=True, eq=False)
class MixedCertificate(OldCertificate):
    """Evidence that a mix of Laplace and Gaussian noise keeps (ε, δ), and what it costs.

    Parameters
    ----------
    question : AllocationQuestion
    law : MixedNoise
    value : float
        What is claimed of the loss.
    """

    question: AllocationQuestion
    law: MixedNoise
    value: float

    @property
    def statement(self) -> Mapping[str, Any]:
        """The question, and the value claimed."""
        asked = {f.name: getattr(self.question, f.name) for f in fields(AllocationQuestion)}
        return {**asked, "value": self.value}

    def checks(self) -> pd.DataFrame:
        """Privacy by the exact composition over all coordinates, and the loss."""
        q = self.question
        alike = self.law.sensitivities.shape == q.sensitivities.shape and bool(
            (self.law.sensitivities == q.sensitivities).all()
        )
        if not alike:
            return check_table([("the law is for these sensitivities", PROVED, -math.inf, False)])
        privacy = instance("privacy", q.privacy, ApproximateDP)
        delta, basic = composed(self.law, privacy)
        room = self.value * (1 + _ROUNDING) - mixed_cost(q, self.law)
        how = PROVED if basic else RECOMPUTED
        claim = f"δ at ε = {privacy.epsilon:g} is at most {privacy.delta:g} when all coordinates change by all they may"
        return check_table(
            [
                (claim, how, privacy.delta - delta, delta <= privacy.delta),
                (f"the loss is at most {self.value:.9g}", RECOMPUTED, room, room >= 0),
            ]
        )


@serializable("mixed-allocation-result")
@dataclass(frozen=True, eq=False)
class MixedAllocationResult(OldResult):
    """A type and a scale for each coordinate."""

    @property
    def scales(self) -> Array:
        """β_i or σ_i, shape (K,)."""
        return self.mechanism.scales

    @property
    def kinds(self) -> tuple[str, ...]:
        """The type of each coordinate."""
        return self.mechanism.kinds

    @property
    def mse(self) -> float:
        """E‖T‖₂²."""
        return self.mechanism.mse()

    @property
    def delta(self) -> float:
        """δ of the exact composition at the design's ε, from above."""
        return composed(self.mechanism, self.design.privacy)[0]

    def to_frame(self) -> pd.DataFrame:
        """A row per coordinate."""
        return pd.DataFrame(
            {
                "coordinate": np.arange(len(self.scales)),
                "sensitivity": self.mechanism.sensitivities,
                "noise": list(self.kinds),
                "scale": self.scales,
                "variance": self.mechanism.variance(),
            }
        )

    def compare(self) -> pd.DataFrame:
        """Compare with the allocations of one type.

        Returns
        -------
        DataFrame
            Columns mechanism, error (the design's own loss), relative to this result's.
        """
        rows = [("this mix", self.value)]
        for noise in ("gaussian", "laplace"):
            rows.append(
                (f"{noise} on every coordinate", self.design.of_one_type(noise).solve(certify=False).value)
            )
        return relative_table(rows)

    def alternatives(self) -> pd.DataFrame:
        return self.compare()

    def account(self) -> Account:
        d, kinds = self.design, self.kinds
        value = "sum of E|noise|^p over the coordinates" + ("" if d.weights is None else ", weighted")
        question = [
            f"A query returns {len(kinds)} numbers about a data set. Between neighbouring data sets number i changes by at most "
            "λ_i; all may change at once. Each gets Laplace or Gaussian noise of a scale of its own, independently.",
            privacy_words(d.privacy, NEIGHBOURS),
            unit_words("computed the sensitivities", "The guarantee is for the whole vector, released once."),
            f"Wanted are types and scales of least {value}: a search, never worse than either type alone.",
        ]
        return Account(
            f"Laplace and Gaussian noise for {len(kinds)} numbers at {guarantee(d.privacy)}",
            f"Laplace noise on {kinds.count('laplace')}, Gaussian on {kinds.count('gaussian')} of them.",
            "\n\n".join(question),
            value,
            (guarantee(d.privacy), f"composed exactly: δ at most {at_most(self.delta, 6)}"),
            "The standard deviation of the noise on each number, by its type.",
            "The same requirement met by one type of noise on all numbers.",
        )

    def plot(self, **options: Any) -> Figure:
        """Draw the standard deviation of each coordinate, by type."""
        fig, axis = figure(**sized(options, 5.0, 3.2))
        x, deviation, kinds = (
            np.arange(len(self.scales)),
            np.sqrt(self.mechanism.variance()),
            np.array(self.kinds),
        )
        for k, kind in enumerate(("laplace", "gaussian")):
            axis.plot(x[kinds == kind], deviation[kinds == kind], "o^"[k], color=COLOURS[k], label=kind)
        axis.set(xlabel="number", ylabel="standard deviation", ylim=(0, None))
        axis.legend()
        return fig

    def _audit(self) -> pd.DataFrame:
        target, delta = self.design.privacy.delta, self.delta
        rows = [("privacy", 0, delta, target, target - delta, float("nan"), target - delta <= 1e-3 * target)]
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def _evidence(self) -> list[str]:
        kinds = self.kinds
        return [
            f"{kinds.count('laplace')} coordinates with Laplace noise, {kinds.count('gaussian')} with Gaussian, "
            f"{kinds.count('none')} with none; δ at most {self.delta:.9g}",
            f"released on multiples of 2^-30 of each scale, wider by {self.mechanism.lattice_cost:.2g}",
            f"MSE: {self.mse:.9g}",
        ]


def refuse_limits(design: AllocationQuestion) -> None:
    """Raise DesignError for what the search over types does not do."""
    for name in ("lower", "upper", "groups"):
        if getattr(design, name) is not None:
            raise DesignError.of(
                name,
                getattr(design, name),
                'has no search over types: noise="gaussian" or "laplace" takes it',
            )

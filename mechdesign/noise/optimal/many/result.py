"""What `OptimalNoise` returns for several coordinates: the noise, what else was tried, and the evidence."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.accounting.interval import DeltaInterval
from mechdesign.evidence.account import Account
from mechdesign.evidence.certificate import PROVED, Check
from mechdesign.evidence.digits import at_least, at_most, shown
from mechdesign.evidence.old_results import OldResult
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.laws.families import FAMILIES
from mechdesign.noise.optimal.many.certificate import ManyNoiseCertificate, enclosed_spent
from mechdesign.noise.optimal.many.mechanism import CellProduct
from mechdesign.noise.pictures import draw_laws, relative_table
from mechdesign.problem.words import NEIGHBOURS, guarantee, loss_words, privacy_words, unit_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ManyNoiseResult"]

_WORDS = {
    "free": "a free log-concave density, constant on cells",
    "composed": "the optimum of one coordinate at its share of the budget",
    "pure": "the optimum of one coordinate at its share of the budget",
    "lattice": "the optimum of one coordinate",
}
_PUBLISHED = re.compile(r"cactus|Rényi, order [0-9.e+]+")


@serializable("many-noise-result")
@dataclass(frozen=True, eq=False)
class ManyNoiseResult(OldResult):
    """Independent noise of one law for K coordinates; `value` is the expected loss of one of them.

    `mechanism` is a `CellProduct`, or the `AdditiveNoise` of a named family where none of the free laws is cheaper.
    """

    certificate: ManyNoiseCertificate | None = None
    table: pd.DataFrame | None = None
    """The laws tried and their values, cheapest first."""

    @property
    def noise(self) -> CellProduct | AdditiveNoise:
        """The mechanism."""
        return self.mechanism

    @property
    def law(self) -> Any:
        """The law of one coordinate."""
        return self.mechanism.law

    @property
    def kind(self) -> str:
        """Which law won: "free", "composed", or the name of a family."""
        return "pure" if self.table is None else str(self.table["law"].iloc[0])

    @property
    def variance(self) -> float:
        """Variance of one coordinate."""
        return float(self.mechanism.variance)

    @property
    def absolute_error(self) -> float:
        """E|T| of one coordinate."""
        return float(self.mechanism.absolute_error)

    def delta_interval(self, epsilon: float) -> DeltaInterval:
        """Enclose δ(ε) of all coordinates together."""
        return self.mechanism.delta_interval(epsilon)

    def release(self, x: Any) -> Any:
        """Return answers with noise, exactly, for deployment."""
        return self.mechanism.release(x)

    def beside(self) -> Iterator[Check]:
        """That the laws tried begin with this one, and go on in order, none below what is proved."""
        if self.table is None:
            return
        holds = list(self.table) == ["law", "value"] and len(self.table) > 0 and self.table["law"].is_unique
        if holds:
            first, values = str(self.table["law"].iloc[0]), self.table["value"].to_numpy(dtype=float)
            if isinstance(self.mechanism, AdditiveNoise):
                family, held = FAMILIES.get(first), self.law.dist.name
                holds = family is not None and (
                    held == first or (held == "norm" and family.normal is not None)
                )
            else:
                holds = first in _WORDS or _PUBLISHED.fullmatch(first) is not None
            ordered = bool(np.isfinite(values).all() and (np.diff(values) >= 0).all())
            holds = holds and ordered and values[0] == self.value >= (self.lower_bound or 0.0)
        yield "the laws tried begin with this one, in order", PROVED, math.nan, holds

    def tried(self) -> pd.DataFrame:
        """The laws tried, cheapest first."""
        return pd.DataFrame() if self.table is None else self.table

    def account(self) -> Account:
        design = self.design
        what = _WORDS.get(self.kind, f"the {self.kind.replace('_', ' ')} law")
        value = f"expected {loss_words(design.loss)} of one number"
        size, moved = design.dimension, design.changed or design.dimension
        numbers = "a number" if size == 1 else f"{size} numbers"
        together = (
            ""
            if size == 1
            else ", all of them at once"
            if moved == size
            else f", at most {moved} of them at once"
        )
        question = [
            f"A query returns {numbers} about a data set. Between neighbouring data sets each changes by at "
            f"most {shown(design.sensitivity)}{together}. Independent noise of one law is added to each.",
            privacy_words(design.privacy, NEIGHBOURS),
            unit_words("computed the sensitivity", "The guarantee is for one release."),
            f"Wanted is the law of least {value}. Of those tried it is {what}. "
            + (
                "The lower bound holds for every additive noise."
                if moved == 1
                else "The lower bound holds for every independent noise of one law; "
                "it comes from means of the answers that change, whose privacy that of all implies, and is loose."
            ),
        ]
        spent = "" if self.certificate is None else f"δ at most {at_most(self.certificate.spent.upper, 4)}"
        return Account(
            f"Noise for {numbers} at {guarantee(design.privacy)}",
            f"For {numbers}, sensitivity {shown(design.sensitivity)} each: least {value}.",
            "\n\n".join(question),
            value,
            (guarantee(design.privacy), spent),
            "Above: the density of the noise on one number. Below: how often it is larger than t.",
            "The laws tried at the same privacy, each at its least scale. What the others cost is stated by the search, not "
            "checked.",
        )

    def alternatives(self) -> pd.DataFrame:
        """What the laws tried cost at the same privacy."""
        rows = [(str(n).replace("_", " "), float(v)) for n, v in self.tried().itertuples(index=False)]
        if self.lower_bound:
            rows.append(("proved least of independent laws", self.lower_bound))
        return relative_table(rows if len(rows) > 1 else [])

    def plot(self, **options: Any) -> Figure:
        """Draw the law and its tail."""
        return draw_laws({"this noise": self.law}, **options)

    def to_frame(self) -> pd.DataFrame:
        """One row: which law, and what it costs."""
        row = {
            "law": self.kind,
            "dimension": self.design.dimension,
            "value": self.value,
            "variance": self.variance,
        }
        return pd.DataFrame([{**row, "lower_bound": self.lower_bound}])

    def _audit(self) -> pd.DataFrame:
        privacy = self.design.privacy
        budget = getattr(privacy, "delta", 0.0)
        if isinstance(
            self.mechanism, CellProduct
        ):  # by exact sums where they are enough: a composition takes seconds
            spent = enclosed_spent(self.mechanism, privacy).upper
        else:
            spent = self.delta_interval(privacy.epsilon).upper
            if self.certificate is not None:
                spent = min(spent, self.certificate.spent.upper)
        slack = budget - spent
        row = ("privacy", 0, spent, budget, slack, float("nan"), slack <= 1e-2 * budget)
        return pd.DataFrame([row], columns=AUDIT_COLUMNS)

    def _evidence(self) -> list[str]:
        lines = [self.mechanism.summary(), f"law: {_WORDS.get(self.kind, self.kind)}"]
        if self.certificate is not None:
            low, high = self.certificate.spent.lower, self.certificate.spent.upper
            asked = getattr(self.design.privacy, "delta", 0.0)
            lines.append(
                f"delta over all changes up to the sensitivity: [{at_least(low)}, {at_most(high)}] of {shown(asked)} "
                f"({self.certificate.spent.how})"
            )
        return lines

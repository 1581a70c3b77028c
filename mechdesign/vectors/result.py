"""What a vector design returns: the mechanism, what was tried, and the best that any number of bits could do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError
from mechdesign.evidence.account import Account
from mechdesign.evidence.certificate import RECOMPUTED, Check, close
from mechdesign.evidence.digits import at_most
from mechdesign.evidence.old_results import OldResult
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.evidence.serialize import serializable
from mechdesign.plotting import COLOURS, figure, sized
from mechdesign.problem.checks import instance
from mechdesign.problem.words import LOCAL, guarantee, privacy_words
from mechdesign.vectors.sampled import SampledCoordinates
from mechdesign.vectors.signs import SampledSigns
from mechdesign.vectors.sphere import SphereQuantizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["VectorQuantizerResult", "named"]

_INPUTS = {
    "ball": "of Euclidean length at most {}",
    "sphere": "of Euclidean length {}",
    "box": "whose coordinates are at most {} in size",
}
_COLUMNS = ["mechanism", "bits", "count", "error"]


def named(mechanism: Any) -> str:
    """What a table calls a mechanism."""
    if isinstance(mechanism, SampledSigns):
        return "sampled signs"
    return "rotated simplex" if isinstance(mechanism, SphereQuantizer) else "sampled coordinates"


def row_of(mechanism: Any) -> dict[str, Any]:
    """A mechanism's row in the table of what was tried."""
    return {
        "mechanism": named(mechanism),
        "bits": mechanism.slots * mechanism.code_bits,
        "count": mechanism.slots if isinstance(mechanism, SampledCoordinates) else mechanism.near,
        "error": mechanism.error,
    }


@serializable("vector-result")
@dataclass(frozen=True, eq=False)
class VectorQuantizerResult(OldResult):
    """A vector mechanism with its evidence.

    Parameters
    ----------
    table : DataFrame, optional
        What was tried, best first: mechanism, bits, count, error.
    """

    table: pd.DataFrame | None = None

    tried_words: ClassVar[str] = "Computed anew with the checks below."

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.table is not None and list(instance("table", self.table, pd.DataFrame)) != _COLUMNS:
            raise DesignError.of("table", list(self.table), f"must have the columns {_COLUMNS}")

    def to_frame(self) -> pd.DataFrame:
        return self.tried()

    def beside(self) -> Iterator[Check]:
        """That what was tried costs what the table says, by its closed form."""
        if self.table is None:
            return
        fresh = {tuple(row.values())[:3]: row["error"] for row in map(row_of, self.design.candidates())}
        holds = len(self.table) > 0 and not self.table.duplicated(_COLUMNS[:3]).any()
        if holds:
            rows = self.table.itertuples(index=False, name=None)
            holds = all(
                close(error, fresh.get(key, math.nan))
                for *key_parts, error in rows
                for key in [tuple(key_parts)]
            )
            holds = holds and self.table["error"].is_monotonic_increasing
            holds = holds and self.table["error"].iloc[0] == self.value
        yield "what was tried costs what the table shows", RECOMPUTED, math.nan, bool(holds)

    def tried(self) -> pd.DataFrame:
        return pd.DataFrame() if self.table is None else self.table

    def alternatives(self) -> pd.DataFrame:
        rows = [("this mechanism", self.value)]
        if self.lower_bound is not None:
            best = "a lower bound" if self.design.inputs == "box" else "the cap, simulation only"
            rows.append((f"{best}, any number of bits", self.lower_bound))
        return pd.DataFrame(
            [(name, error, error / self.value if self.value else np.nan) for name, error in rows],
            columns=["mechanism", "error", "relative"],
        )

    def _audit(self) -> pd.DataFrame:
        spent, budget = self.mechanism.privacy_loss(), self.design.privacy.epsilon
        needed = float(self.mechanism.slots * self.mechanism.code_bits)
        allowed = needed if self.design.bits is None else float(self.design.bits)
        rows = [
            ("privacy", 0, spent, budget, budget - spent, np.nan, spent == budget),
            ("bits", 0, needed, allowed, allowed - needed, np.nan, needed == allowed),
        ]
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def _evidence(self) -> list[str]:
        m = self.mechanism
        what = {
            "rotated simplex": lambda: f"{m.near} of {m.outputs} vertices near",
            "sampled signs": lambda: (
                f"{m.near} of {m.outputs} texts near, {m.bits} of {m.dimension} coordinates"
            ),
            "sampled coordinates": lambda: f"{m.slots} of {m.dimension} coordinates, {m.levels} outputs each",
        }
        return [f"{named(m)}: {what[named(m)]()}; {m.slots * m.code_bits} bits a vector"]

    def account(self) -> Account:
        design = self.design
        inputs = _INPUTS[design.inputs].format(f"{design.radius:g}")
        bits = "any number of bits" if design.bits is None else f"at most {design.bits} bits"
        question = [
            f"Every person has a vector of {design.dimension} numbers {inputs}, and sends {bits}. The answer is unbiased.",
            privacy_words(design.privacy, LOCAL),
            "The budget is for the whole vector, sent once; whoever sends again spends again.",
        ]
        return Account(
            f"A vector of {design.dimension} numbers at {guarantee(design.privacy)}",
            f"In {bits}: expected squared error of the worst input.",
            "\n\n".join(question),
            "expected squared error of the worst input",
            (
                guarantee(design.privacy),
                f"{at_most(self.mechanism.privacy_loss())} spent on the whole vector",
            ),
            "The worst expected squared error of what was tried, and the least that is possible with any number of bits.",
        )

    def plot(self, **options: Any) -> Figure:
        """Draw the error of what was tried over its bits, and the lower bound."""
        fig, axis = figure(**sized(options, 5.0, 3.2))
        table = self.tried()
        if len(table):
            for colour, (name, part) in zip(COLOURS, table.groupby("mechanism", sort=False)):
                part = part.sort_values("bits")
                axis.plot(part["bits"], part["error"], "o-", color=colour, label=name)
        if self.lower_bound:
            axis.axhline(self.lower_bound, color="black", linestyle=":", label="least possible")
        axis.set(xlabel="bits a vector", ylabel="worst expected squared error", yscale="log")
        axis.legend()
        return fig

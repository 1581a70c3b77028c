"""A result whose wing has a class of its own; goes when the last wing returns `Result`."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError
from mechdesign.evidence.account import Account, headline, result_sections
from mechdesign.evidence.accuracy import Accuracy
from mechdesign.evidence.audit import claims
from mechdesign.evidence.certificate import CLAIMED, Check, OldCertificate, fitting
from mechdesign.evidence.deferred import deferred, known
from mechdesign.evidence.digits import at_least, at_most, meaningful
from mechdesign.evidence.handed import Handed
from mechdesign.evidence.results import AUDIT_COLUMNS, Result, SolveReport
from mechdesign.plotting import COLOURS, figure, plain, sized
from mechdesign.typing import Status

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["OldResult"]


@dataclass(frozen=True, eq=False)
class OldResult(Handed):
    """A mechanism with its evidence.

    Parameters
    ----------
    design : object
        What was wanted.
    mechanism : object
        What is deployed.
    value : float
        Objective value of `mechanism`, computed from the mechanism.
    lower_bound : float, optional
        Proved: no mechanism the design allows does better.
    solver_report : SolveReport
        The solver's account.
    notes : tuple of str
        What a reader should know before trusting it.
    certificate : OldCertificate, optional
        Exact evidence.
    duals : DataFrame, optional
        Multipliers of the model's constraints: family, index, dual.
    """

    design: Any
    mechanism: Any
    value: float
    lower_bound: float | None = deferred()
    solver_report: SolveReport = field(default_factory=lambda: SolveReport("none"))
    notes: tuple[str, ...] = ()
    certificate: OldCertificate | None = None
    duals: pd.DataFrame | None = deferred()

    tried_words: ClassVar[str] = "Stated by the search, not checked."
    """What a page says of `tried`."""
    assumed: ClassVar[Mapping[str, Any]] = {}
    """What a design asks that has no word for it: a certificate's statement must say that too."""

    def __post_init__(self) -> None:
        parts = (("solver_report", SolveReport), ("certificate", OldCertificate), ("duals", pd.DataFrame))
        for name, kind in parts:
            if known(self, name) and (part := getattr(self, name)) is not None:
                DesignError.unless(name, part, kind)
        if not hasattr(self.design, "solve"):
            raise DesignError.of("design", self.design, "must be a design")

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: what was left for later is computed now, since functions do not travel."""
        return {**vars(self), **{f.name: getattr(self, f.name) for f in fields(self)}}

    @property
    def gap(self) -> float | None:
        """Relative distance between value and lower bound; None where no bound is proved."""
        if self.lower_bound is None:
            return None
        return max(0.0, self.value - self.lower_bound) / max(abs(self.value), 1e-300)

    @property
    def bound_how(self) -> str:
        """How the lower bound is checked: proved, recomputed, or claimed where no certificate speaks of it."""
        if self.certificate is None or "lower_bound" not in self.certificate.statement:
            return CLAIMED
        return self.certificate.bound_how

    @property
    def status(self) -> Status:
        """How the solve ended."""
        return self.solver_report.status

    def audit(self) -> pd.DataFrame:
        """Every constraint of the definition, recomputed from the mechanism alone.

        Returns
        -------
        DataFrame
            Columns family, index, lhs, rhs, slack (≥ 0 when satisfied), dual, active.

        Raises
        ------
        ResultFormatError
            The parts do not fit together, as they do not in a file that was changed.
        """
        with fitting():
            return self._audit()

    def _audit(self) -> pd.DataFrame:
        return pd.DataFrame(columns=AUDIT_COLUMNS)

    def errors(self, question: Any = None) -> Accuracy:
        """How far off an answer is."""
        prior = getattr(question, "prior", None) or getattr(self.design, "prior", None)
        found: Accuracy = self.mechanism.errors() if prior is None else self.mechanism.errors(prior)
        return found

    def checks(self) -> pd.DataFrame:
        """Claim by claim: what the certificate proves, that it speaks of this result, and what nobody proves.

        Parts that do not fit together, as those of a file that was changed, are one check that does not hold.
        """
        return claims(self)

    def restated(self) -> Mapping[str, Any]:
        """What the certificate's statement must say, key by key, taken from the design; not what a search left free."""
        stated = {} if self.certificate is None else self.certificate.statement
        owners = (getattr(self.design, "privacy", None), self.design)
        held = {key: value for key, value in self.assumed.items() if key in stated}
        held |= {key: getattr(owner, key) for owner in owners for key in stated if hasattr(owner, key)}
        return {
            k: v
            for k, v in held.items()
            if isinstance(v, (tuple, np.ndarray)) or not isinstance(stated[k], tuple)
        }

    def to_frame(self) -> pd.DataFrame:
        """The main table, tidy."""
        return pd.DataFrame(
            {"value": [self.value], "lower_bound": [self.lower_bound], "status": [self.status]}
        )

    def _evidence(self) -> list[str]:
        """Lines of the summary that only this kind of result has."""
        return []

    def remarks(self) -> list[str]:
        """What a reader of the mechanism should know that its numbers do not say: outputs that never come, …"""
        return []

    def summary(self) -> str:
        """A short, proof-like account."""
        with fitting():
            return self._summary()

    def _summary(self) -> str:
        digits = meaningful(self.gap)
        value = f"value: {at_most(self.value, digits)}"
        lines = [type(self.design).__name__, *self.solver_report.lines(), value]
        if self.lower_bound is not None:
            bound = at_least(self.lower_bound, digits)
            lines.append(f"lower bound: {bound} ({self.bound_how}), gap {at_most(self.gap or 0.0, 2)}")
        lines += self._evidence()
        lines += [f"note: {note}" for note in (*self.notes, *self.remarks())]
        return "\n".join([lines[0], *("  " + line for line in lines[1:])])

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        head = html.escape(self.summary())
        return f"<pre>{head}</pre>{self.to_frame().to_html(index=False, float_format=lambda v: f'{v:.6g}')}"

    def account(self) -> Account:
        """The question in words, what the value is and what the picture shows."""
        return Account(
            type(self.design).__name__,
            "",
            " ".join(str(self.design).split())[:2000],
            "the design's own loss",
            (str(getattr(self.design, "privacy", "")), ""),
            "The least slack of each family of constraints.",
        )

    def alternatives(self) -> pd.DataFrame:
        """What other mechanisms cost at the same privacy, where that is known and cheap; no rows where it is not."""
        return pd.DataFrame(columns=["mechanism", "error", "relative"])

    def tried(self) -> pd.DataFrame:
        """What a search tried, best first; no rows where nothing was searched."""
        return pd.DataFrame()

    def beside(self) -> Iterable[Check]:
        """Checks of what stands beside the evidence: a table of what was tried, where there is one that a page shows."""
        return ()

    def plot(self, **options: Any) -> Figure:
        table = self.audit().groupby("family", sort=False)["slack"].min()
        fig, axis = figure(**sized(options, 5.0, 3.0))
        axis.barh([plain(name) for name in table.index], table.to_numpy(dtype=float), color=COLOURS[0])
        axis.set(xlabel="least slack")
        return fig

    def _page(self) -> dict[str, Any]:
        with fitting():
            account, table = self.account(), self.checks()
            return {
                "title": account.title,
                "subtitle": account.subtitle,
                "kind": "mechdesign report",
                "facts": headline(self, account, table),
                "sections": tuple(result_sections(self, account, table)),
            }


Result.register(OldResult)

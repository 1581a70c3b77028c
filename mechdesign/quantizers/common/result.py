"""The result of a quantizer design: the mechanism, its exact evidence, and the audit of its definition."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.evidence.certificate import Check
from mechdesign.evidence.deferred import deferred
from mechdesign.evidence.old_results import OldResult
from mechdesign.quantizers.common.account import QuantizerPage
from mechdesign.quantizers.common.certificate import QuantizerCertificate
from mechdesign.quantizers.common.output_space import bound_covers
from mechdesign.quantizers.common.slack import quantizer_slack

__all__ = ["QuantizerResult"]


@dataclass(frozen=True, eq=False)
class QuantizerResult(QuantizerPage, OldResult):
    """Result of OPTM, RQM, ERM, MVU and the other quantizer designs.

    Parameters
    ----------
    model_audit : DataFrame, optional
        The model's own constraints evaluated at the mechanism, with duals.
    rise : float
        By how much certification raised the value, relative to it.
    """

    certificate: QuantizerCertificate | None = None
    model_audit: pd.DataFrame | None = deferred()
    rise: float = 0.0

    @property
    def selection(self) -> pd.DataFrame:
        """Selection probabilities: side, interval j, bin i, value, probability."""
        if self.mechanism.selection is None:
            return pd.DataFrame(columns=["side", "interval", "bin", "value", "probability"])
        return self.mechanism.selection.to_frame()

    @property
    def epsilon(self) -> float:
        """Exact privacy loss of the mechanism, rounded up."""
        return self.mechanism.privacy_loss()

    def beside(self) -> Iterator[Check]:
        yield from bound_covers(self)

    def certify(self) -> QuantizerCertificate:
        """Return the exact rational certificate."""
        return self.certificate or QuantizerCertificate(
            self.mechanism.certified().law, self.design.privacy.epsilon
        )

    def to_opendp(self) -> Any:
        """Return the certified mechanism as an OpenDP Measurement (extra ``[opendp]``)."""
        return self.mechanism.to_opendp()

    def _audit(self) -> pd.DataFrame:
        table = quantizer_slack(self.mechanism, self.design.privacy.epsilon)
        if self.model_audit is None:
            return table
        return pd.concat([table, self.model_audit], ignore_index=True)

    def to_frame(self) -> pd.DataFrame:
        if self.mechanism.selection is not None:
            return self.selection
        m = self.mechanism
        columns = {f"{b:g}": np.append(m.starts[:, i], m.ends[-1, i]) for i, b in enumerate(m.bins)}
        return pd.DataFrame({"x": m.knots, **columns})

    def _evidence(self) -> list[str]:
        budget = self.design.privacy.epsilon
        loss = self.epsilon
        certified = self.certificate is not None and self.certificate.verify()
        words = "certified in exact arithmetic" if certified else "computed in floats, rounded up"
        lines = [f"exact loss: {loss!r} {'<=' if loss <= budget else '> OVER'} budget {budget!r} ({words})"]
        if self.certificate is not None and certified:
            rho, ratio = self.certificate.rho, self.certificate.ratio
            lines.append(f"privacy slack: {float(1 - ratio / rho):.2g} of e^eps, unbiased exactly")
            if math.isfinite(self.rise) and self.rise != 0:
                lines.append(f"certification moved the value by {self.rise:.1g} relative")
        table = quantizer_slack(self.mechanism, budget)
        worst = table.loc[table["slack"].idxmin()]
        lines.append(
            f"worst slack: {worst['slack']:.2g} ({worst['family']}, {worst['index']}) of {len(table)} audited constraints"
        )
        return lines

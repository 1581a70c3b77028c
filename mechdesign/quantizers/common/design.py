"""What every quantizer design shares: its question, what a result of it says, and how its floats become an exact law."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pandas as pd

from mechdesign.evidence.account import Account
from mechdesign.evidence.accuracy import Accuracy
from mechdesign.evidence.results import Result
from mechdesign.problem.spine import Design
from mechdesign.quantizers.common.dual_pieces import OutputSpace
from mechdesign.quantizers.common.quantizer_page import (
    draw_quantizer,
    quantizer_account,
    quantizer_alternatives,
    quantizer_remarks,
)
from mechdesign.quantizers.common.slack import quantizer_slack

__all__ = ["QuantizerDesign"]

# Units in the last place by which outputs may differ from those asked for: what an exact law needs at the edge.
_ULPS = 16


class QuantizerDesign(Design):
    """A design whose mechanism is a `Quantizer`.

    Attributes
    ----------
    privacy : PureDP, or of `MetricQuantizer` others
    prior : Prior
    loss : Loss
    input_range : (float, float)
    objective : {"mean", "worst"}
    max_bias : float
    max_mse : float or None
    among : str
        The mechanisms of which the design finds the best, in words that follow "the mechanism of least loss among".
    """

    asks: ClassVar[str] = "report"

    privacy: Any
    prior: Any
    loss: Any
    input_range: Any
    objective: str = "mean"
    max_bias: float = 0.0
    max_mse: float | None = None

    @property
    def among(self) -> str:
        return f"the {type(self).__name__} mechanisms that the design allows"

    @property
    def output_space(self) -> OutputSpace | None:
        """All outputs that a search may choose from, of which its lower bound speaks; None where they are given."""
        return None

    def takes(self, outputs: Any) -> bool:
        """Whether a mechanism with these outputs is one that the design allows; a search overrides this."""
        asked = np.asarray(getattr(self, "bins"))  # noqa: B009
        return asked.shape == np.shape(outputs) and np.allclose(
            outputs, asked, _ULPS * np.finfo(float).eps, 0
        )

    def audit(self, result: Result) -> pd.DataFrame:
        return quantizer_slack(result.mechanism, self.privacy.epsilon, max_bias=self.max_bias)

    def frame(self, result: Result) -> pd.DataFrame:
        m = result.mechanism
        if m.selection is not None:
            return m.selection.to_frame()
        columns = {f"{b:g}": np.append(m.starts[:, i], m.ends[-1, i]) for i, b in enumerate(m.bins)}
        return pd.DataFrame({"x": m.knots, **columns})

    def lines(self, result: Result) -> list[str]:
        budget, loss = self.privacy.epsilon, result.mechanism.privacy_loss()
        words = "in exact arithmetic" if result.proofs else "computed in floats, rounded up"
        table = QuantizerDesign.audit(self, result)
        worst = table.loc[table["slack"].idxmin()]
        return [
            f"exact loss: {loss!r} {'<=' if loss <= budget else '> OVER'} budget {budget!r} ({words})",
            f"worst slack: {worst['slack']:.2g} ({worst['family']}, {worst['index']}) of {len(table)} audited constraints",
        ]

    def account(self, result: Result) -> Account:
        return quantizer_account(result, among=self.among)

    def alternatives(self, result: Result) -> pd.DataFrame:
        return quantizer_alternatives(result)

    def remarks(self, result: Result) -> list[str]:
        return quantizer_remarks(result)

    def plot(self, result: Result, **options: Any) -> Any:
        """Draw the probability of every output, and the expected error, over the inputs."""
        return draw_quantizer(result, **options)

    def errors(self, result: Result, question: Any = None) -> Accuracy:
        """Errors averaged over the prior of `question`, or of this design."""
        return result.mechanism.errors((self if question is None else question).prior)

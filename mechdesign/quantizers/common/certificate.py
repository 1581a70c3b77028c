r"""Exact evidence: a rational quantizer checked with fractions alone.

A certificate holds the rational law itself and recomputes, in exact arithmetic and with nothing of any solver,

- every row sums to 1 and is non-negative;
- :math:`|\sum_i B_i p(x, i) - x| \le b` at both ends of every segment, hence everywhere (b = 0: unbiased);
- :math:`\max_x p(x, i) \le \rho \min_x p(x, i)` for every output, with ρ a proved rational lower bound of
  :math:`e^{\varepsilon}`.

Since p is affine between knots, the ends of the segments are all there is to check.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import pandas as pd

from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_lower, log_upper
from mechdesign.evidence.serialize import serializable
from mechdesign.quantizers.mechanism.exact_law import ExactLaw

__all__ = ["QuantizerCertificate"]


@serializable("certificate")
@dataclass(frozen=True)
class QuantizerCertificate:
    """Exact proof that a rational quantizer is ε-LDP and unbiased.

    Parameters
    ----------
    law : ExactLaw
        The rational mechanism.
    epsilon : float
        The budget, a double taken at face value.
    max_bias : float
        The allowed bias.

    Examples
    --------
    >>> from mechdesign.quantizers.mechanism.quantizer import Quantizer
    >>> mechanism = Quantizer.rqm([-2, -1, 1, 2], 0.5, (-1, 1)).certified()
    >>> QuantizerCertificate(mechanism.law, 2.0).verify()
    True
    >>> QuantizerCertificate(mechanism.law, 1.0).verify()
    False
    """

    law: ExactLaw
    epsilon: float
    max_bias: float = 0.0

    @property
    def rho(self) -> Fraction:
        """A rational lower bound of e^ε, proved by its Taylor series."""
        return exp_lower(self.epsilon)

    @property
    def ratio(self) -> Fraction:
        """The exact largest ratio of probabilities of one output over two inputs."""
        ratio = self.law.ratio()
        if ratio is None:
            raise DesignError("the privacy loss is infinite: an output is impossible for some inputs only")
        return ratio

    @property
    def epsilon_upper(self) -> float:
        """The exact privacy loss log(ratio), rounded up to a double."""
        return log_upper(self.ratio)

    def checks(self) -> pd.DataFrame:
        """The three checks, each with its worst exact slack (as a double) and whether it holds."""
        law = self.law
        budget = Fraction(self.max_bias)
        normalisation = negativity = bias = Fraction(0)
        increasing = all(a < b for a, b in pairwise(law.knots)) and all(a < b for a, b in pairwise(law.bins))
        low: list[Fraction] | None = None
        high: list[Fraction] = []
        for k in range(len(law.knots) - 1):
            for end in (0, 1):
                row = law.row(k, end)
                normalisation = max(normalisation, abs(sum(row, Fraction(0)) - 1))
                negativity = max(negativity, -min(row))
                mean = sum((b * p for b, p in zip(law.bins, row)), Fraction(0))
                bias = max(bias, abs(mean - law.knots[k + end]))
                low = row if low is None else [min(a, p) for a, p in zip(low, row)]
                high = row if not high else [max(a, p) for a, p in zip(high, row)]
        rho = self.rho
        privacy = min(rho * a - b for a, b in zip(low or [], high))
        rows = [
            ("order", 0.0, increasing),
            ("normalisation", float(-normalisation), normalisation == 0),
            ("non-negativity", float(-negativity), negativity == 0),
            ("unbiased", float(budget - bias), bias <= budget),
            ("privacy", float(privacy), privacy >= 0),
        ]
        return pd.DataFrame(rows, columns=["check", "slack", "holds"])

    def verify(self) -> bool:
        """Whether every check holds in exact arithmetic."""
        return bool(self.checks()["holds"].all())

    def summary(self) -> str:
        """One line for reports."""
        return f"certificate: exact loss {self.epsilon_upper!r} <= {self.epsilon!r}: {self.verify()}"

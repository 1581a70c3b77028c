r"""Exact evidence: a rational quantizer checked with fractions alone.

A certificate holds the rational law itself and recomputes, in exact arithmetic and with nothing of any solver,

- every row sums to 1 and is non-negative;
- :math:`|\sum_i B_i p(x, i) - x| \le b` at both ends of every segment, hence everywhere (b = 0: unbiased);
- :math:`\max_x p(x, i) \le \rho \min_x p(x, i)` for every output, with ρ a proved rational lower bound of
  :math:`e^{\varepsilon}`.

Since p is affine between knots, the ends of the segments are all there is to check.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from operator import mul
from typing import Any

import pandas as pd

from mechdesign.errors import DesignError
from mechdesign.evidence.certificate import PROVED, Certificate, check_table
from mechdesign.evidence.exact import exp_lower, log_upper
from mechdesign.evidence.rounding import round_down
from mechdesign.evidence.serialize import serializable
from mechdesign.quantizers.mechanism.exact_law import ExactLaw

__all__ = ["QuantizerCertificate"]


@serializable("certificate")
@dataclass(frozen=True)
class QuantizerCertificate(Certificate):
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
        """A rational lower bound of e^ε, proved by its Taylor series; e^700 is one for every larger ε."""
        return exp_lower(min(self.epsilon, 700.0))

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

    @property
    def statement(self) -> Mapping[str, Any]:
        """Budget (ε, and ρ ≤ e^ε), allowed bias, input range and outputs, all rational."""
        ends = self.law.knots[0], self.law.knots[-1]
        budget = {"epsilon": Fraction(self.epsilon), "rho": self.rho, "max_bias": Fraction(self.max_bias)}
        return {**budget, "input_range": ends, "bins": self.law.bins}

    def checks(self) -> pd.DataFrame:
        """The law's order, rows, mean and privacy, each with its worst exact margin (as a double)."""
        law, rho = self.law, self.rho
        unit = math.lcm(*(b.denominator for b in law.bins))
        bins = [int(b * unit) for b in law.bins]
        least = total = bias = Fraction(0)
        for x, weights, common in law.limits():
            total = max(total, abs(Fraction(sum(weights), common) - 1))
            least = min(least, Fraction(min(weights), common))
            bias = max(bias, abs(Fraction(sum(map(mul, bins, weights)), common * unit) - x))
        privacy = min(rho * low - high for low, high in zip(*ExactLaw.extremes(law)))
        ordered = all(a < b for values in (law.knots, law.bins) for a, b in pairwise(values))
        slack = Fraction(self.max_bias) - bias
        found = [
            ("knots and outputs increase", Fraction(0), ordered),
            ("rows sum to 1", -total, total == 0),
            ("no probability is negative", least, least == 0),
            (f"bias at most {self.max_bias!r}", slack, slack >= 0),
            (f"privacy loss at most {self.epsilon!r}", privacy, privacy >= 0),
        ]
        return check_table([(claim, PROVED, round_down(margin), holds) for claim, margin, holds in found])

    def summary(self) -> str:
        """One line for reports."""
        return f"certificate: exact loss {self.epsilon_upper!r} <= {self.epsilon!r}: {self.verify()}"

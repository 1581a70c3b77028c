r"""What a rule of choice consumes, which rule is the better one, and the proof of both: for choices and quantiles alike.

Between neighbouring data sets scores move together by vectors v with :math:`\max_r v_r - \min_r v_r \le s`, the *spread*. At rate c let :math:`\eta = c s`.

*Permute-and-flip* is η-DP: r wins where its noise exceeds :math:`t = \max_{m \ne r} (q_m + E_m/c) - q_r`, which moves by at most s, and
:math:`P[E/c \ge t - s] \le e^{cs} P[E/c \ge t]`. It never regrets more than the exponential mechanism of the same η on average (McKenna and Sheldon 2020). Laplace noise has the same
inequality, so that *report noisy max* is η-DP too.

*The exponential mechanism* has more: losses of a pair of data sets lie in an interval of length η (bounded range), so that it is
:math:`\eta^2/8`-zCDP (Cesar and Rogers 2021), and (ε, δ)-DP where :math:`(e^{\eta/2} - e^{\varepsilon/2})^2 \le \delta\,(e^\eta - 1)` (Dong, Durfee and Rogers 2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from mechdesign.choice.rule import EXPONENTIAL, NOISY_MAX, PERMUTE, RULES, Scored, chances, worst_regret
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_lower, exp_upper, round_down, round_up
from mechdesign.evidence.proofs import (
    PROVED,
    RECOMPUTED,
    Certificate,
    Claim,
    LawProof,
    MechanismClass,
    family,
    same,
)
from mechdesign.evidence.results import AUDIT_COLUMNS, Accuracy, Result
from mechdesign.plotting import COLOURS, figure, sized
from mechdesign.problem.checks import instance, one_of, positive
from mechdesign.problem.privacy import (
    ApproximateDP,
    Consumption,
    PureDP,
    ZeroConcentratedDP,
    implied_by_pure,
    pure_epsilon,
)
from mechdesign.problem.spine import Bound, Design, Law

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Asked = PureDP | ApproximateDP | ZeroConcentratedDP
_LARGEST = 700.0
"""ε above which δ is left alone: it adds nothing to the rate that doubles tell."""


def keeps(rule: str, privacy: Asked, loss: Fraction) -> bool:
    """Return whether a rule keeps the requirement at η = `loss`, in rational numbers."""
    if implied_by_pure(privacy, loss) or rule != EXPONENTIAL or isinstance(privacy, PureDP):
        return implied_by_pure(privacy, loss)
    if isinstance(privacy, ZeroConcentratedDP):
        return loss * loss <= 8 * Fraction(privacy.rho)
    over = exp_upper(loss / 2) - exp_lower(Fraction(privacy.epsilon) / 2)
    return over * over <= Fraction(privacy.delta) * (exp_lower(loss) - 1)


def largest_rate(rule: str, privacy: Asked, spread: float) -> float:
    """Return the largest rate, to rounding, at which a rule is proved to keep the requirement; 0 where none is."""
    near = pure_epsilon(privacy)
    if rule == EXPONENTIAL and isinstance(privacy, ZeroConcentratedDP):
        near = math.sqrt(8 * privacy.rho)
    elif rule == EXPONENTIAL and isinstance(privacy, ApproximateDP):
        # x = e^{η/2} solves (x − e)² = δ (x² − 1), e = e^{ε/2}
        root = math.sqrt(privacy.delta * (1 - (1 - privacy.delta) * math.exp(-privacy.epsilon)))
        near = privacy.epsilon + 2 * (math.log1p(root) - math.log1p(-privacy.delta))
    if isinstance(privacy, ApproximateDP) and privacy.epsilon > _LARGEST:
        near = privacy.epsilon
    rate = round_down(Fraction(near) / Fraction(spread))
    step = 2.0**-50
    while rate and not keeps(rule, privacy, Fraction(rate) * Fraction(spread)):
        rate, step = rate * (1 - step), 2 * step
    return rate


def consumed(rule: str, loss: Fraction, times: int) -> Consumption:
    """Return what a rule consumes of a ledger at η = `loss`, so many times."""
    pure = Consumption.pure((loss, times))
    return pure & Consumption(rho=round_up(times * loss * loss / 8)) if rule == EXPONENTIAL else pure


class Choosing(Design):
    """Base class of designs that choose by score, with rules for any scores."""

    central = True
    privacy: Asked
    choose: int = 1
    unit: ClassVar[str] = "regret"
    """What an error is measured in."""

    @property
    def size(self) -> int:
        """k: how many candidates there are."""
        raise NotImplementedError

    @property
    def moved(self) -> float:
        """s, the spread, in the scores that a rule is given."""
        raise NotImplementedError

    @property
    def scale(self) -> float:
        """What one unit of these scores is worth."""
        return 1.0

    @property
    def each(self) -> Asked:
        """The requirement of one of the choices: an equal part, as requirements add up."""
        if self.choose == 1:
            return self.privacy
        parts = {
            f.name: round_down(Fraction(getattr(self.privacy, f.name)) / self.choose)
            for f in fields(self.privacy)
        }
        return replace(self.privacy, **parts)  # type: ignore[arg-type]

    @property
    def relation(self) -> str:
        """Which data sets are neighbours, as a ledger says it."""
        return self.neighbours

    @property
    def _counted_neighbours(self) -> str:
        return self.relation

    @property
    def answer_size(self) -> None:
        return None

    @property
    def among(self) -> MechanismClass:
        """The two rules."""
        return family("permute-and-flip or exponential mechanism")

    def rule(self, name: str, rate: float) -> Scored:
        """Return the mechanism of a rule at a rate."""
        raise NotImplementedError

    def check_rule(self, law: Scored) -> None:
        """Raise DesignError unless the law is a rule for these candidates that keeps the requirement."""
        if getattr(self, "largest", None) is not None or not same(law, self.rule(law.rule, law.rate)):
            raise DesignError("law: is no rule for the design's candidates")
        if not keeps(law.rule, self.each, Fraction(law.rate) * Fraction(self.moved)):
            raise DesignError.of("rate", law.rate, f"is too large for {self.privacy}")

    def rates(self) -> dict[str, float]:
        """Return the largest rate of each rule that is proved to keep the requirement at some."""
        found = {rule: largest_rate(rule, self.each, self.moved) for rule in (PERMUTE, EXPONENTIAL)}
        kept = {rule: rate for rule, rate in found.items() if rate}
        if not kept:
            raise DesignError.of("privacy", self.privacy, "is a budget too small to be proved: ask for more")
        return kept

    def by(self, rule: str) -> Law:
        """Return the law of one rule, at the largest rate that is proved to keep the requirement."""
        if not (rate := largest_rate(one_of("rule", rule, RULES), self.each, self.moved)):
            raise DesignError.of("privacy", self.privacy, "is a budget too small to be proved: ask for more")
        return Law(self.rule(rule, rate), self.regretted(rule, rate), (LawProof(),))

    def law_claims(self, stated: Certificate) -> Iterator[Claim]:
        r"""A rule at rate c, on scores of spread s, has η = c s; its largest expected regret is at most the value.

        Of report noisy max the value is the largest where all but the best are equally far behind. Privacy follows from η: McKenna and Sheldon 2020 (permute-and-flip), Dong, Durfee and Rogers 2020, Cesar and Rogers 2021 (bounded range).
        """
        law: Any = instance("law", stated.law, Scored)
        if getattr(self, "largest", None) is not None or not same(law, self.rule(law.rule, law.rate)):
            raise DesignError("law: is no rule for the design's candidates")
        loss = Fraction(law.rate) * Fraction(self.moved)
        room = largest_rate(law.rule, self.each, self.moved) - law.rate
        times = f", {self.choose} times" if self.choose > 1 else ""
        claim = f"{law.rule} at η = {float(loss)!r} keeps {self.privacy}{times}"
        yield Claim(claim, PROVED, room, keeps(law.rule, self.each, loss))
        regret = self.regretted(law.rule, law.rate) * (1 - 9e-13)  # the value is 1e-12 above it
        where = " where all others are equally far behind" if law.rule == NOISY_MAX else ""
        claim = f"the expected regret is at most {stated.value!r}{where}"
        yield Claim(claim, RECOMPUTED, stated.value - regret, regret <= stated.value)

    def closed_forms(self) -> Iterator[Law | Bound]:
        """Yield the rule of least worst regret."""
        yield min(map(self.by, self.rates()), key=lambda law: law.value)

    def worst(self, rule: str, rate: float) -> tuple[float, float]:
        """Return the largest expected regret of a rule, and how far all but the best are behind it then."""
        regret, gap = worst_regret(one_of("rule", rule, RULES), self.size, positive("rate", rate))
        return regret * self.scale, gap * self.scale

    def regretted(self, rule: str, rate: float) -> float:
        """Return the largest expected regret of all choices together: of each among the candidates that are left."""
        asked = one_of("rule", rule, RULES), positive("rate", rate)
        return (
            math.fsum(worst_regret(asked[0], self.size - k, asked[1])[0] for k in range(self.choose))
            * self.scale
        )

    def consumption(self, result: Result) -> Consumption:
        """What a release consumes of a ledger: the requirement, or what the rule consumes if that is less."""
        law, found = result.mechanism, Consumption.of(self.privacy)
        if isinstance(law, Scored):
            found &= consumed(law.rule, Fraction(law.rate) * Fraction(self.moved), self.choose)
        return replace(found, neighbours=self.relation)

    def audit(self, result: Result) -> pd.DataFrame:
        """Tabulate η of the rule, and the largest one that keeps the requirement."""
        law = result.mechanism
        loss, most = law.rate * self.moved, largest_rate(law.rule, self.each, self.moved) * self.moved
        rows = [("privacy", "rate × spread", loss, most, most - loss, math.nan, True)]
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def errors(self, result: Result, question: object = None) -> Accuracy:
        """Return the regret of one choice at the worst scores."""
        law = result.mechanism
        regret, gap = self.worst(law.rule, law.rate)
        wrong = regret / gap if gap else 0.0
        return Accuracy(gap * math.sqrt(wrong), regret, gap if wrong > 0.05 else 0.0)

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Both rules at the same privacy."""
        for rule, rate in self.rates().items():
            yield rule, self.regretted(rule, rate)

    def frame(self, result: Result) -> pd.DataFrame:
        """Tabulate how often a rule chooses the best, by how far all others are behind."""
        law = result.mechanism
        gaps = np.linspace(0, 2, 33) * (self.worst(law.rule, law.rate)[1] or 1.0)
        counts = np.array([1.0, self.size - 1.0])
        best = [
            float(chances(law.rule, np.array([0.0, gap / self.scale]), counts, law.rate)[0])
            for gap in gaps.tolist()
        ]
        return pd.DataFrame({"ahead": gaps, "best": best, "regret": gaps * (1 - np.array(best))})

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw how often the best is chosen, by how far all others are behind."""
        fig, axis = figure(**sized(options, 5.0, 3.0))
        table = self.frame(result)
        axis.plot(table["ahead"], table["best"], color=COLOURS[0])
        axis.set(xlabel="by how much the best is ahead", ylabel="probability of choosing it", ylim=(0, 1.02))
        return fig

r"""Running totals of long streams: the Toeplitz strategy of a few buffers of least error, proved and released in integers.

.. math:: \min_{x_1 < y_1 < x_2 < \dots} \Bigl\lVert \sum_{j < k} z^{bj} c(z) \Bigr\rVert^2 \sum_t w_t b_t^2, \qquad c(z) = \prod_i \frac{1 - e^{-y_i} z}{1 - e^{-x_i} z},
          \quad b(z) = \frac{1}{(1 - z)\, c(z)},

w = 1 for the largest error and n − t for the total, of n counts of which one person changes k that are at least b apart. A release needs 2 integers a
buffer and one more, whatever n is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from mechdesign.accounting.gaussian import GaussianPrivacy, budget_worth, gaussian_budget, gaussian_privacy
from mechdesign.accounting.profile import gaussian_tradeoff
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.classes import MechanismClass, family
from mechdesign.evidence.digits import at_most, shown
from mechdesign.evidence.exact import round_up
from mechdesign.evidence.proofs import PROVED, RECOMPUTED, Certificate, Claim, Proof
from mechdesign.evidence.results import AUDIT_COLUMNS, Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.correlated.buffered_noise import BUFFERS, MOST, UNIT, BufferedNoise
from mechdesign.noise.correlated.buffers import best, consumed, residues
from mechdesign.noise.correlated.changes import Participation, size_of_change
from mechdesign.noise.correlated.toeplitz_bound import MOST as MOST_BOUNDED
from mechdesign.noise.correlated.toeplitz_bound import ToeplitzBound, least_toeplitz
from mechdesign.problem.checks import field, instance, integer, one_of
from mechdesign.problem.sensitivity import NEIGHBOURS
from mechdesign.problem.spine import Bound, Clock, Design, Law
from mechdesign.problem.words import Description
from mechdesign.typing import Array

_TIMES = 10_000
_SECONDS = 2e-5
"""A step, of the total's lower bound."""
_LEAST = 1 << 20
"""Weights below this, of 2⁶², are nothing."""
_ROOM = 1e-8
"""Below the bound, for whoever proves it with multipliers that are rounded otherwise."""


@serializable("buffered-toeplitz")
@dataclass(frozen=True, eq=False)
class BufferedToeplitz(Design):
    r"""Least Gaussian noise for the running totals of a long stream, by a Toeplitz strategy of a few buffers.

    Parameters
    ----------
    size : int
        n, up to 10,000,000 steps.
    privacy : ApproximateDP, ZeroConcentratedDP, GaussianDP, MembershipAdvantage or TradeOff
    participation : Participation
        How often one person takes part, and how far apart; up to 10,000 times.
    most : float
        a: the most that one count changes, up or down.
    loss : {"total", "largest"}
        The sum of the variances of the answers, or the largest of them.
    buffers : int
        1 to 8: at a million steps the largest error is 48% above that of the best Toeplitz strategy with 2, .2% with 6, .02% with 8.
    neighbours : {"add-remove", "replace"}
        For which neighbours the changes hold.

    Notes
    -----
    Dvijotham, McMahan, Pillutla, Steinke and Thakurta (2024), *Efficient and near-optimal noise generation for streaming differential privacy*; McMahan, Xu and
    Zhang (2024) for several times. Where one count changes the lower bound is of every Toeplitz strategy, and proved [new] (of the total up to 2,000,000 steps). Where
    several change none is known, and these strategies cost 6 to 11% more than the best falling ones found.

    Examples
    --------
    >>> import mechdesign as md
    >>> result = md.noise.BufferedToeplitz(10_000, md.ApproximateDP(1.0, 1e-6), buffers=4, loss="largest").solve()
    >>> round(result.value * result.design.budget, 2), round(result.gap, 4), result.certificate.verify()
    (16.02, 0.0025, True)
    >>> stream = result.mechanism.start()
    >>> answers = stream.step(np.ones(100))      # a hundred days at once
    >>> type(stream.step(1.0)).__name__, stream.done
    ('float', 101)
    """

    size: int = field(check=integer, least=1, most=MOST)
    privacy: GaussianPrivacy = field(check=gaussian_privacy)
    _: KW_ONLY
    participation: Participation = field(Participation, default=Participation(1, apart=1))
    most: float = field(check=size_of_change, default=1.0)
    loss: str = field(check=one_of, allowed=("total", "largest"), default="total")
    buffers: int = field(check=integer, least=1, most=BUFFERS, default=BUFFERS)
    neighbours: str = field(check=one_of, allowed=NEIGHBOURS, default=NEIGHBOURS[0])

    central: ClassVar[bool] = True
    default_gap: ClassVar[float] = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        self.participation.check(self.size)
        integer("times", self.participation.times, 1, _TIMES)
        _ = self.budget

    @cached_property
    def budget(self) -> float:
        r""":math:`\mu^2`, rounded down."""
        return gaussian_budget(self.privacy)

    @property
    def largest(self) -> bool:
        """Whether the loss is the largest error."""
        return self.loss == "largest"

    @property
    def once(self) -> bool:
        """Whether one person changes one count."""
        return self.participation.times == 1

    @property
    def unit(self) -> float:
        """a²/μ²: the errors are this times those at a = μ = 1."""
        return self.most**2 / self.budget

    @property
    def worth(self) -> float:
        """What the requirement leaves beyond the budget."""
        return budget_worth(self.privacy, self.budget)

    @property
    def among(self) -> MechanismClass:
        """Toeplitz strategies: others may cost less."""
        return family("Toeplitz strategy")

    @property
    def answer_size(self) -> int:
        return self.size

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        """Yield the law of the best poles and zeros, then the bound, where the clock leaves time for it."""
        often = self.participation
        useful = min(self.buffers, max(1, self.size // 2))  # each has two numbers, and the strategy n − 1
        x, y = best(
            useful, self.size, largest=self.largest, times=often.times, apart=often.step, deadline=clock
        )
        law = self.law_of(x, residues(y, x))
        value = round_up(law.cost(largest=self.largest))
        report = SolveReport("BFGS", variables=2 * useful, constraints=0)
        yield Law(law, value, (BufferedProof(),), report)
        quick = self.size <= MOST_BOUNDED and _SECONDS * self.size <= clock.left
        if self.once and (self.largest or quick):
            least = least_toeplitz(self.size, largest=self.largest)
            yield Bound(least * self.unit * (1 - _ROOM), ToeplitzBound())

    def law_of(self, x: Array, weights: Array) -> BufferedNoise:
        """The law of poles e^(−x) and their weights, in integers, of the least deviation that keeps the budget."""
        held: dict[int, int] = {}
        for pole, weight in zip(np.exp(-x).tolist(), weights.tolist()):
            whole = min(int(pole * UNIT), UNIT - 1)
            held[whole] = held.get(whole, 0) + int(weight * UNIT)
        kept = sorted(((p, w) for p, w in held.items() if p and w > _LEAST), reverse=True)
        # doubles may have it above 1 where two poles nearly meet
        over = max(Fraction(1), sum((Fraction(w, p) for p, w in kept), Fraction(0)))
        often = self.participation
        near = float(consumed(x, weights, self.size, often.times, often.step))
        step = math.ldexp(1.0, math.frexp(math.sqrt(near * self.unit))[1] - 51)
        law = BufferedNoise(
            size=self.size,
            poles=tuple(p for p, _ in kept),
            weights=tuple(int(w / over) for _, w in kept),
            deviation=2.0**51 * step,
            step=step,
            budget=self.budget,
        )
        return law.calibrated(self.most, often.times, often.step)

    # -- what a result asks -----------------------------------------------------------------------------------

    def used(self, law: BufferedNoise) -> float:
        """Share of the budget that the worst change consumes, with what rounding adds, rounded up."""
        apart = law.shift(self.most, self.participation.times, self.participation.step)
        return round_up((apart * Fraction(law.step) / Fraction(law.deviation)) ** 2 / Fraction(self.budget))

    def audit(self, result: Result) -> pd.DataFrame:
        spent = self.used(result.mechanism) * self.budget
        row = ("privacy", "worst pattern", spent, self.budget, self.budget - spent, math.nan, True)
        return pd.DataFrame([row], columns=AUDIT_COLUMNS)

    def frame(self, result: Result) -> pd.DataFrame:
        """A row a step, of up to a thousand of them."""
        steps = np.unique(np.linspace(0, self.size - 1, 1000).astype(int))
        variances = result.mechanism.variances[steps]
        columns = {"step": steps, "variance": variances, "standard_deviation": np.sqrt(variances)}
        return pd.DataFrame(columns)

    def tradeoff(self, result: Result, at: Iterable[float] = ()) -> TradeOff:
        """That of all Gaussian noise within the budget."""
        return gaussian_tradeoff(self.budget, at)

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Noise on each count, and on each total."""
        n, k = self.size, self.participation.times
        yield "noise on the counts", k * self.unit * (n if self.largest else n * (n + 1) / 2)
        starts = np.arange(k) * self.participation.step
        moved = float((np.arange(1, k + 1) ** 2 * np.diff(starts, append=n)).sum())
        yield "noise on the totals", moved * self.unit * (1 if self.largest else n)

    def lines(self, result: Result) -> list[str]:
        law = result.mechanism
        return [
            f"running totals of {self.size} counts; {len(law.poles)} buffers; {self._changed}",
            f"released on multiples of {law.step:.6g} before the totals are made; answers can be streamed",
        ]

    @property
    def _changed(self) -> str:
        if self.once:
            return f"one count changes by at most {shown(self.most)}"
        often = self.participation.words().format(size=self.size)
        return f"{often}; these counts change by at most {shown(self.most)}"

    def describe(self, result: Result) -> Description:
        return Description(
            title="Stream of running totals",
            what=f"Asked: the running totals of {self.size} counts, as they come. Between neighbouring data sets {self._changed}. Noise is added to sums of the "
            f"counts that {len(result.mechanism.poles)} buffers hold, and the totals are made from these.",
            loss="largest variance of an answer" if self.largest else "sum of the variances of the answers",
            consumed=f"at most {at_most(self.used(result.mechanism))} of the budget consumed, rounding counted",
            picture="The standard deviation of each answer.",
            rivals="The same totals at the same privacy, with independent noise.",
        )


@serializable("buffered-proof")
@dataclass(frozen=True, eq=False)
class BufferedProof(Proof):
    r"""The release shifts by at most :math:`\mu\sigma/h` steps between neighbours, and its answers cost what is stated.

    The shift is :math:`m \lVert C u/m \rVert + r \sqrt n` (`mechdesign.noise.correlated.buffered_noise`); coefficients are positive and fall, as all ω are positive and
    :math:`\sum \omega_i/p_i \le 1`, so that the worst u is 0, b, 2b, … with one sign. Both it and the loss, of normal noise before rounding, are computed in balls of 700 bits.
    """

    speaks_of = ("privacy", "value")

    def check(self, stated: Certificate) -> Iterator[Claim]:
        asked: Any = instance("question", stated.question, BufferedToeplitz)
        law: Any = instance("law", stated.law, BufferedNoise)
        if (law.size, law.budget) != (asked.size, asked.budget) or len(law.poles) > asked.buffers:
            yield Claim("the law answers this question", PROVED, -math.inf, False)
            return
        room = 1 - asked.used(law)
        yield Claim("the budget covers every change, rounding counted", PROVED, room, room >= 0)
        yield Claim("the budget is worth the requirement", RECOMPUTED, asked.worth, asked.worth >= 0)
        room = stated.value - round_up(law.cost(largest=asked.largest))
        yield Claim(f"the loss is at most {stated.value:.9g}", PROVED, room, room >= 0)

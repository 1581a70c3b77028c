r"""Private choice of a candidate by score: permute-and-flip, the exponential mechanism and report noisy max, drawn with their exact laws.

Candidates have scores q, the best :math:`q^* = \max_r q_r`; choosing r has regret :math:`d_r = q^* - q_r`. At a rate c > 0

- *permute-and-flip* (McKenna and Sheldon 2020) keeps each candidate with probability :math:`e^{-c d_r}`, independently, and chooses uniformly among the
  kept (the best always is). It is the candidate of largest :math:`q_r + E_r/c` with independent exponential E (Ding et al. 2021).
- *the exponential mechanism* (McSherry and Talwar 2007) chooses r with probability in proportion to :math:`e^{-c d_r}`: the largest
  :math:`q_r + G_r/c` with independent Gumbel G.

With X exponential of mean 1, E is :math:`-\log(1 - e^{-X})` and G is :math:`-\log X`. The largest noise among g candidates with equal scores is the one at X/g, and each of
them has it with probability 1/g: any number of equal scores takes one draw.

*Release.* X = −log U for a uniform U, of which 64 bits are drawn. They enclose every candidate's noisy score; while the enclosures of the largest
overlap, further bits are drawn and the enclosures tightened, until one candidate is above all others. No rounding changes the law.

**Budget.** Between neighbouring data sets scores change by vectors v with :math:`\max_r v_r - \min_r v_r \le s`, the *spread*. At rate c let :math:`\eta = c s`.

*Permute-and-flip* is η-DP: r wins if its noise exceeds :math:`t = \max_{m \ne r} (q_m + E_m/c) - q_r`, which changes by at most s, and
:math:`P[E/c \ge t - s] \le e^{cs} P[E/c \ge t]`. Its expected regret never exceeds that of the exponential mechanism at the same η (McKenna and Sheldon 2020). Laplace noise satisfies the same
inequality, so *report noisy max* is η-DP too.

*The exponential mechanism* satisfies more: the losses of a pair of data sets lie in an interval of length η (bounded range), so that it is
:math:`\eta^2/8`-zCDP (Cesar and Rogers 2021), and (ε, δ)-DP where :math:`(e^{\eta/2} - e^{\varepsilon/2})^2 \le \delta\,(e^\eta - 1)` (Dong, Durfee and Rogers 2020).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from flint import arb, ctx
from scipy import optimize

from mechdesign.checks import Checked, answers, field, instance, integer, one_of, positive, refuse
from mechdesign.doubles import LARGEST_POWER
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence import proofs
from mechdesign.evidence.exact import exp_lower, exp_upper, round_down, round_up
from mechdesign.evidence.results import Accuracy, Result, accuracy_of, audit_row
from mechdesign.evidence.sampling import random_words
from mechdesign.evidence.serialize import serializable
from mechdesign.plotting import draw_curves
from mechdesign.problem.mechanism import Deployment, Drawn, Simulation
from mechdesign.problem.privacy import (
    ApproximateDP,
    Consumption,
    PureDP,
    ZeroConcentratedDP,
    implied_by_pure,
    pure_epsilon,
)
from mechdesign.problem.spine import Bound, Design, Law
from mechdesign.typing import Array, Figure

PERMUTE, EXPONENTIAL, NOISY_MAX = "permute-and-flip", "exponential mechanism", "report noisy max"
RULES = (PERMUTE, EXPONENTIAL, NOISY_MAX)
_PADDING = 2.0**-45
"""Relative width of an enclosure of a result that doubles compute in a few steps."""
_FAR = 10**6
"""Larger than any noise from a word of less than 2²⁰ bits."""
_LOG2 = math.log(2)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)


def names_of(name: str, value: Any) -> int | tuple[str, ...]:
    """Return the number of candidates, or their names."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        if 1 <= value <= 10**7:
            return int(value)
    elif isinstance(value, (list, tuple)) or (hasattr(value, "tolist") and np.ndim(value) == 1):
        held = list(value)
        if held and all(isinstance(one, str) for one in held) and len(set(held)) == len(held):
            return tuple(map(str, held))
    allowed = "must be how many there are, 1 to 10,000,000, or a list of names: strings that all differ"
    raise DesignError.of(name, value, allowed)


@dataclass(frozen=True, eq=False)
class Scored(Checked, Drawn):
    """Base class of mechanisms that choose by score.

    Parameters
    ----------
    rule : {"permute-and-flip", "exponential mechanism", "report noisy max"}
    rate : float
        c, per unit of score.
    """

    rule: str = field(check=one_of, allowed=RULES)
    rate: float = field(check=positive)

    def scores(self, x: Any) -> Any:
        """Return the scores of the data, or raise DataError before anything is drawn."""
        raise NotImplementedError

    def _noise(self, x: Array) -> Array:
        """Return c times the noise as a function of the exponential variables X; it decreases in X."""
        with np.errstate(divide="ignore"):
            if self.rule == EXPONENTIAL:
                return np.asarray(-np.log(x))
            exponential = -np.log(-np.expm1(-x))
            return np.asarray(
                exponential if self.rule == PERMUTE else np.where(x > _LOG2, _LOG2 - x, exponential - _LOG2)
            )

    def _chances(self, scores: npt.NDArray[Any], counts: npt.NDArray[Any]) -> Array:
        """Return the probability of each single candidate, for groups of `counts` candidates with one score."""
        return chances(self.rule, _gaps(scores), counts.astype(float), self.rate)

    def _drawn(
        self, scores: npt.NDArray[Any], counts: npt.NDArray[Any], source: Simulation | Deployment
    ) -> int:
        """Draw a group of `counts` candidates with one score: in doubles in simulation, else with its exact probability."""
        gaps = _gaps(scores)
        if isinstance(source, Simulation):
            noise = self._noise(source.rng.exponential(size=len(gaps)) / counts)
            return int(np.argmax(noise - self.rate * gaps))
        words = random_words(len(gaps))
        # −log U at both ends of the cell of U: through 1 − U if U is near 1
        ends = []
        for up in (1, 0):
            u, t = (words + np.float64(up)) * 2.0**-64, (~words + np.float64(1 - up)) * 2.0**-64
            with np.errstate(divide="ignore", invalid="ignore"):
                ends.append(np.where(u < 0.5, -np.log(u), -np.log1p(-np.minimum(t, 1.0))))
        low, high = (self._noise(x / counts) for x in (ends[1], ends[0]))
        with np.errstate(over="ignore", invalid="ignore"):  # gaps beyond doubles are settled in fractions
            shift = self.rate * gaps
            room = _PADDING * (1 + shift + np.where(np.isfinite(low), np.abs(low), 0))
            low, high = low - shift - room, np.where(np.isfinite(shift), high - shift + room, np.inf)
        open_ = np.flatnonzero(high >= low.max()).tolist()
        if len(open_) == 1:
            return int(open_[0])
        held = {i: Fraction(scores[i].item()) for i in open_}
        best = max(held.values())
        lost = {i: (best - q) * Fraction(self.rate) for i, q in held.items()}
        return self._settled({i: int(words[i]) for i in open_}, lost, counts)

    def _settled(self, words: dict[int, int], lost: dict[int, Fraction], counts: npt.NDArray[Any]) -> int:
        """Draw further bits of U until one enclosure is above all others."""
        bits = 64
        while len(words) > 1:
            words, bits = {i: (w << 64) | int(random_words(1)[0]) for i, w in words.items()}, bits + 64
            with ctx.workprec(2 * bits):
                ends = {i: self._enclosed(w, bits, lost[i], int(counts[i])) for i, w in words.items()}
                highest = max(low for low, _ in ends.values())
                words = {i: words[i] for i, (_, high) in ends.items() if not high < highest}
        return next(iter(words))

    def _enclosed(self, word: int, bits: int, lost: Fraction, count: int) -> tuple[arb, arb]:
        """Enclose the noise, minus the candidate's gap times the rate, by its values at both ends of the cell of U."""
        behind, found = arb(lost.numerator) / lost.denominator, []
        for end in (word, word + 1):
            if end in (0, 1 << bits):  # at U = 0 and U = 1 the noise is infinite
                found.append((_FAR if end else -_FAR) - behind)
                continue
            x, middle = -(arb(end) / (1 << bits)).log() / count, arb(2).log()
            noise = -(x if self.rule == EXPONENTIAL else 1 - (-x).exp()).log()
            if self.rule == NOISY_MAX:
                above, below = noise - middle, middle - x
                noise = above if x < middle else below if x > middle else above.union(below)
            found.append(noise - behind)
        return found[0].lower(), found[1].upper()


@serializable("choice-rule", eq=False)
class ChoiceRule(Scored):
    """A candidate drawn by its score.

    Parameters
    ----------
    rule : {"permute-and-flip", "exponential mechanism", "report noisy max"}
    rate : float
        c, per unit of score.
    candidates : int or tuple of str
        Number of candidates, or their names.
    choose : int
        Number of candidates to draw, one after the other without replacement; if more than 1, the answer is a list in this order.

    Examples
    --------
    >>> rule = ChoiceRule(PERMUTE, 1.0, ("tea", "coffee", "water"))
    >>> rule.release({"coffee": 900, "tea": 310, "water": 12})
    'coffee'
    >>> rule.probabilities([3, 4, 0]).round(4).tolist()
    [0.1828, 0.8091, 0.008]
    """

    candidates: int | tuple[str, ...] = field(check=names_of)
    choose: int = field(check=integer, least=1, most=lambda self: self.size, default=1)

    @property
    def size(self) -> int:
        """k, the number of candidates."""
        return self.candidates if isinstance(self.candidates, int) else len(self.candidates)

    def scores(self, scores: Any) -> Array:
        """Return scores as doubles in the order of the candidates, or raise DataError."""
        return scores_of(scores, self.candidates)

    def drawn(self, x: Any, source: Simulation | Deployment) -> Any:
        """Draw a candidate, or a list of `choose`, by scores, an array_like of shape (k,) or a mapping by name."""
        held, found = self.scores(x), list[Any]()
        left = np.arange(held.size)
        for _ in range(self.choose):
            k = self._drawn(held[left], np.ones(left.size), source)
            at = int(left[k])
            found.append(at if isinstance(self.candidates, int) else self.candidates[at])
            left = np.delete(left, k)
        return found if self.choose > 1 else found[0]

    def probabilities(self, scores: Any) -> Array:
        """Return the probability of each candidate at these scores, in the first choice; it reveals the scores."""
        held = self.scores(scores)
        gaps, which, counts = np.unique(_gaps(held), return_inverse=True, return_counts=True)
        return chances(self.rule, gaps, counts.astype(float), self.rate)[which]

    def errors(self, scores: Any) -> Accuracy:
        """Return the regrets of the first choice at these scores as errors; they reveal the scores."""
        held = self.scores(scores)
        chance, gaps = self.probabilities(held), _gaps(held)
        return accuracy_of(gaps[chance > 0], chance[chance > 0])  # infinite gaps have probability 0


def scores_of(scores: Any, candidates: int | tuple[str, ...]) -> Array:
    """Return one score for each candidate, in their order, as doubles, or raise DataError, which never quotes them."""
    if hasattr(scores, "keys") and not isinstance(candidates, int):
        held = dict(scores.items())
        missing = sum(name not in held for name in candidates)  # their names would be data: who got no vote
        if unknown := len(held) - len(candidates) + missing:
            raise DataError(
                f"scores: must be one of each candidate: {unknown} are of none, and {missing} candidates have none"
            )
        allowed = f"scores: must be one of each candidate: {missing} have none; give 0 to who got no vote"
        DataError.when(missing, allowed)
        scores = [held[name] for name in candidates]
    found = answers("scores", scores)
    size = candidates if isinstance(candidates, int) else len(candidates)
    DataError.when(found.shape != (size,), f"scores: must be {size} numbers, one of each candidate")
    return found


def _gaps(scores: npt.NDArray[Any]) -> Array:
    """Return the gaps to the largest score, infinite beyond doubles."""
    with np.errstate(over="ignore"):
        return np.asarray(scores.max() - scores, dtype=float)


def chances(rule: str, gaps: Array, counts: Array, rate: float) -> Array:
    r"""Return the probability of each single candidate, for groups of candidates with equal gaps to the best.

    Permute-and-flip: :math:`p_r \int_0^1 \prod_{m \ne r} (1 - p_m t)\,dt` with :math:`p = e^{-c d}`, by 32 Gauss–Legendre nodes on each
    of the intervals :math:`[2^{-j-1}, 2^{-j}]`, on which the integrand is a polynomial that either falls slowly or is negligible. Report noisy max:
    :math:`\int f(z + c d_r) \prod_{m \ne r} F(z + c d_m)\,dz` with density f and distribution F of Laplace noise, between the kinks in steps of at most 4.

    Parameters
    ----------
    rule : str
    gaps, counts : arrays, shape (..., groups)
        d, and the number of candidates that have it.
    rate : float
        c.

    Examples
    --------
    >>> chances(PERMUTE, np.array([0.0, 1.0]), np.ones(2), math.log(2)).round(9).tolist()
    [0.75, 0.25]
    """
    behind = rate * gaps
    alive = np.exp(-behind)
    if rule == EXPONENTIAL:
        return np.asarray(alive / (counts * alive).sum(axis=-1, keepdims=True))
    size = float(counts.sum(axis=-1).max())
    found = np.zeros(np.broadcast_shapes(gaps.shape, counts.shape))
    for left, right in itertools.pairwise(_edges(rule, behind, size)):
        for node, weight in zip(_NODES, _WEIGHTS):
            t = left + (right - left) * (node + 1) / 2
            if rule == PERMUTE:
                density, below = alive, np.log1p(-alive * t)
            else:
                half = np.exp(-np.abs(t + behind)) / 2
                density, below = half, np.where(t + behind < 0, -np.abs(t + behind) - _LOG2, np.log1p(-half))
            others = (counts * below).sum(axis=-1, keepdims=True) - below
            found += weight * (right - left) / 2 * density * np.exp(others)
    return found


def _edges(rule: str, behind: Array, size: float) -> list[float]:
    """Return the ends of the intervals on which the integrand is smooth."""
    if rule == PERMUTE:
        return [0.0, *np.ldexp(1.0, -np.arange(7 + math.ceil(math.log2(size + 1)), -1, -1)).tolist()]
    top = math.ceil(math.log(size)) + 40.0
    kinks = -behind[behind < 40]
    return np.unique(np.concatenate([np.arange(-40, top + 4, 4), kinks])).tolist()  # type: ignore[no-any-return]


def worst_regret(rule: str, candidates: int, rate: float) -> tuple[float, float]:
    r"""Return the largest expected regret if all candidates but the best have the same gap, and that gap.

    For permute-and-flip and the exponential mechanism no scores have more (McKenna and Sheldon 2020, Proposition 4): at the gap u/c with :math:`p = e^{-u}` it is
    :math:`\frac u c \bigl(1 - \frac{1 - (1 - p)^k}{k p}\bigr)` and :math:`\frac u c \frac{(k - 1) p}{1 + (k - 1) p}`. For report noisy max this is not proved.

    Examples
    --------
    >>> [round(worst_regret(rule, 2, 1.0)[0], 6) for rule in RULES]
    [0.18394, 0.278465, 0.293468]
    """

    def regret(u: float) -> float:
        alive = math.exp(-u)
        if rule == EXPONENTIAL:
            return u * (candidates - 1) * alive / (1 + (candidates - 1) * alive)
        if rule == NOISY_MAX:
            return u * float(1 - chances(rule, np.array([0.0, u]), np.array([1.0, candidates - 1.0]), 1.0)[0])
        best = -math.expm1(candidates * math.log1p(-alive)) / (candidates * alive) if u else 1 / candidates
        return u * (1 - best)

    top = math.log(candidates) + 3.0
    found = optimize.minimize_scalar(
        lambda u: -regret(u), bounds=(1e-9, top), method="bounded", options={"xatol": 1e-10}
    )
    u = float(found.x)
    return regret(u) * (1 + 1e-12) / rate, u / rate


Asked = PureDP | ApproximateDP | ZeroConcentratedDP


def keeps(rule: str, privacy: Asked, loss: Fraction) -> bool:
    """Return whether a rule meets the requirement at η = `loss`, in rational arithmetic."""
    if implied_by_pure(privacy, loss) or rule != EXPONENTIAL or isinstance(privacy, PureDP):
        return implied_by_pure(privacy, loss)
    if isinstance(privacy, ZeroConcentratedDP):
        return loss * loss <= 8 * Fraction(privacy.rho)
    over = exp_upper(loss / 2) - exp_lower(Fraction(privacy.epsilon) / 2)
    return over * over <= Fraction(privacy.delta) * (exp_lower(loss) - 1)


def largest_rate(rule: str, privacy: Asked, spread: float) -> float:
    """Return the largest rate, to rounding, at which a rule provably meets the requirement; 0 if none does."""
    near = pure_epsilon(privacy)
    if rule == EXPONENTIAL and isinstance(privacy, ZeroConcentratedDP):
        near = math.sqrt(8 * privacy.rho)
    elif rule == EXPONENTIAL and isinstance(privacy, ApproximateDP):
        # x = e^{η/2} solves (x − e)² = δ (x² − 1), e = e^{ε/2}
        root = math.sqrt(privacy.delta * (1 - (1 - privacy.delta) * math.exp(-privacy.epsilon)))
        near = privacy.epsilon + 2 * (math.log1p(root) - math.log1p(-privacy.delta))
    if isinstance(privacy, ApproximateDP) and privacy.epsilon > LARGEST_POWER:
        near = privacy.epsilon
    rate = round_down(Fraction(near) / Fraction(spread))
    step = 2.0**-50
    while rate and not keeps(rule, privacy, Fraction(rate) * Fraction(spread)):
        rate, step = rate * (1 - step), 2 * step
    return rate


def consumed(rule: str, loss: Fraction, times: int) -> Consumption:
    """Return the budget that `times` choices by a rule consume at η = `loss`."""
    pure = Consumption.pure((loss, times))
    return pure & Consumption(rho=round_up(times * loss * loss / 8)) if rule == EXPONENTIAL else pure


class Choosing(Design):
    """Base class of designs that choose by score, with rules for any scores."""

    central = True
    privacy: Asked
    choose: int = 1
    unit: ClassVar[str] = "regret"
    """Unit of the error."""
    answer_size = None

    @property
    def size(self) -> int:
        """k, the number of candidates."""
        raise NotImplementedError

    @property
    def moved(self) -> float:
        """s, the spread of the scores given to a rule."""
        raise NotImplementedError

    @property
    def scale(self) -> float:
        """Cost of one unit of these scores."""
        return 1.0

    @property
    def each(self) -> Asked:
        """The requirement for one of the choices: an equal part, as requirements add up."""
        if self.choose == 1:
            return self.privacy
        parts = {
            f.name: round_down(Fraction(getattr(self.privacy, f.name)) / self.choose)
            for f in fields(self.privacy)
        }
        return replace(self.privacy, **parts)  # type: ignore[arg-type]

    @property
    def relation(self) -> str:
        """The neighbouring relation in a ledger's terms."""
        return self.neighbours

    @property
    def _counted_neighbours(self) -> str:
        return self.relation

    @property
    def mechanism_class(self) -> proofs.MechanismClass:
        """The two rules."""
        return proofs.family("permute-and-flip or exponential mechanism")

    def rule(self, name: str, rate: float) -> Scored:
        """Return the mechanism of a rule at a rate."""
        raise NotImplementedError

    def _check_own(self, law: Scored) -> Fraction:
        """Return η of a rule for these candidates; raise DesignError if the law is none."""
        if getattr(self, "largest", None) is not None or not proofs.same(law, self.rule(law.rule, law.rate)):
            raise DesignError("law: is no rule for the design's candidates")
        return Fraction(law.rate) * Fraction(self.moved)

    def check_rule(self, law: Scored) -> None:
        """Raise DesignError unless the law is a rule for these candidates that meets the requirement."""
        if not keeps(law.rule, self.each, self._check_own(law)):
            raise DesignError.of("rate", law.rate, f"is too large for {self.privacy}")

    def rates(self) -> dict[str, float]:
        """Return the largest proved rate of each rule that meets the requirement at some rate."""
        found = {rule: largest_rate(rule, self.each, self.moved) for rule in (PERMUTE, EXPONENTIAL)}
        kept = {rule: rate for rule, rate in found.items() if rate}
        refuse(not kept, "privacy", self.privacy, "is a budget too small to be proved: ask for more")
        return kept

    def by(self, rule: str) -> Law:
        """Return the law of one rule, at the largest rate at which it provably meets the requirement."""
        if not (rate := largest_rate(one_of("rule", rule, RULES), self.each, self.moved)):
            raise DesignError.of("privacy", self.privacy, "is a budget too small to be proved: ask for more")
        return Law(self.rule(rule, rate), self.regretted(rule, rate), (proofs.LawProof(),))

    def law_claims(self, stated: proofs.Certificate, given: None) -> Iterator[proofs.Claim]:
        r"""Check that the rule at η = c s meets the requirement, and that its largest expected regret is at most the value.

        For report noisy max the value is the largest regret if all but the best have the same gap. Privacy follows from η: McKenna and Sheldon 2020 (permute-and-flip), Dong, Durfee and Rogers 2020, Cesar and Rogers 2021 (bounded range).
        """
        law: Any = instance("law", stated.law, Scored)
        loss = self._check_own(law)
        room = largest_rate(law.rule, self.each, self.moved) - law.rate
        times = f", {self.choose} times" if self.choose > 1 else ""
        claim = f"{law.rule} at η = {float(loss)!r} keeps {self.privacy}{times}"
        yield proofs.Claim(claim, proofs.PROVED, room, keeps(law.rule, self.each, loss))
        regret = self.regretted(law.rule, law.rate) * (1 - 9e-13)  # the value is 1e-12 above it
        where = " where all others are equally far behind" if law.rule == NOISY_MAX else ""
        claim = f"the expected regret is at most {stated.value!r}{where}"
        yield proofs.Claim(claim, proofs.RECOMPUTED, stated.value - regret, regret <= stated.value)

    def closed_forms(self) -> Iterator[Law | Bound]:
        """Yield the rule with the least worst-case regret."""
        yield min(map(self.by, self.rates()), key=lambda law: law.value)

    def worst(self, rule: str, rate: float) -> tuple[float, float]:
        """Return the largest expected regret of a rule, and the gap of all but the best at which it occurs."""
        regret, gap = worst_regret(one_of("rule", rule, RULES), self.size, positive("rate", rate))
        return regret * self.scale, gap * self.scale

    def regretted(self, rule: str, rate: float) -> float:
        """Return the sum of each choice's largest expected regret among the remaining candidates; all together regret no more."""
        asked = one_of("rule", rule, RULES), positive("rate", rate)
        return (
            math.fsum(worst_regret(asked[0], self.size - k, asked[1])[0] for k in range(self.choose))
            * self.scale
        )

    def consumption(self, result: Result) -> Consumption:
        """Return the budget that a release consumes: the requirement, or the rule's consumption if that is less."""
        law, found = result.mechanism, Consumption.of(self.privacy)
        if isinstance(law, Scored):
            found &= consumed(law.rule, Fraction(law.rate) * Fraction(self.moved), self.choose)
        return replace(found, neighbours=self.relation)

    def audit(self, result: Result) -> pd.DataFrame:
        """Tabulate η of the rule, and the largest η that meets the requirement."""
        law = result.mechanism
        most = largest_rate(law.rule, self.each, self.moved)
        return audit_row("rate × spread", law.rate * self.moved, most * self.moved)

    def errors(self, result: Result, question: object = None) -> Accuracy:
        """Return the regret of one choice at the worst scores."""
        law = result.mechanism
        regret, gap = self.worst(law.rule, law.rate)
        wrong = regret / gap if gap else 0.0
        return Accuracy(gap * math.sqrt(wrong), regret, gap if wrong > 0.05 else 0.0)

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Yield both rules at the same privacy, with their regrets."""
        for rule, rate in self.rates().items():
            yield rule, self.regretted(rule, rate)

    def frame(self, result: Result) -> pd.DataFrame:
        """Tabulate the probability of the best candidate, by its lead over all others."""
        law = result.mechanism
        gaps = np.linspace(0, 2, 33) * (self.worst(law.rule, law.rate)[1] or 1.0)
        counts = np.array([1.0, self.size - 1.0])
        best = [
            float(chances(law.rule, np.array([0.0, gap / self.scale]), counts, law.rate)[0])
            for gap in gaps.tolist()
        ]
        return pd.DataFrame({"ahead": gaps, "best": best, "regret": gaps * (1 - np.array(best))})

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the probability of the best candidate, by its lead over all others."""
        labels = {"xlabel": "by how much the best is ahead", "ylabel": "probability of choosing it"}
        return draw_curves({"": self._lead(result)}, options, "-", **labels, ylim=(0, 1.02))

    def _lead(self, result: Result) -> tuple[Any, ...]:
        """Return leads of the best candidate, and the probability of choosing it."""
        table = self.frame(result)
        return table["ahead"], table["best"]

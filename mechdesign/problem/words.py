"""Put questions into words: descriptions of designs, privacy requirements, priors and losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mechdesign.evidence.digits import at_most, law_shown, shown
from mechdesign.problem.priors import ClippedPrior, EmpiricalPrior, LawPrior, Prior, TruncatedPrior
from mechdesign.problem.privacy import (
    ApproximateDP,
    GaussianDP,
    MetricDP,
    Privacy,
    PureDP,
    ZeroConcentratedDP,
    points_of,
)
from mechdesign.typing import Array

NEGLIGIBLE = 1e-6
LOCAL = "any two inputs that a person might have"
NEIGHBOURS = "any two neighbouring data sets"
FARTHEST = (
    "That is between any two inputs, the two that are farthest apart too; between nearer ones less is found."
)
_WHOLE = "as long as the changes are stated for all records of a person. Further releases consume more."
SHOWN = 12  # most rows and columns of a matrix that a page prints in numbers, beside its picture
_LISTED = 8  # most probabilities of a prior that a sentence lists
_UNITS = {
    None: "one report of one person, randomized before it leaves the device. Every further report of a person consumes the budget again.",
    "add-remove": f"one person more or less (add-remove neighbours), {_WHOLE}",
    "replace": f"one person whose data are replaced (replace neighbours), {_WHOLE}",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Description:
    """Question and mechanism of a design in words; one template makes the head of its page from them.

    Parameters
    ----------
    title : str
        The mechanism, in a few words. The page adds the guarantee.
    what : str
        The question and how it is answered, in sentences.
    loss : str
        Noun phrase for the value, to follow "the".
    more : tuple of str
        Paragraphs about the mechanism found.
    pair : str
        The inputs between which privacy holds, if not any two.
    unit : str
        The unit of privacy in a sentence, where it is neither one report nor one person.
    consumed : str
        Budget that the mechanism consumes.
    picture, rivals : str
        What picture and table show, and which mechanisms the result is compared with.
    table : DataFrame, optional
        The mechanism in numbers.
    attacked : str
        Sentence on the inputs between which the attacker is bounded, if privacy weakens with distance (`FARTHEST`).
    """

    title: str
    what: str
    loss: str
    more: tuple[str, ...] = ()
    pair: str = ""
    unit: str = ""
    consumed: str = ""
    picture: str = ""
    rivals: str = "The same question answered by known mechanisms."
    table: pd.DataFrame | None = None
    attacked: str = ""

    def question(self, privacy: object, neighbours: str | None, among: object) -> str:
        """Return the question in sentences, paragraphs apart by an empty line.

        Parameters
        ----------
        privacy : Privacy or str
            The requirement; if it is no `Privacy`, `what` or `more` describes it.
        neighbours : str, optional
            Neighbouring relation; None for reports of one person each.
        among : MechanismClass
            Mechanisms over which the design optimizes.
        """
        pair = self.pair or (LOCAL if neighbours is None else NEIGHBOURS)
        required = [privacy_words(privacy, pair)] if isinstance(privacy, Privacy) else []
        unit = self.unit or f"The unit of privacy is {_UNITS[neighbours]}"
        return "\n\n".join(
            [self.what, *required, unit, f"What is minimised is the {self.loss}, over {among}.", *self.more]
        )


def guarantee(privacy: object) -> str:
    """Return the requirement in symbols.

    Examples
    --------
    >>> guarantee(ApproximateDP(1.0, 1e-6)), guarantee(PureDP(0.5))
    ('ε = 1, δ = 1e-06', 'ε = 0.5')
    """
    if isinstance(privacy, ZeroConcentratedDP):
        return f"ρ = {shown(privacy.rho)}" + (f", ξ = {shown(privacy.xi)}" if privacy.xi else "")
    if isinstance(privacy, GaussianDP):
        return f"μ = {shown(privacy.mu)}"
    if not isinstance(privacy, Privacy):  # of users
        return str(privacy)
    if not isinstance(privacy, PureDP | MetricDP):
        points = points_of(privacy).points
        return "; ".join(f"ε = {shown(e)}" + (f", δ = {shown(d)}" if d else "") for e, d in points)
    if isinstance(privacy, MetricDP):
        return f"α = {shown(privacy.epsilon)} per unit of distance"
    return f"ε = {shown(privacy.epsilon)}"


def stated(
    asked: str, unit: str, deviation: float | None, rounds: int = 1, sampling_rate: float = 1.0
) -> str:
    """Return the first line of a print: guarantee, rounds, unit of privacy, standard deviation.

    Examples
    --------
    >>> stated("ε = 1, δ = 0", "add-remove neighbours", 1.41421, rounds=12)
    'ε = 1, δ = 0; 12 rounds together; add-remove neighbours; standard deviation 1.41421'
    """
    often = "1 round" if rounds == 1 else f"{rounds} rounds together"
    often += "" if sampling_rate == 1 else f", each on a Poisson sample at rate {sampling_rate:g}"
    error = [] if deviation is None else [f"standard deviation {deviation:.6g}"]
    return "; ".join([asked, often, unit, *error])


def privacy_words(privacy: Privacy, pair: str) -> str:
    """Return the requirement as a sentence about `pair`, the inputs that must be hard to tell apart.

    Examples
    --------
    >>> privacy_words(PureDP(1.0), LOCAL)[:62]
    'ε-differential privacy with ε = 1: for any two inputs that a p'
    """
    if isinstance(privacy, PureDP):
        return (
            f"ε-differential privacy with ε = {shown(privacy.epsilon)}: for {pair}, no answer is more than "
            f"e^ε = {_factor(privacy.epsilon)} times likelier under one than under the other."
        )
    if isinstance(privacy, ApproximateDP):
        return (
            f"(ε, δ)-differential privacy with ε = {shown(privacy.epsilon)}, δ = {shown(privacy.delta)}: for {pair}, no set "
            f"of answers is likelier under one than e^ε = {_factor(privacy.epsilon)} times under the other plus δ."
        )
    if isinstance(privacy, ZeroConcentratedDP):
        return (
            f"Zero-concentrated differential privacy with ρ = {shown(privacy.rho)}"
            + (f", ξ = {shown(privacy.xi)}" if privacy.xi else "")
            + f": for {pair}, the Rényi divergence of order α between the answers is at most "
            f"{'ξ + ' if privacy.xi else ''}ρα, for all α > 1."
        )
    if isinstance(privacy, GaussianDP):
        return (
            f"Gaussian differential privacy with μ = {shown(privacy.mu)}: for {pair}, the answers are no easier to tell apart than "
            "two normal numbers of deviation 1 whose means are μ apart."
        )
    if not isinstance(privacy, MetricDP):
        curve = points_of(privacy)
        return (
            f"(ε, δ)-differential privacy at {guarantee(privacy)}: for {pair}, {curve.attack(0.01)}, and whoever accuses any share "
            f"of the innocents finds at most that and {at_most(100 * curve.advantage, 3)} percentage points more of the guilty."
        )
    how = f"{privacy.metric} " if isinstance(privacy.metric, str) else ""
    unit = getattr(privacy.metric, "unit", "")
    return (
        f"Metric differential privacy with α = {shown(privacy.epsilon)} per {unit or 'unit of distance'}: for {pair}, no answer is more "
        f"than e^(α d) times likelier under one than under the other, where d is the {how}distance between them{f' in {unit}' if unit else ''}."
    )


def _factor(epsilon: float) -> str:
    return at_most(math.exp(epsilon), 4) if epsilon < 700 else f"e^{epsilon:g}"


def prior_words(spec: object) -> str:
    """Return the prior as a phrase.

    Examples
    --------
    >>> from scipy import stats
    >>> prior_words(stats.uniform(-1, 2))
    'the law uniform(-1, 2) on [-1, 1]'
    """
    prior = Prior.of(spec)
    if isinstance(prior, EmpiricalPrior):
        return f"{len(prior.samples)} samples"
    low, high = (shown(v) for v in prior.support)
    if not isinstance(prior, LawPrior | ClippedPrior | TruncatedPrior):
        return f"a law on [{low}, {high}]"
    law = prior.law
    cuts: dict[type, str] = {ClippedPrior: ", clipped to", TruncatedPrior: ", truncated to"}
    return f"the law {law_shown(law)}{cuts.get(type(prior), ' on')} [{low}, {high}]"


def weights_words(weights: Array) -> str:
    """Describe a prior by its probabilities, or without them if there are many inputs.

    Examples
    --------
    >>> weights_words(np.array([1.0, 3.0])), weights_words(np.ones(50))
    ('the prior (0.25, 0.75)', 'the prior given')
    """
    shares = ", ".join(shown(w) for w in weights / weights.sum())
    return f"the prior ({shares})" if len(weights) <= _LISTED else "the prior given"


def never_sent(names: Sequence[str], most: Array, what: str) -> list[str]:
    """Name the outputs whose largest probability over all inputs, in `most`, is negligible.

    Examples
    --------
    >>> never_sent(["-1", "0", "1"], np.array([0.5, 1e-9, 0.5]), "outputs")
    ['outputs that practically never come, of probability at most 1e-09 for every input: 0']
    """
    rare = np.flatnonzero(most < NEGLIGIBLE)
    if not len(rare):
        return []
    listed = ", ".join(names[i] for i in rare[:8])
    if len(rare) > 8:
        listed += f", … ({len(rare)} of {len(names)})"
    top, often = float(most[rare].max()), "never come"
    if top:
        often = f"practically never come, of probability at most {shown(top, 2)} for every input"
    return [f"{what} that {often}: {listed}"]

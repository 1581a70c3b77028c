"""What prints and pages say of a calibration: the question in words, the law drawn, the usual laws for comparison."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from mechdesign.accounting.interval import DeltaInterval
from mechdesign.errors import DesignError, MechdesignError
from mechdesign.evidence.account import Account
from mechdesign.evidence.digits import at_least, at_most, shown
from mechdesign.noise.additive import AdditiveNoise, stated_parameters
from mechdesign.noise.calibration.evaluation import budget_of
from mechdesign.noise.pictures import draw_laws, half_width, relative_table
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.problem.words import NEIGHBOURS, guarantee, privacy_words, unit_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["account", "alternatives", "draw", "lines"]

_NAMES = {
    "norm": "Gaussian",
    "laplace": "Laplace",
    "dlaplace": "discrete Laplace",
    "flipped_huber": "flipped Huber",
    "gennorm": "generalised normal",
    "osgt": "OSGT",
}
_RIVALS = ("gaussian", "laplace")


def lines(design: Any, noise: AdditiveNoise, spent: DeltaInterval | None) -> list[str]:
    """Lines of the summary: the law, the requirement, how it is released, what it consumes."""
    rounds, rate = design.rounds, design.sampling_rate
    often = "" if rounds == 1 else f" in {rounds} rounds"
    often += "" if rate == 1 else f", each on a Poisson sample at rate {rate:g}"
    out = [noise.summary(), f"meets {design.privacy}{often}"]
    if not noise.worst_cases.exact and not isinstance(design.privacy, PureDP):
        out.append(
            "the worst change is bounded from above: no exact one is proved for these bounds and this law"
        )
    out.append(_release_words(noise))
    if spent is not None:
        ends = f"[{at_least(spent.lower)}, {at_most(spent.upper)}] of {shown(budget_of(design.privacy))}"
        out.append(f"enclosed apart from the search: {ends}")
    return out


def account(design: Any, noise: AdditiveNoise, spent: DeltaInterval | None) -> Account:
    """The question in words."""
    name, size = noise.law.dist.name, noise.dimension
    family = _NAMES.get(name, name.replace("_", " "))
    kind = "" if noise.continuous else "whole "
    what = f"a {kind}number" if size == 1 else f"{size} {kind}numbers"
    value = (
        "variance of one coordinate" if design.loss == "squared" else "mean absolute error of one coordinate"
    )
    each = "it" if size == 1 else "each of them"
    changes = _changes(design.sensitivity, size)
    rounds = (
        ""
        if design.rounds == 1
        else f" It is answered {design.rounds} times; the requirement is for all answers together."
    )
    if design.sampling_rate < 1:
        rounds += f" Each time it sees a Poisson sample, every record with probability {shown(design.sampling_rate)}."
    question = [
        f"A query returns {what} about a data set. Between neighbouring data sets {changes}. "
        f"Noise is added to {each}.{rounds}",
        privacy_words(design.privacy, NEIGHBOURS),
        _unit(design.sensitivity),
        f"Chosen is the {family} law ({stated_parameters(noise)}) of least {value} that meets the requirement. Its standard deviation is "
        f"{shown(noise.standard_deviation)}, its mean absolute error {shown(noise.absolute_error)}; 19 times out of 20 "
        f"{'the' if size == 1 else 'a'} number is off by at most {shown(half_width(noise.law))}"
        f"{'' if size == 1 else f', each by itself (that all {size} are is rarer)'}.",
        f"It is {_release_words(noise)}.",
    ]
    most = ""
    if spent is not None:
        most = f"consumes at most {at_most(spent.upper, 4)} of {shown(budget_of(design.privacy))}"
    return Account(
        f"{family[0].upper()}{family[1:]} noise at {guarantee(design.privacy)}",
        f"For {what}: {changes}.",
        "\n\n".join(question),
        value,
        (guarantee(design.privacy), most),
        "Above: the law of the noise on one number. Below: how often the noise is larger than t.",
        "The same requirement met by the usual laws, each at its least scale. md.compare tries every mechanism that applies.",
    )


def _release_words(noise: Any) -> str:
    """How `release` answers."""
    try:
        lattice = noise.lattice
    except DesignError as error:
        return f"not released: {error}"
    if not noise.continuous:
        return "released exactly: the numbers are whole, and so is the noise"
    return (
        f"released on multiples of {lattice.step:.6g}, wider by {lattice.cost:.2g} for the rounding to them"
    )


def _changes(sensitivity: Any, size: int) -> str:
    if isinstance(sensitivity, Sensitivity):
        return str(sensitivity).partition(" (")[0]
    return f"{'it changes' if size == 1 else 'every number changes'} by at most {shown(sensitivity)}" + (
        "" if size == 1 else ", all of them at once"
    )


def _unit(sensitivity: Any) -> str:
    if isinstance(sensitivity, Sensitivity):
        who = {
            "add-remove": "has the data of one person more",
            "replace": "has the data of one person replaced",
        }
        return (
            f"The unit of privacy is one person: data sets are neighbours when one {who[sensitivity.neighbours]}. "
            "Further releases consume more."
        )
    return unit_words("computed the sensitivity", "Further releases consume more.")


def _rivals(design: Any, noise: AdditiveNoise) -> dict[str, Any]:
    """The usual laws calibrated to the same requirement; in several dimensions those that have a formula."""
    found, own = {}, noise.law.dist.name
    for name in _RIVALS if noise.dimension == 1 and noise.once else _RIVALS[:1]:
        if name != own and not (name == "gaussian" and own == "norm"):
            with suppress(MechdesignError):  # this law cannot meet the requirement
                found[name] = replace(design, noise=name).solve(certify=False)
    return found


def alternatives(design: Any, result: Any) -> pd.DataFrame:
    """What the usual laws cost at the same privacy."""
    rivals = _rivals(design, result.mechanism)
    rows = [("this noise", result.value), *((f"{name} noise", r.value) for name, r in rivals.items())]
    return relative_table(rows if rivals else [])


def draw(design: Any, noise: AdditiveNoise, **options: Any) -> Figure:
    """Draw the law and its tail, with the usual laws at the same privacy."""
    others = _rivals(design, noise) if noise.continuous else {}
    laws = {name: r.mechanism.law for name, r in others.items()}
    return draw_laws({"this noise": noise.law, **laws}, **options)

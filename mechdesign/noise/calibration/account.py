"""What a calibration's page says: the question in words, the law drawn, Laplace and Gaussian noise beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from mechdesign.errors import DesignError, MechdesignError
from mechdesign.evidence.account import Account
from mechdesign.evidence.digits import at_most, shown
from mechdesign.noise.additive import stated_parameters
from mechdesign.noise.pictures import draw_laws, half_width, relative_table
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.problem.words import NEIGHBOURS, guarantee, privacy_words, unit_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["calibration_account", "calibration_alternatives", "draw_calibration", "release_words"]

_NAMES = {
    "norm": "Gaussian",
    "laplace": "Laplace",
    "dlaplace": "discrete Laplace",
    "flipped_huber": "flipped Huber",
    "gennorm": "generalised normal",
    "osgt": "OSGT",
}
_RIVALS = ("gaussian", "laplace")


def calibration_account(result: Any) -> Account:
    """What was asked of the noise."""
    design, noise = result.design, result.noise
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
        f"It is {release_words(noise)}.",
    ]
    spent = (
        ""
        if result.certificate is None
        else f"spends at most {at_most(result.certificate.upper, 4)} of {shown(result.certificate.budget)}"
    )
    return Account(
        f"{family[0].upper()}{family[1:]} noise at {guarantee(design.privacy)}",
        f"For {what}: {changes}.",
        "\n\n".join(question),
        value,
        (guarantee(design.privacy), spent),
        "Above: the law of the noise on one number. Below: how often the noise is larger than t.",
        "The same requirement met by the usual laws, each at its least scale. md.compare tries every mechanism that applies.",
    )


def release_words(noise: Any) -> str:
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
            "Further releases spend more."
        )
    return unit_words("computed the sensitivity", "Further releases spend more.")


def _rivals(result: Any) -> dict[str, Any]:
    """The usual laws calibrated to the same requirement; in several dimensions those that have a formula."""
    design, found = result.design, {}
    quick = result.noise.dimension * design.rounds == 1 and design.sampling_rate == 1
    names = _RIVALS if quick else _RIVALS[:1]
    for name in names:
        if name != result.law.dist.name and not (name == "gaussian" and result.law.dist.name == "norm"):
            try:
                found[name] = replace(design, noise=name, accounting="exact").solve(certify=False)
            except MechdesignError:
                continue  # this law cannot meet the requirement
    return found


def calibration_alternatives(result: Any) -> pd.DataFrame:
    """What the usual laws cost at the same privacy."""
    rows = [
        ("this noise", result.value),
        *((f"{name} noise", r.value) for name, r in _rivals(result).items()),
    ]
    return relative_table(rows if len(rows) > 1 else [])


def draw_calibration(result: Any, **options: Any) -> Figure:
    """Draw the law and its tail, with the usual laws at the same privacy."""
    continuous = result.noise.continuous
    others = {name: r.law for name, r in _rivals(result).items() if continuous}
    return draw_laws({"this noise": result.law, **others}, **options)

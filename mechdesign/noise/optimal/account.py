"""What an optimal noise's page says: the question in words, the law drawn, Laplace and Gaussian noise beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from mechdesign.errors import MechdesignError
from mechdesign.evidence.account import Account
from mechdesign.evidence.digits import at_most, shown
from mechdesign.noise.calibration.design import calibrate
from mechdesign.noise.pictures import draw_laws, relative_table
from mechdesign.problem.losses import Loss
from mechdesign.problem.words import NEIGHBOURS, guarantee, loss_words, privacy_words, unit_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_optimal_noise", "optimal_noise_account", "optimal_noise_alternatives"]


def optimal_noise_account(result: Any) -> Account:
    """What was asked of the noise."""
    design, law = result.design, result.law
    value = f"expected {loss_words(design.loss)}"
    question = [
        "A query returns one number about a data set. Between neighbouring data sets it changes by at most "
        f"{shown(design.sensitivity)}. Noise is added to it.",
        privacy_words(design.privacy, NEIGHBOURS),
        unit_words("computed the sensitivity", "The guarantee is for one release."),
        f"Wanted is, of all laws of noise there are, the one of least {value}. Its density is constant on "
        f"{len(law.weights)} cells of width {shown(law.width)}; the lower bound holds for every law whatsoever.",
    ]
    spent = float(law.exact_delta(design.epsilon))
    return Account(
        f"Optimal noise at {guarantee(design.privacy)}",
        f"For one number, sensitivity {shown(design.sensitivity)}: least {value}.",
        "\n\n".join(question),
        value,
        (
            guarantee(design.privacy),
            f"exact δ at most {at_most(spent, 4)}" if design.delta else "pure, exactly",
        ),
        "Above: the density of the noise. Below: how often it is larger than t.",
        "The same requirement met by the usual laws, each at its least scale.",
    )


def _rivals(result: Any) -> dict[str, Any]:
    design, loss = result.design, Loss.of(result.design.loss)
    found: dict[str, Any] = {}
    for name in ("laplace", "gaussian"):
        judged = "squared" if loss.squared else "absolute"
        try:
            found[name] = calibrate(name, privacy=design.privacy, sensitivity=design.sensitivity, loss=judged)
        except MechdesignError:
            continue  # this law cannot meet the requirement
    return found


def optimal_noise_alternatives(result: Any) -> pd.DataFrame:
    """What the usual laws cost at the same privacy."""
    loss = Loss.of(result.design.loss)
    rows = [("this noise", result.value)]
    if loss.polynomial:
        for name, r in _rivals(result).items():
            rows.append(
                (
                    f"{name} noise",
                    loss.absolute * r.mechanism.absolute_error + loss.squared * r.mechanism.variance,
                )
            )
    if result.lower_bound is not None:
        rows.append(("proved least of all laws", result.lower_bound))
    return relative_table(rows if len(rows) > 1 else [])


def draw_optimal_noise(result: Any, **options: Any) -> Figure:
    """Draw the law and its tail, with the usual laws at the same privacy."""
    return draw_laws(
        {"this noise": result.law, **{n: r.mechanism.law for n, r in _rivals(result).items()}}, **options
    )

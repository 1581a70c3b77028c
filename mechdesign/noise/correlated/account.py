"""What a correlated Gaussian's page says: the question in words, the covariance drawn, independent noise beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.evidence.account import Account
from mechdesign.evidence.digits import at_most
from mechdesign.noise.pictures import relative_table
from mechdesign.plotting import figure, sized
from mechdesign.problem.words import NEIGHBOURS, guarantee, privacy_words, unit_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["correlated_account", "correlated_alternatives", "draw_covariance"]


def correlated_account(result: Any) -> Account:
    """What was asked of the covariance."""
    design = result.design
    count, size = design.vectors.shape
    value = "sum of the variances" if design.weights is None else "weighted sum of the covariance, tr(WΣ)"
    question = [
        f"A query returns {size} numbers about a data set. Between neighbouring data sets it changes by one of {count} "
        "known vectors, or by a point of their convex hull. Gaussian noise is added, its coordinates correlated.",
        privacy_words(design.privacy, NEIGHBOURS),
        unit_words("listed the vectors", "The guarantee is for the whole vector, released once."),
        f"Wanted is the covariance of least {value}; the lower bound is over all covariances.",
    ]
    return Account(
        f"Correlated Gaussian noise at {guarantee(design.privacy)}",
        f"For {size} numbers that change by one of {count} vectors: least {value}.",
        "\n\n".join(question),
        value,
        (guarantee(design.privacy), f"{at_most(float(result.spent.max()))} of the budget spent at most"),
        "The correlations of the noise: 1 on the diagonal, 0 where two numbers get independent noise.",
        "Independent noise of one scale, for the longest of the vectors, at the same privacy.",
    )


def correlated_alternatives(result: Any) -> pd.DataFrame:
    """What independent Gaussian noise of one scale costs."""
    design = result.design
    longest = float((design.vectors**2).sum(axis=1).max()) / design.budget
    trace = design.vectors.shape[1] if design.weights is None else float(np.trace(design.weights))
    rows = [("this covariance", result.value), ("one scale for all", longest * trace)]
    if result.lower_bound is not None:
        rows.append(("proved least of all covariances", result.lower_bound))
    return relative_table(rows)


def draw_covariance(result: Any, **options: Any) -> Figure:
    """Draw the correlations as shades."""
    deviation = np.sqrt(np.maximum(np.diag(result.covariance), 1e-300))
    fig, axis = figure(**sized(options, 5.0, 4.2))
    shades = axis.imshow(result.covariance / np.outer(deviation, deviation), cmap="RdBu_r", vmin=-1, vmax=1)
    axis.grid(False)
    axis.set(xlabel="number", ylabel="number")
    fig.colorbar(shades, ax=axis, label="correlation")
    return fig

"""What a channel's page says: the question in words, its tables, and the matrix drawn."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.channels.channel import Channel
from mechdesign.errors import DesignError
from mechdesign.evidence.account import Account
from mechdesign.evidence.accuracy import Accuracy, quantile
from mechdesign.evidence.digits import at_most, shown
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.plotting import figure, sized
from mechdesign.typing import Array, Indices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["alternatives", "audit_table", "channel_account", "distance_errors", "draw", "item_table"]

_LOSSES = {
    "metric": "distance to the truth",
    "squared": "squared distance to the truth",
    "error": "probability of a wrong report",
}
_CALIBRATED = 200  # items up to which a page calibrates the exponential mechanism


def item_table(design: Any, matrix: Array) -> pd.DataFrame:
    """Per item: prior, probability of an unchanged report (square channels), expected loss."""
    frame = pd.DataFrame({"item": np.arange(len(matrix)), "prior": design.weights})
    if matrix.shape[0] == matrix.shape[1]:
        frame["unchanged"] = np.diag(matrix)
    frame["expected_loss"] = (matrix * design.losses).sum(axis=1)
    return frame


def audit_table(design: Any, matrix: Array, multipliers: list[tuple[Indices, Array]]) -> pd.DataFrame:
    """Privacy of every ordered pair (largest log-ratio against α·d), row sums, and the equalities.

    A pair's dual is the sum of its multipliers over the reports that are in use.
    """
    x, other = np.nonzero(~np.eye(len(matrix), dtype=bool))
    with np.errstate(divide="ignore", invalid="ignore"):
        lhs = np.log(np.nan_to_num(matrix[x] / matrix[other], nan=0.0, posinf=np.inf).max(axis=1))
    rhs = design.alpha * design.space.distances[x, other]
    duals = np.zeros((len(matrix), len(matrix)))
    for triples, values in multipliers:
        used = (matrix.max(axis=0) > 0)[triples[:, 2]]
        np.add.at(duals, tuple(triples[used, :2].T), values[used])
    pairs = [f"{a}, {b}" for a, b in zip(x.tolist(), other.tolist())]
    parts = [_family("privacy", pairs, lhs, rhs, rhs - lhs, duals[x, other])]
    equal = {"normalisation": (matrix.sum(axis=1), np.ones(len(matrix)))}
    if design.equalities is not None:
        query, values = design.equalities
        equal["unbiased"] = (matrix @ values).ravel(), query.ravel()
    for family, (got, wanted) in equal.items():
        parts.append(_family(family, range(len(got)), got, wanted, -np.abs(got - wanted), np.nan))
    return pd.concat(parts, ignore_index=True)[AUDIT_COLUMNS]


def distance_errors(design: Any, matrix: Array) -> Accuracy:
    """Distances between item and report, over the prior."""
    distances = design.space.distances
    if matrix.shape != distances.shape:
        raise DesignError.of("mechanism", "reports that are no items", "have no distance to the truth")
    weights = design.weights[:, None] * matrix
    return Accuracy(
        math.sqrt(float((weights * distances**2).sum())),
        float((weights * distances).sum()),
        quantile(distances, weights),
    )


def channel_account(design: Any, channel: Channel) -> Account:
    """What was asked of the channel."""
    space, unit, outputs = design.space, design.space.unit, channel.outputs
    value = f"expected {_LOSSES.get(design.loss, 'loss') if isinstance(design.loss, str) else 'loss'}"
    prior = "all items are equally likely" if design.prior is None else "items follow the given prior"
    question = [
        f"One of {space.size} items is to be reported as one of {outputs}. Distances between the items say how alike "
        f"they are{f' (in {unit})' if unit else ''}; the largest is {shown(space.diameter)}.",
        f"Metric privacy at α = {shown(design.alpha)} per unit of distance: no report is more than e^(α d) times likelier for "
        "one item than for another at distance d. Near items are hard to tell apart, far ones may be told apart.",
        "The unit of privacy is one report of one person: each item is randomized by itself before it leaves the device. "
        "Each further report of a person consumes the budget once more.",
        f"The channel has the least {value}, where {prior}. Privacy holds whatever the prior.",
    ]
    return Account(
        f"Private channel for {space.size} items at α = {shown(design.alpha)}",
        f"Least {value}.",
        "\n\n".join(question),
        value,
        (
            f"α = {shown(design.alpha)}",
            f"exact loss at most {at_most(channel.alpha)} per unit of distance",
        ),
        "The probability of every report (across) for every item (down).",
        "The exponential mechanism at its largest parameter that is α-private, and the same with each report replaced by "
        "the best guess after it.",
    )


def alternatives(design: Any, own: float, bound: float | None) -> pd.DataFrame:
    """What the exponential mechanism costs at the same α, alone and remapped."""
    rows = [("this channel", own)]
    square = design.losses.shape == (design.space.size, design.space.size)
    if square and design.space.size <= _CALIBRATED and design.equalities is None:
        plain = Channel.exponential(design.space, design.alpha)
        remapped = plain.remapped(design.losses, design.weights)
        rows.append(("exponential mechanism", plain.expected_loss(design.losses, design.weights)))
        rows.append(("the same, remapped", remapped.expected_loss(design.losses, design.weights)))
    if bound is not None:
        rows.append(("proved least", bound))
    return pd.DataFrame(
        [(name, e, e / own if own else np.nan) for name, e in rows] if len(rows) > 1 else [],
        columns=["mechanism", "error", "relative"],
    )


def draw(matrix: Array, **options: Any) -> Figure:
    """Draw the matrix as shades."""
    fig, axis = figure(**sized(options, 5.0, 4.2))
    shades = axis.imshow(matrix, cmap="viridis", vmin=0, aspect="auto", interpolation="nearest")
    axis.grid(False)
    axis.set(xlabel="report", ylabel="item")
    fig.colorbar(shades, ax=axis, label="probability")
    return fig


def _family(family: str, index: Any, lhs: Array, rhs: Array, slack: Array, dual: Any) -> pd.DataFrame:
    columns = {"index": [str(i) for i in index], "lhs": lhs, "rhs": rhs, "slack": slack, "dual": dual}
    return pd.DataFrame({**columns, "family": family, "active": slack <= 1e-9})

"""What a channel's page says: the question in words, the matrix drawn, the exponential mechanism beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.channels.channel import Channel
from mechdesign.evidence.account import Account
from mechdesign.evidence.digits import at_most, shown
from mechdesign.plotting import figure, sized

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["channel_account", "channel_alternatives", "draw_channel"]

_LOSSES = {
    "metric": "distance to the truth",
    "squared": "squared distance to the truth",
    "error": "probability of a wrong report",
}
_RIVAL = 200  # items up to which the exponential mechanism is calibrated


def channel_account(result: Any) -> Account:
    """What was asked of the channel."""
    design, channel = result.design, result.channel
    space, unit = design.space, design.space.unit
    value = f"expected {_LOSSES.get(design.loss, 'loss') if isinstance(design.loss, str) else 'loss'}"
    prior = "all items are equally likely" if design.prior is None else "items follow the given prior"
    question = [
        f"One of {space.size} items is to be reported as one of {channel.outputs}. Distances between the items say how alike "
        f"they are{f' (in {unit})' if unit else ''}; the largest is {shown(space.diameter)}.",
        f"Metric privacy at α = {shown(design.alpha)} per unit of distance: no report is more than e^(α d) times likelier for "
        "one item than for another at distance d. Near items are hard to tell apart, far ones may be told apart.",
        "The unit of privacy is one report of one person: each item is randomized by itself before it leaves the device. "
        "Whoever reports several times spends the budget each time.",
        f"Wanted is the channel of least {value}, where {prior}. Privacy holds whatever the prior.",
    ]
    return Account(
        f"Private channel for {space.size} items at α = {shown(design.alpha)}",
        f"Least {value}.",
        "\n\n".join(question),
        value,
        (f"α = {shown(design.alpha)}", f"exact loss at most {at_most(channel.alpha)} per unit of distance"),
        "The probability of every report (across) for every item (down).",
        "The exponential mechanism at its largest parameter that is α-private, and the same with each report replaced by "
        "the best guess after it.",
    )


def channel_alternatives(result: Any) -> pd.DataFrame:
    """What the exponential mechanism costs at the same α, alone and remapped."""
    design = result.design
    rows = [("this channel", result.value)]
    square = design.losses.shape == (design.space.size, design.space.size)
    if square and design.space.size <= _RIVAL and design.equalities is None:
        rival = Channel.exponential(design.space, design.alpha)
        rows.append(("exponential mechanism", rival.expected_loss(design.losses, design.weights)))
        rows.append(
            (
                "the same, remapped",
                rival.remapped(design.losses, design.weights).expected_loss(design.losses, design.weights),
            )
        )
    if result.lower_bound is not None:
        rows.append(("proved least", result.lower_bound))
    own = result.value
    return pd.DataFrame(
        [(name, e, e / own if own else np.nan) for name, e in rows] if len(rows) > 1 else [],
        columns=["mechanism", "error", "relative"],
    )


def draw_channel(result: Any, **options: Any) -> Figure:
    """Draw the matrix as shades."""
    fig, axis = figure(**sized(options, 5.0, 4.2))
    shades = axis.imshow(
        result.channel.matrix, cmap="viridis", vmin=0, aspect="auto", interpolation="nearest"
    )
    axis.grid(False)
    axis.set(xlabel="report", ylabel="item")
    fig.colorbar(shades, ax=axis, label="probability")
    return fig

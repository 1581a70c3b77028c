"""What an allocation's page says: the question in words, the scales drawn, the usual choices beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mechdesign.evidence.account import Account
from mechdesign.evidence.digits import at_most, shown
from mechdesign.plotting import COLOURS, figure, legend_above, sized
from mechdesign.problem.words import NEIGHBOURS, guarantee, privacy_words, unit_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["allocation_account", "allocation_alternatives", "draw_allocation"]

_BARS = 60  # coordinates that are drawn one by one; more are sorted by sensitivity


def allocation_account(result: Any) -> Account:
    """What was asked of the scales."""
    design, lam = result.design, result.design.sensitivities
    noise = design.noise.capitalize()
    order = shown(design.loss)
    value = f"sum of E|noise|^{order} over the coordinates" + ("" if design.weights is None else ", weighted")
    limits = [name for name in ("lower", "upper", "groups") if getattr(design, name, None) is not None]
    together = "all may change at once" if design.bounds is None else f"together: {design.bounds}"
    question = [
        f"A query returns {len(lam)} numbers about a data set. Between neighbouring data sets number i changes by at most "
        f"λ_i, which lies between {shown(lam.min())} and {shown(lam.max())}; {together}. "
        f"{noise} noise of a scale of its own is added to each, independently.",
        privacy_words(design.privacy, NEIGHBOURS),
        unit_words("computed the sensitivities", "The guarantee is for the whole vector, released once."),
        f"Wanted are the scales of least {value}"
        + (f", within the limits given ({', '.join(limits)})" if limits else "")
        + ".",
    ]
    return Account(
        f"{noise} noise for {len(lam)} numbers at {guarantee(design.privacy)}",
        f"Scales by coordinate; least {value}.",
        "\n\n".join(question),
        value,
        (guarantee(design.privacy), f"{at_most(float(result.spent.sum()))} of the budget spent"),
        "Above: the scale of the noise on each number. Below: the share of the budget that each number takes.",
        "The same requirement met by one scale for all numbers, and by scales in proportion to the sensitivities.",
    )


def allocation_alternatives(result: Any) -> pd.DataFrame:
    """What the usual choices cost at the same privacy."""
    table = result.compare()
    table = table.iloc[::-1].reset_index(drop=True)
    own = float(table["loss"].iloc[0])
    names = {"optimal": "this allocation", "i.i.d.": "one scale for all (i.i.d.)"}
    return pd.DataFrame(
        {
            "mechanism": table["mechanism"].replace(names),
            "error": table["loss"],
            "relative": table["loss"] / own if own else np.nan,
        }
    )


def draw_allocation(result: Any, **options: Any) -> Figure:
    """Draw scales and shares of the budget by coordinate."""
    lam = result.design.sensitivities
    others = result.compare().set_index("mechanism")["scales"]
    fig, (above, below) = figure(2, 1, sharex=True, **sized(options, 5.0, 4.8))
    few = len(lam) <= _BARS
    order = np.arange(len(lam)) if few else np.argsort(lam)[np.linspace(0, len(lam) - 1, 400).astype(int)]
    x = np.arange(len(order)) if few else np.linspace(0, len(lam) - 1, len(order))
    if few:
        above.bar(x, result.scales, width=0.7, color=COLOURS[5], label="this allocation")
        below.bar(x, result.spent, width=0.7, color=COLOURS[5])
        below.set_xticks(x[:: 1 + len(x) // 12])
    else:
        above.plot(x, result.scales[order], color=COLOURS[0], label="this allocation")
        below.plot(x, result.spent[order], color=COLOURS[0])
    for k, name in enumerate(("i.i.d.", "scale-perturb-rescale"), start=1):
        style: Any = {"marker": "_v"[k - 1], "markersize": 9, "markeredgewidth": 2} if few else {}
        above.plot(
            x, others[name][order], linestyle="" if few else "--", color=COLOURS[k], label=name, **style
        )
    above.set(ylabel="scale", ylim=(0, None))
    legend_above(above)
    below.set(
        xlabel="number" if few else "number, by sensitivity", ylabel="share of the budget", ylim=(0, None)
    )
    return fig

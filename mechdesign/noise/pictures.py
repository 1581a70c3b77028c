"""Pictures of noise: densities, tails, vectors that are drawn together, and scales of each coordinate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mechdesign.noise.laws import upper_quantile
from mechdesign.plotting import COLOURS, figure, legend_above, plain, sized
from mechdesign.typing import Array, FrozenLaw

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_RARE = 1e-6  # probability of errors beyond the picture


def draw_laws(laws: Mapping[str, FrozenLaw], **options: float) -> Figure:
    """Draw density (or probabilities) and the probability that the error exceeds t; the first law is the mechanism.

    Parameters
    ----------
    laws : dict of str to a law with ``pdf`` or ``pmf``, ``cdf``, ``sf`` and ``std``
    """
    fig, (above, below) = figure(2, 1, **sized(options, 5.0, 5.2))
    first = next(iter(laws.values()))
    discrete = not _continuous(first)
    far = max(upper_quantile(law, _RARE) for law in laws.values())
    near = max(upper_quantile(law, 2e-3) for law in laws.values())
    for k, (name, law) in enumerate(laws.items()):
        style = {"color": COLOURS[k % len(COLOURS)], "linestyle": ("-", "--", ":", "-.")[k % 4]}
        x, y = _density(law, near)
        above.plot(x, y, label=plain(name), drawstyle="steps-mid" if discrete else "default", **style)
        t = np.linspace(0, far, 241)
        if not _continuous(law):
            t = np.unique(np.floor(t))
        tail = np.asarray(law.sf(t), dtype=float) + np.asarray(law.cdf(-t), dtype=float)
        keep = tail > _RARE / 10
        below.plot(t[keep], tail[keep], **style)
    above.set(xlabel="noise", ylabel="probability" if discrete else "density", ylim=(0, None))
    legend_above(above)
    below.set(xlabel="t", ylabel="P[ |noise| > t ]", yscale="log", ylim=(_RARE, 1.3))
    return fig


def draw_vectors(points: Array, tails: Mapping[str, FrozenLaw], **options: float) -> Figure:
    """Draw two coordinates of vectors of noise, and the probability that one number is off by more than t."""
    fig, (cloud, below) = figure(1, 2, **sized(options, 6.0, 3.2))
    cloud.plot(points[:, 0], points[:, 1], ".", color=COLOURS[0], markersize=1.5, alpha=0.5)
    cloud.set(xlabel="noise on one number", ylabel="noise on another", aspect="equal")
    t = np.linspace(0, max(upper_quantile(law, 5e-5) for law in tails.values()), 81)
    for k, (name, law) in enumerate(tails.items()):
        style = {"color": COLOURS[k % len(COLOURS)], "linestyle": ("-", "--", ":", "-.")[k % 4]}
        below.plot(t, 2 * np.asarray(law.sf(t), dtype=float), label=plain(name), **style)
    below.set(xlabel="t", ylabel="P[ |noise| > t ]", yscale="log", ylim=(1e-4, 1.3))
    below.legend(frameon=False)
    return fig


def draw_types(deviations: Array, kinds: Sequence[str], **options: float) -> Figure:
    """Draw the standard deviation of the noise on each number, by its type."""
    fig, axis = figure(**sized(options, 5.0, 3.2))
    x, held = np.arange(len(kinds)), np.array(kinds)
    for k, kind in enumerate(sorted({*kinds} - {"none"}, reverse=True)):
        axis.plot(x[held == kind], deviations[held == kind], "o^"[k], color=COLOURS[k], label=kind)
    axis.set(xlabel="number", ylabel="standard deviation", ylim=(0, None))
    axis.legend()
    return fig


def draw_scales(sensitivities: Array, scales: Mapping[str, Array], spent: Array, **options: float) -> Figure:
    """Draw the scales of each mechanism, the last of which is the allocation, and its shares of the budget."""
    fig, (above, below) = figure(2, 1, sharex=True, **sized(options, 5.0, 4.8))
    size, (*others, own) = len(sensitivities), scales
    few = size <= 60  # more are sorted by sensitivity
    order = np.arange(size) if few else np.argsort(sensitivities)[np.linspace(0, size - 1, 400).astype(int)]
    x = np.arange(size) if few else np.linspace(0, size - 1, len(order))
    if few:
        above.bar(x, scales[own], width=0.7, color=COLOURS[5], label=own)
        below.bar(x, spent, width=0.7, color=COLOURS[5])
        below.set_xticks(x[:: 1 + len(x) // 12])
    else:
        above.plot(x, scales[own][order], color=COLOURS[0], label=own)
        below.plot(x, spent[order], color=COLOURS[0])
    for k, name in enumerate(others, start=1):
        line = above.plot(x, scales[name][order], "--", color=COLOURS[k], label=name)
        if few:
            line[0].set(linestyle="", marker="_v"[k - 1], markersize=9, markeredgewidth=2)
    above.set(ylabel="scale", ylim=(0, None))
    legend_above(above)
    below.set(
        xlabel="number" if few else "number, by sensitivity", ylabel="share of the budget", ylim=(0, None)
    )
    return fig


def _continuous(law: FrozenLaw) -> bool:
    return hasattr(law, "pdf") and not hasattr(getattr(law, "dist", None), "pmf")


def _density(law: FrozenLaw, reach: float) -> tuple[Array, Array]:
    if not _continuous(law):
        last = np.ceil(reach)
        x = np.arange(-last, last + 1, max(1, (2 * last + 1) // 400))
        return x, law.pmf(x)
    x = np.linspace(-reach, reach, 481)
    return x, law.pdf(x)

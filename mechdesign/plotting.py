"""One look for every figure, without matplotlib's global state; matplotlib loads with the first of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mechdesign.errors import DesignError
from mechdesign.typing import Figure

SMALLEST, LARGEST = 0.5, 100.0  # inches
NAMED = 12
"""Names in a picture."""

# Okabe–Ito: colour-blind readers can distinguish them.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "mechdesign",
    "figure.dpi": 100,
}


def figure(
    rows: int = 1, columns: int = 1, *, width: float = 6.4, height: float = 4.0, **options: Any
) -> tuple[Figure, Any]:
    """Return a matplotlib Figure and its axes (as `plt.subplots` would, but with no pyplot state).

    Parameters
    ----------
    rows, columns : int
    width, height : float
        In inches, from 0.5 to 100.
    **options
        Of matplotlib's ``Figure.subplots``.

    Raises
    ------
    DesignError
        A size that is none.

    Examples
    --------
    >>> fig, ax = figure()
    >>> _ = ax.plot([0, 1], [1, 0], color=COLOURS[0])
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    inches = _inches("width", width), _inches("height", height)
    with rc_context(STYLE):
        made = Figure(figsize=inches, layout="constrained")
        axes = made.subplots(rows, columns, **options)
        for axis in made.axes:
            axis.set_prop_cycle(color=list(COLOURS))
    return made, axes


def sized(options: Mapping[str, float], width: float, height: float) -> dict[str, Any]:
    """Width and height of a figure, those a user gave instead of the usual ones; nothing else may be given.

    Examples
    --------
    >>> sized({"width": 3}, 5.0, 4.0)
    {'width': 3, 'height': 4.0}
    """
    for name, value in options.items():
        if name not in ("width", "height"):
            raise DesignError.of(name, value, "is no option of a plot: give width and height, in inches")
    return {"width": width, "height": height, **options}


def _inches(name: str, value: float) -> float:
    """The size of a figure; plotting stands below the checks of arguments that designs share."""
    try:
        found = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except Exception:  # whatever an object raises when it is read
        found = math.nan
    if not SMALLEST <= found <= LARGEST:
        raise DesignError.of(name, value, f"must be a size in inches, from {SMALLEST:g} to {LARGEST:g}")
    return found


def legend_above(axis: Any, **options: Any) -> None:
    """Put the legend above the axes, where it hides nothing, in as many columns as a line has room for."""
    longest = max((len(label) for label in axis.get_legend_handles_labels()[1]), default=0)
    across = 5 * axis.get_figure().get_size_inches()[0] * 2 // (longest + 6)
    place = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2, "columnspacing": 1.2}
    axis.legend(ncols=max(1, int(across)), frameon=False, fontsize=8.5, **{**place, **options})


def plain(text: object) -> str:
    """A name as a label that is not read as mathematics.

    Examples
    --------
    >>> print(plain("cost in $"))
    cost in \\$
    """
    return str(text).replace("$", r"\$")


def write_figure(fig: Figure, stem: object, *, png: bool = False) -> None:
    """Write ``stem.svg``, and ``stem.png`` if asked, byte-stable for the same data."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        fig.set_dpi(150)
        fig.draw_without_rendering()  # the layout settles in the second pass, and names of clip paths follow it
        fig.savefig(f"{stem}.svg", dpi=150, metadata={"Date": None, "Creator": None})
        if png:
            fig.savefig(f"{stem}.png", dpi=150, metadata={"Software": None})


def plot_curves(
    axis: Any, curves: Mapping[str, tuple[Any, Any]], line: str | None = None, **axes: Any
) -> None:
    """Plot (x, y) by name, each in its colour and style, with a legend above if they have names.

    Parameters
    ----------
    line : str, optional
        Style of all curves, "" for points alone; by default solid, dashed, … in turn.
    **axes
        Properties of the axes, such as ``xlabel``.
    """
    for k, (name, (x, y)) in enumerate(curves.items()):
        style = {"linestyle": ("-", "--", ":", "-.")[k % 4] if line is None else line}
        style["marker"] = "" if line is None else "os^v"[k % 4]
        axis.plot(x, y, color=COLOURS[k % len(COLOURS)], label=plain(name), **style)
    axis.set(**axes)
    if any(curves):
        legend_above(axis)
    if line == "":
        axis.xaxis.get_major_locator().set_params(integer=True)


def draw_curves(
    curves: Mapping[str, tuple[Any, Any]],
    options: Mapping[str, float],
    line: str | None = None,
    **axes: Any,
) -> Figure:
    """Draw the curves of `plot_curves` in a figure of their own, of the size that `options` give."""
    fig, axis = figure(**sized(options, 5.0, 3.2))
    plot_curves(axis, curves, line, **axes)
    return fig


def draw_bars(names: Iterable[object], values: Any, options: Mapping[str, float], **axes: Any) -> Figure:
    """Draw horizontal bars, the first on top."""
    labels = [plain(name) for name in names]
    fig, axis = figure(**sized(options, 5.0, 1.2 + 0.3 * len(labels)))
    axis.barh(range(len(labels)), values, tick_label=labels, color=COLOURS[0])
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    axis.set(**axes)
    return fig


def draw_matrix(
    matrix: Any,
    across: str,
    down: str,
    columns: Sequence[str] = (),
    rows: Sequence[str] = (),
    least: float = 0.0,
    label: str = "probability",
    /,
    **options: float,
) -> Figure:
    """Draw probabilities (or numbers from −1 to 1) as shades, with the names of few rows or columns, of rows those of columns if they have none."""
    fig, axis = figure(**sized(options, 5.0, 4.2))
    shown = {"cmap": "RdBu_r", "vmax": -least} if least else {"cmap": "viridis"}
    shades = axis.imshow(matrix, vmin=least, aspect="auto", interpolation="nearest", **shown)
    axis.grid(False)
    axis.set(xlabel=across, ylabel=down)
    fig.colorbar(shades, ax=axis, label=label)
    for of, names in ((axis.xaxis, columns), (axis.yaxis, rows or columns)):
        if 0 < len(names) <= NAMED:
            of.set_ticks(range(len(names)), names, parse_math=False)
        else:
            of.get_major_locator().set_params(integer=True)
    if len(columns) <= NAMED and sum(map(len, columns)) > 40:
        axis.tick_params(axis="x", rotation=45)
    return fig


def draw_map(space: Any, weights: Any, matrix: Any, named: Any, **options: float) -> Figure:
    """Draw the places of a metric space and reports sized by probability, and the reports sent for the likeliest place."""
    earth, points = space.kind == "geodesic", space.points
    across, up = points.T[::-1] if earth else points.T
    fig, axis = figure(**sized(options, 5.0, 4.6))
    home, sent = int(weights.argmax()), weights @ matrix
    for y in (matrix[home] > 1e-3).nonzero()[0].tolist():
        ends = [home, y]
        axis.plot(across[ends], up[ends], color=COLOURS[1], alpha=0.7, linewidth=4 * matrix[home, y] ** 0.5)
    dots, rings = 150 * weights / weights.max(), 300 * sent / sent.max()
    axis.scatter(across, up, dots, color=COLOURS[0], linewidths=0, label="places")
    axis.scatter(across, up, rings, facecolors="none", edgecolors=COLOURS[1], label="reports")
    unit = f" ({space.unit})" if space.unit else ""
    axis.set(xlabel="longitude" if earth else f"x{unit}", ylabel="latitude" if earth else f"y{unit}")
    style = {"textcoords": "offset points", "fontsize": 7, "parse_math": False}
    for x in named:
        beside = 1 + 0.36 * math.sqrt(max(dots[x], rings[x]))  # on the diagonal, outside of dot and ring
        axis.annotate(space.names[x], (across[x], up[x]), (beside, beside), **style)
    axis.set_aspect(1 / max(0.02, math.cos(math.radians(float(up.mean())))) if earth else 1.0)
    axis.legend(fontsize=7, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0))  # off the places
    return fig

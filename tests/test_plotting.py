"""Figures: what stands above the axes leaves them their room."""

import pytest

from mechdesign.plotting import figure, legend_above


@pytest.mark.parametrize(
    "labels", [["a", "b"], [f"output -2.72{k}" for k in range(8)], ["a long name of a mechanism"] * 3]
)
@pytest.mark.parametrize("width", [4.0, 5.0, 8.0])
def test_the_axes_stay_as_wide_as_they_are_without_a_legend(labels: list[str], width: float) -> None:
    widths = []
    for with_legend in (False, True):
        fig, axis = figure(width=width, height=3.0)
        for k, label in enumerate(labels):
            axis.plot([0, 1], [0, k], label=label)
        if with_legend:
            legend_above(axis)
        fig.canvas.draw()
        widths.append(axis.get_position().width)
    assert widths[1] > 0.97 * widths[0]

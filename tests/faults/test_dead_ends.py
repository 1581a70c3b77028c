"""Wrong answers and dead ends: faults 16 to 25 of the audits."""

from __future__ import annotations

import cheap
import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.errors import DesignError
from mechdesign.typing import Status

P = md.PureDP(1.0)


def searched(**levels: list[float]) -> md.OPTMSearch:
    return md.OPTMSearch(P, cheap.UNIFORM, bins=md.Grid(delta=[2.0], inner=[0.5]), levels=md.Grid(**levels))


def test_a_misspelt_axis_is_refused() -> None:
    with pytest.raises(DesignError, match="wdth"):
        searched(level=[0.66], wdth=[0.05, 0.01])


@pytest.mark.parametrize("centre", [3.7, 10.0, -120.0])
def test_a_biased_quantizer_moves_with_its_range(centre: float) -> None:
    """Centred at 0 the same design has the value 1.640103."""

    def value(at: float) -> float:
        bins = [at - 7.0, at - 0.3, at + 0.1, at + 7.0]
        return md.OptimalQuantizer(bins, P, stats.uniform(at - 1, 2), max_bias=0.1).solve().value

    assert value(centre) == pytest.approx(value(0.0), rel=1e-6)


def test_a_quantizer_of_every_coordinate_is_exported() -> None:
    coordinate = md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1)).certified()
    quantizer = md.CoordinateQuantizer(coordinate, dimension=10)
    assert "QUANTIZER_OUTPUTS 4" in md.vectors.c_header(md.vectors.IntegerTable.of(quantizer))


def channel(space: md.MetricSpace) -> md.MetricChannel:
    return md.MetricChannel(space, alpha=0.7)


def test_a_large_channel_is_answered_in_time_or_refused_by_its_size() -> None:
    """With 1,000 points of a grid and a limit of 8 s it was back after 80, without an answer: 152 million rows, of the simplex method."""
    design = channel(md.MetricSpace.grid(13, 25))
    assert design.solve("highs", time_limit=0.01).status is Status.LIMIT
    with pytest.raises(DesignError, match=r"1001 items.*at most 1000"):
        channel(md.MetricSpace.line(np.arange(1001.0))).solve()


def test_a_quantizer_that_is_too_large_is_refused_by_its_size() -> None:
    """With 4,096 outputs and a limit of 100 s it was not back after 200."""
    with pytest.raises(DesignError, match=r"4096 outputs.*at most 1025"):
        md.OptimalQuantizer(np.linspace(-3, 3, 4096), P, cheap.UNIFORM)
    with pytest.raises(DesignError, match="1025"):
        md.Alphabet(3.0, 6 / 1025)
    assert md.Alphabet(3.0, 6 / 1024).size == 1025

"""With samples as prior the user states where inputs lie: neither is the range taken from them, nor are they told."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import mechdesign as md

PURE = md.PureDP(2.0)
LEAST, LARGEST = 0.145678912, 0.875432198
SAMPLES = [LEAST, 0.4, 0.5, 0.5, 0.6, LARGEST]
BINS = [-3.0, -0.5, 0.5, 3.0]
RQM, BIASED = md.Grid(delta=[1.6], q=[0.4, 0.5]), md.Grid(delta=[0.5, 1.0], q=[0.3], beta=[0.1])
BOXES = {"bins": md.Grid(delta=[1.0], inner=[0.5]), "levels": md.Grid(level=[0.6, 0.67], width=[0.01])}
DESIGNS: dict[str, Callable[..., Any]] = {
    "optm": lambda **more: md.OPTM(BINS, PURE, **more),
    "optm-search": lambda **more: md.OPTMSearch(PURE, **BOXES, **more),
    "optimal": lambda **more: md.OptimalQuantizer(BINS, PURE, **more),
    "searched": lambda **more: md.OptimalQuantizer(
        md.BinSearch(3, 4.0, starts=1, exhaustive=False), PURE, **more
    ),
    "alphabet": lambda **more: md.OptimalQuantizer(md.Alphabet(3.0, 0.5), PURE, **more),
    "rqm": lambda **more: md.RQM(4, PURE, grid=RQM, **more),
    "erm": lambda **more: md.ERM(4, PURE, grid=md.Grid(delta=[1.6], inner=[0.5], gamma=[0.2]), **more),
    "metric": lambda **more: md.MetricQuantizer(BINS, md.MetricDP(2.0), **more),
    "biased": lambda **more: md.BiasedSelection(4, PURE, max_bias=np.inf, grid=BIASED, **more),
    "mvu": lambda **more: md.MVU(m=4, privacy=PURE, bins=BINS, **{"input_range": None} | more),
}
QUESTIONS: dict[str, Callable[..., Any]] = {
    "report": lambda **more: md.LocalReport(2, **more),
    "mean of clients": lambda **more: md.LocalReport(2, clients=10, **more),
}


@pytest.mark.parametrize("name", DESIGNS | QUESTIONS)
def test_samples_without_a_range_are_refused_and_not_quoted(name: str) -> None:
    make = (DESIGNS | QUESTIONS)[name]
    for prior in (SAMPLES, np.array(SAMPLES), md.Prior.of(SAMPLES)):
        with pytest.raises(md.DesignError, match=r"^input_range = None: must be ") as refused:
            make(prior=prior)
        assert "0.14" not in str(refused.value) and "0.87" not in str(refused.value)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in ("searched", "metric"))) for name in DESIGNS],
)
def test_all_of_the_range_that_is_stated_is_protected(name: str) -> None:
    design = DESIGNS[name](prior=SAMPLES, input_range=(-1, 1))
    result = design.solve()
    assert design.input_range == result.mechanism.input_range == (-1.0, 1.0)
    assert result.checks()["holds"].all()
    assert np.isfinite(result.mechanism.release([-1.0, 1.0])).all()
    said = "\n".join([str(result), repr(design), result.question()])
    assert "0.1456" not in said and "0.8754" not in said


@pytest.mark.parametrize("name", [name for name in DESIGNS if name not in ("mvu", "metric")])
def test_samples_outside_the_range_are_refused_and_not_quoted(name: str) -> None:
    with pytest.raises(md.DesignError, match="prior has mass outside the input range") as refused:
        DESIGNS[name](prior=SAMPLES, input_range=(0.2, 1.0))
    assert "0.14" not in str(refused.value) and "0.87" not in str(refused.value)


def test_a_law_states_where_inputs_lie() -> None:
    assert md.OPTMSearch(PURE, stats.uniform(-1, 2), **BOXES).input_range == (-1.0, 1.0)
    wider = md.OPTMSearch(PURE, stats.uniform(-1, 2), **BOXES, input_range=(-1.5, 1.5))
    assert wider.solve().mechanism.bins.tolist() == [-2.5, -0.5, 0.5, 2.5]


@pytest.mark.slow
def test_reports_of_clients_are_clipped_within_the_range_that_is_stated() -> None:
    draws = np.random.default_rng(0).normal(0, 1, 300)
    found = {}
    for range_ in ((-9.0, 9.0), (-0.5, 0.6)):
        asked = md.LocalReport(2, range_, draws, clients=1000)
        found[range_] = md.compare(asked, PURE, mechanisms=["RQM"], progress=False)
        low, high = found[range_]["RQM"].mechanism.input_range
        assert range_[0] <= low < high <= range_[1] and "best range in [" in str(asked)
        assert all(claim.holds for claim in found[range_].agreements())
    assert found[-0.5, 0.6].table["error"][0] > found[-9.0, 9.0].table["error"][0]
    with pytest.raises(md.DesignError, match="must hold the mean of the samples"):
        md.LocalReport(2, (1.0, 2.0), draws, clients=1000)

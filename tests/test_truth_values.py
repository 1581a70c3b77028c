"""True and false are no numbers: NumPy reads them as 1 and 0, in arrays, in lists and among numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cheap
import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.accounting import privacy_profile
from mechdesign.problem.checks import array, doubles, generator

LAW, PURE, APPROXIMATE = stats.laplace(), md.PureDP(1.0), md.ApproximateDP(1.0, 1e-6)
ADDITIVE = md.AdditiveNoise(stats.laplace(scale=2.0), 1.0, 2)
QUANTIZER = md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1))

# What is asked for a pair of numbers.
PAIRS: dict[str, Callable[[Any], Any]] = {
    "sensitivities": lambda v: md.NoiseAllocation("laplace", v, PURE),
    "weights": lambda v: md.NoiseAllocation("laplace", [1.0, 2.0], PURE, weights=v),
    "lower": lambda v: md.NoiseAllocation("laplace", [1.0, 2.0], PURE, lower=v),
    "each": lambda v: md.Sensitivity(each=v),
    "scales": lambda v: md.noise.IndependentNoise("laplace", v),
    "profile gini": md.noise.gini,
    "bins optimal": lambda v: md.OptimalQuantizer(v, PURE, cheap.UNIFORM),
    "bins mvu": lambda v: md.MVU(m=2, privacy=PURE, input_range=(-1, 1), bins=v),
    "inputs": lambda v: md.MetricQuantizer(cheap.BINS, md.MetricDP(1.0), cheap.UNIFORM, inputs=v),
    "line": md.MetricSpace.line,
    "samples": lambda v: md.OptimalQuantizer(cheap.BINS, PURE, v, input_range=(-1, 1)),
    "release additive": ADDITIVE.release,
    "release quantizer": lambda v: cheap.solved("optimal-quantizer").mechanism.release(v),
    "privacy_profile": lambda v: privacy_profile(LAW, 1.0, v),
    "delta of a result": lambda v: cheap.solved("calibration").mechanism.privacy_profile(v),
    "workload": lambda v: md.Workload([v, [0.0, 1.0]]),
    "vectors": lambda v: md.CorrelatedGaussian([v, [0.0, 1.0]], APPROXIMATE),
    "grid": lambda v: md.Grid(delta=v),
    "sweep": lambda v: md.sweep(md.OptimalQuantizer(cheap.BINS, PURE, cheap.UNIFORM), epsilon=v),
}  # fmt: skip
# What is asked for one number.
SINGLE: dict[str, Callable[[Any], Any]] = {
    "epsilon": md.PureDP,
    "delta": lambda v: md.ApproximateDP(1.0, v),
    "rho": md.ZeroConcentratedDP,
    "sensitivity": lambda v: md.Calibration("laplace", PURE, v),
    "dimension": lambda v: md.Calibration("laplace", PURE, 1.0, dimension=v),
    "sampling_rate": lambda v: md.Calibration("laplace", PURE, 1.0, sampling_rate=v),
    "time_limit": lambda v: md.Calibration("laplace", PURE, 1.0).solve(time_limit=v),
    "gap": lambda v: md.Calibration("laplace", PURE, 1.0).solve(gap=v),
    "release": lambda v: md.AdditiveNoise(LAW, 1.0).release(v),
    "sample": QUANTIZER.sample,
    "x": QUANTIZER.release,
    "rng": lambda v: ADDITIVE.sample([1.0, 2.0], rng=v),
}


@pytest.mark.parametrize("name", sorted(PAIRS))
@pytest.mark.parametrize(
    "bad",
    [
        [False, True],
        (0.5, True),
        np.array([False, True]),
        np.array([0.5, True], dtype=object),
        [0.5, np.True_],
    ],
    ids=["list", "among numbers", "array", "objects", "NumPy's"],
)
def test_pairs(name: str, bad: Any) -> None:
    with pytest.raises(md.DesignError) as caught:
        PAIRS[name](bad)
    quoted = "True" in str(caught.value) and " = " in str(caught.value)
    assert quoted != isinstance(caught.value, md.DataError)  # data are not quoted, arguments are


@pytest.mark.parametrize("name", sorted(SINGLE))
@pytest.mark.parametrize("bad", [True, np.True_, np.array(True)], ids=["True", "NumPy's", "array"])
def test_single_numbers(name: str, bad: Any) -> None:
    with pytest.raises(md.DesignError):
        SINGLE[name](bad)


def test_numbers_are_still_numbers() -> None:
    for good in ([0.5, 1], (0.5, 1.0), np.array([0, 1]), np.array([0.5, 1.0], dtype=object), range(2)):
        assert array("x", good).shape == (2,)
    assert doubles("x", [[np.inf], [np.nan]]).shape == (2, 1)
    assert generator(1).integers(10**6) == generator([1]).integers(10**6)
    privacy_profile(LAW, 1.0, [0, 1])


@pytest.mark.filterwarnings("error")
def test_what_is_masked_is_no_number() -> None:
    for wrong in (
        lambda: md.PureDP(np.ma.masked),
        lambda: md.NoiseAllocation("laplace", [1.0, np.ma.masked], PURE),
    ):
        with pytest.raises(md.DesignError, match="masked"):
            wrong()

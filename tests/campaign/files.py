"""Honest result files of every design, and of every mechanism that is saved alone: what the tests of forged files begin with."""

import functools
import json
from collections.abc import Callable
from typing import Any

import cheap
import numpy as np
from scipy import stats

import mechdesign as md
from mechdesign.errors import ResultFormatError
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.verifier import verify

P = md.PureDP(1.5)
BINS = [-3.0, -0.5, 0.6, 3.0]
LINE = md.MetricSpace.line([0.0, 1.0, 3.0])
COUNTS = stats.rv_histogram(([1.0, 3.0, 2.0], [-1.0, -0.2, 0.3, 1.0]), density=False)
MADE: dict[str, Callable[[], Any]] = {
    "beta": lambda: md.OptimalQuantizer(BINS, P, stats.beta(2, 3.5, -1, 2), {"absolute": 1, "squared": 0.3}),
    "clipped": lambda: md.OptimalQuantizer(BINS, P, md.clipped(stats.norm(0.3, 0.4), -1, 1)),
    "truncated": lambda: md.OptimalQuantizer(BINS, P, md.truncated(stats.norm(0, 0.4), -1, 1), "squared"),
    "clipped-uniform": lambda: md.OptimalQuantizer(BINS, P, md.clipped(stats.uniform(-1.5, 2.1), -1, 1)),
    "histogram": lambda: md.OptimalQuantizer(BINS, P, COUNTS),
    "truncated-histogram": lambda: md.OptimalQuantizer(BINS, P, md.truncated(COUNTS, -0.5, 0.7)),
    "triangle": lambda: md.OptimalQuantizer(BINS, P, stats.triang(0.3, -1, 2)),
    "samples": lambda: md.OptimalQuantizer(BINS, P, [-1, -0.3, 0.2, 0.2, 0.9, 1.0], input_range=(-1, 1)),
    "worst-case": lambda: md.OptimalQuantizer(BINS, P, cheap.UNIFORM, "squared", objective="worst"),
    "cap": lambda: md.OptimalQuantizer(np.linspace(-2.5, 2.5, 8), P, cheap.UNIFORM, max_mse=2.0),
    "bias": lambda: md.OptimalQuantizer(BINS, P, cheap.UNIFORM, max_bias=0.1),
    "far": lambda: md.OptimalQuantizer([1.7e9 - 3, 1.7e9, 1.7e9 + 3], P, stats.uniform(1.7e9 - 1, 2)),
    "rqm-searched": lambda: md.RQM(4, md.PureDP(1.5), cheap.UNIFORM, "squared", grid=md.Grid(delta=[1.4, 1.6], q=[0.4, 0.5])),
    "rqm-clipped": lambda: md.RQM(3, md.PureDP(1.5), md.clipped(stats.norm(0.3, 0.4), -1, 1), grid=md.Grid(delta=[1.4, 1.6], q=[0.4])),
    "wide-budget": lambda: md.OptimalQuantizer([-1.6, -0.4, 0.4, 1.6], md.PureDP(10.0), cheap.UNIFORM),
    "optm-beta": lambda: md.OPTM(np.linspace(-3, 3, 6), P, stats.beta(2, 2, -1, 2)),
    "metric-grid": lambda: md.MetricQuantizer(BINS, md.MetricDP(2.0, "squared"), cheap.UNIFORM, inputs=np.linspace(-1, 1, 5)),
    "metric-grid-worst": lambda: md.MetricQuantizer(BINS, md.PureDP(1.0), cheap.UNIFORM, inputs=np.linspace(-1, 1, 4), objective="worst"),
    "pure-noise": lambda: md.OptimalNoise(privacy=md.PureDP(1.0), loss="squared"),
    "steep-noise": lambda: md.OptimalNoise(privacy=md.ApproximateDP(8.0, 0.05)),
    "steep-pure-noise": lambda: md.OptimalNoise(privacy=md.PureDP(9.0), loss="squared"),
    "noise-of-points": lambda: md.OptimalNoise(md.TradeOff([(0, 0.3), (1, 1e-3)])),
    "squared-channel": lambda: md.MetricChannel(LINE, alpha=0.7, loss="squared", prior=[0.5, 0.2, 0.3]),
    "gaussian-allocation": lambda: md.NoiseAllocation(noise="gaussian", sensitivities=[1, 2, 3.0], privacy=md.ApproximateDP(1.0, 1e-6)),
    "limited-allocation": lambda: md.NoiseAllocation(
        noise="laplace", sensitivities=[1, 2, 0, 3.0], privacy=cheap.PURE, loss=1, lower=3.0, weights=[1, 2, 1, 3.0]
    ),
    "few-allocation": lambda: md.NoiseAllocation("gaussian", md.Sensitivity(each=[1, 2, 0, 3, 0.5], l0=2), md.ApproximateDP(1.0, 1e-6)),
    "several-allocation": lambda: md.NoiseAllocation(
        "laplace", md.Sensitivity(each=[1, 2, 0, 3.0], l1=4, l2=3), cheap.PURE, loss=1, weights=[1, 2, 1, 3.0]
    ),
    "filled-allocation": lambda: md.NoiseAllocation("gaussian", md.Sensitivity(each=[1, 1, 1, 1, 1.0], l0=2, l1=1.5), md.ApproximateDP(1.0, 1e-6)),
    "listed-allocation": lambda: md.NoiseAllocation("laplace", md.Sensitivity(each=[1, 2, 0, 3.0, 1.5], l0=2, l2=3), cheap.PURE),
    "matrix-largest": lambda: md.MatrixMechanism([[1, 1, 0], [0, 1, 1.0]], md.ApproximateDP(0.5, 1e-60), l0=2, signed=False, loss="largest"),
    "mixed-gaussian": lambda: md.NoiseAllocation("mixed", [1.0, 0.5, 0.5, 0.2, 0.2], md.ApproximateDP(1.0, 1e-3), loss=1),
    "knorm-several": lambda: md.noise.KNorm(5, P, md.Sensitivity(linf=1, l1=2.5, l2=1.5), loss="absolute", rounds=2),
    "knorm-hull": lambda: md.noise.KNorm(5, md.PureDP(6.0), md.Sensitivity(each=[1, 2, 0, 3, 1.5], l0=2)),
    "knorm-rising": lambda: md.noise.KNorm(3, md.PureDP(6.0), md.Sensitivity(linf=1, signed=False)),
    "knorm-listed": lambda: md.noise.KNorm(3, P, [[1, 1, 0], [0.7, 0, 0], [0, 0.3, 2], [0, 1, -1]]),
    "vectors-sphere": lambda: md.VectorQuantizer(20, P, bits=2, inputs="sphere", radius=2.0),
    "vectors-sampled": lambda: md.VectorQuantizer(4, md.PureDP(6.0), inputs="box"),
    "calibration-several": lambda: md.Calibration("laplace", md.ApproximateDP(1.0, 1e-3), md.Sensitivity(each=[1, 2, 0.5], l1=2), dimension=3),
    "integer-noise-pure": lambda: md.OptimalNoise(md.PureDP(0.7), 2, integer=True),
    "integer-noise-points": lambda: md.OptimalNoise(md.TradeOff([(0, 0.3), (1, 0)]), 2, integer=True),
    "optimal-noise-advantage": lambda: md.OptimalNoise(md.MembershipAdvantage(0.4)),
    "allocation-points": lambda: md.NoiseAllocation("laplace", [1.0, 3.0], md.TradeOff([(0, 0.3), (1, 1e-3)])),
    "integer-noise-many": lambda: md.OptimalNoise(md.PureDP(2.0), dimension=2, integer=True),
    "bounded-count-mean": lambda: md.BoundedCount(5, md.PureDP(1.0), "absolute", 2, [0.3, 0.1, 0.1, 0.2, 0.1, 0.2]),
    "bounded-count-worst": lambda: md.BoundedCount(6, md.ApproximateDP(0.5, 0.01), "absolute", 2),
    "knorm-staircase": lambda: md.noise.KNorm(2, md.PureDP(5.0), loss="absolute"),
    "knorm-listed-plane": lambda: md.noise.KNorm(2, md.PureDP(1.0), [[1, 1], [1, 0], [0, 1]]),
    "knorm-capped": lambda: md.noise.KNorm(4, md.PureDP(8.0), md.Sensitivity(linf=1, l1=2.5)),
    "matrix-apart": lambda: md.MatrixMechanism(
        md.Workload.prefix_sums(5), md.ApproximateDP(0.5, 1e-6), participation=md.noise.Participation(2, apart=2)
    ),
    "matrix-banded": lambda: md.MatrixMechanism(
        md.Workload.prefix_sums(30), md.ApproximateDP(0.5, 1e-6), participation=md.noise.Participation(8, apart=3)
    ),
    "grouped-allocation": lambda: md.NoiseAllocation("laplace", [1.0, 2.0], cheap.PURE, groups=[[0, 1]]),
    "zcdp-allocation": lambda: md.NoiseAllocation("gaussian", [1.0, 2.0], md.ZeroConcentratedDP(0.3), loss=3),
    "calibration-normal": lambda: md.Calibration("gaussian", md.ApproximateDP(1.0, 1e-6), 1.0),
    "calibration-pure": lambda: md.Calibration("laplace", cheap.PURE, 1.0, rounds=3),
    "calibration-sampled": lambda: md.Calibration("gaussian", md.ApproximateDP(1.0, 1e-3), md.Sensitivity(linf=1), sampling_rate=0.1, rounds=2),
    "calibration-huber": lambda: md.Calibration("flipped_huber", md.ApproximateDP(1.0, 1e-2), md.Sensitivity(linf=1), sampling_rate=0.1, rounds=2),
    "correlated-span": lambda: md.CorrelatedGaussian([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]], md.ApproximateDP(1.0, 1e-6), span=True),
    "correlated-weighed": lambda: md.CorrelatedGaussian(np.eye(3) + 0.2, md.ZeroConcentratedDP(0.1), weights=[1.0, 2.0, 3.0]),
    "channel-clustered": lambda: md.MetricChannel(md.MetricSpace.clustered(2, 3, within=0.2), alpha=0.7),
    "channel-earth": lambda: md.MetricChannel(md.MetricSpace.geodesic([48, 48.01, 48.03], [2, 2.01, 2.05]), alpha=0.7),
    "knorm-spread": lambda: md.noise.KNorm(4, md.ZeroConcentratedDP(0.4, 0.1), md.Sensitivity(linf=1, l0=2)),
    "knorm-round": lambda: md.noise.KNorm(3, md.PureDP(4.0), md.Sensitivity(l2=1.0)),
    "matrix-always": lambda: md.MatrixMechanism(
        md.Workload.ranges(6),
        md.ApproximateDP(0.5, 1e-6),
        participation=md.noise.Participation(5, apart=1, fewer=False),
        signed=False,
    ),
    "counts-signed": lambda: md.CountsGaussian(6, 3, md.ZeroConcentratedDP(0.1), most=2.0, signed=False),
    "plan-normal": lambda: md.Plan(
        {"n": md.Count(2), "h": md.Histogram(9, 2), "m": md.Mean(0, 9, n=50)},
        md.ZeroConcentratedDP(0.1),
        disjoint=[["n", "h"]],
    ),
    "plan-targets": lambda: md.Plan({"n": md.Count(), "s": md.Sum(2.0)}, cheap.PURE, targets={"n": 3.0, "s": 9.0}),
    "plan-boxed": lambda: md.Plan({"q": md.NumericQuery(2, md.Sensitivity(each=[2, 1]))}, md.ApproximateDP(1.5, 1e-5), rounds=2),
}  # fmt: skip
QUICK: dict[str, dict[str, Any]] = {
    "rqm-searched": {"zoom": 0},
    "rqm-clipped": {"zoom": 0},
    "pure-noise": {"gap": 0.05},
    "steep-noise": {"gap": 0.1},
    "steep-pure-noise": {"gap": 0.1},
    "noise-of-points": {"gap": 0.1},
    "optimal-noise-advantage": {"gap": 0.05},
    "integer-noise-many": {"gap": 0.05},
}
DESIGNS = cheap.DESIGNS | {name: (made, QUICK.get(name, {})) for name, made in MADE.items()}
"""Every kind of design, prior, objective and constraint: the design, and the options with which `solve` is quick."""


@functools.cache
def solved(name: str) -> md.Result:
    """The result of one of these designs, computed once a process."""
    if name in cheap.DESIGNS:
        return cheap.solved(name)
    design, options = DESIGNS[name]
    return design().solve(**options)


@functools.cache
def text(name: str) -> str:
    """Its file."""
    return dumps(solved(name))


def payload(name: str) -> dict[str, Any]:
    """A copy of what that file holds."""
    found: dict[str, Any] = json.loads(text(name))["payload"]
    return found


def alone_accepts(altered: dict[str, Any]) -> bool:
    """Whether the stand-alone verifier finds that every claim of a payload holds, sealed anew."""
    try:
        return all(holds for *_, holds in verify.verify(cheap.sealed(altered)).rows)
    except (verify.Refused, verify.NotCovered):
        return False


def package_accepts(altered: dict[str, Any]) -> bool:
    """Whether the package reads it and all its claims hold."""
    try:
        return bool(loads(cheap.sealed(altered)).checks()["holds"].all())
    except ResultFormatError:
        return False


NOT_COVERED = ("biased-selection", "user-histogram", "user-itemwise", "user-linear")
"""Designs that the verifier does not cover."""
ACCEPT = {"alone": alone_accepts, "package": package_accepts}

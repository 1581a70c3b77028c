"""Every public call at three settings of the deployed grid: one line each, so that a new name is an edit of one line.

`DESIGNS` are solved, `MECHANISMS` are used as they are, `NUMBERS` are intervals (value, lower bound), `FACTS` are texts that stay.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import mechdesign as md

# fmt: off
UNIFORM, NORMAL, BETA = stats.uniform(-1, 2), md.truncated(stats.norm(0, 0.3), -1, 1), stats.beta(2, 5, loc=-1, scale=2)
FEW = np.random.default_rng(30).uniform(-1, 1, 30).round(3).tolist()
MANY = np.random.default_rng(1000).normal(0, 0.4, 1000).clip(-1, 1).round(3).tolist()
LINE5 = md.MetricSpace.line(np.linspace(0, 1, 5))
LINE, SQUARE, TOWNS = md.MetricSpace.line(np.linspace(0, 1, 9)), md.MetricSpace.grid(4, 4), md.MetricSpace.clustered(3, 4, within=0.1)
PROFILE = (1 / np.arange(1, 21)).tolist()  # of twenty coordinates, one above the other
FAMILIES = ("gaussian", "laplace", "logistic", "flipped_huber", "osgt", "gennorm", "truncated_laplace", "staircase", "discrete_laplace", "discrete_gaussian")
PURE_FAMILIES = ("laplace", "logistic", "staircase", "discrete_laplace")


def pure(epsilon: float) -> Any:
    return md.PureDP(epsilon)


def approximate(epsilon: float, delta: float) -> Any:
    return md.ApproximateDP(epsilon, delta)


def even(m: int, reach: float) -> list[float]:
    return np.linspace(-reach, reach, m).tolist()


def few_changed(count: int, **more: Any) -> Any:
    return md.Sensitivity(linf=1, l0=count, **more)


DESIGNS: dict[str, Callable[[], Any]] = {
    "OPTM/1": lambda: md.OPTM([-3.0, -0.5, 0.5, 3.0], pure(1), UNIFORM),
    "OPTM/2": lambda: md.OPTM(even(8, 1.6), pure(2), NORMAL),
    "OPTM/3": lambda: md.OPTM([-1.5, -0.4, 0.4, 1.5], pure(4), FEW, loss="squared", input_range=(min(FEW), max(FEW))),
    "OPTMSearch/1": lambda: md.OPTMSearch(pure(1), UNIFORM, bins=md.Grid(delta=[1.9, 2.0], inner=[0.4, 0.5]), boxes=md.Grid(level=[0.66, 0.67], width=[0.01])),
    "OPTMSearch/2": lambda: md.OPTMSearch(pure(2), NORMAL, bins=md.Grid(delta=[0.6, 1.0], inner=[0.3, 0.5]), boxes=md.Grid(level=[0.7], width=[0.01])),
    "OPTMSearch/3": lambda: md.OPTMSearch(pure(4), BETA, loss="squared", bins=md.Grid(delta=[0.2, 0.4], inner=[0.3, 0.5]), boxes=md.Grid(level=[0.7], width=[0.01])),
    "RQM/1": lambda: md.RQM(4, pure(1), UNIFORM, grid=md.Grid(delta=[1.6, 2.0, 2.5], q=[0.2, 0.4, 0.5])),
    "RQM/2": lambda: md.RQM(8, pure(2), NORMAL, grid=md.Grid(delta=[0.8, 1.6], q=[0.3, 0.5])),
    "RQM/3": lambda: md.RQM(16, pure(4), MANY, loss="squared", grid=md.Grid(delta=[1.2, 2.0], q=[0.3, 0.5]), input_range=(min(MANY), max(MANY))),
    "ERM/1": lambda: md.ERM(4, pure(2), UNIFORM, grid=md.Grid(delta=[1.6], inner=[0.5], gamma=[0.2])),
    "ERM/2": lambda: md.ERM(4, pure(2), NORMAL, grid=md.Grid(delta=[1.6], inner=[0.3, 0.5], gamma=[0.2, 0.5])),
    "ERM/3": lambda: md.ERM(4, pure(4), BETA, loss="squared", grid=md.Grid(delta=[0.5, 1.0], inner=[0.5], gamma=[0.5])),
    "MVU/1": lambda: md.MVU(m=4, privacy=pure(1), input_range=(-1, 1), bins=[-2.42, -1.69, 1.69, 2.42]),
    "MVU/2": lambda: md.MVU(m=4, privacy=pure(2), input_range=(-1, 1), input_bits=1),
    "MVU/3": lambda: md.MVU(m=4, privacy=pure(4), input_range=(-1, 1), bins=even(4, 1.3), prior=NORMAL, loss="squared"),
    "BiasedSelection/1": lambda: md.BiasedSelection(4, pure(1), UNIFORM, grid=md.Grid(delta=[0.5, 1.0], q=[0.3, 0.6], beta=[0.1, 0.5])),
    "BiasedSelection/2": lambda: md.BiasedSelection(8, pure(2), NORMAL, max_bias=0.5, grid=md.Grid(delta=[0.5, 1.0], q=[0.3, 0.6], beta=[0.1, 0.4])),
    "BiasedSelection/3": lambda: md.BiasedSelection(4, pure(4), FEW, loss="squared", grid=md.Grid(delta=[0.2, 0.5], q=[0.3, 0.6], beta=[0.05, 0.2]), input_range=(min(FEW), max(FEW))),
    "OptimalQuantizer/1": lambda: md.OptimalQuantizer([-3.0, -0.5, 0.5, 3.0], pure(1), UNIFORM),
    "OptimalQuantizer/2": lambda: md.OptimalQuantizer(even(16, 1.6), pure(2), NORMAL, loss="squared"),
    "OptimalQuantizer/3": lambda: md.OptimalQuantizer(even(8, 1.2), pure(4), MANY, input_range=(min(MANY), max(MANY))),
    "OptimalQuantizer.two": lambda: md.OptimalQuantizer([-25.0, 25.0], pure(0.1), BETA),
    "OptimalQuantizer.sixty-four": lambda: md.OptimalQuantizer(even(64, 2.0), pure(2), UNIFORM),
    "OptimalQuantizer.worst/1": lambda: md.OptimalQuantizer(even(4, 3.0), pure(1), UNIFORM, objective="worst"),
    "OptimalQuantizer.worst/2": lambda: md.OptimalQuantizer(even(8, 1.6), pure(2), UNIFORM, objective="worst", loss="squared"),
    "OptimalQuantizer.worst/3": lambda: md.OptimalQuantizer(even(16, 1.2), pure(4), UNIFORM, objective="worst"),
    "OptimalQuantizer.max_bias/1": lambda: md.OptimalQuantizer(even(4, 1.5), pure(1), UNIFORM, max_bias=0.5),
    "OptimalQuantizer.max_bias/2": lambda: md.OptimalQuantizer(even(8, 1.2), pure(2), NORMAL, max_bias=0.2),
    "OptimalQuantizer.max_bias/3": lambda: md.OptimalQuantizer(even(4, 1.0), pure(4), FEW, max_bias=0.1, input_range=(min(FEW), max(FEW))),
    "OptimalQuantizer.max_mse/1": lambda: md.OptimalQuantizer(even(8, 3.0), pure(1), UNIFORM, max_mse=5.5),
    "OptimalQuantizer.max_mse/2": lambda: md.OptimalQuantizer(even(8, 1.6), pure(2), NORMAL, max_mse=2.0),
    "OptimalQuantizer.max_mse/3": lambda: md.OptimalQuantizer(even(8, 1.3), pure(4), FEW, max_mse=0.4, input_range=(min(FEW), max(FEW))),
    "BinSearch/1": lambda: md.OptimalQuantizer(md.BinSearch(4, 4.0, starts=1), pure(1), UNIFORM),
    "BinSearch/2": lambda: md.OptimalQuantizer(md.BinSearch(3, 2.0, starts=1), pure(2), NORMAL, loss="squared"),
    "BinSearch/3": lambda: md.OptimalQuantizer(md.BinSearch(4, 1.5, starts=1, exhaustive=False), pure(4), FEW, input_range=(min(FEW), max(FEW))),
    "Alphabet/1": lambda: md.OptimalQuantizer(md.Alphabet(3.0, 0.5), pure(1), UNIFORM),
    "Alphabet/2": lambda: md.OptimalQuantizer(md.Alphabet(2.0, 0.25), pure(2), NORMAL),
    "Alphabet/3": lambda: md.OptimalQuantizer(md.Alphabet(1.5, 0.125), pure(4), FEW, loss="squared", input_range=(min(FEW), max(FEW))),
    "MetricQuantizer/1": lambda: md.MetricQuantizer([-3, -0.5, 0.5, 3], md.MetricDP(2.0), UNIFORM, inputs=np.linspace(-1, 1, 9)),
    "MetricQuantizer/2": lambda: md.MetricQuantizer(even(4, 2.5), approximate(1, 1e-5), NORMAL, inputs=np.linspace(-1, 1, 9)),
    "MetricQuantizer/3": lambda: md.MetricQuantizer(even(8, 3.0), md.MetricDP(4.0, "squared"), FEW, inputs=np.linspace(-1, 1, 9)),
    "MetricQuantizer.worst": lambda: md.MetricQuantizer(even(4, 2.5), md.MetricDP(2.0), UNIFORM, inputs=np.linspace(-1, 1, 9), objective="worst"),
    "MetricQuantizer.interval": lambda: md.MetricQuantizer([-3, -0.5, 0.5, 3], md.MetricDP(2.0), UNIFORM),
    "OptimalNoise/1": lambda: md.OptimalNoise(approximate(1, 1e-6)),
    "OptimalNoise/2": lambda: md.OptimalNoise(approximate(4, 1e-5), loss="squared"),
    "OptimalNoise/3": lambda: md.OptimalNoise(approximate(0.3, 1e-9)),
    "OptimalNoise.pure/1": lambda: md.OptimalNoise(pure(1)),
    "OptimalNoise.pure/2": lambda: md.OptimalNoise(pure(0.1), loss="squared"),
    "OptimalNoise.pure/3": lambda: md.OptimalNoise(pure(8)),
    "OptimalNoise.dimension/1": lambda: md.OptimalNoise(approximate(1, 1e-6), dimension=5, loss="squared"),
    "OptimalNoise.dimension/2": lambda: md.OptimalNoise(pure(2), dimension=5),
    "OptimalNoise.dimension/3": lambda: md.OptimalNoise(approximate(0.3, 1e-5), dimension=1000, loss="squared"),
    "OptimalNoise.changed": lambda: md.OptimalNoise(approximate(1, 1e-6), dimension=200, l0=5, loss="squared"),
    **{f"calibrate.{noise}/1": lambda noise=noise: md.Calibration(noise, approximate(1, 1e-6), sensitivity=1) for noise in FAMILIES},
    **{f"calibrate.{noise}/2": lambda noise=noise: md.Calibration(noise, approximate(4, 1e-5), sensitivity=1, loss="absolute") for noise in FAMILIES},
    **{f"calibrate.{noise}/3": lambda noise=noise: md.Calibration(noise, approximate(2, 1e-6), sensitivity=1, dimension=5) for noise in FAMILIES},
    **{f"calibrate.{noise}.pure": lambda noise=noise: md.Calibration(noise, pure(1), sensitivity=1) for noise in PURE_FAMILIES},
    "calibrate.gaussian.zcdp": lambda: md.Calibration("gaussian", md.ZeroConcentratedDP(0.1), sensitivity=1, dimension=20),
    "calibrate.laplace.changed": lambda: md.Calibration("laplace", approximate(1, 1e-6), few_changed(3), dimension=20),
    "calibrate.gaussian.changed": lambda: md.Calibration("gaussian", approximate(1, 1e-6), few_changed(5), dimension=200),
    "calibrate.gaussian.rounds": lambda: md.Calibration("gaussian", approximate(1, 1e-6), sensitivity=1, rounds=20),
    "calibrate.gaussian.sampled": lambda: md.Calibration("gaussian", approximate(1, 1e-6), sensitivity=1, rounds=20, sampling_rate=0.1),
    "NoiseAllocation.laplace/1": lambda: md.NoiseAllocation("laplace", PROFILE, pure(1)),
    "NoiseAllocation.laplace/2": lambda: md.NoiseAllocation("laplace", [1.0], pure(0.1), loss=1),
    "NoiseAllocation.laplace/3": lambda: md.NoiseAllocation("laplace", np.linspace(0.1, 2, 200).tolist(), pure(4)),
    "NoiseAllocation.gaussian/1": lambda: md.NoiseAllocation("gaussian", PROFILE, approximate(1, 1e-6)),
    "NoiseAllocation.gaussian/2": lambda: md.NoiseAllocation("gaussian", [1.0, 2.0, 3.0, 4.0, 5.0], approximate(0.3, 1e-9), loss=1),
    "NoiseAllocation.gaussian/3": lambda: md.NoiseAllocation("gaussian", np.linspace(0.1, 2, 1000).tolist(), approximate(4, 1e-5)),
    "NoiseAllocation.mixed/1": lambda: md.NoiseAllocation("mixed", [1.0, 0.5, 0.2], approximate(1, 1e-6)),
    "NoiseAllocation.mixed/2": lambda: md.NoiseAllocation("mixed", [1.0, 0.1], approximate(2, 1e-5)),
    "NoiseAllocation.mixed/3": lambda: md.NoiseAllocation("mixed", [10.0, 1.0, 1.0, 0.1, 0.1], approximate(4, 1e-6), loss=1),
    "NoiseAllocation.weights": lambda: md.NoiseAllocation("gaussian", PROFILE, approximate(1, 1e-6), weights=np.linspace(1, 3, 20).tolist()),
    "NoiseAllocation.lower": lambda: md.NoiseAllocation("laplace", PROFILE, pure(1), lower=1.0),
    "NoiseAllocation.upper": lambda: md.NoiseAllocation("laplace", PROFILE, pure(1), upper=20.0),
    "NoiseAllocation.groups": lambda: md.NoiseAllocation("gaussian", PROFILE, approximate(1, 1e-6), groups=[list(range(5)), list(range(5, 20))]),
    "NoiseAllocation.bounds/1": lambda: md.NoiseAllocation.of_sensitivity("laplace", few_changed(2), 5, pure(1)),
    "NoiseAllocation.bounds/2": lambda: md.NoiseAllocation.of_sensitivity("gaussian", md.Sensitivity(each=[1.0, 2.0, 3.0, 0.5, 1.0], l0=2), 5, approximate(1, 1e-6)),
    "NoiseAllocation.bounds/3": lambda: md.NoiseAllocation.of_sensitivity("gaussian", md.Sensitivity(each=PROFILE, l0=3), 20, approximate(2, 1e-5)),
    "NoiseAllocation.l1": lambda: md.NoiseAllocation.of_sensitivity("laplace", md.Sensitivity(each=[1.0, 2.0, 3.0, 0.5, 1.0], l1=3.0), 5, pure(1)),
    "NoiseAllocation.l2": lambda: md.NoiseAllocation.of_sensitivity("gaussian", md.Sensitivity(each=[1.0, 2.0, 3.0, 0.5, 1.0], l2=2.5), 5, approximate(1, 1e-6)),
    "NoiseAllocation.several": lambda: md.NoiseAllocation.of_sensitivity("laplace", md.Sensitivity(each=[1.0, 2.0, 3.0, 0.5, 1.0], l1=4.0, l0=3), 5, pure(1)),
    "CorrelatedGaussian/1": lambda: md.CorrelatedGaussian(np.eye(5), approximate(0.3, 1e-6)),
    "CorrelatedGaussian/2": lambda: md.CorrelatedGaussian(np.random.default_rng(0).normal(size=(30, 5)), approximate(1, 1e-6)),
    "CorrelatedGaussian/3": lambda: md.CorrelatedGaussian.of_sensitivity(md.Sensitivity(each=[1.0, 2.0, 0.5, 1.0, 3.0], l0=2), 5, approximate(4, 1e-5)),
    "CountsGaussian/1": lambda: md.CountsGaussian(5, 2, approximate(0.3, 1e-6)),
    "CountsGaussian/2": lambda: md.CountsGaussian(20, 3, approximate(1, 1e-6), signed=False),
    "CountsGaussian/3": lambda: md.CountsGaussian(200, 5, approximate(2, 1e-5)),
    "MatrixMechanism/1": lambda: md.MatrixMechanism(md.Workload.prefix_sums(20), approximate(1, 1e-6)),
    "MatrixMechanism/2": lambda: md.MatrixMechanism(md.Workload.ranges(5), approximate(0.3, 1e-9), loss="largest"),
    "MatrixMechanism/3": lambda: md.MatrixMechanism(md.Workload.marginals((2, 3), order=1), approximate(4, 1e-5), l0=2),
    "KNorm/1": lambda: md.noise.KNorm(5, pure(1)),
    "KNorm/2": lambda: md.noise.KNorm(20, pure(4), md.Sensitivity(l2=1.0), loss="absolute"),
    "KNorm/3": lambda: md.noise.KNorm(200, pure(0.3), few_changed(5)),
    "MetricChannel/1": lambda: md.MetricChannel(LINE, alpha=4.0),
    "MetricChannel/2": lambda: md.MetricChannel(SQUARE, alpha=1.0),
    "MetricChannel/3": lambda: md.MetricChannel(TOWNS, alpha=2.0, prior=np.arange(1.0, 13.0) / 78),
    "MetricChannel.spanner": lambda: md.MetricChannel(md.MetricSpace.grid(5, 5), alpha=1.0, spanner=1.5),
    "VectorQuantizer/1": lambda: md.VectorQuantizer(20, pure(2), bits=3),
    "VectorQuantizer/2": lambda: md.VectorQuantizer(200, pure(4), bits=1, inputs="box"),
    "VectorQuantizer/3": lambda: md.VectorQuantizer(1000, pure(8), bits=6, inputs="sphere", rotation="fast"),
    "VectorQuantizer.signs": lambda: md.VectorQuantizer(30, pure(3), bits=4, inputs="box"),
}

MECHANISMS: dict[str, Callable[[], Any]] = {
    "KaryResponse/1": lambda: md.channels.KaryResponse(5, 1.0),
    "KaryResponse/2": lambda: md.channels.KaryResponse(20, 4.0),
    "KaryResponse/3": lambda: md.channels.KaryResponse(200, 8.0),
    "HadamardResponse/1": lambda: md.channels.HadamardResponse(5, 1.0),
    "HadamardResponse/2": lambda: md.channels.HadamardResponse(20, 4.0),
    "HadamardResponse/3": lambda: md.channels.HadamardResponse(200, 0.3),
    "ClusteredResponse/1": lambda: md.channels.ClusteredResponse(TOWNS, alpha=1.0),
    "ClusteredResponse/2": lambda: md.channels.ClusteredResponse(md.MetricSpace.clustered(2, 2, within=0.1), alpha=4.0),
    "ClusteredResponse/3": lambda: md.channels.ClusteredResponse(md.MetricSpace.clustered(10, 10, within=0.3), alpha=8.0),
    "planar_laplace/1": lambda: md.channels.planar_laplace(SQUARE, 1.0),
    "planar_laplace/2": lambda: md.channels.planar_laplace(md.MetricSpace.grid(3, 3), 0.3),
    "planar_laplace/3": lambda: md.channels.planar_laplace(md.MetricSpace.grid(5, 5), 4.0),
    "Channel.exponential": lambda: md.Channel.exponential(LINE, 4.0),
    "SphereQuantizer/1": lambda: md.SphereQuantizer(20, 3, pure(2)),
    "SphereQuantizer/2": lambda: md.SphereQuantizer(5, 2, pure(1), inputs="sphere"),
    "SphereQuantizer/3": lambda: md.SphereQuantizer(200, 6, pure(8), rotation="fast"),
    "RandomDirections/1": lambda: md.RandomDirections(5, 4, pure(3), inputs="sphere"),
    "RandomDirections/2": lambda: md.RandomDirections(20, 5, pure(8), messages=2),
    "SampledSigns/1": lambda: md.SampledSigns(20, 3, pure(2)),
    "SampledSigns/2": lambda: md.SampledSigns(5, 2, pure(1)),
    "SampledSigns/3": lambda: md.SampledSigns(200, 6, pure(4)),
    "SampledCoordinates/1": lambda: md.SampledCoordinates(20, 1, pure(1)),
    "SampledCoordinates/2": lambda: md.SampledCoordinates(5, None, pure(4)),
    "SampledCoordinates/3": lambda: md.SampledCoordinates(200, 4, pure(4)),
    "PrivUnit/1": lambda: md.PrivUnit(20, pure(2)),
    "PrivUnit/2": lambda: md.PrivUnit(5, pure(1), inputs="sphere"),
    "PrivUnit/3": lambda: md.PrivUnit(1000, pure(8)),
    "CoordinateQuantizer/1": lambda: md.CoordinateQuantizer(md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1)), dimension=5),
    "CoordinateQuantizer/2": lambda: md.CoordinateQuantizer(md.Quantizer.rqm([-2, -1, 1, 2], 0.5, (-1, 1)), dimension=20),
    "CoordinateQuantizer/3": lambda: md.CoordinateQuantizer(md.OptimalQuantizer([-3, -0.5, 0.5, 3], pure(1), UNIFORM).solve().mechanism, dimension=200, scale=2.0),
    "LinearRelease/1": lambda: md.LinearRelease(md.user_level.LinearQuery.average(md.MetricSpace.line([0.0, 1.0, 5.0])), alpha=4.0, users=100),
    "LinearRelease/2": lambda: md.LinearRelease(md.user_level.LinearQuery.average(LINE), alpha=1.0, model="local"),
    "LinearRelease/3": lambda: md.LinearRelease(md.user_level.LinearQuery.average(LINE), alpha=2.0, users=1000, gaussian=True, delta=1e-6, norm=2),
    "ItemwiseRelease/1": lambda: md.ItemwiseRelease(md.MetricSpace.line([0.0, 0.5, 1.0]), alpha=1.0, items=3, model="local", accounting="composition"),
    "ItemwiseRelease/2": lambda: md.ItemwiseRelease(TOWNS, alpha=8.0, delta=1e-6, items=50, users=20),
    "ItemwiseRelease/3": lambda: md.ItemwiseRelease(TOWNS, alpha=4.0, delta=1e-5, items=20, users=200, accounting="closed-form"),
}


def interval(terms: Any, epsilon: float, **more: Any) -> tuple[float, float]:
    found = md.accounting.delta_interval(terms, epsilon, **more)
    return found.upper, found.lower


def term(law: Any, count: int = 1) -> Any:
    return md.accounting.NoiseTerm(law, 1.0, count)


def table_value(found: Any) -> tuple[float, float | None]:
    """The sum of a frontier's values and of its bounds: no one of them moves far when the sum does not."""
    return float(found.table["value"].sum()), float(found.table["lower_bound"].sum())


def compared(question: Any, privacy: Any = None, **more: Any) -> tuple[float, float | None]:
    found = md.compare(question, privacy, progress=False, **more)
    return float(found.best.value), found.least


def deviation(noise: str, *notion: float, **more: Any) -> float:
    return float(md.accuracy(md.calibrate(noise, privacy=approximate(*notion), sensitivity=1, **more)).standard_deviation)


def planned(noise: str, **options: Any) -> float:
    """The noise that an estimator adds, by its plan's scales."""
    return float(np.sum(np.square(md.learning.noise_plan(noise, **options).scales)))


NUMBERS: dict[str, Callable[[], Any]] = {
    "frontier/1": lambda: table_value(md.sweep(md.OptimalQuantizer([-3.0, -0.5, 0.5, 3.0], pure(1), UNIFORM), epsilon=[1.0, 2.0])),
    "frontier/2": lambda: table_value(md.sweep(md.OptimalNoise(approximate(1, 1e-6)), epsilon=[1.0, 2.0])),
    "frontier/3": lambda: table_value(md.sweep(md.OptimalQuantizer(even(8, 1.6), pure(4), NORMAL), epsilon=[2.0, 4.0])),
    "delta_interval/1": lambda: interval(term(stats.laplace(scale=20.0), 20), 0.3),
    "delta_interval/2": lambda: interval(term(stats.norm(scale=5.0)), 0.1, rounds=20, sampling_rate=0.1),
    "delta_interval/3": lambda: interval([term(stats.norm(scale=4.0), 5), term(stats.laplace(scale=8.0), 5)], 2.0),
    "epsilon_bound/1": lambda: md.accounting.epsilon_bound(term(stats.norm(scale=5.0), 20), 1e-6),
    "epsilon_bound/2": lambda: md.accounting.epsilon_bound(term(stats.laplace(scale=20.0), 20), 1e-5),
    "epsilon_bound/3": lambda: md.accounting.epsilon_bound(term(stats.norm(scale=2.0)), 1e-6, rounds=200, sampling_rate=0.01),
    "privacy_profile/1": lambda: float(md.accounting.privacy_profile(stats.norm(scale=4.0), 1.0, 1.0)),
    "privacy_profile/2": lambda: float(md.accounting.privacy_profile(stats.laplace(scale=1.0), 1.0, 0.3)),
    "privacy_profile/3": lambda: float(md.accounting.privacy_profile(stats.logistic(scale=0.4), 1.0, 2.0)),
    "amplification/1": lambda: md.amplification(1.0, moved=0.1, total=1000, delta=1e-6).epsilon,
    "amplification/2": lambda: md.amplification(2.0, moved=1.0, total=1000, delta=1e-5).epsilon,
    "amplification/3": lambda: md.amplification(0.3, moved=1.0, total=200, delta=1e-9).epsilon,
    "compare/1": lambda: compared(md.NumericQuery(), approximate(1, 1e-6), mechanisms=["staircase", "truncated_laplace", "laplace", "gaussian"]),  # the optimal noise takes the seconds that there are
    "compare/2": lambda: compared(md.NumericQuery(dimension=20, sensitivity=few_changed(3), integer=True), approximate(1, 1e-6), mechanisms=["gaussian", "laplace", "discrete_gaussian"]),
    "compare/3": lambda: compared(md.LocalReport(bits=2), pure(2), mechanisms=["optimal, even outputs", "OPTM"]),
    "compare.metric": lambda: compared(md.MetricReport(LINE), alpha=4.0),
    "accuracy/1": lambda: deviation("gaussian", 1, 1e-6),
    "accuracy/2": lambda: deviation("laplace", 4, 1e-5),
    "accuracy/3": lambda: deviation("flipped_huber", 0.3, 1e-9),
    "least_epsilon/1": lambda: md.least_epsilon("gaussian", md.NumericQuery(), error=5.0, delta=1e-6),
    "least_epsilon/2": lambda: md.least_epsilon("laplace", md.NumericQuery(dimension=5), error=20.0),
    "least_epsilon/3": lambda: md.least_epsilon("gaussian", md.NumericQuery(dimension=20), error=3.0, delta=1e-5, measure="half_width"),
    "noise_plan/1": lambda: planned("gaussian", privacy=approximate(1, 1e-6), sensitivities=PROFILE),
    "noise_plan/2": lambda: planned("laplace", privacy=pure(1), sensitivities=[1.0, 2.0, 0.5], rounds=5),
    "noise_plan/3": lambda: planned("gaussian", privacy=approximate(4, 1e-5), sensitivities=[1.0] * 20, rounds=20),
    "FrequencyEstimate/1": lambda: float(md.FrequencyEstimate(md.channels.ClusteredResponse(md.MetricSpace.clustered(2, 2, within=0.1), alpha=4.0)).error_bound(100)),
    "FrequencyEstimate/2": lambda: float(md.FrequencyEstimate(md.channels.KaryResponse(5, 1.0), LINE5).error_bound(1000)),
    "FrequencyEstimate/3": lambda: float(md.FrequencyEstimate(md.channels.HadamardResponse(5, 4.0), LINE5).error_bound(1000)),
    "LaplaceHistogram/1": lambda: float(md.user_level.LaplaceHistogram(TOWNS, epsilon=1.0, users=100).error_bound),
    "LaplaceHistogram/2": lambda: float(md.user_level.LaplaceHistogram(LINE, epsilon=0.3, users=1000).error_bound),
    "LaplaceHistogram/3": lambda: float(md.user_level.LaplaceHistogram(SQUARE, epsilon=4.0, users=200).error_bound),
}


# What stays in files, exports, pages and commands -----------------------------------------------------------------

SHELL = (sys.executable, "-c", "from mechdesign.shell.cli import main; main()")
RESULTS = ("OPTM/1", "OptimalQuantizer/1", "MetricQuantizer/1", "OptimalNoise/1", "calibrate.gaussian/1", "NoiseAllocation.laplace/1", "NoiseAllocation.mixed/2", "CorrelatedGaussian/1", "MatrixMechanism/2", "KNorm/1", "MetricChannel/1", "VectorQuantizer/1", "OptimalNoise.dimension/2")
# fmt: on


def claims(result: Any) -> list[str]:
    """All claims of a certificate hold, none is merely claimed; how its lower bound is checked. Their words and number may change."""
    found = result.certificate.checks()
    found = found[
        ~found["claim"].str.startswith('rows "model: ')
    ]  # which say of themselves that nothing checks them
    assert (
        found["holds"].all() and result.certificate.verify() and set(found["how"]) <= {"proved", "recomputed"}
    )
    return ["no lower bound"] if result.lower_bound is None else [result.certificate.bound_how]


def saved(result: Any) -> list[str]:
    """A saved file loads, verifies, and has the same value."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        result.save(path)
        again = md.load(path)
        assert again.value == result.value and again.lower_bound == result.lower_bound
        assert again.certificate.verify()
    return [type(again.design).__name__]


def verified(result: Any) -> list[str]:
    """The command that verifies a saved file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        result.save(path)
        done = subprocess.run([*SHELL, "verify", str(path)], capture_output=True)
    return [f"exit {done.returncode}"]


def titles(result: Any) -> list[str]:
    """The set of the page's section titles."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        result.report(path)
        text = path.read_text()
    return sorted(
        {re.sub(r"<[^>]*>", "", t).strip() for t in re.findall(r"<h2[^>]*>(.*?)</h2>", text, re.DOTALL)}
    )


def latex(result: Any) -> list[str]:
    text = result.to_latex()
    return [line for line in text.splitlines() if line.startswith((r"\begin", r"\end"))]


def header(quantizer: Any) -> list[str]:
    """The C header, compiled with all warnings where there is a compiler."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "quantizer.h"
        path.write_text(md.vectors.c_header(md.vectors.IntegerTable.of(quantizer), name="quantizer"))
        (Path(folder) / "main.c").write_text(
            '#include "quantizer.h"\nint main(void) { quantizer_word word = {{1}}; return quantizer_encode(0.0, word) < 0; }\n'
        )
        if compiler := shutil.which("gcc"):
            command = [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "main.c", "-o", "main"]
            subprocess.run(command, cwd=folder, check=True)
            subprocess.run([str(Path(folder) / "main")], check=True)
        return sorted(set(re.findall(r"quantizer_\w+(?=\()", path.read_text())))


def flat(mechanism: Any) -> list[str]:
    return sorted(json.loads(md.vectors.flat_json(mechanism)))


def fit(kind: str, **options: Any) -> list[str]:
    """An estimator of scikit-learn's: its public attributes after a fit."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (200, 3)) / math.sqrt(3)
    y = x @ [1.0, -0.5, 0.1]
    made = getattr(md.learning, kind)(random_state=0, **options)
    made.fit(x, np.sign(y) if kind.endswith("Classifier") else y)
    return sorted(name for name in vars(made) if name.endswith("_") and not name.startswith("_"))


def command(*words: str, spec: str | None = None) -> list[str]:
    """Exit status of the command line, and the files that it leaves."""
    with tempfile.TemporaryDirectory() as folder:
        if spec is not None:
            (Path(folder) / "design.toml").write_text(spec)
        run = [*SHELL, *words]
        done = subprocess.run(run, cwd=folder, capture_output=True, text=True)
        return [f"exit {done.returncode}", *sorted(p.name for p in Path(folder).iterdir())]


def rows(found: Any) -> list[str]:
    """Mechanisms of a comparison, and those that refuse the question."""
    return [*sorted(found.names), *sorted(f"refused: {name}" for name in found.refused)]


def facts(solved: Callable[[str], Any]) -> dict[str, Callable[[], list[Any]]]:
    """What stays; `solved` gives the result of a design by name."""
    found: dict[str, Callable[[], list[Any]]] = {}
    for name in RESULTS:
        for what in (claims, saved, verified, titles, latex):
            found[f"{what.__name__}({name})"] = lambda what=what, name=name: what(solved(name))
    for name in ("OPTM/1", "RQM/1", "OptimalQuantizer/2"):
        found[f"header({name})"] = lambda name=name: header(solved(name).mechanism)
        found[f"flat({name})"] = lambda name=name: flat(solved(name).mechanism)
    small, privacy = (
        md.NumericQuery(dimension=20, sensitivity=few_changed(3), integer=True),
        approximate(1, 1e-6),
    )
    toml = 'design = "OPTM"\nbins = [-3.0, -0.5, 0.5, 3.0]\n[privacy]\nkind = "PureDP"\nepsilon = 1.0\n[prior]\nlaw = "uniform"\nloc = -1\nscale = 2\n'
    return found | {
        "flat(sphere)": lambda: flat(md.SphereQuantizer(20, 3, pure(2))),
        "fit(components)": lambda: fit("PrivatePCA", privacy=privacy, bounds=1.0, n_components=2),
        "rows(numbers)": lambda: rows(
            md.compare(
                small,
                privacy,
                progress=False,
                mechanisms=["gaussian", "laplace", "discrete_laplace", "staircase"],
            )
        ),
        "rows(number)": lambda: rows(md.compare(md.NumericQuery(), pure(1), progress=False)),
        "rows(metric)": lambda: rows(md.compare(md.MetricReport(LINE), alpha=4.0, progress=False)),
        "command(help)": lambda: command("--help"),
        "command(calibrate)": lambda: command(
            "calibrate",
            "gaussian",
            "--epsilon",
            "1",
            "--delta",
            "1e-6",
            "--sensitivity",
            "1",
            "--report",
            "page.html",
        ),
        "command(solve)": lambda: command("solve", "design.toml", "-o", "result.json", spec=toml),
        "command(solvers)": lambda: command("solvers"),
        "command(study)": lambda: command("study", "list"),
    }

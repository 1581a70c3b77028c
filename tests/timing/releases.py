"""Every release of the package at ε = .1, with pairs of neighbours that are as unlike as they can be for its arithmetic."""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import stats

import mechdesign as md
from mechdesign.channels import Channel, ClusteredResponse, HadamardResponse
from mechdesign.learning import (
    PrivateGeneralizedLinearRegression,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivatePCA,
)
from mechdesign.noise.calibration import JointNoise
from mechdesign.user_level import LaplaceHistogram, LinearQuery
from mechdesign.vectors import IntegerTable

EPSILON = 0.1
DELTA = 1e-6
PURE = md.PureDP(EPSILON)
APPROXIMATE = md.ApproximateDP(EPSILON, DELTA)
MAGNITUDES = (1.0, 300.0, 2.0**40)
LINE = md.MetricSpace.line(np.linspace(0.0, 1.0, 6))
CLUSTERS = md.MetricSpace.clustered(2, 4, within=0.1)
BINS = [-30.0, -1.0, 1.0, 30.0]

Pair = tuple[Any, Any]
Call = Callable[[Any], object]


@dataclass(frozen=True)
class Release:
    """A release that is timed.

    Attributes
    ----------
    kind : str
        As `mechdesign.evidence.serialize.KINDS` names the mechanism; of an estimator its class.
    made : callable
        The mechanism.
    pairs : callable
        The mechanism to pairs of neighbours by name.
    method : callable
        The mechanism to the call.
    delta : float
    """

    kind: str
    made: Callable[[], Any]
    pairs: Callable[[Any], dict[str, Pair]]
    method: Callable[[Any], Call] = lambda mechanism: mechanism.release
    delta: float = 0.0

    @cached_property
    def mechanism(self) -> Any:
        """Made once."""
        return self.made()

    def calls(self) -> Iterator[tuple[str, Call, Pair]]:
        """What is called on each pair."""
        call = self.method(self.mechanism)
        for name, pair in self.pairs(self.mechanism).items():
            yield name, call, pair


def answers(size: int = 1, change: float = 1.0, *, moved: int = 1) -> Callable[[Any], dict[str, Pair]]:
    """Whole numbers of each magnitude and what is less than a change away: off every lattice and every whole number; 0 and what is subnormal.

    The first answer is a multiple of all steps; of the second every number that may change lies where doubles just do not
    decide a rounding by halves.
    """

    def pairs(mechanism: Any) -> dict[str, Pair]:
        found = {}
        for magnitude in MAGNITUDES:
            base = np.full(size, magnitude)
            beside = base.copy()
            beside[:moved] += change * (1 - 2.0**-12)
            beside[:moved] = np.nextafter(beside[:moved], np.inf)
            found[f"{magnitude:g}"] = (
                (base, beside) if size > 1 else (np.float64(magnitude), np.float64(beside[0]))
            )
        if change == 1.0:
            found["2^53"] = edge(size, moved)
        zero, subnormal = np.zeros(size), np.zeros(size)
        subnormal[:moved] = 5e-324
        found["zero and subnormal"] = (zero, subnormal) if size > 1 else (np.float64(0.0), np.float64(5e-324))
        return found

    return pairs


def edge(size: int, moved: int) -> Pair:
    """The largest of the numbers that doubles count without gaps, and one more."""
    base = np.full(size, 2.0**53 - 1)
    beside = base.copy()
    beside[:moved] += 1.0
    return (base, beside) if size > 1 else (np.float64(base[0]), np.float64(beside[0]))


def counts(size: int, moved: int) -> Callable[[Any], dict[str, Pair]]:
    """Counts of each magnitude of which some are one more."""

    def pairs(mechanism: Any) -> dict[str, Pair]:
        found = {}
        for magnitude in MAGNITUDES:
            base = np.full(size, magnitude)
            beside = base.copy()
            beside[:moved] += 1.0
            found[f"{magnitude:g}"] = base, beside
        return found | {"2^53": edge(size, moved)}

    return pairs


def inputs(quantizer: Any) -> dict[str, Pair]:
    """An input at a knot of the law and one beside, the ends, 0, and what is subnormal."""
    knot = float(np.asarray(quantizer.knots)[len(quantizer.knots) // 2])
    return {
        "knot and beside": (np.float64(knot), np.float64(np.nextafter(knot, -1.0))),
        "knot and inside": (np.float64(knot), np.float64(0.37)),
        "ends": (np.float64(-1.0), np.float64(1.0)),
        "zero and subnormal": (np.float64(0.0), np.float64(5e-324)),
        "one row and several": (np.full(8, -0.999), np.append(np.full(7, -0.999), 0.999)),
    }


def vectors(size: int, length: float) -> Callable[[Any], dict[str, Pair]]:
    """Vectors at 0, along an axis, of equal numbers, and subnormal ones."""
    axis = np.zeros(size)
    axis[0] = 1.0
    equal = np.full(size, length / math.sqrt(size) * (1 - 1e-12))
    uneven = np.linspace(-1.0, 1.0, size) / math.sqrt(size)

    def pairs(mechanism: Any) -> dict[str, Pair]:
        zero = np.zeros(size)
        return {
            "zero and axis": (zero, axis),
            "equal and uneven": (equal, uneven),
            "zero and subnormal": (zero, zero + 5e-324),
        }

    return pairs


def items(last: int) -> Callable[[Any], dict[str, Pair]]:
    """Single items, and arrays: the guide promises nothing of Python's integers, which NumPy reads in other times."""
    return lambda mechanism: {
        "first and last": (0, last),
        "first and second": (0, 1),
        "few of one row": (np.array([0, 0, 0]), np.array([0, 0, last])),
        "many of one row": (np.array([0] * 20), np.array([0] * 19 + [last])),
    }


def datasets(users: int, size: int, last: int) -> Callable[[Any], dict[str, Pair]]:
    """All items of all users the same, and one user's others."""
    base = np.zeros((users, size), dtype=np.int64)
    other = base.copy()
    other[0] = np.arange(size) % (last + 1)
    return lambda mechanism: {"the same and mixed": (base, other)}


def histograms(lattice: Callable[[Any], float] | None = None) -> Callable[[Any], dict[str, Pair]]:
    """Shares that are multiples of the lattice's step, and shares that doubles round."""
    base = np.array([0.5, 0.25, 0.25, 0.0, 0.0, 0.0])
    other = np.array([0.5, 0.25, 0.15, 0.1, 0.0, 0.0])
    whole = np.array([0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    return lambda mechanism: {"steps and beside": (base, other), "whole and beside": (whole, other)}


def records(columns: int) -> Callable[[Any], dict[str, Pair]]:
    """Records of which the first is of zeros, usual, long, or subnormal."""
    rng = np.random.default_rng(0)
    base = rng.uniform(-1, 1, (50, columns)) / columns
    first = {
        "zeros": np.zeros(columns),
        "usual": base[0],
        "long": np.full(columns, 1e80),
        "subnormal": np.full(columns, 5e-324),
    }
    made = {name: np.vstack([[row], base[1:]]) for name, row in first.items()}
    return lambda mechanism: {
        "usual and zeros": (made["usual"], made["zeros"]),
        "usual and long": (made["usual"], made["long"]),
        "zeros and subnormal": (made["zeros"], made["subnormal"]),
    }


def pooled() -> Callable[[Any], dict[str, Pair]]:
    """One row for each of two users: the same shares, or one's at a vertex; and counts of all items together."""
    base = np.array([[0.5, 0.25, 0.25, 0.0, 0.0, 0.0]] * 2)
    whole = np.array([[0.0, 1.0, 0.0, 0.0, 0.0, 0.0], base[1]])
    counts = np.array([[0, 100, 0, 0, 0, 0], [7, 20, 1, 70, 1, 1]])
    return lambda mechanism: {"shares": (base, whole), "counts": (counts, counts[[1, 1]])}


def sides(x: np.ndarray) -> np.ndarray:
    """The labels −1 and 1."""
    return np.where(x < 0, -1.0, 1.0)


def estimator(kind: type, **options: Any) -> Callable[[], Any]:
    """A model whose noise has been calibrated."""

    def made() -> Any:
        model = kind(privacy=APPROXIMATE, **options)
        x = np.linspace(-0.5, 0.5, 100).reshape(50, 2)
        return kind(privacy=APPROXIMATE, noise=model.fit(x, sides(x[:, 0])).privacy_, **options)

    return made


def fitted(target: Callable[[Any], Any] = np.asarray) -> Callable[[Any], Call]:
    """Fits to what is made of the first column."""
    return lambda model: lambda x: copy.copy(model).fit(x, target(x[:, 0]))


def additive(noise: Any, privacy: Any, **options: Any) -> Callable[[], Any]:
    return lambda: md.calibrate(noise, privacy=privacy, **{"sensitivity": 1.0} | options).mechanism


def solved(design: Callable[[], Any], **options: Any) -> Callable[[], Any]:
    return lambda: design().solve(**options).mechanism


def declared() -> md.Problem:
    """A declared report of one of eight numbers."""
    table = md.Table(range(8), range(8))
    return md.Problem(md.Minimize(table.expected()), [table.private(PURE)])


def streamed(mechanism: Any) -> Call:
    return lambda x: list(mechanism.stream(x))


def buffered() -> md.noise.BufferedToeplitz:
    return md.noise.BufferedToeplitz(8, APPROXIMATE, buffers=2)


def clipped(mechanism: Any) -> Call:
    return lambda x: mechanism.release(x, clip=True)


def encoded(mechanism: Any) -> Call:
    return lambda x: mechanism.encode(x, clip=True)


UNIFORM = stats.uniform(-1, 2)


def votes(mechanism: Any) -> dict[str, Pair]:
    """A tie that one vote breaks, and a lead that it widens."""
    return {"a tie": ([9] * 8, [10] + [9] * 7), "a lead": ([900] + [9] * 7, [901] + [9] * 7)}


def votes_of_two(mechanism: Any) -> dict[str, Pair]:
    return {"a tie": ([4, 4], [5, 4]), "the largest": ([8, 0], [9, 0])}


def numbers(mechanism: Any) -> dict[str, Pair]:
    """A number that leaves the others."""
    return {"a median": ([50.0] * 41, [50.0] * 40 + [0.0]), "far out": ([1.0] * 41, [1.0] * 40 + [1e9])}


RELEASES: dict[str, Release] = {
    "Laplace": Release("additive-noise", additive("laplace", PURE), answers()),
    "Gaussian": Release("additive-noise", additive("gaussian", APPROXIMATE), answers(), delta=DELTA),
    "Gaussian, 50 numbers": Release("additive-noise", additive("gaussian", APPROXIMATE, dimension=50), answers(50, moved=50), delta=DELTA),
    "generalised normal": Release("additive-noise", additive("gennorm", APPROXIMATE), answers(), delta=DELTA),
    "staircase": Release("additive-noise", additive("staircase", PURE), answers()),
    "flipped Huber": Release("additive-noise", additive("flipped_huber", APPROXIMATE), answers(), delta=DELTA),
    "truncated Laplace": Release("additive-noise", additive("truncated_laplace", APPROXIMATE), answers(), delta=DELTA),
    "OSGT": Release("additive-noise", additive("osgt", APPROXIMATE), answers(), delta=DELTA),
    "discrete Gaussian": Release("additive-noise", additive("discrete_gaussian", APPROXIMATE), counts(1, 1), delta=DELTA),
    "several mechanisms": Release(
        "joint-noise",
        lambda: JointNoise((additive("laplace", PURE)(), additive("gaussian", APPROXIMATE)())),
        answers(),
        lambda noise: lambda x: noise.release(x, term=0),
    ),
    "optimal noise": Release("cell-noise", solved(lambda: md.OptimalNoise(md.ApproximateDP(EPSILON, 0.01)), gap=0.1), answers(), delta=0.01),
    "optimal integer noise": Release(
        "integer-noise",
        solved(lambda: md.OptimalNoise(md.ApproximateDP(EPSILON, 0.01), integer=True)),
        lambda mechanism: {f"{m:g}": (int(m), int(m) + 1) for m in MAGNITUDES},
        delta=0.01,
    ),
    "optimal noise, 2 numbers": Release(
        "cell-product",
        solved(lambda: md.OptimalNoise(md.ApproximateDP(EPSILON, 0.01), dimension=2, l0=1), gap=0.1),
        answers(2),
        delta=0.01,
    ),
    "allocation, Gaussian": Release(
        "independent-noise",
        solved(lambda: md.NoiseAllocation("gaussian", np.ones(50), APPROXIMATE)),
        answers(50, moved=50),
        delta=DELTA,
    ),
    "allocation, Laplace": Release("independent-noise", solved(lambda: md.NoiseAllocation("laplace", np.ones(50), PURE)), answers(50, moved=50)),
    "allocation, mixed": Release(
        "mixed-noise",
        solved(lambda: md.NoiseAllocation("mixed", [1.0, 0.1], APPROXIMATE)),
        answers(2, 0.1, moved=2),
        delta=DELTA,
    ),
    "allocation, of a family": Release("coordinate-noise", solved(lambda: md.NoiseAllocation("staircase", np.ones(50), PURE)), answers(50, moved=50)),
    "K-norm, l_inf": Release("knorm-noise", solved(lambda: md.noise.KNorm(4, PURE, norm=math.inf)), answers(4, moved=4)),
    "K-norm, l_1": Release("knorm-noise", solved(lambda: md.noise.KNorm(4, PURE, norm=1)), answers(4, 0.25, moved=4)),
    "K-norm, l_2": Release("knorm-noise", solved(lambda: md.noise.KNorm(4, PURE, norm=2)), answers(4, moved=4)),
    "K-norm, few of many": Release("knorm-noise", solved(lambda: md.noise.KNorm(12, PURE, md.Sensitivity(linf=1, l0=5))), answers(12, moved=5)),
    "K-norm, all rise": Release("knorm-noise", solved(lambda: md.noise.KNorm(4, PURE, md.Sensitivity(linf=1, signed=False))), answers(4, moved=4)),
    "K-norm, bounds of each": Release(
        "knorm-noise",
        solved(lambda: md.noise.KNorm(3, PURE, md.Sensitivity(each=[1.0, 0.5, 0.1]))),
        answers(3, moved=1),
    ),
    "K-norm, listed": Release("knorm-noise", solved(lambda: md.noise.KNorm(2, PURE, [[1, 1], [1, 0], [0, 1]])), answers(2, moved=2)),
    "K-norm, staircase": Release("knorm-noise", solved(lambda: md.noise.KNorm(2, md.PureDP(5.0))), answers(2, moved=2)),
    "correlated Gaussian": Release("correlated-gaussian-noise", solved(lambda: md.CorrelatedGaussian(np.eye(5), APPROXIMATE)), answers(5), delta=DELTA),
    "counts Gaussian": Release("correlated-gaussian-noise", solved(lambda: md.CountsGaussian(50, 50, APPROXIMATE)), counts(50, 50), delta=DELTA),
    "plan": Release(
        "planned-release",
        solved(
            lambda: md.Plan(
                {"visits": md.Histogram(5), "age": md.Mean(0, 2, n=9), "spent": md.Sum(1.0)}, PURE
            )
        ),
        counts(8, 1),
        lambda plan: lambda x: plan.release({"visits": x[:5], "age": x[5:7], "spent": x[7]}),
    ),
    "plan of workloads": Release(
        "planned-release",
        solved(lambda: md.Plan({"totals": md.Workload.prefix_sums(8)}, APPROXIMATE, families=("gaussian",))),
        lambda plan: {k: pair for k, pair in counts(8, 1)(plan).items() if pair[0].max() < 2**26},
        lambda plan: lambda x: plan.release({"totals": x}),
        delta=DELTA,
    ),
    "matrix mechanism": Release(
        "strategy-noise",
        solved(lambda: md.MatrixMechanism(md.Workload.prefix_sums(8), APPROXIMATE)),
        counts(8, 1),
        delta=DELTA,
    ),
    "matrix mechanism, stream": Release(
        "strategy-noise",
        solved(lambda: md.MatrixMechanism(md.Workload.prefix_sums(8), APPROXIMATE)),
        counts(8, 1),
        streamed,
        DELTA,
    ),
    "stream": Release("buffered-noise", solved(buffered), counts(8, 1), delta=DELTA),
    "stream, step by step": Release("buffered-noise", solved(buffered), counts(8, 1), streamed, DELTA),
    "optimal quantizer": Release("quantizer", solved(lambda: md.OptimalQuantizer(BINS, PURE, UNIFORM), gap=0.5), inputs, clipped),
    "metric quantizer": Release("quantizer", solved(lambda: md.MetricQuantizer(BINS, md.MetricDP(EPSILON / 2), UNIFORM), gap=0.9), inputs, clipped),
    "RQM": Release("quantizer", lambda: md.Quantizer.rqm([-40.0, -20.0, 20.0, 40.0], 0.5, (-1, 1)).certified(), inputs, clipped),
    "coordinates": Release(
        "vector-quantizer",
        lambda: md.CoordinateQuantizer(
            md.OptimalQuantizer([-150.0, -1.0, 1.0, 150.0], md.PureDP(EPSILON / 5), UNIFORM)
            .solve(gap=0.9)
            .mechanism,
            dimension=5,
        ),
        vectors(5, 1.0),
        clipped,
    ),
    "biased selection": Release(
        "biased-quantizer",
        solved(
            lambda: md.BiasedSelection(
                4,
                PURE,
                UNIFORM,
                max_bias=np.inf,
                grid=md.Grid(delta=[20.0], q=[0.5], beta=[0.001]),
            )
        ),
        lambda mechanism: {
            "bin and beside": (np.float64(mechanism.bins[1]), np.float64(0.37)),
            "ends": (np.float64(-1.0), np.float64(1.0)),
        },
        clipped,
    ),
    "sphere": Release("sphere-quantizer", lambda: md.SphereQuantizer(20, 3, PURE), vectors(20, 1.0), clipped),
    "sphere, messages": Release("sphere-quantizer", lambda: md.SphereQuantizer(20, 3, PURE, rotation="fast"), vectors(20, 1.0), encoded),
    "random directions": Release("random-directions", lambda: md.RandomDirections(20, 6, PURE), vectors(20, 1.0), clipped),
    "sampled coordinates": Release(
        "sampled-coordinates",
        solved(lambda: md.VectorQuantizer(30, PURE, bits=1, inputs="box")),
        vectors(30, math.sqrt(30)),
        clipped,
    ),
    "sampled signs": Release("sampled-signs", lambda: md.vectors.SampledSigns(30, 4, PURE), vectors(30, math.sqrt(30)), clipped),
    "integer table": Release(
        "integer-table",
        lambda: IntegerTable.of(md.OptimalQuantizer(BINS, PURE, UNIFORM).solve(gap=0.5).mechanism),
        inputs,
        clipped,
    ),
    "exponential channel": Release("channel", lambda: Channel.exponential(LINE, EPSILON), items(5)),
    "local report": Release("linear-report", solved(lambda: md.LocalWorkload(md.Workload.prefix_sums(8), PURE)), items(7)),
    "local histogram": Release("subset-report", solved(lambda: md.LocalWorkload(md.Workload.identity(8), PURE)), items(7)),
    "bounded count": Release("channel", solved(lambda: md.BoundedCount(20, PURE)), items(1)),
    "choice": Release("choice-rule", solved(lambda: md.PrivateChoice(8, PURE)), votes),
    "optimal choice": Release("choice-table", solved(lambda: md.PrivateChoice(2, PURE, largest=9)), votes_of_two),
    "quantile": Release("quantile-rule", solved(lambda: md.PrivateQuantile(0.5, (0.0, 100.0, 1.0), PURE, "replace")), numbers),
    "clustered response": Release("clustered-response", lambda: ClusteredResponse(CLUSTERS, EPSILON), items(7)),
    "Hadamard response": Release("hadamard-response", lambda: HadamardResponse(5, EPSILON), items(4)),
    "items of users": Release(
        "itemwise-release",
        lambda: md.ItemwiseRelease(LINE, item_alpha=EPSILON / 3, items=3, users=2, accounting="composition"),
        datasets(2, 3, 5),
    ),
    "sampled items of users": Release(
        "reduced-release",
        lambda: md.user_level.ReducedRelease(
            md.ItemwiseRelease(LINE, item_alpha=EPSILON / 3, items=3, users=2, accounting="composition"),
            radius=0.1,
        ),
        datasets(2, 3, 5),
    ),
    "histogram of users": Release("tree-histogram", solved(lambda: md.UserHistogram(LINE, md.EMDPrivacy(EPSILON), 3, 2, "tree")), datasets(2, 3, 5)),
    "linear query": Release("linear-release", lambda: md.LinearRelease(LinearQuery.average(LINE), alpha=EPSILON), histograms()),
    "linear query, histogram": Release("linear-release", lambda: md.LinearRelease(LinearQuery.histogram(LINE), alpha=EPSILON), histograms()),
    "linear query, Gaussian": Release(
        "linear-release",
        lambda: md.LinearRelease(LinearQuery.histogram(LINE), alpha=EPSILON, gaussian=True, delta=DELTA),
        histograms(),
        delta=DELTA,
    ),
    "linear query, several users": Release("linear-release", lambda: md.LinearRelease(LinearQuery.histogram(LINE), alpha=EPSILON, users=2), pooled()),
    "linear query, K-norm 2": Release("linear-release", lambda: md.LinearRelease(LinearQuery.histogram(LINE), alpha=EPSILON, norm=2), histograms()),
    "linear query, K-norm inf": Release(
        "linear-release",
        lambda: md.LinearRelease(LinearQuery.histogram(LINE), alpha=EPSILON, norm=math.inf),
        histograms(),
    ),
    "declared table": Release("table-mechanism", solved(declared), items(7)),
    "Laplace histogram": Release("laplace-histogram", lambda: LaplaceHistogram(LINE, EPSILON, users=1), histograms()),
    "principal components": Release("PrivatePCA", estimator(PrivatePCA, bounds=1.0), records(2), fitted(), DELTA),
    "bounded regression": Release(
        "PrivateLinearRegression",
        lambda: PrivateLinearRegression(privacy=APPROXIMATE, bounds=(-1, 1), target_bounds=(-1, 1)),
        records(2),
        fitted(),
        DELTA,
    ),
    "bounded classification": Release(
        "PrivateLogisticRegression",
        lambda: PrivateLogisticRegression(privacy=APPROXIMATE, bounds=(-1, 1), classes=[-1, 1], steps=2),
        records(2),
        fitted(sides),
        DELTA,
    ),
    "regression of counts": Release(
        "PrivateGeneralizedLinearRegression",
        lambda: PrivateGeneralizedLinearRegression(
            loss="poisson", privacy=APPROXIMATE, bounds=(-1, 1), target_bounds=(0, 9), steps=2
        ),
        records(2),
        fitted(),
        DELTA,
    ),
}  # fmt: skip
"""By name."""
WITHOUT = {
    "result": "hands on to its mechanism's",
    "priv-unit": "refuses to release",
    "frequency-estimate": "its `fit` reads reports that are private already",
    "user-histogram": "its `fit` hands on to the mechanisms'",
}
"""Kinds with a `release` or a `fit` that are not timed, and why."""

"""A cheap instance of every design, and of every kind of object that result files hold."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import cvxpy as cp
import numpy as np
from scipy import stats

import mechdesign as md
from mechdesign.evidence.serialize import FORMAT, VERSION, dumps
from mechdesign.noise.calibration import JointCalibration

UNIFORM = stats.uniform(-1, 2)
BINS = [-3.0, -0.5, 0.5, 3.0]
PURE = md.PureDP(1.0)


def table() -> md.Problem:
    """A table with a constraint of one's own."""
    P = md.Table([-1, -0.5, 0, 0.5, 1], BINS)
    rows = [P.private(PURE), P.unbiased(), md.named("cap", P[:, 1] <= 0.2)]
    return md.Problem(md.Minimize(P.expected("absolute")), rows)


def noise() -> md.Problem:
    """Noise on the whole numbers with a constraint of one's own."""
    p = md.LatticeNoise(1, 8, integer=True, sensitivity=2, tails=1.0)
    rows = [p.private(PURE), md.named("rarely right", p[8] <= 0.3)]
    return md.Problem(md.Minimize(p.expected("squared")), rows)


def covariance() -> md.Problem:
    """Two numbers that change together, one of them with a cap on its variance."""
    S = md.Covariance([[1.0, 0.0], [1.0, 1.0]])
    return md.Problem(
        md.Minimize(S.total()), [S.private(md.ZeroConcentratedDP(0.5)), md.named("first", S[0, 0] <= 1.4)]
    )


def scales() -> md.Problem:
    """Scales of two requirements and of own rows: equal ones, a cap, a ratio."""
    s = md.Scales([1.0, 2.0, 0.5])
    few = md.Sensitivity(each=[1.0, 2.0, 1.0], l0=2)
    return md.Problem(
        md.Minimize(s.expected(1, [1.0, 2.0, 0.5])),
        [
            s.private(md.ZeroConcentratedDP(0.3)),
            md.named("few", s.private(md.ApproximateDP(2.0, 1e-3), few)),
            md.named("same", s[0] == s[1]),
            md.named("cap", s[2] <= 2.5),
            md.named("ratio", s[1] <= 1.5 * s[2]),
        ],
    )


def selection() -> md.Problem:
    """OPTM's model with constraints of one's own, one of them piecewise linear."""
    problem = md.OPTM(BINS, PURE, UNIFORM, box=md.Grid(level=[0.7, 0.8, 0.82], width=[0.01])).problem()
    Q = problem.unknown
    return problem.subject_to(
        md.named("cap", Q[:, 1] <= 0.2), md.named("near", cp.abs(Q[2, 1] - Q[2, 2]) <= 0.1)
    )


MADE: dict[str, Callable[[], Any]] = {
    "optm": lambda: md.OPTM(BINS, PURE, UNIFORM),
    "rqm": lambda: md.RQM(4, md.PureDP(1.5), UNIFORM, grid=md.Grid(delta=[1.6], q=[0.4, 0.5])),
    "erm": lambda: md.ERM(4, md.PureDP(2.0), UNIFORM, grid=md.Grid(delta=[1.6], inner=[0.5], gamma=[0.2])),
    "mvu": lambda: md.MVU(m=4, privacy=PURE, input_range=(-1, 1), bins=[-2.42, -1.69, 1.69, 2.42]),
    "optm-search": lambda: md.OPTMSearch(
        PURE,
        UNIFORM,
        bins=md.Grid(delta=[1.9, 2.0], inner=[0.4, 0.5]),
        boxes=md.Grid(level=[0.66, 0.67], width=[0.01]),
    ),
    "optimal-quantizer": lambda: md.OptimalQuantizer(BINS, PURE, UNIFORM),
    "bin-search": lambda: md.OptimalQuantizer(md.BinSearch(4, 4.0, starts=1), PURE, UNIFORM),
    "alphabet": lambda: md.OptimalQuantizer(md.Alphabet(3.0, 0.5), PURE, UNIFORM),
    "metric-quantizer": lambda: md.MetricQuantizer(BINS, md.MetricDP(2.0), UNIFORM),
    "biased-selection": lambda: md.BiasedSelection(4, PURE, UNIFORM, max_bias=np.inf, grid=md.Grid(delta=[0.5, 1.0], q=[0.3, 0.6], beta=[0.1, 0.5])),
    "table-problem": table,
    "scales-problem": scales,
    "covariance-problem": covariance,
    "lattice-problem": noise,
    "selection-problem": selection,
    "noise-allocation": lambda: md.NoiseAllocation(noise="laplace", sensitivities=[1.0, 2.0], privacy=PURE),
    "correlated-gaussian": lambda: md.CorrelatedGaussian(changes=np.eye(2), privacy=md.ApproximateDP(0.5, 1e-6)),
    "counts-gaussian": lambda: md.CountsGaussian(4, 2, md.ApproximateDP(0.5, 1e-6)),
    "matrix-mechanism": lambda: md.MatrixMechanism(md.Workload.prefix_sums(3), md.ApproximateDP(0.5, 1e-6)),
    "matrix-epochs": lambda: md.MatrixMechanism(
        md.Workload.prefix_sums(4),
        md.ApproximateDP(0.5, 1e-6),
        participation=md.noise.Participation(2, every=2),
    ),
    "buffered-toeplitz": lambda: md.MatrixMechanism(md.Workload.prefix_sums(40), md.ApproximateDP(0.5, 1e-6), loss="largest", buffers=2),
    "mixed-allocation": lambda: md.NoiseAllocation("mixed", [1.0, 0.1], md.ApproximateDP(2.0, 1e-3)),
    "family-allocation": lambda: md.NoiseAllocation("staircase", [1.0, 0.0, 1.0], PURE),
    "knorm": lambda: md.noise.KNorm(4, PURE),
    "plan": lambda: md.Plan(
        {
            "visits": md.Histogram(3),
            "people": md.Count(),
            "age": md.Mean(0, 100, n=50),
            "spent": md.Sum([1.0, 2.0], values=[0.5, 1.5, 2.5], n=40),
            "totals": md.Workload.prefix_sums(3),
        },
        PURE,
        rounds=2,
    ),
    "calibration": lambda: md.noise.Calibration("laplace", privacy=md.ApproximateDP(0.5, 1e-6), sensitivity=1.0),
    "joint-calibration": lambda: JointCalibration(
        (
            md.AdditiveNoise(stats.norm(), 1.0, rounds=2, sampling_rate=0.1),
            md.AdditiveNoise(stats.laplace(scale=3.0), 1.0),
        ),
        md.ApproximateDP(1.0, 0.05),
    ),
    "optimal-noise": lambda: md.OptimalNoise(privacy=md.ApproximateDP(1.0, 0.2)),
    "optimal-integer-noise": lambda: md.OptimalNoise(md.ApproximateDP(1.0, 0.1), loss="squared", integer=True),
    "optimal-noise-many": lambda: md.OptimalNoise(md.PureDP(2.0), dimension=2),
    "vectors": lambda: md.VectorQuantizer(20, md.PureDP(2.0), bits=3),
    "vectors-box": lambda: md.VectorQuantizer(30, md.PureDP(2.0), bits=1, inputs="box"),
    "vectors-signs": lambda: md.VectorQuantizer(30, md.PureDP(3.0), bits=4, inputs="box"),
    "vectors-directions": lambda: md.VectorQuantizer(5, md.PureDP(3.0), bits=4, inputs="sphere"),
    "bounded-count": lambda: md.BoundedCount(4, md.ApproximateDP(1.0, 0.05), "squared"),
    "private-choice": lambda: md.PrivateChoice(["a", "b", "c"], md.ApproximateDP(1.0, 1e-6)),
    "private-choice-optimum": lambda: md.PrivateChoice(2, PURE, "approvals", largest=3),
    "private-quantile": lambda: md.PrivateQuantile(0.25, [0, 1, 5, 2], md.ZeroConcentratedDP(0.1)),
    "private-quantile-grid": lambda: md.PrivateQuantile(0.5, (0.0, 9.0, 0.5), PURE),
    "metric-channel": lambda: md.MetricChannel(md.MetricSpace.grid(2, 3, names=list("abcdef")), alpha=0.7),
    "local-workload": lambda: md.LocalWorkload(md.Workload.prefix_sums(3), PURE),
    "user-histogram": lambda: md.UserHistogram(md.MetricSpace.line([0.0, 1.0, 3.0]), md.EMDPrivacy(2.0), 3, 5),
    "user-itemwise": lambda: md.UserHistogram(md.MetricSpace.clustered(2, 2, within=0.1), md.EMDPrivacy(9.0, 1e-6), 3, 50, "itemwise"),
    "user-linear": lambda: md.UserHistogram(md.MetricSpace.grid(2, 2), md.EMDPrivacy(2.0), 3, 5, "linear"),
    "local-worst": lambda: md.LocalWorkload([[0.0, 1.0, 2.0]], PURE, data="worst"),
    "local-histogram": lambda: md.LocalWorkload(md.Workload.identity(30), PURE),
    "local-relaxed": lambda: md.LocalWorkload(md.Workload.ranges(17), PURE),
}  # fmt: skip
QUICK: dict[str, dict[str, Any]] = {
    "rqm": {"zoom": 0},
    "erm": {"zoom": 0},
    "optimal-quantizer": {"gap": 1e-4},
    "bin-search": {"gap": 1e-2},
    "alphabet": {"gap": 1e-2},
    "metric-quantizer": {"gap": 0.05},
    "optimal-noise": {"gap": 0.05},
    "optimal-noise-many": {"gap": 0.05},
    "local-relaxed": {"gap": 0.2},
}
"""What `solve` is given to be quick."""
DESIGNS = {name: (made, QUICK.get(name, {})) for name, made in MADE.items()}
"""The design of a name, and what its `solve` is given."""


@functools.cache
def solved(name: str) -> md.Result:
    """The result of a cheap design, computed once a process."""
    design, options = DESIGNS[name]
    return design().solve(**options)


def objects() -> Iterator[Any]:
    """Objects of the kinds that no result holds."""
    n, u, a, c = md.noise, md.user_level, md.accounting, md.channels
    space = md.MetricSpace.clustered(2, 2, within=0.1)
    yield solved("knorm").certificate
    yield a.amplification(1.0, moved=0.1, total=1000, delta=1e-6)
    yield a.delta_interval(a.NoiseTerm(stats.laplace(scale=20.0), 1.0, 20), 0.8)
    yield [md.ZeroConcentratedDP(0.1), md.MetricDP(1.0), md.PureDP(1.0), md.ApproximateDP(1.0, 1e-6)]
    yield [md.GaussianDP(1.0), md.MembershipAdvantage(0.1), md.TradeOff([(0, 0.1), (1, 1e-6)])]
    yield [u.ItemPrivacy(0.5), md.EMDPrivacy(2.0, 1e-6), u.DiscreteEMDPrivacy(2.0, 0.1, 1e-6)]
    yield [
        c.ClusteredResponse(space, alpha=5.0),
        c.HadamardResponse(5, 1.0),
        c.planar_laplace(md.MetricSpace.grid(2, 2), 0.7),
    ]
    estimate = md.FrequencyEstimate(c.ClusteredResponse(space, alpha=5.0))
    histogram = u.LaplaceHistogram(space, epsilon=1.0, users=100)
    yield [estimate, histogram, estimate.fit([0, 1, 2, 3, 3]), histogram.sample(np.full(4, 0.25), rng=0)]
    yield md.LinearRelease(u.LinearQuery.average(md.MetricSpace.line([0.0, 1.0, 5.0])), alpha=5.0, users=100)
    item = md.ItemwiseRelease(space, alpha=10.0, delta=1e-7, items=50, users=3)
    yield [item, u.SamplingReduction(5.0, 0.1, samples=200, failure=1e-8)]
    yield u.ReducedRelease(item, radius=0.1, failure=1e-7)
    coordinate = md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1)).certified()
    yield md.CoordinateQuantizer(coordinate, dimension=10)
    yield md.Quantizer.rqm([-2, -1, 1, 2], 0.5, (-1, 1)).certified()
    yield [
        md.AdditiveNoise(stats.laplace(scale=2.0), 1.0),
        n.KNormNoise(3, 0.5, norm=2),
        n.KNormNoise(3, 0.5, math.inf, 1.0, 0.375, 2.0, widths=(1.0, 0.5, 2.0)),
        n.KNormNoise(3, 0.5, math.inf, 1.0, signed=False),
    ]
    yield [
        n.discrete_gaussian(3.0),
        n.flipped_huber(alpha=1.0, gamma=2.0),
        n.truncated_laplace(12.0, scale=1 / 0.3),
    ]
    yield [n.osgt(0.5, 1.0), n.staircase_law(1.0, loss="squared"), n.answering_staircase(5.0, 0.1, 0.2)]
    yield [
        md.Prior.of(p)
        for p in (UNIFORM, [0.1, 0.2], md.clipped(stats.norm(), -1, 1), md.truncated(stats.norm(), -1, 1))
    ]
    yield [md.BinSearch(4, 4.0), md.Alphabet(3.0, 0.5)]
    sampled = md.OptimalNoise(PURE, loss=abs).solve(cells=2)
    yield [
        sampled.certificate,
        md.OptimalNoise(md.PureDP(2.0), loss=abs, dimension=2).solve(gap=0.5).certificate,
    ]
    query = md.NumericQuery(dimension=3, sensitivity=md.Sensitivity(linf=1, l0=2, each=[1.0, 2.0, 0.0]))
    yield md.compare(query, PURE, mechanisms=["laplace", "gaussian"])
    yield [md.HistogramOfUsers(space, items=3, users=5), md.LocalReport(bits=2), md.MetricReport(space)]
    yield md.compare(md.ChoiceQuestion(2, largest=1), PURE)
    yield md.Plan({"n": md.Count(), "best": md.PrivateChoice(2, md.PureDP(0.5))}, PURE).solve()
    yield [md.Accuracy(1.0, 1.0, 2.0), md.CategoryReport(categories=5, people=10)]
    yield md.OPTM(BINS, PURE, stats.beta(2, 3, -1, 2)).solve().certificate
    yield md.MetricQuantizer(BINS, md.MetricDP(2.0), UNIFORM, inputs=[-1, 0.5, 1]).solve().certificate
    table = md.vectors.IntegerTable.of(md.Quantizer.rqm([-2, -1, 1, 2], 0.5, (-1, 1)))
    yield [md.PrivUnit(5, PURE), table]
    yield md.sweep(md.OptimalQuantizer(BINS, PURE, UNIFORM), epsilon=[1.0])


@functools.cache
def documents() -> dict[str, str]:
    """The text of a result file for every kind (and law), cut out of larger ones."""
    found: dict[str, str] = {}

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            key = node.get("$kind") or ("law:" + node["$law"] if "$law" in node else None)
            if key:
                found.setdefault(key, sealed(node))
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    for value in [*map(solved, DESIGNS), *objects()]:
        walk(json.loads(dumps(value))["payload"])
    return found


def sealed(payload: Any) -> str:
    """The text of a file with this payload and its own checksum, as anyone who edits a file can write it."""
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    document = {"format": FORMAT, "version": VERSION, "sha256": digest, "payload": payload}
    return json.dumps(document, ensure_ascii=False)  # not indented, which the fast encoder does not do

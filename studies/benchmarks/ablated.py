"""The designs and strategies of reports, for `studies.benchmarks.ablations`, and the list of all wings."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

import mechdesign as md
from mechdesign.choose.candidates import solved
from mechdesign.quantizers.optm.design import BoxSearch
from mechdesign.solvers import Deadline
from studies.benchmarks import ablated_noise as noise
from studies.benchmarks.ablations import (
    DELTAS,
    EPSILONS,
    LOSSES,
    OUTPUTS,
    Answered,
    Make,
    Strategy,
    Wing,
    constant,
    drawn,
    fixed,
)

# -- quantizers --------------------------------------------------------------------------------------------------

QUANTIZER = "quantizers.optimal."
PRIORS = ("uniform", "truncated normal", "beta", "30 samples", "1000 samples")


def prior_of(name: str) -> Any:
    match name:
        case "uniform":
            return stats.uniform(-1, 2)
        case "truncated normal":
            return md.truncated(stats.norm(0.2, 0.5), -1, 1)
        case "beta":
            return stats.beta(2, 5, -1, 2)
    draws = np.random.default_rng(0).normal(0.1, 0.4, int(name.split()[0]))
    return np.clip(draws, -1, 1)


def even_outputs(m: int, epsilon: float) -> Any:
    reach = 1.5 * (math.exp(epsilon) + 1) / math.expm1(epsilon)
    return np.linspace(-reach, reach, m)


def optimal_quantizer(count: int) -> dict[str, Make]:
    def make(epsilon: float, m: int, prior: str, loss: str, objective: str) -> Make | None:
        if objective == "worst" and prior != "uniform":
            return None  # the prior plays no part
        bins = even_outputs(m, epsilon)
        return lambda: md.OptimalQuantizer(
            bins, md.PureDP(epsilon), prior_of(prior), loss, objective, input_range=(-1.0, 1.0)
        )

    axes = {"ε": EPSILONS, "m": OUTPUTS, "prior": PRIORS, "loss": LOSSES, "objective": ("mean", "worst")}
    return drawn(count, axes, make)


def searched_quantizer(count: int) -> dict[str, Make]:
    def make(epsilon: float, m: int, prior: str, loss: str) -> Make:
        reach = 1.5 * (math.exp(epsilon) + 1) / math.expm1(epsilon)
        search = md.quantizers.BinSearch(m, max_abs=reach)
        return lambda: md.OptimalQuantizer(
            search, md.PureDP(epsilon), prior_of(prior), loss, input_range=(-1.0, 1.0)
        )

    return drawn(count, {"ε": EPSILONS, "m": (2, 4, 8), "prior": PRIORS, "loss": LOSSES}, make)


def by_planes(original: Any) -> Any:
    """Cutting planes for every prior."""
    from mechdesign.quantizers.optimal import methods

    exchange = [methods.METHODS["exchange"]]
    planes = [methods.METHODS["cutting-planes"]]
    return lambda problem, *_: exchange if problem.objective == "worst" else planes


def first_alone(original: Any) -> Any:
    return lambda *given: original(*given)[:1]


METHODS = QUANTIZER + "methods:_methods"
QUANTIZERS = (
    Strategy("Newton", {METHODS: by_planes}, {QUANTIZER + "newton:newton": lambda _: True}),
    Strategy(
        "a second method where a gap is left", {METHODS: first_alone}, {METHODS: lambda tried: len(tried) > 1}
    ),
)


OPTM = "quantizers.optm."


def optm(count: int) -> dict[str, Make]:
    def make(epsilon: float, m: int, prior: str, loss: str) -> Make:
        bins = even_outputs(m, epsilon)
        return lambda: md.OPTM(bins, md.PureDP(epsilon), prior_of(prior), loss, input_range=(-1.0, 1.0))

    return drawn(count, {"ε": EPSILONS, "m": (4, 8, 16, 64), "prior": PRIORS, "loss": LOSSES}, make)


def from_an_even_law(original: Any) -> Any:
    """A start that does not know the optimum over all mechanisms."""
    return lambda self, rows: self.normalised(np.ones(self.size))


def box_by_box(original: Any) -> Any:
    """Boxes solved one after the other by their own model."""

    def values(self: Any, program: Any, epsilon: float, boxes: Any) -> Any:
        search = BoxSearch(program, None, None, Deadline(None), {})
        points = [search.at(*box, epsilon) for box in zip(*boxes)]
        found = np.array([np.full(boxes[0].shape[1], np.nan) if p is None else p.q for p in points])
        return np.array([np.nan if p is None else p.solution.value for p in points]), found

    return values


OPTMS = (
    Strategy(
        "the quantizer's optimum as start", {OPTM + "descent:SelectionBlocks.imitate": from_an_even_law}
    ),
    Strategy(
        "grid of boxes up to four bins",
        {OPTM + "design:OPTM._on_boxes": constant(False)},
        {OPTM + "design:BoxSearch.best": lambda _: True},
    ),
    Strategy("one sweep of all boxes", {OPTM + "design:Sweep.__call__": box_by_box}),
    Strategy(
        "outputs hardly ever drawn dropped from 1e-9, 1e-6 and 1e-4 on (else 1e-6)",
        {OPTM + "descent:_NOISE": constant((1e-6,))},
        {OPTM + "descent:_without_noise": lambda _: True},
    ),
)

MVU = "quantizers.mvu:"


def alphabets(count: int) -> dict[str, Make]:
    def make(epsilon: float, m: int, bits: int) -> Make:
        return lambda: md.MVU(m, md.PureDP(epsilon), (-1.0, 1.0), bits)

    return drawn(count, {"ε": EPSILONS, "m": (2, 3, 4), "bits": (1, 2, 4)}, make)


MVUS = (
    Strategy(
        "simplex method up to four outputs (else BinSearch)",
        {MVU + "FEW": constant(1)},
        {MVU + "AlphabetSearch.simplex": lambda _: True},
    ),
)

# -- metric quantizers ---------------------------------------------------------------------------------------------

METRIC = "quantizers.metric."


def metric_quantizers(count: int) -> dict[str, Make]:
    def make(kind: str, epsilon: float, m: int, inputs: int, prior: str, objective: str) -> Make:
        even = 1.5 * (math.exp(epsilon) + 1) / math.expm1(epsilon)
        bins = np.linspace(-1, 1, m) * (even if kind != "metric" else 1 + 2 / epsilon)
        privacy: Any = {
            "metric": md.MetricDP(epsilon), "grid metric": md.MetricDP(epsilon), "pure": md.PureDP(epsilon),
        }.get(kind) or md.ApproximateDP(epsilon, 1e-5)  # fmt: skip
        grid = None if kind == "metric" else np.linspace(-1, 1, inputs)
        bins = bins if kind != "grid metric" else np.linspace(-1, 1, m) * (1 + 2 / epsilon)
        return lambda: md.MetricQuantizer(
            bins, privacy, prior_of(prior), objective=objective, inputs=grid, input_range=(-1.0, 1.0)
        )

    axes = {
        "notion": ("metric", "grid metric", "pure", "approximate"), "ε": EPSILONS, "m": (4, 8, 16), "inputs": (9, 33, 100),
        "prior": PRIORS[:3], "objective": ("mean", "worst"),
    }  # fmt: skip
    return drawn(count, axes, make)


def all_at_once(original: Any) -> Any:
    """Every pair of inputs from the first program on."""
    return lambda self, count: self.pairs(count)


METRICS = (
    Strategy(
        "pairs of inputs that join as they are broken",
        {METRIC + "notion:PairwisePrivacy.first_pairs": all_at_once},
    ),
    Strategy(
        "worst inputs between those of a grid",
        {METRIC + "design:_worse_places": fixed(())},
        {METRIC + "design:_worse_places": lambda places: len(places) > 0},
    ),
)

# -- channels ------------------------------------------------------------------------------------------------------

CHANNEL = "channels."


def channels(count: int) -> dict[str, Make]:
    def make(space: str, alpha: float, prior: str) -> Make:
        size = int("".join(c for c in space if c.isdigit()))
        side = round(math.sqrt(size))
        rng = np.random.default_rng(size)
        if space.startswith("grid"):
            places = md.MetricSpace.grid(side, side)
        elif space.startswith("line"):
            places = md.MetricSpace.line(np.sort(rng.uniform(0, side, size)))
        else:
            places = md.MetricSpace.euclidean(rng.uniform(0, side, (size, 2)))
        weights = None if prior == "uniform" else rng.dirichlet(np.ones(places.size))
        return lambda: md.MetricChannel(places, alpha, weights)

    spaces = (
        "grid 9",
        "grid 25",
        "grid 49",
        "grid 100",
        "line 30",
        "line 100",
        "points 12",
        "points 25",
        "points 40",
        "points 60",
    )
    return drawn(count, {"space": spaces, "α": (0.3, 0.7, 2.0), "prior": ("uniform", "skew")}, make)


def every_pair(original: Any) -> Any:
    return property(lambda self: np.argwhere(np.triu(np.ones((self.size, self.size), dtype=bool), 1)))


CHANNELS = (
    Strategy(
        "symmetry",
        {CHANNEL + "program:automorphisms": fixed([])},
        {CHANNEL + "program:automorphisms": bool},
    ),
    Strategy(
        "rows generated, spanner first",
        {CHANNEL + "program:_MANY": constant(10**9)},
        {CHANNEL + "program:PrivacyRows.thin": lambda _: True},
    ),
    Strategy(
        "essential pairs (else all)",
        {"spaces.space:MetricSpace.essential_pairs": every_pair},
        {CHANNEL + "program:privacy_rows": lambda _: True},
    ),
    Strategy(
        "costs in units near 1",
        {CHANNEL + "program:ChannelProgram.unit": constant(1.0)},
        {CHANNEL + "program:ChannelProgram.unit": lambda unit: unit != 1.0},
    ),
    Strategy(
        "interior point by reports (else the simplex method alone)",
        {CHANNEL + "design:_SIMPLEX": constant(10**12)},
        {CHANNEL + "interior:ReportProgram.solve": lambda _: True},
    ),
)

# -- vectors -------------------------------------------------------------------------------------------------------

VECTORS = "vectors."


def vectors(count: int) -> dict[str, Make]:
    def make(d: int, epsilon: float, bits: int | None, inputs: str) -> Make:
        return lambda: md.VectorQuantizer(d, md.PureDP(epsilon), bits=bits, inputs=inputs)

    axes = {
        "d": (5, 20, 200, 1000),
        "ε": EPSILONS,
        "bits": (1, 4, 8, None),
        "inputs": ("ball", "sphere", "box"),
    }
    return drawn(count, axes, make)


def nothing(original: Any) -> Any:
    return property(lambda self: iter(()))


def without_coordinates(original: Any) -> Any:
    """The other candidates; the sampled coordinates alone where there is none."""

    def candidates(self: Any) -> Any:
        others = [m for m in original(self) if not isinstance(m, md.SampledCoordinates)]
        return iter(others) if others else original(self)

    return candidates


def chosen(kind: str) -> dict[str, Callable[[Any], bool]]:
    """Designs whose answer is of that kind."""
    return {"problem.spine:Design.solve": lambda result: type(result.mechanism).__name__ == kind}


VECTOR = (
    Strategy(
        "rotated simplices", {VECTORS + "design:VectorQuantizer.spheres": nothing}, chosen("SphereQuantizer")
    ),
    Strategy(
        "random directions",
        {VECTORS + "design:VectorQuantizer.directions": nothing},
        chosen("RandomDirections"),
    ),
    Strategy("sampled signs", {VECTORS + "design:VectorQuantizer.signs": nothing}, chosen("SampledSigns")),
    Strategy(
        "sampled coordinates",
        {VECTORS + "design:VectorQuantizer.candidates": without_coordinates},
        chosen("SampledCoordinates"),
    ),
    Strategy(
        "bound of a box's corners (else the ball's)",
        {VECTORS + "design:box_error": fixed(0.0)},
        {VECTORS + "design:box_error": lambda _: True},
    ),
    Strategy(
        "cubic moments in a box's bound (else powers alone)",
        {VECTORS + "cap:cubic_excess": fixed(1e6)},
        {VECTORS + "cap:cubic_excess": lambda _: True},
    ),
)


# -- earth mover's distance ----------------------------------------------------------------------------------------


def histograms(count: int) -> dict[str, Make]:
    def make(space: str, size: int, asked: str) -> Make | None:
        rng = np.random.default_rng(size)
        if space == "line":
            places = md.MetricSpace.line(rng.uniform(0, 9, size))
        elif space == "clustered":
            places = md.MetricSpace.clustered(size // 3, 3, within=0.1)
        elif space == "tree":
            places = md.MetricSpace.tree([-1, *(rng.integers(0, i) for i in range(1, size))], np.ones(size))
        else:
            places = md.MetricSpace.euclidean(rng.uniform(0, 9, (size, 2)))
        if asked == "histograms":
            p, q = rng.dirichlet(np.ones(places.size), (2, 2000))
            return lambda: lambda: md.spaces.emd(p, q, places)
        p, q = rng.integers(0, places.size, (2, 2000, 30))
        return lambda: lambda: md.spaces.emd_multisets(p, q, places)

    axes = {
        "space": ("line", "clustered", "tree", "points"),
        "n": (9, 30, 99),
        "of": ("histograms", "multisets"),
    }
    return drawn(count, axes, make)


def by_transport(original: Any) -> Any:
    from mechdesign.spaces.earth_mover import _transport

    return _transport


def of_histograms(original: Any) -> Any:
    return lambda xs, ys, space: md.spaces.emd(space.histogram(xs), space.histogram(ys), space)


EMD = "spaces.earth_mover:"
DISTANCES = (
    Strategy("closed form on a line (else transport)", {EMD + "_line": by_transport}),
    Strategy("closed form on clusters (else transport)", {EMD + "_clusters": by_transport}),
    Strategy("closed form on a tree (else transport)", {EMD + "_tree": by_transport}),
    Strategy(
        "assignment of multisets (else transport of histograms)",
        {"spaces.earth_mover:emd_multisets": of_histograms},
        {EMD + "linear_sum_assignment": lambda _: True},
    ),
)

# -- user level ----------------------------------------------------------------------------------------------------


def itemwise(count: int) -> dict[str, Make]:
    def make(space: str, alpha: float, delta: float, items: int, users: int) -> Make:
        places = {
            "grid 25": md.MetricSpace.grid(5, 5),
            "grid 100": md.MetricSpace.grid(10, 10),
            "line 30": md.MetricSpace.line(np.sort(np.random.default_rng(0).uniform(0, 5, 30))),
            "clustered 40": md.MetricSpace.clustered(8, 5, within=0.1),
        }[space]
        return lambda: lambda: md.ItemwiseRelease(places, alpha, delta, items, users)

    axes = {
        "space": ("grid 25", "grid 100", "line 30", "clustered 40"), "α": (0.3, 1.0, 4.0, 20.0), "δ": DELTAS[2:],
        "items": (10, 100), "users": (100, 10_000),
    }  # fmt: skip
    return drawn(count, axes, make)


ITEMWISE = (
    Strategy(
        "larger α₀ by the channel's own loss",
        {"user_level.itemwise:_TRIED": constant(0)},
        {"user_level.itemwise:ItemwiseRelease._enlarge": lambda _: True},
    ),
    Strategy(
        "exponential mechanism at its largest slope (else α/2)",
        {"channels.channel:exponential_rate": lambda original: lambda distances, alpha: 0.0},
        {"channels.channel:exponential_rate": lambda _: True},
    ),
)


def released(make: Any) -> Answered:
    """The mean distance between an item and its report, items alike."""
    made = make()
    return Answered(float((made.channel.dense * made.space.distances).sum(axis=1).mean()))


# -- comparisons ---------------------------------------------------------------------------------------------------


def candidates(count: int) -> dict[str, Make]:
    def make(mechanism: str, bits: int, epsilon: float, prior: str) -> Make:
        question = md.LocalReport(bits, prior=prior_of(prior))
        return lambda: (mechanism, question, md.PureDP(epsilon))

    axes = {
        "mechanism": ("RQM", "ERM", "optimal, even outputs"), "bits": (2, 3, 4), "ε": EPSILONS,
        "prior": ("uniform", "truncated normal", "beta"),
    }  # fmt: skip
    return drawn(count, axes, make)


def answered(asked: tuple[str, Any, Any]) -> Answered:
    """The error of one of `compare`'s mechanisms."""
    mechanism, question, privacy = asked
    return Answered(question.error(solved(mechanism, question, privacy)))


COMPARE = "choose.candidates:"
COMPARED = (
    Strategy(
        "four outputs of RQM and ERM too", {COMPARE + "_sizes": lambda original: lambda outputs: [outputs]}
    ),
    Strategy(
        "even outputs at four reaches (else 1.25 times the least)",
        {COMPARE + "_even": lambda original: lambda q, privacy: original(q, privacy)[2:3]},
    ),
)

WINGS: dict[str, Wing] = {
    "optimal-noise": Wing(noise.optimal_noise, noise.OPTIMAL_NOISE),
    "optimal-quantizer": Wing(optimal_quantizer, QUANTIZERS),
    "optm": Wing(optm, OPTMS),
    "mvu": Wing(alphabets, MVUS),
    "allocation": Wing(noise.allocation, noise.ALLOCATIONS),
    "mixed-types": Wing(noise.mixed_types, noise.MIXED),
    "metric-channel": Wing(channels, CHANNELS),
    "metric-quantizer": Wing(metric_quantizers, METRICS),
    "correlated": Wing(noise.correlated, noise.CORRELATEDS),
    "matrix": Wing(noise.matrices, noise.MATRICES),
    "optimal-noise-many": Wing(noise.many_coordinates, noise.MANY_COORDINATES),
    "searched-quantizer": Wing(searched_quantizer, QUANTIZERS),
    "large-delta": Wing(noise.large_delta, noise.OPTIMAL_NOISE),
    "vectors": Wing(vectors, VECTOR),
    "earth-mover": Wing(histograms, DISTANCES, lambda call: Answered(float(np.sum(call())))),
    "itemwise-release": Wing(itemwise, ITEMWISE, released),
    "compare": Wing(candidates, COMPARED, answered),
    "calibration": Wing(noise.calibrations, noise.CALIBRATIONS),
    "accounting": Wing(noise.enclosures, noise.ENCLOSURES, ask=lambda enclose: enclose()),
}

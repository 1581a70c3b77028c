"""The designs and strategies of `studies.benchmarks.ablations`, wing by wing."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import stats

import mechdesign as md
from mechdesign.choose.candidates import solved
from mechdesign.errors import SolverError
from mechdesign.quantizers.optm.design import BoxSearch
from mechdesign.solvers import Deadline
from studies.benchmarks.ablations import Strategy, Wing, constant, first_argument, fixed, refusing

__all__ = ["WINGS"]

SEED = 20
EPSILONS = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0)
DELTAS = (0.0, 1e-9, 1e-6, 1e-5)
OUTPUTS = (2, 4, 8, 16, 64, 256)
LOSSES = ("absolute", "squared")

Make = Callable[[], Any]


def drawn(count: int, axes: Mapping[str, Sequence[Any]], make: Callable[..., Make | None]) -> dict[str, Make]:
    """So many points of a product of axes, in an order that is fixed; those of which `make` makes nothing are left out."""
    points = list(itertools.product(*axes.values()))
    random.Random(SEED).shuffle(points)
    found: dict[str, Make] = {}
    for point in points:
        made = make(*point)
        if made is not None:
            found[", ".join(f"{k}={v}" for k, v in zip(axes, point, strict=True))] = made
        if len(found) == count:
            break
    return found


def notion(epsilon: float, delta: float) -> Any:
    return md.ApproximateDP(epsilon, delta) if delta else md.PureDP(epsilon)


def none_found() -> SolverError:
    return SolverError("switched off", solver="none", status="off")


# -- the optimal noise of one coordinate ---------------------------------------------------------------------

OPTIMAL = "noise.optimal."


def optimal_noise(count: int) -> dict[str, Make]:
    def make(epsilon: float, delta: float, loss: str) -> Make:
        return lambda: md.OptimalNoise(notion(epsilon, delta), loss=loss)

    return drawn(count, {"ε": EPSILONS, "δ": DELTAS, "loss": LOSSES}, make)


def no_dual(original: Any) -> Any:
    return lambda self, level: Fraction(0)


OPTIMAL_NOISE = (
    Strategy("dual of the staircase", {OPTIMAL + "staircase:StaircaseMultipliers.bound": no_dual}),
    Strategy("lattice programs", {OPTIMAL + "lattice:Lattice.lower": refusing(none_found)}),
    Strategy(
        "refinement of lattices",
        {OPTIMAL + "lattice:_ATTEMPTS": constant(1)},
        {OPTIMAL + "lattice:Lattice.lower": lambda _: True},
    ),
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

# -- the optimal noise of several coordinates, and of large δ ---------------------------------------------------


def many_coordinates(count: int) -> dict[str, Make]:
    def make(k: int, epsilon: float, delta: float, loss: str) -> Make:
        return lambda: md.OptimalNoise(notion(epsilon, delta), loss=loss, dimension=k)

    return drawn(count, {"K": (5, 20, 200, 1000), "ε": EPSILONS, "δ": DELTAS, "loss": LOSSES}, make)


def found(answer: Any) -> bool:
    return answer is not None


def large_delta(count: int) -> dict[str, Make]:
    def make(epsilon: float, delta: float, loss: str) -> Make:
        return lambda: md.OptimalNoise(notion(epsilon, delta), loss=loss)

    return drawn(count, {"ε": EPSILONS, "δ": (1e-3, 0.01, 0.1, 0.3), "loss": LOSSES}, make)


MANY_COORDINATES = (
    Strategy("bound of fewer coordinates", {OPTIMAL + "several:_promising": fixed(())}),
    Strategy(
        "families but Gaussian, Laplace and staircase",
        {OPTIMAL + "several:_NAMED": constant(("gaussian", "laplace", "staircase"))},
        {OPTIMAL + "several:_calibrated": lambda _: True},
    ),
    *OPTIMAL_NOISE,
)

# -- allocation under several bounds -------------------------------------------------------------------------------

ALLOCATION = "noise.allocation."


def allocation(count: int) -> dict[str, Make]:
    def make(k: int, noise: str, bounds: str, tail: float, epsilon: float) -> Make:
        each = np.exp(tail * np.random.default_rng(k).normal(size=k))
        each /= each.max()
        top = np.sort(each)[::-1][: max(2, k // 4)]
        stated: dict[str, Any] = {}
        if "c" in bounds:
            stated["l0"] = len(top)
        if "1" in bounds:
            stated["l1"] = 0.6 * float(top.sum())
        if "2" in bounds:
            stated["l2"] = 0.8 * float(np.sqrt((top**2).sum()))
        changes = md.Sensitivity(each=each, **stated)
        accounting = "corollary6" if noise == "laplace" else "exact"  # which takes several bounds
        return lambda: md.NoiseAllocation(
            noise, changes, md.ApproximateDP(epsilon, 1e-6), accounting=accounting
        )

    axes = {
        "K": (5, 20, 200, 1000), "noise": ("gaussian", "laplace"), "bounds": ("c1", "c2", "12", "c12", "1"),
        "tail": (0.5, 1.5), "ε": (0.3, 1.0, 4.0),
    }  # fmt: skip
    return drawn(count, axes, make)


def mixed_types(count: int) -> dict[str, Make]:
    def make(k: int, tail: float, epsilon: float, delta: float) -> Make:
        each = np.exp(tail * np.random.default_rng(k).normal(size=k))
        return lambda: md.NoiseAllocation("mixed", each, md.ApproximateDP(epsilon, delta))

    return drawn(count, {"K": (5, 20, 200), "tail": (0.5, 1.5, 3.0), "ε": EPSILONS, "δ": DELTAS[1:]}, make)


def one_change(original: Any) -> Any:
    """The bound of one change alone, the coordinates whole from the largest on."""
    from mechdesign.noise.allocation.several import Among, mixed
    from mechdesign.noise.allocation.several_model import whole_changes

    def largest(asked: Any, guide: Any) -> Any:
        listed = Among(whole_changes(asked, np.argsort(-asked.sizes)[None, :]), np.ones(1))
        return mixed(asked, listed), listed

    return largest


def by_program(original: Any) -> Any:
    """The worst mix by the multipliers of the program, which Clarabel solves."""
    from mechdesign import solvers
    from mechdesign.noise.allocation.several import Among
    from mechdesign.noise.allocation.several_model import Worst, several_model

    def worst(changes: Any, order: float, weight: Any) -> Any:
        noise = "gaussian" if changes.spend == 2 else "laplace"
        stated = md.Sensitivity(each=changes.sizes, l0=changes.l0, l1=changes.l1, l2=changes.l2)
        budget = md.ZeroConcentratedDP(0.5) if changes.spend == 2 else md.PureDP(1.0)
        question = md.NoiseAllocation(noise, stated, budget, loss=order, weights=weight)
        found = solvers.solve(several_model(question), "clarabel", fallback=False)
        keep, rows = changes.sizes > 0, changes.rows()
        unit = float(np.ravel(found.dual["budget"])[0])
        x = np.maximum(np.ravel(found.dual["worst"]) / unit, 1e-14)
        z = np.clip(np.ravel(found.dual["shares"]) / unit, x, 1.0) if rows[-1].exponent == 2 else x
        over = max(1.0, x.max())
        for row in rows:
            used = float(row.entries[keep] @ x**row.exponent) / row.most
            over = max(over, used ** (1 / row.exponent))
        mix, sizes, shares = np.zeros((3, len(keep)))
        mix[keep] = changes.sizes[keep] * (x / over) ** (1 / changes.spend)
        sizes[keep] = changes.sizes[keep] * np.minimum(x / z, 1.0) ** (1 / changes.spend)
        shares[keep] = np.minimum(z, 1.0)
        theta = np.maximum(np.ravel(found.primal["prices"]), 0.0)
        named = {row.name: float(t) / row.most for row, t in zip(rows, theta, strict=True)}
        return Worst(mix, Among(sizes, shares), changes.in_units(named))

    return worst


LISTING = {ALLOCATION + "several_model:_listed": fixed(0)}
ON_LISTING: dict[str, Callable[[Any], bool]] = dict.fromkeys(LISTING, lambda _: True)
ALLOCATIONS = (
    Strategy(
        "water-filling (else the program by Clarabel)", {ALLOCATION + "several_model:worst_mix": by_program}
    ),
    Strategy("one norm filled", {ALLOCATION + "several_model:_offer_held": fixed(None)}),
    Strategy("changes listed", LISTING),
    Strategy(
        "changes listed: first ones drawn by shares",
        {ALLOCATION + "several_model:_drawn": lambda _: lambda shares, rng: np.argsort(-shares)[None, :]},
        ON_LISTING,
    ),
    Strategy("mixes drawn by shares", {ALLOCATION + "several:drawn_from": one_change}),
)
MIXED = (
    Strategy("mixed types (else the better pure one)", {ALLOCATION + "mixed:mixed_scales": fixed(())}),
    Strategy(
        "ratios at most 16 apart",
        {ALLOCATION + "mixed:_SPREAD": constant(math.inf)},
        {ALLOCATION + "mixed:mixed_scales": lambda _: True},
    ),
    Strategy(
        "ratios on 8 levels (else 3)",
        {ALLOCATION + "mixed:_LEVELS": constant(3)},
        {ALLOCATION + "mixed:mixed_scales": lambda _: True},
    ),
    Strategy(
        "between the neighbours of the best",
        {ALLOCATION + "mixed:_between": fixed(set())},
        {ALLOCATION + "mixed:mixed_scales": lambda _: True},
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


@dataclass(frozen=True)
class Answered:
    """What a call that is no design answers."""

    value: float
    gap: float | None = None


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

# -- correlated noise, matrix mechanism, discrete noise ----------------------------------------------------------------

CORRELATED = "noise.correlated."


def correlated(count: int) -> dict[str, Make]:
    def make(k: int, kind: str, epsilon: float, delta: float) -> Make | None:
        privacy = md.ApproximateDP(epsilon, delta)
        rng = np.random.default_rng(k)
        if kind == "prefix":
            return lambda: md.CorrelatedGaussian(np.tril(np.ones((k, k))), privacy)
        if kind == "few change":
            if k > 20:
                return None
            return lambda: md.CorrelatedGaussian.of_sensitivity(md.Sensitivity(linf=1, l0=2), k, privacy)
        return lambda: md.CorrelatedGaussian(rng.normal(size=(2 * k, max(2, k // 2))), privacy)

    axes = {"K": (5, 12, 20), "kind": ("prefix", "few change", "random"), "ε": EPSILONS, "δ": DELTAS[1:]}
    return drawn(count, axes, make)


def by_the_program(original: Any) -> Any:
    return lambda self, clock, solver=None, **options: original(self, clock, "clarabel", **options)


def plain_step(original: Any) -> Any:
    return lambda path: path[-1][0] + path[-1][1]


EXTRAPOLATED = Strategy("extrapolated steps", {CORRELATED + "fixed_point:_extrapolated": plain_step})
CORRELATEDS = (
    Strategy(
        "fixed point (else the semidefinite program)",
        {CORRELATED + "design:CorrelatedGaussian.improve": by_the_program},
    ),
    EXTRAPOLATED,
)

MATRIX = "noise.matrix."


def matrices(count: int) -> dict[str, Make]:
    def make(workload: str, n: int, epsilon: float, error: str) -> Make | None:
        if workload == "marginals":
            if n > 20:
                return None
            made: Any = md.Workload.marginals((2, 3, max(2, n // 4)), order=2)
        else:
            made = (md.Workload.prefix_sums if workload == "prefix" else md.Workload.ranges)(n)
        if error == "largest" and workload == "ranges" and n > 20:
            return None
        return lambda: md.MatrixMechanism(made, md.ApproximateDP(epsilon, 1e-6), loss=error)

    axes = {
        "workload": ("prefix", "ranges", "marginals"),
        "n": (5, 20, 200, 400),
        "ε": (0.3, 1.0, 4.0),
        "error": ("total", "largest"),
    }
    return drawn(count, axes, make)


MATRICES = (
    Strategy("chain", {MATRIX + "solving:_chain": fixed(None)}, {MATRIX + "solving:_chain": found}),
    EXTRAPOLATED,
)

# -- calibration and accounting ------------------------------------------------------------------------------

SEARCH = "noise.calibration.search:"
COMPOSED, SAMPLED = "accounting.composition:", "accounting.sampling:"
LAWS = ("laplace", "logistic", "flipped_huber", "osgt", "gennorm", "truncated_laplace", "staircase")
DISCRETE = ("discrete_laplace", "discrete_gaussian")
MANY = (1, 5, 20, 200, 1000)


def calibrations(count: int) -> dict[str, Make]:
    def make(noise: str, epsilon: float, delta: float, dimension: int, loss: str) -> Make:
        privacy = md.ApproximateDP(epsilon, delta)
        return lambda: md.Calibration(noise, privacy, sensitivity=1, dimension=dimension, loss=loss)

    axes = {"noise": LAWS + DISCRETE, "ε": EPSILONS, "δ": DELTAS[1:], "K": MANY, "loss": LOSSES}
    return drawn(count, axes, make)


def without(**changes: Any) -> Callable[[Any], Any]:
    """Change fields of what a function returns."""
    return lambda original: lambda *given: replace(original(*given), **changes)


def several(requirement: Any) -> bool:
    return bool(requirement.query.dimension * requirement.query.rounds > 1)


def held_to_final(original: Any) -> Any:
    """A search's meter as fine as what the law is held to."""

    def call(self: Any, law: Any) -> float:
        from mechdesign.accounting.interval import upper_delta

        terms = map(self._query.in_rounds, self._query.worst(law).alternatives)
        return min(upper_delta(each, self._epsilon) for each in terms)

    return call


def bracketed(original: Any) -> Any:
    """Two ends and a root between them, without secant steps."""

    def scale(excess: Any, seen: Any, requirement: Any, u: float, slope: float, safe: bool) -> Any:
        from mechdesign.evidence.exact import safe_root
        from mechdesign.noise.calibration.search import _away

        tolerance = requirement.tolerance if safe else max(1e-5, requirement.tolerance)
        low, high = _away(excess, u, -1, "every scale meets"), _away(excess, u, 1, "no scale meets")

        def left(u: float) -> float:
            f = excess(u)
            return 0.0 if abs(f) < tolerance and (f <= 0 or not safe) else f

        return math.exp(safe_root(left, low, high, xtol=1e-7 * tolerance if safe else 1e-9)), slope

    return scale


def no_member(**changes: Any) -> Callable[[Any], Any]:
    """Families with a shape, without one of their members in closed form."""

    def around(original: Any) -> Any:
        def laws(family: Any, *rest: Any) -> Any:
            return original(replace(family, **changes) if family.starts else family, *rest)

        return laws

    return around


SHAPES = {SEARCH + "ShapeSearch.best": lambda found: found[0] != 0}
CALIBRATIONS = (
    Strategy(
        "a closer look at the scale",
        {SEARCH + "_approximate": without(refined=lambda law: math.inf)},
        {SEARCH + "_approximate": several},
    ),
    Strategy("grid of a search, planned once", {SEARCH + "_Planned.__call__": held_to_final}),
    Strategy("secant steps", {SEARCH + "_scale": bracketed}),
    Strategy(
        "Brent's method over the shape",
        {SEARCH + "optimize": constant(SimpleNamespace(minimize_scalar=lambda *_, **__: None))},
        SHAPES,
    ),
    Strategy("the Gaussian member", {SEARCH + "laws_of": no_member(normal=None)}, SHAPES),
)


def enclosures(count: int) -> dict[str, Make]:
    """Noise of about the size that (ε, δ) asks for, on many numbers, in many rounds and in samples."""

    def make(noise: str, epsilon: float, delta: float, dimension: int, rounds: str) -> Make | None:
        times, rate = {"1": (1, 1.0), "20 of a tenth": (20, 0.1), "1000 of a hundredth": (1000, 0.01)}[rounds]
        if rate == 1 and (dimension == 1 or noise == "gaussian"):
            return None  # a closed form
        mu = md.accounting.gaussian_mu(epsilon, delta)
        worth = math.log1p(mu**2 / (rate**2 * times)) if rate < 1 else mu**2

        def ask() -> Answered:
            unit, shapes = UNITS[noise]
            scale = math.sqrt(dimension / worth) / float(unit(*shapes).std())
            term = md.accounting.NoiseTerm(unit(*shapes, scale=scale), 1.0, dimension)
            found = md.accounting.delta_interval(term, epsilon, rounds=times, sampling_rate=rate)
            return Answered(found.upper, found.width)

        return lambda: ask

    axes = {
        "noise": tuple(UNITS),
        "ε": EPSILONS,
        "δ": DELTAS[1:],
        "K": MANY,
        "rounds": ("1", "20 of a tenth", "1000 of a hundredth"),
    }
    return drawn(count, axes, make)


UNITS: dict[str, tuple[Any, tuple[float, ...]]] = {
    "gaussian": (stats.norm, ()),
    "laplace": (stats.laplace, ()),
    "logistic": (stats.logistic, ()),
    "gennorm": (stats.gennorm, (1.5,)),
    "truncated normal": (stats.truncnorm, (-8.0, 8.0)),
    "flipped Huber": (md.noise.flipped_huber, (1.0,)),
}


ENCLOSURES = (
    Strategy(
        "normal coordinates as one",
        {"accounting.interval:_rotated": lambda _: lambda terms: (terms, ())},
        {"accounting.interval:_rotated": lambda found: bool(found[1])},
    ),
    Strategy("a round on fewer points", {SAMPLED + "_thinned": first_argument(0)}),
    Strategy("steps on the heaviest values", {SAMPLED + "_on_atoms": first_argument(1)}),
    Strategy(
        "exact slop next to atoms",
        {"accounting.interval:_near_atoms": fixed(False)},
        {"accounting.interval:_near_atoms": bool},
    ),
    Strategy(
        "transforms summed term by term",
        {COMPOSED + "_SUMMED": constant(0)},
        {COMPOSED + "_frequencies": lambda _: True},
    ),
    Strategy(
        "nothing convolved where all is certain",
        {COMPOSED + "_certain": fixed(False)},
        {COMPOSED + "_certain": bool},
    ),
    Strategy(
        "many roots on one mesh",
        {"accounting.log_concave:_MESH": constant(10**9)},
        {"accounting.log_concave:_roots": lambda found: found.size > 256},
    ),
    Strategy(
        "fine grids thinned for the wanted accuracy",
        {SAMPLED + "_FEW": constant(2**21)},
        {SAMPLED + "sampled_parts": lambda _: True},
    ),
)


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
    "optimal-noise": Wing(optimal_noise, OPTIMAL_NOISE),
    "optimal-quantizer": Wing(optimal_quantizer, QUANTIZERS),
    "optm": Wing(optm, OPTMS),
    "mvu": Wing(alphabets, MVUS),
    "allocation": Wing(allocation, ALLOCATIONS),
    "mixed-types": Wing(mixed_types, MIXED),
    "metric-channel": Wing(channels, CHANNELS),
    "metric-quantizer": Wing(metric_quantizers, METRICS),
    "correlated": Wing(correlated, CORRELATEDS),
    "matrix": Wing(matrices, MATRICES),
    "optimal-noise-many": Wing(many_coordinates, MANY_COORDINATES),
    "searched-quantizer": Wing(searched_quantizer, QUANTIZERS),
    "large-delta": Wing(large_delta, OPTIMAL_NOISE),
    "vectors": Wing(vectors, VECTOR),
    "earth-mover": Wing(histograms, DISTANCES, lambda call: Answered(float(np.sum(call())))),
    "itemwise-release": Wing(itemwise, ITEMWISE, released),
    "compare": Wing(candidates, COMPARED, answered),
    "calibration": Wing(calibrations, CALIBRATIONS),
    "accounting": Wing(enclosures, ENCLOSURES, ask=lambda enclose: enclose()),
}

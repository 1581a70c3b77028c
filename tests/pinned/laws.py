"""ε and δ of a law, and its probabilities, from the definition: by the oracles of the tests, none of the package's accounting.

Each function of `SPENT` returns ε and δ that the law consumes: for a pure notion the largest loss and 0, for (ε, δ) the notion's own
ε and δ there. A composition is from below, so that a rounding of the oracle never shows as a fault.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
from scipy import stats

import mechdesign as md
from tests.accounting import reference
from tests.campaign.bounds_oracles import changes, composed
from tests.campaign.compositions import density_losses
from tests.campaign.noise_oracles import cell_losses, cell_masses, corner_changes, mixed_delta, steepest
from tests.campaign.oracles import channel_ratio, exactly, gaussian_delta

Spent = tuple[float, float]


def gaussian_spent(notion: Any, squares: Fraction) -> Spent:
    """Of Gaussian noise, from the sum of (change/σ)²."""
    if isinstance(notion, md.ZeroConcentratedDP):
        return float(squares) / 2, 0.0
    return notion.epsilon, float(gaussian_delta(notion.epsilon, exactly(squares)))


# Quantizers ---------------------------------------------------------------------------------------------------


def points(mechanism: Any) -> Any:
    low, high = mechanism.input_range
    outputs = np.asarray(mechanism.bins, dtype=float)
    return np.unique(
        np.concatenate([np.linspace(low, high, 201), outputs[(outputs > low) & (outputs < high)]])
    )


def quantizer(design: Any, mechanism: Any) -> Spent:
    table = mechanism.probabilities(points(mechanism))
    used = table.max(axis=0) > 0
    return float(np.log((table[:, used].max(axis=0) / table[:, used].min(axis=0)).max())), 0.0


def metric_quantizer(design: Any, mechanism: Any) -> Spent:
    """Between the inputs of the design, or between points of the range."""
    notion = design.privacy
    x = points(mechanism) if design.inputs is None else np.asarray(design.inputs)
    table = mechanism.probabilities(x)
    table = table[:, table.max(axis=0) > 0]
    if isinstance(notion, md.ApproximateDP):
        gaps = table[:, None, :] - math.exp(notion.epsilon) * table[None, :, :]
        return notion.epsilon, float(np.maximum(gaps, 0).sum(axis=2).max())
    apart = np.abs(x[:, None] - x[None, :]) ** (2 if notion.metric == "squared" else 1)
    return channel_ratio(table, apart), 0.0


# Noise --------------------------------------------------------------------------------------------------------


def worst_change(design: Any, size: int) -> list[list[Fraction]]:
    s = design.sensitivity
    bounds = s if isinstance(s, md.Sensitivity) else md.Sensitivity(linf=s)
    return list(changes(bounds, size, random.Random(0), 12 if size < 100 else 3))


def calibration(design: Any, mechanism: Any) -> Spent:
    law, notion, rounds = mechanism.law, design.privacy, design.rounds
    if design.sampling_rate < 1:
        return notion.epsilon, math.nan
    shapes, _, scale = law.dist._parse_args(*law.args, **law.kwds)
    name, exact = law.dist.name, Fraction(float(scale))
    if design.dimension == 1 and rounds == 1 and isinstance(notion, md.ApproximateDP):
        return notion.epsilon, float(reference.delta(law, design.sensitivity, notion.epsilon))
    found = []
    for v in worst_change(design, design.dimension):
        if name in ("dlaplace", "discrete_gaussian"):  # of integers, which change by integers
            v = [Fraction(int(a)) for a in v]
        ratios = [abs(a) / exact for a in v if a]
        if name == "norm":
            found.append(gaussian_spent(notion, rounds * sum((r * r for r in ratios), Fraction(0))))
        elif isinstance(notion, md.PureDP):
            each = [float(r) * (float(shapes[0]) if name == "dlaplace" else 1) for r in ratios]
            if name == "staircase":
                each = [float(shapes[0]) * math.ceil(float(r) * (1 - 1e-12)) for r in ratios]
            found.append((rounds * math.fsum(each), 0.0))
        else:
            parts = [(one_loss(name, tuple(map(float, shapes)), float(r)), rounds) for r in ratios]
            found.append((notion.epsilon, composed(parts, notion.epsilon)))
    return max(found)


def one_loss(name: str, shapes: tuple[float, ...], ratio: float) -> Any:
    if name not in ("dlaplace", "discrete_gaussian"):
        return density_losses(name, shapes, ratio, 1500)
    masses = integer_masses(name, shapes)
    shift = int(ratio)
    logs = np.log(np.maximum(masses, 1e-300))
    return (logs[shift:] - logs[:-shift]) - 1e-12, masses[shift:] * (1 - 1e-12)


def integer_masses(name: str, shapes: tuple[float, ...]) -> Any:
    """Of a law on the integers, from minus far to far."""
    far = int(60 / shapes[0] if name == "dlaplace" else 12 * shapes[0]) + 5
    k = np.abs(np.arange(-far, far + 1))
    masses = np.exp(-shapes[0] * k if name == "dlaplace" else -(k**2) / (2 * shapes[0] ** 2))
    return masses / masses.sum()


def cell_noise(design: Any, mechanism: Any) -> Spent:
    """Of one number: every shift of whole cells."""
    if design.delta == 0:
        return steepest(mechanism), 0.0
    n = mechanism.cells_per_shift
    shifts = {1, max(n // 3, 1), n}
    return design.epsilon, float(
        max(cell_delta(mechanism, sign * v, design.epsilon) for v in shifts for sign in (1, -1))
    )


def cell_delta(law: Any, shift: int, epsilon: float) -> Fraction:
    """δ(ε) at a shift of whole cells, in fractions, run by run; tails for sixty repetitions, so from below."""
    runs = [(Fraction(w), 1) for w in law.weights]
    if law.decay:
        n = law.cells_per_shift
        first, last = runs[:n], runs[-n:]
        left = [(h * law.decay**k, v) for k in range(60, 0, -1) for h, v in first]
        runs = [*left, *runs, *((h * law.decay**k, v) for k in range(1, 61) for h, v in last)]
    total = sum(law.weights) * (1 if not law.decay else 1 + 2 * law.decay / (1 - law.decay))
    ends = [0, *itertools.accumulate(v for _, v in runs)]
    edges = sorted({*ends, *(e + shift for e in ends)})
    with mp.workdps(60):
        growth = Fraction(int(mp.floor(mp.exp(mp.mpf(epsilon)) * 10**40)) + 1, 10**40)

    def height(cell: int) -> Fraction:
        i = bisect.bisect_right(ends, cell) - 1
        return runs[i][0] if 0 <= i < len(runs) else Fraction(0)

    seen = [
        (a, b)
        for a, b in itertools.pairwise(edges)
        if not law.decay or (0 <= a < ends[-1] and 0 <= a - shift < ends[-1])  # tails have no end
    ]
    parts = ((b - a) * max(height(a) - growth * height(a - shift), Fraction(0)) for a, b in seen)
    return sum(parts, Fraction(0)) / (total + law.spike)


def optimal_noise(design: Any, mechanism: Any) -> Spent:
    if hasattr(mechanism, "weights"):
        return cell_noise(design, mechanism)
    k, epsilon, delta = (
        design.l0 or design.dimension,
        design.privacy.epsilon,
        getattr(design.privacy, "delta", 0),
    )
    law = mechanism.law
    if hasattr(law, "weights"):
        if delta == 0:
            return k * steepest(law), 0.0
        losses = cell_losses(law, cell_masses(law), design.sensitivity / law.width)
    else:
        shapes, _, scale = law.dist._parse_args(*law.args, **law.kwds)
        ratio = Fraction(design.sensitivity) / Fraction(float(scale))
        if law.dist.name == "norm":
            return gaussian_spent(design.privacy, k * ratio**2)
        losses = density_losses(law.dist.name, tuple(map(float, shapes)), float(ratio))
    if delta == 0:
        return k * float(np.max(losses[0])), 0.0
    return epsilon, composed([(losses, k)], epsilon)


def allocation(design: Any, mechanism: Any) -> Spent:
    notion, scales = design.privacy, [Fraction(v) for v in mechanism.scales.tolist()]
    if design.bounds is None:
        corners = [[Fraction(v) for v in design.sensitivities.tolist()]]
    else:
        corners = list(changes(design.bounds, len(scales), random.Random(0), 30))
    found = []
    for v in corners:
        ratios = [abs(a) / s for a, s in zip(v, scales) if a]
        if design.noise == "laplace":
            found.append((float(sum(ratios)), 0.0))
        elif design.noise == "gaussian":
            found.append(gaussian_spent(notion, sum((r * r for r in ratios), Fraction(0))))
        else:
            kinds = mechanism.laplace.tolist()
            squares = sum((r * r for r, laplace in zip(ratios, kinds) if not laplace), Fraction(0))
            loud = [float(r) for r, laplace in zip(ratios, kinds) if laplace]
            found.append((notion.epsilon, mixed_delta(loud, squares, notion.epsilon)))
    return max(found)


def whitened(noise: Any, notion: Any, corners: Any) -> Spent:
    rows = [[Fraction(x) for x in row] for row in noise.whitening.tolist()]
    spent = Fraction(0)
    for v in corners:
        inside = [Fraction(v[i]) for i in noise.coordinates]
        spent = max(
            spent,
            sum(
                (sum((w * a for w, a in zip(row, inside) if a), Fraction(0)) ** 2 for row in rows),
                Fraction(0),
            ),
        )
    return gaussian_spent(notion, spent)


def correlated(design: Any, mechanism: Any) -> Spent:
    if design.workload is not None:
        return matrix(design, mechanism)
    if isinstance(design.changes, md.noise.Changes):
        return counts(design.changes, design.privacy, mechanism)
    return whitened(mechanism, design.privacy, design.vectors.tolist())


def counts(design: Any, privacy: Any, mechanism: Any) -> Spent:
    """Prefixes with equal and with alternating signs, of every length allowed."""
    n = design.size
    signs = [(1, 1), (1, -1)] if design.signed else [(1, 1)]
    corners = [
        [design.most * (a if i % 2 else b) if i < k else 0.0 for i in range(n)]
        for k in range(1, design.l0 + 1)
        for a, b in signs
    ]
    z = np.array(corners)
    covariance = np.asarray(mechanism.covariance)
    spent = float(np.einsum("ij,ij->i", z @ np.linalg.pinv(covariance, hermitian=True), z).max())
    return gaussian_spent(privacy, Fraction(spent) * (1 - Fraction(1, 10**11)))


def matrix(design: Any, mechanism: Any) -> Spent:
    rows, most, n = np.asarray(mechanism.strategy), Fraction(design.changes.most), design.workload.size
    exact = [[Fraction(v) for v in row] for row in rows.tolist()]
    corners: Any = (
        np.eye(n, dtype=int).tolist()
        if design.changes.l0 == 1
        else corner_changes(n, design.changes.l0, design.changes.signed)
    )
    spent = Fraction(0)
    for d in corners:
        spent = max(
            spent,
            sum((sum((v * x for v, x in zip(row, d) if x), Fraction(0)) ** 2 for row in exact), Fraction(0)),
        )
    return gaussian_spent(design.privacy, most**2 * spent)


def k_norm(design: Any, mechanism: Any) -> Spent:
    found = 0.0
    for v in worst_change(design, design.dimension):
        length = float(mechanism.norm_of([float(a) for a in v])[()]) / mechanism.scale
        if mechanism.gamma is not None:  # falls once for each change of the largest norm that is begun
            fall = mechanism.largest / mechanism.scale
            length = math.ceil(length / fall * (1 - 1e-12)) * fall
        found = max(found, length)
    return design.rounds * found, 0.0


# Channels and vectors -----------------------------------------------------------------------------------------


def table_loss(table: Any, distances: Any) -> float:
    """Of a table, without the outputs that no input gives."""
    return channel_ratio(table[:, table.max(axis=0) > 0], distances)


def metric_channel(design: Any, mechanism: Any) -> Spent:
    return table_loss(mechanism.dense, design.space.distances), 0.0


def channel(mechanism: Any, _: Any = None) -> Spent:
    space = getattr(mechanism, "space", None)
    table = np.array(mechanism.apply(np.eye(mechanism.size)))
    return table_loss(table, 1 - np.eye(mechanism.size) if space is None else space.distances), 0.0


def near_response(mechanism: Any, _: Any = None) -> Spent:
    more, less = mechanism.probabilities
    assert mechanism.near * more + (mechanism.outputs - mechanism.near) * less == 1
    return math.log(more) - math.log(less), 0.0


def sampled_coordinates(mechanism: Any, _: Any = None) -> Spent:
    return mechanism.slots * exact_quantizer(mechanism.one), 0.0


def exact_quantizer(one: Any) -> float:
    """The largest log-ratio of two rows of a certified quantizer's exact table."""
    law = one.law
    rows = [law.row(i, end) for i in range(len(law.knots) - 1) for end in (0, 1)]
    return max(math.log(max(column) / min(column)) for column in zip(*rows) if max(column))


def cap(mechanism: Any, _: Any = None) -> Spent:
    return math.log(mechanism.power), 0.0


def vector(design: Any, mechanism: Any) -> Spent:
    return (sampled_coordinates if isinstance(mechanism, md.SampledCoordinates) else near_response)(mechanism)


def coordinates(mechanism: Any, _: Any = None) -> Spent:
    """Of all coordinates together."""
    return mechanism.dimension * quantizer(None, mechanism.coordinate)[0], 0.0


# User-level releases ------------------------------------------------------------------------------------------


def linear_release(mechanism: Any, _: Any = None) -> Spent:
    """α: the largest loss between two points by their distance; of Gaussian noise, δ between the worst two."""
    values, distances = np.asarray(mechanism.query.values, dtype=float), mechanism.query.space.distances
    found = [0.0]
    for x, z in itertools.combinations(range(len(values)), 2):
        change = (values[x] - values[z]) / mechanism.users / mechanism.scale
        if mechanism.gaussian:
            loss = mechanism.alpha * float(distances[x, z])
            found.append(float(gaussian_delta(loss, exactly(Fraction(float(change @ change))))))
        else:
            found.append(float(np.linalg.norm(change, mechanism.norm)) / float(distances[x, z]))
    return (mechanism.alpha, max(found)) if mechanism.gaussian else (max(found), 0.0)


def itemwise_release(mechanism: Any, _: Any = None) -> Spent:
    """α of one item's channel."""
    table = np.array(mechanism.channel.apply(np.eye(mechanism.space.size)))
    return table_loss(table, mechanism.space.distances), mechanism.delta


SPENT: dict[type, Callable[[Any, Any], Spent]] = {
    md.OPTM: quantizer,
    md.OPTMSearch: quantizer,
    md.RQM: quantizer,
    md.ERM: quantizer,
    md.MVU: quantizer,
    md.BiasedSelection: quantizer,
    md.OptimalQuantizer: quantizer,
    md.MetricQuantizer: metric_quantizer,
    md.Calibration: calibration,
    md.OptimalNoise: optimal_noise,
    md.NoiseAllocation: allocation,
    md.CorrelatedGaussian: correlated,
    md.noise.KNorm: k_norm,
    md.MetricChannel: metric_channel,
    md.VectorQuantizer: vector,
    md.Channel: channel,
    md.channels.HadamardResponse: channel,
    md.channels.ClusteredResponse: channel,
    md.SphereQuantizer: near_response,
    md.RandomDirections: near_response,
    md.SampledSigns: near_response,
    md.SampledCoordinates: sampled_coordinates,
    md.PrivUnit: cap,
    md.CoordinateQuantizer: coordinates,
    md.LinearRelease: linear_release,
    md.ItemwiseRelease: itemwise_release,
}


# What is released ---------------------------------------------------------------------------------------------

DRAWS = 20_000
LEAST = 8  # draws expected in a class


def chi_square(counts: Any, masses: Any) -> float:
    """The p-value; neighbouring classes are joined until each expects some draws."""
    masses, counts = np.asarray(masses, dtype=float), np.asarray(counts)
    total, joined = counts.sum(), [[0.0, 0]]
    for mass, count in zip(masses / masses.sum(), counts.tolist()):
        if mass == 0 and count:
            return 0.0
        joined[-1] = [joined[-1][0] + mass * total, joined[-1][1] + count]
        if joined[-1][0] >= LEAST:
            joined.append([0.0, 0])
    expected, found = joined.pop()
    if joined:
        joined[-1] = [joined[-1][0] + expected, joined[-1][1] + found]
    if len(joined) < 2:
        return 1.0
    wanted, seen = np.array(joined).T
    return float(stats.chisquare(seen, wanted / wanted.sum() * seen.sum()).pvalue)


def continuous(draws: Any, law: Any, classes: int = 40) -> float:
    """Draws of a law with a density, in classes of equal probability."""
    edges = law.ppf(np.linspace(0, 1, classes + 1)[1:-1])
    return chi_square(
        np.bincount(np.searchsorted(edges, np.ravel(draws)), minlength=classes), np.ones(classes)
    )


def integers(draws: Any, name: str, shapes: tuple[float, ...]) -> float:
    masses = integer_masses(name, shapes)
    far = len(masses) // 2
    found = np.clip(np.ravel(draws).astype(int) + far, 0, len(masses) - 1)
    return chi_square(np.bincount(found, minlength=len(masses)), masses)


def cells(draws: Any, law: Any) -> float:
    """Draws of cell noise in its runs of cells, and in its two tails."""
    weights = [Fraction(w) for w in law.weights]
    ends = law.start + law.width * np.arange(len(weights) + 1)
    tails = [Fraction(0), Fraction(0)]
    if law.decay:
        share, n = law.decay / (1 - law.decay), law.cells_per_shift
        tails = [share * sum(weights[:n]), share * sum(weights[-n:])]
    place = np.searchsorted(ends, np.ravel(draws), side="right")
    return chi_square(
        np.bincount(place, minlength=len(ends) + 1), [float(v) for v in (tails[0], *weights, tails[1])]
    )


def table(draws: Any, outputs: Any, masses: Any) -> float:
    """Draws that are outputs themselves."""
    order = np.argsort(outputs)
    place = np.searchsorted(np.asarray(outputs)[order], np.ravel(draws))
    return chi_square(np.bincount(place, minlength=len(outputs)), np.asarray(masses)[order])


def additive(draws: Any, law: Any) -> float:
    if hasattr(law, "weights"):
        return cells(draws, law)
    shapes, _, _ = law.dist._parse_args(*law.args, **law.kwds)
    if law.dist.name in ("dlaplace", "discrete_gaussian"):
        return integers(draws, law.dist.name, tuple(map(float, shapes)))
    return continuous(draws, law)


def rows(dimension: int) -> Any:
    return np.zeros((math.ceil(DRAWS / dimension), dimension))


def unbiased(mechanism: Any) -> float:
    """The p-value of the mean of vectors released, along a vector of inputs."""
    x = np.full(mechanism.dimension, mechanism.radius / math.sqrt(mechanism.dimension))
    along = (mechanism.release(np.tile(x, (4000, 1)), clip=True) - x) @ x
    return float(2 * stats.norm.sf(abs(along.mean()) / along.std() * math.sqrt(len(along))))


def released(mechanism: Any) -> float | None:
    """The p-value of some 20,000 numbers released, against the law (of vectors, of their mean); none where no law is listed."""
    m = mechanism
    if isinstance(m, (md.Quantizer, md.quantizers.BiasedQuantizer)):
        x = 0.7 * m.input_range[0] + 0.3 * m.input_range[1]
        return table(m.release(np.full(DRAWS, x)), m.bins, m.probabilities(x))
    if isinstance(m, md.AdditiveNoise):
        return additive(m.release(np.zeros(DRAWS) if m.dimension == 1 else rows(m.dimension)), m.law)
    if isinstance(m, md.noise.CellNoise):
        return cells(m.release(np.zeros(DRAWS)), m)
    if isinstance(m, md.noise.CellProduct):
        return cells(m.release(rows(m.dimension)), m.law)
    if isinstance(m, md.noise.IndependentNoise):
        law = stats.norm() if m.noise == "gaussian" else stats.laplace()
        return continuous(m.release(rows(len(m.scales))) / m.scales, law)
    if isinstance(m, md.noise.MixedNoise):
        found = m.release(rows(len(m.scales))) / m.scales
        kinds = [(stats.laplace(), m.laplace), (stats.norm(), ~m.laplace)]
        return min(continuous(found[:, kind], law) for law, kind in kinds if kind.any())
    if isinstance(m, md.noise.KNormNoise) and m.largest is None:  # has no lattice
        return None
    if isinstance(m, md.noise.KNormNoise):
        norms, d = m.norm_of(m.release(np.zeros((2000, m.dimension)))), len(m.moving)
        if m.gamma is None:
            return continuous(norms, stats.gamma(d, scale=m.scale))
        # uniform on balls of radius (γ + j) times the largest change
        ends = (np.arange(2000) + m.gamma) * m.largest
        logs = d * np.log(ends) - np.arange(2000) * m.largest / m.scale
        masses = np.exp(logs - logs.max())
        chances = [float(masses @ np.minimum(1, (x / ends) ** d) / masses.sum()) for x in norms]
        return continuous(chances, stats.uniform())
    if isinstance(m, md.noise.CorrelatedGaussianNoise):
        deviations = np.sqrt(np.diag(m.covariance))
        found = m.release(rows(len(deviations)))
        return min(continuous(found[:, i] / s, stats.norm(), 20) for i, s in enumerate(deviations[:20]) if s)
    if isinstance(m, md.noise.StrategyNoise):
        deviations = np.sqrt(np.asarray(m.variances, dtype=float))
        found = np.array([m.release(np.zeros(m.workload.size)) for _ in range(1000)])
        return min(continuous(found[:, i] / s, stats.norm(), 20) for i, s in enumerate(deviations[:20]) if s)
    if isinstance(m, md.LinearRelease):
        shares = np.full((m.users, m.query.space.size), 1 / m.query.space.size)
        exact = np.asarray(m.query.values, dtype=float).mean(axis=0)
        draws = np.array([m.release(shares) for _ in range(1000)]) - exact
        return continuous(draws / m.scale, stats.norm() if m.gaussian else stats.laplace())
    if isinstance(m, md.ItemwiseRelease):
        return released(m.channel)
    if isinstance(m, (md.SphereQuantizer, md.RandomDirections, md.SampledSigns, md.SampledCoordinates)):
        return None if getattr(m, "rotation", "exact") == "fast" or m.dimension > 50 else unbiased(m)
    if hasattr(m, "apply") and hasattr(m, "size"):
        masses = np.asarray(m.apply(np.eye(m.size)))[m.size // 2]
        return chi_square(np.bincount(m.release(np.full(DRAWS, m.size // 2)), minlength=len(masses)), masses)
    return None

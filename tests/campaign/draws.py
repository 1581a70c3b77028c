"""Random designs of every class, hostile ones included: each drawn from its number alone."""

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

import mechdesign as md

Draw = random.Random
FAMILIES = (
    "gaussian", "laplace", "logistic", "flipped_huber", "osgt", "gennorm", "truncated_laplace", "staircase",
    "discrete_laplace", "discrete_gaussian", stats.hypsecant(), stats.truncnorm(-3, 3),
)  # fmt: skip


def scale(rng: Draw, low: float, high: float) -> float:
    """A number between two powers of ten, their ends included now and then."""
    return rng.choice([10**low, 10**high]) if rng.random() < 0.1 else 10 ** rng.uniform(low, high)


def pure(rng: Draw) -> Any:
    return md.PureDP(scale(rng, -2, 1.3))


def approximate(rng: Draw) -> Any:
    return md.ApproximateDP(scale(rng, -1.5, 1), scale(rng, -12, -0.5))


def any_notion(rng: Draw) -> Any:
    return rng.choice([pure, approximate, lambda rng: md.ZeroConcentratedDP(scale(rng, -4, 1))])(rng)


def least_range(epsilon: float) -> float:
    """How far out the outputs of an unbiased mechanism on [−1, 1] must reach: Duchi's two."""
    return (math.exp(epsilon) + 1) / math.expm1(epsilon)


def bins(rng: Draw, epsilon: float) -> list[float]:
    """Outputs: even, random, nearly symmetric, or a hair around the least range that is feasible."""
    m = rng.randint(2, 12)
    outer = least_range(epsilon) * rng.choice(
        [1.0, 1 + 1e-9, 1 - 1e-9, 1.01, 1.5, rng.uniform(1, 5), rng.uniform(1, 5)]
    )
    inner = sorted(rng.uniform(-outer, outer) for _ in range(m - 2))
    match rng.randrange(3):
        case 0:
            return np.linspace(-outer, outer, m).tolist()
        case 1:
            return [-outer, *inner, outer]
    half = sorted(abs(b) for b in inner[: (m - 2) // 2])
    return [-outer, *(-b for b in half[::-1]), *(b * (1 + rng.choice([0.0, 1e-9])) for b in half), outer]


def prior(rng: Draw) -> Any:
    """Uniform, narrow, spiked, far out, U-shaped, with empty stretches, or samples."""
    centre, width = rng.uniform(-0.9, 0.9), scale(rng, -4, 0)
    match rng.randrange(9):
        case 0:
            return stats.uniform(-1, 2)
        case 1:
            return md.truncated(stats.norm(centre, width), -1, 1)
        case 2:
            return md.clipped(stats.norm(centre * 3, width), -1, 1)
        case 3:
            return stats.beta(scale(rng, -1, 1), scale(rng, -1, 1), loc=-1, scale=2)
        case 4:
            return [-1.0, *sorted(rng.uniform(-1, 1) for _ in range(rng.randint(1, 20))), 1.0]
        case 5:
            return [-1, -0.495, 0.49500495, 1]
        case 6:
            masses = [0.0] * 50
            for _ in range(rng.randint(1, 3)):
                masses[rng.randrange(50)] = rng.uniform(0.1, 1)
            return stats.rv_histogram((masses, np.linspace(-1, 1, 51)))()
        case 7:
            return md.truncated(stats.norm(rng.choice([-9, 9]), 1), -1, 1)
    return md.truncated(stats.laplace(centre, width), -1, 1)


def known(rng: Draw) -> dict[str, Any]:
    """A prior, and of samples where inputs lie."""
    drawn = prior(rng)
    return {"prior": drawn} | ({"input_range": (-1, 1)} if isinstance(drawn, list) else {})


def loss(rng: Draw) -> Any:
    return rng.choice(["absolute", "squared", {"absolute": 1.0, "squared": rng.uniform(0, 2)}])


def space(rng: Draw) -> Any:
    n = rng.randint(2, 7)
    match rng.randrange(5):
        case 0:
            return md.MetricSpace.grid(rng.randint(1, 3), rng.randint(2, 3))
        case 1:
            return md.MetricSpace.line(sorted({rng.uniform(0, scale(rng, -2, 1)) for _ in range(n)} | {0.0}))
        case 2:
            within = rng.uniform(0.01, 0.9)
            return md.MetricSpace.clustered(rng.randint(2, 3), rng.randint(1, 3), within=within)
        case 3:
            far = scale(rng, 0, 4)
            return md.MetricSpace.line([0.0, *sorted({scale(rng, -6, 0) for _ in range(2)}), far, 1.5 * far])
    points = [[rng.gauss(0, 1), rng.gauss(0, 1)] for _ in range(n)]
    return md.MetricSpace.euclidean(points, names=[f"place {i}" for i in range(n)])


def grid(rng: Draw, **axes: tuple[float, float]) -> Any:
    return md.Grid(**{name: sorted({rng.uniform(*ends) for _ in range(4)}) for name, ends in axes.items()})


def beyond(epsilon: float) -> tuple[float, float]:
    """How far beyond the inputs the outermost outputs of a search may lie: about what is feasible, and more."""
    reach = least_range(epsilon) - 1
    return 0.9 * reach, 4 * reach + 1


def optm(rng: Draw) -> Any:
    notion = pure(rng)
    return md.OPTM(bins(rng, notion.epsilon), notion, **known(rng), loss=loss(rng))


def optm_search(rng: Draw) -> Any:
    notion = md.PureDP(scale(rng, -0.7, 0.7))
    searched, level = grid(rng, delta=beyond(notion.epsilon), inner=(0.05, 0.95)), rng.uniform(0.3, 0.9)
    levels = md.Grid(level=[level, min(level + 0.05, 0.99)], width=[rng.choice([0.01, 0.1])])
    return md.OPTMSearch(notion, **known(rng), loss=loss(rng), bins=searched, boxes=levels)


def optimal_quantizer(rng: Draw) -> Any:
    notion = pure(rng)
    more = rng.choice(
        [{}, {}, {"objective": "worst"}, {"max_bias": rng.uniform(0, 1.5)}, {"max_mse": rng.uniform(0.1, 9)}]
    )
    return md.OptimalQuantizer(bins(rng, notion.epsilon), notion, **known(rng), loss=loss(rng), **more)


def searched_quantizer(rng: Draw) -> Any:
    notion = md.PureDP(scale(rng, -0.5, 0.9))
    reach = least_range(notion.epsilon) * rng.uniform(0.99, 3)
    outputs = rng.choice([
        md.BinSearch(rng.randint(2, 5), reach, starts=1, exhaustive=False, seed=rng.randint(0, 9)),
        md.Alphabet(reach, reach / rng.randint(1, 30)),
    ])  # fmt: skip
    return md.OptimalQuantizer(outputs, notion, **known(rng), loss=loss(rng))


def metric_quantizer(rng: Draw) -> Any:
    kind = rng.choice(["absolute", "squared", "approximate", "pure"])
    epsilon = scale(rng, -0.5, 1)
    notion: Any = {
        "approximate": lambda: md.ApproximateDP(epsilon, scale(rng, -9, -1)),
        "pure": lambda: md.PureDP(epsilon),
    }.get(kind, lambda: md.MetricDP(epsilon, kind))()
    inputs = None if kind == "absolute" and rng.random() < 0.6 else np.linspace(-1, 1, rng.randint(2, 13))
    objective = rng.choice(["mean", "mean", "worst"])
    outputs = bins(rng, max(epsilon, 0.5))
    return md.MetricQuantizer(
        outputs, notion, **known(rng), loss=loss(rng), inputs=inputs, objective=objective
    )


def rqm(rng: Draw) -> Any:
    notion = md.PureDP(scale(rng, -1, 1))
    searched = grid(rng, delta=beyond(notion.epsilon), q=(0.05, 0.9))
    return md.RQM(rng.randint(2, 8), notion, **known(rng), loss=loss(rng), grid=searched)


def erm(rng: Draw) -> Any:
    notion = md.PureDP(scale(rng, -1, 1))
    searched = grid(rng, delta=beyond(notion.epsilon), inner=(0.05, 0.9), gamma=(0.01, 2))
    return md.ERM(4, notion, **known(rng), loss=loss(rng), grid=searched)


def mvu(rng: Draw) -> Any:
    notion, m = pure(rng), rng.randint(2, 6)
    more: dict[str, Any] = {"input_bits": rng.randint(1, 3)}
    if rng.random() < 0.5:  # a given alphabet; the search of one takes most of the campaign's time
        more["bins"] = bins(rng, notion.epsilon)
        m = len(more["bins"])
    if rng.random() < 0.5:
        more |= {"prior": prior(rng), "loss": loss(rng)}
    return md.MVU(m=m, privacy=notion, input_range=(-1, 1), **more)


def biased(rng: Draw) -> Any:
    notion = md.PureDP(scale(rng, -1, 1))
    searched = grid(rng, delta=(0.05, beyond(notion.epsilon)[1]), q=(0.1, 0.9), beta=(0, 0.9))
    most = rng.choice([math.inf, rng.uniform(0.5, 2), rng.uniform(0, 1)])
    return md.BiasedSelection(
        rng.randint(2, 6), notion, **known(rng), loss=loss(rng), max_bias=most, grid=searched
    )


def allocation(rng: Draw) -> Any:
    noise = rng.choice(["laplace", "gaussian"])
    notion = pure(rng)
    if noise == "gaussian":
        notion = rng.choice([approximate(rng), md.ZeroConcentratedDP(scale(rng, -4, 1))])
    size = rng.randint(1, 30)
    lam = [
        rng.choice([0.0, scale(rng, -6, 6)]) if rng.random() < 0.2 else scale(rng, -2, 2) for _ in range(size)
    ]
    more: dict[str, Any] = {}
    if rng.random() < 0.2:
        more["weights"] = [scale(rng, -2, 2) for _ in range(size)]
    if rng.random() < 0.2:
        more["lower"] = scale(rng, -2, 1)
    if rng.random() < 0.2 and size > 1:
        cut = rng.randint(1, size - 1)
        more["groups"] = [list(range(cut)), list(range(cut, size))]
    return md.NoiseAllocation(noise=noise, sensitivities=lam, privacy=notion, loss=rng.choice([1, 2]), **more)


def correlated(rng: Draw) -> Any:
    k = rng.randint(1, 6)
    rows = [[rng.gauss(0, scale(rng, -3, 3)) for _ in range(k)] for _ in range(rng.randint(1, 12))]
    if rng.random() < 0.2:  # nearly or exactly dependent
        rows.append([v * rng.choice([1.0, 1 + 1e-9, 1e9]) for v in rows[0]])
    return md.CorrelatedGaussian(changes=rows, privacy=approximate(rng), span=True)


def calibration(rng: Draw) -> Any:
    notion = any_notion(rng)
    impure = ("gaussian", "flipped_huber", "osgt", "gennorm", "truncated_laplace", "discrete_gaussian")
    name = rng.choice([f for f in FAMILIES if f not in impure or not isinstance(notion, md.PureDP)])
    discrete = isinstance(name, str) and name.startswith("discrete")
    sensitivity = rng.randint(1, 5) if discrete else scale(rng, -3, 3)
    dimension = rng.choice([1, 1, 1, 2, 3, 20])
    return md.Calibration(
        name, notion, sensitivity=sensitivity, dimension=dimension, loss=rng.choice(["squared", "absolute"])
    )


def optimal_noise(rng: Draw) -> Any:
    notion = approximate(rng) if rng.random() < 0.8 else pure(rng)
    return md.OptimalNoise(notion, sensitivity=scale(rng, -2, 2), loss=loss(rng))


def metric_channel(rng: Draw) -> Any:
    where = space(rng)
    weights = np.array([scale(rng, -6, 0) for _ in range(where.size)])
    weights = rng.choice([None, weights / weights.sum()])
    return md.MetricChannel(where, alpha=scale(rng, -1.5, 1), prior=weights)


def linear_release(rng: Draw) -> Any:
    where, dimension = space(rng), rng.randint(1, 3)
    values = [[rng.gauss(0, scale(rng, -2, 2)) for _ in range(dimension)] for _ in range(where.size)]
    gaussian = rng.random() < 0.3
    more: dict[str, Any] = {"gaussian": True, "delta": scale(rng, -12, -1)} if gaussian else {}
    if not gaussian:
        more["norm"] = rng.choice([1, 2, math.inf])
    if rng.random() < 0.5:
        more |= {"model": "central", "users": rng.randint(1, 1000)}
    else:
        more["model"] = "local"
    return md.LinearRelease(md.user_level.LinearQuery(where, values), alpha=scale(rng, -1, 2), **more)


def itemwise_release(rng: Draw) -> Any:
    where = space(rng)
    accounting = rng.choice(["numerical", "closed-form", "composition"])
    delta = 0.0 if accounting == "composition" else scale(rng, -12, -2)
    users: dict[str, Any] = rng.choice([{"model": "local"}, {"users": rng.randint(1, 10_000)}])
    wanted = {rng.choice(["alpha", "item_alpha"]): scale(rng, -1, 2)}
    return md.ItemwiseRelease(
        where, delta=delta, items=rng.randint(1, 100), accounting=accounting, **users, **wanted
    )


def sampling_reduction(rng: Draw) -> Any:
    diameter = scale(rng, -2, 2)
    return md.user_level.SamplingReduction(
        alpha=scale(rng, -1, 2), radius=diameter * scale(rng, -6, -0.01), samples=rng.randint(1, 5000),
        failure=scale(rng, -15, -1), delta=rng.choice([0.0, scale(rng, -12, -2)]), diameter=diameter,
    )  # fmt: skip


CLASSES: dict[str, Callable[[Draw], Any]] = {
    "OPTM": optm,
    "OPTMSearch": optm_search,
    "OptimalQuantizer": optimal_quantizer,
    "OptimalQuantizer(search)": searched_quantizer,
    "MetricQuantizer": metric_quantizer,
    "RQM": rqm,
    "ERM": erm,
    "MVU": mvu,
    "BiasedSelection": biased,
    "NoiseAllocation": allocation,
    "CorrelatedGaussian": correlated,
    "Calibration": calibration,
    "OptimalNoise": optimal_noise,
    "MetricChannel": metric_channel,
    "LinearRelease": linear_release,
    "ItemwiseRelease": itemwise_release,
    "SamplingReduction": sampling_reduction,
}

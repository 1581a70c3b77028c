"""Random designs of the classes that came later, drawn as those of `draws` are: from a number alone."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from scipy import stats

import mechdesign as md
from tests.campaign.draws import Draw, approximate, pure, scale, space


@dataclass(frozen=True)
class Bounded:
    """A design that was made for several bounds, and these."""

    design: Any
    bounds: md.Sensitivity

    def solve(self, *, time_limit: float | None = None) -> Any:
        return self.design.solve(time_limit=time_limit)


def zcdp(rng: Draw) -> Any:
    return md.ZeroConcentratedDP(scale(rng, -4, 1))


def sensitivity(rng: Draw, size: int, *, listed: bool = False) -> md.Sensitivity:
    """Bounds of every kind together; `listed`: those whose corners can be listed."""
    unit = scale(rng, -2, 2)
    bounds: dict[str, Any] = {}
    if rng.random() < 0.5:
        bounds["each"] = [rng.choice([0.0, unit * rng.uniform(0.1, 3), unit]) for _ in range(size)]
        bounds["each"][rng.randrange(size)] = unit
    if not bounds or rng.random() < 0.2:
        bounds["linf"] = unit * rng.uniform(0.5, 2)
    if rng.random() < 0.5:
        bounds["l0"] = rng.randint(1, size)
    if not listed:
        if rng.random() < 0.5:
            bounds["l1"] = unit * rng.uniform(0.3, size)
        if rng.random() < 0.5:
            bounds["l2"] = unit * rng.uniform(0.3, size**0.5)
    if rng.random() < 0.3 and not listed:
        more = {"signed": rng.random() < 0.5, "neighbours": rng.choice(["replace", "add-remove"])}
        return md.Sensitivity.of_contribution(**bounds, **more, dimension=size)
    return md.Sensitivity(**bounds, signed=rng.random() < 0.6)


def mixed(rng: Draw) -> Any:
    size = rng.choice([1, 2, 3, 5, 12])
    lam = [0.0 if rng.random() < 0.1 else scale(rng, -2, 2) for _ in range(size - 1)]
    more: dict[str, Any] = {}
    if rng.random() < 0.3:
        more["weights"] = [scale(rng, -1, 1) for _ in range(size)]
    notion = md.ApproximateDP(scale(rng, -1, 1), scale(rng, -10, -1))
    return md.NoiseAllocation(
        "mixed", [*lam, scale(rng, -2, 2)], notion, loss=rng.choice([1, 2, 1.5]), **more
    )


def k_norm(rng: Draw) -> Any:
    size = rng.choice([1, 2, 3, 5, 20, 1000])
    bound = sensitivity(rng, size) if size <= 20 and rng.random() < 0.6 else scale(rng, -3, 3)
    return md.noise.KNorm(
        size, pure(rng), bound, norm=rng.choice([None, None, 1, 2, "inf"]), loss=rng.choice(["squared", "absolute"]),
        rounds=rng.choice([1, 1, 7]),
    )  # fmt: skip


def workload(rng: Draw) -> Any:
    n, w = rng.randint(1, 7), md.Workload
    match rng.randrange(6):
        case 0:
            return w.prefix_sums(n)
        case 1:
            return w.ranges(n)
        case 2:
            return w.marginals((2, rng.randint(2, 3)), order=1)
        case 3:
            return [[float(rng.randint(-1, 1)) for _ in range(n)] for _ in range(rng.randint(0, 6))] + [
                [1.0] * n
            ]
        case 4:
            lower = [[rng.gauss(0, 1) if j < i else 0.0 for j in range(n)] for i in range(n)]
            return [
                [v if i != j else scale(rng, -2, 2) for j, v in enumerate(row)] for i, row in enumerate(lower)
            ]
    return [[rng.gauss(0, scale(rng, -3, 3)) for _ in range(n)] for _ in range(rng.randint(1, 9))]


def matrix_mechanism(rng: Draw) -> Any:
    if rng.random() < 0.05:  # patterns that are too many to list
        return md.MatrixMechanism(
            md.Workload.prefix_sums(rng.randint(30, 31)), approximate(rng),
            participation=md.noise.Participation(8, apart=3), most=scale(rng, -2, 2),
        )  # fmt: skip
    asked = md.Workload(workload(rng))
    notion = rng.choice([approximate, zcdp])(rng)
    often: dict[str, Any] = {"l0": rng.randint(1, min(asked.size, 4))}
    if rng.random() < 0.3:
        step = rng.randint(1, asked.size)
        times = rng.randint(1, min(4, -(-asked.size // step)))
        often = {"participation": md.noise.Participation(times, **{rng.choice(["apart", "every"]): step})}
    return md.MatrixMechanism(
        asked, notion, **often, most=scale(rng, -2, 2), signed=rng.random() < 0.5,
        loss=rng.choice(["total", "total", "largest"]),
    )  # fmt: skip


def many_noise(rng: Draw) -> Any:
    if rng.random() < 0.15:
        notion: Any = md.PureDP(scale(rng, -1, 1.3))
    else:
        notion = md.ApproximateDP(scale(rng, -1, 1), scale(rng, -9, -1))
    return md.OptimalNoise(
        notion, sensitivity=scale(rng, -2, 2), loss=rng.choice(["absolute", "squared"]), dimension=rng.choice([2, 3, 5, 20])
    )  # fmt: skip


def whole_noise(rng: Draw) -> Any:
    notion = rng.choice(
        [md.PureDP(scale(rng, -1, 1)), md.ApproximateDP(scale(rng, -1, 0.7), scale(rng, -6, -1))]
    )
    return md.OptimalNoise(
        notion, sensitivity=rng.choice([1, 1, 2, 3, 2.5]), loss=rng.choice(["absolute", "squared"]), integer=True
    )  # fmt: skip


def bounded_count(rng: Draw) -> Any:
    n = rng.randint(1, 8)
    notion = rng.choice(
        [md.PureDP(scale(rng, -1, 1)), md.ApproximateDP(scale(rng, -1, 0.7), scale(rng, -4, -0.5))]
    )
    prior = rng.choice([None, [scale(rng, -2, 0) for _ in range(n + 1)]])
    weights = None if prior is None else [p / sum(prior) for p in prior]
    return md.BoundedCount(n, notion, rng.choice(["absolute", "squared"]), rng.randint(1, min(n, 3)), weights)


def local_workload(rng: Draw) -> Any:
    """Few categories, all of whose rays are listed; now and then as many as take the relaxation."""
    epsilon = md.PureDP(scale(rng, -1.5, 0.9))
    if rng.random() < 0.05:
        return md.LocalWorkload(md.Workload.ranges(rng.choice([17, 18])), epsilon)
    k, w, data = rng.randint(2, 6), md.Workload, rng.choice(["average", "average", "worst"])
    asked = rng.choice(
        [
            w.identity(k),
            w.prefix_sums(k),
            w.ranges(k),
            w.marginals((2, rng.randint(2, 3)), order=1),
            [[float(rng.randint(-2, 2)) for _ in range(k - 1)] + [3.0] for _ in range(rng.randint(1, 3))],
            [[scale(rng, -2, 2) for _ in range(k)] for _ in range(rng.randint(1, k))],
        ]
    )
    size = md.Workload(asked).size
    outputs = rng.choice([None, None, None, size + rng.randint(0, 5)])
    return md.LocalWorkload(asked, epsilon, data, outputs)


def radial_staircase(rng: Draw) -> Any:
    """Budgets at which noise in levels of a norm costs less than noise that falls smoothly, and norms that are hulls of changes."""
    size = rng.choice([2, 3, 4])
    bounds: dict[str, Any] = {"linf": scale(rng, -2, 2)}
    if rng.random() < 0.5:
        bounds = {"each": [scale(rng, -1, 1) for _ in range(size)]}
    if rng.random() < 0.4:
        bounds["l0"] = rng.randint(1, size)
    signed = rng.random() < 0.6
    return md.noise.KNorm(
        size, md.PureDP(rng.uniform(1, 12)), md.Sensitivity(**bounds, signed=signed), loss=rng.choice(["squared", "absolute"])
    )  # fmt: skip


def listed_norm(rng: Draw) -> Any:
    """Noise of the hull of a list of changes, whole numbers often: faces of many vertices, repeated and inner changes."""
    size = rng.choice([2, 2, 3, 4])
    unit = scale(rng, -2, 2)
    whole = rng.random() < 0.6
    rows = [
        [unit * (rng.randint(-3, 3) if whole else rng.uniform(-1, 1)) for _ in range(size)]
        for _ in range(rng.randint(size, size + 5))
    ]
    rows += [[unit * (i == j) for j in range(size)] for i in range(size)]
    return md.noise.KNorm(
        size, pure(rng), rows, loss=rng.choice(["squared", "absolute"]), rounds=rng.choice([1, 3])
    )


def sphere(rng: Draw) -> Any:
    bits = rng.randint(1, 6)
    size = rng.choice([max(2, 2**bits - 1), 2**bits + rng.randint(1, 40), 300])
    return md.SphereQuantizer(
        size, bits, md.PureDP(scale(rng, -3, 2.6)), inputs=rng.choice(["ball", "sphere"]), radius=scale(rng, -2, 2),
        rotation=rng.choice(["exact", "exact", "fast"]),
    )  # fmt: skip


def directions(rng: Draw) -> Any:
    size, inputs = rng.choice([2, 3, 10, 30, 300]), rng.choice(["ball", "sphere"])
    return md.RandomDirections(
        size, rng.randint(1, 6), md.PureDP(scale(rng, -3, 2.6)), rng.choice([1, 1, 2, 3]), inputs, scale(rng, -2, 2)
    )  # fmt: skip


def cap(rng: Draw) -> Any:
    size = rng.choice([2, 3, 10, rng.randint(2, 5000)])
    return md.PrivUnit(
        size, md.PureDP(scale(rng, -3, 2.6)), inputs=rng.choice(["ball", "sphere"]), radius=scale(rng, -2, 2)
    )


def sampled(rng: Draw) -> Any:
    size = rng.choice([2, 3, 10, 100])
    count = rng.choice([None, None, rng.randint(1, size)])
    bits = rng.choice([None, 1, rng.randint(1, 2 * size)])
    if count is not None and bits is not None:
        bits = max(bits, count)
    return md.SampledCoordinates(
        size, bits, md.PureDP(scale(rng, -2, 2)), inputs=rng.choice(["box", "ball"]), radius=scale(rng, -2, 2), count=count
    )  # fmt: skip


def vector(rng: Draw) -> Any:
    return md.VectorQuantizer(
        rng.choice([2, 3, 10, rng.randint(2, 400)]), md.PureDP(scale(rng, -3, 2.6)), bits=rng.choice([None, 1, 2, 3, 6]),
        inputs=rng.choice(["ball", "sphere", "box"]), radius=scale(rng, -2, 2), rotation=rng.choice(["exact", "fast"]),
    )  # fmt: skip


def user_histogram(rng: Draw) -> Any:
    """So small that a user's data can be enumerated."""
    where = space(rng)
    while where.size > 4:
        where = space(rng)
    privacy = md.EMDPrivacy(scale(rng, -1, 1.5), rng.choice([0.0, 1e-6]))
    return md.UserHistogram(where, privacy, rng.randint(1, 3), rng.randint(1, 50), "tree")


LAWS = ("gaussian", "laplace", "logistic", "flipped_huber", "osgt", "gennorm", "staircase", stats.hypsecant())


def bounded_calibration(rng: Draw) -> Any:
    size = rng.choice([1, 2, 3, 6])
    notion = rng.choice([pure, approximate, approximate, zcdp])(rng)
    lossless = ("laplace", "logistic", "staircase")
    law = rng.choice(lossless if isinstance(notion, md.PureDP) else LAWS)
    return md.Calibration(law, notion, sensitivity(rng, size), dimension=size, rounds=rng.choice([1, 1, 3]))


def bounded_allocation(rng: Draw) -> Any:
    size, noise = rng.randint(1, 6), rng.choice(["gaussian", "laplace"])
    notion = pure(rng) if noise == "laplace" else rng.choice([approximate, zcdp])(rng)
    bounds = sensitivity(rng, size, listed=rng.random() < 0.7)
    return Bounded(md.NoiseAllocation.of_sensitivity(noise, bounds, size, notion), bounds)


def bounded_covariance(rng: Draw) -> Any:
    size = rng.randint(1, 5)
    bounds = sensitivity(rng, size, listed=True)
    if rng.random() < 0.2:
        bounds = md.Sensitivity(l1=scale(rng, -2, 2), signed=rng.random() < 0.5)
    return Bounded(md.CorrelatedGaussian.of_sensitivity(bounds, size, approximate(rng)), bounds)


def plan(rng: Draw) -> Any:
    neighbours = rng.choice(["add-remove", "replace"])
    kinds: list[Callable[[], Any]] = [
        lambda: md.Histogram(n := rng.randint(1, 40), rng.randint(1, min(n, 3)), whole=rng.random() < 0.5),
        lambda: md.Count(rng.randint(1, 3), whole=rng.random() < 0.5),
        lambda: md.Mean(0.0, scale(rng, -2, 3), n=rng.randint(20, 10**5)),
        lambda: md.Sum(scale(rng, -2, 3)),
        lambda: md.Sum([1.0, 2.0], values=[rng.uniform(0, 3) for _ in range(3)], n=rng.randint(1, 99)),
        lambda: md.Workload.prefix_sums(rng.randint(1, 9)),
    ]
    tasks = {f"t{k}": rng.choice(kinds)() for k in range(rng.randint(1, 4))}
    notion = rng.choice([pure, approximate, zcdp, lambda rng: md.GaussianDP(scale(rng, -2, 1))])(rng)
    weights = {name: scale(rng, -4, 0) for name in tasks}
    return md.Plan(tasks, notion, weights=weights, rounds=rng.choice([1, 1, 4]), neighbours=neighbours)


def points(rng: Draw) -> Any:
    """An advantage, or several points at once; a δ of 0 now and then."""
    eta = rng.uniform(0.02, 0.9)
    if rng.random() < 0.3:
        return md.MembershipAdvantage(eta)
    more = [(scale(rng, -1, 0.7), scale(rng, -6, -1)) for _ in range(rng.randint(1, 3))]
    return md.TradeOff([(0.0, eta), *more][rng.randint(0, 1) :])


def noise_of_points(rng: Draw) -> Any:
    whole = rng.random() < 0.5
    asked = points(rng)
    if rng.random() < 0.2 and isinstance(asked, md.TradeOff):
        asked = md.TradeOff([*asked.points, (asked.points[-1][0] + 0.5, 0.0)])
    size = rng.choice([1, 2, 2.5]) if whole else scale(rng, -2, 2)
    return md.OptimalNoise(asked, size, rng.choice(["absolute", "squared"]), integer=whole)


def allocation_of_points(rng: Draw) -> Any:
    lam = [scale(rng, -1, 1) for _ in range(rng.choice([1, 2, 3, 6]))]
    return md.NoiseAllocation(rng.choice(["laplace", "mixed"]), lam, points(rng), loss=rng.choice([1, 2]))


LATER: dict[str, Callable[[random.Random], Any]] = {
    "NoiseAllocation(mixed)": mixed,
    "KNorm": k_norm,
    "MatrixMechanism": matrix_mechanism,
    "OptimalNoise(dimension)": many_noise,
    "OptimalNoise(integer)": whole_noise,
    "OptimalNoise(TradeOff)": noise_of_points,
    "NoiseAllocation(TradeOff)": allocation_of_points,
    "BoundedCount": bounded_count,
    "KNorm(listed)": listed_norm,
    "LocalWorkload": local_workload,
    "KNorm(staircase)": radial_staircase,
    "SphereQuantizer": sphere,
    "RandomDirections": directions,
    "PrivUnit": cap,
    "SampledCoordinates": sampled,
    "VectorQuantizer": vector,
    "UserHistogram": user_histogram,
    "Calibration(Sensitivity)": bounded_calibration,
    "NoiseAllocation(Sensitivity)": bounded_allocation,
    "CorrelatedGaussian(Sensitivity)": bounded_covariance,
    "Plan": plan,
}

OFTEN = ("KNorm", "KNorm(listed)", "KNorm(staircase)", "BoundedCount", "LocalWorkload", "OptimalNoise(integer)", "OptimalNoise(TradeOff)", "NoiseAllocation(TradeOff)", "MatrixMechanism", "SphereQuantizer", "PrivUnit", "SampledCoordinates", "VectorQuantizer",
         "UserHistogram", "NoiseAllocation(Sensitivity)", "CorrelatedGaussian(Sensitivity)")  # fmt: skip
"""Classes that take milliseconds: drawn three times as often as the others."""

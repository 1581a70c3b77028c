"""Random designs of every class, hostile ones included: solved, certified, verified twice, compared.

    python -m tests.campaign --designs 10000 --seed 0 --store campaign.jsonl

Each design is drawn from its number alone and solved with a time limit of ten seconds; what is finished is stored, and a
killed campaign continues where it was. A claim is false if a verifier refuses it, if a value is below that of an
independent linear program, or a lower bound above a mechanism that is known to be feasible.
"""

from __future__ import annotations

import argparse
import math
import random
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize, stats

import mechdesign as md
from mechdesign.evidence import verify
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.files import KINDS
from mechdesign.runs.store import Store
from mechdesign.typing import Status

SECONDS = 60.0
LIMIT = 10.0


class Hang(BaseException):
    """A design that was not done with in a minute."""


def scale(rng: random.Random, low: float, high: float) -> float:
    """A number between two powers of ten, their ends included now and then."""
    return rng.choice([10**low, 10**high]) if rng.random() < 0.1 else 10 ** rng.uniform(low, high)


def pure(rng: random.Random) -> Any:
    return md.PureDP(scale(rng, -2, 1.3))


def approximate(rng: random.Random) -> Any:
    return md.ApproximateDP(scale(rng, -1.5, 1), scale(rng, -12, -0.5))


def bins(rng: random.Random, epsilon: float) -> list[float]:
    """Outputs: even, random, nearly symmetric, or a hair around the least range that is feasible."""
    m, reach = rng.randint(2, 12), (math.exp(epsilon) + 1) / math.expm1(epsilon)
    outer = reach * rng.choice([1.0, 1 + 1e-9, 1 - 1e-9, 1.01, 1.5, rng.uniform(1, 5)])
    inner = sorted(rng.uniform(-outer, outer) for _ in range(m - 2))
    match rng.randrange(3):
        case 0:
            return np.linspace(-outer, outer, m).tolist()
        case 1:
            return [-outer, *inner, outer]
    half = sorted(abs(b) for b in inner[: (m - 2) // 2])
    return [-outer, *(-b for b in half[::-1]), *(b * (1 + rng.choice([0.0, 1e-9])) for b in half), outer]


def prior(rng: random.Random) -> Any:
    """Uniform, narrow, spiked, far out, U-shaped, or samples."""
    centre, width = rng.uniform(-0.9, 0.9), scale(rng, -4, 0)
    match rng.randrange(7):
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
    return md.truncated(stats.laplace(centre, width), -1, 1)


def loss(rng: random.Random) -> Any:
    return rng.choice(["absolute", "squared", {"absolute": 1.0, "squared": rng.uniform(0, 2)}])


def space(rng: random.Random) -> Any:
    n = rng.randint(2, 7)
    match rng.randrange(4):
        case 0:
            return md.MetricSpace.grid(rng.randint(1, 3), rng.randint(2, 3))
        case 1:
            return md.MetricSpace.line(sorted({rng.uniform(0, scale(rng, -2, 1)) for _ in range(n)} | {0.0}))
        case 2:
            return md.MetricSpace.clustered(
                rng.randint(2, 3), rng.randint(1, 3), within=rng.uniform(0.01, 0.9)
            )
    return md.MetricSpace.euclidean([[rng.gauss(0, 1), rng.gauss(0, 1)] for _ in range(n)])


def family(rng: random.Random, **axes: tuple[float, float]) -> Any:
    return md.Grid(**{name: sorted({rng.uniform(*ends) for _ in range(4)}) for name, ends in axes.items()})


def optm(rng: random.Random) -> Any:
    notion = pure(rng)
    return md.OPTM(bins(rng, notion.epsilon), notion, prior(rng), loss(rng))


def optimal_quantizer(rng: random.Random) -> Any:
    notion = pure(rng)
    more = rng.choice(
        [{}, {}, {"objective": "worst"}, {"max_bias": rng.uniform(0, 1.5)}, {"max_mse": rng.uniform(0.1, 9)}]
    )
    return md.OptimalQuantizer(bins(rng, notion.epsilon), notion, prior(rng), loss(rng), **more)


def metric_quantizer(rng: random.Random) -> Any:
    metric = rng.choice(["absolute", "squared"])
    notion = md.MetricDP(scale(rng, -0.5, 1), metric)
    inputs = np.linspace(-1, 1, rng.randint(2, 17)) if metric == "squared" else None
    return md.MetricQuantizer(
        bins(rng, max(notion.epsilon, 0.5)), notion, prior(rng), loss(rng), inputs=inputs
    )


def allocation(rng: random.Random) -> Any:
    noise = rng.choice(["laplace", "gaussian"])
    notion = (
        pure(rng)
        if noise == "laplace"
        else rng.choice([approximate(rng), md.ZeroConcentratedDP(scale(rng, -4, 1))])
    )
    lam = [
        rng.choice([0.0, scale(rng, -6, 6)]) if rng.random() < 0.2 else scale(rng, -2, 2)
        for _ in range(rng.randint(1, 30))
    ]
    return md.NoiseAllocation(noise=noise, sensitivities=lam, privacy=notion, loss=rng.choice([1, 2]))


def correlated(rng: random.Random) -> Any:
    k = rng.randint(1, 6)
    rows = [[rng.gauss(0, scale(rng, -3, 3)) for _ in range(k)] for _ in range(rng.randint(1, 12))]
    return md.CorrelatedGaussian(vectors=rows, privacy=approximate(rng))


def calibration(rng: random.Random) -> Any:
    name = rng.choice(["laplace", "gaussian", "logistic", "flipped_huber", "truncated_laplace"])
    return md.noise.Calibration(
        name, privacy=approximate(rng), sensitivity=scale(rng, -3, 3), dimension=rng.randint(1, 3)
    )


CLASSES: dict[str, Callable[[random.Random], Any]] = {
    "OPTM": optm,
    "OptimalQuantizer": optimal_quantizer,
    "MetricQuantizer": metric_quantizer,
    "RQM": lambda rng: md.RQM(rng.randint(2, 8), pure(rng), prior(rng), loss(rng), grid=family(rng, delta=(0.1, 9), q=(0.05, 0.9))),
    "ERM": lambda rng: md.ERM(
        4, pure(rng), prior(rng), loss(rng), grid=family(rng, delta=(0.1, 9), inner=(0.05, 0.9), gamma=(0.01, 2))
    ),
    "MVU": lambda rng: md.MVU(m=rng.randint(2, 6), privacy=pure(rng), input_range=(-1, 1)),
    "BiasedSelection": lambda rng: md.BiasedSelection(
        4, pure(rng), prior(rng), loss(rng), max_bias=rng.uniform(0, 2), grid=family(rng, delta=(0.1, 3), q=(0.1, 0.9), beta=(0, 0.9))
    ),
    "NoiseAllocation": allocation,
    "CorrelatedGaussian": correlated,
    "Calibration": calibration,
    "OptimalNoise": lambda rng: md.OptimalNoise(
        privacy=approximate(rng), sensitivity=scale(rng, -2, 2), loss=rng.choice(["absolute", "squared"])
    ),
    "MetricChannel": lambda rng: md.MetricChannel(space(rng), alpha=scale(rng, -1.5, 1)),
}  # fmt: skip


def channel_optimum(design: Any) -> float:
    """The linear program of a metric channel, by SciPy's own interface."""
    distances, weights, losses = (
        design.space.distances,
        design.weights / np.sum(design.weights),
        design.losses,
    )
    n = len(distances)
    rows, at = [], 0
    for x in range(n):
        for z in range(n):
            if x != z:
                for y in range(n):
                    row = np.zeros((n, n))
                    row[x, y], row[z, y] = 1.0, -math.exp(min(700.0, design.alpha * distances[x, z]))
                    rows.append(row.ravel() / max(1.0, -row[z, y]))
                    at += 1
    sums = np.kron(np.eye(n), np.ones(n))
    found = optimize.linprog(
        (weights[:, None] * losses).ravel(),
        np.array(rows),
        np.zeros(len(rows)),
        sums,
        np.ones(n),
        bounds=(0, 1),
    )
    return float(found.fun) if found.status == 0 else math.nan


def false_claim(design: Any, result: md.Result) -> str | None:
    """What is wrong with a result, None if nothing is seen."""
    table = result.checks()
    if result.status is not Status.UNCERTIFIED and not table["holds"].all():
        return f"does not hold: {table['claim'][~table['holds']].iloc[0]}"
    text = dumps(result)
    if dumps(loads(text, kinds=KINDS)) != text:
        return "a file that is read back to other bytes"
    if result.status is not Status.UNCERTIFIED:
        try:
            rows = verify.verify(text).rows
        except verify.NotCovered:
            rows = []
        if not all(holds for *_, holds in rows):
            return f"the stand-alone verifier: {next(claim for claim, _, holds in rows if not holds)}"
    bound = result.lower_bound
    if result.status is Status.OPTIMAL and (bound is None or not math.isfinite(bound)):
        return "optimal without a lower bound"
    if bound is not None and bound > result.value * (1 + 1e-9) + 1e-300:
        return "a lower bound above the value"
    if isinstance(design, md.MetricChannel) and bound is not None:
        least = channel_optimum(design)
        if bound > least * (1 + 1e-6) + 1e-9:
            return f"a lower bound {bound} above the optimum {least}"
        if result.value < least * (1 - 1e-6) - 1e-9:
            return f"a value {result.value} below the optimum {least}"
    if (
        isinstance(design, md.OptimalQuantizer)
        and design.objective == "mean"
        and design.max_mse is None
        and bound is not None
    ):
        try:
            known = (
                md.OPTM(design.bins, design.privacy, design.prior, design.loss).solve(time_limit=LIMIT).value
            )
        except md.MechdesignError:
            return None
        if bound > known * (1 + 1e-9):
            return f"a lower bound {bound} above what OPTM reaches, {known}"
    return None


def examined(seed: int, number: int) -> dict[str, Any]:
    """One design: its class, how it ended, its status, the seconds it took."""
    rng = random.Random(f"{seed}/{number}")
    name = rng.choice(list(CLASSES))
    started, status, ended = time.perf_counter(), "", "fine"

    def stop(*_: Any) -> None:
        raise Hang

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        design = CLASSES[name](rng)
        result = design.solve(time_limit=LIMIT)
        status = str(result.status)
        problem = false_claim(design, result)
        ended = "fine" if problem is None else f"FALSE: {problem}"
    except md.InfeasibleError:
        ended = "infeasible"
    except md.SolverError:
        ended = "no answer"
    except md.DesignError:
        ended = "refused"
    except Hang:
        ended = "HANG"
    except Exception as error:
        ended = f"EXCEPTION: {type(error).__name__}: {error!s:.150}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return {
        "class": name,
        "ended": ended,
        "status": status,
        "seconds": round(time.perf_counter() - started, 2),
    }


def campaign(designs: int, seed: int, store: str | None, show: Callable[[str], None] = print) -> pd.DataFrame:
    """Examine so many designs; return counts by class and end."""
    kept = None if store is None else Store(store, {"campaign": 1, "seed": seed})
    rows = list(kept.chunks[:designs]) if kept is not None else []
    for number in range(len(rows), designs):
        row = examined(seed, number)
        rows.append(row)
        if kept is not None:
            kept.append(row)
        if row["ended"].partition(":")[0] in ("FALSE", "EXCEPTION", "HANG"):
            show(f"{seed}/{number} {row['class']}: {row['ended']} ({row['seconds']} s)")
    table = pd.DataFrame(rows)
    table["ended"] = table["ended"].str.partition(":")[0]
    return table.groupby(["class", "ended"]).size().unstack(fill_value=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--designs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", help="file that finished designs are kept in; a killed campaign continues")
    parser.add_argument("--table", help="write the counts as CSV")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    counts = campaign(given.designs, given.seed, given.store)
    print(counts.to_string())
    if given.table:
        counts.to_csv(given.table)
    bad = Counter(
        {name: int(counts[name].sum()) for name in ("FALSE", "EXCEPTION", "HANG") if name in counts}
    )
    print(f"{int(counts.to_numpy().sum())} designs, {dict(bad) or 'no false claim, no exception, no hang'}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

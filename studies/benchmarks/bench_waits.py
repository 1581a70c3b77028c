"""Nothing that waits: what a time limit of two seconds is worth over every design's documented range.

Run with ``python -m studies.benchmarks.bench_waits`` where the repository is. Hand-picked corners, and draws of a frozen
seed over the documented ranges. Each case is a process of its own, ended from outside where it hangs (``--hard`` times the
limit), so that one does not hold up the others. Printed: the slowest, seconds over the limit, and how they ended. Bar: twice
the limit and a second.
"""

from __future__ import annotations

import argparse
import fnmatch
import multiprocessing
import random
import resource
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

import mechdesign as md

SEED = 136
Case = Callable[[float], Any]
CASES: dict[str, Case] = {}
SHAPED = ("gennorm", "flipped_huber", "osgt")
FAMILIES = ("gaussian", "laplace", "logistic", *SHAPED, "truncated_laplace", "staircase", "discrete_laplace",
            "discrete_gaussian")  # fmt: skip
LAWS = {"hypsecant": stats.hypsecant(), "gennorm1.5": stats.gennorm(1.5), "truncnorm": stats.truncnorm(-3, 3)}
UNIFORM = stats.uniform(-1, 2)
CORNERS = [(1e-3, 1e-15), (1e-6, 1e-12), (0.1, 1e-6), (1.0, 1e-3), (1.0, 1e-9), (10.0, 1e-15), (50.0, 1e-12)]


def drawn(name: str) -> random.Random:
    return random.Random(f"{SEED}/{name}")


def log_uniform(rng: random.Random, low: float, high: float) -> float:
    return float(10 ** rng.uniform(low, high))


def notion(rng: random.Random) -> Any:
    return md.ApproximateDP(log_uniform(rng, -3, 1.7), log_uniform(rng, -15, -3))


def solved(make: Callable[[], Any], **options: Any) -> Case:
    """A design, built and solved within the limit."""
    return lambda limit: make().solve(time_limit=limit, **options)


def calibrations() -> None:
    noises = {**{name: name for name in FAMILIES}, **LAWS}
    for name, noise in noises.items():
        for epsilon, delta in CORNERS[::2] + [(1.0, 1e-9)]:
            for k in (1, 3, 1000, 10**6):
                CASES[f"calibrate {name} K={k} ({epsilon:g}, {delta:g})"] = solved(
                    lambda noise=noise, epsilon=epsilon, delta=delta, k=k: md.Calibration(
                        noise, md.ApproximateDP(epsilon, delta), 1, dimension=k
                    )
                )
        for rounds, rate in ((10**5, 1.0), (100, 0.1), (10_000, 1e-3), (10**5, 1e-2)):
            CASES[f"calibrate {name} rounds={rounds} q={rate:g}"] = solved(
                lambda noise=noise, rounds=rounds, rate=rate: md.Calibration(
                    noise, md.ApproximateDP(1.0, 1e-6), 1, rounds=rounds, sampling_rate=rate
                )
            )
        CASES[f"calibrate {name} zcdp"] = solved(
            lambda noise=noise: md.Calibration(noise, md.ZeroConcentratedDP(0.1), 1, dimension=3)
        )
        CASES[f"calibrate {name} bounds"] = solved(
            lambda noise=noise: md.Calibration(
                noise, md.ApproximateDP(0.5, 1e-8), md.Sensitivity(linf=1, l1=5, l2=2), dimension=100
            )
        )
    for i in range(60):
        rng = drawn(f"calibrate {i}")
        name = rng.choice(list(noises))
        privacy, k = notion(rng), round(log_uniform(rng, 0, 6))
        CASES[f"calibrate {name} K={k} ({privacy.epsilon:.3g}, {privacy.delta:.3g}) #{i}"] = solved(
            lambda name=name, privacy=privacy, k=k: md.Calibration(noises[name], privacy, 1, dimension=k)
        )


def optimal_noise() -> None:
    for epsilon, delta in [*CORNERS, (1e-6, 0.0), (1e-3, 0.0), (20.0, 0.0), (50.0, 1e-12), (20.0, 1e-9)]:
        privacy = md.ApproximateDP(epsilon, delta) if delta else md.PureDP(epsilon)
        for k in (1, 2, 3, 20, 1000, 10**6):
            for loss in ("squared", "absolute") if k in (1, 3) else ("squared",):
                CASES[f"OptimalNoise K={k} ({epsilon:g}, {delta:g}) {loss}"] = solved(
                    lambda privacy=privacy, k=k, loss=loss: md.OptimalNoise(privacy, loss=loss, dimension=k)
                )
    CASES["OptimalNoise K=4 callable"] = solved(
        lambda: md.OptimalNoise(md.ApproximateDP(1, 1e-6), loss=lambda t: abs(t) ** 1.5, dimension=4)
    )


def vectors_of_noise() -> None:
    rng = np.random.default_rng(SEED)
    for k in (1, 30, 10**4, 10**6):
        lam = 10 ** rng.uniform(-3, 3, k)
        for noise, privacy in (
            ("laplace", md.PureDP(1.0)), ("laplace", md.PureDP(1e-3)), ("gaussian", md.ApproximateDP(1.0, 1e-6)),
            ("gaussian", md.ApproximateDP(1e-3, 1e-15)), ("mixed", md.ApproximateDP(1.0, 1e-6)),
            ("mixed", md.ApproximateDP(10.0, 1e-12)), ("laplace", md.ApproximateDP(1.0, 1e-6)),
        ):  # fmt: skip
            CASES[f"NoiseAllocation {noise} K={k} {privacy}"] = solved(
                lambda noise=noise, lam=lam, privacy=privacy: md.NoiseAllocation(noise, lam, privacy)
            )
        CASES[f"NoiseAllocation groups K={k}"] = solved(
            lambda lam=lam, k=k: md.NoiseAllocation(
                "gaussian", lam, md.ApproximateDP(1.0, 1e-6), groups=np.array_split(np.arange(k), min(k, 50))
            )
        )
    for n, k in ((2, 2), (12, 6), (300, 20), (1000, 50), (3000, 30), (200, 200), (5000, 5)):
        rows = rng.normal(size=(n, k)) * 10 ** rng.uniform(-2, 2, (n, 1))
        for eps, delta in ((1.0, 1e-6), (1e-3, 1e-15)):
            CASES[f"CorrelatedGaussian {n} x {k} ({eps:g}, {delta:g})"] = solved(
                lambda rows=rows, eps=eps, delta=delta: md.CorrelatedGaussian(
                    vectors=rows, privacy=md.ApproximateDP(eps, delta)
                )
            )
    for n in (2, 64, 300, 700):
        for c in sorted({1, n // 2, n}):
            for signed in (True, False):
                CASES[f"CountsGaussian n={n} c={c} signed={signed}"] = solved(
                    lambda n=n, c=c, signed=signed: md.CountsGaussian(
                        n, c, md.ApproximateDP(1e-3, 1e-12), signed=signed
                    )
                )
    workload = md.Workload
    for name, make in {
        "prefix 20": lambda: workload.prefix_sums(20), "prefix 256": lambda: workload.prefix_sums(256),
        "prefix 1024": lambda: workload.prefix_sums(1024), "prefix 2000": lambda: workload.prefix_sums(2000),
        "ranges 64": lambda: workload.ranges(64), "dense 300": lambda: workload(rng.normal(size=(300, 200))),
    }.items():  # fmt: skip
        for error in ("total", "largest"):
            CASES[f"MatrixMechanism {name} {error}"] = solved(
                lambda make=make, error=error: md.MatrixMechanism(
                    make(), md.ApproximateDP(1.0, 1e-6), loss=error
                )
            )
    for k in (1, 100, 10**4, 10**6):
        for eps in (1e-4, 1.0, 100.0):
            CASES[f"KNorm k={k} eps={eps:g}"] = solved(
                lambda k=k, eps=eps: md.noise.KNorm(
                    k, md.PureDP(eps), md.Sensitivity(linf=1, l0=max(1, k // 3)), loss="absolute"
                )
            )


def local_reports() -> None:
    for d in (2, 100, 10**4, 10**6):
        for eps in (0.01, 1.0, 10.0, 40.0):
            for inputs in ("ball", "box"):
                CASES[f"VectorQuantizer d={d} eps={eps:g} {inputs}"] = solved(
                    lambda d=d, eps=eps, inputs=inputs: md.VectorQuantizer(d, md.PureDP(eps), inputs=inputs)
                )
            CASES[f"PrivUnit d={d} eps={eps:g}"] = lambda _, d=d, eps=eps: (
                md.PrivUnit(d, md.PureDP(eps)).error
            )
    for m in (2, 8, 24, 64, 128):
        outputs = np.linspace(-8, 8, m).tolist()
        for eps in (0.3, 1.0, 6.0):
            private = md.PureDP(eps)
            for name, make in {
                "OptimalQuantizer": lambda o=outputs, p=private: md.OptimalQuantizer(o, p, UNIFORM),
                "OptimalQuantizer worst": lambda o=outputs, p=private: md.OptimalQuantizer(o, p, UNIFORM, objective="worst"),
                "OPTM": lambda o=outputs, p=private: md.OPTM(o, p, UNIFORM),
                "MetricQuantizer": lambda o=outputs, e=eps: md.MetricQuantizer(o, md.MetricDP(e), UNIFORM),
                "MetricQuantizer squared": lambda o=outputs, e=eps: md.MetricQuantizer(
                    o, md.MetricDP(e, "squared"), UNIFORM, inputs=np.linspace(-1, 1, 21)
                ),
                "MetricQuantizer delta": lambda o=outputs, e=eps: md.MetricQuantizer(
                    o, md.ApproximateDP(e, 1e-6), UNIFORM, inputs=np.linspace(-1, 1, 21)
                ),
                "MVU": lambda o=outputs, p=private: md.MVU(m=len(o), privacy=p, input_range=(-1, 1), bins=o),
            }.items():  # fmt: skip
                CASES[f"{name} m={m} eps={eps:g}"] = solved(make)
    outputs, inputs = np.linspace(-8, 8, 128).tolist(), np.linspace(-1, 1, 1000)
    for eps in (1.0, 6.0):
        for name, privacy in {
            "pure": md.PureDP(eps), "metric": md.MetricDP(eps), "squared": md.MetricDP(500 * eps, "squared"),
            "delta": md.ApproximateDP(eps, 1e-6),
        }.items():  # fmt: skip
            for objective in ("mean", "worst"):
                CASES[f"MetricQuantizer 1000 x 128 {name} {objective} eps={eps:g}"] = solved(
                    lambda p=privacy, o=outputs, x=inputs, objective=objective: md.MetricQuantizer(
                        o, p, UNIFORM, inputs=x, objective=objective
                    )
                )
    for m in (2, 4, 8, 16):
        for eps in (0.5, 1.0, 4.0):
            private = md.PureDP(eps)
            CASES[f"BinSearch m={m} eps={eps:g}"] = solved(
                lambda m=m, p=private: md.OptimalQuantizer(md.BinSearch(m, 8.0), p, UNIFORM)
            )
            CASES[f"BinSearch wide m={m} eps={eps:g}"] = solved(
                lambda m=m, p=private: md.OptimalQuantizer(md.BinSearch(m, 8e4), p, UNIFORM)
            )
            CASES[f"RQM m={m} eps={eps:g}"] = solved(lambda m=m, p=private: md.RQM(m, p, UNIFORM))
            CASES[f"MVU search m={m} eps={eps:g}"] = solved(
                lambda m=m, p=private: md.MVU(m=m, privacy=p, input_range=(-1, 1))
            )
            CASES[f"BiasedSelection m={m} eps={eps:g}"] = solved(
                lambda m=m, p=private: md.BiasedSelection(m, p, UNIFORM, max_bias=0.5)
            )
        CASES[f"Alphabet 1/{m * 40}"] = solved(
            lambda m=m: md.OptimalQuantizer(md.Alphabet(8.0, 8.0 / (m * 40)), md.PureDP(1.0), UNIFORM)
        )
    for eps in (0.5, 1.0, 4.0):
        CASES[f"ERM eps={eps:g}"] = solved(lambda eps=eps: md.ERM(4, md.PureDP(eps), UNIFORM))
        CASES[f"OPTMSearch eps={eps:g}"] = solved(lambda eps=eps: md.OPTMSearch(md.PureDP(eps), UNIFORM))


def channels() -> None:
    rng = np.random.default_rng(SEED)
    spaces = {
        "grid 3 x 3": lambda: md.MetricSpace.grid(3, 3), "grid 7 x 7": lambda: md.MetricSpace.grid(7, 7),
        "grid 12 x 12": lambda: md.MetricSpace.grid(12, 12), "line 400": lambda: md.MetricSpace.line(range(400)),
        "line 50": lambda: md.MetricSpace.line(np.geomspace(1e-3, 1e4, 50).tolist()),
        "plane 60": lambda: md.MetricSpace.euclidean(rng.normal(size=(60, 2))),
        "plane 150": lambda: md.MetricSpace.euclidean(rng.normal(size=(150, 2))),
    }  # fmt: skip
    for name, space in spaces.items():
        for alpha in (1e-2, 1.0, 20.0):
            CASES[f"MetricChannel {name} alpha={alpha:g}"] = solved(
                lambda space=space, alpha=alpha: md.MetricChannel(space(), alpha=alpha)
            )


def tasks() -> None:
    for k in (1, 3, 20, 1000, 10**6):
        for privacy in (md.ApproximateDP(1.0, 1e-6), md.ApproximateDP(1e-3, 1e-12), md.PureDP(1.0)):
            CASES[f"compare K={k} {privacy}"] = lambda limit, k=k, privacy=privacy: md.compare(
                md.NumericQuery(sensitivity=md.Sensitivity(linf=1), dimension=k), privacy, time_limit=limit
            )
    CASES["compare report"] = lambda limit: md.compare(
        md.LocalReport(bits=2, prior=UNIFORM), md.PureDP(1.0), time_limit=limit
    )


GROUPS = (calibrations, optimal_noise, vectors_of_noise, local_reports, channels, tasks)


def _child(name: str, limit: float, pipe: Any) -> None:
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
    started, worked = time.perf_counter(), time.process_time()
    try:
        found = CASES[name](limit)
        gap = getattr(found, "gap", None)
        ended = str(getattr(found, "status", "done")) + ("" if gap is None else f", gap {gap:.2g}")
    except md.MechdesignError as error:
        ended = f"{type(error).__name__}: {error!s:.60}"
    except BaseException as error:  # whatever else is a fault of its own, and is shown
        ended = f"!! {type(error).__name__}: {error!s:.60}"
    pipe.send((time.perf_counter() - started, time.process_time() - worked, ended))


def timed(name: str, limit: float, hard: float) -> tuple[float, float, str]:
    """Seconds, processor seconds and the end of one case."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(name, limit, there))
    started = time.perf_counter()
    child.start()
    there.close()
    try:
        found = here.recv() if here.poll(hard * limit) else (time.perf_counter() - started, np.nan, "HANG")
    except EOFError:
        found = (time.perf_counter() - started, np.nan, "!! the process ended")
    child.kill()
    child.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", default=["*"], help="patterns of case names")
    parser.add_argument("--limit", type=float, default=2.0, help="seconds for one case")
    parser.add_argument("--hard", type=float, default=15.0, help="times the limit, from which a case hangs")
    parser.add_argument("--show", type=int, default=40)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--log", action="store_true", help="print every case as it ends")
    given = parser.parse_args()
    for group in GROUPS:
        group()
    names = [n for n in CASES if any(fnmatch.fnmatch(n, pattern) for pattern in given.only)]
    if given.list:
        print("\n".join(names))
        return
    for room in ("noise", "quantizers", "channels", "vectors", "solvers", "compare"):
        getattr(md, room)  # imported before any clock starts
    _child(names[0], 60.0, type("", (), {"send": lambda *_: None})())
    rows = []
    for name in names:
        rows.append((name, *timed(name, given.limit, given.hard)))
        if given.log:
            print("{:<64} {:7.2f} s {:7.2f} s  {}".format(*rows[-1]), flush=True)
    late = [r for r in rows if r[1] > 2 * given.limit + 1]
    none = [r for r in rows if r[3].startswith("SolverError")]
    print(
        f"{len(rows)} cases, limit {given.limit:g} s, seed {SEED}: {len(late)} late (2 x limit + 1 s), {len(none)} without an answer"
    )
    print("the slowest, and their seconds over the limit:")
    for name, wall, worked, ended in sorted(rows, key=lambda r: -r[1])[: given.show]:
        print(f"  {wall / given.limit:6.2f} x  {worked:6.2f} s of work  {name:<60} {ended}")
    if none:
        print("without an answer:")
        for name, wall, _, ended in none:
            print(f"  {wall / given.limit:6.2f} x  {name:<60} {ended}")


if __name__ == "__main__":
    main()

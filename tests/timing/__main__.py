"""Single calls of every release on neighbours: how often their time says which of the two it was.

    python -m tests.timing --calls 20000 --table results/timing
    python -m tests.timing --calls 2000 --only Laplace        (all releases whose name begins so)

Calls on the two neighbours come in random order. The threshold, and on which side of it the first neighbour lies, are chosen on one half of the
calls of each and tried on the other, both ways. Who sees a mechanism's answers is right in at most (e^ε + δ)/(1 + e^ε) of
cases; whoever sees the time alone must not be better. ε is .1: at a large one anything passes.

A pair that is told apart more often than that and three standard errors is measured in two further processes, and the median of
the three counts: what the code gives away shows in each of them, what the place of a table in memory gives away in one. Exit status 1 if the
median is larger, too.
"""

import argparse
import gc
import math
import multiprocessing
import pickle
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from mechdesign.typing import Array
from tests.campaign.table import commit, markdown, versions
from tests.timing.releases import EPSILON, RELEASES


def measured(call: Callable[..., object], pair: tuple[object, object], calls: int) -> tuple[Array, Array]:
    """Nanoseconds of that many calls on each of a pair, in random order.

    Each call gets a value of its own, as in deployment: of a value that is kept, its place in memory may tell in a whole run.
    """
    for argument in pair * 20:
        call(argument)
    written = [pickle.dumps(argument) for argument in pair]
    order = np.random.default_rng().permuted(np.tile([0, 1], calls)).tolist()
    taken = np.empty(2 * calls)
    clock = time.perf_counter_ns
    gc.collect()
    gc.disable()
    try:
        for i, which in enumerate(order):
            argument = pickle.loads(written[which])
            start = clock()
            call(argument)
            taken[i] = clock() - start
    finally:
        gc.enable()
    of = np.array(order)
    return taken[of == 0], taken[of == 1]


def threshold(first: Array, second: Array) -> tuple[float, bool]:
    """The time that separates the two best, and whether the first take longer."""
    times = np.concatenate([first, second])
    order = np.argsort(times, kind="stable")
    weights = np.concatenate([np.full(len(first), 1 / len(first)), np.full(len(second), -1 / len(second))])
    ahead = np.cumsum(weights[order])  # of the first, among those no longer than each time
    ahead[:-1][np.diff(times[order]) == 0] = 0.0  # no threshold lies between equal times
    at = int(np.abs(ahead).argmax())
    return float(times[order][at]), bool(ahead[at] < 0)


def told_apart(first: Array, second: Array) -> float:
    """How often the best threshold of one half of the calls is right on the other half, both ways."""
    right = []
    halves = [(first[i::2], second[i::2]) for i in range(2)]
    for chosen, tried in (halves, halves[::-1]):
        at, longer = threshold(*chosen)
        below = np.mean(tried[0] <= at), np.mean(tried[1] > at)
        share = (below[0] + below[1]) / 2
        right.append(1 - share if longer else share)
    return float(np.mean(right))


def allowed(epsilon: float, delta: float, calls: int) -> float:
    """(e^ε + δ)/(1 + e^ε) and three standard errors."""
    share = (math.exp(epsilon) + delta) / (1 + math.exp(epsilon))
    return share + 3 * math.sqrt(share * (1 - share) / (2 * calls))


def table(calls: int, only: str) -> pd.DataFrame:
    """A row for every release and pair, printed as they come."""
    rows = []
    for name, release in RELEASES.items():
        if not name.startswith(only):
            continue
        for pair_name, call, pair in release.calls():
            first, second = measured(call, pair, calls)
            found, most = told_apart(first, second), allowed(EPSILON, release.delta, calls)
            row = {
                "release": name,
                "neighbours": pair_name,
                "calls": calls,
                "median of the first, µs": float(np.median(first)) / 1000,
                "median of the second, µs": float(np.median(second)) / 1000,
                "told apart": found,
                "allowed": most,
                "kept": found <= most,
            }
            rows.append(row)
            numbers = " ".join(
                f"{v:9.4f}" if isinstance(v, float) else str(v) for v in list(row.values())[3:]
            )
            print(f"{name:28} {pair_name:20} {numbers}", flush=True)
    return pd.DataFrame(rows)


def confirmed(found: pd.DataFrame, calls: int) -> pd.DataFrame:
    """The rows, those beyond what is allowed with the median of three processes."""
    found = found.assign(processes=1)
    for row in found.index[~found["kept"]]:
        which = ["release", "neighbours"]
        shares = [found.loc[row, "told apart"]]
        for _ in range(2):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                fresh = pool.apply(table, (calls, found.loc[row, "release"]))
            shares += fresh.loc[(fresh[which] == found.loc[row, which]).all(axis=1), "told apart"].tolist()
        median = float(np.median(shares))
        found.loc[row, ["told apart", "kept", "processes"]] = median, median <= found.loc[row, "allowed"], 3
    return found


def write(found: pd.DataFrame, folder: Path) -> None:
    """Write timing.csv, and README.md with the same table."""
    folder.mkdir(parents=True, exist_ok=True)
    found.round(4).to_csv(folder / "timing.csv", index=False, lineterminator="\n")
    worst, rows = found.loc[(found["told apart"] - found["allowed"]).idxmax()], found.set_index("release")
    about = f"""# Whether the time of a single release tells neighbours apart

Not a study: times of one machine, written by `python -m tests.timing --table results/timing`, which says what is measured;
`.ci/nightly` measures anew. *Calls*: on each of two neighbours, in random order, at ε = {EPSILON}; *told apart*: how often a
threshold that half of the calls choose is right on the other half, the median where it was measured in three processes; *allowed*: (e^ε + δ)/(1 + e^ε)
and three standard errors.

{found["kept"].sum()} of {len(found)} rows are within what is allowed. The nearest to it, or the farthest beyond: {worst["release"]}
({worst["neighbours"]}), {worst["told apart"]:.4f} of {worst["allowed"]:.4f}.

Commit {commit()}, {versions()}, {platform.machine()}.

"""
    shown = rows.round({column: 1 for column in rows if "µs" in column}).round(4)
    (folder / "README.md").write_text(about + markdown(shown))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--table", type=Path)
    asked = parser.parse_args()
    found = confirmed(table(asked.calls, asked.only), asked.calls)
    if asked.table is not None:
        write(found, asked.table)
    return 0 if found["kept"].all() else 1


if __name__ == "__main__":
    # Workers cannot import what a package's __main__ defines as such: their pool waited for ever.
    from tests.timing import __main__ as importable

    sys.exit(importable.main())

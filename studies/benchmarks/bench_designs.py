"""Nothing that waits: how long random designs of every class take, hostile ones included.

Run with ``python -m studies.benchmarks.bench_designs`` where the repository is. The designs are the test campaign's
(`tests.campaign.draws`), each drawn from its number alone. Bar: 95% of 1,000 within a second of processor time, all within
the limit or with a proved gap there. With ``--budget`` it stops early, and says after how many; with ``--only 3,14`` it
takes those alone. ``--output FILE`` writes a line of JSON for each design, value and bound included: two such files tell
what a change gained, and that nothing got worse.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import mechdesign as md
from mechdesign.typing import Status
from tests.campaign.draws import CLASSES

SEED = 13
HARD = 1.5  # times the limit, in processor time, from which a design hangs


class Hang(BaseException):
    """A design that did not keep its limit."""


def timed(number: int, limit: float) -> dict[str, Any]:
    """One design: its number, class, processor and wall seconds, how it ended, value, bound and relative gap."""
    rng = random.Random(f"{SEED}/{number}")
    name = rng.choice(list(CLASSES))

    def stop(*_: Any) -> None:
        raise Hang

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, HARD * limit)
    started, wall = time.process_time(), time.perf_counter()
    gap, value, bound = math.nan, None, None
    try:
        design = CLASSES[name](rng)
        result = design.solve(time_limit=limit) if hasattr(design, "solve") else design
        ended = str(getattr(result, "status", "built"))
        if isinstance(result, md.Result):
            value, bound = result.value, result.lower_bound
            if bound is not None and value > 0:
                gap = 1 - bound / value
    except Hang:
        ended = "HANG"
    except md.MechdesignError as error:
        ended = type(error).__name__
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {
        "number": number, "class": name, "seconds": time.process_time() - started,
        "wall": time.perf_counter() - wall, "ended": ended, "value": value, "bound": bound, "gap": gap,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--designs", type=int, default=1000)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one design")
    parser.add_argument("--budget", type=float, default=math.inf, help="processor seconds for all")
    parser.add_argument("--wall", type=float, default=math.inf, help="seconds for all")
    parser.add_argument("--only", help="the numbers of the designs to take, with commas")
    parser.add_argument("--output", type=Path, help="file for a line of JSON for each design")
    given = parser.parse_args()
    numbers = [int(n) for n in given.only.split(",")] if given.only else range(given.designs)
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    started = time.perf_counter()
    for number in numbers:
        if time.process_time() > given.budget or time.perf_counter() - started > given.wall:
            break
        rows.append(timed(number, given.limit))
        if given.output:
            with given.output.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    quick = sum(row["seconds"] <= 1 for row in rows)
    print(f"{len(rows)} designs in {time.process_time():.0f} s of processor time, seed {SEED}")
    print(f"  within a second: {100 * quick / len(rows):.1f}% (bar: 95%)")
    print("  the slowest:")
    for row in sorted(rows, key=lambda row: -row["seconds"])[:10]:
        print("    #{number:<4} {class:<26} {seconds:>6.2f} s  {ended}, gap {gap:.2g}".format(**row))
    late = [row for row in rows if row["ended"] in (str(Status.LIMIT), "HANG", "SolverError")]
    print(f"  at the limit of {given.limit:g} s, or without an answer: {len(late)}")
    for row in late:
        print("    #{number:<4} {class:<26} {seconds:>6.2f} s  {ended}, gap {gap:.2g}".format(**row))


if __name__ == "__main__":
    main()

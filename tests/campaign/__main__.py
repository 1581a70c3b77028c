"""Random designs of every class, hostile ones included: solved, certified, verified twice, compared.

    python -m tests.campaign --designs 10000 --seed 0 --store campaign.jsonl
    python -m tests.campaign --store campaign.jsonl --seed 0 --table results/campaign
    python -m tests.campaign --later --designs 3000 --seed 0 --store later.jsonl       (the classes that came later)

Each design is drawn from its number alone (`draws`) and solved with a time limit of ten seconds; what is finished is
stored, and a killed campaign continues where it was. A claim is false if the package or the stand-alone verifier refuses
it, or if an independent computation (`judges`) contradicts it.

Exit status 1 if there is a false claim, a foreign exception, a hang, or a time limit that was not kept.
"""

from __future__ import annotations

import argparse
import math
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import mechdesign as md
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.model.grid import Store
from mechdesign.typing import Status
from mechdesign.verifier import verify
from tests.campaign import table
from tests.campaign.draws import CLASSES
from tests.campaign.judges import ORACLES
from tests.campaign.later_draws import LATER, OFTEN

LIMIT = 10.0
SECONDS = 60.0
LATE = 5.0  # processor seconds past the limit
FAULTS = ("FALSE", "EXCEPTION", "HANG", "LATE")


class Hang(BaseException):
    """A design that was not done with in a minute."""


def false_claim(design: Any, result: Any) -> str | None:
    """What is wrong with a result, None if nothing is seen."""
    try:
        text = dumps(result)
    except md.DesignError:  # a prior that files cannot name: a histogram
        text, again = None, result
    else:
        again = loads(text)
        if dumps(again) != text:
            return "a file that is read back to other bytes"
    if isinstance(result, md.Result):
        bound = result.lower_bound
        if not math.isfinite(result.value):
            return f"a value of {result.value}"
        if result.status in (Status.OPTIMAL, Status.BEST) and (bound is None or not math.isfinite(bound)):
            return f"{result.status.value} without a lower bound"
        if bound is not None and bound > result.value * (1 + 1e-9) + 1e-300:
            return "a lower bound above the value"
        if result.status is not Status.UNCERTIFIED:
            found = again.checks()
            if not found["holds"].all():
                return f"does not hold: {found['claim'][~found['holds']].iloc[0]}"
            try:
                rows = [] if text is None else verify.verify(text).rows
            except verify.NotCovered:
                rows = []
            if not all(holds for *_, holds in rows):
                return f"the stand-alone verifier: {next(claim for claim, _, holds in rows if not holds)}"
        elif result.certificate is not None:
            return "not certified, with a certificate"
    return next(ORACLES[type(design)](design, result), None)


def drawn(seed: int, number: int, *, later: bool = False) -> tuple[str, Callable[[], Any]]:
    """The class of a design, and what draws it: from the number alone, so that a class that is added changes no other."""
    if not later:
        rng = random.Random(f"{seed}/{number}")
        name = rng.choice(list(CLASSES))
        return name, lambda: CLASSES[name](rng)
    rng = random.Random(f"later/{seed}/{number}")
    name = rng.choice([*LATER, *OFTEN, *OFTEN])
    return name, lambda: LATER[name](rng)


def examined(seed: int, number: int, *, later: bool = False) -> dict[str, Any]:
    """One design: its class, how it ended, its status, the processor seconds to solve it and in all."""
    name, draw = drawn(seed, number, later=later)
    started, solved, status = time.process_time(), math.nan, ""

    def stop(*_: Any) -> None:
        raise Hang

    for sign, timer in ((signal.SIGPROF, signal.ITIMER_PROF), (signal.SIGALRM, signal.ITIMER_REAL)):
        signal.signal(sign, stop)
        # The processor's clock where the machine is shared; ten times as much of the wall's, in case nothing runs at all.
        signal.setitimer(timer, SECONDS if timer == signal.ITIMER_PROF else 10 * SECONDS)
    try:
        design = draw()
        result = design.solve(time_limit=LIMIT) if hasattr(design, "solve") else design
        solved = time.process_time() - started
        status = str(getattr(result, "status", "certified"))
        problem = false_claim(design, result)
        ended = "fine" if problem is None else f"FALSE: {problem}"
    except md.InfeasibleError as error:
        ended = f"infeasible: {error!s:.100}"
    except md.SolverError as error:
        ended = f"no answer: {error!s:.100}"
    except md.DesignError as error:
        ended = f"refused: {error!s:.100}"
    except Hang:
        ended = "HANG"
    except Exception as error:
        ended = f"EXCEPTION: {type(error).__name__}: {error!s:.150}"
    finally:
        for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)
    if ended == "fine" and solved > LIMIT + LATE:
        ended = f"LATE: {solved:.1f} s"
    seconds = time.process_time() - started
    return {
        "number": number,
        "class": name,
        "ended": ended,
        "status": status,
        "solved": None if math.isnan(solved) else round(solved, 3),
        "seconds": round(seconds, 3),
    }


def campaign(
    numbers: Iterable[int],
    seed: int,
    store: Store | None = None,
    show: Callable[[str], None] = print,
    *,
    later: bool = False,
) -> list[dict[str, Any]]:
    """Examine designs, storing each; show what is wrong."""
    rows, commit = [], table.commit()
    for number in numbers:
        row = {**examined(seed, number, later=later), "commit": commit}
        rows.append(row)
        if store is not None:
            store.append(row)
        if row["ended"].partition(":")[0] in FAULTS:
            show(f"{seed}/{number} {row['class']}: {row['ended']} ({row['seconds']} s)")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--designs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--later", action="store_true", help="draw from the classes that came later")
    parser.add_argument("--store", help="file that finished designs are kept in; a killed campaign continues")
    parser.add_argument("--only", type=int, nargs="+", help="examine these numbers (again)")
    parser.add_argument("--again", action="store_true", help="examine again what was at fault")
    parser.add_argument("--table", type=Path, help="write designs.csv of the store there, and stop")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    store = (
        None
        if given.store is None
        else Store(given.store, {"campaign": 2, "seed": given.seed} | ({"later": 1} if given.later else {}))
    )
    rows = [] if store is None else list(store.chunks)
    last = {row["number"]: row for row in rows}
    if given.table is None:
        todo = [n for n in range(given.designs) if n not in last]
        if given.again:
            todo = [n for n, row in last.items() if row["ended"].partition(":")[0] in FAULTS]
        rows += campaign(given.only or todo, given.seed, store, later=given.later)
    counts = table.counts(rows)
    print(counts.to_string())
    bad = sum(int(counts[name].sum()) for name in FAULTS if name in counts)
    print(f"{int(counts.to_numpy().sum())} designs, {bad or 'none'} at fault")
    if given.table is not None:
        table.write(rows, given.table / f"{'later-' * given.later}designs.csv")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

"""The benchmark that decides which strategies stay: each is switched off alone, on a fixed draw of the deployed grid.

    python -m studies.benchmarks.ablations [--wings optm,allocation] [--designs 20] [--limit 10] [--output DIRECTORY]

The grid: ε in {.1, .3, 1, 2, 4, 8}, δ in {0, 1e-9, 1e-6, 1e-5}, K in {1, 5, 20, 200, 1,000}, m in {2, 4, 8, 16, 64, 256}
outputs, uniform, truncated normal and beta priors, 30 and 1,000 samples, spaces of 9 to 100 points; default options. A
strategy (`studies.benchmarks.ablated` and `ablated_noise` list them) is replaced by what answers where it does not exist: the function that
implements it refuses, proposes nothing, or is never chosen. Only designs in which it acts are solved again without it.

A strategy stays where it brings, in at least 5% of the designs in which it acts, 1% of value (or an answer at all), or 10
times the gap where the gap without it is above 1%, or 3 times the time where the time without it is above 50 ms. Times are
processor times of one thread, the smaller of two runs below a second. A run that reaches `--limit` counts as that long; a
design that reaches it with every strategy in place is left out. One row switches off together all that fall short alone:
strategies that replace each other both look idle.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import math
import pkgutil
import random
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, wraps
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

import mechdesign as md

SHARE, VALUE, GAP, TIME = 0.05, 0.01, 10.0, 3.0
LEAST_GAP, LEAST_SECONDS, LEAST_RATIO = 0.01, 0.05, 1e-6
TOGETHER = "all that fall short alone"
SEED = 20
EPSILONS = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0)
DELTAS = (0.0, 1e-9, 1e-6, 1e-5)
OUTPUTS = (2, 4, 8, 16, 64, 256)
LOSSES = ("absolute", "squared")

Make = Callable[[], Any]


@dataclass(frozen=True)
class Strategy:
    """What is switched off, and how.

    Parameters
    ----------
    name : str
    without : mapping of str to callable
        "module:name" or "module:Class.name" below `mechdesign`, and what makes its replacement from the original.
    acts : mapping of str to callable, optional
        Functions whose results say whether the strategy acted; calls of what is replaced when not given.
    """

    name: str
    without: Mapping[str, Callable[[Any], Any]]
    acts: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)

    @property
    def watched(self) -> Mapping[str, Callable[[Any], bool]]:
        return self.acts or dict.fromkeys(self.without, lambda _: True)


@dataclass(frozen=True)
class Wing:
    """A draw of designs, each made anew from its name, and the strategies that may act in them."""

    designs: Callable[[int], Mapping[str, Callable[[], Any]]]
    strategies: tuple[Strategy, ...]
    ask: Callable[[Any], Any] = lambda design: design.solve()


@dataclass(frozen=True)
class Answered:
    """What a call that is no design answers."""

    value: float
    gap: float | None = None


@dataclass(frozen=True)
class Run:
    """One solve: value, relative gap (NaN where there is no bound), processor seconds, and why there is no answer."""

    value: float = math.nan
    gap: float = math.nan
    seconds: float = math.nan
    failure: str = ""


class OverLimit(BaseException):
    """A solve took longer than the limit; no library catches this as its own error."""


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


def fixed(answer: Any) -> Callable[[Any], Any]:
    """Replace a function by one that returns this."""
    return lambda original: lambda *_, **__: answer


def first_argument(position: int) -> Callable[[Any], Any]:
    """Replace a function by one that returns one of its arguments."""
    return lambda original: lambda *given, **__: given[position]


def refusing(error: Callable[[], BaseException]) -> Callable[[Any], Any]:
    """Replace a function by one that raises."""

    def replaced(original: Any) -> Any:
        def refuse(*_: Any, **__: Any) -> Any:
            raise error()

        return refuse

    return replaced


def constant(value: Any) -> Callable[[Any], Any]:
    """Replace a number, or a property's value."""

    def replaced(original: Any) -> Any:
        return property(lambda _: value) if isinstance(original, (property, cached_property)) else value

    return replaced


def load_all() -> None:
    """Import the whole package, so that every module that holds a function is known."""
    for found in pkgutil.walk_packages(md.__path__, "mechdesign."):
        if found.name.endswith(".__main__"):
            continue
        try:
            importlib.import_module(found.name)
        except md.MechdesignError:  # of an extra that is not installed
            continue
        except ImportError:
            continue


def places(target: str) -> tuple[Any, list[tuple[Any, str]]]:
    """The original, and every (namespace, name) that holds it."""
    module, path = target.split(":")
    owner: Any = importlib.import_module(f"mechdesign.{module}")
    *classes, name = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    original, found = vars(owner)[name], [(owner, name)]
    if not classes and callable(original):
        for key, other in list(sys.modules.items()):
            if key.startswith("mechdesign") and other is not owner:
                found += [(other, k) for k, v in vars(other).items() if v is original]
    return original, found


@contextmanager
def replaced(changes: Mapping[str, Callable[[Any], Any]]) -> Iterator[None]:
    """Put something else in the place of package functions, wherever they were imported to."""
    with ExitStack() as stack:
        for target, make in changes.items():
            original, held = places(target)
            new = make(original)
            for namespace, name in held:
                stack.enter_context(mock.patch.object(namespace, name, new))
        yield


def watching(name: str, judge: Callable[[Any], bool], counts: Counter[str]) -> Callable[[Any], Any]:
    """Count calls whose result the strategy's judge accepts."""

    def around(original: Any) -> Any:
        function = original
        if isinstance(original, property):
            function = original.fget
        elif isinstance(original, cached_property):
            function = original.func
        elif isinstance(original, (classmethod, staticmethod)):
            function = original.__func__
        if not callable(function):
            raise TypeError(f"{name}: a constant cannot be watched; name a function in acts")

        @wraps(function)
        def counted(*given: Any, **options: Any) -> Any:
            found = function(*given, **options)
            counts[name] += bool(judge(found))
            return found

        if isinstance(original, (property, cached_property)):
            return property(counted)
        return type(original)(counted) if isinstance(original, (classmethod, staticmethod)) else counted

    return around


def entered(make: Callable[[], Any], wing: Wing, limit: float) -> set[str]:
    """The strategies that act in a design; each is watched in a solve of its own where others watch the same function."""
    left, found = list(wing.strategies), set()
    while left:
        counts: Counter[str] = Counter()
        taken: set[str] = set()
        now = []
        for strategy in left:
            if taken.isdisjoint(strategy.watched):
                taken |= set(strategy.watched)
                now.append(strategy)
        left = [s for s in left if s not in now]
        changes = {t: watching(s.name, judge, counts) for s in now for t, judge in s.watched.items()}
        with replaced(changes):
            once(make, wing, limit)
        found |= {name for name, count in counts.items() if count}
    return found


def once(make: Callable[[], Any], wing: Wing, limit: float) -> Run:
    """One solve within the limit."""

    def stop(*_: Any) -> None:
        raise OverLimit

    design = make()
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit)
    started = time.process_time()
    try:
        result = wing.ask(design)
        seconds = time.process_time() - started
        gap = getattr(result, "gap", None)
        return Run(float(result.value), math.nan if gap is None else float(gap), seconds)
    except OverLimit:
        return Run(seconds=limit, failure="limit")
    except Exception as error:  # without a strategy anything may break: that is no answer
        return Run(seconds=time.process_time() - started, failure=type(error).__name__)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def run(make: Callable[[], Any], wing: Wing, limit: float) -> Run:
    """A solve, twice where that is quick."""
    first = once(make, wing, limit)
    if first.failure or first.seconds > 1.0:
        return first
    second = once(make, wing, limit)
    return min(first, second, key=lambda found: found.seconds)


def compared(base: Run, other: Run) -> dict[str, Any]:
    """What a design loses without the strategy."""
    value = other.value / base.value - 1 if base.value else math.nan
    gap = other.gap / max(base.gap, LEAST_RATIO)
    seconds = other.seconds / max(base.seconds, 1e-6)
    lost = bool(other.failure) and other.failure != "limit"
    return {
        "value": value,
        "gap": gap if other.gap > LEAST_GAP else math.nan,
        "time": seconds,
        "lost": lost,
        "by value": lost or value >= VALUE,
        "by gap": other.gap > LEAST_GAP and gap >= GAP,
        "by time": other.seconds > LEAST_SECONDS and seconds >= TIME,
    }


def row(name: str, found: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """A line of the table."""
    frame = pd.DataFrame(list(found.values()), index=list(found))
    out: dict[str, Any] = {"strategy": name, "acts in": len(frame)}
    if not len(frame):
        return out | {"verdict": "goes (never acts)"}
    needed = frame[["by value", "by gap", "by time"]].astype(bool)
    out["needed in"] = int(needed.any(axis=1).sum())
    for column in needed:
        out[str(column)] = int(needed[column].sum())
    out["no answer"] = int(frame["lost"].sum())
    for column, digits in (("value", 4), ("gap", 1), ("time", 1)):
        known = frame[column].dropna()
        out[f"{column}, median"] = round(float(known.median()), digits) if len(known) else math.nan
        out[f"{column}, worst"] = round(float(known.max()), digits) if len(known) else math.nan
    order = frame.assign(any=needed.any(axis=1)).sort_values(
        ["any", "lost", "value", "time"], ascending=False
    )
    out["worst design"] = str(order.index[0])
    out["verdict"] = "stays" if out["needed in"] >= SHARE * len(frame) else "goes"
    return out


def joined(strategies: list[Strategy]) -> dict[str, Callable[[Any], Any]]:
    """All replacements together; the first of those of one function."""
    changes: dict[str, Callable[[Any], Any]] = {}
    for strategy in strategies:
        changes = {**strategy.without, **changes}
    return changes


def table(wing: Wing, count: int, limit: float, say: Callable[[str], None]) -> Iterator[pd.DataFrame]:
    """Switch off the strategies of a wing one at a time, then together those that fall short: the table so far."""
    designs = wing.designs(count)
    base: dict[str, Run] = {}
    refused: dict[str, Run] = {}
    acting: dict[str, set[str]] = {}
    late = 0
    once(next(iter(designs.values())), wing, limit)  # what the first call loads is no strategy's
    for name, make in designs.items():
        held = run(make, wing, limit)
        if held.failure:
            say(f"  no answer: {name}: {held.failure}")
        late += held.failure == "limit"
        if held.failure != "limit":
            (refused if held.failure else base)[name] = held
            acting[name] = entered(make, wing, limit)
    rows = []
    for strategy in wing.strategies:
        with replaced(strategy.without):
            found = {
                name: compared(base[name], run(designs[name], wing, limit))
                for name in base
                if strategy.name in acting[name]
            }
            answers = [
                not once(designs[name], wing, limit).failure
                for name in refused
                if strategy.name in acting[name]
            ]
        rows.append(row(strategy.name, found) | {"refused, answered without": sum(answers)})
        say("  " + ", ".join(f"{k} {v}" for k, v in rows[-1].items()))
        yield pd.DataFrame(rows).assign(**{"of designs": len(base), "over the limit": late})
    short = [s for s, line in zip(wing.strategies, rows, strict=True) if line["verdict"] != "stays"]
    if len(short) > 1:
        with replaced(joined(short)):
            found = {name: compared(base[name], run(designs[name], wing, limit)) for name in base}
        rows.append(row(TOGETHER, found))
        say("  " + ", ".join(f"{k} {v}" for k, v in rows[-1].items()))
        yield pd.DataFrame(rows).assign(**{"of designs": len(base), "over the limit": late})


def markdown(frames: Mapping[str, pd.DataFrame]) -> str:
    """All wings' tables on one page."""
    parts = [
        "# Strategies, switched off one at a time",
        "Written by `python -m studies.benchmarks.ablations`, whose first lines say what is counted. Value: relative "
        "increase without the strategy. Gap: multiple of the gap, of designs whose gap without it is above 1%. Time: multiple of "
        "the processor time. Other programs ran on the machine, so that a ratio of times may be off by a third.",
    ]
    for name, frame in frames.items():
        columns = [c for c in frame.columns if c not in ("of designs", "over the limit")]
        lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
        for record in frame[columns].itertuples(index=False):
            cells = [
                "" if isinstance(v, float) and math.isnan(v) else f"{v:g}" if isinstance(v, float) else str(v)
                for v in record
            ]
            lines.append("| " + " | ".join(cells) + " |")
        title = "## speed: calls that take longer without a strategy that went"
        if name != "speed":
            solved, late = int(frame["of designs"].max()), int(frame["over the limit"].max())
            title = f"## {name}: {solved} designs, and {late} over the limit, left out"
        parts += [title, "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def write_page(output: Path, wings: Iterable[str]) -> None:
    """Put all tables, those of `wings` first and `speed.csv` (a line for each call, by hand) last, on one page."""
    found = sorted(path.stem for path in output.glob("*.csv"))
    names = dict.fromkeys([w for w in wings if w in found] + [n for n in found if n != "speed"])
    frames = {
        name: pd.read_csv(output / f"{name}.csv") for name in [*names, *(["speed"] * ("speed" in found))]
    }
    (output / "README.md").write_text(markdown(frames))


def main() -> None:
    from studies.benchmarks.ablated import WINGS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wings", default=",".join(WINGS), help="with commas")
    parser.add_argument("--designs", type=int, default=20, help="designs of a wing")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds for one solve")
    parser.add_argument("--output", type=Path, default=Path("results/ablations"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    load_all()
    given.output.mkdir(parents=True, exist_ok=True)
    for name in given.wings.split(","):
        started = time.perf_counter()
        print(name, flush=True)
        for found in table(WINGS[name], given.designs, given.limit, lambda text: print(text, flush=True)):
            found.to_csv(given.output / f"{name}.csv", index=False)
            write_page(given.output, WINGS)
        print(f"  {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()

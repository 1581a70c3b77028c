"""Run the benchmarks that state bars, and remember their ratios.

    python -m studies.benchmarks.run [NAME ...] [--out results/benchmarks]

One JSON file for each run; the last ten stay, and ``ratios.svg`` shows them over their bars. What met its bar before and
misses it now is printed first, and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from mechdesign.plotting import figure, write_figure
from studies.benchmarks.turns import Ratio

NAMES = tuple(sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py")))
REMEMBERED = 10


def measured(names: Sequence[str]) -> dict[str, Ratio]:
    """The ratios of benchmarks, by benchmark and name."""
    found = {}
    for name in names:
        sys.argv = [f"bench_{name}"]  # a benchmark that reads options takes its defaults
        print(f"== {name}")
        for ratio in import_module(f"studies.benchmarks.bench_{name}").main():
            found[f"{name}: {ratio.name}"] = ratio
    return found


def remembered(folder: Path) -> list[dict[str, Ratio]]:
    """Earlier runs, oldest first."""
    runs = [json.loads(path.read_text(encoding="utf-8"))["ratios"] for path in sorted(folder.glob("*.json"))]
    return [{name: Ratio(name, **row) for name, row in run.items()} for run in runs]


def missed_again(now: dict[str, Ratio], before: Sequence[dict[str, Ratio]]) -> list[str]:
    """What met its bar in a run before and misses it now, a line each."""
    return [
        f"{name}: {ratio.value:.3g}, bar {ratio.bar:g}, met before"
        for name, ratio in now.items()
        if not ratio.met and any(name in run and run[name].met for run in before)
    ]


def remember(now: dict[str, Ratio], folder: Path, *, stamp: str, commit: str) -> None:
    """Write this run, remove all but the last ten, and draw them."""
    folder.mkdir(parents=True, exist_ok=True)
    ratios = {name: {"value": r.value, "bar": r.bar, "at_least": r.at_least} for name, r in now.items()}
    text = json.dumps({"commit": commit, "ratios": ratios}, indent=1, ensure_ascii=False) + "\n"
    (folder / f"{stamp}.json").write_text(text, encoding="utf-8")
    for path in sorted(folder.glob("*.json"))[:-REMEMBERED]:
        path.unlink()
    runs = remembered(folder)
    names = sorted({name for run in runs for name in run})
    fig, ax = figure(width=9.0, height=1.0 + 0.22 * len(names))
    for age, run in enumerate(reversed(runs)):
        at = [names.index(name) for name in run]
        used = [r.bar / r.value if r.at_least else r.value / r.bar for r in run.values()]
        ax.plot(used, at, "o", color="#0072B2", alpha=1.0 if age == 0 else 0.25, markersize=4)
    ax.axvline(1.0, color="#D55E00")
    ax.set(
        xscale="log", xlabel="part of the bar that is used (the last run is dark); beyond 1 the bar is missed"
    )
    ax.set_yticks(range(len(names)), names, fontsize=6)
    write_figure(fig, folder / "ratios")


def main() -> None:
    """Run, compare, remember."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    given = parser.parse_args()
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"{', '.join(sorted(unknown))}: must be among {', '.join(NAMES)}")
    before = remembered(given.out)
    now = measured(given.names)
    lost = missed_again(now, before)
    print(
        "\n"
        + "\n".join(["missed, and met before:", *lost] if lost else ["no bar is missed that was met before"])
    )
    for name, ratio in now.items():
        print(f"{'met   ' if ratio.met else 'MISSED'} {name}: {ratio.value:.3g} (bar {ratio.bar:g})")
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    remember(now, given.out, stamp=stamp, commit=commit.stdout.strip())
    if lost:
        sys.exit(1)


if __name__ == "__main__":
    main()

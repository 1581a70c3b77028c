"""How long the package and its command line take to start, against the libraries they stand on.

Medians of 10 alternating runs of fresh interpreters. Bars: ``import mechdesign`` at most 1.5 × ``import numpy``; help at
most 1.5 ×, the list of studies at most 2.5 × the help of a two-command Typer application with rich. The import must
load none of the libraries listed in `HEAVY`.

    python -m studies.benchmarks.bench_start
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from studies.benchmarks.turns import Ratio

HEAVY = ("cvxpy", "pandas", "matplotlib", "scipy.stats", "dp_accounting", "ot", "joblib")
RUNS = 10

TYPER = '''
import typer
from rich.console import Console
app = typer.Typer(no_args_is_help=True, add_completion=False, help="Two commands.")
@app.command()
def first(name: str) -> None:
    """The first."""
    Console().print(name)
@app.command()
def second(name: str) -> None:
    """The second."""
app(["--help"])
'''
CLI = "import sys; from mechdesign.shell.cli import main; sys.argv[1:] = {words!r}; main()"
CASES = {
    "import numpy": "import numpy",
    "import mechdesign": "import mechdesign",
    "help of two Typer commands": TYPER,
    "mechdesign --help": CLI.format(words=["--help"]),
    "mechdesign study list": CLI.format(words=["study", "list"]),
}
BARS = (
    ("import mechdesign", "import numpy", 1.5),
    ("mechdesign --help", "help of two Typer commands", 1.5),
    ("mechdesign study list", "help of two Typer commands", 2.5),
)


def loaded(code: str) -> set[str]:
    """The modules that a fresh interpreter imports while it runs `code`."""
    run = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True)
    return {line.rpartition("|")[2].strip() for line in run.stderr.splitlines() if "|" in line}


def seconds(code: str) -> float:
    """The time of one fresh interpreter."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return time.perf_counter() - started


def main() -> list[Ratio]:
    """Print the medians, their ratios, and what the import must not load but does."""
    runs = {name: [] for name in CASES}
    for _ in range(RUNS):
        for name, code in CASES.items():
            runs[name].append(seconds(code))
    medians = {name: statistics.median(times) for name, times in runs.items()}
    for name, value in medians.items():
        print(f"{name:30} {1000 * value:7.0f} ms")
    ratios = [Ratio(f"{name} / {base}", medians[name] / medians[base], bar) for name, base, bar in BARS]
    for ratio in ratios:
        print(f"{ratio.name}: {ratio.value:.2f} (bar {ratio.bar})")
    heavy = [name for name in HEAVY if name in loaded("import mechdesign")]
    print("heavy modules loaded by import mechdesign:", ", ".join(heavy) or "none")
    return ratios


if __name__ == "__main__":
    main()

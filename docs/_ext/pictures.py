"""Pictures of the front page and of the guides' index, and a page of evidence to look at: drawn by the package when the pages are built."""

from __future__ import annotations

import doctest
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from sphinx.application import Sphinx

import mechdesign as md
from mechdesign.plotting import COLOURS, figure

ROOT = Path(__file__).parents[2]


def survey(folder: Path, page: Path) -> None:
    """The question of the front page: eight counts of one survey."""
    found = md.compare(
        md.NumericQuery(dimension=8, sensitivity=1), md.ApproximateDP(1.0, 1e-6), progress=False
    )
    found.plot(width=5.6, height=3.6).savefig(folder / "survey.png", dpi=160)
    found.best.report(page)


def noise() -> Any:
    """The law of least variance."""
    return md.OptimalNoise(md.ApproximateDP(1.0, 0.01)).solve().plot()


def plan() -> Any:
    """Shares of one budget."""
    tasks = {"fifty counts": md.Histogram(50), "a mean": md.Mean(0, 100, n=10_000), "a total": md.Sum(5.0)}
    weights = {"fifty counts": 5e-7, "a mean": 4e-4, "a total": 6.4e-9}
    return md.Plan(tasks, md.PureDP(1.0), weights=weights).solve().plot()


def attack() -> Any:
    """What an attacker finds, by what is accused."""
    drawn, axis = figure()
    share = np.linspace(0.005, 0.995, 34)
    for epsilon, colour in zip((0.5, 1.0, 2.0), COLOURS, strict=False):
        result = md.calibrate("laplace", privacy=md.PureDP(epsilon), sensitivity=1)
        axis.plot(share, [result.attack(a).found for a in share], color=colour, label=f"ε = {epsilon:g}")
    axis.plot(share, share, color=COLOURS[6], linewidth=0.8)
    axis.set(xlabel="innocents accused", ylabel="guilty found, at most")
    axis.legend(frameon=False)
    return drawn


def quantizer() -> Any:
    """Output probabilities of a report of two bits."""
    return md.OptimalQuantizer([-3, -0.5, 0.5, 3], md.PureDP(1.0), stats.uniform(-1, 2)).solve().plot()


def reports() -> Any:
    """A signal, its reports in one bit, and their running mean."""
    drawn, axis = figure()
    x = np.sin(np.linspace(0, 6.3, 6000))
    sent = md.Quantizer.rqm(bins=[-2.7, -0.9, 0.9, 2.7], q=0.22, input_range=(-1, 1)).sample(x, rng=0)
    mean = np.convolve(sent, np.ones(400) / 400, "same")
    axis.plot(sent[::15], ".", color=COLOURS[5], markersize=2, label="reports")
    axis.plot(mean[::15], color=COLOURS[1], label="their running mean")
    axis.plot(x[::15], color=COLOURS[6], linewidth=0.9, label="the values")
    axis.legend(frameon=False, loc="upper right")
    return drawn


def table() -> Any:
    """A table with one entry that breaks its budget."""
    printed = np.array([[0.13, 0.2, 0.31, 0.36], [0.25, 0.25, 0.25, 0.25], [0.45, 0.31, 0.2, 0.04]])
    drawn, axis = figure()
    axis.imshow(printed, cmap="Blues", vmin=0, vmax=0.6, aspect="auto")
    for (i, j), p in np.ndenumerate(printed):
        broken = (i, j) == (2, 3)
        axis.annotate(
            f"{p:.2f}",
            (j, i),
            ha="center",
            va="center",
            fontsize=16,
            color=COLOURS[1] if broken else COLOURS[6],
            weight="bold" if broken else "normal",
        )
    axis.set(xticks=[], yticks=[], xlabel="outputs", ylabel="inputs")
    axis.grid(visible=False)
    return drawn


def samples() -> Any:
    """A prior known from samples."""
    drawn, axis = figure()
    drawn_from = np.random.default_rng(1).beta(2, 5, 400)
    axis.hist(drawn_from, bins=30, density=True, color=COLOURS[5])
    grid = np.linspace(0, 1, 200)
    axis.plot(grid, stats.beta(2, 5).pdf(grid), color=COLOURS[1])
    axis.set(xlabel="inputs", yticks=[])
    return drawn


def family() -> Any:
    """Densities of three families at one budget."""
    drawn, axis = figure()
    grid = np.linspace(-8, 8, 401)
    for name, colour in zip(("laplace", "gaussian", "staircase"), COLOURS, strict=False):
        law = md.calibrate(name, privacy=md.ApproximateDP(1.0, 0.01), sensitivity=1).mechanism.law
        axis.plot(grid, law.pdf(grid), color=colour, label=name)
    axis.set(xlabel="noise", yticks=[])
    axis.legend(frameon=False)
    return drawn


def users() -> Any:
    """Errors of the mechanisms for one histogram."""
    hours = md.MetricSpace.line(range(24), unit="hours")
    return md.UserHistogram(hours, md.EMDPrivacy(10.0), items=30, users=1000).solve().plot()


def model() -> Any:
    """The table of a problem with a constraint of one's own."""
    P = md.Table(np.linspace(-1, 1, 9), [-3, -1.5, -0.5, 0.5, 1.5, 3])
    rows = [P.private(md.PureDP(1.0)), P.unbiased(), md.named("cap", P[:, 1] <= 0.2)]
    return md.Problem(md.Minimize(P.expected()), rows).solve().plot()


def vote() -> Any:
    """How often the best of three is chosen."""
    return md.PrivateChoice(3, md.PureDP(1.0)).solve().plot()


def published() -> Any:
    """The published linear program's quantizer."""
    return md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.0), stats.uniform(-1, 2)).solve().plot()


DRAWN: dict[str, Callable[[], Any]] = {
    "model": model,
    "from_the_paper": published,
    "noise": noise,
    "whole_release": plan,
    "choose_rank": vote,
    "epsilon": attack,
    "federated": quantizer,
    "pytorch": reports,
    "users": users,
    "audit_table": table,
    "write_prior_loss": samples,
    "write_design": family,
}
COMMITTED = {
    "vectors": "vectors/errors.svg",
    "learning": "coordinate-descent/figure5.svg",
    "locations": "location/map.svg",
    "local_counts": "local-workloads/ratios.svg",
    "search": "optimal-quantizer/over-optimum.svg",
    "write_solver": "optimal-quantizer/bits.svg",
}


def ten_minutes(page: Path, folder: Path) -> None:
    """Run the page's examples in their order, and keep whatever each calls `picture`."""
    names: dict[str, Any] = {}
    drawn = 0
    for example in doctest.DocTestParser().get_examples(page.read_text(encoding="utf-8")):
        exec(compile(example.source, page.name, "single"), names)
        if "picture" in names:
            drawn += 1
            names.pop("picture").savefig(folder / f"ten-{drawn}.png", dpi=100, bbox_inches="tight")


def write(app: Sphinx) -> None:
    """Draw what is not there yet."""
    folder = Path(app.srcdir) / "generated" / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    survey(folder, Path(app.config.html_extra_path[0], "survey.html"))
    ten_minutes(Path(app.srcdir, "ten_minutes.rst"), folder)
    for name, draw in DRAWN.items():
        draw().savefig(folder / f"{name}.png", dpi=100)
    for name, source in COMMITTED.items():
        shutil.copyfile(ROOT / "results" / source, folder / f"{name}.svg")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("builder-inited", write, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

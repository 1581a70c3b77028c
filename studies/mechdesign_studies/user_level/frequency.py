r"""Private frequency estimation under user-level and under metric privacy: who wins, and where.

Every one of n users holds m items, points of a clustered space: g clusters, distance d₁ inside one and 1
across. The error is the earth mover's distance between the estimated histogram and the data's.

*User-level* mechanisms protect any change of a user's data with (ε, δ). *Metric* privacy protects a user whose
data move by EMD t with α·t. With α = ε/d₁ a user may replace all items by others of the same clusters and is
protected with the same ε; changes across clusters are protected less, which is what is gained.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

import mechdesign as md
from mechdesign.plotting import figure
from mechdesign.shell.studykit import Report

USERS, ITEMS, EPSILON, DELTA = 1000, 30, 1.0, 1e-6
POINTS, REPEATS = 100, 100
WITHIN = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
CLUSTERS, FIXED = (2, 4, 10, 20, 50), 0.03
LOCAL = ("metric response", "k-ary response", "Hadamard response")
CENTRAL = ("metric response, shuffled", "k-ary response, shuffled", "Hadamard response, shuffled", "Laplace")


def item_budget(space: md.MetricSpace, alpha: float, model: str) -> float:
    """Largest α₀ of every item for which the release of all items is (α, δ)-EMD-private."""
    users = USERS if model == "central" else 1
    release = md.ItemwiseRelease(space, alpha=alpha, delta=DELTA, items=ITEMS, users=users, model=model)
    # Rounded down to five digits: still private, and the runs below do not hang on the last bits of a root.
    return float(np.floor(release.item_alpha * 1e5) / 1e5)


def truth(rng: np.random.Generator) -> np.ndarray:
    """All users' items: a Zipf law over points in random order."""
    law = 1 / np.arange(1, POINTS + 1)
    return rng.choice(rng.permutation(POINTS), p=law / law.sum(), size=USERS * ITEMS)


def mechanisms(
    space: md.MetricSpace, flat: dict[str, float]
) -> Iterator[tuple[str, str, float, md.Channel | None]]:
    """(model, name, item budget, channel) of every competitor; no channel for Laplace noise."""
    for model in ("local", "central"):
        names = LOCAL if model == "local" else CENTRAL
        budget = item_budget(space, EPSILON / space.within, model)
        yield model, names[0], budget, md.channels.ClusteredResponse(space, budget)
        # On points that are all at distance 1, EMD-privacy is user-level privacy.
        yield model, names[1], flat[model], md.channels.KaryResponse(POINTS, flat[model])
        yield model, names[2], flat[model], md.channels.HadamardResponse(POINTS, flat[model])
    yield "central", CENTRAL[3], EPSILON, None


def errors(
    space: md.MetricSpace, channel: md.Channel | None, items: np.ndarray, rng: np.random.Generator
) -> dict[str, float]:
    """Mean EMD over repetitions with its proved bound, unbiased and projected on the simplex."""
    counts = np.bincount(items, minlength=space.size)
    histogram = counts / counts.sum()
    out = {}
    for project, label in ((False, ""), (True, "_projected")):
        if channel is None:
            release = md.user_level.LaplaceHistogram(space, EPSILON, USERS, project=project)
            fits = [release.sample(histogram, rng=rng) for _ in range(REPEATS)]
        else:
            # Only the number of times each report occurs matters: one multinomial draw per point.
            estimator = md.FrequencyEstimate(channel, space=space, project=project)
            tallies = [rng.multinomial(counts, channel.dense).sum(axis=0) for _ in range(REPEATS)]
            fits = [estimator.fit_counts(tally) for tally in tallies]
        out["emd" + label] = float(np.mean([fit.emd(histogram) for fit in fits]))
        out["bound" + label] = fits[0].error_bound
    return out


def crossover(frame: pd.DataFrame, axis: str, ours: str, theirs: str) -> float:
    """Where the errors of two mechanisms meet, log-log interpolated; NaN where they do not."""
    wide = frame.pivot(index=axis, columns="mechanism", values="emd_projected")
    gap = np.log(wide[ours] / wide[theirs])
    for a, b in zip(wide.index, wide.index[1:]):
        if (gap[a] < 0) != (gap[b] < 0):
            share = gap[a] / (gap[a] - gap[b])
            return float(a * (b / a) ** share)
    return float("nan")


def run(report: Report) -> None:
    report.text(
        f"{USERS} users hold {ITEMS} items each, {POINTS} points in clusters; Zipf data. User-level mechanisms "
        f"satisfy (ε, δ) = ({EPSILON:g}, {DELTA:g}); metric ones α = ε/d₁, so that replacing all items of a user "
        "within their clusters is protected with the same ε. Item budgets come from the numerical shuffling "
        "accounting for all of them (local: every user shuffles its own reports). `emd` is the mean over "
        f"{REPEATS} runs of the unbiased estimate's error, `bound` the theorem's; `_projected` the same after "
        "projection on the simplex."
    )
    flat_space = md.MetricSpace.clustered(1, POINTS, within=1.0)
    flat = {model: item_budget(flat_space, EPSILON, model) for model in ("local", "central")}
    items = truth(report.rng("data"))
    spaces = [("d1", md.MetricSpace.clustered(10, POINTS // 10, within=d)) for d in WITHIN]
    spaces += [("clusters", md.MetricSpace.clustered(g, POINTS // g, within=FIXED)) for g in CLUSTERS]
    rows = []
    with report.progress("cells", len(spaces)) as step:
        for sweep, space in spaces:
            noise = report.rng(f"noise, {space.shape[0]} clusters, d1 = {space.within:g}")
            for model, name, budget, channel in mechanisms(space, flat):
                cell = errors(space, channel, items, noise)
                rows.append(
                    {
                        "sweep": sweep,
                        "clusters": space.shape[0],
                        "within": space.within,
                        "model": model,
                        "mechanism": name,
                        "item_budget": budget,
                        **cell,
                        "under_bound": cell["emd"] <= cell["bound"]
                        and cell["emd_projected"] <= cell["bound_projected"],
                    }
                )
            step()
    frame = pd.DataFrame(rows)
    report.table(
        "errors",
        frame,
        caption="EMD error and its bound, per mechanism",
        rtol=1e-4,
        show=20,
        inline=100,
    )
    report.text(
        "At d₁ = 1 metric response is k-ary response, and the two differ by chance only. "
        f"Measured errors are under the theorems' bounds in {int(frame['under_bound'].sum())} of {len(frame)} cells."
    )

    parts = {sweep: frame[frame["sweep"] == sweep] for sweep in ("d1", "clusters")}
    meets = []
    for theirs in (*LOCAL[1:], *CENTRAL[1:]):
        model, ours = ("local", LOCAL[0]) if theirs in LOCAL else ("central", CENTRAL[0])
        meets.append(
            {
                "model": model,
                "baseline": theirs,
                "d1": crossover(parts["d1"], "within", ours, theirs),
                "clusters": crossover(parts["clusters"], "clusters", ours, theirs),
            }
        )
    report.table(
        "crossover",
        pd.DataFrame(meets),
        caption="Where the errors meet: metric privacy is better for a smaller d₁ (10 clusters), and for more "
        f"clusters (d₁ = {FIXED}); empty: no crossover in the range",
        rtol=1e-3,
    )

    for sweep, axis, label in (
        ("d1", "within", "distance d₁ inside clusters"),
        ("clusters", "clusters", "clusters"),
    ):
        fig, axes = figure(1, 2, width=8.4, height=3.6, sharey=True)
        part = parts[sweep]
        for ax, model in zip(axes, ("local", "central")):
            for name, line in part[part["model"] == model].groupby("mechanism", sort=False):
                ax.plot(line[axis], line["emd_projected"], marker="o", markersize=3, label=name)
            ax.set(xscale="log", yscale="log", xlabel=label, title=f"{model} model")
            ax.set_xticks(part[axis].unique(), [f"{v:g}" for v in part[axis].unique()])
            ax.minorticks_off()
            ax.legend(fontsize=7)
        axes[0].set_ylabel("mean EMD error (projected)")
        fixed = "10 clusters" if sweep == "d1" else f"d₁ = {FIXED}"
        report.figure(f"error_over_{sweep}", fig, caption=f"Error over {label}; {fixed}, {POINTS} points")

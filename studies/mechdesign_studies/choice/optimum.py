r"""The least regret of a choice by counts, beside permute-and-flip, the exponential mechanism and Laplace noise on the counts.

Counts 0, …, N of k candidates, least mean or worst regret over all tables: `md.PrivateChoice(k, ..., largest=N)`, proved cell by cell. Permute-and-flip is the
optimum where its regret, in doubles, is at most 1e-8 above the proved bound, and is not where it is above the optimum's certified value by more. Laplace noise is
that of a histogram: of scale 1/ε for single votes, k/ε for approvals; the largest noisy count is chosen.
"""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pandas as pd

import mechdesign as md
from mechdesign.plotting import COLOURS, figure
from mechdesign.shell.studykit import Report

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
SIZES = {2: (2, 4, 6, 8), 3: (2, 4, 6, 8), 4: (2, 3, 4, 6, 8)}
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)


@cache
def sorted_counts(k: int, largest: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of counts up to their order, and how many there are of each."""
    every = np.sort(list(itertools.product(range(largest + 1), repeat=k)), axis=1)
    rows, copies = np.unique(every, axis=0, return_counts=True)
    return rows.astype(float), copies


def noisy(counts: np.ndarray, scale: float) -> np.ndarray:
    """Probability that each count is the largest with Laplace noise: Gauss-Legendre between the counts and in both tails."""
    edges = np.unique(
        np.concatenate(
            [counts, counts.min() - scale * np.arange(0, 41, 2), counts.max() + scale * np.arange(0, 41, 2)]
        )
    )
    half = np.diff(edges) / 2
    x = (edges[:-1] + half)[:, None] + half[:, None] * NODES
    off = (x[..., None] - counts) / scale
    density = np.exp(-np.abs(off)) / (2 * scale)
    below = np.where(off < 0, np.exp(np.minimum(off, 0)) / 2, 1 - np.exp(-np.maximum(off, 0)) / 2)
    others = np.stack([np.delete(below, r, axis=-1).prod(axis=-1) for r in range(len(counts))], axis=-1)
    return np.asarray((density * others * (half[:, None] * WEIGHTS)[..., None]).sum(axis=(0, 1)))


def laplace(k: int, largest: int, scale: float, objective: str) -> float:
    """Mean or worst regret of the largest noisy count."""
    rows, copies = sorted_counts(k, largest)
    regrets = np.array([noisy(row, scale) @ (row.max() - row) for row in rows])
    return float(regrets.max() if objective == "worst" else np.average(regrets, weights=copies))


def run(report: Report) -> None:
    report.text(
        "Regret is the largest count less that of the candidate chosen. `best` is the certified value of the optimal table; the other columns are ratios to it. `permute-and-flip is` says "
        "whether that rule is optimal, by the proved bound."
    )
    cases = [
        (votes, objective, k, n, e)
        for votes in ("one vote", "approvals")
        for objective in ("mean", "worst")
        for k, sizes in SIZES.items()
        for n in sizes
        for e in EPSILONS
    ]
    rows = []
    with report.progress("cells", len(cases)) as step:
        for votes, objective, k, n, epsilon in cases:
            result = md.PrivateChoice(k, md.PureDP(epsilon), votes, largest=n, objective=objective).solve()
            rules = dict(result.design.rivals(result))
            permute = rules["permute-and-flip"]
            rows.append(
                {
                    "neighbours": votes,
                    "objective": objective,
                    "k": k,
                    "N": n,
                    "epsilon": epsilon,
                    "best": result.value,
                    **{name: regret / result.value for name, regret in rules.items()},
                    "Laplace noise": laplace(k, n, (1 if votes == "one vote" else k) / epsilon, objective)
                    / result.value,
                    "permute-and-flip is": "optimal"
                    if permute <= result.lower_bound * (1 + 1e-8)
                    else "above",
                    "certified": bool(result.certificate.verify()) and result.gap < 1e-8,
                }
            )
            step()
    frame = pd.DataFrame(rows)
    report.table(
        "regret",
        frame,
        caption="Least regret of a choice by counts, and what rules have over it",
        rtol=1e-6,
        atol=1e-9,
        show=60,
    )
    counted = frame.groupby(["neighbours", "objective", "epsilon"], sort=False)["permute-and-flip is"]
    where = counted.agg(optimal=lambda s: int((s == "optimal").sum()), cells="size").reset_index()
    report.table("where", where, caption="In how many cells (k, N) permute-and-flip is the optimum", show=20)
    fig, axes = figure(1, 2, width=8.0, height=3.2)
    for axis, objective in zip(axes, ("mean", "worst")):
        part = frame[(frame["neighbours"] == "one vote") & (frame["objective"] == objective)]
        for k, colour in zip(SIZES, COLOURS, strict=False):
            of = part[(part["k"] == k) & (part["N"] == 4)]
            axis.plot(
                of["epsilon"],
                100 * (of["permute-and-flip"] - 1),
                "o-",
                markersize=3,
                color=colour,
                label=f"{k} candidates",
            )
        axis.set(xlabel="ε", title=f"{objective} regret, counts to 4", xscale="log")
    axes[0].set_ylabel("permute-and-flip over the optimum, %")
    axes[0].legend(fontsize=7)
    report.figure(
        "over-optimum", fig, caption="What permute-and-flip regrets more than the best choice by counts"
    )

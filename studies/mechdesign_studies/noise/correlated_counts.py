r"""Correlated noise for counts: the optimal matrix mechanism against published factorizations, every optimum with its proved gap.

Prefix sums (private continual counting, the sums of DP-FTRL) for the total and the largest error, ranges, marginals and their
products; counts of which one person changes a few; and a type of noise for each coordinate. Errors are squared, at ε = 1,
δ = 1e-6; a ratio is an error over that of the optimum, whose distance to a proved lower bound stands beside it.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

import mechdesign as md
from mechdesign.plotting import COLOURS, figure, legend_above
from mechdesign.shell.studykit import Report

PRIVACY = md.ApproximateDP(1.0, 1e-6)
W = md.Workload
SIZES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
QUICK_SIZES = (4, 16, 64)
PUBLISHED = (
    "square root factorization",
    "binary tree, least squares",
    "binary tree",
    "noise on the counts",
    "noise on the answers",
)
SINGULAR = "lower bound of the singular values"


def errors(workload: md.Workload, loss: str = "total", **changes: object) -> tuple[md.Result, pd.Series]:
    """The optimum, and the errors of everything over it."""
    result = md.MatrixMechanism(workload, PRIVACY, loss=loss, **changes).solve()
    return result, result.alternatives().set_index("mechanism")["error"]


def prefix_sums(report: Report) -> pd.DataFrame:
    """Both losses by the number of steps."""
    rows, sizes = [], QUICK_SIZES if report.quick else SIZES
    with report.progress("prefix sums", 2 * len(sizes)) as step:
        for loss in ("total", "largest"):
            for n in sizes:
                result, table = errors(W.prefix_sums(n), loss)
                # per answer, at μ = 1: what the papers on continual counting state
                unit = result.value * result.design.budget / (n if loss == "total" else 1)
                row = {"loss": loss, "steps": n, "squared error at mu 1": unit, "gap": result.gap}
                row |= {name: table.get(name, np.nan) / result.value for name in (*PUBLISHED, SINGULAR)}
                rows.append(
                    {
                        **row,
                        "checked": result.certificate.verify(),
                        "iterations": result.solver_report.iterations,
                    }
                )
                step()
    return pd.DataFrame(rows)


def other_workloads(report: Report) -> pd.DataFrame:
    """Ranges, marginals, products."""
    n = 16 if report.quick else 64
    workloads = {
        f"ranges of {n}": (W.ranges(n), "total"),
        f"ranges of {n}, largest": (W.ranges(n), "largest"),
        "2 of 3 attributes (4, 5, 6)": (W.marginals((4, 5, 6), order=2), "total"),
        "2 of 3 attributes, largest": (W.marginals((4, 5, 6), order=2), "largest"),
        "1 of 4 attributes (2, 3, 4, 5)": (W.marginals((2, 3, 4, 5), order=1), "total"),
        "up to 2 of (3, 4, 5)": (
            W.marginals((3, 4, 5), kept=[(0, 1), (0, 2), (1, 2), (0,), (1,), (2,), ()]),
            "total",
        ),
        "prefix sums of 12 by 2 groups": (W.kron(W.prefix_sums(12), W.identity(2)), "total"),
        "prefix sums of 8 × ranges of 8": (W.kron(W.prefix_sums(8), W.ranges(8)), "total"),
    }
    rows = []
    for name, (workload, loss) in workloads.items():
        result, table = errors(workload, loss)
        bounds = [
            f"{result.bound_how} lower bound of {result.mechanism_class}",
            *(() if loss == "largest" else (SINGULAR,)),
        ]
        known = table.drop(["this mechanism", *bounds])
        rows.append(
            {
                "workload": name,
                "queries": workload.count,
                "counts": workload.size,
                "error": result.value,
                "gap": result.gap,
                "best published": known.idxmin(),
                "its ratio": known.min() / result.value,
                "noise on the counts": table["noise on the counts"] / result.value,
                "noise on the answers": table["noise on the answers"] / result.value,
                SINGULAR: table.get(SINGULAR, np.nan) / result.value,
                "checked": result.certificate.verify(),
            }
        )
    return pd.DataFrame(rows)


def few_changes() -> pd.DataFrame:
    """At most c of 20 counts change, of one sign or of any."""
    rows = []
    for c in (1, 2, 3, 5, 10, 20):
        one, both = (md.CountsGaussian(20, c, PRIVACY, signed=signed).solve() for signed in (False, True))
        rows.append(
            {
                "changed": c,
                "all up or all down": one.value,
                "any signs": both.value,
                "independent": md.Calibration("gaussian", PRIVACY, md.Sensitivity(linf=1, l0=c), 20)
                .solve()
                .value
                * 20,
                "saved, %": round(100 * (1 - one.value / both.value), 6) + 0.0,
                "gap": max(one.gap, both.gap),
                "checked": one.certificate.verify() and both.certificate.verify(),
            }
        )
    return pd.DataFrame(rows)


def mixes(report: Report) -> pd.DataFrame:
    """One large coordinate among small ones: types of noise, composed exactly."""
    cases = (
        [(1.0, 8.0, 20), (3.0, 10.0, 20)]
        if report.quick
        else [(e, s, 20) for e in (1.0, 3.0) for s in (2.0, 8.0, 32.0)]
    )
    rows = []
    for epsilon, large, small in cases:
        lam = np.r_[large, np.ones(small)]
        result = md.NoiseAllocation("mixed", lam, md.ApproximateDP(epsilon, 1e-6)).solve()
        ratio = result.alternatives().set_index("mechanism")["relative"]
        rows.append(
            {
                "epsilon": epsilon,
                "sensitivities": f"{large:g}, then {small} of 1",
                "Laplace on": result.mechanism.kinds.count("laplace"),
                "error": result.value,
                "Gaussian, ratio": ratio["gaussian on every coordinate"],
                "Laplace, ratio": ratio["laplace on every coordinate"],
                "checked": result.certificate.verify(),
            }
        )
    return pd.DataFrame(rows)


def draw(report: Report, table: pd.DataFrame) -> None:
    """Root mean squared error per answer by the number of steps."""
    fig, axes = figure(1, 2, width=9.0, height=3.6)
    for axis, loss in zip(axes, ("total", "largest")):
        part = table[table["loss"] == loss]
        least = np.sqrt(part["squared error at mu 1"])
        axis.plot(part["steps"], least, color=COLOURS[0], marker="o", label="optimal")
        for k, name in enumerate(PUBLISHED[:3], start=1):
            axis.plot(
                part["steps"], least * np.sqrt(part[name]), color=COLOURS[k], linestyle="--", label=name
            )
        which = "root mean square of all sums" if loss == "total" else "worst sum"
        axis.set(xscale="log", xlabel="steps", ylabel=f"standard deviation at μ = 1, {which}", ylim=(0, None))
    legend_above(axes[0])
    report.figure(
        "prefix-sums", fig, caption="Error of private running totals: the optimum and what is published."
    )


def run(report: Report) -> None:
    """Fill the report."""
    table = prefix_sums(report)
    report.text(
        "## Prefix sums\n\nOne person changes one step by one. Columns of names are errors over the optimum's; `gap` is its proved distance "
        "to the least of all covariances."
    )
    report.table("prefix-sums", table, rtol=1e-5, atol=2e-6, volatile=("iterations", "gap"))
    last = table[table["loss"] == "total"].iloc[-1]
    worst = table[table["loss"] == "largest"].iloc[-1]
    report.text(
        f"At {last['steps']:.0f} steps the square root factorization, whose constants are in closed form, costs "
        f"{100 * (last[PUBLISHED[0]] - 1):.1f}% more in total than the optimum and {100 * (worst[PUBLISHED[0]] - 1):.1f}% more at the worst "
        f"sum; the binary tree with least squares {last[PUBLISHED[1]]:.2f} and {worst[PUBLISHED[1]]:.2f} times as much. The optimum of "
        f"the worst sum grows as (ln n)/π: {math.sqrt(worst['squared error at mu 1']):.4f} against "
        f"{math.log(worst['steps']) / math.pi:.4f} plus a constant."
    )
    draw(report, table)
    report.text(
        "## Ranges, marginals, products\n\nFor marginals the bound of the singular values is attained: by symmetry equal weights are optimal. "
        "The optimum of a product is the product of the optima."
    )
    report.table("workloads", other_workloads(report), rtol=1e-5, atol=2e-6, volatile=("gap",))
    report.text(
        "## Counts of which one person changes a few\n\nTwenty counts. With every pattern of signs no covariance does better than independent noise; where all "
        "of a person's counts go one way, correlated noise saves the most when many change."
    )
    report.table("few-changes", few_changes(), rtol=1e-6, atol=1e-8, volatile=("gap",))
    report.text(
        "## A type for each coordinate\n\nLaplace noise on some, Gaussian on the others, one (ε, δ), composed exactly."
    )
    report.table("mixes", mixes(report), rtol=2e-3)

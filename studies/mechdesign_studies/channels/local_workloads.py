r"""The best local report for linear questions on counts, against published reports with their best decoders.

A person of one of k categories sends one ε-locally private report; wanted are histograms, running totals, ranges, marginals and
moments of everybody's counts. `md.LocalWorkload` is the optimum over all tables and decoders, with its proved bound. Beside it stand subset
selection, Hadamard response, unary encodings and k-ary response, each of its best size and with its best decoder, and the workload-adaptive
gradient descent of McKenna, Maity, Mazumdar and Miklau (2020), run here: projected gradient descent
on a table of 4k reports and on the bounds of its columns, from a random table.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

import mechdesign as md
from mechdesign.plotting import figure
from mechdesign.shell.studykit import Report

EPSILONS = (0.5, 1.0, 2.0)
GAPS = {8: 1e-6, 12: 1e-6, 16: 1e-6, 32: 0.01, 64: 0.05}
STEPS = 1000
LARGE = ("running totals", "all ranges")  # of 64 categories


def workloads(size: int) -> dict[str, md.Workload]:
    """Questions on so many categories."""
    places = np.linspace(-1, 1, size)
    moments = np.array([places**power for power in (1, 2, 3, 4)])
    found = {
        "histogram": md.Workload.identity(size),
        "running totals": md.Workload.prefix_sums(size),
        "all ranges": md.Workload.ranges(size),
        "four moments": md.Workload(moments),
    }
    if size in (8, 16):
        found["pairs of attributes"] = md.Workload.marginals((2,) * int(math.log2(size)), order=2)
    return found


def projected(table: np.ndarray, low: np.ndarray, growth: float) -> np.ndarray:
    """The nearest table within [z_y, e^ε z_y] whose rows sum to 1: each row is shifted by one number and cut off."""
    least, most = (low - table).min(axis=1), (growth * low - table).max(axis=1)
    for _ in range(60):
        middle = (least + most) / 2
        above = np.clip(table + middle[:, None], low, growth * low).sum(axis=1) > 1
        least, most = np.where(above, least, middle), np.where(above, middle, most)
    return np.clip(table + ((least + most) / 2)[:, None], low, growth * low)


def descent(gram: np.ndarray, growth: float, rate: float, steps: int) -> float:
    """Projected gradient descent on the table and on its bounds z from a random table; the best of its steps."""
    k = len(gram)
    outputs, rng, best = 4 * k, np.random.default_rng(0), math.inf
    low = np.full(outputs, (1 + 1 / growth) / (2 * outputs))
    table = projected(rng.random((k, outputs)), low, growth)
    for _ in range(steps):
        columns = table / table.mean(axis=0)
        moments = columns @ table.T
        if np.linalg.eigvalsh(moments)[0] < 1e-9:  # a rate at which reports no longer tell categories apart
            break
        inverse = np.linalg.inv(moments)
        cost = float((gram * inverse).sum())
        best = min(best, cost)
        spread = inverse @ gram @ inverse @ columns
        slope = (columns * spread).sum(axis=0) / k - 2 * spread
        slope /= cost
        at_low, at_high = table <= low * (1 + 1e-12), table >= growth * low * (1 - 1e-12)
        free = ~(at_low | at_high)
        level = (slope * free).sum(axis=1, keepdims=True) / np.maximum(free.sum(axis=1, keepdims=True), 1)
        turn = ((slope - level) * at_low).sum(axis=0) + growth * ((slope - level) * at_high).sum(axis=0)
        low = np.clip(low - rate / (k * growth) * turn, 1e-9, 1.0)
        low *= min(1.0, 0.999 / low.sum()) * max(1.0, 1.001 / (growth * low.sum()))
        table = projected(table - rate * slope, low, growth)
    return best


def adaptive(workload: md.Workload, epsilon: float) -> float:
    """What the published search reaches: the rate is the best of short runs, as there."""
    gram, growth = workload.gram(), math.exp(epsilon)
    rate = min((10.0**-e for e in (0.5, 1, 1.5, 2, 2.5, 3)), key=lambda r: descent(gram, growth, r, 60))
    return descent(gram, growth, rate, STEPS)


def run(report: Report) -> None:
    report.text(
        "Cost of one report, tr(W M⁻¹ Wᵀ): the sum over the answers of the variance on average over the categories, plus ‖W‖²/k. `best` is "
        "certified, `gap` its distance to the proved bound of every unbiased local report. The other columns are ratios to `best`: of subset selection, "
        "Hadamard response (a table, of 64 categories at most) and unary encodings of their best size, of k-ary response, each with its best decoder, and of the "
        "workload-adaptive search. Of histograms subset selection is the optimum, by a theorem."
    )
    sizes = [8, 12, 16, 32, 64]
    cases = [
        (k, name, e)
        for k in sizes
        for name in workloads(k)
        for e in (EPSILONS if k <= 16 else (1.0,))
        if k < 64 or name in LARGE
    ]
    cases += [(k, "histogram", e) for k in (100, 1000) for e in (1.0, 2.0)]
    rows = []
    with report.progress("questions", len(cases)) as step:
        for k, name, epsilon in cases:
            result = md.LocalWorkload(workloads(k)[name], md.PureDP(epsilon)).solve(gap=GAPS.get(k, 1e-6))
            published = result.design.costs()
            ratios = {
                label: min((v for n, v in published.items() if word in n), default=math.nan) / result.value
                for label, word in (
                    ("subset selection", "subset"),
                    ("Hadamard", "Hadamard"),
                    ("unary", "unary"),
                    ("k-ary", "k-ary"),
                )
            }
            rows.append(
                {
                    "question": name,
                    "k": k,
                    "epsilon": epsilon,
                    "best": result.value,
                    "gap": result.gap,
                    **ratios,
                    "workload-adaptive": adaptive(workloads(k)[name], epsilon) / result.value
                    if k <= 16
                    else math.nan,
                    "certified": bool(result.certificate.verify()) and result.gap <= GAPS.get(k, 1e-6),
                    "seconds": result.solver_report.seconds,
                }
            )
            step()
    frame = pd.DataFrame(rows)
    report.table(
        "costs",
        frame,
        caption="The best report, and what published ones cost over it",
        volatile=("gap", "workload-adaptive"),
        timings=("seconds",),
        rtol=0.03,
        atol=1e-6,
        show=60,
    )
    one = frame[frame["epsilon"] == 1.0]
    fig, axes = figure(1, 2, width=8.0, height=3.2)
    for axis, name in zip(axes, ("running totals", "histogram")):
        part = one[one["question"] == name]
        for label in ("subset selection", "Hadamard", "unary", "k-ary"):
            axis.plot(part["k"], part[label], marker="o", markersize=3, label=label)
        axis.set(xlabel="categories", title=f"{name}, ε = 1", xscale="log", yscale="log")
    axes[0].set_ylabel("cost over the best report's")
    axes[0].legend(fontsize=7)
    report.figure(
        "ratios", fig, caption="What published reports cost over the best one, with their best decoders"
    )

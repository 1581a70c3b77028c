r"""The best local report for linear questions on counts, against published reports with their best decoders.

A person of one of k categories sends one ε-locally private report; wanted are histograms, running totals, ranges, marginals and
moments of everybody's counts. `md.LocalWorkload` is the optimum over all tables and decoders, with its proved bound. Beside it stand subset
selection, Hadamard response, unary encodings and k-ary response, each of its best size and with its best decoder, and the workload-adaptive
gradient descent of McKenna, Maity, Mazumdar and Miklau (2020), run here: Adam on a table of 4k reports projected onto the private ones.
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
STEPS = 1500


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


def projected(table: np.ndarray, low: np.ndarray, growth: float) -> tuple[np.ndarray, np.ndarray]:
    """The table within [z_y, e^ε z_y] whose rows sum to 1, each shifted by one number, and which entries are inside."""
    shift_low, shift_high = np.full(len(table), -2.0), np.full(len(table), 2.0)
    for _ in range(50):
        middle = (shift_low + shift_high) / 2
        sums = np.clip(table + middle[:, None], low, growth * low).sum(axis=1)
        shift_low, shift_high = np.where(sums < 1, middle, shift_low), np.where(sums < 1, shift_high, middle)
    moved = table + ((shift_low + shift_high) / 2)[:, None]
    return np.clip(moved, low, growth * low), (moved > low) & (moved < growth * low)


def adaptive(workload: md.Workload, epsilon: float, seed: int = 0) -> float:
    """What the published search reaches: projected gradient descent on table and bounds, from a random one; the best of its steps."""
    growth, k = math.exp(epsilon), workload.size
    gram, rng, outputs = workload.gram(), np.random.default_rng(seed), 4 * workload.size
    low = np.full(outputs, (1 + 1 / growth) / (2 * outputs))
    table = projected(rng.random((k, outputs)) / outputs * growth, low, growth)[0]
    first, second, best = np.zeros((k, outputs)), np.zeros((k, outputs)), math.inf
    for step in range(1, STEPS + 1):
        mean = table.mean(axis=0)
        columns = table / mean
        inverse = np.linalg.inv(columns @ table.T)
        best = min(best, float((gram * inverse).sum()))
        spread = inverse @ gram @ inverse @ columns
        slope = -2 * spread + (columns * spread).sum(axis=0) / k
        first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope**2
        move = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.99**step)) + 1e-12)
        rate = 0.03 / outputs * (1 - step / (STEPS + 1))
        raw = table - rate * move
        low = np.maximum(low, 1e-9) * 0.9 + 0.1 * np.maximum(raw.min(axis=0), raw.max(axis=0) / growth).clip(
            1e-9
        )
        low *= min(1.0, 0.999 / low.sum())
        low *= max(1.0, 1.001 / (growth * low.sum()))
        table = projected(raw, low, growth)[0]
    return best


def run(report: Report) -> None:
    report.text(
        "Cost of one report, tr(W M⁻¹ Wᵀ): the sum over the answers of the variance on average over the categories, plus ‖W‖²/k. `best` is "
        "certified, `gap` its distance to the proved bound of every unbiased local report. The other columns are ratios to `best`: of subset selection, "
        "Hadamard response and unary encodings of their best size, of k-ary response, each with its best decoder, and of the workload-adaptive search."
    )
    sizes = [8, 12, 16, 32, 64] if False else [8, 12, 16, 32]
    cases = [(k, name, e) for k in sizes for name in workloads(k) for e in (EPSILONS if k <= 16 else (1.0,))]
    rows = []
    with report.progress("questions", len(cases)) as step:
        for k, name, epsilon in cases:
            result = md.LocalWorkload(workloads(k)[name], md.PureDP(epsilon)).solve(gap=GAPS[k])
            published = result.design.published()
            ratios = {
                label: min(v for n, v in published.items() if word in n) / result.value
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
                    "certified": bool(result.certificate.verify()) and result.gap <= GAPS[k],
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
        rtol=5e-3,
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

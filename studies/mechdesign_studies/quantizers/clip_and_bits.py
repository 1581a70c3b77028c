r"""The clip and the bits together: the mean of n clients, each of whom clips a number and reports it in a few bits.

Numbers follow a public prior. *Best* is the least root mean squared error of the mean over clipping range, number of outputs (up to
16) and mechanism, the bias of clipping counted at its largest: that of any law which loses no more than the prior at either end. Fixed ranges are
answered by the best 16 outputs there; Laplace noise, which is not sent in a few bits, by its own best range.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from scipy import optimize, stats

import mechdesign as md
from mechdesign.plotting import COLOURS, figure
from mechdesign.shell.studykit import Report

SEARCHED = "optimal, searched outputs"
PRIORS = {
    "normal": stats.norm(),
    "Laplace": stats.laplace(scale=math.sqrt(0.5)),
    "lognormal": stats.lognorm(1.0),
}
EPSILON = 1.0
FIXED = ("mean ± 2σ", "mean ± 3σ", ".1% to 99.9%")


def fixed_ranges(law: object) -> dict[str, tuple[float, float]]:
    """Ranges that people use; no lower than a number can be."""
    mean, deviation, (start, _) = law.mean(), law.std(), law.support()
    ranges = [(mean - k * deviation, mean + k * deviation) for k in (2, 3)]
    ranges.append((float(law.ppf(0.001)), float(law.ppf(0.999))))
    return {name: (max(low, start), high) for name, (low, high) in zip(FIXED, ranges)}


def laplace(question: md.LocalReport, best: md.Quantizer) -> float:
    """Root mean squared error of Laplace noise on clipped numbers, at its best range of those like the quantizer's."""
    (low, high), centre = best.input_range, question.prior.law.mean()

    def squared(times: float) -> float:
        ends = centre - times * (centre - low), centre + times * (high - centre)
        clip = question.mean.errors(best, *ends)
        noise = np.array([2 * ((ends[1] - ends[0]) / EPSILON) ** 2])
        return float(clip._replace(noise=noise).squared(question.clients)[0])

    found = optimize.minimize_scalar(lambda t: squared(math.exp(t)), bounds=(-3, 3), method="bounded")
    return math.sqrt(found.fun)


def run(report: Report) -> None:
    """Every prior and number of clients."""
    priors = {"normal": PRIORS["normal"]} if report.quick else PRIORS
    numbers, bits = ((10**3, 10**5), 2) if report.quick else ([10**k for k in range(2, 8)], 4)
    rows: list[dict[str, object]] = []
    with report.progress("priors and clients", len(priors) * len(numbers)) as step:
        for name, law in priors.items():
            fixed = {
                words: md.compare(
                    md.LocalReport(bits, ends, law, clients=1),
                    md.PureDP(EPSILON),
                    mechanisms=[SEARCHED],
                    progress=False,
                )[SEARCHED]
                for words, ends in fixed_ranges(law).items()
            }
            for n in numbers:
                question = md.LocalReport(bits, prior=law, clients=n)
                found = md.compare(question, md.PureDP(EPSILON), mechanisms=[SEARCHED], progress=False)[
                    SEARCHED
                ]
                told = next(note for note in found.notes if note.startswith("by bits"))
                by_bits = [
                    part.split(": ") for part in told.removeprefix("by bits ").split(";")[0].split(", ")
                ]
                low, high = found.mechanism.input_range
                root = math.sqrt(question.error(found))
                row = {"prior": name, "clients": n, "from": low, "to": high}
                row |= {f"{count} bit{'s' * (count != '1')}": float(error) for count, error in by_bits}
                row["largest bias"] = question.mean.of(found.mechanism).bias.item()
                row |= {words: math.sqrt(question.error(result)) / root for words, result in fixed.items()}
                row["Laplace noise"] = laplace(question, found.mechanism) / root
                rows.append(row)
                step()
    table = pd.DataFrame(rows)
    counts = [f"{k} bit{'s' * (k > 1)}" for k in range(1, bits + 1)]
    report.table(
        "error",
        table[["prior", "clients", *counts, *FIXED, "Laplace noise"]],
        caption="Root mean squared error of the mean at ε = 1, each number of bits at its best range and outputs; then times the best, "
        "of fixed ranges and of Laplace noise",
        rtol=5e-3,
    )
    report.table(
        "range",
        table[["prior", "clients", "from", "to", "largest bias"]],
        caption="The best range, and the largest bias of clipping to it",
        rtol=2e-2,
    )
    balanced(report, priors)
    draw(report, table, counts[-1])
    worst = {words: table[words].max() for words in (*FIXED, "Laplace noise")}
    enough = (table[counts[min(1, bits - 1)]] / table[counts[-1]]).max() - 1
    report.text(
        "The best range widens with the number of clients: noise falls with n, the bias of clipping does not. "
        + " ".join(f"{words} has up to {ratio:.1f} times the error." for words, ratio in worst.items())
        + (
            f" Two bits are within {100 * enough:.1f}% of {bits}: the range matters more than the bits."
            if bits > 2
            else ""
        )
    )


def balanced(report: Report, priors: dict[str, object]) -> None:
    """What comes of taking the prior for exactly right: ranges that do not depend on n, and hardly an answer."""
    rows = []
    n = 10**5
    for name, law in priors.items():
        question = md.LocalReport(1, prior=law, clients=n)
        two = md.compare(question, md.PureDP(EPSILON), mechanisms=[SEARCHED], progress=False)[
            SEARCHED
        ].mechanism
        low, high = two.input_range
        centre = law.mean()
        grid = np.geomspace(1e-3, 1, 600)
        pairs = (
            np.array([(a, b) for a in grid for b in grid])
            if name == "lognormal"
            else np.stack([grid, grid], 1)
        )
        ends = centre - pairs[:, 0] * (centre - low), centre + pairs[:, 1] * (high - centre)
        errors = np.sqrt(question.mean.errors(two, *ends).exact(n))
        k = int(np.argmin(errors))
        rows.append(
            {
                "prior": name,
                "from": ends[0][k],
                "to": ends[1][k],
                "error if the prior is right": errors[k],
                "error of answering the prior's mean": law.std() / math.sqrt(n),
                "error if one end takes off nothing": math.sqrt(
                    question.mean.errors(two, ends[0][k], ends[1][k]).squared(n)[0]
                ),
            }
        )
    report.table(
        "balanced",
        pd.DataFrame(rows),
        caption=f"One bit, {n:,} clients: the range of least error if what is clipped off at both ends balances exactly as the prior says",
        rtol=2e-2,
    )


def draw(report: Report, table: pd.DataFrame, best: str) -> None:
    """The error over the number of clients, times the best."""
    names = list(dict.fromkeys(table["prior"]))
    fig, axes = figure(1, len(names), width=1.2 + 2.9 * len(names), height=3.4, sharey=True, squeeze=False)
    for axis, name in zip(axes[0], names):
        part = table[table["prior"] == name]
        axis.plot(
            part["clients"], part["1 bit"] / part[best], color=COLOURS[6], label="1 bit, its best range"
        )
        for k, words in enumerate((*FIXED, "Laplace noise")):
            axis.plot(part["clients"], part[words], ("--", "-.", ":", "-")[k], color=COLOURS[k], label=words)
        axis.axhline(1.0, color=COLOURS[6], linewidth=0.8)
        axis.set(xscale="log", yscale="log", xlabel="clients", title=name)
    axes[0][0].set(ylabel="error over the best")
    axes[0][-1].legend(fontsize=7)
    report.figure("clip-and-bits", fig)

r"""A vector under one budget: errors over ε, bits and dimension, against the best that is possible and everything published.

The cap (PrivUnit) has the least error of all unbiased ε-private answers to unit vectors. How near do b bits come to it, with
the rotated simplex, with random directions and with sampled coordinates? What do SQKR, I-MVU, the Poisson binomial mechanism, Skellam and distributed
discrete Gaussian noise cost at the same budget, of one client (local), and of the sum of many that a secure aggregation reveals (central: a weaker
guarantee, that trusts the aggregation)? Errors are exact before any run; runs check them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import mechdesign as md
from mechdesign.plotting import COLOURS, figure
from mechdesign.shell.studykit import Report

from .baselines import SQKR, DistributedDiscreteGaussian, InterpolatedMVU, PoissonBinomial, Skellam

DELTA = 1e-6
PRINTED = {
    (500, 2.0): (807.033, 1351.72, 933.82, 857.36, 818.58, 809.61),
    (500, 4.0): (216.943, 843.26, 407.29, 252.18, 226.10, 218.79),
    (1000, 4.0): (434.603, 1688.37, 815.98, 505.61, 453.42, 438.79),
}
PRINTED_BITS = (1, 2, 4, 6, 8)
BOXED = ("rotated simplex", "random directions", "sampled coordinates", "sampled signs")


def sphere(d: int, bits: int, epsilon: float, **more: Any) -> md.SphereQuantizer:
    return md.SphereQuantizer(d, bits, md.PureDP(epsilon), **{"inputs": "sphere", **more})


def cap(d: int, epsilon: float) -> float:
    return md.PrivUnit(d, md.PureDP(epsilon), inputs="sphere").error


def reference(report: Report) -> None:
    """The errors that are known for unit vectors, to all their digits."""
    rows = []
    for (d, epsilon), (known_cap, *known) in PRINTED.items():
        found = [sphere(d, b, epsilon).error for b in PRINTED_BITS]
        agree = round(cap(d, epsilon), 3) == known_cap and [round(e, 2) for e in found] == known
        rows.append((d, epsilon, cap(d, epsilon), *found, agree))
    columns = ["d", "epsilon", "cap", *(f"{b} bits" for b in PRINTED_BITS), "all digits agree"]
    report.table(
        "reference", pd.DataFrame(rows, columns=columns), caption="Expected squared error for unit vectors"
    )


def over_everything(report: Report) -> pd.DataFrame:
    """Error over ε, bits and d, as a multiple of the cap's."""
    dimensions = (100, 1000) if report.quick else (100, 1000, 10_000)
    epsilons = (1.0, 4.0, 8.0) if report.quick else (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
    rows = []
    for d in dimensions:
        for epsilon in epsilons:
            least = cap(d, epsilon)
            for bits in (1, 2, 4, 6, 8, 10, 12):
                if 2**bits > d + 1:
                    continue
                made = sphere(d, bits, epsilon)
                rows.append((d, epsilon, bits, made.near, made.error, made.error / least, made.shared_error))
    columns = ["d", "epsilon", "bits", "near", "error", "over the cap", "left by a shared rotation"]
    frame = pd.DataFrame(rows, columns=columns)
    report.table("simplex", frame, caption="Rotated simplex: error over ε, bits and d")
    return frame


def few_dimensions_or_many_bits(report: Report) -> None:
    """Where no simplex has 2^b vertices: polygons and random directions, over the cap's error of the same inputs; what they cost where one has."""
    cases = [
        (2, 8.0, 8),
        (3, 8.0, 8),
        (10, 8.0, 8),
        (30, 8.0, 8),
        (100, 8.0, 8),
        (1000, 8.0, 8),
        (100, 4.0, 8),
        (1000, 4.0, 8),
    ]
    cases += [(100, 16.0, 16), (1000, 16.0, 16), (10_000, 16.0, 16), (100_000, 16.0, 16)]
    rows = []
    for d, epsilon, bits in cases:
        for inputs in ("sphere", "ball"):
            result = md.VectorQuantizer(d, md.PureDP(epsilon), bits=bits, inputs=inputs).solve()
            table, least = result.trials(), md.PrivUnit(d, md.PureDP(epsilon), inputs=inputs).error
            simplex = table[table["mechanism"] == "rotated simplex"]["error"].min() / least
            drawn = (
                table[table["mechanism"].isin(("random directions", "rotated polygon"))]["error"].min()
                / least
            )
            rows.append(
                (d, epsilon, bits, inputs, simplex, drawn, result.value / least, table.iloc[0]["mechanism"])
            )
    columns = ["d", "epsilon", "bits", "inputs", "simplex", "random directions, one message", "best", "what"]
    report.table(
        "directions",
        pd.DataFrame(rows, columns=columns),
        caption="Errors over the cap's, in few dimensions or many bits (two: corners of a polygon)",
    )


def everything_published(report: Report, d: int, epsilon: float, clients: int) -> pd.DataFrame:
    """n times the squared error of the mean of unit vectors, each mechanism at the same (ε, δ)."""
    pure, approximate = md.PureDP(epsilon), md.ApproximateDP(epsilon, DELTA)
    byte = min(8, (d + 1).bit_length() - 1)
    local = [
        ("cap, simulation only", md.PrivUnit(d, pure, inputs="sphere").error, None, 0.0),
        (f"rotated simplex, {byte} bits", sphere(d, byte, epsilon).error, byte, 0.0),
        ("rotated simplex, 1 bit", sphere(d, 1, epsilon).error, 1, 0.0),
    ]
    coordinates = md.SampledCoordinates(d, 16, pure, "ball")
    local.append(("sampled coordinates", coordinates.error, coordinates.slots * coordinates.code_bits, 0.0))
    for name, kind in (("SQKR", "kashin"), ("SQKR with signs after a rotation", "rotation")):
        sqkr = SQKR(d, pure, bits=8, representation=kind)
        local.append((name, sqkr.error, sqkr.message_bits, 0.0))
    rows = [("local", 1, *row) for row in local]
    for n, trials in ((1, 16), (clients, 16)):
        model = "local" if n == 1 else "secure aggregation"
        made: list[tuple[str, Any]] = []
        if n == 1:
            made.append(("I-MVU, 1 bit a coordinate", InterpolatedMVU(d, approximate)))
        made += [
            (
                f"Poisson binomial, {trials} trials",
                PoissonBinomial(d, approximate, trials=trials, clients=n),
            ),
            ("Skellam, 16 bits a coordinate", Skellam(d, approximate, bits=16, clients=n)),
            (
                "distributed discrete Gaussian, 16 bits",
                DistributedDiscreteGaussian(d, approximate, bits=16, clients=n),
            ),
        ]
        rows += [(model, n, name, b.error * n, b.message_bits, DELTA) for name, b in made]
    columns = ["model", "clients", "mechanism", "error", "bits a vector", "delta"]
    frame = pd.DataFrame(rows, columns=columns)
    frame["over the cap"] = frame["error"] / cap(d, epsilon)
    report.table(
        "published",
        frame,
        caption=f"n times the squared error of the mean, d = {d}, ε = {epsilon:g}; local: every client alone, "
        "secure aggregation: only the sum is seen",
        rtol=1e-3,
    )
    return frame


def boxes(report: Report) -> None:
    """ℓ∞-bounded vectors: the simplex in the ball about the box, sampled coordinates, their signs together, and the bound of the corners."""
    rows = []
    for d in (100, 1000):
        for epsilon in (1.0, 2.0, 4.0, 8.0, 16.0):
            for bits in (1, 2, 4, 8):
                result = md.VectorQuantizer(d, md.PureDP(epsilon), bits=bits, inputs="box").solve()
                table = result.trials().set_index("mechanism")["error"].groupby(level=0).min()
                errors = [table.get(name, float("nan")) for name in BOXED]
                rows.append((d, epsilon, bits, *errors, table.idxmin(), result.value / result.lower_bound))
    columns = ["d", "epsilon", "bits", *BOXED, "best", "over the lower bound"]
    report.table(
        "boxes",
        pd.DataFrame(rows, columns=columns),
        caption="Coordinates in [−1, 1]: worst expected squared error",
    )


def runs(report: Report) -> None:
    """Exact errors against draws, both rotations, and the fast one's bias at a unit vector and at a spread one."""
    d, count = 1000, 60 if report.quick else 600
    one = np.eye(d)[0]
    rows = []
    for name, made in (
        ("simplex, exact rotation", sphere(d, 8, 4.0)),
        ("simplex, fast rotation", sphere(d, 8, 4.0, rotation="fast")),
        ("cap", md.PrivUnit(d, md.PureDP(4.0), inputs="sphere")),
    ):
        answers = made.sample(np.tile(one, (count, 1)), rng=report.rng(name))
        error = ((answers - one) ** 2).sum(axis=1)
        deviation = error.std(ddof=1) / count**0.5
        rows.append(
            (
                name,
                count,
                made.error,
                error.mean(),
                deviation,
                abs(error.mean() - made.error) <= 3 * deviation,
            )
        )
    columns = ["mechanism", "vectors", "exact error", "mean error", "standard error", "within three"]
    report.table(
        "runs", pd.DataFrame(rows, columns=columns), caption=f"Runs at d = {d}, ε = 4, 8 bits", rtol=1e-6
    )
    rows = []
    for dimension, bits in ((10, 3), (20, 4), (100, 6), (300, 8), (1000, 8)):
        made = sphere(dimension, bits, 4.0, rotation="fast")
        draws = 2000 if report.quick else 50_000
        for shape, x in (
            ("one coordinate", np.eye(dimension)[0]),
            ("all alike", np.full(dimension, dimension**-0.5)),
        ):
            bias, deviation = made.rotation_bias(x, rng=report.rng(f"{dimension} {shape}"), draws=draws)
            rows.append((dimension, bits, shape, bias, deviation))
    columns = ["d", "bits", "vector", "relative bias", "standard error"]
    report.table(
        "fast-bias",
        pd.DataFrame(rows, columns=columns),
        caption="The fast rotation's bias, measured",
        rtol=1e-5,
    )


def draw(report: Report, frame: pd.DataFrame, published: pd.DataFrame, d: int, epsilon: float) -> None:
    """Error over ε at the largest d, and over bits against what is published."""
    fig, axes = figure(1, 2, width=9.5, height=3.8)
    largest = frame[frame["d"] == frame["d"].max()]
    for colour, (bits, part) in zip(COLOURS, largest.groupby("bits")):
        axes[0].plot(part["epsilon"], part["over the cap"], "o-", color=colour, label=f"{bits} bits")
    axes[0].set(xlabel="ε of the whole vector", ylabel="error over the cap's", xscale="log", yscale="log")
    axes[0].set_title(f"rotated simplex, d = {frame['d'].max()}")
    axes[0].legend(fontsize=7)
    local = published[(published["model"] == "local") & published["bits a vector"].notna()]
    for colour, (_, row) in zip(COLOURS * 2, local.iterrows()):
        axes[1].plot(row["bits a vector"], row["over the cap"], "o", color=colour, label=row["mechanism"])
    axes[1].axhline(1.0, color="black", linestyle=":")
    axes[1].set(xlabel="bits a vector", ylabel="error over the cap's", xscale="log", yscale="log")
    axes[1].set_title(f"one client, d = {d}, ε = {epsilon:g}")
    axes[1].legend(fontsize=7)
    report.figure("errors", fig, caption="How near the cap, over ε, bits and mechanisms")


def run(report: Report) -> None:
    report.text(
        "Every mechanism protects a whole vector, between any two inputs of a client. Errors are exact before any run: "
        "order statistics of normals for the simplex, the incomplete beta function for the cap. Baselines with a δ have "
        f"δ = {DELTA:g}; the discrete ones are calibrated by their papers' Rényi bounds, the Poisson binomial mechanism from its laws. "
        "With a secure aggregation noise is shared by all clients, and nothing protects a client from the aggregation itself."
    )
    d, clients = (100, 100) if report.quick else (500, 1000)
    reference(report)
    frame = over_everything(report)
    few_dimensions_or_many_bits(report)
    published = everything_published(report, d, 4.0, clients)
    boxes(report)
    runs(report)
    best = published[published["mechanism"].str.startswith("rotated simplex")].iloc[0]
    others = published[(published["model"] == "local") & ~published["mechanism"].str.contains("simplex|cap")]
    nearest = others.loc[others["over the cap"].idxmin()]
    report.text(
        f"At d = {d}, ε = 4 a rotated simplex of {best['bits a vector']:.0f} bits errs {best['over the cap'] - 1:.1%} more than the best that any number of bits can do. "
        f"Of what is published, {nearest['mechanism']} comes nearest in the local model, at {nearest['over the cap']:.2f} times the cap's error in "
        f"{nearest['bits a vector']:.0f} bits.",
        of=("published",),
    )
    draw(report, frame, published, d, 4.0)

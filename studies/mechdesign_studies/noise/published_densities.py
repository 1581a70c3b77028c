r"""The densities of the literature for many compositions, calibrated to (ε, δ) and set beside the named families.

Cactus noise minimises the Kullback–Leibler divergence between the law and its shift at a given cost, which decides when
infinitely many coordinates are composed; least-Rényi noise minimises the divergence of order a > 1. How much divergence is
allowed follows from the requirement: the δ of K coordinates of sensitivity 1, composed from above.

Alghamdi, Asoodeh, Calmon, Kosut, Sankar and Wei, *Cactus mechanisms: optimal differential privacy mechanisms in the
large-composition regime* (2022); Gilani, Kurri, Kosut and Sankar (2025) for orders above 1.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import cvxpy as cp
import joblib
import numpy as np
import pandas as pd
from scipy import optimize

import mechdesign as md
from mechdesign.shell.studykit import Report

POINTS = ((3, 4.0, 1e-2), (8, 4.0, 1e-3), (20, 5.0, 1e-6), (20, 8.0, 1e-3), (50, 10.0, 1e-6))
QUICK = ((20, 8.0, 1e-3),)
REACH = 5.0
"""Standard deviations of Gaussian noise on each side of the lattice."""


def least_divergence(order: float, divergence: float, spread: float) -> md.noise.CellNoise:
    """The law of least variance whose Rényi divergence from its shift by 1 is at most this; `spread` sizes the lattice.

    Beyond the lattice the outermost period repeats, r times as heavy each time, and adds what the sums of it are.
    """
    n = max(1, round(100 / (REACH * spread)))
    side, ratio = (
        math.ceil(REACH * spread * n),
        Fraction(round(2**30 * math.exp(-min(4 / spread, 20))), 2**30),
    )
    r, position = float(ratio), np.abs(np.arange(-side, side + 1))
    usual = np.exp(
        -((np.arange(side + 1) / n / spread) ** 2) / 2
    )  # of Gaussian noise: what is varied is near 1
    half = cp.multiply(usual, cp.Variable(side + 1, nonneg=True))
    p = half[position]
    here, there, outer = p[:-n], p[n:], cp.sum(p[-n:])
    squares = ((position / n) ** 2 + 1 / (12 * n * n)).astype(float)
    x = np.abs(np.arange(side - n + 1, side + 1)) / n
    far = sum(r**j * ((x + j) ** 2 + 1 / (12 * n * n)) for j in range(1, 1 + math.ceil(40 / -math.log(r))))
    if order == 1:
        ends = [
            cp.sum(cp.kl_div(here, there)) + cp.sum(here) - cp.sum(there) + math.log(1 / r) * outer / (1 - r)
            <= divergence
        ]
    else:
        sums = cp.Variable(2 * side + 1 - n)
        unit = np.maximum(usual[position][:-n], usual[position][n:])
        tail = (r ** (1 - order) + r**order) / (1 - r) * outer
        ends = [
            cp.PowCone3D(sums, cp.multiply(1 / unit, there), cp.multiply(1 / unit, here), 1 / order),
            unit @ sums + tail <= math.exp((order - 1) * divergence),
        ]
    mass = cp.sum(p) + 2 * r / (1 - r) * outer
    problem = cp.Problem(
        cp.Minimize(squares @ p + 2 * far @ p[-n:]), [mass == 1, half[1:] <= half[:-1], *ends]
    )
    problem.solve(solver="CLARABEL")
    if p.value is None:
        raise cp.error.SolverError(problem.status)
    weights = tuple(int(Fraction(max(float(m), 0.0)) * 2**100) for m in p.value)
    width = math.ceil(2**30 / n) / 2**30
    return md.noise.CellNoise(weights, width, -len(weights) * width / 2, n, decay=ratio)


def least_variance(k: int, privacy: md.ApproximateDP, order: float, spread: float) -> float:
    """The variance at the divergence where K coordinates keep the privacy."""

    def law(log_divergence: float) -> md.noise.CellProduct:
        return md.noise.CellProduct(least_divergence(order, math.exp(log_divergence), spread), k)

    def over(log_divergence: float) -> float:
        try:
            return math.log(law(log_divergence).delta_interval(privacy.epsilon).upper / privacy.delta)
        except cp.error.SolverError as error:
            if str(error) != cp.INFEASIBLE:
                raise
            return -1.0  # no law on this lattice diverges so little

    start = math.log(order / (2 * spread**2))
    found = optimize.brentq(over, start - 0.5, start + 0.5, xtol=1e-4)
    return float(law(found - 1e-4).variance)


def row(k: int, epsilon: float, delta: float) -> dict[str, Any]:
    """Variances at one point."""
    privacy = md.ApproximateDP(epsilon, delta)
    found: dict[str, float] = {}
    for family in ("gaussian", "gennorm", "staircase"):
        found[family] = md.calibrate(family, privacy=privacy, sensitivity=1.0, dimension=k).value
    for order in (1.0, 3.0, 10.0):
        name = "cactus" if order == 1 else f"Rényi, order {order:g}"
        try:
            found[name] = least_variance(k, privacy, order, math.sqrt(found["gaussian"]))
        except cp.error.SolverError:
            found[name] = math.nan
    found["best family"] = md.OptimalNoise(privacy, loss="squared", dimension=k).solve().value
    return {"K": k, "epsilon": epsilon, "delta": delta, **found}


def run(report: Report) -> None:
    """Fill the report."""
    points = QUICK if report.quick else POINTS
    table = pd.DataFrame(joblib.Parallel(n_jobs=report.jobs)(joblib.delayed(row)(*p) for p in points))
    report.table("densities", table, caption="Least variance of one coordinate", rtol=2e-3)
    least = table[["cactus", "Rényi, order 3", "Rényi, order 10"]].min(axis=1)
    over = 100 * (least / table["best family"] - 1)
    under = 100 * (1 - least / table["gaussian"])
    report.text(
        f"The better of the published densities saves {under.min():.2f}% to {under.max():.2f}% of Gaussian noise's variance and costs "
        f"{over.min():+.2f}% to {over.max():+.2f}% more than the best named family; generalised normal noise is cheaper than all of them in "
        f"{int((table['gennorm'] <= least).sum())} of {len(table)} settings."
    )

"""OPTM beyond four bins: successive linearisation against a general nonlinear solver on the same problem, and its growth.

Run with ``python -m studies.benchmarks.bench_selection [--quick]``. The alternative is SciPy's SLSQP with exact derivatives,
from the optimum over all mechanisms, on the same bilinear loss and limits; it is given the sizes it can take. Up to 16 bins
both are run in turn, in processor time on one thread, the least of each counts; bar: at most 1.2 × SLSQP alone.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace

import numpy as np
from scipy import optimize, stats

import mechdesign as md
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.optm.descent import SelectionBlocks
from mechdesign.solvers.deadline import one_thread

UNIFORM = stats.uniform(-1, 2)


def slsqp(blocks: SelectionBlocks, start: np.ndarray, epsilon: float) -> tuple[float, float, float]:
    """Loss, privacy loss and seconds of SLSQP over (q, floors)."""
    low, high = np.flatnonzero(~blocks.largest), np.flatnonzero(blocks.largest)
    n, rho = blocks.size, math.exp(epsilon)
    rows = blocks.rows.toarray()

    def limits(z: np.ndarray) -> np.ndarray:
        p, a = blocks.limits(z[:n]), z[n:]
        return np.concatenate([p[low] - a[blocks.output[low]], rho * a[blocks.output[high]] - p[high]])

    def slopes(z: np.ndarray) -> np.ndarray:
        jacobian = blocks.jacobian(z[:n]).toarray()
        picked = np.eye(blocks.floors)[blocks.output]
        upper = np.hstack([jacobian[low], -picked[low]])
        return np.vstack([upper, np.hstack([-jacobian[high], rho * picked[high]])])

    constraints = [
        {"type": "ineq", "fun": limits, "jac": slopes},
        {"type": "eq", "fun": lambda z: rows @ z[:n] - 1, "jac": lambda z: np.hstack([rows, np.zeros((len(rows), blocks.floors))])},
    ]  # fmt: skip
    begin = time.process_time()
    found = optimize.minimize(
        lambda z: blocks.loss(z[:n]), np.concatenate([start, blocks.extremes(start)[0]]), method="SLSQP",
        jac=lambda z: np.concatenate([blocks.gradient(z[:n]), np.zeros(blocks.floors)]), bounds=[(0, 1)] * (n + blocks.floors),
        constraints=constraints, options={"maxiter": 300, "ftol": 1e-9},
    )  # fmt: skip
    seconds = time.process_time() - begin
    smallest, largest = blocks.extremes(found.x[:n])
    return float(found.fun), float(np.log((largest / np.maximum(smallest, 1e-300)).max())), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="up to 16 bins only")
    sizes = (4, 5, 6, 8, 10, 12, 14, 16) + (() if parser.parse_args().quick else (32, 64, 128, 256))
    epsilon = 3.0
    reach = 1 / math.tanh(epsilon / 4)
    print(f"absolute loss, epsilon = {epsilon:g}, even outputs on [-{reach:.3f}, {reach:.3f}]")
    print(" bins      value      bound     gap     seconds   SLSQP value   its seconds   ratio")
    for m in sizes:
        bins = np.linspace(-reach, reach, m)
        design = md.OPTM(bins, md.PureDP(epsilon), UNIFORM, bounds="successive")
        own: list[float] = []
        theirs: list[float] = []
        for _ in range(5 if m <= 16 else 1):
            with one_thread():
                begin = time.process_time()
                result = replace(design).solve(certify=False)
                own.append(time.process_time() - begin)
                if m <= 16:
                    blocks = SelectionBlocks(
                        np.array(design.bins),
                        (-1.0, 1.0),
                        Prior.of(UNIFORM),
                        Loss.of("absolute"),
                        mirrored=True,
                    )
                    optimum = md.OptimalQuantizer(bins, md.PureDP(epsilon), UNIFORM).solve(gap=1e-4)
                    start = blocks.imitate(optimum.mechanism.probabilities)
                    value, loss, other = slsqp(blocks, start, epsilon)
                    theirs.append(other)
        seconds = min(own)
        line = f"{m:>5}  {result.value:.6f}  {result.lower_bound:.6f}  {100 * result.gap:>5.2f} %  {seconds:>9.4f}"
        if m <= 16:
            line += f"   {value:.6f} ({'within' if loss <= epsilon * (1 + 1e-6) else f'loss {loss:.3g}'})  {min(theirs):>8.4f}   {seconds / min(theirs):>6.2f} (bar: 1.2)"
        print(line, flush=True)


if __name__ == "__main__":
    main()

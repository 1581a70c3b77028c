"""A ledger holds releases for neighbours of one kind, which every design states."""

import tempfile
from pathlib import Path

import mechdesign as md

rho, folder = md.ZeroConcentratedDP(0.1), Path(tempfile.mkdtemp())
listed, both = [[1.0, 0.0], [0.0, 1.0]], ("add-remove", "replace")
designs = {
    "matrix": lambda n: md.MatrixMechanism(md.Workload.prefix_sums(4), rho, neighbours=n),
    "correlated": lambda n: md.CorrelatedGaussian(listed, rho, neighbours=n),
    "counts": lambda n: md.CountsGaussian(4, 2, rho, neighbours=n),
    "bounded count": lambda n: md.BoundedCount(4, md.PureDP(0.1), neighbours=n),
    "K-norm, listed": lambda n: md.noise.KNorm(2, md.PureDP(0.1), listed, neighbours=n),
    "optimal noise": lambda n: md.OptimalNoise(md.PureDP(0.1), md.Sensitivity(linf=1, neighbours=n)),
    "allocation": lambda n: md.NoiseAllocation("gaussian", [1.0, 2.0], rho, neighbours=n),
}
plans = {n: md.Plan({"count": md.Count()}, rho, neighbours=n).solve() for n in both}
for name, made in designs.items():
    for first in both:
        for second in both:
            path = folder / f"{name} {first} {second}.jsonl"
            ledger = md.Ledger(path, md.ZeroConcentratedDP(1.0))
            plans[first].release({"count": 3}, ledger=ledger)
            try:
                ledger.charge(made(second).solve())
                print(f"{name}: {second} after {first}: entered")
            except md.DesignError as error:
                print(f"{name}: {second} after {first}: refused: {error}")

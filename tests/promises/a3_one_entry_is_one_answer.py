"""A ledger counts one answer an entry: several are refused, unless nobody is in two of them."""

import tempfile
from pathlib import Path

import numpy as np

import mechdesign as md


class Fickle:
    size = 1

    def __array__(self, dtype=None, copy=None):
        """One answer when it is read first, two thousand afterwards."""
        self.size, size = 2000, self.size
        return np.full(size, 3.0)


pure, folder = md.PureDP(1.0), Path(tempfile.mkdtemp())
laplace = md.calibrate("laplace", privacy=pure, sensitivity=1.0)
asked = {
    "laplace": (laplace, [3] * 2000),
    "discrete laplace": (md.calibrate("discrete_laplace", privacy=pure, sensitivity=1), [3] * 2000),
    "gaussian": (md.calibrate("gaussian", privacy=md.ApproximateDP(1, 1e-6), sensitivity=1.0), [3] * 2000),
    "optimal noise": (md.OptimalNoise(pure).solve(), [3] * 2000),
    "bounded count": (md.BoundedCount(5, pure).solve(), [3] * 2000),
    "K-norm, two vectors": (md.noise.KNorm(3, pure).solve(), np.ones((2, 3))),
    "read twice": (laplace, Fickle()),
    "one answer": (laplace, 3),
}
for number, (name, (result, x)) in enumerate(asked.items()):
    ledger = md.Ledger(folder / f"{number}.jsonl", md.ApproximateDP(9, 1e-3))
    try:
        print(f"{name}: {np.size(result.release(x, ledger=ledger).answer)} answer entered")
    except md.DesignError as error:
        print(f"{name}: refused, {len(ledger.to_frame())} entries: {error}")
found = md.Ledger(folder / "disjoint.jsonl", md.PureDP(9))
laplace.release([3] * 2000, ledger=found, disjoint=True)
print("disjoint:", found.to_frame()[["answers", "disjoint", "epsilon"]].to_dict("records"))

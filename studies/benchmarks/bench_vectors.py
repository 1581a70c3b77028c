"""Vectors: encoding against a plain QR and a plain product, scalars against `sample`, C against Python word for word.

Bars: 1,000 vectors of d = 1,000 at 8 bits, each under its own rotation, within 3 × NumPy's QR of as many frames, the fast
rotation within 20 × a product of a 1,000 × 1,000 by a 1,000 × 256 matrix; 10⁶ scalars within 3 × ``sample``; C and Python
agree on 10⁷ draws. Processor times, one thread, alternately in one run.

    python -m studies.benchmarks.bench_vectors
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy import stats
from threadpoolctl import threadpool_limits

import mechdesign as md
from studies.benchmarks.turns import Ratio, medians

D, BITS, COUNT = 1000, 8, 1000


def vectors() -> list[Ratio]:
    """Both rotations."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(COUNT, D))
    x /= np.sqrt((x**2).sum(axis=1, keepdims=True))
    exact = md.SphereQuantizer(D, BITS, md.PureDP(4.0))
    fast = md.SphereQuantizer(D, BITS, md.PureDP(4.0), rotation="fast")
    few = 100  # a tenth: frames of a thousand vectors take two gigabytes
    frames = rng.normal(size=(few, exact.working, exact.outputs - 1))
    left, right = rng.normal(size=(1000, 1000)), rng.normal(size=(1000, 256))
    qr, own = medians(
        lambda: [np.linalg.qr(frame) for frame in frames],
        lambda: exact.encode(x[:few]),
        rounds=3,
    )
    print(
        f"exact rotation: encode {10 * own:.2f} s for {COUNT}, QR alone {10 * qr:.2f} s, ratio {own / qr:.2f} (bar: 3)"
    )
    product, quick = medians(lambda: left @ right, lambda: fast.encode(x), rounds=7)
    print(
        f"fast rotation: encode {1e3 * quick:.0f} ms, product {1e3 * product:.0f} ms, ratio {quick / product:.1f} (bar: 20)"
    )
    return [
        Ratio("exact rotation: encode / QR", own / qr, 3),
        Ratio("fast rotation: encode / product", quick / product, 20),
    ]


def scalars() -> list[Ratio]:
    """Integer tables."""
    quantizer = (
        md.OptimalQuantizer(np.linspace(-3, 3, 16), md.PureDP(2.0), stats.uniform(-1, 2)).solve().mechanism
    )
    table = md.vectors.IntegerTable.of(quantizer)
    x = np.random.default_rng(0).uniform(-1, 1, 10**6)
    table.encode(x[:1])
    plain, own = medians(lambda: quantizer.sample(x, rng=0), lambda: table.encode(x), rounds=7)
    print(
        f"10^6 scalars: encode {1e3 * own:.0f} ms, sample {1e3 * plain:.0f} ms, ratio {own / plain:.2f} (bar: 3)"
    )
    ratios = [Ratio("scalars: encode / sample", own / plain, 3)]
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        print("C: no compiler here")
        return ratios
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "q.h").write_text(md.vectors.c_header(table, name="q"))
        (folder / "q.c").write_text(
            '#include "q.h"\nvoid all(const double *x, const q_word *w, int *out, long n) '
            "{ for (long i = 0; i < n; i++) out[i] = q_encode(x[i], w[i]); }\n"
        )
        subprocess.run(
            [compiler, "-std=c99", "-O2", "-shared", "-fPIC", "q.c", "-o", "q.so"], cwd=folder, check=True
        )
        function = ctypes.CDLL(str(folder / "q.so")).all
    rng, different = np.random.default_rng(1), 0
    for _ in range(10):
        x = rng.uniform(-1, 1, 10**6)
        words = rng.integers(0, 2**64 - 1, x.size, dtype=np.uint64, endpoint=True)
        codes = np.empty(x.size, dtype=np.intc)
        function(*(part.ctypes.data_as(ctypes.c_void_p) for part in (x, words, codes)), ctypes.c_long(x.size))
        different += int((codes != table.draw(x, words)).sum())
    print(f"C against Python: {different} of 10^7 draws differ")
    if different:
        sys.exit(1)
    return ratios


def main() -> list[Ratio]:
    """Print ratios."""
    with threadpool_limits(1):
        return vectors() + scalars()


if __name__ == "__main__":
    main()

"""The page of a channel between 150 places that have no symmetry, in seconds of processor time.

    python -m studies.benchmarks.bench_page

Bar: 5 s. The channel is solved for a minute first.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import mechdesign as md
from studies.benchmarks.turns import Ratio, medians


def main() -> list[Ratio]:
    """Print the seconds, and the size of the result file."""
    places = md.MetricSpace.euclidean(np.random.default_rng(0).random((150, 2)))
    result = md.MetricChannel(places, 3.0).solve(time_limit=60)
    with tempfile.TemporaryDirectory() as folder:
        page, file = Path(folder) / "page.html", Path(folder) / "result.json"
        result.save(file)
        (seconds,) = medians(lambda: result.report(page), rounds=3)
        print(
            f"page of 150 places: {seconds:.1f} s (bar: 5), of a file of {file.stat().st_size / 1e6:.1f} MB"
        )
    return [Ratio("150 places: seconds", seconds, 5)]


if __name__ == "__main__":
    main()

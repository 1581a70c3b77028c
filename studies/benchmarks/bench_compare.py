"""`compare` against the same mechanisms calibrated or solved one by one by hand, in the same run: processor time.

    python -m studies.benchmarks.bench_compare

Bar: at most 1.1 × one by one. Both take turns, three times.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import mechdesign as md
from mechdesign.choose.candidates import candidates, solved
from studies.benchmarks.turns import Ratio, medians


def by_hand(question: Any, privacy: Any) -> None:
    """Solve each mechanism alone, as a user would who compares without `compare`."""
    for name in candidates(question):
        with suppress(md.MechdesignError):
            solved(name, question, privacy)


def main() -> list[Ratio]:
    """Print a line for each question, and return its ratio."""
    ratios = []
    counts = md.Sensitivity(linf=1, l0=3)
    noise = md.ApproximateDP(1.0, 1e-6)
    for title, question, privacy in (
        ("20 whole counts, 3 change", md.NumericQuery(20, counts, integer=True), noise),
        ("one number", md.NumericQuery(), noise),
        ("a million numbers", md.NumericQuery(10**6), noise),
        ("4 bits", md.LocalReport(bits=4), md.PureDP(2.0)),
    ):
        together, alone = medians(
            lambda q=question, p=privacy: md.compare(q, p, progress=False),
            lambda q=question, p=privacy: by_hand(q, p),
            rounds=3,
        )
        print(
            f"{title}: compare {together:.2f} s for {len(candidates(question))} mechanisms, one by one {alone:.2f} s: "
            f"{together / alone:.2f} (bar: 1.1)"
        )
        ratios.append(Ratio(f"{title}: compare / one by one", together / alone, 1.1))
    return ratios


if __name__ == "__main__":
    main()

"""From data widened by 10⁻³ a lower bound proves no more than from 40 choices of data inside, and a loss is no smaller."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from evidence import test_widened as widened

for way, check, name in (
    ("moments", "package", "quantizer"),
    ("moments", "verifier", "quantizer"),
    ("exponentials", "package", "metric-channel"),
    ("exponentials", "verifier", "bounded-count"),
):
    data, judge = widened.WAYS[way], widened.CHECKS[check]
    tight, wide = judge(name), widened.under(data, None, judge, name)
    inside = [widened.under(data, seed, judge, name) for seed in range(40)]
    right = all(w[0] <= c[0] + 1e-12 and w[1] <= c[1] for choice in inside for w, c in zip(wide, choice))
    moved = max(range(len(wide)), key=lambda k: abs(wide[k][0] - tight[k][0]))
    least = min(float(choice[moved][0]) for choice in inside)
    print(
        f"{name}, {way} widened, {check}: a margin of {float(wide[moved][0]):.3g},"
        f" at least {least:.3g} inside: {'right' if right else 'WRONG'}"
    )

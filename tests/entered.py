"""Count the files of the package that a default solve runs through, on its second call.

``python -m tests.entered`` prints a table beside the bars. Only functions count (module bodies, classes and comprehensions
do not), and neither do errors, typing and the checks of fields.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import mechdesign as md

ROOT = Path(md.__file__).parent
LEFT_OUT = {"errors.py", "typing.py", "problem/checks.py", "problem/fields.py"}
UNIFORM = stats.uniform(-1, 2)
PURE, APPROXIMATE = md.PureDP(1.0), md.ApproximateDP(1.0, 1e-6)

CALLS: dict[str, tuple[int, Callable[[], Any]]] = {
    "OPTM, 4 bins": (26, lambda: md.OPTM([-3, -0.5, 0.5, 3], PURE, UNIFORM).solve()),
    "OPTM, 8 bins": (26, lambda: md.OPTM(np.linspace(-3, 3, 8).tolist(), PURE, UNIFORM).solve()),
    "OptimalQuantizer": (26, lambda: md.OptimalQuantizer([-3, -0.5, 0.5, 3], PURE, UNIFORM).solve()),
    "RQM": (26, lambda: md.RQM(4, PURE, UNIFORM).solve()),
    "OptimalNoise, δ = 1e-6": (20, lambda: md.OptimalNoise(APPROXIMATE).solve()),
    "calibrate": (20, lambda: md.calibrate("gaussian", privacy=APPROXIMATE, sensitivity=1.0)),
    "NoiseAllocation": (20, lambda: md.NoiseAllocation("gaussian", [1.0, 2.0, 5.0], APPROXIMATE).solve()),
    "MetricChannel": (20, lambda: md.MetricChannel(md.MetricSpace.grid(3, 3), 1.0).solve()),
    "VectorQuantizer": (20, lambda: md.VectorQuantizer(30, PURE).solve()),
    "compare": (50, lambda: md.compare(md.NumericQuery(), PURE, progress=False)),
}


def entered(call: Callable[[], Any]) -> set[str]:
    """The files whose functions the second call runs."""
    call()
    found: set[str] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and not frame.f_code.co_name.startswith("<"):
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(ROOT):
                found.add(path.relative_to(ROOT).as_posix())

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found - LEFT_OUT


if __name__ == "__main__":
    for name, (bar, call) in CALLS.items():
        files = entered(call)
        print(f"{name:24} {len(files):3} (at most {bar})")
        if "-v" in sys.argv:
            print("    " + " ".join(sorted(files)))

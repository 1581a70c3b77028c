"""Result files that are altered and sealed anew, and who accepts them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import cheap
import numpy as np

import mechdesign as md
from mechdesign.errors import ResultFormatError
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.files import KINDS
from mechdesign.verifier import verify

P = md.PureDP(1.0)
BINS = (-3.0, -0.5, 0.5, 3.0)
DESIGNS: dict[str, Callable[[], Any]] = {
    "metric inputs": lambda: md.MetricQuantizer(
        [-3.0, -0.5, 0.6, 3.0], md.MetricDP(2.0, "squared"), cheap.UNIFORM, inputs=np.linspace(-1, 1, 5)
    ),
    "allocation": lambda: md.NoiseAllocation("laplace", [1.0, 2.0], P),
    "calibration gaussian": lambda: md.Calibration("gaussian", md.ApproximateDP(1.0, 1e-6), 1.0),
    "grouped": lambda: md.NoiseAllocation("laplace", [1.0, 2.0], P, groups=[[0, 1]]),
    "quantizer": lambda: md.OptimalQuantizer(BINS, P, cheap.UNIFORM),
    "rational table": lambda: md.OptimalQuantizer(BINS, P, cheap.UNIFORM, max_bias=0.1),
}


@functools.cache
def text(name: str) -> str:
    """The file of one of the designs above, or of a cheap one."""
    return dumps(DESIGNS[name]().solve() if name in DESIGNS else cheap.solved(name))


def payload(name: str) -> dict[str, Any]:
    """A copy of what that file holds."""
    found: dict[str, Any] = json.loads(text(name))["payload"]
    return found


def alone_accepts(altered: dict[str, Any]) -> bool:
    """Whether the stand-alone verifier finds that every claim of the file holds."""
    try:
        return all(holds for *_, holds in verify.verify(cheap.sealed(altered)).rows)
    except (verify.Refused, verify.NotCovered):
        return False


def package_accepts(altered: dict[str, Any]) -> bool:
    """Whether the file is read and all its claims hold."""
    try:
        return bool(loads(cheap.sealed(altered), kinds=KINDS).checks()["holds"].all())
    except ResultFormatError:
        return False


ACCEPT = {"alone": alone_accepts, "package": package_accepts}

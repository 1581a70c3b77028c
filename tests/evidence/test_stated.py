"""Numbers and words that a file states beside its evidence: each is computed anew, or said to be the file's own.

Each docstring says what the commit before (9a1829b) did.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import cheap
import pytest

import mechdesign as md
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.files import KINDS

SPENT: dict[str, Callable[[], Any]] = {
    "sampled": lambda: md.calibrate(
        "laplace", privacy=md.ApproximateDP(1, 1e-5), sensitivity=1.0, rounds=5, sampling_rate=0.1
    ),
    "one": lambda: md.calibrate("gaussian", privacy=md.ApproximateDP(1.0, 1e-6), sensitivity=1.0),
    "pure": lambda: md.calibrate("laplace", privacy=cheap.PURE, sensitivity=1.0),
    "zcdp": lambda: md.calibrate("laplace", privacy=md.ZeroConcentratedDP(0.1), sensitivity=1.0),
    "divergence": lambda: md.noise.LeastDivergence(md.ApproximateDP(8, 1e-3), dimension=5).solve(),
    "named": lambda: md.OptimalNoise(privacy=md.ApproximateDP(1.0, 1e-6), loss="squared", dimension=50).solve(
        gap=0.5
    ),
}


def read(payload: Any) -> Any:
    return loads(cheap.sealed(payload), kinds=KINDS)


@pytest.mark.parametrize("name", SPENT)
def test_an_enclosure_that_is_stated_holds_the_one_computed_anew(name: str) -> None:
    """Was: `spent` narrowed to one end, or widened to [-5, ∞], was "that of the law", and `delta` returned its upper end."""
    result = SPENT[name]()
    payload = json.loads(dumps(result))["payload"]
    assert read(payload).checks()["holds"].all()
    spent = result.certificate.spent
    low, high = spent.lower, spent.upper
    forged = [(-5.0, high), (low, {"$float": "inf"}), (low, 2 * high + 1), (2 * high + 1, high)]
    forged += [(0.5 * low, high * (1 - 1e-9)), (low * (1 + 1e-9), high)]
    if spent.width > 1e-9:  # else an end is within what libraries of mathematics may differ by
        forged += [(low, low), (high, high)]
    for lower, upper in forged:
        changed = copy.deepcopy(payload)
        fields = changed["fields"]["certificate"]["fields"]["spent"]["fields"]
        if (lower, upper) == (low, high):
            continue  # an interval from 0
        fields |= {"lower": lower, "upper": upper}
        assert not read(changed).checks()["holds"].all(), (lower, upper)
    changed["fields"]["certificate"]["fields"]["spent"]["fields"] |= {"lower": low, "upper": high}
    if spent.how == "recomputed":
        changed["fields"]["certificate"]["fields"]["spent"]["fields"]["how"] = "proved"
        assert not read(changed).checks()["holds"].all()


def test_delta_is_not_the_files_word() -> None:
    """Was: 9.9927e-06, below the true δ of 9.99354e-06."""
    result = SPENT["sampled"]()
    payload = json.loads(dumps(result))["payload"]
    payload["fields"]["certificate"]["fields"]["spent"]["fields"] |= {"lower": 0.0, "upper": 9.9e-6}
    forged = read(payload)
    assert 9.99354e-06 <= forged.delta(1.0) <= 1e-5
    assert forged.epsilon(9.95e-6) > 1

"""Numbers and words that a file states beside its evidence: each is computed anew, or said to be the file's own.

Each docstring says what the commit before (9a1829b) did.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable
from typing import Any

import cheap
import pytest

import mechdesign as md
from evidence.test_doctored import solved as solved_design
from mechdesign.evidence.certificate import OWN_WORDS
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


TABLES: dict[str, Callable[[], Any]] = {
    "numbers": lambda: md.compare(
        md.NumericQuery(loss="absolute"),
        cheap.PURE,
        mechanisms=["laplace", "staircase", "optimal noise", "gaussian"],
    ),
    "report": lambda: md.compare(
        md.LocalReport(bits=2), cheap.PURE, mechanisms=["ERM", "optimal, even outputs"]
    ),
    "points": lambda: md.compare(md.MetricSpace.line([0.0, 1.0, 3.0]), alpha=0.7, progress=False),
    "frontier": lambda: md.frontier(
        md.OptimalQuantizer(cheap.BINS, cheap.PURE, cheap.UNIFORM), "epsilon", [0.1, 1.0]
    ),
    "frontier-noise": lambda: md.frontier(md.Calibration("laplace", cheap.PURE, 1.0), "epsilon", [0.5, 1.0]),
}
UNSEEN = ("seconds", "note")


def cells(payload: Any) -> list[tuple[str, list[Any], int]]:
    """The column, its values and the row of every cell of the table, and of the least error beside it."""
    fields = payload["fields"]
    found = [(name, values, k) for name, _, values in fields["table"]["$table"] for k in range(len(values))]
    return found + [(name, fields, name) for name in ("least", "least_name") if name in fields]


def agrees(payload: Any) -> bool:
    try:
        return all(holds for *_, holds in read(payload).agreements())
    except md.ResultFormatError:
        return False


@pytest.mark.parametrize("name", TABLES)
def test_every_cell_of_a_table_that_is_forged_is_seen(name: str) -> None:
    """Was: of a comparison errors alone, of a frontier values and bounds; "verified, and as its table shows them"."""
    made = TABLES[name]()
    claimed = [claim for claim, how, *_ in made.agreements() if how == "claimed"]
    assert claimed == [OWN_WORDS]
    payload = json.loads(dumps(made))["payload"]
    assert agrees(payload)
    tried, solved = (
        0,
        [r is not None for r in made.results] if type(made.results) is tuple else made.table["error"].notna(),
    )
    for number, (column, _, row) in enumerate(cells(payload)):
        if type(row) is int and (not solved[row] or (name != "frontier" and row)):
            continue  # that there is no result is the file's own word
        changed = copy.deepcopy(payload)
        _, values, k = cells(changed)[number]
        was = values[k]
        if type(was) in (int, float):
            forged = [was * 1.001 + (was == 0), {"$float": "nan"}]
        else:
            forged = (
                [not was] if type(was) is bool else [1.0 if was is None or type(was) is dict else f"{was}!"]
            )
        for other in forged if column not in UNSEEN else ():
            values[k] = other
            tried += 1
            assert not agrees(changed), (column, k, was, other)
        values[k] = was
    assert tried > 5
    columns = payload["fields"]["table"]["$table"]
    for extra in (columns[:-1], [*columns, ["proved optimal", "object", ["yes"] * len(columns[0][2])]]):
        changed = copy.deepcopy(payload)
        changed["fields"]["table"]["$table"] = extra
        assert not agrees(changed)


@pytest.mark.parametrize("name", ["vectors", "vectors-box", "least-divergence"])
def test_what_was_tried_is_checked_or_said_not_to_be(name: str) -> None:
    """Was: any table was shown as fact, "error at the same privacy: gaussian 9.9"."""
    result = solved_design(name)
    payload = json.loads(dumps(result))["payload"]
    words = next(s.text for s in result.sections() if s.title == "What the search tried")
    assert words == (
        "Computed anew with the checks below." if "vectors" in name else "Stated by the search, not checked."
    )
    columns = payload["fields"]["table"]["$table"]
    first = [(k, 0) for k in range(len(columns))]
    later = [(k, -1) for k in range(len(columns))] if "vectors" in name else [(1, -1)]
    for k, row in (first + later) if len(columns[0][2]) > 1 else first:
        was = columns[k][2][row]
        lower = 0.9 * result.value if columns[k][0] in ("error", "value") else None
        others = (
            [lower or was + 1, {"$float": "nan"}, -was]
            if type(was) in (int, float)
            else [f"{was}!", "laplace"]
        )
        for other in others:
            columns[k][2][row] = other
            with contextlib.suppress(md.ResultFormatError):
                assert other == was or not read(payload).checks()["holds"].all(), (k, row, was, other)
        columns[k][2][row] = was
    assert read(payload).checks()["holds"].all()

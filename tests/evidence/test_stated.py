"""Numbers and words that a file states beside its evidence: each is computed anew, or said to be the file's own.

Each docstring says what the commit before (9a1829b) did.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
from collections.abc import Callable
from typing import Any, cast

import cheap
import pytest

import mechdesign as md
from evidence.test_doctored import nodes, solved
from mechdesign.accounting.interval import DeltaInterval
from mechdesign.evidence.proofs import OWN_WORDS
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.files import KINDS
from mechdesign.noise.calibration import design as calibration
from mechdesign.verifier import verify

UNREAD = "the certificate's own claims are not looked into: it is not of this result"
SPENT: dict[str, Callable[[], Any]] = {
    "sampled": lambda: md.calibrate(
        "laplace", privacy=md.ApproximateDP(1, 1e-5), sensitivity=1.0, rounds=5, sampling_rate=0.1
    ),
    "one": lambda: md.calibrate("gaussian", privacy=md.ApproximateDP(1.0, 1e-6), sensitivity=1.0),
    "pure": lambda: md.calibrate("laplace", privacy=cheap.PURE, sensitivity=1.0),
    "zcdp": lambda: md.calibrate("laplace", privacy=md.ZeroConcentratedDP(0.1), sensitivity=1.0),
}


def read(payload: Any) -> Any:
    return loads(cheap.sealed(payload), kinds=KINDS)


def stored(result: Any) -> DeltaInterval:
    """The enclosure that a result's evidence states."""
    found = result.proofs[0]
    return cast("DeltaInterval", found.spent)


def interval_in(payload: Any) -> Any:
    """Its fields in a file."""
    return next(n["fields"] for n in nodes(payload, "$kind") if n["$kind"] == "delta-interval")


@pytest.mark.parametrize("part", ["mechanism", "design"])
def test_parts_of_other_results_are_refused_before_their_proofs(part: str, monkeypatch: Any) -> None:
    """Was: six seconds of proofs of what the certificate says, when it is of another design."""
    result = SPENT["sampled"]()
    payload = json.loads(dumps(result))["payload"]
    payload["fields"][part]["fields"]["sampling_rate"] = 0.9999999
    forged = read(payload)

    def unasked(*_: Any) -> None:
        raise AssertionError("asked for proofs")

    monkeypatch.setattr(calibration, "consumed", unasked)
    table = forged.checks()
    assert "the law is of the family and for the query asked for" in set(table["claim"][~table["holds"]])


@pytest.mark.slow
@pytest.mark.parametrize("name", SPENT)
def test_an_enclosure_that_is_stated_holds_the_one_computed_anew(name: str) -> None:
    """Was: `spent` narrowed to one end, or widened to [-5, ∞], was "that of the law", and `delta` returned its upper end."""
    result = SPENT[name]()
    payload = json.loads(dumps(result))["payload"]
    assert read(payload).checks()["holds"].all()
    spent = stored(result)
    low, high = spent.lower, spent.upper
    forged = [(-5.0, high), (low, {"$float": "inf"}), (low, 2 * high + 1), (2 * high + 1, high)]
    forged += [(0.5 * low, high * (1 - 1e-9)), (low * (1 + 1e-9), high)]
    if spent.width > 1e-9:  # else an end is within what libraries of mathematics may differ by
        forged += [(low, low), (high, high)]
    for lower, upper in forged:
        l0 = copy.deepcopy(payload)
        fields = interval_in(l0)
        if (lower, upper) == (low, high):
            continue  # an interval from 0
        fields |= {"lower": lower, "upper": upper}
        assert not read(l0).checks()["holds"].all(), (lower, upper)
    fields |= {"lower": low, "upper": high}
    if spent.how == "recomputed":
        fields["how"] = "proved"
        assert not read(l0).checks()["holds"].all()


@pytest.mark.slow
def test_delta_is_not_the_files_word() -> None:
    """Was: 9.9927e-06 for a law whose true δ was 9.99354e-06."""
    result = SPENT["sampled"]()
    payload = json.loads(dumps(result))["payload"]
    true = stored(result).lower
    interval_in(payload).update({"lower": 0.0, "upper": 0.99 * true})
    forged = read(payload)
    assert true <= forged.mechanism.privacy_profile(1.0) <= 1e-5 * 1.01
    assert forged.mechanism.epsilon(0.99 * true) > 1


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
        return all(row.holds for row in read(payload).agreements())
    except md.ResultFormatError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_every_cell_of_a_table_that_is_forged_is_seen(name: str) -> None:
    """Was: of a comparison errors alone, of a frontier values and bounds; "verified, and as its table shows them"."""
    made = TABLES[name]()
    claimed = [claim for claim, how, *_ in made.agreements() if how == "claimed"]
    assert claimed == [OWN_WORDS]
    payload = json.loads(dumps(made))["payload"]
    assert agrees(payload)
    tried, found = 0, made.table["value" if "value" in made.table else "error"].notna()
    for number, (column, _, row) in enumerate(cells(payload)):
        if type(row) is int and (not found[row] or (name != "frontier" and row)):
            continue  # that there is no result is the file's own word
        l0 = copy.deepcopy(payload)
        _, values, k = cells(l0)[number]
        was = values[k]
        if type(was) in (int, float):
            forged = [was * 1.001 + (was == 0), {"$float": "nan"}]
        elif type(was) is bool:  # what is said not to be certified may be
            forged = [] if was else [True]
        else:
            forged = [1.0 if was is None or type(was) is dict else f"{was}!"]
        for other in forged if column not in UNSEEN else ():
            values[k] = other
            tried += 1
            assert not agrees(l0), (column, k, was, other)
        values[k] = was
    assert tried > 5
    columns = payload["fields"]["table"]["$table"]
    for extra in (columns[:-1], [*columns, ["proved optimal", "object", ["yes"] * len(columns[0][2])]]):
        l0 = copy.deepcopy(payload)
        l0["fields"]["table"]["$table"] = extra
        assert not agrees(l0)


@pytest.mark.parametrize("name", ["vectors", "vectors-box"])
def test_what_was_tried_is_computed_from_the_design(name: str) -> None:
    """Was: any table was shown as fact. None is stored now."""
    result = solved(name)
    table, words = result.tried(), {s.title: s.text for s in result.sections()}
    assert result.table is None and words["What the search tried"] == "Computed for this page."
    assert table["error"].iloc[0] == result.value and table["error"].is_monotonic_increasing


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("law:")])
def test_no_member_is_missing(kind: str) -> None:
    """Was: defaults were filled in, for `design.sensitivity`, `loss`, `spans`, …, where the format requires all members."""
    payload = json.loads(cheap.documents()[kind])["payload"]
    for name in payload["fields"]:
        short = copy.deepcopy(payload)
        del short["fields"][name]
        with pytest.raises(md.ResultFormatError):
            read(short)


@pytest.mark.parametrize(
    "name", ["optm", "optimal-noise", "matrix-mechanism", "metric-channel", "mixed-allocation"]
)
def test_truth_values_are_no_numbers(name: str) -> None:
    """Was: `true` in an array of numbers, and as a law's parameter, was read as 1."""
    payload = json.loads(dumps(solved(name)))["payload"]
    tried = 0
    for number, owner in enumerate(nodes(payload, "$array")):
        if owner["dtype"] in ("bool", "object", "str") or 0 in owner["shape"]:
            continue
        l0 = copy.deepcopy(payload)
        row = [*nodes(l0, "$array")][number]["$array"]
        while isinstance(row[0], list):
            row = row[0]
        row[0], tried = True, tried + 1
        with pytest.raises(md.ResultFormatError):
            read(l0)
        with contextlib.suppress(verify.NotCovered), pytest.raises(verify.Refused):
            verify.verify(cheap.sealed(l0))
    for number, owner in enumerate(nodes(payload, "$law")):
        for k in range(len(owner["args"])):
            l0 = copy.deepcopy(payload)
            [*nodes(l0, "$law")][number]["args"][k], tried = True, tried + 1
            with pytest.raises(md.ResultFormatError):
                read(l0)
    assert tried


def test_a_count_of_the_question_is_no_truth_value() -> None:
    """Accepted alone: optimal noise for `true` numbers."""
    payload = json.loads(dumps(solved("optimal-noise")))["payload"]
    payload["fields"]["design"]["fields"]["dimension"] = True
    with pytest.raises(verify.Refused, match="dimension"):
        verify.verify(cheap.sealed(payload))
    with pytest.raises(md.ResultFormatError):
        read(payload)


def test_a_key_of_a_law_stands_once() -> None:
    """Was: [["scale", 0.01], ["scale", 5.97]] was read as 5.97 by both programs."""
    payload = json.loads(dumps(cheap.solved("optm")))["payload"]
    law = next(nodes(payload, "$law"))
    law["args"], law["kwds"] = [], {"$items": [["loc", -1.0], ["scale", 0.01], ["scale", 2.0]]}
    with pytest.raises(md.ResultFormatError, match="twice"):
        read(payload)
    with pytest.raises(verify.Refused, match="twice"):
        verify.verify(cheap.sealed(payload))


def changed_at(payload: Any, path: tuple[Any, ...], value: Any) -> Any:
    payload = copy.deepcopy(payload)
    node = payload["fields"]
    for key in path[:-1]:
        node = node[key]
        if "fields" in node:
            node = node["fields"]
    node[path[-1]] = value
    return payload


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        *(("calibration", ("design", part), v) for part in ("privacy", "noise") for v in (None, [])),
        *(("calibration", ("proofs", "$tuple", 0, "spent"), v) for v in (None, [])),
        ("calibration", ("value",), 0.0),
        ("calibration", ("design", "sampling_rate"), -1.0),
        ("calibration", ("mechanism",), None),
        *(("optimal-noise", (part,), v) for part in ("design", "mechanism") for v in (None, [])),
        *(("knorm", ("proofs", "$tuple"), proofs) for proofs in ([], [None], [1.0])),
        *(("noise-allocation", ("proofs", "$tuple"), proofs) for proofs in ([], [None])),
        ("optimal-noise", ("proofs", "$tuple", 1, "psi", "shape"), [29, 2]),
        ("optimal-noise", ("proofs", "$tuple", 1, "shifts", "$array", 0), 10**6),
        ("matrix-mechanism", ("proofs", "$tuple", 0, "multipliers", "$tuple"), []),
        ("correlated-gaussian", ("mechanism", "lift"), 0),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("error")
def test_checks_answer_whatever_a_file_says(name: str, path: tuple[Any, ...], value: Any) -> None:
    """Was: AttributeError, ZeroDivisionError, TypeError, "math domain error" from ``checks``."""
    payload = changed_at(json.loads(dumps(cheap.solved(name)))["payload"], path, value)
    try:
        result = read(payload)
    except md.ResultFormatError as error:
        assert "Error" not in str(error)
        return
    table = result.checks()
    assert not table["holds"].all()
    assert not table["claim"].str.contains("Error").any()


@pytest.mark.parametrize(
    ("name", "key", "stated"),
    [
        ("several-allocation", "prices", "x"),
        ("several-allocation", "prices", []),
        ("several-allocation", "prices", {"$tuple": [0.0, True, 0.0]}),
        ("several-allocation", "prices", {"$tuple": [0.0, 1.0]}),
        ("noise-allocation", "prices", 5),
    ],
)
def test_members_of_certificates_are_what_they_are_declared_to_be(name: str, key: str, stated: Any) -> None:
    """Was: a text among prices, a bias of 1e308, true among numbers of a tuple: read, and all held."""
    payload = json.loads(dumps(solved(name)))["payload"]
    payload["fields"]["proofs"]["$tuple"][0]["fields"][key] = stated
    with contextlib.suppress(md.ResultFormatError):
        result = read(payload)
        assert not result.checks()["holds"].all()
        assert str(result) and len(result.audit()) > 0


def test_a_law_of_other_outputs_than_the_design_asks_for_is_refused() -> None:
    """Was: a certificate for five outputs beside a design for four."""
    payload = json.loads(dumps(solved("biased-selection")))["payload"]
    payload["fields"]["design"]["fields"]["m"] = 5
    assert not read(payload).checks()["holds"].all()


def thirds(node: Any) -> Any:
    """The same with every fraction a third."""
    if isinstance(node, dict):
        return {"$fraction": "1/3"} if "$fraction" in node else {k: thirds(v) for k, v in node.items()}
    return [thirds(v) for v in node] if isinstance(node, list) else node


def test_a_law_that_answers_at_random_is_not_unbiased() -> None:
    """Was: with a `max_bias` of 1 in the certificate alone every check held, beside the bound of unbiased laws."""
    x = [-1.0, 0.0, 1.0]
    result = md.MetricQuantizer([-3, 0, 3], md.ApproximateDP(1.0, 0.1), x, inputs=x).solve()
    payload = json.loads(dumps(result))["payload"]
    assert read(payload).checks()["holds"].all()
    fields = payload["fields"]
    shown = fields["mechanism"]["fields"]
    shown["law"]["fields"] |= {ends: thirds(shown["law"]["fields"][ends]) for ends in ("starts", "ends")}
    for ends in ("starts", "ends"):
        shown[ends]["$array"] = [[1 / 3] * 3 for _ in shown[ends]["$array"]]
    fields["value"] = 20 / 9 + 1e-15
    fields["solver_report"]["fields"]["status"] = "feasible"
    table = read(payload).checks()
    assert list(table["claim"][~table["holds"]]) == ["bias at most 0.0"]


def test_recomputed_values_are_not_stated_better_than_they_are() -> None:
    """Accepted before: a calibration's value 9e-7 too small, a vector's by 1e-9, its lower bound 2e-9 too high."""
    for name in ("calibration", "vectors", "vectors-box", "vectors-signs"):
        result = cheap.solved(name)
        for by, where in ((1 - 1e-11, "value"), (1 + 1e-11, "lower_bound")):
            forged = getattr(result, where) * by
            told = dataclasses.replace(result, **{where: forged})
            spare = name == "calibration" and where == "lower_bound"  # it is stated 1e-9 below what is proved
            assert told.checks()["holds"].all() == spare, (name, where)


def test_a_loss_whose_mean_is_nothing_but_rounding_is_verified() -> None:
    grid = md.Grid(delta=[1.6], inner=[0.5], gamma=[0.2])
    result = md.ERM(4, md.PureDP(2.0), cheap.UNIFORM, grid=grid, loss=lambda t: t).solve(zoom=0)
    assert abs(result.value) < 1e-14 and result.certificate.verify()

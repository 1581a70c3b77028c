"""Numbers and words that a file states beside its evidence: each is computed anew, as closely as the format says."""

import copy
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import cheap
import numpy as np
import pandas as pd
import pytest
from campaign import files, mutations, trees

import mechdesign as md
from mechdesign.evidence.proofs import OWN_WORDS, counted, tightest
from mechdesign.evidence.serialize import dumps, encode, loads
from mechdesign.shell.commands import audit
from mechdesign.typing import Status
from mechdesign.verifier import verify

TABLES: dict[str, Callable[[], Any]] = {
    "numbers": lambda: md.compare(
        md.NumericQuery(loss="absolute"), cheap.PURE, mechanisms=["laplace", "staircase", "optimal noise", "gaussian"]
    ),
    "report": lambda: md.compare(md.LocalReport(bits=2), cheap.PURE, mechanisms=["ERM", "optimal, even outputs"]),
    "points": lambda: md.compare(md.MetricSpace.line([0.0, 1.0, 3.0]), alpha=0.7, progress=False),
    "frontier-choice": lambda: md.sweep(md.PrivateChoice(3, cheap.PURE), epsilon=[0.5, 1.0]),
    "frontier-plan": lambda: md.sweep(md.Plan({"visits": md.Count()}, cheap.PURE), epsilon=[0.5, 1.0]),
}  # fmt: skip
UNSEEN = ("seconds", "note")


def agrees(payload: Any) -> bool:
    try:
        return all(row.holds for row in loads(cheap.sealed(payload)).agreements())
    except md.ResultFormatError:
        return False


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "report")) for name in TABLES]
)
def test_every_cell_of_a_table_is_that_of_its_results(name: str) -> None:
    """Seconds and notes are the file's own words, and that a row has no result."""
    made = TABLES[name]()
    assert [claim for claim, how, *_ in made.agreements() if how == "claimed"] == [OWN_WORDS]
    payload = json.loads(dumps(made))["payload"]
    assert agrees(payload) and all(holds for *_, holds in verify.verify(dumps(made)).rows)
    columns, found = (
        payload["fields"]["table"]["$table"],
        made.table["value" if "value" in made.table else "error"].notna(),
    )
    rows = [k for k, held in enumerate(found) if held and (name.startswith("frontier") or not k)]
    places = [
        ("$table", c, 2, k) for c, (column, *_) in enumerate(columns) if column not in UNSEEN for k in rows
    ]
    paths = [("fields", "table", *place) for place in places]
    paths += [("fields", member) for member in ("least", "least_name") if member in payload["fields"]]
    for path in paths:
        was = trees.at(payload, path)
        if type(was) in (int, float):
            forged = [was * 1.001 + (was == 0), {"$float": "nan"}]
        elif type(was) is bool:  # what is said not to be certified may be
            forged = [] if was else [True]
        else:
            forged = [1.0 if was is None or type(was) is dict else f"{was}!"]
        assert not any(agrees(trees.put(payload, path, other)) for other in forged), path
    for others in (columns[:-1], [*columns, ["proved optimal", "object", ["yes"] * len(columns[0][2])]]):
        assert not agrees(trees.put(payload, ("fields", "table", "$table"), others))
    short = copy.deepcopy(payload)
    short["fields"]["table"]["$table"][-1][2].pop()
    assert not agrees(short)


@pytest.mark.parametrize("name", ["noise-allocation", "knorm", "counts-gaussian", "optm"])
def test_no_other_part_stands_in_the_place_of_the_mechanism(name: str) -> None:
    result = files.solved(name)
    for part in (None, result.design, result.certificate, result.value):
        assert not dataclasses.replace(result, mechanism=part).checks()["holds"].all()


@pytest.mark.parametrize("name", cheap.DESIGNS)
def test_the_summary_says_how_the_bound_is_checked(name: str) -> None:
    result = files.solved(name)
    table = result.checks()
    bounds = table[table["claim"].str.contains("costs less than")]
    assert len(bounds) == (result.lower_bound is not None)
    assert all(f"({how}) of {result.mechanism_class}, gap" in str(result) for how in bounds["how"])
    result = dataclasses.replace(result, proofs=())
    assert result.lower_bound is None or "(claimed) of " in str(result)


VALUE_CLAIMED = {"plan", "triangle"}
"""Of which the verifier takes the bias of a clip, or the moments of a prior, as stated."""


@pytest.mark.parametrize("name", files.DESIGNS)
def test_both_checkers_leave_doubles_the_same_room(name: str) -> None:
    """A value that is better by 1e-10, or a bound by 1e-9, which the package refuses, the verifier does not believe either."""
    payload = files.payload(name)
    value, bound = (payload["fields"][member] for member in ("value", "lower_bound"))
    forged = trees.put(payload, ("fields", "value"), value * (1 - 1e-10))
    assert not files.alone_accepts(forged) or name in VALUE_CLAIMED
    if bound is not None:
        raised = cheap.sealed(trees.put(payload, ("fields", "lower_bound"), bound * (1 + 1e-9)))
        assert not mutations.verdicts(name, raised)["alone"].startswith("FAULT")


def test_a_law_that_answers_at_random_is_not_unbiased() -> None:
    x = [-1.0, 0.0, 1.0]
    result = md.MetricQuantizer([-3, 0, 3], md.ApproximateDP(1.0, 0.1), x, inputs=x).solve()
    payload = json.loads(dumps(result))["payload"]
    fields, third = payload["fields"], {"$fraction": "1/3"}
    shown = fields["mechanism"]["fields"]
    for ends in ("starts", "ends"):
        shown["law"]["fields"][ends]["$tuple"] = [{"$tuple": [third] * 3}] * len(shown[ends]["$array"])
        shown[ends]["$array"] = [[1 / 3] * 3 for _ in shown[ends]["$array"]]
    fields["value"] = 20 / 9 + 1e-15
    fields["solver_report"]["fields"]["status"] = "feasible"
    table = loads(cheap.sealed(payload)).checks()
    assert list(table["claim"][~table["holds"]]) == ["bias at most 0.0"]


def test_a_lower_bound_is_for_the_outputs_that_an_alphabet_has() -> None:
    payload, grid = files.payload("optimal-quantizer"), files.payload("alphabet")
    fields, wide = payload["fields"], grid["fields"]
    fields["design"]["fields"]["bins"] = wide["design"]["fields"]["bins"]
    assert not files.alone_accepts(payload)  # fewer outputs than the alphabet
    fields |= {"proofs": wide["proofs"], "lower_bound": 0.9 * wide["lower_bound"], "bound_class": "this menu"}
    fields["solver_report"]["fields"]["status"] = "feasible"
    [duals] = (p["fields"]["duals"]["fields"] for p in fields["proofs"]["$tuple"] if "duals" in p["fields"])
    for moved in (0, 0.01):
        outputs = np.linspace(-3, 3, 13)
        outputs[4] -= moved
        duals["outputs"] = encode(outputs)
        assert files.alone_accepts(payload) == (not moved)


@pytest.mark.parametrize("name", cheap.DESIGNS)
def test_a_certificate_refuses_a_status_or_a_class_that_its_numbers_do_not_allow(name: str) -> None:
    made = cheap.solved(name)
    assert made.certificate is not None and made.certificate.verify()
    wrong = [status for status in (Status.OPTIMAL, Status.BEST) if status is not made.closed]
    doctored = [{"solver_report": dataclasses.replace(made.solver_report, status=s)} for s in wrong]
    doctored += [{"bound_class": s} for s in ("every mechanism", "this menu") if s != made.bound_class]
    assert [dataclasses.replace(made, **said).certificate.verify() for said in doctored] == [False] * len(
        doctored
    )


# -- What a newcomer found with the documentation alone: two checkers that disagreed, claims that were worded wrongly, lost files


@pytest.mark.parametrize("max_mse", [None, 12.0])
def test_a_loss_of_ones_own_over_a_prior_of_ones_own_is_claimed(max_mse: float | None) -> None:
    tent = md.density(lambda x: 1 - 0.7 * np.abs(x), -1, 1, name="newcomers-tent")
    design = md.OptimalQuantizer(
        [-3, -0.5, 0.5, 3],
        md.PureDP(1.5),
        tent,
        loss=lambda t: np.where(t > 0, t**2, 0.5 * np.abs(t)),
        max_mse=max_mse,
    )
    account = verify.verify(dumps(design.solve(gap=1e-2)))
    assert all(holds for *_, holds in account.rows)
    words = {claim: how for claim, how, _ in account.rows}
    assert [how for claim, how in words.items() if claim.startswith(("the value is", "no mechanism"))] == [
        "claimed",
        "claimed",
    ]
    assert words["privacy loss at most 1.5"] == "proved"
    assert any("mean squared" in claim for claim in words) == (max_mse is not None)


def test_claims_are_counted_apart_from_checks_of_the_file(tmp_path: Path) -> None:
    result = cheap.solved("optimal-quantizer")
    result.save(tmp_path / "r.json")
    run = subprocess.run(
        [sys.executable, "-m", "mechdesign.verifier", str(tmp_path / "r.json")],
        capture_output=True,
        text=True,
    )
    said = run.stdout.splitlines()
    assert said[-1].startswith("none fail of 4 claims (4 proved, 0 recomputed, 0 claimed) and ")
    assert len(said) - 1 == 4 + int(said[-1].partition(" and ")[2].split()[0])
    table = result.checks()
    assert counted(table).startswith("4 of 4 claims hold (4 proved, 0 recomputed, 0 claimed); ")
    assert len(table[table["about"] == "file"]) == len(table) - 4
    # Claims about a law whose rows are none prove nothing.
    table.loc[table["claim"] == "rows sum to 1", "holds"] = False
    assert counted(table).startswith("0 of 4 claims hold")


def text_of(result: Any) -> str:
    return "\n".join(
        f"{s.title}\n{s.text}\n{'' if s.table is None else s.table.to_string()}\n{s.code}"
        for s in result.sections()
    )


def test_a_page_counts_claims_and_says_what_nobody_checks() -> None:
    noise = replace(cheap.solved("calibration"), notes=("This mechanism was verified by NIST",))
    facts = {label: (value, remark) for label, value, remark in noise._page()["facts"]}
    by = f"as computed by mechdesign {metadata.version('mechdesign')} when the page was made"
    said = f"(1 proved, 3 recomputed, 0 claimed); 4 of 4 checks that the file agrees with itself; {by}"
    assert facts["Claims that hold"] == ("4 of 4", said)
    said = text_of(noise)
    assert said.index("Stated by the file, not checked") < said.index(
        "\u201cThis mechanism was verified by NIST\u201d"
    )
    assert "δ at ε = 0.5" in said
    doctored = replace(noise, value=noise.value / 2)
    facts = {label: (value, remark) for label, value, remark in doctored._page()["facts"]}
    assert facts["Claims that hold"][0] == "2 of 5"  # the value is below its lower bound, too


# -- What `mechdesign audit` says of every kind of result: it ends with 0 only where everything holds that its kind must have

QUICK = [name for name in cheap.DESIGNS if name not in ("bin-search", "alphabet", "optm-search")]


@pytest.mark.parametrize("name", QUICK)
def test_every_kind_is_audited(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    cheap.solved(name).save(path)
    audit(path, rows=3, csv=tmp_path / "audit.csv")
    said = capsys.readouterr().out
    assert "every constraint of the definition holds" in said and "claim by claim" in said
    table = pd.read_csv(tmp_path / "audit.csv")
    shown = tightest(table, 3)
    families = table["family"].nunique()
    assert len(shown) >= min(len(table), max(3, families))
    least = table.groupby("family")["slack"].min()
    first = shown.head(families).set_index("family")["slack"]
    assert first.sort_index().equals(least.sort_index())
    assert first.is_monotonic_increasing

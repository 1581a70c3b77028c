"""What a newcomer found with the documentation alone: two checkers that disagreed, claims that were worded wrongly, lost files."""

from __future__ import annotations

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
import pytest

import mechdesign as md
from mechdesign.evidence.proofs import counted
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.files import KINDS
from mechdesign.typing import Status
from mechdesign.verifier import verify

Fields = dict[str, Any]


def both(name: str, edit: Callable[[Fields], object]) -> tuple[bool, bool]:
    """Whether the verifier and the package accept a file that was edited and sealed anew."""
    payload = json.loads(dumps(cheap.solved(name)))["payload"]
    edit(payload["fields"])
    text = cheap.sealed(payload)
    try:
        alone = all(holds for *_, holds in verify.verify(text).rows)
    except verify.Refused:
        alone = False
    try:
        package = bool(loads(text, kinds=KINDS).checks()["holds"].all())
    except md.MechdesignError:
        package = False
    return alone, package


def bins_of(fields: Fields) -> Fields:
    return fields["design"]["fields"]["bins"]["fields"]


def bound_gone(fields: Fields) -> None:
    fields["lower_bound"] = None


EDITS: dict[str, tuple[str, Callable[[Fields], object]]] = {
    "fewer outputs were asked for": ("bin-search", lambda f: bins_of(f).update(m=3)),
    "a narrower search": ("bin-search", lambda f: bins_of(f).update(max_abs=1.0)),
    "a narrower alphabet": ("alphabet", lambda f: bins_of(f).update(max_abs=1.0)),
    "another m": ("rqm", lambda f: f["design"]["fields"].update(m=3)),
    "a search that is optimal": (
        "bin-search",
        lambda f: f["solver_report"]["fields"].update(status="optimal"),
    ),
    "optimal without a bound": ("optimal-quantizer", bound_gone),
    "one law for two numbers": ("optimal-noise", lambda f: f["design"]["fields"].update(dimension=2)),
}


@pytest.mark.parametrize("edit", EDITS)
def test_both_checkers_refuse(edit: str) -> None:
    name, doctor = EDITS[edit]
    assert both(name, lambda fields: None) == (True, True)
    assert both(name, doctor) == (False, False)


@pytest.mark.parametrize("max_mse", [None, 12.0])
def test_a_loss_of_ones_own_over_a_prior_of_ones_own_is_claimed(max_mse: float | None) -> None:
    """Was: exit code 1, "the masses and moments of this prior are missing": of a function there are none."""
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


def test_claims_that_rest_on_what_is_stated_say_so() -> None:
    """Was: "ok claimed the masses …", and then "ok proved mean loss …" without a condition."""
    design = md.OptimalQuantizer(cheap.BINS, cheap.PURE, md.truncated(cheap.stats.norm(0, 0.4), -1, 1))
    rows = verify.verify(dumps(design.solve(gap=1e-2))).rows
    about = [claim for claim, *_ in rows if claim.startswith(("mean loss", "no mechanism"))]
    assert len(about) == 2 and all("given the masses and moments stated" in claim for claim in about)
    rows = verify.verify(dumps(cheap.solved("optimal-quantizer"))).rows
    assert not any("given the masses" in claim for claim, *_ in rows)


@pytest.mark.parametrize("name", ["bin-search", "optimal-quantizer"])
def test_the_status_is_worded_as_it_is(name: str) -> None:
    """Was: "optimal: with a lower bound" of a file whose status is feasible."""
    last = verify.verify(dumps(cheap.solved(name))).rows[-1][0]
    status = Status.OPTIMAL if name == "optimal-quantizer" else Status.BEST
    assert cheap.solved(name).status is status
    assert last == f"status {status.value!r}: value and lower bound are as close as was asked"


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
    """Was: "11 of 11: 8 proved, 3 recomputed" for three claims; a forged note among the versions."""
    noise = replace(cheap.solved("calibration"), notes=("This mechanism was verified by NIST",))
    facts = {label: (value, remark) for label, value, remark in noise._page()["facts"]}
    by = f"as computed by mechdesign {metadata.version('mechdesign')} when the page was made"
    said = f"1 proved, 3 recomputed; the file agrees with itself; {by}"
    assert facts["Claims that hold"] == ("4 of 4", said)
    said = text_of(noise)
    assert said.index("Stated by the file, not checked") < said.index(
        "\u201cThis mechanism was verified by NIST\u201d"
    )
    assert "δ at ε = 0.5" in said
    doctored = replace(noise, value=noise.value / 2)
    facts = {label: (value, remark) for label, value, remark in doctored._page()["facts"]}
    assert facts["Claims that hold"][0] == "2 of 4"


@pytest.mark.parametrize("name", ["calibration", "optimal-quantizer", "vectors"])
def test_a_page_says_which_program_checks_it(name: str) -> None:
    said = text_of(cheap.solved(name))
    assert "python verify.pyz result.json" in said and "mechdesign verify result.json" in said
    assert "not covered" not in said


def test_whole_numbers_are_off_by_whole_numbers_on_every_page() -> None:
    """Was: 9.001 on one page and 9 on the other."""
    query = md.NumericQuery(dimension=20, sensitivity=md.Sensitivity(linf=1, l0=3), integer=True)
    found = md.compare(query, md.PureDP(1.0), mechanisms=["discrete_laplace"])
    width = found.to_frame()["95% half-width"][0]
    question = found.best.account().question
    assert width == int(width) and f"a number is off by at most {width:g}, each by itself" in question
    assert "20 whole numbers" in question and "released exactly: the numbers are whole" in question
    law = found.best.mechanism.law
    assert law.sf(width) * 2 <= 0.05 < law.sf(width - 1) * 2


def test_latex_leaves_out_what_a_paper_has_no_use_for() -> None:
    found = md.compare(md.NumericQuery(), md.PureDP(1.0), mechanisms=["laplace", "staircase"])
    assert "seconds" in found.to_frame() and "seconds" not in found.to_latex()
    assert found.to_latex(columns=["mechanism", "seconds"]).count("&") == 3
    for columns in (["nothing"], []):
        with pytest.raises(md.DesignError, match="columns = "):
            found.to_latex(columns=columns)

"""What a newcomer found with the documentation alone: two checkers that disagreed, claims that were worded wrongly, lost files."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import cheap
import numpy as np
import pytest

import mechdesign as md
from mechdesign.evidence.proofs import counted
from mechdesign.evidence.serialize import dumps
from mechdesign.verifier import verify


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

"""What a person at a prompt sees: help, fields, audits."""

from __future__ import annotations

import pydoc

import cheap
import pandas as pd
import pytest

import mechdesign as md


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (
            md.OPTM,
            ["bins :", "privacy :", "prior :", "bounds :", "``solver``", ">>> result = design.solve()"],
        ),
        (md.OPTM.solve, ["solver :", "gap :", "certify :", "time_limit :", ">>> result = design.solve("]),
    ],
)
def test_help_begins_with_what_is_asked_for(thing: object, words: list[str]) -> None:
    first = "\n".join(pydoc.plain(pydoc.render_doc(thing)).splitlines()[:60])
    assert "__" not in first
    assert [word for word in words if word not in first] == []


@pytest.mark.parametrize("name", cheap.DESIGNS)
def test_a_design_prints_its_fields_never_an_address(name: str) -> None:
    design = cheap.DESIGNS[name][0]()
    assert " at 0x" not in repr(design) + str(design)
    if name in ("optm", "optimal-quantizer", "calibration", "plan"):
        result = cheap.solved(name)
        assert " at 0x" not in repr(result) + repr(result.mechanism) + repr(result.certificate)


def test_an_audit_fits_a_terminal_and_says_of_what_each_row_is() -> None:
    audit = cheap.solved("optm").audit()
    printed = repr(audit).splitlines()
    assert max(map(len, printed)) <= 80 and len(printed) <= 23
    assert all(column in printed[0] for column in audit.columns)
    assert (
        audit["family"].str.startswith("model: ").any()
        and not audit["family"].str.startswith("model: ").all()
    )
    assert type(pd.DataFrame(audit)) is pd.DataFrame

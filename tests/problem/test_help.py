"""`help` of every design shows in its first 60 lines what it takes and how it is used, and nothing that Python gives every class."""

from __future__ import annotations

import pydoc

import pytest

import mechdesign as md
from mechdesign.shell.spec_file import designs

CLASSES = [design for design in {**designs(), "Problem": md.Problem}.values() if isinstance(design, type)]


def begins(thing: object) -> list[str]:
    return pydoc.plain(pydoc.render_doc(thing)).splitlines()[:60]


@pytest.mark.parametrize("design", CLASSES, ids=lambda design: design.__name__)
def test_help_begins_with_parameters_and_an_example(design: type) -> None:
    shown = begins(design)
    assert not [line for line in shown if line.startswith(" |  __")]
    assert any("Parameters" in line for line in shown) and any(">>> " in line for line in shown)
    solve = begins(design.solve)  # type: ignore[attr-defined]
    assert all(any(word in line for line in solve) for word in ("Parameters", "**options", ">>> "))

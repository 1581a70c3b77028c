"""Every leaf of result files is read and compared, or stands in the short list of those that are not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import cheap
import pytest
from campaign import trees

import mechdesign as md
from evidence import leaves
from mechdesign.evidence.serialize import dumps

QUICK = ["optimal-quantizer", "optm", "metric-channel", "vectors-signs"]


def unread(rows: Iterable[leaves.Row]) -> list[str]:
    """Leaves that a checker accepts with any value."""
    return [
        f"{checker}: {row.leaf.design}: {row.leaf.name}"
        for row in rows
        for checker in leaves.CHECKERS
        if getattr(row, checker).how == "accepted"
    ]


@pytest.mark.parametrize("name", QUICK)
def test_no_leaf_is_left_unread(name: str) -> None:
    assert unread(leaves.rows([name])) == []


@pytest.mark.slow
def test_no_leaf_of_any_file_is_left_unread() -> None:
    assert unread(leaves.every_row()) == []


@pytest.mark.slow
def test_the_page_of_leaves_is_what_is_found() -> None:
    assert leaves.PAGE.read_text(encoding="utf-8") == leaves.page()


@pytest.mark.parametrize("name", QUICK)
def test_reads_are_traced(name: str) -> None:
    """What is compared is looked at: the stand-alone checker's reads, recorded, hold every member that it compares."""
    read = leaves.read_alone(leaves.text(name))
    assert read is not None
    looked_at = {part.replace("[]", "") for part in read}
    payload = json.loads(leaves.text(name))["payload"]
    for leaf in leaves.leaves(payload):
        if leaves.stated(leaf) is None and isinstance(trees.at(payload, leaf.path), float):
            assert leaf.name.replace("[]", "") in looked_at, leaf.name
    assert leaves.read_package(leaves.text(name)) >= {"value", "solver_report", "design", "mechanism"}


@pytest.mark.parametrize(
    ("result", "place"),
    [
        (lambda: leaves.solved("knorm-rising"), ("sensitivity", "signed")),
        (
            lambda: md.MatrixMechanism(
                md.Workload.ranges(6),
                md.ApproximateDP(0.5, 1e-6),
                participation=md.noise.Participation(5, apart=1, fewer=False),
                signed=False,
            ).solve(),
            ("participation", "fewer"),
        ),
    ],
)
def test_changes_that_are_more_than_the_mechanism_is_made_for_are_refused(
    result: Callable[[], md.Result], place: tuple[str, str]
) -> None:
    """The direction of these leaves that says more; the other one says less, and is accepted."""
    payload = json.loads(dumps(result()))["payload"]
    path = ("fields", "design", "fields", place[0], "fields", place[1])
    assert trees.at(payload, path) is False
    text = cheap.sealed(trees.put(payload, path, True))
    assert all(check(text) not in (None, leaves.BESIDE_A_CLAIM) for check in leaves.CHECKERS.values())

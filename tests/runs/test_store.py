"""Stores: resumed after a kill at any byte, locked by their run, and never written over a file of somebody else."""

from __future__ import annotations

from pathlib import Path

import pytest

import mechdesign as md
from mechdesign.runs.parallel import Store


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    """Also one that has no line break."""
    for content in (b"my only copy", b"two\nlines\n", b"{", b'{"store": 1}\n', b"\xff\xfe"):
        path = tmp_path / "notes.txt"
        path.write_bytes(content)
        if content == b"{":  # the beginning of a store that was killed in its first line
            Store(path, {}).close()
            continue
        with pytest.raises(md.ResultFormatError, match="is not a store"):
            Store(path, {})
        assert path.read_bytes() == content


def test_two_runs_do_not_share_a_store(tmp_path: Path) -> None:
    first = Store(tmp_path / "s", {"a": 1})
    with pytest.raises(md.DesignError, match="another run"):
        Store(tmp_path / "s", {"a": 1})
    first.append([1])
    first.close()
    second = Store(tmp_path / "s", {"a": 1})
    assert second.chunks == [[1]]


def test_a_path_that_no_store_can_have_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path, tmp_path / "file" / "store", tmp_path / ("long" * 99)):
        with pytest.raises(md.DesignError, match=r"store = .*search\.jsonl"):
            Store(path, {})


@pytest.mark.slow
def test_every_prefix_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store = Store(path, {"a": 1})
    for chunk in ([1, 2], [3], []):
        store.append(chunk)
    store.close()
    whole = path.read_bytes()
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        again = Store(path, {"a": 1})
        for chunk in ([1, 2], [3], [])[len(again.chunks) :]:
            again.append(chunk)
        again.close()
        assert path.read_bytes() == whole

"""A search on a cluster of another library writes the bytes that one process writes."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from scipy import stats

import mechdesign as md
from mechdesign.model.parallel import Store

SEARCH = md.OPTMSearch(
    md.PureDP(1.0),
    stats.uniform(-1, 2),
    bins=md.Grid(delta=[1.8, 1.9, 2.0], inner=[0.4, 0.5]),
    boxes=md.Grid(level=[0.6 + i / 100 for i in range(8)], width=[0.01]),
)


@contextlib.contextmanager
def dask() -> Iterator[None]:
    """Two worker processes under a scheduler of this machine."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
    ):
        yield


@contextlib.contextmanager
def ray() -> Iterator[None]:
    """Two worker processes under a Ray head of this machine."""
    library = pytest.importorskip("ray")
    library.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        yield
    finally:
        library.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [dask, ray], ids=["dask", "ray"])
def test_a_search_on_a_cluster_writes_the_same_bytes(cluster: object, tmp_path: Path) -> None:
    one = SEARCH.solve(store=tmp_path / "one.jsonl")
    assert int(one.table["programs"].sum()) == 48
    with cluster():  # type: ignore[operator]
        two = SEARCH.solve(store=tmp_path / "two.jsonl", jobs=2, backend=cluster.__name__)  # type: ignore[attr-defined]
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    assert two.value == one.value and two.table.iloc[0].equals(one.table.iloc[0])


PROGRAM = """
import sys
import tests.model.test_clusters as clusters
if __name__ == "__main__":
    with getattr(clusters, sys.argv[1])():
        print("value", clusters.SLOW.solve(store=sys.argv[2], jobs=2, backend=sys.argv[1]).value, flush=True)
"""
SLOW = md.OPTMSearch(
    md.PureDP(1.0),
    stats.uniform(-1, 2),
    bins=md.Grid(delta=[1.5 + i / 100 for i in range(60)], inner=[0.3 + i / 20 for i in range(8)]),
    boxes=md.Grid(level=[i / 100 for i in range(2, 98)], width=[0.01]),
)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [dask, ray], ids=["dask", "ray"])
def test_a_search_whose_cluster_is_killed_continues(cluster: object, tmp_path: Path) -> None:
    """The parent is killed with all its workers once the store holds something: the next run keeps that, and ends where one process ends."""
    name = cluster.__name__  # type: ignore[attr-defined]
    pytest.importorskip({"dask": "distributed"}.get(name, name))
    store, program = tmp_path / "killed.jsonl", tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), name, str(store)]
    options = {"cwd": Path(__file__).parents[2], "env": {**os.environ, "PYTHONPATH": os.getcwd()}}
    started = subprocess.Popen(command, start_new_session=True, **options)  # type: ignore[call-overload]
    try:
        while started.poll() is None and not (store.exists() and store.read_bytes().count(b"\n") > 1):
            time.sleep(0.01)
        assert started.poll() is None, "the search ended before it was killed"
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
    held = store.read_bytes()
    resumed = subprocess.run(command, capture_output=True, text=True, check=True, **options)  # type: ignore[call-overload]
    one = SLOW.solve(store=tmp_path / "one.jsonl")
    whole, kept = (path.read_bytes().splitlines() for path in (tmp_path / "one.jsonl", store))
    done = held[: held.rfind(b"\n") + 1].splitlines()
    assert 1 < len(done) < len(whole) and kept[: len(done)] == done and kept[0] == whole[0]
    for mine, own in zip(kept[1:], whole[1:], strict=True):  # what HiGHS solved before moves the last digits
        assert _flat(mine) == pytest.approx(_flat(own), rel=1e-12)
    assert float(resumed.stdout.split()[-1]) == pytest.approx(one.value, rel=1e-12)


def _flat(rows: bytes) -> list[float]:
    """All numbers of a line."""
    return [float(number) for number in re.findall(rb"\d[-+.e\d]*", rows)]


# -- Stores: resumed after a kill at any byte, locked by their run, and never written over a file of somebody else


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

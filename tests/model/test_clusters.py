"""A search on a cluster of another library writes the bytes that one process writes."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from scipy import stats

import mechdesign as md
from mechdesign.model.grid import Store

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

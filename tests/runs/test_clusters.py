"""A search on a cluster of another library writes the bytes that one process writes."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scipy import stats

import mechdesign as md

SEARCH = md.OPTMSearch(
    md.PureDP(1.0),
    stats.uniform(-1, 2),
    bins=md.Grid(delta=[1.8, 1.9, 2.0], inner=[0.4, 0.5]),
    levels=md.Grid(level=[0.6 + i / 100 for i in range(8)], width=[0.01]),
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


@pytest.mark.parametrize(("backend", "module"), [("dask", "distributed"), ("ray", "ray.util.joblib")])
def test_a_cluster_that_is_not_installed_is_named(
    backend: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from joblib import parallel

    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(
        parallel, "BACKENDS", {name: b for name, b in parallel.BACKENDS.items() if name != "ray"}
    )
    with pytest.raises(md.MissingExtra, match=rf"mechdesign\[{backend}\]"):
        SEARCH.solve(jobs=2, backend=backend)

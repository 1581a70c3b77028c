"""The strategy for Flower: private means are added, damaged messages left out, nobody is asked too often."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mechdesign as md
from mechdesign.vectors import flower_strategy, flower_update

MECHANISM = md.SphereQuantizer(6, 2, md.PureDP(40.0), rotation="fast")


class FedAvg:
    """As much of Flower's as is needed where it is not installed."""

    def __init__(self, *, min_available_clients: int = 2) -> None:
        self.min_available_clients = min_available_clients


@pytest.fixture
def flower(monkeypatch: pytest.MonkeyPatch) -> Any:
    try:
        from flwr import common
    except ImportError:
        common = ModuleType("flwr.common")
        common.parameters_to_ndarrays = lambda held: [np.array(part) for part in held]  # type: ignore[attr-defined]
        common.ndarrays_to_parameters = list  # type: ignore[attr-defined]
        common.FitIns = lambda parameters, config: SimpleNamespace(parameters=parameters)  # type: ignore[attr-defined]
        server = ModuleType("flwr.server.strategy")
        server.FedAvg = FedAvg  # type: ignore[attr-defined]
        for name, module in (("flwr", ModuleType("flwr")), ("flwr.server", ModuleType("flwr.server"))):
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setitem(sys.modules, "flwr.common", common)
        monkeypatch.setitem(sys.modules, "flwr.server.strategy", server)
    return common


class Manager:
    def __init__(self, clients: int) -> None:
        self.held = {f"client {i}": i for i in range(clients)}

    def wait_for(self, count: int) -> bool:
        return count <= len(self.held)

    def all(self) -> dict[str, int]:
        return self.held


def test_without_flower_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.setitem(sys.modules, "flwr.common", None)
    with pytest.raises(md.errors.MissingExtra, match=r"pip install 'mechdesign\[flower\]'"):
        flower_strategy(MECHANISM, 3)


def test_means_are_added(flower: Any) -> None:
    strategy = flower_strategy(MECHANISM, 40, rate=0.5, rng=0, min_available_clients=2)
    start = [np.ones((2, 2), dtype=np.float32), np.zeros(2)]
    asked = strategy.configure_fit(1, flower.ndarrays_to_parameters(start), Manager(60))
    assert len({client for client, _ in asked}) == 40
    update = [np.full((2, 2), 0.1), np.array([0.2, -0.2])]
    parts = [flower_update(MECHANISM, update) for _ in asked]
    results = [(None, SimpleNamespace(parameters=flower.ndarrays_to_parameters(part))) for part in parts]
    total, count = MECHANISM.aggregate([part[0].tobytes() for part in parts])
    parameters, said = strategy.aggregate_fit(1, results, [])
    new = flower.parameters_to_ndarrays(parameters)
    assert said == {"messages": 40, "damaged": 0, "failures": 0} and count == 40
    wanted = np.array([1, 1, 1, 1, 0, 0]) + 0.5 * total / 40
    assert np.concatenate([part.ravel() for part in new]) == pytest.approx(wanted, abs=1e-6)
    assert [(part.shape, part.dtype) for part in new] == [(part.shape, part.dtype) for part in start]


def test_what_is_damaged_is_left_out(flower: Any) -> None:
    strategy = flower_strategy(MECHANISM, 3, rng=0)
    strategy.configure_fit(1, flower.ndarrays_to_parameters([np.zeros(6)]), Manager(9))
    good = flower_update(MECHANISM, [np.full(6, 0.1)])
    two = [np.frombuffer(MECHANISM.encode(np.zeros((2, 6))), dtype=np.uint8)]
    seeded = [np.frombuffer(MECHANISM.encode(np.zeros(6), seed=1), dtype=np.uint8)]
    bad = [good * 2, [good[0][:-1]], two, seeded, [np.zeros(6)], [good[0] ^ 1], []]
    results = [
        (None, SimpleNamespace(parameters=flower.ndarrays_to_parameters(part))) for part in [good, *bad]
    ]
    results.append((None, SimpleNamespace(parameters="nonsense")))
    parameters, said = strategy.aggregate_fit(1, results, [ValueError()])
    assert said == {"messages": 1, "damaged": len(bad) + 1, "failures": 1}
    decoded = MECHANISM.decode(good[0].tobytes())[0]
    assert flower.parameters_to_ndarrays(parameters)[0] == pytest.approx(decoded)
    assert strategy.aggregate_fit(2, results[1:], [])[0] is None


@pytest.mark.parametrize("times", [1, 2])
def test_nobody_is_asked_too_often(flower: Any, times: int) -> None:
    strategy, manager = flower_strategy(MECHANISM, 4, times=times, rng=1), Manager(10)
    parameters = flower.ndarrays_to_parameters([np.zeros(6)])
    rounds = [[client for client, _ in strategy.configure_fit(i, parameters, manager)] for i in range(8)]
    counts = np.bincount(np.concatenate(rounds).astype(int), minlength=10)
    assert (counts <= times).all() and counts.sum() >= 10 * times - 4
    assert all(len(set(asked)) == len(asked) for asked in rounds) and rounds[-1] == []


def test_bad_arguments(flower: Any) -> None:
    for bad in ({"clients": 0}, {"times": 0}, {"rate": float("nan")}, {"mechanism": "x"}):
        with pytest.raises(md.DesignError, match=next(iter(bad))):
            flower_strategy(**{"mechanism": MECHANISM, "clients": 3, **bad})
    for update in ("x", [], [["a"]], [np.zeros(5)]):
        with pytest.raises(md.DesignError):
            flower_update(MECHANISM, update)  # type: ignore[arg-type]
    with pytest.raises(md.DesignError, match="dimension is 6"):
        strategy = flower_strategy(MECHANISM, 3)
        strategy.configure_fit(1, flower.ndarrays_to_parameters([np.zeros(5)]), Manager(3))

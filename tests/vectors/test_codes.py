"""Messages: what is encoded is decoded, what is damaged is refused, sums need no decoding of each client."""

import importlib.util
import runpy
import sys
import zlib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.vectors import flower_strategy, flower_update
from mechdesign.vectors.coded import packed, unpacked

P = md.PureDP(2.0)
MADE: dict[str, Any] = {
    "sphere": md.SphereQuantizer(12, 3, P),
    "fast": md.SphereQuantizer(12, 3, P, rotation="fast"),
    "directions": md.RandomDirections(12, 5, P),
    "directions, messages": md.RandomDirections(12, 3, md.PureDP(6.0), messages=2),
    "coordinates": md.SampledCoordinates(12, 4, P),
    "all": md.SampledCoordinates(4, 4, md.PureDP(20.0)),
    "signs": md.SampledSigns(12, 5, P),
}
X = 0.1 * np.random.default_rng(0).normal(size=(5, 12))


def inputs(name: str) -> Any:
    return X[:, : MADE[name].dimension]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 17), st.lists(st.integers(0, 2**17 - 1), max_size=40))
def test_packing(bits: int, values: list[int]) -> None:
    codes = np.array(values, dtype=np.int64) % (1 << bits)
    data = packed(codes, bits)
    assert len(data) == -(-bits * len(values) // 8)
    assert unpacked(data, len(values), bits).tolist() == codes.tolist()


@pytest.mark.parametrize("name", MADE)
def test_what_is_decoded_is_what_was_drawn(name: str) -> None:
    """A seed fixes all but the private draw: the message's codes decode to its estimates, wherever."""
    mechanism = MADE[name]
    codes = mechanism.codes(inputs(name), 7)
    assert codes.shape == (5, mechanism.slots) and codes.max() < mechanism.levels
    message = mechanism.encode(inputs(name))
    estimates = mechanism.decode(message)
    assert estimates.shape == inputs(name).shape
    assert np.array_equal(estimates, mechanism.decode(bytearray(message)))
    assert np.array_equal(MADE[name].decoded(codes, 7), mechanism.decoded(codes, 7))


@pytest.mark.parametrize("name", MADE)
def test_means_of_messages(name: str) -> None:
    mechanism = MADE[name]
    x = np.repeat(inputs(name)[:1], 1200, axis=0)
    estimates = mechanism.decode(mechanism.encode(x))
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(x))
    allowed = 5 * error + (0.02 if name == "fast" else 0.0)
    assert (np.abs(estimates.mean(axis=0) - x[0]) <= allowed).all()


@pytest.mark.parametrize("name", MADE)
def test_every_damage_is_noticed(name: str) -> None:
    mechanism = MADE[name]
    for message, seed in (
        (mechanism.encode(inputs(name)), None),
        (mechanism.encode(inputs(name), seed=5), 5),
    ):
        for cut in range(len(message)):
            with pytest.raises(md.ResultFormatError):
                mechanism.decode(message[:cut], seed=seed)
        for place in range(len(message)):
            for bit in (1, 128):
                damaged = bytearray(message)
                damaged[place] ^= bit
                with pytest.raises(md.MechdesignError):
                    mechanism.decode(bytes(damaged), seed=seed)
        with pytest.raises(md.ResultFormatError):
            mechanism.decode(message + b"\0", seed=seed)


def sealed(body: bytes) -> bytes:
    return body + zlib.crc32(body).to_bytes(4, "little")


def test_sealed_nonsense_is_refused() -> None:
    mechanism = MADE["all"] if MADE["all"].levels < 16 else md.SampledCoordinates(12, 2, P)
    message = mechanism.encode(np.zeros((3, mechanism.dimension)))
    for place, value in ((2, 9), (3, 2), (4, message[4] ^ 1), (8, 200)):
        body = bytearray(message[:-4])
        body[place] = value
        with pytest.raises(md.ResultFormatError):
            mechanism.decode(sealed(bytes(body)))


def test_messages_are_of_one_mechanism() -> None:
    with pytest.raises(md.ResultFormatError, match="another mechanism"):
        md.SphereQuantizer(12, 3, md.PureDP(2.5)).decode(MADE["sphere"].encode(X))


def test_seeds_are_given_once() -> None:
    mechanism = MADE["sphere"]
    for message, seed in (
        (mechanism.encode(X), 5),
        (mechanism.encode(X, seed=5), None),
        (mechanism.encode(X, seed=5), -1),
    ):
        with pytest.raises(md.DesignError, match="seed"):
            mechanism.decode(message, seed=seed)
    for seed, first in ((None, 3), (5, (1 << 63) - 3), (5, -1), (5, 1.5)):
        with pytest.raises(md.DesignError, match="first"):
            mechanism.encode(X, seed=seed, first=first)  # type: ignore[arg-type]
    far = mechanism.encode(X, seed=5, first=(1 << 63) - 1 - len(X))
    assert mechanism.decode(far, seed=5).shape == X.shape
    for bad in (1.5, 1 << 128, True):
        with pytest.raises(md.DesignError, match="seed"):
            mechanism.encode(X, seed=bad)
    with pytest.raises(md.DesignError, match="message"):
        mechanism.decode([message])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("seed", [None, 11])
def test_sums_are_those_of_the_estimates(name: str, seed: int | None) -> None:
    mechanism = MADE[name]
    messages = [mechanism.encode(inputs(name), seed=seed) for _ in range(6)]
    total, count = mechanism.aggregate(messages, seed=seed)
    wanted = sum(mechanism.decode(m, seed=seed).sum(axis=0) for m in messages)
    assert count == 30 and total == pytest.approx(wanted, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", [None, 9])
def test_damaged_messages_are_left_out_by_index(seed: int | None) -> None:
    mechanism = MADE["sphere"]
    good = [mechanism.encode(X, seed=seed, first=5 * i if seed else 0) for i in range(3)]
    flipped = bytes([*good[1][:21], good[1][21] ^ 1, *good[1][22:]])
    other = md.SphereQuantizer(12, 3, md.PureDP(2.5)).encode(X, seed=seed)
    wrong_seed = mechanism.encode(X, seed=None if seed else 9)
    bad = [b"", flipped, good[0][:-1], good[0] + b"\0", other, wrong_seed, "text", None, bytes(100_000)]
    messages = [good[0], *bad, *good[1:]]
    total, count, skipped = mechanism.aggregate(messages, seed=seed, skip_damaged=True)
    assert skipped == list(range(1, 1 + len(bad))) and count == 15
    assert np.array_equal(total, mechanism.aggregate(good, seed=seed)[0])
    with pytest.raises(md.MechdesignError, match=r"messages\[1\]"):
        mechanism.aggregate(messages, seed=seed)
    with pytest.raises(md.ResultFormatError, match=r"messages\[0\]"):
        mechanism.aggregate(good, seed=seed, vectors=1)
    assert mechanism.aggregate(good, seed=seed, vectors=5)[1] == 15
    with pytest.raises(md.DesignError, match="messages"):
        mechanism.aggregate(good[0])  # type: ignore[arg-type]
    assert mechanism.aggregate([])[1] == 0


# -- PyTorch: module, hook and whole models; without PyTorch the extra is named ------------------------------


# -- The strategy for Flower: private means are added, damaged messages left out, nobody is asked too often --

FLOWN = md.SphereQuantizer(6, 2, md.PureDP(40.0), rotation="fast")


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
        flower_strategy(FLOWN, 3)


def test_means_are_added(flower: Any) -> None:
    strategy = flower_strategy(FLOWN, 40, rate=0.5, rng=0, min_available_clients=2)
    start = [np.ones((2, 2), dtype=np.float32), np.zeros(2)]
    asked = strategy.configure_fit(1, flower.ndarrays_to_parameters(start), Manager(60))
    assert len({client for client, _ in asked}) == 40
    update = [np.full((2, 2), 0.1), np.array([0.2, -0.2])]
    parts = [flower_update(FLOWN, update) for _ in asked]
    results = [(None, SimpleNamespace(parameters=flower.ndarrays_to_parameters(part))) for part in parts]
    total, count = FLOWN.aggregate([part[0].tobytes() for part in parts])
    parameters, said = strategy.aggregate_fit(1, results, [])
    new = flower.parameters_to_ndarrays(parameters)
    assert said == {"messages": 40, "damaged": 0, "failures": 0} and count == 40
    wanted = np.array([1, 1, 1, 1, 0, 0]) + 0.5 * total / 40
    assert np.concatenate([part.ravel() for part in new]) == pytest.approx(wanted, abs=1e-6)
    assert [(part.shape, part.dtype) for part in new] == [(part.shape, part.dtype) for part in start]


def test_what_is_damaged_is_left_out(flower: Any) -> None:
    strategy = flower_strategy(FLOWN, 3, rng=0)
    strategy.configure_fit(1, flower.ndarrays_to_parameters([np.zeros(6)]), Manager(9))
    good = flower_update(FLOWN, [np.full(6, 0.1)])
    two = [np.frombuffer(FLOWN.encode(np.zeros((2, 6))), dtype=np.uint8)]
    seeded = [np.frombuffer(FLOWN.encode(np.zeros(6), seed=1), dtype=np.uint8)]
    bad = [good * 2, [good[0][:-1]], two, seeded, [np.zeros(6)], [good[0] ^ 1], []]
    results = [
        (None, SimpleNamespace(parameters=flower.ndarrays_to_parameters(part))) for part in [good, *bad]
    ]
    results.append((None, SimpleNamespace(parameters="nonsense")))
    parameters, said = strategy.aggregate_fit(1, results, [ValueError()])
    assert said == {"messages": 1, "damaged": len(bad) + 1, "failures": 1}
    decoded = FLOWN.decode(good[0].tobytes())[0]
    assert flower.parameters_to_ndarrays(parameters)[0] == pytest.approx(decoded)
    assert strategy.aggregate_fit(2, results[1:], [])[0] is None


@pytest.mark.parametrize("times", [1, 2])
def test_nobody_is_asked_too_often(flower: Any, times: int) -> None:
    strategy, manager = flower_strategy(FLOWN, 4, times=times, rng=1), Manager(10)
    parameters = flower.ndarrays_to_parameters([np.zeros(6)])
    rounds = [[client for client, _ in strategy.configure_fit(i, parameters, manager)] for i in range(8)]
    counts = np.bincount(np.concatenate(rounds).astype(int), minlength=10)
    assert (counts <= times).all() and counts.sum() >= 10 * times - 4
    assert all(len(set(asked)) == len(asked) for asked in rounds) and rounds[-1] == []


# -- The Flower example runs, or says what it lacks ----------------------------------------------------------

EXAMPLE = Path(__file__).parents[2] / "studies" / "examples" / "flower_digits.py"


def test_flower_example(capsys: pytest.CaptureFixture[str]) -> None:
    module: dict[str, Any] = runpy.run_path(str(EXAMPLE))
    assert module["main"](["--rounds", "2", "--clients", "300", "--epsilon", "20", "--loop"]) == 0
    said = capsys.readouterr().out
    if importlib.util.find_spec("flwr") is None:
        assert "skipped" in said and "mechdesign[flower,learning]" in said
    else:
        assert "150 clients in one process" in said and "34 bytes" in said

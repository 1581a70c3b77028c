"""Messages: what is encoded is decoded, what is damaged is refused, sums need no decoding of each client."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
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


@pytest.mark.parametrize("name", MADE)
def test_no_vectors_are_no_trouble(name: str) -> None:
    mechanism = MADE[name]
    message = mechanism.encode(np.zeros((0, mechanism.dimension)))
    assert mechanism.decode(message).shape == (0, mechanism.dimension)
    assert mechanism.release(np.zeros((0, mechanism.dimension))).shape == (0, mechanism.dimension)

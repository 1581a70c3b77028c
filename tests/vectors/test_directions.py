"""Directions from a shared seed against a scalar program written from their definition alone, and against the uniform law."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from mechdesign.vectors.directions import direction_words, directions, polygon

LOW = (1 << 64) - 1


def philox(key: int, counter: tuple[int, ...]) -> list[int]:
    """A block of Philox4x64-10 (Salmon, Moraes, Dror, Shaw 2011)."""
    (k, l), (a, b, c, d) = (key & LOW, key >> 64), counter
    for _ in range(10):
        one, two = 0xD2E7470EE14C6C93 * a, 0xCA5A826395121157 * c
        a, b, c, d = two >> 64 ^ b ^ k, two & LOW, one >> 64 ^ d ^ l, one & LOW
        k, l = (k + 0x9E3779B97F4A7C15) & LOW, (l + 0xBB67AE8584CAA73B) & LOW
    return [a, b, c, d]


def direction(dimension: int, seed: int, vector: int, code: int) -> list[float]:
    """The definition, one number after the other."""
    pairs = (dimension + 1) // 2
    tries = 3 * pairs // 2 + 64
    blocks = -(-(pairs - 1 + tries) // 4)

    def words() -> Iterator[int]:
        for j in range(1, blocks + 1):
            yield from philox(seed, (code * blocks + j, 0, vector, 0))

    held = words()
    marks = sorted(next(held) >> 11 for _ in range(pairs - 1))
    shares = [b - a for a, b in zip([0, *marks], [*marks, 1 << 53])]
    points: list[tuple[int, int, int]] = []
    spare = tries - pairs
    while len(points) < pairs:
        word = next(held)
        u, v = 2 * (word >> 38) + 1 - 2**26, 2 * (word >> 12 & 2**26 - 1) + 1 - 2**26
        if u * u + v * v > 2**52 and spare:
            spare -= 1
        else:
            points.append((u, v, u * u + v * v))
    n = 2.0**53
    if dimension % 2:
        w, (u, _, t) = shares[-1], points[-1]
        n = float(2**53 - w) + w * ((u * u) / t)
    out = []
    for w, (u, v, t) in zip(shares, points):
        q = math.sqrt((w / t) / n)
        out += [u * q, v * q]
    return out[:dimension]


@pytest.mark.parametrize("dimension", [2, 3, 4, 5, 10, 101])
def test_same_bits_as_a_scalar_program(dimension: int) -> None:
    seed, vector = 12345678901234567890123456789012345678, 1 << 60
    found = directions(dimension, direction_words(dimension, seed, vector, 5, 25))
    assert found.tolist() == [direction(dimension, seed, vector, code) for code in range(5, 25)]


def test_vectors_of_the_documentation() -> None:
    known = {
        (3, 1, 2, 3): ["0x1.c464227124d4cp-2", "0x1.a210e05112fafp-1", "-0x1.7c873e5fced10p-2"],
        (2, (1 << 128) - 1, (1 << 63) - 1, 65535): ["-0x1.dc259ee542854p-1", "0x1.78726b4b2728bp-2"],
        (4, 1, 2, 3): [
            "0x1.49718ccf50c0cp-2",
            "0x1.30726de3dc943p-1",
            "-0x1.151c6ee18a62cp-2",
            "-0x1.5ee4541085664p-1",
        ],
    }
    for (dimension, seed, vector, code), numbers in known.items():
        found = directions(dimension, direction_words(dimension, seed, vector, code, code + 1))[0]
        assert [x.hex() for x in found.tolist()] == numbers


@pytest.mark.parametrize("dimension", [2, 3, 4, 7])
def test_uniform_law(dimension: int) -> None:
    count = 40_000
    found = directions(dimension, direction_words(dimension, 9, 0, 0, count))
    assert abs((found**2).sum(axis=1) - 1).max() < 1e-14
    deviation = 4.5 / math.sqrt(count)
    assert abs(found.mean(axis=0)).max() < deviation
    assert abs(dimension * found.T @ found / count - np.eye(dimension)).max() < 1.5 * deviation
    # The fourth moment tells the sphere's law from every other of these second moments.
    wanted = 3 / (dimension * (dimension + 2))
    fourth = found**4
    assert (abs(fourth.mean(axis=0) - wanted) < deviation * fourth.std(axis=0)).all()


def test_words_that_are_all_outside_the_disc_end() -> None:
    corner = np.full((2, 80), (1 << 64) - 1, dtype=np.uint64)
    assert np.isfinite(directions(5, corner)).all()


@pytest.mark.parametrize("bits", [1, 2, 5, 12])
def test_polygon(bits: int) -> None:
    found = polygon(1 << bits, np.array([0.6, 0.8]))
    wanted = (0.6 + 0.8j) * np.exp(2j * np.pi * np.arange(1 << bits) / (1 << bits))
    assert abs(found[:, 0] + 1j * found[:, 1] - wanted).max() < 1e-14

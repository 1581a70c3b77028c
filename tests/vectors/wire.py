"""Messages for given random words: `python -m vectors.wire`, with tests/ on the path, writes docs/wire-vectors.json."""

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import mechdesign as md
from mechdesign.vectors import coded

FILE = Path(__file__).parents[2] / "docs" / "wire-vectors.json"
ALL = 1 << 64
Case = dict[str, Any]

R = md.vectors.RandomDirections
MECHANISMS: dict[str, Any] = {
    "signs": md.SampledSigns(12, 5, md.PureDP(1.0)),
    "long signs": md.SampledSigns(100, 16, md.PureDP(6.0), radius=0.3),
    "one sign": md.SampledSigns(3, 1, md.PureDP(1e-9)),
    "coordinates": md.SampledCoordinates(9, None, md.PureDP(8.0)),
    "all coordinates": md.SampledCoordinates(5, None, md.PureDP(4.0), count=5, radius=2.5),
    "coordinates of a ball": md.SampledCoordinates(7, None, md.PureDP(4.0), "ball", count=2),
    "sphere": md.SphereQuantizer(20, 4, md.PureDP(4.0), rotation="fast"),
    "sphere, exactly": md.SphereQuantizer(16, 4, md.PureDP(2.0), "sphere", 3.0, rotation="fast"),
    "one bit": md.SphereQuantizer(2, 1, md.PureDP(30.0), rotation="fast"),
    "wide": md.SphereQuantizer(300, 8, md.PureDP(5.0), radius=0.1, rotation="fast"),
    "directions": R(3, 4, md.PureDP(4.0)),
    "three messages": R(10, 3, md.PureDP(8.0), messages=3, radius=0.5),
    "directions on a sphere": R(7, 2, md.PureDP(2.0), inputs="sphere"),
    "polygon": R(2, 5, md.PureDP(6.0), inputs="sphere"),
    "two corners": R(2, 1, md.PureDP(2.0), inputs="sphere", messages=2),
    "table": md.vectors.IntegerTable.of(md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1))),
    "category": md.vectors.IntegerTable.of_weights(((5, 2, 2), (2, 5, 2), (2, 2, 5))),
}


def dimension(mechanism: Any) -> int:
    return 6 if isinstance(mechanism, md.vectors.IntegerTable) else mechanism.dimension


def inputs(mechanism: Any, rng: np.random.Generator) -> np.ndarray:
    """A vector, or the numbers of one message: spread, with a single coordinate, 0, at the ends, too long, tiny or huge."""
    d, radius = dimension(mechanism), getattr(mechanism, "radius", 1.0)
    kind = rng.integers(0, 8)
    x = rng.normal(size=d) * rng.choice([0.05, 0.3, 2.0])
    if kind == 0:
        x = np.zeros(d)
    elif kind == 1:
        x = np.eye(d)[rng.integers(0, d)] * rng.choice([-1.0, 1.0])
    elif kind == 2:
        x = rng.choice([-1.0, 0.0, 0.5, 1.0], d)
    elif kind == 3:
        x *= 10.0 ** rng.choice([-300.0, -145.0, -139.0, -20.0, -5.0, 5.0, 300.0], d)
    return x * radius


def words(mechanism: Any, seed: int) -> Iterator[int]:
    """Random words, among them those that leave a choice undecided, or are drawn again."""
    rng = np.random.default_rng(seed)
    near = [*[0, 1] * 6, ALL - 1, ALL // 2]
    for p in getattr(mechanism, "probabilities", (Fraction(1, 3),)):
        for share in (p, p * getattr(mechanism, "near", 1)):
            leading = int(share * ALL)
            near += [leading, leading - 1, leading + 1, int(share * ALL**2) % ALL]
    while True:
        plain = int(rng.integers(0, ALL, dtype=np.uint64, endpoint=False)) if rng.random() > 0.25 else None
        yield rng.choice(np.array(near, dtype=object)) % ALL if plain is None else plain


def encoded(
    mechanism: Any, x: np.ndarray, seed: int, first: int | None, clip: bool, source: Iterator[int]
) -> tuple[bytes, list[int]]:
    """The message that `encode` makes with these random words, and those of them that it took."""
    taken: list[int] = []

    def bytes_of(size: int) -> bytes:
        new = [next(source) for _ in range(size // 8)]
        taken.extend(new)
        return np.array(new, dtype=np.uint64).tobytes()

    with (
        mock.patch.object(os, "urandom", bytes_of),
        mock.patch.object(coded.secrets, "randbits", lambda bits: seed),
    ):
        agreed = {} if first is None else {"seed": seed, "first": first}
        if x.ndim == 2:
            drawn = vector_by_vector(mechanism, mechanism.codes)
            with mock.patch.object(
                type(mechanism), "codes", lambda self, *given, **options: drawn(*given, **options)
            ):
                return mechanism.encode(x, clip=clip, **agreed), taken
        return mechanism.encode(x, clip=clip, **agreed), taken


def undecided(mechanism: Any) -> tuple[np.ndarray, list[int]]:
    """A vector and words with which every choice that can takes further words."""
    x, few, plain = np.full(dimension(mechanism), 1.234e-5) * mechanism.radius, 0, 0x123456789ABCDEF1
    out: list[int] = []
    if isinstance(mechanism, (md.SampledSigns, md.SampledCoordinates)):
        few = mechanism.bits if isinstance(mechanism, md.SampledSigns) else mechanism.count
        scaled = Fraction(float(x[0] / mechanism.radius)) * (ALL >> 1)
        out += [2 * int(scaled) + 1] * few + [plain] * few
    if isinstance(mechanism, md.SampledCoordinates):
        *_, c, e = map(int, json.loads(md.vectors.flat_json(mechanism))["weights"])
        return x, out + [(c << 64) // (c + e)] * few + [plain] * few
    count = getattr(mechanism, "messages", 1)
    for bound in (mechanism.near, mechanism.outputs - mechanism.near):
        out += [ALL - 1] * count + ([plain] * count if ALL % bound else [])
    return x, out + [int(mechanism.near * mechanism.probabilities[0] * ALL)] * count + [plain] * count


def vector_by_vector(mechanism: Any, codes: Any) -> Any:
    """`codes` that draws all of a vector before anything of the next."""

    def drawn(x: np.ndarray, seed: int, *, first: int = 0, clip: bool = False) -> np.ndarray:
        rows = np.reshape(x, (-1, mechanism.dimension))
        return np.concatenate([codes(row, seed, first=first + i, clip=clip) for i, row in enumerate(rows)])

    return drawn


def chosen(names: Sequence[str]) -> list[Case]:
    """Cases that random ones hardly ever are: further words, several vectors, large numbers, refused inputs."""
    out: list[Case] = []
    for name in names:
        mechanism = MECHANISMS[name]
        key = hashlib.sha256(name.encode()).digest()[:16]
        rng, plain = np.random.default_rng(list(key)), inputs_within(mechanism)
        made: list[tuple[np.ndarray, bool, int | None, list[int]]] = [(plain, False, None, [])]
        made += [(plain * 1.001 * 2, False, None, [])]
        for i, bad in enumerate((np.nan, np.inf, -np.inf)):
            spoilt = plain.copy()
            spoilt.flat[-1] = bad
            made.append((spoilt, i == 0 or not isinstance(mechanism, md.vectors.IntegerTable), None, []))
        if not isinstance(mechanism, md.vectors.IntegerTable):
            x, leading = undecided(mechanism)
            made.append((x, True, None, leading))
            made.append((np.stack([plain, -plain, plain[::-1]]), True, (1 << 53) + 1, []))
        for x, clip, first, leading in made:
            random = (int(rng.integers(0, ALL - 1, dtype=np.uint64, endpoint=True)) for _ in range(1000))
            out.append(case_of(name, x, key, first, clip, chain(leading, random)))
    return out


def inputs_within(mechanism: Any) -> np.ndarray:
    """A vector that is allowed, or numbers: of length R, or within the knots."""
    d = dimension(mechanism)
    if isinstance(mechanism, md.vectors.IntegerTable):
        return np.linspace(*mechanism.knots_range, d)
    x = np.linspace(-0.7, 1.0, d)
    return x / np.linalg.norm(x) * mechanism.radius if mechanism.inputs != "box" else x * mechanism.radius


def case_of(
    name: str, x: np.ndarray, key: bytes, first: int | None, clip: bool, source: Iterator[int]
) -> Case:
    """A case; of a message that is refused it is null."""
    mechanism, message, taken = MECHANISMS[name], None, list[int]()
    with contextlib.suppress(md.DataError):
        message, taken = encoded(mechanism, x, int.from_bytes(key, "little"), first, clip, source)
    listed = [
        v if math.isfinite(v) else {"nan": "NaN", "inf": "Infinity"}.get(str(v), "-Infinity")
        for v in x.ravel().tolist()
    ]
    vectors: list[Any] = listed
    if not isinstance(mechanism, md.vectors.IntegerTable):
        d = mechanism.dimension
        vectors = [listed[i : i + d] for i in range(0, len(listed), d)]
    case = {"mechanism": name, "inputs": vectors, "clip": clip, "seed": key.hex()}
    case |= {"first": None if first is None else str(first), "words": [f"{w:016x}" for w in taken]}
    return {**case, "message": None if message is None else message.hex()}


def cases(names: Sequence[str], count: int, start: int = 0) -> dict[str, Any]:
    """So many messages of each mechanism, with what makes them."""
    out: list[Case] = []
    for name in names:
        mechanism = MECHANISMS[name]
        for i in range(start, start + count):
            key = hashlib.sha256(f"{name} {i}".encode()).digest()
            rng = np.random.default_rng(int.from_bytes(key[:8], "little"))
            x, first = inputs(mechanism, rng), None
            if i % 3 == 2:
                first = int(rng.integers(0, 1 << 62)) >> int(rng.integers(0, 62))
            out.append(case_of(name, x, key[16:], first, True, words(mechanism, i)))
    flat = {name: json.loads(md.vectors.flat_json(MECHANISMS[name])) for name in names}
    return {"mechanisms": flat, "cases": out}


def committed() -> str:
    """The text of docs/wire-vectors.json: a few small mechanisms."""
    kept = [name for name in MECHANISMS if name not in ("wide", "long signs")]
    made = cases(kept, 5)
    lines = ",\n".join(json.dumps(case) for case in made["cases"] + chosen(kept))
    flat = ",\n".join(f"{json.dumps(name)}: {json.dumps(m)}" for name, m in made["mechanisms"].items())
    return f'{{"mechanisms": {{\n{flat}\n}},\n"cases": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    FILE.write_text(committed())

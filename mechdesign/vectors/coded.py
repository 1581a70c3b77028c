r"""Messages: codes of vectors as bytes, with a versioned header; decoding, and sums without decoding each client.

A message is little-endian: ``MV``, version, flags, four bytes of the mechanism's fingerprint, the number of vectors (4 bytes); then the seed
(16 bytes) or, for an agreed seed, the number of the first vector (8 bytes); the codes, bit-packed; a CRC-32 of all before.
Only the codes depend on the vectors. docs/wire.md describes messages byte by byte, for clients in other languages.

**Shared randomness.** Both ends derive the same words from a seed and the number of a vector. Words come from the counter-based generator
Philox 4x64-10, a few lines in any language: the seed is its key, the number of the vector the upper half of its counter. The operating
system draws seeds independently of all inputs, so that a guarantee that holds for every rotation holds for the message
with its seed.

**Federated learning with Flower.** A client's ``fit`` returns `flower_update` of its update of the parameters; `flower_strategy` is the strategy of the server, which adds
up and decodes. Each time it is asked, a client sends a message of one vector, which consumes the mechanism's budget for all of the client's data.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
import zlib
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from importlib import import_module
from itertools import count as naturals
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from mechdesign.checks import (
    Checked,
    answers,
    field,
    generator,
    indices,
    instance,
    integer,
    number,
    one_of,
    read,
    refuse,
)
from mechdesign.errors import DataError, DesignError, MissingExtra, ResultFormatError
from mechdesign.evidence.page import Saved
from mechdesign.evidence.sampling import IntegerWeights, below, random_words, uniform_integers
from mechdesign.evidence.serialize import dumps
from mechdesign.typing import Array, Indices, Numbers, Randomness

Source = np.random.Generator | None  # for simulation; None is the operating system's randomness
_MAGIC, _VERSION, _SEEDED = b"MV", 2, 1
_HEAD = struct.Struct("<2sBB4sI")
SEED_BITS = 128
_SEED_BYTES = SEED_BITS // 8


def packed(codes: Indices, bits: int) -> bytes:
    """Pack non-negative integers below 2^bits one after the other, lowest bit first.

    Examples
    --------
    >>> packed(np.array([1, 2, 3]), 2).hex()
    '39'
    """
    words = codes.astype("<u4").view(np.uint8).reshape(-1, 4)[:, : -(-bits // 8)]
    spread = np.unpackbits(words, axis=1, count=bits, bitorder="little")
    return np.packbits(spread.ravel(), bitorder="little").tobytes()


def unpacked(data: bytes, count: int, bits: int) -> Indices:
    """Return the integers that `packed` wrote.

    Examples
    --------
    >>> unpacked(packed(np.array([1, 2, 3]), 2), 3, 2).tolist()
    [1, 2, 3]
    """
    spread = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little", count=count * bits)
    words = np.zeros((count, 32), dtype=np.uint8)
    words[:, :bits] = spread.reshape(count, bits)
    return np.packbits(words, axis=1, bitorder="little").view("<u4").ravel().astype(np.int64)


def listed_messages(messages: object) -> list[object]:
    """Return several messages as a list, or raise DataError for a single one or anything else."""
    with DataError.where("messages: must be a list of messages", TypeError):
        if isinstance(messages, (bytes, bytearray, memoryview, str)):
            raise TypeError
        return list(messages)  # type: ignore[call-overload, no-any-return]


class CodedMechanism(Saved, ABC):
    """Base of mechanisms that send vectors as a few integers each."""

    dimension: int

    @property
    @abstractmethod
    def levels(self) -> int:
        """Number of values of a code."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Number of codes per vector."""

    @abstractmethod
    def _drawn(self, x: Numbers, seed: int, first: int, clip: bool, rng: Source) -> Indices:
        """Draw codes, shape (n, slots), exactly if there is no generator."""

    def codes(self, x: Numbers, seed: int, *, first: int = 0, clip: bool = False) -> Indices:
        """Draw codes, shape (n, slots), exactly, with the operating system's randomness.

        Parameters
        ----------
        x : array_like, shape (..., d)
        seed : int
            Seed of the shared randomness; vector i uses the seed and the number first + i.
        first : int
        clip : bool
            Shorten vectors that are too long.
        """
        return self._drawn(x, *checked_key(seed, first), clip, None)

    @abstractmethod
    def decoded(self, codes: Numbers, seed: int, *, first: int = 0) -> Array:
        """Return the estimates, shape (n, d), of vectors whose codes these are."""

    def sample(self, x: Numbers, *, rng: Randomness = None, clip: bool = False) -> Array:
        """Draw an unbiased estimate of every vector, in the shape of `x`, for simulation; deploy `release`.

        Parameters
        ----------
        x : array_like, shape (..., d)
        rng : seed or numpy Generator
        clip : bool
            Shorten vectors that are too long.
        """
        source = generator(rng)
        seed = int(source.integers(0, 1 << 62))
        return self.decoded(self._drawn(x, seed, 0, clip, source), seed).reshape(np.shape(x))

    def release(self, x: Numbers, *, clip: bool = False) -> Array:
        """Draw from the exact law, with the operating system's randomness and a fresh seed for all vectors of `x`.

        Raises
        ------
        DataError
            A vector that is too long without `clip`, an entry that is not finite, or beyond 2⁵³ one that no double holds.
            The guarantee does not cover that refusal.
        """
        seed = checked_seed(None)
        return self.decoded(self.codes(x, seed, clip=clip), seed).reshape(np.shape(x))

    def _checked(self, codes: Numbers) -> Indices:
        """Return codes as integers, shape (n, slots), or raise DataError."""
        given = read("codes", codes)
        found = indices("codes", given, self.levels) if given.size else np.empty(0, dtype=np.int64)
        DataError.when(found.size % self.slots, f"codes: must be {self.slots} a vector")
        return found.reshape(-1, self.slots)

    @abstractmethod
    def _total(self, codes: Indices, seed: int, number: int) -> Array:
        """Return the sum of the estimates, shape (d,), of vectors that share a seed and a number: codes are counted, then decoded once."""

    @property
    def code_bits(self) -> int:
        """Bits of one code."""
        return max((self.levels - 1).bit_length(), 1)

    @property
    def vector_bits(self) -> int:
        """Bits of all codes of a vector."""
        return self.slots * self.code_bits

    @cached_property
    def fingerprint(self) -> bytes:
        """Four bytes that identify the mechanism."""
        return hashlib.sha256(dumps(self).encode()).digest()[:4]

    def encode(self, x: Numbers, *, seed: int | None = None, first: int = 0, clip: bool = False) -> bytes:
        """Draw codes of vectors and return them as a message, exactly and with the operating system's randomness.

        Parameters
        ----------
        x : array_like, shape (..., d)
        seed : int, optional
            An agreed seed, not part of the message; by default a fresh one, sent with it.
        first : int
            Number of the first vector under an agreed seed; vectors of one seed and number share their randomness.
        clip : bool
            Shorten vectors that are too long.

        Returns
        -------
        bytes

        Raises
        ------
        DataError
            A vector that is too long without `clip`, an entry that is not finite, or beyond 2⁵³ one that no double holds.
            The guarantee does not cover that refusal.

        Examples
        --------
        >>> import mechdesign as md
        >>> mechanism = md.SphereQuantizer(100, 6, md.PureDP(4.0))
        >>> message = mechanism.encode(np.zeros((8, 100)))
        >>> len(message), mechanism.decode(message).shape       # 6 bytes of codes
        (38, (8, 100))
        """
        used, first = checked_seed(seed), integer("first", first, 0, (1 << 63) - 1)
        remedy = "needs an agreed seed: a fresh one has a vector 0 of its own"
        refuse(seed is None and first, "first", first, remedy)
        drawn = self.codes(x, used, first=first, clip=clip).reshape(-1, self.slots)
        DataError.when(len(drawn) >= 1 << 32, "x: a message holds fewer than 2^32 vectors")
        refuse(first + len(drawn) > (1 << 63) - 1, "first", first, "must leave vectors numbers below 2^63")
        head = _HEAD.pack(_MAGIC, _VERSION, _SEEDED if seed is None else 0, self.fingerprint, len(drawn))
        source = used.to_bytes(_SEED_BYTES, "little") if seed is None else first.to_bytes(8, "little")
        body = head + source + packed(drawn.ravel(), self.code_bits)
        return body + zlib.crc32(body).to_bytes(4, "little")

    def decode(self, message: bytes, *, seed: int | None = None) -> Array:
        """Return the estimates that a message holds, shape (n, d).

        Parameters
        ----------
        message : bytes
        seed : int, optional
            The agreed seed, if the message has none.

        Raises
        ------
        ResultFormatError
            The message is damaged, truncated, or from another version or mechanism.
        DataError
            The message is not bytes.
        DesignError
            The message has a seed and one is given, or neither.
        """
        codes, seed, first = self._parsed(message, seed)
        return self.decoded(codes, seed, first=first)

    def _parsed(self, message: object, seed: int | None) -> tuple[Indices, int, int]:
        if not isinstance(message, (bytes, bytearray, memoryview)):
            raise DataError("message: must be bytes")
        data = bytes(message)
        ResultFormatError.when(len(data) < _HEAD.size + 12, "message: truncated, or of no vector mechanism")
        magic, version, flags, mark, count = _HEAD.unpack_from(data)
        ResultFormatError.when(magic != _MAGIC, "message: not one of a vector mechanism")
        if version != _VERSION or flags & ~_SEEDED:
            reads = f"this mechdesign reads version {_VERSION}"
            raise ResultFormatError(f"message of version {version}, flags {flags}: {reads}")
        if mark != self.fingerprint:
            raise ResultFormatError("message: encoded by another mechanism than the one that decodes it")
        start = _HEAD.size + (_SEED_BYTES if flags else 8)
        if len(data) != start + -(-count * self.vector_bits // 8) + 4:
            raise ResultFormatError("message: truncated, or too long for its vectors")
        if zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
            raise ResultFormatError("message: damaged, its checksum does not match")
        codes = unpacked(data[start:-4], count * self.slots, self.code_bits).reshape(count, self.slots)
        if codes.size and codes.max() >= self.levels:
            raise ResultFormatError(f"message: a code above {self.levels - 1}")
        tail = int.from_bytes(data[_HEAD.size : start], "little")
        if flags:
            refuse(seed is not None, "seed", seed, "must not be given: the message has its own")
            return codes, tail, 0
        refuse(seed is None, "seed", None, "must be the one agreed on: the message has none")
        if tail + count > (1 << 63) - 1:
            raise ResultFormatError("message: the number of its first vector is too large")
        return codes, checked_seed(seed), tail

    def aggregate(
        self,
        messages: Iterable[bytes],
        *,
        seed: int | None = None,
        vectors: int | None = None,
        skip_damaged: bool = False,
    ) -> tuple[Any, ...]:
        """Return the sum of all estimates in these messages, and their number of vectors.

        Vectors with equal seed and number share their randomness: their codes are counted and the counts decoded once,
        for any number of clients.

        Parameters
        ----------
        messages : iterable of bytes
        seed : int, optional
        vectors : int, optional
            Required number of vectors in each message: otherwise one client's message may count as many.
        skip_damaged : bool
            Leave out refused messages, and return their indices as well.

        Returns
        -------
        ndarray, shape (d,)
        int
        list of int
            Only with `skip_damaged`: the indices of the messages that were left out.

        Raises
        ------
        ResultFormatError
            A message, named by its index, is damaged, from another mechanism, or has another number of vectors.
        DataError
            The messages are no list.

        Examples
        --------
        >>> import mechdesign as md
        >>> mechanism = md.SphereQuantizer(100, 6, md.PureDP(4.0))
        >>> messages = [mechanism.encode(np.zeros(100), seed=7, first=i) for i in range(20)]
        >>> total, count = mechanism.aggregate(messages, seed=7)
        >>> total.shape, count
        ((100,), 20)
        >>> total, count, skipped = mechanism.aggregate([*messages, b"nonsense"], seed=7, skip_damaged=True)
        >>> count, skipped
        (20, [20])
        """
        one_of("skip_damaged", skip_damaged, (True, False))
        if seed is not None:
            checked_seed(seed)
        if vectors is not None:
            integer("vectors", vectors, 0)
        groups: dict[tuple[int, int], list[Indices]] = {}
        skipped = []
        for k, message in enumerate(listed_messages(messages)):
            try:
                codes, used, first = self._parsed(message, seed)
                if vectors not in (None, len(codes)):
                    raise ResultFormatError(f"message: not of {vectors} vectors, as was asked for")
            except (ResultFormatError, DesignError) as error:
                if not skip_damaged:
                    raise type(error)(f"messages[{k}]: {error}") from None
                skipped.append(k)
                continue
            for i, row in enumerate(codes):
                groups.setdefault((used, first + i), []).append(row)
        total = np.zeros(self.dimension)
        for (used, first), rows in groups.items():
            total += self._total(np.array(rows), used, first)
        count = sum(map(len, groups.values()))
        return (total, count, skipped) if skip_damaged else (total, count)


class SubsetSelection(CodedMechanism):
    """Base of subset selection: each of k codes near the input is drawn with E times the probability of any other.

    The private draw is of a place in an order of all codes in which the near ones come first."""

    @property
    @abstractmethod
    def power(self) -> Fraction:
        """E, the rational lower bound of e^ε from which every probability is made."""

    bits: int
    """b, the bits of a code."""

    @property
    def outputs(self) -> int:
        """M = 2^b, the number of codes."""
        return 1 << self.bits

    @property
    def levels(self) -> int:
        return self.outputs

    @property
    def slots(self) -> int:
        return 1

    @property
    @abstractmethod
    def near(self) -> int:
        """k, the number of near codes."""

    @cached_property
    def probabilities(self) -> tuple[Fraction, Fraction]:
        """The probability of each near code and of each other one."""
        total = self.near * self.power + self.outputs - self.near
        return self.power / total, 1 / total

    @cached_property
    def _choice(self) -> IntegerWeights:
        """Law of near or not: integer weights in the ratio kE to M − k."""
        above, below = self.power.numerator, self.power.denominator
        return IntegerWeights([self.near * above, (self.outputs - self.near) * below])

    def _ranks(self, size: int, rng: Source) -> Indices:
        """Draw places in the order, shape (size,)."""
        if rng is None:
            near, other = uniform_integers(self.near, size), uniform_integers(self.outputs - self.near, size)
            return np.where(self._choice.draw(size).astype(bool), self.near + other, near)
        first, other = rng.integers(0, self.near, size), rng.integers(self.near, self.outputs, size)
        return np.where(rng.random(size) < self.near * float(self.probabilities[0]), first, other)


def best_near(codes: int, power: Fraction, sums: Callable[[int], float]) -> int:
    """Return k, the number of near codes that maximises their mean sum of inner products over kE + M − k, which has one peak."""
    gain = min(float(power) - 1, 1e200) if power > 2 else float(power - 1)

    def worth(k: int) -> float:
        return sums(k) / (k * gain + codes)

    return 1 + bisect_left(range(1, codes - 1), True, key=lambda k: worth(k) >= worth(k + 1))


@dataclass(frozen=True)
class ModularSum(Checked):
    """Integer vectors modulo a power of two.

    Parameters
    ----------
    dimension : int
    bits : int
        Bits of the modulus 2^bits, 1 to 32.

    Examples
    --------
    >>> sums = ModularSum(dimension=3, bits=8)
    >>> masks = sums.masks(2)
    >>> one, two = sums.masked([100, -7, 0], masks[0]), sums.masked([20, 9, -3], masks[1])
    >>> sums.centred(sums.total([one, two])).tolist()
    [120, 2, -3]
    """

    dimension: int = field(check=integer, least=1, most=1 << 24)
    bits: int = field(check=integer, least=1, most=32)

    @property
    def modulus(self) -> int:
        """2^bits."""
        return 1 << self.bits

    def _residues(self, name: str, x: Numbers) -> Indices:
        given = read(name, x)
        whole = given.dtype.kind in "iu" or all(isinstance(v, (int, np.integer)) for v in given.flat)
        if given.shape != (self.dimension,) or not whole:
            raise DataError(f"{name}: must be {self.dimension} integers")
        wide = given if given.dtype.itemsize == 8 else given.astype(np.int64)
        return np.asarray(np.mod(wide, self.modulus), dtype=np.int64)

    def masks(self, clients: int) -> Indices:
        """Draw masks, shape (n, d), each uniform, that sum to 0, as a protocol derives them from pairwise agreed seeds."""
        count = integer("clients", clients, 1, 1 << 24)
        made = uniform_integers(self.modulus, count * self.dimension).reshape(count, self.dimension)
        made[-1] = np.mod(-made[:-1].sum(axis=0), self.modulus)
        return made

    def masked(self, x: Numbers, mask: Numbers) -> bytes:
        """Return an integer vector plus a mask as bytes, `bits` per number."""
        total = self._residues("x", x) + self._residues("mask", mask)
        return packed(np.mod(total, self.modulus), self.bits)

    def total(self, messages: Iterable[bytes]) -> Indices:
        """Return the sum of all messages modulo m.

        Raises
        ------
        DataError
            A message of another length.
        """
        size, out = -(-self.dimension * self.bits // 8), np.zeros(self.dimension, dtype=np.int64)
        for message in listed_messages(messages):
            if not isinstance(message, bytes) or len(message) != size:
                raise DataError(f"messages: must be {size} bytes each")
            out = np.mod(out + unpacked(message, self.dimension, self.bits), self.modulus)
        return out

    def centred(self, total: Numbers) -> Indices:
        """Return the integers in [−m/2, m/2) with these residues."""
        found = indices("total", total, self.modulus)
        return np.where(found >= self.modulus // 2, found - self.modulus, found)


def checked_seed(seed: object) -> int:
    """Return an agreed seed as an integer of 0 to 2^128 − 1, one from the operating system's randomness for None, or raise DesignError."""
    return secrets.randbits(SEED_BITS) if seed is None else integer("seed", seed, 0, (1 << SEED_BITS) - 1)


def checked_key(seed: object, number: object) -> tuple[int, int]:
    """Return a given seed and the number of a vector, or raise DesignError."""
    return integer("seed", seed, 0, (1 << SEED_BITS) - 1), integer("first", number, 0, (1 << 63) - 1)


def shared_words(seed: int, number: int, count: int, block: int = 0) -> npt.NDArray[np.uint64]:
    """Return `count` 64-bit words from a block of four on, the same on every machine and in every language.

    Examples
    --------
    >>> [hex(word) for word in shared_words(1, 2, 2)]
    ['0x451d0dd40544b02e', '0xcfe1c8d758c1a838']
    """
    bits = np.random.Philox(key=seed, counter=(number << 128) + block)
    return np.asarray(bits.random_raw(count), dtype=np.uint64)


def _words(seed: int, number: int) -> Iterator[int]:
    """Yield shared words without end."""
    for block in naturals(step=4):
        yield from shared_words(seed, number, 16, block).tolist()


def shared_subsets(seed: int, first: int, count: int, size: int, few: int) -> Indices:
    """Return the sorted coordinates that vectors first, first + 1, … send, shape (count, few); all subsets are equally likely.

    (Floyd's algorithm uses one uniform integer per coordinate, the lowest bits of the next word in which they are small enough.)

    Examples
    --------
    >>> shared_subsets(1, 0, 2, 3, 3).tolist()
    [[0, 1, 2], [0, 1, 2]]
    """
    if few == size:
        return np.tile(np.arange(size), (count, 1))
    out = np.empty((count, few), dtype=np.int64)
    for i in range(count):
        words, chosen = _words(seed, first + i), set[int]()
        for last in range(size - few, size):
            mask = (1 << last.bit_length()) - 1
            place = next(low for word in words if (low := word & mask) <= last)
            chosen.add(last if place in chosen else place)
        out[i] = sorted(chosen)
    return out


def shared_normals(seed: int, number: int, count: int) -> Array:
    """Return `count` standard normals, by the inverse of the normal law at the middles of 2⁵² cells."""
    words = shared_words(seed, number, count)
    return np.asarray(special.ndtri(((words >> np.uint64(12)).astype(float) + 0.5) * 2.0**-52))


def rounded_signs(y: Array) -> npt.NDArray[np.bool_]:
    """Draw true with probability exactly (1 + y)/2 for every y in [−1, 1], with the operating system's randomness.

    The result is the sign of y with probability |y|, else a fair coin: the last bit of a word whose other bits decide between the two.

    Examples
    --------
    >>> rounded_signs(np.array([1.0, -1.0])).tolist()
    [True, False]
    """
    words, scaled = random_words(y.size).reshape(y.shape), np.abs(y) * 2.0**63
    whole = scaled.astype(np.uint64)
    kept = (words >> np.uint64(1)) < whole
    for i in zip(*np.nonzero(((words >> np.uint64(1)) == whole) & (scaled > whole))):
        kept[i] = below(int(random_words(1)[0]), Fraction(float(scaled[i])) - int(whole[i]))
    return np.where(kept, y > 0, (words & np.uint64(1)).astype(bool))


# -- federated learning with Flower ------------------------------------------------------------------------


def flower_update(mechanism: CodedMechanism, update: Sequence[Numbers]) -> list[Array]:
    """Return a client's update, all arrays as one vector, as a private message, which Flower's ``fit`` returns instead of parameters.

    Vectors that are too long are shortened.

    Parameters
    ----------
    mechanism : SphereQuantizer, RandomDirections, SampledSigns or SampledCoordinates
    update : list of arrays
        As many numbers together as the mechanism's dimension.

    Examples
    --------
    >>> import mechdesign as md
    >>> mechanism = md.SphereQuantizer(6, 2, md.PureDP(4.0))
    >>> [part.shape for part in flower_update(mechanism, [np.ones((2, 2)), np.ones(2)])]
    [(33,)]
    """
    instance("mechanism", mechanism, CodedMechanism)
    DataError.when(not isinstance(update, list | tuple) or not update, "update: must be a list of arrays")
    vector = np.concatenate([answers("update", part).ravel() for part in update])
    return [np.frombuffer(mechanism.encode(vector, clip=True), dtype=np.uint8)]


def flower_strategy(
    mechanism: CodedMechanism,
    clients: int,
    *,
    rate: float = 1.0,
    times: int = 1,
    rng: Randomness = None,
    **options: object,
) -> Any:
    """Return a Flower strategy that adds the mean of private updates to the parameters.

    In every round it asks `clients` clients, at random among those asked fewer than `times` times: a client consumes
    at most `times` times the mechanism's ε. A message that is damaged, or does not hold one vector, is left out and counted.

    Parameters
    ----------
    mechanism : SphereQuantizer, RandomDirections, SampledSigns or SampledCoordinates
        Mechanism whose dimension is the number of parameters.
    clients : int
        Clients per round.
    rate : float
        Factor of the mean; negative for gradients.
    times : int
    rng : seed or numpy Generator, optional
        Randomness of the choice of clients.
    **options
        Options of Flower's ``FedAvg``: ``initial_parameters``, ``min_available_clients``, ``evaluate_fn``, …

    Raises
    ------
    MissingExtra
        Flower is not installed.
    """
    instance("mechanism", mechanism, CodedMechanism)
    count, most, step = integer("clients", clients, 1), integer("times", times, 1), number("rate", rate)
    source = generator(rng)
    with MissingExtra.needed("flower", "a strategy for Flower", "flwr"):
        common, strategies = import_module("flwr.common"), import_module("flwr.server.strategy")

    def message(result: Any) -> bytes:
        try:
            (part,) = common.parameters_to_ndarrays(result.parameters)
            return np.asarray(part, dtype=np.uint8).tobytes()
        except Exception:  # anything else that a client sends counts as a damaged message
            return b""

    class PrivateMean(strategies.FedAvg):  # type: ignore[misc,name-defined]
        """Strategy that decodes the sum of all messages of a round."""

        def __init__(self) -> None:
            super().__init__(**options)
            self.asked, self.seen, self.damaged = Counter[Any](), 0, 0
            self.shapes: list[Array] = []

        def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> list[Any]:
            self.shapes = common.parameters_to_ndarrays(parameters)
            size = sum(part.size for part in self.shapes)
            said = f"parameters of {size} numbers: the mechanism's dimension is {mechanism.dimension}"
            DesignError.when(size != mechanism.dimension, said)
            client_manager.wait_for(self.min_available_clients)
            held = client_manager.all()
            free = [key for key in sorted(held) if self.asked[key] < most]
            chosen = [free[i] for i in source.permutation(len(free))[:count]]
            self.asked.update(chosen)
            return [(held[key], common.FitIns(parameters, {})) for key in chosen]

        def aggregate_fit(
            self, server_round: int, results: list[Any], failures: list[Any]
        ) -> tuple[Any, dict[str, Any]]:
            total, seen, skipped = mechanism.aggregate(
                [message(result) for _, result in results], vectors=1, skip_damaged=True
            )
            self.seen, self.damaged = self.seen + seen, self.damaged + len(skipped)
            said = {"messages": seen, "damaged": len(skipped), "failures": len(failures)}
            if not seen:
                return None, said
            ends = np.cumsum([part.size for part in self.shapes])[:-1]
            steps = np.split(step * total / seen, ends)
            new = [(old + part.reshape(old.shape)).astype(old.dtype) for old, part in zip(self.shapes, steps)]
            return common.ndarrays_to_parameters(new), said

    return PrivateMean()

r"""Export to other programs: a scalar quantizer as a C header of integers, every mechanism as flat JSON or as a PyTorch module.

In PyTorch a vector mechanism is a module, a hook on a tensor's gradient, or applied to all gradients of a model at once. Codes are drawn
exactly, with the operating system's randomness, on the processor; the answer is on the tensor's device, in its type. A step whose
whole gradient passes through one mechanism once consumes its ε once.

**The integer table**, from which Python and C draw the same outputs: one 64-bit random word decides the output for one number x. Its lower half decides the end of the segment of x,
:math:`u < 2^{32} (x - x_k)/(x_{k+1} - x_k)`; the leading b bits of its upper half are a column of that end's row, and the rest is compared with a threshold: Walker's
alias method on 2^b columns, so that every row is a law of integer counts out of 2³². However the end is chosen,
an output's probability lies between its smallest and its largest count: the ratio of these integers *is* the privacy loss.

A certified law need not consist of such counts. It is mixed with a small share of the uniform law until its rounded counts meet the
budget in exact integers, and the outputs are moved so that the means at both ends of the range are the law's; the bias is stated.

**Clients in C** use doubles with + − × ÷ √ in the order stated there, integers for all private draws, and random words from the caller's source: C and
Python make the same message from the same words. Privacy does not depend on the doubles. One probability is not the exact fraction: that of
all near codes is truncated to 256 binary digits, which lowers E by less than 2⁻²⁴⁰ of itself, and preserves the budget.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cached_property, partial
from importlib import import_module, resources
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import numpy.typing as npt

from mechdesign.checks import Checked, field, generator, instance, one_of, positive, read, refuse
from mechdesign.errors import DataError, DesignError, MissingExtra
from mechdesign.evidence.exact import exp_lower, log_upper
from mechdesign.evidence.sampling import random_words
from mechdesign.evidence.serialize import serializable
from mechdesign.quantizers.mechanism import Quantizer
from mechdesign.quantizers.sampling import segment_finder
from mechdesign.quantizers.table import doubles, inside
from mechdesign.typing import Array, Indices, Numbers, Randomness
from mechdesign.vectors.coded import CodedMechanism, Source, SubsetSelection
from mechdesign.vectors.design import VectorLaw
from mechdesign.vectors.sampled import CoordinateQuantizer, SampledCoordinates, SampledSigns, SampledSubset
from mechdesign.vectors.sphere import RandomDirections, SphereQuantizer

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


_LIMBS = 4

_CLIENT = """/* {name}: one vector of {dimension} numbers a message, written by mechdesign.
 * Local differential privacy of the whole vector: epsilon = {epsilon!r}, whatever the doubles do.
 * C99 with IEEE doubles, -ffp-contract=off, and the C library's sqrt (-lm). */
#ifndef MECHDESIGN_NAME_H
#define MECHDESIGN_NAME_H
#include <math.h>
#include <stdint.h>
"""


def template(*names: str) -> str:
    """Return the C templates of these names in ``clients/c``, concatenated, with placeholders for names."""
    folder = resources.files("mechdesign.vectors") / "clients" / "c"
    return "".join("\n" + (folder / f"{name}.h").read_text(encoding="utf-8") for name in names)


def prefixed(code: str, name: str) -> str:
    """Return C with every name_ and NAME_ replaced."""
    return code.replace("NAME_", f"{name.upper()}_").replace("name_", f"{name}_")


def message_constants(mechanism: CodedMechanism) -> dict[str, object]:
    """Return the constants of the template ``message``."""
    size = f"(32 + ((size_t)(vectors) * {mechanism.vector_bits} + 7) / 8)"
    return {
        "FINGERPRINT": "{" + ", ".join(map(str, mechanism.fingerprint)) + "}",
        "CODES": mechanism.slots,
        "CODE_BITS": mechanism.code_bits,
        "BYTES(vectors)": size,
    }


def defined(constants: dict[str, object]) -> str:
    """Return the constants as C definitions."""
    return "".join(f"#define NAME_{key} {value}\n" for key, value in constants.items())


def _digits(p: Fraction) -> str:
    found: list[str] = []
    while p and len(found) < _LIMBS:
        whole, p = divmod(p * (1 << 64), 1)
        found.append(f"UINT64_C({whole})")
    return "{" + ", ".join(found) + "}"


def encoder(mechanism: Any, name: str) -> str:
    """Return the C header of a mechanism for whole vectors that `c_header` takes."""
    constants = {
        "DIMENSION": mechanism.dimension,
        "RADIUS": mechanism.radius.hex(),
        "BOX": int(mechanism.inputs == "box"),
        "SPHERE": int(mechanism.inputs == "sphere"),
        "CUT": int(isinstance(mechanism, SampledSubset)),
        **message_constants(mechanism),
    }
    own = ["places"]
    if isinstance(mechanism, SubsetSelection):
        near = _digits(mechanism.near * mechanism.probabilities[0])
        constants |= {"OUTPUTS": mechanism.outputs, "NEAR": mechanism.near, "NEAR_DIGITS": near}
    if isinstance(mechanism, SampledSigns):
        constants |= {"SENT": mechanism.sent}
        own += ["sampled", "signs"]
    elif isinstance(mechanism, SampledCoordinates):
        law = mechanism.one.law
        if not mechanism.one_segment or mechanism.levels != 2 or law is None:
            wanted = "must be of two outputs for a client in C: export its IntegerTable"
            raise DesignError.of("coordinate", mechanism.coordinate, wanted)
        constants |= {"SENT": mechanism.sent}
        constants |= {f"{key}_DIGITS": _digits(law.row(0, end)[0]) for end, key in enumerate(("DOWN", "UP"))}
        own = ["sampled", "coordinates"]
    else:
        working, fast = mechanism.working, getattr(mechanism, "rotation", None)
        wanted = "must be 'fast' for a client in C: an exact rotation takes a QR decomposition"
        refuse(fast == "exact", "rotation", fast, wanted)
        constants |= {"WORKING": working, "POWER": 1 << (working.bit_length() - 1)}
        own += ["nearest", "sphere" if fast else "directions"]
    head = _CLIENT.format(name=name, dimension=mechanism.dimension, epsilon=mechanism.privacy_loss())
    return prefixed(head + defined(constants) + template("words", "message", "draws", *own, "encode"), name)


_WORD = 1 << 32
_PART = 1 << 15
Half = npt.NDArray[np.uint32]


def alias_columns(counts: list[int], columns: int) -> tuple[list[int], list[int]]:
    """Return Walker's thresholds and aliases for counts that sum to 2³², on a power of two of columns, in integers."""
    each = _WORD // columns
    rest = [*counts, *([0] * (columns - len(counts)))]
    threshold, alias = [each] * columns, list(range(columns))
    small = [j for j in range(columns) if rest[j] < each]
    large = [j for j in range(columns) if rest[j] > each]
    while small and large:
        j, donor = small.pop(), large[-1]
        threshold[j], alias[j] = rest[j], donor
        rest[donor] -= each - rest[j]
        if rest[donor] <= each:
            large.pop()
            if rest[donor] < each:
                small.append(donor)
    return threshold, alias


def rounded_counts(row: list[Fraction]) -> list[int]:
    """Return integers near 2³² p that sum to 2³²: the largest remainders are rounded up."""
    scaled = [p * _WORD for p in row]
    counts = [math.floor(v) for v in scaled]
    order = sorted(range(len(row)), key=lambda j: scaled[j] - counts[j], reverse=True)
    for j in order[: _WORD - sum(counts)]:
        counts[j] += 1
    return counts


def worst_ratio(rows: list[list[int]]) -> Fraction | None:
    """Return the largest ratio of two counts of one output; None if an output is impossible in some rows only."""
    worst = Fraction(1)
    for column in zip(*rows):
        if max(column) and not min(column):
            return None
        if min(column):
            worst = max(worst, Fraction(max(column), min(column)))
    return worst


def counts_within(rows: list[list[Fraction]], budget: Fraction) -> list[list[int]]:
    """Return counts out of 2³² near rows of probabilities, mixed with a share of the uniform law small enough, but such that ratios are within a budget."""
    size, mixed, counts = len(rows[0]), Fraction(0), [rounded_counts(row) for row in rows]
    while (worst := worst_ratio(counts)) is None or worst > budget:
        mixed = mixed * 2 if mixed else Fraction(1, 1 << 31)
        if mixed > Fraction(1, 1 << 16):
            raise DesignError.of("epsilon", math.log(budget), "must be at least the law's own privacy loss")
        counts = [rounded_counts([(1 - mixed) * p + mixed / size for p in row]) for row in rows]
    return counts


def _budget(epsilon: float | None, ratio: Fraction | None) -> Fraction:
    """Return e^ε, rounded down, or the law's own ratio."""
    budget = ratio if epsilon is None else exp_lower(positive("epsilon", epsilon))
    if budget is None:
        raise DesignError("the law has infinite privacy loss: there is no budget to keep")
    return budget


def _copied(name: str, value: object, kinds: str) -> npt.NDArray[np.generic]:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds or not min(value.shape, default=0):
        raise DesignError.of(name, value, "must be an array of the kind that IntegerTable.of makes")
    kept = value.copy()  # the caller may change the array that was passed
    kept.setflags(write=False)
    return kept


@serializable("integer-table", eq=False)
class IntegerTable(Checked, CodedMechanism):
    """A quantizer of one number whose law is a table of integers, for Python and C alike.

    Parameters
    ----------
    knots : ndarray, shape (K + 1,)
        Ends of the segments; the first and last are the input range.
    counts : ndarray of int, shape (2 K, m)
        Count of each output out of 2³², at the start and the end of every segment.
    bins : ndarray, shape (m,)
        Outputs.

    Examples
    --------
    >>> import mechdesign as md
    >>> table = IntegerTable.of(md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1)), epsilon=1.0)
    >>> table.privacy_loss() <= 1.0, table.bias() < 1e-8
    (True, True)
    >>> message = table.encode([0.25, -0.5, 1.0])
    >>> table.decode(message).shape
    (3,)
    """

    knots: Array = field(check=_copied, kinds="f")
    counts: Indices = field(check=_copied, kinds="iu")
    bins: Array = field(check=_copied, kinds="f")
    dimension = 1  # a message holds single numbers
    slots = 1

    def _post_check(self) -> None:
        rows, columns = 2 * (len(self.knots) - 1), len(self.bins)
        with np.errstate(over="ignore"):
            steps = np.diff(self.knots)
        if self.knots.ndim != 1 or rows < 2 or not ((steps > 1e-290) & (steps < 1e300)).all():
            raise DesignError.of("knots", self.knots, "must increase, in steps between 1e-290 and 1e300")
        if self.bins.ndim != 1 or not 2 <= columns <= 1 << 16 or not (np.diff(self.bins) > 0).all():
            raise DesignError.of("bins", self.bins, "must be 2 to 65536 numbers that increase")
        good = self.counts.shape == (rows, columns) and ((self.counts >= 0) & (self.counts <= _WORD)).all()
        if not good or not (self.counts.sum(axis=1) == _WORD).all() or not np.isfinite(self.bins).all():
            allowed = "counts must be rows of non-negative integers that sum to 2^32, two for a segment"
            raise DesignError(allowed)

    @classmethod
    def of(cls, quantizer: Quantizer | CoordinateQuantizer, *, epsilon: float | None = None) -> IntegerTable:
        """Return the table of a quantizer, within its own privacy loss or within `epsilon`.

        For a `CoordinateQuantizer` it is the table of one coordinate, with its scale: every coordinate takes a word of its own, and
        consumes its ε.

        Raises
        ------
        DesignError
            The budget is too small or infinite for integers; or the mechanism is no quantizer of numbers.
        """
        if not isinstance(quantizer, Quantizer | CoordinateQuantizer):
            wanted = "must be a Quantizer or a CoordinateQuantizer; md.vectors.flat_json exports mechanisms of whole vectors"
            raise DesignError.of("quantizer", quantizer, wanted)
        scale = Fraction(1)
        if isinstance(quantizer, CoordinateQuantizer):
            scale, quantizer = Fraction(quantizer.scale), quantizer.coordinate
        law = quantizer.certified().law
        assert law is not None
        rows = [law.row(k, end) for k in range(len(law.knots) - 1) for end in (0, 1)]
        counts = counts_within(rows, _budget(epsilon, law.ratio()))
        knots = np.array([float(scale * x) for x in law.knots])
        outputs = [scale * b for b in law.bins]
        return cls(knots, np.array(counts, dtype=np.int64), _moved(outputs, counts, rows))

    @classmethod
    def of_weights(cls, weights: Sequence[Sequence[int]], *, epsilon: float | None = None) -> IntegerTable:
        """Return the table of a local report of a category: the input 0, …, k − 1 selects a row of weights, the output is the index of a column.

        Decode with the rounded law: ``LinearReport(workload, table.counts[::2].tolist())``, whose decoder is unbiased for it.

        Parameters
        ----------
        weights : sequence of sequences of int
            As `LinearReport.weights` and `Channel.weights`.
        epsilon : float, optional
            The budget; the weights' own privacy loss by default.

        Examples
        --------
        >>> table = IntegerTable.of_weights(((3, 1), (1, 3)))
        >>> table.categories, table.counts[::2].tolist(), table.privacy_loss() <= math.log(3) + 1e-15
        (2, [[3221225472, 1073741824], [1073741824, 3221225472]], True)
        """
        try:
            good = {len(row) for row in weights} == {len(weights[0])} and len(weights[0]) > 1
            good = good and all(sum(row) > 0 and min(row) >= 0 and type(sum(row)) is int for row in weights)
        except (TypeError, ValueError, LookupError):
            good = False
        wanted = "must be rows of one length, two or more, of integers that are not all 0"
        refuse(not good, "weights", weights, wanted)
        rows = [[Fraction(w, sum(row)) for w in row] for row in weights]
        budget = _budget(epsilon, worst_ratio([list(row) for row in weights]))
        counts = np.repeat(np.array(counts_within(rows, budget), dtype=np.int64), 2, axis=0)
        return cls(np.arange(len(rows) + 1.0), counts, np.arange(counts.shape[1], dtype=float))

    @property
    def categories(self) -> int | None:
        """k if inputs are categories, with one law from every whole number to the next; None for a quantizer."""
        k = len(self.knots) - 1
        alike = np.array_equal(self.counts[::2], self.counts[1::2])
        return k if alike and np.array_equal(self.knots, np.arange(k + 1)) else None

    # -- what is exact --------------------------------------------------------------------------------

    def privacy_loss(self) -> float:
        """Exact ε of local differential privacy, rounded up, from the integers."""
        worst = worst_ratio(self.counts.tolist())
        return math.inf if worst is None else log_upper(worst)

    def bias(self) -> float:
        """Largest |E M(x) − x| at the knots, from the integers; between them it is larger by at most 2⁻³² of a segment's width."""
        bins, ends = [Fraction(b) for b in self.bins.tolist()], np.repeat(self.knots, 2)[1:-1].tolist()
        return float(max(abs(_mean(bins, row) - Fraction(x)) for x, row in zip(ends, self.counts.tolist())))

    # -- drawing --------------------------------------------------------------------------------------

    @property
    def levels(self) -> int:
        return len(self.bins)

    @cached_property
    def column_bits(self) -> int:
        """b, the leading bits of a word's upper half that select a column."""
        return max((len(self.bins) - 1).bit_length(), 1)

    @cached_property
    def alias(self) -> tuple[Half, Half]:
        """Thresholds and aliases, shape (2 K, 2^b)."""
        made = [alias_columns(row, 1 << self.column_bits) for row in self.counts.tolist()]
        thresholds, aliases = (np.array(part, dtype=np.int64) for part in zip(*made))
        # A column that is its own alias needs no threshold, so that an overflow of 2^32 / 2^b does no harm.
        return thresholds.astype(np.uint32), aliases.astype(np.uint32)

    @cached_property
    def slopes(self) -> Array:
        """2³² over the width of every segment."""
        return 2.0**32 / np.diff(self.knots)

    def draw(self, x: Numbers, words: npt.NDArray[np.uint64], *, clip: bool = False) -> Indices:
        """Return the indices of the outputs for these random words, as the C function does.

        Parameters
        ----------
        x : array_like
        words : ndarray of uint64, one for each number
        clip : bool
        """
        values = inside(x, self.knots_range, clip=clip).ravel()
        given = read("words", words)
        if given.dtype != np.uint64 or given.size != values.size:
            raise DataError("words: must be unsigned 64-bit integers, one for each number")
        out = np.empty(values.size, dtype=np.int64)
        half = given.ravel().astype("<u8", copy=False).view("<u4").reshape(-1, 2)
        segment, last = segment_finder(self.knots), len(self.slopes) - 1
        outcome, keep = self._flat
        shift, mask = np.uint32(32 - self.column_bits), np.uint32((1 << (32 - self.column_bits)) - 1)
        for a in range(0, values.size, _PART):
            part, word = values[a : a + _PART], half[a : a + _PART]
            k = np.minimum(segment(part), last)
            t = (part - self.knots.take(k)) * self.slopes.take(k)
            row = 2 * k + (word[:, 0] < t)
            upper = np.ascontiguousarray(word[:, 1])
            place = (row << self.column_bits) + (upper >> shift)
            passed = (upper & mask) >= keep.take(place)
            outcome.take(2 * place + passed, out=out[a : a + part.size])
        return out

    @cached_property
    def _flat(self) -> tuple[Indices, Half]:
        thresholds, aliases = self.alias
        own = np.broadcast_to(np.arange(aliases.shape[1]), aliases.shape)
        return np.stack([own, aliases], axis=-1).ravel().astype(np.int64), thresholds.ravel()

    @property
    def knots_range(self) -> tuple[float, float]:
        """Range of the inputs."""
        return float(self.knots[0]), float(self.knots[-1])

    def codes(self, x: Numbers, seed: int = 0, *, first: int = 0, clip: bool = False) -> Indices:
        """Draw the index of an output for every number, with the operating system's randomness; the seed is not used."""
        return super().codes(x, seed, first=first, clip=clip)

    def _drawn(self, x: Numbers, seed: int, first: int, clip: bool, rng: Source) -> Indices:
        size = doubles(x).size
        words = random_words(size) if rng is None else rng.integers(0, 1 << 64, size, dtype=np.uint64)
        return self.draw(x, words, clip=clip)[:, None]

    def decoded(self, codes: Numbers, seed: int = 0, *, first: int = 0) -> Array:
        """Return the outputs with these indices."""
        return self.bins[self._checked(codes).ravel()]

    def _total(self, codes: Indices, seed: int, number: int) -> Array:
        return np.array([self.bins[codes.ravel()].sum()])


def _mean(bins: Iterable[Fraction], counts: list[int]) -> Fraction:
    return sum((b * n for b, n in zip(bins, counts)), start=Fraction(0)) / _WORD


def _moved(bins: list[Fraction], counts: list[list[int]], rows: list[list[Fraction]]) -> Array:
    """Map outputs affinely so that the means at both ends of the range are those of these rows; only shift them if these means hardly differ."""
    first, last = (sum((b * p for b, p in zip(bins, rows[end])), start=Fraction(0)) for end in (0, -1))
    low, high = (_mean(bins, counts[end]) for end in (0, -1))
    scale = (last - first) / (high - low) if high != low else Fraction(1)
    if not Fraction(1, 2) < scale < 2:
        scale = Fraction(1)
    return np.array([float(first + scale * (b - low)) for b in bins])


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,40}", re.ASCII)
_HEAD = """/* {name}: {m} outputs on [{low!r}, {high!r}], written by mechdesign.
 * Local differential privacy: epsilon = {epsilon!r}, exact for these integers. {bias}
 * One word of a cryptographic generator (getrandom, /dev/urandom) for every number, never used twice.
 * C99, IEEE doubles; no other library. */
#ifndef MECHDESIGN_NAME_H
#define MECHDESIGN_NAME_H
#include <stdint.h>

"""


def c_header(table: IntegerTable | VectorLaw, *, name: str = "quantizer") -> str:
    """Return a C header with the functions that encode numbers or whole vectors.

    For a table ``NAME_encode(x, word)`` returns the same as ``table.draw(x, word)``, bit for bit: a ``NAME_word`` is eight random bytes, the
    least significant of the 64-bit word first. For a mechanism of whole vectors ``NAME_encode`` writes a message of one vector, with words
    from a function of the caller. ``NAME_message`` writes codes as a message that ``decode`` reads.

    Parameters
    ----------
    table : IntegerTable, RandomDirections, SampledSigns, SampledCoordinates (of two outputs) or SphereQuantizer (with the fast rotation)
        For a quantizer ``IntegerTable.of(quantizer, epsilon=…)``, for a report of a category ``IntegerTable.of_weights(law.weights, epsilon=…)``.
    name : str
        Prefix of functions and tables.

    Examples
    --------
    >>> import mechdesign as md
    >>> table = IntegerTable.of(md.Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1)))
    >>> print(c_header(table, name="gradient").splitlines()[5])
    #define MECHDESIGN_GRADIENT_H
    """
    if not isinstance(table, IntegerTable | VectorLaw):
        wanted = "must be a mechanism of vectors, or an IntegerTable: IntegerTable.of(quantizer) of a quantizer of numbers"
        raise DesignError.of("table", table, wanted)
    allowed = "must be a C identifier of at most 41 letters, digits and underscores"
    refuse(not isinstance(name, str) or not _NAME.fullmatch(name), "name", name, allowed)
    if not isinstance(table, IntegerTable):
        return encoder(table, name)
    bits, categories = table.column_bits, table.categories
    head = _HEAD.format(
        name=name,
        m=len(table.bins),
        low=table.knots_range[0],
        high=table.knots_range[1],
        epsilon=table.privacy_loss(),
        bias=f"Bias at most {table.bias() * 1.01:.3g}."
        if categories is None
        else f"x is a category, 0 to {categories - 1}; what is sent is the number of an output.",
    )
    keep, alias = table.alias
    constants = {
        "SEGMENTS": len(table.slopes),
        "OUTPUTS": len(table.bins),
        "COLUMN_BITS": bits,
        "SHIFT": 32 - bits,
        "MASK": f"{(1 << (32 - bits)) - 1}u",
        "KNOTS": _listed([float(v).hex() for v in table.knots]),
        "SLOPES": _listed([float(v).hex() for v in table.slopes]),
        "BINS": _listed([float(v).hex() for v in table.bins]),
        "KEEP": _listed([f"{v}u" for v in keep.ravel().tolist()]),
        "ALIAS": _listed([str(v) for v in alias.ravel().tolist()]),
        **message_constants(table),
    }
    return prefixed(head + defined(constants) + template("table", "message") + "#endif\n", name)


def _listed(values: Sequence[str]) -> str:
    lines = [", ".join(values[a : a + 8]) for a in range(0, len(values), 8)]
    return "{" + ", \\\n    ".join(lines) + "}"


def flat_json(mechanism: object) -> str:
    """Return the data of a mechanism that a device needs as one flat JSON object of numbers, strings and lists of them.

    Integers beyond 2⁵³ are strings of digits; docs/wire.md describes the members. ``result.save`` stores a certified result with its proof; this is for programs that
    draw and decode.

    Parameters
    ----------
    mechanism : SphereQuantizer, RandomDirections, SampledSigns, SampledCoordinates, IntegerTable, Quantizer or CoordinateQuantizer

    Examples
    --------
    >>> import mechdesign as md
    >>> sorted(json.loads(flat_json(md.SphereQuantizer(10, 3, md.PureDP(1.0)))))[:4]
    ['bits', 'code_bits', 'dimension', 'epsilon']
    """
    if isinstance(mechanism, SphereQuantizer | RandomDirections):
        last = "rotation" if isinstance(mechanism, SphereQuantizer) else "messages"
        body = {
            **_fields(mechanism, "dimension", "bits", "radius", "inputs", last),
            "working_dimension": mechanism.working,
            "vertices": mechanism.outputs,
            "stretch": mechanism.factor * mechanism.radius,
            **_near(mechanism),
        }
    elif isinstance(mechanism, SampledSigns):
        own = _fields(mechanism, "dimension", "bits", "flips", "stretch", "radius", "inputs")
        body = {**own, **_near(mechanism)}
    elif isinstance(mechanism, SampledCoordinates):
        stretch = mechanism.radius * mechanism.dimension / mechanism.slots
        own = _fields(mechanism, "dimension", "count", "radius", "inputs")
        body = {**own, "stretch": stretch, **_rows(mechanism.one)}
    elif isinstance(mechanism, IntegerTable):
        keep, alias = mechanism.alias
        lists = {"knots": mechanism.knots.tolist(), "bins": mechanism.bins.tolist()}
        cells = {"keep": keep.ravel().tolist(), "alias": alias.ravel().tolist()}
        body = {**_fields(mechanism, "column_bits"), **lists, **cells}
    elif isinstance(mechanism, CoordinateQuantizer):
        body = {**_fields(mechanism, "dimension", "scale"), **_rows(mechanism.coordinate)}
    elif isinstance(mechanism, Quantizer):
        body = {**_fields(mechanism), **_rows(mechanism)}
    else:
        wanted = "must be a SphereQuantizer, RandomDirections, SampledSigns, SampledCoordinates, IntegerTable, Quantizer or CoordinateQuantizer"
        raise DesignError.of("mechanism", mechanism, wanted)
    return json.dumps({"format": "mechdesign-flat", "version": 1, **body}, indent=1, allow_nan=False) + "\n"


def _fields(mechanism: Deployed, *names: str) -> Flat:
    """Return kind, budget and these attributes of a mechanism."""
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(mechanism).__name__).lower()
    budget = mechanism.privacy.epsilon if hasattr(mechanism, "privacy") else mechanism.privacy_loss()
    coded = (
        {"fingerprint": mechanism.fingerprint.hex(), "code_bits": mechanism.code_bits}
        if isinstance(mechanism, CodedMechanism)
        else {}
    )
    return {"kind": kind, "epsilon": budget, **coded, **{name: getattr(mechanism, name) for name in names}}


def _near(mechanism: SubsetSelection) -> Flat:
    """Return the number of near codes, and the exact weights of all near ones and of all others together."""
    above, below = mechanism.power.numerator, mechanism.power.denominator
    return {
        "near": mechanism.near,
        "weight_of_all_near": str(mechanism.near * above),
        "weight_of_all_others": str((mechanism.outputs - mechanism.near) * below),
    }


def _rows(quantizer: Quantizer) -> Flat:
    """Return the exact weights of all rows, concatenated, with each row's sum."""
    law = quantizer.certified().law
    assert law is not None
    rows = [law.weights(k, end)[0] for k in range(len(law.knots) - 1) for end in (0, 1)]
    return {
        "knots": [float(x) for x in law.knots],
        "bins": [float(b) for b in law.bins],
        "weights": [str(w) for row in rows for w in row],
    }


Deployed = VectorLaw | IntegerTable | Quantizer | CoordinateQuantizer
Flat = dict[str, object]


def _torch() -> ModuleType:
    with MissingExtra.needed("torch", "a vector mechanism on tensors", "PyTorch"):
        return import_module("torch")


def _answering(mechanism: VectorLaw, clip: bool, rng: Randomness) -> Callable[[Tensor], Tensor]:
    """Return a function that answers a tensor (..., d) privately, on its device and in its type."""
    instance("mechanism", mechanism, *get_args(VectorLaw))
    one_of("clip", clip, (True, False))
    torch = _torch()
    draw = mechanism.release if rng is None else partial(mechanism.sample, rng=generator(rng))

    def answer(x: Tensor) -> Tensor:
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            raise DesignError.of("x", type(x).__name__, "must be a tensor of floating-point numbers")
        if x.device.type == "meta" or x.layout is not torch.strided:
            raise DesignError.of("x", f"{x.layout} tensor on {x.device}", "must be a dense tensor with data")
        plain = x.detach().to("cpu", torch.float64).numpy()
        return torch.from_numpy(draw(plain, clip=clip)).to(x.device, x.dtype)

    return answer


def torch_module(mechanism: VectorLaw, *, clip: bool = True, rng: Randomness = None) -> Module:
    """Return a `torch.nn.Module` whose forward pass is the mechanism, on the last axis.

    Parameters
    ----------
    mechanism : SphereQuantizer, RandomDirections, SampledSigns or SampledCoordinates
    clip : bool
        Shorten vectors that are too long.
    rng : seed or numpy Generator, optional
        Source for simulation; by default draws are exact, for deployment.

    Raises
    ------
    MissingExtra
        PyTorch is not installed.
    """
    answer = _answering(mechanism, clip, rng)

    class VectorModule(_torch().nn.Module):  # type: ignore[misc]
        """Answer vectors privately; gradients pass through unchanged."""

        def forward(self, x: Tensor) -> Tensor:
            return x + (answer(x) - x).detach()

        def extra_repr(self) -> str:
            return repr(mechanism)

    made: Module = VectorModule()
    return made


def gradient_hook(
    mechanism: VectorLaw, *, clip: bool = True, rng: Randomness = None
) -> Callable[[Tensor], Tensor]:
    """Return a hook for ``tensor.register_hook`` that replaces the gradient, as one vector of d numbers, by its private answer."""
    answer = _answering(mechanism, clip, rng)

    def hook(gradient: Tensor) -> Tensor:
        if gradient.numel() != mechanism.dimension:
            wanted = f"the mechanism's dimension is {mechanism.dimension}"
            raise DataError(f"gradient: has another number of entries, {wanted}")
        return answer(gradient.reshape(-1)).reshape(gradient.shape)

    return hook


def privatize_gradients(
    model: object, mechanism: VectorLaw, *, clip: bool = True, rng: Randomness = None
) -> None:
    """Replace all gradients of a model, taken together as one vector of d numbers, by their private answer, in place.

    Call it between ``loss.backward()`` and ``optimizer.step()``. The step consumes the mechanism's ε once, for all records in the loss
    together.

    Raises
    ------
    DesignError
        A parameter without a gradient, or another number of them than the mechanism's dimension; nothing is changed then.
    """
    torch, hook = _torch(), gradient_hook(mechanism, clip=clip, rng=rng)
    if not isinstance(model, torch.nn.Module):
        raise DesignError.of("model", model, "must be a torch.nn.Module")
    kept = [p for p in model.parameters() if p.requires_grad]
    if not kept or any(p.grad is None for p in kept):
        raise DesignError("the model has a parameter without a gradient: call it after loss.backward()")
    whole = torch.cat([p.grad.detach().reshape(-1).to("cpu", torch.float64) for p in kept])
    for p, part in zip(kept, hook(whole).split([p.numel() for p in kept])):
        p.grad = part.reshape(p.shape).to(p.device, p.dtype)

"""Check arguments: each function returns the value, or what it consists of, in its proper type or raises an error; `field` declares a check."""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mechdesign.errors import DataError, DesignError
from mechdesign.errors import refuse as refuse
from mechdesign.typing import Array, FrozenLaw, Indices, Numbers, Randomness, Weights

T = TypeVar("T")


DOWN, UP = -1, 1
"""Safe rounding directions: privacy budgets are rounded down, sensitivities up."""

NARROWEST = 1e-140
"""The least width and sensitivity accepted: squares of smaller numbers are subnormal."""


FINITE = "must be finite numbers of at most 1.8e308; true and false are none, nor are texts, dates and what is missing"
"""Message about data that doubles do not hold; it never depends on the data."""


_OTHER = (
    bool,
    str,
    bytes,
    complex,
    type(None),
    np.bool_,
    np.complexfloating,
    np.datetime64,
    np.timedelta64,
    np.ma.MaskedArray,
)
"""What NumPy reads as numbers, and is none: true as 1, the digits of a text, dates as they are counted, the real part alone, None and what is masked as NaN."""


def as_given(value: object, *, truth: bool = False, deep: int = 64) -> npt.NDArray[Any]:
    """Return what NumPy reads, once and in the types that are given, or raise TypeError where that is no array of real numbers.

    Parameters
    ----------
    value : array_like
        An array, a frame, a series, or a nest of lists as deep as NumPy's arrays may be.
    truth : bool
        Whether true and false are taken, as 1 and 0.

    Examples
    --------
    >>> as_given([1, 2.5]).tolist(), as_given(True, truth=True).tolist()
    ([1, 2.5], True)
    """
    if np.ma.is_masked(value):
        raise TypeError("masked")
    if isinstance(value, (list, tuple)):
        kinds = set(map(type, value))
        if not all(issubclass(kind, (int, float)) and kind is not bool for kind in kinds):
            if not deep:
                raise TypeError("too deep")
            value = [as_given(part, truth=truth, deep=deep - 1)[()] for part in value]
        found = np.asarray(value, dtype=object)
    else:
        found = np.asarray(value)
    kinds = set(map(type, found.flat)) if found.dtype.kind == "O" else {found.dtype.type}
    for kind in kinds:
        if issubclass(kind, _OTHER) and not (truth and issubclass(kind, (bool, np.bool_))):
            raise TypeError(kind.__name__)
    return found


def no_numbers(value: object) -> bool:
    """Whether a value is anything but real numbers: it holds true, false, a text, a date, a complex number, None or what is masked.

    Examples
    --------
    >>> no_numbers([[1, 2.5], [3, True]]), no_numbers(np.array([True])), no_numbers([1, 0])
    (True, True, False)
    """
    if type(value) in (int, float):
        return False
    try:
        as_given(value)
    except Exception:  # whatever an object raises when it is read
        return True
    return False


def instance(name: str, value: object, *kinds: type[T]) -> T:
    """Return `value`, or raise DesignError unless it is an instance of one of these classes.

    Examples
    --------
    >>> instance("epsilon", 1.0, float)
    1.0
    """
    if not isinstance(value, kinds):
        wanted = [f"{'an' if kind.__name__[0] in 'AEIO' else 'a'} {kind.__name__}" for kind in kinds]
        raise DesignError.of(name, value, f"must be {' or '.join(wanted)}")
    return value


def listed(name: str, value: Any, allowed: str) -> tuple[Any, ...]:
    """Return what an iterable that is no text holds, or raise DesignError saying what is `allowed`.

    Examples
    --------
    >>> listed("at", range(2), "must be shares")
    (0, 1)
    """
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return tuple(value)
    except Exception:  # whatever an object raises when it is read
        raise DesignError.of(name, value, allowed) from None


@contextmanager
def refusing(name: str, value: object, allowed: str, *failures: type[Exception]) -> Iterator[None]:
    """Raise DesignError "name = value: allowed" where the block fails, with one of the `failures` if any are named.

    None are named where an object of the caller's is read, which may raise whatever it likes.
    """
    caught = failures or (Exception,)
    try:
        yield
    except caught:
        raise DesignError.of(name, value, allowed) from None


def number(name: str, value: object, allowed: str = "must be a finite number", *, side: int = 0) -> float:
    """Return `value` as a finite float, or raise DesignError saying what is `allowed`; no bools, no strings.

    With a `side`, `DOWN` or `UP`, the double is the nearest on that side of a fraction or decimal number.

    Examples
    --------
    >>> number("loc", 2)
    2.0
    """
    refuse(no_numbers(value), name, value, allowed)
    try:
        found = _sided(float(value), value, side)  # type: ignore[arg-type]
    except Exception:  # whatever an object raises when it is read
        raise DesignError.of(name, value, allowed) from None
    refuse(not math.isfinite(found), name, value, allowed)
    return found


def _sided(found: float, value: object, side: int) -> float:
    """Return `found`, or the next double on the safe `side` of `value` if rounding went to the other."""
    was: Any = value.item() if isinstance(value, np.generic) else value  # an int64 compares as a double
    known = isinstance(was, numbers.Number)
    if side and known and not math.isnan(found) and (found > was if side == DOWN else found < was):
        return math.nextafter(found, side * math.inf)
    return found


def rounded_up(found: Array, value: object) -> Array:
    """Move each double of `found` up where it was rounded below its number in `value`."""
    given = as_given(value)
    if given.dtype.kind == "f" and given.dtype.itemsize <= 8:
        return found
    moved = [_sided(now, was, UP) for now, was in zip(found.ravel().tolist(), given.ravel().tolist())]
    return np.array(moved).reshape(found.shape)


def _number_if(name: str, value: object, good: Callable[[float], bool], allowed: str, side: int = 0) -> float:
    found = number(name, value, allowed, side=side)
    refuse(not good(found), name, value, allowed)
    return found


def positive(name: str, value: object, *, side: int = 0) -> float:
    """Return `value` as a float, or raise DesignError unless it is a positive, finite number.

    Examples
    --------
    >>> positive("epsilon", 1)
    1.0
    """
    return _number_if(name, value, lambda x: x > 0, "must be a positive, finite number", side)


def magnitude(name: str, value: object, *, side: int = 0) -> float:
    """Return `value` as a float, or raise DesignError unless it lies in [1e-100, 1e100]."""
    allowed = "must be between 1e-100 and 1e100: choose another unit"
    return _number_if(name, value, lambda x: 1e-100 <= x <= 1e100, allowed, side)


def non_negative(name: str, value: object, *, side: int = 0) -> float:
    """Return `value` as a float, or raise DesignError unless it is finite and at least 0."""
    return _number_if(name, value, lambda x: x >= 0, "must be a finite number of at least 0", side)


def probability(name: str, value: object, *, below_one: bool = False, side: int = 0) -> float:
    """Return `value` as a float, or raise DesignError unless it lies in [0, 1] (or in [0, 1))."""
    if below_one:
        return _number_if(name, value, lambda x: 0 <= x < 1, "must be in [0, 1)", side)
    return _number_if(name, value, lambda x: 0 <= x <= 1, "must be in [0, 1]", side)


def share(name: str, value: object, *, side: int = 0) -> float:
    """Return `value` as a float, or raise DesignError unless it lies in (0, 1]."""
    return _number_if(name, value, lambda x: 0 < x <= 1, "must be in (0, 1]; 1 is everybody", side)


def interval(name: str, value: Any) -> tuple[float, float]:
    """Return `value` as a pair (lower, upper) of finite floats, lower < upper, or raise DesignError.

    Examples
    --------
    >>> interval("input_range", [-1, 1])
    (-1.0, 1.0)
    """
    allowed = "must be a pair (lower, upper) of finite numbers, lower < upper"
    with refusing(name, value, allowed):
        low, high = value
    low, high = number(name, low, allowed), number(name, high, allowed)
    refuse(not low < high, name, value, allowed)
    wide = f"must be at least {NARROWEST:g} wide, so that doubles hold its square"
    refuse(high - low < NARROWEST, name, value, wide)
    return low, high


def one_of(name: str, value: object, allowed: Collection[T]) -> T:
    """Return `value`, or raise DesignError unless it is one of `allowed`."""
    try:
        for known in allowed:
            alike = type(value) is type(known) or (isinstance(known, str) and isinstance(value, str))
            if alike and value == known:
                return known
    except Exception:  # whatever an object raises when it is compared
        pass
    words = ", ".join(repr(a) for a in allowed)
    raise DesignError.of(name, value, f"must be one of {words}")


def integer(name: str, value: object, least: int, most: int | None = None) -> int:
    """Return `value` as an int, or raise DesignError unless it is an integer (no bool) from `least` to `most`.

    Examples
    --------
    >>> integer("m", 4, 2)
    4
    """
    no_integer = isinstance(value, (bool, np.timedelta64))  # which are integers to Python and NumPy
    found = int(value) if isinstance(value, (int, np.integer)) and not no_integer else None
    if found is not None and found >= least and (most is None or found <= most):
        return found
    wanted = "a positive integer" if least == 1 else f"an integer of at least {least}"
    allowed = f"must be {wanted if most is None else f'an integer from {least} to {most}'}"
    raise DesignError.of(name, value, allowed)


def array(name: str, value: Numbers | None, *, ndim: int | None = 1, empty: bool = False) -> Array:
    """Return `value` as an array of finite floats with `ndim` axes (None: any), or raise DesignError.

    Examples
    --------
    >>> array("samples", [1, 2])
    array([1., 2.])
    """
    shape = "" if ndim is None else f" with {ndim} {'axis' if ndim == 1 else 'axes'}"
    allowed = f"must be {'an' if empty else 'a non-empty'} array of finite numbers{shape}"
    found = np.array(doubles(name, value, allowed))
    good = ndim in (None, found.ndim) and (empty or found.size)
    refuse(not good or not np.isfinite(found).all(), name, value, allowed)
    return found


def each(name: str, value: Numbers, function: Callable[[float], float]) -> Any:
    """Apply a function to each number of an array and return its shape; a single number gives a float.

    Examples
    --------
    >>> each("x", [[1, 2]], lambda x: x / 2)
    array([[0.5, 1. ]])
    """
    given = array(name, value, ndim=None)
    found = np.reshape([function(x) for x in given.ravel().tolist()], given.shape)
    return found if given.ndim else float(found)


def by_label(name: str, value: Any, labels: Sequence[Any], columns: Sequence[Any] | None = None) -> Any:
    """Return the numbers of a dictionary, a labelled pandas Series or DataFrame in the order of `labels`; anything else as it is.

    Columns of a DataFrame are put in the order of `columns`, and stay as they are without them.

    Examples
    --------
    >>> by_label("prior", {"b": 0.75, "a": 0.25}, ["a", "b"])
    [0.25, 0.75]
    """
    if isinstance(value, Mapping):
        return [list(value.values())[k] for k in _order(name, list(value), labels)]
    if not (framed := hasattr(value, "index") and hasattr(value, "iloc")):
        return value
    if columns is not None and hasattr(value, "columns"):
        value = value.iloc[:, _order(name, list(value.columns), columns, framed)]
    return value.iloc[_order(name, list(value.index), labels, framed)]


def _order(name: str, given: list[Any], labels: Sequence[Any], framed: bool = False) -> list[int]:
    place = {label: k for k, label in enumerate(given)}
    if len(place) == len(given) and set(place) == set(labels):
        return [place[label] for label in labels]
    if framed and given == (plain := list(range(len(given)))):
        return plain  # pandas' own numbers, where none are given
    raise DesignError.of(name, given, f"must have a number for each of {list(labels)}, by that name")


def doubles(
    name: str, value: Numbers | None, allowed: str = "must be numbers", *, truth: bool = False
) -> Array:
    """Return `value` as an array of doubles of any shape, infinities and NaN included, or raise DesignError; `truth` as of `as_given`.

    Examples
    --------
    >>> doubles("x", [[1, 2.5]])
    array([[1. , 2.5]])
    """
    try:
        with np.errstate(over="ignore"):  # numbers beyond the doubles become infinite
            return as_given(value, truth=truth).astype(float, copy=False)
    except Exception:  # whatever an object raises when it is read
        raise DesignError.of(name, value, allowed) from None


def answers(name: str, value: Numbers, coordinates: int | None = None) -> Array:
    """Return answers to be released as an array of finite floats, or raise `DataError`, which never quotes them.

    If `coordinates` is given, the last axis must have that length.

    Beyond 2⁵³ doubles are more than 1 apart: rounded to them, whole numbers 1 apart may come to lie 2 apart.

    Examples
    --------
    >>> answers("x", [1, 2**53])
    array([1.00000000e+00, 9.00719925e+15])
    """
    given = read(name, value)
    found = finite(name, given)
    if coordinates is not None and found.shape[-1:] != (coordinates,):
        raise DataError(f"{name}: must have {coordinates} coordinates")
    check_preserved(name, given, found)
    return found


def read(name: str, value: object) -> npt.NDArray[Any]:
    """Return data as they are given, read once (`as_given`), or raise `DataError`."""
    with DataError.where(f"{name}: {FINITE}"):
        return as_given(value)


def finite(name: str, value: Numbers) -> Array:
    """Return data as an array of finite floats of any shape, or raise `DataError`."""
    with DataError.where(f"{name}: {FINITE}", DesignError):
        return array(name, value, ndim=None, empty=True)


def check_preserved(name: str, given: npt.NDArray[Any], found: Array) -> None:
    """Raise DataError if beyond 2⁵³ one of the doubles `found` is not exactly the number that was `given`."""
    if given.dtype.kind == "f" and given.dtype.itemsize <= 8:  # they were doubles, whatever their size
        return
    far = np.abs(found) >= 2.0**53
    for was, now in zip(given[far].tolist(), found[far].tolist()):
        was = was.item() if isinstance(was, np.generic) else was  # an int64 compares as a double
        if isinstance(was, numbers.Number) and was != now:
            remedy = "release it less a public number near it"
            raise DataError(
                f"{name}: a number is beyond 2^53 and would be rounded, which changes the sensitivity: {remedy}"
            )


def increasing(name: str, value: Numbers) -> Array:
    """Return `value` as a read-only array of at least two strictly increasing numbers, or raise DesignError.

    Examples
    --------
    >>> increasing("knots", [-1, 0, 2])
    array([-1.,  0.,  2.])
    """
    found = array(name, value)
    steps = np.diff(found)
    refuse(len(found) < 2, name, value, "needs at least 2 values")
    if np.any(steps <= 0):
        k = int(np.flatnonzero(steps <= 0)[0])
        what = "repeated" if steps[k] == 0 else "out of order"
        wanted = f"must increase strictly; {found[k + 1]:g} at position {k + 1} is {what}"
        raise DesignError.of(name, value, wanted)
    found.setflags(write=False)
    return found


def indices(name: str, value: Numbers, size: int) -> Indices:
    """Return `value` as integers in 0, …, size − 1, of any shape but empty, or raise `DataError`.

    Examples
    --------
    >>> indices("items", [2.0, 0], 3)
    array([2, 0])
    """
    found = read(name, value)
    if found.dtype.kind not in "iu":
        found = finite(name, found)
    if not found.size or ((found < 0) | (found >= size) | (found != np.floor(found))).any():
        raise DataError(f"{name}: must be integers in 0..{size - 1}, one at least")
    return found.astype(np.int64)


def generator(rng: Randomness) -> np.random.Generator:
    """Return the NumPy generator that `rng` is or seeds, or raise DesignError.

    Examples
    --------
    >>> int(generator(0).integers(10)) == int(generator(np.random.default_rng(0)).integers(10))
    True
    """
    with refusing("rng", rng, "must be a seed or a numpy.random.Generator", TypeError, ValueError):
        if rng is not None and no_numbers(rng):
            raise TypeError
        # default_rng reads an np.matrix row by row for ever; as an array it does not
        return np.random.default_rng(np.asarray(rng) if isinstance(rng, np.ndarray) else rng)


def settle(self: object, **values: object) -> None:
    """Set parsed values as fields of a frozen dataclass, in ``__post_init__``."""
    for name, value in values.items():
        object.__setattr__(self, name, value)


def levels(name: str, value: Numbers, *, above_zero: bool = False) -> Array:
    """Return `value` as an array of any shape of numbers of at least 0, infinity allowed, or raise DesignError."""
    allowed = f"must be {'positive' if above_zero else 'non-negative'} numbers"
    found = doubles(name, value, allowed)
    refuse(not np.all(found > 0 if above_zero else found >= 0), name, value, allowed)
    return found


def inside(name: str, value: object, low: float, high: float, remedy: str = "") -> float:
    """Return `value` as a float strictly between two numbers, or raise DesignError."""
    return _number_if(name, value, lambda x: low < x < high, f"must be in ({low:g}, {high:g}){remedy}")


def field(
    *kinds: type,
    check: Callable[..., object] | None = None,
    many: bool = False,
    default: object = dataclasses.MISSING,
    **options: Any,
) -> Any:
    """Declare a dataclass field with the check that its value passes.

    Parameters
    ----------
    *kinds : type
        Classes of which the value must be an instance; an alternative to `check`.
    check : callable
        ``check(name, value, **options)`` returns the value in its proper type, or raises DesignError, as the functions of
        `mechdesign.checks` do. Without kinds and check the class's constructor checks the field.
    many : bool
        Whether the value is a list of such values, which becomes a tuple.
    default : optional
        Default, checked like other values unless it is None.
    **options
        Passed to `check`; of a function of the object, ``lambda self: ...``, the value, which may use the fields before this one.

    Examples
    --------
    >>> @dataclasses.dataclass(frozen=True)
    ... class Budget(Checked):
    ...     epsilon: float = field(check=positive, side=DOWN)
    >>> Budget(1)
    Budget(epsilon=1.0)
    >>> Budget(-1)
    Traceback (most recent call last):
    mechdesign.errors.DesignError: epsilon = -1: must be a positive, finite number
    """

    read: Callable[..., object] = check or (lambda name, value: instance(name, value, *kinds))
    late = [key for key, given in options.items() if isinstance(given, FunctionType)]

    def passed(held: object, name: str, value: object) -> object:
        asked = {**options, **{key: options[key](held) for key in late}} if late else options
        if many:
            return tuple([read(name, one, **asked) for one in listed(name, value, "must be a list")])
        return read(name, value, **asked)

    declared = {"check": passed, "stated": (check, kinds, many, options)} if kinds or check else {}
    return dataclasses.field(default=default, metadata=declared)


class Checked:
    """Base of dataclasses whose fields declare their checks; those between fields stand in `_post_check`."""

    def __post_init__(self) -> None:
        for name, check, may_be_absent in _declared(type(self)):  # type: ignore[arg-type]
            value = getattr(self, name)
            if value is not None or not may_be_absent:
                object.__setattr__(self, name, check(self, name, value))
        self._post_check()

    def _post_check(self) -> None:
        """Check what must hold between fields; each has passed its own check."""


@functools.cache
def _declared(kind: type) -> list[tuple[str, Callable[[object, str, object], object], bool]]:
    """List every field that declares a check: name, check, and whether None passes."""
    return [
        (f.name, f.metadata["check"], f.default is None)
        for f in dataclasses.fields(kind)
        if "check" in f.metadata
    ]


# -- rows of integer weights ----------------------------------------------------------------------------------


def integer_weights(name: str, given: Iterable[Iterable[int]]) -> Weights:
    """Return `given` as integer rows of one length, none of them all zero, or raise a `DesignError`."""
    with refusing(name, given, "must be rows of integers"):
        rows = tuple(tuple(map(operator.index, row)) for row in given)
    if (
        len({len(row) for row in rows}) != 1
        or not rows[0]
        or min(map(min, rows)) < 0
        or not all(map(sum, rows))
    ):
        raise DesignError(f"{name}: must be rows of non-negative integers, none of them all zero")
    return rows


def rounded_weights(weights: Weights) -> Array:
    """Return the rows of probabilities, each rounded once."""
    rows = zip(weights, map(sum, weights))
    return np.array([[w / total for w in row] for row, total in rows])  # int / int rounds correctly


# -- laws ----------------------------------------------------------------------------------------------------


def frozen_parts(law: FrozenLaw) -> tuple[Any, tuple[float, ...], float, float]:
    """Return generator, shapes, loc and scale of a frozen `scipy.stats` law.

    Raises
    ------
    DesignError
        Something else, or a law with arrays for parameters.
    """
    wanted = "must be a frozen scipy.stats distribution"
    with refusing("law", law, wanted):
        shapes, loc, scale = law.dist._parse_args(*law.args, **law.kwds)
        return law.dist, tuple(map(float, shapes)), float(loc), float(scale)


cached_parts = functools.lru_cache(maxsize=256)(frozen_parts)


@functools.lru_cache(maxsize=256)
def support_of(law: FrozenLaw) -> tuple[float, float]:
    """Return the ends of a law's support."""
    start, stop = law.support()
    return float(start), float(stop)

"""Types that every room shares: arrays, how a solve ended, and checks that a value is of a type."""

from __future__ import annotations

import enum
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from mechdesign.errors import DesignError

T = TypeVar("T")

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.ArrayLike
"""What a caller gives where numbers are wanted: a number, nested lists, an array, a series; checked where it enters."""
Values: TypeAlias = Any
"""What SciPy hands a law: a number or an array of any shape, and the same comes back."""
Weights: TypeAlias = tuple[tuple[int, ...], ...]
"""Integer weights of the outputs (columns) of every input (row)."""
FrozenLaw: TypeAlias = Any
"""A frozen law of `scipy.stats`, or of a generator that a user registered."""
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""What a JSON document holds."""
Randomness: TypeAlias = np.random.Generator | int | None
"""What a caller gives as `rng`: a generator, a seed, or None for the system's randomness."""


class Status(enum.StrEnum):
    """How a solve ended, in this package's own words.

    ``OPTIMAL``: value and lower bound are as close as asked, and the bound is one for every mechanism that answers the
    question. ``BEST``: as close as asked, in a smaller class: independent noise of one law, one family, one menu; others may
    do better. ``GAP``: a bound for the design's class is known, farther from the value than asked. ``FEASIBLE``: a mechanism
    that keeps its requirement, from a search that bounds no more than a larger class, or nothing. ``LIMIT``: a limit was reached, or Ctrl-C was pressed; the best so far, with the gap proved by then.
    ``UNCERTIFIED``: computed, but no exact law was asked for or found. ``INACCURATE``: a backend's answer within a looser tolerance than its own. The
    others come from backends and never from a result: there is no mechanism.
    """

    OPTIMAL = "optimal"
    BEST = "best of its class"
    FEASIBLE = "feasible"
    GAP = "gap not reached"
    LIMIT = "limit"
    UNCERTIFIED = "not certified"
    INACCURATE = "inaccurate"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    FAILED = "failed"


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

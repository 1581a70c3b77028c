"""Whether the members of an object that a file describes are of the types that its class declares."""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from fractions import Fraction
from functools import cache
from inspect import get_annotations
from types import NoneType, UnionType
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError
from mechdesign.evidence.certificate import OldCertificate

__all__ = ["check_members"]

_DECLARED: dict[str, tuple[tuple[type, ...], str]] = {
    "float": ((int, float), "a number"),
    "int": ((int,), "an integer"),
    "str": ((str,), "a text"),
    "bool": ((bool,), "true or false"),
    "None": ((NoneType,), "nothing"),
    "Fraction": ((int, Fraction), "a fraction"),
    "pd.DataFrame": ((pd.DataFrame,), "a table"),
    "Array": ((np.ndarray,), "an array of numbers"),
    "Indices": ((np.ndarray,), "an array of integers"),
}
_TUPLE = re.compile(r"tuple\[(\w+|tuple\[\w+, \.\.\.\]), \.\.\.\]")


def check_members(made: Any) -> None:
    """Refuse members of other types than declared, and in a certificate numbers that are not finite.

    Compared are declarations of plain types, of classes and of tuples of these, and their unions; classes check the others
    themselves.

    Raises
    ------
    DesignError
        A member that its class does not declare so.

    Examples
    --------
    >>> from mechdesign.evidence.results import SolveReport
    >>> check_members(SolveReport("highs", seconds=2))
    """
    cls: Any = type(made)
    for field in dataclasses.fields(made):
        value, declared = getattr(made, field.name), str(field.type)
        found = _allowed(cls, field.name, declared)
        if found is None:
            continue
        kinds, wanted = found
        good = isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds)
        if good and isinstance(value, (int, float, np.ndarray)) and not isinstance(value, bool):
            good = _numeric(value, "iu" if "Indices" in declared else "iuf", isinstance(made, OldCertificate))
        if good and isinstance(value, tuple):
            good = _held(value, declared)
        if not good:
            raise DesignError.of(field.name, value, f"must be {wanted}")


@cache
def _allowed(cls: type, name: str, declared: str) -> tuple[tuple[type, ...], str] | None:
    """The types of a declaration, and their words; None where it says more than types, or types that are not at hand."""
    owner = next(c for c in cls.__mro__ if name in get_annotations(c))
    space = vars(sys.modules[owner.__module__])
    kinds: list[type] = []
    words: list[str] = []
    for part in declared.split(" | "):
        own = space.get(part)
        if _TUPLE.fullmatch(part):
            kinds.append(tuple)
            words.append(f"a {part}")
        elif part in _DECLARED:
            kinds += _DECLARED[part][0]
            words.append(_DECLARED[part][1])
        elif isinstance(own, UnionType):
            kinds += own.__args__
            words.append(f"a {part}")
        elif isinstance(own, type) and own is not Any and not getattr(own, "_is_protocol", False):
            kinds.append(own)
            words.append(f"a {part}")
        else:
            return None
    return tuple(kinds), " or ".join(word for word in words if word != "nothing")


def _held(values: tuple[Any, ...], declared: str) -> bool:
    """Whether what stands in a tuple is of the type declared, exactly: true is no number."""
    found = _TUPLE.search(declared)
    if found is None:
        return True
    if found[1].startswith("tuple["):
        return all(type(v) is tuple and _held(v, found[1]) for v in values)
    return found[1] not in _DECLARED or {*map(type, values)} <= {*_DECLARED[found[1]][0]}


def _numeric(value: Any, kinds: str, finite: bool) -> bool:
    """Whether a number, or an array, fits doubles."""
    if isinstance(value, int):
        return value.bit_length() < 1024
    if isinstance(value, float):
        return math.isfinite(value) or not finite
    return value.dtype.kind in kinds and bool(not finite or np.isfinite(value).all())

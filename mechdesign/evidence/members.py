"""Whether the members of an object that a file describes are of the types that its class declares."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.certificate import Certificate

__all__ = ["check_members"]

_DECLARED: dict[str, tuple[tuple[type, ...], str]] = {
    "float": ((int, float), "a number"),
    "int": ((int,), "an integer"),
    "str": ((str,), "a text"),
    "bool": ((bool,), "true or false"),
    "Fraction": ((int, Fraction), "a fraction"),
    "Array": ((np.ndarray,), "an array of numbers"),
    "Indices": ((np.ndarray,), "an array of integers"),
}


def check_members(made: Any) -> None:
    """Refuse members of other types than declared, and in a certificate numbers that are not finite.

    Only declarations of one plain type, or of one and None, are compared: classes check the others themselves.

    Raises
    ------
    DesignError
        A member that its class does not declare so.

    Examples
    --------
    >>> from mechdesign.evidence.results import SolveReport
    >>> check_members(SolveReport("highs", seconds=2))
    """
    for field in dataclasses.fields(made):
        value, declared = getattr(made, field.name), str(field.type)
        plain = declared.removesuffix(" | None")
        if plain not in _DECLARED or (value is None and plain != declared):
            continue
        kinds, wanted = _DECLARED[plain]
        good = isinstance(value, kinds) and (not isinstance(value, bool) or plain == "bool")
        if good and plain in ("float", "int", "Array", "Indices"):
            good = _numeric(value, "iu" if plain == "Indices" else "iuf", isinstance(made, Certificate))
        if not good:
            raise DesignError.of(field.name, value, f"must be {wanted}")


def _numeric(value: Any, kinds: str, finite: bool) -> bool:
    """Whether a number, or an array, fits doubles."""
    if isinstance(value, int):
        return value.bit_length() < 1024
    if isinstance(value, float):
        return math.isfinite(value) or not finite
    return value.dtype.kind in kinds and bool(not finite or np.isfinite(value).all())

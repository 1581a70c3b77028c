"""Fields that declare their check, so that a constructor writes only what relates two of them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from mechdesign.problem.checks import instance


def field(
    *kinds: type,
    check: Callable[..., object] | None = None,
    default: object = dataclasses.MISSING,
    **options: object,
) -> Any:
    """Declare a dataclass field with the check that its value passes.

    Parameters
    ----------
    *kinds : type
        The value is an instance of one of these classes; instead of `check`.
    check : callable
        ``check(name, value, **options)`` returns the value in its proper type, or raises DesignError; the functions of
        `mechdesign.problem.checks` are such checks. With neither kinds nor check the constructor checks the field.
    default : optional
        Checked as well, unless it is None: a field whose default is None may be left out.
    **options
        For the check.

    Examples
    --------
    >>> from mechdesign.problem.checks import DOWN, positive
    >>> @dataclasses.dataclass(frozen=True)
    ... class Budget(Checked):
    ...     epsilon: float = field(check=positive, side=DOWN)
    >>> Budget(1)
    Budget(epsilon=1.0)
    >>> Budget(-1)
    Traceback (most recent call last):
    mechdesign.errors.DesignError: epsilon = -1: must be a positive, finite number
    """

    def passed(name: str, value: object) -> object:
        return instance(name, value, *kinds) if check is None else check(name, value, **options)

    declared = {"check": passed} if kinds or check is not None else {}
    return dataclasses.field(default=default, metadata=declared)


class Checked:
    """Base of dataclasses whose fields declare their checks."""

    def __post_init__(self) -> None:
        for name, check, may_be_absent in _declared(type(self)):  # type: ignore[arg-type]
            value = getattr(self, name)
            if value is not None or not may_be_absent:
                object.__setattr__(self, name, check(name, value))


@functools.cache
def _declared(kind: type) -> list[tuple[str, Callable[[str, object], object], bool]]:
    """Return name, check and whether None passes, of every field that declares a check."""
    return [
        (f.name, f.metadata["check"], f.default is None)
        for f in dataclasses.fields(kind)
        if "check" in f.metadata
    ]

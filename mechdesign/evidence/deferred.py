"""Fields of a frozen dataclass that are computed when they are first asked for.

A field declared with `deferred` takes its value, as any field does, or a `Later`: what it holds is called once, by whoever
reads the field first, and its answer takes its place. Saving, printing, replacing and pickling read the fields, so that
they never see the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Later", "deferred", "known"]


@dataclass(frozen=True)
class Later:
    """A value that `compute` returns."""

    compute: Callable[[], Any]


class _Deferred:
    """A data descriptor, so that the generated ``__init__`` hands it what it was given."""

    def __init__(self, default: Any) -> None:
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self.default  # what dataclasses take for the field's default
        held = instance.__dict__[self.name]
        if isinstance(held, Later):
            held = instance.__dict__[self.name] = held.compute()
        return held

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.name] = value


def deferred(default: Any = None) -> Any:
    """Declare a field that takes a value or a `Later`.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Answer:
    ...     value: float
    ...     bound: float | None = deferred()
    >>> answer = Answer(2.0, Later(lambda: print("computed") or 1.0))
    >>> answer.bound, answer.bound
    computed
    (1.0, 1.0)
    >>> Answer(2.0)
    Answer(value=2.0, bound=None)
    """
    return _Deferred(default)


def known(instance: Any, name: str) -> bool:
    """Whether a field holds its value already."""
    return not isinstance(vars(instance).get(name), Later)

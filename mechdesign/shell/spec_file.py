"""Designs from TOML files: the name of any design of the package, its arguments as keys, options of ``solve``.

.. code-block:: toml

    design = "OPTM"            # any design of the package
    bins = [-3.0, -0.5, 0.5, 3.0]
    loss = "absolute"

    [privacy]
    kind = "PureDP"            # ApproximateDP, ZeroConcentratedDP, MetricDP
    epsilon = 1.0

    [prior]
    law = "uniform"            # a scipy.stats law
    loc = -1
    scale = 2
    # clip = [-1, 1]           # or: truncate = [-1, 1]; or: samples = [...]

    [solve]                    # options of design.solve
    solver = "highs"

Outputs to search are tables too (``bins = {kind = "BinSearch", m = 4, max_abs = 3.0}``, or ``"Alphabet"``), so are grids
(``levels = {level = [0.6, 0.7], width = [0.01]}``), metric spaces (``space = {kind = "grid", rows = 4, columns = 4}``; also
matrix, line, euclidean, geodesic, clustered, tree) and sensitivities (``sensitivity = {linf = 1, changed = 3}``).
"""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mechdesign
from mechdesign import choose
from mechdesign.errors import DesignError
from mechdesign.problem.checks import one_of
from mechdesign.problem.spine import Design
from mechdesign.shell.spec_values import PARSERS, bound, table

__all__ = ["design_from_toml", "designs", "located", "question_from_toml"]

_HEADER, _KEY = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]"), re.compile(r"\s*([\w.\"'-]+)\s*=")


def design_from_toml(path: str | os.PathLike[str]) -> tuple[Any, dict[str, Any]]:
    """Read a design and the options for its ``solve`` from a TOML file.

    Raises
    ------
    DesignError
        Not TOML, an unknown design, law or argument; the message names file, line and key, and says what is allowed.
    """
    with _opened(path) as given:
        options = table("solve", given.pop("solve", {}), 'solver = "highs"')
        made = _made("design", _design(given.pop("design", None)), given)
        bound("solve", type(made).solve, options, made)
    return made, options


def question_from_toml(path: str | os.PathLike[str]) -> tuple[Any, dict[str, Any]]:
    """Read what `compare` answers from a TOML file: ``question = "MetricReport"``, its arguments, privacy or alpha.

    Raises
    ------
    DesignError
        As `design_from_toml`.
    """
    with _opened(path) as given:
        name = one_of(
            "question", given.pop("question", None), ("NumericQuery", "LocalReport", "MetricReport")
        )
        asked: dict[str, Any] = {
            key: PARSERS.get(key, lambda v: v)(given.pop(key)) for key in ("privacy", "alpha") if key in given
        }
        return _made("question", getattr(choose, name), given), asked


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """What a file holds; errors that name a key of it get file and line."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        given = tomllib.loads(text)
    except FileNotFoundError:
        raise DesignError(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DesignError(f"{path}: not a readable TOML file ({error})") from None
    with located(path, text):
        yield given


def _made(word: str, kind: Any, given: dict[str, Any]) -> Any:
    """The design or question with these arguments."""
    name, fields = kind.__name__, {f.name: f for f in dataclasses.fields(kind) if f.init}
    for key in given:
        if key not in fields:
            raise DesignError(f"{key}: {name} has no such argument; it takes {', '.join(fields)}")
    needed = {k for k, f in fields.items() if f.default is f.default_factory is dataclasses.MISSING}
    if missing := sorted(needed - set(given)):
        raise DesignError(f"{word}: {name} needs {', '.join(missing)}")
    return kind(**{key: PARSERS.get(key, lambda v: v)(value) for key, value in given.items()})


def designs() -> dict[str, Any]:
    """Every design by its name: those at the top of the package, and those that its wing of noise alone names.

    Examples
    --------
    >>> designs()["KNorm"] is mechdesign.noise.KNorm
    True
    """
    homes = mechdesign.noise, mechdesign
    named = {word: getattr(home, word) for home in homes for word in dir(home)}
    return {
        word: value
        for word, value in sorted(named.items())
        if isinstance(value, type) and issubclass(value, Design) and dataclasses.is_dataclass(value)
    }


def _design(name: Any) -> Any:
    """The public design of this name; the others are looked at only to say which there are."""
    for home in (mechdesign, mechdesign.noise):
        if isinstance(name, str) and name in dir(home):
            value = getattr(home, name)
            if isinstance(value, type) and issubclass(value, Design) and dataclasses.is_dataclass(value):
                return value
    raise DesignError.of("design", name, f"must be one of {list(designs())}")


@contextmanager
def located(path: str | os.PathLike[str], text: str | None = None) -> Iterator[None]:
    """Put file and line before the message of an error that names a key of the file."""
    text = Path(path).read_text(encoding="utf-8") if text is None else text
    try:
        yield
    except DesignError as error:
        lines, message = _lines(text), str(error)
        key = re.match(r"[\w.]+", message)
        named = [k for k in lines if key and (k == key[0] or k.endswith(f".{key[0]}"))]
        # Of a key that is written in an inline table the line of the table is known.
        whole = lines.get(named[0]) if named else lines.get(key[0].partition(".")[0]) if key else None
        place = f"{path}, line {whole}" if whole else str(path)
        raise DesignError(f"{place}: {message}") from None


def _lines(text: str) -> dict[str, int]:
    """The line on which each key stands, by its dotted name; good enough to point at it."""
    found: dict[str, int] = {}
    above = ""
    for place, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            above = header[1] + "."
            found.setdefault(header[1], place)
        elif key := _KEY.match(line):
            found.setdefault(above + key[1].strip("\"'"), place)
            for inner in re.findall(r"[{,]\s*([\w-]+)\s*=", line):
                found.setdefault(f"{above}{key[1]}.{inner}", place)
    return found

"""Designs from TOML files.

.. code-block:: toml

    design = "OPTM"            # any design of the package
    bins = [-3.0, -0.5, 0.5, 3.0]
    loss = "absolute"

    [privacy]
    kind = "PureDP"
    epsilon = 1.0

    [prior]
    law = "uniform"            # a scipy.stats law
    loc = -1
    scale = 2
    # clip = [-1, 1]           # or: truncate = [-1, 1]; or: samples = [...]

    [solve]                    # options of design.solve
    solver = "highs"
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import tomllib
from pathlib import Path
from typing import Any

from scipy import stats

import mechdesign
from mechdesign.errors import DesignError
from mechdesign.problem import privacy
from mechdesign.problem.checks import interval, number, one_of
from mechdesign.problem.design import Design
from mechdesign.problem.priors import clipped, truncated

__all__ = ["design_from_toml"]

_PRIVACY = ("PureDP", "ApproximateDP", "ZeroConcentratedDP", "MetricDP")


def design_from_toml(path: str | os.PathLike[str]) -> tuple[Any, dict[str, Any]]:
    """Read a design and the options for its ``solve`` from a TOML file.

    Raises
    ------
    DesignError
        Not TOML, an unknown design, law or argument; the message names the key and says what is allowed.
    """
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DesignError(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DesignError(f"{path}: not a readable TOML file ({error})") from None
    name, options = table.pop("design", None), _table("solve", table.pop("solve", {}), 'solver = "highs"')
    design = _design(name)
    fields = {f.name: f for f in dataclasses.fields(design) if f.init}
    for key in table:
        if key not in fields:
            raise DesignError.of("argument", key, f"{name} takes {list(fields)}")
    needed = {k for k, f in fields.items() if f.default is f.default_factory is dataclasses.MISSING}
    if missing := sorted(needed - set(table)):
        raise DesignError(f"{path}: {name} needs {', '.join(missing)}")
    made = design(**{key: _PARSERS.get(key, lambda v: v)(value) for key, value in table.items()})
    _bind("solve", design.solve, options, made)
    return made, options


def _design(name: Any) -> Any:
    """The public design of this name; the others are looked at only to say which there are."""

    def is_design(word: str) -> bool:
        value = getattr(mechdesign, word)
        return isinstance(value, type) and issubclass(value, Design)

    if isinstance(name, str) and name in dir(mechdesign) and is_design(name):
        return getattr(mechdesign, name)
    raise DesignError.of("design", name, f"must be one of {[n for n in dir(mechdesign) if is_design(n)]}")


def _table(key: str, value: Any, example: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DesignError.of(key, value, f"must be a table such as {{{example}}}")
    return dict(value)


def _bind(key: str, function: Any, arguments: dict[str, Any], *first: Any) -> None:
    try:
        inspect.signature(function).bind(*first, **arguments)
    except TypeError as error:
        raise DesignError(f"{key}: {error}") from None


def _privacy(value: Any) -> Any:
    fields = _table("privacy", value, 'kind = "PureDP", epsilon = 1.0')
    notion = getattr(privacy, one_of("privacy.kind", fields.pop("kind", "PureDP"), _PRIVACY))
    _bind("privacy", notion, fields)
    return notion(**fields)


def _prior(value: Any) -> Any:
    if isinstance(value, list):
        return value
    fields = _table("prior", value, 'law = "uniform", loc = -1, scale = 2')
    if set(fields) == {"samples"}:
        return fields["samples"]
    name = fields.pop("law", None)
    law = getattr(stats, name, None) if isinstance(name, str) else None
    if not isinstance(law, stats.rv_continuous):
        raise DesignError.of("prior.law", name, "must be the name of a continuous law of scipy.stats")
    cuts = [(make, interval(f"prior.{key}", fields.pop(key))) for key, make in _CUTS.items() if key in fields]
    if len(cuts) > 1:
        raise DesignError("prior: clip or truncate, not both")
    numbers = {key: number(f"prior.{key}", v) for key, v in fields.items()}
    try:
        frozen = law(**numbers)
    except TypeError as error:
        raise DesignError(f"prior: {error}") from None
    return cuts[0][0](frozen, *cuts[0][1]) if cuts else frozen


_CUTS = {"clip": clipped, "truncate": truncated}
_PARSERS = {"privacy": _privacy, "prior": _prior}

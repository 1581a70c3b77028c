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
import os
import tomllib
from pathlib import Path
from typing import Any

from scipy import stats

import mechdesign
from mechdesign.errors import DesignError
from mechdesign.problem import privacy
from mechdesign.problem.priors import clipped, truncated

__all__ = ["design_from_toml"]

_PRIVACY = ("PureDP", "ApproximateDP", "ZeroConcentratedDP", "MetricDP")


def design_from_toml(path: str | os.PathLike[str]) -> tuple[Any, dict[str, Any]]:
    """Read a design and the options for its ``solve`` from a TOML file.

    Raises
    ------
    DesignError
        Not TOML, an unknown design, law or argument; the message says what is allowed.
    """
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DesignError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DesignError(f"{path}: not a readable TOML file ({error})") from None
    name = table.pop("design", None)
    designs = {n: value for n in mechdesign.__all__ if _is_design(value := getattr(mechdesign, n))}
    if name not in designs:
        raise DesignError.of("design", name, f"must be one of {sorted(designs)}")
    options = table.pop("solve", {})
    allowed = [f.name for f in dataclasses.fields(designs[name]) if f.init]
    arguments: dict[str, Any] = {}
    for key, value in table.items():
        if key not in allowed:
            raise DesignError.of("argument", key, f"{name} takes {allowed}")
        arguments[key] = _PARSERS.get(key, lambda v: v)(value)
    missing = [
        f.name
        for f in dataclasses.fields(designs[name])
        if f.init and f.name not in arguments and f.default is f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise DesignError(f"{path}: {name} needs {', '.join(missing)}")
    return designs[name](**arguments), options


def _is_design(value: Any) -> bool:
    return isinstance(value, type) and dataclasses.is_dataclass(value) and hasattr(value, "solve")


def _privacy(table: Any) -> Any:
    if not isinstance(table, dict):
        raise DesignError.of("privacy", table, 'must be a table such as {kind = "PureDP", epsilon = 1.0}')
    fields = dict(table)
    kind = fields.pop("kind", "PureDP")
    if kind not in _PRIVACY:
        raise DesignError.of("privacy.kind", kind, f"must be one of {list(_PRIVACY)}")
    try:
        return getattr(privacy, kind)(**fields)
    except TypeError as error:
        raise DesignError(f"privacy: {error}") from None


def _prior(table: Any) -> Any:
    if isinstance(table, list):
        return table
    if not isinstance(table, dict):
        raise DesignError.of(
            "prior", table, 'must be a table such as {law = "uniform", loc = -1, scale = 2}, or samples'
        )
    fields = dict(table)
    if "samples" in fields:
        return fields["samples"]
    name = fields.pop("law", None)
    clip, cut = fields.pop("clip", None), fields.pop("truncate", None)
    law = getattr(stats, str(name), None)
    if not isinstance(law, stats.rv_continuous):
        raise DesignError.of("prior.law", name, "must be the name of a continuous law of scipy.stats")
    try:
        frozen = law(**fields)
    except TypeError as error:
        raise DesignError(f"prior: {error}") from None
    if clip is not None:
        return clipped(frozen, *clip)
    return truncated(frozen, *cut) if cut is not None else frozen


_PARSERS = {"privacy": _privacy, "prior": _prior}

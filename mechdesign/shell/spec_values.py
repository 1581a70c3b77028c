"""The values of a TOML file that are more than numbers, words and lists: privacy, priors, outputs, grids, spaces, …"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from scipy import stats

from mechdesign.errors import DesignError
from mechdesign.problem import privacy
from mechdesign.problem.checks import interval, number, one_of
from mechdesign.problem.priors import clipped, truncated
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.problem.workload import Workload
from mechdesign.quantizers.optimal.bin_search import Alphabet, BinSearch
from mechdesign.runs.grid import Grid
from mechdesign.spaces.space import MetricSpace

__all__ = ["PARSERS", "bound", "table"]

_PRIVACY = {kind.__name__: kind for kind in (privacy.PureDP, privacy.ApproximateDP, privacy.ZeroConcentratedDP, privacy.MetricDP)}  # fmt: skip
_BINS = {"BinSearch": BinSearch, "Alphabet": Alphabet, "Grid": Grid}
_SPACES = {
    "matrix": MetricSpace.from_matrix,
    **{
        name: getattr(MetricSpace, name)
        for name in ("line", "grid", "euclidean", "geodesic", "clustered", "tree")
    },
}
_WORKLOADS = {
    name: getattr(Workload, name) for name in ("identity", "prefix_sums", "ranges", "marginals")
} | {"kron": lambda parts: Workload.kron(*map(_workload, parts))}
_CUTS = {"clip": clipped, "truncate": truncated}


def table(key: str, value: Any, example: str) -> dict[str, Any]:
    """The table that a key holds."""
    if not isinstance(value, dict):
        raise DesignError.of(key, value, f"must be a table such as {{{example}}}")
    return dict(value)


def bound(key: str, function: Any, arguments: Mapping[str, Any], *first: Any) -> None:
    """Raise DesignError where a function would not take these arguments."""
    try:
        inspect.signature(function).bind(*first, **arguments)
    except TypeError as error:
        raise DesignError(f"{key}: {error}") from None


def _made(key: str, value: Any, kinds: Mapping[str, Callable[..., Any]], example: str, default: str) -> Any:
    """The object that a table describes by its kind and its arguments."""
    fields = table(key, value, example)
    make = kinds[one_of(f"{key}.kind", fields.pop("kind", default), tuple(kinds))]
    bound(key, make, fields)
    return make(**fields)


def _privacy(value: Any) -> Any:
    return _made("privacy", value, _PRIVACY, 'kind = "PureDP", epsilon = 1.0', "PureDP")


def _bins(value: Any) -> Any:
    return _made("bins", value, _BINS, "", "Grid") if isinstance(value, dict) else value


def _grid(key: str) -> Callable[[Any], Any]:
    return lambda value: Grid(**table(key, value, "level = [0.6, 0.7], width = [0.01]"))


def _space(value: Any) -> Any:
    if isinstance(value, list):
        return value
    return _made("space", value, _SPACES, 'kind = "grid", rows = 4, columns = 4', "grid")


def _workload(value: Any) -> Any:
    if isinstance(value, list):
        return value
    return _made("workload", value, _WORKLOADS, 'kind = "prefix_sums", size = 20', "prefix_sums")


def _sensitivity(key: str) -> Callable[[Any], Any]:
    return lambda value: (
        _made(key, value, {"bounds": Sensitivity}, "", "bounds") if isinstance(value, dict) else value
    )


def _noise(value: Any) -> Any:
    return _law("noise", dict(value)) if isinstance(value, dict) else value


def _prior(value: Any) -> Any:
    if isinstance(value, list):
        return value
    fields = table("prior", value, 'law = "uniform", loc = -1, scale = 2')
    if set(fields) == {"samples"}:
        return fields["samples"]
    cuts = [(make, interval(f"prior.{key}", fields.pop(key))) for key, make in _CUTS.items() if key in fields]
    if len(cuts) > 1:
        raise DesignError("prior: clip or truncate, not both")
    frozen = _law("prior", fields)
    return cuts[0][0](frozen, *cuts[0][1]) if cuts else frozen


def _law(key: str, fields: dict[str, Any]) -> Any:
    name = fields.pop("law", None)
    law = getattr(stats, name, None) if isinstance(name, str) else None
    if not isinstance(law, stats.rv_continuous):
        raise DesignError.of(f"{key}.law", name, "must be the name of a continuous law of scipy.stats")
    numbers = {word: number(f"{key}.{word}", v) for word, v in fields.items()}
    shapes = [] if law.shapes is None else law.shapes.replace(",", " ").split()
    for word in numbers.keys() - {*shapes, "loc", "scale"}:
        raise DesignError.of(
            f"{key}.{word}", numbers[word], f"{name} takes {', '.join([*shapes, 'loc', 'scale'])}"
        )
    for word in (word for word in shapes if word not in numbers):
        raise DesignError(f"{key}.{word} is missing: {name} needs it")
    return law(**numbers)


PARSERS: dict[str, Callable[[Any], Any]] = {
    "privacy": _privacy,
    "prior": _prior,
    "bins": _bins,
    "levels": _grid("levels"),
    "grid": _grid("grid"),
    "space": _space,
    **{key: _sensitivity(key) for key in ("sensitivity", "sensitivities", "vectors", "bounds")},
    "workload": _workload,
    "noise": _noise,
}

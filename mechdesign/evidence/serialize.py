"""JSON for results: versioned, checked, never pickle.

A class opts in with `serializable`; everything a result is made of (numbers, fractions, arrays, tables,
frozen `scipy.stats` laws, other serializable values) then round-trips to the same bytes. A document is

.. code-block:: json

    {"format": "mechdesign-result", "version": 1, "sha256": "...", "payload": {}}

where ``sha256`` is taken over the canonical text of the payload, so that an edited or truncated file is
refused instead of trusted.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from importlib import import_module, resources
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from scipy import stats

from mechdesign.errors import DesignError, ResultFormatError

__all__ = ["FORMAT", "VERSION", "dumps", "loads", "register_law", "result_schema", "serializable"]

FORMAT = "mechdesign-result"
VERSION = 1

C = TypeVar("C", bound=type)
_CLASSES: dict[str, type] = {}
_KINDS: dict[type, str] = {}
_LAWS: dict[str, Any] = {}


def serializable(kind: str) -> Callable[[C], C]:
    """Register a dataclass under `kind`, the name it carries in files.

    The fields that ``__init__`` takes are stored; a class that is rebuilt differently defines
    ``to_fields(self) -> dict`` and the class method ``from_fields(fields)``.
    """

    def decorate(cls: C) -> C:
        _CLASSES[kind] = cls
        _KINDS[cls] = kind
        return cls

    return decorate


def register_law(name: str, generator: Any) -> None:
    """Let frozen laws of a custom ``rv_continuous`` (or discrete) `generator` round-trip as `name`."""
    _LAWS[name] = generator


@dataclasses.dataclass(frozen=True)
class UnavailableCallable:
    """Stands for a function that a result was made with; functions are not stored in files."""

    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise DesignError(f"the function {self.name} was not stored in the result file; pass it again")


def _law_name(law: Any) -> str:
    for name, generator in _LAWS.items():
        if isinstance(law.dist, type(generator)):
            return name
    name = law.dist.name
    if hasattr(stats, name) and isinstance(law.dist, type(getattr(stats, name))):
        return str(name)
    raise DesignError(f"the law {name!r} is neither in scipy.stats nor registered with register_law")


def encode(value: Any) -> Any:
    """Turn `value` into what JSON can carry; `decode` is its inverse."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (np.bool_, np.integer, np.floating)):
        value = value.item()
    if isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, Fraction):
        return {"$fraction": f"{value.numerator}/{value.denominator}"}
    if isinstance(value, np.ndarray):
        return {"$array": encode(value.tolist()), "dtype": str(value.dtype), "shape": list(value.shape)}
    if isinstance(value, pd.DataFrame):
        columns = [[str(c), str(value[c].dtype), encode(value[c].tolist())] for c in value.columns]
        return {"$table": columns}
    if isinstance(value, tuple):
        return {"$tuple": [encode(v) for v in value]}
    if isinstance(value, list):
        return [encode(v) for v in value]
    if isinstance(value, dict):
        return {"$items": [[encode(k), encode(v)] for k, v in value.items()]}
    if type(value) in _KINDS:
        if hasattr(value, "to_fields"):
            fields = value.to_fields()
        else:
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        return {"$kind": _KINDS[type(value)], "fields": {k: encode(v) for k, v in fields.items()}}
    if hasattr(value, "dist") and hasattr(value, "kwds"):
        return {"$law": _law_name(value), "args": encode(list(value.args)), "kwds": encode(dict(value.kwds))}
    if callable(value):
        name = (
            value.name
            if isinstance(value, UnavailableCallable)
            else getattr(value, "__qualname__", "function")
        )
        return {"$callable": name}
    raise DesignError(f"a {type(value).__name__} cannot be stored in a result file")


def _class(kind: str, kinds: Mapping[str, str] | None) -> type:
    if kind not in _CLASSES and kinds is not None and kind in kinds:
        import_module(kinds[kind])
    if kind not in _CLASSES:
        raise ResultFormatError(f"unknown kind {kind!r}: written by a newer mechdesign?")
    return _CLASSES[kind]


def _generator(name: str, kinds: Mapping[str, str] | None) -> Any:
    if name not in _LAWS and kinds is not None and f"law:{name}" in kinds:
        import_module(kinds[f"law:{name}"])
    if name in _LAWS:
        return _LAWS[name]
    found = getattr(stats, name, None)
    # Only laws: a file must not be able to call anything else of scipy.stats.
    if not isinstance(found, (stats.rv_continuous, stats.rv_discrete)):
        raise ResultFormatError(
            f"unknown law {name!r}: neither in scipy.stats nor registered with register_law"
        )
    return found


def decode(node: Any, kinds: Mapping[str, str] | None = None) -> Any:
    """Inverse of `encode`; a kind that is not known yet is looked up in the table `kinds`, and its module imported."""
    if isinstance(node, list):
        return [decode(v, kinds) for v in node]
    if not isinstance(node, dict):
        return node
    if "$float" in node:
        return float(node["$float"])
    if "$fraction" in node:
        return Fraction(node["$fraction"])
    if "$array" in node:
        return np.array(decode(node["$array"], kinds), dtype=node["dtype"]).reshape(node["shape"])
    if "$table" in node:
        return pd.DataFrame(
            {name: pd.Series(decode(v, kinds), dtype=dtype) for name, dtype, v in node["$table"]}
        )
    if "$tuple" in node:
        return tuple(decode(v, kinds) for v in node["$tuple"])
    if "$items" in node:
        return {decode(k, kinds): decode(v, kinds) for k, v in node["$items"]}
    if "$kind" in node:
        cls = _class(node["$kind"], kinds)
        fields = {k: decode(v, kinds) for k, v in node["fields"].items()}
        return cls.from_fields(fields) if hasattr(cls, "from_fields") else cls(**fields)
    if "$law" in node:
        generator = _generator(node["$law"], kinds)
        return generator(*decode(node["args"], kinds), **decode(node["kwds"], kinds))
    if "$callable" in node:
        return UnavailableCallable(node["$callable"])
    raise ResultFormatError(f"unknown JSON object with keys {sorted(node)}")


def _canonical(payload: Any) -> str:
    return json.dumps(payload, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def dumps(value: Any) -> str:
    """Return the text of the result file that holds `value`.

    Examples
    --------
    >>> from mechdesign.problem.privacy import PureDP
    >>> loads(dumps(PureDP(0.5)))
    PureDP(epsilon=0.5)
    """
    payload = encode(value)
    digest = hashlib.sha256(_canonical(payload).encode()).hexdigest()
    document = {"format": FORMAT, "version": VERSION, "sha256": digest, "payload": payload}
    return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def loads(text: str, *, source: str = "result file", kinds: Mapping[str, str] | None = None) -> Any:
    """Rebuild what `dumps` wrote.

    Raises
    ------
    ResultFormatError
        Not JSON, not ours, of another version, truncated or edited; one line that says which.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ResultFormatError(f"{source}: not valid JSON (truncated?): {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ResultFormatError(f"{source}: not a {FORMAT} file")
    if document.get("version") != VERSION:
        raise ResultFormatError(
            f"{source}: version {document.get('version')!r} is not supported, this mechdesign reads version {VERSION}"
        )
    if "payload" not in document:
        raise ResultFormatError(f"{source}: no payload")
    payload = document["payload"]
    if hashlib.sha256(_canonical(payload).encode()).hexdigest() != document.get("sha256"):
        raise ResultFormatError(f"{source}: the checksum does not match, the file was edited or damaged")
    try:
        return decode(payload, kinds)
    except ResultFormatError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ResultFormatError(f"{source}: malformed content ({type(error).__name__}: {error})") from None


def result_schema() -> dict[str, Any]:
    """Return the JSON Schema of result files.

    Examples
    --------
    >>> result_schema()["properties"]["version"]["const"]
    1
    """
    text = resources.files("mechdesign.evidence").joinpath("result.schema.json").read_text()
    return json.loads(text)

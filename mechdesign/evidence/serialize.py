"""JSON for results: versioned, checked, data only.

A class opts in with `serializable`; everything a result is made of (numbers, fractions, arrays, tables,
frozen `scipy.stats` laws, other serializable values) then round-trips to the same bytes. A document is

.. code-block:: json

    {"format": "mechdesign-result", "version": 2, "sha256": "...", "payload": {}}

where ``sha256`` is taken over the canonical text of the payload, so that a damaged file is refused. The sum is no
signature: whoever edits a file can write it anew. A file is therefore read as if its author were hostile: it chooses
among the kinds of `KINDS`, the laws that `scipy.stats` and `register_law` name and a few types of array, its size,
depth and numbers are limited, and nothing that it says is called. What it *claims* is for `Certificate.verify`.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import math
import os
import re
from collections.abc import Callable
from fractions import Fraction
from importlib import import_module, resources
from typing import Any, NoReturn, TypeVar, dataclass_transform

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from mechdesign.checks import refuse
from mechdesign.errors import DesignError, MissingExtra, ResultFormatError
from mechdesign.evidence.files import read_text
from mechdesign.typing import Array, FrozenLaw, Json, Numbers
from mechdesign.verifier.reading import (
    DTYPE,
    FORMAT,
    INDEX,
    LIMIT,
    MEMBERS,
    VERSION,
    NotCovered,
    Reader,
    Refused,
    canonical_of,
    shaped,
)

C = TypeVar("C", bound=type)
_CLASSES: dict[str, type] = {}
_KINDS: dict[type, str] = {}


def register_kind(kind: str, cls: type) -> None:
    """Register a class under `kind`, the name it carries in files."""
    _CLASSES[kind] = cls
    _KINDS[cls] = kind


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def serializable(kind: str, *, eq: bool = True, repr: bool = True) -> Callable[[C], C]:
    """Make a class a frozen dataclass, unless it is one or has a constructor of its own, and register it under `kind`, the name it carries in files.

    The fields that ``__init__`` takes are stored; a class that is rebuilt differently defines
    ``to_fields(self) -> dict`` and the class method ``from_fields(fields)``. `eq` and `repr` are those of `dataclasses.dataclass`.
    """

    def decorate(cls: C) -> C:
        if not {"__dataclass_params__", "__init__"} & {*vars(cls)}:
            dataclasses.dataclass(frozen=True, eq=eq, repr=repr)(cls)
        register_kind(kind, cls)
        return cls

    return decorate


def kind_of(value: object) -> str:
    """Return the kind under which a value is written, "" if it has none."""
    return _KINDS.get(type(value), "")


def _dtype(dtype: object) -> str:
    if not DTYPE.fullmatch(str(dtype)):
        raise DesignError(f"values of type {dtype} cannot be stored in a result file")
    return str(dtype)


def encode(value: object) -> Json:
    """Turn `value` into JSON values; `decode` is its inverse."""
    if isinstance(value, enum.Enum):
        value = value.value
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
        return {"$array": encode(value.tolist()), "dtype": _dtype(value.dtype), "shape": list(value.shape)}
    if isinstance(value, pd.DataFrame):
        columns: list[Json] = [
            [str(c), _dtype(value[c].dtype), encode(value[c].tolist())] for c in value.columns
        ]
        return {"$table": columns}
    if isinstance(value, tuple):
        return {"$tuple": [encode(v) for v in value]}
    if isinstance(value, list):
        return [encode(v) for v in value]
    if isinstance(value, dict):
        pairs: list[Json] = [[encode(k), encode(v)] for k, v in value.items()]
        return {"$items": pairs}
    if (kind := _KINDS.get(type(value))) is not None:
        if hasattr(value, "to_fields"):
            fields = value.to_fields()
        else:
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(_CLASSES[kind]) if f.init}
        return {"$kind": kind, "fields": {k: encode(v) for k, v in fields.items()}}
    if hasattr(value, "dist") and hasattr(value, "kwds"):
        if type(value.dist) is stats.rv_histogram:
            return _histogram(value)
        law: FrozenLaw = value
        return {"$law": law_name(law), "args": encode(list(law.args)), "kwds": encode(dict(law.kwds))}
    if callable(value):
        if isinstance(value, UnavailableCallable):
            return {"$callable": value.name}
        known = next((f"@{name}" for name, function in LOSSES.items() if function is value), None)
        return {"$callable": known or getattr(value, "__qualname__", "function")}
    raise DesignError(f"a {type(value).__name__} cannot be stored in a result file")


def histogram_parts(law: FrozenLaw) -> tuple[list[float], list[float], bool]:
    """Return contents and edges of a frozen `scipy.stats.rv_histogram`, and whether the contents are densities."""
    contents, edges = (np.asarray(part, dtype=float) for part in law.dist._histogram)
    density = law.dist._density
    if density is None:  # SciPy's own rule
        density = not np.allclose(np.diff(edges), edges[1] - edges[0])
    return contents.tolist(), edges.tolist(), bool(density)


def _histogram(law: FrozenLaw) -> Json:
    _, loc, scale = law.dist._parse_args(*law.args, **law.kwds)
    contents, edges, density = histogram_parts(law)
    kwds = {"loc": float(loc), "scale": float(scale)}
    args = [np.array(contents), np.array(edges), density]
    return {"$law": "histogram", "args": encode(args), "kwds": encode(kwds)}


def _from_histogram(contents: Array, edges: Array, density: bool, **named: float) -> FrozenLaw:
    arrays = all(isinstance(v, np.ndarray) and v.ndim == 1 and v.dtype == float for v in (contents, edges))
    if not arrays or len(edges) != len(contents) + 1 or not isinstance(density, bool):
        _refuse("a histogram that is none")
    if not (np.diff(edges) > 0).all() or not (contents >= 0).all() or not 0 < contents.sum() < math.inf:
        _refuse("a histogram without edges that increase or without mass")
    return stats.rv_histogram((contents, edges), density=density)(**named)


def _class(kind: object) -> type:
    if not isinstance(kind, str) or (kind not in _CLASSES and kind not in KINDS):
        _refuse(
            f"unknown kind {kind!r:.80}: import the module that declares it (--import MODULE), or take a newer mechdesign"
        )
    if kind not in _CLASSES:
        import_module(KINDS[kind])
    return _CLASSES[kind]


def _generator(name: object) -> stats.rv_continuous | stats.rv_discrete:
    if isinstance(name, str):
        if name not in LAWS and f"law:{name}" in KINDS:
            import_module(KINDS[f"law:{name}"])
        found = LAWS.get(name) or getattr(stats, name, None)
        # Only laws: a file must not be able to call anything else of scipy.stats.
        if isinstance(found, (stats.rv_continuous, stats.rv_discrete)):
            return found
    _refuse(
        f"unknown law {name!r:.80}: neither in scipy.stats nor registered; where it is a law of yours, register it "
        f"before loading: md.register_law({name!r:.80}, generator)"
    )


def _refuse(reason: str) -> NoReturn:
    raise Refused(reason)


def decode(node: object) -> Any:
    """Inverse of `encode`; the module of a kind that is not loaded yet is imported, if `KINDS` names it."""
    return _said(lambda: _Reader().value(node, ""))


def _said(read: Callable[[], Any]) -> Any:
    """Return what is read; what the reader refuses is no result file."""
    try:
        return read()
    except (Refused, NotCovered) as error:
        raise ResultFormatError(" ".join(str(error).split())) from None


class _Reader(Reader):
    """Makes the package's own objects of the values of a file."""

    sequence, pairs, arrays = tuple, dict, np.ndarray

    def members(self, kind: str) -> dict[str, str] | None:
        _class(kind)
        return MEMBERS.get(kind)

    def made(self, kind: str, said: dict[str, Any], place: str) -> Any:
        cls = _CLASSES[kind]
        numbers = (held for held in said.values() if isinstance(held, (float, np.ndarray)))
        if getattr(cls, "finite", False) and not all(np.isfinite(held).all() for held in numbers):
            _refuse(f"{kind} with a number that is not finite")
        return cls.from_fields(said) if hasattr(cls, "from_fields") else cls(**said)

    def malformed(self, error: Exception, place: str) -> str:
        """What a constructor says of what the file hands it."""
        return f"malformed content at {place} ({error!s:.300})"

    def array(self, values: Any, dtype: str, shape: list[int]) -> npt.NDArray[Any]:
        cells = shaped(values, dtype, shape)
        with np.errstate(over="ignore"):
            made = np.fromiter(cells, object if dtype == "str" else dtype, len(cells)).reshape(shape)
        if dtype == "float32" and not np.array_equal(made.ravel(), cells, equal_nan=True):
            _refuse(f"an array of type {dtype} that holds something else")
        return made

    def table(self, columns: list[tuple[str, str, Any]]) -> pd.DataFrame:
        return pd.DataFrame({name: pd.Series(held, dtype=dtype) for name, dtype, held in columns})

    def law(self, name: str, args: list[Any], named: dict[str, Any], place: str) -> FrozenLaw:
        made: Callable[..., FrozenLaw] = _from_histogram if name == "histogram" else _generator(name)
        return made(*args, **named)

    def function(self, name: str) -> Any:
        known = LOSSES.get(name[1:]) if name.startswith("@") else None
        return UnavailableCallable(name) if known is None else known


def dumps(value: object) -> str:
    """Return the text of the result file that holds `value`.

    Raises
    ------
    DesignError
        It holds a value that files cannot store.

    Examples
    --------
    >>> from mechdesign.problem.privacy import PureDP
    >>> loads(dumps(PureDP(0.5)))
    PureDP(epsilon=0.5)
    """
    try:
        payload = canonical_of(encode(value))
        head = {"format": FORMAT, "version": VERSION, "sha256": hashlib.sha256(payload.encode()).hexdigest()}
        text = f'{json.dumps(head, indent=1)[:-2]},\n "payload": {payload}\n}}\n'
    except (RecursionError, UnicodeEncodeError) as error:
        raise DesignError(f"cannot be stored in a result file: {error}") from None
    if len(text) > LIMIT:
        raise DesignError(f"cannot be stored in a result file: {len(text)} characters, at most {LIMIT}")
    return text


def loads(text: str, *, source: str = "result file") -> Any:
    """Rebuild what `dumps` wrote.

    Raises
    ------
    ResultFormatError
        Not JSON, not ours, of another version, truncated, edited, or nothing that `dumps` writes; one line that says
        which.
    """
    try:
        return _said(lambda: _Reader().read(text))
    except MissingExtra:
        raise
    except ResultFormatError as error:
        reason = str(error)
    except Exception as error:  # constructors are handed whatever the file says
        reason = f"malformed content ({error!s:.300})"
    raise ResultFormatError(" ".join(f"{source}: {reason}".split()))


def load(path: str | os.PathLike[str]) -> Any:
    """Read a result (or any other stored value) back from `path`, which may be compressed (.json.gz) or a report page.

    Raises
    ------
    ResultFormatError
        Missing, truncated, edited, or of another version; one line that says which.
    """
    return loads(read_text(path), source=str(path))


def result_schema() -> dict[str, Any]:
    """Return the JSON Schema of result files.

    Examples
    --------
    >>> result_schema()["properties"]["version"]["const"]
    2
    """
    text = resources.files("mechdesign.evidence").joinpath("result.schema.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


KINDS: dict[str, str] = {kind: f"mechdesign.{module}" for module, kinds in INDEX.items() for kind in kinds}
"""The module of each kind and law, which is imported when a file needs it; a test compares the index with what modules register."""


LAWS: dict[str, stats.rv_continuous | stats.rv_discrete] = {}
LOSSES: dict[str, Callable[[Array], Numbers]] = {}
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")


def register_law(name: str, generator: object) -> None:
    """Let frozen laws of a custom `generator` survive saving, as `name`.

    A file holds the name and the parameters; a program that reads it registers the same name first.

    Parameters
    ----------
    name : str
    generator : scipy.stats.rv_continuous or rv_discrete
        An instance of a subclass of your own, which freezes to the law.

    Raises
    ------
    DesignError
        The generator is no such instance, or the name is that of another law of SciPy or this package.

    Examples
    --------
    >>> class Triangle(stats.rv_continuous):
    ...     def _pdf(self, x):
    ...         return 2 * x
    >>> register_law("my-triangle", Triangle(a=0, b=1, name="my-triangle"))
    """
    _check_name(name)
    kinds = (stats.rv_continuous, stats.rv_discrete, stats.rv_histogram)
    allowed = "must be an instance of a subclass of rv_continuous or rv_discrete"
    refuse(not isinstance(generator, kinds[:2]) or type(generator) in kinds, "generator", generator, allowed)
    ours, held = _ours(generator), LAWS.get(name)
    if not ours and (hasattr(stats, name) or (held is not None and _ours(held))):
        raise DesignError.of("name", name, "is the name of another law already; choose one of your own")
    LAWS[name] = generator


def register_loss(name: str, function: Callable[[Array], Numbers]) -> None:
    """Let a loss given as a function survive saving, as `name`: a result loaded where it is registered has it again.

    Raises
    ------
    DesignError
        The name is invalid or that of a loss of this package, or `function` is no function.

    Examples
    --------
    >>> register_loss("quartic", lambda t: t**4)
    """
    _check_name(name)
    if name in ("absolute", "squared"):
        raise DesignError.of("name", name, "is a loss of this package already; choose a name of your own")
    refuse(not callable(function), "function", function, "must be a function of an array of errors")
    LOSSES[name] = function


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DesignError.of("name", name, "must be 1 to 80 letters, digits, dots, dashes or underscores")


def _ours(generator: object) -> bool:
    return type(generator).__module__ in ("mechdesign.noise.laws", "mechdesign.noise.families")


@dataclasses.dataclass(frozen=True)
class UnavailableCallable:
    """Stands for a function that a result was made with; functions are not stored in files."""

    name: str

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if self.name.startswith("@"):
            name = self.name[1:]
            raise DesignError(
                f"the loss {name!r} is not registered in this program: md.register_loss({name!r}, function), "
                "then load the file again"
            )
        raise DesignError(
            f"the function {self.name} was not stored in the result file: pass it again, or register it with "
            "md.register_loss before it is saved"
        )


def law_name(law: FrozenLaw) -> str:
    for name, generator in LAWS.items():
        if type(law.dist) is type(generator) and (_ours(generator) or _made(law.dist) == _made(generator)):
            return name
    name = law.dist.name
    if type(law.dist) is type(
        getattr(stats, name, None)
    ):  # not by its name alone: anyone can call a law "uniform"
        return str(name)
    raise DesignError(
        f"the law {name!r} is neither in scipy.stats nor registered: md.register_law(name, generator) lets it be stored"
    )


def _made(generator: stats.rv_continuous | stats.rv_discrete) -> str:
    """Return the constructor's arguments of a user's law: different arguments make different laws."""
    return repr(sorted(generator._updated_ctor_param().items()))

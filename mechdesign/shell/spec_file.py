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
    # clip = [-1, 1]           # or: truncate = [-1, 1]; or: samples = [...] (with input_range)

    [solve]                    # options of design.solve
    solver = "highs"

Outputs to search are tables too (``bins = {kind = "BinSearch", m = 4, max_abs = 3.0}``, or ``"Alphabet"``), so are grids
(``boxes = {level = [0.6, 0.7], width = [0.01]}``), metric spaces (``space = {kind = "grid", rows = 4, columns = 4}``; also
matrix, line, euclidean, geodesic, clustered) and sensitivities (``sensitivity = {linf = 1, l0 = 3}``). Every task of a plan is
a table, ``[tasks.visits]`` with ``kind = "Histogram"`` (`TASKS`, or a workload).
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, get_args

from scipy import stats

import mechdesign
from mechdesign import choose
from mechdesign.checks import instance, interval, number, one_of
from mechdesign.choose.questions import Question
from mechdesign.errors import DesignError, InfeasibleError, unlike
from mechdesign.evidence.files import whole_text
from mechdesign.model.grid import Grid
from mechdesign.problem import privacy
from mechdesign.problem.priors import clipped, truncated
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.problem.spine import Design
from mechdesign.problem.workload import Workload
from mechdesign.quantizers.bins import Alphabet, BinSearch
from mechdesign.spaces.space import MetricSpace

Kinds = Mapping[str, Callable[..., object]]


def _methods(owner: type, names: str) -> dict[str, Callable[..., object]]:
    return {name: getattr(owner, name) for name in names.split()}


_BOUNDS: Kinds = {"bounds": Sensitivity}
_TABLES: dict[str, Kinds] = {
    "privacy": _methods(privacy, "PureDP ApproximateDP ZeroConcentratedDP MetricDP")  # type: ignore[arg-type]
    | {"EMDPrivacy": mechdesign.EMDPrivacy},
    "bins": {"Grid": Grid, "BinSearch": BinSearch, "Alphabet": Alphabet},
    "box": {"grid": Grid},
    "boxes": {"grid": Grid},
    "grid": {"grid": Grid},
    "space": _methods(MetricSpace, "grid line euclidean geodesic clustered")
    | {"matrix": MetricSpace.from_matrix},
    "workload": _methods(Workload, "prefix_sums identity ranges marginals")
    | {"kron": lambda parts: Workload.kron(*(_value("workload", part) for part in parts))},
    "sensitivity": _BOUNDS,
    "sensitivities": _BOUNDS,
    "changes": _BOUNDS,
    "bounds": _BOUNDS,
    "contribution": {"contribution": Sensitivity.of_contribution},
}
"""Constructors for a table under a key, by its ``kind``; without a kind, the first."""
TASKS: Kinds = {
    name: getattr(mechdesign, name)
    for name in ("Histogram", "Count", "Mean", "Sum", "NumericQuery", "PrivateChoice", "PrivateQuantile")
}
"""Kinds of tasks in a plan, besides workloads."""


def design_from_toml(path: str | os.PathLike[str], only: str | None = None) -> tuple[Design, dict[str, Any]]:
    """Read a design and the options for its ``solve`` from a TOML file; if `only` is given, the file may leave out its name.

    Raises
    ------
    DesignError
        Not TOML, an unknown design, law or argument; the message names file and key, and the allowed values.
    """
    with _opened(path) as given:
        options = instance("solve", given.pop("solve", {}), dict)
        kinds, name = designs(), given.pop("design", only)
        made = _made("design", kinds[one_of("design", name, (only,) if only else tuple(kinds))], given)
        try:
            inspect.signature(type(made).solve).bind(made, **options)
        except TypeError as error:
            raise DesignError(f"solve: {error}") from None
    return made, options


def question_from_toml(path: str | os.PathLike[str]) -> tuple[Question, dict[str, Any]]:
    """Read a question for `compare` from a TOML file: ``question = "MetricReport"``, its arguments, privacy or alpha.

    Raises
    ------
    DesignError
        As in `design_from_toml`.
    """
    with _opened(path) as given:
        names = tuple(kind.__name__ for kind in get_args(Question))
        name = one_of("question", given.pop("question", None), names)
        asked: dict[str, object] = {
            key: _value(key, given.pop(key)) for key in ("privacy", "alpha") if key in given
        }
        return _made("question", getattr(choose, name), given), asked


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yield the contents of a file; errors raised inside name the file."""
    try:
        given = tomllib.loads(whole_text(path))
    except FileNotFoundError:
        raise DesignError(f"{path}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DesignError(f"{path}: not a readable TOML file ({error})") from None
    with located(path):
        yield given


@contextmanager
def located(path: str | os.PathLike[str]) -> Iterator[None]:
    """Put the file's path before the message of an error that one of its keys causes."""
    try:
        yield
    except (DesignError, InfeasibleError) as error:
        raise DesignError(f"{path}: {error}") from None


def designs() -> dict[str, Callable[..., Design]]:
    """Return every design, and function that returns one, by name: those at the top of the package, and those only in `mechdesign.noise`.

    A `Problem` is declared in Python, not in a file.

    Examples
    --------
    >>> designs()["KNorm"] is mechdesign.noise.KNorm
    True
    """
    homes = mechdesign.noise, mechdesign
    named = {word: getattr(home, word) for home in homes for word in dir(home) if word != "Problem"}
    classes = {
        word: value
        for word, value in named.items()
        if isinstance(value, type) and issubclass(value, Design) and dataclasses.is_dataclass(value)
    }
    makers = {
        word: value
        for word, value in named.items()
        if inspect.isfunction(value) and {*value.__annotations__.get("return", "").split(" | ")} <= {*classes}
    }
    return dict(sorted((classes | makers).items()))


def _made(word: str, kind: Any, given: Mapping[str, object]) -> Any:
    """Make a design, a question, or what the table `word` describes, with these arguments."""
    name, fields = kind.__name__, inspect.signature(kind).parameters
    any_name = any(field.kind is field.VAR_KEYWORD for field in fields.values())
    for key in () if any_name else given:
        if key not in fields:
            said = f"{name} has no such argument: {unlike([key], fields, needed=False)}"
            raise DesignError(f"{key}: {said}; it takes {', '.join(fields)}")
    needed = {key for key, field in fields.items() if field.default is field.empty}
    if not any_name and (missing := sorted(needed - set(given))):
        raise DesignError(f"{word}: {name} needs {', '.join(missing)}")
    return kind(**{key: _value(key, value) for key, value in given.items()})


def _value(key: str, value: object) -> Any:
    """Return the object that a table describes; numbers, strings and lists stay as they are, and constructors check them."""
    if not isinstance(value, dict):
        return value
    if key in ("prior", "noise", "values"):
        return _law(key, dict(value))
    if key == "tasks":
        return {name: _task(f"tasks.{name}", task) for name, task in value.items()}
    if key not in _TABLES:
        return value
    fields, kinds = dict(value), _TABLES[key]
    kind = one_of(f"{key}.kind", fields.pop("kind", next(iter(kinds))), tuple(kinds))
    return _made(key, kinds[kind], fields)


def _task(key: str, given: object) -> Any:
    fields = dict(instance(key, given, dict))
    kind = one_of(f"{key}.kind", fields.pop("kind", None), (*TASKS, *_TABLES["workload"]))
    return _made(key, TASKS[kind], fields) if kind in TASKS else _value("workload", given)


def _law(key: str, fields: dict[str, object]) -> object:
    """Return a law of SciPy, clipped or truncated if the table says so, or a prior's samples or weights by name."""
    if "law" not in fields:
        return fields["samples"] if set(fields) == {"samples"} else fields
    cuts = {
        word: interval(f"{key}.{word}", fields.pop(word)) for word in ("clip", "truncate") if word in fields
    }
    DesignError.when(len(cuts) > 1, f"{key}: clip or truncate, not both")
    name = fields.pop("law")
    law = getattr(stats, name, None) if isinstance(name, str) else None
    if not isinstance(law, stats.rv_continuous):
        raise DesignError.of(f"{key}.law", name, "must be the name of a continuous law of scipy.stats")
    numbers = {word: number(f"{key}.{word}", v) for word, v in fields.items()}
    shapes = [] if law.shapes is None else law.shapes.replace(",", " ").split()
    for word in numbers.keys() - {*shapes, "loc", "scale"}:
        takes = f"{name} takes {', '.join([*shapes, 'loc', 'scale'])}"
        raise DesignError.of(f"{key}.{word}", numbers[word], takes)
    for word in (word for word in shapes if word not in numbers):
        raise DesignError(f"{key}.{word} is missing: {name} needs it")
    frozen = law(**numbers)
    if not cuts:
        return frozen
    return clipped(frozen, *cuts["clip"]) if "clip" in cuts else truncated(frozen, *cuts["truncate"])

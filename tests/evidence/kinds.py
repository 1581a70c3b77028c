"""What each kind of saved object consists of, read from its dataclass: members, JSON Schema and the table of the documentation.

    cd tests && python -m evidence.kinds

rewrites `mechdesign/evidence/kinds.json`, which both readers of files know kinds by, `mechdesign/evidence/result.schema.json` and the table of
`docs/format.md`; a test compares them. Annotations and declared checks say what a member may be; `EXCEPTIONS` say it where they do not. The words are those of
`mechdesign.verifier.reading`: ``num`` (∞ and NaN included), ``pos``, ``nn`` (not negative), ``count``, ``some`` (at least 1), ``2..9`` (integers from 2 to 9), ``(0,1]`` (numbers above 0, at most 1), ``int``, ``flag``, ``text``,
``frac``, ``arr``, ``cells`` (an array of pairs), ``table``, ``law``, ``fun`` (a function that was not stored), tuples ``nums``, ``ints``, ``fracs``, ``texts``, ``pair`` and
rows of them, ``@kind``, ``'word'``, ``any``; ``|`` is or.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType, NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import house
import numpy as np
import pandas as pd

import mechdesign.evidence
from mechdesign import checks
from mechdesign.evidence import serialize

INDEX = Path(mechdesign.evidence.__file__).with_name("kinds.json")
PATH = Path(mechdesign.evidence.__file__).with_name("result.schema.json")
FORMAT = Path(mechdesign.evidence.__file__).parents[2] / "docs" / "format.md"

PRIOR = "@prior-law|@prior-clipped|@prior-truncated|@prior-samples"
DUAL = "@rows-bound|@staircase-dual"
EXCEPTIONS = {
    "(0,1]": "additive-noise.sampling_rate",
    "1..1000000|null": "participation.apart participation.every",
    "[1,1.7976931348623157e308]|null": "metric-channel.spanner",
    "0..16777216|null": "sampled-coordinates.bits",
    "pos": "bin-search.max_abs choice-rule.rate quantile-rule.rate alphabet.max_abs alphabet.step cell-noise.width knorm-noise.scale linear-release.alpha "
    "optimal-noise.sensitivity strategy-noise.budget correlated-gaussian-noise.budget",
    "pos|@sensitivity": "additive-noise.sensitivity",
    "pos|@sensitivity|vectors": "knorm.sensitivity",
    "pos|nums": "sum-task.clip",
    "[1e-100,1e100]|null": "private-choice.spread",
    "nn": "cell-noise.spike_width delta-interval.lower delta-interval.upper "
    "dual-pieces.cap_price itemwise-release.delta linear-release.delta",
    "nn|null": "result.asked_gap",
    "num|arr|null": "noise-allocation.lower noise-allocation.upper noise-allocation.weights",
    "int": "integer-noise.first",
    "2..64": "bin-search.m",
    "1..16": "sampled-signs.bits",
    "2..|null": "local-workload.outputs",
    "some": "bin-search.starts subset-bound.mean",
    "some|null": "cell-product.l0 optimal-noise.l0",
    "text|arr": "metric-channel.loss metric-report.loss",
    "'absolute'|'squared'|fun|@metric-space": "metric-dp.metric",
    "text|law": "calibration.noise",
    "texts": "metric-space.names",
    "arr": "noise-allocation.sensitivities",
    "arr|@count-changes|@pattern-changes": "correlated-gaussian.changes",
    "arr|null": "bounded-count.prior metric-channel.prior",
    "nums": "metric-quantizer.bins optm.bins",
    "nums|null": "metric-quantizer.inputs mvu.bins",
    "nums|@alphabet|@bin-search": "optimal-quantizer.bins",
    "pair": "biased-quantizer.input_range metric-quantizer.input_range optimal-quantizer.input_range optm.input_range optm-search.input_range",
    "pair|null": "biased-selection.input_range erm.input_range local-report.input_range mvu.input_range rqm.input_range",
    "@workload": "category-report.workload",
    "@loss": "biased-selection.loss erm.loss local-report.loss metric-quantizer.loss mvu.loss optimal-quantizer.loss optm.loss "
    "optm-search.loss rqm.loss",
    PRIOR: "biased-selection.prior erm.prior metric-quantizer.prior optimal-quantizer.prior optm.prior optm-search.prior rqm.prior",
    f"{PRIOR}|null": "mvu.prior sum-task.values",
    DUAL: "subset-bound.dual",
    "@block-fill-law|@selection-law|@rational-table|null": "quantizer.law",
    "'proved'|'recomputed'": "delta-interval.how",
    "'gaussian'|'laplace'": "independent-noise.noise",
    "'gaussian'|'laplace'|'mixed'|'flipped_huber'|'osgt'|'gennorm'|'logistic'|'staircase'|'truncated_laplace'": "noise-allocation.noise",
    "'add-remove'|'replace'": "noise-allocation.neighbours planned-release.neighbours",
    "@delta-interval|fracs|null": "law-proof.given",
    "any": "closed-bound.given",
    "@listed-inputs|ints|null": "rows-bound.given",
    "": "itemwise-release.alpha itemwise-release.item_alpha",
}
"""Members of which annotation and check do not say enough; those of "" are not stored."""
STATED = {name: word for word, names in EXCEPTIONS.items() for name in names.split()}
DECLARED = {
    **dict.fromkeys(("inputs", "outputs", "privacy"), "any"),
    "of": "'person'|'data'",
    "neighbours": "'add-remove'|'replace'",
    "objective": "text",
    "constant": "num",
    **dict.fromkeys(("labels", "curved"), "texts"),
    **dict.fromkeys(("cost", "family", "equal", "offsets", "coefficients"), "arr"),
    "places": "cells",
}
"""What a problem in numbers is."""
WRITTEN = {
    "grid": {"axes": "items"},
    "scales-privacy": {
        "label": "text",
        "privacy": "@pure-dp|@approximate-dp|@zcdp|@gaussian-dp|@membership-advantage|@trade-off",
        "noise": "'gaussian'|'laplace'",
        "sensitivities": "arr",
        "bounds": "@sensitivity|null",
    },
    "scales-problem": {
        "noise": "'gaussian'|'laplace'",
        "neighbours": "'add-remove'|'replace'",
        "order": "num",
        "privacy": "any",
        **dict.fromkeys(("labels", "curved"), "texts"),
        **dict.fromkeys(("weights", "family", "equal", "offsets", "coefficients"), "arr"),
    "places": "cells",
    },
    "table-privacy": {
        "label": "text",
        "privacy": "@pure-dp|@approximate-dp|@metric-dp|@membership-advantage|@trade-off",
        "between": "text|arr",
        "distances": "arr|null",
    },
    "covariance-privacy": {
        "label": "text",
        "privacy": "@approximate-dp|@zcdp|@gaussian-dp|@membership-advantage|@trade-off",
    },
    "covariance-problem": {
        **dict.fromkeys(("changes", "cost", "family", "equal", "offsets", "coefficients"), "arr"),
    "places": "cells",
        "neighbours": "'add-remove'|'replace'",
        "objective": "text",
        "constant": "num",
        **dict.fromkeys(("labels", "curved"), "texts"),
        "privacy": "any",
    },
    "table-problem": DECLARED,
    "shift-privacy": {
        "label": "text",
        "privacy": "@pure-dp|@approximate-dp|@membership-advantage|@trade-off",
    },
    "lattice-problem": {
        **DECLARED,
        **dict.fromkeys(("sensitivity", "step"), "pos"),
        "change": "count",
        "decay": "frac",
        "tails": "pos|null",
        "integer": "flag",
    },
    "selection-problem": {
        "bins": "nums", "privacy": "@pure-dp", "prior": PRIOR, "loss": "@loss", "input_range": "pair",
        "constraints": "'theorem5'|'theorem6'|'across-outputs'", "families": "'symmetric'|'separate'",
        "o": "arr", "u": "arr", "boxes": "@grid|text|null", "columns": "count", "labels": "texts", "curved": "texts",
        **dict.fromkeys(("family", "equal", "offsets", "coefficients"), "arr"),
    "places": "cells",
    },
}  # fmt: skip
"""Kinds that are not written field by field."""


@cache
def declared() -> dict[str, list[str]]:
    """The kinds and laws that each module of the package registers, read from its text."""
    found: dict[str, list[str]] = {}
    for name, path in house.modules().items():
        text = path.read_text(encoding="utf-8")
        for of, kind in re.findall(
            r'^@?(serializable|register_kind|register_law)\(\s*"([\w-]+)"', text, re.MULTILINE
        ):
            found.setdefault(name.partition(".")[2], []).append("law:" * (of == "register_law") + kind)
    return {module: sorted(kinds) for module, kinds in sorted(found.items())}


@cache
def classes() -> dict[str, type]:
    """The class of every kind."""
    for module in declared():
        import_module(f"mechdesign.{module}")
    kinds = sorted(kind for held in declared().values() for kind in held)
    assert len(set(kinds)) == len(kinds)
    return {kind: serialize._CLASSES[kind] for kind in kinds if not kind.startswith("law:")}


def checked(field: dataclasses.Field[Any]) -> tuple[Any, tuple[type, ...], dict[str, Any]]:
    """The check that a field declares, the classes it may be of, and the check's options."""
    check, kinds, many, options = field.metadata.get("stated", (None, (), False, {}))
    if many:
        return None, (), {}
    return (
        check,
        kinds,
        {name: given for name, given in options.items() if not isinstance(given, FunctionType)},
    )


CHECKS = {
    "positive": "pos",
    "non_negative": "nn",
    "share": "(0,1]",
    "_advantage": "(0,1)",
    "magnitude": "[1e-100,1e100]",
    "_bound": "[1e-140,1e150]",
    "checked_dimension": "2..16777216",
}
"""What checks say of a number."""


def narrowed(word: str, check: Any, options: dict[str, Any]) -> str:
    """A word for a number, as narrow as its check."""
    if word in ("num", "count"):
        if (name := getattr(check, "__name__", "")) == "probability":
            return "[0,1)" if options.get("below_one") else "[0,1]"
        if (least := options.get("least", 0)) >= 1:
            most = options.get("most") or ""
            return "some" if (least, most) == (1, "") else f"{least}..{most}"
        return CHECKS.get(name, word)
    return word


PLAIN: dict[Any, str] = {
    bool: "flag", int: "count", float: "num", str: "text", Fraction: "frac", NoneType: "null", pd.DataFrame: "table", np.ndarray: "arr",
    dict: "items", Mapping: "items", Callable: "fun",
}  # fmt: skip
ROWS = {
    "num": "nums",
    "count": "ints",
    "frac": "fracs",
    "text": "texts",
    "nums": "vectors",
    "ints": "irows",
    "fracs": "rows",
    "pair": "pairs",
}


def words(declared: Any) -> list[str]:
    """What an annotation allows, in the words of files."""
    origin, parts = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        return list(dict.fromkeys(word for part in parts for word in words(part)))
    if origin is tuple and parts[-1] is ...:
        (inner,) = words(parts[0]) if len(words(parts[0])) == 1 else ("any",)
        return [ROWS.get(inner, "any")]
    if origin is tuple:
        return ["pair"] if parts == (float, float) else [ROWS.get("|".join(words(parts[0])), "any")]
    if (kind := next((k for k, cls in classes().items() if cls is declared), None)) is not None:
        return [f"@{kind}"]
    if isinstance(declared, type) and issubclass(declared, enum.Enum):
        return [f"'{named.value}'" for named in declared]
    return [PLAIN.get(origin or declared, "any")]


def member(cls: type, field: dataclasses.Field[Any]) -> str:
    """What a member may be."""
    check, kinds, options = checked(field)
    absent = ["null"] if "None" in str(field.type) else []
    if "FrozenLaw" in str(field.type):
        found = ["law"]
    elif check is checks.one_of and bool not in map(type, options["allowed"]):
        found = ["null" if word is None else f"'{word}'" for word in options["allowed"]]
    elif kinds and all(words(kind)[0][0] == "@" for kind in kinds):
        found = [word for kind in kinds for word in words(kind)]
    else:
        found = words(get_type_hints(cls)[field.name])
    found = [narrowed(word, check, options) for word in found]
    return (
        "any"
        if "any" in found
        else "|".join(
            dict.fromkeys(
                [*(w for w in found if w != "null"), *absent, *(["null"] if "null" in found else [])]
            )
        )
    )


@cache
def members() -> dict[str, dict[str, str]]:
    """Every kind's members, and what each may be."""
    found = dict(WRITTEN)
    for kind, cls in classes().items():
        if kind not in WRITTEN:
            stored = {
                f.name: f for f in dataclasses.fields(cls) if f.init and STATED.get(f"{kind}.{f.name}") != ""
            }
            found[kind] = {name: STATED.get(f"{kind}.{name}") or member(cls, f) for name, f in stored.items()}
    return dict(sorted(found.items()))


VALUE = {"$ref": "#/$defs/value"}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def wrapped(tag: str, inner: Any, **more: Any) -> dict[str, Any]:
    properties = {tag: inner, **more}
    return {
        "type": "object",
        "required": list(properties),
        "properties": properties,
        "additionalProperties": False,
    }


def listed(items: Any, size: int | None = None) -> dict[str, Any]:
    sizes = {} if size is None else {"minItems": size, "maxItems": size}
    return {"type": "array", "items": items, **sizes}


def tupled(items: Any, size: int | None = None) -> dict[str, Any]:
    return wrapped("$tuple", listed(items, size))


def pairs(first: Any, second: Any, *more: Any) -> dict[str, Any]:
    size = 2 + len(more)
    return {
        "type": "array",
        "items": {
            "type": "array",
            "prefixItems": [first, second, *more],
            "minItems": size,
            "maxItems": size,
        },
    }


TEXT, NUMBER = {"type": "string"}, ref("number")
DTYPE = {"type": "string", "pattern": "^(u?int(8|16|32|64)|float(32|64)|bool|object|str|<U[0-9]{1,4})$"}
WORDS: dict[str, Any] = {
    "num": NUMBER, "count": {"type": "integer", "minimum": 0}, "some": {"type": "integer", "minimum": 1}, "int": {"type": "integer"}, "text": TEXT, "flag": {"type": "boolean"},
    "frac": ref("fraction"), "any": VALUE, "arr": ref("array"), "cells": ref("array"), "table": ref("table"), "law": ref("law"),
    "fun": ref("callable"), "items": ref("items"), "null": {"type": "null"}, "pos": {"type": "number", "exclusiveMinimum": 0},
    "nn": {"type": "number", "minimum": 0}, "nums": ref("numbers"), "fracs": ref("fractions"), "texts": ref("texts"),
    "ints": ref("integers"), "pair": ref("pair"), "pairs": ref("pairs"), "rows": ref("rational-rows"), "irows": ref("integer-rows"), "vectors": ref("vectors"),
}  # fmt: skip
SHARED: dict[str, Any] = {
    "number": {"anyOf": [{"type": "number"}, ref("float")]},
    "float": wrapped("$float", {"enum": ["inf", "-inf", "nan"]}),
    "fraction": wrapped("$fraction", {**TEXT, "pattern": "^-?[0-9]{1,4300}/0*[1-9][0-9]{0,4299}$"}),
    "cells": {
        "anyOf": [{"type": ["number", "boolean", "string", "null"]}, ref("float"), listed(ref("cells"))]
    },
    "array": wrapped(
        "$array",
        listed(ref("cells")),
        dtype=DTYPE,
        shape={**listed({"type": "integer", "minimum": 0}), "minItems": 1},
    ),
    "table": wrapped("$table", pairs(TEXT, DTYPE, {"type": "array"})),
    "tuple": tupled(VALUE),
    "texts": tupled(TEXT),
    "integers": tupled({"type": "integer"}),
    "fractions": tupled(ref("fraction")),
    "numbers": tupled(NUMBER),
    "pair": tupled(NUMBER, 2),
    "pairs": tupled(ref("pair")),
    "integer-rows": tupled(ref("integers")),
    "vectors": tupled(ref("numbers")),
    "rational-rows": tupled(ref("fractions")),
    "items": wrapped("$items", pairs(VALUE, VALUE)),
    "callable": wrapped("$callable", TEXT),
    "law": wrapped(
        "$law",
        TEXT,
        args=listed({"anyOf": [NUMBER, {"type": "boolean"}, ref("array")]}),
        kwds=wrapped("$items", pairs(TEXT, NUMBER)),
    ),
    "value": {
        "anyOf": [
            {"type": ["null", "boolean", "number", "string"]},
            listed(VALUE),
            *map(ref, ("kind", "float", "fraction", "array", "table", "tuple", "items", "law", "callable")),
        ]
    },
}


def ranged(word: str) -> dict[str, Any]:
    """The schema of a number between two ends."""
    if ".." in word:
        least, most = word.split("..")
        return {"type": "integer", "minimum": int(least)} | ({"maximum": int(most)} if most else {})
    low, high = map(float, word[1:-1].split(","))
    ends = (
        "minimum" if word[0] == "[" else "exclusiveMinimum",
        "maximum" if word[-1] == "]" else "exclusiveMaximum",
    )
    return {"type": "number", ends[0]: low, ends[1]: high}


def schema(line: str) -> dict[str, Any]:
    """The schema of one member."""
    held = line.split("|")
    kinds, named = ([w[1:] for w in held if w[0] == "@"], [w.strip("'") for w in held if w[0] == "'"])
    parts = [ranged(w) if w[0] in "[(" or ".." in w else WORDS[w] for w in held if w[0] not in "@'"]
    if kinds:
        parts.append({"required": ["$kind"], "properties": {"$kind": {"enum": kinds}}, **ref("kind")})
    if named:
        parts.append({"enum": named})
    return parts[0] if len(parts) == 1 else {"anyOf": parts}


def schema_text() -> str:
    """The file, a line for each definition."""
    kinds = {}
    for kind, held in members().items():
        fields = {name: schema(line) for name, line in held.items()}
        kinds[kind] = {
            "type": "object",
            "required": sorted(fields),
            "properties": fields,
            "additionalProperties": False,
        }
    known = {
        "type": "object",
        "required": ["$kind", "fields"],
        "additionalProperties": False,
        "properties": {"$kind": {"enum": list(kinds)}, "fields": {"type": "object"}},
    }
    cases = [
        {
            "if": {"required": ["$kind"], "properties": {"$kind": {"const": kind}}},
            "then": {"properties": {"fields": ref(f"kinds/{kind}")}},
        }
        for kind in kinds
    ]
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "mechdesign result file, version 2",
        "description": "In prose: docs/format.md. Beyond this schema, readers refuse more than 2^26 characters, 100 levels or "
        "4300 digits a number, a checksum that does not match, and a key that stands twice.",
        "type": "object",
        "required": ["format", "version", "sha256", "payload"],
        "additionalProperties": False,
        "properties": {
            "format": {"const": "mechdesign-result"},
            "version": {"type": "integer", "const": 2},
            "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            "payload": ref("kind"),
        },
    }

    def lines(members: dict[str, Any], indent: int) -> str:
        return ",\n".join(
            f"{' ' * indent}{json.dumps(name)}: {json.dumps(inner)}" for name, inner in members.items()
        )

    listed_cases = ",\n".join(f"    {json.dumps(case)}" for case in cases)
    return (
        f'{{\n{lines(head, 1)},\n "$defs": {{\n{lines(SHARED, 2)},\n  "kind": {{\n{lines(known, 3)},\n   "allOf": [\n'
        f'{listed_cases}\n   ]\n  }},\n  "kinds": {{\n{lines(kinds, 3)}\n  }}\n }}\n}}\n'
    )


def index_text() -> str:
    """The kinds and laws of every module, and what the members of a kind may be: a line for each."""
    modules = []
    for module, kinds in declared().items():
        held = (f"  {json.dumps(kind)}: {json.dumps(members().get(kind, {}))}" for kind in kinds)
        modules.append(f" {json.dumps(module)}: {{\n" + ",\n".join(held) + "\n }")
    return "{\n" + ",\n".join(modules) + "\n}\n"


def format_text() -> str:
    """The page of the format with its table of kinds."""
    rows = ["| kind | members |", "|---|---|"]
    for kind, held in members().items():
        said = (f"`{name}` {line.replace('@', '').replace('|', ' or ')}" for name, line in held.items())
        rows.append(f"| `{kind}` | {', '.join(said) or 'none'} |")
    before, _, rest = FORMAT.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n\n" + "\n".join(rows) + f"\n\n{END}{rest.partition(END)[2]}"


BEGIN, END = "<!-- kinds: written by tests/evidence/kinds.py -->", "<!-- end of kinds -->"
TEXTS = {INDEX: index_text, PATH: schema_text, FORMAT: format_text}


if __name__ == "__main__":
    for path, text in TEXTS.items():
        path.write_text(text(), encoding="utf-8")

r"""The JSON Schema of result files, written from one line for each kind of saved object.

    cd tests && python -m evidence.kinds

writes `mechdesign/evidence/result.schema.json` and the members that `mechdesign.verifier.members` knows anew; tests compare them. A line names every member of a kind and what it
may be: ``num`` (∞ and NaN included), ``pos`` and ``nn`` (positive, not negative), ``count``, ``flag``, ``text``, ``frac``, ``arr`` (an
array), ``table``, ``law``, ``fun`` (a function that was not stored), tuples ``nums``, ``ints``, ``fracs``, ``texts``, ``pair`` and rows of
them (``vectors`` of ``nums``), ``@kind``, ``'word'``, ``any``; ``|`` is or, a ``?`` at the end: or null.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mechdesign.evidence
from mechdesign.evidence.classes import Scope
from mechdesign.typing import Status

PATH = Path(mechdesign.evidence.__file__).with_name("result.schema.json")
MEMBERS = Path(mechdesign.evidence.__file__).parents[1] / "verifier" / "members.py"
GROUPS = {
    "prior": ["prior-law", "prior-clipped", "prior-truncated", "prior-samples"],
    "notion": [
        "pure-dp",
        "approximate-dp",
        "zcdp",
        "metric-dp",
        "gaussian-dp",
        "membership-advantage",
        "trade-off",
    ],
    "exact": ["block-fill-law", "selection-law", "rational-table"],
}

# fmt: off
KINDS: dict[str, str] = {
    "additive-noise": "law:law, sensitivity:pos|@sensitivity, dimension:count, rounds:count, sampling_rate:pos",
    "allocation-proof": "multiplier:nn, prices:nums?, held:'l1'|'l2'|null, mix:arr|null, changes:arr|null, weights:arr|null",
    "alphabet": "max_abs:pos, step:pos",
    "amplification": "epsilon:num, delta:num, divergence:num, accounting:text",
    "approximate-dp": "epsilon:pos, delta:nn",
    "biased-proof": "",
    "biased-quantizer": "selection:@selection, beta:num, input_range:pair",
    "biased-selection": "m:count, privacy:@pure-dp, prior:@prior, loss:@loss, max_bias:num, grid:@grid?, input_range:pair?",
    "bin-search": "m:count, max_abs:num, symmetric:flag|null, starts:count, exhaustive:flag, seed:count",
    "block-fill-law": "bins:fracs, floors:fracs, rho:frac, lower:frac, upper:frac",
    "bounded-count": "n:count, privacy:@pure-dp|@approximate-dp, loss:any, sensitivity:count, prior:arr|null, neighbours:'add-remove'|'replace'",
    "bounded-dual": "triples:arr, multipliers:arr, weights:arr|null",
    "bounded-proof": "",
    "calibration": "noise:any, privacy:@notion, sensitivity:any, dimension:count, loss:'squared'|'absolute', rounds:count, sampling_rate:pos",
    "calibration-bound": "share:nn",
    "calibration-proof": "spent:@delta-interval",
    "cell-law-proof": "",
    "cell-noise": "weights:ints, width:pos, start:num, cells_per_shift:count, spike:count, spike_width:nn, decay:frac, spans:ints",
    "cell-product": "law:@cell-noise|@integer-noise, dimension:count, l0:count?",
    "certificate": "question:any, law:any, value:num, lower_bound:num?, proofs:any",
    "channel": "matrix:arr, space:@metric-space?, weights:irows|null",
    "channel-dual": "triples:arr, multipliers:arr, free:arr|null",
    "channel-proof": "distances:arr",
    "clustered-response": "space:@metric-space, alpha:pos",
    "correlated-gaussian": "vectors:any, privacy:@notion, weights:any, span:flag, neighbours:'add-remove'|'replace'",
    "correlated-gaussian-proof": "multipliers:arr",
    "correlated-gaussian-noise": "covariance:arr, budget:num?, coordinates:ints|null, lift:any, whitening:arr|null",
    "counts-proof": "multipliers:arr",
    "counts-gaussian": "counts:count, l0:count, privacy:@notion, most:pos, signed:flag, neighbours:'add-remove'|'replace'",
    "delta-interval": "lower:nn, upper:nn, how:'proved'|'recomputed'",
    "discrete-emd-privacy": "alpha:pos, radius:pos, delta:nn, model:text, sizes:text",
    "dual-pieces": "pieces:arr, multipliers:arr, origin:num, cap_price:nn, outputs:arr|null, between:flag",
    "emd-privacy": "alpha:pos, delta:nn, model:text, sizes:text",
    "erm": "m:count, privacy:@pure-dp, prior:@prior, loss:@loss, grid:@grid?, input_range:pair?",
    "frequency-estimate": "channel:any, space:@metric-space?, project:flag",
    "frequency-fit": "estimate:arr, histogram:arr, error_bound:num, space:@metric-space, reports:count, standard_errors:arr",
    "frontier": "design:any, over:text, table:table, results:any",
    "gaussian-dp": "mu:pos",
    "grid": "axes:items",
    "hadamard-response": "items:count, epsilon:pos",
    "independent-noise": "noise:'gaussian'|'laplace', scales:arr, sensitivities:arr|null, bounds:@sensitivity?",
    "integer-noise": "weights:ints, first:int, change:count, decay:frac",
    "integer-table": "knots:arr, counts:arr, bins:arr",
    "lattice-dual": "cells:count, shifts:arr, psi:arr, totals:arr, mirrored:flag",
    "item-privacy": "alpha:pos",
    "itemwise-release": "space:@metric-space, delta:nn, items:count, users:count, model:text, radius:num?, accounting:text, channel:any",
    "knorm": "dimension:count, privacy:@notion, sensitivity:pos|@sensitivity|vectors, norm:num?, loss:'squared'|'absolute', rounds:count, neighbours:'add-remove'|'replace'",
    "knorm-noise": "dimension:count, scale:pos, norm:num, largest:num?, gamma:num?, cap:num?, signed:flag, widths:nums|null, vertices:vectors|null, simplices:irows|null",
    "knorm-proof": "",
    "result": "design:any, mechanism:any, value:num, lower_bound:num?, solver_report:@solve-report, notes:texts, proofs:any, duals:table?, table:table|null, asked_gap:nn?, bound_class:scope?",
    "laplace-histogram": "space:@metric-space, epsilon:pos, users:count, project:flag",
    "linear-query": "space:@metric-space, values:arr, name:text",
    "linear-release": "query:@linear-query, alpha:pos, model:text, users:count, norm:num, gaussian:flag, delta:nn",
    "local-workload": "workload:@workload, privacy:@pure-dp, data:'average'|'worst', outputs:count|null",
    "loss": "absolute:nn, squared:nn, function:fun|null",
    "matrix-proof": "multipliers:any",
    "matrix-mechanism": "workload:@workload, privacy:@notion, l0:count, most:pos, signed:flag, loss:'total'|'largest', participation:@participation?, neighbours:'add-remove'|'replace'",
    "membership-advantage": "eta:pos",
    "metric-bound": "multipliers:arr|null, pairs:arr|null, places:arr|null, knots:count|null",
    "metric-proof": "",
    "metric-channel": "space:@metric-space, alpha:pos, prior:arr|null, loss:text|arr, spanner:num?, unbiased:any, decoder:any",
    "metric-dp": "epsilon:pos, metric:text|fun",
    "metric-quantizer": "bins:nums, privacy:@notion, prior:@prior, loss:@loss, objective:'mean'|'worst', inputs:nums|null, input_range:pair",
    "metric-space": "kind:text, matrix:arr|null, points:arr|null, unit:text, shape:ints, within:num?, across:num?, parents:any, lengths:any, leaves:any, names:texts",
    "mixed-noise": "scales:arr, laplace:arr, sensitivities:arr",
    "mixed-proof": "",
    "mvu": "m:count, privacy:@pure-dp, input_range:pair?, prior:@prior?, loss:@loss, bins:nums|null, input_bits:count, max_abs:num?",
    "named-law-proof": "",
    "noise-allocation": "noise:'gaussian'|'laplace'|'mixed', sensitivities:arr, privacy:@notion, loss:num, weights:num|arr|null, lower:num|arr|null, upper:num|arr|null, groups:any, bounds:@sensitivity?, accounting:'exact'|'corollary6', neighbours:'add-remove'|'replace'",
    "optimal-noise": "privacy:@pure-dp|@approximate-dp|@membership-advantage|@trade-off, sensitivity:pos, loss:any, dimension:count, l0:count?, integer:flag, neighbours:'add-remove'|'replace'",
    "optimal-quantizer": "bins:nums|@alphabet|@bin-search, privacy:@pure-dp, prior:@prior, loss:@loss, objective:'mean'|'worst', max_bias:nn, max_mse:num?, input_range:pair",
    "optm": "bins:nums, privacy:@pure-dp, prior:@prior, loss:@loss, bounds:any, constraints:'theorem5'|'theorem6'|'across-outputs', families:'auto'|'symmetric'|'separate', input_range:pair",
    "optm-search": "bins:any, privacy:@pure-dp, prior:@prior, loss:@loss, levels:any, constraints:'theorem5'|'theorem6'|'across-outputs', families:'auto'|'separate', judge:'loss'|'objective', input_range:pair",
    "priv-unit": "dimension:count, privacy:@pure-dp, inputs:'ball'|'sphere', radius:pos",
    "participation": "times:count, apart:count?, every:count?, fewer:flag",
    "prior-clipped": "law:law, lower:num, upper:num",
    "prior-law": "law:law",
    "prior-moments": "cells:ints, spans:ints, masses:ints",
    "prior-samples": "samples:arr",
    "prior-truncated": "law:law, lower:num, upper:num",
    "pure-dp": "epsilon:pos",
    "queries": "kind:'identity'|'total'|'prefix'|'ranges'|'matrix', size:count, matrix:arr|null",
    "quantizer": "bins:arr, knots:arr, starts:arr, ends:arr, selection:@selection?, law:@exact?",
    "quantizer-dual-bound": "duals:@dual-pieces, moments:@prior-moments?",
    "quantizer-law-proof": "",
    "quantizer-value-proof": "moments:@prior-moments?",
    "rational-table": "bins:fracs, knots:fracs, starts:rows, ends:rows",
    "reduced-release": "mechanism:@itemwise-release|@linear-release, radius:num, failure:num, samples:count?",
    "rqm": "m:count, privacy:@pure-dp, prior:@prior, loss:@loss, grid:@grid?, input_range:pair?",
    "sampled-coordinates": "dimension:count, bits:count?, privacy:@pure-dp, inputs:'box'|'ball', radius:pos, count:count?, coordinate:@quantizer?",
    "sampled-lattice-dual": "cells:count, shifts:arr, psi:arr, totals:arr, mirrored:flag",
    "sampled-signs": "dimension:count, bits:count, privacy:@pure-dp, radius:pos",
    "sampled-subset-bound": "mean:count, privacy:@pure-dp|@approximate-dp|@membership-advantage|@trade-off, dual:@lattice-dual|@sampled-lattice-dual|@staircase-dual",
    "sampling-reduction": "alpha:pos, radius:num, samples:count, failure:num, delta:nn, diameter:num, model:text",
    "selection": "bins:arr, left:any, right:any",
    "selection-law": "bins:fracs, left:irows, right:irows, lower:frac, upper:frac",
    "sensitivity": "linf:num?, l1:num?, l2:num?, l0:count?, each:nums|null, neighbours:'add-remove'|'replace', signed:flag",
    "staircase-dual": "level:frac, periods:count",
    "subset-bound": "mean:count, privacy:@pure-dp|@approximate-dp|@membership-advantage|@trade-off, dual:@lattice-dual|@sampled-lattice-dual|@staircase-dual",
    "symmetric-bound": "",
    "accuracy": "standard_deviation:num, absolute_error:num, half_width:num",
    "comparison": "question:@numeric-query|@local-report|@metric-report|@category-report|@histogram-of-users, privacy:@notion|@emd-privacy, table:table, results:items, least:num?, least_name:text",
    "histogram-bound": "",
    "linear-bound": "inverse:arr, prices:arr, prior:arr|null, squares:arr|null, products:arr|null, slack:nn",
    "linear-proof": "",
    "subset-report": "workload:@workload, sizes:ints, shares:ints, levels:ints",
    "linear-report": "workload:@workload, weights:irows, prior:arr|null",
    "category-report": "workload:@workload, categories:count, people:count, data:'average'|'worst'",
    "local-report": "bits:count, input_range:pair?, prior:any, loss:@loss, clients:count?",
    "histogram-of-users": "space:@metric-space, items:count, users:count",
    "tree-histogram": "space:@metric-space, items:count, users:count, parents:ints, losses:ints",
    "user-histogram": "space:@metric-space, privacy:@emd-privacy, items:count, users:count, by:'tree'|'linear'|'gaussian'|'itemwise'|null",
    "user-histogram-proof": "how:'proved'|'recomputed'",
    "metric-report": "space:@metric-space, prior:any, loss:text|arr",
    "numeric-query": "dimension:count, sensitivity:@sensitivity|num|arr|nums|vectors, loss:any, rounds:count, sampling_rate:num, integer:flag",
    "solve-report": "solver:text, status:status, seconds:num, build_seconds:num, variables:count?, constraints:count?, iterations:count?, requested:text?, fallbacks:texts",
    "random-directions": "dimension:count, bits:count, privacy:@pure-dp, messages:count, inputs:'ball'|'sphere', radius:pos",
    "sphere-quantizer": "dimension:count, bits:count, privacy:@pure-dp, inputs:'ball'|'sphere', radius:pos, rotation:'exact'|'fast'",
    "strategy-noise": "workload:@workload, strategy:arr, budget:pos",
    "trade-off": "points:pairs",
    "vector-design": "dimension:count, privacy:@pure-dp, bits:count?, inputs:'ball'|'sphere'|'box', radius:pos, rotation:'exact'|'fast'",
    "vector-quantizer": "coordinate:@quantizer, dimension:count, scale:num",
    "vector-proof": "",
    "count-task": "contribution:count, whole:flag",
    "histogram-task": "bins:count, contribution:count|@sensitivity, whole:flag",
    "mean-task": "lower:num, upper:num, n:count",
    "sum-task": "clip:pos|nums, values:@prior|null, n:count?, whole:flag",
    "plan": "tasks:items, privacy:@notion, weights:items|null, targets:items|null, rounds:count, neighbours:'add-remove'|'replace', disjoint:any, families:texts",
    "plan-bound": "prices:nums",
    "plan-proof": "spent:@delta-interval",
    "planned-release": "tasks:items, noises:any, neighbours:'add-remove'|'replace', disjoint:any",
    "workload": "blocks:any, name:text",
    "workload-task": "workload:@workload, strategies:any",
    "zcdp": "rho:pos, xi:nn",
}
# fmt: on

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
ENUMERATED: dict[str, Any] = {"status": Status, "scope": Scope}
WORDS: dict[str, Any] = {
    "num": NUMBER, "count": {"type": "integer", "minimum": 0}, "int": {"type": "integer"}, "text": TEXT, "flag": {"type": "boolean"},
    "frac": ref("fraction"), "any": VALUE, "arr": ref("array"), "table": ref("table"), "law": ref("law"),
    "fun": ref("callable"), "items": ref("items"), "null": {"type": "null"}, "pos": {"type": "number", "exclusiveMinimum": 0},
    "nn": {"type": "number", "minimum": 0}, "nums": ref("numbers"), "fracs": ref("fractions"), "texts": ref("texts"),
    "ints": ref("integers"), "pair": ref("pair"), "pairs": ref("pairs"), "rows": ref("rational-rows"), "irows": ref("integer-rows"), "vectors": ref("vectors"),
    **{word: {"enum": [str(named.value) for named in kind]} for word, kind in ENUMERATED.items()},
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


def member(line: str) -> dict[str, Any]:
    """The schema of one member."""
    words = [*line.rstrip("?").split("|"), *(["null"] if line.endswith("?") else [])]
    kinds = [k for w in words if w[0] == "@" for k in GROUPS.get(w[1:], [w[1:]])]
    named = [w.strip("'") for w in words if w[0] == "'"]
    parts = [WORDS[w] for w in words if w[0] not in "@'"]
    if kinds:
        parts.append({"required": ["$kind"], "properties": {"$kind": {"enum": kinds}}, **ref("kind")})
    if named:
        parts.append({"enum": named})
    return parts[0] if len(parts) == 1 else {"anyOf": parts}


def schema_text() -> str:
    """The file, a line for each definition."""
    kinds = {}
    for kind, line in KINDS.items():
        members = dict(part.split(":", 1) for part in line.split(", ") if part)
        fields = {name: member(what) for name, what in members.items()}
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


def spelled(line: str) -> str:
    """What a member may be, with groups, statuses and "or null" written out."""
    words = [*line.rstrip("?").split("|"), *(["null"] if line.endswith("?") else [])]
    found = []
    for word in words:
        found += [f"@{kind}" for kind in GROUPS.get(word[1:], [word[1:]])] if word[0] == "@" else []
        found += [f"'{named.value}'" for named in ENUMERATED.get(word, ())]
        found += [word] if word[0] != "@" and word not in ENUMERATED else []
    return "|".join(found)


def members_lines() -> str:
    """The members of every kind and what each may be."""
    lines = ""
    for kind, line in sorted(KINDS.items()):
        members = dict(part.split(":", 1) for part in line.split(", ") if part)
        inner = ", ".join(
            f"{json.dumps(name)}: {json.dumps(spelled(what))}" for name, what in members.items()
        )
        lines += f"    {json.dumps(kind)}: {{{inner}}},\n"
    return lines


def members_text() -> str:
    """The module of the stand-alone verifier that knows every kind's members."""
    return (
        '"""What a file says of each kind of object, no less and no more, and what each member may be.\n\n'
        "Written by `tests/evidence/kinds.py`, whose words these are; `mechdesign.verifier.reading` says what they mean.\n"
        '"""\n\n'
        f"# fmt: off\nMEMBERS: dict[str, dict[str, str]] = {{\n{members_lines()}}}\n"
    )


if __name__ == "__main__":
    PATH.write_text(schema_text())
    MEMBERS.write_text(members_text())

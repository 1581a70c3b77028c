"""Forged files of every kind, sealed anew: both checkers refuse, find a claim that does not hold, or nothing of meaning changed."""

from __future__ import annotations

import copy
import functools
import json
import math
import random
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import cheap
import numpy as np
import pytest
from campaign import files, mutations, trees
from campaign.doctorings import DOCTORINGS

import mechdesign as md
from mechdesign.errors import DesignError
from mechdesign.evidence.proofs import RowsBound
from mechdesign.evidence.results import OF_SEARCH
from mechdesign.evidence.serialize import KINDS, dumps, encode, kind_of, loads
from mechdesign.verifier import verify
from mechdesign.verifier.reading import DEPTH, MEMBERS, Reader

OBJECTS = [kind for kind in KINDS if not kind.startswith("law:")]


@functools.cache
def groups() -> dict[str, list[str]]:
    """Designs by their kind; what is alike in them is altered once."""
    found: dict[str, list[str]] = {}
    for name, (design, _) in files.DESIGNS.items():
        found.setdefault(kind_of(design()), []).append(name)
    return found


SEEN = "refused", "failed", "not covered"


def faults(name: str, payload: Any, *, known: bool = False) -> list[str]:
    """The checkers that believe another claim of a payload that was forged from the file of a design.

    Unless it is `known`, neither may accept that a file says less, or beside a line that says what it does not check, where the other
    checker refuses it.
    """
    ended = mutations.verdicts(name, cheap.sealed(payload))
    wrong = (
        {"FAULT"} if known or not {*ended.values()} & {"refused", "failed"} else {"FAULT", "less", "claimed"}
    )
    return [f"{checker}: {found}" for checker, found in ended.items() if found.partition(":")[0] in wrong]


def class_or_status(name: str, payload: Any) -> list[str]:
    """The checkers that believe another class of a bound, or a status that says more."""
    ended = mutations.verdicts(name, cheap.sealed(payload))
    more = payload["fields"]["solver_report"]["fields"]["status"] in ("optimal", "best of its class")
    more = more or payload["fields"]["bound_class"] != files.payload(name)["fields"]["bound_class"]
    return [f"{checker}: {found}" for checker, found in ended.items() if more and found not in SEEN]


TRUE = {
    "mechanism.query.name ~": "a word",
    "design.spread ~": "a spread that is stated, whose loss is computed anew",
    "mechanism.delta -": "an item-wise release of a smaller delta, whose alpha is computed anew",
    "design.neighbours ~": "what one record does, which no file proves: printed as stated",
    "design.privacy.delta +": "a calibration for a larger delta, whose bound is computed anew",
    "mechanism.law.weights (length) ~": "whole-number noise of fewer weights, which proves all that it claims",
    "mechanism.beta +": "another law of a biased selection, as private and as good to ten digits",
}
"""Leaves of which another value, too, is true."""
CLAIMED = {
    r"design\.privacy\.(epsilon|delta|rho|xi) \+|design\.privacy\.points.*": "the bound beside a larger budget",
    r"design\.(changes\.)?(most|participation\.times|loss\.absolute) -|design\.changes\.signed ~": "the bound beside a question that asks for less",
    r"lower_bound \+": "the bound of a metric quantizer",
    r"design\.box ~": "where a search looked",
    r"design\.prior\..*": "the moments of a law",
    r"design\.(targets\..* \+|weights\..*|tasks\..*)|mechanism\.noises\[\]\.law\.args\[\] -": "the bound of a plan, and the bias of its clips",
    r"mechanism\.(channel\..*|alpha \+)": "alpha after shuffling",
}
"""Leaves of which the verifier says that it does not check what rests on them, and the package does."""
LESS = {("biased-selection", "value +")}
"""A value that is not the least that is true: the package wants that of the law."""


LONG = (
    "vector-design", "calibration", "joint-calibration", "metric-quantizer", "biased-selection", "selection-problem", "optm-search",
    "knorm", "noise-allocation", "rqm", "scales-problem",
)  # fmt: skip
"""Kinds whose checks take long, one for each of many leaves."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in LONG)) for kind in groups()]
)
def test_no_leaf_is_altered_unseen(kind: str) -> None:
    """A value down, a bound up, a budget down, a probability moved, a list cut, a word changed."""
    seen: set[tuple[str, str, str]] = set()
    for name in groups()[kind]:
        payload = files.payload(name)
        law = payload["fields"]["mechanism"]["$kind"]  # of one question there may be checks of several
        for leaf in trees.leaves(payload):
            if (*leaf[:2], law) in seen:
                continue
            seen.add((*leaf[:2], law))
            rng = random.Random(f"{name}/{leaf.name}")
            made = [*trees.alterations(rng, payload, leaf)]
            many = "[]" in leaf.name or leaf.name.startswith("proofs")
            for sign, altered in [rng.choice(made)] if many else made:
                what = f"{leaf.name} {sign}"
                known = (name, what) in LESS or any(re.fullmatch(pattern, what) for pattern in CLAIMED)
                if leaf.name in ("bound_class", "solver_report.status"):
                    assert class_or_status(name, altered) == [], what
                assert what in TRUE or faults(name, altered, known=known) == [], what
    assert len(seen) > 15


def costing(payload: Any, value: float, bound: float) -> Any:
    """The same mechanism, said to cost so many times as much, and to be bounded by so many times its value."""
    fields = payload["fields"]
    least = fields["lower_bound"] and bound * fields["value"]
    return {**payload, "fields": {**fields, "value": value * fields["value"], "lower_bound": least}}


OBJECTIVES = {
    "table-problem": ("expected squared error, over a uniform prior", "expected absolute error, at the worst input"),
    "covariance-problem": ("largest variance",),
    "lattice-problem": ("expected absolute error",),
}  # fmt: skip


def in_units(node: Any, unit: float) -> Any:
    """Numbers of a bound times a unit."""
    if isinstance(node, dict) and "$fraction" in node:
        return encode(Fraction(node["$fraction"]) * Fraction(unit))
    if isinstance(node, list | dict):
        return (
            [in_units(v, unit) for v in node]
            if isinstance(node, list)
            else {k: in_units(v, unit) for k, v in node.items()}
        )
    return node * unit if type(node) is float else node


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_words_of_an_objective_have_its_coefficients(kind: str) -> None:
    """Neither other words of the package, nor the same beside costs, value, bound and multipliers in another unit; an author's own are claimed."""
    payload = files.payload(kind)
    design = payload["fields"]["design"]["fields"]
    for words in OBJECTIVES[kind]:
        forged = trees.put(payload, ("fields", "design", "fields", "objective"), words)
        assert not files.package_accepts(forged) and not files.alone_accepts(forged), words
    bound, small = ("proofs", "$tuple", 1, "fields"), payload
    of = ["factor"] * (kind == "covariance-problem")
    for part in (
        ("value",),
        ("lower_bound",),
        ("design", "fields", "cost"),
        (*bound, "multipliers"),
        *((*bound, x) for x in of),
    ):
        unit = 1 / 8 if part[-1] == "factor" else 1 / 64
        small = trees.put(small, ("fields", *part), in_units(trees.at(payload, ("fields", *part)), unit))
    for words, ends in ((design["objective"], {"failed", "refused"}), ("my own", {"claimed"})):
        forged = trees.put(small, ("fields", "design", "fields", "objective"), words)
        assert {*mutations.verdicts(kind, cheap.sealed(forged)).values()} <= ends, words


SAID_ALIKE = {
    r"design\.(grid|bins|boxes)\.axes.*": "where a search looked, which bounds its class only",
    r"design\.prior\..*": "the moments of a law, and what a histogram says by itself",
    r"(design|mechanism)\.candidates": "numbers, which the package puts in order and takes once",
    r"design\.privacy\.points": "points, of which the verifier takes each once",
    r"proofs\[\]\.given\[\]\[\]": "weights of more changes than the verifier lists: the bound is claimed",
    r"mechanism\.(units|noises)\[\]\.law\.kwds": "a scale of 1, which a law has by itself",
    r"design\.tasks\[\]\[\]\.(clip|strategies)": "what is offered beside what is chosen",
}
"""Lists of which another one says the same, or says it to one checker."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in (*LONG, "plan"))) for kind in groups()]
)
def test_no_list_is_cut_unseen(kind: str) -> None:
    """Emptied, shorter by one, one element twice: both checkers find it, or both that the file says what it said.

    No check is left out for want of what it is of: beside an empty list nothing costs half as much.
    """
    seen: set[tuple[str, str]] = set()
    for name in groups()[kind]:
        payload = files.payload(name)
        law = payload["fields"]["mechanism"]["$kind"]
        for what, path in trees.lists(payload).items():
            if (what, law) in seen:
                continue
            seen.add((what, law))
            emptied = trees.resized(costing(payload, 0.5, 0.5), path, [])
            assert not files.alone_accepts(emptied) and not files.package_accepts(emptied), what
            if any(re.fullmatch(pattern, what) for pattern in SAID_ALIKE):
                continue
            values = trees.at(payload, path)
            for cut in trees.cuts(values, random.Random(what).randrange(len(values))):
                ended = mutations.verdicts(name, cheap.sealed(trees.resized(payload, path, cut)))
                found = {"refused" if end == "failed" else end for end in ended.values()} - {"not covered"}
                assert len(found) < 2 and not {*found} & {"FAULT: accepted", "claimed"}, (what, ended)


@pytest.mark.parametrize("kind", groups())
def test_what_is_empty_is_not_what_is_missing(kind: str) -> None:
    empty = {"$array": [], "dtype": "float64", "shape": [0]}
    for name in groups()[kind][:2]:
        payload = files.payload(name)
        for leaf in trees.leaves(payload):
            if trees.at(payload, leaf.path) is None and leaf.name != "design.box":  # where a search looked
                forged = trees.put(payload, leaf.path, empty)
                assert not files.package_accepts(forged) and not files.alone_accepts(forged), leaf.name


NOT_ASKED = "design.prior.", "design.grid", "design.box", "design.bins.", "design.levels"


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in (*LONG, "plan"))) for kind in groups()]
)
def test_a_question_that_no_design_asks_is_none(kind: str) -> None:
    """Numbers of another sign or size, of no size, or of another type, words that are none, lists cut or repeated: what the package
    refuses to read, because a member is none or because members do not stand together, the verifier does not believe.

    But for priors, whose moments it claims, and which a worst case does not depend on, and for where a search looked.
    """
    seen: set[tuple[str, str]] = set()
    for name in groups()[kind]:
        payload = files.payload(name)
        as_written = mutations.originals()[name][1]
        for leaf in trees.leaves(payload):
            value = trees.at(payload, leaf.path)
            tagged = leaf.path[-1] in ("$fraction", "$float") or not leaf.name.startswith("design.")
            if leaf[:2] in seen or tagged or leaf.name.startswith(NOT_ASKED):
                continue
            seen.add(leaf[:2])
            others = trees.ELSEWHERE[type(value)](value)
            others += [value == 1] if type(value) is int and value in (0, 1) else []
            for other in others:
                text = cheap.sealed(trees.resized(payload, leaf.path, other))
                try:
                    loads(text)
                except md.MechdesignError:
                    assert mutations.outcome_alone(text, as_written) in SEEN, leaf.name


def test_rows_of_the_program_that_a_search_left_are_claimed() -> None:
    """They stand in the file, and an audit shows them beside rows that are computed anew."""
    payload = files.payload("optm-beta")
    table = {name: values for name, _, values in payload["fields"]["duals"]["$table"]}
    table["slack"][0], table["dual"][0] = 1.0, 12345.0
    text = cheap.sealed(payload)
    for result, claimed in ((loads(text), True), (files.solved("optimal-quantizer"), False)):
        checks = result.checks()
        assert (OF_SEARCH in checks["claim"].tolist()) == claimed and checks["holds"].all()
        assert checks["how"][checks["claim"] == OF_SEARCH].tolist() == ["claimed"] * claimed
        rows = verify.verify(dumps(result)).rows
        assert ((OF_SEARCH, "claimed", True) in rows) == claimed


@pytest.mark.parametrize("name", ["plan", "plan-normal"])
def test_noise_of_a_plan_is_for_the_changes_of_its_tasks(name: str) -> None:
    """Neither for smaller ones, which would consume less, nor for larger ones, or in other directions: the tasks say what changes."""
    payload = files.payload(name)
    for k, noise in enumerate(payload["fields"]["mechanism"]["fields"]["noises"]["$tuple"]):
        place = ("fields", "mechanism", "fields", "noises", "$tuple", k, "fields", "sensitivity", "fields")
        said = noise["fields"]["sensitivity"]["fields"]
        linf = said["linf"]
        for member, other in (("linf", linf / 2), ("linf", linf * 1.000001), ("signed", not said["signed"])):
            forged = trees.put(payload, (*place, member), other)
            assert not files.package_accepts(forged) and not files.alone_accepts(forged), (k, member)


def test_a_plan_keeps_its_budget_by_its_noise() -> None:
    """Not by an enclosure that is smaller by as much as the budget."""
    payload, given = files.payload("plan"), ("fields", "proofs", "$tuple", 0, "fields", "given", "fields")
    for path in ((*QUESTION, "privacy", "fields", "epsilon"), (*given, "lower"), (*given, "upper")):
        payload = trees.put(payload, path, trees.at(payload, path) / 2)
    assert not files.alone_accepts(payload) and not files.package_accepts(payload)


KNOWING = (
    "value and bound better", "bound raised", "called optimal", "budget smaller throughout",
    "question of another file", "mechanism of another file", "mechanism and value of another file", "proofs of another file",
    "one proof of another file", "bound and proofs of another file", "question and bound of another file",
)  # fmt: skip


@pytest.mark.parametrize("kind", groups())
def test_parts_of_two_files_make_no_third(kind: str) -> None:
    """And none is improved by one who knows the format; the other file is of the same kind of design where there are two."""
    first, *others = [*groups()[kind][:2], "optimal-quantizer", "noise-allocation"]
    payload, other = files.payload(first), files.payload(next(name for name in others if name != first))
    for doctoring in KNOWING:
        if (kind, doctoring) == ("optm-search", "bound and proofs of another file"):
            continue  # a bound of mechanisms with the outputs found: the verifier proves it in these words, the package wants more
        forged = DOCTORINGS[doctoring](random.Random(f"{first}/{doctoring}"), payload, other)
        assert faults(first, forged, known=True) == [], doctoring


@pytest.mark.parametrize("kind", groups())
def test_no_multiplier_proves_a_bound_that_is_false(kind: str) -> None:
    """Whatever number of the proofs becomes absurd."""
    for name in groups()[kind][:2]:
        payload = files.payload(name)
        if payload["fields"]["lower_bound"] is None:
            continue
        forged = costing(payload, 2, 1.9)
        assert not files.package_accepts(forged)
        for leaf in trees.leaves(payload):
            value = trees.at(payload, leaf.path)
            if leaf.name.startswith("proofs") and type(value) in (int, float):
                for absurd in (1e308, -1e308, 5e-324):
                    assert not files.package_accepts(trees.put(forged, leaf.path, absurd)), leaf.name


# -- of every kind of object -------------------------------------------------------------------------------------------


def refused_by_both(text: str) -> None:
    with pytest.raises(md.ResultFormatError) as refusal:
        loads(text)
    assert "\n" not in str(refusal.value)
    with pytest.raises((verify.Refused, verify.NotCovered)):
        verify.verify(text)


def damaged(payload: Any) -> Iterator[Any]:
    """Without each member, with one more, with one beside them, and of a kind that is none."""
    for name in payload["fields"]:
        yield {**payload, "fields": {k: v for k, v in payload["fields"].items() if k != name}}
    yield {**payload, "fields": {**payload["fields"], "further": 1}}
    yield {**payload, "beside": 1}
    yield {**payload, "$kind": "from-the-future"}
    yield {**payload, "$kind": [payload["$kind"]]}


@pytest.mark.parametrize("kind", OBJECTS)
def test_every_member_is_there_and_no_other(kind: str) -> None:
    payload = json.loads(cheap.documents()[kind])["payload"]
    for forged in damaged(payload):
        refused_by_both(cheap.sealed(forged))


@pytest.mark.parametrize("kind", OBJECTS)
def test_members_are_of_their_types(kind: str) -> None:
    """Or the parts of the file are said not to fit together: never a foreign exception."""
    payload = json.loads(cheap.documents()[kind])["payload"]
    rng = random.Random(kind)
    for name in payload["fields"]:
        other = copy.deepcopy(rng.choice([atom for atom in trees.ATOMS if atom != "\ud800"]))
        text = cheap.sealed(trees.put(payload, ("fields", name), other))
        for check in (read_and_checked, verify.verify):
            try:
                check(text)
            except (md.ResultFormatError, verify.Refused, verify.NotCovered) as error:
                assert "Error" not in str(error)


@pytest.mark.parametrize("kind", OBJECTS)
def test_numbers_are_within_their_ranges(kind: str) -> None:
    """What the package's own checks do not let in, such as δ = 1, the verifier does not read."""
    payload = json.loads(cheap.documents()[kind])["payload"]
    for name, words in MEMBERS[kind].items():
        for word in words.split("|"):
            for other in beyond(word):
                refused_by_both(cheap.sealed(trees.put(payload, ("fields", name), other)))


def beyond(word: str) -> list[float]:
    """Numbers next to those that a word allows."""
    if word == "some" or ".." in word:
        least, most = word.split("..") if ".." in word else ("1", "")
        return [int(least) - 1, *([int(most) + 1] if most else [])]
    if word[0] not in "[(":
        return []
    low, high = map(float, word[1:-1].split(","))
    return [
        math.nextafter(low, -1.0) if word[0] == "[" else low,
        math.nextafter(high, math.inf) if word[-1] == "]" else high,
    ]


def test_a_loss_is_of_something() -> None:
    for name in ("absolute", "squared"):
        payload = json.loads(cheap.documents()["loss"])["payload"]
        payload["fields"] |= {"absolute": 0.0, "squared": 0.0, name: 1.0}
        loads(cheap.sealed(payload))
        refused_by_both(cheap.sealed(trees.put(payload, ("fields", name), 0.0)))


def read_and_checked(text: str) -> None:
    found = loads(text)
    if isinstance(found, md.Result):
        assert not found.checks()["claim"].str.contains("Error").any()


# -- raw text ----------------------------------------------------------------------------------------------------------


def sound() -> str:
    return files.text("optimal-quantizer")


def doubled(text: str) -> str:
    return text.replace('"value":', '"value": 1.0, "value":', 1)


def laws(*named: Any, name: Any = "uniform", args: Any = ()) -> str:
    return cheap.sealed({"$law": name, "args": [*args], "kwds": {"$items": [*named]}})


RAW: dict[str, str] = {
    "empty": "",
    "binary": "\x00\x01",
    "no object": "[]",
    "another document": '{"a": 1}',
    "truncated": sound()[: len(sound()) // 2],
    "a byte order mark": "\ufeff" + sound(),
    "edited, not sealed": sound().replace("0.5", "0.25", 1),
    "another checksum": sound().replace(json.loads(sound())["sha256"], "0" * 64),
    "an older version": sound().replace('"version": 2', '"version": 1', 1),
    "a version in doubles": sound().replace('"version": 2', '"version": 2.0', 1),
    "a version that is true": sound().replace('"version": 2', '"version": true', 1),
    "another format": sound().replace("mechdesign-result", "mechdesign-ledger", 1),
    "a further part": sound().replace('"format":', '"signed": "by nobody", "format":', 1),
    "a key twice": doubled(sound()),
    "a key of the envelope twice": sound().replace('"version": 2', '"version": 2, "version": 2', 1),
    "NaN": sound().replace('"value":', '"value": NaN, "was":', 1),
    "infinity": sound().replace('"value":', '"value": -Infinity, "was":', 1),
    "an integer of many digits": '{"a": ' + "9" * 5000 + "}",
    "many levels of lists": "[" * 100_000,
    "many levels of objects": '{"a":' * 50_000,
    "levels in a sealed file": cheap.sealed(functools.reduce(lambda v, _: [v], range(DEPTH + 1), 0)),
    "too many characters": " " * (2**26 + 1),
    "half of a surrogate pair": sound().replace('"notes":', '"\\ud800": 1, "notes":', 1),
    "a fraction over nothing": cheap.sealed({"$fraction": "1/0"}),
    "a fraction of many digits": cheap.sealed({"$fraction": "9" * 5000 + "/1"}),
    "a fraction in decimals": cheap.sealed({"$fraction": "0.5"}),
    "a number as a text": cheap.sealed({"$float": "1e5"}),
    "two tags": cheap.sealed({"$float": "inf", "$fraction": "1/2"}),
"an array of another shape": cheap.sealed({"$array": [1.0], "dtype": "float64", "shape": [10**12]}),
    "a ragged array": cheap.sealed({"$array": [[1.0, 2.0], [1.0]], "dtype": "float64", "shape": [2, 2]}),
    "texts in an array": cheap.sealed({"$array": ["1"], "dtype": "float64", "shape": [1]}),
    "truth values in an array": cheap.sealed({"$array": [True], "dtype": "float64", "shape": [1]}),
    "truth values among numbers": cheap.sealed({"$tuple": [1, True]}),
    "an array of complex numbers": cheap.sealed({"$array": [1.0], "dtype": "complex128", "shape": [1]}),
    "a column twice": cheap.sealed({"$table": [["a", "float64", [1.0]], ["a", "float64", [1.0]]]}),
    "an item twice": cheap.sealed({"$items": [["a", 1], ["a", 2]]}),
    "a parameter of a law twice": laws(["scale", 0.01], ["scale", 2.0]),
    "a truth value in a law": laws(args=[True]),
    "a text in a law": laws(args=["a"]),
    "a number for a law": laws(name={"$fraction": "1/3"}),
    "what is no law": laws(name="test", args=[1.0]),
    "a module's name for a law": laws(name="__name__"),
}  # fmt: skip


@pytest.mark.parametrize("attack", RAW)
def test_hostile_text_is_refused(attack: str, tmp_path: Path) -> None:
    refused_by_both(RAW[attack])
    (tmp_path / "r.json").write_text(RAW[attack], encoding="utf-8")
    with pytest.raises(md.ResultFormatError):
        md.load(tmp_path / "r.json")


def test_what_no_check_uses_is_read_as_the_package_reads_it() -> None:
    pairs = {"$array": [], "dtype": "int64", "shape": [0, 3]}
    for kind, name, other in (("metric-dp", "metric", "cubed"), ("table-problem", "places", pairs)):
        payload = json.loads(cheap.documents()[kind])["payload"]
        with pytest.raises(verify.Refused, match=f"its {name} is none of"):
            Reader().read(cheap.sealed(trees.put(payload, ("fields", name), other)))


def test_a_file_calls_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr("scipy.stats.test", lambda *args: called.append(args), raising=False)
    for name in ("test", "rv_continuous", "make_distribution", "bootstrap"):
        law = {"$law": name, "args": [1.0], "kwds": {"$items": []}}
        refused_by_both(cheap.sealed({"$kind": "prior-law", "fields": {"law": law}}))
    assert called == []


# -- Bounds, laws and questions that are false in ways which no leaf alone makes


def test_shifts_beyond_the_sensitivity_prove_nothing() -> None:
    """One cell more is noise for a larger sensitivity."""
    larger = md.OptimalNoise(md.ApproximateDP(1.0, 0.2), sensitivity=4 / 3).solve(gap=0.05)
    proof = next(proof for proof in larger.proofs if isinstance(proof, RowsBound))
    cells, side = proof.given
    smaller = md.OptimalNoise(md.ApproximateDP(1.0, 0.2))
    with pytest.raises(DesignError, match="rows"):
        RowsBound(proof.rows, proof.multipliers, (cells * 3 // 4, side)).proved(smaller)


def claiming_nothing(payload: Any, kept: tuple[str, ...], **fields: Any) -> None:
    """Take the lower bound out, and all proofs but some kinds."""
    payload["fields"] |= {"lower_bound": None, "bound_class": None, **fields}
    payload["fields"]["solver_report"]["fields"]["status"] = "feasible"
    proofs = payload["fields"]["proofs"]
    proofs["$tuple"] = [proof for proof in proofs["$tuple"] if proof["$kind"] in kept]


def test_a_channel_answers_with_the_reports_that_are_asked_for() -> None:
    """A last report that costs nothing."""
    payload = files.payload("metric-channel")
    law = payload["fields"]["mechanism"]["fields"]
    n = law["matrix"]["shape"][0]
    law["weights"] = {"$tuple": [{"$tuple": [0] * n + [1]}] * n}
    law["matrix"].update({"$array": [[0.0] * n + [1.0]] * n, "shape": [n, n + 1]})
    claiming_nothing(payload, ("table-proof",), value=0.0)
    assert not files.alone_accepts(payload) and not files.package_accepts(payload)


def test_searched_outputs_lie_within_the_reach_that_is_asked_for() -> None:
    """Of the middle of the inputs, which need not be 0."""
    result = md.MVU(2, md.PureDP(1.0), (1.0, 3.0), max_abs=3.0).solve()
    payload = json.loads(dumps(result))["payload"]
    far = max(abs(b - 2.0) for b in result.mechanism.bins)
    for reach, holds in ((3.0, True), (far * (1 + 1e-11), True), (far * (1 - 1e-9), False)):
        forged = trees.put(payload, ("fields", "design", "fields", "max_abs"), reach)
        assert [accepts(forged) for accepts in files.ACCEPT.values()] == [holds] * 2, reach


@pytest.mark.parametrize(("parameters", "share"), [([-1, 4], 0.51), ([1, -2], 0.01)])
def test_a_prior_is_a_law_on_the_inputs(parameters: list[int], share: float) -> None:
    """What lies outside them would cost nothing."""
    payload = files.payload("optimal-quantizer")
    payload["fields"]["design"]["fields"]["prior"]["fields"]["law"]["args"] = parameters
    claiming_nothing(payload, ("quantizer-proof",), value=share * payload["fields"]["value"])
    assert not files.alone_accepts(payload) and not files.package_accepts(payload)


def test_a_cap_is_not_priced_in_the_worst_case() -> None:
    """The cap is on the mean over the prior; what weighs the worst inputs is no prior."""
    payload = files.payload("worst-case")
    fields = payload["fields"]
    fields["design"]["fields"]["max_mse"] = 100.0
    [duals] = (p["fields"]["duals"]["fields"] for p in fields["proofs"]["$tuple"] if "duals" in p["fields"])
    assert files.alone_accepts(payload)
    duals["cap_price"] = 1e-9
    assert not files.alone_accepts(payload) and not files.package_accepts(payload)


LAW, QUESTION = ("fields", "mechanism", "fields", "law"), ("fields", "design", "fields")
PRIOR = (*QUESTION, "prior", "fields", "law")
THREE = {"$array": [0.1, 0.1, 0.1], "dtype": "float64", "shape": [3]}
EDITS: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "an enclosure whose ends are exchanged": ("plan", ("fields", "proofs", "$tuple", 0, "fields", "given", "fields", "lower"), 1e300),
    "a probability above 1": ("optm", ("fields", "mechanism", "fields", "selection", "fields", "left", "$array", 0, 0), 1 + 1e-9),
    "a cost that is the lower bound": ("scales-problem", ("fields", "value"), files.payload("scales-problem")["fields"]["lower_bound"]),
    "a third parameter": ("optimal-quantizer", (*PRIOR, "args"), [-1, 2, -1]),
    "a place twice": ("optimal-quantizer", (*PRIOR, "kwds"), {"$items": [["loc", 0.0]]}),
    "true for a scale": ("calibration", (*LAW, "kwds"), {"$items": [["scale", True]]}),
    "a parameter without a name": ("pure-noise", (*LAW, "kwds", "$items", 0, 0), ""),
    "a gap without end": ("calibration-huber", ("fields", "asked_gap"), {"$float": "inf"}),
    "losses without end": ("calibration", LAW, {"$law": "gennorm", "args": [40.0], "kwds": {"$items": [["scale", 3.0]]}}),
    "limits of three coordinates": ("noise-allocation", (*QUESTION, "lower"), THREE),
    "weights of three coordinates": ("noise-allocation", (*QUESTION, "weights"), THREE),
    "a coordinate that weighs nothing": ("noise-allocation", (*QUESTION, "weights"), 0.0),
    "half a change": ("optimal-noise", (*QUESTION, "l0"), 0.5),
    "groups of whole numbers called others": ("grouped-allocation", (*QUESTION, "groups", "$tuple", 0, "dtype"), "float64"),
    "groups that overlap": ("grouped-allocation", (*QUESTION, "groups"), {"$tuple": [{"$tuple": [0, 0]}, {"$tuple": [1]}]}),
    "rows of families that are none": ("selection-problem", (*QUESTION, "labels"), {"$tuple": []}),
    "inputs that are finer": ("metric-grid", (*QUESTION, "inputs"), {"$tuple": [k / 10 - 1 for k in range(21)]}),
    "buffers without end": ("buffered-toeplitz", (*QUESTION, "buffers"), 2_000_000),
    "two numbers for one law": ("optimal-noise", (*QUESTION, "dimension"), 2),
    "no lower bound of an optimum": ("optimal-quantizer", ("fields", "lower_bound"), None),
    "an empty lower bound": ("optimal-quantizer", ("fields", "lower_bound"), -1e300),
    "a lower bound above the value": ("calibration-normal", ("fields", "lower_bound"), 1e300),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_both_checkers_refuse(edit: str) -> None:
    name, path, value = EDITS[edit]
    payload = trees.put(files.payload(name), path, value)
    assert not files.alone_accepts(payload) and not files.package_accepts(payload)


def test_faces_of_a_hull_are_in_any_order() -> None:
    payload, path = files.payload("knorm-listed"), ("fields", "mechanism", "fields", "simplices", "$tuple")
    faces = trees.at(payload, path)
    shuffled = [{"$tuple": face["$tuple"][::-1]} for face in faces]
    called = [{"$tuple": list(map(float, face["$tuple"]))} for face in faces]
    for others, sound in ((faces[::-1], True), (shuffled, True), (called, False)):
        forged = trees.put(payload, path, others)
        assert files.alone_accepts(forged) == files.package_accepts(forged) == sound


@pytest.mark.parametrize(
    "name", ["calibration", "rqm", "optm", "optm-search", "bin-search", "noise-allocation"]
)
def test_no_gap_that_is_asked_for_makes_the_best_of_a_class_optimal(name: str) -> None:
    payload = trees.put(files.payload(name), ("fields", "asked_gap"), 1.0)
    for status, accepted in (("best of its class", True), ("optimal", False)):
        payload["fields"]["solver_report"]["fields"]["status"] = status
        assert files.alone_accepts(payload) == files.package_accepts(payload) == accepted


def test_noise_for_a_sample_is_for_one_record_more_or_less() -> None:
    payload = files.payload("calibration-sampled")
    for part in ("design", "mechanism"):
        payload["fields"][part]["fields"]["sensitivity"]["fields"]["neighbours"] = "replace"
    assert not files.alone_accepts(payload) and not files.package_accepts(payload)


@pytest.mark.parametrize(
    ("name", "other"), [("optimal-quantizer", "metric-quantizer"), ("metric-quantizer", "optimal-quantizer")]
)
def test_a_bound_is_proved_by_a_theorem_of_its_design(name: str, other: str) -> None:
    """The rows of a metric quantizer are claimed, and the duals of another one are of pure privacy."""
    payload = files.payload(name)
    own, others = (files.payload(each)["fields"]["proofs"]["$tuple"] for each in (name, other))
    payload["fields"]["proofs"]["$tuple"] = [own[0], others[1]]
    assert own[1]["$kind"] != others[1]["$kind"] and not files.alone_accepts(payload)


@pytest.mark.parametrize(
    "name",
    ["calibration", "joint-calibration", "plan", "covariance-problem", "correlated-gaussian", "vectors"],
)
def test_a_proof_gives_the_numbers_that_the_theorem_of_its_question_takes(name: str) -> None:
    """Of each kind those of another: an enclosure, further variables, multipliers, a share, none."""
    proofs = files.payload(name)["fields"]["proofs"]["$tuple"]
    interval = files.payload("calibration")["fields"]["proofs"]["$tuple"][0]["fields"]["given"]
    others = None, interval, {"$tuple": []}, 0.5
    for k, proof in enumerate(proofs):
        own = proof["fields"].get("given", 0)
        for other in others if proof["$kind"] in ("law-proof", "closed-bound") else ():
            if type(other) is type(own) and (not isinstance(own, dict) or own.keys() == other.keys()):
                continue
            payload = files.payload(name)
            payload["fields"]["proofs"]["$tuple"][k]["fields"]["given"] = other
            assert not files.alone_accepts(payload) and not files.package_accepts(payload)


def test_an_allocation_is_made_for_the_changes_of_its_question() -> None:
    """Narrower sensitivities, and a bound on changes, in the mechanism alone."""
    for member, value in (("sensitivities", np.array([0.5, 0.5])), ("bounds", md.Sensitivity(linf=0.1))):
        payload = files.payload("noise-allocation")
        payload["fields"]["mechanism"]["fields"][member] = encode(value)
        assert not files.alone_accepts(payload) and not files.package_accepts(payload)
    payload = trees.put(
        files.payload("several-allocation"), (*LAW[:3], "bounds", "fields", "l1"), 4
    )  # 4.0 there
    assert files.alone_accepts(payload) and files.package_accepts(payload)

"""The checker that a page carries, under Node: the verdicts of the verifier in Python, claim by claim, on files sound and doctored.

Where there is no Node these tests say that they checked nothing.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import resource
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import cheap
import numpy as np
import pytest
from campaign import mutations

import mechdesign as md
from evidence.kinds import PAGE_MEMBERS, page_members_text
from evidence.page_checker import CHECKER, NODE, judged_by_node, judged_by_python, raw_verdicts
from evidence.test_doctored import DOCTORINGS, payloads, solved
from evidence.test_verify import PRIORS, SPACES, files_of_prior, files_of_space
from mechdesign.evidence.exact import round_down, round_up
from mechdesign.evidence.page import checking_script
from mechdesign.evidence.proofs import RECOMPUTED, Certificate, Claim, Proof
from mechdesign.evidence.serialize import dumps, encode

node = pytest.mark.skipif(
    NODE is None, reason="NOT CHECKED: there is no Node here, so the page's checker was not run"
)
QUICK = [
    "optm",
    "rqm",
    "optimal-quantizer",
    "metric-quantizer",
    "histogram",
    "worst-case",
    "metric-channel",
    "local-workload",
    "local-worst",
    "local-histogram",
    "optimal-noise",
    "knorm",
    "knorm-several",
    "knorm-hull",
    "knorm-rising",
]
SLOW = [
    *(
        "erm",
        "mvu",
        "optm-search",
        "bin-search",
        "alphabet",
        "beta",
        "clipped",
        "truncated",
        "clipped-uniform",
    ),
    *("truncated-histogram", "triangle", "samples", "cap", "bias", "far", "rqm-searched", "rqm-clipped"),
    *("wide-budget", "optm-beta", "metric-grid", "unbiased-channel", "squared-channel", "local-relaxed"),
    *("pure-noise", "steep-noise", "steep-pure-noise"),
]


def doctored(name: str) -> list[tuple[str, str]]:
    """The file of a result, and all that is made of it by somebody who seals it anew."""
    texts = payloads(name)
    found = [(f"{name}: sound", texts[0])]
    for doctoring in DOCTORINGS:
        payload, other = (json.loads(text)["payload"] for text in texts)
        if doctoring(payload["fields"], other["fields"]):
            found.append((f"{name}: {doctoring.__name__}", cheap.sealed(payload)))
    return found


def disagreements(cases: list[tuple[str, str]], folder: Path) -> list[object]:
    """Files of which the two checkers say different things."""
    here = [judged_by_python(text) for _, text in cases]
    there = judged_by_node([text for _, text in cases], folder)
    assert len(here) == len(there)
    return [(name, p, q) for (name, _), p, q in zip(cases, here, there) if p != q]


@node
def test_both_checkers_make_the_same_claims(tmp_path: Path) -> None:
    cases = [case for name in QUICK for case in doctored(name)]
    assert disagreements(cases, tmp_path) == []
    assert judged_by_node([cases[0][1]], tmp_path)[0][1]  # and claims there are


@node
@pytest.mark.slow
def test_both_checkers_prove_moments_of_laws_and_distances_of_spaces(tmp_path: Path) -> None:
    """Was: claimed on a page. A parameter of the law that is 1e-13 off is seen, and another distance."""
    files = [*map(files_of_prior, PRIORS), *map(files_of_space, SPACES)]
    cases = [(f"{number}", text) for number, pair in enumerate(files) for text in pair]
    assert disagreements(cases, tmp_path) == []
    verdicts = [rows for _, rows in judged_by_node([text for _, text in cases], tmp_path)]
    assert {(how, holds) for rows in verdicts[::2] for _, how, holds in rows} == {("proved", True)}
    failed = [
        [claim.partition(" of ")[0] for claim, _, holds in rows if not holds] for rows in verdicts[1::2]
    ]
    of_laws, of_spaces = ["the masses and moments stated are those"], ["the distances are those"]
    assert failed == [of_laws] * len(PRIORS) + [of_spaces] * len(SPACES)


@node
@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_both_checkers_make_the_same_claims_of_every_kind(name: str, tmp_path: Path) -> None:
    assert disagreements(doctored(name), tmp_path) == []


@node
@pytest.mark.slow
def test_both_checkers_agree_on_mutated_files(tmp_path: Path) -> None:
    documents = {name: dumps(solved(name)) for name in (*QUICK, *SLOW)}
    made = (mutations.mutated(random.Random(f"page/{number}"), documents) for number in range(400))
    cases = [(f"{name}: {kind}", text) for name, kind, text in made]
    assert disagreements(cases, tmp_path) == []
    assert sum(word == "checked" for word, _ in judged_by_node([t for _, t in cases], tmp_path)) > 40


@node
def test_both_checkers_find_the_same_delta_of_any_lattice_noise(tmp_path: Path) -> None:
    """Few cells to a shift, many, tails, spikes, spans: at the last unit and one below it."""
    rng = random.Random(8)
    text = dumps(solved("optimal-noise"))
    cases = []
    for number in range(60):
        n, tails, wide = rng.randint(1, 7), rng.random() < 0.5, rng.random() < 0.5
        spans = tuple(2 ** rng.randint(0, 3) for _ in range(rng.randint(3, 12))) if wide else ()
        if wide and tails:  # ends where the tails begin
            spans = (*(1,) * n, *spans, *(1,) * n)
        count = len(spans) if wide else rng.randint(2 * n, 3 * n) if tails else rng.randint(1, 3 * n)
        law = md.noise.CellNoise(
            weights=tuple(rng.randint(1, 9) for _ in range(count)),
            width=0.125,
            start=-(sum(spans) or count) / 16,
            cells_per_shift=n,
            spike=(spike := 0 if wide else rng.choice([0, 3])),
            spike_width=0.1 if spike else 0.0,
            decay=Fraction(rng.randint(1, 8), 9) if tails else Fraction(0),
            spans=spans,
        )
        delta = law.exact_delta(1.0)
        for allowed in (round_up(delta), round_down(delta * (1 - Fraction(1, 10**12)))):
            payload = json.loads(text)["payload"]
            payload["fields"]["design"]["fields"]["privacy"]["fields"] |= {"epsilon": 1.0, "delta": allowed}
            payload["fields"]["mechanism"] = encode(law)
            cases.append((f"{number}, {allowed}", cheap.sealed(payload)))
    assert disagreements(cases, tmp_path) == []
    verdicts = [rows for _, rows in judged_by_node([text for _, text in cases], tmp_path)]
    held = [holds for rows in verdicts for claim, _, holds in rows if claim.startswith("delta at most")]
    assert held[::2] == [True] * 60 and held[1::2].count(False) > 50


def test_a_lower_bound_for_other_outputs_than_an_alphabet_has_is_refused(tmp_path: Path) -> None:
    """Fewer, which the page accepted, or as many of which one is moved, which both accepted."""
    payload, grid = (json.loads(dumps(solved(name)))["payload"] for name in ("optimal-quantizer", "alphabet"))
    fields, wide = payload["fields"], grid["fields"]
    fields["design"]["fields"]["bins"] = wide["design"]["fields"]["bins"]
    texts = [cheap.sealed(payload)]
    fields |= {"proofs": wide["proofs"], "lower_bound": 0.9 * wide["lower_bound"], "bound_class": "this menu"}
    fields["solver_report"]["fields"]["status"] = "feasible"
    (duals,) = (p["fields"]["duals"]["fields"] for p in fields["proofs"]["$tuple"] if "duals" in p["fields"])
    outputs = np.linspace(-3, 3, 13)
    for moved in (0.0, 0.01):
        outputs[4] -= moved
        duals["outputs"] = encode(outputs)
        texts.append(cheap.sealed(payload))
    verdicts = ["refused", "checked", "refused"]
    assert [judged_by_python(text)[0] for text in texts] == verdicts
    assert all(holds for *_, holds in judged_by_python(texts[1])[1])
    if NODE is not None:
        assert [word for word, _ in judged_by_node(texts, tmp_path)] == verdicts


FAMILIES = [
    *("gaussian", "laplace", "logistic", "gennorm", "flipped_huber", "osgt", "truncated_laplace"),
    *("staircase", "discrete_laplace", "discrete_gaussian"),
]
APPROXIMATE, SMALL = md.ApproximateDP(1.0, 1e-6), md.ApproximateDP(0.3, 1e-10)


def prior_law(payload: Any) -> Any:
    return payload["fields"]["design"]["fields"]["prior"]["fields"]["law"]


def test_a_leaf_that_says_more_than_is_read_is_refused(tmp_path: Path) -> None:
    """A third number of a uniform law, its place twice, sides of a space that has other points: accepted by both."""
    texts = []
    for name in ("optimal-quantizer", "squared-channel"):
        payload = json.loads(dumps(solved(name)))["payload"]
        texts.append(cheap.sealed(payload))
        if name == "squared-channel":
            payload["fields"]["design"]["fields"]["space"]["fields"]["shape"] = {"$tuple": [3, 3]}
            payload["fields"]["mechanism"]["fields"]["space"]["fields"]["shape"] = {"$tuple": [3, 3]}
            texts.append(cheap.sealed(payload))
            continue
        prior_law(payload)["args"] = [-1, 2, -1]
        texts.append(cheap.sealed(payload))
        prior_law(payload).update(args=[-1, 2], kwds={"$items": [["loc", 0.0]]})
        texts.append(cheap.sealed(payload))
    for judged in (judged_by_python, *([lambda text: judged_by_node([text], tmp_path)[0]] if NODE else [])):
        verdicts = [
            word == "checked" and all(holds for *_, holds in rows) for word, rows in map(judged, texts)
        ]
        assert verdicts == [True, False, False, True, False]


CALIBRATED: dict[str, tuple[str, object, dict[str, object]]] = {
    **{family: (family, APPROXIMATE, {"dimension": 4}) for family in FAMILIES},
    "concentrated": ("laplace", md.ZeroConcentratedDP(0.5, xi=0.1), {"dimension": 3}),
    "concentrated normal": ("gaussian", md.ZeroConcentratedDP(0.5), {"loss": "absolute"}),
    "pure": ("staircase", md.PureDP(1.0), {"dimension": 3}),
    "sampled": ("logistic", md.ApproximateDP(1.0, 1e-5), {"rounds": 20, "sampling_rate": 0.5}),
    "bounds": ("laplace", APPROXIMATE, {"sensitivity": md.Sensitivity(linf=1, l1=2.5), "dimension": 4}),
}
"""Of a second or less each."""
CALIBRATED_SLOWLY: dict[str, tuple[str, object, dict[str, object]]] = {
    **{f"{family} alone": (family, SMALL, {"loss": "absolute"}) for family in FAMILIES},
    **{f"{family} in rounds": (family, SMALL, {"dimension": 2, "rounds": 7}) for family in FAMILIES},
    **{
        f"{family} concentrated": (family, md.ZeroConcentratedDP(rho, xi=xi), {"dimension": dimension})
        for family in ("laplace", "logistic", "osgt", "flipped_huber", "discrete_laplace", "staircase")
        for rho, xi, dimension in [(0.1, 0.0, 1)]
    },
    "discrete normal concentrated": ("discrete_gaussian", md.ZeroConcentratedDP(0.1), {"dimension": 2}),
    **{
        f"{family} pure": (family, md.PureDP(0.5), {"sensitivity": 1, "dimension": 3})
        for family in ("laplace", "logistic", "discrete_laplace")
    },
    **{
        f"{family} sampled at {rate} in {rounds}": (
            family,
            md.ApproximateDP(1.0, 1e-5),
            {"rounds": rounds, "sampling_rate": rate, "dimension": dimension},
        )
        for family, rounds, rate, dimension in [
            *[
                ("gaussian", 100, 0.1, 1),
                ("laplace", 1, 0.1, 2),
                ("osgt", 1, 0.5, 1),
                ("laplace", 10, 0.9, 3),
            ],
        ]
    },
    "pure sampled": ("laplace", md.PureDP(0.5), {"rounds": 3, "sampling_rate": 0.2}),
    **{
        f"{family} within {bounds}": (
            family,
            APPROXIMATE,
            {"sensitivity": md.Sensitivity(**bounds), "dimension": 4},  # type: ignore[arg-type]
        )
        for family in ("laplace", "gaussian", "discrete_gaussian", "staircase")
        for bounds in (
            {"linf": 1, "l0": 3},
            {"linf": 1, "l1": 3},
            {"linf": 1, "l2": 1.5},
            {"each": [3, 1, 1, 0]},
        )
        if family != "staircase" or "each" not in bounds
    },
    "many": ("laplace", APPROXIMATE, {"dimension": 1000}),
}


def calibrated(name: str) -> str:
    """The file of calibrated noise."""
    family, privacy, asked = (CALIBRATED | CALIBRATED_SLOWLY)[name]
    return dumps(md.calibrate(family, privacy=privacy, **{"sensitivity": 1.0, **asked}))  # type: ignore[arg-type]


def narrowed(text: str, less: float) -> str:
    """The file with a law that is narrower by this, sealed anew."""
    payload = json.loads(text)["payload"]
    law = payload["fields"]["mechanism"]["fields"]["law"]
    for item in law["kwds"]["$items"]:
        item[1] *= 1 - less
    if not law["kwds"]["$items"]:
        law["args"][0] *= 1 - less if law["$law"] == "discrete_gaussian" else 1 + less
    return cheap.sealed(payload)


def faults_of_calibrated_noise(names: list[str], less: tuple[float, ...], folder: Path) -> list[object]:
    """Files that a checker does not find sound, files of narrower laws that are judged unlike, and files of the narrowest that pass."""
    cases = [(name, calibrated(name)) for name in names]
    for each in less:
        cases += [(f"{name}, narrower by {each}", narrowed(text, each)) for name, text in cases[: len(names)]]
    answers = judged_by_node([text for _, text in cases], folder)
    here = [judged_by_python(text) for _, text in cases]
    sound = [word == "checked" and all(holds for *_, holds in rows) for word, rows in answers]
    faults: list[object] = [(case, p, q) for (case, _), p, q in zip(cases, here, answers) if p != q]
    faults += [case for (case, _), passes in zip(cases[: len(names)], sound) if not passes]
    narrowest = slice(len(names), 2 * len(names))
    return faults + [case for (case, _), passes in zip(cases[narrowest], sound[narrowest]) if passes]


@node
def test_both_checkers_agree_on_calibrated_noise(tmp_path: Path) -> None:
    names = [
        "gaussian",
        "laplace",
        "osgt",
        "staircase",
        "discrete_gaussian",
        "concentrated",
        "pure",
        "bounds",
    ]
    assert faults_of_calibrated_noise(names, (0.1,), tmp_path) == []


def no_coordinates(fields: dict[str, Any], law: dict[str, Any]) -> None:
    for part in ("design", "mechanism"):
        fields[part]["fields"]["dimension"] = 0


def true_scale(fields: dict[str, Any], law: dict[str, Any]) -> None:
    law["kwds"]["$items"][0][1] = True


def fraction_as_shape(fields: dict[str, Any], law: dict[str, Any]) -> None:
    law["args"] = [{"$fraction": "1/2"}]


def steep_law(fields: dict[str, Any], law: dict[str, Any]) -> None:
    fields["design"]["fields"]["dimension"] = fields["mechanism"]["fields"]["dimension"] = 4
    law |= {"$law": "gennorm", "args": [40.0], "kwds": {"$items": [["scale", 3.0]]}}


def no_proofs(fields: dict[str, Any], law: dict[str, Any]) -> None:
    fields["proofs"] = None


@node
@pytest.mark.parametrize("doctoring", [no_coordinates, true_scale, fraction_as_shape, steep_law, no_proofs])
def test_calibrated_noise_that_is_none_is_refused(doctoring: Callable[..., None], tmp_path: Path) -> None:
    """Without coordinates both checkers were busy for ever, and one with a law of losses up to 10^5; True was a scale of 1 in Python."""
    payload = json.loads(calibrated("gaussian"))["payload"]
    doctoring(payload["fields"], payload["fields"]["mechanism"]["fields"]["law"])
    text = cheap.sealed(payload)
    assert judged_by_python(text) == ("refused", [])
    assert judged_by_node([text], tmp_path) == [("refused", [])]


@node
@pytest.mark.slow
def test_both_checkers_agree_on_calibrated_noise_of_every_kind(tmp_path: Path) -> None:
    less, fewer = (0.1, 1e-2, 1e-4, 1e-6, 1e-9, 1e-13), (0.1, 1e-3, 1e-6, 1e-13)
    assert faults_of_calibrated_noise(list(CALIBRATED), less, tmp_path) == []
    assert faults_of_calibrated_noise(list(CALIBRATED_SLOWLY), fewer, tmp_path) == []


@node
@pytest.mark.slow
def test_both_checkers_agree_on_doctored_files_of_calibrated_noise(tmp_path: Path) -> None:
    files = {name: calibrated(name) for name in CALIBRATED}
    made = (mutations.mutated(random.Random(f"calibrated/{number}"), files) for number in range(400))
    cases = [(f"{name}: {kind}", text) for name, kind, text in made]
    assert disagreements(cases, tmp_path) == []


@node
def test_both_checkers_agree_on_k_norm_noise(tmp_path: Path) -> None:
    bounds = [
        1.0,
        md.Sensitivity(linf=1, l0=3),
        md.Sensitivity(linf=1, l1=2.3),
        md.Sensitivity(linf=1, l2=1.7),
        md.Sensitivity(each=[3, 1, 0, 0.5, 2, 1], l0=4, l1=5, l2=3.1),
    ]
    cases, narrow = [], []
    for bound, norm, loss in itertools.product(bounds, (None, 1, 2, math.inf), ("squared", "absolute")):
        text = dumps(md.noise.KNorm(6, md.PureDP(0.7), bound, norm, loss, rounds=3).solve())
        cases.append((f"{bound}, {norm}, {loss}", text))
        for name in ("scale", "largest"):
            payload = json.loads(text)["payload"]
            payload["fields"]["mechanism"]["fields"][name] *= 1 - 1e-12
            narrow.append((f"{bound}, {norm}, {loss}, less {name}", cheap.sealed(payload)))
    assert disagreements(cases + narrow, tmp_path) == []
    held = [all(holds for *_, holds in rows) for _, rows in judged_by_node([t for _, t in cases], tmp_path)]
    assert all(held)
    fails = [
        any(not holds for *_, holds in rows) for _, rows in judged_by_node([t for _, t in narrow], tmp_path)
    ]
    assert all(fails)


def test_noise_for_no_rounds_is_refused(tmp_path: Path) -> None:
    """Was: private without loss in Python, where no lower bound is stated; failed on the page."""
    payload = json.loads(dumps(cheap.solved("knorm")))["payload"]
    payload["fields"]["design"]["fields"]["rounds"] = 0
    texts = [cheap.sealed(payload)]
    payload["fields"] |= {"lower_bound": None, "bound_class": None}
    texts.append(cheap.sealed(payload))
    assert [judged_by_python(text) for text in texts] == [("refused", [])] * 2
    assert NODE is None or judged_by_node(texts, tmp_path) == [("refused", [])] * 2


@node
def test_both_checkers_judge_equal_changes_half_the_budget_and_a_delta_above_1_alike(tmp_path: Path) -> None:
    """Was: claimed where one change is as bad as all, failed or checked where Python looks closer or refuses."""
    bound = md.Sensitivity(linf=1, l1=1)
    alone = dumps(md.calibrate("laplace", privacy=APPROXIMATE, sensitivity=bound, dimension=1))
    wide = json.loads(dumps(md.calibrate("laplace", privacy=md.ZeroConcentratedDP(0.25), sensitivity=1)))
    large = json.loads(alone)["payload"]
    large["fields"]["design"]["fields"]["privacy"]["fields"]["delta"] = 1.5
    wide["payload"]["fields"]["design"]["fields"]["privacy"]["fields"]["rho"] = 0.5
    cases = [("alone", alone), ("wide", cheap.sealed(wide["payload"])), ("large", cheap.sealed(large))]
    assert disagreements(cases, tmp_path) == []
    found = [
        (word, [(how, holds) for claim, how, holds in rows if "consumed" in claim])
        for word, rows in judged_by_node([text for _, text in cases], tmp_path)
    ]
    assert found == [("checked", [("proved", True)]), ("checked", [("claimed", True)]), ("refused", [])]


@node
def test_it_reads_and_seals_json_as_python_does(tmp_path: Path) -> None:
    rng = random.Random(3)
    doubles = [rng.choice((1, -1)) * rng.random() * 10.0 ** rng.randint(-320, 308) for _ in range(400)]
    doubles += [
        0.0,
        -0.0,
        1e16,
        1e-4,
        1e-5,
        123456789012345680.0,
        5e-324,
        1.7976931348623157e308,
        1e22,
        0.1,
        100.0,
    ]
    odd = [
        doubles,
        [0, -7, 10**40],
        'é\u2028\U0001f600\x7f\\"/\n\t\x01',
        {"\U0001f600": 1, "\uffee": 2, "1": 3, "": 4},
    ]
    text = cheap.sealed({"$kind": "pure-dp", "fields": {"epsilon": 1.0}, "odd": odd})
    sealed = [
        text,
        text.replace(": 10000", ": 10001"),
        text.replace("0.1,", "0.10,"),
        text.replace("[0,", "[-0,"),
    ]
    answers = [answer["refused"] for answer in raw_verdicts(sealed, tmp_path)]
    assert answers[0] == "an object that means nothing"  # so the seal is right
    assert answers[2:] == answers[:1] * 2


@node
@pytest.mark.parametrize(
    "damage",
    [
        ("1.0", "1."), ("1.0", "01.0"), ("1.0", "NaN"), ("1.0", "+1.0"), ("{", "{,"), ("}", ",}"), ('"', "'"), ("1.0", "1e999"),
        ("1.0", "[" * 5000 + "]" * 5000), ("1.0", "9" * 5000), ('"optm"', '"\\ud800"'), ('"optm"', '"op\ttm"'), ("2", "2.0"),
    ],
)  # fmt: skip
def test_what_python_does_not_read_is_refused(damage: tuple[str, str], tmp_path: Path) -> None:
    text = dumps(cheap.solved("optm"))
    texts = [text.replace(*damage, 1), text + "x", "", "[]", text.replace('"notes"', '"__proto__"')]
    assert [word for word, _ in judged_by_node(texts, tmp_path)] == ["refused"] * 5
    assert [judged_by_python(text)[0] for text in texts] == ["refused"] * 5


@node
def test_a_kind_without_a_check_is_not_covered(tmp_path: Path) -> None:
    (answer,) = raw_verdicts([dumps(cheap.solved("noise-allocation"))], tmp_path)
    assert answer["uncovered"] == "results of kind noise-allocation"


@node
@pytest.mark.slow
def test_a_quantizer_of_256_outputs_takes_less_than_2_s(tmp_path: Path) -> None:
    text = dumps(md.OptimalQuantizer(np.linspace(-4, 4, 256), cheap.PURE, cheap.UNIFORM).solve(gap=1e-3))
    assert disagreements([("256", text)], tmp_path) == []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    raw_verdicts([text], tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = (
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    )  # of processors, on a machine that others use
    assert taken < 2.0


def test_it_uses_nothing_but_itself() -> None:
    """No library, no network; and names are declared once, for a page holds all modules in one script."""
    names: list[str] = []
    for source in CHECKER.glob("*.mjs"):
        text = source.read_text(encoding="utf-8")
        if source.name == "node.mjs":
            continue
        assert all(place.startswith("./") for place in re.findall(r'from "(.*?)"', text))
        assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|eval|require|Function\(|import\()", text)
        names += re.findall(r"^(?:export )?(?:function|class|const|let) (\w+)", text, re.MULTILINE)
        for group in re.findall(r"^(?:export )?const \[(.*?)\]", text, re.MULTILINE):
            names += group.split(", ")
    assert sorted(names) == sorted({*names})


def test_its_table_of_members_is_that_of_the_schema() -> None:
    assert PAGE_MEMBERS.read_text(encoding="utf-8") == page_members_text()


@node
@pytest.mark.parametrize(
    "name",
    [
        *("calibration", "knorm", "knorm-listed", "optimal-noise"),
        *("optimal-noise-many", "optimal-integer-noise", "counts-gaussian", "correlated-gaussian"),
    ],
)
def test_a_page_says_beforehand_whether_its_script_checks(name: str, tmp_path: Path) -> None:
    """Was: "its script checks the file" on every page."""
    result = solved(name)
    (found,) = raw_verdicts([dumps(result)], tmp_path)
    words = next(part.text for part in result.sections() if part.title == "Check it yourself")
    assert ("its script checks the file" in words) == ("rows" in found)
    assert ("nothing is checked here" in words) == ("uncovered" in found) and "verify.pyz" in words


@node
def test_a_small_bound_is_recomputed_as_finely(tmp_path: Path) -> None:
    """Was: multipliers below 1 rounded to 2⁻⁵⁵, by which a bound of 1e-12 did not hold."""
    for privacy in (md.ApproximateDP(1, 0.1), md.TradeOff([(0, 0.3), (1, 0.01)])):
        result = md.OptimalNoise(privacy, 1e-6, "squared").solve(cells=2)
        (found,) = raw_verdicts([dumps(result)], tmp_path)
        assert all(row["holds"] for row in found["rows"])


@node
def test_no_margin_of_what_holds_is_negative(tmp_path: Path) -> None:
    """Was: "holds (margin -2.44e-16)"."""
    noise = cheap.solved("calibration")
    (found,) = raw_verdicts([dumps(replace(noise, value=noise.value * (1 - 1e-12)))], tmp_path)
    (row,) = (row for row in found["rows"] if "loss is at most" in row["claim"])
    assert row["holds"] and row["how"] == "recomputed" and row["margin"] == 0


class Rounded(Proof):
    speaks_of = ("privacy",)

    def check(self, stated: Certificate) -> Iterator[Claim]:
        yield Claim("it holds but for rounding", RECOMPUTED, -1e-14, True)
        yield Claim("it fails", RECOMPUTED, -1.0, False)


def test_the_package_shows_no_negative_margin_of_what_holds() -> None:
    """Was: "yes -1.42e-14" on a page."""
    noise = cheap.solved("calibration")
    claims = Certificate(noise.design, noise.mechanism, noise.value, None, (Rounded(),)).claims()
    assert [claim.margin for claim in claims][:2] == [0.0, -1.0]


@node
def test_the_modules_make_one_script(tmp_path: Path) -> None:
    """Was: a name that two modules declared, with which no page ran any script."""
    assert NODE is not None
    (tmp_path / "page.js").write_text(checking_script())
    subprocess.run([NODE, "--check", str(tmp_path / "page.js")], check=True)

"""Result files: round trips to the same bytes, refusal of everything else, exports, schema."""

import copy
import gzip
import json
import pickle
import re
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import cheap
import jsonschema
import numpy as np
import pandas as pd
import pytest
from campaign import files
from cheap import DESIGNS, solved
from commands import ended
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from evidence import kinds
from mechdesign.evidence.digits import as_latex
from mechdesign.evidence.serialize import KINDS, dumps, loads, result_schema

UNIFORM = stats.uniform(-1, 2)


@given(
    st.recursive(
        st.none() | st.lists(st.booleans()) | st.integers() | st.floats() | st.text() | st.fractions(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(), inner, max_size=3)
            | st.tuples(inner, inner)
        ),
        max_leaves=12,
    )
)
def test_any_value_round_trips(value) -> None:
    text = dumps(value)
    again = loads(text)
    assert dumps(again) == text
    if isinstance(value, Fraction):
        assert again == value


def test_exports(tmp_path: Path) -> None:
    result = solved("optm")
    frame = result.to_frame()
    result.to_csv(tmp_path / "r.csv")
    result.to_parquet(tmp_path / "r.parquet")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "r.csv"), frame)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "r.parquet"), frame)
    assert result.to_latex(tmp_path / "r.tex").startswith(r"\begin{tabular}")
    assert result.to_markdown(tmp_path / "r.md").startswith("| side")
    assert (tmp_path / "r.tex").exists() and (tmp_path / "r.md").exists()
    assert "<table" in result._repr_html_() and "exact loss" in result._repr_html_()
    assert list(result.audit().columns) == ["family", "index", "lhs", "rhs", "slack", "dual", "active"]
    assert list(result.mechanism.selection.to_frame().columns) == [
        "side",
        "interval",
        "bin",
        "value",
        "probability",
    ]


def test_a_stored_function_asks_for_itself(tmp_path: Path) -> None:
    md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.0), UNIFORM, np.square).solve().save(tmp_path / "c.json")
    loaded = md.load(tmp_path / "c.json")
    with pytest.raises(md.DesignError, match="was not stored"):
        loaded.design.loss(1.0)


def test_copies_of_a_result_have_its_tables(tmp_path: Path) -> None:
    result = md.OPTM([-2, -0.5, 0.5, 2], md.PureDP(3.0), UNIFORM, box="successive").solve(certify=False)
    assert set(result.duals["family"]) == {"model: floor", "model: ceiling"}
    result.save(tmp_path / "r.json")
    copies = copy.copy(result), copy.deepcopy(result), pickle.loads(pickle.dumps(result)), replace(result)
    for again in (*copies, md.load(tmp_path / "r.json")):
        pd.testing.assert_frame_equal(again.duals, result.duals)
    with pytest.raises(FrozenInstanceError):
        result.lower_bound = 0.5  # type: ignore[misc]


def test_parts_that_do_not_fit_together_are_said_to() -> None:
    found = md.MatrixMechanism(md.Workload.prefix_sums(8), md.ApproximateDP(1, 1e-6)).solve()
    other = md.Workload.prefix_sums(9)
    forged = replace(found, design=replace(found.design, workload=other, changes=md.noise.Changes(9)))
    for view in (forged.audit, lambda: str(forged)):
        with pytest.raises(md.ResultFormatError, match="do not fit together"):
            view()


@pytest.mark.parametrize("name", DESIGNS)
def test_a_print_says_first_what_is_guaranteed_and_last_how_long_it_took(name: str) -> None:
    result = solved(name)
    first, *_, last = str(result).splitlines()
    asked = getattr(result.design.privacy, "epsilon", None)
    assert not isinstance(asked, float) or any(f"{symbol} = {asked:g}" in first for symbol in "εα")
    central = result.design.central or result.design.asks == "numbers"
    assert first.startswith(f"{type(result.design).__name__}: ")
    unit = "one user's" if result.design.asks == "users" else "add-remove neighbours"
    assert (unit if central else "one report of one person") in first
    assert ("2 rounds together" if name == "plan" else "1 round") in first
    assert last.startswith("  solver: ") and last.endswith(" s")
    if name not in ("plan", "joint-calibration") and not name.startswith("vectors"):
        error, said = "standard deviation", result.errors().standard_deviation
        if result.design.asks == "users":
            error, said = "expected earth mover's distance", result.value
        assert f"{error} {said:.6g}" in first


# -- Tables for papers: what LaTeX cannot set as text becomes mathematics, and everything else is escaped ----

SYMBOLS = "αδεℓλρσΔΣ²₂⁻⁹₁≤≥±×∞→−–…‖√"


def written(**columns: list[object]) -> str:
    return as_latex(pd.DataFrame(columns), float_format="%.6g")


def mathematics_is_closed(text: str) -> bool:
    """No special character of LaTeX outside of mathematics, no two powers in a row inside."""
    bare = text.replace(r"\\", "").replace(r"\$", "")
    pieces = bare.split("$")
    inside, outside = pieces[1::2], pieces[::2]
    specials = re.compile(r"(?<!\\)[_^%#~]")
    return len(pieces) % 2 == 1 and all(inside) and not any(specials.search(piece) for piece in outside)


@given(st.text(st.sampled_from(SYMBOLS + "ab_%&#${}^~\\ "), max_size=12))
def test_any_text_compiles(text: str) -> None:
    for table in (
        written(a=[text]),
        as_latex(pd.DataFrame({"a": [1.0]}), float_format="%.3g", caption=f"a {text}"),
    ):
        assert table.isascii() and mathematics_is_closed(table), table


def test_committed_tables_compile() -> None:
    results = Path(__file__).parents[2] / "results"
    for path in (table for kept in results.rglob("contents.json") for table in kept.parent.glob("*.csv")):
        text = as_latex(pd.read_csv(path), float_format="%.6g").replace("é", "e")  # every engine sets it
        assert text.isascii() and mathematics_is_closed(text), path


# -- What a kind consists of is said once, by its class; the JSON Schema holds for every saved object and for no other structure

VALIDATOR = jsonschema.Draft202012Validator(result_schema())


def document(kind: str) -> Any:
    return json.loads(cheap.documents()[kind])


@pytest.mark.parametrize("path", kinds.TEXTS, ids=lambda path: path.name)
def test_schema_verifier_and_documentation_list_the_members_of_the_classes(path: Path) -> None:
    """After a change of a class: ``cd tests && python -m evidence.kinds``."""
    assert path.read_text(encoding="utf-8") == kinds.TEXTS[path]()


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(result_schema())


@pytest.mark.parametrize("kind", kinds.members())
def test_every_kind_validates_with_its_members_alone(kind: str) -> None:
    good = document(kind)
    VALIDATOR.validate(good)
    held = good["payload"]["fields"]
    others = [{k: v for k, v in held.items() if k != name} for name in held] + [held | {"further": 1}]
    for fields in others:
        assert not VALIDATOR.is_valid({**good, "payload": {"$kind": kind, "fields": fields}})


@pytest.mark.parametrize("name", cheap.DESIGNS)
def test_every_result_validates(name: str) -> None:
    assert list(VALIDATOR.iter_errors(json.loads(files.text(name)))) == []


@pytest.mark.parametrize(
    "change", [{"format": "other"}, {"version": True}, {"sha256": "0"}, {"payload": 3}, {"further": 1}]
)
def test_damaged_envelopes_do_not(change: dict[str, Any]) -> None:
    good = document("pure-dp")
    assert not VALIDATOR.is_valid(good | change)
    assert not any(VALIDATOR.is_valid({k: v for k, v in good.items() if k != key}) for key in good)


# -- The index of kinds: enough for a fresh process to read a file of every kind -----------------------------

# One child a file, forked before anything of the package but the table is imported.
FRESH = """
import json, os, sys
import cvxpy, highspy, numpy, pandas, scipy.integrate, scipy.optimize, scipy.sparse, scipy.stats
from mechdesign.evidence.serialize import dumps, load
loaded = set(sys.modules)
failed = 0
for path in sys.argv[1:]:
    if os.fork():
        failed += os.wait()[1] != 0
        continue
    value = load(path)
    os._exit(0 if json.loads(dumps(value)) == json.load(open(path)) else 1)
assert set(sys.modules) == loaded
sys.exit(failed)
"""


@pytest.mark.slow
def test_a_fresh_process_reads_every_kind(tmp_path: Path) -> None:
    documents = cheap.documents()
    assert set(KINDS) <= set(documents), f"no cheap instance of {sorted(set(KINDS) - set(documents))}"
    paths = []
    for number, kind in enumerate(KINDS):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(documents[kind])
    run = subprocess.run([sys.executable, "-c", FRESH, *map(str, paths)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


RELEASED = "additive-noise", "cell-noise", "buffered-noise", "channel", "quantizer"


def test_whoever_releases_needs_no_solver(tmp_path: Path) -> None:
    """A mechanism that is deployed is read, and answers, without CVXPY and HiGHS: they take longer to import than it takes to answer."""
    code = "import sys, mechdesign as md; [*map(md.load, sys.argv[1:])]; sys.exit(not {'cvxpy', 'highspy'}.isdisjoint(sys.modules))"
    paths = [tmp_path / f"{kind}.json" for kind in RELEASED]
    for kind, path in zip(RELEASED, paths):
        path.write_text(cheap.documents()[kind])
    assert subprocess.run([sys.executable, "-c", code, *map(str, paths)]).returncode == 0


@pytest.mark.parametrize("path", [3, None, ["a"], "a\0b", object(), ".", b"\xff"])
def test_what_is_no_path(path: object) -> None:
    with pytest.raises((md.DesignError, md.ResultFormatError), match=r"the path of a file: text|cannot be"):
        md.load(path)  # type: ignore[arg-type]
    with pytest.raises((md.DesignError, OSError)):
        cheap.solved("noise-allocation").save(path)  # type: ignore[arg-type]


# -- What carries a file: compressed, or a page ----------------------------------------------------------------


def carriers(folder: Path) -> dict[str, Path]:
    result = solved("noise-allocation")
    plain, packed, page = (folder / f"result.{ending}" for ending in ("json", "json.gz", "html"))
    result.save(plain)
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    result.report(page)
    return {"plain": plain, "packed": packed, "page": page}


@pytest.mark.parametrize("kind", ["plain", "packed", "page"])
def test_what_carries_a_file_is_read_like_it(kind: str, tmp_path: Path, capsys, monkeypatch) -> None:
    path = carriers(tmp_path)[kind]
    found = md.load(path)
    assert dumps(found) == dumps(solved("noise-allocation")) and found.certificate.verify()
    for words in (["verify", str(path)], ["audit", str(path)]):
        assert ended(words, capsys, monkeypatch)[0] == 0


def test_damaged_carriers_are_refused_in_one_line(tmp_path: Path) -> None:
    made = carriers(tmp_path)
    packed, page = made["packed"].read_bytes(), made["page"].read_text()
    link = 'href="data:application/gzip;base64,'
    for data in (
        packed[:-20],
        packed + b"junk",
        gzip.compress(packed),
        gzip.compress(b" " * (2**26 + 1)),
        b"<html></html>",
        page.replace(link, f"{link}?").encode(),
        page.replace(link, f"{link}AAAA").encode(),
    ):
        (path := tmp_path / "damaged").write_bytes(data)
        with pytest.raises(
            md.ResultFormatError, match=r"damaged: (cannot be read|67108865 characters)"
        ) as caught:
            md.load(path)
        assert "\n" not in str(caught.value)


def test_a_file_without_its_proofs_is_refused_unless_its_status_says_so(tmp_path: Path) -> None:
    result = solved("noise-allocation")
    replace(result, proofs=()).save(tmp_path / "emptied.json")
    with pytest.raises(md.ResultFormatError, match="no proofs, and the status"):
        md.load(tmp_path / "emptied.json")
    open_ = md.OPTM(cheap.BINS, cheap.PURE, cheap.UNIFORM).solve("highs", certify=False)
    open_.save(tmp_path / "open.json")
    assert md.load(tmp_path / "open.json").status.value == "not certified"

"""The command line, run as a user runs it."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from commands import ended

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.shell import cli
from mechdesign.shell.studykit import Report, Study, check_study, run_study

ROOT = Path(__file__).parents[2]
SPEC = """
design = "OPTM"
bins = [-3.0, -0.5, 0.5, 3.0]
loss = "absolute"
[privacy]
kind = "PureDP"
epsilon = 1.0
[prior]
law = "uniform"
loc = -1
scale = 2
[solve]
solver = "highs"
"""


def test_lists(capsys, monkeypatch) -> None:
    assert "quantizer-tables" in ended(["study", "list"], capsys, monkeypatch)[1]
    assert "clarabel" in ended(["solvers"], capsys, monkeypatch)[1]
    code, _, error = ended(["study", "run", "nonesuch"], capsys, monkeypatch)
    assert code == 1 and "study = 'nonesuch': must be one of" in error


def test_study_check_finds_a_changed_number(tmp_path: Path) -> None:
    """The comparison that CI makes, on a small study of its own."""

    def body(report: Report) -> None:
        report.text("words")
        frame = pd.DataFrame(
            {
                "name": ["a", "b"],
                "value": [1.5, 2.5],
                "remark": ["half a column of words", ""],
                "seconds": np.random.default_rng().random(2),
            }
        )
        report.table("t", frame, timings=("seconds",), rtol=1e-6)
        report.record(seed=report.rng("x").integers(10))

    study = Study("tiny", "Tiny", "", body)
    kept, fresh = run_study(study, tmp_path / "kept"), run_study(study, tmp_path / "fresh")
    assert check_study(fresh, kept) == []
    varying = {"manifest.json", "report.html"}  # neither is committed
    committed = [path for path in kept.iterdir() if path.name not in varying]
    assert {path.name for path in committed} == {"README.md", "contents.json", "t.csv"}
    assert all(path.read_bytes() == (fresh / path.name).read_bytes() for path in committed)
    table = (kept / "t.csv").read_text()
    (kept / "t.csv").write_text(table.replace("2.5", "2.501", 1))
    assert "column 'value', row 1: 2.5, kept 2.501" in check_study(fresh, kept)[0]
    (kept / "t.csv").write_text(table.replace("a,", "c,", 1))
    assert "column 'name'" in check_study(fresh, kept)[0]
    manifest = json.loads((kept / "manifest.json").read_text())
    assert manifest["study"] == "tiny" and "highspy" in manifest["versions"]
    assert len(manifest["timings"]["t/seconds"]) == 2
    with pytest.raises(md.DesignError, match=r"kept = .* holds no results"):
        check_study(fresh, tmp_path)


def test_a_conclusion_is_printed_with_its_table_only(tmp_path: Path) -> None:
    def body(report: Report) -> None:
        report.text("An opening.")
        for name in ("here", "there"):
            if report.data(name):
                report.table(name, pd.DataFrame({"x": [1]}))
            report.text(f"The table {name} shows it.", of=[name])
        report.text("Both show it.", of=["here", "there"])

    study = Study("concluding", "Concluding", "", body)
    for kept in ((), ("here",), ("here", "there")):
        for name in kept:
            (tmp_path / name).touch()
        text = (run_study(study, tmp_path / "out", data_dir=tmp_path) / "README.md").read_text()
        assert "An opening." in text and ("Both show it." in text) == (len(kept) == 2)
        for name in ("here", "there"):
            assert (f"The table {name} shows it." in text) == (name in kept)
    with pytest.raises(md.DesignError, match="of = "):  # nothing is absent: a table that no study writes
        run_study(
            Study("wrong", "", "", lambda report: report.text("It is so.", of=["no table"])), tmp_path / "out"
        )


def test_no_text_of_a_study_stands_apart_from_the_tables_that_it_speaks_of() -> None:
    """After the opening of `run`, a text is in the block of a table, or inside one that has a table, or names its tables."""

    def texts(body: list[ast.stmt], opening: bool, seen: bool) -> Iterator[int]:
        called = [s.value.func.attr for s in body if _reports(s)]  # type: ignore[attr-defined]
        seen = seen or "table" in called
        for statement in body:
            if _reports(statement) and statement.value.func.attr == "text":  # type: ignore[attr-defined]
                named = any(k.arg == "of" for k in statement.value.keywords)  # type: ignore[attr-defined]
                if not (seen or named or opening):
                    yield statement.lineno
            plain = _reports(statement) or isinstance(statement, (ast.Assign, ast.ImportFrom))
            opening = opening and (plain or isinstance(getattr(statement, "value", None), ast.Constant))
            for inner in ("body", "orelse"):
                if not isinstance(statement, ast.FunctionDef):
                    yield from texts(getattr(statement, inner, []), False, seen)

    for path in (ROOT / "studies" / "mechdesign_studies").rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef):
                apart = list(texts(function.body, function.name == "run", False))
                assert not apart, f"{path.name}, lines {apart}: of which tables?"


def _reports(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    whom = call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
    return isinstance(whom, ast.Name) and whom.id == "report"


def test_a_check_without_results_says_so_before_it_runs_anything(tmp_path: Path, monkeypatch, capsys) -> None:
    def body(report: Report) -> None:
        raise AssertionError("it ran")

    monkeypatch.setattr(cli, "get_study", lambda name: Study(name, name, "", body))
    code, _, error = ended(
        ["study", "check", "tiny", "--kept", str(tmp_path / "nothing")], capsys, monkeypatch
    )
    assert code == 1 and "holds no results to compare with" in " ".join(error.split())


def test_the_quick_variant_of_a_study(tmp_path: Path, monkeypatch, capsys) -> None:
    """It lies beside the whole, either leaves the other alone, and a check regenerates the quick one."""

    def body(report: Report) -> None:
        report.table("t", pd.DataFrame({"rows": range(2 if report.quick else 20)}))
        if (path := report.data("real.csv")) is not None:
            report.table("real", pd.read_csv(path))

    study = Study("sized", "Sized", "", body, quick=True)
    here = tmp_path / "data"
    here.mkdir()
    (here / "real.csv").write_text("x\n1\n")
    kept = tmp_path / "kept"
    quick = run_study(study, kept, data_dir=here, quick=True)
    whole = run_study(study, kept, data_dir=here)
    again = run_study(study, kept, data_dir=here, quick=True)
    assert quick == again == whole / "quick" and quick.exists()
    assert (len(pd.read_csv(quick / "t.csv")), len(pd.read_csv(whole / "t.csv"))) == (2, 20)
    with pytest.raises(md.DesignError, match="no quick variant"):
        run_study(Study("sized", "Sized", "", body), kept, quick=True)

    monkeypatch.setattr(cli, "_chosen", lambda names: [study])
    cli.study_check(["all"], kept=kept, data_dir=here)
    assert capsys.readouterr().out.startswith("sized/quick: as committed")
    cli.study_check(["all"], kept=kept, data_dir=here, full=True)
    assert capsys.readouterr().out.startswith("sized: as committed")
    cli.study_check(["all"], kept=kept)
    assert "sized/quick: not checked: what needs real.csv" in capsys.readouterr().out
    (quick / "t.csv").write_text("rows\n0\n7\n")
    with pytest.raises(typer.Exit):
        cli.study_check(["all"], kept=kept)


WRONG = """
nonsense
solve
solve missing.toml
solve .
solve binary.toml
solve spec.toml --out nowhere/result.json
solve spec.toml --nonsense
audit missing.json
audit spec.toml
audit law.json
audit result.json --rows -1
audit result.json --csv .
study run nonsense
study run location --out spec.toml
study check nonsense
compare
compare --epsilon 1
compare spec.toml
compare --epsilon 1 -s 1 -m nonsense
compare --epsilon 1 --bits 2 --input-range 1 0
compare --epsilon 1 --bits 2 -s 1
compare --epsilon 1 --bits 2 --integer
compare --epsilon 1 -s 1 --input-range 0 1
report law.json
report result.json --out .
verify binary.toml
verify law.json
calibrate laplace
calibrate nonsense --epsilon 1 --sensitivity 1
calibrate laplace --epsilon -1 --sensitivity 1
calibrate laplace --epsilon x --sensitivity 1
calibrate laplace --epsilon 1 --rho 1 --sensitivity 1
calibrate gaussian --epsilon 1 --sensitivity 1
calibrate laplace --epsilon 1 --l0 3 -k 20
calibrate laplace --epsilon 1 -s nan
"""

SPECS = [
    "design = 3",
    'design = "Prior"',
    'design = "OPTM"\nsolve = 3',
    'design = "OPTM"\nprior = "uniform"',
    "bins = [1, 2]",
    "a = " + "[" * 3000,
    *(
        SPEC.replace(old, new)
        for old, new in (
            ("bins = [-3.0, -0.5, 0.5, 3.0]", "bins = [[1], [2, 3]]"),
            ("bins = [-3.0, -0.5, 0.5, 3.0]", "bins = [nan, 1.0]"),
            ("bins = [-3.0, -0.5, 0.5, 3.0]", "bins = 1979-05-27"),
            ("epsilon = 1.0", 'epsilon = "a"'),
            ("epsilon = 1.0", "delta = 0.1"),
            ('kind = "PureDP"', 'kind = ["PureDP"]'),
            ('law = "uniform"', "law = 3"),
            ('law = "uniform"', 'law = "poisson"'),
            ("loc = -1", "loc = [1, 2]"),
            ("scale = 2", "scale = -2"),
            ("scale = 2", "scale = 2\nclip = [-1, 1]\ntruncate = [-1, 1]"),
            ('loss = "absolute"', "loss = {}"),
            ('solver = "highs"', "self = 3"),
            ('solver = "highs"', "time_limit = -1"),
        )
    ),
]


def test_wrong_command_lines(tmp_path: Path, capsys, monkeypatch) -> None:
    """Each ends in one sentence, or in the usage of its command."""
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC)
    Path("binary.toml").write_bytes(b"\xff\xfe\x00")
    Path("law.json").write_text(dumps(md.PureDP(1.0)))
    md.NoiseAllocation(noise="laplace", sensitivities=[1.0], privacy=md.PureDP(1.0)).solve().save(
        "result.json"
    )
    for words in map(str.split, WRONG.strip().splitlines()):
        code, _, error = ended(words, capsys, monkeypatch)
        assert code in (1, 2), words
        assert code == 2 or (error.startswith("error: ") and error.count("\n") == 1), (words, error)


@pytest.mark.parametrize("spec", SPECS, ids=range(len(SPECS)))
def test_wrong_specifications(tmp_path: Path, capsys, monkeypatch, spec: str) -> None:
    (tmp_path / "spec.toml").write_text(spec)
    code, _, error = ended(["solve", str(tmp_path / "spec.toml")], capsys, monkeypatch)
    assert code == 1 and error.startswith("error: ") and error.count("\n") == 1

"""calibrate, report, verify, --version; examples in every help; tables that fit; bars; one line for every error."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from commands import ended

import mechdesign as md
from mechdesign.shell.cli import app

COMMANDS = [
    [],
    ["solve"],
    ["calibrate"],
    ["compare"],
    ["plan"],
    ["release"],
    ["ledger"],
    ["report"],
    ["verify"],
    ["certificate"],
    ["audit"],
    ["solvers"],
    ["study"],
    ["study", "list"],
    ["study", "run"],
    ["study", "check"],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("files")
    md.NoiseAllocation("laplace", [1.0, 2.0], md.PureDP(1.0)).solve().save(made / "allocation.json")
    md.calibrate("laplace", privacy=md.PureDP(1.0), sensitivity=1.0).save(made / "noise.json")
    md.MetricChannel(md.MetricSpace.grid(3, 3), alpha=0.7).solve().save(made / "channel.json")
    return made


@pytest.mark.parametrize("name", ["allocation", "channel"])
def test_report_and_verify(folder: Path, name: str, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--dataset", "visits", "--author", "A. <b>", "--purpose", "bulletin", "--date", "2026-11-23"]
    code, _, _ = ended(
        ["report", str(folder / f"{name}.json"), "-o", "page.html", *words], capsys, monkeypatch
    )
    assert code == 0 and "author: A. &lt;b&gt;" in Path("page.html").read_text()
    code, out, _ = ended(["verify", str(folder / f"{name}.json")], capsys, monkeypatch)
    assert code == 0 and "verified by" in out
    assert "two programs" in out


def test_verify_refuses_a_doctored_file(folder: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    found = md.load(folder / "allocation.json")
    replace(found, value=0.5 * found.value).save(tmp_path / "doctored.json")
    code, _, error = ended(["verify", str(tmp_path / "doctored.json")], capsys, monkeypatch)
    assert code == 1 and "does not hold" in error and error.count("\n") == 1
    assert ended(["report", str(tmp_path / "doctored.json")], capsys, monkeypatch)[0] == 1
    assert "do not deploy" in (tmp_path / "doctored.html").read_text()


@pytest.mark.parametrize("words", COMMANDS, ids=lambda w: " ".join(w) or "all")
def test_every_help_has_examples(words: list[str], capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = ended([*words, "--help"], capsys, monkeypatch)
    assert code == 0 and "Examples" in out
    shown = " ".join(out.partition("Examples:")[2].split())
    assert f"mechdesign {' '.join(words)}".strip() in shown
    assert max(map(len, out.splitlines())) <= 80


def test_the_commands_above_are_all(capsys, monkeypatch) -> None:
    import typer

    group = typer.main.get_command(app)
    names = [[name] for name in group.commands] + [
        ["study", name] for name in group.commands["study"].commands
    ]
    assert sorted(names) == sorted(COMMANDS[1:])


@pytest.mark.slow
def test_the_examples_run(tmp_path: Path, folder: Path, capsys, monkeypatch) -> None:
    """What a help shows is typed in, but for the studies, which take longer; of a comparison one mechanism is tried."""
    import typer

    from mechdesign import choose

    compare = choose.compare
    one = {"NumericQuery": "laplace", "LocalReport": "RQM", "MetricReport": "exponential mechanism"}

    def quick(question: object, **given: object) -> object:
        return compare(question, **{**given, "mechanisms": [one[type(question).__name__]]})

    monkeypatch.setattr(choose, "compare", quick)

    monkeypatch.chdir(tmp_path)
    Path("design.toml").write_text(
        'design = "NoiseAllocation"\nnoise = "laplace"\nsensitivities = [1.0, 2.0]\nprivacy = {epsilon = 1.0}\n'
    )
    Path("question.toml").write_text(
        'question = "MetricReport"\nalpha = 0.7\nspace = {rows = 2, columns = 3}\n'
    )
    Path("release.toml").write_text('privacy = {epsilon = 1.0}\n[tasks.people]\nkind = "Count"\n')
    Path("answers.csv").write_text("people\n1234\n")
    Path("table.csv").write_text("x,-2.2,2.2\n-1,0.7272,0.2728\n1,0.2728,0.7272\n")
    md.Ledger("ledger.jsonl", md.ApproximateDP(1.0, 1e-6))
    Path("result.json").write_text((folder / "allocation.json").read_text())
    Path("channel.json").write_text((folder / "channel.json").read_text())
    for command in typer.main.get_command(app).commands.values():
        for line in re.findall(r"mechdesign (.+)", command.epilog or ""):
            if not line.startswith("study run") and "--sampling-rate" not in line:
                code, _, error = ended(shlex.split(line), capsys, monkeypatch)
                assert code == 0, (line, error)


def test_a_strangers_markup_is_text(folder: Path, capsys, monkeypatch, tmp_path: Path) -> None:
    from mechdesign.shell.show import show

    show(["a"], [["[red]x[/red] [link=http://a.b]y[/link]"]])
    assert "[red]x[/red] [link=http://a.b]y[/link]" in capsys.readouterr().out


def test_a_defect_is_one_line_too(folder: Path, capsys, monkeypatch) -> None:
    import mechdesign.evidence.serialize

    def broken(path: object) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr(mechdesign.evidence.serialize, "load", broken)
    code, _, error = ended(["audit", str(folder / "noise.json")], capsys, monkeypatch)
    assert (
        code == 1
        and error.startswith("internal error: ZeroDivisionError (MECHDESIGN_DEBUG=1")
        and error.count("\n") == 1
    )


def test_a_study_has_a_page(tmp_path: Path) -> None:
    from mechdesign.plotting import figure
    from mechdesign.shell.studykit import Report, Study, run_study

    def body(report: Report) -> None:
        report.text("**Words** before <script>alert(1)</script>.")
        report.table("t", pd.DataFrame({"a": [1.0, 2.0]}), caption="A table")
        fig, axis = figure()
        axis.plot([0, 1])
        report.figure("f", fig, caption="A figure")
        report.text("Words after.")

    text = (run_study(Study("tiny", "Tiny", "A paper", body), tmp_path) / "report.html").read_text()
    assert "<strong>Words</strong> before &lt;script&gt;" in text and text.count("<script>") == 1
    assert text.count("<svg") == 1 and "A table" in text
    assert text.index("Words</strong> before") < text.index("A table</h2>") < text.index("Words after")
    assert "report.html" not in str(
        run_study(Study("tiny", "Tiny", "A paper", body), tmp_path)
    )  # it runs again


def test_calibrate_takes_a_time_limit(tmp_path: Path, capsys, monkeypatch) -> None:
    def run(*words: object) -> tuple[int, str, str]:
        return ended([str(w) for w in words], capsys, monkeypatch)

    asked = ("--epsilon", "1", "--delta", "1e-6", "-s", "1", "-k", "4", "--time-limit")
    code, out, _ = run("calibrate", "logistic", *asked, "1e-9")
    assert code == 0 and "status: limit" in out and ": ε = 1, δ = 1e-06; 1 round" in out
    code, _, err = run("calibrate", "logistic", *asked, "0")
    assert code == 1 and "time_limit" in err

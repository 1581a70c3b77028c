"""calibrate, report, verify, --version; examples in every help; tables that fit; bars; one line for every error."""

import hashlib
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import cheap
import pandas as pd
import pytest
from commands import ended

import mechdesign as md
from mechdesign.evidence.files import write_whole
from mechdesign.shell.cli import app
from mechdesign.shell.studykit import Report, Study, run_study

COMMANDS = [
    [], ["solve"], ["calibrate"], ["compare"], ["plan"], ["release"], ["ledger"], ["report"], ["verify"],
    ["certificate"], ["audit"], ["solvers"], ["study"], ["study", "list"], ["study", "run"], ["study", "check"],
]  # fmt: skip


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


def test_a_curve_that_one_program_refuses_is_not_verified(tmp_path: Path, capsys, monkeypatch) -> None:
    """Both programs read the whole file, its table too, and not its results alone."""
    file = tmp_path / "curve.json"
    md.sweep(md.NoiseAllocation("laplace", [1.0, 2.0], md.PureDP(1.0)), epsilon=[0.5, 1.0]).save(file)
    code, out, _ = ended(["verify", str(file)], capsys, monkeypatch)
    assert code == 0 and "2 by two programs" in out
    monkeypatch.setattr("mechdesign.verifier.verify.split", lambda design, over: (repr(design), [0.0]))
    code, _, error = ended(["verify", str(file)], capsys, monkeypatch)
    assert code == 1 and "does not hold: every result is of its point" in error


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


# -- What the command line loads before a command runs -------------------------------------------------------

HEAVY = {"pandas", "cvxpy", "scipy", "numpy", "matplotlib", "highspy", "mpmath", "joblib", "jinja2"}


def test_help_loads_no_scientific_library() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "mechdesign", "--help"]
    run = subprocess.run(command, capture_output=True, text=True)
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in run.stderr.splitlines()}
    assert run.returncode == 0 and "typer" in loaded
    assert not loaded & HEAVY


# -- The page of data sets: every file that a study asks for, and the sums of those that are here ------------

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "data.rst").read_text(encoding="utf-8")
SUMS = {name: total for total, name in re.findall(r"^   ([0-9a-f]{64})  (\S+)$", PAGE, re.MULTILINE)}
FOLDER = Path(os.environ.get("MECHDESIGN_DATA", "nowhere"))


def test_every_file_that_a_study_asks_for_is_on_the_page_with_its_sum() -> None:
    code = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "studies").rglob("*.py"))
    asked = set(re.findall(r'"(\w+\.(?:csv|bin)\.gz)"', code))
    assert 'report.data(f"mnist_{split}-{part}-ubyte.gz")' in code
    asked |= {
        f"mnist_{split}-{part}-ubyte.gz"
        for split in ("train", "t10k")
        for part in ("images-idx3", "labels-idx1")
    }
    assert asked == set(SUMS) == set(re.findall(r"^   \* - ``(\S+)``$", PAGE, re.MULTILINE))


@pytest.mark.skipif(not FOLDER.is_dir(), reason="MECHDESIGN_DATA is not set")
@pytest.mark.parametrize("name", SUMS)
def test_files_that_are_here_are_those_of_the_page(name: str) -> None:
    if not (FOLDER / name).exists():
        pytest.skip(f"no {name}")
    assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == SUMS[name]


# -- Paths at the command line: refused before the work; a module that the user names, and none that a file names

CALIBRATE = "calibrate laplace --epsilon 1 -s 1"


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    cheap.solved("noise-allocation").save("r.json")
    Path("link.json").symlink_to("r.json")
    return tmp_path / "r.json"


@pytest.mark.parametrize("target", ["r.json", "./r.json", "link.json"])
@pytest.mark.parametrize("words", ["report r.json -o", "audit r.json --csv"])
def test_a_result_is_not_overwritten(saved: Path, words: str, target: str, capsys, monkeypatch) -> None:
    before = saved.read_bytes()
    code, _, error = ended([*words.split(), target], capsys, monkeypatch)
    assert code == 1 and "is the path of the file that is read too" in error and error.count("\n") == 1
    assert saved.read_bytes() == before


@pytest.mark.parametrize(
    "words",
    [
        f"{CALIBRATE} -o nowhere/a.json",
        f"{CALIBRATE} -o .",
        f"{CALIBRATE} -o /proc/a.json",
        "audit r.json --csv /proc/a.csv",
        f"{CALIBRATE} -o a.json -r a.json",
        "compare --epsilon 1 -s 1 --csv nowhere/a.csv",
        "solve d.toml -o d.toml",
        "report r.json -o nowhere/a.html",
    ],
)
def test_paths_are_refused_before_the_work(saved: Path, words: str, capsys, monkeypatch) -> None:
    from mechdesign.noise.calibration import Calibration

    def worked(*given: object, **options: object) -> None:
        raise AssertionError("the work had begun")

    monkeypatch.setattr(Calibration, "solve", worked)
    monkeypatch.setattr(md.NoiseAllocation, "solve", worked)
    text = 'design = "NoiseAllocation"\nnoise = "laplace"\nsensitivities = [1.0]\nprivacy = {epsilon = 1.0}\n'
    Path("d.toml").write_text(text)
    code, out, error = ended(words.split(), capsys, monkeypatch)
    assert code == 1 and out == "" and error.count("\n") == 1 and "internal" not in error
    assert any(
        remedy in error
        for remedy in ("make it first", "add the name", "give another", "no folder", "choose another")
    )
    assert Path("d.toml").read_text() == text


def test_a_module_that_the_user_names_is_imported(tmp_path: Path, capsys, monkeypatch) -> None:
    from mechdesign.evidence.serialize import LAWS

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    Path("newcomers_laws.py").write_text(
        "import mechdesign as md\n"
        "tent = md.density(lambda x: 1 - 0.7 * abs(x), -1, 1, name='newcomers-own')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import newcomers_laws

    md.OptimalQuantizer(cheap.BINS, cheap.PURE, newcomers_laws.tent).solve(gap=1e-2).save("r.json")
    for words in (["verify"], ["audit"], ["report", "-o", "a.html"]):
        LAWS.pop("newcomers-own", None)
        sys.modules.pop("newcomers_laws", None)
        command = [words[0], "r.json", *words[1:]]
        code, _, error = ended(command, capsys, monkeypatch)
        assert code == 1 and "register" in error
        code, _, error = ended([*command, "--import", "newcomers_laws"], capsys, monkeypatch)
        assert code == 0, error


# -- Faults of the machine: a full disk, a closed output, a kill in the middle of a study


COMMAND = f"{sys.executable} -c 'from mechdesign.shell.cli import main; main()'"


def tiny(number: int, name: str = "t") -> Study:
    def body(report: Report) -> None:
        report.table(name, pd.DataFrame({"run": [number]}))
        if number < 0:
            raise RuntimeError("killed")

    return Study("tiny", "Tiny", "", body)


def test_a_study_that_fails_leaves_the_last_one(tmp_path: Path) -> None:
    run_study(tiny(1), tmp_path)
    with pytest.raises(RuntimeError):
        run_study(tiny(-1), tmp_path)
    assert "1" in (tmp_path / "tiny" / "t.csv").read_text()
    assert [p.name for p in tmp_path.iterdir()] == ["tiny"]


def test_a_users_file_in_the_folder_stays(tmp_path: Path) -> None:
    """What no study wrote is neither deleted nor overwritten."""
    folder = run_study(tiny(1, "old"), tmp_path)
    (folder / "notes.txt").write_text("mine")
    (folder / "deep").mkdir()
    (folder / "deep" / "more.txt").write_text("mine too")
    run_study(tiny(2, "new"), tmp_path)
    assert (folder / "notes.txt").read_text() == "mine" and (folder / "deep" / "more.txt").exists()
    assert (folder / "new.csv").exists() and not (folder / "old.csv").exists()
    (folder / "table.csv").write_text("mine")
    with pytest.raises(md.DesignError, match=r"table\.csv, which no study wrote"):
        run_study(tiny(3, "table"), tmp_path)
    assert (folder / "table.csv").read_text() == "mine" and (folder / "new.csv").exists()
    foreign = tmp_path / "other" / "tiny"
    foreign.mkdir(parents=True)
    (foreign / "README.md").write_text("mine")
    with pytest.raises(md.DesignError, match="which no study wrote"):
        run_study(tiny(1), foreign.parent)
    assert (foreign / "README.md").read_text() == "mine"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    write_whole(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mechdesign.evidence.files.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "words", ["study list >&-", "study list > /dev/full", "study run location -q --out /dev/full"]
)
def test_faults_are_one_line(words: str, tmp_path: Path) -> None:
    run = subprocess.run(f"{COMMAND} {words}", shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.startswith("error: ") and run.stderr.count("\n") == 1


def test_verify_refuses_a_doctored_file(folder: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    found = md.load(folder / "allocation.json")
    replace(found, value=0.5 * found.value).save(tmp_path / "doctored.json")
    code, _, error = ended(["verify", str(tmp_path / "doctored.json")], capsys, monkeypatch)
    assert code == 1 and "does not hold" in error and error.count("\n") == 1
    assert ended(["report", str(tmp_path / "doctored.json")], capsys, monkeypatch)[0] == 1
    assert "do not deploy" in (tmp_path / "doctored.html").read_text()

"""Faults of the machine: a full disk, a closed output, a kill in the middle of a study."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import mechdesign as md
from mechdesign.evidence.serialize import write_whole
from mechdesign.shell.runner import run_study
from mechdesign.shell.studykit import Report, Study

COMMAND = f"{sys.executable} -c 'from mechdesign.shell.cli import main; main()'"
STUDY = """
import sys
from pathlib import Path
import pandas as pd
from mechdesign.shell.runner import run_study
from mechdesign.shell.studykit import Study

def body(report):
    for k in range(40):
        report.table(f"t{k}", pd.DataFrame({"run": [int(sys.argv[2])] * 50}))

print("ready", flush=True)
run_study(Study("tiny", "Tiny", "", body), Path(sys.argv[1]))
"""


def tiny(number: int, name: str = "t") -> Study:
    def body(report: Report) -> None:
        report.table(name, pd.DataFrame({"run": [number]}))
        if number < 0:
            raise RuntimeError("killed")

    return Study("tiny", "Tiny", "", body)


def test_a_study_that_fails_leaves_the_last_one(tmp_path: Path) -> None:
    """The target folder was emptied first: a kill left nothing."""
    run_study(tiny(1), tmp_path)
    with pytest.raises(RuntimeError):
        run_study(tiny(-1), tmp_path)
    assert "1" in (tmp_path / "tiny" / "t.csv").read_text() and [p.name for p in tmp_path.iterdir()] == [
        "tiny"
    ]


def test_a_users_file_in_the_folder_stays(tmp_path: Path) -> None:
    """A user's file in the folder of a study was deleted with the old results."""
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


def test_a_killed_study_leaves_one_whole_run(tmp_path: Path) -> None:
    rng = random.Random(1)
    for number in range(6):
        words = [sys.executable, "-c", STUDY, str(tmp_path), str(number)]
        run = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert run.stdout is not None and run.stdout.readline()
        if number:
            time.sleep(rng.uniform(0.0, 0.6))
            run.send_signal(signal.SIGKILL)
        run.communicate()
        tables = {path.read_text() for path in (tmp_path / "tiny").glob("*.csv")}
        assert len(tables) == 1 and len(list((tmp_path / "tiny").glob("*.csv"))) == 40


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    write_whole(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mechdesign.evidence.serialize.os.fsync", full)
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

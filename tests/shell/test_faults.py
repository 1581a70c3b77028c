"""Faults of the machine: a full disk, a closed output, a kill in the middle of a study."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import mechdesign as md
from mechdesign.evidence.serialize import dumps, write_whole
from mechdesign.shell.studykit import Report, Study, run_study

KILLS = 30 if os.environ.get("MECHDESIGN_NIGHTLY") else 5
COMMAND = f"{sys.executable} -c 'from mechdesign.shell.cli import main; main()'"


# Thirty-six choices of bins, a line of the store each.
SEARCH = """
import sys
from scipy import stats
import mechdesign as md

search = md.OPTMSearch(
    md.PureDP(1.0), stats.uniform(-1, 2),
    bins=md.Grid(delta=[1.2, 1.4, 1.6, 1.8, 1.9, 2.0], inner=[0.2, 0.3, 0.4, 0.5, 0.6, 0.7]),
    levels=md.Grid(level=[0.6, 0.63, 0.66, 0.67, 0.7], width=[0.01]),
)
print("ready", flush=True)
search.solve(store=sys.argv[1]).save(sys.argv[2])
"""
SPECIFICATION = """
design = "OPTM"
bins = [-3, -0.5, 0.5, 3]
[privacy]
kind = "PureDP"
epsilon = 1
[prior]
law = "uniform"
loc = -1
scale = 2
"""


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

    monkeypatch.setattr("mechdesign.evidence.serialize.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.slow
def test_a_killed_search_is_resumed_to_the_same_bytes(tmp_path: Path) -> None:
    """Killed again and again at random moments, on one store, and then left to end."""
    rng, store, whole = random.Random(2), tmp_path / "store", tmp_path / "whole"

    def run(*paths: Path, after: float | None = None) -> None:
        words = [sys.executable, "-c", SEARCH, *map(str, paths)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline()
        if after is not None:
            time.sleep(after)
            process.send_signal(signal.SIGKILL)
        process.communicate()

    run(whole, tmp_path / "whole.json")
    lengths: list[int] = []
    for _ in range(KILLS):
        run(store, tmp_path / "r.json", after=rng.uniform(0.0, 0.3))
        lengths.append(store.stat().st_size if store.exists() else 0)
        held = store.read_bytes() if store.exists() else b""
        assert whole.read_bytes().startswith(held[: held.rfind(b"\n") + 1])
    run(store, tmp_path / "r.json")
    assert store.read_bytes() == whole.read_bytes() and lengths == sorted(lengths)
    a, b = (md.load(tmp_path / name) for name in ("r.json", "whole.json"))
    assert a.table.equals(b.table) and (a.value, a.lower_bound) == (b.value, b.lower_bound)
    assert dumps(a.mechanism) == dumps(b.mechanism)


@pytest.mark.slow
@pytest.mark.parametrize("bytes_left", [0, 4000])
def test_a_full_disk_leaves_the_last_result(bytes_left: int, tmp_path: Path) -> None:
    """One line and exit 1; what was there stays, and no half-written file beside it."""
    specification, result = tmp_path / "design.toml", tmp_path / "result.json"
    specification.write_text(SPECIFICATION)
    result.write_text("the last one")
    code = f"""
import resource, sys
import cvxpy, joblib  # joblib tries a semaphore of its own
from mechdesign.shell.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes_left}, {bytes_left}))
sys.argv = ["mechdesign", "solve", "design.toml", "--out", "result.json"]
main()
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.startswith("error: ") and run.stderr.count("\n") == 1, run.stderr
    assert "large" in run.stderr or "space" in run.stderr
    assert result.read_text() == "the last one"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["design.toml", "result.json"]


@pytest.mark.parametrize(
    "words", ["study list >&-", "study list > /dev/full", "study run location -q --out /dev/full"]
)
def test_faults_are_one_line(words: str, tmp_path: Path) -> None:
    run = subprocess.run(f"{COMMAND} {words}", shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.startswith("error: ") and run.stderr.count("\n") == 1

"""Paths at the command line: refused before the work; a module that the user names, and none that a file names."""

from __future__ import annotations

import sys
from pathlib import Path

import cheap
import pytest
from commands import ended

import mechdesign as md

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
    assert code == 1 and "is the result file itself" in error and error.count("\n") == 1
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


@pytest.mark.parametrize("path", ["/nonexistent/a.json", "", ".", "x" * 300])
@pytest.mark.parametrize("way", ["save", "report", "to_latex", "to_markdown", "to_csv"])
def test_errors_name_the_path_that_was_given(saved: Path, way: str, path: str) -> None:
    with pytest.raises((md.DesignError, OSError)) as caught:
        getattr(cheap.solved("noise-allocation"), way)(path)
    assert isinstance(caught.value, md.DesignError) or len(path) == 300
    assert ".a.json." not in str(caught.value)
    assert sorted(p.name for p in saved.parent.iterdir()) == ["link.json", "r.json"]


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


@pytest.mark.parametrize("name", ["no_such_module", "os.path:join", "../laws", "a b", "", "broken_module"])
def test_what_is_no_module(saved: Path, name: str, capsys, monkeypatch) -> None:
    Path("broken_module.py").write_text("raise RuntimeError('at import')\n")
    code, _, error = ended(["verify", "r.json", "--import", name], capsys, monkeypatch)
    assert code == 1 and error.startswith("error: import = ") and error.count("\n") == 1


def test_a_study_is_not_run_where_it_cannot_be_written_nor_by_fewer_than_one(capsys, monkeypatch) -> None:
    code, _, error = ended(["study", "run", "location", "--out", "/proc/x"], capsys, monkeypatch)
    assert code == 1 and "out = '/proc/x': cannot be written" in error and "choose another" in error
    code, _, error = ended(["study", "run", "location", "--jobs", "-5"], capsys, monkeypatch)
    assert code == 2 and "--jobs" in error

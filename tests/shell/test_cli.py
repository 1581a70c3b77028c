"""The command line, run as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from commands import ended
from scipy import stats

import mechdesign as md
from mechdesign.evidence.serialize import dumps

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


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    code = "from mechdesign.shell.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_solve_and_audit(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    solved = run("solve", "spec.toml", "-o", "result.json", cwd=tmp_path)
    assert solved.returncode == 0 and "in exact arithmetic" in solved.stdout
    assert md.load(tmp_path / "result.json").value == pytest.approx(1.8785, abs=1e-4)
    audited = run("audit", "result.json", "--csv", "audit.csv", cwd=tmp_path)
    assert audited.returncode == 0 and "every constraint of the definition holds" in audited.stdout
    assert (tmp_path / "audit.csv").exists()
    text = (tmp_path / "result.json").read_text()
    (tmp_path / "result.json").write_text(text.replace("0.5", "0.6", 1))
    broken = run("audit", "result.json", cwd=tmp_path)
    assert (
        broken.returncode == 1 and "edited or damaged" in broken.stderr and "Traceback" not in broken.stderr
    )


@pytest.mark.parametrize(
    "result",
    [
        lambda: md.OptimalQuantizer([-3, -0.5, 0.5, 3], md.PureDP(1.0), stats.uniform(-1, 2)).solve(),
        lambda: md.OptimalQuantizer(np.linspace(-2, 2, 65), md.PureDP(3.0), stats.uniform(-1, 2)).solve(),
        lambda: md.MetricChannel(md.MetricSpace.grid(3, 3), alpha=0.7).solve(),
        lambda: md.NoiseAllocation(noise="laplace", sensitivities=[1.0, 2.0], privacy=md.PureDP(1.0)).solve(),
        lambda: md.OptimalNoise(privacy=md.ApproximateDP(1.0, 0.2), sensitivity=1.0).solve(gap=0.02),
        lambda: md.CorrelatedGaussian(vectors=np.eye(3), privacy=md.ApproximateDP(0.5, 1e-6)).solve(),
    ],
    ids=["quantizer", "many outputs", "channel", "allocation", "noise", "correlated"],
)
def test_every_kind_of_result_is_audited(tmp_path: Path, result, capsys) -> None:
    """Saved, read back to the same bytes, audited without complaint."""
    from mechdesign.shell.cli import audit

    path = tmp_path / "r.json"
    result().save(path)
    md.load(path).save(tmp_path / "again.json")
    assert path.read_bytes() == (tmp_path / "again.json").read_bytes()
    audit(path, rows=2, csv=None)
    assert "every constraint of the definition holds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('design = "OPTM"', 'design = "OPT"'), "design = 'OPT': must be one of"),
        (("epsilon = 1.0", "epsilon = -1.0"), "epsilon = -1.0: must be"),
        (('law = "uniform"', 'law = "unifrom"'), "prior.law = 'unifrom'"),
        (("bins = [-3.0, -0.5, 0.5, 3.0]", "bins = [3.0, 1.0]"), "out of order"),
        (("bins =", "binz ="), "binz: OPTM has no such argument"),
        (("bins = [-3.0, -0.5, 0.5, 3.0]", ""), "needs bins"),
        (('kind = "PureDP"', 'kind = "DP"'), "privacy.kind = 'DP'"),
        (("[prior]", "[prior"), "not a readable TOML"),
        (('solver = "highs"', 'solver = "low"'), "solver = 'low'"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, change: tuple[str, str], message: str, capsys, monkeypatch
) -> None:
    from mechdesign.shell.cli import main

    (tmp_path / "spec.toml").write_text(SPEC.replace(*change))
    monkeypatch.setattr(sys, "argv", ["mechdesign", "solve", str(tmp_path / "spec.toml")])
    with pytest.raises(SystemExit) as stop:
        main()
    error = capsys.readouterr().err
    assert stop.value.code == 1 and message in error and error.count("\n") == 1


@pytest.mark.slow
def test_lists_and_help(tmp_path: Path) -> None:
    assert "quantizer-tables" in run("study", "list", cwd=tmp_path).stdout
    assert "clarabel" in run("solvers", cwd=tmp_path).stdout
    helped = run("--help", cwd=tmp_path)
    assert helped.returncode == 0 and "audit" in helped.stdout
    unknown = run("study", "run", "nonesuch", cwd=tmp_path)
    assert unknown.returncode == 1 and "study = 'nonesuch': must be one of" in unknown.stderr
    assert run("solve", cwd=tmp_path).returncode == 2


def test_study_check_finds_a_changed_number(tmp_path: Path) -> None:
    """The comparison that CI makes, on a small study of its own."""
    import numpy as np
    import pandas as pd

    from mechdesign.shell.studykit import Report, Study, check_study, run_study

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
    assert "no contents.json" in check_study(fresh, tmp_path)[0]


def test_the_quick_variant_of_a_study(tmp_path: Path, monkeypatch, capsys) -> None:
    """It lies beside the whole, either leaves the other alone, and a check regenerates the quick one."""
    import pandas as pd

    from mechdesign.shell import cli
    from mechdesign.shell.studykit import Report, Study, run_study

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


WRONG = [
    [],
    ["nonsense"],
    ["solve"],
    ["solve", "missing.toml"],
    ["solve", "."],
    ["solve", "binary.toml"],
    ["solve", "spec.toml", "--out", "nowhere/result.json"],
    ["solve", "spec.toml", "--out", "."],
    ["solve", "spec.toml", "--nonsense"],
    ["audit"],
    ["audit", "missing.json"],
    ["audit", "."],
    ["audit", "spec.toml"],
    ["audit", "binary.toml"],
    ["audit", "law.json"],
    ["audit", "result.json", "--rows", "-1"],
    ["audit", "result.json", "--rows", "x"],
    ["audit", "result.json", "--csv", "nowhere/audit.csv"],
    ["audit", "result.json", "--csv", "."],
    ["study"],
    ["study", "nonsense"],
    ["study", "run"],
    ["study", "run", "nonsense"],
    ["study", "run", "location", "--out", "spec.toml"],
    ["study", "run", "location", "--jobs", "x"],
    ["study", "check", "nonsense"],
    ["solvers", "x"],
    ["compare"],
    ["compare", "--epsilon", "1"],
    ["compare", "missing.toml"],
    ["compare", "spec.toml"],
    ["compare", "--epsilon", "1", "-s", "1", "-m", "nonsense"],
    ["compare", "--epsilon", "1", "--bits", "0"],
    ["compare", "--epsilon", "1", "--bits", "2", "--input-range", "1", "0"],
    ["compare", "--epsilon", "1", "-s", "1", "--loss", "cubic"],
    ["report"],
    ["report", "missing.json"],
    ["report", "law.json"],
    ["report", "binary.toml"],
    ["report", "result.json", "--out", "."],
    ["report", "result.json", "--out", "nowhere/report.html"],
    ["verify"],
    ["verify", "missing.json"],
    ["verify", "law.json"],
    ["verify", "spec.toml"],
    ["calibrate"],
    ["calibrate", "laplace"],
    ["calibrate", "nonsense", "--epsilon", "1", "--sensitivity", "1"],
    ["calibrate", "laplace", "--epsilon", "1"],
    ["calibrate", "laplace", "--epsilon", "-1", "--sensitivity", "1"],
    ["calibrate", "laplace", "--epsilon", "x", "--sensitivity", "1"],
    ["calibrate", "laplace", "--epsilon", "1", "--rho", "1", "--sensitivity", "1"],
    ["calibrate", "gaussian", "--rho", "1", "--delta", "0.1", "--sensitivity", "1"],
    ["calibrate", "gaussian", "--epsilon", "1", "--sensitivity", "1"],
    ["calibrate", "laplace", "--epsilon", "1", "--l0", "3", "-k", "20"],
    ["calibrate", "laplace", "--epsilon", "1", "-s", "1", "--report", "nowhere/report.html"],
    ["calibrate", "laplace", "--epsilon", "1", "-s", "nan"],
]

SPECS = [
    "design = 3",
    'design = ["OPTM"]',
    'design = "Prior"',
    'design = "load"',
    'design = "MechdesignError"',
    'design = "OPTM"\nsolve = 3',
    'design = "OPTM"\nprivacy = 1.0',
    'design = "OPTM"\nprior = "uniform"',
    "bins = [1, 2]",
    "[[design]]",
    "a = " + "[" * 3000,
    SPEC.replace("bins = [-3.0, -0.5, 0.5, 3.0]", 'bins = "x"'),
    SPEC.replace("bins = [-3.0, -0.5, 0.5, 3.0]", "bins = [[1], [2, 3]]"),
    SPEC.replace("bins = [-3.0, -0.5, 0.5, 3.0]", "bins = [nan, 1.0]"),
    SPEC.replace("bins = [-3.0, -0.5, 0.5, 3.0]", "bins = 1979-05-27"),
    SPEC.replace("epsilon = 1.0", 'epsilon = "a"'),
    SPEC.replace("epsilon = 1.0", "epsilon = nan"),
    SPEC.replace("epsilon = 1.0", "delta = 0.1"),
    SPEC.replace('kind = "PureDP"', 'kind = ["PureDP"]'),
    SPEC.replace('kind = "PureDP"', 'kind = "ApproximateDP"'),
    SPEC.replace('law = "uniform"', "law = 3"),
    SPEC.replace('law = "uniform"', 'law = "test"'),
    SPEC.replace('law = "uniform"', 'law = "poisson"'),
    SPEC.replace('law = "uniform"', 'law = "beta"'),
    SPEC.replace("loc = -1", 'loc = "a"'),
    SPEC.replace("loc = -1", "loc = [1, 2]"),
    SPEC.replace("loc = -1", "place = -1"),
    SPEC.replace("scale = 2", "scale = -2"),
    SPEC.replace("scale = 2", "scale = 2\nclip = 3"),
    SPEC.replace("scale = 2", "scale = 2\nclip = [-1, 1]\ntruncate = [-1, 1]"),
    SPEC.replace("scale = 2", "scale = 2\ntruncate = [1, -1]"),
    SPEC.replace('loss = "absolute"', 'loss = "abs"'),
    SPEC.replace('loss = "absolute"', "loss = {}"),
    SPEC.replace('solver = "highs"', "solver = 3"),
    SPEC.replace('solver = "highs"', "self = 3"),
    SPEC.replace('solver = "highs"', "nonsense = 3"),
    SPEC.replace('solver = "highs"', "time_limit = -1"),
    SPEC.replace('solver = "highs"', 'gap = "a"'),
]


def test_wrong_command_lines(tmp_path: Path, capsys, monkeypatch) -> None:
    """15 of 53 wrong command lines ended in a traceback."""
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC)
    Path("binary.toml").write_bytes(b"\xff\xfe\x00")
    Path("law.json").write_text(dumps(md.PureDP(1.0)))
    md.NoiseAllocation(noise="laplace", sensitivities=[1.0], privacy=md.PureDP(1.0)).solve().save(
        "result.json"
    )
    for words in WRONG:
        code, _, error = ended(words, capsys, monkeypatch)
        assert code in (1, 2), words
        assert code == 2 or (error.startswith("error: ") and error.count("\n") == 1), (words, error)


@pytest.mark.parametrize("spec", SPECS, ids=range(len(SPECS)))
def test_wrong_specifications(tmp_path: Path, capsys, monkeypatch, spec: str) -> None:
    (tmp_path / "spec.toml").write_text(spec)
    code, _, error = ended(["solve", str(tmp_path / "spec.toml")], capsys, monkeypatch)
    assert code == 1 and error.startswith("error: ") and error.count("\n") == 1

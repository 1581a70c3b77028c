"""A plan from a file to its answers: TOML, shell, ledger, page, and numbers for other engines."""

from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import ended
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.plan.tasks import Histogram
from mechdesign.shell.spec_file import design_from_toml
from mechdesign.verifier.verify import verify

SPEC = """
rounds = {rounds}
privacy = {{epsilon = 1.0}}
[tasks.visits]
kind = "Histogram"
bins = 4
contribution = {{linf = 2, l0 = 3}}
[tasks.age]
kind = "Mean"
lower = 0
upper = 100
n = 10_000
[tasks.spent]
kind = "Sum"
clip = 5.0
[weights]
visits = 6e-6
"""
ANSWERS = "spent,visits,age\n7021.5,120,412000\n,80,10012\n,45,\n,12,\n"
TASKS = {"visits": md.Histogram(4, whole=False), "people": md.Count(whole=False), 'spent "net"': md.Sum(5.0)}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("release.toml").write_text(SPEC.format(rounds=3))
    Path("answers.csv").write_text(ANSWERS, encoding="utf-8")
    return tmp_path


def test_three_rounds_in_a_shell_and_no_fourth(here: Path, capsys, monkeypatch) -> None:
    def run(words: str) -> tuple[int, str, str]:
        return ended(words.split(), capsys, monkeypatch)

    code, out, _ = run("plan release.toml -o plan.json --report plan.html --engines scales.json")
    assert code == 0 and out.startswith("Plan: ε = 1, δ = 0; 3 rounds together; add-remove neighbours")
    assert run("ledger year.jsonl --epsilon 1")[0] == 0
    hashes = []
    for month in range(1, 4):
        code, out, said = run("release plan.json answers.csv --ledger year.jsonl -o noisy.csv")
        assert code == 0 and said == f"entry 1 of year.jsonl, round {month} of 3\n"
        noisy = pd.read_csv("noisy.csv")
        assert list(noisy) == ["visits", "age", "spent", "ledger hash"] and noisy["visits"].dtype == np.int64
        assert 0 <= noisy["age"][0] <= 100 and noisy["spent"].notna().tolist() == [True, False, False, False]
        hashes.append(noisy["ledger hash"][0])
    ledger = md.Ledger("year.jsonl")
    assert all(one in ledger for one in hashes) and len(set(hashes)) == 3 and hashes[-1] == ledger.hash
    before = Path("year.jsonl").read_bytes(), Path("noisy.csv").read_bytes()
    code, out, said = run("release plan.json answers.csv --ledger year.jsonl -o noisy.csv")
    assert code == 1 and out == "" and "have all been released" in said and said.count("\n") == 1
    assert before == (Path("year.jsonl").read_bytes(), Path("noisy.csv").read_bytes())


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (ANSWERS.replace("age", "visits"), "without a column are ['age'], and 0"),
        (ANSWERS.replace("age", "age,height"), "without a column are [], and 1 columns"),
        (ANSWERS.replace("age", "age,age"), "must have one column for each of the plan's tasks"),
        (ANSWERS.replace("412000", "x"), "answers.csv, line 2: age must be a number"),
        (ANSWERS.replace("412000", ""), "answers.csv, line 3: age has an empty row above"),
        (ANSWERS.replace("10012", "10012,3"), "answers.csv, line 3: has more numbers than columns"),
        (ANSWERS.replace("45,", "45.5,"), "visits: must be whole numbers"),
        (ANSWERS.replace(",12,\n", ""), "must be 4 numbers"),
        (ANSWERS.replace("7021.5", "nan"), "must be finite"),
        ("", "must be a CSV file in UTF-8 with a column a task"),
    ],
)
def test_wrong_answers_release_nothing(answers: str, message: str, here: Path, capsys, monkeypatch) -> None:
    design_from_toml("release.toml", "Plan")[0].solve().save("plan.json")
    ledger = md.Ledger("year.jsonl", md.PureDP(1.0))
    Path("answers.csv").write_text(answers)
    words = "release plan.json answers.csv --ledger year.jsonl -o noisy.csv"
    code, out, said = ended(words.split(), capsys, monkeypatch)
    assert code == 1 and out == "" and message in said and said.count("\n") == 1, said
    assert len(ledger.to_frame()) == 0 and not Path("noisy.csv").exists()


def test_what_is_no_plan_or_does_not_hold_is_not_released(here: Path, capsys, monkeypatch) -> None:
    result = design_from_toml("release.toml", "Plan")[0].solve()
    result.save("plan.json")
    replace(result, value=0.5 * result.value).save("doctored.json")
    md.calibrate("laplace", privacy=md.PureDP(1.0), sensitivity=1.0).save("noise.json")
    for words, message in (
        ("doctored.json answers.csv", "does not hold: the error is at most"),
        ("noise.json answers.csv", "must be the result of a plan"),
        ("plan.json absent.csv", "absent.csv: cannot be read (No such file"),
        ("plan.json answers.csv --ledger absent.jsonl", "there is no ledger absent.jsonl: give its budget"),
        ("plan.json answers.csv -o answers.csv", "is the path of"),
        ("plan.json answers.csv --ledger plan.json", "is the path of"),
    ):
        code, out, said = ended(["release", *words.split()], capsys, monkeypatch)
        assert code == 1 and out == "" and message in said and said.count("\n") == 1, (words, said)
    assert Path("answers.csv").read_text() == ANSWERS and not Path("absent.jsonl").exists()
    code, out, said = ended(["release", "plan.json", "answers.csv"], capsys, monkeypatch)
    assert code == 0 and out.startswith("visits,age,spent\n") and "nothing counts without --ledger" in said


def test_answers_that_no_disk_takes_are_not_lost(here: Path, capsys, monkeypatch) -> None:
    import mechdesign.evidence.files as files

    design_from_toml("release.toml", "Plan")[0].solve().save("plan.json")

    def full(path: object, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_whole", full)
    code, out, said = ended(["release", "plan.json", "answers.csv", "-o", "noisy.csv"], capsys, monkeypatch)
    assert code == 0 and "No space left" in said and out.startswith("visits,age,spent\n")


# -- the page -----------------------------------------------------------------------------------------------


def test_parts_of_a_mean_are_in_their_own_units_and_the_mean_in_its_own() -> None:
    result = md.Plan({"age": md.Mean(0, 100, n=10_000)}, md.PureDP(1.0)).solve()
    table = result.to_frame()
    total, count = result.mechanism.noises
    assert table["standard_deviation"].tolist() == [total.standard_deviation, count.standard_deviation]
    mean = math.sqrt(total.variance + 50**2 * count.variance) / 10_000
    assert table["task_deviation"].tolist() == pytest.approx([mean, mean], rel=1e-12)
    assert f"age, the sum over the count: standard deviation {mean:.6g}" in str(result)


def test_all_answers_of_all_rounds_are_within_their_joint_half_widths() -> None:
    """19 times out of 20 by simulation; no more often than that where no noise is whole."""
    rng = np.random.default_rng(7)
    for whole in (True, False):
        tasks = {
            "visits": md.Histogram(4, whole=whole),
            "people": md.Count(whole=whole),
            "spent": md.Sum(5.0),
        }
        result = md.Plan(tasks, md.PureDP(1.0), rounds=3).solve()
        within = np.ones(20_000, dtype=bool)
        for noise, width in zip(result.mechanism.noises, result.to_frame()["joint_half_width"]):
            drawn = noise.law.rvs(size=(len(within), 3 * noise.dimension), random_state=rng)
            within &= np.abs(drawn).max(axis=1) <= width
        spread = 4 * math.sqrt(0.05 * 0.95 / len(within))
        assert within.mean() >= 0.95 - spread
        assert whole or within.mean() <= 0.95 + spread


# -- other engines ------------------------------------------------------------------------------------------


def scale_of(law: object) -> float:
    """The scale that engines take: 1/a of discrete Laplace noise, σ of normal noise."""
    name = law.dist.name
    return {"dlaplace": lambda: 1 / law.args[0], "discrete_gaussian": lambda: law.args[0]}.get(
        name, lambda: law.std() / (math.sqrt(2) if name == "laplace" else 1.0)
    )()


@pytest.mark.parametrize("families", [("gaussian",), ("staircase", "laplace")])
def test_engines_get_the_numbers_of_the_plan(families: tuple[str, ...]) -> None:
    tasks = {**TASKS, "age": md.Mean(0, 100, n=50)}
    law = md.Plan(tasks, md.ApproximateDP(1.0, 1e-6), rounds=12, families=families).solve().mechanism
    found = json.loads(json.dumps(law.engines()))
    assert (found["neighbours"], found["rounds"], found["disjoint"]) == ("add-remove", 12, [])
    rows = [(name, part, noise) for name, parts in law.parts.items() for part, noise in parts]
    for row, (name, part, noise) in zip(found["parts"], rows, strict=True):
        stated = row["task"], row["part"], row["numbers"], row["whole"]
        assert stated == (name, part.name, part.dimension, part.whole)
        assert {k: row[k] for k in noise.parameters} == noise.parameters
        assert row["standard_deviation"] == noise.standard_deviation
        assert ("sql" in row) == (noise.law.dist.name == "norm" and not part.name)
        if "sql" in row:
            query = row["sql"]["presto"]
            asked = re.search(
                r"noisy_sum_gaussian\(x, DOUBLE '(.*?)', DOUBLE '(.*?)', DOUBLE '(.*?)'\)", query
            )
            assert [*map(float, asked.groups())] == [noise.parameters["scale"], 0, part.clip or 1.0]
            assert ('"spent ""net"""' in query) == name.startswith("spent") and "UNION ALL" in query
            assert ("GROUP BY bin" in query) == (name == "visits")


@pytest.mark.parametrize(("family", "whole"), [("laplace", True), ("gaussian", True), ("gaussian", False)])
def test_opendp_draws_the_noise_of_the_plan(family: str, whole: bool) -> None:
    pytest.importorskip("opendp")
    tasks = {"visits": md.Histogram(4, contribution=3, whole=whole), "spent": md.Sum(5.0)}
    law = md.Plan(tasks, md.ApproximateDP(1.0, 1e-6), families=(family,)).solve().mechanism
    found = law.to_opendp()
    assert list(found) == list(tasks)
    for name, parts in law.parts.items():
        for measurement, (part, noise) in zip(found[name], parts, strict=True):
            scale, size, changes = scale_of(noise.law), part.dimension, part.sensitivity
            norm = changes.largest_l1(size) if family == "laplace" else changes.largest_l2(size)
            loss = norm / scale if family == "laplace" else (norm / scale) ** 2 / 2
            moved = int(norm) if part.whole and family == "laplace" else norm
            assert measurement.map(moved) == pytest.approx(loss, rel=1e-6)
            drawn = np.array([measurement([0 if part.whole else 0.0] * size) for _ in range(2000 // size)])
            assert np.var(drawn) == pytest.approx(noise.variance, rel=0.3)
    if family == "laplace":
        staircase = md.Plan({"spent": md.Sum(5.0)}, md.PureDP(1.0), families=("staircase",)).solve().mechanism
        with pytest.raises(md.DesignError, match="law = 'staircase': is not in OpenDP"):
            staircase.to_opendp()
        choosing = {"best": md.PrivateChoice(4, md.PureDP(0.2)), "spent": md.Sum(5.0)}
        with pytest.raises(md.DesignError, match=r"chosen = \['best'\]"):
            md.Plan(choosing, md.PureDP(1.0), families=("laplace",)).solve().mechanism.to_opendp()


# -- Whole numbers change by whole numbers: their largest sum by enumeration, what a plan of them costs at least, and both checkers


SIZE = 4


def allowed(changes: md.Sensitivity) -> list[tuple[int, ...]]:
    """All whole vectors within these bounds, of one sign."""
    top = math.floor(changes.largest_linf(SIZE))
    return [
        v
        for v in itertools.product(range(top + 1), repeat=SIZE)
        if (changes.l1 is None or sum(v) <= changes.l1)
        and (changes.l2 is None or sum(x * x for x in v) <= changes.l2**2)
        and (changes.l0 is None or sum(map(bool, v)) <= changes.l0)
    ]


BOUNDS = st.builds(
    lambda linf, l1, l2, l0: md.Sensitivity(linf=linf, l1=l1, l2=l2, l0=l0, signed=False),
    st.none() | st.integers(1, 4),
    st.none() | st.floats(1.0, 9.0),
    st.floats(1.0, 5.0),
    st.none() | st.integers(1, SIZE),
)


@given(BOUNDS)
@settings(max_examples=60, deadline=None)
def test_the_largest_sum_is_that_of_a_whole_change(changes: md.Sensitivity) -> None:
    most = max(map(sum, allowed(changes)))
    assert min(changes.whole(SIZE).l1, changes.whole(SIZE).largest_l1(SIZE)) == most


@pytest.mark.parametrize(
    "changes",
    [
        md.Sensitivity(l2=3.0, signed=False),
        md.Sensitivity(l2=3.0, l0=2, signed=False),
        md.Sensitivity(l1=2.5, signed=False),
        md.Sensitivity(l1=7.0, linf=2, signed=False),
        md.Sensitivity(l2=1.2, signed=False),
        md.Sensitivity(linf=2, l0=3, signed=False),
    ],
)
@pytest.mark.parametrize("privacy", [md.PureDP(1.0), md.ZeroConcentratedDP(0.1), md.GaussianDP(0.5)])
def test_no_bound_is_above_noise_for_the_changes_that_there_are(
    changes: md.Sensitivity, privacy: md.PureDP | md.ZeroConcentratedDP | md.GaussianDP
) -> None:
    result = md.Plan({"h": Histogram(SIZE, changes)}, privacy, {"h": 1.0}).solve()
    made = allowed(changes)
    if isinstance(privacy, md.PureDP):
        noise = md.calibrate("discrete_laplace", privacy=privacy, sensitivity=float(max(map(sum, made))))
        least = SIZE * noise.mechanism.variance
    else:
        rho = privacy.rho if isinstance(privacy, md.ZeroConcentratedDP) else privacy.mu**2 / 2
        least = SIZE * max(sum(x * x for x in v) for v in made) / (2 * rho)
    assert result.lower_bound is None or result.lower_bound <= least * (1 + 1e-9)
    assert (result.lower_bound is None) == (result.bound_class is None)
    assert result.certificate.verify() and all(holds for *_, holds in verify(dumps(result)).rows)


def test_a_bound_that_is_not_reached_is_not_believed() -> None:
    known = md.Plan({"h": Histogram(50, md.Sensitivity(l1=9.0))}, md.PureDP(1.0), {"h": 1.0}).solve()
    other = md.Plan({"h": Histogram(50, md.Sensitivity(l2=3.0))}, md.PureDP(1.0), {"h": 1.0}).solve()
    forged = replace(
        other,
        lower_bound=known.lower_bound,
        bound_class=known.bound_class,
        proofs=(*other.proofs[:1], *known.proofs[1:]),
    )
    assert not forged.certificate.verify()


@pytest.mark.parametrize(("norm", "neighbours"), [(4.0, "add-remove"), (2.5, "replace")])
def test_both_checkers_believe_a_plan_of_whole_counts_within_a_ball(norm: float, neighbours: str) -> None:
    changes = md.Sensitivity.of_contribution(l2=norm, neighbours=neighbours)
    tasks = {"h": Histogram(50, contribution=changes), "c": md.Count()}
    result = md.Plan(tasks, md.ApproximateDP(1.0, 1e-6), neighbours=neighbours).solve()
    assert result.certificate.verify() and all(holds for *_, holds in verify(dumps(result)).rows)

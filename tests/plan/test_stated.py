"""Choices and quantiles among the tasks of a plan: what they state is taken off the budget, and noise gets the rest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign import files

import mechdesign as md
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.verifier import verify

NOISY = {"visits": md.Histogram(5), "spent": md.Sum(5.0)}
ANSWERS = {"visits": range(5), "spent": 7.5, "winner": {"a": 900, "b": 9, "c": 10}, "median": [3, 4, 5]}


def plan(privacy: Any, **changed: Any) -> md.Plan:
    tasks = {
        **NOISY,
        "winner": md.PrivateChoice(["a", "b", "c"], md.PureDP(0.25)),
        "median": md.PrivateQuantile(0.5, (0, 100, 1), md.PureDP(0.125)),
    }
    return md.Plan({**tasks, **changed.pop("tasks", {})}, privacy, **changed)


BUDGETS = [
    (md.PureDP(1.0), md.PureDP(0.625)),
    (md.ApproximateDP(1.0, 1e-6), md.ApproximateDP(0.625, 1e-6)),
    (md.ZeroConcentratedDP(0.1), None),
]


@pytest.mark.parametrize(("privacy", "left"), BUDGETS)
def test_noise_is_that_of_a_plan_of_what_is_left(privacy: Any, left: Any) -> None:
    result = plan(privacy).solve()
    if left is not None:
        alone = md.Plan(NOISY, left).solve()
        assert (result.value, result.lower_bound) == (alone.value, alone.lower_bound)
        assert [n.variance for n in result.mechanism.noises] == [n.variance for n in alone.mechanism.noises]
        assert result.to_frame()["share"].sum() == pytest.approx(0.625, rel=1e-3)
    assert "winner: permute-and-flip among 3 candidates, ε = 0.25 as stated" in str(result)
    assert any("ε = 0.125 as stated" in str(part.text) for part in result.sections())
    text = dumps(result)
    again = loads(text)
    assert again.checks().holds.all() and dumps(again) == text
    assert all(holds for *_, holds in verify.verify(text).rows)
    found = again.mechanism.release(ANSWERS)
    assert found["winner"] == "a" and 0 <= found["median"] <= 100 and len(found["visits"]) == 5


@pytest.mark.parametrize("privacy", [privacy for privacy, _ in BUDGETS])
@pytest.mark.parametrize("of", ["part", "rate", "rule"])
def test_a_part_that_is_larger_than_what_is_left_is_refused(privacy: Any, of: str) -> None:
    """Both the design's and the law's words changed alike: the noise no longer keeps the rest."""
    payload = json.loads(dumps(plan(privacy).solve()))["payload"]
    design, law = (payload["fields"][key]["fields"] for key in ("design", "mechanism"))
    rule = law["rules"]["$tuple"][0]["fields"]
    if of == "rate":
        rule["rate"] *= 1 + 1e-9
    elif of == "rule":
        rule["candidates"] = 4
    else:
        for held in (design, law):
            held["chosen"]["$items"][0][1]["fields"]["privacy"]["fields"]["epsilon"] *= 1 + 1e-4
    assert not files.package_accepts(payload) and not files.alone_accepts(payload)


def test_a_ledger_counts_all_of_it_once_and_bad_answers_not_at_all(tmp_path: Path) -> None:
    result, ledger = plan(md.PureDP(1.0)).solve(), md.Ledger(tmp_path / "l.jsonl", md.PureDP(1.5))
    for name, bad in (("winner", [1, 2]), ("median", [float("nan")]), ("spent", None)):
        with pytest.raises(md.DataError):
            result.release({**ANSWERS, name: bad}, ledger=ledger)
    with pytest.raises(md.DataError, match="winner"):
        result.release({name: x for name, x in ANSWERS.items() if name != "winner"}, ledger=ledger)
    assert not len(ledger.to_frame())
    assert result.release(ANSWERS, ledger=ledger).answer["winner"] == "a"
    assert ledger.left() == md.PureDP(0.5)


# -- budgets of choices by their regret ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "privacy, kind, share",
    [
        (md.PureDP(1.0), md.PureDP, "epsilon"),
        (md.ZeroConcentratedDP(0.5), md.ZeroConcentratedDP, "rho"),
    ],
)
def test_priced_budgets_are_those_of_least_error(privacy: Any, kind: Any, share: str) -> None:
    scores, values = [40.0, 30.0, 2.0], [*range(40)]
    tasks = {
        "visits": md.Histogram(24),
        "drink": md.PrivateChoice(3, kind(0.01)),
        "median": md.PrivateQuantile(0.5, (0, 50, 1), kind(0.01)),
    }
    plan = md.Plan(tasks, privacy, weights={"visits": 0.01}).priced(
        {"drink": (2.0, scores), "median": (0.5, values)}
    )
    best = {name: getattr(c.privacy, share) for name, c in plan.chosen.items()}

    def total(budgets: dict[str, float]) -> float:
        """By solving the whole plan, and the regret summed over candidates."""
        held = {name: replace(plan.chosen[name], privacy=kind(b)) for name, b in budgets.items()}
        found = replace(plan, chosen=held).solve(certify=False)
        drink, median = found.mechanism.rules
        off = max(scores) - np.array(scores)
        ranks = sum(
            group.probability * max(0, x - 20, 19 - x) if x < 40 else group.probability * 20
            for group in median.probabilities(values).itertuples()
            for x in [group.first]
        )
        return float(found.value + 2.0 * drink.probabilities(scores) @ off + 0.5 * ranks)

    least = total(best)
    for a, b in ((0.8, 1.0), (1.25, 1.0), (1.0, 0.8), (1.0, 1.25), (1.2, 1.2)):
        assert least <= total({"drink": a * best["drink"], "median": b * best["median"]})

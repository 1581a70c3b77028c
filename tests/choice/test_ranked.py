"""`compare` of choices: the optimum and the rules, ranked by regret; what a bound is taken from."""

from __future__ import annotations

import json
from typing import Any

import cheap
import pytest

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.verifier import verify

# k, N, objective, regret of the optimum, permute-and-flip, the exponential mechanism, at ε = 1
PUBLISHED = [
    (2, 8, "mean", 0.077716, 0.077716, 0.129076),
    (3, 4, "mean", 0.189051, 0.189051, 0.286020),
    (4, 3, "mean", 0.270033, 0.270033, 0.374362),
    (2, 8, "worst", 0.183940, 0.183940, None),
    (3, 4, "worst", 0.299263, 0.322768, None),
    (4, 3, "worst", 0.379210, 0.428931, None),
]


@pytest.mark.parametrize(("k", "largest", "objective", "optimum", "permute", "exponential"), PUBLISHED)
def test_regrets_are_the_known_ones(
    k: int, largest: int, objective: str, optimum: float, permute: float, exponential: float | None
) -> None:
    question = md.ChoiceQuestion(k, largest=largest, objective=objective)
    found = md.compare(question, md.PureDP(1.0), progress=False)
    errors = {name: accuracy.absolute_error for name, accuracy in found.accuracy.items()}
    assert errors["optimal table"] == pytest.approx(optimum, abs=6e-7)
    assert errors["permute-and-flip"] == pytest.approx(permute, abs=6e-7)
    if exponential is not None:
        assert errors["exponential mechanism"] == pytest.approx(exponential, abs=6e-7)
    assert found.least == found["optimal table"].lower_bound
    assert found.least_name == f"no choice by counts of 0 to {largest} does better"
    assert found.table["error"].min() >= found.least
    rows = verify.verify(dumps(found)).rows
    assert all(holds for *_, holds in rows) and all(claim.holds for claim in found.agreements())


def test_scores_without_bounds_have_no_proved_least() -> None:
    for question in (md.ChoiceQuestion(("a", "b", "c"), "approvals"), md.ChoiceQuestion(3, "replace", 2.0)):
        found = md.compare(question, md.ZeroConcentratedDP(0.125), progress=False)
        assert found.names[0] == "exponential mechanism" and found.least is None
        assert "no optimal table" in found.refused["optimal table"]
        assert all(found[name].value == found.accuracy[name].absolute_error for name in found.names)


@pytest.mark.parametrize(
    "other",
    [
        {"largest": 3},
        {"largest": 2, "objective": "mean"},
        {"largest": 2, "neighbours": "approvals"},
        {"neighbours": "replaced vote"},
        {"candidates": ("a", "b", "c")},
    ],
)
def test_results_for_another_question_give_no_bound(other: dict[str, Any]) -> None:
    question, privacy = md.ChoiceQuestion(3, largest=2), md.PureDP(1.0)
    own = md.PrivateChoice(3, privacy, largest=2).solve()
    found = md.compare(question, privacy, mechanisms=["permute-and-flip"], also={"own": own}, progress=False)
    assert found.least == own.lower_bound
    made = md.PrivateChoice(**{"candidates": 3, "privacy": privacy, **other}).solve()
    with pytest.raises(md.DesignError, match="question's candidates"):
        md.compare(question, privacy, also={"own": made}, progress=False)
    payload = json.loads(dumps(found))["payload"]
    asked = payload["fields"]["question"]["fields"]
    for key, value in other.items():
        asked[key] = {"$tuple": list(value)} if isinstance(value, tuple) else value
    assert not all(holds for *_, holds in verify.verify(cheap.sealed(payload)).rows)


@pytest.mark.parametrize(
    "asked",
    [
        {"candidates": 0},
        {"neighbours": "two"},
        {"largest": 0},
        {"largest": 2, "spread": 1.0},
        {"spread": -1.0},
    ],
)
def test_bad_questions_are_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(md.DesignError):
        md.ChoiceQuestion(**{"candidates": 3, **asked})
    for privacy in (md.GaussianDP(1.0), None):
        with pytest.raises(md.DesignError, match="privacy"):
            md.compare(md.ChoiceQuestion(3), privacy)


def test_the_print_names_the_regret_that_is_reported() -> None:
    """Of any scores there is no mean: `objective` is of counts."""
    assert str(md.ChoiceQuestion(3, objective="mean")).endswith("(one vote), largest regret of any scores")
    assert str(md.ChoiceQuestion(3, largest=2, objective="mean")).endswith(
        "mean regret over counts of 0 to 2"
    )

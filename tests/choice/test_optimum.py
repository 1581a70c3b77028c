"""The optimal choice by counts: reference values, privacy over all neighbours in fractions, and files."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import cheap
import pytest

import mechdesign as md
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.serialize import dumps
from mechdesign.verifier import verify

# k, N, ε, objective, neighbours, least regret
REFERENCE = [
    (2, 8, 1.0, "mean", "one vote", 0.077716),
    (3, 4, 1.0, "mean", "one vote", 0.189051),
    (4, 3, 1.0, "mean", "one vote", 0.270033),
    (3, 4, 0.5, "mean", "one vote", 0.458905),
    (2, 8, 1.0, "worst", "one vote", 0.183940),
    (3, 4, 1.0, "worst", "one vote", 0.299263),
    (4, 3, 1.0, "worst", "one vote", 0.379210),
    (4, 2, 0.5, "mean", "one vote", 0.479680631),
    (4, 2, 0.5, "worst", "one vote", 0.722365049),
    (3, 5, 1.0, "mean", "one vote", 0.173295793),
    (3, 5, 1.0, "worst", "one vote", 0.299270303),
    (3, 4, 0.5, "mean", "approvals", 0.459947304),
    (4, 8, 1.0, "worst", "approvals", 0.385000078),
]


@pytest.mark.parametrize(("k", "largest", "epsilon", "objective", "votes", "expected"), REFERENCE)
def test_reference_values(
    k: int, largest: int, epsilon: float, objective: str, votes: str, expected: float
) -> None:
    result = md.PrivateChoice(k, md.PureDP(epsilon), votes, largest=largest, objective=objective).solve()
    digits = len(str(expected)) - 2
    assert result.value == pytest.approx(expected, abs=0.6 * 10.0**-digits) and (result.gap or 0) < 1e-9
    assert result.checks().holds.all() and result.status == "optimal"
    permute = dict(result.design.rivals(result))["permute-and-flip"]
    assert permute >= result.value * (1 - 1e-9)


def moved(counts: tuple[int, ...], votes: str) -> Iterator[tuple[int, ...]]:
    """What one more person makes of counts."""
    k = len(counts)
    if votes == "replaced vote":
        for a, b in itertools.permutations(range(k), 2):
            if counts[a]:
                yield tuple(q - (r == a) + (r == b) for r, q in enumerate(counts))
        return
    for up in itertools.product((0, 1), repeat=k):
        if any(up) and (votes == "approvals" or sum(up) == 1):
            yield tuple(q + u for q, u in zip(counts, up))


def drawn(law: Any, counts: tuple[int, ...]) -> list[Fraction]:
    """Probability of each candidate, by the row of the sorted counts."""
    k, top = len(counts), law.inputs[0][0]
    order = sorted(range(k), key=lambda r: -min(counts[r], top))
    row = law.weights[law.inputs.index(tuple(min(counts[r], top) for r in order))]
    return [Fraction(row[order.index(r)], sum(row)) for r in range(k)]


@pytest.mark.parametrize("votes", ["one vote", "approvals", "replaced vote"])
@pytest.mark.parametrize("objective", ["mean", "worst"])
def test_private_between_all_neighbours_in_fractions(votes: str, objective: str) -> None:
    """Counts beyond the largest included, which are counted as it."""
    k, top = 3, 2
    result = md.PrivateChoice(k, md.PureDP(1.0), votes, largest=top, objective=objective).solve()
    rate = exp_lower(1.0)
    for counts in itertools.product(range(top + 3), repeat=k):
        for other in moved(counts, votes):
            for a, b in zip(drawn(result.mechanism, counts), drawn(result.mechanism, other)):
                assert a <= rate * b and b <= rate * a
    assert all(holds for *_, holds in verify.verify(dumps(result)).rows)


def test_the_optimum_of_single_votes_is_not_private_for_approvals() -> None:
    found = md.PrivateChoice(3, md.PureDP(1.0), largest=4).solve().mechanism
    worst = max(
        abs(math.log(p / q))
        for x in found.inputs
        for y in moved(tuple(map(int, x)), "approvals")
        for p, q in zip(drawn(found, x), drawn(found, y))
    )
    assert worst > 1.1  # which optimal table is found decides how much


def test_counts_are_taken_in_order_or_by_name_and_cut() -> None:
    best = md.PrivateChoice(("a", "b"), md.PureDP(20.0), largest=3).solve()
    assert best.release({"b": 9, "a": 0}) == "b" and best.release([3, 0]) == "a"
    assert math.isclose(best.to_frame().filter(like="P[").to_numpy().sum(), 10)
    for bad in ([1.5, 0], [-1, 0], [1], {"a": 1, "c": 2}, None):
        with pytest.raises(md.DataError):
            best.release(bad)
    extended = best.design.problem()
    capped = extended.subject_to(md.named("never sure", extended.unknown <= 0.9)).solve()
    assert capped.value > best.value and capped.checks().holds.all()


@pytest.mark.parametrize("votes", ["one vote", "approvals", "replaced vote"])
@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("privacy", [md.PureDP(0.5), md.ApproximateDP(1.0, 0.01)])
def test_sorted_counts_cost_what_all_counts_cost(privacy: Any, votes: str, objective: str) -> None:
    """The least regret of a table of a row for each vector of counts in any order, declared apart."""
    k, top = 3, 2
    result = md.PrivateChoice(k, privacy, votes, largest=top, objective=objective).solve()
    counts = list(itertools.product(range(top + 1), repeat=k))
    cut = {
        (x, tuple(min(q, top) for q in y))
        for x in itertools.product(range(top + 2), repeat=k)
        for y in moved(x, votes)
    }
    pairs = sorted({(tuple(min(q, top) for q in x), y) for x, y in cut if tuple(min(q, top) for q in x) != y})
    P = md.Table(counts, range(k))
    regret = [[max(x) - q for q in x] for x in counts]
    cost = P.worst(regret) if objective == "worst" else P.expected(regret)
    whole = md.Problem(md.Minimize(cost), [P.private(privacy, between=pairs)]).solve()
    assert result.value == pytest.approx(whole.value, rel=1e-8)


def test_equal_counts_are_chosen_alike_exactly() -> None:
    """One part of 2⁶⁰ more for one of two equal ones is refused twice: sorting would tell them apart."""
    result = md.PrivateChoice(2, md.PureDP(1.0), largest=2).solve()
    (a, b), *others = result.mechanism.weights
    weights = ((a * 2**60 + 1, b * 2**60 - 1), *others)
    doctored = replace(result, mechanism=replace(result.mechanism, weights=weights))
    assert not doctored.checks().holds.all()
    claims = {claim: holds for claim, _, holds in verify.verify(dumps(doctored)).rows}
    assert not claims["candidates of equal counts are chosen alike"]


def test_counts_under_rho_are_ranked_by_rules_alone() -> None:
    asked = md.ZeroConcentratedDP(0.1)
    with pytest.raises(md.DesignError, match=r"largest = 2: .* ask for ε"):
        md.PrivateChoice(3, asked, largest=2).solve()
    found = md.compare(md.ChoiceQuestion(3, largest=2), asked)
    assert "optimal table" not in found.results and len(found.results) == 3


# -- `compare` of choices: the optimum and the rules, ranked by regret; what a bound is taken from


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

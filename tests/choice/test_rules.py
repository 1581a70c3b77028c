"""Permute-and-flip, the exponential mechanism and report noisy max: their laws against enumeration, their privacy over all neighbours, their regret."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import cheap
import numpy as np
import pytest
from campaign import files
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import mechdesign as md
from mechdesign.choice import ChoiceRule, QuantileRule, rule
from mechdesign.choice.rule import EXPONENTIAL, NOISY_MAX, PERMUTE, RULES
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.serialize import dumps
from mechdesign.verifier import verify

SCORES = st.lists(st.integers(0, 6), min_size=1, max_size=6)
RATES = st.floats(0.05, 4.0)


def checked(result: md.Result) -> bool:
    return result.certificate is not None and result.certificate.verify()


def quantile(q: float, candidates: Any, privacy: Any, neighbours: str = "add-remove") -> md.PrivateQuantile:
    return md.PrivateQuantile(q, candidates, privacy, neighbours)


def enumerated(scores: Sequence[float], rate: float) -> Any:
    """Permute-and-flip as it is told: candidates in a random order, the first that lives."""
    alive, found = np.exp(-rate * (max(scores) - np.array(scores, dtype=float))), np.zeros(len(scores))
    for order in itertools.permutations(range(len(scores))):
        left = 1.0
        for k in order:
            found[k] += left * alive[k]
            left *= 1 - alive[k]
    return found / math.factorial(len(scores))


def exponential(scores: Sequence[float], rate: float) -> Any:
    weights = np.exp(rate * np.array(scores, dtype=float))
    return np.asarray(weights / weights.sum())


def noisy_max(scores: Sequence[float], rate: float) -> Any:
    """By adaptive quadrature over the noise of the candidate chosen."""
    q, found = rate * np.array(scores, dtype=float), []
    for r, own in enumerate(q):
        others = np.delete(q, r)

        def chosen(x: float, own: float = own, others: Any = others) -> float:
            return float(stats.laplace.pdf(x - own) * stats.laplace.cdf(x - others).prod())

        ends = sorted({*q.tolist(), q.min() - 40, q.max() + 40})
        found.append(
            sum(integrate.quad(chosen, a, b, epsabs=1e-12, limit=200)[0] for a, b in itertools.pairwise(ends))
        )
    return np.array(found)


@settings(max_examples=8)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), RATES)
def test_report_noisy_max_is_the_largest_laplace_count(scores: list[int], rate: float) -> None:
    found = ChoiceRule(NOISY_MAX, rate, len(scores)).probabilities(scores)
    np.testing.assert_allclose(found, noisy_max(scores, rate), rtol=0, atol=1e-9)
    for r in range(len(scores)):  # ε by the ratios, one vote more for r
        after = ChoiceRule(NOISY_MAX, rate, len(scores)).probabilities(
            [q + (m == r) for m, q in enumerate(scores)]
        )
        assert np.abs(np.log(found / after)).max() <= rate * (1 + 1e-9)


@given(SCORES, RATES)
def test_probabilities_are_those_of_random_orders(scores: list[int], rate: float) -> None:
    for name, oracle in ((PERMUTE, enumerated), (EXPONENTIAL, exponential)):
        found = ChoiceRule(name, rate, len(scores)).probabilities(scores)
        np.testing.assert_allclose(found, oracle(scores, rate), rtol=0, atol=1e-12)


@given(SCORES, RATES, st.sampled_from(["one vote", "approvals", "replaced vote"]), st.data())
def test_no_neighbours_lose_more_than_rate_times_spread(
    scores: list[int], rate: float, votes: str, data: st.DataObject
) -> None:
    """By the enumeration, which shares nothing with the rules' own sums."""
    k = len(scores)
    spread = md.PrivateChoice(k, md.PureDP(1.0), votes).moved
    if votes == "replaced vote":
        a, b = data.draw(st.tuples(st.integers(0, k - 1), st.integers(0, k - 1)))
        moved = [q + (r == a) - (r == b) for r, q in enumerate(scores)]
    else:
        most = k if votes == "approvals" else 1
        up = data.draw(st.sets(st.integers(0, k - 1), min_size=1, max_size=most))
        moved = [q + (r in up) for r, q in enumerate(scores)]
    for oracle in (enumerated, exponential):
        first, second = oracle(scores, rate), oracle(moved, rate)
        loss = np.abs(np.log(first / second)).max()
        assert loss <= rate * spread * (1 + 1e-9) + 1e-12


@given(SCORES, RATES)
def test_permute_and_flip_never_regrets_more(scores: list[int], rate: float) -> None:
    regrets = [
        ChoiceRule(name, rate, len(scores)).errors(scores).absolute_error for name in (PERMUTE, EXPONENTIAL)
    ]
    assert regrets[0] <= regrets[1] + 1e-12
    for name, regret in zip((PERMUTE, EXPONENTIAL), regrets):
        assert regret <= rule.worst_regret(name, len(scores), rate)[0] + 1e-12


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("few", [False, True])
def test_releases_follow_the_law(name: str, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no double is trusted, so that further words decide nearly all draws."""
    if few:
        monkeypatch.setattr(rule, "_PADDING", 2.0)
    scores, draws = [3.0, 4.0, 4.0, 1.0, 0.0], 2000 if few else 6000
    law = ChoiceRule(name, 0.7, 5)
    counts = np.bincount([law.release(scores) for _ in range(draws)], minlength=5)
    assert stats.chisquare(counts, draws * law.probabilities(scores)).pvalue > 1e-6
    counts = np.bincount([law.sample(scores, rng=k) for k in range(draws)], minlength=5)
    assert stats.chisquare(counts, draws * law.probabilities(scores)).pvalue > 1e-6


def test_words_at_both_ends_of_the_unit_interval_are_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word of zeros or ones encloses no finite noise: more are drawn."""
    for first in (0, 2**64 - 1):
        words = iter([first])

        def drawn(count: int, words: Any = words) -> Any:
            return np.array([next(words, 2**62 + 12345 * k) for k in range(count)], dtype=np.uint64)

        monkeypatch.setattr(rule, "random_words", drawn)
        for name in RULES:
            assert ChoiceRule(name, 1.0, 3).release([0.0, 0.0, 0.0]) in range(3)


def test_each_requirement_gets_the_rule_that_regrets_less() -> None:
    found = {
        type(privacy).__name__: md.PrivateChoice(3, privacy).solve()
        for privacy in (md.PureDP(1.0), md.ApproximateDP(1.0, 1e-6), md.ZeroConcentratedDP(0.125))
    }
    assert [r.mechanism.rule for r in found.values()] == [PERMUTE, PERMUTE, EXPONENTIAL]
    assert all(checked(r) for r in found.values())
    # ε = 1 by its bounded range, where permute-and-flip has ε tanh(ε/2) = .125
    assert found["ZeroConcentratedDP"].mechanism.rate == pytest.approx(1.0, rel=1e-12)
    wide = md.PrivateChoice(3, md.ApproximateDP(0.1, 0.2)).solve()
    eta = wide.mechanism.rate
    over = (math.exp(eta / 2) - math.exp(0.05)) ** 2 / math.expm1(eta)
    assert wide.mechanism.rule == EXPONENTIAL and 0.2 * (1 - 1e-9) < over <= 0.2 * (1 + 1e-12)


@given(
    st.lists(st.floats(0, 20), min_size=2, max_size=5), st.floats(0.1, 3.0), st.floats(0.0, 3.0), st.data()
)
def test_delta_of_the_exponential_mechanism_is_its_bounded_range(
    scores: list[float], eta: float, epsilon: float, data: st.DataObject
) -> None:
    """By its own sum over candidates, for any vector of changes of that spread."""
    moved = [q + data.draw(st.floats(0, 1)) for q in scores]
    first, second = exponential(scores, eta), exponential(moved, eta)
    delta = np.maximum(first - math.exp(epsilon) * second, 0).sum()
    most = (math.exp(eta / 2) - math.exp(epsilon / 2)) ** 2 / math.expm1(eta) if eta > epsilon else 0.0
    assert delta <= most * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ([1.0, math.nan, 2.0], "finite"),
        ([1.0, 2.0], "3 numbers"),
        ({"a": 1.0, "b": 7531.0, "d": 7531.0}, "1 are of none, and 1 candidates have none"),
        (["x", "y", "z"], "finite"),
        (None, "finite"),
    ],
)
def test_bad_scores_are_refused_and_not_quoted(scores: Any, said: str) -> None:
    law = md.PrivateChoice(("a", "b", "c"), md.PureDP(1.0)).solve()
    for call in (law.release, law.mechanism.sample, law.mechanism.probabilities):
        with pytest.raises(md.DataError, match=said) as error:
            call(scores)
        assert "7531" not in str(error.value)


def test_a_ledger_counts_a_choice_by_its_rule(tmp_path: Any) -> None:
    ledger = md.Ledger(tmp_path / "l.jsonl", md.ZeroConcentratedDP(0.26))
    result = md.PrivateChoice(3, md.ZeroConcentratedDP(0.125)).solve()
    assert result.release([9, 0, 0], ledger=ledger).answer in range(3)
    result.release([9, 0, 0], ledger=ledger)
    with pytest.raises(md.DesignError):
        result.release([9, 0, 0], ledger=ledger)
    replaced = md.PrivateChoice(3, md.ZeroConcentratedDP(0.01), "replaced vote").solve()
    with pytest.raises(md.DesignError, match="neighbours"):
        replaced.release([9, 0, 0], ledger=ledger)


# -- several choices ---------------------------------------------------------------------------------------------


def peeled(oracle: Any, scores: Sequence[float], rate: float, choose: int) -> dict[tuple[int, ...], float]:
    """Probability of every list of choices: one after the other, each from those that are left."""
    found = {}
    for order in itertools.permutations(range(len(scores)), choose):
        left, p = list(range(len(scores))), 1.0
        for k in order:
            p *= float(oracle([scores[r] for r in left], rate)[left.index(k)])
            left.remove(k)
        found[order] = p
    return found


@pytest.mark.parametrize(
    ("privacy", "oracle"), [(md.PureDP(1.4), enumerated), (md.ZeroConcentratedDP(0.2), exponential)]
)
def test_several_choices_are_peeled_by_their_law(privacy: Any, oracle: Any) -> None:
    result, scores = md.PrivateChoice(4, privacy, choose=2).solve(), [3.0, 4.0, 1.0, 0.0]
    law = peeled(oracle, scores, result.mechanism.rate, 2)
    assert math.fsum(law.values()) == pytest.approx(1.0, abs=1e-12)
    generator = np.random.default_rng(0)
    for draw in (result.release, lambda x: result.mechanism.sample(x, rng=generator)):
        drawn = Counter(tuple(draw(scores)) for _ in range(4000))
        pooled = [(drawn[order], 4000 * p) for order, p in law.items()]
        assert stats.chisquare(*zip(*pooled)).pvalue > 1e-6
    for votes in range(4):  # one vote more: all lists, at most the stated loss, and nearly as much somewhere
        after = peeled(oracle, [q + (r == votes) for r, q in enumerate(scores)], result.mechanism.rate, 2)
        assert (
            max(abs(math.log(law[order] / after[order])) for order in law) <= 2 * result.mechanism.rate + 1e-9
        )
    short = sum(p * (7 - sum(scores[k] for k in order)) for order, p in law.items())
    assert short <= result.value


@pytest.mark.parametrize(
    "privacy", [md.PureDP(1.0), md.ApproximateDP(0.1, 0.2), md.ZeroConcentratedDP(0.125)]
)
def test_several_choices_consume_the_whole_budget_and_no_more(privacy: Any, tmp_path: Any) -> None:
    result = md.PrivateChoice(("a", "b", "c"), privacy, choose=3).solve()
    assert checked(result) and all(holds for *_, holds in verify.verify(dumps(result)).rows)
    assert sorted(result.release({"a": 1, "b": 2, "c": 3})) == ["a", "b", "c"]
    consumed = result.design.consumption(result)
    if isinstance(privacy, md.ZeroConcentratedDP):
        assert 0.125 * (1 - 1e-9) < consumed.rho <= 0.125
    elif isinstance(privacy, md.PureDP):
        assert 1 - 1e-9 < consumed.epsilon <= 1.0
    payload = json.loads(dumps(result))["payload"]
    for doctored in ({"rate": result.mechanism.rate * (1 + 1e-9)}, {"choose": 2}):
        changed = json.loads(json.dumps(payload))
        changed["fields"]["mechanism"]["fields"].update(doctored)
        assert not files.package_accepts(changed) and not files.alone_accepts(changed)
    once = md.PrivateChoice(("a", "b", "c"), privacy).solve()
    assert not checked(replace(once, design=result.design, mechanism=replace(once.mechanism, choose=3)))


# -- quantiles ---------------------------------------------------------------------------------------------------


def ranked(values: list[float], q: Fraction, candidates: list[float]) -> list[Fraction]:
    n = len(values)
    return [
        -max(Fraction(0), sum(x < c for x in values) - q * n, q * n - sum(x <= c for x in values))
        for c in candidates
    ]


VALUES = st.lists(st.integers(-3, 12), max_size=8)
SHARES = st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0, 1 / 3])


@given(VALUES, SHARES, st.booleans())
def test_quantile_scores_are_ranks(values: list[int], q: float, listed: bool) -> None:
    grid = [float(c) for c in range(0, 11, 2)]
    share = Fraction(q).limit_denominator(10**6)
    law = QuantileRule(PERMUTE, 0.3, share, np.array(grid[::-1]) if listed else (0.0, 10.0, 2.0))
    scores = [float(s * share.denominator) for s in ranked(list(values), share, grid)]
    expected = ChoiceRule(PERMUTE, 0.3, len(grid)).probabilities(scores)
    table = law.probabilities(values)
    found = np.repeat(table["probability"] / table["candidates"], table["candidates"])
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert law.release(values) in grid and law.sample(values, rng=0) in grid


@given(VALUES, SHARES, st.integers(-3, 12), st.integers(-3, 12))
def test_quantile_scores_move_within_their_spread(values: list[int], q: float, one: int, other: int) -> None:
    grid, share = [float(c) for c in range(-4, 14)], Fraction(q).limit_denominator(10**6)
    base = ranked(list(values), share, grid) if values else [Fraction(0)] * len(grid)
    for neighbours in ("add-remove", "replace"):
        first = base if neighbours == "add-remove" else ranked([*values, other], share, grid)
        second = ranked([*values, one], share, grid)
        moves = [b - a for a, b in zip(first, second)]
        design = quantile(q, grid, md.PureDP(1.0), neighbours)
        assert max(moves) - min(moves) <= Fraction(design.moved) / share.denominator


def test_quantiles_of_groups_are_released_by_their_law() -> None:
    for name in (PERMUTE, EXPONENTIAL):
        law = QuantileRule(name, 0.4, Fraction(1, 2), (0.0, 99.0, 1.0))
        table = law.probabilities([5, 5, 60])
        drawn = [law.release([5, 5, 60]) for _ in range(3000)]
        counts = np.histogram(drawn, [*table["first"], 100.0])[0]
        assert stats.chisquare(counts, 3000 * table["probability"]).pvalue > 1e-6


def test_a_table_of_people_is_no_list_of_numbers() -> None:
    """A row of two numbers would count twice."""
    median = quantile(0.5, [0, 1, 2, 3], md.PureDP(1.0)).solve()
    for data in ([[0.5, 0.5]], 3.0):
        with pytest.raises(md.DataError, match="one per person"):
            median.release(data)


def test_a_grid_s_value_is_that_of_all_its_candidates() -> None:
    """A verifier that took the three numbers of a grid for candidates would believe a seventh of it."""
    text = dumps(quantile(0.5, (0.0, 100.0, 1.0), md.PureDP(1.0)).solve())
    payload = json.loads(text)["payload"]
    payload["fields"]["value"] *= 0.99
    assert not all(holds for *_, holds in verify.verify(cheap.sealed(payload)).rows)
    for candidates in ((0.0, 1.0, 1.0), (0.0, 0.0, 1.0)):
        few = dumps(quantile(0.5, candidates, md.PureDP(1.0)).solve())
        assert all(holds for *_, holds in verify.verify(few).rows)


# -- The optimal choice by counts: reference values, privacy over all neighbours in fractions, and files


# k, N, ε, objective, neighbours, least regret
REFERENCE = [
    (3, 4, 0.5, "mean", "one vote", 0.458905),
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
@pytest.mark.parametrize("epsilon", [1.0, 30.0, 600.0])
def test_private_between_all_neighbours_in_fractions(votes: str, objective: str, epsilon: float) -> None:
    """Counts beyond the largest included, which are counted as it; the gap is closed at every ε of practice."""
    k, top = 3, 2
    result = md.PrivateChoice(k, md.PureDP(epsilon), votes, largest=top, objective=objective).solve()
    rate = exp_lower(epsilon)
    assert (result.status == "optimal" or epsilon > 20) and result.checks().holds.all()
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
    assert errors["optimal table"] * (1 - 1e-9) < found.least == found["optimal table"].lower_bound
    assert found.least_name == f"no choice by counts of 0 to {largest} does better"
    assert found.table["error"].min() >= found.least
    rows = verify.verify(dumps(found)).rows
    assert all(holds for *_, holds in rows) and all(claim.holds for claim in found.agreements())


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

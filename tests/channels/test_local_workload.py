"""The best local report for linear questions: reference values, oracles, proofs, baselines, doctored files, bad input."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.channels.linear_design import PUBLISHED, hadamard, table_of
from mechdesign.channels.linear_proofs import ReportBound, relaxation
from mechdesign.channels.linear_report import LinearReport, SubsetReport
from mechdesign.evidence.serialize import dumps
from mechdesign.solvers.registry import solve
from mechdesign.verifier.verify import verify
from tests.campaign.noise_oracles import as_table
from tests.programs import refused

ONE = md.PureDP(1.0)
prefix = md.Workload.prefix_sums


@pytest.mark.parametrize(
    ("workload", "value", "subsets"),
    [
        (md.Workload.identity(4), 8.5562229, 1.0),
        (md.Workload.identity(8), 22.736385, 1.0),
        (prefix(4), 8.493008, 1.036),
        (prefix(8), 27.531368, 1.348),
        (prefix(12), 53.12969, 1.603),
        pytest.param(prefix(16), 83.3086, 1.836, marks=pytest.mark.slow),
    ],
)
def test_reference_values(workload: md.Workload, value: float, subsets: float) -> None:
    """Values to a gap of 1e-6, by two methods of others; subset selection of the best size with its best decoder over them."""
    result = md.LocalWorkload(workload, ONE).solve()
    assert result.value == pytest.approx(value, rel=1.2e-6) and result.gap <= 1e-6
    assert result.status is md.typing.Status.OPTIMAL and result.certificate.verify() and not refused(result)
    published = result.design.costs()
    best = next(cost for name, cost in published.items() if name.startswith("subset"))
    assert best / result.value == pytest.approx(subsets, abs=6e-4)
    if "all counts" in str(workload):
        assert best == pytest.approx(result.value, rel=1e-9)
    assert min(published.values()) >= result.lower_bound * (1 - 1e-12)


def test_the_worst_case_and_one_row() -> None:
    worst = md.LocalWorkload(prefix(4), ONE, data="worst").solve()
    assert worst.value == pytest.approx(6.075936, abs=5e-7) and worst.gap < 1e-6 and not refused(worst)
    assert worst.mechanism.prior == pytest.approx([0.4022, 0.0978, 0.0978, 0.4022], abs=5e-5)
    assert worst.mechanism.variances.max() == pytest.approx(worst.value, rel=1e-9)
    grid = [[-1, -0.5, 0, 0.5, 1]]
    mean = md.LocalWorkload(grid, ONE).solve()
    assert mean.mechanism.variance == pytest.approx(3.9669043, abs=5e-8)
    assert mean.value - mean.mechanism.variance == pytest.approx(0.5, abs=1e-9)
    assert md.LocalWorkload(grid, ONE, data="worst").solve().value == pytest.approx(3.980022, abs=5e-7)
    # few rays at first: without a little of the others a law costs less than any table
    last = md.LocalWorkload([[0, 0, 0, 1]], md.PureDP(10.2457234062722), data="worst")
    assert last.solve(certify=False).value == pytest.approx(3.55116e-5, rel=1e-4)


def test_one_row_is_the_best_quantizer_of_the_grid() -> None:
    outputs = [-2.800502, -2.318775, -1.926409, 0.0, 1.926409, 2.318775, 2.800502]
    prior = [-1.0, -0.5, 0.0, 0.5, 1.0]
    quantizer = md.OptimalQuantizer(outputs, ONE, prior, "squared", input_range=(-1, 1)).solve()
    assert quantizer.value == pytest.approx(
        md.LocalWorkload([prior], ONE).solve().mechanism.variance, abs=1e-6
    )


@pytest.mark.parametrize(("epsilon", "name"), [(0.05, "ranges"), (5.0, "prefix_sums")])
def test_many_categories_by_the_relaxation(epsilon: float, name: str) -> None:
    result = md.LocalWorkload(getattr(md.Workload, name)(17), md.PureDP(epsilon)).solve(gap=0.2)
    assert result.gap <= 0.2 and result.certificate.verify() and not refused(result)
    assert ("the matrix inequality for all rays holds", "proved", True) in verify(dumps(result)).rows
    raised = replace(result, lower_bound=result.lower_bound * (1 + 1e-6))
    assert any("costs less" in claim for claim in refused(raised)) and not raised.certificate.verify()


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_the_relaxation_is_below_the_optimum(epsilon: float) -> None:
    design, growth = md.LocalWorkload(prefix(6), md.PureDP(epsilon)), math.exp(epsilon)
    problem, scale = relaxation(design.gram, growth)
    found = ReportBound.of_relaxation(solve(problem, "clarabel").dual, scale, design.gram, growth)
    bound = float(found.bound(design))
    best = design.solve()
    assert best.lower_bound * 0.95 <= bound <= best.value


def test_estimates_of_counts() -> None:
    law = md.LocalWorkload(prefix(4), ONE).solve().mechanism
    people = np.repeat([0, 1, 2, 3], [700, 100, 1000, 200])
    truth, rng = np.array([700.0, 800, 1800, 2000]), np.random.default_rng(0)
    found = [law.decode(law.sample(people, rng=rng)) for _ in range(300)]
    answers = np.array([each.answers for each in found])
    errors = np.array([each.standard_errors for each in found])
    spread = answers.std(axis=0)
    assert np.abs(answers.mean(axis=0) - truth)[:3] == pytest.approx(0, abs=4 * spread.max() / math.sqrt(300))
    assert answers[:, 3] == pytest.approx(2000.0)  # how many there are is known
    assert np.sqrt((errors**2).mean(axis=0)) == pytest.approx(spread, rel=0.15, abs=1e-6)
    assert np.diag(found[0].covariance)[:3] == pytest.approx(found[0].standard_errors[:3] ** 2)
    inside = [(each.intervals()[:, 0] <= truth) & (truth <= each.intervals()[:, 1]) for each in found]
    assert 0.9 <= np.mean([row[:3] for row in inside]) <= 0.99
    assert set(np.unique(law.release(people))) <= set(range(law.outputs))


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.floats(1e-3, 20), st.integers(0, 10**6))
def test_tables_are_private_whatever_the_weights(size: int, epsilon: float, seed: int) -> None:
    """Also where the weights do not sum to what they should: the rows do."""
    rng = np.random.default_rng(seed)
    sets = np.array([rng.permutation(size) < rng.integers(1, size) for _ in range(8)], dtype=float)
    rows = table_of(sets, rng.random(8) + 1e-6, epsilon)
    assert len({sum(row) for row in rows}) == 1 and min(map(min, rows)) > 0
    exact = max(Fraction(max(c), min(c)) for c in zip(*rows))
    law = LinearReport(md.Workload.identity(size), rows)
    with pytest.raises(md.DesignError, match="weights: must be rows of one sum"):
        LinearReport(law.workload, [[w + 1 for w in rows[0]], *rows[1:]])
    assert law.epsilon <= epsilon and exact <= Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 5), st.floats(0.01, 5), st.integers(0, 10**6))
def test_sets_are_what_their_tables_say(k: int, epsilon: float, seed: int) -> None:
    """Variances, decoders and estimated covariances of published sets, of any workload, against a table of all sets."""
    rng = np.random.default_rng(seed)
    asked = np.concatenate([rng.normal(size=(2, k)), np.eye(k)[:1]])
    design = md.LocalWorkload(asked, md.PureDP(epsilon))
    for name in PUBLISHED[1:]:
        law = design.published(name)
        table = as_table(law)
        assert law.epsilon == table.epsilon <= epsilon
        assert law.variances == pytest.approx(table.variances, rel=1e-9)
        assert law.variances.max() <= float(law.cost(worst=True)) * (1 + 1e-12)
        assert float(law.cost(worst=True)) == pytest.approx(law.variances.max(), rel=1e-9)
        assert float(law.cost(worst=False)) == pytest.approx(law.variance + design.constant, rel=1e-9)
        reports = law.sample(rng.integers(0, k, 50), rng=rng)
        sets = [c for s in law.sizes for c in combinations(range(k), s)]
        numbers = [sets.index(tuple(np.flatnonzero(r))) for r in reports]
        mine, theirs = law.decode(reports), table.decode(numbers)
        assert mine.answers == pytest.approx(theirs.answers, rel=1e-7, abs=1e-6)
        # both estimates of the covariance are unbiased: they agree on average over the reports of any data
        counts = rng.integers(1, 9, k).astype(float)
        expected = table._spread(counts, counts @ table.channel.matrix)
        assert law._spread(counts, np.zeros(0)) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_unary_encodings_and_hadamard_response_are_the_published_ones() -> None:
    k, growth = 5, math.e
    bits = (np.arange(2**k)[:, None] >> np.arange(k)) & 1
    both = 1 / (1 + math.exp(-0.5))
    for name, kept, turned in (("symmetric", both, 1 - both), ("optimised", 0.5, 1 / (1 + growth))):
        q = np.array(
            [
                np.prod(
                    np.where(bits == 1, np.where(own, kept, turned), np.where(own, 1 - kept, 1 - turned)),
                    axis=1,
                )
                for own in np.eye(k, dtype=bool)
            ]
        )
        cost = np.trace(np.linalg.inv((q / q.mean(axis=0)) @ q.T))
        found = md.LocalWorkload(md.Workload.identity(k), ONE).costs()[f"{name} unary encoding"]
        assert found == pytest.approx(cost, rel=1e-9)
    for block in (2, 4, 8):
        law = hadamard(md.Workload.identity(k), 1.0, block)
        assert law.outputs == block * -(-k // (block - 1)) and 1 - 1e-12 < law.epsilon <= 1


@pytest.mark.parametrize(("k", "epsilon"), [(2, 1.0), (32, 1.0), (1000, 0.5)])
@pytest.mark.parametrize("data", ["average", "worst"])
def test_histograms_of_any_size(k: int, epsilon: float, data: str) -> None:
    """Value and bound are the closed form; checked alone; nothing published is below."""
    result = md.LocalWorkload(md.Workload.identity(k), md.PureDP(epsilon), data=data).solve()
    growth = math.exp(epsilon)
    traces = [k**2 * (s * growth**2 + k - s) / (s * growth + k - s) ** 2 for s in range(1, k)]
    assert result.value + (data == "worst") == pytest.approx(
        1 / k + (k - 1) ** 2 / (max(traces) - k), rel=1e-9
    )
    assert result.gap < 1e-12 and result.status is md.typing.Status.OPTIMAL
    assert result.certificate.verify() and not refused(result)
    if k <= 100:
        assert min(result.design.costs().values()) >= result.value * (1 - 1e-12)


def test_draws_of_sets() -> None:
    """Frequencies of every set within 5 standard errors, of `release` and of `sample`; sizes and the own category are not told apart by work."""
    law = md.LocalWorkload(md.Workload.identity(4), md.PureDP(1.0)).published("optimised unary encoding")
    table, n = as_table(law).channel.matrix, 20_000
    sets = [sum(1 << i for i in c) for s in law.sizes for c in combinations(range(4), s)]
    for draw in (law.release, lambda x: law.sample(x, rng=1)):
        for x in (0, 3):
            words = draw(np.full(n, x)) @ (1 << np.arange(4))
            share = np.bincount(words, minlength=16)[sets] / n
            assert (np.abs(share - table[x]) <= 5 * np.sqrt(table[x] / n)).all()
    assert law.release(2).shape == (4,) and law.release([[0, 1]]).shape == (1, 2, 4)
    with pytest.raises(md.DataError):
        law.release([4])
    with pytest.raises(md.DesignError, match="sets of these sizes"):
        law.decode([[0, 0, 0, 0]])
    with pytest.raises(md.DesignError, match="entries in its last axis"):
        law.decode([[0, 1]])


def test_never_above_what_is_published() -> None:
    design = md.LocalWorkload(np.eye(20), ONE)  # a histogram, but not in these words
    found = design.solve(gap=0.5)
    assert found.value <= min(design.costs().values()) * (1 + 1e-12) and not refused(found)


def test_questions_and_laws_refuse_in_a_sentence() -> None:
    """Also at the ends of the range of ε: the least ε of an error is found, or said to be too large."""
    asked = md.CategoryReport(categories=50, people=10_000)
    least = md.least_epsilon("subset selection", asked, error=50.0)
    assert md.accuracy("subset selection", asked, md.PureDP(least)).standard_deviation == pytest.approx(
        50, rel=1e-3
    )
    with pytest.raises(md.InfeasibleError, match=r"no epsilon up to 19\.9"):
        md.least_epsilon("subset selection", asked, error=1e-9)
    assert md.least_epsilon("k-ary response", asked, error=1e9) < 0.1
    result, counts = md.LocalWorkload(md.Workload.identity(5), ONE).solve(), md.Workload.identity(5)
    for call, said in (
        (lambda: md.CategoryReport([[1, 1, 1]]), "number of people alone"),
        (lambda: result.errors(md.NumericQuery()), "must be a CategoryReport"),
        (lambda: SubsetReport(counts, (5,), (1,), (3, 1)), "must increase, from below 5"),
        (lambda: SubsetReport(counts, (2, 1), (1, 1), (3, 1)), "must increase"),
        (lambda: SubsetReport(counts, (2,), (1,), (1, 3)), "the first larger"),
        (md.LocalWorkload(counts, md.PureDP(1e-300)).solve, "epsilon = 1e-300: is too small"),
    ):
        with pytest.raises(md.DesignError, match=said):
            call()

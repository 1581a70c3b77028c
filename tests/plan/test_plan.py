"""Plans: reference values, closed forms, brute force, composition computed a second time, targets, rounds, groups, clips, files."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from campaign import files
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.accounting import gaussian_mu
from mechdesign.evidence.serialize import dumps
from mechdesign.plan.search import Search, composed
from mechdesign.typing import Status
from mechdesign.verifier.verify import verify

BUDGET = md.ApproximateDP(1.0, 1e-6)
ONES = {"visits": 1.0}
SIZES = (200.0, 50.0, 12_500.0)
NAMES = ("visits", "age", "spent")
NUMBERS = {name: md.NumericQuery(1, change) for name, change in zip(NAMES, (1.0, 0.01, 5.0))}
WEIGHTS = {name: size**-2 for name, size in zip(NAMES, SIZES)}
TABLES = {"visits": md.Histogram(50, whole=False), "age": md.Mean(0, 100, n=10_000), "spent": md.Sum(5.0)}
TABLE_WEIGHTS = {**WEIGHTS, "visits": WEIGHTS["visits"] / 50}


def shares(result):
    return result.to_frame()["share"].to_numpy()


# -- the sheet's numbers, and closed forms ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("families", "value"),
    [(("laplace",), 1.105166e-4), (("gaussian",), 5.597105e-4), (("laplace", "gaussian"), 1.105166e-4)],
)
def test_three_numbers(families, value):
    found = md.Plan(NUMBERS, BUDGET, weights=WEIGHTS, families=families).solve()
    assert found.value == pytest.approx(value, rel=5e-7) and found.certificate.verify()
    if families[0] == "laplace":
        assert shares(found) == pytest.approx([0.7677, 0.0898, 0.1425], abs=5e-5)


@pytest.mark.parametrize(("families", "value"), [(("laplace",), 3.375770e-4), (("gaussian",), 1.050265e-3)])
def test_three_tables_under_replacement(families, value):
    design = md.Plan(TABLES, BUDGET, weights=TABLE_WEIGHTS, neighbours="replace", families=families)
    found = design.solve()
    assert found.value == pytest.approx(value, rel=5e-7) and found.certificate.verify()
    if families == ("laplace",):
        even = found.alternatives().set_index("mechanism")["error"]["even split"]
        assert even == pytest.approx(1.8036e-3, rel=1e-4)


def test_pure_shares_go_by_the_cube_root_of_the_costs():
    rng = np.random.default_rng(0)
    change, weight = 10 ** rng.uniform(-2, 2, 6), 10 ** rng.uniform(-4, 0, 6)
    tasks = {f"t{k}": md.NumericQuery(3, float(c)) for k, c in enumerate(change)}
    weights = dict(zip(tasks, weight.tolist()))
    found = md.Plan(tasks, md.PureDP(0.7), weights=weights, families=("laplace",)).solve()
    costs = np.cbrt(2 * weight * 3 * (3 * change) ** 2)
    assert shares(found) == pytest.approx(costs / costs.sum(), rel=1e-9)
    assert found.value == pytest.approx(costs.sum() ** 3 / 0.7**2, rel=1e-9)
    assert found.status is Status.BEST and found.gap <= 1e-9


@pytest.mark.parametrize("privacy", [BUDGET, md.ZeroConcentratedDP(0.3)])
def test_gaussian_noise_in_closed_form(privacy):
    rng = np.random.default_rng(1)
    change, weight = 10 ** rng.uniform(-2, 2, 6), 10 ** rng.uniform(-4, 0, 6)
    tasks = {f"t{k}": md.NumericQuery(3, float(c)) for k, c in enumerate(change)}
    weights = dict(zip(tasks, weight.tolist()))
    found = md.Plan(tasks, privacy, weights=weights, families=("gaussian",)).solve()
    mu = gaussian_mu(1.0, 1e-6) if privacy is BUDGET else math.sqrt(0.6)
    total = (math.sqrt(3) * change * np.sqrt(3 * weight)).sum()
    assert found.value == pytest.approx(total**2 / mu**2, rel=1e-9)
    assert found.status is Status.BEST and found.gap <= 1e-9


@pytest.mark.parametrize(
    ("privacy", "mu"),
    [
        (md.GaussianDP(0.5), 0.5),
        (md.MembershipAdvantage(2 * stats.norm.cdf(0.25) - 1), 0.5),
        (md.TradeOff([(0.0, 2 * stats.norm.cdf(0.25) - 1), (1.0, 0.5)]), 0.5),
    ],
)
def test_requirements_that_normal_noise_meets(privacy, mu):
    tasks = {"n": md.Count(), "h": md.Histogram(4, 2), "m": md.Mean(10, 20, n=100), "s": md.Sum(2.0)}
    found = md.Plan(tasks, privacy, weights={"h": 0.1}, rounds=3).solve()
    # the mean is its centred sum, changed by 5, and its count
    roots = [1.0, math.sqrt(0.1 * 2 * 4), 0.05, 0.05, 2.0]
    assert found.value == pytest.approx(3 * sum(roots) ** 2 / mu**2, rel=1e-6) and found.gap <= 1e-9
    assert found.certificate.verify() and held(found) == []
    told = found.mechanism.release({"n": 3, "h": [1, 2, 3, 4], "m": (1500, 100), "s": 2.0})
    assert type(told["n"]) is float and told["h"].dtype == float


@pytest.mark.parametrize(("rho", "epsilon", "less"), [(2.63, 18.1938, 0.1317), (0.1, 3.134854, 0.2169)])
def test_exact_composition_against_zcdp(rho, epsilon, less):
    """The 2020 US census published ρ = 2.63; at the ε that the usual conversion gives for δ = 1e-10 there is room for less noise."""
    assert rho + 2 * math.sqrt(rho * math.log(1e10)) == pytest.approx(epsilon, abs=5e-5)
    exact, by_rho = (
        md.Plan(NUMBERS, privacy, ONES, families=("gaussian",)).solve().value
        for privacy in (md.ApproximateDP(epsilon, 1e-10), md.ZeroConcentratedDP(rho))
    )
    assert 1 - exact / by_rho == pytest.approx(less, abs=1e-4)


# -- against everything simpler ---------------------------------------------------------------------------


def brute(design, spread=0.06, count=7):
    """The least error on a grid of scales about the plan's, for every choice of families; the last scale by the budget."""
    search, least = design._search, math.inf
    for items in product(*search.slots):
        start = replace(search, slots=[[i] for i in items]).settled(4.0, xtol=1e-6)[0]
        for steps in product(np.linspace(-3 * spread, 3 * spread, count), repeat=len(items) - 1):
            head = [(i, s * math.exp(x)) for (i, s), x in zip(start, steps)]
            item, low, high = items[-1], start[-1][1] / 8, start[-1][1] * 64
            if composed([*head, (item, high)], design.privacy) > design.privacy.delta:
                continue
            for _ in range(12):
                middle = math.sqrt(low * high)
                over = composed([*head, (item, middle)], design.privacy) > design.privacy.delta
                low, high = (middle, high) if over else (low, middle)
            least = min(least, search.cost([*head, (item, high)]))
    return least


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_no_point_of_a_grid_is_below(epsilon):
    tasks = {"a": md.NumericQuery(1, 1.0), "b": md.NumericQuery(4, 0.2), "c": md.NumericQuery(9, 0.1)}
    design = md.Plan(tasks, md.ApproximateDP(epsilon, 1e-4), families=("laplace", "gaussian"))
    found = design.solve()
    assert found.lower_bound <= found.value <= brute(design) * (1 + 1e-3)


# -- the composition, computed a second time --------------------------------------------------------------


def test_the_certificate_is_of_all_rounds():
    weights = dict.fromkeys(NUMBERS, 1.0)
    once, twelve = (md.Plan(NUMBERS, md.PureDP(1.0), weights, rounds=r).solve() for r in (1, 12))
    assert twelve.mechanism.rounds == 12 and twelve.mechanism.consumed(md.PureDP(1.0)).upper <= 1.0
    alone = md.Plan(NUMBERS, md.PureDP(1 / 12), weights).solve()
    assert twelve.value == pytest.approx(alone.value, rel=1e-9) and twelve.value > once.value


# -- without weights, and at large budgets -----------------------------------------------------------------


SIZE = st.floats(-3, 6).map(lambda x: 10**x)
MIXED = st.lists(
    st.one_of(
        st.just(md.Count()),
        st.integers(2, 40).map(md.Histogram),
        SIZE.map(md.Sum),
        st.builds(lambda top, n: md.Mean(0, top, n=n), SIZE, st.integers(2, 10**5)),
    ),
    min_size=1,
    max_size=5,
).map(lambda tasks: {f"t{k}": task for k, task in enumerate(tasks)})
EPSILON = st.floats(-1, 2.3).map(lambda x: 10**x)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(MIXED, EPSILON, st.sampled_from([0.0, 1e-6]))
def test_no_task_is_far_above_an_even_split(tasks: dict[str, Any], epsilon: float, delta: float) -> None:
    result = md.Plan(tasks, md.ApproximateDP(epsilon, delta) if delta else md.PureDP(epsilon)).solve()
    assert result.value <= len(tasks) * (1 + 1e-9) and (result.lower_bound or 0.0) >= 0
    weights = result.design.to_fields()["weights"]
    assert all(weights[name] * error <= 4 for name, error in result.mechanism.squared_errors().items())
    assert result.certificate.verify() and held(result) == []


@settings(max_examples=6, deadline=None)
@given(MIXED, st.lists(EPSILON, min_size=2, max_size=2, unique=True), st.sampled_from([0.0, 1e-6]))
def test_values_fall_in_epsilon(tasks: dict[str, Any], epsilons: list[float], delta: float) -> None:
    first, *others = sorted(epsilons)
    weights = md.Plan(tasks, md.PureDP(first)).solve(certify=False).design.to_fields()["weights"]
    values = [
        md.Plan(tasks, md.ApproximateDP(e, delta) if delta else md.PureDP(e), weights)
        .solve(certify=False)
        .value
        for e in (first, *others)
    ]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize(
    "privacy",
    [
        *(
            md.PureDP(1e6),
            md.ApproximateDP(1e3, 0.5),
            pytest.param(md.ApproximateDP(1e4, 0.5), marks=pytest.mark.slow),
            md.ZeroConcentratedDP(1e6),
            md.ApproximateDP(1e-200, 1e-3),
        ),
        *(
            md.GaussianDP(1e100),
            md.GaussianDP(1e155),
            md.MembershipAdvantage(1e-97),
            md.ZeroConcentratedDP(1e300),
        ),
        *(md.PureDP(1e-110), md.ApproximateDP(1e200, 1e-6)),
    ],
)
def test_budgets_that_doubles_hardly_hold_end_in_a_plan_or_one_sentence(privacy: Any) -> None:
    tasks = {"c": md.Count(), "s": md.Sum(1e-9), "t": md.Sum(1e12)}
    for weights in (None, dict.fromkeys(tasks, 1.0)):
        try:
            result = md.Plan(tasks, privacy, weights).solve()
        except md.DesignError as error:
            assert "budget" in str(error) or "variance" in str(error)
            continue
        assert (
            result.certificate.verify() and str(result) and 0 <= (result.lower_bound or 0.0) <= result.value
        )
        assert isinstance(privacy, md.ApproximateDP) or result.gap < 1e-6


# -- targets, groups, clips -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "privacy", [md.PureDP(50.0), md.ZeroConcentratedDP(50.0), md.ApproximateDP(50.0, 1e-6)]
)
def test_targets_are_met_at_the_least_budget(privacy):
    targets = {"visits": 3.0, "age": 0.5, "spent": 40.0}
    tasks = {"visits": md.Histogram(50), "age": md.Mean(0, 100, n=10_000), "spent": md.Sum(5.0)}
    found = md.Plan(tasks, privacy, targets=targets).solve()
    assert found.checks()["holds"].all() and held(found) == []
    name = "rho" if hasattr(privacy, "rho") else "epsilon"
    tight = type(privacy)(**{**vars(privacy), name: 0.99 * found.value})
    with pytest.raises(md.InfeasibleError, match="targets") as error:
        md.Plan(tasks, tight, targets=targets).solve()
    assert error.value.smallest_epsilon == pytest.approx(found.value, rel=1e-6)


@pytest.mark.parametrize("budget", [md.PureDP(3.0), md.ZeroConcentratedDP(10.0), md.ApproximateDP(20.0, 0.1)])
def test_the_error_of_a_plan_needs_its_budget(budget):
    tasks = {"age": md.Mean(-7.0, 14.0, n=1000)}
    found = md.Plan(tasks, budget, {"age": 1.0}).solve()
    needed = md.Plan(tasks, budget, targets={"age": (1 + 1e-9) * found.value**0.5}).solve()
    assert needed.value == pytest.approx(getattr(budget, "rho", None) or budget.epsilon, rel=1e-6)
    assert needed.certificate.verify()


@pytest.mark.slow
def test_disjoint_groups_each_take_what_the_others_leave():
    tasks = {
        "all": md.NumericQuery(1, 1.0),
        "north": md.NumericQuery(1, 1.0),
        "south": md.NumericQuery(1, 1.0),
    }
    ones = dict.fromkeys(tasks, 1.0)
    found = md.Plan(
        tasks, md.PureDP(1.0), ones, disjoint=[["north"], ["south"]], families=("laplace",)
    ).solve()
    # the groups are one task of twice the cost
    roots = np.cbrt([2.0, 4.0])
    assert found.value == pytest.approx(roots.sum() ** 3, rel=1e-9) and found.gap < 1e-9
    assert shares(found) == pytest.approx([roots[0] / roots.sum(), *[roots[1] / roots.sum()] * 2], rel=1e-9)
    assert found.certificate.verify() and not [
        claim for claim, _, holds in verify(dumps(found)).rows if not holds
    ]
    both = md.Plan(tasks, md.ApproximateDP(3.0, 1e-5), disjoint=[["north"], ["south"]]).solve()
    assert both.certificate.verify()


@pytest.mark.parametrize("budget", [md.PureDP(0.1), md.ApproximateDP(0.1, 1e-6)])
def test_several_clips_cost_no_more_than_the_best_alone(budget):
    law, weights = md.clipped(stats.gamma(2.0), 0, 60), {"spent": 1.0, "people": 0.0083}

    def cost(*clips):
        tasks = {"spent": md.Sum(clips, values=law, n=100), "people": md.Count()}
        return md.Plan(tasks, budget, weights, rounds=6).solve().value

    assert cost(0.338, 0.998, 10.26) <= 1.001 * min(cost(0.338), cost(0.998), cost(10.26))


def test_the_clip_is_chosen_by_the_law_of_the_values():
    law, n = md.clipped(stats.expon(), 0, 60), 1000
    clips = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 16.0])
    task = md.Sum(clip=clips, values=law, n=n)
    for epsilon in (0.1, 1.0, 10.0):
        found = md.Plan({"spent": task}, md.PureDP(epsilon), {"spent": 1.0}, families=("laplace",)).solve()
        # E(X − c)₊ = e^{−c} − e^{−60}
        error = 2 * (clips / epsilon) ** 2 + (n * (np.exp(-clips) - math.exp(-60))) ** 2
        assert found.value == pytest.approx(error.min(), rel=1e-9)
        assert found.to_frame()["clip"].item() == clips[error.argmin()] == found.mechanism.tasks["spent"].clip
        assert found.lower_bound == pytest.approx(found.value, rel=1e-6)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_workloads_get_the_noise_of_the_matrix_mechanism(neighbours):
    totals, tables = md.Workload.prefix_sums(9), md.Workload.marginals((2, 3), order=1)
    tasks, privacy = {"totals": totals, "tables": tables, "spent": md.Sum(2.0)}, md.GaussianDP(0.5)
    found = md.Plan(tasks, privacy, weights={"tables": 0.1}, neighbours=neighbours).solve()
    alone = [
        md.MatrixMechanism(w, md.GaussianDP(1.0), l0=1 + (neighbours == "replace")).solve().value
        for w in (totals, tables)
    ]
    # each costs c/μ², c that of the best strategy; their numbers are rounded to 2⁻²²
    total = math.sqrt(alone[0]) + math.sqrt(0.1 * alone[1]) + 2.0
    assert found.value == pytest.approx(total**2 / 0.5**2, rel=3e-6) and found.gap <= 1e-9
    assert found.certificate.verify() and held(found) == []
    sure = md.Plan(tasks, md.GaussianDP(1e5), neighbours=neighbours).solve().mechanism
    told = sure.release({"totals": range(9), "tables": range(6), "spent": 3.0})
    assert told["totals"] == pytest.approx(np.cumsum(range(9)), abs=0.01)
    assert told["tables"] == pytest.approx([3, 12, 3, 5, 7], abs=0.01)
    assert np.shape(sure.engines()["parts"][0]["strategy"]) == (9, 9)


# -- release and files ------------------------------------------------------------------------------------


def test_whole_tasks_are_answered_by_whole_numbers():
    tasks = {"n": md.Count(), "h": md.Histogram(4), "m": md.Mean(10, 20, n=100), "s": md.Sum(2.0)}
    law = md.Plan(tasks, md.PureDP(100.0)).solve().mechanism
    told = law.release({"n": 7, "h": [1, 2, 3, 4], "m": (1500.0, 100), "s": 31.0})
    assert type(told["n"]) is int and told["h"].dtype == np.int64 and type(told["s"]) is float
    assert (
        told["n"] == pytest.approx(7, abs=3) and told["m"] == pytest.approx(15, abs=1) and [*told] == [*tasks]
    )


def test_a_frame_has_a_column_a_task_filled_from_the_top():
    law = md.Plan({"n": md.Count(), "h": md.Histogram(3)}, md.PureDP(15.0)).solve().mechanism
    told = law.release(pd.DataFrame({"h": [1, 2, 3], "n": [7, None, None]}))
    assert type(told["n"]) is int and told["n"] == pytest.approx(7, abs=9)
    assert told["h"].tolist() == pytest.approx([1, 2, 3], abs=9)
    for bad in (
        {"n": [7], "h": [1]},
        {"n": [7, 8], "h": [1, 2]},
        {"n": [], "h": []},
        {"n": [7, 1], "h": [None, 2]},
    ):
        with pytest.raises(md.DataError):
            law.release(pd.DataFrame(bad))
    with pytest.raises(md.DataError, match="one column a task"):
        law.release(pd.DataFrame([[7, 1, 2]], columns=["n", "h", "h"]))
    with pytest.raises(md.DataError, match=r"without an answer are \['h'\], and 2 answers are to no task$"):
        law.release({"n": 7, "records": 1, "others": 2})


def held(result):
    return [claim for claim, _, holds in verify(dumps(result)).rows if not holds]


# -- Like tasks are one: solved, printed and verified once, however many there are


def test_a_like_task_costs_what_it_costs_alone() -> None:
    """Forty counts by name cost what one histogram of forty whose bins all may move costs."""
    privacy = md.ApproximateDP(1.0, 1e-6)
    names = {f"c{k}": md.Count() for k in range(40)}
    together = md.Plan({"all": md.Histogram(40, contribution=40)}, privacy, weights={"all": 1.0}).solve()
    apart = md.Plan(names, privacy, weights=dict.fromkeys(names, 1.0)).solve()
    assert apart.value == pytest.approx(together.value, rel=1e-4)
    assert np.ptp(apart.to_frame()["scale"]) == 0


@pytest.mark.parametrize("privacy", [md.PureDP(1.0), md.ZeroConcentratedDP(0.125)], ids=str)
def test_prices_of_groups_come_to_rest_and_keep_the_time_limit(privacy, monkeypatch):
    tasks = {
        "a": md.Count(),
        "b": md.Sum(2.0),
        "c": md.Histogram(4),
        "d": md.Mean(0, 5, n=50),
        "e": md.Count(3),
    }
    design = md.Plan(tasks, privacy, disjoint=[["a"], ["b"], ["c"], ["d"]])
    early, sought, root = design.solve(time_limit=1e-3), [], Search._root
    monkeypatch.setattr(Search, "_root", lambda *args: sought.append(1) or root(*args))
    late = replace(design).solve()
    assert late.gap < 2e-7 and len(sought) <= 80
    assert late.value <= early.value < 2 * late.value and early.certificate.verify()


@pytest.mark.parametrize("number", [np.float32, np.longdouble, Fraction, str], ids=str)
def test_numbers_of_other_types_are_read_or_refused_by_name(number):
    """NumPy's scalars are read to the safe side; texts are refused by the name of the argument."""
    value = number("0.1") if number is str else number(0.1)
    with pytest.raises(md.DesignError, match=r"points|reserve") if number is str else nullcontext():
        for points in ([(value, 1e-5)], [(0.1, value)]):
            found = md.TradeOff(points).points[0]
            assert all(type(v) is float and v <= was for v, was in zip(found, points[0]))
    with pytest.raises(md.DesignError, match="reserve") if number is str else nullcontext():
        kept = md.Plan({"a": md.Count()}, md.PureDP(1), reserve=value).privacy.epsilon
        assert kept == pytest.approx(0.9, rel=1e-7) and kept + value <= 1


@pytest.mark.parametrize("privacy", [md.PureDP(1), md.ApproximateDP(1, 1e-6), md.GaussianDP(1)], ids=str)
def test_a_budget_that_the_plan_exceeds_is_seen(privacy):
    payload = json.loads(dumps(md.Plan({"a": md.Count()}, privacy, reserve=0.25).solve()))["payload"]
    assert files.alone_accepts(payload)
    fields = payload["fields"]["design"]["fields"]["budget"]["fields"]
    name = next(name for name in fields if name != "delta")
    fields[name] *= 0.74 if privacy == md.PureDP(1) else 0.85
    assert not files.alone_accepts(payload) and not files.package_accepts(payload)

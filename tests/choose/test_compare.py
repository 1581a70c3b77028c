"""Comparisons: every mechanism tried, ranked rightly, refusals with reasons, and the ways out."""

import functools
import json
import math
from itertools import product
from typing import Any

import cheap
import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.choose import comparison
from mechdesign.choose.candidates import candidates
from mechdesign.choose.comparison import OTHER
from mechdesign.choose.questions import check_same_privacy
from mechdesign.evidence.proofs import Scope
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.verifier.verify import verify as alone

COUNTS = md.NumericQuery(dimension=20, sensitivity=md.Sensitivity(linf=1, l0=3))
PRIVACY = md.ApproximateDP(1, 1e-6)
UNIFORM = stats.uniform(-1, 2)
QUICK = ["gaussian", "laplace", "logistic", "optimal noise", "discrete_laplace"]


@functools.cache
def counts():
    return md.compare(COUNTS, PRIVACY, mechanisms=QUICK)


@functools.cache
def reports():
    return md.compare(
        md.LocalReport(bits=2), md.PureDP(2), mechanisms=["optimal, even outputs", "MVU", "RQM"]
    )


def test_the_table_is_ranked_and_right():
    found = counts()
    assert found.names == ["optimal noise", "laplace", "logistic", "gaussian"]
    table = found.table.set_index("mechanism")
    assert 20 * table.loc["gaussian", "error"] == pytest.approx(1070.8747030859, rel=1e-9)
    assert found["gaussian"].certificate.verify()
    assert table.loc["optimal noise", "ratio"] == 1.0 and "best found" in found.reference
    assert table.loc["optimal noise", "error"] <= table.loc["laplace", "error"]
    law = found["laplace"].mechanism.law
    assert table.loc["laplace", "standard deviation"] == pytest.approx(law.std())
    assert table.loc["laplace", "mean absolute error"] == pytest.approx(law.std() / math.sqrt(2))
    # rounded up to six digits
    assert 0.025 * (1 - 1e-5) <= law.sf(table.loc["laplace", "95% half-width"]) <= 0.025
    normal = found["gaussian"].mechanism.law
    exact = normal.isf(0.025)
    assert exact <= table.loc["gaussian", "95% half-width"] <= exact * (1 + 1e-5)
    assert table.loc["gaussian", "privacy"] == "ε = 1, δ = 1e-06: proved"


def test_refusals_give_their_reason():
    found = counts()
    assert set(found.refused) == {"discrete_laplace"}
    assert "integer=True" in found.refused["discrete_laplace"]
    with pytest.raises(md.DesignError, match="does not apply"):
        found["discrete_laplace"]
    with pytest.raises(md.DesignError, match="must be one of optimal noise, laplace, logistic"):
        found["nonesuch"]
    with pytest.raises(md.InfeasibleError, match="needs delta > 0"):
        md.compare(COUNTS, md.PureDP(1), mechanisms=["gaussian"])


def test_one_number_has_a_proved_least():
    found = md.compare(md.NumericQuery(), md.PureDP(1), mechanisms=["laplace", "staircase", "optimal noise"])
    assert found.least == found["optimal noise"].lower_bound
    assert found.least <= found["staircase"].mechanism.variance  # the known optimum
    assert found.table["ratio"].min() >= 1
    # whole numbers need not be protected from changes in between: no bound for them
    names = ["discrete_laplace", "optimal noise"]
    counted = md.compare(md.NumericQuery(integer=True), md.PureDP(1), mechanisms=names)
    assert counted.least is None and counted["optimal noise"].value > counted["discrete_laplace"].value
    assert str(counted["optimal noise"].mechanism_class) == "every additive noise for a real-valued query"


def test_whole_numbers_change_by_whole_numbers():
    """Bounds in between ask no more noise of any mechanism than the whole bounds below them."""
    for sensitivity, whole in (
        (1.5, 1.0),
        (md.Sensitivity(each=[0.4, 1.5, 2.5]), md.Sensitivity(each=[0, 1, 2])),
        (md.Sensitivity(linf=1.9, l1=3.5, l2=1.8), md.Sensitivity(linf=1, l1=3, l2=1.8)),
    ):
        size = 1 if sensitivity == 1.5 else 3
        asked, least = (md.NumericQuery(size, s, integer=True) for s in (sensitivity, whole))
        assert asked == least
        names = ["laplace", "discrete_laplace"]
        found, known = (md.compare(q, md.PureDP(1), mechanisms=names) for q in (asked, least))
        assert [found[n].value for n in names] == [known[n].value for n in names]
    assert md.NumericQuery(sensitivity=1.5).sensitivity == 1.5


def test_reports_have_a_proved_least():
    found = reports()
    assert found.least is not None and found.table["ratio"].min() >= 1
    finer = md.OptimalQuantizer(md.Alphabet(2.0, 0.02), md.PureDP(2), UNIFORM).solve()
    assert found.least <= finer.value  # no alphabet is better than the bound
    assert found.table["bits"].tolist() == [2.0, 2.0, 2.0]
    row = found.table.set_index("mechanism").loc["RQM"]
    mechanism = found["RQM"].mechanism
    x = np.random.default_rng(0).uniform(-1, 1, 200_000)
    off = np.abs(mechanism.sample(x, rng=1) - x)
    assert row["mean absolute error"] == pytest.approx(off.mean(), rel=0.01)
    assert row["standard deviation"] == pytest.approx(math.sqrt((off**2).mean()), rel=0.01)
    assert row["95% half-width"] == pytest.approx(np.quantile(off, 0.95), rel=0.01)


def test_a_limit_for_all_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """`total_time_limit` is for all mechanisms together, ten minutes by default: what it leaves no time for says so."""
    names = ["laplace", "gaussian"]
    found = md.compare(COUNTS, PRIVACY, mechanisms=names, total_time_limit=1e3)
    assert found.names == [name for name in counts().names if name in names]
    with pytest.raises(md.InfeasibleError, match="not tried: the limit of 1e-09 s for all was over"):
        md.compare(COUNTS, PRIVACY, mechanisms=names, total_time_limit=1e-9)
    with pytest.raises(md.DesignError, match="total_time_limit = 0"):
        md.compare(COUNTS, PRIVACY, total_time_limit=0)
    limits: list[float] = []
    monkeypatch.setattr(comparison, "_tried", lambda attempt, *_: limits.append(attempt.clock.seconds) or {})
    for options in ({}, {"total_time_limit": None}):
        with pytest.raises(md.InfeasibleError):
            md.compare(COUNTS, PRIVACY, **options)
    assert limits == [600, math.inf]


Q3 = md.NumericQuery(dimension=3, sensitivity=2.0)
TIGHT = {"privacy": PRIVACY, "sensitivity": 2.0, "dimension": 3}
ANOTHER = {
    "sensitivity": lambda: md.calibrate("gaussian", **TIGHT | {"sensitivity": md.Sensitivity(linf=2, l0=1)}),
    "dimension": lambda: md.calibrate("gaussian", **TIGHT | {"dimension": 1}),
    "sampling_rate": lambda: md.calibrate("gaussian", **TIGHT, sampling_rate=0.1),
    "integer": lambda: md.calibrate("discrete_gaussian", **TIGHT),
    "sensitivity ": lambda: md.NoiseAllocation("gaussian", [2, 2, 0.1], PRIVACY).solve(),
    "sensitivity  ": lambda: md.CountsGaussian(3, 3, PRIVACY, most=2, signed=False).solve(),
    "must be noise": lambda: md.MetricChannel(md.MetricSpace.grid(2, 2), 1).solve(),
}


@pytest.mark.parametrize("word", ANOTHER)
def test_results_for_another_question_are_refused(word):
    """A result is compared where its noise protects all that the question lets change, and only there."""
    result = ANOTHER[word]()
    with pytest.raises(md.DesignError, match=word.strip()):
        md.accuracy(result, Q3)
    if isinstance(held := getattr(result.design, "privacy", None), md.ApproximateDP):
        with pytest.raises(md.DesignError, match=word.strip()):
            md.compare(Q3, held, mechanisms=["laplace"], also={"w": result})
    with pytest.raises(md.DesignError, match="is not the privacy"):
        md.accuracy(result, privacy=md.PureDP(3))


@pytest.mark.parametrize(
    ("question", "result", "word"),
    [
        (md.LocalReport(), lambda: md.calibrate("laplace", privacy=md.PureDP(1), sensitivity=1), "unbiased quantizer"),
        (md.LocalReport(bits=1), lambda: md.RQM(4, md.PureDP(1), UNIFORM).solve(), "bins = 4"),
        (md.LocalReport(bits=2, input_range=(-2, 2)), lambda: md.RQM(4, md.PureDP(1), UNIFORM).solve(), "input_range"),
        (md.MetricReport(md.MetricSpace.grid(2, 3)), lambda: md.MetricChannel(md.MetricSpace.grid(2, 2), 1).solve(), "space"),
        (md.MetricReport(md.MetricSpace.grid(1, 2), [0.9, 0.1]), lambda: md.MetricChannel(md.MetricSpace.grid(1, 2), 1).solve(), "prior"),
    ],
)  # fmt: skip
def test_reports_for_another_question_are_refused(question, result, word):
    with pytest.raises(md.DesignError, match=word):
        md.accuracy(result(), question)


def test_what_was_solved_for_another_loss_is_ranked_by_the_questions():
    """Every error in the table is of the question's loss, and rows stand in its order."""
    for other in (
        md.calibrate("laplace", privacy=PRIVACY, sensitivity=1, loss="absolute"),
        md.NoiseAllocation("laplace", [1.0], PRIVACY, loss=1).solve(),
        md.NoiseAllocation("laplace", [1.0], PRIVACY, weights=[0.01]).solve(),
        md.OptimalNoise(PRIVACY, 1.0).solve(gap=0.5),
    ):
        found = md.compare(
            md.NumericQuery(), PRIVACY, mechanisms=["laplace"], also={"w": other}, progress=False
        )
        error = found.table.set_index("mechanism")["error"]["w"]
        assert error == pytest.approx(other.errors().standard_deviation ** 2)


def test_accuracy_and_its_inverse():
    found = md.accuracy("gaussian", COUNTS, PRIVACY)
    assert found.standard_deviation == pytest.approx(math.sqrt(1070.8747030859 / 20))
    exact = 1.959963984540054 * found.standard_deviation
    assert exact <= found.half_width <= exact * (1 + 1e-5)  # rounded up to six digits
    assert md.accuracy(counts()["gaussian"]) == found
    epsilon = md.least_epsilon("gaussian", COUNTS, error=found.standard_deviation, delta=1e-6)
    assert epsilon == pytest.approx(1.0, rel=2e-4)
    assert (
        md.accuracy("gaussian", COUNTS, md.ApproximateDP(epsilon, 1e-6)).standard_deviation
        <= found.standard_deviation
    )
    alpha = md.least_epsilon(
        "exponential mechanism",
        md.MetricReport(md.MetricSpace.grid(2, 2)),
        error=0.5,
        measure="absolute_error",
    )
    assert 0.5 < alpha < 50
    with pytest.raises(md.InfeasibleError, match="no epsilon up to 1000"):
        md.least_epsilon("laplace", md.NumericQuery(), error=1e-9)


@pytest.mark.parametrize(
    ("designs", "note"),
    [
        (lambda q, privacy: md.noise.KNorm(1, privacy), "dimension"),
        (lambda q, privacy: md.noise.KNorm(3, privacy, 0.5), "sensitivity"),
        (lambda q, privacy: md.noise.KNorm(3, md.PureDP(2.0)), "privacy"),
    ],
)
def test_a_registered_mechanism_is_held_to_the_question(designs, note):
    """A design of another dimension, sensitivity or privacy than the question's is refused, and not ranked."""
    md.choose.register("careless", md.NumericQuery, designs)
    try:
        found = md.compare(
            md.NumericQuery(dimension=3), md.PureDP(1.0), mechanisms=["laplace", "careless"], progress=False
        )
    finally:
        candidates(md.NumericQuery()).pop("careless")
    assert found.names == ["laplace"] and note in found.refused["careless"]


# -- Results for another question are marked and bound nothing; no bound of every mechanism is above the error of one


PURE, APPROXIMATE = md.PureDP(1.0), md.ApproximateDP(1.0, 1e-3)
SHARP = {"gaussian", "laplace", "logistic"}
"""Families of symmetric log-concave laws."""


FEW = md.Sensitivity(linf=1, l0=1)
REPLACED = md.Sensitivity(linf=1, neighbours="replace")
SUM = md.Sensitivity(l1=1)


@functools.cache
def noises(privacy: Any) -> list[md.Result]:
    """Noise in closed form for many questions at one privacy, with bounds of every class that a comparison states."""
    found = []
    for loss in ("squared", "absolute"):
        if privacy is PURE:
            for size, change in product((1, 2), (0.5, 1.0, 2.0, REPLACED, SUM)):
                found += [
                    md.Calibration(f, privacy, change, size, loss).solve() for f in ("laplace", "staircase")
                ]
            found += [md.OptimalNoise(privacy, change, loss).solve() for change in (0.5, 2.0, REPLACED)]
            found += [
                md.noise.KNorm(2, privacy, change, loss=loss).solve() for change in (1.0, REPLACED, SUM)
            ]
        else:
            for size, change in product((1, 2), (0.5, 1.0, REPLACED, FEW, SUM)):
                found.append(md.Calibration("gaussian", privacy, change, size, loss).solve())
            found += [
                md.Calibration("laplace", privacy, change, 1, loss).solve() for change in (0.5, 1.0, REPLACED)
            ]
    return [*found, md.Calibration("laplace", privacy, 1.0, rounds=2).solve()]


def drawn(rng: np.random.Generator) -> tuple[md.NumericQuery, Any, list[str]]:
    privacy, size = (PURE, APPROXIMATE)[int(rng.random() < 0.2)], int(rng.integers(1, 3))
    listed = [[1.0, 0.0], [0.0, 0.5]] if size == 2 else [[0.5]]
    few, less = md.Sensitivity(linf=0.5, l0=1), md.Sensitivity(l1=0.5, signed=False)
    change = [0.25, 0.5, 1.0, 2.0, few, less, REPLACED, listed][int(rng.integers(8))]
    query = md.NumericQuery(
        size, change, str(rng.choice(["squared", "absolute"])), int(rng.choice([1, 1, 2]))
    )
    return query, privacy, [str(rng.choice(["laplace", "staircase"]) if privacy is PURE else "gaussian")]


def above(found: md.Comparison) -> list[str]:
    """Rows with less error than a bound of a class that they are of."""
    wrong, errors = [], dict(zip(found.table["mechanism"], found.table["error"]))
    for name, result in found.results.items():
        error, speaks = errors[name] * (1 + 1e-9), dict[str, float]()
        if found.least is not None:
            speaks["every"] = found.least
        if isinstance(result.design, md.noise.Calibration | md.OptimalNoise):
            sharp = getattr(result.design, "noise", "") in SHARP
            classes = {Scope.INDEPENDENT.value} | ({Scope.LOG_CONCAVE.value} if sharp else set())
            speaks |= {of: bound for of, bound in found.bounds.items() if of in classes}
        wrong += [
            f"{found.question}: {name} has {error}, below {bound} ({of})"
            for of, bound in speaks.items()
            if error < bound
        ]
    return wrong


def answering(question: Any, privacy: Any, results: list[md.Result]) -> list[md.Result]:
    kept = []
    for result in results:
        try:
            question.check("result", result)
            check_same_privacy("result", result, privacy)
        except md.DesignError:
            continue
        kept.append(result)
    return kept


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_no_bound_of_a_random_comparison_is_above_a_row(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = md.Result.errors
    once = functools.cache(lambda result: errors(result))
    monkeypatch.setattr(md.Result, "errors", lambda self, question=None: once(self))
    rng, marked, bounded = np.random.default_rng(34), 0, 0
    for _ in range(count):
        question, privacy, names = drawn(rng)
        fits = answering(question, privacy, noises(privacy))
        chosen = rng.permutation(len(fits))[:2].tolist()
        # one has the name of a candidate that is not on the menu
        also = {("osgt" if k == 0 else f"own {k}"): fits[at] for k, at in enumerate(chosen)}
        try:
            found = md.compare(question, privacy, mechanisms=names, also=also, progress=False)
        except md.InfeasibleError:
            continue
        assert not above(found)
        shown = dict(zip(found.table["mechanism"], found.table["assumes"]))
        assert {name for name in found.results if OTHER in shown[name]} == set(found.others)
        marked, bounded = marked + bool(found.others), bounded + bool(found.bounds or found.least)
    assert marked > count // 3 and bounded > count // 6


def alone_rows(found: md.Comparison) -> list[Any]:
    from mechdesign.verifier.reading import NotCovered

    try:
        return list(alone(dumps(found)).rows)
    except NotCovered:
        return []


def other(query: Any, name: str) -> md.Result:
    made = {
        "larger": lambda: md.calibrate("staircase", privacy=PURE, sensitivity=1.0),
        "replaced": lambda: md.calibrate(
            "staircase", privacy=PURE, sensitivity=md.Sensitivity(linf=0.5, neighbours="replace")
        ),
        "more rounds": lambda: md.calibrate("laplace", privacy=PURE, sensitivity=0.5, rounds=2),
        "another loss": lambda: md.Calibration("staircase", PURE, 0.5, loss="absolute").solve(),
        "optimal": lambda: md.OptimalNoise(PURE, 0.75, "squared").solve(),
    }
    return made[name]()


@pytest.mark.parametrize("name", ["larger", "replaced", "more rounds", "another loss", "optimal"])
def test_a_result_for_another_question_is_marked_and_bounds_nothing(name: str) -> None:
    query = md.NumericQuery(sensitivity=0.5)
    found = md.compare(
        query, PURE, mechanisms=["laplace"], also={"staircase": other(query, name)}, progress=False
    )
    assert found.others == ["staircase"] and not found.bounds and found.least is None
    assert "staircase: made for another question" in str(found)
    assert found.to_frame().set_index("mechanism")["assumes"].to_dict() == {"laplace": "", "staircase": OTHER}
    assert all(claim.holds for claim in found.agreements()) and all(holds for *_, holds in alone_rows(found))


@pytest.mark.slow
def test_reports_of_another_prior_loss_or_range_are_marked_and_biased_ones_refused() -> None:
    bins, uniform = [-3.0, -0.5, 0.5, 3.0], stats.uniform(-1, 2)
    made = {
        "itself": md.OptimalQuantizer(bins, PURE, uniform),
        "prior": md.OptimalQuantizer(bins, PURE, stats.beta(2, 2, -1, 2)),
        "loss": md.OptimalQuantizer(bins, PURE, uniform, "squared"),
        "range": md.OptimalQuantizer(bins, PURE, uniform, input_range=(-1.2, 1.2)),
        "worst": md.OptimalQuantizer(bins, PURE, uniform, objective="worst"),
    }
    also = {name: design.solve() for name, design in made.items()}
    found = md.compare(md.LocalReport(2), PURE, mechanisms=["RQM"], also=also, progress=False)
    assert set(found.others) == {"prior", "loss", "range", "worst"} and not above(found)
    assert all(claim.holds for claim in found.agreements()) and all(holds for *_, holds in alone_rows(found))
    biased = md.OptimalQuantizer(bins, PURE, uniform, max_bias=0.5).solve()
    with pytest.raises(md.DesignError, match=r"also\['b'\]: max_bias = 0.5: must be 0"):
        md.compare(md.LocalReport(2), PURE, mechanisms=["RQM"], also={"b": biased}, progress=False)


def test_a_mark_that_was_taken_out_is_refused_by_both_checkers() -> None:
    query = md.NumericQuery(sensitivity=0.5)
    found = md.compare(
        query, PURE, mechanisms=["laplace"], also={"mine": other(query, "larger")}, progress=False
    )
    text = cheap.sealed(json.loads(dumps(found).replace(OTHER, ""))["payload"])
    assert not all(claim.holds for claim in loads(text).agreements())
    assert not all(holds for *_, holds in alone(text).rows)


def test_rows_stand_in_the_order_of_the_questions_loss():
    """At δ = .08 Laplace noise has less mean absolute error, and Gaussian noise less variance."""
    for loss, first in (("absolute", "laplace"), ("squared", "gaussian")):
        names, privacy = ["gaussian", "laplace"], md.ApproximateDP(1, 0.08)
        found = md.compare(md.NumericQuery(loss=loss), privacy, mechanisms=names, progress=False)
        assert found.names[0] == first and found.best is found[first]

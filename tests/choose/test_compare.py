"""Comparisons: every mechanism tried, ranked rightly, refusals with reasons, and the ways out."""

import dataclasses
import functools
import math

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.choose.candidates import candidates

COUNTS = md.NumericQuery(dimension=20, sensitivity=md.Sensitivity(linf=1, l0=3))
PRIVACY = md.ApproximateDP(1, 1e-6)
UNIFORM = stats.uniform(-1, 2)
QUICK = ["gaussian", "laplace", "logistic", "optimal noise", "discrete_laplace"]


@functools.cache
def counts():
    return md.compare(COUNTS, PRIVACY, mechanisms=QUICK)


@functools.cache
def places():
    return md.compare(md.MetricSpace.grid(2, 3), alpha=1)


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


def test_optimal_noise_protects_the_few_that_change():
    found = counts()["optimal noise"]
    assert (found.design.dimension, found.design.l0) == (20, 3)
    assert found.certificate.verify() and found.checks()["holds"].all()
    noise = found.mechanism
    assert noise.dimension == 20 and noise.release(np.zeros(20)).shape == (20,)
    wider = md.NumericQuery(20, md.Sensitivity(linf=1, l0=4))
    with pytest.raises(md.DesignError, match="does not cover"):
        md.compare(wider, PRIVACY, mechanisms=["gaussian"], also={"mine": found})
    narrower = md.NumericQuery(20, md.Sensitivity(linf=1, l0=2))
    assert "mine" in md.compare(narrower, PRIVACY, mechanisms=["gaussian"], also={"mine": found}).names


@pytest.mark.parametrize(
    ("mechanism", "question", "privacy", "reason"),
    [
        ("optimal noise", md.NumericQuery(2, md.Sensitivity(each=[1, 2])), PRIVACY, r"Sensitivity\(linf=a, l0=c\)"),
        ("optimal noise", md.NumericQuery(2, rounds=3), PRIVACY, "rounds times the dimension"),
        ("optimal noise", md.NumericQuery(2, sampling_rate=0.1), PRIVACY, "not sampled"),
        ("optimal noise", md.NumericQuery(2), md.ZeroConcentratedDP(1), "pure and approximate"),
        ("correlated gaussian", md.NumericQuery(3, md.Sensitivity(l2=1)), PRIVACY, "independent gaussian noise"),
        ("correlated gaussian", md.NumericQuery(30, md.Sensitivity(each=range(1, 31))), PRIVACY, "least Gaussian noise"),
        ("correlated gaussian", md.NumericQuery(3, md.Sensitivity(each=[1, 2, 3], l2=2)), PRIVACY, "no list of corners"),
        ("correlated gaussian", md.NumericQuery(701, md.Sensitivity(linf=1)), PRIVACY, "more than 700"),
    ],
)  # fmt: skip
def test_a_design_says_what_it_cannot_do(mechanism, question, privacy, reason):
    with pytest.raises(md.InfeasibleError, match=reason):
        md.compare(question, privacy, mechanisms=[mechanism])


@pytest.mark.parametrize(
    ("sensitivity", "dimension"),
    [
        (md.Sensitivity(each=[1, 2, 3]), 3),
        (md.Sensitivity(each=[1, 2, 3, 0], l0=2), 4),
        (md.Sensitivity(each=[1, 2, 3], signed=False), 3),
        (md.Sensitivity(l1=2), 6),
    ],
    ids=str,
)
def test_correlated_noise_answers_where_the_changes_can_be_listed(sensitivity, dimension):
    query = md.NumericQuery(dimension, sensitivity)
    found = md.compare(query, PRIVACY, mechanisms=["correlated gaussian", "gaussian"])
    assert found.names[0] == "correlated gaussian"
    assert found.best.certificate.verify() and found.best.checks()["holds"].all()
    # no change of the set spends more than the budget: at random points of it
    result, rng = found.best, np.random.default_rng(0)
    inverse = np.linalg.pinv(result.mechanism.covariance)  # a number that never changes gets no noise
    bounds = np.array(sensitivity.each or [2.0] * dimension)
    for _ in range(200):
        change = rng.uniform(0 if not sensitivity.signed else -1, 1, dimension) * bounds
        if sensitivity.l0:
            change[rng.permutation(dimension)[sensitivity.l0 :]] = 0
        if sensitivity.l1:
            change *= sensitivity.l1 / max(np.abs(change).sum(), sensitivity.l1)
        assert change @ inverse @ change <= result.design.budget * (1 + 1e-9)


def test_one_number_has_a_proved_least():
    found = md.compare(md.NumericQuery(), md.PureDP(1), mechanisms=["laplace", "staircase", "optimal noise"])
    assert found.least == found["optimal noise"].lower_bound
    assert found.least <= found["staircase"].mechanism.variance  # the known optimum
    assert found.table["ratio"].min() >= 1
    # whole numbers need not be protected from changes in between: no bound for them
    names = ["discrete_laplace", "optimal noise"]
    counted = md.compare(md.NumericQuery(integer=True), md.PureDP(1), mechanisms=names)
    assert counted.least is None and counted["optimal noise"].value > counted["discrete_laplace"].value
    assert str(counted["optimal noise"].among) == "every additive noise for a real-valued query"


@pytest.mark.slow
def test_a_question_of_whole_numbers_is_answered_in_whole_numbers(tmp_path):
    """Continuous noise of less error stays in the table, and says what it is."""
    names = ["laplace", "gaussian", "truncated_laplace", "discrete_gaussian", "discrete_laplace"]
    query, privacy = md.NumericQuery(integer=True), md.ApproximateDP(0.1, 1e-5)
    found = md.compare(query, privacy, mechanisms=names, progress=False)
    assert found.names[:2] == ["discrete_laplace", "discrete_gaussian"]
    assert found.best is found["discrete_laplace"] and found.table["ratio"][0] == 1
    assert found.continuous == ["truncated_laplace", "laplace", "gaussian"]
    ahead = found.table.set_index("mechanism").loc["truncated_laplace"]
    assert ahead["ratio"] < 1 and ahead["assumes"] == "answers need not be whole"
    assert all(claim.holds for claim in found.agreements())
    found.report(tmp_path / "page.html")
    assert "best of 2 on whole numbers" in (tmp_path / "page.html").read_text()
    by_error = found.table.sort_values("error", ignore_index=True)
    doctored = dataclasses.replace(found, table=by_error)
    assert not all(claim.holds for claim in doctored.agreements())
    anything = md.compare(md.NumericQuery(), privacy, mechanisms=names[:3], progress=False)
    assert anything.continuous == [] and anything.names[0] == "truncated_laplace"


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


def test_places():
    found = places()
    assert found.names[0] == "optimal channel" and found.table["ratio"].min() >= 1
    for name in found.names:
        assert found[name].certificate.verify(), name
        assert found[name].mechanism.metric_loss() <= 1 * (1 + 1e-12)
    assert "clustered" in found.refused["clustered response"]
    dense = found["exponential mechanism"].mechanism.matrix
    wanted = float((dense * md.MetricSpace.grid(2, 3).distances).mean(axis=0).sum())
    assert found["exponential mechanism"].value == pytest.approx(wanted)


def test_a_limit_for_all_is_shared():
    """`total_time_limit` is for all mechanisms together: what it leaves no time for says so."""
    names = ["laplace", "gaussian"]
    found = md.compare(COUNTS, PRIVACY, mechanisms=names, total_time_limit=1e3)
    assert found.names == [name for name in counts().names if name in names]
    with pytest.raises(md.InfeasibleError, match="not tried: the limit of 1e-09 s for all was over"):
        md.compare(COUNTS, PRIVACY, mechanisms=names, total_time_limit=1e-9)
    with pytest.raises(md.DesignError, match="total_time_limit = 0"):
        md.compare(COUNTS, PRIVACY, total_time_limit=0)


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


@pytest.mark.parametrize(
    "made",
    [
        lambda: md.calibrate("gaussian", **TIGHT | {"sensitivity": 3.0}, rounds=2),
        lambda: md.NoiseAllocation("gaussian", [2, 2, 3], PRIVACY).solve(),
        lambda: md.CountsGaussian(3, 3, PRIVACY, most=2, signed=True).solve(),
    ],
)
def test_results_for_a_harder_question_are_welcome(made):
    result = made()
    found = md.compare(Q3, PRIVACY, mechanisms=["gaussian"], also={"w": result})
    assert found["w"] is result and md.accuracy(result, Q3, PRIVACY) == found.accuracy["w"]


def test_rows_stand_in_the_order_of_the_questions_loss():
    """At δ = .08 Laplace noise has less mean absolute error, and Gaussian noise less variance."""
    for loss, first in (("absolute", "laplace"), ("squared", "gaussian")):
        names, privacy = ["gaussian", "laplace"], md.ApproximateDP(1, 0.08)
        found = md.compare(md.NumericQuery(loss=loss), privacy, mechanisms=names, progress=False)
        assert found.names[0] == first and found.best is found[first]


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
    ("call", "word"),
    [
        (lambda: md.compare(3, md.PureDP(1)), "question = 3"),
        (lambda: md.compare(COUNTS, md.PureDP(1), alpha=1), "alpha = 1"),
        (lambda: md.compare(md.MetricSpace.grid(2, 2)), "alpha = None"),
        (lambda: md.compare(COUNTS, PRIVACY, mechanisms=["x"]), "mechanisms = 'x'"),
        (lambda: md.compare(COUNTS, PRIVACY, mechanisms="laplace"), "mechanisms = 'laplace'"),
        (lambda: md.compare(COUNTS, PRIVACY, mechanisms=["laplace"], jobs=0), "jobs = 0"),
        (lambda: md.compare(COUNTS, PRIVACY, mechanisms=["laplace"], also={"a": 3}), "also['a'] = 3"),
        (lambda: md.accuracy("nonesuch", COUNTS, PRIVACY), "mechanism = 'nonesuch'"),
        (lambda: md.least_epsilon("laplace", COUNTS, error=0), "error = 0"),
        (lambda: md.NumericQuery(loss="cubic"), "loss = 'cubic'"),
        (lambda: md.MetricReport(3), "space = 3"),
        (lambda: md.LocalReport(loss=np.sin), "not convex"),
        (lambda: md.LocalReport(input_range=(0, 1e-300)), "at least 1e-140 wide"),
        (lambda: md.NumericQuery(sensitivity=0.5, integer=True), "whole numbers change by 1 at least"),
    ],
)
def test_bad_input(call, word):
    with pytest.raises(md.DesignError) as caught:
        call()
    assert word in str(caught.value) and "\n" not in str(caught.value)


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


def test_the_least_epsilon_next_to_the_least_that_is_tried() -> None:
    """Between the last two steps down there is a root, too: it was taken for the last step, 7 times as much."""
    question = md.CategoryReport(categories=5)
    found = md.least_epsilon("k-ary response", question, error=300.0)
    assert found == pytest.approx(0.0066535, rel=1e-3)

"""Comparisons: every mechanism tried, ranked rightly, refusals with reasons, and the ways out."""

import dataclasses
import functools
import json
import math
import pickle
import time

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign import extend
from mechdesign.choose import comparing
from mechdesign.choose.candidates import candidates
from mechdesign.choose.comparing import _Try

COUNTS = md.NumericQuery(dimension=20, sensitivity=md.Sensitivity(linf=1, l0=3))
PRIVACY = md.ApproximateDP(1, 1e-6)
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


ALL = [counts, places, reports]


@pytest.mark.slow
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
    # the law is that of three coordinates which all move
    three = md.noise.AdditiveNoise(noise.law, 1.0, 3)
    assert three.delta_interval(1.0).lower <= PRIVACY.delta
    wider = md.NumericQuery(20, md.Sensitivity(linf=1, l0=4))
    with pytest.raises(md.DesignError, match="does not cover"):
        md.compare(wider, PRIVACY, mechanisms=["gaussian"], also={"mine": found})
    narrower = md.NumericQuery(20, md.Sensitivity(linf=1, l0=2))
    assert "mine" in md.compare(narrower, PRIVACY, mechanisms=["gaussian"], also={"mine": found}).names


@pytest.mark.slow
@pytest.mark.parametrize("privacy", [PRIVACY, md.PureDP(1), md.ApproximateDP(9, 1e-4)], ids=str)
def test_optimal_noise_is_never_behind_a_named_family(privacy):
    names = ["staircase", "truncated_laplace", "laplace", "optimal noise"]
    if isinstance(privacy, md.PureDP):
        names.remove("truncated_laplace")
    found = md.compare(md.NumericQuery(), privacy, mechanisms=names)
    assert found.names[0] == "optimal noise"
    assert found.least == found["optimal noise"].lower_bound <= found.best.value
    assert found.best.certificate.verify() and found.best.checks()["holds"].all()
    assert found.accuracy["optimal noise"].standard_deviation == pytest.approx(math.sqrt(found.best.value))


def test_a_search_cut_short_says_so(monkeypatch):
    monkeypatch.setattr("mechdesign.choose.candidates._SECONDS", 0.02)
    found = md.compare(
        md.NumericQuery(5), md.ApproximateDP(2, 1e-3), mechanisms=["gaussian", "gennorm", "optimal noise"]
    )
    note = found.table.set_index("mechanism").loc["optimal noise", "note"]
    assert "time limit came before the search ended" in note
    assert found.names[0] == "optimal noise" and found.best.value <= found["gennorm"].value


@pytest.mark.parametrize(
    ("question", "privacy", "reason"),
    [
        (md.NumericQuery(2, md.Sensitivity(each=[1, 2])), PRIVACY, r"Sensitivity\(linf=a, l0=c\)"),
        (md.NumericQuery(2, md.Sensitivity(l1=1)), PRIVACY, r"Sensitivity\(linf=a, l0=c\)"),
        (md.NumericQuery(2, rounds=3), PRIVACY, "rounds times the dimension"),
        (md.NumericQuery(2, sampling_rate=0.1), PRIVACY, "not sampled"),
        (md.NumericQuery(2), md.ZeroConcentratedDP(1), "pure and approximate"),
    ],
)
def test_optimal_noise_says_what_it_cannot_do(question, privacy, reason):
    with pytest.raises(md.InfeasibleError, match=reason):
        md.compare(question, privacy, mechanisms=["optimal noise"])


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


@pytest.mark.parametrize(
    ("sensitivity", "dimension", "reason"),
    [
        (md.Sensitivity(l2=1), 3, "independent gaussian noise is the optimum"),
        (md.Sensitivity(each=range(1, 31)), 30, "allocated gaussian noise is the least Gaussian noise"),
        (md.Sensitivity(each=[1, 2, 3], l2=2), 3, "no list of corners"),
        (md.Sensitivity(linf=1), 701, "more than 700"),
    ],
)
def test_correlated_noise_says_why_not(sensitivity, dimension, reason):
    with pytest.raises(md.InfeasibleError, match=reason):
        md.compare(md.NumericQuery(dimension, sensitivity), PRIVACY, mechanisms=["correlated gaussian"])


def test_one_number_has_a_proved_least():
    found = md.compare(md.NumericQuery(), md.PureDP(1), mechanisms=["laplace", "staircase", "optimal noise"])
    assert found.least == found["optimal noise"].lower_bound
    assert found.least <= found["staircase"].mechanism.variance  # the known optimum
    assert found.table["ratio"].min() >= 1
    absolute = md.compare(
        md.NumericQuery(loss="absolute"), md.PureDP(1), mechanisms=["laplace", "optimal noise"]
    )
    assert absolute["laplace"].value == pytest.approx(1.0) and absolute.least < 0.97
    # whole numbers need not be protected from changes in between: no bound for them
    counted = md.compare(
        md.NumericQuery(integer=True), md.PureDP(1), mechanisms=["discrete_laplace", "optimal noise"]
    )
    assert counted.least is None
    # as is said, where discrete Laplace noise, which is additive, has less variance
    alone = counted["optimal noise"]
    assert alone.value > counted["discrete_laplace"].value
    assert "no additive noise for a real-valued query does better" in alone.status_words
    assert str(alone.among) == "every additive noise for a real-valued query"


def test_noise_drawn_together_for_counts_is_not_hidden_behind_whole_noise(tmp_path):
    """Whole-number noise on eight counts has four times the variance of noise that is drawn together, whose answers may be rounded."""
    names = ["laplace", "discrete_laplace", "k-norm"]
    found = md.compare(md.NumericQuery(8, 1, integer=True), md.PureDP(1), mechanisms=names, progress=False)
    assert found.names == ["k-norm", "discrete_laplace", "laplace"] and found.best is found["k-norm"]
    assert "over 5% more error than rounded answers of k-norm" in str(found) and "best found, k-norm" in str(
        found
    )
    assert all(claim.holds for claim in found.agreements())
    found.save(tmp_path / "c.json")
    text = (tmp_path / "c.json").read_text()
    assert all(claim.holds for claim in md.load(tmp_path / "c.json").agreements()) and "k-norm" in text


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
    assert "whole-number noise, then continuous noise (truncated_laplace" in str(found)
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
    finer = md.OptimalQuantizer(md.Alphabet(2.0, 0.02), md.PureDP(2), stats.uniform(-1, 2)).solve()
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
    matrix, distances = found["exponential mechanism"].mechanism.matrix, md.MetricSpace.grid(2, 3).distances
    assert found["exponential mechanism"].value == pytest.approx(
        float((matrix * distances).mean(axis=0).sum())
    )


@pytest.mark.slow
@pytest.mark.parametrize("made", ALL)
def test_ways_out(made, tmp_path):
    found = made()
    assert str(found.names[0]) in str(found) and "ratio" in str(found)
    assert found.best is found[found.names[0]] and list(found.accuracy) == found.names
    path = tmp_path / "page.html"
    found.report(path)
    text = path.read_text()
    assert text == found.to_html() and len(text) < 500_000
    for name in (*found.names, *found.refused):
        assert name in text
    found.save(tmp_path / "it.json")
    again = md.load(tmp_path / "it.json")
    assert str(again) == str(found) and again.table.equals(found.table)
    assert again.best.certificate.verify()
    assert "\\begin{tabular}" in found.to_latex() and found.names[0] in found.to_markdown()
    assert found.figure().axes and found.plot().axes
    assert "<table" in found._repr_html_()


def test_what_workers_are_sent_gives_the_same():
    work = pickle.loads(pickle.dumps(_Try(COUNTS, PRIVACY)))
    row, result = work("gaussian")
    kept = {k: v for k, v in row.items() if k != "seconds"}
    table = counts().table.set_index("mechanism", drop=False)
    assert all(table.loc["gaussian", k] == v or v != v for k, v in kept.items())
    assert pickle.loads(pickle.dumps(result)).certificate.verify()


def test_what_is_late_says_so():
    with pytest.raises(md.InfeasibleError, match="RQM: no answer in 1e-06 s"):
        md.compare(md.LocalReport(2), md.PureDP(1), mechanisms=["RQM"], time_limit=1e-6)
    found = md.compare(COUNTS, PRIVACY, mechanisms=["laplace", "gaussian"], time_limit=1e3)
    assert not found.table["note"].str.contains("limit").any()


@pytest.mark.slow
def test_a_thousand_places_keep_the_limit():
    """Was: 95 s at a limit of 3: what makes a table private exactly, and what looks for pairs with nothing between, had no clock."""
    places = md.MetricSpace.euclidean(np.random.default_rng(0).uniform(0, 30, (1000, 2)))
    began = time.process_time()
    with pytest.raises(md.InfeasibleError, match="exponential mechanism: no answer in 1 s") as refused:
        md.compare(md.MetricReport(places), alpha=1.0, time_limit=1.0)
    assert (
        time.process_time() - began < 15
    )  # five mechanisms, and steps of up to a second that do not look at it
    assert "optimal channel: no answer in 1 s" in str(refused.value)


def test_a_limit_for_all_is_shared():
    """Was: twelve mechanisms took up to twelve times the limit."""
    names = ["laplace", "gaussian"]
    found = md.compare(COUNTS, PRIVACY, mechanisms=names, total_time_limit=1e3)
    assert found.names == [name for name in counts().names if name in names]
    with pytest.raises(md.InfeasibleError, match="not tried: the limit of 1e-09 s for all was over"):
        md.compare(COUNTS, PRIVACY, mechanisms=names, total_time_limit=1e-9)
    with pytest.raises(md.DesignError, match="total_time_limit = 0"):
        md.compare(COUNTS, PRIVACY, total_time_limit=0)


def test_each_has_its_share_of_what_is_left(monkeypatch):
    """Four in turn of 10 seconds, and one share for the bound: 2 s at first; what is not used goes to the others."""
    given = []

    def noted(name, question, privacy, deadline, others):
        given.append((name, deadline.seconds))
        if name != "gaussian":
            raise md.SolverError("nothing", solver=name, status="limit")
        return md.calibrate(
            "gaussian", privacy=privacy, sensitivity=question.sensitivity, dimension=question.dimension
        )

    monkeypatch.setattr(comparing, "solved", noted)
    names = ["optimal noise", "laplace", "gaussian", "staircase"]
    md.compare(COUNTS, PRIVACY, mechanisms=names, total_time_limit=1000.0)
    assert given[-1][0] == "optimal noise"  # it begins where the others end
    assert [seconds for _, seconds in given] == pytest.approx([200.0, 250.0, 1000 / 3, 500.0], rel=0.02)
    given.clear()
    md.compare(COUNTS, PRIVACY, mechanisms=names, total_time_limit=1000.0, time_limit=30.0)
    assert [seconds for _, seconds in given] == [30.0] * 4


def test_ones_own_results():
    mine = md.calibrate("laplace", privacy=md.PureDP(1), sensitivity=1)
    found = md.compare(md.NumericQuery(), md.PureDP(1), mechanisms=["staircase"], also={"mine": mine})
    assert found.names == ["staircase", "mine"] and found["mine"] is mine
    with pytest.raises(md.DesignError, match="is not the privacy"):
        md.compare(md.NumericQuery(), md.PureDP(2), mechanisms=["staircase"], also={"mine": mine})


Q3 = md.NumericQuery(dimension=3, sensitivity=2.0)
TIGHT = {"privacy": PRIVACY, "sensitivity": 2.0, "dimension": 3}
OTHERS = {
    "less sensitive": (Q3, lambda: md.calibrate("gaussian", **TIGHT | {"sensitivity": 1e-3}), "sensitivity"),
    "fewer numbers": (
        Q3,
        lambda: md.calibrate("gaussian", privacy=PRIVACY, sensitivity=2.0),
        "dimension = 1",
    ),
    "fewer rounds": (
        md.NumericQuery(dimension=3, sensitivity=2.0, rounds=10),
        lambda: md.calibrate("gaussian", **TIGHT),
        "rounds = 1",
    ),
    "sampled": (Q3, lambda: md.calibrate("gaussian", **TIGHT, sampling_rate=0.1), "sampling_rate = 0.1"),
    "fewer change": (
        Q3,
        lambda: md.calibrate("gaussian", **TIGHT | {"sensitivity": md.Sensitivity(linf=2, l0=1)}),
        "sensitivity",
    ),
    "one alone": (Q3, lambda: md.OptimalNoise(PRIVACY, 2.0, "squared").solve(gap=0.5), "dimension = 1"),
    "small profile": (
        Q3,
        lambda: md.NoiseAllocation("gaussian", [2, 2, 0.1], PRIVACY).solve(),
        "sensitivity",
    ),
    "counts": (Q3, lambda: md.CountsGaussian(3, 3, PRIVACY, most=2, signed=False).solve(), "sensitivity"),
    "few vectors": (Q3, lambda: md.CorrelatedGaussian(2 * np.eye(3), PRIVACY).solve(), "sensitivity"),
    "discrete": (Q3, lambda: md.calibrate("discrete_gaussian", **TIGHT), "integer"),
    "a report": (
        md.NumericQuery(),
        lambda: md.MetricChannel(md.MetricSpace.grid(2, 2), 1).solve(),
        "must be noise",
    ),
    "noise": (
        md.LocalReport(),
        lambda: md.calibrate("laplace", privacy=md.PureDP(1), sensitivity=1),
        "must be an unbiased quantizer",
    ),
    "more bits": (
        md.LocalReport(bits=1),
        lambda: md.RQM(4, md.PureDP(1), stats.uniform(-1, 2)).solve(),
        "bins = 4",
    ),
    "narrow": (
        md.LocalReport(bits=2, input_range=(-2, 2)),
        lambda: md.RQM(4, md.PureDP(1), stats.uniform(-1, 2)).solve(),
        "input_range",
    ),
    "another space": (
        md.MetricReport(md.MetricSpace.grid(2, 3)),
        lambda: md.MetricChannel(md.MetricSpace.grid(2, 2), 1).solve(),
        "space",
    ),
    "another prior": (
        md.MetricReport(md.MetricSpace.grid(1, 2), [0.9, 0.1]),
        lambda: md.MetricChannel(md.MetricSpace.grid(1, 2), 1).solve(),
        "prior",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_results_for_another_question_are_refused(name):
    """Noise for a sensitivity of 0.001 was ranked first for a question of 2.0, in ten rounds, as "proved"."""
    question, made, word = OTHERS[name]
    result = made()
    with pytest.raises(md.DesignError, match=word):
        md.accuracy(result, question)
    held = getattr(result.design, "privacy", None)
    if isinstance(question, md.NumericQuery) and not isinstance(held, md.MetricDP):
        with pytest.raises(md.DesignError, match=word):
            md.compare(question, held, mechanisms=["laplace"], also={"w": result})
    with pytest.raises(md.DesignError, match="is not the privacy"):
        md.accuracy(result, privacy=md.PureDP(3))


@pytest.mark.parametrize(
    "made",
    [
        lambda: md.calibrate("gaussian", **TIGHT | {"sensitivity": 3.0}, rounds=2),
        lambda: md.calibrate("gaussian", **TIGHT | {"sensitivity": md.Sensitivity(l2=4)}),
        lambda: md.NoiseAllocation("gaussian", [2, 2, 3], PRIVACY).solve(),
        lambda: md.CountsGaussian(3, 3, PRIVACY, most=2, signed=True).solve(),
        lambda: md.CorrelatedGaussian(
            [[2, 2, 2], [2, 2, -2], [2, -2, 2], [-2, 2, 2], [1, 0, 0]], PRIVACY
        ).solve(),
    ],
)
def test_results_for_a_harder_question_are_welcome(made):
    result = made()
    found = md.compare(Q3, PRIVACY, mechanisms=["gaussian"], also={"w": result})
    assert "w" in found.names and md.accuracy(result, Q3, PRIVACY) == found.accuracy["w"]


def test_what_was_solved_for_another_loss_is_ranked_by_the_questions():
    """Mean absolute errors stood in one column with mean squares."""
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


def test_allocation_where_each_coordinate_has_its_bound():
    query = md.NumericQuery(dimension=3, sensitivity=md.Sensitivity(each=[1, 2, 8]))
    found = md.compare(query, md.PureDP(1), mechanisms=["laplace", "allocated laplace"])
    assert found.names == ["allocated laplace", "laplace"]
    direct = md.NoiseAllocation("laplace", [1, 2, 8], md.PureDP(1)).solve()
    assert found.table["error"][0] == pytest.approx(direct.mechanism.mse / 3)
    assert found.accuracy["allocated laplace"].standard_deviation == pytest.approx(
        math.sqrt(direct.mechanism.mse / 3)
    )


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
    wide = md.least_epsilon("laplace", md.NumericQuery(), error=5000.0)
    assert wide == pytest.approx(math.sqrt(2) / 5000, rel=2e-4)
    with pytest.raises(md.InfeasibleError, match="no epsilon up to 1000"):
        md.least_epsilon("laplace", md.NumericQuery(), error=1e-9)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: md.compare(3, md.PureDP(1)), "question = 3"),
        (lambda: md.compare(COUNTS), "privacy = None"),
        (lambda: md.compare(COUNTS, md.PureDP(1), alpha=1), "alpha = 1"),
        (lambda: md.compare(md.MetricSpace.grid(2, 2)), "alpha = None"),
        (lambda: md.compare(md.MetricSpace.grid(2, 2), alpha=-1), "alpha = -1"),
        (lambda: md.compare(md.MetricSpace.grid(2, 2), md.PureDP(1)), "privacy"),
        (lambda: md.compare(md.LocalReport(), md.ApproximateDP(1, 1e-6)), "must be a PureDP"),
        (lambda: md.compare(COUNTS, PRIVACY, mechanisms=["x"]), "mechanisms = 'x'"),
        (lambda: md.compare(COUNTS, PRIVACY, mechanisms="laplace"), "mechanisms = 'laplace'"),
        (lambda: md.compare(COUNTS, PRIVACY, mechanisms=["laplace"], jobs=0), "jobs = 0"),
        (lambda: md.compare(COUNTS, PRIVACY, mechanisms=["laplace"], progress=2), "progress = 2"),
        (lambda: md.compare(COUNTS, PRIVACY, mechanisms=["laplace"], time_limit=0), "time_limit = 0"),
        (lambda: md.compare(COUNTS, PRIVACY, mechanisms=["laplace"], also={"a": 3}), "also['a'] = 3"),
        (lambda: md.compare(COUNTS, PRIVACY, mechanisms=["laplace"], also=3), "also = 3"),
        (lambda: md.accuracy("laplace"), "mechanism = 'laplace'"),
        (lambda: md.accuracy("nonesuch", COUNTS, PRIVACY), "mechanism = 'nonesuch'"),
        (lambda: md.accuracy("laplace", 3, PRIVACY), "question = 3"),
        (lambda: md.least_epsilon("laplace", COUNTS, error=0), "error = 0"),
        (lambda: md.least_epsilon("laplace", COUNTS, error=1, measure="x"), "measure = 'x'"),
        (lambda: md.NumericQuery(dimension=0), "dimension = 0"),
        (lambda: md.NumericQuery(sensitivity=-1), "sensitivity = -1"),
        (lambda: md.NumericQuery(loss="cubic"), "loss = 'cubic'"),
        (lambda: md.NumericQuery(sampling_rate=0), "sampling_rate = 0"),
        (lambda: md.NumericQuery(integer="x"), "integer = 'x'"),
        (lambda: md.LocalReport(bits=0), "bits = 0"),
        (lambda: md.LocalReport(input_range=(1, 0)), "input_range = (1, 0)"),
        (lambda: md.LocalReport(prior=3), "prior = 3"),
        (lambda: md.MetricReport(3), "space = 3"),
    ],
)
def test_bad_input(call, word):
    with pytest.raises(md.DesignError) as caught:
        call()
    assert word in str(caught.value) and "\n" not in str(caught.value)


def test_every_candidate_has_a_name_of_its_own():
    for question in (COUNTS, md.LocalReport(), md.MetricReport(md.MetricSpace.grid(2, 2))):
        assert len(candidates(question)) >= 6
    assert json.dumps(list(candidates(COUNTS)))


@pytest.mark.slow
def test_the_best_of_a_comparison_can_be_released():
    names = ["k-norm", "laplace"]
    found = md.compare(md.NumericQuery(dimension=4), md.PureDP(1.0), mechanisms=names, progress=False)
    assert found.names == names and found.best is found["k-norm"]
    assert found.best.mechanism.release(np.zeros(4)).shape == (4,)
    ball = md.NumericQuery(dimension=4, sensitivity=md.Sensitivity(l2=1.0))
    found = md.compare(ball, md.PureDP(1.0), mechanisms=names, progress=False)
    assert found.names == names and found["k-norm"].mechanism.norm == 2 and found.best is found["k-norm"]
    assert found.best.mechanism.release(np.zeros(4)).shape == (4,)
    assert "K-norm is best of 2" in found.to_html()


@pytest.mark.parametrize(
    ("designs", "note"),
    [
        (lambda q, privacy: md.noise.KNorm(1, privacy), "dimension"),
        (lambda q, privacy: md.noise.KNorm(3, privacy, 0.5), "sensitivity"),
        (lambda q, privacy: md.noise.KNorm(3, md.PureDP(2.0)), "privacy"),
    ],
)
def test_a_registered_mechanism_is_held_to_the_question(designs, note):
    """It was ranked first, as "ε = 1: proved", whatever it protected."""
    md.choose.register("careless", md.NumericQuery, designs)
    try:
        found = md.compare(
            md.NumericQuery(dimension=3), md.PureDP(1.0), mechanisms=["laplace", "careless"], progress=False
        )
    finally:
        candidates(md.NumericQuery()).pop("careless")
    assert found.names == ["laplace"] and note in found.refused["careless"]


def test_a_design_without_an_answer_does_not_hide_the_others():
    """Was: "not OPTM: Theorem 5 is infeasible … for these bins", of the first of two alphabets that it tries."""
    found = md.compare(md.LocalReport(bits=2), md.PureDP(0.3), mechanisms=["RQM", "OPTM"], progress=False)
    assert set(found.names) == {"RQM", "OPTM"}


def test_optm_is_tried_on_the_best_outputs_that_mirror():
    """On outputs searched without mirroring its families have .8915."""
    question = md.LocalReport(bits=2, prior=stats.uniform(-1, 2))
    result = md.compare(question, md.PureDP(2), mechanisms=["OPTM"], progress=False)["OPTM"]
    assert result.value <= 0.8893
    extend.register("none", md.NumericQuery, lambda q, privacy: ())
    try:
        found = md.compare(md.NumericQuery(), md.PureDP(1.0), mechanisms=["laplace", "none"], progress=False)
        assert found.refused["none"] == "there is no design"
    finally:
        candidates(md.NumericQuery()).pop("none")

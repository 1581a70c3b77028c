"""OPTM, its searches, RQM, ERM and MVU as designs: published numbers, certificates, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from independent import check_selection_law
from scipy import stats

import mechdesign as md
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.serialize import dumps
from mechdesign.quantizers.families import SelectionFamilies
from mechdesign.quantizers.mechanism import Quantizer
from mechdesign.quantizers.optm import OPTMSearch
from mechdesign.verifier.verify import verify

UNIFORM = stats.uniform(-1, 2)
POINTS = np.linspace(-1, 1, 51)


@pytest.mark.parametrize(
    ("epsilon", "bins", "fifty_one", "exact"),
    [
        (0.5, [-6, -0.4, 0.4, 6], 3.9041, 3.8978),
        (1.0, [-3, -0.5, 0.5, 3], 1.8818, 1.8785),
        (1.5, [-3, -0.5, 0.5, 3], 1.1794, 1.1737),
    ],
)
def test_published_rows(epsilon: float, bins: list[float], fifty_one: float, exact: float) -> None:
    """51-point means to ±0.0005, exact means to 1e-4, certified loss within the budget exactly."""
    result = md.OPTM(bins=bins, privacy=md.PureDP(epsilon), prior=UNIFORM).solve("highs")
    assert result.mechanism.loss_at(POINTS).mean() == pytest.approx(fifty_one, abs=5e-4)
    assert result.value == pytest.approx(exact, abs=1e-4)
    assert result.mechanism.privacy_loss() <= epsilon and result.certificate.verify()
    assert check_selection_law(result.mechanism.law, exp_lower(epsilon))
    floats = md.OPTM(bins=bins, privacy=md.PureDP(epsilon), prior=UNIFORM).solve("highs", certify=False)
    assert floats.mechanism.privacy_loss() == pytest.approx(epsilon, abs=1e-4)
    assert result.value <= floats.value * (1 + 1e-9)


def test_program_objective_bounds_the_loss_and_its_bilinear_form_is_exact() -> None:
    rng = np.random.default_rng(1)
    for loss in ("absolute", "squared"):
        for prior in (UNIFORM, md.clipped(stats.norm(0.5, 0.4), -1, 1), np.array([-1, -0.5, 0.2, 0.5, 1.0])):
            design = md.OPTM([-2, -0.5, 0.5, 2.5], md.PureDP(1.0), prior, loss, input_range=(-1, 1))
            table = np.tril(rng.uniform(0.1, 1, (3, 3)))
            table /= table.sum(axis=1, keepdims=True)
            mechanism = md.Quantizer.from_selection(design.bins, table, table, (-1, 1))
            problem = design.problem()
            Q = problem.unknown
            Q.value = q = np.concatenate([table, table])[: Q.shape[0]]
            exact = mechanism.expected_loss(prior, loss)
            assert Q.expected(q[None], problem.prior, problem.loss)[0] == pytest.approx(exact, rel=1e-12)
            assert problem.objective.value >= exact - 1e-12


@pytest.mark.slow
def test_theorem_5_with_more_bins_and_theorem_6() -> None:
    """Successive linearisation improves on its start; the compact program gives § 3's 3.73 and 0.508."""
    bins, privacy = np.linspace(-2, 2, 8), md.PureDP(2.0)
    start = (
        md.RQM(8, privacy, UNIFORM, grid=md.Grid(delta=[1.0], q=np.linspace(0.05, 0.9, 18)))
        .solve(zoom=0)
        .mechanism
    )
    result = md.OPTM(bins, privacy, UNIFORM).solve(start=start)
    assert (
        result.value <= start.expected_loss(UNIFORM) * (1 + 1e-9) and result.mechanism.privacy_loss() <= 2.0
    )
    sixteen = md.OPTM(np.linspace(-2, 2, 16), md.PureDP(5.0), UNIFORM, constraints="theorem6").solve()
    assert sixteen.value == pytest.approx(0.508, abs=2e-3)
    assert sixteen.mechanism.privacy_loss() == pytest.approx(3.73, abs=1e-2)


@pytest.mark.parametrize("outer", [1.51, 3.0, 30.0])
@pytest.mark.parametrize("epsilon", [1.0, 2.0, 20.0])
def test_theorem_6_contradicts_itself_at_every_epsilon_where_the_outer_bins_are_far(
    outer: float, epsilon: float
) -> None:
    """With m = 4 its order asks for (B_4 - B_3) / (B_4 - B_2) <= q_2(1) <= 1/2."""
    with pytest.raises(md.InfeasibleError, match="infeasible at every epsilon") as caught:
        md.OPTM([-outer, -0.5, 0.5, outer], md.PureDP(epsilon), UNIFORM, constraints="theorem6").solve()
    assert caught.value.smallest_epsilon is None and "log 3" not in str(caught.value)


@pytest.mark.slow
def test_table_2_as_its_authors_solved_it() -> None:
    """The print (1.778, 1.836, 1.972, from 1,000 samples each) by the authors' program, and ours below it."""
    steps = np.arange(1, 20) / 20
    grids = {
        "bins": md.Grid(delta=[3], left=[-0.2, 0.2], right=[0.6]),
        "levels": md.Grid(level=steps, level_right=steps, width=[0.01]),
    }
    for sigma, exact, epsilon, left in (
        (0.1, 1.7740, 1.0, 0.2),
        (0.2, 1.8386, 1.0, 0.2),
        (0.3, 1.9693, 0.984, -0.2),
    ):
        prior = md.clipped(stats.norm(0.5, sigma), -1, 1)
        options = {**grids, "families": "separate"}
        authors = OPTMSearch(
            md.PureDP(1.0), prior, constraints="across-outputs", judge="objective", **options
        ).solve()
        assert authors.value == pytest.approx(
            exact, abs=1e-4
        ) and authors.mechanism.privacy_loss() == pytest.approx(epsilon, abs=5e-4)
        assert authors.mechanism.bins.tolist() == [-4.0, left, 0.6, 4.0]
        per_output = OPTMSearch(md.PureDP(1.0), prior, **options).solve()
        assert per_output.value < authors.value and per_output.mechanism.privacy_loss() <= 1.0


GOOD = {"bins": [-3, -0.5, 0.5, 3], "privacy": md.PureDP(1.0), "prior": UNIFORM}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bins": [-0.9, 0.5, 3]}, "cover the input range"),
        (
            {"bins": [-4, 0.2, 0.6, 4], "constraints": "theorem6"},
            "Theorem 6 needs bins and range that mirror",
        ),
        ({"bins": [-4, 0.2, 0.6, 4], "families": "symmetric"}, "mirror about 0"),
        ({"input_range": (-0.5, 0.5)}, "mass outside the input range"),
        ({"privacy": md.ApproximateDP(1.0, 0.1)}, "must be a PureDP"),
        ({"bounds": (np.full((3, 3), 0.5), np.full((3, 3), 0.2))}, "need 0 <= o <= u"),
        ({"bounds": (np.zeros((2, 2)), np.ones((2, 2)))}, "shapes"),
    ],
)
def test_bad_designs(change, message: str) -> None:
    with pytest.raises(md.DesignError, match=message):
        md.OPTM(**{**GOOD, **change})


@pytest.mark.parametrize(
    "bins", [[-3, -0.5, 0.5, 3], [-3, -1.2, 0.1, 0.7, 3.5], [-1, -0.3, 0, 0.3, 1], [-2, 2]]
)
def test_probability_of_an_output_is_bounded_whatever_the_selection_is(bins: list[float]) -> None:
    """At any input and at each; exact inside the range where no bin is likelier elsewhere than at itself, and at two bins."""
    Q, draws = md.Selection(bins, (-1, 1)), np.random.default_rng(7)
    m, x = len(bins), np.append(np.linspace(-1, 1, 81), np.clip(bins, -1, 1))
    for k in range(20):
        q = draws.random(Q.shape) ** 3 * Q.open
        if k == 0:  # every bin likeliest at itself
            q = np.tile(np.eye(m - 1), (len(q) // (m - 1), 1)) + 1e-3 * Q.open
        q /= q.sum(axis=1, keepdims=True)
        Q.save_value(q)
        families = SelectionFamilies(np.array(bins, float), q[: m - 1], q[-(m - 1) :])
        sent = Quantizer.of_selection(families, Q.input_range).probabilities(x)
        most = np.concatenate(families.segments(Q.input_range)[1:]).max(axis=0)  # limits from both sides
        for y in range(m):
            assert Q.probability(y).value >= most[y] - 1e-12
            at = np.array([Q.probability(y, place).value for place in x[::8]])
            assert (at >= sent[::8, y] - 1e-12).all() and at.max() <= Q.probability(y).value + 1e-12
            if m == 2 or (k == 0 and -1 <= bins[y] <= 1):
                assert Q.probability(y).value == pytest.approx(most[y])


def test_a_cap_on_an_output_is_met_and_proved() -> None:
    problem = md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.0), UNIFORM).problem()
    Q = problem.unknown
    for output, most in ((1, 0.25), (0, 0.5)):
        result = problem.subject_to(md.named("cap", Q.probability(output) <= most)).solve()
        assert result.mechanism.probabilities(np.linspace(-1, 1, 401))[:, output].max() == pytest.approx(most)
        assert all(holds for *_, holds in verify(dumps(result)).rows) and result.certificate.verify()
    for wrong in (lambda: Q.probability(4), lambda: Q.probability(0, 1.1), lambda: Q.probability(1.5)):
        with pytest.raises(md.DesignError, match=r"output|x ="):
            wrong()
    with pytest.raises(md.DesignError, match="not convex"):  # nothing bounds it from below
        problem.subject_to(Q.probability(1) >= 0.2)


def test_bad_solver_and_start() -> None:
    with pytest.raises(md.DesignError, match="solver = 'simplex3000'"):
        md.OPTM(**GOOD).solve("simplex3000")
    wrong = md.Quantizer.rqm(np.linspace(-2, 2, 8), 0.9, (-1, 1))
    with pytest.raises(md.DesignError, match="exceeds the budget"):
        md.OPTM(np.linspace(-2, 2, 8), md.PureDP(0.5), UNIFORM).solve(start=wrong)
    fitting = md.Quantizer.rqm(np.linspace(-2, 2, 4), 0.3, (-1, 1))
    with pytest.raises(md.DesignError, match=r"start = .*boxes are all searched"):
        md.OPTM(np.linspace(-2, 2, 4), md.PureDP(3.0), UNIFORM).solve("boxes", start=fitting)


def test_explicit_bounds_and_other_solvers_agree() -> None:
    low, high = np.zeros((3, 3)), np.tril(np.ones((3, 3)))
    low[1, :2], high[1, :2] = [0.67, 0.32], [0.68, 0.33]
    values = {
        s: md.OPTM(**GOOD, bounds=(low, high)).solve(s).value for s in ("highs", "highs-ipm", "clarabel")
    }
    assert max(values.values()) - min(values.values()) < 1e-7
    assert values["highs"] == pytest.approx(md.OPTM(**GOOD).solve().value, rel=1e-9)


@pytest.mark.parametrize("inner", [(-0.99, 0.7), (-0.9858766581691855, 0.6873501583617978)])
def test_a_bounded_program_that_simplex_calls_unbounded_is_answered(inner) -> None:
    """At ε = 36 alone, between 30 and 40 that were answered."""
    bins = [-1.001, *inner, 1.001]
    values = [md.OPTM(bins, md.PureDP(e), stats.uniform(-1, 2)).solve() for e in (30.0, 36.0)]
    assert values[1].certificate.verify() and values[1].value == pytest.approx(values[0].value, rel=1e-4)

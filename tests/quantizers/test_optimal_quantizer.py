"""The optimal quantizer: published and reference numbers, every option, every refusal."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.typing import Status

UNIFORM = stats.uniform(-1, 2)
BINS = [-3.0, -0.5, 0.5, 3.0]


def design(**changes) -> md.OptimalQuantizer:
    return md.OptimalQuantizer(**{"bins": BINS, "privacy": md.PureDP(1.0), "prior": UNIFORM, **changes})


# -- numbers ------------------------------------------------------------------------------------------------

REFERENCE = [
    (0.5, [-6, -0.4, 0.4, 6], 3.67751),
    (1.0, [-3, -0.5, 0.5, 3], 1.70054),
    (1.5, [-3, -0.5, 0.5, 3], 1.03289),
]


@pytest.mark.parametrize(("epsilon", "bins", "value"), REFERENCE)
def test_reference_table(epsilon, bins, value):
    result = design(bins=bins, privacy=md.PureDP(epsilon)).solve(gap=1e-6)
    assert result.value == pytest.approx(value, abs=1e-5)
    assert result.gap <= 1e-6
    assert result.certificate.verify()
    assert result.mechanism.privacy_loss() <= epsilon


def test_sixteen_outputs():
    result = design(bins=np.linspace(-2, 2, 16), privacy=md.PureDP(5.0)).solve()
    assert result.value == pytest.approx(0.1246, abs=5e-5)
    assert result.gap <= 1e-6 and result.certificate.verify()


@pytest.mark.parametrize(("sigma", "value"), [(0.1, 1.4476), (0.3, 1.5526)])
def test_clipped_normal_table(sigma, value):
    result = design(bins=[-4, 0.2, 0.6, 4], prior=md.clipped(stats.norm(0.5, sigma), -1, 1)).solve()
    assert result.value == pytest.approx(value, abs=2e-4)
    assert result.gap <= 1e-6


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_duchi(epsilon):
    """Two outputs ±A sit exactly at the smallest feasible ε: MAE A − 1/(3A), MSE A² − 1/3."""
    A = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
    wide = A * (1 + 1e-12)
    for loss, value in (("absolute", A - 1 / (3 * A)), ("squared", A * A - 1 / 3)):
        result = design(bins=[-wide, wide], privacy=md.PureDP(epsilon), loss=loss).solve()
        assert result.value == pytest.approx(value, rel=1e-11)
        assert result.gap <= 1e-6 and result.certificate.verify()
    exact = design(bins=[-A, A], privacy=md.PureDP(epsilon)).solve()
    assert exact.value == pytest.approx(A - 1 / (3 * A), rel=1e-12)
    assert exact.mechanism.law is not None


def test_piecewise_hybrid_mechanism_rediscovered():
    """Wang et al. 2019: at ε = 1 the hybrid mechanism's MSE, averaged over uniform inputs, against Duchi's 4.349."""
    result = design(bins=md.Alphabet(max_abs=4.0, step=0.05), loss="squared").solve()
    assert result.value == pytest.approx(3.887, abs=1.5e-3)
    assert result.design.any_outputs_bound(result) <= result.lower_bound
    assert result.value - result.design.any_outputs_bound(result) <= 0.05**2 / 4 + 2e-6 * result.value


# -- options against the reference program -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": "worst"},
        {"objective": "worst", "loss": "squared", "bins": [-2.5, -1, 0, 0.7, 2.8]},
        {"objective": "worst", "privacy": md.PureDP(19.95), "bins": [-1.5000000064834644, -0.7500000032417322, 0, 0.7500000032417322, 1.5000000064834644]},
        pytest.param({"objective": "worst", "max_bias": 0.2}, marks=pytest.mark.slow),
        pytest.param({"max_bias": 0.1}, marks=pytest.mark.slow),
        pytest.param({"max_bias": 0.3, "loss": "squared", "bins": [-2.5, -1, 0, 0.7, 2.8]}, marks=pytest.mark.slow),
        {"max_mse": 4.481},
        pytest.param({"max_mse": 3.9, "max_bias": 0.1}, marks=pytest.mark.slow),
        {"loss": {"absolute": 1, "squared": 0.1}},
        {"bins": [-2.5, -0.3, 0.9, 2.9], "prior": stats.beta(2, 4, -1, 2)},
        {"bins": [-1.0, 0.5, 2.0, 4.0], "prior": stats.uniform(0, 1.5), "privacy": md.PureDP(2.0)},
        {"bins": [-2.5, -0.3, 0.9, 2.9], "prior": np.array([-0.9, -0.2, 0.1, 0.1, 0.8]), "input_range": (-1, 1)},
    ],
    ids=lambda v: str(v).split(" at 0x")[0],
)  # fmt: skip
def test_options_against_the_program(changes):
    wanted = design(**changes)
    result = wanted.solve()
    assert result.gap <= 1e-6 and result.certificate.verify()
    assert result.mechanism.privacy_loss() <= wanted.privacy.epsilon
    lower, upper = wanted.input_range
    grid = np.linspace(lower, upper, 301)
    assert np.abs(result.mechanism.bias(grid)).max() <= wanted.max_bias + 1e-13
    program = wanted.problem(257).subject_to().solve().value
    # The program is a restriction on the mean (its rows are interpolated), a relaxation in the worst case
    # (its epigraph is over knots); both are within O(h²) or, at jumps and kinks, O(h) of the optimum.
    if wanted.objective == "mean":
        assert program >= result.lower_bound - 1e-8
    else:
        assert program <= result.value + 1e-8
    assert program == pytest.approx(result.value, rel=2e-4)
    if wanted.max_mse is not None:
        assert result.mechanism.expected_loss(wanted.prior, "squared") <= wanted.max_mse * (1 + 1e-12)


def test_solvers_agree():
    one = design().solve(solver="newton")
    two = design().solve(solver="cutting-planes")
    three = design().solve(solver="highs", knots=17)
    for a in (one, two, three):
        assert a.gap <= 1e-6
        assert a.value == pytest.approx(one.value, rel=2e-6)
    assert two.solver_report.solver == "cutting-planes"
    assert three.solver_report.solver == "highs on 17 knots + cutting-planes"


# -- refusals -------------------------------------------------------------------------------------------------------


def test_infeasible_epsilon_names_the_smallest():
    with pytest.raises(md.InfeasibleError) as caught:
        design(privacy=md.PureDP(0.5)).solve()
    least = caught.value.smallest_epsilon
    assert least == pytest.approx(math.log(2), rel=1e-12)
    assert f"{least:.9g}" in str(caught.value)
    assert design(privacy=md.PureDP(least * (1 + 1e-6))).solve().certificate.verify()
    with pytest.raises(md.InfeasibleError, match="widen the outputs"):
        design(bins=[-1.0, 1.0]).solve()
    with pytest.raises(md.InfeasibleError, match="smallest feasible"):
        design(bins=md.Alphabet(1.2, 0.1), privacy=md.PureDP(0.2)).solve()


def test_infeasible_mse_names_the_least():
    with pytest.raises(md.InfeasibleError) as caught:
        design(max_mse=1.0).solve()
    least = design(loss="squared").solve()
    assert caught.value.least == pytest.approx(least.value, rel=1e-6)
    assert "max_mse = 1" in str(caught.value)
    capped = design(max_mse=caught.value.least * (1 + 1e-6)).solve()
    assert capped.mechanism.expected_loss(UNIFORM, "squared") <= capped.design.max_mse


# -- Optimal quantizers for priors, ranges, budgets and losses at the edge of doubles: certified, or refused in words


def absolute(t):
    return np.abs(t)


def certified(result) -> bool:
    """Optimal in the sense of the rules: finite value and bound, the gap as asked, a certificate that verifies."""
    return (
        result.status is Status.OPTIMAL
        and math.isfinite(result.value)
        and result.value * (1 - 1e-6) <= result.lower_bound <= result.value
        and result.certificate.verify()
    )


# -- priors of little width, and of mass at their ends ----------------------------------------------------------------------------


class _Rising(stats.rv_continuous):
    def _pdf(self, x):
        return 2 * x

    def _cdf(self, x):
        return x * x


def test_a_density_that_contradicts_its_distribution_function_is_refused():
    class Broken(_Rising):
        def _cdf(self, x):
            return x

    with pytest.raises(md.DesignError, match="disagree"):
        md.Prior.of(Broken(a=0, b=1, name="broken")()).moments([0, 0.5, 1])


@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1e9, 1e12])
def test_units_do_not_matter(unit):
    prior = stats.uniform(-unit, 2 * unit)
    result = design(bins=unit * np.array(BINS), prior=prior).solve()
    assert result.value / unit == pytest.approx(1.7005434, abs=1e-6)
    boxes = md.OPTM(unit * np.array([-3, -0.5, 0.5, 3]), md.PureDP(1.0), prior).solve()
    assert boxes.value / unit == pytest.approx(1.8784917, abs=1e-6)
    assert certified(result) and boxes.certificate.verify()


# -- bounds -----------------------------------------------------------------------------------------------


# -- Searched outputs against the reference table, brute force, and the alphabet's bound ---------------------


def search(bins, epsilon=1.0, **changes) -> md.OptimalQuantizer:
    return md.OptimalQuantizer(**{"bins": bins, "privacy": md.PureDP(epsilon), "prior": UNIFORM, **changes})


@pytest.mark.parametrize(("epsilon", "R", "value"), [(0.5, 6, 3.633), (1.0, 3, 1.656), (1.5, 3, 0.955)])
def test_any_number_of_bits(epsilon, R, value):
    """The reference table's last column, and what is proved about every other choice of outputs."""
    result = search(md.Alphabet(R, R / 60), epsilon).solve()
    assert result.value == pytest.approx(value, abs=5e-4)
    assert result.gap <= 1e-6
    least = result.design.any_outputs_bound(result)
    assert 0 < 1 - least / result.value < 2e-3


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "R", "value"), [(0.5, 6, 3.66754), (1.5, 3, 1.01719)])
def test_best_four_outputs(epsilon, R, value):
    result = search(md.BinSearch(4, R), epsilon).solve()
    assert result.value == pytest.approx(value, abs=1e-4)
    assert np.abs(result.mechanism.bins).max() == pytest.approx(R)
    assert result.gap <= 1e-6 and result.certificate.verify()
    assert result.status in ("best of its class", "gap not reached")
    assert result.design.any_outputs_bound(result) < result.value
    assert any("grid over all mirrored outputs" in note for note in result.notes)


@pytest.mark.slow
def test_best_four_outputs_at_epsilon_one_are_inside_the_range():
    """With |B| ≤ 3 the outermost mirrored outputs belong at ±2.72, not ±3: 1.6895 instead of the 1.6986 that ±3 gives."""
    result = search(md.BinSearch(4, 3.0, symmetric=True)).solve()
    assert result.value == pytest.approx(1.68955, abs=2e-5)
    assert result.lower_bound > result.design.any_outputs_bound(result)


@pytest.mark.slow
def test_two_outputs_find_duchi():
    A = (math.e + 1) / (math.e - 1)
    result = search(md.BinSearch(2, 4.0)).solve()
    assert result.value == pytest.approx(A - 1 / (3 * A), rel=1e-5)
    assert result.mechanism.bins[-1] == pytest.approx(A, rel=1e-4)
    for scale in (0.8, 0.95, 1.1):  # masses at both ends, on which a descent stops early
        prior = md.clipped(stats.lognorm(0.8, loc=-1.5, scale=scale), -1, 1)
        found = search(md.BinSearch(2, 3.3, starts=1), 2.0, prior=prior, loss="squared").solve()
        assert found.value <= md.quantizers.duchi(2.0).expected_loss(prior, "squared") * (1 + 1e-6)


def test_infeasible_search_names_the_smallest_epsilon():
    with pytest.raises(md.InfeasibleError) as caught:
        search(md.BinSearch(4, 1.5), 0.5).solve()
    assert caught.value.smallest_epsilon == pytest.approx(math.log(5))


# -- With samples as prior the user states where inputs lie: neither is the range taken from them, nor are they told


PURE = md.PureDP(2.0)
LEAST, LARGEST = 0.145678912, 0.875432198
SAMPLES = [LEAST, 0.4, 0.5, 0.5, 0.6, LARGEST]
HELD = [-3.0, -0.5, 0.5, 3.0]
RQM, BIASED = md.Grid(delta=[1.6], q=[0.4, 0.5]), md.Grid(delta=[0.5, 1.0], q=[0.3], beta=[0.1])
BOXES = {"bins": md.Grid(delta=[1.0], inner=[0.5]), "boxes": md.Grid(level=[0.6, 0.67], width=[0.01])}
DESIGNS: dict[str, Callable[..., Any]] = {
    "optm": lambda **more: md.OPTM(HELD, PURE, **more),
    "optm-search": lambda **more: md.OPTMSearch(PURE, **BOXES, **more),
    "optimal": lambda **more: md.OptimalQuantizer(HELD, PURE, **more),
    "searched": lambda **more: md.OptimalQuantizer(
        md.BinSearch(3, 4.0, starts=1, exhaustive=False), PURE, **more
    ),
    "alphabet": lambda **more: md.OptimalQuantizer(md.Alphabet(3.0, 0.5), PURE, **more),
    "rqm": lambda **more: md.RQM(4, PURE, grid=RQM, **more),
    "erm": lambda **more: md.ERM(4, PURE, grid=md.Grid(delta=[1.6], inner=[0.5], gamma=[0.2]), **more),
    "metric": lambda **more: md.MetricQuantizer(HELD, md.MetricDP(2.0), **more),
    "biased": lambda **more: md.BiasedSelection(4, PURE, max_bias=np.inf, grid=BIASED, **more),
    "mvu": lambda **more: md.MVU(m=4, privacy=PURE, bins=HELD, **{"input_range": None} | more),
}
QUESTIONS: dict[str, Callable[..., Any]] = {
    "report": lambda **more: md.LocalReport(2, **more),
    "mean of clients": lambda **more: md.LocalReport(2, clients=10, **more),
}


@pytest.mark.parametrize("name", DESIGNS | QUESTIONS)
def test_samples_without_a_range_are_refused_and_not_quoted(name: str) -> None:
    make = (DESIGNS | QUESTIONS)[name]
    for prior in (SAMPLES, np.array(SAMPLES), md.Prior.of(SAMPLES)):
        with pytest.raises(md.DesignError, match=r"^input_range = None: must be ") as refused:
            make(prior=prior)
        assert "0.14" not in str(refused.value) and "0.87" not in str(refused.value)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in ("searched", "metric"))) for name in DESIGNS],
)
def test_all_of_the_range_that_is_stated_is_protected(name: str) -> None:
    design = DESIGNS[name](prior=SAMPLES, input_range=(-1, 1))
    result = design.solve()
    assert design.input_range == result.mechanism.input_range == (-1.0, 1.0)
    assert result.checks()["holds"].all()
    assert np.isfinite(result.mechanism.release([-1.0, 1.0])).all()
    said = "\n".join([str(result), repr(design), result.question()])
    assert "0.1456" not in said and "0.8754" not in said


@pytest.mark.parametrize("name", [name for name in DESIGNS if name not in ("mvu", "metric")])
def test_samples_outside_the_range_are_refused_and_not_quoted(name: str) -> None:
    with pytest.raises(md.DesignError, match="prior has mass outside the input range") as refused:
        DESIGNS[name](prior=SAMPLES, input_range=(0.2, 1.0))
    assert "0.14" not in str(refused.value) and "0.87" not in str(refused.value)


def test_a_law_states_where_inputs_lie() -> None:
    assert md.OPTMSearch(PURE, stats.uniform(-1, 2), **BOXES).input_range == (-1.0, 1.0)
    wider = md.OPTMSearch(PURE, stats.uniform(-1, 2), **BOXES, input_range=(-1.5, 1.5))
    assert wider.solve().mechanism.bins.tolist() == [-2.5, -0.5, 0.5, 2.5]


@pytest.mark.slow
def test_reports_of_clients_are_clipped_within_the_range_that_is_stated() -> None:
    draws = np.random.default_rng(0).normal(0, 1, 300)
    found = {}
    for range_ in ((-9.0, 9.0), (-0.5, 0.6)):
        asked = md.LocalReport(2, range_, draws, clients=1000)
        found[range_] = md.compare(asked, PURE, mechanisms=["RQM"], progress=False)
        low, high = found[range_]["RQM"].mechanism.input_range
        assert range_[0] <= low < high <= range_[1] and "best range in [" in str(asked)
        assert all(claim.holds for claim in found[range_].agreements())
    assert found[-0.5, 0.6].table["error"][0] > found[-9.0, 9.0].table["error"][0]
    with pytest.raises(md.DesignError, match="must hold the mean of the samples"):
        md.LocalReport(2, (1.0, 2.0), draws, clients=1000)

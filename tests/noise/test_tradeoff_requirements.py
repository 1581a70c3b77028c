"""GaussianDP, MembershipAdvantage and TradeOff as requirements, and the μ that a law keeps."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.accounting.gaussian import gaussian_mu
from mechdesign.evidence.serialize import dumps
from mechdesign.problem.privacy import parts_of
from mechdesign.verifier.verify import verify
from tests.programs import least_noise

TWO = md.TradeOff([(0, 0.3), (1, 1e-3)])


def accepted(result: md.Result) -> bool:
    alone = verify(dumps(result))
    return bool(result.checks()["holds"].all()) and all(holds for *_, holds in alone.rows)


@pytest.mark.parametrize("eta", [1e-3, 0.1, 0.39346934, 0.9])
def test_an_advantage_has_a_closed_form(eta: float) -> None:
    """Laplace noise has δ(0) = 1 − exp(−Δ/2b), Gaussian noise 2Φ(μ/2) − 1."""
    laplace = md.calibrate("laplace", privacy=md.MembershipAdvantage(eta), sensitivity=2.0)
    assert laplace.mechanism.law.kwds["scale"] == pytest.approx(-1 / math.log1p(-eta), rel=1e-7)
    normal = md.calibrate("gaussian", privacy=md.MembershipAdvantage(eta), sensitivity=2.0)
    assert 2 / normal.mechanism.standard_deviation == pytest.approx(
        2 * stats.norm.ppf((1 + eta) / 2), rel=1e-7
    )
    for result in (laplace, normal):
        assert accepted(result) and result.tradeoff().advantage <= eta * (1 + 1e-12)


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.floats(0.05, 4), st.floats(1e-8, 0.4)), min_size=1, max_size=4),
    st.floats(0.05, 0.8),
)
@settings(max_examples=10)
def test_a_law_keeps_all_points_and_one_of_them_binds(pairs: list, eta: float) -> None:
    asked = md.TradeOff([(0.0, eta), *pairs])
    for noise in ("laplace", "gaussian"):
        law = md.calibrate(noise, privacy=asked, sensitivity=1.0).mechanism
        alone = [md.MembershipAdvantage(eta), *(md.ApproximateDP(e, d) for e, d in pairs)]
        scales = [md.calibrate(noise, privacy=p, sensitivity=1.0).mechanism.standard_deviation for p in alone]
        assert law.standard_deviation == pytest.approx(max(scales), rel=1e-7)
        for e, d in asked.points:
            assert float(law.privacy_profile(e)) <= d


@pytest.mark.parametrize(
    ("noise", "privacy", "more"),
    [
        ("gaussian", md.GaussianDP(0.7), {"dimension": 4, "rounds": 3}),
        ("gaussian", md.GaussianDP(0.7), {"sensitivity": md.Sensitivity(linf=1, l0=2), "dimension": 4}),
        ("discrete_laplace", TWO, {"sensitivity": 2}),
        ("discrete_gaussian", TWO, {}),
        ("laplace", md.TradeOff([(0, 0.2), (1, 0)]), {}),
        ("gennorm", md.MembershipAdvantage(0.3), {}),
        ("staircase", md.MembershipAdvantage(0.3), {}),
        ("truncated_laplace", md.MembershipAdvantage(0.1), {}),
        ("truncated_laplace", md.TradeOff([(0, 0.5), (1, 1e-6)]), {}),
        ("truncated_laplace", md.TradeOff([(0, 0.5), (0.3, 3e-12)]), {"dimension": 2}),
        pytest.param("laplace", TWO, {"dimension": 3}, marks=pytest.mark.slow),
        pytest.param(
            "discrete_laplace", md.MembershipAdvantage(0.3), {"dimension": 3}, marks=pytest.mark.slow
        ),
        pytest.param("logistic", md.MembershipAdvantage(0.3), {"rounds": 2}, marks=pytest.mark.slow),
        pytest.param("gaussian", TWO, {"rounds": 8, "sampling_rate": 0.1}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_both_checkers_accept_a_calibration(noise: str, privacy: object, more: dict) -> None:
    result = md.calibrate(noise, privacy=privacy, **{"sensitivity": 1.0, **more})
    assert accepted(result)
    assert len(result.audit()) == 1 and result.audit()["slack"].iloc[0] >= 0
    assert result.question() and "not checked here" not in str(result)


GAUSSIAN = {
    "allocation": lambda p: md.NoiseAllocation("gaussian", [1.0, 8.0], p),
    "correlated": lambda p: md.CorrelatedGaussian(np.eye(2), p),
    "counts": lambda p: md.CountsGaussian(4, 2, p),
    "matrix": lambda p: md.MatrixMechanism(md.Workload.prefix_sums(3), p),
}


@pytest.mark.parametrize("name", GAUSSIAN)
def test_gaussian_noise_takes_all_three(name: str) -> None:
    unit = GAUSSIAN[name](md.ZeroConcentratedDP(0.5)).solve()
    for privacy, square in (
        (md.GaussianDP(0.5), 0.25),
        (md.MembershipAdvantage(0.3), (2 * stats.norm.ppf(0.65)) ** 2),
        (TWO, gaussian_mu(1.0, 1e-3) ** 2),
    ):
        result = GAUSSIAN[name](privacy).solve()
        assert accepted(result)
        assert result.value * square == pytest.approx(unit.value, rel=1e-7)
        assert result.status == unit.status


# Optimal noise and allocations ------------------------------------------------------------------------------------

points = st.lists(
    st.tuples(st.sampled_from([0.0, 0.3, 0.7, 1.5]), st.floats(0.01, 0.4)), min_size=1, max_size=3, unique_by=lambda p: p[0]
)  # fmt: skip


@given(points, st.sampled_from(["absolute", "squared"]), st.sampled_from([1, 2]), st.booleans())
@settings(max_examples=8, deadline=None)
def test_whole_noise_is_that_of_a_linear_program(pairs: list, loss: str, change: int, pure: bool) -> None:
    asked = [*pairs, (1.2, 0.0)] if pure else pairs
    result = md.OptimalNoise(md.TradeOff(asked), change, loss, integer=True).solve()
    j = np.arange(-110, 111).astype(float)
    least = least_noise(np.abs(j) ** (2 if loss == "squared" else 1), asked, range(1, change + 1))
    assert result.value == pytest.approx(least, rel=2e-6) and result.lower_bound <= least * (1 + 1e-7)
    assert result.gap < 2e-6
    for e, d in asked:
        assert result.mechanism.exact_delta(e) <= Fraction(d)


@given(points, st.booleans())
@settings(max_examples=5, deadline=None)
def test_the_bound_of_real_noise_is_that_of_its_lattice(pairs: list, pure: bool) -> None:
    asked = [*pairs, (1.5, 0.0)] if pure else pairs
    result = md.OptimalNoise(md.TradeOff(asked)).solve(cells=2)
    least = least_noise(np.abs(np.arange(-150, 151)) / 2, asked, range(1, 3))
    assert least * (1 - 1e-3) <= result.lower_bound <= least * (1 + 1e-7) <= result.value


@pytest.mark.parametrize(
    "pairs",
    [
        [(2.5, 4e-6), (7, 8e-11)],
        [(0, 0.35), (20.7, 2.5e-12), (70, 8e-16)],
        [(0, 0.4), (0.9, 3e-10), (2, 4e-15)],
    ],
)
def test_pairs_that_doubles_do_not_resolve_are_met_by_stricter_ones(pairs: list) -> None:
    result = md.OptimalNoise(md.TradeOff(pairs), 2, "squared", integer=True).solve(gap=1e-6)
    alone = [
        md.OptimalNoise(part, 2, "squared", integer=True).solve() for part in parts_of(md.TradeOff(pairs))
    ]
    assert result.gap < 1e-5 and accepted(result)
    assert result.lower_bound >= max(one.lower_bound for one in alone) * (1 - 1e-5)


def test_uniform_noise_is_best_for_an_advantage() -> None:
    """Noise of density η/Δ where 1/η is whole: E|T| = Δ/4η, half of what Laplace noise costs at small η."""
    for eta in (1e-3, 0.25):
        result = md.OptimalNoise(md.MembershipAdvantage(eta), 2.0).solve(gap=1e-3)
        assert result.lower_bound <= 0.5 / eta * (1 + 1e-12) <= result.value * (1 + 1e-9)
        assert result.gap <= 1e-3 and result.tradeoff().advantage <= eta * (1 + 1e-12)
    for eta in (1e-7, 5.5e-5):  # where lattices are too large, or too slow
        result = md.OptimalNoise(md.MembershipAdvantage(eta), loss="squared").solve(time_limit=0.2)
        assert result.value <= (1 + 1e-5) / (12 * eta**2) and result.certificate.verify()
    for eta, side in ((2e-4, 2500), (1e-5, 50_000)):  # whole numbers
        result = md.OptimalNoise(md.MembershipAdvantage(eta), integer=True).solve(time_limit=0.01)
        assert result.value <= (side + 1) / 2 and result.certificate.verify()


ASKED = {
    "real": lambda p: md.OptimalNoise(p),
    "real, squared": lambda p: md.OptimalNoise(p, loss="squared"),
    "whole": lambda p: md.OptimalNoise(p, 2, "squared", integer=True),
    "one of three": lambda p: md.OptimalNoise(p, dimension=3, l0=1),
    "three whole": lambda p: md.OptimalNoise(p, loss="squared", dimension=3, integer=True),
    "laplace": lambda p: md.NoiseAllocation("laplace", [1.0, 2.0, 8.0], p),
    "laplace alone": lambda p: md.NoiseAllocation("laplace", [0.0, 2.0], p),
    "bounded": lambda p: md.NoiseAllocation("laplace", md.Sensitivity(each=[1, 8, 3], l0=2), p),
    "mixed": lambda p: md.NoiseAllocation("mixed", [1.0, 2.0, 8.0], p),
}


@functools.cache
def held(name: str) -> md.Result:
    return ASKED[name](TWO).solve()


OTHERS = [(0, 0.03), (1, 1e-3)], [(0, 0.3), (1, 1e-4)]


@pytest.mark.parametrize(
    ("name", "points"),
    [
        *itertools.product(("real", "whole", "three whole"), OTHERS),
        ("laplace", OTHERS[0]),  # the other is kept by Corollary 6 for the first point alone
        *(pytest.param("mixed", points, marks=pytest.mark.slow) for points in OTHERS),
    ],
)
def test_each_point_is_held(name: str, points: list) -> None:
    """By both checkers, of noise that keeps two others."""
    result = held(name)
    design = dataclasses.replace(result.design, privacy=md.TradeOff(points))
    forged = dataclasses.replace(result, design=design)
    assert not forged.checks()["holds"].all()
    assert not all(holds for *_, holds in verify(dumps(forged)).rows)


def test_a_family_that_cannot_be_pure_is_left_out() -> None:
    result = ASKED["three whole"](md.TradeOff([(0, 0.3), (1, 0)])).solve()
    assert accepted(result) and result.mechanism.epsilon(0.0) <= 1.0

"""Calibrated noise is a result: evidence, accounting, picture, page and file; rounds and Poisson samples."""

import functools
import math

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.accounting.interval import delta_interval
from mechdesign.accounting.losses import NoiseTerm

PRIVACY = md.ApproximateDP(1, 1e-5)
THREE = md.Sensitivity(linf=1, l0=3)


@functools.cache
def repeated():
    return md.calibrate("laplace", privacy=PRIVACY, sensitivity=THREE, dimension=5, rounds=10)


@functools.cache
def sampled():
    return md.calibrate("gaussian", privacy=PRIVACY, sensitivity=1.0, rounds=100, sampling_rate=0.05)


@pytest.mark.slow
def test_every_way_out(tmp_path):
    result = repeated()
    assert result.checks()["holds"].all() and len(result.audit()) == 1
    assert result.audit()["slack"].iloc[0] >= 0
    (term,) = result.mechanism.noise_terms()
    assert (term.sensitivity, term.count) == (1.0, 30)  # three coordinates, ten rounds
    assert delta_interval(term, 1.0, width=0.05).lower <= 1e-5
    assert result.mechanism.epsilon(1e-5) == pytest.approx(1.0, rel=1e-3)
    assert result.proofs[0].spent.upper <= 1e-5 < result.mechanism.privacy_profile(0.9)
    assert result.mechanism.delta_interval(1.0).upper > 1e-5 * 0.98
    assert result.plot().axes
    result.report(tmp_path / "page.html")
    assert "10 times" in (tmp_path / "page.html").read_text()
    result.save(tmp_path / "a.json")
    again = md.load(tmp_path / "a.json")
    assert again.checks()["holds"].all() and again.design == result.design and str(again) == str(result)
    assert result.mechanism.release(np.zeros(5)).shape == (5,)


@pytest.mark.slow
def test_pld():
    pytest.importorskip("dp_accounting")
    result = md.calibrate("laplace", privacy=PRIVACY, sensitivity=THREE, dimension=5, rounds=2)
    assert result.mechanism.pld().get_delta_for_epsilon(1.0) == pytest.approx(1e-5, rel=0.02)
    with pytest.raises(md.DesignError, match="sampling_rate"):
        sampled().mechanism.pld()


@pytest.mark.slow
def test_sampling_against_an_independent_accountant():
    """δ of the subsampled Gaussian, by dp-accounting's own grid."""
    found = sampled()
    assert found.checks()["holds"].all() and found.proofs[0].spent.upper <= 1e-5
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    other = pld.from_gaussian_mechanism(
        found.mechanism.noise_multiplier, sampling_prob=0.05, value_discretization_interval=1e-4
    )
    delta = other.self_compose(100).get_delta_for_epsilon(1.0)
    assert delta == pytest.approx(1e-5, rel=0.02)
    assert found.mechanism.epsilon(1e-5) == pytest.approx(1.0, rel=2e-3)


def test_rounds_of_pure_privacy():
    single = md.calibrate("laplace", privacy=md.PureDP(0.1), sensitivity=1.0)
    ten = md.calibrate("laplace", privacy=md.PureDP(1.0), sensitivity=1.0, rounds=10)
    assert (
        ten.mechanism.variance == pytest.approx(single.mechanism.variance, rel=1e-12)
        and ten.mechanism.epsilon(0.0) <= 1.0
    )
    amplified = md.calibrate("laplace", privacy=md.PureDP(1.0), sensitivity=1.0, rounds=10, sampling_rate=0.1)
    one_round = math.log1p(math.expm1(0.1) / 0.1)
    assert amplified.mechanism.law.std() == pytest.approx(math.sqrt(2) / one_round, rel=1e-9)
    assert amplified.checks()["holds"].all()


def test_rounds_of_zcdp():
    found = md.calibrate(
        "gaussian", privacy=md.ZeroConcentratedDP(0.5), sensitivity=THREE, dimension=9, rounds=4
    )
    assert found.mechanism.variance == pytest.approx(4 * 3 / (2 * 0.5), rel=1e-12)
    assert found.checks()["holds"].all()


def test_noise_multiplier_is_relative_to_the_norm():
    found = md.calibrate("gaussian", privacy=PRIVACY, sensitivity=md.Sensitivity(l2=2.0), dimension=1000)
    assert found.mechanism.noise_multiplier == pytest.approx(found.mechanism.standard_deviation / 2)
    direct = md.calibrate("gaussian", privacy=PRIVACY, sensitivity=1.0)
    assert found.mechanism.noise_multiplier == pytest.approx(direct.mechanism.standard_deviation, rel=1e-12)


def test_several_terms_are_accounted_for_together():
    noise = md.AdditiveNoise(stats.laplace(scale=5.0), md.Sensitivity(each=[1.0, 2.0, 3.0]), 3)
    terms = [NoiseTerm(stats.laplace(scale=5.0), d, 1) for d in (3.0, 2.0, 1.0)]
    assert noise.delta_interval(0.5).upper == pytest.approx(delta_interval(terms, 0.5).upper, rel=1e-12)
    assert noise.epsilon(0.0) == pytest.approx(6 / 5)


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"rounds": 0}, "rounds = 0"),
        ({"rounds": 1.5}, "rounds = 1.5"),
        ({"sampling_rate": 0}, "sampling_rate = 0"),
        ({"sampling_rate": 2}, "sampling_rate = 2"),
        ({"sampling_rate": 0.5, "privacy": md.ZeroConcentratedDP(1)}, "sampling_rate = 0.5"),
        ({"sensitivity": "x"}, "sensitivity = 'x'"),
    ],
)
def test_bad_input(bad, word):
    asked = {"noise": "gaussian", "privacy": PRIVACY, "sensitivity": 1.0, **bad}
    with pytest.raises(md.DesignError) as caught:
        md.calibrate(asked.pop("noise"), **asked)
    assert word in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gennorm", "logistic"])
def test_epsilon_at_the_delta_asked_for_is_the_epsilon_asked_for(family):
    found = md.calibrate(family, privacy=md.ApproximateDP(1.0, 1e-6), sensitivity=1.0, dimension=8)
    # what the proof encloses on a fine grid, the mechanism alone knows to the width of its intervals
    assert found.proofs[0].spent.upper <= 1e-6 <= found.mechanism.privacy_profile(1.0) * 1.01
    assert found.mechanism.epsilon(1e-6) == pytest.approx(1.0, rel=2e-3)

"""Several bounds at once for allocations and covariances; K-norm noise; both in comparisons."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import mechdesign as md
from mechdesign.noise.correlated.changes import corners
from mechdesign.noise.knorm import KNorm

PRIVACY = md.ApproximateDP(1.0, 1e-6)
S = md.Sensitivity


@pytest.mark.parametrize(
    ("bounds", "norm"),
    [
        ({"linf": 1.0, "l0": 3}, np.sqrt(3)),
        ({"l2": 2.0}, 2.0),
        ({"l1": 2.0}, 2.0),
        ({"linf": 1.0, "l1": 2.5}, 1.5),
        ({"linf": 1.0}, np.sqrt(5)),
    ],
)
def test_one_scale_for_what_is_alike(bounds, norm):
    """The least common scale is the largest ℓ₂ norm over μ: no scales of other size do better, by symmetry."""
    result = md.NoiseAllocation.of_sensitivity("gaussian", S(**bounds), 5, PRIVACY).solve()
    sigma = norm / np.sqrt(result.design.budget)
    assert result.mechanism.scales == pytest.approx(sigma, rel=1e-9) and result.certificate.verify()
    assert result.value == pytest.approx(5 * sigma**2, rel=1e-9)
    calibrated = md.Calibration("gaussian", PRIVACY, S(**bounds), 5).solve()
    assert result.value / 5 == pytest.approx(calibrated.value, rel=1e-6)


def test_bounds_of_single_coordinates_are_the_profile():
    result = md.NoiseAllocation("laplace", S(each=[1, 2, 5], linf=3), md.PureDP(1.0)).solve()
    plain = md.NoiseAllocation("laplace", [1, 2, 3], md.PureDP(1.0)).solve()
    assert np.array_equal(result.mechanism.scales, plain.mechanism.scales) and np.array_equal(
        result.design.sensitivities, [1, 2, 3]
    )
    few = md.NoiseAllocation.of_sensitivity("laplace", S(linf=1, l0=2), 4, md.PureDP(1.0)).solve()
    assert few.mechanism.scales == pytest.approx(2.0)


def test_corners_are_all_there_is():
    found = corners(S(each=[1.0, 0.0, 2.0, 3.0], l0=2), 4)
    assert len(found) == 3 * 2 and not found[:, 1].any()
    assert {tuple(np.abs(v)) for v in found} == {(1, 0, 2, 0), (1, 0, 0, 3), (0, 0, 2, 3)}
    up = corners(S(each=[1.0, 2.0], signed=False), 2)
    assert sorted(map(tuple, up.tolist())) == [(0, 2), (1, 0), (1, 2)]


def test_covariances_for_bounds():
    """With every pattern of signs the best covariance is diagonal, whatever the bounds; without, correlation helps."""
    signed = md.CorrelatedGaussian(S(each=[1.0, 1.0, 2.0]), PRIVACY).solve()
    diagonal = md.NoiseAllocation("gaussian", S(each=[1.0, 1.0, 2.0]), PRIVACY).solve()
    assert signed.value == pytest.approx(diagonal.value, rel=1e-6)
    alike = md.CorrelatedGaussian.of_sensitivity(S(linf=1, l0=2, signed=False), 6, PRIVACY).solve()
    counts = md.CountsGaussian(6, 2, PRIVACY, signed=False).solve()
    assert alike.value == pytest.approx(counts.value, rel=1e-7)
    assert alike.value < md.CountsGaussian(6, 2, PRIVACY).solve().value
    ball = md.CorrelatedGaussian.of_sensitivity(S(l1=2.0), 3, PRIVACY).solve()
    assert ball.value * ball.design.budget == pytest.approx(12.0)


def test_knorm_by_its_own_density():
    """The privacy loss is the norm of the shift over s: nowhere more, and somewhere all of it."""
    rng = np.random.default_rng(0)
    for dimension, s in ((3, 1.0), (4, S(linf=1, l0=1)), (5, S(l2=1.0))):
        result = KNorm(dimension, md.PureDP(0.7), s).solve()
        noise = result.mechanism
        least = min(map(result.design.cost, result.design.laws()))
        assert least * (1 - 1e-9) <= result.lower_bound <= result.value == least
        z = noise.sample(2000, rng=rng)
        shift = np.ones(dimension) if dimension == 3 else np.eye(dimension)[0]
        loss = noise.log_density(z) - noise.log_density(z + shift)
        assert 0.5 < loss.max() <= 0.7 * (1 + 1e-9)
        assert z[:, 0].var() == pytest.approx(noise.variance, rel=0.25)
        assert np.abs(z[:, 0]).mean() == pytest.approx(result.errors().absolute_error, rel=0.15)
        width = md.accuracy(result).half_width
        assert (np.abs(z) > width).mean() == pytest.approx(0.05, abs=0.012)


def test_knorm_evidence(tmp_path):
    result = KNorm(4, md.PureDP(1.0), S(linf=1, l0=2), 1, loss="absolute", rounds=3).solve()
    assert result.checks()["holds"].all() and result.mechanism.scale == 6.0
    result.save(tmp_path / "k.json")
    back = md.load(tmp_path / "k.json")
    assert str(back) == str(result) and back.certificate.verify()
    result.report(tmp_path / "k.html")
    certificate = result.certificate
    for changes in (
        {"value": result.value * 0.99},
        {"law": replace(certificate.law, scale=5.9)},
        {"law": replace(certificate.law, norm=np.inf)},
        {"law": replace(certificate.law, dimension=5)},
        {"law": replace(certificate.law, largest=1.0)},
        {"law": replace(certificate.law, largest=None, gamma=None)},
        {"question": replace(certificate.question, rounds=4)},
    ):
        assert not replace(certificate, **changes).verify(), changes
    assert result.mechanism.release(np.zeros(4)).shape == (4,)


@pytest.mark.slow
def test_comparisons_try_them():
    query = md.NumericQuery(20, S(linf=1, l0=3, signed=False))
    names = ["gaussian", "correlated gaussian", "k-norm", "allocated mixed"]
    table = md.compare(query, PRIVACY, mechanisms=names, progress=False).table.set_index("mechanism")
    assert table["error"]["correlated gaussian"] * 20 == pytest.approx(1039.44, abs=0.01)
    assert table["error"]["gaussian"] * 20 == pytest.approx(1070.87, abs=0.01)
    assert (
        table["error"]["k-norm"] < 18 and "each" in table["note"]["allocated mixed"]
    )  # Laplace noise under pure privacy
    box = md.compare(
        md.NumericQuery(10),
        md.PureDP(1.0),
        mechanisms=["laplace", "k-norm", "correlated gaussian"],
        progress=False,
    )
    assert box["k-norm"].mechanism.norm == np.inf and box["laplace"].value / box[
        "k-norm"
    ].value == pytest.approx(200 / 44)
    assert "delta" in box.table.set_index("mechanism")["note"]["correlated gaussian"]
    each = md.NumericQuery(3, S(each=[1.0, 0.2, 0.2]))
    found = md.compare(
        each,
        PRIVACY,
        mechanisms=["allocated gaussian", "allocated mixed", "correlated gaussian"],
        progress=False,
    )
    assert found["allocated mixed"].value <= found["allocated gaussian"].value * (1 + 1e-9)
    assert found["correlated gaussian"].value <= found["allocated gaussian"].value * (1 + 1e-6)


def test_refusals_say_what_to_do():
    signless = S(linf=1, l0=3)
    for call, word in (
        (lambda: md.NoiseAllocation("gaussian", signless, PRIVACY), "of_sensitivity"),
        (lambda: md.NoiseAllocation("mixed", S(each=[1, 2], l0=1), PRIVACY), "single coordinates"),
        (lambda: md.NoiseAllocation.of_sensitivity("gaussian", S(each=[1, 2]), 3, PRIVACY), "each"),
        (lambda: md.NoiseAllocation.of_sensitivity("mixed", signless, 5, PRIVACY), "single coordinates"),
        (lambda: md.CorrelatedGaussian(signless, PRIVACY), "of_sensitivity"),
        (lambda: md.CorrelatedGaussian.of_sensitivity(S(l2=1.0), 3, PRIVACY), "corners"),
        (lambda: md.CorrelatedGaussian.of_sensitivity(S(linf=1), 60, PRIVACY), "too many corners"),
        (lambda: md.CountsGaussian.of_sensitivity(S(l2=1.0), 3, PRIVACY), "linf="),
        (lambda: KNorm(3, md.MetricDP(1.0)), "privacy"),
        (lambda: KNorm(0, md.PureDP(1)), "dimension"),
        (lambda: KNorm(3, md.PureDP(1e-8), 1e150).solve(), "sensitivity"),
        (lambda: KNorm(3, md.PureDP(1), norm=3), "norm"),
        (lambda: KNorm(13, md.PureDP(1), np.eye(13)), "CorrelatedGaussian the list"),
        (lambda: md.CorrelatedGaussian(np.eye(3)[:2], PRIVACY), "span 2 of 3 dimensions.*span=True"),
        (lambda: S(linf=1, signed=1), "signed"),
    ):
        with pytest.raises(md.DesignError, match=word):
            call()


def test_every_pattern_of_a_small_set_is_covered():
    design = md.CorrelatedGaussian.of_sensitivity(S(each=[1.0, 2.0, 0.5], l0=2), 3, PRIVACY)
    law = design.solve().mechanism
    for signs in itertools.product((-1.0, 0.0, 1.0), repeat=3):
        v = np.array(signs) * [1.0, 2.0, 0.5]
        if 0 < np.count_nonzero(v) <= 2:
            assert law.mahalanobis(v)[0] ** 2 <= design.budget * (1 + 1e-12)

"""Several bounds at once for allocations and covariances."""

from __future__ import annotations

import numpy as np
import pytest

import mechdesign as md

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

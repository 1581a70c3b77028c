"""Calibrations and releases at the ends of what doubles hold: answers or sentences of ours, and no warning of NumPy's."""

from __future__ import annotations

import warnings

import pytest

import mechdesign as md


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("epsilon", [400.0, 700.0, 1e4])
@pytest.mark.parametrize("noise", ["discrete_laplace", "discrete_gaussian"])
def test_discrete_laws_answer_a_budget_that_asks_for_hardly_any_noise(noise: str, epsilon: float) -> None:
    result = md.calibrate(noise, privacy=md.ApproximateDP(epsilon, 0.5), sensitivity=1)
    assert 0 < result.value < 1e-3 and result.certificate.verify()


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("noise", ["laplace", "staircase"])
def test_an_answer_beyond_any_number_of_steps_is_released_without_a_warning(noise: str) -> None:
    """It was refused: of two neighbours one answered for sure."""
    mechanism = md.calibrate(noise, privacy=md.PureDP(1.0), sensitivity=1).mechanism
    assert (mechanism.release([1e308] * 3) > 1e305).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_staircases_of_a_tiny_budget_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            assert md.calibrate("staircase", privacy=md.ApproximateDP(1e-100, 1e-9), sensitivity=1).value > 0
        except md.MechdesignError as error:
            assert "nan" not in str(error)


@pytest.mark.parametrize("privacy", [md.PureDP(1.0), md.ApproximateDP(1.0, 1e-6)])
def test_discrete_noise_for_too_large_a_change_is_refused(privacy):
    """A list of its losses asked for 7 TiB."""
    with pytest.raises(md.DesignError, match=r"sensitivity = .* must be at most 10,000,000"):
        md.calibrate("discrete_laplace", privacy=privacy, sensitivity=10**12)

"""A type for each coordinate: never worse than either type, private by composition, as independent quadrature has it."""

from __future__ import annotations

import numpy as np
import pytest

import mechdesign as md
from mechdesign.noise.vector_noise import MixedNoise, composed


def one_type(lam, privacy, noise, **options):
    return md.NoiseAllocation(noise, lam, privacy, **options).solve().value


def delta(result):
    return composed(result.mechanism, result.design.privacy)[0]


@pytest.fixture(scope="module")
def mixed():
    """One large coordinate among twenty: Laplace noise on it, Gaussian on the others."""
    return md.NoiseAllocation("mixed", np.r_[1.0, 0.1 * np.ones(20)], md.ApproximateDP(3.0, 1e-6)).solve()


def test_a_mix_beats_both_types(mixed):
    lam, privacy = mixed.design.sensitivities, mixed.design.privacy
    assert mixed.mechanism.kinds == ("laplace",) + ("gaussian",) * 20
    assert mixed.value <= 0.88 * min(one_type(lam, privacy, noise) for noise in ("gaussian", "laplace"))
    assert mixed.value == pytest.approx(mixed.mechanism.mse) and delta(mixed) <= 1e-6
    assert mixed.checks()["holds"].all() and (mixed.audit()["slack"] >= 0).all()
    assert mixed.alternatives()["relative"].min() == 1.0 and mixed.lower_bound is None


@pytest.mark.slow
def test_coordinates_without_change_and_far_smaller_ones():
    lam = [1.0, 0.0, 1e-30, 1e-9]
    result = md.NoiseAllocation("mixed", lam, md.ApproximateDP(5.0, 1e-9)).solve()
    assert result.mechanism.kinds[1] == "none" and result.certificate.verify()
    law = result.mechanism
    assert law.lattice_cost < 1e-3 and law.small < 1e-5
    x = np.array([3.0, 1.5, 0.0, 0.0])
    assert law.release(x)[1] == 1.5 and np.abs(law.release(x) - x)[2] < 1e-8


def test_small_ones_are_composed_purely():
    """A coordinate of ratio τ far below the others leaves ε − τ to them."""
    law = MixedNoise([1.0, 1e9], [True, True], [1.0, 1.0])
    assert law.small == pytest.approx(1e-9) and len(law.terms()) == 1
    assert composed(law, md.ApproximateDP(1.0 + 2e-9, 1e-30)) == (0.0, True)
    delta, basic = composed(law, md.ApproximateDP(1.0, 1e-8))
    assert basic and delta == pytest.approx(5e-10, rel=1e-4)  # one coordinate: 1 − exp((ε − Δ/β)/2)

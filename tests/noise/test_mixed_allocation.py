"""A type for each coordinate: never worse than either type, private by composition, as independent quadrature has it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

import mechdesign as md
from mechdesign.noise.allocation.mixed import composed
from mechdesign.noise.vector_noise import MixedNoise


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


def test_delta_by_quadrature(mixed):
    """Laplace loss plus normal loss, integrated: δ = E[1 − e^{ε − L}]₊ without the package's accounting."""
    law, epsilon = mixed.mechanism, mixed.design.privacy.epsilon
    ratio = law.sensitivities / law.scales
    mu = np.sqrt((ratio[1:] ** 2).sum())

    def normal(left):
        return stats.norm.sf(left / mu - mu / 2) - np.exp(left) * stats.norm.sf(left / mu + mu / 2)

    r = ratio[0]
    # the Laplace loss is ±r at the ends, r − 2t between
    parts = [(0.5 * normal(epsilon - r)), 0.5 * np.exp(-r) * normal(epsilon + r)]
    middle = integrate.quad(lambda t: 0.5 * np.exp(-t) * normal(epsilon - (r - 2 * t)), 0, r, epsabs=1e-16)[0]
    assert sum(parts) + middle == pytest.approx(delta(mixed), rel=5e-3)
    assert sum(parts) + middle <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lam", "epsilon", "delta", "order", "weights"),
    [
        ([1.0, 0.3], 4.0, 1e-9, 2.0, None),
        ([5.0, 5.0, 0.02], 0.3, 1e-3, 1.0, [1.0, 2.0, 3.0]),
        ([1.0, 1.0, 1.0], 1.0, 1e-3, 3.5, None),
        ([2.0], 1.0, 1e-6, 2.0, None),
    ],
)
def test_never_worse_than_either_type(lam, epsilon, delta, order, weights):
    privacy = md.ApproximateDP(epsilon, delta)
    options = {"loss": order, "weights": weights}
    result = md.NoiseAllocation("mixed", lam, privacy, **options).solve()
    for noise in ("gaussian", "laplace"):
        assert result.value <= one_type(lam, privacy, noise, **options) * (1 + 1e-10)
    assert result.certificate.verify()


@pytest.mark.slow
def test_coordinates_without_change_and_far_smaller_ones():
    lam = [1.0, 0.0, 1e-30, 1e-9]
    result = md.NoiseAllocation("mixed", lam, md.ApproximateDP(5.0, 1e-9)).solve()
    assert result.mechanism.kinds[1] == "none" and result.certificate.verify()
    law = result.mechanism
    assert law.lattice_cost < 1e-3 and law.small < 1e-5
    x = np.array([3.0, 1.5, 0.0, 0.0])
    assert law.release(x)[1] == 1.5 and np.abs(law.release(x) - x)[2] < 1e-8


def test_release_and_samples(mixed):
    law = mixed.mechanism
    assert law.sample(np.zeros((50_000, 21)), rng=0).var(axis=0) == pytest.approx(law.variance, rel=0.1)
    released = law.release(np.zeros((400, 21)))
    assert released.std(axis=0) == pytest.approx(np.sqrt(law.variance), rel=0.3)


def test_small_ones_are_composed_purely():
    """A coordinate of ratio τ far below the others leaves ε − τ to them."""
    law = MixedNoise([1.0, 1e9], [True, True], [1.0, 1.0])
    assert law.small == pytest.approx(1e-9) and len(law.terms()) == 1
    assert composed(law, md.ApproximateDP(1.0 + 2e-9, 1e-30)) == (0.0, True)
    delta, basic = composed(law, md.ApproximateDP(1.0, 1e-8))
    assert basic and delta == pytest.approx(5e-10, rel=1e-4)  # one coordinate: 1 − exp((ε − Δ/β)/2)

"""Laplace noise on several coordinates under δ > 0: private by a sum, whatever the limits, and compared with Gaussian noise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from campaign.noise_oracles import mixed_delta

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.verifier.verify import verify

A = md.ApproximateDP(1.0, 1e-6)
FEW = md.Sensitivity(each=[1.0, 2.0, 3.0], l0=2)


def allocated(noise, lam, privacy=A, **options):
    return md.NoiseAllocation(noise, lam, privacy, **options).solve()


def draw(seed: int):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 8))
    epsilon, delta = float(rng.choice([0.1, 0.3, 1, 2, 4])), float(rng.choice([1e-9, 1e-6, 1e-5, 1e-3]))
    more = {"weights": rng.uniform(0.1, 10, count)} if rng.random() < 0.3 else {}
    lam = rng.lognormal(0, rng.choice([0.3, 1, 2]), count)
    return lam, md.ApproximateDP(epsilon, delta), {"loss": float(rng.choice([1, 2, 3])), **more}


@pytest.mark.parametrize("seed", [11, *(pytest.param(s, marks=pytest.mark.slow) for s in range(12, 24))])
def test_draws(seed):
    """δ of the exact composition, by an oracle, keeps the budget; a mix of types costs no more than either."""
    lam, privacy, more = draw(seed)
    alone, mixed = (allocated(noise, lam, privacy, **more) for noise in ("laplace", "mixed"))
    ratios = lam / alone.mechanism.scales
    assert ratios.sum() == pytest.approx(privacy.epsilon - math.log1p(-privacy.delta), rel=1e-12)
    assert mixed_delta(ratios.tolist(), Fraction(0), privacy.epsilon) <= privacy.delta
    assert mixed.value <= min(alone.value, allocated("gaussian", lam, privacy, **more).value) * (1 + 1e-10)
    assert all(result.certificate.verify() for result in (alone, mixed))


def test_laplace_noise_alone_is_a_mix_that_the_verifier_accepts():
    mixed = allocated("mixed", [1.0, 3.0, 0.0])
    assert mixed.mechanism.kinds == ("laplace", "laplace", "none")
    assert all(holds for *_, holds in verify(dumps(mixed)).rows)


@pytest.mark.parametrize(("lam", "word"), [(np.ones(20), "less"), ([1.0, 3.0], "more")])
def test_a_note_says_whether_gaussian_noise_needs_less(lam, word):
    result, gaussian = allocated("laplace", lam), allocated("gaussian", lam)
    assert (gaussian.value < result.value) == (word == "less")
    said = f"needs {word}: a loss of {gaussian.value:.6g} against {result.value:.6g}"
    assert said in " ".join(result.notes) and "Corollary 6" in str(result.among)


@pytest.mark.parametrize(("lam", "privacy"), [([1.0, 2.0], md.PureDP(1.0)), ([1.0, 0.0], A)])
def test_where_the_condition_is_exact_no_note_speaks_of_others(lam, privacy):
    result = allocated("laplace", lam, privacy)
    assert "Corollary 6" not in str(result.among) + " ".join(result.notes)


@pytest.mark.parametrize(
    "asked",
    [
        {"lower": 1.0},
        {"upper": 1e9},
        {"sensitivities": FEW},
        {"groups": [[0, 1], [2]]},
        {"sensitivities": md.noise.layer_profile([1.0, 2.0], [4, 1], norm=1, noise="laplace")[0]},
    ],
)
def test_limits_groups_layers_and_several_bounds(asked):
    result = allocated("laplace", asked.pop("sensitivities", [1.0, 2.0, 3.0]), **asked)
    assert result.certificate.verify() and all(holds for *_, holds in verify(dumps(result)).rows)
    assert not any("Gaussian" in note for note in result.notes)

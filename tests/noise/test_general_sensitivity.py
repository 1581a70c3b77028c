"""(Δ, Δ₁, Δ₂) for every family: Theorem 8 with all three, against exact accounting of changes that the bounds allow."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mechdesign_studies.noise.flipped_huber_bounds import (
    flipped_huber_sufficient,
    flipped_huber_zcdp,
    zcdp_delta,
)
from scipy import stats

import mechdesign as md
from mechdesign.accounting.interval import delta_interval
from mechdesign.accounting.losses import NoiseTerm
from mechdesign.noise.laws.symmetric import flipped_huber, osgt
from mechdesign.problem.privacy import ApproximateDP
from mechdesign.problem.sensitivity import Sensitivity

PRIVACY = ApproximateDP(1.0, 1e-5)
KNOWN = Sensitivity(linf=1.0, l1=1.8, l2=1.2)


@settings(max_examples=20)
@given(
    st.floats(0.0, 3.0),
    st.floats(0.2, 1.0),
    st.floats(0.5, 4.0),
    st.lists(st.floats(0.05, 1.0), min_size=1, max_size=4),
)
def test_theorem_eight_is_sufficient_for_every_change_that_is_allowed(
    b: float, inverse: float, epsilon: float, change: list[float]
) -> None:
    law, v = flipped_huber(b, scale=3 / inverse), np.array(change)
    known = Sensitivity(
        linf=float(v.max()), l1=float(v.sum()) * (1 + 1e-12), l2=float(np.linalg.norm(v)) * (1 + 1e-12)
    )
    bound = flipped_huber_sufficient(law, known, 6, epsilon)
    assume(1e-200 < bound < 1)
    true = delta_interval([NoiseTerm(law, float(x), 1) for x in v], epsilon)
    assert true.lower <= bound * (1 + 1e-9)
    assert zcdp_delta(flipped_huber_zcdp(law, known, 6), epsilon) >= true.lower * (1 - 1e-9)


def test_one_bound_is_the_box_and_unchanged_coordinates_cost_nothing() -> None:
    law = flipped_huber(0.7, scale=9.0)
    box = flipped_huber_sufficient(law, 1.0, 4, 1.0)
    assert flipped_huber_sufficient(law, Sensitivity(linf=1.0), 4, 1.0) == pytest.approx(box, rel=1e-12)
    assert flipped_huber_sufficient(law, Sensitivity(linf=1.0, l0=4), 40, 1.0) == pytest.approx(
        box, rel=1e-12
    )
    assert flipped_huber_sufficient(law, Sensitivity(linf=1.0, l2=1.0), 4, 1.0) < box
    assert flipped_huber_sufficient(law, KNOWN, 3, 1.0) < flipped_huber_sufficient(law, 1.0, 3, 1.0)


# of a family with a shape, one member of which the scale is chosen: the search over shapes is the same for any sensitivity
@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    ["gaussian", "laplace", "logistic", "staircase", flipped_huber(0.7), stats.gennorm(1.5), osgt(1.0)],
    ids=lambda f: f if isinstance(f, str) else f.dist.name,
)
def test_every_family_takes_all_three(family: object) -> None:
    result = md.calibrate(family, privacy=PRIVACY, sensitivity=KNOWN, dimension=3)
    assert result.certificate.verify()
    assert math.isfinite(result.mechanism.variance)
    assert delta_interval(NoiseTerm(result.mechanism.law, 0.84, 2), 1.0).lower <= PRIVACY.delta


def divergence(law, shift: int, order: float) -> float:
    """D_α of a law and its shift."""
    x = np.arange(-300, 301)
    logs = order * law.logpmf(x) + (1 - order) * law.logpmf(x - shift)
    return math.log(math.fsum(np.exp(logs))) / (order - 1)


@pytest.mark.parametrize(
    ("sensitivity", "most", "changes"),
    [
        (Sensitivity(l2=2), 12.4, [(2,), (1, 1, 1, 1), (1, 1, 1)]),
        (Sensitivity(l2=3.5, linf=2), 39.3, [(2, 2, 2), (2, 2, 1, 1, 1, 1), (1,) * 12]),
    ],
)
def test_zero_concentrated_noise_is_held_to_whole_changes(sensitivity, most, changes):
    """Was: variances of 151, as if each of 20 numbers moved by 2 where the change has length 2 or 3.5."""
    privacy = md.ZeroConcentratedDP(0.5)
    result = md.calibrate("discrete_laplace", privacy=privacy, sensitivity=sensitivity, dimension=20)
    assert result.mechanism.variance < most and result.certificate.verify()
    for change, order in itertools.product(changes, (1.01, 1.5, 3.0, 10.0, 100.0)):
        lost = sum(divergence(result.mechanism.law, shift, order) for shift in change)
        assert lost <= privacy.rho * order * (1 + 1e-9)

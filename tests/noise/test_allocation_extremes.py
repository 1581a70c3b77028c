"""Allocations at the ends of what may be asked: high orders, δ near 1, ε near 0, empty groups, hopeless units."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.errors import DesignError
from mechdesign.noise.vector_noise import IndependentNoise

BUDGETS = {"laplace": md.PureDP(3.0), "gaussian": md.ApproximateDP(1.0, 1e-6)}


@pytest.mark.slow
@pytest.mark.parametrize("noise", BUDGETS)
@given(order=st.floats(0.05, 60), ends=st.tuples(st.floats(-3, 3), st.floats(-3, 3)), limited=st.booleans())
def test_a_fresh_allocation_of_any_order_passes_its_own_checks(noise, order, ends, limited):
    limits = {"lower": 1e-3} if limited else {}
    sensitivities = np.logspace(min(ends), max(ends), 12)
    result = md.NoiseAllocation(noise, sensitivities, BUDGETS[noise], loss=order, **limits).solve()
    assert result.certificate.verify()
    assert result.lower_bound <= result.value <= result.lower_bound * (1 + 1e-9)


@pytest.mark.slow
@given(
    st.floats(-300, 2.8).map(lambda e: 10.0**e),
    st.floats(-15.9, -1).map(lambda e: 1 - 10.0**e) | st.just(1e-6),
)
def test_gaussian_noise_passes_its_own_checks_where_the_requirement_is_extreme(epsilon, delta):
    privacy = md.ApproximateDP(epsilon, delta)
    allocated = md.NoiseAllocation("gaussian", [1.0, 2.0], privacy).solve()
    matrix = md.MatrixMechanism(md.Workload.identity(2), privacy).solve()
    assert allocated.certificate.verify()
    assert matrix.certificate.verify()
    single = md.NoiseAllocation("gaussian", [1.0], privacy).solve()
    assert md.MatrixMechanism(md.Workload.identity(1), privacy).solve().value == pytest.approx(
        single.value, rel=1e-10
    )


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"loss": 1e6}, "loss"),
        ({"lower": 1e300}, "lower"),
        ({"groups": [[], [0, 1]]}, "empty group"),
        ({"sensitivities": [1e-300, 1.0]}, "another unit"),
        ({"sensitivities": [1e300, 1e300]}, "another unit"),
        ({"weights": [1.0, 0.0]}, "positive"),
        ({"weights": [1.0, -1.0]}, "positive"),
    ],
)
@pytest.mark.parametrize("noise", ["laplace", "gaussian", "mixed"])
def test_what_cannot_be_computed_is_refused_at_once(noise, changes, named):
    asked = {"sensitivities": [1.0, 2.0], "privacy": md.ApproximateDP(1.0, 1e-6), **changes}
    with pytest.raises(DesignError, match=named if noise != "mixed" else "."):
        md.NoiseAllocation(noise, **asked)


def test_a_budget_below_what_doubles_hold_is_refused():
    privacy = md.ApproximateDP(1e-300, 1e-300)
    with pytest.raises(DesignError, match="larger delta"):
        md.NoiseAllocation("gaussian", [1.0, 2.0], privacy)
    with pytest.raises(DesignError, match="larger delta"):
        md.MatrixMechanism(md.Workload.prefix_sums(3), privacy).solve()


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_an_infinite_upper_limit_is_none(noise) -> None:
    """Its margin is infinite, which proves nothing: the certificate did not verify."""
    privacy = md.PureDP(1) if noise == "laplace" else md.ApproximateDP(1, 1e-3)
    plain = md.NoiseAllocation(noise, [1.0, 2.0], privacy).solve()
    for upper in (np.inf, [np.inf, np.inf], [np.inf, 1e4]):
        result = md.NoiseAllocation(noise, [1.0, 2.0], privacy, upper=upper).solve()
        assert result.certificate.verify() and result.checks()["holds"].all()
        assert result.value == pytest.approx(plain.value, rel=1e-9)


def test_noise_of_a_profile_of_another_shape_is_refused() -> None:
    for bad in ([1.0], [1.0, -1.0], [1.0, np.inf], [1.0, np.nan]):
        with pytest.raises(md.DesignError, match="sensitivities"):
            IndependentNoise("laplace", np.ones(2), np.array(bad))


@pytest.mark.filterwarnings("error")
def test_a_release_of_huge_answers_does_not_warn() -> None:
    law = md.NoiseAllocation("laplace", [1.0, 2.0, 0.0], md.PureDP(1)).solve().mechanism
    assert law.release([1e300, -1e300, 0.0])[:2].tolist() == [1e300, -1e300]


@pytest.mark.parametrize("groups", [[[0.5], [1, 2]], [[0], [True, 2.7]], [[True], [1, 2]]])
def test_groups_are_of_whole_indices(groups):
    """They were cut to whole numbers."""
    with pytest.raises(md.DesignError, match="must be lists of coordinate indices"):
        md.NoiseAllocation("laplace", [1.0, 1.0, 2.0], md.PureDP(1.0), groups=groups)

"""Allocation under several bounds at once: against every corner, against programs declared otherwise, and at extremes."""

from __future__ import annotations

import itertools

import cvxpy as cp
import numpy as np
import pytest

import mechdesign as md

S = md.Sensitivity
PURE, NEAR = md.PureDP(0.8), md.ApproximateDP(1.0, 1e-6)
EACH = [1.0, 2.0, 3.0, 4.0, 0.1, 0.0, 0.5, 2.0]
PRIVACY = {"laplace": PURE, "gaussian": NEAR}
POWER = {"laplace": 1, "gaussian": 2}


def spent(result, v: np.ndarray) -> np.ndarray:
    scales = np.where(result.mechanism.scales > 0, result.mechanism.scales, 1.0)
    return ((np.abs(v) / scales) ** result.design.spend).sum(axis=-1)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize(("l0", "loss"), [(1, 1), (2, 2), (3, 3.5), (6, 2)])
def test_few_of_many_against_sums_of_the_largest(noise, l0, loss):
    """The same convex program with CVXPY's own top-c sum; and every corner spends at most the budget, one of them all of it."""
    weights = np.linspace(1.0, 2.5, len(EACH))
    design = md.NoiseAllocation(noise, S(each=EACH, l0=l0), PRIVACY[noise], loss=loss, weights=weights)
    result = design.solve()
    assert result.status == "best of its class" and result.certificate.verify()
    assert result.design.spent(result).sum() <= 1
    moved, m = np.flatnonzero(EACH), POWER[noise]
    corners = [
        np.isin(np.arange(len(EACH)), some) * np.array(EACH) for some in itertools.combinations(moved, l0)
    ]
    most = spent(result, np.array(corners)).max()
    assert most <= design.budget * (1 + 1e-13) and most == pytest.approx(design.budget, rel=1e-12)
    u = cp.Variable(len(moved))  # log scales over those found: well conditioned
    losses = weights[moved] * result.mechanism.scales[moved] ** loss
    ratio = (np.array(EACH)[moved] / result.mechanism.scales[moved]) ** m / design.budget
    shares = cp.multiply(ratio, cp.exp(-m * u))
    program = cp.Problem(
        cp.Minimize(losses / losses.sum() @ cp.exp(loss * u)), [cp.sum_largest(shares, l0) <= 1]
    )
    program.solve(solver="CLARABEL", **dict.fromkeys(("tol_gap_rel", "tol_feas"), 1e-10))
    assert result.value == pytest.approx(result.value * program.value, rel=1e-7)


def test_one_of_several_numbers_is_one_number():
    """Where one coordinate changes, the (ε, δ) condition of one Laplace coordinate is exact: each gets its own least noise."""
    result = md.NoiseAllocation("laplace", S(each=[1.0, 4.0], l0=1), NEAR).solve()
    alone = [md.NoiseAllocation("laplace", [a], NEAR).solve().mechanism.scales[0] for a in (1.0, 4.0)]
    assert result.mechanism.scales == pytest.approx(alone, rel=1e-12)
    assert any("exact" in note for note in result.notes)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("bounds", [{"l0": 1}, {"l2": 1e100}, {"l0": 2, "l1": 1e90}])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_bounds_hundreds_of_digits_apart_are_answered_and_proved(
    noise: str, bounds: dict[str, float]
) -> None:
    privacy = md.PureDP(1.0) if noise == "laplace" else md.ZeroConcentratedDP(0.5)
    for power in (60, 140):
        each = [10.0**-power, 1.0, 10.0**power]
        result = md.NoiseAllocation(noise, S(each=each, **bounds), privacy).solve()
        assert result.certificate.verify() and result.value <= result.lower_bound * (1 + 1e-9)


def test_few_coordinates_of_one_length_cost_their_sum():
    result = md.NoiseAllocation("laplace", S(each=[2.0] * 12, l0=4, l2=2.5), PURE).solve()
    assert result.value == pytest.approx(2 * 12 * (4 * 2.5**2) / PURE.epsilon**2, rel=1e-5)
    assert result.gap < 1e-5 and result.certificate.verify()


@pytest.mark.slow
@pytest.mark.parametrize(
    "bounds", [{"l0": 250, "l1": 0.6, "l2": 0.8}, {"l1": 0.6, "l2": 0.8}, {"l0": 250, "l1": 0.6}]
)
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_a_thousand_coordinates_of_any_sizes_are_answered(noise, bounds):
    each = np.exp(1.5 * np.random.default_rng(1000).normal(size=1000))
    top = np.sort(each)[-250:]
    stated = {k: v if k == "l0" else v * float(np.linalg.norm(top, int(k[1]))) for k, v in bounds.items()}
    result = md.NoiseAllocation(noise, S(each=each, **stated), PRIVACY[noise]).solve()
    assert result.gap < 1e-6 and result.certificate.verify()

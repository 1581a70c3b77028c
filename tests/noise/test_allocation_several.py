"""Allocation under several bounds at once: against every corner, against programs declared otherwise, and at extremes."""

from __future__ import annotations

import itertools

import cvxpy as cp
import numpy as np
import pytest

import mechdesign as md
from mechdesign.noise.allocation.several_model import largest_spent

S = md.Sensitivity
PURE, NEAR = md.PureDP(0.8), md.ApproximateDP(1.0, 1e-6)
EACH = [1.0, 2.0, 3.0, 4.0, 0.1, 0.0, 0.5, 2.0]
PRIVACY = {"laplace": PURE, "gaussian": NEAR}
POWER = {"laplace": 1, "gaussian": 2}


def changes(s: S, rng: np.random.Generator, number: int = 400) -> np.ndarray:
    """Changes within all the bounds, pushed to their border."""
    each = np.minimum(np.array(s.each), min(b for b in (s.linf, s.l1, s.l2, np.inf) if b is not None))
    found = []
    for _ in range(number):
        v = np.zeros(len(each))
        count = min(s.l0 or len(each), len(each))
        places = rng.permutation(np.flatnonzero(each))[:count]
        v[places] = each[places] * rng.choice([1.0, rng.random()], size=len(places))
        over = max(1.0, v.sum() / (s.l1 or np.inf), np.linalg.norm(v) / (s.l2 or np.inf))
        v /= over * (1 + 1e-15)
        # greedily up to its bounds again
        for i in rng.permutation(places):
            room = each[i] - v[i]
            if s.l1 is not None:
                room = min(room, s.l1 - v.sum())
            if s.l2 is not None:
                room = min(room, np.sqrt(max(s.l2**2 - (v**2).sum() + v[i] ** 2, 0.0)) - v[i])
            v[i] += max(room, 0.0) * (1 - 1e-12)
        found.append(v)
    return np.array(found)


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


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize(
    "more",
    [{"l1": 4.0}, {"l1": 5.0, "l2": 3.5}, {"l0": 3, "l2": 5.0}, {"l0": 4, "l1": 8.0, "l2": 5.0, "linf": 3.5}],
)
def test_every_change_keeps_the_budget(noise, more):
    s = S(each=EACH, **more)
    result = md.NoiseAllocation(noise, s, PRIVACY[noise], loss=1).solve()
    budget, m = result.design.budget, POWER[noise]
    assert result.certificate.verify() and result.checks()["holds"].all()
    assert spent(result, changes(s, np.random.default_rng(1))).max() <= budget * (1 + 1e-12)
    exact = result.design.changes.exact
    assert exact == ("l0" not in more and (noise == "laplace" or "l1" not in more))
    assert result.status == "best of its class"
    assert exact == ("prices" not in str(result.certificate.among))
    declared = md.NoiseAllocation(noise, s, PRIVACY[noise], loss=1).solve("clarabel")
    assert declared.value == pytest.approx(result.value, rel=1e-6) and declared.certificate.verify()
    plain = md.NoiseAllocation(noise, EACH, PRIVACY[noise], loss=1).solve()
    assert result.lower_bound <= result.value <= plain.value * (1 + 1e-9)
    # identical noise: the largest norm, as `Sensitivity` knows it, is below its bound here
    norm = s.largest_l1(len(EACH)) if m == 1 else s.largest_l2(len(EACH))
    assert largest_spent(result.design.changes, np.ones(len(EACH)))[0] >= norm**m * (1 - 1e-9)


@pytest.mark.parametrize(
    ("noise", "more"), [("gaussian", {"l2": 3.0}), ("laplace", {"l2": 3.0}), ("laplace", {"l1": 3.0})]
)
def test_one_norm_is_spent_exactly(noise, more):
    """Against the convex program of the worst change itself, at the best scales and at others."""
    s, rng = S(each=EACH, **more), np.random.default_rng(3)
    result = md.NoiseAllocation(noise, s, PRIVACY[noise]).solve()
    each = np.minimum(EACH, min(more.values()))
    for scales in (
        result.mechanism.scales,
        result.mechanism.scales * rng.uniform(0.5, 2, len(EACH)) + (each == 0),
    ):
        y = cp.Variable(len(each), nonneg=True)  # |v| or v²
        gain = np.where(each > 0, 1 / np.where(each > 0, scales, 1.0), 0.0) ** POWER[noise]
        limit = {("laplace", "l1"): cp.sum(y), ("laplace", "l2"): cp.norm(y), ("gaussian", "l2"): cp.sum(y)}
        (name, bound), power = next(iter(more.items())), POWER[noise]
        program = cp.Problem(
            cp.Maximize(gain @ y),
            [y <= each**power, limit[noise, name] <= bound ** (power if noise == "gaussian" else 1)],
        )
        program.solve(solver="CLARABEL")
        most = largest_spent(result.design.changes, scales)[0]
        assert most == pytest.approx(program.value, rel=1e-7)
        assert most >= program.value * (1 - 1e-9)


def test_one_of_several_numbers_is_one_number():
    """Where one coordinate changes, the (ε, δ) condition of one Laplace coordinate is exact: each gets its own least noise."""
    result = md.NoiseAllocation("laplace", S(each=[1.0, 4.0], l0=1), NEAR).solve()
    alone = [md.NoiseAllocation("laplace", [a], NEAR).solve().mechanism.scales[0] for a in (1.0, 4.0)]
    assert result.mechanism.scales == pytest.approx(alone, rel=1e-12)
    assert any("exact" in note for note in result.notes)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_lattice_is_paid_for(noise):
    """Rounding moves each changed coordinate by two steps at most: no change then spends more than the budget."""
    s = S(each=[1e-4, 1.0, 3.0], l2=3.0)
    result = md.NoiseAllocation(noise, s, PRIVACY[noise]).solve()
    law, m, h = result.mechanism, POWER[noise], 2.0**-30
    wider = 1 + law.lattice_cost
    for v in changes(s, np.random.default_rng(0)):
        v = v + (v > 0) * 2 * h * law.scales
        assert ((v / law.scales / wider) ** m).sum() <= result.design.budget * (1 + 1e-12)


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


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"l1": 0.1}, {"l0": 0.2, "l1": 0.1}])
def test_many_coordinates_of_any_sizes_are_proved(more):
    each = np.exp(np.random.default_rng(0).normal(size=5000))
    stated = {k: round(v * 5000) if k == "l0" else v * each.sum() for k, v in more.items()}
    result = md.NoiseAllocation("gaussian", S(each=each, **stated), NEAR).solve()
    assert result.gap < 1e-6 and result.certificate.verify()


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

"""The selection family as blocks, and successive linearisation: identities, an exhaustive oracle, certificates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from independent import check_selection_law
from scipy import stats
from scipy.optimize import linprog

import mechdesign as md
from mechdesign.evidence.exact import exp_lower

UNIFORM = stats.uniform(-1, 2)


def best_of_four_bins(near: float, far: float, epsilon: float, shares: np.ndarray) -> float:
    """Oracle: for fixed q_2 the problem is a linear program in q_3; scan q_2(1). Uniform inputs, absolute loss.

    Written from § 2 of the specification for bins ±near, ±far: unknowns q_3(1..3) and one floor per mirrored pair.
    """
    b = np.array([-far, -near, near, far])
    rho = math.exp(epsilon)

    def outer_rows(x: float) -> np.ndarray:
        """p(x, ·) on [−1, −near) as rows in q_3: the left index is 1 for sure, r = 2, 3, 4 has q_3(5 − r)."""
        rows = np.zeros((4, 3))
        for r in (1, 2, 3):
            share = (b[r] - x) / (b[r] - b[0])
            rows[0, 3 - r] += share
            rows[r, 3 - r] += 1 - share
        return rows

    cost = np.zeros(3)
    for r in (1, 2, 3):  # ∫ 2 (x − B_1)(B_r − x)/(B_r − B_1) dx/2 over [−1, −near], and its mirror image
        cost[3 - r] = 2 * _integral(b[0], b[r], -1.0, -near) / (b[r] - b[0])
    best = math.inf
    for share in shares:
        q = np.array([share, 1 - share])  # of the far and of the near bin, both sides alike
        centre, value = np.zeros((2, 4)), 0.0
        for i in (0, 1):
            for r in (0, 1):
                low, high, weight = b[i], b[3 - r], q[i] * q[r]
                value += weight * _integral(low, high, -near, near) / (high - low)
                for k, x in enumerate((-near, near)):
                    centre[k, i] += weight * (high - x) / (high - low)
                    centre[k, 3 - r] += weight * (x - low) / (high - low)
        matrix, rhs = [], []
        for x in (-1.0, -near):
            for i, row in enumerate(outer_rows(x)):
                pair = min(i, 3 - i)
                for sign, factor in ((1.0, rho), (-1.0, 1.0)):
                    line = np.zeros(5)
                    line[:3] = sign * row
                    line[3 + pair] = -sign * factor
                    matrix.append(line)
                    rhs.append(0.0)
        for row in centre:
            for i, p in enumerate(row):
                for sign, factor in ((1.0, rho), (-1.0, 1.0)):
                    line = np.zeros(5)
                    line[3 + min(i, 3 - i)] = -sign * factor
                    matrix.append(line)
                    rhs.append(-sign * p)
        answer = linprog(
            np.append(cost, [0, 0]), A_ub=matrix, b_ub=rhs, A_eq=[[1, 1, 1, 0, 0]], b_eq=[1], method="highs"
        )
        if answer.status == 0:
            best = min(best, answer.fun + value)
    return best


def _integral(low: float, high: float, start: float, end: float) -> float:
    """∫ (x − low)(high − x) dx from start to end: twice the mean of 2 (…)(…) against the density 1/2 is taken by the caller."""

    def primitive(x: float) -> float:
        return -(x**3) / 3 + (low + high) * x * x / 2 - low * high * x

    return primitive(end) - primitive(start)


@pytest.mark.slow
@pytest.mark.parametrize(("near", "far", "epsilon"), [(0.4, 6.0, 0.5), (0.5, 3.0, 1.0), (0.5, 3.0, 1.5)])
def test_four_bins_against_an_exhaustive_scan(near: float, far: float, epsilon: float) -> None:
    """The global optimum of the family, by a scan over its only product; at most the paper's program's value."""
    bins = [-far, -near, near, far]
    found = md.OPTM(bins, md.PureDP(epsilon), UNIFORM, bounds="successive").solve()
    coarse = best_of_four_bins(near, far, epsilon, np.linspace(0.005, 0.995, 199))
    assert found.value <= coarse * (1 + 1e-6)
    share = found.to_frame().query("side == 'left' and interval == 2 and bin == 1")["probability"].item()
    fine = best_of_four_bins(near, far, epsilon, share + np.linspace(-0.005, 0.005, 41))
    assert found.value == pytest.approx(fine, rel=1e-5)
    assert found.value <= md.OPTM(bins, md.PureDP(epsilon), UNIFORM).solve().value
    assert found.mechanism.privacy_loss() <= epsilon and check_selection_law(
        found.mechanism.law, exp_lower(epsilon)
    )


def test_a_callable_loss_is_minimised_itself() -> None:
    """As a callable, |t| gives the same mechanism's loss as its closed form."""
    bins, privacy = np.linspace(-2, 2, 6), md.PureDP(1.5)
    closed = md.OPTM(bins, privacy, UNIFORM).solve()
    called = md.OPTM(bins, privacy, UNIFORM, lambda t: np.abs(t)).solve()
    assert called.value == pytest.approx(closed.value, rel=1e-5)
    power = md.OPTM(bins, privacy, UNIFORM, lambda t: np.abs(t) ** 1.5).solve()
    assert power.value <= closed.mechanism.expected_loss(UNIFORM, lambda t: np.abs(t) ** 1.5) * (1 + 1e-9)


def test_a_shared_floor_compares_across_outputs() -> None:
    """The authors' stricter program, beyond four bins: every largest probability against every smallest."""
    bins = [-4.0, -1.0, 0.2, 0.6, 4.0]
    strict = md.OPTM(bins, md.PureDP(2.0), UNIFORM, constraints="across-outputs").solve()
    low, high = strict.mechanism.extremes()
    assert high.max() / low.min() <= math.exp(2.0) * (1 + 1e-9)
    assert strict.value >= md.OPTM(bins, md.PureDP(2.0), UNIFORM).solve().value


def test_infeasible_exactly_where_nothing_is_unbiased() -> None:
    bins = [-1.5, -0.5, 0.0, 0.5, 1.5]
    with pytest.raises(md.InfeasibleError, match=r"smallest feasible epsilon is 1\.60943791") as caught:
        md.OPTM(bins, md.PureDP(1.6), UNIFORM).solve()
    assert caught.value.smallest_epsilon == pytest.approx(math.log(5))
    assert md.OPTM(bins, md.PureDP(1.61), UNIFORM).solve().mechanism.privacy_loss() <= 1.61
    with pytest.raises(md.DesignError, match="outputs = 2: must be an integer of at least 4"):
        md.OPTM(bins, md.PureDP(2.0), UNIFORM).solve(outputs=2)


def test_outputs_that_are_hardly_ever_drawn_but_needed() -> None:
    """The inner pair alone is a hair over budget; the outer one is drawn once in ten million times and mends it."""
    near = (1 - 1e-8) / math.tanh(0.125)
    result = md.OPTM(
        [-2 * near, -near, near, 2 * near], md.PureDP(0.25), UNIFORM, bounds="successive"
    ).solve()
    assert result.mechanism.privacy_loss() <= 0.25
    assert result.value == pytest.approx(near - 1 / (3 * near), rel=1e-5)
    assert 0 < result.mechanism.extremes()[1][0] < 1e-5


def test_the_audit_has_the_program_with_its_multipliers() -> None:
    """Every limit against its floor; multipliers only where a limit is active, and the costs of privacy add up."""
    result = md.OPTM(np.linspace(-2, 2, 6), md.PureDP(1.5), UNIFORM).solve()
    audit = result.audit()
    model = audit[audit["family"].str.startswith("model")]
    assert set(model["family"]) == {"model: floor", "model: ceiling"}
    assert (model["slack"] >= -1e-12).all() and model["index"].str.match(r"p\(-?[\d.]+[+-], \d\)").all()
    ceiling = model[model["family"] == "model: ceiling"]
    assert (ceiling.loc[ceiling["dual"] > 1e-6, "slack"] <= 1e-6).all()
    priced = float((ceiling["dual"] * ceiling["rhs"]).sum())
    more = md.OPTM(np.linspace(-2, 2, 6), md.PureDP(1.501), UNIFORM).solve()
    assert (result.value - more.value) / 1e-3 == pytest.approx(priced, rel=0.02)

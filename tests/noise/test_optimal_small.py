"""Optimal noise at small ε and large δ: answers at once, known laws, bounds from groups of changes."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.errors import DesignError
from mechdesign.evidence import verify
from mechdesign.evidence.serialize import dumps
from mechdesign.noise.optimal.grouped import grouped_delta
from mechdesign.noise.optimal.named import named_laws
from mechdesign.noise.optimal.question import Question
from mechdesign.noise.optimal.spline import plain_spread, spread_bound
from mechdesign.problem.losses import Loss

losses = st.sampled_from(["absolute", "squared", {"absolute": 1.0, "squared": 3.0}])


def truncated_laplace(epsilon: float, delta: float, loss: str) -> float:
    """Its cost at Δ = 1, by quadrature."""
    top = math.log1p(math.expm1(epsilon) / (2 * delta)) / epsilon
    t = (np.arange(200_000) + 0.5) / 200_000 * top
    density = np.exp(-epsilon * t)
    return float((t if loss == "absolute" else t * t) @ density / density.sum())


@pytest.mark.parametrize(
    "epsilon, delta, loss, most",
    [
        (3e-4, 0.8, "squared", 0.109),
        (2.33e-4, 0.507, "absolute", 0.494),
        (3.24e-4, 0.811, "squared", 0.1033),
        (3.9e-4, 1e-4, "absolute", 1143.0),
        (1.07e-3, 1.9e-7, "squared", 1.7234e6),
        (1e-3, 0.9, "absolute", 0.1001),
        (1.4e-5, 0.0011, "absolute", 226.4),
        (1e-4, 1e-6, "squared", 1.54e8),
    ],
)
def test_a_limit_costs_nothing(epsilon: float, delta: float, loss: str, most: float) -> None:
    """With a limit of 3 s the first took 48 s and returned 4e6 with the bound 0."""
    result = md.OptimalNoise(md.ApproximateDP(epsilon, delta), loss=loss).solve(time_limit=60.0)
    assert result.value <= most and result.gap <= 0.01 and result.certificate.verify()
    assert result.law.exact_delta(epsilon) <= Fraction(delta)


@settings(max_examples=15)
@given(st.floats(-5.0, 0.3), st.floats(-6.0, -0.01), losses, st.sampled_from([1e-3, 1.0, 700.0]))
def test_named_laws_are_private_and_above_every_bound(
    log_epsilon: float, log_delta: float, loss: object, sensitivity: float
) -> None:
    epsilon, delta, held = 10**log_epsilon, 10**log_delta, Loss.of(loss)
    question = Question(held, sensitivity, epsilon, delta, 0.01, None, "centred")
    found = list(named_laws(question, 20_000))
    assert found
    for value, law in found:
        assert law.exact_delta(epsilon) <= Fraction(delta)
        assert Fraction(law.width) * law.cells_per_shift >= Fraction(sensitivity)
        assert float(value) == pytest.approx(law.expected_loss(held), rel=1e-6)
        plain = plain_spread(held, sensitivity, epsilon)
        assert 0 < spread_bound(plain, held, sensitivity=sensitivity, epsilon=epsilon, delta=delta) <= value


@pytest.mark.parametrize("loss", ["absolute", "squared"])
@pytest.mark.parametrize("epsilon, delta", [(1e-3, 1e-5), (1e-2, 1e-4), (1e-4, 1e-3)])
def test_wide_cells_are_truncated_laplace_noise(epsilon: float, delta: float, loss: str) -> None:
    question = Question(Loss.of(loss), 1.0, epsilon, delta, 0.01, None, "centred")
    best = min(value for value, _ in named_laws(question, 10**5))
    assert float(best) == pytest.approx(truncated_laplace(epsilon, delta, loss), rel=2e-3)


@pytest.mark.parametrize("delta", [0.6, 0.8, 0.95])
def test_no_epsilon_at_all(delta: float) -> None:
    """At ε = 0 the optimum for |t| is 1 - δ: every interval of length Δ holds at most δ, and a spike reaches that."""
    result = md.OptimalNoise(md.ApproximateDP(1e-9, delta)).solve()
    assert result.lower_bound <= 1 - delta <= result.value * (1 + 1e-9)
    assert result.value == pytest.approx(1 - delta, rel=2e-3) and result.gap < 0.01


@given(st.floats(1e-9, 3.0), st.floats(0.0, 0.5), st.integers(0, 5))
def test_the_delta_of_a_group_is_the_sum(epsilon: float, delta: float, power: int) -> None:
    size = 2**power
    expected = delta * math.fsum(math.exp(k * epsilon) for k in range(size))
    found = grouped_delta(epsilon, delta, size)
    assert found == pytest.approx(expected, rel=1e-12) and found >= expected * (1 - 1e-13)


def test_groups_are_checked_twice(tmp_path: Path) -> None:
    """What a group proves is accepted by package and stand-alone verifier; other groups with the same numbers are not."""
    result = md.OptimalNoise(md.ApproximateDP(1e-3, 1e-4), 3.0, "squared").solve()
    c = result.certificate
    assert c.grouped > 1
    cases = [
        (c, True),
        (replace(c, grouped=2 * c.grouped), False),
        (replace(c, lower_bound=c.lower_bound * Fraction(10**6 + 1, 10**6)), False),
    ]
    for evidence, sound in cases:
        held = replace(result, lower_bound=float(evidence.lower_bound), certificate=evidence)
        assert held.checks()["holds"].all() == sound
        (tmp_path / "r.json").write_text(dumps(held))
        assert (verify.main([str(tmp_path / "r.json")]) == 0) == sound
    for size in (0, 3, 2**60):
        with pytest.raises(DesignError, match="grouped"):
            replace(c, grouped=size)


@pytest.mark.parametrize("loss", ["absolute", "squared"])
@pytest.mark.parametrize("epsilon, delta", [(1e-6, 0.9999), (0.3, 0.999), (20.0, 0.9999), (50.0, 0.5)])
def test_no_bound_is_zero(epsilon: float, delta: float, loss: str) -> None:
    result = md.OptimalNoise(md.ApproximateDP(epsilon, delta), loss=loss).solve(time_limit=1e-3)
    assert 0 < result.lower_bound <= result.value < 1 and result.certificate.verify()


@pytest.mark.parametrize("epsilon", [5e-324, 1e-300, 1e-100, 1e-19])
@pytest.mark.parametrize("privacy", [md.PureDP, lambda epsilon: md.ApproximateDP(epsilon, 0.5)])
def test_a_budget_too_small_for_the_arithmetic_is_refused_by_its_name(epsilon: float, privacy: Any) -> None:
    with pytest.raises(md.DesignError, match=f"epsilon = {epsilon!r}: must be at least 1e-18"):
        md.OptimalNoise(privacy(epsilon), 1, "squared").solve()
    assert md.OptimalNoise(privacy(1e-18), 1, "squared").solve(time_limit=1).certificate.verify()


@pytest.mark.parametrize("privacy", [md.ApproximateDP(1.0, 1e-6), md.PureDP(1.0)], ids=str)
@pytest.mark.parametrize("dimension", [1, 3])
def test_a_unit_in_which_doubles_do_not_hold_the_loss_is_refused(privacy: Any, dimension: int) -> None:
    """An OverflowError, a value of infinity, or 5e-324 with a lower bound of 0; the last unit that is taken has an answer."""
    for loss, far in (
        ("squared", 1.1e100),
        ("absolute", 1e101),
        ({"absolute": 1.0, "squared": 1e300}, 1.0),
        (abs, 1e101),
    ):
        for bad in (far, 1e155, 1e300, 1e-200, 1e-150, 5e-324):
            with pytest.raises(DesignError, match=r"sensitivity = .*choose another unit"):
                md.OptimalNoise(privacy, bad, loss=loss, dimension=dimension if loss is not abs else 1)
    for loss, edge in (
        ("squared", 0.99e100),
        ("squared", 1.01e-100),
        ("absolute", 1e100),
        ("absolute", 1e-100),
    ):
        one = md.OptimalNoise(privacy, edge, loss=loss).solve(gap=0.1)
        unit = md.OptimalNoise(privacy, 1.0, loss=loss).solve(gap=0.1)
        assert one.certificate.verify()
        assert one.value == pytest.approx(unit.value * edge ** (2 if loss == "squared" else 1), rel=0.1)

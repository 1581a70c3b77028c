"""The published mechanisms: stated errors against runs, budgets that are kept, modular sums, sampled coordinates."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mechdesign_studies.vectors.baselines import (
    SQKR,
    DistributedDiscreteGaussian,
    InterpolatedMVU,
    PoissonBinomial,
    Skellam,
)
from mechdesign_studies.vectors.baselines.common import ORDERS
from scipy import special, stats

import mechdesign as md

V = md.vectors
PURE, APPROX = md.PureDP(4.0), md.ApproximateDP(4.0, 1e-6)
MADE: dict[str, Any] = {
    "sqkr": (lambda: SQKR(64, PURE, bits=8), 100),
    "sqkr, many": (lambda: SQKR(16, PURE, bits=3, clients=400, radius=2.0), 20),
    "sqkr, signs": (lambda: SQKR(64, PURE, bits=8, representation="rotation"), 100),
    "sqkr, signs, many": (
        lambda: SQKR(16, PURE, bits=3, clients=400, radius=2.0, representation="rotation"),
        20,
    ),
    "skellam": (lambda: Skellam(32, APPROX, bits=16, clients=20, radius=0.5), 60),
    "skellam, local": (lambda: Skellam(32, APPROX, bits=12), 60),
    "gaussian": (lambda: DistributedDiscreteGaussian(32, APPROX, bits=16, clients=20), 60),
    "binomial": (lambda: PoissonBinomial(32, APPROX, trials=8, clients=20), 60),
    "binomial, local": (lambda: PoissonBinomial(32, APPROX, trials=1), 60),
    "i-mvu": (lambda: InterpolatedMVU(64, APPROX), 100),
}


@pytest.mark.parametrize("name", MADE)
def test_errors_are_those_of_runs(name: str) -> None:
    """Discrete sums state an upper bound (a rounding adds at most 1/4), the others the error."""
    make, runs = MADE[name]
    baseline = make()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(baseline.clients, baseline.dimension))
    x *= baseline.radius / np.sqrt((x**2).sum(axis=1, keepdims=True))
    errors = np.array([((baseline.sample(x, rng=rng) - x.mean(axis=0)) ** 2).sum() for _ in range(runs)])
    # The discrete ones state the variance, to which the vectors' own part is below: a few per cent.
    allowed = 4 * errors.std(ddof=1) / math.sqrt(runs) + 0.08 * baseline.error
    assert abs(errors.mean() - baseline.error) <= allowed


@pytest.mark.parametrize(
    "kind", [SQKR, Skellam, DistributedDiscreteGaussian, PoissonBinomial, InterpolatedMVU]
)
def test_bad_arguments(kind: Any) -> None:
    privacy = PURE if kind is SQKR else APPROX
    for changes in ({"dimension": 1}, {"clients": 0}, {"privacy": APPROX if kind is SQKR else PURE}):
        with pytest.raises(md.DesignError):
            kind(**{"dimension": 8, "privacy": privacy, **changes})
    baseline = kind(8, privacy)
    with pytest.raises(md.DesignError, match="SphereQuantizer"):
        baseline.release(np.zeros((1, 8)))
    for bad in ([math.nan] * 8, [2.0] + [0.0] * 7, np.zeros((2, 8)), np.zeros(7), "a"):
        with pytest.raises(md.DesignError):
            baseline.sample(bad)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 32), st.integers(1, 9), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_masks_cancel(bits: int, d: int, clients: int, seed: int) -> None:
    sums, half = V.ModularSum(d, bits), 1 << (bits - 1)
    x = np.random.default_rng(seed).integers(-half, half, (clients, d))
    masks = sums.masks(clients)
    total = sums.total([sums.masked(row, mask) for row, mask in zip(x, masks)])
    assert np.array_equal(total, np.mod(x.sum(axis=0), 1 << bits))
    small = np.mod(x[0], 1 << bits)
    assert np.array_equal(sums.centred(small), x[0])


def test_sums_refuse_nonsense() -> None:
    sums = V.ModularSum(3, 8)
    for bad in ([b"ab"], b"abc", ["abc"], [None]):
        with pytest.raises(md.DesignError):
            sums.total(bad)  # type: ignore[arg-type]
    for x in ([1.0, 2.0, 3.0], [1, 2], "a"):
        with pytest.raises(md.DesignError):
            sums.masked(x, [0, 0, 0])
    with pytest.raises(md.DesignError):
        sums.centred([256, 0, 0])


def test_a_coordinate_over_its_budget_is_refused() -> None:
    over = md.SampledCoordinates(10, 1, md.PureDP(1.0 + 1e-9)).coordinate
    with pytest.raises(md.DesignError, match="lose at most"):
        md.SampledCoordinates(10, 1, md.PureDP(1.0), count=1, coordinate=over)
    with pytest.raises(md.DesignError, match="bits"):
        md.SampledCoordinates(10, 1, md.PureDP(1.0), count=2)


def test_the_best_of_all_is_chosen() -> None:
    """Many bits: the simplex. One bit of a box: a coordinate."""
    result = md.VectorQuantizer(300, md.PureDP(4.0), bits=6).solve()
    assert isinstance(result.mechanism, md.SphereQuantizer) and result.mechanism.bits == 6
    table = result.trials()
    assert table["error"].is_monotonic_increasing and result.value == table["error"].iloc[0]
    box = md.VectorQuantizer(300, md.PureDP(4.0), bits=1, inputs="box").solve()
    assert isinstance(box.mechanism, md.SampledCoordinates)
    for found in (result, box):
        assert found.checks()["holds"].all() and found.lower_bound <= found.value


@pytest.mark.parametrize("variance", [0.8, 3.0, 40.0])
def test_skellam_bound_is_above_the_law(variance: float) -> None:
    """Divergences of Skellam laws one apart, from their probabilities, and the published bound to its digits."""
    baseline = Skellam(9, APPROX, bits=16)
    found = baseline._divergences(variance, 1.0)
    orders = ORDERS[ORDERS < 30]
    support = np.arange(-150, 151)
    p = stats.skellam.logpmf(support, variance / 2, variance / 2)
    q = stats.skellam.logpmf(support - 1, variance / 2, variance / 2)
    seen = np.isfinite(p) & np.isfinite(q)
    exact = special.logsumexp(orders[:, None] * p[seen] - (orders[:, None] - 1) * q[seen], axis=1) / (
        orders - 1
    )
    assert (found[: len(orders)] >= exact * (1 - 1e-9)).all()
    alpha = ORDERS[60]
    small = min(((2 * alpha - 1) + 6) / (4 * variance**2), 1.5 / variance)
    assert found[60] == pytest.approx(alpha / (2 * variance) + small)
    wider = baseline._divergences(variance, 100.0)[60]  # l1 distance: min(3 · 10, 100)
    small = min(((2 * alpha - 1) * 100 + 6 * 30) / (4 * variance**2), 1.5 * 30 / variance)
    assert wider == pytest.approx(alpha * 100 / (2 * variance) + small)


@pytest.mark.parametrize("epsilon", [1e-12, 0.01, 1 / 3, math.log(3), 2.5, 40.0, 500.0])
@pytest.mark.parametrize("d", [2, 3, 4])
def test_the_largest_likelihood_ratio_is_within_the_budget(d: int, epsilon: float) -> None:
    """Every mechanism that is released, between any two inputs, in rational numbers against e^ε to sixty digits."""
    privacy = md.PureDP(epsilon)
    ratios = []
    for made in (
        *(md.SphereQuantizer(d, b, privacy) for b in (1, 2) if 2**b <= d + 2),
        *(md.SampledSigns(d, b, privacy) for b in range(1, d + 1)),
    ):
        more, less = made.probabilities
        ratios.append(more / less)
    for k in range(1, d + 1):
        made = md.SampledCoordinates(d, None if k == d else k, privacy, count=k)
        rows = [made.one.law.row(j, end) for j in range(len(made.one.law.knots) - 1) for end in (0, 1)]
        worst = max(max(column) / min(column) for column in zip(*rows))
        ratios.append(worst**k)  # an output's probability is affine between knots
    with mpmath.workdps(250):
        power = mpmath.exp(mpmath.mpf(epsilon))
        for ratio in ratios:
            assert 1 < mpmath.mpf(ratio.numerator) / ratio.denominator <= power

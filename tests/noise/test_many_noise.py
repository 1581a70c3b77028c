"""The best noise for many coordinates: its accounting against brute force, its value against the named families."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx, fmpq
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.noise_bounds import Copies, averaged, binomial_tail, lower_bounds
from mechdesign.noise.optimal import named_cost
from mechdesign.noise.vector_noise import CellProduct, many_interval
from mechdesign.problem.losses import Loss
from mechdesign.problem.spine import Bound
from mechdesign.solvers.deadline import Deadline

halves = st.lists(st.integers(0, 40), min_size=2, max_size=5).filter(lambda h: h[-1] > 0 and sum(h) > h[-1])


def mirrored(half: list[int], cells: int) -> CellNoise:
    weights = (*half[:0:-1], *half)
    return CellNoise(tuple(weights), 1.0, -len(weights) / 2, cells)


def worst_by_listing(law: CellNoise, count: int, epsilon: float) -> tuple[float, float]:
    """δ of the worst whole shifts, every vector of them listed; and of the largest shift of all coordinates."""
    n = law.cells_per_shift
    p = np.pad(np.array([float(w / law.total) for w in law.weights]), n)
    found = {}
    for shifts in itertools.product(range(-n, n + 1), repeat=count):
        here, there = np.ones(1), np.ones(1)
        for k in shifts:
            here, there = np.outer(here, p).ravel(), np.outer(there, np.roll(p, -k)).ravel()
        found[shifts] = float(np.maximum(here - math.exp(epsilon) * there, 0.0).sum())
    return max(found.values()), found[(n,) * count]


@settings(max_examples=40)
@given(halves, st.integers(1, 2), st.floats(0.0, 3.0))
def test_the_interval_holds_the_worst_of_all_shifts(half: list[int], cells: int, epsilon: float) -> None:
    law = mirrored(half, cells)
    worst, together = worst_by_listing(law, 2, epsilon)
    found = many_interval(law, 2, epsilon)
    assert found.upper >= worst - 1e-15
    assert found.lower <= together + 1e-12


def test_few_of_many_are_as_private_as_the_few() -> None:
    law = CellNoise((1, 2, 4, 8, 4, 2, 1), 1.0, -3.5, cells_per_shift=1)
    few = md.noise.CellProduct(law, 20, 2)
    p = np.array([1, 2, 4, 8, 4, 2, 1, 0]) / 22
    pairs, moved = np.outer(p, p), np.outer(np.roll(p, 1), np.roll(p, 1))
    held = few.delta_interval(0.8)
    assert held.lower <= float(np.maximum(pairs - math.exp(0.8) * moved, 0).sum()) <= held.upper
    assert few.sample(np.zeros((3, 20)), rng=0).shape == (3, 20) and "of at most 2 at once" in few.summary()


def test_a_sensitivity_is_held_as_a_box_of_the_coordinates_that_move() -> None:
    privacy = md.ApproximateDP(1.0, 1e-3)
    made = md.OptimalNoise(privacy, md.Sensitivity(linf=2, l0=3), dimension=20)
    assert made == md.OptimalNoise(privacy, 2.0, dimension=20, l0=3)
    assert md.OptimalNoise(privacy, md.Sensitivity(linf=2), dimension=4).l0 is None
    assert md.OptimalNoise(privacy, md.Sensitivity(each=[2, 0, 2]), dimension=3).moved == 2


def test_one_of_many_gets_the_optimum_of_one() -> None:
    privacy = md.ApproximateDP(1.0, 1e-2)
    one = md.OptimalNoise(privacy, loss="squared").solve(gap=0.02)
    many = md.OptimalNoise(privacy, loss="squared", dimension=9, l0=1).solve(gap=0.02)
    assert (many.value, many.lower_bound, many.status) == (one.value, one.lower_bound, "best of its class")
    assert many.checks()["holds"].all() and many.mechanism.dimension == 9


def test_the_pure_noise_for_two_numbers_states_the_delta_that_sampling_finds() -> None:
    """Of both coordinates moved by the sensitivity."""
    law = CellNoise((9, 24, 24, 64, 64, 24, 24, 9), 0.5, -2.0, 2, decay=Fraction(3, 8))
    noise = CellProduct(law, 2)
    assert law.decay and noise.delta_interval(2.0).upper == 0.0
    t, reach = law.rvs((200_000, 2), random_state=5), law.cells_per_shift * law.width
    loss = (law.logpdf(t) - law.logpdf(t + reach)).sum(axis=1)
    for epsilon in (0.0, 0.7, 1.6):
        found, gains = noise.delta_interval(epsilon), np.maximum(-np.expm1(epsilon - loss), 0.0)
        error = gains.std() / math.sqrt(len(gains))
        assert found.lower - 4 * error <= gains.mean() <= found.upper + 4 * error
        assert found.upper - found.lower <= 1e-3 * found.upper


@pytest.mark.parametrize("name", ["staircase", "laplace", "gaussian", "gennorm", "flipped_huber"])
def test_a_square_costs_the_same_as_a_function(name: str) -> None:
    noise = md.calibrate(name, privacy=md.ApproximateDP(1.0, 1e-6), sensitivity=1.0, dimension=3).mechanism
    found = named_cost(noise, Loss.of(lambda t: 3 * t**2))
    assert found == pytest.approx(3 * noise.variance, rel=1e-9)


# -- The lower bound: what n private copies say about one, against laws whose privacy is known


shares = st.floats(0.01, 0.99)


def best_bound(design: md.OptimalNoise) -> Bound:
    """The highest of the bounds that are tried."""
    return max(lower_bounds(design, Deadline(None)), key=lambda bound: bound.value)


@settings(max_examples=60)
@given(st.integers(1, 30), st.integers(1, 30), st.floats(0.0, 1.0))
def test_tails_are_enclosed(n: int, j: int, p: float) -> None:
    assume(j <= n)
    x = Fraction(p)
    exact = sum((math.comb(n, i) * x**i * (1 - x) ** (n - i) for i in range(j, n + 1)), Fraction(0))
    with ctx.workprec(256):
        found = binomial_tail(n, j, arb(p))
        assert found.overlaps(arb(fmpq(exact.numerator, exact.denominator)))
        assert found.rad() < 1e-20


def together(p: float, q: float, n: int, epsilon: float) -> float:
    """δ of n bits, one with probability p here and q there, by every count; both orders."""
    here, there = (stats.binom.pmf(np.arange(n + 1), n, x) for x in (p, q))
    growth = math.exp(epsilon)
    return max(float(np.maximum(a - growth * b, 0).sum()) for a, b in ((here, there), (there, here)))


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(1, 40), shares, shares, st.floats(0.05, 4.0), st.floats(0.0, 1.0))
def test_bits_of_known_privacy_are_no_counterexample(
    n: int, p: float, q: float, epsilon: float, share: float
) -> None:
    delta = together(p, q, n, epsilon) * (1 + 1e-9) + 1e-13
    assume(delta < 0.99)
    copies, one = Copies(n, epsilon, delta), share * epsilon
    for here, there in ((p, q), (q, p), (1 - p, 1 - q), (1 - q, 1 - p)):
        assert float(copies.guess(np.array(here))[0]) <= there * (1 + 1e-6) + 1e-9
        assert copies._proved(here) <= there
    spent = max(p - math.exp(one) * q, q - math.exp(one) * p, 0.0)
    assume(spent > 1e-6)
    assert not copies.imply(one, 0.999 * spent)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.floats(0.1, 5.0), st.floats(1e-6, 0.3), st.floats(0.05, 0.9))
def test_of_one_copy_it_is_what_a_requirement_implies(epsilon: float, delta: float, share: float) -> None:
    """(ε, δ)-DP is (ε₁, δ₁)-DP with δ₁ = δ + (1 − δ)(e^ε − e^ε₁)/(1 + e^ε), and no less (Kairouz, Oh, Viswanath 2015)."""
    one, copies = share * epsilon, Copies(1, epsilon, delta)
    least = delta + (1 - delta) * (math.exp(epsilon) - math.exp(one)) / (1 + math.exp(epsilon))
    found = copies.share(one, Deadline(None))
    if found is None:
        assert least > 0.9
        return
    assert least <= found <= 1.02 * least
    assert copies.imply(one, found) and not copies.imply(one, 0.999 * least)
    assert copies.imply(epsilon, delta)


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from([2, 3, 7, 12, 30]),
    st.floats(0.2, 6.0),
    st.sampled_from([1e-2, 1e-4, 1e-8]),
    st.floats(0.02, 0.7),
)
def test_a_gaussian_mean_is_as_private_as_is_implied(
    count: int, epsilon: float, delta: float, share: float
) -> None:
    privacy = md.ApproximateDP(epsilon, delta)
    sd = math.sqrt(md.calibrate("gaussian", privacy=privacy, sensitivity=1.0, dimension=count).value)
    for mean in {1, count // 2}:
        found = Copies.of(count, mean, epsilon, delta).share(share * epsilon, Deadline(None))
        assume(found is not None)
        mu, one = math.sqrt(mean) / sd, share * epsilon
        spent = stats.norm.cdf(mu / 2 - one / mu) - math.exp(one) * stats.norm.cdf(-mu / 2 - one / mu)
        assert spent <= found


@pytest.mark.parametrize(
    ("count", "epsilon", "delta", "asked"),
    [(3, 1.0, 1e-6, 13.0), (20, 1.0, 1e-6, 160.0), (8, 10.0, 1e-3, 0.57), (50, 10.0, 1e-12, 12.4)],
)
def test_it_is_worth_as_much_as_was_found(count: int, epsilon: float, delta: float, asked: float) -> None:
    design = md.OptimalNoise(md.ApproximateDP(epsilon, delta), loss="squared", dimension=count)
    held = best_bound(design)
    assert held.value > asked
    assert held.proof.implied(design) and not replace(held.proof, mean=count + 1).implied(design)


def test_a_function_need_not_be_even() -> None:
    """Noise that is not centred pays: with a squared part beside such a function the mean's is charged once."""
    tilted = Loss(0.0, 1.0, lambda t: 5 * np.maximum(t, 0.0))
    assert averaged(tilted, 10).squared == 1.0
    assert averaged(Loss(1.0, 2.0), 10) == Loss(1.0, 20.0)

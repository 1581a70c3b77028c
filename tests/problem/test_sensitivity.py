"""Sensitivity as people know it: the geometry against brute force, the laws against every vector of the set."""

import functools
import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

import mechdesign as md
from mechdesign.accounting.interval import delta_interval
from mechdesign.accounting.losses import NoiseTerm
from mechdesign.noise.laws.symmetric import flipped_huber
from mechdesign.noise.worst_case import worst_cases
from mechdesign.problem.sensitivity import Sensitivity

SIZES = st.floats(0.1, 10)


@st.composite
def sensitivities(draw, dimension=4):
    some = st.none() | SIZES
    each = draw(st.none() | st.lists(st.floats(0, 5), min_size=dimension, max_size=dimension))
    given_ = {
        "linf": draw(some),
        "l1": draw(some),
        "l2": draw(some),
        "l0": draw(st.none() | st.integers(1, dimension)),
        "each": each if each and max(each) > 0.01 else None,
    }
    assume(any(given_[k] is not None for k in ("linf", "l1", "l2", "each")))
    return Sensitivity(**given_)


def caps(s, dimension):
    cap = np.full(dimension, math.inf if s.linf is None else s.linf)
    return cap if s.each is None else np.minimum(cap, s.each)


def random_members(s, dimension, rng, count=200):
    """Vectors of the set, by shrinking what is outside it."""
    cap = np.minimum(caps(s, dimension), 20.0)
    for _ in range(count):
        v = cap * rng.random(dimension) ** rng.choice([0.0, 0.3, 1, 4], dimension)
        if s.l0 is not None and s.l0 < dimension:
            v[rng.permutation(dimension)[s.l0 :]] = 0.0
        scale = 1.0
        if s.l1 is not None and v.sum() > 0:
            scale = min(scale, s.l1 / v.sum())
        if s.l2 is not None and np.linalg.norm(v) > 0:
            scale = min(scale, s.l2 / np.linalg.norm(v))
        yield v * scale * (1 - 1e-12)


def covers(vector, v):
    """Whether `vector`, by groups, is above |v| sorted."""
    flat = np.repeat([size for size, _ in vector], [count for _, count in vector])
    wanted = np.sort(np.abs(v))[::-1]
    wanted = wanted[wanted > 0]
    return len(wanted) <= len(flat) and bool((flat[: len(wanted)] >= wanted).all())


@settings(max_examples=60, deadline=None)
@given(sensitivities(), st.integers(0, 2**32 - 1))
def test_nothing_in_the_set_is_beyond_what_is_said(s, seed):
    top, l1, l2 = s.largest_linf(4), s.largest_l1(4), s.largest_l2(4)
    envelope = s.envelope(4)[0]
    for v in random_members(s, 4, np.random.default_rng(seed)):
        assert v.max() <= top and v.sum() <= l1 and np.linalg.norm(v) <= l2
        assert covers(envelope, v)


@settings(max_examples=60, deadline=None)
@given(sensitivities())
def test_the_norms_are_reached(s):
    """Oracle: a general solver, over each choice of the coordinates that change."""
    cap, count = np.minimum(caps(s, 4), 1e3), min(4, s.l0 or 4)
    best1 = 0.0
    for chosen in itertools.combinations(range(4), count):
        bounds = [(0, cap[i] if i in chosen else 0) for i in range(4)]
        constraints = []
        if s.l1 is not None:
            constraints.append({"type": "ineq", "fun": lambda v: s.l1 - v.sum()})
        if s.l2 is not None:
            constraints.append({"type": "ineq", "fun": lambda v: s.l2**2 - v @ v, "jac": lambda v: -2 * v})
        start = np.array([0.1 * b for _, b in bounds]) * min(1.0, s.l1 or 1.0, s.l2 or 1.0) / 10
        found = optimize.minimize(
            lambda v: -v.sum(), start, jac=lambda v: -np.ones(4), bounds=bounds, constraints=constraints,
            method="SLSQP", options={"maxiter": 300, "ftol": 1e-12},
        )  # fmt: skip
        best1 = max(best1, -found.fun)
    assert s.largest_l1(4) >= best1 * (1 - 1e-7)
    assert s.largest_l1(4) <= best1 * (1 + 1e-5)
    reached = max(math.sqrt(sum(float(v) ** 2 * c for v, c in vector)) for vector in s.attained(4))
    assert reached == pytest.approx(s.largest_l2(4), rel=1e-9)
    for vector in s.attained(4):
        assert s.allows(vector)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    sensitivities(dimension=3),
    st.sampled_from([stats.laplace(scale=2.0), flipped_huber(0.7, scale=2.0), stats.logistic(scale=1.5), stats.norm(scale=3.0)]),
    st.floats(0.1, 2.0),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
@example(Sensitivity(each=(0.0, 3.6, 5e-266)), stats.laplace(scale=2.0), 1.0, 0)
@example(Sensitivity(l2=1.0, each=(0.0, 1.0, 2e-234)), stats.laplace(scale=2.0), 1.0, 0)
@example(Sensitivity(each=(0.0, 1.0, 5e-324)), flipped_huber(0.7, scale=2.0), 1.0, 0)
def test_no_change_is_worse_than_the_worst_case(s, law, epsilon, seed):
    """Seen before: the example's grid was laid through its smallest atom, a ZeroDivisionError."""
    cases = worst_cases(law, s, 3)
    upper = cases.delta_interval(epsilon, width=0.2).upper
    if cases.exact:
        assert len(cases.alternatives) == 1
    for v in random_members(s, 3, np.random.default_rng(seed), count=4):
        terms = [NoiseTerm(law, float(x), 1) for x in v if x > 1e-9]
        if terms:
            assert delta_interval(terms, epsilon, width=0.2).lower <= upper


def test_packing_two_shifts_on_one_coordinate_is_never_less_private():
    """The semigroup argument, by mpmath, for a law that is neither Laplace nor normal."""

    def loss_profile(s1, s2, epsilon):
        density = lambda x: mpmath.exp(-(abs(x) ** 1.5))  # noqa: E731
        mass = mpmath.quad(density, [-mpmath.inf, 0, mpmath.inf])
        grid = np.linspace(-9, 9, 901)
        h = grid[1] - grid[0]
        p = np.exp(-(np.abs(grid) ** 1.5)) / float(mass) * h

        def shifted(s):
            return np.exp(-(np.abs(grid - s) ** 1.5)) / float(mass) * h

        return np.maximum(np.outer(p, p) - math.exp(epsilon) * np.outer(shifted(s1), shifted(s2)), 0).sum()

    for s1, s2, epsilon in ((0.5, 0.5, 0.3), (1.0, 0.4, 1.0), (0.2, 0.9, 0.1)):
        assert loss_profile(s1, s2, epsilon) <= loss_profile(s1 + s2, 0.0, epsilon) + 1e-4


def test_the_reference():
    privacy = md.ApproximateDP(1, 1e-6)
    three = md.Sensitivity(linf=1, l0=3)
    assert 20 * md.calibrate(
        "gaussian", privacy=privacy, sensitivity=three, dimension=20
    ).mechanism.variance == pytest.approx(20 * 1070.8747030859186 / 20, rel=1e-9)
    box = md.calibrate("gaussian", privacy=privacy, sensitivity=1.0, dimension=20)
    assert 20 * box.mechanism.variance == pytest.approx(20 * 7139.1646872 / 20, rel=1e-9)


@pytest.mark.parametrize(
    ("s", "family", "privacy", "same"),
    [
        # ℓ₁ alone: everything on one coordinate is the worst for every log-concave law
        (Sensitivity(l1=5.0), "laplace", md.ApproximateDP(1, 1e-6), 5.0),
        (Sensitivity(l1=5.0), "flipped_huber", md.ApproximateDP(1, 1e-6), 5.0),
        (Sensitivity(l1=3.0, linf=1.0), "laplace", md.PureDP(1), 3.0),
        (Sensitivity(l2=2.0), "gaussian", md.ApproximateDP(1, 1e-6), 2.0),
        (Sensitivity(l0=1, linf=2.0), "truncated_laplace", md.ApproximateDP(1, 1e-6), 2.0),
    ],
)
def test_one_number_with_that_sensitivity(s, family, privacy, same):
    many = md.calibrate(family, privacy=privacy, sensitivity=s, dimension=30)
    one = md.calibrate(family, privacy=privacy, sensitivity=same)
    # scales of several numbers are wider by 4.5e-7, room for the grid of the verifier
    assert many.mechanism.variance == pytest.approx(one.mechanism.variance, rel=2e-6)
    assert many.certificate.verify()


def test_counts_are_whole():
    """At most 3 in ℓ₁ on integers: (1, 1, 1) is the worst where each changes by one."""
    privacy = md.ApproximateDP(1, 1e-6)
    a = md.calibrate("discrete_laplace", privacy=privacy, sensitivity=Sensitivity(l1=3, linf=1), dimension=20)
    b = md.calibrate("discrete_laplace", privacy=privacy, sensitivity=Sensitivity(l0=3, linf=1), dimension=20)
    assert a.mechanism.variance == b.mechanism.variance and a.mechanism.worst_cases.exact
    with pytest.raises(md.DesignError, match=r"sensitivity\.linf = 1\.5"):
        md.calibrate("discrete_laplace", privacy=privacy, sensitivity=Sensitivity(linf=1.5), dimension=2)


def test_contributions():
    add = Sensitivity.of_contribution(linf=1, l0=3)
    assert (add.l0, add.linf, add.neighbours) == (3, 1.0, "add-remove")
    with pytest.raises(md.DesignError, match="must be at most 2"):
        Sensitivity.of_contribution(linf=1, l0=3, dimension=2)
    of_replaced = functools.partial(Sensitivity.of_contribution, neighbours="replace")
    replaced = of_replaced(linf=1, l0=3)
    assert replaced.largest_l2(20) == pytest.approx(math.sqrt(6), rel=1e-14) and replaced.largest_l1(20) == 6
    signed = of_replaced(linf=1, l0=3, signed=True)
    assert signed.largest_l2(20) == pytest.approx(2 * math.sqrt(3), rel=1e-14)
    # brute force over two people's contributions
    counts = [v for v in itertools.product((0, 1), repeat=4) if sum(v) <= 2]
    worst = max(sum((a - b) ** 2 for a, b in zip(x, y)) for x in counts for y in counts)
    assert of_replaced(linf=1, l0=2).largest_l2(4) ** 2 == pytest.approx(worst)
    both = [v for v in itertools.product((-1, 0, 1), repeat=4) if sum(map(abs, v)) <= 2]
    worst = max(sum((a - b) ** 2 for a, b in zip(x, y)) for x in both for y in both)
    assert of_replaced(linf=1, l0=2, signed=True).largest_l2(4) ** 2 == pytest.approx(worst)
    normed = of_replaced(l2=1.0)
    assert normed.l2 >= math.sqrt(2) and Fraction(normed.l2) ** 2 >= 2


def test_many_different_bounds_are_grouped_and_stay_above():
    bounds = np.random.default_rng(0).random(1000) * 5
    s = Sensitivity(each=bounds, l0=700)
    vector, exact = s.envelope(1000)
    assert not exact and len(vector) <= 12 and sum(c for _, c in vector) == 700
    assert covers(vector, np.sort(bounds)[::-1][:700])
    assert s.largest_l2(1000) == pytest.approx(np.linalg.norm(np.sort(bounds)[::-1][:700]), rel=1e-12)


@pytest.mark.parametrize("dimension", [1, 7])
def test_the_lattice_covers_rounded_changes(dimension):
    """Rounded answers differ by no more than the widened law protects."""
    for s in (
        Sensitivity(linf=0.3, l1=0.7),
        Sensitivity(l2=0.3),
        Sensitivity(each=[0.3] * dimension, l2=0.5),
    ):
        noise = md.AdditiveNoise(stats.laplace(scale=3.0), s, dimension)
        lattice, rng = noise.lattice, np.random.default_rng(1)
        wider = Fraction(lattice.law.std()) / Fraction(stats.laplace(scale=3.0).std())
        for v in random_members(s, dimension, rng, count=50):
            x = rng.normal(size=dimension)
            steps = np.floor((x + v) / lattice.step + 0.5) - np.floor(x / lattice.step + 0.5)
            moved = [Fraction(int(abs(k))) * Fraction(lattice.step) / wider for k in steps]
            if s.l1 is not None:
                assert sum(moved) <= Fraction(s.l1)
            if s.l2 is not None:
                assert sum(m * m for m in moved) <= Fraction(s.l2) ** 2
            if s.linf is not None:
                assert max(moved) <= Fraction(s.linf)
        assert np.shape(noise.release(np.zeros(dimension))) == (dimension,)


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({}, "give linf, l1 or l2"),
        ({"l0": 3}, "l0 = 3: says how many"),
        ({"linf": 0}, "linf = 0"),
        ({"l1": -1}, "l1 = -1"),
        ({"l2": "a"}, "l2 = 'a'"),
        ({"linf": 1, "l0": 0}, "l0 = 0"),
        ({"linf": 1, "l0": 2.5}, "l0 = 2.5"),
        ({"each": []}, "each"),
        ({"each": [0, 0]}, "each"),
        ({"each": [1, -1]}, "each"),
        ({"linf": 1, "neighbours": "both"}, "neighbours = 'both'"),
    ],
)
def test_bad_input(bad, word):
    with pytest.raises(md.DesignError) as caught:
        Sensitivity(**bad)
    assert word in str(caught.value) and "\n" not in str(caught.value)


def test_bounds_of_another_size():
    with pytest.raises(md.DesignError, match="one bound for each of 3"):
        md.calibrate("laplace", privacy=md.PureDP(1), sensitivity=Sensitivity(each=[1, 2]), dimension=3)
    with pytest.raises(md.DesignError, match="add-remove"):
        md.calibrate(
            "gaussian", privacy=md.ApproximateDP(1, 1e-5), sensitivity=Sensitivity(linf=1, neighbours="replace"),
            sampling_rate=0.1, rounds=10,
        )  # fmt: skip


@pytest.mark.parametrize("name", ["linf", "l1", "l2", "each"])
def test_bounds_whose_squares_overflow_are_refused(name):
    """Seen before: OverflowError, for l2=1e308."""
    with pytest.raises(md.DesignError, match=name):
        Sensitivity(**{name: (1.0, 1e308) if name == "each" else 1e308})


def test_sensitivities_too_far_apart_are_refused():
    """Seen before: OverflowError, for [1e-300, 1e300]."""
    with pytest.raises(md.DesignError, match="sensitivities"):
        md.NoiseAllocation("laplace", [1e-300, 1e300], md.PureDP(1)).solve()

"""Sensitivity as people know it: the geometry against brute force, the laws against every vector of the set."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

import mechdesign as md
from mechdesign.accounting.interval import delta_interval
from mechdesign.accounting.losses import NoiseTerm
from mechdesign.noise.laws import flipped_huber
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


@settings(max_examples=30, deadline=None)  # a general solver for each choice of the coordinates that change
@given(sensitivities())
def test_the_norms_are_reached(s):
    cap, best = np.minimum(caps(s, 4), 1e3), 0.0
    for chosen in itertools.combinations(range(4), min(4, s.l0 or 4)):
        top = np.where(np.isin(range(4), chosen), cap, 0.0)
        constraints = []
        if s.l1 is not None:
            constraints.append({"type": "ineq", "fun": lambda v: s.l1 - v.sum()})
        if s.l2 is not None:
            constraints.append({"type": "ineq", "fun": lambda v: s.l2**2 - v @ v, "jac": lambda v: -2 * v})
        found = optimize.minimize(
            lambda v: -v.sum(), 0.01 * top * min(1.0, s.l1 or 1.0, s.l2 or 1.0), jac=lambda v: -np.ones(4),
            bounds=[(0, b) for b in top], constraints=constraints, method="SLSQP", options={"maxiter": 300, "ftol": 1e-12},
        )  # fmt: skip
        best = max(best, -found.fun)
    assert best * (1 - 1e-7) <= s.largest_l1(4) <= best * (1 + 1e-5)
    reached = max(math.sqrt(sum(float(v) ** 2 * c for v, c in vector)) for vector in s.attained(4))
    assert reached == pytest.approx(s.largest_l2(4), rel=1e-9)
    assert all(s.allows(vector) for vector in s.attained(4))


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
    cases = worst_cases(law, s, 3)
    upper = cases.delta_interval(epsilon, width=0.2).upper
    if cases.exact:
        assert len(cases.alternatives) == 1
    for v in random_members(s, 3, np.random.default_rng(seed), count=4):
        terms = [NoiseTerm(law, float(x), 1) for x in v if x > 1e-9]
        if terms:
            assert delta_interval(terms, epsilon, width=0.2).lower <= upper


@pytest.mark.parametrize(
    ("s", "family", "privacy", "same"),
    [
        # ℓ₁ alone: everything on one coordinate is the worst for every log-concave law
        (Sensitivity(l1=5.0), "laplace", md.ApproximateDP(1, 1e-6), 5.0),
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
    a, b = (
        md.calibrate(
            "discrete_laplace", privacy=md.ApproximateDP(1, 1e-6), sensitivity=s, dimension=20
        ).mechanism
        for s in (Sensitivity(l1=3, linf=1), Sensitivity(l0=3, linf=1))
    )
    assert a.variance == b.variance and a.worst_cases.exact


def test_contributions():
    """By brute force over two people's contributions."""
    add = Sensitivity.of_contribution(linf=1, l0=3)
    assert (add.l0, add.linf, add.neighbours) == (3, 1.0, "add-remove")
    with pytest.raises(md.DesignError, match="must be at most 2"):
        Sensitivity.of_contribution(linf=1, l0=3, dimension=2)
    for signed, own in ((False, (0, 1)), (True, (-1, 0, 1))):
        given_ = {"linf": 1, "l0": 2, "signed": signed}
        people = [v for v in itertools.product(own, repeat=4) if sum(map(abs, v)) <= 2]
        changes = [np.subtract(x, y) for x in people for y in people]
        for more in ({}, {"l1": 2.0}, {"l1": 2.0, "l2": math.sqrt(2)}):
            replaced = Sensitivity.of_contribution(**given_, **more, neighbours="replace")
            for order, largest in ((1, replaced.largest_l1(4)), (2, replaced.largest_l2(4))):
                assert largest == pytest.approx(max(np.linalg.norm(v, order) for v in changes))
    assert Fraction(Sensitivity.of_contribution(l2=1.0, neighbours="replace").l2) ** 2 >= 2


@pytest.mark.parametrize("dimension", [1, 7])
def test_the_lattice_covers_rounded_changes(dimension):
    """Rounded answers differ by no more than the widened law protects."""
    each = Sensitivity(each=[0.3] * dimension, l2=0.5)
    for s in (Sensitivity(linf=0.3, l1=0.7), Sensitivity(l2=0.3), each):
        noise, rng = md.AdditiveNoise(stats.laplace(scale=3.0), s, dimension), np.random.default_rng(1)
        lattice = noise.lattice
        wider = Fraction(lattice.law.std()) / Fraction(stats.laplace(scale=3.0).std())
        for v in random_members(s, dimension, rng, count=50):
            x = rng.normal(size=dimension)
            steps = np.floor((x + v) / lattice.step + 0.5) - np.floor(x / lattice.step + 0.5)
            moved = [Fraction(int(abs(k))) * Fraction(lattice.step) / wider for k in steps]
            assert s.l1 is None or sum(moved) <= Fraction(s.l1)
            assert s.l2 is None or sum(m * m for m in moved) <= Fraction(s.l2) ** 2
            assert s.linf is None or max(moved) <= Fraction(s.linf)


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({}, "give linf, l1 or l2"),
        ({"l0": 3}, "l0 = 3: says how many"),
        ({"linf": 0}, "linf = 0"),
        ({"l2": "a"}, "l2 = 'a'"),
        ({"linf": 1, "l0": 2.5}, "l0 = 2.5"),
        ({"linf": 1, "signed": 1}, "signed"),
        ({"each": [0, 0]}, "each"),
        ({"each": [1, -1]}, "each"),
        ({"linf": 1, "neighbours": "both"}, "neighbours = 'both'"),
        # their squares overflow
        *(({name: 1e308}, name) for name in ("linf", "l1", "l2")),
        ({"each": (1.0, 1e308)}, "each"),
    ],
)
def test_bad_input(bad, word):
    with pytest.raises(md.DesignError, match=word):
        Sensitivity(**bad)


def test_bounds_of_another_query():
    each, whole = Sensitivity(each=[1, 2]), Sensitivity(linf=1.5)
    replaced = Sensitivity(linf=1, neighbours="replace")
    for noise, more, word in (
        ("laplace", {"sensitivity": each, "dimension": 3}, "one bound for each of 3"),
        ("discrete_laplace", {"sensitivity": whole, "dimension": 2}, r"sensitivity\.linf = 1\.5"),
        ("gaussian", {"sensitivity": replaced, "sampling_rate": 0.1, "rounds": 10}, "add-remove"),
    ):
        with pytest.raises(md.DesignError, match=word):
            md.calibrate(noise, privacy=md.ApproximateDP(1, 1e-5), **more)

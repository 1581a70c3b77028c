"""Sensitivity as people know it: the geometry against brute force, the laws against every vector of the set."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats
from strategies import priors

import mechdesign as md
from mechdesign.problem.priors import law_moments

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
    return md.Sensitivity(**given_)


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


@pytest.mark.parametrize(
    ("s", "family", "privacy", "same"),
    [
        # ℓ₁ alone: everything on one coordinate is the worst for every log-concave law
        (md.Sensitivity(l1=5.0), "laplace", md.ApproximateDP(1, 1e-6), 5.0),
        (md.Sensitivity(l1=3.0, linf=1.0), "laplace", md.PureDP(1), 3.0),
        (md.Sensitivity(l2=2.0), "gaussian", md.ApproximateDP(1, 1e-6), 2.0),
        (md.Sensitivity(l0=1, linf=2.0), "truncated_laplace", md.ApproximateDP(1, 1e-6), 2.0),
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
        for s in (md.Sensitivity(l1=3, linf=1), md.Sensitivity(l0=3, linf=1))
    )
    assert a.variance == b.variance and a.worst_cases.exact


def test_contributions():
    """By brute force over two people's contributions."""
    add = md.Sensitivity.of_contribution(linf=1, l0=3)
    assert (add.l0, add.linf, add.neighbours) == (3, 1.0, "add-remove")
    with pytest.raises(md.DesignError, match="must be at most 2"):
        md.Sensitivity.of_contribution(linf=1, l0=3, dimension=2)
    for signed, own in ((False, (0, 1)), (True, (-1, 0, 1))):
        given_ = {"linf": 1, "l0": 2, "signed": signed}
        people = [v for v in itertools.product(own, repeat=4) if sum(map(abs, v)) <= 2]
        changes = [np.subtract(x, y) for x in people for y in people]
        for more in ({}, {"l1": 2.0}, {"l1": 2.0, "l2": math.sqrt(2)}):
            replaced = md.Sensitivity.of_contribution(**given_, **more, neighbours="replace")
            for order, largest in ((1, replaced.largest_l1(4)), (2, replaced.largest_l2(4))):
                assert largest == pytest.approx(max(np.linalg.norm(v, order) for v in changes))
    assert Fraction(md.Sensitivity.of_contribution(l2=1.0, neighbours="replace").l2) ** 2 >= 2


@pytest.mark.parametrize("dimension", [1, 7])
def test_the_lattice_covers_rounded_changes(dimension):
    """Rounded answers differ by no more than the widened law protects."""
    each = md.Sensitivity(each=[0.3] * dimension, l2=0.5)
    for s in (md.Sensitivity(linf=0.3, l1=0.7), md.Sensitivity(l2=0.3), each):
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


# -- Partial moments against quadrature and mpmath; every kind of prior; bad priors --------------------------

LAWS = [
    stats.uniform(-1, 2), stats.norm(0.3, 0.5), stats.truncnorm(-2, 1.5, loc=0.1, scale=0.7), stats.beta(2, 3.5, loc=-1, scale=2),
    stats.triang(0.3, loc=-1, scale=2), stats.arcsine(loc=-1, scale=2), stats.semicircular(), stats.laplace(0, 0.4),
]  # fmt: skip


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.dist.name)
def test_partial_moments(law) -> None:
    """Closed forms and quadrature of the distribution function, against quadrature of the density at 1e-11."""
    edges = np.array([-1.0, -0.71, -0.2, 0.05, 0.9, 1.0])
    table = law_moments(law, edges)
    for k, (a, b) in enumerate(zip(edges[:-1], edges[1:])):
        for order in range(3):
            ends, kinks = (a, b), [p for p in (-0.4, 0.0) if a < p < b] or None
            moment = lambda t, n=order: t**n * law.pdf(t)  # noqa: E731
            if law.dist.name == "arcsine":  # its density is infinite at ±1: substitute x = cos
                ends, kinks, moment = np.arccos((b, a)), None, lambda t, n=order: np.cos(t) ** n / np.pi
            assert table[k, order] == pytest.approx(
                integrate.quad(moment, *ends, epsabs=1e-14, points=kinks)[0], abs=1e-12
            )


@settings(max_examples=30)
@given(st.data())
def test_cells_add_up(data) -> None:
    prior = md.Prior.of(data.draw(priors(-1.0, 0.7)), (-1.0, 0.7))
    edges = np.unique([-1.0, 0.7, *data.draw(st.lists(st.floats(-1, 0.7), max_size=5))])
    moments = prior.moments(edges)
    assert moments[:, 0].sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(moments.sum(axis=0), prior.moments(np.array([-1.0, 0.7]))[0], atol=1e-12)
    np.testing.assert_allclose(
        prior.integrals(lambda x: np.stack([x**0, x, x**2], 1), edges), moments, atol=1e-10
    )
    draws = prior.sample(4000, 3)
    assert draws.min() >= -1 and draws.max() <= 0.7
    assert abs(draws.mean() - prior.mean) < 5 * draws.std() / np.sqrt(4000) + 1e-12


# -- Numbers finer than doubles: budgets are stored rounded down, what people change rounded up --------------

FINE = st.one_of(
    st.fractions(Fraction(1, 10**6), 10**6),
    st.decimals("0.000001", "1000000", allow_nan=False),
    st.integers(2**53, 2**80),
    st.integers(2**53, 2**62).map(np.int64),
)
BUDGETS = [
    lambda v: md.PureDP(v).epsilon,
    lambda v: md.ApproximateDP(v, 1e-6).epsilon,
    lambda v: md.ZeroConcentratedDP(v).rho,
    lambda v: md.MetricChannel(md.MetricSpace.grid(1, 2), v).alpha,
]
CHANGES = [
    lambda v: md.Sensitivity(linf=v).linf,
    lambda v: md.Sensitivity(l1=v).l1,
    lambda v: md.Sensitivity(l2=v).l2,
    lambda v: md.Sensitivity(each=[v, 1]).each[0],
    lambda v: md.Calibration("laplace", md.PureDP(1), v).sensitivity,
    lambda v: md.CountsGaussian(3, 1, md.ApproximateDP(1, 1e-6), most=v).changes.most,
    lambda v: md.NoiseAllocation("laplace", [v, 1.0], md.PureDP(1)).sensitivities[0],
]


def _exact(v) -> Fraction:
    return Fraction(v.item() if isinstance(v, np.generic) else v)


@settings(max_examples=50)
@given(v=FINE)
def test_budgets_are_rounded_down_and_changes_up(v) -> None:
    for sign, places in ((1, BUDGETS), (-1, CHANGES)):
        for stored in places:
            held = Fraction(float(stored(v)))
            assert 0 <= sign * (_exact(v) - held) < held * Fraction(1, 2**51)
    assert md.PureDP(0.1).epsilon == 0.1 and md.Sensitivity(linf=0.1).linf == 0.1

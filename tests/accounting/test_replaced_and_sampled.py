"""Sampled rounds of normal noise of which one record is replaced: two records on one line are the worst pair, in any dimension, as far out and apart as they may be."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import special, stats

import mechdesign as md
from mechdesign.accounting.gaussian import gaussian_profile
from mechdesign.accounting.interval import NoiseTerm, delta_interval, joint_interval
from mechdesign.evidence.serialize import dumps
from mechdesign.verifier import verify
from mechdesign.verifier.reading import NotCovered

REPLACED = md.Sensitivity.of_contribution(l2=1.0, signed=True, neighbours="replace")
PRIVACY = md.ApproximateDP(1.0, 1e-5)


def _pair(rate: float, t: np.ndarray, sigma: float, u: float = 1.0) -> np.ndarray:
    """Density of a round in which the record moves the answer by u."""
    return (1 - rate) * stats.norm.pdf(t / sigma) / sigma + rate * stats.norm.pdf((t - u) / sigma) / sigma


def _once(epsilon: Any, rate: float, sigma: float) -> np.ndarray:
    """δ of one round at any ε, from the point at which its loss is ε."""
    x = np.abs(np.asarray(epsilon, dtype=float))
    half = 1 / (2 * sigma**2)
    t = sigma**2 * (x / 2 + np.arcsinh((1 / rate - 1) * math.exp(half) * np.sinh(x / 2)))

    def above(u: float) -> np.ndarray:
        return (1 - rate) * stats.norm.sf(t / sigma) + rate * stats.norm.sf((t - u) / sigma)

    found = above(1.0) - np.exp(x) * above(-1.0)
    # ∫ (P − cQ)₊ = 1 − c + c ∫ (Q − P/c)₊, and the pair is symmetric
    return np.where(np.asarray(epsilon) >= 0, found, 1 - np.exp(-x) + np.exp(-x) * found)


def _composed(epsilon: float, rounds: int, rate: float, sigma: float) -> float:
    """δ of rounds, the outcomes of all but one summed by Gauss and Legendre."""
    x, weight = np.polynomial.legendre.leggauss(140)
    t, weight = 9 * sigma * x, 9 * sigma * weight
    p, q = (_pair(rate, t, sigma, u) for u in (1.0, -1.0))
    left, mass = np.array([epsilon]), np.ones(1)
    for _ in range(rounds - 1):
        left, mass = (left[:, None] - np.log(p / q)).ravel(), (mass[:, None] * p * weight).ravel()
    return float((mass * _once(left, rate, sigma)).sum())


CHANGES = [
    (1.0, 1.0, 0.1),
    (5.0, 1.0, 0.3),
    (1.0, 0.3, 0.02),
    (1.0, 1.9, 0.2),
    (40.0, 1.0, 0.2),
    (0.4, 0.1, 0.5),
]
"""How far records move answers, by themselves and in the place of one another, in standard deviations; the sampling rate."""


def _two(own: float, change: float, rate: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Densities of a round in which the record moves the answer by `own`, and by so much less, and what points weigh."""
    x, weight = special.roots_legendre(2400)
    middle, far = own / 2, own / 2 + 9
    t = middle + far * x
    p, q = (_pair(rate, t, 1.0, u) for u in (own, own - change))
    return p, q, far * weight


def _sums(own: float, change: float, rate: float, epsilon: float) -> tuple[float, float]:
    """δ of two rounds by quadrature: of these two records, the larger one of both orders, and of what bounds every pair."""
    p, q, weight = _two(own, change, rate)

    def both(p: np.ndarray, q: np.ndarray, weight: np.ndarray) -> float:
        # of a first outcome those seconds whose losses pass what is left of ε, which are the last ones by their losses
        losses = np.log(p / q)
        order = np.argsort(losses)
        first = np.searchsorted(losses[order], epsilon - losses)
        beyond = (np.append(np.cumsum((weight * z)[order][::-1])[::-1], 0.0)[first] for z in (p, q))
        return float(
            sum(sign * (weight * z) @ rest for sign, z, rest in zip((1, -math.exp(epsilon)), (p, q), beyond))
        )

    # of what bounds every pair: twice the outcomes that speak for the first, in either order, and the rest that is alike
    up = p > q
    odd = np.concatenate([p[up], q[up]]), np.concatenate([q[up], p[up]])
    mass = np.concatenate([weight[up], weight[up]])
    alike = 1 - float(mass @ odd[0])
    single = float(mass @ np.maximum(odd[0] - math.exp(epsilon) * odd[1], 0.0))
    return max(both(p, q, weight), both(q, p, weight)), both(*odd, mass) + 2 * alike * single


def _noise(own: float, change: float, rate: float, rounds: int, sigma: float = 1.0) -> md.AdditiveNoise:
    changes = md.Sensitivity(l2=change, own=own, neighbours="replace")
    return md.AdditiveNoise(stats.norm(scale=sigma), changes, 3, rounds, rate)


@pytest.mark.parametrize(("own", "change", "rate"), CHANGES)
@pytest.mark.parametrize("epsilon", [0.0, 0.7])
def test_two_rounds_are_enclosed_by_records_and_what_bounds_them(
    own: float, change: float, rate: float, epsilon: float
) -> None:
    records, bound = _sums(own, change, rate, epsilon)
    found = _noise(own, change, rate, 2).delta_interval(epsilon, width=1e-3)
    off = 1e-4 * bound + 1e-9  # of the quadrature, which bends at an unknown line
    assert found.lower <= records + off and records <= bound + off and bound <= found.upper + off
    assert found.lower >= records * (1 - 5e-3) - off and found.upper <= bound * (1 + 2e-3) + off


@pytest.mark.parametrize(("own", "change", "rate"), CHANGES)
def test_less_is_lost_than_by_a_negative_and_than_with_a_coin_that_all_see(
    own: float, change: float, rate: float
) -> None:
    """Both are bounds of every round of these records; neither is as low in all of these cases."""
    for epsilon in (0.1, 1.0):
        for rounds in (1, 20):
            upper = _noise(own, change, rate, rounds).delta_interval(epsilon, width=1e-3).upper
            negative = _noise(own, 2 * own, rate, rounds).delta_interval(epsilon, width=1e-3).upper
            seen = [
                stats.binom.pmf(k, rounds, rate) * gaussian_profile(epsilon, math.sqrt(k) * change)
                for k in range(1, rounds + 1)
            ]
            assert upper <= min(negative, sum(seen)) * (1 + 2e-3)


def test_records_far_out_that_change_little_need_the_noise_of_the_change() -> None:
    """Ten steps at rate .1 of records of norm 100 that are 1 apart: 100 times the noise was asked for."""
    asked: dict[str, Any] = {"privacy": PRIVACY, "sampling_rate": 0.1, "rounds": 10}
    changes = md.Sensitivity(l2=1.0, own=100.0, neighbours="replace")
    found = md.calibrate("gaussian", sensitivity=changes, **asked).mechanism.standard_deviation
    everybody = md.calibrate(
        "gaussian", privacy=PRIVACY, sensitivity=1.0, rounds=10
    ).mechanism.standard_deviation
    alone = md.calibrate("gaussian", privacy=PRIVACY, sensitivity=1.0).mechanism.standard_deviation
    assert 0.9 * alone < found < everybody


@pytest.mark.parametrize("rounds", [1, 7])
def test_larger_records_and_changes_lose_more(rounds: int) -> None:
    """At both ends: what is proved for them holds for less, and what less loses is lost by them."""
    ends = [
        _noise(own, change, 0.1, rounds).delta_interval(0.3, width=1e-3)
        for own, change in ((1, 1), (1, 1.1), (1.1, 1), (2, 2))
    ]
    for wider in ends[1:]:
        assert ends[0].lower < wider.lower and ends[0].upper < wider.upper and ends[0].lower <= wider.upper


def _density(grids: list[np.ndarray], move: np.ndarray, rate: float, sigma: float) -> np.ndarray:
    near, far = (
        np.prod([stats.norm.pdf((g - c) / sigma) / sigma for g, c in zip(grids, move * share)], axis=0)
        for share in (0.0, 1.0)
    )
    return (1 - rate) * near + rate * far


@pytest.mark.parametrize("dimension", [1, 2])
def test_no_pair_of_records_loses_more(dimension: int) -> None:
    """Hockey-stick divergences of records of norm at most 1, integrated over the plane, or the line."""
    rng = np.random.default_rng(dimension)
    x, weight = special.roots_legendre(220 if dimension == 2 else 2000)
    for _ in range(10):
        sigma, rate, epsilon = (
            10 ** rng.uniform(-0.4, 0.5),
            10 ** rng.uniform(-2, -0.05),
            10 ** rng.uniform(-2, 0.5),
        )
        t, w = (9 * sigma + 1) * x, (9 * sigma + 1) * weight
        highest, apart = float(_once(epsilon, rate, sigma)), rng.uniform(0.1, 1.5)
        closest = _noise(1.0, apart, rate, 1, sigma).delta_interval(epsilon).upper
        grids = np.meshgrid(*[t] * dimension, indexing="ij")
        weights = w if dimension == 1 else np.outer(w, w)
        for _ in range(4):
            u, v = rng.normal(size=(2, dimension))
            u, v = (z / np.linalg.norm(z) * rng.choice([1.0, rng.uniform()]) for z in (u, v))

            p, q = (_density(grids, z, rate, sigma) for z in (u, v))
            found = float((np.maximum(p - math.exp(epsilon) * q, 0) * weights).sum())
            assert found <= highest * (1 + 2e-3) + 1e-9
            if (norm := np.linalg.norm(u - v)) > apart:
                v = u + (v - u) * apart / norm  # still of norm at most 1
            p, q = (_density(grids, z, rate, sigma) for z in (u, v))
            found = float((np.maximum(p - math.exp(epsilon) * q, 0) * weights).sum())
            assert found <= closest * (1 + 2e-3) + 1e-9


@pytest.mark.parametrize(
    ("sigma", "rate", "epsilon"), [(1, 0.1, 1), (2, 0.01, 0.1), (0.7, 0.3, 2), (1, 1e-3, 3)]
)
def test_one_round_is_what_forty_digits_say(sigma: float, rate: float, epsilon: float) -> None:
    with mpmath.workdps(40):
        s, q, half = mpmath.mpf(sigma), mpmath.mpf(rate), 1 / (2 * mpmath.mpf(sigma) ** 2)
        t = s**2 * mpmath.findroot(
            lambda y: (
                mpmath.log((1 - q + q * mpmath.exp(y - half)) / (1 - q + q * mpmath.exp(-y - half))) - epsilon
            ),
            (0, 100),
            solver="anderson",
            tol=1e-30,
        )
        p, other = ((1 - q) * mpmath.ncdf(-t / s) + q * mpmath.ncdf((u - t) / s) for u in (1, -1))
        exact = float(p - mpmath.exp(epsilon) * other)
    term = NoiseTerm(stats.norm(scale=sigma), 2.0)
    seen: dict[str, Any] = {"sampling_rate": rate, "neighbours": "replace"}
    closed = delta_interval(term, epsilon, **seen)
    grid = delta_interval(term, epsilon, **seen, closed_form=False, width=1e-3)
    assert closed.lower <= exact <= closed.upper and closed.width < 1e-9
    assert grid.lower <= exact <= grid.upper and grid.width < 1e-3


@pytest.mark.parametrize("rounds", [2, 3, 4])
@pytest.mark.parametrize(("sigma", "rate", "epsilon"), [(1.0, 0.1, 0.5), (0.8, 0.4, 1.5), (2.0, 0.05, 0.0)])
def test_rounds_are_what_quadrature_composes(rounds: int, sigma: float, rate: float, epsilon: float) -> None:
    exact = _composed(epsilon, rounds, rate, sigma)
    seen: dict[str, Any] = {"rounds": rounds, "sampling_rate": rate, "neighbours": "replace"}
    found = delta_interval(NoiseTerm(stats.norm(scale=sigma), 2.0), epsilon, **seen, width=1e-3)
    assert found.lower * (1 - 1e-5) <= exact <= found.upper * (1 + 1e-5) and found.width < 1e-3
    # the same of four coordinates, and of several mechanisms
    four = delta_interval(NoiseTerm(stats.norm(scale=2 * sigma), 2.0, 4), epsilon, **seen, width=1e-3)
    term = (NoiseTerm(stats.norm(scale=sigma), 2.0),)
    parts = [(term, rounds - 1, rate), (term, 1, rate)]
    joint = joint_interval(parts, epsilon, neighbours="replace", width=1e-3)
    for other in (four, joint):
        assert other.lower * (1 - 1e-5) <= exact <= other.upper * (1 + 1e-5)


@pytest.mark.parametrize("rounds", [1, 20])
def test_less_noise_does_than_for_two_changes_by_one_record(rounds: int) -> None:
    """Group privacy: who is (ε, δ)-private for one record more or less is (2ε, (1 + e^ε) δ)-private for a replaced one."""
    asked: dict[str, Any] = {"rounds": rounds, "sampling_rate": 0.05, "dimension": 3}
    found = md.calibrate("gaussian", privacy=PRIVACY, sensitivity=REPLACED, **asked)
    half = md.ApproximateDP(PRIVACY.epsilon / 2, PRIVACY.delta / (1 + math.exp(PRIVACY.epsilon / 2)))
    twice = md.calibrate("gaussian", privacy=half, sensitivity=md.Sensitivity(l2=1.0), **asked)
    one = md.calibrate("gaussian", privacy=PRIVACY, sensitivity=md.Sensitivity(l2=1.0), **asked)
    sigma, least = found.mechanism.noise_multiplier, one.mechanism.noise_multiplier
    assert least < sigma < 0.9 * twice.mechanism.noise_multiplier
    assert found.gap < 3e-3 and found.certificate.verify()
    with pytest.raises(NotCovered, match="one is replaced"):
        verify.verify(dumps(found))


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_less_noise_and_larger_records_are_refused(rounds: int) -> None:
    found = md.calibrate("gaussian", privacy=PRIVACY, sensitivity=REPLACED, rounds=rounds, sampling_rate=0.1)
    noise = found.mechanism
    for other in (
        replace(noise, law=stats.norm(scale=noise.standard_deviation * 0.99)),
        replace(noise, sampling_rate=0.105),
        replace(noise, sensitivity=replace(REPLACED, own=1.02)),
    ):
        design = replace(found.design, sensitivity=other.sensitivity, sampling_rate=other.sampling_rate)
        forged = replace(found, mechanism=other, design=design, value=other.variance, lower_bound=None)
        assert not forged.certificate.verify()


def test_records_that_are_no_negatives_of_each_other_lose_less() -> None:
    """Counts of which records have at most one: they are √2 apart, not 2."""
    bounds = md.Sensitivity.of_contribution(l2=1.0, neighbours="replace")
    assert bounds.own == 1.0 and bounds.l2 is not None and bounds.l2 < 2.0
    noise = md.AdditiveNoise(stats.norm(), bounds, 2, 5, 0.1)
    found = noise.delta_interval(1.0)
    assert found.lower > 0 and noise.lattice.step < 1e-6
    assert found.upper < 0.9 * md.AdditiveNoise(stats.norm(), REPLACED, 2, 5, 0.1).delta_interval(1.0).lower


@pytest.mark.parametrize("rounds", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_a_change_that_is_larger_is_refused(rounds: int) -> None:
    changes = md.Sensitivity(l2=1.0, own=2.0, neighbours="replace")
    found = md.calibrate("gaussian", privacy=PRIVACY, sensitivity=changes, rounds=rounds, sampling_rate=0.1)
    assert found.certificate.verify()
    for other in (replace(changes, l2=1.02), replace(changes, own=2.1)):
        design, noise = replace(found.design, sensitivity=other), replace(found.mechanism, sensitivity=other)
        forged = replace(found, mechanism=noise, design=design, lower_bound=None)
        assert not forged.certificate.verify()

"""CellNoise as a law: distribution functions, exact sampling, exact privacy sums."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import mechdesign as md
from mechdesign.errors import DesignError
from mechdesign.noise.cell_noise import CellNoise, IntegerNoise

PLAIN = CellNoise(weights=(1, 4, 7, 2), width=0.5, start=-1.0, cells_per_shift=2)
SPIKED = CellNoise(weights=(2, 3, 2), width=1.0, start=-1.5, cells_per_shift=1, spike=3, spike_width=0.25)
TAILED = CellNoise(weights=(1, 2, 3, 3, 2, 1), width=0.5, start=-1.5, cells_per_shift=2, decay=Fraction(1, 3))
LAWS = [PLAIN, SPIKED, TAILED]


@pytest.mark.parametrize("law", LAWS)
def test_distribution_functions_fit_together(law) -> None:
    low, high = (-40, 40) if law.decay else law.support()
    edges = np.arange(law.start - 40, law.start + 80, law.width)
    points = np.unique(np.concatenate([edges[(edges > low) & (edges < high)], [-0.125, 0.125]]))
    for t in (-1.1, -0.3, 0.0, 0.05, 0.6, 1.2):
        cuts = np.concatenate([[low], points[points < t], [t]])
        mass = sum(integrate.quad(law.pdf, a, b)[0] for a, b in zip(cuts[:-1], cuts[1:]))
        assert law.cdf(t) == pytest.approx(mass, abs=1e-10)
        assert law.cdf(t) + law.sf(t) == pytest.approx(1, abs=1e-13)
    q = np.linspace(0.001, 0.999, 99)
    assert law.cdf(law.ppf(q)) == pytest.approx(q, abs=1e-12)
    cells = np.concatenate([[low], points, [high]])
    for order, value in ((1, law.mean()), (2, law.var() + law.mean() ** 2)):
        moment = sum(
            integrate.quad(lambda t, k=order: t**k * law.pdf(t), a, b)[0]
            for a, b in zip(cells[:-1], cells[1:])
        )
        assert value == pytest.approx(moment, abs=1e-8)
    assert law.expected_loss("squared") == pytest.approx(law.var() + law.mean() ** 2, rel=1e-12)
    assert law.std() == pytest.approx(math.sqrt(law.var()))


@pytest.mark.parametrize("law", LAWS)
def test_both_samplers_follow_the_law(law) -> None:
    fast = law.rvs(20_000, random_state=5)
    assert stats.kstest(fast, law.cdf).pvalue > 1e-4
    exact = law.release(np.zeros(4000))
    assert stats.kstest(exact, law.cdf).pvalue > 1e-4
    assert np.ndim(law.rvs(random_state=1)) == 0 and law.rvs((2, 3), random_state=1).shape == (2, 3)


def test_releases_are_on_the_lattice_and_doubles_of_the_input_do_not_show() -> None:
    for law in LAWS:
        assert math.frexp(law.step)[0] == 0.5 and 2.0**-21 <= law.step / law.width <= 2.0**-20
        out = law.release([0.1, 1 / 3, -2.7e5] * 100) / (law.step / 2)
        assert np.array_equal(out, np.round(out))


@given(st.floats(-1e6, 1e6), st.floats(0, 1))
def test_rounding_never_moves_answers_further_apart_than_the_cells_reach(x, share) -> None:
    for law in LAWS:
        reach = law.cells_per_shift * law.width
        steps = []
        for answer in (Fraction(x), Fraction(x) + Fraction(reach) * Fraction(share)):
            steps.append(math.floor(answer / Fraction(law.step) + Fraction(1, 2)))
        assert 0 <= steps[1] - steps[0] <= law.cells_per_shift * (math.ceil(law.width / law.step) | 1)


def test_the_lattice_law_is_private_for_every_shift_in_steps() -> None:
    """Masses on a coarse lattice, every shift summed: none exceeds the sums over cells."""
    s, epsilon = 5, 0.4
    for law in (PLAIN, SPIKED):
        p = np.repeat(np.array(law.weights, dtype=float) / s, s)
        p[len(p) // 2] += law.spike
        p /= float(law.total)
        for d in range(1, law.cells_per_shift * s + 1):
            for here, there in ((p[:-d], p[d:]), (p[d:], p[:-d])):
                lost = p.sum() - here.sum()
                loss = np.maximum(here - math.exp(epsilon) * there, 0).sum() + lost
                assert loss <= float(law.exact_delta(epsilon)) + 1e-12


@settings(max_examples=60)
@given(st.lists(st.integers(0, 50), min_size=3, max_size=9), st.integers(1, 3), st.floats(0, 3))
def test_exact_sums_against_their_definition(weights, n, epsilon) -> None:
    if not any(weights):
        weights[0] = 1
    law = CellNoise(weights=tuple(weights), width=0.25, start=0.0, cells_per_shift=n)
    p = np.array(weights) / sum(weights)
    for k, value in law.hockey_stick(epsilon).items():
        moved = np.array([p[i + k] if 0 <= i + k < len(p) else 0.0 for i in range(len(p))])
        direct = np.maximum(p - math.exp(epsilon) * moved, 0).sum()
        assert float(value) == pytest.approx(direct, abs=1e-13)
    assert float(law.exact_delta(epsilon)) == pytest.approx(law.privacy_profile(epsilon), abs=1e-12)


def test_tails_count_in_the_sums() -> None:
    # Long finite stand-in for the infinite law: the sums must agree to what the cut tail weighs.
    n, r = 2, 1 / 3
    right = np.concatenate([np.array([3, 2, 1.0])] + [np.array([2, 1]) * r**k for k in range(1, 40)])
    p = np.concatenate([right[::-1], right])
    p /= p.sum()
    for epsilon in (0.0, 0.3, 1.0):
        for k, value in TAILED.hockey_stick(epsilon).items():
            direct = np.maximum(p[:-k] - math.exp(epsilon) * p[k:], 0).sum()
            assert float(value) == pytest.approx(direct, abs=1e-12)
    assert TAILED.exact_delta(math.log(3) + 1e-9) == 0
    assert TAILED.exact_delta(math.log(3) - 1e-3) > 0
    assert n == TAILED.cells_per_shift


def test_the_spike_is_charged_in_full() -> None:
    assert SPIKED.exact_delta(50.0) >= Fraction(3, 10)


def test_tails_too_long_to_be_listed_are_summed() -> None:
    for epsilon in (1e-4, 1e-8):
        result = md.OptimalNoise(md.PureDP(epsilon), loss="squared").solve()
        law, found = result.mechanism, result.mechanism.errors()
        assert found.standard_deviation == pytest.approx(math.sqrt(result.value), rel=1e-9)
        assert found.absolute_error == pytest.approx(1 / epsilon, rel=1e-6)
        far = -math.log(0.05) / epsilon
        assert law.ppf(0.975) == pytest.approx(far, rel=1e-4) and law.sf(far) == pytest.approx(
            0.025, rel=1e-3
        )
        assert law.pdf(far) == pytest.approx(0.05 * epsilon / 2, rel=1e-3)
    with pytest.raises(DesignError, match="absolute or the squared"):
        law.expected_loss(np.cosh)


def test_no_quantile_is_a_value_without_mass() -> None:
    law = IntegerNoise((1, 0, 1), -1, 1)
    assert law.ppf([0.25, 0.5, 0.51, 0.75, 1.0]).tolist() == [-1.0, -1.0, 1.0, 1.0, 1.0]
    assert set(law.rvs(200, np.random.default_rng(0)).tolist()) == {-1, 1}


def test_integer_noise_of_long_tails_has_its_errors() -> None:
    r = Fraction(10**7 - 1, 10**7)
    law = IntegerNoise((1, 1, 1), -1, 1, decay=r)  # 1 at −1, 0, 1, then r^k on both sides
    parts = 1 / (1 - r) + 2 * r / (1 - r) ** 2 + r * (1 + r) / (1 - r) ** 3
    assert law.expected_loss("squared") == pytest.approx(float(2 * parts / (1 + 2 / (1 - r))), rel=1e-9)

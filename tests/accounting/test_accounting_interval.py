"""Certified δ-intervals: contain the truth, are narrow, agree with the library and with the paper's integrals."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as library
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from mechdesign.accounting.composition import composed_delta, discretise
from mechdesign.accounting.gaussian import gaussian_mu, gaussian_profile
from mechdesign.accounting.interval import DeltaInterval, delta_interval, epsilon_bound, upper_delta
from mechdesign.accounting.losses import AtomicLoss, NoiseTerm, centred_loss
from mechdesign.accounting.profile import privacy_profile
from mechdesign.accounting.sampling import _on_atoms
from mechdesign.errors import DesignError
from mechdesign.noise.laws.discrete import discrete_gaussian
from mechdesign.noise.laws.staircase import staircase
from mechdesign.noise.laws.symmetric import flipped_huber, osgt, truncated_laplace


@pytest.mark.slow
@settings(max_examples=80)
@given(st.integers(1, 1000), st.floats(-2, 1), st.floats(-40, -0.7))
def test_contains_the_gaussian_truth(dimension, log_epsilon, log_delta):
    epsilon, delta = 10.0**log_epsilon, 10.0**log_delta
    mu = gaussian_mu(epsilon, delta)
    term = NoiseTerm(stats.norm(scale=math.sqrt(dimension) / mu), 1.0, dimension)
    interval = delta_interval(term, epsilon, closed_form=False)
    truth = gaussian_profile(epsilon, mu)
    assert interval.lower <= truth * (1 + 1e-12) and truth * (1 - 1e-12) <= interval.upper
    assert interval.width <= 0.01


@pytest.mark.parametrize("delta", [1e-4, 1e-7, 1e-10, 1e-60, 1e-200])
@pytest.mark.parametrize("dimension", [20, 1000])
def test_width_down_to_tiny_deltas(dimension, delta):
    mu = gaussian_mu(1.0, delta)
    law = flipped_huber(0.3, scale=math.sqrt(dimension) / mu)
    assert delta_interval(NoiseTerm(law, 1.0, dimension), 1.0).width <= 0.01


def any_profile(law, sensitivity, epsilon):
    """δ(ε) for ε of either sign: symmetric pairs satisfy δ(−ε) = 1 − e^{−ε} + e^{−ε} δ(ε)."""
    positive = privacy_profile(law, sensitivity, abs(epsilon))
    return positive if epsilon >= 0 else -math.expm1(epsilon) + math.exp(epsilon) * positive


def two_coordinates(first, second, epsilon):
    """δ²(ε) = ∫ g(t) δ¹(ε − ζ(t)) dt: Algorithm 2 of the paper, one step, by quadrature."""
    loss = centred_loss(first.law, first.sensitivity)
    half = first.sensitivity / 2

    def integrand(t):  # t centred: the noise is t − Δ/2
        rest = any_profile(second.law, second.sensitivity, epsilon - float(loss.loss(t)))
        return first.law.pdf(t - half) * rest

    s = first.law.std()
    reach = min(14 * s, float(first.law.support()[1])) + half
    marks = {-reach, reach, half, -half, 0.0, *(k * s for k in (-4, -1, 1, 2, 4, 6, 9))}
    for kink in loss.kinks:
        marks |= {kink, -kink}
    edges = sorted(m for m in marks if -reach <= m <= reach)
    return math.fsum(
        integrate.quad(integrand, a, b, epsabs=1e-15, epsrel=1e-6, limit=60)[0]
        for a, b in zip(edges[:-1], edges[1:])
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "pair",
    [
        (NoiseTerm(flipped_huber(1.0, scale=2.0), 1.0), NoiseTerm(flipped_huber(1.0, scale=2.0), 1.0)),
        (NoiseTerm(flipped_huber(2.5, scale=3.0), 1.0), NoiseTerm(stats.laplace(scale=2.0), 1.5)),
        (NoiseTerm(osgt(0.6, scale=2.0), 0.7), NoiseTerm(stats.norm(scale=2.0), 1.0)),
        (NoiseTerm(stats.logistic(scale=1.5), 1.0), NoiseTerm(flipped_huber(0.2, scale=2.0), 1.0)),
    ],
)
@pytest.mark.parametrize("epsilon", [0.4, 1.1])
def test_two_coordinates_by_the_papers_integral(pair, epsilon):
    truth = two_coordinates(*pair, epsilon)
    interval = delta_interval(pair, epsilon, width=1e-3)
    assert interval.lower <= truth * (1 + 1e-5) and truth * (1 - 1e-5) <= interval.upper
    assert interval.width <= 1e-3


LAWS = [
    flipped_huber(0.4, scale=22.0),
    flipped_huber(3.5, scale=70.0),
    stats.laplace(scale=20.0),
    osgt(0.3, scale=25.0),
    truncated_laplace(28.0, scale=20.0),
    staircase(0.05, 0.3),
    stats.logistic(scale=14.0),
    stats.gennorm(1.5, scale=25.0),
    stats.dlaplace(0.05),
    discrete_gaussian(22.0),
]


@pytest.mark.parametrize("law", LAWS)
def test_every_family_in_twenty_dimensions(law):
    term = NoiseTerm(law, 1.0, 20)
    intervals = [delta_interval(term, e, width=0.02) for e in (0.3, 0.6, 0.9)]
    assert all(i.lower <= i.upper and i.width <= 0.05 for i in intervals)
    # non-increasing in ε, non-decreasing in the dimension
    assert intervals[0].upper > intervals[1].lower > 0 and intervals[1].upper > intervals[2].lower
    assert delta_interval(NoiseTerm(law, 1.0, 10), 0.6, width=0.02).lower <= intervals[1].upper
    # basic composition is never beaten downwards
    single = privacy_profile(law, 1.0, 0.03)
    assert intervals[1].lower <= -math.expm1(20 * math.log1p(-single)) * (1 + 1e-9)


@pytest.mark.parametrize("dimension", [2, 20, 150])
def test_laplace_against_the_library(dimension):
    scale = 4.0 * math.sqrt(dimension)
    above = library.from_laplace_mechanism(scale, value_discretization_interval=2e-5).self_compose(dimension)
    for epsilon in (0.2, 0.6, 1.2):
        upper = above.get_delta_for_epsilon(epsilon)
        interval = delta_interval(NoiseTerm(stats.laplace(scale=scale), 1.0, dimension), epsilon)
        assert interval.lower <= upper + 1e-14
        if upper > 1e-10:
            assert upper <= interval.upper * 1.02


def test_grids_bound_the_single_profile_from_both_sides():
    for law in (flipped_huber(1.5, scale=1.0), stats.laplace(scale=2.0), truncated_laplace(9.0, scale=2.0)):
        loss = centred_loss(law, 1.2)
        for cells in (3, 10, 40):
            step = loss.atoms[0] / cells if loss.atoms else 1.0 / cells
            for epsilon in np.linspace(0, 1.5, 7):
                truth = privacy_profile(law, 1.2, epsilon)
                for pessimistic in (True, False):
                    grid = discretise(loss, step, pessimistic=pessimistic, upper_tail=1e-20, lower_tail=1e-12)
                    delta, _ = composed_delta([(grid, 1)], float(epsilon))
                    assert delta >= truth - 1e-15 if pessimistic else delta <= truth + 1e-15


@pytest.mark.parametrize(("sampling_rate", "epsilon"), [(0.5, 0.3), (0.1, 0.05), (0.01, 0.02)])
def test_one_sampled_round_in_closed_form(sampling_rate, epsilon):
    law = flipped_huber(0.8, scale=1.0)
    # removing: s δ(log(1 + (e^ε − 1)/s)); adding is the smaller for ε > 0
    remove = sampling_rate * privacy_profile(law, 1.0, math.log1p(math.expm1(epsilon) / sampling_rate))
    interval = delta_interval(NoiseTerm(law, 1.0), epsilon, sampling_rate=sampling_rate)
    assert interval.lower <= remove * (1 + 1e-9) and remove * (1 - 1e-9) <= interval.upper
    assert interval.width <= 0.02


@pytest.mark.parametrize("width", [0.03, 5e-3])
@pytest.mark.parametrize(("scale", "sampling_rate", "rounds"), [(0.404, 1e-3, 10_000), (2.0, 0.1, 30)])
def test_sampled_bounds_of_a_search_agree_with_the_interval(scale, sampling_rate, rounds, width):
    # Laplace losses have atoms, which from below cost their distance to the grid, times the rounds
    term = NoiseTerm(stats.laplace(scale=scale), 1.0)
    interval = delta_interval(term, 1.0, rounds=rounds, sampling_rate=sampling_rate, width=0.02)
    assert interval.width <= 0.02
    upper = upper_delta(term, 1.0, rounds=rounds, sampling_rate=sampling_rate, width=width)
    assert interval.lower <= upper <= interval.upper * (1 + width)


@pytest.mark.slow
@pytest.mark.parametrize(("sampling_rate", "rounds", "epsilon"), [(0.2, 10, 1.0), (0.05, 40, 0.5)])
def test_sampled_rounds_against_the_library(sampling_rate, rounds, epsilon):
    for law, make in (
        (stats.norm(scale=1.0), library.from_gaussian_mechanism),
        (stats.laplace(scale=1.0), library.from_laplace_mechanism),
    ):
        upper = (
            make(1.0, sampling_prob=sampling_rate, value_discretization_interval=1e-4)
            .self_compose(rounds)
            .get_delta_for_epsilon(epsilon)
        )
        interval = delta_interval(
            NoiseTerm(law, 1.0), epsilon, rounds=rounds, sampling_rate=sampling_rate, width=0.02
        )
        assert interval.lower <= upper <= interval.upper * 1.01
        assert interval.width <= 0.03


def test_rounds_are_coordinates_when_nothing_is_sampled():
    law = osgt(0.4, scale=20.0)
    assert delta_interval(NoiseTerm(law, 1.0, 4), 0.5, rounds=5) == delta_interval(
        NoiseTerm(law, 1.0, 20), 0.5
    )


@pytest.mark.slow
def test_epsilon_bound_is_safe_and_tight():
    for law in LAWS[:5]:
        term = NoiseTerm(law, 1.0, 20)
        epsilon = epsilon_bound(term, 1e-6)
        assert delta_interval(term, epsilon).upper <= 1e-6
        assert delta_interval(term, epsilon * 0.999).upper > 1e-6
    assert epsilon_bound(NoiseTerm(truncated_laplace(3.0, scale=20.0), 1.0, 20), 1e-9) == math.inf


def test_interval_is_a_value():
    interval = DeltaInterval(0.5e-6, 1e-6)
    assert 0.7e-6 in interval and 2e-6 not in interval
    assert interval.width == pytest.approx(0.5)
    assert DeltaInterval(0.0, 0.0).width == 0.0


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"width": 0.0}, "width"),
        ({"rounds": 0}, "rounds"),
        ({"sampling_rate": 0.0}, "sampling_rate"),
        ({"sampling_rate": 1.5}, "sampling_rate"),
    ],
)
def test_bad_input_is_named(options, word):
    options = {"epsilon": 1.0, **options}
    with pytest.raises(DesignError, match=word):
        delta_interval(NoiseTerm(stats.norm(), 1.0, 3), options.pop("epsilon"), **options)


def test_bad_terms_are_named():
    with pytest.raises(DesignError, match="count"):
        NoiseTerm(stats.norm(), 1.0, 0)
    with pytest.raises(DesignError, match="sensitivity"):
        NoiseTerm(stats.norm(), -1.0)
    with pytest.raises(DesignError, match="terms"):
        delta_interval([], 1.0)
    with pytest.raises(DesignError, match="delta"):
        epsilon_bound(NoiseTerm(stats.norm(), 1.0), 1e-290)


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "epsilon"), [(500, 2.0), (5000, 8.0)])
def test_sampled_rounds_of_several_terms_are_enclosed(rounds: int, epsilon: float) -> None:
    """The lower end was above the upper, 9.21e-6 > 5.86e-6: masses that had been lowered added up to more than laws."""
    shifts = (0.05, 0.0573, 0.0874, 0.1101, 0.1387, 0.1747, 0.2201)
    counts = (1, 1, 6, 1, 5, 1, 5)
    law, rate = stats.laplace(scale=0.6898), 0.02
    found = delta_interval(
        [NoiseTerm(law, s, c) for s, c in zip(shifts, counts)],
        epsilon,
        rounds=rounds,
        sampling_rate=rate,
        width=0.2,
    )
    # Masses of the loss under P, on a grid fine enough, convolved; then sampled and convolved again, in doubles.
    step, size = 2e-4, 2**17
    total = np.zeros(size)
    total[0] = 1.0
    for shift, count in zip(shifts, counts):
        edges = np.linspace(-20, 20, 2_000_001)
        mass = np.diff(law.cdf(edges))
        t = (edges[1:] + edges[:-1]) / 2
        loss = (np.abs(t - shift) - np.abs(t)) / 0.6898
        one = np.bincount(np.round(loss / step).astype(int) % size, weights=mass, minlength=size)
        total = np.fft.ifft(np.fft.fft(total) * np.fft.fft(one) ** count).real
    points = (np.arange(size) + size // 2) % size - size // 2
    keep = total > 1e-15
    values, mass = points[keep] * step, total[keep] / total[keep].sum()
    other = mass * np.exp(-values)
    removed = np.bincount(
        np.round(np.log1p(rate * np.expm1(values)) / step).astype(int) % size,
        weights=rate * mass + (1 - rate) * other,
        minlength=size,
    )
    final = np.fft.ifft(np.fft.fft(removed) ** rounds).real
    beyond = points * step
    delta = float((final * -np.expm1(np.minimum(epsilon - beyond, 0.0)))[beyond > epsilon].sum())
    assert found.lower <= found.upper
    assert found.lower <= delta * 1.02 and delta <= found.upper * 1.02


@pytest.mark.parametrize("near", [1e-9, 0.003, 0.0])
def test_an_atom_near_zero_does_not_refine_the_grid_without_end(near: float) -> None:
    """Two Laplace coordinates, 60 rounds sampled at .066 at ε = 3.26: 600 million points, and no memory left.

    δ = 2.47327e-20 by a convolution tilted by hand, on three grids; Chernoff's bound is 3e-17.
    """
    loss = AtomicLoss(np.array([-1.0, near, 2.0]), np.array([0.1, 0.8, 0.1]))
    assert _on_atoms(loss, 0.01, 0.0) >= 0.008
    term = NoiseTerm(stats.laplace(scale=3.129365124040165 / 2**0.5), 1.0, 2)
    found = delta_interval(term, 3.2602667291772267, rounds=60, sampling_rate=0.0657076031544819)
    assert found.lower <= 2.47327e-20 <= found.upper <= 2.5e-20

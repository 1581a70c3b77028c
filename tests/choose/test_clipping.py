"""The mean of clients' clipped reports: its error by formula, by simulation and in closed form; ranges against grids; files and refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.choose.clipping import ClippedMean
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.mechanism import duchi

SAMPLES = np.random.default_rng(4).gamma(2.0, size=40)
PRIORS = {
    "normal": stats.norm(0.3, 2),
    "t": stats.t(3.5),
    "lognormal": stats.lognorm(0.8),
    "Laplace": stats.laplace(5, 0.1),
    "bounded": stats.beta(2, 5),
    "clipped": md.clipped(stats.norm(), -1, 4),
    "truncated": md.truncated(stats.norm(), -1, 4),
    "samples": SAMPLES,
}


def found(
    prior: object, clients: int, epsilon: float = 1.0, bits: int = 2, **options: object
) -> md.Comparison:
    question = md.LocalReport(bits, prior=prior, clients=clients)
    options = {"mechanisms": ["optimal, searched outputs"], **options}
    return md.compare(question, md.PureDP(epsilon), progress=False, **options)


@pytest.mark.parametrize("name", PRIORS)
def test_parts_of_the_error_agree_with_integrals_of_their_own(name: str) -> None:
    prior, (low, high) = Prior.of(PRIORS[name], unbounded=True), (0.2, 1.1)
    mechanism = md.Quantizer.rqm((low + high) / 2 + np.array([-1.2, -0.4, 0.4, 1.2]), 0.3, (low, high))
    got = ClippedMean(prior, 1).of(mechanism)
    assert got.noise.item() == pytest.approx(
        mechanism.expected_loss(prior.clip(low, high), "squared"), rel=1e-9
    )
    if name == "samples":
        ends = [np.maximum(low - SAMPLES, 0), np.maximum(SAMPLES - high, 0)]
        means, squares = [e.mean() for e in ends], [(e**2).mean() for e in ends]
    else:  # of what is clipped or truncated, the part up to its end
        law = getattr(prior, "_source", PRIORS[name])
        law = getattr(law, "law", law)
        factor = getattr(prior, "_factor", 1.0)
        start, stop = prior.support
        means, squares = np.zeros(2), np.zeros(2)
        for k, (a, b, at) in enumerate(((start, low, low), (high, stop, high))):
            if b <= a:
                continue
            for power, into in ((1, means), (2, squares)):
                into[k] = factor * law.expect(
                    lambda x, p=power, c=at: abs(x - c) ** p, lb=a, ub=b, epsabs=1e-14
                )
        if name == "clipped":
            for k, (end, mass, at) in enumerate(((start, law.cdf(start), low), (stop, law.sf(stop), high))):
                means[k] += mass * abs(end - at)
                squares[k] += mass * (end - at) ** 2
    assert [got.under.item(), got.over.item()] == pytest.approx(list(means), rel=1e-7, abs=1e-12)
    assert got.square.item() == pytest.approx(sum(squares), rel=1e-6)


@pytest.mark.parametrize("name", ["normal", "lognormal", "samples"])
def test_the_error_is_that_of_a_simulation(name: str) -> None:
    """Under the prior itself: `exact`; where only one end clips, the stated one too."""
    prior, clients, runs = Prior.of(PRIORS[name], unbounded=True), 50, 20_000
    rng = np.random.default_rng(1)
    for low, high in ((-0.5, 1.5), (0.0, 1.2)):
        shape = duchi(2.0)
        mechanism = md.Quantizer(
            (low + high) / 2 + (high - low) / 2 * shape.bins, [low, high], shape.starts, shape.ends
        )
        x = prior.sample((runs, clients), rng=rng)
        off = mechanism.sample(x, rng=rng, clip=True).mean(axis=1) - x.mean(axis=1)
        stated = ClippedMean(prior, clients).of(mechanism)
        squared, exact = stated.squared(clients).item(), stated.exact(clients).item()
        assert abs((off**2).mean() - exact) < 4 * (off**2).std() / math.sqrt(runs)
        assert exact <= squared * (1 + 1e-12)
        if prior.support[0] >= low:
            assert exact == pytest.approx(squared)


@pytest.mark.slow
def test_one_bit_on_laplace_and_uniform_inputs_in_closed_form() -> None:
    """Two outputs ±Ah on [−h, h]: noise A²h² − E c(X)². Laplace: E(X − h)₊ = e^−h/2, E(X − h)₊² = e^−h."""
    n, reach = 5000, 1 / math.tanh(0.5)

    def laplace(h: float) -> float:
        kept = 2 - 2 * (1 + h) * math.exp(-h)  # E c(X)²
        return (reach**2 * h * h - kept + 2 * math.exp(-h)) / n + (1 - 1 / n) * math.exp(-2 * h) / 4

    def uniform(h: float) -> float:
        beyond = (1 - h) ** 2 / 4
        kept = h**3 / 3 + (1 - h) * h * h
        return (reach**2 * h * h - kept + (1 - h) ** 3 / 3) / n + (1 - 1 / n) * beyond**2

    for law, error, most in ((stats.laplace(), laplace, 20.0), (stats.uniform(-1, 2), uniform, 1.0)):
        result = found(law, n, bits=1).best
        low, high = result.mechanism.input_range
        grid = np.linspace(0, most, 200_001)[1:]
        values = [error(h) for h in grid]
        assert low == pytest.approx(-high)
        assert high == pytest.approx(grid[int(np.argmin(values))], rel=2e-3)
        got = md.LocalReport(1, prior=law, clients=n).error(result)
        assert got == pytest.approx(error(high), rel=1e-6)
        assert got <= min(values) * (1 + 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "clients", "epsilon"), [("normal", 10_000, 1.0), ("lognormal", 1000, 2.0)])
def test_no_range_of_a_grid_of_200_does_better(name: str, clients: int, epsilon: float) -> None:
    question = md.LocalReport(1, prior=PRIORS[name], clients=clients)
    result = found(PRIORS[name], clients, epsilon, bits=1).best
    low, high = result.mechanism.input_range
    centre = PRIORS[name].mean()
    grid = [(a, b) for a in np.geomspace(0.5, 2, 14) for b in np.geomspace(0.5, 2, 14)]
    if name == "normal":
        grid = [(t, t) for t in np.geomspace(0.3, 3, 200)]
    a, b = np.array(grid).T
    ends = centre - a * (centre - low), centre + b * (high - centre)
    least = question.mean.errors(duchi(epsilon), *ends).squared(clients).min()
    assert question.error(result) <= 1.001 * least


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 10**7), st.floats(0.3, 5), st.floats(-3, 3), st.floats(0.5, 4))
def test_moving_and_stretching_a_prior_moves_and_stretches_the_answer(
    n: int, epsilon: float, loc: float, scale: float
) -> None:
    shape = duchi(epsilon)
    one, other = (
        ClippedMean(Prior.of(stats.laplace(), unbounded=True), n),
        ClippedMean(Prior.of(stats.laplace(loc, scale), unbounded=True), n),
    )
    (low, high), (start, stop) = one.best_range(shape), other.best_range(shape)
    errors = one.errors(shape, low, high).squared(n), other.errors(shape, start, stop).squared(n)
    assert errors[1] == pytest.approx(scale**2 * errors[0], rel=1e-4)
    assert [start, stop] == pytest.approx([loc + scale * low, loc + scale * high], rel=0.02, abs=0.02)
    # no range that is somewhat wider or narrower does better
    for times in (0.9, 1.1):
        assert one.errors(shape, times * low, times * high).squared(n) >= errors[0]


def test_a_range_that_is_given_is_the_range() -> None:
    asked = md.LocalReport(2, (-2, 2), stats.norm(), clients=1000)
    result = md.compare(asked, md.PureDP(1.0), mechanisms=["MVU"], progress=False).best
    assert result.mechanism.input_range == (-2, 2)
    assert md.LocalReport(1, clients=1000).input_range is None
    assert md.LocalReport(1, (-2, 1), clients=1000).prior.support == (-2, 1)
    free = found(stats.norm(), 1000, mechanisms=["MVU"])
    assert free.question.error(free.best) < asked.error(result)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: md.LocalReport(clients=0), "clients = 0: must be an integer from 1"),
        (lambda: md.LocalReport(clients=10, loss="absolute"), "loss = .*must be squared"),
        (lambda: md.LocalReport(clients=10, prior=stats.cauchy()), "no finite variance"),
        (lambda: md.LocalReport(clients=10, prior=stats.t(2)), "no finite variance"),
        (
            lambda: md.LocalReport(clients=10, prior=[1.0, 1.0], input_range=(0, 2)),
            "no finite variance other than 0",
        ),
        (lambda: found(md.truncated(stats.laplace(), -1, 4), 10), "cannot be clipped: give input_range"),
    ],
)
def test_refused(make: object, message: str) -> None:
    with pytest.raises(md.MechdesignError, match=message):
        make()  # type: ignore[operator]

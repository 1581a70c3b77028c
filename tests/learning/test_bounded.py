"""Least squares and logistic regression of bounded records: what a record changes, what is gained, bad input."""

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.learning import (
    PrivateGeneralizedLinearRegression,
    PrivateLinearRegression,
    PrivateLogisticRegression,
)
from mechdesign.learning.plan import NoisySums

DP = md.ApproximateDP(1.0, 1e-6)
RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, (4000, 3)) * [1.0, 5.0, 0.3]
Y = X @ [1.0, -0.5, 2.0] + 0.5 + 0.2 * RNG.standard_normal(4000)
LINEAR = {"privacy": DP, "bounds": (-5.0, 5.0), "target_bounds": (-5.0, 5.0), "random_state": 0}
LOGISTIC = {"privacy": DP, "bounds": (-5.0, 5.0), "classes": [-1.0, 1.0], "random_state": 0}
HUBER = {**LINEAR, "threshold": 0.5}
POISSON = {**LINEAR, "loss": "poisson", "target_bounds": (0.0, 5.0)}
KINDS = [
    (PrivateLinearRegression, LINEAR),
    (PrivateLogisticRegression, LOGISTIC),
    (PrivateGeneralizedLinearRegression, HUBER),
    (PrivateGeneralizedLinearRegression, POISSON),
]


class Seen(NoisySums):
    """Sums without noise in the end: it shows them, and what every one consumes."""

    log: list[tuple[list[int], list[Fraction]]]
    answers: np.ndarray

    def answer(self, totals: Any, *weights: Fraction, kinds: Any = None) -> Any:
        kinds = [0] * len(totals) if kinds is None else kinds
        self.log.append(([int(n) for n in totals], [weights[k] for k in kinds]))
        first = self._next
        self._next += len(totals)
        return self.answers[first : self._next]  # of both data sets: what was released before is the same


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1.0, 1e-6, 0.3, 1e9]),
    pure=st.booleans(),
    which=st.integers(0, 3),
    rows=st.sampled_from([2, 40, 3000]),
)
def test_a_replaced_record_consumes_no_more_than_the_budget(
    seed: int, size: float, pure: bool, which: int, rows: int
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 2)) * rng.choice([0.2, 2.0])
    y = np.sign(x[:, 0] + 0.1)
    x2, y2 = x.copy(), y.copy()
    x2[0], y2[0] = size * rng.standard_normal(2), -y[0] * (1.0 if which < 2 else 9.0)
    pure = pure and which == 0
    kind, options = KINDS[which]
    options = {**options, "privacy": md.PureDP(1.0) if pure else DP, "bounds": ([-1.0, -3.0], [1.0, 2.0])}
    logs = []
    for features, target in ((x, y), (x2, y2)):
        model = kind(**options)
        start, sums = model._sums, []

        def started(*sizes: int, start: Any = start, sums: list[Any] = sums) -> Seen:
            found = start(*sizes)
            found.__class__, found.log = Seen, []
            sums[:] = [found]
            plain = np.random.default_rng(seed + 1).standard_normal(found.noise.dimension)
            found.answers = plain * rows
            return found

        model._sums = started
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            model.fit(features, target)
        logs.append(sums[0].log)
    spent = Fraction(0)
    for (one, weights), (other, again) in zip(*logs):
        assert weights == again
        for a, b, w in zip(one, other, weights):
            spent += abs(a - b) * w if pure else ((a - b) * w) ** 2
    assert len(logs[0]) == len(logs[1])
    assert spent <= 1


def test_orthogonal_records_of_full_length_consume_the_whole_share() -> None:
    model = PrivateLinearRegression(**LINEAR)
    model._check(2)
    unit = 1 << 40
    weight, stretch = model._moments_weight(1.0, 3, unit)
    change = 2 * weight**2 * unit**2  # e₁e₁ᵀ − e₂e₂ᵀ
    assert 1 - 1e-9 < change <= 1
    z, other = np.ones(4) / 2, np.array([1, 1, -1, -1]) / 2
    moved = np.outer(z, z) - np.outer(other, other)
    upper = np.triu_indices(4)
    weights = [float(weight * unit * (1 if i == j else stretch)) for i, j in zip(*upper)]
    assert 1 - 1e-9 < ((moved[upper] * weights) ** 2).sum() <= 1 + 1e-12


def test_targets_at_both_bounds_consume_the_whole_share_of_their_mean() -> None:
    model = PrivateGeneralizedLinearRegression(**HUBER)
    model._check(1)
    model._target = 1.0, 5.0
    sums: Any = model._sums(model._noise(1))
    sums.__class__, sums.log, sums.answers = Seen, [], np.zeros(8)
    for first in (-4.0, 6.0):
        assert model._loss(np.array([first, 1.0, 2.0]), 0.02, sums).start == 1.0
    ([one], [weight]), ([other], _) = sums.log
    assert 1 - 1e-9 < ((one - other) * weight) ** 2 / Fraction(0.02) <= 1


@pytest.mark.parametrize("seed", [0, None])
def test_sums_have_the_stated_noise_and_are_exact_on_the_lattice(seed: int | None) -> None:
    model = PrivateLinearRegression(**{**LINEAR, "random_state": seed})
    model._check(1)
    sums = model._sums(model._noise(3000))
    weights = Fraction(1, 1000), Fraction(1, 10)
    off = sums.answer([10**12 + k for k in range(3000)], *weights, kinds=[k % 2 for k in range(3000)])
    off -= 1e12 + np.arange(3000)
    for k, weight in enumerate(weights):
        scale = sums.noise.standard_deviation / float(weight)
        assert off[k::2].std() == pytest.approx(scale, rel=0.1)
        assert abs(off[k::2].mean()) < 5 * scale / math.sqrt(1500)


@pytest.mark.parametrize(
    "privacy",
    [DP, md.PureDP(4.0), md.ApproximateDP(4.0, 0.0), md.ZeroConcentratedDP(0.1), md.GaussianDP(0.5)],
    ids=repr,
)
def test_least_squares_finds_the_line(privacy: Any) -> None:
    model = PrivateLinearRegression(**{**LINEAR, "privacy": privacy, "bounds": ([-1, -5, -0.3], [1, 5, 0.3])})
    model.fit(X, Y)
    off = np.append(model.coef_ - [1.0, -0.5, 2.0], model.intercept_ - 0.5)
    errors = np.sqrt(np.diag(model.covariance_))
    assert (np.abs(off) < 4.5 * np.append(errors[1:], errors[0])).all()
    assert model.score(X, Y) > 0.9
    assert model.privacy_.certificate.verify()


@pytest.mark.parametrize(
    "people, epsilon, bounds, target",
    [(200, 1.0, 10, 5), (30, 1.0, 1, 2), (2000, 0.05, 1, 2), (20_000, 0.1, 10, 5), (20_000, 1.0, 1, 60)],
)
def test_intervals_hold_where_noise_is_all_or_bounds_are_wide(
    people: int, epsilon: float, bounds: float, target: float
) -> None:
    """Also where the likeliest prior of what noise has swamped is none."""
    hits = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        x = rng.uniform(-1, 1, (people, 4)) * np.array([1, 2, 4, 8]) / (8 if bounds == 1 else 1)
        theta = np.array([1.0, 0.5, 0.0, -0.1])
        options = {"bounds": (-bounds, bounds), "target_bounds": (-target, target), "random_state": seed}
        model = PrivateLinearRegression(privacy=md.ApproximateDP(epsilon, 1e-6), **options)
        low, high = model.fit(x, x @ theta + 0.2 * rng.standard_normal(people)).intervals(0.95).T
        hits.append((low <= theta) & (theta <= high))
    assert np.mean(hits) >= 0.9


def test_a_fit_of_equal_records_never_ends_in_an_error() -> None:
    """Nothing is seen in some direction."""
    x = np.full((60, 2), 0.5)
    for seed in range(40):
        options = {"bounds": (-1, 1), "target_bounds": (-1, 1), "random_state": seed}
        model = PrivateLinearRegression(privacy=md.ApproximateDP(0.1, 1e-6), **options).fit(x, x[:, 0])
        assert np.isfinite(model.standard_errors_).all()


def test_logistic_regression_finds_the_direction_and_its_units() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (20000, 2)) * [10.0, 0.1] + [100.0, 0.0]
    score = 0.8 * (x[:, 0] - 105) + 20 * (x[:, 1] - 0.05)
    y = np.where(rng.uniform(size=20000) < 1 / (1 + np.exp(-score)), "yes", "no")
    options = {**LOGISTIC, "bounds": ([100, 0], [110, 0.1]), "classes": ["no", "yes"]}
    model = PrivateLogisticRegression(**options).fit(x, y)
    np.testing.assert_allclose(model.coef_, [0.8, 20.0], rtol=0.25)
    np.testing.assert_allclose(model.decision_function(x), score, atol=1.5)
    assert model.path_.shape == (60, 3) and model.classes_.tolist() == ["no", "yes"]
    np.testing.assert_allclose(model.path_[30:].mean(axis=0)[1:], model.coef_)


def test_far_targets_move_the_huber_fit_less_and_a_line_is_found_wherever_it_lies() -> None:
    y = Y + 100.0
    y[::20] += 60.0  # the same for all: only robust fits tell
    options = {**HUBER, "bounds": ([-1, -5, -0.3], [1, 5, 0.3]), "target_bounds": (0, 400)}
    model = PrivateGeneralizedLinearRegression(**options).fit(X, y)
    np.testing.assert_allclose(model.coef_, [1.0, -0.5, 2.0], atol=0.15)
    assert model.intercept_ == pytest.approx(100.5, abs=0.1)
    np.testing.assert_allclose(model.path_[30:].mean(axis=0), np.append(model.intercept_, model.coef_))
    del options["threshold"]
    squares = PrivateLinearRegression(**options).fit(X, y)
    assert abs(squares.intercept_ - 100.5) > 1.0


@pytest.mark.parametrize(("most", "room"), [(15.0, 0.1), (60.0, 0.2)])
def test_counts_have_the_coefficients_of_their_logarithm(most: float, room: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, (20000, 2))
    score = 0.5 + x @ [0.15, -0.1]
    counts = rng.poisson(np.exp(score))
    options = {**POISSON, "bounds": (0, 10), "target_bounds": (0, most)}
    model = PrivateGeneralizedLinearRegression(**options).fit(x, counts)
    np.testing.assert_allclose(np.log(model.predict(x)), score, atol=2 * room)
    np.testing.assert_allclose(model.coef_, [0.15, -0.1], atol=room / 5)
    model.intercept_ = 1e3
    assert (model.predict(x) == pytest.approx(most)) and model.privacy_.certificate.verify()


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_what_lies_beyond_the_bounds_is_clipped_and_counted(kind: type, options: dict[str, Any]) -> None:
    wild = X.copy()
    wild[:100] *= 1e200
    held = np.clip(wild, -5, 5)
    y = np.sign(Y).clip(options.get("target_bounds", (-1.0, 1.0))[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, other = kind(**options).fit(wild, y), kind(**options).fit(held, y)
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.predict(wild), one.predict(held))
    assert one.clipped_ - other.clipped_ == pytest.approx(100)
    with pytest.warns(UserWarning, match="of the records lie beyond the bounds"):
        kind(**{**options, "bounds": (-0.01, 0.01)}).fit(X, np.sign(Y))


@pytest.mark.parametrize("classes", [[None, 1], [math.nan, 1], [1, 1], [1, 2, 3]])
def test_classes_are_two_labels(classes: list[Any]) -> None:
    with pytest.raises(md.DesignError, match="two different labels, both numbers or both texts"):
        PrivateLogisticRegression(**{**LOGISTIC, "classes": classes}).fit(
            np.zeros((4, 1)), np.array([0, 1, 0, 1])
        )

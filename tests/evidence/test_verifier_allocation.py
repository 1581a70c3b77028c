"""The stand-alone check of allocated noise: sound and doctored files, and its δ and its worst change against other computations."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechdesign.accounting import NoiseTerm, delta_interval
from mechdesign.verifier.allocation import composed_delta
from mechdesign.verifier.changes import Changes, filled
from mechdesign.verifier.composition import PLACES, Grid, laplace_losses
from mechdesign.verifier.reading import Account


def test_delta_of_two_laplace_coordinates_by_quadrature() -> None:
    import mpmath

    one, other, epsilon = 0.9, 0.4, 0.3

    def mass(ratio: float) -> list[tuple[float, float]]:
        return [(ratio, 0.5), (-ratio, 0.5 * math.exp(-ratio))]

    def curve(level: mpmath.mpf, ratio: float) -> mpmath.mpf:
        if level >= ratio:
            return mpmath.mpf(0)
        return 1 - mpmath.exp(level) if level <= -ratio else 1 - mpmath.exp((level - ratio) / 2)

    # δ(ε) = E over the first loss of δ₂(ε − l)
    exact = mpmath.fsum(m * curve(epsilon - loss, other) for loss, m in mass(one))
    density = lambda loss: mpmath.exp((loss - one) / 2) / 4  # noqa: E731
    kinks = sorted({-one, one, *(k for k in (epsilon - other, epsilon + other) if abs(k) < one)})
    exact += mpmath.quad(lambda loss: density(loss) * curve(epsilon - loss, other), kinks)
    with localcontext() as context:
        context.prec = PLACES
        budget = Decimal(str(exact))  # which no grid keeps: the finest decides
        found = composed_delta(
            Decimal(epsilon), budget, Counter([Decimal(one), Decimal(other)]), Decimal(0), Account()
        )
    assert exact <= mpmath.mpf(str(found)) <= exact * (1 + 1e-5)


def test_steps_that_no_power_of_two_relates_are_not_composed() -> None:
    """A budget of many digits: its halves were rounded, and losses of one law taken for half of what they are."""
    ratios = [Decimal(r) for r in (0.24, 0.236, 0.045, 0.212, 0.067, 0.163)]
    from scipy import stats

    terms = tuple(NoiseTerm(stats.laplace(), float(ratio), 1) for ratio in ratios)
    interval = delta_interval(terms, 0.6, width=1e-3)
    with localcontext() as context:
        context.prec = PLACES
        epsilon, least = Decimal.from_float(0.6), Decimal(interval.lower)
        found = float(composed_delta(epsilon, least, Counter(ratios), Decimal(0), Account()))
        grid = Grid(Decimal("1e-15"), 2**12, Account())
        one, other = (
            laplace_losses(grid, ratio, unit)
            for ratio, unit in ((ratios[0], epsilon), (ratios[1], epsilon / 3))
        )
        with pytest.raises(ArithmeticError):
            grid.product(one, other)
    assert interval.lower <= found <= interval.upper * (1 + 1e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31))
def test_a_norm_filled_covers_every_change_of_whole_coordinates_but_one(seed: int) -> None:
    """All subsets, and each of them with one more coordinate in part, in fractions."""
    rnd = random.Random(seed)
    count, m = rnd.randint(1, 6), rnd.choice([1, 2])
    power = 1 if m == 1 else rnd.choice([1, 2])
    sizes = [Fraction(rnd.randint(1, 40), 8) for _ in range(count)]
    scales = [Fraction(rnd.randint(4, 60), 8) for _ in range(count)]
    norm = sum(sizes) * Fraction(rnd.randint(10, 90), 100)
    l0 = rnd.choice([None, rnd.randint(1, count)])
    asked = Changes(sizes, l0, norm if power == 1 else None, norm if power == 2 else None)
    prices = [Fraction(rnd.choice([0, 0, 1]), 10) if l0 else Fraction(0), Fraction(0), Fraction(0)]

    def gain(i: int, square: Fraction) -> Fraction:
        """Of a coordinate whose n(v) is `square`."""
        part = square**m if power == 1 else square
        return max(part / scales[i] ** m - prices[0], Fraction(0))

    limit, best = norm**power, Fraction(0)
    for kinds in itertools.product((0, 1), repeat=count):
        whole = [i for i in range(count) if kinds[i]]
        left = limit - sum((sizes[i] ** power for i in whole), Fraction(0))
        numbered = l0 is not None and not prices[0]
        if left < 0 or (numbered and len(whole) > (l0 or 0)):
            continue
        total = sum((gain(i, sizes[i] ** power) for i in whole), Fraction(0))
        parts = [gain(i, min(left, sizes[i] ** power)) for i in range(count) if not kinds[i]]
        room = not numbered or len(whole) < (l0 or 0)
        best = max(best, total + (max(parts, default=Fraction(0)) if room else 0))
    found = filled(asked, list(zip(sizes, scales)), m, prices, "l1" if power == 1 else "l2")
    assert best <= found <= best * Fraction(11, 10) + Fraction(1, 100)

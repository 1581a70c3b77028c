"""The stand-alone check of allocated noise: sound and doctored files, and its δ and its worst change against other computations."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal, localcontext

import pytest

from mechdesign.accounting import NoiseTerm, delta_interval
from mechdesign.verifier.allocation import composed_delta
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

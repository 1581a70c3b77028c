"""The least point at which a budget is kept: on either side of where it starts, and at the ends of the range."""

from __future__ import annotations

import math

import pytest

from mechdesign.evidence.exact import excess, least_kept


@pytest.mark.parametrize("start", [-5.0, 0.0, math.log(10), 7.0])
def test_it_is_kept_and_hardly_less_is_not(start: float) -> None:
    def over(u: float) -> float:
        return excess(math.exp(-u), 0.1)

    found = least_kept(over, start)
    assert over(found) <= 0 < over(found - 1e-12)


def test_a_jump_is_found() -> None:
    def over(x: float) -> float:
        return 5.0 if x < 2 else -1.0

    found = least_kept(over, 0.0, xtol=1e-12)
    assert 2 <= found <= 2 + 1e-11


def test_the_ends_of_the_range() -> None:
    assert least_kept(lambda x: 3 - x, 0.0, most=2.0) == math.inf
    assert least_kept(lambda x: -1 - x, 5.0, least=0.0) == 0.0
    assert least_kept(lambda x: 1 - x, 0.0, least=0.0, most=1.0) == pytest.approx(1.0)


def test_no_point_is_evaluated_twice() -> None:
    seen: list[float] = []

    def over(x: float) -> float:
        seen.append(x)
        return 3 - x**3

    least_kept(over, 0.5)
    assert len(seen) == len(set(seen))

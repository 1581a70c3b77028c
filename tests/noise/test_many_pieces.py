"""δ of several coordinates whose law stands on spans of cells, or has tails that go on for ever."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.cell_product import many_interval, pieces

halves = st.lists(st.tuples(st.integers(1, 30), st.sampled_from([1, 2, 4])), min_size=2, max_size=4)


def both(half: list[tuple[int, int]], cells: int) -> tuple[CellNoise, CellNoise]:
    """A law on spans, and the same cell by cell."""
    steps = [*half[::-1], *half]
    count = sum(v for _, v in steps)
    where = (0.5, -count / 4, cells)
    spanned = CellNoise(tuple(w * v for w, v in steps), *where, spans=tuple(v for _, v in steps))
    return spanned, CellNoise(tuple(w for w, v in steps for _ in range(v)), *where)


@settings(max_examples=60)
@given(halves, st.sampled_from([2, 4, 6]), st.integers(1, 3), st.floats(0.0, 3.0))
def test_spans_of_cells_are_their_cells(
    half: list[tuple[int, int]], cells: int, count: int, epsilon: float
) -> None:
    ours, oracle = (many_interval(law, count, epsilon) for law in both(half, cells))
    assert ours.upper == pytest.approx(oracle.upper, rel=1e-3, abs=1e-12)
    assert ours.lower <= oracle.upper * (1 + 1e-9) + 1e-15
    assert oracle.lower <= ours.upper * (1 + 1e-9) + 1e-15


def simulated(law: CellNoise, count: int, epsilon: float) -> tuple[float, float]:
    """δ(ε) of all coordinates moved by the sensitivity, by sampling, and its standard error."""
    reach = law.cells_per_shift * law.width
    t = law.rvs((200_000, count), random_state=5)
    loss = (law.logpdf(t) - law.logpdf(t + reach)).sum(axis=1)
    gains = np.maximum(-np.expm1(epsilon - loss), 0.0)
    return float(gains.mean()), float(gains.std() / math.sqrt(len(gains)))


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 1.6])
def test_the_pure_optimum_for_two_numbers_states_the_delta_that_sampling_finds(epsilon: float) -> None:
    noise = md.OptimalNoise(md.PureDP(2.0), dimension=2).solve().mechanism
    assert noise.law.spans and noise.law.decay
    found = noise.delta_interval(epsilon)
    value, error = simulated(noise.law, 2, epsilon)
    assert found.lower - 4 * error <= value <= found.upper + 4 * error
    assert found.upper - found.lower <= 1e-3 * found.upper
    assert noise.delta_interval(2.0).upper == 0.0


def test_tails_that_fall_slowly_lose_no_mass() -> None:
    decay = Fraction(10**9 - 1, 10**9)
    held = pieces(CellNoise((1, 1), 1.0, -1.0, 1, decay=decay))
    assert float((held.heights * np.diff(held.edges)).sum()) + held.beyond >= 1 - 1e-12
    assert held.beyond > 0.9  # a million cells hold next to nothing of it

"""What doubles may decide in the proofs of a channel, and how many exponentials they enclose."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from mechdesign.channels import exact
from mechdesign.channels.channel import Channel
from mechdesign.channels.design import MetricChannel
from mechdesign.model.exactly import Face
from mechdesign.spaces.space import MetricSpace


def test_doubles_decide_only_what_is_far_from_tight() -> None:
    """One unit in the last place of a weight is seen, wherever it is; so is a weight of zero."""
    result = MetricChannel(MetricSpace.grid(2, 3), alpha=0.7).solve()
    design, distances, rates = result.design, result.design.space.distances, exact.Growth(0.7)
    n = len(distances)
    for x, y in itertools.product(range(n), range(n)):
        rows = [list(row) for row in result.mechanism.weights]
        for other in range(n):
            if other != x:
                rate = rates.lower(float(distances[x, other]))
                rows[x][y] = max(rows[x][y], (rate * rows[other][y] >> rates.shift) + 1)
        broken = Face(design.declared, frozenset()).broken(
            design.exact(Channel.from_weights(rows, design.space))
        )
        assert broken.keys() == naively_broken(rows, distances, rates)


def naively_broken(rows: Any, distances: Any, rates: Any) -> Any:
    """Numbers of the rows (pair, report) that do not hold."""
    n, totals, found = len(rows), [sum(row) for row in rows], set()
    pairs = ((x, other) for x in range(n) for other in range(n) if other != x)
    for k, (x, other) in enumerate(pairs):
        for y, (a, b) in enumerate(zip(rows[x], rows[other])):
            if a * totals[other] << rates.shift > rates.lower(float(distances[x, other])) * b * totals[x]:
                found.add(k * n + y)
    return found


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("size", [1e-15, 1e-8, 0.3])
def test_the_surplus_of_rows_is_the_least_that_is_private(seed: int, size: float) -> None:
    """Doubles choose the pairs, integers decide; by brute force over all pairs the same number."""
    rng = np.random.default_rng(seed)
    distances = MetricSpace.line(np.sort(rng.uniform(0, 10.0 ** rng.integers(-6, 3), 7))).distances
    sums = [(1 << 120) + int(x) for x in rng.uniform(0, size * 2.0**120, 7)]
    if seed % 3 == 0:
        sums[1:4] = [max(sums)] * 3
    rates = exact.Growth(1.3)
    deficits, unit, need = [max(sums) - s for s in sums], 1 << rates.shift, 0
    for (x, a), (other, b) in itertools.permutations(enumerate(deficits), 2):
        rate = rates.lower(float(distances[x, other]))
        need = max(need, -(-(a * unit - rate * b) // (rate - unit)))
    assert exact._surplus(sums, distances, exact.Growth(1.3)) == need

"""What is computed where no time is left: counted in points of grids, of every end of δ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from mechdesign.accounting import composition, sampling
from mechdesign.accounting.interval import (
    NoiseTerm,
    delta_interval,
    lower_delta,
    upper_delta,
    verified_delta,
)
from mechdesign.solvers.deadline import Deadline

MANY = NoiseTerm(stats.laplace(scale=30.0), 1.0, 1000)
LARGE = (NoiseTerm(stats.laplace(scale=1e6), 1.0, 100), NoiseTerm(stats.norm(scale=0.01), 1.0))
ASKED: list[tuple[Any, float, int, float]] = [
    (MANY, 1.0, 100_000, 1e-3),
    (LARGE, 1.0, 10, 0.1),
    (MANY, 1.0, 1, 1.0),
]


@pytest.mark.parametrize(("terms", "epsilon", "rounds", "rate"), ASKED)
def test_no_end_takes_more_points_than_there_is_time_for(
    terms: Any, epsilon: float, rounds: int, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    convolve = composition.convolve

    def counted(*args: Any, **options: Any) -> Any:
        found = convolve(*args, **options)
        sizes.append(np.asarray(found[1]).size)
        return found

    seen: dict[str, Any] = {"rounds": rounds, "sampling_rate": rate}
    exact = delta_interval(terms, epsilon, **seen, width=0.05, time_limit=60)
    for module in (composition, sampling):
        monkeypatch.setattr(module, "convolve", counted)
    over = Deadline(1e-9)
    assert over.passed
    found = delta_interval(terms, epsilon, **seen, deadline=over)
    below = max(found.lower, lower_delta(terms, epsilon, **seen, deadline=over))
    above = [f(terms, epsilon, **seen, deadline=over) for f in (upper_delta, verified_delta)]
    assert below <= exact.upper and exact.lower <= min(found.upper, *above)
    assert max(sizes) <= composition._AT_ONCE + 1


def test_losses_of_replaced_records_are_looked_at_no_oftener_than_there_is_time_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    cells = composition.cells_of

    def counted(loss: Any, x: Any, *args: Any, **options: Any) -> Any:
        sizes.append(x.size)
        return cells(loss, x, *args, **options)

    term, seen = NoiseTerm(stats.norm(), 0.1, own=1.0), {"rounds": 10**6, "sampling_rate": 1e-3}
    monkeypatch.setattr(composition, "cells_of", counted)
    asked: dict[str, Any] = {**seen, "neighbours": "replace", "deadline": Deadline(1e-9)}
    found = delta_interval(term, 0.5, **asked)
    assert 0 <= found.lower <= found.upper <= 1 and max(sizes) <= composition._AT_ONCE

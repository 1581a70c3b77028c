"""Channels where time is too short for a program, and what doubles may decide in a certificate."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mechdesign.channels.optimal import repair
from mechdesign.channels.optimal.design import MetricChannel
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Status

SPACES = {
    "grid": MetricSpace.grid(3, 4),
    "line": MetricSpace.line([0.0, 1e-12, 0.3, 1.0, 7.0, 7.5, 40.0]),
    "plane": MetricSpace.euclidean(np.random.default_rng(0).normal(size=(8, 2))),
    "one": MetricSpace.line([0.0]),
}


@pytest.mark.parametrize("name", sorted(SPACES))
@pytest.mark.parametrize("alpha", [1e-3, 0.5, 3.0, 80.0])
def test_with_no_time_a_channel_and_a_bound_in_closed_form(name: str, alpha: float) -> None:
    """At 2 s, seven of 21 designs had no answer. The optimum lies between value and bound."""
    space, rng = SPACES[name], np.random.default_rng(1)
    n = space.size
    for options in (
        {}, {"loss": "squared"}, {"loss": "error"}, {"prior": rng.dirichlet(np.ones(n))},
        {"loss": rng.uniform(0, 3, (n, 3))}, {"loss": rng.uniform(-2, 1, (n, n + 2))}, {"spanner": 1.5},
    ):  # fmt: skip
        design = MetricChannel(space, alpha=alpha, **options)
        first, best = design.solve(time_limit=1e-9), design.solve()
        assert (
            first.status is Status.LIMIT and first.certificate.verify() and first.certificate.alpha == alpha
        )
        assert first.lower_bound <= best.value and best.lower_bound <= first.value
        assert loads(dumps(first)).certificate.verify()
        if n == space.size > 1 and not options and 1e-3 < alpha < 80:
            assert first.gap < 0.9 and first.value < 3 * best.value
        assert best.certificate.checks()["holds"].all() and first.certificate.checks()["holds"].all()
    assert design.solve(time_limit=1e-9, certify=False).status is Status.UNCERTIFIED


def test_doubles_decide_only_what_is_far_from_tight() -> None:
    """One unit in the last place of a weight is seen, wherever it is; so is a weight of zero."""
    result = MetricChannel(MetricSpace.grid(2, 3), alpha=0.7).solve()
    certificate = result.certificate
    n = len(certificate.weights)
    for x, y in itertools.product(range(n), range(n)):
        rows = [list(row) for row in certificate.weights]
        for other in range(n):
            if other != x:
                rate = certificate._rates.lower(float(certificate.distances[x, other]))
                rows[x][y] = max(rows[x][y], (rate * rows[other][y] >> certificate._rates.shift) + 1)
        rows = [[*row, max(map(sum, rows)) - sum(row)] for row in rows]
        loss = np.column_stack([certificate.loss, certificate.loss[:, 0]])
        forged = replace(certificate, weights=tuple(map(tuple, rows)), loss=loss)
        found = forged.broken()
        assert found == naively_broken(forged) and (n == 1 or found is not None)


def naively_broken(certificate: Any) -> Any:
    rates = certificate._rates
    for x, row in enumerate(certificate.weights):
        for other, weights in enumerate(certificate.weights):
            for y, (a, b) in enumerate(zip(row, weights)):
                if other != x and a << rates.shift > rates.lower(float(certificate.distances[x, other])) * b:
                    return x, other, y
    return None


def test_exponentials_are_bounded_only_where_doubles_do_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 points of a line have 44,850 distances: a limit of 0.3 s took 8 to 20, and 134,553 bounds of exponentials."""
    asked: list[Fraction] = []
    bound = repair.exp_lower
    monkeypatch.setattr(repair, "exp_lower", lambda x: asked.append(x) or bound(x))
    rng = np.random.default_rng(0)
    points, prior = np.sort(rng.uniform(0, 3, 40)), rng.dirichlet(np.ones(40))
    design = MetricChannel(MetricSpace.line(points), 3.0, prior=prior / prior.sum(), loss="squared")
    assert design.solve(time_limit=1e-9).certificate.verify()
    assert len(asked) < 40 * 39 / 2 / 4


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("size", [1e-15, 1e-8, 0.3])
def test_the_surplus_of_rows_is_the_least_that_is_private(seed: int, size: float) -> None:
    """Doubles choose the pairs, integers decide; by brute force over all pairs the same number."""
    rng = np.random.default_rng(seed)
    distances = MetricSpace.line(np.sort(rng.uniform(0, 10.0 ** rng.integers(-6, 3), 7))).distances
    sums = [(1 << 120) + int(x) for x in rng.uniform(0, size * 2.0**120, 7)]
    if seed % 3 == 0:
        sums[1:4] = [max(sums)] * 3
    rates = repair.Growth(1.3)
    deficits, unit, need = [max(sums) - s for s in sums], 1 << rates.shift, 0
    for (x, a), (other, b) in itertools.permutations(enumerate(deficits), 2):
        rate = rates.lower(float(distances[x, other]))
        need = max(need, -(-(a * unit - rate * b) // (rate - unit)))
    assert repair._surplus(sums, distances, repair.Growth(1.3)) == need

"""Declared problems of every unknown: saved, copied and extended, and solved again where a number of theirs is changed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cheap
import cvxpy as cp
import pytest

import mechdesign as md
from mechdesign.evidence.serialize import dumps

Entry = Callable[[Any], Any]
ENTRIES: dict[str, tuple[Entry, float, float]] = {
    "table-problem": (lambda P: P[0, 0], 0.6, 0.512),
    "scales-problem": (lambda s: s[2], 3.0, 2.49),
    "covariance-problem": (lambda S: S[0, 0], 1.5, 1.3),
    "lattice-problem": (lambda p: p[8], 0.4, 0.28),
    "selection-problem": (lambda Q: Q[2, 2], 0.4, 0.27),
}
"""A number of the unknown, a limit above what it is at the optimum, and one below."""


def limited(problem: md.Problem, name: str, limit: Any) -> md.Problem:
    return problem.subject_to(md.named("further", ENTRIES[name][0](problem.unknown) <= limit))


@pytest.mark.parametrize("name", ENTRIES)
def test_what_is_read_or_copied_is_solved_again_and_extended(name: str, tmp_path: Path) -> None:
    result: Any = cheap.solved(name)
    result.save(tmp_path / "result.json")
    loaded = md.load(tmp_path / "result.json")
    assert dumps(loaded) == dumps(result) and str(loaded) == str(result)
    for again in (loaded.design, pickle.loads(pickle.dumps(result.design))):
        assert str(again) == str(result.design) and dumps(again) == dumps(result.design)
        assert again.solve().value == pytest.approx(result.value, rel=1e-7)
        tight = limited(again, name, ENTRIES[name][2]).solve()
        assert tight.value > result.value * (1 + 1e-6) and tight.certificate.verify()


@pytest.mark.parametrize("name", ENTRIES)
def test_a_number_that_changes_is_a_parameter(name: str) -> None:
    """Each result is of the value that the parameter had."""
    free, limit = cheap.solved(name), cp.Parameter(name="limit")
    asked = limited(cheap.DESIGNS[name][0](), name, limit)
    assert "limit" in [parameter.name() for parameter in asked.parameters]
    with pytest.raises(md.DesignError, match="limit"):
        asked.solve()
    results = []
    for limit.value in ENTRIES[name][1:]:
        results.append(asked.solve())
    limit.value = 1e-3
    values = [result.value for result in results]
    assert (
        values == [pytest.approx(free.value, rel=1e-6), pytest.approx(max(values))] and values[1] > values[0]
    )
    assert all(result.certificate.verify() and result.audit()["slack"].min() >= -1e-12 for result in results)

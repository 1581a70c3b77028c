"""Designs at the limits of floats: what is answered is proved, and what cannot be is not called optimal."""

from __future__ import annotations

import os

import pytest
from hostile_designs import hostile_design

import mechdesign as md
from mechdesign import solvers
from mechdesign.typing import Status

SEEDS = range(1000) if os.environ.get("MECHDESIGN_NIGHTLY") else range(42)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_false_is_claimed(seed: int) -> None:
    design = hostile_design(seed)
    try:
        result = design.solve(time_limit=30)
    except md.InfeasibleError as error:
        assert error.smallest_epsilon is not None or error.least is not None
        return
    checks = result.certificate.checks()
    assert checks["holds"].all(), checks
    if result.status is Status.OPTIMAL:
        assert result.gap <= 1e-6
    else:
        assert result.gap is None or result.gap > 1e-6
    if design.objective == "mean" and design.privacy.epsilon < 12 and result.lower_bound is not None:
        program = solvers.solve(design.model(33), "highs").value
        assert result.lower_bound <= program * (1 + 1e-7) + 1e-9

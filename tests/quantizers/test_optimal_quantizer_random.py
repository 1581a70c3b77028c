"""Random designs: a proved gap, two independent methods, the monolithic program, and certificates that verify."""

from __future__ import annotations

import os

import numpy as np
import pytest
from optimal_designs import random_design

from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.optimal.cutting_planes import cutting_planes
from mechdesign.quantizers.optimal.newton import newton

NIGHTLY = bool(os.environ.get("MECHDESIGN_NIGHTLY"))
SEEDS = range(300) if NIGHTLY else range(0, 300, 10)
# The program on 321 knots takes half a second for the larger ones.
WITH_PROGRAM = range(300) if NIGHTLY else range(1, 300, 37)


# Two outputs leave nothing to optimise; Newton's method needs a density.
@pytest.mark.parametrize("seed", [s for s in SEEDS if len(random_design(s).bins) > 2 and s % 4 < 3])
def test_two_methods_agree(seed: int) -> None:
    """Interior point and cutting planes share only the block fill: each one's bound must not exceed the other's value."""
    problem = random_design(seed).floor_problem
    one, two = newton(problem, gap=1e-7), cutting_planes(problem, gap=1e-7)
    assert one.lower_bound <= two.value
    assert two.lower_bound <= one.value
    assert two.gap <= 1e-6
    best_value, best_bound = min(one.value, two.value), max(one.lower_bound, two.lower_bound)
    assert best_value - best_bound <= 1e-6 * best_value


@pytest.mark.slow
@pytest.mark.parametrize("seed", WITH_PROGRAM)
def test_monolithic_program(seed: int) -> None:
    """On 321 knots the program is worth at least our bound, and at most our rows interpolated on its knots."""
    design = random_design(seed)
    result = design.solve(gap=1e-6)
    bins = np.array(design.bins)
    knots = np.unique(np.concatenate([np.linspace(-1, 1, 321), bins[(bins > -1) & (bins < 1)]]))
    program = design.problem(knots).subject_to().solve(certify=False)
    rows = result.mechanism.probabilities(knots)
    coarse = Quantizer.interpolated(bins, knots, rows).expected_loss(design.prior, design.loss)
    # HiGHS keeps rows to 1e-10; the loss is at most a few times the largest output.
    slack = 1e-8 * (1 + abs(result.value))
    assert result.lower_bound - slack <= program.value <= coarse + slack
    assert program.value <= result.value * (1 + 1e-3)

"""MVU as a design: Table 1, more outputs, its programs against the optimum on the grid."""

from __future__ import annotations

import math

import numpy as np
import pytest

import mechdesign as md

POINTS = np.linspace(-1, 1, 51)


@pytest.mark.parametrize(
    ("epsilon", "near", "far", "error"),
    [(0.5, 3.60, 4.34, 3.959), (1.0, 1.69, 2.42, 1.930), (1.5, 1.11, 1.83, 1.254)],
)
def test_mvu_reproduces_table_1(epsilon: float, near: float, far: float, error: float) -> None:
    result = md.MVU(m=4, privacy=md.PureDP(epsilon), input_range=(-1, 1)).solve(starts=1)
    np.testing.assert_allclose(result.mechanism.bins, [-far, -near, near, far], rtol=0.01)
    assert result.mechanism.loss_at(POINTS).mean() == pytest.approx(error, rel=0.01)
    assert result.certificate.verify() and result.mechanism.privacy_loss() <= epsilon


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "m", "bits"), [(1.0, 8, 3), (3.0, 16, 3), (0.5, 40, 4)])
def test_mvu_with_more_outputs(epsilon: float, m: int, bits: int) -> None:
    """Its alphabet beats even ones; the value at that alphabet is the linear program's; the range is kept."""
    design = md.MVU(m, md.PureDP(epsilon), (0, 3), bits, max_abs=1.5 / math.tanh(epsilon / 4))
    result = design.solve(starts=2)
    assert result.certificate.verify() and result.mechanism.privacy_loss() <= epsilon
    bins = result.mechanism.bins
    assert np.abs(bins - 1.5).max() <= design.max_abs * (1 + 1e-12)

    def variance(mechanism) -> float:
        rows = mechanism.probabilities(design.inputs)
        return float(np.mean(np.sum(rows * (bins - design.inputs[:, None]) ** 2, axis=1)))

    program = design.problem(bins).subject_to().solve()  # as declared, by a backend
    assert variance(result.mechanism) == pytest.approx(program.value, rel=1e-6)
    for share in (0.8, 1.0):
        even = 1.5 + share * design.max_abs * np.linspace(-1, 1, m)
        assert program.value <= design.problem(even).subject_to().solve().value * (1 + 1e-4)


def test_the_search_solves_what_is_declared() -> None:
    design = md.MVU(m=5, privacy=md.PureDP(1.0), input_range=(-1, 2))
    bins = design.alphabet_search.spread(design.alphabet_search.reach)
    program = design.alphabet_search.in_numbers(bins, 1.0)
    assert program.answer().value == pytest.approx(design.problem(bins).subject_to().solve().value, rel=1e-9)


def test_mvu_with_two_outputs() -> None:
    """The search ended 2e-10 inside the least range, within its solver's tolerance, and the last program was infeasible."""
    for epsilon in (1.0, 3.0):
        reach = 1 / math.tanh(epsilon / 4)
        for certify in (True, False):
            result = md.MVU(2, md.PureDP(epsilon), (-1, 1), 2, max_abs=reach).solve(starts=2, certify=certify)
            assert result.mechanism.bins[-1] == pytest.approx(1 / math.tanh(epsilon / 2), rel=1e-6)
            assert result.mechanism.privacy_loss() <= epsilon


def test_mvu_range_too_small() -> None:
    with pytest.raises(md.DesignError, match=r"max_abs = 2\.0: must be at least 2\.16395"):
        md.MVU(4, md.PureDP(1.0), (-1, 1), max_abs=2.0)


@pytest.mark.parametrize("m", [5, 7, 9, 11])
@pytest.mark.parametrize("epsilon", [0.27, 0.3, 0.35])
def test_a_bound_is_of_the_outputs_that_are_released(m: int, epsilon: float) -> None:
    """Of far outputs, most of which practically never come and are moved by a rounding."""
    bins = np.linspace(-7.456218498412245, 7.456218498412245, m)
    assert md.MVU(m, md.PureDP(epsilon), (-1, 1), 2, bins=bins, loss="absolute").solve().certificate.verify()

"""Releases: the bits that leave the machine have the certified law, whatever the bits of the input.

Laplace noise in floats fails this: whether y is a multiple of 2⁻⁵³ tells neighbours apart. The same event, the last bits of
the released values, and every output are tried at 10⁶ draws; one false alarm in 10⁹ runs, jointly.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.quantizers.mechanism.selection import SelectionFamilies, rqm_family

UNIFORM = stats.uniform(-1, 2)
DRAWS = 10**6
# Inputs next to each other whose last bits differ: multiples of 2⁻⁵³ or not, and a denormal.
INPUTS = [0.0, 3 * 2.0**-60, 5e-324, 1 / 3, math.nextafter(1 / 3, 1), -1.0, math.nextafter(-1.0, 0)]
TESTS = 5 * len(INPUTS)


def optimum() -> md.Quantizer:
    return md.OptimalQuantizer([-2.7, -0.4, 0.1, 2.9], md.PureDP(1.0), UNIFORM).solve().mechanism


def biased() -> md.quantizers.BiasedQuantizer:
    family = rqm_family(4, 0.3)
    return md.quantizers.BiasedQuantizer(SelectionFamilies([-2, -0.5, 0.5, 2], family, family), 0.7, (-1, 1))


MECHANISMS = {
    "optimum": optimum,
    "OPTM": lambda: md.OPTM([-3, -0.5, 0.5, 3], md.PureDP(1.0), UNIFORM).solve().mechanism,
    "ERM": lambda: md.Quantizer.erm([-2.5, -0.5, 0.1, 0.6, 2.0], 0.8, (-1, 1)).certified(),
    "biased": biased,
    "vector": lambda: md.CoordinateQuantizer(optimum(), 1, scale=0.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_release_has_the_law_and_nothing_else(name: str) -> None:
    mechanism = MECHANISMS[name]()
    scale = getattr(mechanism, "scale", 1.0)
    one = getattr(mechanism, "coordinate", mechanism)
    for x in INPUTS:
        drawn = mechanism.release(np.full((DRAWS, 1), scale * x))[:, 0]
        counts = np.array([(drawn == scale * b).sum() for b in one.bins])
        assert counts.sum() == DRAWS  # every value is one of the outputs, to the last bit
        assert stats.chisquare(counts, one.probabilities(x) * DRAWS).pvalue > 1e-9 / TESTS
        coarse = np.array([(Fraction(float(v)) * 2**53).denominator == 1 for v in np.unique(drawn)])
        assert coarse.tolist() == [(Fraction(float(scale * b)) * 2**53).denominator == 1 for b in one.bins]


def test_what_has_no_exact_law_is_not_released() -> None:
    with pytest.raises(md.DesignError, match=r"no exact law.*certified"):
        md.Quantizer.rqm([-2, -1, 1, 2], 0.5, (-1, 1)).release(0.0)
    with pytest.raises(md.DesignError, match="no exact law"):
        md.OptimalQuantizer([-3, -0.5, 0.5, 3], md.PureDP(1.0), UNIFORM).solve(
            certify=False
        ).mechanism.release(0.0)

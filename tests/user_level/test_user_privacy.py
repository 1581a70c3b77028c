"""Definitions and conversions of user-level metric privacy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.spaces.space import MetricSpace
from mechdesign.user_level.privacy import (
    DiscreteEMDPrivacy,
    EMDPrivacy,
    ItemPrivacy,
    alpha_from_semantics,
    group_privacy,
)

SPACE = MetricSpace.line([0.0, 3.0])


@given(st.floats(0.01, 3), st.floats(0, 1e-3), st.integers(1, 30))
def test_group_privacy_is_the_induction(epsilon, delta, steps):
    total_epsilon, total_delta = epsilon, delta
    for _ in range(steps - 1):
        total_epsilon, total_delta = total_epsilon + epsilon, np.exp(epsilon) * total_delta + delta
    got = group_privacy(epsilon, delta, steps)
    assert got[0] == pytest.approx(total_epsilon) and got[1] == pytest.approx(
        total_delta, rel=1e-9, abs=1e-300
    )


def test_semantics():
    assert alpha_from_semantics(1.0, fraction=0.5, distance=4.0) == 0.5
    # The paper's example in its own unit: the strictest of two statements.
    assert alpha_from_semantics([1.0, 1.0], fraction=[1 / 30, 1], distance=[60, 3]) == pytest.approx(1 / 3)
    alpha = alpha_from_semantics(0.3, fraction=0.2, distance=5.0)
    assert EMDPrivacy(alpha).epsilon(0.2 * 5.0) == pytest.approx(0.3)


def test_discrete_privacy_rounds_up_to_steps():
    discrete = EMDPrivacy(2.0, 1e-6, sizes="unbounded").discrete(0.5)
    assert discrete == DiscreteEMDPrivacy(2.0, 0.5, 1e-6)
    assert discrete.at(0.0) == discrete.at(0.5) == (1.0, 1e-6)
    assert discrete.at(0.51) == group_privacy(1.0, 1e-6, 2)
    assert discrete.at(3 * 0.1 * 5) == group_privacy(
        1.0, 1e-6, 3
    )  # 1.5000000000000002: three steps, not four
    assert discrete.user_level(SPACE).epsilon == 6.0
    with pytest.raises(DesignError, match="lower delta"):
        EMDPrivacy(20.0, 1e-6, sizes="unbounded").discrete(0.5).user_level(SPACE)
    with pytest.raises(DesignError, match="beyond radius"):
        EMDPrivacy(2.0, 1e-6).discrete(0.5).at(0.6)
    assert DiscreteEMDPrivacy(300.0, 1.0, 1e-6).at(3.0)[1] == float("inf")


def test_conversions_and_files():
    assert ItemPrivacy(0.5).composed(4) == EMDPrivacy(2.0)
    assert ItemPrivacy(0.5).item_level(SPACE).epsilon == 1.5
    assert EMDPrivacy(2.0, 1e-6).user_level(SPACE).epsilon == 6.0
    for value in (ItemPrivacy(0.5), EMDPrivacy(2.0, 1e-6, "central"), DiscreteEMDPrivacy(1.0, 0.1)):
        assert loads(dumps(value)) == value


@pytest.mark.parametrize(
    "call",
    [
        lambda: EMDPrivacy(1, 1),
        lambda: EMDPrivacy(1).epsilon(-1),
        lambda: DiscreteEMDPrivacy(1, 0),
        lambda: ItemPrivacy(1).composed(0),
        lambda: group_privacy(1, 0, 0),
        lambda: alpha_from_semantics(1, fraction=1.5, distance=1),
        lambda: alpha_from_semantics([], fraction=[], distance=[]),
    ],
)
def test_bad_input(call):
    with pytest.raises(DesignError):
        call()

"""Whole numbers change by whole numbers: their largest sum by enumeration, what a plan of them costs at least, and both checkers."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.plan.tasks import Histogram
from mechdesign.verifier.verify import verify

SIZE = 4


def allowed(changes: md.Sensitivity) -> list[tuple[int, ...]]:
    """All whole vectors within these bounds, of one sign."""
    top = math.floor(changes.largest_linf(SIZE))
    return [
        v
        for v in itertools.product(range(top + 1), repeat=SIZE)
        if (changes.l1 is None or sum(v) <= changes.l1)
        and (changes.l2 is None or sum(x * x for x in v) <= changes.l2**2)
        and (changes.l0 is None or sum(map(bool, v)) <= changes.l0)
    ]


BOUNDS = st.builds(
    lambda linf, l1, l2, l0: md.Sensitivity(linf=linf, l1=l1, l2=l2, l0=l0, signed=False),
    st.none() | st.integers(1, 4),
    st.none() | st.floats(1.0, 9.0),
    st.floats(1.0, 5.0),
    st.none() | st.integers(1, SIZE),
)


@given(BOUNDS)
@settings(max_examples=60, deadline=None)
def test_the_largest_sum_is_that_of_a_whole_change(changes: md.Sensitivity) -> None:
    most = max(map(sum, allowed(changes)))
    assert min(changes.whole(SIZE).l1, changes.whole(SIZE).largest_l1(SIZE)) == most


@pytest.mark.parametrize(
    "changes",
    [
        md.Sensitivity(l2=3.0, signed=False),
        md.Sensitivity(l2=3.0, l0=2, signed=False),
        md.Sensitivity(l1=2.5, signed=False),
        md.Sensitivity(l1=7.0, linf=2, signed=False),
        md.Sensitivity(l2=1.2, signed=False),
        md.Sensitivity(linf=2, l0=3, signed=False),
    ],
)
@pytest.mark.parametrize("privacy", [md.PureDP(1.0), md.ZeroConcentratedDP(0.1), md.GaussianDP(0.5)])
def test_no_bound_is_above_noise_for_the_changes_that_there_are(
    changes: md.Sensitivity, privacy: md.PureDP | md.ZeroConcentratedDP | md.GaussianDP
) -> None:
    result = md.Plan({"h": Histogram(SIZE, changes)}, privacy, {"h": 1.0}).solve()
    made = allowed(changes)
    if isinstance(privacy, md.PureDP):
        noise = md.calibrate("discrete_laplace", privacy=privacy, sensitivity=float(max(map(sum, made))))
        least = SIZE * noise.mechanism.variance
    else:
        rho = privacy.rho if isinstance(privacy, md.ZeroConcentratedDP) else privacy.mu**2 / 2
        least = SIZE * max(sum(x * x for x in v) for v in made) / (2 * rho)
    assert result.lower_bound is None or result.lower_bound <= least * (1 + 1e-9)
    assert (result.lower_bound is None) == (result.bound_class is None)
    assert result.certificate.verify() and all(holds for *_, holds in verify(dumps(result)).rows)


def test_a_bound_that_is_not_reached_is_not_believed() -> None:
    known = md.Plan({"h": Histogram(50, md.Sensitivity(l1=9.0))}, md.PureDP(1.0), {"h": 1.0}).solve()
    other = md.Plan({"h": Histogram(50, md.Sensitivity(l2=3.0))}, md.PureDP(1.0), {"h": 1.0}).solve()
    forged = replace(
        other,
        lower_bound=known.lower_bound,
        bound_class=known.bound_class,
        proofs=(*other.proofs, *(proof for proof in known.proofs if proof not in other.proofs)),
    )
    assert not forged.certificate.verify()


@pytest.mark.parametrize("norm", [2.5, 4.0])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_both_checkers_believe_a_plan_of_whole_counts_within_a_ball(norm: float, neighbours: str) -> None:
    changes = md.Sensitivity.of_contribution(l2=norm, neighbours=neighbours)
    tasks = {"h": Histogram(50, contribution=changes), "c": md.Count()}
    result = md.Plan(tasks, md.ApproximateDP(1.0, 1e-6), neighbours=neighbours).solve()
    assert result.certificate.verify() and all(holds for *_, holds in verify(dumps(result)).rows)

"""What a result of each noise says of itself: its description, picture, alternatives and trade-off."""

import cheap
import pytest

import mechdesign as md

A = md.ApproximateDP(1.0, 1e-6)
NAMES = [
    "noise-allocation", "mixed-allocation", "correlated-gaussian", "counts-gaussian", "matrix-mechanism", "matrix-epochs", "knorm",
    "calibration", "optimal-noise", "optimal-noise-many", "optimal-integer-noise",
]  # fmt: skip
OTHERS = {
    "composed": lambda: md.NoiseAllocation("laplace", [1.0, 2.0, 3.0, 0.0], A),
    "listed": lambda: md.noise.KNorm(2, md.PureDP(1.0), [[1, 1], [1, 0], [0, 1]], rounds=2),
    "round": lambda: md.noise.KNorm(60, A),
}


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_a_result_says_what_it_is(name: str) -> None:
    result = OTHERS[name]().solve() if name in OTHERS else cheap.solved(name)
    said = result.design.describe(result)
    assert said.loss in result.question() and "unit of privacy" in result.question()
    assert result.plot().axes
    assert result.lower_bound is None or "lower bound" in str(result)
    others = result.alternatives()
    assert others.empty or others["relative"].iloc[0] == pytest.approx(1.0)
    curve = result.tradeoff()
    assert 0 <= curve.advantage <= 1

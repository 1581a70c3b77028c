"""A design that is out of time answers, and with no more error than the closed forms that answer the same question."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import cheap
import numpy as np
import pytest
from cheap import PURE, UNIFORM
from scipy import stats

import mechdesign as md
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Status

SMALL = md.ApproximateDP(0.5, 1e-6)
WIDE = md.ApproximateDP(1.0, 0.2)
MANY = md.MetricSpace.line([0.0, 1.0, 1.5, 4.0])
RANGES = np.array([[a <= k <= b for k in range(6)] for a in range(6) for b in range(a, 6)], dtype=float)
VECTORS = np.random.default_rng(0).normal(size=(30, 5)) * [1, 2, 3, 4, 20]


def scale(name: str, privacy: Any, sensitivity: Any = 1.0, **options: Any) -> float:
    """The loss of calibrated noise whose scale is a formula, one number's share."""
    design = md.noise.Calibration(name, privacy, sensitivity, **options)
    return float(design.solve(certify=False, time_limit=1e-3).value)


def allocated(noise: str, sensitivities: Any, privacy: Any) -> float:
    return float(md.NoiseAllocation(noise, sensitivities, privacy).solve(certify=False).value)


def isotropic(vectors: Any, privacy: Any) -> float:
    """Independent Gaussian noise of one scale on every coordinate."""
    norms = np.linalg.norm(vectors, axis=1)
    return vectors.shape[1] * scale(
        "gaussian", privacy, md.Sensitivity(l2=float(norms.max())), loss="squared"
    )


def two_outputs(low: float, high: float, privacy: Any = PURE) -> float:
    return float(md.OptimalQuantizer([low, high], privacy, UNIFORM).solve(certify=False).value)


def exponential(space: md.MetricSpace, alpha: float, loss: Any = None) -> float:
    channel = md.Channel.exponential(space, alpha)
    return float((channel.matrix * (space.distances if loss is None else loss)).sum(axis=1).mean())


def geometric(n: int, epsilon: float) -> float:
    """Largest squared error of the truncated geometric mechanism."""
    a, places = math.exp(-epsilon), np.arange(n + 1)
    table = a ** np.abs(places[:, None] - places) * (1 - a) / (1 + a)
    table[:, [0, -1]] /= 1 - a
    return float((table * (places[:, None] - places) ** 2).sum(axis=1).max())


# Further questions, at which closed forms and searches are far apart.
OTHERS: dict[str, Callable[[], Any]] = {
    "mixed-one-large": lambda: md.NoiseAllocation("mixed", [30.0, *[0.1] * 20], md.ApproximateDP(4, 1e-3)),
    "mixed-advantage": lambda: md.NoiseAllocation("mixed", [1.0, 2.0], md.MembershipAdvantage(0.2)),
    "correlated-long": lambda: md.CorrelatedGaussian(changes=VECTORS, privacy=SMALL),
    "matrix-ranges": lambda: md.MatrixMechanism(md.Workload.ranges(6), SMALL),
    "noise-squared": lambda: md.OptimalNoise(md.ApproximateDP(0.1, 0.01), loss="squared"),
    "noise-many": lambda: md.OptimalNoise(WIDE, dimension=3),
    "noise-integer": lambda: md.OptimalNoise(md.ApproximateDP(0.03, 1e-3), integer=True),
    "noise-advantage": lambda: md.OptimalNoise(md.MembershipAdvantage(0.2)),
    "optm-successive": lambda: md.OPTM([-4, -1, -0.3, 0.3, 1, 4], PURE, stats.beta(2, 3, -1, 2)),
    "channel-reports": lambda: md.MetricChannel(MANY, 0.5, loss=MANY.distances[:, :3] ** 2),
    "channel-prior": lambda: md.MetricChannel(MANY, 0.1, prior=[0.0, 0.1, 0.1, 0.8]),
}
CLOSED: dict[str, Callable[[], list[float]]] = {
    "mixed-allocation": lambda: [allocated(n, [1.0, 0.1], md.ApproximateDP(2.0, 1e-3)) for n in ("gaussian", "laplace")],
    "mixed-one-large": lambda: [allocated(n, [30.0, *[0.1] * 20], md.ApproximateDP(4, 1e-3)) for n in ("gaussian", "laplace")],
    "mixed-advantage": lambda: [allocated("gaussian", [1.0, 2.0], md.MembershipAdvantage(0.2))],
    "noise-allocation": lambda: [2 * 2 * 3.0**2 * 2],
    "correlated-gaussian": lambda: [isotropic(np.eye(2), SMALL)],
    "correlated-long": lambda: [isotropic(VECTORS, SMALL), allocated("gaussian", np.abs(VECTORS).max(0), SMALL)],
    "counts-gaussian": lambda: [4 * scale("gaussian", SMALL, md.Sensitivity(l2=2**0.5), loss="squared")],
    "matrix-mechanism": lambda: [
        isotropic(np.tri(3).T, SMALL),
        scale("gaussian", SMALL, 1.0, loss="squared") * 6,  # noise on the counts
    ],
    "matrix-ranges": lambda: [isotropic(RANGES.T, SMALL), scale("gaussian", SMALL, 1.0, loss="squared") * RANGES.sum()],
    "calibration": lambda: [8.0],
    "optimal-noise": lambda: [scale(n, WIDE) for n in ("laplace", "gaussian", "staircase")],
    "noise-squared": lambda: [scale(n, md.ApproximateDP(0.1, 0.01), loss="squared") for n in ("laplace", "gaussian", "staircase")],
    "noise-many": lambda: [scale("laplace", PURE, dimension=3), scale("gaussian", WIDE, dimension=3)],
    "noise-integer": lambda: [scale(n, md.ApproximateDP(0.03, 1e-3)) for n in ("discrete_laplace", "discrete_gaussian")],
    "noise-advantage": lambda: [scale("gaussian", md.MembershipAdvantage(0.2))],
    "optimal-integer-noise": lambda: [
        scale(n, md.ApproximateDP(1.0, 0.1), loss="squared")
        for n in ("discrete_laplace", "discrete_gaussian")
    ],
    "optimal-noise-many": lambda: [scale(n, md.PureDP(2.0), dimension=2) for n in ("laplace", "staircase")],
    "optm": lambda: [two_outputs(-3, 3)],
    "optm-search": lambda: [two_outputs(-2.9, 2.9)],
    "optm-successive": lambda: [md.OptimalQuantizer([-4, 4], PURE, stats.beta(2, 3, -1, 2)).solve(certify=False).value],
    "optimal-quantizer": lambda: [two_outputs(-3, 3)],
    "bin-search": lambda: [two_outputs(-4, 4)],
    "alphabet": lambda: [two_outputs(-3, 3)],
    "mvu": lambda: [2.42**2],
    "metric-quantizer": lambda: [3 - 1 / 9],
    "bounded-count": lambda: [4.0, geometric(4, 1.0)],
    "metric-channel": lambda: [exponential(md.MetricSpace.grid(2, 3), 0.7)],
    "channel-reports": lambda: [(MANY.distances[:, :3] ** 2).mean(axis=0).min()],
    "channel-prior": lambda: [MANY.distances[:, 3] @ [0.0, 0.1, 0.1, 0.8]],
    "vectors": lambda: [md.SampledCoordinates(20, 3, md.PureDP(2.0)).error],
    "vectors-box": lambda: [md.SampledCoordinates(30, 1, md.PureDP(2.0), "box").error],
    "local-relaxed": lambda: list(md.LocalWorkload(md.Workload.ranges(17), PURE).costs().values()),
}  # fmt: skip


@pytest.fixture
def out_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every limit is over once it is set."""
    monkeypatch.setattr(Deadline, "left", property(lambda self: 0.0 if self.finite else math.inf))


@pytest.mark.parametrize("name", [n for n in (*cheap.DESIGNS, *OTHERS) if not n.endswith("-problem")])
def test_out_of_time_there_is_an_answer(name: str, out_of_time: None) -> None:
    made, options = cheap.DESIGNS[name] if name in cheap.DESIGNS else (OTHERS[name], {})
    result = made().solve(time_limit=1e-3, **options)
    assert result.status is Status.LIMIT or result.lower_bound is not None
    assert result.certificate.verify()
    for closed in CLOSED[name]() if name in CLOSED else ():
        assert result.value <= closed * (1 + 1e-9)


@pytest.mark.parametrize("name", ["table-problem", "covariance-problem", "selection-problem"])
def test_a_declared_problem_has_no_closed_form_and_says_that_time_is_over(
    name: str, out_of_time: None
) -> None:
    with pytest.raises(md.SolverError, match=r"within the time limit|limit"):
        cheap.DESIGNS[name][0]().solve(time_limit=1e-3)


def test_the_question_of_every_closed_form_is_asked() -> None:
    assert set(CLOSED) <= {*cheap.DESIGNS, *OTHERS}

"""Nothing public waits: whatever may run long takes `time_limit`, and everything else is here by name, with its reason."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

import mechdesign as md
from mechdesign.accounting import composition
from mechdesign.accounting.interval import NoiseTerm, delta_interval
from mechdesign.problem.spine import Design, Law
from mechdesign.solvers import Solver
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Status
from mechdesign.user_level import ItemwiseRelease

ROOMS = ("", "noise", "channels", "user_level", "vectors", "choice", "choose", "learning", "quantizers", "accounting",
         "solvers", "spaces", "problem")  # fmt: skip
SHORT = {
    "a formula, or an integral or root in one variable": (
        "amplification clipped density discrete_laplace_law disparity flipped_huber_sufficient flipped_huber_zcdp gini layer_profile majorizes"
        " staircase_law truncated alpha_from_semantics group_privacy"
        " simplex_projection noise_plan KaryResponse duchi centred_loss"
        " gaussian_mu gaussian_profile privacy_profile profile_epsilon shuffled_alpha"
    ),
    "as long as what it reads or writes": (
        "named load c_header flat_json gradient_hook privatize_gradients torch_module flower_strategy flower_update opendp_measurement to_pld emd emd_multisets"
        " emd_error_bound planar_laplace"
    ),
    "one accounting of one mechanism": "accuracy least_epsilon",
    "a name in a table": "register_law register_loss available get register unregister",
    "what a problem or a solution in hand says": "duals rows",
    "a design of a question": "CountsGaussian MatrixMechanism",
}


def capped(cap: float) -> md.Problem:
    P = md.Table([0, 1], [0, 1])
    return md.Problem(md.Minimize(P.expected("error")), [P.private(md.PureDP(1.0)), P[0, 1] <= cap])


LONG: dict[str, Callable[[Any], Any]] = {
    "audit_table": lambda limit: md.audit_table([[0.6, 0.4], [0.4, 0.6]], [0, 1], [-2, 3], md.PureDP(1.0), time_limit=limit),
    "calibrate": lambda limit: md.calibrate("laplace", privacy=md.PureDP(1.0), sensitivity=1.0, time_limit=limit),
    "compare": lambda limit: md.compare(md.NumericQuery(sensitivity=md.Sensitivity(linf=1)), md.PureDP(1.0), time_limit=limit),
    "search": lambda limit: md.search(capped, md.Grid(cap=[0.1, 0.5]), time_limit=limit),
    "sweep": lambda limit: md.sweep(md.NoiseAllocation("laplace", [1.0, 2.0], md.PureDP(1.0)), epsilon=[1.0], time_limit=limit),
    "calibrate_item_alpha": lambda limit: md.accounting.calibrate_item_alpha(1.0, items=2, total=4, delta=0.1, time_limit=limit),
    "delta_interval": lambda limit: md.accounting.delta_interval(
        md.accounting.NoiseTerm(md.noise.discrete_laplace_law(2.0), 1.0, 2), 0.5, time_limit=limit
    ),
    "epsilon_bound": lambda limit: md.accounting.epsilon_bound(
        md.accounting.NoiseTerm(md.noise.discrete_laplace_law(2.0), 1.0, 2), 0.5, time_limit=limit
    ),
    "upper_delta": lambda limit: md.accounting.upper_delta(
        md.accounting.NoiseTerm(md.noise.discrete_laplace_law(2.0), 1.0, 2), 0.5, time_limit=limit
    ),
    "solve": lambda limit: md.solvers.solve(md.MetricChannel(md.MetricSpace.grid(2, 2), alpha=1.0).problem().to_cvxpy(), time_limit=limit),
    "ItemwiseRelease": lambda limit: ItemwiseRelease(md.MetricSpace.line([0, 1]), alpha=1.0, accounting="composition", time_limit=limit),
    "Channel.exponential": lambda limit: md.channels.Channel.exponential(md.MetricSpace.line([0, 1]), 1.0, time_limit=limit),
}  # fmt: skip


def public() -> Iterator[tuple[str, Any]]:
    for room in ROOMS:
        here = getattr(md, room) if room else md
        for name in here.__all__:
            yield name, getattr(here, name)


def takes_limit(found: Any) -> bool:
    """As seconds, or as the clock that `solve` makes of them for `improve`."""
    return not {"time_limit", "clock"}.isdisjoint(inspect.signature(found).parameters)


def test_every_function_takes_a_limit_or_is_known_to_be_short() -> None:
    short = {name for names in SHORT.values() for name in names.split()}
    functions = {name: f for name, f in public() if inspect.isfunction(f)}
    limited = {name for name, f in functions.items() if takes_limit(f)}
    assert limited <= set(LONG)
    assert set(functions) - limited == short & set(functions)
    assert not short & limited
    assert short <= {name for name, _ in public()}


def test_every_class_that_searches_takes_a_limit() -> None:
    """Where a method says how near it should come, or how often it tries, it says how long it may take."""
    words = {"gap", "starts", "tries"}
    for name, found in public():
        if inspect.isclass(found):
            if issubclass(found, Design | Solver):
                hands_on = "options" in inspect.signature(found.solve).parameters
                assert takes_limit(found.solve) or hands_on, name
            for method, call in inspect.getmembers(found, inspect.isfunction):
                if method.startswith("_") or not call.__module__.startswith("mechdesign"):
                    continue
                asked = words & set(inspect.signature(call).parameters)
                fine = takes_limit(call) or method == "ended"  # how one ended
                assert not asked or fine, f"{name}.{method}"


@pytest.mark.parametrize("bad", [0, -1.0, np.nan, "soon", True])
@pytest.mark.parametrize("name", sorted(LONG))
def test_a_limit_is_a_positive_number_of_seconds(name: str, bad: Any) -> None:
    with pytest.raises(md.DesignError, match="time_limit"):
        LONG[name](bad)
    assert LONG[name](60.0) is not None


@pytest.mark.parametrize("name", sorted(LONG))
def test_a_limit_that_is_over_is_an_answer_or_says_so(name: str) -> None:
    try:
        assert LONG[name](1e-9) is not None
    except md.SolverError as error:
        assert "limit" in f"{error} {error.status}"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that deadlines see."""
    now = [0.0]
    monkeypatch.setattr("mechdesign.solvers.deadline.time.monotonic", lambda: now[0])
    return now


def test_a_verification_ends_with_its_limit(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    stated = md.BoundedCount(12, md.PureDP(1.0)).solve().certificate
    monkeypatch.setattr(Deadline, "elapsed", property(lambda self: 2.0))
    with pytest.raises(md.SolverError, match="not all claims were checked"):
        stated.verify(time_limit=1.0)
    assert stated.verify(time_limit=3.0) and stated.verify()


def test_an_interrupt_ends_the_search_whose_step_it_meets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibration that an allocation begins with kept the interrupt for itself, and the allocation went on."""
    improve = md.Calibration.improve

    def interrupted(self: md.Calibration, clock: Deadline) -> Iterator[Any]:
        yield next(found for found in improve(self, clock) if isinstance(found, Law))
        raise KeyboardInterrupt

    monkeypatch.setattr(md.Calibration, "improve", interrupted)
    privacy = md.ApproximateDP(1.0, 1e-6)
    design = md.Calibration("gennorm", privacy, 1.0)
    result = design.solve()
    assert result.certificate.verify() and result.status is Status.LIMIT
    assert "no lower bound was proved" in str(result) and "interrupted after" in result.notes[-1]
    for cut in (
        md.NoiseAllocation("gennorm", [1.0, 2.0], privacy).solve,
        lambda: design.solve(certify=False),
    ):
        with pytest.raises(KeyboardInterrupt):
            cut()


# -- Limits that pass at any question: what is returned then is private, certified, and says that time was short


APPROXIMATE = md.ApproximateDP(1.0, 1e-6)
DESIGNS: dict[str, Any] = {
    "gennorm": lambda: md.Calibration("gennorm", APPROXIMATE, 1.0, dimension=5),
    "hypsecant": lambda: md.Calibration(stats.hypsecant(), APPROXIMATE, 1.0, dimension=3),
    "bounds": lambda: md.Calibration("osgt", APPROXIMATE, md.Sensitivity(linf=1, l1=3, l2=2), dimension=9),
    "sampled": lambda: md.Calibration("laplace", APPROXIMATE, 1.0, rounds=100, sampling_rate=0.01),
    "truncated": lambda: md.Calibration("truncated_laplace", APPROXIMATE, 1.0, rounds=10, sampling_rate=0.1),
    "many": lambda: md.OptimalNoise(APPROXIMATE, dimension=3),
}


def spent_of(result: Any) -> Any:
    return result.proofs[0].given


def passing_after(monkeypatch: pytest.MonkeyPatch, questions: int, left: float = 1.0) -> None:
    """Every finite deadline has `left` seconds until all of them together were asked so often, and then none."""
    asked = itertools.count()
    monkeypatch.setattr(
        Deadline,
        "left",
        property(lambda self: (left if next(asked) < questions else 0.0) if self.finite else math.inf),
    )


@pytest.mark.parametrize("name", sorted(DESIGNS))
@pytest.mark.parametrize("questions", [0, 9])
def test_whenever_time_is_up_the_answer_is_private(
    name: str, questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing_after(monkeypatch, questions)
    result = DESIGNS[name]().solve(time_limit=1.0)
    assert result.status is Status.LIMIT
    monkeypatch.undo()
    assert result.certificate.verify()
    if name != "many":
        assert spent_of(result).upper <= result.design.privacy.delta


def test_an_interval_that_is_not_refined_still_encloses(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = NoiseTerm(stats.laplace(scale=20.0), 1.0, 20)
    for options in ({}, {"sampling_rate": 0.1, "rounds": 50}):
        tight = delta_interval(terms, 0.4, width=1e-3, **options)
        for questions in (0, 1, 2, 3, 5):
            with monkeypatch.context() as patch:
                passing_after(patch, questions)
                wide = delta_interval(terms, 0.4, width=1e-3, time_limit=1.0, **options)
            assert wide.lower <= tight.upper and tight.lower <= wide.upper < 1.0
            assert wide.upper >= tight.upper * (1 - 1e-3)


def test_what_a_search_proved_stands_if_no_time_is_left(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a million points of a convolution take a second here."""

    def slow(*given: Any, work: Any = composition.convolve) -> Any:
        found = work(*given)
        clock[0] += found[1].size / 2**19
        return found

    monkeypatch.setattr(composition, "convolve", slow)
    asked = md.Calibration("laplace", md.ApproximateDP(8e-3, 2e-8), 1.0, dimension=65, rounds=47_106_468)
    result = asked.solve(time_limit=2.0)
    assert spent_of(result).upper <= 2e-8 and clock[0] < 5.0

"""Parts of the campaigns: ``python -m tests.campaign`` (also ``--later``) and ``python -m tests.campaign.mutations`` run them in full."""

from __future__ import annotations

import contextlib
import random
import types
from collections.abc import Callable
from typing import Any

import cheap
import pytest

import mechdesign as md
from campaign import mutations
from tests.campaign import __main__ as campaign
from tests.campaign.draws import CLASSES
from tests.campaign.judges import ORACLES
from tests.campaign.later_draws import OFTEN

SEED = 3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "later"),
    [
        *(
            pytest.param(name, False, marks=[pytest.mark.slow] * (name == "MetricQuantizer"))
            for name in CLASSES
        ),
        *((name, True) for name in OFTEN),
    ],
)
def test_random_designs(name: str, later: bool) -> None:
    """Of each class as many as it takes until one is solved; of the later classes those that take milliseconds."""
    shown: list[str] = []
    numbers = (n for n in range(2000) if campaign.drawn(SEED, n, later=later)[0] == name)
    rows = (campaign.campaign([number], SEED, None, shown.append, later=later)[0] for number in numbers)
    assert any(row["ended"] == "fine" for row in rows) and shown == []


def test_every_class_has_an_oracle() -> None:
    named = {name: type(draw(random.Random("5/1"))) for name, draw in CLASSES.items()}
    for n in range(200):
        name, design = campaign.drawn(1, n, later=True)
        if name not in named:
            with contextlib.suppress(md.MechdesignError):  # some that are drawn have no answer
                named[name] = type(design())
    assert {*named.values()} == {*ORACLES}


@pytest.mark.parametrize(
    ("name", "claims"),
    [
        ("optimal-quantizer", {"lower_bound": 1.9, "value": 1.5}),
        ("rqm", {"value": 1.0}),
        ("metric-channel", {"lower_bound": 10.0}),
        ("noise-allocation", {"value": 1.0}),
        ("optimal-noise", {"lower_bound": 2.0}),
        ("matrix-mechanism", {"lower_bound": 1e4, "value": 1.0}),
        ("mixed-allocation", {"value": 0.5}),
        ("knorm", {"value": 1.0}),
        ("vectors", {"value": 30.0, "lower_bound": 33.0}),
        ("vectors-box", {"lower_bound": 1200.0}),
        ("optimal-noise-many", {"lower_bound": 10.0}),
        ("plan", {"value": 1e9, "lower_bound": 1e9}),
    ],
)
def test_a_false_claim_is_seen(name: str, claims: dict[str, float]) -> None:
    """By the oracles alone, without any certificate."""
    result = cheap.solved(name)
    oracle = ORACLES[type(result.design)]
    assert next(oracle(result.design, result), None) is None
    shown = {part: getattr(result, part) for part in ("mechanism", "value", "lower_bound", "status")}
    for part, claim in claims.items():
        assert next(oracle(result.design, types.SimpleNamespace(**{**shown, part: claim})), None) is not None


@pytest.mark.parametrize(
    "asked",
    [
        lambda e: md.NoiseAllocation("mixed", [1.0, 0.1, 0.1, 0.1], md.ApproximateDP(2.0 * e, 1e-3)),
        lambda e: md.noise.KNorm(3, md.PureDP(e), md.Sensitivity(linf=1, l1=2, l2=1.5)),
        lambda e: md.MatrixMechanism([[1, 1, 0], [0, 1, 1.0]], md.ApproximateDP(e, 1e-6), l0=2, signed=False),
        lambda e: md.OptimalNoise(md.PureDP(2.0 * e), dimension=2),
        lambda e: md.Calibration("laplace", md.ApproximateDP(e, 1e-3), md.Sensitivity(linf=1, l1=2), dimension=3),
        *(lambda e, law=law: md.Calibration(law, md.ApproximateDP(e, 1e-6), 1.0) for law in ("laplace", "gaussian", "flipped_huber")),
        lambda e: md.SphereQuantizer(20, 3, md.PureDP(e)),
        pytest.param(lambda e: md.RandomDirections(10, 6, md.PureDP(e), messages=2), marks=pytest.mark.slow),
        lambda e: md.SampledCoordinates(4, 2, md.PureDP(e)),
        lambda e: md.ItemwiseRelease(md.MetricSpace.line([0.0, 1.0]), alpha=e, items=3, model="local", accounting="composition"),
        lambda e: md.Plan({"n": md.Count(2), "m": md.Mean(0, 9, n=50)}, md.PureDP(e)),
        lambda e: md.Plan({"n": md.Count(), "h": md.Histogram(9, 2)}, md.ZeroConcentratedDP(e), rounds=3),
        lambda e: md.Plan({"n": md.Count(), "h": md.Histogram(20), "s": md.Sum(2.0)}, md.ApproximateDP(3 * e, 1e-5)),
    ],
)  # fmt: skip
def test_noise_for_a_larger_budget_is_seen(asked: Callable[[float], Any]) -> None:
    """The mechanism of a budget that is wider by a twentieth, held against the narrower one."""
    narrow, wide = asked(1.0), asked(1.05)
    found = wide.solve() if hasattr(wide, "solve") else wide
    if not hasattr(wide, "solve"):
        for name in ("privacy", "alpha"):
            if hasattr(wide, name):
                object.__setattr__(wide, name, getattr(narrow, name))
    oracle = ORACLES[type(narrow)]
    faults = [*oracle(narrow if hasattr(wide, "solve") else wide, found)]
    assert any(fault.startswith("privacy") for fault in faults)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_mutated_files(seed: int) -> None:
    shown: list[str] = []
    counts = mutations.counts(mutations.campaign(range(100), seed, shown.append))
    assert counts["FAULT"].sum() == 0, "\n".join(shown)
    for checker in ("package", "alone"):
        found = counts.xs(checker, level="checker").sum()
        assert found["refused"] > 20 and found["failed"] + found["same"] > 20

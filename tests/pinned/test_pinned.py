"""No call answers worse than on the commit that `recorded.json` names: value, bound, status, ε and δ, what is released."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import mechdesign as md
from tests.pinned import answers, calls, laws
from tests.pinned.record import PATH

RECORDED: dict[str, Any] = json.loads(PATH.read_text())
ALLOWED: dict[str, str] = {}
"""Calls whose value or bound may be worse than recorded, each with the line of the ablation table that says so."""
CLOSE = 1e-6  # of values and bounds, relative
SAME_LAW = 1e-9  # of ε and δ, relative
NEARER = 1e-6  # of the budget: how much nearer to it a law that keeps it may come, which is what searches leave open
NEARER_OF_MANY = 1e-3  # where an LP's vertex is composed over coordinates: δ moves by 2e-4 of it with the processor's kernels
ORACLE = 1e-12  # what the oracles themselves compute in doubles
ALARM = 1e-6  # a false alarm in a million draws of 20,000

COMPOSED = ("OptimalNoise.dimension", "OptimalNoise.changed")
STARTS_PYTHON = ("verified(", "command(")
RANK = {"uncertified": 0, "limit": 1, "feasible": 2, "gap not reached": 2, "optimal": 3}
pytestmark = pytest.mark.filterwarnings("ignore")


def settings(names: Any) -> list[Any]:
    """Names; calls that took more than a second when they were recorded are for the slow half."""
    seconds = {name: RECORDED["calls"].get(name, {}).get("seconds", 0) for name in names}
    return [pytest.param(n, marks=[pytest.mark.slow] if seconds[n] > 1 else []) for n in names]


def test_every_call_is_recorded() -> None:
    assert list(RECORDED["calls"]) == answers.NAMES and list(RECORDED["facts"]) == list(answers.FACTS)
    assert set(ALLOWED) <= set(answers.NAMES)


@pytest.mark.parametrize("name", settings(answers.NAMES))
def test_no_call_is_worse(name: str) -> None:
    old, new = RECORDED["calls"][name], answers.record(name)
    if name not in ALLOWED:
        assert new["value"] <= old["value"] + CLOSE * abs(old["value"])
        if old.get("lower_bound") is not None:
            assert new["lower_bound"] >= old["lower_bound"] - CLOSE * abs(old["lower_bound"])
        assert "status" not in old or RANK[new["status"]] >= RANK[old["status"]]
    for part in ("epsilon", "delta"):
        if not math.isnan(old.get(part, math.nan)):
            most = getattr(answers.budget(name), part, 0.0)
            nearer = NEARER_OF_MANY if name.startswith(COMPOSED) else NEARER
            assert new[part] <= max(old[part] * (1 + SAME_LAW), min(old[part] + nearer * most, most))


@pytest.mark.parametrize("name", settings([*calls.DESIGNS, *calls.MECHANISMS]))
def test_no_law_breaks_its_budget(name: str) -> None:
    notion, new = answers.budget(name), answers.record(name)
    if isinstance(notion, md.ZeroConcentratedDP):
        assert new["epsilon"] <= notion.rho * (1 + ORACLE)
    elif notion is not None:
        assert new["epsilon"] <= notion.epsilon * (1 + ORACLE)
        assert math.isnan(new["delta"]) or new["delta"] <= getattr(notion, "delta", 0.0) * (1 + ORACLE)
    if name in calls.DESIGNS:
        assert answers.faults(name) == []


@pytest.mark.parametrize("name", settings([*calls.DESIGNS, *calls.MECHANISMS]))
def test_releases_follow_the_law(name: str) -> None:
    found = laws.released(answers.mechanism(name))
    assert found is None or found > ALARM


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] if n.startswith(STARTS_PYTHON) else []) for n in answers.FACTS],
)
def test_facts_stay(name: str) -> None:
    assert json.loads(json.dumps(answers.FACTS[name]())) == RECORDED["facts"][name]

"""What a call answers, as a record: the only place that reads a result."""

from __future__ import annotations

import functools
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

import mechdesign as md
from tests.campaign.bounds_oracles import bounded_allocation
from tests.campaign.judges import ORACLES
from tests.pinned import calls, laws

Record = dict[str, Any]
NAMES = [*calls.DESIGNS, *calls.MECHANISMS, *calls.NUMBERS]


@functools.cache
def solved(name: str) -> Any:
    """The result of a design, once a process."""
    return calls.DESIGNS[name]().solve()


FACTS = calls.facts(solved)


@functools.cache
def mechanism(name: str) -> Any:
    return solved(name).mechanism if name in calls.DESIGNS else calls.MECHANISMS[name]()


@functools.cache
def record(name: str) -> Record:
    """Value, lower bound, status, ε and δ of the law by the independent oracles, seconds of the processor."""
    started = time.process_time()
    if name in calls.NUMBERS:
        found = calls.NUMBERS[name]()
        value, bound = found if isinstance(found, tuple) else (found, None)
        return {"value": value, "lower_bound": bound, "seconds": round(time.process_time() - started, 3)}
    made = mechanism(name)
    seconds = round(time.process_time() - started, 3)
    if name in calls.MECHANISMS:
        epsilon, delta = laws.SPENT[type(made)](made, None)
        return {"value": cost(made), "epsilon": epsilon, "delta": delta, "seconds": seconds}
    result = solved(name)
    epsilon, delta = laws.SPENT[type(result.design)](result.design, made)
    bound = None if result.lower_bound is None else float(result.lower_bound)
    return {
        "value": float(result.value), "lower_bound": bound, "status": str(result.status.value),
        "epsilon": epsilon, "delta": delta, "seconds": seconds,
    }  # fmt: skip


def cost(made: Any) -> float:
    """What grows with the noise of a mechanism that is no result's: its stated error, else a number of its law."""
    if isinstance(found := getattr(made, "error", None), float):
        return found
    if isinstance(made, md.CoordinateQuantizer):
        return float(made.expected_squared_error(calls.UNIFORM))
    if isinstance(made, md.LinearRelease):
        return float(made.scale)
    table = made.channel if isinstance(made, md.ItemwiseRelease) else made
    return float(np.sum(np.linalg.pinv(np.array(table.apply(np.eye(table.size)))) ** 2))


def budget(name: str) -> Any:
    """The notion of privacy that was asked for."""
    owner = solved(name).design if name in calls.DESIGNS else mechanism(name)
    return getattr(owner, "privacy", None)


def faults(name: str) -> list[str]:
    """What the campaign's oracles find wrong with a result."""
    result = solved(name)
    design = result.design
    if name == "calibrate.gaussian.sampled":  # the oracle is of rounds in which all take part
        return []
    if isinstance(design, md.NoiseAllocation) and design.bounds is not None:
        return list(bounded_allocation(SimpleNamespace(design=design, bounds=design.bounds), result))
    oracle = ORACLES.get(type(design))
    return [] if oracle is None else list(oracle(design, result))

"""False claims whose evidence is absurd: numbers that overflow, prices of what has no bound, multipliers of 1e308.

Each result is made to claim what is false, everywhere in the file; then each kind of number in its certificate is set to the ends
of what doubles hold, in turn. Whatever it is set to, the claim must not be believed.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import cheap
import pytest
from campaign import trees

import mechdesign as md
from evidence.test_doctored import MORE, nodes, solved
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.files import KINDS

Path = tuple[str | int, ...]

ABSURD = (1e308, -1e308)
_FEW = 4
"""Members of a list that are all looked at; of a longer one the first and the last."""


def numbers(node: Any, path: Path = ()) -> Iterator[Path]:
    """Where numbers stand: all in short lists, first and last of long ones."""
    if isinstance(node, dict):
        for key, child in node.items():
            if key not in (
                "value",
                "lower_bound",
                "design",
                "question",
                "prior",
            ):  # claims, and what is compared
                yield from numbers(child, (*path, key))
    elif isinstance(node, list):
        for i in sorted({*range(len(node))} if len(node) <= _FEW else {0, len(node) - 1}):
            yield from numbers(node[i], (*path, i))
    elif type(node) in (int, float):
        yield path


def believed(payload: Any) -> bool:
    try:
        result = loads(cheap.sealed(payload), kinds=KINDS)
        return bool(result.certificate.verify() and result.checks()["holds"].all())
    except md.MechdesignError:
        return False


def dearer(payload: Any) -> Any:
    """The same mechanism, said to cost twice as much, and that to be nearly optimal."""
    l0 = copy.deepcopy(payload)
    value = l0["fields"]["value"]
    for owner in nodes(l0, "lower_bound"):
        if owner["lower_bound"] is not None:
            owner["lower_bound"] = 1.9 * value
    for owner in nodes(l0, "value"):
        if owner["value"] == value:
            owner["value"] = 2 * value
    return l0


def quieter(payload: Any) -> Any | None:
    """A thousandth of the noise, where it has scales."""
    l0 = copy.deepcopy(payload)
    owners = [owner for owner in nodes(l0["fields"], "scales") if isinstance(owner["scales"], dict)]
    for owner in owners:
        owner["scales"]["$array"] = [scale * 1e-3 for scale in owner["scales"]["$array"]]
    return l0 if owners else None


@pytest.mark.slow
@pytest.mark.parametrize("name", [*cheap.DESIGNS, *MORE])
def test_absurd_evidence_proves_nothing(name: str) -> None:
    """Was: a multiplier of 1e308 proved any lower bound, and a price of a bound that is not there any budget."""
    payload = json.loads(dumps(solved(name)))["payload"]
    assert believed(payload)
    false = [forged for forged in (dearer(payload), quieter(payload)) if forged is not None]
    if payload["fields"]["lower_bound"] is None:
        false = false[1:]
    for forged in false:
        assert not believed(forged)
        for path in numbers(forged["fields"]["proofs"], ("fields", "proofs")):
            for absurd in ABSURD:
                assert not believed(trees.put(forged, path, absurd)), (path, absurd)

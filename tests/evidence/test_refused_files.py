"""Files edited part by part and sealed anew, which the audit once believed: what the commit before printed is in each test."""

from __future__ import annotations

import json
from typing import Any

import cheap
import pytest

import mechdesign as md
from mechdesign.evidence.audit import claims
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.files import KINDS


def payload_of(name: str) -> dict[str, Any]:
    return json.loads(dumps(cheap.solved(name)))["payload"]


def read(payload: Any) -> Any:
    return loads(cheap.sealed(payload), kinds=KINDS)


def test_the_noise_of_an_allocation_is_of_the_family_asked_for() -> None:
    """Was: Laplace scales under pure privacy with the mechanism's noise "gaussian": every claim true."""
    payload = payload_of("noise-allocation")
    assert claims(read(payload))["holds"].all()
    payload["fields"]["mechanism"]["fields"]["noise"] = "gaussian"
    assert not claims(read(payload))["holds"].all()


@pytest.mark.parametrize("status", ["optimal", "feasible"])
def test_a_calibration_proves_no_lower_bound(status: str) -> None:
    """Was: "lower bound: 53.5 (proved)", and "optimal: with a finite value and lower bound | proved | yes"."""
    payload = payload_of("calibration")
    payload["fields"]["lower_bound"] = 0.999 * payload["fields"]["value"]
    payload["fields"]["solver_report"]["fields"]["status"] = status
    try:
        result = read(payload)
    except md.ResultFormatError:
        return
    table = result.checks()
    bound = table[table["claim"].str.contains("no mechanism|optimal:")]
    assert set(bound["how"]) == {"claimed"} and not table["holds"].all()
    assert "(claimed)" in str(result) and "(proved)" not in str(result)

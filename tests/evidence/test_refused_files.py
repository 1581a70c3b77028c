"""Files edited part by part and sealed anew, which the audit once believed: what the commit before printed is in each test."""

from __future__ import annotations

import json
from typing import Any

import cheap

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

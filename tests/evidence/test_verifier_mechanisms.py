"""The stand-alone check of mechanisms that are saved without a result."""

from __future__ import annotations

import json
import math

import cheap
import numpy as np
import pytest

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.verifier import verify

SAVED = {
    "clustered": lambda: md.channels.ClusteredResponse(md.MetricSpace.clustered(2, 2, within=0.1), alpha=5.0),
    "k-ary": lambda: md.channels.KaryResponse(3, 1.0),
    "hadamard": lambda: md.channels.HadamardResponse(5, 1.0),
    "channel": lambda: cheap.solved("metric-channel").mechanism,
    "sphere": lambda: md.SphereQuantizer(20, 3, md.PureDP(2.0)),
}


@pytest.mark.parametrize("name", SAVED)
def test_a_saved_mechanism_is_private_as_it_says(name: str) -> None:
    assert all(holds for *_, holds in verify.verify(dumps(SAVED[name]())).rows)


def test_the_loss_of_a_channel_is_that_of_its_weights() -> None:
    channel = SAVED["channel"]()
    claim = next(claim for claim, *_ in verify.verify(dumps(channel)).rows if claim.startswith("privacy"))
    weights = np.array(channel.weights, dtype=float)
    ratio = (weights.max(axis=0) / weights.min(axis=0)).max()
    assert float(claim.rpartition(" ")[2]) == pytest.approx(math.log(ratio), rel=1e-9)


def test_a_channel_that_rules_an_item_out_is_not_private() -> None:
    payload = json.loads(dumps(SAVED["channel"]()))["payload"]
    row = payload["fields"]["weights"]["$tuple"][0]["$tuple"]
    row[0], row[1] = row[0] + row[1], 0
    assert not all(holds for *_, holds in verify.verify(cheap.sealed(payload)).rows)

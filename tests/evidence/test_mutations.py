"""The mutation campaign, with fewer files: ``python -m tests.campaign.mutations`` runs 10,000."""

from __future__ import annotations

import pytest
from campaign import mutations


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_mutated_files(seed: int) -> None:
    shown: list[str] = []
    counts = mutations.campaign(200, seed, shown.append).sum()
    assert counts["FAULT"] == 0, "\n".join(shown)
    assert counts["refused"] > 80 and counts["failed"] + counts["same"] > 20

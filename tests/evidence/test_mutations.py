"""The mutation campaign, with fewer files: ``python -m tests.campaign.mutations`` runs 10,000."""

from __future__ import annotations

import itertools
import json
import random

import cheap
import pytest
from campaign import mutations, trees
from campaign.doctorings import DOCTORINGS, doctored


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_mutated_files(seed: int) -> None:
    shown: list[str] = []
    counts = mutations.counts(mutations.campaign(range(100), seed, shown.append))
    assert counts["FAULT"].sum() == 0, "\n".join(shown)
    for checker in ("package", "alone"):
        found = counts.xs(checker, level="checker").sum()
        assert found["refused"] > 20 and found["failed"] + found["same"] > 20


def test_an_honest_file_of_another_question_is_no_fault() -> None:
    """K-norm noise is for the largest norm of a change, whatever the neighbours: the file of replaced persons is the same."""
    text = mutations.honest()["knorm-several"]
    payload = json.loads(text)["payload"]
    bounds = ("fields", "design", "fields", "sensitivity", "fields")
    replaced = cheap.sealed(trees.put(payload, (*bounds, "neighbours"), "replace"))
    assert mutations.is_the_answer("knorm-several", replaced)
    assert not mutations.is_the_answer(
        "knorm-several", cheap.sealed(trees.put(payload, (*bounds, "l1"), 2.4))
    )


def test_there_are_twenty_kinds_of_doctoring_and_each_changes_some_file() -> None:
    documents, seen = mutations.honest(), set()
    for number in range(400):
        rng = random.Random(f"kinds/{number}")
        name, other = rng.choice(list(documents)), rng.choice(list(documents))
        own, foreign = (json.loads(documents[n])["payload"] for n in (name, other))
        seen |= {kind for kind, _ in itertools.islice(doctored(rng, own, foreign), 1)}
        if len(seen) == len(DOCTORINGS):
            break
    assert len(DOCTORINGS) >= 20 and seen == set(DOCTORINGS)

"""The stand-alone check of optimal noise for several numbers: sound and doctored files."""

from __future__ import annotations

from dataclasses import replace

import pytest

import mechdesign as md
from mechdesign.evidence.results import Result
from mechdesign.evidence.serialize import dumps
from mechdesign.noise import several
from mechdesign.solvers.deadline import Deadline
from mechdesign.verifier.noise import Copies
from mechdesign.verifier.reading import Account, Refused
from mechdesign.verifier.verify import verify


def refused(result: Result) -> list[str]:
    try:
        return [claim for claim, _, holds in verify(dumps(result)).rows if not holds]
    except Refused as error:
        return [str(error)]


def test_a_named_law_for_one_number_is_bounded_as_any_noise() -> None:
    found = md.compare(
        md.NumericQuery(),
        md.PureDP(1.0),
        mechanisms=["laplace", "staircase", "optimal noise"],
        progress=False,
    )["optimal noise"]
    assert isinstance(found.mechanism, md.noise.AdditiveNoise) and found.status.value == "optimal"
    claim = f"no additive noise for a real-valued query costs less than {found.lower_bound!r}"
    assert (claim, "proved", True) in verify(dumps(found)).rows and found.certificate.verify()
    raised = replace(found, lower_bound=found.lower_bound * (1 + 1e-9), value=found.value * (1 + 1e-9))
    assert any("costs less" in claim for claim in refused(raised))
    assert refused(replace(found, proofs=found.proofs[:1]))  # the proof of the law alone


@pytest.mark.parametrize(
    ("count", "epsilon", "delta"), [(2, 0.5, 0.2), (3, 0.5, 1e-5), (10, 1.0, 1e-6), (128, 2.0, 1e-9)]
)
def test_what_copies_imply_is_what_the_package_says(count: int, epsilon: float, delta: float) -> None:
    """At a twentieth more of the delta that the package proves, and not at a twentieth less."""
    package = several.Copies(count, epsilon, delta)
    for share in (0.3, 1.0):
        kept = package.share(share * epsilon / count, Deadline(5))
        assert kept is not None
        own = Copies(count, epsilon, delta, Account(10**8))
        assert own.imply(share * epsilon / count, 1.05 * kept)
        assert not own.imply(share * epsilon / count, 0.95 * kept)

"""Claims that are not so: faults 8 to 15 of the audits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cheap
import numpy as np
import pytest
from campaign import files
from scipy import stats

import mechdesign as md
from mechdesign.evidence.serialize import dumps
from mechdesign.verifier import reading, verify

P = cheap.PURE
APPROXIMATE = md.ApproximateDP(1.0, 1e-6)


def bound_line(result: md.Result) -> str:
    """The line of the summary that states the lower bound."""
    return next(line for line in str(result).splitlines() if "lower bound" in line)


@pytest.mark.parametrize(
    ("design", "part", "member", "value"),
    [
        (lambda: md.noise.KNorm(3, P), "mechanism", "widths", {"$tuple": [1.0, 1.0, 1.0]}),
        (lambda: md.OptimalNoise(P, 2, integer=True), "design", "l0", 1),
        (lambda: md.OptimalNoise(P), "design", "l0", 1),
    ],
    ids=["widths of 1", "one whole number", "one number"],
)
def test_the_same_said_at_length_is_accepted_by_both(
    design: Callable[[], Any], part: str, member: str, value: Any, tmp_path: Path
) -> None:
    payload = json.loads(dumps(design().solve()))["payload"]
    payload["fields"][part]["fields"][member] = value
    assert files.package_accepts(payload)
    assert files.alone_accepts(payload)


@pytest.mark.parametrize("noise", ["gaussian", stats.hypsecant()], ids=["gaussian", "hypsecant"])
def test_the_page_of_a_family_does_not_say_that_nothing_does_better(noise: Any, tmp_path: Path) -> None:
    """Least is the Gaussian of variance 17.848 only among Gaussians: Laplace noise has 2.0."""
    md.calibrate(noise, privacy=APPROXIMATE, sensitivity=1.0).report(tmp_path / "page.html")
    assert "nothing does better" not in (tmp_path / "page.html").read_text()


def test_the_lower_bound_of_a_family_names_it() -> None:
    assert "this family" in bound_line(md.calibrate("gaussian", privacy=APPROXIMATE, sensitivity=1.0))


def test_a_status_that_rests_on_a_claimed_bound_is_claimed() -> None:
    """A bound that nobody checks, moved to the value, made the file "best of its class", proved."""
    payload = files.payload("calibration-normal")
    fields = payload["fields"]
    fields["lower_bound"] = fields["value"]
    fields["solver_report"]["fields"]["status"] = "best of its class"
    rows = verify.verify(cheap.sealed(payload)).rows
    assert [how for claim, how, _ in rows if claim.startswith("status")] == ["claimed"]


def test_compare_does_not_deny_the_lower_bound_of_its_best() -> None:
    compared = md.compare(md.NumericQuery(), APPROXIMATE, mechanisms=["gaussian", "laplace"], progress=False)
    assert compared.results["laplace"].lower_bound is not None
    assert "no lower bound is known" not in str(compared)


@pytest.mark.parametrize(
    ("m", "most", "epsilon", "loss", "value"),
    [
        (4, 3.0, 2.0, "absolute", 0.690711),
        (5, 2.0, 2.0, "squared", 0.812009),
    ],
)
def test_searched_outputs_are_the_best_of_both_symmetries(
    m: int, most: float, epsilon: float, loss: str, value: float
) -> None:
    """The values are those of certified mechanisms with outputs that do not mirror each other."""
    design = md.OptimalQuantizer(md.BinSearch(m, most), md.PureDP(epsilon), cheap.UNIFORM, loss)
    assert design.solve().value <= value + 1e-6


def test_mvu_finds_an_alphabet_of_less_variance() -> None:
    law = md.MVU(m=8, privacy=md.PureDP(4.0), input_range=(-1, 1), input_bits=3).solve().mechanism
    inputs = np.linspace(-1, 1, 8)
    errors = (law.bins - inputs[:, None]) ** 2
    assert (law.probabilities(inputs) * errors).sum(axis=1).mean() <= 0.11323


def many_cells(count: int, bits: int = 0) -> dict[str, Any]:
    """Optimal noise of so many weights, of so many bits, half of them within the sensitivity."""
    payload = files.payload("optimal-noise")
    law = payload["fields"]["mechanism"]["fields"]
    law |= {
        "weights": {"$tuple": [(1 << bits) + k % 7 * (bits > 0) for k in range(count)]},
        "spans": {"$tuple": []},
    }
    law |= {"cells_per_shift": count // 2, "width": 2 / count, "start": -1.0}
    return payload


@pytest.mark.parametrize(("count", "bits"), [(4000, 0), (1182, 12_000)])
def test_small_files_that_ask_for_much_work_are_too_large_to_check(count: int, bits: int) -> None:
    payload = many_cells(count, bits)
    assert not files.package_accepts(payload)
    with pytest.raises(reading.TooLarge, match="too large to check"):
        verify.verify(cheap.sealed(payload))


@pytest.mark.parametrize("name", ["dimension", "rounds"])
def test_compositions_of_a_billion_losses_are_not_believed(name: str) -> None:
    payload = files.payload("calibration")
    for part in ("design", "mechanism"):
        payload["fields"][part]["fields"][name] = 10**9
    assert not files.alone_accepts(payload)

"""Files edited part by part and sealed anew, which the audit once believed: what the commit before printed is in each test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import cheap
import numpy as np
import pytest

import mechdesign as md
from evidence.test_doctored import solved
from mechdesign.evidence.proofs import RECOMPUTED, Certificate, Claim, Proof
from mechdesign.evidence.serialize import dumps, encode, loads
from mechdesign.files import KINDS
from mechdesign.verifier import verify

CORRELATED = md.CorrelatedGaussian(
    vectors=[[1.0, 0.2, 0.0], [0.3, 1.0, 0.5], [0.0, 0.4, 2.0]], privacy=md.ApproximateDP(1.0, 1e-6)
)


def payload_of(name: str) -> dict[str, Any]:
    return json.loads(dumps(cheap.solved(name)))["payload"]


def read(payload: Any) -> Any:
    return loads(cheap.sealed(payload), kinds=KINDS)


def test_the_noise_of_an_allocation_is_of_the_family_asked_for() -> None:
    """Was: Laplace scales under pure privacy with the mechanism's noise "gaussian": every claim true."""
    payload = payload_of("noise-allocation")
    assert read(payload).checks()["holds"].all()
    payload["fields"]["mechanism"]["fields"]["noise"] = "gaussian"
    assert not read(payload).checks()["holds"].all()


@pytest.mark.parametrize("status", ["optimal", "feasible"])
def test_a_calibration_proves_no_higher_bound_than_its_own(status: str) -> None:
    """Was: "lower bound: 53.5 (proved)", and "optimal: with a finite value and lower bound | proved | yes"."""
    payload = payload_of("calibration")
    raised = payload["fields"]["value"] * (1 - 1e-12)
    assert raised > payload["fields"]["lower_bound"]
    payload["fields"]["lower_bound"] = raised
    payload["fields"]["solver_report"]["fields"]["status"] = status
    try:
        result = read(payload)
    except md.ResultFormatError:
        return
    table = result.checks()
    bound = table[table["claim"].str.contains("every scale|optimal:")]
    assert "proved" not in set(bound["how"]) and not table["holds"].all()
    assert "(recomputed)" in str(result) and "(proved)" not in str(result)


def test_the_covariance_shown_is_the_laws_entry_by_entry() -> None:
    """Was: only the trace was compared, and a covariance with other entries off its diagonal passed."""
    payload = json.loads(dumps(CORRELATED.solve()))["payload"]
    assert read(payload).checks()["holds"].all()
    rows = payload["fields"]["mechanism"]["fields"]["covariance"]["$array"]
    rows[0][1] = rows[1][0] = rows[0][1] * (1 + 1e-6)
    table = read(payload).checks()
    assert not table.set_index("claim")["holds"]["the covariance shown is the law's"]


def test_a_law_has_no_more_shifts_than_cells() -> None:
    """Was: 29 weights and a million cells per shift, 3 KB, kept the audit and the verifier busy for minutes."""
    payload = payload_of("optimal-noise")
    payload["fields"]["mechanism"]["fields"]["cells_per_shift"] = 10**6
    text = cheap.sealed(payload)
    with pytest.raises(md.ResultFormatError, match="cells_per_shift"):
        loads(text, kinds=KINDS)
    with pytest.raises(verify.Refused, match="shifts"):
        verify.verify(text)


@pytest.mark.parametrize("value", ["x", [], {"$tuple": []}, True, 10**400], ids=repr)
@pytest.mark.parametrize(
    ("name", "part", "member"),
    [
        ("noise-allocation", None, "value"),
        ("noise-allocation", None, "lower_bound"),
        ("noise-allocation", 0, "multiplier"),
        ("optimal-quantizer", None, "lower_bound"),
        ("optimal-noise", 1, "cells"),
        ("optimal-noise", 1, "psi"),
        ("correlated-gaussian", "mechanism", "budget"),
        ("calibration", "design", "rounds"),
    ],
)
def test_members_of_another_type_are_refused(
    name: str, part: str | int | None, member: str, value: Any
) -> None:
    """Was: read, then TypeError or ValueError from ``str``, ``checks``, ``audit`` or ``verify``."""
    payload = payload_of(name)
    fields = payload["fields"]
    if part is not None:
        fields = (fields["proofs"]["$tuple"] if isinstance(part, int) else fields)[part]["fields"]
    assert member in fields
    fields[member] = value
    with pytest.raises(md.ResultFormatError, match=member):
        read(payload)


@pytest.mark.parametrize("value", [1e308, {"$float": "inf"}, {"$float": "nan"}], ids=repr)
def test_multipliers_are_finite_and_add_up(value: Any) -> None:
    """Was: read, then OverflowError or ValueError from ``checks``."""
    payload = payload_of("optimal-noise")
    payload["fields"]["proofs"]["$tuple"][1]["fields"]["psi"]["$array"][0][3] = value
    with pytest.raises(md.ResultFormatError, match="psi"):
        read(payload)


@pytest.mark.parametrize("last", [1.5, 3, -1, "2"])
def test_coordinates_are_coordinates(last: Any) -> None:
    """Was: 1.5 read as a coordinate, then IndexError from ``str``, ``audit`` and ``to_frame``."""
    payload = json.loads(dumps(CORRELATED.solve()))["payload"]
    payload["fields"]["mechanism"]["fields"]["coordinates"]["$tuple"][-1] = last
    with pytest.raises(md.ResultFormatError, match="coordinates"):
        read(payload)


@pytest.mark.parametrize("word", ["", "laplace", "absolute", "claimed"])
def test_words_of_a_certificate_are_those_it_knows(word: str) -> None:
    """Was: any text, which the claims table then showed as the way a claim was checked."""
    payload = payload_of("calibration")
    payload["fields"]["proofs"]["$tuple"][0]["fields"]["spent"]["fields"]["how"] = word
    with pytest.raises(md.ResultFormatError, match="how"):
        read(payload)


@pytest.mark.parametrize("name", ["absolute", "squared"])
def test_the_losses_of_the_package_keep_their_names(name: str) -> None:
    """Was: ``register_loss("squared", other)`` was accepted."""
    with pytest.raises(md.DesignError, match="name"):
        md.register_loss(name, abs)


def judged(payload: Any) -> bool:
    try:
        return all(holds for *_, holds in verify.verify(cheap.sealed(payload)).rows)
    except verify.Refused:
        return False


@pytest.mark.parametrize("groups", [[[0, 0], [1]], [[-1], [0]], [[0]], [[0, 1], [2]]], ids=str)
def test_verify_wants_groups_that_part_the_coordinates(groups: list[list[int]]) -> None:
    """Was: the verifier found every claim to hold."""
    grouped = md.NoiseAllocation(
        noise="laplace", sensitivities=[1.0, 2.0], privacy=cheap.PURE, groups=[[0], [1]]
    )
    payload = json.loads(dumps(grouped.solve()))["payload"]
    assert judged(payload)
    payload["fields"]["design"]["fields"]["groups"] = json.loads(dumps(tuple(groups)))["payload"]
    assert not judged(payload)


@pytest.mark.parametrize("member", ["value", "lower_bound"])
@pytest.mark.parametrize("name", ["optimal-quantizer", "optimal-noise", "noise-allocation"])
def test_verify_compares_the_numbers_shown_as_closely_as_the_format_says(name: str, member: str) -> None:
    """Was: numbers 1e-11 from those of the certificate passed; docs/format.md says 1e-12."""
    payload = payload_of(name)
    assert judged(payload)
    payload["fields"][member] *= 1 - 1e-11 if member == "value" else 1 + 1e-11
    assert not judged(payload)


def test_verify_reads_one_weight_for_all() -> None:
    """Was: refused as malformed where the package reads it."""
    payload = payload_of("noise-allocation")
    payload["fields"]["design"]["fields"]["weights"] = 1.0
    assert judged(payload) and read(payload).checks()["holds"].all()


@pytest.mark.parametrize("column", ["seconds", "note", "value"])
def test_a_table_with_a_shorter_column_is_refused(column) -> None:
    """It was filled up with blanks, and a frontier's seconds and notes are its own words."""
    curve = md.frontier(md.Calibration("laplace", cheap.PURE, 1.0), "epsilon", [0.5, 1.0])
    payload = json.loads(dumps(curve))["payload"]
    loads(cheap.sealed(payload), kinds=KINDS)
    for held in payload["fields"]["table"]["$table"]:
        if held[0] == column:
            held[2].pop()
    with pytest.raises(md.ResultFormatError, match="unequal length"):
        loads(cheap.sealed(payload), kinds=KINDS)


def path_to(payload: Any, path: str) -> Any:
    """An inner object of a payload, its kinds' fields by name."""
    for name in path.split():
        payload = payload["fields"][name]
    return payload


def a_third_number(payload: Any) -> None:
    path_to(payload, "design prior law")["args"] = [-1, 2, -1]


def a_place_twice(payload: Any) -> None:
    path_to(payload, "design prior law").update(args=[-1, 2], kwds={"$items": [["loc", 0.0]]})


def no_coordinates(payload: Any) -> None:
    for part in ("design", "mechanism"):
        path_to(payload, part)["fields"]["dimension"] = 0


def true_as_scale(payload: Any) -> None:
    path_to(payload, "mechanism law")["kwds"]["$items"][0][1] = True


def losses_without_end(payload: Any) -> None:
    path_to(payload, "mechanism law").update(
        {"$law": "gennorm", "args": [40.0], "kwds": {"$items": [["scale", 3.0]]}}
    )


def no_rounds(payload: Any) -> None:
    path_to(payload, "design")["fields"]["rounds"] = 0
    payload["fields"] |= {"lower_bound": None, "bound_class": None}


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("optimal-quantizer", a_third_number),
        ("optimal-quantizer", a_place_twice),
        ("calibration", no_coordinates),
        ("calibration", true_as_scale),
        ("calibration", losses_without_end),
        ("knorm", no_rounds),
    ],
)
def test_the_verifier_refuses_questions_and_laws_that_are_none(name: str, edit: Any) -> None:
    payload = payload_of(name)
    assert judged(payload)
    edit(payload)
    assert not judged(payload)


@pytest.mark.slow
def test_a_lower_bound_is_for_the_outputs_that_an_alphabet_has() -> None:
    payload, grid = (json.loads(dumps(solved(name)))["payload"] for name in ("optimal-quantizer", "alphabet"))
    fields, wide = payload["fields"], grid["fields"]
    path_to(payload, "design")["fields"]["bins"] = path_to(grid, "design")["fields"]["bins"]
    with pytest.raises(verify.Refused):  # fewer outputs than the alphabet
        verify.verify(cheap.sealed(payload))
    fields |= {"proofs": wide["proofs"], "lower_bound": 0.9 * wide["lower_bound"], "bound_class": "this menu"}
    path_to(payload, "solver_report")["fields"]["status"] = "feasible"
    [duals] = (p["fields"]["duals"]["fields"] for p in fields["proofs"]["$tuple"] if "duals" in p["fields"])
    outputs = np.linspace(-3, 3, 13)
    duals["outputs"] = encode(outputs)
    assert all(holds for *_, holds in verify.verify(cheap.sealed(payload)).rows)
    outputs[4] -= 0.01
    duals["outputs"] = encode(outputs)
    with pytest.raises(verify.Refused):
        verify.verify(cheap.sealed(payload))


class Rounded(Proof):
    speaks_of = ("privacy",)

    def check(self, stated: Certificate) -> Iterator[Claim]:
        yield Claim("it holds but for rounding", RECOMPUTED, -1e-14, True)
        yield Claim("it fails", RECOMPUTED, -1.0, False)


def test_no_margin_of_what_holds_is_negative() -> None:
    noise = cheap.solved("calibration")
    claims = Certificate(noise.design, noise.mechanism, noise.value, None, (Rounded(),)).claims()
    assert [claim.margin for claim in claims][:2] == [0.0, -1.0]

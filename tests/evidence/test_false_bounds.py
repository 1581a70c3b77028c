"""Bounds, laws and questions that are false in ways which no leaf alone makes: neither checker believes them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from campaign import files, trees

import mechdesign as md
from mechdesign.errors import DesignError
from mechdesign.evidence.proofs import Certificate, ClosedBound
from mechdesign.evidence.serialize import dumps, encode
from mechdesign.noise.lattice import LatticeBound
from mechdesign.noise.scales_problem import AllocationProof
from mechdesign.noise.vector_noise import IndependentNoise


@pytest.mark.parametrize("multiplier", [1e18, 1e25, 1e40])
@pytest.mark.parametrize(
    ("second", "scale", "limits"),
    [(0.0, 1000.0, {}), (1e-15, 1.0, {}), (0.0, 1000.0, {"lower": [0.5, 0.5]})],
)
def test_no_multiplier_proves_more_than_the_optimum(
    multiplier: float, second: float, scale: float, limits: dict[str, Any]
) -> None:
    """Where upper limits take the whole budget, the rounding of y·budget is no bound."""
    lam, scales = [1.0, second], [1.0 + bool(limits), scale]
    privacy = md.PureDP(1.000000000000011 if second else 1.0)
    upper = None if limits else [1.0, scale]
    asked = md.NoiseAllocation("laplace", lam, privacy, upper=upper, **limits)
    law = IndependentNoise("laplace", np.array(scales), sensitivities=asked.sensitivities)
    value = asked.cost_of(law.scales) * (1 + 1e-13)
    table = Certificate(
        asked, law, value, value * (1 - 1e-12), (AllocationProof(np.array([multiplier])),)
    ).checks()
    bound = table[table["claim"].str.contains("costs less")]
    assert len(bound) == 1 and not bound["holds"].any()


def test_shifts_beyond_the_sensitivity_prove_nothing() -> None:
    """One cell more is noise for a larger sensitivity."""
    larger = md.OptimalNoise(md.ApproximateDP(1.0, 0.2), sensitivity=4 / 3).solve(gap=0.05)
    proof = next(proof for proof in larger.proofs if isinstance(proof, LatticeBound))
    cells = proof.cells * 3 // 4
    smaller = md.OptimalNoise(md.ApproximateDP(1.0, 0.2))
    with pytest.raises(DesignError, match="rows"):
        LatticeBound(cells, proof.side, proof.rows, proof.multipliers).proved(smaller)


def test_negative_weights_do_not_raise_the_bound_of_a_covariance() -> None:
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [0.1, 0.1]])
    result = md.CorrelatedGaussian(vectors, md.ApproximateDP(0.5, 1e-6)).solve()
    proofs = (*result.proofs[:1], ClosedBound(((np.array([0.5, 0.5, -0.9]), None),)))
    assert not Certificate(
        result.design, result.mechanism, result.value, 2 * result.lower_bound, proofs
    ).verify()


def test_multipliers_next_to_the_least_double_do_not_raise_a_bound() -> None:
    """5e-324 times a budget of 1.4 is 5e-324."""
    result = md.CountsGaussian(4, 2, md.ZeroConcentratedDP(0.7), most=1e-10).solve()
    proofs = (*result.proofs[:1], ClosedBound(((np.array([0.0, 5e-324]), None),)))
    for by, holds in ((1.0, True), (1.2, False)):
        stated = Certificate(result.design, result.mechanism, result.value, by * result.lower_bound, proofs)
        assert stated.verify() == holds


def claiming_nothing(payload: Any, kept: tuple[str, ...], **fields: Any) -> None:
    """Take the lower bound out, and all proofs but some kinds."""
    payload["fields"] |= {"lower_bound": None, "bound_class": None, **fields}
    payload["fields"]["solver_report"]["fields"]["status"] = "feasible"
    proofs = payload["fields"]["proofs"]
    proofs["$tuple"] = [proof for proof in proofs["$tuple"] if proof["$kind"] in kept]


def test_a_channel_answers_with_the_reports_that_are_asked_for() -> None:
    """A last report that costs nothing."""
    payload = files.payload("metric-channel")
    law = payload["fields"]["mechanism"]["fields"]
    n = law["matrix"]["shape"][0]
    law["weights"] = {"$tuple": [{"$tuple": [0] * n + [1]}] * n}
    law["matrix"].update({"$array": [[0.0] * n + [1.0]] * n, "shape": [n, n + 1]})
    claiming_nothing(payload, ("table-proof",), value=0.0)
    assert not files.alone_accepts(payload) and not files.package_accepts(payload)


def test_searched_outputs_lie_within_the_reach_that_is_asked_for() -> None:
    """Of the middle of the inputs, which need not be 0."""
    result = md.MVU(2, md.PureDP(1.0), (1.0, 3.0), max_abs=3.0).solve()
    payload = json.loads(dumps(result))["payload"]
    far = max(abs(b - 2.0) for b in result.mechanism.bins)
    for reach, holds in ((3.0, True), (far * (1 + 1e-11), True), (far * (1 - 1e-9), False)):
        forged = trees.put(payload, ("fields", "design", "fields", "max_abs"), reach)
        assert [accepts(forged) for accepts in files.ACCEPT.values()] == [holds] * 2, reach


@pytest.mark.parametrize(("parameters", "share"), [([-1, 4], 0.51), ([1, -2], 0.01)])
def test_a_prior_is_a_law_on_the_inputs(parameters: list[int], share: float) -> None:
    """What lies outside them would cost nothing."""
    payload = files.payload("optimal-quantizer")
    payload["fields"]["design"]["fields"]["prior"]["fields"]["law"]["args"] = parameters
    claiming_nothing(payload, ("quantizer-proof",), value=share * payload["fields"]["value"])
    assert not files.alone_accepts(payload) and not files.package_accepts(payload)


def test_a_cap_is_not_priced_in_the_worst_case() -> None:
    """The cap is on the mean over the prior; what weighs the worst inputs is no prior."""
    payload = files.payload("worst-case")
    fields = payload["fields"]
    fields["design"]["fields"]["max_mse"] = 100.0
    [duals] = (p["fields"]["duals"]["fields"] for p in fields["proofs"]["$tuple"] if "duals" in p["fields"])
    assert files.alone_accepts(payload)
    duals["cap_price"] = 1e-9
    assert not files.alone_accepts(payload) and not files.package_accepts(payload)


LAW, QUESTION = ("fields", "mechanism", "fields", "law"), ("fields", "design", "fields")
PRIOR = (*QUESTION, "prior", "fields", "law")
THREE = {"$array": [0.1, 0.1, 0.1], "dtype": "float64", "shape": [3]}
EDITS: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "a third parameter": ("optimal-quantizer", (*PRIOR, "args"), [-1, 2, -1]),
    "a place twice": ("optimal-quantizer", (*PRIOR, "kwds"), {"$items": [["loc", 0.0]]}),
    "true for a scale": ("calibration", (*LAW, "kwds"), {"$items": [["scale", True]]}),
    "losses without end": ("calibration", LAW, {"$law": "gennorm", "args": [40.0], "kwds": {"$items": [["scale", 3.0]]}}),
    "limits of three coordinates": ("noise-allocation", (*QUESTION, "lower"), THREE),
    "weights of three coordinates": ("noise-allocation", (*QUESTION, "weights"), THREE),
    "a coordinate that weighs nothing": ("noise-allocation", (*QUESTION, "weights"), 0.0),
    "half a change": ("optimal-noise", (*QUESTION, "l0"), 0.5),
    "groups of whole numbers called others": ("grouped-allocation", (*QUESTION, "groups", "$tuple", 0, "dtype"), "float64"),
    "rows of privacy by one name": ("table-problem", (*QUESTION, "privacy", "$tuple"), trees.at(files.payload("table-problem"), (*QUESTION, "privacy", "$tuple")) * 2),
    "groups that overlap": ("grouped-allocation", (*QUESTION, "groups"), {"$tuple": [{"$tuple": [0, 0]}, {"$tuple": [1]}]}),
    "groups that leave one out": ("grouped-allocation", (*QUESTION, "groups"), {"$tuple": [{"$tuple": [0]}]}),
    "inputs that are finer": ("metric-grid", (*QUESTION, "inputs"), {"$tuple": [k / 10 - 1 for k in range(21)]}),
    "an input twice": ("metric-grid", (*QUESTION, "inputs"), {"$tuple": [-1.0, -1.0, 0.0, 0.5, 1.0]}),
    "a wide alphabet": ("alphabet", (*QUESTION, "bins", "fields", "max_abs"), 1.0),
    "buffers without end": ("buffered-toeplitz", (*QUESTION, "buffers"), 2_000_000),
    "fewer outputs": ("bin-search", (*QUESTION, "bins", "fields", "m"), 3),
    "two numbers for one law": ("optimal-noise", (*QUESTION, "dimension"), 2),
    "no lower bound of an optimum": ("optimal-quantizer", ("fields", "lower_bound"), None),
    "an empty lower bound": ("optimal-quantizer", ("fields", "lower_bound"), -1e300),
    "a lower bound above the value": ("calibration-normal", ("fields", "lower_bound"), 1e300),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_both_checkers_refuse(edit: str) -> None:
    name, path, value = EDITS[edit]
    payload = trees.put(files.payload(name), path, value)
    assert not files.alone_accepts(payload) and not files.package_accepts(payload)


@pytest.mark.parametrize(
    "name", ["calibration", "rqm", "optm", "optm-search", "bin-search", "noise-allocation"]
)
def test_no_gap_that_is_asked_for_makes_the_best_of_a_class_optimal(name: str) -> None:
    payload = trees.put(files.payload(name), ("fields", "asked_gap"), 1.0)
    for status, accepted in (("best of its class", True), ("optimal", False)):
        payload["fields"]["solver_report"]["fields"]["status"] = status
        assert files.alone_accepts(payload) == files.package_accepts(payload) == accepted


def test_noise_for_a_sample_is_for_one_record_more_or_less() -> None:
    payload = files.payload("calibration-sampled")
    for part in ("design", "mechanism"):
        payload["fields"][part]["fields"]["sensitivity"]["fields"]["neighbours"] = "replace"
    assert not files.alone_accepts(payload) and not files.package_accepts(payload)


@pytest.mark.parametrize(("lower", "upper"), [(0.0, 0.0), (2e-6, 3e-6), (1e-6, 0.9e-6)])
def test_the_enclosure_stated_is_that_of_what_is_consumed(lower: float, upper: float) -> None:
    payload = files.payload("calibration-normal")
    payload["fields"]["proofs"]["$tuple"][0]["fields"]["given"]["fields"] |= {"lower": lower, "upper": upper}
    assert not files.alone_accepts(payload) and not files.package_accepts(payload)


@pytest.mark.parametrize(
    "name",
    ["calibration", "joint-calibration", "plan", "covariance-problem", "correlated-gaussian", "vectors"],
)
def test_a_proof_gives_the_numbers_that_the_theorem_of_its_question_takes(name: str) -> None:
    """Of each kind those of another: an enclosure, further variables, multipliers, a share, none."""
    proofs = files.payload(name)["fields"]["proofs"]["$tuple"]
    interval = files.payload("calibration")["fields"]["proofs"]["$tuple"][0]["fields"]["given"]
    others = None, interval, {"$tuple": []}, 0.5
    for k, proof in enumerate(proofs):
        own = proof["fields"].get("given", 0)
        for other in others if proof["$kind"] in ("law-proof", "closed-bound") else ():
            if type(other) is type(own) and (not isinstance(own, dict) or own.keys() == other.keys()):
                continue
            payload = files.payload(name)
            payload["fields"]["proofs"]["$tuple"][k]["fields"]["given"] = other
            assert not files.alone_accepts(payload) and not files.package_accepts(payload)


def test_an_allocation_is_made_for_the_changes_of_its_question() -> None:
    """Narrower sensitivities, and a bound on changes, in the mechanism alone."""
    for member, value in (("sensitivities", np.array([0.5, 0.5])), ("bounds", md.Sensitivity(linf=0.1))):
        payload = files.payload("noise-allocation")
        payload["fields"]["mechanism"]["fields"][member] = encode(value)
        assert not files.alone_accepts(payload) and not files.package_accepts(payload)

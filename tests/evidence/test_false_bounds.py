"""Multipliers that prove nothing: negative, huge, of shifts beyond the sensitivity; and laws with reports of their own."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any

import cheap
import numpy as np
import pytest

import mechdesign as md
from mechdesign.errors import DesignError
from mechdesign.evidence.proofs import Certificate
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.noise.allocation.question import AllocationProof
from mechdesign.noise.optimal.lattice_dual import LatticeDual
from mechdesign.noise.vector_noise import IndependentNoise
from mechdesign.verifier.reading import Refused
from mechdesign.verifier.verify import verify


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
    proof = AllocationProof(multiplier)
    table = Certificate(asked, law, value, value * (1 - 1e-12), (proof,)).checks()
    bound = table[table["claim"].str.contains("costs less")]
    assert len(bound) == 1 and not bound["holds"].any()


def test_negative_multipliers_are_refused() -> None:
    for multiplier in (-1e6, -1e25):
        with pytest.raises(DesignError, match="multiplier"):
            AllocationProof(multiplier)


def test_shifts_beyond_the_sensitivity_prove_nothing() -> None:
    """One cell more is noise for a larger sensitivity: 0.73 was proved where 0.57 is attained."""
    larger = md.OptimalNoise(md.ApproximateDP(1.0, 0.2), sensitivity=4 / 3).solve(gap=0.05)
    dual = next(proof for proof in larger.proofs if isinstance(proof, LatticeDual))
    assert dual.cells == 4 and np.abs(dual.shifts).max() == 4
    for sign in (1, -1):
        with pytest.raises(DesignError, match="shifts"):
            LatticeDual(3, sign * dual.shifts, dual.psi, dual.totals, dual.mirrored)


def test_negative_weights_do_not_raise_the_bound_of_a_covariance() -> None:
    design = md.CorrelatedGaussian(
        vectors=np.array([[1.0, 0.0], [0.0, 1.0], [0.1, 0.1]]), privacy=md.ApproximateDP(0.5, 1e-6)
    )
    result = design.solve()
    proof = type(result.proofs[0])(np.array([0.5, 0.5, -0.9]))  # type: ignore[call-arg]
    assert result.lower_bound is not None
    stated = Certificate(design, result.mechanism, result.value, 2 * result.lower_bound, (proof,))
    assert not stated.verify()


def test_the_verifier_refuses_a_channel_with_reports_that_are_not_asked_for() -> None:
    payload = copy.deepcopy(json.loads(dumps(cheap.solved("metric-channel")))["payload"])
    fields = payload["fields"]
    law = fields["mechanism"]["fields"]
    n = law["matrix"]["shape"][0]
    law["weights"] = {"$tuple": [{"$tuple": [0] * n + [1]}] * n}  # a last report that costs nothing
    law["matrix"].update({"$array": [[0.0] * n + [1.0]] * n, "shape": [n, n + 1]})
    fields.update(value=0.0, lower_bound=None)
    fields["solver_report"]["fields"]["status"] = "feasible"
    fields["proofs"]["$tuple"] = [p for p in fields["proofs"]["$tuple"] if p["$kind"] == "channel-proof"]
    assert not all(holds for *_, holds in verify(cheap.sealed(payload)).rows)


@pytest.mark.parametrize("name", ["weights", "lower", "sensitivities"])
def test_the_verifier_refuses_allocations_of_other_lengths_or_signs(name: str) -> None:
    payload = copy.deepcopy(json.loads(dumps(cheap.solved("noise-allocation")))["payload"])
    design, law = (payload["fields"][part]["fields"] for part in ("design", "mechanism"))
    values = [1.0, -2.0] if name == "sensitivities" else [0.1]
    design[name] = {"$array": values, "dtype": "float64", "shape": [len(values)]}
    law["sensitivities"], design["groups"] = design["sensitivities"], [[0], [1]]
    with contextlib.suppress(Refused):
        assert not all(holds for *_, holds in verify(cheap.sealed(payload)).rows)


def test_the_verifier_refuses_a_cap_that_is_priced_in_the_worst_case() -> None:
    """The cap is on the mean over the prior; what weighs the worst inputs is no prior."""
    design = md.OptimalQuantizer(cheap.BINS, cheap.PURE, cheap.UNIFORM, objective="worst")
    payload = json.loads(dumps(design.solve(gap=1e-3)))["payload"]
    fields = payload["fields"]
    fields["design"]["fields"]["max_mse"] = 100.0
    dual = next(p for p in fields["proofs"]["$tuple"] if p["$kind"] == "quantizer-dual-bound")
    assert all(holds for *_, holds in verify(cheap.sealed(payload)).rows)
    dual["fields"]["duals"]["fields"]["cap_price"] = 1e-9
    with pytest.raises(Refused, match="cap"):
        verify(cheap.sealed(payload))


def test_multipliers_next_to_the_least_double_do_not_raise_a_bound() -> None:
    """5e-324 times a budget of 1.4 is 5e-324: the bound was 1.4 times too large."""
    design = md.CountsGaussian(4, 2, md.ZeroConcentratedDP(0.7), most=1e-10)
    result = design.solve()
    proof = type(result.proofs[0])(np.array([0.0, 5e-324]))  # type: ignore[call-arg]
    assert result.lower_bound is not None
    for by, holds in ((1.0, True), (1.2, False)):
        stated = Certificate(design, result.mechanism, result.value, by * result.lower_bound, (proof,))
        assert stated.verify() == holds


@pytest.mark.parametrize(("parameters", "share"), [([-1, 4], 0.51), ([1, -2], 0.01)])
def test_the_verifier_refuses_a_prior_that_is_none_on_the_inputs(parameters: list[int], share: float) -> None:
    """What lies outside the inputs would cost nothing."""
    payload = copy.deepcopy(json.loads(dumps(cheap.solved("optimal-quantizer")))["payload"])
    fields = payload["fields"]
    fields["design"]["fields"]["prior"]["fields"]["law"]["args"] = parameters
    fields.update(value=share * fields["value"], lower_bound=None, bound_class=None)
    fields["solver_report"]["fields"]["status"] = "feasible"
    kinds = "quantizer-law-proof", "quantizer-value-proof"
    fields["proofs"]["$tuple"] = [p for p in fields["proofs"]["$tuple"] if p["$kind"] in kinds]
    failed = [claim for claim, _, holds in verify(cheap.sealed(payload)).rows if not holds]
    assert failed == ["the prior is a law on the inputs"]


def test_a_bound_that_no_proof_speaks_of_is_refused() -> None:
    """Was: the null of a search over types, edited to any number below the value, was printed as a bound, "optimal" beside it."""
    payload = json.loads(dumps(cheap.solved("mixed-allocation")))["payload"]
    fields = payload["fields"]
    assert fields["lower_bound"] is None
    assert all(holds for *_, holds in verify(cheap.sealed(payload)).rows)
    fields["lower_bound"] = fields["value"] * (1 - 1e-9)
    fields["solver_report"]["fields"]["status"] = "optimal"
    with pytest.raises(Refused, match="lower bound"):
        verify(cheap.sealed(payload))
    table = loads(cheap.sealed(payload)).checks()
    failed = table["claim"][~table["holds"].astype(bool)]
    assert len(failed) == 3 and failed.iloc[0].startswith("no independent Laplace and Gaussian noise costs")

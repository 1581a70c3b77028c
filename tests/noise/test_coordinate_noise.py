"""Noise of one family with parameters of its own on each coordinate: private by independent quadrature, checked twice, no dearer than one law for all."""

from __future__ import annotations

import json
import math

import cheap
import numpy as np
import pytest

import mechdesign as md
from mechdesign.errors import MechdesignError
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.verifier.reading import Refused
from mechdesign.verifier.verify import verify

LAM = np.array([1.0, 0.0, 0.25])
ASKED = {
    "flipped_huber": md.ApproximateDP(1.0, 1e-3),
    "gennorm": md.ApproximateDP(1.0, 1e-3),
    "logistic": md.TradeOff([(0, 0.3), (1, 1e-3)]),
    "staircase": md.PureDP(1.0),
}


@pytest.fixture(
    scope="module", params=[n if n == "staircase" else pytest.param(n, marks=pytest.mark.slow) for n in ASKED]
)
def solved(request):
    return md.NoiseAllocation(request.param, LAM, ASKED[request.param], weights=[1.0, 1.0, 2.0]).solve()


def quadrature(law, change, epsilon):
    """δ(ε) of a product of densities for one change, by sums over a grid."""
    masses = []
    for k, size, moved in zip(law.which, law.sensitivities, change):
        if size:
            noise = law.units[k].law
            far = min(float(noise.support()[1]), 45 * noise.std()) + 1
            ends = np.linspace(-far, far, 3001)
            masses.append([np.diff(noise.cdf(ends + shift)) for shift in (0.0, moved / size)])
    (p, q), *rest = masses
    for other_p, other_q in rest:
        p, q = np.outer(p, other_p).ravel(), np.outer(q, other_q).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def test_it_is_private_and_hardly_more(solved):
    """The worst change is all of the sensitivities; of 5% more the requirement fails."""
    points = getattr(solved.design.privacy, "points", None) or [
        (solved.design.privacy.epsilon, getattr(solved.design.privacy, "delta", 0.0))
    ]

    def excess(change):
        return max(quadrature(solved.mechanism, change, e) - d for e, d in points)

    assert excess(LAM) <= 1e-6 and excess(1.05 * LAM) > 0
    assert excess(LAM * [1, 0, 0.5]) <= 1e-6 and excess(-LAM) <= 1e-6


def test_both_checks_prove_it_and_it_costs_no_more_than_one_law_for_all(solved):
    assert solved.certificate.verify() and all(holds for *_, holds in verify(dumps(solved)).rows)
    one = md.calibrate(solved.design.noise, privacy=solved.design.privacy, sensitivity=1.0, dimension=2)
    assert solved.value <= one.value * (LAM**2 @ [1, 1, 2]) * (1 + 1e-3)
    assert solved.value == pytest.approx(solved.mechanism.variance @ [1, 1, 2])
    assert loads(dumps(solved)).mechanism.kinds == (solved.design.noise, "none", solved.design.noise)


def test_a_release_is_of_the_same_law(solved):
    answers = np.array([3.0, 1.5, -2.0])
    drawn = solved.mechanism.release(np.tile(answers, (20_000, 1))) - answers
    assert (drawn[:, 1] == 0).all() and solved.mechanism.lattice_cost < 1e-5
    expected = solved.mechanism.variance[[0, 2]]
    assert drawn[:, [0, 2]].var(axis=0) == pytest.approx(expected, rel=0.1)
    assert np.abs(drawn[:, [0, 2]].mean(axis=0)) == pytest.approx(
        0, abs=5 * math.sqrt(expected.max() / 20_000)
    )


def test_the_frame_states_the_parameters_of_the_paper():
    """α_i and γ_i of flipped Huber noise are in the unit of their coordinate."""
    design = md.NoiseAllocation("flipped_huber", [1.0, 3.0], md.ApproximateDP(1.0, 1e-3))
    table = design.frame(design.solve(certify=False, time_limit=1e-3))
    assert table["alpha"].to_numpy() == pytest.approx((table["b"] * table["gamma"]).to_numpy())
    assert table["gamma"].to_numpy() == pytest.approx(table["scale"].to_numpy())


@pytest.mark.slow
def test_generalised_normal_noise_beats_both_types_and_their_mix():
    lam, privacy = np.arange(1, 9) / 8, md.ApproximateDP(3.0, 1e-6)
    found = md.NoiseAllocation("gennorm", lam, privacy).solve().value
    assert found <= 0.985 * md.NoiseAllocation("mixed", lam, privacy).solve().value


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("flipped_huber", [1.0], md.PureDP(1.0)), "delta > 0"),
        (("staircase", [1.0], md.ZeroConcentratedDP(1.0)), "delta > 0"),
        (("gennorm", [1.0], md.ApproximateDP(1.0, 1e-6), 3), "loss"),
        (("logistic", [1.0], md.PureDP(1.0), 2, None, 0.5), "lower"),
        (("gennorm", md.Sensitivity(each=[1.0, 2.0], l0=1), md.ApproximateDP(1.0, 1e-6)), "noise"),
    ],
)
def test_what_it_does_not_take_is_refused(arguments, said):
    with pytest.raises(MechdesignError, match=said):
        md.NoiseAllocation(*arguments)


def test_one_coordinate_is_what_calibrate_answers():
    """In closed form, where a grid says twenty times the δ."""
    privacy = md.ApproximateDP(52.8, 1.3e-7)
    found = md.NoiseAllocation("osgt", [0.0, 2.0], privacy, loss=1).solve(time_limit=1e-3)
    one = md.noise.Calibration("osgt", privacy, 1.0, loss="absolute").solve(time_limit=1e-3)
    assert found.value == pytest.approx(2 * one.value) and found.certificate.verify()


def smaller(law):
    """The law at less noise."""
    law["kwds"]["$items"][0][1] *= 0.99
    return law


DOCTORED = {
    "value": (("value",), lambda v: v * 0.999),
    "scale": (("mechanism", "fields", "units", "$tuple", 0, "fields", "law"), smaller),
    "unit": (("mechanism", "fields", "units", "$tuple", 0, "fields", "sensitivity"), lambda v: 0.9),
    "which": (("mechanism", "fields", "which", "$array"), lambda v: [v[2], v[1], v[0]]),
    "none": (("mechanism", "fields", "which", "$array", 0), lambda v: -1),
    "sensitivities": (("design", "fields", "sensitivities", "$array", 0), lambda v: 1.1),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCTORED)
def test_a_doctored_file_is_refused(solved, name):
    payload = json.loads(dumps(solved))["payload"]
    (*path, last), change = DOCTORED[name]
    place = payload["fields"]
    for step in path:
        place = place[step]
    place[last] = change(place[last])
    text = cheap.sealed(payload)
    try:
        theirs = all(holds for *_, holds in verify(text).rows)
    except Refused:
        theirs = False
    try:
        ours = loads(text).certificate.verify()
    except MechdesignError:
        ours = False
    assert not theirs and not ours

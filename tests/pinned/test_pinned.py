"""No call answers worse than on the commit that `recorded.json` names: value, bound, status, ε and δ, what is released."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import mechdesign as md
from tests.pinned import answers, calls, laws
from tests.pinned.record import PATH

RECORDED: dict[str, Any] = json.loads(PATH.read_text())
FREE = "optimal-noise-many, free density (newton, composed): 5 acts, 0, 0, 0, goes; .26% of value at most"
PLANES = "optimal-quantizer, cutting planes halfway to the best floors too: 29 act, 0, 0, 0, goes"
SAMPLES = "optimal-quantizer, Newton on samples (else cutting planes): 11 acts, 0, 0, 0, goes"
SYMMETRY = "optimal-quantizer, symmetry of outputs and prior: 26 acts, 0, 0, 0, goes"
WHOLE = (
    "no deletion: fault 21, whole numbers are answered by discrete Gaussian noise, no longer by Laplace noise"
)
BOUNDS = "no deletion: fault 26, `of_sensitivity` keeps all bounds given together with each="
STAIRS = (
    "the bound is of all staircases of a norm, not of exponential densities alone; the value falls as far"
)
ALLOWED: dict[str, tuple[dict[str, float], str]] = {
    "OptimalNoise.dimension/1": (
        {"value": 49.83584974760468, "delta": 6.0188157463e-07},
        f"{FREE}; was 49.799072813",
    ),
    "OptimalNoise.changed": (
        {"value": 49.83584974760468, "delta": 6.0188157463e-07},
        f"{FREE}; was 49.799072813",
    ),
    "compare/2": ({"value": 53.4914150785}, f"{WHOLE}; was 17.999712032"),
    "OPTM/2": ({"lower_bound": 0.5466662720}, f"{SYMMETRY}; was 0.5466749035"),
    "OPTMSearch/1": ({"lower_bound": 1.6888427006}, f"{SYMMETRY}; was 1.6888623267"),
    "OPTMSearch/2": ({"lower_bound": 0.5439158624}, f"{SYMMETRY}; was 0.5439340963"),
    "epsilon_bound/3": ({"value": 0.3191284092}, "grids follow a round's own loss; was 0.3190876713"),
    "KNorm/1": ({"lower_bound": 13.9995691151}, f"{STAIRS}; was 14.0"),
    "KNorm/2": ({"lower_bound": 0.9032748687}, f"{STAIRS}; was 0.9032781269"),
    "MVU/1": ({"lower_bound": 1.9346269502}, f"{SYMMETRY}; was 1.9346296752"),
    "MVU/3": ({"lower_bound": 0.1779625770}, f"{SYMMETRY}; was 0.1779761853"),
    "MetricQuantizer/2": (
        {"delta": 1e-5},
        "no deletion: its law keeps a margin of 1e-12 of δ, not of what a solver leaves; was 9.99981728e-06",
    ),
    "MetricQuantizer.interval": (
        {"lower_bound": 0.6699400409369932},
        "the bound over a continuum is rows of a table over cells, without a proof of its own; was 0.6700097219",
    ),
    "BiasedSelection/1": ({"lower_bound": 0.4261004131}, f"{SYMMETRY}, {PLANES}; was 0.4261127377"),
    "BinSearch/3": (
        {"value": 0.2286364626383653},
        f"{SAMPLES}; was 0.2286322554; a descent over kinks, which ends elsewhere on other processors",
    ),
    "delta_interval/2": (
        {"value": 0.0068377037, "lower_bound": 0.0068089063},
        "no deletion: an interval of samples ends where it is as narrow as asked, 1% by default; was .0068200268",
    ),
    "calibrate.gaussian.sampled": (
        {"lower_bound": 5.564960752931997},
        "no deletion: the grid of samples follows their own loss, value and bound fall by 1.3e-4; was 5.565661801",
    ),
    "calibrate.logistic/3": (
        {"lower_bound": 16.4738111983},
        "no deletion: searched on the verifier's grid, value and bound fall by 4.7e-6; was 16.4738887593",
    ),
    "calibrate.laplace.changed": (
        {"delta": 5.167335062e-12},
        "no deletion: composed scales leave room for the grid of the verifier, 1e-6 of the value; was 0, of ε = 1 exactly",
    ),
    "calibrate.discrete_gaussian/3": (
        {"delta": 9.534542570e-07},
        "no deletion: its grid holds the lattice of losses, the noise is 1.8e-6 smaller; was 9.534375730e-07",
    ),
    "NoiseAllocation.bounds/2": (
        {"value": 539.8993294673, "lower_bound": 539.8993294671},
        f"{BOUNDS}; was 1003.9450341333",
    ),
    "NoiseAllocation.bounds/3": (
        {"value": 17.3966578604, "lower_bound": 17.3966578603},
        f"{BOUNDS}; was 51.4550579761",
    ),
    "NoiseAllocation.l1": (
        {"value": 89.7789036009, "lower_bound": 89.7789035842},
        f"{BOUNDS}; was 499.4858941970",
    ),
    "NoiseAllocation.l2": (
        {"value": 506.7403300958, "lower_bound": 506.7403300947},
        f"{BOUNDS}; was 874.5476741784",
    ),
    "NoiseAllocation.several": (
        {"value": 151.4679019543, "lower_bound": 151.4679018963},
        f"{BOUNDS}, by prices of the bounds alone; was 499.4858941970, and 149.0486241546 with changes listed",
    ),
    "VectorQuantizer/3": (
        {"value": 187.8891167219},
        "no deletion: fault 16, what is proved of a fast rotation, r² + 1; was 185.8891167219, claimed",
    ),
    "compare/3": ({"lower_bound": 0.6672936353}, f"{SYMMETRY}; was 0.6672949853"),
}
"""What calls answer since a deletion that costs them something, with the line of the ablation table that names it.

The bounds are of searches for outputs that stop at a relative gap of 1e-4: where in it they stop is what has changed.
"""
CLOSE = 1e-6  # of values and bounds, relative
SAME_LAW = 1e-9  # of ε and δ, relative
NEARER = 1e-6  # of the budget: how much nearer to it a law that keeps it may come, which is what searches leave open
NEARER_OF_MANY = 1e-3  # where an LP's vertex is composed over coordinates: δ moves by 2e-4 of it with the processor's kernels
ORACLE = 1e-12  # what the oracles themselves compute in doubles
ALARM = 1e-6  # a false alarm in a million draws of 20,000

COMPOSED = ("OptimalNoise.dimension", "OptimalNoise.changed")
# "best of its class" was "optimal", or "feasible" where the class is one family
RANK = {
    "uncertified": 0,
    "limit": 1,
    "feasible": 2,
    "gap not reached": 2,
    "best of its class": 3,
    "optimal": 3,
}
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]  # together far more than two seconds


def test_every_call_is_recorded() -> None:
    assert list(RECORDED["calls"]) == answers.NAMES and list(RECORDED["facts"]) == list(answers.FACTS)
    assert set(ALLOWED) <= set(answers.NAMES)


@pytest.mark.parametrize("name", answers.NAMES)
def test_no_call_is_worse(name: str) -> None:
    new = answers.record(name)
    old = RECORDED["calls"][name] | ALLOWED.get(name, ({}, ""))[0]
    assert new["value"] <= old["value"] + CLOSE * abs(old["value"])
    if old.get("lower_bound") is not None:
        assert new["lower_bound"] >= old["lower_bound"] - CLOSE * abs(old["lower_bound"])
    assert "status" not in old or RANK[new["status"]] >= RANK[old["status"]]
    for part in ("epsilon", "delta"):
        if not math.isnan(old.get(part, math.nan)):
            most = getattr(answers.budget(name), part, 0.0)
            nearer = NEARER_OF_MANY if name.startswith(COMPOSED) else NEARER
            assert new[part] <= max(old[part] * (1 + SAME_LAW), min(old[part] + nearer * most, most))


@pytest.mark.parametrize("name", [*calls.DESIGNS, *calls.MECHANISMS])
def test_no_law_breaks_its_budget(name: str) -> None:
    notion, new = answers.budget(name), answers.record(name)
    if isinstance(notion, md.ZeroConcentratedDP):
        assert new["epsilon"] <= notion.rho * (1 + ORACLE)
    elif notion is not None:
        assert new["epsilon"] <= notion.epsilon * (1 + ORACLE)
        assert math.isnan(new["delta"]) or new["delta"] <= getattr(notion, "delta", 0.0) * (1 + ORACLE)
    if name in calls.DESIGNS:
        assert answers.faults(name) == []


@pytest.mark.parametrize("name", [*calls.DESIGNS, *calls.MECHANISMS])
def test_releases_follow_the_law(name: str) -> None:
    found = laws.released(answers.mechanism(name))
    assert found is None or found > ALARM


@pytest.mark.parametrize("name", answers.FACTS)
def test_facts_stay(name: str) -> None:
    assert json.loads(json.dumps(answers.FACTS[name]())) == RECORDED["facts"][name]

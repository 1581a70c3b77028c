"""Files that somebody edited and sealed anew: none is read, or none of its claims is believed."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import cheap
import numpy as np
import pytest
from campaign import bounds_oracles, later_draws, mutations, noise_oracles, trees
from scipy import stats

import mechdesign as md
from mechdesign.evidence.serialize import dumps, encode, loads
from mechdesign.files import KINDS

Payload = dict[str, Any]


def nodes(node: Any, key: str) -> Iterator[Payload]:
    """Every object below `node` that has the key."""
    if isinstance(node, dict):
        if key in node:
            yield node
        for child in node.values():
            yield from nodes(child, key)
    elif isinstance(node, list):
        for child in node:
            yield from nodes(child, key)


def scaled(node: Any, *keys: str, by: float = 1.5) -> bool:
    """Multiply the first number below `node` that is called so."""
    for key in keys:
        for owner in nodes(node, key):
            if type(owner[key]) in (int, float) and owner[key]:
                owner[key] *= by
                return True
            if isinstance(owner[key], dict) and "$fraction" in owner[key]:
                above, below = map(int, owner[key]["$fraction"].split("/"))
                numerator, denominator = float(by).as_integer_ratio()
                owner[key]["$fraction"] = f"{above * numerator}/{below * denominator}"
                return above != 0
            if isinstance(owner[key], dict) and "$tuple" in owner[key]:
                values = owner[key]["$tuple"]
                if not all(type(v) in (int, float) for v in values):
                    continue
                owner[key]["$tuple"] = [v * by for v in values]
                return True
            if isinstance(owner[key], dict) and "$array" in owner[key]:
                values = np.array(owner[key]["$array"]) * by
                owner[key]["$array"] = values.tolist()
                return True
    return False


def value(p: Payload, other: Payload) -> bool:
    return scaled(p, "value", by=0.9)


def value_and_bound(p: Payload, other: Payload) -> bool:
    return p["lower_bound"] is not None and scaled(p, "value", by=0.5) and scaled(p, "lower_bound", by=0.5)


def bound_raised(p: Payload, other: Payload) -> bool:
    by = max(1 + 1e-6, (1 + p["value"] / p["lower_bound"]) / 2) if p["lower_bound"] else 1.0
    return scaled(p, "lower_bound", by=by)


def bound_hardly_raised(p: Payload, other: Payload) -> bool:
    return scaled(p, "lower_bound", by=1 + 1e-6)


def design_epsilon(p: Payload, other: Payload) -> bool:
    return scaled(p["design"], "epsilon", "alpha", by=0.5)


def certificate_epsilon(p: Payload, other: Payload) -> bool:
    return scaled({"proofs": p["proofs"]}, "epsilon", "alpha", by=2.0)


def prior(p: Payload, other: Payload) -> bool:
    design = p["design"]["fields"]
    if "prior" not in design or design.get("objective") == "worst":  # the worst case has no prior
        return False
    weights = np.arange(1.0, 7.0) / 21
    design["prior"] = encode(weights if "space" in design else md.Prior.of(stats.triang(0.5, -1, 2)))
    return True


def dimension(p: Payload, other: Payload) -> bool:
    return scaled(p["mechanism"], "dimension", by=2) or scaled(p["design"], "dimension", by=2)


def delta_everywhere(p: Payload, other: Payload) -> bool:
    owners = [owner for owner in nodes(p, "delta") if type(owner["delta"]) is float and owner["delta"]]
    for owner in owners:
        owner["delta"] /= 2
    return bool(owners)


def bias_allowed(p: Payload, other: Payload) -> bool:
    for owner in nodes(p["mechanism"], "beta"):
        owner["beta"] = 0.9 * owner["beta"]
        return True
    return False


_OTHER_LOSS = {
    "absolute": "squared",
    "squared": "absolute",
    "metric": "squared",
    "total": "largest",
    "largest": "total",
}


def loss(p: Payload, other: Payload) -> bool:
    owner = p["design"]["fields"]
    if isinstance(owner.get("loss"), dict) and "$kind" in owner["loss"]:
        owner = owner["loss"]["fields"]
        owner["absolute"], owner["squared"] = owner["squared"], owner["absolute"]
        return True
    if isinstance(owner.get("loss"), str):
        owner["loss"] = _OTHER_LOSS[owner["loss"]]
        return True
    return "loss" in owner and isinstance(owner["loss"], dict) and scaled(owner["loss"], "absolute", by=1.01)


def mechanism(p: Payload, other: Payload) -> bool:
    p["mechanism"] = other["mechanism"]
    return True


def certificate(p: Payload, other: Payload) -> bool:
    p["proofs"] = other["proofs"]
    return True


def mechanism_and_certificate(p: Payload, other: Payload) -> bool:
    return mechanism(p, other) and certificate(p, other)


def design(p: Payload, other: Payload) -> bool:
    p["design"] = other["design"]
    return True


def no_certificate(p: Payload, other: Payload) -> bool:
    p["proofs"] = {"$tuple": []}
    return True


def table_shown(p: Payload, other: Payload) -> bool:
    return scaled(p["mechanism"], "starts", "matrix", "scales", "scale", "width", "covariance", by=1 + 1e-6)


def law(p: Payload, other: Payload) -> bool:
    for owner in nodes(p["mechanism"], "$kind"):
        if owner["$kind"] in ("selection-law", "block-fill-law", "rational-table"):
            owner["fields"]["bins"]["$tuple"][0] = {"$fraction": "-999/100"}
            return True
        if owner["$kind"] in ("cell-noise", "integer-noise"):  # all weights doubled are the same law
            owner["fields"]["weights"]["$tuple"][0] *= 2
            return True
    return scaled(p["mechanism"], "weights", "decay", "scales", "epsilon", by=2)


def sensitivity(p: Payload, other: Payload) -> bool:
    return scaled(p["design"], "sensitivity", "sensitivities", "vectors", "bins", "points", by=2.0)


DOCTORINGS: list[Callable[[Payload, Payload], bool]] = [
    value, value_and_bound, bound_raised, bound_hardly_raised, design_epsilon, certificate_epsilon, prior, loss, mechanism, certificate, mechanism_and_certificate, design, no_certificate,
    table_shown, law, sensitivity, dimension, delta_everywhere, bias_allowed,
]  # fmt: skip

P = md.PureDP(1.5)
BINS = [-3.0, -0.5, 0.6, 3.0]
LINE = md.MetricSpace.line([0.0, 1.0, 3.0])
COUNTS = stats.rv_histogram(([1.0, 3.0, 2.0], [-1.0, -0.2, 0.3, 1.0]), density=False)
# Further designs of the kinds that the stand-alone verifier covers: every kind of prior, objective and constraint.
MORE: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "beta": (lambda: md.OptimalQuantizer(BINS, P, stats.beta(2, 3.5, -1, 2), {"absolute": 1, "squared": 0.3}), {}),
    "clipped": (lambda: md.OptimalQuantizer(BINS, P, md.clipped(stats.norm(0.3, 0.4), -1, 1)), {}),
    "truncated": (lambda: md.OptimalQuantizer(BINS, P, md.truncated(stats.norm(0, 0.4), -1, 1), "squared"), {}),
    "clipped-uniform": (lambda: md.OptimalQuantizer(BINS, P, md.clipped(stats.uniform(-1.5, 2.1), -1, 1)), {}),
    "histogram": (lambda: md.OptimalQuantizer(BINS, P, COUNTS), {}),
    "truncated-histogram": (lambda: md.OptimalQuantizer(BINS, P, md.truncated(COUNTS, -0.5, 0.7)), {}),
    "triangle": (lambda: md.OptimalQuantizer(BINS, P, stats.triang(0.3, -1, 2)), {}),
    "samples": (lambda: md.OptimalQuantizer(BINS, P, [-1, -0.3, 0.2, 0.2, 0.9, 1.0], input_range=(-1, 1)), {}),
    "worst-case": (lambda: md.OptimalQuantizer(BINS, P, cheap.UNIFORM, "squared", objective="worst"), {}),
    "cap": (lambda: md.OptimalQuantizer(np.linspace(-2.5, 2.5, 8), P, cheap.UNIFORM, max_mse=2.0), {}),
    "bias": (lambda: md.OptimalQuantizer(BINS, P, cheap.UNIFORM, max_bias=0.1), {}),
    "far": (
        lambda: md.OptimalQuantizer([1.7e9 - 3, 1.7e9, 1.7e9 + 3], P, stats.uniform(1.7e9 - 1, 2)),
        {},
    ),
    "rqm-searched": (
        lambda: md.RQM(4, md.PureDP(1.5), cheap.UNIFORM, "squared", grid=md.Grid(delta=[1.4, 1.6], q=[0.4, 0.5])),
        {"zoom": 0},
    ),
    "rqm-clipped": (
        lambda: md.RQM(3, md.PureDP(1.5), md.clipped(stats.norm(0.3, 0.4), -1, 1), grid=md.Grid(delta=[1.4, 1.6], q=[0.4])),
        {"zoom": 0},
    ),
    "wide-budget": (lambda: md.OptimalQuantizer([-1.6, -0.4, 0.4, 1.6], md.PureDP(10.0), cheap.UNIFORM), {}),
    "optm-beta": (lambda: md.OPTM(np.linspace(-3, 3, 6), P, stats.beta(2, 2, -1, 2)), {}),
    "metric-grid": (
        lambda: md.MetricQuantizer(
            BINS, md.MetricDP(2.0, "squared"), cheap.UNIFORM, inputs=np.linspace(-1, 1, 5)
        ),
        {},
    ),
    "pure-noise": (lambda: md.OptimalNoise(privacy=md.PureDP(1.0), loss="squared"), {"gap": 0.05}),
    "steep-noise": (lambda: md.OptimalNoise(privacy=md.ApproximateDP(8.0, 0.05)), {"gap": 0.1}),
    "steep-pure-noise": (lambda: md.OptimalNoise(privacy=md.PureDP(9.0), loss="squared"), {"gap": 0.1}),
    "noise-of-points": (lambda: md.OptimalNoise(md.TradeOff([(0, 0.3), (1, 1e-3)])), {"gap": 0.1}),
    "unbiased-channel": (lambda: md.MetricChannel(LINE, alpha=0.7, unbiased=([0, 1, 3.0], [-4, 1, 7.0])), {}),
    "squared-channel": (lambda: md.MetricChannel(LINE, alpha=0.7, loss="squared", prior=[0.5, 0.2, 0.3]), {}),
    "gaussian-allocation": (
        lambda: md.NoiseAllocation(
            noise="gaussian", sensitivities=[1, 2, 3.0], privacy=md.ApproximateDP(1.0, 1e-6)
        ),
        {},
    ),
    "limited-allocation": (
        lambda: md.NoiseAllocation(
            noise="laplace", sensitivities=[1, 2, 0, 3.0], privacy=cheap.PURE, loss=1, lower=3.0, weights=[1, 2, 1, 3.0]
        ),
        {},
    ),
    "few-allocation": (
        lambda: md.NoiseAllocation("gaussian", md.Sensitivity(each=[1, 2, 0, 3, 0.5], l0=2), md.ApproximateDP(1.0, 1e-6)),
        {},
    ),
    "several-allocation": (
        lambda: md.NoiseAllocation(
            "laplace", md.Sensitivity(each=[1, 2, 0, 3.0], l1=4, l2=3), cheap.PURE, loss=1, weights=[1, 2, 1, 3.0]
        ),
        {},
    ),
    "filled-allocation": (
        lambda: md.NoiseAllocation(
            "gaussian", md.Sensitivity(each=[1, 1, 1, 1, 1.0], l0=2, l1=1.5), md.ApproximateDP(1.0, 1e-6)
        ),
        {},
    ),
    "listed-allocation": (
        lambda: md.NoiseAllocation("laplace", md.Sensitivity(each=[1, 2, 0, 3.0, 1.5], l0=2, l2=3), cheap.PURE),
        {},
    ),
    "matrix-largest": (
        lambda: md.MatrixMechanism(
            [[1, 1, 0], [0, 1, 1.0]], md.ApproximateDP(0.5, 1e-6), l0=2, signed=False, loss="largest"
        ),
        {},
    ),
    "mixed-gaussian": (
        lambda: md.NoiseAllocation("mixed", [1.0, 0.5, 0.5, 0.2, 0.2], md.ApproximateDP(1.0, 1e-3), loss=1),
        {},
    ),
    "knorm-several": (
        lambda: md.noise.KNorm(5, P, md.Sensitivity(linf=1, l1=2.5, l2=1.5), loss="absolute", rounds=2),
        {},
    ),
    "knorm-hull": (
        lambda: md.noise.KNorm(5, md.PureDP(6.0), md.Sensitivity(each=[1, 2, 0, 3, 1.5], l0=2)),
        {},
    ),
    "knorm-rising": (lambda: md.noise.KNorm(3, md.PureDP(6.0), md.Sensitivity(linf=1, signed=False)), {}),
    "knorm-listed": (lambda: md.noise.KNorm(3, P, [[1, 1, 0], [0.7, 0, 0], [0, 0.3, 2], [0, 1, -1]]), {}),
    "vectors-sphere": (lambda: md.VectorQuantizer(20, P, bits=2, inputs="sphere", radius=2.0), {}),
    "vectors-sampled": (lambda: md.VectorQuantizer(4, md.PureDP(6.0), inputs="box"), {}),
    "calibration-several": (
        lambda: md.Calibration(
            "laplace", md.ApproximateDP(1.0, 1e-3), md.Sensitivity(each=[1, 2, 0.5], l1=2), dimension=3
        ),
        {},
    ),
}  # fmt: skip

# The same designs at another budget: what is put in the place of the true parts.
OTHERS: dict[str, Callable[[], Any]] = {
    "noise-of-points": lambda: md.OptimalNoise(md.TradeOff([(0, 0.6), (2, 1e-3)])),
    "metric-channel": lambda: md.MetricChannel(md.MetricSpace.grid(2, 3, names=list("abcdef")), alpha=1.4),
    "unbiased-channel": lambda: md.MetricChannel(LINE, alpha=1.4, unbiased=([0, 1, 3.0], [-4, 1, 7.0])),
    "squared-channel": lambda: md.MetricChannel(LINE, alpha=1.4, loss="squared"),
}


@functools.cache
def solved(name: str) -> md.Result:
    """The result of a cheap design or of one of those above."""
    if name in cheap.DESIGNS:
        return cheap.solved(name)
    design, options = MORE[name]
    return design().solve(**options)


@pytest.mark.parametrize("name", [*cheap.DESIGNS, *MORE])
def test_the_summary_says_how_the_bound_is_checked(name: str) -> None:
    """Seen before: "(proved)" for bounds that the certificate only recomputes."""
    result = solved(name)
    table = result.checks()
    bounds = table[table["claim"].str.contains("costs less than")]
    assert len(bounds) == (result.lower_bound is not None)
    for how in bounds["how"]:
        assert f"({how}) of {result.among}, gap" in str(result)
    result = dataclasses.replace(result, proofs=())
    assert result.lower_bound is None or "(claimed) of " in result.summary()


@functools.cache
def payloads(name: str) -> tuple[str, str]:
    """The result of a cheap design, and of the same at twice the budget."""
    made, options = {**cheap.DESIGNS, **MORE}[name]
    if name in OTHERS:
        second = OTHERS[name]()
    else:
        notion = made().privacy
        second = dataclasses.replace(made(), privacy=dataclasses.replace(notion, epsilon=2 * notion.epsilon))
    return dumps(solved(name)), dumps(second.solve(**options))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*cheap.DESIGNS, *MORE])
def test_doctored_files_are_refused(name: str) -> None:
    """Value and bound changed together, the prior changed, a lower bound raised, another certificate, … passed the audit."""
    texts = payloads(name)
    original = mutations.said(loads(texts[0], kinds=KINDS))
    accepted, tried = [], 0
    for doctoring in DOCTORINGS:
        payload, other = (json.loads(text)["payload"] for text in texts)
        before = copy.deepcopy(payload)
        done = doctoring(payload["fields"], other["fields"])
        if not done or payload == before:
            continue
        tried += 1
        found = mutations.outcome(cheap.sealed(payload), original)
        # a law beside no lower bound answers the question of a larger budget, too
        true = found == "same" and doctoring is design and before["fields"]["lower_bound"] is None
        if found not in ("refused", "failed") and not true:
            accepted.append((doctoring.__name__, found))
    assert tried >= 8
    assert accepted == []


# Designs whose every number is forged, one at a time; of a list the first.
FORGED = (
    "matrix-mechanism", "mixed-allocation", "knorm", "knorm-hull", "knorm-rising", "knorm-listed", "vectors", "vectors-box", "counts-gaussian",
    "calibration-several", "few-allocation", "several-allocation", "filled-allocation", "listed-allocation",
)  # fmt: skip


def forgeries(number: float) -> Iterator[Any]:
    """A hair more and less, twice, the other sign, what is no finite number, a text."""
    if type(number) is int:
        yield from (number + 1, number - 1, 2 * number + 3, -number - 1)
    else:
        yield from (number * (1 + 1e-9), number * (1 - 1e-9), 2 * number + (number == 0), -number)
    yield from ({"$float": "nan"}, {"$float": "inf"}, "1")


@pytest.mark.parametrize("name", ["noise-allocation", "knorm", "counts-gaussian", "optm"])
def test_no_other_part_stands_in_the_place_of_the_mechanism(name: str) -> None:
    """None, the design and the certificate were taken for it: each is, or has, something that the certificate has too."""
    result = solved(name)
    assert result.checks()["holds"].all()
    for part in (None, result.design, result.certificate, result.value):
        assert not dataclasses.replace(result, mechanism=part).checks()["holds"].all()


def weaker(text: str, honest: Any) -> bool:
    """Whether a file says less than the honest one, and so is true: a higher value, a lower bound, a question with the same
    answer, or a family's law beside another δ that it keeps.
    """
    found = loads(text, kinds=KINDS)
    if isinstance(found.design, md.MatrixMechanism) and dumps(found.mechanism) != dumps(honest.mechanism):
        # another strategy, of which all that the file says is true by an independent computation
        return not [*noise_oracles.matrix_mechanism(found.design, found)]
    if isinstance(found.design, md.NoiseAllocation) and dumps(found.mechanism) != dumps(honest.mechanism):
        # other scales, which keep the budget on changes within the bounds, by an independent computation, and cost what is said
        asked = later_draws.Bounded(found.design, found.design.bounds)
        same = dumps(found.design) == dumps(honest.design) and found.lower_bound <= honest.lower_bound
        cost = found.design.cost_of(found.mechanism.scales)
        return (
            same
            and cost <= found.value * (1 + 1e-12)
            and not [*bounds_oracles.bounded_allocation(asked, found)]
        )
    law = found.mechanism
    if dumps(law) != dumps(honest.mechanism):
        return False
    if found.value < honest.value or found.lower_bound > honest.lower_bound:
        return False
    if isinstance(
        honest.design, md.Calibration
    ):  # whatever δ a file states, its law and its bound are held to it anew
        same = dataclasses.replace(found.design, privacy=honest.design.privacy)
        return dumps(same) == dumps(honest.design)
    if isinstance(found.design, md.VectorQuantizer) and (found.design.bits or 16) > (
        honest.design.bits or 16
    ):
        return dataclasses.replace(found.design, bits=honest.design.bits) == honest.design
    return dumps(found.design) == dumps(honest.design) or dumps(found.design.solve().mechanism) == dumps(
        honest.mechanism
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", FORGED)
def test_every_number_that_is_forged_is_seen(name: str) -> None:
    """Accepted before: a value, or a lower bound, of infinity beside a certificate of a finite one."""
    text = dumps(solved(name))
    payload, original = json.loads(text)["payload"], mutations.said(loads(text, kinds=KINDS))
    seen: Counter[tuple[Any, ...]] = Counter()
    accepted, tried = [], 0
    for path in trees.places(payload):
        number = trees.at(payload, path)
        kind = tuple("*" if type(step) is int else step for step in path)
        if type(number) not in (int, float) or seen[kind]:
            continue
        seen[kind] += 1
        for forged in forgeries(number):
            if forged == number:
                continue
            tried += 1
            text = cheap.sealed(trees.put(payload, path, forged))
            found = mutations.outcome(text, original)
            if found not in ("refused", "failed", "same") and not weaker(text, solved(name)):
                accepted.append((path, forged, found))
    assert tried > 60
    assert accepted == []

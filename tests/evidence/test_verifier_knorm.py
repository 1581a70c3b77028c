"""The stand-alone check of K-norm noise: sound and doctored files, and the largest norms against a search and the package."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import cheap
import numpy as np
import pytest
from campaign import trees
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

import mechdesign as md
from mechdesign.evidence.results import Result
from mechdesign.evidence.serialize import dumps
from mechdesign.noise.radial import round_delta as known_delta
from mechdesign.verifier.knorm import bounds_of, covers, reached, round_delta
from mechdesign.verifier.reading import Account
from mechdesign.verifier.verify import verify

S = md.Sensitivity


def refused(result: Result) -> list[str]:
    return [claim for claim, _, holds in verify(dumps(result)).rows if not holds]


def withheld(result: Result, **changes: object) -> bool:
    """Whether a law with these members is refused, by the verifier or as it is made."""
    try:
        law = replace(result.mechanism, **changes)
    except md.DesignError:
        return True
    return bool(refused(replace(result, mechanism=law)))


@pytest.mark.parametrize(
    "sensitivity",
    [
        1.0,
        S(linf=1, l0=3),
        S(linf=1, l1=2.3),
        S(linf=1, l2=1.7),
        S(linf=1, signed=False),
        S(each=[3, 1, 0, 0.5, 2, 1]),
        S(each=[3, 1, 0, 0.5, 2, 1], l0=4, l1=5, l2=3.1),
        S(each=[3, 1, 0, 0.5, 2, 1], l0=4, signed=False),
    ],
)
@pytest.mark.parametrize("norm", [None, 1, 2, math.inf])
@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_sound_files_pass_and_doctored_ones_do_not(
    sensitivity: float | md.Sensitivity, norm: float, loss: str
) -> None:
    result = md.noise.KNorm(6, md.PureDP(2.1), sensitivity, norm, loss, rounds=3).solve()
    assert not refused(result)
    law, design = result.mechanism, result.design
    assert withheld(result, scale=law.scale * (1 - 1e-12))
    assert withheld(result, largest=law.largest * (1 - 1e-12))
    assert withheld(result, dimension=5)
    assert refused(replace(result, value=result.value * (1 - 1e-9)))
    assert refused(replace(result, lower_bound=result.value * (1 + 1e-6), value=result.value * 1.1))
    assert refused(replace(result, design=replace(design, rounds=4)))
    assert refused(replace(result, design=replace(design, privacy=md.PureDP(2.099))))
    other = 1.0 if law.norm == math.inf else math.inf
    assert withheld(replace(result, design=replace(design, norm=law.norm)), norm=other)
    if law.gamma is not None:  # a worse staircase costs more than is stated
        assert withheld(result, gamma=law.gamma / 2)
    if law.cap is not None:
        assert withheld(result, cap=law.cap - 0.25)
    if law.widths is not None:
        assert withheld(result, widths=(2.9, *law.widths[1:])) and withheld(result, widths=None)
    if not law.signed:
        signed = replace(result.design.bounds, signed=True)
        assert refused(replace(result, design=replace(design, sensitivity=signed)))


@pytest.mark.parametrize(
    ("k", "epsilon", "delta", "sensitivity"),
    [(60, 1.0, 1e-6, 1.0), (71, 0.5, 1e-9, S(linf=1, l0=70)), (10, 5.0, 1e-6, S(l2=2)), (2, 0.1, 0.1, S(l2=1)), (2000, 1.0, 1e-6, 1.0)],
)  # fmt: skip
@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_round_noise_whose_delta_is_counted(
    k: int, epsilon: float, delta: float, sensitivity: float | md.Sensitivity, loss: str
) -> None:
    design = md.noise.KNorm(k, md.ApproximateDP(epsilon, delta), sensitivity, loss=loss)
    result = design.solve()
    assert design.counted(result.mechanism) and not refused(result)
    assert withheld(result, scale=result.mechanism.scale * (1 - 1e-11))
    assert withheld(result, norm=1.0) and withheld(result, norm=math.inf)
    for less in ({"delta": delta * (1 - 1e-9)}, {"epsilon": epsilon * (1 - 1e-9)}):
        assert refused(replace(result, design=replace(design, privacy=replace(design.privacy, **less))))
    assert refused(replace(result, design=replace(design, rounds=2)))
    above = replace(result, lower_bound=result.value * (1 + 1e-6), value=result.value * 1.1)
    assert [c for c in refused(above) if c.startswith("no radial noise")]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 300),
    st.floats(1e-3, 1.0),
    st.floats(1e-3, 12.0),
    st.sampled_from([1e-9, 0.01, 0.3, 0.9, 0.999]),
)
def test_both_sides_count_the_same_delta(d: int, part: float, size: float, edge: float) -> None:
    """Ball arithmetic with the library's Bessel and beta functions, and decimals with sums of their own."""
    change = Fraction(size * part)
    epsilon = float(change) * edge
    found = round_delta(d, change, Decimal(epsilon), Account(10**6))
    assert abs(arb(str(found)) / known_delta(d, change, epsilon) - 1) < 1e-15


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31))
def test_the_largest_norms_are_those_of_a_search_and_of_the_package(seed: int) -> None:
    rnd = random.Random(seed)
    size = rnd.randint(1, 5)
    each = [rnd.choice([1.0, 2.0, rnd.uniform(0.1, 3)]) for _ in range(size)]
    asked = {
        "l0": rnd.randint(1, size),
        "l1": sum(each) * rnd.uniform(0.3, 1),
        "l2": math.hypot(*each) * rnd.uniform(0.4, 1),
    }
    sensitivity = S(each=each, **{name: bound for name, bound in asked.items() if rnd.random() < 0.5})
    plain = {name: getattr(sensitivity, name) for name in ("linf", "l1", "l2", "l0", "each")}
    bounds, l1, l2 = bounds_of(plain, size)
    for norm, package in (
        (1.0, sensitivity.largest_l1),
        (2.0, sensitivity.largest_l2),
        (math.inf, sensitivity.largest_linf),
    ):
        largest = package(size)
        assert covers(norm, bounds, l1, l2, Fraction(largest))
        assert not covers(norm, bounds, l1, l2, Fraction(largest) * (1 - Fraction(1, 10**9)))
        assert math.isclose(reached(norm, bounds, l1, l2), largest, rel_tol=1e-12)
    if sensitivity.l0 is None and sensitivity.l2 is not None:
        limit = [{"type": "ineq", "fun": lambda v: sensitivity.l2**2 - float(v @ v)}]
        if sensitivity.l1 is not None:
            limit.append({"type": "ineq", "fun": lambda v: sensitivity.l1 - float(v.sum())})
        start = np.full(size, 0.01)
        found = optimize.minimize(lambda v: -v.sum(), start, bounds=[(0, b) for b in each], constraints=limit)
        assert covers(1.0, bounds, l1, l2, Fraction(-found.fun * (1 + 1e-6)))


@pytest.mark.parametrize("loss", ["squared", "absolute"])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_listed_changes(size: int, loss: str) -> None:
    """Sound files pass; with a face less, a vertex moved, another list, width or scale they do not."""
    vectors = np.random.default_rng(size).integers(-5, 6, (2 * size, size)).tolist()
    result = md.noise.KNorm(size, md.PureDP(2.1), vectors, loss=loss, rounds=3).solve()
    assert not refused(result) and result.checks()["holds"].all()
    law, design = result.mechanism, result.design
    assert refused(replace(result, value=result.value * (1 - 1e-9)))
    assert refused(replace(result, lower_bound=result.value * (1 + 1e-6), value=result.value * 1.1))
    for other in ([[2.0 * x for x in vectors[0]], *vectors[1:]], [*vectors, [20.0] * size]):
        assert refused(replace(result, design=replace(design, sensitivity=other)))
    assert refused(replace(result, design=replace(design, sensitivity=1.0)))
    first = law.vertices[0]
    for changes in (
        {"scale": law.scale * (1 - 1e-12)},
        {"largest": law.largest * (1 - 1e-12)},
        {"simplices": law.simplices[1:]},
        {"simplices": (*law.simplices, law.simplices[0])},
        {"vertices": (tuple(x * (1 - 1e-9) for x in first), *law.vertices[1:])},
        {"widths": (law.widths[0] * (1 - 1e-9), *law.widths[1:])},
        {"vertices": None, "simplices": None},
        {"vertices": None, "simplices": None, "widths": None},
    ):
        assert withheld(result, **changes), changes


@pytest.mark.slow
def test_the_largest_face_list_that_is_designed_is_checked() -> None:
    vectors = np.random.default_rng(8).normal(size=(20, 8))
    result = md.noise.KNorm(8, md.ApproximateDP(1.0, 1e-6), vectors).solve()
    assert len(result.mechanism.simplices) > 4000 and not refused(result)


def test_the_stand_alone_checker_sees_a_hull_that_is_not_that_of_the_list() -> None:
    """A face less or twice, a vertex that no face has, a list of fewer changes: in the file, where no law is made of it."""
    result = md.noise.KNorm(2, md.PureDP(1.0), [[1, 1], [1, 0], [0, 1]]).solve()
    payload = json.loads(dumps(result))["payload"]
    law, design = (("fields", part, "fields") for part in ("mechanism", "design"))

    def seen(path: tuple[str, ...], change: Callable[[list[object]], list[object]]) -> list[str]:
        where = (*path, "$tuple")
        text = cheap.sealed(trees.put(payload, where, change(trees.at(payload, where))))
        return [claim for claim, _, holds in verify(text).rows if not holds]

    faces, vertices = (*law, "simplices"), (*law, "vertices")
    assert seen(faces, list) == []
    assert "the faces are all that the hull has" in seen(faces, lambda held: held[1:])
    assert "the faces are all that the hull has" in seen(faces, lambda held: [*held, *held])
    assert "the norm is one that is allowed" in seen(vertices, lambda held: [*held, held[0]])
    assert "the vertices of the hull are changes of the list" in seen(
        (*design, "sensitivity"), lambda held: held[:2]
    )

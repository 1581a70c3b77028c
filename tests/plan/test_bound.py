"""The lower bound of a plan under (ε, δ): every step of it is from below, and no plan that keeps its budget lies under it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import signal

import mechdesign as md
from mechdesign.accounting.interval import upper_delta
from mechdesign.accounting.losses import NoiseTerm
from mechdesign.evidence.proofs import Certificate, Scope
from mechdesign.evidence.serialize import dumps, loads
from mechdesign.plan.bound import Cover, Kind, Losses, normal_tail
from mechdesign.plan.search import Item
from mechdesign.plan.tasks import Part
from mechdesign.verifier.verify import verify

YEAR = {"visits": md.Histogram(50), "age": md.Mean(0, 100, n=10_000), "spent": md.Sum(5.0)}
YEAR_WEIGHTS = {"visits": 1400**-2, "age": 50**-2, "spent": 12_500**-2}
THREE = {"count": md.Count(), "bins": md.Histogram(20), "sum": md.Sum(10.0)}
THREE_WEIGHTS = {"count": 1.0, "bins": 0.05, "sum": 0.01}


def year(**options: Any) -> md.Plan:
    return md.Plan(YEAR, md.ApproximateDP(1.0, 1e-6), weights=YEAR_WEIGHTS, rounds=12, **options)


def three(**options: Any) -> md.Plan:
    return md.Plan(THREE, md.ApproximateDP(3.0, 1e-6), weights=THREE_WEIGHTS, **options)


# -- losses -----------------------------------------------------------------------------------------------


def exact_losses(item: Item, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Losses and masses of one coordinate that moves by 1, straight from the law; continuous ones in 200,000 cells."""
    law = item.law(scale)
    if item.part.whole:
        x = np.arange(-int(30 * law.std()) - 5, int(30 * law.std()) + 6)
        p, q = law.pmf(x), law.pmf(x - 1)
    else:
        reach = float(law.isf(1e-15))
        edges = np.unique([*np.linspace(-reach, reach + 1, 200_001), 0.0, 1.0])
        tails = [law.sf(np.abs(edges - move)) for move in (0.0, 1.0)]
        p, q = (
            np.where(e[:-1] >= 0, t[:-1] - t[1:], np.where(e[1:] <= 0, t[1:] - t[:-1], 1 - t[:-1] - t[1:]))
            for e, t in ((edges, tails[0]), (edges - 1, tails[1]))
        )
    kept = (p > 0) & (q > 0)
    return np.log(p[kept] / q[kept]), p[kept]


def exact_delta(item: Item, scale: float, count: int, epsilon: float) -> float:
    """δ of so many coordinates, losses rounded to the next of a fine grid."""
    loss, p = exact_losses(item, scale)
    step = epsilon / 20_000
    at = np.rint(loss / step).astype(int)
    one = np.bincount(at - at.min(), p)
    found, first = one, at.min()
    for _ in range(count - 1):
        found, first = signal.fftconvolve(found, one), first + at.min()
    total = step * (first + np.arange(found.size))
    above = total > epsilon
    return float(found[above] @ -np.expm1(epsilon - total[above]))


CASES = [
    ("laplace", False, [0.6], 1),
    ("laplace", False, [0.6], 1),
    ("laplace", False, [6.0], 8),
    ("laplace", True, [6.0], 8),
    ("laplace", True, [0.6], 1),
    ("gaussian", False, [9.0], 6),
    ("gaussian", True, [3.0, 3.05], 1),
    ("gaussian", True, [9.0, 9.5], 6),
    ("gaussian", True, [0.8, 0.804], 1),
    ("gaussian", True, [1.1, 1.105], 2),
    ("staircase", False, [0.6], 1),
    ("staircase", False, [4.5], 6),
]


@pytest.mark.parametrize(("family", "whole", "scales", "count"), CASES)
def test_delta_is_from_below(family: str, whole: bool, scales: list[float], count: int) -> None:
    """Of every scale between, and not far below: losses rounded up would be above."""
    item = Item(Part("", 1, md.Sensitivity(linf=1), whole), family, 1.0, count)
    within = np.linspace(scales[0], scales[-1], 5)
    epsilon = 1.0 if scales[0] > 2 else 1.5
    exact = min(exact_delta(item, float(s), count, epsilon) for s in within)
    losses = Losses(md.ApproximateDP(epsilon, 0.7 * exact))
    kind = Kind(item, 1, losses, 1e9, math.log(8.004 * count / losses.lost) / (2 * math.pi**2))
    kind.scales = scales
    last = len(scales) - 1
    square, parts = kind.normal(0, last), kind.parts(0, last, losses)
    if square:
        parts = [*parts, losses.of_tail(normal_tail(square), math.inf, 1)]
    found = losses.least_delta(parts)
    assert (0.5 if whole and family == "gaussian" else 0.9) * exact <= found <= exact * (1 + 5e-4)


# -- no plan lies under it ----------------------------------------------------------------------------------


def slots(kind: Kind) -> int:
    return kind.shifts[0][1] // (kind.item.attained[0][1] * kind.item.rounds)


def kept(cover: Cover, design: md.Plan, rng: np.random.Generator) -> list[tuple[Kind, float]]:
    """Random items, and random scales with the common factor at which they keep the budget."""
    kinds = [kinds[rng.integers(len(kinds))] for kinds in cover.kinds]
    spread = [kind.item.top * math.exp(rng.normal(0, 0.7)) for kind in kinds]
    low, high = -1.0, 6.0
    for _ in range(14):
        middle = (low + high) / 2
        scales = [max(s * math.exp(middle), kind.item.least) for kind, s in zip(kinds, spread)]
        terms = [
            NoiseTerm(k.item.law(s), v, n * slots(k)) for k, s in zip(kinds, scales) for v, n in k.item.shifts
        ]
        over = upper_delta(terms, design.privacy.epsilon) > design.privacy.delta
        low, high = (middle, high) if over else (low, middle)
    return [(kind, max(s * math.exp(high), kind.item.least)) for kind, s in zip(kinds, spread)]


@pytest.mark.parametrize(("epsilon", "rounds"), [(0.5, 2), (8.0, 2), (2.0, 70)])
def test_no_box_with_a_plan_in_it_is_dismissed(epsilon: float, rounds: int) -> None:
    tasks = {"a": md.Count(), "b": md.Histogram(4, contribution=2), "c": md.Sum(3.0), "d": md.Sum(30.0)}
    weights = {"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.01}
    design = md.Plan(tasks, md.ApproximateDP(epsilon, 1e-5), weights=weights, rounds=rounds)
    cover, rng = Cover(design._search, 1e9, 10**6), np.random.default_rng(int(10 * epsilon))
    for _ in range(8):
        chosen = kept(cover, design, rng)
        assert math.fsum(slots(kind) * kind.item.cost(s) for kind, s in chosen) >= cover.alone
        at = [int(np.searchsorted(kind.scales, s)) for kind, s in chosen]
        for width in (1, 5, 60):
            low = [max(k - 1 - int(rng.integers(width)), 0) for k in at]
            high = [
                min(k + int(rng.integers(width)), len(kind.scales) - 1) for k, (kind, _) in zip(at, chosen)
            ]
            assert not cover._tells([kind for kind, _ in chosen], low, high)


MANY = {f"{k} bins": md.Histogram(k) for k in range(3, 12)} | {"far": md.Sum(1e4), "near": md.Sum(0.1)}
WITHIN = {
    "three": three(),
    "year": year(),
    "tasks that differ in unit alone": md.Plan(MANY, md.ApproximateDP(1.0, 1e-6)),
    "a large budget": md.Plan(THREE, md.ApproximateDP(40.0, 1e-6)),
    "a large budget of twelve rounds": md.Plan(THREE, md.ApproximateDP(70.0, 1e-9), rounds=12),
    "a hundred rounds": md.Plan(THREE, md.ApproximateDP(1.0, 1e-6), rounds=100),
    "replaced people at a large budget": md.Plan(YEAR, md.ApproximateDP(22.0, 1e-6), neighbours="replace"),
}


LONG = "year", "a hundred rounds"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in WITHIN]
)
def test_within_a_tenth_and_never_above(name: str) -> None:
    result = (design := WITHIN[name]).solve()
    assert result.gap <= design.default_gap and "to a gap of 9.09%" in str(result)
    assert result.value / 1.1000001 <= result.lower_bound <= result.value and result.bound_class is Scope.MENU
    assert result.bound_how == "recomputed" and "like tasks alike" in str(result.mechanism_class)
    assert not replace(result.certificate, lower_bound=result.value / 0.99).verify()
    again = loads(dumps(result))
    assert again.certificate.verify() and all(holds for *_, holds in verify(dumps(result)).rows)


def test_a_raised_bound_is_refused() -> None:
    result = three().solve()
    raised = Certificate(result.design, result.mechanism, result.value, result.value, result.proofs)
    assert result.certificate.verify() and not raised.verify()

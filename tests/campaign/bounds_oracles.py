"""Changes that several bounds allow together: what is spent, from below."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

import mechdesign as md
from tests.campaign.compositions import POINTS, Grid, Losses, density_losses, renyi
from tests.campaign.oracles import Faults, correlated, over_budget

CLOSE = 1 + 1e-9  # of a composition from below
Vector = list[Fraction]


# Changes ------------------------------------------------------------------------------------------------------


def changes(s: md.Sensitivity, size: int, rng: random.Random, count: int = 12) -> Iterator[Vector]:
    """Changes that the bounds allow, in exact numbers: the largest bounds filled up, evened out, and random ones."""
    single = [Fraction(b) for b in (s.linf, s.l1, s.l2) if b is not None]
    each = [min([Fraction(b), *single]) for b in s.each] if s.each is not None else [min(single)] * size
    most = min(s.l0 or size, size)
    order = sorted(range(size), key=lambda i: -each[i])
    for k in range(count):
        kept = order[:most] if k % 3 == 0 else rng.sample(range(size), rng.randint(1, most))
        level = max(each) * (1 if k < 2 else Fraction(rng.uniform(0.05, 1)))
        v = [Fraction(0)] * size
        left = None if s.l1 is None else Fraction(s.l1)
        for i in sorted(kept, key=lambda i: -each[i]):
            v[i] = min(each[i], level) * (1 if k < 6 else Fraction(rng.random()))
            if left is not None and k % 2 == 0:  # one after the other, until nothing is left
                v[i] = min(v[i], left)
                left -= v[i]
        v = shrunk(v, s)
        signs = [rng.choice([-1, 1]) for _ in v] if s.signed else [rng.choice([-1, 1])] * size
        yield [a * b for a, b in zip(v, signs)]


def shrunk(v: Vector, s: md.Sensitivity) -> Vector:
    """Scaled down until ℓ₁ and ℓ₂ are kept."""
    if s.l1 is not None and sum(v) > Fraction(s.l1):
        v = [a * Fraction(s.l1) / sum(v) for a in v]
    square = sum(a * a for a in v)
    if s.l2 is not None and square > Fraction(s.l2) ** 2:
        factor = Fraction(s.l2 / math.sqrt(square) * (1 - 1e-15))
        while factor**2 * square > Fraction(s.l2) ** 2:
            factor *= Fraction(1 - 1e-15)
        v = [a * factor for a in v]
    return v


def drawn(design: Any) -> random.Random:
    return random.Random(repr(getattr(design, "privacy", "")) + str(type(design)))


def composed(parts: list[tuple[Losses, int]], epsilon: float, mu: float = 0.0) -> float:
    """δ from below of independent coordinates, and of Gaussian noise of this μ."""
    most = math.fsum(
        max(np.abs(v[np.isfinite(v)]).max(initial=0.0), 1e-12) * count for (v, _), count in parts
    )
    grid = Grid(max(min(2 * most, 3 * epsilon + 2 * most / 10) / POINTS, most / POINTS))
    for losses, count in parts:
        grid.add(losses, count)
    return grid.delta(epsilon, mu)


# Sensitivity of several bounds ------------------------------------------------------------------------------------


def bounded_calibration(design: Any, result: Any) -> Faults:
    """The law at changes that the bounds allow: exact for Gaussian and Laplace noise, composed from below, Rényi's."""
    law, notion, rounds = result.mechanism.law, design.privacy, design.rounds
    shapes, _, scale = law.dist._parse_args(*law.args, **law.kwds)
    name, exact = law.dist.name, Fraction(float(scale))
    for v in changes(design.sensitivity, design.dimension, drawn(design), 5):
        ratios = [abs(a) / exact for a in v if a]
        if not ratios:
            continue
        if name == "norm":
            yield from over_budget(notion, rounds * sum(r * r for r in ratios))
        elif isinstance(notion, md.ZeroConcentratedDP):
            for order in (1.5, 3.0, 12.0):
                total = math.fsum(renyi(name, tuple(map(float, shapes)), float(r), order) for r in ratios)
                if rounds * total > notion.rho * order * (1 + 1e-6) + 1e-9:
                    yield f"privacy: Rényi divergence {rounds * total} of order {order} at rho = {notion.rho} with {name}"
        elif isinstance(notion, md.PureDP):
            each = [float(r) for r in ratios]
            if name == "staircase":  # a loss of a step a step begun
                each = [float(shapes[0]) * math.ceil(float(r) * (1 - 1e-12)) for r in ratios]
            if rounds * math.fsum(each) > notion.epsilon * (1 + 1e-14):
                yield f"privacy: a loss of {rounds * math.fsum(each)} of {notion.epsilon} with {name}"
        else:
            parts = [
                (density_losses(name, tuple(map(float, shapes)), float(r), 1500), rounds) for r in ratios
            ]
            if (found := composed(parts, notion.epsilon)) > notion.delta * CLOSE:
                yield f"privacy: delta is at least {found!r} of {notion.delta!r} with {name}"


def bounded_allocation(asked: Any, result: Any) -> Faults:
    """The budget in fractions at changes that the bounds allow."""
    design, bounds = asked.design, asked.bounds
    scales, power = (
        [Fraction(v) for v in result.mechanism.scales.tolist()],
        2 if design.noise == "gaussian" else 1,
    )
    for v in changes(bounds, len(scales), drawn(design), 30):
        if any(a and not s for a, s in zip(v, scales)):
            yield "privacy: a coordinate that changes has no noise"
            return
        yield from over_budget(
            design.privacy, sum(((abs(a) / s) ** power for a, s in zip(v, scales) if a), Fraction(0))
        )


def bounded_covariance(asked: Any, result: Any) -> Faults:
    """What changes inside the hull spend, by the whitening in fractions."""
    design, bounds, noise = asked.design, asked.bounds, result.mechanism
    rows = [[Fraction(x) for x in row] for row in noise.whitening.tolist()]
    for v in changes(bounds, design.vectors.shape[1], drawn(design), 30):
        inside = [v[i] for i in noise.coordinates]
        spent = sum(sum(w * a for w, a in zip(row, inside)) ** 2 for row in rows)
        yield from over_budget(design.privacy, spent)
    yield from correlated(design, result)


def bounded(asked: Any, result: Any) -> Faults:
    """An allocation or a covariance for several bounds."""
    of = bounded_allocation if isinstance(asked.design, md.NoiseAllocation) else bounded_covariance
    yield from of(asked, result)

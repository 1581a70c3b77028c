"""Changes that several bounds allow together, and rounds of Poisson samples: what is spent, from below and from above."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import special

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


# Sampled rounds -------------------------------------------------------------------------------------------------


def binned(design: Any) -> tuple[Any, Any, Any]:
    """Both laws' masses on cells of one coordinate of a round, and the largest loss on each."""
    term = design.terms[0]
    scale = float(term.law.std()) if term.law.dist.name == "norm" else float(term.law.std()) / math.sqrt(2)
    ratio = term.sensitivity / scale
    if term.law.dist.name == "norm":
        ratio *= math.sqrt(term.count)
        edges = np.linspace(-9, 9 + ratio, 1500)
        below, above = special.ndtr, special.ndtr
    else:
        edges = np.unique(
            np.append(np.linspace(-45, 45 + ratio, 400 if term.count == 1 else 60), [0.0, ratio])
        )
        edges = np.unique(np.append(edges, np.linspace(0, ratio, 800 if term.count == 1 else 120)))

        def below(t: Any) -> Any:
            return np.where(t < 0, np.exp(np.minimum(t, 0)) / 2, 1 - np.exp(-np.maximum(t, 0)) / 2)

        above = below
    edges = np.concatenate([[-1e4], edges, [1e4]])

    def masses(centre: float) -> Any:
        low, high = edges[:-1] - centre, edges[1:] - centre
        return np.where(low > 0, above(-low) - above(-high), below(high) - below(low))

    p, q = masses(0.0), masses(ratio)
    t = edges[:-1]  # the loss of P, centred at 0, against Q falls with t
    top = ratio * (ratio / 2 - t) if term.law.dist.name == "norm" else np.abs(t - ratio) - np.abs(t)
    if term.law.dist.name == "laplace" and term.count == 2:
        p, q, top = np.outer(p, p).ravel(), np.outer(q, q).ravel(), np.add.outer(top, top).ravel()
    return p, q, top


def sampled_rounds(design: Any, result: Any) -> Faults:
    """Sampled rounds from below by what cells tell, from above by the largest loss of each."""
    rate, rounds, epsilon = design.sampling_rate, design.rounds, design.epsilon
    p, q, top = binned(design)
    mix, seen = (1 - rate) * q + rate * p, (p > 1e-290) & (q > 1e-290)
    ratio = np.log(np.where(seen, p, 1)) - np.log(np.where(seen, q, 1))
    found, tops = [], []
    for above, out in ((False, found), (True, tops)):
        loss = np.minimum(top, 700.0) if above else ratio
        kept = seen | above
        mixed_loss = np.log1p(rate * np.expm1(loss))
        span = float(np.ptp(mixed_loss[kept])) or 1e-12
        step = max(span / 3000, rounds * span / 12_000)
        remove, add = Grid(step, above=above), Grid(step, above=above)
        remove.add((mixed_loss[kept], mix[kept]), rounds)
        # the other direction's loss rises where this one falls: its largest is at a cell's other end, the next one's
        other = -np.append(mixed_loss[1:], math.log1p(-rate)) if above else -mixed_loss
        if above and design.terms[0].law.dist.name == "laplace" and design.terms[0].count == 2:
            other = np.full(len(loss), -math.log1p(-rate))
        add.add((other[kept], q[kept]), rounds)
        out += [remove.delta(epsilon), add.delta(epsilon)]
    if max(found) > result.upper * CLOSE:
        yield f"an upper end of {result.upper} below {max(found)}"
    if result.lower > max(tops) * CLOSE:
        yield f"a lower end of {result.lower} above {max(tops)}"


def bounded(asked: Any, result: Any) -> Faults:
    """An allocation or a covariance for several bounds."""
    of = bounded_allocation if isinstance(asked.design, md.NoiseAllocation) else bounded_covariance
    yield from of(asked, result)

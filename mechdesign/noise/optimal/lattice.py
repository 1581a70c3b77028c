"""One lattice of the optimal-noise problem: both linear programs, the repaired law, the exact bound."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.costs import average_costs, check_loss, lower_costs
from mechdesign.noise.optimal.lower_bound import weak_duality
from mechdesign.noise.optimal.program import LatticeProgram, Line, Multiplier
from mechdesign.noise.optimal.repair import (
    mixed_into_privacy,
    outward_decay,
    raised_into_privacy,
    round_width,
)
from mechdesign.noise.optimal.tails import tail_costs
from mechdesign.problem.losses import Loss
from mechdesign.typing import Array

__all__ = ["Attempt", "attempt", "better"]


_SPIKE = 64
"""The spike is this many times narrower than a cell: a density, at nearly the cost of an atom."""


@dataclass(frozen=True)
class Attempt:
    """What one lattice gave: a private law with its exact cost, and multipliers with the bound they prove."""

    law: CellNoise
    value: Fraction
    bound: Fraction
    multipliers: tuple[Multiplier, ...]
    cells: int
    mirrored: bool
    tail: float
    size: tuple[int, int]
    iterations: int


def attempt(
    loss: Loss,
    *,
    sensitivity: float,
    epsilon: float,
    delta: float,
    programmed: float,
    cells: int,
    window: float,
    grid: str,
) -> Attempt:
    """Solve the lower and the upper program on one lattice.

    Parameters
    ----------
    loss : Loss
    sensitivity, epsilon, delta : float
    programmed : float
        The δ of the programs, at most `delta`.
    cells : int
        n, cells per sensitivity.
    window : float
        Sensitivities on each side that the lattice reaches.
    grid : {"centred", "edge"}
    """
    n = cells
    width = Fraction(sensitivity) / n
    side = max(math.ceil(window * n), n + 1)
    if loss.function is not None:
        check_loss(loss, float(width) * np.arange(-side - n - 1, side + n + 2))
        if programmed == 0:  # say so at once if no tails of pure noise can carry this loss
            tail_costs(loss, [j * width for j in range(-n, n + 1)], n, outward_decay(epsilon))
    lower = lower_costs(loss, -side - n - 1, side + n + 1, width)
    inner = lower[n + 1 : -n - 1]
    mirrored = inner == inner[::-1]
    costs = np.array([float(c) for c in inner])
    scale = max(float(np.median(np.abs(costs))), 1e-300)
    line = _line(costs / scale, n, mirrored, half=False)
    tail = float(min(lower[n], lower[-n - 1])) / scale
    program = LatticeProgram(line, epsilon=epsilon, delta=programmed, tail_cost=tail)
    _, _, tail_mass = program.solve(max(2e-4 * programmed, 2e-9))
    multipliers = program.multipliers()
    scaled = [Multiplier(m.shift, m.psi * scale, m.total * scale) for m in multipliers]
    bound = weak_duality(lower, scaled, shift=n, epsilon=epsilon, delta=delta, mirrored=mirrored)
    seeds = program.cuts if grid == "centred" else []
    law, value, upper = _upper(
        loss,
        sensitivity=sensitivity,
        epsilon=epsilon,
        delta=programmed,
        n=n,
        side=side,
        grid=grid,
        mirrored=mirrored,
        seeds=seeds,
    )
    sizes = [p.size for p in (program, upper)]
    return Attempt(
        law=law,
        value=value,
        bound=bound,
        multipliers=tuple(scaled),
        cells=n,
        mirrored=mirrored,
        tail=tail_mass,
        size=max(sizes),
        iterations=program.iterations + upper.iterations,
    )


def _upper(
    loss: Loss,
    *,
    sensitivity: float,
    epsilon: float,
    delta: float,
    n: int,
    side: int,
    grid: str,
    mirrored: bool,
    seeds: list[Any],
) -> tuple[CellNoise, Fraction, LatticeProgram]:
    """Solve the upper program and repair its answer."""
    half = grid == "edge"
    width = round_width(Fraction(sensitivity) / n)
    if delta == 0:
        side = min(side, 3 * n + 1)
    count = 2 * side if half else 2 * side + 1
    start = -count * width / 2
    edges = [Fraction(start) + i * Fraction(width) for i in range(count + 1)]
    exact = average_costs(loss, edges)
    shape = {"width": width, "cells_per_shift": n, "spike_width": width / _SPIKE}
    narrow = Fraction(width) / (2 * _SPIKE)
    spike_cost = average_costs(loss, [-narrow, narrow])[0]
    costs = np.array([float(c) for c in exact])
    scale = max(float(np.median(np.abs(costs))), 1e-300)
    if delta > 0:
        line = _line(costs / scale, n, mirrored, half=half)
        allowed = math.inf if half else float(spike_cost) / scale
        program = LatticeProgram(line, epsilon=epsilon, delta=delta, spike_cost=allowed)
        program.adopt(seeds)
        x, spike, _ = program.solve(max(1e-6 * delta, 2e-9))
        law = mixed_into_privacy(x[line.owner], spike, epsilon=epsilon, delta=delta, half=half, **shape)
        edges = [Fraction(law.start) + i * Fraction(width) for i in range(len(law.weights) + 1)]
        exact = average_costs(loss, edges) if len(law.weights) != count else exact
        extra = Fraction(0)
    else:
        decay = outward_decay(epsilon)
        tails = tail_costs(loss, edges, n, decay)
        tail_floats = (np.array([float(c) for c in tails[0]]), np.array([float(c) for c in tails[1]]))
        line = _geometric_line(costs / scale, tail_floats, scale, n, mirrored, half, float(decay))
        program = LatticeProgram(line, epsilon=epsilon, delta=0.0)
        x, _, _ = program.solve(2e-9)
        law = raised_into_privacy(x[line.owner][n:-n], epsilon=epsilon, **shape)
        extra = sum((c * w for c, w in zip(tails[0], law.weights[:n])), Fraction(0))
        extra += sum((c * w for c, w in zip(tails[1], law.weights[-n:])), Fraction(0))
    cost = sum((c * w for c, w in zip(exact, law.weights)), extra) + spike_cost * law.spike
    return law, cost / law.total, program


def better(a: Attempt, b: Attempt) -> Attempt:
    """The better law with the better bound: both are valid, whatever lattice they came from."""
    law = a if a.value <= b.value else b
    proof = a if a.bound >= b.bound else b
    return replace(
        law, bound=proof.bound, multipliers=proof.multipliers, cells=proof.cells, mirrored=proof.mirrored
    )


def _line(costs: Array, n: int, mirrored: bool, *, half: bool) -> Line:
    count = len(costs)
    if mirrored:
        position = np.arange(count) - (count // 2)
        owner = np.where(position >= 0, position, -1 - position) if half else np.abs(position)
    else:
        owner = np.arange(count)
    return Line(
        owner=owner,
        factor=np.ones(count),
        mass=np.bincount(owner).astype(float),
        cost=np.bincount(owner, weights=costs).astype(float),
        shift=n,
        mirrored=mirrored,
    )


def _geometric_line(
    costs: Array,
    tails: tuple[Array, Array],
    scale: float,
    n: int,
    mirrored: bool,
    half: bool,
    decay: float,
) -> Line:
    """The line with one repeated period on each side; masses and costs include the infinite tails."""
    plain = _line(costs, n, mirrored, half=half)
    left, right = plain.owner[:n], plain.owner[-n:]
    mass, cost = plain.mass.copy(), plain.cost.copy()
    for owners, tail in ((left, tails[0]), (right, tails[1])):
        np.add.at(mass, owners, decay / (1 - decay))
        np.add.at(cost, owners, tail / scale)
    return Line(
        owner=np.concatenate([left, plain.owner, right]),
        factor=np.concatenate([np.full(n, decay), np.ones(len(costs)), np.full(n, decay)]),
        mass=mass,
        cost=cost,
        shift=n,
        mirrored=mirrored,
    )

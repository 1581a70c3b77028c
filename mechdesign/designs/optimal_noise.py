r"""The best additive noise in one dimension, proved: value, lower bound, and a law to sample.

.. math:: \min_F E_F\,\ell(T) \quad\text{s.t.}\quad P[T \in S] \le e^{\varepsilon} P[T + d \in S] + \delta
          \quad \text{for all } S,\; |d| \le \Delta .

Cells of width β = Δ/n turn it into a linear program from both sides. *Above*: a density constant on cells is private
for every real shift when it is for the n shifts by whole cells (`mechdesign.mechanisms.cell_noise`). *Below*: any
noise, rounded at random to a neighbouring lattice point, is private for those shifts and costs no less than the
lattice costs (`lattice_costs`). Both errors are of order β², so few cells are enough. The law is repaired and
checked in exact arithmetic (`noise_repair`), the bound is weak duality in exact arithmetic (`lattice_bound`).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import numpy.typing as npt
import pandas as pd

from mechdesign.designs.lattice_bound import weak_duality
from mechdesign.designs.lattice_costs import average_costs, check_loss, lower_costs
from mechdesign.designs.lattice_program import LatticeProgram, Line, Multiplier
from mechdesign.designs.noise_repair import (
    mixed_into_privacy,
    outward_decay,
    raised_into_privacy,
    round_width,
)
from mechdesign.designs.noise_tails import tail_costs
from mechdesign.errors import DesignError
from mechdesign.losses import Loss
from mechdesign.mechanisms.cell_noise import CellNoise
from mechdesign.privacy import ApproximateDP, PureDP
from mechdesign.results import AUDIT_COLUMNS, Result, SolveReport
from mechdesign.serialize import serializable
from mechdesign.solvers import Model

__all__ = ["NoiseCertificate", "OptimalNoise", "OptimalNoiseResult"]

Array = npt.NDArray[np.float64]
_SMALLEST_DELTA = 1e-7
"""Below, the linear programs run with δ = 0: HiGHS meets constraints to 1e-9 only."""
_SPIKE = 64
"""The spike is this many times narrower than a cell: a density, at nearly the cost of an atom."""


@serializable("noise-certificate")
@dataclass(frozen=True, eq=False)
class NoiseCertificate:
    """Exact evidence of an optimal-noise result.

    Parameters
    ----------
    delta : Fraction
        Largest hockey-stick sum of the law over all shifts; at most the δ asked for.
    value : Fraction
        Cost of the law (exact for absolute and squared losses, an upper bound for a callable).
    lower_bound : Fraction
        What the multipliers prove.
    cells : int
        Cells per sensitivity of the bound's lattice.
    shifts : ndarray of int
        Signed shifts that carry multipliers.
    psi : ndarray, shape (shifts, cells of the line)
        The multipliers.
    totals : ndarray
        Their caps.
    mirrored : bool
        Whether each stands for its mirror image too.
    """

    delta: Fraction
    value: Fraction
    lower_bound: Fraction
    cells: int
    shifts: npt.NDArray[np.int64]
    psi: Array
    totals: Array
    mirrored: bool

    def multipliers(self) -> list[Multiplier]:
        """The multipliers as objects."""
        return [Multiplier(int(s), row, float(t)) for s, row, t in zip(self.shifts, self.psi, self.totals)]


@serializable("optimal-noise-result")
@dataclass(frozen=True, eq=False)
class OptimalNoiseResult(Result):
    """A noise law with its exact privacy and the proof of how good it can be.

    `mechanism` (also `law`) is a `CellNoise`; `value` rounds up, `lower_bound` rounds down.
    """

    @property
    def law(self) -> CellNoise:
        """The law to sample."""
        return self.mechanism

    def suboptimality(self, cost: float) -> tuple[float, float]:
        """Return an interval for 100 (cost - O)/max(O, 1), O the optimum at sensitivity 1.

        O is known to lie between `lower_bound` and `value`; the measure is that of Selvi, Liu and
        Wiesemann (2025).
        """
        low, high = self.lower_bound or 0.0, self.value
        return 100 * (cost - high) / max(high, 1.0), 100 * (cost - low) / max(low, 1.0)

    def check(self) -> bool:
        """Recompute both exact claims, privacy of the law and the lower bound, from the stored numbers."""
        c: NoiseCertificate = self.certificate
        design: OptimalNoise = self.design
        n, length = c.cells, c.psi.shape[1]
        reach = (length - 1) // 2 + n + 1
        costs = lower_costs(design._loss, -reach, reach, Fraction(design.sensitivity) / n)
        bound = weak_duality(
            costs,
            c.multipliers(),
            shift=n,
            epsilon=design._epsilon,
            delta=design._delta,
            mirrored=c.mirrored,
        )
        private = self.law.exact_delta(design._epsilon) <= Fraction(design._delta)
        wide = Fraction(self.law.width) * self.law.cells_per_shift >= Fraction(design.sensitivity)
        return private and wide and bound == c.lower_bound

    def _audit(self) -> pd.DataFrame:
        law, design = self.law, self.design
        duals = {int(s): float(t) for s, t in zip(self.certificate.shifts, self.certificate.totals)}
        same = self.certificate.cells == law.cells_per_shift
        rows = []
        for s, value in law.hockey_stick(design._epsilon).items():
            slack = Fraction(design._delta) - value
            dual = duals.get(s, 0.0) if same else float("nan")
            rows.append(
                ("privacy", s, float(value), design._delta, float(slack), dual, slack <= Fraction(1, 10**9))
            )
        rows.append(("normalisation", 0, 1.0, 1.0, 0.0, float("nan"), True))
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def _evidence(self) -> list[str]:
        law = self.law
        return [
            f"law: {len(law.weights)} cells of width {law.width:.6g}, {law.cells_per_shift} per sensitivity"
            + (f", spike of mass {float(law.spike / law.total):.3g}" if law.spike else "")
            + (", geometric tails" if law.decay else ""),
            f"exact delta: {float(self.certificate.delta):.9g} (asked: {self.design._delta:.9g})",
        ]

    def to_frame(self) -> pd.DataFrame:
        """The law's density, a row per cell."""
        law = self.law
        left = law.start + law.width * np.arange(len(law.weights))
        return pd.DataFrame(
            {
                "left": left,
                "right": left + law.width,
                "density": [float(w / law.total) / law.width for w in law.weights],
            }
        )


@dataclass(frozen=True)
class _Attempt:
    """What one lattice gave."""

    law: CellNoise
    value: Fraction
    bound: Fraction
    multipliers: tuple[Multiplier, ...]
    cells: int
    mirrored: bool
    tail: float
    size: tuple[int, int]
    iterations: int


@serializable("optimal-noise")
@dataclass(frozen=True)
class OptimalNoise:
    r"""The optimal additive noise for a real query.

    Parameters
    ----------
    privacy : PureDP or ApproximateDP
    sensitivity : float
        Δ > 0, in units of the query.
    loss : {"absolute", "squared"}, dict, or convex callable
        What an error t costs; must grow on both sides. A callable is vectorised over arrays, and its
        values are taken as exact.

    Raises
    ------
    DesignError
        Another kind of privacy, a sensitivity that is not positive, a loss that is not convex.

    Notes
    -----
    Geng and Viswanath (2016) for δ = 0, where the answer is the staircase; Selvi, Liu and Wiesemann, *Differential
    privacy via distributionally robust optimization* (2025) for δ > 0. The lattice bounds are [new].

    Examples
    --------
    >>> result = OptimalNoise(privacy=ApproximateDP(1.0, 0.2)).solve(gap=0.01)
    >>> result.gap <= 0.01, round(result.value, 2), result.check()
    (True, 0.56, True)
    """

    privacy: PureDP | ApproximateDP
    sensitivity: float = 1.0
    loss: Any = "absolute"

    def __post_init__(self) -> None:
        if not isinstance(self.privacy, (PureDP, ApproximateDP)):
            raise DesignError.of("privacy", self.privacy, "must be PureDP or ApproximateDP")
        value = self.sensitivity
        if not (isinstance(value, (int, float, np.number)) and math.isfinite(value) and value > 0):
            raise DesignError.of("sensitivity", value, "must be a positive, finite number")
        object.__setattr__(self, "sensitivity", float(value))
        if self._epsilon > 200:
            raise DesignError.of("epsilon", self._epsilon, "must be at most 200: beyond, e^-ε is not a mass")
        Loss.of(self.loss)

    @property
    def _loss(self) -> Loss:
        return Loss.of(self.loss)

    @property
    def _epsilon(self) -> float:
        return self.privacy.epsilon

    @property
    def _delta(self) -> float:
        return self.privacy.delta if isinstance(self.privacy, ApproximateDP) else 0.0

    def _programmed_delta(self, gap: float) -> float:
        """The δ of the linear programs: 0 where δ is below the solver's reach, or cannot pay.

        Truncated Laplace noise saves the share log(1+r)/r of the Laplace cost. Where that is a small part of the
        gap asked for, pure noise is as good; its law and its multipliers are judged at the true δ anyway.
        """
        if self._delta == 0:
            return 0.0
        r = math.expm1(self._epsilon) / (2 * self._delta)
        return self._delta if self._delta >= _SMALLEST_DELTA and math.log1p(r) / r > gap / 20 else 0.0

    def model(self, *, cells: int = 4, reach: float = 3.0) -> Model:
        """Return the whole upper linear program in CVXPY, every row listed: for reading and for checking.

        Cells of width Δ/`cells`, centred on multiples of it, out to `reach` sensitivities. `solve` generates
        the rows it needs instead.
        """
        n, side = cells, math.ceil(reach * cells)
        width = Fraction(self.sensitivity) / n
        edges = [(Fraction(j) - Fraction(1, 2)) * width for j in range(-side, side + 2)]
        costs = np.array([float(c) for c in average_costs(self._loss, edges)])
        p = cp.Variable(2 * side + 1, nonneg=True, name="masses")
        normalisation = cp.sum(p) == 1
        growth = math.exp(self._epsilon)
        privacy = []
        for s in range(1, n + 1):
            for here, there, lost in ((p[:-s], p[s:], p[-s:]), (p[s:], p[:-s], p[:s])):
                privacy.append(cp.sum(cp.pos(here - growth * there)) + cp.sum(lost) <= self._delta)
        problem = cp.Problem(cp.Minimize(costs @ p), [normalisation, *privacy])
        return Model(problem, {"masses": p}, {"normalisation": normalisation, "privacy": privacy})

    # ------------------------------------------------------------------------------------------------------

    def solve(
        self,
        solver: str | None = None,
        *,
        gap: float = 0.01,
        cells: int | None = None,
        grid: str = "centred",
        max_cells: int = 256,
    ) -> OptimalNoiseResult:
        """Return a law, its cost, and a proved lower bound.

        Parameters
        ----------
        solver : {None, "highs"}
            The cuts are generated on HiGHS.
        gap : float
            Refine until (value - lower bound)/value is at most this.
        cells : int, optional
            Use exactly this many cells per sensitivity instead, whatever the gap.
        grid : {"centred", "edge"}
            Cells of the law centred on multiples of the width, with a narrow spike at 0 where that pays; or
            with a cell edge at 0 and no spike.
        max_cells : int
            Stop refining here; a note in the result says so.

        Raises
        ------
        DesignError
            Bad options.
        SolverError
            HiGHS failed.
        """
        if solver not in (None, "highs"):
            raise DesignError.of("solver", solver, 'cuts are generated on "highs"; model() is for the others')
        if not 0 < gap < 1:
            raise DesignError.of("gap", gap, "must be between 0 and 1")
        if grid not in ("centred", "edge"):
            raise DesignError.of("grid", grid, 'must be "centred" or "edge"')
        if cells is not None and not (int(cells) == cells and cells >= 1):
            raise DesignError.of("cells", cells, "must be a positive integer")
        started = time.perf_counter()
        delta = self._programmed_delta(gap if cells is None else 0.0)
        window, n = self._first_window(delta), cells or 0
        if not n:
            n = min(self._first_cells(gap), max_cells)
        best: _Attempt | None = None
        attempts = 0
        while True:
            attempts += 1
            found = self._attempt(n, window, grid, delta)
            best = found if best is None else _better(best, found)
            now = float(1 - best.bound / best.value)
            fixed = cells is not None
            if now <= gap or attempts >= 14:
                break
            # Mass that the relaxation hides in the tails asks for a wider window, the rest for finer cells.
            if found.tail > 1e-7 and (fixed or attempts < 12) and window < 1e4:
                window *= 1.4
                if fixed:
                    continue
            if fixed or n >= max_cells:
                break
            if found.tail <= 1e-3:
                n = min(max_cells, max(n + 1, math.ceil(n * min(3.0, math.sqrt(now / (0.85 * gap))))))
        return self._result(best, gap if cells is None else 1.0, attempts, time.perf_counter() - started)

    def _first_window(self, delta: float) -> float:
        """Sensitivities on each side: past the support of truncated Laplace noise."""
        if delta == 0:
            return 2.0 + 9.0 / self._epsilon
        support = math.log1p(math.expm1(self._epsilon) / (2 * delta)) / self._epsilon
        return 1.0 + max(support, min(1.6 * support, 2.0 + 12.0 / self._epsilon))

    def _first_cells(self, gap: float) -> int:
        """A guess from staircase-like noise: density at 0 over cost, both O(1) factors off."""
        e = self._epsilon
        absolute = math.exp(e / 2) / math.expm1(e) if e < 100 else math.exp(-e / 2)
        if self._delta:
            absolute = min(absolute, 1 / (4 * self._delta))
        return max(1, min(24, math.ceil(0.3 / (absolute * math.sqrt(gap / 0.01)))))

    def _attempt(self, n: int, window: float, grid: str, delta: float) -> _Attempt:
        """Solve both programs on one lattice."""
        width = Fraction(self.sensitivity) / n
        side = max(math.ceil(window * n), n + 1)
        loss = self._loss
        if loss.function is not None:
            check_loss(loss, float(width) * np.arange(-side - n - 1, side + n + 2))
        lower = lower_costs(loss, -side - n - 1, side + n + 1, width)
        inner = lower[n + 1 : -n - 1]
        mirrored = inner == inner[::-1]
        costs = np.array([float(c) for c in inner])
        scale = max(float(np.median(np.abs(costs))), 1e-300)
        line = _line(costs / scale, n, mirrored, half=False)
        tail = float(min(lower[n], lower[-n - 1])) / scale
        program = LatticeProgram(line, epsilon=self._epsilon, delta=delta, tail_cost=tail)
        _, _, tail_mass = program.solve(max(2e-4 * delta, 2e-9))
        multipliers = program.multipliers()
        scaled = [Multiplier(m.shift, m.psi * scale, m.total * scale) for m in multipliers]
        bound = weak_duality(
            lower, scaled, shift=n, epsilon=self._epsilon, delta=self._delta, mirrored=mirrored
        )
        seeds = program.cuts if grid == "centred" else []
        law, value, upper = self._law(n, side, grid, mirrored, seeds, delta)
        sizes = [p.size for p in (program, upper)]
        return _Attempt(
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

    def _law(
        self, n: int, side: int, grid: str, mirrored: bool, seeds: list[Any], delta: float
    ) -> tuple[CellNoise, Fraction, LatticeProgram]:
        """Solve the upper program and repair its answer."""
        half = grid == "edge"
        width = round_width(Fraction(self.sensitivity) / n)
        if delta == 0:
            side = min(side, 3 * n + 1)
        count = 2 * side if half else 2 * side + 1
        start = -count * width / 2
        edges = [Fraction(start) + i * Fraction(width) for i in range(count + 1)]
        exact = average_costs(self._loss, edges)
        shape = {"width": width, "cells_per_shift": n, "spike_width": width / _SPIKE}
        narrow = Fraction(width) / (2 * _SPIKE)
        spike_cost = average_costs(self._loss, [-narrow, narrow])[0]
        costs = np.array([float(c) for c in exact])
        scale = max(float(np.median(np.abs(costs))), 1e-300)
        if delta > 0:
            line = _line(costs / scale, n, mirrored, half=half)
            allowed = math.inf if half else float(spike_cost) / scale
            program = LatticeProgram(line, epsilon=self._epsilon, delta=delta, spike_cost=allowed)
            program.adopt(seeds)
            x, spike, _ = program.solve(max(1e-6 * delta, 2e-9))
            law = mixed_into_privacy(
                x[line.owner], spike, epsilon=self._epsilon, delta=delta, half=half, **shape
            )
            edges = [Fraction(law.start) + i * Fraction(width) for i in range(len(law.weights) + 1)]
            exact = average_costs(self._loss, edges) if len(law.weights) != count else exact
            extra = Fraction(0)
        else:
            decay = outward_decay(self._epsilon)
            tails = tail_costs(self._loss, edges, n, decay)
            tail_floats = (np.array([float(c) for c in tails[0]]), np.array([float(c) for c in tails[1]]))
            line = _geometric_line(costs / scale, tail_floats, scale, n, mirrored, half, float(decay))
            program = LatticeProgram(line, epsilon=self._epsilon, delta=0.0)
            x, _, _ = program.solve(2e-9)
            law = raised_into_privacy(x[line.owner][n:-n], epsilon=self._epsilon, **shape)
            extra = sum((c * w for c, w in zip(tails[0], law.weights[:n])), Fraction(0))
            extra += sum((c * w for c, w in zip(tails[1], law.weights[-n:])), Fraction(0))
        cost = sum((c * w for c, w in zip(exact, law.weights)), extra) + spike_cost * law.spike
        return law, cost / law.total, program

    def _result(self, best: _Attempt, gap: float, attempts: int, seconds: float) -> OptimalNoiseResult:
        value, bound = float(best.value), float(best.bound)
        value = math.nextafter(value, math.inf) if Fraction(value) < best.value else value
        bound = math.nextafter(bound, -math.inf) if Fraction(bound) > best.bound else bound
        notes = []
        reached = value - bound <= gap * value
        if not reached:
            notes.append(f"the gap asked for, {gap:g}, was not reached; raise max_cells")
        if self._loss.function is not None:
            notes.append(
                "the loss is a callable: its floating-point values are taken as exact, its convexity sampled"
            )
        law = best.law
        if law.spike:
            notes.append(
                f"a spike of mass {float(law.spike / law.total):.3g} and width {law.spike_width:.3g} sits at 0: "
                "δ is large enough that almost exact answers pay"
            )
        psi = np.array([m.psi for m in best.multipliers])
        certificate = NoiseCertificate(
            delta=law.exact_delta(self._epsilon),
            value=best.value,
            lower_bound=best.bound,
            cells=best.cells,
            shifts=np.array([m.shift for m in best.multipliers], dtype=np.int64),
            psi=psi,
            totals=np.array([m.total for m in best.multipliers]),
            mirrored=best.mirrored,
        )
        report = SolveReport(
            solver="highs",
            status="optimal" if reached else "gap not reached",
            seconds=seconds,
            variables=best.size[0],
            constraints=best.size[1],
            iterations=best.iterations,
        )
        return OptimalNoiseResult(
            design=self,
            mechanism=law,
            value=value,
            lower_bound=bound,
            report=report,
            notes=tuple(notes),
            certificate=certificate,
        )


def _better(a: _Attempt, b: _Attempt) -> _Attempt:
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
        cost=np.bincount(owner, weights=costs),
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

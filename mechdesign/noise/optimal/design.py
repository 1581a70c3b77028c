r"""The best additive noise in one dimension, proved: value, lower bound, and a law to sample.

.. math:: \min_F E_F\,\ell(T) \quad\text{s.t.}\quad P[T \in S] \le e^{\varepsilon} P[T + d \in S] + \delta
          \quad \text{for all } S,\; |d| \le \Delta .

Cells of width β = Δ/n turn it into a linear program from both sides. *Above*: a density constant on cells is private
for every real shift when it is for the n shifts by whole cells (`mechdesign.noise.cell_noise`). *Below*: any
noise, rounded at random to a neighbouring lattice point, is private for those shifts and costs no less than the
lattice costs (`lattice_costs`). Both errors are of order β², so few cells are enough. The law is repaired and
checked in exact arithmetic (`noise_repair`), the bound is weak duality in exact arithmetic (`lattice_bound`).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.optimal.costs import average_costs
from mechdesign.noise.optimal.lattice import Attempt, attempt, better
from mechdesign.noise.optimal.result import NoiseCertificate, OptimalNoiseResult
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import ApproximateDP, PureDP
from mechdesign.solvers import Model

__all__ = ["OptimalNoise"]

_SMALLEST_DELTA = 1e-7
"""Below, the linear programs run with δ = 0: HiGHS meets constraints to 1e-9 only."""


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
        if self.epsilon > 200:
            raise DesignError.of("epsilon", self.epsilon, "must be at most 200: beyond, e^-ε is not a mass")
        Loss.of(self.loss)

    @property
    def _loss(self) -> Loss:
        return Loss.of(self.loss)

    @property
    def epsilon(self) -> float:
        """ε of the requirement."""
        return self.privacy.epsilon

    @property
    def delta(self) -> float:
        """δ of the requirement, 0 for pure privacy."""
        return self.privacy.delta if isinstance(self.privacy, ApproximateDP) else 0.0

    def _programmed_delta(self, gap: float) -> float:
        """The δ of the linear programs: 0 where δ is below the solver's reach, or cannot pay.

        Truncated Laplace noise saves the share log(1+r)/r of the Laplace cost. Where that is a small part of the
        gap asked for, pure noise is as good; its law and its multipliers are judged at the true δ anyway.
        """
        if self.delta == 0:
            return 0.0
        r = math.expm1(self.epsilon) / (2 * self.delta)
        return self.delta if self.delta >= _SMALLEST_DELTA and math.log1p(r) / r > gap / 20 else 0.0

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
        growth = math.exp(self.epsilon)
        privacy = []
        for s in range(1, n + 1):
            for here, there, lost in ((p[:-s], p[s:], p[-s:]), (p[s:], p[:-s], p[:s])):
                privacy.append(cp.sum(cp.pos(here - growth * there)) + cp.sum(lost) <= self.delta)
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
        best: Attempt | None = None
        attempts = 0
        while True:
            attempts += 1
            found = attempt(
                self._loss,
                sensitivity=self.sensitivity,
                epsilon=self.epsilon,
                delta=self.delta,
                programmed=delta,
                cells=n,
                window=window,
                grid=grid,
            )
            best = found if best is None else better(best, found)
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
            return 2.0 + 9.0 / self.epsilon
        support = math.log1p(math.expm1(self.epsilon) / (2 * delta)) / self.epsilon
        return 1.0 + max(support, min(1.6 * support, 2.0 + 12.0 / self.epsilon))

    def _first_cells(self, gap: float) -> int:
        """A guess from staircase-like noise: density at 0 over cost, both O(1) factors off."""
        e = self.epsilon
        absolute = math.exp(e / 2) / math.expm1(e) if e < 100 else math.exp(-e / 2)
        if self.delta:
            absolute = min(absolute, 1 / (4 * self.delta))
        return max(1, min(24, math.ceil(0.3 / (absolute * math.sqrt(gap / 0.01)))))

    def _result(self, best: Attempt, gap: float, attempts: int, seconds: float) -> OptimalNoiseResult:
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
            delta=law.exact_delta(self.epsilon),
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
            solver_report=report,
            notes=tuple(notes),
            certificate=certificate,
        )

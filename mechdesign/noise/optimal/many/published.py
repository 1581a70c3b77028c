r"""The densities of the literature for many compositions: least divergence at a given cost, then scaled to the requirement.

minimise the cost of a lattice law subject to a Rényi divergence of order a between it and its shift by the sensitivity.

- a = 1, *cactus* noise: the least Kullback–Leibler divergence, best where infinitely many coordinates are composed.
  Alghamdi, Asoodeh, Calmon, Kosut, Sankar and Wei, *Cactus mechanisms: optimal differential privacy mechanisms in the
  large-composition regime* (2022).
- a > 1: the least Rényi divergence, for moderately many. Gilani, Kurri, Kosut and Sankar (2025), who search a.

How much divergence is allowed follows from the requirement: δ of K coordinates, certified as every cell law is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from types import NoneType
from typing import Any, NoReturn

import numpy as np
from scipy import optimize

from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.calibration.design import Calibration
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.costs import average_costs, tail_costs
from mechdesign.noise.optimal.many.divergence import Divergence
from mechdesign.noise.optimal.many.loss import composed_upper, dominating_loss
from mechdesign.noise.optimal.many.mechanism import CellProduct
from mechdesign.noise.optimal.many.newton import Concave, Descent
from mechdesign.noise.optimal.many.question import cost_of
from mechdesign.noise.optimal.many.result import ManyNoiseResult
from mechdesign.noise.optimal.many.search import BITS, Candidate
from mechdesign.noise.optimal.many.solve import finished
from mechdesign.noise.optimal.repair import round_width
from mechdesign.problem.checks import UP, instance, number, one_of, positive, settle, whole
from mechdesign.problem.design import OldDesign, refuse_unknown, wanted_gap
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import ApproximateDP
from mechdesign.solvers.deadline import Deadline, too_late
from mechdesign.typing import Array

__all__ = ["LeastDivergence"]

_CELLS = 100  # on each side
_REACH = 9.0  # standard deviations
_ORDERS = (1.0, 3.0, 10.0, 30.0)


@serializable("least-divergence")
@dataclass(frozen=True)
class LeastDivergence(OldDesign):
    r"""Noise of the least Rényi divergence at its cost, for K coordinates.

    Parameters
    ----------
    privacy : ApproximateDP
        δ > 0.
    sensitivity : float
        Δ > 0 of every coordinate.
    dimension : int
        K ≥ 2.
    order : float or None
        a ≥ 1; 1 is the cactus law; None tries 1, 3, 10 and 30, as long as they get better.
    loss : {"absolute", "squared"} or dict
        Of one coordinate.

    Raises
    ------
    DesignError
        Bad input; a callable loss.

    Examples
    --------
    >>> cactus = LeastDivergence(ApproximateDP(8.0, 1e-3), dimension=20).solve()
    >>> 4.5 < cactus.value < 4.6, cactus.certificate.verify()
    (True, True)
    """

    privacy: ApproximateDP
    sensitivity: float = 1.0
    dimension: int = 2
    order: float | None = 1.0
    loss: Any = "squared"

    def __post_init__(self) -> None:
        if not isinstance(self.privacy, ApproximateDP) or not self.privacy.delta > 0:
            raise DesignError.of("privacy", self.privacy, "must be ApproximateDP with delta > 0")
        settle(
            self,
            sensitivity=positive("sensitivity", self.sensitivity, side=UP),
            dimension=whole("dimension", self.dimension, 2, 10**6),
        )
        if self.order is not None:
            settle(self, order=number("order", self.order))
            if not 1 <= self.order <= 1000:
                raise DesignError.of("order", self.order, "must be between 1 and 1000")
        if Loss.of(self.loss).function is not None:
            raise DesignError.of("loss", self.loss, 'must be "absolute", "squared" or a dict of the two')

    @property
    def changed(self) -> None:
        """All coordinates may move at once."""

    def model(self, **options: Any) -> NoReturn:
        """Refuse: a convex program at each divergence, solved by Newton's method."""
        raise DesignError.of("model", type(self).__name__, "a search over divergences has no program")

    def solve(
        self,
        solver: str | None = None,
        *,
        gap: float | None = None,
        certify: bool = True,
        time_limit: float | None = None,
        **options: Any,
    ) -> ManyNoiseResult:
        """Search the divergence (and the order, where none is given) at which δ is spent, and certify the law.

        Parameters
        ----------
        solver : None
            There is no program to give to a solver.
        gap : float, optional
            Without effect: the search proves no bound.
        time_limit : float, optional
            Seconds; past them the best order tried is returned.

        Raises
        ------
        DesignError
            A solver is named, or an option.
        SolverError
            No law was found, or none in time.
        """
        if instance("solver", solver, str, NoneType) is not None:
            raise DesignError.of("solver", solver, "must be None: a search over divergences has no program")
        refuse_unknown(options, "there are none")
        one_of("certify", certify, (True, False))
        wanted_gap(gap, 0.1)
        deadline = Deadline(time_limit)
        found: list[Candidate] = []
        for order in _ORDERS if self.order is None else (self.order,):
            if found and (deadline.passed or (len(found) > 1 and found[-1].value > found[-2].value)):
                break
            candidate = _Scaled.of(self, order, deadline).law()
            if candidate is not None:
                found.append(candidate)
        if not found:
            if deadline.passed:
                raise too_late("least divergence")
            raise SolverError("no law of least divergence was found", solver="newton", status="failed")
        return finished(
            self, sorted(found, key=lambda c: c.value), None, certify=certify, gap=gap, deadline=deadline
        )


@dataclass(frozen=True)
class _Scaled:
    """The laws of one order on one lattice."""

    design: LeastDivergence
    descent: Descent
    width: float
    decay: Fraction
    start: Array

    @classmethod
    def of(cls, design: LeastDivergence, order: float, deadline: Deadline) -> _Scaled:
        """Take a lattice that fits Gaussian noise."""
        normal = Calibration("gaussian", design.privacy, design.sensitivity, design.dimension).solve(
            certify=False
        )
        ratio = normal.mechanism.standard_deviation / design.sensitivity
        cells = max(1, min(64, round(_CELLS / (_REACH * ratio))))
        side = max(math.ceil(_REACH * ratio * cells), 2 * cells + 2)
        if side > 1200:
            raise SolverError(
                f"a lattice of {side} cells is too large here; Gaussian noise is all but as good",
                solver="newton",
                status="too large",
            )
        width = round_width(Fraction(design.sensitivity) / cells)
        decay = Fraction(round(2**30 * math.exp(-min(4 / ratio, 20.0))), 2**30)
        loss, middles = Loss.of(design.loss), 2 * np.arange(side + 1)
        costs = average_costs(loss, middles, Fraction(width) / 2).floats()
        problem = Divergence(order, side, cells, float(decay))
        # what the repetitions cost, shared among all copies of a cell
        repeated = tail_costs(loss, middles, Fraction(width) / 2, cells, decay)[1].floats()
        costs[-cells:] = (costs[-cells:] + repeated) * (1 - float(decay))
        x = width * np.arange(side + 1)
        start = -((x / normal.mechanism.standard_deviation) ** 2) / 2 - 1e-3 * x / x[-1]
        scaled = costs / float(np.median(costs))
        return cls(design, Descent(problem, cells, scaled, 0.0, deadline), width, decay, start)  # type: ignore[arg-type]

    def at(self, level: float, phi: Array) -> Array | None:
        """The law of least cost with log D = level."""
        d = self.descent
        descent = Descent(d.problem, d.shift, d.costs, level, d.deadline)
        first = descent.restored(phi)
        return None if first is None else descent.run(first, Concave.around(first, start=1e-6))

    def cell_noise(self, phi: Array) -> CellNoise:
        """Integers with geometric tails."""
        masses = np.exp(phi[self.descent.problem.fold] - phi.max())
        weights = tuple(int(Fraction(m) * 2**BITS) for m in masses.tolist())
        start = -len(weights) * self.width / 2
        return CellNoise(weights, self.width, start, self.descent.shift, decay=self.decay)

    def spent(self, phi: Array) -> float:
        """log of the certified δ over what is allowed."""
        privacy = self.design.privacy
        loss = dominating_loss(self.cell_noise(phi))
        upper = composed_upper(loss, self.design.dimension, privacy.epsilon)
        return math.log(max(upper, 1e-300) / privacy.delta)

    def law(self) -> Candidate | None:
        """Find the divergence at which δ is spent by secant steps, then meet it from below by φ → (1 + τ)φ.

        Past the deadline the last law that was reached is met, Gaussian masses where none was.
        """
        normal, deadline = self._normal(), self.descent.deadline
        level = self.descent.problem.log_delta(normal, self.descent.shift)
        phi, seen = None if deadline.passed else self.at(level, self.start), []
        for _ in range(7):
            if phi is None or deadline.passed:
                break
            seen.append((level, self.spent(phi)))
            if abs(seen[-1][1]) < 2e-3:
                break
            slope = 6.0 if len(seen) < 2 else (seen[-1][1] - seen[-2][1]) / (seen[-1][0] - seen[-2][0])
            level -= float(np.clip(seen[-1][1] / max(slope, 0.5), -1.0, 1.0))
            phi = self.at(level, phi)
        if phi is None and not deadline.passed:
            return None
        met = self._met(normal if phi is None else phi)
        if met is None:
            return None
        noise = CellProduct(self.cell_noise(met), self.design.dimension)
        order = self.descent.problem.order  # type: ignore[attr-defined]
        name = "cactus" if order == 1 else f"Rényi, order {order:g}"
        return Candidate(name, noise, cost_of(noise, Loss.of(self.design.loss)))

    def _normal(self) -> Array:
        copies = self.descent.problem.copies
        return self.start - math.log(float(copies @ np.exp(self.start)))

    def _met(self, phi: Array) -> Array | None:
        def over(u: float) -> float:
            return self.spent(phi * math.exp(u))

        low, high = (-0.02, 0.0) if over(0.0) > 0 else (0.0, 0.02)
        while low < 0 and over(low) > 0:
            low *= 2
            if low < -2:
                return None
        if self.descent.deadline.passed:
            return phi * math.exp(low)
        if high > 0 and over(high) <= 0:
            return phi * math.exp(high)
        root = float(optimize.brentq(over, low, high, xtol=1e-8))
        while over(root) > 0:
            root -= 1e-7
        return phi * math.exp(root)

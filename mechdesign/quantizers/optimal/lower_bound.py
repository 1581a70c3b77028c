r"""What every method hands back, and the lower bound that each of them proves in the same way.

Any slopes λ(x), μ(x) give a gradient G and a constant with

.. math:: \text{loss} \ge \int (\lambda + \mu x - b|\mu|)\,dF + \min_{a \in A} G \cdot a

for all mechanisms with these outputs (`expected_loss`); the minimum over the polytope A is bounded by the
multipliers of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mechdesign.quantizers.mechanism.error_curve import largest
from mechdesign.quantizers.optimal.expected_loss import FloorProblem
from mechdesign.quantizers.optimal.pieces import pieces
from mechdesign.quantizers.optimal.proof import Lines, Proof, fill_proof
from mechdesign.typing import Array

__all__ = ["FloorSolution", "at_point_masses", "lower_bound", "rounding_decides", "without_privacy"]

_LARGEST = 200.0  # the largest ε that is inside the stated magnitudes


@dataclass(frozen=True, eq=False)
class FloorSolution:
    """Floors, what they achieve and what is proved.

    Attributes
    ----------
    floors : ndarray (m,)
    value : float
        The loss of the block fill of `floors`.
    lower_bound : float
        No ε-LDP mechanism with these outputs, and no more bias than allowed, does better.
    iterations : int
        Newton steps, or rounds of a cutting-plane method.
    multipliers : ndarray
        Of the rows of `range_constraints`.
    atom_slopes : ndarray
        μ at the prior's point masses.
    cuts : int
        Cuts in the last linear program (cutting planes only).
    methods : tuple of str
        The methods tried, in order.
    proof : Proof, optional
        What the lower bound was found from.
    margin : float
        What rounding took off the lower bound.
    """

    floors: Array
    value: float
    lower_bound: float
    iterations: int
    multipliers: Array
    atom_slopes: Array
    cuts: int = 0
    methods: tuple[str, ...] = ()
    proof: Proof | None = None
    margin: float = 0.0

    @property
    def gap(self) -> float:
        """Relative distance between value and bound."""
        return (self.value - self.lower_bound) / max(abs(self.value), 1e-300)

    def proved(self, gap: float) -> bool:
        """Whether the gap is at most this, or no method could make it much smaller."""
        return self.gap <= gap or rounding_decides(self.value, self.lower_bound, self.margin)

    def merged(self, other: FloorSolution | None) -> FloorSolution:
        """Return the better floors with the better bound and what belongs to it, efforts added."""
        if other is None:
            return self
        best = other if other.value < self.value else self
        return replace(
            other if other.lower_bound > self.lower_bound else self,
            floors=best.floors,
            value=best.value,
            iterations=self.iterations + other.iterations,
            cuts=max(self.cuts, other.cuts),
            methods=self.methods + other.methods,
        )


def rounding_decides(value: float, bound: float, margin: float) -> bool:
    """Whether next to nothing but the bound's margin for rounding keeps value and bound apart."""
    return value - bound <= 1.05 * margin


def lower_bound(
    problem: FloorProblem, constant: float, gradient: Array, multipliers: Array, scale: float
) -> tuple[float, float]:
    r"""Bound ∫(λ + μx) dF + min_{a ∈ A} G·a from below, rounding included; and return what rounding took off it.

    For any ν ≥ 0 on the rows of C that fix the range of means, the minimum is at least
    :math:`\nu \cdot b + \min_k (G - C^\top \nu)_k \cdot \{1/\rho \text{ or } 1\}`, the last factor being the
    extreme of Σa that is worse. The margin covers the error of the integrals that made G.
    """
    C, b = problem.constraints
    nu = np.maximum(multipliers, 0.0)
    nu[:2] = 0.0
    rest = gradient - nu @ C
    least = float(rest.min())
    bound = constant + float(nu @ b) + (least / problem.rho if least >= 0 else least)
    size = scale + float(nu @ np.abs(b)) + float(np.abs(gradient).max()) + float((nu @ np.abs(C)).max())
    margin = problem.accuracy * size
    return float(bound - margin), float(margin)


def without_privacy(problem: FloorProblem, solution: FloorSolution, epsilon: float) -> FloorSolution:
    """Return the solution with a bound for a budget beyond that of the problem: the loss without privacy.

    Its lines are chords through neighbouring outputs, so that no reduced cost is negative and ρ multiplies none.
    """
    if not problem.loss.polynomial or epsilon > _LARGEST:
        return replace(solution, lower_bound=-np.inf, proof=None)
    floors, nothing = (
        np.full(len(problem.bins), 1.0 / (problem.rho - 1.0)),
        np.zeros_like(solution.multipliers),
    )
    proof, fill = fill_proof(problem, floors, nothing), pieces(problem, floors)
    value = fill.expected_loss(problem)
    if problem.objective == "worst":
        value, x = largest(fill.table, problem.loss)
        lines = Lines(np.array([x]), np.ones(1), *problem.slopes(np.array([x]), *fill.outputs(np.array([x]))))
        proof = Proof((), (lines,), nothing)
    margin = problem.scale * (problem.accuracy + len(floors) * float(floors[0]))
    return replace(solution, lower_bound=value - margin, proof=proof, multipliers=nothing)


def at_point_masses(
    problem: FloorProblem, floors: Array, lam: Array, mu: Array
) -> tuple[float, float, Array]:
    """What point masses add to the loss of the floors' fill; and, with slopes there, to a bound's constant and gradient."""
    points, weights = problem.atoms
    table = pieces(problem, floors)
    rows = table.rows_at(points, table.at(points))
    value = float(weights @ np.sum(rows * problem.loss(problem.bins - points[:, None]), axis=1))
    return value, float(weights @ (lam + mu * points)), weights @ problem.reduced(points, lam, mu)

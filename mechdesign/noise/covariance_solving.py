r"""Solve a declared problem on one covariance: its semidefinite program, and multipliers that prove a bound.

The semidefinite program is solved in coordinates where the best covariance without own rows is near the identity, with
budget and rows a little stricter than stated, so that the law keeps them in exact arithmetic. Its multipliers prove
nearly as much as the program attains: the fixed point at V' improves the weights of the changes, and where V' is
singular a little of the loss's own weights is mixed in.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
from scipy import sparse

from mechdesign import solvers
from mechdesign.errors import InfeasibleError, SolverError
from mechdesign.evidence.exact import fraction, rational
from mechdesign.model.exactly import project
from mechdesign.model.problem import named
from mechdesign.noise.covariance_bound import CovarianceBound, DeclaredCovariance, factor_below, polar
from mechdesign.noise.fixed_point import Dense
from mechdesign.solvers import Deadline
from mechdesign.typing import Array

_MIXED = (0.0, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8)
"""Shares of the objective's own weights mixed into V'; the first that makes it positive definite is used."""
_ROOM = 1e-6
"""Own rows that are all broken by more than this, relatively, contradict each other."""
_DIGITS = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
"""Tolerances of Clarabel: it stalls at closer ones, and the bounds show how much is left."""


class Semidefinite:
    """The semidefinite program of a declared covariance.

    Parameters
    ----------
    declared : DeclaredCovariance
    solver : str, optional
    deadline : Deadline
    options
        Options of the solver.
    """

    def __init__(
        self, declared: DeclaredCovariance, solver: str | None, deadline: Deadline, **options: Any
    ) -> None:
        self.declared, self.solver, self.deadline = declared, solver, deadline
        self.options = {**_DIGITS, **options} if solver in (None, "clarabel") else options

    @cached_property
    def frame(self) -> tuple[Array, float]:
        """P and the unit u, such that the covariance is u P Z Pᵀ with Z near the identity."""
        return self._frame(factor_below(self.declared.plain_weights))

    def _frame(self, factor: Array | None) -> tuple[Array, float]:
        """Return the frame in which the best covariance for weights XᵀX is near the identity."""
        declared = self.declared
        root = np.eye(declared.n) if factor is None or len(factor) < declared.n else factor
        x = declared.changes @ root.T
        _, singular, directions = np.linalg.svd(x, full_matrices=False)
        stretch = np.sqrt(np.maximum(singular / singular[0], 1e-12))
        size = float(np.abs(x @ directions.T / stretch).max())
        return np.linalg.solve(root, directions.T * stretch), size**2 / declared.budget

    def use_frame_of(self, found: CovarianceBound) -> None:
        """Use the frame of V' from now on: where rows move the optimum by orders of magnitude, solvers lose digits in the frame of the objective."""
        self.__dict__["frame"] = self._frame(found.factor)
        self.__dict__.pop("scaled", None)

    @cached_property
    def scaled(self) -> tuple[Array, Array, Array, Array, float, Array]:
        """Coefficients of vec Z and of further variables, constants and sizes of own rows; units of the cost and of further variables.

        A further variable is scaled by the cost it is part of, else by the entries its rows compare it with: in another unit it could vanish in a solver's absolute tolerance.
        """
        declared, (frame, unit) = self.declared, self.frame
        weights = unit * np.einsum("ia,rij,jb->rab", frame, declared.weights, frame).reshape(
            -1, declared.n**2
        )
        further = declared.matrix[:, declared.n**2 :].toarray()
        loss = unit * frame.T @ declared.plain_weights @ frame
        tall = float(np.linalg.norm(loss)) or 1.0
        against = np.linalg.norm(weights, axis=1)
        held = against[:, None] / np.where(further, np.abs(further), np.inf)
        paid, units = np.abs(declared.cost[declared.n**2 :]), held.max(axis=0, initial=0.0)
        units = np.where(paid > 0, tall / np.where(paid > 0, paid, 1.0), np.where(units > 0, units, tall))
        sizes = against + np.abs(further) @ units
        sizes = np.where(sizes > 0, sizes, 1.0)
        return (
            weights / sizes[:, None],
            further * units / sizes[:, None],
            declared.offsets / sizes,
            sizes,
            tall,
            units,
        )

    def solve(self, margin: float) -> tuple[Array, Array, Array]:
        """Return Z, further variables and multipliers of own rows from the program that is stricter by a margin.

        One matrix inequality, [[Z, I], [I, W]] ⪰ 0, makes W at least the inverse of Z; a change x then consumes at most xᵀ W x, a linear row. With one matrix
        inequality for each change, 20 changes of 20 numbers take Clarabel twelve times as long.
        """
        declared, (frame, unit) = self.declared, self.frame
        weights, further, constants, sizes, tall, units = self.scaled
        size = declared.n
        whole = cp.Variable((2 * size, 2 * size), PSD=True, name="covariance and precision")
        z, precision = whole[:size, :size], whole[size:, size:]
        t = cp.Variable(max(declared.further, 1), name="further")
        x = np.linalg.solve(frame, declared.changes.T).T / math.sqrt(unit * declared.budget)
        squares = np.einsum("ki,kj->kij", x, x).reshape(len(x), -1)
        rows = [
            named("inverse", whole[:size, size:] == np.eye(size)),
            named("privacy", squares @ cp.vec(precision, order="C") <= 1 - margin),
        ]
        below, equal = declared.equal == 0, declared.equal != 0
        for name, chosen in (("own", below), ("equal", equal)):
            if chosen.any():
                sides = weights[chosen] @ cp.vec(z, order="C") + constants[chosen]
                if declared.further:
                    sides = sides + further[chosen] @ t
                rows.append(named(name, sides <= -margin if name == "own" else sides == 0))
        loss = cp.sum(cp.multiply(unit * frame.T @ declared.cost_weights @ frame / tall, z))
        if declared.further:
            loss = loss + (declared.cost[declared.n**2 :] * units / tall) @ t
        program = cp.Problem(cp.Minimize(loss), rows)
        found = solvers.solve(program, self.solver, deadline=self.deadline, **self.options)
        self.report = found
        multipliers = np.zeros(len(declared.family))
        for name, chosen in (("own", below), ("equal", equal)):
            if chosen.any():
                multipliers[chosen] = np.ravel(found.dual[name])
        values = found.primal[t.name()] * units if declared.further else np.zeros(0)
        return found.primal[whole.name()][:size, :size], values, multipliers * tall / sizes

    def whitening(self, z: Array) -> Array:
        """Return R with (RᵀR)⁻¹ = u P Z Pᵀ, moved onto the equalities."""
        frame, unit = self.frame
        if (self.declared.equal != 0).any():
            weights, further, constants, *_ = self.scaled
            chosen = (self.declared.equal != 0) & ~further.any(axis=1)
            rows = weights[chosen]
            for _ in range(3):
                sides = rows.reshape(-1, *z.shape)
                directions = (z @ sides @ z).reshape(len(rows), -1)
                off = rows @ z.ravel() + constants[chosen]
                z = z - (np.linalg.lstsq(rows @ directions.T, off, rcond=1e-9)[0] @ directions).reshape(
                    z.shape
                )
        values, basis = np.linalg.eigh((z + z.T) / 2)
        if not values[0] > 0:
            raise SolverError(
                "the program's answer leaves a direction out",
                solver=self.solver or "clarabel",
                status="check",
            )
        return np.asarray(np.linalg.solve(frame.T, basis / np.sqrt(values)).T / math.sqrt(unit))

    def proof(self, multipliers: Array) -> CovarianceBound | None:
        """Return the proof of a bound from multipliers near these; None if V' is not positive definite."""
        declared = self.declared
        exact = self._free_of_charges(
            np.where(declared.equal != 0, multipliers, np.maximum(multipliers, 0.0))
        )
        start = self._free_of_charges(declared.start)
        for share in map(Fraction, _MIXED):
            mixed = tuple((1 - share) * nu + share * other for nu, other in zip(exact, start))
            if not declared.admissible(mixed):
                return None
            shifted, charges, _ = declared.shifted(mixed)
            if any(charges):
                return None
            factor = factor_below(np.array([[float(x) for x in row] for row in shifted]))
            if factor is not None:
                break
        else:
            return None
        ((weights, _),) = Dense(factor, declared.changes).solved(1e-11, self.deadline).multipliers
        roots = np.sqrt(np.where(weights > 1e-15 * weights.max(), weights, 0.0))
        return CovarianceBound(mixed, roots, factor, polar(roots[:, None] * declared.changes, factor))

    def _free_of_charges(self, multipliers: Array) -> tuple[Fraction, ...]:
        """Move multipliers so that each further variable has reduced cost 0 exactly."""
        declared = self.declared
        found = [rational(nu) for nu in multipliers.tolist()]
        equations = []
        for j in range(declared.further):
            column = declared.matrix[:, [declared.n**2 + j]].tocoo()
            terms = {int(i): rational(a) for i, a in zip(column.coords[0], column.data)}
            if any(found[i] for i in terms):
                equations.append((terms, rational(declared.cost[declared.n**2 + j])))
        return tuple(map(fraction, project(equations, found) if equations else found))


def explained(
    program: Semidefinite, error: InfeasibleError | SolverError | None
) -> InfeasibleError | SolverError:
    """Return the error that names own families that contradict each other and the requirement, or says that the rows leave no room."""
    declared = program.declared
    own = [k for k, label in enumerate(declared.labels) if label != "objective"]
    if not own:
        return error or SolverError("no covariance passes its own checks", solver="clarabel", status="check")
    excess, proved = _excess(program, own)
    if excess <= _ROOM and not proved:
        words = " and ".join(repr(declared.labels[k]) for k in own)
        reason = f"{words}: leave no covariance inside: a cap is at its floor, or no covariance is the best; allow a millionth more"
        return SolverError(reason, solver=program.solver or "clarabel", status="check")
    for k in list(own):
        rest = [other for other in own if other != k]
        found, also = _excess(program, rest) if rest else (0.0, False)
        if found > _ROOM or also:
            own, proved = rest, also
    words = " and ".join(
        repr(name) for name in (declared.privacy[0].label, *(declared.labels[k] for k in own))
    )
    proof = "recomputed by tangents" if declared.curved else "proved in rationals"
    how = proof if proved else "by the solver; not proved"
    return InfeasibleError(f"no covariance meets {words} together ({how})")


def _excess(program: Semidefinite, families: list[int]) -> tuple[float, bool]:
    """Return the least relative violation of some row of these families, and whether a bound proves that one is violated."""
    declared, sizes = program.declared, program.scaled[3]
    width = len(declared.cost)
    rows = np.flatnonzero(np.isin(declared.family, families))
    both = rows[declared.equal[rows] != 0]
    chosen, signs = np.concatenate([rows, both]), np.concatenate([np.ones(len(rows)), -np.ones(len(both))])
    matrix = sparse.coo_array(sparse.diags_array(signs) @ declared.matrix[chosen])
    count = len(chosen)
    places = np.vstack(
        [
            np.column_stack(matrix.coords),
            np.column_stack([np.arange(count + 1), np.full(count + 1, width)]),
        ]
    )
    order = np.lexsort((places[:, 1], places[:, 0]))
    values = np.concatenate([matrix.data, -sizes[chosen], [-1.0]])
    cost = np.zeros(width + 1)
    cost[width] = 1.0
    relaxed = replace(
        declared,
        cost=cost,
        constant=0.0,
        labels=("objective",),
        curved=(),
        family=np.zeros(count + 1, dtype=np.int64),
        equal=np.zeros(count + 1, dtype=np.int64),
        offsets=np.concatenate([signs * declared.offsets[chosen], [-1.0]]),
        places=places[order].astype(np.int64),
        coefficients=values[order],
    )
    again = Semidefinite(relaxed, program.solver, program.deadline)
    again.__dict__["frame"] = program.frame
    _, further, multipliers = again.solve(0.0)
    found = again.proof(multipliers)
    return float(further[-1]), found is not None and found.bound(relaxed) > 0

r"""The optimal matrix mechanism for Gaussian noise: many linear queries on counts, from one set of correlated noises.

One person changes at most c of n counts, each by at most a. Released is :math:`z = R x + \mathcal N(0, I)`; a change d spends
:math:`\lVert R d \rVert^2 \le \mu^2`, and the answers :math:`A x` are made from z with covariance :math:`A (R^\top R)^{-1} A^\top`:

.. math:: \min_R \operatorname{tr}\bigl(A (R^\top R)^{-1} A^\top\bigr) \ \text{ or }\ \max_j \bigl(A (R^\top R)^{-1} A^\top\bigr)_{jj}
   \quad\text{s.t.}\quad \max_d \lVert R d \rVert^2 \le \mu^2 .

For prefix sums and one changed count these are the optimal factorizations that private continual counting and DP-FTRL want.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from types import NoneType
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd

from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.matrix.certificate import MatrixCertificate
from mechdesign.noise.matrix.question import MatrixQuestion
from mechdesign.noise.matrix.result import MatrixResult
from mechdesign.noise.matrix.solving import solve_strategy, triangular
from mechdesign.noise.matrix.strategy import StrategyNoise
from mechdesign.problem.checks import instance, one_of
from mechdesign.problem.design import OldDesign, refuse_unknown, wanted_gap
from mechdesign.solvers import Deadline, Model
from mechdesign.solvers.one_thread import one_thread
from mechdesign.typing import Array, Status

__all__ = ["MatrixMechanism"]


@serializable("matrix-mechanism")
@dataclass(frozen=True, eq=False)
class MatrixMechanism(MatrixQuestion, OldDesign):
    r"""The least Gaussian noise for the answers to linear queries on counts.

    Parameters
    ----------
    workload : Workload or array_like, shape (m, n)
        A: ``Workload.prefix_sums(n)``, ``ranges``, ``marginals``, ``kron`` of these, or a matrix. Up to 2,048 counts.
    privacy : ApproximateDP or ZeroConcentratedDP
    changed : int
        c: how many counts one person changes, at most. For c > 1 the changes are listed: up to 10⁷ numbers of them.
    most : float
        a: the most that one count changes.
    signed : bool
        Whether some counts may rise for one person while others fall (as when a person is replaced; state c for the
        difference then). False: one person more or less, counts only rise or only fall.
    loss : {"total", "largest"}
        The sum of the variances of the answers, or the largest of them.

    Raises
    ------
    DesignError
        A workload of rank 0 or not finite; too many counts, changes, or (for the largest error) queries; δ = 0.

    Notes
    -----
    Li, Miklau, Hay, McGregor and Rastogi (2015), *The matrix mechanism*; Denisov et al. (2022) for streams, whose fixed point for
    prefix sums is this one. The loads for the largest error, the joint extrapolation and the proved bounds are [new].

    Examples
    --------
    >>> import mechdesign as md
    >>> totals = md.MatrixMechanism(md.Workload.prefix_sums(20), md.ApproximateDP(1.0, 1e-6)).solve()
    >>> round(totals.value * totals.design.budget, 4), totals.gap < 1e-6, totals.certificate.verify()
    (61.5275, True, True)
    >>> answers = totals.mechanism.release(range(20))          # twenty running totals
    >>> steps = totals.mechanism.stream(range(20))             # or one by one, as the counts come
    >>> answers.shape, type(next(steps)).__name__
    ((20,), 'float')
    """

    def model(self, **options: Any) -> Model:
        """Return the SDP over :math:`\\Sigma`, in coordinates where the total loss is the trace.

        Constraints: "privacy", a matrix-fractional one a change; "errors", one an answer, for the largest error.
        """
        refuse_unknown(options, "the model has none")
        root, changes = self.workload.root, self.changes
        vectors = changes.vectors() @ root.T
        s = cp.Variable((len(root), len(root)), PSD=True, name="covariance")
        privacy = [cp.matrix_frac(row, s) <= 1 for row in vectors if row.any()]
        if not self.largest:
            return Model(
                cp.Problem(cp.Minimize(cp.trace(s)), privacy), {"covariance": s}, {"privacy": privacy}
            )
        q, t = np.linalg.qr(root.T)
        answers, top = np.linalg.solve(t, (self.workload.dense() @ q).T).T, cp.Variable(name="largest")
        errors = [cp.sum(cp.multiply(np.outer(row, row), s)) <= top for row in answers]
        problem = cp.Problem(cp.Minimize(top), [*privacy, *errors])
        return Model(problem, {"covariance": s}, {"privacy": privacy, "errors": errors})

    def solve(
        self,
        solver: str | None = None,
        *,
        gap: float | None = None,
        certify: bool = True,
        time_limit: float | None = None,
        **options: Any,
    ) -> MatrixResult:
        """Return the strategy, made to keep the budget for sure, and a lower bound by weak duality; gap 1e-6 by default.

        Parameters
        ----------
        solver : {None, "fixed-point"}
            `model` is for reading, and for solvers outside; the fixed point proves both its bounds.

        Raises
        ------
        SolverError
            The counts' weights are further apart than doubles hold.
        """
        if instance("solver", solver, str, NoneType) not in (None, "fixed-point"):
            raise DesignError.of("solver", solver, 'must be "fixed-point": it proves both its bounds')
        refuse_unknown(options, "the fixed point has none")
        one_of("certify", certify, (True, False))
        wanted, deadline, started = wanted_gap(gap, 1e-6), Deadline(time_limit), time.perf_counter()
        with one_thread():
            return self._solved(solver, wanted, deadline, started, certify=certify)

    def _solved(
        self, solver: str | None, wanted: float, deadline: Deadline, started: float, *, certify: bool
    ) -> MatrixResult:
        found = solve_strategy(
            self.workload, self.changes, largest=self.largest, gap=wanted / 2, deadline=deadline
        )
        strategy = self._scaled(triangular(found.strategy) if self.workload.causal else found.strategy)
        noise = StrategyNoise(self.workload, strategy, self.budget)
        evidence = MatrixCertificate(self, noise, 0.0, found.lower_bound * self.unit, found.multipliers)
        evidence = evidence.claiming()
        value, bound = evidence.value, evidence.lower_bound
        if not (math.isfinite(value) and value > 0):
            raise SolverError(
                "the strategy is further apart in size than doubles hold",
                solver="fixed-point",
                status="range",
            )
        near = value - bound <= wanted * value
        status = Status.OPTIMAL if near else Status.LIMIT if found.late or deadline.passed else Status.GAP
        rank = len(strategy)
        report = SolveReport(
            "fixed-point",
            status if certify else Status.UNCERTIFIED,
            seconds=time.perf_counter() - started,
            variables=rank * (rank + 1) // 2,
            constraints=self.changes.count,
            iterations=found.steps,
            requested=solver,
        )
        return MatrixResult(
            design=self,
            mechanism=noise,
            value=value,
            lower_bound=bound,
            solver_report=report,
            notes=self._notes(rank),
            certificate=evidence if certify else None,
            duals=_multipliers(found.multipliers),
        )

    def _scaled(self, strategy: Array) -> Array:
        """The strategy scaled until the budget is kept in exact numbers."""
        spent, margin = self.changes.spent(strategy)[0], 1e-15
        while True:
            strategy = strategy * (math.sqrt(self.budget / spent) * (1 - margin))
            spent, margin = self.changes.spent(strategy)[0], 2 * margin
            if spent <= self.budget:
                return strategy

    def _notes(self, rank: int) -> tuple[str, ...]:
        if rank == self.workload.size:
            return ()
        return (f"the queries have rank {rank} on {self.workload.size} counts: the others are not released",)


def _multipliers(found: Any) -> pd.DataFrame:
    rows = []
    for k, (weights, loads) in enumerate(found):
        rows += [
            (f"privacy {k}" if len(found) > 1 else "privacy", i, w) for i, w in enumerate(weights.tolist())
        ]
        rows += [
            (f"errors {k}" if len(found) > 1 else "errors", i, w)
            for i, w in enumerate([] if loads is None else loads)
        ]
    return pd.DataFrame(rows, columns=["family", "index", "dual"])

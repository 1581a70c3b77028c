r"""The optimal item mechanism: the α-d-private channel of least expected loss, certified.

.. math::

    \min_C \; \sum_{x,y} π_x\, ℓ(x, y)\, C[x, y] \quad\text{s.t.}\quad
    C[x, y] \le e^{α d(x, x')}\, C[x', y], \quad \sum_y C[x, y] = 1, \quad C \ge 0 .

Written in full the linear program has n²(n − 1) privacy rows. Four observations make it small:

* rows are needed for *essential pairs* only, or for the edges of a spanner (`metric_channel_rows`);
* by convexity some optimum is invariant under the symmetries that distances, prior and losses share, so one
  variable per orbit is enough (`metric_channel_symmetry`): 1,275 instead of 10,000 on a 10 × 10 grid;
* of very many rows only those that bind are generated;
* any multipliers give a lower bound, so an interior point needs no exactness to be trusted.

What the solver returns is repaired to integer weights that are private exactly for all pairs, and comes with
a `ChannelCertificate` for privacy, value and lower bound.

Source: Bordenabe, Chatzikokolakis, Palamidessi, "Optimal geo-indistinguishable mechanisms for location
privacy", CCS 2014.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from mechdesign import solvers
from mechdesign.channels.channel import Channel, check_alpha, check_prior, loss_matrix
from mechdesign.channels.optimal.certificate import ChannelCertificate
from mechdesign.channels.optimal.repair import private_weights
from mechdesign.channels.optimal.result import ChannelResult
from mechdesign.channels.optimal.rows import (
    PrivacyRows,
    check_spanner,
    greedy_spanner,
    privacy_rows,
    spread_multipliers,
)
from mechdesign.channels.optimal.symmetry import automorphisms, pair_orbits
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.solvers import Solution
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array

__all__ = ["ChannelResult", "MetricChannel"]

Ints = NDArray[np.int64]

_LARGE = 4_000  # rows above which interior point beats simplex, measured on grids
_STEEP = 50.0  # αd above which e^{αd} is lowered to e^50 in the model: it binds probabilities of 10⁻²² only
_HUGE = 75_000  # rows above which crossover costs more than the digits it adds
_MANY = 10_000  # rows above which only those that bind are generated, measured on grids
_SEED, _TOLERANCE = 1.05, 1e-8  # stretch of the first rows' spanner; what counts as broken then


@serializable("metric-channel")
@dataclass(frozen=True, eq=False)
class MetricChannel:
    r"""The α-d-private channel of least expected loss on a finite metric space.

    Parameters
    ----------
    space : MetricSpace or distance matrix, shape (n, n)
        The items.
    alpha : float
        Privacy α > 0 per unit of the space's distance.
    prior : array, shape (n,), optional
        Probabilities of the items; uniform by default.
    loss : {"metric", "squared", "error"} or array, shape (n, k)
        ℓ(x, y) of reporting y for x; a matrix may have any number k of reports.
    spanner : float, optional
        Constrain only a spanner of this stretch κ ≥ 1, with budget α divided by its actual stretch. The
        channel is α-private for all pairs all the same; its loss is at most the optimum at α/κ.
    unbiased : pair of arrays, shapes (n, j) and (k, j), optional
        A query g of the items and the values h that reports stand for: requires
        :math:`\sum_y C[x, y]\, h(y) = g(x)`. The values must reach beyond the query's range.
    decoder : array, shape (k, n), optional
        Requires :math:`C\,Q = I` for this decoder Q, so that the channel is invertible and frequencies
        decoded by Q are unbiased.

    Raises
    ------
    DesignError
        Asymmetric distances, a prior of the wrong length or sum, α ≤ 0 or NaN, a stretch below 1.

    Examples
    --------
    >>> result = MetricChannel(MetricSpace.grid(3, 3), alpha=0.7).solve()
    >>> round(result.value, 6)
    1.018832
    >>> result.certificate.verify(), result.gap < 1e-9
    (True, True)
    >>> result.channel.alpha
    0.7
    """

    space: MetricSpace
    alpha: float
    prior: ArrayLike | None = None
    loss: str | ArrayLike = "metric"
    spanner: float | None = None
    unbiased: tuple[ArrayLike, ArrayLike] | None = None
    decoder: ArrayLike | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.space, MetricSpace):
            object.__setattr__(self, "space", MetricSpace.from_matrix(self.space))
        size = self.space.size
        object.__setattr__(self, "alpha", check_alpha(self.alpha))
        object.__setattr__(self, "spanner", check_spanner(self.spanner))
        if self.prior is not None:
            object.__setattr__(self, "prior", check_prior(self.prior, size))
        if not isinstance(self.loss, str):
            array = np.array(self.loss, dtype=float)
            columns = array.shape[1] if array.ndim == 2 else size
            object.__setattr__(self, "loss", loss_matrix(array, self.space, (size, columns)))
        else:
            loss_matrix(self.loss, self.space, (size, size))
        if self.unbiased is not None and self.decoder is not None:
            raise DesignError.of("decoder", "given", "cannot be combined with unbiased; choose one")
        _ = self.equalities

    @cached_property
    def losses(self) -> Array:
        """ℓ as a matrix, shape (n, k)."""
        if isinstance(self.loss, str):
            return loss_matrix(self.loss, self.space, (self.space.size, self.space.size))
        return np.asarray(self.loss, dtype=float)

    @cached_property
    def weights(self) -> Array:
        """The prior as an array, shape (n,)."""
        return check_prior(self.prior, self.space.size)

    @cached_property
    def cost(self) -> Array:
        """Prior times loss, shape (n, k)."""
        return self.weights[:, None] * self.losses

    @cached_property
    def equalities(self) -> tuple[Array, Array] | None:
        """(g, h) of the required equalities, shapes (n, j) and (k, j); None without any."""
        n, k = self.losses.shape
        if self.decoder is not None:
            decoder = np.array(self.decoder, dtype=float)
            if decoder.shape != (k, n):
                raise DesignError.of("decoder", decoder.shape, f"must have shape (reports, items), {(k, n)}")
            return np.eye(n), decoder
        if self.unbiased is None:
            return None
        try:
            query, values = (np.array(part, dtype=float) for part in self.unbiased)
        except (TypeError, ValueError):
            raise DesignError.of("unbiased", self.unbiased, "must be (query values, report values)") from None
        query, values = query.reshape(len(query), -1), values.reshape(len(values), -1)
        if len(query) != n or len(values) != k or query.shape[1] != values.shape[1]:
            raise DesignError.of(
                "unbiased", (query.shape, values.shape), f"must have {n} and {k} rows and as many columns"
            )
        return query, values

    # ------------------------------------------------------------------ the model

    def rows(self, *, symmetry: bool = True) -> PrivacyRows:
        """The variables and privacy rows that are kept."""
        n, k = self.losses.shape
        generators = []
        if symmetry and n == k and self.equalities is None:
            generators = automorphisms(self.space.distances, self.cost)
        return privacy_rows(
            self.space, pair_orbits(n, k, generators), pair_orbits(n, n, generators), self.spanner
        )

    def model(self, *, symmetry: bool = True) -> solvers.Model:
        """The linear program, with one variable per orbit of (item, report)."""
        rows = self.rows(symmetry=symmetry)
        return self._model(rows, self.alpha / rows.stretch)

    def _model(self, rows: PrivacyRows, alpha: float) -> solvers.Model:
        n, k = self.losses.shape
        count = rows.variables
        channel = cp.Variable(count, nonneg=True, name="channel")
        cost = np.bincount(rows.orbits.ravel(), self.cost.ravel(), count)
        objective = cp.Minimize(cost @ channel)

        # Rows of items in one orbit read the same: one of each is kept.
        row_sums = sparse.csr_matrix(
            (np.ones(n * k), (np.repeat(np.arange(n), k), rows.orbits.ravel())), shape=(n, count)
        )
        leaders = np.unique(np.diag(rows.pair_orbits), return_index=True)[1]
        constraints: dict[str, Any] = {"normalisation": row_sums[leaders] @ channel == 1}

        # C[x, y] <= e^{αd} C[x', y], balanced by e^{-αd/2} on both sides for the solver's sake; rates that no
        # double-precision solver can tell from infinity are lowered, which keeps more than is asked.
        if len(rows.high):
            each = np.arange(len(rows.high))
            half = np.exp(np.minimum(alpha * rows.distance, _STEEP) / 2)
            privacy = sparse.csr_matrix(
                (
                    np.concatenate([1 / half, -half]),
                    (np.concatenate([each, each]), np.concatenate([rows.high, rows.low])),
                ),
                shape=(len(each), count),
            )
            constraints["privacy"] = privacy @ channel <= 0

        if self.equalities is not None:
            query, values = self.equalities
            moments = sparse.kron(sparse.eye(n), sparse.csr_matrix(values.T), format="csr")
            constraints["unbiased"] = moments @ channel == query.ravel()
        return solvers.Model(
            cp.Problem(objective, list(constraints.values())), {"channel": channel}, constraints
        )

    # ------------------------------------------------------------------ solving

    def solve(self, solver: str | None = None, *, symmetry: bool = True, **options: Any) -> ChannelResult:
        """Solve, repair to exact privacy, and certify.

        Parameters
        ----------
        solver : str, optional
            "highs" (simplex), "highs-ipm", or any registered LP solver; chosen by size when not named.
        symmetry : bool
            Whether to use the symmetries of the space, prior and loss.
        **options
            The solver's own.

        Returns
        -------
        ChannelResult
            With a spanner the lower bound is for *all* α-private channels, so the gap is what the spanner can
            have cost.

        Raises
        ------
        InfeasibleError
            The equalities cannot be met at this α.
        SolverError
        """
        rows = self.rows(symmetry=symmetry)
        main = self._run(rows, self.alpha / rows.stretch, solver, options)
        bound = main
        if rows.stretch == 1.0:
            certificate = self._certificate(rows, main, main)
        else:
            # The same edges with the whole budget are a relaxation: its duals bound the optimum, and its
            # channel, repaired, is private too; measured on grids it is the better one where α is large.
            bound = self._run(rows, self.alpha, solver, options)
            certificate = self._certificate(rows, main, bound)
            if self.equalities is None:  # the repair is large there, and would cost the equalities
                certificate = min(certificate, self._certificate(rows, bound, bound), key=lambda c: c.value)
        fault = certificate.first_violation()
        notes: tuple[str, ...] = () if fault is None else (f"not certified: {fault}",)
        if rows.stretch > 1.0:
            notes += (
                f"spanner: {rows.edges} edges, actual stretch {rows.stretch:.6g}; the lower bound is the one of "
                "all α-private channels",
            )
        seconds = main.seconds + (0.0 if bound is main else bound.seconds)
        report = SolveReport.of(main, seconds=seconds, requested=solver)
        return ChannelResult(
            design=self,
            mechanism=Channel.from_weights(certificate.weights, self.space),
            value=float(certificate.value),
            lower_bound=_below(certificate.lower_bound),
            solver_report=report,
            notes=notes,
            certificate=certificate,
        )

    def _run(self, rows: PrivacyRows, alpha: float, solver: str | None, options: dict[str, Any]) -> Solution:
        """Solve the program with these rows; with very many, generate those that bind.

        Rows along a thin spanner come first, then all that the solution breaks, until none is broken: on
        grids most rows never enter. Duals of the rows left out are 0.
        """
        if len(rows.high) <= _MANY:
            return self._solve_rows(rows, alpha, solver, options)
        kept = rows.along(greedy_spanner(self.space, _SEED, rows.pair_orbits))
        seconds = iterations = 0.0
        while True:
            answer = self._solve_rows(rows.only(kept), alpha, solver, options)
            seconds, iterations = seconds + answer.seconds, iterations + (answer.iterations or 0)
            broken = rows.broken(answer.primal["channel"], alpha, _TOLERANCE) & ~kept
            if not broken.any():
                break
            kept |= broken
        dual = np.zeros(len(rows.high))
        dual[kept] = answer.dual["privacy"]
        return answer.tagged(
            dual={**answer.dual, "privacy": dual}, seconds=seconds, iterations=int(iterations)
        )

    def _solve_rows(
        self, rows: PrivacyRows, alpha: float, solver: str | None, options: dict[str, Any]
    ) -> Solution:
        solver, options = _choice(rows, solver, options)
        try:
            return solvers.solve(self._model(rows, alpha), solver, **options)
        except InfeasibleError as error:
            raise InfeasibleError(
                f"no {self.alpha}-private channel meets the equalities ({error.reason}); raise alpha, or let the "
                "reports' values reach further beyond the query's range"
            ) from None

    def _certificate(self, rows: PrivacyRows, primal: Solution, bound: Solution) -> ChannelCertificate:
        matrix = np.maximum(primal.primal["channel"], 0.0)[rows.orbits]
        matrix /= matrix.sum(axis=1, keepdims=True)
        distances = self.space.distances
        weights = private_weights(matrix, distances, self.alpha, self.cost)
        multipliers = np.zeros(len(rows.high))
        if "privacy" in bound.dual:
            scale = np.exp(-self.alpha * rows.distance / 2)
            multipliers = np.maximum(bound.dual["privacy"], 0.0) * scale
            # Any multiplier may be dropped: where rates were lowered it is no more than rounding's share.
            multipliers[self.alpha * rows.distance > _STEEP] = 0.0
            multipliers[multipliers < 1e-16 * max(float(multipliers.max(initial=0.0)), 1e-300)] = 0.0
        triples, values = spread_multipliers(rows, multipliers)
        inputs = reports = free = None
        if self.equalities is not None:
            inputs, reports = self.equalities
            # CVXPY adds ν·(left − right); the certificate's multipliers have the opposite sign.
            free = -np.asarray(bound.dual["unbiased"]).reshape(inputs.shape)
        return ChannelCertificate(
            weights,
            distances,
            self.alpha,
            self.weights,
            self.losses,
            triples,
            values,
            inputs,
            reports,
            free,
        )


def _choice(rows: PrivacyRows, solver: str | None, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if solver is not None:
        return solver, options
    count = len(rows.high)
    if count < _LARGE:
        return "highs", options
    crossover = {"run_crossover": "off"} if count > _HUGE else {}
    return "highs-ipm", {**crossover, **options}


def _below(value: Fraction) -> float:
    """The largest double not above a fraction, or the one below it."""
    guess = float(value)
    return guess if Fraction(guess) <= value else math.nextafter(guess, -math.inf)

r"""The optimal item mechanism: the α-d-private channel of least expected loss, certified.

.. math::

    \min_C \; \sum_{x,y} π_x\, ℓ(x, y)\, C[x, y] \quad\text{s.t.}\quad
    C[x, y] \le e^{α d(x, x')}\, C[x', y], \quad \sum_y C[x, y] = 1, \quad C \ge 0 .

Written in full the linear program has n²(n − 1) privacy rows. Five observations make it small:

* rows are needed for *essential pairs* only, or for the edges of a spanner (`rows`);
* by convexity some optimum is invariant under the symmetries that distances, prior and losses share, so one
  variable per orbit is enough (`symmetry`): 1,275 instead of 10,000 on a 10 × 10 grid;
* of very many rows only those that bind are generated (`program`);
* items that α cannot tell apart share a row (`near`);
* any multipliers give a lower bound, so an interior point needs no exactness to be trusted.

What the solver returns is repaired to integer weights that are private exactly for all pairs, and comes with
a `ChannelCertificate` for privacy, value and lower bound.

Source: Bordenabe, Chatzikokolakis, Palamidessi, "Optimal geo-indistinguishable mechanisms for location
privacy", CCS 2014.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mechdesign.channels.channel import Channel, check_prior, loss_matrix
from mechdesign.channels.optimal.certificate import ChannelCertificate
from mechdesign.channels.optimal.closed import closed_channel, pair_multipliers
from mechdesign.channels.optimal.near import Merged
from mechdesign.channels.optimal.program import Answer, ChannelProgram
from mechdesign.channels.optimal.repair import private_weights
from mechdesign.channels.optimal.result import ChannelResult
from mechdesign.channels.optimal.rows import PrivacyRows, check_spanner, privacy_rows, spread_multipliers
from mechdesign.channels.optimal.symmetry import automorphisms, pair_orbits
from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import DOWN, array, instance, one_of, positive, settle
from mechdesign.problem.design import OldDesign, refuse_unknown, wanted_gap
from mechdesign.solvers import Deadline, Model, Status
from mechdesign.solvers.deadline import too_late
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array

__all__ = ["MetricChannel"]

_GAP = 1e-6
_NONE = 1e-3  # seconds in which no program is solved
_CERTIFY = 5e-7  # seconds of repair and verification per (item, item, report), measured


@serializable("metric-channel")
@dataclass(frozen=True, eq=False)
class MetricChannel(OldDesign):
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
            settle(self, space=MetricSpace.from_matrix(self.space))
        size = self.space.size
        settle(self, alpha=positive("alpha", self.alpha, side=DOWN), spanner=check_spanner(self.spanner))
        if self.alpha > 1e300 / max(1.0, self.space.diameter):
            raise DesignError.of(
                "alpha", self.alpha, "times the diameter must be at most 1e300: it is no privacy"
            )
        if self.prior is not None:
            settle(self, prior=check_prior(self.prior, size))
        if isinstance(self.loss, str):
            loss_matrix(self.loss, self.space, (size, size))
        else:
            given = array("loss", self.loss, ndim=2)
            settle(self, loss=loss_matrix(given, self.space, (size, given.shape[1])))
        if self.unbiased is not None and self.decoder is not None:
            raise DesignError.of("decoder", "given", "cannot be combined with unbiased; choose one")
        _ = self.equalities

    @cached_property
    def losses(self) -> Array:
        """ℓ as a matrix, shape (n, k)."""
        if isinstance(self.loss, str):
            return loss_matrix(self.loss, self.space, (self.space.size, self.space.size))
        return array("loss", self.loss, ndim=2)

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
            decoder = array("decoder", self.decoder, ndim=None)
            if decoder.shape != (k, n):
                raise DesignError.of("decoder", decoder.shape, f"must have shape (reports, items), {(k, n)}")
            return np.eye(n), decoder
        if self.unbiased is None:
            return None
        try:
            parts = [np.atleast_1d(array("unbiased", part, ndim=None)) for part in self.unbiased]
            query, values = (part.reshape(len(part), -1) for part in parts)
        except (TypeError, ValueError):
            raise DesignError.of("unbiased", self.unbiased, "must be (query values, report values)") from None
        if len(query) != n or len(values) != k or query.shape[1] != values.shape[1]:
            raise DesignError.of(
                "unbiased", (query.shape, values.shape), f"must have {n} and {k} rows and as many columns"
            )
        return query, values

    @cached_property
    def merged(self) -> Merged:
        """The items, those that α cannot tell apart as one; all apart where equalities speak of each."""
        if self.equalities is not None:
            return Merged.none(self.space, self.cost)
        return Merged.of(self.space, self.alpha, self.cost)

    def program(self, *, symmetry: bool = True) -> ChannelProgram:
        """The program that is solved, with the symmetries of space, prior and loss or without."""
        one_of("symmetry", symmetry, (True, False))
        space, cost = self.merged.space, self.merged.cost
        n, k = cost.shape
        usable = symmetry and n == k and self.equalities is None
        generators = automorphisms(space.distances, cost) if usable else []
        rows = privacy_rows(space, pair_orbits(n, k, generators), pair_orbits(n, n, generators), self.spanner)
        return ChannelProgram(cost, self.equalities, rows, self.alpha / rows.stretch)

    def model(self, *, symmetry: bool = True, **options: Any) -> Model:
        """The linear program, with one variable per orbit of (item, report)."""
        refuse_unknown(options, "there is symmetry")
        return self.program(symmetry=symmetry).model()

    def solve(
        self,
        solver: str | None = None,
        *,
        gap: float | None = None,
        certify: bool = True,
        time_limit: float | None = None,
        symmetry: bool = True,
        **options: Any,
    ) -> ChannelResult:
        """Solve, repair to exact privacy, and certify.

        Parameters
        ----------
        solver : str, optional
            "highs" (simplex), "highs-ipm", or any registered LP solver; chosen by size when not named.
        gap : float, optional
            What may be called optimal (the program is always solved to the end): 10⁻⁶ of the value, or a
            difference below 10⁻¹⁵ of the largest loss, which doubles do not resolve.
        certify : bool
            Without it the solver's table is returned as it is.
        time_limit : float, optional
            Seconds. Where only some of the rows that bind were found by then, the channel is repaired, and the
            bound is that of the rows that were there; where nothing was, both are closed forms.
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
        one_of("certify", certify, (True, False))
        instance("solver", solver, str, NoneType)
        wanted, deadline = wanted_gap(gap, _GAP), self._deadline(time_limit, certify)
        try:
            program, answers = self._answered(solver, deadline, symmetry, options)
        except SolverError as error:
            if error.status != "limit" or self.equalities is not None:
                raise
            return self._closed(deadline, certify)
        if not certify:
            return self._uncertified(answers[0])
        # With a spanner, the same edges with the whole budget are a relaxation: its duals bound the optimum, and its
        # channel, repaired, is private too; measured on grids it is the better one where α is large.
        relaxed = replace(program, alpha=self.alpha)
        bounds = answers if program.alpha == self.alpha else [relaxed.solve(solver, deadline, options)]
        certificate = self._best(program.rows, answers, bounds)
        left_open = solver is None and bounds is answers and not self._reached(certificate, wanted)
        if left_open and (more := relaxed.again(answers[0].report.solver, deadline)):
            answers += more
            certificate = self._best(program.rows, answers, answers)
        return self._certified(certificate, [*answers, *bounds], wanted, _spanner_notes(program.rows))

    def _deadline(self, time_limit: float | None, certify: bool) -> Deadline:
        """When the solver must stop, so that what follows is done in time."""
        n, k = self.losses.shape
        limit = Deadline(time_limit)
        return Deadline(max(limit.left - _CERTIFY * n * n * k * certify, _NONE)) if limit.finite else limit

    @property
    def question(self) -> dict[str, Any]:
        """What a certificate must state: α, distances, prior, loss and the equalities."""
        inputs, reports = self.equalities or (None, None)
        return {
            "alpha": self.alpha,
            "distances": self.space.distances,
            "prior": self.weights,
            "loss": self.losses,
            "inputs": inputs,
            "reports": reports,
        }

    def _best(self, rows: PrivacyRows, primals: list[Answer], bounds: list[Answer]) -> ChannelCertificate:
        """The best channel among the answers, repaired, with the best of the lower bounds that their duals prove."""
        if rows.stretch > 1.0 and self.equalities is None:  # a large repair costs the equalities
            primals = [*primals, *bounds]
        merged, distances = self.merged, self.merged.space.distances
        proofs = [self._multipliers(rows, answer) for answer in bounds] + [self._multipliers(rows, None)]
        channels = [
            ChannelCertificate(
                weights=merged.rows(private_weights(answer.matrix, distances, self.alpha, merged.cost)),
                **self.question,
                **proofs[0],
            )
            for answer in primals
        ]
        best = min(channels, key=lambda certificate: certificate.exact_value)
        proved = [best, *(replace(best, **proof) for proof in proofs[1:])]
        return max(proved, key=lambda certificate: certificate.exact_bound).claiming()

    def _multipliers(self, rows: PrivacyRows, answer: Answer | None) -> dict[str, Any]:
        """Multipliers for the certificate from an answer's; none, which prove something too, from None."""
        held = np.zeros(len(rows.high)) if answer is None else answer.multipliers
        triples, values = self.merged.multipliers(
            self.space, self.alpha, self.cost, *spread_multipliers(rows, held)
        )
        free = None if self.equalities is None else np.zeros_like(self.equalities[0])
        return {
            "triples": triples,
            "multipliers": values,
            "free": free if answer is None else answer.free,
        }

    def _answered(
        self, solver: str | None, deadline: Deadline, symmetry: bool, options: dict[str, Any]
    ) -> tuple[ChannelProgram, list[Answer]]:
        """The program and its answer; nothing is declared or solved where time is over before."""
        if deadline.seconds > _NONE:
            program = self.program(symmetry=symmetry)
            if not deadline.passed:
                return program, [program.solve(solver, deadline, options)]
        raise too_late("metric channel")

    def _closed(self, deadline: Deadline, certify: bool) -> ChannelResult:
        """What there is without a program: a channel in closed form, and a bound from pairs of items."""
        merged, alpha = self.merged, self.alpha
        matrix = closed_channel(merged.space, alpha, merged.cost, self.losses[merged.first])
        report = SolveReport("closed-form", Status.LIMIT, deadline.elapsed)
        answer = Answer(matrix, np.zeros(0), None, report)
        if not certify:
            return self._uncertified(answer)
        weights = merged.rows(private_weights(matrix, merged.space.distances, alpha, merged.cost))
        pairs = pair_multipliers(merged.space, alpha, merged.cost)
        triples, values = merged.multipliers(self.space, alpha, self.cost, *pairs)
        certificate = ChannelCertificate(
            weights, **self.question, triples=triples, multipliers=values
        ).claiming()
        return self._certified(certificate, [answer], _GAP, ())

    def _reached(self, certificate: ChannelCertificate, wanted: float) -> bool:
        """Whether value and lower bound are as close as wanted, or closer than doubles resolve the losses."""
        resolved = 1e-15 * float(np.abs(self.losses).max())
        return certificate.value - certificate.lower_bound <= max(wanted * abs(certificate.value), resolved)

    def _certified(
        self, certificate: ChannelCertificate, answers: list[Answer], wanted: float, more: tuple[str, ...]
    ) -> ChannelResult:
        table = certificate.checks()
        notes = more + tuple(f"not certified: {claim}" for claim in table["claim"][~table["holds"]])
        if len(notes) > len(more):
            status = Status.UNCERTIFIED
        elif any(answer.report.status is Status.LIMIT for answer in answers):
            status = Status.LIMIT
        else:
            status = Status.OPTIMAL if self._reached(certificate, wanted) else Status.GAP
        seconds = sum(answer.report.seconds for answer in set(answers))
        return ChannelResult(
            design=self,
            mechanism=Channel.from_weights(certificate.weights, self.space),
            value=certificate.value,
            lower_bound=certificate.lower_bound,
            solver_report=replace(answers[0].report, status=status, seconds=seconds),
            notes=notes,
            certificate=certificate,
        )

    def _uncertified(self, answer: Answer) -> ChannelResult:
        channel = Channel(answer.matrix[self.merged.labels], self.space)
        return ChannelResult(
            design=self,
            mechanism=channel,
            value=channel.expected_loss(self.losses, self.weights),
            solver_report=replace(answer.report, status=Status.UNCERTIFIED),
        )


def _spanner_notes(rows: PrivacyRows) -> tuple[str, ...]:
    if rows.stretch == 1.0:
        return ()
    return (
        f"spanner: {rows.edges} edges, actual stretch {rows.stretch:.6g}; the lower bound is the one of "
        "all α-private channels",
    )

r"""The optimal item mechanism: the α-d-private channel of least expected loss, certified.

.. math::

    \min_C \; \sum_{x,y} π_x\, ℓ(x, y)\, C[x, y] \quad\text{s.t.}\quad
    C[x, y] \le e^{α d(x, x')}\, C[x', y], \quad \sum_y C[x, y] = 1, \quad C \ge 0 .

Written in full the linear program has n²(n − 1) privacy rows. Three observations make it small:

* rows are needed for *essential pairs* only, or for the edges of a spanner (`program`);
* by convexity some optimum is invariant under the symmetries that distances, prior and losses share, so one
  variable per orbit is enough (`symmetry`): 1,275 instead of 10,000 on a 10 × 10 grid;
* of very many rows only those that bind are generated (`program`).

The solver's table is replaced by integer weights that are private exactly for all pairs (`exact`); the multipliers prove
the lower bound.

Source: Bordenabe, Chatzikokolakis, Palamidessi, "Optimal geo-indistinguishable mechanisms for location
privacy", CCS 2014.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from mechdesign.channels.channel import Channel, check_prior, loss_matrix
from mechdesign.channels.optimal import page
from mechdesign.channels.optimal.exact import (
    Weights,
    bias_allowed,
    exact_bias,
    exact_bound,
    exact_value,
    first_broken,
    least_slack,
    private_weights,
)
from mechdesign.channels.optimal.program import Answer, ChannelProgram, privacy_rows, spread_multipliers
from mechdesign.channels.optimal.symmetry import automorphisms, pair_orbits
from mechdesign.errors import DesignError
from mechdesign.evidence.account import Account
from mechdesign.evidence.accuracy import Accuracy
from mechdesign.evidence.certificate import PROVED
from mechdesign.evidence.proofs import Certificate, Claim, Proof
from mechdesign.evidence.results import Result, SolveReport
from mechdesign.evidence.rounding import round_down, round_up
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import DOWN, array, indices, instance, number, one_of, positive, settle
from mechdesign.problem.fields import field
from mechdesign.problem.privacy import MetricDP
from mechdesign.problem.spine import Bound, Clock, Law, ModelledDesign
from mechdesign.problem.words import never_sent
from mechdesign.solvers import Model
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Indices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ChannelDual", "ChannelProof", "MetricChannel"]


def _space(name: str, value: Any) -> MetricSpace:
    return value if isinstance(value, MetricSpace) else MetricSpace.from_matrix(value)


def _stretch(name: str, value: Any) -> float:
    found = number(name, value)
    if found < 1:
        raise DesignError.of(name, value, "must be a stretch >= 1 (1.1, say), or None for the optimum")
    return found


@serializable("metric-channel")
@dataclass(frozen=True, eq=False)
class MetricChannel(ModelledDesign):
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
    >>> result.mechanism.alpha
    0.7
    """

    default_gap = 1e-6

    asks: ClassVar[str] = "places"

    space: MetricSpace = field(check=_space)
    alpha: float = field(check=positive, side=DOWN)
    prior: ArrayLike | None = None
    loss: str | ArrayLike = "metric"
    spanner: float | None = field(check=_stretch, default=None)
    unbiased: tuple[ArrayLike, ArrayLike] | None = None
    decoder: ArrayLike | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.space.size
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

    @property
    def privacy(self) -> MetricDP:
        """The requirement: α times the space's own distance."""
        return MetricDP(self.alpha)

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

    def program(self, *, symmetry: bool = True) -> ChannelProgram:
        """The program that is solved, with the symmetries of space, prior and loss or without.

        Symmetry brings 7.5 × of time (median; at most 14 ×) in the designs that have one (results/ablations, metric-channel).
        """
        one_of("symmetry", symmetry, (True, False))
        n, k = self.cost.shape
        usable = symmetry and n == k and self.equalities is None
        generators = automorphisms(self.space.distances, self.cost) if usable else []
        rows = privacy_rows(
            self.space, pair_orbits(n, k, generators), pair_orbits(n, n, generators), self.spanner
        )
        return ChannelProgram(self.cost, self.equalities, rows, self.alpha / rows.stretch)

    def model(self, *, symmetry: bool = True) -> Model:
        """The linear program, with one variable per orbit of (item, report)."""
        return self.program(symmetry=symmetry).model()

    def improve(
        self, clock: Clock, solver: str | None = None, symmetry: bool = True
    ) -> Iterator[Law | Bound]:
        """Solve the program by HiGHS's simplex method, or by another registered LP solver, and repair its answer.

        With a spanner the lower bound is for *all* α-private channels, so that the gap is what the spanner can have cost: the
        spanner's edges with the whole budget are a relaxation, whose repaired channel is private too and, where α is large, the
        cheaper one.
        """
        program = self.program(symmetry=symmetry)
        rows, answer = program.rows, program.solve(solver, clock)
        spanned = rows.stretch > 1
        notes = (
            (
                f"spanner: {rows.edges} edges, actual stretch {rows.stretch:.6g}; the lower bound is the one of "
                "all α-private channels",
            )
            if spanned
            else ()
        )
        if spanned or not clock.certify:
            yield self._law(answer, clock, notes)
        if spanned:
            answer = replace(program, alpha=self.alpha).solve(solver, clock)
        if clock.certify:
            law = self._law(answer, clock, notes)
            if law.proofs:
                yield self._bound(answer.free, *spread_multipliers(rows, answer.multipliers))
            if not spanned or self.equalities is None:  # a large repair costs the equalities
                yield law

    def _law(self, answer: Answer, clock: Clock, notes: tuple[str, ...]) -> Law:
        if clock.certify:
            return self.repaired(answer.matrix, report=answer.report, notes=notes)
        channel = Channel(answer.matrix, self.space)
        return Law(channel, channel.expected_loss(self.losses, self.weights), report=answer.report)

    def repaired(
        self, matrix: Array, *, report: SolveReport | None = None, notes: tuple[str, ...] = ()
    ) -> Law:
        """Make a nearly private table private exactly, and state its value."""
        matrix = array("matrix", matrix, ndim=2)
        if matrix.shape != self.losses.shape:
            raise DesignError.of(
                "matrix",
                matrix.shape,
                f"must be of shape {self.losses.shape}: a row an item, a column a report",
            )
        weights = private_weights(matrix, self.space.distances, self.alpha, self.cost)
        proofs: tuple[ChannelProof, ...] = (ChannelProof(self.space.distances),)
        if (bias := round_up(exact_bias(self, weights))) > bias_allowed(self):
            proofs, notes = (), (*notes, f"not certified: the equalities hold to within {bias:.2g} only")
        value = round_up(exact_value(self, weights))
        report = report or SolveReport("closed form")
        return Law(Channel.from_weights(weights, self.space), value, proofs, report, notes)

    def _bound(self, free: Array | None, triples: Indices, multipliers: Array) -> Bound:
        found = round_down(exact_bound(self, triples, multipliers, free))
        return Bound(found, ChannelDual(triples, multipliers, free))

    # -- what a result says ----------------------------------------------------------------------------------------

    def frame(self, result: Result) -> pd.DataFrame:
        return page.item_table(self, result.mechanism.matrix)

    def audit(self, result: Result) -> pd.DataFrame:
        """Every privacy constraint, normalisation and equality; a pair's dual sums those of the reports that are in use."""
        duals = [proof for proof in result.proofs if isinstance(proof, ChannelDual)]
        triples = [(proof.triples, proof.multipliers) for proof in duals]
        return page.audit_table(self, result.mechanism.matrix, triples)

    def lines(self, result: Result) -> list[str]:
        """The largest bias, where reports are to be unbiased."""
        if self.equalities is None or result.mechanism.weights is None:
            return []
        return [f"largest bias: {round_up(exact_bias(self, result.mechanism.weights)):.2g}"]

    def remarks(self, result: Result) -> list[str]:
        most = result.mechanism.matrix.max(axis=0)
        return never_sent([str(k) for k in range(len(most))], most, "reports")

    def errors(self, result: Result, question: Any = None) -> Accuracy:
        """Distances between item and report, over the prior."""
        return page.distance_errors(self, result.mechanism.matrix)

    def account(self, result: Result) -> Account:
        return page.channel_account(self, result.mechanism)

    def alternatives(self, result: Result) -> pd.DataFrame:
        """What the exponential mechanism costs at the same α, alone and remapped."""
        return page.alternatives(self, result.value, result.lower_bound)

    def plot(self, result: Result, **options: Any) -> Figure:
        return page.draw(result.mechanism.matrix, **options)


@serializable("channel-proof")
@dataclass(frozen=True, eq=False)
class ChannelProof(Proof):
    r"""A channel of integer weights is α-d-private if all rows have one total and, for all x ≠ x' and y,
    :math:`w[x][y] \le ρ(x,x')\, w[x'][y]` with a rational :math:`ρ \le e^{αd(x,x')}`. Its expected loss, and the largest
    violation of the equalities, are fractions.

    Parameters
    ----------
    distances : array, shape (n, n)
        Those of the space, to their last digit: a verifier computes them from coordinates up to rounding only.
    """

    distances: Array

    speaks_of = ("privacy", "bias", "value")

    def __post_init__(self) -> None:
        settle(self, distances=array("distances", self.distances, ndim=2))

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design, weights = _fitting(stated)
        if not np.array_equal(self.distances, design.space.distances):
            raise DesignError("distances: are not those of the design's space")
        found = first_broken(weights, self.distances, design.alpha)
        named = "" if found is None else "; broken for items {}, {} at report {}".format(*found)
        slack = least_slack(weights, self.distances, design.alpha)
        slack = slack if found else max(slack, 0.0)  # doubles err where a constraint is tight
        yield Claim(f"α-d-privacy of all pairs at α = {design.alpha!r}{named}", PROVED, slack, found is None)
        value = exact_value(design, weights)
        margin = float(Fraction(stated.value) - value)
        yield Claim(
            f"expected loss at most {stated.value!r}", PROVED, margin, stated.value == round_up(value)
        )
        if design.equalities is not None:
            bias = exact_bias(design, weights)
            room = bias_allowed(design) - float(bias)
            yield Claim(f"equalities within {round_up(bias)!r}", PROVED, room, room >= 0)


@serializable("channel-dual")
@dataclass(frozen=True, eq=False)
class ChannelDual(Proof):
    r"""For multipliers :math:`λ \ge 0` of the privacy constraints, any private channel C has

    .. math:: \sum_{x,y} π_x ℓ(x,y) C[x,y] \ge \sum_x \min_y ( π_x ℓ(x,y)
       + \sum_{x'} λ_{x,x',y} - \sum_{x'} e^{αd(x,x')} λ_{x',x,y} ),

    because the terms added to the left are not positive and rows of C are averages. Equalities
    :math:`\sum_y C[x,y] h_j(y) = g_j(x)` add terms with multipliers of either sign.

    Parameters
    ----------
    triples : array of int, shape (t, 3)
        (x, x', y) of the privacy constraints with a multiplier.
    multipliers : array, shape (t,)
        λ.
    free : array, shape (n, j), optional
        Multipliers of the equalities.
    """

    triples: Indices
    multipliers: Array
    free: Array | None = None

    speaks_of = ("lower bound",)

    def __post_init__(self) -> None:
        values = array("multipliers", self.multipliers, empty=True)
        given = np.asarray(self.triples)
        largest = int(given.max()) + 1 if given.size and given.dtype.kind in "iuf" else 1
        triples = indices("triples", given, largest) if given.size else np.zeros((0, 3), dtype=np.int64)
        if triples.shape != (len(values), 3):
            raise DesignError.of("triples", triples.shape, f"must have shape {(len(values), 3)}")
        free = None if self.free is None else array("free", self.free, ndim=2)
        settle(self, triples=triples, multipliers=values, free=free)

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design, _ = _fitting(stated)
        if stated.lower_bound is None:
            return
        bound = exact_bound(design, self.triples, self.multipliers, self.free)
        margin = float(bound - Fraction(stated.lower_bound))
        yield Claim(
            f"no private channel below {stated.lower_bound!r}", PROVED, margin, stated.lower_bound <= bound
        )


def _fitting(stated: Certificate) -> tuple[MetricChannel, Weights]:
    """The question and the weights of the law, which are of its size and on its space."""
    design, law = instance("question", stated.question, MetricChannel), instance("law", stated.law, Channel)
    if law.weights is None or law.space is None or law.matrix.shape != design.losses.shape:
        raise DesignError("law: must be a channel of integer weights on the design's items and reports")
    if not np.array_equal(law.space.distances, design.space.distances):
        raise DesignError("law: is a channel on another space than the design's")
    return design, law.weights

r"""The matrix mechanism of least Gaussian noise: many linear queries on counts, from one set of correlated noises.

One person changes at most c of n counts, each by at most a. Released is :math:`z = R x + \mathcal N(0, I)`; a change d consumes
:math:`\lVert R d \rVert^2 \le \mu^2`, and the answers :math:`A x` are made from z with covariance :math:`A (R^\top R)^{-1} A^\top`:

.. math:: \min_R \operatorname{tr}\bigl(A (R^\top R)^{-1} A^\top\bigr) \ \text{ or }\ \max_j \bigl(A (R^\top R)^{-1} A^\top\bigr)_{jj}
   \quad\text{s.t.}\quad \max_d \lVert R d \rVert^2 \le \mu^2 .

For prefix sums and one changed count these are the best factorizations for private continual counting and DP-FTRL.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import cvxpy as cp
import numpy as np
import pandas as pd

from mechdesign.accounting.gaussian import GaussianPrivacy, gaussian_budget
from mechdesign.accounting.profile import gaussian_tradeoff
from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.classes import MechanismClass, family
from mechdesign.evidence.digits import at_most, shown
from mechdesign.evidence.page import Account
from mechdesign.evidence.proofs import PROVED, RECOMPUTED, Certificate, Claim, Proof
from mechdesign.evidence.results import AUDIT_COLUMNS, Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.correlated.changes import Changes, Participation, Patterns, size_of_change
from mechdesign.noise.correlated.design import cost_claims
from mechdesign.noise.correlated.noise import within_budget
from mechdesign.noise.matrix.solving import (
    Multipliers,
    checked_largest,
    proved_bound,
    published,
    solve_strategy,
    svd_bound,
    triangular,
)
from mechdesign.noise.matrix.strategy import StrategyNoise
from mechdesign.problem.checks import instance, integer, one_of, settle
from mechdesign.problem.fields import field
from mechdesign.problem.sensitivity import neighbours_field
from mechdesign.problem.spine import Bound, Clock, Law, ModelledDesign, relative_table
from mechdesign.problem.words import NEIGHBOURS, guarantee, privacy_words, unit_words
from mechdesign.problem.workload import Workload
from mechdesign.solvers import Model
from mechdesign.solvers.deadline import one_thread


@serializable("matrix-mechanism")
@dataclass(frozen=True, eq=False)
class MatrixMechanism(ModelledDesign):
    r"""The least Gaussian noise for the answers to linear queries on counts: the lower bound is of every covariance.

    Parameters
    ----------
    workload : Workload or array_like, shape (m, n)
        A: ``Workload.prefix_sums(n)``, ``ranges``, ``marginals``, ``kron`` of these, or a matrix. Up to 4,096 counts.
    privacy : ApproximateDP, ZeroConcentratedDP, GaussianDP, MembershipAdvantage or TradeOff
    l0 : int
        c: how many counts one person changes, at most. For c > 1 the changes are listed: up to 10⁷ numbers of them.
    most : float
        a: the most that one count changes.
    signed : bool
        Whether some counts may rise for one person while others fall (as when a person is replaced; state c for the
        difference then). False: one person more or less, counts only rise or only fall.
    loss : {"total", "largest"}
        The sum of the variances of the answers, or the largest of them.
    participation : Participation, optional
        Of a stream in which one person takes part several times: how often and how far apart. Instead of `l0`; `most` and
        `signed` are of every step. Patterns at least b apart that are too many to list get the better of a banded and (for prefix sums) a Toeplitz
        strategy: k times of up to √(10⁷/2k) steps.
    neighbours : {"add-remove", "replace"}
        For which neighbours the changes hold.

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
    >>> round(totals.value * totals.design.budget, 2), totals.gap < 1e-6, totals.certificate.verify()
    (61.53, True, True)
    >>> answers = totals.mechanism.release(range(20))          # twenty running totals
    >>> steps = totals.mechanism.stream(range(20))             # or one by one, as the counts come
    >>> answers.shape, type(next(steps)).__name__
    ((20,), 'float')
    """

    workload: Workload
    privacy: GaussianPrivacy
    l0: int = field(check=integer, least=1, default=1)
    most: float = field(check=size_of_change, default=1.0)
    signed: bool = field(check=one_of, allowed=(True, False), default=True)
    loss: str = field(check=one_of, allowed=("total", "largest"), default="total")
    participation: Participation | None = field(Participation, default=None)
    neighbours: str = neighbours_field()

    default_gap = 1e-6
    central = True

    def __post_init__(self) -> None:
        settle(
            self, workload=self.workload if isinstance(self.workload, Workload) else Workload(self.workload)
        )
        super().__post_init__()
        integer("l0", self.l0, 1, self.workload.size)
        if self.participation is not None and self.l0 != 1:
            raise DesignError.of(
                "l0", self.l0, "is for counts: participation says how many steps one person moves"
            )
        self.changes.check()
        if self.largest:
            checked_largest(self.workload)
        _ = self.budget

    @property
    def answer_size(self) -> int:
        return self.workload.size

    def tradeoff(self, result: Result, at: Iterable[float] = ()) -> TradeOff:
        """That of all Gaussian noise within the budget."""
        return gaussian_tradeoff(self.budget, at)

    @property
    def among(self) -> MechanismClass:
        """Gaussian noise on every strategy: other noise may cost less."""
        return family("Gaussian noise of any covariance")

    @cached_property
    def budget(self) -> float:
        r""":math:`\mu^2`, rounded down."""
        return gaussian_budget(self.privacy)

    @property
    def largest(self) -> bool:
        """Whether the loss is the largest error."""
        return self.loss == "largest"

    @cached_property
    def changes(self) -> Changes:
        """What one person does to the counts."""
        n, asked = self.workload.size, self.participation
        if asked is None:
            return Changes(n, self.l0, self.most, self.signed)
        return Patterns(n, asked.times, self.most, self.signed, asked, self.workload.kinds == ("prefix",))

    @property
    def unit(self) -> float:
        """a²/μ²: the errors are this times those at a = μ = 1."""
        return self.most**2 / self.budget

    def model(self) -> Model:
        """Return the SDP over :math:`\\Sigma`, in coordinates where the total loss is the trace, for the changes that are listed.

        Constraints: "privacy", a matrix-fractional one a change; "errors", one an answer, for the largest error.
        """
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

    def improve(self, clock: Clock, solver: str | None = None) -> Iterator[Law | Bound]:  # type: ignore[override]
        """Find weights on the changes by the fixed point: they give a strategy, and prove a lower bound.

        Parameters
        ----------
        solver : {None, "fixed-point"}
            `model` is for reading, and for solvers outside; the fixed point proves both its bounds.
        """
        if solver not in (None, "fixed-point"):
            raise DesignError.of("solver", solver, 'must be "fixed-point": it proves both its bounds')
        with one_thread():
            found = solve_strategy(
                self.workload, self.changes, largest=self.largest, gap=clock.gap / 2, deadline=clock
            )
            rows = triangular(found.strategy) if self.workload.causal else found.strategy
            strategy = within_budget(rows, self.budget, lambda r: self.changes.spent(r)[0])
            noise = StrategyNoise(self.workload, strategy, self.budget)
            value = self.cost(noise) * (1 + 1e-13)
        if not (math.isfinite(value) and value > 0):
            raise SolverError(
                "the strategy is further apart in size than doubles hold",
                solver="fixed-point",
                status="range",
            )
        rank = len(strategy)
        report = SolveReport(
            "fixed-point",
            variables=rank * (rank + 1) // 2,
            constraints=self.changes.count,
            iterations=found.steps,
            requested=solver,
        )
        notes = (
            f"the queries have rank {rank} on {self.workload.size} counts: the others are not released",
        ) * (rank < self.workload.size)
        if not self.changes.listed:
            notes += (
                "the patterns are too many to list: the strategy is the best found among those whose worst pattern is known",
            )
        proof = MatrixProof(found.multipliers)
        yield Bound(found.lower_bound * self.unit * (1 - 1e-12))
        yield Law(noise, value, (proof,), report, notes, _multipliers(found.multipliers))

    def cost(self, law: StrategyNoise) -> float:
        """The error of a law's answers."""
        return float(law.variances.max()) if self.largest else law.mse

    # -- what a result asks ------------------------------------------------------------------------------

    def spent(self, law: StrategyNoise) -> float:
        """Share of the budget that the worst change takes; at most 1."""
        return float(self.changes.spent(law.strategy)[0]) / self.budget

    def audit(self, result: Result) -> pd.DataFrame:
        used = float(self.changes.spent(result.mechanism.strategy)[0])
        left = self.budget - used
        rows = [("privacy", 0, used, self.budget, left, math.nan, left <= 1e-7 * self.budget)]
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def frame(self, result: Result) -> pd.DataFrame:
        """A row per answer."""
        variances = result.mechanism.variances
        return pd.DataFrame(
            {
                "query": np.arange(len(variances)),
                "variance": variances,
                "standard_deviation": np.sqrt(variances),
            }
        )

    def alternatives(self, result: Result) -> pd.DataFrame:
        """The same queries at the same privacy, answered as published; last the proved lower bounds."""
        unit = 1 / self.budget
        known = published(self.workload, self.changes, largest=self.largest)
        rows = [("this mechanism", result.value)]
        rows += sorted(((name, error * unit) for name, error in known.items()), key=lambda row: row[1])
        if self.changes.l0 == 1 and not self.largest:
            rows.append(("lower bound of the singular values", svd_bound(self.workload, self.changes) * unit))
        if result.lower_bound is not None:
            rows.append((f"lower bound of {result.among}", result.lower_bound))
        return relative_table(rows)

    def lines(self, result: Result) -> list[str]:
        law = result.mechanism
        streams = "; answers can be streamed" if law.streams else ""
        return [
            f"{self.workload}; {self.changes.count} changes up to sign, the worst consumes "
            f"{at_most(self.spent(law), 15)} of the budget",
            f"released on multiples of {law.step:.6g} of the strategy's answers, wider by {law.lattice_cost:.2g}{streams}",
        ]

    def account(self, result: Result) -> Account:
        value = "largest variance of an answer" if self.largest else "sum of the variances of the answers"
        what = "rise or fall" if self.signed else "change, all up or all down,"
        moved = f"at most {self.l0} of the counts"
        if self.participation is not None:
            moved = f"{self.participation.words().format(size=self.workload.size)}; the counts of these"
        question = [
            f"{self.workload}. Between neighbouring data sets {moved} {what} by at most {shown(self.most)}. "
            "Noise is added to other sums of the counts, chosen for the purpose, and the answers are made from these.",
            privacy_words(self.privacy, NEIGHBOURS),
            unit_words("stated how many counts change", "The guarantee is for all answers together."),
            f"Wanted is the strategy of least {value}; the lower bound is of {self.among}.",
        ]
        return Account(
            f"Matrix mechanism at {guarantee(self.privacy)}",
            f"For {self.workload}: least {value}.",
            "\n\n".join(question),
            value,
            (
                guarantee(self.privacy),
                f"at most {at_most(self.spent(result.mechanism))} of the budget consumed",
            ),
            "The standard deviation of each answer.",
            "The same queries at the same privacy, from what is published.",
        )


@serializable("matrix-proof")
@dataclass(frozen=True, eq=False)
class MatrixProof(Proof):
    r"""Weights on the changes, and loads on the answers, prove what the least covariance costs: :math:`(\operatorname{tr} S)^2/\mu^2`.

    Weak duality of the matrix-fractional program (Li et al. 2015 for one changed count and the total error; docs/theory for loads
    and several changes). That no change consumes more than the budget is checked in rational numbers up to 64 counts and rounded
    up beyond; unbiased answers, cost and lower bound are sums in floats.

    Parameters
    ----------
    multipliers : tuple of (ndarray, ndarray or None)
        Of each factor of the workload.
    """

    multipliers: Multipliers

    speaks_of = ("privacy", "bias", "value", "lower bound")
    bound_how = RECOMPUTED

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design = instance("question", stated.question, MatrixMechanism)
        law = instance("law", stated.law, StrategyNoise)
        if not design.workload.same(law.workload) or law.budget != design.budget:
            yield Claim("the law answers this workload", PROVED, -math.inf, False)
            return
        spent, exact = design.changes.spent(law.strategy)
        yield Claim(
            f"the budget covers every change ({'rational' if exact else 'rounded up'})",
            PROVED,
            design.budget - spent,
            spent <= design.budget,
        )
        root = design.workload.root
        left = root - (root @ law.inverse) @ law.strategy
        off = float(np.abs(left).max() / np.abs(root).max())
        yield Claim("the answers are unbiased, to rounding", RECOMPUTED, 1e-7 - off, off <= 1e-7)

        def proved() -> float:
            return design.unit * proved_bound(
                design.workload, design.changes, self.multipliers, largest=design.largest
            )

        yield from cost_claims(stated, design.cost(law), proved)


def _multipliers(found: Multipliers) -> pd.DataFrame:
    rows = []
    for k, factor in enumerate(found):
        for part, values in zip(("privacy", "errors"), factor):
            name = f"{part} {k}" if len(found) > 1 else part
            rows += [(name, i, w) for i, w in enumerate([] if values is None else values.tolist())]
    return pd.DataFrame(rows, columns=["family", "index", "dual"])

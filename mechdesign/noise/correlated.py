r"""The least Gaussian noise of any covariance, for what one person changes and what is asked.

Neighbouring data sets differ by a vector :math:`d` of a finite set, up to sign, or by a point of its convex hull:
:math:`x + \mathcal N(0, \Sigma)` is (ε, δ)-DP iff :math:`\max_d d^\top \Sigma^{-1} d \le \mu^2`. Answers :math:`A x`
get noise of covariance :math:`A \Sigma A^\top`:

.. math:: \min_\Sigma \operatorname{tr}(A \Sigma A^\top) \ \text{ or }\ \max_j (A \Sigma A^\top)_{jj}
   \quad\text{s.t.}\quad d^\top \Sigma^{-1} d \le \mu^2 .

With A the identity these are numbers that change together: for a box, whose vertices are :math:`(\pm\lambda_i)`, the
optimum is the diagonal of P3; a one-hot query needs K times less. With A a workload of linear queries on counts,
:math:`z = R x + \mathcal N(0, I)` with :math:`\Sigma^{-1} = R^\top R` is the matrix mechanism; for prefix sums and one
changed count the best factorization for private continual counting and DP-FTRL.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from mechdesign.accounting.gaussian import GaussianPrivacy, gaussian_privacy
from mechdesign.checks import array, field, instance, integer, one_of, refuse, settle
from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence import proofs
from mechdesign.evidence.digits import at_most
from mechdesign.evidence.results import Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.model.problem import Minimize, Problem
from mechdesign.model.scales import Covariance, change_rows
from mechdesign.noise import fixed_point, strategies
from mechdesign.noise.buffered_noise import BUFFERS
from mechdesign.noise.changes import LISTED, Changes, ChangeSet, Listed, Participation, Patterns, corners
from mechdesign.noise.correlated_noise import (
    FULL,
    CorrelatedGaussianNoise,
    GaussianDesign,
    LinearNoise,
    StrategyNoise,
    within_budget,
)
from mechdesign.noise.covariance_bound import ROUNDING, budget_claims, covariance_audit, loss_root, trace_loss
from mechdesign.noise.strategies import BufferedToeplitz
from mechdesign.problem.privacy import Description
from mechdesign.problem.sensitivity import NEIGHBOURS, Protection, Sensitivity, neighbours_of
from mechdesign.problem.spine import Bound, Clock, Law, ModelledDesign
from mechdesign.problem.workload import Span, Workload, span_of, workload_of
from mechdesign.solvers.deadline import one_thread
from mechdesign.typing import Array, Numbers

_DECLARED = 32  # most dimensions of a program that settles what the fixed point leaves: 6 s, 26 s for 48


@serializable("correlated-gaussian", eq=False)
class CorrelatedGaussian(GaussianDesign, ModelledDesign):
    r"""The least Gaussian noise of any covariance: for numbers that change together, or for linear queries on counts.

    Parameters
    ----------
    changes : array_like, shape (k, K), or Sensitivity, Changes, Patterns
        What one person changes: vectors, one per row, up to sign (vertices are enough for a polytope); bounds with ``each``, whose corners are listed
        (`of_sensitivity` is told the number of coordinates if the bounds are not); or counts of which a few change, as `CountsGaussian` and
        `MatrixMechanism` state them.
    privacy : ApproximateDP, ZeroConcentratedDP, GaussianDP, MembershipAdvantage or TradeOff
    workload : Workload or array_like, shape (m, K), optional
        A: the numbers are counts x, and the answers A x are released. Not given: the numbers themselves.
    weights : array_like, shape (K,) or (K, K), optional
        W of the loss tr(WΣ) of the numbers themselves: a positive diagonal or a positive definite matrix; the identity by default.
    loss : {"total", "largest"}
        The sum of the variances of the answers, or the largest of them.
    span : bool
        Say True if the vectors span a subspace only and nobody changes anything outside it: there is no noise outside then.
    neighbours : {"add-remove", "replace"}
        For which neighbours the changes hold; a `Sensitivity` states it itself.

    Raises
    ------
    DesignError
        Vectors are empty, not finite, all zero, or in a subspace without ``span=True``; weights are not positive definite; the workload has
        rank 0; there are too many changes, or queries for the largest error; δ = 0.

    Notes
    -----
    The lower bound holds for Gaussian noise of every covariance; other noise may cost less. Muthukrishnan and Kalyani's P3 is the diagonal case. For
    linear queries: Li, Miklau, Hay, McGregor and Rastogi (2015), *The matrix mechanism*; Denisov et al. (2022) for streams, whose fixed point
    for prefix sums is this one. The loads for the largest error, the joint extrapolation and the proved bounds are [new].

    Examples
    --------
    >>> import mechdesign as md
    >>> result = CorrelatedGaussian(changes=np.eye(3), privacy=md.ApproximateDP(1.0, 1e-6)).solve()
    >>> round(result.value * result.design.budget, 4)   # a box with these sides needs 9
    3.0
    """

    changes: Any
    privacy: GaussianPrivacy = field(check=gaussian_privacy)
    _: KW_ONLY
    workload: Workload | None = None
    weights: Array | None = None
    loss: str = field(check=one_of, allowed=("total", "largest"), default="total")
    span: bool = field(check=one_of, allowed=(True, False), default=False)
    neighbours: str = field(check=one_of, allowed=NEIGHBOURS, default=NEIGHBOURS[0])

    asks: ClassVar[str] = "numbers"
    central: ClassVar[bool] = True
    algorithms: ClassVar[tuple[str, ...]] = ("fixed-point",)
    mechanism_class = proofs.family("Gaussian noise of any covariance")  # other noise may cost less

    def __post_init__(self) -> None:
        settle(self, neighbours=neighbours_of(self.changes, self.neighbours))
        if isinstance(self.changes, Sensitivity):
            settle(self, changes=corners(self.changes, len(self.changes.each or ())), span=True)
        super().__post_init__()
        if not isinstance(self.changes, Changes | Patterns):
            settle(self, changes=change_rows(self.changes))
        if self.workload is None and isinstance(self.changes, Patterns):
            settle(self, workload=Workload.identity(self.changes.size))
        if self.workload is not None:
            self._check_workload(self.workload)
        if self.weights is not None:
            settle(self, weights=self._matrix(array("weights", self.weights, ndim=None)))
        if not self.symmetric and isinstance(self.changes, Changes | Patterns):
            self.changes.check()
        _ = self.budget
        rank, size = self.subspace.rank, self.change_set.size
        allowed = (
            f"span {rank} of {size} dimensions, and who changes the answer in another one is not protected: add the "
            "changes that are missing, leave coordinates out that nobody changes, or say span=True if nothing else can change"
        )
        refuse(rank < size and not self.span, "changes", (self.change_set.count, size), allowed)

    def _check_workload(self, asked: Workload | Numbers) -> None:
        settle(self, workload=workload_of("workload", asked))
        assert self.workload is not None
        if self.workload.size != self.change_set.size:
            raise DesignError.of("workload", self.workload.size, f"must be on {self.change_set.size} counts")
        remedy = "are of the numbers themselves: state what counts as a workload, and all changes of counts"
        refuse(self.weights is not None or self.span, "weights, span", "given", remedy)
        if self.largest:
            fixed_point.checked_largest(self.workload)

    @classmethod
    def of_sensitivity(
        cls,
        sensitivity: Sensitivity,
        dimension: int,
        privacy: GaussianPrivacy,
        weights: Array | None = None,
    ) -> CorrelatedGaussian:
        """Return the design for changes within bounds of single coordinates, of which at most some change.

        Where all coordinates are alike nothing is listed; elsewhere the corners are.

        Examples
        --------
        >>> import mechdesign as md
        >>> few = Sensitivity(each=[1, 2, 3], l0=1)
        >>> CorrelatedGaussian.of_sensitivity(few, 3, md.ApproximateDP(1.0, 1e-6)).changes
        array([[1., 0., 0.],
               [0., 2., 0.],
               [0., 0., 3.]])
        """
        s, size = instance("sensitivity", sensitivity, Sensitivity), integer("dimension", dimension, 1)
        if s.linf is not None and weights is None and s.each is None and s.l1 is None and s.l2 is None:
            return CountsGaussian(
                size, min(s.l0 or size, size), privacy, s.linf, signed=s.signed, neighbours=s.neighbours
            )
        # a bound of 0 says that nobody changes this coordinate
        return cls(corners(s, size), privacy, weights=weights, span=True, neighbours=s.neighbours)

    def _matrix(self, w: Array) -> Array:
        size = self.change_set.size
        refuse(self.largest, "weights", "given", 'belong to loss="total"')
        if w.shape == (size,):
            w = np.diag(w)
        if w.shape != (size, size):
            raise DesignError.of("weights", self.weights, f"must have shape ({size},) or ({size}, {size})")
        refuse(not np.allclose(w, w.T), "weights", self.weights, "must be symmetric")
        refuse(np.linalg.eigvalsh(w).min() <= 0, "weights", self.weights, "must be positive definite")
        return (w + w.T) / 2

    # -- the question in numbers ------------------------------------------------------------------------------

    @cached_property
    def change_set(self) -> ChangeSet:
        """The changes by one person."""
        return Listed(self.changes) if isinstance(self.changes, np.ndarray) else self.changes

    @property
    def symmetric(self) -> bool:
        """Whether no permutation of the numbers changes the question."""
        return isinstance(self.changes, Changes) and self.workload is None and self.weights is None

    @cached_property
    def subspace(self) -> Span:
        """The subspace of the changes."""
        size = self.change_set.size
        return (
            span_of(self.changes) if isinstance(self.changes, np.ndarray) else Span(size, tuple(range(size)))
        )

    @cached_property
    def _held(self) -> ChangeSet:
        """The changes, restricted to the coordinates that get noise."""
        whole = self.subspace.lift is None
        return self.change_set if whole else Listed(self.changes[:, self.subspace.coordinates])

    @cached_property
    def root(self) -> Array:
        """L: the total loss is tr(L Σ Lᵀ)."""
        return loss_root(self.subspace, self.weights) if self.workload is None else self.workload.root

    @property
    def _answers(self) -> Array | None:
        """A, if the loss is the largest error."""
        if not self.largest:
            return None
        return self.subspace.matrix if self.workload is None else self.workload.dense()

    @cached_property
    def programs(self) -> tuple[fixed_point.Program, ...]:
        """Saddle points at a = μ = 1, whose optima multiply to that of the question."""
        if self.symmetric:
            return (fixed_point.Symmetric(self.changes, self.largest),)
        alone = self.change_set.alone
        if self.workload is None or not alone:
            return (self._whole,)
        return tuple(self._of_factor(part) for part in self.workload.factors())

    def _of_factor(self, part: Workload) -> fixed_point.Program:
        if part.kinds == ("prefix",) or (part.kinds == ("ranges",) and not self.largest):
            return fixed_point.Chain(part, self.largest)
        return fixed_point.Dense(part.root, None, part.dense() if self.largest else None)

    @property
    def unit(self) -> float:
        """a²/μ²: errors at a = μ = 1 are multiplied by this."""
        return self.change_set.most**2 / self.budget

    @property
    def default_gap(self) -> float:  # type: ignore[override]
        """1e-9 for listed numbers, 1e-6 for workloads."""
        return 1e-9 if self.workload is None else 1e-6

    # -- laws and bounds --------------------------------------------------------------------------------------

    def problem(self) -> Problem:
        r"""Return the program over the covariance S of the numbers that get noise, :math:`\min \operatorname{tr}(A S A^\top)` or the largest variance."""
        held = self._held
        allowed = f"are too many to declare: at most {LISTED} numbers of them"
        refuse(held.count * held.size > LISTED or not held.listed, "changes", held.count, allowed)
        vectors, root, answers = held.vectors(), self.root, self._answers
        if self.workload is not None and len(root) != held.size:  # over the sums that the queries depend on
            sums = fixed_point.Dense(root, None, answers).plain[1]
            vectors, root, answers = vectors @ root.T, np.eye(len(root)), sums
        S = Covariance(vectors, neighbours=self.neighbours)
        plain = np.array_equal(root, np.eye(len(vectors[0])))
        loss = S.largest(answers) if answers is not None else S.total(None if plain else root)
        return Problem(Minimize(loss), (S.private(self.privacy),), design=self)

    def closed_forms(self) -> Iterator[Law | Bound]:
        """Yield the optimum, if symmetry gives it."""
        if self.symmetric:
            (program,) = self.programs
            yield from self.found(program.solved(0.0, Clock()), SolveReport("symmetry"))

    def accelerated(self, clock: Clock, algorithm: str | None = None) -> Iterator[Law | Bound]:
        """Find weights on the changes by the fixed point: they give a strategy and prove a lower bound."""
        with one_thread():
            found = fixed_point.multiplied(self.programs, self._gap(clock), clock)
            found = replace(found, strategy=self._best(found.strategy, clock))
        report = SolveReport(
            "fixed-point",
            variables=len(found.strategy) * (len(found.strategy) + 1) // 2,
            constraints=self.change_set.count,
            iterations=found.steps,
            requested=algorithm,
        )
        yield from self.found(found, report)
        # where the best loads are 0 on many answers they leave the covariance open, and steps end anywhere
        if self.largest and self.change_set.listed and len(self.root) <= _DECLARED and not clock.passed:
            yield from self.modelled(clock)

    def _gap(self, clock: Clock) -> float:
        """Return half of the gap asked for; at least a hundredth where patterns are too many to list, as no strategy comes nearer to their bound."""
        return clock.gap / 2 if self.change_set.listed else max(clock.gap / 2, 0.01)

    def _best(self, found: Array, clock: Clock) -> Array:
        """Return the strategy found or, where time is up, one that needs no search, if that costs less.

        Where patterns are too many to list, return the better of the strategies whose worst pattern is known.
        """
        asked = self.workload
        if asked is None:
            return found
        prefix, tried = asked.kinds == ("prefix",), [found]
        if isinstance(self.changes, Patterns) and not self.changes.listed:
            tried = [strategies.banded(asked, self.changes, largest=self.largest, deadline=clock)]
            tried += [strategies.toeplitz(self.changes, largest=self.largest)] if prefix else []
        elif clock.passed:
            tried.append(strategies.square_root(asked.size) if prefix else self.root)
        if len(tried) == 1:
            return tried[0]
        return min(
            tried, key=lambda r: strategies.strategy_error(asked, self.change_set, r, largest=self.largest)
        )

    def found(self, solved: fixed_point.Solved, report: SolveReport) -> Iterator[Law | Bound]:
        """Yield the bound that multipliers prove, and the law of a strategy."""
        with one_thread():
            noise = self.law_of(solved.strategy)
            value = self.cost(noise) * (1 + 1e-13)
        if not (math.isfinite(value) and value > 0):
            said = "the strategy is further apart in size than doubles hold"
            raise SolverError(said, solver="fixed-point", status="range")
        yield Bound(solved.lower_bound * self.unit * (1 - 1e-12), proofs.ClosedBound(solved.multipliers))
        duals = _duals(solved.multipliers, value, self.budget)
        yield Law(noise, value, (proofs.LawProof(),), report, self._notes(value, solved), duals)

    def law_of(self, rows: Array) -> LinearNoise:
        """Return the law of a strategy, scaled until it keeps the budget in exact arithmetic."""
        asked, span = self.workload, self.subspace
        rows = fixed_point.triangular(rows) if asked is not None and asked.causal else rows
        kept = within_budget(rows, self.budget, lambda r: self.consumes(r)[0])
        if asked is not None:
            return StrategyNoise(asked, kept, self.budget)
        return CorrelatedGaussianNoise(kept, self.budget, span.coordinates, span.lift)

    def law_claims(self, stated: proofs.Certificate, given: None) -> Iterator[proofs.Claim]:
        r"""Claim that no change consumes more than the budget, :math:`\lVert R v \rVert^2 \le \mu^2`: rational up to 64 dimensions, rounded up beyond.

        Unbiased answers and the loss are checked in doubles.
        """
        law: Any = instance("law", stated.law, CorrelatedGaussianNoise, StrategyNoise)
        asked, coordinates = self.workload, None
        if isinstance(law, StrategyNoise):
            alike = asked is not None and asked.same(law.workload)
        else:
            alike = asked is None and law.dimension == self.change_set.size
        DesignError.when(not alike or law.budget != self.budget, "law: must be of the question and budget")
        if isinstance(law, StrategyNoise):
            root = law.workload.root
            off = float(np.abs(root - (root @ law.inverse) @ law.strategy).max() / np.abs(root).max())
            yield proofs.Claim.of("the answers are unbiased, to rounding", proofs.RECOMPUTED, 1e-7 - off)
        else:
            coordinates = law.span.coordinates
            inside = law.span.lift is None or all(map(law.span.inside, self.change_set.vectors()))
            claim = "noise reaches every direction of the set"
            yield proofs.Claim(claim, proofs.PROVED, 0.0 if inside else -math.inf, inside)
        yield from budget_claims(self.consumes(law.rows, coordinates), self.budget, self.worth)
        room = stated.value * (1 + ROUNDING) - self.cost(law)
        yield proofs.Claim.of(f"the loss is at most {stated.value:.9g}", proofs.RECOMPUTED, room)

    def consumes(self, rows: Array, coordinates: tuple[int, ...] | None = None) -> tuple[float, bool]:
        """Return an upper bound on the budget that a change consumes under R, whose columns are the coordinates with noise, and whether it is rational."""
        if coordinates is not None and coordinates != self.subspace.coordinates:
            return Listed(self.change_set.vectors()[:, coordinates]).consumed(rows)
        return self._held.consumed(rows)

    def cost(self, law: LinearNoise) -> float:
        """Return the error of a law's answers."""
        if self.largest:
            return float(law.variances.max())
        if isinstance(law, StrategyNoise):
            return law.mse
        plain = self.weights is None and self.subspace.lift is None
        return trace_loss(law.rows, None if plain else self.root)

    bound_how = proofs.RECOMPUTED
    bound_takes = tuple

    def least_cost(self, stated: proofs.Certificate, given: fixed_point.Multipliers) -> float:
        r"""Return the bound that weights w on the changes and loads q on the answers prove: :math:`(\operatorname{tr} S)^2/\mu^2`.

        S are the singular values of :math:`\sqrt q A V^\top \sqrt w`: weak duality of the matrix-fractional program (Li et al. 2015 for one changed count and the
        total error; docs/theory for loads and several changes). Where symmetry solves the question, weights are on how many counts change. `given` holds a pair
        (w, q or None) for each factor of the workload. Computed in doubles.
        """
        return self.proved_bound(given) * (1 + ROUNDING)

    def proved_bound(self, multipliers: fixed_point.Multipliers) -> float:
        """Return the least error of every covariance that multipliers prove, one pair for each of `programs` or one for all."""
        programs = self.programs if len(multipliers) == len(self.programs) else (self._whole,)
        return self.unit * fixed_point.proved_bound(programs, multipliers)

    @property
    def _whole(self) -> fixed_point.Dense:
        """All factors as one program."""
        rows = None if self.change_set.alone else self._held.vectors() / self.change_set.most
        return fixed_point.Dense(self.root, rows, self._answers)

    def of_program(self, rows: Array, found: Any, report: SolveReport) -> Iterator[Law | Bound]:
        """Yield the bound and the law from a solver's answer to `problem`: R on its numbers, and the proof of a bound."""
        whole = self.workload is None or len(self.root) == self.change_set.size
        strategy = rows if whole else rows @ self.root
        multipliers: fixed_point.Multipliers = ()
        if found is not None:
            loads = np.array([float(nu) for nu in found.multipliers]) if self.largest else None
            multipliers = ((found.roots**2, loads),)
        bound = self.proved_bound(multipliers) / self.unit if multipliers else 0.0
        yield from self.found(fixed_point.Solved(strategy, multipliers, bound), report)

    def _notes(self, value: float, solved: fixed_point.Solved) -> tuple[str, ...]:
        size, rank, notes = self.change_set.size, len(solved.strategy), []
        if self.subspace.lift is not None:
            notes.append(f"the vectors span {rank} of {size} dimensions; the noise stays in that subspace")
        elif rank < size:
            notes.append(f"the queries have rank {rank} on {size} counts: the others are not released")
        if self.symmetric and self.changes.signed and value - solved.lower_bound * self.unit <= 1e-9 * value:
            notes.append("no Gaussian covariance does better than independent noise")
        if not self.change_set.listed:
            notes.append(
                "the patterns are too many to list: the strategy is the best found among those whose worst pattern is known"
            )
        return tuple(notes)

    # -- what a result asks -----------------------------------------------------------------------------------

    @property
    def vectors(self) -> Array:
        """Changes that an audit lists, the worst among them; none where they are too many."""
        if self.symmetric:  # all others are permutations of these, or have other signs
            return self.change_set.most * np.tri(self.changes.l0, self.changes.size)
        few = self.change_set.listed and self.change_set.count * self.change_set.size <= 10**6
        return self.change_set.vectors() if few else np.zeros((0, self.change_set.size))

    @property
    def answer_size(self) -> int:
        return self.change_set.size

    def protection(self) -> Protection:
        if self.workload is not None:
            raise DesignError.of("workload", str(self.workload), "is answered, not the numbers themselves")
        if not isinstance(self.changes, Changes):
            return Protection(self.change_set.size, self.vectors)
        changes = Sensitivity(linf=self.changes.most, l0=self.changes.l0, neighbours=self.neighbours)
        return Protection(self.changes.size, changes, signed=self.changes.signed)

    def consumed(self, law: LinearNoise) -> Array:
        """Return the share of the budget that each listed vector consumes, at most 1; where none is listed that of the worst change."""
        most = self.consumes(law.rows)[0]
        if not len(self.vectors):
            return np.array([most / self.budget])
        held = self.vectors if self.workload is not None else self.vectors[:, self.subspace.coordinates]
        return np.asarray(np.minimum(((held @ law.rows.T) ** 2).sum(axis=1), most) / self.budget)

    def audit(self, result: Result) -> pd.DataFrame:
        budget, used = self.budget, self.consumed(result.mechanism) * self.budget
        duals = result.duals
        own: Any = () if duals is None else duals.loc[duals["family"] == "privacy", "dual"].to_numpy()
        return covariance_audit("privacy", used, budget, own if len(own) == len(used) else math.nan)

    def frame(self, result: Result) -> pd.DataFrame:
        """Return a row for each answer; for numbers themselves a row for each listed change."""
        if self.workload is None and len(self.vectors):
            used = self.consumed(result.mechanism)
            return pd.DataFrame({"vector": np.arange(len(used)), "spent": used})
        variances = result.mechanism.variances
        return pd.DataFrame(
            {
                "query": np.arange(len(variances)),
                "variance": variances,
                "standard_deviation": np.sqrt(variances),
            }
        )

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Yield noise of one scale, or published mechanisms for the queries."""
        if self.workload is not None:
            known = strategies.published(self.workload, self.change_set, largest=self.largest)
            for name, error in sorted(known.items(), key=lambda row: row[1]):
                yield name, error / self.budget
            if self.change_set.alone and not self.largest:
                yield (
                    "lower bound of the singular values",
                    strategies.svd_bound(self.workload, self.change_set) / self.budget,
                )
        elif len(self.vectors):
            size = self.change_set.size if self.weights is None else float(np.trace(self.weights))
            longest = float((self.vectors**2).sum(axis=1).max()) / self.budget
            yield "one scale for all", longest * (1.0 if self.largest else size)

    def lines(self, result: Result) -> list[str]:
        law, used = result.mechanism, self.consumed(result.mechanism)
        what = f"{self.change_set.size} numbers" if self.workload is None else str(self.workload)
        streams = "; answers can be streamed" if isinstance(law, StrategyNoise) and law.streams else ""
        return [
            f"{what}; {self.change_set.count} changes up to sign, the worst consumes {at_most(float(used.max()), 15)} of the budget",
            f"released on multiples of {law.step:.6g} after whitening, wider by {law.lattice_cost:.2g}{streams}",
        ]

    def describe(self, result: Result) -> Description:
        changed = isinstance(self.changes, Changes | Patterns)
        moved = (
            self.changes.words()
            if changed
            else f"the counts change by one of {len(self.changes)} known vectors or a mean of these"
        )
        if self.workload is not None:
            return Description(
                title="Matrix mechanism",
                what=f"Asked: {self.workload}. Between neighbouring data sets {moved}. Noise is added to other sums of the counts, chosen for "
                "the purpose, and the answers are made from these.",
                loss="largest variance of an answer"
                if self.largest
                else "sum of the variances of the answers",
                picture="The standard deviation of each answer.",
            )
        loss = "sum of the variances" if self.weights is None else "weighted sum of the covariance, tr(WΣ)"
        return Description(
            title=f"Correlated Gaussian noise for {self.change_set.size} numbers",
            what=f"{self.protection()} Gaussian noise is added, its coordinates correlated.",
            loss="largest variance of an answer" if self.largest else loss,
            picture="The correlations of the noise: 1 on the diagonal, 0 where two numbers get independent noise.",
        )


def _duals(multipliers: fixed_point.Multipliers, value: float, budget: float) -> pd.DataFrame:
    """Return the multipliers of the changes, in loss a unit of budget, and the loads of the answers, for each factor."""
    rows = []
    for k, (weights, loads) in enumerate(multipliers):
        of = f" {k}" if len(multipliers) > 1 else ""
        rows += [
            (f"privacy{of}", i, w) for i, w in enumerate((weights / weights.sum() * value / budget).tolist())
        ]
        rows += [(f"errors{of}", i, q) for i, q in enumerate([] if loads is None else loads.tolist())]
    return pd.DataFrame(rows, columns=["family", "index", "dual"])


def CountsGaussian(
    counts: int,
    l0: int,
    privacy: GaussianPrivacy,
    most: float = 1.0,
    *,
    signed: bool = True,
    neighbours: str = NEIGHBOURS[0],
) -> CorrelatedGaussian:
    r"""Return the design of the best Gaussian covariance for n counts of which one person changes at most c: solved by symmetry, without a list of changes.

    Parameters
    ----------
    counts : int
        n, up to 700.
    l0 : int
        c ≤ n.
    privacy : ApproximateDP, ZeroConcentratedDP, GaussianDP, MembershipAdvantage or TradeOff
    most : float
        a: the most that one count changes.
    signed : bool
        Whether counts may rise and fall for one person at once (as when a person is replaced; state c for the difference
        then). False: one person more or less, counts only rise or only fall.
    neighbours : {"add-remove", "replace"}
        For which neighbours the changes hold.

    Examples
    --------
    >>> import mechdesign as md
    >>> result = CountsGaussian(20, 3, md.ApproximateDP(1.0, 1e-6), signed=False).solve()
    >>> round(result.value, 2), result.gap < 1e-9, result.certificate.verify()
    (1039.44, True, True)
    """
    changes = Changes(integer("counts", counts, 1, 700), l0, most, signed)
    return CorrelatedGaussian(changes, privacy, neighbours=neighbours)


def MatrixMechanism(
    workload: Workload | Numbers,
    privacy: GaussianPrivacy,
    l0: int = 1,
    most: float = 1.0,
    *,
    signed: bool = True,
    loss: str = "total",
    participation: Participation | None = None,
    buffers: int | None = None,
    neighbours: str = NEIGHBOURS[0],
) -> CorrelatedGaussian | BufferedToeplitz:
    r"""Return the design of the least Gaussian noise for the answers to linear queries on counts.

    Up to 4,096 counts any covariance is allowed. Prefix sums of more counts, or with ``buffers=``, get a Toeplitz strategy of a few buffers.

    Parameters
    ----------
    workload : Workload or array_like, shape (m, n)
        A: ``Workload.prefix_sums(n)``, ``ranges``, ``marginals``, ``kron`` of these, or a matrix. Up to 4,096 counts, or 1,000,000 for prefix sums.
    privacy : ApproximateDP, ZeroConcentratedDP, GaussianDP, MembershipAdvantage or TradeOff
    l0 : int
        c: the most counts that one person changes. For c > 1 the changes are listed: up to 10⁷ numbers.
    most : float
        a: the most that one count changes.
    signed : bool
        Whether some counts may rise for one person while others fall (as when a person is replaced; state c for the
        difference then). False: one person more or less, counts only rise or only fall.
    loss : {"total", "largest"}
        The sum of the variances of the answers, or the largest of them.
    participation : Participation, optional
        How often, and how far apart, one person takes part in a stream. Give it instead of `l0`; `most` and `signed` then hold at
        every step. Where patterns at least b apart are too many to list, the better of a banded and (for prefix sums) a Toeplitz strategy is
        returned, for up to √(10⁷/2k) steps.
    buffers : int, optional
        For prefix sums: 1 to 8 buffers of a `BufferedToeplitz` strategy; 8 if not given for more than 4,096 counts.
    neighbours : {"add-remove", "replace"}
        For which neighbours the changes hold.

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
    asked = workload if isinstance(workload, Workload) else Workload(workload)
    allowed = "must be left out where participation says how many steps one person changes"
    refuse(participation is not None and l0 != 1, "l0", l0, allowed)
    prefix = asked.kinds == ("prefix",)
    if buffers is not None or (prefix and asked.size > FULL):
        refuse(not prefix, "buffers", buffers, "are for prefix sums")
        return BufferedToeplitz(
            asked.size,
            privacy,
            participation=participation or Participation(integer("l0", l0, 1, asked.size), apart=1),
            most=most,
            loss=loss,
            buffers=BUFFERS if buffers is None else buffers,
            neighbours=neighbours,
        )
    changes: Changes | Patterns
    if participation is None:
        changes = Changes(asked.size, l0, most, signed)
    else:
        changes = Patterns(asked.size, instance("participation", participation, Participation), most, signed)
    return CorrelatedGaussian(changes, privacy, workload=asked, loss=loss, neighbours=neighbours)

"""The biased extension as a design: how much error a bias budget saves at the same privacy.

Members of the RQM family, rounded by the exponential mechanism (`BiasedQuantizer`), are searched over q, Δ and β for the
least expected loss within an exact privacy budget and a bias budget.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.certificate import CLAIMED, PROVED, RECOMPUTED, Check, OldCertificate, check_table
from mechdesign.evidence.old_results import OldResult
from mechdesign.evidence.results import AUDIT_COLUMNS, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import non_negative, number, one_of, settle
from mechdesign.problem.design import OldDesign, refuse_unknown, wanted_gap
from mechdesign.problem.privacy import PureDP
from mechdesign.quantizers.common.account import QuantizerPage
from mechdesign.quantizers.common.dual_pieces import DualPieces
from mechdesign.quantizers.common.enclosures import Moments
from mechdesign.quantizers.common.output_space import OutputSpace, bound_covers, bound_words
from mechdesign.quantizers.mechanism.biased import BiasedQuantizer
from mechdesign.quantizers.mechanism.selection import Selection, rqm_family
from mechdesign.quantizers.optimal.any_outputs import any_outputs, bound_of, told_later
from mechdesign.quantizers.parameter_search import searched_outputs, settle_family
from mechdesign.runs.grid import Grid
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Status

__all__ = ["BiasedCertificate", "BiasedResult", "BiasedSelection"]

SEARCH = "grid search"


@serializable("biased-certificate")
@dataclass(frozen=True, eq=False)
class BiasedCertificate(OldCertificate):
    """Evidence for a `BiasedQuantizer`: its loss is enclosed in integers, bias and value are computed again in floats.

    Parameters
    ----------
    mechanism : BiasedQuantizer
    design : BiasedSelection
    value : float
    lower_bound : float, optional
        What every ε-private mechanism loses at least whose bias is within the budget, with outputs as `duals` says.
    duals : DualPieces, optional
        Multipliers that prove it.
    """

    mechanism: BiasedQuantizer
    design: Any
    value: float
    lower_bound: float | None = None
    duals: DualPieces | None = None

    @classmethod
    def of(
        cls, mechanism: BiasedQuantizer, design: BiasedSelection, value: float, duals: DualPieces | None
    ) -> BiasedCertificate:
        """State the value, and the lower bound that the multipliers prove, if they prove any above 0."""
        bound = 0.0 if duals is None else bound_of(design, duals, mechanism.bins)
        return cls(mechanism, design, value, *((bound, duals) if bound > 0 else ()))

    @property
    def statement(self) -> Mapping[str, Any]:
        """Budgets, outputs, input range, prior and loss, and the value that is claimed."""
        design = self.design
        budgets = {"epsilon": Fraction(design.privacy.epsilon), "max_bias": design.max_bias}
        cost = {"prior": design.prior, "loss": design.loss, "value": self.value}
        stated = {**budgets, "bins": self._bins, "input_range": design.input_range, **cost}
        if self.lower_bound is not None:
            stated["lower_bound"] = Fraction(self.lower_bound)
        return stated

    @property
    def bound_how(self) -> str:
        if self.duals is None or not self.design.loss.polynomial:
            return CLAIMED
        return PROVED if Moments(self.design.prior).proved else RECOMPUTED

    def checks(self) -> pd.DataFrame:
        """Privacy, bias and value."""
        design, mechanism = self.design, self.mechanism
        epsilon, same = design.privacy.epsilon, mechanism.input_range == design.input_range
        privacy = epsilon - mechanism.proved_loss()
        bias = min(design.max_bias, sys.float_info.max) - mechanism.max_bias()
        found = mechanism.expected_loss(design.prior, design.loss)
        error, better = abs(found - self.value), found - self.value
        return check_table([
            (f"privacy loss at most {epsilon!r}", PROVED, privacy, same and privacy >= 0),
            (f"bias at most {design.max_bias!r} on a fine grid", RECOMPUTED, bias, bias >= 0),
            ("expected loss as stated", RECOMPUTED, -error, error <= 1e-9 * abs(found) and better <= 1e-12 * abs(found)),
            *self._bound_checks(),
        ])  # fmt: skip

    def _bound_checks(self) -> Iterator[Check]:
        if self.lower_bound is None:
            return
        how, duals, margin = self.bound_how, self.duals, -math.inf
        claim = f"every mechanism {bound_words(duals)} loses at least {self.lower_bound!r}"
        if duals is not None and how != CLAIMED and duals.sound(self._bins, worst=False):
            margin = bound_of(self.design, duals, self.mechanism.bins) - self.lower_bound
        room = 1e-12 * abs(self.lower_bound) if how == RECOMPUTED else 0.0
        yield claim, how, margin, margin >= -room

    @property
    def _bins(self) -> tuple[Fraction, ...]:
        return tuple(Fraction(b) for b in self.mechanism.bins.tolist())


@serializable("biased-result")
@dataclass(frozen=True, eq=False)
class BiasedResult(QuantizerPage, OldResult):
    """Result of a `BiasedSelection`; `table` holds the bias–privacy–error trade-off met on the way."""

    table: pd.DataFrame | None = None

    @property
    def epsilon(self) -> float:
        """Exact privacy loss, rounded up."""
        return self.mechanism.privacy_loss()

    def tried(self) -> pd.DataFrame:
        return self.to_frame()

    def beside(self) -> Iterator[Check]:
        yield from bound_covers(self)

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame() if self.table is None else self.table

    _among = "the biased selection mechanisms of the grid"

    def _audit(self) -> pd.DataFrame:
        low, high = self.mechanism.extremes()
        rho, bias, most = (
            math.exp(self.design.privacy.epsilon),
            self.mechanism.max_bias(),
            self.design.max_bias,
        )
        index = [f"output {b:g}" for b in self.mechanism.bins]
        rows = [("privacy", i, h, rho * l, rho * l - h, math.nan, False) for i, l, h in zip(index, low, high)]
        rows.append(("bias", "largest", bias, most, most - bias, math.nan, False))
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def _evidence(self) -> list[str]:
        return [f"exact loss: {self.epsilon!r}, largest bias: {self.mechanism.max_bias():.6g}"]


@serializable("biased-selection")
@dataclass(frozen=True)
class BiasedSelection(OldDesign):
    """The least-loss biased selection mechanism within a privacy and a bias budget.

    Parameters
    ----------
    m : int
        Number of outputs, uniform on [lower − Δ, upper + Δ].
    privacy : PureDP
    prior, loss, input_range
        As in `OPTM`.
    max_bias : float
        Largest allowed |E M(x) − x|; infinity for none.
    grid : Grid, optional
        Axes ``delta``, ``q``, ``beta``; Δ in units of half the range, β per unit of half the range.

    Examples
    --------
    >>> from scipy import stats
    >>> grid = Grid(delta=[0.5, 1.0], q=[0.3, 0.6], beta=[0.1, 0.5])
    >>> result = BiasedSelection(4, PureDP(1.0), stats.uniform(-1, 2), max_bias=math.inf, grid=grid).solve()
    >>> result.epsilon <= 1.0
    True
    """

    m: int
    privacy: PureDP
    prior: Any
    loss: Any = "absolute"
    max_bias: float = math.inf
    input_range: Any = None
    grid: Grid | None = None

    def __post_init__(self) -> None:
        betas = np.concatenate([[0.0], np.geomspace(0.02, 5, 16)])
        settle_family(self, Grid(delta=np.linspace(0.0, 3.0, 13), q=np.linspace(0.1, 0.9, 9), beta=betas))
        if not (isinstance(self.max_bias, float) and self.max_bias == math.inf):
            settle(self, max_bias=non_negative("max_bias", self.max_bias))

    def mechanism(self, delta: float, q: float, beta: float) -> BiasedQuantizer:
        """The member with these parameters."""
        lower, upper = self.input_range
        half, delta, beta = (upper - lower) / 2, number("delta", delta), number("beta", beta)
        bins = np.linspace(lower - delta * half, upper + delta * half, self.m)
        family = rqm_family(self.m, q)
        return BiasedQuantizer(Selection(bins, family, family), beta / half, self.input_range)

    @property
    def output_space(self) -> OutputSpace | None:
        """Where the outputs of the grid's members are; None where all have the same."""
        return searched_outputs(self, "q", "beta", zoomed=False)

    def model(self, **options: Any) -> Any:
        """Raise DesignError: members are closed forms, and the search has no program."""
        raise DesignError("BiasedSelection searches closed forms on a grid: there is no program to declare")

    def solve(
        self,
        solver: str | None = None,
        *,
        gap: float | None = None,
        certify: bool = True,
        time_limit: float | None = None,
        **options: Any,
    ) -> BiasedResult:
        """Search the grid; the status is "feasible".

        The lower bound is that of every ε-private mechanism within the bias budget, of this family or not, with any outputs
        as far out as the grid's (`output_space`). Losses that are functions have none.

        Raises
        ------
        InfeasibleError
            No point meets both budgets; states the least bias within the privacy budget.
        SolverError
            None was met by the time limit.
        """
        refuse_unknown(
            {**options, **({} if solver is None else {"solver": solver})}, "a grid search has no solver"
        )
        wanted_gap(gap, 1.0e-6)
        one_of("certify", certify, (True, False))
        deadline = Deadline(time_limit)
        rows, least, tried = self._members(deadline)
        if not rows and deadline.passed:
            raise SolverError(
                "no member within both budgets by the time limit", solver=SEARCH, status="limit"
            )
        if not rows:
            raise InfeasibleError(
                f"no biased selection mechanism on the grid is within epsilon = {self.privacy.epsilon:g} and "
                f"max_bias = {self.max_bias:g}; the least bias within the privacy budget is {least:.6g}",
                least=least,
            )
        table = pd.DataFrame(rows).sort_values("value", ignore_index=True)
        best = self.mechanism(*(float(table.loc[0, k]) for k in ("delta", "q", "beta")))
        value, certificate = float(table.loc[0, "value"]), None
        status = Status.LIMIT if tried < len(self.grid or ()) else Status.FEASIBLE
        bound = told_later(self, best.bins, value)
        if certify:
            certificate = BiasedCertificate.of(best, self, value, any_outputs(self, best.bins, deadline))
            bound = None if certificate.lower_bound is None else min(certificate.lower_bound, value)
        elif status is Status.FEASIBLE:
            status = Status.UNCERTIFIED
        report = SolveReport(SEARCH, status, deadline.elapsed, iterations=tried)
        return BiasedResult(self, best, value, bound, report, certificate=certificate, table=table)

    def _members(self, deadline: Deadline) -> tuple[list[dict[str, float]], float, int]:
        """The members within both budgets with their values, the least bias within the privacy budget, points tried."""
        rows, least, tried = [], math.inf, 0
        for point in self.grid or ():
            if deadline.passed:
                break
            tried += 1
            member = self.mechanism(**point)
            loss = member.privacy_loss()
            if loss > self.privacy.epsilon:
                continue
            bias = member.max_bias(201)
            least = min(least, bias)
            if max(bias, member.max_bias() if math.isfinite(self.max_bias) else 0.0) <= self.max_bias:
                value = member.expected_loss(self.prior, self.loss)
                rows.append({**point, "epsilon": loss, "bias": bias, "value": value})
        return rows, least, tried

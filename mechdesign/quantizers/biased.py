"""The biased extension as a design: how much error a bias budget saves at the same privacy.

Members of the RQM family, rounded by the exponential mechanism (`BiasedQuantizer`), are searched over q, Δ and β for the
least expected loss within an exact privacy budget and a bias budget.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.errors import InfeasibleError
from mechdesign.evidence.proofs import (
    PROVED,
    RECOMPUTED,
    Certificate,
    Claim,
    LawProof,
    MechanismClass,
    family,
)
from mechdesign.evidence.results import AUDIT_COLUMNS, Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.model.parallel import Grid
from mechdesign.problem.checks import instance, non_negative, number, settle
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.quantizers.design import QuantizerDesign
from mechdesign.quantizers.dual_pieces import OutputSpace
from mechdesign.quantizers.families import searched_among, searched_outputs, settle_family
from mechdesign.quantizers.optimal import loss_bounds
from mechdesign.quantizers.selection import BiasedQuantizer, SelectionFamilies, rqm_family
from mechdesign.solvers.deadline import too_late
from mechdesign.typing import Array


@serializable("biased-selection")
@dataclass(frozen=True)
class BiasedSelection(QuantizerDesign):
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
    >>> result.mechanism.privacy_loss() <= 1.0
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
        return self._rounded(self._selection(number("delta", delta), q), number("beta", beta))

    def _selection(self, delta: float, q: float) -> SelectionFamilies:
        family = rqm_family(self.m, q)
        return SelectionFamilies(self._outputs(delta), family, family)

    def _rounded(self, selection: SelectionFamilies, beta: float) -> BiasedQuantizer:
        lower, upper = self.input_range
        return BiasedQuantizer(selection, beta / ((upper - lower) / 2), self.input_range)

    def _outputs(self, delta: float) -> Array:
        lower, upper = self.input_range
        half = (upper - lower) / 2
        return np.linspace(lower - delta * half, upper + delta * half, self.m)

    @property
    def output_space(self) -> OutputSpace | None:
        """Where the outputs of the grid's members are; None where all have the same."""
        return searched_outputs(self, "q", "beta", zoomed=False)

    def allows(self, outputs: object) -> bool:
        assert self.grid is not None
        return searched_among(self, outputs, self._outputs(float(self.grid.axes["delta"][0])))

    @property
    def among(self) -> MechanismClass:
        return family("biased selection mechanism of the grid")

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        """Search the grid.

        The lower bound is that of every ε-private mechanism within the bias budget, of this family or not, with any outputs
        as far out as the grid's (`output_space`). Losses that are functions have none.

        Raises
        ------
        InfeasibleError
            No point meets both budgets; states the least bias within the privacy budget.
        """
        rows, least, tried = self._members(clock)
        if not rows and clock.passed:
            raise too_late("BiasedSelection")
        if not rows:
            raise InfeasibleError(
                f"no biased selection mechanism on the grid is within epsilon = {self.privacy.epsilon:g} and "
                f"max_bias = {self.max_bias:g}; the least bias within the privacy budget is {least:.6g}",
                least=least,
            )
        table = pd.DataFrame(rows).sort_values("value", ignore_index=True)
        best = self.mechanism(*(float(table.loc[0, k]) for k in ("delta", "q", "beta")))
        yield from loss_bounds(self, best.bins, clock)
        report = SolveReport("grid search", iterations=tried)
        yield Law(best, float(table.loc[0, "value"]), (LawProof(),), report, table=table)

    def _members(self, clock: Clock) -> tuple[list[dict[str, float]], float, int]:
        """The members within both budgets with their values, the least bias within the privacy budget, points tried."""
        rows: list[dict[str, float]] = []
        least, tried = math.inf, 0
        selection = cache(self._selection)  # which all β share
        assert self.grid is not None
        widest = max(self.grid.axes["delta"])
        for point in self.grid:
            # late, the first member within both budgets is searched for where outputs reach farthest, which is most private
            if clock.passed and (rows or point["delta"] < widest):
                continue
            tried += 1
            member = self._rounded(selection(point["delta"], point["q"]), point["beta"])
            loss = member.privacy_loss()
            if loss > self.privacy.epsilon:
                continue
            bias = member.max_bias(201)
            least = min(least, bias)
            if max(bias, member.max_bias() if math.isfinite(self.max_bias) else 0.0) <= self.max_bias:
                value = member.expected_loss(self.prior, self.loss)
                rows.append({**point, "epsilon": loss, "bias": bias, "value": value})
        return rows, least, tried

    def law_claims(self, stated: Certificate) -> Iterator[Claim]:
        """Probabilities of a biased selection are monotone between bins: its privacy loss is enclosed in integers there, bias and value are in doubles."""
        law = instance("law", stated.law, BiasedQuantizer)
        fits = law.input_range == self.input_range and self.allows(law.bins)
        epsilon, most = self.privacy.epsilon, self.max_bias
        left = epsilon - law.proved_loss()
        yield Claim(f"privacy loss at most {epsilon!r}", PROVED, left, fits and left >= 0)
        left = min(most, sys.float_info.max) - law.max_bias()
        yield Claim(f"bias at most {most!r} on a fine grid", RECOMPUTED, left, left >= 0)
        found = law.expected_loss(self.prior, self.loss)
        error, better = abs(found - stated.value), found - stated.value
        holds = error <= 1e-9 * abs(found) and better <= 1e-12 * abs(found)
        yield Claim(f"expected loss {stated.value!r}", RECOMPUTED, -error, holds)

    # -- what a result says ---------------------------------------------------------------------------

    def frame(self, result: Result) -> pd.DataFrame:
        """The trade-off between bias, privacy and error that the search met."""
        return result.trials()

    def audit(self, result: Result) -> pd.DataFrame:
        mechanism, rho = result.mechanism, math.exp(self.privacy.epsilon)
        (low, high), bias, most = mechanism.extremes(), mechanism.max_bias(), self.max_bias
        index = [f"output {b:g}" for b in mechanism.bins]
        rows = [("privacy", i, h, rho * l, rho * l - h, math.nan, False) for i, l, h in zip(index, low, high)]
        rows.append(("bias", "largest", bias, most, most - bias, math.nan, False))
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def lines(self, result: Result) -> list[str]:
        loss, bias = result.mechanism.privacy_loss(), result.mechanism.max_bias()
        return [f"exact loss: {loss!r}, largest bias: {bias:.6g}"]

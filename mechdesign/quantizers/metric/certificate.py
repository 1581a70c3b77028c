r"""Exact evidence for metric and approximate privacy: the rows at the knots, their value, and a bound for all mechanisms.

Rows, means and privacy are checked in fractions, on the continuum through the ratios 1 + εh of neighbours
(`PairwisePrivacy`); the value is the law's own, integrated between proved bounds of the prior. The lower bound is found again
from the bounding program, which is declared anew from the statement, and the stored multipliers of its rows: with every
sum rounded outward, and with costs integrated in doubles, therefore "recomputed".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.certificate import CLAIMED, PROVED, RECOMPUTED, Check
from mechdesign.evidence.rounding import round_down
from mechdesign.evidence.serialize import UnavailableCallable, serializable
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP
from mechdesign.quantizers.common.certificate import QuantizerCertificate
from mechdesign.quantizers.metric.closed import Multipliers
from mechdesign.quantizers.metric.notion import PairwisePrivacy
from mechdesign.quantizers.metric.program import bounding_program
from mechdesign.solvers import Solution, proved_bound
from mechdesign.typing import Array, Status

__all__ = ["MetricCertificate"]


@serializable("metric-certificate")
@dataclass(frozen=True, eq=False)
class MetricCertificate(QuantizerCertificate):
    """Exact proof that a rational quantizer is unbiased and satisfies its privacy notion, and of its value.

    Parameters
    ----------
    law : RationalTable
        Rows at the knots; on the continuum they are interpolated.
    epsilon, prior, loss, objective, value, lower_bound
        As in `QuantizerCertificate`.
    notion : PairwisePrivacy
    multipliers : array, optional
        Of the rows of the bounding program; on a grid maybe of those alone that are not of privacy (`closed`).
    places : array, optional
        Inputs between the knots of a grid that the bound of the worst case is over too.
    """

    notion: PairwisePrivacy | None = None
    multipliers: Array | None = None
    places: Array | None = None

    @property
    def statement(self) -> Mapping[str, Any]:
        """Notion, inputs, outputs and cost, all rational; value and bound if stated."""
        stated = {name: value for name, value in super().statement.items() if name != "rho"}
        if self.notion is None:
            return stated | {"privacy": PureDP(self.epsilon)}
        stated |= {"privacy": self.notion.privacy, "delta": Fraction(self.notion.delta)}
        return {**stated, "continuum": self.notion.continuum, "inputs": self.law.knots}

    def _privacy_check(self) -> Check:
        law, notion = self.law, self.notion
        if notion is None:
            return super()._privacy_check()
        claim = f"privacy: {notion.privacy!r}"
        if isinstance(getattr(notion.privacy, "metric", None), UnavailableCallable):
            return claim, CLAIMED, math.nan, True
        ends = [[law.row(k, end) for end in (0, 1)] for k in range(len(law.knots) - 1)]
        joined = all(a[1] == b[0] for a, b in pairwise(ends))
        slack = notion.exact_slack(list(law.knots), [ends[0][0], *(end for _, end in ends)])
        return (
            claim,
            PROVED,
            round_down(slack),
            joined and slack >= 0 and notion.privacy.epsilon == self.epsilon,
        )

    @property
    def _evident(self) -> bool:
        """Whether the lower bound needs no proof: absolute and squared errors are not negative."""
        return self.lower_bound is not None and self.lower_bound <= 0 and Loss.of(self.loss).polynomial

    @property
    def bound_how(self) -> str:
        if self._evident:
            return PROVED
        if self.notion is None or self.multipliers is None:
            return super().bound_how
        gone = isinstance(Loss.of(self.loss).function, UnavailableCallable)
        return CLAIMED if gone else RECOMPUTED

    def _bound_checks(self) -> Iterator[Check]:
        if self.lower_bound is not None and self._evident:
            claim = f"every mechanism loses at least {self.lower_bound!r}"
            yield claim, PROVED, -self.lower_bound, True
            return
        if self.lower_bound is None or self.notion is None or self.multipliers is None:
            yield from super()._bound_checks()
            return
        prior, loss = Prior.of(self.prior), Loss.of(self.loss)
        claim = f"every mechanism loses at least {self.lower_bound!r}"
        if self.bound_how == CLAIMED:
            yield claim, CLAIMED, math.nan, self.value is None or self.lower_bound <= self.value
            return
        bins, knots = (np.array([float(v) for v in values]) for values in (self.law.bins, self.law.knots))
        question = prior, loss, self.objective
        margin = self._closed_bound(bins, knots, question) - self.lower_bound
        if margin >= 0:
            yield claim, RECOMPUTED, margin, True
            return
        model = bounding_program(bins, knots, None, *question, self._places)
        if self.notion.continuum or len(self.multipliers) != model.size[1]:
            model = bounding_program(bins, knots, self.notion, *question, self._places)
        stored = Solution(
            Status.OPTIMAL, math.nan, {}, {}, "stored", 0.0, row_dual=np.array(self.multipliers)
        )
        try:
            margin = proved_bound(model, stored) - self.lower_bound
        except SolverError:  # not as many multipliers as rows
            margin = -math.inf
        yield claim, RECOMPUTED, margin, margin >= 0

    def _closed_bound(self, bins: Array, knots: Array, question: tuple[Prior, Loss, str]) -> float:
        """What the multipliers prove if they are those of a grid's sums and means; −∞ if not."""
        values, places = np.array(self.multipliers, dtype=float), self._places
        if not Multipliers.apply(self.notion) or len(values) != Multipliers.count(
            knots, places, self.objective
        ):
            return -math.inf
        return Multipliers(bins, knots, self.notion, question, places, values).bound

    @property
    def _places(self) -> Array:
        """Of the worst case on a grid, within it."""
        given = np.zeros(0) if self.places is None else np.array(self.places, dtype=float)
        ends = float(self.law.knots[0]), float(self.law.knots[-1])
        grid = self.notion is not None and not self.notion.continuum and self.objective == "worst"
        if given.size and not (grid and given.ndim == 1 and ((given >= ends[0]) & (given <= ends[1])).all()):
            raise DesignError.of(
                "places", given, "must be inputs between the knots of a grid, for its worst case"
            )
        return given

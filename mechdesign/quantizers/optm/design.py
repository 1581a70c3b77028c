r"""OPTM: the optimal randomized quantization mechanism of the selection family.

Source: *Privacy-Aware Randomized Quantization via Linear Programming*, Theorems 3–6 and Algorithm 2. Up to four bins the
paper's linear program (`program`) is solved for a grid of boxes of bounds that linearise it (`boxes`); beyond, the bilinear
problem is followed down (`descent`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from mechdesign import solvers
from mechdesign.errors import DesignError
from mechdesign.evidence.results import Result, SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import one_of, settle, whole
from mechdesign.problem.fields import field
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.spine import Bound, Clock, Law, ModelledDesign
from mechdesign.quantizers.common.design import QuantizerDesign
from mechdesign.quantizers.common.proofs import proved_law
from mechdesign.quantizers.mechanism.exact_law import excess_loss, tightened
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.mechanism.selection import (
    Selection,
    check_bins,
    check_range,
    mirrored_bins,
    spread,
    symmetric_bins,
)
from mechdesign.quantizers.optimal.any_outputs import least_loss
from mechdesign.quantizers.optimal.design import OptimalQuantizer
from mechdesign.quantizers.optimal.floors import smallest_epsilon, solved_epsilon
from mechdesign.quantizers.optm.boxes import BoxPoint, BoxSearch
from mechdesign.quantizers.optm.descent import Descent, LinearisedPoint, SelectionBlocks
from mechdesign.quantizers.optm.program import RESOLVED, OPTMProgram
from mechdesign.runs.grid import Grid
from mechdesign.solvers.deadline import too_late
from mechdesign.typing import Array

__all__ = ["OPTM"]

CONSTRAINTS = ("theorem5", "theorem6", "across-outputs")
_BOUNDS = 'must be a md.Grid, "successive", or a pair of arrays (lower, upper)'


@serializable("optm")
@dataclass(frozen=True)
class OPTM(QuantizerDesign, ModelledDesign):
    r"""The best selection mechanism that the OPTM linear programs find for fixed bins.

    Parameters
    ----------
    bins : array_like, shape (m,)
        Output values, covering the input range.
    privacy : PureDP
        The local-DP budget.
    prior : frozen scipy.stats law, md.clipped, md.truncated, or samples
        Law of the input.
    loss : "absolute", "squared", dict of weights, or convex callable
        With bounds, the program minimises Lemma 1's linear upper bound of it (of the absolute loss for callables);
        "successive" minimises the exact loss. The value reported is always the exact loss.
    input_range : (float, float), optional
        Defaults to the prior's support.
    constraints : {"theorem5", "theorem6", "across-outputs"}
        Theorem 5 (per output, all pairs), the compact Theorem 6, or what the paper's authors solve for
        asymmetric bins (Table 2): every maximum against every minimum of any output, which is stricter.
    families : {"auto", "symmetric", "separate"}
        One mirrored family (symmetric bins) or two (Theorem 4). "auto" follows the bins.
    bounds : Grid or (lower, upper) or "successive" or None
        How products are linearised: a `Grid` with the axis ``level`` (and ``width``, one value; for separate
        families also ``level_right``), a pair of triangular arrays, or "successive": no bounds, but loss and
        privacy linearised again and again at the current mechanism, down to a local optimum of the exact problem. None
        takes the paper's grid up to four bins and "successive" beyond.

    Raises
    ------
    DesignError
        Bad bins, prior, loss or constraint set, each named.

    Examples
    --------
    >>> from scipy import stats
    >>> design = OPTM(bins=[-3, -0.5, 0.5, 3], privacy=PureDP(1.0), prior=stats.uniform(-1, 2))
    >>> result = design.solve()
    >>> round(result.value, 4), result.mechanism.privacy_loss() <= 1.0
    (1.8785, True)
    """

    bins: Any
    privacy: PureDP = field(PureDP)
    prior: Any = field()
    loss: Any = "absolute"
    input_range: Any = None
    constraints: str = field(check=one_of, allowed=CONSTRAINTS, default="theorem5")
    families: str = field(check=one_of, allowed=("auto", "symmetric", "separate"), default="auto")
    bounds: Any = None

    default_gap = 1e-4
    proves_optimality = False

    def __post_init__(self) -> None:
        super().__post_init__()
        bins = mirrored_bins(check_bins(self.bins))
        given = None if self.input_range is None else check_range(self.input_range, bins)
        prior = Prior.of(self.prior, given)
        low, high = check_range(given or prior.support, bins)
        settle(self, bins=tuple(bins.tolist()), prior=prior, input_range=(low, high), loss=Loss.of(self.loss))
        self.loss.check_convex(bins, low, high)
        symmetric = symmetric_bins(bins) and low == -high
        compact = self.constraints == "theorem6"
        if not symmetric and (self.families == "symmetric" or compact):
            which = "Theorem 6" if compact else 'families="symmetric"'
            allowed = (
                f'{which} needs bins and range that mirror about 0; use families="separate" with theorem5'
            )
            raise DesignError.of("bins", self.bins, allowed)
        if compact and not ((bins >= low) & (bins <= high)).any():
            raise DesignError.of("bins", self.bins, "Theorem 6 needs a bin inside the input range")
        if self.families == "auto":
            settle(self, families="symmetric" if symmetric else "separate")
        if self.bounds is not None and not isinstance(self.bounds, (Grid, str)):
            settle(self, bounds=_checked_pair(self.bounds, len(bins)))
        elif isinstance(self.bounds, str) and self.bounds != "successive":
            raise DesignError.of("bounds", self.bounds, _BOUNDS)

    # -- model ----------------------------------------------------------------------------------------

    @cached_property
    def program(self) -> OPTMProgram:
        """The linear program's numbers and structure."""
        return OPTMProgram(
            np.array(self.bins),
            self.input_range,
            self.prior,
            self.loss,
            constraints=self.constraints,
            separate=self.families == "separate",
        )

    def model(self, *, low: Any = None, high: Any = None) -> solvers.Model:
        """Return the CVXPY model for bounds given as triangular arrays (default: 0 and 1)."""
        m = len(self.bins)
        default = (np.zeros((m - 1, m - 1)), np.tril(np.ones((m - 1, m - 1))))
        pair = _checked_pair([d if b is None else b for b, d in zip((low, high), default)], m)
        return self.program.model(self.privacy.epsilon, *(self.program.flatten(b, b) for b in pair))

    # -- solve ----------------------------------------------------------------------------------------

    def improve(
        self,
        clock: Clock,
        solver: str | None = None,
        start: Quantizer | None = None,
        outputs: int = 64,
        **options: Any,
    ) -> Iterator[Law | Bound]:
        """Search the bounds, or descend from the optimum over all mechanisms, which is also the lower bound.

        The status is "feasible": neither search proves that no member of the family is better. The bound is that of every
        unbiased mechanism with these bins, of the family or not.

        Parameters
        ----------
        clock : Clock
        solver : str, optional
            "highs" (default; warm-started), or any registered backend.
        start : Quantizer, optional
            A selection mechanism with these bins within the budget: "successive" ends no higher.
        outputs : int
            "successive" draws from at most that many of the bins, chosen evenly; the others only divide the
            inputs. Costs little accuracy, and keeps programs with hundreds of bins small.
        **options
            The backend's own.

        Raises
        ------
        InfeasibleError
            No bounds tried admit a mechanism; says why, with the smallest feasible ε.
        """
        usable = spread(len(self.bins), whole("outputs", outputs, 4))
        given = None if start is None else self._checked_start(start)
        if solver is not None:
            solvers.get(solver)
        yield from least_loss(self, self.bins, clock)
        if self._on_boxes:
            yield self.on_boxes(clock, solver, options)
            return
        if given is not None:  # what it draws, too
            drawn = np.append(given.left.sum(axis=0), 0.0) + np.append(0.0, given.right.sum(axis=0)[::-1])
            usable = np.union1d(usable, np.flatnonzero(drawn))
        program = self.program
        blocks = SelectionBlocks(
            program.bins, self.input_range, self.prior, self.loss, mirrored=not program.separate,
            shared_floor=self.constraints == "across-outputs", usable=usable,
        )  # fmt: skip
        descent = Descent(blocks, self.privacy.epsilon, solver, clock, options)
        half = clock.part(0.5)  # the rest is for getting inside the budget
        any_mechanism = OptimalQuantizer(
            program.bins[usable],
            PureDP(self._solved_epsilon),
            self.prior,
            self.loss,
            input_range=self.input_range,
        ).solve(gap=clock.gap, certify=False, time_limit=half.limit())
        starts = [blocks.imitate(any_mechanism.mechanism.probabilities)]
        if given is not None:
            starts.append(blocks.unknowns(given))
            yield self._law(descent, descent.point(starts[-1]), [], clock)
        points = [point for q in starts if (point := descent.best(q, half)) is not None]
        if not points and given is None:
            raise too_late("OPTM") if clock.passed else descent.infeasible()
        for point in points:
            notes = [f"a local optimum, after {descent.program.count} linearised programs"]
            yield self._law(descent, point, notes, clock)

    def on_boxes(self, clock: Clock, solver: str | None, options: dict[str, Any]) -> Law:
        """Return the best of the boxes."""
        boxes = BoxSearch(self.program, self.bounds, solver, clock, options)
        found = boxes.best(self._solved_epsilon)
        if found is None:
            raise too_late("OPTM") if clock.passed else boxes.infeasible(self.privacy.epsilon)
        return self._law(boxes, found, boxes.notes(found), clock)

    @property
    def _solved_epsilon(self) -> float:
        """The budget, or a smaller one where its floors would be lost in a linear program's tolerance."""
        least = smallest_epsilon(np.array(self.bins), *self.input_range)
        return solved_epsilon(self.privacy.epsilon, least, RESOLVED)

    @property
    def _on_boxes(self) -> bool:
        """Whether bounds linearise the program, as in the paper; products of more bins are followed down."""
        if self.constraints == "theorem6" or isinstance(self.bounds, (tuple, Grid)):
            return True
        return self.bounds is None and len(self.bins) <= 4

    def _law(
        self, search: BoxSearch | Descent, point: BoxPoint | LinearisedPoint, notes: list[str], clock: Clock
    ) -> Law:
        """The point's mechanism; in exact arithmetic, solved again for a smaller budget where the floats are outside."""
        budget = self.privacy.epsilon

        def solved(epsilon: float) -> Any:
            found = point if epsilon == budget else search.tighter(point, min(epsilon, self._solved_epsilon))  # type: ignore[arg-type]
            return None if found is None else (found, found.mechanism.selection.exact(self.input_range))  # type: ignore[union-attr]

        law = None
        if clock.certify:
            point, law = tightened(solved, lambda pair: excess_loss(pair[1], budget), budget)
        value = point.mechanism.expected_loss(self.prior, self.loss)
        report, duals = SolveReport.of(point.solution), point.audit(budget)
        floats = Law(point.mechanism, value, report=report, notes=tuple(notes), duals=duals)
        if law is None:
            return floats
        exact = Quantizer.of_law(law, point.mechanism.selection)
        return proved_law(self, floats, exact)

    def _checked_start(self, start: Any) -> Selection:
        """Return the selection probabilities of a mechanism to start from, or raise DesignError."""
        given, bins, epsilon = (
            start.selection if isinstance(start, Quantizer) else None,
            np.array(self.bins),
            self.privacy.epsilon,
        )
        if (
            given is None
            or len(given.bins) != len(bins)
            or not np.allclose(given.bins, bins, rtol=1e-12, atol=0)
        ):
            raise DesignError.of(
                "start", start, "must be a selection mechanism (RQM, ERM, OPTM) with the design's bins"
            )
        if start.privacy_loss() > epsilon:
            raise DesignError.of(
                "start", start, f"its loss {start.privacy_loss():.6g} exceeds the budget {epsilon:g}"
            )
        return Selection(bins, given.left, given.right)

    def audit(self, result: Result) -> pd.DataFrame:
        """Constraints of the definition, and those of the program with its multipliers."""
        return pd.concat(
            [super().audit(result), *([] if result.duals is None else [result.duals])], ignore_index=True
        )


def _checked_pair(given: Any, m: int) -> tuple[Array, Array]:
    try:
        low, high = (np.array(b, dtype=float) for b in given)
    except (TypeError, ValueError, OverflowError):
        raise DesignError.of("bounds", given, _BOUNDS) from None
    if low.shape != (m - 1, m - 1) or high.shape != (m - 1, m - 1):
        text = f"bounds have shapes {low.shape}, {high.shape}: both must be ({m - 1}, {m - 1}), triangular"
        raise DesignError(text)
    for n, i in np.argwhere(np.tril(~((low >= 0) & (low <= high)))):
        what = f"o_{n + 1}({i + 1}) = {low[n, i]:g}, u_{n + 1}({i + 1}) = {high[n, i]:g}"
        raise DesignError(f"bounds: {what}; need 0 <= o <= u")
    return low, high

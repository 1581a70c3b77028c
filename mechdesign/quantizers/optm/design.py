r"""OPTM: the optimal randomized quantization mechanism of the selection family.

Source: *Privacy-Aware Randomized Quantization via Linear Programming*, Theorems 3–6 and Algorithm 2. The linear
program is in `mechdesign.quantizers.optm.model`; this module says what is wanted, has the boxes of bounds that linearise
the program searched (`boxes`) or, beyond four bins, the bilinear problem followed down (`successive`), and certifies
what comes out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from mechdesign import solvers
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.deferred import Later
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import one_of, settle, whole
from mechdesign.problem.design import OldDesign, refuse_unknown, wanted_gap
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP
from mechdesign.quantizers.common.certificate import QuantizerCertificate
from mechdesign.quantizers.common.rational_rows import excess_loss, tightened
from mechdesign.quantizers.common.result import QuantizerResult
from mechdesign.quantizers.mechanism.exact_law import ExactLaw
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.mechanism.selection import (
    Selection,
    check_bins,
    check_range,
    mirrored_bins,
    symmetric_bins,
)
from mechdesign.quantizers.optm.boxes import RESOLVED, BoxSearch
from mechdesign.quantizers.optm.model import OPTMProgram
from mechdesign.quantizers.optm.successive import Successive
from mechdesign.runs.grid import Grid
from mechdesign.solvers.deadline import Deadline, too_late
from mechdesign.typing import Array, Status

__all__ = ["OPTM"]

CONSTRAINTS = ("theorem5", "theorem6", "across-outputs")


@serializable("optm")
@dataclass(frozen=True)
class OPTM(OldDesign):
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
    privacy: PureDP
    prior: Any
    loss: Any = "absolute"
    input_range: Any = None
    constraints: str = "theorem5"
    families: str = "auto"
    bounds: Any = None

    def __post_init__(self) -> None:
        bins = mirrored_bins(check_bins(self.bins))
        if not isinstance(self.privacy, PureDP):
            raise DesignError.of("privacy", self.privacy, "OPTM gives pure local DP: use md.PureDP(epsilon)")
        one_of("constraints", self.constraints, CONSTRAINTS)
        one_of("families", self.families, ("auto", "symmetric", "separate"))
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

    def model(self, *, low: Any = None, high: Any = None, **options: Any) -> solvers.Model:
        """Return the CVXPY model for bounds given as triangular arrays (default: 0 and 1)."""
        refuse_unknown(options, "model() takes low and high")
        m = len(self.bins)
        default = (np.zeros((m - 1, m - 1)), np.tril(np.ones((m - 1, m - 1))))
        pair = _checked_pair([d if b is None else b for b, d in zip((low, high), default)], m)
        return self.program.model(self.privacy.epsilon, *(self.program.flatten(b, b) for b in pair))

    # -- solve ----------------------------------------------------------------------------------------

    def solve(
        self,
        solver: str | None = None,
        *,
        gap: float | None = None,
        certify: bool = True,
        time_limit: float | None = None,
        start: Quantizer | None = None,
        outputs: int = 64,
        **options: Any,
    ) -> QuantizerResult:
        """Search the bounds, certify the best mechanism, and return it with its evidence.

        The status is "feasible": neither search proves that no member of the family is better.

        Parameters
        ----------
        solver : str, optional
            "highs" (default; warm-started), or any registered backend.
        gap : float, optional
            How closely the lower bound of "successive" is proved (1e-4).
        certify : bool
            Return a rational mechanism proved inside the budget (default), or the solver's floats.
        time_limit : float, optional
            Seconds; the best mechanism by then: of more than 24 outputs, 8 are tried first.
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
            No bounds tried admit a mechanism; says why, with the smallest feasible ε where it takes under a second.
        """
        one_of("certify", certify, (True, False))
        deadline, usable, wanted = Deadline(time_limit), whole("outputs", outputs, 4), wanted_gap(gap, 1e-4)
        given = None if start is None else _checked_start(start, np.array(self.bins), self.privacy.epsilon)
        if self._successive:

            def successive(count: int, part: Deadline) -> Successive:
                return Successive(self.program, given, count, wanted, solver, part, options, certify)

            found, search = self._descended(successive, usable, deadline)
        else:
            search = BoxSearch(self.program, self.bounds, solver, deadline, options)
            found = search.best(self.privacy.epsilon)
        if found is None:
            raise too_late("OPTM") if deadline.passed else search.infeasible(self.privacy.epsilon)
        point, law = self._inside(search, found) if certify else (found, None)
        return self._result(search, found, point, law, deadline)

    def _descended(
        self, search: Callable[[int, Deadline], Successive], outputs: int, deadline: Deadline
    ) -> tuple[Any, Any]:
        """The best point by the deadline and the search it is of; where time is limited, few outputs come first."""
        parts = [(outputs, deadline)]
        if deadline.finite and min(outputs, len(self.bins)) > 3 * _FEW:
            parts.insert(0, (_FEW, deadline.part(0.5)))
        searches, ends = [], []
        for part in parts:
            searches.append(search(*part))
            ends.append((searches[-1].best(self.privacy.epsilon), searches[-1]))
        found, best = min(ends, key=lambda end: math.inf if end[0] is None else end[0].value)
        proved: Any = [each for each in searches if each.lower_bound is not None]
        if len(searches) > 1 and proved:
            highest = max(proved, key=lambda each: each.lower_bound)
            best.lower_bound, best.bound_duals = highest.lower_bound, highest.bound_duals
            best.deadline = best.sequence.deadline = deadline
        return found, best

    @property
    def _successive(self) -> bool:
        if self.constraints == "theorem6" or isinstance(self.bounds, (tuple, Grid)):
            return False
        return self.bounds == "successive" or len(self.bins) > 4

    def _inside(self, search: Any, point: Any) -> tuple[Any, ExactLaw]:
        """The point with its rational law; solved again for a smaller budget where the floats are outside."""
        try:
            return self._tightened(search, point, self.privacy.epsilon)
        except InfeasibleError:
            near = None if self.privacy.epsilon <= RESOLVED else search.best(RESOLVED)
            if near is None:
                raise
            return self._tightened(search, near, RESOLVED)

    def _tightened(self, search: Any, point: Any, budget: float) -> tuple[Any, ExactLaw]:

        def solved(epsilon: float) -> tuple[Any, ExactLaw] | None:
            found = point if epsilon == budget else search.tighter(point, epsilon)
            return None if found is None else (found, found.selection().exact(self.input_range))

        return tightened(solved, lambda pair: excess_loss(pair[1], budget), budget)

    def _result(
        self, search: Any, found: Any, point: Any, law: ExactLaw | None, deadline: Deadline
    ) -> QuantizerResult:
        selection = point.selection()
        mechanism = point.mechanism
        if law is not None:
            mechanism = replace(Quantizer.of_law(law), selection=selection)
        value = before = mechanism.expected_loss(self.prior, self.loss)
        if law is not None:
            before = found.mechanism.expected_loss(self.prior, self.loss)
        status = Status.UNCERTIFIED if law is None else Status.FEASIBLE
        bound = _at_most(search.lower_bound, value)
        certificate = None
        if law is not None:
            certificate = QuantizerCertificate.of(self, law, value, bound, search.bound_duals)
            value = certificate.shown(value)
        table = cache(lambda: point.audit(selection, self.privacy.epsilon))
        return QuantizerResult(
            design=self,
            mechanism=mechanism,
            value=value,
            lower_bound=bound,
            solver_report=SolveReport.of(point.solution, status=Status.LIMIT if deadline.passed else status),
            notes=tuple(search.notes(point)),
            certificate=certificate,
            duals=Later(lambda: table()[["family", "index", "dual"]]),
            model_audit=Later(table),
            rise=(value - before) / before,
        )


_FEW = 8  # outputs of the search that comes before the whole one
_BOUNDS = 'must be a md.Grid, "successive", or a pair of arrays (lower, upper)'


def _at_most(bound: Any, value: float) -> Any:
    """A lower bound, or one that is left for later, that is no higher than the value."""
    if isinstance(bound, Later):
        return Later(lambda: _at_most(bound.compute(), value))
    return None if bound is None else min(bound, value)


def _checked_pair(given: Any, m: int) -> tuple[Array, Array]:
    try:
        low, high = (np.array(b, dtype=float) for b in given)
    except (TypeError, ValueError):
        raise DesignError.of("bounds", given, _BOUNDS) from None
    if low.shape != (m - 1, m - 1) or high.shape != (m - 1, m - 1):
        text = f"bounds have shapes {low.shape}, {high.shape}: both must be ({m - 1}, {m - 1}), triangular"
        raise DesignError(text)
    for n, i in np.argwhere(np.tril(~((low >= 0) & (low <= high)))):
        what = f"o_{n + 1}({i + 1}) = {low[n, i]:g}, u_{n + 1}({i + 1}) = {high[n, i]:g}"
        raise DesignError(f"bounds: {what}; need 0 <= o <= u")
    return low, high


def _checked_start(start: Any, bins: Array, epsilon: float) -> Selection:
    """Return the selection probabilities of a mechanism to start from, or raise DesignError."""
    given = start.selection if isinstance(start, Quantizer) else None
    if given is None or len(given.bins) != len(bins) or not np.allclose(given.bins, bins, rtol=1e-12, atol=0):
        raise DesignError.of(
            "start", start, "must be a selection mechanism (RQM, ERM, OPTM) with the design's bins"
        )
    if start.privacy_loss() > epsilon:
        raise DesignError.of(
            "start", start, f"its loss {start.privacy_loss():.6g} exceeds the budget {epsilon:g}"
        )
    return Selection(bins, given.left, given.right)

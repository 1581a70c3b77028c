r"""Quantizers under metric and approximate local privacy.

**On the continuum**, :math:`d = |x - x'|`: :math:`p(x, i) \le e^{\varepsilon |x - x'|} p(x', i)` for all inputs.
For rows interpolated linearly between knots this is *equivalent* to

.. math:: |P_{k+1,i} - P_{k,i}| \le \varepsilon (x_{k+1} - x_k) \min(P_{k,i}, P_{k+1,i}),

as an affine function is steepest, relative to itself, where it is smallest. The linear program over the rows gives
a mechanism that is private everywhere; `metric_quantizer_bound` gives a bound for all mechanisms.

**On a fixed input grid**, any metric, for all pairs of grid points; and (ε, δ)-privacy, with slacks
:math:`S_{kl,i} \ge P_{k,i} - e^\varepsilon P_{l,i}`, :math:`\sum_i S_{kl,i} \le \delta`. Inputs off the grid are first
rounded to a neighbouring grid point at random, keeping their mean; the objective is the exact loss of that. On a
continuum :math:`|x - x'|^2` would force a constant mechanism (n steps of h/n cost :math:`n (h/n)^2 \to 0`), so it needs
a grid. Applied to each coordinate of a vector, it gives :math:`\varepsilon \|x - x'\|_2^2` (Chaudhuri et al. 2022,
Lemma 6): see `MetricQuantizerResult.vector_epsilon`.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import ApproximateDP, MetricDP, PureDP
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.quantizers.mechanism.selection import check_bins, check_range, mirrored_bins
from mechdesign.quantizers.metric.lower_bound import continuum_bound, grid_bound
from mechdesign.quantizers.metric.result import MetricQuantizerResult, repair
from mechdesign.quantizers.optimal.model import hat_costs

if TYPE_CHECKING:
    from mechdesign.solvers.base import Model

__all__ = ["MetricQuantizer"]

Array = npt.NDArray[Any]
_SHRINKS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3)


@serializable("metric-quantizer")
@dataclass(frozen=True)
class MetricQuantizer:
    r"""The best unbiased quantizer under metric, or approximate, local privacy.

    Parameters
    ----------
    bins : array_like, shape (m,)
        Output values covering the input range.
    privacy : MetricDP, ApproximateDP or PureDP
    prior : frozen scipy.stats law, md.clipped, md.truncated, or samples
    loss : "absolute", "squared", dict of the two, or convex callable
    objective : {"mean", "worst"}
        The worst case is over the knots in the program, and exact over all inputs in the result.
    inputs : array_like, shape (K + 1,), optional
        A fixed input grid: required except for ``MetricDP(ε, "absolute")``, which is solved on the continuum without.
    input_range : (float, float), optional
        Defaults to the grid's, else to the prior's support.

    Examples
    --------
    >>> from scipy import stats
    >>> design = MetricQuantizer(bins=[-3, -0.5, 0.5, 3], privacy=MetricDP(2.0), prior=stats.uniform(-1, 2))
    >>> result = design.solve(gap=0.02)
    >>> result.epsilon <= 2.0, result.gap < 0.02
    (True, True)
    """

    bins: Any
    privacy: MetricDP | ApproximateDP | PureDP
    prior: Any
    loss: Any = "absolute"
    objective: str = "mean"
    inputs: Any = None
    input_range: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.privacy, (MetricDP, ApproximateDP, PureDP)):
            raise DesignError.of(
                "privacy", self.privacy, "must be md.MetricDP, md.ApproximateDP or md.PureDP"
            )
        if self.objective not in ("mean", "worst"):
            raise DesignError.of("objective", self.objective, 'must be "mean" or "worst"')
        bins = mirrored_bins(check_bins(self.bins))
        object.__setattr__(self, "bins", tuple(bins.tolist()))
        prior = Prior.of(self.prior)
        if self.inputs is None:
            if not (isinstance(self.privacy, MetricDP) and self.privacy.metric == "absolute"):
                why = (
                    "on a continuum the squared metric forces a constant mechanism"
                    if isinstance(self.privacy, MetricDP)
                    else "this notion is solved on a fixed input grid"
                )
                raise DesignError.of("inputs", None, f"must be a grid of inputs: {why}")
            given = prior.support if self.input_range is None else self.input_range
        else:
            grid = np.asarray(self.inputs, dtype=float)
            if grid.ndim != 1 or len(grid) < 2 or not np.all(np.isfinite(grid)) or np.any(np.diff(grid) <= 0):
                raise DesignError.of(
                    "inputs", self.inputs, "must be at least two finite, strictly increasing numbers"
                )
            object.__setattr__(self, "inputs", tuple(grid.tolist()))
            given = (grid[0], grid[-1])
            if self.input_range is not None and tuple(map(float, self.input_range)) != tuple(given):
                raise DesignError.of(
                    "input_range", self.input_range, f"must equal the grid's ends {given} or be left out"
                )
        lower, upper = check_range(given, bins)
        object.__setattr__(self, "input_range", (lower, upper))
        object.__setattr__(self, "prior", Prior.of(prior, (lower, upper)))
        object.__setattr__(self, "loss", Loss.of(self.loss))
        self.loss.check_convex(bins, lower, upper)

    @property
    def continuum(self) -> bool:
        """Whether privacy is asked for between all inputs of the range, not only those of a grid."""
        return self.inputs is None

    def knots(self, count: int = 129) -> Array:
        """The grid, or `count` equally spaced knots."""
        if self.inputs is not None:
            return np.array(self.inputs)
        lower, upper = self.input_range
        return np.linspace(lower, upper, count)

    def ratios(self, knots: Array, shrink: float = 0.0) -> tuple[Any, Any, Array]:
        """Pairs (k, l) and the largest allowed P_k/P_l, for ε smaller by `shrink` relative."""
        epsilon = self.privacy.epsilon * (1 - shrink)
        K = len(knots)
        if isinstance(self.privacy, MetricDP) and self.privacy.metric == "absolute":
            k = np.arange(K - 1)
            step = epsilon * np.diff(knots)
            # Chains of neighbours imply all other pairs; between knots the interpolation needs 1 + εh.
            ratio = 1.0 + step if self.continuum else np.exp(step)
            return np.append(k, k + 1), np.append(k + 1, k), np.append(ratio, ratio)
        k, l = (v.ravel() for v in np.meshgrid(np.arange(K), np.arange(K), indexing="ij"))
        off = k != l
        k, l = k[off], l[off]
        if isinstance(self.privacy, MetricDP):
            distance = np.asarray(self.privacy.distance(knots[k], knots[l]), dtype=float)
            if distance.shape != k.shape or not np.all(np.isfinite(distance)) or np.any(distance < 0):
                raise DesignError.of(
                    "metric", self.privacy.metric, "must be vectorised, finite and non-negative on the inputs"
                )
            return k, l, np.exp(epsilon * distance)
        return k, l, np.full(len(k), math.exp(epsilon))

    def model(self, count: int = 129, *, shrink: float = 0.0) -> Model:
        """Declare the linear program over the rows in CVXPY.

        Families "privacy", "normalisation", "unbiased", "slack" (approximate privacy), "worst case".
        """
        import cvxpy as cp

        from mechdesign.solvers.base import Model

        bins, knots = np.array(self.bins), self.knots(count)
        K, m = len(knots), len(bins)
        P = cp.Variable((K, m), nonneg=True, name="P")
        families: dict[str, Any] = {
            "normalisation": cp.sum(P, axis=1) == 1,
            "unbiased": P @ bins == knots,
        }
        variables = {"P": P}
        if isinstance(self.privacy, PureDP):
            a = cp.Variable((1, m), nonneg=True, name="a")
            variables["a"] = a
            floors = np.ones((K, 1)) @ a
            rho = math.exp(self.privacy.epsilon * (1 - shrink))
            families["privacy"] = [floors <= P, rho * floors >= P]
        else:
            k, l, ratio = self.ratios(knots, shrink)
            excess = P[k] - cp.multiply(ratio[:, None], P[l])
            if isinstance(self.privacy, ApproximateDP) and self.privacy.delta > 0:
                S = cp.Variable((len(k), m), nonneg=True, name="S")
                variables["S"] = S
                families["privacy"] = excess <= S
                families["slack"] = cp.sum(S, axis=1) <= self.privacy.delta * (1 - shrink)
            else:
                families["privacy"] = excess <= 0
        if self.objective == "worst":
            z = cp.Variable(name="worst")
            variables["worst"] = z
            at_knots = self.loss(bins - knots[:, None])
            families["worst case"] = z >= cp.sum(cp.multiply(at_knots, P), axis=1)
            target: Any = z
        else:
            costs, constant = hat_costs(bins, knots, self.prior, self.loss)
            target = cp.sum(cp.multiply(costs, P)) + constant
        constraints: list[cp.Constraint] = []
        for family in families.values():
            constraints += family if isinstance(family, list) else [family]
        return Model(cp.Problem(cp.Minimize(target), constraints), variables, families)

    def solve(
        self, gap: float = 1e-2, solver: str | None = None, *, knots: int | None = None
    ) -> MetricQuantizerResult:
        """Solve, repair to exact privacy, and bound.

        Parameters
        ----------
        gap : float
            On the continuum: knots are doubled, from 65 up to 1,025, until the relative gap is at most this.
        solver : str, optional
            A backend of `mechdesign.solvers`.
        knots : int, optional
            A fixed number of knots instead.

        Raises
        ------
        InfeasibleError
            No unbiased mechanism with these outputs is that private.
        """
        if not (isinstance(gap, (int, float)) and gap > 0):
            raise DesignError.of("gap", gap, "must be a positive number")
        started = time.perf_counter()
        if not self.continuum:
            return self._solve_at(len(self.knots()), solver, started)
        count = knots or 65
        while True:
            result = self._solve_at(count, solver, started)
            if knots or result.gap is None or result.gap <= gap or count >= 1025:
                break
            count = 2 * count - 1
        if result.gap is not None and result.gap > gap and not knots:
            return result.noted(f"gap {gap:g} was asked for; {result.gap:.2g} is what {count} knots proved")
        return result

    def _solve_at(self, count: int, solver: str | None, started: float) -> MetricQuantizerResult:
        from mechdesign import solvers

        knots = self.knots(count)
        bins = np.array(self.bins)
        answer, repaired = None, None
        for shrink in _SHRINKS:
            try:
                answer = solvers.solve(self.model(count, shrink=shrink), solver)
            except InfeasibleError:
                raise self._infeasible() from None
            repaired = repair(self, knots, np.asarray(answer.primal["P"]))
            if repaired is not None:
                break
        if repaired is None or answer is None:
            raise SolverError(
                "no exactly private mechanism came out of the program; try another solver",
                solver=str(solver),
                status="inaccurate",
            )
        mechanism = Quantizer.interpolated(bins, knots, repaired)
        if self.objective == "mean":
            value = mechanism.expected_loss(self.prior, self.loss)
        else:
            value = mechanism.worst_case_loss(self.loss)[0]
        return MetricQuantizerResult(
            design=self,
            mechanism=mechanism,
            value=float(value),
            lower_bound=self._bound(knots, float(value)),
            solver_report=SolveReport.of(answer, seconds=time.perf_counter() - started),
            notes=self._notes(),
        )

    def _bound(self, knots: Array, value: float) -> float | None:
        lower, upper = self.input_range
        bins, epsilon = np.array(self.bins), self.privacy.epsilon
        if self.continuum and self.objective == "mean":
            if not self.loss.polynomial:
                return None
            cells = min(len(knots) - 1, 256)
            bound = continuum_bound(bins, epsilon, self.prior, self.loss, lower, upper, cells)
            return float(min(bound, value))
        # Finitely many inputs of the range: all the problem on a grid, a relaxation on the continuum.
        points = np.linspace(lower, upper, min(len(knots), 257)) if self.continuum else knots
        k, l, ratio = self.ratios(points)
        if self.continuum:
            ratio = np.exp(epsilon * np.abs(points[k] - points[l]))
        costs, constant = self.loss(bins - points[:, None]), 0.0
        if self.objective == "mean":
            costs, constant = hat_costs(bins, points, self.prior, self.loss)
        bound = grid_bound(
            bins,
            points,
            costs,
            (k, l, ratio),
            worst=self.objective == "worst",
            delta=getattr(self.privacy, "delta", 0.0),
            epsilon=epsilon if isinstance(self.privacy, PureDP) else None,
        )
        return float(min(bound + constant - 1e-15 * abs(constant), value))

    def _notes(self) -> tuple[str, ...]:
        if self.continuum:
            return ()
        return ("privacy holds between grid inputs; inputs off the grid are rounded to it at random first",)

    def _infeasible(self) -> InfeasibleError:
        smallest = self.smallest_epsilon()
        known = "" if smallest is None else f" (the smallest feasible epsilon is {smallest:.9g})"
        return InfeasibleError(
            f"no unbiased mechanism with outputs in [{self.bins[0]:g}, {self.bins[-1]:g}] has "
            f"{type(self.privacy).__name__} at epsilon = {self.privacy.epsilon:g}{known}; widen the outputs or "
            "raise epsilon",
            smallest_epsilon=smallest,
        )

    def smallest_epsilon(self) -> float | None:
        """Smallest ε at which some mechanism is unbiased; None for approximate privacy.

        Splitting every output between the two extreme ones, keeping means, is post-processing; so the mechanism
        with those two outputs decides, and its probabilities are affine in the input.
        """
        first, last = self.bins[0], self.bins[-1]
        lower, upper = self.input_range
        if first >= lower or last <= upper:
            return math.inf
        if self.continuum:
            return max(1 / (last - upper), 1 / (lower - first))
        if isinstance(self.privacy, ApproximateDP) and self.privacy.delta > 0:
            return None
        x = self.knots()
        if not isinstance(self.privacy, MetricDP):
            return math.log(max((last - lower) / (last - upper), (upper - first) / (lower - first)))
        k, l, ratio = self.ratios(x)
        unit = np.log(ratio) / self.privacy.epsilon
        loss = np.maximum(np.log((x[k] - first) / (x[l] - first)), np.log((last - x[k]) / (last - x[l])))
        with np.errstate(divide="ignore"):
            return float(np.max(np.where(loss > 0, loss / unit, 0.0)))

r"""Search for m outputs, and an alphabet whose bound covers every search.

`Alphabet` takes outputs on a fine grid of [−R, R]. It is nearly optimal among any number of outputs, and proves how
nearly: moving any output B at random to one of its two grid neighbours g, g + h, with its mean preserved, is
post-processing; the mechanism stays private and unbiased, and the loss rises by the chord's height over ℓ. For |·| that is
at most :math:`2 (x - g)(g + h - x)/h`, and only for x in the output's own cell; for (·)² it is at most h²/4. Hence

.. math:: \text{loss}(\text{any outputs}) \ge \text{bound}(\text{alphabet})
          - w_1 \min\Bigl(E[d(X)],\; \rho \max_{\text{cells}} E[d(X); \text{cell}]\Bigr) - w_2 h^2/4, \quad
          d(x) = 2 (x - g)(g + h - x)/h.

`BinSearch` minimises the optimal value over m outputs: sequential quadratic programming on the envelope
theorem's derivatives (`bin_slopes`) from several starts, then a polish at a tighter gap. The value is not convex in
the outputs, so only the distance to the alphabet's bound is proved. If range, loss and prior are symmetric about zero the
best outputs need not be: symmetric and free outputs are both searched (of 35 designs with 3 to 16 outputs, free ones are better
by .1% and more in 9, by 1.4% at most). For m ≤ 5 symmetric outputs a grid over all of them is tried too (it lowers the value by 1.2
to 4.8% in 3 of 24 designs with 4 outputs in a wide range).

The envelope theorem gives the derivatives of the optimal value in the outputs.

At the optimum, with rows p, duals μ(x) and multipliers ν of the constraints on the range of means,

.. math:: \frac{dF^*}{dB_i} = \int p_i(x)\bigl(\ell'(B_i - x) - \mu(x)\bigr)\,dF(x)
          - \sum_j \nu_j \frac{\partial}{\partial B_i}\bigl(C_j a - b_j\bigr).

Both p and μ are affine on cells (polynomial losses), so partial moments of order 2 are enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize

from mechdesign import checks
from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.serialize import serializable
from mechdesign.quantizers.floors import FloorProblem, FloorSolution, pieces
from mechdesign.quantizers.moments import integrated
from mechdesign.quantizers.newton import best_floors
from mechdesign.quantizers.table import MOST_OUTPUTS, smallest_epsilon
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array


def any_outputs_bound(problem: FloorProblem, bound: float) -> float | None:
    """Return a lower bound for any outputs within the range of the problem's outputs, from the bound for these."""
    loss, grid = problem.loss, problem.bins
    if not loss.polynomial or problem.max_mse is not None:
        return None
    step = float(np.diff(grid).max())
    square = loss.squared * step * step / 4
    if problem.objective == "worst":
        return bound - (loss.absolute * step / 2 + square) * _ROOM
    moments = problem.prior.moments(grid)
    low, high = grid[:-1], grid[1:]
    rise = 2 * ((low + high) * moments[:, 1] - moments[:, 2] - low * high * moments[:, 0]) / (high - low)
    rise = np.maximum(rise, 0.0)
    moved = min(float(rise.sum()), problem.rho * float(rise.max()))
    return bound - (loss.absolute * moved + square) * _ROOM


_ROOM = 1 + 1e-9
"""Factor against rounding of the cost of moving outputs: a cell's moments cancel."""


@dataclass
class Searched:
    """Outcome of a search: the best outputs with their floors, and a row for each attempt."""

    bins: Array
    solution: FloorSolution | None = None
    any_outputs_bound: float | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    def table(self, bound: str) -> pd.DataFrame:
        """Return the attempts, best first, with the lower bound for any outputs as a row of kind `bound`."""
        table = pd.DataFrame(self.rows).sort_values("value", kind="stable", ignore_index=True)
        if self.any_outputs_bound is not None:
            table.loc[len(table)] = [bound, self.any_outputs_bound, ()]
        return table

    def in_units(self, unit: float) -> Searched:
        """Return the outcome for inputs and outputs that are `unit` times as large."""
        rows = [{**row, "bins": tuple(unit * b for b in row["bins"])} for row in self.rows]
        return replace(self, bins=unit * self.bins, rows=rows)


def _mirrors(problem: FloorProblem) -> bool:
    """Whether range, loss and prior are symmetric about zero."""
    even = problem.lower == -problem.upper and problem.loss.polynomial
    return even and (problem.objective == "worst" or problem.prior.symmetric())


class _Search:
    """The optimal value as a function of the free outputs: the positive half of symmetric outputs, or all."""

    def __init__(
        self, problem: FloorProblem, spec: BinSearch, mirrored: bool, deadline: Deadline, found: Searched
    ) -> None:
        self.problem, self.spec, self.deadline, self.found = problem, spec, deadline, found
        self.R, self.m, self.mirrored = float(problem.bins[-1]), spec.m, mirrored
        self.free = self.m // 2 if mirrored else self.m
        # The scale of the inputs bounds the useful resolution, however wide the outputs' range is.
        self.unit = min(self.R, problem.upper - problem.lower)
        self.least = 1e-3 * self.unit / self.m  # smallest distance of neighbours
        plain = problem.objective == "mean" and problem.max_mse is None and problem.bias == 0
        self.analytic = plain and problem.loss.polynomial

    def outputs(self, free: Array) -> Array:
        """Return all outputs from the free ones (the positive half, or all)."""
        if not self.mirrored:
            return np.sort(np.clip(free, -self.R, self.R))
        half = np.sort(np.clip(free, self.least / 2, self.R))
        return np.concatenate([-half[::-1], [0.0] if self.m % 2 else [], half])

    def value(self, free: Array, gap: float, *, slopes: bool = False) -> tuple[float, Array]:
        """Return the optimal value at the outputs and its derivatives; infinity if infeasible or too late."""
        outputs, nothing = self.outputs(free), np.zeros(len(free))
        here = replace(self.problem, bins=outputs)
        if self.deadline.passed or np.any(np.diff(outputs) < 1e-6 * self.unit / self.m):
            return math.inf, nothing
        if smallest_epsilon(outputs, *here.reach) > math.log(here.rho) * (1 - 1e-9):
            return math.inf, nothing
        try:
            solution = best_floors(here, gap, deadline=self.deadline)
        except InfeasibleError:  # of the cap on the squared error
            return math.inf, nothing
        except SolverError as error:
            self.deadline.failed(error, "the search went on with other outputs")
            return math.inf, nothing
        if self.found.solution is None or solution.value < self.found.solution.value:
            self.found.bins, self.found.solution = outputs, solution
        if not slopes:
            return solution.value, nothing
        full = bin_slopes(here, solution)
        half = self.m // 2
        return solution.value, full[self.m - half :] - full[:half][::-1] if self.mirrored else full

    def starts(self, used: tuple[Array, Array], count: int, at_random: bool) -> list[Array]:
        """Return starting points: evenly spaced ones, quantiles of the alphabet's use, ones spread over the inputs, and random ones.

        Symmetric starts begin evenly spaced within 5/4 of the least reach at which unbiased mechanisms exist, and random ones
        alternate between that reach and R: of 35 designs searched from two symmetric and two random starts, 14% ended .1% and more
        above the best known value without that reach (by 4.1% at most), none with it.
        """
        rng = np.random.default_rng(self.spec.seed)
        n, R, rho = self.free, self.R, self.problem.rho
        low = 0.0 if self.mirrored else -R
        inner = np.linspace(max(low, self.problem.lower), self.problem.upper, n + 1)[1:]
        ends = [] if self.mirrored else [-R]
        middle = inner[:-1] * 0.8 if self.mirrored else inner[1:-1]
        spread = np.concatenate([ends, middle, [R]]) if n > 1 else np.array([R])
        near = min(R, 1.25 * self.problem.upper * (rho + 1) / (rho - 1))
        tight, even = (np.linspace(-reach, reach, self.m)[self.m - n :] for reach in (near, R))
        by_use = self._quantiles(*used)
        out = [tight, by_use, spread, even] if self.mirrored else [even, by_use, spread]
        out = [] if at_random else out
        while len(out) < count:
            reach = near if at_random and len(out) % 2 else R
            draw = np.sort(rng.uniform(0.0 if self.mirrored else -reach, reach, n))
            draw[-1] = reach
            if not self.mirrored:
                draw[0] = -reach
            out.append(draw)
        return out[:count]

    def _quantiles(self, grid: Array, floors: Array) -> Array:
        """Return free outputs at the quantiles of the alphabet's floors, which measure the use of its outputs."""
        n, R = self.free, self.R
        if self.mirrored:
            grid, floors = grid[grid > 0], floors[grid > 0]
        share = np.cumsum(floors) / floors.sum()
        at = np.searchsorted(share, (np.arange(n) + 0.5) / n)
        guess = grid[np.minimum(at, len(grid) - 1)].astype(float)
        guess[-1] = R
        if not self.mirrored:
            guess[0] = -R
        for k in range(1, n):
            guess[k] = max(guess[k], guess[k - 1] + 2 * self.least)
        return guess if guess[-1] <= R else np.linspace(guess[0], R, n)

    def descend(self, kind: str, start: Array, gap: float, steps: int) -> tuple[Array, float]:
        """Descend from a start by sequential quadratic programming, with outputs in order."""
        n, R = self.free, self.R
        order = [{"type": "ineq", "fun": lambda v, k=k: v[k + 1] - v[k] - self.least} for k in range(n - 1)]
        best, best_value = start, self.value(start, gap)[0]
        scale = max(abs(best_value), 1e-12) if math.isfinite(best_value) else 1.0

        def target(v: Array) -> float | tuple[float, Array]:
            nonlocal best, best_value
            value, slope = self.value(v, gap, slopes=self.analytic)
            if value < best_value:
                best, best_value = v.copy(), value
            height = min(value, 1e6 * scale) / scale
            return (height, slope / scale) if self.analytic else height

        options: dict[str, object] = {"maxiter": steps, "ftol": max(gap, 1e-12)}
        if not self.analytic:
            options["eps"] = 1e-5 * self.unit
        if math.isfinite(best_value):
            how: Any = {"jac": self.analytic, "method": "SLSQP", "constraints": order, "options": options}
            optimize.minimize(target, start, bounds=[(self.least / 2 if self.mirrored else -R, R)] * n, **how)
        return self.record(kind, best, best_value)

    def grid(self) -> tuple[Array, float]:
        """Evaluate a grid of symmetric outputs, up to two of them free, and return the best."""
        R = self.R
        inner = (np.arange(24) + 0.5) / 24 * R if self.free == 2 else [0.0]
        outer = np.linspace(max(self.problem.upper, R / 4), R, 13)
        pairs = [np.array([a, b]) for b in outer for a in inner if a < b - self.least]
        points = [pair[2 - self.free :] for pair in pairs]
        values = [self.value(point, 1e-4)[0] for point in points]
        return self.record("grid", points[int(np.argmin(values))], min(values))

    def record(self, kind: str, free: Array, value: float) -> tuple[Array, float]:
        """Record an attempt and return it."""
        kind = f"{kind}, mirrored" if self.mirrored else kind
        self.found.rows.append({"kind": kind, "value": value, "bins": tuple(self.outputs(free).tolist())})
        return free, value


def search_bins(problem: FloorProblem, spec: BinSearch, gap: float, deadline: Deadline) -> Searched:
    """Find good outputs within the range of the problem's outputs, and a lower bound for any outputs there.

    Parameters
    ----------
    problem : FloorProblem
        Its outermost bins give the range; the bins are replaced.
    spec : BinSearch
    gap : float
        Relative gap to solve to.
    deadline : Deadline
        Time limit, after which the best outputs so far are returned, or evenly spaced ones.
    """
    R, coarse = float(problem.bins[-1]), max(gap, 1e-7)
    both = spec.symmetric is None and _mirrors(problem)
    if spec.symmetric and problem.lower != -problem.upper:
        raise DesignError.of("symmetric", spec.symmetric, "needs an input range that mirrors about zero")
    fine = replace(problem, bins=np.linspace(-R, R, 121))
    alphabet = best_floors(fine, 1e-5, deadline=deadline)
    found = Searched(
        np.linspace(-R, R, spec.m), any_outputs_bound=any_outputs_bound(fine, alphabet.lower_bound)
    )
    tried: list[tuple[_Search, Array, float]] = []
    for mirrored in (True, False) if both else (bool(spec.symmetric),):
        search = _Search(problem, spec, mirrored, deadline, found)
        # Symmetric outputs have symmetric derivatives: a descent from them stays symmetric, so start at random.
        at_random = both and not mirrored
        count = math.ceil(spec.starts / (1 + at_random))
        starts = search.starts((fine.bins, alphabet.floors), count, at_random)
        if spec.m == 2 and not mirrored and problem.lower == -problem.upper:
            # The edge of feasibility, at which a descent is repelled: nearer outputs allow no unbiased mechanism.
            edge = min(R, problem.upper * (problem.rho + 1) / (problem.rho - 1) * (1 + 1e-8))
            starts = [np.array([-edge, edge]), *starts]
        tried += [
            (search, *search.descend(f"start {k + 1}", start, coarse, 60)) for k, start in enumerate(starts)
        ]
        if spec.exhaustive and mirrored and search.free in (1, 2):
            least = min(value for *_, value in tried)
            at_grid = search.grid()
            tried.append((search, *search.descend("grid, descended", at_grid[0], coarse, 60)))
            better = min(at_grid[1] / (1 - 1e-4), tried[-1][2] / (1 - 1e-6)) < least
            words = "better outputs than the starts did" if better else "nothing better than the starts did"
            found.notes = (f"a grid over all mirrored outputs found {words}",)
    search, best, value = min(tried, key=lambda attempt: attempt[2])
    # Point masses give the value kinks, on which a descent stops early; restarted, it may leave them.
    for _ in range(1 if problem.has_density or problem.objective == "worst" else 5):
        before = value
        best, value = search.descend("polish", best, min(coarse, 1e-9), 40)
        if not before - value > coarse * abs(before):
            break
    return found


def bin_slopes(problem: FloorProblem, solution: FloorSolution) -> Array:
    """Return dF*/dB, shape (m,); at kinks of F*, the slope that the solution given has."""
    bins, m = problem.bins, len(problem.bins)
    w1, w2 = problem.loss.absolute, problem.loss.squared
    table = pieces(problem, solution.floors)
    slope = np.zeros(m)
    if problem.has_density:
        cells, at = table.cells()
        starts, width, sign = cells[:-1], np.diff(cells), np.where(bins > cells[:-1, None], 1.0, -1.0)

        def rising(share: float) -> Array:
            """Return p (ℓ' − μ), a quadratic on each cell, on which the sign of an error is that of its middle."""
            x = starts + share * width
            _, mu = problem.slopes(x, table.left[at], table.right[at])
            steep = w1 * sign + 2 * w2 * (bins - x[:, None])
            return table.rows_at(x, at) * (steep - mu[:, None])

        slope += integrated(rising, cells, problem.prior.continuous_moments(cells)).sum(axis=0)
    points, weights = problem.atoms
    if points.size:
        table_of_lines = np.zeros((0, 7)) if solution.proof is None else solution.proof.pieces
        x, _, share, *_, M = table_of_lines[table_of_lines[:, 0] == table_of_lines[:, 1]].T
        mu = np.bincount(np.searchsorted(points, x), share * (M - 2 * w2 * x), len(points))
        error = bins - points[:, None]
        derivative = w1 * np.sign(error) + 2 * w2 * error
        slope += weights @ (table.rows_at(points, table.at(points)) * (derivative - mu[:, None]))
    return slope - _range_part(problem, solution)


def _range_part(problem: FloorProblem, solution: FloorSolution) -> Array:
    """Return Σ_j ν_j ∂(C_j a − b_j)/∂B."""
    m, a, rho = len(problem.bins), solution.floors, problem.rho
    upper, lower = solution.multipliers[2 : 2 + m], solution.multipliers[2 + m : 2 + 2 * m]
    k = np.arange(m)
    right, left = k[None, :] > k[:, None], k[None, :] < k[:, None]
    high = rho * right + left  # ∂ of row j for `upper` in B_k, per a_k
    low = rho * left + right
    part = a * (upper @ high) + upper * (1.0 - high @ a)
    return part - a * (lower @ low) - lower * (1.0 - low @ a)


@serializable("alphabet")
class Alphabet(checks.Checked):
    """Outputs on a uniform grid of [−max_abs, max_abs].

    Parameters
    ----------
    max_abs : float
        Largest absolute output R.
    step : float
        Distance of neighbours, rounded down so that it divides 2R.

    Examples
    --------
    >>> Alphabet(max_abs=3.0, step=0.05).size
    121
    """

    max_abs: float = checks.field(check=checks.positive)
    step: float = checks.field(check=checks.positive)

    def _post_check(self) -> None:
        if self.step > 2 * self.max_abs:
            raise DesignError.of("step", self.step, f"must be at most 2*max_abs = {2 * self.max_abs:g}")
        remedy = f"gives more outputs than the {MOST_OUTPUTS} that are allowed, at most"
        checks.refuse(2 * self.max_abs / self.step - 1e-9 > MOST_OUTPUTS - 1, "step", self.step, remedy)

    @property
    def size(self) -> int:
        """Number of outputs."""
        return math.ceil(2 * self.max_abs / self.step - 1e-9) + 1

    @property
    def values(self) -> Array:
        """The outputs, exactly symmetric."""
        grid = np.linspace(-self.max_abs, self.max_abs, self.size)
        return (grid - grid[::-1]) / 2

    def allows(self, outputs: Array) -> bool:
        """Whether these are the outputs."""
        return np.array_equal(outputs, self.values)


@serializable("bin-search")
class BinSearch(checks.Checked):
    """Search for m outputs within [−max_abs, max_abs], symmetric or not; the result has the best outputs found.

    Neighbours stay 10⁻³ · min(R, w)/m apart, with w the length of the input range: two closer outputs gain nothing over
    one, and a wide range R costs no resolution. The lower bound of the search holds for any outputs, however close.

    Parameters
    ----------
    m : int
        Number of outputs, 2 to 64.
    max_abs : float
        Largest absolute output R; without it the outermost outputs would diverge (with vanishing probability).
    symmetric : bool or None
        Search outputs symmetric about zero only (True), or free ones only (False); None searches both, if prior, loss and range are symmetric.
    starts : int
        Starting points of the search; if both kinds are searched, of symmetric outputs, with half as many random free ones.
    exhaustive : bool
        For m ≤ 5 symmetric outputs, try a grid of all of them too.
    seed : int
        Seed of the random starts.
    """

    m: int = checks.field(check=checks.integer, least=2, most=64)
    max_abs: float = checks.field(check=checks.positive)
    symmetric: bool | None = checks.field(check=checks.one_of, allowed=(None, True, False), default=None)
    starts: int = checks.field(check=checks.integer, least=1, default=4)
    exhaustive: bool = checks.field(check=checks.one_of, allowed=(True, False), default=True)
    seed: int = checks.field(check=checks.integer, least=0, default=0)

    @property
    def values(self) -> Array:
        """As many outputs, evenly spaced."""
        return np.linspace(-self.max_abs, self.max_abs, self.m)

    def allows(self, outputs: Array) -> bool:
        """Whether a search may find these outputs."""
        found = checks.doubles("outputs", outputs)
        return bool(found.size == self.m and np.abs(found).max() <= self.max_abs * (1 + 1e-12))

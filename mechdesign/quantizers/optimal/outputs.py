r"""Where to put the outputs: a search over m of them, and the alphabet that bounds every search.

`Alphabet` takes outputs on a fine grid of [−R, R]. It is nearly the best with any number of outputs, and proves how
nearly: moving any output B at random to its two grid neighbours g, g + h, keeping its mean, is post-processing, so
it stays private and unbiased, and raises the loss by the chord's height over ℓ. For |·| that is
:math:`2 (x - g)(g + h - x)/h` at most, where x is in the output's own cell, and at most h²/4 for (·)². Hence

.. math:: \text{loss}(\text{any outputs}) \ge \text{bound}(\text{alphabet})
          - w_1 \min\Bigl(E[d(X)],\; \rho \max_{\text{cells}} E[d(X); \text{cell}]\Bigr) - w_2 h^2/4, \quad
          d(x) = 2 (x - g)(g + h - x)/h.

`BinSearch` minimises the optimal value over m outputs: sequential quadratic programming on the envelope
theorem's derivatives (`bin_slopes`) from several starts, then a polish at a tighter gap. The value is not convex in
the outputs, so the distance to the alphabet's bound is what can be proved; for m ≤ 4 mirrored outputs a grid over
all of them stands beside the search.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import optimize

from mechdesign.errors import DesignError, InfeasibleError, SolverError
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import positive, whole
from mechdesign.quantizers.optimal.floors import smallest_epsilon
from mechdesign.quantizers.optimal.output_slopes import bin_slopes
from mechdesign.typing import Array

if TYPE_CHECKING:
    from mechdesign.quantizers.optimal.design import OptimalQuantizer
    from mechdesign.quantizers.optimal.result import OptimalQuantizerResult

__all__ = ["Alphabet", "BinSearch", "any_outputs_bound", "search_bins", "solve_alphabet"]


@serializable("alphabet")
@dataclass(frozen=True)
class Alphabet:
    """Outputs on a uniform grid of [−max_abs, max_abs].

    Parameters
    ----------
    max_abs : float
        Largest absolute output R.
    step : float
        Distance of neighbours, adjusted down so that it divides 2R.

    Examples
    --------
    >>> Alphabet(max_abs=3.0, step=0.05).size
    121
    """

    max_abs: float
    step: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_abs", positive("max_abs", self.max_abs))
        object.__setattr__(self, "step", positive("step", self.step))
        if self.step > 2 * self.max_abs:
            raise DesignError.of("step", self.step, f"must be at most 2*max_abs = {2 * self.max_abs:g}")
        if self.size > 4097:
            raise DesignError.of("step", self.step, f"gives {self.size} outputs, at most 4097 are allowed")

    @property
    def size(self) -> int:
        """Number of outputs."""
        return math.ceil(2 * self.max_abs / self.step - 1e-9) + 1

    @property
    def values(self) -> Array:
        """The outputs, mirrored exactly."""
        grid = np.linspace(-self.max_abs, self.max_abs, self.size)
        return (grid - grid[::-1]) / 2


@serializable("bin-search")
@dataclass(frozen=True)
class BinSearch:
    """Search the best m outputs within [−max_abs, max_abs].

    Parameters
    ----------
    m : int
        Number of outputs, 2 to 64.
    max_abs : float
        Largest absolute output R; without one the outermost outputs would run away (with vanishing probability).
    symmetric : bool or None
        Mirror the outputs about zero; None does so when prior, loss and range mirror.
    starts : int
        Starting points of the search.
    exhaustive : bool
        For m ≤ 4 mirrored outputs, try a grid of all of them too.
    seed : int
        For the starts drawn at random.
    """

    m: int
    max_abs: float
    symmetric: bool | None = None
    starts: int = 4
    exhaustive: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", whole("m", self.m, 2, 64))
        object.__setattr__(self, "starts", whole("starts", self.starts, 1))
        object.__setattr__(self, "seed", whole("seed", self.seed, 0))
        object.__setattr__(self, "max_abs", positive("max_abs", self.max_abs))


def any_outputs_bound(design: OptimalQuantizer, bound: float) -> float | None:
    """Lower bound for any outputs within the range of the design's grid, from the bound for the grid."""
    if not design.loss.polynomial or design.max_mse is not None:
        return None
    grid = np.array(design.bins)
    step = float(np.diff(grid).max())
    square = design.loss.squared * step * step / 4
    if design.objective == "worst":
        return bound - design.loss.absolute * step / 2 - square
    moments = design.prior.moments(grid)
    low, high = grid[:-1], grid[1:]
    rise = 2 * ((low + high) * moments[:, 1] - moments[:, 2] - low * high * moments[:, 0]) / (high - low)
    rise = np.maximum(rise, 0.0)
    dip = min(float(rise.sum()), math.exp(design.privacy.epsilon) * float(rise.max()))
    return bound - design.loss.absolute * dip - square


def solve_alphabet(design: OptimalQuantizer, gap: float, solver: str | None) -> OptimalQuantizerResult:
    """Solve for the grid's outputs and bound every other choice within its range."""
    fixed = design.at(bins=tuple(design.bins.values.tolist()))
    result = fixed.solve(gap, solver)
    proved = None if result.lower_bound is None else any_outputs_bound(fixed, result.lower_bound)
    return replace(result, any_outputs_bound=proved)


class _Search:
    """The optimal value as a function of the free outputs."""

    def __init__(self, design: OptimalQuantizer, gap: float) -> None:
        spec: BinSearch = design.bins
        self.design, self.spec = design, spec
        self.R, self.m = spec.max_abs, spec.m
        lower, upper = design.input_range
        mirrored = lower == -upper and design.prior.symmetric() and design.loss.polynomial
        self.mirrored = mirrored if spec.symmetric is None else spec.symmetric
        if self.mirrored and lower != -upper:
            raise DesignError.of(
                "symmetric", True, f"needs an input range that mirrors, not [{lower:g}, {upper:g}]"
            )
        self.free = self.m // 2 if self.mirrored else self.m
        self.least = 1e-3 * self.R / self.m  # smallest distance of neighbours
        self.gap = gap
        self.log: list[dict[str, Any]] = []
        self.analytic = design.objective == "mean" and design.max_mse is None and design.max_bias == 0
        self.analytic = self.analytic and design.loss.polynomial

    def outputs(self, free: Array) -> Array:
        """All outputs from the free ones (the positive half, or all)."""
        if not self.mirrored:
            return np.sort(np.clip(free, -self.R, self.R))
        half = np.sort(np.clip(free, self.least / 2, self.R))
        return np.concatenate([-half[::-1], [0.0] if self.m % 2 else [], half])

    def value(self, free: Array, gap: float, *, slopes: bool = False) -> tuple[float, Array]:
        """Optimal value at the outputs, with its derivatives; infinite where infeasible."""
        outputs = self.outputs(free)
        lower, upper = self.design.input_range
        bad = np.any(np.diff(outputs) < 1e-9 * self.R) or outputs[0] > lower or outputs[-1] < upper
        bias = self.design.max_bias
        low, high = min(lower + bias, upper - bias), max(lower + bias, upper - bias)
        if bias == 0:
            low, high = lower, upper
        if bad or smallest_epsilon(outputs, low, high) > self.design.privacy.epsilon * (1 - 1e-9):
            return math.inf, np.zeros(len(free))
        fixed = self.design.at(bins=tuple(outputs.tolist()))
        try:
            solution = fixed.floors(gap)
        except (InfeasibleError, SolverError):
            return math.inf, np.zeros(len(free))
        if not slopes:
            return solution.value, np.zeros(len(free))
        full = bin_slopes(fixed.problem(), solution)
        if not self.mirrored:
            return solution.value, full
        half = self.m // 2
        return solution.value, full[self.m - half :] - full[:half][::-1]

    def starts(self, guess: Array | None) -> list[Array]:
        """Starting points: spread evenly, by the alphabet's use of its outputs, and at random."""
        rng = np.random.default_rng(self.spec.seed)
        n, R = self.free, self.R
        low = 0.0 if self.mirrored else -R
        even = (np.linspace(-R, R, self.m))[self.m - n :]
        out = [even]
        if guess is not None:
            out.append(guess)
        lower, upper = self.design.input_range
        inner = np.linspace(max(low, lower), upper, n + 1)[1:] if n > 1 else np.array([R])
        out.append(
            np.append(inner[:-1] * 0.8, R) if self.mirrored else np.concatenate([[-R], inner[1:-1], [R]])
        )
        while len(out) < self.spec.starts:
            draw = np.sort(rng.uniform(low, R, n))
            draw[-1] = R
            if not self.mirrored:
                draw[0] = -R
            out.append(draw)
        return out[: max(self.spec.starts, 1)]

    def descend(self, start: Array, gap: float, steps: int) -> tuple[Array, float]:
        """Sequential quadratic programming from a start, outputs kept in order."""
        n, R = self.free, self.R
        order = [{"type": "ineq", "fun": lambda v, k=k: v[k + 1] - v[k] - self.least} for k in range(n - 1)]
        bounds = [(self.least / 2 if self.mirrored else -R, R)] * n
        best, best_value = start, self.value(start, gap)[0]
        scale = max(abs(best_value), 1e-12) if math.isfinite(best_value) else 1.0

        def target(v: Array) -> Any:
            nonlocal best, best_value
            value, slope = self.value(v, gap, slopes=self.analytic)
            if value < best_value:
                best, best_value = v.copy(), value
            height = min(value, 1e6 * scale) / scale
            return (height, slope / scale) if self.analytic else height

        options: Any = {"maxiter": steps, "ftol": max(gap, 1e-12)}
        if not self.analytic:
            options["eps"] = 1e-5 * R
        slsqp: Any = optimize.minimize
        if n and math.isfinite(best_value):
            slsqp(
                target,
                start,
                jac=self.analytic,
                method="SLSQP",
                bounds=bounds,
                constraints=order,
                options=options,
            )
        return best, best_value

    def grid(self) -> tuple[Array, float]:
        """Every mirrored choice of up to two free outputs on a grid."""
        R = self.R
        inner = (np.arange(24) + 0.5) / 24 * R
        outer = np.linspace(max(self.design.input_range[1], R / 4), R, 13)
        points = [np.array([b]) for b in outer] if self.free == 1 else []
        if self.free == 2:
            points = [np.array([a, b]) for b in outer for a in inner if a < b - self.least]
        best, value = points[0], math.inf
        for point in points:
            height = self.value(point, 1e-4)[0]
            if height < value:
                best, value = point, height
        return best, value


def search_bins(design: OptimalQuantizer, gap: float, solver: str | None) -> OptimalQuantizerResult:
    """Find the outputs, solve for them, and report the distance to what any outputs could do."""
    started = time.perf_counter()
    coarse = max(gap, 1e-7)
    search = _Search(design, gap)
    spec: BinSearch = design.bins
    steps = 2 * spec.max_abs / 120
    alphabet = solve_alphabet(design.at(bins=Alphabet(spec.max_abs, steps)), 1e-5, None)
    rows: list[dict[str, Any]] = []

    def record(kind: str, free: Array, value: float) -> None:
        rows.append({"kind": kind, "value": value, "bins": tuple(search.outputs(free).tolist())})

    best, value = None, math.inf
    for k, start in enumerate(search.starts(_used_outputs(search, alphabet))):
        free, height = search.descend(start, coarse, 60)
        record(f"start {k + 1}", free, height)
        if height < value:
            best, value = free, height
    checked = ""
    if spec.exhaustive and search.mirrored and search.free in (1, 2):
        free, height = search.grid()
        record("grid", free, height)
        better = height < value * (1 - 1e-4)
        free, height = search.descend(free, coarse, 60)
        record("grid, descended", free, height)
        found = value * (1 - 1e-6) > height
        if height < value:
            best, value = free, height
        checked = "a grid over all mirrored outputs found " + (
            "better outputs than the starts did" if found or better else "nothing better than the search"
        )
    if best is None or not math.isfinite(value):
        # Only the extreme outputs decide feasibility: let the design itself say why.
        outputs = np.linspace(-spec.max_abs, spec.max_abs, spec.m)
        return design.at(bins=tuple(outputs.tolist())).solve(gap, solver)
    free, height = search.descend(best, min(coarse, 1e-9), 40)
    if height < value:
        best, value = free, height
    record("polish", best, value)
    fixed = design.at(bins=tuple(search.outputs(best).tolist()))
    result = fixed.solve(gap, solver)
    notes = (*result.notes, *([checked] if checked else []))
    return replace(
        result,
        notes=notes,
        search=pd.DataFrame(rows).sort_values("value", kind="stable", ignore_index=True),
        any_outputs_bound=alphabet.any_outputs_bound,
        solver_report=replace(result.solver_report, seconds=time.perf_counter() - started),
    )


def _used_outputs(search: _Search, alphabet: OptimalQuantizerResult) -> Array | None:
    """Free outputs at the quantiles of how often the alphabet's outputs are used."""
    grid, floors = alphabet.bins, np.asarray(alphabet.floors)
    if search.mirrored:
        keep = grid > 0
        grid, floors = grid[keep], floors[keep]
    n = search.free
    if n == 0:
        return None
    share = np.cumsum(floors) / floors.sum()
    at = np.minimum(np.searchsorted(share, (np.arange(n) + 0.5) / n), len(grid) - 1)
    guess = grid[at].astype(float)
    guess[-1] = search.R
    if not search.mirrored:
        guess[0] = -search.R
    for k in range(1, n):
        guess[k] = max(guess[k], guess[k - 1] + 2 * search.least)
    if guess[-1] > search.R:
        guess = np.linspace(guess[0], search.R, n)
    return guess

r"""Algorithm 2 of the OPTM paper: a grid over bins around a grid over bounds.

The authors' search at m = 4: outer bins ±(c + Δ), Δ ∈ {1, 1.1, …, 2}, inner bins ±{0.1, …, 1}, bounds
:math:`o = l, u = l + 0.01`, l = 0.01, …, 0.99: 10,890 linear programs per ε. Here one chunk of work is one
choice of bins; its linear programs share a compiled model and are re-solved from the last basis.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.serialize import dumps
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP
from mechdesign.quantizers.common.result import QuantizerResult
from mechdesign.quantizers.optm.boxes import LevelSolver, grid_bounds
from mechdesign.quantizers.optm.design import OPTM
from mechdesign.quantizers.optm.model import OPTMProgram
from mechdesign.runs.grid import Grid
from mechdesign.runs.parallel import run_chunks
from mechdesign.runs.progress import progress_bar
from mechdesign.runs.store import Store

__all__ = ["OPTMSearch", "SearchResult"]


def authors_bins() -> Grid:
    """The published grid of bins at m = 4."""
    return Grid(delta=np.arange(10, 21) / 10, inner=np.arange(1, 11) / 10)


def authors_levels() -> Grid:
    """The published grid of bounds."""
    return Grid(level=np.arange(1, 100) / 100, width=[0.01])


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes
    ----------
    table : DataFrame
        A row per choice of bins: its parameters, best level, exact loss (NaN where infeasible), feasible programs, programs solved.
    best : QuantizerResult
        OPTM at the best bins, certified.
    seconds : float
    """

    table: pd.DataFrame
    best: QuantizerResult
    seconds: float
    programs: int

    def __str__(self) -> str:
        return f"{self.programs} linear programs in {self.seconds:.3g} s\n{self.best}"


@dataclass(frozen=True)
class OPTMSearch:
    """Search bins and bounds of OPTM.

    Parameters
    ----------
    privacy, prior, loss, constraints
        As in `OPTM`.
    bins : Grid
        Axes ``delta`` and ``inner`` (bins ±inner, ±(c + delta), m = 4), or ``left``, ``right``, ``delta``
        (asymmetric inner bins left < right, outer bins ±(c + delta)).
    levels : Grid
        Axes ``level`` and ``width`` (and ``level_right`` for asymmetric bins).
    families : {"auto", "separate"}
        Passed to `OPTM`.
    judge : {"loss", "objective"}
        Compare points by their exact expected loss, or by the programs' own objective (Lemma 1's bound of it).

    Examples
    --------
    >>> from scipy import stats
    >>> search = OPTMSearch(
    ...     PureDP(1.0), stats.uniform(-1, 2),
    ...     bins=Grid(delta=[1.9, 2.0], inner=[0.4, 0.5]), levels=Grid(level=[0.66, 0.67], width=[0.01]),
    ... )
    >>> found = search.run()
    >>> found.programs, found.best.design.bins
    (8, (-3.0, -0.5, 0.5, 3.0))
    """

    privacy: PureDP
    prior: Any
    loss: Any = "absolute"
    constraints: str = "theorem5"
    bins: Grid | None = None
    levels: Grid | None = None
    families: str = "auto"
    judge: str = "loss"

    def __post_init__(self) -> None:
        if self.judge not in ("loss", "objective"):
            raise DesignError.of("judge", self.judge, 'must be "loss" or "objective"')
        object.__setattr__(self, "prior", Prior.of(self.prior))
        object.__setattr__(self, "loss", Loss.of(self.loss))
        if self.bins is None:
            object.__setattr__(self, "bins", authors_bins())
        if self.levels is None:
            object.__setattr__(self, "levels", authors_levels())
        if not isinstance(self.bins, Grid) or set(self.bins.axes) not in (
            {"delta", "inner"},
            {"left", "right", "delta"},
        ):
            raise DesignError.of(
                "bins", self.bins, "must be a Grid with the axes delta, inner or left, right, delta"
            )

    def _chunks(self) -> list[tuple[float, ...]]:
        """The choices of bins, in the grid's order, those that are no increasing sequence left out."""
        lower, upper = self.prior.support
        assert self.bins is not None
        chosen = []
        for p in self.bins:
            inner = (p["left"], p["right"]) if "left" in p else (-p["inner"], p["inner"])
            bins = (lower - p["delta"], *inner, upper + p["delta"])
            if all(a < b for a, b in zip(bins, bins[1:])):
                chosen.append(tuple(round(b, 12) for b in bins))
        return chosen

    def _design(self, bins: tuple[float, ...], bounds: Any = None) -> OPTM:
        return OPTM(bins, self.privacy, self.prior, self.loss, None, self.constraints, self.families, bounds)

    def run(
        self,
        *,
        store: str | os.PathLike[str] | None = None,
        jobs: int = 1,
        backend: str = "loky",
        progress: bool = True,
        certify: bool = True,
    ) -> SearchResult:
        """Solve every point and return the best mechanism, certified.

        Parameters
        ----------
        store : path, optional
            Finished bins are kept there; a killed run continues, and ends with the same bytes.
        jobs, backend
            joblib's worker count and backend ("loky", "threading", "dask", "ray").
        progress : bool
            Show a bar (on a terminal only).
        """
        started = time.perf_counter()
        chunks = self._chunks()
        definition = {
            "privacy": dumps(self.privacy), "prior": dumps(self.prior), "loss": dumps(self.loss), "constraints": self.constraints,
            "bins": chunks, "levels": dumps(self.levels), "families": self.families, "judge": self.judge,
        }  # fmt: skip
        kept = None if store is None else Store(store, definition)
        task = _Task(self)

        def execute(step: Callable[[], None]) -> list[Any]:
            return run_chunks(task, chunks, store=kept, jobs=jobs, backend=backend, step=step)

        if progress:
            with progress_bar("bins", len(chunks)) as step:
                rows = execute(step)
        else:
            rows = execute(lambda: None)
        names = ["bins", "level", "value", "feasible", "programs"]
        table = pd.DataFrame([dict(zip(names, (chunks[k], *r))) for k, r in enumerate(rows)])
        table["value"] = table["value"].astype(float)
        if table["value"].isna().all():
            raise InfeasibleError(f"no point of the search is feasible at epsilon = {self.privacy.epsilon:g}")
        winner = table.loc[table["value"].idxmin()]
        assert self.levels is not None
        axes = [k for k in self.levels.axes if k != "width"]
        width = self.levels.axes.get("width", (0.01,))[0]
        bounds = Grid(**dict(zip(axes, winner["level"])), width=width)
        best = self._design(winner["bins"], bounds).solve(certify=certify)
        return SearchResult(table, best, time.perf_counter() - started, int(table["programs"].sum()))


class _Task:
    """Solve all levels for one choice of bins; keeps one compiled model per constraint structure."""

    def __init__(self, search: OPTMSearch) -> None:
        self.search = search
        self._solvers: dict[bytes, LevelSolver] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"search": self.search, "_solvers": {}}  # workers compile their own

    def __call__(self, bins: tuple[float, ...]) -> tuple[list[float], float | None, int, int]:
        """Return (best level(s), its exact loss or None, feasible points, points)."""
        search = self.search
        design = search._design(bins)
        program: OPTMProgram = design.program
        assert search.levels is not None
        boxes = grid_bounds(program, search.levels)
        if boxes is None:
            raise DesignError.of(
                "levels", search.levels, "needs the axis level; the program has more than two free bounds"
            )
        low, high = boxes
        key = program.signature()
        if key not in self._solvers:
            self._solvers[key] = LevelSolver(program, search.privacy.epsilon, low[0], high[0])
        objective, q = self._solvers[key].run(program, search.privacy.epsilon, low, high)
        feasible = np.flatnonzero(np.isfinite(objective))
        axes = [k for k in search.levels.axes if k != "width"]
        if not len(feasible):
            return [0.0] * len(axes), None, 0, len(objective)
        judged = objective[feasible]
        if search.judge == "loss":
            judged = program.judged(judged, q[feasible])
        best = int(feasible[np.argmin(judged)])
        columns = search.levels.columns()
        level = [float(columns[k][best]) for k in axes]
        return level, float(judged.min()), len(feasible), len(objective)

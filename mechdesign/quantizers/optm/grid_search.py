r"""Algorithm 2 of the OPTM paper: a grid over bins around a grid over bounds.

The authors' search at m = 4: outer bins ±(c + Δ), Δ ∈ {1, 1.1, …, 2}, inner bins ±{0.1, …, 1}, bounds
:math:`o = l, u = l + 0.01`, l = 0.01, …, 0.99: 10,890 linear programs per ε. Here one chunk of work is one
choice of bins; its linear programs share a compiled model and are re-solved from the last basis.
"""

from __future__ import annotations

import os
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from mechdesign import solvers
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.serialize import dumps, serializable
from mechdesign.problem.checks import one_of, settle
from mechdesign.problem.design import OldDesign
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP
from mechdesign.quantizers.common.certificate import QuantizerCertificate
from mechdesign.quantizers.common.output_space import OutputSpace
from mechdesign.quantizers.common.result import QuantizerResult
from mechdesign.quantizers.mechanism.selection import mirrored_bins
from mechdesign.quantizers.optimal.any_outputs import any_outputs, told_later
from mechdesign.quantizers.optm.boxes import Boxes, Sweep, authors_levels, check_levels, grid_boxes
from mechdesign.quantizers.optm.design import OPTM
from mechdesign.runs.grid import Grid
from mechdesign.runs.parallel import run_chunks
from mechdesign.runs.progress import progress_bar
from mechdesign.runs.store import Store
from mechdesign.solvers.deadline import Deadline, too_late
from mechdesign.typing import Status

__all__ = ["OPTMSearch", "OPTMSearchResult", "authors_bins"]

Row = tuple[list[float], float | None, int, int]
"""Of one choice of bins: best level(s), its score (None where infeasible), feasible programs, programs."""


def authors_bins() -> Grid:
    """The published grid of bins at m = 4."""
    return Grid(delta=np.arange(10, 21) / 10, inner=np.arange(1, 11) / 10)


@serializable("optm-search-result")
@dataclass(frozen=True, eq=False)
class OPTMSearchResult(QuantizerResult):
    """The best mechanism of a search, certified, with the table of the search.

    Parameters
    ----------
    best : OPTM
        The design of the best bins and level, whose answer this is.
    table : DataFrame
        A row per choice of bins: its parameters, best level, score (NaN where infeasible), feasible programs,
        programs solved.
    """

    best: OPTM | None = None
    table: pd.DataFrame | None = None

    @property
    def programs(self) -> int:
        """Number of linear programs solved."""
        return 0 if self.table is None else int(self.table["programs"].sum())

    def tried(self) -> pd.DataFrame:
        return pd.DataFrame() if self.table is None else self.table.sort_values("value", kind="stable")

    def _evidence(self) -> list[str]:
        bins = "" if self.best is None else ", ".join(f"{b:g}" for b in self.best.bins)
        return [f"best bins: {bins} of {self.programs} linear programs", *super()._evidence()]


@serializable("optm-search")
@dataclass(frozen=True)
class OPTMSearch(OldDesign):
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
    >>> found = search.solve()
    >>> found.programs, found.best.bins
    (8, (-3.0, -0.5, 0.5, 3.0))
    """

    privacy: PureDP
    prior: Any
    loss: Any = "absolute"
    constraints: str = "theorem5"
    bins: Any = None
    levels: Any = None
    families: str = "auto"
    judge: str = "loss"

    def __post_init__(self) -> None:
        one_of("judge", self.judge, ("loss", "objective"))
        one_of("constraints", self.constraints, ("theorem5", "across-outputs"))
        one_of("families", self.families, ("auto", "separate"))
        bins = authors_bins() if self.bins is None else self.bins
        levels = authors_levels() if self.levels is None else self.levels
        settle(self, prior=Prior.of(self.prior), loss=Loss.of(self.loss), bins=bins, levels=levels)
        if not isinstance(bins, Grid) or set(bins.axes) not in (
            {"delta", "inner"},
            {"left", "right", "delta"},
        ):
            raise DesignError.of(
                "bins", bins, "must be a Grid with the axes delta, inner or left, right, delta"
            )
        check_levels("levels", levels)
        if not self.alphabets():
            raise DesignError.of("bins", bins, "no point of the grid is an increasing sequence of bins")
        self.at(self.alphabets()[0])  # what OPTM refuses is refused here

    def alphabets(self) -> list[tuple[float, ...]]:
        """The choices of bins, in the grid's order, those that are no increasing sequence left out."""
        lower, upper = self.prior.support
        chosen = []
        for p in self.bins:
            inner = (p["left"], p["right"]) if "left" in p else (-p["inner"], p["inner"])
            bins = (lower - p["delta"], *inner, upper + p["delta"])
            if all(a < b for a, b in zip(bins, bins[1:])):
                chosen.append(tuple(round(b, 12) for b in bins))
        return chosen

    @property
    def input_range(self) -> tuple[float, float]:
        """The inputs, all that the prior allows."""
        return self.prior.support

    @property
    def output_space(self) -> OutputSpace | None:
        """All outputs that are tried; None where there is one choice of bins."""
        alphabets = [tuple(mirrored_bins(np.array(bins)).tolist()) for bins in self.alphabets()]
        return OutputSpace.among(alphabets) if len(set(alphabets)) > 1 else None

    def at(self, bins: tuple[float, ...], bounds: Any = None) -> OPTM:
        """The design for one choice of bins."""
        return OPTM(
            bins,
            self.privacy,
            self.prior,
            self.loss,
            constraints=self.constraints,
            families=self.families,
            bounds=bounds,
        )

    def model(self, *, bins: tuple[float, ...] | None = None, **options: Any) -> solvers.Model:
        """Return the program that is solved at each point, for the first bins unless given; its bounds are parameters."""
        return self.at(self.alphabets()[0] if bins is None else bins).model(**options)

    def solve(
        self,
        solver: str | None = None,
        *,
        gap: float | None = None,
        certify: bool = True,
        time_limit: float | None = None,
        store: str | os.PathLike[str] | None = None,
        jobs: int = 1,
        backend: str = "loky",
        progress: bool = True,
        **options: Any,
    ) -> OPTMSearchResult:
        """Solve every point and return the best mechanism, certified.

        The points are swept by HiGHS; `solver`, `gap` and other options are those of the last solve, at the best point.
        The lower bound is that of every ε-private unbiased mechanism, of OPTM's family or not, with outputs among those of
        all choices of bins (`output_space`). Losses that are functions have none.

        Parameters
        ----------
        time_limit : float, optional
            Seconds; the table holds the choices of bins reached by then, and the status says so.
        store : path, optional
            Finished bins are kept there; a killed run continues, and ends with the same bytes.
        jobs, backend
            joblib's worker count and backend ("loky", "threading", "dask", "ray").
        progress : bool
            Show a bar (on a terminal only).

        Raises
        ------
        InfeasibleError
            No point of the search is feasible.
        """
        deadline = Deadline(time_limit)
        one_of("certify", certify, (True, False))
        one_of("progress", progress, (True, False))
        solvers.get("highs" if solver is None else solver)
        alphabets = self.alphabets()
        kept = None if store is None else Store(store, self._definition(alphabets))
        bar = progress_bar("bins", len(alphabets)) if progress else nullcontext(lambda: None)
        with nullcontext() if kept is None else closing(kept), bar as step:
            rows = run_chunks(
                _Task(self), alphabets, store=kept, jobs=jobs, backend=backend, step=step, deadline=deadline
            )
        table = _table(alphabets, rows, list(self.levels.axes))
        best = self._best(table, deadline)
        result = best.solve(solver, gap=gap, certify=certify, **options)
        status = Status.LIMIT if deadline.passed else result.status
        report = replace(result.solver_report, status=status, seconds=deadline.elapsed)
        parts = {**vars(result), "design": self, "solver_report": report}
        if result.certificate is None:
            parts["lower_bound"] = told_later(self, best.bins, result.value)
        else:
            duals, law = any_outputs(self, best.bins, deadline), result.certificate.law
            held = QuantizerCertificate.of(best, law, result.value, duals=duals)
            parts |= {"certificate": held, "lower_bound": held.bound_below(result.value)}
        return OPTMSearchResult(**parts, best=best, table=table)

    def _definition(self, alphabets: list[tuple[float, ...]]) -> dict[str, Any]:
        """What a store is bound to."""
        texts = {name: dumps(getattr(self, name)) for name in ("privacy", "prior", "loss", "levels")}
        plain = {name: getattr(self, name) for name in ("constraints", "families", "judge")}
        return {**texts, **plain, "bins": alphabets, "axes": list(self.levels.axes)}

    def _best(self, table: pd.DataFrame, deadline: Deadline) -> OPTM:
        if table["value"].isna().all():
            if deadline.passed:
                raise too_late("OPTM")
            raise InfeasibleError(f"no point of the search is feasible at epsilon = {self.privacy.epsilon:g}")
        winner = table.loc[table["value"].idxmin()]
        bounds = Grid(**{name: winner[name] for name in self.levels.axes})
        return self.at(tuple(winner.filter(like="bin ").tolist()), bounds)


def _table(alphabets: list[tuple[float, ...]], rows: list[Row], levels: list[str]) -> pd.DataFrame:
    bins = [f"bin {i}" for i in range(1, len(alphabets[0]) + 1)]
    table = [
        (*b, *level, np.nan if score is None else score, *n) for b, (level, score, *n) in zip(alphabets, rows)
    ]
    return pd.DataFrame(table, columns=[*bins, *levels, "value", "feasible", "programs"])


class _Task:
    """Solve all levels for one choice of bins; keeps one compiled model, and the boxes, per constraint structure."""

    def __init__(self, search: OPTMSearch) -> None:
        self.search = search
        self._sweeps: dict[bytes, tuple[Sweep, Boxes]] = {}
        self._levels = np.stack(list(search.levels.columns().values()), axis=1)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_sweeps": {}}  # workers compile their own

    def __call__(self, bins: tuple[float, ...]) -> Row:
        search, program = self.search, self.search.at(bins).program
        key, levels = program.signature(), self._levels
        if key not in self._sweeps:
            self._sweeps[key] = self._prepared(key)
        sweep, boxes = self._sweeps[key]
        objective, q = sweep(program, search.privacy.epsilon, boxes)
        if np.isnan(objective).all():
            return [0.0] * levels.shape[1], None, 0, len(objective)
        scores = program.judged(objective, q) if search.judge == "loss" else objective
        best = int(np.nanargmin(scores))
        return levels[best].tolist(), float(scores[best]), int(np.isfinite(scores).sum()), len(objective)

    def _prepared(self, key: bytes) -> tuple[Sweep, Boxes]:
        """A sweep that has learned what is infeasible from the last choice of bins of this structure, whatever comes first."""
        programs = (self.search.at(bins).program for bins in reversed(self.search.alphabets()))
        program = next(p for p in programs if p.signature() == key)
        sweep, boxes = Sweep(program), grid_boxes(program, self.search.levels)
        sweep(program, self.search.privacy.epsilon, boxes)
        return sweep, boxes

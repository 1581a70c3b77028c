r"""Algorithm 2 of the OPTM paper: a grid over bins around a grid over bounds.

The authors' search at m = 4: outer bins ±(c + Δ), Δ ∈ {1, 1.1, …, 2}, inner bins ±{0.1, …, 1}, bounds
:math:`o = l, u = l + 0.01`, l = 0.01, …, 0.99: 10,890 linear programs per ε. Here one chunk of work is one
choice of bins; its linear programs are changes of one, each solved from the last basis.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from mechdesign import solvers
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.classes import MechanismClass, family
from mechdesign.evidence.results import Result
from mechdesign.evidence.serialize import dumps, serializable
from mechdesign.model.search import searched
from mechdesign.model.sweeping import Sweep
from mechdesign.problem.checks import field, one_of, settle
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.spine import Bound, Clock, Law, ModelledDesign
from mechdesign.quantizers.common.design import QuantizerDesign
from mechdesign.quantizers.common.dual_pieces import OutputSpace
from mechdesign.quantizers.common.proofs import outermost
from mechdesign.quantizers.mechanism.selection import mirrored_bins
from mechdesign.quantizers.optimal.any_outputs import loss_bounds
from mechdesign.quantizers.optm.boxes import authors_levels, check_levels
from mechdesign.quantizers.optm.design import OPTM
from mechdesign.quantizers.optm.problem import BoxSearch, SelectionProblem
from mechdesign.quantizers.optm.programs import SelectionPrograms
from mechdesign.runs.grid import Grid
from mechdesign.solvers.deadline import Deadline, too_late
from mechdesign.typing import Array

Row = tuple[list[float], float | None, int, int]
"""Of one choice of bins: best level(s), its score (None where infeasible), feasible programs, programs."""


_BATCH = 22  # choices of bins that are stated together: in turn with HiGHS, each finds the processor's caches emptied


def authors_bins() -> Grid:
    """The published grid of bins at m = 4."""
    return Grid(delta=np.arange(10, 21) / 10, inner=np.arange(1, 11) / 10)


@serializable("optm-search")
@dataclass(frozen=True)
class OPTMSearch(QuantizerDesign, ModelledDesign):
    """Search bins and bounds of OPTM.

    Parameters
    ----------
    privacy, prior, loss, constraints, input_range
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
    >>> int(found.table["programs"].sum()), found.mechanism.bins.tolist()
    (8, [-3.0, -0.5, 0.5, 3.0])
    """

    privacy: PureDP = field(PureDP)
    prior: Any = field()
    loss: Any = "absolute"
    constraints: str = field(check=one_of, allowed=("theorem5", "across-outputs"), default="theorem5")
    bins: Any = None
    levels: Any = None
    families: str = field(check=one_of, allowed=("auto", "separate"), default="auto")
    judge: str = field(check=one_of, allowed=("loss", "objective"), default="loss")
    input_range: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        bins = authors_bins() if self.bins is None else self.bins
        levels = authors_levels() if self.levels is None else self.levels
        prior, ends = Prior.ranged(self.prior, self.input_range)
        settle(self, prior=prior, input_range=ends, loss=Loss.of(self.loss), bins=bins, levels=levels)
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
        lower, upper = self.input_range
        chosen = []
        for p in self.bins:
            inner = (p["left"], p["right"]) if "left" in p else (-p["inner"], p["inner"])
            bins = (lower - p["delta"], *inner, upper + p["delta"])
            if all(a < b for a, b in zip(bins, bins[1:])):
                chosen.append(tuple(round(b, 12) for b in bins))
        return chosen

    @property
    def output_space(self) -> OutputSpace | None:
        """All outputs that are tried; None where there is one choice of bins."""
        alphabets = [tuple(mirrored_bins(np.array(bins)).tolist()) for bins in self.alphabets()]
        return OutputSpace.among(alphabets) if len(set(alphabets)) > 1 else None

    def at(self, bins: tuple[float, ...], bounds: object = None) -> OPTM:
        """The design for one choice of bins."""
        return OPTM(
            bins,
            self.privacy,
            self.prior,
            self.loss,
            constraints=self.constraints,
            families=self.families,
            bounds=bounds,
            input_range=self.input_range,
        )

    @property
    def among(self) -> MechanismClass:
        return family("OPTM mechanism of the grids")

    def allows(self, outputs: object) -> bool:
        return any(self.at(bins).allows(outputs) for bins in self.alphabets())

    def problem(self) -> SelectionProblem:
        """Return the program of the best bins that the search finds, feasible at the best of their boxes."""
        bins = self.solve(certify=False, bar=False).mechanism.bins
        return replace(self.at(tuple(bins.tolist()), self.levels).problem(), design=self)

    def problem_of(self, result: Result) -> SelectionProblem:
        """Return the program at the bins and the box that won."""
        return self.at(tuple(result.mechanism.bins.tolist()), self.levels).problem_of(result)

    def box_of(self, result: Result) -> Any:
        """Bounds o and u of the box that won, in the shape of the unknown."""
        return self.at(tuple(result.mechanism.bins.tolist()), self.levels).box_of(result)

    def closed_forms(self) -> Iterator[Law]:
        """Yield, for each choice of bins, the member that selects the two outermost, where it is within the budget."""
        alphabets, levels = self.alphabets(), list(self.levels.axes)
        unsolved: Row = ([0.0] * len(levels), None, 0, 0)
        table = _table(alphabets, [unsolved] * len(alphabets), levels)
        for ends in {bins[:: len(bins) - 1]: bins for bins in alphabets}.values():
            yield from (replace(law, table=table) for law in outermost(self, ends))

    def improve(
        self,
        clock: Clock,
        solver: str | None = None,
        store: str | os.PathLike[str] | None = None,
        jobs: int = 1,
        backend: str = "loky",
        bar: bool = True,
        **options: Any,
    ) -> Iterator[Law | Bound]:
        """Solve every point and return the best mechanism, certified.

        The points are swept by HiGHS; `solver` and other options are those of the last solve, at the best point.
        The lower bound is that of every ε-private unbiased mechanism, of OPTM's family or not, with outputs among those of
        all choices of bins (`output_space`). Losses that are functions have none.

        Parameters
        ----------
        clock : Clock
            By its end, the table holds the choices of bins reached.
        solver : str, optional
        store : path, optional
            Finished bins are kept there; a killed run continues, and ends with the same bytes.
        jobs, backend
            joblib's worker count and backend ("loky", "threading", "dask", "ray").
        bar : bool
            Whether a progress bar is shown, where there is a terminal.
        **options
            The solver's own.

        Raises
        ------
        InfeasibleError
            No point of the search is feasible.
        """
        if solver is not None:
            solvers.get(solver)
        alphabets = self.alphabets()
        batches = [alphabets[k : k + _BATCH] for k in range(0, len(alphabets), _BATCH)]
        found_in = searched(
            _Task(self), batches, what="bins", definition=self._definition(alphabets), store=store, jobs=jobs,
            backend=backend, bar=bar, deadline=clock,
        )  # fmt: skip
        table = _table(alphabets, [row for rows in found_in for row in rows], list(self.levels.axes))
        best = self._best(table, clock)
        yield from loss_bounds(self, best.bins, clock)
        tried = table.sort_values("value", kind="stable", ignore_index=True)
        problem, untimed = best.searched_problem(), Clock(certify=clock.certify)
        boxes = BoxSearch(problem, untimed, solver, options)
        found = boxes.best(problem.solved_epsilon)
        if found is None:
            raise boxes.infeasible()
        yield replace(problem.law(found, boxes, untimed), table=tried)

    def lines(self, result: Result) -> list[str]:
        bins = ", ".join(f"{b:g}" for b in result.mechanism.bins)
        count = int(self.trials(result)["programs"].sum())
        return [f"best bins: {bins} of {count} linear programs", *super().lines(result)]

    def _definition(self, alphabets: list[tuple[float, ...]]) -> dict[str, Any]:
        """What a store is bound to."""
        texts = {name: dumps(getattr(self, name)) for name in ("privacy", "prior", "loss", "levels")}
        plain = {name: getattr(self, name) for name in ("constraints", "families", "judge")}
        return {
            **texts,
            **plain,
            "bins": alphabets,
            "input_range": self.input_range,
            "axes": list(self.levels.axes),
        }

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
    """Solve all levels for some choices of bins, all stated before any is solved; holds one program inside HiGHS for each structure."""

    def __init__(self, search: OPTMSearch) -> None:
        self.search, self._sweep = search, Sweep()
        self._levels = np.stack(list(search.levels.columns().values()), axis=1)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_sweep": Sweep()}  # workers make their own

    def __call__(self, batch: list[tuple[float, ...]]) -> list[Row]:
        problems = [self.search.at(bins, self.search.levels).searched_problem() for bins in batch]
        stated = [p.programs.at(BoxSearch(p).first_boxes(), p.solved_epsilon) for p in problems]
        solved = [self._sweep(programs) for programs in stated]
        return [self._row(problem.programs, *answers) for problem, answers in zip(problems, solved)]

    def _row(self, programs: SelectionPrograms, values: Array, found: Array) -> Row:
        scores = programs.judged(values, found) if self.search.judge == "loss" else values
        if np.isnan(scores).all():
            return [0.0] * self._levels.shape[1], None, 0, len(scores)
        best = int(np.nanargmin(scores))
        return self._levels[best].tolist(), float(scores[best]), int(np.isfinite(scores).sum()), len(scores)

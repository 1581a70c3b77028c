"""OPTM, from *Privacy-Aware Randomized Quantization via Linear Programming*: the best of the selection family, for given bins or over a grid of bins.

Source: Theorems 3–6 and Algorithm 2. Up to four bins the
paper's linear program (`OPTM.problem`) is solved for a grid of boxes, bounds (o, u) that linearise it; each
box is solved from the last one's basis. Theorem 6 has three bounds for any m, searched on a
grid of their own that is refined twice around the best. Beyond four bins the bilinear problem is solved by successive linearisation (`descent`).

**Algorithm 2** is a grid over bins around a grid of boxes. The authors' search at m = 4: outer bins ±(c + Δ), Δ ∈ {1, 1.1, …, 2}, inner bins ±{0.1, …, 1}, bounds
:math:`o = l, u = l + 0.01`, l = 0.01, …, 0.99: 10,890 linear programs per ε. Here one chunk of work is one
choice of bins; its linear programs are changes of one, each solved from the last basis.

**Where the rest is**, in the order of reading: the program, theorem by theorem, and its boxes in `selection_program`; their search and the repair in
`selection_problem`; the proof (`QuantizerProof`) and the audit in `proofs`; the release in `mechanism`, its law in rationals in `table`. The
lower bound: `loss_bounds` in `newton` finds its multipliers, `dual_pieces` proves it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd

from mechdesign.checks import field, integer, one_of, refuse, refusing, settle
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.proofs import family
from mechdesign.evidence.results import Result, SolveReport
from mechdesign.evidence.serialize import dumps, serializable
from mechdesign.model.grid import Grid, swept
from mechdesign.model.search import Row, Sweeping
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.spine import Bound, Clock, Law, ModelledDesign
from mechdesign.quantizers.descent import Descent, LinearisedPoint, SelectionBlocks
from mechdesign.quantizers.dual_pieces import OutputSpace
from mechdesign.quantizers.mechanism import Quantizer
from mechdesign.quantizers.newton import loss_bounds
from mechdesign.quantizers.optimal import OptimalQuantizer
from mechdesign.quantizers.proofs import QuantizerDesign, outermost, proved_law
from mechdesign.quantizers.selection_problem import BoxSearch, SelectionProblem
from mechdesign.quantizers.selection_program import (
    THEOREMS,
    Selection,
    authors_boxes,
    check_boxes,
    check_theorem,
    checked_selection,
)
from mechdesign.quantizers.table import excess_loss, mirrored_bins, tightened
from mechdesign.solvers.deadline import Deadline, too_late
from mechdesign.typing import Array, Indices

_BOX = 'must be a md.Grid, "successive", or a pair of arrays (o, u)'


_ROOM = 0.02  # share of ε reserved for a box around a mechanism found by descent


@serializable("optm")
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
        With boxes, the program minimises Lemma 1's linear upper bound of it (for callables, of the absolute loss);
        "successive" minimises the exact loss. The reported value is always the exact loss.
    input_range : (float, float), optional
        The support of a law by default; with samples as prior it must be stated.
    constraints : {"theorem5", "theorem6", "across-outputs"}
        Theorem 5 (each output by itself, at all pairs of inputs), the compact Theorem 6, or the authors' constraints for
        asymmetric bins (Table 2): every maximum against every minimum of any output, which is stricter.
    families : {"auto", "symmetric", "separate"}
        One mirrored family (symmetric bins) or two (Theorem 4). "auto" follows the bins.
    box : Grid or (o, u) or "successive" or None
        Linearisation of products: a `Grid` with the axis ``level`` (and ``width``, one value; for separate
        families also ``level_right``), a pair of triangular arrays, or "successive": loss and
        privacy are linearised repeatedly at the current mechanism, down to a local optimum of the exact problem. None
        takes the paper's grid up to four bins and "successive" beyond.

    Raises
    ------
    DesignError
        Bad bins, prior, loss or constraint set, each named.

    Notes
    -----
    An input between bins n and n + 1 draws bin i ≤ n with probability :math:`q_n(i)`, a bin beyond it likewise, and sends one of the two such that
    the mean is the input. With bounds :math:`o \le q \le u` the products in the privacy constraint are linear:

    .. math::

       \min_q \ \text{Lemma 1's bound of } E|M(X) - X| \quad \text{s.t.} \quad
       \sum_i q_n(i) = 1, \quad q_j(i) \le q_i(i) \ (j > i), \quad z(q, u) \le e^\varepsilon w(q, o) ,

    with z and w the largest and smallest probabilities of an output with one factor replaced by its bound::

        Q = Selection(bins, input_range, families=families)
        private = Q.private(privacy, theorem=constraints, box=Q.box(o, u))
        SelectionProblem(cp.Minimize(Q.lemma1(prior, loss)), (private,), design=design)

    `problem` returns it, to be read, extended and solved; ``result.box`` holds the box (o, u) of least error, ``result.to_frame()`` the q. `solve` takes
    ``solver``, ``gap``, ``certify``, ``time_limit``, ``progress``; `mechdesign.sweep` varies ε.

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
    constraints: str = field(check=one_of, allowed=THEOREMS, default="theorem5")
    families: str = field(check=one_of, allowed=("auto", "symmetric", "separate"), default="auto")
    box: Any = None

    default_gap = 1e-4
    algorithms = ("boxes", "successive")

    def _post_check(self) -> None:
        prior, given = Prior.ranged(self.prior, self.input_range)
        bins, given, symmetric = checked_selection(self.bins, given, self.families)
        settle(self, bins=tuple(bins.tolist()), prior=prior, input_range=given, loss=Loss.of(self.loss))
        self.loss.check_convex(bins, *given)
        check_theorem(self.constraints, bins, given, symmetric)
        if self.families == "auto":
            settle(self, families="symmetric" if symmetric else "separate")
        if self.box is not None and not isinstance(self.box, (Grid, str)):
            settle(self, box=_checked_pair(self.box, len(bins)))
        elif isinstance(self.box, str) and self.box != "successive":
            raise DesignError.of("box", self.box, _BOX)

    # -- model ----------------------------------------------------------------------------------------

    def searched_problem(self) -> SelectionProblem:
        """Return the paper's program with the boxes to search (the paper's by default), before any is known to be feasible."""
        box = self.box if isinstance(self.box, (tuple, Grid)) else None
        if isinstance(box, tuple):
            count = 1 if self.families == "symmetric" else 2
            box = tuple(np.tile(side, (count, 1)) for side in box)
        return self._stated(box)

    def _stated(self, box: Any) -> SelectionProblem:
        """Return the paper's model: Lemma 1's bound of the loss, privacy by one of the theorems in a box."""
        Q = Selection(self.bins, self.input_range, families=self.families)
        sides = Q.box(*box) if isinstance(box, tuple) else box
        privacy = Q.private(self.privacy, theorem=self.constraints, box=sides)
        return SelectionProblem(cp.Minimize(Q.lemma1(self.prior, self.loss)), (privacy,), design=self)

    def problem(self) -> SelectionProblem:
        """Return the paper's program at the best box searched, at which it is feasible; its parameters o and u hold the box.

        Boxes are searched as long as the parameters have these values. Beyond four bins the box surrounds the mechanism that the descent finds.
        """
        if not self._on_boxes:
            return self._around_descended()
        stated = self.searched_problem()
        best = BoxSearch(stated, Clock(None)).best(stated.solved_epsilon) if stated.searched else None
        return stated if best is None else stated.with_initial_box(best.box)

    def _around_descended(self) -> SelectionProblem:
        """Return the program in a narrow box around the mechanism that the descent finds for slightly less ε, so that the box is feasible."""
        epsilon = self.privacy.epsilon
        asked = replace(self, privacy=PureDP(epsilon * (1 - _ROOM)))
        found = asked.solve(certify=False).mechanism.selection
        unknown = self._stated(None).unknown
        if found is None:  # the two outermost bins alone, by no program
            return self._stated(tuple(side.value for side in unknown.box()))
        q = np.concatenate([found.left, found.right])[: unknown.shape[0]]
        width = 0.4 * _ROOM * min(epsilon, 1.0)
        return self._stated((q * (1 - width), np.minimum(q * (1 + width), 1.0)))

    def problem_of(self, result: Result) -> SelectionProblem:
        """Return the program at the best box."""
        if not self._on_boxes:
            return self.problem()
        return self._stated(None).problem_of(result)

    def box_of(self, result: Result) -> tuple[Array, Array]:
        """Return bounds o and u of the best box, in the shape of the unknown."""
        return self._stated(None).box_of(result)

    # -- solve ----------------------------------------------------------------------------------------

    def closed_forms(self) -> Iterator[Law]:
        """Yield the member that selects the two outermost bins, if it is within the budget."""
        yield from outermost(self, self.bins)

    def accelerated(
        self, clock: Clock, algorithm: str | None = None, outputs: int = 64
    ) -> Iterator[Law | Bound]:
        """Search the boxes, or descend from the optimum over all mechanisms, which also gives the lower bound.

        Neither search proves that no member of the family is better. The bound is for all unbiased mechanisms with these
        bins, of the family or not.

        Parameters
        ----------
        clock : Clock
        algorithm : {"boxes", "successive"}, optional
            By default as `box` states.
        outputs : int
            "successive" draws from at most this many of the bins, chosen evenly; the others only divide the
            inputs. This costs little accuracy, and keeps programs with hundreds of bins small.

        Raises
        ------
        InfeasibleError
            No box tried admits a mechanism; the error states the reason and the smallest feasible ε.
        """
        usable = spread(len(self.bins), integer("outputs", outputs, 4))
        if self._on_boxes if algorithm is None else algorithm == "boxes":
            yield from self.searched_problem().improve(clock)
            return
        yield from loss_bounds(self, self.bins, clock)
        yield from self._descended(clock, usable)

    def _descended(self, clock: Clock, usable: Any) -> Iterator[Law]:
        """Yield the local optimum that successive linearisation finds from the best of all mechanisms with the usable bins."""
        bins, epsilon = np.array(self.bins), self._stated(None).solved_epsilon
        blocks = SelectionBlocks(
            bins, self.input_range, self.prior, self.loss, mirrored=self.families == "symmetric",
            shared_floor=self.constraints == "across-outputs", usable=usable,
        )  # fmt: skip
        descent = Descent(blocks, self.privacy.epsilon, clock)
        half = clock.part(0.5)  # the rest is for moving inside the budget
        any_mechanism = OptimalQuantizer(
            bins[usable], PureDP(epsilon), self.prior, self.loss, input_range=self.input_range
        ).solve(gap=clock.gap, certify=False, time_limit=half.limit())
        point = descent.best(blocks.imitate(any_mechanism.mechanism.probabilities), half)
        if point is None:
            clock.hold("OPTM")
            allowed = f"no mechanism with these {len(bins)} bins is within epsilon = {self.privacy.epsilon:g}: raise it a little"
            InfeasibleError.when(not any(self.closed_forms()), allowed)
            yield from self.closed_forms()
            return
        notes = (f"a local optimum, after {descent.program.count} linearised programs",)
        yield replace(self._law(descent, point, clock), notes=notes)

    @property
    def _on_boxes(self) -> bool:
        """Whether boxes linearise the program, as in the paper; otherwise it is solved by descent."""
        if self.constraints == "theorem6" or isinstance(self.box, (tuple, Grid)):
            return True
        return self.box is None and len(self.bins) <= 4

    def _law(self, descent: Descent, point: LinearisedPoint, clock: Clock) -> Law:
        """Return the point's mechanism; if it is to be certified, in exact arithmetic, and solved again for a smaller budget if rounding exceeds it."""
        budget, law, most, q = self.privacy.epsilon, None, self._stated(None).solved_epsilon, point.q

        def solved(epsilon: float) -> Any:
            found = point if epsilon == budget else descent.inside(q, min(epsilon, most))
            return None if found is None else (found, found.mechanism.selection.exact(self.input_range))  # type: ignore[union-attr]

        if clock.certify:
            point, law = tightened(solved, lambda pair: excess_loss(pair[1], budget), budget)
        value = point.mechanism.expected_loss(self.prior, self.loss)
        floats = Law(point.mechanism, value, report=SolveReport.of(point.solution), duals=point.audit(budget))
        if law is None:
            return floats
        return proved_law(self, floats, Quantizer.of_law(law, point.mechanism.selection))

    def audit(self, result: Result) -> pd.DataFrame:
        """Tabulate the constraints of the definition, and those of the program with its multipliers."""
        return pd.concat([super().audit(result), result.duals], ignore_index=True)


def _checked_pair(given: Any, m: int) -> tuple[Array, Array]:
    with refusing("box", given, _BOX):
        o, u = (np.array(b, dtype=float) for b in given)
    text = f"box has shapes {o.shape}, {u.shape}: both must be ({m - 1}, {m - 1}), triangular"
    DesignError.when(o.shape != (m - 1, m - 1) or u.shape != (m - 1, m - 1), text)
    for n, i in np.argwhere(np.tril(~((o >= 0) & (o <= u)))):
        what = f"o_{n + 1}({i + 1}) = {o[n, i]:g}, u_{n + 1}({i + 1}) = {u[n, i]:g}"
        raise DesignError(f"box: {what}; need 0 <= o <= u")
    return o, u


def authors_bins() -> Grid:
    """Return the published grid of bins at m = 4."""
    return Grid(delta=np.arange(10, 21) / 10, inner=np.arange(1, 11) / 10)


@serializable("optm-search")
class OPTMSearch(QuantizerDesign, ModelledDesign):
    """Search bins and boxes of OPTM.

    Parameters
    ----------
    privacy, prior, loss, constraints, input_range
        As in `OPTM`.
    bins : Grid
        Axes ``delta`` and ``inner`` (bins ±inner, ±(c + delta), m = 4), or ``left``, ``right``, ``delta``
        (asymmetric inner bins left < right, outer bins ±(c + delta)).
    boxes : Grid
        Axes ``level`` and ``width`` (and ``level_right`` for asymmetric bins).
    families : {"auto", "separate"}
        Passed to `OPTM`.
    judge : {"loss", "objective"}
        Whether points are compared by their exact expected loss, or by the programs' objective (Lemma 1's bound of it).

    Examples
    --------
    >>> from scipy import stats
    >>> search = OPTMSearch(
    ...     PureDP(1.0), stats.uniform(-1, 2),
    ...     bins=Grid(delta=[1.9, 2.0], inner=[0.4, 0.5]), boxes=Grid(level=[0.66, 0.67], width=[0.01]),
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
    boxes: Any = None
    families: str = field(check=one_of, allowed=("auto", "separate"), default="auto")
    judge: str = field(check=one_of, allowed=("loss", "objective"), default="loss")
    input_range: Any = None
    mechanism_class = family("OPTM mechanism of the grids")

    def _post_check(self) -> None:
        bins = authors_bins() if self.bins is None else self.bins
        boxes = authors_boxes() if self.boxes is None else self.boxes
        prior, ends = Prior.ranged(self.prior, self.input_range)
        settle(self, prior=prior, input_range=ends, loss=Loss.of(self.loss), bins=bins, boxes=boxes)
        axes = set(bins.axes) if isinstance(bins, Grid) else set()
        remedy = "must be a Grid with the axes delta, inner or left, right, delta"
        refuse(axes not in ({"delta", "inner"}, {"left", "right", "delta"}), "bins", bins, remedy)
        check_boxes("boxes", boxes)
        refuse(not self.alphabets(), "bins", bins, "no point of the grid is an increasing sequence of bins")
        self.at(self.alphabets()[0])  # raises if OPTM refuses the arguments

    def alphabets(self) -> list[tuple[float, ...]]:
        """Return the choices of bins in the grid's order, without those that do not increase."""
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
        """Space of all outputs tried; None if there is only one choice of bins."""
        alphabets = [tuple(mirrored_bins(np.array(bins)).tolist()) for bins in self.alphabets()]
        return OutputSpace.of_alphabets(alphabets) if len(set(alphabets)) > 1 else None

    def at(self, bins: tuple[float, ...], box: object = None) -> OPTM:
        """Return the design for one choice of bins."""
        return OPTM(
            bins,
            self.privacy,
            self.prior,
            self.loss,
            constraints=self.constraints,
            families=self.families,
            box=box,
            input_range=self.input_range,
        )

    def allows(self, outputs: object) -> bool:
        return any(self.at(bins).allows(outputs) for bins in self.alphabets())

    def problem(self) -> SelectionProblem:
        """Return the program of the best bins that the search finds, feasible at the best of their boxes."""
        bins = self.solve(certify=False, bar=False).mechanism.bins
        return replace(self.at(tuple(bins.tolist()), self.boxes).problem(), design=self)

    def problem_of(self, result: Result) -> SelectionProblem:
        """Return the program at the best bins and box."""
        return self.at(tuple(result.mechanism.bins.tolist()), self.boxes).problem_of(result)

    def box_of(self, result: Result) -> Any:
        """Return bounds o and u of the best box, in the shape of the unknown."""
        return self.at(tuple(result.mechanism.bins.tolist()), self.boxes).box_of(result)

    def closed_forms(self) -> Iterator[Law]:
        """Yield, for each choice of bins, the member that selects the two outermost, if it is within the budget."""
        alphabets = self.alphabets()
        table = self._table(alphabets, [[] for _ in alphabets])
        for ends in {bins[:: len(bins) - 1]: bins for bins in alphabets}.values():
            yield from (replace(law, table=table) for law in outermost(self, ends))

    def modelled(
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

        HiGHS sweeps the points; `solver` and other options are for the last solve, at the best point.
        The lower bound is for all ε-private unbiased mechanisms, of OPTM's family or not, with outputs among those of
        all choices of bins (`output_space`). Callable losses have no bound.

        Parameters
        ----------
        clock : Clock
            Time limit; at its end, the table holds the choices of bins reached.
        solver : str, optional
        store : path, optional
            Folder of finished bins, from which a killed run continues, with the same bytes in the end.
        jobs, backend
            joblib's worker count and backend ("loky", "threading", "dask", "ray").
        bar : bool
            Whether a terminal shows a progress bar.
        **options
            Options of the solver.

        Raises
        ------
        InfeasibleError
            No point of the search is feasible, and the first is proved infeasible.
        """
        alphabets = self.alphabets()
        task = Sweeping(self._searched_problem, {}, judge=self.judge == "loss")
        rows = swept(
            task, alphabets, what="bins", definition=self._definition(alphabets), store=store, jobs=jobs,
            backend=backend, bar=bar, deadline=clock,
        )  # fmt: skip
        table = self._table(alphabets, rows)
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

    def _searched_problem(self, bins: tuple[float, ...]) -> SelectionProblem:
        """Return the programs of all boxes for one choice of bins."""
        return self.at(bins, self.boxes).searched_problem()

    def _table(self, alphabets: list[tuple[float, ...]], rows: list[Row]) -> pd.DataFrame:
        """Tabulate for each choice of bins reached the best box, its score, and the numbers of feasible and of all programs."""
        boxes = self.boxes.frame()
        found = []
        for bins, row in zip(alphabets, rows):
            scores = np.array([*row, None], dtype=float)  # NaN if no box was reached or feasible
            best, feasible = int(np.argmin(np.nan_to_num(scores, nan=np.inf))), np.isfinite(scores).sum()
            level = boxes.iloc[best] if feasible else [0.0] * len(boxes.columns)
            found.append((*bins, *level, scores[best], int(feasible), len(row)))
        names = [f"bin {i}" for i in range(1, len(alphabets[0]) + 1)]
        return pd.DataFrame(found, columns=[*names, *boxes, "value", "feasible", "programs"])

    def _definition(self, alphabets: list[tuple[float, ...]]) -> dict[str, Any]:
        """Return the definition that a store must match."""
        texts = {name: dumps(getattr(self, name)) for name in ("privacy", "prior", "loss", "boxes")}
        plain = {name: getattr(self, name) for name in ("constraints", "families", "judge")}
        more = {"bins": alphabets, "input_range": self.input_range, "axes": list(self.boxes.axes)}
        return texts | plain | more

    def _best(self, table: pd.DataFrame, deadline: Deadline) -> OPTM:
        if table["value"].isna().all() and deadline.passed:
            raise too_late("OPTM")
        winner = table.loc[table["value"].fillna(np.inf).idxmin()]
        box = Grid(**{name: winner[name] for name in self.boxes.axes})
        return self.at(tuple(winner.filter(like="bin ").tolist()), box)


def spread(m: int, count: int) -> Indices:
    """Choose `count` of m bins evenly and symmetrically, including the outermost.

    >>> spread(8, 4)
    array([0, 3, 4, 7])
    """
    if count >= m:
        return np.arange(m)
    half = np.round(np.linspace(0, m // 2 - 1, max(1, count // 2))).astype(np.intp)
    middle = [m // 2] if m % 2 and count % 2 else []
    return np.unique(np.concatenate([half, np.array(middle, dtype=np.intp), m - 1 - half]))

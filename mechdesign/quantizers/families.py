r"""RQM and ERM, published mechanisms of the selection family, and the biased extension, with parameters searched for the least loss within a budget.

RQM and ERM are one-family members of the selection family with few parameters. The search evaluates the exact privacy
loss and the exact error at every point of a declared grid, keeps the best within the budget, and zooms in on it.

**RQM** (Youn et al. 2023): every bin is kept with probability q.

The bins are m uniform points on [lower − Δ, upper + Δ]. All but the two outermost are kept independently with probability
q, and the input is rounded without bias between the nearest kept bins on either side. As a member of the selection family (`mechanism`), with bins counted from the outermost one of each side,

.. math:: q_j(1) = (1 - q)^{j-1}, \qquad q_j(i) = q\,(1 - q)^{j-i}, \quad 1 < i \le j .

Its privacy loss grows with m: it is at most :math:`\log(2 (1-q)^2 (c + Δ)/Δ) + m \log \frac{1}{1-q}` on [−c, c].

**ERM**, the exponential randomized mechanism of the OPTM paper: bins near the input are likelier, exponentially.

As a member of the selection family (`mechanism`)

.. math:: q_j(i) \propto \exp\left( γ \frac{B_i - B_j}{2 (B_j - B_1)} \right), \qquad q_1(1) = 1 ,

the exponential mechanism's choice of a bin left of the input, and its mirror image for the right. A larger γ favours nearer
bins: less error, more privacy loss.

**The biased extension** lowers the error at the same privacy by a bias budget. Members of the RQM family, rounded by the exponential mechanism (`BiasedQuantizer`), are searched over q, Δ and β for the
least expected loss within an exact privacy budget and a bias budget.
"""

from __future__ import annotations

import itertools
import math
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from scipy import optimize

from mechdesign.checks import instance, integer, non_negative, number, refuse, settle
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.exact import safe_root
from mechdesign.evidence.proofs import (
    PROVED,
    RECOMPUTED,
    Certificate,
    Claim,
    LawProof,
    family,
)
from mechdesign.evidence.results import Result, SolveReport, audit_row
from mechdesign.evidence.serialize import serializable
from mechdesign.model.grid import Grid
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.quantizers.biased import BiasedQuantizer
from mechdesign.quantizers.dual_pieces import OutputSpace
from mechdesign.quantizers.mechanism import (
    Quantizer,
    SelectionFamilies,
    SelectionPlaces,
    erm_families,
    rqm_family,
    summing_to_one,
)
from mechdesign.quantizers.moments import end_costs
from mechdesign.quantizers.newton import loss_bounds
from mechdesign.quantizers.proofs import QuantizerDesign, proved_law
from mechdesign.quantizers.table import (
    LARGEST,
    check_bins,
    check_range,
    loss_from_floats,
    symmetric_bins,
)
from mechdesign.solvers.deadline import Deadline, too_late
from mechdesign.typing import Array

Families = Callable[[float], tuple[Array, Array] | None]
"""The left and right selection families as a function of the selector; None if it makes no mechanism."""


class GridDesign(QuantizerDesign):
    """Base of designs that search a grid of members of a family.

    Attributes
    ----------
    m : int
    grid : Grid
    """

    m: int
    grid: Any

    _default: ClassVar[Grid]
    _selectors: ClassVar[tuple[str, ...]]
    """Parameters of the selection of bins; the others set their places."""
    _fewest: ClassVar[int] = 2
    _zoomed: ClassVar[bool] = False
    """Whether the search extends beyond the grid, by at most the widest step of its axis."""

    def __post_init__(self) -> None:
        refuse(not isinstance(self.privacy, PureDP), "privacy", self.privacy, "use md.PureDP(epsilon)")
        prior, ends = Prior.ranged(self.prior, self.input_range)
        check_range(ends)
        grid = self._default if self.grid is None else self.grid
        allowed = f"must be a Grid with the axes {', '.join(self._default.axes)}"
        refuse(not isinstance(grid, Grid) or set(grid.axes) != set(self._default.axes), "grid", grid, allowed)
        m, loss = integer("m", self.m, self._fewest, 1 << 16), Loss.of(self.loss)
        settle(self, m=m, prior=prior, input_range=ends, loss=loss, grid=grid)

    @abstractmethod
    def _outputs(self, given: dict[str, float]) -> Array | None:
        """Return the bins; None if the parameters make no mechanism."""

    @property
    def output_space(self) -> OutputSpace | None:
        """Space of the outputs of all members that the search may visit; None if all have the same."""
        axes = {k: np.unique(axis) for k, axis in self.grid.axes.items() if k not in self._selectors}
        if all(len(axis) == 1 for axis in axes.values()):
            return None
        delta = axes["delta"]
        widest = np.diff(delta).max(initial=0.0) if self._zoomed else 0.0
        return OutputSpace.around(self.input_range, 1 + float(delta.max() + widest))

    def allows(self, outputs: object) -> bool:
        found = np.array(outputs, dtype=float)
        if len(found) != self.m:
            return False
        if (space := self.output_space) is not None:
            return space.reaches(found)
        only = self._outputs({k: float(v[0]) for k, v in self.grid.axes.items()})
        return only is not None and np.allclose(found, only, rtol=1e-12, atol=0)


@dataclass(frozen=True)
class ParameterSearch(GridDesign):
    """Base of RQM and ERM: fields and search. `mechanism` returns the member with given parameters."""

    m: int
    privacy: PureDP
    prior: Any
    loss: Any = "absolute"
    input_range: Any = None
    grid: Grid | None = None

    _zoomed = True

    @abstractmethod
    def _families(self, bins: Array) -> Families:
        """Return the selection families of members with these bins."""

    def mechanism(self, **parameters: float) -> Quantizer | None:
        """Return the member with these parameters; None if they make no mechanism."""
        axes = instance("grid", self.grid, Grid).axes
        if parameters.keys() != axes.keys():
            raise DesignError.of("parameters", sorted(parameters), f"must be {', '.join(axes)}")
        given = {name: number(name, parameters[name]) for name in axes}
        line = self._line(given)
        return None if line is None else line.mechanism(given[self._selectors[0]])

    def _line(self, given: dict[str, float]) -> _Line | None:
        """Return the members with the same bins; None if the bins make no unbiased mechanism."""
        bins, (lower, upper) = self._outputs(given), self.input_range
        if bins is None or not -LARGEST <= bins[0] <= lower or not upper <= bins[-1] <= LARGEST:
            return None
        return _Line(self, check_bins("bins", bins))

    def improve(self, clock: Clock, zoom: int = 4, starts: int = 4) -> Iterator[Law | Bound]:
        """Search the grid, and zoom in on its best points.

        The last axis is the parameter that trades privacy for error: on each line of the other axes the best
        point within the budget is moved onto the budget if a neighbour exceeds it. The lower bound is for all
        ε-private unbiased mechanisms, of this family or not, with any outputs in the range of the search
        (`output_space`), or with the grid's outputs if they are fixed. Callable losses have no bound.

        Parameters
        ----------
        clock : Clock
            Exact arithmetic (``certify=True``) takes seconds from 64 outputs and minutes at 256.
        zoom : int
            Number of refinements around the best points, at most 40.
        starts : int
            Number of best points to refine.

        Raises
        ------
        InfeasibleError
            No point is within the budget; the error states the smallest loss found.
        """
        search = _Search(self, clock)
        rough = search.rough(3 * integer("starts", starts, 1))
        best = search.zoomed(rough, integer("zoom", zoom, 0, 40), starts)
        member = self.mechanism(**best.point)
        assert member is not None
        yield from loss_bounds(self, member.bins, clock)
        notes = ("best parameters: " + ", ".join(f"{k} = {v:.6g}" for k, v in best.point.items()),)
        report = SolveReport("grid search", iterations=search.count)
        yield Law(member, member.expected_loss(self.prior, self.loss), report=report, notes=notes)

    def certified(self, law: Law, clock: Clock) -> Law:
        return proved_law(self, law, law.mechanism.certified())

    def _bins(self, inner: Array, delta: float) -> Array:
        """Return the bins around the centre of the range, `inner` and ±(1 + delta) in units of half the range."""
        lower, upper = self.input_range
        return np.asarray(
            (upper + lower) / 2 + (upper - lower) / 2 * np.array([-1 - delta, *inner, 1 + delta])
        )


class _Member(NamedTuple):
    """A member's parameters, privacy loss, and expected loss, if it is within the budget."""

    point: dict[str, float]
    loss: float
    value: float


def _least(members: Iterable[_Member]) -> _Member:
    return min(members, key=lambda member: member.value)


class _Search:
    """The family on the lines of its grid along the last axis, with a count of the members and the smallest loss found."""

    def __init__(self, design: ParameterSearch, deadline: Deadline) -> None:
        axes = instance("grid", design.grid, Grid).axes
        self.design, self.deadline = design, deadline
        *self.outer, self.last = axes
        self.line = np.unique(axes[self.last])
        self.axes = [np.array(axes[k]) for k in self.outer]
        self.count, self.least = 0, math.inf

    def rough(self, count: int) -> list[_Member]:
        """Return the best members of the `count` best lines of the grid.

        Lines whose outputs reach farthest, and are most private, are few, and searched even after the deadline.
        """
        found = [self.best_at(place, refine=False) for place in itertools.product(*self.axes)]
        if not any(found) and self.deadline.passed:
            widest = itertools.product([self.axes[0].max()], *self.axes[1:])  # delta comes first
            late = (self.best_at(place, refine=False, late=True) for place in widest)
            found = [next(filter(None, late), None)]
        if members := [member for member in found if member is not None]:
            return sorted(members, key=lambda member: member.value)[:count]
        name, epsilon = type(self.design).__name__, self.design.privacy.epsilon
        self.deadline.hold(name)
        raise InfeasibleError(
            f"no {name} mechanism on the grid is within epsilon = {epsilon:g}; the smallest loss met is {self.least:.6g}",
            smallest_epsilon=self.least,
        )

    def zoomed(self, members: list[_Member], zoom: int, starts: int) -> _Member:
        """Return the best member near the given ones."""
        on_budget = [self.best_at([c.point[k] for k in self.outer]) or c for c in members]
        best = sorted(on_budget, key=lambda member: member.value)[:starts]
        steps = np.array([np.diff(np.unique(axis)).max(initial=0.0) for axis in self.axes])
        shifts = np.arange(-2, 3) / 3
        for level in range(zoom):
            for n, member in enumerate(best):
                near = [member.point[k] + step * shifts for k, step in zip(self.outer, steps * 3.0**-level)]
                tried = map(self.best_at, itertools.product(*near))
                best[n] = _least([member, *filter(None, tried)])
        return _least(best)

    def best_at(self, place: Iterable[float], *, refine: bool = True, late: bool = False) -> _Member | None:
        """Return the best member within the budget on one line, refined until it consumes the budget or its value is least."""
        if self.deadline.passed and not late:
            return None
        design, epsilon, line = self.design, self.design.privacy.epsilon, self.line
        outer, selector = dict(zip(self.outer, map(float, place))), design._selectors[0]
        shared = design._line(outer) if self.last == selector else None

        @cache
        def member(t: float) -> _Member:
            point = {**outer, self.last: float(t)}
            its = shared if self.last == selector else design._line(point)
            self.count += 1
            loss, value = (math.inf, math.inf) if its is None else its.losses(point[selector])
            self.least = min(self.least, loss)
            return _Member(point, loss, value)

        members = [member(t) for t in line]
        k = int(np.argmin([c.value for c in members]))
        if members[k].value == math.inf:
            return None
        near = [n for n in (k - 1, k + 1) if 0 <= n < len(line)] if refine else []
        over = [n for n in near if members[n].loss > epsilon]
        found = [members[k]]
        for n in over:
            xtol = 1e-10 * abs(line[n] - line[k])
            root = safe_root(lambda t: min(member(t).loss, 1e3) - epsilon, line[k], line[n], xtol=xtol)
            found.append(member(root))
        if near and not over:
            ends = float(line[near[0]]), float(line[near[-1]])
            options = {"xatol": 1e-6 * (ends[1] - ends[0])}
            lowest = optimize.minimize_scalar(
                lambda t: member(t).value, bounds=ends, method="bounded", options=options
            )
            found.append(member(lowest.x))
        return _least(found)


class _Line(SelectionPlaces):
    """Members of a family with the same bins, as functions of the selector."""

    def __init__(self, design: ParameterSearch, bins: Array) -> None:
        super().__init__(bins, design.input_range)
        self.design, self._families = design, design._families(bins)

    def mechanism(self, selector: float) -> Quantizer | None:
        """Return a member; None if the selector makes no mechanism."""
        if (families := self._families(selector)) is None:
            return None
        return Quantizer.of_selection(SelectionFamilies(self.bins, *families), self.design.input_range)

    def losses(self, selector: float) -> tuple[float, float]:
        """Return privacy loss and expected loss; the latter is ∞ if the former exceeds the budget, both if there is no mechanism."""
        if (families := self._families(selector)) is None:
            return math.inf, math.inf
        starts, ends = self.tables(*map(summing_to_one, families))
        low, high = np.minimum(starts, ends).min(axis=0), np.maximum(starts, ends).max(axis=0)
        privacy, design = loss_from_floats(low, high), self.design
        if not privacy <= design.privacy.epsilon:
            return privacy, math.inf
        first, last = self._costs
        return privacy, float(np.sum(starts * first) + np.sum(ends * last))

    @cached_property
    def _costs(self) -> tuple[Array, Array]:
        """Cost of a unit of probability at the start of each segment, and at its end; about the range's centre, as far from zero moments lose digits."""
        (lower, upper), design = self.design.input_range, self.design
        centre = lower / 2 + upper / 2
        prior = design.prior.standardised(centre, 1.0)
        return end_costs(self.bins - centre, self.knots - centre, prior, design.loss)


@serializable("rqm")
class RQM(ParameterSearch):
    """Randomized quantization mechanism with q and Δ searched.

    Parameters
    ----------
    m : int
        Number of output values.
    privacy, prior, loss, input_range
        As in `OPTM`.
    grid : Grid, optional
        Axes ``delta`` (in units of half the input range) and ``q`` (keep probability).

    Examples
    --------
    >>> from scipy import stats
    >>> from mechdesign.problem.privacy import PureDP
    >>> result = RQM(4, PureDP(1.5), stats.uniform(-1, 2)).solve()
    >>> result.mechanism.privacy_loss() <= 1.5
    True
    """

    _selectors = ("q",)
    _default = Grid(delta=[*np.linspace(0.2, 4.0, 20), 5.0, 6.0, 8.0], q=np.linspace(0.02, 0.9, 12))

    def _outputs(self, given: dict[str, float]) -> Array | None:
        delta = given["delta"]
        return None if delta < 0 else self._bins((1 + delta) * np.linspace(-1, 1, self.m)[1:-1], delta)

    def _families(self, bins: Array) -> Families:
        return lambda q: (rqm_family(len(bins), q),) * 2 if 0 < q < 1 else None


@serializable("erm")
class ERM(ParameterSearch):
    """Exponential randomized mechanism with γ and the bins searched.

    The outermost bins are at lower − Δ and upper + Δ, the m − 2 others uniform on ± ``inner`` around the
    centre (m = 4: the pair of the OPTM paper).

    Parameters
    ----------
    m : int
        Number of output values, at least 3.
    privacy, prior, loss, input_range
        As in `OPTM`.
    grid : Grid, optional
        Axes ``delta``, ``inner`` (both in units of half the input range) and ``gamma``.

    Examples
    --------
    >>> import mechdesign as md
    >>> from scipy import stats
    >>> grid = md.Grid(delta=[1.6], inner=[0.5], gamma=[0.2])
    >>> result = ERM(4, md.PureDP(2.0), stats.uniform(-1, 2), grid=grid).solve(zoom=0)
    >>> len(result.mechanism.bins), result.certificate.verify()
    (4, True)
    """

    _selectors = ("gamma",)
    # Inner bins may go out to the outer ones: at small ε the best members are nearly two-output mechanisms.
    # At large ones the outer bins are next to the range.
    _default = Grid(
        delta=[0.001, 0.005, 0.025, *np.geomspace(0.5, 5, 16)],
        inner=np.geomspace(0.1, 4, 12),
        gamma=np.geomspace(1e-3, 20, 6),
    )
    _fewest = 3

    def _outputs(self, given: dict[str, float]) -> Array | None:
        delta, inner = given["delta"], given["inner"]
        if inner <= 0 or inner >= 1 + delta:
            return None
        middle = np.linspace(-inner, inner, self.m - 2) if self.m > 3 else np.zeros(1)
        return self._bins(middle, delta)

    def _families(self, bins: Array) -> Families:
        left = erm_families(bins)
        right = left if symmetric_bins(bins) else erm_families(-bins[::-1])

        def of(gamma: float) -> tuple[Array, Array] | None:
            if gamma <= 0:
                return None
            first = left(gamma)
            return first, first if right is left else right(gamma)

        return of


@serializable("biased-selection")
class BiasedSelection(GridDesign):
    """The least-loss biased selection mechanism within a privacy and a bias budget.

    Parameters
    ----------
    m : int
        Number of outputs, uniform on [lower − Δ, upper + Δ].
    privacy : PureDP
    prior, loss, input_range
        As in `OPTM`.
    max_bias : float
        Largest allowed |E M(x) − x|; infinity for none.
    grid : Grid, optional
        Axes ``delta``, ``q``, ``beta``; Δ in units of half the range, β per unit of half the range.

    Examples
    --------
    >>> from scipy import stats
    >>> grid = Grid(delta=[0.5, 1.0], q=[0.3, 0.6], beta=[0.1, 0.5])
    >>> result = BiasedSelection(4, PureDP(1.0), stats.uniform(-1, 2), max_bias=math.inf, grid=grid).solve()
    >>> result.mechanism.privacy_loss() <= 1.0
    True
    """

    m: int
    privacy: PureDP
    prior: Any
    loss: Any = "absolute"
    max_bias: float = math.inf
    input_range: Any = None
    grid: Grid | None = None

    _default = Grid(
        delta=np.linspace(0.0, 3.0, 13), q=np.linspace(0.1, 0.9, 9), beta=[0.0, *np.geomspace(0.02, 5, 16)]
    )
    _selectors = ("q", "beta")
    mechanism_class = family("biased selection mechanism of the grid")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.max_bias, float) and self.max_bias == math.inf):
            settle(self, max_bias=non_negative("max_bias", self.max_bias))

    def mechanism(self, delta: float, q: float, beta: float) -> BiasedQuantizer:
        """Return the member with these parameters."""
        return self._rounded(self._selection(number("delta", delta), q), number("beta", beta))

    def _selection(self, delta: float, q: float) -> SelectionFamilies:
        family = rqm_family(self.m, q)
        return SelectionFamilies(self._outputs({"delta": delta}), family, family)

    def _rounded(self, selection: SelectionFamilies, beta: float) -> BiasedQuantizer:
        lower, upper = self.input_range
        return BiasedQuantizer(selection, beta / ((upper - lower) / 2), self.input_range)

    def _outputs(self, given: dict[str, float]) -> Array:
        lower, upper = self.input_range
        beyond = given["delta"] * (upper - lower) / 2
        return np.linspace(lower - beyond, upper + beyond, self.m)

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        """Search the grid.

        The lower bound is for all ε-private mechanisms within the bias budget, of this family or not, with any outputs
        in the range of the grid's (`output_space`). Callable losses have no bound.

        Raises
        ------
        InfeasibleError
            No point meets both budgets; the error states the least bias within the privacy budget.
        """
        rows, least, tried = self._members(clock)
        if not rows and clock.passed:
            raise too_late("BiasedSelection")
        if not rows:
            raise InfeasibleError(
                f"no biased selection mechanism on the grid is within epsilon = {self.privacy.epsilon:g} and "
                f"max_bias = {self.max_bias:g}; the least bias within the privacy budget is {least:.6g}",
                least=least,
            )
        table = pd.DataFrame(rows).sort_values("value", ignore_index=True)
        best = self.mechanism(*(float(table.loc[0, k]) for k in ("delta", "q", "beta")))
        yield from loss_bounds(self, best.bins, clock)
        report = SolveReport("grid search", iterations=tried)
        yield Law(best, float(table.loc[0, "value"]), (LawProof(),), report, table=table)

    def _members(self, clock: Clock) -> tuple[list[dict[str, float]], float, int]:
        """Return the members within both budgets with their values, the least bias within the privacy budget, and the number of points tried."""
        rows: list[dict[str, float]] = []
        least, tried = math.inf, 0
        selection = cache(self._selection)  # which all β share
        grid = instance("grid", self.grid, Grid)
        widest = max(grid.axes["delta"])
        for point in grid:
            # after the deadline only the most private lines, with the farthest outputs, are searched, for a first member
            if clock.passed and (rows or point["delta"] < widest):
                continue
            tried += 1
            member = self._rounded(selection(point["delta"], point["q"]), point["beta"])
            loss = member.privacy_loss()
            if loss > self.privacy.epsilon:
                continue
            bias = member.max_bias(201)
            least = min(least, bias)
            if max(bias, member.max_bias() if math.isfinite(self.max_bias) else 0.0) <= self.max_bias:
                value = member.expected_loss(self.prior, self.loss)
                rows.append({**point, "epsilon": loss, "bias": bias, "value": value})
        return rows, least, tried

    def law_claims(self, stated: Certificate, given: None) -> Iterator[Claim]:
        """Check privacy in integers, at the ends of the intervals between bins, on which probabilities are monotone; bias and value in doubles."""
        law = instance("law", stated.law, BiasedQuantizer)
        fits = law.input_range == self.input_range and self.allows(law.bins)
        epsilon, most = self.privacy.epsilon, self.max_bias
        left = epsilon - law.proved_loss()
        yield Claim(f"privacy loss at most {epsilon!r}", PROVED, left, fits and left >= 0)
        left = min(most, sys.float_info.max) - law.max_bias()
        yield Claim.of(f"bias at most {most!r} on a fine grid", RECOMPUTED, left)
        found = law.expected_loss(self.prior, self.loss)
        error, better = abs(found - stated.value), found - stated.value
        holds = error <= 1e-9 * abs(found) and better <= 1e-12 * abs(found)
        yield Claim(f"expected loss {stated.value!r}", RECOMPUTED, -error, holds)

    # -- what a result says ---------------------------------------------------------------------------

    def frame(self, result: Result) -> pd.DataFrame:
        """Return the trade-off between bias, privacy and error among the members searched."""
        return result.trials()

    def audit(self, result: Result) -> pd.DataFrame:
        mechanism, rho = result.mechanism, math.exp(self.privacy.epsilon)
        (low, high), bias, most = mechanism.extremes(), mechanism.max_bias(), self.max_bias
        index = [f"output {b:g}" for b in mechanism.bins]
        rows = [audit_row(i, h, rho * l) for i, l, h in zip(index, low, high)]
        return pd.concat([*rows, audit_row("largest", bias, most, "bias")], ignore_index=True)

    def lines(self, result: Result) -> list[str]:
        loss, bias = result.mechanism.privacy_loss(), result.mechanism.max_bias()
        return [f"exact loss: {loss!r}, largest bias: {bias:.6g}"]

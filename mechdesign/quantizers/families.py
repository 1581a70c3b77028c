"""RQM and ERM with their parameters searched: what the published mechanisms reach within a budget.

Both are one-family members of the selection family with few parameters. The search evaluates the exact privacy
loss and the exact error at every point of a declared grid, keeps the best within the budget, and zooms in on it.
"""

from __future__ import annotations

import itertools
import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import optimize

from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import whole
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP
from mechdesign.quantizers.common.certificate import QuantizerCertificate
from mechdesign.quantizers.common.result import QuantizerResult, exceeds
from mechdesign.quantizers.mechanism.quantizer import Quantizer
from mechdesign.runs.grid import Grid
from mechdesign.typing import Array

__all__ = ["ERM", "RQM", "settle_family"]

_DELTAS = np.concatenate([np.linspace(0.2, 4.0, 20), [5.0, 6.0, 8.0]])


def settle_family(design: Any, default: Grid) -> None:
    """Check the fields that a family's designs share, and put parsed values in their places."""
    object.__setattr__(design, "m", whole("m", design.m, 2))
    if not isinstance(design.privacy, PureDP):
        raise DesignError.of("privacy", design.privacy, "use md.PureDP(epsilon)")
    prior = Prior.of(design.prior, design.input_range)
    lower, upper = prior.support if design.input_range is None else (float(v) for v in design.input_range)
    object.__setattr__(design, "prior", prior)
    object.__setattr__(design, "input_range", (lower, upper))
    object.__setattr__(design, "loss", Loss.of(design.loss))
    if design.grid is None:
        object.__setattr__(design, "grid", default)
    elif set(design.grid.axes) != set(default.axes):
        raise DesignError.of("grid", design.grid, f"needs the axes {', '.join(default.axes)}")


@dataclass(frozen=True)
class _FamilySearch(ABC):
    m: int
    privacy: PureDP
    prior: Any
    loss: Any = "absolute"
    input_range: Any = None
    grid: Grid | None = None

    def __post_init__(self) -> None:
        settle_family(self, self._default_grid())

    @abstractmethod
    def _default_grid(self) -> Grid: ...

    @abstractmethod
    def mechanism(self, **parameters: float) -> Quantizer | None:
        """The member with these parameters; None where they make no mechanism."""

    def solve(self, *, zoom: int = 4, starts: int = 4, certify: bool = True) -> QuantizerResult:
        """Search the grid, zoom in on its best points, and return the certified mechanism.

        The last axis is the parameter that trades privacy for error: on each line of the other axes the best
        point within the budget is moved onto the budget where a neighbour is over it.

        Parameters
        ----------
        zoom : int
            How often the grid is refined around the best points.
        starts : int
            How many of the best points are followed.
        certify : bool
            Attach the exact rational law (default). Exact arithmetic takes seconds from 64 outputs and minutes at 256;
            without it the loss is computed in floats and rounded up.

        Raises
        ------
        InfeasibleError
            No point is within the budget; states the smallest loss met.
        """
        started = time.perf_counter()
        assert self.grid is not None
        tally = _Tally(self)
        *outer, last = self.grid.axes
        line = np.unique(self.grid.axes[last])
        places = [dict(zip(outer, v)) for v in itertools.product(*(self.grid.axes[k] for k in outer))]
        rough = [
            (c.value, n)
            for n, p in enumerate(places)
            if (c := tally.best_on_line(p, last, line, refine=False))
        ]
        found = [tally.best_on_line(places[n], last, line) for _, n in sorted(rough)[: 3 * starts]]
        best = sorted((c for c in found if c is not None), key=lambda c: c.value)[:starts]
        steps = {k: _steps(self.grid.axes[k]) for k in outer}
        for _ in range(zoom):
            moved = []
            for candidate in best:
                near = [
                    candidate.point[k] + steps[k] * np.array([-2 / 3, -1 / 3, 0.0, 1 / 3, 2 / 3])
                    for k in outer
                ]
                tries = [
                    tally.best_on_line(dict(zip(outer, v)), last, line) for v in itertools.product(*near)
                ]
                moved.append(min([candidate, *(t for t in tries if t is not None)], key=lambda c: c.value))
            best = moved
            steps = {k: v / 3 for k, v in steps.items()}
        if not best:
            raise InfeasibleError(
                f"no {type(self).__name__} mechanism on the grid is within epsilon = {self.privacy.epsilon:g}; "
                f"the smallest loss met is {tally.least:.6g}",
                smallest_epsilon=tally.least,
            )
        winner = min(best, key=lambda c: c.value)
        text = ", ".join(f"{k} = {v:.6g}" for k, v in winner.point.items())
        report = SolveReport("grid search", "optimal", time.perf_counter() - started, iterations=tally.count)
        notes = (f"best parameters: {text}",)
        if not certify:
            return QuantizerResult(self, winner.mechanism, winner.value, None, report, notes)
        exact = winner.mechanism.certified()
        assert exact.law is not None
        # The loss was rounded up by more than rounding to rationals can move it.
        assert not exceeds(exact.law.ratio(), exp_lower(self.privacy.epsilon))
        begin, end = exact.law.tables()
        exact = replace(exact, starts=begin, ends=end)
        assert exact.law is not None
        certificate = QuantizerCertificate(exact.law, self.privacy.epsilon)
        return QuantizerResult(self, exact, winner.value, None, report, notes, certificate)

    @property
    def _half_range(self) -> float:
        return (self.input_range[1] - self.input_range[0]) / 2

    @property
    def _centre(self) -> float:
        return (self.input_range[1] + self.input_range[0]) / 2


@dataclass(frozen=True)
class _Candidate:
    value: float
    point: dict[str, float]
    mechanism: Quantizer


class _Tally:
    """Evaluates members, counting them and the smallest loss met."""

    def __init__(self, search: _FamilySearch) -> None:
        self.search = search
        self.count = 0
        self.least = math.inf

    def evaluate(self, point: dict[str, float]) -> tuple[float, _Candidate | None]:
        """Privacy loss of the member at `point`, and the member itself where that is within the budget."""
        mechanism = self.search.mechanism(**point)
        self.count += 1
        if mechanism is None:
            return math.inf, None
        loss = mechanism.privacy_loss()
        self.least = min(self.least, loss)
        if loss > self.search.privacy.epsilon:
            return loss, None
        value = mechanism.expected_loss(self.search.prior, self.search.loss)
        return loss, _Candidate(value, point, mechanism)

    def best_on_line(
        self, place: dict[str, float], name: str, line: Array, *, refine: bool = True
    ) -> _Candidate | None:
        """The best member within the budget along one axis; refined onto the budget, or to the least value near it."""
        epsilon = self.search.privacy.epsilon
        found: list[_Candidate] = []

        def loss(t: float) -> float:
            privacy, candidate = self.evaluate({**place, name: float(t)})
            if candidate is not None:
                found.append(candidate)
            return min(privacy, 1e3)

        losses = [loss(t) for t in line]
        if not found:
            return None
        best = min(found, key=lambda c: c.value)
        k = int(np.searchsorted(line, best.point[name]))
        near = [n for n in (k - 1, k + 1) if 0 <= n < len(line)]
        over = [n for n in near if losses[n] > epsilon]
        if refine and over:
            for n in over:
                width = line[n] - line[k]
                root = optimize.brentq(lambda t: loss(t) - epsilon, line[k], line[n], xtol=1e-10 * abs(width))
                for back in (1e-10, 1e-9, 1e-8, 1e-7):  # the root itself may be a hair over
                    if loss(root - back * width) <= epsilon:
                        break
        elif refine and near:

            def value(t: float) -> float:
                candidate = self.evaluate({**place, name: float(t)})[1]
                if candidate is None:
                    return math.inf
                found.append(candidate)
                return candidate.value

            optimize.minimize_scalar(
                value, bounds=(line[near[0]], line[near[-1]]), method="bounded",
                options={"xatol": 1e-6 * abs(line[near[-1]] - line[near[0]])},
            )  # fmt: skip
        return min(found, key=lambda c: c.value)


def _steps(values: tuple[float, ...]) -> float:
    return float(np.diff(np.unique(values)).max(initial=0.0))


@serializable("rqm")
@dataclass(frozen=True)
class RQM(_FamilySearch):
    """Randomized quantization mechanism (Youn et al. 2023) with q and Δ searched.

    Bins are m uniform points on [lower − Δ, upper + Δ].

    Parameters
    ----------
    m : int
        Number of output values.
    privacy, prior, loss, input_range
        As in `OPTM`.
    grid : Grid, optional
        Axes ``q`` (keep probability) and ``delta`` (in units of half the input range).

    Examples
    --------
    >>> from scipy import stats
    >>> result = RQM(4, PureDP(1.5), stats.uniform(-1, 2)).solve()
    >>> result.epsilon <= 1.5
    True
    """

    def _default_grid(self) -> Grid:
        return Grid(delta=_DELTAS, q=np.linspace(0.02, 0.9, 12))

    def mechanism(self, **parameters: float) -> Quantizer | None:
        q, delta = parameters["q"], parameters["delta"]
        if not 0 < q < 1 or delta < 0:
            return None
        reach = self._half_range * (1 + delta)
        bins = self._centre + np.linspace(-reach, reach, self.m)
        return Quantizer.rqm(bins, q, self.input_range)


@serializable("erm")
@dataclass(frozen=True)
class ERM(_FamilySearch):
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
        Axes ``gamma``, ``delta`` and ``inner`` (the last two in units of half the input range).
    """

    def _default_grid(self) -> Grid:
        # Inner bins may go out to the outer ones: at small ε the best members are nearly two-output mechanisms.
        return Grid(
            delta=np.geomspace(0.5, 5, 16), inner=np.geomspace(0.1, 4, 12), gamma=np.geomspace(1e-3, 20, 6)
        )

    def mechanism(self, **parameters: float) -> Quantizer | None:
        gamma, delta, inner = parameters["gamma"], parameters["delta"], parameters["inner"]
        if self.m < 3 or gamma <= 0 or inner <= 0 or inner >= 1 + delta:
            return None
        half = self._half_range
        middle = np.linspace(-inner, inner, self.m - 2) if self.m > 3 else np.zeros(1)
        bins = self._centre + half * np.concatenate([[-1 - delta], middle, [1 + delta]])
        return Quantizer.erm(bins, gamma, self.input_range)

"""The numerical search behind a calibration: scale by root finding, shape by one-dimensional minimisation."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from scipy import optimize

from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.rounding import round_up, safe_root
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.calibration.requirement import Meter, Requirement
from mechdesign.noise.laws.families import Family
from mechdesign.solvers.deadline import Deadline, too_late

__all__ = ["cost_of", "least_noise", "scale_for"]


_HOPELESS = 30.0
"""Times the least cost, from which shapes further off are not tried."""
_STEEPEST = 690.0
"""Sensitivities per scale beyond which e^-1/scale is 0."""


def cost_of(law: Any, loss: str) -> float:
    """Variance, or E|T|."""
    noise = AdditiveNoise(law, 1.0)
    return noise.variance if loss == "squared" else noise.absolute_error


def least_noise(family: Family, requirement: Requirement, loss: str, deadline: Deadline) -> tuple[Any, bool]:
    """Return the law of `family` that meets the requirement at the least cost found, and whether the time cut the search short.

    Raises
    ------
    DesignError
        The family's privacy loss is unbounded and the requirement is pure.
    SolverError
        No scale meets the requirement.
    """
    r = requirement
    if r.delta == 0 and family.closed_form is not None:
        return _pure_law(family, family.closed_form, r, loss), False

    def make(shape: float, scale: float) -> Any:
        return family.make(shape, scale, r.query.top)

    members, cut = [], False
    if family.closed_form is not None and family.starts is not None and r.exact:
        # What is private without δ is so with it: the best of the pure laws is a member, whatever the search finds.
        members.append(_pure_law(family, family.closed_form, r, loss))
    if family.normal is not None and r.sigma is not None:
        # the Gaussian member costs nothing to know exactly, so the family is never worse
        shape, unit = family.normal
        members.append(make(shape, unit * r.sigma))
    if family.starts is not None or not members:
        try:
            law, cut = _searched(family, make, r, loss, deadline)
            members.append(law)
        except SolverError:  # there may be shapes that meet the requirement at every scale, or at none
            if not members:
                raise
    # A tiny ε has members whose variance no double holds.
    finite = [law for law in members if 0 < float(law.var()) < math.inf]
    if not finite:
        raise DesignError.of(
            "epsilon", r.epsilon, f"no {family.name} noise of finite variance was found: raise it"
        )
    return min(finite, key=lambda law: cost_of(law, loss)), cut


def _searched(
    family: Family, make: Callable[[float, float], Any], r: Requirement, loss: str, deadline: Deadline
) -> tuple[Any, bool]:
    """The best shape and scale that a search finds; half of the time is for the scale of the shape it ends at."""
    search = ShapeSearch(make, r, lambda law: cost_of(law, loss), deadline.part(0.5))
    starts = (
        (0.0,)
        if family.starts is None
        else family.starts(r.epsilon, r.delta, r.query.dimension * r.query.rounds) + r.far
    )
    shape, scale = search.best(starts)
    cut, late = search.deadline.passed, deadline.part(0.6)
    scale, _ = scale_for(lambda s: make(shape, s), r.final, r, scale, safe=True, deadline=late)
    near = make(shape, scale * (1 - 1e-3))
    if not late.passed and r.final(make(shape, scale)) < 0.99 * r.target and r.refined(near) <= r.target:
        # the grid was so coarse that part of the budget was left
        refined, _ = scale_for(lambda s: make(shape, s), r.refined, r, scale, safe=True, deadline=late)
        scale = min(scale, refined)
    return make(shape, scale), cut or late.passed


def _pure_law(family: Family, closed: Callable[..., Any], r: Requirement, loss: str) -> Any:
    """The closed form, for the worst case that takes the least: the whole of ℓ₁, or a step on every coordinate."""
    q = r.query
    epsilon = r.epsilon / q.rounds
    if q.sampling_rate < 1:
        epsilon = math.log1p(math.expm1(epsilon) / q.sampling_rate)
    if q.sampling_rate < 1 or q.rounds > 1:
        epsilon *= 1 - 1e-14
    cases = q.worst(closed(1.0, q.top, loss)).alternatives
    terms = min(cases, key=lambda terms: sum(t.sensitivity * t.count for t in terms))
    if len(terms) == 1:
        return closed(epsilon / terms[0].count, terms[0].sensitivity, loss)
    total = sum(Fraction(t.sensitivity) * t.count for t in terms)
    return closed(epsilon, round_up(total), loss)


def scale_for(
    make: Callable[[float], Any],
    meter: Meter,
    requirement: Requirement,
    guess: float,
    *,
    slope: float | None = None,
    safe: bool = False,
    deadline: Deadline,
) -> tuple[float, float]:
    """Find the scale at which the budget is spent, by secant steps on log spent against log scale.

    Parameters
    ----------
    make : callable
        scale → law, more private as the scale grows.
    meter : callable
    requirement : Requirement
    guess : float
        A starting scale.
    slope : float, optional
        d log spent / d log scale, from a neighbouring problem.
    safe : bool
        Return a scale at which the budget was seen to be kept.
    deadline : Deadline
        Past it the least scale seen to keep the budget is returned: one is looked for by growing steps where none was.

    Returns
    -------
    scale, slope : float
    """
    seen: dict[float, float] = {}

    def excess(u: float) -> float:
        # remembered: a search's meter re-plans as laws change, and a bracket must not change its signs.
        # log(spent/target) above the target, spent/target − 1 below: smooth, and bounded where δ falls to zero
        if u not in seen:
            if deadline.passed and _where(seen, False):
                raise too_late("calibrate")
            ratio = meter(make(math.exp(u))) / requirement.target
            seen[u] = math.log(ratio) if ratio > 1 else ratio - 1
        return seen[u]

    try:
        return _scale(excess, seen, requirement, guess, slope, safe)
    except SolverError:
        kept = _where(seen, False)
        if not kept or not deadline.passed:
            raise
        return math.exp(min(kept)), requirement.slope if slope is None else slope


def _scale(
    excess: Callable[[float], float],
    seen: dict[float, float],
    requirement: Requirement,
    guess: float,
    slope: float | None,
    safe: bool,
) -> tuple[float, float]:
    """The secant steps, and a bracket where they end nowhere."""
    tolerance = requirement.tolerance if safe else max(1e-5, requirement.tolerance)
    u = math.log(guess)
    f = excess(u)
    if slope is None or not slope < 0:
        slope = requirement.slope
    reach = 1.0
    for _ in range(8):
        if abs(f) < tolerance and (not safe or f <= 0):
            return math.exp(u), slope
        if f < -0.9:  # far below: the ratio says little, its logarithm how far
            f = math.log(max(1 + f, 1e-30))
        new = u + max(-reach, min(reach, -(f + (0.5 * tolerance if safe else 0.0)) / slope))
        if seen and not max(_where(seen, True), default=-math.inf) < new < min(
            _where(seen, False), default=math.inf
        ):
            break  # there is a bracket, which this step would leave
        g = excess(new)
        if new != u and (g - f) / (new - u) < -1e-3:
            before, slope = slope, (g - f) / (new - u)
            reach = min(2 * reach, 8.0) if 0.6 < slope / before < 1.7 else 1.0  # a line is followed further
        if f * g < 0 and abs(g) > 0.5 * abs(f):
            u, f = (new, g) if g < 0 else (u, f)
            break
        u, f = new, g
    # Not a smooth crossing: bracket it.
    least = math.log(requirement.query.top / _STEEPEST)
    if requirement.query.dimension == 1 and excess(least) <= 0:  # no step is too steep for this shape
        return math.exp(least), slope
    over, under = _where(seen, True), _where(seen, False)
    low = max(over) if over else _away(excess, u, -1, "every scale of this law meets")
    high = min(under) if under else _away(excess, u, 1, "the search found no scale of this law that meets")

    def left(u: float) -> float:
        f = excess(u)
        return 0.0 if abs(f) < tolerance and (f <= 0 or not safe) else f  # as near as is asked for

    return math.exp(safe_root(left, low, high, xtol=1e-7 * tolerance if safe else 1e-9)), slope


def _where(seen: dict[float, float], over: bool) -> list[float]:
    """Where the budget was seen to be exceeded, or kept."""
    return [u for u, f in seen.items() if (f > 0) == over]


def _away(excess: Callable[[float], float], u: float, sign: int, fault: str) -> float:
    """Step up until the excess is not positive, or down until it is."""
    width = 0.02
    while (excess(u) > 0) == (sign > 0):
        u, width = u + sign * width, 2.5 * width
        if width > 200:
            raise SolverError(f"{fault} the requirement", solver="calibrate", status="unbounded")
    return u


class _Late(Exception):
    """No second shape is tried past the deadline."""


@dataclass
class ShapeSearch:
    """Minimises the cost over the shape, the scale following from the budget."""

    make: Callable[[float, float], Any]
    requirement: Requirement
    cost: Callable[[Any], float]
    deadline: Deadline
    known: dict[float, tuple[float, float]] = field(default_factory=dict)
    """Cost and scale of the shapes tried."""
    spread: float = 0.0
    slope: float | None = None

    def __post_init__(self) -> None:
        self.meter = self.requirement.meter()

    def best(self, starts: tuple[float, ...]) -> tuple[float, float]:
        """Try the starts in order, each scale beginning where the last ended; then Brent between the best's neighbours.

        Returns
        -------
        shape, scale : float
        """
        with suppress(_Late):
            for start in starts:
                if self.value(start) > _HOPELESS * min(cost for cost, _ in self.known.values()):
                    break  # shapes that follow are worse still
        shapes = sorted(self.known)
        i = min(range(len(shapes)), key=lambda j: self.known[shapes[j]][0])
        self.spread = float(self.make(shapes[i], self.known[shapes[i]][1]).std())
        if len(shapes) > 1:
            # shapes range over decades: log(1 + shape) is the natural variable
            low, high = (math.log1p(shapes[min(max(j, 0), len(shapes) - 1)]) for j in (i - 1, i + 1))
            with suppress(_Late):  # then the best shape until now
                optimize.minimize_scalar(
                    lambda u: self.value(math.expm1(u)),
                    bounds=(low, high),
                    method="bounded",
                    options={"xatol": 2e-4 * (high - low), "maxiter": 14},
                )
        shape = min(self.known, key=lambda s: self.known[s][0])
        return shape, self.known[shape][1]

    def value(self, shape: float) -> float:
        """Cost of the law of this shape that spends the budget.

        Raises
        ------
        _Late
            The time is over, and a shape is known.
        """
        shape = float(shape)
        if self.deadline.passed and self.known:
            raise _Late
        guess = self.requirement.guess
        if self.spread > 0:
            # keep the standard deviation: neighbouring shapes need nearly the same
            ratio = self.spread / float(self.make(shape, guess).std())
            guess = guess * ratio if 1e-3 < ratio < 1e3 else guess
        elif not math.isfinite(self.meter(self.make(shape, guess))):
            raise DesignError.of(
                "noise", self.make(shape, guess).dist.name, "has unbounded privacy loss: it needs delta > 0"
            )
        scale, self.slope = scale_for(
            lambda s: self.make(shape, s),
            self.meter,
            self.requirement,
            guess,
            slope=self.slope,
            deadline=self.deadline,
        )
        law = self.make(shape, scale)
        self.spread = float(law.std())
        self.known[shape] = self.cost(law), scale
        return self.known[shape][0]

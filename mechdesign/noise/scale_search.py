"""The numerical search behind `calibrate`: scale by root finding, shape by one-dimensional minimisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from scipy import optimize

from mechdesign.accounting.composition import composed_delta
from mechdesign.accounting.interval import GridPlan, plan_grid
from mechdesign.accounting.loss import loss_of
from mechdesign.accounting.profile import privacy_profile
from mechdesign.accounting.terms import NoiseTerm
from mechdesign.errors import SolverError

__all__ = ["Evaluator", "ExactDelta", "cost_of", "least_cost", "scale_for"]

Evaluator = Callable[[Any], float]
"""A law's δ at the wanted ε, from above."""


class ExactDelta:
    """Upper bound on δ at a fixed ε, cheap enough for a search.

    In one dimension the exact profile. In several, one gridded upper bound; its step, tails and tilt come from
    a full plan made once and again only when the law has changed by more than a few percent.
    """

    def __init__(self, epsilon: float, sensitivity: float, dimension: int) -> None:
        self._epsilon, self._sensitivity, self._dimension = epsilon, sensitivity, dimension
        self._plan: GridPlan | None = None
        self._planned_at = 0.0
        self._theta = 0.0

    def __call__(self, law: Any) -> float:
        if self._dimension == 1:
            return float(privacy_profile(law, self._sensitivity, self._epsilon))
        spread = float(law.std())
        if self._plan is None or abs(spread / self._planned_at - 1) > 0.2:
            term = NoiseTerm(law, self._sensitivity, self._dimension)
            self._plan = plan_grid((term,), self._epsilon, 0.01)
            self._planned_at, self._theta = spread, self._plan.theta
        losses = ((loss_of(law, self._sensitivity), self._dimension),)
        plan = GridPlan(losses, self._plan.step, self._theta, self._plan.upper_tail, self._plan.lower_tail)
        parts = plan.parts(plan.align(plan.step), pessimistic=True)
        value, tilt = composed_delta(parts, self._epsilon, guess=self._theta)
        self._theta = tilt.theta
        return value


def cost_of(law: Any, loss: str) -> float:
    """Variance, or E|T|."""
    if loss == "squared":
        return float(law.var())
    from mechdesign.noise.additive import AdditiveNoise

    return AdditiveNoise(law, 1.0).absolute_error


def scale_for(
    make: Callable[[float], Any],
    evaluate: Evaluator,
    delta: float,
    guess: float,
    *,
    slope: float | None = None,
    safe: bool = False,
) -> tuple[float, float]:
    """Find the scale at which δ equals `delta`, by secant steps on log δ against log scale.

    Parameters
    ----------
    make : callable
        scale → law, more private as the scale grows.
    evaluate : callable
    delta : float
    guess : float
        A starting scale.
    slope : float, optional
        d log δ / d log scale, from a neighbouring problem.
    safe : bool
        Return a scale at which δ ≤ `delta` was evaluated.

    Returns
    -------
    scale, slope : float
    """

    seen: dict[float, float] = {}

    def excess(u: float) -> float:
        # remembered: a search's evaluator re-plans as laws change, and a bracket must not change its signs
        if u not in seen:
            seen[u] = fresh(u)
        return seen[u]

    def fresh(u: float) -> float:
        # log(δ/target) above the target, δ/target − 1 below: smooth, and bounded where δ falls to zero
        ratio = evaluate(make(math.exp(u))) / delta
        return math.log(ratio) if ratio > 1 else ratio - 1

    tolerance = 1e-9 if safe else 1e-5
    u = math.log(guess)
    f = excess(u)
    if slope is None or not slope < 0:
        slope = -2.0 * max(abs(math.log(delta)), 1.0)
    for _ in range(6):
        if abs(f) < tolerance and (not safe or f <= 0):
            return math.exp(u), slope
        new = u + max(-1.0, min(1.0, -(f + (0.5 * tolerance if safe else 0.0)) / slope))
        g = excess(new)
        if new != u and (g - f) / (new - u) < -1e-3:
            slope = (g - f) / (new - u)
        if f * g < 0 and abs(g) > 0.5 * abs(f):
            u, f = (new, g) if g < 0 else (u, f)
            break
        u, f = new, g
    # Not a smooth crossing: bracket it and use TOMS 748.
    width = 0.02
    low = high = u
    while excess(low) <= 0:
        low, width = low - width, 2.5 * width
        if width > 200:
            raise SolverError(
                "every scale of this law meets the wanted δ", solver="calibrate", status="unbounded"
            )
    width = 0.02
    while excess(high) > 0:
        high, width = high + width, 2.5 * width
        if width > 200:
            raise SolverError(
                "no scale of this law reaches the wanted δ", solver="calibrate", status="unbounded"
            )
    root = float(optimize.toms748(excess, low, high, xtol=1e-14 if safe else 1e-9, rtol=1e-14))
    if safe:
        step = 1e-14 * (1 + abs(root))
        while excess(root) > 0:
            root, step = root + step, 2 * step
    return math.exp(root), slope


def least_cost(
    make: Callable[[float, float], Any],
    starts: Sequence[float],
    evaluate: Evaluator,
    delta: float,
    guess: float,
    cost: Callable[[Any], float],
) -> tuple[float, float]:
    """Minimise the cost over the shape, the scale following from δ.

    The starts are tried in order, each scale beginning where the last ended; Brent's method then refines between
    the neighbours of the best.

    Returns
    -------
    shape, scale : float
    """
    state = {"spread": 0.0, "slope": math.nan}
    known: dict[float, tuple[float, float]] = {}

    def value(shape: float) -> float:
        shape = float(shape)
        first = guess
        if state["spread"] > 0:
            # keep the standard deviation: neighbouring shapes need nearly the same
            first = guess * state["spread"] / float(make(shape, guess).std()) if guess > 0 else guess
            first = first if math.isfinite(first) and 1e-3 < first / guess < 1e3 else guess
        slope = state["slope"] if math.isfinite(state["slope"]) else None
        scale, slope = scale_for(lambda s: make(shape, s), evaluate, delta, first, slope=slope)
        law = make(shape, scale)
        state["spread"], state["slope"] = float(law.std()), slope
        known[shape] = (cost(law), scale)
        return known[shape][0]

    for start in starts:
        value(start)
    shapes = sorted(known)
    i = min(range(len(shapes)), key=lambda j: known[shapes[j]][0])
    state["spread"] = float(make(shapes[i], known[shapes[i]][1]).std())
    # shapes range over decades: log(1 + shape) is the natural variable
    low, high = math.log1p(shapes[max(i - 1, 0)]), math.log1p(shapes[min(i + 1, len(shapes) - 1)])
    optimize.minimize_scalar(
        lambda u: value(math.expm1(u)),
        bounds=(low, high),
        method="bounded",
        options={"xatol": 2e-4 * (high - low), "maxiter": 14},
    )
    shape = min(known, key=lambda s: known[s][0])
    return shape, known[shape][1]

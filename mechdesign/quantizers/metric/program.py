r"""The linear program over rows at knots, and the one that bounds every mechanism.

On a grid they are the same. On the continuum the rows of the first are interpolated and neighbours are within 1 + εh; for
the bound of the worst case the second keeps finitely many inputs, for that of the expected loss the means on cells
(`cells`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np

from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import MetricDP, PureDP
from mechdesign.quantizers.metric.cells import cell_model
from mechdesign.quantizers.metric.notion import STEEP, Pairs, PairwisePrivacy
from mechdesign.quantizers.optimal.model import hat_costs
from mechdesign.solvers import Model
from mechdesign.typing import Array

__all__ = ["about_zero", "bounding_program", "hats", "row_model", "set_budget"]

_OUTWARD = 1e-14  # covers the rounding of the program's ratios
_MOST = 257  # inputs, or ends of cells, of a bounding program


def row_model(
    bins: Array,
    knots: Array,
    notion: PairwisePrivacy | None,
    prior: Prior,
    loss: Loss,
    objective: str,
    *,
    pairs: Pairs | None = None,
    places: Array | None = None,
    relaxed: bool = False,
) -> Model:
    """Declare the program: families "privacy", "normalisation", "unbiased", "slack" (approximate privacy), "worst case".

    The parameters "ratio" and "delta" are the budget; without a notion there are neither they nor their rows. The worst case is
    over the knots, and over `places` between them, where rows are interpolated. Of `pairs`, those given alone are compared. Relaxed, ratios that doubles do not hold ask for
    nothing.
    """
    grid, (bins, knots, prior) = knots, about_zero(bins, knots, prior)
    # Bounds that follow from the rows keep a solver whose tolerance large ratios defeat from calling the program unbounded.
    P = cp.Variable((len(knots), len(bins)), bounds=[0, 1], name="P")
    variables: dict[str, cp.Variable] = {"P": P}
    parameters: dict[str, cp.Parameter] = {}
    families: dict[str, Any] = {"normalisation": cp.sum(P, axis=1) == 1, "unbiased": P @ bins == knots}
    if notion is not None:
        more, private, parameters = _privacy(P, notion, grid, pairs, relaxed)
        variables |= more
        families |= private
    if objective == "worst":
        between = np.zeros(0) if places is None else places
        costs = loss(bins - np.concatenate([knots, between - (grid[0] / 2 + grid[-1] / 2)])[:, None])
        z = variables["worst"] = cp.Variable(name="worst", bounds=[costs.min(), costs.max()])
        rows = cp.vstack([P, hats(grid, between) @ P]) if len(between) else P
        families["worst case"] = z >= cp.sum(cp.multiply(costs, rows), axis=1)
        target: Any = z
    else:
        costs, constant = hat_costs(bins, knots, prior, loss)
        target = cp.sum(cp.multiply(costs, P)) + constant
    constraints = [c for f in families.values() for c in (f if isinstance(f, list) else [f])]
    return Model(cp.Problem(cp.Minimize(target), constraints), variables, families, parameters)


def _privacy(
    P: cp.Variable, notion: PairwisePrivacy, knots: Array, pairs: Pairs | None, relaxed: bool
) -> tuple[dict[str, cp.Variable], dict[str, Any], dict[str, cp.Parameter]]:
    """Variables, families and parameters of the rows of privacy."""
    K, m = P.shape
    if isinstance(notion.privacy, PureDP):
        a = cp.Variable((1, m), bounds=[0, 1], name="a")
        ratio = cp.Parameter(name="ratio", value=notion.ratios(knots, notion.first_pairs(2))[0])
        rows = [np.ones((K, 1)) @ a <= P, np.ones((K, 1)) @ (ratio * a) >= P]
        return {"a": a}, {"privacy": rows}, {"ratio": ratio}
    pairs = notion.pairs(K) if pairs is None else pairs
    k, l = pairs
    ratio = cp.Parameter((len(k), 1), name="ratio", value=notion.ratios(knots, pairs)[:, None])
    excess = P[k] - cp.multiply(ratio @ np.ones((1, m)), P[l])
    if not notion.delta:
        free = (notion.powers(knots, pairs) > STEEP) & relaxed & ~np.array(notion.continuum)
        allowed = free[:, None] * np.ones((1, m)) if free.any() else 0  # probabilities are at most 1
        return {}, {"privacy": excess <= allowed}, {"ratio": ratio}
    S = cp.Variable((len(k), m), bounds=[0, 1], name="S")
    delta = cp.Parameter(name="delta", value=notion.delta)
    families = {"privacy": excess <= S, "slack": cp.sum(S, axis=1) <= delta}
    return {"S": S}, families, {"ratio": ratio, "delta": delta}


def about_zero(bins: Array, knots: Array, prior: Prior) -> tuple[Array, Array, Prior]:
    """Outputs, inputs and prior moved to inputs around zero, where moments and means keep their digits."""
    centre = float(knots[0] / 2 + knots[-1] / 2)
    if centre == 0:
        return bins, knots, prior
    return bins - centre, knots - centre, prior.standardised(centre, 1.0)


def set_budget(
    model: Model,
    notion: PairwisePrivacy,
    knots: Array,
    epsilon: float,
    pairs: Pairs | None = None,
    outward: float = 0.0,
) -> None:
    """Put an ε into the model, smaller than the notion's, or its own rounded outward."""
    shrink = 1 - epsilon / notion.privacy.epsilon
    target = model.parameters["ratio"]
    if pairs is None:
        pairs = notion.pairs(len(knots)) if target.ndim else notion.first_pairs(2)
    ratio = notion.ratios(knots, pairs, shrink) * (1 + outward)
    target.value = ratio[:, None] if target.ndim else ratio[0]
    if "delta" in model.parameters:
        model.parameters["delta"].value = notion.delta * (1 - shrink) * (1 + outward)


def bounding_program(
    bins: Array,
    knots: Array,
    notion: PairwisePrivacy | None,
    prior: Prior,
    loss: Loss,
    objective: str,
    pairs: Pairs | None = None,
    places: Array | None = None,
) -> Model:
    """Declare a program that no mechanism beats.

    Its inputs are the knots of a grid; on the continuum some inputs of the range, or cells of it. Without a notion, and where
    doubles do not hold the one ratio of all pairs: what no mechanism on a grid beats that is right on average.
    """
    lower, upper = float(knots[0]), float(knots[-1])
    if notion is not None and notion.continuum and objective == "mean":
        cells = min(len(knots) - 1, _MOST - 1)
        bins, knots, prior = about_zero(bins, knots, prior)
        lower, upper = float(knots[0]), float(knots[-1])
        return cell_model(bins, notion.privacy.epsilon, prior, loss, (lower, upper), cells)
    if notion is not None and notion.continuum:
        notion, knots = replace(notion, continuum=False), np.linspace(lower, upper, min(len(knots), _MOST))
    if notion is not None and not isinstance(notion.privacy, MetricDP) and notion.steep(knots):
        notion = None  # a program with lowered ratios would not bound all mechanisms
    model = row_model(bins, knots, notion, prior, loss, objective, pairs=pairs, places=places, relaxed=True)
    if notion is not None:
        set_budget(model, notion, knots, notion.privacy.epsilon, pairs, _OUTWARD)
    return model


def hats(knots: Array, x: Array) -> Array:
    """Weights of the knots in the interpolated rows at x, shape (len(x), len(knots))."""
    at = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    t = (x - knots[at]) / (knots[at + 1] - knots[at])
    out = np.zeros((len(x), len(knots)))
    out[np.arange(len(x)), at] = 1 - t
    out[np.arange(len(x)), at + 1] += t
    return out

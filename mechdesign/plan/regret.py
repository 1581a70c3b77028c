r"""Budgets of choices beside noise, by the regret that they are expected to have at public scores.

Choices of budgets :math:`b_c` leave :math:`B - \sum_c b_c` of the budget for noise, of value V. The budgets minimise

.. math:: V\bigl(B - \textstyle\sum_c b_c\bigr) + \sum_c w_c R_c(b_c),

:math:`R_c` the expected regret at the given scores. V and R fall smoothly, and are read off at some budgets and between them. R of many candidates is first
concave: so each budget in turn is looked for over all of its range, until none moves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import interpolate, special

from mechdesign.choice.budget import Choosing
from mechdesign.errors import DataError, DesignError, instance
from mechdesign.plan.mechanism import currency_of, stated_part
from mechdesign.problem.checks import positive
from mechdesign.problem.privacy import PureDP, ZeroConcentratedDP
from mechdesign.solvers.deadline import progress_bar
from mechdesign.typing import Array

_SHARES = special.expit(np.linspace(-7, 7, 29))
"""Of a budget, at which V and R are computed."""
_TRIED = special.expit(np.linspace(-7, 7, 2801))
"""Of what the others leave, that a choice may take."""


def priced(plan: Any, weights: dict[str, float], profiles: Mapping[str, tuple[float, Any]]) -> Any:
    """The plan with budgets of choices by their weights and scores, and the weights of the others: see `Plan.priced`."""
    asked = {name: _asked(plan, name, pair) for name, pair in instance("profiles", profiles, Mapping).items()}
    currency, others = currency_of(plan.privacy), {k: c for k, c in plan.chosen.items() if k not in asked}
    total = (
        float(getattr(plan.privacy, currency) - stated_part(others, plan.privacy, plan.rounds)) / plan.rounds
    )
    if not total > 0:
        raise DesignError.of("privacy", plan.privacy, "must be more than the other choices state")
    if not asked:
        return plan

    def value(budget: float) -> float:
        left = replace(plan.privacy, **{currency: budget * plan.rounds})
        alone = replace(plan, privacy=left, weights=weights, chosen={}, budget=None)
        return float(alone.solve(certify=False, gap=0.99, progress=False).value)

    with progress_bar("budgets of choices", len(_SHARES) * (1 + len(asked))) as step:
        noise = _between(value, total, step)
        regrets = {name: _between(regret, total, step) for name, regret in asked.items()}
    budgets = dict.fromkeys(asked, total / (1 + len(asked)))
    for _ in range(20):
        before = dict(budgets)
        for name, regret in regrets.items():
            room = total - math.fsum(b for other, b in budgets.items() if other != name)
            budgets[name] = room * float(
                _TRIED[np.argmin(noise(room * (1 - _TRIED)) + regret(room * _TRIED))]
            )
        if budgets == before:
            break
    chosen = {name: _at(plan.chosen[name], float(f"{b:.3g}")) for name, b in budgets.items()}
    return replace(plan, chosen={**plan.chosen, **chosen}, weights=weights)


def _asked(plan: Any, name: str, pair: Any) -> Callable[[float], float]:
    """Weighted expected regret of a choice, by its budget."""
    where = f"profiles[{name!r}]"
    design = plan.chosen.get(name)
    if design is None or design.choose > 1:
        raise DesignError.of("profiles", name, "must be for choices of one among the plan's tasks")
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DesignError.of(where, type(pair).__name__, "must be a weight and public scores")
    weight = positive(where, pair[0])

    def regret(budget: float) -> float:
        law: Any = next(iter(_at(design, budget).closed_forms()))
        return weight * float(law.mechanism.regret(pair[1]))

    try:
        regret(1.0)
    except DataError as error:  # the scores are public
        raise DesignError(f"{where}: {error}") from None
    return regret


def _at(design: Any, budget: float) -> Choosing:
    """The choice, stating this budget."""
    kind = ZeroConcentratedDP if isinstance(design.privacy, ZeroConcentratedDP) else PureDP
    found: Choosing = replace(design, privacy=kind(budget))
    return found


def _between(
    of: Callable[[float], float], total: float, step: Callable[..., None]
) -> Callable[[Array], Array]:
    """A positive falling function of the budget, at shares of it and between them by its logarithm."""
    found = []
    for share in _SHARES:
        found.append(math.log(max(of(float(share) * total), 1e-300)))
        step()
    held = interpolate.PchipInterpolator(np.log(_SHARES * total), found)
    return lambda budgets: np.asarray(np.exp(held(np.log(budgets))))

r"""Noise and scales of least weighted error under one budget.

*Budgets that add* (pure ε, ρ, and μ² of normal noise) have one price λ for each group: every part takes the item and scale of least
:math:`w e(s) + \lambda D(s)`, and λ is where the budget is used up. For any λ ≥ 0, :math:`\sum \min(w e + \lambda D) - \lambda B` is
a lower bound of all plans of the menu (Lagrangian duality). Where items change at λ both choices are filled up; a mixture of
two is no way out, as it is only as private as the worse one.

*(ε, δ)* is kept by the composition of all losses. At the tilt θ at which the composed loss has mean ε, δ moves with a part as its
:math:`D_{1 + \theta}` does, about: so parts are priced by that order, and λ is where the composed δ is the budget.

*Groups* of tasks over disjoint people have a price each, and tasks of everybody's pay all of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property

import numpy as np
from scipy import optimize, stats

from mechdesign.accounting.composition import find_tilt
from mechdesign.accounting.interval import DeltaInterval, delta_interval
from mechdesign.accounting.least_kept import least_kept
from mechdesign.accounting.losses import NoiseTerm, in_sigmas, is_gaussian, of_scipy
from mechdesign.accounting.planning import plan_grid
from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.exact import round_up
from mechdesign.noise.vector_noise import delta_at
from mechdesign.plan.menu import Item
from mechdesign.problem.law_moments import frozen_parts
from mechdesign.problem.privacy import ApproximateDP
from mechdesign.solvers.deadline import Deadline, progress_bar, too_late
from mechdesign.typing import Array

Choice = tuple[Item, float]
"""An item and its scale."""
_POINTS = 2**19
"""Of the grid, at most, about."""
WIDTH = 1e-3
"""Of the intervals of δ."""
_NONE = 1e-9
"""Share of δ that counts as none: a root is looked for between this and 1."""
_FAR = 1e-3
"""Share of the budget δ below which a search need not know δ."""
_LIKE = 1e-12
"""Relative difference of errors and changes that count as equal."""
_FARTHEST = 700.0
"""Of logarithms, whose exponentials are doubles."""


@dataclass(frozen=True, eq=False)
class Search:
    """Slots of a plan, each with items to choose from.

    Parameters
    ----------
    slots : sequence of sequences of Item
    chains : sequence of sequences of int
        The slots that one person is in.
    budget : float
        Of D; where `privacy` is given it is ε.
    privacy : ApproximateDP, optional
        δ > 0, kept by composition.
    spare : bool
        Whether there are other choices, so that prices need not be found after the deadline.
    """

    slots: Sequence[Sequence[Item]]
    chains: Sequence[Sequence[int]]
    budget: float
    privacy: ApproximateDP | None = None
    spare: bool = False

    @cached_property
    def alike(self) -> list[int]:
        """The first slot that loses as much at the same error, but for its unit, of each slot: at one price they choose alike."""
        same: dict[int, int] = {}
        near: dict[tuple[object, ...], list[tuple[int, list[float]]]] = {}
        for k, items in enumerate(self.slots):
            if id(items) not in same:
                known, figures = zip(*(item.figures for item in items))
                own, others = [v for numbers in figures for v in numbers], near.setdefault(known, [])
                like = (first for first, held in others if np.allclose(held, own, rtol=_LIKE, atol=0))
                same[id(items)] = next(like, k)
                others.append((same[id(items)], own))
        return [same[id(items)] for items in self.slots]

    # -- what choices consume ----------------------------------------------------------------------------

    def over(self, chosen: Sequence[Choice], chain: Sequence[int], order: float) -> float:
        """Logarithm of what a chain consumes over the budget."""
        if self.privacy is None:
            return math.log(spent([chosen[k] for k in chain], order) / self.budget)
        delta = composed([chosen[k] for k in chain], self.privacy)
        return math.log(max(delta / self.privacy.delta, _NONE))

    def cost(self, chosen: Sequence[Choice]) -> float:
        """Weighted squared error."""
        return math.fsum(item.cost(scale) for item, scale in chosen)

    def pure(self, chosen: Sequence[Choice]) -> bool:
        """Whether no loss is above ε, but for rounding."""
        most = max(spent([chosen[k] for k in chain], math.inf) for chain in self.chains)
        return self.privacy is not None and most <= self.budget * (1 + 1e-12)

    # -- prices ------------------------------------------------------------------------------------------

    def at(self, chain_prices: Array, order: float) -> tuple[list[Choice], float]:
        """What each slot takes at these prices, and the sum of what it pays in all."""
        prices = np.zeros(len(self.slots))
        for price, chain in zip(chain_prices, self.chains):
            prices[list(chain)] += price

        @cache
        def cheapest(k: int, price: float) -> tuple[float, int, float]:
            paid = []
            for j, item in enumerate(self.slots[k]):
                scale = item.best(price, order)
                paid.append((item.cost(scale) + price * item.consumed(scale, order), j, scale / item.unit))
            return min(paid)

        found = [cheapest(self.alike[k], price) for k, price in enumerate(prices.tolist())]
        chosen = [(items[j], scale * items[j].unit) for items, (_, j, scale) in zip(self.slots, found)]
        return chosen, math.fsum(least for least, _, _ in found)

    def settled(
        self, order: float, xtol: float = 1e-14, deadline: Deadline | None = None
    ) -> tuple[list[Choice], Array]:
        """The prices at which every chain uses up its budget, and what is chosen there; never over the budget but for rounding. Past the deadline prices are higher."""
        start = 2 * sum(items[0].cost(items[0].best(1.0, order)) for items in self.slots) / self.budget
        prices = np.full(len(self.chains), start)
        for _ in range(1 if len(self.chains) == 1 else 4 if self.privacy else 30):
            before = prices.copy()
            for g, chain in enumerate(self.chains):
                prices[g] = self._root(prices, g, chain, order, xtol, deadline)
            if np.allclose(np.log(prices), np.log(before), rtol=0, atol=max(xtol, 1e-13)):
                break
        return self.at(prices, order)[0], prices

    def _root(
        self,
        prices: Array,
        g: int,
        chain: Sequence[int],
        order: float,
        xtol: float,
        deadline: Deadline | None,
    ) -> float:
        def over(log_price: float) -> float:
            if self.spare and deadline is not None and deadline.passed:
                raise too_late("prices")
            tried = prices.copy()
            tried[g] = math.exp(log_price)
            return self.over(self.at(tried, order)[0], chain, order)

        return math.exp(root(over, math.log(prices[g]), 0.02, xtol, deadline))

    def only(self, chosen: Sequence[Choice]) -> Search:
        """The same with the items of these choices."""
        kept = {id(item): [item] for item, _ in chosen}
        return replace(self, slots=[kept[id(item)] for item, _ in chosen])

    # -- budgets that add --------------------------------------------------------------------------------

    def separable(self, order: float) -> tuple[list[Choice], Array]:
        """The best choices found, and the prices that bound all others from below."""
        chosen, prices = self.settled(order)
        above = self.at(prices * (1 - 1e-9), order)[0]  # on the other side of a change of items
        found = [self.only(c).settled(order)[0] for c in {items_of(c): c for c in (chosen, above)}.values()]
        return min(found, key=self.cost), prices

    def bound(self, prices: Array, order: float) -> float:
        """What no choices that keep the budget cost less than, at these prices or at none; in doubles."""
        free = math.fsum(min(item.cost(item.least) for item in items) for items in self.slots)
        return max(free, self.at(prices, order)[1] - self.budget * float(prices.sum()))

    # -- (ε, δ) ------------------------------------------------------------------------------------------

    def composable(self, deadline: Deadline) -> list[list[Choice]]:
        """Candidates, each nearly keeping (ε, δ): all of them before the deadline, else one at least."""
        assert self.privacy is not None
        found: list[list[Choice]] = []
        start = 1 - 2 * math.log(self.privacy.delta) / self.budget  # of normal noise, about
        with progress_bar("choices of noise", 3) as step:
            for normal in (True, False, None):
                kept = {id(items): [i for i in items if normal in (i.normal, None)] for items in self.slots}
                slots = [kept[id(items)] for items in self.slots]
                if not all(slots) or (found and deadline.passed):
                    continue
                if normal is False:
                    found.append(replace(self, slots=slots, privacy=None).separable(math.inf)[0])
                searched = replace(self, slots=slots, spare=bool(found))
                with suppress(SolverError):
                    found.append(searched.settled(start, 1e-9 if normal else WIDTH, deadline)[0])
                step()
        best = min(found, key=self.cost)
        if len(self.chains) == 1 and not self.pure(best) and not deadline.passed:
            with suppress(SolverError):
                searched = replace(self, spare=True)
                found.append(searched.settled(1 + self.tilt(best), WIDTH, deadline)[0])
        return found

    def tilt(self, chosen: Sequence[Choice]) -> float:
        """θ at which the losses of the first chain, tilted by e^{θL}, have mean ε: where Chernoff's bound is least."""
        taken = [chosen[k] for k in self.chains[0]]

        def exponent(log_theta: float) -> float:
            theta = math.exp(log_theta)
            return theta * (spent(taken, 1 + theta) - self.budget)

        found = optimize.minimize_scalar(
            exponent, bounds=(-8.0, 8.0), method="bounded", options={"xatol": 1e-3}
        )
        return math.exp(float(found.x))


def tally(chosen: Sequence[Choice]) -> list[tuple[Item, float, int]]:
    """Different choices, and how often each is made."""
    copies = Counter((id(item), scale) for item, scale in chosen)
    known = {(id(item), scale): item for item, scale in chosen}
    return [(known[key], key[1], count) for key, count in copies.items()]


def spent(chosen: Sequence[Choice], order: float) -> float:
    """D of this order, of all choices."""
    return math.fsum(count * item.consumed(scale, order) for item, scale, count in tally(chosen))


def items_of(chosen: Sequence[Choice]) -> tuple[int, ...]:
    """Which items, to compare choices by."""
    return tuple(id(item) for item, _ in chosen)


def upper_bound(terms: list[NoiseTerm], privacy: ApproximateDP, width: float) -> float:
    """Bound δ(ε) from above on a grid of about `_POINTS` points at most, however many losses are composed.

    Where Chernoff's bound shows δ to be below `_FAR` of the budget, that share is returned, and nothing is convolved.
    """
    plan = plan_grid(tuple(terms), privacy.epsilon, width)
    widest = max(grid.step * grid.mass.size for grid, _ in plan.coarse)
    spread = math.sqrt(find_tilt(plan.coarse, privacy.epsilon, guess=plan.theta).variance)
    if spread == math.inf:
        raise OverflowError(spread)
    step = plan.align(max(plan.step / 2, max(widest, 20 * spread) / _POINTS))
    return plan.delta(privacy.epsilon, step, pessimistic=True, enough=_FAR * privacy.delta)


def together(terms: Sequence[NoiseTerm], privacy: ApproximateDP, width: float) -> DeltaInterval:
    """δ of the composition at ε, from above: of all normal noise as of one number."""
    found, square = [], Fraction(0)
    for term in terms:
        if is_gaussian(term.law):
            count, v, s, h = in_sigmas(term)
            square += count * Fraction(v) ** 2 * h / Fraction(s) ** 2
        elif of_scipy(term.law.dist) == "laplace":
            ratio = term.sensitivity / frozen_parts(term.law)[3]
            found.append(NoiseTerm(stats.laplace(), math.nextafter(ratio, math.inf), term.count))
        else:
            found.append(term)
    if square:
        normal = NoiseTerm(stats.norm(), math.sqrt(round_up(square)) * (1 + 4e-16), 1)
        if not found:
            return delta_interval([normal], privacy.epsilon)
        found.append(normal)
    elif all(of_scipy(term.law.dist) == "laplace" for term in found):
        return DeltaInterval(0.0, delta_at(tuple(found), 0.0, privacy.epsilon, privacy.delta)[0])
    return DeltaInterval(0.0, upper_bound(found, privacy, width))


def composed(chosen: Sequence[Choice], privacy: ApproximateDP) -> float:
    """δ of the composition at ε, from above; discrete normal noise as if it were normal."""
    if spent(chosen, math.inf) <= privacy.epsilon:
        return 0.0
    terms, normal = [], [0.0]
    for item, scale, copies in tally(chosen):
        if item.normal:
            normal.append(math.sqrt(copies) * item.moved / scale)
        else:
            terms += [NoiseTerm(item.law(scale), v, count * copies) for v, count in item.shifts]
    if any(normal):
        terms.append(NoiseTerm(stats.norm(), math.hypot(*normal), 1))
    return together(terms, privacy, WIDTH).upper


def root(
    over: Callable[[float], float], at: float, step: float, xtol: float, deadline: Deadline | None = None
) -> float:
    """Where a falling function of a logarithm is 0, on the side where it is not above, or as far as doubles go; looked for in growing steps."""
    ends = {"least": -_FARTHEST, "most": _FARTHEST}
    found = least_kept(over, at, step=step, growth=3.0, **ends, xtol=xtol, deadline=deadline)
    if found >= _FARTHEST:
        asked = "ask for noise or a budget that doubles do not hold: choose other units, or another budget"
        raise DesignError(f"privacy, tasks: {asked}")
    return found

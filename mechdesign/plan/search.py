r"""Noise and scales of least weighted error under one budget.

*Budgets that add* (pure ε, ρ, and μ² of normal noise) have one price λ for each group: every part takes the item and scale of least
:math:`w e(s) + \lambda D(s)`, and λ exhausts the budget. For any λ ≥ 0, :math:`\sum \min(w e + \lambda D) - \lambda B` is
a lower bound for all plans of the menu (Lagrangian duality). If items change at λ, both choices are scaled to exhaust the budget; a mixture of
two does not help, as it is only as private as the worse one.

*(ε, δ)* is met by the composition of all losses. At the tilt θ at which the composed loss has mean ε, δ depends on a part approximately as its
:math:`D_{1 + \theta}` does: so parts are priced by that order, and λ makes the composed δ equal to the budget.

*Groups* of tasks over disjoint people have a price each, and tasks outside all groups pay all of them.

**The menu.** The consumption of an item at scale s is stated by Rényi divergences :math:`D_\alpha(s)` of order α, which add up over the parts and rounds of a plan:
α = ∞ gives the largest privacy loss; for normal noise, the only one with ρ, D is αρ.
At a price λ of the budget a part takes the item and the scale of least error plus λD. Whole numbers take whole noise, whose losses are discrete.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy import optimize, stats

from mechdesign.accounting.interval import upper_delta
from mechdesign.accounting.losses import NoiseTerm
from mechdesign.checks import frozen_parts
from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.exact import least_kept
from mechdesign.noise.additive import AdditiveNoise, worst_cases
from mechdesign.noise.families import FAMILIES as LAWS
from mechdesign.noise.families import LEAST_GAUSSIAN, LEAST_LAPLACE
from mechdesign.noise.laws import staircase_gamma
from mechdesign.plan.tasks import Part
from mechdesign.problem.privacy import ApproximateDP
from mechdesign.solvers.deadline import Deadline, progress_bar
from mechdesign.typing import Array, FrozenLaw

FAMILIES = ("laplace", "gaussian", "staircase")
_MOST = 1e150
"""Largest scale: its square is a double."""


def _stair_variance(s: float, top: float) -> float:
    b = math.exp(-top / s)
    near = top / -math.expm1(-top / s)  # s for steps much larger than the shift
    return float(near * near * ((b * (1 + b) / 2) ** (2 / 3) + b))


def _discrete_laplace_variance(s: float, top: float) -> float:
    near = 1 / math.sinh(0.5 / s)
    return 0.5 * near * near


def _whole_variance(s: float, top: float) -> float:
    if s > 3:
        return s * s
    k = np.arange(1, 60)
    weights = np.exp(-((k / s) ** 2) / 2)
    return float(2 * (k * k) @ weights / (1 + 2 * weights.sum()))


VARIANCES: dict[str, Callable[[float, float], float]] = {
    "laplace": lambda s, top: 2 * s * s,
    "gaussian": lambda s, top: s * s,
    "staircase": _stair_variance,
    "discrete_laplace": _discrete_laplace_variance,
    "discrete_gaussian": _whole_variance,
}
"""Variances by scale, for shifts of at most `top`."""


def _divergence(r: float, order: float) -> float:
    """Return D of Laplace noise moved by r scales, approximately also that of a staircase and of whole noise."""
    theta = order - 1
    if order * r < 1e-5:
        return order * r * r / 2
    rest = theta * math.exp(-(2 * theta + 1) * r)
    return r + math.log((theta + 1 + rest) / (2 * theta + 1)) / theta


@dataclass(frozen=True, eq=False)
class Item:
    """One family of noise on one part.

    Parameters
    ----------
    part : Part
    family : str
        One of `FAMILIES`; for whole numbers the discrete law is used.
    weight : float
        Weight of the task's squared error.
    rounds : int
    """

    part: Part
    family: str
    weight: float
    rounds: int

    @property
    def name(self) -> str:
        """Name of the law in `mechdesign.noise.families`."""
        return f"discrete_{self.family}" if self.part.whole else self.family

    @property
    def normal(self) -> bool:
        return self.family == "gaussian"

    @cached_property
    def shifts(self) -> tuple[tuple[float, int], ...]:
        """The worst change: sizes, and the count of numbers with each over all rounds."""
        return tuple((t.sensitivity, t.count * self.rounds) for t in self._alternatives[0])

    @cached_property
    def attained(self) -> tuple[tuple[float, int], ...]:
        """An attained change of the largest norm: sizes, and the count of numbers with each in one round."""
        allowed, k = self.part.sensitivity, self.part.dimension
        changes = [*allowed.attained(k), ((allowed.largest_linf(k), 1),)]
        if self.part.whole:
            changes = [tuple((math.floor(v), n) for v, n in change if v >= 1) for change in changes]
        if self.family == "staircase":  # its δ is known for moves by its own step
            changes = [tuple((v, n) for v, n in change if v == self.top) for change in changes]
        return max(changes, key=lambda shifts: sum(n * v ** (2 if self.normal else 1) for v, n in shifts))

    @property
    def unit(self) -> float:
        """Unit of scales for the comparison of equal tasks."""
        return 1.0 if self.part.whole else self.top

    @cached_property
    def figures(self) -> tuple[tuple[object, ...], list[float]]:
        """Key of items with equal losses at equal error, up to units: an exact part, and numbers equal up to rounding."""
        part, u = self.part, self.unit
        moved = *self.shifts, *self.attained
        costs = [self.weight * part.worth * part.dimension * u * u, self.weight * part.bias]
        sizes = [self._total / u, self._square / (u * u), *(v / u for v, _ in moved)]
        return (self.name, self.rounds, len(self.shifts), *(n for _, n in moved)), [*costs, *sizes]

    @cached_property
    def _alternatives(self) -> tuple[tuple[NoiseTerm, ...], ...]:
        # at a scale at which no shift is beyond the law's step
        top = self.part.sensitivity.largest_linf(self.part.dimension)
        return worst_cases(self._law(top, top), self.part.sensitivity, self.part.dimension).alternatives

    @cached_property
    def _total(self) -> float:
        """Least sum of shifts of a change that dominates all, which determines the largest loss."""
        return self.rounds * min(sum(t.sensitivity * t.count for t in case) for case in self._alternatives)

    @cached_property
    def _square(self) -> float:
        return self.rounds * self.part.sensitivity.largest_l2(self.part.dimension) ** 2

    @property
    def moved(self) -> float:
        """Largest Euclidean norm of a change over all rounds."""
        return math.sqrt(self._square)

    @property
    def top(self) -> float:
        """The largest shift of a number."""
        return self.shifts[0][0]

    def cost(self, scale: float) -> float:
        """Return the weighted squared error of all numbers."""
        part = self.part
        noise = part.worth * part.dimension * VARIANCES[self.name](scale, self.top)
        return self.weight * (noise + part.bias)

    def continuous(self, scale: float) -> float:
        """Return the standard deviation of the best continuous noise at this scale."""
        families = ("gaussian",) if self.normal else ("laplace", "staircase")
        return math.sqrt(min(VARIANCES[name](scale, self.top) for name in families))

    def consumed(self, scale: float, order: float) -> float:
        """Return D of this order, for all numbers and rounds."""
        if order == math.inf:
            return math.inf if self.normal else self._total / scale
        if self.normal:
            return order * self._square / scale**2 / 2
        return sum(count * _divergence(v / scale, order) for v, count in self.shifts)

    @property
    def least(self) -> float:
        """Smallest scale whose variance is a double."""
        least = {
            "staircase": self.top / 600,
            "discrete_laplace": LEAST_LAPLACE,
            "discrete_gaussian": LEAST_GAUSSIAN,
        }
        return least.get(self.name, 1e-100 * self.top)

    def closed(self, order: float) -> bool:
        """Whether cost and D are powers of the scale, and the best one a closed form."""
        return not self.part.whole and (self.normal or (order == math.inf and self.family == "laplace"))

    def best(self, price: float, order: float) -> float:
        """Return the scale of least cost plus `price` times D, in closed form if both are powers of it, else by Brent's method."""
        unit, price = self.weight * self.part.worth * self.part.dimension, float(price)
        least = self.least
        # roots of the factors, as the product may overflow
        cubic: float = (price * self._total) ** (1 / 3) / (4 * unit) ** (1 / 3)
        fourth = (price * order * self._square) ** 0.25 / (2 * unit) ** 0.25 if order < math.inf else math.inf

        def paid(log_scale: float) -> float:
            scale, below = max(math.exp(min(log_scale, 300.0)), least), max(math.log(least) - log_scale, 0.0)
            return (self.cost(scale) + price * self.consumed(scale, order)) * (1 + below)

        closed = self.closed(order)
        near = min(max(fourth if closed and self.normal else min(cubic, fourth), least), _MOST)
        if closed:
            return near
        start = math.log(near)
        found = optimize.minimize_scalar(paid, bracket=(start, start + 0.1), tol=1e-9)
        return max(math.exp(float(found.x)), least)

    def scale_of(self, variance: float) -> float | None:
        """Return the scale of this variance; None if it is too small for doubles."""
        near = math.sqrt(variance / (2 if self.family == "laplace" else 1))
        if not self.part.whole and self.family != "staircase":
            return near

        def over(less: float) -> float:  # falls as the scale does
            return VARIANCES[self.name](math.exp(-less), self.top) / variance - 1

        found = least_kept(
            over, -math.log(max(near, self.least)), step=0.1, most=-math.log(self.least), xtol=1e-14
        )
        return None if found == math.inf else math.exp(-found)

    def scale_at(self, budget: float) -> float:
        """Return the scale at which the largest loss, or ρ of normal noise, equals `budget`; at least `least`."""
        return max(
            math.sqrt(self._square / (2 * budget)) if self.normal else self._total / budget, self.least
        )

    def scale_in(self, law: FrozenLaw) -> float | None:
        """Return the scale of a law of this family with the menu's shape; None for other laws."""
        dist, shapes, loc, scale = frozen_parts(law)
        if dist.name != self._law(1.0, 1.0).dist.name:
            return None
        if self.family == "staircase":
            scale = self.top / shapes[0]
        elif shapes:
            scale = 1 / shapes[0] if self.family == "laplace" else shapes[0]
        own = frozen_parts(self.law(scale))
        stated = [*shapes, loc, frozen_parts(law)[3]]
        if len(shapes) != len(own[1]):
            return None
        return scale if np.allclose(stated, [*own[1], *own[2:]], rtol=1e-12, atol=0) else None

    def law(self, scale: float) -> FrozenLaw:
        """Return the law of one number."""
        return self._law(scale, self.top)

    def _law(self, scale: float, top: float) -> FrozenLaw:
        gamma = staircase_gamma(top / scale, "squared") if self.family == "staircase" else 0.0
        return LAWS[self.name].make(gamma, scale, top)

    def noise(self, scale: float) -> AdditiveNoise:
        """Return the mechanism of this part."""
        part = self.part
        return AdditiveNoise(self.law(scale), part.sensitivity, part.dimension, self.rounds)


Choice = tuple[Item, float]
"""An item and its scale."""
_POINTS = 2**17
"""Most points of a search's grid for one loss."""
WIDTH = 1e-3
"""Relative width of the intervals of δ."""
_NONE = 1e-9
"""Share of δ that counts as none: a root is searched between this and 1."""
_PRICED = 5e-8
"""Relative width to which the prices of several groups are found: where scales have no closed form they never come closer to rest."""
_LIKE = 1e-12
"""Relative difference of errors and changes that count as equal."""
_FARTHEST = 700.0
"""Largest logarithm whose exponential is a double."""


@dataclass(frozen=True, eq=False)
class Search:
    """Slots of a plan, each with items to choose from.

    Parameters
    ----------
    slots : sequence of sequences of Item
    chains : sequence of sequences of int
        Sets of slots that one person is in.
    budget : float
        Budget of D, or ε if `privacy` is given.
    privacy : ApproximateDP, optional
        Requirement with δ > 0, met by composition.
    """

    slots: Sequence[Sequence[Item]]
    chains: Sequence[Sequence[int]]
    budget: float
    privacy: ApproximateDP | None = None
    _found: dict[float, tuple[list[Choice], Array]] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def alike(self) -> list[int]:
        """For each slot the first one with equal losses at equal error, up to its unit: at one price they choose the same."""
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
        """Return the logarithm of a chain's consumption over the budget."""
        if self.privacy is None:
            return math.log(total([chosen[k] for k in chain], order) / self.budget)
        delta = composed([chosen[k] for k in chain], self.privacy)
        return math.log(max(delta / self.privacy.delta, _NONE))

    def cost(self, chosen: Sequence[Choice]) -> float:
        """Return the weighted squared error."""
        return math.fsum(item.cost(scale) for item, scale in chosen)

    def pure(self, chosen: Sequence[Choice]) -> bool:
        """Whether no loss exceeds ε, up to rounding."""
        most = max(total([chosen[k] for k in chain], math.inf) for chain in self.chains)
        return self.privacy is not None and most <= self.budget * (1 + 1e-12)

    # -- prices ------------------------------------------------------------------------------------------

    def at(self, chain_prices: Array, order: float) -> tuple[list[Choice], float]:
        """Return each slot's choice at these prices, and the total of costs and prices paid."""
        prices = np.zeros(len(self.slots))
        for price, chain in zip(chain_prices, self.chains):
            prices[list(chain)] += price

        found = [self._cheapest(self.alike[k], price, order) for k, price in enumerate(prices.tolist())]
        chosen = [(items[j], scale * items[j].unit) for items, (_, j, scale) in zip(self.slots, found)]
        return chosen, math.fsum(least for least, _, _ in found)

    def _cheapest(self, k: int, price: float, order: float) -> tuple[float, int, float]:
        """Return the least cost and price paid in a slot, its item, and the scale in units; known ones are kept, as most prices stay while one is sought."""
        if (k, price, order) not in self._known:
            paid = []
            for j, item in enumerate(self.slots[k]):
                scale = item.best(price, order)
                paid.append((item.cost(scale) + price * item.consumed(scale, order), j, scale / item.unit))
            self._known[k, price, order] = min(paid)
        return self._known[k, price, order]

    @cached_property
    def _known(self) -> dict[tuple[int, float, float], tuple[float, int, float]]:
        return {}

    def settled(
        self,
        order: float,
        xtol: float = 1e-14,
        deadline: Deadline | None = None,
        prices: Array | None = None,
    ) -> tuple[list[Choice], Array]:
        """Return the choices and prices at which every chain exhausts its budget, within it up to rounding."""
        if prices is None:
            start = 2 * sum(items[0].cost(items[0].best(1.0, order)) for items in self.slots) / self.budget
            prices = np.full(len(self.chains), start)
        else:
            prices = prices.copy()
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
            if deadline is not None:
                deadline.hold("prices")
            tried = prices.copy()
            tried[g] = math.exp(log_price)
            return self.over(self.at(tried, order)[0], chain, order)

        return math.exp(root(over, math.log(prices[g]), 0.02, xtol, deadline))

    # -- budgets that add --------------------------------------------------------------------------------

    def separable(self, order: float, deadline: Deadline | None = None) -> tuple[list[Choice], Array]:
        """Return the best choices found, filled up to the budget with their items alone, and the prices of the lower bound.

        Without a deadline those found last at this order are returned, if there are any.
        """
        if deadline is None and order in self._found:
            return self._found[order]
        one = len(self.chains) == 1
        closed = all(item.closed(order) for items in self.slots for item in items)
        xtol = 1e-14 if one or closed else _PRICED
        chosen, prices = self.settled(order, xtol, deadline)
        filled = []
        for side in self._sides(chosen, prices, order, 1e-6):
            kept = {id(item): [item] for item, _ in side}
            alone = replace(self, slots=[kept[id(item)] for item, _ in side])
            filled.append(alone.settled(order, xtol, deadline, None if one else prices)[0])
        self._found[order] = min(filled, key=self.cost), prices
        return self._found[order]

    def _sides(self, chosen: list[Choice], prices: Array, order: float, step: float) -> list[list[Choice]]:
        """Return the choices at these prices, and those at slightly lower ones if items change there: either may cost less when it exhausts the budget."""
        other = self.at(prices * (1 - step), order)[0]
        return [chosen] if items_of(other) == items_of(chosen) else [chosen, other]

    def bound(self, prices: Array, order: float) -> float:
        """Return a lower bound of the cost of all choices within the budget, at these prices or at none, in doubles."""
        free = math.fsum(min(item.cost(item.least) for item in items) for items in self.slots)
        return max(free, self.at(prices, order)[1] - self.budget * float(prices.sum()))

    # -- (ε, δ) ------------------------------------------------------------------------------------------

    def composable(self, deadline: Deadline) -> list[list[Choice]]:
        """Return candidates that nearly meet (ε, δ): those found before the deadline."""
        assert self.privacy is not None
        found: list[list[Choice]] = []
        start = 1 - 2 * math.log(self.privacy.delta) / self.budget  # approximately that of normal noise
        with progress_bar("choices of noise", 3) as step:
            for normal in (True, False, None):
                kept = {id(items): [i for i in items if normal in (i.normal, None)] for items in self.slots}
                slots = [kept[id(items)] for items in self.slots]
                if not all(slots) or (found and deadline.passed):
                    continue
                if normal is False:
                    with suppress(SolverError):
                        alone = replace(self, slots=slots, privacy=None)
                        found.append(alone.separable(math.inf, deadline)[0])
                searched = replace(self, slots=slots)
                with suppress(SolverError):
                    chosen, prices = searched.settled(start, 1e-9 if normal else WIDTH, deadline)
                    found += searched._sides(chosen, prices, start, 2 * WIDTH)
                step()
        if not found:
            deadline.hold("prices")
        best = min(found, key=self.cost)
        if len(self.chains) == 1 and not self.pure(best) and not deadline.passed:
            with suppress(SolverError):
                found.append(self.settled(1 + self.tilt(best), WIDTH, deadline)[0])
        return found

    def tilt(self, chosen: Sequence[Choice]) -> float:
        """Return θ at which the losses of the first chain, tilted by e^{θL}, have mean ε, which minimises Chernoff's bound."""
        taken = [chosen[k] for k in self.chains[0]]

        def exponent(log_theta: float) -> float:
            theta = math.exp(log_theta)
            return theta * (total(taken, 1 + theta) - self.budget)

        found = optimize.minimize_scalar(
            exponent, bounds=(-8.0, 8.0), method="bounded", options={"xatol": 1e-3}
        )
        return math.exp(float(found.x))


def split(slots: Sequence[Sequence[Item]], square: float, order: float) -> tuple[list[float], float, float]:
    """Return the shares of one squared error at which its parts consume least, the price of consumption there, and what all pay at it, error included."""
    alone = Search(slots, [range(len(slots))], 1.0)

    def over(log_worth: float) -> float:
        chosen = alone.at(np.array([math.exp(-log_worth)]), order)[0]
        return math.log(max(alone.cost(chosen) / square, _NONE))

    price = math.exp(-root(over, -math.log(square), 0.1, 1e-12))
    chosen, paid = alone.at(np.array([price]), order)
    costs = [item.cost(scale) for item, scale in chosen]
    return [square * cost / math.fsum(costs) for cost in costs], price, paid


def tally(chosen: Sequence[Choice]) -> list[tuple[Item, float, int]]:
    """Return the distinct choices with their counts."""
    copies = Counter((id(item), scale) for item, scale in chosen)
    known = {(id(item), scale): item for item, scale in chosen}
    return [(known[key], key[1], count) for key, count in copies.items()]


def total(chosen: Sequence[Choice], order: float) -> float:
    """Return D of this order, for all choices."""
    return math.fsum(count * item.consumed(scale, order) for item, scale, count in tally(chosen))


def items_of(chosen: Sequence[Choice]) -> tuple[int, ...]:
    """Return the items of choices as a key for comparisons."""
    return tuple(id(item) for item, _ in chosen)


def composed(chosen: Sequence[Choice], privacy: ApproximateDP) -> float:
    """Return an upper bound of the composition's δ at ε, with discrete normal noise treated as normal."""
    if total(chosen, math.inf) <= privacy.epsilon:
        return 0.0
    terms, unit = [], stats.norm()  # SciPy takes a millisecond to freeze a law
    for item, scale, copies in tally(chosen):
        if item.normal:
            terms.append(NoiseTerm(unit, item.moved / scale, copies))
        else:
            terms += [NoiseTerm(item.law(scale), v, count * copies) for v, count in item.shifts]
    return upper_delta(terms, privacy.epsilon, width=WIDTH, points=_POINTS)


def root(
    over: Callable[[float], float], at: float, step: float, xtol: float, deadline: Deadline | None = None
) -> float:
    """Return the root of a falling function of a logarithm, on the side where it is at most 0, by growing steps within the range of doubles."""
    ends = {"least": -_FARTHEST, "most": _FARTHEST}
    found = least_kept(over, at, step=step, growth=3.0, **ends, xtol=xtol, deadline=deadline)
    if found >= _FARTHEST:
        asked = "ask for noise or a budget that doubles do not hold: choose other units, or another budget"
        raise DesignError(f"privacy, tasks: {asked}")
    return found

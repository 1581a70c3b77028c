"""Calibrated noise: what all coordinates and rounds consume of the budget, and what an error costs.

A change moves coordinate i by at most v_i. Independent noise of a symmetric log-concave law loses most where every v_i is as large as
it can be: larger shifts have hockey-stick curves that are nowhere lower, and so have their products. So the losses at these shifts
are composed (`mechdesign.verifier.composition`). Normal noise is one coordinate of shift (Σ v_i²/σ²)^½; one coordinate alone
has δ = P(L > ε) − e^ε Q(L > ε), in closed form.

A round that sees a Poisson sample at rate q has the losses of q P + (1 − q) Q against Q and of P against (1 − q) P + q Q, the second
by symmetry: both curves rise with that of (P, Q).
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from math import ceil
from typing import NamedTuple, TypeAlias

from mechdesign.verifier.bound_class import spoken_of
from mechdesign.verifier.composition import PLACES, SLACK, Cell, Grid, Losses
from mechdesign.verifier.concentrated import concentrated, moments
from mechdesign.verifier.discrete_laws import WHOLE, staircase_atoms
from mechdesign.verifier.independent import laplace_losses
from mechdesign.verifier.noise_costs import COSTS
from mechdesign.verifier.noise_laws import CONTINUOUS, ONE, ZERO, continuous_cells
from mechdesign.verifier.reading import Account, Json, NotCovered, Refused, TooLarge

Changes: TypeAlias = list[tuple[Decimal, int]]
NAMES = {"gaussian": "norm", "discrete_laplace": "dlaplace"}
MOST_CELLS = 2**12
"""Of one coordinate; an eighth of the points of a coarser grid."""
POINTS = 2**14, 2**16
"""Of the grid: where the coarse one leaves δ above the budget, the fine one decides."""
SAMPLED = 2**11
"""Cells or points of a round that is sampled, each of which takes two logarithms."""
ROUNDS = 2**14
MOST_LOSSES = 10**9
ROUND = 1 + Decimal("1e-45")
"""Above the rounding of a few decimals."""


def calibration(result: Json, account: Account) -> None:
    with localcontext() as context:
        context.prec = PLACES
        check(result, account)


def check(result: Json, account: Account) -> None:
    design, noise, value = result["design"], result["mechanism"], result["value"]
    law, wanted, privacy = noise["law"], design["noise"], design["privacy"]
    for name in ("sensitivity", "dimension", "rounds", "sampling_rate"):
        account.agrees(f"the noise is for the {name} that the design states", noise[name] == design[name])
    if isinstance(wanted, dict):
        name, same = wanted["name"], wanted["args"] == law["args"]
    else:
        name, same = NAMES.get(wanted, wanted), True
    account.agrees("the noise is of the family asked for", name == law["name"] and same)
    additive(noise, privacy, design["loss"], value, account)
    if result["lower_bound"] is not None:
        claim = (
            f"no private noise of this class ({spoken_of(result)}) costs less than {result['lower_bound']!r}"
        )
        account.claimed(claim)


def additive(noise: Json, privacy: Json, loss: str, value: float, account: Account) -> None:
    """What additive noise for the changes that it states costs and consumes."""
    law = noise["law"]
    if law["name"] not in COSTS:
        raise NotCovered(f"noise of the law {law['name']}")
    if set(law) - {"", "name", "args", "scale"}:
        raise NotCovered("laws with other parameters than shapes and a scale")
    shapes, scale = tuple(Decimal(x) for x in law["args"]), Decimal(law.get("scale", 1))
    if scale <= 0 or not all(x.is_finite() for x in (*shapes, scale)):
        raise Refused("a scale that is not positive and finite")
    power = {"squared": 2, "absolute": 1}[loss]
    cost = Fraction(COSTS[law["name"]](power, *shapes) * scale**power)
    room = Fraction(value) / 10**9
    account.bounds(f"the {loss} loss is at most {value!r}", cost, Fraction(value), room)
    account.agrees("the value is no more than the loss", Fraction(value) <= cost + 1000 * room)
    rounds, rate, epsilon = (
        noise["rounds"],
        Decimal(noise["sampling_rate"]),
        Decimal(privacy.get("epsilon", 0)),
    )
    if not 0 < rate <= 1 or rounds < 1:
        raise Refused("rounds or a sampling rate that are none")
    several = isinstance(noise["sensitivity"], dict)
    if rate < 1 and several and noise["sensitivity"]["neighbours"] != "add-remove":
        raise Refused("a Poisson sample where one record is replaced")
    name = law["name"]
    if name in ("osgt", "flipped_huber") and shapes[0] == 0:  # their normal member
        name, shapes = "norm", ()
    normal = name == "norm" or (name == "discrete_gaussian" and privacy[""] == "zcdp")
    stated = changes(noise["sensitivity"], noise["dimension"], "norm" if normal else name)
    scaled = [[(v / scale, count) for v, count in shifts] for shifts in stated]
    if privacy[""] == "zcdp":
        if rate < 1:
            raise Refused("a sampling rate under zero-concentrated privacy")
        rho, xi = Decimal(privacy["rho"]), Decimal(privacy["xi"])
        claim = f"rho at most {privacy['rho']!r}" + (f" beyond xi = {privacy['xi']!r}" if xi else "")
        if normal:  # D_α is proportional to α, so that ξ helps at α = 1 only
            width = shapes[0] if name == "discrete_gaussian" else ONE
            consumed = rounds * sum(count * (v / width) ** 2 for v, count in scaled[0]) / 2
            account.proved(claim, consumed <= rho * ROUND)
        else:
            cases = [[(v, count * rounds) for v, count in shifts] for shifts in scaled]
            account.proved(claim, any(orders(name, shapes, case, xi, rho) for case in cases))
    elif not privacy.get("delta"):
        largest = ([count * largest_loss(name, shapes, v) for v, count in shifts] for shifts in scaled)
        most = min(sum(losses, ZERO) for losses in largest)
        if rate < 1 and most.is_finite():
            most = (1 + rate * (most.exp() - 1)).ln()
        account.proved(f"privacy loss at most {privacy['epsilon']!r}", rounds * most <= epsilon * ROUND)
    else:
        delta = Decimal(privacy["delta"])
        claim = f"delta at most {privacy['delta']!r} at epsilon = {privacy['epsilon']!r}"
        asked = Asked(name, shapes, rounds, rate, epsilon, delta)
        account.proved(claim, asked.within(scaled))


def changes(sensitivity: Json, dimension: int, name: str) -> list[Changes]:
    """Lists of shifts and of how many coordinates move so far; each list alone is as bad as every change that is allowed.

    Sorted by size, the k-th coordinate of a change moves by at most its bound, by L₁/k and by L₂/√k. Under a log-concave law two
    coordinates that move by a and b are more private than one that moves by a + b (by way of the data set in which the first
    alone has moved, and as tests by thresholds are the best ones), so that all of L₁ may stand on one coordinate. Normal noise
    sees the ℓ₂ norm alone, a staircase whether a coordinate moves.
    """
    if not isinstance(sensitivity, dict):
        return [[(Decimal(sensitivity), dimension)]]
    most = [sensitivity[bound] for bound in ("linf", "l1", "l2") if sensitivity[bound] is not None]
    each = sensitivity["each"] or [min(most)] * dimension
    if len(each) != dimension or dimension > 10**5 or not all(b >= 0 for b in (*each, *most)):
        raise Refused("bounds of other coordinates than the answer's")
    moved = [Decimal(least) for b in each if (least := min([b, *most])) > 0]
    bounds = sorted(moved, reverse=True)[: sensitivity["l0"] or dimension]
    if not bounds:
        raise Refused("bounds that allow no change")
    total = Decimal(sensitivity["l1"] or sum(bounds))
    norm = Decimal(sensitivity["l2"] or Decimal(dimension).sqrt() * bounds[0]) * ROUND
    if name == "norm":
        square, left = ZERO, total
        for bound in bounds:  # the largest squares within ‖v‖₁: the largest bounds, filled
            square, left = square + min(bound, left) ** 2, max(left - bound, ZERO)
        return [[(min(square.sqrt() * ROUND, norm), 1)]]
    if name == "staircase":
        return [[(bounds[0], len(bounds))]]
    envelope = [min(b, total / k * ROUND, norm / Decimal(k).sqrt()) for k, b in enumerate(bounds, 1)]
    top, whole = bounds[0], min(total, sum(envelope, ZERO), Decimal(len(bounds)).sqrt() * norm)
    # two that fit into one largest bound are moved into one
    fewer = min(len(bounds), max(ceil(2 * whole / top) - 1, 1))
    packed = [min(top, whole / k * ROUND) for k in range(1, fewer + 1)]
    found = [envelope, packed, [whole]]
    if name in ("dlaplace", "discrete_gaussian"):
        found = [[Decimal(int(v)) for v in vector] for vector in found]
    return [grouped([v for v in vector if v > 0]) for vector in found]


def grouped(vector: list[Decimal]) -> Changes:
    """Equal shifts counted; where there are many, groups that double in length, each as large as its largest."""
    cuts = [0, *(2**j for j in range(20) if 2**j < len(vector)), len(vector)]
    if len({*vector}) < len(cuts):
        return sorted(Counter(vector).items(), reverse=True)
    return [(vector[start], end - start) for start, end in pairwise(cuts)]


def largest_loss(name: str, shapes: tuple[Decimal, ...], shift: Decimal) -> Decimal:
    """The largest privacy loss at a shift, in units of the scale; infinite where it has no end."""
    if name in ("laplace", "logistic") or (name == "gennorm" and shapes[0] == 1):
        return shift
    if name == "dlaplace":
        return shapes[0] * shift
    if name == "staircase" and shift <= 1:
        return shapes[0]
    return Decimal("Infinity")


def orders(name: str, shapes: tuple[Decimal, ...], shifts: Changes, xi: Decimal, rho: Decimal) -> bool:
    """Whether coordinates that move so are (ξ, ρ)-zCDP: up to some order by their moments, beyond it by a closed form."""
    largest = [largest_loss(name, shapes, v) for v, _ in shifts]
    if name in ("osgt", "flipped_huber"):
        b = shapes[0]
        squares = sum((count * v * v for v, count in shifts), ZERO) / 2
        offsets = [v * b if name == "osgt" else (b * b - max(b - v, ZERO) ** 2) / 2 for v, _ in shifts]
    elif all(loss.is_finite() for loss in largest):
        squares, offsets = ZERO, largest
    else:
        return False
    offset = sum((count * c for (_, count), c in zip(shifts, offsets)), ZERO) - xi
    if offset <= 0:
        return squares <= rho
    if squares >= rho:
        return False
    last = max(offset / (rho - squares) - 1, Decimal("1e-3"))
    parts = [(moments(name, shapes, v, loss), count) for (v, count), loss in zip(shifts, largest)]
    return concentrated(parts, xi, rho, last)


class Asked(NamedTuple):
    """A law at unit scale, and what is asked of it."""

    name: str
    shapes: tuple[Decimal, ...]
    rounds: int
    rate: Decimal
    epsilon: Decimal
    delta: Decimal

    def within(self, cases: list[Changes]) -> bool:
        """Whether δ at ε of all rounds and coordinates is at most δ in one of the cases: on a coarse grid, then the best on a fine one."""
        coarse, fine = POINTS
        found = []
        for shifts in cases:
            found.append((self.consumed(shifts, coarse), shifts))
            if found[-1][0] <= self.delta:
                return True
        return self.consumed(min(found)[1], fine) <= self.delta

    def consumed(self, shifts: Changes, points: int) -> Decimal:
        """δ at ε, from above."""
        times = self.rounds if self.rate == 1 else 1
        if self.name == "norm":
            square = sum((count * v * v for v, count in shifts), ZERO) * times
            shifts, times = [(square.sqrt() * ROUND, 1)], 1
        count = sum(count for _, count in shifts) * times
        if count > MOST_LOSSES or self.rounds > MOST_LOSSES:
            raise TooLarge(f"too large to check: more than {MOST_LOSSES} losses are composed")
        if count == 1 and self.rate == 1:
            return self.alone(shifts[0][0])
        # δ bends at ε, and each coordinate's loss at its share of it
        share = self.epsilon / sum(shift * alike for shift, alike in shifts) / times
        tail = self.delta * Decimal("1e-9") / (count * self.rounds)
        if self.rate < 1 and count == 1:
            cells, infinite = self.outcomes(shifts[0][0], tail, ZERO, SAMPLED)
            return self.sampled(cells, infinite, tail)
        grid = Grid(tail, points if self.rate == 1 else SAMPLED)
        origin, several = ZERO, []
        for shift, alike in shifts:
            losses, start = self.losses(grid, shift, share * shift, share * shifts[-1][0])
            several.append(grid.power(losses, alike * times))
            origin += start * alike * times
        whole = reduce(grid.product, several)
        if self.rate == 1:
            return grid.delta(whole, self.epsilon - origin)
        masses = (
            (Decimal(m) / grid.unit, i * whole.step + origin) for i, m in enumerate(whole.masses, whole.first)
        )
        cells = [Cell(p, p * (-loss).exp(), loss, loss) for p, loss in masses]
        return self.sampled(cells, Decimal(whole.infinite) / grid.unit, tail)

    def losses(self, grid: Grid, shift: Decimal, bend: Decimal, unit: Decimal) -> tuple[Losses, Decimal]:
        """The loss of one coordinate less an origin, the second, such that few or alike losses are points of the grid."""
        if self.name == "laplace":
            return laplace_losses(grid, shift, self.epsilon), shift
        origin, exact = ZERO, self.name in WHOLE or self.name == "staircase"
        if self.name == "dlaplace":
            origin, unit = self.shapes[0] * shift, 2 * self.shapes[0]
        elif self.name == "discrete_gaussian":
            origin, unit = (shift / self.shapes[0]) ** 2 / 2, 1 / self.shapes[0] ** 2
        elif self.name == "staircase":
            unit = self.shapes[0]
        cells, infinite = self.outcomes(shift, grid.tail, bend, min(grid.points // 8, MOST_CELLS))
        growth = origin.exp()
        moved = [Cell(p, q * growth, low - origin, high - origin) for p, q, low, high in cells]
        return grid.losses(moved, unit, infinite, exact=exact), origin

    def outcomes(
        self, shift: Decimal, tail: Decimal, bend: Decimal, count: int
    ) -> tuple[list[Cell], Decimal]:
        """Cells of the loss of one coordinate, and the mass whose loss is infinite."""
        if self.name == "staircase":
            return staircase_atoms(self.shapes, shift), ZERO
        if self.name in WHOLE:
            return WHOLE[self.name](*self.shapes, shift).cells(int(shift))
        return continuous_cells(CONTINUOUS[self.name](*self.shapes), shift, tail, bend, count)

    def alone(self, shift: Decimal) -> Decimal:
        """δ of one coordinate: P − e^ε Q of the outcomes whose loss is larger than ε."""
        growth = self.epsilon.exp()
        if self.name == "staircase":
            cells = staircase_atoms(self.shapes, shift)
            return sum((max(cell.p - growth * cell.q, ZERO) for cell in cells), SLACK)
        if self.name in WHOLE:
            return WHOLE[self.name](*self.shapes, shift).delta(int(shift), self.epsilon)
        law = CONTINUOUS[self.name](*self.shapes)
        low, high = law.around(self.epsilon, shift)
        return law.above(low - shift / 2) - growth * law.above(high + shift / 2) + SLACK

    def sampled(self, cells: list[Cell], infinite: Decimal, tail: Decimal) -> Decimal:
        """δ of all rounds, each of which sees a sample: the larger one of both directions."""
        rate, rest = self.rate, 1 - self.rate
        missing = max(ONE - sum((cell.q for cell in cells), ZERO), ZERO)  # of Q alone
        removed = [
            Cell(rate * p + rest * q, q, (rate * low.exp() + rest).ln(), (rate * high.exp() + rest).ln())
            for p, q, low, high in cells
        ]
        removed.append(Cell(rest * missing, missing, rest.ln(), rest.ln()))
        added = [
            Cell(
                p,
                rest * p + rate * q,
                -(rest + rate * (-low).exp()).ln(),
                -(rest + rate * (-high).exp()).ln(),
            )
            for p, q, low, high in cells
        ]
        added.append(Cell(infinite, rest * infinite, -rest.ln(), -rest.ln()))
        found, grid = ZERO, Grid(tail, ROUNDS)
        for outcomes, beyond in ((removed, rate * infinite), (added, ZERO)):
            one = grid.losses(outcomes, self.epsilon / self.rounds, beyond)
            found = max(found, grid.delta(grid.power(one, self.rounds), self.epsilon))
        return found

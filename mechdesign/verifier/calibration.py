"""What one record changes, and what calibrated noise consumes of the budget on it, over all coordinates and rounds.

Rounds see all records or a Poisson sample of them. Normal noise is one coordinate of shift (Σ v_i²)^½, and one coordinate alone has δ = P(L > ε) − e^ε Q(L > ε), in closed form. Other
losses are composed (`mechdesign.verifier.composition`).

**Sampling.** A round that sees a sample at rate q has the losses of q P + (1 − q) Q against Q and of P against (1 − q) P + q Q, the
second by symmetry: both curves rise with that of (P, Q). With δ' that of (P, Q) and x = e^ε ≥ 1 they are

    q δ'(ε'),  e^ε' = (x − 1 + q)/q,    and    (1 − x (1 − q)) δ'(ε''),  e^ε'' = q x/(1 − x (1 − q))  where that is positive.

The first one is never lower, so that it is δ of one round: 1 − x (1 − q) ≤ q, and ε'' ≥ ε' because of
q² x − (x − 1 + q)(1 − x (1 − q)) = (x − 1)² (1 − q) ≥ 0. Of several rounds both directions are composed.

Not covered: zero-concentrated privacy of noise that is not Gaussian; samples of records of which one is replaced.

**Changes.** A change moves coordinate i by at most v_i. Independent noise of a symmetric log-concave law loses most where every v_i is as large as
it can be: larger shifts have hockey-stick curves that are nowhere lower, and so have their products (`worst_shifts`).
At these shifts the largest losses add up, a round that is sampled at rate q having log(1 + q (e^ℓ − 1)) of its ℓ; normal noise
consumes ρ = Σ v_i²/2σ².

**Bounds of changes.** A change moves coordinate i by |v_i| ≤ a_i, at most c coordinates at once, with ‖v‖₁ ≤ L₁ and ‖v‖₂ ≤ L₂.

**Lists of shifts**, each of which alone is as bad for privacy as every change: `worst_shifts`.

**Σ (|v_i|/s_i)^m** is bounded in fractions, by prices. *Prices* θ ≥ 0 of a changed coordinate, of L₁ and of L₂² prove, whatever they are, that no change consumes more than

    θ₁ c + θ₂ L₁ + θ₃ L₂² + Σ_i max(0, max over 0 < v ≤ a_i of (v/s_i)^m − θ₁ − θ₂ v − θ₃ v²).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

from mechdesign.verifier import composition, reading
from mechdesign.verifier.arithmetic import between, charge, decimal, root_above
from mechdesign.verifier.composition import HALF, ONE, ROUND, SLACK, WHOLE, ZERO, Cell, Grid, Losses
from mechdesign.verifier.reading import STAIRS, Account, Json, NotCovered, Refused, TooLarge, refuse

BITS = 800
MOST_EXACT = 2000


Shifts: TypeAlias = list[tuple[Decimal, int]]
"""Sizes, the largest first, and how many coordinates move so far."""
MOST_BOUNDS = 10**5
GROUPS = 12
"""Of coordinates that move alike."""


class Changes(NamedTuple):
    """Coordinates that change, by at most a_i each, and the other bounds."""

    sizes: list[Fraction]
    l0: int | None
    l1: Fraction | None
    l2: Fraction | None


def changes_of(bounds: Json, count: int) -> Changes:
    each, most = bounds["each"], [bounds[name] for name in ("linf", "l1", "l2") if bounds[name] is not None]
    if each is None or len(each) != count or not min([*each, *most, 1]) >= 0 or (bounds["l0"] or 0) > count:
        raise Refused("bounds of other coordinates than the answer's")
    return Changes(coordinates(bounds), bounds["l0"], *norms(bounds))


def norms(bounds: Json) -> tuple[Fraction | None, Fraction | None]:
    """L₁ and L₂."""
    l1, l2 = (None if bounds[name] is None else Fraction(bounds[name]) for name in ("l1", "l2"))
    return l1, l2


def left_of_total(parts: Iterator[Fraction] | list[Fraction], budget: Fraction) -> Fraction:
    """Return a budget less a sum, rounded down: the sum is rounded up, or exact if that leaves nothing."""
    held = list(parts)
    above = Fraction(sum(-((-part.numerator << BITS) // part.denominator) for part in held), 2**BITS)
    if above <= budget:
        return budget - above
    while len(held) > 1 and len(held) <= MOST_EXACT:
        held = [sum(held[i : i + 2], Fraction(0)) for i in range(0, len(held), 2)]
    return budget - (held[0] if len(held) == 1 else above)


def left_of_budget(
    asked: Changes, scales: list[Fraction], m: int, stated: list[float], budget: Fraction
) -> Fraction:
    """Return the slack of the budget that prices prove for every change; negative if they prove none."""
    prices = [Fraction(p) for p in stated]
    bounds = asked.l0, asked.l1, asked.l2 and asked.l2**2
    if len(prices) != 3 or min(prices) < 0 or any(p and b is None for p, b in zip(prices, bounds)):
        return Fraction(-1)
    paid = sum((p * b for p, b in zip(prices, bounds) if b is not None), Fraction(0))
    moved = [(a, s) for a, s in zip(asked.sizes, scales) if a > 0]
    return left_of_total([beyond(a, s, m, prices) for a, s in moved], budget - paid)


def beyond(a: Fraction, s: Fraction, m: int, prices: list[Fraction]) -> Fraction:
    """The most that a change of one coordinate consumes beyond its price."""
    one, two, three = prices
    if m == 2:
        return max((a / s) ** 2 - one - two * a - three * a * a, Fraction(0))
    rate = 1 / s - two
    if rate <= 0:
        return Fraction(0)
    v = min(a, rate / (2 * three)) if three else a
    return max(v * rate - three * v * v - one, Fraction(0))


def worst_shifts(sensitivity: Json, dimension: int, name: str) -> list[Shifts]:
    """Lists of shifts and of how many coordinates move so far; each list alone is as bad as every change that is allowed.

    Sorted by size, the k-th coordinate of a change moves by at most its bound, by L₁/k and by L₂/√k. Under a log-concave law two
    coordinates that move by a and b are more private than one that moves by a + b (by way of the data set in which the first
    alone has moved, and as tests by thresholds are the best ones), so that all of L₁ may stand on one coordinate. Normal noise
    sees the ℓ₂ norm alone, a staircase whether a coordinate moves.
    """
    sizes, l1, l2 = bounds_of(sensitivity, dimension)
    if not isinstance(sensitivity, dict) or (sensitivity["each"] is l1 is l2 is None):
        ((size, count),) = sizes
        counted = name in WHOLE and isinstance(sensitivity, dict)
        return [[(Decimal(int(size)) if counted else decimal(size), count)]]
    if dimension > MOST_BOUNDS:
        raise TooLarge(f"too large to check: bounds of more than {MOST_BOUNDS} coordinates")
    if name == "norm":
        norms_of = [decimal(filled(sizes, l1)).sqrt(), *([] if l2 is None else [decimal(l2)])]
        return [[(min(norms_of) * ROUND, 1)]]
    bounds = [decimal(size) for size, count in sizes for _ in range(count)]
    if name in STAIRS:
        return [[(bounds[0], len(bounds))]]
    total = decimal(reached(1, sizes, l1, None))
    if l2 is not None:
        total = min(total, decimal(watered(sizes, l2)) * ROUND)
        if name in WHOLE:
            total = min(total, Decimal(most_whole([int(b) for b in bounds], int(l2**2))))
    norm = decimal(l2) * ROUND if l2 is not None else Decimal(len(bounds)).sqrt() * bounds[0] * ROUND
    envelope = [min(b, total / k * ROUND, norm / Decimal(k).sqrt()) for k, b in enumerate(bounds, 1)]
    top, whole = bounds[0], min(total, sum(envelope, ZERO), Decimal(len(bounds)).sqrt() * norm)
    # two that fit into one largest bound are moved into one
    fewer = min(len(bounds), max(math.ceil(2 * whole / top) - 1, 1))
    packed = [min(top, whole / k * ROUND) for k in range(1, fewer + 1)]
    found = [envelope, packed, [whole]]
    if name in WHOLE:
        found = [[Decimal(int(v)) for v in vector] for vector in found]
    cases = (grouped([v for v in vector if v > 0]) for vector in found)
    return sorted({tuple(case): case for case in cases}.values(), key=len)


def most_whole(bounds: list[int], square: int) -> int:
    """The largest sum of whole numbers within these bounds whose squares add up to so much: each further 1 goes where it adds least."""
    level, open_, total = 0, bounds, 0
    while open_ := [b for b in open_ if b > level]:
        steps = min(len(open_), square // (2 * level + 1))
        total, square, level = total + steps, square - steps * (2 * level + 1), level + 1
        if steps < len(open_):
            break
    return total


def grouped(vector: list[Decimal]) -> Shifts:
    """Equal shifts counted; where there are many, groups as large as their largest, cut where the sum of squares falls most."""
    sizes = sorted(Counter(vector).items(), reverse=True)
    squares, counts = [float(v) ** 2 for v, _ in sizes], [count for _, count in sizes]
    before = [0, *accumulate(counts)]
    cuts = [0, len(sizes)]
    while len(cuts) <= min(GROUPS, len(sizes)):
        inside = [(a, i, b) for a, b in pairwise(cuts) for i in range(a + 1, b)]
        saved = (((squares[a] - squares[i]) * (before[b] - before[i]), i) for a, i, b in inside)
        cuts = sorted([*cuts, max(saved)[1]])
    return [(sizes[a][0], before[b] - before[a]) for a, b in pairwise(cuts)]


Bounds = list[tuple[Fraction, int]]
"""Sizes, and how many coordinates have them, from the largest on."""


def coordinates(sensitivity: Json) -> list[Fraction]:
    """What each coordinate changes by at most; one number where it is the same for all."""
    if not isinstance(sensitivity, dict):
        return [Fraction(sensitivity)]
    most = [sensitivity[name] for name in ("linf", "l1", "l2") if sensitivity[name] is not None]
    if sensitivity["each"] is None:
        return [Fraction(min(most))]
    return [Fraction(min([b, *most])) for b in sensitivity["each"]]


def widths(sensitivity: Json, dimension: int) -> list[Fraction]:
    """What each of so many coordinates changes by at most."""
    each = coordinates(sensitivity)
    return each * dimension if len(each) == 1 else each


def bounds_of(sensitivity: Json, dimension: int) -> tuple[Bounds, Fraction | None, Fraction | None]:
    """Return the bounds of single coordinates, and L₁ and L₂."""
    if not isinstance(sensitivity, dict):
        return [(Fraction(sensitivity), dimension)], None, None
    count, each = sensitivity["l0"] or dimension, coordinates(sensitivity)
    refuse(count > dimension, "more coordinates that change than there are")
    if sensitivity["each"] is None:
        return [(each[0], count)], *norms(sensitivity)
    if len(each) != dimension or min(sensitivity["each"]) < 0:
        raise Refused("bounds of other coordinates than the answer's, or negative ones")
    sizes = Counter(sorted((size for size in each if size > 0), reverse=True)[:count])
    refuse(not sizes, "bounds that allow no change")
    return sorted(sizes.items(), reverse=True), *norms(sensitivity)


def filled(bounds: Bounds, l1: Fraction | None) -> Fraction:
    """The largest Σ v² within ‖v‖₁ ≤ L₁: the largest bounds, filled."""
    square, left = Fraction(0), l1
    for size, count in bounds:
        if left is None:
            square += count * size**2
            continue
        whole = min(count, int(left / size))
        part = min(left - whole * size, size) if whole < count else Fraction(0)
        square, left = square + whole * size**2 + part**2, left - whole * size - part
    return square


def watered(bounds: Bounds, l2: Fraction) -> Fraction:
    """The largest ‖v‖₁ within ‖v‖₂ ≤ L₂, from above."""
    if sum(count * size**2 for size, count in bounds) <= l2**2:
        return sum((count * size for size, count in bounds), Fraction(0))

    def within(level: float) -> bool:
        return math.fsum(n * min(float(size), level) ** 2 for size, n in bounds) <= float(l2) ** 2

    _, high = between(0.0, float(bounds[0][0]), within)
    level, found = Fraction(high), Fraction(0)
    for size, count in bounds:
        v = min(size, level)
        found += count * (v - v * v / (2 * level))
    return found + l2**2 / (2 * level)


def reached(norm: float, bounds: Bounds, l1: Fraction | None, l2: Fraction | None) -> Fraction:
    """The largest norm of a change, from above."""
    if norm == math.inf:
        return bounds[0][0]
    if norm == 2:
        return min([root_above(filled(bounds, l1)), *([] if l2 is None else [l2])])
    parts = [sum((count * size for size, count in bounds), Fraction(0))]
    parts += [] if l1 is None else [l1]
    parts += [] if l2 is None else [watered(bounds, l2)]
    return min(parts)


WIDTH = 8
"""Points of the grid for each cell of a coordinate's losses, or of those of a round that is sampled."""
MOST_LOSSES, MOST_SHIFTS = 10**9, 64


class Term(NamedTuple):
    """Noise of a law at unit scale: what moves, in how many rounds, and the share of the people that a round sees."""

    name: str
    shapes: tuple[Decimal, ...]
    shifts: Shifts
    rounds: int = 1
    rate: Decimal = ONE

    @property
    def size(self) -> int:
        """Losses of all rounds; of one that is sampled."""
        return sum(count for _, count in self.shifts) * (self.rounds if self.rate == 1 else 1)

    @property
    def squares(self) -> Decimal:
        """Σ v² of one round."""
        return sum((count * v * v for v, count in self.shifts), ZERO)

    @property
    def ratio(self) -> Decimal:
        """Σ v²/σ² of Gaussian noise in all rounds."""
        return self.rounds * self.squares / (self.shapes[0] ** 2 if self.shapes else ONE)

    def together(self) -> Term:
        """Normal noise as that of one coordinate and one round, of each round that is sampled; other noise as it is."""
        if self.name != "norm":
            return self
        times = self.rounds if self.rate == 1 else 1
        shifts = [((self.squares * times).sqrt() * ROUND, 1)]
        return self._replace(shifts=shifts, rounds=self.rounds // times)

    @property
    def closed(self) -> bool:
        """Whether δ is in closed form, whatever the grid: of one loss, or of normal noise, and at most one sample."""
        alone = self.name == "norm" or self.rounds * sum(count for _, count in self.shifts) == 1
        return alone and (self.rate == 1 or self.rounds == 1)

    @property
    def slope(self) -> Decimal:
        """About what a shift by 1 loses."""
        if self.name == "discrete_gaussian":
            return 1 / self.shapes[0]
        return self.shapes[0] if self.name in ("dlaplace", *STAIRS) else ONE

    def before(self, epsilon: Decimal) -> Decimal:
        """The loss that becomes ε where a sample is seen."""
        return (1 + (epsilon.exp() - 1) / self.rate).ln()

    def round(self, grid: Grid, share: Decimal) -> tuple[list[Cell], Decimal]:
        """Cells of the loss of a round that sees everybody, and the mass whose loss is infinite; the sampled one's share of ε."""
        bend = self.before(share)
        if len(self.shifts) == self.shifts[0][1] == 1:
            return self.outcomes(grid, self.shifts[0][0], bend, self.rate)
        whole, origin = composed(grid, [self._replace(rounds=1)], bend)
        while len(whole.masses) > grid.points // 4:
            whole = grid.coarser(whole)
        masses = (
            (Decimal(m) / grid.unit, i * whole.step + origin) for i, m in enumerate(whole.masses, whole.first)
        )
        cells = [Cell(p, p * (-loss).exp(), loss, loss) for p, loss in masses]
        return cells, Decimal(whole.infinite) / grid.unit

    def losses(
        self, grid: Grid, shift: Decimal, bend: Decimal, unit: Decimal, alone: bool
    ) -> tuple[Losses, Decimal]:
        """The loss of one coordinate less an origin, the second, such that few or alike losses, with no others, are points of the grid."""
        origin = (
            shift if self.name == "laplace" else ZERO
        )  # where Σ r is just above ε, δ is the mass of the largest loss
        exact = alone and self.name in (*WHOLE, *STAIRS)
        if exact and self.name == "dlaplace":
            origin, unit = self.shapes[0] * shift, 2 * self.shapes[0]
        elif exact and self.name == "discrete_gaussian":
            origin, unit = (shift / self.shapes[0]) ** 2 / 2, 1 / self.shapes[0] ** 2
        elif exact:
            unit = self.shapes[0]
        cells, infinite = self.outcomes(grid, shift, bend)
        return grid.losses(from_origin(cells, origin), unit, infinite, exact=exact), origin

    def outcomes(
        self, grid: Grid, shift: Decimal, bend: Decimal, rate: Decimal = ONE
    ) -> tuple[list[Cell], Decimal]:
        """Cells of the loss of one coordinate, such as a sample at this rate asks for, and the mass whose loss is infinite."""
        if self.name in STAIRS:
            return composition.staircase_atoms(self.shapes, shift)
        if self.name in WHOLE:
            # tails of wide noise take longer
            each = 8 if self.name == "discrete_gaussian" and self.shapes[0] > composition.LISTED else 2
            cells, infinite = WHOLE[self.name](*self.shapes, shift).cells(
                int(shift), grid.points // each, bend
            )
            charge(composition.EXPONENTIAL * len(cells))
            return cells, infinite
        law = composition.CONTINUOUS[self.name](*self.shapes)
        charge(law.work * grid.points / WIDTH)
        return composition.continuous_cells(law, shift, grid.tail, bend, grid.points // WIDTH, rate)

    def alone(self, epsilon: Decimal) -> Decimal:
        """δ of one coordinate: P − e^ε Q of the outcomes whose loss is larger than ε."""
        ((shift, _),) = self.shifts
        growth = epsilon.exp()
        if self.name in (*WHOLE, *STAIRS):
            cells, infinite = self.outcomes(Grid(SLACK, 8), shift, epsilon)
            return infinite + sum((max(cell.p - growth * cell.q, ZERO) for cell in cells), SLACK)
        law = composition.CONTINUOUS[self.name](*self.shapes)
        low, high = law.around(epsilon, shift)
        return law.above(low - shift / 2) - growth * law.above(high + shift / 2) + SLACK

    def sampled(
        self, cells: list[Cell], infinite: Decimal, added: bool
    ) -> tuple[list[Cell], Decimal, Decimal]:
        """A round that sees a sample, for removing or adding a record, of its cells and infinite loss before.

        Returned are cells, what has infinite loss, and the loss of most outcomes, hardly more than the least that a removed record has.
        """
        rate, rest = self.rate, 1 - self.rate
        if not rest:  # of a symmetric pair: both directions lose alike
            return cells, infinite, ZERO

        @cache  # a cell ends where another one begins
        def seen(loss: Decimal) -> Decimal:
            charge(3 * composition.EXPONENTIAL)
            return (rate * loss.exp() + rest).ln()

        if added:
            found = [Cell(p, rest * p + rate * q, -seen(-low), -seen(-high)) for p, q, low, high in cells]
            found.append(Cell(infinite, rest * infinite, -rest.ln(), -rest.ln()))
            return found, ZERO, -rest.ln()
        missing = max(ONE - sum((cell.q for cell in cells), ZERO), ZERO)  # of Q alone
        found = [Cell(rate * p + rest * q, q, seen(low), seen(high)) for p, q, low, high in cells]
        found.append(Cell(rest * missing, missing, rest.ln(), rest.ln()))
        return found, rate * infinite, rest.ln()


def from_origin(cells: list[Cell], origin: Decimal) -> list[Cell]:
    """Cells of a loss less an origin."""
    growth = origin.exp()
    return [Cell(p, q * growth, low - origin, high - origin) for p, q, low, high in cells]


def composed(grid: Grid, terms: list[Term], epsilon: Decimal) -> tuple[Losses, Decimal]:
    """The loss of terms that see everybody, less an origin, the second; δ bends at ε, each coordinate's at its share of it."""
    whole = sum((v * count * term.rounds * term.slope for term in terms for v, count in term.shifts), ZERO)
    alone, origin, found = len(terms) == 1, ZERO, []
    times = terms[0].rounds if alone else 1
    largest = terms[0].slope * terms[0].shifts[-1][0]
    unit = epsilon or composition.short(largest)  # at ε = 0 alike losses may cancel: 0 is a grid point
    if epsilon and alone and terms[0].name != "laplace":
        unit = composition.short(epsilon / whole * largest)
    for term in terms:
        for shift, alike in term.shifts:
            # a cell that ends a last digit beyond a grid point would be spread over two steps
            losses, start = term.losses(
                grid, shift, composition.short(epsilon / whole * term.slope * shift), unit, alone
            )
            found.append(grid.power(losses, alike * term.rounds // times))
            origin += start * alike * term.rounds
    return grid.power(grid.all(found), times), origin


def delta_on(
    terms: list[Term],
    epsilon: Decimal,
    delta: Decimal,
    points: int = 0,
    kept: dict[bool, Decimal] | None = None,
) -> Decimal:
    """δ at ε of all terms, from above, on a grid of so many points; `delta` is about what it may be.

    Whether a record is added or removed, samples that are `kept` within the aim by a coarser grid need no finer one.
    """
    first, *others = terms
    if not others and first.rate < 1 and first.rounds == 1:
        everybody = first._replace(rate=ONE)
        part = delta_on([everybody], first.before(epsilon), delta / first.rate, points)
        return first.rate * part
    terms = [term.together() for term in terms]
    count, total = sum(term.size for term in terms), sum(term.rounds for term in terms)
    if count > MOST_LOSSES or total > MOST_LOSSES:
        raise TooLarge(f"too large to check: more than {MOST_LOSSES} losses are composed")
    if sum(len(term.shifts) for term in terms) > MOST_SHIFTS:
        raise TooLarge(f"too large to check: a composition of more than {MOST_SHIFTS} different losses")
    if not others and terms[0].closed:
        return terms[0].alone(epsilon)
    grid = Grid(delta * Decimal("1e-7") / (count * max(term.rounds for term in terms)), points)
    if all(term.rate == 1 for term in terms):
        whole, origin = composed(grid, terms, epsilon)
        return grid.delta(whole, epsilon - origin)
    seen, kept = [term.round(grid, epsilon / total) for term in terms], {} if kept is None else kept
    for added in {False, True} - kept.keys():
        direction = [term.sampled(*one, added) for term, one in zip(terms, seen)]
        # what most outcomes lose is a grid point, as is the loss where δ bends
        level = epsilon - sum((term.rounds * origin for term, (*_, origin) in zip(terms, direction)), ZERO)
        several = []
        for term, (cells, beyond, origin) in zip(terms, direction):
            one = grid.losses(from_origin(cells, origin), abs(level) / total or ONE, beyond)
            several.append(grid.power(one, term.rounds))
        kept[added] = grid.delta(grid.all(several), level)
    return max(kept.values())


def delta_of(
    cases: list[list[Term]], epsilon: Decimal, delta: Decimal, aim: Decimal | None = None
) -> Decimal:
    """δ at ε, from above, in one of the cases, each as bad as every change: in the least of the coarsest grid on finer ones."""

    aim = delta if aim is None else min(aim, delta)
    held = [(terms, dict[bool, Decimal]()) for terms in cases]

    def consumed(points: int) -> Decimal:
        nonlocal held
        held = [(terms, {way: found for way, found in kept.items() if found <= aim}) for terms, kept in held]
        found = [delta_on(terms, epsilon, delta, points, kept) for terms, kept in held]
        held = [held[found.index(min(found))]]
        return min(found)

    return composition.refined(consumed, aim)


def gathered(terms: list[Term]) -> list[Term]:
    """Several terms of one law that see everybody as one."""
    alike: dict[Json, list[Term]] = {}
    for k, term in enumerate(terms):
        alike.setdefault((term.name, term.shapes) if term.rate == 1 else k, []).append(term)
    found = []
    for first, *others in alike.values():
        moved = Counter[Decimal]()
        for term in [first, *others] if others else ():
            moved.update({shift: count * term.rounds for shift, count in term.shifts})
        found.append(
            first._replace(shifts=sorted(moved.items(), reverse=True), rounds=1) if others else first
        )
    return found


def joint(result: Json, account: Account) -> None:
    """Check that the noise of several mechanisms, all scales multiplied by the value, keeps the budget."""
    design, noises, value = result["design"], result["mechanism"]["noises"], Decimal(result["value"])
    if not design["privacy"].get("delta"):
        raise Refused("scales of several mechanisms under other privacy than (epsilon, delta) with delta > 0")
    same = len(noises) == len(design["terms"])
    for noise, term in zip(noises, design["terms"]):
        scale = law_of(term)[2] * value
        same = (
            same and {**noise, "law": ZERO} == {**term, "law": ZERO} and law_of(noise)[:2] == law_of(term)[:2]
        )
        same = same and abs(Fraction(law_of(noise)[2] / scale) - 1) <= reading.LOST
    account.agrees("the noise is that of the terms, all scales multiplied by the value", same)
    account.agrees("all noise is for the same neighbours", len(set(map(near, noises))) == 1)
    spent, budget = reading.proofs_of(result)["law-proof"]["given"], budget_of(design["privacy"])
    aim = Decimal(spent["upper"]) + budget * NEAR_UPPER
    found, _ = consumed([terms_of(noise)[:1] for noise in noises], design["privacy"], account, aim)
    enclosed(spent, budget, found, False, account)


NEAR_ENDS = Decimal("1e-10")
"""How far the ends of an enclosure may come out elsewhere, relative."""
NEAR_UPPER = Decimal("0.01")
"""By how much what is found may be above the end stated, as a share of the budget: grids are as fine as it asks, and one step more."""
NAMES = {"gaussian": "norm", "discrete_laplace": "dlaplace"}


def calibration(result: Json, account: Account) -> None:
    design, noise, value = result["design"], result["mechanism"], result["value"]
    law, wanted, privacy = noise["law"], design["noise"], design["privacy"]
    if not all(1e-100 <= privacy.get(name, 1.0) <= 1e100 for name in ("epsilon", "rho", "mu")):
        raise Refused("a budget for which no noise is calibrated")
    for name in ("sensitivity", "dimension", "rounds", "sampling_rate"):
        account.agrees(f"the noise is for the {name} that the design states", noise[name] == design[name])
    if isinstance(wanted, dict):
        name, same = wanted["name"], wanted["args"] == law["args"]
    else:
        name, same = NAMES.get(wanted, wanted), True
    account.agrees("the noise is of the family asked for", name == law["name"] and same)
    spent = reading.proofs_of(result)["law-proof"]["given"]
    refuse(spent is None, "no enclosure of what is consumed")
    additive(noise, privacy, design["loss"], value, account, spent)
    if result["lower_bound"] is not None:
        claim = f"no private noise of this class ({reading.spoken_of(result)}) costs less than {result['lower_bound']!r}"
        account.claimed(claim)


def additive(
    noise: Json, privacy: Json, loss: str, value: float, account: Account, spent: Json = None
) -> None:
    """Check the loss of additive noise, and what it consumes on the changes that it states."""
    name, shapes, scale = law_of(noise)
    power = {"squared": 2, "absolute": 1}[loss]
    cost = Fraction(composition.COSTS[name](power, *shapes) * scale**power)
    account.costs(f"the {loss} loss is at most {value!r}", cost, value)
    left = cost - Fraction(value) * (1 - 10**6 * reading.LOST)
    account.agrees("the value is no more than the loss", left >= 0, left)
    budget = budget_of(privacy)
    aim = budget if spent is None else min(budget, Decimal(spent["upper"]) + budget * NEAR_UPPER)
    found, exact = consumed([terms_of(noise, privacy[""] == "zcdp")], privacy, account, aim)
    if spent is not None:
        enclosed(spent, budget, found, exact, account)


def budget_of(privacy: Json) -> Decimal:
    """Return the budget; of several points 1, as shares of each are compared."""
    if privacy[""] == "trade-off":
        return ONE
    return Decimal(
        privacy.get("rho") or privacy.get("mu") or reading.points_of(privacy)[0][1] or privacy["epsilon"]
    )


def law_of(noise: Json) -> tuple[str, tuple[Decimal, ...], Decimal]:
    """The family, shapes and scale of additive noise; of the normal member of another family those of the normal law."""
    law, name = noise["law"], noise["law"]["name"]
    if name not in composition.COSTS:
        raise NotCovered(f"noise of the law {name}")
    if set(law) - {"", "name", "args", "scale"}:
        raise NotCovered(f"noise of the law {name} with other parameters than shapes and a scale")
    shapes, scale = tuple(map(Decimal, law["args"])), Decimal(law.get("scale", 1))
    if not all(x.is_finite() for x in (*shapes, scale)) or not 0 < scale < Decimal("1e154"):
        raise Refused("a scale that is not positive, or whose square no double holds")
    refuse(not proper(name, shapes), f"a shape that no law {name} has")
    if name in ("osgt", "flipped_huber") and shapes[0] == 0:
        return "norm", (), scale
    if name == "gennorm" and shapes[0] == 2:
        return "norm", (), scale * HALF.sqrt()
    return name, shapes, scale


def near(noise: Json) -> str:
    """Who are neighbours."""
    changes = noise["sensitivity"]
    return str(changes["neighbours"]) if isinstance(changes, dict) else "add-remove"


def enclosed(spent: Json, budget: Decimal, found: Decimal, exact: bool, account: Account) -> None:
    """Compare the enclosure stated with what is consumed, or with an upper bound of that: then the enclosure is claimed."""
    lower, upper = Decimal(spent["lower"]), Decimal(spent["upper"])
    left = min(upper - lower, budget - upper, found * (1 + NEAR_ENDS) + SLACK - lower)
    if exact:
        left = min(left, upper + SLACK - found * (1 - NEAR_ENDS))
        account.agrees("the enclosure stated holds what is consumed", left >= 0, left)
        return
    claim = f"what is consumed is from {spent['lower']!r} to {spent['upper']!r}, {spent['how']}"
    left = min(left, upper + budget * NEAR_UPPER - found)
    account.claimed(claim, left >= 0, left)


def consumed(
    noises: list[list[Term]], privacy: Json, account: Account, aim: Decimal | None = None, whose: str = ""
) -> tuple[Decimal, bool]:
    """Check that all noise together keeps the budget; return what it consumes, and whether that is exact (else it is rounded up).

    Of each noise every term is as bad as every change. `aim`: how little of the budget it should be seen to be, if it is.
    """
    kind, budget = privacy[""], budget_of(privacy)
    least = [min(cases, key=lambda case: case.squares) for cases in noises]
    square, sharp = sum((term.ratio for term in least), ZERO), all(len(cases) == 1 for cases in noises)
    names, sampled = {term.name for term in least}, any(term.rate < 1 for term in least)
    if kind == "gaussian-dp":
        refuse(sampled or names != {"norm"}, "a requirement that normal noise alone meets, without samples")
        account.at_most(f"mu at most {privacy['mu']!r}{whose}", square, budget**2 * ROUND)
        return square.sqrt(), sharp
    if kind == "zcdp":
        refuse(sampled, "a sampling rate under zero-concentrated privacy")
        if others := names - {"norm", "discrete_gaussian"}:
            raise NotCovered(f"zero-concentrated privacy of noise of the law {min(others)}")
        beyond = f" beyond xi = {privacy['xi']!r}" if privacy["xi"] else ""
        # D_α is proportional to α, so that ξ helps at α = 1 only
        account.at_most(f"rho at most {privacy['rho']!r}{beyond}{whose}", square / 2, budget * ROUND)
        return square / 2, sharp and names == {"norm"} and not privacy["xi"]
    shortest = [min(cases, key=most_lost) for cases in noises]
    most = sum((term.rounds * most_lost(term) for term in shortest), ZERO)
    # of several noises the better bound may be that of the least loss, or that of the least variance
    several = [shortest] if shortest == least else [shortest, least]
    cases = [gathered(terms) for terms in several] if noises[1:] else [[case] for case in noises[0]]
    closed, shares = all(len(terms) == 1 and terms[0].closed for terms in cases), []
    for e, d in reading.points_of(privacy):
        epsilon, delta = Decimal(e), Decimal(d)
        if not d:
            account.at_most(f"privacy loss at most {e!r}{whose}", most, epsilon * ROUND)
            shares.append(most / epsilon)
        elif d < 1:
            # what loses at most so much is (ε, 1 − e^(ε − most))-private; where no loss is above ε δ is 0
            found = SLACK if most <= epsilon else 1 - (epsilon - most).exp()
            wanted = delta if aim is None else aim / budget * delta
            if found > SLACK and (closed or found > wanted):
                found = delta_of(cases, epsilon, delta, wanted)
            account.bounds(f"delta at most {d!r} at epsilon = {e!r}{whose}", found, delta)
            shares.append(found / delta)
    return max(shares) * budget, sharp and (closed or not any(d for _, d in reading.points_of(privacy)))


def terms_of(noise: Json, concentrated: bool = False) -> list[Term]:
    """Noise on the changes that it states: lists of shifts, `worst_shifts` in units of the scale, each as bad as every change.

    Under concentrated privacy discrete Gaussian noise consumes as normal noise does.
    """
    (name, shapes, scale), rate = law_of(noise), Decimal(noise["sampling_rate"])
    if near(noise) == "replace" and rate < 1:
        raise NotCovered("samples of records of which one is replaced")
    alike = "norm" if concentrated and name == "discrete_gaussian" else name
    stated = worst_shifts(noise["sensitivity"], noise["dimension"], alike)
    cases = ([(v / scale, count) for v, count in shifts] for shifts in stated)
    return [Term(name, shapes, shifts, noise["rounds"], rate) for shifts in cases]


def most_lost(term: Term) -> Decimal:
    """The largest loss of a round."""
    most = sum((count * largest_loss(term.name, term.shapes, v) for v, count in term.shifts), ZERO)
    return most if term.rate == 1 or not most.is_finite() else (1 + term.rate * (most.exp() - 1)).ln()


def largest_loss(name: str, shapes: tuple[Decimal, ...], shift: Decimal) -> Decimal:
    """The largest privacy loss at a shift, in units of the scale; infinite where it has no end."""
    if name in ("laplace", "logistic") or (name == "gennorm" and shapes[0] == 1):
        return shift
    if name == "dlaplace":
        return shapes[0] * shift
    if name == "staircase" and shift <= 1:
        return shapes[0]
    return Decimal("Infinity")


def proper(name: str, shapes: tuple[Decimal, ...]) -> bool:
    """Whether a law of the family has these shapes: it is log-concave then, or a staircase."""
    if name in STAIRS:
        epsilon, gamma, answered = (*shapes, ZERO)[:3]
        return epsilon > 0 and 0 <= gamma <= 1 and 0 <= answered < 1
    if name in ("osgt", "flipped_huber", "gennorm"):
        return shapes[0] >= (1 if name == "gennorm" else 0)
    most = Decimal(745) if name == "dlaplace" else Decimal("1e154")  # its variance is a double then
    return all(1 / Decimal("1e154") < shape < most for shape in shapes)

"""Calibrated noise: what all coordinates and rounds consume of the budget, and what an error costs.

A change moves coordinate i by at most v_i. Independent noise of a symmetric log-concave law loses most where every v_i is as large as
it can be: larger shifts have hockey-stick curves that are nowhere lower, and so have their products. So the losses at these shifts
are composed (`mechdesign.verifier.composition`). Normal noise is one coordinate of shift (Σ v_i²/σ²)^½; one coordinate alone
has δ = P(L > ε) − e^ε Q(L > ε), in closed form.

A round that sees a Poisson sample at rate q has the losses of q P + (1 − q) Q against Q and of P against (1 − q) P + q Q, the second
by symmetry: both curves rise with that of (P, Q).
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, localcontext
from fractions import Fraction

from mechdesign.verifier.composition import PLACES, Cell, Grid, Losses
from mechdesign.verifier.noise_laws import (
    CONTINUOUS,
    COSTS,
    DISCRETE,
    ONE,
    ZERO,
    Law,
    continuous_cells,
)
from mechdesign.verifier.reading import Account, Json, NotCovered, Refused

NAMES = {"gaussian": "norm", "discrete_laplace": "dlaplace"}
CELLS = 2**12
MOST_LOSSES = 10**6


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
    if law["name"] not in COSTS:
        raise NotCovered(f"noise of the law {law['name']}")
    if set(law) - {"", "name", "args", "scale"}:
        raise NotCovered("laws with other parameters than shapes and a scale")
    shapes, scale = [Decimal(x) for x in law["args"]], Decimal(law.get("scale", 1))
    if scale <= 0 or not all(x.is_finite() for x in (*shapes, scale)):
        raise Refused("a scale that is not positive and finite")
    power = {"squared": 2, "absolute": 1}[design["loss"]]
    cost = Fraction(COSTS[law["name"]](power, *shapes) * scale**power)
    account.bounds(f"the {design['loss']} loss is at most {value!r}", cost, Fraction(value), Fraction(value) / 10**9)
    shifts = [(Decimal(v) / scale, count) for v, count in changes(design["sensitivity"], design["dimension"], law["name"])]
    rounds, rate = design["rounds"], Decimal(design["sampling_rate"])
    if not 0 < rate <= 1 or rounds < 1:
        raise Refused("rounds or a sampling rate that are none")
    if privacy[""] == "zcdp":
        if law["name"] not in ("norm", "discrete_gaussian") or rate < 1:
            raise NotCovered("zero-concentrated privacy of noise that is not Gaussian")
        width = ONE if law["name"] == "norm" else shapes[0]
        found = rounds * sum(count * (v / width) ** 2 for v, count in shifts) / 2
        account.bounds(f"rho at most {privacy['rho']!r}", found * (1 - Decimal("1e-50")), Decimal(privacy["rho"]) + Decimal(privacy.get("xi", 0)))
    elif not privacy.get("delta"):
        found = sum(count * largest_loss(law["name"], shapes, v) for v, count in shifts)
        if rate < 1:
            found = (1 + rate * (found.exp() - 1)).ln()
        account.bounds(f"privacy loss at most {privacy['epsilon']!r}", rounds * found * (1 - Decimal("1e-50")), Decimal(privacy["epsilon"]))
    else:
        delta = composed(law["name"], shapes, shifts, rounds, rate, Decimal(privacy["epsilon"]), Decimal(privacy["delta"]))
        account.proved(f"delta at most {privacy['delta']!r} at epsilon = {privacy['epsilon']!r}", delta <= Decimal(privacy["delta"]))
    if result["lower_bound"] is not None:
        account.claimed(f"no private noise of the kind that the proof names loses less than {result['lower_bound']!r}")


def changes(sensitivity: Json, dimension: int, name: str) -> list[tuple[float, int]]:
    """The largest changes of coordinates, each with how many coordinates may change so much at once."""
    if not isinstance(sensitivity, dict):
        return [(sensitivity, dimension)]
    raise NotCovered("several bounds of a change")


def largest_loss(name: str, shapes: list[Decimal], shift: Decimal) -> Decimal:
    """The largest privacy loss at a shift, in units of the scale; infinite where it has no end."""
    if name in ("laplace", "logistic") or (name == "gennorm" and shapes[0] == 1):
        return shift
    if name == "dlaplace":
        return shapes[0] * shift
    if name == "staircase" and shift <= 1:
        return shapes[0]
    return Decimal("Infinity")


def composed(
    name: str,
    shapes: list[Decimal],
    shifts: list[tuple[Decimal, int]],
    rounds: int,
    rate: Decimal,
    epsilon: Decimal,
    delta: Decimal,
) -> Decimal:
    """δ at ε of all rounds and coordinates, from above."""
    times = rounds if rate == 1 else 1
    if name == "norm" or (name in ("osgt", "flipped_huber") and shapes == [ZERO]):
        square = sum(count * v * v for v, count in shifts) * times
        name, shapes, shifts, times = "norm", [], [(square.sqrt() * (1 + Decimal("1e-50")), 1)], 1
    losses = sum(count for _, count in shifts) * times
    if losses > MOST_LOSSES or rounds > MOST_LOSSES:
        raise NotCovered(f"more than {MOST_LOSSES} losses are too large to check")
    law = CONTINUOUS[name](*shapes) if name in CONTINUOUS else None
    if losses == 1 and rate == 1:
        return alone(law, name, shapes, shifts[0][0], epsilon)
    grid = Grid(delta * Decimal("1e-9") / (losses * rounds))
    parts = [losses_at(grid, law, name, shapes, v, epsilon / losses) for v, _ in shifts]
    whole: Losses | None = None
    for part, (_, count) in zip(parts, shifts):
        several = grid.power(part, count * times)
        whole = several if whole is None else grid.product(whole, several)
    assert whole is not None
    if rate == 1:
        return grid.delta(whole, epsilon)
    return max(grid.delta(grid.power(one, rounds), epsilon) for one in sampled(grid, whole, rate, epsilon / rounds))


def losses_at(grid: Grid, law: Law | None, name: str, shapes: list[Decimal], shift: Decimal, share: Decimal) -> Losses:
    """The loss of one coordinate, on a step of which this share of ε is a multiple: there δ has a kink."""
    infinite = ZERO
    if law is None:
        cells = DISCRETE[name](*shapes, shift)
    else:
        reach = shift
        while law.above(reach - shift / 2) > grid.tail:
            reach *= Decimal("1.25")
        cells, infinite = continuous_cells(law, shift, reach, CELLS)
        if not cells:
            return Losses(share, 0, [0], grid.up(ONE))
    top = max(cell.high for cell in cells if cell.p > grid.tail)
    step = share
    while step > top / 2**14:
        step /= 2
    return grid.losses((cell for cell in cells), step, infinite)


def sampled(grid: Grid, whole: Losses, rate: Decimal, share: Decimal) -> Iterable[Losses]:
    """The losses of a sampled round in both directions."""
    for sign in (1, -1):
        cells, total = [], ZERO
        for i, mass in enumerate(whole.masses, whole.first):
            if mass:
                p, fall = Decimal(mass) / grid.unit, (-i * whole.step).exp()
                if sign == 1:
                    p *= rate + (1 - rate) * fall
                    loss = (rate / fall + 1 - rate).ln()
                else:
                    loss = -(1 - rate + rate * fall).ln()
                cells.append(Cell(p, p * (-loss).exp(), loss, loss))
                total += p
        infinite = Decimal(whole.infinite) / grid.unit * (rate if sign == 1 else 1)
        top = max(cell.high for cell in cells)
        step = share
        while step > top / 2**14:
            step /= 2
        yield grid.losses(cells, step, infinite + max(ONE - total - infinite, ZERO))


def alone(law: Law | None, name: str, shapes: list[Decimal], shift: Decimal, epsilon: Decimal) -> Decimal:
    """δ of one coordinate: P − e^ε Q of the outcomes whose loss is larger than ε."""
    growth = epsilon.exp()
    if law is None:
        return sum((max(cell.p - growth * cell.q, ZERO) for cell in DISCRETE[name](*shapes, shift)), ZERO)
    half, low, high = shift / 2, ZERO, shift

    def loss(s: Decimal) -> Decimal:
        return law.exponent(s + half) - law.exponent(abs(s - half)) if s + half < law.end else Decimal("Infinity")

    while loss(high) <= epsilon:
        high *= 2
        if law.above(high - half) < Decimal("1e-50"):
            break
    for _ in range(170):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) <= epsilon else (low, middle)
    # Outcomes beyond `low`; those between the two ends lose hardly more than ε.
    return law.above(low - half) - growth * law.above(high + half) + Decimal("1e-48")

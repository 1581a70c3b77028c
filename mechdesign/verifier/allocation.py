"""Allocations of independent Laplace and Gaussian noise: what they consume, limits, loss, and the bound by weak duality.

Moved by v, coordinates of scales s lose what coordinates of scale 1 lose that are moved by v/s. Larger ratios are never more private, so the
worst change moves every coordinate by all it may; under several bounds what counts is the largest Σ (|v_i|/s_i)^m
(`mechdesign.verifier.changes`): μ² of Gaussian noise, m = 2, and of Laplace noise, m = 1, the largest loss E. Then

- ρ = μ²/2, and δ(ε) is that of one normal coordinate moved by μ;
- δ(ε) ≤ 1 − e^(ε − E) of Laplace noise (Muthukrishnan and Kalyani, Corollary 6), and 1 − e^((ε − E)/2) where one coordinate changes.
- the losses of both types are composed (`mechdesign.verifier.composition`), normal ones as one, of ratio (Σ r²)^½. What is τ-private
  without δ leaves ε − τ to the others. Where Laplace ratios alone, as of a plan, sum to e more than ε, and no r is below e/2, the loss is
  Σ r − 2 Σ max(x, 0) wherever it is above ε: δ is in closed form (`barely_above`).
"""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction

from mechdesign.verifier.allocation_bound import lower_bound, moment
from mechdesign.verifier.changes import changes_of, keep_budget, total_at_most
from mechdesign.verifier.composition import PLACES, SLACK, Grid, laplace_losses, refined
from mechdesign.verifier.noise_laws import ONE, PI, ROUND, ZERO, continuous_cells, normal
from mechdesign.verifier.reading import (
    NEAR,
    Account,
    Json,
    NotCovered,
    Refused,
    TooLarge,
    flat,
    points_of,
    proofs_of,
)

WIDTH = 16
"""Points of the grid for each cell of normal noise."""
SMALL = Decimal(2) ** -16
"""Of the largest Laplace ratio: smaller ones are composed by their sum."""
MOST_RATIOS = 64
MOST_COUNTED = 5000


def allocation(result: Json, account: Account) -> None:
    with localcontext() as context:
        context.prec = PLACES
        check(result, account)


def check(result: Json, account: Account) -> None:
    design, law, value = result["design"], result["mechanism"], result["value"]
    noise, lam, scales, order = design["noise"], design["sensitivities"], law["scales"], design["loss"]
    proofs = proofs_of(result)
    if len(proofs) != len(result["proofs"]) or not {*proofs} <= {"allocation-proof", "mixed-proof"}:
        raise Refused("evidence other than one proof of an allocation")
    if type(order) not in (int, float) or not 0 < order <= 100:
        raise NotCovered("losses that are no power from 0 to 100")
    mixed = law[""] == "mixed-noise"
    peaked = law["laplace"] if mixed else [law["noise"] == "laplace"] * len(scales)
    alike = noise == "mixed" if mixed else law["noise"] == noise and noise in ("laplace", "gaussian")
    account.agrees("the noise is the design's", alike and len(lam) == len(scales) == len(peaked))
    account.agrees("sensitivities are not negative", min(lam) >= 0)
    own = law["sensitivities"] == lam and repr(law.get("bounds")) == repr(design["bounds"])
    account.agrees("the noise is made for the changes that the design states", own)
    sure = all(s > 0 or not l for s, l in zip(scales, lam)) and min(scales) >= 0
    account.proved("every sensitive coordinate has noise", sure)
    if not sure:
        return
    private(design, proofs.get("allocation-proof"), scales, peaked, account)
    limits = (
        otherwise if design[name] is None else design[name]
        for name, otherwise in (("lower", 0.0), ("upper", math.inf))
    )
    lower, upper = (v if isinstance(v, list) else [v] * len(scales) for v in limits)
    stated = design["weights"]
    weights = stated if isinstance(stated, list) else [1.0 if stated is None else stated] * len(lam)
    whole = all(len(v) == len(lam) for v in (lower, upper, weights)) and min(weights) > 0
    account.agrees("limits and weights are of the coordinates", whole)
    account.proved("limits are kept", all(a <= s <= b for a, s, b in zip(lower, scales, upper)))
    loss(value, scales, weights, peaked, order, account)
    groups = [[i] for i in range(len(lam))] if design["groups"] is None else design["groups"]
    account.agrees("groups part the coordinates", sorted(flat(groups)) == list(range(len(lam))))
    account.proved("groups share a scale", all(len({scales[i] for i in group}) == 1 for group in groups))
    if result["lower_bound"] is not None:
        limited = (lam, weights, lower, upper, groups)
        lower_bound(result, proofs.get("allocation-proof"), limited, account)


def private(design: Json, proof: Json, scales: list[Json], peaked: list[bool], account: Account) -> None:
    """That the worst change keeps the budget."""
    privacy, lam = design["privacy"], design["sensitivities"]
    ratios = [(Fraction(l) / Fraction(s), kind) for l, s, kind in zip(lam, scales, peaked) if l]
    m, several = 1 if all(peaked) else 2, design["bounds"]
    changes = None if several is None else changes_of(several, len(lam))
    if changes is not None:
        account.agrees("sensitivities are those of the bounds", [Fraction(l) for l in lam] == changes.sizes)
        if proof is None or design["noise"] == "mixed":
            raise Refused("several bounds without a proof of what they consume")

    def within(budget: Fraction) -> bool:
        if changes is None:
            return total_at_most([ratio**m for ratio, _ in ratios], budget)
        return keep_budget(changes, [Fraction(s) for s in scales], m, proof, budget)

    if privacy[""] == "pure-dp" and m == 1:
        epsilon = privacy["epsilon"]
        account.proved(f"privacy loss at most {epsilon!r}", within(Fraction(epsilon)))
    elif not any(peaked):
        words = [f"{name} at most {privacy[name]!r}" for name in ("rho", "mu") if name in privacy]
        words = words or [f"delta at most {d!r} at epsilon = {e!r}" for e, d in points_of(privacy)]
        account.proved("; ".join(words), within(largest_square(privacy)))
    elif privacy[""] in ("approximate-dp", "membership-advantage", "trade-off"):
        one = len(ratios) == 1 or (changes is not None and changes.l0 == 1)
        for e, d in points_of(privacy):
            if d == 1:
                continue
            epsilon, delta = Decimal(e), Decimal(d)
            holds = m == 1 and within(Fraction(epsilon - (2 if one else 1) * (1 - delta).ln() / ROUND))
            if not holds and delta and design["noise"] == "mixed":
                sizes = Counter(Decimal(rounded_up(r)) for r, kind in ratios if kind)
                square = sum((Decimal(r.numerator) / r.denominator) ** 2 for r, kind in ratios if not kind)
                holds = composed_delta(epsilon, delta, sizes, square * ROUND, account) <= delta
            account.proved(f"delta at most {d!r} at epsilon = {e!r}", holds)
    else:
        raise Refused(f"{design['noise']} noise under {privacy['']}")


def rounded_up(ratio: Fraction) -> float:
    """A ratio to 48 bits: those that differ by the rounding of their scales alone are composed as one."""
    mantissa, exponent = math.frexp(ratio)
    found = math.ldexp(math.ceil(mantissa * 2.0**48), exponent - 48)
    return found if Fraction(found) >= ratio else math.nextafter(found, math.inf)


def largest_square(privacy: Json) -> Fraction:
    """μ² that Gaussian noise may consume, from below."""
    if privacy[""] == "zcdp":
        return 2 * Fraction(privacy["rho"])
    if privacy[""] == "gaussian-dp":
        return Fraction(privacy["mu"]) ** 2
    points = points_of(privacy)
    if not all(0 < d < 1 for _, d in points):
        raise Refused("Gaussian noise under pure privacy")
    with localcontext() as context:
        context.prec = PLACES
        return min(Fraction(normal_square(Decimal(e), Decimal(d))) for e, d in points)


def smallest_beyond(privacy: Json) -> Fraction:
    """μ² that Gaussian noise may consume, from above: at it some δ is exceeded."""
    most = largest_square(privacy)
    if privacy[""] in ("zcdp", "gaussian-dp"):
        return most
    with localcontext() as context:
        context.prec = PLACES
        ratio = (Decimal(most.numerator) / most.denominator).sqrt() * (1 + Decimal("1e-13"))
        over = (normal_delta(Decimal(e), ratio) - 3 * SLACK > Decimal(d) for e, d in points_of(privacy))
        if not any(over):
            raise Refused("a budget that is not enclosed")
        return Fraction(ratio) ** 2


def normal_square(epsilon: Decimal, delta: Decimal) -> Decimal:
    """μ² of a normal coordinate with this δ at ε, from below."""
    if delta >= 1:
        raise Refused("a delta of 1 or more")
    low, high = ZERO, Decimal(1)
    while normal_delta(epsilon, high) <= delta:
        high *= 2
    for _ in range(130):
        middle = (low + high) / 2
        low, high = (middle, high) if normal_delta(epsilon, middle) <= delta else (low, middle)
    return low * low / ROUND


def normal_delta(epsilon: Decimal, ratio: Decimal) -> Decimal:
    law = normal()
    near, far = epsilon / ratio - ratio / 2, epsilon / ratio + ratio / 2
    return law.above(near) - epsilon.exp() * law.above(far) + SLACK


def barely_above(excess: Decimal, count: int) -> Decimal:
    """δ = Σ_n 2^(−K) (K over n) E max(1 − e^(2X − e), 0), X a gamma variable of shape n: n of the K coordinates x are positive.

    With h = e/2 the expectation is P(X < h) − e^(−2h) J, J = ∫ e^t t^(n − 1)/(n − 1)! dt from 0 to h; both from n − 1.
    """
    half = excess / 2
    chance, below, integral, power = Decimal(2) ** -count, ONE, ZERO, ONE  # power: h^(n − 1)/(n − 1)!
    found = chance * (1 - (-excess).exp())
    for n in range(1, count + 1):
        chance *= Decimal(count - n + 1) / n
        below -= power / half.exp()
        integral = power * half.exp() - integral - (1 if n == 1 else 0)
        found += chance * max(below - integral / excess.exp(), ZERO)
        power *= half / n
    return found + count * SLACK


def composed_delta(
    epsilon: Decimal, delta: Decimal, laplace: Counter[Decimal], normal_square: Decimal, account: Account
) -> Decimal:
    """δ at ε, from above; of a budget of about `delta`. Laplace ratios are counted."""
    largest = max(laplace, default=ZERO)
    alone = Counter({r: count for r, count in laplace.items() if r >= SMALL * largest and r > 0})
    epsilon -= sum((r * count for r, count in laplace.items() if r < SMALL * largest), ZERO) * ROUND
    if epsilon < 0:  # as noise is symmetric, δ(−τ) = 1 − e^(−τ) (1 − δ(τ))
        return 1 - epsilon.exp() * (1 - composed_delta(ZERO, delta, alone, normal_square, account)) + SLACK
    if not alone:
        return normal_delta(epsilon, normal_square.sqrt() * ROUND) if normal_square else ZERO
    if alone.total() == 1 and not normal_square:
        return max(1 - ((epsilon - largest) / 2).exp(), ZERO) + SLACK
    if len(alone) > MOST_RATIOS or alone.total() > 10**9:
        raise TooLarge(
            f"too large to check: a composition of more than {MOST_RATIOS} different Laplace ratios"
        )
    top = sum((r * count for r, count in alone.items()), ZERO)  # the largest Laplace loss
    if not normal_square and top <= epsilon:
        return ZERO
    if not normal_square and top - epsilon <= 2 * min(alone) and alone.total() <= MOST_COUNTED:
        return barely_above(top - epsilon, alone.total())
    unit, ratio = epsilon or ONE, normal_square.sqrt() * ROUND

    def consumed(points: int) -> Decimal:
        grid = Grid(delta * Decimal("1e-9") / (alone.total() + 1), points, account)
        parts = [grid.power(laplace_losses(grid, r, unit), count) for r, count in alone.items()]
        if normal_square:
            account.takes(normal().work * points / WIDTH)
            cells, infinite = continuous_cells(
                normal(), ratio, grid.tail, epsilon * ratio / (top + ratio), points // WIDTH
            )
            parts.append(grid.losses(cells, unit, infinite))
        return grid.delta(grid.all(parts), epsilon - top)

    return refined(consumed, delta, delta, account)


def loss(
    value: float, scales: list[Json], weights: list[Json], peaked: list[bool], order: float, account: Account
) -> None:
    """That Σ w s^p E|T|^p is at most the value: for whole p in decimals, Γ being a product."""
    claim, room = f"the value is at most {value:.12g}", NEAR / 1000
    if order == int(order):
        p = int(order)
        odd = math.prod(range(p - 1, 0, -2))
        normal = Decimal(odd) * ((2 / PI).sqrt() * ROUND if p % 2 else 1)
        moments = {True: Decimal(math.factorial(p)), False: normal}
        terms = (Decimal(w) * Decimal(s) ** p * moments[kind] for w, s, kind in zip(weights, scales, peaked))
        account.bounds(claim, Fraction(sum(terms, ZERO) / ROUND), value, Fraction(value) * Fraction(room))
        return
    moments_of = {kind: moment(order, kind) for kind in (True, False)}
    cost = math.fsum(w * s**order * moments_of[kind] for w, s, kind in zip(weights, scales, peaked))
    account.recomputed(claim, cost * (1 - room) <= value)

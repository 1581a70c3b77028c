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
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

from mechdesign.verifier.changes import Shifts, changes_of, keep_budget, total_at_most
from mechdesign.verifier.composed_noise import Asked
from mechdesign.verifier.composition import PLACES, SLACK, Grid, laplace_losses, refined
from mechdesign.verifier.noise_laws import ONE, ROUND, ZERO
from mechdesign.verifier.reading import (
    Account,
    Json,
    NotCovered,
    Refused,
    TooLarge,
    flat,
    points_of,
    proofs_of,
)
from mechdesign.verifier.scales import (
    Need,
    kept,
    loss,
    lower_bound,
    normal_delta,
    normal_ends,
    of_allocation,
    of_problem,
    one_moves,
)

Part = tuple[str, tuple[Decimal, ...], Shifts]
"""A law at unit scale with its shapes, and what moves."""
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
    scales, proofs = law["scales"], proofs_of(result)
    if len(proofs) != len(result["proofs"]) or not {*proofs} <= {"allocation-proof", "mixed-proof"}:
        raise Refused("evidence other than one proof of an allocation")
    asked, proof = (
        (of_problem if design[""] == "scales-problem" else of_allocation)(design),
        proofs.get("allocation-proof"),
    )
    order, size = asked.order, len(asked.weights)
    if type(order) not in (int, float) or not 0 < order <= 100:
        raise NotCovered("losses that are no power from 0 to 100")
    mixed = law[""] == "mixed-noise"
    peaked = law["laplace"] if mixed else [law["noise"] == "laplace"] * len(scales)
    alike = (
        asked.noise == "mixed"
        if mixed
        else law["noise"] == asked.noise and asked.noise in ("laplace", "gaussian")
    )
    account.agrees("the noise is the design's", alike and size == len(scales) == len(peaked))
    account.agrees("sensitivities are not negative", all(min(need.sizes) >= 0 for need in asked.needs))
    own = any(
        law["sensitivities"] == n.sizes and repr(law.get("bounds")) == repr(n.bounds) for n in asked.needs
    )
    account.agrees("the noise is made for the changes that the design states", own)
    sure = (
        all(s > 0 or not l for need in asked.needs for s, l in zip(scales, need.sizes)) and min(scales) >= 0
    )
    account.proved("every sensitive coordinate has noise", sure)
    account.agrees("weights are of the coordinates", min(asked.weights) > 0)
    if not sure or not own or not alike or size != len(scales):
        return
    if len(asked.needs) > 1:
        stated = Need("", None, law["sensitivities"], law["bounds"])
        widest = max(widened(need, scales, asked.spend) for need in asked.needs)
        account.recomputed(
            "the lattice is paid for under every requirement", widened(stated, scales, asked.spend) >= widest
        )
    for k, need in enumerate(asked.needs):
        private(asked.noise, need, proof, k, scales, peaked, account)
    kept(asked, scales, account)
    loss(value, scales, asked.weights, peaked, order, account)
    if design[""] == "noise-allocation" and design["groups"] is not None:
        account.agrees("groups part the coordinates", sorted(flat(design["groups"])) == list(range(size)))
    if result["lower_bound"] is not None:
        if mixed or proof is None:
            raise Refused("a lower bound of a search over types, which has none, or without multipliers")
        lower_bound(
            asked, proof, (result["lower_bound"], value), " within these rows" if asked.rows else "", account
        )


def widened(need: Need, scales: list[float], m: int) -> float:
    """By how much noise on multiples of 2⁻³⁰ of each scale is wider."""
    ratios = [l / s for l, s in zip(need.sizes, scales) if l]
    if need.bounds is None:
        wanted, spent = (math.fsum((r + step) ** m for r in ratios) for step in (2.0**-29, 0.0))
        return float((wanted / spent) ** (1 / m))
    count = min(need.bounds["l0"] or len(ratios), len(ratios))
    return 1 + 2.0**-29 * float(count ** (1 / m)) / max(ratios)


def private(
    noise: str, need: Need, proof: Json, k: int, scales: list[Json], peaked: list[bool], account: Account
) -> None:
    """That the worst change keeps the budget."""
    privacy, lam, several = need.privacy, need.sizes, need.bounds
    ratios = [(Fraction(l) / Fraction(s), kind) for l, s, kind in zip(lam, scales, peaked) if l]
    m = 1 if all(peaked) else 2
    changes = None if several is None else changes_of(several, len(lam))
    if changes is not None:
        account.agrees("sensitivities are those of the bounds", [Fraction(l) for l in lam] == changes.sizes)
        if proof is None or noise == "mixed":
            raise Refused("several bounds without a proof of what they consume")
    prices = None if proof is None or proof["prices"] is None else proof["prices"][k]

    def within(budget: Fraction) -> bool:
        if changes is None or prices is None:
            return total_at_most([ratio**m for ratio, _ in ratios], budget)
        return keep_budget(changes, [Fraction(s) for s in scales], m, prices, budget)

    if privacy[""] == "pure-dp" and m == 1:
        epsilon = privacy["epsilon"]
        account.proved(f"privacy loss at most {epsilon!r}", within(Fraction(epsilon)))
    elif not any(peaked):
        words = [f"{name} at most {privacy[name]!r}" for name in ("rho", "mu") if name in privacy]
        words = words or [f"delta at most {d!r} at epsilon = {e!r}" for e, d in points_of(privacy)]
        account.proved("; ".join(words), within(largest_square(privacy)))
    elif privacy[""] in ("approximate-dp", "membership-advantage", "trade-off"):
        for e, d in points_of(privacy):
            if d == 1:
                continue
            epsilon, delta = Decimal(e), Decimal(d)
            times = 2 if one_moves(need) else 1
            holds = m == 1 and within(Fraction(epsilon - times * (1 - delta).ln() / ROUND))
            if not holds and delta and noise == "mixed":
                sizes = Counter(Decimal(rounded_up(r)) for r, kind in ratios if kind)
                square = sum((Decimal(r.numerator) / r.denominator) ** 2 for r, kind in ratios if not kind)
                holds = composed_delta(epsilon, delta, sizes, square * ROUND, account) <= delta
            account.proved(f"delta at most {d!r} at epsilon = {e!r}", holds)
    else:
        raise Refused(f"{noise} noise under {privacy['']}")


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
        return min(Fraction(normal_ends(Decimal(e), Decimal(d))[0]) for e, d in points)


def smallest_beyond(privacy: Json) -> Fraction:
    """μ² that Gaussian noise may consume, from above: at it some δ is exceeded."""
    if privacy[""] in ("zcdp", "gaussian-dp"):
        return largest_square(privacy)
    with localcontext() as context:
        context.prec = PLACES
        return min(Fraction(normal_ends(Decimal(e), Decimal(d))[1]) for e, d in points_of(privacy))


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
    epsilon: Decimal,
    delta: Decimal,
    laplace: Counter[Decimal],
    normal_square: Decimal,
    account: Account,
    others: Sequence[Part] = (),
) -> Decimal:
    """δ at ε, from above; of a budget of about `delta`. Laplace ratios are counted; `others` are of other laws."""
    largest = max(laplace, default=ZERO)
    alone = Counter({r: count for r, count in laplace.items() if r >= SMALL * largest and r > 0})
    epsilon -= sum((r * count for r, count in laplace.items() if r < SMALL * largest), ZERO) * ROUND
    if epsilon < 0:  # as noise is symmetric, δ(−τ) = 1 − e^(−τ) (1 − δ(τ))
        at_zero = composed_delta(ZERO, delta, alone, normal_square, account, others)
        return 1 - epsilon.exp() * (1 - at_zero) + SLACK
    if not (alone or others):
        return normal_delta(epsilon, normal_square.sqrt() * ROUND) if normal_square else ZERO
    if alone.total() == 1 and not (normal_square or others):
        return max(1 - ((epsilon - largest) / 2).exp(), ZERO) + SLACK
    if len(alone) > MOST_RATIOS or alone.total() > 10**9:
        raise TooLarge(
            f"too large to check: a composition of more than {MOST_RATIOS} different Laplace ratios"
        )
    top = sum((r * count for r, count in alone.items()), ZERO)  # the largest Laplace loss
    if not (normal_square or others):
        if top <= epsilon:
            return ZERO
        if top - epsilon <= 2 * min(alone) and alone.total() <= MOST_COUNTED:
            return barely_above(top - epsilon, alone.total())
    unit, ratio = epsilon or ONE, normal_square.sqrt() * ROUND
    parts = [(*part, epsilon / 2) for part in others]
    if normal_square:
        parts.append(("norm", (), [(ratio, 1)], epsilon / 2 if others else epsilon * ratio / (top + ratio)))
    count = alone.total() + sum(times for _, _, shifts, _ in parts for _, times in shifts)

    def consumed(points: int) -> Decimal:
        grid = Grid(delta * Decimal("1e-9") / count, points, account)
        found = [grid.power(laplace_losses(grid, r, unit), count) for r, count in alone.items()]
        for name, shapes, shifts, bend in parts:
            law = Asked(name, shapes, 1, ONE, epsilon, delta, account)
            for shift, times in shifts:
                cells, infinite = law.outcomes(shift, grid.tail, bend, points)
                found.append(grid.power(grid.losses(cells, unit, infinite), times))
        return grid.delta(grid.all(found), epsilon - top)

    return refined(consumed, delta, delta, account)

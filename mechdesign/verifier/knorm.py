"""K-norm noise: density ∝ e^(−‖z‖/s), under pure privacy.

**Theorem** (Hardt and Talwar 2010). A change v loses (‖z + v‖ − ‖z‖)/s ≤ ‖v‖/s, by the triangle inequality. So what counts is the largest norm of a
change: its ℓ₁, ℓ₂ or ℓ_∞ norm, for |v_i| ≤ b_i of at most c coordinates, ‖v‖₁ ≤ L₁, ‖v‖₂ ≤ L₂. The largest ‖v‖₁ under L₂ alone is, whatever t > 0,
at most Σ (v − v²/2t) + L₂²/2t, v = min(b_i, t): weak duality.

One coordinate has the variance 2s², (k + 1)s², (k + 1)(k + 2)s²/3, and E|z_i| = s, s k Γ(k/2)/(√π Γ((k + 1)/2)), s (k + 1)/2.
"""

from __future__ import annotations

import math
from collections import Counter
from decimal import localcontext
from fractions import Fraction

from mechdesign.verifier.composition import PLACES
from mechdesign.verifier.noise_laws import ONE, PI
from mechdesign.verifier.reading import NEAR, Account, Json, Refused

Bounds = list[tuple[Fraction, int]]
"""Sizes, and how many coordinates have them, from the largest on."""
ROOM = Fraction(1, 10**12)


def knorm(result: Json, account: Account) -> None:
    design, law, stated = result["design"], result["mechanism"], result["value"]
    k, rounds, epsilon, norm = (
        design["dimension"],
        design["rounds"],
        Fraction(design["privacy"]["epsilon"]),
        law["norm"],
    )
    account.agrees("the noise is for the design's numbers", law["dimension"] == k)
    account.agrees(
        "the norm is one that is allowed", norm in (1, 2, math.inf) and design["norm"] in (None, norm)
    )
    if not all(holds for *_, holds in account.rows):
        return
    bounds, l1, l2 = bounds_of(design["sensitivity"], k)
    account.takes(10 * len(bounds), 3000)
    account.takes(16 * k if design["loss"] == "absolute" else 0)
    scale, largest = Fraction(law["scale"]), law["largest"]
    if largest is None:
        raise Refused("noise that does not say for which changes it is")
    account.proved(f"no change has a norm above {largest!r}", covers(norm, bounds, l1, l2, Fraction(largest)))
    account.proved(f"privacy loss at most {float(epsilon)!r}", rounds * Fraction(largest) <= epsilon * scale)
    room = Fraction(stated) * ROOM
    account.bounds(
        f"the {design['loss']} error is at most {stated!r}",
        cost(norm, k, scale, design["loss"]),
        stated,
        room,
    )
    if result["lower_bound"] is not None:
        # the least scale of each norm, from below: a change of at least this norm there is
        allowed = (1, 2, math.inf) if design["norm"] is None else (design["norm"],)
        least = min(
            cost(n, k, reached(n, bounds, l1, l2) * rounds / epsilon, design["loss"]) for n in allowed
        )
        claim = f"no K-norm noise of these norms costs less than {result['lower_bound']!r}"
        account.rows.append(
            (claim, "recomputed", Fraction(result["lower_bound"]) <= least * (1 + Fraction(NEAR)))
        )


def bounds_of(sensitivity: Json, dimension: int) -> tuple[Bounds, Fraction | None, Fraction | None]:
    """What single coordinates change by at most, and L₁ and L₂."""
    if not isinstance(sensitivity, dict):
        return [(Fraction(sensitivity), dimension)], None, None
    most = [sensitivity[name] for name in ("linf", "l1", "l2") if sensitivity[name] is not None]
    count = min(dimension, sensitivity["l0"] or dimension)
    l1, l2 = (None if sensitivity[name] is None else Fraction(sensitivity[name]) for name in ("l1", "l2"))
    if sensitivity["each"] is None:
        return [(Fraction(min(most)), count)], l1, l2
    if len(sensitivity["each"]) != dimension:
        raise Refused("bounds of other coordinates than the answer's")
    each = [Fraction(min([b, *most])) for b in sensitivity["each"]]
    sizes = Counter(sorted((size for size in each if size > 0), reverse=True)[:count])
    if not sizes:
        raise Refused("bounds that allow no change")
    return sorted(sizes.items(), reverse=True), l1, l2


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
    low, high = 0.0, float(bounds[0][0])
    while low < (middle := (low + high) / 2) < high:
        over = math.fsum(count * min(float(size), middle) ** 2 for size, count in bounds) > float(l2) ** 2
        low, high = (low, middle) if over else (middle, high)
    level, found = Fraction(high), Fraction(0)
    for size, count in bounds:
        v = min(size, level)
        found += count * (v - v * v / (2 * level))
    return found + l2**2 / (2 * level)


def covers(norm: float, bounds: Bounds, l1: Fraction | None, l2: Fraction | None, largest: Fraction) -> bool:
    """Whether no change has a larger norm."""
    if norm == math.inf:
        return bounds[0][0] <= largest
    if norm == 2:
        return filled(bounds, l1) <= largest**2 or (l2 is not None and l2 <= largest)
    whole = sum((count * size for size, count in bounds), Fraction(0))
    return (
        min(whole, *(b for b in (l1, l2 and watered(bounds, l2)) if b)) <= largest
        if l1 or l2
        else whole <= largest
    )


def reached(norm: float, bounds: Bounds, l1: Fraction | None, l2: Fraction | None) -> Fraction:
    """The largest norm of a change: that of ℓ₂ to rounding, the others from above."""
    if norm == math.inf:
        return bounds[0][0]
    if norm == 2:
        found = Fraction(math.sqrt(filled(bounds, l1)))
        return found if l2 is None else min(found, l2)
    parts = [sum((count * size for size, count in bounds), Fraction(0))]
    parts += [] if l1 is None else [l1]
    parts += [] if l2 is None else [watered(bounds, l2)]
    return min(parts)


def cost(norm: float, k: int, scale: Fraction, loss: str) -> Fraction:
    """The variance, or E|z|, of one coordinate."""
    if loss == "squared":
        return scale**2 * {1: Fraction(2), 2: Fraction(k + 1), math.inf: Fraction((k + 1) * (k + 2), 3)}[norm]
    if norm == 2:
        return scale * k * ratio_of_gammas(k)
    return scale * (1 if norm == 1 else Fraction(k + 1, 2))


def ratio_of_gammas(k: int) -> Fraction:
    """Γ(k/2)/(√π Γ((k + 1)/2)): 1 for k = 1, and for k and k + 1 together 2/πk."""
    with localcontext() as context:
        context.prec = PLACES
        found = ONE
        for j in range(1, k):
            found = 2 / (PI * j * found)
    return Fraction(found)

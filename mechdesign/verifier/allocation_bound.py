"""No scales cost less: weak duality for one profile of changes, and mixes of changes that stand for one. In doubles: *recomputed*.

Noise that keeps the budget B on a change keeps it on every mix of changes, of profile (Σ_k w_k |v_ki|^m)^(1/m). For any such profile λ and any
y ≥ 0 no scales that keep it cost less than Σ_i min_s (w_i E|sT|^p + y (λ_i/s)^m) − y B. A mix is one of changes if

- it is a change; or its shares x = (λ/a)^m keep bounds under which every share is one of a mix: one row alone, or without a bound on
  how many change and, of Gaussian noise, on L₁;
- its changes are listed, each within all bounds; or sizes and shares are given: sorted by size, the shares are laid end to end and those coordinates
  change that are hit at u, u + 1, …, for u from 0 to 1; a change that exceeds a norm is scaled down.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate
from typing import Any

from mechdesign.verifier.changes import Changes, changes_of
from mechdesign.verifier.reading import NEAR, Account, Json, Refused, between, points_of

ROOM = 1e-12
Vector = list[Any]


def lower_bound(result: Json, proof: Json, limited: tuple[Json, ...], account: Account) -> None:
    design, bound = result["design"], result["lower_bound"]
    lam, weights, lower, upper, groups = limited
    claim, laplace, p = (
        f"no scales of this noise cost less than {bound:.12g}",
        design["noise"] == "laplace",
        design["loss"],
    )
    if design["noise"] == "mixed":
        raise Refused("a lower bound of a search over types, which has none")
    budget = largest_budget(design, len(lam))
    if proof is None or budget is None:
        account.claimed(claim, math.isfinite(bound))
        return
    if design["bounds"] is not None:
        changes = changes_of(design["bounds"], len(lam))
        reached = proof["mix"] is not None and is_mix(changes, proof, 1 if laplace else 2)
        account.recomputed("the worst mix is one of changes", reached)
        if not reached:
            return
        lam = proof["mix"]
    power, y, total = 1 if laplace else 2, abs(proof["multiplier"]) * moment(p, laplace), 0.0
    for group in groups:
        c = math.fsum(weights[i] for i in group) * moment(p, laplace)
        square = math.fsum(lam[i] ** power for i in group)
        a, b = max(lower[i] for i in group), min(upper[i] for i in group)
        s = min(max((power * y * square / (p * c)) ** (1 / (p + power)), a), b) if square and c else a
        total += c * s**p + (y * square / s**power if square else 0.0)
    # what doubles may have lost
    found = total - y * budget - 1e-15 * (2 + p) * (total + y * budget)
    account.recomputed(claim, bound <= found + NEAR * abs(found))


def moment(order: float, laplace: bool) -> float:
    """E|T|^p at scale 1."""
    if laplace:
        return math.gamma(order + 1)
    return 2 ** (order / 2) * math.gamma((order + 1) / 2) / math.sqrt(math.pi)


def largest_budget(design: Json, count: int) -> float | None:
    """B, from above; None where there is none in closed form."""
    privacy, bounds = design["privacy"], design["bounds"]
    if privacy[""] == "zcdp":
        return 2.0 * float(privacy["rho"])
    if privacy[""] == "gaussian-dp":
        return float(privacy["mu"]) ** 2
    points = [(e, d) for e, d in points_of(privacy) if d < 1]
    if design["noise"] == "laplace":
        one = sum(l > 0 for l in design["sensitivities"]) == 1 or (bounds is not None and bounds["l0"] == 1)
        return min(e - (2 if one else 1) * math.log1p(-d) for e, d in points)
    if design["noise"] == "mixed":
        return None

    def kept(mu: float) -> bool:
        for e, d in points:
            tail = [math.erfc(-z / math.sqrt(2)) / 2 for z in (mu / 2 - e / mu, -mu / 2 - e / mu)]
            if tail[0] - math.exp(e) * tail[1] > d:
                return False
        return True

    return between(0.0, 1e4, kept)[1] ** 2


def is_mix(asked: Changes, proof: Json, m: int) -> bool:
    mix, changes, weights = proof["mix"], proof["changes"], proof["weights"]
    if len(mix) != len(asked.sizes) or not all(math.isfinite(v) and v >= 0 for v in mix) or not any(mix):
        return False
    if changes is None or weights is None:
        return allowed(asked, mix) or shares_of_mixes(asked, mix, m)
    if not weights or min(weights) < 0 or not any(weights):
        return False
    if isinstance(changes[0], list):
        if len(changes) != len(weights) or not all(allowed(asked, change) for change in changes):
            return False
        whole = math.fsum(weights)
        means = [math.fsum(w * v**m for w, v in zip(weights, column)) / whole for column in zip(*changes)]
    else:
        found = drawn(asked, changes, weights, m)
        if found is None:
            return False
        means = found
    return all(v <= mean ** (1 / m) * (1 + ROOM) for v, mean in zip(mix, means, strict=True))


def allowed(asked: Changes, change: Vector) -> bool:
    """Whether a vector is a change, to rounding."""
    room = 1 + ROOM
    if len(change) != len(asked.sizes) or min(change) < 0:
        return False
    if not all(v <= float(a) * room for v, a in zip(change, asked.sizes)):
        return False
    if asked.l0 is not None and sum(v > 0 for v in change) > asked.l0:
        return False
    if asked.l1 is not None and math.fsum(change) > float(asked.l1) * room:
        return False
    return asked.l2 is None or math.hypot(*change) <= float(asked.l2) * room


def shares_of_mixes(asked: Changes, mix: Vector, m: int) -> bool:
    """Whether these shares keep bounds under which all shares are those of a mix."""
    moved = [(v, float(a)) for v, a in zip(mix, asked.sizes) if a > 0]
    top = sorted((a for a in asked.sizes if a > 0), reverse=True)
    l0 = None if asked.l0 is None or asked.l0 >= len(top) else asked.l0
    top = top[: l0 or len(top)]
    l1 = None if asked.l1 is None or sum(top, Fraction(0)) <= asked.l1 else asked.l1
    l2 = None if asked.l2 is None or sum((a * a for a in top), Fraction(0)) <= asked.l2**2 else asked.l2
    alone = sum(bound is not None for bound in (l0, l1, l2)) == 1
    if not ((alone or l0 is None) and (m == 1 or l1 is None)) or any(v > a * (1 + ROOM) for v, a in moved):
        return False
    shares, room = [((v / a) ** m, a) for v, a in moved], (1 + ROOM) ** 2
    sums: list[tuple[Any, float]] = [
        (l0, math.fsum(x for x, _ in shares)),
        (l1, math.fsum(a * x for x, a in shares)),
        (l2 and l2**2, math.fsum(a * a * x ** (2 / m) for x, a in shares)),
    ]
    return all(bound is None or total <= float(bound) * room for bound, total in sums)


def drawn(asked: Changes, sizes: Vector, shares: Vector, m: int) -> Vector | None:
    """Means of |v_i|^m where one coordinate is drawn from each unit of the shares; None where they are none."""
    count = asked.l0 or len(sizes)
    fits = len(sizes) == len(shares) == len(asked.sizes) and max(shares) <= 1 and min(sizes) >= 0
    if not fits or any(b > a for b, a in zip(sizes, asked.sizes)):
        return None
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    # slightly less, so that no coordinate is hit twice by rounding
    ends = [0.0, *accumulate(shares[i] * (1 - 4 * ROOM) for i in order)]
    at = [end - math.floor(end) for end in ends]
    points = sorted({0.0, 1.0, *at})
    place = {point: k for k, point in enumerate(points)}
    around = [math.floor(b) > math.floor(a) for a, b in zip(ends, ends[1:])]

    def sums(entry: Callable[[float], float]) -> Vector:
        """Of the coordinates that are hit, for each stretch of u."""
        steps = [0.0] * len(points)
        for j, i in enumerate(order):
            steps[place[at[j]]] += entry(sizes[i])
            steps[place[at[j + 1]]] -= entry(sizes[i])
            steps[0] += entry(sizes[i]) * around[j]
        return list(accumulate(steps))[:-1]

    if max(sums(lambda b: 1.0)) > count:
        return None
    kept, slack = [1.0] * (len(points) - 1), len(sizes) * 1e-15
    for bound, e in ((asked.l1, 1), (asked.l2, 2)):
        if bound is not None:
            most, held = float(bound) ** e, sums(lambda b, e=e: b**e)  # type: ignore[misc]
            held = [v + slack * max(held) for v in held]
            kept = [min(k, (most / max(v, most)) ** (1 / e)) for k, v in zip(kept, held)]
    until = [0.0, *accumulate(k**m * (b - a) for k, a, b in zip(kept, points, points[1:]))]
    found = [0.0] * len(sizes)
    for j, i in enumerate(order):
        mass = until[place[at[j + 1]]] - until[place[at[j]]] + around[j] * until[-1]
        found[i] = sizes[i] ** m * max(mass, 0.0)
    return found

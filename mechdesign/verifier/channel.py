"""Metric-private channels: rows, distances, privacy of all pairs, value, equalities, and the bound by weak duality.

Saved alone: *a table of a row for each item* has the largest quotient of two rows as its loss; rows of doubles stand for themselves over
their exact sums. *Clustered response* (k-ary response is one cluster): of n items in clusters, the item itself is reported with weight
2¹⁰⁰, another of its cluster with the least integer that is at least 2¹⁰⁰ e^(−α d₁), one of another cluster with that for d₂ ≥ d₁. All rows
have one total, so that two items' probabilities of a report differ by the largest quotient of two weights: at most e^(α d₁) within a cluster
and e^(α d₂) across. *Hadamard response*: every row but the first of Sylvester's matrix has as many 1 as −1; reports of the one sign have
weight 2¹⁰⁰, of the other the least integer that is at least 2¹⁰⁰ e^(−ε).

*A count* in 0, …, n, answered there. A private table C has, for any prior w of the true values and any ψ ≥ 0 of neighbours x, x′ and answers y, a worst (with the question's
prior as w: a mean) loss of at least Σ_x min_y (w_x ℓ(y − x) + Σ ψ_xx′(y) − e^ε ψ_x′x(y)) − δ Σ_xx′ max_y ψ_xx′(y): rows of C are averages, and
Σ_y ψ_xx′(y) (C[x, y] − e^ε C[x′, y]) is at most δ max_y ψ_xx′(y).
"""

from __future__ import annotations

import math
from fractions import Fraction
from operator import mul

from mechdesign.verifier.matrices import cluster_distances, whole
from mechdesign.verifier.matrices import distances as space_distances
from mechdesign.verifier.reading import (
    NEAR,
    Account,
    Json,
    NotCovered,
    Refused,
    exp_bounds,
    flat,
    log_above,
    proofs_of,
)

TOP = 1 << 100


def channel(result: Json, account: Account) -> None:
    design, law = result["design"], result["mechanism"]
    proofs = proofs_of(result)
    distances, dual = proofs["channel-proof"]["distances"], proofs.get("channel-dual")
    weights, alpha, bound = law["weights"], Fraction(design["alpha"]), result["lower_bound"]
    items = range(len(weights))
    reports = len(weights) if isinstance(design["loss"], str) else len(design["loss"][0])
    sized = all(len(r) == reports for r in weights) and all(type(w) is int for r in weights for w in r)
    account.agrees("reports are the design's", sized)
    total = table_total(law, account)
    account.agrees("the channel is on the design's space", repr(law["space"]) == repr(design["space"]))
    given, points, sides = (design["space"][name] for name in ("matrix", "points", "shape"))
    account.agrees("the sides of the space are of its points", not sides or math.prod(sides) == len(weights))
    if given is None and design["space"]["kind"] in ("grid", "euclidean", "line") and points is not None:
        given = [[math.dist(p, q) for q in points] for p in points]
    elif given is None:
        given = space_distances(design["space"], account)
    far = max(abs(a - b) for r, s in zip(given, distances) for a, b in zip(r, s, strict=True))
    near = far <= 1e-12 * max(map(max, given)) and len(given) == len(distances) == len(weights)
    account.agrees("the distances are those of the space", near)
    account.agrees("distances are not negative", min(map(min, distances)) >= 0)
    bounds = {d: exp_bounds(alpha * Fraction(d)) for r in distances for d in r}
    rates = {d: (low.numerator, low.denominator) for d, (low, _) in bounds.items()}
    pairs = [(*rates[distances[x][z]], weights[x], weights[z]) for x in items for z in items if x != z]
    private = all(p * down <= up * q for up, down, row, other in pairs for p, q in zip(row, other))
    account.proved(f"privacy of all pairs at alpha = {float(alpha)!r}", private)
    prior = list(map(Fraction, design["prior"] or [1 for _ in items]))
    losses: Json
    account.agrees("the prior is one", len(prior) == len(weights) and min(prior) >= 0)
    losses = {"metric": distances, "squared": [[d * d for d in r] for r in distances]}
    losses["error"] = [[float(x != y) for y in items] for x in items]
    losses = losses[design["loss"]] if isinstance(design["loss"], str) else design["loss"]
    costs: list[list[Json]] = [
        [p / sum(prior, Fraction(0)) * Fraction(c) for c in r] for p, r in zip(prior, losses, strict=True)
    ]
    value = sum(sum(map(mul, w, r)) for w, r in zip(weights, costs)) / total
    near = Fraction(NEAR) / 1000
    account.proved(
        f"the value is {result['value']!r}", value <= Fraction(result["value"]) <= value * (1 + near)
    )
    goal: Json = None
    query: Json = None
    if design["unbiased"] is not None or design["decoder"] is not None:
        asked = design["unbiased"] or ([[float(x == y) for y in items] for x in items], design["decoder"])
        goal, query = ([list(map(Fraction, flat([r]))) for r in part] for part in asked)
        account.agrees("every report has its values", len(query) == reports)
        means = ([sum(map(mul, r, column)) / total for column in zip(*query)] for r in weights)
        off = max(abs(a - b) for mean, g in zip(means, goal) for a, b in zip(mean, g, strict=True))
        account.proved("the equalities hold", off <= Fraction(1e-6) * max(map(abs, flat(query))))
    if bound is None:
        return
    if dual is None:
        raise Refused("a lower bound without multipliers")
    if (dual["free"] is None) != (query is None):
        raise Refused("multipliers of equalities that are not there, or none of those that are")
    for (x, z, y), m in zip(dual["triples"], map(Fraction, dual["multipliers"]), strict=True):
        costs[x][y] += max(m, Fraction(0))  # multipliers are not negative
        costs[z][y] -= bounds[distances[x][z]][1] * max(m, Fraction(0))
    offset: Json = 0
    if query is not None:
        free = [list(map(Fraction, r)) for r in dual["free"]]
        offset = sum(sum(map(mul, f, g)) for f, g in zip(free, goal, strict=True))
        costs = [[c - sum(map(mul, f, h)) for h, c in zip(query, r)] for f, r in zip(free, costs)]
    claim = f"no channel between the points costs less than {bound!r}"
    account.proved(claim, Fraction(bound) <= offset + sum(map(min, costs)))


def bounded(result: Json, account: Account) -> None:
    design, law = result["design"], result["mechanism"]
    proofs = proofs_of(result)
    n, near, weights, loss = design["n"], design["sensitivity"], law["weights"], design["loss"]
    if loss not in ("absolute", "squared"):
        raise NotCovered("another loss than the absolute or the squared error")
    if law[""] != "channel" or "bounded-proof" not in proofs or len(proofs) < len(result["proofs"]):
        raise Refused("another mechanism than a table, or evidence that is not one proof of it")
    if not 1 <= near <= n <= 500 or weights is None or law["space"] is not None:
        raise Refused("no table of integers, or a change that is no part of the count")
    account.takes(2 * near * (n + 1) ** 2, 500)
    places, total = range(n + 1), table_total(law, account)
    account.agrees(
        "there is a row and a column for each value", {len(weights), *map(len, weights)} == {n + 1}
    )
    privacy = design["privacy"]
    delta, (low, high) = Fraction(privacy.get("delta", 0)), exp_bounds(Fraction(privacy["epsilon"]))
    pairs = [(x, other) for x in places for other in places if 0 < abs(x - other) <= near]
    up, down, worst = low.numerator, low.denominator, 0
    for x, other in pairs:
        over = (p * down - q * up for p, q in zip(weights[x], weights[other]))
        worst = max(worst, sum(v for v in over if v > 0))
    claim = f"delta at most {privacy.get('delta', 0.0)!r} at epsilon = {privacy['epsilon']!r}"
    account.proved(claim, worst <= delta * down * total)
    power = 1 if loss == "absolute" else 2
    costs = [[abs(y - x) ** power for y in places] for x in places]
    prior = None if design["prior"] is None else list(map(Fraction, design["prior"]))
    if prior is not None:
        account.agrees("the prior is one", len(prior) == n + 1 and min(prior) >= 0 < max(prior))
    rows = [Fraction(sum(map(mul, w, c)), total) for w, c in zip(weights, costs)]
    value = max(rows) if prior is None else sum(map(mul, prior, rows)) / sum(prior)
    account.proved(f"the value is at most {result['value']!r}", value <= Fraction(result["value"]))
    if result["lower_bound"] is None:
        return
    dual = proofs.get("bounded-dual")
    if dual is None or (prior is None) != (dual["weights"] is not None):
        raise Refused("a lower bound without multipliers, or with those of another question")
    if prior is None:
        prior = list(map(Fraction, dual["weights"]))
    if len(prior) != n + 1 or min(prior) < 0 or not max(prior):
        raise Refused("no prior of the true values")
    account.takes(4 * len(dual["multipliers"]), 600)
    unit, caps = 1 << 256, dict.fromkeys(pairs, 0)
    mass = sum(prior, Fraction(0))
    reduced = [[int(p / mass * c * unit) for c in row] for p, row in zip(prior, costs)]
    if len({tuple(t) for t in dual["triples"]}) < len(dual["triples"]):
        raise Refused("two multipliers of one constraint")
    for (x, other, y), multiplier in zip(dual["triples"], dual["multipliers"], strict=True):
        if (x, other) not in caps or not 0 <= y <= n or multiplier < 0:
            raise Refused("a multiplier that is negative, or of values that are no neighbours")
        held = int(Fraction(multiplier) * unit)
        reduced[x][y] += held
        reduced[other][y] -= -(-high.numerator * held // high.denominator)
        caps[x, other] = max(caps[x, other], held)
    bound = max((sum(map(min, reduced)) - delta * sum(caps.values())) / unit, Fraction(0))
    claim = f"no mechanism with answers 0 to {n} costs less than {result['lower_bound']!r}"
    account.proved(claim, Fraction(result["lower_bound"]) <= bound)


def level(loss: Fraction) -> int:
    """The least integer that is at least 2¹⁰⁰ e^{−loss}."""
    return 1 if loss >= 100 else min(TOP, math.ceil(TOP / exp_bounds(loss)[0]))


def within(weight: int, loss: Fraction) -> bool:
    """Whether 2¹⁰⁰ is at most e^loss times a weight."""
    return weight >= TOP or weight * exp_bounds(min(loss, 700))[0] >= TOP


def clustered_response(law: Json, account: Account) -> None:
    alpha, (near, far) = Fraction(law["alpha"]), cluster_distances(law["space"])
    account.agrees("clusters are no further apart inside than across", 0 < near <= far)
    holds = within(level(alpha * near), alpha * near) and within(level(alpha * far), alpha * far)
    account.proved(f"privacy of all pairs at alpha = {float(alpha)!r}", holds)


def hadamard_response(law: Json, account: Account) -> None:
    epsilon = Fraction(law["epsilon"])
    account.agrees("there are items to tell apart", 2 <= law["items"] <= 1 << 40)
    account.proved(f"privacy loss at most {float(epsilon)!r}", within(level(epsilon), epsilon))


def table(law: Json, account: Account) -> None:
    """Privacy as the table has it: nothing is stated that it could be compared with."""
    rows, totals = rows_of(law, account)
    account.takes(8 * sum(map(len, rows)), max(totals).bit_length())
    columns = [column for column in zip(*rows, strict=True) if max(column)]
    if min(map(min, columns)) == 0:
        account.claimed(
            "reports rule items out: private with some delta only, which this file does not state"
        )
    else:
        account.proved("no report rules an item out", True)
        shares = ([Fraction(w, total) for w, total in zip(column, totals)] for column in columns)
        loss = log_above(max(max(column) / min(column) for column in shares))
        account.proved(f"privacy loss at most {loss!r}", True)


def rows_of(law: Json, account: Account) -> tuple[list[list[int]], list[int]]:
    """Weights, and the total of every row: those stated, or the doubles over a common power of two."""
    if law["weights"] is None:
        rows, bits = whole(law["matrix"])
        totals = [sum(row) for row in rows]
        near = all(abs(Fraction(total, 1 << bits) - 1) <= Fraction(NEAR) * 1000 for total in totals)
        account.agrees("rows sum to 1, to rounding", near and min(map(min, rows)) >= 0)
        return rows, totals
    return law["weights"], [table_total(law, account)] * len(law["weights"])


def table_total(law: Json, account: Account) -> int:
    """The total of every row of weights; that they are a table, and the one shown in doubles."""
    rows = law["weights"]
    total: int = sum(rows[0])
    if total <= 0:
        raise Refused("weights that are none")
    tables = zip(rows, law["matrix"], strict=True)
    shown = all(
        abs(w / total - p) <= 1e-12 * w / total
        for row, given in tables
        for w, p in zip(row, given, strict=True)
    )
    account.agrees("the matrix shown is the channel", shown)
    account.agrees("rows sum to 1", all(sum(row) == total and min(row) >= 0 for row in rows))
    return total

"""Metric-private channels: rows, distances, privacy of all pairs, value, equalities, and the bound by weak duality."""

from __future__ import annotations

import math
from fractions import Fraction
from operator import mul

from mechdesign.verifier.reading import NEAR, Account, Json, Refused, exp_bounds, flat


def channel(result: Json, account: Account) -> None:
    design, law = result["design"], result["mechanism"]
    proofs = {proof[""]: proof for proof in result["proofs"]}
    distances, dual = proofs["channel-proof"]["distances"], proofs.get("channel-dual")
    weights, alpha, bound = law["weights"], Fraction(design["alpha"]), result["lower_bound"]
    items, total = range(len(weights)), sum(weights[0])
    tables = zip(weights, law["matrix"], strict=True)
    shown = all(abs(w / total - p) <= 1e-12 for r, s in tables for w, p in zip(r, s, strict=True))
    reports = len(weights) if isinstance(design["loss"], str) else len(design["loss"][0])
    sized = all(len(r) == reports for r in weights) and all(type(w) is int for r in weights for w in r)
    account.agrees("reports are the design's", sized)
    account.agrees("the matrix shown is the channel", shown)
    account.agrees("rows sum to 1", all(sum(r) == total and min(r) >= 0 for r in weights))
    account.agrees("the channel is on the design's space", repr(law["space"]) == repr(design["space"]))
    given, points = design["space"]["matrix"], design["space"]["points"]
    if given is None and design["space"]["kind"] in ("grid", "euclidean", "line") and points is not None:
        given = [[math.dist(p, q) for q in points] for p in points]
    if given is None:
        account.claimed("the distances are those of the space")
    else:
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

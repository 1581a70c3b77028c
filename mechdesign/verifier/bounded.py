"""A count in 0, …, n answered in 0, …, n: privacy of all neighbouring values, worst or mean loss, and the bound by weak duality.

A private table C has, for any prior w of the true values and any ψ ≥ 0 of neighbours x, x′ and answers y, a worst (with the question's
prior as w: a mean) loss of at least Σ_x min_y (w_x ℓ(y − x) + Σ ψ_xx′(y) − e^ε ψ_x′x(y)) − δ Σ_xx′ max_y ψ_xx′(y): rows of C are averages, and
Σ_y ψ_xx′(y) (C[x, y] − e^ε C[x′, y]) is at most δ max_y ψ_xx′(y).
"""

from __future__ import annotations

from fractions import Fraction
from operator import mul

from mechdesign.verifier.reading import Account, Json, NotCovered, Refused, exp_bounds


def bounded(result: Json, account: Account) -> None:
    design, law = result["design"], result["mechanism"]
    proofs = {proof[""]: proof for proof in result["proofs"]}
    n, near, weights, loss = design["n"], design["sensitivity"], law["weights"], design["loss"]
    if loss not in ("absolute", "squared"):
        raise NotCovered("another loss than the absolute or the squared error")
    if law[""] != "channel" or "bounded-proof" not in proofs or len(proofs) < len(result["proofs"]):
        raise Refused("another mechanism than a table, or evidence that is not one proof of it")
    if not 1 <= near <= n <= 500 or weights is None or law["space"] is not None:
        raise Refused("no table of integers, or a change that is no part of the count")
    account.takes(2 * near * (n + 1) ** 2, 500)
    places, total = range(n + 1), sum(weights[0])
    tables = zip(weights, law["matrix"], strict=True)
    shown = all(abs(w / total - p) <= 1e-12 for r, s in tables for w, p in zip(r, s, strict=True))
    account.agrees("the matrix shown is the channel", shown)
    account.agrees(
        "there is a row and a column for each value", {len(weights), *map(len, weights)} == {n + 1}
    )
    account.agrees("rows sum to 1", all(sum(r) == total and min(r) >= 0 for r in weights))
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
    bound = (sum(map(min, reduced)) - delta * sum(caps.values())) / unit
    claim = f"no mechanism with answers 0 to {n} costs less than {result['lower_bound']!r}"
    account.proved(claim, Fraction(result["lower_bound"]) <= bound)

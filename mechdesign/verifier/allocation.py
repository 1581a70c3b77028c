"""Allocations of independent Laplace or Gaussian noise: budget, limits, value, and the bound by weak duality in doubles."""

from __future__ import annotations

import math
from fractions import Fraction

from mechdesign.verifier.reading import NEAR, Account, Json, NotCovered, Refused, flat


def gaussian_delta(epsilon: float, mu: float) -> float:
    tail = [math.erfc(-z / math.sqrt(2)) / 2 for z in (mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu)]
    return tail[0] - math.exp(epsilon) * tail[1]


def allocation(result: Json, account: Account) -> None:
    design, law, value, bound = (result[key] for key in ("design", "mechanism", "value", "lower_bound"))
    noise, lam, privacy, p = (design[key] for key in ("noise", "sensitivities", "privacy", "loss"))
    if noise == "mixed" and bound is not None:
        raise Refused("a lower bound without a proof of it")
    if type(p) not in (int, float) or noise not in ("laplace", "gaussian") or design.get("bounds"):
        raise NotCovered("allocations of other noise or losses, or under several bounds")
    (proof,) = result["proofs"]
    if proof[""] != "allocation-proof":
        raise Refused("evidence other than the proof of an allocation")
    scales, power = law["scales"], 1 if noise == "laplace" else 2
    account.agrees("the noise is the design's", (noise, len(lam)) == (law["noise"], len(scales)))
    own = law["sensitivities"] == lam and law["bounds"] is None
    account.agrees("sensitivities are not negative", min(lam) >= 0)
    account.agrees("the noise is made for the changes that the design states", own)
    account.proved("every sensitive coordinate has noise", not any(s <= 0 < l for s, l in zip(scales, lam)))
    spent = sum((Fraction(l) / Fraction(s)) ** power for l, s in zip(lam, scales) if l and s)
    if (privacy[""], noise) in (("pure-dp", "laplace"), ("zcdp", "gaussian")):
        budget: Json = Fraction(privacy["epsilon"]) if power == 1 else 2 * Fraction(privacy["rho"])
        account.proved(f"within {privacy['']} {float(budget) / power!r}", spent <= budget)
    elif (privacy[""], noise) == ("approximate-dp", "gaussian"):
        delta = privacy["delta"]
        low, high = 0.0, 1e4  # limits may leave some of delta: the budget is what consumes all of it
        while low < (mu := (low + high) / 2) < high:
            low, high = (mu, high) if gaussian_delta(privacy["epsilon"], mu) <= delta else (low, mu)
        budget = low * low
        found = gaussian_delta(privacy["epsilon"], math.sqrt(spent))
        account.rows.append((f"within delta = {delta!r}", "recomputed", found <= delta * (1 + NEAR)))
    else:
        raise NotCovered(f"{noise} noise under {privacy['']}")
    limits = design["lower"] or 0.0, math.inf if design["upper"] is None else design["upper"]
    lower, upper = (v if isinstance(v, list) else [v] * len(scales) for v in limits)
    weights = design["weights"] or 1.0
    weights = weights if isinstance(weights, list) else [weights] * len(lam)
    whole = all(len(v) == len(lam) for v in (lower, upper, weights)) and min(weights) >= 0
    account.agrees("limits and weights are of the coordinates", whole)
    account.proved("limits are kept", all(a <= s <= b for a, s, b in zip(lower, scales, upper)))
    moment = math.gamma(p + 1) if power == 1 else 2 ** (p / 2) * math.gamma((p + 1) / 2) / math.sqrt(math.pi)
    costs = [w * moment for w in weights]
    cost = math.fsum(c * s**p for c, s in zip(costs, scales))
    account.rows.append(
        (f"the value is at most {value:.12g}", "recomputed", cost * (1 - NEAR / 1000) <= value)
    )
    if design["groups"] is not None:
        account.agrees("groups part the coordinates", sorted(flat(design["groups"])) == list(range(len(lam))))
        account.proved(
            "groups share a scale", all(len({scales[i] for i in g}) == 1 for g in design["groups"])
        )
        account.claimed(f"no scales of this noise cost less than {bound:.12g}")
        return
    # min over each scale s of c s^p + y (λ/s)^power, less y times the budget: every y ≥ 0 gives a bound.
    y, total = abs(proof["multiplier"]) * moment, 0.0
    for c, l, a, b in zip(costs, lam, lower, upper):
        s = min(max((power * y * l**power / (p * c)) ** (1 / (p + power)), a), b) if l and c else a
        total += c * s**p + (y * (l / s) ** power if l else 0.0)
    found = (
        total - y * float(budget) - 1e-15 * (2 + p) * (total + y * float(budget))
    )  # what doubles may have lost
    account.rows.append(
        (
            f"no scales of this noise cost less than {bound:.12g}",
            "recomputed",
            bound <= found + NEAR * abs(found),
        )
    )

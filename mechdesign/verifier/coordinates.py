"""Noise λ_i U on each coordinate i, U of the unit that it is assigned.

Moved by λ_i, λ_i U loses what U loses that is moved by 1: units are parts of a plan, each on as many coordinates as it is assigned to
(`mechdesign.verifier.plan`), and the value is Σ w_i λ_i^p E|U|^p. Smaller changes lose no more, as units are log-concave, or staircases moved by at most their step.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction

from mechdesign.verifier.calibration import law_of
from mechdesign.verifier.composition import PLACES
from mechdesign.verifier.laws import COSTS, ROUND, ZERO
from mechdesign.verifier.plan import private
from mechdesign.verifier.reading import Account, Json, Refused, points_of


def assigned(law: Json, account: Account) -> bool:
    """Whether each coordinate that changes has a unit, for a change of 1 on so many coordinates, once."""
    units, which, lam = law["units"], law["which"], law["sensitivities"]
    counts = Counter(which)
    once = [(1, 1, 1, counts[k]) for k in range(len(units))]
    fits = once == [(u["sensitivity"], u["rounds"], u["sampling_rate"], u["dimension"]) for u in units]
    fits = fits and len(which) == len(lam) and {*counts} <= {-1, *range(len(units))} and min(lam) >= 0
    account.agrees("each unit is noise for a change of 1 on the coordinates that are assigned to it", fits)
    sure = fits and all(k >= 0 or not size for k, size in zip(which, lam))
    account.proved("every sensitive coordinate has noise", sure)
    return sure


def allocated(result: Json, account: Account) -> None:
    """Check an allocation of noise of one family."""
    design, law, value = result["design"], result["mechanism"], result["value"]
    if [proof[""] for proof in result["proofs"]] != ["law-proof"] or result["lower_bound"] is not None:
        raise Refused("evidence other than that of a search over laws, which has no lower bound")
    own = all(unit["law"]["name"] == design["noise"] for unit in law["units"])
    account.agrees("the noise is the design's", own)
    account.agrees("it is for the design's changes", law["sensitivities"] == design["sensitivities"])
    free = all(design[name] is None for name in ("lower", "upper", "groups", "bounds"))
    account.agrees("there are no limits, groups and other bounds", free)
    size, power, weights = len(law["which"]), design["loss"], design["weights"]
    weights = weights if isinstance(weights, list) else [1.0 if weights is None else weights] * size
    account.agrees("weights are of the coordinates", len(weights) == size and min(weights) > 0)
    account.agrees("the loss is absolute or squared", power in (1, 2))
    if not all(holds for *_, holds in account.rows) or not assigned(law, account):
        return
    account.takes(60 * size)
    with localcontext() as context:
        context.prec = PLACES
        for epsilon, delta in points_of(design["privacy"]):
            asked = {"": "approximate-dp" if delta else "pure-dp", "epsilon": epsilon, "delta": delta}
            if delta < 1:
                private(law["units"], asked, "", account)
        laws = [law_of(unit) for unit in law["units"]]
        each = [COSTS[name](power, *shapes) * scale**power for name, shapes, scale in laws]
        terms = zip(weights, law["sensitivities"], law["which"])
        found = sum((Decimal(w) * Decimal(s) ** power * each[k] for w, s, k in terms if s), ZERO)
        said = f"the value is at most {value:.12g}"
        account.bounds(said, Fraction(found * ROUND), Fraction(value), Fraction(value) / 10**9)

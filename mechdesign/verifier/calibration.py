"""Calibrated noise: what all coordinates and rounds consume of the budget, and what an error costs.

A change moves coordinate i by at most v_i. Independent noise of a symmetric log-concave law loses most where every v_i is as large as
it can be: larger shifts have hockey-stick curves that are nowhere lower, and so have their products (`mechdesign.verifier.changes`).
At these shifts the largest losses add up, a round that is sampled at rate q having log(1 + q (e^ℓ − 1)) of its ℓ; normal noise
consumes ρ = Σ v_i²/2σ². What other losses consume is bounded by `mechdesign.verifier.composed_noise` and, under zero-concentrated
privacy, `mechdesign.verifier.concentrated`.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from operator import mul

from mechdesign.verifier.bound_class import spoken_of
from mechdesign.verifier.changes import worst_shifts
from mechdesign.verifier.composed_noise import Asked
from mechdesign.verifier.composition import PLACES, SLACK
from mechdesign.verifier.concentrated import concentrated
from mechdesign.verifier.discrete_laws import COSTS
from mechdesign.verifier.noise_laws import HALF, ONE, ROUND, ZERO
from mechdesign.verifier.reading import Account, Json, NotCovered, Refused, points_of

NEAR_ENDS = Decimal("1e-10")
"""How far the ends of an enclosure may come out elsewhere, relative."""
NEAR_UPPER = Decimal("0.01")
"""By how much what is found may be above the end stated, as a share of the budget: grids are as fine as it asks, and one step more."""
NAMES = {"gaussian": "norm", "discrete_laplace": "dlaplace"}


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
    stated = [proof["spent"] for proof in result["proofs"] if proof[""] == "calibration-proof"]
    if len(stated) != 1:
        raise Refused("not one proof of what is consumed of the budget")
    additive(noise, privacy, design["loss"], value, account, stated[0])
    if result["lower_bound"] is not None:
        claim = (
            f"no private noise of this class ({spoken_of(result)}) costs less than {result['lower_bound']!r}"
        )
        account.claimed(claim)


def additive(
    noise: Json, privacy: Json, loss: str, value: float, account: Account, spent: Json = None
) -> None:
    """What additive noise for the changes that it states costs and consumes."""
    name, shapes, scale = law_of(noise)
    power = {"squared": 2, "absolute": 1}[loss]
    cost = Fraction(COSTS[name](power, *shapes) * scale**power)
    room = Fraction(value) / 10**9
    account.bounds(f"the {loss} loss is at most {value!r}", cost, Fraction(value), room)
    account.agrees("the value is no more than the loss", Fraction(value) <= cost + 1000 * room)
    name, shapes, scale = plainest(name, shapes, scale)
    budget = budget_of(privacy)
    aim = budget if spent is None else min(budget, Decimal(spent["upper"]) + budget * NEAR_UPPER)
    found, exact = consumed(noise, privacy, name, shapes, scale, aim, account)
    if spent is not None:
        enclosed(spent, budget, found, exact, account)


def budget_of(privacy: Json) -> Decimal:
    """What may be consumed; of several points 1, the largest share."""
    if privacy[""] == "trade-off":
        return ONE
    return Decimal(privacy.get("rho") or privacy.get("mu") or points_of(privacy)[0][1] or privacy["epsilon"])


def law_of(noise: Json) -> tuple[str, tuple[Decimal, ...], Decimal]:
    """The family, shapes and scale of additive noise."""
    law, name = noise["law"], noise["law"]["name"]
    if name not in COSTS:
        raise NotCovered(f"noise of the law {name}")
    if set(law) - {"", "name", "args", "scale"}:
        raise NotCovered(f"noise of the law {name} with other parameters than shapes and a scale")
    shapes, scale = tuple(map(Decimal, law["args"])), Decimal(law.get("scale", 1))
    if scale <= 0 or not all(x.is_finite() for x in (*shapes, scale)):
        raise Refused("a scale that is not positive and finite")
    if not proper(name, shapes):
        raise Refused(f"a shape that no law {name} has")
    return name, shapes, scale


def plainest(
    name: str, shapes: tuple[Decimal, ...], scale: Decimal
) -> tuple[str, tuple[Decimal, ...], Decimal]:
    """The same law as the normal member of its family, where it is."""
    if name in ("osgt", "flipped_huber") and shapes[0] == 0:
        return "norm", (), scale
    if name == "gennorm" and shapes[0] == 2:
        return "norm", (), scale * HALF.sqrt()
    return name, shapes, scale


def rounds_of(noise: Json) -> tuple[int, Decimal]:
    """How often numbers are answered, and of which share of the people."""
    rounds, rate, sensitivity = noise["rounds"], Decimal(noise["sampling_rate"]), noise["sensitivity"]
    if not 0 < rate <= 1 or rounds < 1 or noise["dimension"] < 1:
        raise Refused("rounds, coordinates or a sampling rate that are none")
    if rate < 1 and isinstance(sensitivity, dict) and sensitivity["neighbours"] != "add-remove":
        raise Refused("a Poisson sample where one record is replaced")
    return rounds, rate


def enclosed(spent: Json, budget: Decimal, found: Decimal, exact: bool, account: Account) -> None:
    """Compare the enclosure stated with what is consumed, or with an upper bound of that: then the enclosure is claimed."""
    lower, upper = Decimal(spent["lower"]), Decimal(spent["upper"])
    ordered = lower <= upper <= budget and lower <= found * (1 + NEAR_ENDS) + SLACK
    if exact:
        holds = ordered and found * (1 - NEAR_ENDS) - SLACK <= upper
        account.agrees("the enclosure stated holds what is consumed", holds)
        return
    claim = f"what is consumed is from {spent['lower']!r} to {spent['upper']!r}, {spent['how']}"
    account.claimed(claim, ordered and found <= upper + budget * NEAR_UPPER)


def consumed(
    noise: Json,
    privacy: Json,
    name: str,
    shapes: tuple[Decimal, ...],
    scale: Decimal,
    aim: Decimal,
    account: Account,
) -> tuple[Decimal, bool]:
    """Check that all coordinates and rounds keep the budget; what they consume of it, and whether that is exact or from above.

    `aim`: how little of the budget it should be seen to be, if it is.
    """
    rounds, rate = rounds_of(noise)
    normal = name == "norm" or (name == "discrete_gaussian" and privacy[""] == "zcdp")
    stated = worst_shifts(noise["sensitivity"], noise["dimension"], "norm" if normal else name, account)
    scaled = [[(v / scale, count) for v, count in shifts] for shifts in stated]
    largest = [[largest_loss(name, shapes, v) for v, _ in shifts] for shifts in scaled]
    if privacy[""] == "trade-off":
        shares = []
        for e, d in points_of(privacy):
            if d < 1:
                part = {"": "approximate-dp", "epsilon": e, "delta": d}
                most = budget_of(part)
                used, sharp = consumed(noise, part, name, shapes, scale, aim * most, account)
                shares.append((used / most, sharp))
        return max(shares)[0], all(sharp for _, sharp in shares)
    if privacy[""] == "gaussian-dp":
        if rate < 1 or name != "norm":
            raise Refused("a requirement that normal noise alone meets, without samples")
        square = rounds * sum((count * v * v for v, count in scaled[0]), ZERO)
        mu = Decimal(privacy["mu"])
        account.proved(f"mu at most {privacy['mu']!r}", square <= mu * mu * ROUND)
        return square.sqrt(), len(scaled) == 1
    if privacy[""] == "zcdp":
        if rate < 1:
            raise Refused("a sampling rate under zero-concentrated privacy")
        rho, xi = Decimal(privacy["rho"]), Decimal(privacy["xi"])
        claim = f"rho at most {privacy['rho']!r}" + (f" beyond xi = {privacy['xi']!r}" if xi else "")
        if normal:  # D_α is proportional to α, so that ξ helps at α = 1 only
            width = shapes[0] if name == "discrete_gaussian" else ONE
            used = rounds * sum((count * (v / width) ** 2 for v, count in scaled[0]), ZERO) / 2
            account.proved(claim, used <= rho * ROUND)
            return used, len(scaled) == 1 and name == "norm" and not xi
        answers = [[(v, count * rounds) for v, count in shifts] for shifts in scaled]
        for least in sorted({aim, rho}):
            kept = (
                concentrated(name, shapes, shifts, losses, xi, least, account)
                for shifts, losses in zip(answers, largest)
            )
            if any(kept):
                account.proved(claim, True)
                return least, False
        account.proved(claim, False)
        return rho, False
    if not points_of(privacy)[0][1]:
        counts = ([count for _, count in shifts] for shifts in scaled)
        most = min(sum(map(mul, case, losses), ZERO) for case, losses in zip(counts, largest))
        if rate < 1 and most.is_finite():
            most = (1 + rate * (most.exp() - 1)).ln()
        epsilon = Decimal(privacy["epsilon"])
        account.proved(f"privacy loss at most {privacy['epsilon']!r}", rounds * most <= epsilon * ROUND)
        return rounds * most, len(scaled) == 1
    (e, d), *_ = points_of(privacy)
    epsilon, delta = Decimal(e), Decimal(d)
    claim = f"delta at most {d!r} at epsilon = {e!r}"
    asked = Asked(name, shapes, rounds, rate, epsilon, delta, account)
    found = asked.least(scaled, aim)
    account.bounds(claim, found, delta)
    return found, len(scaled) == 1 and asked.closed(scaled[0])


def largest_loss(name: str, shapes: tuple[Decimal, ...], shift: Decimal) -> Decimal:
    """The largest privacy loss at a shift, in units of the scale; infinite where it has no end."""
    if name in ("laplace", "logistic") or (name == "gennorm" and shapes[0] == 1):
        return shift
    if name == "dlaplace":
        return shapes[0] * shift
    if name == "staircase" and shift <= 1:
        return shapes[0]
    return Decimal("Infinity")


def proper(name: str, shapes: tuple[Decimal, ...]) -> bool:
    """Whether a law of the family has these shapes: it is log-concave then, or a staircase."""
    if name == "staircase":
        epsilon, gamma = shapes
        return epsilon > 0 and 0 <= gamma <= 1
    if name in ("osgt", "flipped_huber", "gennorm"):
        return shapes[0] >= (1 if name == "gennorm" else 0)
    return all(shape > 0 for shape in shapes)

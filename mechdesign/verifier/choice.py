"""A choice by score: what a rule loses by its rate and spread, and the optimal table for counts of votes.

At rate c, and scores of which two move against each other by at most s between neighbours, η = c s. Permute-and-flip is η-DP (McKenna and Sheldon 2020), and so is
the largest score with Laplace noise of scale 1/c: the other noise fixed, the threshold moves by at most s. Losses of
the exponential mechanism lie in an interval of length η: it is η-DP, η²/8-zCDP (Cesar and Rogers 2021), and (ε, δ)-DP where
(e^{η/2} − e^{ε/2})² ≤ δ (e^η − 1) (Dong, Durfee and Rogers 2020). What is η-DP is (ε, δ)-DP where e^η (1 − δ) ≤ e^ε + δ, and η tanh(η/2)-zCDP.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise, permutations, product

from mechdesign.verifier.arithmetic import GAUSS, exp_bounds, least
from mechdesign.verifier.composition import left_after
from mechdesign.verifier.reading import Account, Json, Refused
from mechdesign.verifier.table import averaged, declared, stated

SPREADS = {"one vote": 1, "approvals": 1, "replaced vote": 2}
RULES = ("permute-and-flip", "exponential mechanism", "report noisy max")
MOST = 2000
"""Sorted vectors of counts."""


def left_of(rule: str, privacy: Json, loss: Fraction) -> Fraction:
    """Return the slack of the requirement for a rule at η = `loss`; negative if it may break it."""
    if loss > 700:
        return 700 - loss
    left = left_after(privacy, loss)
    if rule != RULES[1] or left >= 0:
        return left
    if privacy[""] == "zcdp":
        return Fraction(privacy["rho"]) - loss * loss / 8
    over = exp_bounds(loss / 2)[1] - exp_bounds(Fraction(privacy["epsilon"]) / 2)[0]
    return Fraction(privacy.get("delta", 0)) * (exp_bounds(loss)[0] - 1) - over * over


def worst_regret(rule: str, candidates: int) -> float:
    """The largest expected regret where all but the best are u/c behind, times c; it rises with u, then falls.

    Of the first two rules no scores have more (McKenna and Sheldon 2020).
    """

    def regret(u: float) -> float:
        alive = math.exp(-u)
        if rule == RULES[1]:
            return u * (candidates - 1) * alive / (1 + (candidates - 1) * alive)
        if rule == RULES[2]:
            return u * (1 - largest_noisy(u, candidates))
        return u * (1 + math.expm1(candidates * math.log1p(-alive)) / (candidates * alive))

    return -least(lambda u: -regret(u), 1e-9, math.log(candidates) + 3)


def largest_noisy(u: float, candidates: int) -> float:
    """Probability that the best has the largest score with Laplace noise, all others u behind.

    Closed forms where its noise is above 0, and where it is below −u, in the lower tails of all; between, of −x, the rule of Gauss with five nodes on each of 64 steps.
    """
    p, most, panel = math.exp(-u), candidates - 1, u / 64
    above = -math.expm1(candidates * math.log1p(-p / 2)) / (candidates * p)
    at = [((k + (1 + node) / 2) * panel, weight) for k in range(64) for node, weight in GAUSS]
    between = math.fsum(weight * math.exp(most * math.log1p(-p * math.exp(x) / 2) - x) for x, weight in at)
    return above + between * panel / 4 + p * 0.5**most / (2 * candidates)


def by_rule(design: Json, law: Json, account: Account) -> tuple[int, int]:
    """Check that a law is a rule for the candidates of a design, and private; return the number of candidates, and of units in one score."""
    candidates, votes, times, unit = design["candidates"], design["neighbours"], design.get("choose", 1), 1
    if design[""] == "private-quantile":
        q = Fraction(design["q"]).limit_denominator(10**6)
        p, unit = q.numerator, q.denominator
        most = 2 * (unit if votes == "replace" else max(p, unit - p))
        spread = Fraction(unit if p in (0, unit) else most)
        same = law[""] == "quantile-rule" and law["share"] == q
    else:
        spread = Fraction(SPREADS[votes] if design["spread"] is None else design["spread"])
        same = law[""] == "choice-rule" and design["largest"] is None and law["choose"] == times
    same = same and law["candidates"] == candidates
    account.agrees("the rule is for the candidates of the design", same)
    if not same:
        raise Refused("a rule for other candidates")
    loss = Fraction(law["rate"]) * spread
    each = {
        k: Fraction(v) / times if isinstance(v, (int, float)) else v for k, v in design["privacy"].items()
    }
    claim = f"{law['rule']} at η = {float(loss)!r} is private{f', {times} times' * (times > 1)}"
    account.at_most(claim, 0, left_of(law["rule"], each, loss))
    return size_of(candidates), unit


def rule(result: Json, account: Account) -> None:
    """Check the privacy of a rule, and its regret."""
    law = result["mechanism"]
    if result["lower_bound"] is not None:
        raise Refused("a lower bound on the regret of rules, of which there is none")
    size, unit = by_rule(result["design"], law, account)
    times = result["design"].get("choose", 1)
    if not 1 <= times <= min(size, 1000):
        raise Refused("more choices than candidates")
    regret = math.fsum(worst_regret(law["rule"], size - k) for k in range(times)) / law["rate"] / unit
    claim = f"the expected regret is at most {result['value']!r}{' where all others are equally far behind' * (law['rule'] == RULES[2])}"
    account.at_most(claim, regret * (1 - 1e-13), result["value"], "recomputed")


def with_noise(law: Json, neighbours: str, budget: str, account: Account) -> Fraction:
    """Check the choices of a plan; return the part of the budget, in ε or ρ, that they take in a round."""
    taken = Fraction(0)
    account.agrees("every choice has its rule", len(dict(law["chosen"])) == len(law["rules"]))
    for (name, design), own in zip(dict(law["chosen"]).items(), law["rules"]):
        part = account.part()
        if design[""] not in ("private-choice", "private-quantile"):
            raise Refused(f"{name}: no choice")
        by_rule(design, own, part)
        account.join(name, part)
        replaced = "replace" if design["neighbours"].startswith("replace") else "add-remove"
        account.agrees(f"{name} is for the plan's neighbours", replaced == neighbours)
        privacy = design["privacy"]
        if privacy[""] == budget == "zcdp":
            taken += Fraction(privacy["rho"]) + Fraction(privacy["xi"])
            continue
        if privacy[""] == "zcdp" or privacy.get("delta", 0):
            raise Refused(f"{name}: a part of the budget in another currency")
        loss = Fraction(privacy["epsilon"])
        high = exp_bounds(loss)[1]
        taken += loss * (high - 1) / (high + 1) if budget == "zcdp" else loss
    return taken


def size_of(candidates: Json) -> int:
    """How many candidates there are."""
    if isinstance(candidates, int):
        return candidates
    if isinstance(candidates, dict):
        return int((candidates["high"] - candidates["low"]) / candidates["step"] * (1 + 2.0**-52)) + 1
    return len(list(candidates))


def choice(result: Json, account: Account) -> None:
    design, law = result["design"], result["mechanism"]
    names, votes, top = design["candidates"], design["neighbours"], design["largest"]
    if top is None:
        rule(result, account)
        return
    size = size_of(names)
    by_counts = votes in SPREADS and (design["spread"], design["choose"], law[""]) == (
        None,
        1,
        "choice-table",
    )
    if not by_counts or not 2 <= size <= 10 or math.comb(top + size, size) > MOST:
        raise Refused("no table of counts, or one that is too large")
    counts = ordered(votes, size, top)
    account.takes(len(counts) * (2**size if votes == "approvals" else size**2))
    places = {x: i for i, x in enumerate(counts)}
    first = [
        places[tuple(sorted(x, reverse=True))] * size + sum(other > part for other in x)
        for x in counts
        for part in x
    ]
    regret = [[float(max(x) - part) for part in x] for x in counts]
    equal = [[(j, -1.0), (i, 1.0)] for i, j in enumerate(first) if i != j]
    prior = None if design["objective"] == "worst" else list(map(orders, counts))
    costs, rows = averaged(regret, prior)
    known = [list(map(float, x)) for x in counts], list(range(size)) if isinstance(names, int) else names
    same = repr((law["inputs"], law["outputs"])) == repr(known)
    account.agrees("inputs are all sorted counts, and outputs the candidates", same)
    cells = [Fraction(w, sum(row)) for row in law["weights"] for w in row]
    account.agrees(
        "candidates of equal counts are chosen alike", all(cells[i] == cells[j] for i, j in enumerate(first))
    )
    pairs = [[i, j] for i, j in neighbours(votes, counts, places, top)]
    question = stated(counts, range(size), (costs, [*equal, *rows]), design["privacy"], pairs)
    question["labels"] = ["equal counts", *["objective"] * bool(rows)]
    question["family"] = [0] * len(equal) + [1] * len(rows)
    question["equal"] = [1] * len(equal) + [0] * len(rows)
    declared(question, result, account, f"choice by counts of 0 to {top}")


def ordered(votes: str, size: int, top: int) -> list[tuple[int, ...]]:
    """All counts up to their order, largest first; of replaced votes then those in which a count and the next one, which is one less, change places."""
    found = list(combinations_with_replacement(range(top, -1, -1), size))
    swapped = (
        (*x[:r], x[r + 1], x[r], *x[r + 2 :]) for r in range(size - 1) for x in found if x[r] == x[r + 1] + 1
    )
    return [*found, *(swapped if votes == "replaced vote" else ())]


def orders(x: tuple[int, ...]) -> int:
    """In how many orders counts may be: 0 of those that are not sorted."""
    found = math.factorial(len(x)) // math.prod(math.factorial(x.count(part)) for part in set(x))
    return found if all(a >= b for a, b in pairwise(x)) else 0


def neighbours(
    votes: str, counts: list[tuple[int, ...]], places: dict[tuple[int, ...], int], top: int
) -> list[tuple[int, int]]:
    """Pairs of these counts, those above `top` counted as it, between which one person moves.

    Of the other pairs each is one of these with candidates exchanged: what is added goes to the first of equal counts, what is taken comes from the last.
    """
    size = len(counts[0])
    single = [tuple(int(r == s) for s in range(size)) for r in range(size)]
    moves = {
        "one vote": single,
        "approvals": [v for v in product((0, 1), repeat=size) if any(v)],
        "replaced vote": [tuple(a - b for a, b in zip(u, v)) for u, v in permutations(single, 2)],
    }[votes]
    after = ((x, tuple(a + b for a, b in zip(x, move))) for move in moves for x in counts)
    found = [(places[x], places[y]) for x, y in after if y in places]
    if votes == "replaced vote":  # from or to a candidate that stays at `top`
        for x, move in product(counts, single):
            y = tuple(a + b for a, b in zip(x, move))
            if y in places and any(a == top and not m for a, m in zip(x, move)):
                found.append((places[x], places[y]))
    return found

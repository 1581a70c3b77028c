"""A plan: several tasks released together, each part with independent noise of one law.

One person changes all tasks at once, each part by at most what its task says: k counts by 1 (2k where a person is replaced), a mean of n numbers
in [a, b] by (b − a)/n, or its sum less n(a + b)/2 by (b − a)/2 and its count by 1, a sum clipped to [0, c] by c. Of each part the worst change is as in
`mechdesign.verifier.calibration`; a person who moves in one of the counts of a workload, or from one to another, moves the numbers R x of a strategy by no more than a
column of R, or two, and those that get noise are rounded to 2⁻²². Pairs of laws whose hockey-stick curves are nowhere lower compose to one: largest losses and ρ add up over parts and
rounds, and so does μ² of normal noise, δ is that of the composition of all losses, on one grid (`mechdesign.verifier.composition`). Of groups of tasks over disjoint people, under
add-remove neighbours, one person is in one: each group, with the tasks that are in none, keeps the budget. Choices take the ε or ρ that they state, and noise keeps the rest.

An allocation of noise of one family is released as parts are: noise λ_i U on each coordinate i, U of the unit that it is assigned. Moved by λ_i, λ_i U loses what U
loses that is moved by 1, and the value is Σ w_i λ_i^p E|U|^p. Smaller changes lose no more, as units are log-concave, or staircases moved by at most their step.

**A choice by score**: what a rule loses by its rate and spread, and its regret.

At rate c, and scores of which two move against each other by at most s between neighbours, η = c s. Permute-and-flip is η-DP (McKenna and Sheldon 2020), and so is
the largest score with Laplace noise of scale 1/c: the other noise fixed, the threshold moves by at most s. Losses of
the exponential mechanism lie in an interval of length η: it is η-DP, η²/8-zCDP (Cesar and Rogers 2021), and (ε, δ)-DP where
(e^{η/2} − e^{ε/2})² ≤ δ (e^η − 1) (Dong, Durfee and Rogers 2020). What is η-DP is (ε, δ)-DP where e^η (1 − δ) ≤ e^ε + δ, and η tanh(η/2)-zCDP.
"""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction

from mechdesign.verifier import reading
from mechdesign.verifier.arithmetic import exp_bounds, integral, least, whole
from mechdesign.verifier.calibration import NEAR_ENDS, budget_of, consumed, law_of, terms_of
from mechdesign.verifier.composition import COSTS, ROUND, SLACK, ZERO, left_after
from mechdesign.verifier.gaussian import MOST_WORK, Changed, largest_of, unbiased
from mechdesign.verifier.local_report import answers
from mechdesign.verifier.reading import Account, Json, NotCovered, Refused, refuse
from mechdesign.verifier.table import SPREADS

RULES = ("permute-and-flip", "exponential mechanism", "report noisy max")
NAMES = {"laplace": "laplace", "gaussian": "norm", "staircase": "staircase"}
WHOLE = {"laplace": "dlaplace", "gaussian": "discrete_gaussian"}
BY_MU = "gaussian-dp", "membership-advantage", "trade-off"
CHOSEN = {"sum-task": "clip", "workload-task": "strategies"}
"""What a plan chooses of a task."""
UNIT = Fraction(1)
GRAIN = Decimal(2) ** -22


def plan(result: Json, account: Account) -> None:
    """Check that the plan answers the tasks asked, with noise of the menu, at the cost stated and within the budget."""
    design, law, value = result["design"], result["mechanism"], result["value"]
    same = answers_the_tasks(design, law, account)
    neighbours, groups = design["neighbours"], design["disjoint"]
    if design["chosen"] and (design["privacy"][""] in BY_MU or design["targets"]):
        raise Refused("choices in a plan that counts no ε and no ρ, or that seeks the least budget")
    taken = design["rounds"] * with_noise(law, neighbours, design["privacy"][""], account)
    refuse(groups and neighbours != "add-remove", "disjoint groups between which a person may move")
    asked_for, settled = dict(design["tasks"]), law["tasks"] if same else ()
    offered = [(name, task) for name, task in settled if is_offered(name, task, asked_for[name], account)]
    parts = {name: parts_of(task, neighbours, account) for name, task in offered}
    complete = sum(map(len, parts.values())) == len(law["noises"])
    account.agrees("every part of a task has its noise", complete)
    if not same or not complete:
        return
    noises = iter(law["noises"])
    held = {name: [next(noises) for _ in own] for name, own in parts.items()}
    costs(result, parts, held, account)
    granted = dict(design["privacy"])
    budget = "rho" if granted[""] == "zcdp" else "epsilon"
    if design["targets"]:
        granted[budget] = value
    asked = budget_of(granted)
    if taken:
        refuse((left := Fraction(granted[budget]) - taken) <= 0, "choices that leave nothing for noise")
        near = float(left)
        granted[budget] = near if Fraction(near) <= left else math.nextafter(near, 0.0)
    apart = {name for group in groups for name in group}
    common = [name for name in held if name not in apart]
    found = ZERO
    for group in groups or [[]]:
        mine = [noise for name in [*common, *group] for noise in held[name]]
        terms = [terms_of(noise, granted[""] == "zcdp") for noise in mine]
        whose = f" of {', '.join(group)}" if group else ""
        found = max(found, consumed(terms, granted, account, whose=whose)[0])
    spent = reading.proofs_of(result)["law-proof"]["given"]
    lower, upper = Decimal(spent["lower"]), Decimal(spent["upper"])
    most = found + asked - budget_of(granted)  # from above, so that `upper` may be below it
    within = 0 <= lower <= upper <= asked and lower <= most * (1 + NEAR_ENDS) + SLACK
    account.claimed("the enclosure of what is consumed", within)
    if result["lower_bound"] is not None:
        account.claimed(
            f"no plan of this class ({reading.spoken_of(result)}) costs less than {result['lower_bound']!r}"
        )


def answers_the_tasks(design: Json, law: Json, account: Account) -> bool:
    """Check that tasks, people and choices are those of the design; return whether the tasks are."""
    tasks, settled = dict(design["tasks"]), dict(law["tasks"])
    same = [*tasks] == [*settled] and all(
        {**settled[name], (chosen := CHOSEN.get(task[""], "")): 0} == {**task, chosen: 0}
        for name, task in tasks.items()
    )
    account.agrees("the tasks answered are those asked", same)
    account.agrees("the plan is one that can be asked", is_asked(design))
    own = (law["neighbours"], law["disjoint"]) == (design["neighbours"], design["disjoint"])
    account.agrees("neighbours and groups are those of the design", own)
    account.agrees("the choices are those of the design", law["chosen"] == design["chosen"])
    return same


def is_offered(name: str, task: Json, asked: Json, account: Account) -> bool:
    """Check that the clip or strategy that was chosen is one of those offered."""
    if task[""] not in CHOSEN:
        return True
    word = CHOSEN[task[""]]
    chosen, given = (each if isinstance(each, list) else [each] for each in (task[word], asked[word]))
    offered = len(chosen) == 1 and chosen[0] in given
    word = "clip" if word == "clip" else "strategy"
    account.agrees(f"the {word} of {name} is one of those offered", offered)
    return offered


def costs(
    result: Json, parts: dict[str, list[Numbers]], held: dict[str, list[Json]], account: Account
) -> None:
    """Check that all noise is of the menu and protects the changes of its task, and that errors are at most those stated."""
    design, value, settled = result["design"], result["value"], dict(result["mechanism"]["tasks"])
    weights, targets = dict(design["weights"] or []), dict(design["targets"] or [])
    cost, errors, unknown = Fraction(0), dict.fromkeys(parts, Fraction(0)), list[str]()
    for name, own in parts.items():
        for k, ((dimension, changes, integer, worth, worst), noise) in enumerate(zip(own, held[name]), 1):
            whole_numbers = integer and design["privacy"][""] not in BY_MU
            menu = [(WHOLE if whole_numbers else NAMES).get(family) for family in design["families"]]
            stated = noise["dimension"], noise["rounds"], noise["sampling_rate"]
            fits = stated == (dimension, design["rounds"], 1.0) and covers(noise["sensitivity"], changes)
            fits = fits and noise["sensitivity"]["neighbours"] == design["neighbours"]
            family, shapes, scale = law_of(noise)
            part = name if len(own) == 1 else f"{name} ({k} of {len(own)})"
            account.agrees(f"the noise of {part} is of the menu, for what changes", fits and family in menu)
            variance = Fraction(COSTS[family](2, *shapes) * scale**2)
            if worth is None or worst is None:
                unknown.append(name)
                continue
            errors[name] += worst * variance
            cost += Fraction(weights.get(name, 1.0)) * worth * dimension * variance
    for name, task in settled.items():
        if any(isinstance(task.get(key), dict) for key in ("sensitivity", "contribution")):
            account.claimed(f"the change is what one record of {name} does, as stated")
        if task.get("values") is not None:
            account.claimed(f"the bias of the clip of {name}")
    if targets:
        spare = design["privacy"].get("rho", design["privacy"].get("epsilon")) - value
        account.agrees("the budget is within the one asked", spare >= 0, spare)
        for name, error in errors.items():
            most, claim = Fraction(targets[name]) ** 2, f"the error of {name} is at most {targets[name]!r}"
            if name in unknown:
                account.claimed(claim)
            else:
                account.costs(claim, error, most)
    elif unknown:
        account.claimed(f"the weighted squared error is at most {value!r}")
    else:
        account.costs(f"the weighted squared error is at most {value!r}", cost, value)


def is_asked(design: Json) -> bool:
    """Whether weights, targets and clips are positive and of tasks of the plan, families are of the menu, and ξ is 0."""
    tasks, weights, targets = (dict(design[name] or []) for name in ("tasks", "weights", "targets"))
    clips = [clip for task in tasks.values() if "clip" in task for clip in reading.flat(task["clip"])]
    positive = all(
        reading.is_number(number) and number > 0 for number in (*weights.values(), *targets.values(), *clips)
    )
    named = {*weights} <= {*tasks} and (not targets or ({*targets} == {*tasks} and not weights))
    offered = {*design["families"]} <= {*NAMES} and not design["privacy"].get("xi")
    if design["budget"] is None or not offered:
        return positive and named and offered
    (own, spent), (currency, amount) = worth(design["privacy"]), worth(design["budget"])
    return positive and named and own == currency and spent <= amount


def worth(budget: Json) -> tuple[str, Fraction]:
    """The currency in which a ledger adds up, and the budget in it: of (ε, δ) the largest ρ that implies it, in doubles from above (Canonne, Kamath and Steinke 2020)."""
    if budget[""] == "gaussian-dp":
        return "mu", Fraction(budget["mu"]) ** 2
    if not budget.get("delta"):
        name = "rho" if budget[""] == "zcdp" else "epsilon"
        return name, Fraction(budget[name])
    epsilon, log = budget["epsilon"], math.log(budget["delta"])

    def less(u: float) -> float:
        above = math.exp(u)
        found: float = (epsilon + math.log1p(1 / above) + (log + math.log1p(above)) / above) / (1 + above)
        return -found

    return "rho", -Fraction(least(less, -20.0, 40.0)) * (1 + Fraction(1, 10**9))


Numbers = tuple[int, Json, bool, Fraction | None, Fraction | None]
"""How many, what they change by, whether they are whole; what a unit of their variance adds, over their count, to the task's squared error, and what to
that of its worst answer: None where that takes too long to find."""


def parts_of(task: Json, neighbours: str, account: Account) -> list[Numbers]:
    kind, replaced = task[""], neighbours == "replace"
    if kind == "numeric-query":
        if (task["rounds"], task["sampling_rate"], task["loss"]) != (1, 1.0, "squared"):
            raise Refused("a query that is asked more than once, or of a sample")
        return [(task["dimension"], task["sensitivity"], task["integer"], UNIT, UNIT)]
    if kind == "histogram-task":
        bins, most = task["bins"], task["contribution"]
        if not isinstance(changes := most, dict):
            changes = {"linf": 1, "l0": min((1 + replaced) * most, bins), "signed": replaced}
        return [(bins, changes, task["whole"], UNIT, UNIT)]
    if kind == "count-task":
        return [(1, {"linf": task["contribution"], "signed": replaced}, task["whole"], UNIT, UNIT)]
    if kind == "sum-task":
        return [(1, task["clip"], task["whole"], UNIT, UNIT)]
    if kind == "mean-task":
        n, half = task["n"], (Fraction(task["upper"]) - Fraction(task["lower"])) / 2
        if replaced:
            return [(1, 2 * half / n, False, UNIT, UNIT)]
        one, other = Fraction(1, n**2), half**2 / n**2
        # centred sums are rounded to a grid of which those of n numbers are doubles
        grain = Fraction(2) ** (math.frexp(float(half))[1] - min(26, 53 - n.bit_length()))
        return [(1, half + grain, False, one, one), (1, 1, True, other, other)]
    if kind == "workload-task":
        return [of_strategy(task, replaced, account)]
    raise NotCovered(f"tasks of kind {kind}")


def of_strategy(task: Json, replaced: bool, account: Account) -> Numbers:
    """The numbers of a strategy, of which the answers to a workload are made."""
    size = reading.counts_of(task["workload"])
    rows, moved = task["strategies"][0], min(1 + replaced, size)
    if rows is None:
        factor = answers(task["workload"], MOST_WORK)
        changes: Json = {"linf": 1, "l0": moved, "signed": replaced}
        rank = size
    else:
        factor, rank = unbiased({**task, "strategy": rows}, account), len(rows)
        r, bits = whole(rows)
        square = largest_of(r, Changed(moved, replaced))
        longest = Decimal(square).sqrt() / 2**bits + Decimal(rank).sqrt() * GRAIN
        widest = moved * Fraction(max(sum(map(abs, column)) for column in zip(*r)), 2**bits)
        changes = {"l1": widest + rank * Fraction(GRAIN), "l2": Fraction(longest * ROUND)}
    worth = worst = None
    if factor is not None:
        errors = [math.fsum(x * x for x in row) for row in factor]
        worth, worst = Fraction(math.fsum(errors) / rank), Fraction(max(errors))
    return rank, changes, rows is None, worth, worst


def covers(stated: Json, changes: Json) -> bool:
    """Whether the bounds of the noise are those of the task; computed ones (fractions) may be rounded up."""
    own = changes if isinstance(changes, dict) else {"linf": changes}
    fits = stated["own"] is None and stated["signed"] == own.get("signed", True)
    for name in ("linf", "l1", "l2", "l0", "each"):
        most, said = own.get(name), stated[name]
        if isinstance(most, Fraction) and said is not None:
            fits = fits and most <= Fraction(said) <= most * (1 + Fraction(reading.NEAR))
        else:
            fits = fits and said == most
    return bool(fits)


def assigned(law: Json, account: Account) -> bool:
    """Check that each coordinate that changes is assigned a unit, each unit noise for a change of 1 on its coordinates; return whether it is so."""
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
    refuse(result["lower_bound"] is not None, "a lower bound of a search over laws, which has none")
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
    power = int(power)
    consumed([terms_of(unit) for unit in law["units"]], design["privacy"], account)
    laws = [law_of(unit) for unit in law["units"]]
    each = [COSTS[name](power, *shapes) * scale**power for name, shapes, scale in laws]
    terms = zip(weights, law["sensitivities"], law["which"])
    found = sum((Decimal(w) * Decimal(s) ** power * each[k] for w, s, k in terms if s), ZERO)
    account.costs(f"the value is at most {value:.12g}", Fraction(found * ROUND), value)


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
    p, most = math.exp(-u), candidates - 1
    above = -math.expm1(candidates * math.log1p(-p / 2)) / (candidates * p)
    between = integral(lambda x: math.exp(most * math.log1p(-p * math.exp(x) / 2) - x), 0.0, u, 64)
    return above + between / 2 + p * 0.5**most / (2 * candidates)


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
    refuse(not same, "a rule for other candidates")
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
    refuse(result["lower_bound"] is not None, "a lower bound on the regret of rules, of which there is none")
    size, unit = by_rule(result["design"], law, account)
    times = result["design"].get("choose", 1)
    refuse(not 1 <= times <= min(size, 1000), "more choices than candidates")
    regret = math.fsum(worst_regret(law["rule"], size - k) for k in range(times)) / law["rate"] / unit
    claim = f"the expected regret is at most {result['value']!r}{' where all others are equally far behind' * (law['rule'] == RULES[2])}"
    account.at_most(claim, regret * (1 - 1e-13), result["value"], "recomputed")


def with_noise(law: Json, neighbours: str, budget: str, account: Account) -> Fraction:
    """Check the choices of a plan; return the part of the budget, in ε or ρ, that they take in a round."""
    taken = Fraction(0)
    account.agrees("every choice has its rule", len(dict(law["chosen"])) == len(law["rules"]))
    for (name, design), own in zip(dict(law["chosen"]).items(), law["rules"]):
        part = Account()
        refuse(design[""] not in ("private-choice", "private-quantile"), f"{name}: no choice")
        by_rule(design, own, part)
        account.join(name, part)
        replaced = "replace" if design["neighbours"].startswith("replace") else "add-remove"
        account.agrees(f"{name} is for the plan's neighbours", replaced == neighbours)
        privacy = design["privacy"]
        if privacy[""] == budget == "zcdp":
            taken += Fraction(privacy["rho"]) + Fraction(privacy["xi"])
            continue
        refuse(privacy[""] == "zcdp" or privacy.get("delta", 0), f"{name}: a part in another currency")
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

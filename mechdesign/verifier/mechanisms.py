"""Mechanisms that are saved without a result: what they lose, computed from their laws.

No budget is stated that this could be compared with, so the loss itself is printed, rounded up: the largest loss where it is finite, else ρ of
zero-concentrated privacy where it has a closed form, else δ at ε = 1.

*Tables, selections and block fills* have rows that are affine between knots (`mechdesign.verifier.quantizer`), and an *integer table*
draws from the row at the start or from that at the end of a segment. So every probability of an output lies between the smallest and the
largest of its column: the largest quotient of the two is e^ε. Where it is infinite, Σ_i [p(x, i) − e^ε p(x', i)]₊ is convex in both rows, and
largest at two knots: δ at ε = 1. *A vector of d numbers*, each through one table, loses d ε.

*Independent noise.* Moved by v, Laplace coordinates lose Σ |v_i|/s_i at most, and normal ones are (Σ v_i²/s_i²)/2-zCDP; what is ε-private is
(ε²/2)-zCDP (Bun and Steinke 2016), and both add up. Of a change within several bounds, Σ (|v_i|/s_i)^m is no more than the sum of the largest
of its terms, than (L₁ max 1/s)^m, than L₂² max 1/s² and than L₂ (Σ 1/s²)^½. *A family on every coordinate*:
`mechdesign.verifier.calibration`. *K-norm noise* loses ‖v‖ over its scale, and
a staircase of the norm as much for a change of the largest norm that it states. *Cells* lose the largest quotient of two cells' densities
that a shift can bring over each other; c coordinates that are (ε, δ)-private each are (cε, cδ)-private.

*Correlated noise and strategies* state the budget μ² = ‖R v‖² of a change, ρ = μ²/2, but no changes: those are the design's.

**Releases of whole data sets under a metric**: d between items, the earth mover's distance between users.

*Linear queries.* The mean of f over a user's items moves by at most L times the earth mover's distance t, L the largest ‖f(x) − f(y)‖/d(x, y):
by way of the best plan. Of n users' mean one user moves by L t/n. K-norm noise of scale s loses L t/(n s); normal noise of deviation σ has at ε = α t
the δ of one normal coordinate moved by L t/(n σ), which is largest at the diameter.

*Item by item.* Each item goes through a channel that loses α₀ d, and m items that move by m t in all lose m α₀ t. What is hidden where the reports
are released in random order is not covered. *Sampling.* Draws of s items each, with replacement, from users at a distance of r or
less are further apart than a with a chance of at most e^(−s KL(a/D ‖ r/D)) (Chernoff), D the diameter: then (α a, δ) becomes (α a, δ + that) at r.

*Frequency estimates* are made of reports, whose channel is private. Histograms of users are not covered.

Noise is not stated: `release` takes the least scale, rounded up; scales that are large enough are printed. Distances of points are doubles
but for 1e-15 of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from operator import sub

from mechdesign.verifier import buffers, local_report
from mechdesign.verifier import table as channels
from mechdesign.verifier.allocation import largest_square
from mechdesign.verifier.arithmetic import decimal, exp_bounds, log_above, root_above
from mechdesign.verifier.calibration import (
    Asked,
    cases_of,
    joint_delta,
    law_of,
    most_lost,
    plainest,
    rounds_of,
)
from mechdesign.verifier.changes import changes_of
from mechdesign.verifier.choice import alone as choice_alone
from mechdesign.verifier.choice import with_noise
from mechdesign.verifier.gaussian import shown_is_the_law, unbiased
from mechdesign.verifier.knorm import Hull
from mechdesign.verifier.knorm import fits as knorm_fits
from mechdesign.verifier.knorm import said as norm_said
from mechdesign.verifier.noise import cells_of, even, largest_quotient, on_cells
from mechdesign.verifier.noise import largest_excess as cells_excess
from mechdesign.verifier.plan import assigned, covers, parts_of
from mechdesign.verifier.quantizer import (
    LAWS,
    Segments,
    is_law,
    largest_bias,
    largest_excess,
    segments_of,
    selection_fits,
    table_fits,
)
from mechdesign.verifier.reading import Account, Json, NotCovered, NothingToCheck, Refused, above
from mechdesign.verifier.table import channel_alone as channel
from mechdesign.verifier.table import (
    cluster_distances,
    clustered_response,
    distances,
    hadamard_response,
    table_alone,
)
from mechdesign.verifier.vectors import mechanism as vectors

NEARER = 1 - Fraction(1, 10**15)
DIGITS = 40


def norm_of(change: list[Fraction], norm: float) -> Fraction:
    """From above."""
    if norm == 2:
        return root_above(sum((x * x for x in change), Fraction(0)))
    return Fraction(max(map(abs, change)) if norm == math.inf else sum(map(abs, change)))


def linear(law: Json, account: Account) -> tuple[Fraction, float]:
    """The claim of privacy; α and δ."""
    query, space, norm = law["query"], law["query"]["space"], law["norm"]
    values, alpha, delta = query["values"], Fraction(law["alpha"]), law["delta"]
    central_or_local(law, account)
    account.agrees("norm and delta are of the noise", norm in ((2,) if law["gaussian"] else (1, 2, math.inf)))
    account.agrees("delta is of normal noise", (0 < delta < 1) if law["gaussian"] else delta == 0)
    size = math.prod(space["shape"])
    sized = len(values) == size and len({len(row) for row in values}) == 1
    account.agrees("every point has its values", sized)
    if not all(holds for *_, holds in account.rows):
        return alpha, delta
    if space["kind"] == "line":  # what holds between neighbours holds between all
        order = sorted(range(size), key=lambda x: space["points"][x][0])
        places = [Fraction(space["points"][x][0]) for x in order]
        pairs = [(x, y, q - p) for (x, p), (y, q) in pairwise(zip(order, places))]
        diameter = places[-1] - places[0]
    else:
        found = distances(space, account)
        pairs = [(x, y, Fraction(found[x][y]) * NEARER) for x in range(size) for y in range(x)]
        diameter = Fraction(max(map(max, found))) / NEARER
    account.takes(30 * len(pairs) * len(values[0]), 400)
    exact = [[Fraction(v) for v in row] for row in values]
    if not pairs or min(d for *_, d in pairs) <= 0:
        raise Refused("points of a space that are not apart")
    slope = max(norm_of(list(map(sub, exact[x], exact[y])), norm) / d for x, y, d in pairs)
    account.proved("the query is not constant", slope > 0)
    rate = slope / law["users"]
    if law["gaussian"]:
        budget = {"": "approximate-dp", "epsilon": float(alpha * diameter * NEARER), "delta": delta}
        square = (rate * diameter) ** 2 / largest_square(budget)
        scale = root_above(square)
        words = f"alpha = {law['alpha']!r}, delta = {delta!r}, by normal noise of a deviation of {{}} or more"
    else:
        scale = rate / alpha
        words = f"alpha = {law['alpha']!r}, by noise of a scale of {{}} or more in the norm {norm!r}"
    account.computed(f"privacy of users: {words}", scale)
    return alpha, delta


def central_or_local(law: Json, account: Account) -> None:
    several = law["model"] == "central" or (law["model"] == "local" and law["users"] == 1)
    account.agrees("a local release is one user's", several and law["users"] >= 1)


def channel_losses(law: Json, found: list[list[float]] | None, account: Account) -> tuple[Fraction, Fraction]:
    """What a channel loses per distance, and at most; the first is 0 where there are no distances."""
    if law[""] == "hadamard-response":
        ratio = Fraction(channels.TOP, channels.level(Fraction(law["epsilon"])))
        account.agrees("every point is an item", found is None or len(found) == law["items"])
        shortest = min((d for row in found or [] for d in row if d), default=math.inf)
        loss = Fraction(log_above(ratio))
        return (loss / (Fraction(shortest) * NEARER) if found else Fraction(0)), loss
    if law[""] == "clustered-response":
        alpha, size = Fraction(law["alpha"]), law["space"]["shape"][1]
        near, far = cluster_distances(law["space"])
        levels = {True: channels.level(alpha * near), False: channels.level(alpha * far)}
        kinds = {k: Fraction(log_above(Fraction(channels.TOP, levels[k]))) for k in levels}
        count = math.prod(law["space"]["shape"])
        account.agrees("every point is an item", found is None or len(found) == count)
        used = {True: size > 1, False: law["space"]["shape"][0] > 1}
        loss = max(kinds[k] for k in used if used[k])
        account.agrees("an item is reported more often than every other one", levels[size > 1] < channels.TOP)
        rates = (
            kinds[x // size == y // size] / (Fraction(d) * NEARER)
            for x, row in enumerate(found or [])
            for y, d in enumerate(row)
            if x != y
        )
        account.takes(20 * count**2 if found else 1)
        return max(rates, default=Fraction(0)), loss
    if law[""] != "channel":
        raise NotCovered(f"items through {law['']!s:.40}")
    rows, totals = channels.rows_of(law, account)
    account.agrees("every point is an item", found is None or len(found) == len(rows))
    account.takes(len(rows) ** 2 * len(rows[0]) if found else 1)
    columns = [column for column in zip(*rows, strict=True) if max(column)]
    account.proved("no report rules an item out", min(map(min, columns)) > 0)
    if not all(holds for *_, holds in account.rows):
        return Fraction(0), Fraction(0)
    shares = [[w / total for w in row] for row, total in zip(rows, totals)]  # each rounded once
    if min(p for row, held in zip(shares, rows) for p, w in zip(row, held) if w) < 1e-290:
        raise NotCovered("probabilities below 1e-290")
    largest = max(max(column) / min(column) for column in zip(*([p for p in row if p] for row in shares)))
    rate = 0.0
    for x, row in enumerate(found or []):
        for y, d in enumerate(row):
            if x != y:
                rate = max(rate, math.log(max(map(quotient, shares[x], shares[y]))) / d)
    more = Fraction(1) + Fraction(1, 10**9)
    return Fraction(rate) * more, Fraction(log_above(Fraction(largest) * more))


def quotient(p: float, q: float) -> float:
    return p / q if q else 1.0


def item_by_item(law: Json, account: Account) -> tuple[Fraction, float]:
    """The claim of privacy; α and δ."""
    if law["accounting"] != "composition":
        raise NotCovered("what shuffling hides")
    central_or_local(law, account)
    account.agrees("there are items", law["items"] >= 1)
    found = distances(law["space"], account)
    rate, most = channel_losses(law["channel"], found, account)
    if not all(holds for *_, holds in account.rows):
        return Fraction(0), 0.0
    account.computed(f"an item loses at most {{}} a distance, and {above(most)!r}", rate)
    alpha, reach = law["items"] * rate, law["radius"]
    within = "" if reach is None else f" between users at most {reach!r} apart"
    account.computed(f"privacy of users: alpha at most {{}}, delta = 0.0{within}", alpha)
    return alpha, 0.0


def reduced(law: Json, account: Account) -> None:
    """Draws from every user, and then a release of equally many items of each."""
    inner, radius, failure = law["mechanism"], Fraction(law["radius"]), Fraction(law["failure"])
    linear_query = inner[""] == "linear-release"
    alpha, delta = (linear if linear_query else item_by_item)(inner, account)
    space = inner["query"]["space"] if linear_query else inner["space"]
    if not linear_query:
        account.agrees(
            "the draws are the items", law["samples"] == inner["items"] and inner["radius"] is None
        )
    diameter = Fraction(max(map(max, distances(space, account)))) / NEARER
    draws = law["samples"]
    left = diameter * NEARER - radius
    account.agrees("the radius is less than the diameter", radius > 0 and left > 0, left)
    account.agrees(
        "draws and failure are some", draws is not None and draws >= 1 and 0 < failure < 1 - Fraction(delta)
    )
    if not all(holds for *_, holds in account.rows):
        return
    with localcontext(prec=DIGITS):
        more = 1 + Decimal("1e-30")
        near, need = decimal(radius / diameter) * more, -decimal(failure).ln() / draws * more
        low, high = near, Decimal(1)
        while high - low > Decimal("1e-13") * high:
            middle = (low + high) / 2
            diverges = middle * (middle / near).ln() + (1 - middle) * ((1 - middle) / (1 - near)).ln()
            low, high = (low, middle) if diverges >= need else (middle, high)
        added = Fraction(0) if high == 1 else failure
        stretch = Fraction(high) * diameter / radius
    account.computed(
        f"privacy of users of any sizes: alpha at most {{}}, delta at most {above(Fraction(delta) + added)!r}, "
        f"between users at most {law['radius']!r} apart",
        alpha * stretch,
    )


def estimate(law: Json, account: Account) -> None:
    space = law["space"]
    found = None if space is None else distances(space, account)
    _, loss = channel_losses(law["channel"], found, account)
    account.computed("a report loses at most {}, and what is made of reports no more", loss)


ROUND = Fraction(1) + Fraction(1, 10**40)
BITS = 1200
POINTS = 2**13


def rounded(number: Fraction) -> Fraction:
    """The least multiple of 2⁻¹²⁰⁰ that is no less: sums of those have no large denominators."""
    return Fraction(-((-number.numerator << BITS) // number.denominator), 1 << BITS)


def independent(law: Json, account: Account) -> None:
    scales, lam = law["scales"], law["sensitivities"]
    mixed = law[""] == "mixed-noise"
    if lam is None:
        raise NothingToCheck("noise that states no changes, which is not released")
    peaked = law["laplace"] if mixed else [law["noise"] == "laplace"] * len(scales)
    account.agrees("scales and sensitivities are of the same numbers", len(lam) == len(scales) == len(peaked))
    account.agrees("sensitivities are not negative", min(lam) >= 0)
    sure = min(scales) >= 0 and all(s > 0 or not l for s, l in zip(scales, lam))
    account.proved("every sensitive coordinate has noise", sure)
    if not sure or not any(lam):
        return
    account.takes(60 * len(lam), BITS)
    m = 1 if all(peaked) else 2
    rates = [1 / Fraction(s) for l, s in zip(lam, scales) if l]
    terms = sorted((rounded((Fraction(l) * r) ** m) for l, r in zip(filter(None, lam), rates)), reverse=True)
    found = [sum(terms, Fraction(0))]
    if (bounds := law.get("bounds")) is not None:
        asked = changes_of(bounds, len(lam))
        account.agrees("sensitivities are those of the bounds", asked.sizes == [Fraction(l) for l in lam])
        found.append(sum(terms[: asked.l0], Fraction(0)))
        squares = sum((rounded(r * r) for r in sorted(rates, reverse=True)[: asked.l0]), Fraction(0))
        if asked.l1 is not None:
            found.append((asked.l1 * max(rates)) ** m)
        if asked.l2 is not None and m == 2:
            found.append(asked.l2**2 * max(rates) ** 2)
        elif asked.l2 is not None:
            found.append(root_above(asked.l2**2 * squares))
    if m == 1:
        account.computed("privacy loss at most {}", min(found))
    else:
        account.computed("rho at most {}", min(found) / 2)


def additive(law: Json, account: Account) -> None:
    (name, shapes, scale), (rounds, rate) = plainest(*law_of(law)), rounds_of(law)
    scaled = cases_of(law, "norm" if name == "discrete_gaussian" else name, scale, account)
    most = rounds * most_lost(name, shapes, scaled, rate)
    if most.is_finite():
        account.computed("privacy loss at most {}", Fraction(most) * ROUND)
    elif name in ("norm", "discrete_gaussian") and rate == 1:
        width = shapes[0] if shapes else Decimal(1)
        rho = rounds * sum(count * (v / width) ** 2 for v, count in scaled[0]) / 2
        account.computed("rho at most {}", Fraction(rho) * ROUND)
    else:
        cases = cases_of(law, name, scale, account)
        composed = Asked(name, shapes, rounds, rate, Decimal(1), Decimal("1e-9"), account)
        delta = min(composed.consumed(case, POINTS) for case in cases)
        account.computed("delta at most {} at epsilon = 1", Fraction(delta) * ROUND)


def joint(law: Json, account: Account) -> None:
    delta = joint_delta(law["noises"], Decimal(1), Decimal("1e-9"), account, POINTS)
    account.computed("delta at most {} at epsilon = 1", Fraction(delta) * ROUND)


def units(law: Json, account: Account) -> None:
    if assigned(law, account):
        for k, unit in enumerate(law["units"]):
            own = account.part()
            additive(unit, own)
            account.join(f"unit {k}", own)


def knorm(law: Json, account: Account) -> None:
    if law["largest"] is None:
        raise NothingToCheck("noise that states no changes, which is not released")
    allowed = law["norm"] in (1, 2, math.inf) and law["dimension"] > 0 and law["largest"] >= 0
    account.agrees("norm, numbers and the largest change are some", allowed and knorm_fits(law))
    if law["vertices"] is not None:
        account.agrees("the faces are all that the hull has", Hull(law, account).sound)
    loss = Fraction(law["largest"]) / Fraction(law["scale"])
    account.computed(
        f"privacy loss at most {{}} of a change of size {law['largest']!r} in {norm_said(law)}", loss
    )


def cells(law: Json, account: Account) -> None:
    several = law[""] == "cell-product"
    moved = (law["l0"] or law["dimension"]) if several else 1
    if several and not 1 <= moved <= law["dimension"]:
        raise Refused("more coordinates that change than there are")
    one = law["law"] if several else law
    whole = "whole " if one[""] == "integer-noise" else ""
    one = on_cells(one) if whole else one
    account.agrees("noise of several numbers is symmetric", not several or even(one))
    held = cells_of(one)
    reach = above(one["cells_per_shift"] * Fraction(one["width"]))
    ratio = largest_quotient(one, held, account)
    if ratio is not None:
        loss = moved * Fraction(log_above(ratio))
        account.computed(f"privacy loss at most {{}} of {whole}shifts up to {reach!r}", loss)
        return
    delta = moved * cells_excess(one, held, exp_bounds(1)[0], account) / held.total
    account.computed(f"delta at most {{}} at epsilon = {moved}, of {whole}shifts up to {reach!r}", delta)


def correlated(law: Json, account: Account) -> None:
    if law["whitening"] is None or law["budget"] is None:
        raise NothingToCheck("noise that states no budget, which is not released")
    shown_is_the_law(law, account)
    account.claimed(f"rho at most {law['budget'] / 2!r}: of the changes, which are the design's")


def strategy(law: Json, account: Account) -> None:
    unbiased(law, account)
    account.claimed(f"rho at most {law['budget'] / 2!r}: of the changes, which are the design's")


WORD = 1 << 32


def quantizer(law: Json, account: Account, numbers: int = 1) -> None:
    if law["law"] is None:
        raise NothingToCheck("a quantizer of doubles, which is not released")
    segments = table(law["law"], account, numbers)
    shown = table_fits(segments, law["law"]["bins"], law) and selection_fits(law)
    account.agrees("the table shown is the law", shown)


def table(law: Json, account: Account, numbers: int = 1) -> Segments:
    """Bias and privacy of an exact law."""
    segments = segments_of(law, account)
    stated(segments, law["bins"], numbers, account)
    return segments


def stated(law: Segments, bins: list[Fraction], numbers: int, account: Account) -> None:
    account.takes(8 * sum(map(len, law.rows)), law.common.bit_length())
    is_law(law, bins, account)
    if not all(holds for *_, holds in account.rows):
        return
    account.computed("bias at most {} a number", largest_bias(law, bins))
    columns = [column for column in zip(*law.rows) if max(column)]
    if min(map(min, columns)) > 0:
        ratio = max(Fraction(max(column), min(column)) for column in columns)
        account.computed("privacy loss at most {}", numbers * Fraction(log_above(ratio)))
    else:
        account.proved("the law does not jump between its segments", law.continuous)
        delta = numbers * largest_excess(law, Fraction(1), account) / law.common
        account.computed(f"delta at most {{}} at epsilon = {numbers}", Fraction(delta))


def coordinates(law: Json, account: Account) -> None:
    """The same quantizer for every number of a vector."""
    if law["dimension"] < 1 or not 0 < law["scale"] < math.inf:
        raise Refused("vectors of no numbers, or a scale that is none")
    quantizer(law["coordinate"], account, law["dimension"])


def integer_table(law: Json, account: Account) -> None:
    knots, bins = ([Fraction(v) for v in law[name]] for name in ("knots", "bins"))
    if len(knots) < 2 or len(law["counts"]) != 2 * len(knots) - 2 or len(bins) < 2:
        raise Refused("counts of other segments than those between the knots")
    stated(Segments(knots, law["counts"], WORD), bins, 1, account)


def planned(law: Json, account: Account) -> None:
    """Each part of a plan by itself: what they consume together is a claim of the plan, not of its noise."""
    tasks = dict(law["tasks"])
    parts = [(name, *p) for name in tasks for p in parts_of(tasks[name], law["neighbours"], account)]
    account.agrees("every part of a task has its noise", len(parts) == len(law["noises"]))
    account.agrees(
        "the noise of all parts is drawn equally often", len({n["rounds"] for n in law["noises"]}) == 1
    )
    for (name, size, changes, *_), noise in zip(parts, law["noises"]):
        stated = noise["dimension"], noise["sensitivity"]["neighbours"], noise["sampling_rate"]
        fits = stated == (size, law["neighbours"], 1.0) and covers(noise["sensitivity"], changes)
        account.agrees(f"the noise of {name} is for what changes", fits)
        own = account.part()
        additive(noise, own)
        account.join(name, own)
    with_noise(law, law["neighbours"], "zcdp", account)


MECHANISMS: dict[str, Callable[[Json, Account], object]] = {
    "additive-noise": additive,
    "joint-noise": joint,
    "cell-noise": cells,
    "cell-product": cells,
    "integer-noise": cells,
    "correlated-gaussian-noise": correlated,
    "independent-noise": independent,
    "knorm-noise": knorm,
    "mixed-noise": independent,
    "coordinate-noise": units,
    "planned-release": planned,
    "strategy-noise": strategy,
    "buffered-noise": buffers.alone,
    "channel": channel,
    **dict.fromkeys(("table-mechanism", "choice-table"), table_alone),
    **dict.fromkeys(("choice-rule", "quantile-rule"), choice_alone),
    "clustered-response": clustered_response,
    "hadamard-response": hadamard_response,
    "integer-table": integer_table,
    "linear-report": local_report.alone,
    "subset-report": local_report.alone,
    "quantizer": quantizer,
    "vector-quantizer": coordinates,
    **dict.fromkeys(LAWS, table),
    **dict.fromkeys(
        ("sphere-quantizer", "random-directions", "sampled-signs", "sampled-coordinates", "priv-unit"),
        vectors,
    ),
    "frequency-estimate": estimate,
    "itemwise-release": item_by_item,
    "linear-release": linear,
    "reduced-release": reduced,
}

"""Releases of whole data sets under a metric: d between items, the earth mover's distance between users, and what the release loses.

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

from mechdesign.verifier import table as channels
from mechdesign.verifier.allocation import largest_square
from mechdesign.verifier.arithmetic import decimal, log_above, root_above
from mechdesign.verifier.reading import Account, Json, NotCovered, Refused, above
from mechdesign.verifier.table import cluster_distances, distances

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
    with localcontext() as context:
        context.prec = DIGITS
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


MECHANISMS: dict[str, Callable[[Json, Account], object]] = {
    "frequency-estimate": estimate,
    "itemwise-release": item_by_item,
    "linear-release": linear,
    "reduced-release": reduced,
}

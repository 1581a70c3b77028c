"""Releases of whole data sets under a metric: d between items, the earth mover's distance between users, and what the release loses.

*Linear queries.* The mean of f over a user's items moves by at most L times the earth mover's distance t, L the largest ‖f(x) − f(y)‖/d(x, y):
by way of the best plan. Of n users' mean one user moves by L t/n. K-norm noise of scale s loses L t/(n s); normal noise of deviation σ has at ε = α t
the δ of one normal coordinate moved by L t/(n σ), which is largest at the diameter.

*Item by item.* Each item goes through a channel that loses α₀ d. m items that move by m t in all lose m α₀ t, and less where the reports are
released in random order (`mechdesign.verifier.shuffling`). *Sampling.* Draws of s items each, with replacement, from users at a distance of r or
less are further apart than a with a chance of at most e^(−s KL(a/D ‖ r/D)) (Chernoff), D the diameter: then (α a, δ) becomes (α a, δ + that) at r.

*Laplace histogram.* A user moves the mean of n histograms by at most 2/n in ℓ₁. *Frequency estimates* are made of reports, whose
channel is private.

*Counts on a tree.* An item that moves from x to y changes the counts below the edges of its path by one each; noise with weights e^(−τ|z|) on each
loses at most the sum of τ on the path: α d(x, y)/m for all pairs is α of a user's m items, by the best pairing. E|z| = 1/sinh τ, and z items over an edge of length w are an
earth mover's distance of w|z|. Of unbiased histograms of n users under α, δ = 0, none is nearer on average than Σ w/(n m sinh(α w/m)) over the gaps of a line (as many as there are
items: an item at one end of each moves to the other, 1/(n m) = |E X(L − cosh t)| ≤ sinh t E|X| for likelihood ratios L between e^(−t) and e^t), nor than
(N − 1) D/(n m e^(α ρ/m) (e^(α D/m) − 1)) of N points anywhere, D the diameter and ρ the least radius: moves of an item at the centre to all other points, with ratios L_i, and
g(x_i) = n m (L_i − 1), E Σ X g = N − 1, where g is Lipschitz with n m e^(α ρ/m)(e^(α D/m) − 1)/D.

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

from mechdesign.verifier import channel as channels
from mechdesign.verifier.allocation import largest_square
from mechdesign.verifier.matrices import cluster_distances, distances
from mechdesign.verifier.reading import (
    Account,
    Json,
    NotCovered,
    Refused,
    above,
    exp_bounds,
    log_above,
    proofs_of,
)
from mechdesign.verifier.shuffling import Clones, Shuffled

NEARER = 1 - Fraction(1, 10**15)
DIGITS = 40


def norm_of(change: list[Fraction], norm: float) -> Fraction:
    """From above."""
    if norm == 2:
        square = sum(x * x for x in change)
        return Fraction(math.isqrt(int(square * 4**160)) + 1, 2**160) if square else Fraction(0)
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
        scale = above(Fraction(math.isqrt(int(square * 4**160)) + 1, 2**160))
        words = f"alpha = {law['alpha']!r}, delta = {delta!r}, by normal noise of a deviation of {scale!r} or more"
    else:
        scale = above(rate / alpha)
        words = f"alpha = {law['alpha']!r}, by noise of a scale of {scale!r} or more in the norm {norm!r}"
    account.proved(f"privacy of users: {words}", scale > 0)
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
    central_or_local(law, account)
    m, total, delta = law["items"], law["items"] * law["users"], law["delta"]
    plain = law["accounting"] == "composition"
    account.agrees("items and accounting are some", m >= 1 and law["accounting"] in ACCOUNTING)
    account.agrees("delta is of shuffling", plain or 1e-100 <= delta < 1)
    found = distances(law["space"], account)
    rate, most = channel_losses(law["channel"], found, account)
    if not all(holds for *_, holds in account.rows):
        return Fraction(0), 0.0
    account.proved(f"an item loses at most {above(rate)!r} a distance, and {above(most)!r}", True)
    diameter = Fraction(max(map(max, found))) / NEARER
    alpha = m * rate
    if not plain and total <= 10**15:
        with localcontext() as context:
            context.prec = DIGITS
            shuffled = amplified(rate, min(most, rate * diameter), diameter, law, total)
        alpha = min(alpha, shuffled or alpha)
    stated, reach = 0.0 if plain else delta, law["radius"]
    within = "" if reach is None else f" between users at most {reach!r} apart"
    account.proved(f"privacy of users: alpha at most {above(alpha)!r}, delta = {stated!r}{within}", True)
    return alpha, stated


ACCOUNTING = ("numerical", "closed-form", "composition")


def decimal(number: Fraction) -> Decimal:
    """From above."""
    return Decimal(number.numerator) / number.denominator * (1 + Decimal("1e-35"))


def amplified(rate: Fraction, most: Fraction, diameter: Fraction, law: Json, total: int) -> Fraction | None:
    """α after shuffling."""
    delta = Decimal(law["delta"])
    held = Shuffled(decimal(rate * diameter), law["items"], Clones.of(total, decimal(most)))
    if law["radius"] is None:
        found = held.rate(delta)
        return None if found is None else Fraction(found) / diameter * (1 + Fraction(1, 10**11))
    reach = min(Fraction(law["radius"]) / diameter, Fraction(1))
    gamma = held.level(decimal(reach), delta)
    if gamma is None:
        return None
    return held.k * Fraction(held.loss(gamma, decimal(reach))) / Fraction(law["radius"])


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
    account.agrees("the radius is less than the diameter", 0 < radius < diameter * NEARER)
    account.agrees(
        "draws and failure are some", draws is not None and draws >= 1 and 0 < failure < 1 - Fraction(delta)
    )
    if not all(holds for *_, holds in account.rows):
        return
    with localcontext() as context:
        context.prec = DIGITS
        near, need = decimal(radius / diameter), -decimal(failure).ln() / draws * (1 + Decimal("1e-30"))
        low, high = near, Decimal(1)
        while high - low > Decimal("1e-13") * high:
            middle = (low + high) / 2
            diverges = middle * (middle / near).ln() + (1 - middle) * ((1 - middle) / (1 - near)).ln()
            low, high = (low, middle) if diverges >= need else (middle, high)
        added = Fraction(0) if high == 1 else failure
        stretch = Fraction(high) * diameter / radius
    claim = f"alpha at most {above(alpha * stretch)!r}, delta at most {above(Fraction(delta) + added)!r}"
    account.proved(
        f"privacy of users of any sizes: {claim}, between users at most {law['radius']!r} apart", True
    )


def histogram(law: Json, account: Account) -> None:
    account.agrees("there are users and points", law["users"] >= 1 and math.prod(law["space"]["shape"]) >= 1)
    moved = Fraction(2, law["users"]) + Fraction(math.prod(law["space"]["shape"]), 1 << 50)
    scale = above(moved / Fraction(law["epsilon"]))
    claim = (
        f"privacy loss at most {law['epsilon']!r} of a user, by Laplace noise of a scale of {scale!r} or more"
    )
    account.proved(claim, scale * Fraction(law["epsilon"]) >= moved)


UNIT = 1 << 50
LARGEST = 500


def tree(law: Json, account: Account) -> tuple[Fraction, list[Fraction], list[list[float]]]:
    """α of counts on a tree, the lengths of its edges from above (0 at the root), and all distances."""
    size, parents, losses = math.prod(law["space"]["shape"]), law["parents"], law["losses"]
    found = distances(law["space"], account)
    account.takes(2 * size**2)
    fits = len(parents) == len(losses) == size and law["items"] >= 1 and law["users"] >= 1
    fits = fits and all(-1 <= p < size for p in parents) and parents.count(-1) == 1
    known = [parents.index(-1)] if fits else []
    children: list[list[int]] = [[] for _ in range(size)]
    for point, parent in enumerate(parents if fits else []):
        if parent >= 0:
            children[parent].append(point)
    for point in known:
        known += children[point]
    if not fits or len(known) != size or size < 2:
        raise Refused("no tree of the points, with a loss for each")
    own = [losses[x] for x in known[1:]]
    account.agrees("losses are some", min(own) > 0 and max(own) <= LARGEST * UNIT and not losses[known[0]])
    paths = [[0] * size for _ in range(size)]
    for k, point in enumerate(known):
        for other in known[:k]:
            paths[point][other] = paths[other][point] = paths[parents[point]][other] + losses[point]
    rates = [max((p / d for p, d in zip(paths[x], found[x][:x])), default=0.0) for x in range(size)]
    most = max(rates) * (1 - 1e-9)
    pairs = (
        (x, y) for x in range(size) if rates[x] >= most for y in range(x) if paths[x][y] >= most * found[x][y]
    )
    alpha = (
        max(Fraction(paths[x][y]) / Fraction(found[x][y]) for x, y in pairs) * law["items"] / UNIT / NEARER
    )
    lengths = [Fraction(found[x][p]) / NEARER if p >= 0 else Fraction(0) for x, p in enumerate(parents)]
    return alpha, lengths, found


def counts_on_a_tree(law: Json, account: Account) -> None:
    alpha, *_ = tree(law, account)
    account.proved(f"privacy of users: alpha at most {above(alpha)!r}, delta = 0.0", alpha > 0)


def sinh(x: Fraction) -> tuple[Fraction, Fraction]:
    """From below and from above."""
    low, high = exp_bounds(x)
    return (low - 1 / low) / 2, (high - 1 / high) / 2


def user_histogram(result: Json, account: Account) -> None:
    design, law, value = result["design"], result["mechanism"], Fraction(result["value"])
    asked, space, total = design["privacy"], design["space"], design["items"] * design["users"]
    ways = {
        "tree-histogram": ("tree",),
        "linear-release": ("linear", "gaussian"),
        "itemwise-release": ("itemwise",),
    }
    if proofs_of(result).keys() != {"user-histogram-proof"} or law[""] not in ways:
        raise Refused("a law or proofs of something else than histograms of users")
    linear_query = law[""] == "linear-release"
    account.agrees(
        "the privacy is of users of equal sizes", (asked["model"], asked["sizes"]) == ("central", "bounded")
    )
    held = law["query"]["space"] if linear_query else law["space"]
    alike = repr(held) == repr(space) and law["users"] == design["users"]
    alike = alike and law.get("items", design["items"]) == design["items"] and total >= 1
    account.agrees("the mechanism is for the question's users and points", alike)
    kind = ways[law[""]][linear_query and law["gaussian"]]
    account.agrees("it is of the kind that was asked for", design["by"] in (None, kind))
    how = proofs_of(result)["user-histogram-proof"]["how"]
    account.agrees("privacy is accounted for as said", (how == "proved") == (kind in ("tree", "linear")))
    alpha, delta = Fraction(asked["alpha"]), asked["delta"]
    claim = f"privacy of users: alpha at most {asked['alpha']!r}, delta = {delta!r}"
    apart: list[list[float]] = []
    claimed = f"expected earth mover's distance at most {result['value']!r}"
    if kind == "tree":
        found, lengths, apart = tree(law, account)
        account.proved(claim, found <= alpha)
        account.takes(60 * len(lengths), 600)
        terms = (w / sinh(Fraction(loss, UNIT))[0] for w, loss in zip(lengths, law["losses"]) if w)
        account.proved(claimed, sum(Fraction(above(term)) for term in terms) / total <= value)
    else:
        found, lost = (linear if linear_query else item_by_item)(law, account)
        if linear_query:
            size = math.prod(space["shape"])
            units = [[float(x == y) for y in range(size)] for x in range(size)]
            account.agrees("the query is the histogram", law["query"]["values"] == units)
            account.agrees("it is of all users", law["model"] == "central")
        else:
            account.agrees(
                "it is of all users, at any distance", law["model"] == "central" and law["radius"] is None
            )
        within = found <= alpha and lost <= delta
        if within or found > 2 * alpha or lost > delta:
            account.proved(claim, within)
        else:
            account.claimed(f"{claim} (by the accounting here alpha at most {above(found)!r})")
        account.claimed(claimed, value > 0)
    if result["lower_bound"] is not None:
        claim = (
            f"no unbiased histogram of users with so many items each is nearer than {result['lower_bound']!r}"
        )
        apart = apart or distances(space, account)
        least = floor(space, apart, alpha / design["items"], total, account)
        account.proved(claim, delta == 0 and Fraction(result["lower_bound"]) <= least)


def floor(space: Json, found: list[list[float]], rate: Fraction, total: int, account: Account) -> Fraction:
    """What no unbiased histogram is below, for this α/m and so many items."""
    far, near = (Fraction(most(map(max, found))) / NEARER for most in (max, min))
    bound = Fraction(0)
    if rate * far < LARGEST:
        bound = (
            (len(found) - 1) * far * NEARER**2 / exp_bounds(rate * near)[1] / (exp_bounds(rate * far)[1] - 1)
        )
    if space["kind"] == "line":
        places = sorted(Fraction(x) for (x,) in space["points"])
        account.takes(60 * len(places), 600)
        gaps = [q - p for p, q in pairwise(places) if rate * (q - p) < LARGEST]
        terms = sorted(below(gap / sinh(rate * gap)[1]) for gap in gaps)
        bound = max(bound, sum(map(Fraction, terms[-total:]), Fraction(0)))
    return bound / total


def below(number: Fraction) -> float:
    """The largest double that is no more."""
    return -above(-number)


def estimate(law: Json, account: Account) -> None:
    space = law["space"]
    found = None if space is None else distances(space, account)
    _, loss = channel_losses(law["channel"], found, account)
    account.proved(f"a report loses at most {above(loss)!r}, and what is made of reports no more", loss > 0)


def release(law: Json, account: Account) -> None:
    (linear if law[""] == "linear-release" else item_by_item)(law, account)


MECHANISMS: dict[str, Callable[[Json, Account], None]] = {
    "frequency-estimate": estimate,
    "itemwise-release": release,
    "laplace-histogram": histogram,
    "linear-release": release,
    "reduced-release": reduced,
    "tree-histogram": counts_on_a_tree,
}

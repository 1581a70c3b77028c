"""Metric-private channels: rows, distances, privacy of all pairs, value, equalities, and the bound by weak duality.

Saved alone: *a table of a row for each item* has the largest quotient of two rows as its loss; rows of doubles stand for themselves over
their exact sums. *Clustered response* (k-ary response is one cluster): of n items in clusters, the item itself is reported with weight
2¹⁰⁰, another of its cluster with the least integer that is at least 2¹⁰⁰ e^(−α d₁), one of another cluster with that for d₂ ≥ d₁. All rows
have one total, so that two items' probabilities of a report differ by the largest quotient of two weights: at most e^(α d₁) within a cluster
and e^(α d₂) across. *Hadamard response*: every row but the first of Sylvester's matrix has as many 1 as −1; reports of the one sign have
weight 2¹⁰⁰, of the other the least integer that is at least 2¹⁰⁰ e^(−ε).

*A count* in 0, …, n, answered there. A private table C has, for any prior w of the true values and any ψ ≥ 0 of neighbours x, x′ and answers y, a worst (with the question's
prior as w: a mean) loss of at least Σ_x min_y (w_x ℓ(y − x) + Σ ψ_xx′(y) − e^ε ψ_x′x(y)) − δ Σ_xx′ max_y ψ_xx′(y): rows of C are averages, and
Σ_y ψ_xx′(y) (C[x, y] − e^ε C[x′, y]) is at most δ max_y ψ_xx′(y).
"""

from __future__ import annotations

import math
from fractions import Fraction

from mechdesign.verifier.matrices import cluster_distances, whole
from mechdesign.verifier.reading import (
    NEAR,
    Account,
    Json,
    NotCovered,
    Refused,
    exp_bounds,
    flat,
    proofs_of,
)
from mechdesign.verifier.table import declared, largest_loss

TOP = 1 << 100


def channel(result: Json, account: Account) -> None:
    """A channel as the table that it is, private at alpha times the distance."""
    design, law, space = result["design"], result["mechanism"], result["design"]["space"]
    far = proofs_of(result)["table-proof"]["distances"]
    if law[""] != "channel" or far is None:
        raise Refused("no channel, or no distances")
    items = range(len(far))
    account.agrees("the channel is on the design's space", repr(law["space"]) == repr(space))
    sides = not space["shape"] or math.prod(space["shape"]) == len(far)
    account.agrees("the sides of the space are of its points", sides)
    account.agrees("distances are not negative", min(map(min, far)) >= 0 and {*map(len, far)} == {len(far)})
    table_fits(law, account)
    losses: Json = {"metric": far, "squared": [[d * d for d in row] for row in far]}
    losses["error"] = [[float(x != y) for y in items] for x in items]
    losses = losses[design["loss"]] if isinstance(design["loss"], str) else design["loss"]
    prior = design["prior"] or [1 / len(far)] * len(far)
    account.agrees("the prior is one", len(prior) == len(far) == len(losses) and min(prior) >= 0)
    total, reports = math.fsum(prior), len(losses[0])
    costs = [c * p / total for p, row in zip(prior, losses, strict=True) for c in row]
    rows, offsets = [], list[float]()
    if design["unbiased"] is not None or design["decoder"] is not None:
        asked = design["unbiased"] or ([[float(x == y) for y in items] for x in items], design["decoder"])
        goal, values = ([flat([row]) for row in part] for part in asked)
        account.agrees("every report has its values", len(values) == reports and len(goal) == len(far))
        for j, column in enumerate(zip(*goal, strict=True)):
            for x, g in enumerate(column):
                rows.append([(x * reports + y, v[j]) for y, v in enumerate(values) if v[j]])
                offsets.append(-g)
    question = stated(items, range(reports), costs, rows, offsets, "unbiased", equal=1)
    metric = {"": "metric-dp", "epsilon": design["alpha"], "metric": space}
    question["privacy"] = [{"label": "private", "privacy": metric, "between": "all", "distances": far}]
    free = design["unbiased"] is None and design["decoder"] is None
    declared(question, result, account, f"{'' if free else 'unbiased '}channel between the points")


def bounded(result: Json, account: Account) -> None:
    """A count as the table of answers that it is: the worst loss or the mean, private between counts at most s apart."""
    design, law = result["design"], result["mechanism"]
    n, near, loss, prior = (design[name] for name in ("n", "sensitivity", "loss", "prior"))
    if loss not in ("absolute", "squared"):
        raise NotCovered("another loss than the absolute or the squared error")
    if law[""] != "channel" or not 1 <= near <= n <= 500 or law["space"] is not None:
        raise Refused("no table, or a change that is no part of the count")
    places = range(n + 1)
    table_fits(law, account)
    losses = [[float(abs(y - x) ** (1 if loss == "absolute" else 2)) for y in places] for x in places]
    pairs = "adjacent" if near == 1 else [[x, y] for x in places for y in places if 0 < y - x <= near]
    rows: list[list[tuple[int, float]]] = []
    if prior is None:  # a further column that is at least the loss of every count
        last = (n + 1) ** 2
        costs = [0.0] * last + [1.0]
        rows = [[*((x * (n + 1) + y, c) for y, c in enumerate(losses[x]) if c), (last, -1.0)] for x in places]
    else:
        if len(prior) != n + 1 or min(prior) < 0 or not max(prior):
            raise Refused("no prior of the true values")
        total = math.fsum(prior)
        costs = [c * p / total for p, row in zip(prior, losses) for c in row]
    question = stated(places, places, costs, rows, [0.0] * len(rows), "objective", equal=0)
    question["privacy"] = [
        {"label": "private", "privacy": design["privacy"], "between": pairs, "distances": None}
    ]
    declared(question, result, account, f"mechanism with answers 0 to {n}")


def stated(
    inputs: Json, outputs: Json, costs: Json, rows: Json, offsets: Json, label: str, *, equal: int
) -> dict[str, Json]:
    """A problem in numbers, its own rows of one family."""
    return {
        "inputs": list(inputs), "outputs": list(outputs), "cost": costs, "constant": 0.0, "labels": [label][: len(rows)],
        "family": [0] * len(rows), "equal": [equal] * len(rows), "offsets": offsets, "curved": [],
        "places": [[i, j] for i, row in enumerate(rows) for j, _ in row],
        "coefficients": [a for row in rows for _, a in row],
    }  # fmt: skip


def level(loss: Fraction) -> int:
    """The least integer that is at least 2¹⁰⁰ e^{−loss}."""
    return 1 if loss >= 100 else min(TOP, math.ceil(TOP / exp_bounds(loss)[0]))


def within(weight: int, loss: Fraction) -> bool:
    """Whether 2¹⁰⁰ is at most e^loss times a weight."""
    return weight >= TOP or weight * exp_bounds(min(loss, 700))[0] >= TOP


def clustered_response(law: Json, account: Account) -> None:
    alpha, (near, far) = Fraction(law["alpha"]), cluster_distances(law["space"])
    account.agrees("clusters are no further apart inside than across", 0 < near <= far)
    holds = within(level(alpha * near), alpha * near) and within(level(alpha * far), alpha * far)
    account.proved(f"privacy of all pairs at alpha = {float(alpha)!r}", holds)


def hadamard_response(law: Json, account: Account) -> None:
    epsilon = Fraction(law["epsilon"])
    account.agrees("there are items to tell apart", 2 <= law["items"] <= 1 << 40)
    account.proved(f"privacy loss at most {float(epsilon)!r}", within(level(epsilon), epsilon))


def table(law: Json, account: Account) -> None:
    """Privacy as the table has it: nothing is stated that it could be compared with."""
    rows, totals = rows_of(law, account)
    account.takes(8 * sum(map(len, rows)), max(totals).bit_length())
    if (loss := largest_loss(rows)) is None:
        account.claimed(
            "reports rule items out: private with some delta only, which this file does not state"
        )
    else:
        account.proved("no report rules an item out", True)
        account.proved(f"privacy loss at most {loss!r}", True)


def rows_of(law: Json, account: Account) -> tuple[list[list[int]], list[int]]:
    """Weights, and the total of every row: those stated, or the doubles over a common power of two."""
    if law["weights"] is None:
        rows, bits = whole(law["matrix"])
        totals = [sum(row) for row in rows]
        near = all(abs(Fraction(total, 1 << bits) - 1) <= Fraction(NEAR) * 1000 for total in totals)
        account.agrees("rows sum to 1, to rounding", near and min(map(min, rows)) >= 0)
        return rows, totals
    return law["weights"], table_fits(law, account)


def table_fits(law: Json, account: Account) -> list[int]:
    """The total of every row of weights; that they are a table, and the one shown in doubles."""
    totals = [sum(row) for row in law["weights"]]
    account.agrees("rows are probabilities", all(min(row) >= 0 < sum(row) for row in law["weights"]))
    tables = zip(law["weights"], totals, law["matrix"], strict=True)
    shown = all(
        abs(w / total - p) <= 1e-12 * w / total
        for row, total, given in tables
        for w, p in zip(row, given, strict=True)
    )
    account.agrees("the matrix shown is the channel", shown)
    return totals

"""Mechanisms that are saved without a result: that they are private as they say.

*Clustered response* (k-ary response is one cluster): of n items in clusters, the item itself is reported with weight 2¹⁰⁰, another of
its cluster with the least integer that is at least 2¹⁰⁰ e^{−α d₁}, one of another cluster with that for d₂ ≥ d₁. All rows have one
total, so that two items' probabilities of a report differ by the largest quotient of two weights: at most e^{α d₁} within a cluster and
e^{α d₂} across. *Hadamard response*: every row but the first of Sylvester's matrix has as many 1 as −1; reports of the one sign have
weight 2¹⁰⁰, of the other the least integer that is at least 2¹⁰⁰ e^{−ε}. *Channels*: rows of integer weights over one total.
*Vectors*: `mechdesign.verifier.vectors`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from mechdesign.verifier.reading import Account, Json, NotCovered, Refused, exp_bounds
from mechdesign.verifier.vectors import mechanism as vectors

TOP = 1 << 100


def level(loss: Fraction) -> int:
    """The least integer that is at least 2¹⁰⁰ e^{−loss}."""
    return 1 if loss >= 100 else min(TOP, math.ceil(TOP / exp_bounds(loss)[0]))


def within(weight: int, loss: Fraction) -> bool:
    """Whether 2¹⁰⁰ is at most e^loss times a weight."""
    return weight >= TOP or weight * exp_bounds(min(loss, 700))[0] >= TOP


def clustered_response(law: Json, account: Account) -> None:
    space, alpha = law["space"], Fraction(law["alpha"])
    if space["kind"] != "clustered" or len(space["shape"]) != 2 or min(space["shape"]) < 1:
        raise Refused("a space that is not clustered")
    near, far = Fraction(space["within"]), Fraction(space["across"])
    account.agrees("clusters are no further apart inside than across", 0 < near <= far)
    holds = within(level(alpha * near), alpha * near) and within(level(alpha * far), alpha * far)
    account.proved(f"privacy of all pairs at alpha = {float(alpha)!r}", holds)


def hadamard_response(law: Json, account: Account) -> None:
    epsilon = Fraction(law["epsilon"])
    account.agrees("there are items to tell apart", 2 <= law["items"] <= 1 << 40)
    account.proved(f"privacy loss at most {float(epsilon)!r}", within(level(epsilon), epsilon))


def channel(law: Json, account: Account) -> None:
    """Privacy as the weights have it: nothing is stated that it could be compared with."""
    weights = law["weights"]
    if weights is None:
        raise NotCovered("a channel of doubles, which is not released")
    total = sum(weights[0])
    account.agrees("rows sum to 1", all(sum(row) == total > 0 and min(row) >= 0 for row in weights))
    tables = zip(weights, law["matrix"], strict=True)
    shown = all(abs(w / total - p) <= 1e-12 for row, given in tables for w, p in zip(row, given, strict=True))
    account.agrees("the matrix shown is the channel", shown)
    columns = [column for column in zip(*weights, strict=True) if max(column)]
    ratio = max(Fraction(max(column), min(column)) if min(column) else math.inf for column in columns)
    loss = math.inf if ratio == math.inf else math.log(ratio) * (1 + 1e-12) + 1e-12
    holds = loss < math.inf and ratio <= exp_bounds(Fraction(loss))[0]
    account.proved(f"privacy loss at most {loss!r}", holds)


def vector_mechanism(law: Json, account: Account) -> None:
    vectors(law, account)


MECHANISMS: dict[str, Callable[[Json, Account], None]] = {
    "channel": channel,
    "clustered-response": clustered_response,
    "hadamard-response": hadamard_response,
    **dict.fromkeys(("sphere-quantizer", "sampled-signs", "sampled-coordinates"), vector_mechanism),
}

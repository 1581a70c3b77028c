"""The optimal table of a private choice in the limit of large ε, and multipliers that prove it to a gap of about e^(-ε)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from mechdesign.evidence.exact import fraction, round_down
from mechdesign.evidence.proofs import RowsBound
from mechdesign.model.declared import Declared
from mechdesign.problem.spine import Bound
from mechdesign.typing import Array, Indices


def table_in_the_limit(
    declared: Declared, regrets: Array, alike: Indices, decay: float
) -> tuple[Array, Indices]:
    """Return the table that is optimal in the limit, and the places of the privacy rows that force its cells, ends of paths first.

    Each of t best candidates is chosen with probability 1/t or nearly so. A neighbour chooses it with probability at least
    e^(-ε) (1/t - δ/c) if c candidates are no longer best there, and so on along paths of neighbours; the table has the largest of these.

    Parameters
    ----------
    declared : Declared
        The table's problem.
    regrets, alike : arrays, shape (vectors, k)
        Regret of each cell, and the cell whose probability it shares.
    decay : float
        e^(-ε).
    """
    (part,) = declared.parts
    best, (a, b) = regrets == 0, part.pairs.T
    share = 1 / best.sum(axis=1, keepdims=True)
    high, low = alike[a].ravel(), alike[b].ravel()

    def forced(spent: Array) -> tuple[Array, Any]:
        least, before = np.where(best, share, 0.0).ravel(), np.zeros(0)
        while not np.array_equal(before, least):
            before = least.copy()
            np.maximum.at(least, low, decay * (before[high] - spent))
        tight = (decay * (least[high] - spent) == least[low]) & (least[low] > 0)
        return least, tight & ~best[b].ravel()

    least, tight = forced(np.zeros(len(high)))
    if (delta := part.delta - declared.m * decay) > 0:  # the rest for rows that are not tight
        sharing = (tight & best[a].ravel()).reshape(-1, declared.m).sum(axis=1)
        least, tight = forced((delta / np.maximum(sharing, 1)).repeat(declared.m))
    table = np.where(best, 0.0, least[alike])
    table += best * share * (1 - table.sum(axis=1, keepdims=True))
    rows = np.flatnonzero(tight)[np.unique(low[tight], return_index=True)[1]]
    return table, rows[np.argsort(least[low[rows]])]


def bound_by_paths(
    declared: Declared, regrets: Array, alike: Indices, table: Array, paths: Indices, *, worst_case: bool
) -> Bound:
    """Return the bound of multipliers on the paths: each row passes the cost of a cell on, times e^(-ε), towards best candidates."""
    (part,), cells, k, off, alike = declared.parts, declared.cells, declared.m, regrets, alike.ravel()
    high, low = (part.pairs[paths // k] * k + (paths % k)[:, None]).T
    equals = (off[:, :, None] == off[:, None, :]).sum(axis=2).ravel()
    worst = np.arange(len(off)) == (off * table).sum(axis=1).argmax()
    rate = (1 - 1e-12) * math.exp(-part.losses[0])  # for any enclosure of e^ε
    costs, paid, weights = declared.cost[:cells], np.zeros(len(off)), worst * 1.0
    for _ in range(2):
        if worst_case:  # another candidate than the best must cost what these are paid
            weights = worst + paid / np.where(off > 0, off, np.inf).min(axis=1)
            weights /= weights.sum()
            costs = (weights[:, None] * off).ravel()
        total, prices = np.bincount(alike, costs, cells), np.zeros(len(paths))
        for i, (end, start) in enumerate(alike[np.column_stack([high, low])].tolist()):
            prices[i] = max(0.0, total[start] - equals[start] * paid[start // k]) * rate
            total[end] += prices[i]
        paid = np.where(off[:, 0] == 0, total[::k] / equals[::k], 0.0)

    shares, exact = _exact(weights), _exact(prices)
    shares[worst] += 1 - shares.sum()
    left = (shares[:, None] * off.astype(int)).ravel() if worst_case else _exact(costs)
    np.add.at(left, high, exact)
    np.subtract.at(left, low, exact * fraction(part.high(0)))
    sums, every = np.array([Fraction(0)] * cells), np.arange(cells)
    np.add.at(sums, alike, left)
    # what is paid stands at sorted counts; what others than the best cost beyond it is shared out, so that no digit of e^ε matters
    own, equals = alike // k == every // k, equals.astype(object)
    members = np.bincount(alike, minlength=cells)[alike].astype(object)
    due = np.where(off.ravel() == 0, sums[alike] / equals, _exact(paid)[alike // k])
    even = own * due + (sums[alike] - equals * due) / members - left
    held = dict(zip(np.flatnonzero(declared.equal).tolist(), even[alike != every]))
    held |= dict(zip(np.flatnonzero(declared.equal == 0).tolist(), shares))
    held |= dict(zip((part.first + paths).tolist(), exact))
    if part.delta:
        most = np.zeros(len(part.pairs))
        np.maximum.at(most, paths // k, prices)
        held |= dict(zip(range(part.sums, part.end), _exact(most)))
    rows = np.array(sorted(row for row, value in held.items() if value))
    proof = RowsBound(rows, tuple(held[row] for row in rows.tolist()))
    return Bound(round_down(fraction(declared.linear_bound(rows, proof.multipliers).bound)), proof)


def _exact(numbers: Array) -> Any:
    """Return doubles as fractions, in an array of objects."""
    return np.frompyfunc(Fraction, 1, 1)(numbers)

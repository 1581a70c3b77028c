"""OPTM's model with rows of a person's own: a quantizer of integer weights, and the rows that these must meet.

A selection law draws a bin on each side of the input with the weights of its row: q_n(i) is weight i of row n over their sum. The design states rows
Σ a v + k <= 0 or = 0 over the q_n(i), i <= n, as a table with a row for each n of each family (the right one's behind the left one's, where
they differ), row by row, and over further columns, which stand for convex piecewise linear functions: any values that meet the rows bound them from above.
"""

from __future__ import annotations

from fractions import Fraction

from mechdesign.verifier.quantizer import quantizer
from mechdesign.verifier.reading import Account, Json, Refused, proofs_of
from mechdesign.verifier.table import own_rows, rows_hold


def selection_problem(result: Json, account: Account) -> None:
    design, proofs = result["design"], proofs_of(result)
    if (rows := proofs.pop("selection-proof", None)) is None and design["labels"]:
        raise Refused("rows of the problem without their proof")
    if design["columns"] != (0 if rows is None else len(rows["witness"])):
        raise Refused("further columns without their values")
    sides = zip(design["low"], design["high"], strict=True)
    if not all(0 <= low <= high for pair in sides for low, high in zip(*pair, strict=True)):
        raise Refused("bounds that are none")
    quantizer({**result, "proofs": [p for p in result["proofs"] if p[""] != "selection-proof"]}, account)
    law = result["mechanism"]["law"]
    if rows is None:
        return
    if law[""] != "selection-law":
        raise Refused("another law than a selection")
    left, right = law["left"], law["right"]
    symmetric = design["families"] == "symmetric"
    mirrored = all(
        [a * sum(q) for a in p] == [b * sum(p) for b in q] for p, q in zip(left, right, strict=True)
    )
    account.agrees("one family serves both ends", mirrored or not symmetric)
    wide = len(left)
    account.takes(2 * wide * wide, max(map(sum, left)).bit_length())
    v = [
        Fraction(w, sum(row))
        for row in (left if symmetric else left + right)
        for w in row + [0] * (wide - len(row))
    ]
    v += rows["witness"]
    held = own_rows({**design, "cost": v}, len(v) - design["columns"])
    account.divides(sum(len(row.terms) for row in held) + len(v), max(map(sum, left)).bit_length())
    rows_hold(held, design["labels"], v, account)

"""A problem on the masses of additive noise that a person declared: its law, its rows and its bound (`lattice_bound`)."""

from __future__ import annotations

from fractions import Fraction

from mechdesign.verifier.lattice_bound import Lattice, increasing
from mechdesign.verifier.lattice_noise import cells_of, largest_excess, on_cells
from mechdesign.verifier.reading import Account, Json, Refused, exp_bounds, points_of, proofs_of
from mechdesign.verifier.rows import lower_bound
from mechdesign.verifier.table import Own, keeps_rows, zeros


def lattice_problem(result: Json, account: Account) -> None:
    """A problem on the masses of noise, and its law."""
    design, law, proofs = result["design"], result["mechanism"], proofs_of(result)
    whole, n, side = design["integer"], design["change"], (len(design["outputs"]) - 1) // 2
    if law[""] != ("integer-noise" if whole else "cell-noise") or len(proofs) < len(result["proofs"]):
        raise Refused("noise of another kind, or evidence twice")
    if "table-proof" not in proofs or not 1 <= n <= 2 * side or len(design["outputs"]) != 2 * side + 1:
        raise Refused("no proof of the law, or a lattice that is none")
    law, step = (on_cells(law) if whole else law), Fraction(design["step"])
    held, weights, r = cells_of(law), law["weights"], Fraction(design["decay"])
    pad, odd = divmod(2 * side + 1 - len(weights), 2)
    centred = 2 * Fraction(law["start"]) == -len(weights) * Fraction(law["width"])
    alike = (law["cells_per_shift"], law["decay"], law["width"]) == (n, r, step) and not (odd or pad < 0)
    account.agrees("the noise is on the problem's lattice", alike and centred and not (r and pad))
    if not alike or law["spike"] or law["spans"] or (r and (pad or n > side)) or (whole and step != 1):
        raise Refused("noise on another lattice")
    sensitivity = Fraction(design["sensitivity"])
    account.proved(
        "shifts up to the sensitivity", (n + 1 > sensitivity) if whole else n * step >= sensitivity
    )
    if not design["privacy"]:
        raise Refused("a problem without privacy")
    points = []
    for one in design["privacy"]:
        for epsilon, delta in points_of(one["privacy"]):
            if delta >= 1:
                continue
            low, high = exp_bounds(Fraction(epsilon))
            points.append((high, Fraction(delta)))
            claim = f"{one['label']}: epsilon = {epsilon!r}, delta = {delta!r} at every shift"
            account.proved(claim, largest_excess(law, held, low, account) <= Fraction(delta) * held.total)
    lattice = Lattice(side, n, r)
    places = [lattice.place(j) for j in range(-side, side + 1)]
    masses = [place[1] for place in places if place is not None]
    padded = [0] * pad + weights + [0] * pad
    cells = [w / (held.total * mass) for w, mass in zip(padded, masses, strict=True)]

    def bound(own: list[Own]) -> Fraction:
        proof = proofs["rows-bound"]
        increasing(proof)
        none = zeros(own, [], 1, len(cells))
        width = len(design["cost"])
        mine = (
            ([*own[i].terms], -own[i].offset, own[i].equal, multiplier)
            for i, multiplier in zip(proof["rows"], proof["multipliers"], strict=True)
            if i < len(own)
        )
        rows = [
            ([(j, a) for j, a in terms if j not in none], right, equal, multiplier)
            for terms, right, equal, multiplier in (*mine, *lattice.rows(points, len(own), proof))
        ]
        costs: dict[Json, Fraction] = {j: Fraction(c) for j, c in enumerate(design["cost"]) if j not in none}
        group: list[Json] = [j for j in range(len(cells)) if j not in none]
        return lower_bound(costs, rows, [group], set(range(len(cells), width)))

    bits = max(weights).bit_length() + r.denominator.bit_length()
    keeps_rows(
        design, result, proofs, cells, bits, bound, "noise on this lattice within these constraints", account
    )

"""Noise on a lattice: the rows of privacy of its masses, bounds by rows and multipliers, and problems that a person declared.

Entries are masses of points 0, ±h, …, ±Rh. Tails repeat the outermost n points, times r each time: an outermost entry then is the mass of a point and of
all its repetitions, of which the point itself has 1 − r. Mirrored entries are masses of a point and its mirror image together. At a shift by s points
every point j of mass a p gives a row  a p − ρ b q − S_j ≤ 0, b q the mass of j + s, with ρ ≥ e^ε; Σ S_j ≤ δ. Points are those within the reach; with tails
and δ > 0 the first repetition too, whose excesses over 1 − r are those of all. A row whose partner is beyond a free reach, where all other mass is, in
one more entry, is none.

*Every noise.* T, rounded at random and without bias to a neighbouring point, is private at whole shifts and costs no more than these costs say: |j|h, or
j²h² − h²/4; of noise on the whole numbers the loss itself. Entries of the free lattice are its masses.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from mechdesign.verifier.lattice_noise import cells_of, largest_excess, on_cells
from mechdesign.verifier.reading import Account, Json, Refused, exp_bounds, points_of, proofs_of
from mechdesign.verifier.rows import Row, lower_bound
from mechdesign.verifier.table import Own, keeps_rows, zeros


class Lattice(NamedTuple):
    """Points to either side, points a sensitivity, decay of the tails; whether mirrored, whether free."""

    side: int
    change: int
    decay: Fraction
    mirrored: bool = False
    free: bool = False

    @property
    def entries(self) -> int:
        """How many entries stand for points."""
        return self.side + 1 if self.mirrored else 2 * self.side + 1

    def place(self, at: int, repeated: bool = False) -> tuple[int, Fraction] | None:
        """The entry of a point, and its mass for each unit of that; over 1 − r next to a repeated point."""
        r, far = self.decay, abs(at)
        out = max(0, -((self.side - far) // self.change))
        if out and not r:
            return None
        inside = far - out * self.change
        mass = r**out * (1 if repeated or inside <= self.side - self.change or not r else 1 - r)
        entry = inside if self.mirrored else (inside if at >= 0 else -inside) + self.side
        return entry, Fraction(mass) / (2 if self.mirrored and inside else 1)

    def rows(self, points: list[tuple[Fraction, Fraction]], first: int, proof: Json) -> Iterator[Row]:
        """The rows that have multipliers, by the numbers of a problem with so many rows of its own."""
        n, high = self.change, first
        shifts = range(1, n + 1) if self.mirrored else [s for s in range(-n, n + 1) if s]
        parts = []
        for growth, delta in points:
            reach = self.side + (n if self.decay and delta else 0)
            low, high = high, high + len(shifts) * (2 * reach + 1 + bool(delta))
            parts.append((low, high, growth, delta, reach))
        for number, multiplier in zip(proof["rows"], proof["multipliers"], strict=True):
            if number < first:
                continue
            p = next((k for k, (low, high, *_) in enumerate(parts) if low <= number < high), None)
            if p is None:
                raise Refused("a row that the problem has not")
            low, _, growth, delta, reach = parts[p]
            k, y = divmod(number - low, 2 * reach + 1)
            if k >= len(shifts):
                k = number - low - len(shifts) * (2 * reach + 1)
                yield (
                    [(("over", p, k, y), Fraction(1)) for y in range(2 * reach + 1)],
                    delta,
                    False,
                    multiplier,
                )
                continue
            at, terms = y - reach, dict[Json, Fraction]()
            repeated = abs(at) > self.side
            here, there = self.place(at, repeated), self.place(at + shifts[k], repeated)
            if here is None or (there is None and self.free):
                raise Refused("a row that the problem has not")
            for found, factor in ((here, Fraction(1)), (there, -growth)):
                if found is not None:
                    terms[found[0]] = terms.get(found[0], Fraction(0)) + factor * found[1]
            if delta:
                terms["over", p, k, y] = Fraction(-1)
            yield list(terms.items()), Fraction(0), False, multiplier


def increasing(proof: Json) -> None:
    numbers = proof["rows"]
    if any(b <= a for a, b in zip(numbers, numbers[1:])) or any(number < 0 for number in numbers):
        raise Refused("numbers of rows that do not increase")


def noise_bound(
    stated: Json,
    loss: str,
    points: list[tuple[Fraction, Fraction]],
    sensitivity: Fraction,
    times: int = 1,
    counts: bool = False,
) -> Fraction:
    """The bound of every noise for one number, of `times` the loss; of noise of `counts`, on the whole numbers."""
    n, side = stated["cells"], stated["side"]
    if not (1 <= n <= side <= 10**5) or (counts and n != sensitivity):
        raise Refused("a lattice that is none, or of another change")
    increasing(stated)
    h = sensitivity / n
    offset = 0 if counts else h**2 / 4

    def cost(j: int) -> Fraction:
        return times * Fraction(j * h if loss == "absolute" else (j * h) ** 2 - offset)

    lattice = Lattice(side, n, Fraction(0), mirrored=True, free=True)
    costs: dict[Json, Fraction] = {j: cost(j) for j in range(side + 2)}
    # no multipliers at all prove the least cost
    return max(lower_bound(costs, lattice.rows(points, 0, stated), [list(costs)], set()), cost(0))


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

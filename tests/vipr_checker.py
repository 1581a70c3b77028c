"""A checker of VIPR certificates of linear programs, written from the format's specification (cert_spec_v1_0), fractions alone.

It is as strict as viprchk and cake_vipr: comments first, each a line that begins with the word "%"; integers and p/q; one
derivation a line, each a linear combination. It shares nothing with the package.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import islice
from typing import NamedTuple

SENSES = {"G": 1, "E": 0, "L": -1}


class Unsound(Exception):
    """The file is not of the format, or does not prove what it says."""


class Constraint(NamedTuple):
    left: dict[int, Fraction]
    sense: int
    right: Fraction

    def holds(self, point: dict[int, Fraction]) -> bool:
        value = sum((a * point.get(i, Fraction(0)) for i, a in self.left.items()), Fraction(0))
        return value == self.right if self.sense == 0 else self.sense * (value - self.right) >= 0

    def dominates(self, other: Constraint) -> bool:
        if not self.left and not self.holds({}):  # an absurdity
            return True
        if self.left != other.left:
            return False
        if other.sense == 0:
            return self.sense == 0 and self.right == other.right
        return self.sense in (0, other.sense) and other.sense * (self.right - other.right) >= 0


class Certificate:
    """The sections of a file; reading it checks it."""

    def __init__(self, text: str) -> None:
        lines = text.splitlines()
        self.comment = []
        while lines and lines[0].split()[:1] == ["%"]:
            self.comment.append(lines.pop(0)[1:].strip())
        place = next((k for k, line in enumerate(lines) if line.split()[:1] == ["DER"]), None)
        if place is None:
            raise Unsound("no section DER")
        self.words = iter(" ".join(lines[:place]).split())
        self.expect("VER", "1.0", "VAR")
        self.names = [next(self.words) for _ in range(self.index())]
        self.expect("INT", "0", "OBJ")
        self.minimise = {"min": True, "max": False}[next(self.words)]
        self.objective = self.terms(next(self.words))
        self.expect("CON")
        count, bounds = self.index(), self.index()
        self.rows = [self.constraint() for _ in range(count)]
        if bounds > count or any(len(row.left) != 1 for row in self.rows[:bounds]):
            raise Unsound("bound constraints come first")
        self.program = tuple(self.rows)
        self.expect("RTP", "range")
        self.range = next(self.words), next(self.words)
        self.solutions()
        if next(self.words, None) is not None:
            raise Unsound("words before DER that are none of the section's")
        self.derive(lines[place:])

    def expect(self, *words: str) -> None:
        for word in words:
            if (found := next(self.words, "the end")) != word:
                raise Unsound(f"{word} expected, not {found}")

    def index(self) -> int:
        return int(next(self.words))

    def terms(self, first: str) -> dict[int, Fraction]:
        if first == "OBJ":
            return self.objective
        pairs = [(self.index(), Fraction(next(self.words))) for _ in range(int(first))]
        if len(dict(pairs)) < len(pairs) or not all(0 <= k < len(self.names) for k, _ in pairs):
            raise Unsound("a variable that stands twice, or is none")
        return {k: a for k, a in pairs if a}

    def constraint(self) -> Constraint:
        _, sense, right = islice(self.words, 3)
        return Constraint(self.terms(next(self.words)), SENSES[sense], Fraction(right))

    def solutions(self) -> None:
        self.expect("SOL")
        values = []
        for _ in range(self.index()):
            next(self.words)
            point = self.terms(next(self.words))
            if not all(row.holds(point) for row in self.program):
                raise Unsound("a solution that is not feasible")
            values.append(
                sum((c * point.get(k, Fraction(0)) for k, c in self.objective.items()), Fraction(0))
            )
        other = self.range[1 if self.minimise else 0]
        if "inf" not in other and not any((v <= Fraction(other)) == self.minimise for v in values):
            raise Unsound("no solution as good as stated")

    def derive(self, lines: list[str]) -> None:
        given = [line.split() for line in lines if line.split()]
        if len(given[0]) != 2 or int(given[0][1]) != len(given) - 1:
            raise Unsound("another number of derivations")
        for line in given[1:]:
            self.words = iter(line)
            claim = self.constraint()
            self.expect("{", "lin")
            if not self.combined().dominates(claim):
                raise Unsound("a combination that is not what is claimed")
            self.rows.append(claim)
            self.expect("}")
            if len(list(self.words)) != 1:
                raise Unsound("no last index")
        wanted = self.range[0 if self.minimise else 1]
        if "inf" not in wanted:
            goal = Constraint(self.objective, 1 if self.minimise else -1, Fraction(wanted))
            if len(given) < 2 or not self.rows[-1].dominates(goal):
                raise Unsound("the last derivation does not prove the relation")

    def combined(self) -> Constraint:
        """A suitable linear combination of earlier constraints."""
        left, right, senses = dict[int, Fraction](), Fraction(0), {0}
        for _ in range(self.index()):
            k, multiplier = self.index(), Fraction(next(self.words))
            if not 0 <= k < len(self.rows):
                raise Unsound("no such constraint")
            row = self.rows[k]
            senses.add(row.sense * ((multiplier > 0) - (multiplier < 0)))
            right += multiplier * row.right
            for i, a in row.left.items():
                left[i] = left.get(i, Fraction(0)) + multiplier * a
        if len(senses) > 2:
            raise Unsound("multipliers of both signs")
        return Constraint({i: a for i, a in left.items() if a}, sum(senses), right)

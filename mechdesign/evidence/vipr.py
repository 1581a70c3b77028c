r"""Lower bounds as certificates that other people's programs check: linear programs in rationals, in the format VIPR 1.0.

A bound that rests on a *finite* linear program :math:`\min c x` over :math:`x \ge 0` is one linear combination of the
program's rows: multipliers y, of the sign that the senses allow, with reduced costs :math:`c - y A \ge 0` prove
:math:`c x \ge y b`. That is all a file holds: the rows that have a multiplier, and their combination. Omitted rows only enlarge the
feasible set, and the bound stays true.

The comment at the file's head states which mechanisms the program covers, and a reader has to believe that sentence: a
checker of the format knows nothing of privacy.

Source: Cheung, Gleixner, Steffy, "Verifying integer programming results", IPCO 2017; the format's specification is
``cert_spec_v1_0`` of https://github.com/scipopt/vipr.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from flint import fmpq

from mechdesign.errors import MechdesignError, ResultFormatError
from mechdesign.evidence.exact import rational

MOST_ROWS = 400_000
"""Rows of a file, of about 200 bytes each."""
LOST = 1e-9
"""Largest relative difference of a file's bound below the result's lower bound."""
FUNCTION = "the loss is a function: its lower bound is in doubles, and there is no certificate in VIPR of it"
_WIDTH = 120
_SUBJECT = 2000  # characters shown of the question


class NoProgramError(MechdesignError, ValueError):
    """No finite linear program implies the lower bound, or it is too large to be written."""


class Row(NamedTuple):
    """One constraint, ``sum(a * x) sense right``, and its multiplier."""

    name: str
    sense: str
    right: fmpq
    terms: tuple[tuple[int, Any], ...]
    multiplier: fmpq


class LinearBound:
    """A linear minimisation over non-negative variables, and multipliers that prove a lower bound of it.

    Parameters
    ----------
    lemma : str
        Why every mechanism that the bound covers gives a feasible point that costs no more than the mechanism: the
        file's comment.
    size : int
        Upper bound of the number of rows; too many are refused here, before they are made.

    Examples
    --------
    >>> program = LinearBound("An example.", size=2)
    >>> x, y = program.variable("x", 1), program.variable("y", 2)
    >>> program.sums_to(1, [x, y])
    >>> str(program.bound)
    '1'
    >>> print(program.text(1.0).partition("CON")[2])
     2 1
    y.least G 0 1 1 1
    sum0 E 1 2 0 1 1 1
    RTP range 1 inf
    SOL 0
    DER 1
    bound G 1 OBJ { lin 2 0 1 1 1 } -1
    <BLANKLINE>
    """

    def __init__(self, lemma: str, size: int) -> None:
        if size > MOST_ROWS:
            raise NoProgramError(
                f"the linear program of this bound has up to {size:,} rows: too large, files of at most {MOST_ROWS:,} are written"
            )
        self.lemma, self._names = lemma, list[str]()
        self._costs, self._rows, self._reduced = list[fmpq](), list[Row](), list[fmpq]()

    def variable(self, name: str, cost: Any = 0) -> int:
        """Add a variable that is not negative, and return its index."""
        self._names.append(name)
        self._costs.append(rational(cost))
        self._reduced.append(self._costs[-1])
        return len(self._names) - 1

    def row(
        self, family: str, terms: Iterable[tuple[int, Any]], sense: str, right: Any, multiplier: Any
    ) -> None:
        """Add a constraint ("E", "L" or "G") with its multiplier: not negative for "G", not positive for "L". A row with multiplier 0 is omitted."""
        multiplier = rational(multiplier)
        if not multiplier:
            return
        if sense == ("L" if multiplier > 0 else "G"):
            raise ResultFormatError(f"a multiplier of {family} has the wrong sign")
        held = tuple([term for term in terms if term[1]])
        for index, factor in held:
            self._reduced[index] -= multiplier * factor
        self._rows.append(Row(family, sense, rational(right), held, multiplier))

    def reduced(self, index: int) -> fmpq:
        """Return the reduced cost of a variable under the rows so far."""
        return self._reduced[index]

    def sums_to(self, right: Any, group: list[int]) -> None:
        """Add the equality that these variables sum to `right`, with its best multiplier: their least reduced cost."""
        self.row("sum", [(index, 1) for index in group], "E", right, min(map(self.reduced, group)))

    @property
    def admissible(self) -> bool:
        """Whether no reduced cost is negative: only then is `bound` a lower bound."""
        return min(self._reduced, default=fmpq(0)) >= 0

    @property
    def bound(self) -> fmpq:
        """Lower bound that the multipliers prove."""
        return sum((row.multiplier * row.right for row in self._rows), fmpq(0))

    def text(self, stated: float, subject: str = "") -> str:
        """Return the file that proves `stated`; ResultFormatError if the multipliers prove less by more than rounding."""
        lower, derived = rational(stated), self.bound
        if float(lower - derived) > LOST * float(abs(lower)) or not self.admissible:
            raise ResultFormatError(f"the lower bound {stated!r} does not follow from its multipliers")
        share = max(0.0, float((lower - derived) / abs(lower))) if lower else 0.0
        lost = f"Lower bound stated: {stated!r}. Lost to rounding here: {share:.1e} of it."
        parts = [textwrap.shorten(subject, _SUBJECT), lost, self.lemma]
        plain = (part.encode("ascii", "backslashreplace").decode() for part in parts)
        comment = [
            f"% {line}" for part in plain for line in textwrap.wrap(part, _WIDTH - 2, break_on_hyphens=False)
        ]
        return "\n".join([*comment, *self._sections(min(lower, derived)), ""])

    def _sections(self, proved: fmpq) -> Iterator[str]:
        least = [(k, left) for k, left in enumerate(self._reduced) if left > 0]
        bounds = [Row(f"{self._names[k]}.least", "G", fmpq(0), ((k, 1),), left) for k, left in least]
        rows = [*bounds, *(row._replace(name=f"{row.name}{k}") for k, row in enumerate(self._rows))]
        objective = [(k, cost) for k, cost in enumerate(self._costs) if cost != 0]
        yield "VER 1.0"
        yield f"VAR {len(self._names)}"
        yield from self._names
        yield "INT 0"
        yield "OBJ min"
        yield _listed(objective)
        yield f"CON {len(rows)} {len(bounds)}"
        for row in rows:
            yield f"{row.name} {row.sense} {row.right} {_listed(row.terms)}"
        yield f"RTP range {proved} inf"
        yield "SOL 0"
        yield "DER 1"
        combined = _listed([(k, row.multiplier) for k, row in enumerate(rows)])
        yield f"bound G {self.bound} OBJ {{ lin {combined} }} -1"


def _listed(terms: Iterable[tuple[int, Any]]) -> str:
    """Return the number of terms, then each index with its number."""
    held = list(terms)
    return " ".join([str(len(held)), *(f"{index} {number}" for index, number in held)])

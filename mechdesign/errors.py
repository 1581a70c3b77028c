"""The errors a user meets: bad input, no such mechanism, a solver that failed, an unreadable file.

Every message names the argument, the value it had and what is allowed instead.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class MechdesignError(Exception):
    """Base class of every error this package raises on purpose."""

    @classmethod
    def when(cls, broken: object, message: str) -> None:
        """Raise the error with this message if a condition is broken.

        Examples
        --------
        >>> MechdesignError.when(2 < 1, "two must not be less than one")
        """
        if broken:
            raise cls(message)

    @classmethod
    @contextmanager
    def where(cls, message: str, *failures: type[Exception]) -> Iterator[None]:
        """Raise the error with this message where the block fails, with one of the `failures` if any are named.

        Examples
        --------
        >>> with MechdesignError.where("must be a number", ValueError):
        ...     float("two")
        Traceback (most recent call last):
        mechdesign.errors.MechdesignError: must be a number
        """
        caught = failures or (Exception,)
        try:
            yield
        except caught:
            raise cls(message) from None


class DesignError(MechdesignError, ValueError):
    """An argument is not acceptable; the message names it, its value and what is allowed."""

    @classmethod
    def of(cls, argument: str, value: object, allowed: str) -> DesignError:
        """Return the error "argument = value: allowed".

        Examples
        --------
        >>> print(DesignError.of("epsilon", -1.0, "must be positive and finite"))
        epsilon = -1.0: must be positive and finite
        """
        try:
            text = repr(value)
            law: Any = [getattr(value, name, None) for name in ("dist", "args", "kwds")]
            if all(part is not None for part in law):  # a frozen law of SciPy, whose own repr is an address
                named = [*map(repr, law[1]), *(f"{key}={v!r}" for key, v in law[2].items())]
                text = f"{getattr(law[0], 'name', 'law')}({', '.join(named)})"
        except Exception:  # whatever an object raises when it is printed
            text = f"<{type(value).__name__}>"
        text = re.sub(r"\s*\n\s*", " ", text)  # of arrays and frames
        if len(text) > 120:
            text = text[:117] + "..."
        return cls(f"{argument} = {text}: {allowed}")


class DataError(DesignError):
    """Data are refused. The message quotes none of them: no value, key, label or size, nor the words of another library that might.

    Who learns that a release or a fit was refused learns something of the data, and no guarantee covers that: what follows is
    public knowledge of the data, to be ensured before. No other value of the data raises or warns. In parentheses what each
    message says:

    - a number that is missing, infinite, beyond all doubles or no number, by itself or once it is converted: None, a text of digits, a date, an entry
      that is masked (must be finite numbers; with ``clip=True`` a quantizer takes infinite ones);
    - data of another shape or type than the question's, a mapping with other keys (must be, must have);
    - beyond 2⁵³ an integer that no double holds (would be rounded);
    - under discrete noise, and of counts of votes by a rule with a `largest` count, a number that is not whole, or of votes
      negative (must be whole numbers); other choices take scores of any sign;
    - without ``clip=True`` an input outside the range, or a vector that is too long (must be in, must be at most, must be exactly);
    - in a plan numbers of more people than its steps are fine enough for (must count at most);
    - an item or a report that is none, and a person without items (must be integers in, must be inputs of);
    - a label that is missing, or none of the `classes` (must be labels, must be one of);
    - a histogram with a negative entry, or of another sum than 1 (must be non-negative, must sum to 1), and whole counts in place
      of shares, or the other way round, where `sizes` says which they are (must be given with, is for whole counts, must be equal).
    """


def unlike(given: Iterable[object], wanted: Iterable[object], *, needed: bool = True) -> str:
    """Say which names are unknown, with the nearest one, and where all are `needed` which are missing.

    Examples
    --------
    >>> unlike(["n", "privcy"], ["n", "privacy"])
    "'privcy' is unknown (is it 'privacy'?); 'privacy' is missing"
    """
    have, want = [str(name) for name in given], [str(name) for name in wanted]
    said = []
    for name in have:
        if name not in want:
            near = difflib.get_close_matches(name, want, 1)
            said.append(f"{name!r:.60} is unknown" + (f" (is it {near[0]!r}?)" if near else ""))
    said += [f"{name!r:.60} is missing" for name in want if needed and name not in have]
    return "; ".join(said[:8]) + (f"; and {len(said) - 8} more" if len(said) > 8 else "")


class InfeasibleError(MechdesignError):
    """No mechanism meets the requirement.

    Attributes
    ----------
    reason : str
        Why, in a sentence.
    smallest_epsilon : float or None
        The smallest ε at which the same design is feasible, where that was computable.
    least : float or None
        The least feasible value of the budget that is too small (an MSE cap, say).
    """

    def __init__(
        self, reason: str, *, smallest_epsilon: float | None = None, least: float | None = None
    ) -> None:
        self.reason = reason
        self.smallest_epsilon = smallest_epsilon
        self.least = least
        super().__init__(reason)


class SolverError(MechdesignError):
    """A solver ended without an answer; carries the backend's own status.

    Attributes
    ----------
    solver : str
    status : str
        The backend's own word.
    """

    def __init__(self, message: str, *, solver: str, status: str) -> None:
        self.solver = solver
        self.status = status
        super().__init__(message)


class ResultFormatError(MechdesignError, ValueError):
    """A result file is truncated, edited, of another version, or not one of ours."""


class MissingExtra(MechdesignError, ImportError):
    """An optional library is not installed; the message names the extra that brings it.

    Examples
    --------
    >>> print(MissingExtra.of("opendp", "an OpenDP measurement"))
    an OpenDP measurement needs opendp: pip install 'mechdesign[opendp]'
    """

    @classmethod
    def of(cls, extra: str, what: str, library: str | None = None) -> MissingExtra:
        """Return the error "`what` needs `library`: pip install …"."""
        return cls(f"{what} needs {library or extra}: pip install 'mechdesign[{extra}]'")

    @classmethod
    @contextmanager
    def needed(cls, extra: str, what: str, library: str | None = None) -> Iterator[None]:
        """Raise this error where the block fails to import."""
        try:
            yield
        except ImportError:
            raise cls.of(extra, what, library) from None


def refuse(when: object, name: str, value: object, allowed: str) -> None:
    """Raise DesignError "name = value: allowed" when a condition of several arguments is broken."""
    if when:
        raise DesignError.of(name, value, allowed)

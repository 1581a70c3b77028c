"""Classes of mechanisms that designs optimize over and lower bounds cover.

"Optimal" is said where value and lower bound meet and both are of every mechanism that answers the question. What is least of
independent noise of one law, of one family or of one menu only, is the best of its class, and other mechanisms may do better.
The class follows from the design and its proof; a file that says another one is refused.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Scope(enum.StrEnum):
    """Width of a class, in the words that files use."""

    EVERY = "every mechanism"
    INDEPENDENT = "independent noise of one law"
    LOG_CONCAVE = "symmetric log-concave noise"
    FAMILY = "this family"
    MENU = "this menu"


@dataclass(frozen=True)
class MechanismClass:
    """A class of mechanisms, by name.

    Parameters
    ----------
    scope : Scope
        ``EVERY``: all that answer the question as the design states it. ``FAMILY``: those of one published or parametrised
        family. ``MENU``: those that a design tries, or that have the outputs which a search found.
    noun : str
        What one of them is, in words that follow "every", "any" and "no": "additive noise for a real-valued query".

    Examples
    --------
    >>> print(MechanismClass(Scope.EVERY, "channel"), "·", MechanismClass(Scope.FAMILY, "Gaussian noise"))
    every channel · this family (any Gaussian noise)
    >>> print(INDEPENDENT_NOISE)
    independent noise of one law
    """

    scope: Scope
    noun: str

    @property
    def every(self) -> bool:
        """Whether the class holds all mechanisms that answer the question, so that its best is optimal."""
        return self.scope is Scope.EVERY

    def __str__(self) -> str:
        if self.scope in (Scope.FAMILY, Scope.MENU):
            return f"{self.scope} (any {self.noun})"
        return f"every {self.noun}" if self.every else self.noun


def every(noun: str) -> MechanismClass:
    """All mechanisms that answer the question."""
    return MechanismClass(Scope.EVERY, noun)


def family(noun: str) -> MechanismClass:
    """Those of one family."""
    return MechanismClass(Scope.FAMILY, noun)


def menu(noun: str) -> MechanismClass:
    """Those of one menu."""
    return MechanismClass(Scope.MENU, noun)


INDEPENDENT_NOISE = MechanismClass(Scope.INDEPENDENT, Scope.INDEPENDENT.value)
LOG_CONCAVE_NOISE = MechanismClass(Scope.LOG_CONCAVE, Scope.LOG_CONCAVE.value)

REAL_NOISE = "additive noise for a real-valued query"
"""Of whole numbers only changes by whole numbers need be protected: other noise may cost less there."""

"""What every unknown of a problem has: a CVXPY variable that names the class of its problems, and requirements of privacy with names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import cvxpy as cp

from mechdesign.errors import DesignError, instance

C = TypeVar("C")


class Unknown(cp.Variable):
    """A CVXPY variable that problems of this package are declared on."""

    problem_class: ClassVar[str]
    """Where the class of its problems is, as ``"module:class"``: it solves, repairs and proves."""

    def stated(self) -> dict[str, Any]:
        """What the numbers of a problem hold of it."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Requirement:
    """Privacy asked of an unknown, which its method ``private`` makes.

    Parameters
    ----------
    label : str
        The name of the family of rows.
    privacy : Privacy
    """

    label: str
    privacy: Any

    @property
    def on(self) -> Unknown | None:
        """The unknown; None of one that was read from a file."""
        raise NotImplementedError

    def of(self, unknown: Unknown) -> Requirement:
        """Return the same of an unknown."""
        raise NotImplementedError

    def parameters(self) -> list[cp.Parameter]:
        """CVXPY's parameters in it."""
        return []


def named(label: str, constraint: C) -> C:
    """Give a constraint the name by which prints, audits and errors call it.

    Examples
    --------
    >>> import mechdesign as md
    >>> P = md.Table([0, 1], [0, 1])
    >>> named("cap", P[:, 1] <= 0.2).label
    'cap'
    """
    if not instance("label", label, str).isprintable() or not label.strip():
        raise DesignError.of("label", label, "must be a name of printable characters, on one line")
    if isinstance(constraint, Requirement):
        return replace(constraint, label=label)
    if not isinstance(constraint, cp.constraints.constraint.Constraint):
        raise DesignError.of("constraint", constraint, "must be a constraint, such as P[:, 1] <= 0.2")
    constraint.set_label(label)
    return constraint

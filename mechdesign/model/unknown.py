"""What every unknown of a problem has: a CVXPY variable that names the class of its problems, and requirements of privacy with names."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self, TypeVar

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


class Further(cp.Variable):
    """Further variables of a problem that was read from a file: those of its piecewise linear atoms."""


def in_columns(unknown: Unknown, width: int) -> cp.Expression:
    """The unknown, row by row, with further variables behind up to this width."""
    columns = [cp.vec(unknown, order="C")]
    if width > unknown.size:
        columns.append(Further(width - unknown.size, name="further"))
    return cp.hstack(columns)


@dataclass(frozen=True, eq=False)
class Requirement:
    """Privacy asked of an unknown, which its method ``private`` makes.

    Parameters
    ----------
    label : str
        The name of the family of rows.
    privacy : Privacy
    unknown : Unknown
        Whose it is; None of one that was read from a file, which does not hold it.
    """

    label: str
    privacy: Any
    unknown: Any = field(default=None, kw_only=True)

    def to_fields(self) -> dict[str, object]:
        """What files hold: all but the unknown."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "unknown"}

    @classmethod
    def from_fields(cls, held: dict[str, Any]) -> Self:
        """Read it, for an unknown that is made next."""
        return cls(**held)

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

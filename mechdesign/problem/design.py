"""The design protocol: what is wanted, as a frozen value that declares its model and solves it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mechdesign.errors import DesignError
from mechdesign.problem.checks import positive
from mechdesign.problem.spine import Bound, Clock, Design, Law

if TYPE_CHECKING:
    from mechdesign.evidence.results import Result
    from mechdesign.solvers.base import Model

__all__ = ["OldDesign", "refuse_unknown", "wanted_gap"]


class OldDesign(Design):
    """What is wanted. A design is a frozen dataclass that validates when made.

    `solve` begins with the same arguments in every design, and options of its own follow by keyword; an option that
    nobody knows is refused by name.
    """

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        raise NotImplementedError

    @abstractmethod
    def model(self, **options: Any) -> Model:
        """Return the optimization model, a name for each constraint family; of a search, the program at each point.

        Raises
        ------
        DesignError
            A search over closed forms has no program.
        """

    @abstractmethod
    def solve(
        self,
        solver: str | None = None,
        *,
        gap: float | None = None,
        certify: bool = True,
        time_limit: float | None = None,
        **options: Any,
    ) -> Result:
        """Solve `model`, and return the mechanism with its evidence.

        Parameters
        ----------
        solver : str, optional
            A registered backend (`mechdesign.solvers.available`); the fitting one when not named.
        gap : float, optional
            Relative gap between value and lower bound to stop at; each design says its default.
        certify : bool
            Whether the mechanism is made exact and proved inside the requirement.
        time_limit : float, optional
            Seconds; whoever answers keeps it. What was reached by then is returned with its proved gap.

        Raises
        ------
        InfeasibleError
            No mechanism meets the requirement.
        SolverError
            Nothing feasible was found, or not by then.
        """


def wanted_gap(gap: float | None, default: float) -> float:
    """Return the gap asked for as a number in (0, 1), `default` where None is given."""
    found = default if gap is None else positive("gap", gap)
    if found >= 1:
        raise DesignError.of("gap", gap, "must be a number in (0, 1): a relative distance")
    return found


def refuse_unknown(options: dict[str, Any], known: str) -> None:
    """Raise DesignError for options that are left over; `known` says what there is."""
    if options:
        raise DesignError.of("options", sorted(options), f"unknown; {known}")

"""What a matrix mechanism is asked: queries, what one person changes, privacy, and whose error counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mechdesign.errors import DesignError
from mechdesign.noise.correlated.budget import gaussian_budget
from mechdesign.noise.matrix.changes import Changes
from mechdesign.noise.matrix.solving import checked_largest
from mechdesign.noise.matrix.workload import Workload
from mechdesign.problem.checks import UP, number, one_of, positive, settle, whole
from mechdesign.problem.privacy import ApproximateDP, ZeroConcentratedDP

__all__ = ["MatrixQuestion"]


@dataclass(frozen=True, eq=False)
class MatrixQuestion:
    """The fields of a `MatrixMechanism`, see there, and what follows from them."""

    workload: Any
    privacy: ApproximateDP | ZeroConcentratedDP
    changed: int = 1
    most: float = 1.0
    signed: bool = True
    loss: str = "total"

    def __post_init__(self) -> None:
        workload = self.workload if isinstance(self.workload, Workload) else Workload(self.workload)
        most = positive("most", self.most, side=UP)
        if not 1e-100 <= number("most", most) <= 1e100:
            raise DesignError.of("most", most, "must be between 1e-100 and 1e100")
        settle(self, workload=workload, most=most, changed=whole("changed", self.changed, 1, workload.size))
        one_of("signed", self.signed, (True, False))
        one_of("loss", self.loss, ("total", "largest"))
        self.changes.check()
        if self.largest:
            checked_largest(workload)
        _ = self.budget

    @cached_property
    def budget(self) -> float:
        r""":math:`\mu^2`, rounded down."""
        return gaussian_budget(self.privacy)

    @property
    def largest(self) -> bool:
        """Whether the loss is the largest error."""
        return self.loss == "largest"

    @property
    def changes(self) -> Changes:
        """What one person does to the counts."""
        return Changes(self.workload.size, self.changed, self.most, self.signed)

    @property
    def unit(self) -> float:
        """a²/μ²: the errors are this times those at a = μ = 1."""
        return self.most**2 / self.budget

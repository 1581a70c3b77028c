"""What is asked of optimal noise: privacy, sensitivity, loss and number of coordinates, with the checks of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, get_args

from mechdesign.errors import DesignError
from mechdesign.evidence.classes import INDEPENDENT_NOISE, REAL_NOISE, MechanismClass, every
from mechdesign.problem.checks import UP, field, integer, one_of, positive, settle
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import GAUSSIAN_ALONE, GaussianDP, Pointwise, pairs_of
from mechdesign.problem.sensitivity import Protection, Sensitivity, neighbours_field, neighbours_of
from mechdesign.problem.spine import Design

LARGEST_CHANGE = 500
"""Of whole numbers: a linear program of minutes."""


@dataclass(frozen=True)
class NoiseQuestion(Design):
    """The question that `mechdesign.OptimalNoise` asks and that every proof of its results is checked against."""

    asks: ClassVar[str] = "numbers"

    privacy: Pointwise = field(*get_args(Pointwise))
    sensitivity: Any = 1.0
    loss: object = "absolute"
    dimension: int = field(check=integer, least=1, most=10**6, default=1)
    l0: int | None = None
    integer: bool = field(check=one_of, allowed=(True, False), default=False)
    neighbours: str = neighbours_field()

    def __post_init__(self) -> None:
        settle(self, neighbours=neighbours_of(self.sensitivity, self.neighbours))
        if isinstance(self.privacy, GaussianDP):
            raise DesignError.of("privacy", self.privacy, GAUSSIAN_ALONE)
        super().__post_init__()
        if isinstance(self.sensitivity, Sensitivity):
            if self.l0 is not None:
                raise DesignError.of("l0", self.l0, "is for a number: the Sensitivity says it")
            size, count = alike(self.sensitivity, self.dimension)
            settle(self, sensitivity=size, l0=count)
        settle(self, sensitivity=positive("sensitivity", self.sensitivity, side=UP))
        if self.l0 is not None:
            count = integer("l0", self.l0, 1, self.dimension)
            settle(self, l0=None if count == self.dimension else count)
        for epsilon, delta in self.points:
            if not (1e-18 <= epsilon <= 200 or (epsilon == 0 and delta >= 1e-18)):
                what = "where e^-ε is a mass, and not 1 to all digits kept; or 0, with delta"
                raise DesignError.of("epsilon", epsilon, f"must be between 1e-18 and 200, {what}")
        if self.integer and not 1 <= self.sensitivity <= LARGEST_CHANGE:
            allowed = f"must be 1 to {LARGEST_CHANGE}, where whole numbers change; of larger changes leave integer=True out"
            raise DesignError.of("sensitivity", self.sensitivity, allowed)
        self._check_unit()

    def _check_unit(self) -> None:
        """Refuse a sensitivity in whose unit doubles do not hold the loss, nor what laws and proofs make of it."""
        loss, size = self.given_loss, Fraction(self.sensitivity)
        at_size = Fraction(loss.absolute) * size + Fraction(loss.squared) * size**2
        if loss.function is not None:  # taken to grow no faster than the square
            at_size = size**2
        if not (1e-200 <= at_size <= 1e200 and 1e-100 <= size <= 1e100):
            allowed = "must be between 1e-100 and 1e100, where the loss is between 1e-200 and 1e200: choose another unit"
            raise DesignError.of("sensitivity", self.sensitivity, allowed)

    def protection(self) -> Protection:
        changes = Sensitivity(linf=self.sensitivity, l0=self.l0, neighbours=self.neighbours)
        return Protection(self.dimension, changes, integer=self.integer)

    @property
    def among(self) -> MechanismClass:
        """Every additive noise for one real number, whole-number noise where that is asked for; for several, independent noise of one law."""
        if self.dimension > 1:
            return INDEPENDENT_NOISE
        return every("additive whole-number noise" if self.integer else REAL_NOISE)

    def asked_by(self, question: object) -> bool:
        asked = [getattr(question, name, None) for name in ("scalar", "loss", "integer")]
        # whole numbers need not be protected from changes in between; they may be answered by noise that is not whole, which the
        # bound for whole noise holds of only where the loss is linear between whole numbers (`lattice_bound`)
        if self.integer and self.loss != "absolute":
            return False
        return self.dimension == 1 and asked == [self.sensitivity, self.loss, self.integer]

    @cached_property
    def given_loss(self) -> Loss:
        """The loss of one coordinate."""
        return Loss.of(self.loss)

    @cached_property
    def points(self) -> tuple[tuple[float, float], ...]:
        """(ε, δ) of all that is asked at once, δ = 0 under pure privacy."""
        return pairs_of(self.privacy)

    @property
    def alone(self) -> bool:
        """Whether one ε > 0 is asked, as closed forms and what several copies imply are for."""
        return len(self.points) == 1 and self.points[0][0] > 0

    @property
    def epsilon(self) -> float:
        """ε of the requirement, of one point."""
        [(epsilon, _)] = self.points
        return epsilon

    @property
    def delta(self) -> float:
        """δ of the requirement, of one point."""
        [(_, delta)] = self.points
        return delta

    @property
    def change(self) -> int:
        """The largest change of whole numbers."""
        return int(math.floor(self.sensitivity))

    def unit(self, cells: int) -> Fraction:
        """Width of a cell, so many a sensitivity; of whole numbers 1."""
        return Fraction(1) if self.integer else Fraction(self.sensitivity) / integer("cells", cells, 1)

    @property
    def moved(self) -> int:
        """How many coordinates change at once, at most."""
        return self.l0 or self.dimension


def alike(sensitivity: Sensitivity, dimension: int) -> tuple[float, int]:
    """Return (a, c) where the changes are all those of at most c coordinates by at most a each; refuse other sets.

    Independent noise of one law is as private on that set as on c coordinates that all move by up to a. Which coordinates
    move does not matter, nor whether all rise or fall together, since the law is symmetric.

    Examples
    --------
    >>> alike(Sensitivity(linf=1, l0=3), 20), alike(Sensitivity(each=[2, 2, 0]), 3)
    ((1.0, 3), (2.0, 2))
    """
    bounds = sensitivity.bounds(dimension)
    if len(bounds) > 1 or not sensitivity.allows(bounds):
        raise DesignError.of(
            "sensitivity",
            str(sensitivity),
            "the best noise is known where at most c coordinates change by at most a each: "
            "Sensitivity(linf=a, l0=c), a and c so large that they cover these changes",
        )
    return bounds[0]


def averaged(loss: object, mean: int) -> Loss:
    r"""The loss whose optimum for one coordinate bounds that of several from below.

    The mean of m answers that change is one answer of the same sensitivity, with noise :math:`\bar T` that must be private on its own:
    :math:`E\,|\bar T| \le E\,|T|`, :math:`E\,g(\bar T) \le E\,g(T)` by Jensen, and :math:`E\,\bar T^2 = E\,T^2/m` for
    symmetric laws, which suffice, since a change of signs keeps the box of changes and a mixture of private laws is
    private. So m times the squared part may be charged; with a function, which need not be even, only once.

    Examples
    --------
    >>> averaged({"absolute": 1, "squared": 2}, 10).name
    '1*absolute + 20*squared'
    """
    given = Loss.of(loss)
    return Loss(given.absolute, given.squared * (mean if given.polynomial else 1), given.function)

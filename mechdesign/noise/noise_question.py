"""The question of `mechdesign.OptimalNoise`, and what a law on cells claims to it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, get_args

from mechdesign.errors import DesignError
from mechdesign.evidence import proofs
from mechdesign.evidence.exact import round_up
from mechdesign.evidence.results import SolveReport
from mechdesign.noise.cell_noise import CellNoise, IntegerNoise
from mechdesign.noise.vector_noise import CellProduct, on_cells
from mechdesign.problem.checks import UP, field, instance, integer, one_of, positive, settle
from mechdesign.problem.losses import Loss
from mechdesign.problem.privacy import GAUSSIAN_ALONE, GaussianDP, Pointwise, pairs_of
from mechdesign.problem.sensitivity import Protection, Sensitivity, neighbours_field, neighbours_of
from mechdesign.problem.spine import Design, Law

LARGEST_CHANGE = 500
"""Largest change of whole numbers: its linear program takes minutes."""


@dataclass(frozen=True)
class NoiseQuestion(Design):
    """The question of `mechdesign.OptimalNoise`, against which every proof of its results is checked."""

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
        """Refuse a sensitivity so small or large that doubles do not hold its loss."""
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
    def among(self) -> proofs.MechanismClass:
        """Every additive noise for one number, whole-number noise for whole numbers; independent noise of one law for several numbers."""
        if self.dimension > 1:
            return proofs.INDEPENDENT_NOISE
        return proofs.every("additive whole-number noise" if self.integer else proofs.REAL_NOISE)

    def asked_by(self, question: object) -> bool:
        asked = [getattr(question, name, None) for name in ("scalar", "loss", "integer")]
        # whole numbers may also be answered by noise that is not whole; the bound for whole noise covers it only where the loss is
        # linear between whole numbers (`mechdesign.noise.lattice`)
        if self.integer and self.loss != "absolute":
            return False
        return self.dimension == 1 and asked == [self.sensitivity, self.loss, self.integer]

    @cached_property
    def given_loss(self) -> Loss:
        """The loss of one coordinate."""
        return Loss.of(self.loss)

    @cached_property
    def points(self) -> tuple[tuple[float, float], ...]:
        """All required pairs (ε, δ); δ = 0 under pure privacy."""
        return pairs_of(self.privacy)

    @property
    def alone(self) -> bool:
        """Whether there is one pair and its ε is positive, as closed forms need."""
        return len(self.points) == 1 and self.points[0][0] > 0

    @property
    def epsilon(self) -> float:
        """ε of the requirement, if it is one pair."""
        [(epsilon, _)] = self.points
        return epsilon

    @property
    def delta(self) -> float:
        """δ of the requirement, if it is one pair."""
        [(_, delta)] = self.points
        return delta

    @property
    def change(self) -> int:
        """The largest change of whole numbers."""
        return int(math.floor(self.sensitivity))

    def unit(self, cells: int) -> Fraction:
        """Return the width of a cell at so many cells a sensitivity; 1 for whole numbers."""
        return Fraction(1) if self.integer else Fraction(self.sensitivity) / integer("cells", cells, 1)

    @property
    def moved(self) -> int:
        """Largest number of coordinates that change at once."""
        return self.l0 or self.dimension

    rows_take = tuple

    @property
    def rows_how(self) -> str:
        """RECOMPUTED for a convex callable, whose doubles are taken as exact and whose convexity is sampled; else PROVED."""
        return proofs.PROVED if self.given_loss.polynomial else proofs.RECOMPUTED

    @property
    def cost_floor(self) -> int | None:
        """0, as errors are not negative, though costs of t² on a lattice may be; None for a callable."""
        return 0 if self.given_loss.polynomial else None

    def check_scalar(self) -> None:
        """Refuse several numbers."""
        if self.dimension != 1:
            raise DesignError.of("dimension", self.dimension, "must be 1")


def alike(sensitivity: Sensitivity, dimension: int) -> tuple[float, int]:
    """Return (a, c) if the changes are all those of at most c coordinates by at most a each; refuse other sets.

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


def cell_claims(question: NoiseQuestion, stated: proofs.Certificate) -> Iterator[proofs.Claim]:
    r"""Claim that a cell law keeps (ε, δ), by its finitely many hockey-stick sums (`mechdesign.noise.cell_noise`), and what it costs.

    If each of c coordinates that change at once keeps (ε/c, δ/c), all of them keep (ε, δ): basic composition
    (Dwork and Roth 2014, theorem 3.16). The sums and the cost are rational; the cost of a callable loss is computed in doubles
    and rounded up.
    """
    law, size, moved = stated.law, 1, 1
    if isinstance(stated.law, CellProduct):
        law, size, moved = stated.law.law, stated.law.dimension, stated.law.moved
    instance("law", law, IntegerNoise if question.integer else CellNoise)
    if (size, moved) != (question.dimension, question.moved):
        remedy = "must be the question's: numbers, and how many change"
        raise DesignError.of("dimension", (size, moved), remedy)
    for epsilon, delta in question.points:
        spare = Fraction(delta) - moved * law.exact_delta(Fraction(epsilon) / moved)
        claim = f"delta at epsilon = {epsilon:g} is at most {delta:g}"
        yield proofs.Claim(claim, proofs.PROVED, float(spare), spare >= 0)
    cells = on_cells(law)
    asked = question.change if question.integer else Fraction(question.sensitivity)
    reach = Fraction(cells.width) * cells.cells_per_shift - asked
    yield proofs.Claim(
        "it holds for every change up to the sensitivity", proofs.PROVED, float(reach), reach >= 0
    )
    room = Fraction(stated.value) - law.cost(question.given_loss)
    how = proofs.PROVED if question.given_loss.polynomial else proofs.RECOMPUTED
    yield proofs.Claim(f"the expected loss is at most {stated.value:.9g}", how, float(room), room >= 0)


def cell_law(question: NoiseQuestion, law: CellNoise | IntegerNoise, report: SolveReport) -> Law:
    """Return a law on cells or whole numbers with its cost, and its proof."""
    cost = round_up(law.cost(question.given_loss))
    return Law(law, cost, (proofs.LawProof(),), report, law_notes(question, law))


def law_notes(question: NoiseQuestion, law: CellNoise | IntegerNoise) -> tuple[str, ...]:
    """Return notes about a law."""
    notes = []
    if not question.given_loss.polynomial:
        notes.append(
            "the loss is a callable: its floating-point values are taken as exact, its convexity sampled"
        )
    if isinstance(law, CellNoise) and law.spike:
        notes.append(
            f"a spike of mass {float(law.spike / law.total):.3g} and width {law.spike_width:.3g} sits at 0: "
            "δ is large enough that almost exact answers pay"
        )
    return tuple(notes)

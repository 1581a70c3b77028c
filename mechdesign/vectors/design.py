r"""The best way to send a vector under one budget, in so many bits.

Rotated simplices and random directions of 1, …, b bits, several messages of random directions, sampled coordinates and, for a box, their
signs together are tried. Their errors are exact before
any run, and the least worst error is taken. The lower bound is the cap's error: of all unbiased ε-private answers to the vectors of
one length none has a smaller one (Asi, Feldman, Talwar 2022), and these are among the inputs whatever their kind. For a box the
corners give another bound (`cap`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd

from mechdesign.errors import DesignError
from mechdesign.evidence.digits import at_most
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.proofs import (
    CLAIMED,
    PROVED,
    RECOMPUTED,
    Certificate,
    Claim,
    ClosedBound,
    LawProof,
    MechanismClass,
    agreement,
    every,
    menu,
)
from mechdesign.evidence.results import AUDIT_COLUMNS, Accuracy, Result
from mechdesign.evidence.serialize import serializable
from mechdesign.plotting import COLOURS, figure, sized
from mechdesign.problem.checks import field, instance, integer, one_of
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.spine import Bound, Clock, Design, Law
from mechdesign.problem.words import Description
from mechdesign.vectors.ball import checked_dimension, checked_radius, power_of_e
from mechdesign.vectors.cap import box_error, cap_error
from mechdesign.vectors.directions import RandomDirections
from mechdesign.vectors.sampled import LARGEST_BITS as MOST_SIGNS
from mechdesign.vectors.sampled import SampledCoordinates, SampledSigns, coordinate_epsilon
from mechdesign.vectors.sphere import LARGEST_BITS, LARGEST_FRAME, SphereQuantizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VectorLaw = SphereQuantizer | RandomDirections | SampledSigns | SampledCoordinates

_MANY = 10_000  # coordinates from which the fast rotation is tried too
_DRAWN = 1 << 22  # numbers of directions a vector where bits are not limited: a fifth of a second
_ROUNDING = 1e-9  # relative room for the roundings of a lower bound
_EQUAL = 1e-12  # how far what is stated may be better than what is computed anew
_INPUTS = {
    "ball": "of Euclidean length at most {}",
    "sphere": "of Euclidean length {}",
    "box": "whose coordinates are at most {} in size",
}


@serializable("vector-design")
@dataclass(frozen=True)
class VectorQuantizer(Design):
    """The best of four mechanisms for a whole vector under one budget; the lower bound is of every unbiased mechanism, in any bits.

    Parameters
    ----------
    dimension : int
        d, at least 2.
    privacy : PureDP
        Of the whole vector, between any two inputs (local model).
    bits : int, optional
        Of the whole vector, not of a coordinate: at most so many, 1 to 16; when not given, what an encoder of a fifth of a second has.
    inputs : {"ball", "sphere", "box"}
        ‖x‖₂ ≤ R, ‖x‖₂ = R, or every coordinate in [−R, R].
    radius : float
        R, what vectors are clipped at.
    rotation : {"exact", "fast"}, optional
        Of the simplices; see `SphereQuantizer`. When not given, exact, and from 10,000 coordinates on whichever of the two has the smaller proved error: a fast
        rotation takes more bits in less time, and its bias is counted.

    Examples
    --------
    >>> result = VectorQuantizer(1000, PureDP(4.0), bits=8).solve()
    >>> round(result.value, 1), round(result.lower_bound, 1)
    (438.8, 434.6)
    >>> message = result.mechanism.encode([0.02] * 1000)
    >>> result.mechanism.decode(message).shape
    (1, 1000)
    """

    dimension: int = field(check=checked_dimension)
    privacy: PureDP = field(PureDP)
    bits: int | None = field(check=integer, least=1, most=LARGEST_BITS, default=None)
    inputs: str = field(check=one_of, allowed=("ball", "sphere", "box"), default="ball")
    radius: float = field(check=checked_radius, default=1.0)
    rotation: str | None = field(check=one_of, allowed=(None, "exact", "fast"), default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inputs == "box":
            checked_radius("radius", self.radius * math.sqrt(self.dimension))
        power_of_e(self.privacy.epsilon)

    @property
    def among(self) -> MechanismClass:
        """Rotated simplices, random directions, sampled signs and coordinates: others may do better, down to the lower bound."""
        return menu("rotated simplex, random directions, sampled signs or sampled coordinates")

    @property
    def epsilon(self) -> float:
        """ε of the whole vector."""
        return self.privacy.epsilon

    @property
    def spheres(self) -> Iterator[SphereQuantizer]:
        """The rotated simplices of 1, 2, … bits."""
        kind, reach, working = self._sphere
        for rotation in self.rotations:
            most = min((working + 1).bit_length() - 1, LARGEST_BITS if self.bits is None else self.bits)
            while rotation == "exact" and most > 1 and working * ((1 << most) - 1) > LARGEST_FRAME:
                most -= 1
            for bits in range(1, most + 1):
                yield SphereQuantizer(self.dimension, bits, self.privacy, kind, reach, rotation)

    @property
    def rotations(self) -> tuple[str, ...]:
        """Those of the simplices that are compared."""
        if self.rotation is not None:
            return (self.rotation,)
        return ("exact",) if self.dimension < _MANY else ("exact", "fast")

    @property
    def _sphere(self) -> tuple[str, float, int]:
        """The kind of inputs of what works on a sphere, their length, and the sphere's dimension."""
        sphere, reach = self.inputs == "sphere", self.radius
        if self.inputs == "box":
            reach = math.nextafter(self.radius * math.sqrt(self.dimension), math.inf)
        return ("sphere" if sphere else "ball"), reach, self.dimension + (not sphere)

    @property
    def directions(self) -> Iterator[RandomDirections]:
        """One message of 1, 2, … bits, then 2, 3, … messages of as many bits each as there are, while the error falls."""
        kind, reach, working = self._sphere
        drawn = _DRAWN if self.bits is None else LARGEST_FRAME
        error, messages = math.inf, 1
        while True:
            fitting = (drawn // (working * messages)).bit_length() - 1
            most = min(LARGEST_BITS if self.bits is None else self.bits // messages, fitting)
            if most < 1 or self.epsilon < messages - 1:  # at a small ε an error rises with 1/ε²
                return
            for bits in range(1 if messages == 1 else most, most + 1):
                found = RandomDirections(self.dimension, bits, self.privacy, messages, kind, reach)
                yield found
            if found.error >= error:
                return
            error, messages = found.error, messages + 1

    @property
    def signs(self) -> Iterator[SampledSigns]:
        """For a box: the signs of 2, 3, … coordinates together. (One sign is a sampled coordinate.)"""
        most = min(self.dimension, MOST_SIGNS if self.bits is None else self.bits, MOST_SIGNS)
        for bits in range(2, most + 1 if self.inputs == "box" else 2):
            yield SampledSigns(self.dimension, bits, self.privacy, self.radius)

    def candidates(self) -> Iterator[VectorLaw]:
        """What is tried, each made when it is asked for."""
        yield from self.spheres
        yield from self.directions
        yield from self.signs
        kind = "box" if self.inputs == "box" else "ball"
        yield SampledCoordinates(self.dimension, self.bits, self.privacy, kind, self.radius)

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        """Compare the candidates, whose errors are closed forms; the bound holds for any number of bits."""
        yield Bound(
            least_error(self.dimension, self.privacy.epsilon, self.inputs, self.radius), ClosedBound()
        )
        for mechanism in sorted(self.candidates(), key=proved_error):
            fast = isinstance(mechanism, SphereQuantizer) and mechanism.rotation == "fast"
            note = "the fast rotation is not of the uniform law: unbiased up to what rotation_bias measures; the error counts the bias"
            yield Law(mechanism, proved_error(mechanism), (LawProof(),), notes=(note,) if fast else ())

    # -- evidence --------------------------------------------------------------------------------------------------

    bound_how = RECOMPUTED

    @property
    def bound_among(self) -> MechanismClass:
        return every("unbiased mechanism with any number of bits")

    def law_claims(self, stated: Certificate) -> Iterator[Claim]:
        """Codes of the probabilities E/t and 1/t, E ≤ e^ε rational, are ε-private, and so are k coordinates of ε/k each.

        Probabilities are checked in rational numbers. The error is a closed form, or at most R²(r² + 1) in a fast rotation, in doubles.
        """
        kinds = SphereQuantizer, RandomDirections, SampledSigns, SampledCoordinates
        m = cast(VectorLaw, instance("law", stated.law, *kinds))
        if isinstance(m, SampledCoordinates):
            yield from _of_coordinates(m)
            yield agreement("the mechanism's limit of bits is the design's", PROVED, m.bits == self.bits)
        else:
            yield from _of_codes(m)
        spare = self.privacy.epsilon - m.privacy.epsilon
        yield Claim("the budget of the mechanism is within the one stated", PROVED, spare, spare >= 0)
        covered = "every input that is stated is one of the mechanism's, and rotated as stated"
        yield Claim(covered, PROVED, math.nan, _covers(self, m))
        short = self.bits is None or m.vector_bits <= self.bits
        spare = math.nan if self.bits is None else float(self.bits - m.vector_bits)
        yield Claim("a vector takes no more bits than stated", PROVED, spare, short)
        room = stated.value * (1 + _EQUAL) - proved_error(m)
        yield Claim(f"the worst error is at most {stated.value:.9g}", RECOMPUTED, room, room >= 0)

    def least_cost(self, stated: Certificate) -> float:
        """The cap's error, of vectors of one length (Asi, Feldman, Talwar 2022); of a box also what its corners need (`box_error`)."""
        return least_error(self.dimension, self.privacy.epsilon, self.inputs, self.radius)

    # -- what a result says ----------------------------------------------------------------------------------------

    @cached_property
    def _table(self) -> pd.DataFrame:
        rows = [
            {
                "mechanism": _named(m),
                "bits": m.vector_bits,
                "count": m.slots if isinstance(m, SampledCoordinates) else m.near,
                "error": proved_error(m),
            }
            for m in self.candidates()
        ]
        return pd.DataFrame(rows).sort_values("error", kind="stable", ignore_index=True)

    def trials(self, result: Result) -> pd.DataFrame:
        """What was tried, best first: mechanism, bits, count, error; computed anew."""
        return self._table.copy()

    frame = trials

    def audit(self, result: Result) -> pd.DataFrame:
        loss, budget = result.mechanism.privacy_loss(), self.privacy.epsilon
        needed = float(result.mechanism.vector_bits)
        allowed = needed if self.bits is None else float(self.bits)
        rows = [
            ("privacy", 0, loss, budget, budget - loss, np.nan, loss == budget),
            ("bits", 0, needed, allowed, allowed - needed, np.nan, needed == allowed),
        ]
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def lines(self, result: Result) -> list[str]:
        m = result.mechanism
        if isinstance(m, SampledCoordinates):
            what = f"{m.slots} of {m.dimension} coordinates, {m.levels} outputs each"
        elif isinstance(m, SampledSigns):
            what = f"{m.near} of {m.outputs} texts near, {m.bits} of {m.dimension} coordinates"
        elif isinstance(m, RandomDirections):
            what = f"{m.near} of {m.outputs} directions near"
        else:
            what = f"{m.near} of {m.outputs} vertices near"
        return [f"{_named(m)}: {what}; {m.vector_bits} bits a vector"]

    def errors(self, result: Result, question: object = None) -> Accuracy:
        remedy = "has no error in the units of one answer; see result.value"
        raise DesignError.of("mechanism", _named(result.mechanism), remedy)

    def describe(self, result: Result) -> Description:
        inputs = _INPUTS[self.inputs].format(f"{self.radius:g}")
        bits = "any number of bits" if self.bits is None else f"at most {self.bits} bits"
        return Description(
            title=f"A vector of {self.dimension} numbers in {bits}",
            what=f"Every person has a vector of {self.dimension} numbers {inputs}, and sends {bits}. The answer is unbiased.",
            loss="expected squared error of the worst input",
            consumed=f"{at_most(result.mechanism.privacy_loss())} consumed by the whole vector",
            picture="The worst expected squared error of what was tried, and the lower bound of every unbiased mechanism with any number of bits.",
        )

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the error of what was tried over its bits, and the lower bound."""
        fig, axis = figure(**sized(options, 5.0, 3.2))
        for colour, (name, part) in zip(COLOURS, self._table.groupby("mechanism", sort=False)):
            part = part.sort_values("bits")
            axis.plot(part["bits"], part["error"], "o-", color=colour, label=name)
        if result.lower_bound:
            axis.axhline(
                result.lower_bound, color="black", linestyle=":", label="lower bound, any number of bits"
            )
        axis.set(xlabel="bits a vector", ylabel="worst expected squared error", yscale="log")
        axis.legend()
        return fig


def _named(mechanism: VectorLaw) -> str:
    if isinstance(mechanism, RandomDirections):
        several = f"{mechanism.messages} messages of " if mechanism.messages > 1 else ""
        return several + ("rotated polygon" if mechanism.working == 2 else "random directions")
    if isinstance(mechanism, SampledSigns):
        return "sampled signs"
    if isinstance(mechanism, SphereQuantizer):
        return "rotated simplex" + (", fast rotation" if mechanism.rotation == "fast" else "")
    return "sampled coordinates"


def proved_error(mechanism: VectorLaw) -> float:
    """The error of the worst input, or what it does not exceed."""
    return mechanism.proved_error if isinstance(mechanism, SphereQuantizer) else mechanism.error


# -- evidence ------------------------------------------------------------------------------------------------------


def least_error(dimension: int, epsilon: float, inputs: str, radius: float) -> float:
    """A lower bound of the worst error of unbiased private answers, less roundings: the cap's for vectors of length at most R,
    which are in the box of half-width R; for the box what its corners need, if that is more."""
    least = cap_error(dimension, epsilon)
    if inputs == "box":
        least = max(least, box_error(dimension, epsilon))
    return radius**2 * least * (1 - _ROUNDING)


def _covers(design: VectorQuantizer, m: VectorLaw) -> bool:
    """Whether inputs of the kind stated are inputs of the mechanism, and rotated as stated."""
    if m.dimension != design.dimension or (
        isinstance(m, SphereQuantizer) and m.rotation not in design.rotations
    ):
        return False
    if m.inputs == "sphere":
        return design.inputs == "sphere" and m.radius == design.radius
    larger = math.sqrt(design.dimension) if design.inputs == "box" and m.inputs != "box" else 1.0
    return m.radius >= design.radius * larger


def _of_codes(m: SphereQuantizer | RandomDirections | SampledSigns) -> Iterator[Claim]:
    bound, (more, less) = exp_lower(coordinate_epsilon(m.privacy.epsilon, m.slots)), m.probabilities
    margin, power = float(1 - more / (less * bound)), "e^ε" if m.slots == 1 else f"e^(ε/{m.slots})"
    yield Claim(
        f"two probabilities of a code differ by at most {power}", PROVED, margin, more <= bound * less
    )
    total = m.near * more + (m.outputs - m.near) * less
    yield Claim("the probabilities of the codes sum to 1", PROVED, 0.0, total == 1 and less > 0)
    if isinstance(m, SampledSigns):
        # The agreement of a sign with its answer, text by text.
        places = [m.bits - 2 * int(v).bit_count() for v in m._order.tolist()]
        agreement = (more * sum(places[: m.near]) + less * sum(places[m.near :])) / m.bits
        holds = agreement == m.agreement > 0
        yield Claim("unbiased over the coordinates that are sent", PROVED, 0.0, holds)
        return
    over = f"{m.rotation} rotation" if isinstance(m, SphereQuantizer) else "directions"
    exact, off = over != "fast rotation", abs(m.factor * float(more - less) * m.closeness - 1)
    name = f"unbiased over the {over}" + ("" if exact else ", nearly")
    yield Claim(name, RECOMPUTED if exact else CLAIMED, 1e-12 - off, off <= 1e-12)


def _of_coordinates(m: SampledCoordinates) -> Iterator[Claim]:
    margin, law = m.coordinate_margin(), m.one.law
    claim = f"two probabilities of a coordinate's output differ by at most e^(ε/{m.slots})"
    yield Claim(claim, PROVED, margin, margin >= 0)
    unbiased = law is not None and all(
        sum((b * p for b, p in zip(law.bins, law.row(k, end))), start=Fraction(0)) == law.knots[k + end]
        for k in range(len(law.knots) - 1)
        for end in (0, 1)
    )
    yield Claim("every coordinate's answer is unbiased", PROVED, 0.0, unbiased)

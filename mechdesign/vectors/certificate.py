"""Evidence for a vector mechanism: its probabilities in exact numbers, its error anew, and the best that is possible."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pandas as pd

from mechdesign.errors import DesignError
from mechdesign.evidence.certificate import CLAIMED, PROVED, RECOMPUTED, Check, OldCertificate, check_table
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.serialize import serializable
from mechdesign.vectors.ball import LARGEST_EPSILON
from mechdesign.vectors.box_bound import box_error
from mechdesign.vectors.cap import cap_error
from mechdesign.vectors.sampled import SampledCoordinates
from mechdesign.vectors.signs import SampledSigns
from mechdesign.vectors.sphere import SphereQuantizer

__all__ = ["VectorCertificate", "least_error"]

_ROUNDING = 1e-9
"""Relative room for the roundings of a lower bound."""
_EQUAL = 1e-12
"""How far what is stated may be better than what is computed anew."""


def least_error(dimension: int, epsilon: float, inputs: str, radius: float) -> float:
    """A lower bound of the worst error of unbiased private answers, less roundings: the cap's for vectors of length at most R,
    which are in the box of half-width R; for the box what its corners need, if that is more."""
    least = cap_error(dimension, epsilon)
    if inputs == "box":
        least = max(least, box_error(dimension, epsilon))
    return radius**2 * least * (1 - _ROUNDING)


@serializable("vector-certificate")
@dataclass(frozen=True, eq=False)
class VectorCertificate(OldCertificate):
    """Exact evidence of a vector mechanism.

    Parameters
    ----------
    dimension : int
    epsilon : float
        What is spent on the whole vector.
    inputs : {"ball", "sphere", "box"}
    radius : float
        What inputs are bounded by.
    bits : int, optional
        What a vector may take.
    rotation : {"exact", "fast"}
        Of a simplex.
    mechanism : SphereQuantizer, SampledSigns or SampledCoordinates
    value, lower_bound : float
        What is claimed of the worst expected squared error.
    """

    dimension: int
    epsilon: float
    inputs: str
    radius: float
    bits: int | None
    rotation: str
    mechanism: SphereQuantizer | SampledSigns | SampledCoordinates
    value: float
    lower_bound: float

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, (SphereQuantizer, SampledSigns, SampledCoordinates)):
            wanted = "must be a SphereQuantizer, SampledSigns or SampledCoordinates"
            raise DesignError.of("mechanism", self.mechanism, wanted)

    @property
    def bound_how(self) -> str:
        return RECOMPUTED

    @property
    def statement(self) -> Mapping[str, Any]:
        """The question, and the two numbers claimed."""
        names = ("dimension", "epsilon", "inputs", "radius", "bits", "rotation", "value", "lower_bound")
        return {name: getattr(self, name) for name in names}

    def checks(self) -> pd.DataFrame:
        """Privacy, bias, inputs and bits, error, lower bound."""
        m = self.mechanism
        nearly = isinstance(m, SphereQuantizer) and m.rotation != "exact"
        own = _sampled_checks(m) if isinstance(m, SampledCoordinates) else _near_checks(m)
        spare = self.epsilon - m.privacy.epsilon
        known = (
            self.inputs in ("ball", "sphere", "box")
            and self.rotation in ("exact", "fast")
            and self.dimension == m.dimension
            and 0 < self.epsilon <= LARGEST_EPSILON
            and 1e-100 <= self.radius <= 1e100
        )
        needed = m.slots * m.code_bits
        room = self.value * (1 + _EQUAL) - m.error
        least = least_error(self.dimension, self.epsilon, self.inputs, self.radius) if known else math.nan
        below = least * (1 + _EQUAL) - self.lower_bound
        return check_table(
            [
                *own,
                ("the budget of the mechanism is within the one stated", PROVED, spare, spare >= 0),
                (
                    "every input that is stated is one of the mechanism's, and rotated as stated",
                    PROVED,
                    math.nan,
                    known and self._covers(),
                ),
                (
                    "a vector takes no more bits than stated",
                    PROVED,
                    math.nan,
                    self.bits is None or needed <= self.bits,
                ),
                (
                    f"the worst error is at most {self.value:.9g}",
                    CLAIMED if nearly else RECOMPUTED,
                    room,
                    room >= 0,
                ),
                (
                    f"no unbiased mechanism does better than {self.lower_bound:.9g} ({_reason(self.inputs)})",
                    RECOMPUTED,
                    below,
                    below >= 0,
                ),
            ]
        )

    def _covers(self) -> bool:
        """Whether inputs of the kind stated are inputs of the mechanism, and rotated as stated."""
        m = self.mechanism
        reach = (
            self.radius * math.sqrt(self.dimension)
            if self.inputs == "box" and m.inputs != "box"
            else self.radius
        )
        if isinstance(m, SphereQuantizer) and m.rotation != self.rotation:
            return False
        if m.inputs == "sphere":
            return self.inputs == "sphere" and m.radius == self.radius
        return m.radius >= reach


def _reason(inputs: str) -> str:
    return "a box's corners" if inputs == "box" else "the cap's error; Asi et al. 2022"


def _near_checks(m: SphereQuantizer | SampledSigns) -> list[Check]:
    bound = exp_lower(m.privacy.epsilon)
    more, less = m.probabilities
    total = m.near * more + (m.outputs - m.near) * less
    return [
        (
            "two probabilities of a code differ by at most e^ε",
            PROVED,
            float(1 - more / (less * bound)),
            more <= bound * less,
        ),
        ("the probabilities of the codes sum to 1", PROVED, 0.0, total == 1 and less > 0),
        _turned(m, float(more - less)) if isinstance(m, SphereQuantizer) else _signed(m, more, less),
    ]


def _turned(m: SphereQuantizer, gain: float) -> Check:
    exact, off = m.rotation == "exact", abs(m.factor * gain * m.closeness - 1)
    name = f"unbiased over the {m.rotation} rotation" + ("" if exact else ", nearly")
    return name, RECOMPUTED if exact else CLAIMED, 1e-12 - off, off <= 1e-12


def _signed(m: SampledSigns, more: Fraction, less: Fraction) -> Check:
    """The agreement of a sign with its answer, text by text."""
    places = [m.bits - 2 * int(v).bit_count() for v in m._order.tolist()]
    agreement = (more * sum(places[: m.near]) + less * sum(places[m.near :])) / m.bits
    return "unbiased over the coordinates that are sent", PROVED, 0.0, agreement == m.agreement > 0


def _sampled_checks(m: SampledCoordinates) -> list[Check]:
    margin = m.coordinate_margin()
    law = m.one.law
    unbiased = law is not None and all(
        sum((b * p for b, p in zip(law.bins, law.row(k, end))), start=-law.knots[k + end]) == 0
        for k in range(len(law.knots) - 1)
        for end in (0, 1)
    )
    return [
        (
            f"two probabilities of a coordinate's output differ by at most e^(ε/{m.slots})",
            PROVED,
            margin,
            margin >= 0,
        ),
        ("every coordinate's answer is unbiased", PROVED, 0.0, unbiased),
    ]

r"""The best way to send a vector under one budget, in so many bits.

Rotated simplices of 1, …, b bits, sampled coordinates and, for a box, their signs together are tried; their errors are exact before any run, and the least worst
error is taken. The lower bound is the cap's error: of all unbiased ε-private answers to the vectors of one length none has a
smaller one (Asi, Feldman, Talwar 2022), and these are among the inputs whatever their kind. A box has corners besides: `box_bound`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from mechdesign.errors import DesignError
from mechdesign.evidence.results import SolveReport
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import instance, one_of, settle, whole
from mechdesign.problem.design import OldDesign, refuse_unknown, wanted_gap
from mechdesign.problem.privacy import PureDP
from mechdesign.solvers import Deadline, Model
from mechdesign.typing import Status
from mechdesign.vectors.ball import checked_dimension, checked_radius, power_of_e
from mechdesign.vectors.certificate import VectorCertificate, least_error
from mechdesign.vectors.result import VectorQuantizerResult, row_of
from mechdesign.vectors.sampled import SampledCoordinates
from mechdesign.vectors.signs import LARGEST_BITS as MOST_SIGNS
from mechdesign.vectors.signs import SampledSigns
from mechdesign.vectors.sphere import LARGEST_BITS, SphereQuantizer

__all__ = ["VectorQuantizer"]

Mechanism = SphereQuantizer | SampledSigns | SampledCoordinates


@serializable("vector-design")
@dataclass(frozen=True)
class VectorQuantizer(OldDesign):
    """The best mechanism for a whole vector under one budget.

    Parameters
    ----------
    dimension : int
        d, at least 2.
    privacy : PureDP
        Of the whole vector, between any two inputs (local model).
    bits : int, optional
        At most so many for a vector, 1 to 16; no limit when not given.
    inputs : {"ball", "sphere", "box"}
        ‖x‖₂ ≤ R, ‖x‖₂ = R, or every coordinate in [−R, R].
    radius : float
        R, what vectors are clipped at.
    rotation : {"exact", "fast"}
        Of the simplices; see `SphereQuantizer`.

    Examples
    --------
    >>> result = VectorQuantizer(1000, PureDP(4.0), bits=8).solve()
    >>> round(result.value, 1), round(result.lower_bound, 1)
    (438.8, 434.6)
    >>> message = result.mechanism.encode([0.02] * 1000)
    >>> result.mechanism.decode(message).shape
    (1, 1000)
    """

    dimension: int
    privacy: PureDP
    bits: int | None = None
    inputs: str = "ball"
    radius: float = 1.0
    rotation: str = "exact"

    def __post_init__(self) -> None:
        if not isinstance(self.dimension, int) and hasattr(self.dimension, "probabilities"):
            raise DesignError.of(
                "dimension",
                self.dimension,
                "must be an integer; a quantizer of every coordinate is md.CoordinateQuantizer",
            )
        settle(
            self,
            dimension=checked_dimension(self.dimension),
            privacy=DesignError.unless("privacy", self.privacy, PureDP),
            bits=None if self.bits is None else whole("bits", self.bits, 1, LARGEST_BITS),
            inputs=one_of("inputs", self.inputs, ("ball", "sphere", "box")),
            radius=checked_radius(self.radius),
            rotation=one_of("rotation", self.rotation, ("exact", "fast")),
        )
        if self.inputs == "box":
            checked_radius(self.radius * math.sqrt(self.dimension))
        power_of_e(self.privacy.epsilon)

    @property
    def epsilon(self) -> float:
        """ε of the whole vector."""
        return self.privacy.epsilon

    def model(self, **options: Any) -> Model:
        """Refuse: the candidates are closed forms."""
        refuse_unknown(options, "there is no model")
        raise DesignError("a vector quantizer is a search over closed forms; there is no program to return")

    @cached_property
    def spheres(self) -> tuple[SphereQuantizer, ...]:
        """The rotated simplices, a bit more each."""
        sphere = self.inputs == "sphere"
        reach = (
            math.nextafter(self.radius * math.sqrt(self.dimension), math.inf)
            if self.inputs == "box"
            else self.radius
        )
        working = self.dimension + (not sphere)
        most = min((working + 1).bit_length() - 1, LARGEST_BITS if self.bits is None else self.bits)
        while self.rotation == "exact" and most > 1 and working * ((1 << most) - 1) > 1 << 27:
            most -= 1
        kind = "sphere" if sphere else "ball"
        return tuple(
            SphereQuantizer(self.dimension, b, self.privacy, kind, reach, self.rotation)
            for b in range(1, most + 1)
        )

    @property
    def signs(self) -> tuple[SampledSigns, ...]:
        """For a box: the signs of 2, 3, … coordinates together. (One sign is a sampled coordinate.)"""
        most = min(self.dimension, MOST_SIGNS if self.bits is None else self.bits, MOST_SIGNS)
        counts = range(2, most + 1 if self.inputs == "box" else 2)
        return tuple(SampledSigns(self.dimension, b, self.privacy, self.radius) for b in counts)

    def candidates(self) -> Iterator[Mechanism]:
        """What is tried, each made when it is asked for."""
        yield from self.spheres
        yield from self.signs
        kind = "box" if self.inputs == "box" else "ball"
        yield SampledCoordinates(self.dimension, self.bits, self.privacy, kind, self.radius)

    def solve(
        self,
        solver: str | None = None,
        *,
        gap: float | None = None,
        certify: bool = True,
        time_limit: float | None = None,
        **options: Any,
    ) -> VectorQuantizerResult:
        """Return the mechanism of least worst error; a search, whose status is "feasible".

        Parameters
        ----------
        solver : {None, "closed-form"}
        gap : float, optional
            Not used: what is tried is few.
        """
        one_of("certify", certify, (True, False))
        wanted_gap(gap, 0.5)
        refuse_unknown(options, "the search has none")
        if instance("solver", solver, str, type(None)) not in (None, "closed-form"):
            raise DesignError.of(
                "solver", solver, "must be None or 'closed-form': the candidates are closed forms"
            )
        started, deadline = time.perf_counter(), Deadline(time_limit)
        found: list[Mechanism] = []
        limited = False
        for candidate in self.candidates():
            found.append(candidate)
            _ = candidate.error
            if limited := deadline.passed:
                break
        best = min(found, key=lambda m: m.error)
        bound = min(least_error(self.dimension, self.epsilon, self.inputs, self.radius), best.error)
        evidence = VectorCertificate(
            self.dimension,
            self.epsilon,
            self.inputs,
            self.radius,
            self.bits,
            self.rotation,
            best,
            best.error,
            bound,
        )
        status = Status.LIMIT if limited else Status.FEASIBLE
        report = SolveReport(
            "closed-form",
            status if certify else Status.UNCERTIFIED,
            seconds=time.perf_counter() - started,
            iterations=len(found),
            requested=solver,
        )
        return VectorQuantizerResult(
            design=self,
            mechanism=best,
            value=best.error,
            lower_bound=bound,
            solver_report=report,
            notes=_notes(best),
            certificate=evidence if certify else None,
            table=pd.DataFrame([row_of(m) for m in sorted(found, key=lambda m: m.error)]),
        )


def _notes(mechanism: Mechanism) -> tuple[str, ...]:
    if isinstance(mechanism, SphereQuantizer) and mechanism.rotation == "fast":
        return ("the fast rotation is not of the uniform law: unbiased up to what rotation_bias measures",)
    return ()

r"""The best report of a vector under one budget in at most b bits, and PrivUnit, a random direction from a cap, the best of all unbiased answers.

The candidates are rotated simplices and random directions of 1, …, b bits, several messages of random directions, sampled coordinates and, for
a box, their signs together. Their errors are known exactly, and
the one with the least worst-case error is taken. The lower bound is the cap's error: no unbiased ε-private answer to vectors of
one length has a smaller one (Asi, Feldman, Talwar 2022), and inputs of every kind include these. For a box the
corners give another bound.

**PrivUnit.** On the sphere in D dimensions the answer has the density E ≤ e^ε on the cap :math:`\{u : \langle u, y\rangle \ge t\}` against 1 outside. With
:math:`q = P[u_1 \ge t]` and :math:`A = E[u_1; u_1 \ge t]` for a uniform u,

.. math:: s = \frac{(E - 1) A}{E q + 1 - q}, \qquad \text{answer } u/s, \qquad \text{error } s^{-2} - 1,

least at t = s. (Bhowmick, Duchi, Freudiger, Kapoor, Rogers 2018; best among unbiased mechanisms: Asi, Feldman, Talwar 2022.)

**Vectors of a box.** A lower bound on the error of unbiased private answers to vectors of a box, within a seventh of the mechanisms' error in many dimensions.

Let X be uniform on the corners :math:`\{\pm1\}^d`, M unbiased and ε-private, E = e^ε, and g(m) the mean of X given the answer m. Then
:math:`d = E\langle M, X\rangle = E\langle M, g(M)\rangle \le \sqrt{E\|M\|^2\, E\|g(M)\|^2}`, so that the mean error at the corners,
:math:`E\|M\|^2 - d`, is at least :math:`d^2/s^2 - d` where :math:`\|g\| \le s`. Given an answer the corners have a density w
in [b, Eb] about their own law, of mean 1. For a unit vector u and Z = ⟨u, X⟩

.. math:: E[wZ] - s = E[w (Z - s)] \le b\, E(Z - s) + (E - 1)\, b\, E(Z - s)_+ = b\, \big((E - 1)\, E(Z - s)_+ - s\big),

and :math:`\|g\| = \max_u E[wZ] \le s` for every s with :math:`(E - 1)\, E(Z - s)_+ \le s`. As Z is symmetric with variance 1,
:math:`E(Z - s)_+ = \tfrac12 E(|Z| - s)_+` is at most (1 − s)/2 for s ≤ ½, and always at most
:math:`\tfrac12 E|G|^p\, (p - 1)^{p - 1} / (p^p s^{p - 1})` for G normal and p ≥ 2 (Haagerup 1982; plain for p = 2); and as one sign after the other may be replaced by a normal variable,
its first three moments the same and its :math:`E(\cdot - t)_+^3` larger for all t (Eaton 1970), :math:`E(Z - s)_+ \le \tfrac4{27}\, E(G - t)_+^3/(s - t)^2` for t < s.
Any coordinate alone is one of [−1, 1]: no g_i exceeds tanh(ε/2).

The third moments close up to a third of the gap that powers alone leave (results/ablations, vectors). For ε ≤ log 3 the first gives s = tanh(ε/2): one coordinate, one bit and shared randomness (`SampledCoordinates`) are optimal but for the term −d.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from typing import NoReturn, cast

import numpy as np
import pandas as pd
from scipy import optimize, special

from mechdesign.checks import field, generator, instance, integer, magnitude, one_of
from mechdesign.errors import DesignError
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
from mechdesign.evidence.results import Accuracy, Result, audit_row
from mechdesign.evidence.serialize import serializable
from mechdesign.plotting import draw_curves
from mechdesign.problem.privacy import Description, PureDP
from mechdesign.problem.spine import Bound, Clock, Design, Law
from mechdesign.typing import Array, Figure, Numbers, Randomness
from mechdesign.vectors.ball import VectorMechanism, checked_dimension, power_of_e
from mechdesign.vectors.sampled import LARGEST_BITS as MOST_SIGNS
from mechdesign.vectors.sampled import SampledCoordinates, SampledSigns, coordinate_epsilon
from mechdesign.vectors.sphere import (
    LARGEST_BITS,
    LARGEST_FRAME,
    RandomDirections,
    SphereQuantizer,
    chi_mean,
)


def cap_mass(d: int, w: float, more: float = 0.0, more_below: float = 0.0) -> float:
    """Return P[u₁ ≥ 1 − 2w] for a uniform point of the unit sphere in d dimensions: (1 − u₁)/2 is beta-distributed."""
    return float(special.betainc((d - 1) / 2 + more, (d - 1) / 2 + more_below, w))


def cap_mean(d: int, w: float) -> float:
    """Return E[u₁; u₁ ≥ 1 − 2w]."""
    if w <= 0:
        return 0.0
    squared = math.log1p(-((1 - 2 * w) ** 2)) if w > 0.25 else math.log(4 * w) + math.log1p(-w)
    whole = chi_mean(d - 1) / math.sqrt(math.tau)
    return whole / (d - 1) * math.exp((d - 1) / 2 * squared)


def _shrinkage(d: int, gain: float, w: float) -> tuple[float, float]:
    """Return s and 1 − s at E − 1 = `gain`, each computed by itself, as either may be tiny."""
    total = gain * cap_mass(d, w) + 1
    return gain * cap_mean(d, w) / total, (gain * cap_mass(d, w, 1.0) + 1) / total


def cap_depth(d: int, gain: float) -> float:
    """Return (1 − t)/2 for the best t in d ≥ 2 dimensions, at which t = s."""

    def off(log_w: float) -> float:
        w = math.exp(log_w)
        return 2 * w - _shrinkage(d, gain, w)[1]

    return math.exp(float(optimize.brentq(off, -690.0, math.log(0.5), xtol=1e-15, rtol=1e-15)))


def cap_error(dimension: int, epsilon: float) -> float:
    """Return the least worst-case squared error of unbiased ε-private answers to unit vectors.

    Examples
    --------
    >>> round(cap_error(500, 4.0), 3)
    216.943
    """
    gain = math.expm1(epsilon)
    s, short = _shrinkage(dimension, gain, cap_depth(dimension, gain))
    return short * (1 + s) / s**2


@serializable("priv-unit")
class PrivUnit(VectorMechanism):
    """The cap: the unbiased private answer of least error, without a limit on bits.

    Its points are drawn in floating-point numbers, for simulation and as a reference for the others.

    Parameters
    ----------
    dimension : int
    privacy : PureDP
    inputs : {"ball", "sphere"}
    radius : float

    Examples
    --------
    >>> cap = PrivUnit(500, PureDP(4.0), inputs="sphere")
    >>> round(cap.error, 3)
    216.943
    >>> x = np.eye(500)[:1].repeat(4, axis=0)
    >>> cap.sample(x, rng=0).shape
    (4, 500)
    """

    dimension: int = field(check=checked_dimension)
    privacy: PureDP = field(PureDP)
    inputs: str = field(check=one_of, allowed=("ball", "sphere"), default="ball")
    radius: float = field(check=magnitude, default=1.0)

    @cached_property
    def _gain(self) -> float:
        return float(self.power - 1)

    @cached_property
    def _depth(self) -> float:
        return cap_depth(self.working, self._gain)

    @property
    def threshold(self) -> float:
        """t, the height of the cap."""
        return 1 - 2 * self._depth

    @cached_property
    def mass(self) -> float:
        """q, the cap's share of the sphere."""
        return cap_mass(self.working, self._depth)

    @property
    def factor(self) -> float:
        return 1 / _shrinkage(self.working, self._gain, self._depth)[0]

    @property
    def excess(self) -> float:
        s, short = _shrinkage(self.working, self._gain, self._depth)
        return short * (1 + s) / s**2

    @property
    def spread(self) -> float:
        d, gain = self.working, self._gain
        inside = cap_mass(d, self._depth, 1.0, 1.0)
        return (d - 1) / d * (gain * inside + 1) / (gain * self.mass + 1)

    def sample(self, x: Numbers, *, rng: Randomness = None, clip: bool = False) -> Array:
        """Draw an answer for every vector, for simulation: in floating-point numbers, which is not private.

        Parameters
        ----------
        x : array_like, shape (..., d)
        rng : seed or numpy Generator
        clip : bool
            Shorten vectors that are longer than `radius`.

        Returns
        -------
        ndarray of the shape of `x`
        """
        source, y = generator(rng), self.lifted(x, clip=clip)
        n, d = y.shape
        inside = source.random(n) * (self._gain * self.mass + 1) < float(self.power) * self.mass
        above = np.where(inside, self.mass * source.random(n), self.mass + (1 - self.mass) * source.random(n))
        half = np.minimum(above, 1 - above)
        height = np.sqrt(np.maximum(1 - special.betaincinv((d - 1) / 2, 0.5, 2 * half), 0.0))
        height = np.where(above <= 0.5, height, -height)[:, None]
        aside = source.standard_normal((n, d))
        aside -= (aside * y).sum(axis=1, keepdims=True) * y
        aside /= np.sqrt((aside**2).sum(axis=1, keepdims=True))
        return self._answered(height * y + np.sqrt(1 - height**2) * aside, np.shape(x))

    def release(self, x: Numbers, *, clip: bool = False) -> NoReturn:
        """Refuse: points of a cap drawn in floating-point numbers reveal their input."""
        raise DesignError(
            "PrivUnit draws points of a cap in floating-point numbers, which is not private: "
            "release with md.SphereQuantizer, whose codes are drawn in integers"
        )


_CANCELLED = 1e-14  # rounding error from cancellation in E(G − t)₊³, relative to its largest term


def cubic_excess(t: float) -> float:
    """Return E(G − t)₊³ of a standard normal variable, rounded up.

    Examples
    --------
    >>> round(cubic_excess(0.0) ** 2 * math.pi, 9)
    2.0
    """
    density, above = math.exp(-t * t / 2) / math.sqrt(2 * math.pi), float(special.ndtr(-t))
    return max((t * t + 2) * density - (t**3 + 3 * t) * above, 0.0) + _CANCELLED * (t * t + 2) * density


def corner_reach(epsilon: float) -> float:
    """Return s, an upper bound in every dimension d on how far an ε-private answer moves the mean of a uniform corner of {±1}^d.

    Examples
    --------
    >>> corner_reach(1.0) == math.tanh(0.5), round(corner_reach(4.0) ** 2, 3)
    (True, 2.705)
    """
    if epsilon <= math.log(3):
        return math.tanh(epsilon / 2)
    gain = math.expm1(epsilon)

    def least(t: float) -> float:
        roots = np.roots([1.0, -2 * t, t * t, -4 / 27 * gain * cubic_excess(t)])
        return float(roots[np.abs(roots.imag) <= 1e-9 * np.abs(roots)].real.max())

    ends = (-2.0, math.sqrt(2 * epsilon) + 1)
    found = optimize.minimize_scalar(least, bounds=ends, method="bounded", options={"xatol": 1e-9})
    p = np.linspace(2.0, 4.0, 101)
    moments = p / 2 * math.log(2) + special.gammaln((p + 1) / 2) - math.log(math.pi) / 2
    by_moments = np.exp((math.log(gain / 2) + moments + (p - 1) * np.log(p - 1) - p * np.log(p)) / p).min()
    return float(min(found.fun, by_moments) * (1 + 1e-12))


def box_error(dimension: int, epsilon: float) -> float:
    """Return a lower bound on the worst squared error of unbiased ε-private answers to vectors of [−1, 1]^d.

    Examples
    --------
    >>> round(box_error(1000, 1.0) / 1000**2, 3)        # one coordinate in one bit: 4.683
    4.682
    """
    each = min(corner_reach(epsilon) ** 2 / dimension, math.tanh(epsilon / 2) ** 2)
    return dimension * (1 / each - 1)


VectorLaw = SphereQuantizer | RandomDirections | SampledSigns | SampledCoordinates

_MANY = 10_000  # coordinates from which the fast rotation is tried too
_DRAWN = 1 << 22  # most numbers of directions per vector without a limit on bits: a fifth of a second
_ROUNDING = 1e-9  # relative slack for rounding of a lower bound
_EQUAL = 1e-12  # tolerance of stated against recomputed numbers
_INPUTS = {
    "ball": "of Euclidean length at most {}",
    "sphere": "of Euclidean length {}",
    "box": "whose coordinates are at most {} in size",
}


@serializable("vector-design")
class VectorQuantizer(Design):
    """The best of four mechanisms for a whole vector under one budget; the lower bound holds for every unbiased mechanism with any number of bits.

    Parameters
    ----------
    dimension : int
        d, at least 2.
    privacy : PureDP
        Requirement for the whole vector, between any two inputs (local model).
    bits : int, optional
        Most bits for the whole vector, not per coordinate, 1 to 16; by default as many as an encoder of a fifth of a second allows.
    inputs : {"ball", "sphere", "box"}
        ‖x‖₂ ≤ R, ‖x‖₂ = R, or every coordinate in [−R, R].
    radius : float
        R, the length or coordinate at which vectors are clipped.
    rotation : {"exact", "fast"}, optional
        Rotation of the simplices; see `SphereQuantizer`. By default exact, and from 10,000 coordinates on the one with the smaller proved error: a fast
        rotation handles more bits in less time, and its bias is included.

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
    radius: float = field(check=magnitude, default=1.0)
    rotation: str | None = field(check=one_of, allowed=(None, "exact", "fast"), default=None)
    mechanism_class = menu("rotated simplex, random directions, sampled signs or sampled coordinates")

    def _post_check(self) -> None:
        if self.inputs == "box":
            magnitude("radius", self.radius * math.sqrt(self.dimension))
        power_of_e(self.privacy.epsilon)

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
        """Rotations of the simplices to compare."""
        if self.rotation is not None:
            return (self.rotation,)
        return ("exact",) if self.dimension < _MANY else ("exact", "fast")

    @property
    def _sphere(self) -> tuple[str, float, int]:
        """For mechanisms on a sphere: the kind of inputs, their length, and the sphere's dimension."""
        sphere, reach = self.inputs == "sphere", self.radius
        if self.inputs == "box":
            reach = math.nextafter(self.radius * math.sqrt(self.dimension), math.inf)
        return ("sphere" if sphere else "ball"), reach, self.dimension + (not sphere)

    @property
    def directions(self) -> Iterator[RandomDirections]:
        """Mechanisms that send one message of 1, 2, … bits, then 2, 3, … messages that share the bits, as long as the error falls."""
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
        """Yield the candidates."""
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

    def bounded_class(self, stated: Certificate, given: None) -> MechanismClass:
        return every("unbiased mechanism with any number of bits")

    def law_claims(self, stated: Certificate, given: None) -> Iterator[Claim]:
        """Check that codes with probabilities E/t and 1/t, E ≤ e^ε rational, or k coordinates at ε/k each, are ε-private.

        Probabilities are checked in rational arithmetic. The error is a closed form, or for a fast rotation at most R²(r² + 1), in doubles.
        """
        kinds = SphereQuantizer, RandomDirections, SampledSigns, SampledCoordinates
        m = cast(VectorLaw, instance("law", stated.law, *kinds))
        if isinstance(m, SampledCoordinates):
            yield from _of_coordinates(m)
            yield agreement("the mechanism's limit of bits is the design's", PROVED, m.bits == self.bits)
        else:
            yield from _of_codes(m)
        spare = self.privacy.epsilon - m.privacy.epsilon
        yield Claim.of("the budget of the mechanism is within the one stated", PROVED, spare)
        covered = "every input that is stated is one of the mechanism's, and rotated as stated"
        yield Claim(covered, PROVED, math.nan, _covers(self, m))
        short = self.bits is None or m.vector_bits <= self.bits
        spare = math.nan if self.bits is None else float(self.bits - m.vector_bits)
        yield Claim("a vector takes no more bits than stated", PROVED, spare, short)
        room = stated.value * (1 + _EQUAL) - proved_error(m)
        yield Claim.of(f"the worst error is at most {stated.value:.9g}", RECOMPUTED, room)

    def least_cost(self, stated: Certificate, given: None) -> float:
        """Return the cap's error, for vectors of one length (Asi, Feldman, Talwar 2022), or for a box the bound of its corners (`box_error`) if larger."""
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
        """Tabulate the candidates, best first: mechanism, bits, count, error; recomputed."""
        return self._table.copy()

    frame = trials

    def audit(self, result: Result) -> pd.DataFrame:
        law, needed = result.mechanism, float(result.mechanism.vector_bits)
        privacy = audit_row("whole vector", law.privacy_loss(), self.privacy.epsilon)
        bits = audit_row("whole vector", needed, needed if self.bits is None else float(self.bits), "bits")
        return pd.concat([privacy, bits], ignore_index=True)

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
            picture="The worst expected squared error of what was tried, and the lower bound of every unbiased mechanism with any number of bits.",
        )

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the errors of the candidates over their bits, and the lower bound."""
        table = self._table.sort_values("bits")
        found = {name: (part["bits"], part["error"]) for name, part in table.groupby("mechanism", sort=False)}
        if bound := result.lower_bound:
            ends = table["bits"].iloc[[0, -1]]
            found["lower bound, any number of bits"] = ends, [bound, bound]
        axes = {"xlabel": "bits a vector", "ylabel": "worst expected squared error", "yscale": "log"}
        return draw_curves(found, options, "-", **axes)


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
    """Return the error of the worst input, or an upper bound on it."""
    return mechanism.proved_error if isinstance(mechanism, SphereQuantizer) else mechanism.error


# -- evidence ------------------------------------------------------------------------------------------------------


def least_error(dimension: int, epsilon: float, inputs: str, radius: float) -> float:
    """Return a lower bound on the worst error of unbiased private answers, minus rounding: the cap's for vectors of length at most R,
    which the box of half-width R contains; for the box the bound of its corners, if that is larger."""
    least = cap_error(dimension, epsilon)
    if inputs == "box":
        least = max(least, box_error(dimension, epsilon))
    return radius**2 * least * (1 - _ROUNDING)


def _covers(design: VectorQuantizer, m: VectorLaw) -> bool:
    """Whether the mechanism takes the design's inputs, with one of its rotations."""
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
        # The agreement of the signs with each answer.
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
    yield Claim.of(claim, PROVED, margin)
    unbiased = law is not None and all(
        sum((b * p for b, p in zip(law.bins, law.row(k, end))), start=Fraction(0)) == law.knots[k + end]
        for k in range(len(law.knots) - 1)
        for end in (0, 1)
    )
    yield Claim("every coordinate's answer is unbiased", PROVED, 0.0, unbiased)

r"""The best K-norm noise: one draw for all numbers that one person moves together, of the norm that costs least (`mechdesign.noise.knorm_noise`).

The norm whose noise costs least is chosen among those whose balls hold all changes: ℓ₁, ℓ₂, ℓ_∞, the hull of "at most c
numbers change, each by at most b_i" and that of "all rise or all fall". ℓ₁ noise is Laplace noise; in many dimensions
ℓ_∞ noise has a sixth of its variance. The exact δ of exponential ℓ₂ noise is known
(`mechdesign.noise.radial.round_delta`; the ℓ₂ mechanism, arXiv 2502.15929): where δ is small it costs less than
Gaussian noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from flint import arb

from mechdesign.checks import field, instance, integer, one_of, positive, refuse, settle
from mechdesign.errors import DesignError
from mechdesign.evidence import proofs
from mechdesign.evidence.exact import excess, least_kept, round_down, round_up
from mechdesign.evidence.proofs import Certificate, Claim
from mechdesign.evidence.results import Result, audit_row
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.balls import CappedCube, Hull, Vectors, hull_of, planes_around, short
from mechdesign.noise.knorm_noise import LEAST_LISTED, MOST_CAPPED, NORMS, KNormNoise, norm_order, spanning
from mechdesign.noise.laws import upper_quantile
from mechdesign.noise.radial import LEAST_KEPT, round_delta
from mechdesign.plotting import COLOURS, figure, plot_curves, sized
from mechdesign.problem.privacy import (
    ApproximateDP,
    Consumption,
    Description,
    PureDP,
    ZeroConcentratedDP,
    implied_by_pure,
    pure_epsilon,
)
from mechdesign.problem.sensitivity import (
    Protection,
    Sensitivity,
    neighbours_field,
    neighbours_of,
    sensitivity,
)
from mechdesign.problem.spine import Bound, Clock, Design, Law
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array, Figure

_MOST_ROUND = 2000
"""Largest dimension in which the δ of ℓ₂ noise is computed: beyond, it costs at most .4% less than Gaussian noise (ε = 1)."""
_MOST_COUNTED = 64.0, 0.5
"""Largest ε and δ at which the δ of ℓ₂ noise is computed: sums for larger ones need thousands of digits."""

_MOST_CORNERED = 7
"""Largest number of coordinates at which corners of bounds are listed: the hull of more has too many faces."""


# -- the design ---------------------------------------------------------------------------------------------------


def listed_or_bounds(name: str, value: object) -> float | Sensitivity | Vectors:
    """Read a list of changes, bounds, or one bound for every coordinate."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return tuple(map(tuple, spanning(name, value).tolist()))
    return sensitivity(name, value)


@serializable("knorm")
class KNorm(Design):
    r"""The best radial noise for a vector, over norms whose balls hold its changes; the lower bound is for these norms only.

    Under approximate and concentrated privacy the noise is x-DP, with the largest x that implies them. With δ > 0 and at most 2,000 numbers it may also be
    exponential ℓ₂ noise at its own δ, for ε of at most 64 and δ of at most ½; each of r rounds then gets ε/r and δ/r, which compose to the requirement.

    Parameters
    ----------
    dimension : int
        k.
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP
    sensitivity : float, Sensitivity or array_like of shape (m, k)
        A bound for every coordinate at once (add-remove neighbours), several bounds, or a list of changes, each with its negative. With a list the norm is
        that of the changes' hull, or ℓ₂ with a large δ; if the hull has too many faces, 1,024 planes around it are used and errors are simulated.
    norm : {None, 1, 2, inf}
        The norm of the noise. When not given, the best of these norms, of their parts within widths, a cap or one direction, and, of up to seven numbers
        that all rise or all fall, a few at a time, the hull. These bodies may be larger than the hull: a list of its vertices may then cost less.
    loss : {"squared", "absolute"}
        Loss of one coordinate, on average.
    rounds : int
        How often the query is answered; `privacy` is for all answers together.
    neighbours : {"add-remove", "replace"}
        For which neighbours the changes hold; a `Sensitivity` states it itself.

    Notes
    -----
    Under pure privacy, for one round, no additive noise does better where the cost is a growing function of the norm that bounds the changes (squared
    loss and ℓ₂, absolute loss and ℓ₁, one number and any norm): Melbourne, Diaz and Asoodeh, arXiv 2601.14597.

    Examples
    --------
    >>> box = KNorm(20, PureDP(1.0)).solve()
    >>> box.mechanism.norm, round(box.value, 6)                       # Laplace noise: 2 · 20² = 800
    (inf, 154.0)
    >>> few = KNorm(20, PureDP(1.0), Sensitivity(linf=1, l0=8)).solve()
    >>> few.mechanism.cap, round(few.value, 2)                        # Laplace noise: 128
    (8.0, 97.6)
    >>> box.mechanism.release([0.0] * 20).shape, box.mechanism.lattice.cost < 1e-5
    ((20,), True)
    >>> listed = KNorm(2, PureDP(1.0), [[1, 1], [1, 0], [0, 1]]).solve()   # one sum, and the number of people in it
    >>> listed.mechanism.vertices, round(listed.value, 6)
    (((0.0, 1.0), (1.0, 0.0), (1.0, 1.0)), 3.309024)
    """

    asks: ClassVar[str] = "numbers"

    dimension: int = field(check=integer, least=1, most=10**6)
    privacy: PureDP | ApproximateDP | ZeroConcentratedDP = field(PureDP, ApproximateDP, ZeroConcentratedDP)
    sensitivity: float | Sensitivity | Vectors = field(check=listed_or_bounds, default=1.0)
    norm: float | None = field(check=norm_order, default=None)
    loss: str = field(check=one_of, allowed=("squared", "absolute"), default="squared")
    rounds: int = field(check=integer, least=1, most=10**9, default=1)
    neighbours: str = neighbours_field()

    def _post_check(self) -> None:
        settle(self, neighbours=neighbours_of(self.sensitivity, self.neighbours))
        allowed = "is that of the hull where changes are listed: leave it out, or give bounds"
        refuse(isinstance(self.sensitivity, tuple) and self.norm is not None, "norm", self.norm, allowed)
        self.bounds.check(self.dimension)

    @property
    def bounds(self) -> Sensitivity:
        """The sensitivity as bounds that hold for all changes."""
        if isinstance(self.sensitivity, tuple):
            return Sensitivity.of_list(np.array(self.sensitivity))
        return Sensitivity.of(self.sensitivity)

    @property
    def mechanism_class(self) -> proofs.MechanismClass:
        """Every additive noise where the cost grows with the norm; else radial noise of the norms allowed."""
        s, grows = self.bounds, 2.0 if self.loss == "squared" else 1.0
        alone = (s.linf, s.each, s.l0, s.l1 if grows == 2 else s.l2) == (None, None, None, None)
        # rising or falling changes fill the l1 ball, but not the l2 ball
        alone = alone and (s.signed or grows == 1) and self.norm in (None, grows)
        grows_with_it = self.dimension == 1 or alone
        if grows_with_it and isinstance(self.privacy, PureDP) and self.rounds == 1:
            return proofs.every(proofs.REAL_NOISE)
        bodies = ["norm of the hull of the changes"]
        if not isinstance(self.sensitivity, tuple):
            laws = (KNormNoise(self.dimension, 1.0, math.inf, **shape) for _, shape in self._bodies)
            bodies = [law.summary() for law in laws]
        plain = " or ".join(f"{order:g}" for order in self.norms)
        noun = ", of the ".join([f"radial noise of norm {plain}", *bodies])
        if not self.counts_delta:
            return proofs.menu(noun)
        epsilon, delta = self._profile
        by_delta = (epsilon, delta) != (self.privacy.epsilon, self.privacy.delta)  # type: ignore[union-attr]
        each = " in each round" if self.rounds > 1 else ""
        limits = f" at epsilon = {epsilon:g} and delta = {delta:g}{each}" if by_delta else ""
        return proofs.menu(f"pure {noun}, or exponential noise of norm 2{limits}")

    @property
    def counts_delta(self) -> bool:
        """Whether ℓ₂ noise at its own δ is among the candidates."""
        return self._profile[1] > 0 and 2.0 in self.norms and 1 < self.dimension <= _MOST_ROUND

    @property
    def _profile(self) -> tuple[float, float]:
        """ε and δ of ℓ₂ noise in each round, which compose to at most the requirement; 0 and 0 under other privacy."""
        p = self.privacy
        if not isinstance(p, ApproximateDP):
            return 0.0, 0.0
        epsilon, delta = map(min, (p.epsilon, p.delta), _MOST_COUNTED)
        return round_down(Fraction(epsilon) / self.rounds), round_down(Fraction(delta) / self.rounds)

    def asked_by(self, question: object) -> bool:
        names = ("dimension", "loss", "rounds", "bounds", "integer", "sampling_rate")
        asked = [getattr(question, name, None) for name in names]
        own = [self.dimension, self.loss, self.rounds, self.bounds, False, 1]
        return not isinstance(self.sensitivity, tuple) and asked == own

    def protection(self) -> Protection:
        if isinstance(self.sensitivity, tuple):
            return Protection(self.dimension, np.array(self.sensitivity), self.rounds)
        return Protection(self.dimension, self.bounds, self.rounds, signed=self.bounds.signed)

    def consumption(self, result: Result) -> Consumption:
        law = result.mechanism
        once = Fraction(law.largest) / Fraction(law.scale)
        return super().consumption(result) & Consumption.pure((once, self.rounds))

    def largest(self, norm: float) -> float:
        """Return the largest norm of a change, rounded up."""
        s = self.bounds
        found = {1.0: s.largest_l1, 2.0: s.largest_l2, math.inf: s.largest_linf}
        return found[norm_order("norm", norm)](self.dimension)

    def noise(self, norm: float) -> KNormNoise:
        """Return the pure law of one norm at its least scale."""
        return self._law(norm, self.largest(norm))

    def _law(self, norm: float, largest: float, **shape: Any) -> KNormNoise:
        """Return the exponential or the staircase, whichever costs less and can be released, at its least scale."""
        exact = Fraction(largest) * self.rounds / Fraction(pure_epsilon(self.privacy))
        allowed = "over epsilon must be between 1e-150 and 1e150: doubles square it"
        refuse(not Fraction(1, 10**150) < exact < 10**150, "sensitivity", self.sensitivity, allowed)
        law = KNormNoise(self.dimension, round_up(exact), norm, largest, **shape)
        stairs = replace(law, gamma=law.shells(self._power).gamma)
        with suppress(DesignError):  # its first level may be narrower than a lattice step
            return stairs if stairs.lattice else law
        return law

    def laws(self, deadline: Deadline | None = None) -> list[KNormNoise]:
        """Return the law of least cost for each norm tried: the plain norms, and those of the bodies around the changes."""
        listed = isinstance(self.sensitivity, tuple)
        bodies = [self._of_list(Deadline.of(deadline))] if listed else self._bodies
        return self._plain + [self._law(math.inf, largest, **shape) for largest, shape in bodies]

    @property
    def _plain(self) -> list[KNormNoise]:
        """The laws of the plain norms; under δ exponential ℓ₂ noise too."""
        return [*map(self.noise, self.norms), *([self._round] if self.counts_delta else ())]

    @cached_property
    def _bodies(self) -> list[tuple[float, dict[str, Any]]]:
        """Parts of the cube that hold all changes within bounds, each with the largest norm of a change."""
        if self.norm is not None or self.dimension == 1:
            return []
        s, top, widths = self.bounds, self.largest(math.inf), self.bounds.widths(self.dimension)
        shape: dict[str, Any] = {}
        size, found = self.dimension, []
        if s.each is not None and np.ptp(widths) > 0:
            shape, top, size = {"widths": tuple(widths.tolist())}, 1.0, int(np.count_nonzero(widths))
            found.append((top, shape))
        if not s.signed and size > 1:
            found.append((top, {"signed": False, **shape}))
        cap = short(s.largest_share(self.dimension)) if size <= MOST_CAPPED else math.inf
        if 1 < cap < size and CappedCube(size, cap=cap).around[1] >= LEAST_KEPT:
            found.append((top, {"cap": cap, **shape}))
        if self._changes is not None and self._hull is not None:
            with suppress(DesignError):  # too thin to draw from
                found.append(self._of_list(Deadline()))
        return found

    @cached_property
    def _changes(self) -> Array | None:
        """The changes whose hull is a further ball to try: those listed, or a few corners of bounds if no plain norm has that ball."""
        if isinstance(self.sensitivity, tuple):
            return np.array(self.sensitivity)
        s, d = self.bounds, self.dimension
        widths = s.widths(d)
        count, size = s.count(d), int(np.count_nonzero(widths))
        other = np.ptp(widths) > 0 if count == 1 else not s.signed
        few = s.l1 is s.l2 is None and count < size <= _MOST_CORNERED
        return s.corners(d) if few and other else None

    @cached_property
    def _listed(self) -> tuple[Array, dict[str, Any]]:
        """The listed changes of the coordinates that move, over the widths; and the widths, 0 where nothing moves."""
        widths = self.bounds.widths(self.dimension)
        assert self._changes is not None
        return self._changes[:, widths > 0] / widths[widths > 0], {"widths": tuple(widths.tolist())}

    @cached_property
    def _hull(self) -> Hull | None:
        """The hull of a list, if its faces are few."""
        n, d = self._listed[0].shape
        with suppress(DesignError):
            hull = hull_of(self._listed[0])
            terms = len(hull.simplices) * d * (n + (d if self.loss == "squared" else 4 * d) * d)
            return hull if terms <= 5_000_000 else None  # the stand-alone verifier takes 5 s for so many
        return None

    def _of_list(self, deadline: Deadline) -> tuple[float, dict[str, Any]]:
        """Return the hull of a list, or planes around it, and the largest norm of a change."""
        (units, shape), hull, least = self._listed, self._hull, LEAST_KEPT
        if hull is not None:
            shape = {**shape, "vertices": hull.vertices, "simplices": hull.simplices}
        else:
            shape, least = {**shape, "planes": planes_around(units, deadline)}, LEAST_LISTED
        law = KNormNoise(self.dimension, 1.0, math.inf, **shape)
        try:
            kept = law.body.around[1]
        except np.linalg.LinAlgError:  # flat, in doubles
            kept = 0.0
        allowed = f"has a hull that fills {kept:.1g} of the box around it, too thin to draw from: add small changes across it (a hundredth of the others costs little), or give bounds"
        refuse(kept < least, "sensitivity", units.shape, allowed)
        assert self._changes is not None
        return round_up(max(law.most(self._changes), Fraction(1))), shape

    def delta(self, scale: float) -> arb:
        """Enclose the δ of exponential ℓ₂ noise."""
        change = Fraction(self.largest(2.0)) / Fraction(positive("scale", scale))
        return round_delta(self.dimension, change, self._profile[0])

    @cached_property
    def _round(self) -> KNormNoise:
        """Exponential ℓ₂ noise at the least scale that keeps δ."""
        (epsilon, delta), largest = self._profile, self.largest(2.0)

        def over(log: float) -> float:
            return excess(float(self.delta(math.exp(log))) * (1 + 1e-14), delta)

        pure = math.log(largest / epsilon) + 1e-12  # where no loss is above ε
        return KNormNoise(self.dimension, math.exp(least_kept(over, pure, growth=1.0)), 2.0, largest)

    def counted(self, law: KNormNoise) -> bool:
        """Return whether a law is private by its own δ, not by its largest loss."""
        loss = Fraction(law.largest or 0) * self.rounds / Fraction(law.scale)
        plain = (law.norm, law.gamma, law.widths) == (2.0, None, None)
        return self.counts_delta and plain and not implied_by_pure(self.privacy, loss)

    @property
    def _power(self) -> int:
        return 2 if self.loss == "squared" else 1

    def cost(self, noise: KNormNoise) -> float:
        """Return the loss of one coordinate."""
        instance("noise", noise, KNormNoise)
        return noise.variance if self.loss == "squared" else noise.absolute_error

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        """Compare the norms, each by closed forms and one search for its best staircase."""
        laws = self.laws(clock)
        noise = min(laws, key=self.cost)
        notes = [f"the noise falls with the {noise.summary()}"]
        if self._profile[1] > 0 and self.dimension > _MOST_ROUND:
            notes.append(f"no δ is counted beyond {_MOST_ROUND} numbers: Gaussian noise may cost less")
        yield Law(noise, self.cost(noise), (proofs.LawProof(),), notes=tuple(notes))
        if not any(law.planes for law in laws):  # of which no moments are known
            yield Bound(min(map(self.least, laws)), proofs.ClosedBound())

    bound_how = proofs.RECOMPUTED

    def law_claims(self, stated: Certificate, given: None) -> Iterator[Claim]:
        r"""Claim that radial noise of scale s is :math:`\lVert v\rVert / s`-private for a change v (Hardt and Talwar 2010, §4), a staircase for changes up to the largest norm.

        Privacy is checked in rational numbers, δ in ball arithmetic, the cost in doubles; the largest norms are the design's.
        """
        law = instance("law", stated.law, KNormNoise)
        known = self._plain if law.norm < math.inf else () if law.planes else self.laws()
        fits = law.shape in [other.shape for other in known] or (law.planes is not None and self._around(law))
        loss = Fraction(law.largest or 0) * self.rounds / Fraction(law.scale)
        if fits and self.counted(law):
            (epsilon, most), delta = self._profile, self.delta(law.scale)
            each = f", in each of {self.rounds} rounds," if self.rounds > 1 else ""
            claim = f"delta of {float(delta):.9g} at epsilon = {epsilon:g}{each} is within {self.privacy}"
            yield Claim(claim, proofs.PROVED, float(most - delta), bool(delta <= most))
        else:
            left = Fraction(pure_epsilon(self.privacy)) - loss
            claim = f"losses of at most {float(loss):.9g} in all are within {self.privacy}"
            yield Claim(claim, proofs.PROVED, float(left), fits and implied_by_pure(self.privacy, loss))
        claim, how = f"{self.loss} error at most {stated.value:.9g}", proofs.RECOMPUTED
        if law.planes:
            claim, how = f"{claim}, simulated with three standard errors", proofs.CLAIMED
        yield Claim.of(claim, how, stated.value * (1 + 1e-12) - self.cost(law))

    def _around(self, law: KNormNoise) -> bool:
        """Return whether the planes hold every listed change, at the law's largest norm."""
        if not isinstance(self.sensitivity, tuple) or law.dimension != self.dimension or law.largest is None:
            return False
        changes = np.array(self.sensitivity)
        still = np.delete(changes, law.moving, axis=1)
        return not still.any() and max(law.most(changes), Fraction(1)) <= Fraction(law.largest)

    def least_cost(self, stated: Certificate, given: None) -> float:
        """Return a lower bound on the cost of all noise of the norms allowed.

        No staircase costs less, by second-order expansions over all γ, nor other noise whose density falls with the norm (Melbourne, Diaz and Asoodeh).
        """
        return min(map(self.least, self.laws()))

    def least(self, law: KNormNoise) -> float:
        """Return a lower bound on the cost of any staircase of the law's norm and scale; if its δ counts, of the exponential at any scale."""
        if self.counted(law):
            found = self.cost(law) * (1 - 1e-11)
            narrow = law.scale * (found / self.cost(law)) ** (1 / self._power)
            return found if self.delta(narrow) > self._profile[1] else 0.0
        assert law.largest is not None
        unit = (
            law.factor(self._power) * law.largest**self._power
        )  # the cost at E R^p = 1 for changes of norm 1
        return law.shells(self._power).bound * unit / law.body.slack

    @property
    def norms(self) -> tuple[float, ...]:
        """The plain norms allowed."""
        return NORMS if self.norm is None else (self.norm,)

    def describe(self, result: Result) -> Description:
        return Description(
            title=f"Noise drawn together for {self.dimension} numbers",
            what=f"{self.protection()} Noise on all numbers is drawn at once.",
            loss=f"{'variance' if self.loss == 'squared' else 'mean absolute error'} of one number, on average",
            picture="Left: the noise on two of the numbers, drawn a few thousand times. Right: how often a number is off by more than t.",
        )

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the noise on two numbers, and its tail next to those of the plain norms."""
        law = result.mechanism
        tails = {"this noise": law} | {f"ℓ{order:g} noise": self.noise(order) for order in self.norms}
        points = law.sample(np.zeros((3000, law.dimension)), rng=0)[:, law.moving]
        fig, (cloud, below) = figure(1, 2, **sized(options, 6.0, 3.2))
        cloud.plot(points[:, 0], points[:, -1], ".", color=COLOURS[0], markersize=1.5, alpha=0.5)
        cloud.set(xlabel="noise on one number", ylabel="noise on another", aspect="equal")
        t = np.linspace(0, max(upper_quantile(law, 5e-5) for law in tails.values()), 81)
        curves = {name: (t, 2 * np.asarray(law.sf(t), dtype=float)) for name, law in tails.items()}
        plot_curves(below, curves, xlabel="t", ylabel="P[ |noise| > t ]", yscale="log", ylim=(1e-4, 1.3))
        return fig

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Yield noise of the plain norms."""
        for order in NORMS:
            yield f"ℓ{order:g} noise", self.cost(self.noise(order))
        if self.counts_delta:
            yield "ℓ2 noise by its δ", self.cost(self._round)

    def audit(self, result: Result) -> pd.DataFrame:
        law, most = result.mechanism, pure_epsilon(self.privacy)
        spent, index = law.largest * self.rounds / law.scale, "ε"
        if self.counted(law):
            (epsilon, most), spent = self._profile, float(self.delta(law.scale))
            index = f"δ at ε = {epsilon:g}"
        return audit_row(index, spent, most)

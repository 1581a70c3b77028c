r"""The deployable additive-noise mechanism: a law, what it protects, its worst change, and its exact privacy.

**Worst change** under a sensitivity stated by several bounds. `Sensitivity` knows the geometry; which vector a law
loses most at depends on the law:

- Gaussian noise: any vector of the largest ℓ₂ norm, on one coordinate. Exact.
- A symmetric log-concave law: the envelope of the set, or shifts packed on fewer coordinates. Each gives an upper
  bound, and so does the best of them. The bound is exact where that vector is in the set, and always under pure
  privacy: the largest loss is linear in a shift, so that all of ℓ₁ may be put on one coordinate.
- Integer noise on whole answers: the same, shifts rounded down to whole ones.
- A staircase: the largest change on every coordinate that changes, as no shift loses more than the staircase's own
  step.

**Zero-concentrated privacy** of any law with a proved tail. K coordinates are (ξ, ρ)-zCDP when
:math:`K D_\alpha \le \xi + \rho\alpha` for all α > 1, so the least ρ at this ξ is
:math:`\sup_\alpha (K D_\alpha - \xi)/\alpha`. With θ = α − 1 and L the privacy loss at distance Δ,
:math:`D_\alpha = \theta^{-1}\log E e^{\theta L}`, a sum for finitely many losses and an integral otherwise. Orders up
to a finite one are evaluated; beyond it a bound in closed form takes over:

- a loss of at most ℓ gives :math:`D_\alpha \le \ell`;
- Gaussian noise, and noise with an offset in front of Gaussian tails (flipped Huber, OSGT), is sub-Gaussian and its
  loss below an affine function: :math:`D_\alpha \le \alpha r^2/2 + c`, r = Δ over the scale, c the offset's cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from scipy import optimize, special

from mechdesign.accounting.interval import DeltaInterval, delta_interval, epsilon_bound, upper_delta
from mechdesign.accounting.losses import AtomicLoss, CentredLoss, NoiseTerm, loss_of
from mechdesign.accounting.profile import largest_loss, privacy_profile, profile_epsilon
from mechdesign.checks import (
    UP,
    Checked,
    answers,
    each,
    field,
    frozen_parts,
    integer,
    positive,
    refuse,
    share,
)
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.digits import at_least, at_most, fields_shown, folded
from mechdesign.evidence.exact import round_up
from mechdesign.evidence.results import Accuracy
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.laws import half_width
from mechdesign.noise.release import AddedNoise, Lattice, lattice_of, noisy
from mechdesign.problem import law_moments
from mechdesign.problem.privacy import Consumption, stated
from mechdesign.problem.sensitivity import Sensitivity, Shifts, sensitivity
from mechdesign.typing import Array, FrozenLaw, Numbers, Values

Terms = tuple[NoiseTerm, ...]


@serializable("additive-noise", repr=False)
class AdditiveNoise(Checked, AddedNoise):
    r"""Independent noise of one law on every coordinate of a query.

    :math:`M(D) = f(D) + T`, the K coordinates of T independent with the given law, each coordinate of f changing
    by at most Δ between neighbours.

    Parameters
    ----------
    law : frozen scipy.stats distribution
        Symmetric about zero; log-concave, or with finitely many loss values (staircase, discrete).
    sensitivity : float or Sensitivity
        Δ > 0 per coordinate, all of which may change at once (add-remove neighbours); or several bounds together (`mechdesign.Sensitivity`).
    dimension : int
        K ≥ 1.
    rounds : int
        How often the query is answered: privacy is stated for all answers together.
    sampling_rate : float
        Probability with which each round sees a record (a Poisson sample).

    Raises
    ------
    DesignError
        Bad sensitivity or dimension, or a law without finite variance.

    Examples
    --------
    >>> from scipy import stats
    >>> noise = AdditiveNoise(stats.laplace(scale=2.0), 1.0)
    >>> noise.variance, round(noise.privacy_profile(0.25), 6), noise.epsilon(0.0)
    (8.0, 0.117503, 0.5...)
    """

    law: FrozenLaw
    sensitivity: float | Sensitivity = field(check=sensitivity)
    dimension: int = field(check=integer, least=1, default=1)
    rounds: int = field(check=integer, least=1, default=1)
    sampling_rate: float = field(check=share, side=UP, default=1.0)

    def _post_check(self) -> None:
        if isinstance(self.sensitivity, Sensitivity):
            self.sensitivity.check(self.dimension)
        frozen_parts(self.law)  # refuses anything else
        if not (math.isfinite(self.variance) and self.variance > 0):
            raise DesignError.of("law", self.law.dist.name, law_moments.FINITE)
        if self.neighbours == "replace" and self.sampling_rate < 1:
            _ = self.worst_cases  # refuses what is not accounted for

    @property
    def neighbours(self) -> str:
        """The neighbouring relation."""
        return self.sensitivity.neighbours if isinstance(self.sensitivity, Sensitivity) else "add-remove"

    @property
    def continuous(self) -> bool:
        """Whether the law has a density (else it lives on the integers)."""
        return hasattr(self.law.dist, "_logpdf")

    @cached_property
    def variance(self) -> float:
        """Variance of one coordinate."""
        return law_moments.law_variance(self.law)

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of one coordinate."""
        return math.sqrt(self.variance)

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation divided by the ℓ₂ norm of one record's contribution: the noise multiplier of libraries for private training."""
        changes = Sensitivity.of(self.sensitivity)
        return self.standard_deviation / (changes.own or changes.largest_l2(self.dimension))

    def times(self, factor: float) -> AdditiveNoise:
        """Return the same noise with its scale multiplied."""
        dist, shapes, _, scale = frozen_parts(self.law)
        return replace(self, law=dist(*shapes, scale=scale * positive("factor", factor)))

    def errors(self) -> Accuracy:
        """Return the errors of one coordinate."""
        return Accuracy(self.standard_deviation, self.absolute_error, half_width(self.law))

    @property
    def mse(self) -> float:
        """Return the mean squared error of the whole answer, K times the variance."""
        return self.dimension * self.variance

    @property
    def absolute_error(self) -> float:
        """Return E|T| of one coordinate: in closed form, or by integration."""
        _, shapes, _, scale = frozen_parts(self.law)
        if hasattr(self.law.dist, "mean_absolute"):
            return float(scale * self.law.dist.mean_absolute(*shapes))
        if not self.continuous:
            known = self.law.dist.name == "dlaplace"
            return float(
                2 * math.exp(-shapes[0]) / -math.expm1(-2 * shapes[0]) if known else self.law.expect(abs)
            )
        if law_moments.of_scipy(self.law.dist) == "gennorm":
            return scale * math.exp(special.gammaln(2 / shapes[0]) - special.gammaln(1 / shapes[0]))
        return law_moments.symmetric_mean(self.law, np.abs)

    @property
    def parameters(self) -> dict[str, float]:
        """Shape and scale parameters by name."""
        dist = self.law.dist
        _, shapes, _, scale = frozen_parts(self.law)
        out = dict(zip((n.strip() for n in (dist.shapes or "").split(",")), shapes))
        if self.continuous:
            out["scale"] = scale
        if dist.name == "flipped_huber":
            out["alpha"], out["gamma"] = out["b"] * scale, scale
        return out

    def _noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return np.asarray(self.law.rvs(size=shape, random_state=rng))

    @cached_property
    def lattice(self) -> Lattice:
        """The lattice of `release` and the law widened for it."""
        if isinstance(self.sensitivity, Sensitivity):
            return lattice_of(self.law, self.sensitivity.finest(self.dimension), several=True)
        return lattice_of(self.law, self.sensitivity)

    def _answers(self, x: Numbers) -> Array:
        return answers("x", x, self.dimension if self.dimension > 1 else None)

    def release(self, x: Numbers) -> Values:
        """Return answers with noise, as multiples of the lattice step: for deployment.

        The noise is drawn exactly, from the operating system's randomness; `mechdesign.noise.release` says why the guarantee
        holds for what leaves the machine.

        Parameters
        ----------
        x : float or array, shape (..., K)
            Answers of the query, of this sensitivity in each coordinate. Noise calibrated for K = 1 releases an array of
            any shape as numbers of which one person changes *one*: where one person may change several of them, calibrate
            with their number as `dimension`.

        Raises
        ------
        DesignError
            The law has no exact release; the message names laws that have one.
        DataError
            A number is not finite, beyond 2⁵³ held by no double, or under discrete noise not whole. The
            guarantee does not cover that refusal.
        """
        held = self._answers(x)
        if self.lattice.exact.discrete and np.any(np.floor(held) != held):
            raise DataError("x: must be whole numbers for discrete noise")
        return noisy(held, self.lattice.step, self.lattice.exact.draw(held.size).reshape(held.shape))[()]

    # Privacy.

    @cached_property
    def worst_cases(self) -> WorstCases:
        """The worst changes for this law in one round, among those that the sensitivity allows."""
        return worst_cases(self.law, self.sensitivity, self.dimension, self.sampling_rate)

    @property
    def once(self) -> bool:
        """Whether there is one round and every record takes part in it."""
        return self.rounds == 1 and self.sampling_rate == 1

    @property
    def in_rounds(self) -> dict[str, Any]:
        """Rounds, sampling rate and neighbours, as keywords of accounting."""
        return {
            "rounds": self.rounds,
            "sampling_rate": self.sampling_rate,
            "neighbours": self.neighbours,
        }

    def noise_terms(self) -> tuple[NoiseTerm, ...]:
        """Return the terms that accounting composes, for all rounds: the worst change, or a vector that dominates all changes.

        Raises
        ------
        DesignError
            The rounds are sampled, which terms cannot express; `delta_interval` and `epsilon` account for it.
        """
        remedy = "is no part of a term: use epsilon or delta_interval"
        refuse(self.sampling_rate < 1, "sampling_rate", self.sampling_rate, remedy)
        return tuple(replace(t, count=t.count * self.rounds) for t in self.worst_cases.alternatives[0])

    def privacy_profile(self, epsilon: Numbers) -> Values:
        """Return δ(ε) of all rounds, rounded up.

        Parameters
        ----------
        epsilon : float or ndarray
            ε ≥ 0.
        """
        if self.once and (shift := self.worst_cases.single) is not None:
            return privacy_profile(self.law, shift, epsilon)
        cases = self.worst_cases.alternatives
        return each(
            "epsilon", epsilon, lambda e: min(upper_delta(c, e, width=0.01, **self.in_rounds) for c in cases)
        )

    def delta_interval(self, epsilon: float, **options: Any) -> DeltaInterval:
        """Enclose δ(ε) of all rounds, and say whether the enclosure is proved; options as in `mechdesign.accounting.delta_interval`."""
        return self.worst_cases.delta_interval(epsilon, **{**self.in_rounds, **options})

    def epsilon(self, delta: float, **options: Any) -> float:
        """Return the least ε certified at `delta` for all rounds, rounded up; ``inf`` if there is none."""
        cases = self.worst_cases
        if cases.single is not None and self.once and not options:
            return profile_epsilon(self.law, cases.single, delta)
        options = {**self.in_rounds, **options}
        if delta == 0:
            return amplified(cases.largest_loss(), **options)
        return min(epsilon_bound(terms, delta, **options) for terms in cases.alternatives)

    def consumption(self) -> Consumption:
        """Return the budget of all rounds: μ of Gaussian noise, ρ of discrete Gaussian noise, else the largest losses where they are finite."""
        if self.sampling_rate < 1:
            return Consumption()
        normal, cases = law_moments.is_gaussian(self.law), self.worst_cases
        if normal or self.law.dist.name == "discrete_gaussian":
            rho = worst_rho(self.law, self.sensitivity, self.dimension) * self.rounds * (1 + 2e-15)
            return Consumption.gaussian(2 * rho) if normal else Consumption(rho=rho)
        found = (
            Consumption.pure(
                *((profile_epsilon(t.law, t.sensitivity, 0.0), t.count * self.rounds) for t in terms)
            )
            for terms in cases.alternatives
        )
        return min(found, key=lambda one: one.rho)

    def pld(self) -> Any:
        """Return dp-accounting's `PrivacyLossDistribution` of all rounds, to compose with any other mechanism."""
        from mechdesign.accounting.pld import terms_to_pld  # brings dp-accounting

        return terms_to_pld(self.noise_terms())

    # As text and file.

    def summary(self) -> str:
        """Describe the law, its parameters, the changes and the variance."""
        several = isinstance(self.sensitivity, Sensitivity)
        asked = (
            str(self.sensitivity)
            if several
            else f"sensitivity {self.sensitivity:g} each (add-remove neighbours)"
        )
        return (
            f"{law_name(self.law)} noise ({stated_parameters(self)}) on {self.dimension} coordinate(s), {asked}, "
            f"variance {self.variance:.6g} per coordinate"
        )

    def __repr__(self) -> str:
        return fields_shown(self)

    def __str__(self) -> str:
        unit, often = f"{self.neighbours} neighbours", (self.rounds, self.sampling_rate)
        delta = (
            0.0 if math.isfinite(self.worst_cases.largest_loss()) else 1e-6
        )  # ε of unbounded loss needs a δ
        asked = f"ε = {at_most(self.epsilon(delta, width=0.1))}, δ = {delta:g}"
        return folded(f"{stated(asked, unit, self.standard_deviation, *often)}\n  {self.summary()}")


# -- worst changes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorstCases:
    """Worst changes for a law, and vectors that dominate all allowed changes.

    Attributes
    ----------
    law : frozen scipy.stats distribution
    alternatives : tuple of tuple of NoiseTerm
        Each loses at least as much as every change that the sensitivity allows; the first is the tightest known.
    exact : bool
        Whether the first is itself such a change.
    attained : tuple of tuple of NoiseTerm
        Changes the sensitivity allows: δ is at least theirs.
    """

    law: FrozenLaw
    alternatives: tuple[Terms, ...]
    exact: bool
    attained: tuple[Terms, ...] = ()

    @property
    def single(self) -> float | None:
        """The shift of the only coordinate that changes; None if several may."""
        first = self.alternatives[0]
        lone = len(self.alternatives) == 1 and len(first) == 1 and first[0].count == 1
        return first[0].sensitivity if lone else None

    def delta_interval(self, epsilon: float, **options: Any) -> DeltaInterval:
        """Enclose δ(ε) of the worst change."""
        found = [delta_interval(terms, epsilon, **options) for terms in self.alternatives]
        upper = min(found, key=lambda interval: interval.upper)
        if self.exact and len(found) == 1:
            return upper
        below = [delta_interval(terms, epsilon, **options).lower for terms in self.attained]
        return DeltaInterval(min(max([*below, 0.0]), upper.upper), upper.upper, upper.how)

    @property
    def loss_is_closed(self) -> bool:
        """Whether the largest loss has a closed form."""
        return all(largest_loss(self.law, t.sensitivity) is not None for t in self.alternatives[0])

    def largest_loss(self) -> float:
        """Return the largest privacy loss, rounded up; inf if it is unbounded."""
        return min(_summed(self.law, terms) for terms in self.alternatives)


def _summed(law: FrozenLaw, terms: Terms) -> float:
    losses = [(t.count, profile_epsilon(law, t.sensitivity, 0.0)) for t in terms]
    if any(math.isinf(loss) for _, loss in losses):
        return math.inf
    return round_up(sum(count * Fraction(loss) for count, loss in losses))


def worst_cases(
    law: FrozenLaw, sensitivity: float | Sensitivity, dimension: int, sampling_rate: float = 1.0
) -> WorstCases:
    """Return the worst changes of the answer for independent noise of `law` on every coordinate.

    Where sampled records are replaced, the term also states how far one record moves the answers by itself (`Sensitivity.own`).

    Raises
    ------
    DesignError
        The bounds are for another number of coordinates; integer noise for changes that are not whole; sampled records are replaced and the noise is not
        Gaussian, or `own` is not given.

    Examples
    --------
    >>> from scipy import stats
    >>> cases = worst_cases(stats.norm(), Sensitivity(linf=1, l0=4), 20)
    >>> round(cases.single, 12), cases.exact
    (2.0, True)
    """
    if not isinstance(sensitivity, Sensitivity):
        return WorstCases(law, ((NoiseTerm(law, sensitivity, dimension),),), exact=True)
    s, discrete = sensitivity, not hasattr(law.dist, "_logpdf")
    if sampling_rate < 1 and s.neighbours == "replace":
        remedy = 'needs noise="gaussian" and Sensitivity(own=...), what one record contributes, where neighbours are replaced'
        refuse(s.own is None or not law_moments.is_gaussian(law), "sampling_rate", sampling_rate, remedy)
        return WorstCases(law, ((NoiseTerm(law, s.largest_l2(dimension), own=s.own),),), exact=True)

    def terms(vector: Shifts) -> Terms:
        least = 1e-100 * max(size for size, _ in vector)  # half a subnormal shift may round to 0: rounded up
        return tuple(NoiseTerm(law, max(size, least), count) for size, count in vector)

    seen = 1e-9 * s.largest_linf(dimension)  # smaller changes do not affect the worst
    attained = () if discrete else tuple(terms(v) for v in s.attained(dimension) if v[0][0] > seen)
    if law_moments.is_gaussian(law):
        return WorstCases(law, (terms(((s.largest_l2(dimension), 1),)),), True, attained)
    if discrete:
        vectors, exact = s.whole_changes(dimension)
        found = tuple(map(terms, vectors))
        return WorstCases(law, found, exact, found if exact else ())
    top, count = s.largest_linf(dimension), s.count(dimension)
    if isinstance(loss_of(law, top), AtomicLoss):
        box = ((top, count),)
        return WorstCases(law, (terms(box),), s.bounds(dimension) == box == s.envelope(dimension)[0], ())
    above = [s.envelope(dimension), *s.packed(dimension)]
    if len(above) == 3 and s.l2 is None and s.each is None and not above[0][1]:
        above = above[1:]  # packed, the same vector is shorter
    best = next((vector for vector, exact in above if exact), None)
    if best is not None:
        return WorstCases(law, (terms(best),), True, attained)
    return WorstCases(law, tuple(terms(vector) for vector, _ in above), False, attained)


def amplified(loss: float, *, rounds: int = 1, sampling_rate: float = 1.0, **options: Any) -> float:
    r"""Return the largest privacy loss of sampled rounds, :math:`r\log(1 + q(e^{\varepsilon} - 1))`, rounded up.

    Examples
    --------
    >>> amplified(1.0, rounds=3), round(amplified(1.0, sampling_rate=0.01), 6)
    (3.0, 0.017037)
    """
    if math.isinf(loss):
        return loss
    if sampling_rate == 1.0 or loss > 700:
        return round_up(rounds * Fraction(loss))
    return rounds * math.log1p(sampling_rate * math.expm1(loss)) * (1 + 1e-15)


def concentrated_rho(law: FrozenLaw, sensitivity: float, dimension: int = 1, xi: float = 0.0) -> float:
    """Return the least ρ, rounded up, with which `dimension` coordinates of `law` are (ξ, ρ)-zCDP; inf if none.

    Raises
    ------
    DesignError
        The law's tail has no bound here (generalised normal noise, say).

    Examples
    --------
    >>> from scipy import stats
    >>> round(concentrated_rho(stats.norm(scale=2.0), 1.0, 4), 6)
    0.5
    >>> round(concentrated_rho(stats.laplace(), 1.0), 6)   # the KL divergence, 1 - 1 + 1/e
    0.367879
    """
    return _joint_rho((NoiseTerm(law, sensitivity, dimension),), xi)


def _joint_rho(terms: Terms, xi: float) -> float:
    """Return the least ρ for coordinates that change by these terms."""
    losses = [loss_of(t.law, t.sensitivity) for t in terms]
    if any(
        loss.infinity > 0 if isinstance(loss, AtomicLoss) else math.isfinite(loss.edge) for loss in losses
    ):
        return math.inf
    tails = [_tail(t.law, t.sensitivity) for t in terms]
    slope, offset = (sum(t.count * tail[k] for t, tail in zip(terms, tails)) for k in (0, 1))
    if offset == 0:
        return slope * (1 + 4e-16)
    last = 1e6 if slope == 0 else max(10.0, 30 / math.sqrt(2 * max(tails)[0]))
    parts = [(t.count, *_losses(loss, s, last)) for t, loss, (s, _) in zip(terms, losses, tails)]

    def rho(log_theta: float) -> float:
        theta = math.exp(log_theta)
        return (sum(n * _log_sum(theta * values + log) for n, values, log in parts) / theta - xi) / (
            1 + theta
        )

    grid = np.linspace(math.log(1e-3), math.log(last), 60)
    at = np.array([rho(x) for x in grid])
    i = int(np.argmax(at))
    low, high = grid[max(i - 1, 0)], grid[min(i + 1, grid.size - 1)]
    found = optimize.minimize_scalar(lambda x: -rho(x), bounds=(low, high), method="bounded")
    first = sum(n * float(np.sum(np.exp(log) * values)) for n, values, log in parts) - xi  # order 1
    beyond = slope + max(offset - xi, 0.0) / (1 + last)
    # above the error of the integrals and of the largest order found
    return max(0.0, float(at[i]), -float(found.fun), first, beyond) * (1 + 1e-9)


def _log_sum(logs: Array) -> float:
    """Return log Σ e^x."""
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))


def worst_rho(law: FrozenLaw, sensitivity: float | Sensitivity, dimension: int = 1, xi: float = 0.0) -> float:
    """Return ρ as `concentrated_rho` does, for all changes that the sensitivity allows.

    Gaussian noise, discrete or not, consumes ρ by the ℓ₂ norm. For other discrete noise the change that is worst for every δ(ε) is worst at every
    order. Any other log-concave law consumes at most the lesser of two bounds: with the largest change on every coordinate that changes, or with the
    whole ℓ₁ norm on one coordinate.

    Examples
    --------
    >>> from scipy import stats
    >>> round(worst_rho(stats.norm(scale=2.0), Sensitivity(linf=1, l0=4), 20), 6)
    0.5
    """
    if not isinstance(sensitivity, Sensitivity):
        return concentrated_rho(law, sensitivity, dimension, xi)
    if law_moments.is_gaussian(law) or law.dist.name == "discrete_gaussian":
        slope, _ = _tail(law, sensitivity.largest_l2(dimension))
        return slope * (1 + 4e-15)
    if not hasattr(law.dist, "_logpdf"):
        return min(_joint_rho(terms, xi) for terms in worst_cases(law, sensitivity, dimension).alternatives)
    box = concentrated_rho(law, sensitivity.largest_linf(dimension), sensitivity.count(dimension), xi)
    if law.dist.name in law_moments.STAIRCASES:
        return box
    return min(box, concentrated_rho(law, sensitivity.largest_l1(dimension), 1, xi))


def _tail(law: FrozenLaw, sensitivity: float) -> tuple[float, float]:
    """Return (s, c) with D_α ≤ sα + c for every order."""
    name = law.dist.name
    shapes, _, *scale = law.dist._parse_args(*law.args, **law.kwds)
    r = sensitivity / float(scale[0]) if scale else math.nan
    if name == "norm":
        return r * r / 2, 0.0
    if name == "discrete_gaussian":
        return (sensitivity / float(shapes[0])) ** 2 / 2, 0.0
    if name == "flipped_huber":
        b = float(shapes[0])
        return r * r / 2, (b * b - max(b - r, 0.0) ** 2) / 2
    if name == "osgt":
        return r * r / 2, r * float(shapes[0])
    largest = profile_epsilon(law, sensitivity, 0.0)
    allowed = "has no proved zCDP: its loss is unbounded; use osgt, flipped_huber, laplace or logistic"
    refuse(not math.isfinite(largest), "noise", name, allowed)
    return 0.0, largest


def _losses(loss: CentredLoss | AtomicLoss, slope: float, last: float) -> tuple[Array, Array]:
    """Return values of the loss and the logarithms of their masses: exact, or quadrature nodes between the kinks."""
    if isinstance(loss, AtomicLoss):
        with np.errstate(divide="ignore"):
            return loss.values, np.log(loss.mass)
    half = loss.sensitivity / 2
    core = float(loss.isf(1e-40)) + half
    edges = np.concatenate([np.arange(0.0, core, float(loss.law.std()) / 2), [core]])
    if slope:
        # tilted by order α the law's mass moves up to αΔ into the Gaussian tail, of deviation Δ/√(2s)
        wide = loss.sensitivity / math.sqrt(2 * slope) / 2
        edges = np.append(edges, np.arange(core, core + (1 + last) * loss.sensitivity + 12 * wide, wide))
    edges = np.append(edges, [k for k in loss.kinks if k < edges[-1]])
    edges = np.unique(np.concatenate([-edges, edges]))
    width = np.diff(edges)[:, None]
    nodes, weights = np.polynomial.legendre.leggauss(24)
    t = (edges[:-1, None] + width * (1 + nodes) / 2).ravel()
    with np.errstate(divide="ignore"):
        return loss.loss(t), loss.law.logpdf(t - half) + np.log((width * weights / 2).ravel())


# -- names ------------------------------------------------------------------------------------------------------


_NAMES = {
    "norm": "Gaussian",
    "laplace": "Laplace",
    "dlaplace": "discrete Laplace",
    "flipped_huber": "flipped Huber",
    "gennorm": "generalised normal",
    "osgt": "OSGT",
}


def law_name(law: FrozenLaw) -> str:
    """Return the usual name of a law: "Gaussian" for SciPy's ``norm``."""
    name = str(law.dist.name)
    return _NAMES.get(name, name.replace("_", " "))


def stated_parameters(noise: AdditiveNoise) -> str:
    """Return the parameters to six digits, each scale rounded to the side of more noise, so that copies stay private.

    Examples
    --------
    >>> from scipy import stats
    >>> stated_parameters(AdditiveNoise(stats.laplace(scale=1.00000001), 1.0))
    'scale = 1.00001'
    """
    parts, held = [], noise.parameters
    if "alpha" in held:  # flipped Huber noise, whose scale is γ in its paper
        del held["scale"]
    for key, value in held.items():
        if key == "scale" or (key == "gamma" and "alpha" in held):
            text = at_most(value)
        else:
            text = at_least(value) if (noise.law.dist.name, key) == ("dlaplace", "a") else f"{value:.6g}"
        parts.append(f"{key} = {text}")
    return ", ".join(parts)

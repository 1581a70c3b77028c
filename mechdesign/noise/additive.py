"""The deployable additive-noise mechanism: a law, what it protects, and its exact privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import special

from mechdesign.accounting.interval import DeltaInterval, epsilon_bound, upper_delta
from mechdesign.accounting.losses import NoiseTerm, is_gaussian, of_scipy
from mechdesign.accounting.profile import least_mu, privacy_profile, profile_epsilon
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.digits import at_least, at_most, fields_shown
from mechdesign.evidence.results import Accuracy
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.pictures import half_width
from mechdesign.noise.release import ExactNoise, Lattice, lattice_of, noisy
from mechdesign.noise.worst_case import WorstCases, amplified, worst_cases, worst_rho
from mechdesign.problem.checks import UP, Checked, answers, each, field, integer, positive, share
from mechdesign.problem.law_moments import frozen_parts, law_variance, symmetric_mean
from mechdesign.problem.mechanism import AddedNoise
from mechdesign.problem.privacy import Consumption
from mechdesign.problem.sensitivity import Sensitivity, sensitivity
from mechdesign.problem.words import stated
from mechdesign.typing import Array, FrozenLaw, Numbers, Values

_DELTA = 1e-6
"""The δ at which noise whose loss has no bound prints its ε."""


@serializable("additive-noise")
@dataclass(frozen=True, repr=False)
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.sensitivity, Sensitivity):
            self.sensitivity.check(self.dimension)
        frozen_parts(self.law)  # refuses anything else
        if not (math.isfinite(self.variance) and self.variance > 0):
            raise DesignError.of("law", self.law.dist.name, "must have a finite, positive variance")
        if self.neighbours == "replace" and self.sampling_rate < 1:
            _ = self.worst_cases  # refuses what is not accounted for

    @property
    def neighbours(self) -> str:
        """Who are neighbours."""
        return self.sensitivity.neighbours if isinstance(self.sensitivity, Sensitivity) else "add-remove"

    @property
    def continuous(self) -> bool:
        """Whether the law has a density (else it lives on the integers)."""
        return hasattr(self.law.dist, "_logpdf")

    @cached_property
    def variance(self) -> float:
        """Variance of one coordinate."""
        return law_variance(self.law)

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of one coordinate."""
        return math.sqrt(self.variance)

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation over the ℓ₂ norm that one record contributes, as libraries for private training state noise."""
        changes = Sensitivity.of(self.sensitivity)
        return self.standard_deviation / (changes.own or changes.largest_l2(self.dimension))

    def errors(self) -> Accuracy:
        """How far off one coordinate is."""
        return Accuracy(self.standard_deviation, self.absolute_error, half_width(self.law))

    @property
    def mse(self) -> float:
        """Mean squared error of the whole answer, K times the variance."""
        return self.dimension * self.variance

    @property
    def absolute_error(self) -> float:
        """E|T| of one coordinate: in closed form, or by integration."""
        _, shapes, _, scale = frozen_parts(self.law)
        if hasattr(self.law.dist, "mean_absolute"):
            return float(scale * self.law.dist.mean_absolute(*shapes))
        if self.law.dist.name == "dlaplace":
            return 2 * math.exp(-shapes[0]) / -math.expm1(-2 * shapes[0])
        if of_scipy(self.law.dist) == "gennorm":
            return scale * math.exp(special.gammaln(2 / shapes[0]) - special.gammaln(1 / shapes[0]))
        return symmetric_mean(self.law, np.abs) if self.continuous else float(self.law.expect(abs))

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
        """The lattice that `release` answers on, and the widened law; both cost next to nothing."""
        if isinstance(self.sensitivity, Sensitivity):
            return lattice_of(self.law, self.sensitivity.finest(self.dimension), several=True)
        return lattice_of(self.law, self.sensitivity)

    @cached_property
    def _exact(self) -> ExactNoise:
        return ExactNoise(self.lattice.law, self.lattice.step)

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
            A law that has no exact release; the message names those that have.
        DataError
            A number that is not finite, beyond 2⁵³ one that no double holds, under discrete noise one that is not whole. The
            guarantee does not cover that refusal.
        """
        held = self._answers(x)
        if self._exact.discrete and np.any(np.floor(held) != held):
            raise DataError("x: must be whole numbers for discrete noise")
        return noisy(held, self.lattice.step, self._exact.draw(held.size).reshape(held.shape))[()]

    # Privacy.

    @cached_property
    def worst_cases(self) -> WorstCases:
        """The changes that are worst for this law in one round, of those the sensitivity allows."""
        return worst_cases(self.law, self.sensitivity, self.dimension, self.sampling_rate)

    @property
    def once(self) -> bool:
        """Whether there is one round, and everybody takes part in it."""
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
        """What accounting composes, of all rounds: the worst change, or a vector above all changes.

        Raises
        ------
        DesignError
            The rounds are sampled: terms know no sampling, `delta_interval` and `epsilon` do.
        """
        if self.sampling_rate < 1:
            remedy = "is no part of a term: use epsilon or delta_interval"
            raise DesignError.of("sampling_rate", self.sampling_rate, remedy)
        return tuple(replace(t, count=t.count * self.rounds) for t in self.worst_cases.alternatives[0])

    def privacy_profile(self, epsilon: Numbers) -> Values:
        """δ(ε) of all rounds, rounded up.

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
        """Interval for δ(ε) of all rounds, and whether it is proved; options as in `mechdesign.accounting.delta_interval`."""
        return self.worst_cases.delta_interval(epsilon, **{**self.in_rounds, **options})

    def epsilon(self, delta: float, **options: Any) -> float:
        """The least ε certified at `delta` for all rounds, rounded up; ``inf`` if there is none."""
        cases = self.worst_cases
        if cases.single is not None and self.once and not options:
            return profile_epsilon(self.law, cases.single, delta)
        options = {**self.in_rounds, **options}
        if delta == 0:
            return amplified(cases.largest_loss(), **options)
        return min(epsilon_bound(terms, delta, **options) for terms in cases.alternatives)

    def gaussian_mu(self, *, width: float = 1e-3) -> tuple[float, float]:
        """Enclose the least μ of which all rounds are μ-Gaussian differentially private (`mechdesign.GaussianDP`).

        Parameters
        ----------
        width : float
            Of the enclosure.

        Examples
        --------
        >>> from mechdesign.noise import discrete_gaussian
        >>> low, high = AdditiveNoise(discrete_gaussian(1.0), 1.0).gaussian_mu()   # Gaussian noise: 1
        >>> 1.045 < low < high < low + 1e-3
        True
        """
        if self.sampling_rate < 1:
            raise DesignError.of(
                "sampling_rate",
                self.sampling_rate,
                "leaves mu open: state it of one round that sees everybody",
            )
        rho = self.rounds * worst_rho(self.law, self.sensitivity, self.dimension, 0.0)
        if is_gaussian(self.law):
            return math.sqrt(2 * rho) * (1 - 1e-14), math.sqrt(2 * rho) * (1 + 1e-14)

        def interval(epsilon: float) -> tuple[float, float]:
            found = self.delta_interval(epsilon, width=1e-4)
            return found.lower, found.upper

        largest = self.rounds * self.worst_cases.largest_loss() * (1 + 1e-15)
        return least_mu(interval, rho, largest, width=positive("width", width))

    def consumption(self) -> Consumption:
        """What all rounds consume of a ledger: μ of Gaussian noise, ρ of the discrete one, else the largest losses, where they are finite."""
        if self.sampling_rate < 1:
            return Consumption()
        normal = is_gaussian(self.law)
        if normal or self.law.dist.name == "discrete_gaussian":
            rho = worst_rho(self.law, self.sensitivity, self.dimension) * self.rounds * (1 + 2e-15)
            return Consumption.gaussian(2 * rho) if normal else Consumption(rho=rho)
        found = (
            Consumption.pure(
                *((profile_epsilon(t.law, t.sensitivity, 0.0), t.count * self.rounds) for t in terms)
            )
            for terms in self.worst_cases.alternatives
        )
        return min(found, key=lambda one: one.rho)

    def pld(self) -> Any:
        """dp-accounting's `PrivacyLossDistribution` of all rounds, to compose with any other mechanism."""
        from mechdesign.accounting.pld import terms_to_pld  # brings dp-accounting

        return terms_to_pld(self.noise_terms())

    # As text and file.

    def summary(self) -> str:
        """The law and what it costs."""
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
        delta = 0.0 if math.isfinite(self.worst_cases.largest_loss()) else _DELTA
        asked = f"ε = {at_most(self.epsilon(delta, width=0.1))}, δ = {delta:g}"
        return f"{stated(asked, unit, self.standard_deviation, *often)}\n  {self.summary()}"


_NAMES = {
    "norm": "Gaussian",
    "laplace": "Laplace",
    "dlaplace": "discrete Laplace",
    "flipped_huber": "flipped Huber",
    "gennorm": "generalised normal",
    "osgt": "OSGT",
}


def law_name(law: FrozenLaw) -> str:
    """What the field calls a law: "Gaussian" for SciPy's ``norm``."""
    name = str(law.dist.name)
    return _NAMES.get(name, name.replace("_", " "))


def stated_parameters(noise: AdditiveNoise) -> str:
    """The parameters to six digits, each scale rounded to the side of more noise: what is copied from it stays private.

    Examples
    --------
    >>> from scipy import stats
    >>> stated_parameters(AdditiveNoise(stats.laplace(scale=1.00000001), 1.0))
    'scale = 1.00001'
    """
    parts = []
    for key, value in noise.parameters.items():
        if key == "scale":
            text = at_most(value)
        else:
            text = at_least(value) if (noise.law.dist.name, key) == ("dlaplace", "a") else f"{value:.6g}"
        parts.append(f"{key} = {text}")
    return ", ".join(parts)

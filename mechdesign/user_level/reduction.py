r"""BoundedEMDReduction: from datasets of any sizes to a mechanism that needs equal ones.

Every user draws s items with replacement from its own data; a bounded (α, δ)-EMD-DP mechanism runs on the draws.

**Guarantee.** Let EMD(D, D′) ≤ r and π be their optimal plan. Draw s pairs from π: the marginals are what the two
runs draw, so by joint convexity of the hockey-stick divergence (coupling) it is at most the mean, over the pairs, of
the bounded mechanism's. The draws are at EMD at most :math:`\bar Z = \frac1s\sum Z_i`, Z i.i.d. in [0, D] (D the
diameter) of mean at most r. By Chernoff, for :math:`r < a < D`,

.. math:: P[\bar Z \ge a] \le e^{-s\,\mathrm{KL}(a/D \,\|\, r/D)} =: \eta,
          \qquad \mathrm{KL}(a\|r) = a\log\tfrac ar + (1 - a)\log\tfrac{1-a}{1-r},

(for [0, 1]-variables the moment generating function is at most Bernoulli's, and the bound grows with the mean).
Below a the loss is (αa, δ), above it at most 1: the whole is (αa, δ + η). With a(r) solved from the η that is allowed,
this is discrete (α a(r)/r, r)-EMD-DP. If :math:`s\log(D/r) \le \log(1/\eta)` then a = D, and nothing fails.

Imola et al. (Lemma 5.2, Theorem 5.3) use Bernstein's inequality with variance ≤ r; Chernoff's bound is never weaker.
It holds in both models: in the central one only one user's draws change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.problem import checks
from mechdesign.problem.checks import Checked, field
from mechdesign.problem.mechanism import Deployment, Simulation
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Indices, Numbers, Randomness
from mechdesign.user_level.itemwise import ItemwiseRelease, collection
from mechdesign.user_level.linear_release import LinearRelease
from mechdesign.user_level.privacy import MODELS, DiscreteEMDPrivacy, EMDPrivacy


@serializable("sampling-reduction")
@dataclass(frozen=True)
class SamplingReduction(Checked):
    """Sampling with replacement, and what it turns a bounded guarantee into.

    Parameters
    ----------
    alpha : float
        α of the bounded mechanism, per unit of distance.
    radius : float
        r, the resolution of the discrete guarantee, in the unit of distance, below `diameter`.
    samples : int
        s, items drawn from each user.
    failure : float
        η in (0, 1): probability that the draws are farther apart than `stretched`; it adds to δ.
    delta : float
        δ of the bounded mechanism.
    diameter : float
        Largest distance of the space.
    model : {"local", "central"}

    Examples
    --------
    >>> reduction = sampling_reduction(5.0, 0.1, samples=200, failure=1e-8)
    >>> round(reduction.stretched, 4), round(reduction.guarantee.alpha, 3)
    (0.2498, 12.49)
    >>> sampling_reduction(5.0, 0.1, samples=2000).guarantee.alpha < 8
    True
    """

    alpha: float = field(check=checks.positive)
    radius: float = field(check=checks.positive)
    samples: int = field(check=checks.integer, least=1, most=1 << 40, default=200)
    failure: float = field(check=checks.positive, default=1e-8)
    delta: float = field(check=checks.probability, below_one=True, default=0.0)
    diameter: float = field(check=checks.positive, default=1.0)
    model: str = field(check=checks.one_of, allowed=MODELS, default="central")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.radius >= self.diameter:
            raise DesignError.of(
                "radius", self.radius, f"must be below the space's diameter, {self.diameter}"
            )
        if self.failure + self.delta >= 1:
            raise DesignError.of("failure", self.failure, "must be small: it adds to delta")

    @cached_property
    def stretched(self) -> float:
        """a(r): how far apart the draws of two datasets at EMD r are at most, but for `failure`; rounded up."""
        r, need = self.radius / self.diameter, math.log(1 / self.failure) / self.samples
        if math.log(1 / r) <= need:
            return self.diameter
        low, high = r, 1.0
        while high - low > 1e-13 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if _kl(middle, r) >= need * (1 + 1e-12) else (middle, high)
        return min(high * self.diameter * (1 + 1e-12), self.diameter)

    @property
    def guarantee(self) -> DiscreteEMDPrivacy:
        """Discrete (α a(r)/r, r)-EMD-DP with δ + failure (δ alone where a(r) is the diameter)."""
        failure = 0.0 if self.stretched >= self.diameter else self.failure
        stretch = self.stretched / self.radius * (1 + 1e-15)
        return DiscreteEMDPrivacy(self.alpha * stretch, self.radius, self.delta + failure, self.model)

    def required_alpha(self, discrete_alpha: float) -> float:
        """The α the bounded mechanism must have for discrete `discrete_alpha` after sampling."""
        return checks.positive("discrete_alpha", discrete_alpha) * self.radius / self.stretched * (1 - 1e-15)

    def sample(self, datasets: Iterable[Numbers], *, rng: Randomness = None) -> Indices:
        """Draw `samples` items with replacement from every user's collection, shape (users, samples).

        Parameters
        ----------
        datasets : sequence of sequences of int
            One collection per user, of any sizes ≥ 1.

        Examples
        --------
        >>> sampling_reduction(5.0, 0.1, samples=4).sample([[7], [1, 2, 3]], rng=0).shape
        (2, 4)
        """
        return self.drawn(datasets, Simulation(rng))

    def drawn(self, datasets: Iterable[Numbers], source: Simulation | Deployment) -> Indices:
        """Draw with the randomness of `source`."""
        rows = []
        checks.instance("source", source, Simulation, Deployment)
        for items in collection(datasets):
            own = checks.indices("datasets", items, 1 << 53)
            if own.ndim != 1:
                raise DataError("datasets: must be a collection of point indices a user")
            rows.append(own[source.below(own.size, self.samples)])
        if not rows:
            raise DataError("datasets: is empty; at least one user is needed")
        return np.array(rows, dtype=np.int64)


sampling_reduction = SamplingReduction


@serializable("reduced-release")
@dataclass(frozen=True, eq=False)
class ReducedRelease(Checked):
    """A bounded mechanism made one for datasets of any sizes, by sampling.

    Parameters
    ----------
    mechanism : LinearRelease or ItemwiseRelease
        An `ItemwiseRelease` fixes the number of draws: its `items`.
    radius : float
        r of the discrete guarantee, in the unit of the space.
    samples : int, optional
        Draws per user, for a `LinearRelease`.
    failure : float
        Added to δ.

    Examples
    --------
    >>> from mechdesign.spaces.space import MetricSpace
    >>> space = MetricSpace.line([0.0, 0.5, 1.0])
    >>> item = ItemwiseRelease(space, alpha=10.0, delta=1e-7, items=50, users=3)
    >>> reduced = ReducedRelease(item, radius=0.1, failure=1e-7)
    >>> reduced.sample([[0, 1], [2], [1, 1, 1, 0]], rng=0).shape
    (150,)
    >>> reduced.guarantee.radius, round(reduced.guarantee.delta, 12)
    (0.1, 2e-07)
    """

    mechanism: LinearRelease | ItemwiseRelease = field(LinearRelease, ItemwiseRelease)
    radius: float = field(check=checks.positive)
    samples: int | None = None
    failure: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        held = self.mechanism
        if isinstance(held, ItemwiseRelease):
            if held.radius is not None:
                raise DesignError.of("mechanism", "radius", "must protect every distance: no radius")
            if self.samples not in (None, held.items):
                raise DesignError.of("samples", self.samples, f"must be its items, {held.items}")
            checks.settle(self, samples=held.items)
        elif self.samples is None:
            raise DesignError.of("samples", None, "say how many items each user draws")
        _ = self.reduction

    @property
    def space(self) -> MetricSpace:
        """The mechanism's metric space."""
        held = self.mechanism
        return held.query.space if isinstance(held, LinearRelease) else held.space

    @cached_property
    def reduction(self) -> SamplingReduction:
        """The sampling step."""
        bounded = self.mechanism.guarantee
        assert self.samples is not None and isinstance(bounded, EMDPrivacy)
        return SamplingReduction(
            bounded.alpha,
            self.radius,
            self.samples,
            self.failure,
            bounded.delta,
            self.space.diameter,
            bounded.model,
        )

    @property
    def guarantee(self) -> DiscreteEMDPrivacy:
        """Discrete EMD-DP of the whole."""
        return self.reduction.guarantee

    def sample(self, datasets: Iterable[Numbers], *, rng: Randomness = None) -> Array | Indices:
        """Sample from every user's items (any sizes), then release; local: one row per user. For simulation."""
        source = Simulation(rng)
        drawn = self._draws(datasets, source)
        linear = isinstance(self.mechanism, LinearRelease)
        return self.mechanism.sample(self.space.histogram(drawn) if linear else drawn, rng=source.rng)

    def release(self, datasets: Iterable[Numbers]) -> Array | Indices:
        """The same with the operating system's randomness, exactly.

        Raises
        ------
        DataError
            An item that is no point of the space, or a user without items. The guarantee does not cover that refusal.
        """
        drawn = self._draws(datasets, Deployment())
        if isinstance(self.mechanism, LinearRelease):  # whole counts: nothing is rounded
            drawn = np.rint(self.space.histogram(drawn) * drawn.shape[1])
        return self.mechanism.release(drawn)

    def _draws(self, datasets: Iterable[Numbers], source: Simulation | Deployment) -> Indices:
        checked = [self.space.indices(items, name="datasets") for items in collection(datasets)]
        return self.reduction.drawn(checked, source)


def _kl(a: float, r: float) -> float:
    """Binary relative entropy KL(a‖r)."""
    return float(special.rel_entr(a, r) + special.rel_entr(1 - a, 1 - r))

r"""User-level metric privacy: guarantees for whole datasets and their conversions, and PrivEMDLinear, the release of a linear query under them.

A user holds a multiset D of items of a metric space; datasets are compared by the earth mover's distance of their
normalised histograms. α is privacy per unit of distance, in the space's own unit.

=====================  ================================================================================
`ItemPrivacy`          one item, :math:`P[A(x) = y] \le e^{\alpha d(x, x')} P[A(x') = y]`
`EMDPrivacy`           a dataset, :math:`P[M(D) \in S] \le e^{\alpha\,\mathrm{EMD}(D, D')} P[M(D') \in S] + \delta`
`DiscreteEMDPrivacy`   the same with ε = αr for every pair with EMD ≤ r, and group privacy beyond
=====================  ================================================================================

*Group privacy.* If M(D) and M(D′), and M(D′) and M(D″), are (ε, δ)-indistinguishable, then
:math:`P[M(D) \in S] \le e^{\varepsilon}(e^{\varepsilon} P[M(D'') \in S] + \delta) + \delta`; by induction k steps give
:math:`(k\varepsilon, \delta(1 + e^{\varepsilon} + \dots + e^{(k-1)\varepsilon}))`. A pair at EMD t is joined by
:math:`k = \lceil t/r \rceil` steps of at most r: with the optimal plan π, histograms on the way from p to q that have
moved j/k of every mass are t/k apart. (They are histograms of multisets only if sizes may differ;
that is why the discrete definition is for unbounded data.)

**PrivEMDLinear.** A linear query averages a vector-valued function over a user's items,

.. math:: F(D) = \sum_x f_D[x]\, f(x) = E_{x \sim D} f(x), \qquad f : X \to \mathbb R^k .

**Sensitivity.** Let L be the largest :math:`\lVert f(x) - f(y)\rVert/d(x, y)`, the Lipschitz constant for the chosen norm. For any two histograms and their
optimal plan π, :math:`\lVert F(p) - F(q)\rVert = \lVert\sum \pi(x, y)(f(x) - f(y))\rVert \le L \sum \pi(x, y) d(x, y)
= L \cdot \mathrm{EMD}(p, q)`, and two point masses attain it: L is exactly the sensitivity (Theorem 4.1).

**Noise.** One user's change by EMD t moves the answer by at most Lt (local) or Lt/n (central, the mean over n users).

* **K-norm noise** with scale :math:`s = L/\alpha` or :math:`L/(n\alpha)` has loss at most
  :math:`(Lt/n)/s = \alpha t`: pure α-EMD-DP, whatever the sizes of the datasets (Algorithm 1, Lemma 4.2).
* **Gaussian noise** has δ > 0. With :math:`\kappa = \alpha\sigma/L` and :math:`y = Lt/(2\sigma)` the pair at distance t needs

  .. math:: \delta(y) = \Phi(y - \kappa) - e^{2\kappa y}\,\Phi(-\kappa - y),

  at ε = αt = 2κy. As :math:`e^{2\kappa y}\phi(\kappa + y) = \phi(y - \kappa)`,

  .. math:: \delta'(y) = 2\phi(y - \kappa)\,\bigl[1 - \kappa\,M(\kappa + y)\bigr] > 0, \qquad M = \Phi(-\cdot)/\phi,

  because Mills' ratio has :math:`M(z) < 1/z`. So the supremum over :math:`t \in (0, \text{diameter}]` *is* at the
  diameter D, and σ is that of the analytic Gaussian mechanism for sensitivity LD at ε = αD (Balle and Wang 2018).

The answer is the mean over users of each user's own mean, so a user has weight 1/n whatever the size of its dataset, and
the central guarantee holds for datasets of any sizes too. With equal sizes it is the pooled mean.

Numbers of theorems are those of Imola, Roy Chowdhury and Chaudhuri 2024.

**Where the rest is.** The density of K-norm noise: `mechdesign.noise.knorm_noise`. Its exact draws, and why a rounded sum keeps the guarantee: `RoundedSum` in
`mechdesign.noise.release`. A certificate, an audit and a lower bound are of a histogram that is released so: `UserHistogram` in `histogram`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cached_property

import numpy as np
from scipy import special

from mechdesign import checks
from mechdesign.accounting.gaussian import gaussian_mu
from mechdesign.checks import Checked, field, refuse
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.exact import round_up
from mechdesign.evidence.page import Saved
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.knorm_noise import KNormNoise, norm_order
from mechdesign.noise.release import RoundedSum
from mechdesign.problem.privacy import ApproximateDP
from mechdesign.spaces.space import MetricSpace, check_size
from mechdesign.typing import Array, Numbers, Randomness


def checked_users(name: str, users: object, model: str) -> int:
    """Return the number of users of a release, n in the central model and 1 locally, or raise DesignError."""
    found = checks.integer(name, users, 1)
    alone = checks.one_of("model", model, MODELS) == "local"
    refuse(alone and found != 1, name, users, "belongs to the central model; locally each user is alone")
    return found


@serializable("linear-release", eq=False)
class LinearRelease(checks.Checked, Saved):
    r"""Noisy answer to a linear query, private in the earth mover's distance.

    Parameters
    ----------
    query : LinearQuery
    alpha : float
        Privacy per unit of the space's distance.
    model : {"central", "local"}
    users : int
        n, central model only.
    norm : {1, 2, inf}
        Norm of the K-norm noise; the Gaussian version uses ℓ₂.
    gaussian : bool
        Gaussian noise, (α, δ)-EMD-DP.
    delta : float
        δ of the Gaussian version (0 for K-norm noise, which needs none).

    Raises
    ------
    DesignError
        δ = 0 with Gaussian noise, δ > 0 without, a constant query (it needs no noise).

    Examples
    --------
    >>> from mechdesign.spaces.space import MetricSpace
    >>> space = MetricSpace.line([0.0, 1.0, 2.0, 5.0])
    >>> release = LinearRelease(LinearQuery.average(space), alpha=5.0, users=100)
    >>> round(release.scale, 12), round(release.error(), 12)
    (0.002, 0.002)
    >>> release.sample([0.25, 0.25, 0.25, 0.25], rng=0).shape
    (1,)
    """

    query: LinearQuery = checks.field(check=lambda name, value: checks.instance(name, value, LinearQuery))
    alpha: float = checks.field()
    model: str = "central"
    users: int = checks.field(check=checked_users, model=lambda self: self.model, default=1)
    norm: float = 1.0
    gaussian: bool = checks.field(check=checks.one_of, allowed=(True, False), default=False)
    delta: float = 0.0

    def _post_check(self) -> None:
        privacy = self.guarantee
        norm = 2.0 if self.gaussian else norm_order("norm", self.norm)
        checks.settle(self, alpha=privacy.alpha, delta=privacy.delta, norm=norm)
        allowed = "must be positive with gaussian=True, and 0 with gaussian=False, as K-norm noise is pure"
        refuse(self.gaussian != (self.delta > 0), "delta", self.delta, allowed)
        if self.query.lipschitz(self.norm) == 0:
            raise DesignError("query: it is constant on the space; release its value without noise")

    @property
    def space(self) -> MetricSpace:
        """The points of the items."""
        return self.query.space

    @property
    def guarantee(self) -> EMDPrivacy:
        """The guarantee of the release; sizes of datasets are protected too."""
        return EMDPrivacy(self.alpha, self.delta, self.model, "unbounded")

    @cached_property
    def sensitivity(self) -> float:
        """Largest change of the answer per unit of EMD of one user: L, or L/n."""
        return float(np.nextafter(self.query.lipschitz(self.norm) / self.users, math.inf))

    @cached_property
    def scale(self) -> float:
        """s of the K-norm noise, or σ of the Gaussian, rounded up."""
        if not self.gaussian:
            return float(np.nextafter(self.sensitivity / self.alpha, math.inf))
        diameter = self.space.diameter
        mu = float(gaussian_mu(self.alpha * diameter, self.delta))
        return self.sensitivity * diameter / mu * (1 + 1e-14)

    @property
    def noise(self) -> KNormNoise | None:
        """The K-norm noise; None for the Gaussian version."""
        return None if self.gaussian else KNormNoise(self.query.dimension, self.scale, self.norm)

    def sample(self, histogram: Numbers, *, rng: Randomness = None) -> Array:
        """Answer the query with noise in doubles: for simulation.

        Parameters
        ----------
        histogram : array
            Central: the mean of the users' histograms, shape (n,), or all of them, (users, n).
            Local: one user's histogram, (n,), or several users', (rows, n), each with its own noise.

        Returns
        -------
        ndarray, shape (k,), or (rows, k) for several local users
        """
        weights = self._rows(histogram)
        if self.model == "central" and weights.ndim == 2:
            weights = weights.mean(axis=0)
        answer, source, noise = weights @ self.query.values, checks.generator(rng), self.noise
        if noise is None:
            return answer + source.normal(0.0, self.scale, answer.shape)
        return noise.sample(answer, rng=source)

    @cached_property
    def lattice(self) -> RoundedSum:
        """The noise of `release`, of scale `scale`, and its step."""
        if self.norm == 1:  # independent Laplace noise on every coordinate
            made = RoundedSum(1, self.scale, math.inf)
        else:
            made = RoundedSum(self.query.dimension, self.scale, self.norm, self.gaussian)
        if not made.step or float(np.abs(self.query.values).max()) / made.step > 2.0**960:
            allowed = "leaves noise so far below the query's values that doubles count no steps"
            raise DesignError.of("alpha", self.alpha, allowed)
        return made

    def release(self, histogram: Numbers, *, sizes: Numbers | None = None) -> Array:
        """Answer the query for deployment: with the operating system's randomness, rounded to multiples of `lattice.step`.

        The exact sum of answer and continuous noise is rounded; the answer is for the histogram exactly as given: its
        doubles relative to their exact sum. Counts of items (whole numbers) are histograms without any rounding.

        Parameters
        ----------
        histogram : array
            As for `sample`, or counts in its place.
        sizes : int or array_like, shape (users,), optional
            Number of items of each user: public, and equal. Needed for counts of all users together, shape (n,), in which a
            user with more items than others would have a weight above 1/users.

        Raises
        ------
        DataError
            A histogram with a negative entry, one that is not finite, or of another sum than 1 (counts: 0, or not that of the sizes),
            and counts beyond 2⁵³ that no double holds. The guarantee does not cover that refusal.
        """
        lattice = self.lattice
        counts = checks.answers("histogram", histogram)
        with np.errstate(over="ignore"):
            total = counts.sum(axis=-1, keepdims=True)
        # The operations are the same for counts and shares, so that their time does not reveal which were given.
        whole_numbers = ((counts >= 0) & (counts == np.floor(counts))).all() & (total > 0).all()
        self._check_sizes(sizes, counts, whole_numbers & (total != 1).all())
        weights = self._rows(counts / np.where(whole_numbers, total, 1.0))
        given, values = np.atleast_2d(counts), self.query.values
        if self.model == "central":
            weights = weights.mean(axis=0) if weights.ndim == 2 else weights
            users = [range(len(given))]
        else:
            users = [range(i, i + 1) for i in range(len(given))]
        near = (weights @ values) / lattice.step
        error = (
            np.abs(weights) @ np.abs(values) / lattice.step * (self.space.size + len(users[0]) + 8) * 2.0**-50
        )

        def exact(i: int) -> Fraction:
            """Return the i-th number to release, in steps."""
            row, column = divmod(i, self.query.dimension)
            features = [Fraction(v) for v in values[:, column].tolist()]
            means = []
            for user in users[row]:
                shares = [Fraction(w) for w in given[user].tolist()]
                means.append(sum((w * f for w, f in zip(shares, features) if w), Fraction(0)) / sum(shares))
            return sum(means, Fraction(0)) / len(means) / Fraction(lattice.step)

        return lattice.release(near.ravel(), error.ravel(), exact).reshape(near.shape)

    def _check_sizes(self, sizes: Numbers | None, counts: Array, whole_numbers: np.bool_) -> None:
        """Refuse whole counts of all users together unless all hold equally many items; refuse `sizes` for other input."""
        together, fault = counts.ndim == 1 and self.users > 1 and bool(whole_numbers), ""
        if sizes is None:
            fault = "must be given with counts of all users together" if together else ""
        elif not together:
            raise DataError("sizes: is for whole counts of all users together, shape (n,)")
        else:
            held = checks.finite("sizes", sizes)
            alike = held.shape in ((), (self.users,)) and np.ptp(held) == 0
            if not alike or held.flat[0] * self.users != counts.sum():
                fault = f"must be equal for all {self.users} users and those of the counts"
        DataError.when(fault, f"sizes: {fault}; or give one row per user")

    def _rows(self, histogram: Numbers) -> Array:
        """Check and return histograms: (n,), or a row per user."""
        weights = self.space.distribution(histogram)
        DataError.when(weights.ndim > 2, "histogram: must have shape (n,) or (rows, n)")
        if self.model == "central" and weights.ndim == 2 and len(weights) != self.users:
            raise DataError(f"histogram: must have one row per user ({self.users})")
        return weights

    def error(self) -> float:
        """Expected norm of the noise: ks in the K-norm's own norm; for Gaussian noise in ℓ₂, about σ√k."""
        noise = self.noise
        if noise is not None:
            return noise.mean_norm
        k = self.query.dimension
        return self.scale * math.sqrt(2) * math.exp(special.gammaln((k + 1) / 2) - special.gammaln(k / 2))

    def rms(self, *, averaged: int = 1) -> float:
        """Return the root mean square ℓ₂ error of the mean of `averaged` local releases."""
        noise = self.noise
        variance = self.scale**2 if noise is None else noise.variance
        return math.sqrt(self.query.dimension * variance / checks.integer("averaged", averaged, 1))


@serializable("linear-query", eq=False)
class LinearQuery(checks.Checked):
    """The average of `values` over a dataset.

    Parameters
    ----------
    space : MetricSpace
        n points.
    values : array, shape (n, k) or (n,)
        f(x), one row per point.
    name : str
        Name in tables.

    Examples
    --------
    >>> space = MetricSpace.euclidean([[0, 0], [3, 4], [6, 0]])
    >>> query = LinearQuery.average(space)
    >>> query([0.5, 0, 0.5])
    array([3., 0.])
    >>> round(query.lipschitz(norm=2), 12), round(query.lipschitz(norm=1), 12)
    (1.0, 1.4)
    """

    space: MetricSpace = checks.field(MetricSpace)
    values: Array = checks.field(check=checks.array, ndim=None)
    name: str = checks.field(str, default="linear")

    def _post_check(self) -> None:
        values = self.values[:, None] if self.values.ndim == 1 else self.values
        if values.ndim != 2 or len(values) != self.space.size:
            raise DesignError.of("values", values.shape, f"must have one row per point ({self.space.size})")
        values.setflags(write=False)
        checks.settle(self, values=values)

    # ------------------------------------------------------------------ ready-made queries

    @classmethod
    def average(cls, space: MetricSpace) -> LinearQuery:
        """The average of the items' coordinates: f(x) = x."""
        checks.instance("space", space, MetricSpace)
        if space.points is None:
            raise DesignError.of("space", space.kind, "has no coordinates to average; give values yourself")
        return cls(space, space.points, "average")

    @classmethod
    def distance_to(cls, space: MetricSpace, point: int) -> LinearQuery:
        """The average distance to one point of the space; 1-Lipschitz."""
        return cls(space, checks.instance("space", space, MetricSpace).distances_from(point), "distance")

    @classmethod
    def region(cls, space: MetricSpace, members: Numbers, *, bandwidth: float) -> LinearQuery:
        """The share of items in a region, smoothed: f(x) = max(0, 1 − d(x, region)/bandwidth)."""
        width = checks.positive("bandwidth", bandwidth)  # a sharp region is not Lipschitz
        inside = np.unique(checks.instance("space", space, MetricSpace).indices(members, name="members"))
        nearest = np.min([space.distances_from(x) for x in inside], axis=0)
        return cls(space, np.maximum(0.0, 1 - nearest / width), "region")

    @classmethod
    def embedding(
        cls, space: MetricSpace, matrix: Numbers, *, features: Numbers | None = None
    ) -> LinearQuery:
        """Return V·E φ(x) for a matrix V, shape (k, dim), and features φ, shape (n, dim), by default the coordinates."""
        if features is None and checks.instance("space", space, MetricSpace).points is None:
            allowed = "the space has no coordinates; give features of every point"
            raise DesignError.of("features", None, allowed)
        phi = checks.array("features", space.points if features is None else features, ndim=None)
        v = np.atleast_2d(checks.array("matrix", matrix, ndim=None))
        if phi.ndim != 2 or v.ndim != 2 or v.shape[1] != phi.shape[1]:
            raise DesignError.of("matrix", v.shape, f"must have one column per feature, {phi.shape}[1]")
        return cls(space, phi @ v.T, "embedding")

    @classmethod
    def similarity(
        cls, space: MetricSpace, vectors: Numbers, *, features: Numbers | None = None
    ) -> LinearQuery:
        """Average inner product with unit query vectors, shape (k, dim): an embedding with normalised rows."""
        v = np.atleast_2d(checks.array("vectors", vectors, ndim=None))
        lengths = np.linalg.norm(v, axis=-1, keepdims=True)
        DesignError.when((lengths == 0).any(), "vectors: a query vector is zero; it has no direction")
        query = cls.embedding(space, v / lengths, features=features)
        return cls(space, query.values, "similarity")

    @classmethod
    def histogram(cls, space: MetricSpace) -> LinearQuery:
        """The histogram itself: f(x) is the x-th unit vector."""
        check_size(checks.instance("space", space, MetricSpace).size)
        return cls(space, np.eye(space.size), "histogram")

    # ------------------------------------------------------------------

    @property
    def dimension(self) -> int:
        """k, the length of the answer."""
        return int(self.values.shape[1])

    def __call__(self, histogram: Numbers) -> Array:
        """Return F of histograms, shape (..., n) → (..., k)."""
        return self.space.distribution(histogram) @ self.values

    def lipschitz(self, norm: float = 2) -> float:
        """Return the exact Lipschitz constant L from the space's metric to the ℓ₁, ℓ₂ or ℓ_∞ norm, rounded up.

        L is the maximum over all pairs of points (on a line over adjacent ones, of which other pairs are chains); it is the
        sensitivity of F under the earth mover's distance.
        """
        if self.space.kind == "line" and self.space.points is not None:
            order = np.argsort(self.space.points[:, 0])
            steps = np.diff(self.space.points[order, 0])
            return self._largest(norm, [(np.diff(self.values[order], axis=0), steps)])
        return self._over_pairs(norm, lambda x: self.space.distances_from(x)[x + 1 :])

    def spread(self, norm: float = 2) -> float:
        """Return the largest ‖f(x) − f(y)‖ over all pairs, rounded up: the sensitivity without a metric (user-level DP)."""
        return self._over_pairs(norm, lambda x: 1.0)

    def _over_pairs(self, norm: float, distances: Callable[[int], Array | float]) -> float:
        rows = range(self.space.size - 1)
        return self._largest(norm, ((self.values[x + 1 :] - self.values[x], distances(x)) for x in rows))

    def _largest(self, norm: float, changes: Iterable[tuple[Array, Array | float]]) -> float:
        """Return the largest ratio of the norm of a change to its distance, rounded up."""
        order = norm_order("norm", norm)
        ratios = ((np.linalg.norm(change, ord=order, axis=1) / d).max(initial=0.0) for change, d in changes)
        return float(max(ratios, default=0.0)) * (1 + (self.dimension + 8) * 2.0**-52)


MODELS = ("local", "central")
SIZES = ("bounded", "unbounded")


def _times(alpha: float, distance: float) -> float:
    """Return the product, rounded up."""
    return round_up(Fraction(alpha) * Fraction(distance))


def group_privacy(epsilon: float, delta: float, steps: int) -> tuple[float, float]:
    r"""Return (kε, δ(e^{kε} − 1)/(e^ε − 1)) for k = `steps` steps of (ε, δ) each.

    Examples
    --------
    >>> epsilon, delta = group_privacy(0.5, 1e-6, 3)
    >>> print(f"{epsilon:.1f} {delta:.4e}")
    1.5 5.3670e-06
    """
    epsilon = checks.positive("epsilon", epsilon, side=checks.DOWN)
    delta = checks.probability("delta", delta, below_one=True, side=checks.DOWN)
    total = _times(epsilon, checks.integer("steps", steps, 1, 1 << 53))
    if delta == 0:
        return total, 0.0
    growth = math.expm1(total) / math.expm1(epsilon) if total < 700 else math.inf
    return total, delta * growth * (1 + 1e-14)


def alpha_from_semantics(epsilon: Numbers, *, fraction: Numbers, distance: Numbers) -> float:
    r"""Return α from a statement: "a fraction ρ of the data moved by a distance t is protected with ε₀".

    Such a change has EMD at most ρt, so α = ε₀/(ρt). Several statements at once (arrays) take the smallest α.

    Parameters
    ----------
    epsilon : float or array
        ε₀ > 0.
    fraction : float or array
        ρ in (0, 1].
    distance : float or array
        t > 0, in the unit of the space.

    Examples
    --------
    One day of thirty within 20 km, and everything within 1 km, both with ε₀ = 1:

    >>> alpha_from_semantics(1.0, fraction=[1 / 30, 1], distance=[20, 1])
    1.0
    """
    given = {"epsilon": epsilon, "fraction": fraction, "distance": distance}
    held = {name: checks.array(name, value, ndim=None) for name, value in given.items()}
    for name, values in held.items():
        refuse((values <= 0).any(), name, values.tolist(), "must be positive")
    refuse((held["fraction"] > 1).any(), "fraction", fraction, "must be at most 1, all of a user's data")
    with checks.refusing("epsilon, fraction, distance", given, "do not fit together", ValueError):
        return checks.positive("alpha", np.min(held["epsilon"] / (held["fraction"] * held["distance"])))


@serializable("item-privacy")
class ItemPrivacy(Checked):
    """Item-level α-d-DP of a channel: one item against another.

    Parameters
    ----------
    alpha : float
        Privacy per unit of distance.

    Examples
    --------
    >>> ItemPrivacy(0.5).epsilon(3.0)
    1.5
    >>> ItemPrivacy(0.5).composed(10).alpha
    5.0
    """

    alpha: float = field(check=checks.positive, side=checks.DOWN)

    def epsilon(self, distance: float) -> float:
        """Return the largest loss between two items at this distance."""
        return _times(self.alpha, checks.non_negative("distance", distance))

    def composed(self, items: int) -> EMDPrivacy:
        """Return the guarantee of m items released one by one: EMD t moves them by mt in all, so α grows to mα."""
        return EMDPrivacy(_times(self.alpha, checks.integer("items", items, 1, 1 << 53)))


@serializable("emd-privacy")
class EMDPrivacy(Checked):
    r"""(α, δ)-EMD-DP of one user's dataset.

    Parameters
    ----------
    alpha : float
        Privacy per unit of earth mover's distance.
    delta : float
    model : {"local", "central"}
        Local: the release of one user's dataset. Central: n users' datasets, one of which changes.
    sizes : {"bounded", "unbounded"}
        Bounded: pairs of equal size only, sizes are public. Unbounded: all pairs.

    Examples
    --------
    >>> privacy = EMDPrivacy(2.0, 1e-6)
    >>> privacy.epsilon(0.25)
    0.5
    >>> privacy.user_level(MetricSpace.line([0.0, 3.0]))
    ApproximateDP(epsilon=6.0, delta=1e-06)
    """

    alpha: float = field(check=checks.positive, side=checks.DOWN)
    delta: float = field(check=checks.probability, below_one=True, side=checks.DOWN, default=0.0)
    model: str = field(check=checks.one_of, allowed=MODELS, default="local")
    sizes: str = field(check=checks.one_of, allowed=SIZES, default="bounded")

    def __str__(self) -> str:
        return f"α = {self.alpha:g} per unit of earth mover's distance, δ = {self.delta:g}"

    def epsilon(self, emd: float) -> float:
        """Return ε for two datasets at this earth mover's distance; δ is the same for all."""
        return _times(self.alpha, checks.non_negative("emd", emd))

    def user_level(self, space: MetricSpace) -> ApproximateDP:
        """Return the implied user-level DP: no two datasets are farther apart than the diameter, so ε = α · diameter."""
        return ApproximateDP(self.epsilon(checks.instance("space", space, MetricSpace).diameter), self.delta)

    def discrete(self, radius: float) -> DiscreteEMDPrivacy:
        """Return the implied discrete guarantee: pairs with EMD ≤ r have ε ≤ αr."""
        return DiscreteEMDPrivacy(self.alpha, radius, self.delta, self.model, self.sizes)


@serializable("discrete-emd-privacy")
class DiscreteEMDPrivacy(Checked):
    r"""Discrete (α, δ, r)-EMD-DP: every pair with EMD ≤ r has (αr, δ); farther pairs have group privacy.

    Parameters
    ----------
    alpha : float
        Privacy per unit of distance.
    radius : float
        r > 0, the resolution, in the unit of distance.
    delta : float
    model : {"local", "central"}
    sizes : {"unbounded", "bounded"}
        Bounded: pairs of equal size only. Between two datasets of m items there need not be others of m items in
        steps of at most r, so nothing follows beyond r.

    Examples
    --------
    >>> DiscreteEMDPrivacy(2.0, 0.1, 1e-6).at(0.05)
    (0.2, 1e-06)
    """

    alpha: float = field(check=checks.positive, side=checks.DOWN)
    radius: float = field(check=checks.positive)
    delta: float = field(check=checks.probability, below_one=True, side=checks.DOWN, default=0.0)
    model: str = field(check=checks.one_of, allowed=MODELS, default="local")
    sizes: str = field(check=checks.one_of, allowed=SIZES, default="unbounded")

    def at(self, emd: float) -> tuple[float, float]:
        """Return (ε, δ) for two datasets at this earth mover's distance: k = ⌈EMD/r⌉ steps; δ may exceed 1 (void).

        A distance within 10⁻¹² of a whole number of steps counts as that: it is a rounded sum itself.
        """
        ratio = checks.non_negative("emd", emd) / self.radius
        refuse(not math.isfinite(ratio), "emd", emd, "is too many steps of the radius")
        steps = max(1, math.ceil(ratio * (1 - 1e-12)))  # whole up to rounding counts as whole
        epsilon = _times(self.alpha, self.radius)
        if steps > 1 and self.sizes == "bounded":
            beyond = f"lies beyond radius = {self.radius}, where a bounded guarantee says nothing; ask the mechanism"
            raise DesignError.of("emd", emd, beyond)
        return (epsilon, self.delta) if steps == 1 else group_privacy(epsilon, self.delta, steps)

    def user_level(self, space: MetricSpace) -> ApproximateDP:
        """Return the implied user-level DP, the guarantee at the diameter.

        Raises
        ------
        DesignError
            Group privacy has driven δ to 1: nothing is implied.
        """
        epsilon, delta = self.at(checks.instance("space", space, MetricSpace).diameter)
        grown = f"group privacy over the diameter makes it {delta:.3g}; lower delta or alpha"
        refuse(delta >= 1, "delta", self.delta, grown)
        return ApproximateDP(epsilon, delta)

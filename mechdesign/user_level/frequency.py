r"""Private frequency estimation: from reports back to the histogram, with an error bound in EMD.

Reports :math:`Y_i` of items :math:`x_i` through a channel P with right inverse Q (:math:`PQ = I`) give

.. math:: \hat f = \frac1N \sum_i Q_{Y_i}, \qquad E\,\hat f = f, \qquad Q 1 = 1 \Rightarrow \sum_x \hat f_x = 1 .

The estimate may have negative entries; the earth mover's distance extends to it, as transport depends on the
difference :math:`Δ = \hat f - f` alone, which has total mass 0. `FrequencyFit.emd` is that extension.

Projection on the simplex (`simplex_projection`) is optional: it makes a histogram, and costs the unbiasedness.

The rest bounds the expected earth mover's distance of a private frequency estimate.

**One inequality for all.** If a tree contains the points of the space and its path lengths are at least d,
then for a difference Δ of total mass 0, EMD ≤ :math:`\sum_e w_e |Δ(\text{below } e)|`, and by Jensen

.. math:: E\,EMD(\hat f, f) \le \sum_e w_e \sqrt{\operatorname{Var} \hat f(\text{below } e)} .

**Theorem 6.5 (any channel, clustered space).** With g clusters, n points, distance d₁ inside and d₂ across,
the tree with edges d₁/2 to the cluster's centre and (d₂ − d₁)/2 from there is exact. For fixed data with
histogram f and N independent reports, as :math:`E[Q_Y \mid x] = e_x`,

.. math:: \sum_x \operatorname{Var} \hat f_x = \frac1N \Big( \sum_x f_x \sum_y P[x,y] \|Q_y\|^2 - 1 \Big),

and the same with A the matrix that adds up clusters, :math:`\|(QA)_y\|^2`. Cauchy–Schwarz over points and
over clusters gives

.. math:: E\,EMD \le \frac{d_1}2 \sqrt{\frac nN (S - 1)} + \frac{d_2 - d_1}2 \sqrt{\frac gN (S_A - 1)},
    \qquad S = \max_x \sum_y P[x,y] \|Q_y\|^2 .

The first term is the cost of equalising mass inside clusters, the second between them. (The paper's version
bounds the distance to the histogram *and* its sampling from a distribution, and does not subtract the 1.)

**Theorem 6.6 (metric randomised response).** With the eigenvalues λ₂, λ₃ of `ClusteredResponse`,
:math:`n S = 1 + (g-1)/λ_2^2 + (n-g)/λ_3^2` and :math:`g S_A = 1 + (g-1)/λ_2^2`, so

.. math:: E\,EMD \le \frac{d_1}2 \sqrt{\frac1N \Big[ (n-g)(λ_3^{-2} - 1) + (g-1)(λ_2^{-2} - 1) \Big]}
    + \frac{d_2 - d_1}2 \sqrt{\frac{(g-1)(λ_2^{-2} - 1)}N} .

Both terms vanish as α grows. Locally N = m; in the central model N = nm (Corollary 6.8).

**Other spaces.** The star whose centre is at half the diameter from every point, or at a point r of the space
(edges d(x, r)): :math:`E\,EMD \le \sqrt{\sum_x w_x^2}\,\sqrt{(S-1)/N}`; the smallest of these is taken.

**After projection** on the simplex (`simplex_projection`): twice the bound on clustered spaces, where the
projection is nearest in EMD; elsewhere the Euclidean projection p has :math:`\|p - f\|_2 \le \|Δ\|_2`, so the
half-diameter star's bound holds for it as it stands.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from functools import cached_property

import numpy as np

from mechdesign import checks
from mechdesign.channels.channel import Channel, Response
from mechdesign.checks import Checked, field, refuse
from mechdesign.errors import DataError
from mechdesign.evidence.exact import round_up
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.release import RoundedSum
from mechdesign.spaces.space import MetricSpace, emd, numbered
from mechdesign.typing import Array, Numbers, Randomness


def _project(vectors: Array, mass: Array) -> Array:
    """Project rows (last axis) on the simplices of the given masses, in Euclidean distance."""
    ordered = -np.sort(-vectors, axis=-1)
    counts = np.arange(1, vectors.shape[-1] + 1)
    excess = (np.cumsum(ordered, axis=-1) - mass[..., None]) / counts
    last = (ordered > excess).cumsum(axis=-1).argmax(axis=-1)
    shift = np.take_along_axis(excess, last[..., None], axis=-1)
    return np.maximum(vectors - shift, 0.0)


def simplex_projection(estimate: Numbers, space: MetricSpace | None = None) -> Array:
    r"""Project an estimate that sums to 1 on the histograms.

    On a clustered space the clusters' masses are projected on the simplex first, then each cluster on the simplex of
    its mass; elsewhere the whole estimate at once (Euclidean projections).

    **On a clustered space the result p is nearest in EMD**, so :math:`EMD(p, f) \le 2\,EMD(\hat f, f)` for any
    histogram f. Proof. Projection of a vector v of mass M on a simplex of mass q only lowers entries when
    :math:`q \le M`, so it costs :math:`\|p - v\|_1 = 2\,v^-(1) + M - q`, with :math:`v^-(1)` the negative mass:
    the least possible. Cluster masses that stay positive are lowered, the others become 0; summing, the ℓ₁
    costs over points and over clusters are twice the negative masses of :math:`\hat f` and of its cluster
    sums, the least any histogram can have, and EMD is a positive combination of these two
    (see `mechdesign.spaces.space`). The factor 2 is the triangle inequality.

    Parameters
    ----------
    estimate : array, shape (..., n)
    space : MetricSpace, optional

    Examples
    --------
    >>> simplex_projection([0.8, 0.4, -0.2])
    array([0.7, 0.3, 0. ])
    """
    held = np.atleast_1d(checks.array("estimate", estimate, ndim=None))
    ones = np.ones(held.shape[:-1])
    if space is None or checks.instance("space", space, MetricSpace).kind != "clustered":
        return _project(held, ones)
    refuse(held.shape[-1] != space.size, "estimate", held.shape, f"must have an entry a point ({space.size})")
    groups = held.reshape(*held.shape[:-1], *space.shape)
    masses = _project(groups.sum(axis=-1), ones)
    inside = _project(groups, masses)
    inside[masses <= 0] = 0.0
    return inside.reshape(held.shape)


def signed_emd(difference: Numbers, space: MetricSpace) -> float:
    """Return the least cost of moving the positive part of a vector of total mass 0 onto its negative part.

    Examples
    --------
    >>> signed_emd([0.5, -0.75, 0.25], MetricSpace.line([0, 1, 3]))
    1.0
    """
    held = checks.array("difference", difference)
    up, down = np.maximum(held, 0.0), np.maximum(-held, 0.0)
    if min(up.sum(), down.sum()) <= 1e-15:  # of total mass 0 up to rounding
        return 0.0
    mass = (up.sum() + down.sum()) / 2
    return float(mass * emd(up / up.sum(), down / down.sum(), space))


@serializable("frequency-fit", eq=False)
class FrequencyFit:
    """An estimated histogram.

    Attributes
    ----------
    estimate : array, shape (n,)
        Unbiased; sums to 1, entries may be negative.
    histogram : array, shape (n,)
        The estimate, or its projection on the simplex.
    error_bound : float
        Proved upper bound on the expected EMD between `histogram` and that of the data, for any data; in
        the unit of `space`. At the diameter of the space or above, it says nothing.
    space : MetricSpace
    reports : int
        Number of reports N, or of users.
    standard_errors : array, shape (n,)
        Standard errors of `estimate`, computed at the histogram nearest to it.
    """

    estimate: Array
    histogram: Array
    error_bound: float
    space: MetricSpace
    reports: int
    standard_errors: Array

    def emd(self, truth: Numbers) -> float:
        """Return the earth mover's distance from `histogram`, whose entries may be negative, to `truth`."""
        return signed_emd(self.histogram - self.space.distribution(truth), self.space)


@serializable("frequency-estimate", eq=False)
class FrequencyEstimate(Checked):
    r"""Estimator of a histogram from the reports of a channel.

    Parameters
    ----------
    channel : Channel, ClusteredResponse, KaryResponse or HadamardResponse
        Channel through which the items were reported; its rows must be independent.
    space : MetricSpace, optional
        Space in which errors are measured; by default the channel's own, or else the space with all points at
        distance 1, whose EMD is the total variation.
    project : bool
        Whether `FrequencyFit.histogram` is projected on the simplex.

    Raises
    ------
    DesignError
        A singular channel; by `fit`, a `DataError` for reports that are not among its outputs.

    Where all items are equally far apart, `LocalWorkload` of ``Workload.identity(k)`` has the least variance of all local reports.

    Source: FreqEstLocal (Algorithm 4) of the user-level metric-privacy paper.

    Examples
    --------
    >>> from mechdesign.channels.responses import ClusteredResponse
    >>> space = MetricSpace.clustered(4, 5, within=0.05)
    >>> channel = ClusteredResponse(space, alpha=20.0)
    >>> items = np.random.default_rng(1).integers(0, 3, size=10_000)
    >>> est = FrequencyEstimate(channel).fit(channel.sample(items, rng=2))
    >>> est.emd(space.histogram(items)) <= est.error_bound < 0.005
    True
    """

    channel: Response = field(Response)
    space: MetricSpace | None = None
    project: bool = field(check=checks.one_of, allowed=(True, False), default=False)

    def _post_check(self) -> None:
        given = self.space
        if given is self.channel.space is None:  # all points at distance 1: EMD is then the total variation
            given = MetricSpace.clustered(1, self.channel.size, within=1.0)
        checks.settle(self, space=self.channel.measured(given))
        if isinstance(self.channel, Channel):
            _ = self.channel.inverse  # refuses a singular channel now, before data are collected

    @cached_property
    def _unit_bound(self) -> float:
        assert self.space is not None
        return emd_error_bound(self.channel, self.space, reports=1, project=self.project)

    def error_bound(self, reports: int) -> float:
        """Return an upper bound on the expected EMD with this many reports, for any data."""
        return self._unit_bound / float(np.sqrt(checks.integer("reports", reports, 1)))

    def fit(self, reports: Numbers) -> FrequencyFit:
        """Estimate from reports, an array of output indices (or names, where reports have them) of any shape."""
        held = numbered("reports", reports, self.channel.outputs, self.channel.places)
        return self.fit_counts(np.bincount(held.ravel(), minlength=self.channel.outputs))

    def fit_counts(self, counts: Numbers) -> FrequencyFit:
        """Estimate from the number of times each output was reported, shape (outputs,)."""
        assert self.space is not None
        tally = checks.finite("counts", counts)
        if tally.shape != (self.channel.outputs,) or (tally < 0).any() or tally.sum() < 1:
            raise DataError(f"counts: must be {self.channel.outputs} counts, not all zero")
        total = int(tally.sum())
        observed = tally / total
        estimate = self.channel.unbias(observed)
        nearest = simplex_projection(estimate, self.space)
        # Variances at the nearest histogram: at the reports' frequencies, an item never reported would look certain.
        squares = self.channel.unbias_squares(self.channel.apply(nearest))
        return FrequencyFit(
            estimate=estimate,
            histogram=nearest if self.project else estimate,
            error_bound=self.error_bound(total),
            space=self.space,
            reports=total,
            # Given the data, the variance of entry x over one report is E[Q_x²] − f_x.
            standard_errors=np.sqrt(np.maximum(squares - nearest, 0.0) / total),
        )


@serializable("laplace-histogram", eq=False)
class LaplaceHistogram(Checked):
    r"""Histogram with Laplace noise, the central baseline (Lemma 6.7 of the paper).

    A user's data move the average of the users' normalised histograms by at most 2/n in ℓ₁, so independent
    Laplace noise of scale 2/(nε) in every entry is ε-user-level private, whatever the number of items. The
    noise's mean is removed (post-processing), so that the estimate sums to 1 and stays unbiased.

    Parameters
    ----------
    space : MetricSpace
    epsilon : float
        User-level ε > 0.
    users : int
        Number of users n.
    project : bool
        Whether the released histogram is projected on the simplex.

    Examples
    --------
    >>> space = MetricSpace.clustered(4, 5, within=0.05)
    >>> release = LaplaceHistogram(space, epsilon=1.0, users=1000)
    >>> fit = release.sample(np.full(20, 0.05), rng=0)
    >>> fit.emd(np.full(20, 0.05)) < 2 * fit.error_bound
    True
    """

    space: MetricSpace = field(MetricSpace)
    epsilon: float = field(check=checks.positive, side=checks.DOWN)
    users: int = field(check=checks.integer, least=1)
    project: bool = field(check=checks.one_of, allowed=(True, False), default=False)

    @property
    def scale(self) -> float:
        """Scale 2/(nε) of the noise in every entry."""
        return 2.0 / (self.users * self.epsilon)

    @property
    def error_bound(self) -> float:
        """Upper bound on the expected EMD to the true histogram, for any data."""
        return laplace_error_bound(self.space, self.scale, project=self.project)

    def sample(self, histogram: Numbers, *, rng: Randomness = None) -> FrequencyFit:
        """Release the average `histogram` of the users, shape (n,), with noise in doubles: for simulation."""
        truth = self.space.distribution(histogram)
        return self._fit(truth + checks.generator(rng).laplace(0.0, self.scale, size=truth.shape))

    @property
    def _rounded(self) -> Fraction:
        """Largest ℓ₁ change of an average when it is rounded to doubles."""
        return self.space.size * Fraction(1, 1 << 50)

    @cached_property
    def lattice(self) -> RoundedSum:
        """The Laplace noise of `release`, for the sensitivity 2/n plus the rounding of an average to doubles."""
        moved = Fraction(2, self.users) + self._rounded
        return RoundedSum(1, round_up(moved / Fraction(self.epsilon)), math.inf)

    def release(self, histogram: Numbers) -> FrequencyFit:
        """Release the average for deployment: with the operating system's randomness, rounded to multiples of `lattice.step`.

        Entries may be rounded averages, off by a few units in the last place of 1: the sensitivity includes that.

        Raises
        ------
        DataError
            A sum further from 1, a negative entry, or one that is not finite. The guarantee does not cover that refusal.
        """
        truth, step = checks.finite("histogram", histogram), self.lattice.step
        if self.space.distribution(truth).ndim > 1:
            raise DataError(f"histogram: must be one, of {self.space.size} points")
        if abs(math.fsum(truth.tolist()) - 1) > self._rounded:
            remedy = "average histograms that do"
            raise DataError(f"histogram: must sum to 1 up to the rounding of doubles: {remedy}")

        def exact(i: int) -> Fraction:
            return Fraction(float(truth[i])) / Fraction(step)

        return self._fit(self.lattice.release(truth / step, np.zeros(truth.size), exact))

    def _fit(self, noisy: Array) -> FrequencyFit:
        deviation = math.sqrt(2) * self.scale
        return centred_fit(noisy, deviation, self.error_bound, self.space, self.users, self.project)


def centred_fit(
    noisy: Array, deviation: float, bound: float, space: MetricSpace, users: int, project: bool = False
) -> FrequencyFit:
    """Remove the mean of the noise, of this deviation in every entry, from a noisy histogram."""
    estimate = noisy + (1.0 - noisy.sum(axis=-1, keepdims=True)) / space.size
    spread = np.full(space.size, deviation * math.sqrt(1 - 1 / space.size))
    histogram = simplex_projection(estimate, space) if project else estimate
    return FrequencyFit(estimate, histogram, bound, space, users, spread)


def _bound(space: MetricSpace, points: float, clusters: float, project: bool) -> float:
    """Return the bound on the expected EMD from the summed variances of all points and of all clusters."""
    n = space.size
    halves = space.diameter / 2 * math.sqrt(n * points)
    if space.kind == "clustered":
        near = space.within if space.shape[1] > 1 else 0.0
        far = space.across if space.shape[0] > 1 else near
        groups = space.shape[0]
        bound = near / 2 * math.sqrt(n * points) + (far - near) / 2 * math.sqrt(groups * clusters)
        return 2 * bound if project else bound
    if project:
        return halves
    centres: Iterable[int] = range(n)
    if (
        space.kind == "line" and space.points is not None
    ):  # the best star is about the point nearest to the mean
        centres = [int(np.abs(space.points[:, 0] - space.points[:, 0].mean()).argmin())]
    stars = min(float(np.linalg.norm(space.distances_from(x))) for x in centres)
    return min(halves, stars * math.sqrt(points))


def emd_error_bound(channel: Response, space: MetricSpace, *, reports: int, project: bool = False) -> float:
    """Bound the expected EMD of the unbiased estimate (or of its projection), for any data.

    Parameters
    ----------
    channel : Response
        Channel with independent rows.
    space : MetricSpace
        Space in which the error is measured, with as many points as the channel has items.
    reports : int
        N.
    project : bool
        Bound the projection on the simplex instead.

    Returns
    -------
    float
        The bound, in the space's unit.

    Source: Theorem 6.5, with its constants re-derived (see the module's docstring).

    Examples
    --------
    >>> from mechdesign.channels.responses import ClusteredResponse
    >>> space = MetricSpace.clustered(4, 5, within=0.05)
    >>> round(emd_error_bound(ClusteredResponse(space, 20.0), space, reports=10_000), 6)
    0.003781
    """
    count = checks.integer("reports", reports, 1)
    points, clusters = checks.instance("channel", channel, Response).second_moments(channel.measured(space))
    return _bound(space, max(points - 1.0, 0.0), max(clusters - 1.0, 0.0), project) / math.sqrt(count)


def laplace_error_bound(space: MetricSpace, scale: float, *, project: bool = False) -> float:
    r"""Bound the expected EMD of a histogram with centred Laplace noise of the given scale (Lemma 6.7).

    With noise η of variance 2b² per entry and its mean removed, points have variance 2b²(1 − 1/n) and a
    cluster of s points 2b²s(1 − s/n); summed over points, 2b²(n − 1), and over clusters, 2b²(n − s).

    Examples
    --------
    >>> round(laplace_error_bound(MetricSpace.clustered(4, 5, within=0.05), 0.002), 6)
    0.011785
    """
    n, scale = space.size, checks.positive("scale", scale)
    size = space.shape[1] if space.kind == "clustered" else n
    return _bound(space, 2 * scale**2 * (n - 1), 2 * scale**2 * (n - size), project)

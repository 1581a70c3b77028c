r"""How far, in earth mover's distance, a private frequency estimate can be expected to be.

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
bounds the distance to the histogram *and* its sampling from a distribution, and does not subtract the 1;
`population=True` adds that: then the variance is :math:`S - \|p\|^2 \le S - 1/n`, resp. − 1/g.)

**Theorem 6.6 (metric randomised response).** With the eigenvalues λ₂, λ₃ of `ClusteredResponse`,
:math:`n S = 1 + (g-1)/λ_2^2 + (n-g)/λ_3^2` and :math:`g S_A = 1 + (g-1)/λ_2^2`, so

.. math:: E\,EMD \le \frac{d_1}2 \sqrt{\frac1N \Big[ (n-g)(λ_3^{-2} - 1) + (g-1)(λ_2^{-2} - 1) \Big]}
    + \frac{d_2 - d_1}2 \sqrt{\frac{(g-1)(λ_2^{-2} - 1)}N} .

Both terms vanish as α grows.

**Other spaces.** The star whose centre is at half the diameter from every point, or at a point r of the space
(edges d(x, r)): :math:`E\,EMD \le \sqrt{\sum_x w_x^2}\,\sqrt{(S-1)/N}`; the smallest of these is taken.

**After projection** on the simplex (`simplex_projection`): twice the bound on clustered spaces, where the
projection is nearest in EMD; elsewhere the Euclidean projection p has :math:`\|p - f\|_2 \le \|Δ\|_2`, so the
half-diameter star's bound holds for it as it stands.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from mechdesign.channels.channel import Response
from mechdesign.channels.responses import ClusteredResponse
from mechdesign.problem.checks import instance, positive, whole
from mechdesign.spaces.space import MetricSpace

__all__ = ["emd_error_bound", "laplace_error_bound", "metric_response_error_bound"]


def _combined(space: MetricSpace, points: float, clusters: float) -> float:
    """Bound from the summed variances of all points and of all clusters."""
    n = space.size
    if space.kind == "clustered":
        near = space.within if space.shape[1] > 1 else 0.0
        far = space.across if space.shape[0] > 1 else near
        groups = space.shape[0]
        return near / 2 * math.sqrt(n * points) + (far - near) / 2 * math.sqrt(groups * clusters)
    halves = space.diameter / 2 * math.sqrt(n)
    stars = min(float(np.linalg.norm(space.distances_from(x))) for x in _centres(space))
    return min(halves, stars) * math.sqrt(points)


def _centres(space: MetricSpace) -> Iterable[int]:
    """Points to try as centres of a star: all, or on a line the best, which is nearest to the mean."""
    if space.kind == "line" and space.points is not None:
        return [int(np.abs(space.points[:, 0] - space.points[:, 0].mean()).argmin())]
    return range(space.size)


def emd_error_bound(
    channel: Response, space: MetricSpace, *, reports: int, project: bool = False, population: bool = False
) -> float:
    """Bound of the expected EMD of the unbiased estimate (or of its projection), for any data.

    Parameters
    ----------
    channel : Response
        Rows independent.
    space : MetricSpace
        Where the error is measured; as many points as the channel has items.
    reports : int
        N.
    project : bool
        Bound the projection on the simplex instead.
    population : bool
        Against the distribution the items were drawn from, instead of their histogram.

    Returns
    -------
    float
        In the space's unit.

    Source: Theorem 6.5, with its constants re-derived (see the module's docstring).

    Examples
    --------
    >>> space = MetricSpace.clustered(4, 5, within=0.05)
    >>> round(emd_error_bound(ClusteredResponse(space, 20.0), space, reports=10_000), 6)
    0.003781
    """
    count = whole("reports", reports, 1)
    points, clusters = instance("channel", channel, Response).second_moments(channel.measured(space))
    n, groups = space.size, space.shape[0]
    less, less_clusters = (1.0 / n, 1.0 / groups) if population else (1.0, 1.0)
    spread, between = max(points - less, 0.0), max(clusters - less_clusters, 0.0)
    return _projected(space, spread, between, project) / math.sqrt(count)


def _projected(space: MetricSpace, points: float, clusters: float, project: bool) -> float:
    bound = _combined(space, points, clusters)
    if not project:
        return bound
    euclidean = space.diameter / 2 * math.sqrt(space.size * points)
    return 2 * bound if space.kind == "clustered" else euclidean


def metric_response_error_bound(space: MetricSpace, alpha: float, *, reports: int) -> float:
    """Theorem 6.6: the bound for metric randomised response on a clustered space, in closed form.

    Examples
    --------
    >>> space = MetricSpace.clustered(4, 5, within=0.05)
    >>> round(metric_response_error_bound(space, 20.0, reports=10_000), 6)
    0.003781
    """
    between, inside = ClusteredResponse(space, alpha).eigenvalues
    clusters, n = space.shape[0], space.size
    groups = (clusters - 1) * (between**-2 - 1) if clusters > 1 else 0.0
    rest = (n - clusters) * (inside**-2 - 1) if n > clusters else 0.0
    near = space.within if n > clusters else 0.0
    far = space.across if clusters > 1 else near
    return (
        (near * math.sqrt(rest + groups) + (far - near) * math.sqrt(groups))
        / 2
        / math.sqrt(whole("reports", reports, 1))
    )


def laplace_error_bound(space: MetricSpace, scale: float, *, project: bool = False) -> float:
    r"""Lemma 6.7: expected EMD of a histogram with centred Laplace noise of the given scale.

    With noise η of variance 2b² per entry and its mean removed, points have variance 2b²(1 − 1/n) and a
    cluster of s points 2b²s(1 − s/n); summed over points, 2b²(n − 1), and over clusters, 2b²(n − s).

    Examples
    --------
    >>> round(laplace_error_bound(MetricSpace.clustered(4, 5, within=0.05), 0.002), 6)
    0.011785
    """
    n, scale = space.size, positive("scale", scale)
    size = space.shape[1] if space.kind == "clustered" else n
    return _projected(space, 2 * scale**2 * (n - 1), 2 * scale**2 * (n - size), project)

r"""Metric and approximate privacy: which rows are compared, and the program over the means on cells.

On the continuum, for rows interpolated linearly between knots, :math:`p(x, i) \le e^{\varepsilon |x - x'|} p(x', i)` for all
inputs is *equivalent* to neighbouring rows k, l with

.. math:: P_{k,i} \le (1 + \varepsilon |x_k - x_l|)\, P_{l,i} ,

as an affine function is steepest, relative to itself, where it is smallest. On a fixed grid of inputs all pairs are
compared at :math:`e^{\varepsilon d(x_k, x_l)}`; for :math:`d = |x - x'|` and :math:`|x - x'|^2` chains of neighbours
imply the others, since :math:`d(x, z) \ge d(x, y) + d(y, z)` for y between.

The program over the means of a mechanism's probabilities on cells of a continuum of inputs bounds every mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product

import cvxpy as cp
import numpy as np
from scipy import stats

from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_lower
from mechdesign.model.problem import named
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import LawPrior, Prior
from mechdesign.problem.privacy import ApproximateDP, MetricDP, PureDP
from mechdesign.quantizers.exact_law import outermost_law
from mechdesign.quantizers.floors import LARGEST_EPSILON
from mechdesign.typing import Array, Indices

Pairs = tuple[Indices, Indices]


@dataclass(frozen=True)
class PairwisePrivacy:
    """A privacy notion between the rows at knots.

    Parameters
    ----------
    privacy : MetricDP, ApproximateDP or PureDP
    continuum : bool
        Whether the rows are interpolated and privacy is asked for between all inputs, not only the knots.

    Examples
    --------
    >>> PairwisePrivacy(MetricDP(2.0), continuum=True).pairs(3)
    (array([0, 1, 1, 2]), array([1, 0, 2, 1]))
    """

    privacy: MetricDP | ApproximateDP | PureDP
    continuum: bool = False

    @property
    def delta(self) -> float:
        """What the excesses of a pair may sum to; 0 but for approximate privacy."""
        return float(getattr(self.privacy, "delta", 0.0))

    @property
    def neighbours(self) -> bool:
        """Whether comparing neighbouring knots is enough."""
        return isinstance(self.privacy, MetricDP) and not callable(self.privacy.metric)

    def pairs(self, count: int) -> Pairs:
        """The pairs (k, l) of `count` knots whose rows are compared: P_k at most a multiple of P_l."""
        k, l = (v.ravel() for v in np.indices((count, count)))
        kept = np.abs(k - l) == 1 if self.neighbours else k != l
        return k[kept], l[kept]

    def _distances(self, x: Array, y: Array) -> Array:
        if not isinstance(self.privacy, MetricDP):
            return np.ones(len(x))
        distance = np.asarray(self.privacy.distance(x, y), dtype=float)
        if distance.shape != x.shape or not np.isfinite(distance).all() or (distance < 0).any():
            allowed = "must be vectorised, finite and non-negative on the inputs"
            raise DesignError.of("metric", self.privacy.metric, allowed)
        return distance

    def exact_slack(self, knots: list[Fraction], rows: list[list[Fraction]]) -> Fraction:
        """The least slack of all pairs in exact arithmetic, exponentials rounded down."""
        if not isinstance(self.privacy, MetricDP):
            # one ratio for all pairs: the extremes decide whether any excess is positive
            ratio, delta = _growth(Fraction(self.privacy.epsilon)), Fraction(self.delta)
            worst: Fraction = min(ratio * min(column) - max(column) for column in zip(*rows))
            if not delta or worst >= 0:
                return delta or worst
            raised = [[ratio * q for q in row] for row in rows]
            return delta - max(
                sum((p - q for p, q in zip(row, other) if p > q), Fraction(0))
                for row, other in product(rows, raised)
            )

        slacks = list[Fraction]()
        for k, l in zip(*(v.tolist() for v in self.pairs(len(knots)))):
            power = Fraction(self.privacy.epsilon) * self._exact_distance(knots[k], knots[l])
            ratio = 1 + power if self.continuum else _growth(power)
            slacks += (ratio * q - p for p, q in zip(rows[k], rows[l]))
        return min(slacks)

    def _exact_distance(self, x: Fraction, y: Fraction) -> Fraction:
        assert isinstance(self.privacy, MetricDP)
        if self.privacy.metric == "absolute":
            return abs(x - y)
        if self.privacy.metric == "squared":
            return (x - y) ** 2
        return Fraction(float(self.privacy.distance(float(x), float(y))))

    def needed(self, knots: Array, rows: Array) -> float:
        """Smallest ε at which the rows satisfy a notion without δ, rounded up."""
        k, l = self.pairs(len(knots))
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.log(np.where(rows[k] > 0, rows[k] / rows[l], 1.0)).max(axis=1)
            per_unit = loss / self._distances(knots[k], knots[l])
        return float(np.max(np.where(loss > 0, per_unit, 0.0)) * (1 + 1e-13))

    def smallest_epsilon(self, knots: Array, first: float, last: float) -> float:
        """Smallest ε at which some unbiased mechanism with outputs in [first, last] exists; ∞ where none does.

        Splitting every output between the two extreme ones, keeping means, is post-processing; so the mechanism
        with those two outputs decides, and its probabilities are affine in the input.
        """
        lower, upper = float(knots[0]), float(knots[-1])
        if self.delta:  # the ends are furthest apart
            ends = np.array([[last - x, x - first] for x in (lower, upper)]) / (last - first)
            with np.errstate(divide="ignore", invalid="ignore"):
                loss = np.log(np.maximum(ends.max(axis=0) - self.delta, 0.0) / ends.min(axis=0))
            return max(0.0, float(np.nanmax(loss, initial=0.0))) * (1 + 1e-13)
        if first >= lower or last <= upper:
            return math.inf
        if self.continuum:
            return max(1 / (last - upper), 1 / (lower - first))
        return self.needed(knots, np.stack([last - knots, knots - first], axis=1) / (last - first))


@lru_cache(maxsize=4096)
def _growth(power: Fraction) -> Fraction:
    """A rational below e^power; beyond 700 one that is far below."""
    return exp_lower(power if power < 700 else Fraction(700))


def outermost_private(notion: PairwisePrivacy, bins: Sequence[float], knots: Array) -> bool:
    """Whether that law is private, in exact arithmetic: if not, no unbiased mechanism with these outputs is."""
    if notion.continuum or not isinstance(notion.privacy, MetricDP):
        knots = knots[[0, -1]]  # affine rows differ most at the ends
    law = outermost_law((bins[0], bins[-1]), knots)
    rows = [law.row(0, 0), *(law.row(k, 1) for k in range(len(knots) - 1))]
    if notion.continuum:  # steepest, relative to itself, where it is smallest: a segment's length cancels
        slope = abs(rows[1][0] - rows[0][0]) / (law.knots[1] - law.knots[0])
        return slope <= Fraction(notion.privacy.epsilon) * min(map(min, rows))
    return notion.exact_slack(list(law.knots), rows) >= 0


def about_zero(bins: Array, knots: Array, prior: Prior) -> tuple[Array, Array, Prior]:
    """Outputs, inputs and prior moved to inputs around zero, where moments and means keep their digits."""
    centre = float(knots[0] / 2 + knots[-1] / 2)
    if centre == 0:
        return bins, knots, prior
    return bins - centre, knots - centre, prior.standardised(centre, 1.0)


def _cells(prior: Prior, lower: float, upper: float, count: int) -> list[tuple[float, float, Array]]:
    """Cells (start, stop, moments): atoms alone where there are few, the density between cut points."""
    points, weights = prior.atoms
    edges = np.linspace(lower, upper, count + 1)
    out: list[tuple[float, float, Array]] = []
    if len(points) <= 4 * count:
        edges = np.unique(np.concatenate([edges, points]))
        moments = prior.continuous_moments(edges)
        for k, (a, b) in enumerate(zip(edges[:-1], edges[1:])):
            out.append((float(a), float(b), moments[k]))
        out += [(float(x), float(x), w * np.array([1.0, x, x * x])) for x, w in zip(points, weights)]
    else:
        moments = prior.moments(edges)
        out = [(float(a), float(b), row) for a, b, row in zip(edges[:-1], edges[1:], moments)]
    # Half-open cells: an atom at a cell's start comes before the cell.
    return sorted((c for c in out if c[2][0] > 1e-12), key=lambda c: (c[0] + c[1], c[1]))


def _quantile_grid(prior: Prior, start: float, stop: float) -> tuple[Array, Array]:
    """Points and conditional distribution function of the density on a cell."""
    x = np.linspace(start, stop, 513)
    mass = np.concatenate([[0.0], np.cumsum(prior.continuous_moments(x)[:, 0])])
    with np.errstate(invalid="ignore"):  # an empty cell between atoms: the caller takes the hull
        return x, mass / mass[-1]


def _distance(prior: Prior, first: tuple[float, float, Array], second: tuple[float, float, Array]) -> float:
    """Upper bound of the ∞-Wasserstein distance of two neighbouring cells' conditional laws."""
    hull = second[1] - first[0]
    if isinstance(prior, LawPrior) and type(prior.law.dist) is type(stats.uniform):
        start, stop = prior.support
        if first[0] >= start and second[1] <= stop and first[0] < first[1] and second[0] < second[1]:
            # Both conditional laws are uniform: quantiles differ most at an end.
            return max(second[0] - first[0], second[1] - first[1]) * (1 + 1e-14)
    (x, u), (y, v) = (
        (np.array([c[0], c[1]]), np.array([0.0, 1.0])) if c[0] == c[1] else _quantile_grid(prior, c[0], c[1])
        for c in (first, second)
    )
    if not (np.all(np.isfinite(u)) and np.all(np.isfinite(v))):
        return hull
    levels = np.unique(np.concatenate([u, v]))
    # On [l, l'] the first law's quantile is at least its value at l, the second's at most its value at l'.
    low = x[np.clip(np.searchsorted(u, levels[:-1] + 1e-12, side="right") - 1, 0, len(x) - 1)]
    high = y[np.clip(np.searchsorted(v, levels[1:] - 1e-12, side="left"), 0, len(y) - 1)]
    return float(min(hull, (high - low).max() + 1e-12))


def cell_model(
    bins: Array, epsilon: float, prior: Prior, loss: Loss, input_range: tuple[float, float], cells: int
) -> cp.Problem:
    r"""Declare a program over the means of p on cells, which no mechanism that is private at :math:`d = |x - x'|` beats.

    Cut the input range into cells. For any mechanism let :math:`q_{ki}` be the mean of :math:`p_i` over cell k under the
    prior, and :math:`d_{ki}` that of :math:`(x - \bar x_k)\, p_i`. These 2Km numbers satisfy linear constraints, whatever the mechanism:

    - :math:`\sum_i q_{ki} = 1`, :math:`\sum_i B_i q_{ki} = \bar x_k`, :math:`\sum_i d_{ki} = 0`,
      :math:`\sum_i B_i (\bar x_k q_{ki} + d_{ki})` = the mean of :math:`x^2`;
    - :math:`q_{k+1,i} \le e^{\varepsilon w_k} q_{ki}` and back, :math:`w_k` the ∞-Wasserstein distance of
      the two cells' conditional laws (couple their quantiles: paired inputs are at most w apart);
    - :math:`|d_{ki}| \le \tau_k h_k q_{ki}`, :math:`\tau = (\sqrt r - 1)/(\sqrt r + 1)`,
      :math:`r = e^{\varepsilon h}`: inside a cell p varies by a factor r at most;
    - the loss is at least :math:`t_{ki} \ge |(B_i - \bar x_k) q_{ki} - d_{ki}|` (Jensen), with equality where B is outside
      the cell, and the squared loss is exactly :math:`\sum B_i^2 q_{ki}` less the mean of :math:`x^2`.

    The least value of that linear program is a bound, and is itself taken from the program's duals with outward
    rounding (`mechdesign.solvers.proved_bound`), never from the solver's objective.
    """
    table = _cells(prior, *input_range, cells)
    moments = np.array([c[2] for c in table])
    mass, centre, second = moments[:, 0], moments[:, 1] / moments[:, 0], moments[:, 2] / moments[:, 0]
    width = np.array([c[1] - c[0] for c in table])
    tau = (np.tanh(epsilon * width / 4) * width)[:, None] * np.ones(len(bins))
    apart = np.array([_distance(prior, a, b) for a, b in zip(table, table[1:])])
    # Where the ratio is beyond what doubles hold, the row says that a probability is at most 1.
    steep = (epsilon * apart > LARGEST_EPSILON)[:, None] * np.ones(len(bins))
    ratio = np.exp(np.minimum(epsilon * apart, LARGEST_EPSILON))[:, None] * (1 + 1e-14) * (1 - steep)
    reach = float(np.abs(bins).max() + max(map(abs, input_range)))
    shape = len(table), len(bins)
    q = cp.Variable(shape, name="q", bounds=[0, 1])
    d = cp.Variable(shape, name="d", bounds=[-tau, tau])
    t = cp.Variable(shape, name="t", bounds=[0, 2 * reach])
    error = cp.multiply(bins[None, :] - centre[:, None], q) - d
    rows = [
        named("normalisation", cp.sum(q, axis=1) == 1),
        named("unbiased", q @ bins == centre),
        named("deviation", cp.sum(d, axis=1) == 0),
        named("second moment", cp.multiply(centre, q @ bins) + d @ bins == second),
        named("within a cell", d <= cp.multiply(tau, q)),
        named("within a cell", -d <= cp.multiply(tau, q)),
        named("absolute error", error <= t),
        named("absolute error", -error <= t),
    ]
    if len(table) > 1:
        rows.append(named("privacy", q[1:] <= cp.multiply(ratio, q[:-1]) + steep))
        rows.append(named("privacy", q[:-1] <= cp.multiply(ratio, q[1:]) + steep))
    absolute, squared = loss.absolute * mass, loss.squared * mass
    least = absolute @ cp.sum(t, axis=1) + squared @ (q @ bins**2 - second)
    return cp.Problem(cp.Minimize(least), rows)

r"""Channels on finite sets: probabilities of reports given items.

A channel is a row-stochastic matrix :math:`C[x, y] = P[\text{report } y \mid \text{item } x]`. It computes its own
privacy. Against a metric space its *exact metric loss* is

.. math:: \alpha_0 = \max_{x \ne x'} \frac{1}{d(x, x')} \max_y \log \frac{C[x, y]}{C[x', y]},

the smallest α for which it is α-d-private; it is rounded up, never down.

The sampled law is the analysed one: row x of the matrix stands for the rational probabilities
``matrix[x] / sum(matrix[x])`` (doubles are dyadic rationals, so these are exact), or for integer `weights`
if they are given. `Response.release` draws from these integers with the operating system's randomness.

**Exact arithmetic** turns a solver's table into integer weights that are exactly private. The doubles of a design (α, distances, prior, losses) are taken as exact
rationals, and :math:`e^{αd}` is replaced by a proved rational bound on the conservative side.

A solver returns doubles that violate :math:`C[x,y] \le e^{αd(x,x')} C[x',y]` within its tolerance. `private_weights`
replaces them by integers, in three steps that use the structure of private channels (columns
form a convex cone: sums of private columns are private):

1. **Closure.** Every column is raised to the least private column above it,
   :math:`v_x = \max_{x'} C[x', y]\, e^{-αd(x,x')}`, which changes nothing if no constraint was violated.
2. **Rows.** Sums of the integers, columns rounded up to multiples of :math:`2^{-B}`, now differ slightly: what rows lack is added to the
   one report where it costs least.
3. **Columns.** A number added to all entries of a column makes it private if it is large enough, and keeps the sums equal: the least
   such number is of the order of rounding.

For a grid of 64 items this takes .07 s and hardly changes the loss; the repair of general tables (`mechdesign.model.exactly`) takes 1 s.

**The exact metric loss of a channel** is the least double that bounds

.. math:: \alpha_0 = \max_{x \ne x'} \frac{1}{d(x, x')} \max_y \log \frac{C[x, y]}{C[x', y]} .

Doubles find the maximum up to a few units in the last place, with a proved margin. The logarithms of the few quotients
within reach of the maximum are then enclosed, and the largest loss is rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from mechdesign import checks
from mechdesign.checks import Checked, field, integer_weights, refuse, rounded_weights
from mechdesign.errors import DataError, DesignError, SolverError
from mechdesign.evidence.exact import exp_lower, log_above, round_up, safe_root
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.mechanism import Deployment, Drawn, Rows, Simulation
from mechdesign.solvers.deadline import Deadline
from mechdesign.spaces.space import MetricSpace, numbered
from mechdesign.typing import Array, Indices, Numbers, Weights

_FAR = 600.0  # αd at which kernels e^{-αd} stop falling, so that no double is 0; probabilities e^{-600} never occur


def check_prior(
    name: str, prior: Numbers | Mapping[str, float] | None, size: int, names: Sequence[str] = ()
) -> Array:
    """Return `prior` as an array that sums to 1, uniform if None; a dict or labelled Series is read by `names`, or by index without names.

    Raises
    ------
    DesignError
        Wrong length, negative or not finite entries, or a sum that is not 1 within 10⁻⁹.
    """
    if prior is None:
        return np.full(size, 1.0 / size)
    weights = checks.array(name, checks.by_label(name, prior, names or range(size)))
    refuse(weights.shape != (size,), name, weights.shape, f"must be {size} probabilities, one per point")
    refuse((weights < 0).any(), name, weights, "must be non-negative")
    total = math.fsum(weights.tolist())
    refuse(abs(total - 1) > 1e-9, name, total, "must sum to 1; divide the weights by their sum first")
    # Do not normalise twice: a prior read from a file must equal the one written.
    return weights if abs(total - 1) <= 5e-16 else weights / total


def loss_matrix(loss: str | Numbers, space: MetricSpace | None, shape: tuple[int, int]) -> Array:
    """Return the matrix of losses ℓ(x, y) of reporting y for x.

    ``"metric"`` is d(x, y), ``"squared"`` its square, ``"error"`` 1 for any y ≠ x; or a matrix of the
    channel's shape.
    """
    if isinstance(loss, str):
        checks.one_of("loss", loss, ("metric", "squared", "error"))
        refuse(shape[0] != shape[1], "loss", loss, f"needs points as reports; pass a matrix of shape {shape}")
        if loss == "error":
            return 1.0 - np.eye(shape[0])
        if space is None:
            raise DesignError.of("loss", loss, "needs a metric space; give the channel its space")
        return checks.array("loss", space.distances if loss == "metric" else space.distances**2, ndim=2)
    items = range(shape[0]) if space is None else space.names or range(shape[0])
    reports = items if set(getattr(loss, "columns", ())) == set(items) else None
    values = checks.array("loss", checks.by_label("loss", loss, items, reports), ndim=None)
    refuse(values.shape != shape, "loss", values.shape, f"needs a row a point, a column a report: {shape}")
    return values


class Response(Rows, Drawn):
    """Base of channels; subclasses define `size`, `outputs`, `space`, the matrix or transforms, and `integers`."""

    space: MetricSpace | None
    epsilon: float
    """Pure local-DP loss: the largest log-ratio of any report over any two items, rounded up."""

    @property
    def size(self) -> int:
        """Number of items."""
        raise NotImplementedError

    @property
    def outputs(self) -> int:
        """Number of reports; by default as many as items."""
        return self.size

    @property
    def laws(self) -> int:
        return self.size

    @property
    def dense(self) -> Array:
        """The matrix, shape (size, outputs), built when read."""
        raise NotImplementedError

    @property
    def inverse(self) -> Array:
        """The right inverse Q, shape (outputs, size), dense."""
        raise NotImplementedError

    def metric_loss(self, space: MetricSpace | None = None) -> float:
        """Return the exact metric loss against `space` (its own by default), rounded up; ``inf`` if a report rules out an item."""
        return metric_loss(self.dense, self.measured(space).distances)

    def measured(self, space: MetricSpace | None) -> MetricSpace:
        """Return `space`, by default the channel's own, or raise a `DesignError` if it does not fit."""
        found = self.space if space is None else checks.instance("space", space, MetricSpace)
        if found is None:
            raise DesignError("space: this channel has none; use metric_loss(space)")
        refuse(found.size != self.size, "space", found.size, f"must have one point per item ({self.size})")
        if self.space is not None and self.space.names and found.names:
            return found.ordered(self.space.names)
        return found

    def apply(self, histogram: Numbers) -> Array:
        """Return the distribution of reports for items distributed as `histogram`: f ↦ f·C, over the last axis."""
        return self._vectors("histogram", histogram, self.size) @ self.dense

    def unbias(self, reports: Numbers) -> Array:
        """Apply the right inverse of the channel: q ↦ q·Q with C·Q = I, over the last axis."""
        return self._vectors("reports", reports, self.outputs) @ self.inverse

    def unbias_squares(self, reports: Numbers) -> Array:
        """Return the second moments of the estimates, q ↦ q·(Q∘Q)."""
        return self._vectors("reports", reports, self.outputs) @ self.inverse**2

    def _vectors(self, name: str, values: Numbers, length: int) -> Array:
        """Return `values` as floats with that many entries in the last axis, or raise a `DataError`."""
        found = checks.finite(name, values)
        if found.shape[-1:] != (length,) or not found.size:
            raise DataError(f"{name}: must have {length} entries in its last axis")
        return found

    def second_moments(self, space: MetricSpace) -> tuple[float, float]:
        r"""Return (S, S_A): the largest :math:`\sum_y P[x,y]\|Q_y\|^2`, over points and over the clusters of `space`.

        S_A is 1 if the space has no clusters or only one.
        """
        space, matrix, inverse = self.measured(space), self.dense, self.inverse
        points = float((matrix @ (inverse**2).sum(axis=1)).max())
        if space.kind != "clustered" or space.shape[0] == 1:
            return points, 1.0
        sums = inverse.reshape(len(inverse), *space.shape).sum(axis=-1)
        return points, float((matrix @ (sums**2).sum(axis=1)).max())

    @property
    def places(self) -> tuple[str, ...]:
        """Names of the reports if they are named points, else ()."""
        return () if self.space is None or self.outputs != self.size else tuple(self.space.names)

    def drawn(self, items: Numbers, source: Simulation | Deployment) -> Indices:
        """Draw a report for every item, in the shape of `items`, with the randomness of `source`.

        Items may be names, if the space has names; reports that are points are then names too. The time of looking names
        up depends on their letters.
        """
        held = numbered("items", items, self.size, () if self.space is None else self.space.names)
        checks.instance("source", source, Simulation, Deployment)
        found = self._report(held.ravel(), source).reshape(held.shape)
        if not (self.places and np.asarray(items).dtype.kind in "OU"):
            return found
        places: npt.NDArray[Any] = np.array(self.places)
        return places[found]

    def _report(self, items: Indices, source: Simulation | Deployment) -> Indices:
        return source.choose(self, items)


def _stochastic(name: str, value: Numbers) -> Array:
    matrix = checks.array(name, value, ndim=2)
    refuse((matrix < 0).any(), name, float(matrix.min()), "every probability must be >= 0")
    off = np.abs((sums := matrix.sum(axis=1)) - 1)
    if (off > 1e-6).any():
        row = int(off.argmax())
        raise DesignError(f"{name}: row {row} sums to {sums[row]!r}; divide every row by its sum first")
    return matrix


@serializable("channel", eq=False)
class Channel(Checked, Response):
    r"""A channel given by its matrix.

    Parameters
    ----------
    matrix : array, shape (n, k)
        Row x holds the probabilities of the k reports of item x; rows sum to 1 within 10⁻⁶ and are
        divided by their exact sum.
    space : MetricSpace, optional
        The items' metric space, n points, to which `alpha` and the metric losses refer.
    weights : sequence of sequences of int, optional
        Integer weights in place of the matrix's doubles: the exact
        probabilities are ``weights[x][y] / sum(weights[x])`` and `matrix` is rounded from them.

    Raises
    ------
    DesignError
        Negative entries, rows that do not sum to 1, or a space of another size.

    Examples
    --------
    >>> import numpy as np
    >>> space = MetricSpace.line([0.0, 1.0])
    >>> channel = Channel([[0.75, 0.25], [0.25, 0.75]], space=space)
    >>> round(channel.alpha, 6), channel.alpha >= math.log(3)
    (1.098612, True)
    >>> channel.expected_loss()
    0.25
    >>> channel.sample([0, 1, 1], rng=0).shape
    (3,)
    """

    matrix: Array = field(check=_stochastic)
    space: MetricSpace | None = field(MetricSpace, default=None)
    weights: Weights | None = field(check=integer_weights, default=None)

    def _post_check(self) -> None:
        if self.space is not None:
            self.measured(self.space)
        if self.weights is not None:
            exact = rounded_weights(self.weights)
            if exact.shape != self.matrix.shape or not np.allclose(exact, self.matrix, rtol=1e-12, atol=0.0):
                raise DesignError("weights: are not those of the matrix; build the channel by from_weights")
            checks.settle(self, matrix=exact)
        self.matrix.setflags(write=False)

    @classmethod
    def from_weights(cls, weights: Sequence[Sequence[int]], space: MetricSpace | None = None) -> Channel:
        """Return the channel with exactly the probabilities ``weights[x][y] / sum(weights[x])``."""
        held = integer_weights("weights", weights)
        return cls(rounded_weights(held), space, held)

    @property
    def size(self) -> int:
        return len(self.matrix)

    @property
    def outputs(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def dense(self) -> Array:
        return self.matrix

    # ------------------------------------------------------------------ privacy and loss

    @cached_property
    def alpha(self) -> float:
        """Exact metric loss α₀ per unit of the space's distance, rounded up."""
        return self.metric_loss()

    def metric_loss(self, space: MetricSpace | None = None) -> float:
        return metric_loss(self.matrix, self.measured(space).distances, self.weights, best=self.quotients())

    def quotients(self, deadline: Deadline | None = None) -> Array:
        """Return the largest quotient of two items' rows, for every two; all losses follow from these. Raise SolverError after the deadline."""
        if "_best" not in self.__dict__:
            self.__dict__["_best"] = largest_quotients(self.matrix, Deadline.of(deadline))
        return np.asarray(self.__dict__["_best"])

    @cached_property
    def epsilon(self) -> float:  # type: ignore[override]
        """Pure local-DP loss: the largest log-ratio of any report over any two items, rounded up."""
        return metric_loss(self.matrix, np.ones((self.size, self.size)), self.weights, best=self.quotients())

    def expected_loss(self, loss: str | Numbers = "metric", prior: Numbers | None = None) -> float:
        r"""Return the expected loss :math:`\sum_x π_x \sum_y C[x, y]\, ℓ(x, y)`."""
        values = loss_matrix(loss, self.space, self.matrix.shape)
        return math.fsum((self._prior(prior)[:, None] * self.matrix * values).ravel().tolist())

    def _prior(self, given: Numbers | None) -> Array:
        return check_prior("prior", given, self.size, () if self.space is None else self.space.names)

    def remapped(self, loss: str | Numbers = "metric", prior: Numbers | None = None) -> Channel:
        """Replace every report by the point of least posterior expected loss (post-processing: α₀ can only fall).

        `loss` is a name or an (items × points) matrix; the result reports points of the space.
        """
        values = loss_matrix(loss, self.space, (self.size, self.size))
        joint = self._prior(prior)[:, None] * self.matrix
        target = (joint.T @ values).argmin(axis=1)
        merged = np.zeros((self.size, self.size))
        np.add.at(merged.T, target, self.matrix.T)
        return Channel(merged, self.space)

    # ------------------------------------------------------------------ inversion and sampling

    @cached_property
    def inverse(self) -> Array:
        """Right inverse Q with C·Q = I (the least-norm one if there are more reports than items).

        Raises
        ------
        DesignError
            The rows are linearly dependent: two histograms give the same reports.
        """
        singular = np.linalg.svd(self.matrix, compute_uv=False)
        rank = int((singular > 1e-12 * singular[0]).sum())
        if self.outputs < self.size or rank < self.size:
            raise DesignError(
                f"channel: singular (rank {rank} for {self.size} items), so the histogram cannot be recovered "
                "from its reports; mix it with a little of the identity or of metric randomised response, or "
                "use ClusteredResponse, KaryResponse or HadamardResponse"
            )
        square = self.size == self.outputs
        inverse = np.linalg.inv(self.matrix) if square else np.linalg.pinv(self.matrix, rcond=1e-15)
        # Both satisfy Q·1 = 1 in exact arithmetic (square) or after this shift along the null space of C.
        inverse = inverse + (1.0 - inverse.sum(axis=1, keepdims=True)) / self.size
        inverse.setflags(write=False)
        return np.asarray(inverse)

    def cumulative(self, row: int) -> Array:
        sums = np.cumsum(self.matrix[checks.integer("row", row, 0, self.size - 1)])
        return np.where(sums >= sums[-1], 1.0, sums / sums[-1])[:-1]

    def integers(self, row: int) -> Sequence[int]:
        row = checks.integer("row", row, 0, self.size - 1)
        return integer_rows(self.matrix[[row]])[0] if self.weights is None else self.weights[row]

    # ------------------------------------------------------------------ ready-made channels

    @classmethod
    def exponential(
        cls, space: MetricSpace, alpha: float, *, calibrated: bool = True, time_limit: float | None = None
    ) -> Channel:
        r"""Return the exponential mechanism :math:`C[x, y] ∝ e^{-β d(x, y)}` with β = α/2, or the largest β that is α-private.

        The factor 2 covers the rows' different normalisers; `calibrated` computes and proves the actual loss
        (β = α if all normalisers agree). Distances beyond 600/β are truncated to it, which is a metric
        too: doubles would underflow. If the loss is not known in time, SolverError is raised.
        """
        deadline = Deadline(time_limit)
        alpha = checks.positive("alpha", alpha, side=checks.DOWN)
        distances = checks.instance("space", space, MetricSpace).distances
        checks.one_of("calibrated", calibrated, (True, False))

        def at(beta: float) -> Channel:
            return cls(exponential(space, beta), space)

        least = alpha / 2 * (1 - 1e-12)
        if calibrated:
            root = exponential_rate(distances, alpha)
            for step in (0.0, *(10.0**-k for k in range(14, 5, -1))):
                tried = at(root * (1 - step))
                tried.quotients(deadline)
                if root * (1 - step) > least and tried.alpha <= alpha:
                    return tried
        return at(least)


def exponential(space: MetricSpace, beta: float) -> Array:
    """Return rows ∝ e^{-βd}, in doubles."""
    kernel = np.exp(-np.minimum(beta * space.distances, _FAR))
    return np.asarray(kernel / kernel.sum(axis=1, keepdims=True))


def exponential_rate(distances: Array, alpha: float) -> float:
    """Return the largest β, at least α/2, at which rows ∝ e^{-βd} are `alpha`-private, up to rounding."""
    apart, least = distances > 0, alpha / 2 * (1 - 1e-12)

    def excess(beta: float) -> float:
        # By the triangle inequality the report x itself has the largest quotient of x and x': n² numbers, not n³.
        near = np.minimum(beta * distances, _FAR)
        total = np.log(np.exp(-near).sum(axis=1))
        losses = (near + total[None, :] - total[:, None])[apart] / distances[apart]
        return float(losses.max(initial=0.0)) - alpha

    return float(safe_root(excess, least, alpha, xtol=1e-15 * alpha) if excess(least) < 0 else least)


# -- exact arithmetic -----------------------------------------------------------------------------------------

# Relative error of a quotient of two entries and two row sums (each correctly rounded, weights rounded to
# doubles first), doubled; and of a logarithm accurate to an ulp.
_ROUNDING = 16 * 2.0**-53
_MANY = 300_000  # quotients near the maximum beyond which the margin is not narrowed


def common_integers(values: Array) -> tuple[npt.NDArray[np.object_], int]:
    """Return doubles as an array of integers of any size over one common power of two."""
    pairs = [v.as_integer_ratio() for v in values.ravel().tolist()]
    common = max((d for _, d in pairs), default=1)
    return np.array([n * (common // d) for n, d in pairs], dtype=object).reshape(values.shape), common


def integer_rows(matrix: Array) -> Weights:
    """Return integers proportional to each row of doubles, exactly (no rounding).

    Examples
    --------
    >>> integer_rows(np.array([[0.5, 0.25, 0.25]]))
    ((2, 1, 1),)
    """
    return tuple(tuple(common_integers(row)[0].tolist()) for row in matrix)


def _quotients(matrix: Array, sums: Array, x: int, others: Indices) -> Array:
    """Return C[x, y] / C[x', y] for given x' and all y, with rows relative to their sums; 0/0 counts as 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = matrix[x] / matrix[others]
        ratio[np.isnan(ratio)] = 0.0
        return np.asarray(ratio * (sums[others] / sums[x])[:, None])


def _row_sums(matrix: Array) -> Array:
    return np.array([math.fsum(row.tolist()) for row in matrix])


def largest_quotients(matrix: Array, deadline: Deadline | None = None) -> Array:
    """Return the largest quotients over y, for every x and x' (1 on the diagonal), in O(n²k) operations.

    Raise SolverError after the deadline: no loss is known before the last row.
    """
    sums = _row_sums(matrix)
    best, ratio, zeros = np.empty((len(matrix), len(matrix))), np.empty_like(matrix), not matrix.all()
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for x, row in enumerate(matrix):
            if deadline is not None and deadline.passed:
                raise SolverError(
                    f"the exact loss of a channel of {len(matrix)} items was not known within the time limit: give it more "
                    "time, fewer points, or a clustered space, whose channel needs no table",
                    solver="metric-loss",
                    status="limit",
                )
            np.divide(row, matrix, out=ratio)
            if zeros:
                ratio[np.isnan(ratio)] = 0.0
            best[x] = ratio.max(axis=1) * (sums / sums[x])  # rounding is monotone: the largest stays so
    np.fill_diagonal(best, 1.0)
    best.setflags(write=False)
    return best


def _upper(best: Array, distances: Array) -> float:
    above = best > 1.0
    if not above.any():
        return 0.0
    if np.isinf(best[above]).any() or (distances[above] == 0).any():
        return math.inf
    logs = np.log(best[above]) * (1 + _ROUNDING) + _ROUNDING
    return float(np.nextafter((logs / distances[above]).max(), np.inf))


def metric_loss(
    matrix: Array,
    distances: Array,
    weights: Sequence[Sequence[int]] | None = None,
    *,
    best: Array | None = None,
) -> float:
    """Return the exact metric loss α₀ of a row-stochastic matrix, rounded up; ``inf`` if a column has both zeros and positive entries.

    Parameters
    ----------
    matrix : array, shape (n, k)
        Rows, relative to their own exact sums.
    distances : array, shape (n, n)
    weights : integers, shape (n, k), optional
        The exact rows, if `matrix` is rounded from them.
    best : array, shape (n, n), optional
        `largest_quotients` of the matrix, if they are known.

    Examples
    --------
    >>> round(metric_loss(np.array([[0.75, 0.25], [0.25, 0.75]]), np.array([[0.0, 2.0], [2.0, 0.0]])), 6)
    0.549306
    """
    sums, best = _row_sums(matrix), largest_quotients(matrix) if best is None else best
    upper = _upper(best, distances)
    if not 0 < upper < math.inf:
        return upper
    shortest = float(distances[distances > 0].min())
    margin = 4 * _ROUNDING * (upper + 1 / shortest)
    reach = (upper - 2 * margin) * distances - _ROUNDING
    near: list[tuple[int, int, int]] = []
    with np.errstate(divide="ignore"):
        close = np.log(best) >= reach
        np.fill_diagonal(close, False)
        for x in np.flatnonzero(close.any(axis=1)).tolist():
            others = np.flatnonzero(close[x])
            hits = np.log(_quotients(matrix, sums, x, others)) >= reach[x, others, None]
            near += [(x, int(others[i]), y) for i, y in np.argwhere(hits).tolist()]
            if len(near) > _MANY:
                return upper
    asked = sorted({item for x, other, _ in near for item in (x, other)})
    exact = integer_rows(matrix[asked]) if weights is None else [weights[x] for x in asked]
    rows = dict(zip(asked, exact))
    totals = {x: sum(row) for x, row in rows.items()}
    quotients = {
        (Fraction(rows[x][y] * totals[other], rows[other][y] * totals[x]), float(distances[x, other]))
        for x, other, y in near
    }
    return max(0.0, round_up(max(log_above(ratio) / Fraction(d) for ratio, d in quotients)))


BITS = 120
_SHIFT = 192  # fractional bits of bounds of exponentials
_SPANNED = 128  # αd beyond which the bound of e^{αd} stays: weights span less than e^{84}
STEEP = _SPANNED / 2
"""αd beyond which weights do not fall further."""
_WHAT = "exact channel"
_EMPTY = 1e-28  # columns below this everywhere are the solver's zeros


@lru_cache(maxsize=1 << 16)
def _rate(alpha: float, distance: float) -> int:
    """Return a lower bound of e^{αd} as an integer over ``2**_SHIFT``."""
    low = exp_lower(min(Fraction(alpha) * Fraction(distance), Fraction(_SPANNED)))
    return (low.numerator << _SHIFT) // low.denominator


def _decay(distances: Array, alpha: float) -> Array:
    """Return e^{-αd}, bounded below so that even next to the largest weight no weight falls below one unit."""
    return np.exp(-np.minimum(alpha * distances, STEEP))


def _closure(matrix: Array, distances: Array, alpha: float, deadline: Deadline) -> Array:
    decay = _decay(distances, alpha)
    closed = np.zeros_like(matrix)
    for x in range(len(matrix)):
        deadline.hold(_WHAT)
        np.maximum(closed, decay[:, x, None] * matrix[x], out=closed)
    return closed


def _surplus(column: list[int], distances: Array, alpha: float) -> int:
    """Return the least number that makes a column private if it is added to every entry."""
    unit = 1 << _SHIFT
    # Doubles select the pairs that may need the largest number; only these are compared in integers.
    near, growth = np.array(column, dtype=float), np.expm1(np.minimum(alpha * distances, _SPANNED))
    with np.errstate(all="ignore"):
        least = (np.subtract.outer(near, near) - growth * near) / growth
        error = 1e-12 * (np.add.outer(near, near) / growth + near + np.abs(least)) + 1
        np.fill_diagonal(least, -np.inf)
        clear = least + error < max(float(np.nanmax(least - error, initial=0.0)), 0.0)
    need = 0
    for x, other in np.argwhere(~clear).tolist():
        rate = _rate(alpha, float(distances[x, other]))
        excess = column[x] * unit - rate * column[other]
        if other != x and excess > 0:
            need = max(need, -(-excess // (rate - unit)))
    return need


def private_weights(
    matrix: Array, distances: Array, alpha: float, cost: Array, deadline: Deadline | None = None
) -> Weights:
    """Return integer weights with equal row sums that satisfy α-d-privacy exactly and are close to `matrix`.

    Parameters
    ----------
    matrix : array, shape (n, k)
        Nearly private probabilities.
    distances : array, shape (n, n)
    alpha : float
        Read as an exact rational, like the distances.
    cost : array, shape (n, k)
        Prior times loss: selects the report that receives the last correction.
    deadline : Deadline, optional
        Deadline after which SolverError is raised.
    """
    deadline = Deadline.of(deadline)
    matrix = np.where(matrix.max(axis=0) >= _EMPTY, np.maximum(matrix, 0.0), 0.0)
    closed = _closure(matrix, distances, alpha, deadline)
    columns = [[-((-n << BITS) // d) for n, d in map(float.as_integer_ratio, c)] for c in closed.T.tolist()]
    sums = list(map(sum, zip(*columns)))
    deficits = [max(sums) - s for s in sums]
    # Any report may take what rows lack; take the one that costs least.
    target = int((np.array(deficits, dtype=float) @ cost).argmin())
    columns[target] = [w + lack for w, lack in zip(columns[target], deficits)]
    for y, column in enumerate(columns):
        deadline.hold(_WHAT)
        if any(column) and (more := _surplus(column, distances, alpha)):
            columns[y] = [w + more for w in column]
    return tuple(zip(*columns))

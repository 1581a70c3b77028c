r"""Channels on finite sets: what reports an item, with which probability.

A channel is a row-stochastic matrix :math:`C[x, y] = P[\text{report } y \mid \text{item } x]`. It says itself
how private it is. Against a metric space its *exact metric loss* is

.. math:: \alpha_0 = \max_{x \ne x'} \frac{1}{d(x, x')} \max_y \log \frac{C[x, y]}{C[x', y]},

the smallest α for which it is α-d-private; it is rounded up, never down.

What is analysed is what is sampled: row x of the matrix stands for the rational probabilities
``matrix[x] / sum(matrix[x])`` (doubles are dyadic rationals, so these are exact), or for integer `weights`
where they are given. `Channel.sample_exact` draws from those integers with the operating system's generator.
"""

from __future__ import annotations

import math
import secrets
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mechdesign.channels.channel_loss import integer_rows, metric_loss
from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import serializable
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array

__all__ = ["Channel", "Response", "check_prior", "loss_matrix"]

Ints = NDArray[np.int64]


def check_prior(prior: ArrayLike | None, size: int) -> Array:
    """Return `prior` as an array that sums to 1, uniform when None.

    Raises
    ------
    DesignError
        Wrong length, negative or not finite entries, or a sum that is not 1 within 10⁻⁹.
    """
    if prior is None:
        return np.full(size, 1.0 / size)
    try:
        array = np.asarray(prior, dtype=float)
    except (TypeError, ValueError):
        raise DesignError.of("prior", prior, "must be an array of probabilities") from None
    if array.shape != (size,):
        raise DesignError.of("prior", array.shape, f"must have one probability per point, shape ({size},)")
    if not np.isfinite(array).all() or (array < 0).any():
        raise DesignError.of("prior", array, "must be finite and non-negative")
    total = math.fsum(array.tolist())
    if abs(total - 1) > 1e-9:
        raise DesignError.of("prior", total, "must sum to 1; divide the weights by their sum first")
    return array / total


def loss_matrix(loss: str | ArrayLike, space: MetricSpace | None, shape: tuple[int, int]) -> Array:
    """Return the matrix of losses ℓ(x, y) of reporting y for x.

    ``"metric"`` is d(x, y), ``"squared"`` its square, ``"error"`` 1 for any y ≠ x; or a matrix of the
    channel's shape.
    """
    if isinstance(loss, str):
        if loss not in ("metric", "squared", "error"):
            raise DesignError.of("loss", loss, 'must be "metric", "squared", "error" or a matrix')
        if shape[0] != shape[1]:
            raise DesignError.of("loss", loss, f"needs reports to be points; pass a matrix of shape {shape}")
        if loss == "error":
            return 1.0 - np.eye(shape[0])
        if space is None:
            raise DesignError.of("loss", loss, "needs a metric space; give the channel its space")
        return space.distances.copy() if loss == "metric" else space.distances**2
    array = np.array(loss, dtype=float)
    if array.shape != shape:
        raise DesignError.of(
            "loss", array.shape, f"must have one row per point and column per report, {shape}"
        )
    if not np.isfinite(array).all():
        raise DesignError("loss: every entry must be finite; forbid a report with a large loss instead")
    return array


class Response:
    """What every channel offers; subclasses give `size`, `outputs`, `space` and the matrix or transforms."""

    space: MetricSpace | None

    @property
    def size(self) -> int:
        """Number of items."""
        raise NotImplementedError

    @property
    def outputs(self) -> int:
        """Number of reports."""
        raise NotImplementedError

    @property
    def dense(self) -> Array:
        """The matrix, shape (size, outputs), built when asked for."""
        raise NotImplementedError

    def apply(self, histogram: ArrayLike) -> Array:
        """Distribution of the reports of items distributed as `histogram`: f ↦ f·C, over the last axis."""
        return np.asarray(histogram, dtype=float) @ self.dense

    def unbias(self, reports: ArrayLike) -> Array:
        """Apply the right inverse of the channel: q ↦ q·Q with C·Q = I, over the last axis."""
        return np.asarray(reports, dtype=float) @ self.inverse

    @property
    def inverse(self) -> Array:
        """The right inverse Q, shape (outputs, size), dense."""
        raise NotImplementedError

    def check_items(self, items: ArrayLike) -> Ints:
        """Return `items` as indices into the rows, or raise a `DesignError`."""
        return check_indices("items", items, self.size)

    def sample(self, items: ArrayLike, rng: Any = None) -> Ints:
        """Draw a report for every item, in the shape of `items`.

        Fast and vectorised, for simulation: it works with doubles and is not the certified sampler; deploy
        `sample_exact`.

        Parameters
        ----------
        items : int or array of int
        rng : int or numpy Generator, optional
        """
        raise NotImplementedError

    def sample_exact(self, items: ArrayLike) -> Ints:
        """Draw reports with exactly the analysed probabilities, from the operating system's randomness.

        Integer weights, `secrets.randbelow` (unbiased), no floating point.
        """
        array = self.check_items(items)
        out = np.array([self._draw(int(x)) for x in array.ravel()], dtype=np.int64)
        return out.reshape(array.shape)

    def _draw(self, item: int) -> int:
        raise NotImplementedError


def check_indices(name: str, values: ArrayLike, size: int) -> Ints:
    """Return `values` as an integer array with entries in 0..size−1, or raise a `DesignError`."""
    array = np.asarray(values)
    if array.size == 0:
        raise DesignError.of(name, values, "is empty; at least one is needed")
    if array.dtype.kind not in "iu":
        numbers = np.asarray(array, dtype=float)
        if not (np.isfinite(numbers).all() and (numbers == np.floor(numbers)).all()):
            raise DesignError.of(name, values, f"must be integers in 0..{size - 1}")
    array = array.astype(np.int64)
    if (array < 0).any() or (array >= size).any():
        bad = int(array[(array < 0) | (array >= size)].ravel()[0])
        raise DesignError.of(name, bad, f"must be in 0..{size - 1}")
    return array


@serializable("channel")
@dataclass(frozen=True, eq=False)
class Channel(Response):
    r"""A channel given by its matrix.

    Parameters
    ----------
    matrix : array, shape (n, k)
        Row x holds the probabilities of the k reports of item x; rows sum to 1 within 10⁻⁶ and stand for
        themselves divided by their exact sum.
    space : MetricSpace, optional
        The items' metric space, n points: what `alpha` and the metric losses refer to.
    weights : sequence of sequences of int, optional
        Integer weights with the same total in every row, in place of the matrix's doubles: the exact
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
    >>> round(channel.alpha, 12), channel.alpha >= math.log(3)
    (1.098612288668, True)
    >>> channel.expected_loss()
    0.25
    >>> channel.sample([0, 1, 1], rng=0).shape
    (3,)
    """

    matrix: Array
    space: MetricSpace | None = None
    weights: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        try:
            matrix = np.array(self.matrix, dtype=float)
        except (TypeError, ValueError):
            raise DesignError.of("matrix", self.matrix, "must be an array of probabilities") from None
        if matrix.ndim != 2 or 0 in matrix.shape:
            raise DesignError.of("matrix", matrix.shape, "must have shape (items, reports)")
        if not np.isfinite(matrix).all() or (matrix < 0).any():
            bad = matrix[~(np.isfinite(matrix) & (matrix >= 0))][0]
            raise DesignError.of("matrix", float(bad), "every probability must be finite and >= 0")
        sums = matrix.sum(axis=1)
        if (np.abs(sums - 1) > 1e-6).any():
            row = int(np.abs(sums - 1).argmax())
            raise DesignError(f"matrix: row {row} sums to {sums[row]!r}; divide every row by its sum first")
        if self.space is not None and self.space.size != len(matrix):
            raise DesignError.of("space", self.space.size, f"must have one point per row ({len(matrix)})")
        if self.weights is not None:
            weights = tuple(tuple(int(w) for w in row) for row in self.weights)
            totals = {sum(row) for row in weights}
            if len(weights) != len(matrix) or len(totals) != 1 or min(min(row) for row in weights) < 0:
                raise DesignError("weights: must be non-negative integers with the same total in every row")
            object.__setattr__(self, "weights", weights)
        matrix.setflags(write=False)
        object.__setattr__(self, "matrix", matrix)

    @classmethod
    def from_weights(cls, weights: Sequence[Sequence[int]], space: MetricSpace | None = None) -> Channel:
        """The channel with probabilities ``weights[x][y] / total``, exactly."""
        total = sum(weights[0])
        matrix = np.array([[w / total for w in row] for row in weights])  # int / int rounds correctly
        return cls(matrix, space, tuple(tuple(row) for row in weights))

    @property
    def size(self) -> int:
        return int(self.matrix.shape[0])

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
        if self.space is None:
            raise DesignError("space: this channel has none; use metric_loss(space)")
        return self.metric_loss(self.space)

    def metric_loss(self, space: MetricSpace) -> float:
        """Exact metric loss against `space`, rounded up; ``inf`` if some report gives an item away."""
        if space.size != self.size:
            raise DesignError.of("space", space.size, f"must have one point per row ({self.size})")
        return metric_loss(self.matrix, space.distances, self.weights)

    @cached_property
    def epsilon(self) -> float:
        """Pure local-DP loss: the largest log-ratio of any report over any two items, rounded up."""
        return metric_loss(self.matrix, np.ones((self.size, self.size)), self.weights)

    def expected_loss(self, loss: str | ArrayLike = "metric", prior: ArrayLike | None = None) -> float:
        r"""Expected loss :math:`\sum_x π_x \sum_y C[x, y]\, ℓ(x, y)`."""
        values = loss_matrix(loss, self.space, self.matrix.shape)
        weights = check_prior(prior, self.size)
        return math.fsum((weights[:, None] * self.matrix * values).ravel().tolist())

    def remapped(self, loss: str | ArrayLike = "metric", prior: ArrayLike | None = None) -> Channel:
        """Replace every report by the point of least posterior expected loss (post-processing: α₀ can only fall).

        `loss` is a name or an (items × points) matrix; the result reports points of the space.
        """
        values = loss_matrix(loss, self.space, (self.size, self.size))
        joint = check_prior(prior, self.size)[:, None] * self.matrix
        target = (joint.T @ values).argmin(axis=1)
        merged = np.zeros((self.size, self.size))
        np.add.at(merged.T, target, self.matrix.T)
        return Channel(merged, self.space)

    # ------------------------------------------------------------------ inversion and sampling

    @cached_property
    def inverse(self) -> Array:
        """Right inverse Q with C·Q = I (the least-norm one when there are more reports than items).

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
        inverse = (
            np.linalg.inv(self.matrix)
            if self.size == self.outputs
            else np.linalg.pinv(self.matrix, rcond=1e-15)
        )
        # Both satisfy Q·1 = 1 in exact arithmetic (square) or after this shift along the null space of C.
        inverse = inverse + (1.0 - inverse.sum(axis=1, keepdims=True)) / self.size
        inverse.setflags(write=False)
        return inverse

    @cached_property
    def _cumulative(self) -> Array:
        return np.cumsum(self.matrix / self.matrix.sum(axis=1, keepdims=True), axis=1)

    def sample(self, items: ArrayLike, rng: Any = None) -> Ints:
        """Draw a report for every item; see `Response.sample`."""
        array = self.check_items(items)
        generator = np.random.default_rng(rng)
        flat = array.ravel()
        uniform = generator.random(flat.size)
        out = np.empty(flat.size, dtype=np.int64)
        for x in np.unique(flat):
            here = flat == x
            out[here] = np.searchsorted(self._cumulative[x, :-1], uniform[here], side="right")
        # A zero-probability report at the end of a row must not be reached through rounding.
        last = self.outputs - 1 - (self.matrix[:, ::-1] > 0).argmax(axis=1)
        return np.minimum(out, last[flat]).reshape(array.shape)

    @cached_property
    def _tables(self) -> list[list[int]]:
        rows = self.weights if self.weights is not None else integer_rows(self.matrix)
        return [list(accumulate(row)) for row in rows]

    def _draw(self, item: int) -> int:
        table = self._tables[item]
        return bisect_right(table, secrets.randbelow(table[-1]))

    # ------------------------------------------------------------------ ready-made channels

    @classmethod
    def exponential(cls, space: MetricSpace, alpha: float, *, calibrated: bool = True) -> Channel:
        r"""Exponential mechanism :math:`C[x, y] ∝ e^{-β d(x, y)}` with β = α/2, or the largest β that is α-private.

        The factor 2 pays for the rows' different normalisers; `calibrated` measures what they really cost,
        by bisection on the exact metric loss (β = α where all normalisers agree).
        """
        alpha = check_alpha(alpha)
        distances = space.distances

        def at(beta: float) -> Channel:
            kernel = np.exp(-beta * distances)
            return cls(kernel / kernel.sum(axis=1, keepdims=True), space)

        low, high = alpha / 2 * (1 - 1e-12), alpha
        if not calibrated:
            return at(low)
        best = at(low)
        for _ in range(40):
            middle = (low + high) / 2
            tried = at(middle)
            if tried.alpha <= alpha:
                low, best = middle, tried
            else:
                high = middle
        return best


def check_alpha(alpha: Any) -> float:
    """Return α as a float, or raise a `DesignError` unless it is positive and finite."""
    try:
        value = float(alpha)
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise DesignError.of(
            "alpha", alpha, "must be a positive, finite privacy parameter per unit of distance"
        )
    return value

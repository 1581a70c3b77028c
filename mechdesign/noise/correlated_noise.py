r"""Correlated Gaussian noise given by a matrix R, a whitening of numbers or a strategy for linear queries: its budget and its exact release.

A change v consumes :math:`\lVert R v \rVert^2`, a sum of squares of exact numbers. A release is
:math:`\lfloor Rf/h + 1/2 \rfloor` in exact arithmetic, plus discrete Gaussians: rounded images of neighbours are at
most :math:`\lVert Rv \rVert + h\sqrt r \le \mu + h\sqrt r` apart, so that noise of deviation :math:`1 + h\sqrt r/\mu`
consumes no more than the budget.

A matrix mechanism releases :math:`z = R x + \mathcal N(0, I)` of counts x, and computes the answers from it. Where the
rows of A lie in the row space of R the answers :math:`A R^+ z` are unbiased, their covariance
:math:`A (R^\top R)^+ A^\top`. A triangular R answers counts as they come: z_t and answer t depend on the first t counts
alone, and privacy holds for counts chosen in view of earlier answers (Denisov, McMahan, Rush, Smith and Thakurta 2022).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy import linalg, stats

from mechdesign.accounting.gaussian import GaussianPrivacy, budget_worth, gaussian_budget
from mechdesign.accounting.profile import gaussian_tradeoff
from mechdesign.checks import Checked, answers, array, field, integer, positive, refuse
from mechdesign.doubles import TINY
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.exact import round_up
from mechdesign.evidence.results import Accuracy
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.release import AddedNoise, ExactNoise
from mechdesign.noise.vector_noise import accuracy_of
from mechdesign.plotting import draw_curves, draw_matrix
from mechdesign.problem.privacy import Consumption
from mechdesign.problem.spine import Design
from mechdesign.problem.workload import Lift, Span, Workload
from mechdesign.solvers.deadline import one_thread
from mechdesign.typing import Array, Figure, Numbers, Randomness

EXACT = 64
"""Largest dimension in which the budget consumed is a rational number; beyond, it is rounded up."""
Integers = npt.NDArray[np.object_]
"""Python's integers, of any size."""
_FINEST = 1126
"""Doubles, with mantissas of 53 bits, are whole multiples of 2^-1126."""


def within_budget(rows: Array, budget: float, spent: Callable[[Array], float]) -> Array:
    """Scale rows down until what they consume, exact or rounded up, is within the budget."""
    margin = 1e-15
    while (most := spent(rows)) > budget or margin == 1e-15:
        rows, margin = rows * (math.sqrt(budget / most) * (1 - margin)), 2 * margin
    return rows


class GaussianDesign(Design):
    """A design of Gaussian noise within one budget, for the total or the largest error."""

    privacy: GaussianPrivacy
    loss: str

    @cached_property
    def budget(self) -> float:
        r""":math:`\mu^2`, rounded down."""
        return gaussian_budget(self.privacy)

    @property
    def largest(self) -> bool:
        """Whether the loss is the largest error."""
        return self.loss == "largest"

    @property
    def worth(self) -> float:
        """The slack of the requirement beyond the budget."""
        return budget_worth(self.privacy, self.budget)


class NormalNoise(AddedNoise):
    """Independent Gaussian noise on one release, from which all answers are computed."""

    budget: float
    """μ²: no change consumes more."""

    @property
    @abstractmethod
    def variances(self) -> Array:
        """Variance of each answer."""

    @property
    def mse(self) -> float:
        """Sum of the variances of the answers, tr(AΣAᵀ)."""
        return float(self.variances.sum())

    def consumption(self) -> Consumption:
        """Return the budget of a release."""
        return Consumption.gaussian(self.budget)

    def tradeoff(self, at: Iterable[float] = ()) -> TradeOff:
        """Return the trade-off curve of all Gaussian noise within the budget."""
        return gaussian_tradeoff(self.budget, at)

    def errors(self) -> Accuracy:
        """Return the errors of an answer, on average over the answers."""
        return accuracy_of(np.sqrt(np.maximum(self.variances, 0.0)))

    def plot(self, **options: float) -> Figure:
        """Draw the standard deviation of each answer, or of a thousand of them."""
        variances = self.variances
        shown = np.unique(np.linspace(0, len(variances) - 1, 1000).astype(int))
        labels = {"xlabel": "answer", "ylabel": "standard deviation"}
        return draw_curves({"": (shown, np.sqrt(variances[shown]))}, options, **labels, ylim=(0, None))


def one_by_one(counts: Iterable[Numbers]) -> Iterator[Numbers]:
    """Return an iterator over the counts of a stream, or raise DataError."""
    with DataError.where("counts: must be an iterable, of one number after the other", TypeError):
        return iter(counts)


class LinearNoise(NormalNoise):
    """Independent Gaussian noise on whitened coordinates, from which a linear map makes the answers."""

    @property
    @abstractmethod
    def rows(self) -> Array:
        """R: a change v of what is answered consumes ‖R v‖²."""

    @cached_property
    def lattice(self) -> tuple[float, ExactNoise]:
        """Lattice step h, and the sampler of one whitened coordinate, widened for that lattice."""
        budget, rank = self.budget, len(self.rows)
        root = math.sqrt(budget)
        step = math.ldexp(1.0, min(-32, math.frexp(root)[1] - 32))
        wider = 1 + step * math.sqrt(rank) / root * (1 + 1e-9)
        return step, ExactNoise(stats.norm(scale=math.nextafter(wider, 2.0)), step)

    @property
    def step(self) -> float:
        """Lattice step of a release, of each whitened coordinate."""
        return self.lattice[0]

    @property
    def lattice_cost(self) -> float:
        """Relative increase of the standard deviations in a release."""
        return self.lattice[1].scale - 1.0


@serializable("correlated-gaussian-noise", eq=False)
class CorrelatedGaussianNoise(Checked, LinearNoise):
    r"""Gaussian noise N(0, Σ).

    Parameters
    ----------
    whitening : ndarray, shape (r, r)
        R: the coordinates P of the noise are :math:`R^{-1} z`, z standard normal, so that a change v consumes :math:`\lVert R v_P \rVert^2`.
    budget : float
        μ²: no change consumes more.
    coordinates : tuple of int, optional
        P, ascending; all when not given. Fewer than all need a lift.
    lift : tuple of tuple of Fraction, shape (K, r), optional
        E: the noise is :math:`E R^{-1} z`.

    Examples
    --------
    >>> CorrelatedGaussianNoise(np.eye(2) / 2, budget=1.0).covariance
    array([[4., 0.],
           [0., 4.]])
    """

    whitening: Array = field(check=array, ndim=2)
    budget: float = field(check=positive)
    coordinates: tuple[int, ...] | None = field(check=integer, least=0, many=True, default=None)
    lift: Lift | None = field(tuple, default=None)

    def _post_check(self) -> None:
        self._placed(len(self.whitening if self.lift is None else self.lift))
        # on one thread: where the cores are busy, others wait for it spinning, for seconds
        with one_thread():
            square = self.whitening.shape == (self.span.rank,) * 2
            if not square or not _independent(self.whitening, inverse_rows):
                allowed = "must be an invertible matrix, a row per coordinate"
                raise DesignError.of("whitening", self.whitening, allowed)

    def _placed(self, size: int) -> None:
        """Refuse coordinates and a lift that do not fit a subspace: another query would be released."""
        held = self.span.coordinates
        fits = all(a < b for a, b in pairwise((*held, size))) and (self.lift is not None or len(held) == size)
        allowed = "must be ascending, and all of them where there is no lift"
        refuse(not held or not fits, "coordinates", self.coordinates, allowed)
        if self.lift is not None:
            fits = all(isinstance(row, tuple) for row in self.lift)
            exact = fits and all(isinstance(x, (int, Fraction)) for row in self.lift for x in row)
            if not exact or [len(row) for row in self.lift] != [len(held)] * size:
                remedy = f"must be {size} rows of {len(held)} fractions each"
                raise DesignError.of("lift", type(self.lift).__name__, remedy)

    @property
    def dimension(self) -> int:  # type: ignore[override]
        return self.span.size

    @cached_property
    def span(self) -> Span:
        """The subspace of the noise."""
        size = len(self.whitening if self.lift is None else self.lift)
        return Span(size, tuple(range(size)) if self.coordinates is None else self.coordinates, self.lift)

    @cached_property
    def _factor(self) -> Array:
        """F, with Σ = F Fᵀ."""
        back = inverse_rows(self.whitening)
        return back if self.lift is None else self.span.matrix @ back

    @cached_property
    def covariance(self) -> Array:
        """Σ, E (RᵀR)⁻¹ Eᵀ."""
        return np.asarray(self._factor @ self._factor.T)

    @property
    def rows(self) -> Array:
        return self.whitening

    @property
    def variances(self) -> Array:
        """Variance of each number, shape (K,)."""
        return np.diag(self.covariance).copy()

    def release(self, x: Numbers) -> Array:
        """Return an answer with noise: for deployment.

        R f_P, in which neighbours may differ, is rounded to a lattice in exact arithmetic and gets Gaussian noise that is
        drawn exactly, from the operating system's randomness (`mechdesign.noise.release`); R⁻¹ and the lift are applied
        to what has been released. The part of f outside the span is the same for all neighbours and is kept.

        Parameters
        ----------
        x : array, shape (..., K)

        Raises
        ------
        DataError
            A number is not finite or, beyond 2⁵³, held by no double. The guarantee does not cover that refusal.
        """
        given = self._answers(x)
        rows = given.reshape(-1, self.dimension)
        step, noise = self.lattice
        held = rows[:, self.span.coordinates]
        with np.errstate(over="ignore", invalid="ignore"):
            out = released(self.whitening, held, step, noise) @ self._factor.T
            if self.lift is not None:
                out += outside(self.lift, held, rows)
        return out.reshape(given.shape)

    def plot(self, **options: float) -> Figure:
        """Draw the correlations as shades: 1 on the diagonal, 0 where two numbers get independent noise."""
        deviation = np.sqrt(np.maximum(np.diag(self.covariance), 1e-300))
        correlations = self.covariance / np.outer(deviation, deviation)
        return draw_matrix(correlations, "number", "number", (), (), -1, "correlation", **options)

    def _noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return rng.standard_normal((*shape[:-1], self._factor.shape[1])) @ self._factor.T


def _scaled(rows: Array) -> tuple[Array, Array]:
    """Return rows divided by powers of two near their largest entries, and these powers."""
    length = np.exp2(np.round(np.log2(np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-300))))
    return rows / length, length


def alike(rows: Array) -> tuple[Fraction, Fraction] | None:
    """Return p and q if a square matrix is p I + q J, under which all coordinates are alike; else None."""
    if rows.shape[0] != rows.shape[1]:
        return None
    off, own = float(rows[0, -1]) if len(rows) > 1 else 0.0, np.diag(rows)
    same = (own == own[0]).all() and np.count_nonzero(rows != off) == np.count_nonzero(own != off)
    return (Fraction(float(own[0])) - Fraction(off), Fraction(off)) if same else None


def inverse_rows(rows: Array) -> Array:
    """Return the inverse, accurate however the rows are scaled; that of p I + q J by its formula, as inverting takes most of a design of counts."""
    if (two := alike(rows)) is not None and (whole := two[0] * (two[0] + len(rows) * two[1])):
        return np.eye(len(rows)) / float(two[0]) - float(two[1] / whole)
    unit, length = _scaled(rows)
    return np.linalg.inv(unit) / length.T


def _independent(rows: Array, inverse: Callable[[Array], Array]) -> bool:
    """Return whether `inverse` gives a right inverse to 10⁻⁶, which it does if the rows are independent."""
    try:
        with np.errstate(all="ignore"):
            return bool(np.abs(rows @ inverse(rows) - np.eye(len(rows))).max() <= 1e-6)
    except (np.linalg.LinAlgError, OverflowError):
        return False


def released(whitening: Array, held: Array, step: float, noise: ExactNoise | None) -> Array:
    r"""Return R f with noise on the lattice, for each row f of `held`.

    All finite doubles take one path: each f is a whole number of units of 2⁻¹¹²⁶, fewer than 2²¹⁵¹. A larger public multiple of
    the lattice is added, which makes all these integers equally long, and subtracted once the noise is added:
    the same multiplications and shifts are done whatever f is, and nothing else depends on f before the noise.

    Parameters
    ----------
    whitening : ndarray, shape (r, k)
    held : ndarray, shape (n, k)
    step : float
        h, a power of two.
    noise : ExactNoise, optional
        None rounds R f to the lattice without noise.
    """
    r, r_unit = integers(whitening)
    unit = r_unit * Fraction(1, 2**_FINEST) / Fraction(step)
    bits = max(1, unit.denominator.bit_length() - unit.numerator.bit_length())  # of a step, in units of R f
    r = r * int(unit * 2**bits)
    far = 3 << max(bits, _FINEST + 1025)
    image = (_whole(held) + far) @ r.T + (1 << (bits - 1))
    draws = noise.draw(image.size).reshape(image.shape).astype(object) if noise else 0
    steps = (image >> bits) + draws - (far >> bits) * r.sum(axis=1)
    return _quotients(steps, round(1 / Fraction(step)))


def outside(lift: Lift, held: Array, rows: Array) -> Array:
    """Return f − E f_P of each row f, which is the same for all neighbours; all values take the same path."""
    common = math.lcm(*(x.denominator for row in lift for x in row))
    scaled = np.array([[int(x * common) for x in row] for row in lift], dtype=object)
    return _quotients(common * _whole(rows) - _whole(held) @ scaled.T, common << _FINEST)


def _whole(held: Array) -> Integers:
    """Return doubles as integers, in units of 2⁻¹¹²⁶."""
    mantissa, exponent = np.frexp(held)
    whole = (mantissa * 2.0**53).astype(np.int64).astype(object)
    return np.asarray(whole << (exponent + (_FINEST - 53)).astype(object))


def _quotients(numbers: Integers, divisor: int) -> Array:
    """Return integers divided by one integer as the nearest doubles, clipped to the largest double."""
    top = int(np.finfo(float).max) * divisor
    return np.asarray(np.clip(numbers, -top, top) / divisor, dtype=float)


def most_consumed(whitening: Array, vectors: Array) -> tuple[float, bool]:
    r"""Return the largest :math:`\lVert R v \rVert^2` over the rows v, rounded up, and whether it is exact before that.

    Doubles with an error bound select the vectors that can be the worst; up to 64 dimensions their budget is then computed as a
    rational number.
    """
    columns = vectors.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        image, size = vectors @ whitening.T, np.abs(vectors) @ np.abs(whitening).T
        error = (columns + 4) * 2.0**-53
        above = ((np.abs(image) + error * size) ** 2).sum(axis=1) * (1 + 4 * error)
        below = (np.maximum(np.abs(image) - error * size, 0.0) ** 2).sum(axis=1) * (1 - 4 * error)
    if columns > EXACT:
        most = float(above.max())
        # what underflows in a product is less than this
        return (most + columns * len(whitening) * TINY if most < math.inf else math.inf), False
    # vectors whose doubles overflow or underflow stay among the candidates
    sure = np.isfinite(above) & (below > 1e-200)
    worst = vectors[~sure | (above >= below[sure].max(initial=0.0))]
    r, r_unit = integers(whitening)
    v, v_unit = integers(worst)
    image = v @ r.T
    return round_up(Fraction(int((image * image).sum(axis=1).max())) * (r_unit * v_unit) ** 2), True


def column_bound(strategy: Array, most: float) -> float:
    r"""Return the largest :math:`\lVert R a e_j \rVert^2` over the columns j of R, rounded up: one entry changes, by a.

    A sum of r squares is off by at most r + 2 roundings in any order of summation; each underflow is less than `TINY`.

    Examples
    --------
    >>> 25.0 <= column_bound(np.array([[3.0, 1.0], [4.0, 1.0]]), 1.0) <= 25.0 + 1e-12
    True
    """
    with np.errstate(over="ignore"):
        longest = float((strategy**2).sum(axis=0).max()) + len(strategy) * TINY
        return longest * most * most * (1 + (len(strategy) + 8) * 2.0**-52) + TINY


def integers(matrix: Array) -> tuple[Integers, Fraction]:
    """Return the matrix as integers and a power of two to multiply them by, exactly."""
    ratios = [[x.as_integer_ratio() for x in row] for row in matrix.tolist()]
    unit = max(d for row in ratios for _, d in row)
    return np.array([[n * (unit // d) for n, d in row] for row in ratios], dtype=object), Fraction(1, unit)


FULL = 4096
"""Largest number of counts, or of queries, whose matrix is formed."""


@serializable("strategy-noise", eq=False)
class StrategyNoise(Checked, LinearNoise):
    """Noise on the answers to linear queries, made from one release of a strategy.

    Parameters
    ----------
    workload : Workload
        A.
    strategy : array_like, shape (r, n)
        R, of r independent rows in which those of A lie.
    budget : float
        μ²: no change of the counts consumes more.

    Examples
    --------
    >>> law = StrategyNoise(Workload.prefix_sums(3), np.eye(3), 1.0)
    >>> law.variances, law.mse, law.streams
    (array([1., 2., 3.]), 6.0, True)
    """

    workload: Workload = field(Workload)
    strategy: Array = field(check=array, ndim=2)
    budget: float = field(check=positive)

    def _post_check(self) -> None:
        strategy = self.strategy
        if strategy.shape[1] != self.workload.size or len(strategy) > self.workload.size:
            allowed = f"must have {self.workload.size} columns, and no more rows"
            raise DesignError.of("strategy", strategy.shape, allowed)
        if not _independent(strategy, lambda _: self.inverse):
            raise DesignError.of("strategy", strategy.shape, "must have independent rows")

    @property
    def triangular(self) -> bool:
        """Whether row t of the strategy uses the first t counts only."""
        square = self.strategy.shape[0] == self.strategy.shape[1]
        return square and not np.triu(self.strategy, 1).any()

    @property
    def streams(self) -> bool:
        """Whether counts can be answered one by one as they arrive."""
        return self.triangular and self.workload.causal

    @cached_property
    def inverse(self) -> Array:
        """R⁺, shape (n, r)."""
        r = self.strategy
        if self.triangular:
            return np.asarray(linalg.solve_triangular(r, np.eye(len(r)), lower=True))
        q, t = np.linalg.qr(r.T)
        return np.asarray(linalg.solve_triangular(t, q.T).T)

    @property
    def factor(self) -> Array:
        """B = A R⁺, shape (m, r): the noise on the answers is B times independent normals."""
        allowed = f"has more than {FULL} queries: their covariance is not formed; see variances"
        refuse(self.workload.count > FULL, "workload", self.workload.count, allowed)
        return self.workload.apply(self.inverse)

    @property
    def covariance(self) -> Array:
        """Covariance of the answers, shape (m, m)."""
        factor = self.factor
        return np.asarray(factor @ factor.T)

    @property
    def variances(self) -> Array:
        """Variance of each answer, shape (m,)."""
        found, block = np.zeros(self.workload.count), max(1, 2_000_000 // self.workload.count)
        for k in range(0, len(self.strategy), block):
            found += (self.workload.apply(self.inverse[:, k : k + block]) ** 2).sum(axis=1)
        return found

    @property
    def mse(self) -> float:
        return float(((self.workload.root @ self.inverse) ** 2).sum())

    @property
    def rows(self) -> Array:
        return self.strategy

    def release(self, x: Numbers) -> Array:
        """Return the answers to the workload with noise: for deployment.

        The strategy's answers are rounded to a lattice in exact arithmetic and get normal noise that is drawn exactly, from the
        operating system's randomness; the answers are made of what has been released.

        Parameters
        ----------
        x : array, shape (n,)
            The counts, not the answers.

        Raises
        ------
        DataError
            A number is not finite or, beyond 2⁵³, held by no double. The guarantee does not cover that refusal.
        """
        held = answers("x", x)
        DataError.when(held.shape != (self.workload.size,), f"x: must be the {self.workload.size} counts")
        noisy = released(self.strategy, held[None, :], *self.lattice)[0]
        with np.errstate(over="ignore", invalid="ignore"):  # where doubles end
            return self.workload.apply(np.nan_to_num(self.inverse @ noisy))

    def stream(self, counts: Iterable[Numbers]) -> Iterator[float]:
        """Release one answer after the other as the counts arrive: for deployment.

        Each count is used when it arrives, in exact arithmetic as in `release`; later counts may depend on earlier answers.

        Parameters
        ----------
        counts : iterable of float
            At most n.

        Raises
        ------
        DataError
            A number is not finite or, beyond 2⁵³, held by no double; earlier answers have been released by then. The
            guarantee does not cover that refusal.
        """
        refuse(not self.streams, "workload", str(self.workload), "is not answered step by step: use release")
        return self._streamed(one_by_one(counts), *self.lattice)

    def _streamed(self, counts: Iterable[Numbers], step: float, noise: ExactNoise) -> Iterator[float]:
        size, lower = self.workload.size, self.strategy
        seen, estimate = np.zeros(size), np.zeros(size)
        part, total = self.workload.blocks[0][0], 0.0
        for t, count in enumerate(counts):
            DataError.when(t == size, f"counts: are more than the {size} that the noise was made for")
            held = answers("counts", count)
            DataError.when(held.ndim, "counts: must be one number at a time")
            seen[t] = held
            noisy = float(released(lower[t : t + 1, : t + 1], seen[None, : t + 1], step, noise)[0, 0])
            with np.errstate(over="ignore", invalid="ignore"):  # where doubles end
                estimate[t] = (noisy - lower[t, :t] @ estimate[:t]) / lower[t, t]
                if part.kind == "prefix":
                    total += estimate[t]
                else:
                    total = estimate[t] if part.kind == "identity" else part.matrix[t] @ estimate
            yield float(total)

    @property
    def dimension(self) -> int:  # type: ignore[override]
        """n, the number of counts."""
        return self.workload.size

    def _noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draw the noise of estimates of the counts."""
        return rng.standard_normal((*shape[:-1], len(self.strategy))) @ self.inverse.T

    def sample(self, x: Numbers, *, rng: Randomness = None) -> Array:
        """Return the answers to the workload, for counts of shape (..., n), with noise in floating point: for simulation."""
        estimates = super().sample(x, rng=rng)
        answered = self.workload.apply(estimates.reshape(-1, self.dimension).T).T
        return answered.reshape(*estimates.shape[:-1], self.workload.count)

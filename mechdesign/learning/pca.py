r"""Private principal components: noise on the matrix of second moments.

The query is the upper triangle of :math:`\sum_n x_n x_n^\top`, rows shrunk onto the ball of radius r; neighbours have one
record more or less. The rank-one matrix of a record has Frobenius norm :math:`\lVert x\rVert^2 \le r^2`, so that with the
off-diagonal entries in units of :math:`1/\sqrt2` the ℓ₂ sensitivity is r², attained everywhere on the sphere: the
independent Gaussian noise of least variance has :math:`\sigma_d^2 = r^4/\mu^2` on the diagonal and half of that off it.
(For all x, :math:`\sum x_i^4/\sigma_d^2 + \sum_{i<j} x_i^2x_j^2/\sigma_o^2 \le \mu^2`; a single large x_i fixes the
first, a pair of equal ones then the second.) No entry is clipped. Identical noise needs σ_d everywhere: 3 dB more.

Under pure privacy the loss of Laplace noise is :math:`\sum x_i^2/\beta_d + \sum_{i<j} |x_ix_j|/\beta_o`, largest at equal
x_i: :math:`1/\beta_d + (M-1)/2\beta_o`; the least variance under that has equal scales, :math:`(M+1)r^2/2\varepsilon`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.results import Result
from mechdesign.learning.plan import (
    ROOT,
    ClassNamePrefixFeaturesOutMixin,
    Interval,
    NoisySums,
    PrivateEstimator,
    TransformerMixin,
    box,
    calibrated,
    check_is_fitted,
    records,
    table,
)
from mechdesign.problem.checks import array, integer, one_of, positive
from mechdesign.problem.privacy import PureDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.solvers.deadline import progress_bar
from mechdesign.typing import Array, Numbers


@dataclass(eq=False, repr=False)
class PrivatePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    r"""Principal components of the second moments, under differential privacy of one record more or less.

    Parameters
    ----------
    n_components : int, optional
        All by default.
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP
        There is no default.
    bounds : (low, high) or float
        Numbers, or arrays of shape (n_features,): what the columns can take, from public knowledge. Values beyond are clipped, and r is the
        distance of the farthest corner from `center`. Or r itself: rows farther from there are shrunk to it. Noise grows as r².
    noise : str, law or Result
        As in `mechdesign.calibrate`, or an earlier fit's `privacy_`.
    allocation : {"least-variance", "iid"}
        Whether off-diagonal entries get their own, smaller noise.
    center : array_like, shape (n_features,), optional
        A public mean, subtracted from every row; by default the middle of the bounds, 0 where they are a distance. The data's own mean is not
        used: it would leak, here and before `fit`.
    ledger : Ledger, optional
        As of `PrivateLinearRegression`: every fit is an entry, and one that does not fit in is refused.
    progress : bool
        Whether a terminal shows a bar, after two seconds.
    random_state : None, int or RandomState
        None draws exact noise from the operating system's randomness; a seed repeats a simulation in doubles.

    Attributes
    ----------
    components_ : ndarray, shape (n_components, n_features)
        Dominant eigenvectors of the noisy matrix.
    singular_values_ : ndarray, shape (n_components,)
        Roots of its eigenvalues, 0 where those are negative.
    explained_variance_ratio_ : ndarray, shape (n_components,)
        Their share of the noisy trace, within [0, 1].
    second_moments_ : ndarray, shape (n_features, n_features)
        The noisy matrix itself: it is released.
    mean_ : ndarray
        The public centre.
    privacy_ : Result
        The certified noise, in units of r², off-diagonal entries stretched.
    noise_scales_ : tuple of float
        Standard deviations of the noise on and off the diagonal.

    Raises
    ------
    DesignError
        A bad parameter. No finite value of a record raises or warns.
    DataError
        No record at all, or an entry that is missing, infinite or no number, by itself or once it is converted. The guarantee does
        not cover that refusal.

    Examples
    --------
    >>> import mechdesign as md
    >>> x = np.random.default_rng(0).standard_normal((5000, 4)) * [3.0, 1.0, 0.1, 0.1]
    >>> model = md.learning.PrivatePCA(
    ...     n_components=2, privacy=md.ApproximateDP(1.0, 1e-6), bounds=5.0, random_state=0
    ... ).fit(x)
    >>> bool(abs(model.components_[0, 0]) > 0.99), model.transform(x).shape
    (True, (5000, 2))
    >>> round(model.noise_scales_[0] / model.noise_scales_[1], 9)   # 1.414…: 3 dB
    1.414213562
    """

    n_components: int | None = None
    _: KW_ONLY
    bounds: Interval | float | None = None
    noise: object = "gaussian"
    allocation: str = "least-variance"
    center: Numbers | None = None

    def fit(self, X: Numbers, y: object = None) -> PrivatePCA:
        """Find the components of records, shape (N, n_features); `y` is not used."""
        x = records(self, X, fewest=1)
        self._begin()
        size = x.shape[1]
        wanted = size if self.n_components is None else integer("n_components", self.n_components, 1, size)
        mean, norm, (low, high) = self._reach(size)
        stretch = self._stretch()
        calibration = self._calibration(size, stretch)
        with np.errstate(over="ignore"):
            centred = np.nan_to_num(np.clip(x, low, high) - mean)
        with progress_bar("private components", None, shown=self.progress):
            total, unit = second_moments(centred, norm)
        sums = NoisySums(calibration, self._drawing(calibration))
        noisy = noisy_matrix(total, sums, Fraction(1, unit), stretch) * (norm**2 / unit)
        values, vectors = np.linalg.eigh(noisy)
        top = np.argsort(values)[::-1][:wanted]
        vectors = vectors[:, top].T
        signs = np.sign(vectors[np.arange(wanted), np.abs(vectors).argmax(axis=1)])
        self.components_ = vectors * signs[:, None]
        self.singular_values_ = np.sqrt(np.maximum(values[top], 0.0))
        trace = float(np.maximum(values, 0.0).sum())
        self.explained_variance_ratio_ = np.maximum(values[top], 0.0) / (trace or 1.0)
        self.n_components_, self.mean_, self.second_moments_ = wanted, mean, noisy
        each = calibration.mechanism.standard_deviation * norm**2
        self.noise_scales_ = (each, each / float(stretch))
        return self

    def transform(self, X: Numbers) -> Array:
        """Return the coordinates along the components, shape (N, n_components)."""
        check_is_fitted(self, "components_")
        x = records(self, X)
        return np.asarray((x - self.mean_) @ self.components_.T)

    def inverse_transform(self, X: Numbers) -> Array:
        """Return the points that have these coordinates."""
        check_is_fitted(self, "components_")
        x = table("X", X)
        if x.shape[1] != self.n_components_:
            raise DataError(f"X: must have {self.n_components_} columns, one a component")
        return np.asarray(x @ self.components_ + self.mean_)

    def _reach(self, size: int) -> tuple[Array, float, tuple[Array, Array]]:
        """The public centre, how far from it a record is at most, and what the columns are clipped to."""
        given = None if self.center is None else array("center", self.center)
        if given is not None and given.shape != (size,):
            raise DesignError.of("center", self.center, f"must be {size} numbers")
        if isinstance(self.bounds, (int, float, np.number)):
            norm, far = positive("bounds", self.bounds), np.full(size, np.inf)
            mean, ends = np.zeros(size) if given is None else given, (-far, far)
        else:
            middle, half = box("bounds", self.bounds, size)
            mean, ends = middle if given is None else given, (middle - half, middle + half)
            norm = math.nextafter(float(np.linalg.norm(np.abs(middle - mean) + half)) * (1 + 1e-15), math.inf)
        if not 1e-150 < norm < 1e150:
            raise DesignError.of("bounds", self.bounds, "must lie between 1e-150 and 1e150")
        return mean, norm, ends

    def _stretch(self) -> Fraction:
        """What off-diagonal entries are multiplied by before identical noise is added."""
        kind = one_of("allocation", self.allocation, ("least-variance", "iid"))
        return Fraction(1) if kind == "iid" or isinstance(self.privacy, PureDP) else ROOT

    def _calibration(self, size: int, stretch: Fraction) -> Result:
        # Σx_i² + s Σ_{i<j}|x_ix_j| ≤ 1 + s(M − 1)/2 on the unit ball
        total = 1 + float(stretch) * (size - 1) / 2
        bounds = Sensitivity(linf=1.0, l1=math.nextafter(total * (1 + 1e-15), math.inf), l2=1.0)
        dimension = size * (size + 1) // 2
        return calibrated(self.noise, self.privacy, bounds, dimension)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)


_SIDE = 1 << 20
_ROWS = 1 << 10
"""Rows at a time: they stay in the cache, and of up to 2¹² the products sum to at most 2⁵², which doubles hold."""


def second_moments(
    x: Array, norm: float, records: Callable[[int, int], Array] | None = None
) -> tuple[npt.NDArray[np.object_], int]:
    r"""Return the whole numbers :math:`\sum_n z_nz_n^\top` and the largest :math:`\lVert z\rVert^2`, exactly.

    z is x/norm, shrunk into the unit ball and rounded to multiples of 2⁻²⁰, whatever the number of records: another
    record adds its own matrix and changes nothing else. Instead of the rows of x, `records` may return vectors that are made
    of those from one place to another, with squares within doubles.

    Examples
    --------
    >>> total, unit = second_moments(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0)
    >>> (total / unit).astype(float).round(3).tolist()
    [[0.45, 0.6], [0.6, 0.8]]
    """
    part: npt.NDArray[np.int64] | int = 0
    total: npt.NDArray[np.object_] | int = 0
    for block, start in enumerate(range(0, len(x), _ROWS)):
        end = min(start + _ROWS, len(x))
        z = _in_ball(x[start:end], norm) if records is None else _shortened(records(start, end), norm)
        part = part + (z.T @ z).astype(np.int64)
        if block % 1024 == 1023:  # at most 2⁶²
            total = total + part.astype(object)
            part = 0
    return np.asarray(total + np.asarray(part, dtype=object)), _SIDE * _SIDE


def noisy_matrix(
    total: npt.NDArray[np.object_], sums: NoisySums, weight: Fraction, stretch: Fraction
) -> Array:
    """A symmetric matrix of whole numbers with noise on its upper triangle; entries off the diagonal weigh `stretch` more."""
    upper = np.triu_indices(len(total))
    off = (upper[0] != upper[1]).astype(int).tolist()
    noisy = np.zeros(total.shape)
    noisy[upper] = sums.answer(total[upper].tolist(), weight, weight * stretch, kinds=off)
    return np.asarray(noisy + np.triu(noisy, 1).T)


def _in_ball(x: Array, norm: float) -> Array:
    """Whole numbers near 2²⁰x/norm with a norm of at most 2²⁰; each row by itself, whatever the other rows are."""
    x = np.ascontiguousarray(x)
    with np.errstate(all="ignore"):  # of a row of zeros the least is 0: it stays where it is
        largest = np.maximum(np.abs(x).max(axis=1, keepdims=True), np.finfo(float).tiny)
        unit = x / largest
        length = np.linalg.norm(unit, axis=1, keepdims=True)
        shrunk = unit * np.minimum(1 / length, largest / norm)
    z = np.rint(shrunk * _SIDE)
    long = np.einsum("ni,ni->n", z, z) > float(_SIDE) ** 2  # exact: below 2⁵³
    # One less than what is rounded is below what was to be rounded: no such row is too long any more.
    return np.asarray(z - np.where(long[:, None], np.sign(z), 0.0))


def _shortened(x: Array, norm: float) -> Array:
    """As `_in_ball`, of vectors without extremes, in place: the long are shrunk by what rounding may add."""
    length = np.sqrt(np.einsum("ni,ni->n", x, x))
    most = (_SIDE - math.sqrt(x.shape[1]) / 2 - 1) * norm
    x *= np.minimum(_SIDE / norm, most / norm / np.maximum(length, norm / 2))[:, None]
    return np.rint(x, out=x)

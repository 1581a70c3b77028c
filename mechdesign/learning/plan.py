r"""Noise for a query that is asked many times, coordinate by coordinate: relative scales, then one exact calibration.

Coordinate i of the query has sensitivity λ_i and noise of scale :math:`\sigma s_i` with relative scales s. In
units of :math:`s_i` the noise is identical and the sensitivities are :math:`\lambda_i / s_i`: one `Calibration` of any law,
composed exactly over all rounds, certifies the whole. Allocations differ in s alone.

With cost :math:`\sum_i u_i \sigma_i^2`, Gaussian noise consumes :math:`\lambda_i^2/\sigma_i^2` and pure privacy
:math:`\lambda_i/\beta_i` of the budget, so that the least cost has :math:`s_i^4 = \lambda_i^2/u_i` and
:math:`s_i^3 = \lambda_i/u_i` (Muthukrishnan and Kalyani). For other laws under (ε, δ) the first is near the optimum over
many rounds, whose total loss is nearly normal; privacy is exact for any s.

The module also holds the parts that estimators share: scikit-learn's names (without it, the error that names the extra), conversion of records to numbers before any check,
the entry in a ledger before any noise is drawn, and warnings of leaks, which depend on an estimator's parameters, never on a record's value.

**Bounded records.** A column with bounds [a, b] becomes :math:`z = (x - (a + b)/2) / ((b - a)/2)`, clipped to [−1, 1], in `fit` and `predict`
alike. Noise for the box [−1, 1]^d would be noise for its corners, of length √d, which few records reach: bisection with noisy counts
finds the length that a given share of the records does not exceed, and longer records are shrunk
to it. The counts consume 5% of the budget, which means 2.5% more noise on everything else.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from mechdesign.checks import array, doubles, instance, one_of, refuse, refusing
from mechdesign.errors import DataError, DesignError, MissingExtra
from mechdesign.evidence.results import Result
from mechdesign.noise.calibration import Calibration
from mechdesign.problem.privacy import CentralPrivacy, PureDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.typing import Array, Flags, FrozenLaw, Numbers

if TYPE_CHECKING:
    from sklearn.utils import Tags


ROOT = Fraction(math.nextafter(math.sqrt(2.0), 0.0))
"""Stretch of the off-diagonal entries of a matrix of second moments: √2, rounded down."""


@dataclass(frozen=True, eq=False)
class NoisePlan:
    """Calibrated noise for every coordinate and round.

    Attributes
    ----------
    calibration : Result
        The certified result, in units of the relative scales; its privacy is that of all rounds together.
    shifts : ndarray, shape (rounds, K) or (1, K)
        Sensitivity of each coordinate in those units: at most 1.
    units : ndarray, same shape
        Size of these units in the query's own.
    rounds : int
    """

    calibration: Result
    shifts: Array
    units: Array
    rounds: int

    @property
    def scales(self) -> Array:
        """Standard deviation of the noise on each coordinate in each round, shape (rounds, K)."""
        each = self.calibration.mechanism.standard_deviation * self.units
        return np.broadcast_to(each, (self.rounds, self.units.shape[1]))


def cheapest_scales(sensitivities: Array, costs: Array, *, pure: bool) -> Array:
    """Return the relative scales with the least Σ cost × scale².

    Examples
    --------
    >>> cheapest_scales(np.array([1.0, 8.0]), np.ones(2), pure=True)
    array([1., 2.])
    """
    if pure:
        return np.asarray(np.cbrt(sensitivities / costs))
    return np.sqrt(sensitivities / np.sqrt(costs))


def noise_plan(
    noise: FrozenLaw,
    *,
    privacy: CentralPrivacy,
    sensitivities: Numbers,
    scales: Numbers | None = None,
    costs: Numbers | None = None,
    rounds: int = 1,
    neighbours: str = "add-remove",
) -> NoisePlan:
    r"""Calibrate noise for `rounds` answers of K coordinates with unequal sensitivities.

    Parameters
    ----------
    noise : str, law, or Result of a Calibration
        As in `mechdesign.calibrate`; or the calibration of an earlier plan, which is reused if it is for this very
        question.
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP
        Requirement for all rounds together.
    sensitivities : array_like, shape (K,)
        λ_i > 0: the largest change of each coordinate between neighbours.
    scales : array_like, shape (K,) or (rounds, K), optional
        Relative scales s_i > 0, for all rounds or for each.
    costs : array_like, same shapes, optional
        Instead of scales: weights u_i > 0 of the cost :math:`\sum u_i\sigma_i^2` to minimise. Ones by default.
    rounds : int
    neighbours : {"add-remove", "replace"}
        Neighbours for which the sensitivities hold: one person more or less, or one person's data replaced.

    Examples
    --------
    >>> import mechdesign as md
    >>> plan = noise_plan("gaussian", privacy=md.ApproximateDP(1, 1e-6), sensitivities=[1, 4], rounds=10)
    >>> plan.scales.shape, round(float(plan.scales[0, 1] / plan.scales[0, 0]), 9)
    ((10, 2), 2.0)

    Costs by round are allowed: noise late in a descent harms most.

    >>> late = noise_plan("gaussian", privacy=md.ApproximateDP(1, 1e-6), sensitivities=[1], costs=[[1], [16]], rounds=2)
    >>> late.scales.round(2).tolist()
    [[9.45], [4.72]]
    """
    lam = array("sensitivities", sensitivities)
    allowed = "must be positive: what no one changes needs no noise"
    refuse(lam.min() <= 0, "sensitivities", sensitivities, allowed)
    if scales is not None and costs is not None:
        raise DesignError.of("costs", costs, "scales are given: the costs have nothing to choose")
    name, given = ("scales", scales) if scales is not None else ("costs", costs)
    free = np.ones((1, len(lam))) if given is None else _table(name, given, rounds, len(lam))
    s = free if scales is not None else cheapest_scales(lam, free, pure=isinstance(privacy, PureDP))
    shifts = lam / s
    shifts = shifts / shifts.max()
    refuse(shifts.min() < 1e-12, name, given, "differ by more than 1e12 against the sensitivities")
    many = len(shifts) > 1
    bounds = Sensitivity(each=shifts.ravel(), neighbours=neighbours)
    found = calibrated(noise, privacy, bounds, shifts.size, rounds=1 if many else rounds)
    return NoisePlan(found, shifts, lam / shifts, rounds)


@lru_cache(maxsize=64)
def _solved(design: Calibration) -> Result:
    return design.solve()


def calibrated(
    noise: FrozenLaw, privacy: CentralPrivacy, bounds: Sensitivity, dimension: int, *, rounds: int = 1
) -> Result:
    """Return the certified calibration of a law, or `noise` itself if it is a calibration for this very question.

    Raises
    ------
    DesignError
        Discrete noise; a calibration for another question, without a certificate, or whose certificate fails.
    """
    again = isinstance(noise, Result) and isinstance(noise.design, Calibration)
    design = Calibration(noise.design.noise if again else noise, privacy, bounds, dimension, rounds=rounds)
    allowed = "is for whole answers: use its continuous law, which is released on a lattice"
    refuse(design.family.discrete, "noise", noise, allowed)
    if not again:
        return _solved(design)
    allowed = ""
    if noise.certificate is None:
        allowed = "is not certified"
    elif noise.design != design:
        allowed = "was calibrated for another question (privacy, sensitivities or rounds)"
    elif not noise.checks()["holds"].all():
        allowed = "does not pass its own checks: see its checks()"
    refuse(allowed, "noise", type(noise).__name__, allowed)
    return instance("noise", noise, Result)


class NoisySums:
    """Add noise to sums of whole numbers, one batch after another; questions may depend on earlier answers, budget shares may not.

    Gaussian noise whose shares of the squared sensitivity sum to one makes adaptively chosen questions as private as one
    question of sensitivity 1 (Dong, Roth and Su 2022, Theorem 4 and its corollary); for Laplace noise the shares of ε add up.

    Parameters
    ----------
    calibration : Result
        Calibration with as many coordinates as there will be sums.
    rng : numpy.random.RandomState, optional
        Source for simulation in doubles. Without it the noise is drawn exactly, from the operating system's randomness, on
        the lattice of the law's release.
    """

    def __init__(self, calibration: Result, rng: np.random.RandomState | None = None) -> None:
        self.noise, self._next = calibration.mechanism, 0
        count = self.noise.dimension
        self._step = None if rng is not None else self.noise.lattice.step
        if self._step is None:
            self._drawn = np.asarray(self.noise.law.rvs(size=count, random_state=rng))
        else:
            self._drawn = np.ravel(self.noise.release(np.zeros((1, count)))) / self._step

    def answer(self, totals: Sequence[int], *weights: Fraction, kinds: Sequence[int] | None = None) -> Array:
        """Multiply each sum by its weight, add the calibration's noise, divide by the weight, and return the results.

        There is one weight for all sums, or one for each of their `kinds`.
        """
        kinds = [0] * len(totals) if kinds is None else kinds
        drawn = self._drawn[self._next : self._next + len(totals)].tolist()
        self._next += len(totals)
        over = np.array([float(w) for w in weights])[kinds]
        if self._step is None:
            return np.asarray(np.array(totals, dtype=float) + np.array(drawn) / over)
        # Round to steps in integers: reducing fractions would take a time that reveals them.
        ratios = [(2 * w / Fraction(self._step)).as_integer_ratio() for w in weights]
        steps = [(int(n) * ratios[k][0] + ratios[k][1]) // (2 * ratios[k][1]) for n, k in zip(totals, kinds)]
        return np.asarray(np.array([float(n + int(t)) for n, t in zip(steps, drawn)]) * self._step / over)


def _table(name: str, value: Numbers, rounds: int, size: int) -> Array:
    """Return positive numbers for each coordinate, or for each round and coordinate, as a table."""
    found = np.atleast_2d(array(name, value, ndim=None))
    if found.shape not in ((1, size), (rounds, size)):
        raise DesignError.of(name, value, f"must have shape ({size},) or ({rounds}, {size})")
    refuse(found.min() <= 0, name, value, "must be positive")
    return found


with MissingExtra.needed("learning", "mechdesign.learning", "scikit-learn"):
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.base import ClassifierMixin as ClassifierMixin
    from sklearn.base import ClassNamePrefixFeaturesOutMixin as ClassNamePrefixFeaturesOutMixin
    from sklearn.base import TransformerMixin as TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import type_of_target as type_of_target
    from sklearn.utils.validation import check_is_fitted as check_is_fitted
    from sklearn.utils.validation import column_or_1d, validate_data


Labels = npt.NDArray[np.generic]
_NONE = "nothing infinite, missing or masked. Complex data not supported, nor texts as numbers, nor dates"


def _finite(what: str, value: Numbers) -> Array:
    try:
        found = doubles("value", value, truth=True)
    except DesignError:
        found = np.array(np.nan)
    DataError.when(not np.isfinite(found).all(), f"{what} finite numbers: {_NONE}")
    return found


def records(model: PrivateEstimator, X: Numbers, *, fewest: int = 0) -> Array:
    """Return records, shape (N, n_features), as doubles, or raise DataError: in a fit if there are fewer than `fewest`, else if features differ from the fit's."""
    DataError.when(hasattr(X, "toarray"), "X: must be dense: sparse data are not supported")
    x = _finite("X: must be", X)  # all are converted before any is looked at
    DataError.when(x.ndim != 2, "X: must have two axes, records and features. Reshape your data")
    many = "more than one sample" if fewest > 1 else "one sample"
    DataError.when(len(x) < max(fewest, 1) or not x.shape[1], f"X: must have {many} and one feature at least")
    wanted = "features named by texts, or without names" if fewest else "the features of fit, in order"
    with DataError.where(f"X: must have {wanted}", TypeError, ValueError):
        validate_data(model, X if hasattr(X, "columns") else x, reset=fewest > 0, skip_check_array=True)
    return x


def records_and_targets(
    model: PrivateEstimator, X: Numbers, y: Numbers, *, fewest: int = 0
) -> tuple[Array, Array]:
    """Return records, and a number for each, as doubles, or raise DataError."""
    x = records(model, X, fewest=fewest)
    return x, _column(x, _finite("y should be a 1d array of", y))


def records_and_labels(
    model: PrivateEstimator, X: Numbers, y: Numbers, *, fewest: int = 0
) -> tuple[Array, Labels]:
    """Return records as doubles, and a label for each, or raise DataError, also for missing labels (None among them)."""
    x = records(model, X, fewest=fewest)
    wanted = "all texts or all finite numbers"
    with DataError.where(f"y should be a 1d array of labels, {wanted}: {_NONE}"):
        if np.ma.is_masked(y) or hasattr(y, "toarray"):
            raise TypeError
        held = np.asarray(y, dtype=object) if isinstance(y, (list, tuple)) else np.asarray(y)
        if held.dtype == object:
            kinds = set(map(type, held.flat))
            mixed = len({issubclass(kind, (str, bytes)) for kind in kinds}) > 1
            if mixed or type(np.ma.masked) in kinds or pd.isna(held).any():
                raise TypeError
            held = np.asarray(held.tolist())
        if held.dtype.kind not in "biufUS" or (held.dtype.kind == "f" and not np.isfinite(held).all()):
            raise TypeError
    return x, _column(x, held)


def weights(y: Labels, sample_weight: Numbers | None) -> Array | None:
    """Return weights of records in a score, or raise DataError."""
    if sample_weight is None:
        return None
    found = _finite("sample_weight: must be", sample_weight)
    if found.shape != (len(y),) or found.min() < 0 or not found.sum() > 0:
        raise DataError("sample_weight: must be one non-negative number for every record, and not all 0")
    return found


def _column(x: Array, y: Any) -> Any:
    """Return one number or label for every record, or raise DataError."""
    if y.shape not in ((len(x),), (len(x), 1)):
        raise DataError("y should be a 1d array: one number or label for every record of X")
    return column_or_1d(y, warn=True)


class PrivacyLeakWarning(UserWarning):
    """A quantity that depends on the data is used as if it were public: the stated guarantee does not cover it."""


def warn_leak(what: str, remedy: str) -> None:
    """Warn that `what` depends on the data."""
    warnings.warn(f"{what}: the guarantee does not cover that; {remedy}", PrivacyLeakWarning, stacklevel=3)


@dataclass(eq=False, repr=False)
class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """Base of estimators: a budget, one calibration, and an entry in a ledger before any noise is drawn."""

    _: KW_ONLY
    privacy: CentralPrivacy
    ledger: Any = None
    progress: bool = True
    random_state: int | np.random.RandomState | None = None

    def _begin(self) -> None:
        """Check the common parameters; warn of a repeated fit that no ledger counts."""
        remedy = "must be stated: md.ApproximateDP(epsilon, delta), for one; there is no default"
        refuse(self.privacy is None, "privacy", None, remedy)
        one_of("progress", self.progress, (True, False))
        if not (self.ledger is None or hasattr(self.ledger, "charge")):
            raise DesignError.of("ledger", self.ledger, "must be a Ledger: md.Ledger(path)")
        if self.ledger is None and hasattr(self, "privacy_"):
            warn_leak(
                "fitted again: every fit consumes the whole budget, and choosing between fits by their scores leaks too",
                "give a ledger, which counts the fits, or tune on public data",
            )

    def _sums(self, calibration: Result) -> NoisySums:
        """Enter the fit in the ledger, which may refuse it, and draw its noise: exactly, or with a seed in doubles."""
        rng = None if self.random_state is None else check_random_state(self.random_state)
        if self.ledger is not None:
            self.ledger.charge(calibration, whole=True)
        self.privacy_ = calibration
        return NoisySums(calibration, rng)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags


class Regressor(RegressorMixin):  # type: ignore[misc]
    """A private regressor."""

    def score(self, X: Numbers, y: Numbers, sample_weight: Numbers | None = None) -> float:
        """Return the coefficient of determination on given data; on the fitted data this number is not private."""
        _, target = records_and_targets(self, X, y)
        return float(super().score(X, target, weights(target, sample_weight)))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # on data of a hundred records nothing private is accurate
        return tags


COUNTS = 7
"""Number of noisy counts in a fit: one of the records beyond the bounds, six for the length."""
_ROWS = 1 << 14
_HALVINGS = COUNTS - 1
_DOWN = 1 - Fraction(1, 10**12)
_WIDEST = 1e100

Interval = tuple[Numbers, Numbers]


def box(name: str, value: Interval | None, size: int) -> tuple[Array, Array]:
    """Return the middles and half widths of `size` intervals."""
    if value is None:
        remedy = (
            "must be stated: the least and the largest value that a column can take, as a questionnaire, a sensor or a law limits it, never "
            "as these data do, and rather too wide than too narrow; where nothing limits it, pay: count the column's values between public "
            "thresholds with noise (md.calibrate), and add that budget to this one"
        )
        raise DesignError.of(name, None, remedy)
    with refusing(name, value, "must be a pair (low, high) of numbers or arrays", TypeError, ValueError):
        low, high = value
    ends = [array(name, end, ndim=None) for end in (low, high)]
    if any(end.shape not in ((), (size,)) for end in ends):
        raise DesignError.of(name, value, f"must be a pair (low, high) of numbers, or of {size} numbers each")
    least, most = (np.broadcast_to(end, (size,)).astype(float) for end in ends)
    if not (least < most).all() or max(np.abs(least).max(), np.abs(most).max()) > _WIDEST:
        raise DesignError.of(name, value, f"must have low < high, each within {_WIDEST:g}")
    middle, half = least / 2 + most / 2, most / 2 - least / 2
    allowed = "are too narrow for doubles: subtract a public number from the column"
    refuse((half < 1e-12 * np.abs(middle)).any() or half.min() < 1 / _WIDEST, name, value, allowed)
    # never 0, so that subtracting the middle rounds tiny values away, and none takes longer than other numbers
    return np.where(np.abs(middle) < half * 2.0**-60, half * 2.0**-60, middle), half


@dataclass(eq=False, repr=False)
class BoundedEstimator(PrivateEstimator):
    """A linear model of records with declared bounds."""

    _: KW_ONLY
    bounds: Interval | None = None

    def _check(self, size: int) -> None:
        """Check the parameters common to these models."""
        self._begin()
        self._middle, self._half = box("bounds", self.bounds, size)
        self._pure = isinstance(self.privacy, PureDP) or getattr(self.privacy, "delta", 1.0) == 0

    def _noise(self, most: int) -> Result:
        """Return noise for the counts and at most `most` further sums."""
        changes = Sensitivity(
            l1=1.0 if self._pure else None, l2=None if self._pure else 1.0, neighbours="replace"
        )
        law = "laplace" if self._pure else "gaussian"
        return calibrated(law, self.privacy, changes, COUNTS + most)

    def _weight(self, share: float, change: Fraction | float) -> Fraction:
        """Return the weight at which sums that change by `change` in ℓ₂ (ℓ₁ under pure privacy) consume this share of the budget."""
        return Fraction(share if self._pure else math.sqrt(share)) / Fraction(change) * _DOWN

    def _moments_weight(self, share: float, size: int, unit: int) -> tuple[Fraction, Fraction]:
        """Return weight and stretch of second moments: zzᵀ − z′z′ᵀ has Frobenius norm at most √2, its triangle ℓ₁ norm at most M + 1."""
        if self._pure:
            return self._weight(share, (size + 1) * unit), Fraction(1)
        return self._weight(share, 2 / ROOT * unit), ROOT

    def _centred(self, x: Array) -> Array:
        """Clip columns to their bounds and subtract the middles."""
        z = np.clip(x, self._middle - self._half, self._middle + self._half)
        z -= self._middle
        return np.asarray(z)

    def _count(self, x: Array, beyond: Flags, sums: NoisySums, *, share: float, kept: float) -> float:
        """Return the squared length that a share `kept` of the records does not exceed; warn if most records are beyond the bounds."""
        squares, beyond = np.empty(len(x)), beyond.copy()
        for start in range(0, len(x), _ROWS):
            part = slice(start, start + _ROWS)
            with np.errstate(over="ignore"):
                z = np.abs(x[part] - self._middle) / self._half
            beyond[part] = beyond[part] | (z.max(axis=1) > 1 + 1e-12)
            np.minimum(z, 1.0, out=z)
            squares[part] = np.einsum("ni,ni->n", z, z)
        weight = self._weight(share / COUNTS, 1)
        self.clipped_ = float(sums.answer([int(beyond.sum())], weight)[0])
        low, high = 0, (1 << _HALVINGS) - 1
        for _ in range(_HALVINGS):
            middle = (low + high + 1) // 2
            shorter = int((squares <= self._length(middle)).sum())
            if sums.answer([shorter], weight)[0] >= kept * len(x):
                low = middle
            else:
                high = middle - 1
        doubt = 4 * sums.noise.standard_deviation / float(weight)
        if self.clipped_ > len(x) / 2 + doubt:
            warnings.warn(
                f"{min(self.clipped_ / len(x), 1):.0%} of the records lie beyond the bounds and were clipped to them: declare wider ones",
                UserWarning,
                stacklevel=3,
            )
        self.radius_ = math.sqrt(self._length(low))
        return self._length(low)

    def _length(self, level: int) -> float:
        """Return the squared length of a level: level 0 is the whole box, each further one smaller by √2."""
        return float(len(self._half) * 2 ** (-level / 2))

    def _settle(self, theta: Array) -> Array:
        """Convert the coefficients of (1, z) to the columns' own units; return the map, shape (1 + d, 1 + d)."""
        scale = np.diag(np.append(1.0, 1 / self._half))
        scale[0, 1:] = -self._middle / self._half
        found = scale @ theta
        self.intercept_, self.coef_ = float(found[0]), found[1:]
        return scale

    def _score(self, X: Numbers) -> Array:
        check_is_fitted(self, "coef_")
        x = records(self, X)
        inside = np.clip(x, self._middle - self._half, self._middle + self._half)
        return np.asarray(inside @ self.coef_ + self.intercept_)

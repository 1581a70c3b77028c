r"""Private coordinate descent for scikit-learn: linear and logistic regression with ℓ₁ or ℓ₂ penalties.

minimise :math:`J(\theta) = \frac1N\sum_n \ell(\theta; x_n, y_n) + \psi(\theta)`, ψ separable. For passes l = 1..L and
coordinates i = 1..K,

.. math::
    g = \frac1N\sum_n \mathrm{clip}(\partial_i \ell_n;\, C_i), \qquad
    \theta_i \leftarrow \mathrm{prox}_{\tau_i\psi_i}\bigl(\theta_i - \tau_i (g + T)\bigr), \qquad \tau_i = \tau / M_i.

Replacing one record moves g by at most :math:`2C_i/N`. A record's state is one number: its residual (least squares) or its
margin (logistic), which follows the released iterate; nothing else of a record is seen.

Every record's contribution is clipped and rounded to a whole number of at most 2^b. Sums of those stay below 2⁵³, so
doubles add them without any rounding, in whatever order; another record changes the sum by at most 2·2^b, exactly.
The sum is brought to units of the noise, and rounded to the lattice of the release, in rational numbers.

Muthukrishnan and Kalyani, *Differential privacy with higher utility by exploiting coordinate-wise disparity*, Section
VI-A, after Mangold, Bellet, Salmon and Tommasi (2022). Scikit-learn's conventions hold: parameters are stored as they
are given and checked in ``fit``; what ``fit`` finds ends in an underscore.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from mechdesign.errors import DataError, DesignError
from mechdesign.learning.bounded import Interval, box
from mechdesign.learning.plan import (
    ClassifierMixin,
    Labels,
    NoisePlan,
    PrivateEstimator,
    Regressor,
    check_is_fitted,
    noise_plan,
    records,
    records_and_labels,
    records_and_targets,
    type_of_target,
    warn_leak,
    weights,
)
from mechdesign.problem.checks import array, integer, non_negative, one_of, positive
from mechdesign.problem.privacy import CentralPrivacy
from mechdesign.solvers.deadline import progress_bar
from mechdesign.typing import Array, Numbers

if TYPE_CHECKING:
    from sklearn.utils import Tags

CURVATURE = {"squared": 1.0, "logistic": 0.25}
"""The largest second derivative of each loss in the score."""

Answer = Callable[[int, int, int, int], float]


def smoothness_of(x: Array, loss: str) -> Array:
    """M_i: the largest second derivative of the mean loss along each coordinate.

    Examples
    --------
    >>> smoothness_of(np.array([[1.0, 2.0], [1.0, 0.0]]), "logistic")
    array([0.25, 0.5 ])
    """
    return np.asarray(CURVATURE[loss] * np.einsum("ni,ni->i", x, x) / len(x))


def objective(x: Array, y: Array, theta: Array, *, loss: str, penalty: Array, power: int) -> float:
    """J(θ): the mean loss with its penalty, Σ a_i|θ_i| (power 1) or Σ a_i θ_i²/2 (power 2)."""
    score = x @ theta
    data = np.mean((score - y) ** 2) / 2 if loss == "squared" else np.mean(np.logaddexp(0.0, -y * score))
    return float(data + np.sum(penalty * np.abs(theta) ** power) / power)


def proximal(value: float, weight: float, power: int) -> float:
    """The proximal operator of weight·|θ|^power/power."""
    return math.copysign(max(abs(value) - weight, 0.0), value) if power == 1 else value / (1 + weight)


def descend(
    x: Array,
    y: Array,
    *,
    loss: str,
    clips: Array,
    steps: Array,
    penalty: Array,
    power: int,
    passes: int,
    answer: Answer,
    step: Callable[[], None] = lambda: None,
) -> Array:
    """Return the iterates after each pass, shape (passes, K).

    Parameters
    ----------
    x : ndarray, shape (N, K)
    y : ndarray, shape (N,)
        Numbers (squared loss), or ±1 (logistic).
    clips, steps, penalty : ndarray, shape (K,)
        C_i, τ_i, and the weight of each coordinate's penalty.
    power : {1, 2}
    answer : callable
        ``answer(pass, i, total, change)``: the noisy gradient of a whole number that changes by at most `change`.
    step : callable
        Called after each pass.
    """
    users, k = x.shape
    integer = largest_whole(users)
    with np.errstate(all="ignore"):  # a record that overflows is clipped, or counts 0: that is its own affair
        # columns in units of the rounded contributions: one product gives what is clipped and summed
        signed = x if loss == "squared" else x * -y[:, None]
        columns = [np.ascontiguousarray(signed[:, i]) * (integer / clips[i]) for i in range(k)]
        state = -y if loss == "squared" else np.zeros(users)
        one, theta, path = np.empty(users), [0.0] * k, np.empty((passes, k))
        for round in range(passes):
            for i, column in enumerate(columns):
                total = _total(state, column, one, integer, loss)
                gradient = answer(round, i, total, 2 * integer)
                moved = proximal(theta[i] - steps[i] * gradient, steps[i] * penalty[i], power)
                np.multiply(column, (moved - theta[i]) * (clips[i] / integer), out=one)
                state += one
                theta[i] = moved
            path[round] = theta
            step()
    return path


def _total(state: Array, column: Array, one: Array, integer: int, loss: str) -> int:
    """The sum of all records' clipped and rounded contributions: exact, a whole number."""
    # The state is minus the margin m: σ(−m).
    np.multiply(state if loss == "squared" else special.expit(state), column, out=one)
    np.clip(one, -integer, integer, out=one)
    np.rint(one, out=one)
    return int(np.nan_to_num(one, copy=False, nan=0.0).sum())


def largest_whole(records: int) -> int:
    """The largest 2^b such that `records` of them sum to at most 2⁵².

    Examples
    --------
    >>> largest_whole(1000) == 2**42
    True
    """
    return 1 << (52 - (records - 1).bit_length())


class NoisyAnswers:
    """Adds the noise of a plan, coordinate by coordinate.

    Parameters
    ----------
    plan : NoisePlan
    rng : numpy.random.Generator or RandomState, optional
        For simulation, in doubles. Without it the noise is drawn exactly, from the operating system's randomness, on
        the lattice of the law's release.
    """

    def __init__(self, plan: NoisePlan, rng: np.random.RandomState | None = None) -> None:
        noise = plan.calibration.mechanism
        shape = (plan.rounds, plan.units.shape[1])
        if rng is None:
            zeros = np.zeros(shape).reshape(-1, noise.dimension)
            step = noise.lattice.step
            drawn = (np.asarray(noise.release(zeros)) / step).astype(np.int64)
            self._log_step: int | None = math.frexp(step)[1] - 1
        else:
            drawn = np.asarray(noise.law.rvs(size=shape, random_state=rng), dtype=float)
            self._log_step = None
        self._drawn = drawn.reshape(shape).tolist()
        self._units = np.broadcast_to(plan.units, shape).tolist()
        self._shifts = np.broadcast_to(plan.shifts, shape).tolist()

    def answer(self, round: int, i: int, total: int, change: int) -> float:
        """Return λ_i/`change` times `total`, with noise: a whole number that changes by at most `change`, a power of two."""
        shift, noise = self._shifts[round][i], self._drawn[round][i]
        if self._log_step is None:
            return float((total / change * shift + noise) * self._units[round][i])
        # in steps, rounded to the nearest: every denominator is a power of two
        over, under = shift.as_integer_ratio()
        bits = under.bit_length() + change.bit_length() - 2 + self._log_step
        steps = (total * over + (1 << bits >> 1)) >> bits if bits > 0 else (total * over) << -bits
        return float(math.ldexp(float(steps + noise), self._log_step) * self._units[round][i])


ALLOCATIONS = ("iid", "scale-perturb-rescale", "least-variance", "least-harm")
_HUGE = 1e100
_LEAST = 1e-10
"""The least curvature of a column, of the largest: `noise_plan` takes sensitivities within 1e12 of each other."""


class _PrivateCoordinateDescent(PrivateEstimator):
    """What both estimators share: parameters, the noise, the descent.

    Parameters
    ----------
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP
        Of the whole fit, for one record replaced. There is no default.
    penalty : {"l1", "l2", None}
        α Σ|θ_i|, or α Σθ_i²/2; the intercept has none.
    alpha : float
        Weight of the penalty.
    clip : float or array_like, shape (K,), optional
        C: a record's gradient along coordinate i is clipped to C √(M_i/ΣM_j); or every C_i. Noise is in proportion. By default
        C_i = R √(M_i/c), with c as for `smoothness` and R the largest residual at the start: the largest magnitude within
        `target_bounds`, or 1 for classes. No record whose x_i is usual, √(M_i/c), is cut then. Less is less noise and more bias; below half
        of it most first gradients are cut, were the targets spread evenly, and a warning says so.
    passes : int
        L: how often every coordinate is visited. All L·K noisy gradients are accounted for together: noise grows as √L. Without
        correlation a pass leaves 1 − M_i*/M_i of the error, where M_i* is the true smoothness: ten suffice where M is near it, wide
        bounds in place of `smoothness` want more.
    learning_rate : float
        τ: the step of coordinate i is τ/M_i.
    noise : str, law or Result
        As in `mechdesign.calibrate`: "gaussian", "laplace", "flipped_huber", "gennorm", …; or an earlier fit's `privacy_`,
        to calibrate once for many fits of one question.
    allocation : {"iid", "scale-perturb-rescale", "least-variance", "least-harm"} or array_like
        Scales of the coordinates' noise: equal; as the sensitivities; of the least Σσ²; of the least expected harm to the
        objective by one update, which is scale–perturb–rescale where the clips are shared out as √M_i; or relative
        scales, shape (K,) or (L, K).
    noise_on : {"gradient", "update"}
        Whose variance "iid" and "least-variance" mean: the published conventions differ.
    smoothness : array_like, shape (n_features,), optional
        M_i = c E[x_i²], public, with c = 1 for least squares and ¼ for logistic regression. By default the largest that `bounds` allow,
        c max(low², high²); without those they are computed from the data, which leaks: a `PrivacyLeakWarning` says so.
    bounds : (low, high), optional
        Numbers, or arrays of shape (n_features,): what the columns can take, from public knowledge. Values beyond are clipped, in `fit`
        and in prediction.
    fit_intercept : bool
        Adds a coordinate of ones.
    ledger : Ledger, optional
        Every fit is an entry of its own, on the disk before any noise is drawn; one that does not fit in is refused.
    progress : bool
        Whether a terminal shows a bar, after two seconds.
    random_state : None, int or RandomState
        None draws exact noise from the operating system's randomness: the guarantee is for the bits of the model. A seed
        repeats a simulation in doubles, and whoever knows it can subtract the noise.

    Attributes
    ----------
    coef_, intercept_ : ndarray, shape (n_features,); float
    path_ : ndarray, shape (passes, K)
        Every iterate: all are released.
    privacy_ : Result
        The certified noise, in units of the relative scales, composed over all passes.
    noise_scales_ : ndarray, shape (passes, K)
        Standard deviations of the noise on the gradients.
    clips_, smoothness_ : ndarray, shape (K,)
    n_iter_ : int

    Raises
    ------
    DesignError
        A bad parameter, or a descent that diverged. No finite value of a record raises or warns: beyond ±1e100 it counts
        as ±1e100.
    DataError
        An entry of X or y that is missing, infinite or no number, by itself or once it is converted.
        The guarantee does not cover that refusal.
    SolverError
        No noise of this family meets the requirement.
    """

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        shared = (_PrivateCoordinateDescent.__doc__ or "").partition("    ----------\n")[2]
        cls.__doc__ = (cls.__doc__ or "").replace("    SHARED\n", shared.rstrip() + "\n")

    _loss = "squared"

    def __init__(
        self,
        *,
        privacy: CentralPrivacy,
        penalty: str | None = "l2",
        alpha: float = 1e-3,
        clip: Numbers | None = None,
        passes: int = 10,
        learning_rate: float = 1.0,
        noise: object = "gaussian",
        allocation: Numbers = "scale-perturb-rescale",
        noise_on: str = "gradient",
        smoothness: Numbers | None = None,
        bounds: Interval | None = None,
        target_bounds: Interval | None = None,
        fit_intercept: bool = False,
        ledger: Any = None,
        progress: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.privacy = privacy
        self.penalty = penalty
        self.alpha = alpha
        self.clip = clip
        self.passes = passes
        self.learning_rate = learning_rate
        self.noise = noise
        self.allocation = allocation
        self.noise_on = noise_on
        self.smoothness = smoothness
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.fit_intercept = fit_intercept
        self.ledger = ledger
        self.progress = progress
        self.random_state = random_state

    def _descend(self, x: Array, y: Array) -> None:
        """Check the parameters, calibrate the noise, descend; `x` and `y` are checked."""
        one_of("penalty", self.penalty, ("l1", "l2", None))
        one_of("fit_intercept", self.fit_intercept, (True, False))
        weight = non_negative("alpha", self.alpha) if self.penalty else 0.0
        rate = positive("learning_rate", self.learning_rate)
        passes = integer("passes", self.passes, 1, 10**6)
        self._begin()
        self._low, self._high = self._ends("bounds", self.bounds, x.shape[1])
        low, high = self._ends("target_bounds", self.target_bounds, 1)
        x, y = x.clip(self._low, self._high), y.clip(low, high)
        largest = math.inf if self.target_bounds is None else float(np.maximum(-low, high)[0])
        residual = 1.0 if self._loss == "logistic" else largest
        if self.fit_intercept:
            x = np.hstack([x, np.ones((len(x), 1))])
        smooth = self._smoothness(x)
        clips = self._clips(smooth, residual)
        plan = self._plan(smooth, 2 * clips / len(x), passes)
        rng = self._drawing(plan.calibration)
        penalties = np.full(x.shape[1], weight)
        penalties[self.n_features_in_ :] = 0.0
        power = 1 if self.penalty == "l1" else 2
        with progress_bar("private coordinate descent", passes, shown=self.progress) as step:
            self.path_ = descend(
                x,
                y,
                loss=self._loss,
                clips=clips,
                steps=rate / smooth,
                penalty=penalties,
                power=power,
                passes=passes,
                answer=NoisyAnswers(plan, rng).answer,
                step=step,
            )
        if not np.isfinite(self.path_).all():
            raise DesignError.of(
                "learning_rate", self.learning_rate, "the descent diverged: lower it, or the clip"
            )
        self.noise_scales_, self.smoothness_ = plan.scales, smooth
        self.clips_, self.n_iter_ = clips, passes
        self._penalties, self._power = penalties, power

    @staticmethod
    def _ends(name: str, value: Interval | None, size: int) -> tuple[Array, Array]:
        middle, half = (np.zeros(size), np.full(size, _HUGE)) if value is None else box(name, value, size)
        return middle - half, middle + half

    def _smoothness(self, x: Array) -> Array:
        if self.smoothness is None and self.bounds is None:
            warn_leak(
                "steps, clips and noise follow the data's own second moments (smoothness=None)",
                "give public values as smoothness, or bounds",
            )
            smooth = smoothness_of(x, self._loss)
            largest = smooth.max()  # any upper bound of a curvature serves, for a column of zeros too
            return np.maximum(smooth, _LEAST * largest) if largest > 1e-200 else np.ones_like(smooth)
        features = self.n_features_in_
        if self.smoothness is None:
            smooth = CURVATURE[self._loss] * np.maximum(-self._low, self._high) ** 2
        else:
            smooth = array("smoothness", self.smoothness)
        if smooth.shape != (features,) or smooth.min() < 1e-200 or smooth.max() > 1e200:
            wanted = f"must be {features} numbers between 1e-200 and 1e200: rescale X"
            raise DesignError.of("smoothness", self.smoothness, wanted)
        return np.append(smooth, CURVATURE[self._loss]) if self.fit_intercept else smooth

    def _clips(self, smooth: Array, residual: float) -> Array:
        """C_i: as given, one norm shared out as √M_i, or what the largest residual at the start needs."""
        usual, known = np.sqrt(smooth / CURVATURE[self._loss]), residual < math.inf
        if self.clip is None:
            if known:
                return np.asarray(residual * usual)
            remedy = (
                "must be stated, or follow from target_bounds, the least and the largest value that y can take by public knowledge: choose about two "
                "usual residuals times √Σ smoothness, or pay for it with PrivateLinearRegression, which finds it within its own budget"
            )
            raise DesignError.of("clip", None, remedy)
        clips = array("clip", self.clip, ndim=None)
        if clips.shape not in ((), smooth.shape) or clips.min() <= 0:
            raise DesignError.of("clip", self.clip, f"must be a positive number, or {len(smooth)} of them")
        if clips.ndim == 0:
            clips = clips * np.sqrt(smooth / smooth.sum())
        if known and np.median(clips / usual) < residual / 2:
            cut = (
                "cuts the first gradients of most records, if their targets are spread evenly: the default is"
            )
            least = float(residual * math.sqrt(usual @ usual))
            warnings.warn(f"clip = {self.clip} {cut} {least:g}", UserWarning, stacklevel=4)
        return np.asarray(clips)

    def _plan(self, smooth: Array, sensitivities: Array, rounds: int) -> NoisePlan:
        plan = partial(
            noise_plan,
            self.noise,
            privacy=self.privacy,
            sensitivities=sensitivities,
            rounds=rounds,
            neighbours="replace",  # the number of records is public
        )
        on_update = one_of("noise_on", self.noise_on, ("gradient", "update")) == "update"
        if self.allocation is not None and not isinstance(self.allocation, str):
            return plan(scales=self.allocation)
        kind = one_of("allocation", self.allocation, ALLOCATIONS)
        if kind == "iid":
            return plan(scales=smooth if on_update else np.ones_like(smooth))
        if kind == "scale-perturb-rescale":
            return plan(scales=sensitivities)
        # noise T on the gradient moves θ_i by τ T/M_i, which harms the objective by M_i(τT/M_i)²/2
        smooth = smooth / smooth.max()
        costs = 1 / smooth if kind == "least-harm" else smooth**-2 if on_update else np.ones_like(smooth)
        return plan(costs=costs / costs.max())

    @property
    def coef_(self) -> Array:
        """The last iterate, without the intercept."""
        return np.asarray(self.path_[-1, : self.n_features_in_])

    @property
    def intercept_(self) -> float:
        """The last coordinate, or 0."""
        return float(self.path_[-1, -1]) if self.path_.shape[1] > self.n_features_in_ else 0.0

    def _score(self, X: Numbers) -> Array:
        check_is_fitted(self, "path_")
        x = records(self, X).clip(self._low, self._high)
        return np.asarray(x @ self.coef_ + self.intercept_)

    def _objectives(self, x: Array, y: Array) -> Array:
        if self.path_.shape[1] > x.shape[1]:
            x = np.hstack([x, np.ones((len(x), 1))])
        how = partial(objective, x, y, loss=self._loss, penalty=self._penalties, power=self._power)
        return np.array([how(theta) for theta in self.path_])


class PrivateCoordinateDescentRegressor(Regressor, _PrivateCoordinateDescent):
    r"""Least squares with an ℓ₁ or ℓ₂ penalty, fitted by differentially private coordinate descent.

    Minimises :math:`\frac1{2N}\lVert X\theta - y\rVert^2 + \psi(\theta)`.

    Parameters
    ----------
    target_bounds : (low, high), optional
        What y can take, from public knowledge, from which `clip` follows; values beyond are clipped in `fit`.
    SHARED

    Examples
    --------
    >>> import mechdesign as md
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (2000, 3))
    >>> y = x @ [1.0, -0.5, 0.0] + 0.1 * rng.standard_normal(2000)
    >>> model = md.learning.PrivateCoordinateDescentRegressor(
    ...     privacy=md.ApproximateDP(1.0, 1e-6), alpha=0.0, bounds=(-1, 1), target_bounds=(-2, 2), random_state=0
    ... ).fit(np.tile(x, (10, 1)), np.tile(y, 10))
    >>> model.coef_.round(1) + 0.0
    array([ 1. , -0.5,  0. ])
    >>> model.privacy_.mechanism.epsilon(1e-6) <= 1.0, model.privacy_.certificate.verify()
    (True, True)
    """

    def fit(self, X: Numbers, y: Numbers) -> PrivateCoordinateDescentRegressor:
        """Fit to features, shape (N, n_features), and numbers, shape (N,)."""
        self._descend(*records_and_targets(self, X, y, fewest=2))
        return self

    def predict(self, X: Numbers) -> Array:
        """Return Xθ and the intercept."""
        return self._score(X)

    def objectives(self, X: Numbers, y: Numbers) -> Array:
        """J after each pass on given data, shape (passes,): of the fitted data it is no private number."""
        return self._objectives(*records_and_targets(self, X, y))


class TwoClasses(ClassifierMixin):  # type: ignore[misc]
    """A classifier of two classes by the sign of a score: `classes`, or those of the labels, which leaks."""

    classes: Numbers | None
    classes_: Labels
    _score: Callable[[Numbers], Array]

    def _classes(self, labels: Labels) -> Labels:
        if self.classes is not None:
            said = "must be two different labels, both numbers or both texts"
            try:
                classes = np.unique(np.asarray(self.classes))
            except TypeError:
                raise DesignError.of("classes", self.classes, said) from None
            if np.shape(self.classes) != (2,) or len(classes) != 2 or np.any(classes != classes):
                raise DesignError.of("classes", self.classes, said)
            if (labels.dtype.kind in "US") != (classes.dtype.kind in "US"):
                raise DataError("y: must be labels of the type of classes, texts or numbers")
            return classes
        warn_leak("the classes are read from the labels (classes=None)", "give the two as classes")
        kind, classes = type_of_target(labels), np.unique(labels)
        if kind not in ("binary", "multiclass"):
            raise DataError(f"y: must be labels of two classes. Unknown label type: {kind}")
        if len(classes) == 1:
            raise DataError("y: there is only one class; give both as classes")
        if len(classes) > 2:
            raise DataError(f"y: Only binary classification is supported. The type of the target is {kind}")
        return classes

    def _signs(self, labels: Labels) -> Array:
        """−1 for the first class, 1 for the second, or DataError: every label must be one of them."""
        second = labels == self.classes_[1]
        if not (second | (labels == self.classes_[0])).all():
            classes = self.classes_.tolist()
            raise DataError(
                f"y: every label must be one of the classes {classes}: mend or leave out others before"
            )
        return np.where(second, 1.0, -1.0)

    def score(self, X: Numbers, y: Numbers, sample_weight: Numbers | None = None) -> float:
        """Return the share of right labels on given data: of the fitted data it is no private number."""
        _, labels = records_and_labels(self, X, y)
        found = self.predict(X) == labels
        return float(np.average(found, weights=weights(labels, sample_weight)))

    def decision_function(self, X: Numbers) -> Array:
        """Return Xθ and the intercept: positive for the second class."""
        return self._score(X)

    def predict(self, X: Numbers) -> Labels:
        """Return the likelier class."""
        second = self._score(X) > 0
        return np.asarray(self.classes_[second.astype(int)])

    def predict_proba(self, X: Numbers) -> Array:
        """Return the probabilities of both classes, shape (N, 2)."""
        second = special.expit(self._score(X))
        return np.column_stack([1 - second, second])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True  # on data of ten records nothing private is accurate
        return tags


class PrivateCoordinateDescentClassifier(TwoClasses, _PrivateCoordinateDescent):
    r"""Logistic regression with an ℓ₁ or ℓ₂ penalty, fitted by differentially private coordinate descent; two classes.

    Minimises :math:`\frac1N\sum_n \log(1 + e^{-y_n \langle x_n, \theta\rangle}) + \psi(\theta)`.

    Parameters
    ----------
    classes : array_like, shape (2,), optional
        Both, public: a record with another label, or without one (None too), is refused. By default they are read from the labels, which leaks,
        and one class or three are refused, which leaks too: a `PrivacyLeakWarning` says so.
    SHARED

    Examples
    --------
    >>> import mechdesign as md
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (2000, 2))
    >>> y = np.where(x[:, 0] > 0.1 * rng.standard_normal(2000), "yes", "no")
    >>> model = md.learning.PrivateCoordinateDescentClassifier(
    ...     privacy=md.ApproximateDP(1.0, 1e-6), smoothness=[1 / 12] * 2, classes=["no", "yes"], random_state=0
    ... ).fit(x, y)
    >>> bool(model.score(x, y) > 0.9), model.classes_.tolist()
    (True, ['no', 'yes'])
    """

    _loss = "logistic"

    def __init__(
        self,
        *,
        privacy: CentralPrivacy,
        penalty: str | None = "l2",
        alpha: float = 1e-3,
        clip: Numbers | None = None,
        passes: int = 10,
        learning_rate: float = 1.0,
        noise: object = "gaussian",
        allocation: Numbers = "scale-perturb-rescale",
        noise_on: str = "gradient",
        smoothness: Numbers | None = None,
        bounds: Interval | None = None,
        classes: Numbers | None = None,
        fit_intercept: bool = False,
        ledger: Any = None,
        progress: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(
            privacy=privacy,
            penalty=penalty,
            alpha=alpha,
            clip=clip,
            passes=passes,
            learning_rate=learning_rate,
            noise=noise,
            allocation=allocation,
            noise_on=noise_on,
            smoothness=smoothness,
            bounds=bounds,
            fit_intercept=fit_intercept,
            ledger=ledger,
            progress=progress,
            random_state=random_state,
        )
        self.classes = classes

    def fit(self, X: Numbers, y: Numbers) -> PrivateCoordinateDescentClassifier:
        """Fit to features, shape (N, n_features), and labels of two classes, shape (N,)."""
        x, labels = records_and_labels(self, X, y, fewest=2)
        self.classes_ = self._classes(labels)
        self._descend(x, self._signs(labels))
        return self

    def objectives(self, X: Numbers, y: Numbers) -> Array:
        """J after each pass on given data, shape (passes,): of the fitted data it is no private number."""
        x, labels = records_and_labels(self, X, y)
        return self._objectives(x, self._signs(labels))

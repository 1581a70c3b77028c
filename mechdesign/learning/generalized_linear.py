r"""Private regression with a smooth loss: gradient descent over all records, in coordinates preconditioned by one noisy matrix.

Let v = (1, z) be a record in units of its bounds, y its target, r the median length of the records (by a noisy
search, as in `mechdesign.learning.plan`), and ℓ(m; y) a convex loss of the predictor :math:`m = m_0 + u\langle v, \theta\rangle` with
:math:`|\ell'| \le L` and :math:`\ell'' \le M`. In the unit u = L/4M all such losses have the logistic ratio of curvature to slope (L = 1, M = ¼), so that
one descent serves all. T = 60 times

.. math:: \theta \leftarrow \theta - \frac{\eta}{r^2 n}\Bigl(\sum_i \mathrm{clip}(\ell'(m_i; y_i)\, v_i / L;\; Cr) + \text{noise}\Bigr),

and the mean of the last half of the iterates is the model. A replaced record changes a sum by at most 2Cr; all T noisy sums are
one Gaussian mechanism (composition of Gaussian noise is exact), whose total is μ-private like a
sum of sensitivity 1 with noise 1/μ. All parameters follow from n, μ and the number K of coordinates, which are public:

- **clip**: :math:`C = \min(\sqrt{\mu n}/60,\; \text{none})`. A gradient is never longer than its record; the noisier the sum, the
  shorter the best clip. On breast cancer and digits at ε = .5, 1, 4 the best of a grid lay between half and twice this.
- **time**: :math:`T\eta = \mu n/(2C)`. Without curvature the noise would then move a typical record's predictor by u. η is at most 16, or
  the inverse of the largest curvature that a released matrix allows: there descent is stable.
- **matrix**: the second moments of the records, with a tenth of the budget, if :math:`\mu n \ge 6.3 K^{3/2}`: with so many records a
  typical eigenvalue exceeds the noise. Directions are stretched to equal lengths, none beyond what the noise resolves. On 16,000 × 20
  correlated columns at ε = .3 the log loss is .322 with and .326 without it; on breast cancer at ε = 4 it would be .123 for .109.

Regressions start at a noisy mean of the targets, for 2% of the budget. The Huber loss has L = k, its threshold, and M = 1. That of Poisson counts
up to b has L = b, and its curvature is the expected count: M is four times the noisy mean, exceeded by few records, so that steps are long
enough even if b is wide (20,000 × 30, a mean of 2.4 counts, b = 60, ε = 4: .55 of the deviance explained; with M = b and a start at log b/2 .18; not
private .60). Noise may move its predictors by 4M/L units at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from mechdesign.checks import integer, one_of, positive, refusing
from mechdesign.errors import DataError, DesignError
from mechdesign.learning import plan
from mechdesign.learning.plan import BoundedEstimator, ClassifierMixin, Labels, Regressor
from mechdesign.learning.second_moments import noisy_moments
from mechdesign.solvers.deadline import progress_bar
from mechdesign.typing import Array, Flags, Numbers

if TYPE_CHECKING:
    from sklearn.utils import Tags

_KEPT = 0.5
_ONE = 0.05
"""Squared length of the constant entry, relative to that of a record."""
_MATRIX = 0.1
_RESOLVED = 6.3
_CLIPPED = 60.0
_STEEPEST = 16.0


def largest_whole(records: int) -> int:
    """Return the largest 2^b such that `records` times it is at most 2⁵².

    Examples
    --------
    >>> largest_whole(1000) == 2**42
    True
    """
    return 1 << (52 - (records - 1).bit_length())


@dataclass(frozen=True)
class GeneralizedLoss:
    """A smooth convex loss ℓ(m; y) of the predictor m and the target y, as the descent uses it.

    Attributes
    ----------
    value, slope : callable
        ℓ and ∂ℓ/∂m of arrays m and y.
    steepest, curvature : float
        L and M: |∂ℓ/∂m| ≤ L for every allowed target, and ∂²ℓ/∂m² ≤ M at least for typical predictors. Privacy needs neither.
    start : float
        Initial predictor of all records.
    room : float
        Units by which noise may move a typical record's predictor, without curvature.
    """

    value: Callable[[Array, Array], Array]
    slope: Callable[[Array, Array], Array]
    steepest: float
    curvature: float
    start: float = 0.0
    room: float = 1.0

    @property
    def unit(self) -> float:
        """L/4M, one for the logistic loss: in this unit of the predictor all losses have the same ratio of curvature to slope."""
        return self.steepest / (4 * self.curvature)


LOGIT = GeneralizedLoss(
    lambda m, y: np.logaddexp(0.0, -y * m), lambda m, y: -y * special.expit(-y * m), 1.0, 0.25
)
"""log(1 + e^(−ym)) of classes ±1."""


def huber(threshold: float, start: float) -> GeneralizedLoss:
    """Return the loss that is (m − y)²/2 up to the threshold and linear beyond it."""
    return GeneralizedLoss(
        lambda m, y: special.huber(threshold, m - y),
        lambda m, y: np.clip(m - y, -threshold, threshold),
        threshold,
        1.0,
        start,
    )


def poisson(most: float, usual: float) -> GeneralizedLoss:
    """Return the loss e^m − ym for counts up to b, `most`; it is linear in m beyond log b, where the mean would exceed every count.

    M is four times the typical count, at most b. Few records exceed it, and their slopes are bounded anyway.
    """
    end = math.log(most)
    return GeneralizedLoss(
        lambda m, y: np.exp(np.minimum(m, end)) + most * np.maximum(m - end, 0.0) - y * m,
        lambda m, y: np.exp(np.minimum(m, end)) - y,
        most,
        min(most, 4 * usual),
        math.log(usual),
        min(1.0, 16 * usual / most),
    )


@dataclass(eq=False, repr=False)
class _Descending(BoundedEstimator):
    """A model whose predictor is linear, fitted by private descent."""

    _: KW_ONLY
    clip: float | None = None
    steps: int = 60

    _located = 0.0
    """Share of the budget for the quantities that determine the loss."""

    def _loss(self, y: Array, share: float, sums: plan.NoisySums) -> GeneralizedLoss:
        return LOGIT

    def _fit(self, x: Array, y: Array, beyond: Flags) -> None:
        """Descend; `beyond` are the records with a target beyond its bounds."""
        steps, (count, size) = integer("steps", self.steps, 1, 10**5), x.shape
        size += 1
        triangle = size * (size + 1) // 2
        self._check(size - 1)
        if self._pure:
            remedy = "has no Gaussian noise: ask for ApproximateDP, or take PrivateLinearRegression for least squares"
            raise DesignError.of("privacy", self.privacy, remedy)
        sought = steps * size + bool(self._located)
        noise = self._noise(sought)
        strength = count / noise.mechanism.standard_deviation
        matrix = _MATRIX if strength >= _RESOLVED * size**1.5 else 0.0
        if matrix:
            noise = self._noise(triangle + sought)
        # with few records the counts need more of the budget: else noise misleads the search
        counted = min(0.15, max(0.05, (20 / strength) ** 2))
        clip = math.sqrt(strength) / _CLIPPED if self.clip is None else positive("clip", self.clip)
        sums = self._sums(noise)
        with progress_bar("private gradient descent", 1 + steps, shown=self.progress) as step:
            square = self._count(x, beyond, sums, share=counted, kept=_KEPT)
            one = math.sqrt(_ONE * square)
            square *= 1 + _ONE
            v = np.column_stack([np.full(count, one), self._centred(x) / self._half])
            axes, steepest = np.eye(size), _STEEPEST
            if matrix:
                axes, square, steepest = self._round(v, square, matrix, sums)
                v = v @ axes
            loss = self._loss(y, self._located, sums)
            step()
            rate = min(loss.room * strength / (2 * clip * steps), steepest)
            weight = self._weight((1 - counted - matrix - self._located) / steps, 2 * largest_whole(count))
            descent = _Descent(v, y, loss, math.sqrt(square), clip)
            theta, path = np.zeros(size), np.empty((steps, size))
            for k in range(steps):
                gradient = sums.answer(descent.gradient(theta), weight) * descent.unit
                theta = theta + rate / (square * count) * gradient
                path[k] = theta
                step()
        columns = loss.unit * np.append(one, np.ones(size - 1))
        scale = self._settle(columns * (axes @ path[steps // 2 :].mean(axis=0)))
        self.path_ = path @ (axes.T * columns) @ scale.T
        self.path_[:, 0] += loss.start
        self.intercept_ += loss.start
        self.clip_, self.n_iter_ = clip, steps

    def _round(
        self, v: Array, square: float, share: float, sums: plan.NoisySums
    ) -> tuple[Array, float, float]:
        """Return axes in which the records have equal length in every direction that the noise resolves, their squared length, and the longest stable step."""
        matrix, noise = noisy_moments(self, v, square, share, sums)
        values, basis = np.linalg.eigh(matrix)
        least = np.maximum(values, 2 * noise * math.sqrt(len(values)))
        stretched = least.max() / least
        mean = float((np.maximum(values, 0.0) * stretched).sum()) / len(v)
        longer = min(max(mean, square), square * float(stretched.max()))
        return basis * np.sqrt(stretched), longer, 4 * longer * len(v) / float(least.max())


@dataclass(eq=False, repr=False)
class PrivateLogisticRegression(ClassifierMixin, _Descending):  # type: ignore[misc]
    r"""Logistic regression under differential privacy: declare bounds and a budget, nothing else; two classes.

    Minimises :math:`\sum_n \log(1 + e^{-y_n (\langle x_n, \theta\rangle + \theta_0)})` by noisy gradient descent, stopped before noise
    outweighs progress (`mechdesign.learning.generalized_linear` has the formulas). Neighbours have one record replaced; the
    number of records is public.

    Parameters
    ----------
    privacy : ApproximateDP, ZeroConcentratedDP or another requirement that Gaussian noise meets
        Requirement for the whole fit.
    bounds : (low, high)
        Numbers, or arrays of shape (n_features,): range of the columns, from public knowledge. Values beyond it are clipped, in
        `fit` and in prediction, and counted (`clipped_`).
    classes : array_like, shape (2,), optional
        Both classes, public: a record with another label, or without one (None too), is refused. By default they are read from the labels, which leaks:
        a `PrivacyLeakWarning` says so.
    clip : float, optional
        C: the longest gradient, in median lengths of a record; by default √(μn)/60.
    steps : int
        T. More steps take time and change the accuracy little: shorter steps have more noise each.
    ledger : Ledger, optional
        As in `PrivateLinearRegression`: every fit is an entry, and one that exceeds the budget is refused.
    progress : bool
        Whether a terminal shows a bar, after two seconds.
    random_state : None, int or RandomState
        None draws exact noise from the operating system's randomness: the guarantee is for the bits of the model. A seed
        repeats a simulation in doubles, and whoever knows it can subtract the noise.

    Attributes
    ----------
    coef_, intercept_ : ndarray, shape (n_features,); float
    path_ : ndarray, shape (steps, 1 + n_features)
        Every iterate, as intercept and coefficients: all are released.
    clip_ : float
        The C used. Below ½ it clips most gradients of the first step, whatever the data: half of the records are at least as long as `radius_`,
        and their first gradients have half their length.
    clipped_ : float
        A noisy count of the records with a value beyond its bounds.
    radius_ : float
        The length, in units of the bounds, that about half of the records do not exceed.
    privacy_ : Result
        The certified noise of all answers together.
    n_iter_ : int

    Raises
    ------
    DesignError
        A bad parameter; PureDP, under which sixty answers need seven times the noise. No finite value of a record raises; what warns is a noisy count.
    DataError
        An entry of X that is missing, infinite or no number, by itself or once it is converted.
        The guarantee does not cover that refusal.

    Examples
    --------
    >>> import mechdesign as md
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(0, 10, (5000, 2))
    >>> y = np.where(x[:, 0] + rng.standard_normal(5000) > 5, "yes", "no")
    >>> model = md.learning.PrivateLogisticRegression(
    ...     privacy=md.ApproximateDP(1.0, 1e-6), bounds=(0, 10), classes=["no", "yes"], random_state=0
    ... ).fit(x, y)
    >>> bool(model.score(x, y) > 0.9), model.privacy_.certificate.verify()
    (True, True)
    """

    _: KW_ONLY
    classes: Numbers | None = None

    def fit(self, X: Numbers, y: Numbers) -> PrivateLogisticRegression:
        """Fit to features, shape (N, n_features), and labels of two classes, shape (N,)."""
        x, labels = plan.records_and_labels(self, X, y, fewest=2)
        self.classes_ = self._classes(labels)
        self._fit(x, self._signs(labels), np.zeros(len(x), dtype=bool))
        return self

    def _classes(self, labels: Labels) -> Labels:
        if self.classes is not None:
            said = "must be two different labels, both numbers or both texts"
            with refusing("classes", self.classes, said, TypeError, ValueError):
                classes = np.unique(np.asarray(self.classes))
                if np.shape(self.classes) != (2,) or len(classes) != 2 or np.any(classes != classes):
                    raise ValueError
            if (labels.dtype.kind in "US") != (classes.dtype.kind in "US"):
                raise DataError("y: must be labels of the type of classes, texts or numbers")
            return classes
        plan.warn_leak("the classes are read from the labels (classes=None)", "give the two as classes")
        kind, classes = plan.type_of_target(labels), np.unique(labels)
        if kind not in ("binary", "multiclass"):
            raise DataError(f"y: must be labels of two classes. Unknown label type: {kind}")
        DataError.when(len(classes) == 1, "y: there is only one class; give both as classes")
        if len(classes) > 2:
            raise DataError(f"y: Only binary classification is supported. The type of the target is {kind}")
        return classes

    def _signs(self, labels: Labels) -> Array:
        """−1 for the first class, 1 for the second, or DataError: every label must be one of them."""
        second = labels == self.classes_[1]
        if not (second | (labels == self.classes_[0])).all():
            classes = self.classes_.tolist()
            said = f"must be one of the classes {classes}: mend or leave out others before"
            raise DataError(f"y: every label {said}")
        return np.where(second, 1.0, -1.0)

    def score(self, X: Numbers, y: Numbers, sample_weight: Numbers | None = None) -> float:
        """Return the share of right labels on given data; on the fitted data this number is not private."""
        _, labels = plan.records_and_labels(self, X, y)
        found = self.predict(X) == labels
        return float(np.average(found, weights=plan.weights(labels, sample_weight)))

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


@dataclass(eq=False, repr=False)
class PrivateGeneralizedLinearRegression(Regressor, _Descending):
    r"""Regression under differential privacy with the Huber loss, or of counts with the Poisson loss, from declared bounds.

    Minimises :math:`\sum_n \ell(\langle x_n, \theta\rangle + \theta_0; y_n)` by the noisy descent of `PrivateLogisticRegression`
    (`mechdesign.learning.generalized_linear` has the formulas). Neighbours have one record replaced; the number of records is public.

    Parameters
    ----------
    loss : {"huber", "poisson"}
        "huber": squares up to `threshold`, absolute values beyond it, so that outlying targets do not dominate. "poisson": :math:`e^m - ym` of a
        predictor m and a count y, linear in m beyond log b, where b is the largest count of `target_bounds`.
    privacy : ApproximateDP, ZeroConcentratedDP or another requirement that Gaussian noise meets
        Requirement for the whole fit.
    bounds : (low, high)
        As in `PrivateLinearRegression`: range of the columns, from public knowledge. Values beyond it are clipped, in `fit` and
        `predict`, and counted (`clipped_`).
    target_bounds : (low, high)
        Range of y, for `fit` alone; for counts it starts at 0 or above. Noise is proportional to the largest count: a bound that few counts exceed is better
        than one that none exceeds. With the Huber loss wide bounds only give a worse start.
    threshold : float
        k of the Huber loss, in the target's unit: the size of a typical residual, from similar data or by judgement, never from these
        records without consuming budget. Noise is proportional to it. On California housing, ε = 1, the test error is .349 to .353 of the variance for
        every k between .02 and 1 of the bounds' half width.
    clip : float, optional
        C: the longest gradient, in median lengths of a record times the largest slope L of the loss; by default √(μn)/60.
    steps, ledger, progress, random_state
        As in `PrivateLogisticRegression`.

    Attributes
    ----------
    coef_, intercept_ : ndarray, shape (n_features,); float
        Coefficients of the predictor, which is the target itself or the logarithm of the expected count.
    path_, clip_, clipped_, radius_, privacy_, n_iter_
        As in `PrivateLogisticRegression`.

    Raises
    ------
    DesignError
        A bad parameter; PureDP, which `PrivateLinearRegression` takes. No finite value of a record raises; what warns is a noisy count.
    DataError
        An entry of X or y that is missing, infinite or no number, by itself or once it is converted.
        The guarantee does not cover that refusal.

    Examples
    --------
    >>> import mechdesign as md
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (20000, 2))
    >>> visits = rng.poisson(np.exp(1 + x @ [0.5, -1.0]))
    >>> model = md.learning.PrivateGeneralizedLinearRegression(
    ...     loss="poisson", privacy=md.ApproximateDP(1.0, 1e-6), bounds=(-1, 1), target_bounds=(0, 20), random_state=0
    ... ).fit(x, visits)
    >>> model.coef_.round(1), round(model.intercept_, 1)
    (array([ 0.5, -1. ]), 1.0)
    """

    _located = 0.02

    _: KW_ONLY
    loss: str = "huber"
    target_bounds: plan.Interval | None = None
    threshold: float | None = None

    def fit(self, X: Numbers, y: Numbers) -> PrivateGeneralizedLinearRegression:
        """Fit to features, shape (N, n_features), and numbers or counts, shape (N,)."""
        x, target = plan.records_and_targets(self, X, y, fewest=2)
        middle, half = (float(v[0]) for v in plan.box("target_bounds", self.target_bounds, 1))
        if one_of("loss", self.loss, ("huber", "poisson")) == "huber":
            if self.threshold is None:
                remedy = (
                    "must be stated, in the target's unit: the size of an ordinary residual, from similar data or by judgement, never from these "
                    "records without paying; a tenth of target_bounds' width is a start"
                )
                raise DesignError.of("threshold", None, remedy)
            positive("threshold", self.threshold)
        elif self.threshold is not None:
            raise DesignError.of("threshold", self.threshold, "is of the Huber loss: leave it out")
        elif middle < half:
            raise DesignError.of("target_bounds", self.target_bounds, "must not begin below 0: counts do not")
        self._target = middle, half
        beyond = np.abs(target - middle) > half * (1 + 1e-12)
        inside = np.clip(target, middle - half, middle + half)
        self._fit(x, inside, beyond)
        return self

    def _loss(self, y: Array, share: float, sums: plan.NoisySums) -> GeneralizedLoss:
        """Return the loss, whose start is a noisy mean of the targets."""
        (middle, half), whole = self._target, largest_whole(len(y))
        weight = self._weight(share, 2 * whole)
        inside = np.clip((y - middle) / half, -1.0, 1.0)
        unit = half / whole / len(y)
        mean = middle + unit * float(sums.answer([int(np.rint(inside * whole).sum())], weight)[0])
        if self.loss == "huber":
            return huber(positive("threshold", self.threshold), mean)
        noise = unit * sums.noise.standard_deviation / float(weight)
        return poisson(middle + half, min(max(mean, noise), middle + half))

    def predict(self, X: Numbers) -> Array:
        """Return the expected count, at most the largest, with the Poisson loss; Xθ plus the intercept with the Huber loss. X is clipped to its bounds."""
        score = self._score(X)
        return score if self.loss == "huber" else np.exp(np.minimum(score, math.log(sum(self._target))))


class _Descent:
    """Sum clipped gradients in whole numbers, which doubles add without rounding.

    A record's vector is rounded to whole numbers once, the loss's slope at every step and capped by the record's length:
    their products stay below 2^b in ℓ₂, and sums below 2⁵³.
    """

    def __init__(self, v: Array, y: Array, loss: GeneralizedLoss, length: float, clip: float) -> None:
        whole = largest_whole(len(v))
        grid = 2.0 ** (math.frexp(math.sqrt(whole))[1] - 1)
        self._v = np.rint(v * (grid / length))
        norms = np.sqrt(np.einsum("ni,ni->n", self._v, self._v)) * (1 + 1e-12)
        self._most = np.floor(whole / np.maximum(norms, 1.0))
        self._factor = whole / (grid * clip * loss.steepest)
        self._y, self._loss, self._margin = y, loss, loss.unit * length / grid
        self.unit = length * clip / whole

    def gradient(self, theta: Array) -> list[int]:
        """Return the sum at θ in whole numbers, which count multiples of `unit`."""
        predictor = self._v @ (theta * self._margin) + self._loss.start
        pull = np.rint(self._loss.slope(predictor, self._y) * -self._factor)
        np.clip(pull, -self._most, self._most, out=pull)
        return [int(total) for total in self._v.T @ pull]

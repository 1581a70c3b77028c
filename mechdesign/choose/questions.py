"""The six questions for `compare`, frozen values that describe themselves in words, and `PrivateMean`."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, get_args

import numpy as np
from scipy import stats

from mechdesign import checks
from mechdesign.channels.design import MetricChannel
from mechdesign.channels.linear_design import LocalWorkload
from mechdesign.checks import Checked, field, refuse
from mechdesign.choice.optimum import PrivateChoice
from mechdesign.choice.rule import Asked as RulePrivacy
from mechdesign.choose.clipping import ClippedMean
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.proofs import same
from mechdesign.evidence.results import Accuracy, Result
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.calibration import Calibration
from mechdesign.noise.noise_bounds import paired_staircases
from mechdesign.noise.optimal import OptimalNoise
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import EmpiricalPrior, Prior, stated_range
from mechdesign.problem.privacy import (
    ApproximateDP,
    CentralPrivacy,
    MetricDP,
    Privacy,
    PureDP,
    ZeroConcentratedDP,
    pure_epsilon,
)
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.problem.workload import Workload
from mechdesign.spaces.space import MetricSpace
from mechdesign.typing import Array, Numbers
from mechdesign.user_level.histogram import UserHistogram
from mechdesign.user_level.linear_release import EMDPrivacy


class _Question(Checked):
    """Base of questions: a result answers one if its mechanism is of the right kind and covers the question."""

    asks: ClassVar[str]
    answered_by: ClassVar[str]
    requirements: ClassVar[tuple[type, ...]]
    """Kinds of privacy that it allows."""
    epsilons: ClassVar[tuple[float, float]] = (1e-14, 1000.0)
    """Range in which `least_epsilon` searches."""

    def check(self, name: str, result: Result) -> None:
        """Raise DesignError unless a result answers the question or a larger one."""
        if checks.instance("result", result, Result).design.asks != self.asks:
            raise DesignError.of(name, type(result.design).__name__, f"must be {self.answered_by}")
        self._check_covered(name, result)

    def check_privacy(self, privacy: object) -> Any:
        """Return the requirement, or raise DesignError unless the question allows its kind."""
        return checks.instance("privacy", privacy, *self.requirements)

    @abstractmethod
    def _check_covered(self, name: str, result: Result) -> None:
        """Raise DesignError unless a result of the right kind covers the question."""

    def own(self, result: Result) -> bool:
        """Whether a result that answers the question is made for exactly it, so that its lower bound holds here."""
        return True

    def continuous(self, result: Result) -> bool:
        """Whether the result answers a question about whole numbers with continuous noise."""
        return False

    def least(self, result: Result) -> float:
        """Return the result's lower bound in the units of the question's error."""
        return float(result.lower_bound or 0.0)


@serializable("numeric-query")
class NumericQuery(_Question):
    """Numbers computed from everybody's data, to be published with noise.

    Parameters
    ----------
    dimension : int
        How many numbers an answer has.
    sensitivity : float, Sensitivity or array_like of shape (m, dimension)
        Largest change by one person more or less (add-remove neighbours): one number for all coordinates, or
        ``Sensitivity(linf=1, l0=3)``, which may state ``neighbours="replace"``; or a list of all changes, up to sign.
    loss : {"squared", "absolute"}
        Loss by which mechanisms are ranked and their parameters chosen.
    rounds : int
        How often the question is answered, all under one budget.
    sampling_rate : float
        Each round uses a Poisson sample of the people at this rate.
    integer : bool
        Whether the numbers are whole (counts): noise on the integers then applies, and ranks before continuous noise
        unless that has 5% less error when rounded. Bounds of coordinates and of their sum are rounded down: whole numbers
        change by no more. False ranks all mechanisms by their error.

    Examples
    --------
    >>> print(NumericQuery(dimension=20, sensitivity=Sensitivity(linf=1, l0=3)))
    20 numbers; at most 3 coordinates change, each by at most 1 (add-remove neighbours)
    """

    asks, answered_by = "numbers", "noise, for numbers"
    requirements = get_args(CentralPrivacy)

    dimension: int = field(check=checks.integer, least=1, most=10**9, default=1)
    sensitivity: float | Sensitivity | tuple[tuple[float, ...], ...] = 1.0
    loss: str = field(check=checks.one_of, allowed=("squared", "absolute"), default="squared")
    rounds: int = field(check=checks.integer, least=1, most=10**9, default=1)
    sampling_rate: float = field(check=checks.share, side=checks.UP, default=1.0)
    integer: bool = field(check=checks.one_of, allowed=(True, False), default=False)

    def _post_check(self) -> None:
        if isinstance(self.sensitivity, (list, tuple, np.ndarray)):
            found = checks.array("sensitivity", self.sensitivity, ndim=2)
            refuse(not found.any(), "sensitivity", found.shape, "is a list in which nothing changes")
            checks.settle(self, sensitivity=tuple(map(tuple, found.tolist())))
            self.bounds.check(self.dimension)
        elif isinstance(self.sensitivity, Sensitivity):
            self.sensitivity.check(self.dimension)
        else:
            checks.settle(self, sensitivity=Sensitivity.of(self.sensitivity).largest_linf(1))
        allowed = "whole numbers change by 1 at least: this sensitivity lets none change"
        refuse(self.integer and self.bounds.largest_linf(self.dimension) < 1, "integer", True, allowed)
        if self.integer and self.changes is None:
            s = self.bounds
            linf, l1 = (None if b is None else float(math.floor(b)) for b in (s.linf, s.l1))
            s = replace(s, linf=linf, l1=l1, each=s.each and tuple(map(math.floor, s.each)))
            checks.settle(self, sensitivity=s if isinstance(self.sensitivity, Sensitivity) else linf)

    @property
    def bounds(self) -> Sensitivity:
        """The sensitivity as a set of bounds; for a list, bounds that hold for all of it."""
        return Sensitivity.of(self.sensitivity) if self.changes is None else Sensitivity.of_list(self.changes)

    @property
    def changes(self) -> Array | None:
        """The list of changes, shape (m, dimension), if the sensitivity is a list, else None."""
        return np.array(self.sensitivity) if isinstance(self.sensitivity, tuple) else None

    def _check_covered(self, name: str, result: Result) -> None:
        result.design.protection().check(name, self)

    def own(self, result: Result) -> bool:
        design, loss = result.design, getattr(result.design, "loss", self.loss)
        # an allocation's order, which gives no bound here; "total" is the variance of correlated noise
        alike = loss in (self.loss, "total") or isinstance(loss, int | float)
        return alike and design.neighbours == self.bounds.neighbours and design.protection().is_of(self)

    def continuous(self, result: Result) -> bool:
        """Whether the numbers are whole and the result's noise is not."""
        return self.integer and not result.design.protection().integer

    def error(self, result: Result) -> float:
        """Return the question's loss, averaged over the numbers."""
        found = result.errors(self)
        return found.standard_deviation**2 if self.loss == "squared" else found.absolute_error

    @property
    def scalar(self) -> float | None:
        """Δ if the question is about one number in one round without sampling, else None."""
        lone = self.dimension == 1 and self.rounds == 1 and self.sampling_rate == 1
        return self.bounds.largest_linf(1) if lone else None

    def __str__(self) -> str:
        what = (
            f"{self.dimension} {'whole ' if self.integer else ''}number{'' if self.dimension == 1 else 's'}"
        )
        often = "" if self.rounds == 1 else f", {self.rounds} rounds"
        often += "" if self.sampling_rate == 1 else f", sampled at rate {self.sampling_rate:g}"
        changes = str(self.bounds) if self.changes is None else f"a list of {len(self.changes)} changes"
        return f"{what}; {changes}{often}"


@dataclass(frozen=True)
class PrivateMean(Checked):
    r"""The mean of numbers within bounds if the number of people is private too: one person more or less (add-remove neighbours).

    With :math:`y = (x - l)/(u - l)` a person adds y to the count at u and 1 − y to that at l, so that one more or less changes the two counts
    :math:`(\sum y, \sum 1 - y)` by ±(y, 1 − y). Noise (a, b) on them changes the mean, at a share t of the way from l to u, by
    :math:`(u - l)((1 - t)a - tb)/n` to first order: at worst, at t = 0 or 1, by the noise of one number. No additive noise has less error there than the
    best for one number of sensitivity 1, and under pure privacy a pair of such staircases has no more (`solve`): the mean costs no more than with a public n
    (Kulesza, Suresh and Wang, arXiv 2312.06658).

    Parameters
    ----------
    lower, upper : float
        Bounds of a person's number, public; numbers outside count as the nearer one.
    about : float
        Public guess of the number of people, for errors in the units of the mean.
    loss : {"squared", "absolute"}

    Examples
    --------
    >>> from mechdesign.problem.privacy import PureDP
    >>> mean = PrivateMean(0, 100, about=10_000)
    >>> best = mean.solve(PureDP(1.0))
    >>> print(mean.errors(best))
    standard deviation 0.0138496, mean absolute error 0.009602..., 95% within ±0.0299573
    >>> 49 < mean.release(np.linspace(0, 100, 10_001), best) < 51
    True
    """

    lower: float = field(check=checks.number)
    upper: float = field(check=checks.number)
    about: float = field(check=checks.positive)
    loss: str = field(check=checks.one_of, allowed=("squared", "absolute"), default="squared")

    def _post_check(self) -> None:
        checks.interval("(lower, upper)", (self.lower, self.upper))
        allowed = "must be at most 1e150 above lower: choose another unit"
        refuse(self.upper - self.lower > 1e150, "upper", self.upper, allowed)

    @property
    def query(self) -> NumericQuery:
        """The question for `compare` about the two counts: changes of ℓ₁ norm at most 1, both up or both down."""
        return NumericQuery(2, Sensitivity(l1=1.0, signed=False), self.loss)

    def solve(self, privacy: CentralPrivacy, **options: Any) -> Result:
        """Return staircase noise for one number of sensitivity 1, which `release` draws in pairs, or Gaussian noise on the two counts if that has less error.

        Under approximate and concentrated privacy the staircases are x-DP, at the largest x that implies them.
        """
        asked = checks.instance("privacy", privacy, PureDP, ApproximateDP, ZeroConcentratedDP)
        stairs = OptimalNoise(PureDP(pure_epsilon(asked)), 1.0, self.loss).solve(**options)  # type: ignore[arg-type]
        if isinstance(privacy, PureDP):
            return stairs
        gaussian = Calibration("gaussian", privacy, self.query.bounds, 2, self.loss)
        return min(stairs, gaussian.solve(), key=lambda result: result.value)

    def numbers(self, values: Numbers) -> Array:
        """Return Σ y and Σ (1 − y), each y rounded to a multiple of 2⁻²⁰ at random, without bias: doubles hold such sums exactly."""
        held = checks.answers("values", values)
        DataError.when(held.ndim != 1, "values: must be a list of numbers, one per person")
        x = np.clip(held, self.lower, self.upper)
        steps = (x - self.lower) / (self.upper - self.lower) * _PARTS + checks.generator(None).random(x.shape)
        high = int(np.minimum(steps, _PARTS).astype(np.int64).sum())
        return np.array([high, x.size * _PARTS - high]) / _PARTS

    def mean(self, numbers: Numbers) -> float:
        """Return the mean that follows from the two counts; the middle of the bounds if their sum is not positive."""
        counts = checks.answers("numbers", numbers, 2).ravel()
        DataError.when(counts.size != 2, "numbers: must be two")
        high, low = counts.tolist()
        share = min(max(high / (high + low), 0.0), 1.0) if high + low > 0 else 0.5
        return self.lower + (self.upper - self.lower) * share

    def release(self, values: Numbers, result: Result) -> float:
        """Return the private mean of everybody's numbers, by a result of `solve` or one for `query`.

        Parameters
        ----------
        values : array_like, shape (n,)
            One number a person.

        Raises
        ------
        DataError
            A number that is not finite, true or false. The guarantee does not cover that refusal.
        """
        paired, counts = self._paired(result), self.numbers(values)
        if not paired:
            return self.mean(result.mechanism.release(counts))
        noise = paired_staircases(result.design.epsilon, result.mechanism.parameters["gamma"], _PARTS)
        return self.mean(counts + np.array(noise) / _PARTS)

    def errors(self, result: Result) -> Accuracy:
        """Return the errors of the mean, to first order, if everybody is at one of the bounds; elsewhere they are smaller on average."""
        paired = self._paired(result)
        found = result.errors(None if paired else self.query)
        unit = (self.upper - self.lower) / self.about
        return Accuracy(unit * found.standard_deviation, unit * found.absolute_error, unit * found.half_width)

    def _paired(self, result: Result) -> bool:
        """Whether this is noise for one number, to be drawn in pairs; raise DesignError unless it is that or answers `query`."""
        design, law = checks.instance("result", result, Result).design, result.mechanism
        if isinstance(design, OptimalNoise) and isinstance(law, AdditiveNoise):
            asked = design.dimension, design.sensitivity, type(design.privacy)
            if asked == (1, 1.0, PureDP) and law.law.dist.name == "staircase":
                return True
        self.query.check("result", result)
        return False


_PARTS = 2**20
"""Steps per person: doubles count up to 2³³ people exactly."""


@serializable("local-report")
class LocalReport(_Question):
    """One person's number, reported privately in a few bits, unbiased.

    Parameters
    ----------
    bits : int
        Bits of a report, 1 to 6: 2^bits outputs, at most. For more, solve a design itself: `OptimalQuantizer` takes
        hundreds of outputs.
    input_range : (float, float), optional
        Range of the number; by default the support of a law, or [−1, 1] without a prior; for samples as prior it must be stated. With
        `clients` it is the clipping range, by default chosen; with samples, the widest range tried.
    prior : frozen scipy.stats law, md.clipped, md.truncated, or samples, optional
        Public law of the numbers; uniform on the range by default.
    loss : "absolute", "squared", dict of the two, or convex callable
        Loss by which mechanisms are ranked; absolute by default.
    clients : int, optional
        Number of clients whose mean is estimated: mechanisms are ranked by its squared error, including the bias of clipping
        (`mechdesign.choose.clipping`). The prior, a law of finite variance, need not be bounded: every mechanism clips
        at the range that is best for it, or at `input_range` if given.

    Examples
    --------
    >>> print(LocalReport(bits=2))
    a report of 2 bits on a number in [-1, 1], absolute loss
    >>> print(LocalReport(bits=2, prior=stats.norm(), clients=1000))
    reports of 2 bits of 1000 clients whose mean is wanted, each clipped to the mechanism's best range, squared loss
    """

    asks, answered_by = "report", "an unbiased quantizer, for reports"
    requirements = (PureDP,)

    bits: int = field(check=checks.integer, least=1, most=6, default=4)
    input_range: Any = None
    prior: Any = None
    loss: Any = None
    clients: int | None = None

    def _post_check(self) -> None:
        plain = "absolute" if self.clients is None else "squared"
        checks.settle(self, loss=Loss.of(plain if self.loss is None else self.loss))
        given = None if self.input_range is None else checks.interval("input_range", self.input_range)
        law = self.prior
        if law is None:
            given = given or (-1.0, 1.0)
            law = stats.uniform(given[0], given[1] - given[0])
        if self.clients is not None:
            allowed = "must be squared, which the error of a mean is known by"
            refuse(self.loss != Loss(squared=1.0), "loss", self.loss.name, allowed)
            clients = checks.integer("clients", self.clients, 1, 10**15)
            prior = Prior.of(law, unbounded=True)
            given = stated_range(prior, self.input_range)
            checks.settle(self, prior=prior, clients=clients, input_range=given)
            centre = self.mean.units[0]  # raises if there is no variance
            if self.mean.widest and not self.mean.widest[0] < centre < self.mean.widest[1]:
                raise DesignError.of("input_range", given, "must hold the mean of the samples")
            return
        prior, (low, high) = Prior.ranged(law, given)
        checks.settle(self, prior=prior, input_range=(low, high))
        self.loss.check_convex(np.linspace(low, high, 9), low, high)

    @property
    def outputs(self) -> int:
        """Largest number of different reports."""
        return int(2**self.bits)

    @cached_property
    def mean(self) -> ClippedMean:
        """Errors of the clients' mean under clipping."""
        return ClippedMean(self.prior, self.clients or 1, None if self.clip else self.input_range)

    @property
    def clip(self) -> tuple[float, float] | None:
        """The range common to all mechanisms; None if each has its own."""
        searched = self.clients is not None and isinstance(self.prior, EmpiricalPrior)
        return None if searched else self.input_range

    def within(self, low: float, high: float) -> LocalReport:
        """Return the question about one report of a client's number clipped to a range."""
        low, high = checks.interval("input_range", (low, high))
        start, stop = self.prior.support
        prior = self.prior if low <= start and stop <= high else self.prior.clip(low, high)
        return replace(self, prior=prior, input_range=(low, high), clients=None)

    def _check_covered(self, name: str, result: Result) -> None:
        mechanism = result.mechanism
        low, high = mechanism.input_range
        allowed = "must be 0: reports are unbiased"
        refuse(result.design.max_bias, f"{name}: max_bias", result.design.max_bias, allowed)
        if self.clip and (low > self.clip[0] or high < self.clip[1]):
            raise DesignError.of(f"{name}: input_range", (low, high), f"must cover {self.clip}")
        allowed = f"must be at most the question's {self.outputs}"
        refuse(len(mechanism.bins) > self.outputs, f"{name}: bins", len(mechanism.bins), allowed)

    def own(self, result: Result) -> bool:
        asked = self if self.clients is None else self.within(*result.mechanism.input_range)
        stated = ((one.prior, one.loss, one.input_range) for one in (asked, result.design))
        return same(*stated) and result.design.objective == "mean"

    def error(self, result: Result) -> float:
        """The question's loss of a report, over the question's prior."""
        mechanism = checks.instance("result", result, Result).mechanism
        if self.clients is not None:
            return self.mean.of(mechanism).squared(self.clients).item()
        return float(mechanism.expected_loss(self.prior, self.loss))

    def __str__(self) -> str:
        low, high = self.input_range or (math.nan, math.nan)
        plural = "" if self.bits == 1 else "s"
        if self.clients is not None:
            to = f"[{low:.12g}, {high:.12g}]" if self.input_range else ""
            to = to if self.clip else " in ".join(filter(None, ("the mechanism's best range", to)))
            each = f"reports of {self.bits} bit{plural} of {self.clients} client{'' if self.clients == 1 else 's'}"
            return f"{each} whose mean is wanted, each clipped to {to}, {self.loss.name} loss"
        return f"a report of {self.bits} bit{plural} on a number in [{low:.12g}, {high:.12g}], {self.loss.name} loss"


@serializable("metric-report")
class MetricReport(_Question):
    """One person's point in a metric space, reported so that near points are hard to tell apart.

    Parameters
    ----------
    space : MetricSpace
    prior : array, shape (n,), optional
        Probabilities of the points; uniform by default.
    loss : {"metric", "squared", "error"} or array, shape (n, n)
        Cost of reporting y for x: its distance, the square of that, or 1.

    Examples
    --------
    >>> print(MetricReport(MetricSpace.grid(3, 3)))
    a report on 9 points, metric loss
    """

    asks, answered_by = "places", "a channel, for points of a metric space"
    requirements = (MetricDP,)

    space: MetricSpace = field(MetricSpace)
    prior: Numbers | None = None
    loss: str | Numbers = "metric"

    def design(self, alpha: float = 1.0) -> MetricChannel:
        """Return the design of the channel of least loss."""
        return MetricChannel(self.space, alpha, self.prior, self.loss)

    def check_privacy(self, privacy: object) -> Any:
        """Return the requirement, or raise DesignError unless it is in the space's own distance."""
        allowed = "must be alpha times the space's own distance: give alpha="
        refuse((asked := super().check_privacy(privacy)).metric != "absolute", "privacy", privacy, allowed)
        return asked

    def _check_covered(self, name: str, result: Result) -> None:
        asked, given = self.design(), result.design
        if not (same(given.space, self.space) and same(given.weights, asked.weights)):
            raise DesignError.of(name, str(given.space), "must be for the question's space and prior")

    def own(self, result: Result) -> bool:
        return bool(result.design.asked_by(self))

    def error(self, result: Result) -> float:
        """The question's loss of a report, over the question's prior."""
        checks.instance("result", result, Result)
        asked = self.design()
        return float((asked.weights[:, None] * asked.losses * result.mechanism.matrix).sum())

    def __str__(self) -> str:
        loss = self.loss if isinstance(self.loss, str) else "a table's"
        return f"a report on {self.space.size} points, {loss} loss"


@serializable("category-report", eq=False)
class CategoryReport(_Question):
    """The category of each of many people, reported privately by each, to answer linear queries on everybody's counts.

    Parameters
    ----------
    workload : Workload or array_like, shape (m, k), optional
        W: the answers are W·counts; all counts by default.
    categories : int, optional
        k, if no workload is given.
    people : int
        Number of reports: the error is that of answers from all of them.
    data : {"average", "worst"}
        Data for which the error holds: averaged over the categories, or with everybody in the worst one.

    Examples
    --------
    >>> print(CategoryReport(categories=100, people=10_000))
    reports of 10000 people on 100 categories: 100 queries on 100 counts: all counts
    """

    asks, answered_by = "categories", "a local report of a category"
    requirements = (PureDP,)
    epsilons = (1e-3, 19.9)

    workload: Any = None
    categories: int | None = field(check=checks.integer, least=2, default=None)
    people: int = field(check=checks.integer, least=1, most=10**12, default=1)
    data: str = field(check=checks.one_of, allowed=("average", "worst"), default="average")

    def _post_check(self) -> None:
        if self.workload is None and self.categories is None:
            raise DesignError.of("categories", None, "must be given, or a workload")
        asked = Workload.identity(self.categories or 2) if self.workload is None else Workload(self.workload)
        if self.categories not in (None, asked.size):
            raise DesignError.of("categories", self.categories, f"must be the workload's {asked.size}")
        asked = LocalWorkload(asked, PureDP(1.0), self.data).workload  # which refuses what has no best report
        checks.settle(self, workload=asked, categories=asked.size)

    def design(self, privacy: PureDP) -> LocalWorkload:
        """Return the design of the report of least error."""
        return LocalWorkload(self.workload, privacy, self.data)

    def _check_covered(self, name: str, result: Result) -> None:
        if not same(result.design.workload, self.workload) or result.design.data != self.data:
            allowed = "must be for the question's workload and data"
            raise DesignError.of(name, str(result.design.workload), allowed)

    def _of_one(self, value: float, design: Any) -> float:
        return float(self.people * max(value - design.constant, 0.0) / self.workload.count)

    def error(self, result: Result) -> float:
        """Return the mean squared error per answer, from all people's reports together."""
        found = checks.instance("result", result, Result)
        return self._of_one(found.value, found.design)

    def least(self, result: Result) -> float:
        return self._of_one(result.lower_bound or 0.0, result.design)

    def __str__(self) -> str:
        return f"reports of {self.people} people on {self.categories} categories: {self.workload}"


@serializable("histogram-of-users")
class HistogramOfUsers(_Question):
    """The histogram of all items of n users with m items each, released without bias.

    Its error is the expected earth mover's distance to the true histogram, in the unit of the space.

    Parameters
    ----------
    space : MetricSpace
    items, users : int
        m and n, public.

    Examples
    --------
    >>> print(HistogramOfUsers(MetricSpace.grid(3, 3), items=30, users=1000))
    the histogram of 1000 users with 30 items each, on 9 points
    """

    asks, answered_by = "users", "a histogram of users"
    requirements = (EMDPrivacy,)

    space: MetricSpace = field(MetricSpace)
    items: int = field(check=checks.integer, least=1)
    users: int = field(check=checks.integer, least=1)

    def design(self, privacy: EMDPrivacy, by: str | None = None) -> UserHistogram:
        """Return the design of the best mechanism, or of one of them by name."""
        return UserHistogram(self.space, privacy, self.items, self.users, by)

    def check_privacy(self, privacy: object) -> Any:
        """Return the requirement in the earth mover's distance, or raise DesignError."""
        if isinstance(privacy, MetricDP) and privacy.metric == "absolute":
            privacy = EMDPrivacy(privacy.epsilon)
        return self.design(super().check_privacy(privacy)).privacy

    def _check_covered(self, name: str, result: Result) -> None:
        given = result.design
        if not same((given.space, given.items, given.users), (self.space, self.items, self.users)):
            raise DesignError.of(name, str(given.space), "must be for the question's space, items and users")

    def error(self, result: Result) -> float:
        """Return the expected earth mover's distance, or an upper bound on it, for all data."""
        return float(checks.instance("result", result, Result).design.error(result.mechanism))

    def __str__(self) -> str:
        return (
            f"the histogram of {self.users} users with {self.items} items each, on {self.space.size} points"
        )


@serializable("choice-question", eq=False)
class ChoiceQuestion(_Question):
    """Which of several candidates has the largest score, or count.

    The error is the expected regret: the largest score minus that of the chosen candidate.

    Parameters
    ----------
    candidates : int or sequence of str
    neighbours, spread, largest, objective : optional
        As in `PrivateChoice`. With `largest` the regret is at counts from 0 to it, the worst or the mean one, and the optimal table is
        compared too. Without it, the regret is the largest among scores with equal gaps to the best.

    Examples
    --------
    >>> print(ChoiceQuestion(3, largest=4))
    a choice among 3 candidates (one vote), worst regret over counts of 0 to 4
    """

    asks, answered_by = "choice", "a choice of a candidate"
    requirements = get_args(RulePrivacy)

    candidates: int | tuple[str, ...]
    neighbours: str = "one vote"
    spread: float | None = None
    largest: int | None = None
    objective: str = "worst"

    def _post_check(self) -> None:
        checks.settle(self, candidates=self.design(PureDP(1.0)).candidates)

    def design(self, privacy: Any) -> PrivateChoice:
        """Return the design of the best choice."""
        return PrivateChoice(**{f.name: getattr(self, f.name) for f in fields(self)}, privacy=privacy)

    def _check_covered(self, name: str, result: Result) -> None:
        given = result.design
        asked = self.design(given.privacy)
        if not same(
            given, asked if given.largest else replace(asked, largest=None, objective=given.objective)
        ):
            remedy = "must be for the question's candidates, neighbours, spread and counts"
            raise DesignError.of(name, given.size, remedy)

    def error(self, result: Result) -> float:
        """Return the expected regret."""
        return result.errors(self).absolute_error

    def __str__(self) -> str:
        moved = self.neighbours if self.spread is None else f"spread {self.spread:g}, {self.neighbours}"
        counts = f"{self.objective} regret over counts of 0 to {self.largest}"
        regret = "largest regret of any scores" if self.largest is None else counts
        return f"a choice among {self.design(PureDP(1.0)).size} candidates ({moved}), {regret}"


Question = NumericQuery | LocalReport | MetricReport | CategoryReport | HistogramOfUsers | ChoiceQuestion
Requirement = Privacy | EMDPrivacy


def checked_question(question: object) -> Question:
    """Return the question, or raise DesignError."""
    found: Question = checks.instance("question", question, *get_args(Question))
    return found


def check_same_privacy(name: str, result: Result, privacy: object) -> None:
    """Raise DesignError unless the result was made for this privacy."""
    held = getattr(result.design, "privacy", None)
    refuse(held != privacy, name, held, f"is not the privacy of the question, {privacy}")

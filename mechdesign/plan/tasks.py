r"""Tasks of a plan: counts, histograms, means and sums over the same people.

A task consists of *parts*, numbers that get independent noise of one law. Most have one. A mean of values in [a, b] is one number if
one person's data are replaced: n is then public, and the mean changes by (b − a)/n. If one person is added or removed it has two parts: the sum of the
values minus the middle m of [a, b], which one person changes by h = (b − a)/2, and the count. The answer is their quotient plus m; for the
worst mean its squared error is :math:`(V_{sum} + h^2 V_{count})/n^2` to first order in 1/n, which a plan minimises.

A sum clipped to [0, c] changes by c under either relation. If a public law of the values is given, each offered clip has the squared
bias :math:`(n\,E(X - c)^+)^2`, and the plan chooses among them without using the data.

A workload of linear queries A x on counts is answered by the matrix mechanism: the numbers R x of a strategy get noise, and :math:`A R^+` maps them to the
answers. R is the strategy of least Gaussian noise, for any share of the budget, or the counts themselves.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from mechdesign import checks
from mechdesign.checks import Checked, field, refuse
from mechdesign.choose.questions import NumericQuery
from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.exact import round_up
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.changes import Changes
from mechdesign.noise.correlated import MatrixMechanism
from mechdesign.noise.correlated_noise import StrategyNoise, released
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import ZeroConcentratedDP
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.problem.workload import Workload
from mechdesign.typing import Array

_FINEST = 26
"""A centred sum is rounded to 2⁻²⁶ of one person's change: exact for up to 2²⁷ people."""
_GRAIN = 2.0**-22
"""Unit to which a strategy's numbers are rounded: exact for up to 2³⁰ people."""


@dataclass(frozen=True)
class Part:
    """Numbers that get independent noise of one law.

    Parameters
    ----------
    name : str
        "" for a task's only part.
    dimension : int
    sensitivity : Sensitivity
    whole : bool
        Whether the numbers and their noise are whole.
    worth : float
        Squared error of the task per unit of this noise's variance, over `dimension`.
    bias : float
        Squared error of the task from bias.
    version : int
        Index among the versions that the task offers.
    clip : float, optional
    worst : float, optional
        Squared error of the worst answer per unit of variance, if answers are sums of these numbers; otherwise it is `worth`.
    answers : int, optional
        Number of such sums.
    """

    name: str
    dimension: int
    sensitivity: Sensitivity
    whole: bool = False
    worth: float = 1.0
    bias: float = 0.0
    version: int = 0
    clip: float | None = None
    worst: float | None = None
    answers: int | None = None

    @property
    def largest(self) -> float:
        """Squared error of the worst answer per unit of variance."""
        return self.worth if self.worst is None else self.worst

    @property
    def unit(self) -> float:
        """Factor of a number's noise in the worst answer: 1 except for sums of these numbers."""
        return 1.0 if self.answers is None else math.sqrt(self.largest)


class Task(Checked):
    """Base of tasks, which are answered once per round."""

    @abstractmethod
    def slots(self, neighbours: str) -> tuple[tuple[Part, ...], ...]:
        """Return the parts, each with the versions to choose from."""

    def settled(self, version: int) -> Task:
        """Return the task with the chosen version only."""
        return self

    def read(self, name: str, x: Any, parts: Sequence[Part]) -> list[Array]:
        """Return the numbers of each part, or raise DataError."""
        return [numbers(name, x, parts[0])]

    def told(self, noisy: Sequence[Array], parts: Sequence[Part]) -> Any:
        """Return the answer, from the noisy numbers."""
        found = noisy[0].astype(np.int64) if parts[0].whole and np.abs(noisy[0]).max() < 2**62 else noisy[0]
        return found if found.ndim else found.item()


def numbers(name: str, x: Any, part: Part) -> Array:
    """Return the numbers of one part; raise DataError unless their count fits and they are whole if the part is."""
    found = checks.answers(name, x)
    if found.shape not in ([(), (1,)] if part.dimension == 1 else [(part.dimension,)]):
        count = "one number" if part.dimension == 1 else f"{part.dimension} numbers"
        raise DataError(f"{name}: must be {count}")
    DataError.when(part.whole and np.any(np.floor(found) != found), f"{name}: must be whole numbers")
    return found


@serializable("histogram-task")
class Histogram(Task):
    """Counts of people by bin.

    Parameters
    ----------
    bins : int
    contribution : int or Sensitivity
        Most bins in which one person is counted, once in each; or the changes by one person, for the plan's neighbours
        (``Sensitivity.of_contribution(linf=2, l0=3)``: at most three bins, at most twice each).
    whole : bool
        Whether answers are whole numbers.

    Examples
    --------
    >>> part, = Histogram(50).slots("replace")[0]
    >>> part.sensitivity.largest_l1(50), round(part.sensitivity.largest_l2(50), 6)
    (2.0, 1.414214)
    """

    bins: int = field(check=checks.integer, least=1, most=10**7)
    contribution: int | Sensitivity = 1
    whole: bool = field(check=checks.one_of, allowed=(True, False), default=True)

    def _post_check(self) -> None:
        if isinstance(self.contribution, Sensitivity):
            self.contribution.check(self.bins)
        else:
            checks.integer("contribution", self.contribution, 1, self.bins)

    def slots(self, neighbours: str) -> tuple[tuple[Part, ...], ...]:
        changes = self.contribution
        if not isinstance(changes, Sensitivity):
            changes = Sensitivity.of_contribution(
                linf=1, l0=changes, neighbours=neighbours, dimension=self.bins
            )
        allowed = f"must be for the plan's neighbours: Sensitivity(neighbours={neighbours!r})"
        refuse(changes.neighbours != neighbours, "sensitivity", str(changes), allowed)
        return ((Part("", self.bins, replace(changes, own=None), self.whole),),)


@serializable("count-task")
class Count(Task):
    """A count of people, or of items of which one person has at most `contribution`.

    Parameters
    ----------
    contribution : int
        Most times that one person is counted.
    whole : bool
        Whether the answer is a whole number.
    """

    contribution: int = field(check=checks.integer, least=1, most=10**9, default=1)
    whole: bool = field(check=checks.one_of, allowed=(True, False), default=True)

    def slots(self, neighbours: str) -> tuple[tuple[Part, ...], ...]:
        changes = Sensitivity(linf=self.contribution, neighbours=neighbours, signed=neighbours == "replace")
        return Histogram(1, changes, self.whole).slots(neighbours)


@serializable("mean-task")
class Mean(Task):
    """The mean of numbers in a range, one per person.

    Parameters
    ----------
    lower, upper : float
    n : int
        Number of people: public if data are replaced, otherwise a public estimate that only scales errors.

    Notes
    -----
    `release` takes the mean if data are replaced, or the sum of the numbers and their count if people are added or removed, and answers with the mean.
    """

    lower: float = field(check=checks.number)
    upper: float = field(check=checks.number)
    n: int = field(check=checks.integer, least=1, most=10**12)

    def _post_check(self) -> None:
        width = self.upper - self.lower
        refuse(not 1e-100 < width < 1e100, "upper", self.upper, "must be above lower, by 1e-100 to 1e100")

    @property
    def _half(self) -> Fraction:
        return (Fraction(self.upper) - Fraction(self.lower)) / 2

    @property
    def _grain(self) -> Fraction:
        finest = min(_FINEST, 53 - self.n.bit_length())  # sums of n numbers are doubles
        return Fraction(2) ** (math.frexp(float(self._half))[1] - finest)

    def slots(self, neighbours: str) -> tuple[tuple[Part, ...], ...]:
        h, n = self._half, self.n
        if neighbours == "replace":
            return ((Part("", 1, Sensitivity(linf=round_up(2 * h / n), neighbours=neighbours)),),)
        total = Part("sum", 1, Sensitivity(linf=round_up(h + self._grain)), worth=1 / n**2)
        return ((total,), (Part("count", 1, Sensitivity(linf=1), True, float(h) ** 2 / n**2),))

    def read(self, name: str, x: Any, parts: Sequence[Part]) -> list[Array]:
        if len(parts) == 1:
            return super().read(name, x, parts)
        DataError.when((pair := checks.answers(name, x)).shape != (2,), f"{name}: must be sum and count")
        middle = (Fraction(self.upper) + Fraction(self.lower)) / 2
        centred = (Fraction(pair[0]) - middle * Fraction(pair[1])) / self._grain
        steps = max(
            min(math.floor(centred + Fraction(1, 2)), 2**53), -(2**53)
        )  # one person's change stays within a grain
        return [np.array(float(steps * self._grain)), numbers(name, pair[1], parts[1])]

    def told(self, noisy: Sequence[Array], parts: Sequence[Part]) -> float:
        if len(parts) == 1:
            return float(noisy[0].item())
        middle, half = (self.upper + self.lower) / 2, float(self._half)
        return middle + min(max(noisy[0].item() / max(noisy[1].item(), 1.0), -half), half)


@serializable("sum-task")
class Sum(Task):
    """The sum of numbers clipped to [0, clip], one per person.

    Parameters
    ----------
    clip : float or sequence of float
        Clip, or several of which the plan chooses one; these need `values` and `n`. The table shows the choice; released answers must be clipped there.
    values : frozen scipy.stats law, md.clipped, md.truncated, or samples, optional
        Public law of the numbers.
    n : int, optional
        Public estimate of the number of people.
    whole : bool
        Whether the numbers are whole.
    """

    clip: float | tuple[float, ...]
    values: Any = None
    n: int | None = field(check=checks.integer, least=1, most=10**12, default=None)
    whole: bool = field(check=checks.one_of, allowed=(True, False), default=False)

    def _post_check(self) -> None:
        several = isinstance(self.clip, (list, tuple)) or getattr(self.clip, "ndim", 0) > 0
        clips = tuple(checks.positive("clip", c) for c in (self.clip if several else [self.clip]))  # type: ignore[union-attr]
        if not clips or (self.whole and any(c % 1 for c in clips)):
            raise DesignError.of("clip", self.clip, "must be positive, and whole of whole numbers")
        if (several or self.values is not None) and (self.values is None or self.n is None):
            raise DesignError.of("values, n", (self.values, self.n), "must be given to choose among clips")
        checks.settle(self, clip=clips if several else clips[0])
        if self.values is not None:
            bounded = "must be samples or a bounded law, as md.clipped(law, 0, largest)"
            with checks.refusing("values", self.values, bounded, DesignError):
                checks.settle(self, values=Prior.of(self.values))
            refuse(self.values.support[0] < 0, "values", self.values.support, "must not be negative")

    @property
    def clips(self) -> tuple[float, ...]:
        """Clips to choose from."""
        return self.clip if isinstance(self.clip, tuple) else (self.clip,)

    def _bias(self, clip: float) -> float:
        if self.values is None or clip >= (top := self.values.support[1]):
            return 0.0
        mass, mean, _ = self.values.moments(np.array([max(clip, self.values.support[0]), top]))[0]
        return float((self.n or 0) * max(mean - clip * mass, 0.0)) ** 2

    def slots(self, neighbours: str) -> tuple[tuple[Part, ...], ...]:
        return (
            tuple(
                Part("", 1, Sensitivity(linf=c, neighbours=neighbours), self.whole, 1.0, self._bias(c), k, c)
                for k, c in enumerate(self.clips)
            ),
        )

    def settled(self, version: int) -> Sum:
        return replace(self, clip=self.clips[version])


@serializable("workload-task", eq=False)
class LinearQueries(Task):
    """A workload answered by a strategy, made by a plan from a `Workload`.

    Parameters
    ----------
    workload : Workload
        A. One person is in one of its counts.
    strategies : tuple of (ndarray, shape (r, n), or None)
        Strategies R to choose from; None denotes the counts themselves.
    """

    workload: Workload = field(Workload)
    strategies: tuple[Array | None, ...] = (None,)

    def _post_check(self) -> None:
        _ = self._laws

    @classmethod
    def best(cls, workload: Workload, neighbours: str, norms: Sequence[int]) -> LinearQueries:
        """Return the task with noise on the counts or on the strategy of least Gaussian noise; if scales depend on one norm only, the latter only if it costs 5% less."""
        changed = min(1 + (neighbours == "replace"), workload.size)
        try:
            Changes(workload.size, changed, 1.0, signed=True).check()
        except DesignError:
            allowed = "has more counts than a strategy is held for: ask for fewer, or release it apart by MatrixMechanism(..., buffers=8)"
            if changed > 1:
                allowed = 'has too many changes of two counts at once to list: ask for fewer counts, or for neighbours="add-remove"'
            raise DesignError.of("workload", str(workload), allowed) from None
        asked = MatrixMechanism(workload, ZeroConcentratedDP(0.5), l0=changed)
        found = cls(workload, (None, asked.solve(certify=False).mechanism.strategy))
        if len(norms) != 1:
            return found
        size = Sensitivity.largest_l1 if norms[0] == 1 else Sensitivity.largest_l2
        costs = [
            size(p.sensitivity, p.dimension) ** 2 * p.worth * p.dimension for p in found.slots(neighbours)[0]
        ]
        return found.settled(int(0.95 * costs[0] > costs[1]))

    def settled(self, version: int) -> LinearQueries:
        return replace(self, strategies=(self.strategies[version],))

    @cached_property
    def _laws(self) -> tuple[StrategyNoise, ...]:
        every = np.eye(self.workload.size)
        return tuple(StrategyNoise(self.workload, every if r is None else r, 1.0) for r in self.strategies)

    def slots(self, neighbours: str) -> tuple[tuple[Part, ...], ...]:
        moved, size = 1 + (neighbours == "replace"), self.workload.size
        found = []
        for version, (strategy, law) in enumerate(zip(self.strategies, self._laws)):
            rows = len(law.strategy)
            changes = Histogram(size).slots(neighbours)[0][0].sensitivity
            if strategy is not None:
                spent, _ = Changes(size, min(moved, size), 1.0, signed=True).consumed(strategy)
                column = float(np.abs(strategy).sum(axis=0).max()) * (1 + (rows + 8) * 2.0**-52)
                changes = Sensitivity(
                    l1=round_up(moved * Fraction(column) + rows * Fraction(_GRAIN)),
                    l2=(math.sqrt(spent) + math.sqrt(rows) * _GRAIN) * (1 + 1e-15),
                    neighbours=neighbours,
                )
            worth, worst = law.mse / rows, float(law.variances.max())
            found.append(
                Part(
                    "",
                    rows,
                    changes,
                    strategy is None,
                    worth,
                    version=version,
                    worst=worst,
                    answers=self.workload.count,
                )
            )
        return (tuple(found),)

    def read(self, name: str, x: Any, parts: Sequence[Part]) -> list[Array]:
        counts = numbers(name, x, replace(parts[0], dimension=self.workload.size))
        if self.strategies[0] is None:
            return [counts]
        held = released(self.strategies[0], counts[None, :], _GRAIN, None)[0]
        DataError.when(np.abs(held).max() > 2**30, f"{name}: must count at most {2**30} people")
        return [held]

    def told(self, noisy: Sequence[Array], parts: Sequence[Part]) -> Any:
        found = self.workload.apply(self._laws[0].inverse @ noisy[0])
        whole = parts[0].whole and "matrix" not in self.workload.kinds
        return super().told([found], [replace(parts[0], whole=whole)])


def task_of(name: str, task: object) -> Task:
    """Return a task, or the `Histogram` equivalent to a `NumericQuery`."""
    if isinstance(task, NumericQuery):
        if (task.rounds, task.sampling_rate, task.loss) != (1, 1.0, "squared"):
            raise DesignError.of(name, str(task), "must be asked once, of everybody, with squared loss")
        if task.changes is not None:
            raise DesignError.of(name, str(task), "must state bounds: noise of a plan is independent")
        return Histogram(task.dimension, task.bounds, task.integer)
    return checks.instance(name, task, Task)


def deviation_of(name: str, pair: Any) -> float:
    """Return the standard deviation from a share and a size, as in ``relative=`` of `Plan`."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DesignError.of(f"relative[{name!r}]", pair, "must be a share and the size that it is of")
    share, size = (checks.positive(f"relative[{name!r}]", part) for part in pair)
    return share * size

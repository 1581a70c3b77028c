r"""What is asked of optimal noise, and K independent coordinates of one cell law: sampled and released exactly, private as a whole.

With :math:`D_k(\alpha) = \sum_j [p_j - \alpha p_{j+k}]_+` of a shift by k cells, a shift by :math:`(k + \theta)\beta` has
:math:`(1-\theta) D_k + \theta D_{k+1}`: the pair of laws is that of k or of k + 1 cells, by a coin that may be seen. K
shifted coordinates are therefore a mixture of products over whole cells, and whatever dominates every :math:`D_k`,
k ≤ n, dominates in each factor. :math:`h = \max_k D_k` does: a convex function of α and so itself the curve of a pair of laws;
the chords of its values on a grid, computed with their rounding errors added, lie above it.

Tails are followed until they weigh nothing; what lies beyond counts as infinite loss. Where one weight stands for a span of
cells, the pairs are the overlaps of spans, whose lengths are linear in the shift between the differences of the spans' ends:
shifts by these differences decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np

from mechdesign.accounting.composition import composed_delta
from mechdesign.accounting.grid import discretise_atoms
from mechdesign.accounting.interval import DeltaInterval
from mechdesign.accounting.least_kept import least_kept
from mechdesign.accounting.losses import AtomicLoss
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import round_down, round_up
from mechdesign.evidence.proofs import (
    INDEPENDENT_NOISE,
    PROVED,
    REAL_NOISE,
    RECOMPUTED,
    Certificate,
    Claim,
    MechanismClass,
    every,
)
from mechdesign.evidence.results import Accuracy
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.cell_noise import CellNoise, IntegerNoise
from mechdesign.noise.laws import draw_laws
from mechdesign.problem import checks
from mechdesign.problem.checks import UP, field, integer, one_of, positive, settle
from mechdesign.problem.losses import Loss, average_costs, tail_costs, tail_side
from mechdesign.problem.mechanism import AddedNoise
from mechdesign.problem.privacy import GAUSSIAN_ALONE, GaussianDP, Pointwise, pairs_of
from mechdesign.problem.sensitivity import Protection, Sensitivity, neighbours_field, neighbours_of
from mechdesign.problem.spine import Design
from mechdesign.typing import Array, Indices, Numbers, Values

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST_CHANGE = 500
"""Of whole numbers: a linear program of minutes."""


@dataclass(frozen=True)
class NoiseQuestion(Design):
    """The question that `mechdesign.OptimalNoise` asks and that every proof of its results is checked against."""

    asks: ClassVar[str] = "numbers"

    privacy: Pointwise = field(*get_args(Pointwise))
    sensitivity: Any = 1.0
    loss: object = "absolute"
    dimension: int = field(check=integer, least=1, most=10**6, default=1)
    l0: int | None = None
    integer: bool = field(check=one_of, allowed=(True, False), default=False)
    neighbours: str = neighbours_field()

    def __post_init__(self) -> None:
        settle(self, neighbours=neighbours_of(self.sensitivity, self.neighbours))
        if isinstance(self.privacy, GaussianDP):
            raise DesignError.of("privacy", self.privacy, GAUSSIAN_ALONE)
        super().__post_init__()
        if isinstance(self.sensitivity, Sensitivity):
            if self.l0 is not None:
                raise DesignError.of("l0", self.l0, "is for a number: the Sensitivity says it")
            size, count = alike(self.sensitivity, self.dimension)
            settle(self, sensitivity=size, l0=count)
        settle(self, sensitivity=positive("sensitivity", self.sensitivity, side=UP))
        if self.l0 is not None:
            count = integer("l0", self.l0, 1, self.dimension)
            settle(self, l0=None if count == self.dimension else count)
        for epsilon, delta in self.points:
            if not (1e-18 <= epsilon <= 200 or (epsilon == 0 and delta >= 1e-18)):
                what = "where e^-ε is a mass, and not 1 to all digits kept; or 0, with delta"
                raise DesignError.of("epsilon", epsilon, f"must be between 1e-18 and 200, {what}")
        if self.integer and not 1 <= self.sensitivity <= LARGEST_CHANGE:
            allowed = f"must be 1 to {LARGEST_CHANGE}, where whole numbers change; of larger changes leave integer=True out"
            raise DesignError.of("sensitivity", self.sensitivity, allowed)
        self._check_unit()

    def _check_unit(self) -> None:
        """Refuse a sensitivity in whose unit doubles do not hold the loss, nor what laws and proofs make of it."""
        loss, size = self.given_loss, Fraction(self.sensitivity)
        at_size = Fraction(loss.absolute) * size + Fraction(loss.squared) * size**2
        if loss.function is not None:  # taken to grow no faster than the square
            at_size = size**2
        if not (1e-200 <= at_size <= 1e200 and 1e-100 <= size <= 1e100):
            allowed = "must be between 1e-100 and 1e100, where the loss is between 1e-200 and 1e200: choose another unit"
            raise DesignError.of("sensitivity", self.sensitivity, allowed)

    def protection(self) -> Protection:
        changes = Sensitivity(linf=self.sensitivity, l0=self.l0, neighbours=self.neighbours)
        return Protection(self.dimension, changes, integer=self.integer)

    @property
    def among(self) -> MechanismClass:
        """Every additive noise for one real number, whole-number noise where that is asked for; for several, independent noise of one law."""
        if self.dimension > 1:
            return INDEPENDENT_NOISE
        return every("additive whole-number noise" if self.integer else REAL_NOISE)

    def asked_by(self, question: object) -> bool:
        asked = [getattr(question, name, None) for name in ("scalar", "loss", "integer")]
        # whole numbers need not be protected from changes in between; they may be answered by noise that is not whole, which the
        # bound for whole noise holds of only where the loss is linear between whole numbers (`lattice_bound`)
        if self.integer and self.loss != "absolute":
            return False
        return self.dimension == 1 and asked == [self.sensitivity, self.loss, self.integer]

    @cached_property
    def given_loss(self) -> Loss:
        """The loss of one coordinate."""
        return Loss.of(self.loss)

    @cached_property
    def points(self) -> tuple[tuple[float, float], ...]:
        """(ε, δ) of all that is asked at once, δ = 0 under pure privacy."""
        return pairs_of(self.privacy)

    @property
    def alone(self) -> bool:
        """Whether one ε > 0 is asked, as closed forms and what several copies imply are for."""
        return len(self.points) == 1 and self.points[0][0] > 0

    @property
    def epsilon(self) -> float:
        """ε of the requirement, of one point."""
        [(epsilon, _)] = self.points
        return epsilon

    @property
    def delta(self) -> float:
        """δ of the requirement, of one point."""
        [(_, delta)] = self.points
        return delta

    @property
    def change(self) -> int:
        """The largest change of whole numbers."""
        return int(math.floor(self.sensitivity))

    def unit(self, cells: int) -> Fraction:
        """Width of a cell, so many a sensitivity; of whole numbers 1."""
        return Fraction(1) if self.integer else Fraction(self.sensitivity) / integer("cells", cells, 1)

    @property
    def moved(self) -> int:
        """How many coordinates change at once, at most."""
        return self.l0 or self.dimension


def alike(sensitivity: Sensitivity, dimension: int) -> tuple[float, int]:
    """Return (a, c) where the changes are all those of at most c coordinates by at most a each; refuse other sets.

    Independent noise of one law is as private on that set as on c coordinates that all move by up to a. Which coordinates
    move does not matter, nor whether all rise or fall together, since the law is symmetric.

    Examples
    --------
    >>> alike(Sensitivity(linf=1, l0=3), 20), alike(Sensitivity(each=[2, 2, 0]), 3)
    ((1.0, 3), (2.0, 2))
    """
    bounds = sensitivity.bounds(dimension)
    if len(bounds) > 1 or not sensitivity.allows(bounds):
        raise DesignError.of(
            "sensitivity",
            str(sensitivity),
            "the best noise is known where at most c coordinates change by at most a each: "
            "Sensitivity(linf=a, l0=c), a and c so large that they cover these changes",
        )
    return bounds[0]


def averaged(loss: object, mean: int) -> Loss:
    r"""The loss whose optimum for one coordinate bounds that of several from below.

    The mean of m answers that change is one answer of the same sensitivity, with noise :math:`\bar T` that must be private on its own:
    :math:`E\,|\bar T| \le E\,|T|`, :math:`E\,g(\bar T) \le E\,g(T)` by Jensen, and :math:`E\,\bar T^2 = E\,T^2/m` for
    symmetric laws, which suffice, since a change of signs keeps the box of changes and a mixture of private laws is
    private. So m times the squared part may be charged; with a function, which need not be even, only once.

    Examples
    --------
    >>> averaged({"absolute": 1, "squared": 2}, 10).name
    '1*absolute + 20*squared'
    """
    given = Loss.of(loss)
    return Loss(given.absolute, given.squared * (mean if given.polynomial else 1), given.function)


@serializable("cell-product")
@dataclass(frozen=True)
class CellProduct(checks.Checked, AddedNoise):
    r"""Independent noise of one cell law on every coordinate of a query.

    Every coordinate may move by up to n cells of the law (``law.cells_per_shift``), all K at once, or c of them.

    Parameters
    ----------
    law : CellNoise or IntegerNoise
        Symmetric about 0.
    dimension : int
        K ≥ 1.
    l0 : int, optional
        c ≤ K: how many coordinates may move at once, at most; all when not given.

    Raises
    ------
    DesignError
        A law that is not symmetric, a dimension that is no whole number.

    Examples
    --------
    >>> noise = CellProduct(CellNoise((1, 2, 4, 8, 4, 2, 1), 1.0, -3.5, cells_per_shift=1), 3)
    >>> round(noise.variance, 4), round(noise.delta_interval(1.0).upper, 3)
    (1.9924, 0.3)
    """

    law: CellNoise | IntegerNoise = field(CellNoise, IntegerNoise)
    dimension: int = field(check=integer, least=1, most=10**9)
    l0: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.l0 is not None:
            checks.settle(self, l0=checks.integer("l0", self.l0, 1, self.dimension))
        if not self.law.symmetric:
            raise DesignError.of("law", "its start or weights", "must be symmetric about 0")

    @property
    def moved(self) -> int:
        """How many coordinates may move at once."""
        return self.l0 or self.dimension

    @property
    def variance(self) -> float:
        """Variance of one coordinate."""
        return self.law.var()

    @property
    def absolute_error(self) -> float:
        """E|T| of one coordinate."""
        return self.law.expected_loss("absolute")

    def errors(self) -> Accuracy:
        """How far off the answer to one coordinate is."""
        return self.law.errors()

    def plot(self, **options: float) -> Figure:
        """Draw the law of one coordinate and its tail."""
        return draw_laws({"this noise": self.law}, **options)

    def _noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return np.asarray(self.law.rvs(shape, rng))

    def release(self, x: Numbers) -> Array:
        """Return answers with noise, drawn exactly from the operating system's randomness: for deployment.

        What is composed for real shifts holds for the lattice that leaves the machine, coordinate by coordinate
        (`CellNoise.release`).

        Parameters
        ----------
        x : array, shape (..., K)

        Raises
        ------
        DataError
            A number that is not finite, or beyond 2⁵³ one that no double holds. The guarantee does not cover that refusal.
        """
        given = checks.read("x", x)
        held = checks.answers("x", given, self.dimension)
        return self.law.release(given if isinstance(self.law, IntegerNoise) else held)

    def delta_interval(self, epsilon: float) -> DeltaInterval:
        """Enclose δ(ε) over every change of the query by at most n cells in each coordinate that may move."""
        return many_interval(
            on_cells(self.law), self.moved, min(checks.non_negative("epsilon", epsilon), 1e6)
        )

    def privacy_profile(self, epsilon: Numbers) -> Values:
        """δ(ε), from above.

        Parameters
        ----------
        epsilon : float or ndarray
            ε ≥ 0.
        """
        return checks.each("epsilon", epsilon, lambda e: self.delta_interval(e).upper)

    def epsilon(self, delta: float) -> float:
        """The least ε certified at `delta`, rounded up; ``inf`` if there is none."""
        delta = checks.probability("delta", delta)

        def over(epsilon: float) -> float:
            upper = self.delta_interval(epsilon).upper
            return math.log(upper / delta) if upper > delta > 0 else upper - delta

        return least_kept(over, 1.0, least=0.0, most=1e6, xtol=1e-9, rtol=1e-9)

    def summary(self) -> str:
        """The law and what it costs."""
        law = on_cells(self.law)
        reach = law.cells_per_shift * law.width
        some = "" if self.moved == self.dimension else f"of at most {self.l0} at once "
        return (
            f"{'cell' if law is self.law else 'whole-number'} noise on {self.dimension} coordinates, for changes {some}up to {reach:.6g} each, "
            f"variance {self.variance:.6g} per coordinate"
        )

    def __str__(self) -> str:
        return self.summary()


def cell_claims(question: NoiseQuestion, stated: Certificate) -> Iterator[Claim]:
    r"""A cell law keeps (ε, δ), by its finitely many hockey-stick sums (`mechdesign.noise.cell_noise`), and costs so much.

    On c coordinates that change at once, each of which keeps (ε/c, δ/c), all of them keep (ε, δ): basic composition
    (Dwork and Roth 2014, theorem 3.16). The sums and the cost are rational; that of a callable loss is computed in doubles,
    rounded up.
    """
    law, size, moved = stated.law, 1, 1
    if isinstance(stated.law, CellProduct):
        law, size, moved = stated.law.law, stated.law.dimension, stated.law.moved
    checks.instance("law", law, IntegerNoise if question.integer else CellNoise)
    if (size, moved) != (question.dimension, question.moved):
        remedy = "must be the question's: numbers, and how many change"
        raise DesignError.of("dimension", (size, moved), remedy)
    for epsilon, delta in question.points:
        spare = Fraction(delta) - moved * law.exact_delta(Fraction(epsilon) / moved)
        claim = f"delta at epsilon = {epsilon:g} is at most {delta:g}"
        yield Claim(claim, PROVED, float(spare), spare >= 0)
    cells = on_cells(law)
    asked = question.change if question.integer else Fraction(question.sensitivity)
    reach = Fraction(cells.width) * cells.cells_per_shift - asked
    yield Claim("it holds for every change up to the sensitivity", PROVED, float(reach), reach >= 0)
    room = Fraction(stated.value) - law_cost(law, question.given_loss)
    how = PROVED if question.given_loss.polynomial else RECOMPUTED
    yield Claim(f"the expected loss is at most {stated.value:.9g}", how, float(room), room >= 0)


def law_cost(law: CellNoise | IntegerNoise, loss: Loss) -> Fraction:
    """Return E ℓ(T): exact for the absolute and squared parts of the loss, an upper bound for a callable."""
    if isinstance(law, IntegerNoise):
        return _whole_cost(law, loss)
    n, unit = law.cells_per_shift, Fraction(law.width) / 2
    half = (Fraction(law.start) / unit).denominator
    unit /= half
    ends = np.array(law.ends, dtype=object if half > 1 or law.spans else np.int64)
    spans = np.array(law.spans or (1,) * len(ends), dtype=np.int64)
    weights = np.array(law.weights, dtype=object)
    first = int(Fraction(law.start) / unit)
    (left, right), place, total = law.period, np.arange(len(ends)), Fraction(0)
    for span in np.unique(spans).tolist():
        (at,) = np.nonzero(spans == span)
        middles = first + half * (2 * ends[at] - span)
        total += average_costs(loss, middles, unit, half=half * span).weighted(weights[at].tolist())
        sides = (place[at] < left, -1), (place[at] >= len(ends) - right, 1)
        for side, sign in sides if law.decay else ():
            tail = tail_side(loss, middles[side], unit, half * span, sign * 2 * n * half, law.decay)
            total += tail.weighted(weights[at][side].tolist())
    if law.spike:
        spike = average_costs(loss, np.zeros(1, dtype=np.int64), Fraction(law.spike_width) / 2)
        total += spike.weighted([law.spike])
    return total / law.total


def _whole_cost(law: IntegerNoise, loss: Loss) -> Fraction:
    """The same of noise on the whole numbers."""
    n, held, half = law.change, law.weights, Fraction(1, 2)
    middles = 2 * np.arange(law.first, law.first + len(held))
    total = average_costs(loss, middles, half, half=0).weighted(held)
    if law.decay:
        left, right = tail_costs(loss, middles, half, n, law.decay, half=0)
        total += left.weighted(held[:n]) + right.weighted(held[-n:])
    return total / law.total


def on_cells(law: CellNoise | IntegerNoise) -> CellNoise:
    """The law on cells; that of which noise on the whole numbers is the middle."""
    return law.cells if isinstance(law, IntegerNoise) else law


def law_notes(question: NoiseQuestion, law: CellNoise | IntegerNoise) -> tuple[str, ...]:
    """What a reader should know of a law before trusting it."""
    notes = []
    if not question.given_loss.polynomial:
        notes.append(
            "the loss is a callable: its floating-point values are taken as exact, its convexity sampled"
        )
    if isinstance(law, CellNoise) and law.spike:
        notes.append(
            f"a spike of mass {float(law.spike / law.total):.3g} and width {law.spike_width:.3g} sits at 0: "
            "δ is large enough that almost exact answers pay"
        )
    return tuple(notes)


@dataclass(frozen=True)
class Pieces:
    """Mass per cell between edges (in cells), and the mass of the tails beyond them.

    Parameters
    ----------
    heights : ndarray, shape (m,)
    edges : ndarray of int, shape (m + 1,)
    beyond : float
        Rounded up.
    shifts : ndarray of int
        The whole shifts among which, for every level, the worst of all real ones up to n cells is.
    """

    heights: Array
    edges: Indices
    beyond: float
    shifts: Indices

    def moved(self, k: int) -> tuple[Array, Array, float]:
        """Masses p and q of the pieces where both laws have some when the second is k cells to the left; the mass without partner."""
        cuts = np.union1d(self.edges, self.edges - k)
        a, b = (self._at(places) * np.diff(cuts) for places in (cuts[:-1], cuts[:-1] + k))
        seen = (a > 0) & (b > 0)
        return a[seen], b[seen], float(a[b == 0].sum()) + self.beyond

    def _at(self, places: Indices) -> Array:
        padded = np.concatenate([[0.0], self.heights, [0.0]])
        return np.asarray(padded[np.searchsorted(self.edges, places, side="right")])


@lru_cache(maxsize=32)
def pieces(law: CellNoise) -> Pieces:
    """The pieces of a law, its spike left out; equal neighbours of a law with spans are one."""
    n = law.cells_per_shift
    masses, edges, beyond = law.extended
    heights = masses / np.diff(edges)
    if not law.spans:
        return Pieces(heights, edges, beyond, np.arange(1, n + 1))
    first = np.flatnonzero(np.diff(heights, prepend=np.nan))
    edges = np.append(edges[first], edges[-1])
    near = edges[(edges >= -n) & (edges <= law.count + n)]
    gaps = np.unique(np.subtract.outer(near, near))
    return Pieces(heights[first], edges, beyond, np.append(gaps[(gaps > 0) & (gaps < n)], n))


def _curve(held: Pieces, k: int, levels: Array) -> tuple[Array, float]:
    """D_k at e^levels, rounded up, and its limit: the mass whose partner has none."""
    a, b, infinite = held.moved(k)
    ratio = np.log(a) - np.log(b)
    order = np.argsort(ratio)
    above, below = (np.append(np.cumsum(x[order][::-1])[::-1], 0.0) for x in (a, b))
    i = np.searchsorted(ratio[order], levels, side="right")
    # cells within rounding of the level are on either side of it: they add next to nothing, which the slack covers
    slack = (2e-16 * len(a) + 1e-15) * (above[i] + np.exp(levels) * below[i])
    value = np.maximum(above[i] - np.exp(levels) * below[i], 0.0) + slack + infinite
    return value * (1 + 1e-15), infinite


@lru_cache(maxsize=32)
def dominating_loss(law: CellNoise) -> AtomicLoss:
    """Return a privacy loss that dominates that of every shift of one coordinate up to n cells: the chords of max_k D_k.

    Masses are rounded upwards: they may sum to slightly more than one.
    """
    held, ratios, top = pieces(law), np.zeros(1), 1e-3
    for k in held.shifts:
        a, b, _ = held.moved(k)
        ratios = np.log(a) - np.log(b)
        top = max(top, np.abs(ratios).max(initial=0.0))
    top = top * (1 + 1e-12) + 1e-12
    levels = np.union1d(np.linspace(-top, top, 4096), ratios)
    # points so close that rounding hides the difference of slopes are one, the upper
    levels = levels[np.append(np.diff(levels) > 1e-7 * top, True)]
    curves = [_curve(held, k, levels) for k in held.shifts]
    height = np.max([value for value, _ in curves], axis=0)
    height[-1] = infinite = max(height[-1], *(lost for _, lost in curves))
    hull = _lower_hull(np.exp(levels), height)
    levels, kept = levels[hull], height[hull]
    alpha = np.exp(levels)
    slope = np.concatenate([[(1 - kept[0]) / alpha[0]], -np.diff(kept) / np.diff(alpha), [0.0]])
    mass = alpha * np.maximum(-np.diff(slope), 0.0)
    # What these atoms amount to must be no less than the curve: inflate by what rounding took away.
    tail_p, tail_q = (np.append(np.cumsum(m[::-1])[::-1], 0.0)[1:] for m in (mass, mass / alpha))
    reached = infinite + np.maximum(tail_p - alpha * tail_q, 0.0) * (1 - 1e-15 * len(alpha))
    factor = max(1.0, float(np.max(kept / np.maximum(reached, 1e-300)))) * (1 + 1e-14)
    return AtomicLoss(levels, mass * factor, min(infinite * factor + float(law.spike / law.total), 1.0))


def _lower_hull(x: Array, y: Array) -> Indices:
    """Indices of the lower convex hull of points with increasing x."""
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (y[b] - y[a]) * (x[i] - x[b]) <= (y[i] - y[b]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    return np.array(hull)


def _composed(loss: AtomicLoss, count: int, epsilon: float, *, pessimistic: bool) -> float:
    """δ(ε) of `count` coordinates from above or below, on a grid of 20,000 steps and more that the largest loss is on."""
    if loss.infinity >= 1:
        return 1.0
    spread, top = float(np.ptp(loss.values)), float(np.abs(loss.values).max())
    step = top / math.ceil(20_000 * top / (spread or top)) if top else 1.0
    grid = discretise_atoms(loss, step, pessimistic=pessimistic)
    return composed_delta([(grid, count)], epsilon)[0]


def many_interval(law: CellNoise, count: int, epsilon: float) -> DeltaInterval:
    """Enclose δ(ε) of `count` coordinates with noise of this law, over all shifts up to n cells in each.

    The lower end is that of all coordinates shifted by n cells.
    """
    if count == 1:
        sums = law.hockey_stick(epsilon)
        return DeltaInterval(round_down(sums[law.cells_per_shift]), round_up(max(sums.values())), PROVED)
    # Each coordinate of a pure law consumes nothing within its share of ε.
    if law.decay and law.exact_delta(Fraction(epsilon) / count) == 0:
        return DeltaInterval(0.0, 0.0, PROVED)
    upper = _composed(dominating_loss(law), count, epsilon, pessimistic=True)
    held = pieces(law)
    a, b, lost = held.moved(law.cells_per_shift)
    infinite = max(lost - held.beyond, 0.0) * (1 - 1e-12) if not law.decay else 0.0
    if not a.size:
        return DeltaInterval(min(-math.expm1(count * math.log1p(-min(infinite, 1 - 1e-16))), upper), upper)
    lower = _composed(AtomicLoss(np.log(a) - np.log(b), a, infinite), count, epsilon, pessimistic=False)
    return DeltaInterval(min(lower, upper), upper)

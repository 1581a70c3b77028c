r"""Losses of an error, and exact costs of the points of a lattice.

``"absolute"`` is \|·\|, ``"squared"`` is (·)², a dict mixes them (``{"absolute": 1, "squared": 0.1}``), and
any convex function of the error is accepted as a callable. Weights must be non-negative, so that the loss
is convex; every bound this package proves rests on that.

**On a lattice**, from above for mechanisms: a density that is constant on a cell pays the average of the loss over the cell.

From below, for bounds: round any noise T at random to one of its two neighbours on the lattice βℤ, with probabilities that preserve the mean.
Rounding commutes with shifts by lattice vectors, so it is post-processing, and the lattice noise inherits (ε, δ)-DP for
such shifts. If the piecewise linear function through lattice costs :math:`\hat c_j` lies below the loss, then :math:`E\,\hat c(R(T)) \le
E\,\ell(T)`: the lattice problem bounds every noise. For \|t\| the lattice through 0 gives :math:`\hat c_j = |x_j|` exactly, for t² it gives
:math:`x_j^2 - \beta^2/4`; both are off by O(β²), where the minimum of the loss over a cell is off by O(β).

**Tails.** Geometric tails repeat the outermost n cells for ever; they cost
:math:`\sum_{k \ge 1} r^k \ell(\text{cell} \pm k\,n\beta)` for each cell of the last period.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mechdesign.checks import Checked, field, non_negative, refuse
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_lower
from mechdesign.evidence.serialize import UnavailableCallable, serializable
from mechdesign.typing import Array, Indices, Numbers


@serializable("loss")
class Loss(Checked):
    r"""A convex loss :math:`\ell(t) = w_1 |t| + w_2 t^2 + g(t)`.

    Parameters
    ----------
    absolute, squared : float
        The weights :math:`w_1, w_2 \ge 0`.
    function : callable, optional
        The convex part :math:`g`, vectorised over arrays of errors.

    Examples
    --------
    >>> Loss.of("absolute")(np.array([-2.0, 1.0]))
    array([2., 1.])
    >>> Loss.of({"absolute": 1, "squared": 0.5}).name
    '1*absolute + 0.5*squared'
    """

    absolute: float = field(check=non_negative, default=0.0)
    squared: float = field(check=non_negative, default=0.0)
    function: Callable[[Array], Numbers] | None = field(Callable, default=None)  # type: ignore[arg-type]

    def _post_check(self) -> None:
        if self.function is None and not (self.absolute or self.squared):
            raise DesignError("loss: its weights are all zero; one must be positive")

    @classmethod
    def of(cls, spec: object) -> Loss:
        """Return the loss that `spec` names: a string, a dict of weights, a callable, or a Loss."""
        if isinstance(spec, Loss):
            return spec
        if callable(spec):
            return cls(function=spec)
        weights = {spec: 1.0} if isinstance(spec, str) else spec
        if not isinstance(weights, Mapping) or not weights or set(weights) - {"absolute", "squared"}:
            allowed = 'must be "absolute", "squared", a dict of the two, or a convex callable'
            raise DesignError.of("loss", spec, allowed)
        return cls(**weights)

    @property
    def polynomial(self) -> bool:
        """Whether partial moments of order 0–2 suffice to integrate it."""
        return self.function is None

    @property
    def name(self) -> str:
        """Name of the loss in reports."""
        if self.function is not None:
            held = getattr(self.function, "name", getattr(self.function, "__name__", "callable"))
            return str(held).removeprefix("@")
        weights = {"absolute": self.absolute, "squared": self.squared}
        alone = [name for name, weight in weights.items() if weight]
        if len(alone) == 1 and weights[alone[0]] == 1.0:
            return alone[0]
        parts = [f"{weights[name]:g}*{name}" for name in alone]
        return " + ".join(parts)

    @property
    def words(self) -> str:
        """A phrase to follow "expected".

        Examples
        --------
        >>> Loss.of("absolute").words, Loss.of({"absolute": 1, "squared": 2}).words
        ('absolute error', 'loss 1*absolute + 2*squared of the error')
        """
        return (
            f"{self.name} error" if self.name in ("absolute", "squared") else f"loss {self.name} of the error"
        )

    def in_units(self, unit: float) -> Loss:
        """Return the loss of an error t measured in units: ℓ(unit · t)."""
        given = self.function
        if unit == 1.0:
            return self
        function = None if given is None else lambda t: given(unit * np.asarray(t))
        return Loss(self.absolute * unit, self.squared * unit**2, function)

    def __call__(self, error: Numbers) -> Array:
        """Return ℓ(error), element-wise."""
        error = np.asarray(error, dtype=float)
        value = self.absolute * np.abs(error) + self.squared * error * error
        if self.function is not None:
            try:
                given = np.asarray(self.function(error), dtype=float)
            except DesignError:
                raise
            except Exception as reason:  # a user's own loss may raise anything
                raise DesignError.of("loss", self.name, f"fails on an array of errors: {reason}") from reason
            wanted = f"must map an array of errors to one of its shape, not {given.shape}"
            refuse(given.shape != error.shape, "loss", self.name, wanted)
            value = value + given
        return np.asarray(value)

    def check_convex(self, bins: Array, lower: float, upper: float) -> None:
        """Raise DesignError if ℓ is visibly not convex at the errors that these bins can cause."""
        if not (self.function is None or isinstance(self.function, UnavailableCallable)):
            check_loss(self, np.linspace(np.min(bins) - upper, np.max(bins) - lower, _SAMPLED), grows=False)


_SAMPLED = 1025
"""Errors at which convexity is checked."""
_PANELS = 32
"""Panels per cell of the trapezoid rule (from above) and sub-chords (from below) for a callable loss."""
_SLACK = 1e-13
"""Relative step outward that covers rounding in a callable loss's values and in their sums."""


def outward_decay(epsilon: float, bits: int = 64) -> Fraction:
    """Return a rational of `bits` bits, at least e^{-ε}: pure ε-DP forces tails to decay no faster per sensitivity."""
    return Fraction(math.ceil(2**bits / exp_lower(epsilon)), 2**bits)


def round_width(width: Fraction) -> float:
    """Round a cell width up to 36 significant bits, so that edges are doubles and n cells span the sensitivity."""
    exponent = math.frexp(float(width))[1] - 36
    unit = Fraction(2) ** exponent
    return float(math.ceil(width / unit) * unit)


@dataclass(frozen=True)
class ExactCosts:
    """A row of exact costs over one denominator."""

    numerators: list[int]
    denominator: int

    @classmethod
    def of(cls, costs: Iterable[Fraction]) -> ExactCosts:
        """Bring fractions to one denominator."""
        costs = list(costs)
        denominator = math.lcm(*(c.denominator for c in costs))
        return cls([c.numerator * (denominator // c.denominator) for c in costs], denominator)

    @classmethod
    def combined(
        cls, absolute: Fraction, first: Indices, squared: Fraction, second: Indices, extra: Array | None
    ) -> ExactCosts:
        """Return ``absolute * first + squared * second + extra``, for whole numbers `first` and `second`."""
        denominator = math.lcm(absolute.denominator, squared.denominator)
        a, b = int(absolute * denominator), int(squared * denominator)
        rows = [a * f + b * g for f, g in zip(first.tolist(), second.tolist())]
        if extra is None:
            return cls(rows, denominator)
        return cls.of(Fraction(r, denominator) + Fraction(e) for r, e in zip(rows, extra.tolist()))

    def __getitem__(self, cells: slice) -> ExactCosts:
        return ExactCosts(self.numerators[cells], self.denominator)

    def floats(self) -> Array:
        """The costs as nearest doubles."""
        said = "loss: exceeds what doubles hold at the farthest errors: choose larger units"
        with DesignError.where(said, OverflowError):
            return np.array([n / self.denominator for n in self.numerators])

    def weighted(self, weights: Iterable[int]) -> Fraction:
        """Return the exact sum of costs times weights."""
        return Fraction(sum(n * w for n, w in zip(self.numerators, weights)), self.denominator)


def check_loss(loss: Loss, points: np.ndarray, *, grows: bool = True) -> None:
    """Raise DesignError if the loss is not finite, not convex or, unless `grows` is false, does not grow to both sides on evenly spaced `points`."""
    with np.errstate(all="ignore"):
        values = loss(points)
    if not np.isfinite(values).all():
        where = points[~np.isfinite(values)][0]
        said = f"must be finite on [{points[0]:g}, {points[-1]:g}]; it is not at {where:g}"
        raise DesignError.of("loss", loss.name, said)
    slopes = np.diff(values) / np.diff(points)
    bad = np.flatnonzero(np.diff(slopes) < -1e-9 * (np.abs(slopes).max() + 1e-300))
    if bad.size:
        said = f"is not convex near the error {points[bad[0] + 1]:g}: its value there is above the chord"
        raise DesignError.of("loss", loss.name, said)
    said = f"must grow on both sides; it does not between {points[0]:g} and {points[-1]:g}"
    refuse(grows and not slopes[0] < 0 < slopes[-1], "loss", loss.name, said)


def average_costs(loss: Loss, middles: Indices, unit: Fraction, *, half: int = 1) -> ExactCosts:
    """Return upper bounds of the average loss over cells that reach `half` units to both sides of their middles (0: at the middles).

    The absolute and squared parts are exact; a callable takes the trapezoid rule, an upper bound for convex functions.
    """
    extra = None
    if loss.function is not None:
        left, width = float(unit) * (middles - half).astype(float), 2 * half * float(unit)
        share = np.arange(_PANELS + 1) / _PANELS
        nodes = left[:, None] + width * share
        nodes[np.abs(nodes) < 1e-14 * (np.abs(left).max() + width)] = 0.0  # the kink belongs on a node
        values = Loss(function=loss.function)(nodes)
        extra = (values[:, 1:] + values[:, :-1]).mean(axis=1) / 2 + _SLACK * np.abs(values).max(axis=1)
        allowed = f"must be finite; it is not on [{nodes.min():g}, {nodes.max():g}]"
        refuse(not np.all(np.isfinite(extra)), "loss", loss.name, allowed)
    far, spread = np.abs(middles), 2 * half or 1
    first = np.where(far >= half, spread * far, far**2 + half**2)
    return ExactCosts.combined(
        Fraction(loss.absolute) * unit / spread,
        first,
        Fraction(loss.squared) * unit**2 / 3,
        3 * far**2 + half**2,
        extra,
    )


def lower_costs(loss: Loss, first: int, last: int, width: Fraction, *, whole: bool = False) -> ExactCosts:
    """Return lattice costs at ``j * width``, j = first..last, whose piecewise linear function is below the loss.

    For `whole` numbers they are the loss itself, as their noise lies on the lattice.
    For a callable, the chord over a cell is lowered by a bound of its height above the loss: between two
    samples a convex function lies above the extensions of the neighbouring chords.
    """
    j = np.arange(first, last + 1)
    extra = None
    if whole:
        if loss.function is not None:
            extra = np.asarray(loss.function(j.astype(float)), dtype=float)
        return ExactCosts.combined(Fraction(loss.absolute), np.abs(j), Fraction(loss.squared), j**2, extra)
    if loss.function is not None:
        m = _PANELS
        # One more cell on each side, so that every cell has neighbouring chords.
        nodes = float(width) * (np.arange((first - 2) * m, (last + 2) * m + 1) / m)
        v = np.asarray(loss.function(nodes), dtype=float)
        corners = v[::m]
        share = np.arange(m + 1) / m
        chord = corners[:-1, None] * (1 - share) + corners[1:, None] * share  # (cells, m + 1)
        cells = len(corners) - 1
        index = np.arange(cells)[:, None] * m + np.arange(m)  # left node of each panel
        index = index[1:-1]
        start, end = chord[1:-1, :-1], chord[1:-1, 1:]
        from_left = np.maximum(start - v[index], end - (2 * v[index] - v[index - 1]))
        from_right = np.maximum(end - v[index + 1], start - (2 * v[index + 1] - v[index + 2]))
        height = np.maximum(np.minimum(from_left, from_right).max(axis=1), 0.0)  # cells first-1 .. last
        lowered = corners[2:-2] - np.maximum(height[:-1], height[1:])
        extra = lowered - (
            _SLACK * np.abs(v).reshape(-1)[: cells * m].reshape(cells, m).max(axis=1)[2 : 2 + len(j)]
        )
    return ExactCosts.combined(
        Fraction(loss.absolute) * width, np.abs(j), Fraction(loss.squared) * width**2 / 4, 4 * j**2 - 1, extra
    )


def tail_costs(
    loss: Loss, middles: Indices, unit: Fraction, n: int, decay: Fraction, *, half: int = 1
) -> tuple[ExactCosts, ExactCosts]:
    """Return the tail cost per unit of mass of each of the n leftmost and rightmost cells.

    The absolute and squared parts are exact. A callable is summed until its terms are negligible, and the rest
    bounded by the geometric series of its last ratio.

    Raises
    ------
    DesignError
        The loss grows faster than the tails decay: no ε-DP noise of this form has a finite cost.
    """
    left = tail_side(loss, middles[:n], unit, half, -2 * n, decay)
    return left, tail_side(loss, middles[-n:], unit, half, 2 * n, decay)


def tail_side(loss: Loss, cells: Indices, unit: Fraction, half: int, step: int, r: Fraction) -> ExactCosts:
    """Return the cost of repeating each cell for ever, each time `step` units further out."""
    zero, one, two = r / (1 - r), r / (1 - r) ** 2, r * (1 + r) / (1 - r) ** 3
    linear, square, period = Fraction(loss.absolute) * unit, Fraction(loss.squared) * unit**2, abs(step)
    extra = [0.0] * len(cells)
    if loss.function is not None:
        extra = _callable_tail(loss, cells, unit, half, step, r).tolist()
    return ExactCosts.of(
        linear * (m * zero + period * one)
        + square * ((m * m + Fraction(half**2, 3)) * zero + 2 * m * period * one + period**2 * two)
        + Fraction(e)
        for m, e in zip(np.abs(cells).tolist(), extra)
    )


def _callable_tail(
    loss: Loss, middles: Indices, unit: Fraction, half: int, step: int, decay: Fraction
) -> Array:
    only = Loss(function=loss.function)
    total = np.zeros(len(middles))
    r, power, previous = float(decay), 1.0, None
    for k in range(1, 200_000):
        power *= r
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                costs = average_costs(only, middles + k * step, unit, half=half)
        except DesignError:  # beyond what doubles hold
            break
        term = power * costs.floats()
        total += term
        if previous is not None:
            ratio = float(np.max(term / np.maximum(previous, 1e-300)))
            if ratio < 1 and np.all(term * ratio / (1 - ratio) <= 1e-13 * total):
                return total * (1 + 1e-12)
        previous = term
    allowed = "grows too fast: no noise with exponential tails has a finite cost"
    raise DesignError.of("loss", loss.name, allowed)

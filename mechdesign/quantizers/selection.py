r"""Selection of one output on each side of the input: families of probabilities, and mechanisms with or without bias that draw by them.

The unbiased mechanism draws one bin on each side of the input, and rounds between them without bias.

For x in :math:`[B_j, B_{j+1})`

.. math::

    p(x, l) &= q^{L}_j(l) \sum_{r > j} q^{R}_{m-j}(m+1-r) \frac{B_r - x}{B_r - B_l}, & l &\le j, \\
    p(x, r) &= q^{R}_{m-j}(m+1-r) \sum_{l \le j} q^{L}_j(l) \frac{x - B_l}{B_r - B_l}, & r &> j.

Source: *Privacy-Aware Randomized Quantization via Linear Programming*, §3. RQM and ERM are two members:
:func:`rqm_family`, :func:`erm_family`.

**With bias**, the exponential mechanism chooses between the two.

With the pair (l, r) drawn as in the unbiased family, the output is :math:`B_l` with probability

.. math:: \sigma(\beta (B_l + B_r - 2x)), \qquad \sigma(t) = 1/(1 + e^{-t}),

that is, with weights :math:`e^{-\beta |B - x|}`; β = 0 is a fair coin, β → ∞ takes the nearer bin. Each probability
p(x, i) is a positive combination of logistic functions that all fall (i left of x) or all rise (i right of x) in x, so on
every interval between bins it is monotone, with extremes at the interval's ends: the privacy loss is exact.

Source: *Privacy-Aware Randomized Quantization via Linear Programming*, the biased extension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_lower, exp_upper, log_upper
from mechdesign.evidence.page import Saved
from mechdesign.evidence.results import Accuracy
from mechdesign.evidence.sampling import IntegerRows, bernoulli
from mechdesign.evidence.serialize import serializable
from mechdesign.problem import checks
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers.exact_law import SelectionLaw
from mechdesign.quantizers.table import LARGEST, accuracy, cell_edges, inside, loss_from_floats
from mechdesign.typing import Array, Indices, Numbers, Randomness

_UNITS = f"must be within ±{LARGEST:g}; measure in larger units"


def check_bins(bins: Numbers, name: str = "bins") -> Array:
    """Return bins as a read-only float array, or raise DesignError."""
    found = checks.increasing(name, bins)
    if max(-found[0], found[-1]) > LARGEST:
        raise DesignError.of(name, found[[0, -1]].tolist(), _UNITS)
    return found


def check_range(input_range: object, bins: Array | None = None) -> tuple[float, float]:
    """Return the input range as two floats; raise DesignError unless the bins cover it."""
    lower, upper = checks.interval("input_range", input_range)
    if max(-lower, upper) > LARGEST:
        raise DesignError.of("input_range", (lower, upper), _UNITS)
    if bins is not None and (bins[0] > lower or bins[-1] < upper):
        raise DesignError(
            f"bins = [{bins[0]:g}, …, {bins[-1]:g}]: must cover the input range [{lower:g}, {upper:g}], "
            "or no mechanism can be unbiased"
        )
    return lower, upper


def symmetric_bins(bins: Array) -> bool:
    """Whether the bins are exactly symmetric about zero."""
    return bool(np.all(bins == -bins[::-1]))


def mirrored_bins(bins: Array) -> Array:
    """Make bins exactly symmetric about zero if they are so up to rounding (as from ``linspace``)."""
    mirrored = (bins - bins[::-1]) / 2
    if np.all(np.abs(mirrored - bins) <= 8 * np.finfo(float).eps * np.abs(bins).max()):
        mirrored.setflags(write=False)
        return mirrored
    return bins


def spread(m: int, count: int) -> Indices:
    """Choose `count` of m bins evenly and symmetrically, including the outermost.

    >>> spread(8, 4)
    array([0, 3, 4, 7])
    """
    if count >= m:
        return np.arange(m)
    half = np.round(np.linspace(0, m // 2 - 1, max(1, count // 2))).astype(np.intp)
    middle = [m // 2] if m % 2 and count % 2 else []
    return np.unique(np.concatenate([half, np.array(middle, dtype=np.intp), m - 1 - half]))


def rqm_family(m: int, q: float) -> Array:
    """Return the selection probabilities of RQM (Youn et al. 2023); shape (m − 1, m − 1), row n has n + 1 entries.

    q_j(1) = (1−q)^(j−1), q_j(i) = q (1−q)^(j−i) for 1 < i ≤ j.
    """
    if checks.probability("q", q, below_one=True) == 0:
        raise DesignError.of("q", q, "must be in (0, 1)")
    j, i = np.indices((m - 1, m - 1))
    table = np.where(i == 0, (1 - q) ** j, q * (1 - q) ** np.maximum(j - i, 0))
    return np.where(i <= j, table, 0.0)


def erm_family(bins: Array, gamma: float) -> Array:
    """Return the selection probabilities of ERM: q_j(i) ∝ exp(γ (B_i − B_j) / (2 (B_j − B_1))), q_1(1) = 1."""
    return erm_families(bins)(gamma)


def erm_families(bins: Array) -> Callable[[float], Array]:
    """Return `erm_family` as a function of γ, for many of them with the same bins."""
    steps = np.where(np.tri(len(bins) - 1, dtype=bool), bins[:-1] - bins[:-1, None], -np.inf)
    reach = 2 * np.maximum(bins[:-1] - bins[0], bins[1] - bins[0])[:, None]

    def family(gamma: float) -> Array:
        weights = np.exp(checks.positive("gamma", gamma) * steps / reach)
        return np.asarray(weights / weights.sum(axis=1)[:, None])

    return family


class SelectionPlaces:
    """Geometry shared by all selection mechanisms with the same bins and input range.

    Parameters
    ----------
    bins : array, shape (m,)
    input_range : (float, float)

    Attributes
    ----------
    knots : array, shape (K + 1,)
        The range's ends and the bins between them.
    """

    def __init__(self, bins: Array, input_range: tuple[float, float]) -> None:
        self.bins, self.knots = bins, cell_edges(bins, np.array(input_range))
        starts, ends = self.knots[:-1, None], self.knots[1:, None]
        self._below = np.minimum(np.searchsorted(bins, self.knots[:-1], side="right"), len(bins) - 1)
        gaps = bins[None, :] - bins[:, None]
        self._inverse = np.divide(1.0, gaps, out=np.zeros_like(gaps), where=gaps > 0)
        self._ends = [(bins - x, x - bins) for x in (starts, ends)]

    def tables(self, left: Array, right: Array) -> tuple[Array, Array]:
        """Return the one-sided limits of p at the segments' ends, each (K, m), for two families of selection probabilities."""
        j, m = self._below, len(self.bins)
        ql, qr = np.zeros((2, len(j), m))
        ql[:, :-1] = left[j - 1]
        qr[:, 1:] = right[m - j - 1, ::-1]
        # Both factors of every term are non-negative: the bins with ql are left of x, those with qr right of it.
        first, last = (
            ql * ((qr * to_right) @ self._inverse.T) + qr * ((ql * to_left) @ self._inverse)
            for to_right, to_left in self._ends
        )
        return first, last


@serializable("selection")
@dataclass(frozen=True, eq=False)
class SelectionFamilies:
    """Bins with a left and a right family of selection probabilities.

    Parameters
    ----------
    bins : array, shape (m,)
    left, right : arrays, shape (m − 1, m − 1), lower triangular
        Row n − 1 holds q_n(1), …, q_n(n); the right family counts bins from the right end.
    """

    bins: Array
    left: Array
    right: Array

    def __post_init__(self) -> None:
        bins = check_bins(self.bins)
        families = {side: _family(side, getattr(self, side), len(bins)) for side in ("left", "right")}
        checks.settle(self, bins=bins, **families)

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> SelectionFamilies:
        """Rebuild the families of a file, whose rows must be probabilities as they stand there."""
        made = cls(**fields)
        for side in ("left", "right"):
            if np.abs(getattr(made, side) - fields[side]).max() > 1e-15:
                raise DesignError(f"{side}: rows must sum to 1")
        return made

    def segments(self, input_range: tuple[float, float]) -> tuple[Array, Array, Array]:
        """Return knots (K + 1,) and the one-sided limits of p at the segments' ends, each (K, m)."""
        places = SelectionPlaces(self.bins, input_range)
        return places.knots, *places.tables(self.left, self.right)

    def to_frame(self) -> pd.DataFrame:
        """Return a tidy table: side, interval j, bin i (1-based, as in the paper), probability."""
        m, parts = len(self.bins), []
        for side, family in (("left", self.left), ("right", self.right)):
            n, i = np.tril_indices(m - 1)
            where, index = (n + 1, i + 1) if side == "left" else (m - 1 - n, m - i)
            columns = {"interval": where, "bin": index, "value": self.bins[index - 1]}
            frame = pd.DataFrame({"side": side, **columns, "probability": family[n, i]})
            parts.append(frame.sort_values("interval", kind="stable"))
        return pd.concat(parts, ignore_index=True)

    def exact(self, input_range: tuple[float, float]) -> SelectionLaw:
        """Round every probability to an integer weight (2^-72 of a row's total) and return the exact law."""

        def weights(family: Array) -> tuple[tuple[int, ...], ...]:
            unit = 1 << 72
            return tuple(
                tuple(round(Fraction(float(q)) * unit) for q in family[n, : n + 1])
                for n in range(len(family))
            )

        bins = tuple(Fraction(float(b)) for b in self.bins)
        lower, upper = (Fraction(float(v)) for v in input_range)
        return SelectionLaw(bins, weights(self.left), weights(self.right), lower, upper)

    def rounds(self, law: object) -> bool:
        """Whether the probabilities equal those of a selection law up to rounding."""
        if not isinstance(law, SelectionLaw) or law.bins != tuple(map(Fraction, self.bins.tolist())):
            return False
        exact, shown = (np.stack([held.left, held.right]) for held in (self.of_law(law), self))
        return exact.shape == shown.shape and bool((np.abs(shown - exact) <= 1e-15).all())

    @classmethod
    def of_law(cls, law: SelectionLaw) -> SelectionFamilies:
        """Return the probabilities of a law's weights."""
        left, right = (
            np.array([[*(w / sum(row) for w in row), *[0.0] * (len(side) - len(row))] for row in side])
            for side in (law.left, law.right)
        )
        return cls(np.array([float(b) for b in law.bins]), left, right)


def _family(name: str, given: Numbers, m: int) -> Array:
    table = checks.array(name, given, ndim=2)
    if table.shape != (m - 1, m - 1):
        raise DesignError(
            f"{name} has shape {table.shape}: must be ({m - 1}, {m - 1}), row n with n + 1 entries"
        )
    if np.any(np.triu(table, 1)) or np.any(table < 0):
        raise DesignError(f"{name}: must be lower triangular and non-negative")
    sums = table.sum(axis=1)
    if np.any(np.abs(sums - 1) > 1e-6):
        k = int(np.argmax(np.abs(sums - 1)))
        raise DesignError(f"{name}[{k}] sums to {sums[k]:.9g}: every row must sum to 1")
    table = summing_to_one(table)
    table.setflags(write=False)
    return table


def summing_to_one(table: Array) -> Array:
    """Divide rows by their sums, except for sums of one up to rounding, so that no row is divided twice."""
    sums = table.sum(axis=1)
    return table / np.where(np.abs(sums - 1) <= 4e-16 * (len(table) + 1), 1.0, sums)[:, None]


@serializable("biased-quantizer")
@dataclass(frozen=True, eq=False)
class BiasedQuantizer(Saved):
    """A selection mechanism that rounds by the exponential mechanism.

    Parameters
    ----------
    selection : SelectionFamilies
    beta : float
        Sharpness of the choice, per unit of distance, at least 0.
    input_range : (float, float)

    Examples
    --------
    >>> from mechdesign.quantizers.selection import rqm_family
    >>> family = rqm_family(4, 0.3)
    >>> mechanism = BiasedQuantizer(SelectionFamilies([-2, -0.5, 0.5, 2], family, family), 0.2, (-1, 1))
    >>> mechanism.bias([-1.0, 0.0, 1.0]).round(3)
    array([ 0.272,  0.   , -0.272])
    """

    selection: SelectionFamilies
    beta: float
    input_range: Any

    def __post_init__(self) -> None:
        if not isinstance(self.selection, SelectionFamilies):
            raise DesignError.of("selection", self.selection, "must be a SelectionFamilies")
        input_range = check_range(self.input_range, self.selection.bins)
        checks.settle(self, beta=checks.non_negative("beta", self.beta), input_range=input_range)

    @property
    def bins(self) -> Array:
        """Output values."""
        return self.selection.bins

    def _on_interval(self, x: Array, j: int) -> Array:
        """Return p(x, ·) for inputs (n,) on interval j (1-based); shape (n, m)."""
        bins, m = self.bins, len(self.bins)
        ql, qr = self.selection.left[j - 1, :j], self.selection.right[m - j - 1, : m - j][::-1]
        middle = bins[:j, None] + bins[None, j:]
        down = special.expit(self.beta * (middle[None] - 2 * x[:, None, None]))
        pair = ql[:, None] * qr[None, :]
        p = np.empty((len(x), m))
        p[:, :j] = np.sum(pair * down, axis=2)
        p[:, j:] = np.sum(pair * (1 - down), axis=1)
        return p

    @cached_property
    def _knots(self) -> Array:
        """Ends of the intervals between bins within the input range."""
        return cell_edges(self.bins, np.array(self.input_range))

    def _parts(self, points: list[Array]) -> Iterator[Array]:
        """Yield the probabilities at given points of each interval, as limits from inside it."""
        first = np.searchsorted(self.bins, self._knots[:-1], side="right")
        for x, j in zip(points, np.minimum(first, len(self.bins) - 1).tolist()):
            yield self._on_interval(x, j)

    def probabilities(self, x: Numbers, *, clip: bool = False) -> Array:
        """Return output probabilities for inputs of any shape, with outputs in a further axis."""
        x = inside(x, self.input_range, clip=clip)
        flat, knots = x.ravel(), self._knots
        which = np.clip(np.searchsorted(knots, flat, side="right") - 1, 0, len(knots) - 2)
        members = [np.flatnonzero(which == k) for k in range(len(knots) - 1)]
        out = np.empty((len(flat), len(self.bins)))
        for here, rows in zip(members, self._parts([flat[n] for n in members])):
            out[here] = rows
        return out.reshape(*x.shape, len(self.bins))

    def extremes(self) -> tuple[Array, Array]:
        """Return the smallest and largest probability of each output over the input range, each (m,)."""
        ends = np.concatenate([*self._parts([np.array(pair) for pair in pairwise(self._knots)])])
        return ends.min(axis=0), ends.max(axis=0)

    def privacy_loss(self) -> float:
        """Return the exact ε, rounded up by the rounding error of its sums."""
        terms = len(self.bins) ** 2 + 16
        slack = 4 * terms * np.finfo(float).eps * (1 + 4 * self.beta * np.abs(self.bins).max())
        return loss_from_floats(*self.extremes(), slack)

    def proved_loss(self) -> float:
        r"""Return an upper bound of ε proved in integers, with every logistic function enclosed through rational exponentials.

        With :math:`u_i = e^{-\beta B_i}` and :math:`v = e^{2 \beta x}`, the lower bin of a pair has probability
        :math:`1/(1 + u_l u_r v)`; each factor is enclosed to 240 bits.
        """
        law, beta = self.selection.exact(self.input_range), Fraction(self.beta)
        unit = 1 << 256

        def enclosed(power: Fraction) -> tuple[int, int]:
            return math.floor(exp_lower(power) * unit), math.ceil(exp_upper(power) * unit)

        factors = [enclosed(-beta * b) for b in law.bins]
        m, low, high = len(factors), [unit**4] * len(factors), [0] * len(factors)
        for knot, following in pairwise(law.knots):
            j = min(sum(b <= knot for b in law.bins), m - 1)
            left, right = law.left[j - 1], law.right[m - j - 1][::-1]
            for x in (knot, following):
                p = [[0] * m, [0] * m]
                for end, v in enumerate(reversed(enclosed(2 * beta * x))):
                    for l, r in product(range(j), range(j, m)):
                        pair = left[l] * right[r - j]
                        # A larger power lowers the lower bin's share, so bounds swap.
                        odds = factors[l][1 - end] * factors[r][1 - end] * v
                        share = (unit**4 // (unit**3 + odds)) + end
                        p[end][l] += pair * share
                        p[1 - end][r] += pair * (unit - share)
                weight = (unit << 200) // (sum(left) * sum(right))
                low = [min(a, b * weight) for a, b in zip(low, p[0])]
                high = [max(a, b * (weight + 1)) for a, b in zip(high, p[1])]
        pairs = [(a, b) for a, b in zip(low, high) if b]
        if any(a <= 0 for a, _ in pairs):
            return math.inf
        return log_upper(max(Fraction(b, a) for a, b in pairs))

    def bias(self, x: Numbers) -> Array:
        """Return E M(x) − x."""
        means: Array = self.probabilities(x) @ self.bins
        return means - checks.finite("x", x)

    def max_bias(self, points: int = 2001) -> float:
        """Return the largest |bias| over a fine grid and both sides of every bin."""
        count = max(3, checks.integer("points", points, 1, 10**6) // (len(self._knots) - 1))
        inputs = [np.linspace(a, b, count) for a, b in pairwise(self._knots)]
        return float(max(np.abs(p @ self.bins - x).max() for x, p in zip(inputs, self._parts(inputs))))

    def expected_loss(self, prior: object, loss: object = "absolute") -> float:
        """Return E ℓ(M(X) − X), by adaptive quadrature to 1e-12 on every interval."""
        chosen = Loss.of(loss)
        law = Prior.of(prior, self.input_range)

        def integrand(x: Array) -> Array:
            x = np.clip(x, *self.input_range)
            losses: Array = np.sum(self.probabilities(x) * chosen(self.bins - x[:, None]), axis=1)
            return losses[:, None]

        return float(law.integrals(integrand, self._knots).sum())

    def errors(self, prior: object) -> Accuracy:
        """Return standard deviation, mean absolute error and 95% half-width under a prior."""
        return accuracy(self, prior)

    def sample(self, x: Numbers, *, rng: Randomness = None, clip: bool = False) -> Array:
        """Draw one output for every input, for simulation."""
        cumulative = np.cumsum(self.probabilities(x, clip=clip), axis=-1)
        u = checks.generator(rng).random(np.shape(x))[..., None]
        found: Indices = np.sum(u >= cumulative, axis=-1)
        return self.bins.take(np.minimum(found, len(self.bins) - 1))

    @cached_property
    def _exact_rows(self) -> tuple[IntegerRows, IntegerRows]:
        law = self.selection.exact(self.input_range)
        return IntegerRows(law.left.__getitem__, len(law.left)), IntegerRows(
            law.right.__getitem__, len(law.right)
        )

    def release(self, x: Numbers, *, clip: bool = False) -> Array:
        """Draw with integers and the operating system's randomness, for deployment.

        The pair has the exact weights of the selection; the logistic function is rounded at 240 bits, within the
        enclosures of `proved_loss`.

        Raises
        ------
        DataError
            An input outside the range without `clip`, one that is no number, or beyond 2⁵³ one that no double holds. The
            guarantee does not cover that refusal.
        """
        values = inside(x, self.input_range, clip=clip)
        flat, m = values.ravel(), len(self.bins)
        beta, (left, right) = Fraction(self.beta), self._exact_rows
        interval = np.clip(np.searchsorted(self.bins, flat, side="right"), 1, m - 1)
        low = self.bins[left.draw(interval - 1)]
        high = self.bins[m - 1 - right.draw(m - 1 - interval)]

        def exact(i: int) -> Fraction:
            power = beta * (2 * Fraction(flat[i]) - Fraction(low[i]) - Fraction(high[i]))
            return 1 / (1 + exp_upper(max(min(power, Fraction(700)), Fraction(-700))))

        error = 8 * np.finfo(float).eps * (1 + self.beta * (np.abs(low) + np.abs(high) + 2 * np.abs(flat)))
        lower = bernoulli(special.expit(self.beta * (low + high - 2 * flat)), error, exact)
        return np.where(lower, low, high).reshape(values.shape)

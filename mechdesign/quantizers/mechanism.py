r"""Quantizers whose output probabilities are affine in the input between knots.

Every mechanism of this package that maps an interval to finitely many values is one: OPTM, RQM, ERM (which jump at the
bins), MVU and the exact optimum (which are continuous). Losses, errors and privacy are then exact: extremes are at
the knots of the table (`mechdesign.quantizers.table`), and expectations need only the prior's partial moments.

Applied independently to the d coordinates of a vector, a quantizer with loss ε on one coordinate has loss

- **split**: at most :math:`d\,\varepsilon` between any two vectors (basic composition), so a budget ε for the vector is split as
  ε/d to each coordinate;
- **metric, distance**: if :math:`p(x, i) \le e^{\varepsilon |x - x'|} p(x', i)`, at most :math:`\varepsilon \|x - x'\|_1`;
- **metric, squared distance**: if :math:`p(x, i) \le e^{\varepsilon |x - x'|^2} p(x', i)` on an input grid of spacing h, at most
  :math:`\varepsilon \|x - x'\|_2^2` between grid vectors (Chaudhuri et al. 2022, Lemma 6). Inputs off the grid are dithered to
  neighbouring points, each moving by less than h, so between any two vectors at most
  :math:`\varepsilon (\|x - x'\|_2 + 2 h \sqrt d)^2` (Minkowski's inequality).

For the ball :math:`\|x\|_2 \le B` the distance is up to 2B: the bound is :math:`4 \varepsilon B^2` on the grid. (With B the *diameter* it
reads εB², as in the literature.)

Releases and simulations are drawn in `sampling`.

**The selection family** draws one bin on each side of the input, and rounds between them without bias. For x in :math:`[B_j, B_{j+1})`

.. math::

    p(x, l) &= q^{L}_j(l) \sum_{r > j} q^{R}_{m-j}(m+1-r) \frac{B_r - x}{B_r - B_l}, & l &\le j, \\
    p(x, r) &= q^{R}_{m-j}(m+1-r) \sum_{l \le j} q^{L}_j(l) \frac{x - B_l}{B_r - B_l}, & r &> j.

Source: *Privacy-Aware Randomized Quantization via Linear Programming*, §3. RQM and ERM are two members:
:func:`rqm_family`, :func:`erm_family`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import fields as fields_of
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from mechdesign import checks
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import log_upper
from mechdesign.evidence.page import Saved
from mechdesign.evidence.results import Accuracy
from mechdesign.evidence.serialize import serializable
from mechdesign.plotting import COLOURS, figure, sized
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers import table as tables
from mechdesign.quantizers.exact_law import repaired_table
from mechdesign.quantizers.sampling import ExactSampler, is_tensor, sample_array, sample_tensor
from mechdesign.quantizers.table import ExactLaw, SelectionLaw, cell_edges
from mechdesign.typing import Array, Figure, Numbers


def rqm_family(m: int, q: float) -> Array:
    """Return the selection probabilities of RQM (Youn et al. 2023); shape (m − 1, m − 1), row n has n + 1 entries.

    q_j(1) = (1−q)^(j−1), q_j(i) = q (1−q)^(j−i) for 1 < i ≤ j.
    """
    checks.inside("q", q, 0, 1)
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


def _family(name: str, given: Numbers, m: int) -> Array:
    table = checks.array(name, given, ndim=2)
    allowed = f"must be ({m - 1}, {m - 1}), row n with n + 1 entries"
    checks.refuse(table.shape != (m - 1, m - 1), f"shape of {name}", table.shape, allowed)
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


@serializable("selection", eq=False)
class SelectionFamilies(checks.Checked):
    """Bins with a left and a right family of selection probabilities.

    Parameters
    ----------
    bins : array, shape (m,)
    left, right : arrays, shape (m − 1, m − 1), lower triangular
        Row n − 1 holds q_n(1), …, q_n(n); the right family counts bins from the right end.
    """

    bins: Array = checks.field(check=tables.check_bins)
    left: Array = checks.field(check=_family, m=lambda self: len(self.bins))
    right: Array = checks.field(check=_family, m=lambda self: len(self.bins))

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


@serializable("quantizer", eq=False)
class Quantizer(tables.PiecewiseTable, Saved):
    """A randomized quantizer on an interval.

    Parameters
    ----------
    bins : array_like, shape (m,)
        Output values, increasing.
    knots : array_like, shape (K + 1,)
        Increasing; the first and last are the input range.
    starts, ends : array_like, shape (K, m)
        Output probabilities at the start of each segment (limit from the right) and at its end (limit from
        the left). At a knot the mechanism takes the value from the right, at the last knot from the left.
    selection : SelectionFamilies, optional
        The selection probabilities behind it.
    law : ExactLaw, optional
        The exact rational law that the tables round; certificates and releases use it.

    Examples
    --------
    >>> mechanism = Quantizer.rqm(bins=[-2.7, -0.9, 0.9, 2.7], q=0.22, input_range=(-1, 1))
    >>> round(mechanism.privacy_loss(), 5)
    0.99877
    >>> from scipy import stats
    >>> round(mechanism.expected_loss(stats.uniform(-1, 2), "absolute"), 4)
    1.9973
    """

    selection: SelectionFamilies | None = checks.field(SelectionFamilies, default=None)
    law: ExactLaw | None = checks.field(ExactLaw, default=None)

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Quantizer:
        """Rebuild a quantizer from a file; its tables must be those of its exact law, and the law that of its selection."""
        made = cls(**fields)
        if made.law is not None:
            exact = cls.of_law(made.law)
            same = (
                np.array_equal(getattr(made, f.name), getattr(exact, f.name))
                for f in fields_of(tables.PiecewiseTable)
            )
            DesignError.when(not all(same), "the tables of the quantizer are not those of its exact law")
            if made.selection is not None and not made.selection.rounds(made.law):
                raise DesignError("the selection of the quantizer is not that of its exact law")
        return made

    # -- constructors ---------------------------------------------------------------------------------

    @classmethod
    def of_selection(cls, selection: SelectionFamilies, input_range: object) -> Quantizer:
        """Build the quantizer of a `SelectionFamilies` on an input range."""
        bins = checks.instance("selection", selection, SelectionFamilies).bins
        return cls(bins, *selection.segments(tables.check_range(input_range, bins)), selection)

    @classmethod
    def from_selection(cls, bins: Any, left: Any, right: Any, input_range: object) -> Quantizer:
        """Build a quantizer from selection probabilities.

        Parameters
        ----------
        bins : array_like, shape (m,)
        left : array_like, shape (m − 1, m − 1), lower triangular
            Row j − 1 holds the probabilities of the left indices 1 … j for x in [B_j, B_{j+1}).
        right : array_like or None
            The same counted from the right end; None mirrors `left`.
        input_range : (float, float)
        """
        return cls.of_selection(SelectionFamilies(bins, left, left if right is None else right), input_range)

    @classmethod
    def rqm(cls, bins: Numbers, q: float, input_range: object) -> Quantizer:
        """Randomized quantization mechanism (Youn et al. 2023): each bin is kept with probability q."""
        values = tables.check_bins("bins", bins)
        return cls.from_selection(values, rqm_family(len(values), q), None, input_range)

    @classmethod
    def erm(cls, bins: Numbers, gamma: float, input_range: object) -> Quantizer:
        """Exponential randomized mechanism: bins are drawn by the exponential mechanism with parameter γ."""
        values = tables.check_bins("bins", bins)
        right = erm_family(-values[::-1], gamma)
        return cls.from_selection(values, erm_family(values, gamma), right, input_range)

    @classmethod
    def interpolated(cls, bins: Any, knots: Any, rows: Numbers) -> Quantizer:
        """Build a continuous quantizer from its rows at the knots, shape (K + 1, m)."""
        table = checks.array("rows", rows, ndim=2)
        return cls(bins, knots, table[:-1], table[1:])

    @classmethod
    def of_law(cls, law: ExactLaw, selection: SelectionFamilies | None = None) -> Quantizer:
        """Build the quantizer that rounds an exact law, with its selection if it has one."""
        checks.instance("law", law, ExactLaw)
        bins, knots = (np.array([float(v) for v in values]) for values in (law.bins, law.knots))
        return cls(bins, knots, *law.tables(), selection, law)

    def certified(self) -> Quantizer:
        """Return the same mechanism with an exact rational law behind it, whose privacy loss is exact.

        The probabilities of a selection mechanism change by less than 2^-70. In any other table doubles are taken as exact rationals,
        except for the two largest of each row, which are changed so that the row sums to 1 and, if it was unbiased
        up to rounding, its mean is the input. This enforces no budget: read ``privacy_loss()`` of the returned mechanism.
        """
        if self.law is not None:
            return self
        if self.selection is None:
            return Quantizer.of_law(repaired_table(self.bins, self.knots, self.starts, self.ends))
        return Quantizer.of_law(self.selection.exact(self.input_range), self.selection)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the mechanism, made exact, as a result file; ``md.load(path)`` reads it back."""
        super(Quantizer, self.certified()).save(path)

    # -- the law --------------------------------------------------------------------------------------

    def sample(self, x: Any, *, rng: Any = None, clip: bool = False) -> Any:
        """Draw one output for every input, for simulation; deploy `release`.

        Fast: it uses floating-point numbers and a simulation generator.

        Parameters
        ----------
        x : array_like of any shape, or a PyTorch tensor (answered on its own device)
        rng : seed, numpy Generator, or for tensors a torch.Generator
        clip : bool
            Clip inputs to the range instead of refusing them.

        Returns
        -------
        array or tensor of the same shape
        """
        if is_tensor(x):
            return sample_tensor(self, x, rng, clip=clip)
        # Unclipped inputs are checked during the draw, while they are in the cache.
        values = tables.doubles(x) if clip is False else tables.inside(x, self.input_range, clip=clip)
        return sample_array(self, values, checks.generator(rng))

    def release(self, x: Numbers, *, clip: bool = False) -> Array:
        """Draw from the exact rational law, bit for bit, with the operating system's randomness.

        Raises
        ------
        DesignError
            The mechanism has no exact law (solve with certification, or release what ``certified()`` returns).
        DataError
            An input outside the range without `clip`, one that is no number, or beyond 2⁵³ one that no double holds. The guarantee
            does not cover that refusal.
        """
        return self._exact_sampler.draw(tables.inside(x, self.input_range, clip=clip))

    @cached_property
    def _exact_sampler(self) -> ExactSampler:
        """Sampler of the exact law, which caches the integer weights of rows for later draws."""
        if self.law is None:
            raise DesignError(
                "this mechanism has no exact law: take result.mechanism of a certified solve, or .certified()"
            )
        return ExactSampler(self.law)

    # -- privacy --------------------------------------------------------------------------------------

    def privacy_loss(self) -> float:
        """Exact ε of local differential privacy, rounded up; ∞ when an output is impossible for some inputs only.

        It is computed from the exact rational law if there is one, otherwise from floats plus the rounding errors of the
        tables (at most m + 8 units in the last place each, as all sums have positive terms).
        """
        if self.law is not None:
            ratio = self.law.ratio()
            return math.inf if ratio is None else log_upper(ratio)
        return tables.loss_from_floats(*self.extremes())

    def metric_loss(self) -> float:
        """Return the smallest ε with p(x, i) ≤ e^{ε|x − x'|} p(x', i): ∞ if any probability jumps or vanishes.

        On a segment p is affine, so |(log p)'| is largest where p is smallest:
        |p(end) − p(start)| / (width · min(p(start), p(end))).
        """
        if not np.allclose(self.ends[:-1], self.starts[1:], rtol=1e-13, atol=1e-15):
            return math.inf
        low = np.minimum(self.starts, self.ends)
        change = np.abs(self.ends - self.starts)
        if np.any((low == 0) & (change > 0)):
            return math.inf
        width = np.diff(self.knots)[:, None]
        slope = np.divide(change, width * low, out=np.zeros_like(low), where=low > 0)
        return float(slope.max() * (1 + 1e-14))

    # -- error ----------------------------------------------------------------------------------------

    def bias(self, x: Numbers, *, clip: bool = False) -> Array:
        """Return E M(x) − x, element-wise."""
        x = tables.inside(x, self.input_range, clip=clip)
        means: Array = self.probabilities(x) @ self.bins
        return means - x

    def loss_at(self, x: Numbers, loss: object = "absolute") -> Array:
        """Return E ℓ(M(x) − x), element-wise."""
        return tables.loss_at(self, tables.inside(x, self.input_range), Loss.of(loss))

    def expected_loss(self, prior: object, loss: object = "absolute") -> float:
        """Return E ℓ(M(X) − X) under a prior, exactly, as a sum over cells of partial moments of order 0–2.

        A callable loss is integrated adaptively to 1e-12.

        Parameters
        ----------
        prior : frozen scipy.stats law, md.clipped, md.truncated, or samples
        loss : "absolute", "squared", dict of weights, or callable
        """
        table, centre = self._about_zero
        law = Prior.of(prior, self.input_range)
        return tables.mean_loss(table, law.standardised(centre, 1.0) if centre else law, Loss.of(loss))

    def errors(self, prior: object) -> Accuracy:
        """Return standard deviation, mean absolute error and 95% half-width under a prior."""
        return tables.accuracy(self, prior)

    def worst_case_loss(self, loss: object = "absolute") -> tuple[float, float]:
        """Return sup over inputs of E ℓ(M(x) − x), and an input at which it is attained (as a limit)."""
        table, centre = self._about_zero
        value, where = tables.largest_loss(table, Loss.of(loss))
        return value, where + centre

    @cached_property
    def _about_zero(self) -> tuple[tables.PiecewiseTable, float]:
        """The table, centred at zero if knots and moments would otherwise lose digits, and its former centre."""
        lower, upper = self.input_range
        centre = lower / 2 + upper / 2
        if abs(centre) <= 2 * (upper - lower):
            return self, 0.0
        values = (self.bins, self.knots) if self.law is None else (self.law.bins, self.law.knots)
        bins, knots = (np.array([float(Fraction(v) - Fraction(centre)) for v in part]) for part in values)
        return tables.PiecewiseTable(bins, knots, self.starts, self.ends), centre

    # -- pictures -------------------------------------------------------------------------------------

    def plot(self, x: Numbers = (0.0,), **options: Any) -> Figure:
        """Draw the output distribution at the inputs `x`, a panel each (Figure 2 of the OPTM paper)."""
        values = checks.array("x", x, ndim=None).ravel()
        size = sized(options, min(3.2 * len(values), 100.0), 2.6)
        fig, axes = figure(1, len(values), squeeze=False, sharey=True, **size)
        width = 0.6 * float(np.diff(self.bins).min())
        for axis, value in zip(axes[0], values):
            axis.bar(self.bins, self.probabilities(value), width=width, color=COLOURS[0])
            axis.axvline(value, color=COLOURS[1], linestyle="--", linewidth=1)
            axis.set(title=f"x = {value:g}", xlabel="output", xticks=self.bins)
        axes[0][0].set_ylabel("probability")
        return fig


def duchi(epsilon: float) -> Quantizer:
    """Return the two-output optimum of Duchi et al. on [−1, 1]: bins ±A, A = (e^ε + 1)/(e^ε − 1).

    For uniform inputs its MAE is A − 1/(3A) and its MSE A² − 1/3.

    Examples
    --------
    >>> from scipy import stats
    >>> round(duchi(1.0).expected_loss(stats.uniform(-1, 2), "squared"), 3)
    4.349
    """
    reach = 1 / math.tanh(checks.magnitude("epsilon", epsilon, side=checks.DOWN) / 2)
    low = (1 - 1 / reach) / 2
    return Quantizer.interpolated([-reach, reach], [-1.0, 1.0], [[1 - low, low], [low, 1 - low]])

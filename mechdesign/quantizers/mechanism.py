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

**Release** draws from the exact law alone, rational rows between rational knots: an input is a double, so its row has integer weights over a common
denominator, and random bits of the operating system choose an output by them, without floating-point numbers (`mechdesign.evidence.sampling`).

**Simulation** is fast: each value takes one uniform number, 16 bits of it first, and one look-up in a guide table (`GuideTable`); tensors are rounded at
random to one end of their segment, with the mean preserved, and find the output in that row by bisection.

**A guide table** maps one uniform number to one output, nearly always by a single look-up. The output at x is the number of curves :math:`C_i(x) = \sum_{j \le i} p(x, j)` at or below a uniform u. The strip of
inputs and uniforms is cut into a grid; if no curve passes through a rectangle, its output is known beforehand
(Chen and Asau 1974, for a law that varies with x). Otherwise curves are compared one by one, from the lowest possible one.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from dataclasses import fields as fields_of
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.exact import log_upper
from mechdesign.evidence.page import Saved
from mechdesign.evidence.results import Accuracy
from mechdesign.evidence.sampling import IntegerRows, bernoulli
from mechdesign.evidence.serialize import serializable
from mechdesign.plotting import COLOURS, figure, sized
from mechdesign.problem import checks
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.quantizers import table as tables
from mechdesign.quantizers.exact_law import ExactLaw, repaired_table
from mechdesign.quantizers.selection import SelectionFamilies, check_bins, check_range, erm_family, rqm_family
from mechdesign.typing import Array, Indices, Numbers, Randomness

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@serializable("quantizer")
@dataclass(frozen=True, eq=False)
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

    selection: SelectionFamilies | None = None
    law: ExactLaw | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, kind in (("selection", SelectionFamilies), ("law", ExactLaw)):
            if not isinstance(value := getattr(self, name), (kind, type(None))):
                raise DesignError.of(name, value, f"must be a {kind.__name__}")

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Quantizer:
        """Rebuild a quantizer from a file; its tables must be those of its exact law, and the law that of its selection."""
        least, most = ({f.name for f in fields_of(kind)} for kind in (tables.PiecewiseTable, cls))
        if not isinstance(fields, dict) or not least <= fields.keys() <= most:
            raise DesignError.of("fields", fields, f"must be a dict of {', '.join(sorted(most))}")
        made = cls(**fields)
        if made.law is not None:
            exact = cls.of_law(made.law)
            same = (
                np.array_equal(getattr(made, f.name), getattr(exact, f.name))
                for f in fields_of(tables.PiecewiseTable)
            )
            if not all(same):
                raise DesignError("the tables of the quantizer are not those of its exact law")
            if made.selection is not None and not made.selection.rounds(made.law):
                raise DesignError("the selection of the quantizer is not that of its exact law")
        return made

    # -- constructors ---------------------------------------------------------------------------------

    @classmethod
    def of_selection(cls, selection: SelectionFamilies, input_range: object) -> Quantizer:
        """Build the quantizer of a `SelectionFamilies` on an input range."""
        bins = checks.instance("selection", selection, SelectionFamilies).bins
        return cls(bins, *selection.segments(check_range(input_range, bins)), selection)

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
        values = check_bins(bins)
        return cls.from_selection(values, rqm_family(len(values), q), None, input_range)

    @classmethod
    def erm(cls, bins: Numbers, gamma: float, input_range: object) -> Quantizer:
        """Exponential randomized mechanism: bins are drawn by the exponential mechanism with parameter γ."""
        values = check_bins(bins)
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


@serializable("vector-quantizer")
@dataclass(frozen=True, eq=False)
class CoordinateQuantizer:
    """One quantizer applied to every coordinate of d-dimensional vectors.

    Parameters
    ----------
    coordinate : Quantizer
    dimension : int
    scale : float
        Factor by which inputs are divided and outputs multiplied: a gradient clipped at C takes scale = C.

    Examples
    --------
    >>> import numpy as np
    >>> mechanism = CoordinateQuantizer(Quantizer.rqm([-2.7, -0.9, 0.9, 2.7], 0.22, (-1, 1)), dimension=10)
    >>> round(mechanism.privacy_loss(), 3)
    9.988
    >>> mechanism.sample(np.zeros((5, 10)), rng=0).shape
    (5, 10)
    """

    coordinate: Quantizer
    dimension: int
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.coordinate, Quantizer):
            raise DesignError.of("coordinate", self.coordinate, "must be a Quantizer")
        checks.settle(
            self,
            dimension=checks.integer("dimension", self.dimension, 1),
            scale=checks.positive("scale", self.scale),
        )

    def privacy_loss(self) -> float:
        """Return the loss between any two vectors, d times the coordinate's, rounded up."""
        return math.nextafter(self.dimension * self.coordinate.privacy_loss(), math.inf)

    def _scaled(self, x: Any) -> Any:
        found = x if is_tensor(x) else checks.answers("x", x)
        if found.shape[-1:] != (self.dimension,):
            raise DataError(f"x: the last axis must be {self.dimension}")
        with np.errstate(over="ignore"):  # infinity is outside the range
            return found / self.scale

    def sample(self, x: object, *, rng: Randomness = None, clip: bool = False) -> Any:
        """Draw for vectors of shape (..., d), arrays or tensors, for simulation; see `Quantizer.sample`."""
        return self.coordinate.sample(self._scaled(x), rng=rng, clip=clip) * self.scale

    def release(self, x: Numbers, *, clip: bool = False) -> Array:
        """Draw from the exact law of every coordinate; see `Quantizer.release`, also for its `DataError`."""
        given = checks.answers("x", x)
        # Subnormal numbers would take longer, which would reveal them.
        held = np.where(np.abs(given) < checks.NARROWEST * self.scale, 0.0, given)
        return self.coordinate.release(self._scaled(held), clip=clip) * self.scale

    def expected_squared_error(self, prior: object) -> float:
        """Return E‖M(X) − X‖₂² for i.i.d. coordinates with the given prior (on the scaled coordinates)."""
        return self.dimension * self.scale**2 * self.coordinate.expected_loss(prior, "squared")


# -- sampling ---------------------------------------------------------------------------------------------


def sample_array(table: tables.PiecewiseTable, x: Array, rng: np.random.Generator) -> Array:
    """Draw for every element of `x`, checked to be in the range; chunks run on threads, reproducibly."""
    flat = np.ascontiguousarray(x, dtype=float).ravel()
    out, guide = np.empty(flat.size), GuideTable(table, flat.size)

    def fill(start: int, stop: int, generator: np.random.Generator) -> None:
        guide.fill(flat[start:stop], generator, out[start:stop])

    if flat.size <= 1 << 18:
        fill(0, flat.size, rng)
    else:
        # A fixed number of streams, so that the draws do not depend on the machine.
        streams = rng.spawn(8)
        edges = np.linspace(0, flat.size, len(streams) + 1).astype(int)
        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
            list(pool.map(fill, edges[:-1], edges[1:], streams))
    return out.reshape(np.shape(x))


def is_tensor(x: object) -> bool:
    """Whether `x` is a PyTorch tensor (without importing PyTorch)."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def sample_tensor(table: tables.PiecewiseTable, x: Any, rng: Any, *, clip: bool) -> Any:
    """Draw for every element of a tensor on its own device, in its own floating-point type."""
    import torch

    if rng is not None and not isinstance(rng, (int, torch.Generator)):
        raise DesignError.of("rng", rng, "must be a seed or a torch.Generator for tensor inputs")
    generator: Any = rng
    if isinstance(rng, int):
        generator = torch.Generator(device=x.device).manual_seed(rng)
    kind = x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32
    lower, upper = table.input_range
    values = x.detach().to(kind)
    if clip:
        values = values.clamp(lower, upper)
    outside = (values < lower) | (values > upper) | values.isnan()
    if bool(outside.any()):
        raise DataError(f"x: inputs must be in [{lower:g}, {upper:g}]; or pass clip=True")

    def tensor(array: Any, dtype: Any = kind) -> Any:
        return torch.tensor(np.array(array), dtype=dtype, device=x.device)

    knots = tensor(table.knots)
    last = len(table.knots) - 2
    k = (torch.searchsorted(knots, values.contiguous(), right=True) - 1).clamp(0, last)
    t = (values - knots[k]) / (knots[k + 1] - knots[k])
    row = 2 * k + (torch.rand(values.shape, generator=generator, device=x.device, dtype=kind) < t)
    u = torch.rand(values.shape, generator=generator, device=x.device, dtype=kind)
    # The output is the number of curves at or below u, found by bisection.
    m, curves = len(table.bins), tensor(np.cumsum(table.rows, axis=1).ravel())
    found = torch.zeros_like(row)
    for bit in reversed(range((m - 1).bit_length())):
        ahead = found + (1 << bit)
        passed = (ahead < m) & (u >= curves[row * m + (ahead - 1).clamp(max=m - 1)])
        found = torch.where(passed, ahead, found)
    return tensor(table.bins)[found].to(x.dtype)


class ExactSampler:
    """Sampler of an exact law, bit for bit, in a time independent of the inputs.

    Parameters
    ----------
    law : ExactLaw
    """

    def __init__(self, law: ExactLaw) -> None:
        self.law = law
        self.bins = np.array([float(b) for b in law.bins])
        self.knots = np.array([float(x) for x in law.knots])
        # A double is at or above a knot if it is at or above the first double that is.
        self._from = np.array([_first_double(x) for x in law.knots])
        self.rows = IntegerRows(self._row, 2 * (len(law.knots) - 1))

    def _row(self, number: int) -> list[int]:
        return self.weights(number // 2, number % 2)

    def weights(self, segment: int, end: int) -> list[int]:
        """Return the row's probabilities as integers over their least common denominator."""
        weights, common = self.law.weights(segment, end)
        if sum(weights) != common:
            raise DesignError(f"row {(segment, end)} of the exact law does not sum to 1")
        return weights

    def draw(self, x: Array) -> Array:
        """Draw one output for every input."""
        flat = np.ascontiguousarray(x, dtype=float).ravel()
        segment = self._segments(flat)
        drawn = self.rows.draw(2 * segment + self._upward(flat, segment))
        return np.asarray(self.bins[drawn].reshape(np.shape(x)))

    def _segments(self, x: Array) -> npt.NDArray[np.intp]:
        """Return the segment of each input, compared with the exact knots."""
        return np.clip(np.searchsorted(self._from, x, side="right") - 1, 0, len(self.knots) - 2)

    def _upward(self, x: Array, segment: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """Draw an exact Bernoulli((x − x_k)/(x_{k+1} − x_k)) for every input."""
        a, b = self.knots[segment], self.knots[segment + 1]
        # Doubles err by a few ulps relative to the larger operand.
        error = 16 * np.finfo(float).eps * (1 + (np.abs(a) + np.abs(x)) / (b - a))

        def exact(i: int) -> Fraction:
            k = int(segment[i])
            low, high = self.law.knots[k], self.law.knots[k + 1]
            return (Fraction(float(x[i])) - low) / (high - low)

        return bernoulli((x - a) / (b - a), error, exact)


def _first_double(x: Fraction) -> float:
    """Return the least double that is not below x."""
    near = float(x)
    return near if near >= x else math.nextafter(near, math.inf)


_ROOM = 1e-12  # tolerance for the places of curves
_LARGEST = 1 << 14  # most rectangles for each output: a byte each up to 85 outputs, which fit the cache
_PIECE = 1 << 16
_WAITING = 1 << 13  # values climbed together: few enough for the cache, enough to outweigh the cost of a call
_SHORT = 16  # random bits that usually decide a value


class GuideTable:
    """The outputs of a table of probabilities as a function of the input and a uniform number.

    Parameters
    ----------
    table : PiecewiseTable
    draws : int
        Expected number of draws: more draws justify a larger grid.
    """

    def __init__(self, table: tables.PiecewiseTable, draws: int) -> None:
        m, knots = len(table.bins), table.knots
        self.bins, self.knots = table.bins, knots
        size = min(max(draws // 4, 1 << 8), _LARGEST * m)
        self.bits = min(size.bit_length() // 2, _SHORT)  # bits of u that select the row
        self.columns = size >> self.bits
        self.scale = self.columns / (knots[-1] - knots[0])
        curves = np.cumsum(np.stack([table.starts, table.ends]), axis=-1)
        curves[..., m - 1] = 2.0  # no number reaches the last
        self._starts, self._rises = curves[0].ravel(), (curves[1] - curves[0]).ravel()
        self._width, self.segment = np.diff(knots), segment_finder(knots)
        least, most = self._columns_extremes(curves[:, :, : m - 1])
        sure, most_above = (self._counted(part) for part in (most + _ROOM, least - _ROOM))
        # In rectangle (c, r) at least sure[c, r] curves are below u, and at most those that start below its top.
        first = sure[:, :-1].ravel()
        kind = np.clip(most_above[:, 1:].ravel() - first, 0, 2)
        # The output if no curve is in the rectangle; plus m if one is, plus 2 m if several are.
        self.codes = (first + m * kind).astype(np.min_scalar_type(3 * m))
        self._coded = np.tile(table.bins, 3)

    def _columns_extremes(self, curves: Array) -> tuple[Array, Array]:
        """Return the least and the largest value of every curve in every column, each (columns + 1, m − 1)."""
        # Rounding is monotone, so that these bound the columns of a segment's inputs.
        ends = self._first_place(self.knots, np.empty(len(self.knots))) >> self.bits
        y, begin, end = (self.knots - self.knots[0]) * self.scale, ends[:-1], ends[1:]
        count = end - begin + 1
        k = np.repeat(np.arange(len(count)), count)
        column = np.arange(len(k)) - np.repeat(np.cumsum(count) - count - begin, count)
        with np.errstate(divide="ignore", invalid="ignore"):
            room = 2.0**-self.bits + 8 * np.finfo(float).eps * self.columns
            low, high = (column - y[k] - room) / np.diff(y)[k], (column + 1 - y[k] + room) / np.diff(y)[k]
        least = np.ones((self.columns + 1, curves.shape[-1]))
        most = np.zeros_like(least)
        for t in (np.nan_to_num(low, nan=0.0), np.nan_to_num(high, nan=1.0)):
            share = np.clip(t, 0.0, 1.0)[:, None]
            value = curves[0][k] + share * (curves[1] - curves[0])[k]
            np.minimum.at(least, column, value)
            np.maximum.at(most, column, value)
        return least, most

    def _counted(self, curves: Array) -> Indices:
        """Count the curves of each column at or below r / 2^bits, for r = 0, …, 2^bits."""
        rows = 1 << self.bits
        row = np.clip(np.ceil(curves * rows), 0, rows + 1).astype(np.intp)
        place = row + (rows + 2) * np.arange(len(curves))[:, None]
        counts = np.bincount(place.ravel(), minlength=len(curves) * (rows + 2))
        return np.cumsum(counts.reshape(len(curves), -1), axis=1)[:, :-1]

    def fill(self, x: Array, rng: np.random.Generator, out: Array) -> None:
        """Draw one output for each input into `out`, in pieces that stay in a core's cache.

        Raises
        ------
        DataError
            An input outside the range, or NaN.
        """
        piece = max(1, min(_PIECE, x.size))
        numbers, codes = np.empty(piece), np.empty(piece, dtype=self.codes.dtype)
        near: list[tuple[Any, ...]] = []  # draws with curves in their rectangle: place, input, row, code
        for start in range(0, x.size, piece):
            part, into = x[start : start + piece], out[start : start + piece]
            tables.check_inside(part, (self.knots[0], self.knots[-1]))
            code = codes[: part.size]
            row = _short_words(rng, part.size)
            row >>= _SHORT - self.bits
            place = self._first_place(part, numbers[: part.size])
            place += row
            self.codes.take(place, out=code, mode="clip")
            self._coded.take(code, out=into, mode="clip")
            open_ = np.flatnonzero(code >= len(self.bins))
            near.append((open_ + start, part.take(open_), row.take(open_), code.take(open_)))
            if sum(len(places) for places, *_ in near) >= _WAITING or start + piece >= x.size:
                where, beside, chosen, known = (np.concatenate(parts) for parts in zip(*near))
                out[where] = self._climbed(beside, chosen, known, rng)
                near.clear()

    def _first_place(self, x: Array, y: Array) -> Indices:
        """Return the index of the lowest rectangle of each input's column, in the memory of `y`."""
        np.subtract(x, self.knots[0], out=y)
        y *= self.scale
        # After this addition the last bits of a double count rows, and fractions of them are cut off.
        y += 2.0 ** (52 - self.bits)
        place = y.view(np.int64)
        place &= (1 << 52) - (1 << self.bits)
        return place

    def _climbed(self, x: Array, row: Indices, code: Indices, rng: np.random.Generator) -> Array:
        """Return outputs for rectangles with curves: draw further bits of u and count the curves at or below it."""
        u = rng.random(len(x))
        u += row
        u *= 2.0**-self.bits
        np.minimum(u, 1 - 2.0**-53, out=u)
        k, m = self.segment(x), len(self.bins)
        t = (x - self.knots.take(k)) / self._width.take(k)
        kind = code // m
        curve = k * m
        curve += code
        curve -= m * kind
        above = u >= self._starts.take(curve) + self._rises.take(curve) * t
        curve += above
        climbing = np.flatnonzero(above & (kind > 1))
        while climbing.size:
            next_ = curve.take(climbing)
            height = self._starts.take(next_) + self._rises.take(next_) * t.take(climbing)
            climbing = climbing[u.take(climbing) >= height]
            curve[climbing] += 1
        k *= m
        curve -= k
        return self.bins.take(curve)


def _short_words(rng: np.random.Generator, count: int) -> npt.NDArray[np.uint16]:
    """Draw 16 random bits for each value, with a quarter of the random words that doubles would take."""
    words = rng.integers(0, 2**64 - 1, -(-count // 4), dtype=np.uint64, endpoint=True)
    return words.view(np.uint16)[:count]


def segment_finder(knots: Array) -> Callable[[Array], Indices]:
    """Return a function that finds segments of inputs by a uniform grid: without bisection if no knot is near the grid cell, 1.3 to 2.7 times as fast."""
    cells = min(256 * len(knots), _LARGEST)
    scale = cells / (knots[-1] - knots[0])
    edges = np.linspace(knots[0], knots[-1], cells + 1)
    first = np.clip(np.searchsorted(knots, edges, side="right") - 1, 0, len(knots) - 2)
    # A cell before and after covers the rounding of the index computation.
    before, after = (first[np.clip(np.arange(cells + 1) + d, 0, cells)] for d in (-1, 2))
    known = np.where(before == after, before, -1)

    def segment(x: Array) -> Indices:
        k: Indices = known.take(((x - knots[0]) * scale).astype(np.intp))
        near = np.flatnonzero(k < 0)
        k[near] = np.searchsorted(knots[1:-1], x[near], side="right")
        return k

    return segment

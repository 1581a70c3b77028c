r"""How quantizers draw: simulation by guide tables, on tensors by bisection, and release bit for bit from an exact law.

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
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from mechdesign.errors import DataError, DesignError
from mechdesign.evidence.sampling import IntegerRows, bernoulli
from mechdesign.quantizers import table as tables
from mechdesign.quantizers.table import ExactLaw
from mechdesign.typing import Array, Indices

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
    DataError.when(bool(outside.any()), f"x: inputs must be in [{lower:g}, {upper:g}]; or pass clip=True")

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
        DesignError.when(sum(weights) != common, f"row {(segment, end)} of the exact law does not sum to 1")
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

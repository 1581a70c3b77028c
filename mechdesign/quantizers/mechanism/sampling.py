r"""Samplers for quantizers: a fast one for simulation and an exact one for deployment.

**Fast.** An input is rounded to one end of its segment at random, keeping its mean, and the output is drawn
from that end's row by Walker's alias method: one 64-bit random word and a few table look-ups per value (so that
probabilities are right to 2⁻³², which no simulation sees).

**Exact.** The same two steps with integers and the operating system's randomness only
(`mechdesign.evidence.sampling`). Inputs are doubles, hence dyadic rationals, and enter exactly.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from mechdesign.errors import DesignError
from mechdesign.evidence.sampling import IntegerWeights, bernoulli
from mechdesign.quantizers.mechanism.exact_law import ExactLaw
from mechdesign.quantizers.mechanism.table import PiecewiseTable
from mechdesign.typing import Array

__all__ = ["ExactSampler", "is_tensor", "sample_array", "sample_tensor"]

_CHUNK = 1 << 15
_CELLS = 1 << 14


def alias_table(rows: Array) -> tuple[Array, npt.NDArray[np.int32]]:
    """Walker's alias tables of several laws: thresholds and aliases, each of the shape of `rows`.

    Draw a column j uniformly and keep it with probability threshold[j], else take alias[j].
    """
    count, m = rows.shape
    threshold = np.ones((count, m))
    alias = np.tile(np.arange(m, dtype=np.int32), (count, 1))
    for k in range(count):
        scaled = rows[k] * (m / rows[k].sum())
        small = [j for j in range(m) if scaled[j] < 1]
        large = [j for j in range(m) if scaled[j] >= 1]
        while small and large:
            j, donor = small.pop(), large[-1]
            threshold[k, j], alias[k, j] = scaled[j], donor
            scaled[donor] -= 1 - scaled[j]
            if scaled[donor] < 1:
                small.append(large.pop())
    return threshold, alias


def sample_array(table: PiecewiseTable, x: Array, rng: np.random.Generator) -> Array:
    """Draw for every element of `x` (already checked); chunks run on threads, reproducibly."""
    flat = np.ascontiguousarray(x, dtype=float).ravel()
    out = np.empty(flat.size)
    threshold, alias = alias_table(table.rows)
    m = len(table.bins)
    # A number v in [0, m) falls in column j = ⌊v⌋ of a row and keeps that output while v < j + threshold.
    keep_below = (threshold + np.arange(m)).ravel()
    # Both outcomes of a column side by side: its own output, and its alias's.
    outcome = np.stack([np.broadcast_to(table.bins, alias.shape), table.bins[alias]], axis=-1).ravel()
    # t in units of 2^-32, as an affine function of x on each segment.
    slope = 2.0**32 / np.diff(table.knots)
    offset = table.knots[:-1] * slope
    segment = segment_finder(table.knots)
    unit = m * 2.0**-32

    def fill(start: int, stop: int, generator: np.random.Generator) -> None:
        for a in range(start, stop, _CHUNK):
            part = flat[a : min(a + _CHUNK, stop)]
            k = segment(part)
            t = slope.take(k)
            t *= part
            t -= offset.take(k)
            words = generator.integers(0, 2**64 - 1, part.size, dtype=np.uint64, endpoint=True).view(
                np.uint32
            )
            k += k
            k += words[::2] < t
            k *= m
            v = words[1::2] * unit
            k += v.astype(np.intp)
            passed = v >= keep_below.take(k)
            k += k
            k += passed
            outcome.take(k, out=out[a : a + part.size], mode="clip")

    if flat.size <= 1 << 18:
        fill(0, flat.size, rng)
    else:
        # A fixed number of streams, so that the draws do not depend on the machine.
        streams = rng.spawn(8)
        edges = np.linspace(0, flat.size, len(streams) + 1).astype(int)
        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
            list(pool.map(fill, edges[:-1], edges[1:], streams))
    return out.reshape(np.shape(x))


def segment_finder(knots: Array) -> Callable[[Array], npt.NDArray[np.intp]]:
    """Return what finds the segments of inputs by a uniform grid: at once where no knot is near the grid cell."""
    cells = min(256 * len(knots), _CELLS)
    scale = cells / (knots[-1] - knots[0])
    edges = np.linspace(knots[0], knots[-1], cells + 1)
    first = np.clip(np.searchsorted(knots, edges, side="right") - 1, 0, len(knots) - 2)
    # A cell before and after covers the rounding of the index computation.
    before, after = (first[np.clip(np.arange(cells + 1) + d, 0, cells)] for d in (-1, 2))
    known = np.where(before == after, before, -1)

    def segment(x: Array) -> npt.NDArray[np.intp]:
        k = known.take(((x - knots[0]) * scale).astype(np.intp))
        near = np.flatnonzero(k < 0)
        k[near] = np.searchsorted(knots[1:-1], x[near], side="right")
        return k

    return segment


def is_tensor(x: Any) -> bool:
    """Whether `x` is a PyTorch tensor (without importing PyTorch)."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def sample_tensor(table: PiecewiseTable, x: Any, rng: Any, *, clip: bool) -> Any:
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
    if bool(((values < lower) | (values > upper) | values.isnan()).any()):
        raise DesignError(f"x: inputs must be in [{lower:g}, {upper:g}]; or pass clip=True")

    def tensor(array: Any, dtype: Any = kind) -> Any:
        return torch.tensor(np.array(array), dtype=dtype, device=x.device)

    knots = tensor(table.knots)
    last = len(table.knots) - 2
    k = (torch.searchsorted(knots, values.contiguous(), right=True) - 1).clamp(0, last)
    t = (values - knots[k]) / (knots[k + 1] - knots[k])
    threshold, alias = alias_table(table.rows)
    m = len(table.bins)
    row = 2 * k + (torch.rand(values.shape, generator=generator, device=x.device, dtype=kind) < t)
    v = torch.rand(values.shape, generator=generator, device=x.device, dtype=kind) * m
    column = v.long().clamp(max=m - 1)
    index = row * m + column
    keep = (v - column) < tensor(threshold.ravel())[index]
    bins = tensor(table.bins)
    return torch.where(keep, bins[column], bins[tensor(alias.ravel(), torch.long)[index]]).to(x.dtype)


class ExactSampler:
    """Draws from an exact law, bit for bit; the integer weights of the rows it has met are kept.

    Parameters
    ----------
    law : ExactLaw
    """

    def __init__(self, law: ExactLaw) -> None:
        self.law = law
        self.bins = np.array([float(b) for b in law.bins])
        self.knots = np.array([float(x) for x in law.knots])
        self._rows: dict[tuple[int, int], IntegerWeights] = {}

    def row(self, segment: int, end: int) -> IntegerWeights:
        """The row's probabilities as integers over their least common denominator."""
        key = (segment, end)
        if key not in self._rows:
            weights, common = self.law.weights(segment, end)
            if sum(weights) != common:
                raise DesignError(f"row {key} of the exact law does not sum to 1")
            self._rows[key] = IntegerWeights(weights)
        return self._rows[key]

    def draw(self, x: Array) -> Array:
        """One output for every input."""
        flat = np.ascontiguousarray(x, dtype=float).ravel()
        segment = self._segments(flat)
        key = 2 * segment + self._upward(flat, segment)
        out = np.empty(flat.size)
        order = np.argsort(key, kind="stable")
        used, starts = np.unique(key[order], return_index=True)
        for row, part in zip(used.tolist(), np.split(order, starts[1:])):
            out[part] = self.bins[self.row(row // 2, row % 2).draw(part.size)]
        return out.reshape(np.shape(x))

    def _segments(self, x: Array) -> npt.NDArray[np.intp]:
        """Segment of each input, compared with the exact knots."""
        last = len(self.knots) - 2
        k = np.clip(np.searchsorted(self.knots, x, side="right") - 1, 0, last)
        # A knot that is not a double may round to one: settle such inputs by exact comparison.
        for value in np.unique(x[np.isin(x, self.knots)]).tolist():
            k[x == value] = min(max(bisect_right(self.law.knots, Fraction(value)) - 1, 0), last)
        return k

    def _upward(self, x: Array, segment: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """Exact Bernoulli((x − x_k)/(x_{k+1} − x_k)) for every input."""
        a, b = self.knots[segment], self.knots[segment + 1]
        # Doubles err by a few ulps relative to the larger operand.
        error = 16 * np.finfo(float).eps * (1 + (np.abs(a) + np.abs(x)) / (b - a))

        def exact(i: int) -> Fraction:
            low, high = self.law.knots[segment[i]], self.law.knots[segment[i] + 1]
            return (Fraction(float(x[i])) - low) / (high - low)

        return bernoulli((x - a) / (b - a), error, exact)

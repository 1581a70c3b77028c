r"""Samplers for quantizers: a fast one for simulation and an exact one for deployment.

**Fast.** One uniform number, 16 bits of it first, and one look-up in a guide table per value (`guide`); tensors take Walker's alias method,
the input first rounded to one end of its segment at random, keeping its mean.

**Exact.** The same two steps with integers and the operating system's randomness only
(`mechdesign.evidence.sampling`). Inputs are doubles, hence dyadic rationals, and enter exactly.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from mechdesign.errors import DesignError
from mechdesign.evidence.sampling import IntegerWeights, bernoulli
from mechdesign.quantizers.mechanism.exact_law import ExactLaw
from mechdesign.quantizers.mechanism.guide import GuideTable
from mechdesign.quantizers.mechanism.table import PiecewiseTable
from mechdesign.typing import Array

__all__ = ["ExactSampler", "is_tensor", "sample_array", "sample_tensor"]


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

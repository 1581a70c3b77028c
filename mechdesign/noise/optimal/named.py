r"""Laws that are known before any program runs: truncated Laplace noise and uniform noise, with a spike where δ is large.

On cells as wide as the sensitivity, the even law that falls by :math:`e^{-\varepsilon}` from cell to cell and loses all of δ at
its end is, from the outside, :math:`y,\ \delta + (e^\varepsilon - 1)y,\ e^\varepsilon(\cdot),\dots` with :math:`0 \le y \le \delta`: for
many cells truncated Laplace noise, the best there is as ε → 0. On finer cells only the fall per cell is smaller. Uniform noise
on a length of Δ/δ is the same at ε = 0. A spike of mass a at 0 leaves (δ - a)/(1 - a) for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.exact import exp_lower
from mechdesign.noise.cell_noise import CellNoise
from mechdesign.noise.optimal.costs import law_cost
from mechdesign.noise.optimal.ladders import symmetric_law
from mechdesign.noise.optimal.question import Question
from mechdesign.noise.optimal.repair import round_width

__all__ = ["named_laws"]

_BITS, _ROOT_BITS = 40, 240
"""Behind the point of what one cell has more than the next, and of e^ε."""
_FINEST = 32  # cells per sensitivity of truncated Laplace noise
_MOST_CELLS = 800  # of it, where they are narrower than the sensitivity
_COARSE = 2.0  # ε from which a cell of one sensitivity is too wide
_UNIFORM = 2**20, 2**28  # cells of uniform noise per sensitivity, and in all
_SHAVES = (1e-12, 1e-9, 1e-6)


def _length(epsilon: float, delta: float) -> int:
    """How many cells of one sensitivity lie on each side of the one at 0."""
    rest = 2 / math.expm1(epsilon)
    reach = (1 / delta - 2) * math.exp(-epsilon) + rest
    return 1 + max(0, math.ceil(math.log(max(reach, rest) / (1 + rest)) / epsilon - 1e-9))


def _grown(ends: list[int], steps: int, epsilon: Fraction) -> list[int]:
    """From the outside in, `steps` more weights, each grown by e^ε and rounded down: no pair of them costs any δ."""
    growth = math.floor(exp_lower(epsilon) * 2**_ROOT_BITS)
    for _ in range(steps):
        ends.append(ends[-1] * growth >> _ROOT_BITS)
    return ends


def _even(half: list[int], n: int, sensitivity: float) -> CellNoise:
    """The law on an odd number of cells whose right half, from the outside to the one at 0, this is."""
    width = round_width(Fraction(sensitivity) / n)
    weights = (*half, *half[-2::-1])
    return CellNoise(weights=weights, width=width, start=-len(weights) * width / 2, cells_per_shift=n)


def _chain(q: Question, delta: float, most: int) -> CellNoise | None:
    """Truncated Laplace noise on cells of one sensitivity, all of δ spent."""
    e = q.epsilon
    count = _length(e, delta) if e < _COARSE else most + 1
    if count > most:
        return None
    mass = math.exp(e * (count - 1)) + 2 * math.expm1(e * (count - 1)) / math.expm1(e)
    y = min(max((1 - delta * mass) / (2 + math.expm1(e) * mass), 0.0), delta)
    bits = _BITS - math.floor(math.log2(delta * min(e, 1.0)))
    ends = [int(Fraction(v) * 2**bits) for v in (y, delta + math.expm1(e) * y)]
    return _even(_grown(ends, count - 1, Fraction(e)), 1, q.sensitivity)


def _fine(q: Question, delta: float, most: int) -> CellNoise | None:
    """Truncated Laplace noise on narrow cells, cut where the last sensitivity holds no more than δ."""
    support = replace(q, delta=delta).support
    n = min(_FINEST, math.floor(_MOST_CELLS / (1 + support)))
    if n < 2:
        return None
    step = Fraction(q.epsilon) / n
    unit = 2 ** (_BITS - math.floor(math.log2(min(q.epsilon / n, 1.0))))
    half = _grown([unit], math.ceil((support + 1) * n), step)
    heights = np.array([v / unit for v in half])
    sums = np.cumsum(heights)
    side = np.arange(n, len(half))  # cells beside the one at 0
    (enough,) = np.nonzero(sums[n - 1] <= delta * (sums[side - 1] * 2 + heights[side]))
    return _even(half[: side[enough[0]] + 1], n, q.sensitivity) if enough.size else None


def _uniform(q: Question, delta: float, most: int) -> CellNoise | None:
    """Uniform noise on a length of Δ/δ."""
    n = min(_UNIFORM[0], 1 << max(0, math.floor(math.log2(_UNIFORM[1] * delta))))
    half = math.ceil(Fraction(n) / (2 * Fraction(delta)))
    if half > _UNIFORM[1]:
        return None
    spans = [1 << k for k in range(half.bit_length() - 1, -1, -1) if half >> k & 1]
    return symmetric_law(list(spans), spans, round_width(Fraction(q.sensitivity) / n), n)


def _shares(delta: float) -> Iterator[float]:
    """Masses of a spike that are tried."""
    yield 0.0
    if delta > 0.3:
        yield from (delta * k / 16 for k in range(1, 16))
        yield from (v for v in (2 * delta - 1, 3 * delta - 2) if v > 0)


def _law(
    q: Question,
    family: Callable[[Question, float, int], CellNoise | None],
    share: float,
    most: int,
    shave: float = _SHAVES[0],
) -> CellNoise | None:
    """A law of the family beside a spike of this mass."""
    rest = (q.delta - share) / (1 - share) * (1 - shave)
    try:
        law = family(q, rest, most) if rest > 0 else None
        if law is None or not share:
            return law
        spike = math.floor(law.total * Fraction(share) / (1 - Fraction(share)))
        return replace(
            law, spike=spike, spike_width=round_width(Fraction(q.sensitivity) / (64 * q.spike_share))
        )
    except (DesignError, OverflowError):  # beyond what doubles hold
        return None


def named_laws(question: Question, most: int) -> Iterator[tuple[Fraction, CellNoise]]:
    """Yield the best law of each family, private exactly, with its cost.

    Parameters
    ----------
    question : Question
        δ > 0, an even polynomial loss.
    most : int
        Cells of one sensitivity on each side, at most.
    """
    q = question
    for family in (_uniform, _fine, _chain):
        found = [law for share in _shares(q.delta) if (law := _law(q, family, share, most)) is not None]
        if not found:
            continue
        costs = [law_cost(law, q.loss) for law in found]
        at = costs.index(min(costs))
        share = float(found[at].spike / found[at].total)
        for shave in _SHAVES:
            law = found[at] if shave == _SHAVES[0] else _law(q, family, share, most, shave)
            if law is not None and law.exact_delta(q.epsilon) <= Fraction(q.delta):
                yield law_cost(law, q.loss), law
                break

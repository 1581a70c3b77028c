r"""The exact sums that decide the privacy of a density that is constant on cells, by shift.

:math:`D(d) = \int [f(t) - e^{\varepsilon} f(t + d)]_+\,dt`. On a lattice of n cells per sensitivity, n sums decide. Where cells
are joined into spans, D is a sum over pairs of spans of a constant times the length of their overlap, which is linear in
d between the differences of their ends: the second differences are added up.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise
from typing import Any

__all__ = ["lattice_sums", "span_sums"]


def lattice_sums(law: Any, growth: Fraction) -> dict[int, Fraction]:
    """Return the sums at every whole shift, e^ε bounded from below by `growth`."""
    n = law.cells_per_shift
    shifts = [k for k in range(-n, n + 1) if k > 0 or (k < 0 and not law.symmetric)]
    up, down = growth.numerator, growth.denominator
    cells: list[Fraction | int] = list(law.weights)
    if law.decay:
        # One period beyond each end: pairs further out are these, scaled by powers of the decay.
        left = [law.decay**2 * w for w in cells[:n]] + [law.decay * w for w in cells[:n]]
        right = [law.decay * w for w in cells[-n:]] + [law.decay**2 * w for w in cells[-n:]]
        scale = law.decay.denominator**2
        cells = [int(w * scale) for w in [*left, *cells, *right]]
    else:
        scale = 1
    whole = law.total * scale
    spike = Fraction(law.spike * scale)
    pad = [0] * n
    out: dict[int, Fraction] = {}
    for k in shifts:
        shifted = [*pad[: max(0, -k)], *cells, *pad[: max(0, k)]]
        moved = shifted[k:] if k > 0 else shifted[: len(cells)]
        here = cells
        if law.decay:  # the outermost period has no partner in the list
            here, moved = here[n:-n], moved[n:-n]
        excess = [a * down - b * up if a * down > b * up else 0 for a, b in zip(here, moved)]
        sum_here = Fraction(sum(excess))
        if law.decay:  # further out, terms repeat with the decay
            sum_here += (sum(excess[:n]) + sum(excess[-n:])) * law.decay / (1 - law.decay)
        out[k] = (sum_here / down + spike) / whole
    return out


def _joined(runs: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Runs of equal height, made one."""
    out: list[tuple[int, int, int]] = []
    for start, end, height in runs:
        if out and out[-1][2] == height:
            out[-1] = (out[-1][0], end, height)
        else:
            out.append((start, end, height))
    return out


def span_sums(law: Any, growth: Fraction) -> dict[int, Fraction]:
    """Return the largest sum over all real shifts of either sign, and the one of the whole sensitivity."""
    n, up, down = law.cells_per_shift, growth.numerator, growth.denominator
    widest = max(law.spans)  # all are powers of two
    r = law.decay
    scale, once, twice = r.denominator**2, r.numerator * r.denominator, r.numerator**2
    runs = [(end - v, end, scale * w * (widest // v)) for w, v, end in zip(law.weights, law.spans, law.ends)]
    count = law.count
    here = _joined(runs)
    times = {1: here}
    if r:
        first, last = law.period
        outer = []
        for periods, power in ((1, once), (2, twice)):
            outer.append([(a - periods * n, b - periods * n, h // scale * power) for a, b, h in runs[:first]])
            outer.append([(a + periods * n, b + periods * n, h // scale * power) for a, b, h in runs[-last:]])
        there = _joined([*outer[2], *outer[0], *runs, *outer[1], *outer[3]])
        # Terms of the first repetition stand for those of all further ones.
        times = {r.denominator - r.numerator: here, r.denominator: _joined([*outer[0], *outer[1]])}
    else:
        there = [(-n, 0, 0), *here, (count, count + n, 0)]
    bends: dict[int, int] = defaultdict(int)
    for factor, terms in times.items():
        for a, b, height in terms:
            for c, e, other in there:
                excess = height * down - other * up
                if excess > 0 and c - b < n and e - a > -n:
                    excess *= factor
                    for place, sign in ((c - b, 1), (c - a, -1), (e - b, -1), (e - a, 1)):
                        bends[place] += sign * excess
    for place in (-n, 0, n):
        bends[place] += 0
    found: dict[int, int] = {}
    value = slope = 0
    places = sorted(bends)
    for place, after in pairwise([*places, places[-1]]):
        slope += bends[place]
        found[place] = value
        value += slope * (after - place)
    whole = law.total * (widest * scale * down * (r.denominator - r.numerator if r else 1))
    spike = Fraction(law.spike) / law.total
    out: dict[int, Fraction] = {}
    for sign in (1, -1) if not law.symmetric else (1,):
        shifts = [k for k in found if 0 < sign * k <= n]
        for k in (sign * n, max(shifts, key=lambda k: found[k])):
            out[k] = Fraction(found[k]) / whole + spike
    return out

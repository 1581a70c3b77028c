"""Norms in rational numbers, and the faces of hulls by brute force."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

ALARM = 1e-8
"""Of tests that are not seeded, by design: one false alarm in 10⁸ runs."""


def gauge(z: list[Fraction], norm: float, cap: Fraction | None, signed: bool) -> Fraction:
    """The norm in rational numbers; of ℓ₂ its square root to 30 digits."""
    if not signed:
        return max(*z, Fraction(0)) - min(*z, Fraction(0))
    sizes = [abs(x) for x in z]
    if norm == 2:
        square = sum(x * x for x in sizes)
        return Fraction(math.isqrt(int(square * 10**60)), 10**30)
    if norm == 1:
        return sum(sizes, Fraction(0))
    return max(max(sizes), sum(sizes, Fraction(0)) / cap if cap else Fraction(0))


def solved(rows: list[list[Fraction]]) -> list[Fraction] | None:
    """n with n·v = 1 for every row v, by Cramer's rule."""

    def det(m: list[list[Fraction]]) -> Fraction:
        if not m:
            return Fraction(1)
        minors = ([row[:j] + row[j + 1 :] for row in m[1:]] for j in range(len(m)))
        return sum(((-1) ** j * m[0][j] * det(minor) for j, minor in enumerate(minors)), Fraction(0))

    whole = det(rows)
    if not whole:
        return None
    one = Fraction(1)
    return [det([row[:j] + [one] + row[j + 1 :] for row in rows]) / whole for j in range(len(rows))]


def faces_of(vectors: list[list[Fraction]]) -> set[tuple[Fraction, ...]]:
    """Both normals of all faces of a hull: planes through d vectors or negatives that have the others on one side."""
    found = set()
    for subset in itertools.combinations(vectors, len(vectors[0])):
        for signs in itertools.product((1, -1), repeat=len(subset)):
            n = solved([[s * x for x in v] for s, v in zip(signs, subset)])
            if n and all(abs(sum(a * x for a, x in zip(n, v))) <= 1 for v in vectors):
                found.add(tuple(n))
    return found


def gauge_of(faces: set[tuple[Fraction, ...]], z: list[Fraction]) -> Fraction:
    return max(sum(a * x for a, x in zip(n, z)) for n in faces)

r"""Directions from a shared seed, the same bits in every language: integers, and doubles with + − × ÷ √ in a stated order.

**The definition.** Direction c = 0, 1, … of vector i under a seed, in D ≥ 2 dimensions. Let P = ⌈D/2⌉, K = ⌊3P/2⌋ + 64, B = ⌈(P − 1 + K)/4⌉.
Its words of 64 bits W₀, W₁, … are the output of Philox4x64-10 with the key (seed mod 2⁶⁴, ⌊seed/2⁶⁴⌋) for the counters (cB + 1, 0, i, 0),
(cB + 2, 0, i, 0), …, (cB + B, 0, i, 0): the least significant word of a counter first, four words of output each, in their order.

1. *Shares.* The integers ⌊Wⱼ/2¹¹⌋, j < P − 1, sorted, with 0 before and 2⁵³ after them: their P differences w₀, …, w_{P−1}.
2. *Points of a disc.* Of each of the next K words the leading 26 bits a and the following 26 bits b give the odd integers
   u = 2a + 1 − 2²⁶, v = 2b + 1 − 2²⁶ and t = u² + v², all exact in doubles. Words with t > 2⁵² are passed over as long as no more
   than K − P of them were (more come with a probability below 2⁻⁷⁷); the first P others are taken, in their order.
3. *Length.* n = 2⁵³ for even D. For odd D the last of the 2P coordinates is dropped: n = (2⁵³ − w) + w × ((u × u) ÷ t) with the last w, u, t.
4. *Coordinates.* Pair j is (u × q, v × q), q = √((wⱼ ÷ t) ÷ n).

Each of + − × ÷ √ is one operation of IEEE doubles, rounded to nearest; in C without contraction (``-ffp-contract=off``).

**Its law** is uniform on the sphere, up to the grids of the integers: the squared lengths of the pairs of coordinates of a uniform direction are
the spacings of P − 1 uniform numbers (Dirichlet with all parameters 1), and every pair has the direction of a uniform point of a disc.
Without its last coordinate, and stretched to length 1, it is uniform in one dimension less.

**Polygons**, at D = 2. The corners of the square are (1, 0), (0, 1), (−1, 0), (0, −1). Of a polygon of twice as many corners those at even places
are the ones before, and between the neighbours (a, b) and (c, d) lies (e ÷ l, f ÷ l), e = a + c, f = b + d, l = √(e × e + f × f); two corners are (1, 0), (−1, 0).
Turned by direction 0, (x, y), a corner (c, s) is (c × x − s × y, c × y + s × x).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mechdesign.typing import Array
from mechdesign.vectors.coded import shared_words

_WHOLE = 1 << 53
_SIDE = 1 << 26


def _tries(pairs: int) -> int:
    return 3 * pairs // 2 + 64


def direction_words(dimension: int, seed: int, number: int, start: int, stop: int) -> npt.NDArray[np.uint64]:
    """Return the words of directions start, …, stop − 1 of a vector, shape (stop − start, 4 B)."""
    pairs = (dimension + 1) // 2
    blocks = -(-(pairs - 1 + _tries(pairs)) // 4)
    words = shared_words(seed, number, 4 * blocks * (stop - start), blocks * start)
    return words.reshape(stop - start, 4 * blocks)


def directions(dimension: int, words: npt.NDArray[np.uint64]) -> Array:
    """Return the directions of these words, shape (n, D): what the module defines, bit for bit.

    Examples
    --------
    >>> [x.hex() for x in directions(3, direction_words(3, seed=1, number=2, start=3, stop=4))[0].tolist()]
    ['0x1.c464227124d4cp-2', '0x1.a210e05112fafp-1', '-0x1.7c873e5fced10p-2']
    """
    pairs = (dimension + 1) // 2
    tries = _tries(pairs)
    marks = np.sort((words[:, : pairs - 1] >> np.uint64(11)).astype(float), axis=1)
    shares = np.diff(marks, axis=1, prepend=0.0, append=float(_WHOLE))
    words = words[:, pairs - 1 : pairs - 1 + tries]
    a, b = words >> np.uint64(38), words >> np.uint64(12) & np.uint64(_SIDE - 1)
    u, v = 2 * a.astype(float) + (1 - _SIDE), 2 * b.astype(float) + (1 - _SIDE)
    squares = u * u + v * v
    outside = squares > _SIDE * _SIDE
    taken = ~outside | (outside.cumsum(axis=1, dtype=np.int32) > tries - pairs)
    taken &= taken.cumsum(axis=1, dtype=np.int32) <= pairs
    u, v, squares = (found[taken].reshape(-1, pairs) for found in (u, v, squares))
    whole: Array | float = float(_WHOLE)
    if dimension % 2:
        w = shares[:, -1:]
        whole = (_WHOLE - w) + w * ((u * u)[:, -1:] / squares[:, -1:])
    q = np.sqrt((shares / squares) / whole)
    return np.stack([u * q, v * q], axis=-1).reshape(-1, 2 * pairs)[:, :dimension]


def polygon(corners: int, turn: Array) -> Array:
    """Return the corners of a regular polygon on the unit circle, a power of two of them, the first at `turn`; shape (corners, 2)."""
    c, s = np.array([1.0, 0.0, -1.0, 0.0]), np.array([0.0, 1.0, 0.0, -1.0])
    while len(c) < corners:
        e, f = c + np.roll(c, -1), s + np.roll(s, -1)
        length = np.sqrt(e * e + f * f)
        c, s = np.stack([c, e / length], axis=1).ravel(), np.stack([s, f / length], axis=1).ravel()
    c, s = c[:: len(c) // corners], s[:: len(s) // corners]
    return np.stack([c * turn[0] - s * turn[1], c * turn[1] + s * turn[0]], axis=1)

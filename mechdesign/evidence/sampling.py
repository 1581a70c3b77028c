r"""Exact sampling: integers, and the operating system's randomness.

Released numbers must have exactly the law that was analysed, so that no floating-point number may take part in a
draw. Every law here has integer weights :math:`w_0, \dots, w_{n-1}` with running sums :math:`C_i` and total C;
U is uniform on [0, 1), and the outcome is the i with :math:`C_{i-1} \le U C < C_i`. The leading 16 bits of U settle that by a
table, save where a boundary :math:`C_i / C` lies in the cell of width 2⁻¹⁶ that they leave: there 48 more are drawn, and
further words where a boundary is in that cell too, until it is settled. The law is exact.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from functools import cached_property, partial
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
from flint import arb, fmpq

from mechdesign.checks import refuse
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import whole_parts
from mechdesign.typing import Array, Indices

Words = npt.NDArray[np.uint64]
_SHORT = 16  # bits that are tried first
_FEW = 1 << 10  # draws that are not worth a table
_BLOCK = 1 << 15  # draws at a time: they stay in the cache


_PENDING: ContextVar[Callable[[], object] | None] = ContextVar("pending", default=None)


@contextmanager
def before_noise(act: Callable[[], object]) -> Iterator[None]:
    """Call `act` before the first word is drawn inside: after the input was checked, and before any noise."""
    token = _PENDING.set(act)
    try:
        yield
    finally:
        _PENDING.reset(token)


def random_words(count: int) -> Words:
    """Return that many 64-bit words of the operating system's randomness."""
    if (act := _PENDING.get()) is not None:
        act()  # if it raises, it is called again before any later word
        _PENDING.set(None)
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def uniform_integers(bound: int, size: int) -> Indices:
    """Draw `size` integers, each exactly uniform on 0, …, bound − 1, for 1 ≤ bound ≤ 2⁶³.

    Examples
    --------
    >>> sorted(set(uniform_integers(3, 200).tolist()))
    [0, 1, 2]
    """
    refuse(not 1 <= bound <= 1 << 63, "bound", bound, "must be an integer from 1 to 2^63")
    words = random_words(size)
    surplus = (1 << 64) % bound
    while surplus and (over := np.flatnonzero(words >= np.uint64((1 << 64) - surplus))).size:
        # The last 2^64 mod `bound` words would favour small remainders: they are drawn again.
        words = words.copy()
        words[over] = random_words(over.size)
    return (words % np.uint64(bound)).astype(np.int64)


def uniform_below(bounds: Indices) -> Indices:
    """Draw one integer for each bound, exactly uniform on 0, …, bound − 1, for 1 ≤ bound < 2⁶³.

    Examples
    --------
    >>> bool((uniform_below(np.array([1, 5, 7])) < [1, 5, 7]).all())
    True
    """
    top = np.asarray(bounds).ravel().astype(np.uint64)
    words = random_words(top.size).copy()
    surplus = (
        ~top + np.uint64(1)
    ) % top  # 2^64 modulo each bound: as many words would favour small remainders
    while (over := np.flatnonzero((surplus > 0) & (words >= ~surplus + np.uint64(1)))).size:
        words[over] = random_words(over.size)
    return (words % top).astype(np.int64).reshape(np.shape(bounds))


def exponential_coins(numerators: Indices, denominator: int) -> npt.NDArray[np.bool_]:
    """Draw true with probability exactly exp(−u/d), for each u from 0 to d (Canonne, Kamath and Steinke 2020).

    Coins of u/(dk) fall for k = 1, 2, …; the number of the first that does not is odd with that probability.

    Examples
    --------
    >>> exponential_coins(np.array([0, 0]), 5).tolist()
    [True, True]
    """
    out, alive, k = np.zeros(numerators.size, dtype=bool), np.arange(numerators.size), 1
    while alive.size:
        falls = uniform_integers(denominator * k, alive.size) < numerators[alive]
        out[alive[~falls]] = k % 2 == 1
        alive, k = alive[falls], k + 1
    return out


def geometric(rate: int, size: int) -> Indices:
    """Draw `size` integers n ≥ 0 with probabilities exactly proportional to exp(−n/rate).

    Examples
    --------
    >>> bool((geometric(3, 100) >= 0).all())
    True
    """
    refuse(not 1 <= rate <= 1 << 50, "rate", rate, "must be an integer from 1 to 2^50")
    out, open_ = np.zeros(size, dtype=np.int64), np.arange(size)
    while open_.size:
        place = uniform_integers(rate, open_.size)
        taken = exponential_coins(place, rate)
        out[open_[taken]] = place[taken]
        open_ = open_[~taken]
    alive = np.arange(size)
    while alive.size:
        alive = alive[exponential_coins(np.ones(alive.size, dtype=np.int64), 1)]
        out[alive] += rate
    return out


def streaks(ratio: Fraction, size: int) -> Indices:
    """Draw the number of successes of this probability before the first failure, exactly.

    Where failures are rare, its lowest bits are independent coins, as r^n is the product of r^(2^j) over the bits of n; the rest is a number of blocks of successes.

    Examples
    --------
    >>> streaks(Fraction(0), 3).tolist()
    [0, 0, 0]
    """
    out, going = np.zeros(size, dtype=np.int64), np.arange(size)
    rare = fmpq(ratio.denominator - ratio.numerator, ratio.denominator)
    bits = max(0, math.floor(1 / (1 - ratio)).bit_length() - 2)

    def block(power: int) -> arb:
        return arb(((-arb(rare)).log1p() * power).exp())

    def bit(power: int) -> arb:
        return 1 - 1 / (1 + block(power))

    for j in range(bits):
        out += coins(partial(bit, 1 << j), size).astype(np.int64) << j
    while ratio and (going := going[coins(partial(block, 1 << bits), going.size)]).size:
        out[going] += 1 << bits
    return out


def coins(chance: Callable[[], arb], size: int) -> npt.NDArray[np.bool_]:
    """Flip coins of this probability, enclosed at the working precision, exactly: by 64 bits of a uniform number, and more where these do not decide."""
    words, (low, high) = random_words(size), whole_parts(chance, 64)
    out = words < low
    for i in np.flatnonzero((words >= low) & (words < high)).tolist():
        word, bits, (least, most) = int(words[i]), 64, (low, high)
        while least <= word < most:
            word, bits = word << 64 | int(random_words(1)[0]), bits + 64
            least, most = whole_parts(chance, bits)
        out[i] = word < least
    return out


def accepted(size: int, proposed: Callable[[int], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Draw `size` rows by rejection: ``proposed(missing)`` returns the accepted ones of some proposals."""
    found = [proposed(size)]
    while (missing := size - sum(map(len, found))) > 0:
        found.append(proposed(missing))
    return np.concatenate(found)[:size]


class IntegerWeights:
    """The law on 0, …, n − 1 with probabilities exactly proportional to integer weights of any size.

    Parameters
    ----------
    weights : sequence of int
        Non-negative, not all zero.

    Attributes
    ----------
    cumulative : list of int
        Running sums; the last one is the total.
    cells : ndarray of uint64
        The leading 64 bits of the boundaries between outcomes, over the total.

    Examples
    --------
    >>> law = IntegerWeights([1, 0, 3])
    >>> law.cumulative
    [1, 1, 4]
    >>> sorted(set(law.draw(200).tolist()))
    [0, 2]
    """

    def __init__(self, weights: Sequence[int]) -> None:
        self.cumulative = list(accumulate(weights))
        if not self.cumulative or min(weights) < 0 or self.cumulative[-1] <= 0:
            raise DesignError.of("weights", weights, "must be non-negative integers, not all zero")
        total = self.cumulative[-1]
        leading = [min((c << 64) // total, 2**64 - 1) for c in self.cumulative[:-1]]
        self.cells = np.array(leading, dtype=np.uint64)

    @cached_property
    def _table(self) -> Indices:
        """Return the index for each value of the leading 16 bits; −1 if they do not decide it."""
        starts = np.arange(1 << _SHORT, dtype=np.uint64) << np.uint64(64 - _SHORT)
        index = np.searchsorted(self.cells, starts, side="right").astype(np.int64)
        index[(self.cells >> np.uint64(64 - _SHORT)).astype(np.int64)] = -1
        return index

    def draw(self, size: int) -> Indices:
        """Draw `size` indices."""
        if size < _FEW:
            return self._placed(random_words(size))
        leading = _short_words(size)
        index = self._table[leading]
        open_ = np.flatnonzero(index < 0)
        index[open_] = self._placed(_lengthened(leading[open_]))
        return index

    def _placed(self, words: Words) -> Indices:
        """Return the indices of numbers U with these leading 64 bits."""
        index = np.searchsorted(self.cells, words, side="right")
        if self.cells.size:
            for i in np.flatnonzero(self.cells[np.maximum(index - 1, 0)] == words):
                index[i] = self.settled(int(words[i]))
        return index.astype(np.int64, copy=False)

    def settled(self, word: int) -> int:
        """Return the index of U, whose leading bits are `word`; more are drawn while a boundary is inside U's cell."""
        bits, total = 64, self.cumulative[-1]
        while True:
            low = sum((c << bits) <= word * total for c in self.cumulative)
            high = sum((c << bits) < (word + 1) * total for c in self.cumulative)
            if low == high:
                return low
            word, bits = (word << 64) | int(random_words(1)[0]), bits + 64


class IntegerRows:
    """Laws of integer weights, one per row; a draw takes the same work for all rows.

    All rows are prepared at once. The search for a random word among a row's boundaries takes the same number of steps for
    every row and word.

    Parameters
    ----------
    weights : callable
        Row to its weights.
    count : int
        Number of rows.

    Examples
    --------
    >>> IntegerRows([[1, 0], [0, 5, 0]].__getitem__, 2).draw(np.array([1, 0, 1])).tolist()
    [1, 0, 1]
    """

    def __init__(self, weights: Callable[[int], Sequence[int]], count: int) -> None:
        self.weights = weights
        leading = [IntegerWeights(weights(row)).cells for row in range(count)]
        self._halvings = max(len(cells) for cells in leading).bit_length()
        self._cells = np.full((count, (1 << self._halvings)), np.iinfo(np.uint64).max, dtype=np.uint64)
        for held, cells in zip(self._cells, leading):
            held[: len(cells)] = cells

    def draw(self, rows: Indices) -> Indices:
        """Draw an index from each of these rows."""
        out = np.empty(rows.size, dtype=np.int64)
        for first in range(0, rows.size, _BLOCK):
            block = slice(first, first + _BLOCK)
            out[block] = self._placed(rows[block], random_words(rows[block].size))
        return out

    def _placed(self, rows: Indices, words: Words) -> Indices:
        """Count the boundaries of each row at or below the number U with these leading 64 bits."""
        cells, start = self._cells.ravel(), rows * self._cells.shape[1]
        index = np.zeros(rows.size, dtype=np.int64)
        for bit in reversed(range(self._halvings)):
            index += (cells[start + index + ((1 << bit) - 1)] <= words) * np.int64(1 << bit)
        for i in np.flatnonzero(cells[start + np.maximum(index - 1, 0)] == words):
            index[i] = IntegerWeights(self.weights(int(rows[i]))).settled(int(words[i]))
        return index


def bernoulli(near: Array, error: Array, exact: Callable[[int], Fraction]) -> npt.NDArray[np.bool_]:
    """Draw true with exactly the probabilities ``exact(i)``, one for each element of `near`.

    Parameters
    ----------
    near : array
        The probabilities as doubles.
    error : array
        Largest error of each; a wide bracket costs only rare calls of `exact`.
    exact : callable
        Maps an index to the rational probability; called only if the doubles do not decide.

    Examples
    --------
    >>> bernoulli(np.array([0.0, 1.0]), np.zeros(2), Fraction).tolist()
    [False, True]
    """
    leading = _short_words(near.size)
    uniform = leading * 2.0**-_SHORT
    out = uniform < near
    room = error + 2.0**-50
    open_ = np.flatnonzero((uniform <= near + room) & (uniform + 2.0**-_SHORT >= near - room))
    words = _lengthened(leading[open_])
    uniform, close = words * 2.0**-64, near[open_]
    out[open_] = uniform < close
    for k in np.flatnonzero(np.abs(uniform - close) <= room[open_]):
        out[open_[k]] = below(int(words[k]), exact(int(open_[k])))
    return out


def _short_words(count: int) -> npt.NDArray[np.uint16]:
    return random_words(count // 4 + 1).view(np.uint16)[:count]


def _lengthened(leading: npt.NDArray[np.uint16]) -> Words:
    """Return 64 bits of which these are the first."""
    further = random_words(leading.size) >> np.uint64(_SHORT)
    return further | (leading.astype(np.uint64) << np.uint64(64 - _SHORT))


def below(word: int, threshold: Fraction) -> bool:
    """Return whether U < threshold, a probability, for U uniform with the leading bits `word`, drawing more as needed."""
    shares = [threshold.numerator, threshold.denominator - threshold.numerator]
    return IntegerWeights(shares).settled(word) == 0

r"""Noise on running totals from a Toeplitz strategy of a few buffers: what it consumes and costs, and its release in integers.

**Errors** are in closed form:
:math:`c(z) = \prod_i (1 - e^{-y_i} z)/(1 - e^{-x_i} z) = 1 + \sum_i \omega_i z/(1 - e^{-x_i} z)`. With
:math:`x_1 < y_1 < x_2 < \dots` all :math:`\omega_i > 0` and c falls: of steps at least b apart 0, b, 2b, … consume
most. Answers are made by :math:`b(z) = 1/((1 - z)\,c(z)) = \sum_i \beta_i/(1 - e^{-y_i} z)`, :math:`y_0 = 0`, and all
sums of both are geometric.

**Release**: counts are rounded before noise is added. In steps of h let X_t be the t-th count, rounded. The state is
one integer :math:`s_i` for each buffer:

.. math:: W_t = X_t + \lfloor \sum_i \omega_i s_i \rfloor + [Z_t / h], \qquad s_i \leftarrow \lfloor p_i s_i \rfloor + X_t,

Z_t normal of deviation σ, so that W is a rounding of integers plus normal noise. Answers are computed from W alone.
Between neighbours whose counts differ by u, at most m = ⌈a/h⌉ steps each, floors differ by less than 1, their sums in
:math:`s_i` by less than :math:`1/(1 - p_i)`: W shifts by C u up to :math:`r = 1 + \sum_i \omega_i/(1 - p_i)` steps in
each of n steps, by :math:`m \lVert C u/m \rVert + r \sqrt n` in all. Counts may be chosen in view of earlier answers:
the shift of W_t is fixed before Z_t is drawn.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from operator import mul
from typing import Any

import numpy as np
import numpy.typing as npt
from flint import arb, arb_mat, ctx
from scipy import signal, stats

from mechdesign.checks import Checked, answers, field, instance, integer, positive, refuse
from mechdesign.errors import DataError, DesignError, ResultFormatError
from mechdesign.evidence.exact import fraction, rational, round_up
from mechdesign.evidence.files import file_path, whole_text, write_whole
from mechdesign.evidence.serialize import dumps, serializable
from mechdesign.noise.correlated_noise import NormalNoise, one_by_one
from mechdesign.noise.release import ExactNoise
from mechdesign.typing import Array, Numbers

MOST = 10**7
"""Most steps of a stream."""
BUFFERS = 8
_BITS = 62
UNIT = 1 << _BITS
"""Poles and weights are integers over this."""
_FAR = 1 << 221
"""Public number added to every count in steps. Larger counts are clipped to half of it, which moves no two further apart."""
_OFFSET = 3 * _FAR << _BITS + 2
"""Public number added to every state. States are sums of counts over 1 − p ≥ 1/UNIT, so that it is larger than any: integers of one length take the same time whatever
the data are."""
_BLOCK = 4096
"""Steps for which noise is drawn at a time."""
_DIGITS = 700
"""Bits of ball arithmetic."""
_FINEST = 2.0**52
"""Most lattice steps in one standard deviation of the noise."""
_SECRET = (
    "This state holds sums of the data before noise: keep it as secret as the data, and go on from it once."
)


@serializable("buffered-noise", eq=False)
class BufferedNoise(Checked, NormalNoise):
    """Noise on running totals of n counts, made from one release of a Toeplitz strategy of a few buffers.

    Parameters
    ----------
    size : int
        n.
    poles, weights : tuple of int
        p and ω in units of 2⁻⁶², up to eight of each: the strategy has the coefficients 1 and :math:`\\sum_i \\omega_i p_i^{k - 1}`.
    deviation : float
        σ.
    step : float
        h, a power of two.
    budget : float
        μ²: no change of the counts consumes more.

    Examples
    --------
    >>> law = BufferedNoise(3, (2**61,), (2**61,), 1.0, 2.0**-50, 1.0)
    >>> law.variances.round(4)
    array([1.  , 1.25, 1.5 ])
    >>> len(law.release([3, 1, 4]))
    3
    """

    size: int = field(check=integer, least=1, most=MOST)
    poles: tuple[int, ...] = field(check=integer, least=0, most=UNIT - 1, many=True)
    weights: tuple[int, ...] = field(check=integer, least=0, most=UNIT - 1, many=True)
    deviation: float = field(check=positive)
    step: float = field(check=positive)
    budget: float = field(check=positive)

    def _post_check(self) -> None:
        falling = all(p > q for p, q in zip(self.poles, self.poles[1:]))
        if not (1 <= len(self.poles) <= BUFFERS and falling):
            raise DesignError.of("poles", self.poles, f"must be 1 to {BUFFERS} numbers that fall")
        if len(self.weights) != len(self.poles) or min(self.weights) == 0 or self._sum > 1:
            remedy = "must be one per pole, positive, and over the poles at most 1 in sum: so that coefficients fall, and so do those of the inverse"
            raise DesignError.of("weights", self.weights, remedy)
        if math.frexp(self.step)[0] != 0.5 or not 2.0**40 <= self.deviation / self.step <= _FINEST:
            raise DesignError.of("step", self.step, "must be a power of two, 2^-52 to 2^-40 of the deviation")

    @staticmethod
    def step_of(deviation: float) -> float:
        """Return a lattice step for noise of about this deviation, or of up to twice as much."""
        return math.ldexp(1.0, math.frexp(2 * positive("deviation", deviation) / _FINEST)[1])

    @property
    def _sum(self) -> Fraction:
        """Sum of ω over p: 1 less the product of all q over that of all p."""
        return sum((Fraction(w, max(p, 1)) for p, w in zip(self.poles, self.weights)), Fraction(0))

    @property
    def dimension(self) -> int:  # type: ignore[override]
        """n, the number of counts."""
        return self.size

    # -- what it consumes and costs, in balls ---------------------------------------------------------------------

    def shift(self, most: float, times: int, apart: int) -> Fraction:
        """Return an upper bound, in steps, on how far releases of neighbours lie apart: k counts, at least b apart, change by at most a each.

        As c falls and is positive, changes at 0, b, 2b, … of one sign consume most.
        """
        times, apart = integer("times", times, 1), integer("apart", apart, 1)
        if (times - 1) * apart >= self.size:
            raise DesignError.of("times", times, f"at least {apart} apart must be within {self.size} steps")
        moved = math.ceil(Fraction(positive("most", most)) / Fraction(self.step))
        wrong = 1 + sum((Fraction(w, UNIT - p) for p, w in zip(self.poles, self.weights)), Fraction(0))
        with ctx.workprec(_DIGITS):
            whole = moved * self._consumed(times, apart).sqrt()
            return fraction((whole + arb(rational(wrong)) * arb(self.size).sqrt()).upper().fmpq())

    def calibrated(self, most: float, times: int, apart: int) -> BufferedNoise:
        """Return the law with the least deviation, rounded up, that keeps the budget for such changes."""
        with ctx.workprec(_DIGITS):
            needed = self.shift(most, times, apart) * Fraction(self.step)
            least = arb(rational(needed)) / arb(rational(self.budget)).sqrt()
            deviation = round_up(fraction(least.upper().fmpq()))
        remedy = f"is so small over {self.size} steps that no lattice that can be drawn from is fine enough: ask for more"
        refuse(not deviation / self.step <= _FINEST, "privacy", self.budget, remedy)
        return replace(self, deviation=deviation)

    def _consumed(self, times: int, apart: int) -> arb:
        """Return `consumed` in balls: the budget at noise of deviation 1."""
        x = [-(arb(pole) / UNIT).log() for pole in self.poles]
        weights = [arb(weight) / UNIT for weight in self.weights]
        found: arb = consumed(np.array(x), np.array(weights), self.size, times, apart).item()
        return found

    def cost(self, *, largest: bool) -> Fraction:
        """Return the largest variance of an answer, or their sum, rounded up.

        Sums of products of b are made by doubling: those of m + k steps are G_m + M^m G_k M^mᵀ.
        """
        instance("largest", largest, bool)
        d = len(self.poles)
        with ctx.workprec(_DIGITS):
            rows = [[-arb(w) / UNIT for w in self.weights] + [arb(0)] for _ in range(d + 1)]
            for i, p in enumerate(self.poles):
                rows[i][i] += arb(p) / UNIT
            rows[d][d] += 1
            step = arb_mat(rows)
            once = arb_mat([[arb(1)] * (d + 1)] * (d + 1))
            power, seen, summed, done = step, once, once, 1
            for bit in bin(self.size)[3:]:
                turned = power.transpose()
                summed = summed + done * seen + power * summed * turned
                seen, power, done = seen + power * seen * turned, power * power, 2 * done
                if bit == "1":
                    seen = seen + power * once * power.transpose()
                    summed, power, done = summed + seen, power * step, done + 1
            found = (seen if largest else summed)[d, d]
            return fraction((found * arb(rational(self.deviation)) ** 2).upper().fmpq())

    # -- what it is like, in doubles -------------------------------------------------------------------------------

    @cached_property
    def _zeros(self) -> Array:
        """q in decreasing order: the eigenvalues of diag(p) − √ω√ωᵀ."""
        p, w = (np.array(part, dtype=float) / UNIT for part in (self.poles, self.weights))
        found = np.linalg.eigvalsh(np.diag(p) - np.sqrt(np.outer(w, w)))
        return np.asarray(np.maximum(found[::-1], 1e-18))

    @property
    def _rates(self) -> tuple[Array, Array]:
        """Rates x of the poles and y of the zeros: p = e^(−x), q = e^(−y)."""
        return -np.log(np.array(self.poles, dtype=float) / UNIT), -np.log(self._zeros)

    @cached_property
    def _decoder(self) -> Array:
        """b, shape (n,): the noise on the answers is σ times the convolution of b with independent normals."""
        beta, rates = decoder(*self._rates)
        found, place = np.zeros(self.size), np.arange(self.size)
        for each, rate in zip(beta, rates):
            found += each * np.exp(-rate * place)
        return found

    @property
    def variances(self) -> Array:
        """Variance of each answer, shape (n,)."""
        return self.deviation**2 * np.cumsum(self._decoder**2)

    def coefficients(self) -> dict[str, Any]:
        r"""Return the strategy as numbers for other libraries, which ``json.dumps`` writes.

        ``buf_decay`` and ``output_scale`` make ``jax_privacy.matrix_factorization.buffered_toeplitz.BufferedToeplitz``, those of ``inverse`` the recursion
        of correlated noise in an aggregator of Flower or one's own: :math:`z_t + \sum_i \rho_i s_i`, :math:`s_i \leftarrow q_i s_i + z_t`, z normal of deviation
        ``standard_deviation`` (in doubles: not this release).
        """
        x, y = self._rates
        inverse = {"buf_decay": np.exp(-y).tolist(), "output_scale": residues(x, y).tolist()}
        p, w = ([part / UNIT for part in parts] for parts in (self.poles, self.weights))
        return {
            "steps": self.size,
            "standard_deviation": self.deviation,
            "buf_decay": p,
            "output_scale": w,
            "inverse": inverse,
        }

    def _noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        drawn, held = rng.standard_normal(shape), np.broadcast_to(self._decoder, shape)
        return np.asarray(self.deviation * signal.fftconvolve(drawn, held, axes=-1)[..., : self.size])

    def sample(self, x: Numbers, *, rng: Any = None) -> Array:
        """Return the running totals of counts of shape (..., n) with noise in floating point: for simulation."""
        return super().sample(np.cumsum(self._answers(x), axis=-1), rng=rng)

    # -- deployment ------------------------------------------------------------------------------------------------

    @cached_property
    def lattice(self) -> ExactNoise:
        """Exact draws of Z, rounded to steps."""
        return ExactNoise(stats.norm(scale=self.deviation), self.step)

    def start(self) -> Stream:
        """Return a stream at its first step: for deployment."""
        return Stream(self)

    def resume(self, path: str | os.PathLike[str]) -> Stream:
        """Return the stream that `Stream.save` saved, to go on from there, once.

        Raises
        ------
        ResultFormatError
            The file is no state of this law's.
        """
        name = file_path(path)
        try:
            held = json.loads(whole_text(name))
            numbers = [
                integer("state", x, -_OFFSET, 2 * _OFFSET)
                for x in (*held["state"], *held["decoder"], held["total"])
            ]
            done = integer("done", held["done"], 0, self.size)
            d = len(self.poles)
            stated = held["format"], held["law"], len(held["state"]), len(held["decoder"])
            if stated != (_FORMAT, dumps(self), d, d):
                raise ValueError
        except (OSError, ValueError, LookupError, TypeError, RecursionError, DesignError):
            fault = "holds no state of a stream of this law: give the file that Stream.save wrote"
            raise ResultFormatError(f"{name}: {fault}") from None
        return Stream(self, done, numbers[:d], numbers[d:-1], numbers[-1])

    def stream(self, counts: Iterable[Numbers]) -> Iterator[float]:
        """Release answer after answer as the counts come: for deployment. See `Stream.step`."""
        given, running = one_by_one(counts), self.start()
        return (running.step(count) for count in given)

    def release(self, x: Numbers) -> Array:
        """Return the running totals of all n counts with noise: for deployment.

        Raises
        ------
        DataError
            A number is not finite or, beyond 2⁵³, held by no double. The guarantee does not cover that refusal.
        """
        held = answers("x", x)
        DataError.when(held.shape != (self.size,), f"x: must be the {self.size} counts")
        return np.asarray(self.start().step(held))


_FORMAT = "mechdesign-stream"
_COPIED = "stream: a copy would answer with the same noise: save it, and resume it once, in one process"


class Stream:
    """The state of a stream: two integers a buffer, their total, and the number of steps answered.

    The state holds sums of the data before noise, which no result file does. Copies and forked processes are refused: they would use the same noise twice.

    Examples
    --------
    >>> stream = BufferedNoise(3, (2**61,), (2**61,), 1.0, 2.0**-50, 1.0).start()
    >>> isinstance(stream.step(3), float), stream.step([1, 4]).shape, stream.done
    (True, (2,), 3)
    >>> stream.step(1)
    Traceback (most recent call last):
    mechdesign.errors.DataError: counts: are more than the 3 that the noise was made for
    """

    def __init__(
        self,
        law: BufferedNoise,
        done: int = 0,
        state: list[int] | None = None,
        decoder: list[int] | None = None,
        total: int = 0,
    ) -> None:
        d = len(instance("law", law, BufferedNoise).poles)
        self.law, self.done = law, done
        self._state = state or [_OFFSET] * d
        self._decoder, self._total = decoder or [0] * d, total
        self._drawn: list[int] = []
        self._process = os.getpid()
        # removes the public numbers from states and outputs
        self._back = [_OFFSET - (p * _OFFSET >> _BITS) - _FAR for p in law.poles]
        self._public = _FAR + (sum(law.weights) * _OFFSET >> _BITS)

    def __reduce_ex__(self, protocol: object) -> Any:
        raise DesignError(_COPIED)

    def step(self, counts: Numbers) -> Any:
        """Answer the next count, or a block of them: a float, or an array. Counts beyond some 1e50 standard deviations of the noise are cut to that.

        Raises
        ------
        DesignError
            The process is a fork of the stream's.
        DataError
            There are more counts than steps left, or a number that is not finite or, beyond 2⁵³, that no double holds. Nothing is answered then and no
            step counted. The guarantee does not cover that refusal.
        """
        DesignError.when(os.getpid() != self._process, _COPIED)
        held = answers("counts", counts)
        DataError.when(held.ndim > 1, "counts: must be one number, or a list of numbers")
        if held.size > self.law.size - self.done:
            raise DataError(f"counts: are more than the {self.law.size} that the noise was made for")
        given = held.reshape(-1)  # a copy of the data, whose place the answers take
        for k in range(0, held.size, _BLOCK):
            block = given[k : k + _BLOCK]
            block[:] = self._answered(_in_steps(block, self.law.step), self._draw(len(block)))
        return held if held.ndim else float(held)

    def _draw(self, size: int) -> list[int]:
        """Return the noise of the next steps; a block of it is drawn at a time."""
        if len(self._drawn) < size:
            left = self.law.size - self.done - len(self._drawn)
            self._drawn += self.law.lattice.draw(min(_BLOCK, left)).tolist()
        return [self._drawn.pop() for _ in range(size)]

    def _answered(self, counts: list[int], noise: list[int]) -> list[float]:
        """Return the answers to counts in steps of h, each with `_FAR` added."""
        poles, weights, step = self.law.poles, self.law.weights, self.law.step
        state, decoder, total, out = self._state, self._decoder, self._total, []
        for x, z in zip(counts, noise):
            released = x + (sum(map(mul, weights, state)) >> _BITS) + z - self._public
            state = [(p * s >> _BITS) + k + x for p, s, k in zip(poles, state, self._back)]
            count = released - (sum(map(mul, weights, decoder)) >> _BITS)
            decoder = [(p * s >> _BITS) + count for p, s in zip(poles, decoder)]
            total += count
            out.append(total * step)
        self._state, self._decoder, self._total = state, decoder, total
        self.done += len(counts)
        return out

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state, from which `BufferedNoise.resume` continues.

        It holds sums of the data before noise: keep the file as secret as the data, and go on from it once (two streams from one state
        answer the same counts with different noise, which no budget was paid for). Noise that is drawn but not used is not saved.
        """
        held = {"format": _FORMAT, "secret": _SECRET, "law": dumps(self.law), "done": self.done}
        numbers = {"state": self._state, "decoder": self._decoder, "total": self._total}
        write_whole(path, json.dumps({**held, **numbers}, indent=1) + "\n")


def _in_steps(counts: Array, step: float) -> list[int]:
    """Round counts to steps, ⌊x/h + ½⌋ = ⌊(⌊2x/h⌋ + 1)/2⌋, and add `_FAR`, which makes all integers equally long."""
    most = _FAR // 2 * step
    halves = np.floor(np.minimum(np.maximum(counts, -most), most) * (2 / step))
    return [(int(x) + 1 >> 1) + _FAR for x in halves.tolist()]


Terms = npt.NDArray[Any]
"""Real numbers, complex ones for derivatives by an imaginary step, or balls; leading axes are of several strategies."""


def _differences(a: Terms, b: Terms) -> Terms:
    """Return the matrix of e^(−a_i) − e^(−b_j)."""
    a, b = a[..., :, None], b[..., None, :]
    return np.asarray(np.exp(-b) * np.expm1(b - a))


def residues(zeros: Terms, poles: Terms) -> Terms:
    """Return the residues at the poles of a rational function; zeros and poles are given as rates."""
    apart = _differences(poles, poles)
    apart[..., range(poles.shape[-1]), range(poles.shape[-1])] = 1.0
    return np.asarray(_differences(poles, zeros).prod(axis=-1) / apart.prod(axis=-1))


def decoder(x: Terms, y: Terms) -> tuple[Terms, Terms]:
    """Return β and its rates 0, y_1, y_2, …."""
    whole = np.concatenate([np.zeros_like(y[..., :1]), y], axis=-1)
    return residues(x, whole), whole


def geometric(s: Terms, n: int) -> Terms:
    """Return the sum of e^(−st) over t < n."""
    held = np.where(s == 0, 1.0, s)
    return np.where(s == 0, n, np.expm1(-n * held) / np.expm1(-held))


def quadratic(weights: Terms, matrix: Terms) -> Terms:
    """Return wᵀ M w."""
    return np.asarray(np.einsum("...i,...ij,...j->...", weights, matrix, weights))


def consumed(x: Terms, weights: Terms, n: int, times: int = 1, apart: int = 1) -> Terms:
    """Return the squared length of the sum of columns 0, b, 2b, …: the budget that one person consumes, at noise of deviation 1."""
    pairs = x[..., :, None] + x[..., None, :]
    # states after each but the last time, and after that
    states = np.cumsum(np.exp(-apart * x[..., None, :] * np.arange(times)[:, None]), axis=-2)
    early, last = states[..., :-1, :], states[..., -1, :]
    first = 1 + np.einsum("...i,...ki->...k", weights * np.exp(-(apart - 1) * x), early)
    between = np.einsum("...ki,...kj->...ij", early, early) * geometric(pairs, apart - 1)
    after = last[..., :, None] * last[..., None, :] * geometric(pairs, n - (times - 1) * apart - 1)
    return np.asarray(1 + (first**2).sum(axis=-1) + quadratic(weights, between + after))

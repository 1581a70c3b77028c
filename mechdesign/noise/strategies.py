r"""Strategies for linear queries on counts: published ones, to compare with, and Toeplitz and banded ones for streams whose patterns are too many to list.

**Long streams.** The Toeplitz strategy of a few buffers that has least error is found by descent and proved.

.. math:: \min_{x_1 < y_1 < x_2 < \dots} \Bigl\lVert \sum_{j < k} z^{bj} c(z) \Bigr\rVert^2 \sum_t w_t b_t^2, \qquad c(z) = \prod_i \frac{1 - e^{-y_i} z}{1 - e^{-x_i} z},
          \quad b(z) = \frac{1}{(1 - z)\, c(z)},

w = 1 for the largest error and n − t for the total, of n counts of which one person changes k that are at least b
apart. A release needs 2 integers a buffer and one more, whatever n is.

Errors are closed forms of sums that are geometric (`mechdesign.noise.buffered_noise`, which has the release too). The
buffers are those of Dvijotham, McMahan, Pillutla, Steinke and Thakurta (2024), *Efficient and near-optimal noise
generation for streaming differential privacy*.

**A lower bound for every Toeplitz strategy**, of counts of which one changes, in integers for any n. [new] Let c be a Toeplitz strategy's coefficients, b those of :math:`1/((1 - z)\,c(z))`, and w = 1 for the largest error
(:math:`\sum w b^2`, at the last step), w_t = n − t for the total. As :math:`\sum_{i + j = t} c_i b_j = 1`, for every
:math:`y \ge 0` and the Hankel matrix :math:`H = (y_{i + j})`, 0 from i + j = n on,

.. math:: \sum_t y_t = c^\top H b \le |c|\, |W^{1/2} b|\, \lVert H W^{-1/2} \rVert, \qquad
          |c|^2 \sum_t w_t b_t^2 \ge \frac{(\sum_t y_t)^2}{\lVert H W^{-1/2} \rVert^2},

and :math:`\lVert H W^{-1/2} \rVert^2 \le \max_i (H H x)_i / (w_i x_i)` for every x > 0 (Collatz and Wielandt). [new]

*Largest error.* With h the coefficients of :math:`1/\sqrt{1 - z}` and Y(z) = h_{n-1} + h_{n-2} z + … over h(z) up to
z^(n−1), reversed, Hh = h; and y > 0, as the coefficients of :math:`\sqrt{1 - z}` after the first are negative and at
least −1 in sum, and h falls. So no Toeplitz strategy costs less than :math:`(\sum h_t^2)^2`, which c = b = h attains.

*Total error.* The best y is nearly :math:`g(t/n)/(2t + 1)`, one g for all n, as :math:`h_t h_{n - t}` is nearly x; x
becomes better by power iteration. Within .02% of the best strategy found at 1,000 and 4,096 steps, .2% at a million.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY
from fractions import Fraction
from functools import lru_cache, partial
from typing import ClassVar

import numpy as np
import pandas as pd
from flint import fmpz_poly
from numpy.polynomial import chebyshev
from scipy import fft, linalg, optimize, signal

from mechdesign.accounting.gaussian import GaussianPrivacy, gaussian_privacy
from mechdesign.checks import UP, field, instance, integer, magnitude, one_of, refuse
from mechdesign.evidence import proofs
from mechdesign.evidence.digits import at_most, shown
from mechdesign.evidence.exact import round_down, round_up
from mechdesign.evidence.results import Result, SolveReport, audit_row
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.buffered_noise import (
    BUFFERS,
    MOST,
    UNIT,
    BufferedNoise,
    Terms,
    consumed,
    decoder,
    geometric,
    quadratic,
    residues,
)
from mechdesign.noise.changes import ChangeSet, Participation, Patterns
from mechdesign.noise.correlated_noise import FULL, GaussianDesign
from mechdesign.problem.privacy import Description
from mechdesign.problem.sensitivity import NEIGHBOURS
from mechdesign.problem.spine import Bound, Clock, Law
from mechdesign.problem.workload import Workload
from mechdesign.solvers import Deadline
from mechdesign.typing import Array


def _until(deadline: Deadline, _: Array) -> None:
    """Stop a descent at the deadline."""
    if deadline.passed:
        raise StopIteration


def square_root(size: int) -> Array:
    r"""Return the square root of the matrix of prefix sums: Toeplitz, :math:`c_k = \binom{2k}{k} 4^{-k}`.

    Both factors of Fichtenberger, Henzinger and Upadhyay (2023), *Constant matters: fine-grained error bound on differentially
    private continual observation*.

    Examples
    --------
    >>> bool(np.allclose(square_root(5) @ square_root(5), np.tri(5)))
    True
    """
    k = np.arange(1, integer("size", size, 1, 10**5))
    column = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
    return np.asarray(np.tril(linalg.toeplitz(column)))


def binary_tree(size: int) -> Array:
    """Return the sums over the intervals of a binary tree over the counts, one per row (Dwork et al. 2010, Chan, Shi and Song 2011)."""
    size, rows, width = integer("size", size, 1, 10**5), [], 1
    while True:
        starts = range(0, size, width)
        for start in starts:
            row = np.zeros(size)
            row[start : start + width] = 1.0
            rows.append(row)
        if width >= size:
            return np.unique(np.array(rows), axis=0)
        width *= 2


def _tree_answers(size: int, tree: Array) -> Array:
    """Return each prefix as a sum of the fewest intervals of the tree."""
    known = {tuple(np.flatnonzero(row)[[0, -1]].tolist()): k for k, row in enumerate(tree)}
    found = np.zeros((size, len(tree)))
    for t in range(size):
        start = 0
        while start <= t:
            width = 1
            while start % (2 * width) == 0 and start + 2 * width - 1 <= t:
                width *= 2
            found[t, known[(start, start + width - 1)]] = 1.0
            start += width
    return found


def strategy_error(
    workload: Workload, changes: ChangeSet, strategy: Array, *, largest: bool, answers: Array | None = None
) -> float:
    """Return the error of the workload from a strategy at μ = 1, by least squares or by the matrix `answers`."""
    spent = changes.consumed(strategy)[0]
    if answers is None:
        spread = np.linalg.inv(np.linalg.qr(strategy, mode="r"))
        if not largest:
            return spent * float(((workload.root @ spread) ** 2).sum())
        answers = workload.apply(spread)
    variances = (answers**2).sum(axis=1)
    return spent * float(variances.max() if largest else variances.sum())


def svd_bound(workload: Workload, changes: ChangeSet) -> float:
    r"""Return the lower bound :math:`a^2 (\sum_i \sigma_i(A))^2/n` on the total error of every strategy at μ = 1 (Li and Miklau 2013)."""
    singular = np.linalg.svd(workload.root, compute_uv=False)
    return changes.most**2 * float(singular.sum()) ** 2 / workload.size


def published(workload: Workload, changes: ChangeSet, *, largest: bool) -> dict[str, float]:
    """Return the errors at μ = 1 of published strategies for such a workload, by name."""
    n = workload.size
    found = {"noise on the counts": strategy_error(workload, changes, np.eye(n), largest=largest)}
    if workload.count <= FULL:
        matrix = workload.dense()
        own = np.eye(len(matrix))
        found["noise on the answers"] = strategy_error(
            workload, changes, matrix, largest=largest, answers=own
        )
        if workload.count > n and len(workload.root) == n:
            found["noise on the answers, least squares"] = strategy_error(
                workload, changes, matrix, largest=largest
            )
    if workload.kinds in (("prefix",), ("ranges",)):
        tree = binary_tree(n)
        if workload.kinds == ("prefix",):
            root = square_root(n)
            found["square root factorization"] = strategy_error(workload, changes, root, largest=largest)
            found["binary tree"] = strategy_error(
                workload, changes, tree, largest=largest, answers=_tree_answers(n, tree)
            )
        found["binary tree, least squares"] = strategy_error(workload, changes, tree, largest=largest)
    return {name: error for name, error in found.items() if error < math.inf}


def toeplitz(changes: Patterns, *, largest: bool) -> Array:
    r"""Find a strategy for prefix sums by descent: lower triangular, Toeplitz, of coefficients :math:`c_0 \ge c_1 \ge \dots \ge 0`.

    The worst pattern is p = {0, b, 2b, …}, and :math:`A R^{-1}` has the coefficients s of :math:`1/((1 - z)\,c(z))`: the error is
    :math:`\lVert p * c \rVert^2 \sum_t s_t^2`, for the total with the weight n − t. At n = 32, four times and 8 apart, it lies 11% above the optimum.
    """
    size, pattern = changes.size, changes.first[0]
    place, weights = np.arange(1.0, size + 1), np.ones(size) if largest else np.arange(size, 0.0, -1)

    def divided(by: Array, what: Array) -> Array:
        return np.asarray(signal.lfilter([1.0], by, what))

    def back(filtering: Array, gradient: Array) -> Array:
        return np.asarray(signal.lfilter(filtering, [1.0], gradient[::-1]))[::-1]

    def error(falls: Array) -> tuple[float, Array]:
        """Return the logarithm of the error and its gradient in the falls (k + 1)(c_k − c_{k+1})."""
        c = np.cumsum((falls / place)[::-1])[::-1]
        moved, s = signal.lfilter(pattern, [1.0], c), divided(c, np.ones(size))
        spent, left = float(moved @ moved), float(weights @ s**2)
        slope = 2 * back(pattern, moved) / spent - 2 * back(divided(c, s), weights * s) / left
        return math.log(spent * left), np.cumsum(slope) / place

    start = -np.diff(square_root(size)[:, 0], append=0.0) * place
    found = optimize.minimize(error, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * size)
    return np.asarray(np.tril(linalg.toeplitz(np.cumsum((found.x / place)[::-1])[::-1])))


def banded(workload: Workload, changes: Patterns, *, largest: bool, deadline: Deadline) -> Array:
    r"""Find a strategy R of b bands by descent, lower triangular: its columns b steps apart are orthogonal.

    So a pattern P consumes :math:`\sum_{i \in P} x_i`, x the squared lengths of the columns. Sets of b steps in a row, and the set of all, are intervals:
    the largest such sum is the least :math:`k t + \sum_w u_w` with :math:`x_i \le t + \sum_{w \le i < w + b} u_w` and t, u ≥ 0. The descent
    is over the columns' directions, t and u; the largest error is the 1000-norm of the errors there. At (1, 1e-6) and k times of n steps (k, n, b) it costs 9% less than
    the best Toeplitz strategy at (4, 256, 64) and (5, 100, 20), 10% less at (20, 100, 5), and 6% more at (5, 200, 13), 37% more at (10, 100, 2).
    """
    size, k, b = changes.size, changes.participation.times, changes.participation.step
    asked = (workload.dense() if largest else workload.root).T
    rows, columns = np.nonzero(np.tri(size) - np.tri(size, k=-b))
    count, window = len(rows), np.ones(b)

    def strategy(free: Array) -> tuple[Array, Array, Array]:
        squares = free[-1] + signal.lfilter(window, [1.0], free[count:-1])
        scale = np.sqrt(squares / np.bincount(columns, free[:count] ** 2))
        found = np.zeros((size, size))
        found[rows, columns] = free[:count] * scale[columns]
        return found, squares, scale

    def error(free: Array) -> tuple[float, Array]:
        """Return the logarithm of the error and its gradient in the columns' directions, u and t."""
        found, squares, scale = strategy(free)
        factor = linalg.solve_triangular(found, asked, lower=True, trans=1)
        left, loads = _norm((factor**2).sum(axis=0), 1000 if largest else 1)
        slope = (
            -2 / left * linalg.solve_triangular(found, (factor * loads) @ factor.T, lower=True)[columns, rows]
        )
        along = np.bincount(columns, slope * found[rows, columns]) / squares
        across = slope * scale[columns] - free[:count] * (along * scale**2)[columns]
        spent = free[count:-1].sum() + k * free[-1]
        prices = signal.lfilter(window, [1.0], along[::-1])[::-1] / 2 + 1 / spent
        return math.log(left * spent), np.concatenate([across, prices, [along.sum() / 2 + k / spent]])

    start = np.concatenate([square_root(size)[:, 0][rows - columns], np.full(size, 0.5 / b), [0.5]])
    least = np.concatenate([np.full(count, -np.inf), np.zeros(size), [1e-9]])
    found = optimize.minimize(
        error,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=optimize.Bounds(least, np.full(len(start), np.inf)),
        callback=partial(_until, deadline),
        options={"ftol": 1e-6, "maxcor": 20, "maxiter": 1000},
    )
    return strategy(found.x)[0]


def _norm(values: Array, order: int) -> tuple[float, Array]:
    """Return the norm of values of at least 0, and its gradient."""
    top = values.max()
    share = values / top
    total = float((share**order).sum())
    return float(top) * total ** (1 / order), share ** (order - 1) * total ** (1 / order - 1)


# -- long streams: a few buffers --------------------------------------------------------------------------------------


_STARTS = ((3.0, 3.0), (10.0, 1.5))
"""Least x times n, and greatest x. Of four starts these two were kept: in 14 questions each of them ends up to .8% above the other, and the others are never better by 1e-8."""


def triangular(s: Terms, n: int) -> Terms:
    """Return the sum of (n − t) e^(−st) over t < n; s is 0, or so large (.01/n) that it keeps 13 digits."""
    held = np.where(s == 0, 1.0, s)
    return np.where(s == 0, n * (n + 1) / 2, (n - np.exp(-held) * geometric(held, n)) / -np.expm1(-held))


def error(x: Terms, y: Terms, n: int, *, largest: bool) -> Terms:
    """Return the largest variance of an answer, or their sum, at noise of deviation 1."""
    beta, rates = decoder(x, y)
    sums = geometric if largest else triangular
    return quadratic(beta, sums(rates[..., :, None] + rates[..., None, :], n))


def best(
    buffers: int, n: int, *, largest: bool, times: int, apart: int, deadline: Deadline
) -> tuple[Array, Array]:
    """Find the rates x and y of the strategy of least error, by descent from two spacings."""

    def roots(free: Terms) -> tuple[Terms, Terms]:
        # slower buffers than at .01/n do the same over n steps, with more rounding
        gaps = np.cumsum(np.exp(free[..., 1:]), axis=-1)
        rates = 0.01 / n + np.exp(free[..., :1] + np.concatenate([0 * free[..., :1], gaps], axis=-1))
        return rates[..., 0::2], rates[..., 1::2]

    def cost(free: Terms) -> Terms:
        x, y = roots(free)
        both = consumed(x, residues(y, x), n, times, apart) * error(x, y, n, largest=largest)
        return np.asarray(np.log(both))

    def descended(free: Array) -> tuple[float, Array]:
        moved = cost(free + 1e-20j * np.eye(2 * buffers))
        sound = bool(np.isfinite(moved).all())
        return (float(moved[0].real), moved.imag * 1e20) if sound else (1e3, np.zeros(2 * buffers))

    found = []
    for low, high in _STARTS:
        gap = np.log(max(high * n / low, 4.0)) / (2 * buffers)
        start = np.append(np.log(low / n), np.full(2 * buffers - 1, np.log(gap)))
        with np.errstate(all="ignore"):
            found.append(
                optimize.minimize(
                    descended,
                    start,
                    jac=True,
                    method="BFGS",
                    callback=partial(_until, deadline),
                    options={"gtol": 3e-7, "maxiter": 400},
                )
            )
    x, y = roots(min(found, key=lambda each: float(each.fun)).x)
    return np.asarray(x, dtype=float), np.asarray(y, dtype=float)


# -- the lower bound -----------------------------------------------------------------------------------------------

_SHAPE = (0.0, -0.18898, -0.35979, -0.18856, -0.12155, -0.06748, -0.02846)
"""Chebyshev coefficients of log g, fitted at 2,048 steps: any others prove a bound, these a good one."""
MOST_BOUNDED = 2_000_000
"""Longest stream whose total error gets a lower bound: the integers take a kilobyte a step."""


@lru_cache(maxsize=64)
def least_toeplitz(n: int, *, largest: bool) -> float:
    """Return a lower bound, rounded down, on the error of every Toeplitz strategy at μ = 1 and a change of 1.

    Examples
    --------
    >>> round(least_toeplitz(1000, largest=True), 6)
    10.660245
    >>> 9296 < least_toeplitz(1000, largest=False) < 9297
    True
    """
    allowed = f"must be at most {MOST_BOUNDED} steps for a lower bound of the total"
    refuse(not largest and n > MOST_BOUNDED, "size", n, allowed)
    return round_down(_least_largest(n) if largest else _least_total(n))


def _least_largest(n: int) -> Fraction:
    unit, term, total = 1 << 128, 1 << 128, 0
    for t in range(1, n + 1):
        total += term
        term = term * (2 * t - 1) ** 2 // (2 * t) ** 2
    return Fraction(total, unit) ** 2


def _least_total(n: int) -> Fraction:
    t, weights = np.arange(n), np.arange(n, 0, -1.0)
    y = np.exp(chebyshev.chebval((2 * t + 1) / n - 1, _SHAPE)) / (2 * t + 1)
    root = np.concatenate([[1.0], np.cumprod(1 - 0.5 / np.arange(1, n + 1))])
    x, hankel = root[:n] * root[n - t], _hankel(y)
    for _ in range(10):  # any x is valid; later ones are hardly better
        x = np.maximum(hankel(hankel(x)) / weights, 1e-9 * x)
        x /= x[0]
    held, weighed = (_integers(values) for values in (y, x))
    image = _exact_hankel(held, _exact_hankel(held, weighed))
    ratios = np.array([moved / old for moved, old in zip(image, weighed)]) / weights
    near = np.flatnonzero(ratios >= ratios.max() * (1 - 1e-12)).tolist()
    return Fraction(sum(held)) ** 2 / max(Fraction(image[i], (n - i) * weighed[i]) for i in near)


def _integers(values: Array) -> list[int]:
    """Return positive integers nearly in proportion to the values; any such vector is valid."""
    whole = np.ldexp(values / values.max(), 48).astype(np.int64)
    return [max(1, int(v)) for v in whole.tolist()]


def _hankel(y: Array) -> Callable[[Array], Array]:
    """Return the map from x to H x in doubles: the sums of y_(i + j) x_j."""
    n = len(y)
    size = fft.next_fast_len(2 * n, real=True)
    transformed = fft.rfft(y[::-1], size)
    return lambda x: np.asarray(fft.irfft(transformed * fft.rfft(x, size), size)[:n][::-1])


def _exact_hankel(y: list[int], x: list[int]) -> list[int]:
    """Return H x, in integers."""
    product = fmpz_poly(y[::-1]) * fmpz_poly(x)
    return [int(product[k]) for k in range(len(y) - 1, -1, -1)]


# -- the design ---------------------------------------------------------------------------------------------------


@serializable("buffered-toeplitz", eq=False)
class BufferedToeplitz(GaussianDesign):
    r"""Least Gaussian noise for the running totals of a long stream, by a Toeplitz strategy of a few buffers.

    Parameters
    ----------
    size : int
        n, up to 10,000,000 steps.
    privacy : ApproximateDP, ZeroConcentratedDP, GaussianDP, MembershipAdvantage or TradeOff
    participation : Participation
        How often one person contributes, and how far apart; up to 10,000 times.
    most : float
        a: the most that one count changes, up or down.
    loss : {"total", "largest"}
        The sum of the variances of the answers, or the largest of them.
    buffers : int
        1 to 8: at a million steps the largest error is 48% above that of the best Toeplitz strategy with 2, .2% with 6, .02% with 8.
    neighbours : {"add-remove", "replace"}
        For which neighbours the changes hold.

    Notes
    -----
    Dvijotham, McMahan, Pillutla, Steinke and Thakurta (2024), *Efficient and near-optimal noise generation for streaming differential privacy*; McMahan, Xu and
    Zhang (2024) for several times. Where one count changes the lower bound is of every Toeplitz strategy, and proved [new] (of the total up to 2,000,000 steps). Where
    several change none is known, and these strategies cost 6 to 11% more than the best falling ones found.

    Examples
    --------
    >>> import mechdesign as md
    >>> result = md.noise.BufferedToeplitz(10_000, md.ApproximateDP(1.0, 1e-6), buffers=4, loss="largest").solve()
    >>> round(result.value * result.design.budget, 2), round(result.gap, 4), result.certificate.verify()
    (16.02, 0.0025, True)
    >>> stream = result.mechanism.start()
    >>> answers = stream.step(np.ones(100))      # a hundred days at once
    >>> type(stream.step(1.0)).__name__, stream.done
    ('float', 101)
    """

    size: int = field(check=integer, least=1, most=MOST)
    privacy: GaussianPrivacy = field(check=gaussian_privacy)
    _: KW_ONLY
    participation: Participation = field(Participation, default=Participation(1, apart=1))
    most: float = field(check=magnitude, side=UP, default=1.0)
    loss: str = field(check=one_of, allowed=("total", "largest"), default="total")
    buffers: int = field(check=integer, least=1, most=BUFFERS, default=BUFFERS)
    neighbours: str = field(check=one_of, allowed=NEIGHBOURS, default=NEIGHBOURS[0])

    central: ClassVar[bool] = True
    default_gap: ClassVar[float] = 1e-3
    mechanism_class = proofs.family("Toeplitz strategy")  # others may cost less

    def _post_check(self) -> None:
        self.participation.check(self.size)
        integer("times", self.participation.times, 1, 10_000)
        _ = self.budget

    @property
    def once(self) -> bool:
        """Whether one person changes one count."""
        return self.participation.times == 1

    @property
    def unit(self) -> float:
        """a²/μ²: the errors are this times those at a = μ = 1."""
        return self.most**2 / self.budget

    @property
    def answer_size(self) -> int:
        return self.size

    def improve(self, clock: Clock) -> Iterator[Law | Bound]:
        """Yield the law of the best poles and zeros, then the bound, if time is left."""
        often = self.participation
        useful = min(self.buffers, max(1, self.size // 2))  # each has two numbers, and the strategy n − 1
        x, y = best(
            useful, self.size, largest=self.largest, times=often.times, apart=often.step, deadline=clock
        )
        law = self.law_of(x, residues(y, x))
        value = round_up(law.cost(largest=self.largest))
        report = SolveReport("BFGS", variables=2 * useful, constraints=0)
        yield Law(law, value, (proofs.LawProof(),), report)
        # the bound of the total takes some 20 μs a step
        quick = self.size <= MOST_BOUNDED and 2e-5 * self.size <= clock.left
        if self.once and (self.largest or quick):
            # less by 1e-8, so that a verifier that rounds its multipliers differently proves it too
            yield Bound(self._least * (1 - 1e-8), proofs.ClosedBound())

    @property
    def _least(self) -> float:
        return least_toeplitz(self.size, largest=self.largest) * self.unit

    def least_cost(self, stated: proofs.Certificate, given: None) -> float:
        """Return a² (Σ y)²/(μ² ‖H W^(−1/2)‖²), in integers: every Toeplitz strategy within the budget costs as much (`least_toeplitz`)."""
        refuse(not self.once, "lower_bound", stated.lower_bound, "must be of counts of which one changes")
        return self._least * (1 - 1e-12)

    def law_claims(self, stated: proofs.Certificate, given: None) -> Iterator[proofs.Claim]:
        r"""Claim that the release shifts by at most :math:`\mu\sigma/h` steps between neighbours, and that its answers cost what is stated.

        The shift is :math:`m \lVert C u/m \rVert + r \sqrt n` (`mechdesign.noise.buffered_noise`); coefficients are positive and fall, as all ω are positive and
        :math:`\sum \omega_i/p_i \le 1`, so that the worst u is 0, b, 2b, … with one sign. Both it and the loss, of normal noise before rounding, are computed in balls of 700 bits.
        """
        law = instance("law", stated.law, BufferedNoise)
        if (law.size, law.budget) != (self.size, self.budget) or len(law.poles) > self.buffers:
            yield proofs.Claim("the law answers this question", proofs.PROVED, -math.inf, False)
            return
        claim = "the budget covers every change, rounding counted"
        yield proofs.Claim.of(claim, proofs.PROVED, 1 - self.used(law))
        yield proofs.Claim.of("the budget is worth the requirement", proofs.RECOMPUTED, self.worth)
        room = stated.value - round_up(law.cost(largest=self.largest))
        yield proofs.Claim.of(f"the loss is at most {stated.value:.9g}", proofs.PROVED, room)

    def law_of(self, x: Array, weights: Array) -> BufferedNoise:
        """Return the law of poles e^(−x) and their weights, in integers, of the least deviation within the budget."""
        held: dict[int, int] = {}
        for pole, weight in zip(np.exp(-x).tolist(), weights.tolist()):
            whole = min(int(pole * UNIT), UNIT - 1)
            held[whole] = held.get(whole, 0) + int(weight * UNIT)
        # weights of less than 2⁻⁴² are dropped
        kept = sorted(((p, w) for p, w in held.items() if p and w > UNIT >> 42), reverse=True)
        # in doubles the sum may exceed 1 where two poles nearly meet
        over = max(Fraction(1), sum((Fraction(w, p) for p, w in kept), Fraction(0)))
        often = self.participation
        near = math.sqrt(float(consumed(x, weights, self.size, often.times, often.step)) * self.unit)
        law = BufferedNoise(
            size=self.size,
            poles=tuple(p for p, _ in kept),
            weights=tuple(int(w / over) for _, w in kept),
            deviation=near,
            step=BufferedNoise.step_of(near),
            budget=self.budget,
        )
        return law.calibrated(self.most, often.times, often.step)

    # -- what a result asks -----------------------------------------------------------------------------------

    def used(self, law: BufferedNoise) -> float:
        """Return the share of the budget that the worst change and rounding consume, rounded up."""
        apart = law.shift(self.most, self.participation.times, self.participation.step)
        return round_up((apart * Fraction(law.step) / Fraction(law.deviation)) ** 2 / Fraction(self.budget))

    def audit(self, result: Result) -> pd.DataFrame:
        return audit_row("worst pattern", self.used(result.mechanism) * self.budget, self.budget)

    def frame(self, result: Result) -> pd.DataFrame:
        """Return a row for each of up to a thousand steps."""
        steps = np.unique(np.linspace(0, self.size - 1, 1000).astype(int))
        variances = result.mechanism.variances[steps]
        columns = {"step": steps, "variance": variances, "standard_deviation": np.sqrt(variances)}
        return pd.DataFrame(columns)

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Yield noise on each count, and noise on each total."""
        n, k = self.size, self.participation.times
        yield "noise on the counts", k * self.unit * (n if self.largest else n * (n + 1) / 2)
        starts = np.arange(k) * self.participation.step
        moved = float((np.arange(1, k + 1) ** 2 * np.diff(starts, append=n)).sum())
        yield "noise on the totals", moved * self.unit * (1 if self.largest else n)

    def lines(self, result: Result) -> list[str]:
        law = result.mechanism
        return [
            f"running totals of {self.size} counts; {len(law.poles)} buffers; {self._changed}; {at_most(self.used(law))} of the budget consumed",
            f"released on multiples of {law.step:.6g} before the totals are made; answers can be streamed",
        ]

    @property
    def _changed(self) -> str:
        if self.once:
            return f"one count changes by at most {shown(self.most)}"
        often = self.participation.words().format(size=self.size)
        return f"{often}; these counts change by at most {shown(self.most)}"

    def describe(self, result: Result) -> Description:
        return Description(
            title="Stream of running totals",
            what=f"Asked: the running totals of {self.size} counts, as they come. Between neighbouring data sets {self._changed}. Noise is added to sums of the "
            f"counts that {len(result.mechanism.poles)} buffers hold, and the totals are made from these.",
            loss="largest variance of an answer" if self.largest else "sum of the variances of the answers",
            picture="The standard deviation of each answer.",
        )

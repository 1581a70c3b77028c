"""The program over the rows at listed inputs in rationals, with a solver's multipliers: what a certificate of others is made of."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from flint import fmpq

from mechdesign.evidence.exact import exp_upper
from mechdesign.evidence.vipr import LinearBound, rational
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import Prior
from mechdesign.problem.privacy import PureDP
from mechdesign.quantizers.common.enclosures import BITS, Moments
from mechdesign.quantizers.metric.notion import STEEP, Pairs, PairwisePrivacy
from mechdesign.typing import Array

LEMMA = (
    "P_x_i is the probability of output i at the input number x of those listed; between them probabilities are interpolated. Rows sum to 1, and are right "
    "on average. 'private' rows: P_x_i is at most e^(epsilon d) P_x'_i (d is the distance of the two inputs, 1 where the privacy is not metric; a rational "
    "number above stands for the exponential), or with delta exceeds it by over_i, of which the sum is at most delta; where one "
    "number holds for all pairs, a_i is the least probability of output i. Rows 'most' say that a probability is at most 1. {objective} "
    "So every private mechanism on these inputs with these outputs that is right on average gives a point of this program that costs no more than its own "
    "loss, and none has a smaller one than the bound derived below."
)
_MEAN = (
    "The objective is the expected loss under the prior (its masses and moments rounded so that the cost falls), an affine function of these probabilities; "
    "variable 'one' is what does not depend on them."
)
_WORST = "'worst' is not less than the expected loss at any of the inputs of the rows of that name."


class GridMultipliers(NamedTuple):
    """Multipliers of the rows of `row_model`, taken from one list: of equalities any number, of inequalities not above 0."""

    unbiased: Array
    floors: Array
    private: Array
    slack: Array
    worst: Array

    @classmethod
    def of(
        cls, duals: Array, notion: PairwisePrivacy | None, inputs: int, outputs: int, pairs: int, places: int
    ) -> GridMultipliers:
        """Cut the list: sums, means, privacy (column by column), what pairs may exceed together, the worst case."""
        pure = notion is not None and isinstance(notion.privacy, PureDP)
        entries = 0 if notion is None else (inputs if pure else pairs) * outputs
        exceeds = pairs if notion is not None and notion.delta else 0
        sizes = [inputs, inputs, entries if pure else 0, entries, exceeds, places]
        parts = np.split(duals, np.cumsum(sizes))[1:6]
        unbiased, *rest = parts
        floors, private, slack, worst = (np.minimum(part, 0.0) for part in rest)
        shape = -1, outputs
        return cls(
            unbiased, floors.reshape(shape, order="F"), private.reshape(shape, order="F"), slack, worst
        )


def grid_program(
    bins: list[float],
    knots: list[float],
    notion: PairwisePrivacy | None,
    question: tuple[Prior, Loss, str],
    pairs: Pairs,
    places: list[float],
    duals: Array,
) -> LinearBound:
    """The rows with a multiplier; sums get the best there is."""
    prior, loss, objective = question
    worst, (K, m) = objective == "worst", (len(knots), len(bins))
    x, B = list(map(rational, knots)), list(map(rational, bins))
    first, second = pairs[0].tolist(), pairs[1].tolist()
    at = [*x, *map(rational, places)]
    prices = GridMultipliers.of(duals, notion, K, m, len(first), len(at) if worst else 0)
    nonzero = sum(int(np.count_nonzero(part)) for part in prices)
    lemma = LEMMA.format(objective=_WORST if worst else _MEAN)
    program = LinearBound(lemma, K * (m + 2) + nonzero + prices.private.size * bool(len(prices.slack)))
    costs, constant = ([[fmpq(0)] * m] * K, fmpq(0)) if worst else mean_costs(B, x, prior, loss)
    P = [[program.variable(f"P_{k}_{i}", costs[k][i]) for i in range(m)] for k in range(K)]
    for row, k in zip(P, range(K)):
        program.row("mean", list(zip(row, B)), "E", x[k], float(prices.unbiased[k]))
    if notion is not None and isinstance(notion.privacy, PureDP):
        _floors(program, P, prices, rational(exp_upper(notion.privacy.epsilon)))
    elif notion is not None:
        for number, (k, l) in enumerate(zip(first, second)):
            _pair(program, (P[k], P[l]), number, notion, notion.power(knots[k], knots[l]), prices)
    if worst:
        peak = program.variable("worst", 1)
        scale = 1 / max(fmpq(1), -sum(map(rational, prices.worst.tolist()), fmpq(0)))
        for place, price in zip(at, prices.worst.tolist()):
            lost = [
                rational(loss.absolute) * abs(b - place) + rational(loss.squared) * (b - place) ** 2
                for b in B
            ]
            k = min(max(bisect_right(x, place) - 1, 0), K - 2)
            t = (place - x[k]) / (x[k + 1] - x[k])
            terms = [(var, c * s) for row, s in ((P[k], 1 - t), (P[k + 1], t)) for var, c in zip(row, lost)]
            program.row("worst", [*terms, (peak, -1)], "L", 0, rational(price) * scale)
    else:
        program.sums_to(1, [program.variable("one", constant)])
    for row in P:
        program.sums_to(1, row)
    return program


def _floors(program: LinearBound, P: list[list[int]], prices: GridMultipliers, ratio: fmpq) -> None:
    """One ratio for all pairs: through the least probability of each output."""
    for i, column in enumerate(zip(*P)):
        least = program.variable(f"a_{i}")
        for k, var in enumerate(column):
            program.row("floor", [(least, 1), (var, -1)], "L", 0, float(prices.floors[k, i]))
            program.row("private", [(var, 1), (least, -ratio)], "L", 0, float(prices.private[k, i]))
        program.row("most", [(least, 1)], "L", 1, min(program.reduced(least), fmpq(0)))


def _pair(
    program: LinearBound,
    rows: tuple[list[int], list[int]],
    number: int,
    notion: PairwisePrivacy,
    power: Fraction,
    prices: GridMultipliers,
) -> None:
    """The rows of one pair of inputs."""
    given = list(map(rational, prices.private[number].tolist()))
    if not notion.delta and power > STEEP:  # doubles hold no such ratio: the row says less
        for var, price in zip(rows[0], given):
            program.row("most", [(var, 1)], "L", 1, price)
        return
    ratio, over = rational(exp_upper(power)), list[int]()
    for i, price in enumerate(given):
        terms = [(rows[0][i], fmpq(1)), (rows[1][i], -ratio)]
        if notion.delta and price:
            over.append(program.variable(f"over_{number}_{i}"))
            terms.append((over[-1], fmpq(-1)))
        program.row("private", terms, "L", 0, price)
    if over:
        program.row("delta", [(var, 1) for var in over], "L", notion.delta, min(given))


def mean_costs(B: list[fmpq], x: list[fmpq], prior: Prior, loss: Loss) -> tuple[list[list[fmpq]], fmpq]:
    """What a probability at an input adds to the expected loss, from below, and what is added to all.

    On a cell [u, v] between inputs and outputs |b − x| and the weight of either input are affine in x, so that their product with the
    prior's moments is all there is; of the square, b² − 2bx is, and x² is the same for all outputs.
    """
    moments, (w1, w2) = Moments(prior), (rational(loss.absolute), rational(loss.squared))
    edges = sorted({*x, *(b for b in B if x[0] < b < x[-1])})
    spans = list(zip(edges, edges[1:], moments.density(edges)))
    spans += [
        (p, p, (mass, (0, 0), (0, 0))) for p, mass in ((rational(p), mass) for p, mass in moments.atoms)
    ]
    costs, constant = [[fmpq(0)] * len(B) for _ in x], fmpq(0)

    def integral(c0: fmpq, c1: fmpq, c2: fmpq, cell: tuple[tuple[int, int], ...]) -> fmpq:
        """Of c0 + c1 t + c2 t², from below."""
        return sum((c * n[0 if c > 0 else 1] for c, n in zip((c0, c1, c2), cell)), fmpq(0)) / (1 << BITS)

    for u, v, cell in spans:
        width, k = v - u, min(max(bisect_right(x, u) - 1, 0), len(x) - 2)
        length = x[k + 1] - x[k]
        constant += w2 * integral(u * u, 2 * u * width, width * width, cell)
        for knot, start, slope in (
            (k, (x[k + 1] - u) / length, -width / length),
            (k + 1, (u - x[k]) / length, width / length),
        ):
            for i, b in enumerate(B):
                sign = 1 if 2 * b >= u + v else -1
                value = w1 * sign * (b - u) + w2 * (b * b - 2 * b * u)
                rise = -width * (w1 * sign + 2 * w2 * b)
                costs[knot][i] += integral(start * value, start * rise + slope * value, slope * rise, cell)
    return costs, constant

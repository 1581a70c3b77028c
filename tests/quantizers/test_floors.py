"""The block fill, costs of interpolated rows and multipliers of any outputs against exact arithmetic and mechanisms that exist."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

import mechdesign as md
from mechdesign.evidence.exact import round_down
from mechdesign.quantizers.dual_pieces import DualPieces, OutputSpace
from mechdesign.quantizers.exact_law import exact_block_fill
from mechdesign.quantizers.floors import FloorProblem, interior_floors, pieces, range_constraints
from mechdesign.quantizers.moments import PointMasses, interpolated_costs
from mechdesign.quantizers.newton import any_outputs
from mechdesign.quantizers.proofs import DualBound, QuantizerDesign
from mechdesign.quantizers.table import ExactLaw, smallest_epsilon
from mechdesign.solvers.deadline import Deadline


def runs(share):
    """That share of the profile's examples (200 normally, 2,000 nightly)."""
    return settings(max_examples=int(settings.default.max_examples * share))


@st.composite
def cases(draw, *, least: int = 2, most: int = 8):
    """(bins, floors, ρ, lower, upper) with floors inside the polytope, some of them zero."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m = draw(st.integers(least, most))
    lower, upper = -rng.uniform(0.3, 1.5), rng.uniform(0.3, 1.5)
    width = upper - lower
    bins = np.sort(
        np.concatenate(
            [
                [lower - rng.uniform(0.1, 2) * width, upper + rng.uniform(0.1, 2) * width],
                rng.uniform(lower - width, upper + width, m - 2).clip(
                    lower - 0.1 * width, upper + 0.1 * width
                ),
            ]
        )
    )
    bins = np.unique(bins)
    rho = float(np.exp(smallest_epsilon(bins, lower, upper) + rng.uniform(0.05, 3)))
    inside = interior_floors(bins, rho, lower, upper)
    C, b = range_constraints(bins, rho, lower, upper)
    direction = rng.normal(size=len(bins)) * inside
    floors = inside + direction * rng.uniform(0, 1)
    for _ in range(200):
        if floors.min() >= 0 and (C @ floors - b).min() >= 1e-12:
            break
        direction *= 0.7
        floors = inside + direction
    else:
        floors = inside
    return bins, floors, rho, lower, upper


@given(cases(), st.integers(0, 2**16))
@runs(0.3)
def test_exact_fill(case, seed):
    """Every constraint in fractions, at knots and between; shortcuts equal the definitions."""
    bins, floors, rho, lower, upper = case
    epsilon = float(np.log(rho))
    law = exact_block_fill(bins, floors, epsilon, lower, upper)
    a = law.floors
    assert law.rho <= Fraction(rho) * (1 + Fraction(1, 10**14))
    for k in range(len(law.knots) - 1):
        for end in (0, 1):
            row = law.row(k, end)
            assert sum(row) == 1
            assert sum(b * p for b, p in zip(law.bins, row)) == law.knots[k + end]
            assert all(f <= p <= law.rho * f for f, p in zip(a, row))
    for fast, slow in zip(law.tables(), ExactLaw.tables(law)):
        assert np.array_equal(fast, slow)
    x = np.random.default_rng(seed).uniform(lower, upper, 20)
    problem = FloorProblem(bins, rho, lower, upper, md.Prior.of([0.0]), md.Loss.of("absolute"))
    rows = pieces(problem, floors).table.probabilities(x)
    assert np.abs(md.Quantizer.of_law(law).probabilities(x) - rows).max() < 1e-7


# -- Costs of interpolated rows: from below, and next to the exact integrals of each hat function times each loss


def exactly(bins, knots, atoms, share, loss):
    """∫ h_k ℓ(B_i − x) dF of a uniform density of mass `share` and of point masses; by Simpson's rule, which is exact for cubics."""
    first, second = Fraction(loss.absolute), Fraction(loss.squared)
    x, b = list(map(Fraction, knots)), list(map(Fraction, bins))
    edges = sorted({*x, *(v for v in b if x[0] < v < x[-1])})

    def weighted(k, i, at):
        hat = max(Fraction(0), 1 - max((at - x[k]) / (x[k + 1] - x[k]) if k + 1 < len(x) and at > x[k] else Fraction(0),
                                       (x[k] - at) / (x[k] - x[k - 1]) if k and at < x[k] else Fraction(0)))  # fmt: skip
        return hat * (first * abs(b[i] - at) + second * (b[i] - at) ** 2)

    def integral(k, i):
        total = sum((w * weighted(k, i, at) for at, w in atoms), Fraction(0))
        for u, v in pairwise(edges):
            three = weighted(k, i, u) + 4 * weighted(k, i, (u + v) / 2) + weighted(k, i, v)
            total += share * (v - u) / (x[-1] - x[0]) * three / 6
        return total

    return [[integral(k, i) for i in range(len(b))] for k in range(len(x))]


@settings(deadline=None, max_examples=20)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.5, 1e3, -1e6]),
    st.sampled_from(["density", "samples", "weights"]),
)
def test_costs_are_from_below_and_near(seed, centre, kind):
    rng = np.random.default_rng(seed)
    knots = centre + np.sort(np.concatenate([[-1.0, 1.0], rng.uniform(-1, 1, rng.integers(0, 4))]))
    bins = centre + np.sort(rng.uniform(-2, 2, rng.integers(2, 5)))
    loss = md.Loss.of({"absolute": float(rng.uniform(0, 2)), "squared": float(rng.choice([0.0, 0.7]))})
    x = rng.uniform(knots[0], knots[-1], 3)
    masses, atoms, share = None, [], Fraction(1)
    prior = md.Prior.ranged(stats.uniform(knots[0], knots[-1] - knots[0]), None)[0]
    if kind == "samples":
        prior, share, atoms = (
            md.Prior.of(x, (knots[0], knots[-1])),
            Fraction(0),
            [(Fraction(v), Fraction(1, 3)) for v in x],
        )
    elif kind == "weights":
        weights = tuple(Fraction(int(n), 100) for n in rng.integers(0, 34, 3))
        masses, share, atoms = PointMasses(x, weights), Fraction(0), list(zip(map(Fraction, x), weights))
    costs, constant = interpolated_costs(bins, knots, loss, prior, masses)
    whole = exactly(bins, knots, atoms, share, loss)
    # every table of rows that sum to 1: the constant is charged once, the square of the input to no output
    for _ in range(4):
        rows = [[Fraction(int(n)) for n in rng.integers(0, 50, len(bins)) + 1] for _ in knots]
        rows = [[p / sum(row) for p in row] for row in rows]
        exact = sum((c * p for r, q in zip(whole, rows) for c, p in zip(r, q)), Fraction(0))
        found = Fraction(constant) + sum(
            (Fraction(c) * p for r, q in zip(costs.tolist(), rows) for c, p in zip(r, q)), Fraction(0)
        )
        assert 0 <= exact - found <= Fraction(1e-10 if abs(centre) > 1 else 1e-12)


# -- Lower bounds of the designs that search: they hold for every mechanism with outputs in the range, and are near it

UNIFORM = stats.uniform(-1, 2)
NAMED: dict[str, Any] = {
    "absolute": "absolute",
    "squared": "squared",
    "mixed": {"absolute": 1, "squared": 0.3},
}
PRIORS: dict[str, Any] = {
    "uniform": UNIFORM,
    "samples": [-1.0, -0.35, 0.1, 0.1, 0.9, 1.0],
    "clipped": md.clipped(stats.uniform(-1.4, 2.1), -1, 1),
    "histogram": stats.rv_histogram(([1, 5, 2], [-1, 0, 0.4, 1]), density=False),
}


class Asked(QuantizerDesign):
    """A search of quantizers with outputs up to `reach` half widths from the centre."""

    output_space: Any = None
    improve: Any = None

    def __init__(self, epsilon: float, loss: Any, prior: Any, reach: float, max_bias: float = 0.0) -> None:
        self.privacy, self.loss, self.prior = md.PureDP(epsilon), md.Loss.of(loss), md.Prior.of(prior)
        self.input_range, self.max_bias = (-1.0, 1.0), max_bias
        self.output_space = OutputSpace.around(self.input_range, reach)

    def optimum(self, bins: Any) -> float:
        """What a feasible mechanism with some of these outputs costs."""
        parts = {"loss": self.loss, "input_range": self.input_range, "max_bias": self.max_bias}
        return (
            md.OptimalQuantizer(bins, self.privacy, self.prior, **parts).solve(gap=1e-4, certify=False).value
        )


def bound_of(asked: Asked, duals: DualPieces, outputs: Any) -> float:
    """The bound that multipliers prove, rounded down."""
    exact = tuple(map(Fraction, np.asarray(outputs).tolist()))
    return round_down(DualBound(duals).proved(asked, exact))


@cache
def proved(
    epsilon: float, loss: str, prior: str, reach: float, bias: float = 0.0
) -> tuple[Asked, DualPieces, float]:
    asked = Asked(epsilon, NAMED[loss], PRIORS[prior], reach, bias)
    duals = any_outputs(asked, None, Deadline(None))
    assert duals is not None and duals.between
    return asked, duals, bound_of(asked, duals, asked.output_space.points)


@cache
def reached(*asked: Any) -> float:
    """What an existing mechanism with many outputs costs."""
    question = proved(*asked)[0]
    return question.optimum(np.linspace(*question.output_space.points, 65))


SETTINGS = st.tuples(
    st.sampled_from([0.5, 1.5, 4.0]),
    st.sampled_from(sorted(NAMED)),
    st.sampled_from(sorted(PRIORS)),
    st.just(6.0),
)


def test_lowered_lines_prove_nearly_all_of_an_optimum() -> None:
    """Lines as they are prove 91% of it, as outputs in between are charged twice the dip of reduced costs."""
    asked = (4.0, "absolute", "uniform", 6.0)
    assert proved(*asked)[2] > 0.95 * reached(*asked)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    SETTINGS,
    st.lists(st.floats(-1, 1), min_size=0, max_size=5, unique=True),
    st.floats(1, 3),
    st.floats(1, 3),
)
def test_no_outputs_do_better(asked: Any, inner: list[float], left: float, right: float) -> None:
    """The oracle is a mechanism: whatever outputs are drawn, the best one with them costs at least the bound."""
    question, _, bound = proved(*asked)
    most = question.output_space.points[1]
    least = 1 / math.tanh(question.privacy.epsilon / 2)
    low, high = -min(least * left * 1.001, most), min(least * right * 1.001, most)
    bins = np.unique([low, *(max(-low, high) * b for b in inner), high])
    bins = np.unique(np.clip(bins, low, high))
    assume(np.diff(bins).min() > 1e-6)
    assert bound <= question.optimum(bins) * (1 + 1e-12)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(SETTINGS, st.integers(0, 2**32), st.sampled_from([0.0, 1e-3, 1e-1, 1.0]), st.integers(2, 12))
def test_no_multipliers_prove_too_much(asked: Any, seed: int, size: float, few: int) -> None:
    """Whatever lines, prices and outputs the multipliers come with, what is proved is below an existing mechanism."""
    question, duals, bound = proved(*asked)
    rng = np.random.default_rng(seed)
    table, prices, outputs = duals.pieces.copy(), duals.multipliers, duals.outputs
    assert outputs is not None
    table[:, 3:] += size * rng.normal(size=(len(table), 4))
    if few < 10:  # pieces that lie across outputs
        kept = np.unique([0, *rng.integers(0, len(outputs), few), len(outputs) - 1])
        outputs, prices = outputs[kept], prices[:, kept]
    prices = np.abs(prices + size * rng.normal(size=prices.shape))
    l0 = replace(duals, pieces=table, multipliers=prices, outputs=outputs)
    assert l0.sound((), worst=False)
    least = reached(*asked)
    assert bound_of(question, l0, ()) <= min(least, 1e300)
    assert bound <= least


@pytest.mark.parametrize("loss", sorted(NAMED))
@pytest.mark.parametrize("prior", ["samples", "uniform"])
@pytest.mark.parametrize("few", [[-3, -0.1, 3], [-3, -0.6, 0.2, 0.7, 3]])
def test_multipliers_of_a_few_outputs_prove_less_of_those_in_between(few: Any, loss: str, prior: str) -> None:
    """Tight for the few, they would prove more than the optimum of many if nothing were taken off."""
    asked = Asked(1.5, NAMED[loss], PRIORS[prior], 3.0)
    design = md.OptimalQuantizer(few, asked.privacy, asked.prior, asked.loss, input_range=(-1, 1))
    result = design.solve(gap=1e-6)
    duals = replace(result.proofs[-1].duals, outputs=np.array(few, dtype=float), between=True)
    many = asked.optimum(np.linspace(-3, 3, 61))
    assert many < result.value * (1 - 1e-3)
    assert bound_of(asked, duals, few) <= many
    assert bound_of(asked, replace(duals, between=False), few) > many

r"""The linear program over rows at knots, and the one that bounds every mechanism.

On a grid they are the same. On the continuum the rows of the first are interpolated and neighbours are within 1 + εh; for
the bound of the worst case the second keeps finitely many inputs, for that of the expected loss the means on cells
(`cell_model`).

`grid_program` is the program over the rows at listed inputs in rationals, with a solver's multipliers, for other people's programs to check.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from flint import fmpq
from scipy import stats

from mechdesign.evidence.exact import exp_upper
from mechdesign.evidence.vipr import LinearBound, rational
from mechdesign.problem.losses import Loss
from mechdesign.problem.priors import LawPrior, Prior
from mechdesign.problem.privacy import MetricDP, PureDP
from mechdesign.quantizers.common.enclosures import BITS, Moments
from mechdesign.quantizers.metric.notion import STEEP, Pairs, PairwisePrivacy
from mechdesign.quantizers.optimal.design import hat_costs
from mechdesign.solvers import Model
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


_MOST = 257  # inputs, or ends of cells, of a bounding program


def row_model(
    bins: Array,
    knots: Array,
    notion: PairwisePrivacy | None,
    prior: Prior,
    loss: Loss,
    objective: str,
    *,
    pairs: Pairs | None = None,
    places: Array | None = None,
    relaxed: bool = False,
) -> Model:
    """Declare the program: families "privacy", "normalisation", "unbiased", "slack" (approximate privacy), "worst case".

    The parameters "ratio" and "delta" are the budget; without a notion there are neither they nor their rows. The worst case is
    over the knots, and over `places` between them, where rows are interpolated. Of `pairs`, those given alone are compared. Relaxed, ratios that doubles do not hold ask for
    nothing.
    """
    grid, (bins, knots, prior) = knots, about_zero(bins, knots, prior)
    # Bounds that follow from the rows keep a solver whose tolerance large ratios defeat from calling the program unbounded.
    P = cp.Variable((len(knots), len(bins)), bounds=[0, 1], name="P")
    variables: dict[str, cp.Variable] = {"P": P}
    parameters: dict[str, cp.Parameter] = {}
    families: dict[str, Any] = {"normalisation": cp.sum(P, axis=1) == 1, "unbiased": P @ bins == knots}
    if notion is not None:
        more, private, parameters = _privacy(P, notion, grid, pairs, relaxed)
        variables |= more
        families |= private
    if objective == "worst":
        between = np.zeros(0) if places is None else places
        costs = loss(bins - np.concatenate([knots, between - (grid[0] / 2 + grid[-1] / 2)])[:, None])
        z = variables["worst"] = cp.Variable(name="worst", bounds=[costs.min(), costs.max()])
        rows = cp.vstack([P, hats(grid, between) @ P]) if len(between) else P
        families["worst case"] = z >= cp.sum(cp.multiply(costs, rows), axis=1)
        target: Any = z
    else:
        costs, constant = hat_costs(bins, knots, prior, loss)
        target = cp.sum(cp.multiply(costs, P)) + constant
    return _declared(target, variables, families, parameters)


def _declared(
    least: cp.Expression,
    variables: dict[str, cp.Variable],
    families: dict[str, Any],
    parameters: dict[str, cp.Parameter],
) -> Model:
    constraints = [c for f in families.values() for c in (f if isinstance(f, list) else [f])]
    return Model(cp.Problem(cp.Minimize(least), constraints), variables, families, parameters)


def _privacy(
    P: cp.Variable, notion: PairwisePrivacy, knots: Array, pairs: Pairs | None, relaxed: bool
) -> tuple[dict[str, cp.Variable], dict[str, Any], dict[str, cp.Parameter]]:
    """Variables, families and parameters of the rows of privacy."""
    K, m = P.shape
    if isinstance(notion.privacy, PureDP):
        a = cp.Variable((1, m), bounds=[0, 1], name="a")
        ratio = cp.Parameter(name="ratio", value=notion.ratios(knots, notion.first_pairs(2))[0])
        rows = [np.ones((K, 1)) @ a <= P, np.ones((K, 1)) @ (ratio * a) >= P]
        return {"a": a}, {"privacy": rows}, {"ratio": ratio}
    pairs = notion.pairs(K) if pairs is None else pairs
    k, l = pairs
    ratio = cp.Parameter((len(k), 1), name="ratio", value=notion.ratios(knots, pairs)[:, None])
    excess = P[k] - cp.multiply(ratio @ np.ones((1, m)), P[l])
    if not notion.delta:
        free = (notion.powers(knots, pairs) > STEEP) & relaxed & ~np.array(notion.continuum)
        allowed = free[:, None] * np.ones((1, m)) if free.any() else 0  # probabilities are at most 1
        return {}, {"privacy": excess <= allowed}, {"ratio": ratio}
    S = cp.Variable((len(k), m), bounds=[0, 1], name="S")
    delta = cp.Parameter(name="delta", value=notion.delta)
    families = {"privacy": excess <= S, "slack": cp.sum(S, axis=1) <= delta}
    return {"S": S}, families, {"ratio": ratio, "delta": delta}


def about_zero(bins: Array, knots: Array, prior: Prior) -> tuple[Array, Array, Prior]:
    """Outputs, inputs and prior moved to inputs around zero, where moments and means keep their digits."""
    centre = float(knots[0] / 2 + knots[-1] / 2)
    if centre == 0:
        return bins, knots, prior
    return bins - centre, knots - centre, prior.standardised(centre, 1.0)


def set_budget(
    model: Model,
    notion: PairwisePrivacy,
    knots: Array,
    epsilon: float,
    pairs: Pairs | None = None,
    *,
    outward: bool = False,
) -> None:
    """Put an ε into the model, smaller than the notion's, or its own rounded outward."""
    shrink, up = 1 - epsilon / notion.privacy.epsilon, 1.0 + 1e-14 * outward
    target = model.parameters["ratio"]
    if pairs is None:
        pairs = notion.pairs(len(knots)) if target.ndim else notion.first_pairs(2)
    ratio = notion.ratios(knots, pairs, shrink) * up
    target.value = ratio[:, None] if target.ndim else ratio[0]
    if "delta" in model.parameters:
        model.parameters["delta"].value = notion.delta * (1 - shrink) * up


def bounding_program(
    bins: Array,
    knots: Array,
    notion: PairwisePrivacy | None,
    prior: Prior,
    loss: Loss,
    objective: str,
    pairs: Pairs | None = None,
    places: Array | None = None,
) -> Model:
    """Declare a program that no mechanism beats.

    Its inputs are the knots of a grid; on the continuum some inputs of the range, or cells of it. Without a notion, and where
    doubles do not hold the one ratio of all pairs: what no mechanism on a grid beats that is right on average.
    """
    lower, upper = float(knots[0]), float(knots[-1])
    if notion is not None and notion.continuum and objective == "mean":
        cells = min(len(knots) - 1, _MOST - 1)
        bins, knots, prior = about_zero(bins, knots, prior)
        lower, upper = float(knots[0]), float(knots[-1])
        return cell_model(bins, notion.privacy.epsilon, prior, loss, (lower, upper), cells)
    if notion is not None and notion.continuum:
        notion, knots = replace(notion, continuum=False), np.linspace(lower, upper, min(len(knots), _MOST))
    if notion is not None and not isinstance(notion.privacy, MetricDP) and notion.steep(knots):
        notion = None  # a program with lowered ratios would not bound all mechanisms
    model = row_model(bins, knots, notion, prior, loss, objective, pairs=pairs, places=places, relaxed=True)
    if notion is not None:
        set_budget(model, notion, knots, notion.privacy.epsilon, pairs, outward=True)
    return model


def hats(knots: Array, x: Array) -> Array:
    """Weights of the knots in the interpolated rows at x, shape (len(x), len(knots))."""
    at = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    t = (x - knots[at]) / (knots[at + 1] - knots[at])
    out = np.zeros((len(x), len(knots)))
    out[np.arange(len(x)), at] = 1 - t
    out[np.arange(len(x)), at + 1] += t
    return out


def _cells(prior: Prior, lower: float, upper: float, count: int) -> list[tuple[float, float, Array]]:
    """Cells (start, stop, moments): atoms alone where there are few, the density between cut points."""
    points, weights = prior.atoms
    edges = np.linspace(lower, upper, count + 1)
    out: list[tuple[float, float, Array]] = []
    if len(points) <= 4 * count:
        edges = np.unique(np.concatenate([edges, points]))
        moments = prior.continuous_moments(edges)
        for k, (a, b) in enumerate(zip(edges[:-1], edges[1:])):
            out.append((float(a), float(b), moments[k]))
        out += [(float(x), float(x), w * np.array([1.0, x, x * x])) for x, w in zip(points, weights)]
    else:
        moments = prior.moments(edges)
        out = [(float(a), float(b), row) for a, b, row in zip(edges[:-1], edges[1:], moments)]
    # Half-open cells: an atom at a cell's start comes before the cell.
    return sorted((c for c in out if c[2][0] > 1e-12), key=lambda c: (c[0] + c[1], c[1]))


def _quantile_grid(prior: Prior, start: float, stop: float) -> tuple[Array, Array]:
    """Points and conditional distribution function of the density on a cell."""
    x = np.linspace(start, stop, 513)
    mass = np.concatenate([[0.0], np.cumsum(prior.continuous_moments(x)[:, 0])])
    with np.errstate(invalid="ignore"):  # an empty cell between atoms: the caller takes the hull
        return x, mass / mass[-1]


def _distance(prior: Prior, first: tuple[float, float, Array], second: tuple[float, float, Array]) -> float:
    """Upper bound of the ∞-Wasserstein distance of two neighbouring cells' conditional laws."""
    hull = second[1] - first[0]
    if isinstance(prior, LawPrior) and type(prior.law.dist) is type(stats.uniform):
        start, stop = prior.support
        if first[0] >= start and second[1] <= stop and first[0] < first[1] and second[0] < second[1]:
            # Both conditional laws are uniform: quantiles differ most at an end.
            return max(second[0] - first[0], second[1] - first[1]) * (1 + 1e-14)
    (x, u), (y, v) = (
        (np.array([c[0], c[1]]), np.array([0.0, 1.0])) if c[0] == c[1] else _quantile_grid(prior, c[0], c[1])
        for c in (first, second)
    )
    if not (np.all(np.isfinite(u)) and np.all(np.isfinite(v))):
        return hull
    levels = np.unique(np.concatenate([u, v]))
    # On [l, l'] the first law's quantile is at least its value at l, the second's at most its value at l'.
    low = x[np.clip(np.searchsorted(u, levels[:-1] + 1e-12, side="right") - 1, 0, len(x) - 1)]
    high = y[np.clip(np.searchsorted(v, levels[1:] - 1e-12, side="left"), 0, len(y) - 1)]
    return float(min(hull, (high - low).max() + 1e-12))


def cell_model(
    bins: Array, epsilon: float, prior: Prior, loss: Loss, input_range: tuple[float, float], cells: int
) -> Model:
    r"""Declare a program over the means of p on cells, which no mechanism that is private at :math:`d = |x - x'|` beats.

    Cut the input range into cells. For any mechanism let :math:`q_{ki}` be the mean of :math:`p_i` over cell k under the
    prior, and :math:`d_{ki}` that of :math:`(x - \bar x_k)\, p_i`. These 2Km numbers satisfy linear constraints, whatever the mechanism:

    - :math:`\sum_i q_{ki} = 1`, :math:`\sum_i B_i q_{ki} = \bar x_k`, :math:`\sum_i d_{ki} = 0`,
      :math:`\sum_i B_i (\bar x_k q_{ki} + d_{ki})` = the mean of :math:`x^2`;
    - :math:`q_{k+1,i} \le e^{\varepsilon w_k} q_{ki}` and back, :math:`w_k` the ∞-Wasserstein distance of
      the two cells' conditional laws (couple their quantiles: paired inputs are at most w apart);
    - :math:`|d_{ki}| \le \tau_k h_k q_{ki}`, :math:`\tau = (\sqrt r - 1)/(\sqrt r + 1)`,
      :math:`r = e^{\varepsilon h}`: inside a cell p varies by a factor r at most;
    - the loss is at least :math:`t_{ki} \ge |(B_i - \bar x_k) q_{ki} - d_{ki}|` (Jensen), with equality where B is outside
      the cell, and the squared loss is exactly :math:`\sum B_i^2 q_{ki}` less the mean of :math:`x^2`.

    The least value of that linear program is a bound, and is itself taken from the program's duals with outward
    rounding (`mechdesign.solvers.proved_bound`), never from the solver's objective.
    """
    table = _cells(prior, *input_range, cells)
    moments = np.array([c[2] for c in table])
    mass, centre, second = moments[:, 0], moments[:, 1] / moments[:, 0], moments[:, 2] / moments[:, 0]
    width = np.array([c[1] - c[0] for c in table])
    tau = (np.tanh(epsilon * width / 4) * width)[:, None] * np.ones(len(bins))
    apart = np.array([_distance(prior, a, b) for a, b in zip(table, table[1:])])
    # Where the ratio is beyond what doubles hold, the row says that a probability is at most 1.
    steep = (epsilon * apart > STEEP)[:, None] * np.ones(len(bins))
    ratio = np.exp(np.minimum(epsilon * apart, STEEP))[:, None] * (1 + 1e-14) * (1 - steep)
    reach = float(np.abs(bins).max() + max(map(abs, input_range)))
    shape = len(table), len(bins)
    q = cp.Variable(shape, name="q", bounds=[0, 1])
    d = cp.Variable(shape, name="d", bounds=[-tau, tau])
    t = cp.Variable(shape, name="t", bounds=[0, 2 * reach])
    error = cp.multiply(bins[None, :] - centre[:, None], q) - d
    families: dict[str, Any] = {
        "normalisation": cp.sum(q, axis=1) == 1,
        "unbiased": q @ bins == centre,
        "deviation": cp.sum(d, axis=1) == 0,
        "second moment": cp.multiply(centre, q @ bins) + d @ bins == second,
        "within a cell": [d <= cp.multiply(tau, q), -d <= cp.multiply(tau, q)],
        "absolute error": [error <= t, -error <= t],
    }
    if len(table) > 1:
        families["privacy"] = [
            q[1:] <= cp.multiply(ratio, q[:-1]) + steep,
            q[:-1] <= cp.multiply(ratio, q[1:]) + steep,
        ]
    absolute, squared = loss.absolute * mass, loss.squared * mass
    least = absolute @ cp.sum(t, axis=1) + squared @ (q @ bins**2 - second)
    return _declared(least, {"q": q, "d": d, "t": t}, families, {})

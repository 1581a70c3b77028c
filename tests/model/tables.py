"""Random problems on tables, and a check of their results that shares no code with the package."""

import decimal
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np

import mechdesign as md

WORDS = ("absolute", "squared")


def power(exponent: Fraction) -> Fraction:
    """A rational just below e to this."""
    with decimal.localcontext(decimal.Context(prec=80)):
        value = (decimal.Decimal(exponent.numerator) / decimal.Decimal(exponent.denominator)).exp()
        return Fraction(value) * (1 - Fraction(1, 10**60))


def excess(problem: md.Problem, result: md.Result) -> Fraction:
    """By how much the law breaks its worst privacy row; at most 0 where it is private."""
    rows = [[Fraction(w, sum(row)) for w in row] for row in result.mechanism.weights]
    worst, count = Fraction(-1), range(len(rows))
    for asked in problem.constraints:
        if not isinstance(asked, md.model.Private):
            continue
        for epsilon, delta in asked.points:
            for a in count:
                for b in count:
                    listed = (
                        not isinstance(asked.between, str)
                        and sorted((a, b)) in np.sort(asked.between).tolist()
                    )
                    near = asked.between == "all" if isinstance(asked.between, str) else listed
                    if a == b or not (
                        near
                        or (
                            isinstance(asked.between, str) and asked.between == "adjacent" and abs(a - b) == 1
                        )
                    ):
                        continue
                    far = Fraction(1) if asked.distances is None else Fraction(float(asked.distances[a, b]))
                    rate = power(Fraction(epsilon) * far)
                    over = [p - rate * q for p, q in zip(rows[a], rows[b])]
                    worst = max(
                        worst,
                        sum(max(o, Fraction(0)) for o in over) - Fraction(delta) if delta else max(over),
                    )
    return worst


def residual(problem: md.Problem, result: md.Result) -> tuple[float, float]:
    """How far own affine rows are missed: equalities relative to their size, inequalities at all."""
    table = problem.unknown
    cells = [Fraction(w, sum(row)) for row in result.mechanism.weights for w in row]
    equal = over = Fraction(0)
    for one in problem.constraints:
        if isinstance(one, md.model.Private):
            continue
        table.value = np.zeros(table.shape)
        offsets = np.ravel(one.expr.value, order="F")
        slopes = np.asarray(
            one.expr.grad[table].todense()
            if hasattr(one.expr.grad[table], "todense")
            else one.expr.grad[table]
        )
        slopes = slopes.reshape(table.size, -1)
        places = np.arange(table.size).reshape(table.shape, order="F").ravel()
        for k, offset in enumerate(offsets):
            a = [Fraction(float(v)) for v in slopes[places, k]]
            left = sum((x * p for x, p in zip(a, cells)), Fraction(float(offset)))
            size = sum(map(abs, a), abs(Fraction(float(offset)))) or Fraction(1)
            if isinstance(one, cp.constraints.zero.Equality):
                equal = max(equal, abs(left) / size)
            else:
                over = max(over, left)
    return float(equal), float(over)


def drawn(rng: np.random.Generator, *, hard: bool = False) -> md.Problem:
    """A problem, feasible or not."""
    n, m = (int(rng.integers(2, 13)) for _ in range(2))
    x = np.sort(rng.choice(np.linspace(-1, 1, 41), n, replace=False))
    y = np.sort(rng.choice(np.linspace(-3, 3, 49), m, replace=False))
    if rng.random() < 0.7:
        y[0], y[-1] = -3.0, 3.0
    P = md.Table(x, y)
    word = str(rng.choice(WORDS))
    objective: Any = P.worst(word) if rng.random() < 0.25 else P.expected(word, rng.dirichlet(np.ones(n)))
    if rng.random() < 0.15:
        objective = objective + 0.3 * cp.norm1(P[0] - P[-1])
    low, high = (2.0, 14.0) if hard else (0.2, 6.0)
    least = -9 if hard else -6

    def epsilon() -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    def delta() -> float:
        return float(10.0 ** rng.uniform(least, -1))

    asked: list[Any] = []
    for _ in range(int(rng.integers(1, 3))):
        between: Any = str(rng.choice(["all", "all", "adjacent"]))
        if rng.random() < 0.15:
            between = (
                [(float(x[0]), float(x[-1])), (float(x[0]), float(x[1]))]
                if n > 2
                else [(float(x[0]), float(x[1]))]
            )
        kind = int(rng.integers(0, 4))
        privacy: Any = (
            md.PureDP(epsilon()),
            md.ApproximateDP(epsilon(), delta()),
            md.MetricDP(epsilon()),
            md.TradeOff([(0.0, float(rng.uniform(0.2, 0.9))), (epsilon(), delta())]),
        )[kind]
        asked.append(P.private(privacy, between=between))
    own: list[Any] = []
    if rng.random() < 0.45:
        own.append(P.unbiased())
        if rng.random() < 0.3:
            own.append(0.1 * P.bias() == 0)
    if rng.random() < 0.4:
        own.append(md.named("cap", P[:, int(rng.integers(m))] <= float(rng.choice([0.0, 0.05, 0.2, 0.5]))))
    if rng.random() < 0.2:
        own.append(md.named("empty", P[0, int(rng.integers(m))] == 0))
    if rng.random() < 0.2:
        own.append(md.named("middle", cp.abs(P[0, 0] - P[-1, -1]) <= 0.1))
    if rng.random() < 0.15:
        own.append(md.named("sure", P[0, 0] >= float(rng.choice([0.3, 0.7, 1.0]))))
    if rng.random() < 0.1:
        own.append(md.named("exactly", cp.sum(P[:, 0]) / n == 0.25))
        if rng.random() < 0.5:
            own.append(md.named("again", cp.sum(P[:, 0]) == 0.25 * n + float(rng.choice([0.0, 1e-16, 1e-7]))))
    return md.Problem(md.Minimize(objective), [*asked, *own])

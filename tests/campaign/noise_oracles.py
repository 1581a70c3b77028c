"""What the later kinds of noise claim, computed a second time: compositions from below, corners listed, closed forms in mpmath."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import cvxpy as cp
import mpmath as mp
import numpy as np
from scipy import spatial

import mechdesign as md
from mechdesign.channels.linear_report import LinearReport
from tests.accounting import reference
from tests.campaign.bounds_oracles import CLOSE, changes, composed, drawn
from tests.campaign.compositions import Grid, Losses, density_losses, laplace_losses, step_of
from tests.campaign.oracles import Faults, exactly, gaussian_delta, over_budget
from tests.programs import least_noise, least_table

# A type for each coordinate -------------------------------------------------------------------------------------


def mixed(design: Any, result: Any) -> Faults:
    """The composition from below at the corner and inside; the loss in closed form; both pure types in closed form."""
    law, epsilon, delta = result.mechanism, design.privacy.epsilon, design.privacy.delta
    if not np.array_equal(law.sensitivities, design.sensitivities):
        yield "another profile"
    rng = drawn(design)
    for k in range(4):
        parts = [1.0 if k == 0 else rng.random() for _ in law.scales]
        ratios = [
            Fraction(p) * Fraction(v) / Fraction(s)
            for p, v, s in zip(parts, law.sensitivities.tolist(), law.scales.tolist())
            if v
        ]
        kinds = [kind for kind, v in zip(law.laplace.tolist(), law.sensitivities.tolist()) if v]
        if any(v and not s for v, s in zip(law.sensitivities.tolist(), law.scales.tolist())):
            yield "privacy: a coordinate that changes has no noise"
            return
        squares = sum((r * r for r, kind in zip(ratios, kinds) if not kind), Fraction(0))
        laplace = [float(r) for r, kind in zip(ratios, kinds) if kind]
        found = mixed_delta(laplace, squares, epsilon)
        if found > delta * CLOSE:
            yield f"privacy: delta is at least {found!r} of {delta!r} at {'the corner' if k == 0 else 'an inner change'}"
    yield from mixed_value(design, result)


def points_of(privacy: Any) -> list[tuple[float, float]]:
    """(ε, δ) where an advantage, or several at once, are asked; none elsewhere."""
    if isinstance(privacy, md.MembershipAdvantage):
        return [(0.0, privacy.eta)]
    return list(privacy.points) if isinstance(privacy, md.TradeOff) else []


def allocation(design: Any, result: Any) -> Faults:
    """One point as it is; of several the composition from below at each, and what Laplace noise costs by Corollary 6."""
    asked, law = points_of(design.privacy), result.mechanism
    if not asked:
        yield from mixed(design, result)
        return
    lam, scales = design.sensitivities, law.scales
    peaked = np.broadcast_to(getattr(law, "laplace", True), len(lam)).tolist()
    ratios = [Fraction(v) / Fraction(s) for v, s in zip(lam.tolist(), scales.tolist())]
    squares = sum((r * r for r, kind in zip(ratios, peaked) if not kind), Fraction(0))
    for epsilon, delta in asked:
        found = mixed_delta([float(r) for r, kind in zip(ratios, peaked) if kind], squares, epsilon)
        if found > delta * CLOSE:
            yield f"privacy: delta is at least {found!r} of {delta!r} at {epsilon!r}"
    p = design.loss
    total = min(e - (2 if len(lam) == 1 else 1) * math.log1p(-d) for e, d in asked if d < 1)
    unit = lam ** (1 / (p + 1))
    known = math.factorial(p) * float(((unit * float((lam / unit).sum()) / total) ** p).sum())
    yield from beyond(result, known)


def beyond(result: Any, known: float) -> Faults:
    """A value that is larger, or a lower bound above, what a known law costs."""
    if result.value > known * 1.02:  # searches end at a gap of 1%
        yield f"a value of {result.value} where a known law costs {known}"
    if result.lower_bound is not None and result.lower_bound > known * (1 + 1e-9):
        yield f"a lower bound of {result.lower_bound} above a known law's {known}"


def noise_of_points(design: Any, result: Any) -> Faults:
    """δ of every point at whole shifts of a cell, by doubles; Laplace noise, of whole numbers by the sum of its masses."""
    law, top = result.mechanism, design.sensitivity
    if design.integer:
        far = abs(law.first) + len(law.weights) + (0 if not law.decay else law.change * 60)
        masses, n = np.asarray(law.pmf(np.arange(-far, far + 1))), int(top)
    elif isinstance(law, md.AdditiveNoise):
        masses, n = None, 0
        if any(reference.delta(law.law, top, e) > d for e, d in points_of(design.privacy)):
            yield f"privacy: delta beyond a point with {law.law.dist.name}"
    else:
        logs, n = (None if law.spike else cell_masses(law)), law.cells_per_shift
        masses = None if logs is None else np.exp(logs - np.logaddexp.reduce(logs))
        if Fraction(law.width) * n < Fraction(top):
            yield "privacy: made for smaller changes"
    for (epsilon, delta), s in itertools.product(points_of(design.privacy), range(1, n + 1)):
        if masses is None:
            break
        for here, there in ((masses[:-s], masses[s:]), (masses[s:], masses[:-s])):
            over = float(np.maximum(here - math.exp(epsilon) * there, 0).sum())
            if over > delta * CLOSE + 1e-12:
                yield f"privacy: delta is at least {over!r} of {delta!r} at {epsilon!r}, shift {s}"
    total = min(e - 2 * math.log1p(-d) for e, d in points_of(design.privacy) if d < 1)
    squared = design.loss == "squared"
    if not design.integer:
        yield from beyond(result, 2 * (top / total) ** 2 if squared else top / total)
        return
    total = min(
        e - math.log1p(-d) for e, d in points_of(design.privacy) if d < 1
    )  # of discrete noise this is enough
    fall = math.exp(-total / n)
    yield from beyond(result, 2 * fall / (1 - fall) ** 2 if squared else 2 * fall / ((1 - fall) * (1 + fall)))


def mixed_delta(laplace: list[float], squares: Fraction, epsilon: float) -> float:
    """δ from below of Laplace ratios beside Gaussian noise."""
    if not laplace:
        return float(gaussian_delta(epsilon, exactly(squares))) if squares else 0.0
    step = step_of(laplace, epsilon)
    grid = Grid(step)
    for ratio in laplace:
        grid.add(laplace_losses(ratio, step))
    return grid.delta(epsilon, math.sqrt(squares))


def mixed_value(design: Any, result: Any) -> Faults:
    law, p = result.mechanism, mp.mpf(design.loss)
    weights = [1.0] * len(law.scales) if design.weights is None else design.weights.tolist()
    with mp.workdps(40):
        normal, lap = 2 ** (p / 2) * mp.gamma((p + 1) / 2) / mp.sqrt(mp.pi), mp.gamma(p + 1)
        units = [lap if kind else normal for kind in law.laplace.tolist()]
        exact = mp.fsum(w * u * mp.mpf(s) ** p for w, u, s in zip(weights, units, law.scales.tolist()))
        if not exact * (1 - mp.mpf("1e-12")) <= result.value <= exact * (1 + mp.mpf("1e-9")):
            yield f"a value of {result.value!r} where it is {mp.nstr(exact, 18)}"
        pairs = [(mp.mpf(v), mp.mpf(w)) for v, w in zip(design.sensitivities.tolist(), weights) if v]
        epsilon, delta = mp.mpf(design.privacy.epsilon), mp.mpf(design.privacy.delta)
        low, high = mp.mpf("1e-9"), mp.mpf(1000)
        for _ in range(120):
            middle = mp.sqrt(low * high)
            low, high = (middle, high) if gaussian_delta(epsilon, middle**2) <= delta else (low, middle)
        unit = [(v * v / w) ** (1 / (p + 2)) for v, w in pairs]
        stretch = mp.sqrt(mp.fsum((v / t) ** 2 for (v, _), t in zip(pairs, unit))) / low
        gaussian = normal * mp.fsum(w * (t * stretch) ** p for (_, w), t in zip(pairs, unit))
        unit = [(v / w) ** (1 / (p + 1)) for v, w in pairs]
        total = epsilon - (2 if len(pairs) == 1 else 1) * mp.log1p(-delta)
        stretch = mp.fsum(v / t for (v, _), t in zip(pairs, unit)) / total
        laplace = lap * mp.fsum(w * (t * stretch) ** p for (_, w), t in zip(pairs, unit))
        for name, known in (("Gaussian", gaussian), ("Laplace", laplace)):
            if result.value > known * (1 + mp.mpf("1e-6")):
                yield f"a value of {result.value}: {name} noise alone costs {mp.nstr(known, 15)}"


# Plans ----------------------------------------------------------------------------------------------------------


def moved(task: Any, replaced: bool) -> list[tuple[Fraction, int, Fraction]]:
    """By part of a task, how far one person moves how many numbers, and what a unit of their variance costs; of prefix sums that of counts."""
    match task:
        case md.Histogram():
            return [(Fraction(1), min(task.contribution * (1 + replaced), task.bins), Fraction(task.bins))]
        case md.Count():
            return [(Fraction(task.contribution), 1, Fraction(1))]
        case md.Sum():
            return [(Fraction(task.clip), 1, Fraction(1))]
        case md.Mean():
            half, people = (Fraction(task.upper) - Fraction(task.lower)) / 2, Fraction(1, task.n)
            both = [(half, 1, people**2), (Fraction(1), 1, (half * people) ** 2)]
            return [(2 * half * people, 1, Fraction(1))] if replaced else both
    n = task.workload.size
    return [(Fraction(1), min(1 + replaced, n), Fraction(n * (n + 1), 2))]


def moved_losses(law: Any, v: float) -> Losses:
    """Of one number that moves by v, from below."""
    shapes, _, size = law.dist._parse_args(*law.args, **law.kwds)
    if hasattr(law.dist, "_logpdf"):
        return density_losses(law.dist.name, tuple(shapes), v / size)
    power, reach = (1, 40) if law.dist.name == "dlaplace" else (2, 9)
    unit = shapes[0] if power == 1 else 0.5 / shapes[0] ** 2
    far = math.ceil(min(reach * law.std(), 1e6) + v)  # further out all numbers lose alike
    t = np.arange(-far, far + 1)
    masses = np.exp(-unit * np.abs(t) ** power)
    return unit * (np.abs(t + v) ** power - np.abs(t) ** power) - 1e-12, masses / (masses.sum() * (1 + 1e-10))


def plan(design: Any, result: Any) -> Faults:
    """The moves of every task in fractions, composed from below; noise of one family with an even split, which is feasible."""
    notion, rounds = design.privacy, design.rounds
    held, moves = [], []
    squares, bias = Fraction(0), 0.0
    noises = iter(result.mechanism.noises)
    for name, task in result.mechanism.tasks.items():
        weight = (design.weights or {}).get(name, 1.0)
        if getattr(task, "values", None) is not None:
            bias += weight * (task.n * np.maximum(task.values.samples - task.clip, 0).mean()) ** 2
        for v, count, cost in moved(task, design.neighbours == "replace"):
            law = next(noises).law
            held.append((v, rounds * count, cost * Fraction(weight)))
            if getattr(task, "strategies", (None,))[0] is not None:
                continue  # what a strategy's rows move is left to the verifier: less is composed here
            if law.dist.name == "norm" or not hasattr(notion, "epsilon"):
                scale = law.args[0] if law.args else law.kwds["scale"]
                squares += rounds * count * (v / Fraction(float(scale))) ** 2
            else:
                moves.append((moved_losses(law, float(v)), rounds * count))
    if hasattr(notion, "epsilon"):
        delta, most = getattr(notion, "delta", 0.0), math.fsum(n * x.max() for (x, _), n in moves)
        if not delta and (squares or most > notion.epsilon * CLOSE):
            yield f"privacy: {most} of {notion}"
        composes = delta and (squares or most > notion.epsilon)
        if composes and (found := composed(moves, notion.epsilon, math.sqrt(squares))) > delta * CLOSE:
            yield f"privacy: delta is at least {found!r} of {notion}"
        share = Fraction(notion.epsilon) / len(held)
        known = sum(2 * cost * (n * v / share) ** 2 for v, n, cost in held)
    else:
        budget = 2 * Fraction(notion.rho) if hasattr(notion, "rho") else Fraction(notion.mu) ** 2
        if squares > budget:
            yield f"privacy: {float(squares)!r} of {notion}"
        known = sum(cost * n * v * v * len(held) / budget for v, n, cost in held)
    if max(result.value, result.lower_bound or 0.0) > (float(known) + bias) * (1 + 1e-6):
        yield f"a value of {result.value}, a bound of {result.lower_bound}: an even split costs {float(known)}"


# K-norm noise ---------------------------------------------------------------------------------------------------


def faces(vectors: Any) -> Any:
    """n of the faces n·v = 1 of a hull of vectors and their negatives."""
    hull = spatial.ConvexHull(np.concatenate([vectors, -np.asarray(vectors)]))
    return -hull.equations[:, :-1] / hull.equations[:, -1:]


def listed_costs(law: Any, power: int) -> float:
    """The mean of w_i^p E|u_i|^p by points at random in the box, for lists that are right to a percent."""
    points = np.random.default_rng(0).uniform(-1, 1, (400_000, law.dimension))
    inside = points[(points @ faces(law.vertices).T).max(axis=1) <= 1]
    return float(((np.abs(inside) * np.array(law.widths)) ** power).mean())


def k_norm_costs(d: int, power: int, law: Any) -> Any:
    """E|u_i|^p of a point u that is uniform on the ball."""
    if law.cap is not None:
        with mp.workdps(60 + d):  # the density at c − x of the sum of d − 1 uniform numbers
            c = mp.mpf(law.cap)

            def rest(t: Any) -> Any:
                terms = (
                    (-1) ** i * mp.binomial(d - 1, i) * (t - i) ** (d - 1)
                    for i in range(min(d - 1, int(t)) + 1)
                )
                return mp.fsum(terms) if t > 0 else mp.mpf(0)

            ends = sorted({0, min(1, c), 1, *(x for x in (c - int(c),) if 0 < x < 1)})
            above, below = (mp.quad(lambda x, p=p: x**p * rest(c - x), ends) for p in (power, 0))
            return above / below
    if not law.signed:  # least of d + 1 numbers that spread by 1 at most: this one, another's, or neither
        return (mp.mpf(2) / (power + 1) + (d - 1) * mp.mpf(2) / ((power + 1) * (power + 2))) / (d + 1)
    if law.norm == 2 and power == 1:
        half = mp.mpf(d) / 2
        return mp.exp(mp.loggamma(half + 1) - mp.loggamma(half + mp.mpf(3) / 2)) / mp.sqrt(mp.pi)
    return {1.0: mp.beta(d + 1, power) * power if power == 1 else mp.mpf(2) / ((d + 1) * (d + 2)),
            2.0: mp.mpf(1) / (d + 2), math.inf: mp.mpf(1) / (power + 1)}[law.norm]  # fmt: skip


def k_norm_radius(d: int, power: int, law: Any) -> Any:
    """E R^p: of Gamma(d + 1), or of balls whose masses fall with the levels."""
    if law.gamma is None:
        return mp.rf(d + 1, power) * mp.mpf(law.scale) ** power
    fall, gamma, found = mp.mpf(law.largest) / law.scale, mp.mpf(law.gamma), []
    for n in (d + power, d):
        last = int((n + 30 * math.sqrt(n) + 120) / fall) + 3
        found.append(mp.fsum(mp.exp(-fall * j) * (j + gamma) ** n for j in range(last)))
    return found[0] / found[1] * mp.mpf(law.largest) ** power


def k_norm_gauge(law: Any, v: list[Fraction]) -> Fraction:
    """The norm of a change, of ℓ₂ its square."""
    widths = [Fraction(1)] * len(v) if law.widths is None else [Fraction(w) for w in law.widths]
    if any(x and not w for x, w in zip(v, widths)):
        return Fraction(10**300)
    z = [x / w for x, w in zip(v, widths) if w]
    if not law.signed:
        return max(*z, Fraction(0)) - min(*z, Fraction(0))
    sizes = [abs(x) for x in z]
    if law.norm == 2:
        return sum((x * x for x in sizes), Fraction(0))
    total = sum(sizes, Fraction(0))
    return total if law.norm == 1 else max(max(sizes), total / Fraction(law.cap) if law.cap else Fraction(0))


def k_norm(design: Any, result: Any) -> Faults:
    """No change that is allowed loses more than ε, in fractions; cost and lower bound in closed form."""
    law, k, rounds = result.mechanism, design.dimension, design.rounds
    s = design.sensitivity
    epsilon, scale = Fraction(design.privacy.epsilon), Fraction(law.scale)
    # a staircase falls by largest/scale for changes of norm at most largest
    most = epsilon * scale / rounds if law.gamma is None else Fraction(law.largest)
    if law.gamma is not None and rounds * most > epsilon * scale:
        yield "privacy: the staircase falls by more than epsilon"
    bounds = s if isinstance(s, md.Sensitivity) else md.Sensitivity(linf=s) if np.ndim(s) == 0 else None
    if law.vertices is not None:
        listed = s if bounds is None else [*changes(bounds, k, drawn(design), 200)]
        moved = np.array(listed, dtype=float) / law.widths
        norms = moved @ faces(moved).T
        if np.abs(norms).max() * (1 - 1e-9) > most or law.body.gauge(moved).max() * (1 - 1e-9) > most:
            yield "privacy: a change of the list loses more than epsilon"
        cost = listed_costs(law, 1 + (design.loss == "squared"))
        radius = float(k_norm_radius(k, 1 + (design.loss == "squared"), law))
        if abs(cost * radius / result.value - 1) > 0.1:
            yield f"a value of {result.value!r} where it is about {cost * radius:.4g}"
        return
    for v in changes(bounds, k, drawn(design), 12 if k < 100 else 3):
        if k_norm_gauge(law, v) > (most**2 if law.norm == 2 else most):
            yield f"privacy: a change of ℓ{law.norm:g} norm loses more than epsilon"
            break
    d, power = k if law.widths is None else sum(w > 0 for w in law.widths), 1 + (design.loss == "squared")
    weight = 1 if law.widths is None else mp.fsum(mp.mpf(w) ** power for w in law.widths) / k
    with mp.workdps(40):
        exact = k_norm_costs(d, power, law) * k_norm_radius(d, power, law) * weight
        if not exact * (1 - mp.mpf("1e-12")) <= result.value <= exact * (1 + mp.mpf("1e-9")):
            yield f"a value of {result.value!r} where it is {mp.nstr(exact, 18)}"
    if result.lower_bound > result.value:
        yield "a lower bound above the value"
    if k <= 5 and (law.gamma is None or law.largest < 5 * law.scale):  # beyond, what costs is seldom drawn
        draws = law.sample(np.zeros((20_000, k)), rng=1)
        errors = draws**2 if design.loss == "squared" else np.abs(draws)
        mean, spread = errors.mean(), errors.mean(axis=1).std() / math.sqrt(len(errors))
        if abs(mean - result.value) > 6 * spread:
            yield f"a value of {result.value} where draws give {mean} ± {spread}"


# The matrix mechanism -------------------------------------------------------------------------------------------


def queries(part: Any) -> Any:
    """The matrix of queries along one attribute, row by row."""
    n = part.size
    match part.kind:
        case "identity":
            return np.eye(n)
        case "total":
            return np.ones((1, n))
        case "prefix":
            return np.array([[float(j <= i) for j in range(n)] for i in range(n)])
        case "ranges":
            pairs = [(i, i + length) for length in range(1, n + 1) for i in range(n - length + 1)]
            return np.array([[float(a <= j < b) for j in range(n)] for a, b in pairs])
    return part.matrix


def asked(workload: Any) -> Any:
    blocks = []
    for block in workload.blocks:
        matrix = np.ones((1, 1))
        for part in block:
            matrix = np.kron(matrix, queries(part))
        blocks.append(matrix)
    return np.vstack(blocks)


def corner_changes(size: int, l0: int, signed: bool) -> Iterator[tuple[int, ...]]:
    for count in range(1, l0 + 1):
        for places in itertools.combinations(range(size), count):
            for signs in itertools.product((-1, 1) if signed else (1,), repeat=count):
                change = dict(zip(places, signs))
                yield tuple(change.get(i, 0) for i in range(size))


def matrix_costs(answers: Any, strategy: Any) -> tuple[Any, Any]:
    """The variances of the answers A R⁺ z, and A − A R⁺ R, to sixty digits."""
    with mp.workdps(60):
        a, r = mp.matrix(answers.tolist()), mp.matrix(strategy.tolist())
        factor = a * (r.T * (r * r.T) ** -1)
        rows = [mp.fsum(factor[i, j] ** 2 for j in range(factor.cols)) for i in range(factor.rows)]
        return rows, factor * r - a


def person_changes(design: Any) -> Any:
    """What one person does to the counts: of one who takes part several times, in any steps that may be together."""
    changes, size = design.changes, design.workload.size
    often = getattr(changes, "participation", None)
    if often is None:
        yield from corner_changes(size, changes.l0, changes.signed)
        return
    for d in corner_changes(size, often.times, signed=changes.signed):
        places = np.flatnonzero(d)
        gaps = np.diff(places)
        if (gaps >= often.apart).all() if often.apart else (gaps % often.every == 0).all():
            yield d


def far_apart(often: Any, exact: list[list[Fraction]]) -> tuple[list[tuple[int, ...]], Fraction]:
    """All patterns, and the most that one of them consumes of a strategy, the sizes of its products added: whatever the signs."""
    unit = math.lcm(*(v.denominator for row in exact for v in row))
    columns = list(zip(*[[int(v * unit) for v in row] for row in exact]))
    gram = [[sum(map(operator.mul, one, other)) for other in columns] for one in columns]
    found: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    for spent, chosen in found:  # which grows
        if len(chosen) < often.times:
            for j in range(chosen[-1] + often.apart if chosen else 0, len(gram)):
                found.append((spent + gram[j][j] + 2 * sum(abs(gram[j][i]) for i in chosen), (*chosen, j)))
    places = [tuple(int(i in chosen) for i in range(len(gram))) for _, chosen in found[1:]]
    return places, Fraction(max(spent for spent, _ in found), unit**2)


def matrix_mechanism(design: Any, result: Any) -> Faults:
    """All corners of the changes in fractions, δ to sixty digits; the errors to sixty; strategies nearby."""
    law, workload, a = result.mechanism, design.workload, Fraction(design.changes.most)
    answers, strategy = asked(workload), law.strategy
    if not np.allclose(answers, workload.dense()):
        yield "the workload is another"
    exact = [[Fraction(v) for v in row] for row in strategy.tolist()]
    if design.changes.listed:
        spent, corners = Fraction(0), list(person_changes(design))
        for d in corners:
            image = [sum((v * x for v, x in zip(row, d) if x), Fraction(0)) for row in exact]
            spent = max(spent, a * a * sum(v * v for v in image))
    else:
        corners, spent = far_apart(design.changes.participation, exact)
        spent *= a * a
    yield from over_budget(design.privacy, spent)
    rows, off = matrix_costs(answers, strategy)
    largest = design.loss == "largest"
    value = max(rows) if largest else mp.fsum(rows)
    if not value * (1 - mp.mpf("1e-11")) <= result.value <= value * (1 + mp.mpf("1e-9")):
        yield f"a value of {result.value!r} where it is {mp.nstr(value, 18)}"
    if max(abs(v) for v in off) > 1e-6 * np.abs(answers).max():
        yield "the answers are biased"
    if law.streams and (np.triu(strategy, 1).any() or np.triu(answers, 1).any()):
        yield "a stream that looks ahead"
    d, rng = np.array(corners, dtype=float), np.random.default_rng(0)
    budget = float(exactly(spent)) * (1 + 1e-12)  # what the strategy spends: the bound must hold for it
    budget = max(budget, design.budget)
    known = [np.eye(workload.size)]
    known += [
        (np.eye(len(strategy)) + 10.0**-k * rng.standard_normal((len(strategy),) * 2)) @ strategy
        for k in range(1, 7)
    ]
    for other in known:
        try:
            inverse = np.linalg.pinv(other, rcond=1e-13)
        except np.linalg.LinAlgError:
            continue
        scale = float(a) ** 2 * (((d @ other.T) ** 2).sum(axis=1).max()) / budget
        variances = ((answers @ inverse) ** 2).sum(axis=1) * scale
        if np.abs(answers @ inverse @ other - answers).max() > 1e-9 * np.abs(answers).max():
            continue
        cost = variances.max() if largest else variances.sum()
        if result.lower_bound > cost * (1 + 1e-7):
            yield f"a lower bound of {result.lower_bound} above the {cost} of another strategy"


# Many coordinates -----------------------------------------------------------------------------------------------


def cell_masses(law: Any, limit: int = 30_000) -> Any | None:
    """Log masses of the cells (a constant off), tails repeated; None where there are too many."""
    logs = [math.log(w) if w else -math.inf for w in law.weights]
    line = np.array(logs)
    if law.decay:
        n, fall = law.cells_per_shift, math.log(law.decay)
        count = min(math.ceil(60 / -fall), limit // n)
        left = [line[:n] + fall * k for k in range(count, 0, -1)]
        line = np.concatenate([*left, line, *(line[-n:] + fall * k for k in range(1, count + 1))])
    return line


def cell_losses(law: Any, line: Any, shift: float) -> Losses:
    """Losses of a cell law at a shift, in cells, whole or not: each cell covers parts of two."""
    whole, part = int(shift), shift - int(shift)
    if law.decay:  # what is beyond is no end of the law: its cells are dropped
        inside = len(line) - whole - 1
        here, first, second = line[:inside], line[whole : whole + inside], line[whole + 1 :]
    else:
        padded = np.append(line, np.full(whole + 1, -np.inf))
        here, first, second = line, padded[whole : whole + len(line)], padded[whole + 1 :]
    with np.errstate(invalid="ignore"):
        masses = np.exp(here - math.log(math.fsum(np.exp(line - line.max()))) - line.max())
        loss, weight = (
            np.concatenate([here - first, here - second]),
            np.concatenate([masses * (1 - part), masses * part]),
        )
    kept = weight > 0
    return loss[kept] - 1e-13, weight[kept] * (1 - 1e-12)


def law_losses(law: Any, ratio_of: float) -> Losses:
    """Losses of a named law at a shift in the query's unit."""
    shapes, _, scale = law.dist._parse_args(*law.args, **law.kwds)
    return density_losses(law.dist.name, tuple(map(float, shapes)), ratio_of / float(scale))


def steepest(law: Any) -> float:
    """The largest log-ratio of two densities up to a shift apart: between runs of equal height, tails by one repetition."""
    n, count = law.cells_per_shift, len(law.weights)
    runs = [(j, j + 1, math.log(w) if w else -math.inf) for j, w in enumerate(law.weights)]
    if law.decay:
        fall = math.log(law.decay)
        left = [(a - n, b - n, h + fall) for a, b, h in runs if b <= n]
        right = [(a + n, b + n, h + fall) for a, b, h in runs if a >= count - n]
        runs = [*left, *runs, *right]
    starts, stops, heights = map(np.array, zip(*runs))
    worst = 0.0
    for a, b, h in runs:
        seen = heights[(stops > a - n) & (starts < b + n)]
        worst = max(worst, h - float(seen.min()))
    return worst


def many_noise(design: Any, result: Any) -> Faults:
    """Coordinates at the corner, at one inner shift, and at two different ones; the cost; Laplace and Gaussian noise."""
    mechanism, top = result.mechanism, design.sensitivity
    k = getattr(design, "l0", None) or design.dimension
    if mechanism.dimension != design.dimension:
        yield "another number of coordinates"
    yield from many_value(design, result, k)
    epsilon, delta = design.privacy.epsilon, getattr(design.privacy, "delta", 0.0)
    law, rng = mechanism.law, drawn(design)
    if hasattr(law, "weights"):
        if Fraction(law.width) * law.cells_per_shift < Fraction(top):
            yield "privacy: made for smaller changes"
        if delta == 0:
            if k * steepest(law) > epsilon * (1 + 1e-12):
                yield f"privacy: {k} coordinates lose {steepest(law)} each of {epsilon}"
            return
        line = None if law.spike else cell_masses(law)
        if line is None:
            return

        def at(share: float) -> Losses:
            return cell_losses(law, line, share * top / law.width)
    else:

        def at(share: float) -> Losses:
            return law_losses(law, share * top)

    if delta == 0:
        worst = max(float(np.max(at(share)[0])) for share in (1.0, 0.5, rng.random()))
        if k * worst > epsilon * (1 + 1e-12):
            yield f"privacy: {k} coordinates lose {worst} each of {epsilon}"
    else:
        low, high = rng.random(), rng.random()
        some = rng.randint(1, max(k - 1, 1))
        for parts in (
            [(at(1.0), k)],
            [(at(high), k)],
            [(at(1.0), some), (at(low), k - some)],
            [(at(1.0), 1)],
        ):
            if (found := composed(parts, epsilon)) > delta * CLOSE:
                yield f"privacy: delta is at least {found!r} of {delta!r}"


def many_value(design: Any, result: Any, k: int) -> Faults:
    law, top = result.mechanism.law, design.sensitivity
    epsilon, delta = design.privacy.epsilon, getattr(design.privacy, "delta", 0.0)
    order = {"absolute": 1, "squared": 2}[design.loss]
    if hasattr(law, "weights") and not law.decay and not law.spike:
        edges = [Fraction(law.start) + Fraction(law.width) * j for j in range(len(law.weights) + 1)]
        total = Fraction(0)
        for w, a, b in zip(law.weights, edges, edges[1:]):
            pieces = [(a, Fraction(0)), (Fraction(0), b)] if a < 0 < b else [(a, b)]
            total += sum(w * abs(q ** (order + 1) - p ** (order + 1)) / (order + 1) for p, q in pieces) / (
                b - a
            )
        exact = total / sum(law.weights)
        if not exact <= Fraction(result.value) <= exact * (1 + Fraction(1, 10**9)):
            yield f"a value of {result.value!r} where it is {float(exact)!r}"
    unit = k * top / (epsilon - (math.log1p(-delta) if delta else 0.0))
    known = unit if order == 1 else 2 * unit**2
    if delta:
        low, high = 1e-9, 1000.0
        for _ in range(60):
            mu = math.sqrt(low * high)
            low, high = (mu, high) if gaussian_delta(epsilon, mu * mu) <= delta else (low, mu)
        sigma = math.sqrt(k) * top / low
        known = min(known, sigma * math.sqrt(2 / math.pi) if order == 1 else sigma**2)
    if result.lower_bound is not None and result.lower_bound > known * (1 + 1e-9):
        yield f"a lower bound of {result.lower_bound} above a known law's {known}"
    if isinstance(design, md.OptimalNoise) and result.value > known * (1 + 1e-6):
        yield f"a value of {result.value} where a known law costs {known}"


# Whole numbers ----------------------------------------------------------------------------------------------------


def optimal_noise(design: Any, result: Any) -> Faults:
    if points_of(design.privacy):
        yield from noise_of_points(design, result)
        return
    yield from (whole_noise if design.integer else many_noise)(design, result)


def bounded_count(design: Any, result: Any) -> Faults:
    """Privacy of every pair of rows in fractions; the least cost by a linear program."""
    weights, n, near = result.mechanism.weights, design.n, design.sensitivity
    table = [[Fraction(w, sum(row)) for w in row] for row in weights]
    epsilon, delta = design.privacy.epsilon, getattr(design.privacy, "delta", 0.0)
    with mp.workdps(60):
        growth = Fraction(mp.nstr(mp.exp(mp.mpf(epsilon)), 55))
    losses_of = {(x, z): epsilon for x in range(n + 1) for z in range(n + 1) if 0 < abs(x - z) <= near}
    for x, z in losses_of:
        over = sum((max(p - growth * q, Fraction(0)) for p, q in zip(table[x], table[z])), Fraction(0))
        if over > Fraction(delta) + Fraction(1, 10**50):
            yield f"privacy: delta is {float(over)!r} between {x} and {z}"
    power = 2 if design.loss == "squared" else 1
    costs = np.abs(np.subtract.outer(np.arange(n + 1.0), np.arange(n + 1.0))) ** power
    losses = (costs * np.array(table, dtype=float)).sum(axis=1)
    mean = losses.max() if design.prior is None else float(losses @ design.prior / np.sum(design.prior))
    if not mean * (1 - 1e-9) <= result.value <= mean * (1 + 1e-6):
        yield f"a value of {result.value!r} where it is {mean!r}"
    prior = None if design.prior is None else np.asarray(design.prior) / np.sum(design.prior)
    least = least_table(costs, losses_of, delta, prior)
    if least is not None and not result.lower_bound <= least * (1 + 1e-7) + 1e-9:
        yield f"a lower bound of {result.lower_bound!r} above the least, {least!r}"
    if least is not None and result.value < least * (1 - 1e-6) - 1e-9:
        yield f"a value of {result.value!r} below the least, {least!r}"


def whole_noise(design: Any, result: Any) -> Faults:
    """Privacy of every whole shift on what is not far out, and the cost; discrete Laplace noise, and a linear program of noise that ends."""
    law, most = result.mechanism, int(design.sensitivity)
    epsilon, delta = design.privacy.epsilon, getattr(design.privacy, "delta", 0.0)
    power = 2 if design.loss == "squared" else 1
    if hasattr(law, "weights"):
        far = max(abs(law.first), abs(law.first + len(law.weights))) + law.change
        far += 0 if not law.decay else law.change * min(math.ceil(45 / -math.log(law.decay)), 4000)
    else:
        law, far = law.law, math.ceil(60 * float(law.law.std())) + 60
    k = np.arange(-far, far + 1)
    masses = np.asarray(law.pmf(k))
    for shift in range(1, most + 1):
        for here, there in ((masses[:-shift], masses[shift:]), (masses[shift:], masses[:-shift])):
            over = float(np.maximum(here - math.exp(epsilon) * there, 0).sum())
            if over > delta * CLOSE + 1e-13:
                yield f"privacy: delta is at least {over!r} at a shift of {shift}"
    cost = float(masses @ np.abs(k).astype(float) ** power)
    if not cost * (1 - 1e-9) <= result.value <= cost * (1 + 1e-6):
        yield f"a value of {result.value!r} where it is {cost!r}"
    fall = math.exp(-epsilon / most)
    known = 2 * fall / ((1 - fall) * (1 + fall)) if power == 1 else 2 * fall / (1 - fall) ** 2
    places = np.abs(np.arange(-60.0, 61))
    ended = least_noise(places**power, [(epsilon, delta)], range(1, most + 1)) if delta else None
    known = known if ended is None else min(known, ended)
    if result.lower_bound > known * (1 + 1e-7) + 1e-12:
        yield f"a lower bound of {result.lower_bound!r} above what known noise costs, {known!r}"


def local_workload(design: Any, result: Any) -> Faults:
    """Privacy of every two categories in fractions; the variance of the stated decoder; a cone program over all rays for the bound."""
    law, size = result.mechanism, design.workload.size
    if hasattr(law, "levels"):
        law = as_table(law)
    table = [[Fraction(w, sum(row)) for w in row] for row in law.weights]
    with mp.workdps(60):
        growth = Fraction(mp.nstr(mp.exp(mp.mpf(design.privacy.epsilon)), 55))
    for column in zip(*table):
        if max(column) > growth * min(column) * (1 + Fraction(1, 10**50)):
            yield f"privacy: a report {float(max(column) / min(column))!r} times likelier"
    chances, asked = np.array(table, dtype=float), design.workload.apply(np.eye(size))
    off = np.abs(law.decoder @ chances.T - asked).max() / np.abs(asked).max()
    if off > 1e-6:
        yield f"bias: {off!r}"
    moments = chances @ (law.decoder**2).sum(axis=0)
    squares = (asked**2).sum(axis=0)
    cost = (moments - squares).max() if design.data == "worst" else moments.mean()
    if not abs(cost - result.value) <= 1e-5 * max(cost, squares.max()):
        yield f"a value of {result.value!r} where it is {cost!r}"
    if size > 4 or result.lower_bound is None:
        return
    least = least_report(asked, math.exp(design.privacy.epsilon), worst=design.data == "worst")
    room = 1e-5 * max(least, squares.max())
    if result.lower_bound > least + room:
        yield f"a lower bound of {result.lower_bound!r} above the least, {least!r}"
    if design.outputs is None and abs(result.value - least) > room:
        yield f"a value of {result.value!r} where the least is {least!r}"


def as_table(law: Any) -> LinearReport:
    """Sets of categories as a table of all of them."""
    k, (high, low), columns = law.size, law.levels, []
    totals = [
        math.comb(k, s) * (s * high + (k - s) * low) for s in law.sizes
    ]  # k times a row's sum, of each size
    for s, share, total in zip(law.sizes, law.shares, totals):
        rest = share * math.prod(totals) // total
        for chosen in itertools.combinations(range(k), s):
            columns.append([rest * (high if x in chosen else low) for x in range(k)])
    return LinearReport(law.workload, tuple(zip(*columns)))


def least_report(asked: Any, growth: float, *, worst: bool) -> float:
    """The cone program over all rays: shares of the rays, and for each its answer times its share."""
    rows, size = asked.shape
    sets = (np.arange(1, 2**size - 1)[:, None] >> np.arange(size)) & 1
    rays = 1 + (growth - 1) * sets
    scale = math.sqrt((asked**2).sum() / size) * max(1.0, 1 / (growth - 1))  # answers grow as ε falls
    shares, answers = cp.Variable(len(rays), nonneg=True), cp.Variable((len(rays), rows))
    spreads = cp.hstack([cp.quad_over_lin(answers[y], shares[y]) for y in range(len(rays))])
    unbiased = [answers.T @ rays == asked / scale, shares @ rays == 1]
    means = rays.T @ spreads
    cost = cp.max(means - (asked**2).sum(axis=0) / scale**2) if worst else cp.sum(means) / size
    problem = cp.Problem(cp.Minimize(cost), unbiased)
    problem.solve(solver="CLARABEL")
    return float(problem.solution.opt_val) * scale**2  # at shares of 0 the objective is no number

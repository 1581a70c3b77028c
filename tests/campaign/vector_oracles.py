"""What vectors under one budget claim, computed a second time: order statistics by quadrature, caps in mpmath, exact ratios."""

import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
from scipy import integrate, optimize, special

import mechdesign as md
from mechdesign.vectors.design import corner_reach, least_error
from tests.campaign.oracles import Faults, exactly

DIGITS = 40


# Order statistics ---------------------------------------------------------------------------------------------


def top_moment(m: int, k: int, power: int) -> float:
    """E Σ g^power over the k largest of m normals: a normal is among them if fewer than k others are above it."""

    def density(x: float) -> float:
        among = (
            special.betainc(m - k, k, special.ndtr(x))
            if x < 0
            else special.betaincc(k, m - k, special.ndtr(-x))
        )
        return float(m * x**power * math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * among)

    edges = [-13, -6, -3, -1, 0, 1, 2, 3, 4, 5, 6, 8, 13]
    return math.fsum(
        integrate.quad(density, a, b, epsabs=1e-14, epsrel=1e-12)[0] for a, b in itertools.pairwise(edges)
    )


def simplex_error(m: Any) -> float:
    """The worst expected squared error of a rotated simplex, from order statistics and the mean length of normals."""
    size, k, working = m.outputs, m.near, m.working
    more, less = (float(v) for v in m.probabilities)
    with mp.workdps(DIGITS):
        length = float(
            mp.sqrt(2) * mp.exp(mp.loggamma(mp.mpf(working + 1) / 2) - mp.loggamma(mp.mpf(working) / 2))
        )
        gain = float(exactly(m.probabilities[0] - m.probabilities[1]))
    wide = size / (size - 1)
    r = 1 / (gain * math.sqrt(wide) * top_moment(size, k, 1) / length)
    square = (less * size + (more - less) * wide * (top_moment(size, k, 2) - k / size)) / working
    return ball_error(m, r, square)


def nearest_moments(d: int, m: int, k: int) -> tuple[float, float, float]:
    """E Σ u, Σ (1 − u) and Σ u² over the k largest of m coordinates of uniform directions, from their density at angles; of corners at d = 2."""
    if d == 2:
        with mp.workdps(DIGITS):
            arc = mp.pi * k / m
            along, square = (mp.quad(lambda a, n=n: m / mp.pi * mp.cos(a) ** n, [0, arc]) for n in (1, 2))
            return float(along), float(k - along), float(square)
    places, weights = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(0, np.pi, 4001)
    angles = (edges[:-1, None] + (places + 1) / 2 * np.diff(edges)[:, None]).ravel()
    held = np.tile(weights / 2, 4000) * np.repeat(np.diff(edges), 16) * np.sin(angles) ** (d - 2)
    held *= m / held.sum()
    held *= special.betaincc(k, m - k, special.betainc((d - 1) / 2, (d - 1) / 2, np.sin(angles / 2) ** 2))
    return tuple(
        float(held @ value) for value in (np.cos(angles), 2 * np.sin(angles / 2) ** 2, np.cos(angles) ** 2)
    )  # type: ignore[return-value]


def directions_error(m: Any) -> float:
    """The worst expected squared error of random directions, a j-th of one message's."""
    more, less = m.probabilities
    total, short, squares = nearest_moments(m.working, m.outputs, m.near)
    over = (short + float(1 / ((more - less) / less) * m.outputs)) / total
    square = float(more - less) * squares + float(less) * m.outputs / m.working
    error = over * (2 + over)
    if m.inputs == "ball":
        across = (1 + over) ** 2 * (1 - square)
        error = max(across, error - across / m.dimension)
    return m.radius**2 * error / m.messages


def ball_error(m: Any, r: float, square: float) -> float:
    """Of unit answers stretched by r with E⟨u, y⟩² = square: what the dropped coordinate leaves of r², less ‖x‖²."""
    if m.inputs == "sphere":
        return m.radius**2 * (r * r - 1)
    at_zero = r * r * (1 - square)
    at_end = r * r * (1 - (1 - square) / (m.working - 1)) - 1
    return m.radius**2 * max(at_zero, at_end)


# Caps ---------------------------------------------------------------------------------------------------------


def cap_moments(d: int, w: Any) -> tuple[Any, Any]:
    """P[u₁ ≥ 1 − 2w] and E[u₁; u₁ ≥ 1 − 2w] of a uniform point of the sphere, of density (1 − u²)^((d − 3)/2)."""
    half, across = mp.mpf(d - 1) / 2, 4 * w * (1 - w)
    mass = mp.betainc(half, mp.mpf(1) / 2, 0, across, regularized=True) / 2
    return mass, across**half / ((d - 1) * mp.beta(half, mp.mpf(1) / 2))


def cap_shrinkage(d: int, gain: Any, w: Any) -> Any:
    mass, mean = cap_moments(d, w)
    return gain * mean / (gain * mass + 1)


def least_cap_error(d: int, epsilon: float) -> Any:
    """min over t of 1/s² − 1 at e^ε: where t = s, s is largest, and flat, so that half the digits of t are enough."""
    with mp.workdps(DIGITS + int(epsilon)):
        gain = mp.expm1(mp.mpf(epsilon))
        low, high = mp.mpf(-700), mp.log(mp.mpf(1) / 2)
        for _ in range(70):
            middle = (low + high) / 2
            over = cap_shrinkage(d, gain, mp.exp(middle)) > 1 - 2 * mp.exp(middle)
            low, high = (middle, high) if not over else (low, middle)
        return 1 / cap_shrinkage(d, gain, mp.exp((low + high) / 2)) ** 2 - 1


# Faults -------------------------------------------------------------------------------------------------------


def drawn_faults(m: Any, error: float) -> Faults:
    """Means and errors of draws at a vector of the largest length (of the ball: the worst of that and 0)."""
    if m.dimension > 70 or getattr(m, "outputs", 1) > 4096 or not 0.05 < error / m.radius**2 < 1e12:
        return
    n, direction = 4000, np.random.default_rng(m.dimension).standard_normal(m.dimension)
    x = np.tile(direction / np.linalg.norm(direction) * m.radius * (1 - 1e-12), (n, 1))
    draws = m.sample(x, rng=7)
    squares = ((draws - x) ** 2).sum(axis=1)
    stated = float(m.squared_error(x[0]))
    if abs(squares.mean() - stated) > 6 * squares.std() / math.sqrt(n) + 1e-9 * stated:
        yield f"an error of {stated} where draws give {squares.mean()} ± {squares.std() / math.sqrt(n)}"
    if getattr(m, "rotation", "exact") == "exact":
        along = (draws - x) @ (x[0] / m.radius)
        if abs(along.mean()) > 6 * along.std() / math.sqrt(n) + 1e-9 * m.radius:
            yield f"a bias of {along.mean()} ± {along.std() / math.sqrt(n)}"


def near(stated: float, exact: Any, room: float = 1e-9) -> bool:
    """Not below the exact error by more than doubles lose, nor far above it."""
    return bool(exact * (1 - 1e-11) - 1e-14 <= stated <= exact * (1 + room) + 1e-13)


def ratio_kept(ratio: Fraction, epsilon: Fraction) -> bool:
    with mp.workdps(320):
        return bool(exactly_long(ratio) <= mp.exp(exactly_long(epsilon)))


def exactly_long(value: Fraction) -> Any:
    return mp.mpf(value.numerator) / value.denominator


def sphere(m: Any, result: Any = None) -> Faults:
    """The ratio of two probabilities, their sum, what is drawn in integers, the error, draws."""
    more, less = m.probabilities
    if m.near * more + (m.outputs - m.near) * less != 1 or less <= 0:
        yield "probabilities that do not sum to 1"
    epsilon = Fraction(m.privacy.epsilon) / m.slots
    if not ratio_kept(more / less, epsilon):
        yield f"privacy: a ratio of {float(more / less)} at epsilon = {float(epsilon)}"
    table = m._choice  # integers, what release draws from
    counts = [table.cumulative[0], table.cumulative[1] - table.cumulative[0]]
    if not ratio_kept(Fraction(counts[0], m.near) / Fraction(counts[1], m.outputs - m.near), epsilon):
        yield "privacy: the integers that are drawn"
    exact = (simplex_error if isinstance(m, md.SphereQuantizer) else directions_error)(m)
    if not near(m.error / m.radius**2, exact / m.radius**2, 1e-7):
        yield f"an error of {m.error!r} where it is {exact!r}"
    yield from drawn_faults(m, m.error)


def cap(m: Any, result: Any = None) -> Faults:
    """Shrinkage and second moment to forty digits at its own height, the least error over all heights, draws."""
    depth = m._depth  # (1 − t)/2
    with mp.workdps(DIGITS + 2 * int(-math.log10(depth))):
        gain, d, t = exactly_long(m.power - 1), m.working, 1 - 2 * mp.mpf(depth)
        if mp.mpf(gain) > mp.expm1(mp.mpf(m.privacy.epsilon)):
            yield "privacy: more than e^epsilon"
        mass, mean = cap_moments(d, mp.mpf(depth))
        s = gain * mean / (gain * mass + 1)
        square = (gain * (mass + (d - 1) * t * mean) / d + mp.mpf(1) / d) / (gain * mass + 1)
        exact = (
            (1 / s**2 - 1)
            if m.inputs == "sphere"
            else max((1 - square) / s**2, (1 - (1 - square) / (d - 1)) / s**2 - 1)
        )
        stated = mp.mpf(m.error) / mp.mpf(m.radius) ** 2
        if not exact * (1 - mp.mpf("1e-9")) <= stated <= exact * (1 + mp.mpf("1e-9")):
            yield f"an error of {m.error!r} where it is {mp.nstr(exact * mp.mpf(m.radius) ** 2, 18)}"
        bound = least_error(m.dimension, m.privacy.epsilon, m.inputs, m.radius)
        least = least_cap_error(m.dimension, m.privacy.epsilon) * mp.mpf(m.radius) ** 2
        if bound > least:
            yield f"a lower bound of {bound!r} above the least error {mp.nstr(least, 18)}"
    yield from drawn_faults(m, m.error)


def sampled(m: Any, result: Any = None) -> Faults:
    """k times the exact loss of one coordinate; the error at inputs that may be the worst; draws."""
    law, k, d = m.one.law, m.slots, m.dimension
    knots = [Fraction(v) for v in law.knots]
    rows = [law.row(i, end) for i in range(len(knots) - 1) for end in (0, 1)]
    used = [column for column in zip(*rows) if max(column)]
    if not all(map(min, used)):
        yield "privacy: an output that some inputs never give"
        return
    ratio = max(max(column) / min(column) for column in used)
    if not ratio_kept(ratio, Fraction(m.privacy.epsilon) / k):
        yield f"privacy: a coordinate loses {math.log(float(ratio))} of {m.privacy.epsilon}/{k}"
    if m.bits is not None and k * m.code_bits > m.bits:
        yield "more bits than allowed"
    bins = [Fraction(b) for b in law.bins]
    t = np.unique(np.concatenate([np.linspace(-1, 1, 2001), np.array(knots, dtype=float)]))
    t = t[np.abs(t) <= 1]
    ends = [float(v) for v in knots]
    first = [float(sum(p * b * b for p, b in zip(row, bins))) for row in rows]
    moment = np.zeros(len(t))
    for i, (a, b) in enumerate(itertools.pairwise(ends)):  # where a law jumps, the dearer side
        inside = (t >= a) & (t <= b)
        up = (t[inside] - a) / (b - a)
        moment[inside] = np.maximum(moment[inside], first[2 * i] * (1 - up) + first[2 * i + 1] * up)
    each = d / k * moment - t**2
    if m.inputs == "box":
        known = d * each.max()
    else:
        at = dict(zip(t.tolist(), each.tolist()))
        centre, known = max(each[np.argmin(np.abs(t))], 0.0), 0.0
        for j in {1, 2, 3, d // 2, d} & set(range(1, d + 1)):
            level = max(v for v in at if v <= 1 / math.sqrt(j))
            known = max(known, j * at[level] + (d - j) * centre)
    if m.error / m.radius**2 < known * (1 - 1e-11):
        yield f"an error of {m.error!r} where an input has {known * m.radius**2!r}"
    if m.inputs == "box" and m.error / m.radius**2 > known * (1 + 1e-4) + 1e-12:
        yield f"an error of {m.error!r} where no input has more than {known * m.radius**2!r}"
    if d <= 10:
        n, x = 4000, np.random.default_rng(d).uniform(-1, 1, d) * m.radius / math.sqrt(d)
        draws = m.sample(np.tile(x, (n, 1)), rng=3)
        off, room = draws.mean(axis=0) - x, draws.std(axis=0) / math.sqrt(n)
        if (np.abs(off) > 6 * room + 1e-9 * m.radius).any():
            yield f"a bias of {off} ± {room}"
        squares, stated = ((draws - x) ** 2).sum(axis=1), float(m.squared_error(x))
        if abs(squares.mean() - stated) > 6 * squares.std() / math.sqrt(n) + 1e-9 * stated:
            yield f"an error of {stated} where draws give {squares.mean()}"


def signs(m: Any) -> Faults:
    """Texts listed: their probabilities, the agreement of a sign with its answer, the error that follows."""
    b, (more, less) = m.bits, m.probabilities
    if m.near * more + (m.outputs - m.near) * less != 1 or less <= 0:
        yield "probabilities that do not sum to 1"
    if not ratio_kept(more / less, Fraction(m.privacy.epsilon)):
        yield f"privacy: a ratio of {float(more / less)} at epsilon = {m.privacy.epsilon}"
    apart = sorted(bin(v).count("1") for v in range(m.outputs))
    agreement = sum((more if i < m.near else less) * (b - 2 * v) for i, v in enumerate(apart)) / b
    exact = m.dimension**2 / (b * agreement**2)
    if not near(m.error / m.radius**2, float(exact)):
        yield f"an error of {m.error!r} where it is {float(exact)!r}"


def reach_is_proved(epsilon: float, s: float) -> bool:
    """Whether (e^ε − 1) E(Z − s)₊ ≤ s for every ⟨u, X⟩ = Z: by two points, by moments, or by cubes of normal variables."""
    gain = math.expm1(epsilon)
    least = (1 - s) / 2 if s <= 0.5 else math.inf
    for p in np.linspace(2, 4, 81):
        moment = 2 ** (p / 2) * math.gamma((p + 1) / 2) / math.sqrt(math.pi)
        least = min(least, moment / 2 * (p - 1) ** (p - 1) / (p**p * s ** (p - 1)))
    x = np.linspace(-9, 40, 49_001)
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])

    def by_cubes(t: float) -> float:
        return math.log(4 / 27 * float(density @ np.maximum(x - t, 0) ** 3) / (s - t) ** 2)

    ends = (max(-2.0, s - 3), s - 1e-3)
    least = min(least, math.exp(optimize.minimize_scalar(by_cubes, bounds=ends, method="bounded").fun))
    return gain * least <= s * (1 + 1e-3)


def farthest_mean(d: int, epsilon: float) -> float:
    """The length of the mean of a uniform corner given the worst answer, from below: half-spaces, one after the other."""
    corners = np.array(list(itertools.product([-1.0, 1.0], repeat=d)))
    best = 0.0
    for start in range(8):
        u = np.random.default_rng(start).standard_normal(d) if start else np.eye(d)[0]
        for _ in range(20):
            order = np.argsort(-(corners @ u))
            sums = np.cumsum(corners[order], axis=0)  # the whole sums to 0
            count = np.arange(1, len(corners) + 1)[:, None]
            means = math.expm1(epsilon) * sums / (math.expm1(epsilon) * count + len(corners))
            lengths = np.linalg.norm(means, axis=1)
            best, u = max(best, float(lengths.max())), means[np.argmax(lengths)]
    return best


def vector(design: Any, result: Any) -> Faults:
    """The mechanism's own faults; the bound against the cap, or against a box's corners; the value against one bit of a simplex."""
    m = result.mechanism
    own = {md.SphereQuantizer: sphere, md.RandomDirections: sphere, md.SampledCoordinates: sampled}.get(
        type(m), signs
    )
    yield from own(m)
    if m.privacy.epsilon > design.privacy.epsilon or m.dimension != design.dimension:
        yield "another budget or another dimension"
    turned_nearly = getattr(m, "rotation", "exact") == "fast"
    error = m.radius**2 * (m.factor**2 + 1) if turned_nearly else m.error
    if not near(result.value / design.radius**2, error / design.radius**2):
        yield "another value than the mechanism's error"
    unclipped = least_error(design.dimension, design.epsilon, design.inputs, design.radius)
    with mp.workdps(DIGITS):
        least = least_cap_error(design.dimension, design.epsilon) * mp.mpf(design.radius) ** 2
        if design.inputs == "box":
            s = corner_reach(design.epsilon)
            if not reach_is_proved(design.epsilon, s) or (
                design.dimension <= 10 and farthest_mean(design.dimension, design.epsilon) > s * (1 + 1e-12)
            ):
                yield f"an answer moves the mean of corners by more than {s}"
            each = min(s**2 / design.dimension, math.tanh(design.epsilon / 2) ** 2)
            least = max(least, mp.mpf(design.radius) ** 2 * design.dimension * (1 / each - 1))
        if max(result.lower_bound, unclipped) > least:
            yield f"a lower bound of {result.lower_bound!r} above the least error {mp.nstr(least, 18)}"
    if unclipped > result.value * (1 + 1e-9):
        yield f"a lower bound of {unclipped} above the value"
    reach = design.radius * (math.sqrt(design.dimension) if design.inputs == "box" else 1)
    kind = "sphere" if design.inputs == "sphere" else "ball"
    one = md.SphereQuantizer(design.dimension, 1, design.privacy, kind, reach)
    most = simplex_error(one) * (1 + 1e-9)
    if design.rotation == "fast":  # r² + R², where the exact error of a ball is r² (1 - 1/D) at least
        most = most * (1 + 1 / design.dimension) + 2 * reach**2
    if result.value > most:
        yield f"a value of {result.value} where one bit has {one.error}"


# Item-wise releases -------------------------------------------------------------------------------------------


def moved(first: tuple[int, ...], second: tuple[int, ...], distances: Any) -> float:
    """The earth mover's distance of two lists of one length, by assignment."""
    table = distances[np.ix_(first, second)]
    rows, columns = optimize.linear_sum_assignment(table)
    return float(table[rows, columns].sum()) / len(first)


def user_histogram(design: Any, result: Any) -> Faults:
    """Every pair of one user's datasets: what changes below every edge against α EMD; the value from the law of the noise, above the bound."""
    law, n, m = result.mechanism, design.space.size, design.items
    ways: list[set[int]] = []
    for point in range(n):
        way, at = set(), point
        while law.parents[at] >= 0:
            way.add(at)
            at = law.parents[at]
        ways.append(way)
    edges = [e for e in range(n) if law.parents[e] >= 0]
    for first, second in itertools.combinations(itertools.combinations_with_replacement(range(n), m), 2):
        counts = [[sum(e in ways[x] for x in held) for e in edges] for held in (first, second)]
        loss = sum(abs(a - b) * law.losses[e] for a, b, e in zip(*counts, edges)) / 2**50
        if loss > design.privacy.alpha * moved(first, second, design.space.distances) * (1 + 1e-12):
            yield f"privacy: data {first} and {second}"
    sizes = []
    for e in edges:
        tau = law.losses[e] / 2**50
        steps = np.arange(1, min(10**6, int(40 / tau) + 3))
        weights = np.exp(-tau * steps)
        mean = 2 * (steps * weights).sum() / (1 + 2 * weights.sum())
        sizes.append(mean * float(design.space.distances[e, law.parents[e]]))
    if abs(sum(sizes) / (m * design.users) - result.value) > 1e-4 * result.value:
        yield f"value: {result.value!r} of {sum(sizes) / (m * design.users)!r}"

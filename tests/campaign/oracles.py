"""What each kind of result claims, computed a second time from the definition: SciPy, fractions and mpmath, none of the package.

A function looks for what is wrong with a result and yields a sentence for each fault. Tolerances are those of the
oracle's own arithmetic (a linear program's 1e-7, the width of a cell), never of the claim: privacy is compared exactly.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
from scipy import optimize, sparse

import mechdesign as md
from mechdesign.problem.priors import ClippedPrior, EmpiricalPrior, TruncatedPrior
from tests.accounting import reference
from tests.programs import least_table

Faults = Iterator[str]
CLOSE = 1e-6  # of the largest loss: what SciPy's linear programs leave open


# Quantizers -------------------------------------------------------------------------------------------------


def cells(prior: Any) -> tuple[Any, Any, bool]:
    """Cells of a prior, narrow where its mass is: their ends (n, 2), their masses, whether these are points."""
    if isinstance(prior, EmpiricalPrior):
        points, counts = np.unique(prior.samples, return_counts=True)
        return np.column_stack([points, points]), counts / counts.sum(), True
    law, (low, high) = prior.law, prior.support
    ends = law.cdf(low), law.sf(high)
    levels = np.concatenate([np.geomspace(1e-12, 1e-3, 60), np.linspace(1e-3, 1, 400, endpoint=False)])
    inner = np.concatenate([law.ppf(ends[0] + (1 - ends[0] - ends[1]) * levels),
                            law.isf(ends[1] + (1 - ends[0] - ends[1]) * levels)])  # fmt: skip
    edges = np.concatenate([np.linspace(low, high, 401), inner[np.isfinite(inner)]])
    edges = np.unique(np.clip(edges, low, high))
    right = edges[:-1] > law.median()
    masses = np.where(right, law.sf(edges[:-1]) - law.sf(edges[1:]), law.cdf(edges[1:]) - law.cdf(edges[:-1]))
    pairs = np.column_stack([edges[:-1], edges[1:]])
    if isinstance(prior, TruncatedPrior):
        masses = masses / masses.sum()
    elif isinstance(prior, ClippedPrior):
        pairs = np.concatenate([pairs, [[low, low], [high, high]]])
        masses = np.concatenate([masses, ends])
    return pairs, masses, False


def losses(loss: Any, errors: Any) -> Any:
    found = md.Loss.of(loss)
    return found.absolute * np.abs(errors) + found.squared * errors**2


def quantizer(design: Any, result: Any) -> Faults:
    """Privacy and bias at points of the range, the value from the prior's cells, the bound by a linear program."""
    mechanism, prior, tolerance = result.mechanism, md.Prior.of(design.prior), 1e-9
    low, high = mechanism.input_range
    outputs = np.asarray(mechanism.bins, dtype=float)
    if isinstance(design.privacy, md.PureDP):
        table = mechanism.probabilities(np.unique(np.concatenate([
            np.linspace(low, high, 201), outputs[(outputs > low) & (outputs < high)]])))  # fmt: skip
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.nanmax(table.max(axis=0) / table.min(axis=0))
        if ratio > math.exp(design.privacy.epsilon) * (1 + tolerance):
            yield f"privacy: a ratio of {ratio} at epsilon = {design.privacy.epsilon}"
    if getattr(design, "objective", "mean") == "mean" and hasattr(mechanism, "probabilities"):
        pairs, masses, points = cells(prior)
        first, last, middle = (mean_loss(mechanism, design.loss, x) for x in (*pairs.T, pairs.mean(axis=1)))
        off = np.maximum(np.abs(first - middle), np.abs(last - middle))
        estimate, room = float(masses @ middle), float(masses @ off) * (0 if points else 1.5)
        if not abs(result.value - estimate) <= room + 1e-7 * float(middle.max()):
            yield f"a value of {result.value} where the prior's cells give {estimate} ± {room}"
    yield from quantizer_program(design, result, prior, outputs, (low, high))


def mean_loss(mechanism: Any, loss: Any, x: Any) -> Any:
    return (mechanism.probabilities(x) * losses(loss, np.asarray(mechanism.bins)[None, :] - x[:, None])).sum(
        axis=1
    )


def quantizer_program(design: Any, result: Any, prior: Any, outputs: Any, ends: Any) -> Faults:
    """All mechanisms with these outputs that are linear between knots: no bound may be above the best of them."""
    if not isinstance(design.privacy, md.PureDP) or getattr(design, "max_mse", None) is not None:
        return
    if isinstance(design, md.BiasedSelection) or len(outputs) > 40:
        return
    if (
        math.exp(-design.privacy.epsilon) < 1e-6
    ):  # a row e^-ε h ≤ p is within a float solver's tolerance of 0 ≤ p
        return
    pairs, masses, points = cells(prior)
    x = np.unique(np.concatenate([np.linspace(*ends, 9), pairs[:, 0] if points else []]))
    worst, bound = getattr(design, "objective", "mean") == "worst", result.lower_bound
    table = losses(design.loss, outputs[None, :] - x[:, None])
    cost, room = table, 0.0
    if not worst:
        middle = pairs.mean(axis=1)
        at = np.clip(np.searchsorted(x, middle, side="right") - 1, 0, len(x) - 2)
        up = (middle - x[at]) / (x[at + 1] - x[at])
        each = masses[:, None] * losses(design.loss, outputs[None, :] - middle[:, None])
        cost = np.zeros_like(table)
        np.add.at(cost, at, (1 - up)[:, None] * each)
        np.add.at(cost, at + 1, up[:, None] * each)
        steep = md.Loss.of(design.loss)
        slope = steep.absolute + 2 * steep.squared * float(np.abs(outputs[None, :] - x[:, None]).max())
        # the law between two knots is off by up to (half) a cell's share of it, which changes the loss by its range
        shares = np.ptp(pairs, axis=1) / 2
        spread = np.ptp(table, axis=1).max() / np.diff(x).min()
        room = 0.0 if points else float(masses @ shares) * (slope + spread)
    found = least_loss(design, x, outputs, cost, worst)
    if found is None:
        return
    close = room + CLOSE * float(table.max())
    one_alphabet = isinstance(design, md.OptimalQuantizer)
    if bound is not None and one_alphabet and not worst and bound > found + close:
        yield f"a lower bound of {bound} above {found} ± {close}, which a mechanism linear between knots reaches"
    if (points or worst) and result.value < found - close:
        yield f"a value of {result.value} below {found}, the least at the knots alone"


def least_loss(design: Any, x: Any, outputs: Any, cost: Any, worst: bool) -> float | None:
    """The linear program over p(x_k, i) and the largest probability h_i of each output: e^-ε h ≤ p ≤ h."""
    knots, m = cost.shape
    size, bias = knots * m, getattr(design, "max_bias", 0.0)
    every = sparse.identity(size, format="csr")
    tops = sparse.kron(np.ones((knots, 1)), sparse.identity(m), format="csr")
    none = sparse.csr_matrix((size, 1))
    rows = [
        sparse.hstack([every, -tops, none]),
        sparse.hstack([-every, math.exp(-design.privacy.epsilon) * tops, none]),
    ]
    limits = [np.zeros(2 * size)]
    mean = sparse.hstack(
        [sparse.kron(sparse.identity(knots), outputs[None, :]), sparse.csr_matrix((knots, m + 1))]
    )
    ones = sparse.hstack(
        [sparse.kron(sparse.identity(knots), np.ones((1, m))), sparse.csr_matrix((knots, m + 1))]
    )
    equal, right = [ones], [np.ones(knots)]
    if bias:
        rows += [mean, -mean]
        limits += [x + bias, bias - x]
    else:
        equal.append(mean)
        right.append(x)
    objective = np.concatenate([cost.ravel(), np.zeros(m + 1)])
    if worst:
        each = sparse.hstack([sparse.block_diag([row[None, :] for row in cost]), sparse.csr_matrix((knots, m)),
                              -np.ones((knots, 1))])  # fmt: skip
        rows.append(each)
        limits.append(np.zeros(knots))
        objective = np.append(np.zeros(size + m), 1.0)
    found = optimize.linprog(
        objective, sparse.vstack(rows), np.concatenate(limits), sparse.vstack(equal), np.concatenate(right),
        bounds=(0, None), options={"time_limit": 5.0},
    )  # fmt: skip
    return float(found.fun) if found.status == 0 else None


# Channels ---------------------------------------------------------------------------------------------------


def channel_ratio(matrix: Any, distances: Any) -> float:
    """The largest |log p(x, y)/p(z, y)| / d(x, z) of a table, at points that are apart."""
    logs = np.log(matrix)
    apart = distances > 0
    gaps = np.abs(logs[:, None, :] - logs[None, :, :]).max(axis=2)
    return float((gaps[apart] / distances[apart]).max(initial=0.0))


def channel(design: Any, result: Any) -> Faults:
    """Privacy of the table shown; the linear program of the channel."""
    distances, table = design.space.distances, result.mechanism.dense
    if len(table) > 1 and table.min() > 1e-290:
        ratio = channel_ratio(table, distances)
        least = float(distances[distances > 0].min(initial=math.inf))
        if ratio > design.alpha * (1 + 1e-9) + 1e-14 / least:
            yield f"privacy: {ratio} at alpha = {design.alpha}"
    weights, costs = design.weights / np.sum(design.weights), design.losses
    losses = {(x, z): design.alpha * d for (x, z), d in np.ndenumerate(distances) if x != z}
    least = least_table(costs, losses, prior=weights) if losses else None
    if least is None:
        return
    room = CLOSE * float(costs.max())
    if result.lower_bound is not None and result.lower_bound > least + room:
        yield f"a lower bound {result.lower_bound} above the optimum {least}"
    if result.value < least - room:
        yield f"a value {result.value} below the optimum {least}"


# Noise ------------------------------------------------------------------------------------------------------


def gaussian_delta(epsilon: float, squares: Any) -> Any:
    """δ(ε) of Gaussian noise, from the sum of (Δ/σ)², to sixty digits."""
    with mp.workdps(60):
        mu, e = mp.sqrt(squares), mp.mpf(epsilon)
        first, second = (mp.erfc((e / mu + sign * mu / 2) / mp.sqrt(2)) / 2 for sign in (-1, 1))
        return first - mp.exp(e) * second


def exactly(value: Fraction) -> Any:
    with mp.workdps(60):
        return mp.mpf(value.numerator) / value.denominator


def over_budget(notion: Any, spent: Fraction) -> Faults:
    """`spent`: the sum of λ/β for Laplace noise, of (λ/σ)² for Gaussian."""
    if isinstance(notion, md.ZeroConcentratedDP):
        if spent > 2 * Fraction(notion.rho):
            yield f"privacy: rho = {float(spent) / 2!r} of {notion.rho!r}"
    elif isinstance(notion, md.PureDP) or notion.delta == 0:
        if spent > Fraction(notion.epsilon):
            yield f"privacy: {float(spent)!r} of epsilon = {notion.epsilon!r}"
    elif spent and (delta := gaussian_delta(notion.epsilon, exactly(spent))) > notion.delta:
        yield f"privacy: delta = {mp.nstr(delta, 20)} of {notion.delta!r}"


def allocation(design: Any, result: Any) -> Faults:
    """The budget in fractions; the closed form of the least loss where there are no limits, weights or groups."""
    lam = [Fraction(v) for v in design.sensitivities.tolist()]
    scales = [Fraction(v) for v in result.mechanism.scales.tolist()]
    gaussian, p = design.noise == "gaussian", design.loss
    power = 2 if gaussian else 1
    yield from over_budget(
        design.privacy, sum(((v / s) ** power for v, s in zip(lam, scales) if v), Fraction(0))
    )
    if any(getattr(design, name) is not None for name in ("weights", "lower", "upper", "groups")):
        return
    with mp.workdps(40):
        spend = mp.fsum(mp.mpf(float(v)) ** (mp.mpf(power * p) / (power + p)) for v in lam)
        each = (mp.sqrt(2 / mp.pi) if p == 1 else 1) if gaussian else mp.factorial(p)
        least = each * spend ** (1 + mp.mpf(p) / power) / mp.mpf(design.budget) ** (mp.mpf(p) / power)
        if not least * (1 - mp.mpf("1e-9")) <= result.value <= least * (1 + mp.mpf("1e-6")):
            yield f"a value of {result.value} where the closed form is {mp.nstr(least, 15)}"
        if result.lower_bound is not None and result.lower_bound > least * (1 + mp.mpf("1e-9")):
            yield f"a lower bound of {result.lower_bound} above the closed form {mp.nstr(least, 15)}"


def correlated(design: Any, result: Any) -> Faults:
    """The stretch of every vector by a pseudo-inverse; the cost of independent noise, which is feasible."""
    if design.workload is not None:
        from tests.campaign import noise_oracles  # which imports this module

        yield from noise_oracles.matrix_mechanism(design, result)
        return
    if design.change_set.count > 10_000:
        return
    vectors, covariance = design.change_set.vectors(), result.mechanism.covariance
    size = np.sqrt(np.diag(covariance))
    used = size > 0
    if np.any(vectors[:, ~used]):
        yield "privacy: a coordinate that changes has no noise"
        return
    scaled = covariance[np.ix_(used, used)] / np.outer(size[used], size[used])
    values, basis = np.linalg.eigh(scaled)
    kept = values > 1e-11 * values[-1]
    turned = (vectors[:, used] / size[used]) @ basis
    if values[kept].min() > 1e-8 * values[-1]:
        spent = (turned[:, kept] ** 2 / values[kept]).sum(axis=1)
        if spent.max() > design.budget * (1 + 1e-5):
            yield f"privacy: {spent.max()} of {design.budget}"
        if not kept.all() and np.abs(turned[:, ~kept]).max() > 1e-5 * np.abs(turned).max():
            yield "privacy: a direction without noise"
    largest = float((vectors**2).sum(axis=1).max())
    plain = largest * np.linalg.matrix_rank(vectors) / design.budget
    if result.status == "best of its class" and result.value > plain * (1 + 1e-6):
        yield f"a value of {result.value}: independent noise costs {plain}"
    if result.lower_bound is not None and result.lower_bound > plain * (1 + 1e-9):
        yield f"a lower bound of {result.lower_bound} above what independent noise costs, {plain}"


def calibration(design: Any, result: Any) -> Faults:
    """δ to sixty digits in one dimension, in closed form for Gaussian and Laplace noise, Rényi's by quadrature."""
    law, notion, k = result.mechanism.law, design.privacy, design.dimension
    name, change = law.dist.name, design.sensitivity
    if name in ("norm", "laplace"):
        scale = law.std() if name == "norm" else law.dist._parse_args(*law.args, **law.kwds)[2]
        ratio = Fraction(change) / Fraction(float(scale))
        if name == "norm" or isinstance(notion, md.PureDP):
            yield from over_budget(notion, k * (ratio**2 if name == "norm" else ratio))
    if isinstance(notion, md.ApproximateDP) and notion.delta and k == 1:
        exact = reference.delta(law, change, notion.epsilon)
        if exact > notion.delta:
            yield f"privacy: delta = {mp.nstr(exact, 20)} of {notion.delta!r} with {name}"
    if isinstance(notion, md.ZeroConcentratedDP) and hasattr(law.dist, "_logpdf"):
        edges = np.linspace(-60, 60, 40_001) * float(law.std())
        if name == "staircase":  # cells between all the steps of both densities
            (_, gamma), _, step = law.dist._parse_args(*law.args, **law.kwds)
            steps = step * np.arange(-(reach := math.ceil(60 * float(law.std()) / step)), reach + 1)
            edges = np.add.outer(steps, [-gamma * step, 0.0, gamma * step]).ravel()
        edges = np.unique(np.concatenate([edges, edges - change, [0.0, -change]]))
        nodes, weights = np.polynomial.legendre.leggauss(3)
        width = np.diff(edges)[:, None] / 2
        t, width = edges[:-1, None] + width * (1 + nodes), width * weights
        far = np.maximum(law.logpdf(t), -1e5), np.maximum(law.logpdf(t + change), -1e5)
        for order in (1.5, 2.0, 8.0):
            total = float(np.sum(np.exp(order * far[0] + (1 - order) * far[1]) * width))
            renyi = math.log(total) / (order - 1)
            if k * renyi > notion.rho * order * (1 + 1e-6) + k * 1e-9:
                yield f"privacy: Rényi divergence {renyi} of order {order} at rho = {notion.rho} with {name}"


def optimal_noise(design: Any, result: Any) -> Faults:
    """Laplace noise, truncated Laplace noise (Geng et al.), and no noise with probability δ, are all feasible."""
    epsilon, delta, unit = design.epsilon, design.delta, design.sensitivity / design.epsilon
    wanted = md.Loss.of(design.loss)
    known = (1 - delta) * (wanted.absolute * unit + wanted.squared * 2 * unit**2)
    if delta and epsilon < 700:
        reach = math.log1p(math.expm1(epsilon) / (2 * delta))  # in units
        with mp.workdps(30):
            moments = [mp.quad(lambda t, p=p: t**p * mp.exp(-t), [0, reach]) for p in (0, 1, 2)]
            mean, square = (float(moments[p] / moments[0]) for p in (1, 2))
        known = min(known, wanted.absolute * mean * unit + wanted.squared * square * unit**2)
    if result.lower_bound is not None and result.lower_bound > known * (1 + 1e-12):
        yield f"a lower bound of {result.lower_bound} above a known mechanism's {known}"
    spent = float(result.mechanism.privacy_profile(epsilon))
    if spent > delta:
        yield f"privacy: delta = {spent!r} of {delta!r}"


# Releases of user data --------------------------------------------------------------------------------------


def linear_release(design: Any, result: Any) -> Faults:
    """The change of the answer between any two points, against α times their distance, in fractions."""
    values, distances, n = design.query.values, design.query.space.distances, design.users
    scale, alpha = Fraction(design.scale), Fraction(design.alpha)
    for x in range(len(values)):
        for z in range(x):
            change = [(Fraction(a) - Fraction(b)) / n for a, b in zip(values[x].tolist(), values[z].tolist())]
            apart = Fraction(float(distances[x, z]))
            if design.gaussian:
                squares = exactly(sum(c * c for c in change) / scale**2)
                loss = float(alpha * apart)
                if squares and gaussian_delta(loss, squares) > design.delta:
                    yield f"privacy: more than delta = {design.delta!r} between the points {x} and {z}"
            elif design.norm == 2:
                if sum(c * c for c in change) > (alpha * scale * apart) ** 2:
                    yield f"privacy: points {x} and {z}"
            else:
                size = sum(map(abs, change)) if design.norm == 1 else max(map(abs, change))
                if size > alpha * scale * apart:
                    yield f"privacy: points {x} and {z}"


def itemwise_release(design: Any, result: Any) -> Faults:
    """The channel's own loss, and composition over the items, which nothing may be worse than."""
    distances = design.space.distances
    table = np.array(design.channel.apply(np.eye(design.space.size)))
    if table.min() > 1e-290:
        ratio = channel_ratio(table, distances)
        least = float(distances[distances > 0].min(initial=math.inf))
        seen = ratio * (1 - 1e-9) - 1e-14 / least  # the table is in doubles, and its points may be close
        if seen > design.item_alpha:
            yield f"privacy: the channel loses {ratio} where {design.item_alpha} is stated"
        if design.accounting == "composition" and design.alpha < design.items * seen:
            yield f"privacy: alpha = {design.alpha} for {design.items} items at {ratio}"


def sampling_reduction(design: Any, result: Any) -> Faults:
    """Chernoff's bound of what the reduction says fails with probability at most `failure`, to forty digits."""
    with mp.workdps(40):
        a, r = (mp.mpf(v) / mp.mpf(design.diameter) for v in (design.stretched, design.radius))
        if a < 1:
            kl = a * mp.log(a / r) + (1 - a) * mp.log((1 - a) / (1 - r))
            if mp.exp(-design.samples * kl) > design.failure:
                yield f"privacy: fails with probability {mp.nstr(mp.exp(-design.samples * kl), 20)}"
        if design.guarantee.alpha < mp.mpf(design.alpha) * a / r:
            yield f"alpha = {design.guarantee.alpha} is too small"

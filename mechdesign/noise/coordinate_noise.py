r"""Noise with its own law on each coordinate, of one family or of two types, under one exactly composed requirement.

**Any family, with parameters of its own on each coordinate.** Coordinate i, which changes by at most :math:`\lambda_i`,
gets :math:`\lambda_i U_i` with :math:`U_i` private for a change of 1: only shapes and scales of the :math:`U_i` are
searched. At order :math:`1 + \theta` of the Rényi divergence the problem separates:

.. math:: \min \sum_i w_i \lambda_i^p E|U_i|^p \quad\text{s.t.}\quad
   \sum_i \kappa_i(\theta) \le \theta\varepsilon + \log\delta + \log(1 + \theta) + \theta\log(1 + 1/\theta),

:math:`\kappa_i(\theta) = \log E e^{\theta L_i}` of the privacy loss (the conversion: Canonne, Kamath and Steinke 2020,
Proposition 12). One multiplier chooses a shape and a scale for each of at most 12 levels of :math:`w_i \lambda_i^p`, on
a grid that is then refined around the choice. Under pure privacy :math:`\kappa_i` is the largest loss. All scales are
multiplied by the least common factor at which the exact composition keeps the requirement.

**A type for each coordinate** is chosen by the same search, from Laplace and Gaussian units: Laplace noise where one
coordinate's loss matters alone, Gaussian where many add up. Gaussian noise costs half of what Laplace noise does where
losses are small and many; Laplace noise has no tail of losses, and is better where few coordinates carry them. The
Gaussian coordinates share what they consume as in P3. Laplace noise on all coordinates keeps Corollary 6. The cheapest
of these and of both pure types is returned: a search, with no lower bound. On the deployed grid (results/ablations) one
of six designs costs 65% more with the better pure type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import logsumexp

from mechdesign.accounting.interval import upper_delta
from mechdesign.accounting.losses import AtomicLoss, loss_of
from mechdesign.checks import Checked, array, field, one_of, settle
from mechdesign.errors import DesignError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.exact import excess, least_kept, round_up
from mechdesign.evidence.proofs import PROVED
from mechdesign.evidence.results import Accuracy
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.additive import AdditiveNoise
from mechdesign.noise.calibration import Calibration
from mechdesign.noise.calibration_search import budget_of, consumed, cost_of
from mechdesign.noise.families import FAMILIES, Family
from mechdesign.noise.release import ExactNoise, lattice_of
from mechdesign.noise.vector_noise import MixedNoise, PerCoordinate, profile_vector
from mechdesign.problem.law_moments import absolute_moment
from mechdesign.problem.privacy import Consumption, Pointwise, PureDP, pairs_of
from mechdesign.solvers import Deadline
from mechdesign.typing import Array, Flags, Indices

COORDINATE_FAMILIES = tuple(
    name for name, family in FAMILIES.items() if not family.discrete and name not in ("gaussian", "laplace")
)
"""The families whose laws are searched; those of `CLOSED` types are not."""
_LOSSES = {1.0: "absolute", 2.0: "squared"}
_Parameters = list[tuple[float, float]]
"""Shapes, and ratios of a change of 1 to the scale."""


@serializable("coordinate-noise", eq=False)
class CoordinateNoise(Checked, PerCoordinate):
    r"""Independent noise :math:`\lambda_i U_i` on each coordinate, where :math:`U_i` has the law of one of several `units`.

    Parameters
    ----------
    units : tuple of AdditiveNoise
        Each for a sensitivity of 1 on as many coordinates as it is assigned to.
    which : array_like of int, shape (K,)
        The unit of each coordinate; −1 where it needs no noise.
    sensitivities : array_like, shape (K,)
        The profile λ.

    Examples
    --------
    >>> from scipy import stats
    >>> law = CoordinateNoise((AdditiveNoise(stats.logistic(scale=2.0), 1.0, 2),), [0, -1, 0], [1.0, 0.0, 3.0])
    >>> law.scales, law.kinds
    (array([2., 0., 6.]), ('logistic', 'none', 'logistic'))
    """

    units: tuple[AdditiveNoise, ...] = field(AdditiveNoise, many=True)
    which: Indices = field(check=array)
    sensitivities: Array = field(check=profile_vector)

    def _post_check(self) -> None:
        units, which, lam = self.units, self.which, self.sensitivities
        if which.shape != lam.shape or not np.isin(which[lam > 0], np.arange(len(units))).all():
            raise DesignError.of("which", self.which, "must name a unit for each coordinate that changes")
        counts = [int((which == k).sum()) for k in range(len(units))]
        asked = [(1.0, n, True, True) for n in counts]
        if [(u.sensitivity, u.dimension, u.once, u.continuous) for u in units] != asked or not units:
            allowed = f"must be densities for a sensitivity of 1, once, on {counts} coordinates"
            raise DesignError.of("units", len(units), allowed)
        settle(self, which=which.astype(np.int64))

    @property
    def noise(self) -> str:
        """The name of the family."""
        return str(self.units[0].law.dist.name)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The family of each coordinate, or none."""
        return tuple(self.noise if k >= 0 else "none" for k in self.which.tolist())

    def _each(self, value: Callable[[AdditiveNoise], float]) -> Array:
        """Return a value of the units on each coordinate; 0 without noise."""
        return np.append([value(unit) for unit in self.units], 0.0)[self.which]

    @property
    def parameters(self) -> dict[str, Array]:
        """The family's parameters on each coordinate: shapes, and scales in the unit of the answers."""
        scaled = {"scale", "alpha"} | ({"gamma"} if self.noise == "flipped_huber" else set())
        found = {name: [unit.parameters[name] for unit in self.units] for name in self.units[0].parameters}
        unit = {name: self.sensitivities if name in scaled else 1.0 for name in found}
        return {name: np.append(each, 0.0)[self.which] * unit[name] for name, each in found.items()}

    @property
    def scales(self) -> Array:  # type: ignore[override]
        """Scale of the family's law on each coordinate."""
        return self.parameters["scale"]

    @property
    def variance(self) -> Array:
        """Variance per coordinate."""
        return self.absolute_moment(2.0)

    def absolute_moment(self, order: float) -> Array:
        r"""Return :math:`E|T_i|^p` per coordinate, p = 1 or 2."""
        loss = _LOSSES[one_of("order", order, tuple(_LOSSES))]
        return self._each(lambda unit: cost_of(unit, loss)) * self.sensitivities**order

    def errors(self) -> Accuracy:
        """Return the errors of an answer, on average over the coordinates."""
        width = self._each(lambda unit: unit.errors().half_width) * self.sensitivities
        means = (float(v.mean()) for v in (self.absolute_moment(1.0), width))
        return Accuracy(math.sqrt(float(self.variance.mean())), *means)

    def _noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        out = np.zeros(shape)
        for k, unit in enumerate(self.units):
            size = (*shape[:-1], unit.dimension)
            out[..., self.which == k] = unit.law.rvs(size=size, random_state=rng)
        return out * self.sensitivities

    @cached_property
    def lattice(self) -> tuple[tuple[Flags, Array, ExactNoise], ...]:  # type: ignore[override]
        """Samplers of the units on a lattice of step h, widened by the factor 1 + 2h + 2⁻⁴⁷.

        Rounding to steps of λ_i h then moves answers λ_i apart no further apart.
        """
        found = []
        for k, unit in enumerate(self.units):
            at, h = self.which == k, lattice_of(unit.law, 1.0).step
            exact = ExactNoise(unit.times(1 + 2 * h + 2.0**-47).law, h)
            found.append((at, self.sensitivities[at] * h, exact))
        return tuple(found)

    @property
    def lattice_cost(self) -> float:
        """Relative increase of the scales in a release."""
        parts = zip(self.lattice, self.units)
        return max(exact.scale / unit.parameters["scale"] for (_, _, exact), unit in parts) - 1

    def consumption(self) -> Consumption:
        """Return what a release consumes where every coordinate changes by its sensitivity."""
        return sum((unit.consumption() for unit in self.units[1:]), self.units[0].consumption())

    @np.errstate(all="ignore")
    def composed(self, privacy: Pointwise) -> tuple[float, bool]:
        """Return δ of the exact composition at ε, from above, and whether it is proved.

        For a TradeOff it is the largest share of a δ, under pure privacy the largest loss.
        """
        if len(self.units) == 1:
            found = consumed(self.units[0], privacy)
            return found.upper, found.how == PROVED
        cases = [unit.worst_cases for unit in self.units]
        losses = [case.largest_loss() for case in cases]
        most = math.inf if math.inf in losses else round_up(sum(map(Fraction, losses), Fraction(0)))
        closed = all(case.loss_is_closed for case in cases)
        if isinstance(privacy, PureDP):
            return most, closed
        terms, used = tuple(term for unit in self.units for term in unit.noise_terms()), 0.0
        for epsilon, delta in pairs_of(privacy):
            share = 1 / delta if isinstance(privacy, TradeOff) else 1.0
            used = max(used, share * upper_delta(terms, epsilon, width=3e-3) if most > epsilon else 0.0)
        return used, closed and not used


Searched = CoordinateNoise | MixedNoise


def orders_for(points: tuple[tuple[float, float], ...], count: int) -> Array:
    """Return orders θ of the Rényi divergence at which the points are tried."""
    return np.geomspace(0.3, 300, count) * max(1.0, 1 / max(epsilon or delta for epsilon, delta in points))


def allowed(points: tuple[tuple[float, float], ...], orders: Array) -> Array:
    """Return how large κ may be at orders θ for all (ε, δ) to follow; under pure privacy the largest loss."""
    if not min(delta for _, delta in points):
        return np.full_like(orders, points[0][0])
    kept = [orders * epsilon + math.log(delta) for epsilon, delta in points]
    return np.asarray(np.min(kept, axis=0) + np.log1p(orders) + orders * np.log1p(1 / orders))


class Allocating:
    """The search for a law of one family on each coordinate.

    Parameters
    ----------
    sensitivities, weights : ndarray, shape (K,)
    order : float
        p, 1 or 2.
    privacy : PureDP, ApproximateDP, MembershipAdvantage or TradeOff
    family : Family
    """

    tried, steps, around = 2, 9, np.ones(1)
    """How many of the cheapest orders are refined, by how many ratios, and the orders over one of them that are composed exactly."""

    def __init__(
        self, sensitivities: Array, weights: Array, order: float, privacy: Pointwise, family: Family
    ) -> None:
        self.profile, self.family, self.order, self.privacy = sensitivities, family, order, privacy
        self.weights = weights
        self.points, moved = pairs_of(privacy), sensitivities > 0
        self.least = min(delta for _, delta in self.points)
        coefficients = np.maximum((weights * sensitivities**order)[moved], 1e-300)
        levels, self.which = _levels(coefficients, order), np.full(len(moved), -1)
        self.which[moved] = levels
        self.counts = np.bincount(levels)
        self.costs = np.bincount(levels, weights=coefficients) / self.counts

    def unit(self, shape: float, ratio: float, count: int = 1) -> AdditiveNoise:
        return AdditiveNoise(self.family.make(shape, 1 / ratio, 1.0), 1.0, count)

    def measured(self, shape: float, ratio: float, orders: Array) -> tuple[float, Array | float]:
        """Return E|U|^p of one coordinate, and its κ at orders θ."""
        unit = self.unit(shape, ratio)
        return cost_of(unit, _LOSSES[self.order]), self.kappa(unit, orders)

    @np.errstate(all="ignore")
    def kappa(self, unit: AdditiveNoise, orders: Array) -> Array | float:
        """Return κ at orders θ, plus the part of δ that an infinite loss takes; under pure privacy the largest loss."""
        if not self.least:
            return unit.worst_cases.largest_loss()
        loss = loss_of(unit.law, 1.0)
        if isinstance(loss, AtomicLoss):
            values, mass, infinite = loss.values, loss.mass, loss.infinity
        else:
            far = float(loss.isf(max(1e-6 * self.least, 1e-290)))
            ends = np.linspace(max(0.5 - far, -loss.edge), min(far + 0.5, loss.edge), 401)
            values, mass = loss.loss((ends[1:] + ends[:-1]) / 2), loss.masses(ends)[0]
            infinite = float(loss.sf(ends[-1] - 0.5))
        finite = logsumexp(np.log(mass)[:, None] + values[:, None] * orders, axis=0)
        return np.asarray(np.logaddexp(finite, math.log(infinite or 1e-300)) + infinite / self.least)

    def choices(
        self, menu: _Parameters, orders: Array, clock: Deadline
    ) -> list[tuple[float, float, _Parameters]]:
        """Choose parameters for each level from a menu, at each order; return costs, orders and choices, the cheapest first, none past the deadline."""
        costs, kappa = np.empty(len(menu)), np.empty((len(menu), len(orders)))
        for i, parameters in enumerate(menu):
            if clock.passed:
                return []
            costs[i], kappa[i] = self.measured(*parameters, orders)
        found = []
        for order, budget, used in zip(orders.tolist(), allowed(self.points, orders).tolist(), kappa.T):
            best, low, high = None, -80.0, 80.0
            while high - low > 1e-3:
                middle = (low + high) / 2
                chosen = np.argmin(self.costs[:, None] * costs + math.exp(middle) * used, axis=1)
                if self.counts @ used[chosen] <= budget:
                    best, high = chosen, middle
                else:
                    low = middle
            if best is not None:
                value = float(self.counts * self.costs @ costs[best])
                found.append((value, order, [menu[i] for i in best]))
        return sorted(found, key=lambda one: one[0])

    def promising(self, clock: Deadline) -> Iterator[_Parameters]:
        """Yield parameters of the levels: those of P3 in a family that holds Gaussian noise, then those of the cheapest orders."""
        if self.family.normal is not None:
            shape, width = self.family.normal
            ratios = self.costs ** (1 / (self.order + 2))
            yield [(shape, ratio / width) for ratio in np.maximum(ratios, 1e-6 * ratios.max())]
        epsilon, size = max(epsilon for epsilon, _ in self.points), int(self.counts.sum())
        starts = sorted({*self.family.starts(epsilon, self.least, size)}) if self.family.starts else [0.0]
        shapes = np.interp(np.arange(2 * len(starts) - 1) / 2, np.arange(len(starts)), starts)
        ratios = np.geomspace((epsilon + self.least) / (30 * size), 4 * max(epsilon, 1.0), 40)
        orders = orders_for(self.points, 12 if self.least else 1)
        steps = (ratios[1] / ratios[0]) ** np.linspace(-1, 1, self.steps)
        coarse = [(s, r) for s in shapes.tolist() for r in ratios.tolist()]
        for _, order, best in self.choices(coarse, orders, clock)[: self.tried]:  # each is composed exactly
            fine = set()
            for shape, ratio in best:
                at = np.searchsorted(shapes, shape) + np.array([-0.5, -0.25, 0.0, 0.25, 0.5])
                near = np.interp(at, np.arange(len(shapes)), shapes).tolist()
                fine |= {(s, ratio * step) for s in near for step in steps.tolist()}
            yield from (finest for *_, finest in self.choices(sorted(fine), order * self.around, clock))

    def noise(self, chosen: _Parameters, log: float) -> Searched:
        """Return noise of these parameters on the levels, its scales multiplied by e^log."""
        each = zip(chosen, self.counts.tolist())
        units = tuple(self.unit(shape, ratio * math.exp(-log), n) for (shape, ratio), n in each)
        return CoordinateNoise(units, self.which, self.profile)

    def value(self, law: Searched) -> float:
        return float(self.weights @ law.absolute_moment(self.order))

    def alike(self, clock: Deadline) -> Iterator[Searched]:
        """Yield the best unit on all coordinates."""
        design = Calibration(
            self.family.name, self.privacy, 1.0, int(self.counts.sum()), loss=_LOSSES[self.order]
        )
        common = design.solve(certify=False, time_limit=clock.limit()).mechanism
        yield CoordinateNoise((common,), np.minimum(self.which, 0), self.profile)

    def laws(self, clock: Deadline) -> Iterator[Searched]:
        """Yield noise that meets the requirement: of one law for all coordinates, then cheaper noise of laws for the levels."""
        budget, cheapest = budget_of(self.privacy), math.inf
        for law in self.alike(clock):
            if law.composed(self.privacy)[0] <= budget:
                cheapest = min(cheapest, self.value(law))
                yield law
        for chosen in self.promising(clock) if len(self.counts) > 1 else ():
            if clock.passed:
                return

            def over(log: float, chosen: _Parameters = chosen) -> float:
                return excess(self.noise(chosen, log).composed(self.privacy)[0], budget)

            # wider than this it costs more than the cheapest: most choices take one composition
            most = math.log(cheapest / self.value(self.noise(chosen, 0.0))) / self.order
            start = min(0.0, most)
            factor = least_kept(over, start, step=0.05, most=most, xtol=1e-5, rtol=1e-9, deadline=clock)
            if factor < math.inf:
                cheapest = min(cheapest, self.value(self.noise(chosen, factor)))
                yield self.noise(chosen, factor)


_TYPES = replace(FAMILIES["laplace"], name="mixed", starts=lambda e, d, k: (0.0, 1.0))
"""The shapes of a mix; its laws are made by `Mixing.noise`."""


class Mixing(Allocating):
    """The search for a type on each coordinate: shape 0 is Gaussian, 1 Laplace.

    Parameters
    ----------
    asked
        Sensitivities, weights, order and privacy as of `Allocating`; any order.
    alone : dict of ndarray, shape (K,)
        Scales of "gaussian" (P3) and of "laplace" noise (P4) on all coordinates, the cheaper noise first.
    """

    # more than for a family, as κ has a closed form: else three large numbers among 14 cost 2.6% more (2, 9 and 5 orders)
    tried, steps, around = 4, 17, np.geomspace(0.75, 1.33, 7)

    def __init__(self, *asked: Any, alone: dict[str, Array]) -> None:
        super().__init__(*asked, _TYPES)  # type: ignore[call-arg]
        self.normal, self.alone = alone["gaussian"], alone

    @np.errstate(over="ignore")
    def measured(self, shape: float, ratio: float, orders: Array) -> tuple[float, Array]:
        """Return both in closed form: a law of SciPy takes a millisecond to make."""
        kind, power = "laplace" if shape > 0.5 else "gaussian", float(np.power(ratio, -self.order))
        up, down = np.log((1 + orders) / (1 + 2 * orders)), np.log(orders / (1 + 2 * orders))
        laplace = np.logaddexp(up + orders * ratio, down - (1 + orders) * ratio)
        kappa = laplace if kind == "laplace" else orders * (1 + orders) * ratio**2 / 2
        return absolute_moment(kind, self.order) * power, kappa

    def noise(self, chosen: _Parameters, log: float) -> MixedNoise:
        """Return noise of these types; Gaussian coordinates share what they consume as in P3."""
        shapes, ratios = np.append(np.array(chosen), [[0.0, 1.0]], axis=0)[self.which].T
        laplace, moved = shapes > 0.5, self.profile > 0
        scales, normal = self.profile / ratios, moved & ~laplace
        own, shared = (
            np.linalg.norm(self.profile[normal] / self.normal[normal]),
            np.linalg.norm(ratios[normal]),
        )
        scales[normal] = self.normal[normal] * own / (shared or 1.0)
        return MixedNoise(scales * math.exp(log), laplace, self.profile)

    def alike(self, clock: Deadline) -> Iterator[MixedNoise]:
        """Yield the noise of P3, and that of P4 (Corollary 6), the cheaper one first."""
        for kind, scales in self.alone.items():
            types = np.full(len(scales), kind == "laplace")
            yield from (MixedNoise(scales * wider, types, self.profile) for wider in (1 + 1e-12, 1.02))


def _levels(coefficients: Array, order: float) -> Indices:
    """Return the level of each coordinate, at most 12: the level of widest spread is split until there are enough."""
    x, share = np.log(coefficients), coefficients ** (2 / (order + 2))
    which = np.zeros(len(x), dtype=np.int64)
    for level in range(1, 12):
        mass = np.bincount(which, weights=share)
        mean = np.bincount(which, weights=share * x) / mass
        spread = share * (x - mean[which]) ** 2
        widest = int(np.bincount(which, weights=spread).argmax())
        if np.ptp(x[which == widest]) <= 1e-9:
            break
        which[(which == widest) & (x > mean[widest])] = level
    return which

r"""Poisson subsampling of a gridded privacy loss.

A record takes part in a round with probability s. If (P, Q) dominates the round without sampling, then

- removing a record: (sP + (1 − s)Q, Q) dominates, of loss log(1 − s + s e^l);
- adding a record: (Q, sP + (1 − s)Q) dominates, of loss −log(1 − s + s e^l)

(Zhu, Dong and Wang, *Optimal accounting of differential privacy via characteristic function*, 2022). The K
coordinates of a round share the sample, so they are convolved first and sampled together.

**Replacing a record**, under normal noise N of covariance I: let a record move the answer by u and its replacement by v, both of norm at most C,
and let u − v have norm at most D ≤ 2C. Given who else takes part, the laws of the answer are :math:`P_u = (1 - s) N + s N(u)` and :math:`P_v`.
At :math:`x \ge 1` the worst pair, in any dimension, is u = C and v = C − D on one line:

1. By joint convexity of :math:`h(x) = \int (dP - x\,dQ)_+` it is the worst whoever else takes part.
2. By advanced joint convexity (Balle, Barthe and Gaboardi 2018), with :math:`x' = 1 + (x - 1)/s` and :math:`\beta = x/x'`, the curve is
   :math:`h(x) = s \int (dN(u) - x' d((1 - \beta) N + \beta N(v)))_+ = s E(1 - x' ((1 - \beta) e^{X - E X^2/2} + \beta e^{Y - E Y^2/2}))_+`, where X and Y are normal,
   with :math:`E X^2 = |u|^2`, :math:`E Y^2 = |u - v|^2` and :math:`E X Y = u \cdot (u - v)`: the ratios of N and of N(v) to N(u).
3. The mean of a convex function of :math:`\sum p_i e^{X_i - E X_i^2/2}` rises with every covariance (Kahane 1985). All three are largest, at C², D² and CD, where
   u has norm C and v = u − D u/C.

As u and v change places, :math:`h(x) = 1 - x + x\,h(1/x)` bounds all pairs at x < 1. The larger one of the curves of two pairs is convex, hence this is the
curve of a pair, which loses l and −l alike: *from above* it takes the place of a round. With m = C − D/2 the loss of :math:`P_C` against
:math:`P_{C - D}` is positive beyond m and rises there, :math:`\log(1 + w(e^{Dt} - 1))` at m + t, where :math:`\operatorname{logit} w = \operatorname{logit} s + C(C - D)/2 + (C - D)t`;
so the pair has s of :math:`N(\pm D/2)` and 1 − s of N without what lies within m of 0, which loses nothing. Where C = D/2 nothing does, and where C is large
the pair is that of a coin that all see, with :math:`N(\pm D/2)` if it falls. *From below* stands the pair of u = C and v = C − D itself, whose outcomes are told
apart by cells alone: the same records in all rounds, in both orders.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from scipy import stats
from scipy.special import expit, log_expit, logit

from mechdesign.accounting.composition import (
    FLOOR,
    STRETCHES,
    GridPlan,
    calmer,
    compose_grid,
    composed_delta,
    cumulants,
    find_tilt,
    largest,
    plan_grid,
)
from mechdesign.accounting.grids import (
    MOST,
    Cells,
    GridLoss,
    cells_of,
    discretise,
    discretise_atoms,
    far_end,
    known,
    on_points,
    outcomes,
)
from mechdesign.accounting.losses import (
    AtomicLoss,
    CentredLoss,
    Loss,
    NoiseTerm,
    cell_masses,
    in_sigmas,
    loss_of,
)
from mechdesign.doubles import LARGEST_POWER, TINY
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import round_down, round_up
from mechdesign.problem.law_moments import inverse_of, is_gaussian
from mechdesign.typing import Array, Numbers

_ROUNDED = 1e-15
"""Relative rounding error of a loss."""
_TRIED = 2**14
"""Steps that are tried for two atoms: if losses differ in their tenth digit only, there are billions."""
_PLANNED = 2**20
"""Points of the grid of a round from which the grid of all is planned."""
_LOOKED_AT = 4000
"""Outcomes of a round from which its tilt and its spread are estimated."""
_MOST_CELLS = 2**20
_EXTREME = 1e100


def _points_of_one(most: int) -> int:
    """Return the points of one round's loss that take the time of a transform of `most`, which is 8 times as fast a point."""
    return most if most == MOST else most // 8


def loss_before(epsilon: float, rate: float) -> float:
    """Return log(1 + (e^ε − 1)/q), the loss that a sample at rate q turns into ε, to a few roundings of itself.

    For one round H(sP + (1 − s)Q | Q) at e^ε is s H(P | Q) at that loss; for symmetric pairs adding a record loses no more.
    """
    if epsilon > LARGEST_POWER:
        return epsilon - math.log(rate)
    return math.log1p(math.expm1(epsilon) / rate)


def _sampled(loss: Array, rate: float) -> Array:
    """Return log(1 − q + q e^x) to a few roundings of itself, by e^−x if e^x overflows."""
    if rate == 1:
        return loss
    with np.errstate(under="ignore"):
        small, large = np.minimum(loss, LARGEST_POWER), np.maximum(loss, LARGEST_POWER)
        above = large + np.log(rate + (1 - rate) * np.exp(-large))
    return np.where(loss <= LARGEST_POWER, np.log1p(rate * np.expm1(small)), above)


Pair = tuple[GridLoss, GridLoss]
"""A round on grids, for removing and for adding a record."""


@dataclass(frozen=True)
class SampledRounds:
    """Rounds with the same noise, each on a fresh Poisson sample of the records, or on all of them at rate 1.

    Parameters
    ----------
    terms : tuple of NoiseTerm
        Noise of one round.
    rounds : int
    rate : float
    base : GridPlan, optional
        The grid of a round of several coordinates, before it is sampled.
    replaced : float
        Sampling rate if neighbours replace a record, which changes the answer by the terms' sensitivity, as adding or removing one does by
        their `own`; `rate` is 1 then. 0 for other neighbours.
    attained : bool
        Whether lower bounds are those of two such records, not of the pair that dominates all.
    """

    terms: tuple[NoiseTerm, ...]
    rounds: int
    rate: float
    base: GridPlan | None = None
    replaced: float = 0.0
    attained: bool = False

    @classmethod
    def of(
        cls,
        terms: tuple[NoiseTerm, ...],
        rounds: int,
        rate: float,
        epsilon: float,
        neighbours: str = "add-remove",
    ) -> SampledRounds:
        """Return the rounds, prepared for δ of their composition at ε."""
        if neighbours == "replace" and rate < 1:
            return cls(terms, rounds, 1.0, replaced=rate)
        found = cls(terms, rounds, rate)
        if found.single(pessimistic=True) is not None:
            return found
        # The losses that matter in a round lie below the one that reaches ε by itself.
        reachable = 0.5 * sum(largest(loss_of(t.law, t.sensitivity), TINY) * t.count for t in terms)
        return replace(found, base=plan_grid(terms, min(loss_before(epsilon, rate) / 2, reachable), 1e-3))

    def single(self, *, pessimistic: bool) -> Loss | None:
        """Return the loss of a single coordinate, to which normal ones reduce (μ² = ΣΔ²/σ², rounded up or down); None for several."""
        first = self.terms[0]
        if self.replaced:
            own = self._norm([t.alone for t in self.terms], pessimistic=pessimistic)
            change = self._norm([t.sensitivity for t in self.terms], pessimistic=pessimistic)
            return ReplacedLoss.of(own, min(change, 2 * own), self.replaced) if own and change else None
        if sum(t.count for t in self.terms) == 1:
            return loss_of(first.law, first.sensitivity)
        norm = self._norm([t.sensitivity for t in self.terms], pessimistic=pessimistic)
        return loss_of(stats.norm(), norm) if norm else None

    def _norm(self, sizes: list[float], *, pessimistic: bool) -> float | None:
        """Return the norm of the sizes over normal noise, rounded up or down; None for other noise and if it overflows."""
        if not all(is_gaussian(t.law) for t in self.terms):
            return None
        parts = zip(sizes, map(in_sigmas, self.terms))
        square = sum(n * Fraction(d) ** 2 * h / Fraction(s) ** 2 for d, (n, _, s, h) in parts)
        if not _EXTREME**-2 < square < _EXTREME**2:
            return None
        above = math.nextafter(math.sqrt(round_up(square)), math.inf)
        return above if pessimistic else math.nextafter(math.sqrt(round_down(square)), 0.0)

    def atoms(
        self, step: float, tail: float, largest_loss: float, *, pessimistic: bool, most: int = MOST
    ) -> tuple[AtomicLoss, AtomicLoss]:
        """Return the losses of a round, each to be moved up or down, for a grid of this step; tails as in `grids`."""
        loss = self.single(pessimistic=pessimistic)
        if not isinstance(loss, AtomicLoss):
            if self.base is None:
                remedy = "is beyond 1e±100 standard deviations of the noise, as far as replaced records are accounted for"
                raise DesignError.of("sensitivity", self.terms[0].sensitivity, remedy)
            # Sampling shrinks distances between losses, to q of them where losses are small, and so the step.
            top = sum(largest(v, TINY) * count for v, count in self.base.losses)
            # A million points of the composed round, 37 standard deviations either way, are enough.
            spread = math.sqrt(max(cumulants(self.base.coarse, 0.0).variance, 0.0))
            wanted = max(step / max(float(expit(top + logit(self.rate))), TINY), 74 * spread / 2**21)
            base = replace(self.base, upper_tail=tail, epsilon=loss_before(largest_loss, self.rate))
            most = _points_of_one(most)
            wanted = max(min(base.step, wanted), base.finest(most // STRETCHES), 74 * spread / most)
            parts = base.parts(base.align(wanted), pessimistic=pessimistic)
            grid = compose_grid(parts, most)
            loss = AtomicLoss(grid.points + grid.offset, grid.mass, grid.infinity)
        pair = _of_a_sample(loss, self.rate, pessimistic=pessimistic)
        remove, add = (v.up_to(largest_loss, pessimistic=pessimistic) for v in pair)
        return remove, add

    @property
    def largest(self) -> float:
        """Largest finite loss of all rounds, rounded up: removing a record loses more than adding one."""
        loss = self.single(pessimistic=True)
        if loss is None:
            return math.inf
        with np.errstate(invalid="ignore"):  # NaN if there is no largest one
            most = loss.values.max() if isinstance(loss, AtomicLoss) else loss.loss(np.array([loss.edge]))[0]
        if not most < math.inf:
            return math.inf
        return self.rounds * float(_sampled(np.array([most]), self.rate)[0]) * (1 + 1e-14)

    def outcomes(self, largest_loss: float = math.inf) -> tuple[AtomicLoss, AtomicLoss]:
        """Return some losses of a round, at most `largest_loss`, and approximate masses, for removing and for adding a record."""
        loss = self.single(pessimistic=True)
        if not isinstance(loss, CentredLoss):
            return self.atoms(math.inf, TINY, largest_loss, pessimistic=True, most=_PLANNED)
        far = min(float(loss.isf(FLOOR)) + loss.sensitivity / 2, loss.edge)
        x = np.linspace(-far, far, _LOOKED_AT + 1)
        p, q, _, _ = loss.masses(x)
        values = _sampled(loss.loss((x[1:] + x[:-1]) / 2), self.rate)
        values = np.clip(values, -largest_loss, largest_loss)
        return AtomicLoss(values, self.rate * p + (1 - self.rate) * q), AtomicLoss(-values, q)

    def heaviest(self, remove: AtomicLoss, theta: float) -> tuple[float, float]:
        """Return the two of a removed record's `outcomes` with the largest tilted mass; 0 if no loss is an atom."""
        loss = self.single(pessimistic=True)
        if isinstance(loss, CentredLoss) and not loss.atoms:
            return 0.0, 0.0
        if isinstance(loss, CentredLoss):
            least = _least_of_a_sample(loss, loss.atoms[0], self.rate)
            values = _sampled(np.array([*loss.atoms, *(-a for a in loss.atoms)]), self.rate) - least
        else:
            with np.errstate(divide="ignore", under="ignore"):
                values = remove.values[np.argsort(-(np.log(remove.mass) + theta * remove.values))]
        return (float(values[0]), float(values[1])) if values.size > 1 else (0.0, 0.0)

    def grids(
        self, step: float, tail: float, largest_loss: float, *, pessimistic: bool, most: int = MOST
    ) -> Pair:
        """Return a round on grids of this step; losses beyond the largest, or in a tail of P of probability `tail`, are infinite, or cut off there."""
        loss = self.single(pessimistic=pessimistic)
        if (
            isinstance(loss, CentredLoss) and self.rate == 1
        ):  # of a symmetric pair: both directions lose alike
            if isinstance(loss, ReplacedLoss) and self.attained and not pessimistic:
                pair = loss.of_records()
                first, other = (discretise_atoms(v, step, pessimistic=False, most=largest_loss) for v in pair)
                return first, other
            room = _points_of_one(most)
            if 2 * min(largest(loss, tail), largest_loss) > step * room:
                raise DesignError.of("rounds", self.rounds, "need more grid points than there is time for")
            both = discretise(
                loss,
                step,
                pessimistic=pessimistic,
                upper_tail=tail,
                lower_tail=tail,
                most=largest_loss,
            )
            return both, both
        if isinstance(loss, CentredLoss):
            return _on_grids(loss, self.rate, step, tail, largest_loss, pessimistic=pessimistic, most=most)
        remove, add = self.atoms(step, tail, largest_loss, pessimistic=pessimistic, most=most)
        if float(np.ptp(remove.values)) > step * most:
            raise DesignError.of("rounds", self.rounds, "need more grid points than there is time for")
        return (
            discretise_atoms(remove, step, pessimistic=pessimistic),
            discretise_atoms(add, step, pessimistic=pessimistic),
        )


@dataclass(frozen=True)
class ReplacedLoss(CentredLoss):
    """The loss of replacing a record if records are sampled: from above, odd about the middle of the outcomes without loss.

    Attributes
    ----------
    share : float
        s, the rate of the sample.
    gap : float
        m: outcomes within m of 0 have no loss.
    """

    share: float = 1.0
    gap: float = 0.0

    @classmethod
    def of(cls, own: float, change: float, share: float) -> ReplacedLoss:
        """Return the loss if adding a record moves the answer by `own` at most, and replacing one by `change` ≤ 2·own, under noise of deviation 1."""
        plain = loss_of(stats.norm(), change)
        assert isinstance(plain, CentredLoss)
        less, start = own - change, logit(share) + own * (own - change) / 2

        def loss(t: Numbers) -> Array:
            size = np.abs(np.asarray(t, dtype=float))
            z, plain_loss = start + less * size, change * size
            with np.errstate(under="ignore", invalid="ignore"):
                small = np.log1p(expit(z) * np.expm1(np.minimum(plain_loss, LARGEST_POWER)))
                large = np.logaddexp(log_expit(-z), log_expit(z) + plain_loss)
            return np.asarray(np.copysign(np.where(plain_loss <= LARGEST_POWER, small, large), t))

        def isf(tail: Numbers) -> Array:
            return plain.isf(tail) + change / 2

        inverse, gap = inverse_of(loss, 1.0), own - change / 2
        return cls(
            plain.law, change, loss, lambda v: inverse(np.asarray(v)), plain.sf, isf, share=share, gap=gap
        )

    def masses(self, x: Array) -> tuple[Array, Array, Array, Array]:
        none, off = cell_masses(lambda t: self.sf(self.gap + t), x)
        alike = np.where((x[:-1] < 0) & (x[1:] == 0), 1 - 2 * self.sf(self.gap), 0.0)
        return self._mixed(x, none + alike, off)

    def _mixed(self, x: Array, none: Array, off: Array) -> tuple[Array, Array, Array, Array]:
        """Return masses of cells, given those without the record in the sample and their errors."""
        p, q, p_error, q_error = (
            self.share * a + (1 - self.share) * b for a, b in zip(super().masses(x), (none, none, off, off))
        )
        return p, q, p_error, q_error

    def of_records(self) -> tuple[AtomicLoss, AtomicLoss]:
        """Return lower bounds of the losses of two records in both orders, with outcomes merged into cells."""
        far = float(self.isf(FLOOR))
        near = np.linspace(-far, far, _LOOKED_AT + 1)
        fine = self.inverse(np.geomspace(1e-12, float(self.loss(far)), _LOOKED_AT))
        x = np.unique(np.concatenate([near, near - self.gap, fine, -fine, [-np.inf, np.inf]]))
        p, q, p_error, q_error = self._mixed(x, *cell_masses(self.sf, x + self.gap))

        def told(p: Array, q: Array) -> AtomicLoss:
            seen = p > TINY
            return _sorted(AtomicLoss(np.log(p[seen] / q[seen]), p[seen]), pessimistic=False)

        return told(p - p_error, q + q_error + FLOOR), told(q - q_error, p + p_error + FLOOR)

    def outside(self, low: float, high: float) -> tuple[float, float]:
        plain = float(self.sf(self.gap - low)), float(self.sf(self.gap + high))
        below, above = (
            self.share * a + (1 - self.share) * b for a, b in zip(super().outside(low, high), plain)
        )
        return below, above

    def delta(self, epsilon: float) -> tuple[float, float]:
        """Enclose δ(ε) of one round: P − e^ε Q over the outcomes of larger loss."""
        t, growth = float(self.inverse(epsilon)), math.exp(min(epsilon, LARGEST_POWER))
        q, p = self.outside(-t, t)
        off = 4e-15 * (1 - 0.1 * math.log(max(p, 1e-308))) * (p + growth * q)
        return max(p - growth * q - off, 0.0), min(max(p - growth * q, 0.0) + off, 1.0)


def _of_a_sample(loss: AtomicLoss, rate: float, *, pessimistic: bool) -> tuple[AtomicLoss, AtomicLoss]:
    """Return the losses of a symmetric pair after sampling, for removing and for adding a record."""
    if rate == 1:
        return loss, loss
    with np.errstate(divide="ignore", under="ignore", over="ignore"):
        other = np.exp(np.log(loss.mass) - loss.values)
    if not pessimistic:  # omits losses lowered so far that Q would have twice its mass
        kept = np.cumsum(other[::-1])[::-1] < 2
        loss, other = AtomicLoss(loss.values[kept], loss.mass[kept], loss.infinity), other[kept]
    # From above, losses were raised, and the missing mass of Q lies where P has none: loss −∞ before sampling. From below
    # they were lowered, as if Q had too much mass: (sP + (1 − s)Q', Q') is then a mixture of the true pair with a pair that
    # loses nothing if a record is removed, once both are divided by the mass of Q'.
    missing = max(1.0 - float(other.sum()), 0.0)
    law = 1.0 if pessimistic else 1.0 / max(float(other.sum()), 1.0)
    never = math.log1p(-rate)
    remove = AtomicLoss(
        np.append(_sampled(loss.values, rate), never),
        np.append((rate * loss.mass + (1 - rate) * other) * law, (1 - rate) * missing),
        rate * loss.infinity,
    )
    # Laws are symmetric: (Q, sP + (1 − s)Q) has the losses of (P, sQ + (1 − s)P), which rise with those of (P, Q).
    add = AtomicLoss(np.append(-_sampled(-loss.values, rate), -never), np.append(loss.mass, loss.infinity))
    return _sorted(remove, pessimistic=pessimistic), _sorted(add, pessimistic=pessimistic)


def _sorted(loss: AtomicLoss, *, pessimistic: bool) -> AtomicLoss:
    """Return the values with positive mass, sorted and moved by more than their rounding."""
    alive = loss.mass > 0
    order = np.argsort(loss.values[alive], kind="stable")
    values = loss.values[alive][order]
    values = values + np.abs(values) * (_ROUNDED if pessimistic else -_ROUNDED)
    return AtomicLoss(values, loss.mass[alive][order], loss.infinity)


def _are_small(loss: CentredLoss, largest: float) -> bool:
    """Return whether all losses are small, so that they are nearer to 0 than the loss of an outcome that only the record's absence allows."""
    return largest < 1 and loss.edge == math.inf


def _least_of_a_sample(loss: CentredLoss, largest: float, rate: float) -> float:
    """Return the least loss on a grid: that of an outcome that only the record's absence allows, or the opposite of the largest loss."""
    return math.log1p(rate * math.expm1(-largest)) if _are_small(loss, largest) else math.log1p(-rate)


def _on_grids(
    loss: CentredLoss,
    rate: float,
    step: float,
    tail: float,
    largest_loss: float,
    *,
    pessimistic: bool,
    most: int = MOST,
) -> Pair:
    r"""Return chords or tangents of a sampled round with one coordinate.

    The ratio of a sample is :math:`1 - s + s x`, so that its P − x Q is s times that of the round before sampling; for adding a record the
    curve is :math:`h(x) - 1 + x` over x, at 1/x: its chords and tangents are the same lines.
    """
    half = loss.sensitivity / 2
    x_high, largest = far_end(loss, tail, loss_before(largest_loss, rate))
    top, small = float(_sampled(np.array([largest]), rate)[0]), _are_small(loss, largest)
    least = _least_of_a_sample(loss, largest, rate)
    if (top - least) / step > _points_of_one(most):
        remedy = "is so small, compared with the noise, that a sample's losses need more grid points than memory holds"
        raise DesignError.of("sensitivity", loss.sensitivity, remedy)
    last = max(math.ceil((top - least) / step - 1e-9), 1)
    levels = step / 2 * np.arange(2 * last + 1)  # loss above the least one
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        if small:
            before = np.log1p(np.expm1(least + levels) / rate)
            ratios = np.exp(before)
        else:
            ratios = np.expm1(levels) * ((1 - rate) / rate)
            before = np.where(levels > LARGEST_POWER, levels, np.log(np.maximum(np.expm1(levels), 0))) + (
                least - math.log(rate)
            )
    x_low = -x_high if small else -np.inf
    x = np.full(levels.size, x_low)
    seen = before > -np.inf
    x[seen] = np.clip(loss.inverse(before[seen]), x_low, x_high)
    x[0], x[-1] = x_low, x_high
    inside = seen & (np.abs(x) < x_high)
    off = np.full(levels.size, 0.0)
    off[inside] = np.abs(loss.loss(x[inside]) - before[inside])
    off += 1e-15 * (1 + np.abs(np.where(seen, before, 0.0)))
    atoms = np.array([] if pessimistic else [*loss.atoms, *(-atom for atom in loss.atoms)])
    moved = _sampled(atoms, rate) - least
    whole = np.logical_and(on_points(moved, step), atoms <= largest)
    atoms, moved = atoms[whole], moved[whole]
    cells, fall, q, q_error = cells_of(
        loss, x, ratios[::2], np.maximum(off[1:], off[:-1]).reshape(-1, 2), without=atoms
    )
    shrunk = np.exp(-levels[::2] - least)
    with np.errstate(over="ignore", invalid="ignore"):
        remove = Cells(
            rate * cells.mass + (1 - rate) * q,
            rate * cells.lift,
            rate * cells.below,
            rate * cells.above,
            rate * cells.mass_error + (1 - rate) * q_error,
            rate * cells.error,
        )
        add = Cells(
            q[::-1],
            (rate * fall * shrunk[1:])[::-1],
            (rate * cells.above * shrunk[1:])[::-1],
            (rate * cells.below * shrunk[:-1])[::-1],
            q_error[::-1],
            (rate * cells.error * shrunk[:-1])[::-1],
        )
    beyond, other = (float(loss.sf(x_high + move)) for move in (-half, half))
    removed, added, slop = np.zeros(last + 1), np.zeros(last + 1), 0.0
    for atom, level in zip(atoms, moved):
        k = round(level / step)
        p, q, p_error, q_error = loss.masses(np.clip(outcomes(loss, atom), -math.inf, x_high))
        p, q = np.maximum(p - p_error, 0), np.maximum(q - q_error, 0)
        removed[k] += float(rate * p[0] + (1 - rate) * q[0])
        added[last - k] += float(q[0])
        slop = max(slop, abs(level - k * step) + 1e-15 * (abs(least) + abs(level)))
    infinite, never = beyond * rate, 0.0
    if pessimistic:
        infinite = (infinite + (1 - rate) * other) * (1 + 1e-12 + loss.end_error)
        added[1] += other * (1 + 1e-12)
        if small:  # the same at the other end, where P and Q change places
            never = beyond * (1 + 1e-12 + loss.end_error)
            removed[1] += (rate * other + (1 - rate) * beyond) * (1 + 1e-12)
    else:
        infinite = infinite * max(1 - 1e-12 - loss.end_error, 0.0)
        if x_high < loss.edge:  # their losses are at least the last point but one
            removed[-2], infinite = removed[-2] + infinite, 0.0
    up = remove.on_grid(step, least / step, pessimistic=pessimistic, also=removed)
    down = add.on_grid(step, -last - least / step, pessimistic=pessimistic, also=added)
    pair = (
        GridLoss(step, 0, up, infinite, least - slop, pessimistic),
        GridLoss(step, -last, down, never, -least - slop, pessimistic),
    )
    return pair if pessimistic else (known(pair[0], removed), known(pair[1], added))


@dataclass(frozen=True)
class SampledPlan:
    """Several sampled mechanisms, each with its rounds, and the grid for all of them."""

    parts: tuple[SampledRounds, ...]
    step: float
    upper_tail: float
    window: float
    """Window of the composed loss."""
    heaviest: tuple[float, float]
    """The two losses of the first mechanism of largest tilted mass, if there are atoms."""
    outcomes: tuple[AtomicLoss, ...]
    """Outcomes of a round of each, if a record is removed."""
    epsilon: float
    width: float

    @property
    def most(self) -> float:
        """Loss beyond which losses are taken as infinite (`GridPlan.most`)."""
        return self.epsilon - math.log(self.upper_tail)

    @classmethod
    def of(cls, parts: tuple[SampledRounds, ...], epsilon: float, width: float) -> SampledPlan:
        """Return a plan that bounds δ(ε) to about this width."""
        outcomes = [(part.outcomes(epsilon - math.log(TINY)), part.rounds) for part in parts]
        remove, add = ([(pair[i], count) for pair, count in outcomes] for i in (0, 1))
        tilt, other = find_tilt(remove, epsilon), find_tilt(add, epsilon)
        log_delta = min(max(tilt.log_chernoff(epsilon), other.log_chernoff(epsilon), -690.0), 0.0)
        heaviest = parts[0].heaviest(remove[0][0], tilt.theta)
        plan = cls(parts, 0.0, FLOOR, 0.0, heaviest, tuple(v for v, _ in remove), epsilon, width)
        return plan.losing(math.exp(log_delta) * 1e-9 * plan._tails / plan.count)  # each round its share

    @property
    def lost(self) -> float:
        """Probability that is taken as infinite, about."""
        return self.upper_tail * self._tails

    def losing(self, lost: float) -> SampledPlan:
        """Return the plan, with its step, that takes losses of this probability as infinite, or less."""
        plan = replace(self, upper_tail=max(lost / self._tails, FLOOR))
        count, epsilon, seen = self.count, self.epsilon, plan.kept
        tilt = calmer(seen, find_tilt(seen, epsilon), epsilon)
        # a tenth of one round's standard deviation, and effects of the step on log δ: θ(θ + 1)·count·step²/8, θ the rate at which it falls
        spread = math.sqrt(max(tilt.variance, 0.0))
        theta = max(tilt.theta, 0.0) + 0.5 / max(spread, TINY)
        fine = spread / math.sqrt(count) / 10
        fine = min(fine, math.sqrt(4 * self.width / (max(theta * (theta + 1), 1e-12) * count)))
        plan = replace(plan, window=tilt.window)
        if sum(n * float(v.values.max()) for v, n in seen) < epsilon:
            fine = plan.finest(1)  # ε is out of reach: any step shows that
        finest = plan.finest(_MOST_CELLS)  # 0 for a single loss: any step does
        return replace(plan, step=max(fine, finest) if finest else 1.0)

    @property
    def _tails(self) -> float:
        """Tails of all rounds, at least 1: a round with loss l, and others, have probabilities q and 1 − (1 − q) e^−l of it."""
        rates = [part.replaced or part.rate for part in self.parts]
        tops = [max(float(v.values.max()), 0.0) for v, _ in self.kept]
        each = [q / (q - (1 - q) * math.expm1(-top)) for q, top in zip(rates, tops)]
        return max(sum(part.rounds * share for part, share in zip(self.parts, each)), 1.0)

    @property
    def kept(self) -> list[tuple[AtomicLoss, int]]:
        """Outcomes of a round of each that matter, and the numbers of rounds."""
        least, out = 1e-3 * self.upper_tail, []
        for part, v in zip(self.parts, self.outcomes):
            seen = AtomicLoss(v.values[v.mass > least], v.mass[v.mass > least])
            out.append((seen.up_to(self.most, pessimistic=False), part.rounds))
        return out

    @property
    def count(self) -> int:
        """Number of rounds."""
        return sum(part.rounds for part in self.parts)

    @property
    def attained(self) -> SampledPlan | None:
        """The plan whose lower bounds are those of two actual records; None if this one's are."""
        losses = (part.single(pessimistic=False) for part in self.parts if part.replaced)
        if not any(isinstance(loss, ReplacedLoss) and loss.gap for loss in losses):
            return None
        return replace(self, parts=tuple(replace(part, attained=bool(part.replaced)) for part in self.parts))

    def align(self, step: float) -> float:
        """Shrink the step, by a fifth at most, so that the two losses of largest mass are nearly on the grid.

        From below an atom costs its distance to the grid, times the number of rounds: nothing else is of first order.
        """
        first, second = self.heaviest
        if not step <= abs(first) < MOST**2 * step:  # a finer grid would have that many more points
            return step
        count = math.ceil(abs(first) / step)
        steps = abs(first) / np.arange(count, min(max(count * 5 // 4, count + 1), count + _TRIED))
        away = np.abs(second / steps - np.round(second / steps))
        return float(steps[np.argmin(away)])

    def finest(self, points: int) -> float:
        """Return the least step with at most `points` points, for one loss and for all."""
        kept = [np.maximum(v.values, -self.most) for v, _ in self.kept]
        span = max(float(max(np.ptp(v), v.max())) for v in kept)  # a single loss: down to 0
        return max(span, min(span * self.count, self.window)) / points

    def delta(
        self, epsilon: float, step: float, *, pessimistic: bool, enough: float = 0.0, most: int = MOST
    ) -> float:
        """Bound δ(ε) on the grid of this step, from above or from below; only roughly if it is below `enough`."""
        if sum(part.largest for part in self.parts) <= epsilon:
            epsilon = math.inf  # no finite loss reaches ε, but points of a grid above them may
        tail, top = self.upper_tail, self.most
        pairs = [v.grids(step, tail, top, pessimistic=pessimistic, most=most) for v in self.parts]
        found = 0.0
        for grids in zip(*pairs):
            if found < 1:
                rounds = [(grid, v.rounds) for grid, v in zip(grids, self.parts)]
                found = max(found, composed_delta(rounds, epsilon, enough=enough, most=most))
        return found

r"""Certified intervals for δ(ε) in any number of dimensions.

The privacy loss of each coordinate is put on a common grid from above and from below, composed with
relative accuracy (`mechdesign.accounting.composition`), and the step is refined until the interval is as narrow as asked. All of it
costs milliseconds, and as much for a thousand coordinates as for twenty: the step follows the spread of the
composed loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from scipy import stats
from scipy.special import expit, logit

from mechdesign.accounting.composition import Part, composed_delta, cumulants, discretise, find_tilt
from mechdesign.accounting.least_kept import least_kept
from mechdesign.accounting.losses import (
    AtomicLoss,
    CentredLoss,
    Loss,
    NoiseTerm,
    Terms,
    as_terms,
    in_sigmas,
    is_gaussian,
    loss_of,
)
from mechdesign.accounting.profile import enclosed_delta, enclosed_gaussian, profile_interval
from mechdesign.accounting.sampling import compose_grid, loss_before, sampled_parts
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import excess, round_down, round_up
from mechdesign.evidence.proofs import PROVED, RECOMPUTED
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import inside, instance, integer, non_negative, number, one_of, probability
from mechdesign.problem.law_moments import law_variance
from mechdesign.solvers.deadline import Deadline

FLOOR = 1e-300
"""The smallest tail that is cut off: doubles hold hardly less."""
_DEEPEST = 1e-290
"""The tail that a first coarse pass cuts off."""
_EXTREME = 1e100
_LESS, _MORE = 1 - 1e-14, 1 + 1e-14
"""Beyond the rounding of some operations on doubles."""


@dataclass(frozen=True)
class GridPlan:
    """Tails, step and tilt that a first coarse pass suggests, and that pass itself: from above, for want of better."""

    losses: tuple[tuple[Loss, int], ...]
    step: float
    theta: float
    upper_tail: float
    lower_tail: float
    coarse: tuple[Part, ...] = ()
    lowered: tuple[tuple[Loss, int], ...] = ()
    """The losses from below, where those above are only rounded up."""
    finer: float = 1.0
    """What the step is multiplied by from below."""
    rounds: int = 1
    """Rounds that each see a sample; without sampling they are counted in `losses`."""
    sampling_rate: float = 1.0

    def delta(
        self, epsilon: float, step: float, *, pessimistic: bool, width: float, exact: bool = False
    ) -> float:
        """Bound δ(ε) on the grid of this step, from above or from below; after sampling, to about this width."""
        parts = self.parts(step, pessimistic=pessimistic, exact=exact)
        if self.sampling_rate == 1.0:
            return composed_delta(parts, epsilon, guess=self.theta)[0]
        base = compose_grid(parts)
        both = sampled_parts(base, self.sampling_rate, self.rounds, epsilon, width=width)
        return max(composed_delta(direction, epsilon)[0] for direction in both)

    def parts(self, step: float, *, pessimistic: bool, exact: bool = False) -> list[Part]:
        losses = self.losses if pessimistic or not self.lowered else self.lowered
        step = step if pessimistic else self.align(step * self.finer)
        return [
            (
                discretise(
                    loss,
                    step,
                    pessimistic=pessimistic,
                    upper_tail=self.upper_tail,
                    lower_tail=self.lower_tail,
                    theta=self.theta,
                    exact=exact,
                ),
                count,
            )
            for loss, count in losses
        ]

    def align(self, step: float) -> float:
        """Shrink the step so that the atoms of the first loss that has any are on the grid; not below such an atom."""
        for loss, _ in self.losses:
            if loss.atoms and loss.atoms[0] >= step:
                return loss.atoms[0] / math.ceil(loss.atoms[0] / step - 1e-9)
        return step


def _largest(loss: Loss, tail: float) -> float:
    """The largest finite loss but for a tail of this probability; 1 where the two laws share no point."""
    if isinstance(loss, AtomicLoss):
        return float(np.abs(loss.values).max())
    if loss.edge <= 0:
        return 1.0
    return float(loss.loss(min(float(loss.isf(tail)) + loss.sensitivity / 2, loss.edge)))


def apart(terms: tuple[NoiseTerm, ...]) -> bool:
    """Whether a coordinate changes by more than its noise reaches, so that neighbours share no answer."""
    losses = (loss_of(t.law, t.sensitivity) for t in terms)
    return any(isinstance(loss, CentredLoss) and loss.edge <= 0 for loss in losses)


def _typical(terms: tuple[NoiseTerm, ...]) -> float:
    """The largest of the terms' losses that half of the noise exceeds."""
    with np.errstate(over="ignore"):
        return max(_largest(loss_of(t.law, t.sensitivity), 0.5) for t in terms)


def plan_grid(terms: tuple[NoiseTerm, ...], epsilon: float, width: float) -> GridPlan:
    losses = tuple((loss_of(t.law, t.sensitivity), t.count) for t in terms)
    count = sum(c for _, c in losses)
    largest = [_largest(loss, _DEEPEST) for loss, _ in losses]
    typical = [max(_largest(loss, 0.15), top * 1e-6) for (loss, _), top in zip(losses, largest)]
    step = max(min(typical) / 6, max(largest) / 50_000)
    if not step > 1e-150:
        least = min(t.sensitivity / math.sqrt(law_variance(t.law)) for t in terms)
        raise DesignError.of(
            "sensitivity", least, "is so small, compared with the noise, that doubles see no privacy loss"
        )
    plan = GridPlan(losses, step, 0.0, _DEEPEST, 1e-12 * width / count)
    step = plan.align(step)
    coarse = plan.parts(step, pessimistic=True)
    tilt = find_tilt(coarse, epsilon)
    log_delta = min(tilt.log_chernoff(epsilon), 0.0) if tilt.log_mgf > -math.inf else -650.0
    upper_tail = max(math.exp(max(log_delta, -690.0)) * 1e-10 * width / count, FLOOR)
    # Second-order effects of the step on log δ: θ(θ+1)·count·step²/8 in all.
    theta = tilt.theta
    wanted = math.sqrt(4 * width / (max(theta * (theta + 1), 1e-12) * count))
    fine = min(wanted, step * 1.5, math.sqrt(max(tilt.variance, 1e-300)) / 8)
    # Close to the largest possible loss θ diverges; there the atoms decide, and they are on the grid.
    fine = max(fine, step / 200, max(largest) * 2e-6)
    if epsilon >= sum(top * c for (_, c), top in zip(losses, largest)):
        fine = step
    return GridPlan(losses, plan.align(fine), theta, upper_tail, plan.lower_tail, tuple(coarse))


def sampled_plan(
    terms: tuple[NoiseTerm, ...], epsilon: float, width: float, rounds: int, sampling_rate: float
) -> GridPlan:
    """The grid of one round, before it is sampled."""
    terms, lowered = _rotated(terms)
    # What matters in a round lies below the loss that one sampled record needs to reach ε on its own.
    reachable = 0.5 * sum(_largest(loss_of(t.law, t.sensitivity), _DEEPEST) * t.count for t in terms)
    plan = plan_grid(terms, min(loss_before(epsilon, sampling_rate) / 2, reachable), width)
    # A million points of the composed round, 37 standard deviations either way, are as many as tell.
    count = sum(n for _, n in plan.losses)
    spread = math.sqrt(max(cumulants(plan.coarse, 0.0).variance, 0.0))
    least = 74 * spread / 2**21 if count > 1 else 0.0
    plan = replace(plan, step=plan.align(max(plan.step, least)))
    base = compose_grid(plan.parts(plan.step, pessimistic=True))
    sampled = sampled_parts(base, sampling_rate, rounds, epsilon, width=width)
    # Sampling shrinks distances between losses, to q of them where losses are small: the grid before it may be so much wider,
    # but from below, where the step counts once and not twice.
    after = sampled[0][0][0].step
    shrunk = float(expit(float(base.points[-1]) + logit(sampling_rate)))
    step = min(plan.step, max(after / shrunk, plan.step / 200, least))
    finer = min(plan.step, max(after, plan.step / (200 if count == 1 else 10), least)) / step
    # The loss of a record that no round leaves out would widen the grid of smaller losses, had it more than a negligible mass.
    small = float(base.points[-1]) < -math.log1p(-sampling_rate)
    return replace(
        plan,
        step=plan.align(step),
        upper_tail=FLOOR if small else plan.upper_tail * 1e-3,
        lowered=lowered,
        finer=finer,
        rounds=rounds,
        sampling_rate=sampling_rate,
    )


def _rotated(terms: tuple[NoiseTerm, ...]) -> tuple[tuple[NoiseTerm, ...], tuple[tuple[Loss, int], ...]]:
    """One coordinate for all normal ones, of μ² = ΣΔ²/σ² rounded up, and its loss with μ rounded down."""
    if sum(t.count for t in terms) == 1 or not all(is_gaussian(t.law) for t in terms):
        return terms, ()
    square = sum(n * Fraction(d) ** 2 * h / Fraction(s) ** 2 for n, d, s, h in map(in_sigmas, terms))
    if not _EXTREME**-2 < square < _EXTREME**2:
        return terms, ()
    unit = stats.norm()
    above = math.nextafter(math.sqrt(round_up(square)), math.inf)
    below = math.nextafter(math.sqrt(round_down(square)), 0.0)
    return (NoiseTerm(unit, above),), ((loss_of(unit, below), 1),)


_APART = 1e7
"""A loss that tells neighbours apart whatever else is asked."""
SMALLEST_DELTA = 1e-280
"""The smallest δ that can be certified in double precision (tails are integrated down to 1e-300)."""
_MACHINES = {PROVED: 1e-15, RECOMPUTED: 1e-10}
"""How far an end may come out elsewhere, relative: closed forms are rounded once, sums in doubles at each step."""


@serializable("delta-interval")
@dataclass(frozen=True)
class DeltaInterval:
    """An interval for δ: lower ≤ δ(ε) ≤ upper.

    Attributes
    ----------
    lower, upper : float
    how : {"proved", "recomputed"}
        From closed forms in high precision, rounded outwards; or in doubles, with estimates of their errors added.

    Examples
    --------
    >>> round(DeltaInterval(0.99e-6, 1e-6).width, 6)
    0.01
    """

    lower: float
    upper: float
    how: str = RECOMPUTED

    def __post_init__(self) -> None:
        one_of("how", self.how, (PROVED, RECOMPUTED))

    @property
    def width(self) -> float:
        """Relative width (upper − lower)/upper; 0 when both are 0."""
        return (self.upper - self.lower) / self.upper if self.upper > 0 else 0.0

    def __contains__(self, delta: float) -> bool:
        return self.lower <= delta <= self.upper

    def vouched(self, fresh: DeltaInterval, most: float) -> bool:
        """Whether what is stated claims no more than what was computed anew: at least as wide, no better checked, ≤ `most`."""
        instance("fresh", fresh, DeltaInterval)
        most = number("most", most)
        around = self.lower <= fresh.lower * (1 + _MACHINES[RECOMPUTED])
        around = around and fresh.upper <= self.upper * (1 + _MACHINES[fresh.how])
        return around and 0 <= self.lower <= self.upper <= most and self.how in (fresh.how, RECOMPUTED)


def delta_interval(
    terms: Terms,
    epsilon: float,
    *,
    width: float = 0.01,
    rounds: int = 1,
    sampling_rate: float = 1.0,
    closed_form: bool = True,
    points: int = 2**20,
    time_limit: float | None = None,
    deadline: Deadline | None = None,
) -> DeltaInterval:
    r"""Bound δ(ε) of independent additive noise from both sides.

    Parameters
    ----------
    terms : NoiseTerm, additive mechanism, or iterable of them
        The laws on the coordinates; different families may be mixed.
    epsilon : float
        ε ≥ 0.
    width : float
        Relative width (upper − lower)/upper to refine to.
    rounds : int
        The whole release is repeated (adaptively) this many times.
    sampling_rate : float
        Each round sees a Poisson sample of the records with this rate; neighbours then differ by adding
        or removing one record, and the worse of the two directions is returned.
    closed_form : bool
        Use the Gaussian profile when every law is normal, and the exact one-dimensional profile for a single
        coordinate, unless several rounds are sampled.
    points : int
        Largest grid; refinement stops there, with an interval that is wider.
    time_limit : float, optional
        Seconds after which nothing is refined further: the interval is wider, and holds.
    deadline : Deadline, optional
        The same, of a larger task.

    Returns
    -------
    DeltaInterval
        Proved for normal laws, and for one coordinate with a law that has closed forms in high precision; elsewhere in
        doubles, rounding errors estimated. Wider than asked only where refinement would exceed `points` or the time.

    Raises
    ------
    DesignError
        A bad argument, or a law that is not symmetric and log-concave (staircase and discrete laws are fine).

    Notes
    -----
    Discretisation: Doroshenko, Ghazi, Kamath, Kumar and Manurangsi (2022), *Connect the Dots*, here from cell
    masses, with its post-processing counterpart from below. Sampling: Zhu, Dong and Wang (2022).

    Examples
    --------
    >>> from scipy import stats
    >>> interval = delta_interval(NoiseTerm(stats.laplace(scale=20.0), 1.0, 20), 0.8)
    >>> 3.0293e-6 in interval, interval.width < 0.01
    (True, True)
    """
    non_negative("epsilon", epsilon)
    inside("width", width, 1e-9, 1)
    integer("rounds", rounds, 1)
    if probability("sampling_rate", sampling_rate) == 0:
        raise DesignError.of("sampling_rate", sampling_rate, "must be a probability in (0, 1]")
    deadline, epsilon = Deadline.of(deadline, time_limit), float(epsilon)
    if sampling_rate < 1 and rounds == 1:
        low, high = _unsampled(epsilon, sampling_rate)
        above, below = (
            delta_interval(terms, at, width=width, closed_form=closed_form, points=points, deadline=deadline)
            for at in (low, high)
        )
        return DeltaInterval(
            sampling_rate * below.lower * _LESS, min(sampling_rate * above.upper * _MORE, 1.0)
        )
    terms = _repeated(terms, rounds, sampling_rate)
    if closed_form and (found := _closed(terms, epsilon, sampling_rate)) is not None:
        return found
    if sampling_rate < 1 and (apart(terms) or _typical(terms) > _APART):
        # Nobody is told apart who is in no sample; losses this large are beyond the grid.
        return DeltaInterval(0.0, min(-math.expm1(rounds * math.log1p(-sampling_rate)) * _MORE, 1.0))
    if apart(terms):
        return DeltaInterval(1.0, 1.0)
    return _refine(_planned(terms, epsilon, width, rounds, sampling_rate), epsilon, width, points, deadline)


def _unsampled(epsilon: float, sampling_rate: float) -> tuple[float, float]:
    """Enclose the ε at which one round, all records seen, has 1/q of the δ that its sample has at this one."""
    before = loss_before(epsilon, sampling_rate)
    return before * _LESS, before * _MORE


def _repeated(terms: Terms, rounds: int, sampling_rate: float) -> tuple[NoiseTerm, ...]:
    """The terms of all rounds, or of one where rounds are sampled."""
    times = rounds if sampling_rate == 1.0 else 1
    return tuple(replace(t, count=t.count * times) for t in as_terms(terms))


def _closed(terms: tuple[NoiseTerm, ...], epsilon: float, sampling_rate: float) -> DeltaInterval | None:
    """δ(ε) of normal noise, or of one coordinate; None elsewhere."""
    if sampling_rate < 1:
        return None
    if all(is_gaussian(t.law) for t in terms):
        return DeltaInterval(*enclosed_gaussian(epsilon, [in_sigmas(t) for t in terms]), PROVED)
    if len(terms) > 1 or terms[0].count > 1:
        return None
    law, sensitivity = terms[0].law, terms[0].sensitivity
    found = enclosed_delta(law, sensitivity, epsilon, loss_of(law, sensitivity))
    if found is not None:
        return DeltaInterval(*found, PROVED)
    return DeltaInterval(*profile_interval(law, sensitivity, epsilon))


def _planned(
    terms: tuple[NoiseTerm, ...], epsilon: float, width: float, rounds: int, sampling_rate: float
) -> GridPlan:
    if sampling_rate == 1.0:
        return plan_grid(terms, epsilon, width)
    return sampled_plan(terms, epsilon, width, rounds, sampling_rate)


def _refine(plan: GridPlan, epsilon: float, width: float, points: int, deadline: Deadline) -> DeltaInterval:
    step, sampled = plan.step, plan.sampling_rate < 1
    best = DeltaInterval(0.0, 1.0)
    for _ in range(9):
        bounds: list[float] = []
        finer = width * (step / plan.step) ** 2
        for pessimistic in (True, False):
            if deadline.passed and (bounds or best.upper < 1):  # the first upper bound is waited for
                return DeltaInterval(best.lower, min([best.upper, *bounds]))
            bounds.append(plan.delta(epsilon, step, pessimistic=pessimistic, width=finer))
        if not sampled and _near_atoms(plan, epsilon):
            bounds[1] = max(bounds[1], plan.delta(epsilon, step, pessimistic=False, width=finer, exact=True))
        before = best.upper
        best = DeltaInterval(max(best.lower, bounds[1]), min(best.upper, bounds[0]))
        gap = best.upper - best.lower
        if gap <= width * best.upper or best.upper <= SMALLEST_DELTA:
            break
        # The lower end of sampled rounds is of first order in the step: where the upper no longer moves, it is left wide.
        if sampled and before - best.upper <= 0.3 * width * best.upper:
            break
        count = sum(c for _, c in plan.losses)
        if plan.upper_tail * count > 0.01 * gap:  # Chernoff was far off: δ is smaller than the plan thought
            plan = replace(plan, upper_tail=max(0.01 * width * best.upper / count * 1e-3, FLOOR))
            continue
        step = plan.align(step * min(max(math.sqrt(0.6 * width * best.upper / gap), 0.15), 0.7))
        if 2 * max(_largest(loss, plan.upper_tail) for loss, _ in plan.losses) / step > points:
            break
    return best


def _near_atoms(plan: GridPlan, epsilon: float) -> bool:
    """Whether δ may hang on all losses being at their atoms and barely passing ε."""
    if not all(isinstance(loss, CentredLoss) and loss.atoms for loss, _ in plan.losses):
        return False
    return abs(sum(loss.atoms[0] * count for loss, count in plan.losses) / max(epsilon, 1e-300) - 1) < 0.05


def upper_delta(
    terms: Terms,
    epsilon: float,
    *,
    width: float = 1e-3,
    rounds: int = 1,
    sampling_rate: float = 1.0,
) -> float:
    """Bound δ(ε) from above on one grid planned for `width`."""
    if sampling_rate < 1 and rounds == 1:
        low, _ = _unsampled(epsilon, sampling_rate)
        return min(sampling_rate * upper_delta(terms, low, width=width) * _MORE, 1.0)
    terms = _repeated(terms, rounds, sampling_rate)
    if apart(terms):
        return 1.0
    plan = _planned(terms, epsilon, width, rounds, sampling_rate)
    if sampling_rate == 1.0:
        return plan.delta(epsilon, plan.align(plan.step / 2), pessimistic=True, width=width)
    least = 1.0
    for _ in range(4):
        least = min(least, plan.delta(epsilon, plan.step, pessimistic=True, width=width))
        cut = rounds * sum(count for _, count in plan.losses) * plan.upper_tail
        if cut <= 0.01 * width * least or plan.upper_tail <= FLOOR:
            break
        plan = replace(plan, upper_tail=max(plan.upper_tail * 1e-3 * width * least / cut, FLOOR))
    return least


def verified_delta(terms: Terms, epsilon: float, *, rounds: int = 1, sampling_rate: float = 1.0) -> float:
    """Bound δ(ε) from above as the stand-alone verifier can on its finest grid.

    That has steps of ε/n times a power of 2, at most 2¹⁵ to the largest loss and 2¹⁶ along the sum of all n; here they are
    twice as wide, as it splits losses up to twice. Only one round may be sampled.
    """
    if sampling_rate < 1:
        low, _ = _unsampled(epsilon, sampling_rate)
        return min(sampling_rate * verified_delta(terms, low) * _MORE, 1.0)
    terms = _repeated(terms, rounds, 1.0)
    if apart(terms):
        return 1.0
    plan = plan_grid(terms, epsilon, 1e-3)
    if _near_atoms(plan, epsilon):  # of which the verifier knows the exact losses
        return delta_interval(terms, epsilon, width=3e-3, points=2**17).upper
    largest = [(count, _largest(loss, plan.upper_tail)) for loss, count in plan.losses]
    spread = math.sqrt(-8 * math.log(plan.upper_tail) * max(cumulants(plan.coarse, 0.0).variance, 0.0))
    span = min(sum(2 * count * loss for count, loss in largest), spread)
    least = max(max(loss for _, loss in largest) / 2**15, span / 2**16)
    unit = (epsilon or largest[-1][1]) / sum(count for count, _ in largest)
    step = unit * 2.0 ** math.ceil(math.log2(2 * least / unit))
    return plan.delta(epsilon, plan.align(step), pessimistic=True, width=1e-3)


def lower_delta(
    terms: Terms, epsilon: float, *, width: float = 1e-2, rounds: int = 1, sampling_rate: float = 1.0
) -> float:
    """Bound δ(ε) from below: exactly where there is a closed form, else on one grid planned for `width`."""
    if sampling_rate < 1 and rounds == 1:
        _, high = _unsampled(epsilon, sampling_rate)
        return sampling_rate * lower_delta(terms, high, width=width) * _LESS
    terms = _repeated(terms, rounds, sampling_rate)
    if (found := _closed(terms, epsilon, sampling_rate)) is not None:
        return found.lower
    if apart(terms):
        return 0.0 if sampling_rate < 1 else 1.0
    plan = _planned(terms, epsilon, width, rounds, sampling_rate)
    return plan.delta(epsilon, plan.step, pessimistic=False, width=width)


def epsilon_bound(
    terms: Terms,
    delta: float,
    *,
    width: float = 0.01,
    rounds: int = 1,
    sampling_rate: float = 1.0,
    time_limit: float | None = None,
) -> float:
    r"""Return an ε, rounded up, at which the composition is certified (ε, δ)-DP.

    Parameters
    ----------
    terms, width, rounds, sampling_rate
        As in `delta_interval`.
    delta : float
        δ in (0, 1).
    time_limit : float, optional
        Seconds after which the least ε seen to do is returned.

    Returns
    -------
    float
        The least ε whose upper bound on δ is at most `delta`, to a relative 1e-9; ``inf`` when δ(ε) never
        falls that far.

    Raises
    ------
    DesignError
        δ outside (0, 1), or below what double precision can certify.
    SolverError
        No ε was seen to do within the time limit.

    Examples
    --------
    >>> from scipy import stats
    >>> from mechdesign.accounting.losses import NoiseTerm
    >>> round(epsilon_bound(NoiseTerm(stats.norm(scale=168.802**0.5), 1.0), 1e-6), 4)
    0.3
    """
    delta = inside("delta", delta, 0, 1)
    if delta < SMALLEST_DELTA:
        raise DesignError.of("delta", delta, f"double precision certifies no delta below {SMALLEST_DELTA}")
    terms, deadline = as_terms(terms), Deadline(time_limit)

    def over(epsilon: float) -> float:
        deadline.hold("accounting")
        enclosed = delta_interval(
            terms, epsilon, width=width, rounds=rounds, sampling_rate=sampling_rate, deadline=deadline
        )
        return excess(enclosed.upper, delta)

    return least_kept(over, 1.0, least=0.0, most=2.0**20, xtol=1e-12, rtol=1e-11, deadline=deadline)

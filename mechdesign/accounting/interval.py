r"""Certified intervals for δ(ε) in any number of dimensions.

The privacy loss of each coordinate is put on a common grid from above and from below, composed with
relative accuracy (`mechdesign.accounting.composition`), and the step is refined until the interval is as narrow as asked. This
takes milliseconds, and no longer for a thousand coordinates than for twenty: the step follows the spread of the
composed loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

from mechdesign.accounting.composition import (
    FLOOR,
    GridPlan,
    affordable,
    apart,
    cumulants,
    largest,
    plan_grid,
)
from mechdesign.accounting.gaussian import enclosed_gaussian
from mechdesign.accounting.losses import NoiseTerm, Terms, as_terms, in_sigmas, loss_of, merged
from mechdesign.accounting.profile import enclosed_delta, largest_loss, profile_interval
from mechdesign.accounting.sampling import ReplacedLoss, SampledPlan, SampledRounds, loss_before
from mechdesign.checks import (
    Checked,
    field,
    inside,
    instance,
    integer,
    non_negative,
    number,
    one_of,
    refuse,
    share,
)
from mechdesign.doubles import ROUNDED, SMALLEST
from mechdesign.errors import DesignError, SolverError
from mechdesign.evidence.exact import excess, least_kept, round_down, round_up
from mechdesign.evidence.proofs import PROVED, RECOMPUTED
from mechdesign.evidence.serialize import serializable
from mechdesign.problem.law_moments import is_gaussian
from mechdesign.solvers.deadline import Deadline

Rounds: TypeAlias = tuple[tuple[NoiseTerm, ...], int, float]
"""Noise of a round, number of rounds, and the share of the records that each samples."""
_MOST_POINTS = 2**22
"""Largest grid of a refinement: one for every width, so that a smaller width takes the same steps and then more."""
_MACHINES = {PROVED: 1e-15, RECOMPUTED: 1e-10}
"""Relative differences of an end between machines: closed forms are rounded once, sums in doubles at each step."""


@serializable("delta-interval")
class DeltaInterval(Checked):
    """An interval for δ: lower ≤ δ(ε) ≤ upper.

    Attributes
    ----------
    lower, upper : float
    how : {"proved", "recomputed"}
        Closed forms in high precision, rounded outwards; or doubles, with estimates of their errors added.

    Examples
    --------
    >>> round(DeltaInterval(0.99e-6, 1e-6).width, 6)
    0.01
    """

    lower: float
    upper: float
    how: str = field(check=one_of, allowed=(PROVED, RECOMPUTED), default=RECOMPUTED)

    @property
    def width(self) -> float:
        """Relative width (upper − lower)/upper; 0 when both are 0."""
        return (self.upper - self.lower) / self.upper if self.upper > 0 else 0.0

    def __contains__(self, delta: float) -> bool:
        return self.lower <= delta <= self.upper

    def vouched(self, fresh: DeltaInterval, most: float) -> bool:
        """Return whether this interval claims no more than a `fresh` one: at least as wide, no better checked, upper end ≤ `most`."""
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
    neighbours: str = "add-remove",
    closed_form: bool = True,
    points: int | None = None,
    told_from: float = 0.0,
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
        Each round sees a Poisson sample of the records with this rate.
    neighbours : {"add-remove", "replace"}
        Used if records are sampled. "add-remove": neighbours differ by one record more or less, and the worse of the two directions is
        returned. "replace" (normal noise only): replacing a record changes the answer by at most the terms' sensitivity, and adding or
        removing one by at most their `own`, by default half of the sensitivity (the norm to which records are clipped).
    closed_form : bool
        Use the Gaussian profile when every law is normal, and the exact one-dimensional profile for a single
        coordinate, unless several rounds are sampled.
    points : int, optional
        Largest grid; refinement stops there, with a wider interval. By default a million points, or up to four if `width` is below 1%.
    told_from : float
        A δ to compare with: refinement stops once the interval is known to lie above twice or below half of it.
    time_limit : float, optional
        Seconds after which refinement stops: the interval is wider, and valid.
    deadline : Deadline, optional
        The same, from a larger task.

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
    inside("width", width, 1e-9, 1)
    non_negative("told_from", told_from)
    asked = _Asked.of(terms, epsilon, rounds, sampling_rate, neighbours)
    clock = Deadline.of(deadline, time_limit)

    def enclosed(at: float) -> DeltaInterval:
        if closed_form and (found := asked.closed(at)) is not None:
            return found
        if asked.rounds[2] == 1 and apart(asked.rounds[0]):
            return DeltaInterval(1.0, 1.0)
        return _enclosed([asked.rounds], at, width, neighbours, points, told_from, clock)

    found = enclosed(asked.low)
    if asked.share == 1:
        return found
    return DeltaInterval(asked.lower(enclosed(asked.high).lower), asked.upper(found.upper))


@dataclass(frozen=True)
class _Asked:
    """Rounds, and the numbers between which the ε lies at which `share` times their δ is the one asked for.

    Rounds without samples are one round of all their terms. A single sample is a round with all records at a larger ε (`loss_before`).
    """

    rounds: Rounds
    neighbours: str
    low: float
    high: float
    share: float = 1.0

    @classmethod
    def of(
        cls,
        terms: Terms,
        epsilon: float,
        rounds: int = 1,
        sampling_rate: float = 1.0,
        neighbours: str = "add-remove",
    ) -> _Asked:
        non_negative("epsilon", epsilon)
        integer("rounds", rounds, 1)
        share("sampling_rate", sampling_rate)
        held = as_terms(terms)
        one_of("neighbours", neighbours, ("add-remove", "replace"))
        if sampling_rate == 1:
            held = merged(tuple(replace(t, count=t.count * rounds) for t in held))
            return cls((held, 1, 1.0), neighbours, float(epsilon), float(epsilon))
        if neighbours == "replace" and not all(is_gaussian(t.law) for t in held):
            remedy = "is accounted for under normal noise alone where records are sampled"
            raise DesignError.of("neighbours", neighbours, remedy)
        if rounds > 1 or neighbours == "replace":
            return cls((held, rounds, sampling_rate), neighbours, float(epsilon), float(epsilon))
        before = loss_before(float(epsilon), sampling_rate)
        ends = before * (1 - ROUNDED), before * (1 + ROUNDED)
        return cls((held, 1, 1.0), neighbours, *ends, sampling_rate)

    def upper(self, delta: float) -> float:
        """Return the upper bound of the δ asked for, given one at `low`."""
        return round_up(Fraction(self.share) * Fraction(delta))

    def lower(self, delta: float) -> float:
        """Return the lower bound of the δ asked for, given one at `high`."""
        return round_down(Fraction(self.share) * Fraction(delta))

    def closed(self, epsilon: float) -> DeltaInterval | None:
        """Return δ(ε) of normal noise, of one coordinate, or of one sampled round in which a record is replaced; None for others."""
        terms, rounds, rate = self.rounds
        if rate < 1 and rounds == 1:
            once = SampledRounds(terms, 1, 1.0, replaced=rate)
            below, above = (once.single(pessimistic=up) for up in (False, True))
            if isinstance(below, ReplacedLoss) and isinstance(above, ReplacedLoss):
                return DeltaInterval(below.delta(epsilon)[0], above.delta(epsilon)[1])
        if rate < 1:
            return None
        if all(is_gaussian(t.law) for t in terms):
            return DeltaInterval(*enclosed_gaussian(epsilon, [in_sigmas(t) for t in terms]), PROVED)
        return _alone(terms[0], epsilon) if sum(t.count for t in terms) == 1 else None


def _alone(term: NoiseTerm, epsilon: float) -> DeltaInterval:
    """Return δ(ε) of one coordinate."""
    law, sensitivity = term.law, term.sensitivity
    found = enclosed_delta(law, sensitivity, epsilon, loss_of(law, sensitivity))
    if found is not None:
        return DeltaInterval(*found, PROVED)
    return DeltaInterval(*profile_interval(law, sensitivity, epsilon))


def _most(mechanisms: Sequence[Rounds]) -> Fraction | float:
    """Return the sum of the largest losses, beyond which δ is 0, if all are known in closed form; samples lose less than all records."""
    total = Fraction(0)
    for terms, rounds, _ in mechanisms:
        for term in terms:
            if (most := largest_loss(term.law, term.sensitivity)) is None or most == math.inf:
                return math.inf
            total += rounds * term.count * Fraction(most)
    return total


def _plan(
    mechanisms: Sequence[Rounds], epsilon: float, width: float, neighbours: str
) -> GridPlan | SampledPlan:
    """Return the grid plan of mechanisms; with samples, the others become rounds of one normal coordinate, or of their terms."""
    whole = [
        t for terms, rounds, rate in mechanisms if rate == 1 for t in _Asked.of(terms, 0.0, rounds).rounds[0]
    ]
    sampled = [SampledRounds.of(*one, epsilon, neighbours) for one in mechanisms if one[2] < 1]
    if not sampled:
        return plan_grid(tuple(whole), epsilon, width)
    normal = tuple(t for t in whole if is_gaussian(t.law))
    parts = [((replace(t, count=1),), t.count) for t in whole if not is_gaussian(t.law)]
    seen = [SampledRounds(terms, count, 1.0) for terms, count in [*parts, (normal, 1)] if terms]
    return SampledPlan.of((*sampled, *seen), epsilon, width)


def _hiding(mechanisms: Sequence[Rounds], epsilon: float) -> tuple[list[Rounds], float, float]:
    """Return the mechanisms whose noise hides a record, ε less what no sample of the others loses, and the probability p of a sample of those.

    Of pairs (P, (1 − p) P + p P') and their reverse, with others, δ is at most p and δ of the others at ε + log(1 − p).
    """
    none = sum(n * math.log1p(-q) if q < 1 else -math.inf for terms, n, q in mechanisms if apart(terms))
    rest = [one for one in mechanisms if not apart(one[0])]
    return rest, max(epsilon + none * (1 + ROUNDED), 0.0), min(-math.expm1(none) * (1 + ROUNDED), 1.0)


def joint_interval(
    mechanisms: Sequence[Rounds],
    epsilon: float,
    *,
    width: float = 0.01,
    neighbours: str = "add-remove",
    deadline: Deadline | None = None,
) -> DeltaInterval:
    """Bound δ(ε) of several mechanisms on the same records from both sides, each with its own rounds and sampling rate.

    Examples
    --------
    >>> from scipy import stats
    >>> steps = ((NoiseTerm(stats.norm(scale=0.8), 1.0),), 1000, 0.01)
    >>> count = ((NoiseTerm(stats.laplace(scale=10.0), 1.0),), 1, 1.0)
    >>> alone, both = (joint_interval(m, 3.0).upper for m in ([steps], [steps, count]))
    >>> alone < both
    True
    """
    for terms, rounds, rate in mechanisms:
        _Asked.of(terms, epsilon, rounds, rate, neighbours)
    return _enclosed(mechanisms, epsilon, width, neighbours, None, 0.0, Deadline.of(deadline))


def _enclosed(
    mechanisms: Sequence[Rounds],
    epsilon: float,
    width: float,
    neighbours: str,
    points: int | None,
    told_from: float,
    clock: Deadline,
) -> DeltaInterval:
    """Bound δ(ε) from both sides on grids; the lower end is of two actual records, if the plan's pair only dominates all of them."""
    if _most(mechanisms) <= epsilon:
        return DeltaInterval(0.0, 0.0, PROVED)
    rest, least, seen = _hiding(mechanisms, epsilon)
    found = DeltaInterval(0.0, seen)
    if rest and seen < 1:
        try:
            plan = _plan(rest, least, 0.01, neighbours)
        except DesignError:  # doubles see no privacy loss: the sum of the rounds' total variations is left
            each = [n * q * t.count * _alone(t, 0.0).upper for terms, n, q in rest for t in terms]
            return DeltaInterval(0.0, min((sum(each) + seen) * (1 + ROUNDED), 1.0))
        found = _refine(plan, least, width, points, told_from, clock)
        if isinstance(plan, SampledPlan) and (real := plan.attained) is not None:
            lower = in_time(real, least, real.align(real.step / 4), clock, pessimistic=False)
            found = replace(found, lower=min(lower, found.upper))
        if seen:
            found = DeltaInterval(0.0, min(found.upper + seen, 1.0))
    return found


def joint_upper(
    mechanisms: Sequence[Rounds],
    epsilon: float,
    *,
    width: float = 1e-3,
    neighbours: str = "add-remove",
    points: int = 2**20,
    enough: float = 0.0,
    deadline: Deadline | None = None,
) -> float:
    """Bound δ(ε) of several mechanisms from above, on one grid of at most `points` points; only roughly if it is below `enough`."""
    if _most(mechanisms) <= epsilon:
        return 0.0
    rest, least, seen = _hiding(mechanisms, epsilon)
    if seen == 1.0 or not rest:
        return seen
    plan, clock = _plan(rest, least, width, neighbours), Deadline.of(deadline)
    found, most, before = 1.0, 2**14, math.inf
    while True:
        fine = max(plan.step / 2, plan.finest(points))
        step = max(fine, plan.finest(most))
        found = min(found, in_time(plan, least, plan.align(step), clock, pessimistic=True, enough=enough / 2))
        aim = 1e-3 * width * found
        if found <= enough or clock.passed:
            break
        if plan.lost > 10 * aim and plan.upper_tail > FLOOR:  # δ is smaller than planned
            plan, before = plan.losing(aim), math.inf
        elif step == fine or before - found <= width / 2 * found:
            break
        else:
            most, before = most * 8, found
    return min(found + seen, 1.0)


def in_time(
    plan: GridPlan | SampledPlan, epsilon: float, step: float, deadline: Deadline, **options: Any
) -> float:
    """Return δ on the grid of this step, or of a wider one that fits into the time; the trivial bound if none does."""
    most = affordable(deadline)
    while True:
        try:
            return plan.delta(epsilon, step, most=most, **options)
        except DesignError:  # too many points
            if step > plan.finest(4):
                return 1.0 if options["pessimistic"] else 0.0
        step *= 8


def _refine(
    plan: GridPlan | SampledPlan,
    epsilon: float,
    width: float,
    points: int | None,
    told_from: float,
    deadline: Deadline,
) -> DeltaInterval:
    """Halve the step, or more, until the interval is narrow enough; `width` only decides where that ends, so that a smaller one never widens it."""
    step, best = plan.align(plan.step), DeltaInterval(0.0, 1.0)
    if told_from and (coarse := plan.align(plan.finest(2**14))) > 16 * plan.step:
        found = in_time(plan, epsilon, coarse, deadline, pessimistic=True, enough=told_from / 4)
        if found <= told_from / 2:
            return DeltaInterval(0.0, found)
    most = points or _MOST_POINTS
    points = points or int(min(2**20 * max(0.01 / width, 1.0), most))
    while True:
        for pessimistic in (True, False):
            if deadline.passed and (best.upper < 1 or not pessimistic):  # waits for the first upper bound
                return best
            found = in_time(plan, epsilon, step, deadline, pessimistic=pessimistic, enough=told_from / 4)
            best = (
                replace(best, upper=min(best.upper, found))
                if pessimistic
                else replace(best, lower=max(best.lower, found))
            )
            if 0 < 2 * told_from <= best.lower or best.upper <= told_from / 2:
                return best
        gap = best.upper - best.lower
        if gap <= width * best.upper or best.upper <= SMALLEST:
            return best
        cut = plan.lost
        if plan.upper_tail > FLOOR and cut > 0.01 * gap:  # δ is smaller than planned
            guess = min(gap, math.sqrt(best.lower) * math.sqrt(best.upper) or 1e-4 * gap * gap)
            plan = plan.losing(1e-4 * guess)
            if cut > 0.3 * gap:
                step = plan.align(plan.step)
                continue
        if not 0 < plan.finest(points) < 0.9 * step:  # 0: of a single loss any step shows all
            return best
        step = plan.align(max(0.4 * step, plan.finest(most)))


def upper_delta(
    terms: Terms,
    epsilon: float,
    *,
    width: float = 1e-3,
    rounds: int = 1,
    sampling_rate: float = 1.0,
    neighbours: str = "add-remove",
    points: int = 2**20,
    enough: float = 1e-20,
    time_limit: float | None = None,
    deadline: Deadline | None = None,
) -> float:
    """Bound δ(ε) from above alone, in a fraction of the time of `delta_interval`: exactly if there is a closed form, else on one grid.

    Parameters
    ----------
    terms, epsilon, rounds, sampling_rate, neighbours, time_limit, deadline
        As in `delta_interval`.
    width : float
        Relative accuracy for which the grid is planned.
    points : int
        Largest grid.
    enough : float
        A δ below which no accuracy is asked for: a bound of at most this comes from a coarse grid or is Chernoff's, and may be many powers
        of ten above δ.

    Examples
    --------
    >>> from scipy import stats
    >>> step = NoiseTerm(stats.norm(scale=0.65), 1.0)
    >>> seen = {"rounds": 123_498, "sampling_rate": 3.5e-5}
    >>> upper_delta(step, 14.0, **seen) <= 1e-20, upper_delta(step, 14.0, **seen, enough=0.0) <= 3e-49
    (True, True)
    """
    inside("width", width, 1e-9, 1)
    non_negative("enough", enough)
    integer("points", points, 1)
    asked = _Asked.of(terms, epsilon, rounds, sampling_rate, neighbours)
    if (found := asked.closed(asked.low)) is not None:
        return asked.upper(found.upper)
    options: dict[str, Any] = {"neighbours": asked.neighbours, "points": points, "enough": enough}
    options["deadline"] = Deadline.of(deadline, time_limit)
    return asked.upper(joint_upper([asked.rounds], asked.low, width=width, **options))


def lower_delta(
    terms: Terms, epsilon: float, *, width: float = 1e-2, deadline: Deadline | None = None, **seen: Any
) -> float:
    """Bound δ(ε) from below: exactly if there is a closed form, else on one grid planned for `width`, or a wider one if time is short."""
    asked = _Asked.of(terms, epsilon, **seen)
    if (found := asked.closed(asked.high)) is not None:
        return asked.lower(found.lower)
    held, _, rate = asked.rounds
    if apart(held):
        return asked.lower(1.0 if rate == 1 else 0.0)
    plan = _plan([asked.rounds], asked.high, width, asked.neighbours)
    if isinstance(plan, SampledPlan):
        plan = plan.attained or plan
    return asked.lower(in_time(plan, asked.high, plan.step, Deadline.of(deadline), pessimistic=False))


def verified_delta(terms: Terms, epsilon: float, *, deadline: Deadline | None = None, **seen: Any) -> float:
    """Bound δ(ε) from above as the stand-alone verifier can on its finest grid, or on a wider one if time is short.

    The verifier's steps are ε/n times a power of 2, at most 2¹⁵ to the largest loss and 2¹⁶ along the sum of all n; here they are
    twice as wide, as it splits losses up to twice. Where a search does not evaluate this bound, its scales leave room for the same grid: the factors
    1 + 4.5e-7 and 1 + 1e-6 of ρ in `mechdesign.noise.calibration_search`, 1 + 3e-5 of `Plan`, and the 2¹³ points of `JointCalibration`.
    """
    asked, clock = _Asked.of(terms, epsilon, **seen), Deadline.of(deadline)
    held, _, rate = asked.rounds
    if rate < 1:
        return upper_delta(terms, epsilon, points=2**14, enough=0.0, deadline=clock, **seen)
    if apart(held):
        return asked.upper(1.0)
    epsilon = asked.low
    plan = plan_grid(held, epsilon, 1e-3)
    if plan.near_atoms(epsilon):  # the verifier has the exact losses of atoms
        return asked.upper(delta_interval(held, epsilon, width=3e-3, points=2**17, deadline=clock).upper)
    tops = [(count, largest(loss, plan.upper_tail)) for loss, count in plan.losses]
    spread = math.sqrt(-8 * math.log(plan.upper_tail) * max(cumulants(plan.coarse, 0.0).variance, 0.0))
    span = min(sum(2 * count * loss for count, loss in tops), spread)
    least = max(max(loss for _, loss in tops) / 2**15, span / 2**16)
    unit = (epsilon or tops[-1][1]) / sum(count for count, _ in tops)
    step = unit * 2.0 ** math.ceil(math.log2(2 * least / unit))
    return asked.upper(in_time(plan, epsilon, plan.align(step), clock, pessimistic=True))


def epsilon_bound(
    terms: Terms,
    delta: float,
    *,
    width: float = 0.01,
    rounds: int = 1,
    sampling_rate: float = 1.0,
    neighbours: str = "add-remove",
    time_limit: float | None = None,
) -> float:
    r"""Return an ε, rounded up, at which the composition is certified (ε, δ)-DP.

    Parameters
    ----------
    terms, width, rounds, sampling_rate, neighbours
        As in `delta_interval`.
    delta : float
        δ in (0, 1).
    time_limit : float, optional
        Seconds after which the least valid ε so far is returned; if there is none a second later, that of all records in each
        round under normal noise, and the sum of the largest losses under other noise.

    Returns
    -------
    float
        The least ε whose upper bound on δ is at most `delta`, to a relative 1e-9; ``inf`` if δ(ε) never
        falls to it.

    Raises
    ------
    DesignError
        δ outside (0, 1), or below what double precision can certify.

    Examples
    --------
    >>> from scipy import stats
    >>> from mechdesign.accounting.losses import NoiseTerm
    >>> round(epsilon_bound(NoiseTerm(stats.norm(scale=168.802**0.5), 1.0), 1e-6), 4)
    0.3
    """
    delta = inside("delta", delta, 0, 1)
    refuse(delta < SMALLEST, "delta", delta, f"double precision certifies no delta below {SMALLEST}")
    deadline, held = Deadline(time_limit), as_terms(terms)
    asked: dict[str, Any] = {"width": width, "rounds": rounds, "sampling_rate": sampling_rate}
    asked |= {"neighbours": neighbours, "told_from": delta, "deadline": deadline}

    def over(epsilon: float) -> float:
        return excess(delta_interval(held, epsilon, **asked).upper, delta)

    try:
        found = least_kept(over, 1.0, least=0.0, most=2.0**20, xtol=1e-12, rtol=1e-9, deadline=deadline)
    except SolverError:
        if not deadline.passed:
            raise
        if sampling_rate < 1 and all(is_gaussian(t.law) for t in held):
            return epsilon_bound(held, delta, rounds=rounds)  # rounds without samples lose more
        found = math.inf
    largest = _most([(held, rounds, sampling_rate)])
    return round_up(largest) if largest < found else found

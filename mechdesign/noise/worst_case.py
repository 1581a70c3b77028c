r"""The worst change of an answer for a given law, when its sensitivity is stated by several bounds.

`Sensitivity` knows the geometry; which vector a law loses most at depends on the law:

- Gaussian noise: any vector of the largest ℓ₂ norm, on one coordinate. Exact.
- A symmetric log-concave law: the envelope of the set, or shifts packed on fewer coordinates; each is an upper bound, so
  the best of them is one. Exact where that vector is in the set, and under pure privacy always (the largest loss is
  linear in a shift, so that all of ℓ₁ may stand on one coordinate).
- Integer noise on whole answers: the same, shifts rounded down to whole ones.
- A staircase loses at any shift at most what it does at its own step: the largest change on every coordinate that changes.

**Zero-concentrated privacy**, of any law with a proved tail. K coordinates are (ξ, ρ)-zCDP when :math:`K D_\alpha \le \xi + \rho\alpha` for all α > 1, so the least ρ at this ξ is
:math:`\sup_\alpha (K D_\alpha - \xi)/\alpha`. With θ = α − 1 and L the privacy loss at distance Δ,
:math:`D_\alpha = \theta^{-1}\log E e^{\theta L}`, a sum for finitely many losses and an integral otherwise. Orders up
to a finite one are evaluated; beyond it a bound in closed form takes over:

- a loss of at most ℓ gives :math:`D_\alpha \le \ell`;
- Gaussian noise, and noise with an offset in front of Gaussian tails (flipped Huber, OSGT), is sub-Gaussian and its
  loss below an affine function: :math:`D_\alpha \le \alpha r^2/2 + c`, r = Δ over the scale, c the offset's cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import optimize

from mechdesign.accounting.interval import DeltaInterval, delta_interval
from mechdesign.accounting.losses import AtomicLoss, CentredLoss, NoiseTerm, is_gaussian, loss_of
from mechdesign.accounting.profile import largest_loss, profile_epsilon
from mechdesign.errors import DesignError
from mechdesign.evidence.exact import round_up
from mechdesign.problem.sensitivity import Sensitivity, Shifts
from mechdesign.typing import Array, FrozenLaw

Terms = tuple[NoiseTerm, ...]


@dataclass(frozen=True)
class WorstCases:
    """What a law must be private for.

    Attributes
    ----------
    law : frozen scipy.stats distribution
    alternatives : tuple of tuple of NoiseTerm
        Each loses at least as much as every change that the sensitivity allows; the first is the tightest known.
    exact : bool
        Whether the first is itself such a change.
    attained : tuple of tuple of NoiseTerm
        Changes the sensitivity allows: δ is at least theirs.
    """

    law: FrozenLaw
    alternatives: tuple[Terms, ...]
    exact: bool
    attained: tuple[Terms, ...] = ()

    @property
    def single(self) -> float | None:
        """The shift, where one coordinate is all there is."""
        first = self.alternatives[0]
        lone = len(self.alternatives) == 1 and len(first) == 1 and first[0].count == 1
        return first[0].sensitivity if lone else None

    def delta_interval(self, epsilon: float, **options: Any) -> DeltaInterval:
        """Enclose the worst δ(ε)."""
        found = [delta_interval(terms, epsilon, **options) for terms in self.alternatives]
        upper = min(found, key=lambda interval: interval.upper)
        if self.exact and len(found) == 1:
            return upper
        below = [delta_interval(terms, epsilon, **options).lower for terms in self.attained]
        return DeltaInterval(min(max([*below, 0.0]), upper.upper), upper.upper, upper.how)

    @property
    def loss_is_closed(self) -> bool:
        """Whether a closed form says the largest loss."""
        return all(largest_loss(self.law, t.sensitivity) is not None for t in self.alternatives[0])

    def largest_loss(self) -> float:
        """The largest privacy loss, rounded up; inf where there is none."""
        return min(_summed(self.law, terms) for terms in self.alternatives)


def _summed(law: FrozenLaw, terms: Terms) -> float:
    losses = [(t.count, profile_epsilon(law, t.sensitivity, 0.0)) for t in terms]
    if any(math.isinf(loss) for _, loss in losses):
        return math.inf
    return round_up(sum(count * Fraction(loss) for count, loss in losses))


def worst_cases(
    law: FrozenLaw, sensitivity: float | Sensitivity, dimension: int, sampling_rate: float = 1.0
) -> WorstCases:
    """Return what `law`, independent on every coordinate, must be private for.

    Where records are sampled and one of them is replaced that is a change by twice what a record contributes (`mechdesign.accounting.sampling`).

    Raises
    ------
    DesignError
        Bounds for another number of coordinates; integer noise for changes that are no whole numbers; samples of replaced records under other
        than normal noise, or of which nothing is known by themselves.

    Examples
    --------
    >>> from scipy import stats
    >>> cases = worst_cases(stats.norm(), Sensitivity(linf=1, l0=4), 20)
    >>> round(cases.single, 12), cases.exact
    (2.0, True)
    """
    if not isinstance(sensitivity, Sensitivity):
        return WorstCases(law, ((NoiseTerm(law, sensitivity, dimension),),), exact=True)
    s, discrete = sensitivity, not hasattr(law.dist, "_logpdf")
    if sampling_rate < 1 and s.neighbours == "replace":
        if s.own is None or not is_gaussian(law):
            remedy = 'needs noise="gaussian" and Sensitivity(own=...), what one record contributes, where neighbours are replaced'
            raise DesignError.of("sampling_rate", sampling_rate, remedy)
        pair = 2 * s.own
        return WorstCases(law, ((NoiseTerm(law, pair),),), s.largest_l2(dimension) >= pair)

    def terms(vector: Shifts) -> Terms:
        least = 1e-100 * max(size for size, _ in vector)  # half a subnormal shift is none: rounded up
        return tuple(NoiseTerm(law, max(size, least), count) for size, count in vector)

    seen = 1e-9 * s.largest_linf(dimension)  # changes smaller than that say nothing of the worst
    attained = () if discrete else tuple(terms(v) for v in s.attained(dimension) if v[0][0] > seen)
    if is_gaussian(law):
        return WorstCases(law, (terms(((s.largest_l2(dimension), 1),)),), True, attained)
    if discrete:
        return _whole(law, s, dimension)
    top, count = s.largest_linf(dimension), s.count(dimension)
    if isinstance(loss_of(law, top), AtomicLoss):
        box = ((top, count),)
        return WorstCases(law, (terms(box),), s.bounds(dimension) == box == s.envelope(dimension)[0], ())
    found = [s.envelope(dimension), *s.packed(dimension)]
    if len(found) == 3 and s.l2 is None and s.each is None and not found[0][1]:
        found = found[1:]  # packed, the same vector is shorter
    best = next((vector for vector, exact in found if exact), None)
    if best is not None:
        return WorstCases(law, (terms(best),), True, attained)
    return WorstCases(law, tuple(terms(vector) for vector, _ in found), False, attained)


def _whole(law: FrozenLaw, s: Sensitivity, dimension: int) -> WorstCases:
    """Integer noise: the answers are whole, and so are their changes."""
    for name, bounds in (("linf", (s.linf,)), ("each", s.each or ())):
        for bound in bounds:
            if bound is not None and bound != int(bound):
                raise DesignError.of(
                    f"sensitivity.{name}", bound, "must be a whole number for discrete noise"
                )
    found: list[Terms] = []
    for vector, _ in (s.envelope(dimension), *s.packed(dimension)):
        terms = tuple(NoiseTerm(law, math.floor(v), c) for v, c in vector if math.floor(v) >= 1)
        if terms and terms not in found:
            found.append(terms)
    if not found:
        raise DesignError.of(
            "sensitivity", str(s), "allows no change of a whole number: nothing needs discrete noise"
        )
    exact = s.allows(tuple((t.sensitivity, t.count) for t in found[0]))
    return WorstCases(law, (found[0],) if exact else tuple(found), exact, (found[0],) if exact else ())


def amplified(loss: float, *, rounds: int = 1, sampling_rate: float = 1.0, **options: Any) -> float:
    r"""The largest privacy loss of sampled rounds: :math:`r\log(1 + q(e^{\varepsilon} - 1))`, rounded up.

    Examples
    --------
    >>> amplified(1.0, rounds=3), round(amplified(1.0, sampling_rate=0.01), 6)
    (3.0, 0.017037)
    """
    if math.isinf(loss):
        return loss
    if sampling_rate == 1.0 or loss > 700:
        return round_up(rounds * Fraction(loss))
    return rounds * math.log1p(sampling_rate * math.expm1(loss)) * (1 + 1e-15)


def concentrated_rho(law: FrozenLaw, sensitivity: float, dimension: int = 1, xi: float = 0.0) -> float:
    """Return the least ρ, rounded up, with which `dimension` coordinates of `law` are (ξ, ρ)-zCDP; inf if none.

    Raises
    ------
    DesignError
        The law's tail has no bound here (generalised normal noise, say).

    Examples
    --------
    >>> from scipy import stats
    >>> round(concentrated_rho(stats.norm(scale=2.0), 1.0, 4), 6)
    0.5
    >>> round(concentrated_rho(stats.laplace(), 1.0), 6)   # the KL divergence, 1 - 1 + 1/e
    0.367879
    """
    return _together((NoiseTerm(law, sensitivity, dimension),), xi)


def _together(terms: Terms, xi: float) -> float:
    """The least ρ of coordinates that move so."""
    losses = [loss_of(t.law, t.sensitivity) for t in terms]
    if any(
        loss.infinity > 0 if isinstance(loss, AtomicLoss) else math.isfinite(loss.edge) for loss in losses
    ):
        return math.inf
    tails = [_tail(t.law, t.sensitivity) for t in terms]
    slope, offset = (sum(t.count * tail[k] for t, tail in zip(terms, tails)) for k in (0, 1))
    if offset == 0:
        return slope * (1 + 4e-16)
    last = 1e6 if slope == 0 else max(10.0, 30 / math.sqrt(2 * max(tails)[0]))
    parts = [(t.count, *_losses(loss, s, last)) for t, loss, (s, _) in zip(terms, losses, tails)]

    def rho(log_theta: float) -> float:
        theta = math.exp(log_theta)
        return (sum(n * _log_sum(theta * values + log) for n, values, log in parts) / theta - xi) / (
            1 + theta
        )

    grid = np.linspace(math.log(1e-3), math.log(last), 60)
    at = np.array([rho(x) for x in grid])
    i = int(np.argmax(at))
    low, high = grid[max(i - 1, 0)], grid[min(i + 1, grid.size - 1)]
    found = optimize.minimize_scalar(lambda x: -rho(x), bounds=(low, high), method="bounded")
    first = sum(n * float(np.sum(np.exp(log) * values)) for n, values, log in parts) - xi  # order 1
    beyond = slope + max(offset - xi, 0.0) / (1 + last)
    # above the error of the integrals and of the largest order found
    return max(0.0, float(at[i]), -float(found.fun), first, beyond) * (1 + 1e-9)


def _log_sum(logs: Array) -> float:
    """log Σ e^x."""
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))


def worst_rho(law: FrozenLaw, sensitivity: float | Sensitivity, dimension: int = 1, xi: float = 0.0) -> float:
    """Return ρ as `concentrated_rho` does, for whatever the sensitivity allows.

    The budget that normal noise consumes, also the discrete one, follows the ℓ₂ norm. Of other discrete noise, what is the worst for every δ(ε) is so for
    every order; any other log-concave law consumes at most what it does with the largest change on every coordinate that changes, or with the whole ℓ₁
    norm on one.

    Examples
    --------
    >>> from scipy import stats
    >>> round(worst_rho(stats.norm(scale=2.0), Sensitivity(linf=1, l0=4), 20), 6)
    0.5
    """
    if not isinstance(sensitivity, Sensitivity):
        return concentrated_rho(law, sensitivity, dimension, xi)
    if is_gaussian(law) or law.dist.name == "discrete_gaussian":
        slope, _ = _tail(law, sensitivity.largest_l2(dimension))
        return slope * (1 + 4e-15)
    if not hasattr(law.dist, "_logpdf"):
        return min(_together(terms, xi) for terms in worst_cases(law, sensitivity, dimension).alternatives)
    box = concentrated_rho(law, sensitivity.largest_linf(dimension), sensitivity.count(dimension), xi)
    if law.dist.name == "staircase":
        return box
    return min(box, concentrated_rho(law, sensitivity.largest_l1(dimension), 1, xi))


def _tail(law: FrozenLaw, sensitivity: float) -> tuple[float, float]:
    """(s, c) with D_α ≤ sα + c for every order."""
    name = law.dist.name
    shapes, _, *scale = law.dist._parse_args(*law.args, **law.kwds)
    r = sensitivity / float(scale[0]) if scale else math.nan
    if name == "norm":
        return r * r / 2, 0.0
    if name == "discrete_gaussian":
        return (sensitivity / float(shapes[0])) ** 2 / 2, 0.0
    if name == "flipped_huber":
        b = float(shapes[0])
        return r * r / 2, (b * b - max(b - r, 0.0) ** 2) / 2
    if name == "osgt":
        return r * r / 2, r * float(shapes[0])
    largest = profile_epsilon(law, sensitivity, 0.0)
    if not math.isfinite(largest):
        raise DesignError.of(
            "noise",
            name,
            "has no proved zCDP: its loss is unbounded; use osgt, flipped_huber, laplace or logistic",
        )
    return 0.0, largest


def _losses(loss: CentredLoss | AtomicLoss, slope: float, last: float) -> tuple[Array, Array]:
    """Values of the loss with the logarithm of their mass: exact, or nodes of a quadrature between the kinks."""
    if isinstance(loss, AtomicLoss):
        with np.errstate(divide="ignore"):
            return loss.values, np.log(loss.mass)
    half = loss.sensitivity / 2
    core = float(loss.isf(1e-40)) + half
    edges = np.concatenate([np.arange(0.0, core, float(loss.law.std()) / 2), [core]])
    if slope:
        # tilted by order α the law's mass moves up to αΔ into the Gaussian tail, of deviation Δ/√(2s)
        wide = loss.sensitivity / math.sqrt(2 * slope) / 2
        edges = np.append(edges, np.arange(core, core + (1 + last) * loss.sensitivity + 12 * wide, wide))
    edges = np.append(edges, [k for k in loss.kinks if k < edges[-1]])
    edges = np.unique(np.concatenate([-edges, edges]))
    width = np.diff(edges)[:, None]
    nodes, weights = np.polynomial.legendre.leggauss(24)
    t = (edges[:-1, None] + width * (1 + nodes) / 2).ravel()
    with np.errstate(divide="ignore"):
        return loss.loss(t), loss.law.logpdf(t - half) + np.log((width * weights / 2).ravel())

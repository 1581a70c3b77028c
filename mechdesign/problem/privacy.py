r"""Privacy requirements: what must hold, as immutable values; and questions in words: guarantee, unit of privacy, answer and loss.

========================  =====================================================================
`PureDP`                  :math:`P[M(x) \in S] \le e^{\varepsilon} P[M(x') \in S]`
`ApproximateDP`           the same plus :math:`\delta`
`ZeroConcentratedDP`      :math:`D_\alpha(M(x) \| M(x')) \le \xi + \rho\alpha` for all α > 1
`MetricDP`                :math:`P[M(x) \in S] \le e^{\varepsilon d(x, x')} P[M(x') \in S]`
`GaussianDP`              δ(ε) at most that of normal noise of deviation 1/μ, for all ε ≥ 0
`MembershipAdvantage`     `ApproximateDP` at ε = 0: \|P[M(x) ∈ S] − P[M(x') ∈ S]\| ≤ η
`TradeOff`                `ApproximateDP` at several (ε, δ) at once
========================  =====================================================================

Whether :math:`x, x'` are any two inputs (local model) or neighbouring datasets (central model)
is the design's business, not the requirement's.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias, get_args

import numpy as np
from scipy import optimize

from mechdesign import checks
from mechdesign.checks import Checked, field, instance, refuse
from mechdesign.errors import DesignError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.digits import at_most, shown
from mechdesign.evidence.exact import exp_lower, exp_upper, round_up
from mechdesign.evidence.serialize import serializable
from mechdesign.typing import Array, Numbers


@serializable("pure-dp")
class PureDP(Checked):
    """Pure ε-differential privacy.

    Parameters
    ----------
    epsilon : float
        The budget ε > 0, in nats.

    Examples
    --------
    >>> PureDP(1)
    PureDP(epsilon=1.0)
    """

    epsilon: float = field(check=checks.positive, side=checks.DOWN)


@serializable("approximate-dp")
class ApproximateDP(Checked):
    """(ε, δ)-differential privacy.

    Parameters
    ----------
    epsilon : float
        ε > 0, in nats.
    delta : float
        δ in [0, 1).

    Examples
    --------
    >>> ApproximateDP(1, 1e-6)
    ApproximateDP(epsilon=1.0, delta=1e-06)
    """

    epsilon: float = field(check=checks.positive, side=checks.DOWN)
    delta: float = field(check=checks.probability, below_one=True, side=checks.DOWN)


@serializable("zcdp")
class ZeroConcentratedDP(Checked):
    """(ξ, ρ)-zero-concentrated differential privacy (Bun and Steinke 2016).

    Parameters
    ----------
    rho : float
        The slope ρ > 0 of the Rényi divergence in its order.
    xi : float
        The offset ξ ≥ 0.
    """

    rho: float = field(check=checks.positive, side=checks.DOWN)
    xi: float = field(check=checks.non_negative, side=checks.DOWN, default=0.0)


@serializable("gaussian-dp")
class GaussianDP(Checked):
    r"""μ-Gaussian differential privacy (Dong, Roth and Su 2022): neighbours are as hard to tell apart as N(0, 1) and N(μ, 1).

    :math:`\delta(\varepsilon) \le \Phi(\mu/2 - \varepsilon/\mu) - e^{\varepsilon}\Phi(-\mu/2 - \varepsilon/\mu)` for every ε ≥ 0.

    Parameters
    ----------
    mu : float
        μ > 0.
    """

    mu: float = field(check=checks.positive, side=checks.DOWN)


def _advantage(name: str, value: object) -> float:
    return checks.inside(name, checks.probability(name, value, side=checks.DOWN), 0, 1)


@serializable("membership-advantage")
class MembershipAdvantage(Checked):
    """(0, η)-differential privacy: an attacker's true-positive rate exceeds the false-positive rate by at most η.

    Parameters
    ----------
    eta : float
        η in (0, 1).
    """

    eta: float = field(check=_advantage)

    @property
    def epsilon(self) -> float:
        """0, as (ε, δ)-privacy."""
        return 0.0

    @property
    def delta(self) -> float:
        """η, as (ε, δ)-privacy."""
        return self.eta


def _metric(name: str, value: object) -> object:
    held = callable(value) or hasattr(value, "distances")
    return value if held else checks.one_of(name, value, ("absolute", "squared"))


@serializable("metric-dp")
class MetricDP(Checked):
    """Metric differential privacy: the loss between x and x' is at most α·d(x, x').

    Parameters
    ----------
    epsilon : float
        α > 0, privacy per unit of distance.
    metric : {"absolute", "squared"} or callable
        ``"absolute"`` is \\|x − x'\\|; ``"squared"`` is \\|x − x'\\|² (only meaningful on a fixed input
        grid: on a continuum it forces a constant mechanism); a callable ``d(x, y)`` is vectorised
        over arrays and needs a fixed input grid too. A problem on a `Table` takes a `MetricSpace` of its inputs.
    """

    epsilon: float = field(check=checks.positive, side=checks.DOWN)
    metric: Any = field(check=_metric, default="absolute")

    def distance(self, x: Numbers, y: Numbers) -> Array:
        """Distance between inputs, element-wise over arrays."""
        if callable(self.metric):
            return np.asarray(self.metric(x, y))
        if not isinstance(self.metric, str):
            raise DesignError.of("metric", self.metric, "is a space of listed inputs, those of a Table alone")
        own, other = (checks.array(name, v, ndim=None, empty=True) for name, v in (("x", x), ("y", y)))
        with checks.refusing("y", other.shape, f"must have the shape of x, {own.shape}", ValueError):
            gap = np.abs(own - other)
        if self.metric == "absolute":
            return gap
        allowed = f"needs inputs at least {checks.NARROWEST:g} apart, as squares of less underflow: choose a smaller unit"
        checks.refuse(((gap > 0) & (gap < checks.NARROWEST)).any(), "metric", self.metric, allowed)
        return gap * gap


GAUSSIAN_ALONE = 'is proved of Gaussian noise alone: calibrate("gaussian", ...), or state points of its curve, TradeOff([(epsilon, delta), ...])'
"""Remedy where `GaussianDP`, which holds for every ε at once, cannot be proved."""

CentralPrivacy = PureDP | ApproximateDP | ZeroConcentratedDP | GaussianDP | MembershipAdvantage | TradeOff
"""Requirements that hold equally for all neighbouring data sets."""
Privacy = CentralPrivacy | MetricDP


def parts_of(privacy: CentralPrivacy) -> tuple[CentralPrivacy, ...]:
    """Split a requirement into single requirements whose conjunction it is.

    Examples
    --------
    >>> parts_of(TradeOff([(0, 0.4), (1, 0), (2, 1)]))
    (MembershipAdvantage(eta=0.4), PureDP(epsilon=1.0))
    """
    if not isinstance(privacy, TradeOff):
        return (privacy,)
    asked = [(e, d) for e, d in privacy.points if d < 1]
    allowed = "must ask for something, and for less than that nothing is learnt"
    refuse(not asked or (0.0, 0.0) in asked, "points", privacy.points, allowed)
    return tuple(
        MembershipAdvantage(d) if e == 0 else ApproximateDP(e, d) if d else PureDP(e) for e, d in asked
    )


Pointwise: TypeAlias = PureDP | ApproximateDP | MembershipAdvantage | TradeOff
"""Requirements at finitely many ε."""


def pairs_of(privacy: Pointwise) -> tuple[tuple[float, float], ...]:
    """Return all pairs (ε, δ) that a requirement asks for; δ = 0 under pure privacy.

    Examples
    --------
    >>> pairs_of(TradeOff([(0, 0.4), (1, 0), (2, 1)]))
    ((0.0, 0.4), (1.0, 0.0))
    """
    instance("privacy", privacy, *get_args(Pointwise))
    return tuple((part.epsilon, getattr(part, "delta", 0.0)) for part in parts_of(privacy))  # type: ignore[union-attr]


def points_of(privacy: object, at: Iterable[float] = ()) -> TradeOff:
    r"""Return (ε, δ) points implied by a requirement; under zCDP, those tight at the false-positive rates `at`.

    :math:`D_\alpha \le \xi + \rho\alpha` gives :math:`\delta(\varepsilon) \le e^{(\alpha - 1)(\xi + \rho\alpha - \varepsilon)}
    (1 - 1/\alpha)^\alpha/(\alpha - 1)` for every α (Canonne, Kamath and Steinke 2020, Proposition 12).

    Examples
    --------
    >>> round(points_of(PureDP(1.0)).attack(0.01).found, 4)
    0.0272
    """
    if isinstance(privacy, TradeOff):
        return privacy
    if isinstance(privacy, PureDP | ApproximateDP | MembershipAdvantage):
        return TradeOff(((privacy.epsilon, getattr(privacy, "delta", 0.0)),))
    if not isinstance(privacy, ZeroConcentratedDP):
        allowed = "states no epsilon for all neighbours, which a trade-off needs"
        raise DesignError.of("privacy", privacy, allowed)

    def log_delta(u: float, epsilon: float) -> float:
        order = math.exp(u)  # α - 1
        loss = privacy.xi + privacy.rho * (1 + order) - epsilon
        return order * loss - u - (1 + order) * math.log1p(1 / order)

    def delta(epsilon: float) -> float:
        found = optimize.minimize_scalar(log_delta, args=(epsilon,), bounds=(-12, 12), method="bounded")
        return min(math.exp(min(float(found.fun), 0.0)) * (1 + 1e-9), 1.0)

    return TradeOff.of_profile(delta, at)


def implied_by_pure(privacy: PureDP | ApproximateDP | ZeroConcentratedDP, loss: Fraction) -> bool:
    r"""Whether pure DP with this `loss` implies the requirement, in rational arithmetic.

    Randomized response is the worst pair of laws with losses of at most x (Kairouz, Oh and
    Viswanath 2015), so x-DP is (ε, δ)-DP where :math:`e^x - e^\varepsilon \le \delta (1 + e^x)`. Its Rényi divergence of order α is
    :math:`\frac1{\alpha - 1} \log\frac{\cosh((\alpha - 1/2)x)}{\cosh(x/2)} \le \alpha x \tanh(x/2)`: at α = 1 numerator and bound times α − 1 are
    0, and of their slopes, x tanh((α − ½)x) and (2α − 1)x tanh(x/2), the second is larger as tanh is concave. So x-DP is
    x tanh(x/2)-zCDP.

    Examples
    --------
    >>> [implied_by_pure(ApproximateDP(1.0, 0.1), Fraction(x)) for x in (1.14, 1.15)]
    [True, False]
    """
    if isinstance(privacy, ZeroConcentratedDP):
        if loss <= Fraction(privacy.xi) + Fraction(privacy.rho):
            return True
        high = exp_upper(loss)
        return loss * (high - 1) <= Fraction(privacy.rho) * (high + 1)
    if loss <= Fraction(privacy.epsilon):
        return True
    delta = Fraction(privacy.delta) if isinstance(privacy, ApproximateDP) else 0
    return bool(delta) and exp_upper(loss) * (1 - delta) <= exp_lower(privacy.epsilon) + delta


def pure_epsilon(privacy: PureDP | ApproximateDP | ZeroConcentratedDP) -> float:
    """Return the largest x, to rounding, for which x-DP implies the requirement, by `implied_by_pure`.

    Examples
    --------
    >>> [round(pure_epsilon(p), 6) for p in (PureDP(1.0), ApproximateDP(1.0, 0.1), ZeroConcentratedDP(0.5))]
    [1.0, 1.141488, 1.043627]
    """
    if isinstance(privacy, ZeroConcentratedDP):
        rho = privacy.rho
        found = optimize.brentq(
            lambda x: x * math.tanh(x / 2) - rho,
            rho / 2,
            rho + 2 * math.sqrt(rho) + 1,
            xtol=1e-300,
            rtol=1e-15,
            maxiter=2000,  # halvings, of a root far below 1
        )
        return max(float(found) * (1 - 4e-15), (rho + privacy.xi) * (1 - 4e-16))
    delta = privacy.delta if isinstance(privacy, ApproximateDP) else 0.0
    more = math.log1p(delta * math.exp(-privacy.epsilon)) - math.log1p(-delta)
    return max(privacy.epsilon, (privacy.epsilon + more) * (1 - 2e-15)) if delta else privacy.epsilon


@dataclass(frozen=True)
class Consumption:
    r"""Budget that a release consumes; each number is proved and rounded up, or infinite if none is known.

    Parameters
    ----------
    epsilon : float
        Pure ε.
    rho : float
        ρ of zCDP.
    mu : float
        μ of Gaussian differential privacy.
    statement : (float, float), optional
        The (ε, δ) that is certified.
    neighbours : str
        Neighbouring relation: ``"add-remove"`` or ``"replace"``.

    Examples
    --------
    >>> laplace, normal = Consumption.pure((1.0, 2)), Consumption.gaussian(Fraction(1, 4))
    >>> laplace.epsilon, round(laplace.rho, 6), normal.mu, normal.rho
    (2.0, 0.924234, 0.5, 0.125)
    >>> both = laplace + normal
    >>> both.epsilon, round(both.rho, 6)
    (inf, 1.049234)
    """

    epsilon: float = math.inf
    rho: float = math.inf
    mu: float = math.inf
    statement: tuple[float, float] | None = None
    neighbours: str = "add-remove"

    @classmethod
    def of(cls, privacy: object) -> Consumption:
        """Return the consumption that a requirement implies, or several requirements that all hold."""
        if isinstance(privacy, tuple):
            return functools.reduce(operator.and_, map(cls.of, privacy))
        if isinstance(privacy, GaussianDP):
            return cls.gaussian(Fraction(privacy.mu) ** 2)
        if isinstance(privacy, ZeroConcentratedDP):  # D_α ≤ ξ + ρα ≤ (ξ + ρ)α
            return cls(rho=round_up(Fraction(privacy.rho) + Fraction(privacy.xi)))
        if not isinstance(privacy, PureDP | ApproximateDP):
            return cls()
        delta = getattr(privacy, "delta", 0.0)
        own = cls() if delta else cls.pure((privacy.epsilon, 1))
        return replace(own, statement=(privacy.epsilon, delta))

    @classmethod
    def pure(cls, *losses: tuple[Fraction | float, int]) -> Consumption:
        """Compose pure mechanisms, given as (largest loss ε, count): both ε and ρ = ε tanh(ε/2) add up (`implied_by_pure`)."""
        epsilon = rho = Fraction(0)
        wanted = "must be pairs of a largest loss and a count, at least 0"
        with checks.refusing("losses", losses, wanted):
            if any(math.isinf(loss) for loss, _ in losses):
                return cls()
            for loss, count in losses:
                part, high = Fraction(loss) * checks.integer("losses", count, 0), exp_upper(loss)
                epsilon, rho = epsilon + part, rho + part * (high - 1) / (high + 1)
                refuse(part < 0, "losses", loss, wanted)
        return cls(round_up(epsilon), round_up(rho), math.inf if epsilon else 0.0)

    @classmethod
    def gaussian(cls, square: Fraction | float) -> Consumption:
        """Return the consumption of Gaussian noise with this μ²."""
        least = checks.non_negative("square", square, side=checks.UP)
        square = square if isinstance(square, Fraction) else least
        mu = math.sqrt(round_up(square))
        mu = mu if Fraction(mu) ** 2 >= square else math.nextafter(mu, math.inf)
        return cls(math.inf if square else 0.0, round_up(Fraction(square) / 2), mu)

    @classmethod
    def largest(cls, each: Sequence[Consumption], neighbours: str) -> Consumption:
        """Return the consumption of one release that consumes each of these for different people: every number's largest."""
        allowed = "must be Consumption values, at least one"
        each = [instance("each", one, Consumption) for one in checks.listed("each", each, allowed)]
        refuse(not each, "each", each, allowed)
        epsilon, rho, mu = (max(getattr(one, key) for one in each) for key in ("epsilon", "rho", "mu"))
        stated = [one.statement for one in each if one.statement is not None]
        statement = (
            (max(e for e, _ in stated), max(d for _, d in stated)) if len(stated) == len(each) else None
        )
        return cls(epsilon, rho, mu, statement, neighbours)

    def __and__(self, other: Consumption) -> Consumption:
        """Combine two proofs about one release: each number is the smaller."""
        epsilon, rho, mu = (min(getattr(self, key), getattr(other, key)) for key in ("epsilon", "rho", "mu"))
        return Consumption(epsilon, rho, mu, self.statement or other.statement, self.neighbours)

    def __add__(self, other: Consumption) -> Consumption:
        """Compose two releases about the same people; the sum has no (ε, δ) statement."""
        epsilon, rho = (
            math.nextafter(a + b, math.inf) if a and b else a + b
            for a, b in ((self.epsilon, other.epsilon), (self.rho, other.rho))
        )
        mu = math.hypot(self.mu, other.mu) * (1 + 1e-15 if self.mu and other.mu else 1)
        return Consumption(epsilon, rho, mu, None, self.neighbours)


# -- in words -------------------------------------------------------------------------------------------------------

_LOCAL = "any two inputs that a person might have"
_NEIGHBOURING = "any two neighbouring data sets"
FARTHEST = (
    "That is between any two inputs, the two that are farthest apart too; between nearer ones less is found."
)
_WHOLE = "as long as the changes are stated for all records of a person. Further releases consume more."
_NEGLIGIBLE = 1e-6
_UNITS = {
    None: "one report of one person, randomized before it leaves the device. Every further report of a person consumes the budget again.",
    "add-remove": f"one person more or less (add-remove neighbours), {_WHOLE}",
    "replace": f"one person whose data are replaced (replace neighbours), {_WHOLE}",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Description:
    """Question and mechanism of a design in words; one template makes the head of its page from them.

    Parameters
    ----------
    title : str
        The mechanism, in a few words. The page adds the guarantee.
    what : str
        The question and how it is answered, in sentences.
    loss : str
        Noun phrase for the value, to follow "the".
    more : tuple of str
        Paragraphs about the mechanism found.
    pair : str
        The inputs between which privacy holds, if not any two.
    unit : str
        The unit of privacy in a sentence, where it is neither one report nor one person.
    picture, rivals : str
        What the picture shows, and which mechanisms the result is compared with.
    attacked : str
        Sentence on the inputs between which the attacker is bounded, if privacy weakens with distance (`FARTHEST`).
    """

    title: str
    what: str
    loss: str
    more: tuple[str, ...] = ()
    pair: str = ""
    unit: str = ""
    picture: str = ""
    rivals: str = (
        "The same question answered by known mechanisms at the same privacy, each at its least error. "
        "md.compare tries every mechanism that applies."
    )
    attacked: str = ""

    def question(self, privacy: object, neighbours: str | None, mechanisms: object) -> str:
        """Return the question in sentences, paragraphs apart by an empty line.

        Parameters
        ----------
        privacy : Privacy or str
            The requirement; if it is no `Privacy`, `what` or `more` describes it.
        neighbours : str, optional
            Neighbouring relation; None for reports of one person each.
        mechanisms : MechanismClass
            Mechanisms over which the design optimizes.
        """
        pair = self.pair or (_LOCAL if neighbours is None else _NEIGHBOURING)
        required = [privacy_words(privacy, pair)] if isinstance(privacy, Privacy) else []
        unit = self.unit or f"The unit of privacy is {_UNITS[neighbours]}"
        aim = f"What is minimised is the {self.loss}, over {mechanisms}."
        return "\n\n".join([self.what, *required, unit, aim, *self.more])


def guarantee(privacy: object) -> str:
    """Return the requirement in symbols.

    Examples
    --------
    >>> guarantee(ApproximateDP(1.0, 1e-6)), guarantee(PureDP(0.5))
    ('ε = 1, δ = 1e-06', 'ε = 0.5')
    """
    if isinstance(privacy, ZeroConcentratedDP):
        return f"ρ = {shown(privacy.rho)}" + (f", ξ = {shown(privacy.xi)}" if privacy.xi else "")
    if isinstance(privacy, GaussianDP):
        return f"μ = {shown(privacy.mu)}"
    if not isinstance(privacy, Privacy):  # of users
        return str(privacy)
    if not isinstance(privacy, PureDP | MetricDP):
        points = points_of(privacy).points
        return "; ".join(f"ε = {shown(e)}" + (f", δ = {shown(d)}" if d else "") for e, d in points)
    if isinstance(privacy, MetricDP):
        unit = getattr(privacy.metric, "unit", "") or "unit of distance"
        return f"α = {shown(privacy.epsilon)} per {unit}"
    return f"ε = {shown(privacy.epsilon)}"


def stated(
    asked: str, unit: str, deviation: float | None, rounds: int = 1, sampling_rate: float = 1.0
) -> str:
    """Return the first line of a print: guarantee, rounds, unit of privacy, standard deviation.

    Examples
    --------
    >>> stated("ε = 1, δ = 0", "add-remove neighbours", 1.41421, rounds=12)
    'ε = 1, δ = 0; 12 rounds together; add-remove neighbours; standard deviation 1.41421'
    """
    often = "1 round" if rounds == 1 else f"{rounds} rounds together"
    often += "" if sampling_rate == 1 else f", each on a Poisson sample at rate {sampling_rate:g}"
    error = [] if deviation is None else [f"standard deviation {deviation:.6g}"]
    return "; ".join([asked, often, unit, *error])


def privacy_words(privacy: Privacy, pair: str) -> str:
    """Return the requirement as a sentence about `pair`, the inputs that must be hard to tell apart.

    Examples
    --------
    >>> privacy_words(PureDP(1.0), _LOCAL)[:62]
    'ε-differential privacy with ε = 1: for any two inputs that a p'
    """
    if isinstance(privacy, PureDP):
        kind = "ε-differential privacy"
        kept = f"no answer is more than e^ε = {_factor(privacy.epsilon)} times likelier under one than under the other"
    elif isinstance(privacy, ApproximateDP):
        kind, factor = "(ε, δ)-differential privacy", _factor(privacy.epsilon)
        kept = f"no set of answers is likelier under one than e^ε = {factor} times under the other plus δ"
    elif isinstance(privacy, ZeroConcentratedDP):
        kind, most = "Zero-concentrated differential privacy", "ξ + ρα" if privacy.xi else "ρα"
        kept = f"the Rényi divergence of order α between the answers is at most {most}, for all α > 1"
    elif isinstance(privacy, GaussianDP):
        kind = "Gaussian differential privacy"
        kept = "the answers are no easier to tell apart than two normal numbers of deviation 1 whose means are μ apart"
    elif isinstance(privacy, MetricDP):
        how = f"{privacy.metric} " if isinstance(privacy.metric, str) else ""
        unit = f" in {privacy.metric.unit}" if getattr(privacy.metric, "unit", "") else ""
        kind = "Metric differential privacy"
        kept = f"no answer is more than e^(α d) times likelier under one than under the other, where d is the {how}distance between them{unit}"
    else:
        kind, curve = "(ε, δ)-differential privacy", points_of(privacy)
        more = at_most(100 * curve.advantage, 3)
        kept = f"{curve.attack(0.01)}, and whoever accuses any share of the innocents finds at most that and {more} percentage points more of the guilty"
    return f"{kind} with {guarantee(privacy)}: for {pair}, {kept}."


def _factor(epsilon: float) -> str:
    return at_most(math.exp(epsilon), 4) if epsilon < 700 else f"e^{epsilon:g}"


def never_sent(names: Sequence[str], most: Array, what: str) -> list[str]:
    """Name the outputs whose largest probability over all inputs, in `most`, is negligible.

    Examples
    --------
    >>> never_sent(["-1", "0", "1"], np.array([0.5, 1e-9, 0.5]), "outputs")
    ['outputs that practically never come, of probability at most 1e-09 for every input: 0']
    """
    rare = np.flatnonzero(most < _NEGLIGIBLE)
    if not len(rare):
        return []
    listed = ", ".join(names[i] for i in rare[:8])
    if len(rare) > 8:
        listed += f", … ({len(rare)} of {len(names)})"
    top, often = float(most[rare].max()), "never come"
    if top:
        often = f"practically never come, of probability at most {shown(top, 2)} for every input"
    return [f"{what} that {often}: {listed}"]

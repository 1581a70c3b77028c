r"""A type for each coordinate: Laplace noise where one coordinate's loss matters alone, Gaussian where many add up.

Gaussian noise costs half of what Laplace noise does where losses are small and many; Laplace noise has no tail of losses, and
is better where few coordinates carry them. So coordinates are sorted by :math:`\lambda_i/\sigma_i` of the Gaussian allocation,
and the first j get Laplace noise. For each j tried the Gaussian coordinates share :math:`\mu^2` as in P3, the Laplace ones have the
ratios of P4, and one number, how much the Gaussian ones take, is searched; the other follows from δ of the exact composition.
Of all, and of both pure types, the cheapest is returned: a search, with no lower bound. On the deployed grid
(results/ablations) one of six designs costs 65% more with the better pure type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import optimize, stats

from mechdesign.accounting.interval import delta_interval, upper_delta
from mechdesign.accounting.losses import NoiseTerm, is_gaussian
from mechdesign.errors import DesignError
from mechdesign.evidence.account import Account
from mechdesign.evidence.certificate import PROVED, RECOMPUTED, OldCertificate, check_table
from mechdesign.evidence.digits import at_most
from mechdesign.evidence.old_results import OldResult
from mechdesign.evidence.results import AUDIT_COLUMNS
from mechdesign.evidence.rounding import safe_root
from mechdesign.evidence.serialize import serializable
from mechdesign.noise.allocation.question import AllocationQuestion
from mechdesign.noise.mixed_noise import MixedNoise
from mechdesign.noise.pictures import relative_table
from mechdesign.noise.vector_noise import absolute_moment
from mechdesign.plotting import COLOURS, figure, sized
from mechdesign.problem.checks import instance
from mechdesign.problem.privacy import ApproximateDP
from mechdesign.problem.words import NEIGHBOURS, guarantee, privacy_words, unit_words
from mechdesign.solvers import Deadline
from mechdesign.typing import Array, Indices

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "FLOOR",
    "MixedAllocationResult",
    "MixedCertificate",
    "MixedProblem",
    "composed",
    "mixed_cost",
    "mixed_scales",
    "refuse_limits",
    "within_budget",
]

_LEVELS = 8
"""Different Laplace ratios, at most: each is composed on its own."""
_WIDTH = 0.03
"""Width of the intervals that the search goes by."""
_FAR = 1e200
"""Stands for no mix at all."""
_SPREAD = 16.0
"""Laplace ratios within a mix are at most this factor apart."""
FLOOR = 1e-12
"""Least Laplace ratio over the largest: less saves nothing, and a lattice could not keep it."""


def composed(law: MixedNoise, privacy: ApproximateDP) -> tuple[float, bool]:
    """δ of the exact composition at ε, from above, and whether a closed form or basic composition proves it.

    What is τ-private purely leaves ε − τ to the others.
    """
    terms, small = law.terms(), law.small
    left = math.nextafter(privacy.epsilon - small, -math.inf)
    if left < 0:
        return 1.0, False
    if len(terms) == 1 and terms[0].count == 1:
        found = delta_interval(terms, left)  # in closed form
        return found.upper, found.how == PROVED
    if not any(is_gaussian(t.law) for t in terms):
        total = (small + math.fsum(t.sensitivity * t.count for t in terms)) * (1 + 1e-15)
        basic = -math.expm1(privacy.epsilon - total) * (1 + 1e-14) if total > privacy.epsilon else 0.0
        if basic <= privacy.delta or len(terms) > 2 * _LEVELS:
            return basic, True
    return upper_delta(terms, left, width=3e-3), False


@dataclass(frozen=True, eq=False)
class MixedProblem:
    """Coordinates that need noise, and what an error costs.

    Parameters
    ----------
    sensitivities : ndarray, shape (K,)
        Positive.
    weights : ndarray or None
    order : float
    privacy : ApproximateDP
    mu : float
        Of a Gaussian that spends all of it.
    """

    sensitivities: Array
    weights: Array | None
    order: float
    privacy: ApproximateDP
    mu: float

    @cached_property
    def _weight(self) -> Array:
        return np.ones(len(self.sensitivities)) if self.weights is None else self.weights

    @cached_property
    def normal(self) -> Array:
        """Gaussian scales at μ = 1, up to the common factor of those chosen (P3)."""
        lam, p = self.sensitivities, self.order
        return np.asarray((lam**2 / self._weight) ** (1 / (p + 2)))

    @cached_property
    def ratios(self) -> Array:
        """λ/β of Laplace noise, up to a factor (P4)."""
        lam, p = self.sensitivities, self.order
        return np.asarray(lam / (lam / self._weight) ** (1 / (p + 1)))

    def levels(self, laplace: Any) -> Array:
        """Ratios of these coordinates over the largest; many are put on a few levels."""
        found = self.ratios[laplace] / self.ratios[laplace].max()
        if len(np.unique(found)) > _LEVELS:
            step = -math.log(float(found.min())) / (_LEVELS - 1)
            found = np.exp(-step * np.rint(-np.log(found) / step))
        return np.asarray(found)

    @property
    def most(self) -> int:
        """How many coordinates may get Laplace noise: the ratios of others are too small to matter alone."""
        return int((self.ratios > self.ratios.max() / _SPREAD).sum())

    @cached_property
    def order_of_laplace(self) -> Indices:
        """Coordinates by λ/σ of the Gaussian allocation, largest first."""
        return np.argsort(-self.sensitivities / self.normal, kind="stable")

    def cost(self, scales: Array, laplace: Any) -> float:
        r"""Σ w E|T|^p."""
        unit = np.where(
            laplace, absolute_moment("laplace", self.order), absolute_moment("gaussian", self.order)
        )
        return float((self._weight * unit * scales**self.order).sum())

    def scales(self, laplace: Any, mu: float, ratio: float) -> Array:
        """Scales at which the Gaussian coordinates take μ and the largest Laplace ratio is `ratio`."""
        lam, out = self.sensitivities, np.empty(len(self.sensitivities))
        if laplace.any():
            out[laplace] = lam[laplace] / (self.levels(laplace) * ratio)
        rest = ~laplace
        if rest.any():
            unit = self.normal[rest]
            out[rest] = unit * (math.sqrt(float(((lam[rest] / unit) ** 2).sum())) / mu)
        return out

    def best_of(self, count: int, deadline: Deadline) -> tuple[float, Array, Any]:
        """Cost, scales and types where `count` coordinates get Laplace noise."""
        laplace = np.zeros(len(self.sensitivities), dtype=bool)
        laplace[self.order_of_laplace[:count]] = True
        sizes, counts = np.unique(self.levels(laplace), return_counts=True)
        reach, seen = self.privacy.epsilon + 5.0, {}

        def at(mu: float) -> float:
            if mu not in seen:
                seen[mu] = self._ratio(mu, sizes, counts, reach)
            return self.cost(self.scales(laplace, mu, seen[mu]), laplace) if seen[mu] > 0 else math.inf

        if laplace.all():
            mu = 0.0
            value = at(mu)
        else:
            found = optimize.minimize_scalar(
                lambda s: _FAR if deadline.passed and seen else min(at(self.mu * s), _FAR),
                bounds=(0.02, 0.9999),
                method="bounded",
                options={"xatol": 1e-2, "maxiter": 14},
            )
            value, mu = min((at(m), m) for m in seen) if seen else (math.inf, self.mu * float(found.x))
        return value, self.scales(laplace, max(mu, 1e-300), max(seen.get(mu, 0.0), 1e-300)), laplace

    def _ratio(self, mu: float, sizes: Array, counts: Any, reach: float) -> float:
        """The largest Laplace ratio beside a Gaussian of μ; 0 where δ leaves no room."""
        epsilon, target = self.privacy.epsilon, self.privacy.delta

        def excess(log_ratio: float) -> float:
            ratio = math.exp(log_ratio)
            terms = [NoiseTerm(stats.norm(), mu, 1)] if mu > 0 else []
            terms += [NoiseTerm(stats.laplace(), float(ratio * v), int(c)) for v, c in zip(sizes, counts)]
            return math.log(max(upper_delta(tuple(terms), epsilon, width=_WIDTH), 1e-300) / target)

        high = math.log(reach)
        low = high - math.log(4 * reach * float(counts.sum()) / epsilon)
        for _ in range(3):
            if excess(low) <= 0:
                return (
                    math.exp(float(optimize.brentq(excess, low, high, xtol=3e-4)))
                    if excess(high) > 0
                    else reach
                )
            low, high = low - 3, low
        return 0.0


def mixed_scales(problem: MixedProblem, deadline: Deadline) -> list[tuple[float, Array, Any]]:
    """Candidates, cheapest first: numbers of Laplace coordinates by doubling, then between the neighbours of the best."""
    size = problem.most
    found: dict[int, tuple[float, Array, Any]] = {}

    def tried(count: int) -> float:
        if count not in found and not (deadline.passed and found):
            found[count] = problem.best_of(count, deadline)
        return found[count][0] if count in found else math.inf

    counts = sorted({1, 2, 4, size, *(2**k for k in range(3, size.bit_length()))} & set(range(1, size + 1)))
    best = math.inf
    for count in counts[:-1]:
        value = tried(count)
        if value > 1.05 * best:
            break  # what is left is worse
        best = min(best, value)
    tried(counts[-1])
    for _ in range(6):
        known = sorted(found)
        at = known.index(min(found, key=lambda k: found[k][0]))
        around = [known[k] for k in (at - 1, at, at + 1) if 0 <= k < len(known)]
        middle = {(a + b) // 2 for a, b in zip(around, around[1:])} - set(found)
        if not middle:
            break
        for count in sorted(middle):
            tried(count)
    return sorted(found.values(), key=lambda candidate: candidate[0])


def within_budget(
    scales: Array, laplace: Any, sensitivities: Array, privacy: ApproximateDP, deadline: Deadline
) -> MixedNoise | None:
    """The law scaled by the least common factor at which the composition is proved to keep δ; None if 2% are not enough.

    At the deadline it is the least factor at which it was.
    """
    kept: list[float] = []

    def law(log_factor: float) -> MixedNoise:
        return MixedNoise(scales * math.exp(log_factor), laplace, sensitivities)

    def excess(log_factor: float) -> float:
        if kept and deadline.passed:
            raise _LateError
        over = math.log(max(composed(law(log_factor), privacy)[0], 1e-300) / privacy.delta)
        if over <= 0:
            kept.append(log_factor)
        return over

    # a pure type that keeps the budget as it is comes back as it is
    top = next((factor for factor in (1e-12, 0.02) if excess(factor) <= 0), None)
    if top is None:
        return None
    try:
        if excess(-0.02) <= 0:
            return law(-0.02)
        return law(safe_root(excess, -0.02, top, xtol=1e-6, rtol=1e-9))
    except _LateError:
        return law(min(kept))


class _LateError(Exception):
    """Ends a search for a factor; never leaves this module."""


_ROUNDING = 1e-12


def mixed_cost(question: AllocationQuestion, law: MixedNoise) -> float:
    r"""Return :math:`\sum_i w_i E|T_i|^p`."""
    moments = law.absolute_moment(float(question.loss))
    return float((moments if question.weights is None else moments * question.weights).sum())


@serializable("mixed-certificate")
@dataclass(frozen=True, eq=False)
class MixedCertificate(OldCertificate):
    """Evidence that a mix of Laplace and Gaussian noise keeps (ε, δ), and what it costs.

    Parameters
    ----------
    question : AllocationQuestion
    law : MixedNoise
    value : float
        What is claimed of the loss.
    """

    question: AllocationQuestion
    law: MixedNoise
    value: float

    @property
    def statement(self) -> Mapping[str, Any]:
        """The question, and the value claimed."""
        asked = {f.name: getattr(self.question, f.name) for f in fields(AllocationQuestion)}
        return {**asked, "value": self.value}

    def checks(self) -> pd.DataFrame:
        """Privacy by the exact composition over all coordinates, and the loss."""
        q = self.question
        alike = self.law.sensitivities.shape == q.sensitivities.shape and bool(
            (self.law.sensitivities == q.sensitivities).all()
        )
        if not alike:
            return check_table([("the law is for these sensitivities", PROVED, -math.inf, False)])
        privacy = instance("privacy", q.privacy, ApproximateDP)
        delta, basic = composed(self.law, privacy)
        room = self.value * (1 + _ROUNDING) - mixed_cost(q, self.law)
        how = PROVED if basic else RECOMPUTED
        claim = f"δ at ε = {privacy.epsilon:g} is at most {privacy.delta:g} when all coordinates change by all they may"
        return check_table(
            [
                (claim, how, privacy.delta - delta, delta <= privacy.delta),
                (f"the loss is at most {self.value:.9g}", RECOMPUTED, room, room >= 0),
            ]
        )


@serializable("mixed-allocation-result")
@dataclass(frozen=True, eq=False)
class MixedAllocationResult(OldResult):
    """A type and a scale for each coordinate."""

    @property
    def scales(self) -> Array:
        """β_i or σ_i, shape (K,)."""
        return self.mechanism.scales

    @property
    def kinds(self) -> tuple[str, ...]:
        """The type of each coordinate."""
        return self.mechanism.kinds

    @property
    def mse(self) -> float:
        """E‖T‖₂²."""
        return self.mechanism.mse()

    @property
    def delta(self) -> float:
        """δ of the exact composition at the design's ε, from above."""
        return composed(self.mechanism, self.design.privacy)[0]

    def to_frame(self) -> pd.DataFrame:
        """A row per coordinate."""
        return pd.DataFrame(
            {
                "coordinate": np.arange(len(self.scales)),
                "sensitivity": self.mechanism.sensitivities,
                "noise": list(self.kinds),
                "scale": self.scales,
                "variance": self.mechanism.variance(),
            }
        )

    def compare(self) -> pd.DataFrame:
        """Compare with the allocations of one type.

        Returns
        -------
        DataFrame
            Columns mechanism, error (the design's own loss), relative to this result's.
        """
        rows = [("this mix", self.value)]
        for noise in ("gaussian", "laplace"):
            rows.append(
                (f"{noise} on every coordinate", self.design.of_one_type(noise).solve(certify=False).value)
            )
        return relative_table(rows)

    def alternatives(self) -> pd.DataFrame:
        return self.compare()

    def account(self) -> Account:
        d, kinds = self.design, self.kinds
        value = "sum of E|noise|^p over the coordinates" + ("" if d.weights is None else ", weighted")
        question = [
            f"A query returns {len(kinds)} numbers about a data set. Between neighbouring data sets number i changes by at most "
            "λ_i; all may change at once. Each gets Laplace or Gaussian noise of a scale of its own, independently.",
            privacy_words(d.privacy, NEIGHBOURS),
            unit_words("computed the sensitivities", "The guarantee is for the whole vector, released once."),
            f"Wanted are types and scales of least {value}: a search, never worse than either type alone.",
        ]
        return Account(
            f"Laplace and Gaussian noise for {len(kinds)} numbers at {guarantee(d.privacy)}",
            f"Laplace noise on {kinds.count('laplace')}, Gaussian on {kinds.count('gaussian')} of them.",
            "\n\n".join(question),
            value,
            (guarantee(d.privacy), f"composed exactly: δ at most {at_most(self.delta, 6)}"),
            "The standard deviation of the noise on each number, by its type.",
            "The same requirement met by one type of noise on all numbers.",
        )

    def plot(self, **options: Any) -> Figure:
        """Draw the standard deviation of each coordinate, by type."""
        fig, axis = figure(**sized(options, 5.0, 3.2))
        x, deviation, kinds = (
            np.arange(len(self.scales)),
            np.sqrt(self.mechanism.variance()),
            np.array(self.kinds),
        )
        for k, kind in enumerate(("laplace", "gaussian")):
            axis.plot(x[kinds == kind], deviation[kinds == kind], "o^"[k], color=COLOURS[k], label=kind)
        axis.set(xlabel="number", ylabel="standard deviation", ylim=(0, None))
        axis.legend()
        return fig

    def _audit(self) -> pd.DataFrame:
        target, delta = self.design.privacy.delta, self.delta
        rows = [("privacy", 0, delta, target, target - delta, float("nan"), target - delta <= 1e-3 * target)]
        return pd.DataFrame(rows, columns=AUDIT_COLUMNS)

    def _evidence(self) -> list[str]:
        kinds = self.kinds
        return [
            f"{kinds.count('laplace')} coordinates with Laplace noise, {kinds.count('gaussian')} with Gaussian, "
            f"{kinds.count('none')} with none; δ at most {self.delta:.9g}",
            f"released on multiples of 2^-30 of each scale, wider by {self.mechanism.lattice_cost:.2g}",
            f"MSE: {self.mse:.9g}",
        ]


def refuse_limits(design: AllocationQuestion) -> None:
    """Raise DesignError for what the search over types does not do."""
    for name in ("lower", "upper", "groups"):
        if getattr(design, name) is not None:
            raise DesignError.of(
                name,
                getattr(design, name),
                'has no search over types: noise="gaussian" or "laplace" takes it',
            )

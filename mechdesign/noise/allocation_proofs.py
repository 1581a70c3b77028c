"""What is proved of an allocation: budgets, rows and value of its scales, and that no scales cost less."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from mechdesign.accounting.gaussian import budget_worth, gaussian_privacy
from mechdesign.errors import DesignError, ResultFormatError, instance
from mechdesign.evidence.classes import MechanismClass, family
from mechdesign.evidence.exact import round_down
from mechdesign.evidence.proofs import PROVED, RECOMPUTED, Certificate, Claim, Proof
from mechdesign.evidence.results import ACTIVE, AUDIT_COLUMNS, Result, audit_rows
from mechdesign.evidence.serialize import serializable
from mechdesign.evidence.vipr import fraction, rational
from mechdesign.model.scales import SUM_ERROR, ScalesPrivacy, absolute_moment
from mechdesign.noise.lagrangian import DeclaredScales, Lagrangian, Multipliers, cost_above, lower_bound
from mechdesign.noise.separable import EXACT, ROUNDING, Changes, Prices, changes_of, weighted_moment
from mechdesign.noise.vector_noise import IndependentNoise
from mechdesign.problem.checks import array
from mechdesign.problem.privacy import Consumption, GaussianDP, ZeroConcentratedDP
from mechdesign.problem.sensitivity import Protection, Sensitivity
from mechdesign.problem.spine import ModelledDesign
from mechdesign.typing import Array


class ScalesDesign(ModelledDesign):
    """A design whose model is one vector of scales: the problem that it declares is what is solved and proved."""

    loss: Any
    """The order p of the loss."""
    weights: Any
    """The weight of each number; None for ones."""

    @abstractmethod
    def problem(self) -> Any:
        """Return the paper's model, declared on scales."""

    @cached_property
    def declared(self) -> DeclaredScales:
        """The problem in numbers."""
        found: DeclaredScales = self.problem().declared
        return found

    @property
    @abstractmethod
    def asked(self) -> tuple[ScalesPrivacy, ...]:
        """The requirements."""

    @abstractmethod
    def kept(self, scales: Array) -> Iterator[Claim]:
        """Claim that the scales keep the limits and rows."""

    @property
    def exact(self) -> bool:
        """Whether value and lower bound are proved, not sums in doubles."""
        return True

    def dual(self, found: Multipliers) -> tuple[float, float]:
        """Return the lower bound of the loss in doubles, and a bound of its error, where that is all there is."""
        raise NotImplementedError

    def said(self, value: float) -> tuple[str, ...]:
        """Notes of a result."""
        notes = []
        for one in self.asked:
            if one.sufficient:
                notes.append(
                    "the least loss under the sufficient condition of Corollary 6, which is no lower bound of all Laplace noise"
                )
            if (changes := changes_within(one)) is not None:
                kept = "exactly" if changes.exact else "by a safe upper bound of the worst change"
                notes.append(f"the budget is kept {kept} for: {one.bounds}")
        return tuple(notes)

    def protection(self) -> Protection:
        """The changes of the first requirement."""
        first = self.asked[0]
        changes = first.bounds or Sensitivity(each=tuple(first.sensitivities), neighbours=self.neighbours)
        return Protection(len(first.sensitivities), changes)

    def consumption(self, result: Result) -> Consumption:
        """What a release consumes; of requirements for different changes the larger."""
        each = []
        for one in self.asked:
            normal = one.noise == "gaussian"
            own = Consumption.gaussian(one.budget) if normal else Consumption.pure((one.budget, 1))
            each.append(Consumption.of(one.privacy) & own)
        if len(each) == 1:
            return super().consumption(result) & each[0]
        most = {name: max(getattr(one, name) for one in each) for name in ("epsilon", "rho", "mu")}
        return replace(each[0], **most, neighbours=self.neighbours)

    def audit(self, result: Result) -> pd.DataFrame:
        """Every budget, and every row of every family, by the first scale that it is about."""
        declared, scales = self.declared, result.mechanism.scales
        proof = next((p for p in result.proofs if isinstance(p, AllocationProof)), None)
        budgets = list[tuple[Any, ...]]()
        for k, one in enumerate(self.asked):
            left = slack(one, scales, None if proof is None else proof.price(k))
            dual = math.nan if proof is None else float(proof.multipliers[k])
            active = left <= ACTIVE * one.budget
            budgets.append((one.label, 0, one.budget - left, one.budget, left, dual, active))
        missed, equal = declared.missed(scales), declared.equal == 1
        sides = np.where(equal, declared.sides(scales), np.minimum(declared.sides(scales), 0.0))
        sides[[*missed]] = [float(side) for side in missed.values()]
        room = np.where(equal, -np.abs(sides), -sides) + 0.0
        rows, first = np.unique(declared.places[:, 0], return_index=True)
        index = np.zeros(len(sides), dtype=int)
        index[rows] = declared.places[first, 1]
        names = [declared.labels[f] for f in declared.family.tolist()]
        both = sides - declared.offsets, 0.0 - declared.offsets
        duals = math.nan if proof is None else proof.duals(self, scales)
        held = np.abs(room) <= ACTIVE * np.where(declared.offsets, np.abs(declared.offsets), 1.0)
        own = audit_rows(names, index, *both, room, dual=duals, active=held)
        tables = [pd.DataFrame(budgets, columns=AUDIT_COLUMNS), own]
        return pd.concat(tables[: 1 + bool(len(sides))], ignore_index=True)


def changes_within(asked: ScalesPrivacy) -> Changes | None:
    """The changes that keep several bounds, None where those of single numbers are all there is."""
    if asked.bounds is None:
        return None
    found = changes_of(asked.bounds, asked.spend)
    return found if found.rows() else None


def spent(asked: ScalesPrivacy, scales: Array, prices: Prices | None = None) -> Fraction | float:
    """What no change consumes more than: a sum of fractions up to 2,000 numbers, rounded up beyond."""
    lam, changes = asked.sensitivities, changes_within(asked)
    if np.any((scales <= 0) & (lam > 0)):
        return math.inf
    if changes is not None:
        return changes.spent(scales, prices or (0.0, 0.0, 0.0))
    if len(lam) <= EXACT:
        pairs = zip(lam.tolist(), scales.tolist())
        return fraction(sum(((rational(v) / rational(s)) ** asked.spend for v, s in pairs if v), rational(0)))
    ratio = np.divide(lam, scales, out=np.zeros(len(lam)), where=lam > 0)
    return float((ratio**asked.spend).sum()) * (1 + 1e-14)


def slack(asked: ScalesPrivacy, scales: Array, prices: Prices | None = None) -> float:
    """What is left of the budget; its sign is exact."""
    most = spent(asked, scales, prices)
    return float(Fraction(asked.budget) - Fraction(most)) if most < math.inf else -math.inf


def keeps(asked: ScalesPrivacy, scales: Array, prices: Prices | None = None) -> bool:
    """Whether no change consumes more than the budget: by a sum in doubles where that tells, else exactly."""
    moved = asked.sensitivities > 0
    if prices is None and np.all(scales[moved] > 0):
        most = float(((asked.sensitivities[moved] / scales[moved]) ** asked.spend).sum()) / asked.budget
        if abs(most - 1) > SUM_ERROR:
            return most < 1
    return slack(asked, scales, prices) >= 0


def cost(noise: str, order: float, weights: Array | None, scales: Array) -> float:
    r"""Return :math:`\sum_i w_i E|T_i|^p` in doubles."""
    return absolute_moment(noise, order) * weighted_moment(scales, order, weights)


def rounded_cost(value: float, order: float) -> float:
    """The loss that doubles sum to, rounded up."""
    return value * (1 + (8 * order + 64) * 2.0**-53)


def deployed(asked: tuple[ScalesPrivacy, ...], scales: Array) -> IndependentNoise:
    """Return noise of these scales that is released for the requirement whose lattice needs most."""
    laws = [IndependentNoise(one.noise, scales, one.sensitivities, one.bounds) for one in asked]
    return laws[0] if len(laws) == 1 else max(laws, key=lambda law: law.lattice_cost)


def scales_class(noise: str, asked: Iterable[ScalesPrivacy], within: str = "") -> MechanismClass:
    """Independent noise of the type whose scales keep the budgets; what the lower bound of a problem on scales speaks of."""
    safe = any(c is not None and not c.exact for c in map(changes_within, asked))
    if any(one.sufficient for one in asked):
        within += " whose scales meet Corollary 6"
    if safe:
        within += " whose budget is kept by prices of the bounds"
    return family(f"independent {noise.capitalize()} noise{within}")


@serializable("allocation-proof")
@dataclass(frozen=True, eq=False)
class AllocationProof(Proof):
    r"""Scales that keep the budgets on the worst change keep the requirements, and multipliers bound their loss from below.

    Independent noise of scales s consumes :math:`\max_v \sum_i (|v_i|/s_i)^m`, and what a budget is worth is said in
    Muthukrishnan and Kalyani, Theorems 4 and 5, Corollary 6. The lower bound is that of the Lagrangian, which separates
    (`mechdesign.noise.lagrangian`), for every profile that is a mix of changes. All is in fractions and balls up to 2,000 numbers; beyond, what is
    consumed is rounded up, loss and lower bound are sums in doubles.

    Parameters
    ----------
    multipliers : ndarray, one entry a requirement
        y ≥ 0 of the budgets.
    rows : ndarray, optional
        ν of the rows over several scales.
    prices : ndarray, shape (requirements, 3), optional
        Where some changes keep several bounds: of a changed number, of L₁ and of L₂²; they prove what the worst change consumes.
    mixes, shares : ndarray, shape (requirements, K), optional
        There: profiles of mixes of changes, and how often each number changes in them.
    """

    multipliers: Array
    rows: Array | None = None
    prices: Array | None = None
    mixes: Array | None = None
    shares: Array | None = None

    speaks_of = ("privacy", "value", "lower bound")

    def __post_init__(self) -> None:
        if array("multipliers", self.multipliers, empty=True).min(initial=0.0) < 0:
            raise DesignError("multipliers: must not be negative")

    def bound_checked(self, stated: Certificate) -> str:
        return PROVED if stated.question.exact else RECOMPUTED

    def price(self, k: int) -> Prices | None:
        """The prices of one requirement."""
        if self.prices is None:
            return None
        one, two, three = self.prices[k].tolist()
        return one, two, three

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design = instance("question", stated.question, ScalesDesign)
        law, asked = instance("law", stated.law, IndependentNoise), design.asked
        scales = law.scales
        # `release` takes from the law's own sensitivities how much wider it must be for its lattice
        own = [one for one in asked if self._made_for(law, one)]
        others = [
            IndependentNoise(law.noise, scales, one.sensitivities, one.bounds) for one in asked[1:] or ()
        ]
        if not own or any(other.lattice_cost > law.lattice_cost for other in others):
            claim = "the law is noise of the type, for the changes, of the question"
            yield Claim(claim, PROVED, -math.inf, False)
            return
        for k, one in enumerate(asked):
            left = slack(one, scales, self.price(k))
            which = "" if len(asked) == 1 else f" of {one.label!r}"
            yield Claim(f"the scales keep the privacy budget{which}", PROVED, left, left >= 0)
            if one.noise == "gaussian" and not isinstance(one.privacy, ZeroConcentratedDP | GaussianDP):
                room = budget_worth(gaussian_privacy("privacy", one.privacy), one.budget)
                yield Claim(f"the budget is worth (ε, δ){which}", RECOMPUTED, room, room >= 0)
        yield from design.kept(scales)
        order, weights = float(design.loss), design.weights
        claim = f"the loss is at most {stated.value:.9g}"
        if design.exact:
            rest = Fraction(stated.value) - cost_above(law.noise, order, weights, scales)
            yield Claim(claim, PROVED, float(rest), rest >= 0)
        else:
            room = stated.value * (1 + ROUNDING) - cost(law.noise, order, weights, scales)
            yield Claim(claim, RECOMPUTED, room, room >= 0)
        if stated.lower_bound is not None:
            yield from self._bounds(stated, design)

    @staticmethod
    def _made_for(law: IndependentNoise, asked: ScalesPrivacy) -> bool:
        alike = law.noise == asked.noise and law.bounds == asked.bounds
        return (
            alike and law.sensitivities is not None and np.array_equal(law.sensitivities, asked.sensitivities)
        )

    def _bounds(self, stated: Certificate, design: ScalesDesign) -> Iterator[Claim]:
        for k, one in enumerate(design.asked):
            if (changes := changes_within(one)) is not None:
                mix = np.zeros(0) if self.mixes is None else self.mixes[k]
                reached = changes.reached(mix, None if self.shares is None else self.shares[k])
                yield Claim("the worst mix is one of changes", self.bound_checked(stated), 0.0, reached)
                if not reached:
                    return
        if design.exact:
            yield self.least(stated, self.proved(design, stated.value))
            return
        dual, error = design.dual(Multipliers(self.multipliers, np.zeros(0), self._profiles(design)))
        # half of the error is more than the doubles have lost: of a huge multiplier nothing else may be left
        bound = dual - error / 2
        yield self.least(stated, bound + ROUNDING * abs(bound))

    def _profiles(self, design: ScalesDesign) -> Array:
        """Profiles that scales keep the budgets on: the sensitivities, a mix where changes keep several bounds."""
        profiles = []
        for k, one in enumerate(design.asked):
            mixed = self.mixes is not None and changes_within(one) is not None
            profiles.append(self.mixes[k] if mixed else one.sensitivities)  # type: ignore[index]
        return np.array(profiles)

    def multiplied(self, design: ScalesDesign) -> Multipliers:
        """The multipliers of the declared rows."""
        count = len(design.declared.coupled)
        rows = np.zeros(count) if self.rows is None else self.rows
        return Multipliers(self.multipliers, rows, self._profiles(design))

    def duals(self, design: ScalesDesign, scales: Array) -> Array:
        """Multipliers of the own rows; of limits what the slope of the Lagrangian is there, of equal scales none is singled out."""
        declared = design.declared
        several, found = {row.number for row in declared.coupled}, np.zeros(len(declared.family))
        multipliers = self.multiplied(design)
        found[[*several]] = multipliers.rows
        groups = np.zeros(declared.count)
        groups[declared.member] = scales
        slopes = Lagrangian.of(declared, multipliers).slopes(groups)
        terms = np.diff(np.searchsorted(declared.places[:, 0], np.arange(len(found) + 1)))
        found[[n for n in np.flatnonzero(terms > 1).tolist() if n not in several]] = math.nan
        for n in declared.limited(groups):
            if terms[n] == 1:
                j = int(np.searchsorted(declared.places[:, 0], n))
                slope = slopes[declared.member[declared.places[j, 1]]]
                found[n] = max(-slope / declared.coefficients[j], 0.0)
        return found

    def proved(self, design: ScalesDesign, value: float) -> Fraction:
        """The lower bound in rationals, of scales that cost no more than the value."""
        return fraction(lower_bound(design.declared, self.multiplied(design), most=value))

    def stated_bound(self, design: ScalesDesign, value: float) -> float:
        """The lower bound that a result states."""
        try:
            return min(round_down(self.proved(design, value)), value)
        except ResultFormatError:
            return -math.inf

r"""P3 and P4 of independent noise: the proof and audit of scales, the pages of allocations, and problems with the user's own rows.

Three claims make up `AllocationProof`. *Privacy*: the scales keep :math:`\sum_i (|v_i|/s_i)^m \le B` on the worst
change v, from above; B is :math:`\mu_0^2`, which (ε, δ) allows Gaussian noise, or ε for Laplace noise. *Loss*: its
moments in closed form. *Lower bound*: the Lagrangian at the multipliers (`mechdesign.noise.lagrangian`). Up to 2,000
numbers everything is in fractions and balls, but what several bounds let a change consume, which is rounded up.
`ScalesDesign.audit` lists budgets and rows with what they leave. A `ScalesProblem` is declared in CVXPY, solved
(`scales_solving`), made exact, proved, audited and saved in the same way.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any, ClassVar, get_args

import cvxpy as cp
import numpy as np
import pandas as pd

from mechdesign.accounting.gaussian import budget_worth, gaussian_privacy
from mechdesign.accounting.profile import gaussian_tradeoff
from mechdesign.checks import array, instance, number, refuse
from mechdesign.errors import DesignError, InfeasibleError, ResultFormatError, SolverError
from mechdesign.evidence.attack import TradeOff
from mechdesign.evidence.digits import shown
from mechdesign.evidence.exact import fraction, rational, round_down, round_up
from mechdesign.evidence.proofs import PROVED, RECOMPUTED, Certificate, Claim, MechanismClass, Proof, family
from mechdesign.evidence.results import ACTIVE, AUDIT_COLUMNS, Result, SolveReport, audit_row
from mechdesign.evidence.serialize import serializable
from mechdesign.model.exactly import row_claims
from mechdesign.model.expressions import OwnRows, rows_of
from mechdesign.model.problem import Problem, named, own_audit
from mechdesign.model.scales import Scales, ScalesPrivacy
from mechdesign.model.tangents import between
from mechdesign.noise.lagrangian import DeclaredScales, Lagrangian, Multipliers, cost_above, lower_bound
from mechdesign.noise.scales_solving import ScalesProgram, best_prices, solve_scales, within
from mechdesign.noise.separable import (
    CLOSED,
    ROUNDING,
    Prices,
    changes_within,
    disparity,
    gini,
    power,
    slack,
    weighted_moment,
)
from mechdesign.noise.vector_noise import LEVELS, IndependentNoise, MixedNoise, delta_at
from mechdesign.plotting import draw_curves, figure, plot_curves, sized
from mechdesign.problem.law_moments import absolute_moment
from mechdesign.problem.privacy import (
    Consumption,
    Description,
    GaussianDP,
    Pointwise,
    PureDP,
    ZeroConcentratedDP,
)
from mechdesign.problem.sensitivity import Protection, Sensitivity
from mechdesign.problem.spine import Bound, Clock, Law, ModelledDesign
from mechdesign.typing import Array, Figure


class ScalesDesign(ModelledDesign):
    """Base of designs whose model is one vector of scales: what they consume, their notes and their audit."""

    declared: DeclaredScales

    loss: Any
    """The order p of the loss."""
    weights: Any
    """The weight of each number; None for ones."""

    @property
    @abstractmethod
    def asked(self) -> tuple[ScalesPrivacy, ...]:
        """The requirements."""

    @abstractmethod
    def kept(self, scales: Array) -> Iterator[Claim]:
        """Claim that the scales keep the limits and rows."""

    @property
    def exact(self) -> bool:
        """Whether value and lower bound are proved; else they are sums in doubles."""
        return True

    def dual(self, found: Multipliers) -> tuple[float, float]:
        """Return the lower bound of the loss in doubles, and a bound on its error, for designs that are not `exact`."""
        raise NotImplementedError

    def said(self, value: float) -> tuple[str, ...]:
        """Return the notes of a result."""
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
        """Return the changes of the first requirement."""
        first = self.asked[0]
        changes = first.bounds or Sensitivity(each=tuple(first.sensitivities), neighbours=self.neighbours)
        return Protection(len(first.sensitivities), changes)

    def consumption(self, result: Result) -> Consumption:
        """Return the budget of a release; of requirements for different changes the larger."""
        each = []
        for one in self.asked:
            normal = one.noise == "gaussian"
            own = Consumption.gaussian(one.budget) if normal else Consumption.pure((one.budget, 1))
            each.append(Consumption.of(one.privacy) & own)
        if len(each) == 1:
            return super().consumption(result) & each[0]
        return Consumption.largest(each, self.neighbours)

    def tradeoff(self, result: Result, at: Iterable[float] = ()) -> TradeOff:
        """Return the trade-off curve of the largest Gaussian budget; for Laplace noise that of the requirement."""
        if self.asked[0].noise == "gaussian":
            return gaussian_tradeoff(max(one.budget for one in self.asked), at)
        return super().tradeoff(result, at)

    def audit(self, result: Result) -> pd.DataFrame:
        """Tabulate every budget, and every row of every family with the first scale in it."""
        declared, scales = self.declared, result.mechanism.scales
        proof = next((p for p in result.proofs if isinstance(p, AllocationProof)), None)
        budgets = list[tuple[Any, ...]]()
        for k, one in enumerate(self.asked):
            left = slack(one, scales, None if proof is None else proof.price(k))
            dual = math.nan if proof is None else float(proof.multipliers[k])
            active = left <= ACTIVE * one.budget
            budgets.append((one.label, 0, one.budget - left, one.budget, left, dual, active))
        exact = list(map(rational, scales.tolist()))
        slack_of = np.array([-float(row.at(exact)) for row in declared.rows])
        rows, first = np.unique(declared.places[:, 0], return_index=True)
        index = np.zeros(len(slack_of), dtype=int)
        index[rows] = declared.places[first, 1]
        duals = math.nan if proof is None else proof.duals(self, scales)
        own = own_audit(declared, scales, slack_of, duals, index)
        tables = [pd.DataFrame(budgets, columns=AUDIT_COLUMNS), own]
        return pd.concat(tables[: 1 + bool(len(own))], ignore_index=True)


def cost(noise: str, order: float, weights: Array | None, scales: Array) -> float:
    r"""Return :math:`\sum_i w_i E|T_i|^p` in doubles."""
    return absolute_moment(noise, order) * weighted_moment(scales, order, weights)


def deployed(asked: tuple[ScalesPrivacy, ...], scales: Array) -> IndependentNoise:
    """Return noise of these scales, released on the lattice of the requirement that widens it most."""
    laws = [IndependentNoise(one.noise, scales, one.sensitivities, one.bounds) for one in asked]
    return laws[0] if len(laws) == 1 else max(laws, key=lambda law: law.lattice_cost)


def scales_class(noise: str, asked: Iterable[ScalesPrivacy], within: str = "") -> MechanismClass:
    """Return the class that a lower bound holds for: independent noise of the type whose scales keep the budgets."""
    safe = any(c is not None and not c.exact for c in map(changes_within, asked))
    if any(one.sufficient for one in asked):
        within += " whose scales meet Corollary 6"
    if safe:
        within += " whose budget is kept by prices of the bounds"
    return family(f"independent {noise.capitalize()} noise{within}")


@serializable("allocation-proof", eq=False)
class AllocationProof(Multipliers, Proof):
    r"""Scales that keep the budgets on the worst change keep the requirements, and multipliers bound their loss from below.

    Independent noise of scales s consumes :math:`\max_v \sum_i (|v_i|/s_i)^m`; Muthukrishnan and Kalyani, Theorems 4 and 5
    and Corollary 6, say which requirement a budget implies. The lower bound is that of the Lagrangian, which separates
    (`mechdesign.noise.lagrangian`), for any profile that is a mix of changes. Up to 2,000 numbers everything is in fractions and balls; beyond, the budget
    consumed is rounded up (under several bounds at every size), and loss and lower bound are sums in doubles.
    """

    speaks_of = ("privacy", "value", "lower bound")

    def __post_init__(self) -> None:
        if array("multipliers", self.multipliers, empty=True).min(initial=0.0) < 0:
            raise DesignError("multipliers: must not be negative")

    def bound_checked(self, stated: Certificate) -> str:
        return super().bound_checked(stated) if stated.question.exact else RECOMPUTED

    def price(self, k: int) -> Prices | None:
        """Return the prices of one requirement, if it has any."""
        found: Prices | None = None if self.prices is None else self.prices[k].tolist()
        return found

    def check(self, stated: Certificate) -> Iterator[Claim]:
        design = instance("question", stated.question, ScalesDesign)
        law, asked = instance("law", stated.law, IndependentNoise), design.asked
        scales = law.scales
        # `release` widens the law for its lattice by the law's own sensitivities
        own = any(
            (law.noise, law.bounds) == (one.noise, one.bounds)
            and law.sensitivities is not None
            and np.array_equal(law.sensitivities, one.sensitivities)
            for one in asked
        )
        if not own or (len(asked) > 1 and deployed(asked, scales).lattice_cost > law.lattice_cost):
            claim = "the law is noise of the type, for the changes, of the question"
            yield Claim(claim, PROVED, -math.inf, False)
            return
        for k, one in enumerate(asked):
            left = slack(one, scales, self.price(k))
            which = "" if len(asked) == 1 else f" of {one.label!r}"
            yield Claim.of(f"the scales keep the privacy budget{which}", PROVED, left)
            if one.noise == "gaussian" and not isinstance(one.privacy, ZeroConcentratedDP | GaussianDP):
                room = budget_worth(gaussian_privacy("privacy", one.privacy), one.budget)
                yield Claim.of(f"the budget is worth (ε, δ){which}", RECOMPUTED, room)
        yield from design.kept(scales)
        order, weights = float(design.loss), design.weights
        claim = f"the loss is at most {stated.value:.9g}"
        if design.exact:
            rest = Fraction(stated.value) - cost_above(law.noise, order, weights, scales)
            yield Claim.of(claim, PROVED, rest)
        else:
            room = stated.value * (1 + ROUNDING) - cost(law.noise, order, weights, scales)
            yield Claim.of(claim, RECOMPUTED, room)
        if stated.lower_bound is not None:
            yield from self._bounds(stated, design)

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
        dual, error = design.dual(self)
        # half of the bound is more than the actual error; with a huge multiplier a larger reduction would leave nothing
        bound = dual - error / 2
        yield self.least(stated, bound + ROUNDING * abs(bound))

    def duals(self, design: ScalesDesign, scales: Array) -> Array:
        """Return multipliers of the own rows: of an active limit the slope of the Lagrangian, of equal scales NaN, as theirs are not unique."""
        declared = design.declared
        several, found = [one.number for one in declared.coupled], np.zeros(len(declared.family))
        found[several] = self.on_rows(declared)
        groups = np.zeros(declared.count)
        groups[declared.member] = scales
        slopes = Lagrangian(declared, self).slopes(groups)
        terms = np.diff(np.searchsorted(declared.places[:, 0], np.arange(len(found) + 1)))
        found[[n for n in np.flatnonzero(terms > 1).tolist() if n not in several]] = math.nan
        for n in declared.limited(groups):
            if terms[n] == 1:
                j = int(np.searchsorted(declared.places[:, 0], n))
                slope = slopes[declared.member[declared.places[j, 1]]]
                found[n] = max(-slope / declared.coefficients[j], 0.0)
        return found

    def proved(self, design: ScalesDesign, value: float) -> Fraction:
        """Return the lower bound in rationals, for scales that cost at most `value`."""
        return fraction(lower_bound(design.declared, self, most=value))

    def stated_bound(self, design: ScalesDesign, value: float) -> float:
        """Return the lower bound that a result states: rounded down, at most the value."""
        try:
            return min(round_down(self.proved(design, value)), value)
        except ResultFormatError:
            return -math.inf


@serializable("scales-problem", eq=False)
class ScalesProblem(ScalesDesign, Problem):
    """A problem on one vector of scales."""

    asks: ClassVar[str] = "numbers"
    default_gap: ClassVar[float] = 1e-7

    numbers: ClassVar[Any] = DeclaredScales

    def _read(
        self, points: Mapping[str, Iterable[Array]], stricter: Mapping[str, float] | None
    ) -> DeclaredScales:
        loss = getattr(self.objective.expr, "loss", None)
        if loss is None:
            raise DesignError("objective: must be the loss of the scales, Minimize(s.expected(2, weights))")
        scales, (order, weights) = self.unknown, loss
        nothing = cp.Minimize(cp.Constant(0.0))
        rows = rows_of(scales, nothing, self.constraints, points, stricter=stricter, further=False)
        if len(rows.cost) > scales.size:
            label = rows.labels[int(rows.family[int(rows.places[rows.places[:, 1].argmax(), 0])])]
            raise DesignError(f"{label!r}: is not convex in the scales; state it by inequalities of sums")
        own = {f.name: getattr(rows, f.name) for f in fields(OwnRows)}
        return DeclaredScales(scales.noise, scales.neighbours, order, weights, **own)

    @property
    def start(self) -> Array:
        """Scales that consume the first budget in equal shares."""
        asked = self.requirements[0]
        each = (np.count_nonzero(asked.sensitivities) / asked.budget) ** (1 / asked.exponent)
        moved = asked.sensitivities > 0
        return np.asarray(each * np.where(moved, asked.sensitivities, asked.sensitivities.max()))

    # -- files and copies -------------------------------------------------------------------------------------

    @classmethod
    def unknown_of(cls, numbers: DeclaredScales) -> Scales:
        first = numbers.privacy[0]
        changes = first.sensitivities if first.bounds is None else first.bounds
        return Scales(changes, numbers.noise, neighbours=numbers.neighbours)

    @classmethod
    def objective_of(cls, numbers: DeclaredScales, columns: Any) -> cp.Expression:
        unknown: Scales = columns.variables()[0]
        return unknown.expected(numbers.order, numbers.weights)

    # -- solving ----------------------------------------------------------------------------------------------

    @property
    def mechanism_class(self) -> MechanismClass:
        """Independent noise of the type whose scales keep the rows."""
        return scales_class(self.declared.noise, self.asked, " within these rows" if self.own else "")

    @property
    def asked(self) -> tuple[ScalesPrivacy, ...]:
        """The requirements."""
        return self.declared.privacy

    @property
    def loss(self) -> float:
        """The order p of the loss."""
        return self.declared.order

    @property
    def weights(self) -> Array:
        """The weight of each number."""
        return self.declared.weights

    def to_cvxpy(self) -> cp.Problem:
        """Return the problem in CVXPY alone: in the scales, or for p < 1 or several bounds as the program that is solved."""
        declared, rows = self.declared, []
        for asked in declared.privacy:
            if declared.order < 1 or changes_within(asked) is not None:
                program = ScalesProgram(declared, self if self.functions() else None)
                unit = program.total * absolute_moment(declared.noise, declared.order)
                return cp.Problem(cp.Minimize(unit * program.loss), program.constraints())
            moved = np.flatnonzero(asked.sensitivities)
            powers = cp.power(self.unknown[moved], -asked.exponent)
            rows.append(
                named(asked.label, asked.sensitivities[moved] ** asked.exponent @ powers <= asked.budget)
            )
        return cp.Problem(self.objective, [*rows, *self.own])

    def improve(self, clock: Clock, solver: str | None = None, **options: Any) -> Iterator[Law | Bound]:
        """Solve, refine the multipliers, and make the scales exact; the multipliers of convex functions are those of tangents."""

        def solved(asked: DeclaredScales) -> tuple[tuple[Array, Multipliers, SolveReport], Array]:
            found = solve_scales(asked, solver, clock, options)
            return found, found[0]

        if self.functions():
            self.__dict__["_declared"] = self.compiled()  # parameters may have changed
        first, scales = solved(self.declared)
        if self.keeps(scales):
            yield from self._found(*first)
            return
        try:
            scales, found, report = solve_scales(self.declared, solver, clock, options, self)
        except (InfeasibleError, SolverError):  # as in units in which solvers lose digits
            yield from self._found(*self.by_tangents(solved, clock))
            return
        prices = found.prices

        def bounded(tangents: DeclaredScales) -> tuple[float, Multipliers, Array]:
            (_, other, _), outside = solved(tangents)
            other = replace(other, prices=prices)  # of the scales inside
            bound = AllocationProof(**vars(other)).stated_bound(self, self._cost_above(outside))
            return bound, other, outside

        def delivered(inside: Array) -> tuple[float, Array]:
            kept = within(self.declared, inside, prices)
            return self._cost_above(inside) if kept else math.inf, inside

        start = self._cost_above(scales), scales, scales
        yield from self._found(*between(self, bounded, delivered, start, clock), report)

    def _cost_above(self, scales: Array) -> float:
        declared = self.declared
        return round_up(cost_above(declared.noise, declared.order, declared.weights, scales))

    def _found(self, scales: Array, found: Multipliers, report: SolveReport) -> Iterator[Law | Bound]:
        value, proof, design = self._cost_above(scales), AllocationProof(**vars(found)), self.design or self
        duals = pd.DataFrame(
            {"family": "privacy", "index": range(len(self.asked)), "dual": proof.multipliers}
        )
        yield Bound(proof.stated_bound(self, value))
        yield Law(deployed(self.asked, scales), value, (proof,), report, design.said(value), duals)

    def audit(self, result: Result) -> pd.DataFrame:
        return self.with_functions(super().audit(result), result.mechanism.scales)

    def kept(self, scales: Array) -> Iterator[Claim]:
        exact = [rational(s) for s in scales.tolist()]
        yield from row_claims(self.declared, exact, exact)
        yield from self.function_claims(scales)

    # -- what a result says -----------------------------------------------------------------------------------

    def frame(self, result: Result) -> pd.DataFrame:
        """Return a row for each number."""
        law, asked = result.mechanism, self.asked[0]
        table = {"number": np.arange(len(law.scales)), "scale": law.scales, "variance": law.variance}
        if len(self.asked) == 1 and asked.bounds is None:
            lam = np.asarray(asked.sensitivities, dtype=float)
            ratio = np.divide(lam, law.scales, out=np.zeros(len(lam)), where=lam > 0)
            table["share of the budget"] = power(ratio, asked.exponent) / asked.budget
        return pd.DataFrame(table)

    def describe(self, result: Result) -> Description:
        noise = self.declared.noise.capitalize()
        what = f"{self.protection()} {noise} noise of its own scale is added to each number, independently."
        if len(self.asked) > 1:
            what += " Every requirement below holds for the changes that it names."
        title = f"{noise} noise for {len(self.declared.weights)} numbers"
        return self._described(title, what, "The scale of the noise on each number.")

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw the scales."""
        scales = result.mechanism.scales
        curve = {"": (np.arange(len(scales)), scales)}
        return draw_curves(curve, options, "", xlabel="number", ylabel="scale", ylim=(0, None))

    @property
    def minimised(self) -> str:
        return str(self.objective.expr.label)

    @property
    def over(self) -> str:
        noise, count = self.declared.noise.capitalize(), len(self.declared.weights)
        return f"{self.unknown.name()}[i] > 0, the scales of {noise} noise on {count} numbers"


# -- pages of allocations -----------------------------------------------------------------------------------------


def _counted(kinds: tuple[str, ...]) -> str:
    return ", ".join(f"{kind} on {kinds.count(kind)}" for kind in sorted({*kinds}, reverse=True))


class AllocationPage(ScalesDesign):
    """Prints, pages and pictures of allocations of scales or of searched laws."""

    asks: ClassVar[str] = "numbers"
    noise: str
    sensitivities: Any
    privacy: Any
    bounds: Sensitivity | None
    cost_of: Callable[[Array], float]

    @property
    def searched(self) -> bool:
        """Whether a law is searched for each coordinate under exact composition."""
        return self.noise not in CLOSED

    @property
    def limits(self) -> list[str]:
        """Names of the limits given."""
        return [name for name in ("lower", "upper", "groups") if getattr(self, name) is not None]

    @property
    @abstractmethod
    def budget(self) -> float:
        """The budget."""

    def tradeoff(self, result: Result, at: Iterable[float] = ()) -> TradeOff:
        """Bound the trade-off by the Gaussian budget or the composed losses; by the requirement if losses are too many or changes keep several bounds."""
        law, asked = result.mechanism, super().tradeoff(result, at)
        if isinstance(law, IndependentNoise):
            law = MixedNoise(law.scales, np.ones(len(law.scales), dtype=bool), self.sensitivities)
        several = self.bounds is not None or not isinstance(law, MixedNoise)
        if self.noise == "gaussian" or several or len(law.terms()) > LEVELS:
            return asked
        terms = law.terms()
        found = TradeOff.of_profile(lambda e: delta_at(terms, e)[0], at)
        return TradeOff((*found.points, *asked.points))

    def shares(self, result: Result) -> Array:
        r"""Return the share of the budget that each coordinate consumes, :math:`\lambda_i^2/(\sigma_i\mu_0)^2` or :math:`\lambda_i/(\beta_i\varepsilon)`.

        These are the resources of the paper's Section IV-B; they sum to at most 1. Under several bounds they are the shares of the worst mix of changes,
        in proportion to the coordinates' losses: that mix consumes all of the budget.
        """
        lam, scales = self.sensitivities, result.mechanism.scales
        if self.bounds is None:
            ratio = np.divide(lam, scales, out=np.zeros(len(lam)), where=lam > 0)
            return power(ratio, self.asked[0].exponent) / self.budget
        weights = 1.0 if self.weights is None else self.weights
        moved = weights * power(scales / scales.max(), float(self.loss)) * (lam > 0)
        return np.asarray(moved / moved.sum() * (1 - self._slack(result) / self.budget))

    def _slack(self, result: Result) -> float:
        """Return the remaining budget, by the result's own proof if it has one."""
        scales, proof = result.mechanism.scales, next(iter(result.proofs), None)
        if proof is None:
            changes = changes_within(self.asked[0])
            prices = None if changes is None else best_prices(changes, scales)[1]
        else:
            prices = instance("proofs", proof, AllocationProof).price(0)
        return slack(self.asked[0], scales, prices)

    def _used(self, result: Result) -> float:
        """Return an upper bound on δ of the exact composition at the design's ε; for several points on the largest share of a δ."""
        used: float = result.mechanism.composed(instance("privacy", self.privacy, *get_args(Pointwise)))[0]
        return used

    @property
    def _measure(self) -> str:
        """The words for `_used`."""
        if isinstance(self.privacy, PureDP):
            return "privacy loss"
        return "largest share of a δ" if isinstance(self.privacy, TradeOff) else "δ"

    def compare(self, result: Result, *, overall: float | None = None) -> pd.DataFrame:
        """Compare the scales with identical noise and with scale-perturb-rescale, Table I of the paper; searched laws have `alternatives` only.

        Parameters
        ----------
        result : Result
            Of this design.
        overall : float, optional
            The ℓ₂ (Gaussian) or ℓ₁ (Laplace) sensitivity of the whole query, for the i.i.d. row. Leaving it
            out states that the coordinates are decoupled: it is then the norm of the profile.

        Returns
        -------
        DataFrame
            Rows "i.i.d.", "scale-perturb-rescale", "this allocation"; columns mechanism, scales (arrays of shape
            (K,)), MSE, dB (MSE reduction over i.i.d.), loss (the design's own), loss dB.
        """
        allowed = "has no row here: of single scales alone, see alternatives() for a mix of types"
        refuse(self.searched, "noise", self.noise, allowed)
        lam, m, budget = self.sensitivities, self.asked[0].exponent, self.budget
        norm, rescaled = float(np.linalg.norm(lam, m)), float(len(lam))
        if (changes := changes_within(self.asked[0])) is not None:
            norm, rescaled = (best_prices(changes, s)[0] for s in (np.ones(len(lam)), lam))
            norm **= 1 / m
        allowed = f"must be positive and at most {norm:g}, the norm of the profile or of the largest change"
        if overall is not None and not 0 < number("overall", overall, allowed) <= norm * (1 + 1e-12):
            raise DesignError.of("overall", overall, allowed)
        level = (norm if overall is None else float(overall)) / budget ** (1 / m)
        laws = {
            "i.i.d.": IndependentNoise(self.noise, np.full(len(lam), level)),
            "scale-perturb-rescale": IndependentNoise(self.noise, lam * (rescaled / budget) ** (1 / m)),
            "this allocation": result.mechanism,
        }
        rows = [(name, law.scales, law.mse, self.cost_of(law.scales)) for name, law in laws.items()]
        table = pd.DataFrame(rows, columns=["mechanism", "scales", "MSE", "loss"])
        with np.errstate(divide="ignore"):
            for name, measure in (("dB", "MSE"), ("loss dB", "loss")):
                table[name] = 10 * np.log10(table[measure].iloc[0] / table[measure])
        return table[["mechanism", "scales", "MSE", "dB", "loss", "loss dB"]]

    def rivals(self, result: Result) -> Iterable[tuple[str, float]]:
        """Yield one scale for all numbers, and scales in proportion to the sensitivities; for searched laws one type for all."""
        if self.searched:
            for kind in CLOSED:
                with suppress(DesignError):  # Gaussian noise is not pure
                    yield f"{kind} on every coordinate", replace(self, noise=kind).solve(certify=False).value  # type: ignore[type-var]
            return
        losses = self.compare(result).set_index("mechanism")["loss"]
        yield "scale-perturb-rescale", losses["scale-perturb-rescale"]
        yield "one scale for all (i.i.d.)", losses["i.i.d."]

    def frame(self, result: Result) -> pd.DataFrame:
        """Return a row for each coordinate."""
        law, lam = result.mechanism, self.sensitivities
        table = {"coordinate": np.arange(len(lam)), "sensitivity": lam}
        if self.searched:
            return pd.DataFrame(
                {**table, "noise": list(law.kinds), **law.parameters, "variance": law.variance}
            )
        return pd.DataFrame(
            {**table, "scale": law.scales, "variance": law.variance, "spent": self.shares(result)}
        )

    def audit(self, result: Result) -> pd.DataFrame:
        own = self.searched
        return audit_row(self._measure, self._used(result), self.budget) if own else super().audit(result)

    def lines(self, result: Result) -> list[str]:
        law, steps = result.mechanism, "multiples of 2^-30 of each scale"
        if self.noise not in (*CLOSED, "mixed"):
            steps = "a lattice below 2^-20 of each sensitivity"
        if self.searched:
            first = [
                f"noise on coordinates: {_counted(law.kinds)}; {self._measure} at most {self._used(result):.9g}"
            ]
        else:
            lam = self.sensitivities
            first = [
                f"{len(lam)} coordinates, disparity ν {disparity(lam):.4g}, Gini {gini(lam):.4g}",
                f"budget {self.budget:.9g}, {float(self.shares(result).sum()):.15g} of it consumed",
            ]
        return [
            *first,
            *([f"the scales keep the limits given: {', '.join(self.limits)}"] if self.limits else []),
            f"released on {steps}, wider by {law.lattice_cost:.2g}",
            f"MSE: {law.mse:.9g}",
        ]

    def describe(self, result: Result) -> Description:
        mixed = self.searched
        noise = "Laplace or Gaussian" if self.noise == "mixed" else self.noise.replace("_", " ").capitalize()
        weighted = "" if self.weights is None else ", weighted"
        return Description(
            title=f"{noise} noise for {len(self.sensitivities)} numbers",
            what=f"{self.protection()} {noise} noise of its own {'parameters' if mixed else 'scale'} is added to each number, independently.",
            loss=f"sum of E|noise|^{shown(self.loss)} over the numbers{weighted}",
            picture="The standard deviation of the noise on each number, by its type."
            if mixed
            else "Above: the scale of the noise on each number. Below: the share of the budget that each number consumes.",
        )

    def plot(self, result: Result, **options: float) -> Figure:
        """Draw scales and shares of the budget by coordinate; for searched laws the standard deviations, by type."""
        if self.searched:
            kinds, deviations = np.array(result.mechanism.kinds), np.sqrt(result.mechanism.variance)
            held = {kind: np.flatnonzero(kinds == kind) for kind in sorted({*kinds} - {"none"}, reverse=True)}
            curves = {kind: (x, deviations[x]) for kind, x in held.items()}
            labels = {"xlabel": "number", "ylabel": "standard deviation"}
            return draw_curves(curves, options, "", **labels, ylim=(0, None))
        lam, table = self.sensitivities, self.compare(result)
        size, few = len(lam), len(lam) <= 60  # more are sorted by sensitivity
        order = np.arange(size) if few else np.argsort(lam)[np.linspace(0, size - 1, 400).astype(int)]
        x, line = np.linspace(0, size - 1, len(order)), "" if few else None
        scales = {name: (x, s[order]) for name, s in zip(table["mechanism"], table["scales"])}
        fig, (above, below) = figure(2, 1, sharex=True, **sized(options, 5.0, 4.8))
        plot_curves(above, scales, line, ylabel="scale", ylim=(0, None))
        label = "number" if few else "number, by sensitivity"
        shares = {"": (x, self.shares(result)[order])}
        plot_curves(below, shares, line, xlabel=label, ylabel="share of the budget", ylim=(0, None))
        return fig

"""The designs and strategies of noise, for `studies.benchmarks.ablations`, wing by wing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import stats

import mechdesign as md
from mechdesign.errors import SolverError
from studies.benchmarks.ablations import (
    DELTAS,
    EPSILONS,
    LOSSES,
    Answered,
    Make,
    Strategy,
    constant,
    drawn,
    first_argument,
    fixed,
    refusing,
)


def notion(epsilon: float, delta: float) -> Any:
    return md.ApproximateDP(epsilon, delta) if delta else md.PureDP(epsilon)


def found(answer: Any) -> bool:
    return answer is not None


def none_found() -> SolverError:
    return SolverError("switched off", solver="none", status="off")


# -- the optimal noise of one coordinate ---------------------------------------------------------------------

OPTIMAL = "noise.optimal."


def optimal_noise(count: int) -> dict[str, Make]:
    def make(epsilon: float, delta: float, loss: str) -> Make:
        return lambda: md.OptimalNoise(notion(epsilon, delta), loss=loss)

    return drawn(count, {"ε": EPSILONS, "δ": DELTAS, "loss": LOSSES}, make)


def no_dual(original: Any) -> Any:
    return lambda self, level: Fraction(0)


OPTIMAL_NOISE = (
    Strategy("dual of the staircase", {OPTIMAL + "staircase:StaircaseMultipliers.bound": no_dual}),
    Strategy("lattice programs", {OPTIMAL + "lattice:Lattice.lower": refusing(none_found)}),
    Strategy(
        "refinement of lattices",
        {OPTIMAL + "lattice:_ATTEMPTS": constant(1)},
        {OPTIMAL + "lattice:Lattice.lower": lambda _: True},
    ),
)

# -- the optimal noise of several coordinates, and of large δ ---------------------------------------------------


def many_coordinates(count: int) -> dict[str, Make]:
    def make(k: int, epsilon: float, delta: float, loss: str) -> Make:
        return lambda: md.OptimalNoise(notion(epsilon, delta), loss=loss, dimension=k)

    return drawn(count, {"K": (5, 20, 200, 1000), "ε": EPSILONS, "δ": DELTAS, "loss": LOSSES}, make)


def large_delta(count: int) -> dict[str, Make]:
    def make(epsilon: float, delta: float, loss: str) -> Make:
        return lambda: md.OptimalNoise(notion(epsilon, delta), loss=loss)

    return drawn(count, {"ε": EPSILONS, "δ": (1e-3, 0.01, 0.1, 0.3), "loss": LOSSES}, make)


MANY_COORDINATES = (
    Strategy("bound of fewer coordinates", {OPTIMAL + "several:_promising": fixed(())}),
    Strategy(
        "families but Gaussian, Laplace and staircase",
        {OPTIMAL + "several:_NAMED": constant(("gaussian", "laplace", "staircase"))},
        {OPTIMAL + "several:_calibrated": lambda _: True},
    ),
    *OPTIMAL_NOISE,
)

# -- allocation under several bounds -------------------------------------------------------------------------------

ALLOCATION = "noise.allocation."


def allocation(count: int) -> dict[str, Make]:
    def make(k: int, noise: str, bounds: str, tail: float, epsilon: float) -> Make:
        each = np.exp(tail * np.random.default_rng(k).normal(size=k))
        each /= each.max()
        top = np.sort(each)[::-1][: max(2, k // 4)]
        stated: dict[str, Any] = {}
        if "c" in bounds:
            stated["l0"] = len(top)
        if "1" in bounds:
            stated["l1"] = 0.6 * float(top.sum())
        if "2" in bounds:
            stated["l2"] = 0.8 * float(np.sqrt((top**2).sum()))
        changes = md.Sensitivity(each=each, **stated)
        accounting = "corollary6" if noise == "laplace" else "exact"  # which takes several bounds
        return lambda: md.NoiseAllocation(
            noise, changes, md.ApproximateDP(epsilon, 1e-6), accounting=accounting
        )

    axes = {
        "K": (5, 20, 200, 1000), "noise": ("gaussian", "laplace"), "bounds": ("c1", "c2", "12", "c12", "1"),
        "tail": (0.5, 1.5), "ε": (0.3, 1.0, 4.0),
    }  # fmt: skip
    return drawn(count, axes, make)


def mixed_types(count: int) -> dict[str, Make]:
    def make(k: int, tail: float, epsilon: float, delta: float) -> Make:
        each = np.exp(tail * np.random.default_rng(k).normal(size=k))
        return lambda: md.NoiseAllocation("mixed", each, md.ApproximateDP(epsilon, delta))

    return drawn(count, {"K": (5, 20, 200), "tail": (0.5, 1.5, 3.0), "ε": EPSILONS, "δ": DELTAS[1:]}, make)


def one_change(original: Any) -> Any:
    """The bound of one change alone, the coordinates whole from the largest on."""
    from mechdesign.noise.allocation.several import Among, mixed
    from mechdesign.noise.allocation.several_model import whole_changes

    def largest(asked: Any, guide: Any) -> Any:
        listed = Among(whole_changes(asked, np.argsort(-asked.sizes)[None, :]), np.ones(1))
        return mixed(asked, listed), listed

    return largest


def by_program(original: Any) -> Any:
    """The worst mix by the multipliers of the program, which Clarabel solves."""
    from mechdesign import solvers
    from mechdesign.noise.allocation.several import Among
    from mechdesign.noise.allocation.several_model import Worst, several_model

    def worst(changes: Any, order: float, weight: Any) -> Any:
        noise = "gaussian" if changes.spend == 2 else "laplace"
        stated = md.Sensitivity(each=changes.sizes, l0=changes.l0, l1=changes.l1, l2=changes.l2)
        budget = md.ZeroConcentratedDP(0.5) if changes.spend == 2 else md.PureDP(1.0)
        question = md.NoiseAllocation(noise, stated, budget, loss=order, weights=weight)
        found = solvers.solve(several_model(question), "clarabel", fallback=False)
        keep, rows = changes.sizes > 0, changes.rows()
        unit = float(np.ravel(found.dual["budget"])[0])
        x = np.maximum(np.ravel(found.dual["worst"]) / unit, 1e-14)
        z = np.clip(np.ravel(found.dual["shares"]) / unit, x, 1.0) if rows[-1].exponent == 2 else x
        over = max(1.0, x.max())
        for row in rows:
            used = float(row.entries[keep] @ x**row.exponent) / row.most
            over = max(over, used ** (1 / row.exponent))
        mix, sizes, shares = np.zeros((3, len(keep)))
        mix[keep] = changes.sizes[keep] * (x / over) ** (1 / changes.spend)
        sizes[keep] = changes.sizes[keep] * np.minimum(x / z, 1.0) ** (1 / changes.spend)
        shares[keep] = np.minimum(z, 1.0)
        theta = np.maximum(np.ravel(found.primal["prices"]), 0.0)
        named = {row.name: float(t) / row.most for row, t in zip(rows, theta, strict=True)}
        return Worst(mix, Among(sizes, shares), changes.in_units(named))

    return worst


LISTING = {ALLOCATION + "several_model:_listed": fixed(0)}
ON_LISTING: dict[str, Callable[[Any], bool]] = dict.fromkeys(LISTING, lambda _: True)
ALLOCATIONS = (
    Strategy(
        "water-filling (else the program by Clarabel)", {ALLOCATION + "several_model:worst_mix": by_program}
    ),
    Strategy("one norm filled", {ALLOCATION + "several_model:_offer_held": fixed(None)}),
    Strategy("changes listed", LISTING),
    Strategy(
        "changes listed: first ones drawn by shares",
        {ALLOCATION + "several_model:_drawn": lambda _: lambda shares, rng: np.argsort(-shares)[None, :]},
        ON_LISTING,
    ),
    Strategy("mixes drawn by shares", {ALLOCATION + "several:drawn_from": one_change}),
)
MIXED = (
    Strategy("mixed types (else the better pure one)", {ALLOCATION + "mixed:mixed_scales": fixed(())}),
    Strategy(
        "ratios at most 16 apart",
        {ALLOCATION + "mixed:_SPREAD": constant(math.inf)},
        {ALLOCATION + "mixed:mixed_scales": lambda _: True},
    ),
    Strategy(
        "ratios on 8 levels (else 3)",
        {ALLOCATION + "mixed:_LEVELS": constant(3)},
        {ALLOCATION + "mixed:mixed_scales": lambda _: True},
    ),
    Strategy(
        "between the neighbours of the best",
        {ALLOCATION + "mixed:_between": fixed(set())},
        {ALLOCATION + "mixed:mixed_scales": lambda _: True},
    ),
)

# -- correlated noise, matrix mechanism, discrete noise ----------------------------------------------------------------

CORRELATED = "noise.correlated."


def correlated(count: int) -> dict[str, Make]:
    def make(k: int, kind: str, epsilon: float, delta: float) -> Make | None:
        privacy = md.ApproximateDP(epsilon, delta)
        rng = np.random.default_rng(k)
        if kind == "prefix":
            return lambda: md.CorrelatedGaussian(np.tril(np.ones((k, k))), privacy)
        if kind == "few change":
            if k > 20:
                return None
            return lambda: md.CorrelatedGaussian.of_sensitivity(md.Sensitivity(linf=1, l0=2), k, privacy)
        return lambda: md.CorrelatedGaussian(rng.normal(size=(2 * k, max(2, k // 2))), privacy)

    axes = {"K": (5, 12, 20), "kind": ("prefix", "few change", "random"), "ε": EPSILONS, "δ": DELTAS[1:]}
    return drawn(count, axes, make)


def by_the_program(original: Any) -> Any:
    return lambda self, clock, solver=None, **options: original(self, clock, "clarabel", **options)


def plain_step(original: Any) -> Any:
    return lambda path: path[-1][0] + path[-1][1]


EXTRAPOLATED = Strategy("extrapolated steps", {CORRELATED + "fixed_point:_extrapolated": plain_step})
CORRELATEDS = (
    Strategy(
        "fixed point (else the semidefinite program)",
        {CORRELATED + "design:CorrelatedGaussian.improve": by_the_program},
    ),
    EXTRAPOLATED,
)

MATRIX = "noise.matrix."


def matrices(count: int) -> dict[str, Make]:
    def make(workload: str, n: int, epsilon: float, error: str) -> Make | None:
        if workload == "marginals":
            if n > 20:
                return None
            made: Any = md.Workload.marginals((2, 3, max(2, n // 4)), order=2)
        else:
            made = (md.Workload.prefix_sums if workload == "prefix" else md.Workload.ranges)(n)
        if error == "largest" and workload == "ranges" and n > 20:
            return None
        return lambda: md.MatrixMechanism(made, md.ApproximateDP(epsilon, 1e-6), loss=error)

    axes = {
        "workload": ("prefix", "ranges", "marginals"),
        "n": (5, 20, 200, 400),
        "ε": (0.3, 1.0, 4.0),
        "error": ("total", "largest"),
    }
    return drawn(count, axes, make)


MATRICES = (
    Strategy("chain", {MATRIX + "solving:_chain": fixed(None)}, {MATRIX + "solving:_chain": found}),
    EXTRAPOLATED,
)

# -- calibration and accounting ------------------------------------------------------------------------------

SEARCH = "noise.calibration.search:"
COMPOSED, SAMPLED = "accounting.composition:", "accounting.sampling:"
LAWS = ("laplace", "logistic", "flipped_huber", "osgt", "gennorm", "truncated_laplace", "staircase")
DISCRETE = ("discrete_laplace", "discrete_gaussian")
MANY = (1, 5, 20, 200, 1000)


def calibrations(count: int) -> dict[str, Make]:
    def make(noise: str, epsilon: float, delta: float, dimension: int, loss: str) -> Make:
        privacy = md.ApproximateDP(epsilon, delta)
        return lambda: md.Calibration(noise, privacy, sensitivity=1, dimension=dimension, loss=loss)

    axes = {"noise": LAWS + DISCRETE, "ε": EPSILONS, "δ": DELTAS[1:], "K": MANY, "loss": LOSSES}
    return drawn(count, axes, make)


def without(**changes: Any) -> Callable[[Any], Any]:
    """Change fields of what a function returns."""
    return lambda original: lambda *given: replace(original(*given), **changes)


def several(requirement: Any) -> bool:
    return bool(requirement.query.dimension * requirement.query.rounds > 1)


def held_to_final(original: Any) -> Any:
    """A search's meter as fine as what the law is held to."""

    def call(self: Any, law: Any) -> float:
        from mechdesign.accounting.interval import upper_delta

        terms = map(self._query.in_rounds, self._query.worst(law).alternatives)
        return min(upper_delta(each, self._epsilon) for each in terms)

    return call


def bracketed(original: Any) -> Any:
    """Two ends and a root between them, without secant steps."""

    def scale(excess: Any, seen: Any, requirement: Any, u: float, slope: float, safe: bool) -> Any:
        from mechdesign.evidence.exact import safe_root
        from mechdesign.noise.calibration.search import _away

        tolerance = requirement.tolerance if safe else max(1e-5, requirement.tolerance)
        low, high = _away(excess, u, -1, "every scale meets"), _away(excess, u, 1, "no scale meets")

        def left(u: float) -> float:
            f = excess(u)
            return 0.0 if abs(f) < tolerance and (f <= 0 or not safe) else f

        return math.exp(safe_root(left, low, high, xtol=1e-7 * tolerance if safe else 1e-9)), slope

    return scale


def no_member(**changes: Any) -> Callable[[Any], Any]:
    """Families with a shape, without one of their members in closed form."""

    def around(original: Any) -> Any:
        def laws(family: Any, *rest: Any) -> Any:
            return original(replace(family, **changes) if family.starts else family, *rest)

        return laws

    return around


SHAPES = {SEARCH + "ShapeSearch.best": lambda found: found[0] != 0}
CALIBRATIONS = (
    Strategy(
        "a closer look at the scale",
        {SEARCH + "_approximate": without(refined=lambda law: math.inf)},
        {SEARCH + "_approximate": several},
    ),
    Strategy("grid of a search, planned once", {SEARCH + "_Planned.__call__": held_to_final}),
    Strategy("secant steps", {SEARCH + "_scale": bracketed}),
    Strategy(
        "Brent's method over the shape",
        {SEARCH + "optimize": constant(SimpleNamespace(minimize_scalar=lambda *_, **__: None))},
        SHAPES,
    ),
    Strategy("the Gaussian member", {SEARCH + "laws_of": no_member(normal=None)}, SHAPES),
)


def enclosures(count: int) -> dict[str, Make]:
    """Noise of about the size that (ε, δ) asks for, on many numbers, in many rounds and in samples."""

    def make(noise: str, epsilon: float, delta: float, dimension: int, rounds: str) -> Make | None:
        times, rate = {"1": (1, 1.0), "20 of a tenth": (20, 0.1), "1000 of a hundredth": (1000, 0.01)}[rounds]
        if rate == 1 and (dimension == 1 or noise == "gaussian"):
            return None  # a closed form
        mu = md.accounting.gaussian_mu(epsilon, delta)
        worth = math.log1p(mu**2 / (rate**2 * times)) if rate < 1 else mu**2

        def ask() -> Answered:
            unit, shapes = UNITS[noise]
            scale = math.sqrt(dimension / worth) / float(unit(*shapes).std())
            term = md.accounting.NoiseTerm(unit(*shapes, scale=scale), 1.0, dimension)
            found = md.accounting.delta_interval(term, epsilon, rounds=times, sampling_rate=rate)
            return Answered(found.upper, found.width)

        return lambda: ask

    axes = {
        "noise": tuple(UNITS),
        "ε": EPSILONS,
        "δ": DELTAS[1:],
        "K": MANY,
        "rounds": ("1", "20 of a tenth", "1000 of a hundredth"),
    }
    return drawn(count, axes, make)


UNITS: dict[str, tuple[Any, tuple[float, ...]]] = {
    "gaussian": (stats.norm, ()),
    "laplace": (stats.laplace, ()),
    "logistic": (stats.logistic, ()),
    "gennorm": (stats.gennorm, (1.5,)),
    "truncated normal": (stats.truncnorm, (-8.0, 8.0)),
    "flipped Huber": (md.noise.flipped_huber, (1.0,)),
}


ENCLOSURES = (
    Strategy(
        "normal coordinates as one",
        {"accounting.interval:_rotated": lambda _: lambda terms: (terms, ())},
        {"accounting.interval:_rotated": lambda found: bool(found[1])},
    ),
    Strategy("a round on fewer points", {SAMPLED + "_thinned": first_argument(0)}),
    Strategy("steps on the heaviest values", {SAMPLED + "_on_atoms": first_argument(1)}),
    Strategy(
        "exact slop next to atoms",
        {"accounting.interval:_near_atoms": fixed(False)},
        {"accounting.interval:_near_atoms": bool},
    ),
    Strategy(
        "transforms summed term by term",
        {COMPOSED + "_SUMMED": constant(0)},
        {COMPOSED + "_frequencies": lambda _: True},
    ),
    Strategy(
        "nothing convolved where all is certain",
        {COMPOSED + "_certain": fixed(False)},
        {COMPOSED + "_certain": bool},
    ),
    Strategy(
        "many roots on one mesh",
        {"accounting.log_concave:_MESH": constant(10**9)},
        {"accounting.log_concave:_roots": lambda found: found.size > 256},
    ),
    Strategy(
        "fine grids thinned for the wanted accuracy",
        {SAMPLED + "_FEW": constant(2**21)},
        {SAMPLED + "sampled_parts": lambda _: True},
    ),
)

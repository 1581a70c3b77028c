r"""Interior-point method for the floors: a few dozen dense Newton steps, then a proved gap.

The problem is :math:`\min_{a \in A} F(a)`, F from `floor_value`: the density's part is smooth with a known
Hessian; each point mass keeps its row p_n as variables, because there F has kinks. The primal–dual
equations (z, ν, u, v ≥ 0 are the multipliers of a ≥ 0, C a ≥ b, p ≥ a and ρa ≥ p)

.. math::
   G(a) - z - C^\top\nu + \sum_n (u_n - \rho v_n) = 0, \qquad
   \omega_n \ell_n - \lambda_n - \mu_n B - u_n + v_n = 0

with all complementary products equal to t are followed to t → 0 (Mehrotra's predictor and corrector, with an
Armijo test on the barrier function, since F is not quadratic). The rows are eliminated in closed form
(`floor_atoms`), so a step costs one m × m Cholesky factorisation.

Nothing of the outcome rests on this iteration's word: every step's floors give a mechanism by exact block
fill (the value), and every step's duals give a bound that holds for all mechanisms (`lower_bound`); the best
of each is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from mechdesign.quantizers.optimal.atoms import AtomBlock, AtomStep
from mechdesign.quantizers.optimal.expected_loss import Continuum, FloorProblem
from mechdesign.quantizers.optimal.floors import interior_floors
from mechdesign.solvers.one_thread import one_thread
from mechdesign.typing import Array

__all__ = ["FloorSolution", "lower_bound", "newton"]


# Fraction of the way to the boundary that a step may go.
_REACH = 0.995


@dataclass(frozen=True, eq=False)
class FloorSolution:
    """Floors, what they achieve and what is proved.

    Attributes
    ----------
    floors : ndarray (m,)
    value : float
        The expected loss of the block fill of `floors`.
    lower_bound : float
        No ε-LDP unbiased mechanism with these outputs does better.
    iterations : int
        Newton steps, or rounds of a cutting-plane method.
    multipliers : ndarray
        Of the rows of `range_constraints`.
    atom_slopes : ndarray
        μ at the prior's point masses.
    cuts : int
        Cuts in the master problem (cutting planes only).
    """

    floors: Array
    value: float
    lower_bound: float
    iterations: int
    multipliers: Array
    atom_slopes: Array
    cuts: int = 0

    @property
    def gap(self) -> float:
        """Relative distance between value and bound."""
        return (self.value - self.lower_bound) / max(abs(self.value), 1e-300)


def lower_bound(
    problem: FloorProblem, constant: float, gradient: Array, multipliers: Array, scale: float
) -> float:
    r"""Bound ∫(λ + μx) dF + min_{a ∈ A} G·a from below, rounding included.

    For any ν ≥ 0 on the rows of C that fix the range of means, the minimum is at least
    :math:`\nu \cdot b + \min_k (G - C^\top \nu)_k \cdot \{1/\rho \text{ or } 1\}`, the last factor being the
    extreme of Σa that is worse. The margin covers the rounding of the sums that made G.
    """
    C, b = problem.constraints
    nu = np.maximum(multipliers, 0.0)
    nu[:2] = 0.0
    rest = gradient - nu @ C
    if problem.symmetric:
        # With symmetric data an optimal a is symmetric, so only the sums over mirror pairs count.
        rest = (rest + rest[::-1]) / 2
    least = float(rest.min())
    bound = constant + float(nu @ b) + (least / problem.rho if least >= 0 else least)
    size = scale + float(nu @ np.abs(b)) + float(np.abs(gradient).max()) + float((nu @ np.abs(C)).max())
    return float(bound - 64 * np.finfo(float).eps * size)


class Folding:
    """The independent half of symmetric floors, or all of them; with the constraint rows that remain."""

    def __init__(self, problem: FloorProblem) -> None:
        m = len(problem.bins)
        C, b = problem.constraints
        self.m, self.total = m, len(b)
        self.n = (m + 1) // 2 if problem.symmetric else m
        self.index = np.minimum(np.arange(m), np.arange(m)[::-1]) if problem.symmetric else np.arange(m)
        # With symmetry the rows for `lower` mirror those for `upper`.
        self.rows = np.arange(2 + m if problem.symmetric else len(b))
        self.C, self.b = self.fold(C[self.rows]), b[self.rows]

    def fold(self, table: Array) -> Array:
        """Add the columns (last axis) that share a variable."""
        if self.n == self.m:
            return table
        out = table[..., : self.n].copy()
        pairs = self.m - self.n
        out[..., :pairs] += table[..., ::-1][..., :pairs]
        return out

    def restrict(self, floors: Array) -> Array:
        """Independent floors, mirror pairs averaged."""
        return floors.copy() if self.n == self.m else ((floors + floors[::-1]) / 2)[: self.n]

    def unfold(self, nu: Array) -> Array:
        """Multipliers of all rows."""
        full = np.zeros(self.total)
        full[self.rows] = nu
        return full


class _Path:
    """State of the iteration: floors α > 0, their multipliers z, range multipliers ν, and the atoms' rows."""

    def __init__(self, problem: FloorProblem, start: Array) -> None:
        self.problem, self.folding = problem, Folding(problem)
        bins = problem.bins
        span = float(bins[-1] - bins[0])
        self.scale = float(np.max(problem.loss(np.array([span, -span]))))
        self.alpha = self.folding.restrict(start)
        self.slack = self.folding.C @ self.alpha - self.folding.b
        t = 0.02 * self.scale / math.sqrt(problem.rho) / len(bins)
        self.z, self.nu = t / self.alpha, t / self.slack
        self.atoms = AtomBlock(problem, self.floors, t) if len(problem.atoms[0]) else None
        self.count = len(self.z) + len(self.nu) + (self.atoms.count if self.atoms else 0)

    @property
    def floors(self) -> Array:
        return self.alpha[self.folding.index]

    def assess(self) -> tuple[float, float, Continuum | None]:
        """Value of the fill of the current floors, bound from the current duals, and the density's part."""
        problem, a = self.problem, self.floors
        fill = problem.fill(a)
        value = constant = 0.0
        gradient = np.zeros(len(a))
        part = None
        if problem.has_density:
            part = problem.continuum(fill)
            gradient, constant = part.gradient, part.constant
            value = constant + float(a @ gradient)
        total = gradient
        if self.atoms:
            value += self.atoms.value(fill)
            extra, more = self.atoms.bound_terms()
            constant += extra
            total = total + more
        bound = lower_bound(problem, constant, total, self.folding.unfold(self.nu), self.scale)
        return value, bound, part

    def step(self, part: Continuum | None) -> bool:
        """Move once along the path; False when the equations can no longer be solved."""
        f, atoms, alpha, z, nu = self.folding, self.atoms, self.alpha, self.z, self.nu
        gradient = np.zeros(f.n) if part is None else f.fold(part.gradient)
        slack = self.slack
        residual = gradient - z - nu @ f.C
        products = float(z @ alpha + nu @ slack)
        H = np.zeros((f.n, f.n))
        if part is not None:
            D = f.fold(part.directions)
            H = (D.T * part.weights) @ D
        H.flat[:: f.n + 1] += z / alpha
        H += (f.C.T * (nu / slack)) @ f.C
        if atoms:
            residual = residual + f.fold(atoms.residual())
            products += atoms.products()
            H += atoms.eliminate(f.fold)
        t = products / self.count
        if not (math.isfinite(t) and t > 0):
            return False
        inverse = _inverse(H)
        if inverse is None:
            return False

        def solve(goal: float, first: _Step | None = None) -> _Step:
            """Newton step to products = goal, with Mehrotra's correction from the affine step `first`."""
            e_z = goal - z * alpha - (first.z * first.alpha if first else 0.0)
            e_nu = goal - nu * slack - (first.nu * first.slack if first else 0.0)
            rhs = e_z / alpha + f.C.T @ (e_nu / slack) - residual
            if atoms:
                rhs = rhs + f.fold(atoms.right_side(goal, first.atoms if first else None))
                rhs = rhs + atoms.folded_side()
            d = inverse(rhs)
            ds = f.C @ d
            inner = atoms.back_substitute(d, d[f.index]) if atoms else None
            return _Step(d, (e_z - z * d) / alpha, ds, (e_nu - nu * ds) / slack, inner)

        strayed = float(np.abs(residual) @ alpha) / self.count
        if strayed > 10 * t:
            # The last step left the region where its quadratic model held: recentre before going on.
            step = solve(min(max(t, 0.1 * strayed), 3.0 * t))
            self._advance(step, self._armijo(step, part, min(max(t, 0.1 * strayed), 3.0 * t), 25))
            return True
        affine = solve(0.0)
        reach = self._longest(affine)
        goal = min(max((self._products_after(affine, reach) / self.count / t) ** 3, 1e-3), 1.0) * t
        step = solve(goal, affine)
        reach = self._armijo(step, part, goal, 1)
        if reach == 0.0:
            # The correction spoilt the descent; without it the direction is one of descent for certain.
            step = solve(goal)
            reach = self._armijo(step, part, goal, 25)
        self._advance(step, reach)
        return True

    def _longest(self, step: _Step) -> float:
        pairs = [(self.alpha, step.alpha), (self.z, step.z), (self.slack, step.slack), (self.nu, step.nu)]
        if self.atoms and step.atoms:
            pairs += self.atoms.pairs(step.atoms)
        return min([1.0, *(1.0 / max(float((-d / x).max()), 1e-300) for x, d in pairs)])

    def _products_after(self, step: _Step, reach: float) -> float:
        after = float((self.z + reach * step.z) @ (self.alpha + reach * step.alpha))
        after += float((self.nu + reach * step.nu) @ (self.slack + reach * step.slack))
        return after + (self.atoms.products(step.atoms, reach) if self.atoms and step.atoms else 0.0)

    def _armijo(self, step: _Step, part: Continuum | None, goal: float, tries: int) -> float:
        """Step length at which F − goal·Σ log falls as promised; 0 when `tries` halvings do not find one."""
        reach = min(1.0, _REACH * self._longest(step))
        atoms = self.atoms
        if part is None or (atoms and not atoms.balanced()):
            return reach
        relative = [step.alpha / self.alpha, step.slack / self.slack]
        linear = 0.0
        if atoms and step.atoms:
            relative += [step.atoms.low / atoms.low, step.atoms.high / atoms.high]
            linear = float((atoms.costs * step.atoms.rows).sum())
        slope = float(self.folding.fold(part.gradient) @ step.alpha) + linear
        slope -= goal * sum(float(r.sum()) for r in relative)
        here = part.constant + float(self.floors @ part.gradient)
        for _ in range(tries):
            trial = (self.alpha + reach * step.alpha)[self.folding.index]
            there = self.problem.continuum(self.problem.fill(trial), hessian=False)
            gain = there.constant + float(trial @ there.gradient) - here + reach * linear
            gain -= goal * sum(float(np.log1p(reach * r).sum()) for r in relative)
            if gain <= 1e-4 * reach * min(slope, 0.0) + 1e-14 * self.scale:
                return reach
            reach *= 0.5
        return 0.0 if tries == 1 else reach

    def _advance(self, step: _Step, reach: float) -> None:
        self.alpha = self.alpha + reach * step.alpha
        self.z = self.z + reach * step.z
        self.nu = self.nu + reach * step.nu
        fresh = self.folding.C @ self.alpha - self.folding.b
        # Recomputed, so that errors do not add up; never below what the step itself left.
        self.slack = np.maximum(fresh, (self.slack + reach * step.slack) * 1e-3)
        if self.atoms and step.atoms:
            self.atoms.advance(step.atoms, reach, self.floors)


def _inverse(H: Array) -> Callable[[Array], Array] | None:
    """Solver of H d = rhs by a scaled Cholesky factorisation with a step of refinement; None if H is beyond it."""
    scale = 1.0 / np.sqrt(np.diagonal(H))
    if not np.all(np.isfinite(scale)):
        return None
    scaled = H * scale * scale[:, None]
    for ridge in (0.0, 1e-14, 1e-12, 1e-10):
        shifted = scaled
        if ridge:
            shifted = scaled.copy()
            shifted.flat[:: len(H) + 1] += ridge
        try:
            factor = linalg.cho_factor(shifted, lower=True, check_finite=True)
        except (linalg.LinAlgError, ValueError):
            continue

        def solve(rhs: Array, factor: Any = factor) -> Array:
            right = scale * rhs
            d = linalg.cho_solve(factor, right, check_finite=False)
            d = d + linalg.cho_solve(factor, right - scaled @ d, check_finite=False)
            return scale * d

        return solve
    return None


@dataclass(frozen=True, eq=False)
class _Step:
    alpha: Array
    z: Array
    slack: Array
    nu: Array
    atoms: AtomStep | None


def newton(
    problem: FloorProblem, *, gap: float = 1e-6, iterations: int = 120, start: Array | None = None
) -> FloorSolution:
    """Follow the central path until the proved relative gap is at most `gap`.

    Parameters
    ----------
    problem : FloorProblem
    gap : float
        Relative gap to stop at.
    iterations : int
        Most Newton steps.
    start : ndarray (m,), optional
        Floors strictly inside A.

    Returns
    -------
    FloorSolution
        The best found, also when the iteration stalls first: the caller judges its `gap`.

    Examples
    --------
    >>> from scipy import stats
    >>> from mechdesign.problem.losses import Loss
    >>> from mechdesign.problem.priors import Prior
    >>> problem = FloorProblem(np.array([-3, -0.5, 0.5, 3]), np.exp(1.0), -1.0, 1.0,
    ...                        Prior.of(stats.uniform(-1, 2)), Loss.of("absolute"), symmetric=True)
    >>> solution = newton(problem)
    >>> round(solution.value, 4), solution.gap < 1e-6
    (1.7005, True)
    """
    if start is None:
        start = interior_floors(problem.bins, problem.rho, *problem.reach)
    C, b = problem.constraints
    if (C @ start - b).min() <= 0 or start.min() <= 0:
        return FloorSolution(start, math.inf, -math.inf, 0, np.zeros(len(b)), np.zeros(len(problem.atoms[0])))
    path = _Path(problem, start)
    value, bound, floors = math.inf, -math.inf, path.floors
    nu, slopes = path.folding.unfold(path.nu), np.zeros(len(problem.atoms[0]))
    count = stalled = 0
    with (
        one_thread(),
        np.errstate(all="ignore"),
    ):  # the last steps divide by what has become zero; results are checked
        for count in range(1, iterations + 1):  # noqa: B007
            new_value, new_bound, part = path.assess()
            if not (math.isfinite(new_value) and math.isfinite(new_bound)):
                break
            before = value - bound
            if new_value < value:
                value, floors = new_value, path.floors
            if new_bound > bound:
                bound, nu = new_bound, path.folding.unfold(path.nu)
                slopes = path.atoms.slopes() if path.atoms else slopes
            if value - bound <= gap * abs(value):
                break
            stalled = 0 if value - bound < 0.999 * before else stalled + 1
            if stalled > 15 or not path.step(part):
                break
    return FloorSolution(floors, value, bound, count, nu, slopes)

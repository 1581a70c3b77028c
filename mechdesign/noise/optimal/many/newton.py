r"""Descent to the best log-concave lattice law for K coordinates: Newton's method inside a barrier.

.. math:: \min_\varphi \sum_j c_j p_j \quad\text{s.t.}\quad \sum_j p_j = 1,\;
          \log\delta_K(\varphi) = \log\delta,\; \text{second differences of } \varphi \le 0

over the log masses φ. Concavity is what makes the shift by the whole sensitivity the worst (`loss`): with that shift alone,
the optimum would be a comb that gives a smaller one away. After each step :math:`\varphi \mapsto (1 + \tau)\varphi`
brings log δ back to its level: all losses grow or shrink by one factor. The Hessian is that of the Lagrangian (`composed`),
damped until the step descends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from mechdesign.noise.optimal.many.composed import Composed
from mechdesign.solvers.deadline import Deadline
from mechdesign.typing import Array

__all__ = ["Concave", "Descent", "refined"]

_LONGEST = 2.0  # longest step of a log mass


def _normalised(phi: Array, copies: Array) -> Array:
    top = float(phi.max())
    return phi - top - math.log(float(copies @ np.exp(phi - top)))


@dataclass(frozen=True)
class Concave:
    """Barrier of concavity: −log s + s/reference of every slack s, so that it draws nothing to infinity."""

    reference: Array
    start: float = 1e-5
    end: float = 1e-8

    @classmethod
    def around(cls, phi: Array, *, start: float = 1e-5) -> Concave:
        """Take references from a concave start."""
        slack = cls.slack(phi)
        return cls(3 * np.maximum(slack, 2 * float(np.median(slack))), start)

    @staticmethod
    def slack(phi: Array) -> Array:
        """Minus the second differences, that across 0 first."""
        return np.concatenate([[2 * (phi[0] - phi[1])], -np.diff(phi, 2)])

    @staticmethod
    def spread(weights: Array) -> Array:
        """The transpose of `slack`."""
        out = np.zeros(weights.size + 1)
        out[0], out[1] = 2 * weights[0], -2 * weights[0]
        inner = weights[1:]
        out[:-2] -= inner
        out[1:-1] += 2 * inner
        out[2:] -= inner
        return out

    def value(self, phi: Array) -> float:
        """The barrier, ∞ outside."""
        s = self.slack(phi)
        return float(np.sum(s / self.reference - np.log(s))) if s.min() > 0 else math.inf

    def derivatives(self, phi: Array) -> tuple[Array, Array]:
        """Its gradient and Hessian."""
        s = self.slack(phi)
        w, size = 1 / s**2, phi.size
        # the rows of `slack` are (2, −2) at 0 and (−1, 2, −1) elsewhere
        inner = w[1:]
        main = np.zeros(size)
        main[:2] += 4 * w[0]
        main[:-2] += inner
        main[1:-1] += 4 * inner
        main[2:] += inner
        beside, beyond = np.zeros(size - 1), inner
        beside[0] -= 4 * w[0]
        beside[:-1] -= 2 * inner
        beside[1:] -= 2 * inner
        hessian = np.diag(main)
        for k, band in ((1, beside), (2, beyond)):
            hessian += np.diag(band, k) + np.diag(band, -k)
        return self.spread(1 / self.reference - 1 / s), hessian

    def longest(self, phi: Array, step: Array) -> float:
        """How much of a step stays inside."""
        s, change = self.slack(phi), self.slack(step)
        falling = change < 0
        return min(1.0, 0.95 * float(np.min(-s[falling] / change[falling], initial=np.inf)))


def refined(phi: Array, times: int, size: int) -> Array:
    """Carry concave log masses to cells `times` narrower: their slope at 0 and their curvature between."""
    slack = Concave.slack(phi)
    place = np.arange(1, size - 1) / times
    bent = np.interp(place, np.arange(1, slack.size), slack[1:]) / times**2
    falls = np.concatenate([[slack[0] / 2 / times], bent]).cumsum()
    return np.concatenate([[0.0], -falls.cumsum()])


@dataclass(frozen=True)
class Descent:
    """Newton's method on one lattice.

    Parameters
    ----------
    problem : Composed
    shift : int
        n, the cells of the sensitivity.
    costs : ndarray
        What the cells 0, 1, … (and their mirror images) cost.
    level : float
        log δ that is allowed.
    deadline : Deadline
    """

    problem: Composed
    shift: int
    costs: Array
    level: float
    deadline: Deadline

    def cost(self, phi: Array) -> float:
        """Expected loss."""
        return float((self.problem.copies * self.costs) @ np.exp(phi))

    def restored(self, phi: Array, level: float | None = None) -> Array | None:
        """Bring log δ to its level by φ → (1 + τ)φ, from the safe side to 1e-8; None where that fails."""
        level, copies = self.level if level is None else level, self.problem.copies
        if not np.isfinite(phi).all():
            return None
        phi = _normalised(phi, copies)
        shape = phi - float((copies * np.exp(phi)) @ phi)

        def miss(u: float) -> float:
            return self.problem.log_delta(_normalised(math.exp(u) * shape, copies), self.shift) - level

        low, high, step = 0.0, 0.0, 1e-3
        at_low = at_high = miss(0.0)
        if not math.isfinite(at_low):
            return None
        while at_low > 0 and step < 10:
            high, at_high = low, at_low
            low, step = low - step, 4 * step
            at_low = miss(low)
        while at_high <= 0 and step < 10:
            low, at_low = high, at_high
            high, step = high + step, 4 * step
            at_high = miss(high)
        # -∞ where δ is lost in the rounding of the transforms: no place to look for a root from
        if not (-math.inf < at_low <= 0 < at_high < math.inf):
            return None
        u = low if at_low > -1e-8 else float(optimize.brentq(miss, low, high, xtol=1e-12, maxiter=60))
        missed = miss(u)
        if not abs(missed) < 1e-3:  # a jump, no root
            return None
        if missed > 1e-8:
            u -= 1e-11
        return _normalised(math.exp(u) * shape, copies)

    def run(self, phi: Array, barrier: Concave, *, most: int = 60) -> Array | None:
        """Descend from φ; return the last point, inside the barrier, or None where there is none to start from."""
        found = self.restored(phi)
        if found is None or not math.isfinite(barrier.value(found)):
            return None
        phi, damping = found, 0.1
        weight = barrier.start * self.cost(phi)
        for _ in range(most):
            if self.deadline.passed:
                break
            scale = self.cost(phi)
            held = scale + weight * barrier.value(phi)
            try:
                step = self._stepper(phi, barrier, weight)
            except np.linalg.LinAlgError:  # the privacy constraint no longer moves: δ next to 1
                break
            accepted = None
            for tries in range(10):
                if tries and self.deadline.passed:
                    return phi
                direction = np.clip(step(damping), -_LONGEST, _LONGEST)
                trial = self.restored(phi + barrier.longest(phi, direction) * direction)
                if trial is not None and self.cost(trial) + weight * barrier.value(trial) < held:
                    accepted = trial
                    break
                damping = max(8 * damping, 1e-6)
            last = weight <= barrier.end * scale
            if accepted is None:
                if last:
                    break
                weight, damping = weight / 10, 0.1
                continue
            phi = accepted
            damping = max(damping / 5, 1e-9) if tries == 0 else damping
            gain = (held - self.cost(phi) - weight * barrier.value(phi)) / scale
            if gain < 0.3 * weight / scale + 1e-9:
                if last:
                    break
                weight = max(weight / 10, barrier.end * scale)
        return phi

    def _stepper(self, phi: Array, barrier: Concave, weight: float) -> Callable[[float], Array]:
        """The Newton step as a function of the damping."""
        problem, size = self.problem, phi.size
        log_delta, first, second = problem.derivatives(phi, self.shift)
        mass = problem.copies * np.exp(phi)
        gradient = mass * self.costs
        scale = float(gradient.sum())
        diagonal = mass * (scale + self.costs) + 1e-300
        barred, curved = barrier.derivatives(phi)
        rows = np.stack([first, mass])
        pulled = gradient + weight * barred
        metric = diagonal + weight * np.abs(np.diag(curved))
        if not all(
            np.isfinite(v).all() for v in (rows, second, pulled, curved)
        ):  # beyond doubles: no step from here
            return lambda _: np.zeros(size)
        price, ticket = np.linalg.solve((rows / metric) @ rows.T, (rows / metric) @ -pulled)
        price = max(price, 1e-6 * scale)
        lagrangian = price * second + weight * curved
        lagrangian[np.diag_indices(size)] += gradient + ticket * mass
        root = 1 / np.sqrt(diagonal)
        system = np.zeros((size + 2, size + 2))
        system[:-2, :-2] = root[:, None] * lagrangian * root
        system[-2:, :-2] = rows * root
        system[:-2, -2:] = (rows * root).T
        right = np.concatenate([-root * pulled, [self.level - log_delta, 0.0]])

        def step(damping: float) -> Array:
            damped = system.copy()
            damped[np.arange(size), np.arange(size)] += damping
            try:
                found: Array = root * np.linalg.solve(damped, right)[:-2]
                return found if np.isfinite(found).all() else np.zeros(size)
            except np.linalg.LinAlgError:
                return np.zeros(size)

        return step

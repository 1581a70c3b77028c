r"""Sums over records whose sensitivity is exact, and noise on them that leaves the machine as it was accounted.

Every record's contribution is clipped and rounded to a whole number of at most 2^b. Sums of those stay below 2⁵³, so
doubles add them without any rounding, in whatever order; another record changes the sum by at most 2·2^b, exactly.
The sum is brought to units of the noise, and rounded to the lattice of the release, in rational numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mechdesign.learning.plan import NoisePlan

__all__ = ["NoisyAnswers", "largest_whole"]


def largest_whole(records: int) -> int:
    """The largest 2^b such that `records` of them sum to at most 2⁵².

    Examples
    --------
    >>> largest_whole(1000) == 2**42
    True
    """
    return 1 << (52 - (records - 1).bit_length())


class NoisyAnswers:
    """Adds the noise of a plan, coordinate by coordinate.

    Parameters
    ----------
    plan : NoisePlan
    rng : numpy.random.Generator or RandomState, optional
        For simulation, in doubles. Without it the noise is drawn exactly, from the operating system's randomness, on
        the lattice of the law's release.
    """

    def __init__(self, plan: NoisePlan, rng: Any = None) -> None:
        noise = plan.calibration.mechanism
        shape = (plan.rounds, plan.units.shape[1])
        if rng is None:
            zeros = np.zeros(shape).reshape(-1, noise.dimension)
            step = noise.lattice.step
            drawn = (np.asarray(noise.release(zeros)) / step).astype(np.int64)
            self._log_step: int | None = math.frexp(step)[1] - 1
        else:
            drawn = np.asarray(noise.law.rvs(size=shape, random_state=rng), dtype=float)
            self._log_step = None
        self._drawn = drawn.reshape(shape).tolist()
        self._units = np.broadcast_to(plan.units, shape).tolist()
        self._shifts = np.broadcast_to(plan.shifts, shape).tolist()

    def answer(self, round: int, i: int, total: int, change: int) -> float:
        """Return λ_i/`change` times `total`, with noise: a whole number that changes by at most `change`, a power of two."""
        shift, noise = self._shifts[round][i], self._drawn[round][i]
        if self._log_step is None:
            return float((total / change * shift + noise) * self._units[round][i])
        # in steps, rounded to the nearest: every denominator is a power of two
        over, under = shift.as_integer_ratio()
        bits = under.bit_length() + change.bit_length() - 2 + self._log_step
        steps = (total * over + (1 << bits >> 1)) >> bits if bits > 0 else (total * over) << -bits
        return math.ldexp(float(steps + noise), self._log_step) * self._units[round][i]

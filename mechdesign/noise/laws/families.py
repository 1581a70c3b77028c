"""The families of noise `calibrate` knows: how a shape and a strength make a law."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from scipy import stats

from mechdesign.errors import DesignError
from mechdesign.noise.laws.discrete import discrete_gaussian, discrete_laplace_law
from mechdesign.noise.laws.staircase import staircase, staircase_law
from mechdesign.noise.laws.symmetric import flipped_huber, osgt, truncated_laplace
from mechdesign.problem.law_moments import frozen_parts
from mechdesign.typing import FrozenLaw


@dataclass(frozen=True)
class Family:
    """One family of laws, by shape and scale.

    Attributes
    ----------
    name : str
    make : callable
        ``make(shape, scale, sensitivity)`` → frozen law; privacy improves as the scale grows.
    starts : callable or None
        ``starts(epsilon, delta, dimension)`` → shapes: the ends of the family and the closed-form choices in between,
        from which the shape is searched, in the order they are tried. None: no shape.
    pure : bool
        Whether δ = 0 is possible.
    closed_form : callable or None
        ``closed_form(epsilon, sensitivity, loss)`` → the best law with δ = 0 in one dimension.
    discrete : bool
        Integer noise: sensitivities are whole numbers.
    normal : (float, float) or None
        Shape at which the family is Gaussian, and its scale when σ = 1: a member known in closed form.
    """

    name: str
    make: Callable[[float, float, float], FrozenLaw]
    starts: Callable[[float, float, int], tuple[float, ...]] | None = None
    pure: bool = False
    closed_form: Callable[[float, float, str], FrozenLaw] | None = None
    discrete: bool = False
    normal: tuple[float, float] | None = None

    @property
    def member(self) -> FrozenLaw:
        """One of its laws."""
        shape = 0.0 if self.starts is None else self.starts(1.0, 1e-6, 1)[0]
        return self.make(shape, 1.0, 1.0)


def _huber_starts(epsilon: float, delta: float, dimension: int) -> tuple[float, ...]:
    # from the Gaussian (0) to where the Gaussian tails hold less than δ and begin beyond the sensitivity (α = b² Δ/ε): nothing is left to gain
    laplace = math.sqrt(2 * max(-math.log(max(delta, 1e-300)), 1.0))
    return (0.0, 0.3, 1.2, 0.45 * laplace, 0.75 * laplace, max(1.5 * laplace, 1.7 * math.sqrt(epsilon)))


def _truncated_starts(epsilon: float, delta: float, dimension: int) -> tuple[float, ...]:
    geng = math.log1p(math.expm1(min(epsilon, 500.0)) / (2 * delta)) + math.log(dimension)
    # the nearly Laplace first: what is cut off shorter takes noise that is larger by orders of magnitude
    return (1.2 * geng, 2 * geng, geng, 0.9 * geng, 0.7 * geng, 0.3 * geng)


_DOWN = 1 - 4e-15
"""Above the rounding of a largest loss computed from a scale."""
LEAST_LAPLACE, LEAST_GAUSSIAN = 1 / 115, 1 / 20
"""Scales of discrete laws whose variance is below 1e-49 and still a double, as SciPy computes it; more noise is safe."""

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("gaussian", lambda shape, scale, d: stats.norm(scale=scale), normal=(0.0, 1.0)),
        Family(
            "laplace",
            lambda shape, scale, d: stats.laplace(scale=scale),
            pure=True,
            closed_form=lambda e, d, loss: stats.laplace(scale=d / (e * _DOWN)),
        ),
        Family(
            "logistic",
            lambda shape, scale, d: stats.logistic(scale=scale),
            pure=True,
            closed_form=lambda e, d, loss: stats.logistic(scale=d / (e * _DOWN)),
        ),
        Family(
            "flipped_huber",
            lambda b, scale, d: flipped_huber(b, scale=scale),
            _huber_starts,
            normal=(0.0, 1.0),
        ),
        Family(
            "osgt",
            lambda b, scale, d: osgt(b, scale=scale),
            lambda e, d, k: (0.0, 0.3, 1.0, 3.0, 8.0, 30.0, 300.0, 3000.0),
            normal=(0.0, 1.0),
        ),
        Family(
            "gennorm",
            lambda p, scale, d: stats.gennorm(p, scale=scale),
            lambda e, d, k: (1.0, 1.2, 1.5, 2.0, 3.0),
            normal=(2.0, math.sqrt(2)),
        ),
        Family("truncated_laplace", lambda c, scale, d: truncated_laplace(c, scale=scale), _truncated_starts),
        Family(
            "staircase",
            # the ε of the steps falls as the scale grows: small steps in log density, much noise
            lambda gamma, scale, d: staircase(d / scale, gamma, scale=d),
            lambda e, d, k: (1e-3, 0.1, 0.3, 0.5, 0.7),
            pure=True,
            closed_form=lambda e, d, loss: staircase_law(e * _DOWN, d, loss=loss),
        ),
        Family(
            "discrete_laplace",
            lambda shape, scale, d: discrete_laplace_law(max(scale, LEAST_LAPLACE)),
            pure=True,
            closed_form=lambda e, d, loss: discrete_laplace_law(max(d / (e * _DOWN), LEAST_LAPLACE)),
            discrete=True,
        ),
        Family(
            "discrete_gaussian",
            lambda shape, scale, d: discrete_gaussian(max(scale, LEAST_GAUSSIAN)),
            discrete=True,
        ),
    )
}


def family_of(noise: FrozenLaw) -> Family:
    """Return a family by name, or the family of all scales of a frozen symmetric law.

    Raises
    ------
    DesignError
        An unknown name; a law that is not continuous, not centred or of no finite variance.
    """
    if isinstance(noise, str) and noise in FAMILIES:
        return FAMILIES[noise]
    if not hasattr(getattr(noise, "dist", None), "_logpdf"):
        raise DesignError.of(
            "noise", noise, f"must be one of {sorted(FAMILIES)} or a frozen scipy.stats law with a density"
        )
    dist, shapes, loc, _ = frozen_parts(noise)
    variance = float(noise.var())
    if not (math.isfinite(variance) and variance > 0):
        raise DesignError.of("noise", dist.name, "must have a finite, positive variance")
    if loc != 0:
        raise DesignError.of("noise", dist.name, "must be centred: loc = 0")
    return Family(dist.name, lambda shape, scale, d: dist(*shapes, scale=scale), pure=True)

"""The deployable additive-noise mechanism: a law, what it protects, and its exact privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import integrate

from mechdesign.accounting.interval import DeltaInterval, delta_interval, epsilon_bound
from mechdesign.accounting.law import NoiseLaw
from mechdesign.accounting.loss import frozen_parts
from mechdesign.accounting.pld import to_pld
from mechdesign.accounting.profile import privacy_profile, profile_epsilon
from mechdesign.accounting.terms import NoiseTerm
from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import dumps, serializable
from mechdesign.problem.checks import whole
from mechdesign.problem.privacy import ApproximateDP, PureDP, ZeroConcentratedDP

__all__ = ["AdditiveNoise"]


@serializable("additive-noise")
@dataclass(frozen=True)
class AdditiveNoise:
    r"""Independent noise of one law on every coordinate of a query.

    :math:`M(D) = f(D) + T`, the K coordinates of T independent with the given law, each coordinate of f changing
    by at most Δ between neighbours.

    Parameters
    ----------
    law : frozen scipy.stats distribution
        Symmetric about zero; log-concave, or with finitely many loss values (staircase, discrete).
    sensitivity : float
        Δ > 0 per coordinate.
    dimension : int
        K ≥ 1.
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP, optional
        What it was calibrated for.
    certificate : DeltaInterval, optional
        Proved interval for δ at the calibrated ε, evaluated after the calibration.
    family : str
        The name `calibrate` knows it by.
    accounting : str
        ``"exact"``, ``"sufficient"`` or ``"zcdp"``: how the parameters were chosen.

    Raises
    ------
    DesignError
        Bad sensitivity or dimension, or a law without finite variance.

    Examples
    --------
    >>> from scipy import stats
    >>> noise = AdditiveNoise(stats.laplace(scale=2.0), 1.0)
    >>> noise.variance, round(noise.privacy_profile(0.25), 6), noise.epsilon(0.0)
    (8.0, 0.117503, 0.5...)
    """

    law: Any
    sensitivity: float
    dimension: int = 1
    privacy: PureDP | ApproximateDP | ZeroConcentratedDP | None = None
    certificate: DeltaInterval | None = None
    family: str = ""
    accounting: str = "exact"

    def __post_init__(self) -> None:
        term = NoiseTerm(self.law, self.sensitivity, 1)
        object.__setattr__(self, "sensitivity", term.sensitivity)
        object.__setattr__(self, "dimension", whole("dimension", self.dimension, 1))
        if not hasattr(self.law, "dist"):
            raise DesignError.of("law", self.law, "must be a frozen scipy.stats distribution")
        variance = float(self.law.var())
        if not (math.isfinite(variance) and variance > 0):
            raise DesignError.of("law", self.law.dist.name, "must have a finite, positive variance")

    # The law, as scipy.stats has it.

    def pdf(self, t: Any) -> Any:
        """Density of one coordinate (probability, for a discrete law)."""
        return self.law.pdf(t) if hasattr(self.law.dist, "_logpdf") else self.law.pmf(t)

    def logpdf(self, t: Any) -> Any:
        """Log density of one coordinate."""
        return self.law.logpdf(t) if hasattr(self.law.dist, "_logpdf") else self.law.logpmf(t)

    def cdf(self, t: Any) -> Any:
        """Distribution function of one coordinate."""
        return self.law.cdf(t)

    def sf(self, t: Any) -> Any:
        """Survival function of one coordinate."""
        return self.law.sf(t)

    def ppf(self, q: Any) -> Any:
        """Quantile function of one coordinate."""
        return self.law.ppf(q)

    def var(self) -> float:
        """Variance of one coordinate."""
        return float(self.law.var())

    def std(self) -> float:
        """Standard deviation of one coordinate."""
        return float(self.law.std())

    @property
    def variance(self) -> float:
        """Variance of one coordinate."""
        return float(self.law.var())

    @property
    def mse(self) -> float:
        """Mean squared error of the whole answer, K times the variance."""
        return self.dimension * self.variance

    @property
    def absolute_error(self) -> float:
        """E|T| of one coordinate: in closed form, or twice the integral of the survival function."""
        if not hasattr(self.law.dist, "_logpdf"):
            support = np.arange(0, math.ceil(float(self.law.isf(1e-18))) + 1)
            return 2 * float(np.sum(support * self.law.pmf(support)))
        dist, shapes, _, scale = frozen_parts(self.law)
        if isinstance(dist, NoiseLaw):
            return scale * dist.mean_absolute(*shapes)
        s = self.std()
        edges = s * np.concatenate([np.linspace(0, 4, 9), [6, 8, 12, 16, 24, 32, 48, 64]])
        top = float(self.law.support()[1])
        edges = np.unique(np.minimum(edges, top))
        return 2 * sum(
            float(integrate.quad(self.law.sf, a, b, epsrel=1e-11, limit=200)[0])
            for a, b in zip(edges[:-1], edges[1:])
        )

    @property
    def parameters(self) -> dict[str, float]:
        """Shape and scale parameters by name."""
        dist = self.law.dist
        args = dist._parse_args(*self.law.args, **self.law.kwds)
        names = [n.strip() for n in dist.shapes.split(",")] if dist.shapes else []
        out = {name: float(value) for name, value in zip(names, args[0])}
        if hasattr(dist, "_logpdf"):
            out["scale"] = float(args[2])
        if dist.name == "flipped_huber":
            out["alpha"], out["gamma"] = out["b"] * out["scale"], out["scale"]
        return out

    def rvs(self, size: Any = None, *, random_state: Any = None) -> Any:
        """Draw noise.

        Parameters
        ----------
        size : int or tuple, optional
            ``size`` draws of the K coordinates: shape (K,), (size, K); scalars and (size,) when K = 1.
        random_state : seed or numpy.random.Generator
        """
        rng = np.random.default_rng(random_state)
        if self.dimension == 1:
            return self.law.rvs(size=size, random_state=rng)
        shape = () if size is None else tuple(np.atleast_1d(size))
        return self.law.rvs(size=(*shape, self.dimension), random_state=rng)

    # Privacy.

    def noise_terms(self) -> tuple[NoiseTerm, ...]:
        """What `delta_interval` accounts for."""
        return (NoiseTerm(self.law, self.sensitivity, self.dimension),)

    def privacy_profile(self, epsilon: Any) -> Any:
        """δ(ε): exact in one dimension, the upper end of the certified interval in several.

        From the ε it was calibrated for on, the certificate's proved δ holds too (δ falls with ε), and the
        smaller of the two upper bounds is returned.

        Parameters
        ----------
        epsilon : float or ndarray
            ε ≥ 0.
        """
        if self.dimension == 1:
            return privacy_profile(self.law, self.sensitivity, epsilon)
        values = np.asarray(epsilon, dtype=float)
        out = np.array([self._upper(float(e)) for e in values.ravel()]).reshape(values.shape)
        return float(out) if out.ndim == 0 else out

    def _upper(self, epsilon: float) -> float:
        upper = self.delta_interval(epsilon).upper
        calibrated = getattr(self.privacy, "epsilon", math.inf)
        if self.certificate is not None and epsilon >= calibrated:
            return min(upper, self.certificate.upper)
        return upper

    def delta_interval(self, epsilon: float, **options: Any) -> DeltaInterval:
        """Proved interval for δ(ε); options as in `mechdesign.delta_interval` (width, rounds, sampling)."""
        return delta_interval(self, epsilon, **options)

    def epsilon(self, delta: float, **options: Any) -> float:
        """The least ε certified at `delta`, rounded up; ``inf`` if there is none."""
        if self.dimension == 1 and not options:
            return profile_epsilon(self.law, self.sensitivity, delta)
        if delta == 0:
            return self.dimension * profile_epsilon(self.law, self.sensitivity, 0.0)
        return epsilon_bound(self, delta, **options)

    def pld(
        self, *, dimension: int | None = None, step: float | None = None, pessimistic: bool = True
    ) -> Any:
        """dp-accounting's `PrivacyLossDistribution` of this noise, to compose with any other mechanism."""
        return to_pld(
            self.law,
            self.sensitivity,
            dimension=dimension or self.dimension,
            step=step,
            pessimistic=pessimistic,
        )

    # As text and file.

    def summary(self) -> str:
        """A few lines: the law, what it costs, what is proved."""
        shown = ", ".join(f"{k} = {v:.6g}" for k, v in self.parameters.items())
        lines = [
            f"{self.family or self.law.dist.name} noise ({shown}) on {self.dimension} coordinate(s), "
            f"sensitivity {self.sensitivity:g} each",
            f"variance {self.variance:.6g} per coordinate",
        ]
        if self.privacy is not None:
            lines.append(f"calibrated for {self.privacy} by {self.accounting} accounting")
        if self.certificate is not None:
            lines.append(f"proved delta in [{self.certificate.lower:.6g}, {self.certificate.upper:.6g}]")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()

    def save(self, path: Any) -> None:
        """Write the mechanism as a result file; ``md.load(path)`` reads it back."""
        from pathlib import Path

        Path(path).write_text(dumps(self), encoding="utf-8")

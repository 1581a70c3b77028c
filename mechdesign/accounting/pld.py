r"""Noise laws in dp-accounting: its `MonotonePrivacyLoss` interface and its privacy-loss distributions.

`LawPrivacyLoss` adapts any symmetric log-concave law to dp-accounting's interface; `to_pld` makes the
library's own `PrivacyLossDistribution`, which composes with every other mechanism the library knows.
"""

from __future__ import annotations

import math

import numpy as np

from mechdesign.accounting.composition import discretise
from mechdesign.accounting.losses import NoiseTerm, centred_loss, loss_of
from mechdesign.accounting.planning import plan_grid
from mechdesign.errors import MissingExtra
from mechdesign.problem.checks import one_of, positive, share
from mechdesign.typing import Array, FrozenLaw, Numbers, Values

try:
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution, privacy_loss_mechanism
except ImportError:
    raise MissingExtra.of("pld", "a privacy-loss distribution", "dp-accounting") from None


class LawPrivacyLoss(privacy_loss_mechanism.MonotonePrivacyLoss):  # type: ignore[misc]
    """A symmetric log-concave law in dp-accounting's terms: upper = law moved left by Δ, lower = the law.

    Parameters
    ----------
    law : frozen scipy.stats distribution
    sensitivity : float
        Δ > 0.
    tail_mass : float
        Probability cut off at each end when a distribution is discretised.

    Examples
    --------
    >>> from scipy import stats
    >>> loss = LawPrivacyLoss(stats.laplace(scale=1.0), 1.0)
    >>> round(float(loss.get_delta_for_epsilon(0.5)), 6)
    0.221199
    """

    def __init__(self, law: FrozenLaw, sensitivity: float, *, tail_mass: float = 1e-25) -> None:
        super().__init__(is_discrete=False)
        self._loss = centred_loss(law, sensitivity)
        self._half = self._loss.sensitivity / 2
        self._law = law
        self._tail_mass = share("tail_mass", tail_mass)

    def mu_upper_cdf(self, x: Numbers) -> Array:
        return np.asarray(self._law.cdf(np.add(x, 2 * self._half)))

    def mu_lower_log_cdf(self, x: Numbers) -> Array:
        return np.asarray(self._law.logcdf(x))

    def get_delta_for_epsilon(self, epsilon: Numbers) -> Values:
        x = np.clip(self._loss.inverse(epsilon), -self._loss.edge, self._loss.edge)
        with np.errstate(over="ignore", invalid="ignore"):
            lower = np.nan_to_num(np.exp(epsilon) * self._loss.sf(x + self._half), nan=0.0)
        delta = np.clip(self._loss.sf(x - self._half) - lower, 0, 1)
        return float(delta) if delta.ndim == 0 else delta

    def privacy_loss_tail(self) -> privacy_loss_mechanism.TailPrivacyLossDistribution:
        far = float(self._loss.isf(self._tail_mass))
        # large losses are on the left: x = -t - Δ/2 in the centred variable t
        lower_x = max(-far - 2 * self._half, -self._loss.edge - self._half)
        upper_x = min(far, self._loss.edge - self._half)
        mass = {
            math.inf: float(self._law.cdf(lower_x + 2 * self._half)),
            self.privacy_loss(upper_x): float(self._law.sf(upper_x + 2 * self._half)),
        }
        return privacy_loss_mechanism.TailPrivacyLossDistribution(lower_x, upper_x, mass)

    def connect_dots_bounds(self) -> privacy_loss_mechanism.ConnectDotsBounds:
        """Return the range in which the library discretises this loss, with `tail_mass` beyond each end."""
        tail = self.privacy_loss_tail()
        return privacy_loss_mechanism.ConnectDotsBounds(
            epsilon_upper=self.privacy_loss(tail.lower_x_truncation),
            epsilon_lower=self.privacy_loss(tail.upper_x_truncation),
        )

    def privacy_loss(self, x: float) -> float:
        return float(self._loss.loss(-x - self._half))

    def inverse_privacy_loss(self, privacy_loss: float) -> float:
        return float(self._loss.inverse(-privacy_loss)) - self._half


def to_pld(
    law: FrozenLaw,
    sensitivity: float,
    *,
    dimension: int = 1,
    step: float | None = None,
    pessimistic: bool = True,
) -> privacy_loss_distribution.PrivacyLossDistribution:
    r"""Return dp-accounting's `PrivacyLossDistribution` of `dimension` coordinates.

    Parameters
    ----------
    law : frozen scipy.stats distribution
    sensitivity : float
        Δ per coordinate.
    dimension : int
        K; composed by the library (``self_compose``).
    step : float, optional
        Discretisation interval; by default 1/2000 of the typical loss, on a round binary value so that
        distributions of different laws can share it.
    pessimistic : bool
        Round losses up (connect the dots), or down for a lower bound.

    Returns
    -------
    dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution

    Notes
    -----
    The library's FFT is absolute: expect an error near 1e-14 in δ, and use `delta_interval` for small δ.

    Examples
    --------
    >>> from scipy import stats
    >>> pld = to_pld(stats.laplace(scale=20.0), 1.0, dimension=20, step=1e-4)
    >>> float(round(pld.get_delta_for_epsilon(0.8) * 1e6, 3))
    3.029
    """
    term = NoiseTerm(law, sensitivity, dimension)
    loss = loss_of(term.law, term.sensitivity)
    if step is None:
        plan = plan_grid((term,), 1.0, 0.01)
        step = 2.0 ** math.floor(math.log2(max(plan.step / 4, 1e-9)))
    step, pessimistic = positive("step", step), one_of("pessimistic", pessimistic, (True, False))
    grid = discretise(loss, step, pessimistic=pessimistic, upper_tail=1e-30, lower_tail=1e-20)
    # The offset of a lower bound is less than a step.
    start = grid.start if pessimistic else grid.start - 1
    pmf = pld_pmf.DensePLDPmf(step, start, grid.mass.copy(), float(grid.infinity), pessimistic)
    pld = privacy_loss_distribution.PrivacyLossDistribution(pmf)
    if dimension == 1:
        return pld
    return pld.self_compose(dimension, tail_mass_truncation=1e-15 if pessimistic else 0.0)


def terms_to_pld(terms: tuple[NoiseTerm, ...]) -> privacy_loss_distribution.PrivacyLossDistribution:
    """Return dp-accounting's distribution of several terms composed, on one step."""
    # an atom between two points of the grid moves up by a step at most, in each coordinate: finer steps with atoms
    finer = [64 if loss_of(t.law, t.sensitivity).atoms else 4 for t in terms]
    fine = [max(plan_grid((t,), 1.0, 0.01).step / by, 1e-9) for t, by in zip(terms, finer)]
    steps = [2.0 ** math.floor(math.log2(step)) for step in fine]
    parts = [to_pld(t.law, t.sensitivity, dimension=t.count, step=min(steps)) for t in terms]
    found = parts[0]
    for part in parts[1:]:
        found = found.compose(part)
    return found

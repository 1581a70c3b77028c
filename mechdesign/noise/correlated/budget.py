"""What a privacy requirement lets correlated Gaussian noise spend."""

from __future__ import annotations

from typing import Any

from mechdesign.accounting.gaussian import gaussian_square
from mechdesign.errors import DesignError
from mechdesign.problem.checks import instance
from mechdesign.problem.privacy import ApproximateDP, PureDP, ZeroConcentratedDP

__all__ = ["gaussian_budget"]


def gaussian_budget(privacy: Any) -> float:
    r"""The largest :math:`v^\top\Sigma^{-1}v = \mu^2` that `privacy` allows a change v, rounded down.

    Examples
    --------
    >>> gaussian_budget(ZeroConcentratedDP(0.5))
    1.0
    """
    instance("privacy", privacy, PureDP, ApproximateDP, ZeroConcentratedDP)
    if isinstance(privacy, ZeroConcentratedDP):
        return 2 * privacy.rho
    if not isinstance(privacy, ApproximateDP) or privacy.delta == 0:
        raise DesignError.of(
            "privacy",
            privacy,
            "Gaussian noise needs delta > 0; for delta = 0 use NoiseAllocation(noise='laplace')",
        )
    return gaussian_square(privacy.epsilon, privacy.delta)

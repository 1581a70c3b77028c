r"""Privacy requirements: what must hold, as immutable values.

========================  =====================================================================
`PureDP`                  :math:`P[M(x) \in S] \le e^{\varepsilon} P[M(x') \in S]`
`ApproximateDP`           the same plus :math:`\delta`
`ZeroConcentratedDP`      :math:`D_\alpha(M(x) \| M(x')) \le \xi + \rho\alpha` for all α > 1
`MetricDP`                :math:`P[M(x) \in S] \le e^{\varepsilon d(x, x')} P[M(x') \in S]`
========================  =====================================================================

Whether :math:`x, x'` are any two inputs (local model) or neighbouring datasets (central model)
is the design's business, not the requirement's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mechdesign.evidence.serialize import serializable
from mechdesign.problem.checks import DOWN, array, non_negative, one_of, positive, probability
from mechdesign.problem.fields import Checked, field
from mechdesign.typing import Array, Numbers


@serializable("pure-dp")
@dataclass(frozen=True)
class PureDP(Checked):
    """Pure ε-differential privacy.

    Parameters
    ----------
    epsilon : float
        The budget ε > 0, in nats.

    Examples
    --------
    >>> PureDP(1)
    PureDP(epsilon=1.0)
    """

    epsilon: float = field(check=positive, side=DOWN)


@serializable("approximate-dp")
@dataclass(frozen=True)
class ApproximateDP(Checked):
    """(ε, δ)-differential privacy.

    Parameters
    ----------
    epsilon : float
        ε > 0, in nats.
    delta : float
        δ in [0, 1).

    Examples
    --------
    >>> ApproximateDP(1, 1e-6)
    ApproximateDP(epsilon=1.0, delta=1e-06)
    """

    epsilon: float = field(check=positive, side=DOWN)
    delta: float = field(check=probability, below_one=True, side=DOWN)


@serializable("zcdp")
@dataclass(frozen=True)
class ZeroConcentratedDP(Checked):
    """(ξ, ρ)-zero-concentrated differential privacy (Bun and Steinke 2016).

    Parameters
    ----------
    rho : float
        The slope ρ > 0 of the Rényi divergence in its order.
    xi : float
        The offset ξ ≥ 0.
    """

    rho: float = field(check=positive, side=DOWN)
    xi: float = field(check=non_negative, side=DOWN, default=0.0)


def _metric(name: str, value: object) -> object:
    return value if callable(value) else one_of(name, value, ("absolute", "squared"))


@serializable("metric-dp")
@dataclass(frozen=True)
class MetricDP(Checked):
    """Metric differential privacy: the loss between x and x' is at most ε·d(x, x').

    Parameters
    ----------
    epsilon : float
        Privacy per unit of distance, ε > 0.
    metric : {"absolute", "squared"} or callable
        ``"absolute"`` is \\|x − x'\\|; ``"squared"`` is \\|x − x'\\|² (only meaningful on a fixed input
        grid: on a continuum it forces a constant mechanism); a callable ``d(x, y)`` is vectorised
        over arrays and needs a fixed input grid too.
    """

    epsilon: float = field(check=positive, side=DOWN)
    metric: str | Callable[[Numbers, Numbers], Array] = field(check=_metric, default="absolute")

    def distance(self, x: Numbers, y: Numbers) -> Array:
        """Distance between inputs, element-wise over arrays."""
        if callable(self.metric):
            return self.metric(x, y)
        gap = np.abs(array("x", x, ndim=None, empty=True) - array("y", y, ndim=None, empty=True))
        return gap if self.metric == "absolute" else gap * gap


Privacy = PureDP | ApproximateDP | ZeroConcentratedDP | MetricDP

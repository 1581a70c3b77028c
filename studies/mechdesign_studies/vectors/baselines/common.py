r"""What the published mechanisms share: their arguments, and an (ε, δ) budget from Rényi divergences.

A bound :math:`D_\alpha \le \rho(\alpha)` for all α of a grid gives (ε, δ)-privacy with
:math:`\varepsilon = \min_\alpha \rho(\alpha) + \log\frac{\alpha - 1}{\alpha} - \frac{\log \delta + \log \alpha}{\alpha - 1}` (Canonne, Kamath, Steinke 2020). A noise
is calibrated as the least with ε within the budget.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from mechdesign.checks import generator, instance, integer, magnitude, settle
from mechdesign.errors import DesignError, InfeasibleError
from mechdesign.problem.privacy import ApproximateDP
from mechdesign.typing import Array
from mechdesign.vectors.ball import checked_dimension, checked_vectors

__all__ = ["ORDERS", "Baseline", "calibrated", "spent"]

ORDERS = np.concatenate([np.linspace(1.05, 2, 39), np.geomspace(2.1, 2000, 160)])
_LARGEST_CLIENTS = 1 << 24


def spent(divergences: Array, delta: float) -> float:
    """ε at δ from Rényi divergences of the orders `ORDERS`.

    Examples
    --------
    >>> round(spent(0.5 * ORDERS, 1e-6), 2)      # zCDP of rho = 1/2
    5.22
    """
    found = divergences + np.log1p(-1 / ORDERS) - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    return float(np.fmin.reduce(np.maximum(found, 0.0)))


def calibrated(
    divergences: Callable[[float], Array], privacy: ApproximateDP, low: float, high: float
) -> float:
    """The least parameter within `privacy`, divergences falling in it, by bisection of its logarithm; the safe end.

    Raises
    ------
    InfeasibleError
        None up to `high` is.
    """
    if spent(divergences(high), privacy.delta) > privacy.epsilon:
        raise InfeasibleError("no noise of these bits keeps the budget: more bits, or more clients")
    if spent(divergences(low), privacy.delta) <= privacy.epsilon:
        return low
    for _ in range(60):
        middle = math.sqrt(low * high)
        if spent(divergences(middle), privacy.delta) <= privacy.epsilon:
            high = middle
        else:
            low = middle
    return high


class Baseline(ABC):
    """A published mechanism for the mean of clients' vectors in a ball; frozen dataclasses are.

    Attributes
    ----------
    dimension : int
    privacy : PureDP or ApproximateDP
        Between any two inputs of one client.
    clients : int
        n; the guarantee is for the sum of all of them where a secure aggregation reveals that only, n = 1 is local privacy.
    radius : float
    """

    dimension: int
    privacy: Any
    clients: int
    radius: float

    def _settle(self, kind: type) -> None:
        settle(
            self,
            dimension=checked_dimension("dimension", self.dimension),
            privacy=instance("privacy", self.privacy, kind),
            clients=integer("clients", self.clients, 1, _LARGEST_CLIENTS),
            radius=magnitude("radius", self.radius),
        )
        if getattr(self.privacy, "delta", 1.0) == 0:
            raise DesignError.of("delta", 0.0, "must be positive: this mechanism is not purely private")

    @property
    @abstractmethod
    def error(self) -> float:
        """Expected squared error of the mean of all clients' vectors, for inputs of the length R."""

    @property
    @abstractmethod
    def message_bits(self) -> int:
        """Bits that a client sends."""

    @abstractmethod
    def _mean(self, x: Array, rng: np.random.Generator) -> Array:
        """An estimate of the mean of rows of length at most 1."""

    def sample(self, x: Any, *, rng: Any = None) -> Array:
        """Draw an estimate of the mean of the clients' vectors, shape (n, d), for simulation.

        Raises
        ------
        DesignError
            Other clients than stated, or vectors longer than R.
        """
        return self.radius * self._mean(self._unit(x), generator(rng))

    def release(self, x: Any) -> NoReturn:
        """Refuse: these are drawn in floating-point numbers, to compare with."""
        raise DesignError(
            f"{type(self).__name__} is simulated in floating-point numbers, to compare with: "
            "release with md.SphereQuantizer or md.SampledSigns, whose codes are drawn in integers"
        )

    def _unit(self, x: Any) -> Array:
        """One row of length at most 1 for every client."""
        found = checked_vectors(x, self.dimension).reshape(-1, self.dimension) / self.radius
        if len(found) != self.clients:
            raise DesignError(f"x has {len(found)} vectors: must be {self.clients}, one for each client")
        if (np.sqrt((found**2).sum(axis=1)) > 1 + 1e-9).any():
            raise DesignError(f"x has vectors that are longer than {self.radius:g}: clip them")
        return found

r"""The zero-concentrated privacy of any law with a proved tail: Rényi divergences of every order.

K coordinates are (ξ, ρ)-zCDP when :math:`K D_\alpha \le \xi + \rho\alpha` for all α > 1, so the least ρ beside ξ is
:math:`\sup_\alpha (K D_\alpha - \xi)/\alpha`. With θ = α − 1 and L the privacy loss at distance Δ,
:math:`D_\alpha = \theta^{-1}\log E e^{\theta L}`, a sum for finitely many losses and an integral otherwise. Orders up
to a finite one are evaluated; beyond it a bound in closed form takes over:

- a loss of at most ℓ gives :math:`D_\alpha \le \ell`;
- Gaussian noise, and noise with an offset in front of Gaussian tails (flipped Huber, OSGT), is sub-Gaussian and its
  loss below an affine function: :math:`D_\alpha \le \alpha r^2/2 + c`, r = Δ over the scale, c the offset's cost.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import optimize

from mechdesign.accounting.losses import AtomicLoss, CentredLoss, loss_of
from mechdesign.accounting.profile import profile_epsilon
from mechdesign.accounting.terms import is_gaussian
from mechdesign.errors import DesignError
from mechdesign.problem.sensitivity import Sensitivity
from mechdesign.typing import Array

__all__ = ["concentrated_rho", "worst_rho"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_MARGIN = 1e-9
"""Relative margin above the evaluation error of the integrals and of the largest order found."""


def concentrated_rho(law: Any, sensitivity: float, dimension: int = 1, xi: float = 0.0) -> float:
    """Return the least ρ, rounded up, with which `dimension` coordinates of `law` are (ξ, ρ)-zCDP; inf if none.

    Raises
    ------
    DesignError
        The law's tail has no bound here (generalised normal noise, say).

    Examples
    --------
    >>> from scipy import stats
    >>> round(concentrated_rho(stats.norm(scale=2.0), 1.0, 4), 6)
    0.5
    >>> round(concentrated_rho(stats.laplace(), 1.0), 6)   # the KL divergence, 1 - 1 + 1/e
    0.367879
    """
    loss = loss_of(law, sensitivity)
    if loss.infinity > 0 if isinstance(loss, AtomicLoss) else math.isfinite(loss.edge):
        return math.inf
    slope, offset = _tail(law, sensitivity)
    if offset == 0:
        return dimension * slope * (1 + 4e-16)
    last = 1e6 if slope == 0 else max(10.0, 30 / math.sqrt(2 * slope))
    values, log_mass = _losses(loss, slope, last)

    def rho(log_theta: float) -> float:
        theta = math.exp(log_theta)
        divergence = _log_sum(theta * values + log_mass) / theta
        return (dimension * divergence - xi) / (1 + theta)

    grid = np.linspace(math.log(1e-3), math.log(last), 60)
    at = np.array([rho(x) for x in grid])
    i = int(np.argmax(at))
    low, high = grid[max(i - 1, 0)], grid[min(i + 1, grid.size - 1)]
    found = optimize.minimize_scalar(lambda x: -rho(x), bounds=(low, high), method="bounded")
    first = dimension * float(np.sum(np.exp(log_mass) * values)) - xi  # order 1
    beyond = dimension * slope + max(dimension * offset - xi, 0.0) / (1 + last)
    return max(0.0, float(at[i]), -float(found.fun), first, beyond) * (1 + _MARGIN)


def worst_rho(law: Any, sensitivity: float | Sensitivity, dimension: int = 1, xi: float = 0.0) -> float:
    """Return ρ as `concentrated_rho` does, for whatever the sensitivity allows.

    Normal noise, also the discrete one, spends by the ℓ₂ norm; any other log-concave law at most what it does with the
    largest change on every coordinate that changes, or with the whole ℓ₁ norm on one.

    Examples
    --------
    >>> from scipy import stats
    >>> round(worst_rho(stats.norm(scale=2.0), Sensitivity(linf=1, changed=4), 20), 6)
    0.5
    """
    if not isinstance(sensitivity, Sensitivity):
        return concentrated_rho(law, sensitivity, dimension, xi)
    if is_gaussian(law) or law.dist.name == "discrete_gaussian":
        slope, _ = _tail(law, sensitivity.largest_l2(dimension))
        return slope * (1 + 4e-15)
    box = concentrated_rho(law, sensitivity.largest_linf(dimension), sensitivity.count(dimension), xi)
    total = sensitivity.largest_l1(dimension)
    if law.dist.name == "staircase" or (not hasattr(law.dist, "_logpdf") and total != int(total)):
        return box
    return min(box, concentrated_rho(law, total, 1, xi))


def _log_sum(logs: Array) -> float:
    """log Σ e^v without SciPy's overhead, which is ten times the work."""
    top = float(logs.max())
    return top + math.log(float(np.sum(np.exp(logs - top))))


def _tail(law: Any, sensitivity: float) -> tuple[float, float]:
    """(s, c) with D_α ≤ sα + c for every order."""
    name = law.dist.name
    shapes, _, *scale = law.dist._parse_args(*law.args, **law.kwds)
    r = sensitivity / float(scale[0]) if scale else math.nan
    if name == "norm":
        return r * r / 2, 0.0
    if name == "discrete_gaussian":
        return (sensitivity / float(shapes[0])) ** 2 / 2, 0.0
    if name == "flipped_huber":
        b = float(shapes[0])
        return r * r / 2, (b * b - max(b - r, 0.0) ** 2) / 2
    if name == "osgt":
        return r * r / 2, r * float(shapes[0])
    largest = profile_epsilon(law, sensitivity, 0.0)
    if not math.isfinite(largest):
        raise DesignError.of(
            "noise",
            name,
            "has no proved zCDP: its loss is unbounded; use osgt, flipped_huber, laplace or logistic",
        )
    return 0.0, largest


def _losses(loss: CentredLoss | AtomicLoss, slope: float, last: float) -> tuple[Array, Array]:
    """Values of the loss with the logarithm of their mass: exact, or nodes of a quadrature between the kinks."""
    if isinstance(loss, AtomicLoss):
        with np.errstate(divide="ignore"):
            return loss.values, np.log(loss.mass)
    half = loss.sensitivity / 2
    core = float(loss.isf(1e-40)) + half
    edges = np.concatenate([np.arange(0.0, core, float(loss.law.std()) / 2), [core]])
    if slope:
        # tilted by order α the law's mass moves up to αΔ into the Gaussian tail, of deviation Δ/√(2s)
        wide = loss.sensitivity / math.sqrt(2 * slope) / 2
        edges = np.append(edges, np.arange(core, core + (1 + last) * loss.sensitivity + 12 * wide, wide))
    edges = np.append(edges, [k for k in loss.kinks if k < edges[-1]])
    edges = np.unique(np.concatenate([-edges, edges]))
    width = np.diff(edges)[:, None]
    t = (edges[:-1, None] + width * (1 + _NODES) / 2).ravel()
    with np.errstate(divide="ignore"):
        return loss.loss(t), loss.law.logpdf(t - half) + np.log((width * _WEIGHTS / 2).ravel())

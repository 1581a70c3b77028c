r"""Private coordinate descent, as the papers state it: linear and logistic regression with ℓ₁ or ℓ₂ penalties.

minimise :math:`J(\theta) = \frac1N\sum_n \ell(\theta; x_n, y_n) + \psi(\theta)`, ψ separable. For passes l = 1..L and
coordinates i = 1..K,

.. math::
    g = \frac1N\sum_n \mathrm{clip}(\partial_i \ell_n;\, C_i), \qquad
    \theta_i \leftarrow \mathrm{prox}_{\tau_i\psi_i}\bigl(\theta_i - \tau_i (g + T)\bigr), \qquad \tau_i = \tau / M_i.

Replacing one record moves g by at most :math:`2C_i/N`; all L·K noisy gradients are composed exactly. The noise is simulated
in doubles, from a seed: a study, not a release.

Muthukrishnan and Kalyani, *Differential privacy with higher utility by exploiting coordinate-wise disparity*, Section
VI-A, after Mangold, Bellet, Salmon and Tommasi (2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

import mechdesign as md

from .data import Problem


@dataclass(frozen=True, eq=False)
class Fit:
    """The iterate after each pass, shape (passes, K), and the certified noise of all passes."""

    path: np.ndarray
    calibration: md.Result


def proximal(value: float, weight: float, power: int) -> float:
    """The proximal operator of weight·|θ|^power/power."""
    return math.copysign(max(abs(value) - weight, 0.0), value) if power == 1 else value / (1 + weight)


def noise_plan(
    p: Problem,
    privacy: object,
    clips: np.ndarray,
    rounds: int,
    noise: object,
    allocation: object,
    noise_on: str,
) -> md.learning.NoisePlan:
    """Noise on the gradients: "iid", "scale-perturb-rescale", "least-variance" of the gradient or update, or relative scales."""
    options = {
        "privacy": privacy,
        "sensitivities": 2 * clips / len(p.x),
        "rounds": rounds,
        "neighbours": "replace",  # the number of records is public
    }
    if not isinstance(allocation, str):
        return md.learning.noise_plan(noise, scales=allocation, **options)
    smooth = p.smoothness
    if allocation == "iid":
        return md.learning.noise_plan(
            noise, scales=smooth if noise_on == "update" else np.ones_like(smooth), **options
        )
    if allocation == "scale-perturb-rescale":
        return md.learning.noise_plan(noise, scales=options["sensitivities"], **options)
    costs = (smooth / smooth.max()) ** -2 if noise_on == "update" else np.ones_like(smooth)
    return md.learning.noise_plan(noise, costs=costs / costs.max(), **options)


def fit(
    p: Problem,
    seed: int,
    *,
    privacy: object,
    clip: float,
    passes: int = 10,
    learning_rate: float = 1.0,
    noise: object = "gaussian",
    allocation: object = "scale-perturb-rescale",
    noise_on: str = "gradient",
) -> Fit:
    """Descend once.

    Parameters
    ----------
    p : Problem
    seed : int
        Of the simulated noise.
    privacy : ApproximateDP or ZeroConcentratedDP
        Of the whole fit, for one record replaced.
    clip : float
        C: a record's gradient along coordinate i is clipped to C √(M_i/ΣM_j).
    passes, learning_rate : int, float
        L, τ.
    noise : str, or Result
        As in `mechdesign.calibrate`; or the calibration of an earlier fit of this very question.
    allocation : str or array_like, shape (K,) or (passes, K)
        How noise is shared between coordinates, as in `noise_plan`.
    noise_on : {"gradient", "update"}
        Whose variance "iid" and "least-variance" mean: the published conventions differ.

    Raises
    ------
    DesignError
        The descent diverged.
    """
    (records, k), smooth, power = p.x.shape, p.smoothness, 1 if p.lasso else 2
    clips, steps = clip * np.sqrt(smooth / smooth.sum()), learning_rate / smooth
    plan = noise_plan(p, privacy, clips, passes, noise, allocation, noise_on)
    drawn = (
        plan.calibration.mechanism.law.rvs(size=(passes, k), random_state=np.random.RandomState(seed))
        * plan.units
    )
    signed = p.x if p.lasso else p.x * -p.y[:, None]
    columns = [np.ascontiguousarray(signed[:, i]) for i in range(k)]
    state = -p.y if p.lasso else np.zeros(records)  # residuals, or margins with the sign turned
    theta, path = np.zeros(k), np.empty((passes, k))
    with np.errstate(all="ignore"):  # a descent that diverges is named below
        for l in range(passes):
            for i, column in enumerate(columns):
                gradients = (state if p.lasso else special.expit(state)) * column
                gradient = np.clip(gradients, -clips[i], clips[i]).sum() / records + drawn[l, i]
                moved = proximal(theta[i] - steps[i] * gradient, steps[i] * p.alpha, power)
                state = state + column * (moved - theta[i])
                theta[i] = moved
            path[l] = theta
    if not np.isfinite(path).all():
        raise md.DesignError.of("learning_rate", learning_rate, "the descent diverged: lower it, or the clip")
    return Fit(path, plan.calibration)

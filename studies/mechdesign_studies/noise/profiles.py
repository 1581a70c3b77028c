"""Sensitivity profiles, and the least noise for them: what the files of the study `allocation` share."""

from __future__ import annotations

import math

import numpy as np

import mechdesign as md

DELTA = 1e-6
PROFILES = ("uniform", "linear", "quadratic", "exponential", "one-hot")


def profile(name: str, k: int, norm: float) -> np.ndarray:
    """λ_i ∝ 1, i, i², e^i or a single one, scaled to unit ℓ_norm sensitivity."""
    i = np.arange(1, k + 1)
    values = {
        "uniform": np.ones(k),
        "linear": i * 1.0,
        "quadratic": i**2.0,
        "exponential": np.exp(i - k),
        "one-hot": (i == k) * 1.0,
    }[name]
    return values / np.linalg.norm(values, norm)


def requirement(noise: str, epsilon: float) -> md.PureDP | md.ApproximateDP:
    """(ε, 1e-6)-DP for Gaussian, ε-DP for Laplace noise."""
    return md.PureDP(epsilon) if noise == "laplace" else md.ApproximateDP(epsilon, DELTA)


def allocate(noise: str, lam: np.ndarray, epsilon: float, loss: float = 2) -> md.Result:
    """The scales of least loss for a profile."""
    return md.NoiseAllocation(
        noise=noise, sensitivities=lam, privacy=requirement(noise, epsilon), loss=loss
    ).solve()


def decibel(x: float) -> float:
    """10 log₁₀ x."""
    return 10 * math.log10(x)

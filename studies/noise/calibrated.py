"""Variances of calibrated noise: what the files of the study `flipped-huber` share."""

from __future__ import annotations

import mechdesign as md


def variance(family: str, epsilon: float, delta: float, k: int = 1, **options: str) -> float:
    """Least variance per coordinate of a family, sensitivity 1 in every coordinate."""
    privacy = md.ApproximateDP(epsilon, delta)
    return md.calibrate(family, privacy=privacy, sensitivity=1.0, dimension=k, **options).variance


def saving(ours: float, theirs: float) -> float:
    """Variance saved, in percent."""
    return round(100 * (1 - ours / theirs), 6) + 0.0

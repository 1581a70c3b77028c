"""What an estimator's guarantee does not cover, found in what it is given: a warning, never silence."""

from __future__ import annotations

import warnings

import numpy as np

from mechdesign.typing import Array

__all__ = ["PrivacyLeakWarning", "warn_leak", "warn_refit", "warn_scaled"]

_CLOSE = 1e-9


class PrivacyLeakWarning(UserWarning):
    """Something that depends on the data is used as if it were public: the stated guarantee does not cover it."""


def warn_leak(what: str, remedy: str) -> None:
    """Warn that `what` depends on the data."""
    warnings.warn(f"{what}: the guarantee does not cover that; {remedy}", PrivacyLeakWarning, stacklevel=3)


def warn_refit() -> None:
    """Warn that an estimator is fitted a second time, as tuning does."""
    warn_leak(
        "fitted again: every fit spends the whole budget, and choosing between fits by their scores leaks too",
        "compose the fits, or tune on public data",
    )


def warn_scaled(x: Array) -> None:
    """Warn where every column has exactly the mean and deviation, or the range, that a scaler fitted to it gives."""
    mean, spread = x.mean(axis=0), x.std(axis=0)
    standard = np.all(np.abs(mean) < _CLOSE) and np.all(np.abs(spread - 1) < _CLOSE)
    low, high = x.min(axis=0), x.max(axis=0)
    ranged = np.all(high == 1) and (np.all(low == 0) or np.all(low == -1))
    if len(x) > 2 and (standard or ranged):
        warn_leak(
            "X has been scaled by its own " + ("mean and deviation" if standard else "range"),
            "scale by public numbers",
        )

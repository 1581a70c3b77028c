"""What an estimator's guarantee does not cover: a warning, by its parameters alone and never by a record's value."""

from __future__ import annotations

import warnings

__all__ = ["PrivacyLeakWarning", "warn_leak", "warn_refit"]


class PrivacyLeakWarning(UserWarning):
    """Something that depends on the data is used as if it were public: the stated guarantee does not cover it."""


def warn_leak(what: str, remedy: str) -> None:
    """Warn that `what` depends on the data."""
    warnings.warn(f"{what}: the guarantee does not cover that; {remedy}", PrivacyLeakWarning, stacklevel=3)


def warn_refit() -> None:
    """Warn that an estimator is fitted a second time, as tuning does."""
    warn_leak(
        "fitted again: every fit consumes the whole budget, and choosing between fits by their scores leaks too",
        "compose the fits, or tune on public data",
    )

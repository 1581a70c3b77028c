"""What the estimators share: scikit-learn's names (without it, the error that names the extra), and warnings of leaks.

A warning is raised by an estimator's parameters alone, and never by a record's value.
"""

from __future__ import annotations

import warnings

from mechdesign.errors import MissingExtra

try:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise MissingExtra.of("learning", "mechdesign.learning", "scikit-learn") from None

__all__ = [
    "BaseEstimator",
    "ClassNamePrefixFeaturesOutMixin",
    "ClassifierMixin",
    "PrivacyLeakWarning",
    "RegressorMixin",
    "TransformerMixin",
    "check_classification_targets",
    "check_is_fitted",
    "check_random_state",
    "type_of_target",
    "validate_data",
    "warn_leak",
    "warn_refit",
]


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

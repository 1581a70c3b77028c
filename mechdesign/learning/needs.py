"""What the estimators take from scikit-learn; without it, the error that names the extra."""

from __future__ import annotations

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
    "RegressorMixin",
    "TransformerMixin",
    "check_classification_targets",
    "check_is_fitted",
    "check_random_state",
    "type_of_target",
    "validate_data",
]

r"""What an error costs: :math:`\ell(B_i - x)`.

``"absolute"`` is \|·\|, ``"squared"`` is (·)², a dict mixes them (``{"absolute": 1, "squared": 0.1}``), and
any convex function of the error is accepted as a callable. Weights must be non-negative, so that the loss
is convex; every bound this package proves rests on that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import UnavailableCallable, serializable
from mechdesign.problem.checks import number, settle
from mechdesign.typing import Array

__all__ = ["Loss"]


@serializable("loss")
@dataclass(frozen=True)
class Loss:
    r"""A convex loss :math:`\ell(t) = w_1 |t| + w_2 t^2 + g(t)`.

    Parameters
    ----------
    absolute, squared : float
        The weights :math:`w_1, w_2 \ge 0`.
    function : callable, optional
        The convex part :math:`g`, vectorised over arrays of errors.

    Examples
    --------
    >>> Loss.of("absolute")(np.array([-2.0, 1.0]))
    array([2., 1.])
    >>> Loss.of({"absolute": 1, "squared": 0.5}).name
    '1*absolute + 0.5*squared'
    """

    absolute: float = 0.0
    squared: float = 0.0
    function: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        allowed = "weights must be non-negative, finite and not all zero"
        weights = {name: number(name, getattr(self, name), allowed) for name in ("absolute", "squared")}
        if min(weights.values()) < 0 or (self.function is None and not any(weights.values())):
            raise DesignError.of("loss", weights, allowed)
        if self.function is not None and not callable(self.function):
            raise DesignError.of("function", self.function, "must be a convex callable")
        settle(self, **weights)

    @classmethod
    def of(cls, spec: Any) -> Loss:
        """Return the loss that `spec` names: a string, a dict of weights, a callable, or a Loss."""
        if isinstance(spec, Loss):
            return spec
        if isinstance(spec, str):
            if spec not in ("absolute", "squared"):
                raise DesignError.of(
                    "loss", spec, 'must be "absolute", "squared", a dict of the two, or a convex callable'
                )
            return cls(1.0, 0.0) if spec == "absolute" else cls(0.0, 1.0)
        if isinstance(spec, Mapping):
            unknown = set(spec) - {"absolute", "squared"}
            if unknown or not spec:
                raise DesignError.of("loss", dict(spec), 'a dict may have the keys "absolute" and "squared"')
            return cls(**spec)
        if callable(spec):
            return cls(function=spec)
        raise DesignError.of(
            "loss", spec, 'must be "absolute", "squared", a dict of the two, or a convex callable'
        )

    @property
    def polynomial(self) -> bool:
        """Whether partial moments of order 0–2 suffice to integrate it."""
        return self.function is None

    @property
    def name(self) -> str:
        """How reports call it."""
        if self.function is not None:
            held = getattr(self.function, "name", getattr(self.function, "__name__", "callable"))
            return str(held).removeprefix("@")
        if (self.absolute, self.squared) == (1.0, 0.0):
            return "absolute"
        if (self.absolute, self.squared) == (0.0, 1.0):
            return "squared"
        parts = [f"{w:g}*{n}" for n, w in (("absolute", self.absolute), ("squared", self.squared)) if w]
        return " + ".join(parts)

    def in_units(self, unit: float) -> Loss:
        """Return the loss of an error that is measured in units: ℓ(unit · t)."""
        given = self.function
        if unit == 1.0:
            return self
        function = None if given is None else lambda t: given(unit * np.asarray(t))
        return Loss(self.absolute * unit, self.squared * unit**2, function)

    def __call__(self, error: Any) -> Array:
        """Return ℓ(error), element-wise."""
        error = np.asarray(error, dtype=float)
        value = self.absolute * np.abs(error) + self.squared * error * error
        if self.function is not None:
            try:
                given = np.asarray(self.function(error), dtype=float)
            except (TypeError, ValueError, ArithmeticError, LookupError) as reason:
                if isinstance(reason, DesignError):
                    raise
                raise DesignError.of("loss", self.name, f"fails on an array of errors: {reason}") from reason
            if given.shape != error.shape:
                raise DesignError.of(
                    "loss", self.name, f"must map an array of errors to one of its shape, not {given.shape}"
                )
            value = value + given
        return np.asarray(value)

    def check_convex(self, bins: Array, lower: float, upper: float) -> None:
        """Raise DesignError where ℓ is visibly not convex at the errors that these bins can make.

        The chord through neighbouring points of a sample of :math:`B_i - x` must lie above the middle one.
        """
        if self.function is None or isinstance(self.function, UnavailableCallable):
            return
        x = np.linspace(lower, upper, 65)
        errors = np.unique(np.concatenate([b - x for b in bins] + [np.zeros(1)]))
        errors = errors[
            np.concatenate([[True], np.diff(errors) > 1e-9 * max(1.0, float(np.abs(errors).max()))])
        ]
        with np.errstate(all="ignore"):
            values = self(errors)
        if not np.all(np.isfinite(values)):
            where = errors[~np.isfinite(values)][0]
            raise DesignError(
                f"loss({where:g}) is not finite; a loss must be finite on [{errors[0]:g}, {errors[-1]:g}]"
            )
        left, middle, right = errors[:-2], errors[1:-1], errors[2:]
        share = (right - middle) / (right - left)
        chord = share * values[:-2] + (1 - share) * values[2:]
        scale = np.maximum(np.abs(values[1:-1]), np.abs(chord)) + 1.0
        bad = np.flatnonzero(values[1:-1] > chord + 1e-9 * scale)
        if bad.size:
            at = middle[bad[0]]
            i = int(np.argmin(np.abs(np.subtract.outer(bins, x) - at).min(axis=1)))
            raise DesignError(
                f"loss is not convex near the error {at:g} (output {bins[i]:g}): its value there is above the chord; "
                "give a convex function"
            )

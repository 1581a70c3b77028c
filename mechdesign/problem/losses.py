r"""What an error costs: :math:`\ell(B_i - x)`.

``"absolute"`` is \|·\|, ``"squared"`` is (·)², a dict mixes them (``{"absolute": 1, "squared": 0.1}``), and
any convex function of the error is accepted as a callable. Weights must be non-negative, so that the loss
is convex; every bound this package proves rests on that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from mechdesign.errors import DesignError
from mechdesign.evidence.serialize import UnavailableCallable, serializable
from mechdesign.problem.checks import Checked, field, non_negative
from mechdesign.typing import Array, Numbers


@serializable("loss")
@dataclass(frozen=True)
class Loss(Checked):
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

    absolute: float = field(check=non_negative, default=0.0)
    squared: float = field(check=non_negative, default=0.0)
    function: Callable[[Array], Numbers] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.function is None and not (self.absolute or self.squared):
            raise DesignError("loss: its weights are all zero; one must be positive")
        if self.function is not None and not callable(self.function):
            raise DesignError.of("function", self.function, "must be a convex callable")

    @classmethod
    def of(cls, spec: object) -> Loss:
        """Return the loss that `spec` names: a string, a dict of weights, a callable, or a Loss."""
        if isinstance(spec, Loss):
            return spec
        if callable(spec):
            return cls(function=spec)
        weights = {spec: 1.0} if isinstance(spec, str) else spec
        if not isinstance(weights, Mapping) or not weights or set(weights) - {"absolute", "squared"}:
            allowed = 'must be "absolute", "squared", a dict of the two, or a convex callable'
            raise DesignError.of("loss", spec, allowed)
        return cls(**weights)

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
        weights = {"absolute": self.absolute, "squared": self.squared}
        alone = [name for name, weight in weights.items() if weight]
        if len(alone) == 1 and weights[alone[0]] == 1.0:
            return alone[0]
        parts = [f"{weights[name]:g}*{name}" for name in alone]
        return " + ".join(parts)

    def in_units(self, unit: float) -> Loss:
        """Return the loss of an error that is measured in units: ℓ(unit · t)."""
        given = self.function
        if unit == 1.0:
            return self
        function = None if given is None else lambda t: given(unit * np.asarray(t))
        return Loss(self.absolute * unit, self.squared * unit**2, function)

    def __call__(self, error: Numbers) -> Array:
        """Return ℓ(error), element-wise."""
        error = np.asarray(error, dtype=float)
        value = self.absolute * np.abs(error) + self.squared * error * error
        if self.function is not None:
            try:
                given = np.asarray(self.function(error), dtype=float)
            except DesignError:
                raise
            except (TypeError, ValueError, ArithmeticError, LookupError) as reason:
                raise DesignError.of("loss", self.name, f"fails on an array of errors: {reason}") from reason
            if given.shape != error.shape:
                wanted = f"must map an array of errors to one of its shape, not {given.shape}"
                raise DesignError.of("loss", self.name, wanted)
            value = value + given
        return np.asarray(value)

    def check_convex(self, bins: Array, lower: float, upper: float) -> None:
        """Raise DesignError where ℓ is visibly not convex at the errors that these bins can make.

        The chord through neighbouring points of a sample of :math:`B_i - x` must lie above the middle one.
        """
        if self.function is None or isinstance(self.function, UnavailableCallable):
            return
        x = np.linspace(lower, upper, 65)
        errors = np.unique(np.append(np.subtract.outer(bins, x), 0.0))
        errors = errors[np.append(True, np.diff(errors) > 1e-9 * max(1.0, float(np.abs(errors).max())))]
        with np.errstate(all="ignore"):
            values = self(errors)
        if not np.all(np.isfinite(values)):
            where = errors[~np.isfinite(values)][0]
            ends = f"[{errors[0]:g}, {errors[-1]:g}]"
            raise DesignError(f"loss({where:g}) is not finite; a loss must be finite on {ends}")
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
